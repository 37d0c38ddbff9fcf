"""Open the recordings named on a command line. The error for any other file names its format."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.errors import NotARecordingError
from qdebug.present.shell import command, shell_word
from qdebug.recording.remote_url import check_local
from qdebug.regular_file import open_binary
from qdebug.running.model_files import MODEL_ENDINGS, is_model

if TYPE_CHECKING:
    from qdebug.model import Recording

__all__ = ["closing_sources", "command", "forget_caches", "open_source", "verify_sources"]


def open_source(path: Path) -> Recording:
    """Open a recording, which is closed when the command ends.

    Args:
        path: The path as the user wrote it.

    Raises:
        NotARecordingError: The file is not a recording; the message states what it is, and what to do with it.
        RecordingError: The file is missing, damaged, or of a newer format.
    """
    from qdebug.recording.reading.opening import open_recording

    try:
        recording = open_recording(path)
    except NotARecordingError as error:
        kind_and_hint = _file_kind(path)
        if kind_and_hint is None:
            raise
        kind, hint = kind_and_hint
        raise NotARecordingError(f"{str(path)!r} is {kind}, not a recording.", hint=hint) from error
    _open_recordings.callback(recording.close)  # type: ignore[attr-defined]  # recordings from files have `close`
    return recording


@contextmanager
def closing_sources() -> Iterator[None]:
    """Close all recordings that `open_source` opens inside the block."""
    with _open_recordings:
        yield


_open_recordings = ExitStack()
"""Closes the recordings of the command. It is global, since a process runs one command."""


def verify_sources(arguments: argparse.Namespace) -> None:
    """Check the recordings of a command line in a guarded process before they are opened here.

    Args:
        arguments: Parsed arguments of a verb with `--untrusted`.

    Raises:
        RecordingError: A recording is invalid.
    """
    from qdebug.recording.reading.verify import verify

    for name in arguments.untrusted_sources:
        value = getattr(arguments, name)
        for path in value if isinstance(value, list | tuple) else [value]:
            if path is None or is_model(path):
                continue
            check_local(path, "--untrusted")
            try:
                verify(path)
            except NotARecordingError:
                if not getattr(arguments, "takes_profiles", False):  # the guarded process checks a profile
                    raise


def forget_caches() -> None:
    """Ignore cached results, since those next to untrusted files are not trusted either."""
    from qdebug.recording.cache import ColumnCache

    ColumnCache.disable()


def _file_kind(path: Path) -> tuple[str, str] | None:
    """Return the format of a file that is not a recording, and a hint how to use it."""
    if path.is_dir():
        if any(path.glob("*.h5")):
            return "a directory", "Give the path of a recording, usually FILE.h5."
        stem = path.resolve().name or "backend"
        to_import = command("qdebug", "import", path, "--graph", "MODEL", "-o", f"{stem}.h5")
        return "a directory", f"If it holds dumped tensors, import them: {to_import}."
    try:
        with open_binary(path) as file:
            start = file.read(8)
    except OSError:
        return None
    if not start:
        return "an empty file", "Record the run again; the run that wrote this file ended early."
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
        return "JSON", "Give the recordings that it was made from."
    return None
