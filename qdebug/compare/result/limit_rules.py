"""Limits for some tensors, and divergences that somebody has looked at and accepted for a while."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fnmatch import translate
from numbers import Real
from typing import Any, Protocol

from qdebug.errors import UsageError

__all__ = ["BOUNDS", "Acknowledgement", "LimitRule", "Named", "RuleFinder", "check_bounds", "unused_entries"]

BOUNDS = ("min_sqnr", "max_lsb", "atol", "rtol", "max_saturation")
"""Names of the limits that can be set for all tensors or for some."""

_WILD = re.compile(r"[*?\[]")


def check_bounds(entry: object) -> None:
    """Check that the limits of an entry are limits; what every comparison with them would let pass is none.

    Args:
        entry: Has the attributes `BOUNDS`.

    Raises:
        UsageError: One of them is no number, NaN, below 0, or a share above 1.
    """
    for name in BOUNDS:
        value = getattr(entry, name)
        if value is None:
            continue
        number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
        if math.isnan(number):
            raise UsageError(f"The limit {name} is {value!r} and must be a number.", hint=f"Give one: {name}=1.")
        if name != "min_sqnr" and number < 0:
            raise UsageError(f"The limit {name} is {value!r} and must be at least 0.", hint=f"Give more: {name}=1.")
        if name == "max_saturation" and number > 1:
            raise UsageError(f"The limit {name} is {value!r} and must be a share.", hint="Give 0.01 for one per cent.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRule:
    """Limits for the tensors that fit its patterns; what it does not set is no limit there.

    Args:
        tensor: Pattern (`*`, `?`, `[seq]`) for the name of the backend's tensor.
        node: Pattern for the name of the backend's node.
        op: Pattern for the operator of the backend's node.
        min_sqnr: Least SQNR in dB.
        max_lsb: Largest difference in steps of the backend's scale.
        atol: Largest absolute difference; with `rtol`, each element may differ by atol + rtol*abs(reference).
        rtol: Relative part of that.
        max_saturation: Largest share of codes at the ends of their range, a Relu's zeros not counted; 0 to 1.

    Raises:
        UsageError: A limit is no number, or one that means nothing.
    """

    tensor: str = "*"
    node: str = "*"
    op: str = "*"
    min_sqnr: float | None = None
    max_lsb: float | None = None
    atol: float | None = None
    rtol: float | None = None
    max_saturation: float | None = None

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    def bounds(self) -> dict[str, float | None]:
        """Every limit by name; None where it is not set."""
        return {name: getattr(self, name) for name in BOUNDS}

    @property
    def patterns(self) -> dict[str, str]:
        """The patterns that are set, by name."""
        return {name: text for name in ("tensor", "node", "op") if (text := getattr(self, name)) != "*"}

    def to_dict(self) -> dict[str, Any]:
        """Give the rule as plain values, without what it does not set."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in plain.items() if value not in (None, "*")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """A node that may be beyond its limit: it stays visible, and counts for nothing until it expires.

    Args:
        node: Exact name of a backend node; of a graph input, the tensor's.
        reason: Why that is all right.
        expires: The last day on which it holds, as YYYY-MM-DD; None if it holds for ever.
        expired: Whether that day is over.
    """

    node: str
    reason: str
    expires: str | None = None
    expired: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Give the acknowledgement as plain values, without the name: a result carries it."""
        return {"reason": self.reason, "expires": self.expires, "expired": self.expired}


class Named(Protocol):
    """Whatever has the names that a rule looks at."""

    @property
    def tensor(self) -> str:
        """The backend's tensor."""

    @property
    def node(self) -> str:
        """Its node."""

    @property
    def op(self) -> str:
        """The node's operator."""


class RuleFinder:
    """Finds the rule that holds for a tensor: the last one that fits.

    Args:
        rules: In their order.
    """

    def __init__(self, rules: Sequence[LimitRule]) -> None:
        self._rules = rules
        self._patterns = [(_compiled(rule.tensor), _compiled(rule.node), _compiled(rule.op)) for rule in rules]
        self._named: dict[str, list[int]] = {}
        self._rest: list[int] = []
        for position, rule in enumerate(rules):
            if _WILD.search(rule.tensor):
                self._rest.append(position)
            else:  # thousands of rules that name one tensor each must not be tried one after the other
                self._named.setdefault(rule.tensor, []).append(position)

    def find(self, entry: Named) -> LimitRule | None:
        """Give the rule for a tensor; None if no rule fits."""
        for position in sorted([*self._rest, *self._named.get(entry.tensor, [])], reverse=True):
            patterns = zip(self._patterns[position], (entry.tensor, entry.node, entry.op), strict=True)
            if all(pattern is None or pattern.match(name) for pattern, name in patterns):
                return self._rules[position]
        return None


def unused_entries(
    rules: Sequence[LimitRule], acknowledged: Sequence[Acknowledgement], entries: Sequence[Named]
) -> list[str]:
    """Say of each rule that decides for no tensor, and of each acknowledged node that there is not, that it is so.

    Args:
        rules: In their order.
        acknowledged: In their order.
        entries: What was compared.
    """
    finder = RuleFinder(rules)
    used = {id(finder.find(entry)) for entry in entries}
    nodes = {entry.node for entry in entries}
    said = [
        f"rule {number} ({', '.join(f'{name} = {value!r}' for name, value in rule.patterns.items())}) holds for nothing"
        for number, rule in enumerate(rules, 1)
        if id(rule) not in used
    ]
    return said + [
        f"there is no node {entry.node!r} to acknowledge" for entry in acknowledged if entry.node not in nodes
    ]


def _compiled(pattern: str) -> re.Pattern[str] | None:
    """Give the regular expression of a pattern; None for one that fits everything."""
    return None if pattern == "*" else re.compile(translate(pattern))
