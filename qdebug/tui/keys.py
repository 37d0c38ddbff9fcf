"""Every key of the terminal interface, once: bindings, help, footer and the README's list come from this table.

A key is listed only if a plain terminal over ssh can send it: no key that is another one in
disguise (ctrl+i is Tab, ctrl+m Enter, ctrl+h Backspace, ctrl+[ Escape) and none that needs an
extended keyboard protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from qdebug.tui.screens import ScreenId

__all__ = ["GROUPS", "KEYS", "ROW_OF", "KeyRow", "footer_keys", "key_label", "markdown_table"]

GROUPS = ("Move", "Find", "Look", "Do")
"""Headings of the help, in order."""

_LABELS = {
    "exclamation_mark": "!",
    "question_mark": "?",
    "right_curly_bracket": "}",
    "left_curly_bracket": "{",
    "right_parenthesis": ")",
    "left_parenthesis": "(",
    "greater_than_sign": ">",
    "less_than_sign": "<",
    "apostrophe": "'",
    "plus": "+",
    "minus": "-",
    "semicolon": ";",
    "colon": ":",
    "at": "@",
    "circumflex_accent": "^",
    "right_square_bracket": "]",
    "left_square_bracket": "[",
    "slash": "/",
    "comma": ",",
    "full_stop": ".",
    "escape": "esc",
    "pagedown": "pgdn",
    "pageup": "pgup",
}


@dataclass(frozen=True, slots=True)
class KeyRow:
    """What one or more keys do.

    Args:
        group: Heading in the help.
        names: Names of the keys as Textual spells them, with spaces; the first is the one that is shown first.
        action: The controller of the screen and its method, such as "moving.move".
        argument: What the method is called with; None for nothing.
        help: What happens, in one clause.
        footer: Word in the footer; "" if it is not shown there.
        rank: Order in the footer; the lowest stay when there is little room.
    """

    group: str
    names: str
    action: str
    argument: int | str | ScreenId | None
    help: str
    footer: str = ""
    rank: int = 99

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys."""
        return tuple(self.names.split())


_SCREENS = tuple(KeyRow("Look", each.key, "views.screen", each, f"screen {each}: {each.about}") for each in ScreenId)

KEYS: tuple[KeyRow, ...] = (
    KeyRow("Move", "j down", "moving.move", 1, "one down"),
    KeyRow("Move", "k up", "moving.move", -1, "one up"),
    KeyRow("Move", "ctrl+d", "moving.half_page", 1, "half a page down"),
    KeyRow("Move", "ctrl+u", "moving.half_page", -1, "half a page up"),
    KeyRow("Move", "pagedown", "moving.page", 1, "a page down"),
    KeyRow("Move", "pageup", "moving.page", -1, "a page up"),
    KeyRow("Move", "g home", "moving.edge", -1, "to the top"),
    KeyRow("Move", "G end", "moving.edge", 1, "to the bottom; of the nodes: first to the backend's last"),
    KeyRow("Move", "l right", "moving.side", 1, "right: more columns; in the graph: walk to an output"),
    KeyRow("Move", "h left", "moving.side", -1, "left: fewer columns; in the graph: walk to an input"),
    KeyRow("Move", "right_curly_bracket", "moving.block", 1, "first node of the next block"),
    KeyRow("Move", "left_curly_bracket", "moving.block", -1, "first node of the previous block"),
    KeyRow("Move", "H", "moving.history", -1, "back in the history, the way you came: a jump, an edge of a walk"),
    KeyRow("Move", "L", "moving.history", 1, "forward in the history"),
    KeyRow("Find", "exclamation_mark", "journey.first_divergence", None, "first divergence", "first", 1),
    KeyRow("Find", "right_square_bracket", "journey.failing", 1, "next failing node", "next failing", 3),
    KeyRow("Find", "left_square_bracket", "journey.failing", -1, "previous failing node"),
    KeyRow("Find", "w", "journey.worst_input", None, "worst input: the one that carries most error"),
    KeyRow("Find", "W", "journey.origin", None, "origin: run to the culprit, or what costs most", "origin", 2),
    KeyRow("Find", "O", "journey.output", None, "output: the worst one of the network; then the next one"),
    KeyRow(
        "Find", "slash", "finding.search", None, "search, find: part of a name, 'whole name', #7, ~regex", "search", 5
    ),
    KeyRow("Find", "n", "journey.match", 1, "next match, worst element (values, map) or failing node"),
    KeyRow("Find", "N", "journey.match", -1, "the previous one"),
    KeyRow("Find", "circumflex_accent", "finding.clipped", None, "next clipped element: its reference is out of range"),
    KeyRow("Find", "f", "finding.filter", None, "filter: show the nodes that fit: rel>1e-2 & op~conv", "filter", 7),
    KeyRow("Find", "F", "finding.clear_filter", None, "clear the filter: show all nodes"),
    KeyRow("Find", "m", "finding.mark", None, "mark the node, or take its mark away"),
    KeyRow("Find", "apostrophe", "finding.next_mark", None, "return to a mark: the next marked node"),
    KeyRow("Find", "at", "finding.element", None, "jump to an element, such as 0,12,3,7"),
    KeyRow("Look", "enter", "views.open", None, "open what is chosen, go deeper: tensor, values", "open", 0),
    KeyRow("Look", "o", "constants.next", None, "constants of the node: weights, bias, scales; then the next one"),
    KeyRow("Look", "escape backspace", "views.back", None, "back: screen, zoom, search, filter, last first", "back", 8),
    *_SCREENS,
    KeyRow("Look", "V", "views.verdict", None, "the whole verdict, its limits, outputs and runs", "verdict", 12),
    KeyRow("Look", "tab", "views.turn", 1, "next screen"),
    KeyRow("Look", "shift+tab", "views.turn", -1, "previous screen"),
    KeyRow("Look", "s greater_than_sign", "views.sort", 1, "sort by the next column; channels: by error", "sort", 9),
    KeyRow("Look", "less_than_sign", "views.sort", -1, "sort by the previous column"),
    KeyRow("Look", "S", "views.reverse", None, "reverse the order"),
    KeyRow("Look", "d", "views.metric", None, "metric: show the next one", "metric", 10),
    KeyRow("Look", "full_stop", "views.sample", 1, "next sample"),
    KeyRow("Look", "comma", "views.sample", -1, "previous sample, at last all of them"),
    KeyRow("Look", "right_parenthesis", "views.step", 1, "next step of a stateful net"),
    KeyRow("Look", "left_parenthesis", "views.step", -1, "previous step"),
    KeyRow("Look", "c", "moving.channel", 1, "next channel (values, channels, map)"),
    KeyRow("Look", "C", "moving.channel", -1, "previous channel"),
    KeyRow("Look", "v", "views.form", None, "form: values as real numbers, codes or hex; map: plane or channels"),
    KeyRow("Look", "b", "views.backend", None, "next backend"),
    KeyRow("Look", "z", "views.zoom", None, "zoom: one panel alone, and back", "zoom", 11),
    KeyRow("Look", "t", "views.theme", None, "theme: next colours, dark, light, high contrast"),
    KeyRow("Do", "i", "writing.acknowledge", None, "acknowledge the node's error with a reason, in the limits file"),
    KeyRow("Do", "a", "writing.note", None, "note on the node, which marks it; kept in the limits file"),
    KeyRow("Do", "p", "writing.pair", None, "pair the tensor with a partner by hand, in the map file"),
    KeyRow("Do", "y", "writing.copy", None, "copy the name to the terminal's clipboard"),
    KeyRow("Do", "Y", "writing.copy_command", None, "copy the command that shows this again"),
    KeyRow("Do", "e", "writing.export", None, "export, save the screen: .svg .txt .csv .json .npz; NAME! overwrites"),
    KeyRow("Do", "plus", "trying.step", 1, "what-if: a larger scale or zero point, 8 steps of l"),
    KeyRow("Do", "minus", "trying.step", -1, "what-if: a smaller one, 8 steps of h"),
    KeyRow("Do", "semicolon", "trying.calibrator", None, "what-if: what the next calibrator chooses"),
    KeyRow("Do", "colon", "trying.scheme", None, "what-if: the next scheme of the calibrators"),
    KeyRow("Do", "r", "trying.reset", None, "what-if: reset to what was recorded; edits: choose none, and back"),
    KeyRow("Do", "R", "trying.replay", None, "what-if: replay the net with this scale, or give that up"),
    KeyRow(
        "Do", "space", "trying.mark", None, "edits: choose one, which replays the net with all chosen; take it back"
    ),
    KeyRow("Do", "question_mark", "views.help", None, "help: this list of keys", "help", 4),
    KeyRow("Do", "ctrl+p", "views.palette", None, "palette: all commands by name"),
    KeyRow("Do", "ctrl+z", "views.suspend", None, "suspend; fg comes back"),
    KeyRow("Do", "q", "views.leave", None, "quit, exit", "quit", 6),
)
"""The table. One row is one action; the order is the order of the help."""

ROW_OF: Mapping[str, KeyRow] = MappingProxyType({key: row for row in KEYS for key in row.keys})
"""The row of each key."""


def key_label(key: str) -> str:
    """Return a key as people write it: "]" for "right_square_bracket"."""
    return _LABELS.get(key, key)


def footer_keys(width: int) -> Sequence[KeyRow]:
    """Choose the keys that the footer has room for, most important first.

    Args:
        width: Cells available; each key takes those of its label and its word, and 3 more.
    """
    chosen: list[KeyRow] = []
    used = 0
    for row in sorted((row for row in KEYS if row.footer), key=lambda row: row.rank):
        used += len(key_label(row.keys[0])) + len(row.footer) + 3
        if used > width:
            break
        chosen.append(row)
    return chosen


def markdown_table() -> str:
    """Return the table as Markdown, for the documentation."""
    lines = ["| keys | what they do |", "|---|---|"]
    for row in KEYS:
        keys = " ".join(f"`{key_label(key)}`" for key in row.keys)
        lines.append(f"| {keys} | {row.help} |")
    return "\n".join(lines) + "\n"
