"""A threshold: a number that can change a result, with its unit, its reason and its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

__all__ = ["UNMEASURED", "Decides", "Threshold", "ThresholdGroup"]

Decides = Literal["status", "pair", "cause", "variant", "limit", "flag"]
"""The kind of result that a threshold can change: the status of a tensor, its pair, the cause that is named, the
arithmetic that explains it, a suggested limit, or a remark about a scale."""

UNMEASURED = "chosen: no measurement recorded"
"""The source of a threshold that was chosen without a recorded measurement."""

Value = TypeVar("Value", int, float, tuple[int, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One row of the table.

    Args:
        name: Its name in the source.
        value: The number, or the numbers.
        unit: Unit of the number.
        decides: The kind of result that it can change.
        why: What happens at the threshold, and the reason for its value.
        source: Source of the value: "measured: ...", "derived: ...", "cited: ..." or "chosen: ...".
        group: Title of its group.
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
        title: Title of that part.
        decides: The kind of result that its thresholds change by default.
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
            name: The name of the constant.
            value: Its value.
            unit: Unit of the number.
            why: What happens at the threshold, and the reason for its value.
            source: Source of the value.
            decides: The kind of result that it can change, if not the group's.
        """
        decided = decides or self.decides
        row = Threshold(name=name, value=value, unit=unit, decides=decided, why=why, source=source, group=self.title)
        self._rows.append(row)
        return value
