"""Limits: what counts as divergence, and what may be missing from a comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from qdebug.analysis.alignment.pairs import Unmatched
from qdebug.analysis.results.limit_rules import BOUNDS, Acknowledgement, LimitRule, check_bounds
from qdebug.analysis.results.result import Status
from qdebug.errors import UsageError
from qdebug.numerics.stats import ErrorStats, Rails

if TYPE_CHECKING:  # limits are read before anything is replayed
    from qdebug.analysis.attribution.attribute import Attribution

__all__ = ["DEFAULT_MIN_SQNR", "Limits", "checked_limits"]

DEFAULT_MIN_SQNR = 20.0
"""Decibels that a tensor must reach where no limit is given and its node cannot be replayed."""

DERIVED_LSB = 1.5
"""Steps that a quantized node may introduce where no limit is given: the nearest code, half a step away at most, or the
one beside it, which backends give that requantize with few bits or round twice."""

COARSE_SQNR = 10.0
"""Decibels that rounding to a tensor's codes must leave of the reference's values, where no limit is given."""

_HAIR = 1e-3
"""Steps by which a difference of whole and half steps may be off through the rounding of float32; beside a limit that
is given it is a share of that limit, so that 0 stays 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a tensor's error may be, and what may be left out.

    Limits that are given judge a tensor's whole error; where several are given, all must hold. With none given, limits
    are derived: a node is judged by the error it introduces itself, in steps of its own output if that is quantized,
    against the rounding of its sums if it is not. A node that cannot be replayed is judged by its whole error, with
    `DEFAULT_MIN_SQNR`, or `COARSE_SQNR` where that is no more than it may introduce itself. Integers that are no codes,
    and booleans, must be what the node's inputs give, to the last one. For a tensor that a rule fits, the rule's limits
    hold instead of these.

    Args:
        min_sqnr: Least SQNR in dB.
        max_lsb: Largest difference in steps of the backend's scale; holds for quantized tensors alone.
        atol: Largest absolute difference; with `rtol`, each element may differ by atol + rtol*abs(reference).
        rtol: Relative part of that.
        max_saturation: Largest share of codes at the ends of their range, a Relu's zeros not counted; judged beside
            the error, given or derived.
        rules: Limits for some tensors; the last rule that fits a tensor holds.
        acknowledged: Nodes that may be beyond their limits; of several for one node the last holds.
        file: Where these limits were read; None if nowhere.
        explain: Look for the arithmetic of quantized nodes that differ; one that is reproduced bit for bit is within
            derived limits.
        allow_partial: Accept a recording that is marked incomplete.
        allow_unfaithful: Accept a recording that changed the result it observed.
        allow_uncompared: Lost tensors to accept: a number of them, or name patterns.

    Raises:
        UsageError: A limit is no number, or one that means nothing.
    """

    min_sqnr: float | None = None
    max_lsb: float | None = None
    atol: float | None = None
    rtol: float | None = None
    max_saturation: float | None = None
    rules: tuple[LimitRule, ...] = ()
    acknowledged: tuple[Acknowledgement, ...] = ()
    file: str | None = None
    explain: bool = True
    allow_partial: bool = False
    allow_unfaithful: bool = False
    allow_uncompared: int | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    def given(self) -> bool:
        """Whether the user set a limit on the error."""
        return any(value is not None for value in (self.min_sqnr, self.max_lsb, self.atol, self.rtol))

    def under(self, rule: LimitRule | None) -> Limits:
        """Give the limits of a tensor.

        Args:
            rule: The rule that holds for it; None if no rule does.
        """
        return self if rule is None else replace(self, **rule.bounds)  # type: ignore[arg-type]  # bounds are no flags

    def acknowledgement(self, node: str) -> Acknowledgement | None:
        """Give what is acknowledged of a backend node; None if nothing is."""
        return next((entry for entry in reversed(self.acknowledged) if entry.node == node), None)

    def accepting_nothing(self) -> Limits:
        """Give the same limits without anything that may be missing."""
        return replace(self, allow_partial=False, allow_unfaithful=False, allow_uncompared=())

    @property
    def sqnr_in_force(self) -> float | None:
        """The least SQNR that is applied where a replay does not judge; none beside other limits of the user."""
        return self.min_sqnr if self.given else DEFAULT_MIN_SQNR

    @property
    def tolerance(self) -> tuple[float, float] | None:
        """The pair (atol, rtol) if either was given."""
        return None if self.atol is None and self.rtol is None else (self.atol or 0.0, self.rtol or 0.0)

    def saturated(self, rails: Rails | None) -> str | None:
        """Say that too many codes are at the ends of their range; None if not, or if no limit is set.

        Args:
            rails: The counts; None if the tensor is not quantized.
        """
        if self.max_saturation is None or rails is None or not rails.total:
            return None
        share = (rails.at_qmin - rails.floor + rails.at_qmax) / rails.total
        return (
            f"{share:.3g} of its codes are saturated, more than {self.max_saturation:g}"
            if share > self.max_saturation
            else None
        )

    def judge(
        self,
        stats: ErrorStats,
        attribution: Attribution | None = None,
        *,
        reproduced: bool = False,
        whole: bool = False,
    ) -> tuple[Status, str | None]:
        """Give the status of a compared tensor, and the limit it breaks, or what else is to be said of it, if anything.

        Args:
            stats: Its whole error.
            attribution: How that splits up; None if that is not known.
            reproduced: Whether a known arithmetic reproduces the tensor bit for bit: whatever the node introduces is
                then within derived limits.
            whole: Whether these are integers or booleans that nothing may have rounded, and all that the node reads is
                known to be equal.
        """
        if stats.nonfinite:
            return Status.NONFINITE, f"{stats.nonfinite} of {stats.count} elements are NaN or infinite on one side only"
        if not stats.mismatches:
            return Status.IDENTICAL, None
        applies = self.given and (stats.max_lsb is not None or (self.min_sqnr, self.tolerance) != (None, None))
        if not applies and attribution is not None and attribution.in_range is not None:
            return _judge_introduced(attribution, reproduced=reproduced)
        if reproduced and not self.given:
            return Status.WITHIN, None
        if whole and not applies:
            differ = "differs" if stats.mismatches == 1 else "differ"
            return (
                Status.DIVERGED,
                f"{stats.mismatches} of {stats.count} elements {differ}, and nothing rounds {_WHOLE}",
            )
        floor = self.sqnr_in_force
        if not self.given and stats.max_lsb is not None and stats.max_lsb <= DERIVED_LSB + _HAIR:
            floor = COARSE_SQNR  # no code is off by more than any quantized node may introduce
        if floor is not None and stats.sqnr_db is not None and not stats.sqnr_db >= floor:
            return Status.DIVERGED, f"SQNR {stats.sqnr_db:.3g} dB is below {floor:g} dB"
        # Limits are whole and half steps, and so are differences, but for the rounding of real values to float32.
        if self.max_lsb is not None and stats.max_lsb is not None and not stats.max_lsb <= self.max_lsb * (1 + _HAIR):
            return Status.DIVERGED, f"a difference of {stats.max_lsb:.4g} LSB is above {self.max_lsb:g} LSB"
        if self.tolerance is not None and stats.beyond_tolerance:
            atol, rtol = self.tolerance
            share = f"{stats.beyond_tolerance} of {stats.count} elements"
            return Status.DIVERGED, f"{share} differ by more than {atol:g} + {rtol:g}*abs(reference)"
        return Status.WITHIN, None

    def not_allowed(self, lost: tuple[Unmatched, ...]) -> tuple[Unmatched, ...]:
        """Give the lost tensors that are not accepted."""
        if isinstance(self.allow_uncompared, int):
            return lost if len(lost) > self.allow_uncompared else ()
        patterns = self.allow_uncompared
        return tuple(entry for entry in lost if not any(fnmatchcase(entry.tensor, pattern) for pattern in patterns))

    def to_dict(self) -> dict[str, Any]:
        """Give the limits in force as plain values, with the keys of the diff JSON."""
        plain: dict[str, Any] = {"source": "given" if self.given else "derived"}
        if not self.given:
            plain |= {
                "introduced_lsb": DERIVED_LSB,
                "reproduced_is_within": self.explain,
                "min_sqnr_of_range": DEFAULT_MIN_SQNR,
                "min_sqnr_of_scale": COARSE_SQNR,
                "min_sqnr_without_replay": DEFAULT_MIN_SQNR,
                "introduced_of_integers": 0,
            }
        plain |= {name: getattr(self, name) for name in BOUNDS if getattr(self, name) is not None}
        if self.file is not None:
            plain["file"] = self.file
        if self.rules:
            plain["rules"] = [rule.to_dict() for rule in self.rules]
        if self.acknowledged:
            plain["acknowledged"] = [{"node": entry.node, **entry.to_dict()} for entry in self.acknowledged]
        allowed = {
            "partial": self.allow_partial,
            "unfaithful": self.allow_unfaithful,
            "uncompared": (
                self.allow_uncompared if isinstance(self.allow_uncompared, int) else list(self.allow_uncompared)
            ),
        }
        return {**plain, "allow": allowed}


def checked_limits(limits: Limits | None) -> Limits:
    """Give limits as they were passed, or those in force where none were.

    Raises:
        UsageError: It is something else.
    """
    if limits is not None and not isinstance(limits, Limits):
        raise UsageError(
            f"limits is a {type(limits).__name__} and no Limits.",
            hint="Make them, qdebug.Limits(max_lsb=1), or read a file, qdebug.load_limits(path).",
        )
    return limits or Limits()


def _judge_introduced(attribution: Attribution, *, reproduced: bool) -> tuple[Status, str | None]:
    """Judge the error that a node introduces."""
    stats, allowed = attribution.in_range, attribution.allowed
    if stats is None or stats.nonfinite:
        count = "some" if stats is None else f"{stats.nonfinite} of {stats.count}"
        return Status.NONFINITE, f"{count} elements are NaN or infinite on one side only"
    if attribution.whole_off is not None:
        return _judge_whole(stats, attribution.whole_off, attribution.tied)
    if allowed is not None and stats.rmse is not None:
        norm = stats.rmse * math.sqrt(stats.count)
        if not norm <= allowed:
            times = norm / allowed if allowed else math.inf
            return Status.DIVERGED, f"it introduces {times:.3g} times the error that rounding its sums accounts for"
        if attribution.beyond:
            share = f"{attribution.beyond} of {stats.count} elements"
            return Status.DIVERGED, f"{share} are off by more than rounding what each is made of accounts for"
    elif not reproduced and stats.max_lsb is not None and not stats.max_lsb <= DERIVED_LSB + _HAIR:
        return Status.DIVERGED, f"it introduces {stats.max_lsb:.4g} LSB, more than the {DERIVED_LSB:g} of any rounding"
    elif attribution.clipped is not None and attribution.coded is not None:
        return _judge_codes(attribution, attribution.clipped, attribution.coded)
    return Status.WITHIN, None


_WHOLE = "integers that are no codes, or booleans"


def _judge_whole(stats: ErrorStats, most: int, tied: int) -> tuple[Status, str | None]:
    """Judge integers that are no codes, and booleans, by their difference from what the node's inputs give.

    Args:
        stats: That difference.
        most: How far each may be off.
        tied: How many are the index of another one of equal values.
    """
    if not stats.mismatches or (stats.max_abs is not None and stats.max_abs <= most):
        return Status.WITHIN, None
    said = f"{stats.mismatches} of {stats.count} elements {'is' if stats.mismatches == 1 else 'are'} not what its"
    if most:
        return Status.DIVERGED, f"{said} inputs give, by up to {stats.max_abs:g}; {most} is rounding"
    ties = f"; a tie: {'all' if tied == stats.mismatches else tied} of these are the index of an equal value"
    return Status.DIVERGED, f"{said} inputs give, and nothing rounds {_WHOLE}{ties if tied else ''}"


_BY_MASK = "the mask takes up its codes"


def _judge_codes(attribution: Attribution, clipped: ErrorStats, coded: ErrorStats) -> tuple[Status, str | None]:
    """Judge whether a tensor's scale and range fit the reference's values, though every code is the right one.

    What was lost before it came to this tensor is not lost to its codes; that they lose as much again is said.
    """
    arriving, said = attribution.arriving or attribution.propagated, None
    before = None if arriving is None else arriving.rmse
    values = "the reference's values" + (" that no mask hides" if attribution.hidden else "")
    for stats, floor, what, why in (
        (clipped, DEFAULT_MIN_SQNR, "saturation", "its range is too narrow"),
        (coded, COARSE_SQNR, "rounding to its codes", "its scale does not fit"),
    ):
        if not stats.mismatches or stats.sqnr_db is None or not stats.sqnr_db < floor:
            continue
        left = f"{what} leaves an SQNR of {stats.sqnr_db:.3g} dB of {values}"
        if before is None or stats.rmse is None or stats.rmse > before:
            return Status.DIVERGED, f"{left}, below {floor:g} dB: {_BY_MASK if attribution.hidden else why}"
        said = said or f"{left}, but no more is lost by it than was lost before"
    return Status.WITHIN, said
