"""Columns of the node list: which ones fit, how wide, and the text of each cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from qdebug.present import numbers
from qdebug.present.rows import judged_brief, metric_title, quant_text, row_cell
from qdebug.tui.drawing.glyphs import GlyphSet
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import METRIC_CHOICES, NodeTable, State, sign

__all__ = ["ColumnLayout", "ListColumn", "header_cells", "lay_out", "metric_text", "row_cells", "row_signs"]

_MIN_NAME_WIDTH = 24
_AMPLE_NAME_WIDTH = 40
"""Width of a name that only the first optional column may reduce."""
_SQUEEZED_NAME_WIDTH = 8
_MAX_NAME_WIDTH = 72
_INTRODUCED_FROM = 60
_PART_WIDTH = 12
_USER_MARK = "'"
"""Symbol of a node that the user has marked."""


@dataclass(frozen=True, slots=True)
class ListColumn:
    """One column.

    Args:
        key: Identifies it.
        title: Its heading.
        width: Width in cells.
        is_right_aligned: Whether it is right-aligned.
        sort: The key of `navigator.SORTS` that a click on its heading sorts by; "" for none.
    """

    key: str
    title: str
    width: int
    is_right_aligned: bool = False
    sort: str = ""


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The columns that fit in a width.

    Args:
        columns: From left to right.
        before: Number of optional columns left out on the left.
        after: Number of optional columns left out on the right.
    """

    columns: tuple[ListColumn, ...]
    before: int
    after: int

    @property
    def key(self) -> tuple[str, ...]:
        """Identifies the layout in caches."""
        return tuple(f"{column.key}:{column.width}" for column in self.columns)


def _optional_columns(navigator: Navigator) -> list[ListColumn]:
    """Return the optional columns, most important first."""
    fixed_metrics = {navigator.metric, "introduced"}
    extra_metrics = [name for name in METRIC_CHOICES if name not in fixed_metrics] if navigator.sample is None else []
    part_columns = [
        ListColumn("constants", "constants", 10, is_right_aligned=True),
        ListColumn("gain", "gain", 7, is_right_aligned=True),
        ListColumn("propagated", "propagated", 10, is_right_aligned=True),
    ]
    return [
        ListColumn("op", "op", 15, sort="op"),
        ListColumn("state_word", "status", 12, sort="state"),
        ListColumn("quant", "scale / zero point", 20),
        ListColumn("dtype", "dtype", 8),
        ListColumn("shape", "shape", 16),
        *(part_columns if navigator.sample is None else []),  # known only for all samples together
        ListColumn("explained", "explained", 18),
        *(ListColumn(name, metric_title(name), 10, is_right_aligned=True) for name in extra_metrics),
        ListColumn("match", "match", 12),
        ListColumn("placement", "ran on", 24),
        ListColumn("reference_tensor", "reference tensor", 28),
    ]


def lay_out(navigator: Navigator, width: int, *, offset: int = 0) -> ColumnLayout:
    """Choose the columns for a width: always the important ones, and as many others as fit.

    Args:
        navigator: The navigator, with its metric and sample.
        width: Cells per line.
        offset: Number of optional columns to leave out on the left.
    """
    digits = max(3, len(str(max(navigator.table.size - 1, 0))))
    usual_name_width = min(max(navigator.table.usual_name, 4), _MAX_NAME_WIDTH)
    longest_name_width = min(max(navigator.table.longest_name, 4), _MAX_NAME_WIDTH)
    fixed_columns = [
        ListColumn("mark", "", 3),
        ListColumn("number", "#", digits, is_right_aligned=True, sort="order"),
        ListColumn(navigator.metric, metric_title(navigator.metric), 11, is_right_aligned=True, sort="metric"),
    ]
    if navigator.sample is None and navigator.metric != "introduced" and width >= _INTRODUCED_FROM:
        # A list that is sorted by the introduced error shows it; the arithmetic error is only a part of it.
        part_key = "introduced" if navigator.sort == "introduced" else "arithmetic"
        fixed_columns.append(ListColumn(part_key, part_key, _PART_WIDTH, is_right_aligned=True, sort="introduced"))
    title = "clipped" if navigator.sample is None else "clip. of all"  # not known for single samples
    title_width = len(title) + (navigator.sort == "clipped")  # its sort arrow
    fixed_columns.append(ListColumn("clipped", title, title_width, is_right_aligned=True, sort="clipped"))
    free_width = width - sum(column.width + 1 for column in fixed_columns) - 1
    optional_columns = _optional_columns(navigator)[offset:]
    smallest_name_width = max(min(_MIN_NAME_WIDTH, usual_name_width), _SQUEEZED_NAME_WIDTH)
    fitting_columns: list[ListColumn] = []
    if (
        offset
        and optional_columns
        and (squeezed_width := min(optional_columns[0].width, free_width - _SQUEEZED_NAME_WIDTH - 1))
        > _SQUEEZED_NAME_WIDTH
    ):
        # The user has scrolled to this column, so it is shown even if the name gets less width.
        fitting_columns.append(replace(optional_columns[0], width=squeezed_width))
    for column in optional_columns[len(fitting_columns) :]:
        min_name_width = (
            max(min(usual_name_width, _AMPLE_NAME_WIDTH), smallest_name_width)
            if fitting_columns
            else smallest_name_width
        )
        if free_width - sum(c.width + 1 for c in fitting_columns) - column.width - 1 < min_name_width:
            break
        fitting_columns.append(column)
    name_width = max(
        min(free_width - sum(c.width + 1 for c in fitting_columns), max(longest_name_width, smallest_name_width)), 4
    )
    name = ListColumn("name", "node", name_width, sort="name")
    columns = (*fixed_columns[:2], name, *fixed_columns[2:], *fitting_columns)
    return ColumnLayout(columns, offset, len(optional_columns) - len(fitting_columns))


def row_signs(table: NodeTable, row: int, state: int, first: int | None, *, is_marked: bool = False) -> str:
    """Return the two characters before a row: first divergence or the user's mark, then the state."""
    state_sign = sign(table, row, state)
    if row == first:  # the first divergence always fails, so it needs no sign for that
        return f"!{_USER_MARK if is_marked else state_sign}"
    return f"{_USER_MARK if is_marked else ' '}{state_sign}"


def row_cells(navigator: Navigator, row: int, layout: ColumnLayout, glyphs: GlyphSet) -> list[str]:
    """Return the text of each cell of a row, exactly as wide as its column. The mark column is left blank."""
    cells = []
    for column in layout.columns:
        text = _cell_text(navigator, row, column.key)
        if column.is_right_aligned:
            cells.append(glyphs.align_right(text, column.width))
        elif column.key == "name":
            cells.append(glyphs.fit_name(text, navigator.table.rows[row].op, column.width))
        else:
            cells.append(glyphs.fit(text, column.width))
    return cells


def header_cells(navigator: Navigator, layout: ColumnLayout, glyphs: GlyphSet) -> Sequence[str]:
    """Return the headings, each as wide as its column. The heading of the sort column has an arrow."""
    cells = []
    for column in layout.columns:
        title = column.title
        if column.sort and column.sort == navigator.sort and (column.sort != "order" or navigator.reversed):
            arrow = ("^" if navigator.reversed else "v") if not glyphs.braille else "▴" if navigator.reversed else "▾"
            title = f"{title}{arrow}"
        cells.append(
            title.rjust(column.width)[-column.width :] if column.is_right_aligned else glyphs.fit(title, column.width)
        )
    return cells


def metric_text(table: NodeTable, row: int, key: str, sample: int | None = None) -> str:
    """Return the text of a row's cell; "" until the row is compared.

    Args:
        table: The rows.
        row: The row.
        key: A metric, or another number of the node; for a single sample, a metric that is known per sample.
        sample: One sample; None for all.
    """
    result = table.results[row]
    if result is None:
        return "" if table.state[row] == State.PENDING else numbers.MISSING
    if sample is not None:
        return numbers.metric(
            key,
            getattr(
                next((sample_result for sample_result in result.samples if sample_result.sample == sample), None),
                key,
                None,
            ),
        )
    if key in {"introduced", "propagated"}:  # the relative errors, as in sorting, filters and the profile
        stats = result.introduced if key == "introduced" else result.propagated
        return numbers.number(None if stats is None else stats.rel_l2)
    return row_cell(result, key).text


def _number_text(table: NodeTable, row: int) -> str:
    count = table.compared_number(row)
    return "" if count is None else str(count)


def _explanation_text(table: NodeTable, row: int) -> str:
    result = table.results[row]
    return numbers.MISSING if result is None or result.explained is None else result.explained


def _cell_text(navigator: Navigator, row: int, key: str) -> str:
    cell_text = _TEXTS.get(key)
    covers_all_samples = key in {"clipped", "arithmetic", "constants", "introduced", "gain", "propagated"}
    if cell_text is None:
        return metric_text(navigator.table, row, key, None if covers_all_samples else navigator.sample)
    return cell_text(navigator, row)


def _state_word(navigator: Navigator, row: int) -> str:
    plan_row = navigator.table.rows[row]
    if plan_row.missing is not None and not plan_row.tensor:
        return "in ref. only"
    return navigator.table.status_word(row, navigator.sample, is_brief=True)


def _arithmetic_text(table: NodeTable, row: int) -> str:
    result = table.results[row]
    return metric_text(table, row, "arithmetic") if result is None else judged_brief(result, _PART_WIDTH)


_TEXTS: dict[str, Callable[[Navigator, int], str]] = {
    "explained": lambda navigator, row: _explanation_text(navigator.table, row),
    "arithmetic": lambda navigator, row: _arithmetic_text(navigator.table, row),
    "mark": lambda *_: "",
    "number": lambda navigator, row: _number_text(navigator.table, row),
    "name": lambda navigator, row: navigator.table.short_name(row),
    "state_word": _state_word,
    "op": lambda navigator, row: navigator.table.rows[row].op,
    "quant": lambda navigator, row: quant_text(navigator.table.rows[row].quant),
    "dtype": lambda navigator, row: navigator.table.rows[row].dtype or numbers.MISSING,
    "shape": lambda navigator, row: numbers.shape(navigator.table.rows[row].shape),
    "placement": lambda navigator, row: navigator.table.rows[row].placement or numbers.MISSING,
    "match": lambda navigator, row: navigator.table.rows[row].match or numbers.MISSING,
    "reference_tensor": lambda navigator, row: navigator.table.rows[row].reference_tensor,
}
