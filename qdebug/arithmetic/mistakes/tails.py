"""Mistakes at the tail of a sum: the last vector of terms reads on into the memory behind a row.

A kernel takes terms in vectors of a few elements. If it does not set those beyond the last term to 0, they are the
first elements of the next row. See `tail_mistakes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.arithmetic.mistakes.windows import with_explicit_pads
from qdebug.model import Node, operators
from qdebug.model.operators import Sums
from qdebug.model.thresholds.patterns import KERNEL_BLOCKS

__all__ = ["tail_mistakes"]


def tail_mistakes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistakes in which sums go on behind the last term, up to a multiple of a kernel's vector.

    Args:
        node: The node's real form.
        values: Its inputs.
    """
    sums = operators.of(node.op).sums
    if sums is Sums.MATRIX:
        yield from _product_tails(node, values)
    elif sums is Sums.FILTER:
        yield from _filter_tails(node, values)
    else:
        yield from _row_tails(node, values)


def _excesses(count: int) -> list[int]:
    """Return how many elements the last vector may reach beyond a number of terms."""
    return sorted({-count % block for block in KERNEL_BLOCKS} - {0}) if count > 1 else []


def _text(excess: int, count: int, noun: str = "sum") -> str:
    elements = "element" if excess == 1 else "elements"
    return (
        f"each {noun} includes the {excess} {elements} behind its {count} terms in memory (a tail that is not set to 0)"
    )


def _behind_rows(rows: np.ndarray, excess: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an array with rows extended by the memory behind them, and a mask of the unknown elements.

    Args:
        rows: The array, as stored.
        excess: Number of elements that follow.
    """
    count = rows.shape[-1]
    offsets = np.arange(rows.size // count)[:, None] * count + np.arange(count + excess)
    memory = np.append(rows.reshape(-1), np.zeros(excess, rows.dtype))
    shape = (*rows.shape[:-1], count + excess)
    return memory[offsets].reshape(shape), (offsets >= rows.size).reshape(shape)


def _product_tails(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield matrix products in which both operands are read beyond the last term of a sum."""
    first, second = node.inputs[:2]
    if first == second or min(values[name].ndim for name in (first, second)) < len(("rows", "columns")):
        return
    first_axis = -2 if node.attrs.get("transA") else -1
    second_axis = -1 if node.attrs.get("transB") else -2
    count = values[first].shape[first_axis]
    for excess in _excesses(count):
        long_first = _longer(values[first], first_axis, excess, is_row_major=first_axis == -1)
        orders = {"": second_axis == -1, f", with {second!r} stored transposed": second_axis != -1}
        for text, is_row_major in orders.items():
            long_second = _longer(values[second], second_axis, excess, is_row_major=is_row_major)
            yield Mistake(
                likely=_text(excess, count) + text,
                node=node,
                values={first: long_first[0], second: long_second[0]},
                unread={first: long_first[1], second: long_second[1]},
                about="tail",
            )


def _longer(array: np.ndarray, axis: int, excess: int, *, is_row_major: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix extended by the memory behind its terms, and a mask of the unknown elements.

    Args:
        array: The operand.
        axis: The axis of the terms of a sum, -1 or -2.
        excess: Number of terms that follow.
        is_row_major: Whether the terms of a sum are adjacent in memory. If not, whole rows of terms follow.
    """
    if is_row_major:
        stored = np.ascontiguousarray(array if axis == -1 else array.swapaxes(-1, -2))
        parts = _behind_rows(stored, excess)
        return parts if axis == -1 else (parts[0].swapaxes(-1, -2), parts[1].swapaxes(-1, -2))
    rows = np.ascontiguousarray(array if axis == -2 else array.swapaxes(-1, -2))
    length, width = rows.shape[-2:]
    long, unknown = _behind_rows(rows.reshape(*rows.shape[:-2], length * width), excess * width)
    shape = (*rows.shape[:-2], length + excess, width)
    parts = long.reshape(shape), unknown.reshape(shape)
    return parts if axis == -2 else (parts[0].swapaxes(-1, -2), parts[1].swapaxes(-1, -2))


def _filter_tails(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield convolutions as products of patches, in which the tail of a patch and of a filter is the next one's."""
    explicit = with_explicit_pads(node, values) or node
    data, filters = (values[name] for name in node.inputs[:2])
    groups, auto_pad = node.attrs.get("group", 1), explicit.attrs.get("auto_pad", "NOTSET")
    if node.op != "Conv" or groups != 1 or auto_pad not in ("NOTSET", "VALID") or data.ndim != filters.ndim:
        return
    count = prod(filters.shape[1:])
    for excess in (each for each in _excesses(count) if each < count):
        for order, words in ((tuple(range(1, filters.ndim)), ""), ((*range(2, filters.ndim), 1), ", channels last")):
            if words and 1 in (filters.shape[1], prod(filters.shape[2:])):
                continue
            yield Mistake(
                likely=_text(excess, count) + words,
                node=node,
                values={},
                after=partial(_plus_tails, node=explicit, data=data, filters=filters, order=order, excess=excess),
                about="tail",
            )


def _plus_tails(
    result: np.ndarray, *, node: Node, data: np.ndarray, filters: np.ndarray, order: Sequence[int], excess: int
) -> np.ndarray:
    """Add the products of the first elements of the next patch and the next filter to a convolution."""
    axes = data.ndim - 2
    ones = (1,) * axes
    pads, strides, dilations = (
        [int(str(each)) for each in listed] if isinstance(listed := node.attrs.get(name), tuple) else list(default)
        for name, default in (("pads", ones * 2), ("strides", ones), ("dilations", ones))
    )
    if "pads" not in node.attrs:
        pads = [0] * (2 * axes)
    padded = np.pad(data, [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True)])
    extents = [filters.shape[axis] for axis in order]
    total = np.zeros((len(result), result.shape[1], prod(result.shape[2:])))
    for term in range(excess):
        tap = {axis: int(at) for axis, at in zip(order, np.unravel_index(term, extents), strict=True)}
        starts = [tap[axis + 2] * dilations[axis] for axis in range(axes)]
        spans = tuple(
            slice(start, start + (size - 1) * stride + 1, stride)
            for start, size, stride in zip(starts, result.shape[2:], strides, strict=True)
        )
        elements = padded[:, tap[1]][(slice(None), *spans)].reshape(-1)
        following = np.append(elements[1:], 0).reshape(len(result), -1)
        weights = filters.reshape(len(filters), -1)[
            :, np.ravel_multi_index([tap[axis] for axis in range(1, filters.ndim)], filters.shape[1:])
        ]
        total += following[:, None] * np.append(weights[1:], 0)[None, :, None]
    return np.asarray(result + total.reshape(result.shape), result.dtype)


def _row_tails(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield reductions and softmaxes over the last axes that include the first elements of the next row."""
    name = node.inputs[0] if node.inputs else ""
    data = values.get(name)
    if data is None or data.ndim < 2 or data.dtype.kind not in "fiu":
        return
    first_axis = _first_reduced_axis(node, values, data.ndim)
    if first_axis is None or not first_axis:
        return
    outer, count = data.shape[:first_axis], prod(data.shape[first_axis:])
    rows = np.ascontiguousarray(data).reshape(*outer, count)
    is_kept = node.op == "GlobalAveragePool" or node.attrs.get("keepdims", 1)
    shape = (*outer, *([1] * (data.ndim - first_axis) if is_kept else []))
    axes = {name: np.array([first_axis], values[name].dtype) for name in node.inputs[1:] if name}
    attrs = {**node.attrs, "axes": (first_axis,)} if "axes" in node.attrs else node.attrs
    noun = "sum" if operators.of(node.op).sums or node.op in _NORMALIZING else "result"
    for excess in _excesses(count):
        long, unknown = _behind_rows(rows, excess)
        yield Mistake(
            likely=_text(excess, count, noun),
            node=replace(node, attrs=attrs),
            values={name: long, **axes},
            unread={name: unknown},
            after=partial(
                _in_shape,
                shape=data.shape if node.op in _NORMALIZING else shape,
                factor=(count + excess) / count if node.op in _MEANS else 1.0,
            ),
            about="tail",
        )


def _in_shape(result: np.ndarray, *, shape: tuple[int, ...], factor: float) -> np.ndarray:
    """Return a scaled result in a shape, without the elements beyond the extent of the last axis."""
    part = result[..., : shape[-1]] if result.ndim == len(shape) and shape else result
    return np.asarray(part * factor, result.dtype).reshape(shape)


_MEANS = ("ReduceMean", "GlobalAveragePool")
_NORMALIZING = ("Softmax", "LogSoftmax")


def _first_reduced_axis(node: Node, values: Mapping[str, np.ndarray], rank: int) -> int | None:
    """Return the first of the axes that a node reduces if these are the last ones, or None."""
    if node.op == "GlobalAveragePool":
        return 2
    if node.op in _NORMALIZING:
        return rank - 1 if node.attrs.get("axis", -1) in (-1, rank - 1) else None
    if not operators.of(node.op).reduces or operators.of(node.op).picks_index:
        return None
    given = node.attrs.get("axes")
    stated = values[node.inputs[1]].reshape(-1).tolist() if len(node.inputs) > 1 and node.inputs[1] else given
    axes = sorted(int(str(axis)) % rank for axis in stated) if isinstance(stated, list | tuple) else []
    return axes[0] if axes and axes == list(range(axes[0], rank)) else None
