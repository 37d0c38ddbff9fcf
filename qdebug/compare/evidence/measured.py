"""The interface of an error that is compared with limits: of a whole tensor, or of one of its samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from qdebug.compare.attribute.attribute import Attribution
from qdebug.compare.result.limits import Limits
from qdebug.numerics.stats import ErrorStats, Rails

__all__ = ["Error", "Measured"]


class Measured(Protocol):
    """The error of one tensor over all samples or in one sample, and the facts needed to judge it."""

    @property
    def name(self) -> str:
        """The backend node."""

    @property
    def stats(self) -> ErrorStats | None:
        """The total error, or None if unknown."""

    @property
    def attribution(self) -> Attribution | None:
        """The attribution of the error, or None if unknown."""

    @property
    def limits(self) -> Limits:
        """The limits that apply to the tensor."""

    @property
    def excused(self) -> bool:
        """Whether the node's own error is excused, for example because a known arithmetic gives the same bits."""

    @property
    def known_arithmetic(self) -> str | None:
        """The known arithmetic that gives the same bits, in words, or None if there is none or none was searched."""

    @property
    def exact(self) -> bool:
        """Whether the tensor holds unrounded integers or booleans and the node's inputs are equal on both sides."""

    @property
    def rails(self) -> Rails | None:
        """Clipped values and codes at the ends of the range, or None without codes or if they were not counted."""

    @property
    def harmless(self) -> bool:
        """Whether values that are non-finite on one side change no other tensor."""

    @property
    def usual_rms(self) -> float | None:
        """Root mean square of the reference tensor over all samples if this is one of several samples, or None."""

    @property
    def least_sqnr(self) -> float | None:
        """SQNR in dB that an unreplayed node must reach on equal inputs, or None if inputs may differ."""

    @property
    def unreplayed(self) -> str | None:
        """Why the node's own error is unknown, if this is a whole tensor. None for a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """The simplest `Measured`: a standalone error."""

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
