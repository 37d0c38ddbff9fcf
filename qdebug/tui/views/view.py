"""The base classes of views: the scene that they draw, and the keys that they handle."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from rich.cells import cell_len
from textual.binding import BindingType
from textual.events import Click
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget

from qdebug.model.dtypes import is_integer
from qdebug.present.text import safe_text
from qdebug.tui.drawing.draw import Piece
from qdebug.tui.drawing.glyphs import UNICODE, GlyphSet, wrap
from qdebug.tui.drawing.look import Look
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import NodeTable, PlannedRow, State, sign
from qdebug.tui.reading.messages import DetailReady, Glimpsed, Opened, TrialReady, TrialWish
from qdebug.tui.screens import ScreenId
from qdebug.tui.widgets.lines import Lines
from qdebug.tui.widgets.prompt import Question

if TYPE_CHECKING:  # not imported at run time, so that the first frame is drawn sooner
    from qdebug.compare.result.limits import Acknowledgement
    from qdebug.compare.result.result import NodeResult, RunComparison
    from qdebug.present.reports.document import Grid
    from qdebug.session import DiffSession

__all__ = [
    "WHEEL",
    "Constant",
    "DrawnView",
    "Line",
    "Scene",
    "Stage",
    "Table",
    "Target",
    "View",
    "acknowledgement_text",
    "fit_lines",
    "grid_lines",
    "heading",
    "lines_shown_text",
    "origin_row",
    "output_limit_note",
    "paragraph",
    "sign_of",
    "state_style",
    "window",
]

Line = list[Piece]
"""One line of a screen."""

Table = tuple[Sequence[str], Sequence[Sequence[object]]]
"""Column names, and the cells of each row."""

WHEEL = 3
"""Lines per step of the wheel."""

_MAX_FILE_LINES = 5000
"""Maximum number of lines of a list that is written to a file."""
_MIN_NAME_WIDTH = 12
"""Minimum cells for names in a table, as long as other columns can be left out."""
_STYLES = {
    State.PENDING: "muted",
    State.IDENTICAL: "fine",
    State.WITHIN: "fine",
    State.DIVERGED: "fail",
    State.NONFINITE: "fail",
    State.INCOMPARABLE: "unknown",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything a screen can draw.

    Args:
        navigator: Table, cursor, sample, metric.
        opened: Both graphs and the facts of both runs.
        result: The whole comparison; None until it is finished.
        ready: Facts about the row under the cursor; None before any is read.
        glyphs: Characters for drawing.
        glimpse: A part of its elements as recorded; None before they are read.
        trial: Result of the replay that the view requests; None before there is one, or without a request.
        colours: Whether colours are available.
        backends: Name of each backend, and its rows; None while they are being read.
        backend: The backend on the screen.
    """

    navigator: Navigator
    opened: Opened
    result: RunComparison | None
    ready: DetailReady | None
    glyphs: GlyphSet
    glimpse: Glimpsed | None = None
    trial: TrialReady | None = None
    colours: bool = True
    backends: Sequence[tuple[str, NodeTable | None]] = ()
    backend: int = 0

    @property
    def table(self) -> NodeTable:
        """The rows."""
        return self.navigator.table

    @property
    def row(self) -> int:
        """The row under the cursor."""
        return self.navigator.cursor

    @property
    def row_key(self) -> tuple[int, int]:
        """The backend and the row number, which identify the row under the cursor."""
        return self.backend, self.navigator.number

    @property
    def plan_row(self) -> PlannedRow:
        """Facts about the row that are known without reading values."""
        return self.table.rows[self.row]

    @property
    def outcome(self) -> NodeResult | None:
        """The comparison of the row under the cursor; None if it is not compared yet."""
        return self.table.results[self.row]


def origin_row(scene: Scene) -> int | None:
    """Return the row of the origin named by the verdict, or of the part that contains it; None if there is none."""
    path = () if scene.result is None else scene.result.verdict.way
    return scene.table.row_of(path[-1]) if path else None


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of the node under the cursor, as the target of a view.

    Args:
        name: Its name; "" for the first constant.
    """

    name: str = ""


Target = ScreenId | Constant
"""The target of a view: another screen, or a constant of the node."""


class Stage(Screen[None]):
    """The methods of the main screen that its views may call."""

    @abstractmethod
    def say(self, message: str) -> None:
        """Show a message in the status line, and redraw."""

    @abstractmethod
    def with_scene(self, act: Callable[[Scene], ScreenId | Constant | str | None]) -> None:
        """Apply a function to the scene. Go to the target that it returns, or show its message."""

    @abstractmethod
    def ask(self, question: Question) -> None:
        """Open the prompt with a question."""

    @abstractmethod
    def to_element(self, text: str) -> str:
        """Show an element given as numbers with commas, or with "" the next clipped one. Return a message.

        The element is shown now, or once it is read.
        """

    @abstractmethod
    def cancel_pending(self) -> None:
        """Close the prompt and cancel a waiting jump, as nearly every key and click does."""


class View(Widget, can_focus=True):
    """A screen. Its keys are its `BINDINGS`. For a shared key without a use, it returns a message that says so.

    The action of a key is a method that takes the scene and returns a message, so that tests need no terminal.
    """

    BINDINGS: ClassVar[list[BindingType]] = []

    view: ScreenId
    is_list = False
    """Whether it is a list that may continue beyond the screen."""
    has_worst = False
    """Whether it has a sequence of worst positions, which `worst` steps through."""
    empty_text = ""
    """Why there is nothing to draw while there is no scene."""
    json_title = ""
    """Description of its JSON in the message after an export; "" for the name of the view."""

    scene: reactive[Scene | None] = reactive(None, init=False, repaint=False, always_update=True)

    @property
    def stage(self) -> Stage:
        """The screen that contains it."""
        return cast("Stage", self.screen)

    def watch_scene(self) -> None:
        """Redraw the view."""
        self.redraw()

    @abstractmethod
    def redraw(self) -> None:
        """Redraw the parts that changed."""

    @property
    def page_lines(self) -> int:
        """Number of lines that a page key moves by."""
        return max(self.size.height - 3, 1)

    @property
    def shows_plane(self) -> bool:
        """Whether it shows a map of the plane through the element."""
        return False

    def all_lines(self, scene: Scene, width: int) -> Sequence[Line]:  # noqa: ARG002  used by overrides
        """Return the whole content, including scrolled parts, for a file."""
        return ()

    def move(self, scene: Scene, lines: int) -> str:  # noqa: ARG002  used by overrides
        """Move up or down. Return why nothing happened, or ""."""
        return f"nothing to move in on the screen {self.view}"

    def edge(self, scene: Scene, direction: int) -> str:
        """Move to the top or the bottom."""
        return self.move(scene, direction * 1_000_000_000)

    def side(self, scene: Scene, direction: int) -> str:  # noqa: ARG002  used by overrides
        """Move left or right. Return why nothing happened, or ""."""
        return f"nothing to the {'right' if direction > 0 else 'left'} on the screen {self.view}"

    def worst(self, scene: Scene, direction: int) -> str:
        """Go to the next or previous worst position. Called only if `has_worst` is set."""
        raise NotImplementedError

    def next_form(self, scene: Scene) -> str | None:  # noqa: ARG002  used by overrides
        """Switch to the next form. Return None if the next form is another widget, or the first form again."""
        return None

    def click(self, scene: Scene, column: int, line: int) -> Target | str | None:  # noqa: ARG002  used by overrides
        """Select the item at a column and line. Open it if it is already selected.

        Returns:
            The target, or a message; None if nothing is there.
        """
        return None

    def rows(self, scene: Scene) -> Sequence[int]:
        """Return the rows of the nodes that it shows, in order."""
        return [scene.row]

    def table(self, scene: Scene) -> Table | None:  # noqa: ARG002  used by overrides
        """Return the column names and rows of a table that does not list nodes; None for all other views."""
        return None

    def json(self, scene: Scene, path: Path) -> Callable[[DiffSession], str] | None:  # noqa: ARG002  used by overrides
        """Return a function that writes the view's JSON; None for the JSON of the node or comparison.

        Args:
            scene: The state of the screen.
            path: The file that will contain it.
        """
        return None

    def trial(self, scene: Scene) -> TrialWish | None:  # noqa: ARG002  used by overrides
        """Return a request for a replay; None without one."""
        return None

    def command(self, scene: Scene, files: Sequence[str]) -> Sequence[str] | None:  # noqa: ARG002  used by overrides
        """Return a shell command that is equivalent to the view; None for the command that opens it.

        Args:
            scene: The state of the screen.
            files: The reference's file and the backend's.
        """
        return None

    def try_best(self, scene: Scene) -> str:  # noqa: ARG002  used by overrides
        """Try the edit with the largest gain."""
        return f"nothing to try on the screen {self.view}"

    def enter(self, scene: Scene) -> Target | str:  # noqa: ARG002  used by overrides
        """Go deeper: return the screen to go to, the constant to open, or why there is neither."""
        return ScreenId.TENSOR


class DrawnView(Lines, View, can_focus=True):
    """A view that draws all its lines for each scene.

    Args:
        look: Shared look.
    """

    DEFAULT_CSS = """
    DrawnView { padding: 0 0 0 1; }
    """

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look or Look(UNICODE), id=str(self.view))

    @abstractmethod
    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Return the lines. If they exceed `height`, the last one is replaced by the number of hidden lines."""

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        """Return the lines of the view."""
        scene = self.scene
        if scene is None:
            return [[(f" {self.empty_text}", "muted")]]
        return fit_lines(self.draw(scene, width, height), height)

    def all_lines(self, scene: Scene, width: int) -> Sequence[Line]:
        """Return the whole content, including scrolled parts, for a file. Meaning expressed only by colour is lost."""
        height = _MAX_FILE_LINES if self.is_list else self.size.height
        return self.draw(replace(scene, colours=False), width, height)

    def on_click(self, event: Click) -> None:
        """Select the clicked item, or open it if it is already selected."""
        at = event.get_content_offset(self)
        if at is not None and self.scene is not None:
            self.stage.cancel_pending()
            self.stage.with_scene(lambda scene: self.click(scene, at.x, at.y))

    def on_mouse_scroll_down(self) -> None:
        """Move down."""
        self._wheel(1)

    def on_mouse_scroll_up(self) -> None:
        """Move up."""
        self._wheel(-1)

    def _wheel(self, direction: int) -> None:
        self.stage.cancel_pending()
        self.stage.with_scene(lambda scene: self.move(scene, direction * WHEEL))


def heading(scene: Scene, width: int, extra: str = "") -> Line:
    """Return the title of the row under the cursor: number, name, operator, status, and a note from the screen."""
    table, row = scene.table, scene.row
    state = State(int(table.states(scene.navigator.sample)[row]))
    op = safe_text(table.rows[row].op, limit=24)
    folded_text = f"with {table.rows[row].folded} folded in" if table.rows[row].folded else ""
    suffix = "".join(f", {scene.glyphs.transliterate(text)}" for text in (folded_text, extra) if text)
    name = safe_text(table.title(row))
    for is_brief in (False, True):  # briefly if the name does not fit
        status_part = f"  {scene.glyphs.transliterate(op)}  {_status_text(scene, state, is_brief=is_brief)}"
        name_width = max(width - cell_len(status_part) - len(suffix), 8)
        if cell_len(name) <= name_width:
            break
    name = scene.glyphs.fit(name, min(name_width, cell_len(scene.glyphs.transliterate(name))))
    return [
        (name, "title"),
        (status_part, state_style(state)),
        (scene.glyphs.fit_end(suffix, max(width - cell_len(name) - cell_len(status_part), 0)), "muted"),
    ]


def _status_text(scene: Scene, state: State, *, is_brief: bool) -> str:
    """Return the status. If the selected sample and the whole have different statuses, return both."""
    table, row, sample = scene.table, scene.row, scene.navigator.sample
    if scene.plan_row.side:
        return f"{sign_of(table, row)}{scene.plan_row.side} only"
    overall = f"{sign_of(table, row)}{table.status_word(row, is_brief=is_brief)}{output_limit_note(scene)}"
    if sample is None or state is State(int(table.state[row])):
        return overall
    return f"sample {sample} {state.word}, as a whole {overall}"


def output_limit_note(scene: Scene) -> str:
    """Return a note for an output that is within its own limit but beyond the outputs' limit; "" for other tensors.

    While any node exceeds its limit, the verdict does not judge outputs, since that node may be the cause.
    """
    result, stats = scene.result, None if scene.outcome is None else scene.outcome.metrics
    if result is None:
        return ""
    if scene.plan_row.tensor in result.verdict.short:
        return ", but below the limit of outputs"
    limits, level = scene.opened.limits, None if stats is None else stats.sqnr_db
    floor = limits.get("min_output_sqnr")
    is_low = floor is not None and level is not None and level < floor
    has_failing_node = result.first_divergence is not None and State(int(scene.table.state[scene.row])) is State.WITHIN
    is_judged = not scene.table.acknowledged[scene.row] and not limits.get("rules")
    is_judged = is_judged and (scene.plan_row.quant is not None or not is_integer(scene.plan_row.dtype or ""))
    is_output = scene.plan_row.tensor in scene.opened.backend_graph.outputs
    return ", but below the limit of outputs" if is_low and has_failing_node and is_judged and is_output else ""


def acknowledgement_text(entry: Acknowledgement) -> str:
    """Return why a node may exceed its limit, and until when."""
    expiry_text = f", until {entry.expires}" if entry.expires else ""
    return f"{safe_text(entry.reason)}{expiry_text}{' (expired)' if entry.expired else ''}"


def paragraph(text: str, scene: Scene, width: int, style: str = "muted") -> list[Line]:
    """Break safe text into lines of the given width, indented by one cell."""
    return [[(f" {line}", style)] for line in wrap(scene.glyphs.transliterate(text), max(width - 2, 10))]


def sign_of(table: NodeTable, row: int) -> str:
    """Return the symbol of a row's state and a space, such as "* " for failing; "" if the state has none."""
    character = sign(table, row, int(table.state[row]))
    return "" if character in " ." else f"{character} "


def state_style(state: State) -> str:
    """Return the style of a state."""
    return _STYLES[state]


def lines_shown_text(visible_range: range, size: int) -> str:
    """Return which lines of a list are shown, if not all are."""
    return "" if len(visible_range) == size else f" {visible_range.start + 1}..{visible_range.stop} of {size}"


def fit_lines(lines: Sequence[Line], max_lines: int) -> list[Line]:
    """Return the lines that fit. If not all fit, the last one states how many are left out."""
    if len(lines) <= max_lines:
        return list(lines)
    line_count = max(max_lines - 1, 0)
    hidden_count = len(lines) - line_count
    note = f" .. {hidden_count} more {'line' if hidden_count == 1 else 'lines'} in a taller terminal"
    return [*lines[:line_count], *([[(note, "accent")]] if max_lines > 0 else [])]


def window(cursor: int, size: int, line_count: int) -> range:
    """Return up to `line_count` consecutive positions out of `size`, with the cursor near the middle."""
    start = max(min(cursor - line_count // 2, size - line_count), 0)
    return range(start, min(start + line_count, size))


def grid_lines(
    grid: Grid, scene: Scene, width: int, *, cursor: int = -1, optional_titles: Sequence[str] = ()
) -> list[Line]:
    """Draw a table from a report: its headings, then its rows.

    Args:
        grid: The table; names get the remaining width.
        scene: The scene, with the characters for drawing.
        width: Cells per line.
        cursor: The selected row; -1 for none.
        optional_titles: Titles of the columns to leave out first if there is not enough room; after that, the last
            columns are left out.
    """
    glyphs, columns = scene.glyphs, list(range(len(grid.titles)))
    sizes = [max(1, *map(cell_len, texts)) for texts in zip(grid.titles, *grid.rows, strict=True)]
    columns_to_drop = [
        *(grid.titles.index(title) for title in optional_titles if title in grid.titles),
        *reversed(columns),
    ]

    def free_width() -> int:
        return width - 2 - sum(sizes[at] + 2 for at in columns if at not in grid.names) - 2 * len(grid.names)

    for at in columns_to_drop:
        if free_width() < _MIN_NAME_WIDTH and len(columns) > 2 and at in columns and at not in grid.names:
            columns.remove(at)
    rows = [list(row) for row in (grid.titles, *grid.rows)]
    for at in grid.names:
        sizes[at] = max(min(sizes[at], free_width()), 8)
        for row, name in zip(rows, glyphs.fit_distinct([row[at] for row in rows], sizes[at]), strict=True):
            row[at] = name
    lines: list[Line] = []
    for number, row in enumerate(rows, -1):
        is_cursor = number == cursor >= 0
        text = "".join(
            "  " + (glyphs.align_right(row[at], sizes[at]) if at in grid.right else glyphs.fit(row[at], sizes[at]))
            for at in columns
        )
        style = "accent" if number < 0 else "cursor" if is_cursor else "plain"
        lines.append([((glyphs.cursor if is_cursor else " ") + glyphs.fit_end(text[1:], width - 1), style)])
    return lines
