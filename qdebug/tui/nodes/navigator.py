"""The user's position: cursor, order, search, metric and sample. Every move returns a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np

from qdebug.present import numbers
from qdebug.present.rows import metric_title
from qdebug.present.text import safe_text
from qdebug.tui.nodes.filter import FilterError, example_of_begun_field, filter_rows, valid_prefixes
from qdebug.tui.nodes.rows import METRIC_CHOICES, SAMPLE_METRICS, NodeTable, severity
from qdebug.tui.provisional import Provisional, Until

__all__ = ["SORTS", "Navigator", "Trail"]

_MAX_HISTORY = 500


class Trail:
    """The history of jumps between rows, like a browser's, and the user's marks and notes."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._position = -1
        self.marks: list[int] = []
        self.notes: dict[int, str] = {}

    @property
    def rows(self) -> tuple[int, ...]:
        """The path to the user's current position, oldest row first."""
        return tuple(self._rows[: self._position + 1])

    def add_jump(self, start: int, target: int) -> None:
        """Record a jump, and drop the history ahead of it."""
        del self._rows[self._position + 1 :]
        for row in (start, target):
            if not self._rows or self._rows[-1] != row:
                self._rows.append(row)
        del self._rows[:-_MAX_HISTORY]
        self._position = len(self._rows) - 1

    def step(self, direction: int, row: int) -> int | None:
        """Go back or forward in the history; None at either end.

        Args:
            direction: -1 for back, 1 for forward.
            row: The user's current row, which may differ from the target of the last jump.
        """
        if direction < 0 and self._rows and self._rows[self._position] != row:
            return self._rows[self._position]
        if not 0 <= self._position + direction < len(self._rows):
            return None
        self._position += direction
        return self._rows[self._position]

    def for_table(self, row_of: Callable[[int], int | None]) -> Trail:
        """Return the same trail for a different table.

        Args:
            row_of: Returns the new number of a row; None if the row no longer exists.
        """
        trail = Trail()
        new_rows = [(at, row_of(row)) for at, row in enumerate(self._rows)]
        trail._rows = [row for _, row in new_rows if row is not None]
        trail._position = sum(1 for at, row in new_rows if row is not None and at <= self._position) - 1
        trail.marks = sorted(row for row in map(row_of, self.marks) if row is not None)
        new_notes = [(row_of(row), text) for row, text in self.notes.items()]
        trail.notes = {row: text for row, text in new_notes if row is not None}
        return trail

    def toggle(self, row: int) -> bool:
        """Mark or unmark a row. Return whether it is now marked."""
        if row in self.marks:
            self.marks.remove(row)
            return False
        self.marks.append(row)
        self.marks.sort()
        return True

    def note(self, row: int, text: str) -> None:
        """Add a note to a row, which also marks it; "" removes note and mark."""
        if bool(text) != (row in self.marks):
            self.toggle(row)
        self.notes.pop(row, None)
        if text:
            self.notes[row] = text

    def next_mark(self, row: int) -> int | None:
        """Return the next marked row, wrapping around at the end; None if nothing is marked."""
        return next((mark for mark in self.marks if mark > row), self.marks[0] if self.marks else None)


SORTS = ("order", "metric", "introduced", "clipped", "state", "name", "op")
"""Sort keys of the list; "order" is the topological order."""

_MAX_INSPECTED_MATCHES = 4000
"""Maximum number of search matches among which the best one is chosen."""
_SORT_TITLES: Mapping[str, tuple[str, tuple[str, str] | None]] = {
    "order": ("topological order", None),
    "introduced": ("introduced error", ("most", "least")),
    "clipped": ("clipped values", ("most", "least")),
    "state": ("status", ("failing", "identical")),
    "name": ("name", None),
    "op": ("operator", None),
}
"""The title of each sort key, and which values come first in normal and in reverse order."""


class Navigator:
    """Moves through a node table.

    Args:
        table: The rows.
        samples: Number of samples of the recordings.
        steps: Number of steps of a stateful network.
    """

    def __init__(self, table: NodeTable, *, samples: int = 1, steps: int = 1) -> None:
        self.table = table
        self.samples = samples
        self.steps = steps
        self.step = 0
        self.metric = METRIC_CHOICES[0]
        self.sample: int | None = None
        self.sort = SORTS[0]
        self.reversed = False
        self.pattern = ""
        self.filter = ""
        self.trail = Trail()
        self._mask: np.ndarray | None = None
        self._moved_by_filter: tuple[int, int] | None = None
        """Where the cursor was when a filter hid its row, and where the filter moved it."""
        self.matches = np.zeros(0, dtype=np.int64)
        self.order = np.arange(table.size, dtype=np.int32)
        self._line_of_row = self.order.copy()
        self.cursor = 0
        self._sorted_version = table.version
        self.arrangement_count = 0

    def take_over(self, other: Navigator) -> None:
        """Restore the position of another navigator, which used an older table of the same network."""
        for name in ("metric", "sort", "reversed", "filter"):
            setattr(self, name, getattr(other, name))
        self.sample = other.sample if other.sample is None or other.sample < self.samples else None
        self.step = min(other.step, self.steps - 1)
        self.trail = other.trail.for_table(lambda row: self._corresponding_row(other, row))
        self.cursor = self._corresponding_row(other, other.cursor) or 0 if other.table.size else 0
        self.arrange()
        if other.pattern:
            cursor = self.cursor
            self.search(other.pattern, start=cursor)
            self.cursor = cursor

    def _corresponding_row(self, other: Navigator, row: int) -> int | None:
        """Return this table's row of the tensor in a row of another table; None if it is not in this table."""
        return self.table.row_like(other.table.rows[row])

    @property
    def line(self) -> int:
        """The cursor's line in the sorted and filtered list; -1 if the filter hides its row."""
        return int(self._line_of_row[self.cursor]) if self.table.size else 0

    @property
    def number(self) -> int:
        """The number of the row under the cursor in requests, which also distinguishes constants from other rows."""
        return self.table.first_number + self.cursor

    @property
    def lines(self) -> int:
        """Number of rows that the list shows."""
        return len(self.order)

    def line_to_row(self, line: int) -> int:
        """Return the row shown on a line of the list."""
        return int(self.order[line])

    def move(self, lines: int) -> str:
        """Move the cursor by a number of lines."""
        target = min(max(self.line + lines, 0), self.lines - 1)
        if not self.lines:
            return f"no node passes the filter; {_CLEAR_HINT}" if self.filter else "the list is empty"
        if target == self.line:
            return "this is the first line" if lines < 0 else "this is the last line"
        self.cursor = self.line_to_row(target)
        return ""

    def edge(self, direction: int) -> str:
        """Move to the first or last line. In topological order, first stop at the last row with a position in it."""
        ordered_rows = self.order[self.order < self.table.ordered]
        unordered_count = self.lines - len(ordered_rows)
        in_order = self.sort == SORTS[0] and not self.reversed
        if direction > 0 and in_order and unordered_count and len(ordered_rows) and self.cursor < ordered_rows[-1]:
            self.cursor = int(ordered_rows[-1])
            count_text = numbers.grouped(unordered_count)
            return f"the last node in order; again: the end of {count_text} constant or only in the reference"
        return self.move(direction * self.table.size)

    def go(self, row: int) -> None:
        """Put the cursor on a row."""
        self.cursor = row

    def put(self, row: int) -> str:
        """Put the cursor on a row. Return an empty message."""
        self.cursor = row
        return ""

    def jump(self, row: int) -> str:
        """Go to a row, and add the jump to the history.

        A filter that hides the row is cleared, and the message says so.
        """
        self.trail.add_jump(self.cursor, row)
        self.cursor = row
        if self.line >= 0:
            return ""
        self.clear_filter()
        return ", the filter hid it and is cleared"

    def back(self, direction: int) -> str:
        """Go back or forward in the history of jumps."""
        row = self.trail.step(direction, self.cursor)
        if row is None:
            return f"the history {'begins' if direction < 0 else 'ends'} here; jumps such as ! w W ] add to it"
        self.cursor = row
        is_hidden = self.line < 0
        if is_hidden:
            self.clear_filter()
        return f"{'back' if direction < 0 else 'forward'} at {self._name(row)}" + (
            ", filter cleared" if is_hidden else ""
        )

    def mark(self) -> str:
        """Mark or unmark the row under the cursor."""
        if not self.table.size:
            return "there is no node to mark"
        is_marked = self.trail.toggle(self.cursor)
        mark_count = len(self.trail.marks)
        if self.cursor in self.trail.notes:
            action = "marked" if is_marked else "mark removed, its note is kept"
            return f"{action}; a changes the note; {mark_count} marked"
        action = "marked" if is_marked else "mark removed"
        return (
            f"{action}; {mark_count} marked, ' goes to the next, f is=marked lists them" if self.trail.marks else action
        )

    def next_mark(self) -> str:
        """Go to the next mark."""
        row = self.trail.next_mark(self.cursor)
        if row is None:
            return "nothing is marked; m marks the node"
        number = self.trail.marks.index(row) + 1
        note = self.trail.notes.get(row)
        text = f": {safe_text(note, limit=200)}" if note else ""
        return f"mark {number} of {len(self.trail.marks)}{self.jump(row)}{text}"

    def note(self, node: str, text: str) -> None:
        """Add a note to the first row of a node; "" removes it."""
        row = self.table.find(node)
        if row is not None:
            self.trail.note(row, text)

    def block(self, direction: int) -> str:
        """Go to the first row of the next or previous block.

        A block is the part of a name before the last slash or dot.
        """
        names = self.table.names
        scope_here = _scope(names[self.cursor]) if names else ""
        rows = range(self.cursor + 1, self.table.size) if direction > 0 else range(self.cursor - 1, -1, -1)
        target = next((row for row in rows if _scope(names[row]) != scope_here), None)
        if target is None:
            return f"no other block {'after' if direction > 0 else 'before'} this one"
        if direction < 0:
            scope = _scope(names[target])
            while target > 0 and _scope(names[target - 1]) == scope:
                target -= 1
        filter_note = self.jump(target)
        return f"block {safe_text(_scope(names[target]) or names[target], limit=50)}{filter_note}"

    def first_divergence(self) -> str:
        """Go to the first row beyond its limit, in topological order."""
        row = self.table.first_divergence(self.sample)
        if row is None:
            return self._no_failing()
        is_there = self.cursor == row
        filter_note = self.jump(row)
        return f"{'already at' if is_there else 'at'} the first divergence{self._so_far()}{filter_note}"

    def failing(self, direction: int) -> str:
        """Go to the next or previous failing row, in topological order."""
        if not len(self.table.failing(self.sample)):
            return self._no_failing()
        row = self.failing_from_here(direction)
        if row is None:
            return self._mark_provisional(f"no failing node {'after' if direction > 0 else 'before'} this one")
        self.jump(row)
        return ""

    def failing_from_here(self, direction: int) -> int | None:
        """Return the next or previous failing row that the filter shows; None if there is none so far."""
        rows = self.table.failing(self.sample)
        if self._mask is not None:
            rows = rows[self._mask[rows]]
        rows = rows[rows > self.cursor] if direction > 0 else rows[rows < self.cursor]
        return int(rows[0] if direction > 0 else rows[-1]) if len(rows) else None

    def match(self, direction: int) -> str:
        """Go to the next or previous match of the search, in the list's order and wrapping around."""
        if not self.pattern:
            return self.failing(direction)
        if not len(self.matches):
            return f"nothing matches {safe_text(self.pattern, limit=40)}"
        match_lines = self._match_lines()
        if not len(match_lines):
            return f"the filter hides every match; {_CLEAR_HINT}"
        line = self.line
        lines_ahead = match_lines[match_lines > line] if direction > 0 else match_lines[match_lines < line][::-1]
        has_wrapped = not len(lines_ahead)
        target = int(lines_ahead[0] if not has_wrapped else match_lines[0 if direction > 0 else -1])
        self.jump(self.line_to_row(target))
        number = int(np.searchsorted(match_lines, target)) + 1
        return f"match {number} of {len(match_lines)}" + (", around the end" if has_wrapped else "")

    def is_match(self, row: int) -> bool:
        """Return whether a row matches the search."""
        position = int(np.searchsorted(self.matches, row))
        return position < len(self.matches) and int(self.matches[position]) == row

    def search(self, pattern: str, *, start: int) -> str:
        """Search and go to the first match at or after a row's line.

        Args:
            pattern: As in `NodeTable.search`; "" clears the search.
            start: Row at which the search began.
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
        match_lines = self._match_lines()
        if not len(match_lines):
            return f"the filter hides every match; {_CLEAR_HINT}"
        named_rows = [row for row in self.table.rows_named(pattern) if self._line_of_row[row] >= 0]
        paired_rows = [row for row in named_rows if self.table.rows[row].missing is None]
        named_lines = np.sort(self._line_of_row[paired_rows or named_rows])
        target_lines = named_lines if len(named_lines) else match_lines  # exact matches take precedence
        target_lines_ahead = target_lines[target_lines >= self.line]
        rows = [
            self.line_to_row(int(line))
            for line in np.concatenate((target_lines_ahead, target_lines))[:_MAX_INSPECTED_MATCHES]
        ]
        visible_rows = (row for row in rows if not self._hidden_match_text(pattern, row))
        compared_rows = (
            row for row in rows if self.table.rows[row].missing is None and not self._hidden_match_text(pattern, row)
        )
        # Rows whose visible name matches come before rows whose tensor does, and compared rows before others.
        self.cursor = next(compared_rows, next(visible_rows, rows[0]))
        hidden_match_text = self._hidden_match_text(pattern, self.cursor)
        return (
            f"{numbers.grouped(len(match_lines))} {'match' if len(match_lines) == 1 else 'matches'}{hidden_match_text}"
        )

    def _hidden_match_text(self, pattern: str, row: int) -> str:
        """Return which tensor of a row the search found; "" if the visible name or operator contains the pattern."""
        plan_row = self.table.rows[row]
        text = pattern.strip("~'").lower()
        visible_text = f"{self.table.names[row]}\n{plan_row.op}".lower()
        tensor = next((name for name in (plan_row.tensor, plan_row.reference_tensor) if text in name.lower()), "")
        return f", here in the tensor {safe_text(tensor, limit=40)}" if tensor and text not in visible_text else ""

    @property
    def has_visible_match(self) -> bool:
        """Whether the search has a match that the filter shows."""
        return bool(len(self._match_lines()))

    def _match_lines(self) -> np.ndarray:
        match_lines = np.sort(self._line_of_row[self.matches])
        return match_lines[match_lines >= 0]

    def choose_filter(self, expression: str) -> str:
        """Show only the rows that match an expression; "" shows all.

        Raises:
            FilterError: The expression cannot be parsed. The filter stays unchanged.
        """
        self._mask = self._filter_mask(expression) if expression.strip() else None
        self.filter = expression.strip()
        self._put_in_order()
        if self._mask is None:
            return "all nodes"
        if self.lines and self.line < 0:
            rows_after = self.order[self.order >= self.cursor]
            self.cursor = int(rows_after.min() if len(rows_after) else self.order.max())
        return f"{numbers.grouped(self.lines)} of {numbers.grouped(self.table.size)} nodes"

    def choose_filter_so_far(self, text: str) -> tuple[str, str]:
        """Show the rows that match as much of a text as can be parsed.

        Args:
            text: An expression that may be incomplete.

        Returns:
            The number of rows as text, and what is missing before the whole text can be parsed; "" if nothing is.
        """
        count_text = problem = ""
        for prefix in valid_prefixes(text):
            try:
                count_text = self.choose_filter(prefix)
            except FilterError as error:
                problem = problem or str(error)
                continue
            if self.lines or prefix is not text or (example := example_of_begun_field(text)) is None:
                break
            problem = f"no node has that in its name; compare a field, such as {example}"
        return count_text, problem

    def row_before_filter(self) -> int:
        """Return the cursor's row before the filter moved it; the current row if the filter did not move it."""
        return (
            self._moved_by_filter[0]
            if self._moved_by_filter is not None and self._moved_by_filter[1] == self.cursor
            else self.cursor
        )

    def remember_row_before_filter(self, row: int) -> None:
        """Remember the row to return to when the filter is cleared, unless the cursor moves meanwhile."""
        self._moved_by_filter = (row, self.cursor) if self.filter and row != self.cursor else None

    def clear_filter(self) -> None:
        """Show all rows."""
        self.filter, self._mask, self._moved_by_filter = "", None, None
        self.arrange()

    def take_filter_back(self) -> str:
        """Show all rows and report it. If the cursor has not moved since the filter, it returns to its row before."""
        move, cleared = self._moved_by_filter, f"filter {safe_text(self.filter, limit=40)!r} cleared"
        self.clear_filter()
        if move is None or move[1] != self.cursor:
            return cleared
        self.cursor = move[0]
        return f"{cleared}, back at {self._name(self.cursor)}"

    def _filter_mask(self, expression: str) -> np.ndarray:
        return filter_rows(expression, self.table, sample=self.sample, marked_rows=self.trail.marks)

    def next_sort(self, direction: int = 1) -> str:
        """Sort by the next or previous column."""
        return self.sort_by(SORTS[(SORTS.index(self.sort) + direction) % len(SORTS)])

    def sort_by(self, sort: str) -> str:
        """Sort by a column. If the list is already sorted by it, reverse the order."""
        if sort == self.sort:
            return self.reverse()
        self.sort, self.reversed = sort, False
        self.arrange()
        return f"sorted by {self.sort_title()}"

    def reverse(self) -> str:
        """Reverse the order."""
        self.reversed = not self.reversed
        self.arrange()
        return f"sorted by {self.sort_title()}"

    def sort_title(self) -> str:
        """Return the name of the sort key."""
        metric_title_and_ends = metric_title(self.metric), ("worst", "best")
        title, ends = metric_title_and_ends if self.sort == "metric" else _SORT_TITLES[self.sort]
        if ends is None:
            return f"{title}, reversed" if self.reversed else title
        return f"{title}, {ends[self.reversed]} first"

    def next_metric(self) -> str:
        """Show the next metric."""
        choices = METRIC_CHOICES if self.sample is None else SAMPLE_METRICS
        return self.choose_metric(choices[(choices.index(self.metric) + 1) % len(choices)])

    def choose_metric(self, metric: str) -> str:
        """Show one of `METRIC_CHOICES`."""
        choices = METRIC_CHOICES if self.sample is None else SAMPLE_METRICS
        if metric not in choices:
            return f"{metric_title(metric)} is not known for a single sample; 9 chooses all samples"
        self.metric = metric
        self.arrange()
        if self.sample is None:
            return f"metric {metric_title(self.metric)}, {choices.index(metric) + 1} of {len(choices)}"
        return f"metric {metric_title(self.metric)}; the list has {len(choices)} metrics of a single sample"

    def step_sample(self, direction: int) -> str:
        """Select the next or previous sample. Before the first sample come all samples together."""
        target = (-1 if self.sample is None else self.sample) + direction
        if self.samples == 1:
            return "there is only one sample"
        if not -1 <= target < self.samples:
            return "this is the last sample" if direction > 0 else "these are all samples already"
        return self.choose_sample(None if target < 0 else target)

    def next_step(self, direction: int) -> str:
        """Select the next or previous step of a stateful network for the elements. The metrics cover all steps."""
        if self.steps == 1:
            return "the recordings have one step per sample"
        if not 0 <= self.step + direction < self.steps:
            return f"this is the {'last' if direction > 0 else 'first'} step"
        self.step += direction
        return f"elements of step {self.step} of 0..{self.steps - 1}; the metrics cover all steps"

    def choose_sample(self, sample: int | None) -> str:
        """Select one sample, or all samples with None."""
        self.sample = sample
        label = "all samples" if sample is None else f"sample {sample} of 0..{self.samples - 1}"
        if sample is not None and self.metric not in SAMPLE_METRICS:
            self.metric = SAMPLE_METRICS[0]
            label += f", metric {metric_title(self.metric)}"
        self.arrange()
        return label

    def refresh(self) -> bool:
        """Sort again if new results affect the order. Return whether the order may have changed."""
        is_static = self.sort in {"order", "name", "op"} and not self.filter
        if is_static or self._sorted_version == self.table.version:
            return False
        self.arrange()
        return True

    def arrange(self) -> None:
        """Filter and sort the rows. The cursor stays on its row."""
        if self.filter:
            with suppress(FilterError):  # a field is unknown for single samples: keep the last mask
                self._mask = self._filter_mask(self.filter)
        self._put_in_order()

    def _put_in_order(self) -> None:
        """Sort the rows that the filter shows."""
        self._sorted_version = self.table.version
        self.arrangement_count += 1
        order = self._sorted()
        self.order = order if self._mask is None else order[self._mask[order]]
        self._line_of_row = np.full(self.table.size, -1, dtype=np.int32)
        self._line_of_row[self.order] = np.arange(len(self.order))

    def _sorted(self) -> np.ndarray:
        """Return the sorted rows, with unknown values last in either direction."""
        table, direction = self.table, -1 if self.reversed else 1
        if self.sort == "name":
            return table.by_name[::direction]
        if self.sort == "op":
            return table.by_op[::direction]
        if self.sort == "metric":
            keys = -severity(self.metric, table.values(self.metric, self.sample))
        elif self.sort == "introduced":
            keys = -table.values("introduced")
        elif self.sort == "clipped":
            keys = -table.values("clipped")
        elif self.sort == "state":
            keys = _RANK[table.states(self.sample)]
        else:
            return np.arange(table.size)[::direction]
        return np.argsort(keys * direction, kind="stable")  # NaN, the unknown, sorts last

    def _name(self, row: int) -> str:
        return safe_text(self.table.names[row], limit=60)

    def _so_far(self) -> str:
        return " so far" if self.table.pending or self.table.is_growing else ""

    def _mark_provisional(self, text: str, suffix: str = "") -> str:
        """Add "so far" to a text and make it expire, if more results are still to come."""
        so_far = self._so_far()
        return Provisional(f"{text}{so_far}{suffix}", Until.RESULTS) if so_far else f"{text}{suffix}"

    def _no_failing(self) -> str:
        if self.table.pending:
            progress = f"{numbers.grouped(self.table.compared)} of {numbers.grouped(self.table.comparable)}"
            return Provisional(f"no failing node so far, {progress} compared", Until.RESULTS)
        failing = self.table.failing() if self.sample is not None else np.zeros(0, np.int64)
        first_result = self.table.results[int(failing[0])] if len(failing) else None
        if first_result is not None and not first_result.samples:
            return f"{self._name(int(failing[0]))} fails, and has no results of single samples; , goes back to all"
        if len(failing):
            return f"no node is beyond its limit in sample {self.sample}; , and . choose another, 9 lists them"
        cost_hint = "; W goes up to what costs the output most" if self.table.costs else ""
        return self._mark_provisional("no node is beyond its limit", cost_hint)


_RANK = np.array([3, 5, 4, 1, 0, 2])
"""Sort rank of each state, most urgent first: nonfinite, diverged, not compared, pending, within, identical."""

_CLEAR_HINT = "esc clears it"


def _scope(name: str) -> str:
    """Return the part of a name before its last slash or dot."""
    return name[: max(name.rfind("/"), name.rfind("."), 0)]
