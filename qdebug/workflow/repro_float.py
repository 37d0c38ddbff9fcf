"""One float node of a recorded run, cut out: what it read, what it gave, and how far that may be from its replay."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from qdebug.compare.explaining.float_band import FloatReplay, judge_float, replay_float
from qdebug.compare.explaining.units import Place, Units
from qdebug.errors import KernelError, UsageError
from qdebug.model import Node, Recording, RunInfo
from qdebug.model.thresholds.explanation import REPRODUCER_SIBLINGS
from qdebug.replay.registry import has_kernel
from qdebug.replay.run import one_thread

__all__ = ["FloatReproducer", "is_float_node", "make_float_reproducer"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FloatReproducer:
    """One run of one float node.

    Args:
        node: The node.
        tensor: The output that is looked at.
        run: Facts of the run.
        place: Sample and step that the values are of.
        inputs: What the node reads, in its order; None where an optional input is left out.
        constant: Which of them are constants of the graph.
        opset: Version of the node's operator set.
        real: Whether inputs and output are real numbers as they are, and no codes with a scale.
        precision: The precision that it is held against, as `Band` names it.
        siblings: Other nodes of its operator that are within this precision, if the node itself is within none.
        recorded: What the backend gave.
        expected: What the replay in that precision gives.
        allowed: The norm that their difference may have.
        error: The norm that it has; infinite if one of them alone is not finite somewhere.
        reference: What the comparison with the reference run says of the node, in a clause; "" if nothing.
    """

    node: Node
    tensor: str
    run: RunInfo
    place: Place
    inputs: tuple[np.ndarray | None, ...]
    constant: tuple[bool, ...]
    opset: int
    real: bool
    precision: str
    siblings: int
    recorded: np.ndarray
    expected: np.ndarray
    allowed: float
    error: float
    reference: str = ""

    @property
    def within(self) -> bool:
        """Whether the recorded output is within what is allowed."""
        return self.error <= self.allowed


def is_float_node(backend: Recording, name: str) -> bool:
    """Tell whether a name is that of a node, or of an output of one, that computes on real numbers.

    Args:
        backend: The run.
        name: Name of the node, or of its output.
    """
    found = _find(backend, name)
    if found is None:
        return False
    units = Units(backend)
    node, tensor = found
    known = has_kernel(node.op, node.domain) and units.missing(node, tensor) is None
    return known and not units.quantized(node, tensor) and isinstance(units.find(node, tensor), str)


def make_float_reproducer(
    backend: Recording, name: str, *, sample: int | None = None, reference: str = ""
) -> FloatReproducer:
    """Cut a float node out of a recording.

    The node is held against its replay, by the band of the precision that accounts for it; if none does, of the
    precision that most other nodes of its operator have in the same run.

    Args:
        backend: The run that the node is taken from.
        name: Name of the node, or of its output.
        sample: Sample to take; the one that is furthest off if None.
        reference: What the comparison with another run says of the node.

    Raises:
        UsageError: There is no such node or sample, or it cannot be replayed.
    """
    found = _find(backend, name)
    if found is None:
        raise UsageError(
            f"The backend's recording has no node {name!r}.", hint="List the nodes: qdebug explain BACKEND --all."
        )
    node, tensor = found
    units = Units(backend)
    places = [place for place in units.places(node, tensor) if sample is None or place[0] == sample]
    if not places:
        of_sample = "" if sample is None else f" for sample {sample}"
        raise UsageError(
            f"Node {node.name!r} was not recorded with its inputs{of_sample}.",
            hint="See what was recorded: qdebug info FILE.",
        )
    try:
        with one_thread():
            precision, siblings = _precision(backend, units, node, tensor)
            place = max(places, key=lambda place: _excess(replay_float(backend, node, tensor, place, precision)))
            replay = replay_float(backend, node, tensor, place, precision)
    except KernelError as error:
        raise UsageError(
            f"Node {node.name!r} ({node.op}) cannot be computed again: {error.message.rstrip('.')}.",
            hint="See which nodes can be: qdebug explain BACKEND.",
        ) from error
    tensors = backend.graph.tensors
    return FloatReproducer(
        node=node,
        tensor=tensor,
        run=backend.info,
        place=place,
        inputs=tuple(backend.load(entry, *place) if entry else None for entry in node.inputs),
        constant=tuple(backend.graph.is_constant(entry) for entry in node.inputs),
        opset=backend.graph.opset.get(node.domain, 1),
        real=all(tensors[entry].quant is None for entry in (tensor, *node.inputs) if entry),
        precision=precision,
        siblings=siblings,
        recorded=replay.recorded,
        expected=replay.replayed,
        allowed=replay.allowed,
        error=replay.error,
        reference=reference,
    )


def _find(backend: Recording, name: str) -> tuple[Node, str] | None:
    for node in backend.graph.nodes:
        if node.name == name or name in node.outputs:
            return node, name if name in node.outputs else next(filter(None, node.outputs), "")
    return None


def _excess(replay: FloatReplay) -> float:
    if replay.error == 0:
        return 0.0
    return replay.error / replay.allowed if replay.allowed else np.inf


def _precision(backend: Recording, units: Units, node: Node, tensor: str) -> tuple[str, int]:
    """Give the precision that a node is held against, and how many siblings have it if the node has none."""
    own = judge_float(backend, node, tensor, units.places(node, tensor))
    if own.within:
        return _named(own.band.precision), 0
    counts: Counter[str] = Counter()
    for other in backend.graph.nodes:
        if (
            other.op != node.op
            or other.name == node.name
            or not other.outputs
            or sum(counts.values()) == REPRODUCER_SIBLINGS
        ):
            continue
        output = other.outputs[0]
        if not output or units.missing(other, output) is not None or units.quantized(other, output):
            continue
        try:
            found = judge_float(backend, other, output, units.places(other, output))
        except KernelError:
            continue
        if found.within:
            counts[_named(found.band.precision)] += 1
    return counts.most_common(1)[0] if counts else ("fp32", 0)


def _named(precision: str) -> str:
    """Give the band of a node that is equal to its replay: another version of its kernel may round otherwise."""
    return "fp32" if precision == "exact" else precision
