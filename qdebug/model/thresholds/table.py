"""The form of a threshold: a number that can change a result, with its unit, its reason and its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

__all__ = ["UNMEASURED", "Decides", "Threshold", "ThresholdGroup"]

Decides = Literal["status", "pair", "cause", "variant", "limit", "flag"]
"""What a threshold can change: the status of a tensor, the pair it is in, the cause that is named, the arithmetic that
explains it, a limit that is suggested, or what is said of a scale."""

UNMEASURED = "chosen: no measurement recorded"
"""The source of a threshold that somebody chose."""

Value = TypeVar("Value", int, float, tuple[int, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One row of the table.

    Args:
        name: Its name in the source.
        value: The number, or the numbers.
        unit: What the number counts.
        decides: What it can change.
        why: What happens at the threshold, and why it lies there.
        source: Where the value comes from: "measured: ...", "derived: ...", "cited: ..." or "chosen: ...".
        group: Title of the group that it stands in.
    """

    name: str
    value: int | float | tuple[int, ...]
    unit: str
    decides: Decides
    why: str
    source: str
    group: str


class ThresholdGroup:
    """The thresholds of one part of a comparison.

    Args:
        title: What that part does.
        decides: What its thresholds can change, where they say nothing else.
    """

    def __init__(self, title: str, *, decides: Decides) -> None:
        self.title, self.decides = title, decides
        self._rows: list[Threshold] = []

    @property
    def rows(self) -> tuple[Threshold, ...]:
        """The thresholds in the order in which they are defined."""
        return tuple(self._rows)

    def __call__(
        self, name: str, value: Value, *, unit: str, why: str, source: str = UNMEASURED, decides: Decides | None = None
    ) -> Value:
        """Return a value, and add its row to the group.

        Args:
            name: The name of the constant that is made.
            value: Its value.
            unit: What the number counts.
            why: What happens at the threshold, and why it lies there.
            source: Where the value comes from.
            decides: What it can change, if not what the group does.
        """
        known = decides or self.decides
        row = Threshold(name=name, value=value, unit=unit, decides=known, why=why, source=source, group=self.title)
        self._rows.append(row)
        return value
