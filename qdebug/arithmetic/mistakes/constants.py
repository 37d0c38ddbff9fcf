"""The constants of an operator's definition, as numbers whose wrong value is solved for. Begin at `constant_dials`."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping

import numpy as np

from qdebug.arithmetic.definitions.definition import Definition, Value
from qdebug.arithmetic.mistakes.edits import EditedResult, is_reproduced
from qdebug.arithmetic.mistakes.fits import Dial
from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.model import Node

__all__ = ["constant_dials"]

_SIMPLE = frozenset((0, 1, 2, 3, 0.5))
"""Constants that formulas have as such. Edits of the definition try other values of them."""
_MAX_ELEMENTS = 1 << 20


def constant_dials(node: Node, definition: Definition | None, right: np.ndarray) -> Iterator[Dial]:
    """Yield the constants of a definition that a kernel may have wrong, such as 0.044715 of a Gelu.

    Args:
        node: The node.
        definition: Its definition, or None if there is none for its operator.
        right: Its right result, which the definition must reproduce.
    """
    if definition is None or definition.steps or right.size > _MAX_ELEMENTS:
        return
    if not any(_constants(expression) for _, expression in definition.lines):
        return
    if not is_reproduced(definition, definition.evaluate(definition.lines), right):
        return
    names = dict(definition.values)
    for line, (name, expression) in enumerate(definition.lines):
        before = dict(names)
        for place, constant in enumerate(_constants(expression)):
            start = float(str(constant.value))

            def set_to(
                number: float, line: int = line, place: int = place, before: Mapping[str, Value] = before
            ) -> Mistake:
                changed = copy.deepcopy(definition.lines[line][1])
                _constants(changed)[place].value = number
                after = EditedResult(definition, before, line, changed)
                return Mistake(likely="", node=node, values={}, after=after)

            text = f"the constant {start:g} in {name} = {ast.unparse(expression)} is {{}}"
            yield Dial(title=f"constant {start:g}", start=start, text=text, set_to=set_to)
        names = definition.evaluate([definition.lines[line]], names)


def _constants(expression: ast.expr) -> list[ast.Constant]:
    """Return the constants of an expression that a formula does not have as such, in order."""
    nodes = (each for each in ast.walk(expression) if isinstance(each, ast.Constant))
    return [each for each in nodes if isinstance(each.value, int | float) and each.value not in _SIMPLE]
