"""Operators that build tensors from attributes and shapes."""

from __future__ import annotations

from math import prod

import numpy as np

from qdebug.replay.extents import Cost
from qdebug.replay.precision import onnx_dtype
from qdebug.replay.registry import Call, kernel

__all__: list[str] = []


@kernel("Constant")
def _constant(call: Call) -> np.ndarray:
    """Return the value of the attribute `value`, `value_float(s)` or `value_int(s)`."""
    for name, dtype in (
        ("value", None),
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        if name in call.attrs:
            return np.asarray(call.attrs[name], dtype=dtype)
    raise ValueError(f"the attributes {sorted(call.attrs)} contain no value that can be replayed")


@kernel("ConstantOfShape", cost=lambda call: Cost(prod(call.extents(0))))
def _constant_of_shape(call: Call) -> np.ndarray:
    """Fill an array of a given shape with one value, float32 0 by default."""
    value = np.asarray(call.attrs.get("value", np.zeros(1, np.float32)))
    return np.full(call.extents(0), value.reshape(()), dtype=value.dtype)


@kernel("Shape")
def _shape(call: Call) -> np.ndarray:
    """Return the sizes of the axes from `start` to `end`."""
    x = call.array(0)
    end = call.integer("end") if "end" in call.attrs else None
    return np.array(x.shape[call.integer("start", 0) : end], dtype=np.int64)


@kernel("Size")
def _size(call: Call) -> np.ndarray:
    """Return the number of elements."""
    return np.array(call.array(0).size, dtype=np.int64)


def _count(call: Call) -> int:
    """Return the number of elements of a range."""
    start, limit, delta = (float(call.array(position).reshape(())) for position in range(3))
    return max(int(np.ceil((limit - start) / delta)), 0)


@kernel("Range", cost=lambda call: Cost(_count(call)), kinds=("iuf", "iuf", "iuf"))
def _range(call: Call) -> np.ndarray:
    """Count from start in steps of delta up to but excluding limit."""
    start, delta = call.array(0).reshape(()), call.array(2).reshape(())
    return np.asarray(start + np.arange(_count(call)).astype(start.dtype) * delta).astype(start.dtype)


@kernel("EyeLike")
def _eye_like(call: Call) -> np.ndarray:
    """Return a matrix of an input's shape with ones on diagonal k."""
    x = call.array(0)
    dtype = onnx_dtype(call.integer("dtype")) if "dtype" in call.attrs else x.dtype
    rows, columns = x.shape
    return np.eye(rows, columns, k=call.integer("k", 0)).astype(dtype)
