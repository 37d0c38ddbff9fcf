"""Statistics of normalizations that are computed in a 16-bit format. Begin at `short_statistics`.

Squares beyond 256 do not fit float16, so a row of large numbers is divided by infinity, and others lose digits.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from qdebug.arithmetic.definitions.catalogue import definition_of
from qdebug.arithmetic.definitions.definition import Definition
from qdebug.arithmetic.mistakes.mistake import Mistake, always
from qdebug.model import Node
from qdebug.numerics.short_formats import SHORT_FORMATS, ShortFormat

__all__ = ["short_statistics"]

_FORMATS = ("float16", "bfloat16")
_LANES = (1, 2, 4, 8, 16, 32)
"""Numbers of partial sums that kernels keep side by side."""
_MAX_ELEMENTS = 1 << 20
"""Maximum number of elements whose squares are summed in all ways."""
_STATISTICS = ("power", "variance")
"""Names of the lines of definitions that average squares."""


def short_statistics(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield normalizations whose squares, or their sum or mean, are rounded to a 16-bit format.

    Args:
        node: The node's real form.
        values: Its inputs.
        opset: Version of each operator set of its graph.
    """
    if "Normalization" not in node.op or not node.inputs or values[node.inputs[0]].size > _MAX_ELEMENTS:
        return
    definition = definition_of(node, values, opset, node.outputs[0])
    statistic = None if definition is None else _statistic_of(definition)
    if definition is None or statistic is None:
        return
    at, base, axes = statistic
    names = definition.evaluate(definition.lines)
    data = np.asarray(names[base], np.float64)
    rows = np.moveaxis(data, axes, range(-len(axes), 0))
    count = prod(rows.shape[data.ndim - len(axes) :])
    rows = rows.reshape(*rows.shape[: data.ndim - len(axes)], count).astype(np.float32)
    kept = [1 if axis in axes else extent for axis, extent in enumerate(data.shape)]
    dtype = values[node.inputs[0]].dtype
    for short_format in (each for each in SHORT_FORMATS if each.name in _FORMATS):
        for likely, mean in _short_means(rows, short_format, is_centered=definition.lines[at][0] == "variance"):
            name = definition.lines[at][0]
            result = definition.evaluate(definition.lines[at + 1 :], {**names, name: mean.reshape(kept)})
            with np.errstate(all="ignore"):
                computed = definition.result(result).astype(dtype)
            yield Mistake(
                likely=likely,
                node=node,
                values={},
                after=always(computed),
                about=f"squares in {short_format.name}",
                kind=f"the squares of its numbers, or their sum, are kept in {short_format.name}",
                is_rounding=bool(np.isfinite(mean).all()),
            )


def _statistic_of(definition: Definition) -> tuple[int, str, tuple[int, ...]] | None:
    """Return the line that averages squares, the name of the numbers that are squared, and the axes, or None."""
    for at, (name, expression) in enumerate(definition.lines):
        match expression:
            case ast.Call(
                func=ast.Name(id="mean"), args=[ast.BinOp(left=ast.Name(id=base), op=ast.Pow()), ast.Name(id=axes_name)]
            ) if name in _STATISTICS:
                axes = definition.values[axes_name]
                return (at, base, axes) if isinstance(axes, tuple) else None
    return None


def _short_means(rows: np.ndarray, short_format: ShortFormat, *, is_centered: bool) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the mean of the squares of each row, computed partly in a short format, each after a clause."""
    name, count = short_format.name, rows.shape[-1]
    with np.errstate(all="ignore"):
        squares = np.square(rows)
        short_squares = short_format.rounded(np.square(short_format.rounded(rows)))
        sums, short_sums = (each.astype(np.float64).sum(-1, keepdims=True) for each in (squares, short_squares))
        for title, number in (
            ("sum of squares", sums),
            ("variance" if is_centered else "mean of squares", sums / count),
        ):
            likely = f"the {title} overflows in {name}, so the data is divided by infinity"
            yield likely, np.where(number >= short_format.beyond, np.inf, sums / count)
        yield f"the squares of its numbers are rounded to {name}", short_sums / count
        yield f"the sum of squares is kept in {name}", short_format.rounded(sums.astype(np.float32)) / count
        yield f"the mean of squares is kept in {name}", short_format.rounded((sums / count).astype(np.float32))
        for terms, clause in ((short_squares, ", as are the squares"), (squares, "")):
            for lanes in (each for each in _LANES if count % each == 0):
                total = _summed(terms.reshape(*terms.shape[:-1], -1, lanes), short_format)
                side = "" if lanes == 1 else f", in {lanes} partial sums"
                likely = f"the sum of squares is accumulated in {name}{clause}{side}"
                yield likely, total / count
                yield f"{likely}, and divided in {name}", short_format.rounded(total / np.float32(count))


def _summed(terms: np.ndarray, short_format: ShortFormat) -> np.ndarray:
    """Add terms (..., n, lanes) one after another in each lane, then halves of the lanes, rounding each sum."""
    total = np.zeros((*terms.shape[:-2], terms.shape[-1]), np.float32)
    for at in range(terms.shape[-2]):
        total = short_format.rounded(total + terms[..., at, :])
    while total.shape[-1] > 1:
        half = total.shape[-1] // 2
        total = short_format.rounded(total[..., :half] + total[..., half:])
    return total
