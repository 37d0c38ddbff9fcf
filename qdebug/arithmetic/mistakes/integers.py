"""Mistakes of arithmetic on integers: another width, saturation, or floats in their place. See `integer_mistakes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.model import Node, operators

__all__ = ["integer_mistakes"]

_FLOATS = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.float64))


def integer_mistakes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield results of integers that saturate or wrap around in fewer bits, or are computed as floats.

    Args:
        node: The node's real form.
        values: Its inputs.
    """
    row = operators.of(node.op)
    names = [name for name in dict.fromkeys(node.inputs) if name]
    data = [name for name in names if values[name].dtype.kind in "iu"]
    if not data or len(data) < len(names) or row.moves is not None or row.casts or row.rounds_nothing:
        return
    if not (row.elementwise or row.reduces or row.accumulates or row.sums):
        return
    dtype = values[data[0]].dtype
    for narrow in map(np.dtype, ("int8", "uint8", "int16", "uint16", "int32", "uint32")):
        if narrow.itemsize < dtype.itemsize:
            name = narrow.name
            yield _after(node, f"results beyond {name} saturate", partial(_saturated, dtype=narrow))
            yield _after(node, f"results are kept in {name} and wrap around", partial(_wrapped, dtype=narrow))
    if not (row.elementwise and len(data) > 1):
        return
    for short in _FLOATS:
        with np.errstate(all="ignore"):
            floats = {name: _in_float(values[name], short) for name in data}
        if short != np.float64 or any(np.any(floats[name] != values[name]) for name in data):
            yield Mistake(
                likely=f"integers are computed in {short.name}, which does not hold all their digits",
                node=node,
                values=floats,
                after=partial(_as_integers, short=short, dtype=dtype),
            )


def _after(node: Node, likely: str, change: Callable[[np.ndarray], np.ndarray]) -> Mistake:
    return Mistake(likely=likely, node=node, values={}, after=change, about=_WIDTH)


_WIDTH = "integer width"


def _in_float(array: np.ndarray, short: np.dtype) -> np.ndarray:
    return np.asarray(array.astype(short).astype(np.float64) if short == np.float16 else array.astype(short))


def _as_integers(result: np.ndarray, *, short: np.dtype, dtype: np.dtype) -> np.ndarray:
    """Round a result to a float format, truncate it, and return it as integers of a type."""
    with np.errstate(all="ignore"):
        return np.asarray(np.trunc(result.astype(short).astype(np.float64)).astype(dtype))


def _saturated(result: np.ndarray, *, dtype: np.dtype) -> np.ndarray:
    if result.dtype.kind not in "iu":
        return result
    ends = np.iinfo(dtype)
    lowest = max(ends.min, np.iinfo(result.dtype).min)
    return np.asarray(np.clip(result, lowest, ends.max).astype(result.dtype))


def _wrapped(result: np.ndarray, *, dtype: np.dtype) -> np.ndarray:
    return result.astype(dtype).astype(result.dtype) if result.dtype.kind in "iu" else result
