"""Other causes of a wrong result if no known mistake of the operator reproduces all of it.

The first match is reported: a simple relation between the result and the right one, an operand that is weighted or read
differently or replaced by a different tensor, or a mistake in one part of the result while the rest is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from qdebug.arithmetic.patterns.residual import Residual
from qdebug.arithmetic.search import SearchResult
from qdebug.compare.explaining.fused import WithFused
from qdebug.compare.explaining.wrong_node import EVERY, LIKELY, MOST_SAID, ONE_OFF, WrongNode
from qdebug.compare.measure.recordings import with_understood_graph
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Node, Recording

__all__ = ["cause_inside", "further_cause", "with_further_cause"]

Place = tuple[int, int]


def further_cause(
    recording: Recording, node: Node, tensor: str, places: Sequence[Place], *, in_layer: bool = True
) -> str | None:
    """Return the cause of a wrong output that no known mistake of the operator reproduces, or None if none is found.

    A mistake is reported as likely, a relation to the right result as a fact.

    Args:
        recording: The run.
        node: A node whose replay does not reproduce its output.
        tensor: The output, of real numbers, whole sums or codes.
        places: Samples and steps to examine.
        in_layer: Whether to search inside the layer that the node ends, if its inner tensors were not recorded.
    """
    if not places:
        return None
    coded = recording.graph.tensors[tensor].quant is not None
    try:
        case = WrongNode(recording, node, tensor, places)
        cause = case.cause_of_codes() if coded else case.cause_of_numbers()
    except NotRecordedError:  # the node ends a fused layer, whose inner tensors were not recorded
        cause = None
    except (KernelError, UsageError):
        return None
    if cause is not None or not in_layer:
        return cause
    layers = recording if isinstance(recording, WithFused) else WithFused(recording)
    inside = cause_inside(layers, node, tensor, places)
    return None if inside is None else f"{LIKELY}{inside}"


def cause_inside(layers: WithFused, node: Node, tensor: str, places: Sequence[Place]) -> str | None:
    """Return the mistakes inside a layer that reproduce its whole output, in words, with their nodes.

    Args:
        layers: The run with tensors inside its layers computed.
        node: The last node of the layer.
        tensor: Its output.
        places: Samples and steps to examine.

    Returns:
        The clause, or None if no node or more than two may have one, or if the output is not far enough off to tell.
    """
    chains = [chain for name in node.inputs if name and (chain := layers.chain(name)) is not None]
    if not chains or any(chain.makes_codes for chain in chains) or not places:
        return None
    names = {inner.name for chain in chains for inner in chain.nodes}
    nodes = [*(inner for inner in layers.graph.nodes if inner.name in names), node]
    clauses: list[tuple[str, str]] = []
    for at, each in enumerate(nodes[: None if len(nodes[-1].outputs) == 1 else -1]):
        later = _depending(nodes[at + 1 :], each)
        if each is not node and not later:
            continue
        with suppress(KernelError, NotRecordedError, UsageError):
            case = WrongNode(layers, each, tensor, places, later)
            cause = case.cause_inside() if case.is_far_off else None
            if cause is not None:
                mistake, _, claim = cause.removeprefix(LIKELY).rpartition(" (")
                clauses.append((f"{mistake} in {each.name!r} ({each.op})", claim))
    if not 0 < len(clauses) <= MOST_SAID:
        return None
    claim = next((claim for _, claim in clauses if claim.startswith(ONE_OFF)), clauses[0][1])
    return f"{', or '.join(clause for clause, _ in clauses)}, inside the layer ({claim}"


def _depending(nodes: Sequence[Node], first: Node) -> list[Node]:
    """Return the nodes, out of some in order, that need the result of a first one."""
    needed = set(first.outputs)
    depending = []
    for node in nodes:
        if needed & set(node.inputs):
            needed |= set(node.outputs)
            depending.append(node)
    return depending


def with_further_cause(left: Residual, finding: SearchResult) -> Residual:
    """Return the residual of a search with a cause added, if a real-valued mistake reproduces the codes.

    Args:
        left: The residual, which no known mistake on codes reproduces.
        finding: The search result of the node.
    """
    if left.reproduces or left.max_lsb <= 1 or left.pattern in _PLAIN_PATTERNS:
        return left
    source = finding.source
    recording, in_layer = with_understood_graph(source.recording), left.pattern != "factor"  # that has many causes
    cause = further_cause(recording, source.node, source.tensor, source.places, in_layer=in_layer)
    if cause is None:
        return left
    return replace(left, likely=cause.removeprefix(LIKELY), reproduces=EVERY in cause)


_PLAIN_PATTERNS = frozenset(("clamp", "one_code"))
"""Patterns of codes that say as much as a mistake. Errors of one code are those of rounding."""
