"""Scales of weights: per tensor, per channel or per block, and the loss of a channel with a shared scale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from qdebug.errors import UsageError
from qdebug.model import Node, QuantParams, Recording, operators
from qdebug.model.operators import Sums
from qdebug.model.thresholds.verdict import CODES_MIN_SQNR
from qdebug.numerics.affine import dequantize
from qdebug.numerics.calibration import Calibrator, MinMax, calibrate, calibrate_each
from qdebug.numerics.quant_error import QuantErrorCounter
from qdebug.numerics.range_histogram import RangeCounter, RangeHistogram, channel_histograms
from qdebug.numerics.scheme import QuantScheme
from qdebug.scales.flags import ScaleFlag, coded_quant

__all__ = [
    "Granularity",
    "WeightValues",
    "channel_flags",
    "choose_weight_scales",
    "find_recorded_weight",
    "granularity_of",
    "histogram_of",
    "recorded_weights",
    "scheme_for",
    "weights_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Granularity:
    """The number of elements of a weight that share a scale.

    Args:
        kind: "tensor", "channel" (of the output) or "block" (along the summed axis).
        block_size: Number of elements in a block, or None for the other kinds.
    """

    kind: str
    block_size: int | None = None

    @classmethod
    def parse(cls, text: str) -> Granularity:
        """Parse a text such as "channel" or "block:32".

        Raises:
            UsageError: The text is invalid.
        """
        kind, colon, number = text.partition(":")
        if kind in ("tensor", "channel") and not colon:
            return cls(kind=kind)
        if kind == "block" and number.isdecimal() and int(number) > 0:
            return cls(kind=kind, block_size=int(number))
        raise UsageError(f"Unknown granularity {text!r}.", hint="Choose tensor, channel or block:N.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightValues:
    """A weight of the float network.

    Args:
        name: Name of the constant.
        node: The node that reads the weight.
        values: Values of the weight.
        channel_axis: The axis of output channels.
        sum_axis: The first axis that is summed over. Blocks lie along this axis.
    """

    name: str
    node: Node
    values: np.ndarray
    channel_axis: int
    sum_axis: int


def weights_of(reference: Recording) -> Iterator[WeightValues]:
    """Yield each float weight that a product of a recording reads, once."""
    graph, yielded_names = reference.graph, set()
    for node in graph.nodes:
        row = operators.plain(node)
        if not row.product or operators.of(node.op).real is not None:
            continue
        name = operators.titled_input(node, 1)
        if not name or name in yielded_names or not graph.is_constant(name) or not reference.has(name):
            continue
        yielded_names.add(name)
        values = np.asarray(reference.load(name))
        if values.dtype.kind != "f" or values.ndim < 2 or coded_quant(graph, name) is not None:
            continue
        is_matrix, is_scatter = row.sums is Sums.MATRIX, row.sums is Sums.SCATTER
        is_transposed = is_matrix and bool(node.attrs.get("transB"))
        last_axis = values.ndim - 1
        channel_axis = (last_axis - is_transposed if is_matrix else 1 if is_scatter else 0) % values.ndim
        sum_axis = (last_axis - (not is_transposed) if is_matrix else 0 if is_scatter else 1) % values.ndim
        yield WeightValues(name=name, node=node, values=values, channel_axis=channel_axis, sum_axis=sum_axis)


def recorded_weights(backend: Recording) -> Mapping[tuple[int, ...], list[tuple[str, QuantParams, np.ndarray]]]:
    """Return the quantized constants of a recording by shape: name, quantization and real values."""
    by_shape: dict[tuple[int, ...], list[tuple[str, QuantParams, np.ndarray]]] = {}
    for name in backend.graph.tensors:
        quant = coded_quant(backend.graph, name)
        if quant is None or not backend.graph.is_constant(name) or not backend.has(name):
            continue
        codes = backend.load(name)
        if codes.ndim < 2:
            continue
        try:
            by_shape.setdefault(codes.shape, []).append((name, quant, dequantize(codes, quant)))
        except UsageError:  # the scales do not match the shape
            continue
    return by_shape


def find_recorded_weight(
    weight: WeightValues, recorded_weights_by_shape: Mapping[tuple[int, ...], list[tuple[str, QuantParams, np.ndarray]]]
) -> tuple[str, QuantParams] | None:
    """Return name and quantization of the backend's codes of a weight: same shape, and equal values within a step."""
    for name, quant, real_values in recorded_weights_by_shape.get(weight.values.shape, ()):
        step = float(np.nanmax(np.abs(quant.scale), initial=0.0))
        if math.isfinite(step) and np.abs(real_values - weight.values).max(initial=0.0) <= step:
            return name, quant
    return None


def scheme_for(quant: QuantParams | None, scheme: QuantScheme) -> QuantScheme:
    """Return the scheme of a weight's scales: symmetric and narrow, with the bit width of its recorded codes if any."""
    bits = scheme.bits
    if quant is not None:
        bits = int(quant.dtype.removeprefix("u").removeprefix("int"))
    return QuantScheme(kind="symmetric", bits=bits if bits in (4, 8, 16) else 8, narrow=True, rule=scheme.rule)


def histogram_of(values: np.ndarray) -> RangeHistogram:
    """Return the histogram of a whole weight."""
    counter = RangeCounter()
    counter.add(values)
    return counter.histogram()


def choose_weight_scales(
    weight: WeightValues, calibrator: Calibrator, scheme: QuantScheme, granularity: Granularity
) -> QuantParams:
    """Return the scales that a calibrator chooses for a weight.

    Raises:
        UsageError: The calibrator finds no range.
    """
    values = weight.values
    if granularity.kind == "tensor":
        return calibrate(calibrator, histogram_of(values), scheme)[0]
    if granularity.block_size is None:
        histograms = channel_histograms(values, weight.channel_axis)
        return scheme.stacked(calibrate_each(calibrator, histograms, scheme), weight.channel_axis)
    size, axis = granularity.block_size, weight.sum_axis
    histograms = channel_histograms(values, axis, block_size=size)
    shape = (*values.shape[:axis], -(-values.shape[axis] // size), *values.shape[axis + 1 :])
    return scheme.stacked(calibrate_each(calibrator, histograms, scheme), axis, (size, shape))


def channel_flags(
    weight: WeightValues, tensor: str, quant: QuantParams | None, scheme: QuantScheme
) -> Iterator[ScaleFlag]:
    """Yield a flag if a single scale for all channels degrades a channel that its own scale would preserve.

    Args:
        weight: The weight.
        tensor: Name of the tensor in the flag.
        quant: Quantization with the single scale, or None for a scale chosen from the whole range.
        scheme: The scheme of the channel's own scale.
    """
    if quant is not None and quant.scale.size > 1:
        return
    if not np.isfinite(weight.values).all():
        return
    quant = quant or choose_weight_scales(weight, MinMax(), scheme, Granularity(kind="tensor"))
    rows = np.moveaxis(weight.values, weight.channel_axis, 0)
    rows = rows.reshape(rows.shape[0], -1)
    worst_channel = _worst_channel(rows, quant)
    if worst_channel is None or not worst_channel[1] < CODES_MIN_SQNR:
        return
    channel, shared_sqnr, bad_count = worst_channel
    own_quant, _ = calibrate(MinMax(), histogram_of(rows[channel]), scheme)
    own_sqnr = _sqnr(rows[channel], own_quant)
    if not own_sqnr > shared_sqnr:
        return
    sentence = (
        f"with one scale for all channels, {bad_count} of {len(rows)} are below {CODES_MIN_SQNR:g} dB SQNR; channel "
        f"{channel} has {shared_sqnr:.1f} dB, and {own_sqnr:.1f} dB in its own scale"
    )
    yield ScaleFlag(
        kind="channel_range",
        tensor=tensor,
        node=weight.node.name,
        sentence=sentence,
        amount=shared_sqnr,
        limit=CODES_MIN_SQNR,
        unit="dB",
    )


def _worst_channel(rows: np.ndarray, quant: QuantParams) -> tuple[int, float, int] | None:
    """Return the channel with the lowest SQNR, its SQNR, and the number of bad channels, or None if all are 0."""
    levels = [_sqnr(row, quant) if row.any() else math.inf for row in rows]
    lowest_level = min(levels, default=math.inf)
    if math.isinf(lowest_level) and lowest_level > 0:
        return None
    return levels.index(lowest_level), lowest_level, sum(level < CODES_MIN_SQNR for level in levels)


def _sqnr(values: np.ndarray, quant: QuantParams) -> float:
    try:
        counter = QuantErrorCounter(quant)
    except UsageError:
        return math.inf  # a degenerate scale, which is reported elsewhere
    counter.add(values)
    return counter.error().sqnr_db


def granularity_of(quant: QuantParams | None, requested: Granularity | None) -> Granularity:
    """Return the requested granularity, or else the recorded one, or else one scale per channel."""
    if requested is not None:
        return requested
    if quant is None:
        return Granularity(kind="channel")
    if quant.block_size:
        return Granularity(kind="block", block_size=quant.block_size)
    return Granularity(kind="channel" if quant.scale.size > 1 else "tensor")
