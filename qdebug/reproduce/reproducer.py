"""Cut one node out of a recorded run: its inputs, its recorded output and the expected output.

The entry points are `make_reproducer` for a quantized node and `make_float_reproducer` for a float node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

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
from qdebug.plural import plural
from qdebug.replay.evaluate import accumulate, compute, finish_many
from qdebug.replay.registry import Call, has_kernel
from qdebug.replay.run import one_thread
from qdebug.replay.unit import PAIRS, Operand, Unit
from qdebug.replay.variant import Arithmetic, Variant
from qdebug.replay.windows import window_of

__all__ = [
    "LARGE_BYTES",
    "Cut",
    "FloatReproducer",
    "Reproducer",
    "cut_to_wrong_elements",
    "is_float_node",
    "make_float_reproducer",
    "make_reproducer",
]

LARGE_BYTES = 1 << 20
"""Size in bytes of a node's inputs above which the node is cut."""

_ELEMENTWISE = frozenset({*PAIRS, "lookup", "requantize", "quantize", "dequantize"})
_MAX_ELEMENTS = 64
"""Maximum number of wrong elements in a cut."""
_MAX_BOX = 16
"""Maximum number of output positions per axis in a cut of a convolution."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cut:
    """A part of a unit.

    Args:
        unit: The part.
        recorded: Recorded output of the part, in the node's own layout.
        kept: A clause about the elements in the part; "" if it has all.
    """

    unit: Unit
    recorded: np.ndarray
    kept: str


def cut_to_wrong_elements(unit: Unit, recorded: np.ndarray, expected: np.ndarray) -> Cut | None:
    """Return a unit with only the operands of its wrong elements.

    Args:
        unit: The unit.
        recorded: Recorded output of the unit, in the node's own layout.
        expected: Expected output of the unit.

    Returns:
        The part; None if no elements are wrong, or units of this kind cannot be cut.
    """
    wrong = np.argwhere(recorded != expected)
    if not wrong.size:
        return None
    error = np.abs(recorded.astype(np.int64) - expected.astype(np.int64))[tuple(wrong.T)]
    wrong = wrong[np.argsort(-error, kind="stable")]
    if unit.kind == "conv" and not unit.transposed:
        return _cut_conv(unit, recorded, wrong)
    if unit.kind == "linear":
        return _cut_linear(unit, recorded, wrong)
    if unit.kind in _ELEMENTWISE:
        return _cut_elementwise(unit, recorded, wrong)
    return None


def _cut_conv(unit: Unit, recorded: np.ndarray, wrong: np.ndarray) -> Cut | None:
    """Keep a box of output positions around the worst element, and the filters with wrong elements in the box."""
    if unit.channels_last:
        recorded = np.moveaxis(recorded, -1, 1)
        wrong = wrong[:, [0, -1, *range(1, wrong.shape[1] - 1)]]
    x, weight = unit.operands
    window = window_of(
        Call(inputs=(), attrs=unit.attrs, opset=unit.opset, op=unit.op), x.codes.shape[2:], weight.codes.shape[2:]
    )
    worst = wrong[0]
    near_wrong = wrong[(wrong[:, 0] == worst[0]) & (np.abs(wrong[:, 2:] - worst[2:]) < _MAX_BOX // 2).all(axis=1)][
        :_MAX_ELEMENTS
    ]
    groups = unit.attrs.get("group", 1)
    filters = np.unique(near_wrong[:, 1]) if groups == 1 else np.arange(weight.codes.shape[0])
    image: list[slice] = []
    begin, end = [], []
    for axis, (kernel, stride, dilation, before) in enumerate(
        zip(weight.codes.shape[2:], window.strides, window.dilations, window.begin, strict=True)
    ):
        low, high = int(near_wrong[:, 2 + axis].min()), int(near_wrong[:, 2 + axis].max())
        first, last = low * stride - before, high * stride - before + (kernel - 1) * dilation + 1
        extent = x.codes.shape[2 + axis]
        image.append(slice(max(first, 0), min(last, extent)))
        begin.append(max(-first, 0))
        end.append(max(last - extent, 0))
    boxes = tuple(
        slice(int(near_wrong[:, 2 + a].min()), int(near_wrong[:, 2 + a].max()) + 1) for a in range(len(image))
    )
    attrs = {**unit.attrs, "pads": (*begin, *end), "auto_pad": "NOTSET"}
    cut_unit = replace(
        unit,
        operands=(
            replace(x, codes=x.codes[(slice(worst[0], worst[0] + 1), slice(None), *image)]),
            _operand_rows(weight, filters),
        ),
        bias=None if unit.bias is None else unit.bias.reshape(-1)[filters] if unit.bias.size > 1 else unit.bias,
        attrs=attrs,
        channels_last=False,
    )
    kept_output = recorded[worst[0] : worst[0] + 1][(slice(None), filters, *boxes)]
    positions_text = ", ".join(f"{box.start} to {box.stop - 1}" for box in boxes)
    return Cut(
        unit=cut_unit,
        recorded=kept_output,
        kept=f"image {worst[0]}, filters {_numbers_text(filters)}, positions {positions_text} of the output",
    )


def _operand_rows(operand: Operand, rows: np.ndarray) -> Operand:
    def select(values: np.ndarray) -> np.ndarray:
        return values[rows] if values.size > 1 else values

    return Operand(codes=operand.codes[rows], scale=select(operand.scale), zero_point=select(operand.zero_point))


def _cut_linear(unit: Unit, recorded: np.ndarray, wrong: np.ndarray) -> Cut | None:
    """Keep the rows and columns of the wrong elements of a matrix product."""
    a, b = unit.operands
    if a.codes.ndim != 2 or b.codes.ndim != 2 or unit.out.scale.size > 1 or a.scale.size > 1:
        return None
    rows, columns = (np.unique(wrong[:_MAX_ELEMENTS, axis]) for axis in (0, 1))

    def select(values: np.ndarray) -> np.ndarray:
        return values[..., columns] if values.size > 1 else values

    right = Operand(codes=b.codes[:, columns], scale=select(b.scale), zero_point=select(b.zero_point))
    bias = unit.bias
    if bias is not None and bias.ndim and bias.shape[-1] > 1:
        bias = bias[..., columns]
    part = replace(unit, operands=(replace(a, codes=a.codes[rows]), right), bias=bias)
    return Cut(
        unit=part,
        recorded=recorded[np.ix_(rows, columns)],
        kept=f"rows {_numbers_text(rows)}, columns {_numbers_text(columns)} of the output",
    )


def _cut_elementwise(unit: Unit, recorded: np.ndarray, wrong: np.ndarray) -> Cut | None:
    """Keep only the wrong elements, as a 1-D array."""
    if unit.channels_last or any(operand.scale.size > 1 or operand.zero_point.size > 1 for operand in unit.operands):
        return None
    if unit.out.scale.size > 1 or unit.out.zero_point.size > 1:
        return None
    positions = tuple(wrong[:_MAX_ELEMENTS].T)
    operands = tuple(
        replace(operand, codes=np.broadcast_to(operand.codes, recorded.shape)[positions]) for operand in unit.operands
    )
    return Cut(
        unit=replace(unit, operands=operands, channels_last=False),
        recorded=recorded[positions],
        kept=f"{len(positions[0])} wrong elements, the worst first",
    )


def _numbers_text(values: np.ndarray) -> str:
    shown = ", ".join(str(int(value)) for value in values[:8])
    return shown if values.size <= 8 else f"{shown} and {values.size - 8} more"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FloatReproducer:
    """A run of one float node.

    Args:
        node: The node.
        tensor: The examined output.
        run: Facts of the run.
        place: Sample and step of the values.
        inputs: The node's inputs in order; None for an omitted optional input.
        constant: Whether each input is a constant of the graph.
        opset: Version of the node's operator set.
        real: Whether inputs and output are plain real numbers, without a scale.
        precision: Precision of the expected output, as a name of `Band`.
        siblings: Number of other nodes with its operator that are within this precision, if the node itself is not
            within any.
        recorded: The backend's output.
        expected: The output of a replay in that precision.
        allowed: Maximum norm of the difference.
        error: Actual norm of the difference; infinite if somewhere only one of the outputs is finite.
        reference: A clause about the comparison with the reference run; "" without one.
        outside: A clause about the effect of the output format's range on results; "" without one.
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
        """Whether the error is allowed."""
        return self.error <= self.allowed


def is_float_node(backend: Recording, name: str) -> bool:
    """Return whether a name belongs to a node that computes on real numbers, or to its output.

    Args:
        backend: The run.
        name: Name of the node, or of its output.
    """
    backend = with_understood_graph(backend)
    node_and_tensor = _find_node(backend, name)
    if node_and_tensor is None:
        return False
    units = Units(backend)
    node, tensor = node_and_tensor
    can_replay = has_kernel(node.op, node.domain) and units.missing(node, tensor) is None
    return can_replay and not units.quantized(node, tensor) and isinstance(units.find(node, tensor), str)


def make_float_reproducer(
    backend: Recording, name: str, *, sample: int | None = None, reference: str = ""
) -> FloatReproducer:
    """Cut a float node out of a recording.

    The expected output is a replay in the precision that explains the node. If none does, it is the precision of most
    other nodes with the same operator in the same run.

    Args:
        backend: The run with the node.
        name: Name of the node, or of its output.
        sample: The sample to use; None for the sample with the largest error.
        reference: A clause about the comparison with another run.

    Raises:
        UsageError: The node or sample does not exist, or the node cannot be replayed.
    """
    backend = with_understood_graph(backend)
    node, tensor = _require_node(backend, name)
    units = Units(backend)
    places = [place for place in units.places(node, tensor) if sample is None or place[0] == sample]
    if not places:
        sample_text = "" if sample is None else f" for sample {sample}"
        raise UsageError(
            f"Node {node.name!r} was not recorded with its inputs{sample_text}.",
            hint="Check what was recorded: qdebug info FILE.",
        )
    try:
        with one_thread():
            precision, siblings = _expected_precision(backend, units, node, tensor)
            place = max(
                places, key=lambda place: _relative_error(replay_float(backend, node, tensor, place, precision))
            )
            replay = replay_float(backend, node, tensor, place, precision)
    except KernelError as error:
        raise UsageError(
            f"Node {node.name!r} ({node.op}) cannot be replayed: {error.message.rstrip('.')}.",
            hint="List the nodes that can be replayed: qdebug explain BACKEND.",
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


def _find_node(backend: Recording, name: str) -> tuple[Node, str] | None:
    for node in backend.graph.nodes:
        if node.name == name or name in node.outputs:
            return node, name if name in node.outputs else next(filter(None, node.outputs), "")
    return None


def _require_node(backend: Recording, name: str) -> tuple[Node, str]:
    node_and_tensor = _find_node(backend, name)
    if node_and_tensor is None:
        raise UsageError(
            f"The backend's recording has no node {name!r}.", hint="List the nodes: qdebug explain BACKEND --all."
        )
    return node_and_tensor


def _relative_error(replay: FloatReplay) -> float:
    if replay.error == 0:
        return 0.0
    return replay.error / replay.allowed if replay.allowed else np.inf


def _expected_precision(backend: Recording, units: Units, node: Node, tensor: str) -> tuple[str, int]:
    """Return the precision of the expected output, and the number of siblings that show it; 0 if the node does."""
    own_judgement = judge_float(backend, node, tensor, units.places(node, tensor))
    if own_judgement.within:
        return _band_name(own_judgement.band.precision), 0
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
            judgement = judge_float(backend, other, output, units.places(other, output))
        except KernelError:
            continue
        if judgement.within:
            counts[_band_name(judgement.band.precision)] += 1
    return counts.most_common(1)[0] if counts else ("fp32", 0)


def _band_name(precision: str) -> str:
    """Return the precision to expect: fp32 instead of exact, since another kernel version may round differently."""
    return "fp32" if precision == "exact" else precision


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reproducer:
    """A run of one quantized node.

    Args:
        node: The node. For a QDQ group that was computed as one node, the operator that stands for it.
        run: Facts of the run.
        place: Sample and step of the values.
        inputs: The node's inputs in order; None for an omitted optional input.
        constant: Whether each input is a constant of the graph.
        opset: Version of the node's operator set.
        unit: The node in integer form, cut down to the operands of the wrong elements if it is large.
        variant: The arithmetic of the expected output.
        evidence: A clause about why this arithmetic is expected, if it does not reproduce the node itself; else "".
        recorded: The backend's output, in the node's own layout.
        expected: The output according to that arithmetic.
        whole: Whether nothing was cut.
        elements: Number of elements in the node's whole output.
        wrong: Number of wrong elements among them.
        kept: A clause about the positions of a cut's elements in the whole output; "" if nothing was cut.
        reference: A clause about the comparison with the reference run; "" without one.
    """

    node: Node
    run: RunInfo
    place: Place
    inputs: tuple[np.ndarray | None, ...]
    constant: tuple[bool, ...]
    opset: int
    unit: Unit
    variant: Variant
    evidence: str
    recorded: np.ndarray
    expected: np.ndarray
    whole: bool
    elements: int
    wrong: int
    kept: str = ""
    reference: str = ""

    @property
    def max_lsb(self) -> int:
        """The largest error, in codes."""
        gap = np.abs(self.recorded.astype(np.int64) - self.expected.astype(np.int64))
        return int(gap.max(initial=0))


def make_reproducer(
    backend: Recording,
    name: str,
    *,
    sample: int | None = None,
    whole: bool = False,
    reference: str = "",
    counterpart: tuple[Recording, str] | None = None,
) -> Reproducer:
    """Cut a quantized node out of a recording.

    The arithmetic of the expected output is the first of the following that exists: arithmetic that reproduces the
    node; arithmetic that reproduces other nodes of its kind and types in the same run; arithmetic from the fingerprint
    of exactly this runtime; arithmetic that reproduces its counterpart in the reference run; the closest known
    arithmetic.

    Args:
        backend: The run with the node.
        name: Name of the node, or of its output.
        sample: The sample to use; None for the sample with the most wrong elements.
        whole: Whether to keep the whole node, however large it is.
        reference: A clause about the comparison with another run.
        counterpart: The reference run, and its tensor that corresponds to the node's output; None without one.

    Raises:
        UsageError: The node or sample does not exist, or the node cannot be computed in integers.
    """
    backend = with_understood_graph(backend)
    node, tensor = _require_node(backend, name)
    units = Units(backend)
    source = units.missing(node, tensor) or units.find(node, tensor)
    if isinstance(source, str):
        raise UsageError(
            f"Node {node.name!r} ({node.op}) cannot be replayed: {source.rstrip('.')}.",
            hint="List the nodes that can be replayed: qdebug explain BACKEND.",
        )
    with one_thread():
        counterpart_source = None if counterpart is None else _source_of(*counterpart)
        expected = _expected_arithmetic(units, source, counterpart_source)
        return _reproduce_source(source, expected, sample=sample, whole=whole, reference=reference)


def _source_of(recording: Recording, tensor: str) -> UnitSource | None:
    """Return the source of the unit that computes a tensor, or None if its node has no integer form."""
    recording = with_understood_graph(recording)
    node, units = recording.graph.producer(tensor), Units(recording)
    source = None if node is None else units.missing(node, tensor) or units.find(node, tensor)
    return source if isinstance(source, UnitSource) else None


class _ExpectedArithmetic(NamedTuple):
    """The arithmetic of an expected output.

    Args:
        variant: The arithmetic.
        evidence: A clause about why this arithmetic is expected, if it does not reproduce the node itself.
    """

    variant: Variant
    evidence: str = ""


def _reproduce_source(
    source: UnitSource, arithmetic: _ExpectedArithmetic, *, sample: int | None, whole: bool, reference: str
) -> Reproducer:
    node, backend, variant = source.computed, source.recording, arithmetic.variant
    place = _worst_place(source, variant) if sample is None else _place_of_sample(source, sample)
    unit = source.unit(place)
    recorded = source.codes(place)
    expected = compute(unit, variant)
    wrong = int(np.count_nonzero(recorded != expected))
    inputs = tuple(backend.load(entry, *place) if entry else None for entry in node.inputs)
    is_large = sum(array.nbytes for array in inputs if array is not None) > LARGE_BYTES and not whole
    part = cut_to_wrong_elements(unit, recorded, expected) if is_large else None
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
        evidence=arithmetic.evidence,
        recorded=part.recorded,
        expected=compute(part.unit, variant),
        whole=not part.kept,
        elements=recorded.size,
        wrong=wrong,
        kept=part.kept,
        reference=reference,
    )


def _expected_arithmetic(
    units: Units, source: UnitSource, counterpart_source: UnitSource | None
) -> _ExpectedArithmetic:
    """Return the arithmetic of the expected output, see `make_reproducer`."""
    own_rates = _match_rates(source)
    if not own_rates:
        raise UsageError(
            f"Node {source.node.name!r} ({source.node.op}) cannot be replayed in any known arithmetic.",
            hint="List the nodes that can be replayed: qdebug explain BACKEND.",
        )
    unit = source.unit(source.places[0])
    for rate, variant in own_rates:
        if rate == 1.0 and is_known(variant) and _reproduces(source, variant):
            return _ExpectedArithmetic(variant)
    counts: Counter[Variant] = Counter()
    # Only these variants apply to the node. A variant of other nodes may lack an option that this node needs.
    rates = {variant: rate for rate, variant in own_rates}
    # The variant that was measured for exactly this version and processor. Others may compute differently.
    stated_variant = KnownRuntime(source.recording.info).variant(unit.kind, unit.dtypes, unit.branch)
    for any_branch in (False, True):
        for sibling in _siblings(units, source, any_branch=any_branch):
            counts.update(variant for rate, variant in _match_rates(sibling) if rate == 1.0 and variant in rates)
        if counts:
            break
        if stated_variant in rates:
            return _ExpectedArithmetic(stated_variant, "which was measured on this runtime")
    if not counts:
        counterpart_variant = (
            None if counterpart_source is None else _variant_of_counterpart(counterpart_source, unit, own_rates)
        )
        if counterpart_variant is not None:
            return _ExpectedArithmetic(counterpart_variant, "which reproduces this node in the reference run")
        return _ExpectedArithmetic(own_rates[0][1], "which is the closest known one, and a guess")

    def preference(variant: Variant) -> tuple[int, bool, bool, float]:
        """Return a sort key: the number of reproduced nodes, then unlimited sums, then the runtime's own variant."""
        return counts[variant], variant.limited_sums is None, variant == stated_variant, rates[variant]

    variant = max(counts, key=preference)
    return _ExpectedArithmetic(
        variant, f"which reproduces {plural(counts[variant], 'other node')} of its kind in the run"
    )


def _variant_of_counterpart(
    counterpart_source: UnitSource, unit: Unit, own_rates: Sequence[tuple[float, Variant]]
) -> Variant | None:
    """Return the arithmetic that reproduces the reference run's node; None if that has another kind or types."""
    counterpart_unit = counterpart_source.unit(counterpart_source.places[0])
    if (counterpart_unit.kind, counterpart_unit.dtypes, counterpart_unit.branch) != (
        unit.kind,
        unit.dtypes,
        unit.branch,
    ):
        return None
    counterpart_rates = {variant: rate for rate, variant in _match_rates(counterpart_source)}
    reproducing = (variant for _, variant in own_rates if counterpart_rates.get(variant) == 1.0)
    return next((variant for variant in reproducing if _reproduces(counterpart_source, variant)), None)


def _match_rates(source: UnitSource) -> list[tuple[float, Variant]]:
    """Return each known variant with the share of elements that it reproduces, best and simplest first."""
    match_counts: Counter[Variant] = Counter()
    total = 0
    for place in source.places[:REPRODUCER_SAMPLES]:
        unit = source.unit(place)
        recorded = channels_first(source.codes(place), unit).reshape(-1)
        positions = np.unique(np.linspace(0, max(recorded.size - 1, 0), REPRODUCER_MAX_ELEMENTS).astype(np.int64))[
            : recorded.size
        ]
        total += positions.size
        variants = dict.fromkeys((Arithmetic().variant(unit), *candidates(unit)))
        for sums in dict.fromkeys(variant.sums for variant in variants):
            fitting = [variant for variant in variants if variant.sums == sums]
            with suppress(KernelError):
                codes = finish_many(unit, accumulate(unit, sums).take(positions), fitting)
                counts = np.count_nonzero(codes == recorded[positions], axis=1).tolist()
                match_counts.update(dict(zip(fitting, counts, strict=True)))
    return sorted(
        ((count / max(total, 1), variant) for variant, count in match_counts.items()), key=lambda pair: -pair[0]
    )


def _reproduces(source: UnitSource, variant: Variant) -> bool:
    return all(np.array_equal(compute(source.unit(place), variant), source.codes(place)) for place in source.places)


def _siblings(units: Units, source: UnitSource, *, any_branch: bool = False) -> Iterator[UnitSource]:
    """Yield other nodes with the same operator, kind and types, and with the same branch unless `any_branch` is set."""
    unit = source.unit(source.places[0])
    sibling_count = 0
    for node in source.recording.graph.nodes:
        if (
            node.op != source.node.op
            or node.name == source.node.name
            or sibling_count == REPRODUCER_SIBLINGS
            or not node.outputs
        ):
            continue
        other = units.missing(node, node.outputs[0]) or units.find(node, node.outputs[0])
        if isinstance(other, UnitSource):
            other_unit = other.unit(other.places[0])
            if (other_unit.kind, other_unit.dtypes) == (unit.kind, unit.dtypes) and (
                any_branch or other_unit.branch == unit.branch
            ):
                sibling_count += 1
                yield other


def _worst_place(source: UnitSource, variant: Variant) -> Place:
    def count_wrong(place: Place) -> int:
        return int(np.count_nonzero(compute(source.unit(place), variant) != source.codes(place)))

    return max(source.places, key=count_wrong)


def _place_of_sample(source: UnitSource, sample: int) -> Place:
    for place in source.places:
        if place[0] == sample:
            return place
    samples: Sequence[int] = sorted({place[0] for place in source.places})
    raise UsageError(
        f"Sample {sample} of node {source.node.name!r} was not recorded.",
        hint=f"Choose a sample from {samples[0]} to {samples[-1]}." if samples else "Record the run again.",
    )
