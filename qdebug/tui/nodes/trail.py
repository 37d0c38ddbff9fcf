"""Where the user has been, and which rows were marked."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Trail"]

_KEPT = 500


class Trail:
    """Rows in the order of the jumps to them, like the history of a browser; and marks."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._at = -1
        self.marks: list[int] = []
        self.notes: dict[int, str] = {}

    @property
    def rows(self) -> tuple[int, ...]:
        """The way that led to where the user is, oldest first."""
        return tuple(self._rows[: self._at + 1])

    def jumped(self, start: int, target: int) -> None:
        """Note a jump; what was ahead in the history is forgotten."""
        del self._rows[self._at + 1 :]
        for row in (start, target):
            if not self._rows or self._rows[-1] != row:
                self._rows.append(row)
        del self._rows[:-_KEPT]
        self._at = len(self._rows) - 1

    def step(self, direction: int, row: int) -> int | None:
        """Go back or forward; None at either end.

        Args:
            direction: -1 for back, 1 for forward.
            row: Where the user is, who may have moved on since the last jump.
        """
        if direction < 0 and self._rows and self._rows[self._at] != row:
            return self._rows[self._at]
        if not 0 <= self._at + direction < len(self._rows):
            return None
        self._at += direction
        return self._rows[self._at]

    def moved(self, row_of: Callable[[int], int | None]) -> Trail:
        """Give the same trail over another table.

        Args:
            row_of: Gives the new number of a row; None if it is gone.
        """
        other = Trail()
        kept = [(at, row_of(row)) for at, row in enumerate(self._rows)]
        other._rows = [row for _, row in kept if row is not None]
        other._at = sum(1 for at, row in kept if row is not None and at <= self._at) - 1
        other.marks = sorted(row for row in map(row_of, self.marks) if row is not None)
        noted = [(row_of(row), text) for row, text in self.notes.items()]
        other.notes = {row: text for row, text in noted if row is not None}
        return other

    def toggle(self, row: int) -> bool:
        """Mark a row, or take its mark away; tell whether it is marked now."""
        if row in self.marks:
            self.marks.remove(row)
            return False
        self.marks.append(row)
        self.marks.sort()
        return True

    def note(self, row: int, text: str) -> None:
        """Put a note on a row, which marks it; "" takes note and mark away."""
        if bool(text) != (row in self.marks):
            self.toggle(row)
        self.notes.pop(row, None)
        if text:
            self.notes[row] = text

    def next_mark(self, row: int) -> int | None:
        """Give the next marked row, around the end; None if nothing is marked."""
        return next((mark for mark in self.marks if mark > row), self.marks[0] if self.marks else None)
