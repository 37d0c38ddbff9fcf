"""Edits of a definition that a kernel's author could have made by mistake. Begin at `edited_definitions`.

An edit changes one place of one line: a step is left out, moved, swapped or applied twice, or another operator,
function, number, operand or axis stands there. This is how mutation testing derives faults from a program (DeMillo,
Lipton and Sayward, "Hints on test data selection", Computer 11, 1978), applied to the definition of an operator.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, islice
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.definitions.definition import Definition, Value
from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.model import Node
from qdebug.model.thresholds.explanation import FURTHER_CAUSE_MAX_SUMS
from qdebug.model.thresholds.rounding import ELEMENTWISE_ROUNDOFFS, FLOAT32_UNIT_ROUNDOFF

__all__ = ["DEFINITION", "EditedResult", "edited_definitions", "is_reproduced", "parts_of", "with_parts"]

DEFINITION = "definition"
"""Subject (`Mistake.about`) of all edits. Several of them may have the same effect."""

Change = tuple[str, ast.expr]
"""A clause, and the expression after the change."""


@dataclass(frozen=True, slots=True, eq=False)
class EditedResult:
    """Computes the result of a node with one line of its definition edited. Used as `Mistake.after`.

    Args:
        definition: The definition.
        names: Values of the names before the line is evaluated.
        line: Index of the line.
        expression: The edited expression.
    """

    definition: Definition
    names: Mapping[str, Value]
    line: int
    expression: ast.expr

    def __call__(self, right: np.ndarray) -> np.ndarray:
        """Return the edited result, in the dtype of the right one.

        Raises:
            ValueError: The edit does not fit the types of its operands.
        """
        lines = list(self.definition.lines)
        lines[self.line] = (lines[self.line][0], self.expression)
        try:
            if self.definition.steps:
                names = self.definition.evaluate(lines)
            else:
                names = self.definition.evaluate(lines[self.line :], self.names)
        except TypeError as error:
            raise ValueError(f"{ast.unparse(self.expression)!r} cannot be computed") from error
        result = self.definition.result(names)
        with np.errstate(all="ignore"):
            return np.asarray(np.broadcast_to(result, right.shape) if result.size == 1 else result).astype(right.dtype)

    def equals(self, other: EditedResult, right: np.ndarray) -> bool:
        """Return whether another edit has the same result, up to rounding."""
        first, second = (each(right).astype(np.float64) for each in (self, other))
        return first.shape == second.shape and bool(
            np.allclose(first, second, rtol=_EQUAL, atol=_EQUAL * float(np.abs(right).max(initial=0)), equal_nan=True)
        )


_EQUAL = ELEMENTWISE_ROUNDOFFS * FLOAT32_UNIT_ROUNDOFF
"""Relative difference of float32 results that counts as rounding."""


def edited_definitions(node: Node, definition: Definition | None, right: np.ndarray) -> Iterator[Mistake]:
    """Yield the edits of a definition as mistakes, simple ones first, as many as may be tried.

    Args:
        node: The node.
        definition: Its definition, or None if there is none for its operator.
        right: Its right result. Without edits, the definition must reproduce it.
    """
    if definition is None or right.size * _MIN_EDITS > _MAX_ELEMENTS:
        return
    names = definition.evaluate(definition.lines)
    if not is_reproduced(definition, names, right):
        return
    steps = len(next(iter(definition.steps.values()))) if definition.steps else 1
    elements = steps * sum(np.size(names[name]) for name, _ in definition.lines)
    for clause, after in islice(_edits(definition, names), _MAX_ELEMENTS // max(elements, 1)):
        name, own = definition.lines[after.line]
        likely = f"{clause}: it computes {name} = {ast.unparse(after.expression)}, not {name} = {ast.unparse(own)}"
        yield Mistake(likely=likely, node=node, values={}, after=after, about=DEFINITION)


def is_reproduced(definition: Definition, names: Mapping[str, Value], right: np.ndarray) -> bool:
    """Return whether a definition reproduces the right result of its node.

    Args:
        definition: The definition.
        names: Values of all names, as it computes them.
        right: The right result.
    """
    result = definition.result(names)
    return result.shape == right.shape and np.allclose(result, right, rtol=_SAME, atol=_SAME, equal_nan=True)


_SAME = 1e-3
"""Difference up to which a definition and the kernel of its operator agree."""
_MAX_ELEMENTS = FURTHER_CAUSE_MAX_SUMS // 32
"""Maximum number of elements that edited definitions compute. An element costs about as much as 32 products."""
_MIN_EDITS = 16
"""If not even this number of edits can be tried, none is."""


def _edits(definition: Definition, names: Mapping[str, Value]) -> Iterator[tuple[str, EditedResult]]:
    """Yield each edit of a definition once, as a clause and the edited result.

    Args:
        definition: The definition.
        names: Values of all names without the edit.
    """
    scopes, lines = list(_scopes(definition, names)), list(enumerate(definition.lines))
    tried_lines = {(at, ast.unparse(own)) for at, (_, own) in lines}
    changes = chain(
        ((at, "as in another mode", mode) for name, mode in definition.alternatives for at, line in lines
         if line[0] == name),
        ((at, clause, changed) for change in _KINDS for at, (_, own) in lines
         for clause, changed in _changes_anywhere(own, change, scopes[at])),
    )  # fmt: skip
    for at, clause, changed in changes:
        text = ast.unparse(changed)
        if (at, text) not in tried_lines:
            tried_lines.add((at, text))
            yield clause, EditedResult(definition, scopes[at].names, at, changed)


def _scopes(definition: Definition, names: Mapping[str, Value]) -> Iterator[_Scope]:
    """Yield the names that can be read at each line. In a recurrent node, their values are those of a step."""
    values: dict[str, Value] = {**definition.values, **{name: data[0] for name, data in definition.steps.items()}}
    for line in definition.lines:
        yield _Scope(values)
        values = {**values, line[0]: names[line[0]]} if definition.steps else definition.evaluate([line], values)


@dataclass(frozen=True, slots=True)
class _Scope:
    """The names that an edit may use, with their values where the line is evaluated."""

    names: Mapping[str, Value]

    def names_like(self, name: str) -> Iterator[str]:
        """Yield the names of values with the same kind and shape as that of a name."""
        own = self.names[name]
        for other, value in sorted(self.names.items()):
            if (
                other != name
                and _is_number(own) is _is_number(value)
                and _shape(own) == _shape(value)
                and _is_bool(own) is _is_bool(value)
            ):
                yield other


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float)


def _is_bool(value: Value) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.bool_


def _shape(value: Value) -> tuple[int, ...]:
    return value.shape if isinstance(value, np.ndarray) else ()


def _changes_anywhere(
    expression: ast.expr, change_place: Callable[[ast.expr, _Scope], Iterator[Change]], scope: _Scope
) -> Iterator[Change]:
    """Yield an expression with a change at one place, the outermost places first."""
    yield from change_place(expression, scope)
    parts = parts_of(expression)
    for at, part in enumerate(parts):
        for clause, changed in _changes_anywhere(part, change_place, scope):
            yield clause, with_parts(expression, [*parts[:at], changed, *parts[at + 1 :]])


def parts_of(expression: ast.expr) -> list[ast.expr]:
    """Return the operands of an expression."""
    match expression:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.Compare(left=left, comparators=[right]):
            return [left, right]
        case ast.Call(args=arguments):
            return list(arguments)
    return []


def with_parts(expression: ast.expr, parts: Sequence[ast.expr]) -> ast.expr:
    """Return an expression with other operands."""
    match expression:
        case ast.BinOp(op=kind):
            return ast.BinOp(left=parts[0], op=kind, right=parts[1])
        case ast.UnaryOp(op=sign):
            return ast.UnaryOp(op=sign, operand=parts[0])
        case ast.Compare(ops=[comparison]):
            return ast.Compare(left=parts[0], ops=[comparison], comparators=[parts[1]])
        case ast.Call(func=function):
            return ast.Call(func=function, args=list(parts), keywords=[])
    return expression


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(func=ast.Name(id=name), args=list(arguments), keywords=[])


def _function_of(expression: ast.expr) -> str:
    """Return the name of the function that an expression calls, or ""."""
    return expression.func.id if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name) else ""


def _left_out(expression: ast.expr, scope: _Scope) -> Iterator[Change]:
    """Leave out a function, one side of an operator, a sign, or a condition with one of its results."""
    del scope
    parts = parts_of(expression)
    match expression:
        case ast.BinOp():
            for kept, dropped in (parts, parts[::-1]):
                yield f"{ast.unparse(dropped)!r} is left out", kept
        case ast.UnaryOp():
            yield "a sign is left out", parts[0]
        case ast.Call() if _function_of(expression) in ("where", "max", "min"):
            for part in parts[-2:]:
                yield f"{_function_of(expression)!r} is left out", part
        case ast.Call() if _function_of(expression) not in _STRUCTURE:
            yield f"{_function_of(expression)!r} is left out", parts[0]


def _swapped(expression: ast.expr, scope: _Scope) -> Iterator[Change]:
    """Swap the sides of an operator or comparison, or the results of a condition."""
    del scope
    parts = parts_of(expression)
    match expression:
        case ast.BinOp(op=ast.Sub() | ast.Div() | ast.Pow()) | ast.Compare():
            yield "its sides are swapped", with_parts(expression, parts[::-1])
        case ast.Call() if _function_of(expression) == "where":
            yield "its cases are swapped", with_parts(expression, [parts[0], parts[2], parts[1]])


def _moved(expression: ast.expr, scope: _Scope) -> Iterator[Change]:
    """Set parentheses in another way: move a step into a function or out of it, or group operators differently."""
    del scope
    parts = parts_of(expression)
    clause = "the order of steps differs"
    match expression:
        case ast.BinOp(op=kind):
            left, right = parts
            if isinstance(left, ast.BinOp) and type(left.op) is not type(kind):
                for first, second in ((left.left, left.right), (left.right, left.left)):
                    inner = ast.BinOp(left=second, op=kind, right=right)
                    ends = (first, inner) if first is left.left else (inner, first)
                    yield clause, ast.BinOp(left=ends[0], op=left.op, right=ends[1])
            if isinstance(right, ast.BinOp) and type(right.op) is not type(kind):
                inner = ast.BinOp(left=left, op=kind, right=right.left)
                yield clause, ast.BinOp(left=inner, op=right.op, right=right.right)
            for at, part in enumerate(parts):
                if _is_plain_function(part):
                    argument, *rest = parts_of(part)
                    inside = with_parts(expression, [argument, right] if at == 0 else [left, argument])
                    yield clause, with_parts(part, [inside, *rest])
        case ast.Call() if _is_plain_function(expression):
            argument, *rest = parts
            if isinstance(argument, ast.BinOp):
                for at in (0, 1):
                    outer = parts_of(argument)
                    outer[at] = with_parts(expression, [outer[at], *rest])
                    yield clause, with_parts(argument, outer)
            if _is_plain_function(argument):
                inner_argument, *inner_rest = parts_of(argument)
                yield clause, with_parts(argument, [with_parts(expression, [inner_argument, *rest]), *inner_rest])


def _is_plain_function(expression: ast.expr) -> bool:
    """Return whether an expression calls a function of one array, which may be a reduction along axes."""
    name = _function_of(expression)
    return bool(name) and name not in _STRUCTURE and name not in ("where", "max", "min")


def _other_operators(expression: ast.expr, scope: _Scope) -> Iterator[Change]:
    """Replace an operator, comparison or function by a related one."""
    del scope
    parts = parts_of(expression)
    match expression:
        case ast.BinOp(op=kind):
            for other in _OTHER_OPERATORS.get(type(kind), ()):
                yield "another operator is used", ast.BinOp(left=parts[0], op=other, right=parts[1])
        case ast.Compare(ops=[comparison]):
            for other_comparison in (ast.Lt(), ast.LtE(), ast.Gt(), ast.GtE()):
                if not isinstance(comparison, ast.Eq) and type(other_comparison) is not type(comparison):
                    yield (
                        "another comparison is used",
                        ast.Compare(left=parts[0], ops=[other_comparison], comparators=[parts[1]]),
                    )
        case ast.Call():
            name = _function_of(expression)
            for group in (each for each in _RELATED_FUNCTIONS if name in each):
                for other_name in group:
                    if other_name != name:
                        yield f"it uses {other_name!r}, not {name!r}", _call(other_name, *parts)


def _repeated(expression: ast.expr, scope: _Scope) -> Iterator[Change]:
    """Apply a function or an operand twice."""
    del scope
    parts = parts_of(expression)
    match expression:
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as kind):
            yield f"{ast.unparse(parts[1])!r} is applied twice", ast.BinOp(left=expression, op=kind, right=parts[1])
            if isinstance(kind, ast.Add | ast.Mult):
                yield f"{ast.unparse(parts[0])!r} is applied twice", ast.BinOp(left=parts[0], op=kind, right=expression)
        case ast.Call() if _is_plain_function(expression):
            yield f"{_function_of(expression)!r} is applied twice", with_parts(expression, [expression, *parts[1:]])


def _other_numbers(expression: ast.expr, scope: _Scope) -> Iterator[Change]:
    """Replace a number by a related one, or shift an index by one."""
    match expression:
        case ast.Constant(value=int() | float() as number):
            others = (0, 1, -number, 2 * number, number / 2, number + 1, number - 1, *([1 / number] if number else []))
            for other in dict.fromkeys(others):
                if other != number:
                    yield f"the constant is {other:.4g}, not {number:.4g}", ast.Constant(value=other)
        case ast.Name(id=name) if name in scope.names:
            value = scope.names[name]
            if isinstance(value, float) and np.isinf(value):
                for other in (np.copysign(number, value) for number in _LARGE_NUMBERS):
                    yield f"{name} is {other:.4g}", ast.Constant(value=float(other))
            if isinstance(value, int) or (isinstance(value, np.ndarray) and value.dtype.kind in "iu"):
                yield f"{name} is one too large", ast.BinOp(expression, ast.Add(), ast.Constant(value=1))
                yield f"{name} is one too small", ast.BinOp(expression, ast.Sub(), ast.Constant(value=1))


def _other_names(expression: ast.expr, scope: _Scope) -> Iterator[Change]:
    """Read another number or array of the same shape."""
    if isinstance(expression, ast.Name) and expression.id in scope.names:
        for name in scope.names_like(expression.id):
            yield f"it reads {name}, not {expression.id}", ast.Name(id=name)


def _other_reductions(expression: ast.expr, scope: _Scope) -> Iterator[Change]:
    """Leave out the first or last element of a reduction, begin with another number, or reduce along other axes."""
    name = _function_of(expression)
    if name not in _REDUCTIONS or not isinstance(expression, ast.Call):
        return
    argument, axes = expression.args
    if not isinstance(axes, ast.Name):
        return
    for end in ("last", "first"):
        cut = _call(f"{end}_left_out", argument, axes)
        yield f"the {end} element is left out of {name!r}", _call(name, cut, axes)
    for start in _STARTS[name]:
        number = ast.Constant(value=start)
        started = (
            ast.BinOp(expression, ast.Add(), number)
            if name == "total"
            else _call("max" if name == "largest" else "min", expression, number)
        )
        yield f"{name!r} starts at {start}", started
    own, rank = scope.names[axes.id], max(len(_shape(value)) for value in scope.names.values())
    for count in range(1, rank + 1) if rank <= _MAX_RANK else ():
        for other in combinations(range(rank), count):
            if other != own:
                text = ", ".join(map(str, other))
                yield f"{name!r} runs along axes {text}", _call(name, argument, ast.parse(str(other), mode="eval").body)


def _limited(expression: ast.expr, scope: _Scope) -> Iterator[Change]:
    """Let the result of a function or operator overflow in a short format."""
    if not isinstance(expression, ast.Call | ast.BinOp) or _function_of(expression) in _STRUCTURE:
        return
    whole = any(isinstance(value, np.ndarray) and value.dtype.kind in "iu" for value in scope.names.values())
    for name in ("in_int32", "in_int16") if whole else ("in_float16", "saturated_in_float16"):
        yield f"{ast.unparse(expression)} is kept {_SHORT_FORMATS[name]}", _call(name, expression)


_KINDS: tuple[Callable[[ast.expr, _Scope], Iterator[Change]], ...] = (
    _left_out,
    _swapped,
    _moved,
    _other_operators,
    _repeated,
    _other_numbers,
    _other_names,
    _other_reductions,
    _limited,
)
"""Kinds of edits, those that change least first. Each yields changes of an expression as a whole."""
_STRUCTURE = frozenset({"matmul", "transpose", "at", "rows", "heads", "neighbours"})
"""Functions that arrange or combine arrays, so that leaving one out changes shapes."""
_REDUCTIONS = frozenset({"largest", "mean", "product", "smallest", "total"})
_STARTS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {"largest": (0, 1), "smallest": (0, 1), "total": (1,), "mean": (), "product": ()}
)
"""Numbers that reductions begin with by mistake. A largest number that begins with 0 is never below 0."""
_OTHER_OPERATORS: Mapping[type[ast.operator], tuple[ast.operator, ...]] = MappingProxyType(
    {
        ast.Add: (ast.Sub(), ast.Mult()),
        ast.Sub: (ast.Add(), ast.Div()),
        ast.Mult: (ast.Div(), ast.Add()),
        ast.Div: (ast.Mult(), ast.Sub()),
        ast.Pow: (ast.Mult(),),
        ast.BitAnd: (ast.BitOr(),),
        ast.BitOr: (ast.BitAnd(),),
    }
)
_RELATED_FUNCTIONS = (
    ("exp", "exp2"),
    ("log", "log2", "log10"),
    ("tanh", "sigmoid", "erf", "hard_sigmoid", "atan"),
    ("floor", "ceil", "trunc", "round", "round_half_up"),
    ("max", "min"),
    ("largest", "smallest", "mean", "total", "product"),
    ("sin", "cos", "tan"),
    ("sinh", "cosh", "tanh"),
)
_LARGE_NUMBERS = (1e4, 1e9, 65504.0, float(np.finfo(np.float32).max))
"""Numbers that stand for infinity in masks."""
_SHORT_FORMATS = {
    "in_int32": "in 32 bits and wraps around",
    "in_int16": "in 16 bits and wraps around",
    "in_float16": "in float16 and becomes infinite beyond 65504",
    "saturated_in_float16": "within the range of float16",
}
_MAX_RANK = 4
