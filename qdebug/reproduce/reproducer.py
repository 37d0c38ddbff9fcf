"""One node of a recorded run, cut out: what it read, what it gave, and what it should have given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.presets import KnownRuntime, is_known
from qdebug.arithmetic.search import channels_first
from qdebug.arithmetic.units import Place, Units, UnitSource
from qdebug.compare.explaining.float_band import FloatReplay, judge_float, replay_float
from qdebug.compare.measure.recordings import with_understood_graph
from qdebug.errors import KernelError, UsageError
from qdebug.model import Node, Recording, RunInfo
from qdebug.model.thresholds.explanation import REPRODUCER_MAX_ELEMENTS, REPRODUCER_SAMPLES, REPRODUCER_SIBLINGS
from qdebug.replay.evaluate import accumulate, compute, finish_many
from qdebug.replay.registry import Call, has_kernel
from qdebug.replay.run import one_thread
from qdebug.replay.unit import PAIRS, Operand, Unit
from qdebug.replay.variant import Arithmetic, Variant
from qdebug.replay.windows import window_of

__all__ = [
    "LARGE",
    "Cut",
    "FloatReproducer",
    "Reproducer",
    "cut",
    "is_float_node",
    "make_float_reproducer",
    "make_reproducer",
]

LARGE = 1 << 20
"""Bytes of inputs from which a node is cut."""

_ELEMENTWISE = frozenset({*PAIRS, "lookup", "requantize", "quantize", "dequantize"})
_ELEMENTS = 64
"""Wrong elements that a cut keeps."""
_BOX = 16
"""Most output positions along an axis that a cut of a convolution keeps."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cut:
    """A part of a unit.

    Args:
        unit: The unit, cut.
        recorded: What was recorded of its output, in the node's own layout.
        kept: What was kept, in a clause; "" if everything.
    """

    unit: Unit
    recorded: np.ndarray
    kept: str


def cut(unit: Unit, recorded: np.ndarray, expected: np.ndarray) -> Cut | None:
    """Cut a unit to what its wrong elements need.

    Args:
        unit: The unit.
        recorded: What was recorded, in the node's own layout.
        expected: What it is held against.

    Returns:
        The part; None if nothing is wrong, or no way is known to cut a unit of this kind.
    """
    wrong = np.argwhere(recorded != expected)
    if not wrong.size:
        return None
    error = np.abs(recorded.astype(np.int64) - expected.astype(np.int64))[tuple(wrong.T)]
    wrong = wrong[np.argsort(-error, kind="stable")]
    if unit.kind == "conv" and not unit.transposed:
        return _conv(unit, recorded, wrong)
    if unit.kind == "linear":
        return _linear(unit, recorded, wrong)
    if unit.kind in _ELEMENTWISE:
        return _elements(unit, recorded, wrong)
    return None


def _conv(unit: Unit, recorded: np.ndarray, wrong: np.ndarray) -> Cut | None:
    """Keep a box of output positions around the worst element, and the filters of the wrong elements in it."""
    if unit.channels_last:
        recorded = np.moveaxis(recorded, -1, 1)
        wrong = wrong[:, [0, -1, *range(1, wrong.shape[1] - 1)]]
    x, weight = unit.operands
    window = window_of(
        Call(inputs=(), attrs=unit.attrs, opset=unit.opset, op=unit.op), x.codes.shape[2:], weight.codes.shape[2:]
    )
    worst = wrong[0]
    near = wrong[(wrong[:, 0] == worst[0]) & (np.abs(wrong[:, 2:] - worst[2:]) < _BOX // 2).all(axis=1)][:_ELEMENTS]
    groups = unit.attrs.get("group", 1)
    filters = np.unique(near[:, 1]) if groups == 1 else np.arange(weight.codes.shape[0])
    image: list[slice] = []
    begin, end = [], []
    for axis, (kernel, stride, dilation, before) in enumerate(
        zip(weight.codes.shape[2:], window.strides, window.dilations, window.begin, strict=True)
    ):
        low, high = int(near[:, 2 + axis].min()), int(near[:, 2 + axis].max())
        first, last = low * stride - before, high * stride - before + (kernel - 1) * dilation + 1
        extent = x.codes.shape[2 + axis]
        image.append(slice(max(first, 0), min(last, extent)))
        begin.append(max(-first, 0))
        end.append(max(last - extent, 0))
    boxes = tuple(slice(int(near[:, 2 + a].min()), int(near[:, 2 + a].max()) + 1) for a in range(len(image)))
    attrs = {**unit.attrs, "pads": (*begin, *end), "auto_pad": "NOTSET"}
    part = replace(
        unit,
        operands=(
            replace(x, codes=x.codes[(slice(worst[0], worst[0] + 1), slice(None), *image)]),
            _rows(weight, filters),
        ),
        bias=None if unit.bias is None else unit.bias.reshape(-1)[filters] if unit.bias.size > 1 else unit.bias,
        attrs=attrs,
        channels_last=False,
    )
    kept = recorded[worst[0] : worst[0] + 1][(slice(None), filters, *boxes)]
    place = ", ".join(f"{box.start} to {box.stop - 1}" for box in boxes)
    return Cut(
        unit=part, recorded=kept, kept=f"image {worst[0]}, filters {_listed(filters)}, positions {place} of the output"
    )


def _rows(operand: Operand, rows: np.ndarray) -> Operand:
    def of(values: np.ndarray) -> np.ndarray:
        return values[rows] if values.size > 1 else values

    return Operand(codes=operand.codes[rows], scale=of(operand.scale), zero_point=of(operand.zero_point))


def _linear(unit: Unit, recorded: np.ndarray, wrong: np.ndarray) -> Cut | None:
    """Keep the rows and columns of the wrong elements of a product of two matrices."""
    a, b = unit.operands
    if a.codes.ndim != 2 or b.codes.ndim != 2 or unit.out.scale.size > 1 or a.scale.size > 1:
        return None
    rows, columns = (np.unique(wrong[:_ELEMENTS, axis]) for axis in (0, 1))

    def of(values: np.ndarray) -> np.ndarray:
        return values[..., columns] if values.size > 1 else values

    right = Operand(codes=b.codes[:, columns], scale=of(b.scale), zero_point=of(b.zero_point))
    bias = unit.bias
    if bias is not None and bias.ndim and bias.shape[-1] > 1:
        bias = bias[..., columns]
    part = replace(unit, operands=(replace(a, codes=a.codes[rows]), right), bias=bias)
    return Cut(
        unit=part,
        recorded=recorded[np.ix_(rows, columns)],
        kept=f"rows {_listed(rows)}, columns {_listed(columns)} of the output",
    )


def _elements(unit: Unit, recorded: np.ndarray, wrong: np.ndarray) -> Cut | None:
    """Keep the wrong elements alone, in a row."""
    if unit.channels_last or any(operand.scale.size > 1 or operand.zero_point.size > 1 for operand in unit.operands):
        return None
    if unit.out.scale.size > 1 or unit.out.zero_point.size > 1:
        return None
    places = tuple(wrong[:_ELEMENTS].T)
    operands = tuple(
        replace(operand, codes=np.broadcast_to(operand.codes, recorded.shape)[places]) for operand in unit.operands
    )
    return Cut(
        unit=replace(unit, operands=operands, channels_last=False),
        recorded=recorded[places],
        kept=f"{len(places[0])} wrong elements, the worst first",
    )


def _listed(values: np.ndarray) -> str:
    shown = ", ".join(str(int(value)) for value in values[:8])
    return shown if values.size <= 8 else f"{shown} and {values.size - 8} more"


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
        outside: What the range of the output's format has taken from results, in a clause; "" if nothing.
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
    outside: str = ""

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
    backend = with_understood_graph(backend)
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
    backend = with_understood_graph(backend)
    node, tensor = _known(backend, name)
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
        outside=replay.outside or "",
    )


def _find(backend: Recording, name: str) -> tuple[Node, str] | None:
    for node in backend.graph.nodes:
        if node.name == name or name in node.outputs:
            return node, name if name in node.outputs else next(filter(None, node.outputs), "")
    return None


def _known(backend: Recording, name: str) -> tuple[Node, str]:
    found = _find(backend, name)
    if found is None:
        raise UsageError(
            f"The backend's recording has no node {name!r}.", hint="List the nodes: qdebug explain BACKEND --all."
        )
    return found


def _excess(replay: FloatReplay) -> float:
    if replay.error == 0:
        return 0.0
    return replay.error / replay.allowed if replay.allowed else np.inf


def _precision(backend: Recording, units: Units, node: Node, tensor: str) -> tuple[str, int]:
    """Return the precision that a node is held against, and how many siblings have it if the node has none."""
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
    """Return the band of a node that is equal to its replay: another version of its kernel may round otherwise."""
    return "fp32" if precision == "exact" else precision


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
    nodes of its kind and types in the same run; if there are none, against the one that the fingerprint of this very
    runtime states, else the one that comes closest.

    Args:
        backend: The run that the node is taken from.
        name: Name of the node, or of its output.
        sample: Sample to take; the one with most wrong elements if None.
        whole: Keep everything, however large it is.
        reference: What the comparison with another run says of the node.

    Raises:
        UsageError: There is no such node or sample, or nothing in integers can be computed of it.
    """
    backend = with_understood_graph(backend)
    node, tensor = _known(backend, name)
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


def _arithmetic(units: Units, source: UnitSource) -> tuple[Variant, int]:
    """Return the arithmetic that a node is held against, and how many other nodes it reproduces."""
    own = _closest(source)
    if not own:
        raise UsageError(
            f"Node {source.node.name!r} ({source.node.op}) cannot be computed again in any known arithmetic.",
            hint="See which nodes can be: qdebug explain BACKEND.",
        )
    unit = source.unit(source.places[0])
    for rate, variant in own:
        if rate == 1.0 and is_known(variant) and _reproduces(source, variant):
            return variant, 0
    counts: Counter[Variant] = Counter()
    rates = {variant: rate for rate, variant in own}  # an arithmetic of its kind may not know what this node asks for
    # What another version or another processor computes by says nothing of this run.
    stated = KnownRuntime(source.recording.info).variant(unit.kind, unit.dtypes, unit.branch)
    for any_branch in (False, True):
        for sibling in _siblings(units, source, any_branch=any_branch):
            counts.update(variant for rate, variant in _closest(sibling) if rate == 1.0 and variant in rates)
        if counts:
            break
        if stated in rates:
            return stated, 0
    if not counts:  # what comes closest to codes that are wrong is a guess
        return own[0][1], 0

    def preference(each: Variant) -> tuple[int, bool, bool, float]:
        """Prefer what reproduces most nodes, then sums without limits, since none showed; then the runtime's own."""
        return counts[each], each.limited_sums is None, each == stated, rates[each]

    variant = max(counts, key=preference)
    return variant, counts[variant]


def _closest(source: UnitSource) -> list[tuple[float, Variant]]:
    """Return the share of elements that each known variant reproduces, the best and simplest first."""
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


def _siblings(units: Units, source: UnitSource, *, any_branch: bool = False) -> Iterator[UnitSource]:
    """Yield other nodes of the same operator, kind and types, and of the same branch unless any will do."""
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
            if (its.kind, its.dtypes) == (unit.kind, unit.dtypes) and (any_branch or its.branch == unit.branch):
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
