"""Entry of the terminal interface. Textual is imported after the first frame is on the screen."""

from __future__ import annotations

from pathlib import Path

from qdebug.errors import QdebugError, RecordingError
from qdebug.tui.terminal import require_terminal, say_waiting, skeleton

__all__ = ["run_tui"]

_PATIENCE_SECONDS = 1.0
"""A wait that is longer is explained."""


def run_tui(
    reference: Path, backend: Path, *, node: str | None = None, sample: int | None = None, mouse: bool = True
) -> int:
    """Walk through the comparison of two recordings in the terminal.

    Args:
        reference: Recording of the reference run.
        backend: Recording of the backend run.
        node: Node or tensor to start at.
        sample: Sample to start with; None for all.
        mouse: Whether the terminal reports the mouse; without, it selects text as usual.

    Returns:
        0 after quitting, 130 after Ctrl-C.

    Raises:
        UsageError: There is no terminal, or no such node or sample.
        RecordingError: A recording cannot be read.
        AlignmentError: The two record different networks.
        QdebugError: The interface itself failed; the traceback has been printed.
    """
    require_terminal()
    with skeleton(reference, backend):
        from qdebug.tui.application import QdebugApp
        from qdebug.tui.glyphs import locale_glyphs
        from qdebug.tui.source import DiffSource

        def open_source() -> DiffSource:
            from qdebug.session import DiffSession, open_recording

            return DiffSession(open_recording(reference), open_recording(backend), cache=True)

        titles = (reference.name, backend.name)
        app = QdebugApp(open_source, titles=titles, node=node, sample=sample, glyphs=locale_glyphs())
    try:
        code = app.run(mouse=mouse)
    finally:
        if not app.join_reader(_PATIENCE_SECONDS):
            say_waiting()
            app.join_reader()
    if isinstance(app.failure, OSError) and not isinstance(app.failure, QdebugError):
        raise RecordingError(f"A recording cannot be read any further: {app.failure}.") from app.failure
    if app.failure is not None:
        raise app.failure
    if code is None:
        raise QdebugError("The terminal interface stopped.", hint="For the report: qdebug diff REF BACKEND.")
    return code
