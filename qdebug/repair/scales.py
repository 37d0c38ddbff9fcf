"""Better scales for a quantized network: for results, weights, operands that share a scale, and successive weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from qdebug.compare.attribute.backend_replay import load_input
from qdebug.compare.attribute.code_spans import uniform_span
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Node, QuantParams, operators
from qdebug.model.dtypes import is_integer
from qdebug.model.operators import Sums
from qdebug.model.quant import is_same_scale
from qdebug.model.thresholds.scales import WIDE_CODES_HEADROOM
from qdebug.numerics.affine import dequantize, quantize
from qdebug.numerics.calibration import Calibrator, LeastSquares, MinMax, calibrate
from qdebug.numerics.range_histogram import RangeCounter
from qdebug.numerics.scheme import QuantScheme
from qdebug.repair.edited_replay import Change
from qdebug.repair.units import ChangeableNode, ChangeableNodes, Constants
from qdebug.replay.extents import recorded_limits
from qdebug.replay.real_form import real_form
from qdebug.replay.segment import run_segment
from qdebug.scales.choose import with_codes_of
from qdebug.scales.flags import coded_quant, joined_branches

__all__ = [
    "equalize_channels",
    "equalizing_factors",
    "fit_codes",
    "round_to_codes",
    "separate_scale",
    "weight_codes",
    "widen_codes",
]

_WIDE_BITS = 16
_TRIED_FACTORS = (2.0**-16, 2.0**16)
"""Factors used in trials on a node: powers of two, which do not change rounding, large enough to reach any bound."""


def fit_codes(values: Iterable[np.ndarray], quant: QuantParams) -> QuantParams | None:
    """Return the codes of a dtype whose range gives the least squared error on given values.

    Args:
        values: Real values of any shape, sample by sample.
        quant: The codes in use, with a single scale.

    Returns:
        Better codes, or None if these are the best already or no range fits the values.
    """
    codes = _choose_codes(LeastSquares(), values, quant)
    if codes is None or codes.has_same_codes(quant):
        return None
    return codes


def _choose_codes(calibrator: Calibrator, values: Iterable[np.ndarray], quant: QuantParams) -> QuantParams | None:
    counter = RangeCounter()
    for sample_values in values:
        counter.add(sample_values)
    scheme = with_codes_of(quant, QuantScheme(rule="onnxruntime"))
    if scheme.dtype != quant.dtype or quant.scale.size > 1:  # no scheme describes these codes
        return None
    if (quant.zero_point == scheme.middle).all():  # keep it there, since some backends support no other zero point
        scheme = replace(scheme, kind="symmetric")
    try:
        return calibrate(calibrator, counter.histogram(), scheme)[0]
    except UsageError:  # there are no values, or some have no code
        return None


def weight_codes(values: np.ndarray, axis: int | None, min_scale: np.ndarray | float = 0.0) -> QuantParams:
    """Return int8 codes of a weight, from -127 to 127 with zero point 0.

    Args:
        values: The weight.
        axis: The dimension along which there is a scale per index, or None for a single scale.
        min_scale: Minimum scale, for all or for each index.
    """
    other_axes = tuple(other_axis for other_axis in range(values.ndim) if other_axis != axis)
    scale = np.maximum(np.abs(values).max(axis=other_axes) / 127, min_scale).astype(np.float32)
    scale = np.where(scale == 0, np.float32(1), scale)
    zero = np.zeros(scale.shape, np.int8)
    return QuantParams(dtype="int8", scale=scale, zero_point=zero, axis=axis, qmin=-127)


def round_to_codes(values: np.ndarray, quant: QuantParams) -> np.ndarray:
    """Return values after quantizing and dequantizing, in float32."""
    return np.asarray(dequantize(quantize(values.astype(np.float32), quant), quant), np.float32)


def equalizing_factors(
    output_weight: np.ndarray, channel_axis: int, input_weight: np.ndarray, sum_axis: int
) -> np.ndarray | None:
    """Return the factors for the channels between two weights with which both get the same ranges.

    The first weight is divided by the factors, and the second one is multiplied by them.

    The formula is that of M. Nagel et al., "Data-Free Quantization through Weight Equalization and Bias Correction"
    (ICCV 2019), equation 11: s = sqrt(r1 * r2) / r2 with the largest magnitudes r1 and r2 of a channel.

    Args:
        output_weight: The weight that outputs the channels.
        channel_axis: Dimension of these channels in `output_weight`.
        input_weight: The weight that reads the channels.
        sum_axis: Dimension of these channels in `input_weight`.

    Returns:
        float32, one positive factor per channel, or None if the two have different numbers of channels.
    """
    if output_weight.shape[channel_axis] != input_weight.shape[sum_axis]:
        return None
    ranges = []
    for values, axis in ((output_weight, channel_axis), (input_weight, sum_axis)):
        other_axes = tuple(other_axis for other_axis in range(values.ndim) if other_axis != axis % values.ndim)
        ranges.append(np.abs(values).max(axis=other_axes).astype(np.float64))
    output_range, input_range = ranges
    # Both ranges become sqrt(output_range * input_range).
    is_usable = (output_range > 0) & (input_range > 0)  # all-zero channels allow any factor
    return np.where(is_usable, np.sqrt(output_range * input_range) / np.where(is_usable, input_range, 1), 1).astype(
        np.float32
    )


def widen_codes(values: Iterable[np.ndarray], quant: QuantParams) -> QuantParams | None:
    """Return 16-bit codes that cover, with a margin, the range of narrower codes and of given values.

    Args:
        values: Real values of any shape, sample by sample.
        quant: The codes in use.

    Returns:
        Codes with one scale, or None if the codes in use are not narrower or have several scales.
    """
    low, high = uniform_span(quant)
    if low is None or high is None or quant.qmin is None or quant.qmax is None:
        return None
    if not is_integer(quant.dtype) or quant.qmax - quant.qmin >= 2**_WIDE_BITS - 1:
        return None
    for sample_values in values:
        finite_values = sample_values[np.isfinite(sample_values)]
        if finite_values.size:
            low, high = min(low, float(finite_values.min())), max(high, float(finite_values.max()))
    low, high = low * WIDE_CODES_HEADROOM, high * WIDE_CODES_HEADROOM
    is_signed = not quant.dtype.startswith("u")
    is_centred = is_signed and not np.any(quant.zero_point)
    kind = "symmetric" if is_centred else "asymmetric"
    scheme = QuantScheme(kind=kind, bits=_WIDE_BITS, signed=is_signed, rule="onnxruntime")
    codes = scheme.parameters(low, high)
    return replace(codes, zero_point=codes.zero_point.astype(scheme.dtype))


def separate_scale(nodes: ChangeableNodes, unit: ChangeableNode) -> Change | None:
    """Return a change that gives a branch its own scale, and 16 bits to the tensor that joins the branches.

    Args:
        nodes: The nodes of the run.
        unit: The node of the branch.

    Returns:
        The change, or None if the branch does not share a scale with the join, or has the best one already.
    """
    quant = nodes.result_quant(unit)
    for node, shared_tensor, branches in joined_branches(nodes.run.graph) if quant is not None else ():
        join_unit, shared_quant = nodes.units.get(node.name), coded_quant(nodes.run.graph, shared_tensor)
        if join_unit is None or quant is None or shared_quant is None or shared_tensor not in join_unit.tensors:
            continue
        wide_quant, fitted_quant = (
            widen_codes(nodes.values(join_unit), shared_quant),
            fit_codes(nodes.values(unit), quant),
        )
        if unit.tensors.isdisjoint(branches) or not is_same_scale(quant.scale, shared_quant.scale):
            continue
        if wide_quant is not None and fitted_quant is not None:
            rounders = frozenset({unit.rounder, join_unit.node.name, join_unit.rounder})
            return Change(nodes=rounders, quants={unit.tensor: fitted_quant, join_unit.tensor: wide_quant})
    return None


def equalize_channels(
    nodes: ChangeableNodes, unit: ChangeableNode, weights: Constants
) -> tuple[Change, Mapping[tuple[str, str], QuantParams]] | None:
    """Return a change that rescales the channels between a product and the only product that reads it.

    Args:
        nodes: The nodes of the run.
        unit: The node that outputs the channels.
        weights: The reference's weight and bias for it.

    Returns:
        The change and the codes of both weights, or None if the node is not such a product, a weight has several
            scales, or a node in between does not commute with factors.
    """
    graph, next_unit = nodes.run.graph, nodes.units.get(next(iter(unit.readers), ""))
    reader_constants = (
        nodes.reference_constants(next_unit.node)
        if next_unit is not None and next_unit.node.name != unit.node.name
        else {}
    )
    quant, entry = nodes.result_quant(unit), nodes.entry(unit)
    if next_unit is None or not reader_constants or len(unit.readers) > 1 or quant is None or entry is None:
        return None
    product_nodes = [(node, real_form(node, graph.opset)[0]) for node in (unit.node, next_unit.node)]
    keys = [(node.name, nodes.weight(node)) for node, _ in product_nodes]
    output_axis, input_axis = (
        operators.output_axis(product_nodes[0][1]),
        _input_channel_axis(product_nodes[1][1], reader_constants[keys[1]]),
    )
    is_plain = unit.tensors == {unit.tensor} and entry.pair.reference_view is None
    is_plain = is_plain and len(weights) == 1 + bool(operators.titled_input(product_nodes[0][1], 2))
    if (
        output_axis is None
        or input_axis is None
        or not is_plain
        or not all(nodes.has_one_scale(name) for _, name in keys)
    ):
        return None
    first_weight, second_weight = weights[keys[0]], reader_constants[keys[1]]
    factors = equalizing_factors(
        first_weight, output_axis % first_weight.ndim, second_weight, input_axis % second_weight.ndim
    )
    if factors is None or not _commutes_with_factors(nodes, unit, weights):
        return None
    channel = 1 if output_axis >= 0 else -1
    scaled_quant = _choose_codes(
        MinMax(), (node / _reshape_along(factors, node.ndim, channel) for node in nodes.values(unit)), quant
    )
    if scaled_quant is None:
        return None
    # Dividing the outputs of the first product by the factors and multiplying the inputs of the second by them leaves
    # the network the same in real numbers. The bias is divided too.
    scaled_constants = {key: array / factors.reshape(array.shape) for key, array in weights.items() if key != keys[0]}
    scaled_constants.update(reader_constants)
    scaled_constants[keys[0]] = first_weight / _reshape_along(factors, first_weight.ndim, output_axis)
    scaled_constants[keys[1]] = second_weight * _reshape_along(factors, second_weight.ndim, input_axis)
    codes = {key: weight_codes(scaled_constants[key], None) for key in keys}
    constants = {
        key: round_to_codes(array, codes[key]) if key in codes else array for key, array in scaled_constants.items()
    }
    rounders = frozenset({unit.node.name, unit.rounder, next_unit.node.name})
    return Change(nodes=rounders, constants=constants, quants={unit.tensor: scaled_quant}), codes


def _reshape_along(factors: np.ndarray, dimensions: int, axis: int) -> np.ndarray:
    """Reshape factors to broadcast along one dimension."""
    shape = [1] * dimensions
    shape[axis] = -1
    return factors.reshape(shape)


def _input_channel_axis(real_node: Node, weight: np.ndarray) -> int | None:
    """Return the input channel dimension of a product's weight, or None if there is no single one."""
    sums, groups = operators.plain(real_node).sums, real_node.attrs.get("group", 1)
    if sums is Sums.MATRIX:
        return (-1 if real_node.attrs.get("transB") else -2) if weight.ndim == 2 else None
    if sums is Sums.SCATTER:
        return 0 if groups == 1 else None
    if sums is not Sums.FILTER:
        return None
    each_alone = groups == weight.shape[0] and weight.shape[1] == 1
    return 1 if groups == 1 else 0 if each_alone else None


def _commutes_with_factors(nodes: ChangeableNodes, unit: ChangeableNode, weights: Constants) -> bool:
    """Return whether scaling a node's weights just scales its result, through all nodes up to its codes, by trial."""
    graph, run, path = nodes.run.graph, nodes.run, [unit.node]
    low, high = nodes.float_span(unit)
    if not nodes.places or low not in (None, 0, -math.inf) or high not in (None, math.inf):
        return False
    while path[-1].name != unit.rounder:
        path.append(graph.consumers(path[-1].outputs[0])[0])
    if operators.of(path[-1].op).quantizes:
        path.pop()

    def run_scaled(factor: float) -> np.ndarray | None:
        def load(node: Node, name: str) -> np.ndarray:
            own_weight = weights.get((unit.node.name, name))
            return (
                load_input(run, nodes.places[0], node, name) if own_weight is None else own_weight * np.float32(factor)
            )

        return run_segment(path, path[-1].outputs[0], graph.opset, load)

    try:
        with recorded_limits(run, nodes.places[0]), np.errstate(all="ignore"):
            plain_output, *scaled_outputs = map(run_scaled, (1.0, *_TRIED_FACTORS))
    except (KernelError, NotRecordedError):
        return False
    return plain_output is not None and all(
        scaled_output is not None and np.array_equal(scaled_output, plain_output * np.float32(factor))
        for factor, scaled_output in zip(_TRIED_FACTORS, scaled_outputs, strict=True)
    )
