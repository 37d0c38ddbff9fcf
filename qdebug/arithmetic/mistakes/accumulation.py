"""Mistakes of sums in a short accumulator: terms are added one after another, and each partial sum is rounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from math import prod

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.model import Node, operators
from qdebug.model.operators import Sums
from qdebug.numerics.short_formats import SHORT_FORMATS, ShortFormat

__all__ = ["short_sums"]

_ACCUMULATORS = ("bfloat16", "float16")
_MEANS = ("ReduceMean", "GlobalAveragePool", "AveragePool")
"""Operators that divide each sum by the number of its terms."""
_MAX_ADDITIONS = 1 << 23
"""Maximum number of additions to carry out one by one."""


def short_sums(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which a product, a reduction, a pool, a softmax or a running sum accumulates in a short format.

    Args:
        node: The node's real form.
        values: Its inputs.
    """
    if operators.of(node.op).accumulates:
        yield from _short_running_sums(node, values)
    terms = _terms_of_sums(node, values)
    if terms is None:
        return
    count = len(terms)
    for short_format in (each for each in SHORT_FORMATS if each.name in _ACCUMULATORS):
        are_short = np.array_equal(terms, short_format.rounded(terms), equal_nan=True)
        for rounds_terms, clause in ((False, ""), (True, ", as are its terms"))[: 1 if are_short else 2]:
            sums = _sum_sequentially(terms, short_format, rounds_terms=rounds_terms)
            if node.op in _MEANS:
                sums = short_format.rounded(sums / np.float32(count))
            if node.op == "Softmax":
                sums = np.ascontiguousarray(np.moveaxis(terms / sums, 0, -1))
            yield Mistake(
                likely=f"its sums are accumulated in {short_format.name}, term by term{clause}",
                node=node,
                values={},
                after=partial(_sums_in_shape_of, sums=sums),
                about="accumulator",
                is_rounding=True,
            )


def _short_running_sums(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which each element of a cumulative sum is rounded before the next term is added."""
    data, axis = (values[name] for name in node.inputs[:2])
    if node.op != "CumSum" or data.dtype != np.float32 or axis.size != 1 or data.size > _MAX_ADDITIONS:
        return
    if node.attrs.get("exclusive") or node.attrs.get("reverse"):
        return
    terms = np.moveaxis(data, int(axis.reshape(-1)[0]), 0)
    for short_format in (each for each in SHORT_FORMATS if each.name in _ACCUMULATORS):
        total, sums = np.zeros(terms.shape[1:], np.float32), []
        for term in terms:
            total = short_format.rounded(total + term)
            sums.append(total)
        result = np.moveaxis(np.stack(sums), 0, int(axis.reshape(-1)[0]))
        likely = f"its sums are accumulated in {short_format.name}, term by term"
        yield Mistake(
            likely=likely,
            node=node,
            values={},
            after=partial(_sums_in_shape_of, sums=result),
            about="accumulator",
            is_rounding=True,
        )


def _sums_in_shape_of(result: np.ndarray, *, sums: np.ndarray) -> np.ndarray:
    return sums.reshape(result.shape) if sums.size == result.size else result


def _terms_of_sums(node: Node, values: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Return the terms of all sums, with the terms of a sum along axis 0.

    None if the operator is not supported, or there are too many terms.
    """
    names = [name for name in node.inputs if name]
    if not names or any(values[name].dtype != np.float32 for name in names[:1]):
        return None
    data = values[names[0]]
    if node.op == "Softmax" and node.attrs.get("axis", -1) in (-1, data.ndim - 1) and data.size <= _MAX_ADDITIONS:
        return np.moveaxis(np.asarray(np.exp(data - data.max(-1, keepdims=True))), -1, 0)
    if node.op in ("ReduceSum", "ReduceMean"):
        stated = values[names[1]].reshape(-1).tolist() if len(names) > 1 else node.attrs.get("axes")
        axes = tuple(int(axis) % data.ndim for axis in stated) if isinstance(stated, list | tuple) and stated else ()
        axes = axes or tuple(range(data.ndim))
        kept = [axis for axis in range(data.ndim) if axis not in axes]
        count = prod(data.shape[axis] for axis in axes)
        return (
            data.transpose(*sorted(axes), *kept).reshape(count, -1) if data.size <= _MAX_ADDITIONS and count else None
        )
    if node.op == "GlobalAveragePool" and data.ndim > 2:
        return np.moveaxis(data.reshape(*data.shape[:2], -1), -1, 0) if 0 < data.size <= _MAX_ADDITIONS else None
    if node.op == "AveragePool":
        return _terms_of_windows(node, data)
    if operators.of(node.op).sums is not Sums.MATRIX or len(names) != 2 or node.attrs.get("transA"):
        return None
    weight = values[names[1]].swapaxes(-1, -2) if node.attrs.get("transB") else values[names[1]]
    if min(data.ndim, weight.ndim) < 2 or weight.dtype != np.float32 or data.size * weight.shape[-1] > _MAX_ADDITIONS:
        return None
    if any(node.attrs.get(name, 1.0) != 1.0 for name in ("alpha", "beta")):
        return None
    return np.stack([data[..., :, at, None] * weight[..., None, at, :] for at in range(data.shape[-1])])


def _terms_of_windows(node: Node, data: np.ndarray) -> np.ndarray | None:
    """Return the elements of each window of an average pool, with those of a window along axis 0.

    None if windows may contain padding or gaps, or there are too many terms.
    """
    attrs, axes = node.attrs, tuple(range(2, data.ndim))
    extents = attrs.get("kernel_shape")
    strides = attrs.get("strides") or (1,) * len(axes)
    if not isinstance(extents, tuple) or not isinstance(strides, tuple) or len(extents) != len(axes):
        return None
    has_padding = np.any(attrs.get("pads") or 0) or attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    if has_padding or attrs.get("ceil_mode") or np.any(np.array(attrs.get("dilations") or 1) != 1):
        return None
    windows = np.lib.stride_tricks.sliding_window_view(data, tuple(map(int, extents)), axes)
    windows = windows[(slice(None), slice(None), *(slice(None, None, int(step)) for step in strides))]
    if windows.size > _MAX_ADDITIONS:
        return None
    return np.moveaxis(windows.reshape(*windows.shape[: data.ndim], -1), -1, 0)


def _sum_sequentially(terms: np.ndarray, short_format: ShortFormat, *, rounds_terms: bool) -> np.ndarray:
    """Add terms one after another along axis 0, and round after each addition."""
    total = np.zeros(terms.shape[1:], np.float32)
    with np.errstate(all="ignore"):
        for term in terms:
            total = short_format.rounded(total + (short_format.rounded(term) if rounds_terms else term))
    return total
