"""Reductions over axes, and indices of minima and maxima."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qdebug.replay.blockwise import by_rows
from qdebug.replay.kernels.movement import axes_of
from qdebug.replay.precision import integer_limits, is_real, narrow, widen
from qdebug.replay.registry import Call, kernel
from qdebug.replay.within import normalize_axis

__all__: list[str] = []

_Axes = tuple[int, ...] | None


def _log_sum_exp(x: np.ndarray, axes: _Axes) -> np.ndarray:
    peak = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(peak), peak, 0).astype(x.dtype)
    return np.asarray(np.log(np.sum(np.exp(x - shift), axis=axes, keepdims=True)) + shift)


def _extreme(x: np.ndarray, axes: _Axes, *, largest: bool) -> np.ndarray:
    """Reduce to the minimum or maximum. An empty reduction gives the opposite end of the dtype's range."""
    if x.dtype == np.bool_:
        return np.asarray((np.any if largest else np.all)(x, axis=axes, keepdims=True))
    low, high = (-np.inf, np.inf) if is_real(x.dtype) else integer_limits(x.dtype)
    if largest:
        return np.asarray(np.max(x, axis=axes, keepdims=True, initial=low))
    return np.asarray(np.min(x, axis=axes, keepdims=True, initial=high))


_REDUCTIONS: dict[str, Callable[[np.ndarray, _Axes], np.ndarray]] = {
    "ReduceSum": lambda x, a: np.sum(x, axis=a, keepdims=True, dtype=x.dtype),
    "ReduceMean": lambda x, a: np.mean(x, axis=a, keepdims=True),
    "ReduceProd": lambda x, a: np.prod(x, axis=a, keepdims=True, dtype=x.dtype),
    "ReduceMax": lambda x, a: _extreme(x, a, largest=True),
    "ReduceMin": lambda x, a: _extreme(x, a, largest=False),
    "ReduceL1": lambda x, a: np.sum(np.abs(x), axis=a, keepdims=True, dtype=x.dtype),
    "ReduceL2": lambda x, a: np.sqrt(np.sum(x * x, axis=a, keepdims=True)),
    "ReduceSumSquare": lambda x, a: np.sum(x * x, axis=a, keepdims=True, dtype=x.dtype),
    "ReduceLogSum": lambda x, a: np.log(np.sum(x, axis=a, keepdims=True)),
    "ReduceLogSumExp": _log_sum_exp,
}


def _first_trailing_axis(ndim: int, axes: _Axes) -> int:
    """Return the first of the reduced axes if they are an array's last axes, else 0."""
    sorted_axes = sorted({axis % ndim for axis in axes}) if axes and ndim else []
    return sorted_axes[0] if sorted_axes and sorted_axes == list(range(sorted_axes[0], ndim)) else 0


@kernel(*_REDUCTIONS)
def _reduce(call: Call) -> np.ndarray:
    """Reduce over axes, by default all of them (or none with noop_with_empty_axes)."""
    x = call.array(0)
    axes = axes_of(call, 1, since=13 if call.op == "ReduceSum" else 18)
    if not axes:
        if call.integer("noop_with_empty_axes"):
            # No axis is reduced, but the elementwise function still applies.
            axes = ()
            if call.op in ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin"):
                return x
        else:
            axes = None
    wide = widen(x)
    first = _first_trailing_axis(x.ndim, axes)
    (out,) = by_rows(lambda part: (np.asarray(_REDUCTIONS[call.op](part, axes)),), wide, first)
    if not call.integer("keepdims", 1):
        kept_axes = [axis for axis in range(x.ndim) if axes is not None and axis not in {a % x.ndim for a in axes}]
        out = out.reshape([x.shape[axis] for axis in kept_axes])
    return narrow(np.asarray(out), x.dtype)


kernel("ReduceLogSumExp", kinds=("iuf",))(_reduce)


@kernel("ArgMax", "ArgMin")
def _arg_extreme(call: Call) -> np.ndarray:
    """Return the index of the minimum or maximum along an axis: the first one, or the last one if requested."""
    x, axis = widen(call.array(0)), call.integer("axis", 0)
    find = np.argmax if call.op == "ArgMax" else np.argmin
    keep = bool(call.integer("keepdims", 1))
    if call.integer("select_last_index"):
        last = x.shape[normalize_axis(axis, x.ndim)] - 1
        return np.asarray(last - find(np.flip(x, axis), axis=axis, keepdims=keep), dtype=np.int64)
    return np.asarray(find(x, axis=axis, keepdims=keep), dtype=np.int64)
