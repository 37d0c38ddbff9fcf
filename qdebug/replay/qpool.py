"""The heavy part of average pools and means: sums of integers or of real values over windows or axes."""

from __future__ import annotations

import numpy as np

from qdebug.replay.columns import Columns
from qdebug.replay.kernels.pool import counts, pool_window, window_sums
from qdebug.replay.registry import Call
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Sums

__all__ = ["averaged", "reduced"]


def averaged(unit: Unit, sums: Sums) -> Columns:
    """Sum over windows.

    The columns `sum` hold sums of centred codes, `raw` those of the codes themselves (what is padded counts as 0 in
    both, so that `raw` fits windows that leave padding out), `real` the averages of real values, summed in float32.
    `taps` are such averages too, but where padding counts, so does what a window covers beyond it: ONNX Runtime's
    QLinearAveragePool with ceil_mode.
    """
    operand = unit.operands[0]
    call = Call(inputs=(), attrs=unit.attrs, opset=unit.opset, op=unit.op)
    window = pool_window(call, operand.codes.shape[2:])
    include = bool(call.integer("count_include_pad"))
    count = counts(window, include_pad=include)
    if sums.columns == "taps" and include:
        count = np.full_like(count, np.prod(window.kernel))
    if sums.columns in ("real", "taps"):
        real = np.asarray(operand.centred.astype(np.float32) * operand.scale.astype(np.float32))
        value = np.asarray(window_sums(real, window) / count, dtype=np.float32)
    else:
        value = window_sums(_integers(unit, sums), window)
    return Columns(sums=sums, values=(value,), shape=value.shape, count=count)


def reduced(unit: Unit, sums: Sums) -> Columns:
    """Sum over axes: all of space for a global pool, the attribute's for a mean."""
    operand = unit.operands[0]
    shape = operand.codes.shape
    call = Call(inputs=(), attrs=unit.attrs)
    named = call.integers("axes")
    if unit.kind == "global_average_pool":
        named = tuple(range(2, len(shape)))
    axes = tuple(axis % len(shape) for axis in named) if named else tuple(range(len(shape)))
    keep = unit.kind == "global_average_pool" or bool(call.integer("keepdims", 1))
    number = int(np.prod([shape[axis] for axis in axes], dtype=np.int64))
    count = np.asarray(np.float32(number))
    if sums.columns == "real":
        real = np.asarray(operand.centred.astype(np.float32) * operand.scale.astype(np.float32))
        value = np.asarray(real.sum(axis=axes, keepdims=keep, dtype=np.float32) / np.float32(number))
    else:
        value = _integers(unit, sums).sum(axis=axes, keepdims=keep, dtype=np.int64)
    return Columns(sums=sums, values=(value,), shape=value.shape, count=count)


def _integers(unit: Unit, sums: Sums) -> np.ndarray:
    if sums.columns == "sum":
        return unit.operands[0].centred
    if sums.columns == "raw":
        return unit.operands[0].codes.astype(np.int32)
    raise ValueError(f"{unit.kind} has no columns {sums.columns!r}")
