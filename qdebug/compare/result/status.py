"""How a comparison can come out."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Status"]


class Status(StrEnum):
    """How one tensor, or a whole comparison, came out."""

    IDENTICAL = "identical"
    WITHIN = "within"
    DIVERGED = "diverged"
    NONFINITE = "nonfinite"
    INCOMPARABLE = "incomparable"
    INCOMPLETE = "incomplete"
