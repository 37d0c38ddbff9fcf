"""What a terminal sends, cut so that no key is taken for a part of another.

Escape is a key, and the first byte of the sequences that stand for others. What comes in one burst with it, over a slow
line or to a busy machine, is taken by Textual for one sequence with it: the escape is lost, or becomes a "^". Here what
is no sequence is kept back until the escape before it has been taken. Answers that come later than anyone waits for
them, and escapes in what is pasted, are keys that nobody has pressed: they are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["Incoming"]

_ESCAPE = b"\x1b"
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])")
_BEGUN = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O|\][0-9]+(?:;[^\x07\x1b]*\x1b?)?|\]|)\Z")
_ANSWER = re.compile(rb"\x1b\][0-9]+;[^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[\?[0-9;]*c")
_PASTE, _PASTED = b"\x1b[200~", b"\x1b[201~"


class Incoming:
    """Gives what can be passed on of what has come so far."""

    def __init__(self) -> None:
        self._kept = b""
        self._passed = 0  # of what is kept
        self._pasting = False

    @property
    def begun(self) -> bool:
        """Whether the beginning of a sequence is kept back."""
        return len(self._kept) > self._passed

    def take(self, data: bytes, *, escaped: bool) -> Iterator[tuple[bytes, bool]]:
        """Give the parts to pass on, each with whether an escape has to be taken before the next.

        Args:
            data: What has come; b"" if nothing more did for a while, so that what has begun is no sequence.
            escaped: Whether an escape that was passed on alone has been taken for a key.
        """
        if self._passed and escaped:
            self._kept, self._passed = self._kept[self._passed :], 0
        left, late = self._kept + data, not data
        while left:
            part, wait, left_out = self._next(left, late=late)
            if not part:
                break
            fresh, self._passed = part[self._passed :], 0
            left = left[len(part) :]
            if not left_out and (fresh or wait):
                yield fresh, wait
        self._kept = left
        if left == _ESCAPE and not self._passed and not self._pasting:
            self._passed = 1
            yield _ESCAPE, False

    def _next(self, left: bytes, *, late: bool) -> tuple[bytes, bool, bool]:
        """Give the first part, whether an escape has to be taken after it, and whether nobody gets it."""
        if self._pasting:
            return self._next_pasted(left, late=late)
        if not left.startswith(_ESCAPE):
            return left[: left.find(_ESCAPE) if _ESCAPE in left else None], False, False
        if (found := _ANSWER.match(left)) is not None:
            return found[0], False, True
        if (found := _SEQUENCE.match(left)) is not None:
            self._pasting = found[0] == _PASTE
            return found[0], False, False
        if _BEGUN.match(left) and not (late and len(left) > 1):
            return b"", False, False
        return _ESCAPE, True, False

    def _next_pasted(self, left: bytes, *, late: bool) -> tuple[bytes, bool, bool]:
        if not left.startswith(_ESCAPE):
            return left[: left.find(_ESCAPE) if _ESCAPE in left else None], False, False
        if left.startswith(_PASTED):
            self._pasting = False
            return _PASTED, False, False
        if _PASTED.startswith(left) and not late:
            return b"", False, False
        return _ESCAPE, False, True
