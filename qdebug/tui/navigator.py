"""Where the user is: cursor, order, search, metric and sample. Every move says what it did, or why it did nothing."""

from __future__ import annotations

import numpy as np

from qdebug.tui.rows import METRIC_CHOICES, SAMPLE_METRICS, NodeTable, severity
from qdebug.view import numbers
from qdebug.view.rows import metric_title
from qdebug.view.text import safe_text

__all__ = ["SORTS", "Navigator"]

SORTS = ("order", "metric", "introduced", "saturated", "state", "name", "op")
"""What the list can be sorted by; "order" is the topological order."""

_SORT_TITLES = {
    "order": "topological order",
    "introduced": "introduced error, most first",
    "saturated": "saturation, most first",
    "state": "state, failing first",
    "name": "name",
    "op": "operator",
}


class Navigator:
    """Moves over a node table.

    Args:
        table: The rows.
        samples: Number of samples of the recordings.
    """

    def __init__(self, table: NodeTable, *, samples: int = 1) -> None:
        self.table = table
        self.samples = samples
        self.metric = METRIC_CHOICES[0]
        self.sample: int | None = None
        self.sort = SORTS[0]
        self.reversed = False
        self.pattern = ""
        self.matches = np.zeros(0, dtype=np.int64)
        self.order = np.arange(table.size)
        self._place = self.order.copy()
        self.cursor = 0
        self._sorted_version = table.version

    @property
    def place(self) -> int:
        """The cursor's line in the list as it is sorted."""
        return int(self._place[self.cursor]) if self.table.size else 0

    def line_to_row(self, line: int) -> int:
        """Give the row shown on a line of the list."""
        return int(self.order[line])

    def move(self, lines: int) -> str:
        """Move the cursor by a number of lines."""
        target = min(max(self.place + lines, 0), self.table.size - 1)
        if not self.table.size:
            return "the list is empty"
        if target == self.place:
            return "this is the first line" if lines < 0 else "this is the last line"
        self.cursor = self.line_to_row(target)
        return ""

    def edge(self, direction: int) -> str:
        """Move to the first or the last line."""
        return self.move(direction * self.table.size)

    def go(self, row: int) -> None:
        """Put the cursor on a row."""
        self.cursor = row

    def first_divergence(self) -> str:
        """Go to the first row beyond its limit, in topological order."""
        row = self.table.first_divergence(self.sample)
        if row is None:
            return self._no_failing()
        there = self.cursor == row
        self.cursor = row
        return f"{'already at' if there else 'at'} the first divergence{self._so_far()}"

    def failing(self, direction: int) -> str:
        """Go to the next or previous failing row, in topological order."""
        rows = self.table.failing(self.sample)
        if not len(rows):
            return self._no_failing()
        rows = rows[rows > self.cursor] if direction > 0 else rows[rows < self.cursor]
        if not len(rows):
            return f"no failing node {'after' if direction > 0 else 'before'} this one{self._so_far()}"
        self.cursor = int(rows[0] if direction > 0 else rows[-1])
        return ""

    def match(self, direction: int) -> str:
        """Go to the next or previous match of the search, in the list's order and around its end."""
        if not self.pattern:
            return self.failing(direction)
        if not len(self.matches):
            return f"nothing matches {safe_text(self.pattern, limit=40)}"
        places = np.sort(self._place[self.matches])
        here = self.place
        ahead = places[places > here] if direction > 0 else places[places < here][::-1]
        around = not len(ahead)
        target = int(ahead[0] if not around else places[0 if direction > 0 else -1])
        self.cursor = self.line_to_row(target)
        at = int(np.searchsorted(places, target)) + 1
        return f"match {at} of {len(places)}" + (", around the end" if around else "")

    def is_match(self, row: int) -> bool:
        """Tell whether a row matches the search."""
        at = int(np.searchsorted(self.matches, row))
        return at < len(self.matches) and int(self.matches[at]) == row

    def search(self, pattern: str, *, start: int) -> str:
        """Search and go to the first match at or after a row's line.

        Args:
            pattern: As in `NodeTable.search`; "" clears the search.
            start: Row where the search began.
        """
        self.pattern = pattern
        self.cursor = start
        if not pattern:
            self.matches = np.zeros(0, dtype=np.int64)
            return ""
        try:
            self.matches = self.table.search(pattern)
        except ValueError as error:
            self.matches = np.zeros(0, dtype=np.int64)
            return safe_text(error, limit=70)
        if not len(self.matches):
            return "no match"
        places = np.sort(self._place[self.matches])
        ahead = places[places >= self.place]
        self.cursor = self.line_to_row(int(ahead[0] if len(ahead) else places[0]))
        return f"{numbers.grouped(len(places))} {'match' if len(places) == 1 else 'matches'}"

    def next_sort(self) -> str:
        """Sort by the next column."""
        self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        self.reversed = False
        self.arrange()
        return f"sorted by {self.sort_title()}"

    def reverse(self) -> str:
        """Turn the order around."""
        self.reversed = not self.reversed
        self.arrange()
        return f"sorted by {self.sort_title()}"

    def sort_title(self) -> str:
        """Say what the list is sorted by."""
        title = f"{metric_title(self.metric)}, worst first" if self.sort == "metric" else _SORT_TITLES[self.sort]
        return f"{title}, reversed" if self.reversed else title

    def next_metric(self) -> str:
        """Show the next metric."""
        choices = METRIC_CHOICES if self.sample is None else SAMPLE_METRICS
        self.metric = choices[(choices.index(self.metric) + 1) % len(choices)]
        self.arrange()
        if self.sample is None:
            return f"metric {metric_title(self.metric)}"
        return f"metric {metric_title(self.metric)}; the list knows {len(choices)} metrics of a single sample"

    def step_sample(self, direction: int) -> str:
        """Look at the next or previous sample; before the first one there are all samples together."""
        target = (-1 if self.sample is None else self.sample) + direction
        if self.samples == 1:
            return "there is one sample only"
        if not -1 <= target < self.samples:
            return "this is the last sample" if direction > 0 else "these are all samples already"
        return self.choose_sample(None if target < 0 else target)

    def choose_sample(self, sample: int | None) -> str:
        """Look at one sample, or at all of them with None."""
        self.sample = sample
        said = "all samples" if sample is None else f"sample {sample} of 0..{self.samples - 1}"
        if sample is not None and self.metric not in SAMPLE_METRICS:
            self.metric = SAMPLE_METRICS[0]
            said += f", metric {metric_title(self.metric)}"
        self.arrange()
        return said

    def refresh(self) -> bool:
        """Sort anew if results came in and the order depends on them; tell whether the order may have changed."""
        if self.sort in {"order", "name", "op"} or self._sorted_version == self.table.version:
            return False
        self.arrange()
        return True

    def arrange(self) -> None:
        """Sort the rows; the cursor stays on its row."""
        self._sorted_version = self.table.version
        self.order = self._sorted()
        if self.reversed:
            self.order = self.order[::-1]
        self._place = np.empty_like(self.order)
        self._place[self.order] = np.arange(len(self.order))

    def _sorted(self) -> np.ndarray:
        table = self.table
        if self.sort == "name":
            return np.array(sorted(range(table.size), key=table.names.__getitem__), dtype=np.int64)
        if self.sort == "op":
            return np.array(sorted(range(table.size), key=lambda row: table.rows[row].op), dtype=np.int64)
        if self.sort == "metric":
            keys = -severity(self.metric, table.values(self.metric, self.sample))
        elif self.sort == "introduced":
            keys = -table.metrics["introduced"]
        elif self.sort == "saturated":
            keys = -table.saturated
        elif self.sort == "state":
            keys = _RANK[table.states(self.sample)]
        else:
            return np.arange(table.size)
        return np.argsort(keys, kind="stable")  # NaN, the unknown, sorts last

    def _so_far(self) -> str:
        return " so far" if self.table.pending else ""

    def _no_failing(self) -> str:
        if self.table.pending:
            known = f"{numbers.grouped(self.table.compared)} of {numbers.grouped(self.table.comparable)}"
            return f"no failing node so far, {known} compared"
        return "no node is beyond its limit"


_RANK = np.array([3, 5, 4, 1, 0, 2])
"""Order of the states by what needs attention: nonfinite, diverged, not compared, pending, within, identical."""
