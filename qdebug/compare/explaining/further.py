"""Other causes of a wrong result if no known mistake of the operator reproduces all of it.

The first match is reported: a simple relation between the result and the right one, an operand that is weighted or read
differently or replaced by a different tensor, or a mistake in one part of the result while the rest is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qdebug.arithmetic.patterns.residual import Residual
from qdebug.arithmetic.search import SearchResult
from qdebug.compare.explaining.claims import EVERY, LIKELY
from qdebug.compare.explaining.fused import WithFused
from qdebug.compare.explaining.layer_cause import cause_inside
from qdebug.compare.explaining.wrong_node import WrongNode
from qdebug.compare.measure.recordings import with_understood_graph
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Node, Recording

__all__ = ["further_cause", "with_further_cause"]

Place = tuple[int, int]


def further_cause(
    recording: Recording,
    node: Node,
    tensor: str,
    places: Sequence[Place],
    *,
    in_layer: bool = True,
    roundings: bool = True,
) -> str | None:
    """Return the cause of a wrong output that no known mistake of the operator reproduces, or None if none is found.

    A mistake is reported as likely, a relation to the right result as a fact.

    Args:
        recording: The run.
        node: A node whose replay does not reproduce its output.
        tensor: The output, of real numbers, whole sums or codes.
        places: Samples and steps to examine.
        in_layer: Whether to search inside the layer that the node ends, if its inner tensors were not recorded.
        roundings: Whether numbers of fewer digits are mistakes.
    """
    if not places:
        return None
    coded = recording.graph.tensors[tensor].quant is not None
    try:
        case = WrongNode(recording, node, tensor, places, roundings=roundings)
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
