"""The definition of an operator as lines of code that can be edited, and its evaluation. Begin at `Definition`.

The language is a part of Python: assignments of expressions with numbers, names, operators, comparisons and calls of
the functions in `FUNCTIONS`. Arrays are computed in float64, so that only an edit moves a result, not its rounding.
ONNX states some operators as functions too, but in steps such as Shape and Expand, which no reader would recognize in
a kernel, and the package `onnx` may be missing where a recording is read.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

__all__ = ["FUNCTIONS", "Definition", "Line", "Value", "parse"]

Value = np.ndarray | float | int | tuple[int, ...]
Line = tuple[str, ast.expr]
"""A name, and the expression that is assigned to it."""


def parse(text: str) -> tuple[Line, ...]:
    """Return the lines of a definition.

    Args:
        text: Assignments, one a line.
    """
    lines = []
    for statement in ast.parse(text).body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            raise TypeError(f"{ast.unparse(statement)!r} is not an assignment to a name")
        lines.append((statement.targets[0].id, statement.value))
    return tuple(lines)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Definition:
    """How a node computes its result, for given inputs.

    Args:
        lines: Assignments, in order. The last one is the result, or the result of a step.
        values: The arrays and numbers that the lines read, by name.
        finish: Brings the value of the last line into the form of the node's result.
        steps: Arrays of a recurrent node with one entry a step, by name. Its lines are evaluated once a step, and a
            name keeps its value until the next step. The results of all steps are stacked.
        alternatives: Other expressions for lines, such as those of another mode of the operator.
    """

    lines: tuple[Line, ...]
    values: Mapping[str, Value]
    finish: Callable[[np.ndarray], np.ndarray]
    steps: Mapping[str, np.ndarray] = field(default_factory=dict)
    alternatives: tuple[Line, ...] = ()

    def evaluate(self, lines: Sequence[Line], known_values: Mapping[str, Value] | None = None) -> dict[str, Value]:
        """Return the values of all names after lines are evaluated.

        Args:
            lines: The lines.
            known_values: Values of the names that they read, or None for those of the definition.
        """
        names = dict(self.values if known_values is None else known_values)
        with np.errstate(all="ignore"):
            if not self.steps:
                return self.evaluate_once(lines, names)
            results = []
            for step in range(len(next(iter(self.steps.values())))):
                names.update({name: array[step] for name, array in self.steps.items()})
                names = self.evaluate_once(lines, names)
                results.append(np.asarray(names[lines[-1][0]]))
            names[lines[-1][0]] = np.stack(results)
            return names

    @staticmethod
    def evaluate_once(lines: Sequence[Line], known_values: Mapping[str, Value]) -> dict[str, Value]:
        """Return the values of all names after lines are evaluated once, as in one step.

        Args:
            lines: The lines.
            known_values: Values of the names that they read.
        """
        names = dict(known_values)
        for name, expression in lines:
            names[name] = _evaluate(expression, names)
        return names

    def result(self, names: Mapping[str, Value]) -> np.ndarray:
        """Return the node's result, given the values of all names."""
        return self.finish(np.asarray(names[self.lines[-1][0]]))


def _evaluate(expression: ast.expr, names: Mapping[str, Value]) -> Any:
    """Return the value of an expression."""
    match expression:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=parts):
            return tuple(_evaluate(part, names) for part in parts)
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp(left=left, op=kind, right=right):
            return _BINARY[type(kind)](_evaluate(left, names), _evaluate(right, names))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return np.negative(_evaluate(operand, names))
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return np.logical_not(_evaluate(operand, names))
        case ast.Compare(left=left, ops=[kind], comparators=[right]):
            return _COMPARISONS[type(kind)](_evaluate(left, names), _evaluate(right, names))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return FUNCTIONS[name](*(_evaluate(argument, names) for argument in arguments))
    raise TypeError(f"{ast.unparse(expression)!r} has no meaning in a definition")


_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ast.Add: np.add,
        ast.Sub: np.subtract,
        ast.Mult: np.multiply,
        ast.Div: np.true_divide,
        ast.Pow: np.float_power,
        ast.BitAnd: np.logical_and,
        ast.BitOr: np.logical_or,
    }
)
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = MappingProxyType(
    {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq}
)


def _reduction(reduce: Callable[..., np.ndarray]) -> Callable[[np.ndarray, tuple[int, ...]], np.ndarray]:
    """Return a reduction that keeps the reduced axes with an extent of 1."""

    def reduced(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return np.asarray(reduce(array, axis=axes, keepdims=True))

    return reduced


def _without(part: slice) -> Callable[[np.ndarray, tuple[int, ...]], np.ndarray]:
    """Return a function that keeps a part of an array along the last of some axes."""

    def cut(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return np.asarray(np.moveaxis(np.moveaxis(array, axes[-1], 0)[part], 0, axes[-1]))

    return cut


def _at(array: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return the elements of the last axis at indices. Positions beyond the array hold NaN, as they are unknown."""
    places = np.asarray(indices).astype(np.int64)
    inside = (places >= 0) & (places < array.shape[-1])
    taken = np.take(array, np.where(inside, places, 0), axis=-1)
    return taken if inside.all() else np.where(inside, taken, np.nan)


def _heads(array: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return the heads (axis 1) at indices. The indices of heads that do not exist are taken modulo their number."""
    return np.asarray(np.take(array, np.asarray(indices).astype(np.int64) % array.shape[1], axis=1))


def _beyond(limit: float, becomes: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that replaces numbers beyond a limit on both sides."""

    def limited(array: np.ndarray) -> np.ndarray:
        return np.asarray(np.where(np.abs(array) > limit, np.copysign(becomes, array), array))

    return limited


def _wrapped(bits: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that wraps integers around in a number of bits."""

    def wrapped(array: np.ndarray) -> np.ndarray:
        half = 2.0 ** (bits - 1)
        return np.asarray(np.mod(array + half, 2 * half) - half)

    return wrapped


def _sigmoid(array: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * np.asarray(array))))


def _neighbours(array: np.ndarray, before: float, after: float) -> np.ndarray:
    """Return sums over a window along axis 1, from `before` channels before each channel to `after` behind it."""
    array = np.asarray(array)
    total = np.zeros_like(array)
    for shift in range(-int(before), int(after) + 1):
        low, high = max(0, -shift), min(array.shape[1], array.shape[1] - shift)
        if low < high:
            total[:, low:high] += array[:, low + shift : high + shift]
    return total


_MAX_FLOAT16 = 65504.0
_erf = np.vectorize(math.erf, otypes=[np.float64])

FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "abs": np.abs,
        "at": _at,
        "atan": np.arctan,
        "ceil": np.ceil,
        "clip": lambda array, limit: np.clip(array, -limit, limit),
        "cos": np.cos,
        "cosh": np.cosh,
        "erf": _erf,
        "exp": np.exp,
        "exp2": np.exp2,
        "first_left_out": _without(slice(1, None)),
        "floor": np.floor,
        "hard_sigmoid": lambda array: np.clip(array / 6 + 0.5, 0, 1),
        "heads": _heads,
        "in_float16": _beyond(_MAX_FLOAT16, np.inf),
        "in_int16": _wrapped(16),
        "in_int32": _wrapped(32),
        "largest": _reduction(np.max),
        "last_left_out": _without(slice(None, -1)),
        "log": np.log,
        "log2": np.log2,
        "log10": np.log10,
        "matmul": np.matmul,
        "max": np.maximum,
        "mean": _reduction(np.mean),
        "min": np.minimum,
        "neighbours": _neighbours,
        "product": _reduction(np.prod),
        "round": np.rint,
        "round_half_up": lambda array: np.floor(np.asarray(array) + 0.5),
        "saturated_in_float16": _beyond(_MAX_FLOAT16, _MAX_FLOAT16),
        "sigmoid": _sigmoid,
        "sign": np.sign,
        "sin": np.sin,
        "sinh": np.sinh,
        "smallest": _reduction(np.min),
        "sqrt": np.sqrt,
        "tan": np.tan,
        "tanh": np.tanh,
        "total": _reduction(np.sum),
        "transpose": lambda array: np.swapaxes(array, -1, -2),
        "trunc": np.trunc,
        "where": np.where,
    }
)
"""Functions of the language, by name."""
