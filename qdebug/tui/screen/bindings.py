"""The keys of all screens, the actions without a key, and tables of both for help, command palette and guide."""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding, BindingType

from qdebug.tui.keys import KeyRow, key_rows
from qdebug.tui.screens import TABS, VIEWS
from qdebug.tui.views.answer import VERDICT
from qdebug.tui.views.table import view_class
from qdebug.tui.views.view import View

__all__ = [
    "BINDINGS",
    "COMMANDS_WITHOUT_KEY",
    "CONSTANT_ACTIONS",
    "QUIT",
    "READING_ACTIONS",
    "all_key_rows",
    "listed_key_rows",
    "shared_key_rows",
    "view_key_rows",
]

BINDINGS: list[BindingType] = [
    Binding("question_mark", "help_keys", "keys", tooltip="help: the keys, signs and words"),
    Binding("j,down", "move(1)", show=False, tooltip="one down"),
    Binding("k,up", "move(-1)", show=False, tooltip="one up"),
    Binding("pagedown,ctrl+d", "page(1)", show=False, tooltip="a page down"),
    Binding("pageup,ctrl+u", "page(-1)", show=False, tooltip="a page up"),
    Binding("g,home", "edge(-1)", show=False, tooltip="to the top"),
    Binding("G,end", "edge(1)", show=False, tooltip="to the bottom; of the nodes: first to the backend's last"),
    Binding("h,left", "side(-1)", show=False, tooltip="left: fewer columns; in the graph: walk to an input"),
    Binding("l,right", "side(1)", show=False, tooltip="right: more columns; in the graph: walk to an output"),
    Binding("enter", "open", show=False, tooltip="open what is chosen, go deeper"),
    Binding("escape,backspace", "back", show=False, tooltip="back: question, screen, search, filter, last first"),
    Binding("X", "edit", "mend", tooltip="try the edits on the line try, else the node's best"),
    Binding("exclamation_mark", "first_divergence", "first", tooltip="first divergence, else of the diagnosis"),
    Binding("W", "origin", "origin", tooltip="origin: run to the culprit, or what costs most"),
    Binding("right_square_bracket", "failing(1)", "failing", tooltip="next failing node, else of the diagnosis"),
    Binding("left_square_bracket", "failing(-1)", show=False, tooltip="previous failing node, else of the diagnosis"),
    Binding("slash", "search", "find", tooltip="search, find: part of a name, 'whole name', #7, ~regex"),
    Binding("n", "match(1)", show=False, tooltip="next match, worst element or failing node"),
    Binding("N", "match(-1)", show=False, tooltip="the previous one"),
    Binding("f", "filter", "filter", tooltip="filter: show the nodes that fit: rel>1e-2 & op~conv"),
    Binding("at", "element", show=False, tooltip="jump to an element, such as 0,12,3,7"),
    Binding("circumflex_accent", "clipped", show=False, tooltip="next clipped element: its reference has no code"),
    Binding("o", "constants", show=False, tooltip="constants of the node: weights, bias; then the next one"),
    Binding("v", "form", show=False, tooltip="form: show it otherwise, such as codes, a map, all nodes"),
    Binding("d", "metric", show=False, tooltip="metric: show the next one"),
    Binding("full_stop", "sample(1)", show=False, tooltip="next sample"),
    Binding("comma", "sample(-1)", show=False, tooltip="previous sample, at last all of them"),
    Binding("b", "backend(1)", show=False, tooltip="next backend"),
    Binding("H", "history(-1)", show=False, tooltip="history: back the way you came, a jump, an edge of a walk"),
    Binding("L", "history(1)", show=False, tooltip="history: forward again"),
    Binding("m", "mark", show=False, tooltip="mark the node, or take its mark away"),
    Binding("i", "acknowledge", show=False, tooltip="acknowledge the error with a reason, in the limits file"),
    Binding("y", "copy", show=False, tooltip="copy the name to the terminal's clipboard"),
    Binding("Y", "copy_command", show=False, tooltip="copy the command that shows this again"),
    Binding("e", "export", show=False, tooltip="export, save the screen: .svg .txt .csv .json .npz; NAME! overwrites"),
    *(Binding(each.key, f"screen('{each}')", show=False, tooltip=f"screen {each}: {each.about}") for each in TABS),
    Binding("tab", "turn(1)", show=False, tooltip="next screen"),
    Binding("shift+tab", "turn(-1)", show=False, tooltip="previous screen"),
]
QUIT = Binding("q", "quit", "quit", tooltip="quit, exit")
"""The key of the application, which every screen lists too."""
COMMANDS_WITHOUT_KEY: Sequence[tuple[str, str]] = (
    ("verdict", VERDICT),
    ("note", "note on the node, which marks it; kept in the limits file"),
    ("next_mark", "return to a mark: the next marked node"),
    ("pair", "pair the tensor with a partner by hand, in the map file"),
    ("output", "output: the worst one of the network; then the next one"),
    ("block(1)", "block: first node of the next one"),
    ("block(-1)", "block: first node of the previous one"),
    ("clear_filter", "clear the filter: show all nodes"),
    ("reverse", "reverse the order of the nodes"),
    ("step(1)", "next step of a stateful net"),
    ("step(-1)", "previous step of a stateful net"),
    ("app.theme", "theme: next colours, dark, light, high contrast"),
    ("app.suspend_process", "suspend; fg comes back"),
    ("app.quit", QUIT.tooltip),
)
"""Actions in the command palette that do not have a key, and their descriptions."""
READING_ACTIONS = ("help_keys", "verdict")
"""Actions that do not cancel a waiting jump."""
CONSTANT_ACTIONS = frozenset(
    (
        *("move", "page", "edge", "side", "open", "back", "screen", "turn", "form", "help_keys", "verdict", "quit"),
        *("constants", "match", "copy", "export", "element", "clipped", "channel", "command_palette", "theme"),
    )
)
"""Actions that apply to the open constant. Any other action shows the node again."""


def shared_key_rows() -> Sequence[KeyRow]:
    """Return the keys of all screens with their descriptions."""
    return key_rows(BINDINGS)


def listed_key_rows() -> Sequence[KeyRow]:
    """Return the keys of all screens and of the application, as help and guide list them."""
    return key_rows([*BINDINGS, QUIT])


def view_key_rows(view: type[View]) -> Sequence[KeyRow]:
    """Return the keys of one view with their descriptions, the view's own keys first."""
    classes = [ancestor for ancestor in view.__mro__ if issubclass(ancestor, View) and "BINDINGS" in vars(ancestor)]
    rows: dict[str, KeyRow] = {}
    used_keys: set[str] = set()
    for ancestor in classes:
        for row in key_rows(ancestor.BINDINGS):
            if not used_keys & {*row.keys}:
                rows[row.action] = row
                used_keys |= {*row.keys}
    return list(rows.values())


def all_key_rows() -> Sequence[tuple[str, KeyRow]]:
    """Return every key with its description and its screens; "" for all screens."""
    views_of: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for view in VIEWS:
        for row in view_key_rows(view_class(view)):
            views_of.setdefault((row.action, row.keys, row.help), []).append(str(view))
    view_rows = [
        (", ".join(views), KeyRow(keys=keys, action=action, help=description))
        for (action, keys, description), views in views_of.items()
    ]
    return [*(("", row) for row in shared_key_rows()), *view_rows]
