"""Mistakes of recurrent kernels in states and buffers kept between steps, units and samples. Begin at `edited_states`.

A state is overwritten while it is still read (https://github.com/onnx/onnx-mlir/pull/367), a work buffer is not cleared
(https://github.com/microsoft/onnxruntime/pull/3893) or holds the step before, or a sample begins with another's state.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, islice
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.definitions.definition import Definition, Line, Value
from qdebug.arithmetic.mistakes.edits import DEFINITION, EditedResult, is_reproduced, parts_of, with_parts
from qdebug.arithmetic.mistakes.mistake import Mistake, always
from qdebug.model import Node
from qdebug.model.thresholds.explanation import FURTHER_CAUSE_MAX_SUMS
from qdebug.model.thresholds.patterns import KERNEL_BLOCKS

__all__ = ["edited_states"]


def edited_states(
    node: Node, definition: Definition | None, right: np.ndarray, values: Mapping[str, np.ndarray]
) -> Iterator[Mistake]:
    """Yield the mistakes of a recurrent node with states and work buffers, as many as may be tried.

    Args:
        node: The node.
        definition: Its definition, or None if there is none for its operator.
        right: Its right result. Without edits, the definition must reproduce it.
        values: Its inputs.
    """
    if definition is None or not definition.steps:
        return
    cost = _step_count(definition) * len(definition.lines)
    if cost > _MAX_LINES or not is_reproduced(definition, definition.evaluate(definition.lines), right):
        return
    for clause, result in (*_overwritten_states(definition), *_shared_states(definition)):
        yield Mistake(likely=clause, node=node, values={}, after=always(result.astype(right.dtype)))
    with_terms = _with_input_biases(definition, node, values)
    edits = chain(_factors_in_state(definition), _kept_terms(with_terms))
    for clause, edited in islice(edits, _MAX_LINES // cost):
        last = len(edited.lines) - 1
        after = EditedResult(edited, edited.values, last, edited.lines[last][1])
        yield Mistake(likely=clause, node=node, values={}, after=after, about=DEFINITION)


_MAX_LINES = FURTHER_CAUSE_MAX_SUMS // (1 << 15)
"""Maximum number of lines that are evaluated for a kind of mistake. A short line costs as much as 32,768 products."""


def _step_count(definition: Definition) -> int:
    return len(next(iter(definition.steps.values())))


def _overwritten_states(definition: Definition) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the results if each unit, or block of units, overwrites its state before the next is computed."""
    size = np.shape(definition.values["hidden"])[-1]
    for block in (1, *(each for each in KERNEL_BLOCKS if each < size)):
        unit = "unit" if block == 1 else f"block of {block} units"
        if _step_count(definition) * -(-size // block) * len(definition.lines) > _MAX_LINES:
            continue
        for first in _first_lines_in_place(definition):
            since = f", from {definition.lines[first][0]!r} on" if first else ""
            clause = f"the hidden state is updated in place: each {unit} reads the new state of those before it{since}"
            yield clause, definition.finish(_computed_in_place(definition, first, block))


def _first_lines_in_place(definition: Definition) -> Iterator[int]:
    """Yield the lines from which on one unit can be computed after another.

    The state is a factor of a matrix product there, whose other factors were computed for all units.
    """
    names = [name for name, _ in definition.lines]
    end = names.index("new_hidden") + 1
    for first in range(end):
        factors = [_names(product.args[0]) for _, line in definition.lines[first:end] for product in _products(line)]
        is_known = not any(each & set(names[first:end]) for each in factors)
        if (
            is_known
            and any("hidden" in each for each in factors)
            and (not first or _products(definition.lines[first - 1][1]))
        ):
            yield first


def _products(expression: ast.expr) -> list[ast.Call]:
    """Return the matrix products of an expression."""
    calls = (part for part in ast.walk(expression) if isinstance(part, ast.Call))
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == _PRODUCT]


def _names(expression: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(expression) if isinstance(part, ast.Name)}


_PRODUCT = "matmul"


def _computed_in_place(definition: Definition, first: int, block: int) -> np.ndarray:
    """Return the results of all steps if blocks of units overwrite the state that the next blocks read.

    Args:
        definition: The definition.
        first: Index of the first line that is computed for one block after another.
        block: Number of units of a block.
    """
    names: dict[str, Value] = dict(definition.values)
    end = [name for name, _ in definition.lines].index("hidden") + 1
    for_all, later = definition.lines[:first], definition.lines[end:]
    for_block = [(name, _with_whole_factors(line)) for name, line in definition.lines[first:end]]
    results = []
    for step in range(_step_count(definition)):
        names.update({name: array[step] for name, array in definition.steps.items()})
        names = definition.evaluate_once(for_all, names)
        made = {name: np.array(names.get(name, names["zero"])) for name, _ in for_block}
        for start in range(0, made["hidden"].shape[-1], block):
            units = slice(start, start + block)
            read = {**names, "hidden": made["hidden"]}
            cut = {name: value[..., units] if isinstance(value, np.ndarray) else value for name, value in read.items()}
            whole = {_WHOLE + name: value for name, value in read.items()}
            computed = definition.evaluate_once(for_block, {**cut, **whole})
            for name, array in made.items():
                array[..., units] = computed[name]
        names = definition.evaluate_once(later, {**names, **made})
        results.append(np.asarray(names[definition.lines[-1][0]]))
    return np.stack(results)


_WHOLE = "whole_"


def _with_whole_factors(expression: ast.expr) -> ast.expr:
    """Return an expression in which the first factors of matrix products have names of arrays with all units."""
    changed = ast.parse(ast.unparse(expression), mode="eval").body
    for product in _products(changed):
        for part in ast.walk(product.args[0]):
            if isinstance(part, ast.Name):
                part.id = _WHOLE + part.id
    return changed


def _factors_in_state(definition: Definition) -> Iterator[tuple[str, Definition]]:
    """Yield definitions in which a product with the state that is the factor of a matrix product replaces the state."""
    for at, (name, line) in enumerate(definition.lines):
        for product in _products(line):
            factor = product.args[0]
            if isinstance(factor, ast.BinOp) and "hidden" in _names(factor):
                lines = list(definition.lines)
                lines[at : at + 1] = [("hidden", factor), (name, _replaced(line, factor, ast.Name(id="hidden")))]
                yield (
                    f"{ast.unparse(factor)} replaces the hidden state in place",
                    replace(definition, lines=tuple(lines)),
                )


def _shared_states(definition: Definition) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the results if one sample begins with the state that another left."""
    directions, batch, size = np.shape(definition.values["hidden"])
    steps = _step_count(definition)
    if batch == 1 or "running" in definition.steps or steps * batch * len(definition.lines) > _MAX_LINES:
        return
    values = {name: _of_first_sample(name, value) for name, value in definition.values.items()}
    for clause, place, extents in (
        ("each sample begins with the last state of the sample before", 0, (batch, steps)),
        ("the samples share one state, which each changes in turn in each step", 1, (steps, batch)),
    ):
        data = {
            name: np.moveaxis(array, 2, place).reshape(steps * batch, directions, 1, -1)
            for name, array in definition.steps.items()
        }
        joined = replace(definition, values=values, steps=data)
        result = np.asarray(joined.evaluate(joined.lines)[joined.lines[-1][0]])
        yield clause, definition.finish(np.moveaxis(result.reshape(*extents, directions, size), place, 2))


def _of_first_sample(name: str, value: Value) -> Value:
    """Return a value of (direction, sample, unit) for the first sample only, and others as they are."""
    return value if name.startswith("w_") or not isinstance(value, np.ndarray) else value[:, :1]


def _with_input_biases(definition: Definition, node: Node, values: Mapping[str, np.ndarray]) -> Definition:
    """Return a definition whose sums have the input biases as terms of their own, if there are any."""
    bias = values.get(node.inputs[_BIAS_SLOT]) if len(node.inputs) > _BIAS_SLOT else None
    if bias is None:
        return definition
    shape = np.shape(definition.values["hidden"])
    gates = [name.removeprefix("x_") for name in definition.steps if name.startswith("x_")]
    parts = np.split(bias.astype(np.float64)[:, : bias.shape[1] // 2], len(gates), axis=1)
    biases = {f"own_{gate}": np.broadcast_to(part[:, None], shape) for gate, part in zip(gates, parts, strict=True)}
    steps = {
        **definition.steps,
        **{f"x_{gate}": definition.steps[f"x_{gate}"] - biases[f"own_{gate}"] for gate in gates},
    }
    lines = definition.lines
    for gate in gates:
        total = ast.BinOp(ast.Name(id=f"x_{gate}"), ast.Add(), ast.Name(id=f"own_{gate}"))
        lines = tuple((name, _with_name_replaced(line, f"x_{gate}", total)) for name, line in lines)
    return replace(definition, lines=lines, steps=steps, values={**definition.values, **biases})


_BIAS_SLOT = 3
"""Slot of the input with the biases of a recurrent layer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sum:
    """A sum in a line of a definition.

    Args:
        line: Index of the line.
        expression: The sum.
        terms: Its terms, by role: a key of `_TITLES`.
    """

    line: int
    expression: ast.expr
    terms: Mapping[str, ast.expr]


_TITLES = MappingProxyType(
    {
        "product": "product with the recurrent weight",
        "b": "recurrent bias",
        "own": "input bias",
        "x": "product of the input",
    }
)
"""The terms of a gate, by the first part of their name. Those of the state are products."""


def _kept_terms(definition: Definition) -> Iterator[tuple[str, Definition]]:
    """Yield definitions in which terms of sums add to those of the steps before, or are those of the step before."""
    sums = list(_sums(definition))
    for count in range(1, len(_TITLES) + 1):
        for roles in combinations(_TITLES, count):
            fitting = [each for each in sums if each.terms.keys() >= set(roles)]
            innermost = list({each.line: each for each in fitting}.values())
            groups = [[each] for each in fitting]
            groups += [list(group) for size in range(2, len(innermost) + 1) for group in combinations(innermost, size)]
            for group in reversed(groups):
                terms = " and the ".join(_TITLES[role] for role in roles)
                if any(isinstance(each.terms.get("product"), ast.BinOp) for each in group):
                    terms = terms.replace("product with", "gated product with")
                gates = " and ".join(repr(definition.lines[each.line][0]) for each in group)
                clause = f"the buffer of the {terms} of {gates} is not cleared: each step adds to those before"
                yield clause, _with_buffer(definition, group, roles, is_late=False)
                if not {"product", "x"}.isdisjoint(roles):  # biases are the same in all steps
                    clause = f"the {terms} of {gates} {'is' if count == 1 else 'are'} that of the step before"
                    yield clause, _with_buffer(definition, group, roles, is_late=True)


def _sums(definition: Definition) -> Iterator[_Sum]:
    """Yield the sums of a definition with terms of a gate, outer sums first."""
    for at, (_, line) in enumerate(definition.lines):
        parts = set[int]()
        for expression in ast.walk(line):
            if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add) and id(expression) not in parts:
                terms = _terms(expression, parts)
                roles = {_role(term): term for term in terms}
                if roles.keys() & _TITLES.keys():
                    yield _Sum(line=at, expression=expression, terms=roles)


def _terms(expression: ast.expr, sums: set[int]) -> list[ast.expr]:
    """Return the terms of a sum, and add the identities of the sums inside to a set."""
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add):
        sums.add(id(expression))
        return [*_terms(expression.left, sums), *_terms(expression.right, sums)]
    return [expression]


def _role(term: ast.expr) -> str:
    """Return the role of a term of a sum. That of other terms, such as of a peephole, is their text."""
    if isinstance(term, ast.Name) and term.id.split("_")[0] in _TITLES:
        return term.id.split("_")[0]
    return "product" if _products(term) else ast.unparse(term)


def _with_buffer(definition: Definition, group: Sequence[_Sum], roles: Sequence[str], *, is_late: bool) -> Definition:
    """Return a definition that keeps terms of sums in buffers: their sum over all steps, or those of the step before.

    Args:
        definition: The definition.
        group: The sums, at most one of a line.
        roles: The roles of the terms.
        is_late: Whether a buffer is read before it is written.
    """
    lines: list[Line] = []
    of_line = {each.line: each for each in group}
    buffers: dict[str, Value] = {}
    for at, (name, line) in enumerate(definition.lines):
        if at not in of_line:
            lines.append((name, line))
            continue
        terms = of_line[at].terms
        buffer, read = ast.Name(id=f"kept_{name}"), ast.Name(id=f"read_{name}")
        buffers[buffer.id] = np.zeros(np.shape(definition.values["hidden"]))
        kept = _added([terms[role] for role in roles])
        writes = [(read.id, buffer), (buffer.id, kept)]
        if not is_late:
            writes = [(buffer.id, ast.BinOp(buffer, ast.Add(), kept)), (read.id, buffer)]
        total = _added([*(term for role, term in terms.items() if role not in roles), read])
        lines += [*writes, (name, _replaced(line, of_line[at].expression, total))]
    return replace(definition, lines=tuple(lines), values={**definition.values, **buffers})


def _added(terms: Sequence[ast.expr]) -> ast.expr:
    total, *others = terms
    for term in others:
        total = ast.BinOp(total, ast.Add(), term)
    return total


def _replaced(expression: ast.expr, old: ast.expr, new: ast.expr) -> ast.expr:
    """Return an expression with one of its parts replaced."""
    if expression is old:
        return new
    return with_parts(expression, [_replaced(part, old, new) for part in parts_of(expression)])


def _with_name_replaced(expression: ast.expr, name: str, new: ast.expr) -> ast.expr:
    """Return an expression with a name replaced everywhere."""
    if isinstance(expression, ast.Name):
        return new if expression.id == name else expression
    return with_parts(expression, [_with_name_replaced(part, name, new) for part in parts_of(expression)])
