"""One node of a recorded run, cut out: what it read, what it gave, and what it should have given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from qdebug.compare.explaining.trials import channels_first
from qdebug.compare.explaining.units import Place, Units, UnitSource
from qdebug.errors import KernelError, UsageError
from qdebug.model import Node, Recording, RunInfo
from qdebug.model.thresholds.explanation import REPRODUCER_MAX_ELEMENTS, REPRODUCER_SAMPLES, REPRODUCER_SIBLINGS
from qdebug.replay.arithmetic import Arithmetic
from qdebug.replay.candidates import candidates
from qdebug.replay.evaluate import accumulate, compute, finish_many
from qdebug.replay.run import one_thread
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant
from qdebug.workflow.repro_cut import LARGE, Cut, cut

__all__ = ["Reproducer", "make_reproducer"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reproducer:
    """One run of one quantized node.

    Args:
        node: The node; for a group of a QDQ graph that was computed as one, what stands for it.
        run: Facts of the run.
        place: Sample and step that the values are of.
        inputs: What the node reads, in its order; None where an optional input is left out.
        constant: Which of them are constants of the graph.
        opset: Version of the node's operator set.
        unit: The node in integer form, cut to what the wrong elements need if it is large.
        variant: The arithmetic that it is held against.
        siblings: Other nodes of the run that this arithmetic reproduces; 0 if it is a stated default.
        recorded: What the backend gave, in the node's own layout.
        expected: What the arithmetic gives.
        whole: Whether nothing was cut.
        elements: Elements of the node's whole output.
        wrong: How many of them are not what the arithmetic gives.
        kept: Positions in the whole output of the elements that a cut keeps, as a sentence; "" if nothing was cut.
        reference: What the comparison with the reference run says of the node, in a clause; "" if nothing.
    """

    node: Node
    run: RunInfo
    place: Place
    inputs: tuple[np.ndarray | None, ...]
    constant: tuple[bool, ...]
    opset: int
    unit: Unit
    variant: Variant
    siblings: int
    recorded: np.ndarray
    expected: np.ndarray
    whole: bool
    elements: int
    wrong: int
    kept: str = ""
    reference: str = ""

    @property
    def max_lsb(self) -> int:
        """The largest error in codes."""
        gap = np.abs(self.recorded.astype(np.int64) - self.expected.astype(np.int64))
        return int(gap.max(initial=0))


def make_reproducer(
    backend: Recording, name: str, *, sample: int | None = None, whole: bool = False, reference: str = ""
) -> Reproducer:
    """Cut a quantized node out of a recording.

    The node is held against the arithmetic that reproduces it; if none does, against the one that reproduces other
    nodes of its kind and types in the same run; if there are none, against the one that comes closest.

    Args:
        backend: The run that the node is taken from.
        name: Name of the node, or of its output.
        sample: Sample to take; the one with most wrong elements if None.
        whole: Keep everything, however large it is.
        reference: What the comparison with another run says of the node.

    Raises:
        UsageError: There is no such node or sample, or nothing in integers can be computed of it.
    """
    node, tensor = _node(backend, name)
    units = Units(backend)
    source = units.missing(node, tensor) or units.find(node, tensor)
    if isinstance(source, str):
        raise UsageError(
            f"Node {node.name!r} ({node.op}) cannot be computed again: {source.rstrip('.')}.",
            hint="See which nodes can be: qdebug explain BACKEND.",
        )
    with one_thread():
        return _made(units, source, sample=sample, whole=whole, reference=reference)


def _made(units: Units, source: UnitSource, *, sample: int | None, whole: bool, reference: str) -> Reproducer:
    node, backend = source.computed, source.recording
    variant, siblings = _arithmetic(units, source)
    place = _worst(source, variant) if sample is None else _place(source, sample)
    unit = source.unit(place)
    recorded = source.codes(place)
    expected = compute(unit, variant)
    wrong = int(np.count_nonzero(recorded != expected))
    inputs = tuple(backend.load(entry, *place) if entry else None for entry in node.inputs)
    large = sum(array.nbytes for array in inputs if array is not None) > LARGE and not whole
    part = cut(unit, recorded, expected) if large else None
    if part is None:
        part = Cut(unit=unit, recorded=recorded, kept="")
    return Reproducer(
        node=node,
        run=backend.info,
        place=place,
        inputs=inputs if not part.kept else (),
        constant=tuple(backend.graph.is_constant(entry) for entry in node.inputs),
        opset=backend.graph.opset.get(node.domain, 1),
        unit=part.unit,
        variant=variant,
        siblings=siblings,
        recorded=part.recorded,
        expected=compute(part.unit, variant),
        whole=not part.kept,
        elements=recorded.size,
        wrong=wrong,
        kept=part.kept,
        reference=reference,
    )


def _node(backend: Recording, name: str) -> tuple[Node, str]:
    for node in backend.graph.nodes:
        if node.name == name or name in node.outputs:
            return node, name if name in node.outputs else next(filter(None, node.outputs), "")
    raise UsageError(
        f"The backend's recording has no node {name!r}.", hint="List the nodes: qdebug explain BACKEND --all."
    )


def _arithmetic(units: Units, source: UnitSource) -> tuple[Variant, int]:
    """Give the arithmetic that a node is held against, and how many other nodes it reproduces."""
    own = _closest(source)
    if not own:
        raise UsageError(
            f"Node {source.node.name!r} ({source.node.op}) cannot be computed again in any known arithmetic.",
            hint="See which nodes can be: qdebug explain BACKEND.",
        )
    for rate, variant in own:
        if rate == 1.0 and _reproduces(source, variant):
            return variant, 0
    counts: Counter[Variant] = Counter()
    for sibling in _siblings(units, source):
        counts.update(variant for rate, variant in _closest(sibling) if rate == 1.0)
    if not counts:
        return own[0][1], 0
    # Of the variants that reproduce most nodes the first tried is the simplest.
    variant, count = counts.most_common(1)[0]
    return variant, count


def _closest(source: UnitSource) -> list[tuple[float, Variant]]:
    """Give the share of elements that each known variant reproduces, the best and simplest first."""
    same: Counter[Variant] = Counter()
    total = 0
    for place in source.places[:REPRODUCER_SAMPLES]:
        unit = source.unit(place)
        recorded = channels_first(source.codes(place), unit).reshape(-1)
        chosen = np.unique(np.linspace(0, max(recorded.size - 1, 0), REPRODUCER_MAX_ELEMENTS).astype(np.int64))[
            : recorded.size
        ]
        total += chosen.size
        known = dict.fromkeys((Arithmetic().variant(unit), *candidates(unit)))
        for sums in dict.fromkeys(variant.sums for variant in known):
            fitting = [variant for variant in known if variant.sums == sums]
            with suppress(KernelError):
                codes = finish_many(unit, accumulate(unit, sums).take(chosen), fitting)
                counts = np.count_nonzero(codes == recorded[chosen], axis=1).tolist()
                same.update(dict(zip(fitting, counts, strict=True)))
    return sorted(((count / max(total, 1), variant) for variant, count in same.items()), key=lambda pair: -pair[0])


def _reproduces(source: UnitSource, variant: Variant) -> bool:
    return all(np.array_equal(compute(source.unit(place), variant), source.codes(place)) for place in source.places)


def _siblings(units: Units, source: UnitSource) -> Iterator[UnitSource]:
    """Give other nodes of the same operator, kind and types."""
    unit = source.unit(source.places[0])
    looked = 0
    for node in source.recording.graph.nodes:
        if (
            node.op != source.node.op
            or node.name == source.node.name
            or looked == REPRODUCER_SIBLINGS
            or not node.outputs
        ):
            continue
        other = units.missing(node, node.outputs[0]) or units.find(node, node.outputs[0])
        if isinstance(other, UnitSource):
            its = other.unit(other.places[0])
            if (its.kind, its.branch, its.dtypes) == (unit.kind, unit.branch, unit.dtypes):
                looked += 1
                yield other


def _worst(source: UnitSource, variant: Variant) -> Place:
    def wrong(place: Place) -> int:
        return int(np.count_nonzero(compute(source.unit(place), variant) != source.codes(place)))

    return max(source.places, key=wrong)


def _place(source: UnitSource, sample: int) -> Place:
    for place in source.places:
        if place[0] == sample:
            return place
    known: Sequence[int] = sorted({place[0] for place in source.places})
    raise UsageError(
        f"Sample {sample} of node {source.node.name!r} was not recorded.",
        hint=f"Choose a sample from {known[0]} to {known[-1]}." if known else "Record the run again.",
    )
