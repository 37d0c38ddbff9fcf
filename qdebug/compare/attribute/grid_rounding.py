"""Rounding to codes in a run that stores real values on a grid whose step is not declared.

Chips and their tools return real numbers that were computed as codes. An error of half a grid step then counts as
rounding, like one in the last digit of a float format. A quantized product has quantized weights too. If the weights
come from the float model, their codes are unknown, and each weight is assumed to be rounded to 8 bits of the largest
weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from qdebug.errors import KernelError
from qdebug.model import Node, Recording, operators
from qdebug.model.recording import shape_of
from qdebug.model.thresholds.rounding import (
    GRID_MAX_LEVELS,
    GRID_MIN_WIDE_VALUES,
    GRID_TELLING_WIDE_VALUES,
    LSB_SLACK,
    ROUNDING_SUM_FACTOR,
)
from qdebug.model.thresholds.verdict import DERIVED_LSB
from qdebug.numerics.blocks import stretches
from qdebug.numerics.grid import Grid, grid_of_all
from qdebug.numerics.short_formats import format_of
from qdebug.replay.registry import run_node

__all__ = [
    "allowed_squares",
    "beyond_steps",
    "grid_of_codes",
    "half_step_of_8_bits",
    "has_too_few_values",
    "is_weight",
    "min_values_for_grid",
    "weight_noise",
]

_STRETCH = 1 << 14
"""Number of elements whose distinct values are counted at a time."""
_MIN_ELEMENTS = 64
"""Minimum size of a tensor that is examined for a grid."""
_EXAMINED_TENSORS = 12
"""Approximate number of tensors of a run that are examined."""
_MAX_WEIGHT_CODE = 127
"""The largest symmetric 8-bit code."""


def grid_of_codes(arrays: Callable[[], Iterator[np.ndarray]]) -> Grid | None:
    """Return the grid that the real values of a tensor lie on, or None for whole numbers.

    Args:
        arrays: Yields the tensor's values at each sample and step. Called several times.
    """
    first = next(arrays(), None)
    if first is None or first.dtype not in (np.float32, np.float64):
        return None
    grid = grid_of_all(arrays)
    if grid is None or grid.whole:
        return None
    # 16-bit floats lie on a grid of many levels too. Dequantized codes are told apart from them by `format_of`: they
    # have more digits than the format, or leave the last digits of small numbers unused.
    has_many_levels = grid.levels > GRID_MAX_LEVELS
    return None if has_many_levels and all(format_of(array, read=()) is not None for array in arrays()) else grid


def min_values_for_grid(recording: Recording) -> int:
    """Return how many distinct values are needed to infer a tensor's grid if a run stores real values instead of codes.

    Args:
        recording: The run.

    Returns:
        The number, or 0 unless most of the examined tensors lie on a grid.
    """
    graph = recording.graph
    computed = [name for node in graph.nodes for name in node.outputs if name and recording.has(name)]
    sizes = {name: math.prod(shape_of(recording, name)) for name in computed}
    large = [name for name in computed if sizes[name] >= _MIN_ELEMENTS]
    examined = large[:: max(len(large) // _EXAMINED_TENSORS, 1)]
    grids = [grid_of_codes(partial(_load_first_samples, recording, name)) for name in examined]
    grids_found = [grid for grid in grids if grid is not None]
    if not len(grids_found) > len(grids) - len(grids_found):
        return 0
    has_many_levels = any(grid.levels > GRID_MAX_LEVELS for grid in grids_found)
    return GRID_TELLING_WIDE_VALUES if has_many_levels else GRID_MIN_WIDE_VALUES


def _load_first_samples(recording: Recording, tensor: str) -> Iterator[np.ndarray]:
    yield recording.load(tensor)


def has_too_few_values(values: np.ndarray, min_values: int) -> bool:
    """Return whether there are too few real values to decide whether they lie on a grid.

    Args:
        values: The values.
        min_values: How many distinct values are needed. If 0, the values are never too few.
    """
    if values.dtype not in (np.float32, np.float64) or not min_values:
        return False
    flat, distinct = values.reshape(-1), np.empty(0, values.dtype)
    for start in range(0, flat.size, _STRETCH):  # the first stretch nearly always has enough
        distinct = np.union1d(distinct, flat[start : start + _STRETCH])
        if distinct.size >= min_values:
            return False
    return True


def is_weight(values: np.ndarray) -> bool:
    """Return whether a constant would be rounded to 8-bit codes in a quantized product. A bias would not."""
    return values.dtype.kind == "f" and values.ndim > 1 and bool(values.size)


def half_step_of_8_bits(values: np.ndarray) -> float:
    """Return half the step of symmetric 8-bit codes whose range covers the largest of the given values."""
    return float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0)) / _MAX_WEIGHT_CODE / 2


def weight_noise(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> np.ndarray | None:
    """Estimate the error of each result of a product if its weight is rounded to 8 bits.

    Args:
        node: The node's real-valued form.
        values: Its inputs.
        opset: Version of each operator set.

    Returns:
        Root mean squares in the shape of the result, or None if the node does not multiply by a weight.
    """
    row = operators.of(node.op)
    name = node.inputs[1] if row.product and len(node.inputs) > 1 else ""
    weight = values.get(name)
    if weight is None or not is_weight(weight):
        return None
    step = 2 * half_step_of_8_bits(weight)
    squares = {
        input_name: np.square(array, dtype=array.dtype)
        for input_name, array in values.items()
        if array.dtype.kind == "f"
    }
    squares[name] = np.full_like(weight, step**2 / 12)
    for bias in node.inputs[2:]:
        if bias in squares:
            squares[bias] = np.zeros_like(squares[bias])
    plain = Node(
        name=node.name,
        op=node.op,
        domain=node.domain,
        inputs=node.inputs,
        outputs=node.outputs,
        attrs={name: value for name, value in node.attrs.items() if not name.startswith("activation")},
    )
    try:
        result = run_node(plain, {**values, **squares}, opset)[node.outputs[0]]
    except KernelError:
        return None
    return np.asarray(np.sqrt(np.maximum(result, 0)))


def allowed_squares(grid: Grid, size: int, noise: np.ndarray | None) -> float:
    """Return the squared error norm that rounding results to a grid and weights to codes may cause.

    Args:
        grid: The grid.
        size: Number of results.
        noise: The result of `weight_noise`.
    """
    rounding = size * (grid.step / 2) ** 2
    return (
        rounding
        if noise is None
        else rounding + float(np.sum(np.square(ROUNDING_SUM_FACTOR / 2 * noise, dtype=np.float64)))
    )


def beyond_steps(grid: Grid, replayed: np.ndarray, recorded: np.ndarray, noise: np.ndarray | None) -> int:
    """Count the results whose error exceeds the rounding to codes.

    Args:
        grid: The grid.
        replayed: The replay, clipped to the range of the grid.
        recorded: The recorded values, in the same shape.
        noise: The result of `weight_noise`.
    """
    tolerance = (DERIVED_LSB + LSB_SLACK) * grid.step
    spread = np.zeros(replayed.shape, np.float32) if noise is None else noise
    count = 0
    for recorded_part, replayed_part, spread_part in stretches(
        recorded, replayed, np.broadcast_to(spread, replayed.shape)
    ):
        off = np.nan_to_num(np.abs(recorded_part.astype(np.float64) - replayed_part), nan=0.0, posinf=0.0)
        count += int(np.count_nonzero(off > tolerance + ROUNDING_SUM_FACTOR * spread_part))
    return count
