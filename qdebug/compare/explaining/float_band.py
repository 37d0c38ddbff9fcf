"""Float nodes: whether the order and precision of their sums account for the difference from a replay.

A float kernel may sum in any order, so its output rarely equals the replay bit for bit. The difference is bounded (see
`qdebug.compare.attribute.band`) and can be estimated from the spread over a few orders. Kernels that first round their
operands to fewer bits (TF32, bfloat16, float16) are found by doing the same before the replay. Kernels that accumulate
in 16 bits are found by the size of their error, which is orders of magnitude larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.patterns.wrong_places import Layout, chance, places
from qdebug.arithmetic.units import Place
from qdebug.compare.align.undeclared_quantization import computes_with_codes
from qdebug.compare.attribute.backend_replay import inputs_of
from qdebug.compare.attribute.band import (
    allowed_error,
    finite_norm,
    is_free_scale,
    narrow_sums_error,
    replay_noise,
    unit_roundoff,
)
from qdebug.compare.attribute.birth import Birth, BirthRule
from qdebug.compare.attribute.grid_rounding import (
    allowed_squares,
    beyond_steps,
    grid_of_codes,
    telling_values,
    weight_noise,
)
from qdebug.compare.explaining.explanation import Band
from qdebug.compare.explaining.mistaken import mistake_of
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node, Recording, operators
from qdebug.model.operators import Sums
from qdebug.model.thresholds.explanation import (
    OUTLIER_ERROR_RATIO,
    ROUNDED_FACTORS_MAX_ERROR_RATIO,
    ROUNDING_MIN_MEDIAN_SHARE,
    SUM_ORDERS_TRIED,
)
from qdebug.model.thresholds.rounding import FLOAT32_UNIT_ROUNDOFF
from qdebug.numerics.affine import dequantize
from qdebug.numerics.format_range import OutOfRange, out_of_range
from qdebug.numerics.grid import Grid, is_off_grid
from qdebug.numerics.short_formats import SHORT_FORMATS, SINGLE, ShortFormat, format_of, is_exact_in
from qdebug.replay.extents import recorded_limits
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import keeps_channels_last, run_node

__all__ = [
    "FloatFinding",
    "FloatReplay",
    "assumption",
    "judge_float",
    "output_format",
    "replay_float",
    "rounded_inputs",
    "wrong_place",
]

_SEED = 20250218


_ACCUMULATOR = "accumulator"
_SHORT = MappingProxyType({"tf32": "TF32", "fp16": "float16", "bf16": "bfloat16"})
"""Name of each short format in messages, finest first."""
_FORMAT_BY_NAME = {short.name: short for short in SHORT_FORMATS}
_INPUTS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType(
    {title: _FORMAT_BY_NAME[name].rounded for title, name in _SHORT.items()}
)
_OUTPUT = "output"
_MATRIX = 2
_AXES_OF_SEQUENCE = 4
"""Axes of the results of a recurrent layer at all steps: steps, directions, samples, hidden elements."""
_MOST_BETWEEN = 32
"""Number of nodes between a tensor and the product that gives its last axis a meaning."""
"""The rounded part if a node is exact except for its output format."""
_ON_CODES = f"codes {_OUTPUT}"
"""Precision of real numbers on the grid of codes with an undeclared scale."""
_ACCUMULATORS: Mapping[str, float] = MappingProxyType({"fp16": 2.0**-11, "bf16": 2.0**-8})


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatFinding:
    """How a node's output compares with a replay on real numbers.

    Args:
        band: The coarsest precision that must be assumed, and how much of its error is present.
        within: Whether that precision accounts for the error.
        match: Share of the elements that equal the replay.
        elements: Number of elements compared.
        reason: What is wrong, or None.
        likely: The mistake that reproduces every element, as worded in the reason, or None if unknown.
    """

    band: Band
    within: bool
    match: float
    elements: int
    reason: str | None = None
    likely: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FloatReplay:
    """One sample of a float node with its replay.

    Args:
        recorded: The recorded values as real numbers.
        replayed: The replayed values.
        allowed: The allowed norm of their difference, or 0 for an operator that does not round.
        outside: How the range of the output's format clipped results, as a clause, or None.
    """

    recorded: np.ndarray
    replayed: np.ndarray
    allowed: float
    outside: str | None = None

    @property
    def error(self) -> float:
        """Norm of the difference where both are finite, infinite if only one of them is."""
        if np.any(_is_finite(self.recorded) != _is_finite(self.replayed)):
            return np.inf
        return finite_norm(_difference(self.recorded, self.replayed))


@dataclass(slots=True)
class _Run:
    """A node's replay in one precision, over all samples, as squared norms."""

    error: float = 0.0
    allowed: float = 0.0

    def add(self, error: np.ndarray, allowed: float) -> None:
        self.error += finite_norm(error) ** 2
        self.allowed += allowed**2

    @property
    def ratio(self) -> float:
        """Error norm divided by the allowed norm."""
        if self.error == 0:
            return 0.0
        return float(np.sqrt(self.error / self.allowed)) if self.allowed else np.inf


def judge_float(recording: Recording, node: Node, tensor: str, at: Sequence[Place]) -> FloatFinding:
    """Compare a node's recorded output with a replay on its recorded inputs.

    Args:
        recording: The backend's recording.
        node: The node.
        tensor: One of its outputs.
        at: Samples and steps to examine.

    Raises:
        KernelError: The node cannot be replayed.
        RecordingError: A value cannot be read.
    """
    case = _Case(recording, node, tensor, at)
    single, equal, total, odd = _Run(), 0, 0, 0
    for place in at:
        recorded_values, replayed, allowed = case.compare(place)
        equal += int(np.count_nonzero((recorded_values == replayed) | (_is_nan(recorded_values) & _is_nan(replayed))))
        total += recorded_values.size
        odd += int(np.count_nonzero(_is_finite(recorded_values) != _is_finite(replayed)))
        single.add(_difference(recorded_values, replayed), 0.0 if _rounds_nothing(node) else allowed)
    match = equal / total if total else 1.0
    if equal == total:
        band = Band(precision="exact", ratio=0.0, exact=True)
        return FloatFinding(band=band, within=True, match=1.0, elements=total, reason=case.out_of_range())
    spread = case.spread(at[0])
    band = Band(precision=case.result, ratio=single.ratio, spread=spread)
    finding = FloatFinding(band=band, within=False, match=match, elements=total)
    if odd:
        are = "is" if odd == 1 else "are"
        symptom = f"{odd} of {total} elements {are} NaN or infinite in the recording or the replay, not in both"
        likely = mistake_of(recording, node, tensor, at)
        reason = f"{symptom}: {next(filter(None, map(case.odd, at)))}{_likely(likely)}"
        return replace(finding, reason=reason, likely=likely)
    if single.ratio <= 1:
        return replace(finding, within=True, reason=case.out_of_range())
    on_codes = case.on_codes(at)
    if on_codes is not None and on_codes <= 1:
        return replace(finding, band=Band(precision=_ON_CODES, ratio=on_codes, spread=spread), within=True)
    likely = None
    for precision, ratio in () if on_codes is not None else case.coarser(at):
        # The band of a narrow accumulator is wide. A mistake that reproduces every element says more.
        likely = mistake_of(recording, node, tensor, at) if ratio <= 1 and precision.endswith(_ACCUMULATOR) else None
        if ratio <= 1 and likely is None:
            return replace(finding, band=Band(precision=precision, ratio=ratio, spread=spread), within=True)
    likely = likely or mistake_of(recording, node, tensor, at)
    finding, cause = replace(finding, likely=likely), _likely(likely)
    if _rounds_nothing(node) or not single.allowed:
        nothing = f"{node.op} does not round" if _rounds_nothing(node) else "its sums are exact"
        if operators.of(node.op).casts:
            nothing = f"{node.op} has one right result for each element"
        symptom = f"{total - equal} of {total} elements differ{case.where(at)}; {nothing}"
        return replace(finding, reason=symptom + cause)
    symptom = f"its error is {single.ratio:.3g} times the rounding bound{case.where(at)}"
    return replace(finding, reason=symptom + cause)


def _likely(mistake: str | None) -> str:
    return "" if mistake is None else f"; likely: {mistake} (reproduces every element)"


def rounded_inputs(recording: Recording, node: Node, tensor: str, place: Place) -> tuple[str, ...]:
    """Return the short formats to which a product may have rounded its factors, if that accounts for its error.

    Args:
        recording: The backend's recording.
        node: A node whose sums in float32 do not account for its output.
        tensor: That output.
        place: The sample and step to examine.

    Returns:
        Names of formats, usually both or neither of TF32 and float16. Empty for other operators and unrecorded tensors.
    """
    try:
        case = _Case(recording, node, tensor, [place])
        return tuple(case.rounding(place))
    except (KernelError, NotRecordedError):
        return ()


def wrong_place(recording: Recording, node: Node, tensor: str, at: Sequence[Place]) -> str | None:
    """Return a clause on where the outliers of a float node's error lie, or None if they are scattered.

    Args:
        recording: The backend's recording.
        node: The node.
        tensor: Its output.
        at: Samples and steps. Only the first is examined.
    """
    try:
        return (_Case(recording, node, tensor, at[:1]).where(at).removeprefix(", ") or None) if at else None
    except (KernelError, NotRecordedError):
        return None


def assumption(recording: Recording, tensor: str, band: Band) -> str | None:
    """Return the assumption that a precision makes beyond the recorded type, as a clause, or None.

    Args:
        recording: The backend's recording.
        tensor: The output of a node.
        band: What accounts for its error.
    """
    if band.precision == _ON_CODES:
        node = recording.graph.producer(tensor)
        weights = "weights and " if node is not None and operators.of(node.op).product else ""
        return f"{weights}results rounded to codes of an unrecorded scale"
    number, _, rounded_part = band.precision.partition(" ")
    name = _SHORT.get(number)
    if name is None:
        return None
    if rounded_part == _ACCUMULATOR:
        return f"sums held in {name}"
    if rounded_part != _OUTPUT:
        return f"{rounded_part} rounded to {name}"
    dtype = recording.graph.tensors[tensor].dtype
    return None if dtype == name else f"results rounded to {name}"


def replay_float(recording: Recording, node: Node, tensor: str, place: Place, precision: str) -> FloatReplay:
    """Replay one sample of a float node in a given precision.

    Args:
        recording: The backend's recording.
        node: The node.
        tensor: One of its outputs.
        place: The sample and step.
        precision: The value of `Band.precision` for the node or its siblings.

    Raises:
        KernelError: The node cannot be replayed.
        RecordingError: A value cannot be read.
    """
    case = _Case(recording, node, tensor, [place])
    number, _, rounded_part = precision.partition(" ")
    if precision == _ON_CODES and (grid := case.grid([place])) is not None:
        recorded_values, replayed, allowed, _ = case.beside_codes(place, grid)
        return FloatReplay(recorded=recorded_values, replayed=replayed, allowed=allowed)
    number = "" if rounded_part == _OUTPUT else number
    narrow = _ACCUMULATORS.get(number) if rounded_part == _ACCUMULATOR else None
    recorded_values, replayed, allowed = case.compare(
        place, cast=_INPUTS.get(number), bias=rounded_part != "inputs", narrow=narrow
    )
    allowed = 0.0 if _rounds_nothing(node) else allowed
    return FloatReplay(recorded=recorded_values, replayed=replayed, allowed=allowed, outside=case.out_of_range())


def _rounds_nothing(node: Node) -> bool:
    """Return whether an operator selects or converts values, so that there is only one right answer."""
    row = operators.of(node.op)
    return (row.rounds_nothing and not row.converts_codes) or row.casts


def _is_nan(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.isnan(_in_common_format(values)))


def _is_finite(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.isfinite(_in_common_format(values)))


def _number_text(value: float) -> str:
    return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _in_common_format(values: np.ndarray) -> np.ndarray:
    """Return values in a format that all numpy functions support. Few support 8-bit and 16-bit floats."""
    return values if values.dtype.kind in "fiub" else values.astype(np.float64)


def _difference(recorded_values: np.ndarray, replayed: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(recorded_values.astype(np.float64) - replayed.astype(np.float64), nan=0.0)


class _Case:
    """One float node."""

    def __init__(self, recording: Recording, node: Node, tensor: str, at: Sequence[Place]) -> None:
        self._recording, self._node, self._tensor = recording, node, tensor
        self._form, self._opset = real_form(node, recording.graph.opset)
        self._short = output_format(recording, self._form, tensor, at)
        self._outside: dict[Place, OutOfRange] = {}  # results that overflow or underflow their format
        # True if a reduced input precision explains nearly all elements, so no other cause is needed
        self._lone = False

    def compare(
        self,
        place: Place,
        *,
        cast: Callable[[np.ndarray], np.ndarray] | None = None,
        bias: bool = True,
        narrow: float | None = None,
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the recorded values, the replay, and the allowed norm of their difference.

        Args:
            place: The sample and step.
            cast: Conversion applied to the inputs first.
            bias: Whether to convert the bias too.
            narrow: Unit roundoff of the accumulator's format if it is not float32.
        """
        values = inputs_of(self._recording, self._form, place)
        if cast is not None:
            narrowed = self._form.inputs[: None if bias else 2]
            values = {
                name: cast(array) if array.dtype.kind == "f" and name in narrowed else array
                for name, array in values.items()
            }
        with recorded_limits(self._recording, place):
            replayed = run_node(self._form, values, self._opset)[self._tensor]
        recorded = self._recording.load(self._tensor, *place)
        if is_free_scale(self._form, self._tensor, values, recorded):
            replayed = recorded
        quant = self._recording.graph.tensors[self._tensor].quant
        recorded_values = dequantize(recorded, quant)
        if recorded_values.shape != replayed.shape:
            raise KernelError(
                f"the replay has shape {replayed.shape}, but the recorded tensor has {recorded_values.shape}"
            )
        if recorded_values.dtype.kind not in "fV" or replayed.dtype.kind not in "fV":
            return recorded_values, replayed, 0.0
        if narrow is not None:
            return (
                recorded_values,
                replayed,
                narrow_sums_error(self._form, values, replayed, self._opset, narrow) or 0.0,
            )
        replayed = self._in_format(recorded, replayed, values, place)
        if _rounds_nothing(self._node) and replayed.dtype == np.float64 and recorded.dtype.kind == "f":
            with np.errstate(over="ignore"):
                single = np.array_equal(recorded, recorded.astype(np.float32), equal_nan=True)
            storage_dtype = np.float32 if single else recorded.dtype  # a float64 constant may be kept in float32
            replayed = replayed.astype(storage_dtype).astype(recorded_values.dtype)
        number_format = SINGLE if self._short is None else self._short
        format_unit = unit_roundoff(recorded_values.dtype) if self._short is None else number_format.unit
        is_coarse = format_unit > FLOAT32_UNIT_ROUNDOFF
        # The step of a format is constant below its normal numbers.
        steps = (
            np.hypot(
                format_unit * finite_norm(recorded_values), number_format.subnormal / 2 * np.sqrt(recorded_values.size)
            )
            if is_coarse
            else 0.0
        )
        if operators.of(self._form.op).product:  # products may be summed in a higher precision than the result's
            sums = allowed_error(self._form, values, replayed, self._opset, FLOAT32_UNIT_ROUNDOFF)
            return recorded_values, replayed, float(np.hypot(sums, steps))
        sums = allowed_error(self._form, values, replayed, self._opset, max(FLOAT32_UNIT_ROUNDOFF, format_unit))
        return recorded_values, replayed, float(np.hypot(sums, steps))

    def odd(self, place: Place) -> str | None:
        """Return a clause on the first element that is finite on one side only, and why, or None."""
        recorded_values, replayed, _ = self.compare(place)
        alone = np.argwhere(_is_finite(recorded_values) != _is_finite(replayed))
        if not alone.size:
            return None
        index = tuple(int(at) for at in alone[0])
        recorded, exact = float(recorded_values[index]), float(replayed[index])
        if np.isfinite(recorded):
            return f"element {list(index)} is {recorded:.6g}, and the exact result is {_number_text(exact)}"
        return Birth(
            node=self._node.name,
            op=self._node.op,
            tensor=self._tensor,
            sample=place[0],
            step=place[1],
            index=index,
            value=recorded,
            elements=len(alone),
            rule=BirthRule.ARITHMETIC,
            exact=exact,
        ).sentence

    @property
    def result(self) -> str:
        """The precision of the node's output, as named in `Band`."""
        short = None if self._short is None else self._short.name
        return next((f"{title} {_OUTPUT}" for title, name in _SHORT.items() if name == short), "fp32")

    def out_of_range(self) -> str | None:
        """Return a clause on how the range of the output's format clipped results, or None."""
        exceedances = list(self._outside.values())
        return reduce(OutOfRange.merge, exceedances).sentence if exceedances else None

    def _in_format(
        self, recorded: np.ndarray, replayed: np.ndarray, values: Mapping[str, np.ndarray], place: Place
    ) -> np.ndarray:
        """Return a replay limited to the range of the recorded values' format.

        Overflowing values become infinite or the largest number, and subnormal values may be flushed to zero, whichever
        was recorded.
        """
        short = SINGLE if self._short is None and recorded.dtype == np.float32 else self._short
        if short is None or replayed.dtype.kind != "f" or _rounds_nothing(self._node):
            return replayed
        noise = replay_noise(self._form, values, replayed, self._opset)
        self._outside[place], ended = out_of_range(short, replayed, recorded, noise=noise)
        return np.where(ended, recorded.astype(np.float32).astype(replayed.dtype), replayed)

    def grid(self, at: Sequence[Place]) -> Grid | None:
        """Return the grid of codes that the values lie on, in a run that stores real values instead of codes."""
        recording, tensor = self._recording, self._tensor
        if recording.graph.tensors[tensor].quant is not None or is_off_grid(recording.load(tensor, *at[0])):
            return None
        code_grid = None if self._short is not None else grid_of_codes(lambda: (recording.load(tensor, *p) for p in at))
        return (
            code_grid
            if code_grid is not None and not computes_with_codes(recording) and telling_values(recording)
            else None
        )

    def beside_codes(self, place: Place, grid: Grid) -> tuple[np.ndarray, np.ndarray, float, int]:
        """Compare the recorded values with the replay rounded to codes, ignoring what lies beyond the grid's range.

        Returns:
            The recorded values, the replay, the allowed norm of their difference, and how many elements are further off
                than any rounding explains.
        """
        recorded_values, replayed, allowed = self.compare(place)
        values = inputs_of(self._recording, self._form, place)
        noise, clipped_replay = weight_noise(self._form, values, self._opset), np.clip(replayed, grid.low, grid.high)
        allowed = float(np.hypot(allowed, np.sqrt(allowed_squares(grid, recorded_values.size, noise))))
        return recorded_values, clipped_replay, allowed, beyond_steps(grid, clipped_replay, recorded_values, noise)

    def on_codes(self, at: Sequence[Place]) -> float | None:
        """Return the error divided by the error that rounding to codes allows, or None if there is no grid."""
        grid = self.grid(at)
        if grid is None:
            return None
        run = _Run()
        for place in at:
            recorded_values, clipped_replay, allowed, unexplained_count = self.beside_codes(place, grid)
            if unexplained_count:
                return np.inf
            run.add(_difference(recorded_values, clipped_replay), allowed)
        return run.ratio

    def coarser(self, at: Sequence[Place]) -> Iterator[tuple[str, float]]:
        """Yield the coarser precisions, finest first, with the error divided by the error that each allows."""
        if not operators.of(self._form.op).product:
            return
        for name, cast in _INPUTS.items():
            yield f"{name} inputs", self._ratio(at, cast=cast, bias=False)
            if len(self._form.inputs) > 2:
                yield f"{name} inputs and bias", self._ratio(at, cast=cast)
        for name, unit in _ACCUMULATORS.items():
            if self._may_have_been_summed_in(name, at):
                yield f"{name} {_ACCUMULATOR}", self._ratio(at, cast=_INPUTS[name], narrow=unit)

    def _may_have_been_summed_in(self, name: str, at: Sequence[Place]) -> bool:
        """Return whether the output has no more digits than sums in a short format can have. A bias may add some."""
        if len(self._form.inputs) > 2:
            return True
        outputs = (self._recording.load(self._tensor, *place) for place in at)
        return all(is_exact_in(_in_common_format(values), _FORMAT_BY_NAME[_SHORT[name]]) for values in outputs)

    def rounding(self, place: Place) -> Iterator[str]:
        """Yield the formats to which the inputs may have been rounded, so that float32 sums account for the rest."""
        if not operators.of(self._form.op).product:
            return
        recorded_values, replayed, allowed = self.compare(place)
        error = finite_norm(_difference(recorded_values, replayed))
        if not allowed < error < ROUNDED_FACTORS_MAX_ERROR_RATIO * allowed:
            return
        for title, cast in _INPUTS.items():
            if any(
                self._ratio([place], cast=cast, bias=bias) <= 1 for bias in (False, True)[: len(self._form.inputs) - 1]
            ):
                yield _SHORT[title]

    def _ratio(
        self,
        at: Sequence[Place],
        *,
        cast: Callable[[np.ndarray], np.ndarray],
        bias: bool = True,
        narrow: float | None = None,
    ) -> float:
        run = _Run()
        for place in at:
            recorded_values, replayed, allowed = self.compare(place, cast=cast, bias=bias, narrow=narrow)
            if not _is_error_everywhere(recorded_values, replayed):
                self._lone = True
            if narrow is not None and (self._lone or not _is_error_everywhere(*self.compare(place)[:2])):
                return np.inf
            run.add(_difference(recorded_values, replayed), allowed)
        return run.ratio

    def spread(self, place: Place) -> float | None:
        """Return the error norm divided by the largest effect of reordering the sums, or None for a fixed order."""
        values = inputs_of(self._recording, self._form, place)
        arrays = [values[name] for name in self._form.inputs if name]
        rng = np.random.default_rng(_SEED)
        with recorded_limits(self._recording, place):
            plain = run_node(self._form, values, self._opset)[self._tensor]
        largest = 0.0
        for _ in range(SUM_ORDERS_TRIED):
            reordered_arrays = _reordered(self._form, arrays, rng)
            if reordered_arrays is None:
                return None
            reordered_inputs = {
                **values,
                **dict(zip([n for n in self._form.inputs if n], reordered_arrays, strict=True)),
            }
            largest = max(
                largest,
                finite_norm(_difference(run_node(self._form, reordered_inputs, self._opset)[self._tensor], plain)),
            )
        error = finite_norm(_difference(self.compare(place)[0], plain))
        return error / largest if largest else None

    def where(self, at: Sequence[Place]) -> str:
        """Return a clause on where the outliers of the error lie, or "" if they are scattered."""
        recorded_values, replayed, allowed = self.compare(at[0])
        error = np.abs(_difference(recorded_values, replayed))
        if recorded_values.ndim < 2 or not error.size:
            return ""
        is_outlier = error > OUTLIER_ERROR_RATIO * self._rounding_of_elements(at[0], replayed, allowed)
        axes = recorded_values.ndim - 1
        vectors = recorded_values.ndim == _MATRIX or self._holds_vectors()
        last = vectors or keeps_channels_last(self._form)
        spatial = tuple(range(axes - 1) if last else range(1, axes))
        first = "row" if vectors and axes == 1 else "step" if self._has_steps(recorded_values.ndim) else "sample"
        layout = Layout(channel=axes - 1 if last else 0, spatial=spatial, first=first, vectors=vectors)
        outlier_patterns, outlier_count = places(is_outlier, layout), int(np.count_nonzero(is_outlier))
        if outlier_count == 1:
            return f", only at {layout.element([int(each[0]) for each in np.nonzero(is_outlier)])}"
        reported_patterns = outlier_patterns[
            : 2 if outlier_patterns and outlier_patterns[0].pattern == "block_tail" else 1
        ]
        clause = "".join(f", {place.detail}" for place in reported_patterns) or _by_sign(is_outlier, replayed)
        if np.unique(recorded_values[is_outlier]).size == 1 and not chance(0.5, outlier_count):
            clause = clause or f", {outlier_count} of {is_outlier.size} elements"
            clause += f", all {float(recorded_values[is_outlier][0]):g} (possibly never written)"
        return clause

    def _has_steps(self, axes: int) -> bool:
        """Return whether the first axis of the result counts the steps of a sequence."""
        is_recurrent = operators.plain(self._form).recurrent and not self._form.attrs.get("layout")
        return is_recurrent and axes == _AXES_OF_SEQUENCE

    def _holds_vectors(self) -> bool:
        """Return whether the last axis counts features: the nearest product before it is one of matrices."""
        node: Node | None = self._form
        for _ in range(_MOST_BETWEEN):
            if node is None or not node.inputs:
                return False
            row = operators.plain(node)
            if row.product:
                return row.sums is Sums.MATRIX
            if row.moves is not None or operators.has_channels_second(node.op):
                return False
            node = self._recording.graph.producer(node.inputs[0])
        return False

    def _rounding_of_elements(self, place: Place, replayed: np.ndarray, allowed: float) -> np.ndarray | float:
        """Return the error of each element by rounding: in a short format, a share of its own magnitude."""
        if self._short is None or not operators.of(self._form.op).product:
            return max(allowed / math.sqrt(replayed.size), 1e-300)
        values = inputs_of(self._recording, self._form, place)
        sums: float = allowed_error(self._form, values, replayed, self._opset, FLOAT32_UNIT_ROUNDOFF)
        return np.asarray(sums / math.sqrt(replayed.size) + self._short.unit * np.abs(replayed.astype(np.float64)))


def _by_sign(is_outlier: np.ndarray, replayed: np.ndarray) -> str:
    """Return a clause saying that exactly the elements of one sign are wrong, or "" if that is not so."""
    for sign, has_sign in (("negative", replayed < 0), ("positive", replayed > 0)):
        if (
            np.array_equal(is_outlier, has_sign)
            and not has_sign.all()
            and not chance(0.5, int(np.count_nonzero(is_outlier)))
        ):
            return f", exactly the elements that should be {sign}"
    return ""


def output_format(recording: Recording, form: Node, tensor: str, at: Sequence[Place]) -> ShortFormat | None:
    """Return the short format of an output, or the one it was rounded to before being stored as float32, or None.

    Args:
        recording: The run.
        form: The real form of its node.
        tensor: The output.
        at: Samples and steps to examine.
    """
    short_format = None
    for place in at:
        input_arrays = (recording.load(name, *place) for name in form.inputs if name and recording.has(name, *place))
        short_format = short_format or format_of(recording.load(tensor, *place), read=input_arrays)
    if short_format is None or recording.graph.tensors[tensor].quant is not None:
        return None
    outputs = (recording.load(tensor, *place) for place in at)
    return (
        short_format
        if all(values.dtype.name == short_format.name or is_exact_in(values, short_format) for values in outputs)
        else None
    )


def _is_error_everywhere(recorded_values: np.ndarray, replayed: np.ndarray) -> bool:
    """Return whether an error is spread over all elements, as rounding errors are, rather than a mistake in a few.

    Elements that are 0 on both sides, as after a Relu, do not count.
    """
    error = _difference(recorded_values, replayed)[
        (_in_common_format(recorded_values) != 0) | (_in_common_format(replayed) != 0)
    ]
    return not error.size or bool(
        np.median(np.abs(error)) >= ROUNDING_MIN_MEDIAN_SHARE * finite_norm(error) / np.sqrt(error.size)
    )


def _reordered(form: Node, arrays: Sequence[np.ndarray], rng: np.random.Generator) -> list[np.ndarray] | None:
    """Permute the terms of every sum consistently in both operands, or return None for unsupported operators."""
    row = operators.of(form.op)
    if row.plain != row.name:
        return None  # an activation computed along with the sums hides their order
    if row.sums is Sums.FILTER and form.attrs.get("group", 1) == 1:
        axis = -1 if keeps_channels_last(form) else 1
        order = rng.permutation(arrays[1].shape[1])
        return [arrays[0].take(order, axis), arrays[1][:, order], *arrays[2:]]
    if row.sums is Sums.MATRIX and row.bias is None and all(array.ndim >= 2 for array in arrays[:2]):
        order = rng.permutation(arrays[0].shape[-1])
        return [arrays[0][..., order], arrays[1][..., order, :], *arrays[2:]]
    return None
