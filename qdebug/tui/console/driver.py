"""What stands between Textual and the terminal: as its own driver, but no key is lost, and quitting is at once.

Textual's driver first waits for its thread that reads keys, which looks for its end no more often than every tenth of a
second, and then leaves the screen. Here it is the other way round. And what it reads passes through a pipe, into which
an escape that is a key is put so that nothing after it can be taken for a part of it.

What a terminal sends, cut so that no key is taken for a part of another. Escape is a key, and the first byte of the
sequences that stand for others. What comes in one burst with it, over a slow line or to a busy machine, is taken by
Textual for one sequence with it: the escape is lost, or becomes a "^". And what comes slowly, it takes for several
keys. Here an escape is kept back until it is known what it is, and one that is a key is passed on with something after
it that ends it at once. Answers that come later than anyone waits for them, answers to what another program asked, half
of a sequence whose other half never comes, escapes in what is pasted, bytes that are no text and a mouse that nobody
asked for are keys that nobody has pressed: they are left out.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import sys
from contextlib import suppress
from threading import Event, Thread, get_ident
from typing import TYPE_CHECKING, Any

from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver

from qdebug.tui.console.terminal import mode_before, typed_before

if TYPE_CHECKING:
    from qdebug.tui.application import QdebugApp

__all__ = ["INTERRUPTED", "Incoming", "PromptDriver", "terminal_is_gone"]

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
_NOTHING = b"\x1b[?0;0$y"
"""Tells how a mode is set that there is not: what comes before it is then no part of any other sequence."""
_KEY = b"\x1b" + _NOTHING
"""An escape that is a key."""
_MOUSE = re.compile(rb"\x1b\[(?:<[-0-9;]*[mM]|M.{3})", re.DOTALL)
_MOUSE_BEGUN = re.compile(rb"\x1b\[M.{0,2}\Z", re.DOTALL)
_KEYPAD = re.compile(rb"\x1b[\[O]")
"""How keys begin that are several bytes: who presses escape seldom presses one of these at once."""
_SILENT, _SLOW = 10, 5
"""So often nothing has come until what has surely begun is given up, and what is likely a key in several bytes; an
escape alone is a key the first time."""


class Incoming:
    """Splits input into what can be passed on and what is still incomplete.

    Args:
        mouse: Whether anybody wants to hear of the mouse: who asked for no reports may get those that others asked for.
    """

    def __init__(self, *, mouse: bool = True) -> None:
        self._mouse = mouse
        self._kept = b""
        self._pasting = False
        self._silent = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    @property
    def begun(self) -> bool:
        """Whether the beginning of a sequence is kept back."""
        return bool(self._kept)

    def take(self, data: bytes) -> bytes:
        """Return what to pass on.

        Args:
            data: What has come; b"" if nothing more did for a while.
        """
        text = self._decoder.decode(data).encode()
        if text and self._silent and _CERTAIN.fullmatch(self._kept) and not _GOES_ON.match(text):
            self._kept = b""
        self._silent = 0 if data else self._silent + 1
        if self._pasting and data == _INTERRUPT:  # the end of what was pasted may never come
            text = _PASTED + text
        left, passed = self._kept + text, b""
        late = self._silent >= (_SILENT if _CERTAIN.match(left) else _SLOW if _KEYPAD.match(left) else 1)
        while left:
            part, known = self._next(left, late=late)
            if not part:
                break
            left = left[len(part) :]
            passed += known
        self._kept = left
        return passed

    def _next(self, left: bytes, *, late: bool) -> tuple[bytes, bytes]:
        """Return the first part, b"" if more of it has to come, and what is passed on of it."""
        if self._pasting:
            return self._next_pasted(left, late=late)
        if not left.startswith(_ESCAPE):
            plain = left[: left.find(_ESCAPE) if _ESCAPE in left else None]
            return plain, plain
        if (found := _ANSWER.match(left)) is not None:
            return found[0], b""
        if not self._mouse and (found := _MOUSE.match(left) or _MOUSE_BEGUN.match(left)) is not None:
            return (found[0] if late or _MOUSE.match(left) else b""), b""
        if (found := _SEQUENCE.match(left)) is not None and (_READ.match(found[0]) or _UNKNOWN.match(found[0])):
            self._pasting = found[0] == _PASTE
            return found[0], found[0] if _READ.match(found[0]) else b""
        if found is None and _BEGUN.match(left) and not late:
            return b"", b""
        if (begun := _CERTAIN.match(left)) is not None:
            return begun[0].removesuffix(_ESCAPE), b""
        return _ESCAPE, _KEY

    def _next_pasted(self, left: bytes, *, late: bool) -> tuple[bytes, bytes]:
        if not left.startswith(_ESCAPE):
            plain = left[: left.find(_ESCAPE) if _ESCAPE in left else None]
            return plain, plain
        if left.startswith(_PASTED):
            self._pasting = False
            return _PASTED, _PASTED
        if _PASTED.startswith(left) and not late:
            return b"", b""
        return _ESCAPE, b""


_LOOK_SECONDS = 0.1
"""How often it is asked whether keys are still wanted."""
_END_SECONDS = 5.0
"""How long the application may take to end once its terminal is gone; then there is nobody to wait for."""

INTERRUPTED = 130
"""What the program ends with where nobody quits it."""


def terminal_is_gone() -> bool:
    """Tell whether the other end of the terminal was closed, as when a connection breaks.

    Most programs then get a signal that ends them. One that does not, because the terminal is not its own or the
    signal is held off, would read the end of its input again and again, and keep a core busy for good.
    """
    stdin = sys.__stdin__
    if stdin is None or stdin.closed or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(stdin.fileno(), 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


class PromptDriver(LinuxDriver):
    """Restores the terminal before anything else when the application quits; a crash takes Textual's own way.

    Args:
        app: The application, which says whether it is quitting.
        options: As for the driver of Textual.
    """

    def __init__(self, app: QdebugApp, **options: Any) -> None:
        self._terminal, self._pipe, self._reader = -1, -1, 0
        self._incoming = Incoming(mouse=options.get("mouse", True))
        super().__init__(app, **options)
        self._quitting = app
        self._restoring = self._restored = False

    def start_application_mode(self) -> None:
        """Take the terminal over; at the end it is set up as it was before the first frame."""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.attrs_before = mode_before() or self.attrs_before

    @property
    def fileno(self) -> int:
        """What is read from: the terminal, and for the thread that reads keys a pipe."""
        return self._pipe if get_ident() == self._reader else self._terminal

    @fileno.setter
    def fileno(self, terminal: int) -> None:
        self._terminal = terminal

    def write(self, data: str) -> None:
        """Write to the terminal; nothing once it is gone.

        The thread that writes for Textual ends with the first write that fails, and who waits for room in its queue
        waits for ever: also for the look that would find that there is no terminal any more.
        """
        if not terminal_is_gone():
            super().write(data)

    def run_input_thread(self) -> None:
        """Read keys, out of a pipe into which another thread puts them."""
        self._pipe, writing = os.pipe()
        ended = Event()
        passing = Thread(target=self._pass_on, args=(writing, ended), name="qdebug-keys", daemon=True)
        passing.start()
        self._reader = get_ident()
        try:
            super().run_input_thread()
        finally:
            self._reader = 0
            ended.set()
            os.close(self._pipe)  # whoever writes is told

    def _pass_on(self, writing: int, ended: Event) -> None:
        """Put what the terminal sends into the pipe until the end, or until the terminal is gone."""
        incoming = self._incoming
        with suppress(OSError):
            while not ended.is_set():
                data = typed_before()
                if data:
                    pass
                elif select.select([self._terminal], [], [], ESCAPE_DELAY if incoming.begun else _LOOK_SECONDS)[0]:
                    if ended.is_set():
                        break
                    data = os.read(self._terminal, 1 << 12)
                    if not data:
                        break
                elif not incoming.begun:
                    continue
                os.write(writing, incoming.take(data))
        if not ended.wait(_END_SECONDS):  # laying out for a terminal that is gone, Textual may go round in circles
            os._exit(INTERRUPTED)
        os.close(writing)

    def disable_input(self) -> None:
        """Take no more keys; while quitting, give the screen back before."""
        if self._restoring:  # called from within
            return
        if self._quitting.leaving:
            self.stop_application_mode()
        super().disable_input()

    def stop_application_mode(self) -> None:
        """Give the screen back; while quitting once, and before the thread that reads keys is waited for."""
        if not self._quitting.leaving:
            super().stop_application_mode()
        elif not self._restored:
            self._restoring = self._restored = True
            super().stop_application_mode()
            self._restoring = False
            self.disable_input()
