"""Every key of the terminal interface, once: bindings, help, footer and the README's list come from this table.

A key is listed only if a plain terminal over ssh can send it: no key that is another one in
disguise (ctrl+i is Tab, ctrl+m Enter, ctrl+h Backspace, ctrl+[ Escape) and none that needs an
extended keyboard protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

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
    "at": "@",
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
        asks: Whether it opens the line, which takes the keys after it.
    """

    keys: tuple[str, ...]
    action: str
    group: str
    help: str
    footer: str = ""
    rank: int = 99
    asks: bool = False


KEYS: tuple[KeyRow, ...] = (
    KeyRow(keys=("j", "down"), action="move(1)", group="Move", help="one down"),
    KeyRow(keys=("k", "up"), action="move(-1)", group="Move", help="one up"),
    KeyRow(keys=("ctrl+d",), action="half_page(1)", group="Move", help="half a page down"),
    KeyRow(keys=("ctrl+u",), action="half_page(-1)", group="Move", help="half a page up"),
    KeyRow(keys=("pagedown",), action="page(1)", group="Move", help="a page down"),
    KeyRow(keys=("pageup",), action="page(-1)", group="Move", help="a page up"),
    KeyRow(keys=("g", "home"), action="edge(-1)", group="Move", help="to the top"),
    KeyRow(
        keys=("G", "end"),
        action="edge(1)",
        group="Move",
        help="to the bottom; of the nodes: first to the backend's last",
    ),
    KeyRow(
        keys=("l", "right"), action="side(1)", group="Move", help="right: more columns; in the graph: walk to an output"
    ),
    KeyRow(
        keys=("h", "left"), action="side(-1)", group="Move", help="left: fewer columns; in the graph: walk to an input"
    ),
    KeyRow(keys=("right_curly_bracket",), action="block(1)", group="Move", help="first node of the next block"),
    KeyRow(keys=("left_curly_bracket",), action="block(-1)", group="Move", help="first node of the previous block"),
    KeyRow(keys=("H",), action="history(-1)", group="Move", help="back the way you came: a jump, an edge of a walk"),
    KeyRow(keys=("L",), action="history(1)", group="Move", help="forward again"),
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
        rank=3,
    ),
    KeyRow(keys=("left_square_bracket",), action="failing(-1)", group="Find", help="previous failing node"),
    KeyRow(keys=("w",), action="worst_input", group="Find", help="the input that carries most error"),
    KeyRow(
        keys=("W",),
        action="origin",
        group="Find",
        help="run along the worst inputs to the origin of the error",
        footer="origin",
        rank=2,
    ),
    KeyRow(
        keys=("slash",),
        action="search",
        asks=True,
        group="Find",
        help="search: part of a name, 'whole name', ~regex",
        footer="search",
        rank=5,
    ),
    KeyRow(
        keys=("n",), action="match(1)", group="Find", help="next match, worst element (values, map) or failing node"
    ),
    KeyRow(keys=("N",), action="match(-1)", group="Find", help="the previous one"),
    KeyRow(
        keys=("f",),
        action="filter",
        asks=True,
        group="Find",
        help="show the nodes that fit, such as rel>1e-2 & op~conv",
        footer="filter",
        rank=7,
    ),
    KeyRow(keys=("F",), action="clear_filter", group="Find", help="show all nodes"),
    KeyRow(keys=("m",), action="mark", group="Find", help="mark the node, or take its mark away"),
    KeyRow(keys=("apostrophe",), action="next_mark", group="Find", help="next marked node"),
    KeyRow(keys=("at",), action="element", asks=True, group="Find", help="jump to an element, such as 0,12,3,7"),
    KeyRow(keys=("enter",), action="open", group="Look", help="go deeper: tensor, values", footer="open", rank=0),
    KeyRow(
        keys=("escape", "backspace"),
        action="back",
        group="Look",
        help="back: screen, zoom, search, filter",
        footer="back",
        rank=8,
    ),
    KeyRow(
        keys=("1",), action="screen('overview')", group="Look", help="screen overview: verdict, error profile, culprits"
    ),
    KeyRow(keys=("2",), action="screen('nodes')", group="Look", help="screen nodes: all nodes as a table"),
    KeyRow(
        keys=("3",),
        action="screen('graph')",
        group="Look",
        help="screen graph: the node between its inputs and outputs",
    ),
    KeyRow(
        keys=("4",),
        action="screen('tensor')",
        group="Look",
        help="screen tensor: all facts of the tensor on both sides",
    ),
    KeyRow(
        keys=("5",),
        action="screen('values')",
        group="Look",
        help="screen values: elements of both sides next to each other",
    ),
    KeyRow(
        keys=("6",),
        action="screen('channels')",
        group="Look",
        help="screen channels: error, range and scale of each channel",
    ),
    KeyRow(keys=("7",), action="screen('map')", group="Look", help="screen map: where in the tensor the error is"),
    KeyRow(
        keys=("8",),
        action="screen('explain')",
        group="Look",
        help="screen explain: which arithmetic reproduces the node",
    ),
    KeyRow(keys=("9",), action="screen('samples')", group="Look", help="screen samples: error of each sample"),
    KeyRow(
        keys=("0",),
        action="screen('backends')",
        group="Look",
        help="screen backends: nodes by backends, when several are given",
    ),
    KeyRow(
        keys=("V",),
        action="verdict",
        group="Look",
        help="the whole verdict, and the limits, outputs and runs it rests on",
        footer="verdict",
        rank=12,
    ),
    KeyRow(keys=("tab",), action="turn(1)", group="Look", help="next screen"),
    KeyRow(keys=("shift+tab",), action="turn(-1)", group="Look", help="previous screen"),
    KeyRow(
        keys=("s", "greater_than_sign"),
        action="sort(1)",
        group="Look",
        help="sort by the next column; channels: by error or number",
        footer="sort",
        rank=9,
    ),
    KeyRow(keys=("less_than_sign",), action="sort(-1)", group="Look", help="sort by the previous column"),
    KeyRow(keys=("S",), action="reverse", group="Look", help="reverse the order"),
    KeyRow(keys=("d",), action="metric", group="Look", help="show the next metric", footer="metric", rank=10),
    KeyRow(keys=("full_stop",), action="sample(1)", group="Look", help="next sample"),
    KeyRow(keys=("comma",), action="sample(-1)", group="Look", help="previous sample, at last all of them"),
    KeyRow(keys=("right_parenthesis",), action="step(1)", group="Look", help="next step of a stateful net"),
    KeyRow(keys=("left_parenthesis",), action="step(-1)", group="Look", help="previous step"),
    KeyRow(keys=("c",), action="channel(1)", group="Look", help="next channel (values, channels, map)"),
    KeyRow(keys=("C",), action="channel(-1)", group="Look", help="previous channel"),
    KeyRow(
        keys=("v",), action="form", group="Look", help="values as real numbers, codes or hex; map: plane or channels"
    ),
    KeyRow(keys=("b",), action="backend", group="Look", help="next backend"),
    KeyRow(keys=("z",), action="zoom", group="Look", help="one panel alone, and back", footer="zoom", rank=11),
    KeyRow(keys=("t",), action="theme", group="Look", help="next colours: dark, light, high contrast"),
    KeyRow(
        keys=("i",),
        action="acknowledge",
        asks=True,
        group="Do",
        help="accept the node's error with a reason, in the limits file",
    ),
    KeyRow(
        keys=("a",),
        action="note",
        asks=True,
        group="Do",
        help="note on the node, which marks it; kept in the limits file",
    ),
    KeyRow(
        keys=("p",),
        action="pair",
        asks=True,
        group="Do",
        help="say the tensor's partner by hand, in the map file",
    ),
    KeyRow(keys=("y",), action="copy", group="Do", help="send the name to the terminal's clipboard"),
    KeyRow(
        keys=("Y",), action="copy_command", group="Do", help="send the command that shows this again to the clipboard"
    ),
    KeyRow(
        keys=("e",),
        action="export",
        asks=True,
        group="Do",
        help="write a file: .svg screen, .csv .json nodes, .npy .npz tensor",
    ),
    KeyRow(keys=("question_mark",), action="help", group="Do", help="this help", footer="help", rank=4),
    KeyRow(keys=("ctrl+p",), action="palette", group="Do", help="all commands by name"),
    KeyRow(keys=("ctrl+z",), action="suspend", group="Do", help="suspend; fg comes back"),
    KeyRow(keys=("q",), action="leave", group="Do", help="quit", footer="quit", rank=6),
)
"""The table. One row is one action; the order is the order of the help."""

ROW_OF: Mapping[str, KeyRow] = MappingProxyType({key: row for row in KEYS for key in row.keys})
"""The row of each key."""


def key_label(key: str) -> str:
    """Return a key as people write it: "]" for "right_square_bracket"."""
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
    """Return the table as Markdown, for the documentation."""
    lines = ["| keys | what they do |", "|---|---|"]
    for row in KEYS:
        keys = " ".join(f"`{key_label(key)}`" for key in row.keys)
        lines.append(f"| {keys} | {row.help} |")
    return "\n".join(lines) + "\n"
