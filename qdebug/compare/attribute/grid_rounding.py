"""What rounding to codes accounts for where a run shows real values on the grid of codes that nobody stated.

Chips and their tools hand on real numbers that were codes. Half a step of the grid is then rounding, as the last digit
is in a float format. A product in codes has weights in codes too, of which nothing is known where they come from the
model: each is assumed to be off by what 8 bits for the largest of them make.
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
from qdebug.numerics.short_formats import SHORT_FORMATS, fits
from qdebug.replay.registry import run_node

__all__ = [
    "allowed_squares",
    "are_few",
    "beyond_steps",
    "grid_of_codes",
    "half_code",
    "is_weight",
    "telling_values",
    "weight_noise",
]

_TELLING = 64
"""Elements of a tensor that tell whether they lie on a grid."""
_LOOKED_AT = 12
"""Tensors that tell it of a run."""
_LEVELS_OF_WEIGHT = 127
"""Codes of 8 bits on either side of 0."""


def grid_of_codes(arrays: Callable[[], Iterator[np.ndarray]]) -> Grid | None:
    """Return the grid of codes that the real values of a tensor lie on; None of whole numbers.

    Args:
        arrays: Yields its values at each sample and step; called a few times.
    """
    first = next(arrays(), None)
    if first is None or first.dtype not in (np.float32, np.float64):
        return None
    found = grid_of_all(arrays)
    if found is None or found.whole:
        return None
    # Small numbers of 16-bit floats lie on a grid of many levels too; codes of 16 bits have more digits.
    wide = found.levels > GRID_MAX_LEVELS
    return None if wide and all(fits(each, SHORT_FORMATS[-1]) for each in arrays()) else found


def telling_values(recording: Recording) -> int:
    """Return how many different values tell the grid of a tensor, in a run that shows real values in place of codes.

    Args:
        recording: The run.

    Returns:
        0 of a run of which most tensors that are looked at lie on no grid.
    """
    graph = recording.graph
    made = [name for node in graph.nodes for name in node.outputs if name and recording.has(name)]
    sizes = {name: math.prod(shape_of(recording, name)) for name in made}
    large = [name for name in made if sizes[name] >= _TELLING]
    looked = large[:: max(len(large) // _LOOKED_AT, 1)]
    grids = [grid_of_codes(partial(_first, recording, name)) for name in looked]
    found = [grid for grid in grids if grid is not None]
    if not len(found) > len(grids) - len(found):
        return 0
    wide = any(grid.levels > GRID_MAX_LEVELS for grid in found)
    return GRID_TELLING_WIDE_VALUES if wide else GRID_MIN_WIDE_VALUES


def _first(recording: Recording, tensor: str) -> Iterator[np.ndarray]:
    yield recording.load(tensor)


def are_few(values: np.ndarray, telling: int) -> bool:
    """Tell whether real values are too few to tell whether they lie on a grid.

    Args:
        values: The values.
        telling: How many different ones tell it.
    """
    return values.dtype in (np.float32, np.float64) and np.unique(values).size < telling


def is_weight(values: np.ndarray) -> bool:
    """Tell whether a constant is rounded to 8-bit codes where a product is computed in codes: a bias is not."""
    return values.dtype.kind == "f" and values.ndim > 1 and bool(values.size)


def half_code(values: np.ndarray) -> float:
    """Return half the step of 8-bit codes whose range reaches to the largest of some values, and as far below 0."""
    return float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0)) / _LEVELS_OF_WEIGHT / 2


def weight_noise(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> np.ndarray | None:
    """Estimate by how much each result of a product is off where its weight is rounded to 8 bits.

    Args:
        node: The node on real numbers.
        values: Its inputs.
        opset: Version of each operator set.

    Returns:
        Root mean squares of the shape of the result; None for a node that multiplies by no weight.
    """
    row = operators.of(node.op)
    name = node.inputs[1] if row.product and len(node.inputs) > 1 else ""
    weight = values.get(name)
    if weight is None or not is_weight(weight):
        return None
    step = 2 * half_code(weight)
    squares = {each: np.square(array, dtype=array.dtype) for each, array in values.items() if array.dtype.kind == "f"}
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
        made = run_node(plain, {**values, **squares}, opset)[node.outputs[0]]
    except KernelError:
        return None
    return np.asarray(np.sqrt(np.maximum(made, 0)))


def allowed_squares(grid: Grid, size: int, noise: np.ndarray | None) -> float:
    """Return the squared norm of what rounding to a grid, and weights to codes, accounts for.

    Args:
        grid: The grid.
        size: Number of results.
        noise: What `weight_noise` gives.
    """
    own = size * (grid.step / 2) ** 2
    return own if noise is None else own + float(np.sum(np.square(ROUNDING_SUM_FACTOR / 2 * noise, dtype=np.float64)))


def beyond_steps(grid: Grid, replayed: np.ndarray, recorded: np.ndarray, noise: np.ndarray | None) -> int:
    """Count the results that are further off than any code that rounding gives.

    Args:
        grid: The grid.
        replayed: What the replay gives, held to the ends of the grid.
        recorded: What was recorded, of the same shape.
        noise: What `weight_noise` gives.
    """
    most = (DERIVED_LSB + LSB_SLACK) * grid.step
    spread = np.zeros(replayed.shape, np.float32) if noise is None else noise
    count = 0
    for ours, theirs, each in stretches(recorded, replayed, np.broadcast_to(spread, replayed.shape)):
        off = np.nan_to_num(np.abs(ours.astype(np.float64) - theirs), nan=0.0, posinf=0.0)
        count += int(np.count_nonzero(off > most + ROUNDING_SUM_FACTOR * each))
    return count
