"""The effect of number formats on values: too few digits, or too small a range."""

from __future__ import annotations

import numpy as np

from qdebug.compare.evidence.measured_tensor import MeasuredTensor
from qdebug.errors import NotRecordedError
from qdebug.model import Node, QuantParams, Recording, operators
from qdebug.numerics.affine import BLOCK, dequantize
from qdebug.numerics.grid import grid_of
from qdebug.numerics.short_formats import SHORT_FORMATS, format_of, is_exact_in

__all__ = ["float32_overflow", "overflow", "short_format"]


def short_format(measured: MeasuredTensor) -> str | None:
    """Return the name of a format that all values of the backend's tensor fit but not all of the reference's.

    None if there is no such format or the values may simply be whole numbers or multiples of one number.
    """
    stats, attribution, entry, runs = measured.stats, measured.attribution, measured.entry, measured._runs
    if stats is None or attribution is None or not stats.mismatches or measured.comparison.basis != "full":
        return None
    known, is_replayed = attribution.short_format, attribution.arithmetic_unsaturated is not None
    if measured._holds_codes or entry.whole or (is_replayed and known is None):
        return None
    sides, names, places = (runs.reference, runs.backend), (entry.reference_tensor, entry.tensor), measured._places
    try:
        if known is None:
            formats = {format_of(sides[1].load(names[1], *place)) for place in places}
            short = formats.pop() if len(formats) == 1 else None
        else:
            short = next((candidate for candidate in SHORT_FORMATS if candidate.name == known), None)
        if short is None and known is not None:  # `known` is a grid of codes
            return known if any(grid_of(sides[0].load(names[0], *place)) is None for place in places) else None
        if short is None or all(is_exact_in(sides[0].load(names[0], *place), short) for place in places):
            return None
    except NotRecordedError:
        return None
    return short.name


def overflow(measured: MeasuredTensor) -> tuple[str, str] | None:
    """Return a tensor of either run that holds a code whose value overflows float32, and a clause on the code."""
    sample, runs, entry = measured._worst_sample, measured._runs, measured.entry
    clause = float32_overflow(runs.backend, measured.node, entry.tensor, sample)
    if clause is not None:
        return entry.tensor, clause
    clause = float32_overflow(runs.reference, measured.reference_node, entry.reference_tensor, sample)
    return None if clause is None else (entry.reference_tensor, f"in the reference, {clause}")


_FLOAT32_MAX = float(np.finfo(np.float32).max)
_PRECISIONS = (3, 6, 9, 17)


def float32_overflow(recording: Recording, node: Node | None, tensor: str, sample: int) -> str | None:
    """Return a clause about a code of a tensor whose finite value overflows float32 in a sample, or None.

    For the result of a DequantizeLinear, the codes that the node reads are checked as well.
    """
    is_dequantized = node is not None and operators.of(node.op).dequantizes
    codes = node.inputs[0] if node is not None and is_dequantized and node.inputs else tensor
    for name in dict.fromkeys((tensor, codes)):
        info = recording.graph.tensors.get(name)
        if info is None or info.quant is None or not _can_exceed_float32(info.quant):
            continue
        for at, step in recording.places(name):
            if (at == sample or recording.graph.is_constant(name)) and recording.has(name, sample, step):
                clause = _overflow_clause(recording.load(name, sample, step), info.quant)
                if clause is not None:
                    return clause if name == tensor else f"{clause}, in {name!r}"
    return None


def _can_exceed_float32(quant: QuantParams) -> bool:
    """Return whether any code could exceed the range of float32."""
    if quant.qmin is None or quant.qmax is None:
        return False
    zeros = np.asarray(quant.zero_point, np.float64)
    reach = np.maximum(np.abs(quant.qmin - zeros), np.abs(quant.qmax - zeros)) * np.asarray(quant.scale, np.float64)
    return bool(np.any(reach > _FLOAT32_MAX))


def _overflow_clause(codes: np.ndarray, quant: QuantParams) -> str | None:
    """Return a clause with the value of the first code that exceeds the range of float32, or None."""
    scales = quant.scale.ravel()
    if scales.size == 1:
        flat = codes.reshape(-1)
        scale, zero = float(scales[0]), int(quant.zero_point.ravel()[0])
        for start in range(0, flat.size, BLOCK):
            over = np.isinf(dequantize(flat[start : start + BLOCK], quant))
            if over.any():
                code = int(flat[start + int(over.argmax())])
                return _describe_overflow(code, scale, zero)
        return None
    over = np.isinf(dequantize(codes, quant))
    if not over.any():
        return None
    at = np.unravel_index(int(over.argmax()), over.shape)
    if quant.axis is None or quant.block_size:
        return f"code {int(codes[at])} dequantizes to a value beyond the float32 range"
    channel = at[quant.axis]
    zeros = np.broadcast_to(quant.zero_point.ravel(), scales.shape)
    return _describe_overflow(int(codes[at]), float(scales[channel]), int(zeros[channel]))


def _describe_overflow(code: int, scale: float, zero: int) -> str:
    real = scale * (code - zero)
    beyond = -_FLOAT32_MAX if real < 0 else _FLOAT32_MAX
    digits = next((digits for digits in _PRECISIONS if f"{real:.{digits}g}" != f"{beyond:.{digits}g}"), _PRECISIONS[-1])
    about = f" (zero point {zero})" if zero else ""
    return (
        f"code {code} at scale {scale:.{max(digits, 4)}g}{about} dequantizes to {real:.{digits}g}, "
        f"beyond the float32 limit of {beyond:.{digits}g}"
    )
