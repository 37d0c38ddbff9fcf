"""The first appearance of a NaN or an infinity: where it is, why it appears, and which inputs cause it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from qdebug.model.json_object import JsonObject

__all__ = ["Birth", "BirthOperand", "BirthRule", "Selector"]


class BirthRule(StrEnum):
    """Why the result of a node is not finite."""

    OVERFLOW = "overflow"
    """The exact result exceeds the largest number of the format."""
    UNSCALED_OVERFLOW = "unscaled_overflow"
    """The exact result exceeds the largest number of the format before it is multiplied by a factor."""
    SUM_OVERFLOW = "sum_overflow"
    """The exact result fits the format, but the sum of the terms' magnitudes does not."""
    INSIDE_OVERFLOW = "inside_overflow"
    """The exact result fits the format, but the operand's exponential overflows at exactly the non-finite elements."""
    LARGE_INPUTS = "large_inputs"
    """The exact result fits the format. The results of all inputs beyond a threshold are not finite, and no others."""
    ZERO_BY_ZERO = "0/0"
    BY_ZERO = "x/0"
    INFINITY_BY_INFINITY = "inf/inf"
    INFINITIES = "inf-inf"
    ZERO_TIMES_INFINITY = "0*inf"
    DOMAIN = "domain"
    """The function has no finite value there, like the logarithm of 0."""
    POWER = "power"
    """A negative number is raised to a fraction, or 0 to a negative power."""
    TAKEN = "taken"
    """The element is selected from values that are equal on both sides."""
    CONSTANT = "constant"
    """A constant of the node is not finite."""
    UNDEFINED = "undefined"
    """The exact result is not finite either."""
    ARITHMETIC = "arithmetic"
    """The exact result is finite and fits the format."""
    UNKNOWN = "unknown"
    """The node cannot be recomputed, but its inputs are finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BirthOperand:
    """An operand of the node.

    Args:
        tensor: The input.
        value: The element that the result depends on. For operators that are not elementwise, the largest magnitude.
    """

    tensor: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """An input whose error alone makes the result infinite or NaN.

    Args:
        tensor: The input.
        difference: The difference between its value and the reference's at this element, or the largest if there are
            several.
    """

    tensor: str
    difference: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth(JsonObject):
    """A NaN or an infinity that no input of its node explains.

    Args:
        node: The backend node.
        op: Its operator.
        tensor: Its output, which may have no partner in the reference.
        sample: The first sample in which it appears.
        step: The first step.
        index: The first element.
        value: NaN or an infinity.
        elements: Number of such elements in this sample and step.
        rule: Why it is not finite.
        function: The function that is undefined there. "" for other rules.
        operands: The inputs of the node that the rule concerns.
        exact: The exact result at this element, or None if unknown.
        format: The format that overflows. "" for other rules.
        largest: The largest number of that format; None for other rules.
        selected: Inputs whose reference values make the result finite, or non-finite exactly as in the reference.
    """

    json_keys = (
        "node op tensor sample step index value elements rule function operands exact format largest selected sentence"
    )

    node: str
    op: str
    tensor: str
    sample: int
    step: int
    index: tuple[int, ...]
    value: float
    elements: int
    rule: BirthRule
    function: str = ""
    operands: tuple[BirthOperand, ...] = ()
    exact: float | None = None
    format: str = ""
    largest: float | None = None
    selected: tuple[Selector, ...] = ()

    @property
    def sentence(self) -> str:
        """The element and the rule, as one clause."""
        place = f"element {list(self.index)}" if self.index else "the only element"
        return f"{place} is {_number_text(self.value)} because {self._why}"

    @property
    def _why(self) -> str:
        values = [_number_text(operand.value) for operand in self.operands]
        size = "an infinity" if self.exact is None else _number_text(self.exact)
        beyond = f"beyond {_number_text(self.largest or 0.0)}, the largest {self.format} value"
        result = "its exact result" if self.exact is None else f"its exact result {size}"
        beyond_threshold = _threshold_text([operand.value for operand in self.operands])
        sums = f"a partial sum is {beyond}; the exact result is {size}"
        first = values[0] if values else "an operand"
        last = values[-1] if values else "an operand"
        names = [repr(operand.tensor) for operand in self.operands] or ["an input"]
        return {
            BirthRule.OVERFLOW: f"{result} is {beyond}",
            BirthRule.UNSCALED_OVERFLOW: f"its result before scaling by {' and '.join(names)}, {size}, is {beyond}",
            BirthRule.SUM_OVERFLOW: sums,
            BirthRule.INSIDE_OVERFLOW: f"exp of {names[0]} = {first} is {beyond}; the exact result is {size}",
            BirthRule.LARGE_INPUTS: f"its node fails for all {names[0]} {beyond_threshold}; the exact result is {size}",
            BirthRule.ZERO_BY_ZERO: f"0 is divided by {names[-1]} = 0",
            BirthRule.BY_ZERO: f"{first if len(values) > 1 else '1'} is divided by {names[-1]} = 0",
            BirthRule.INFINITY_BY_INFINITY: "infinity is divided by infinity",
            BirthRule.INFINITIES: "infinity is subtracted from infinity",
            BirthRule.ZERO_TIMES_INFINITY: "0 is multiplied by infinity",
            BirthRule.DOMAIN: f"the {self.function} of {names[0]} = {first} is not finite",
            BirthRule.POWER: f"{names[0]} = {first} to the power of {last} is undefined",
            BirthRule.TAKEN: f"it is copied from {names[0]}; the reference copies a different value",
            BirthRule.CONSTANT: f"its constant {names[0]} contains {first}; the reference's does not",
            BirthRule.UNDEFINED: "its exact result is not finite either",
            BirthRule.ARITHMETIC: f"its node computes it wrongly; the exact result is {size}",
            BirthRule.UNKNOWN: "its node computes it from finite inputs",
        }[self.rule]


def _threshold_text(thresholds: Sequence[float]) -> str:
    """Return the range beyond one threshold, on its side of 0, or beyond the same threshold on both sides."""
    first = thresholds[0] if thresholds else 0.0
    if len(thresholds) > 1:
        return f"of magnitude from {_number_text(abs(first))} on"
    return f"from {_number_text(first)} {'on' if first > 0 else 'down'}"


def _number_text(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return f"{value:.6g}"
