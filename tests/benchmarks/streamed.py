"""A table that is printed row by row, while the next row is still being measured."""

from __future__ import annotations

from collections.abc import Sequence


class StreamedTable:
    """Prints its title and heads at once, and each row as it comes.

    Args:
        title: Line above the table.
        heads: Heads of the columns.
        widths: Characters of each column; the first one may not be cut.
        left: How many columns are aligned to the left.
    """

    def __init__(self, title: str, heads: Sequence[str], widths: Sequence[int], *, left: int = 1) -> None:
        self._widths = [max(width, len(head)) for width, head in zip(widths, heads, strict=True)]
        self._left = left
        print(f"\n{title}", flush=True)
        self.row(*heads)
        self.rule()

    def row(self, *cells: str) -> None:
        """Print a row."""
        padded = [
            cell.ljust(width) if at < self._left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, self._widths, strict=True))
        ]
        print(f"│ {' │ '.join(padded)} │", flush=True)

    def rule(self) -> None:
        """Print a line."""
        print(f"├─{'─┼─'.join('─' * width for width in self._widths)}─┤", flush=True)
