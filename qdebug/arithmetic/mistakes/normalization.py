"""Known mistakes of kernels that normalize data by its own statistics. Begin at `normalization_mistakes`.

They are based on public bug reports, like those in `qdebug.arithmetic.mistakes.known`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

import numpy as np

from qdebug.arithmetic.mistakes.lanes import empty_lanes
from qdebug.arithmetic.mistakes.layers import scale_and_bias_slots
from qdebug.arithmetic.mistakes.mistake import Mistake, always
from qdebug.model import Node, operators
from qdebug.model.thresholds.patterns import KERNEL_BLOCKS
from qdebug.model.thresholds.rounding import ROUNDING_SUM_FACTOR
from qdebug.numerics.short_formats import SHORT_FORMATS, SINGLE

__all__ = ["cancelled_variance", "normalization_mistakes", "other_windows"]


def normalization_mistakes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which a node normalizes by wrong statistics, or groups channels differently.

    Args:
        node: The node's real form.
        values: Its inputs.
    """
    data = values.get(node.inputs[0]) if node.inputs else None
    if data is None or scale_and_bias_slots(node) is None or len(node.inputs) < 2 or data.dtype.kind != "f":
        return
    shape_and_axes, epsilon = _statistics_shape(node, data.astype(np.float64)), node.attrs.get("epsilon", 1e-5)
    if shape_and_axes is not None and isinstance(epsilon, int | float):
        shaped, axes = shape_and_axes
        is_centered = operators.plain(node).name != "RMSNormalization"
        for likely, normalized in (
            *_wrong_statistics(shaped, axes, epsilon, is_centered=is_centered),
            *_statistics_along_other_axes(
                data.astype(np.float64), shaped.ndim - data.ndim, axes, epsilon, is_centered=is_centered
            ),
        ):
            result = _scaled_and_biased(node, values, normalized.reshape(data.shape))
            yield Mistake(likely=likely, node=node, values={}, after=always(result))
        if is_centered:
            yield from _bias_before_scale(node, values, shaped, axes, epsilon)
            yield from _statistics_of_part(node, values, shaped, axes, epsilon)
            yield from _variances_of_blocks(node, values, shaped, axes, epsilon)
            yield from _statistics_of_other_rows(node, values, shaped, axes, epsilon)
            yield from _statistics_with_next_row(node, values, shaped, axes, epsilon)
            yield from _statistics_of_channels_last_memory(node, values, shaped, epsilon)
    groups = node.attrs.get("num_groups")
    if node.op == "GroupNormalization" and isinstance(groups, int) and 1 < groups < data.shape[1]:
        order = np.arange(data.shape[1]).reshape(-1, groups).T.reshape(-1)
        inverse_order, reordered_values = np.argsort(order), {node.inputs[0]: data[:, order]}
        reordered_values |= {
            name: values[name][order] for name in node.inputs[1:3] if name and len(values[name]) == data.shape[1]
        }
        yield Mistake(
            likely="channels are assigned to groups round-robin, although adjacent channels form a group",
            node=node,
            values=reordered_values,
            after=lambda result: np.asarray(result[:, inverse_order]),
        )


def other_windows(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which the windows of an LRN are shifted, or have a channel too many or too few on a side.

    The sums are still scaled by the right window size.

    Args:
        node: The node's real form.
        values: Its inputs.
    """
    data, size = values.get(node.inputs[0]) if node.inputs else None, node.attrs.get("size")
    if node.op != "LRN" or data is None or not isinstance(size, int) or not 0 < size <= data.shape[1]:
        return
    squares = np.square(data.astype(np.float64))
    numbers = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}
    alpha, beta, bias = (
        float(value) if isinstance(value := node.attrs.get(name, default), int | float) else default
        for name, default in numbers.items()
    )
    before, after = (size - 1) // 2, size // 2
    shifts = ((-before, before), (after, -after))  # windows that begin or end at the channel itself
    for more_before, more_after in ((0, 1), (1, 0), (1, 1), (0, -1), (-1, 0), (-1, -1), *shifts):
        window = range(-before - more_before, after + more_after + 1)
        total = np.zeros_like(squares)
        for shift in window:
            low, high = max(0, -shift), min(data.shape[1], data.shape[1] - shift)
            total[:, low:high] += squares[:, low + shift : high + shift]
        result = (data / (bias + alpha / size * total) ** beta).astype(data.dtype)
        likely = f"the sums run from channel {window[0]:+d} to {window[-1]:+d}, not from {-before:+d} to {after:+d}"
        if window:
            yield Mistake(likely=likely, node=node, values={}, after=always(result))


def _wrong_statistics(
    shaped: np.ndarray, axes: tuple[int, ...], epsilon: float, *, is_centered: bool
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield data normalized by a wrong mean, variance or use of epsilon, each after the mistake in words.

    Args:
        shaped: The data, in the shape in which statistics are taken.
        axes: Axes that the statistics reduce.
        epsilon: The node's epsilon.
        is_centered: Whether the node subtracts the mean.
    """
    count = prod(shaped.shape[axis] for axis in axes)
    mean, variance = shaped.mean(axes, keepdims=True), shaped.var(axes, keepdims=True)
    power = np.square(shaped).mean(axes, keepdims=True)
    own_mean, own_power = (mean, variance) if is_centered else (np.zeros_like(mean), power)
    with np.errstate(all="ignore"):
        if is_centered:
            yield "the mean is not subtracted, as in an RMSNormalization", shaped / np.sqrt(power + epsilon)
            yield "the mean is not subtracted after squaring", shaped / np.sqrt(variance + epsilon)
            yield "the mean is not subtracted before squaring", (shaped - mean) / np.sqrt(power + epsilon)
        else:
            yield (
                "the mean is subtracted first, as in a LayerNormalization",
                (shaped - mean) / np.sqrt(variance + epsilon),
            )
            yield "the mean is subtracted, but not before squaring", (shaped - mean) / np.sqrt(power + epsilon)
        own = shaped - own_mean
        for likely, divisor in (
            (
                f"the variance is divided by {count - 1}, not by the {count} elements",
                np.sqrt(own_power * count / max(count - 1, 1) + epsilon),
            ),
            ("squares are summed, but not divided by their count", np.sqrt(own_power * count + epsilon)),
            ("epsilon is added to the deviation, not the variance", np.sqrt(own_power) + epsilon),
            (
                "epsilon is added to the count of elements, not the variance",
                np.sqrt(own_power * count / (count + epsilon)),
            ),
            ("it divides by the variance, not its root", own_power + epsilon),
            *_deviations_with_lanes(own_mean, own_power, count, epsilon),
        ):
            yield likely, own / divisor
        for lanes in empty_lanes(count) if is_centered else ():
            total = count + lanes
            mean_of_all = mean * count / total
            deviation = np.sqrt(power * count / total - np.square(mean_of_all) + epsilon)
            likely = f"mean and variance include {lanes} zeros beyond the {count} elements"
            yield likely, (shaped - mean_of_all) / deviation
        if np.any(own_power < epsilon):  # otherwise it has the effect of epsilon = 0, which is tried too
            yield "the variance is at least epsilon, without adding it", own / np.sqrt(np.maximum(own_power, epsilon))


def cancelled_variance(node: Node, values: Mapping[str, np.ndarray], recorded: np.ndarray) -> str | None:
    """Return the format in which the variance was computed as E[x^2] - E[x]^2, or None if that is not the mistake.

    Each row is then off by one factor, which implies its variance. The rounding of the two squares bounds how far that
    variance is off, and rows with a small mean are right. How the squares are rounded depends on the order of the sums,
    so the result itself is not predicted.

    Args:
        node: The node's real form.
        values: Its inputs.
        recorded: Its recorded result.
    """
    data, epsilon = values[node.inputs[0]], node.attrs.get("epsilon", 1e-5)
    placed = _statistics_shape(node, data.astype(np.float64)) if scale_and_bias_slots(node) is not None else None
    if placed is None or not isinstance(epsilon, int | float) or operators.plain(node).name == "RMSNormalization":
        return None
    shaped, axes = placed
    mean, variance = shaped.mean(axes, keepdims=True), shaped.var(axes, keepdims=True)
    right = (shaped - mean) / np.sqrt(variance + epsilon)
    shape = data.shape
    zero, one = (_scaled_and_biased(node, values, np.full(shape, number)) for number in (0.0, 1.0))
    scale, bias = one.astype(np.float64) - zero, zero.astype(np.float64)
    with np.errstate(all="ignore"):
        normalized = np.where(scale != 0, (recorded - bias) / scale, 0.0).reshape(shaped.shape)
        right = np.where((scale != 0).reshape(shaped.shape), right, 0.0)
        factor = (normalized * right).sum(axes, keepdims=True) / np.square(right).sum(axes, keepdims=True)
        rest = np.linalg.norm(normalized - factor * right) / np.linalg.norm(normalized)
        error = (variance + epsilon) / np.square(factor) - epsilon - variance
    if not np.isfinite(error).all() or not rest < _BFLOAT16.unit:
        return None
    if np.ptp(error) < np.abs(error).max():  # errors of one sign and size: another epsilon, not rounding
        return None
    count = prod(shaped.shape[axis] for axis in axes)
    for short in (SINGLE, *reversed(SHORT_FORMATS)):
        bound = ROUNDING_SUM_FACTOR * math.sqrt(count) * short.unit * (np.square(mean) + variance)
        is_wrong = np.abs(error) > ROUNDING_SUM_FACTOR * math.sqrt(count) * short.unit * variance
        if (np.abs(error) <= bound).all() and is_wrong.any():
            return short.name
    return None


_BFLOAT16 = next(short for short in SHORT_FORMATS if short.name == "bfloat16")
"""The coarsest format of results. Rounding to it is what the factors of rows may leave unexplained."""


def _statistics_along_other_axes(
    data: np.ndarray, added_axes: int, own_axes: tuple[int, ...], epsilon: float, *, is_centered: bool
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield data normalized by statistics along other axes, each after the mistake in words.

    Args:
        data: The data.
        added_axes: Number of axes that a reshape adds for the right statistics. If it is not 0, no axes are excluded.
        own_axes: Axes of the right statistics.
        epsilon: The node's epsilon.
        is_centered: Whether the node subtracts the mean.
    """
    for count in range(1, data.ndim + 1) if data.ndim <= _MAX_RANK else ():
        for axes in combinations(range(data.ndim), count):
            if added_axes == 0 and axes == own_axes:
                continue
            mean = data.mean(axes, keepdims=True) if is_centered else 0.0
            with np.errstate(all="ignore"):
                normalized = (data - mean) / np.sqrt(np.square(data - mean).mean(axes, keepdims=True) + epsilon)
            yield f"the statistics are taken along axes {', '.join(map(str, axes))}", normalized


_MAX_RANK = 4


def _bias_before_scale(
    node: Node, values: Mapping[str, np.ndarray], shaped: np.ndarray, axes: tuple[int, ...], epsilon: float
) -> Iterator[Mistake]:
    """Yield the mistake of adding the bias before scaling, so that it gets scaled as well."""
    if len(node.inputs) < _INPUTS_WITH_BIAS or not node.inputs[2]:
        return
    deviation = np.sqrt(shaped.var(axes, keepdims=True) + epsilon)
    normalized = ((shaped - shaped.mean(axes, keepdims=True)) / deviation).reshape(values[node.inputs[0]].shape)
    exchanged = replace(node, inputs=(node.inputs[0], node.inputs[2], node.inputs[1]))
    result = _scaled_and_biased(exchanged, values, normalized, (np.add, np.multiply))
    yield Mistake(
        likely="the bias is added before the scale is applied",
        node=node,
        values={},
        after=always(result),
    )


_INPUTS_WITH_BIAS = 3


def _statistics_shape(node: Node, data: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]] | None:
    """Return data in the shape in which its statistics are taken, and the axes to reduce.

    None for other normalizations.
    """
    if _normalizes_last_axes(node):
        axis = node.attrs.get("axis", -1)
        return data, tuple(range(data.ndim))[axis if isinstance(axis, int) else -1 :]
    if node.op == "InstanceNormalization":
        return data, tuple(range(2, data.ndim))
    groups = node.attrs.get("num_groups")
    if node.op == "GroupNormalization" and isinstance(groups, int) and groups and data.shape[1] % groups == 0:
        return data.reshape(len(data), groups, -1), (2,)
    return None


def _normalizes_last_axes(node: Node) -> bool:
    return operators.plain(node).name in ("LayerNormalization", "RMSNormalization")


def _statistics_of_part(
    node: Node, values: Mapping[str, np.ndarray], shaped: np.ndarray, axes: tuple[int, ...], epsilon: float
) -> Iterator[Mistake]:
    """Yield mistakes in which statistics cover only the first elements, as many as a kernel processes or can count."""
    rows = shaped.reshape(*shaped.shape[: shaped.ndim - len(axes)], -1)
    count = rows.shape[-1]
    for end in sorted(end for end in {count // 2, *KERNEL_BLOCKS, _UINT16_NUMBERS} if 0 < end < count):
        first = rows[..., :end]
        deviation = np.sqrt(first.var(-1, keepdims=True) + epsilon)
        result = ((rows - first.mean(-1, keepdims=True)) / deviation).reshape(values[node.inputs[0]].shape)
        yield Mistake(
            likely=f"the statistics cover only the first {end} of {count} elements",
            node=node,
            values={},
            after=always(_scaled_and_biased(node, values, result)),
        )


def _statistics_of_other_rows(
    node: Node, values: Mapping[str, np.ndarray], shaped: np.ndarray, axes: tuple[int, ...], epsilon: float
) -> Iterator[Mistake]:
    """Yield mistakes in which each row is normalized by the statistics of the row before or after, or the first one."""
    rows = shaped.reshape(-1, prod(shaped.shape[axis] for axis in axes))
    mean, deviation = rows.mean(-1, keepdims=True), np.sqrt(rows.var(-1, keepdims=True) + epsilon)
    order = np.arange(len(rows))
    for likely, taken in (
        ("each row is normalized by the statistics of the previous row", order - 1),
        ("each row is normalized by the statistics of the next row", (order + 1) % len(rows)),
        ("each row is normalized by the statistics of the first row", 0 * order),
    ):
        result = ((rows - mean[taken]) / deviation[taken]).reshape(values[node.inputs[0]].shape)
        scaled = _scaled_and_biased(node, values, result)
        yield Mistake(likely=likely, node=node, values={}, after=always(scaled))


def _variances_of_blocks(
    node: Node, values: Mapping[str, np.ndarray], shaped: np.ndarray, axes: tuple[int, ...], epsilon: float
) -> Iterator[Mistake]:
    """Yield the mistake of averaging the variances of blocks, which ignores the differences between their means."""
    rows = shaped.reshape(*shaped.shape[: shaped.ndim - len(axes)], -1)
    count = rows.shape[-1]
    for block in sorted({count // 2, count // 4, *KERNEL_BLOCKS}):
        if not 1 < block < count or count % block:
            continue
        variance = rows.reshape(*rows.shape[:-1], -1, block).var(-1).mean(-1, keepdims=True)
        result = ((rows - rows.mean(-1, keepdims=True)) / np.sqrt(variance + epsilon)).reshape(
            values[node.inputs[0]].shape
        )
        yield Mistake(
            likely=f"the variance is averaged over blocks of {block} elements, each around its own mean",
            node=node,
            values={},
            after=always(_scaled_and_biased(node, values, result)),
        )


_THREAD_BLOCKS = (256, 512, 1024)
"""Numbers of threads in a thread group of a GPU, each of which processes one element at a time."""
_UINT16_NUMBERS = 1 << 16


def _statistics_with_next_row(
    node: Node, values: Mapping[str, np.ndarray], shaped: np.ndarray, axes: tuple[int, ...], epsilon: float
) -> Iterator[Mistake]:
    """Yield mistakes in which sums reach into the next row, because a kernel's block is longer than a row.

    The length of a block is in elements, or in channels of a group. Blocks are cut off at the end of the sample or of
    the data.
    """
    data = values[node.inputs[0]]
    rows = shaped.reshape(*shaped.shape[: shaped.ndim - len(axes)], -1)
    length, memory = rows.shape[-1], rows.reshape(-1)
    channels = data.shape[1] // rows.shape[1] if node.op == "GroupNormalization" else length
    begins = np.arange(0, memory.size, length)
    sample_ends = (begins // (memory.size // len(data)) + 1) * (memory.size // len(data))
    totals = [np.concatenate([[0.0], np.cumsum(powers)]) for powers in (memory, memory**2)]
    tried: list[np.ndarray] = []
    steps = {lanes * length // channels for lanes in empty_lanes(channels)}
    steps |= {-length % block for block in (*KERNEL_BLOCKS, *_THREAD_BLOCKS)} - {0}
    for more in sorted(step for step in steps if step < length):
        for last_ends in (sample_ends, np.full_like(begins, memory.size)):
            ends = np.minimum(begins + length + more, last_ends)
            sums, squares = (total[ends] - total[begins] for total in totals)
            for divisor in (length, length + more):
                mean = sums / divisor
                spread = squares - 2 * mean * sums + (ends - begins) * mean**2
                deviation = np.sqrt(np.maximum(spread / divisor, 0) + epsilon)
                statistics = np.stack([mean, deviation], axis=1)
                if any(np.array_equal(statistics, earlier) for earlier in tried):
                    continue
                tried.append(statistics)
                result = ((memory.reshape(-1, length) - mean[:, None]) / deviation[:, None]).reshape(data.shape)
                title = "group" if node.op == "GroupNormalization" else "row"
                where = "" if last_ends is sample_ends else ", also of the next sample"
                yield Mistake(
                    likely=f"the sums over a {title} of {length} elements include up to {more} elements of the next "
                    f"{title}{where}, and are divided by {divisor}",
                    node=node,
                    values={},
                    after=always(_scaled_and_biased(node, values, result)),
                )


def _statistics_of_channels_last_memory(
    node: Node, values: Mapping[str, np.ndarray], shaped: np.ndarray, epsilon: float
) -> Iterator[Mistake]:
    """Yield the mistake of splitting channels-last memory into groups by a reshape, without a transpose before it."""
    data = values[node.inputs[0]]
    if data.ndim <= _ROWS_AND_CHANNELS or _normalizes_last_axes(node):
        return
    last = np.moveaxis(data.astype(np.float64), 1, -1)
    groups = shaped.shape[1]
    parts = np.ascontiguousarray(last).reshape(len(data), groups, -1)
    deviation = np.sqrt(parts.var(-1, keepdims=True) + epsilon)
    result = np.moveaxis(((parts - parts.mean(-1, keepdims=True)) / deviation).reshape(last.shape), -1, 1)
    yield Mistake(
        likely=f"the statistics are taken over {groups} parts of channels-last memory, not over its channels",
        node=node,
        values={},
        after=always(_scaled_and_biased(node, values, result)),
    )


_ROWS_AND_CHANNELS = 2


def _deviations_with_lanes(
    mean: np.ndarray, variance: np.ndarray, count: int, epsilon: float
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield standard deviations that count the empty lanes of a block, each after the mistake in words.

    The lanes hold 0, and so -mean after the mean is subtracted.
    """
    for lanes in empty_lanes(count):
        total = variance * count + lanes * mean**2
        for divisor in (count, count + lanes):
            likely = (
                f"the variance includes {lanes} empty lanes beyond the {count} elements, and is divided by {divisor}"
            )
            yield likely, np.sqrt(total / divisor + epsilon)


def _scaled_and_biased(
    node: Node,
    values: Mapping[str, np.ndarray],
    result: np.ndarray,
    functions: Sequence[np.ufunc] = (np.multiply, np.add),
) -> np.ndarray:
    """Return normalized data times the scale plus the bias, in the dtype of the input.

    Args:
        node: The node.
        values: Its inputs.
        result: The normalized data.
        functions: How the second and the third input are applied.
    """
    total, is_last = result, _normalizes_last_axes(node)
    for name, apply in zip(node.inputs[1:3], functions, strict=False):
        if name:
            values_of = values[name].astype(np.float64)
            parameter = values_of if is_last else values_of.reshape(-1, *(1,) * (result.ndim - 2))
            if parameter.shape and parameter.shape[0] not in (1, result.shape[-parameter.ndim if is_last else 1]):
                return result.astype(values[node.inputs[0]].dtype)
            total = apply(total, parameter)
    return np.asarray(total, values[node.inputs[0]].dtype)
