"""Everything about the error of one tensor that is worth a second pass: for one node on request, not for all.

The pass shares each block, read as float64, among counters that merge nothing and keep little: at most 4 MB whatever
the size of the tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qdebug.model.quant import QuantParams
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.blocks import Clamp, RealBlocks, scratch
from qdebug.numerics.channels import ChannelCounter, ChannelErrors, Stretch, stretches
from qdebug.numerics.double_block import exact_difference, read_block, real_values
from qdebug.numerics.exponents import ExponentCounter, ExponentHistogram
from qdebug.numerics.histogram import BinCounter, ValueHistogram
from qdebug.numerics.lsb import Steps
from qdebug.numerics.stats import ErrorStats, WorstElement
from qdebug.numerics.tally import Block
from qdebug.numerics.ulp import UlpCounter, UlpErrors, shared_type
from qdebug.numerics.worst import WorstPlaces

__all__ = ["TensorProfile", "profile_tensor"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorProfile:
    """One backend tensor against its reference in full detail, for one sample and step.

    Args:
        sample: Index of the sample.
        shape: The backend's shape, into which all indices go.
        stats: The metrics of the core tier.
        errors: abs(difference) by binary exponent, of the elements that are finite on both sides.
        reference: Values of the reference, in the same bins as the backend's; None if no value is finite.
        backend: Values of the backend.
        worst: The elements that differ most, worst first.
        ulp: Distance in units in the last place; None unless both sides are float16, bfloat16, float32 or float64
            and not quantized.
        channels: The error of each channel; None if no axis was given.
    """

    sample: int
    shape: tuple[int, ...]
    stats: ErrorStats
    errors: ExponentHistogram
    reference: ValueHistogram | None
    backend: ValueHistogram | None
    worst: tuple[WorstElement, ...]
    ulp: UlpErrors | None
    channels: ChannelErrors | None


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
        backend: Stored elements of the backend, of the same shape but for dimensions of extent 1.
        reference_quant: How the reference's elements stand for real numbers; None if they are the numbers.
        backend_quant: The same for the backend.
        clamps: Bounds applied to the real values of the reference and of the backend first.
        axis: Channel axis in the backend's shape; None for no error by channel.
        bins: Bins of the histograms of values, which go from the smallest to the largest value of either side.
        k: How many of the worst elements.
        sample: Index of the sample, passed on.

    Raises:
        UsageError: The shapes differ, a dtype holds no real numbers, quantization does not fit a shape, the backend
            has no such axis, or `bins` is 0.
    """
    accumulator = ErrorAccumulator(
        reference_quant=reference_quant,
        backend_quant=backend_quant,
        reference_clamp=clamps[0],
        backend_clamp=clamps[1],
    )
    accumulator.update(reference, backend, sample=sample)
    stats = accumulator.stats()
    sides = RealBlocks(reference, reference_quant, clamps[0]), RealBlocks(backend, backend_quant, clamps[1])
    shape = sides[1].shape
    ulp_type = None
    if reference_quant is None and backend_quant is None:
        ulp_type = shared_type(np.asarray(reference).dtype, np.asarray(backend).dtype)
    limits = _common_limits(stats)
    counters = _Counters(
        errors=ExponentCounter(),
        values=None if limits is None else (BinCounter(bins, limits), BinCounter(bins, limits)),
        worst=WorstPlaces(k),
        ulp=None if ulp_type is None else UlpCounter(ulp_type),
        channels=None if axis is None else ChannelCounter(shape, axis),
    )
    with np.errstate(all="ignore"):
        _count(sides, counters, axis)
        worst = counters.worst.elements(*sides, Steps(backend_quant, shape), sample)
    ours, theirs = (None, None) if counters.values is None else (side.histogram() for side in counters.values)
    return TensorProfile(
        sample=sample,
        shape=shape,
        stats=stats,
        errors=counters.errors.histogram(),
        reference=ours,
        backend=theirs,
        worst=worst,
        ulp=None if counters.ulp is None else counters.ulp.errors(),
        channels=None if counters.channels is None else counters.channels.errors(),
    )


@dataclass(slots=True, kw_only=True)
class _Counters:
    errors: ExponentCounter
    values: tuple[BinCounter, BinCounter] | None
    worst: WorstPlaces
    ulp: UlpCounter | None
    channels: ChannelCounter | None


def _count(sides: tuple[RealBlocks, RealBlocks], counters: _Counters, axis: int | None) -> None:
    buffers, no_steps = scratch(), Steps(None, ())
    for stretch in stretches(sides[1].shape, axis):
        _count_block(read_block(sides, (stretch.start, stretch.stop), no_steps, buffers), stretch, counters)


def _count_block(block: Block, stretch: Stretch, counters: _Counters) -> None:
    magnitudes = exact_difference(block)
    np.absolute(magnitudes, out=magnitudes)
    counters.worst.add(block, magnitudes)
    a = real_values(block.reference, block.reference_rest)
    b = real_values(block.backend, block.backend_rest)
    finite = None
    if not np.isfinite(magnitudes.max()):
        finite = np.isfinite(a) & np.isfinite(b)
    if counters.values is not None:
        counters.values[0].add(a)
        counters.values[1].add(b)
    if counters.channels is not None:
        counters.channels.add(stretch, (a, b), magnitudes, finite)
    left_out = 0
    if finite is not None:
        a, b, magnitudes = a[finite], b[finite], magnitudes[finite]
        left_out = finite.size - a.size
    counters.errors.add(magnitudes, left_out)
    if counters.ulp is not None and a.size:
        counters.ulp.add(a, b)


def _common_limits(stats: ErrorStats) -> tuple[float, float] | None:
    """Give limits that hold the finite values of both sides; None if there are none.

    A range wider than float64 can express is cut at both ends, and what lies beyond is counted there.
    """
    known = (stats.reference_min, stats.reference_max, stats.backend_min, stats.backend_max)
    values = [value for value in known if value is not None]
    if not values:
        return None
    low, high = min(values), max(values)
    most = float(np.finfo(np.float64).max)
    if low == high:
        room = max(abs(low) / 2.0, float(np.finfo(np.float64).tiny)) if low else 0.5
        low, high = max(low - room, -most), min(high + room, most)
    if high - low > most:
        low, high = max(low, -most / 2.0), min(high, most / 2.0)
    return low, high
