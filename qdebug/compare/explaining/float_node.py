"""One output of a float node, compared with its replay in several precisions. Begin at `FloatNode`.

The precisions are named as in `Band.precision`, such as "bf16 inputs".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.patterns.wrong_places import Layout, may_be_chance, places
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
from qdebug.compare.attribute.declared_format import declared_format
from qdebug.compare.attribute.grid_rounding import (
    allowed_squares,
    beyond_steps,
    grid_of_codes,
    min_values_for_grid,
    weight_noise,
)
from qdebug.errors import KernelError
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
    "ACCUMULATOR",
    "ACCUMULATORS",
    "INPUT_CASTS",
    "ON_CODES",
    "OUTPUT",
    "SHORT_TITLES",
    "FloatNode",
    "SummedError",
    "difference_of",
    "is_finite",
    "is_nan",
    "output_format",
    "rounds_nothing",
]

_SEED = 20250218


ACCUMULATOR = "accumulator"
SHORT_TITLES = MappingProxyType({"tf32": "TF32", "fp16": "float16", "bf16": "bfloat16"})
"""Name of each short format in messages, finest first."""
_FORMAT_BY_NAME = {short.name: short for short in SHORT_FORMATS}
INPUT_CASTS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType(
    {title: _FORMAT_BY_NAME[name].rounded for title, name in SHORT_TITLES.items()}
)
OUTPUT = "output"
"""The rounded part of a node that is exact except for its output format."""
_MATRIX_RANK = 2
_SEQUENCE_RANK = 4
"""Rank of the result of a recurrent layer for all steps: steps, directions, samples, hidden elements."""
_MAX_NODES_BETWEEN = 32
"""Maximum number of nodes to walk upstream, in search of the product that gives the last axis of a tensor a meaning."""
ON_CODES = f"codes {OUTPUT}"
"""Precision of real numbers on the grid of codes with an undeclared scale."""
ACCUMULATORS: Mapping[str, float] = MappingProxyType({"fp16": 2.0**-11, "bf16": 2.0**-8})
"""Unit roundoff of each 16-bit accumulator."""


@dataclass(slots=True)
class SummedError:
    """Squared norms of a replay's error and of the allowed error, summed over samples."""

    error: float = 0.0
    allowed: float = 0.0

    def add(self, error: np.ndarray, allowed: float) -> None:
        """Add the errors of a sample, and the allowed norm of all of them."""
        self.error += finite_norm(error) ** 2
        self.allowed += allowed**2

    @property
    def ratio(self) -> float:
        """Error norm divided by the allowed norm."""
        if self.error == 0:
            return 0.0
        return float(np.sqrt(self.error / self.allowed)) if self.allowed else np.inf


def rounds_nothing(node: Node) -> bool:
    """Return whether an operator selects or casts values, so that each element has only one right result."""
    row = operators.of(node.op)
    return (row.rounds_nothing and not row.converts_codes) or row.casts


def is_nan(values: np.ndarray) -> np.ndarray:
    """Return a mask of NaN, for any float dtype."""
    return np.asarray(np.isnan(_in_common_format(values)))


def is_finite(values: np.ndarray) -> np.ndarray:
    """Return a mask of finite values, for any float dtype."""
    return np.asarray(np.isfinite(_in_common_format(values)))


def _number_text(value: float) -> str:
    return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _in_common_format(values: np.ndarray) -> np.ndarray:
    """Return values in a format that all numpy functions support. Few support 8-bit and 16-bit floats."""
    return values if values.dtype.kind in "fiub" else values.astype(np.float64)


def difference_of(recorded_values: np.ndarray, replayed: np.ndarray) -> np.ndarray:
    """Return the error of each element in float64, 0 where either is NaN or both are the same infinity."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(recorded_values.astype(np.float64) - replayed.astype(np.float64), nan=0.0)


class FloatNode:
    """One output of a float node, compared with its replay at selected samples and steps."""

    def __init__(self, recording: Recording, node: Node, tensor: str, at: Sequence[Place]) -> None:
        self._recording, self._node, self._tensor = recording, node, tensor
        self._form, self._opset = real_form(node, recording.graph.opset)
        self._short = output_format(recording, self._form, tensor, at)
        self._outside: dict[Place, OutOfRange] = {}  # results that overflow or underflow their format
        # Whether inputs of a reduced precision explain nearly all elements. A narrow accumulator is then ruled out.
        self._reduced_inputs_suffice = False

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
            has_bias = operators.of(self._form.op).product
            narrowed = self._form.inputs[: 2 if has_bias and not bias else None]
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
        replayed = self._limited_to_format(recorded, replayed, values, place)
        if rounds_nothing(self._node) and replayed.dtype == np.float64 and recorded.dtype.kind == "f":
            with np.errstate(over="ignore"):
                single = np.array_equal(recorded, recorded.astype(np.float32), equal_nan=True)
            storage_dtype = np.float32 if single else recorded.dtype  # backends may store a float64 constant as float32
            replayed = replayed.astype(storage_dtype).astype(recorded_values.dtype)
        number_format = SINGLE if self._short is None else self._short
        format_unit = unit_roundoff(recorded_values.dtype) if self._short is None else number_format.unit
        is_coarse = format_unit > FLOAT32_UNIT_ROUNDOFF
        # Rounding to the format: relative to the value, except for subnormal numbers, whose spacing is constant.
        steps = (
            np.hypot(
                format_unit * finite_norm(recorded_values), number_format.subnormal / 2 * np.sqrt(recorded_values.size)
            )
            if is_coarse
            else 0.0
        )
        if operators.of(self._form.op).product:  # its sums may be more precise than the format of the result
            sums = allowed_error(self._form, values, replayed, self._opset, FLOAT32_UNIT_ROUNDOFF)
            return recorded_values, replayed, float(np.hypot(sums, steps))
        sums = allowed_error(self._form, values, replayed, self._opset, max(FLOAT32_UNIT_ROUNDOFF, format_unit))
        return recorded_values, replayed, float(np.hypot(sums, steps))

    def clause_of_nonfinite(self, place: Place) -> str | None:
        """Return a clause on the first element that is finite on one side only, with the cause if known, or None."""
        recorded_values, replayed, _ = self.compare(place)
        alone = np.argwhere(is_finite(recorded_values) != is_finite(replayed))
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
    def output_precision(self) -> str:
        """The precision that the output's format alone implies, as named in `Band`."""
        short = None if self._short is None else self._short.name
        return next((f"{title} {OUTPUT}" for title, name in SHORT_TITLES.items() if name == short), "fp32")

    def clause_of_range(self) -> str | None:
        """Return a clause on results beyond the range of the output's format, or None."""
        exceedances = list(self._outside.values())
        return reduce(OutOfRange.merge, exceedances).sentence if exceedances else None

    def _limited_to_format(
        self, recorded: np.ndarray, replayed: np.ndarray, values: Mapping[str, np.ndarray], place: Place
    ) -> np.ndarray:
        """Return a replay in which values beyond the range of the output's format are handled as in the recording.

        Overflowing values become infinite or the largest number, and subnormal values may become zero.
        """
        short = SINGLE if self._short is None and recorded.dtype == np.float32 else self._short
        if short is None or replayed.dtype.kind != "f" or rounds_nothing(self._node):
            return replayed
        noise = replay_noise(self._form, values, replayed, self._opset)
        self._outside[place], ended = out_of_range(short, replayed, recorded, noise=noise)
        if not ended.any():
            return replayed
        return np.where(ended, recorded.astype(np.float32).astype(replayed.dtype), replayed)

    def code_grid(self, at: Sequence[Place]) -> Grid | None:
        """Return the grid of codes that the output's real values lie on.

        None if there is no such grid, or the run stores codes as codes.
        """
        recording, tensor = self._recording, self._tensor
        if recording.graph.tensors[tensor].quant is not None or is_off_grid(recording.load(tensor, *at[0])):
            return None
        code_grid = None if self._short is not None else grid_of_codes(lambda: (recording.load(tensor, *p) for p in at))
        return (
            code_grid
            if code_grid is not None and not computes_with_codes(recording) and min_values_for_grid(recording)
            else None
        )

    def compare_with_codes(self, place: Place, grid: Grid) -> tuple[np.ndarray, np.ndarray, float, int]:
        """Compare the recorded values with the replay, clipped to the grid's range, allowing for a rounding to codes.

        Returns:
            The recorded values, the clipped replay, the allowed norm of their difference, and the number of elements
                whose error is too large for a rounding to codes.
        """
        recorded_values, replayed, allowed = self.compare(place)
        values = inputs_of(self._recording, self._form, place)
        noise, clipped_replay = weight_noise(self._form, values, self._opset), np.clip(replayed, grid.low, grid.high)
        allowed = float(np.hypot(allowed, np.sqrt(allowed_squares(grid, recorded_values.size, noise))))
        return recorded_values, clipped_replay, allowed, beyond_steps(grid, clipped_replay, recorded_values, noise)

    def error_ratio_on_codes(self, at: Sequence[Place]) -> float | None:
        """Return the error norm divided by the norm that a rounding to codes allows, or None if there is no grid."""
        grid = self.code_grid(at)
        if grid is None:
            return None
        run = SummedError()
        for place in at:
            recorded_values, clipped_replay, allowed, unexplained_count = self.compare_with_codes(place, grid)
            if unexplained_count:
                return np.inf
            run.add(difference_of(recorded_values, clipped_replay), allowed)
        return run.ratio

    def coarser_precisions(self, at: Sequence[Place]) -> Iterator[tuple[str, float]]:
        """Yield the precisions coarser than float32, finest first, each with the error norm divided by its bound."""
        if rounds_nothing(self._node):
            # A layer that only selects values may convert them to the format that the run declares.
            declared = declared_format(self._recording)
            for title, name in SHORT_TITLES.items():
                if declared is not None and declared.name == name:
                    yield f"{title} inputs", self._ratio(at, cast=INPUT_CASTS[title])
        if not operators.of(self._form.op).product:
            return
        for name, cast in INPUT_CASTS.items():
            yield f"{name} inputs", self._ratio(at, cast=cast, bias=False)
            if len(self._form.inputs) > 2:
                yield f"{name} inputs and bias", self._ratio(at, cast=cast)
        for name, unit in ACCUMULATORS.items():
            if self._may_have_been_summed_in(name, at):
                yield f"{name} {ACCUMULATOR}", self._ratio(at, cast=INPUT_CASTS[name], narrow=unit)

    def _may_have_been_summed_in(self, name: str, at: Sequence[Place]) -> bool:
        """Return whether the output could be sums in a short format, judging by its number of digits.

        A bias may add digits, so with a bias the answer is yes.
        """
        if len(self._form.inputs) > 2:
            return True
        outputs = (self._recording.load(self._tensor, *place) for place in at)
        return all(is_exact_in(_in_common_format(values), _FORMAT_BY_NAME[SHORT_TITLES[name]]) for values in outputs)

    def possible_input_formats(self, place: Place) -> Iterator[str]:
        """Yield the formats of the inputs for which the bound of float32 sums accounts for the error."""
        if not operators.of(self._form.op).product:
            return
        recorded_values, replayed, allowed = self.compare(place)
        error = finite_norm(difference_of(recorded_values, replayed))
        if not allowed < error < ROUNDED_FACTORS_MAX_ERROR_RATIO * allowed:
            return
        for title, cast in INPUT_CASTS.items():
            if any(
                self._ratio([place], cast=cast, bias=bias) <= 1 for bias in (False, True)[: len(self._form.inputs) - 1]
            ):
                yield SHORT_TITLES[title]

    def _ratio(
        self,
        at: Sequence[Place],
        *,
        cast: Callable[[np.ndarray], np.ndarray],
        bias: bool = True,
        narrow: float | None = None,
    ) -> float:
        run = SummedError()
        for place in at:
            recorded_values, replayed, allowed = self.compare(place, cast=cast, bias=bias, narrow=narrow)
            if not _is_error_everywhere(recorded_values, replayed):
                self._reduced_inputs_suffice = True
            if narrow is not None and (
                self._reduced_inputs_suffice or not _is_error_everywhere(*self.compare(place)[:2])
            ):
                return np.inf
            run.add(difference_of(recorded_values, replayed), 0.0 if rounds_nothing(self._node) else allowed)
        return run.ratio

    def error_over_spread(self, place: Place) -> float | None:
        """Return the error norm divided by the largest effect of reordering the sums.

        None if the operator's sums cannot be reordered, or reordering has no effect.
        """
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
                finite_norm(difference_of(run_node(self._form, reordered_inputs, self._opset)[self._tensor], plain)),
            )
        error = finite_norm(difference_of(self.compare(place)[0], plain))
        return error / largest if largest else None

    def clause_of_outliers(self, at: Sequence[Place], is_wrong: np.ndarray | None = None) -> str:
        """Return a clause on where the outliers among the errors lie, or "" if they are scattered.

        Args:
            at: Samples and steps. Only the first is examined.
            is_wrong: Mask of the outliers, if it is known.
        """
        recorded_values, replayed, allowed = self.compare(at[0])
        error = np.abs(difference_of(recorded_values, replayed))
        if recorded_values.ndim < 2 or not error.size:
            return ""
        if is_wrong is None or is_wrong.shape != error.shape:
            is_wrong = error > OUTLIER_ERROR_RATIO * self._rounding_of_elements(at[0], replayed, allowed)
        is_outlier = is_wrong
        axes = recorded_values.ndim - 1
        vectors = recorded_values.ndim == _MATRIX_RANK or self._holds_vectors()
        last = vectors or keeps_channels_last(self._form)
        spatial = tuple(range(axes - 1) if last else range(1, axes))
        first = "step" if self._has_steps(recorded_values.ndim) else "batch slice" if vectors else "sample"
        if vectors and axes == 1:
            first = "row"
        layout = Layout(channel=axes - 1 if last else 0, spatial=spatial, first=first, vectors=vectors)
        outlier_patterns, outlier_count = places(is_outlier, layout), int(np.count_nonzero(is_outlier))
        if outlier_count == 1:
            return f", only at {layout.element([int(each[0]) for each in np.nonzero(is_outlier)])}"
        reported_patterns = outlier_patterns[
            : 2 if outlier_patterns and outlier_patterns[0].pattern == "block_tail" else 1
        ]
        clause = "".join(f", {place.detail}" for place in reported_patterns) or _clause_of_sign(is_outlier, replayed)
        if np.unique(recorded_values[is_outlier]).size == 1 and not may_be_chance(0.5, outlier_count):
            clause = clause or f", {outlier_count} of {is_outlier.size} elements"
            clause += f", all {float(recorded_values[is_outlier][0]):g} (possibly never written)"
        return clause

    def _has_steps(self, axes: int) -> bool:
        """Return whether the first axis of the result counts the steps of a sequence."""
        is_recurrent = operators.plain(self._form).recurrent and not self._form.attrs.get("layout")
        return is_recurrent and axes == _SEQUENCE_RANK

    def _holds_vectors(self) -> bool:
        """Return whether the last axis counts features, because the nearest product upstream is a matrix product."""
        node: Node | None = self._form
        for _ in range(_MAX_NODES_BETWEEN):
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
        """Return the expected rounding error: the same for all elements, or for short formats relative to each one."""
        if self._short is None or not operators.of(self._form.op).product:
            return max(allowed / math.sqrt(replayed.size), 1e-300)
        values = inputs_of(self._recording, self._form, place)
        sums: float = allowed_error(self._form, values, replayed, self._opset, FLOAT32_UNIT_ROUNDOFF)
        return np.asarray(sums / math.sqrt(replayed.size) + self._short.unit * np.abs(replayed.astype(np.float64)))


def _clause_of_sign(is_outlier: np.ndarray, replayed: np.ndarray) -> str:
    """Return a clause if the wrong elements are exactly those that should have one sign, or ""."""
    for sign, has_sign in (("negative", replayed < 0), ("positive", replayed > 0)):
        if (
            np.array_equal(is_outlier, has_sign)
            and not has_sign.all()
            and not may_be_chance(0.5, int(np.count_nonzero(is_outlier)))
        ):
            return f", exactly the elements that should be {sign}"
    return ""


def output_format(recording: Recording, form: Node, tensor: str, at: Sequence[Place]) -> ShortFormat | None:
    """Return the short float format of an output, or None.

    An output in float32 counts as short if all its values are representable in a short format.

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
    """Return whether most elements contribute to an error, as with rounding, and not only a few outliers.

    Elements that are 0 on both sides, as after a Relu, do not count.
    """
    error = difference_of(recorded_values, replayed)[
        (_in_common_format(recorded_values) != 0) | (_in_common_format(replayed) != 0)
    ]
    return not error.size or bool(
        np.median(np.abs(error)) >= ROUNDING_MIN_MEDIAN_SHARE * finite_norm(error) / np.sqrt(error.size)
    )


def _reordered(form: Node, arrays: Sequence[np.ndarray], rng: np.random.Generator) -> list[np.ndarray] | None:
    """Return the operands with the terms of each sum in random order, or None if the operator is not supported."""
    row = operators.of(form.op)
    if row.plain != row.name:
        return None  # the effect of the order cannot be measured behind a fused activation
    if row.sums is Sums.FILTER and form.attrs.get("group", 1) == 1:
        axis = -1 if keeps_channels_last(form) else 1
        order = rng.permutation(arrays[1].shape[1])
        return [arrays[0].take(order, axis), arrays[1][:, order], *arrays[2:]]
    if row.sums is Sums.MATRIX and row.bias is None and all(array.ndim >= 2 for array in arrays[:2]):
        order = rng.permutation(arrays[0].shape[-1])
        return [arrays[0][..., order], arrays[1][..., order, :], *arrays[2:]]
    return None
