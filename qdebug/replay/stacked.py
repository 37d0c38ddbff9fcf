"""Compute several runs of a node at once, with independent data stacked along the first axis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from qdebug.errors import KernelError
from qdebug.model import Node, operators
from qdebug.model.operators import Operator, Sums

__all__ = [
    "LATEST_OPSET",
    "MAX_STACKED_ELEMENTS",
    "MAX_STACKED_RUNS",
    "can_stack",
    "is_stack",
    "mixes_steps",
    "run_each_step",
]

LATEST_OPSET = 1000
"""Version assumed for an operator set whose version is not stated."""
MAX_STACKED_RUNS = 16
"""Maximum number of stacked runs."""
MAX_STACKED_ELEMENTS = 1 << 19
"""Maximum elements of the largest tensor of the runs that are stacked together, so that they fit in a core's cache."""

_AXIS_FROM_THE_END = 13
"""Version of the standard operators from which `axis` defaults to the last axis; before that, the default is 1."""


def can_stack(
    node: Node, version: int, inputs: Sequence[np.ndarray | None], varying: Sequence[bool], out: tuple[int, ...]
) -> bool:
    """Return whether a node gives the same results for stacked runs as for each run alone.

    Args:
        node: The node, on real numbers.
        version: Version of its operator set.
        inputs: Its inputs in one run, in the operator's order; None if one is left out.
        varying: Which inputs differ between runs. These are stacked, and the others are shared.
        out: The shape of its output in one run.
    """
    moving = [array for array, varies in zip(inputs, varying, strict=True) if varies and array is not None]
    fixed = [array for array, varies in zip(inputs, varying, strict=True) if not varies and array is not None]
    row = operators.of(node.op)
    channels_second = "channels_last" not in node.attrs or row.windowed  # windows do not move along the first axis
    is_standard = not node.domain and channels_second and sum(map(bool, node.outputs)) == 1
    if not is_standard or not out or not moving or any(not array.ndim or array.shape[0] != out[0] for array in moving):
        return False
    rank = moving[0].ndim
    if row.elementwise:
        spread = any(array.ndim == len(out) and array.shape[0] != 1 for array in fixed)
        return "axis" not in node.attrs and not spread and all(array.ndim == len(out) for array in moving)
    if row.joins:
        have_same_rank = all(array.ndim == rank for array in moving)
        return not fixed and have_same_rank and _is_first_axis_excluded([node.attrs.get("axis", 0)], rank)
    if len(moving) > 1:
        return row.sums is Sums.MATRIX and not fixed and all(array.ndim == rank > 2 for array in moving)
    if not inputs or not varying[0]:
        return False
    return _can_stack_data(node, row, version, inputs, out)


def is_stack(whole: np.ndarray, first: np.ndarray, last: np.ndarray, *, between: int = 0) -> bool:
    """Return whether an array begins and ends with two others along its first axis, bit for bit.

    Args:
        whole: The array, such as the result of a node for stacked runs.
        first: The result for the first run alone.
        last: The result for the last run alone.
        between: Number of runs of the first one's extent that lie between them.
    """
    if not first.ndim or first.shape[1:] != last.shape[1:]:
        return False
    if whole.shape != (len(first) * (1 + between) + len(last), *first.shape[1:]):
        return False
    has_nan = whole.dtype.kind == "f"
    ends = (whole[: len(first)], first), (whole[len(whole) - len(last) :], last)
    return all(np.array_equal(part, alone, equal_nan=has_nan) for part, alone in ends)


RunNode = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
"""Computes a node from its inputs, by name."""


def mixes_steps(run: RunNode, values: Mapping[str, np.ndarray], stacked: Collection[str], count: int) -> bool:
    """Return whether a node gives other results for stacked steps than for the first and the last one alone.

    Args:
        run: Computes the node.
        values: Its inputs.
        stacked: Names of the inputs that hold steps, stacked along the first axis. The others are shared.
        count: Number of steps, at least two.

    Raises:
        KernelError: A step alone cannot be computed.
    """
    first, last = (run(_take_step(values, stacked, count, at)) for at in (0, count - 1))
    try:
        together = run(values)
    except KernelError:
        return True
    return not all(is_stack(together[name], first[name], last[name], between=count - 2) for name in first)


def run_each_step(
    run: RunNode, values: Mapping[str, np.ndarray], stacked: Collection[str], count: int
) -> Mapping[str, np.ndarray]:
    """Compute a node for stacked steps one by one, and stack its results. Arguments as for `mixes_steps`.

    Raises:
        KernelError: A step cannot be computed, or its results have no axis to stack along.
    """
    results = [run(_take_step(values, stacked, count, at)) for at in range(count)]
    if not all(array.ndim for array in results[0].values()):
        raise KernelError("The results of the steps cannot be stacked.")
    return {name: np.concatenate([result[name] for result in results]) for name in results[0]}


def _take_step(
    values: Mapping[str, np.ndarray], stacked: Collection[str], count: int, at: int
) -> dict[str, np.ndarray]:
    """Return the inputs of a single step."""
    extents = {name: len(array) // count if name in stacked else 0 for name, array in values.items()}
    return {
        name: array[at * extents[name] : (at + 1) * extents[name]] if name in stacked else array
        for name, array in values.items()
    }


def _can_stack_data(
    node: Node, row: Operator, version: int, inputs: Sequence[np.ndarray | None], out: tuple[int, ...]
) -> bool:
    """Like `can_stack`, for a node of which only the first input varies."""
    data = inputs[0]
    if data is None:
        return False
    rank, attrs = data.ndim, node.attrs
    if row.keeps_values or row.casts:
        return True
    if row.reshapes:
        return data.size == int(np.prod(out, dtype=np.int64))
    if row.scales_channels:
        return rank > 1 and not attrs.get("training_mode")
    if row.windowed or row.sums in (Sums.FILTER, Sums.SCATTER):
        return rank > 2
    # numpy multiplies stacked matrices one by one. Rows stacked in one matrix would be summed in a different order.
    if row.sums is Sums.MATRIX:
        weight = inputs[1] if len(inputs) > 1 else None
        return rank > 2 and len(inputs) == 2 and weight is not None and weight.ndim == 2
    if row.along_axis:
        return _is_first_axis_excluded([attrs.get("axis", -1 if version >= _AXIS_FROM_THE_END else 1)], rank)
    if row.transposes:
        order = attrs.get("perm")
        return order is not None and int(np.asarray(order).reshape(-1)[0]) == 0
    if row.moves is operators.Move.SLICE or (row.reduces and not row.picks_index):
        position = 3 if row.moves is operators.Move.SLICE else 1
        input_value = inputs[position] if len(inputs) > position else None
        axes = attrs.get("axes") if input_value is None else input_value
        return axes is not None and _is_first_axis_excluded(axes, rank)
    return False


def _is_first_axis_excluded(axes: object, rank: int) -> bool:
    """Return whether axes are stated and exclude the first one."""
    flat = np.asarray(axes).reshape(-1)
    return bool(flat.size) and flat.dtype.kind in "iu" and bool(np.all(flat % rank))
