"""How keys are written, and the descriptions of key bindings for help, guide and palette.

A key is bound only if a plain terminal over ssh can send it: no key that is another one in disguise (ctrl+i is Tab,
ctrl+m Enter, ctrl+h Backspace, ctrl+[ Escape) and none that needs an extended keyboard protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from textual.binding import Binding, BindingType
from textual.keys import format_key

__all__ = ["KeyRow", "key_label", "key_rows"]

_AS_THEY_ARE = frozenset({"up", "down", "left", "right", "enter", "backspace"})
"""Keys whose sign not every font has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """One or more keys with their description.

    Args:
        keys: Names of the keys as Textual spells them; the first is the one that is shown first.
        action: The action.
        help: Its effect, in one clause.
    """

    keys: tuple[str, ...]
    action: str
    help: str

    @property
    def label(self) -> str:
        """The keys as people write them."""
        return " ".join(map(key_label, self.keys))


def key_label(key: str) -> str:
    """Return a key as people write it: "]" for "right_square_bracket"."""
    return key if key in _AS_THEY_ARE else format_key(key)


def key_rows(bindings: Iterable[BindingType]) -> Sequence[KeyRow]:
    """Return a row for each action of some bindings, in their order; those without help are left out."""
    rows: dict[str, KeyRow] = {}
    for binding in Binding.make_bindings(bindings):
        if binding.tooltip:
            before = rows.get(binding.action)
            keys = (*(() if before is None else before.keys), binding.key)
            rows[binding.action] = KeyRow(keys=keys, action=binding.action, help=binding.tooltip)
    return list(rows.values())
