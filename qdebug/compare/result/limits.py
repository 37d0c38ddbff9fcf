"""Limits: what counts as divergence, and what may be missing from a comparison."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase, translate
from numbers import Real
from typing import Annotated, Any, Protocol

from qdebug.compare.align.pairs import Unmatched
from qdebug.errors import UsageError
from qdebug.model.json_object import JsonObject, SchemaPart
from qdebug.model.thresholds.verdict import CODES_MIN_SQNR, DEFAULT_MIN_SQNR, DERIVED_LSB, OUTPUT_MIN_SQNR
from qdebug.numerics.stats import ErrorStats

__all__ = [
    "ALL_BOUNDS",
    "BOUNDS",
    "DECIBELS",
    "LIMITS_SCHEMA",
    "Acknowledgement",
    "LimitRule",
    "Limits",
    "Named",
    "RuleFinder",
    "check_bounds",
    "checked_limits",
    "unused_entries",
]

BOUNDS = ("min_sqnr", "max_lsb", "atol", "rtol", "max_saturation")
"""Names of the limits that can be set for all tensors or for some."""
ALL_BOUNDS = (*BOUNDS, "min_output_sqnr")
"""The same, and the limit of a whole comparison."""

DECIBELS = ("min_sqnr", "min_output_sqnr")
"""Limits in dB, the only ones that may be below 0."""

LIMITS_SCHEMA = SchemaPart(
    {
        "required": ["source"],
        "properties": {
            "source": {"enum": ["derived", "given", "default"]},
            "file": {"type": "string"},
            "rules": {"type": "array", "items": {"type": "object"}},
            "acknowledged": {"type": "array", "items": {"type": "object", "required": ["node", "reason"]}},
            "allow": {"type": "object"},
        },
    }
)
"""JSON Schema of `Limits.to_dict`, as far as its keys do not depend on the limits."""

_WILD = re.compile(r"[*?\[]")


def check_bounds(entry: object, names: Sequence[str] = BOUNDS) -> None:
    """Check that the limits of an entry are limits; what every comparison with them would let pass is none.

    Args:
        entry: What has the limits.
        names: Its attributes that are limits.

    Raises:
        UsageError: One of them is no number, NaN, below 0, or a share above 1.
    """
    for name in names:
        value = getattr(entry, name)
        if value is None:
            continue
        number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
        if math.isnan(number):
            raise UsageError(f"The limit {name} must be a number, but is {value!r}.", hint=f"Give one: {name}=1.")
        if name not in DECIBELS and number < 0:
            raise UsageError(f"The limit {name} must be at least 0, but is {value!r}.", hint=f"Give more: {name}=1.")
        if name == "max_saturation" and number > 1:
            raise UsageError(
                f"The limit {name} must be a share from 0 to 1, but is {value!r}.", hint="Give 0.01 for 1 %."
            )


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
        max_saturation: Largest share of clipped values: those of the reference that the codes cannot represent; 0 to 1.

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
        """Return the rule as plain values, without what it does not set."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in plain.items() if value not in (None, "*")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement(JsonObject):
    """A node that may be beyond its limit: it stays visible, and counts for nothing until it expires.

    Args:
        node: Exact name of a backend node; of a graph input, the tensor's.
        reason: Why that is all right.
        expires: The last day on which it holds, as YYYY-MM-DD; None if it holds for ever.
        expired: Whether that day is over.
    """

    json_keys = "reason expires expired"

    node: str
    reason: str
    expires: Annotated[str, SchemaPart(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$")] | None = None
    expired: bool = False


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
        """Return the rule for a tensor; None if no rule fits."""
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
        f"rule {number} ({', '.join(f'{name} = {value!r}' for name, value in rule.patterns.items())}) matches no tensor"
        for number, rule in enumerate(rules, 1)
        if id(rule) not in used
    ]
    return said + [
        f"the acknowledged node {entry.node!r} does not exist" for entry in acknowledged if entry.node not in nodes
    ]


def _compiled(pattern: str) -> re.Pattern[str] | None:
    """Return the regular expression of a pattern; None for one that fits everything."""
    return None if pattern == "*" else re.compile(translate(pattern))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a tensor's error may be, and what may be left out.

    Limits that are given judge a tensor's whole error; where several are given, all must hold. With none given, limits
    are derived: a node is judged by the error it introduces itself, in steps of its own output if that is quantized,
    against the rounding of its sums if it is not. A node that cannot be replayed is judged by its whole error, with
    `DEFAULT_MIN_SQNR`, or `CODES_MIN_SQNR` where that is no more than it may introduce itself. Integers that are no
    codes, and booleans, must be what the node's inputs give, to the last one. For a tensor that a rule fits, the rule's
    limits hold instead of these.

    Args:
        min_sqnr: Least SQNR in dB.
        max_lsb: Largest difference in steps of the backend's scale; holds for quantized tensors alone.
        atol: Largest absolute difference; with `rtol`, each element may differ by atol + rtol*abs(reference).
        rtol: Relative part of that.
        max_saturation: Largest share of clipped values: those of the reference that the codes cannot represent. Codes
            at qmin or qmax alone do not count. Judged beside the error, given or derived.
        min_output_sqnr: Least SQNR in dB of each output of the network that holds real numbers or codes, judged where
            no node is beyond its limit; `OUTPUT_MIN_SQNR` where no limit is given. Give -inf for none.
        rules: Limits for some tensors; the last rule that fits a tensor holds.
        acknowledged: Nodes that may be beyond their limits; of several for one node the last holds.
        file: Where these limits were read; None if nowhere.
        explain: Look for the arithmetic of quantized nodes that differ; one that is reproduced bit for bit is within
            derived limits.
        allow_partial: Accept a recording that is marked incomplete.
        allow_unfaithful: Accept a recording that changed the result it observed.
        allow_different_inputs: Compare runs whose inputs differ.
        allow_uncompared: Lost tensors to accept: a number of them, or name patterns.

    Raises:
        UsageError: A limit is no number, or one that means nothing.

    Example:
        >>> limits = qdebug.Limits(max_lsb=100, min_output_sqnr=5)
        >>> qdebug.diff("float.h5", "int8.h5", limits=limits).exit_code
        1
    """

    min_sqnr: float | None = None
    max_lsb: float | None = None
    atol: float | None = None
    rtol: float | None = None
    max_saturation: float | None = None
    min_output_sqnr: float | None = None
    rules: tuple[LimitRule, ...] = ()
    acknowledged: tuple[Acknowledgement, ...] = ()
    file: str | None = None
    explain: bool = True
    allow_partial: bool = False
    allow_unfaithful: bool = False
    allow_different_inputs: bool = False
    allow_uncompared: int | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_bounds(self, ALL_BOUNDS)

    @property
    def given(self) -> bool:
        """Whether the user set a limit on the error."""
        return any(value is not None for value in (self.min_sqnr, self.max_lsb, self.atol, self.rtol))

    def under(self, rule: LimitRule | None) -> Limits:
        """Return the limits of a tensor.

        Args:
            rule: The rule that holds for it; None if no rule does.
        """
        return self if rule is None else replace(self, **rule.bounds)  # type: ignore[arg-type]  # bounds are no flags

    def acknowledgement(self, node: str) -> Acknowledgement | None:
        """Return what is acknowledged of a backend node; None if nothing is."""
        return next((entry for entry in reversed(self.acknowledged) if entry.node == node), None)

    def accepting_nothing(self) -> Limits:
        """Return the same limits without anything that may be missing."""
        nothing: dict[str, Any] = {"allow_partial": False, "allow_unfaithful": False, "allow_different_inputs": False}
        return replace(self, **nothing, allow_uncompared=())

    @property
    def sqnr_in_force(self) -> float | None:
        """The least SQNR that is applied where a replay does not judge; none beside other limits of the user."""
        return self.min_sqnr if self.given else DEFAULT_MIN_SQNR

    @property
    def output_sqnr_in_force(self) -> float | None:
        """The least SQNR of an output of the network; None if the user's other limits alone judge."""
        if self.min_output_sqnr is not None:
            return self.min_output_sqnr
        return None if self.given else OUTPUT_MIN_SQNR

    @property
    def tolerance(self) -> tuple[float, float] | None:
        """The pair (atol, rtol) if either was given."""
        return None if self.atol is None and self.rtol is None else (self.atol or 0.0, self.rtol or 0.0)

    def judge_whole(self, stats: ErrorStats) -> bool:
        """Tell whether the user's limits judge a tensor: they do not if they are in steps, and it has none.

        Args:
            stats: The tensor's error.
        """
        return self.given and (stats.max_lsb is not None or (self.min_sqnr, self.tolerance) != (None, None))

    def not_allowed(self, lost: tuple[Unmatched, ...]) -> tuple[Unmatched, ...]:
        """Return the lost tensors that are not accepted."""
        if isinstance(self.allow_uncompared, int):
            return lost if len(lost) > self.allow_uncompared else ()
        patterns = self.allow_uncompared
        return tuple(entry for entry in lost if not any(fnmatchcase(entry.tensor, pattern) for pattern in patterns))

    def to_dict(self) -> dict[str, Any]:
        """Return the limits in force as plain values, with the keys of the diff JSON."""
        plain: dict[str, Any] = {"source": "given" if self.given else "derived"}
        if not self.given:
            plain |= {
                "introduced_lsb": DERIVED_LSB,
                "reproduced_is_within": self.explain,
                "min_sqnr_of_range": DEFAULT_MIN_SQNR,
                "min_sqnr_of_scale": CODES_MIN_SQNR,
                "min_sqnr_without_replay": DEFAULT_MIN_SQNR,
                "introduced_of_integers": 0,
            }
        plain |= {name: getattr(self, name) for name in BOUNDS if getattr(self, name) is not None}
        if self.output_sqnr_in_force is not None:
            plain["min_output_sqnr"] = self.output_sqnr_in_force
        if self.file is not None:
            plain["file"] = self.file
        if self.rules:
            plain["rules"] = [rule.to_dict() for rule in self.rules]
        if self.acknowledged:
            plain["acknowledged"] = [{"node": entry.node, **entry.to_dict()} for entry in self.acknowledged]
        allowed = {
            "partial": self.allow_partial,
            "unfaithful": self.allow_unfaithful,
            "different_inputs": self.allow_different_inputs,
            "uncompared": (
                self.allow_uncompared if isinstance(self.allow_uncompared, int) else list(self.allow_uncompared)
            ),
        }
        return {**plain, "allow": allowed}


def checked_limits(limits: Limits | None) -> Limits:
    """Return limits as they were passed, or those in force where none were.

    Raises:
        UsageError: It is something else.
    """
    if limits is not None and not isinstance(limits, Limits):
        raise UsageError(
            f"limits must be a qdebug.Limits, but is a {type(limits).__name__}.",
            hint="Create limits with qdebug.Limits(max_lsb=1), or read a file with qdebug.load_limits(path).",
        )
    return limits or Limits()
