"""Every key of the terminal interface, once: bindings, help, footer and the README's list come from this table.

A key is listed only if a plain terminal over ssh can send it: no key that is another one in
disguise (ctrl+i is Tab, ctrl+m Enter, ctrl+h Backspace, ctrl+[ Escape) and none that needs an
extended keyboard protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["GROUPS", "KEYS", "KeyRow", "footer_keys", "key_label", "markdown_table"]

GROUPS = ("Move", "Find", "Look", "Do")
"""Headings of the help, in order."""

_LABELS = {
    "exclamation_mark": "!",
    "question_mark": "?",
    "right_square_bracket": "]",
    "left_square_bracket": "[",
    "slash": "/",
    "comma": ",",
    "full_stop": ".",
    "escape": "esc",
    "pagedown": "pgdn",
    "pageup": "pgup",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """What one or more keys do.

    Args:
        keys: Names of the keys as Textual spells them; the first is the one that is shown first.
        action: Name of the action of the main screen, with its argument.
        group: Heading in the help.
        help: What happens, in one clause.
        footer: Word in the footer; "" if it is not shown there.
        rank: Order in the footer; the lowest stay when there is little room.
    """

    keys: tuple[str, ...]
    action: str
    group: str
    help: str
    footer: str = ""
    rank: int = 99


KEYS: tuple[KeyRow, ...] = (
    KeyRow(keys=("j", "down"), action="move(1)", group="Move", help="one down"),
    KeyRow(keys=("k", "up"), action="move(-1)", group="Move", help="one up"),
    KeyRow(keys=("ctrl+d",), action="half_page(1)", group="Move", help="half a page down"),
    KeyRow(keys=("ctrl+u",), action="half_page(-1)", group="Move", help="half a page up"),
    KeyRow(keys=("pagedown",), action="page(1)", group="Move", help="a page down"),
    KeyRow(keys=("pageup",), action="page(-1)", group="Move", help="a page up"),
    KeyRow(keys=("g", "home"), action="edge(-1)", group="Move", help="to the top"),
    KeyRow(keys=("G", "end"), action="edge(1)", group="Move", help="to the bottom"),
    KeyRow(keys=("right",), action="columns(1)", group="Move", help="show the columns further right"),
    KeyRow(keys=("left",), action="columns(-1)", group="Move", help="show the columns further left"),
    KeyRow(
        keys=("exclamation_mark",),
        action="first_divergence",
        group="Find",
        help="first divergence",
        footer="first",
        rank=1,
    ),
    KeyRow(
        keys=("right_square_bracket",),
        action="failing(1)",
        group="Find",
        help="next failing node",
        footer="next failing",
        rank=2,
    ),
    KeyRow(keys=("left_square_bracket",), action="failing(-1)", group="Find", help="previous failing node"),
    KeyRow(
        keys=("slash",),
        action="search",
        group="Find",
        help="search: part of a name, 'whole name', ~regex",
        footer="search",
        rank=4,
    ),
    KeyRow(keys=("n",), action="match(1)", group="Find", help="next match, or next failing node"),
    KeyRow(keys=("N",), action="match(-1)", group="Find", help="previous match, or failing node"),
    KeyRow(keys=("enter", "l"), action="open", group="Look", help="detail of the node", footer="detail", rank=0),
    KeyRow(
        keys=("escape", "backspace", "h"),
        action="back",
        group="Look",
        help="back: detail, zoom or search",
        footer="back",
        rank=6,
    ),
    KeyRow(keys=("s",), action="sort", group="Look", help="sort by the next column", footer="sort", rank=7),
    KeyRow(keys=("S",), action="reverse", group="Look", help="reverse the order"),
    KeyRow(keys=("d",), action="metric", group="Look", help="show the next metric", footer="metric", rank=8),
    KeyRow(keys=("full_stop",), action="sample(1)", group="Look", help="next sample"),
    KeyRow(keys=("comma",), action="sample(-1)", group="Look", help="previous sample, at last all of them"),
    KeyRow(keys=("z",), action="zoom", group="Look", help="one panel alone, and back", footer="zoom", rank=9),
    KeyRow(keys=("t",), action="theme", group="Look", help="dark or light colours"),
    KeyRow(keys=("y",), action="copy", group="Do", help="send the name to the terminal's clipboard"),
    KeyRow(keys=("question_mark",), action="help", group="Do", help="this help", footer="help", rank=3),
    KeyRow(keys=("ctrl+p",), action="palette", group="Do", help="all commands by name"),
    KeyRow(keys=("q",), action="leave", group="Do", help="quit", footer="quit", rank=5),
)
"""The table. One row is one action; the order is the order of the help."""


def key_label(key: str) -> str:
    """Give a key as people write it: "]" for "right_square_bracket"."""
    return _LABELS.get(key, key)


def footer_keys(width: int) -> Sequence[tuple[str, str]]:
    """Choose the keys that the footer has room for.

    Args:
        width: Cells available.

    Returns:
        Pairs of key and word, most important first; each takes its length + 2 cells.
    """
    chosen: list[tuple[str, str]] = []
    used = 0
    for row in sorted((row for row in KEYS if row.footer), key=lambda row: row.rank):
        label = key_label(row.keys[0])
        used += len(label) + len(row.footer) + 3
        if used > width:
            break
        chosen.append((label, row.footer))
    return chosen


def markdown_table() -> str:
    """Give the table as Markdown, for the documentation."""
    lines = ["| keys | what they do |", "|---|---|"]
    for row in KEYS:
        keys = " ".join(f"`{key_label(key)}`" for key in row.keys)
        lines.append(f"| {keys} | {row.help} |")
    return "\n".join(lines) + "\n"
