"""The interface of an error that checks read: of a whole tensor, or of one of its samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from qdebug.compare.attribute.attribute import Attribution
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.compare.result.limits import Limits
from qdebug.numerics.stats import ErrorStats, Rails

__all__ = ["Error", "Measured", "breach"]


class Measured(Protocol):
    """The error of one tensor, over all samples or in one of them, with facts about it."""

    @property
    def name(self) -> str:
        """The backend node."""

    @property
    def stats(self) -> ErrorStats | None:
        """The whole error; None if unknown."""

    @property
    def attribution(self) -> Attribution | None:
        """The attribution of the error; None if unknown."""

    @property
    def limits(self) -> Limits:
        """The limits that hold for the tensor."""

    @property
    def excused(self) -> bool:
        """Whether the node's own error is excused, for example because a known arithmetic gives the same bits."""

    @property
    def known_arithmetic(self) -> str | None:
        """The arithmetic that gives the same bits, in words; None if there is none, or it was not searched."""

    @property
    def exact(self) -> bool:
        """Whether these are integers or booleans that nothing rounds, and all that the node reads is equal."""

    @property
    def rails(self) -> Rails | None:
        """Clipped values and codes at the ends; None without codes, or if they were not counted."""

    @property
    def harmless(self) -> bool:
        """Whether values that are not finite on one side change no other tensor."""

    @property
    def usual_rms(self) -> float | None:
        """For one sample of several, the root mean square of the reference's tensor over all samples; else None."""

    @property
    def least_sqnr(self) -> float | None:
        """SQNR in dB that a node without replay must leave of equal inputs; None where inputs may differ."""

    @property
    def unreplayed(self) -> str | None:
        """Why the node's own error is unknown, for a judgement of the whole; None for a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """The simplest `Measured`: an error by itself."""

    stats: ErrorStats | None
    limits: Limits
    attribution: Attribution | None = None
    name: str = ""
    excused: bool = False
    known_arithmetic: str | None = None
    exact: bool = False
    rails: Rails | None = None
    harmless: bool = False
    usual_rms: float | None = None
    least_sqnr: float | None = None
    unreplayed: str | None = None


def breach(of: Measured, kind: FindingKind, sentence: str, *, judged: tuple[float, float, str], given: bool) -> Finding:
    """Return the finding that an error is beyond a limit.

    Args:
        of: The error.
        kind: The subject of the limit.
        sentence: One clause.
        judged: The amount, the limit and their unit.
        given: Whether the user gave the limit.
    """
    amount, limit, unit = judged
    return Finding(
        kind=kind,
        role=FindingRole.BREACH,
        node=of.name,
        sentence=sentence,
        amount=float(amount),
        limit=float(limit),
        unit=unit,
        given=given,
    )
