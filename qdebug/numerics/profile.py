"""Profile the error of one tensor in a second pass, array by array. Begin at `Profiler`.

Each block is read once as float64 and passed to all counters. Their size is bounded: at most 4 MB in total, however
large the tensors and however many the samples.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from qdebug.errors import UsageError
from qdebug.model.json_object import JsonObject
from qdebug.model.quant import QuantParams
from qdebug.numerics.accumulate import ErrorAccumulator, has_same_elements, lsb_of
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.block_error import RelativeCounter, RelativeErrors, exact_difference, read_block
from qdebug.numerics.blocks import Clamp, RealBlocks, Scratch, make_comparable, scratch
from qdebug.numerics.channels import ChannelCounter, ChannelErrors, Stretch, channel_stretches
from qdebug.numerics.histogram import ExponentCounter, ExponentHistogram, PairBinCounter, ValueHistogram, count_rows
from qdebug.numerics.lsb import LsbSizes, UlpCounter, UlpErrors, shared_type
from qdebug.numerics.stats import ErrorStats, WorstElement
from qdebug.numerics.tally import Block
from qdebug.numerics.worst import WorstCollector, WorstColumns

__all__ = ["Profiler", "SmallTensors", "TensorProfile", "profile_tensor"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorProfile(JsonObject):
    """One backend tensor compared with its reference in full detail, over one or more samples and steps.

    Args:
        sample: The sample, if it is only one; None for several.
        tensors: Number of arrays compared on each side: one per sample and step.
        shape: The backend's shape, which all indices refer to; the first array's shape if they differ.
        stats: The metrics of the core tier.
        errors: abs(difference) by binary exponent, for the elements that are finite on both sides.
        relative: abs(difference)/abs(reference) by binary exponent, with zero references counted separately.
        reference: Values of the reference, in the same bins as the backend's; None if no value is finite.
        backend: Values of the backend.
        worst_columns: The elements that differ most, as columns.
        ulp: Distance in units in the last place; None unless both sides are float16, bfloat16, float32 or float64 and
            not quantized.
        channels: The error of each channel; None if no axis was given, or if the number of channels differs between
            arrays.
    """

    json_keys = (
        "tensors shape errors_by_exponent=errors relative_by_exponent=relative.quotients "
        "zero_refs_hit=relative.zero_refs_hit max_ulp=ulp.max_ulp ulp_type=ulp.dtype ulp_counts=ulp.counts "
        "reference_values=reference backend_values=backend channel_axis=channels.axis "
        "channel_max_abs=channels.max_abs channel_rmse=channels.rmse channel_sqnr_db=channels.sqnr_db "
        "channel_nonfinite=channels.nonfinite"
    )

    sample: int | None
    tensors: int
    shape: tuple[int, ...]
    stats: ErrorStats
    errors: ExponentHistogram
    relative: RelativeErrors
    reference: ValueHistogram | None
    backend: ValueHistogram | None
    worst_columns: WorstColumns
    ulp: UlpErrors | None
    channels: ChannelErrors | None

    @property
    def worst(self) -> tuple[WorstElement, ...]:
        """The elements that differ most, worst first, created on demand."""
        return self.worst_columns.elements()


_FEW = 2048
"""Number of elements below which the overhead of numpy calls exceeds their work."""


class SmallTensors:
    """Small tensors with the same shape that float32 holds exactly, in the order they were added.

    Args:
        shape: Shape of each tensor.
        lsb: Size of an LSB, shared by all.
    """

    def __init__(self, shape: tuple[int, ...], lsb: LsbSizes) -> None:
        self.shape = shape
        self.lsb = lsb
        self.sides: list[tuple[RealBlocks, RealBlocks]] = []
        self.places: list[tuple[int, int]] = []

    def add(self, sides: tuple[RealBlocks, RealBlocks], sample: int, step: int) -> None:
        """Add the reference's and the backend's tensor for a sample and step. Their arrays are not copied."""
        self.sides.append(sides)
        self.places.append((sample, step))

    def has_room_for(self, shape: tuple[int, ...]) -> bool:
        """Return whether another tensor of the given shape fits in the block."""
        return shape == self.shape and (len(self.sides) + 1) * self.sides[0][1].size <= BLOCK

    def read(self, buffers: Scratch) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of both sides, one tensor after another, as float32.

        Args:
            buffers: Scratch buffers; the first two float32 buffers are used.
        """
        size = self.sides[0][1].size
        if len(self.sides) == 1:
            first, second = self.sides[0]
            return first.read_single(0, size, buffers.singles[0]), second.read_single(0, size, buffers.singles[1])
        for number, pair in enumerate(self.sides):
            for side, buffer in zip(pair, buffers.singles, strict=False):
                out = buffer[number * size : (number + 1) * size]
                np.copyto(out, side.read_single(0, size, out))  # a view of the tensor, or `out` already
        count = len(self.sides) * size
        return buffers.singles[0][:count], buffers.singles[1][:count]


class Profiler:
    """Profiles the arrays of one tensor, one sample and step after another, in constant memory.

    Many small arrays are counted together, since numpy calls dominate the cost of each.

    Args:
        stats: The metrics of the core tier over all arrays that will be added. Their extremes become the ends of the
            value histograms.
        reference_quant: Quantization of the reference's elements; None for real numbers.
        backend_quant: Quantization of the backend's elements; None for real numbers.
        clamps: Bounds to which the real values of the reference and the backend are clamped first.
        axis: Channel axis in the backend's shape; None to skip the error by channel.
        bins: Number of bins of the value histograms, which span the smallest to the largest value of both sides.
        k: Number of worst elements to keep.

    Raises:
        UsageError: `bins` is 0.
    """

    def __init__(
        self,
        stats: ErrorStats,
        *,
        reference_quant: QuantParams | None = None,
        backend_quant: QuantParams | None = None,
        clamps: tuple[Clamp, Clamp] = ((None, None), (None, None)),
        axis: int | None = None,
        bins: int = 64,
        k: int = 20,
    ) -> None:
        self._stats = stats
        self._quants = reference_quant, backend_quant
        self._clamps = clamps
        self._axis = axis
        self._samples: set[int] = set()
        self._tensors = 0
        self._shape: tuple[int, ...] = ()
        limits = _common_limits(stats)
        self._values = None if limits is None else PairBinCounter(bins, limits)
        self._errors = ExponentCounter()
        self._relative = RelativeCounter()
        self._worst = WorstCollector(k)
        self._waiting: SmallTensors | None = None
        self._ulp: UlpCounter | None = None
        self._channels: ChannelCounter | None = None

    def add(
        self,
        reference: np.ndarray,
        backend: np.ndarray,
        *,
        sample: int = 0,
        step: int = 0,
        cancelled: Callable[[], bool] | None = None,
    ) -> bool:
        """Add the arrays of one sample and step.

        Args:
            reference: Stored elements of the reference.
            backend: Stored elements of the backend, of the same shape except for dimensions of extent 1.
            sample: Index of the sample, stored with the elements.
            step: Index of the step of a stateful network, stored with the elements.
            cancelled: Called after every block of 32768 elements and every array; once it returns True, the rest is
                skipped.

        Returns:
            Whether everything was added.

        Raises:
            UsageError: The shapes differ, a dtype does not hold real numbers, quantization does not match a shape, or
                the backend does not have that axis.
        """
        reference, backend = np.asarray(reference), np.asarray(backend)
        is_small = 0 < backend.size <= _FEW
        if is_small:  # copied, since it is counted with later arrays and the caller may overwrite it before that
            reference, backend = reference.copy(), backend.copy()
        sides = make_comparable(
            RealBlocks(reference, self._quants[0], self._clamps[0]),
            RealBlocks(backend, self._quants[1], self._clamps[1]),
        )
        shape = sides[1].shape
        if not has_same_elements(sides[0].shape, shape):
            raise UsageError(f"The reference has shape {sides[0].shape}, but the backend has {shape}.")
        lsb = lsb_of(*sides)
        is_small = is_small and sides[0].single and sides[1].single
        if self._waiting and not (is_small and self._waiting.has_room_for(shape)):
            self._count_waiting()
        if not self._tensors:
            self._begin(shape, reference.dtype, backend.dtype)
        elif self._channels is not None and not self._channels.has_same_channels(shape):
            self._channels = self._axis = None
        self._tensors += 1
        self._samples.add(sample)
        if is_small:
            if self._waiting is None:
                self._waiting = SmallTensors(shape, lsb)
            self._waiting.add(sides, sample, step)
            return cancelled is None or not cancelled()
        self._worst.start(sides, lsb, sample, step)
        return self._count_tensor(sides, cancelled)

    def _count_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        self._worst.start_several(waiting.sides, waiting.lsb, waiting.places)
        buffers = scratch()
        with np.errstate(all="ignore"):
            values = waiting.read(buffers)
            # Stacked tensors are one tensor with an additional first dimension, so the channel axis moves by one.
            axis = None if self._axis is None else self._axis % len(waiting.shape) + 1
            for stretch in channel_stretches((len(waiting.sides), *waiting.shape), axis):
                part = slice(stretch.start, stretch.stop)
                singles = values[0][part], values[1][part]
                self._count(_widen_to_block(singles, stretch.start, buffers), singles, stretch, buffers)

    def _count_tensor(self, sides: tuple[RealBlocks, RealBlocks], cancelled: Callable[[], bool] | None) -> bool:
        buffers, no_lsb = scratch(), LsbSizes(None, ())
        single = sides[0].single and sides[1].single
        with np.errstate(all="ignore"):
            for stretch in channel_stretches(sides[1].shape, self._axis):
                singles, span = None, (stretch.start, stretch.stop)
                if single:
                    singles = (
                        sides[0].read_single(*span, buffers.singles[0]),
                        sides[1].read_single(*span, buffers.singles[1]),
                    )
                    block = _widen_to_block(singles, stretch.start, buffers)
                else:
                    block = read_block(sides, span, no_lsb, buffers)
                self._count(block, singles, stretch, buffers)
                if cancelled is not None and cancelled():
                    return False
        return True

    def _begin(self, shape: tuple[int, ...], *dtypes: np.dtype) -> None:
        self._shape = shape
        if self._axis is not None:
            self._channels = ChannelCounter(shape, self._axis)
        ulp_type = shared_type(*dtypes) if self._quants == (None, None) else None
        self._ulp = None if ulp_type is None else UlpCounter(ulp_type)

    def _count(
        self, block: Block, singles: tuple[np.ndarray, np.ndarray] | None, stretch: Stretch, buffers: Scratch
    ) -> None:
        """Count a range; `singles` are its values in float32, if float32 holds them exactly."""
        n = block.reference.size
        if block.reference_rest is None and block.backend_rest is None:  # without low parts, two buffers are free
            magnitudes = np.subtract(block.backend, block.reference, out=buffers.doubles[1][:n])
        else:
            magnitudes = exact_difference(block)
        np.absolute(magnitudes, out=magnitudes)
        largest = float(magnitudes.item(magnitudes.argmax()))
        self._worst.add(block, magnitudes, largest)
        a = _add_remainders(block.reference, block.reference_rest)
        b = _add_remainders(block.backend, block.backend_rest)
        finite = None
        if not math.isfinite(largest):
            finite = np.isfinite(a) & np.isfinite(b)
        if self._channels is not None:
            self._channels.add(stretch, (a, b), magnitudes, finite)
        if finite is None and singles is not None and n <= _FEW:
            self._count_few(np.concatenate(singles).reshape(2, n), a, magnitudes)
            return
        if self._values is not None:
            self._values.add(*(singles or (a, b)), buffers)
        left_out = 0
        if finite is not None:
            a, b, magnitudes = a[finite], b[finite], magnitudes[finite]
            if singles is not None:
                singles = singles[0][finite], singles[1][finite]
            left_out = finite.size - a.size
        out, index = buffers.doubles[3], buffers.index
        equal = self._errors.add(magnitudes, left_out, index=index)
        if a.size:
            self._relative.add(magnitudes, a, out=out, index=index, equal=equal)
            if self._ulp is not None:
                self._ulp.add(*(singles or (a, b)), buffers)

    def _count_few(self, values: np.ndarray, reference: np.ndarray, magnitudes: np.ndarray) -> None:
        """Count a few finite elements with fewer numpy calls, which dominate the time.

        Args:
            values: The reference's and the backend's values as two rows of float32.
            reference: The reference's values as float64.
            magnitudes: Absolute differences as float64.
        """
        if self._values is not None:
            self._values.add_few(values.astype(np.float64))
        rows = np.empty((2 if self._ulp is None else 3, reference.size))
        rows[0] = magnitudes
        np.divide(magnitudes, reference, out=rows[1])
        np.absolute(rows[1], out=rows[1])
        if self._ulp is not None:
            self._ulp.distances(values, rows[2])
        counts = count_rows(rows)
        equal = self._errors.add_few(counts[0], rows[0])
        self._relative.add_counts(counts[1], rows[1], reference, equal)
        if self._ulp is not None:
            self._ulp.add_counts(counts[2], rows[2])

    def profile(self) -> TensorProfile:
        """Return the profile of all arrays so far."""
        self._count_waiting()
        reference_histogram, backend_histogram = (None, None) if self._values is None else self._values.histograms()
        return TensorProfile(
            sample=next(iter(self._samples)) if len(self._samples) == 1 else None,
            tensors=self._tensors,
            shape=self._shape,
            stats=self._stats,
            errors=self._errors.histogram(),
            relative=self._relative.errors(),
            reference=reference_histogram,
            backend=backend_histogram,
            worst_columns=self._worst.worst_so_far(),
            ulp=None if self._ulp is None else self._ulp.errors(),
            channels=None if self._channels is None else self._channels.errors(),
        )


def _widen_to_block(singles: tuple[np.ndarray, np.ndarray], start: int, buffers: Scratch) -> Block:
    """Return float32 values as a block of float64."""
    reference, backend = buffers.doubles[0][: singles[0].size], buffers.doubles[2][: singles[1].size]
    np.copyto(reference, singles[0])
    np.copyto(backend, singles[1])
    return Block(reference=reference, backend=backend, start=start, lsb=LsbSizes(None, ()))


def _add_remainders(values: np.ndarray, rest: np.ndarray | None) -> np.ndarray:
    """Add the low-order remainders of int64 values in place, since the parts are not needed again."""
    return values if rest is None else np.add(values, rest, out=values)


def _common_limits(stats: ErrorStats) -> tuple[float, float] | None:
    """Return limits around the finite values of both sides; None if there are none.

    A range whose width exceeds float64 is cut at both ends. Values beyond are counted as below or above the bins.
    """
    extremes = (stats.reference_min, stats.reference_max, stats.backend_min, stats.backend_max)
    values = [value for value in extremes if value is not None]
    if not values:
        return None
    low, high = min(values), max(values)
    largest_float = sys.float_info.max
    if low == high:
        margin = max(abs(low) / 2.0, sys.float_info.min) if low else 0.5
        low, high = max(low - margin, -largest_float), min(high + margin, largest_float)
    if high - low > largest_float:
        low, high = max(low, -largest_float / 2.0), min(high, largest_float / 2.0)
    return low, high


def profile_tensor(
    reference: np.ndarray,
    backend: np.ndarray,
    *,
    reference_quant: QuantParams | None = None,
    backend_quant: QuantParams | None = None,
    clamps: tuple[Clamp, Clamp] = ((None, None), (None, None)),
    axis: int | None = None,
    bins: int = 64,
    k: int = 20,
    sample: int = 0,
) -> TensorProfile:
    """Compare two tensors in full detail.

    Args:
        reference: Stored elements of the reference.
        backend: Stored elements of the backend, of the same shape except for dimensions of extent 1.
        reference_quant: Quantization of the reference's elements; None for real numbers.
        backend_quant: Quantization of the backend's elements; None for real numbers.
        clamps: Bounds to which the real values of the reference and the backend are clamped first.
        axis: Channel axis in the backend's shape; None to skip the error by channel.
        bins: Number of bins of the value histograms, which span the smallest to the largest value of both sides.
        k: Number of worst elements to keep.
        sample: Index of the sample, stored with the elements.

    Raises:
        UsageError: The shapes differ, a dtype does not hold real numbers, quantization does not match a shape, the
            backend does not have that axis, or `bins` is 0.
    """
    accumulator = ErrorAccumulator(
        reference_quant=reference_quant,
        backend_quant=backend_quant,
        reference_clamp=clamps[0],
        backend_clamp=clamps[1],
    )
    accumulator.update(reference, backend, sample=sample)
    profiler = Profiler(
        accumulator.stats(),
        reference_quant=reference_quant,
        backend_quant=backend_quant,
        clamps=clamps,
        axis=axis,
        bins=bins,
        k=k,
    )
    profiler.add(reference, backend, sample=sample)
    return profiler.profile()
