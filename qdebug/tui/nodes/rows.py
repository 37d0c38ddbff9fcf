"""The node list: its rows, created before any value is read, and columns with their results."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from os.path import commonprefix
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.cells import cell_len

from qdebug.compare.result.finding import Status
from qdebug.compare.result.node_result import cost_of

if TYPE_CHECKING:
    from qdebug.compare.result.diagnosis import Diagnosis
    from qdebug.compare.result.result import NodeResult, RunComparison, SampleResult
    from qdebug.model import QuantParams

__all__ = [
    "METRIC_CHOICES",
    "SAMPLE_METRICS",
    "STATE_OF",
    "NodeTable",
    "PlannedRow",
    "State",
    "column",
    "display_names",
    "explain_status",
    "number_of",
    "sample_reason",
    "severity",
    "shared_prefix",
    "shown_sample",
    "sign",
]


class State(IntEnum):
    """Progress and result of a row. The numbers are stored in the state column."""

    PENDING = 0
    IDENTICAL = 1
    WITHIN = 2
    DIVERGED = 3
    NONFINITE = 4
    INCOMPARABLE = 5

    @property
    def word(self) -> str:
        """The state as a word."""
        return _STATE_WORDS[self]

    @property
    def is_failing(self) -> bool:
        """Whether the row exceeds its limit."""
        return self is State.DIVERGED or self is State.NONFINITE


_STATE_WORDS = {
    State.PENDING: "pending",
    State.IDENTICAL: "identical",
    State.WITHIN: "within",
    State.DIVERGED: "diverged",
    State.NONFINITE: "nonfinite",
    State.INCOMPARABLE: "not compared",
}

STATE_OF: Mapping[Status, State] = MappingProxyType(
    {
        Status.IDENTICAL: State.IDENTICAL,
        Status.WITHIN: State.WITHIN,
        Status.ACCUMULATED: State.WITHIN,
        Status.DIVERGED: State.DIVERGED,
        Status.NONFINITE: State.NONFINITE,
        Status.INCOMPARABLE: State.INCOMPARABLE,
        Status.INCOMPLETE: State.INCOMPARABLE,
    }
)
"""The row state for each comparison status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRow:
    """One row of the node list, created before any value is read.

    Args:
        node: Node that produces the tensor.
        op: Its operator.
        tensor: The backend's tensor, or the reference's if the backend has none.
        reference_tensor: The reference's tensor; "" if it has none.
        match: How the pair was matched and why; "" without a pair.
        shape: Extents of the tensor.
        dtype: Logical dtype of its elements.
        quant: Quantization of the tensor.
        missing: Why it is not compared; None if it is compared.
        constant: Whether it is computed only from constants, and so has no position in the run.
        placement: Where the backend's node ran; "" if that was not recorded.
        folded: Operators folded into the reference's value of a constant; "" if there are none.
    """

    node: str
    op: str
    tensor: str
    reference_tensor: str
    match: str = ""
    shape: tuple[int | None, ...] | None = None
    dtype: str | None = None
    quant: QuantParams | None = None
    missing: str | None = None
    constant: bool = False
    placement: str = ""
    folded: str = ""

    @property
    def side(self) -> str:
        """The only side that has the tensor, "reference" or "backend"; "" for a compared tensor."""
        return "" if self.missing is None else "backend" if self.tensor else "reference"

    @property
    def is_ordered(self) -> bool:
        """Whether it has a position in the backend's order."""
        return bool(self.tensor) and not self.constant


def column(rows: Sequence[PlannedRow], name: str) -> list[Any]:
    """Return one field of every row."""
    return [getattr(row, name) for row in rows]


def shared_prefix(rows: Sequence[PlannedRow], names: Sequence[str]) -> str:
    """Return the scope that the names of all computed nodes begin with, such as "model/encoder/"; "" if there is none.

    A list leaves out the scope. It is "" if a name without its scope would equal the name of another row.

    Args:
        rows: The rows.
        names: Their names.
    """
    computed_names = [name for row, name in zip(rows, names, strict=True) if row.op != "Input"]
    extreme_names = [min(computed_names), max(computed_names)] if len(computed_names) > 1 else ["", ""]
    common_text = commonprefix(extreme_names)  # noqa: RUF071  of characters, not of path components
    prefix = common_text[: max(common_text.rfind("/"), common_text.rfind(".")) + 1]
    if not prefix or prefix in computed_names:
        return ""
    short_names = {name.removeprefix(prefix) for name in names}
    return prefix if len(short_names) == len({*names}) else ""


def display_names(rows: Sequence[PlannedRow]) -> list[str]:
    """Return the name of each row: its node, plus the tensor or the side if several rows share the name."""
    counts = Counter(row.node for row in rows if row.tensor)
    names = [_display_name(row.node, row.tensor or row.reference_tensor, counts[row.node] > 1) for row in rows]
    unmatched = [at for at, row in enumerate(rows) if not row.tensor and row.node and counts[row.node]]
    reference_counts = Counter(rows[at].node for at in unmatched)
    for at in unmatched:  # the backend has a node of the same name, for instance a fused one
        is_ambiguous = reference_counts[rows[at].node] > 1
        names[at] = f"{_display_name(rows[at].node, rows[at].reference_tensor, is_ambiguous)}{_REFERENCE_SUFFIX}"
    return names


def _display_name(node: str, tensor: str, is_ambiguous: bool) -> str:  # noqa: FBT001
    if not node or node == tensor:
        return tensor
    return f"{node}{_TENSOR_SEPARATOR}{tensor}" if is_ambiguous else node


_MAX_DIGITS = 10
"""Number of digits that no row number reaches."""
_REFERENCE_SUFFIX = " (ref)"
"""Suffix for a node that only the reference has, if a backend node has the same name."""
_TENSOR_SEPARATOR = " > "
"""Separates the name of a node with several tensors from the name of one of them."""


METRIC_CHOICES = ("sqnr_db", "introduced", "rel_l2", "max_lsb", "max_abs", "cosine", "mismatches")
"""Metrics that the list and the profile can show, in the order in which the key cycles through them. "introduced" is
the relative (rel_l2) error that a node adds itself. The others measure the whole error."""


def number_of(result: NodeResult, name: str) -> float:
    """Return a metric or another number of a result by name; NaN if unknown."""
    value: float | None
    if name in {"clipped", "at_ends"}:
        rails = result.saturation
        value = getattr(rails, name) / rails.total if rails is not None and rails.total else None
    elif name in {"introduced", "propagated"}:
        stats = result.introduced if name == "introduced" else result.propagated
        value = None if stats is None else stats.rel_l2
    elif name == "gain":
        value = result.relative_gain
    else:
        value = None if result.metrics is None else getattr(result.metrics, name)
    return np.nan if value is None else value


def explain_status(result: NodeResult | None) -> str | None:
    """Return why a tensor fails, or what its error costs within its limit; None if there is neither."""
    cost = None if result is None or result.reason else cost_of(result)
    return cost.sentence if cost is not None else None if result is None else result.reason


def sign(table: NodeTable, row: int, state: int) -> str:
    """Return the symbol of a row in a state: one character, which the help explains.

    Args:
        table: The rows.
        row: The row.
        state: Its state, for one sample or for all.
    """
    if table.acknowledged[row]:
        return "~"
    if state == State.INCOMPARABLE:
        return "?" if table.rows[row].tensor else "-"
    result = table.results[row]
    if state == State.WITHIN and result is not None and cost_of(result) is not None:
        return "+"
    return "*" if State(state).is_failing else "." if state == State.PENDING else " "


def shown_sample(result: NodeResult | None, sample: int | None, worst_of_output: int | None) -> int:
    """Return the sample whose elements are shown.

    Args:
        result: The comparison of the tensor; None if it is not compared yet.
        sample: The sample that the user has chosen; None if all samples are shown.
        worst_of_output: The sample in which the verdict's output is worst; None if unknown.

    Returns:
        The chosen sample, else the worst one of the output if the tensor was compared in it, else the one with the
        tensor's largest error, else the first.
    """
    if sample is not None:
        return sample
    if result is None:
        return 0
    if worst_of_output is not None and any(entry.sample == worst_of_output for entry in result.samples):
        return worst_of_output
    return (None if result.metrics is None else result.metrics.worst_sample) or 0


def sample_reason(result: NodeResult | None, sample: int, worst_of_output: int | None) -> str:
    """Return why `shown_sample` shows a sample that the user did not choose."""
    if sample == worst_of_output:
        return "the output's worst"
    worst = None if result is None or result.metrics is None else result.metrics.worst_sample
    return "largest max abs" if sample == worst else "the first"


SAMPLE_METRICS = ("sqnr_db", "max_abs")
"""Metrics that are known per sample for every node."""


def severity(metric: str, values: np.ndarray) -> np.ndarray:
    """Return values that grow with the error, suitable for an axis.

    For SQNR, the result is the negated decibels. For other metrics, it is the decimal logarithm of the error (of 1 -
    cosine for the cosine). No error gives -inf, and unknown values give NaN.

    Args:
        metric: One of `METRIC_CHOICES`.
        values: Values of that metric.
    """
    if metric == "sqnr_db":
        return -values
    error = 1 - values if metric == "cosine" else values
    with np.errstate(divide="ignore", invalid="ignore"):
        logs: np.ndarray = np.log10(np.maximum(error, 0.0))
    return logs


class NodeTable:
    """All rows of the list, in topological order.

    One thread may add results while another reads them. A column is created when it is first read, and then kept up to
    date. The state of a row is written last, so that a reader who sees it also finds the rest.

    Args:
        rows: The rows, in order.
        names: Names of the rows, if only these are known so far; the other fields are then not used.
        is_growing: Whether a recorder is still adding rows.
        first_number: Number of its first row in requests: 0 for the list of nodes, more for a table of constants.
    """

    def __init__(
        self,
        rows: Sequence[PlannedRow],
        *,
        names: Sequence[str] | None = None,
        is_growing: bool = False,
        first_number: int = 0,
    ) -> None:
        self.rows, self.first_number = rows, first_number
        self.is_growing = is_growing
        self.size = size = len(rows)
        self.names: Sequence[str] = display_names(rows) if names is None else names
        self._prefix = "" if names is not None else shared_prefix(rows, self.names)
        measure = len if all(map(str.isascii, self.names)) else cell_len
        cells = np.fromiter(map(measure, map(self.short_name, range(size))), np.int32, size)
        self.longest_name = int(cells.max(initial=0))
        self.usual_name = int(np.partition(cells, (size - 1) * 9 // 10)[(size - 1) * 9 // 10]) if size else 0
        """Width in cells that is sufficient for nine of ten names."""
        self.results: list[NodeResult | None] = [None] * size
        self.state = np.zeros(size, dtype=np.uint8)
        self.acknowledged = np.zeros(size, dtype=bool)
        self.version = 0
        self.costs: Mapping[int, float] = {}
        """For each row, the SQNR in dB of the outputs with only that row's error, the lowest first; see `conclude`."""
        self.diagnosis: Mapping[int, Diagnosis] = {}
        self.worst_sample: int | None = None
        """The sample in which the verdict's output is worst; None if unknown."""
        self.pending = size
        self.is_announced = False  # whether an event for new results is on its way to the screen
        self._lock = RLock()
        self._numbers: dict[str, np.ndarray] = {}
        self._sample_columns: tuple[int, dict[str, np.ndarray]] = (-1, {})
        self._first_divergences: dict[int | None, int | None] = {}
        """The first row that exceeds its limit, for all samples or a single one; updated as results arrive."""
        self._searched_texts: list[str] | None = None
        self._missing = np.zeros(size, dtype=bool)
        self.ordered = size  # number of rows in topological order; all others come after them
        if names is None:
            reasons = column(rows, "missing")
            self._missing = np.fromiter((reason is not None for reason in reasons), bool, size)
            self.state[self._missing] = State.INCOMPARABLE
            self.pending -= int(self._missing.sum())
            self.ordered = sum(column(rows, "is_ordered"))
        self.comparable = self.pending
        self._compared_numbers = np.where(
            self._missing, np.int32(-1), np.cumsum(~self._missing, dtype=np.int32) - np.int32(1)
        )

    def compared_number(self, row: int) -> int | None:
        """Return the position of a row among the compared rows, as in `qdebug diff`; None without a counterpart."""
        number = int(self._compared_numbers[row])
        return None if number < 0 else number

    @property
    def compared_numbers(self) -> np.ndarray:
        """The position of each row among the compared rows; NaN without a counterpart."""
        return np.where(self._compared_numbers < 0, np.nan, self._compared_numbers)

    def short_name(self, row: int) -> str:
        """Return the name of a row in a list, without the prefix that all node names share."""
        return self.names[row].removeprefix(self._prefix)

    def title(self, row: int, *, is_short: bool = False) -> str:
        """Return the number and name of a row, such as "#4 conv2". Rows without a counterpart have no number.

        Args:
            row: The row.
            is_short: Whether to use the short name.
        """
        number = None if self.first_number else self.compared_number(row)
        name = self.short_name(row) if is_short else self.names[row]
        return name if number is None else f"#{number} {name}"

    def prepare(self) -> None:
        """Build the indexes for searching and sorting in advance. Called on a worker thread."""
        _ = self._row_of, self._row_of_unmatched_reference, self._row_of_reference, self.by_name, self.by_op
        for name in ("introduced", "clipped"):
            self.values(name)

    @cached_property
    def _row_of(self) -> Mapping[str, int]:
        return {row.tensor: at for at, row in enumerate(self.rows) if row.tensor}

    @cached_property
    def _row_of_reference(self) -> Mapping[str, int]:
        return {row.reference_tensor: at for at, row in enumerate(self.rows) if row.missing is None}

    @cached_property
    def _row_of_unmatched_reference(self) -> Mapping[str, int]:
        unmatched = ((at, row) for at, row in enumerate(self.rows) if row.missing is not None)
        return {row.reference_tensor: at for at, row in unmatched if row.reference_tensor}

    @cached_property
    def by_name(self) -> np.ndarray:
        """The rows sorted by name."""
        return np.array(sorted(range(self.size), key=self.names.__getitem__), dtype=np.int32)

    @cached_property
    def by_op(self) -> np.ndarray:
        """The rows sorted by operator."""
        ops = column(self.rows, "op")
        rank = {op: at for at, op in enumerate(sorted(set(ops)))}
        return np.argsort(np.array([rank[op] for op in ops], np.int32), kind="stable").astype(np.int32)

    def put(self, *results: NodeResult) -> None:
        """Add results. Results without a row to compare are ignored."""
        for result in results:
            row = self._row_of.get(result.tensor)
            if row is None or self.rows[row].missing is not None:
                continue
            state = STATE_OF[result.status]
            with self._lock:  # so that no column is created meanwhile
                self.pending -= self.results[row] is None
                self.results[row] = result
                for name, numbers in self._numbers.items():
                    numbers[row] = number_of(result, name)
                sample, columns = self._sample_columns
                if columns:
                    _put_sample(columns, row, result.samples, sample, overall_state=state)
                self.acknowledged[row] = _is_acknowledged(result)
                self.state[row] = state
                if self._first_divergences:
                    self._update_first_divergences(row, state)
                self.version += 1

    def conclude(self, result: RunComparison) -> None:
        """Store the results of the whole comparison: the worst sample, the diagnosis, and the cost of each error.

        Costs are known only if an output exceeds its limit. Nodes of the diagnosis come first.
        """
        self.worst_sample = result.verdict.worst_sample
        rows = ((self.row_of(cost.tensor), cost) for cost in result.diagnosis)
        self.diagnosis = {row: cost for row, cost in rows if row is not None}
        exact = (cost for cost in result.verdict.contributors if cost.how == "exact")
        levels = {row: cost.sqnr_db for cost in exact if (row := self.row_of(cost.tensor)) is not None}
        first = {row: levels[row] for row in self.diagnosis if row in levels}
        self.costs = first | levels
        self.version += 1

    def row_of(self, tensor: str) -> int | None:
        """Return the row of a backend tensor; None if it is not in the list."""
        return self._row_of.get(tensor)

    def row_of_reference(self, tensor: str) -> int | None:
        """Return the row in which a reference tensor is compared; None if it is not compared."""
        return self._row_of_reference.get(tensor)

    def row_of_any_reference(self, tensor: str) -> int | None:
        """Return the row of a reference tensor, compared or not; None if it is not in the list."""
        row = self.row_of_reference(tensor)
        return self._row_of_unmatched_reference.get(tensor) if row is None else row

    @property
    def compared(self) -> int:
        """Number of rows compared so far."""
        return self.comparable - self.pending

    def states(self, sample: int | None) -> np.ndarray:
        """Return the state of each row, for one sample or for all."""
        return self.state if sample is None else self._columns_of_sample(sample)["state"]

    def status_word(self, row: int, sample: int | None = None, *, is_brief: bool = False) -> str:
        """Return the status of a row, for one sample or for all.

        A node of the diagnosis may be within its own limit. Its share is returned instead, since the verdict fails.
        """
        state, fault = State(int(self.states(sample)[row])), self.diagnosis.get(row)
        if fault is None or state is not State.WITHIN:
            return state.word
        from qdebug.present.answer import share_of, share_text

        share = share_of(fault)
        if share is None:
            return "diagnosed" if is_brief else "in the diagnosis"
        return share_text(share) + (" share" if is_brief else " of the output's error")

    def values(self, name: str, sample: int | None = None) -> np.ndarray:
        """Return a number of each row, see `number_of`; NaN if unknown.

        Single samples support only `SAMPLE_METRICS`.
        """
        if sample is not None:
            return self._columns_of_sample(sample)[name]
        if name not in self._numbers:
            with self._lock:
                numbers = (np.nan if result is None else number_of(result, name) for result in self.results)
                self._numbers[name] = np.fromiter(numbers, np.float64, self.size)
        return self._numbers[name]

    def failing(self, sample: int | None = None) -> np.ndarray:
        """Return the rows that exceed their limit and are not acknowledged, in topological order."""
        states = self.states(sample)
        is_failing = (states == State.DIVERGED) | (states == State.NONFINITE)
        rows: np.ndarray = np.flatnonzero(is_failing & ~self.acknowledged)
        return rows

    def first_divergence(self, sample: int | None = None) -> int | None:
        """Return the first row that exceeds its limit, in topological order; None if there is none so far."""
        if self.first_number:  # constants have no order
            return None
        try:
            return self._first_divergences[sample]
        except KeyError:  # not computed yet, or outdated
            with self._lock:
                rows = self.failing(sample)
                first = self._first_divergences[sample] = int(rows[0]) if len(rows) else None
            return first

    def _update_first_divergences(self, row: int, overall_state: State) -> None:
        """Update the first divergences after a new result, since searching all rows for each redraw would be slow."""
        for sample, first in tuple(self._first_divergences.items()):
            if sample is not None and sample != self._sample_columns[0]:
                del self._first_divergences[sample]
                continue
            state = overall_state if sample is None else State(int(self.states(sample)[row]))
            if not state.is_failing or self.acknowledged[row]:
                if row == first:
                    del self._first_divergences[sample]
            elif first is None or row < first:
                self._first_divergences[sample] = row

    def row_like(self, planned: PlannedRow) -> int | None:
        """Return this table's row of the tensor in another table's row; None if it is not in this table."""
        if planned.tensor:
            return self.row_of(planned.tensor)
        return self._row_of_unmatched_reference.get(
            planned.reference_tensor, self._row_of_reference.get(planned.reference_tensor)
        )

    def find(self, name: str) -> int | None:
        """Return the row of a node or tensor, preferring the exact name of a node."""
        for attribute in ("node", "tensor", "reference_tensor"):
            names = column(self.rows, attribute)
            if name in names:
                return names.index(name)
        return None

    def rows_named(self, name: str) -> list[int]:
        """Return the rows whose node or tensor has exactly this name. Fast enough to call for each typed letter."""
        if len(row_by_number := self._row_by_number(name)):
            return [int(row) for row in row_by_number]
        row, rows = self._row_of.get(name), set[int]()
        for beginning, is_exact in ((name, True), (f"{name}{_TENSOR_SEPARATOR}", False)):
            for at in range(bisect_left(self.by_name, beginning, key=self.names.__getitem__), self.size):
                row_name = self.names[self.by_name[at]]
                if not (row_name == beginning if is_exact else row_name.startswith(beginning)):
                    break
                rows.add(int(self.by_name[at]))
        return sorted(rows if row is None else rows | {row})

    def search(self, pattern: str) -> np.ndarray:
        """Return the rows whose node, tensor or operator matches, in topological order.

        Args:
            pattern: Part of a name, case-insensitive; 'a whole name' in quotes; ~ and a regular expression; # and a
                number.

        Raises:
            ValueError: The regular expression cannot be read.
        """
        if len(row_by_number := self._row_by_number(pattern)):
            return np.union1d(row_by_number, np.flatnonzero(self.rows_containing(pattern)))
        if pattern.startswith("~"):
            try:
                regex = re.compile(pattern[1:], re.IGNORECASE)
            except re.error as error:
                raise ValueError(f"not a valid regular expression yet: {error.msg}") from error
            hits = [row for row, name in enumerate(self._texts_to_search()) if regex.search(name)]
        elif pattern.startswith("'"):
            exact_name = pattern[1:].removesuffix("'")
            texts = (column(self.rows, name) for name in ("node", "tensor", "reference_tensor"))
            hits = [number for number, names in enumerate(zip(*texts, strict=True)) if exact_name in names]
        else:
            return np.flatnonzero(self.rows_containing(pattern))
        return np.array(hits, dtype=np.int64)

    def _row_by_number(self, pattern: str) -> np.ndarray:
        """Return the row that "#" and a number refer to; empty for other patterns, or if the number does not exist."""
        digits = pattern[1:] if pattern.startswith("#") else ""
        number = int(digits) if digits.isdecimal() and len(digits) < _MAX_DIGITS else -2
        return np.flatnonzero(self._compared_numbers == number)

    def rows_containing(self, text: str) -> np.ndarray:
        """Return for each row whether its node, tensor or operator contains a text, case-insensitively."""
        lowered = text.lower()
        return np.fromiter((lowered in name for name in self._texts_to_search()), dtype=bool, count=self.size)

    def rows_matching(self, field: str, matches: Callable[[str], object], sample: int | None = None) -> np.ndarray:
        """Return for each row whether one of its texts matches.

        Args:
            field: name, tensor, ref, op, dtype, match, placement, explained or state.
            matches: Returns a true value for a text that matches.
            sample: The sample whose state is used; None for all.
        """
        if field == "state":
            match_of_state = np.array([bool(matches(state.word)) for state in State])
            return np.asarray(match_of_state[self.states(sample)])
        if field == "explained":
            explanations = (None if result is None else result.explained or "" for result in self.results)
            return np.array([text is not None and bool(matches(text)) for text in explanations], dtype=bool)
        if field in {"name", "tensor", "ref"}:  # mostly distinct, so caching would not pay
            attribute = _FIELDS[field]
            return np.array([bool(matches(text)) for text in column(self.rows, attribute)], dtype=bool)
        texts = [text or "" for text in column(self.rows, _FIELDS[field])]
        match_of_text = {text: bool(matches(str(text))) for text in set(texts)}
        return np.fromiter(map(match_of_text.__getitem__, texts), bool, self.size)

    def _texts_to_search(self) -> list[str]:
        if self._searched_texts is None:
            texts = (column(self.rows, name) for name in ("node", "tensor", "op"))
            self._searched_texts = ["\n".join(line).lower() for line in zip(*texts, strict=True)]
        return self._searched_texts

    def _columns_of_sample(self, sample: int) -> dict[str, np.ndarray]:
        if sample != self._sample_columns[0]:
            columns: dict[str, np.ndarray] = {name: np.full(self.size, np.nan) for name in SAMPLE_METRICS}
            with self._lock:
                columns["state"] = np.where(self.state == State.INCOMPARABLE, self.state, State.PENDING).astype(
                    np.uint8
                )
                for row, result in enumerate(self.results):
                    if result is not None:
                        _put_sample(columns, row, result.samples, sample, overall_state=State(int(self.state[row])))
                self._sample_columns = sample, columns
        return self._sample_columns[1]


_FIELDS = {
    "name": "node",
    "tensor": "tensor",
    "ref": "reference_tensor",
    "op": "op",
    "dtype": "dtype",
    "match": "match",
    "placement": "placement",
}


def _put_sample(
    columns: dict[str, np.ndarray], row: int, samples: Sequence[SampleResult], sample: int, *, overall_state: State
) -> None:
    """Fill in one sample of a row. A row that fails only over all samples together counts as failing in each."""
    sample_result = samples[sample] if sample < len(samples) and samples[sample].sample == sample else None
    if sample_result is None:
        sample_result = next((entry for entry in samples if entry.sample == sample), None)
    if sample_result is None:
        columns["state"][row] = State.INCOMPARABLE
        return
    is_overall_failure = overall_state.is_failing and not any(STATE_OF[entry.status].is_failing for entry in samples)
    columns["state"][row] = overall_state if is_overall_failure else STATE_OF[sample_result.status]
    for name in SAMPLE_METRICS:
        value = getattr(sample_result, name)
        columns[name][row] = np.nan if value is None else value


def _is_acknowledged(result: NodeResult) -> bool:
    return result.acknowledged is not None and not result.acknowledged.expired
