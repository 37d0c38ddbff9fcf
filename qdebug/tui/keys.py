"""How keys are written, and the descriptions of key bindings for help, guide and command palette.

A key is bound only if a plain terminal over ssh can send it. This excludes keys that terminals cannot distinguish from
others (ctrl+i is Tab, ctrl+m Enter, ctrl+h Backspace, ctrl+[ Escape), and keys that need an extended keyboard protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from textual.binding import Binding, BindingType
from textual.keys import format_key

__all__ = ["KeyRow", "key_label", "key_rows"]

_WORD_KEYS = frozenset({"up", "down", "left", "right", "enter", "backspace"})
"""Keys that are written as words, because not every font has their symbols."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """One or more keys and their description.

    Args:
        keys: Textual's names of the keys, in the order in which they are shown.
        action: The action.
        help: Its effect, in one clause.
    """

    keys: tuple[str, ...]
    action: str
    help: str

    @property
    def label(self) -> str:
        """The keys as users write them."""
        return " ".join(map(key_label, self.keys))


def key_label(key: str) -> str:
    """Return a key as users write it: "]" for "right_square_bracket"."""
    return key if key in _WORD_KEYS else format_key(key)


def key_rows(bindings: Iterable[BindingType]) -> Sequence[KeyRow]:
    """Return one row for each action of the bindings, in order. Bindings without help are left out."""
    rows: dict[str, KeyRow] = {}
    for binding in Binding.make_bindings(bindings):
        if binding.tooltip:
            existing_row = rows.get(binding.action)
            keys = (*(() if existing_row is None else existing_row.keys), binding.key)
            rows[binding.action] = KeyRow(keys=keys, action=binding.action, help=binding.tooltip)
    return list(rows.values())
