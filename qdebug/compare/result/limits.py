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
    "LOGITS_BOUNDS",
    "SHARES",
    "Acknowledgement",
    "LimitRule",
    "Limits",
    "LogitsRule",
    "Named",
    "RuleFinder",
    "check_bounds",
    "checked_limits",
    "unused_entries",
    "unused_logits",
]

BOUNDS = ("min_sqnr", "max_lsb", "atol", "rtol", "max_saturation")
"""Names of the limits that can be set for all tensors or for some."""
ALL_BOUNDS = (*BOUNDS, "min_output_sqnr")
"""Names of all limits: those of tensors, and that of a whole comparison."""

LOGITS_BOUNDS = ("max_kl", "max_logprob_rms", "min_top1_agreement", "min_top5_overlap")
"""Limits of an output that holds logits, each named after its metric."""

SHARES = ("max_saturation", "min_top1_agreement", "min_top5_overlap")
"""Limits that are a share from 0 to 1."""

DECIBELS = ("min_sqnr", "min_output_sqnr")
"""Limits in dB, the only ones that may be negative."""

LIMITS_SCHEMA = SchemaPart(
    {
        "required": ["source"],
        "properties": {
            "source": {"enum": ["derived", "given", "default"]},
            "file": {"type": "string"},
            "rules": {"type": "array", "items": {"type": "object"}},
            "logits": {"type": "array", "items": {"type": "object", "required": ["tensor"]}},
            "acknowledged": {"type": "array", "items": {"type": "object", "required": ["node", "reason"]}},
            "allow": {"type": "object"},
        },
    }
)
"""JSON Schema of `Limits.to_dict`, as far as its keys are fixed."""

_WILD = re.compile(r"[*?\[]")


def check_bounds(entry: object, names: Sequence[str] = BOUNDS) -> None:
    """Check that the limits of an entry are valid. A limit that every comparison would pass is invalid.

    Args:
        entry: The object with the limits.
        names: Names of its attributes that are limits.

    Raises:
        UsageError: A limit is not a number, is NaN or below 0, or is a share above 1.
    """
    for name in names:
        value = getattr(entry, name)
        if value is None:
            continue
        number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
        if math.isnan(number):
            raise UsageError(f"The limit {name} must be a number, but is {value!r}.", hint=f"Give one: {name}=1.")
        if name not in DECIBELS and number < 0:
            raise UsageError(
                f"The limit {name} must be at least 0, but is {value!r}.", hint=f"Give a larger value: {name}=1."
            )
        if name in SHARES and number > 1:
            raise UsageError(
                f"The limit {name} must be a fraction from 0 to 1, but is {value!r}.", hint="Give 0.01 for 1 %."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRule:
    """Limits for the tensors that match its patterns. A limit that is not set does not apply there.

    Args:
        tensor: Pattern (`*`, `?`, `[seq]`) for the name of the backend's tensor.
        node: Pattern for the name of the backend's node.
        op: Pattern for the operator of the backend's node.
        min_sqnr: Minimum SQNR in dB.
        max_lsb: Largest difference in steps of the backend's scale.
        atol: Largest absolute difference. With `rtol`, each element may differ by atol + rtol*abs(reference).
        rtol: Relative part of that tolerance.
        max_saturation: Largest share, from 0 to 1, of clipped values: reference values that the codes cannot represent.

    Raises:
        UsageError: A limit is not a number, or is meaningless.
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
        """Every limit by name, or None if it is not set."""
        return {name: getattr(self, name) for name in BOUNDS}

    @property
    def patterns(self) -> dict[str, str]:
        """The patterns that are set, by name."""
        return {name: text for name in ("tensor", "node", "op") if (text := getattr(self, name)) != "*"}

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as plain values, without unset limits."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in plain.items() if value not in (None, "*")}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsRule:
    """Outputs of the network whose last axis holds logits, or probabilities behind a Softmax, and their limits.

    Args:
        tensor: Pattern (`*`, `?`, `[seq]`) for the name of the backend's output.
        max_kl: Largest mean Kullback-Leibler divergence, in nats.
        max_logprob_rms: Largest root mean square of the log-probability ratio, in nats.
        min_top1_agreement: Smallest share of vectors with the reference's winner, from 0 to 1.
        min_top5_overlap: Smallest mean share of the five highest scores in common, from 0 to 1.

    Raises:
        UsageError: A limit is not a number, or is meaningless.
    """

    tensor: str
    max_kl: float | None = None
    max_logprob_rms: float | None = None
    min_top1_agreement: float | None = None
    min_top5_overlap: float | None = None

    def __post_init__(self) -> None:
        check_bounds(self, LOGITS_BOUNDS)

    @property
    def bounds(self) -> dict[str, float]:
        """The limits that are set, by name."""
        return {name: value for name in LOGITS_BOUNDS if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement(JsonObject):
    """A node that may exceed its limit. It stays visible but does not count until the acknowledgement expires.

    Args:
        node: Exact name of a backend node, or of the tensor for a graph input.
        reason: Why that is acceptable.
        expires: The last day on which it is valid, as YYYY-MM-DD, or None if it never expires.
        expired: Whether that day has passed.
    """

    json_keys = "reason expires expired"

    node: str
    reason: str
    expires: Annotated[str, SchemaPart(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$")] | None = None
    expired: bool = False


class Named(Protocol):
    """Anything with the names that a rule matches."""

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
    """Finds the rule for a tensor: the last rule that matches it.

    Args:
        rules: The rules, in order.
    """

    def __init__(self, rules: Sequence[LimitRule]) -> None:
        self._rules = rules
        self._patterns = [
            (_compile_pattern(rule.tensor), _compile_pattern(rule.node), _compile_pattern(rule.op)) for rule in rules
        ]
        self._named: dict[str, list[int]] = {}
        self._rest: list[int] = []
        for position, rule in enumerate(rules):
            if _WILD.search(rule.tensor):
                self._rest.append(position)
            else:  # look up rules for single tensors by name: there may be thousands
                self._named.setdefault(rule.tensor, []).append(position)

    def find(self, entry: Named) -> LimitRule | None:
        """Return the rule for a tensor, or None if no rule matches."""
        for position in sorted([*self._rest, *self._named.get(entry.tensor, [])], reverse=True):
            patterns = zip(self._patterns[position], (entry.tensor, entry.node, entry.op), strict=True)
            if all(pattern is None or pattern.match(name) for pattern, name in patterns):
                return self._rules[position]
        return None


def unused_entries(
    rules: Sequence[LimitRule], acknowledged: Sequence[Acknowledgement], entries: Sequence[Named]
) -> list[str]:
    """Return a sentence for each rule that decides no tensor, and for each acknowledged node that does not exist.

    Args:
        rules: The rules, in order.
        acknowledged: The acknowledgements, in order.
        entries: The compared tensors.
    """
    finder = RuleFinder(rules)
    used = {id(finder.find(entry)) for entry in entries}
    nodes = {entry.node for entry in entries}
    sentences = [
        f"rule {number} ({', '.join(f'{name} = {value!r}' for name, value in rule.patterns.items())}) matches no tensor"
        for number, rule in enumerate(rules, 1)
        if id(rule) not in used
    ]
    return sentences + [
        f"the acknowledged node {entry.node!r} does not exist" for entry in acknowledged if entry.node not in nodes
    ]


def unused_logits(rules: Sequence[LogitsRule], outputs: Sequence[str]) -> list[str]:
    """Return a sentence for each rule on logits that matches no output of the network."""
    return [
        f"[[logits]] {number} (tensor = {rule.tensor!r}) matches no output"
        for number, rule in enumerate(rules, 1)
        if not any(fnmatchcase(output, rule.tensor) for output in outputs)
    ]


def _compile_pattern(pattern: str) -> re.Pattern[str] | None:
    """Return the regular expression of a pattern, or None for a pattern that matches everything."""
    return None if pattern == "*" else re.compile(translate(pattern))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How large a tensor's error may be, and what may be missing.

    Limits set by the user judge a tensor's total error; if several are set, all must be met. If none are set, limits
    are derived: a node is judged by the error it introduces itself, in steps of its own output if that is quantized, or
    relative to the rounding of its sums if it is not. A node that cannot be replayed is judged by its total error, with
    `DEFAULT_MIN_SQNR`, or with `CODES_MIN_SQNR` if that is no more than it may introduce itself. Booleans, and integers
    that are not codes, must equal exactly what the node's inputs give. For a tensor that matches a rule, the rule's
    limits replace these.

    Args:
        min_sqnr: Minimum SQNR in dB.
        max_lsb: Largest difference in steps of the backend's scale. Applies to quantized tensors only.
        atol: Largest absolute difference. With `rtol`, each element may differ by atol + rtol*abs(reference).
        rtol: Relative part of that tolerance.
        max_saturation: Largest share of clipped values: reference values that the codes cannot represent. Codes at qmin
            or qmax alone do not count. Judged in addition to the error, given or derived.
        min_output_sqnr: Minimum SQNR in dB of each network output that holds real numbers or codes, judged if no node
            exceeds its limit. Defaults to `OUTPUT_MIN_SQNR` if no limit is given. Use -inf for no limit.
        rules: Limits for some tensors. The last rule that matches a tensor applies.
        logits: Outputs that hold logits, and limits of their metrics. The last rule that matches an output applies.
        acknowledged: Nodes that may exceed their limits. If a node has several entries, the last one applies.
        file: The file that these limits were read from, or None.
        explain: Search for the arithmetic of quantized nodes that differ. A node that is reproduced bit for bit is
            within derived limits.
        allow_partial: Accept a recording that is marked incomplete.
        allow_unfaithful: Accept a recording that changed the result it observed.
        allow_different_inputs: Compare runs whose inputs differ.
        allow_uncompared: Lost tensors to accept: a number of them, or name patterns.

    Raises:
        UsageError: A limit is not a number, or is meaningless.

    Examples:
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
    logits: tuple[LogitsRule, ...] = ()
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
        """Return the limits that apply to a tensor.

        Args:
            rule: The rule that applies to the tensor, or None.
        """
        return self if rule is None else replace(self, **rule.bounds)  # type: ignore[arg-type]  # no bound is a flag

    def logits_rule(self, output: str) -> LogitsRule | None:
        """Return the rule that says that an output holds logits, or None."""
        return next((rule for rule in reversed(self.logits) if fnmatchcase(output, rule.tensor)), None)

    def acknowledgement(self, node: str) -> Acknowledgement | None:
        """Return the acknowledgement of a backend node, or None."""
        return next((entry for entry in reversed(self.acknowledged) if entry.node == node), None)

    def accepting_nothing(self) -> Limits:
        """Return the same limits without accepting anything missing."""
        nothing: dict[str, Any] = {"allow_partial": False, "allow_unfaithful": False, "allow_different_inputs": False}
        return replace(self, **nothing, allow_uncompared=())

    @property
    def sqnr_in_force(self) -> float | None:
        """The minimum SQNR that applies if no replay judges a tensor, or None if the user set only other limits."""
        return self.min_sqnr if self.given else DEFAULT_MIN_SQNR

    @property
    def output_sqnr_in_force(self) -> float | None:
        """The minimum SQNR of a network output, or None if only the user's other limits apply."""
        if self.min_output_sqnr is not None:
            return self.min_output_sqnr
        return None if self.given else OUTPUT_MIN_SQNR

    @property
    def tolerance(self) -> tuple[float, float] | None:
        """The pair (atol, rtol) if either was given."""
        return None if self.atol is None and self.rtol is None else (self.atol or 0.0, self.rtol or 0.0)

    def judge_whole(self, stats: ErrorStats) -> bool:
        """Return whether limits set by the user apply to a tensor. False if they are in steps but the tensor has none.

        Args:
            stats: The tensor's error.
        """
        if stats.estimated and (self.max_lsb, self.tolerance) != (None, None):
            return False  # sketches do not show the largest difference
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
        if self.logits:
            plain["logits"] = [{"tensor": rule.tensor, **rule.bounds} for rule in self.logits]
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
    """Return limits as passed, or the default limits if None is passed.

    Raises:
        UsageError: The argument is not a `Limits`.
    """
    if limits is not None and not isinstance(limits, Limits):
        raise UsageError(
            f"limits must be a qdebug.Limits, but is a {type(limits).__name__}.",
            hint="Create limits with qdebug.Limits(max_lsb=1), or read a file with qdebug.load_limits(path).",
        )
    return limits or Limits()
