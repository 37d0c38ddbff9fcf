"""What a terminal sends, cut so that no key is taken for a part of another.

Escape is a key, and the first byte of the sequences that stand for others. What comes in one burst with it, over a slow
line or to a busy machine, is taken by Textual for one sequence with it: the escape is lost, or becomes a "^". Here what
is no sequence is kept back until the escape before it has been taken. Answers that come later than anyone waits for
them, answers to what another program asked, half of a sequence whose other half never comes, escapes in what is pasted
and bytes that are no text are keys that nobody has pressed: they are left out.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

__all__ = ["Incoming"]

_ESCAPE = b"\x1b"
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])")
_READ = re.compile(
    rb"\x1b(?:O.|\[(?:"
    rb"[0-9;:]*[A-FHPQRSu~]|[GIMOZ\[a-d]|[0-9]+[\^@]|1;[0-9]+[p-y]"  # keys, and whether the window has the focus
    rb"|<[-0-9;]*[mM]|48(?:;[0-9:]+){4}t|\?[0-9;]*\$y"  # the mouse, the size, answers to what Textual asks
    rb"))\Z"
)
"""Sequences that Textual knows; of others it makes a key out of each byte, with what is typed after them."""
_UNKNOWN = re.compile(rb"\x1b\[(?:[<=>?][0-9]|[0-9:]*;)")
"""How sequences begin that nobody types."""
_STRING = rb"\x1b(?:\][0-9]+;|P[0-9;]*[>+$!|]|_G)[^\x00-\x1f]*"
_ANSWER = re.compile(_STRING + rb"(?:\x07|\x1b\\)")
_BEGUN = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O|\][0-9]*|P[0-9;]*|_)?\Z|" + _STRING + rb"\x1b?\Z")
_CERTAIN = re.compile(_STRING + rb"\x1b?|" + _UNKNOWN.pattern + rb"[0-?]*[ -/]*")
"""What begins no key that anyone presses, even if no more of it comes."""
_GOES_ON = re.compile(rb"[0-9a-fA-F:;/\\rgctnyuMmR$\x07\x1b]")
"""What may follow in an answer after a pause in the midst of it."""
_PASTE, _PASTED = b"\x1b[200~", b"\x1b[201~"
_INTERRUPT = b"\x03"
_FOCUSED = b"[I"
"""Makes of an escape that has been passed on a sequence that says nothing new."""
_SILENT = 10
"""So often nothing has come until what has surely begun is given up; what may be keys is given up the first time."""


class Incoming:
    """Gives what can be passed on of what has come so far."""

    def __init__(self) -> None:
        self._kept = b""
        self._passed = 0  # of what is kept
        self._pasting = False
        self._silent = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

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
        text = self._decoder.decode(data).encode()
        if text and self._silent and _CERTAIN.fullmatch(self._kept) and not _GOES_ON.match(text):
            self._kept = b""
        self._silent = 0 if data else self._silent + 1
        late = self._silent >= (_SILENT if _CERTAIN.match(self._kept) else 1)
        if self._pasting and data == _INTERRUPT:  # the end of what was pasted may never come
            text = _PASTED + text
        left = self._kept + text
        while left:
            part, wait, left_out = self._next(left, late=late)
            if not part:
                break
            passed, self._passed = self._passed, 0
            left = left[len(part) :]
            fresh = part[passed:] if not left_out else _FOCUSED if passed else b""
            if fresh or (wait and not left_out):
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
        if (found := _SEQUENCE.match(left)) is not None and (_READ.match(found[0]) or _UNKNOWN.match(found[0])):
            self._pasting = found[0] == _PASTE
            return found[0], False, not _READ.match(found[0])
        if found is None and _BEGUN.match(left) and not (late and len(left) > 1):
            return b"", False, False
        if (begun := _CERTAIN.match(left)) is not None:
            return begun[0].removesuffix(_ESCAPE), False, True
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
