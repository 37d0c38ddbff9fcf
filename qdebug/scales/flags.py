"""Flag problems of recorded scales: of single scales, and around nodes.

Overflow of sums is computed for the worst input within the code range of the data, from the codes of the weight alone.
In a sentence, "can" therefore means that some input causes an overflow, not that a recorded input did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.arithmetic.units import Units, UnitSource
from qdebug.errors import QdebugError
from qdebug.model import Graph, Node, QuantParams, Recording, operators
from qdebug.model.dtypes import is_integer, logical_name
from qdebug.model.json_object import JsonObject
from qdebug.model.thresholds.checks import SCALE_MAX_REL_DIFFERENCE
from qdebug.model.thresholds.explanation import BIAS_SCALE_MAX_REL_DIFFERENCE
from qdebug.model.thresholds.scales import BIAS_STEP_MAX_OUTPUT_STEPS, CLIPPED_MAX_SHARE, USED_CODES_MIN_SHARE
from qdebug.numerics.quant_error import QuantError
from qdebug.numerics.range_histogram import RangeHistogram
from qdebug.replay.unit import Unit

__all__ = ["ScaleFlag", "coded_quant", "joined_branches", "node_flags", "quant_flags", "scale_difference"]

_INT32_END = 2**31
_INT16_END = 2**15


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleFlag(JsonObject):
    """A problem with a scale.

    Args:
        kind: "degenerate", "zero_point", "too_coarse", "too_fine", "mismatched", "bias_scale", "bias_precision",
            "accumulator", "pairs_16", "shared_range", "channel_range" or "unchecked".
        tensor: The tensor of the scale, or the node's result.
        node: The node, or "" if none is concerned.
        sentence: The finding, its size, and the limit.
        amount: Size of the problem, or None if not meaningful.
        limit: The limit, in the same unit.
        unit: Unit of amount and limit.
    """

    kind: str
    tensor: str
    node: str = ""
    sentence: str
    amount: float | None = None
    limit: float | None = None
    unit: str = ""


def coded_quant(graph: Graph, tensor: str) -> QuantParams | None:
    """Return the quantization of an integer-quantized tensor, or None for others."""
    info = graph.tensors.get(tensor)
    if info is None or info.quant is None or not is_integer(info.quant.dtype):
        return None
    return info.quant


def quant_flags(
    tensor: str,
    node: str,
    quant: QuantParams,
    histogram: RangeHistogram | None = None,
    error: QuantError | None = None,
) -> Iterator[ScaleFlag]:
    """Yield the problems with the scale of one tensor.

    Args:
        tensor: The tensor.
        node: The node that computes it.
        quant: Quantization of the tensor.
        histogram: Real values of the tensor, or None if unknown.
        error: The loss of quantizing these values, or None if unknown.
    """
    invalid_scales = quant.scale[~(np.isfinite(quant.scale) & (quant.scale > 0))]
    if invalid_scales.size:
        sentence = f"its scale is {invalid_scales.reshape(-1)[0]:g}, which cannot represent values"
        yield ScaleFlag(kind="degenerate", tensor=tensor, node=node, sentence=sentence)
        return
    if quant.qmin is None or quant.qmax is None:
        return
    invalid_zero_points = quant.zero_point[(quant.zero_point < quant.qmin) | (quant.zero_point > quant.qmax)]
    if invalid_zero_points.size:
        sentence = (
            f"its zero point {invalid_zero_points.reshape(-1)[0]} is outside {quant.qmin}..{quant.qmax}, so no code "
            "represents 0"
        )
        yield ScaleFlag(kind="zero_point", tensor=tensor, node=node, sentence=sentence)
    if quant.scale.size > 1 or histogram is None or not histogram.total:
        return
    levels = quant.qmax - quant.qmin + 1
    low, high = min(histogram.low, 0.0), max(histogram.high, 0.0)
    used_share = (high - low) / float(quant.scale.reshape(-1)[0]) / levels
    if used_share < USED_CODES_MIN_SHARE:
        sentence = (
            "all values are 0"
            if not used_share
            else (
                f"the values span {used_share:.2%} of its codes, less than {USED_CODES_MIN_SHARE:.2%}; the "
                "scale is too coarse"
            )
        )
        kind = "too_coarse" if used_share else "degenerate"
        yield ScaleFlag(
            kind=kind,
            tensor=tensor,
            node=node,
            sentence=sentence,
            amount=used_share,
            limit=USED_CODES_MIN_SHARE,
            unit="of codes",
        )
    if error is not None and error.clipped > CLIPPED_MAX_SHARE:
        sentence = (
            f"{error.clipped:.2%} of the values are clipped, more than {CLIPPED_MAX_SHARE:.0%}; the scale is too fine"
        )
        yield ScaleFlag(
            kind="too_fine",
            tensor=tensor,
            node=node,
            sentence=sentence,
            amount=error.clipped,
            limit=CLIPPED_MAX_SHARE,
            unit="of values",
        )


def scale_difference(quant: QuantParams, reference_quant: QuantParams) -> float | None:
    """Return the largest relative difference between two scales, or None if their shapes differ."""
    if quant.scale.shape != reference_quant.scale.shape:
        return None
    with np.errstate(all="ignore"):
        difference = np.abs(quant.scale.astype(np.float64) - reference_quant.scale) / np.abs(reference_quant.scale)
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0))


def node_flags(recording: Recording) -> Iterator[ScaleFlag]:
    """Yield the problems with scales around the nodes of a quantized recording.

    Args:
        recording: The recording, with its constants, which are needed for sums.
    """
    graph, units, cpu_flags = recording.graph, Units(recording), recording.info.cpu_flags
    saturates = "avx2" in cpu_flags and not any("vnni" in flag for flag in cpu_flags)
    for node in graph.nodes:
        yield from _move_flags(graph, node)
        yield from _stated_bias_flags(graph, node)
        tensor = next((name for name in node.outputs if name), "")
        if not tensor or not _sums_codes(graph, node, tensor):
            continue
        unit = _unit_or_reason(units, node, tensor)
        if unit is None:
            continue
        if isinstance(unit, str):
            if operators.plain(node).product:
                yield ScaleFlag(kind="unchecked", tensor=tensor, node=node.name, sentence=f"not checked: {unit}")
            continue
        if unit.kind in ("conv", "linear"):
            yield from _bias_flags(unit, tensor, node.name, is_stated=operators.of(node.op).quantizes)
            yield from _sum_flags(unit, tensor, node.name, saturates=saturates)


def _sums_codes(graph: Graph, node: Node, tensor: str) -> bool:
    return operators.plain(node).product or coded_quant(graph, tensor) is not None


def _unit_or_reason(units: Units, node: Node, tensor: str) -> Unit | str | None:
    """Return the unit of a node that computes on codes, or the reason why it is unknown; None for all other nodes."""
    if not units.quantized(node, tensor):
        return None
    missing_reason = units.missing(node, tensor)
    if missing_reason is not None:
        return missing_reason
    try:
        source = units.find(node, tensor)
        return source.unit(source.places[0]) if isinstance(source, UnitSource) else source
    except QdebugError as error:
        return error.message


def _move_flags(graph: Graph, node: Node) -> Iterator[ScaleFlag]:
    """Flag a node that only moves or selects codes but changes their scale."""
    row = operators.plain(node)
    if not (row.moves or row.selects) or row.joins or not node.inputs or not node.outputs or row.keeps_values:
        return
    before, after = coded_quant(graph, node.inputs[0]), coded_quant(graph, node.outputs[0])
    if before is None or after is None:
        return
    difference = scale_difference(after, before)
    if difference is None or (
        difference <= SCALE_MAX_REL_DIFFERENCE and np.array_equal(before.zero_point, after.zero_point)
    ):
        return
    sentence = (
        f"{node.op} only moves values, but its scale changes to {after.scale.reshape(-1)[0]:.6g} from "
        f"{before.scale.reshape(-1)[0]:.6g}, its zero point to {after.zero_point.reshape(-1)[0]} from "
        f"{before.zero_point.reshape(-1)[0]}; the values are rounded again, or misread"
    )
    yield ScaleFlag(
        kind="mismatched",
        tensor=node.outputs[0],
        node=node.name,
        sentence=sentence,
        amount=difference,
        limit=SCALE_MAX_REL_DIFFERENCE,
        unit="relative difference",
    )


def _sum_scale(unit: Unit) -> np.ndarray:
    """Return the scale of the sums: a single one, or one per output channel."""
    x, weight = unit.operands
    return np.asarray(x.scale.astype(np.float64).reshape(-1)[0] * weight.scale.astype(np.float64).reshape(-1))


def _bias_flags(unit: Unit, tensor: str, node: str, *, is_stated: bool) -> Iterator[ScaleFlag]:
    """Flag a bias at another scale than the sums, unless `is_stated`, and a bias that is too coarse for the output."""
    if unit.bias is None:
        return
    sums = _sum_scale(unit)
    step = sums
    if unit.bias_scale is not None:
        step = unit.bias_scale.astype(np.float64).reshape(-1)
        if not is_stated:
            yield from _bias_scale_flags(tensor, node, step, sums)
    if unit.bias.dtype.kind not in "iu":
        return
    with np.errstate(all="ignore"):
        output_steps = float((step / unit.out.scale.astype(np.float64).reshape(-1)[0]).max())
    if output_steps > BIAS_STEP_MAX_OUTPUT_STEPS and unit.out.dtype.kind in "iuV":
        sentence = (
            f"one code of its bias is worth {output_steps:.3g} LSB of the output; rounding it moves the output "
            "by up to half of that"
        )
        yield ScaleFlag(
            kind="bias_precision",
            tensor=tensor,
            node=node,
            sentence=sentence,
            amount=output_steps,
            limit=BIAS_STEP_MAX_OUTPUT_STEPS,
            unit="steps",
        )


def _stated_bias_flags(graph: Graph, node: Node) -> Iterator[ScaleFlag]:
    """Flag a product of dequantized codes whose bias is dequantized at another scale than that of the sums."""
    bias_slot = operators.of(node.op).bias
    if not operators.plain(node).product or bias_slot is None or bias_slot >= len(node.inputs):
        return
    sources = [_codes_before_dequantize(graph, node.inputs[slot]) for slot in (0, 1, bias_slot)]
    data, weight, bias = (coded_quant(graph, name) for name in sources)
    if sources[2] == node.inputs[bias_slot] or data is None or weight is None or bias is None or data.scale.size > 1:
        return
    sums = data.scale.astype(np.float64).reshape(-1) * weight.scale.astype(np.float64).reshape(-1)
    if sums.size not in (1, bias.scale.size) and bias.scale.size != 1:
        return
    yield from _bias_scale_flags(node.outputs[0], node.name, bias.scale.astype(np.float64).reshape(-1), sums)


def _bias_scale_flags(tensor: str, node: str, steps: np.ndarray, sums: np.ndarray) -> Iterator[ScaleFlag]:
    """Flag a bias whose scale is not that of the sums, and name the channel where they differ most."""
    with np.errstate(all="ignore"):
        differences = np.nan_to_num(np.abs(steps - sums) / sums, nan=np.inf)
    channel = int(differences.argmax())
    if not differences[channel] > BIAS_SCALE_MAX_REL_DIFFERENCE:
        return
    step, sum_scale = (float(scales[channel if scales.size > 1 else 0]) for scales in (steps, sums))
    channel_text = f" in channel {channel}" if sums.size > 1 else ""
    shared_text = " for all channels" if sums.size > steps.size else ""
    sentence = (
        f"the scale of its bias is {step:.6g}{shared_text}, but input scale x weight scale is "
        f"{sum_scale:.6g}{channel_text}; most integer kernels add the codes of a bias to the accumulator without "
        "rescaling"
    )
    yield ScaleFlag(
        kind="bias_scale",
        tensor=tensor,
        node=node,
        sentence=sentence,
        amount=float(differences[channel]),
        limit=BIAS_SCALE_MAX_REL_DIFFERENCE,
        unit="relative difference",
    )


def _terms_by_output(unit: Unit) -> np.ndarray:
    """Return the weight's codes with a row per output channel: its terms, by kernel position and then input channel.

    This is the order in which integer kernels sum them.
    """
    codes = unit.operands[1].codes.astype(np.int64)
    if unit.kind == "linear":
        return np.moveaxis(codes, -2, -1).reshape(-1, codes.shape[-2])
    if unit.transposed:
        codes = np.moveaxis(codes, 0, 1)
    return np.moveaxis(codes, 1, -1).reshape(codes.shape[0], -1)


def _code_range(unit: Unit) -> tuple[int, int]:
    """Return the range of the data's codes. For 4 bits, it covers signed and unsigned codes."""
    info = np.iinfo(unit.operands[0].codes.dtype) if unit.operands[0].codes.dtype.kind in "iu" else None
    return (int(info.min), int(info.max)) if info is not None else (-8, 15)


def _sum_flags(unit: Unit, tensor: str, node: str, *, saturates: bool) -> Iterator[ScaleFlag]:
    """Flag sums that can overflow int32 for some input and, with `saturates`, pairs of products that exceed int16."""
    x, weight = unit.operands
    rows, (lowest_code, highest_code) = _terms_by_output(unit), _code_range(unit)
    zero_x = int(x.zero_point.reshape(-1)[0])
    zeros = weight.zero_point.astype(np.int64).reshape(-1)
    centred_codes = rows - (zeros[:, np.newaxis] if zeros.size == len(rows) else zeros[0])
    # A term is extreme at one end of the input codes; which end depends on the sign of the weight.
    highest_sums = np.maximum(centred_codes * (lowest_code - zero_x), centred_codes * (highest_code - zero_x)).sum(
        axis=1
    )
    lowest_sums = np.minimum(centred_codes * (lowest_code - zero_x), centred_codes * (highest_code - zero_x)).sum(
        axis=1
    )
    bias = np.zeros(1, np.int64)
    if unit.bias is not None and unit.bias.dtype.kind in "iu" and unit.bias_scale is None:
        bias = unit.bias.astype(np.int64).reshape(-1)
    bias = bias if bias.size in (1, len(rows)) else np.array([np.abs(bias).max()])
    largest_sum = int(np.maximum(np.abs(highest_sums + bias), np.abs(lowest_sums + bias)).max(initial=0))
    if largest_sum >= _INT32_END:
        sentence = (
            f"its sums can reach {largest_sum:.4g} with its bias, beyond int32 ({_INT32_END:.4g}), and then wrap around"
        )
        yield ScaleFlag(
            kind="accumulator",
            tensor=tensor,
            node=node,
            sentence=sentence,
            amount=float(largest_sum),
            limit=_INT32_END,
            unit="codes",
        )
    if saturates:
        yield from _pair_flags(unit, rows, tensor, node)


def _pair_flags(unit: Unit, rows: np.ndarray, tensor: str, node: str) -> Iterator[ScaleFlag]:
    """Flag sums of two products of uint8 and int8 codes beyond int16, which saturate on AVX2 without VNNI."""
    if [logical_name(operand.codes.dtype) for operand in unit.operands] != ["uint8", "int8"]:
        return
    padded_rows = np.pad(rows, ((0, 0), (0, rows.shape[1] % 2)))
    sides = [np.where(sign * padded_rows > 0, sign * padded_rows, 0) for sign in (1, -1)]
    sums = [255 * (side[:, ::2] + side[:, 1::2]) for side in sides]
    exceeds_int16 = (sums[0] >= _INT16_END) | (sums[1] > _INT16_END)
    count = int(np.count_nonzero(exceeds_int16))
    if count:
        sentence = (
            f"{count} of {exceeds_int16.size} sums of two products can exceed 16 bits; they saturate on processors "
            "with AVX2 "
            "but without VNNI; weights of 7 bits avoid this"
        )
        yield ScaleFlag(
            kind="pairs_16", tensor=tensor, node=node, sentence=sentence, amount=float(count), limit=0.0, unit="pairs"
        )


def joined_branches(graph: Graph) -> Iterator[tuple[Node, str, Sequence[str]]]:
    """Yield nodes whose branches share a scale: nodes that join tensors, and sums whose operands have the same scale.

    Args:
        graph: A quantized graph.

    Yields:
        The node, the tensor of the shared scale, and the branches.
    """
    for node in graph.nodes:
        row = operators.plain(node)
        if not (row.joins or row.adds) or not node.outputs:
            continue
        positions = operators.coded_inputs(node.op, len(node.inputs)) or range(len(node.inputs))
        branches = [
            _codes_before_dequantize(graph, node.inputs[position])
            for position in positions
            if position < len(node.inputs) and node.inputs[position]
        ]
        branches = [name for name in branches if not graph.is_constant(name)]
        if len(set(branches)) < 2:
            continue
        quants, result = [coded_quant(graph, name) for name in branches], _codes_after_quantize(graph, node.outputs[0])
        if row.joins and coded_quant(graph, result) is not None:
            yield node, result, branches
        elif row.adds and quants[0] is not None and all(quant == quants[0] for quant in quants):
            yield node, branches[0], branches


def _codes_before_dequantize(graph: Graph, tensor: str) -> str:
    """Return the codes that a tensor is dequantized from, or the tensor itself if it is not dequantized."""
    producer = graph.producer(tensor)
    is_dequantized = (
        producer is not None and operators.of(producer.op).dequantizes and coded_quant(graph, tensor) is None
    )
    return producer.inputs[0] if producer is not None and is_dequantized else tensor


def _codes_after_quantize(graph: Graph, tensor: str) -> str:
    """Return the codes that a tensor is quantized to, or the tensor itself if it is not quantized."""
    if coded_quant(graph, tensor) is not None:
        return tensor
    return next((node.outputs[0] for node in graph.consumers(tensor) if operators.of(node.op).quantizes), tensor)
