"""Rows of the node table: each cell has its text, the value it sorts by, and a state for its colour."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from qdebug.compare.result.finding import FindingKind, FindingRole, Judged, apart
from qdebug.compare.result.node_result import breaks_limit, is_beyond, is_excused
from qdebug.compare.result.result import NodeResult, Status
from qdebug.model.thresholds.alignment import PAIR_SURE_MIN_CONFIDENCE
from qdebug.numerics.metric_table import METRICS, MetricGroup, metric
from qdebug.present import numbers
from qdebug.present.text import safe_text

if TYPE_CHECKING:
    from qdebug.compare.result.result import NodeResult
    from qdebug.model import QuantParams
    from qdebug.numerics.stats import ErrorStats, Rails

__all__ = [
    "ERROR_METRICS",
    "SCALE_TITLE",
    "STYLES",
    "Cell",
    "Column",
    "Gap",
    "NodeRow",
    "RowChoice",
    "badness",
    "clipping_words",
    "columns",
    "judged_brief",
    "judged_cell",
    "judged_words",
    "kind_title",
    "metric_title",
    "node_row",
    "part_cell",
    "position",
    "quant_text",
    "rank_rows",
    "row_cell",
    "select_rows",
]

SCALE_TITLE = "scale / zero point"
"""Title of affine quantization parameters in all interfaces."""

STYLES: Mapping[str, str] = MappingProxyType(
    {
        Status.IDENTICAL: "green",
        Status.WITHIN: "green",
        Status.ACCUMULATED: "bold red",
        Status.DIVERGED: "bold red",
        Status.NONFINITE: "bold magenta",
        Status.INCOMPARABLE: "yellow",
        Status.INCOMPLETE: "yellow",
        "warn": "yellow",
        "muted": "dim",
        "": "",
    }
)
"""Rich style of each state. The word for the state is always shown too, so colour is optional."""

ERROR_METRICS = tuple(spec for spec in METRICS if spec.group is MetricGroup.ERROR)
"""The metrics that are properties of an `ErrorStats`."""

_TITLES = {
    "sqnr_db": "SQNR dB",
    "rel_l2": "rel L2",
    "max_lsb": "max LSB",
    "lsb_bias": "LSB bias",
    "nonfinite": "non-finite",
    "worst_index": "worst at",
    "rmse": "RMSE",
}

_CLIPPED_WARNING_SHARE = 0.01
"""Minimum share of clipped values that is coloured as a warning. It does not affect the verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of the node table.

    Args:
        key: Key of the cell in a row.
        title: Its title.
        numeric: Whether it is right-aligned.
        definition: One line of explanation, or "" if the title needs none.
    """

    key: str
    title: str
    numeric: bool = False
    definition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell.

    Args:
        text: Rounded text, safe to print.
        value: Unrounded value to sort by. NaN and None sort last.
        state: A key of `STYLES`.
    """

    text: str
    value: float | str | None = None
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One compared tensor as a row. Names are exact, texts of cells are safe and rounded."""

    index: int
    node: str
    tensor: str
    status: Status
    cells: Mapping[str, Cell]


def kind_title(kind: FindingKind) -> str:
    """Return the title of a kind of finding in reports."""
    return "clipping" if kind is FindingKind.SATURATION else str(kind).replace("_", " ")


def metric_title(name: str) -> str:
    """Return the heading of a metric."""
    return _TITLES.get(name, name.replace("_", " "))


@cache
def columns() -> Mapping[str, Column]:
    """Return all columns that a node table can have, by key, in their usual order."""
    fixed = (
        Column(key="index", title="#", numeric=True),
        Column(key="status", title="status"),
        Column(key="node", title="node"),
        Column(key="op", title="op"),
    )
    metrics = tuple(
        Column(key=spec.name, title=metric_title(spec.name), numeric=True, definition=spec.definition)
        for spec in ERROR_METRICS
    )
    further_columns = (
        Column(
            key="arithmetic",
            title="arithmetic",
            numeric=True,
            definition="error of the node's arithmetic and its limit: its output against a replay of the node on "
            "its own recorded inputs and constants; the largest in LSB if the output is quantized, without what "
            "clipping removes; for real numbers the share of the rounding bound; for other "
            "integers the number of wrong elements",
        ),
        Column(
            key="clipping",
            title="by clipping",
            numeric=True,
            definition="the largest error in LSB that clipping causes in the replay",
        ),
        Column(
            key="constants",
            title="constants",
            numeric=True,
            definition="error caused by weights, biases, attributes or operators that differ from the reference's, "
            "on the same inputs; the largest in LSB if the output is quantized, else relative (rel L2)",
        ),
        Column(
            key="introduced",
            title="introduced",
            numeric=True,
            definition="error that the node itself adds: constants and arithmetic together, clipping "
            "included; units as for constants",
        ),
        Column(key="gain", title="gain", numeric=True, definition=metric("relative_gain").definition),
        Column(
            key="clipped",
            title="clipped",
            numeric=True,
            definition="values of the reference that the codes cannot represent, and that are clipped at qmin or qmax",
        ),
        Column(key="quant", title=SCALE_TITLE, definition="of the backend tensor; real = scale * (code - zero point)"),
        Column(key="dtype", title="dtype"),
        Column(key="tensor", title="tensor"),
        Column(key="reference_tensor", title="reference tensor"),
        Column(key="match", title="match"),
        Column(key="placement", title="ran on", definition="where the backend's node ran, and by which kernel"),
        Column(key="why", title="why", definition="kind of the finding that makes the node fail"),
        Column(key="reason", title="reason"),
    )
    return MappingProxyType({column.key: column for column in (*fixed, *metrics, *further_columns)})


def quant_text(quant: QuantParams | None) -> str:
    """Return scales and zero points as a short text, for one or many channels."""
    if quant is None:
        return numbers.MISSING
    scales = numbers.values([float(value) for value in quant.scale.ravel()], max_listed=1, what="scales")
    zeros = numbers.values([int(value) for value in quant.zero_point.ravel()], max_listed=1, what="zero points")
    return f"{scales} / {zeros}"


def _match_cell(result: NodeResult) -> Cell:
    """Return a cell with how a pair was matched, and its confidence if that is below 1."""
    sure = "" if result.confidence == 1 else f" {result.confidence:.2f}"
    state = "" if result.confidence >= PAIR_SURE_MIN_CONFIDENCE else "warn"
    return Cell(text=f"{result.match}{sure}", value=str(result.match), state=state)


def node_row(result: NodeResult) -> NodeRow:
    """Return the row of one compared tensor.

    Args:
        result: The comparison.
    """
    return NodeRow(
        index=result.index,
        node=result.node,
        tensor=result.tensor,
        status=result.status,
        cells=MappingProxyType({key: row_cell(result, key) for key in columns()}),
    )


def row_cell(result: NodeResult, key: str) -> Cell:
    """Return one cell of the row of a compared tensor.

    Args:
        result: The comparison.
        key: A key of `columns`.
    """
    make = _CELL_MAKERS.get(key)
    return _metric_cell(key, result.metrics, _alarm_state(result)) if make is None else make(result)


def badness(result: NodeResult) -> tuple[int, float, float]:
    """Return a key that sorts the worst results first.

    Non-finite results come first, then diverged ones, then the others, with incomparable ones last. Within each group,
    the lowest SQNR of the node's own error comes first, or of its total error if that is unknown.
    """
    stats = result.introduced or result.metrics
    if stats is None:
        return (3, math.inf, 0.0)
    rank = {Status.NONFINITE: 0, Status.DIVERGED: 1}.get(result.status, 2)
    sqnr = math.inf if stats.sqnr_db is None or math.isnan(stats.sqnr_db) else stats.sqnr_db
    largest = 0.0 if stats.max_abs is None or math.isnan(stats.max_abs) else stats.max_abs
    return (rank, sqnr, -largest)


def _status_cell(result: NodeResult) -> Cell:
    excused = breaks_limit(result) and is_excused(result)
    text = f"{result.status} (ack)" if excused else str(result.status)
    return Cell(text=text, value=str(result.status), state="warn" if excused else result.status)


def _subject_of_failure(result: NodeResult) -> str:
    """Return the subject of the finding that makes a node fail, or "" if there is none."""
    if not breaks_limit(result):
        return ""
    failing_roles = (FindingRole.DIFFERENCE, FindingRole.CAUSE, FindingRole.BREACH)
    finding = next((candidate for candidate in result.findings if candidate.role in failing_roles), None)
    return "" if finding is None else kind_title(finding.kind)


def _name_cell(text: str, *, limit: int = 200) -> Cell:
    return Cell(text=safe_text(text, limit=limit), value=text)


def _first_scale(quant: QuantParams | None) -> float | None:
    return None if quant is None else float(quant.scale.ravel()[0]) if quant.scale.size else None


def part_cell(result: NodeResult, stats: ErrorStats | None) -> Cell:
    """Return a cell with a part of a tensor's error, in LSB if the tensor is quantized, else relative.

    Args:
        result: The comparison.
        stats: The part, or None if unknown.
    """
    if stats is None:
        return Cell(text=numbers.MISSING, state="muted")
    relative = 0.0 if stats.rel_l2 is None else stats.rel_l2
    text = f"{numbers.number(relative)} rel" if stats.max_lsb is None else f"{numbers.number(stats.max_lsb)} LSB"
    return Cell(text="0" if relative == 0 else text, value=relative, state=_alarm_state(result))


def judged_cell(result: NodeResult) -> Cell:
    """Return a cell with the error that is judged by a tensor's derived limit, and that limit.

    Args:
        result: The comparison.
    """
    verdict = result.judged
    if verdict is None:
        return Cell(text=numbers.MISSING, state="muted")
    text = _verdict_text(verdict, f" {_comparison_sign(verdict)} ", "bound")
    return Cell(text="0" if verdict.amount == 0 else text, value=verdict.amount, state=_alarm_state(result))


def judged_brief(result: NodeResult, width: int) -> str:
    """Return the text of `judged_cell` for a narrow column, without spaces and, if it still does not fit, the limit.

    Args:
        result: The comparison.
        width: Width of the column in characters.
    """
    verdict = result.judged
    if verdict is None or verdict.amount == 0:
        return judged_cell(result).text
    text = _verdict_text(verdict, _comparison_sign(verdict), "bound").replace(" of bound", " bound")
    fits = len(text) <= width or verdict.unit != "LSB"
    return text if fits else f"{apart(verdict.amount, verdict.limit, digits=2)} LSB"


def _comparison_sign(verdict: Judged) -> str:
    return "<" if verdict.amount < verdict.limit else ">" if verdict.amount > verdict.limit else "="


def judged_words(result: NodeResult) -> str | None:
    """Return the error that is judged by a tensor's derived limit, in full words, or None if there is none.

    Args:
        result: The comparison.
    """
    if result.judged is None:
        return None
    return _verdict_text(result.judged, " {unit}, limit ", "the rounding bound")


def clipping_words(result: NodeResult) -> str | None:
    """Return how much clipping cuts off the backend's own results, in full words, or None without clipping.

    The reference's values may all be in range nevertheless: on the backend's inputs, the node computes other values.

    Args:
        result: The comparison.
    """
    clipping = _clipping_cell(result.clipping)
    if not clipping.value:
        return None
    rails = result.saturation
    contrast = "; all values of the reference are in range" if rails is not None and not rails.clipped else ""
    return f"cuts up to {clipping.text.removeprefix('+')} off the backend's own results{contrast}"


def _verdict_text(verdict: Judged, separator: str, bound: str) -> str:
    """Return an amount and its limit as text. In the separator, "{unit}" is replaced by the unit."""
    amount, limit, separator = verdict.amount, verdict.limit, separator.format(unit=verdict.unit)
    if verdict.unit == "LSB":
        return f"{apart(amount, limit, digits=2 if amount < _MIN_THREE_DIGITS else 3)}{separator}{limit:g} LSB"
    if verdict.unit == "bound":
        return (
            f"{numbers.percent(amount, 1)} of {bound}"
            if amount < _MIN_THREE_DIGITS
            else f"{numbers.number(amount)}x {bound}"
        )
    return f"{numbers.whole(amount)}{separator}{limit:g} {verdict.unit}"


_MIN_THREE_DIGITS = 10
"""Minimum amount that is written with three digits, or as a multiple of its limit."""


def _clipping_cell(stats: ErrorStats | None) -> Cell:
    """Return a cell with the largest error from clipping in LSB, or a placeholder without clipping."""
    if stats is None or not stats.max_lsb:
        return Cell(text=numbers.MISSING, value=0.0, state="muted")
    return Cell(text=f"+{numbers.number(stats.max_lsb)} LSB", value=stats.max_lsb)


def _alarm_state(result: NodeResult) -> str:
    return result.status if result.status in {Status.DIVERGED, Status.NONFINITE} else ""


def _clipped_cell(rails: Rails | None) -> Cell:
    if rails is None or rails.total == 0:
        return Cell(text=numbers.MISSING, state="muted")
    share = rails.clipped / rails.total
    text = "0" if share == 0 else numbers.percent(rails.clipped, rails.total)
    return Cell(text=text, value=share, state="warn" if share >= _CLIPPED_WARNING_SHARE else "")


def _metric_cell(name: str, stats: ErrorStats | None, state: str) -> Cell:
    value = None if stats is None else getattr(stats, name, None)
    if value is None:
        return Cell(text=numbers.MISSING, state="muted")
    if isinstance(value, tuple):
        return Cell(text=position(value), value=str(value))
    if name == "mismatches" and stats is not None:
        return Cell(text=numbers.mismatches(stats), value=value)
    return Cell(text=numbers.metric(name, value), value=value, state=state if name == "sqnr_db" else "")


_CELL_MAKERS: Mapping[str, Callable[[NodeResult], Cell]] = MappingProxyType(
    {
        "index": lambda result: Cell(text=str(result.index), value=result.index, state="muted"),
        "status": _status_cell,
        "node": lambda result: _name_cell(result.node),
        "op": lambda result: _name_cell(result.op),
        "tensor": lambda result: _name_cell(result.tensor),
        "reference_tensor": lambda result: _name_cell(result.reference_tensor),
        "match": _match_cell,
        "placement": lambda result: _name_cell(result.placement or numbers.MISSING),
        "why": lambda result: _name_cell(_subject_of_failure(result) or numbers.MISSING),
        "reason": lambda result: _name_cell(result.reason or numbers.MISSING, limit=400),
        "quant": lambda result: Cell(text=quant_text(result.quant), value=_first_scale(result.quant)),
        "dtype": lambda result: _name_cell("" if result.quant is None else result.quant.dtype),
        "clipped": lambda result: _clipped_cell(result.saturation),
        "arithmetic": judged_cell,
        "clipping": lambda result: _clipping_cell(result.clipping),
        "constants": lambda result: part_cell(result, result.constants),
        "introduced": lambda result: part_cell(result, result.introduced),
        "gain": lambda result: Cell(text=numbers.number(result.relative_gain), value=result.relative_gain),
    }
)
"""Functions that make the cells of each column, except for metrics."""


def position(index: Sequence[int] | None) -> str:
    """Return an element's index as "0,17,3,27"."""
    return numbers.MISSING if index is None else ",".join(map(str, index)) or "()"


_MAX_FULL_TABLE = 48
_NEIGHBOURS = 4
_END_ROWS = 2
_WORST_ROWS = 15
_SMALLEST_GAP = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChoice:
    """The rows of a comparison to show.

    Args:
        top: Maximum number of rows, failing ones and the worst first, or None for no limit.
        only_failing: Only rows that fail or could not be compared.
    """

    top: int | None = None
    only_failing: bool = False


def rank_rows(nodes: Sequence[NodeResult], choice: RowChoice) -> list[int]:
    """Choose rows, most important first: the first divergence, other failures, incomparable ones, the rest.

    Within each group, the worst comes first, as in `badness`.

    Args:
        nodes: The results, in topological order.
        choice: The rows to show.

    Returns:
        Their positions.
    """
    first = next((index for index, node in enumerate(nodes) if is_beyond(node)), None)

    def sort_key(index: int) -> tuple[int, tuple[int, float, float]]:
        node = nodes[index]
        rank = 0 if index == first else 1 if is_beyond(node) else 2 if node.status is Status.INCOMPARABLE else 3
        return rank, badness(node)

    positions = [
        index for index in range(len(nodes)) if not choice.only_failing or sort_key(index)[0] < _RANK_OF_THE_REST
    ]
    return sorted(positions, key=sort_key)[: choice.top]


_RANK_OF_THE_REST = 3


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows left out at one position.

    Args:
        hidden: Number of rows.
    """

    hidden: int


def select_rows(
    nodes: Sequence[NodeResult], *, everything: bool = False, worst: int = _WORST_ROWS, choice: RowChoice | None = None
) -> list[int | Gap]:
    """Choose the rows to show, in topological order.

    A network of up to 48 rows is shown in full. A longer one is reduced to its first and last two rows, the first
    divergence with four rows on either side, and the worst rows.

    Args:
        nodes: All results, in topological order.
        everything: Show every row, however many.
        worst: Number of the worst rows to show.
        choice: The rows to show instead, as chosen by the user.

    Returns:
        Positions in `nodes`, with a `Gap` wherever rows are left out.
    """
    if choice is not None:
        return _with_gaps(sorted(rank_rows(nodes, choice)), len(nodes), smallest=1)
    if everything or len(nodes) <= _MAX_FULL_TABLE:
        return list(range(len(nodes)))
    positions = {*range(_END_ROWS), *range(len(nodes) - _END_ROWS, len(nodes))}
    first = next((position for position, node in enumerate(nodes) if is_beyond(node)), None)
    if first is not None:
        positions.update(range(max(0, first - _NEIGHBOURS), min(len(nodes), first + _NEIGHBOURS + 1)))
    unequal_positions = [position for position, node in enumerate(nodes) if node.status is not Status.IDENTICAL]
    positions.update(sorted(unequal_positions, key=lambda position: badness(nodes[position]))[:worst])
    return _with_gaps(sorted(positions), len(nodes))


def _with_gaps(positions: Sequence[int], total: int, *, smallest: int = _SMALLEST_GAP) -> list[int | Gap]:
    rows_and_gaps: list[int | Gap] = []
    expected = 0
    for position in positions:
        rows_and_gaps.extend(_gap_rows(expected, position, smallest))
        rows_and_gaps.append(position)
        expected = position + 1
    rows_and_gaps.extend(_gap_rows(expected, total, smallest))
    return rows_and_gaps


def _gap_rows(start: int, stop: int, smallest: int) -> list[int | Gap]:
    """Return a gap for the rows from start to stop, or the rows themselves if they are fewer than `smallest`."""
    return [Gap(stop - start)] if stop - start >= smallest else list(range(start, stop))
