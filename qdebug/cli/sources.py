"""Opens the recordings named on a command line, and says what a file is if it is no recording."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.errors import NotARecordingError
from qdebug.present.shell import command, shell_word
from qdebug.regular_file import open_binary
from qdebug.running.model_files import MODEL_ENDINGS, is_model

if TYPE_CHECKING:
    from qdebug.model import Recording

__all__ = ["command", "forget_caches", "open_source", "sources_closed", "verify_sources"]


def open_source(path: Path) -> Recording:
    """Open a recording, which is closed when the command ends.

    Args:
        path: As the user wrote it.

    Raises:
        NotARecordingError: The file is something else; says what, and what to do with it.
        RecordingError: It is missing, damaged, or of a newer format.
    """
    from qdebug.recording.reading.opening import open_recording

    try:
        recording = open_recording(path)
    except NotARecordingError as error:
        found = _kind(path)
        if found is None:
            raise
        what, hint = found
        raise NotARecordingError(f"{str(path)!r} is {what}, not a recording.", hint=hint) from error
    _opened.callback(recording.close)  # type: ignore[attr-defined]  # those of files have it
    return recording


@contextmanager
def sources_closed() -> Iterator[None]:
    """Close at the end of the block all recordings that `open_source` opens in it."""
    with _opened:
        yield


_opened = ExitStack()
"""Closes the recordings of the command; a process runs one."""


def verify_sources(arguments: argparse.Namespace) -> None:
    """Check the recordings of a command line in a guarded process before they are opened here.

    Args:
        arguments: What was parsed of a verb that has `--untrusted`.

    Raises:
        RecordingError: One of them is no sound recording.
    """
    from qdebug.recording.reading.verify import verify

    for name in arguments.untrusted_sources:
        given = getattr(arguments, name)
        for path in given if isinstance(given, list | tuple) else [given]:
            if path is None or is_model(path):
                continue
            try:
                verify(path)
            except NotARecordingError:
                if not getattr(arguments, "takes_profiles", False):  # the guarded process reads and checks a profile
                    raise


def forget_caches() -> None:
    """Read and write no results beside a file that is not trusted."""
    from qdebug.recording.cache import ColumnCache

    ColumnCache.forget()


def _kind(path: Path) -> tuple[str, str] | None:
    """Tell what a file is that is no recording, and what to do with it."""
    if path.is_dir():
        return "a directory", "Give the path of a recording, mostly FILE.h5."
    try:
        with open_binary(path) as file:
            start = file.read(8)
    except OSError:
        return None
    if not start:
        return "an empty file", "Record again: the run that wrote it did not get far."
    run = f"qdebug record {'MODEL' if path.suffix not in MODEL_ENDINGS else shell_word(path)}"
    if start.startswith(b"PK\x03\x04"):
        return (
            "a zip archive (such as .npz)",
            f"Use it for the inputs of a run: {run} --backend NAME --inputs {shell_word(path)} -o OUT.h5.",
        )
    if start.startswith(b"\x93NUMPY"):
        return "a single numpy array", "Save inputs by name with numpy.savez and record a run: qdebug record --help."
    if path.suffix.lower() in MODEL_ENDINGS:
        return "a model", f"Record a run of it: {run} --backend NAME --inputs FILE.npz -o OUT.h5."
    if start.lstrip().startswith((b"{", b"[")):
        return "JSON", "Give the recordings it was made from."
    return None
