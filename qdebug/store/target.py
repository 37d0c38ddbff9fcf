"""The names around a recording that is being written, and what may be written over."""

from __future__ import annotations

import os
from pathlib import Path

from qdebug.errors import OutputExistsError, QdebugError, RecordingError
from qdebug.store.journal import Kind, read_frames

__all__ = [
    "cannot_write",
    "cause",
    "check_target",
    "exists",
    "journal_of",
    "part_of",
    "recover_command",
    "recover_hint",
    "unfinished",
]


def part_of(path: Path) -> Path:
    """Give the name of a recording's file while it is written."""
    return path.with_name(path.name + ".part")


def journal_of(path: Path) -> Path:
    """Give the name of a recording's journal."""
    return path.with_name(path.name + ".journal")


def unfinished(path: Path) -> bool:
    """Tell whether a run that recorded to a path has left values there without finishing."""
    try:
        fd = os.open(journal_of(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return any(frame.kind == Kind.EVENT for frame in read_frames(fd)) and part_of(path).exists()
    except (OSError, ValueError):
        return False
    finally:
        os.close(fd)


def recover_hint(path: Path) -> str:
    """Say how to come to the values of a run that did not finish."""
    return f"Rebuild it: {recover_command(path)}."


def recover_command(path: Path) -> str:
    """Give the command that rebuilds the recording of such a run."""
    return f"qdebug file recover {str(path)!r}"


def check_target(path: Path, *, force: bool) -> None:
    """Refuse a path that no recording can be written to, or that must not be overwritten.

    Raises:
        OutputExistsError: There is a file, and `force` is not set.
        RecordingError: It is a folder or a device, its folder is missing, or it is what a run left that did not finish.
    """
    if path.is_dir():
        raise RecordingError(f"{str(path)!r} is a folder.", hint="Name a file in it, such as run.h5.")
    if path.exists() and not path.is_file():
        raise RecordingError(f"{str(path)!r} is no regular file.", hint="Name a file that may be replaced.")
    for ending in (".part", ".journal"):
        if path.name.endswith(ending) and unfinished(path.with_name(path.name.removesuffix(ending))):
            raise RecordingError(
                f"{str(path)!r} belongs to a run that did not finish, and is all that is left of it.",
                hint=f"Give another name, or rebuild that first: {recover_command(path)}.",
            )
    if path.exists() and not force:
        raise exists(path, "Give another name, or overwrite it: --force (in Python: force=True).")
    if not path.parent.is_dir():
        raise RecordingError(
            f"The folder {str(path.parent)!r} does not exist.", hint=f"Make it: mkdir -p {str(path.parent)!r}."
        )


def exists(path: Path, hint: str) -> QdebugError:
    """Make the error for a file that must not be overwritten."""
    return OutputExistsError(f"{str(path)!r} exists.", hint=hint)


def cannot_write(path: Path, exc: Exception) -> RecordingError:
    """Make the error for a path that cannot be written to."""
    return RecordingError(
        f"{str(path)!r} cannot be written: {cause(exc)}.", hint="Name a file in a folder that you may write to."
    )


def cause(exc: Exception) -> str:
    """Give the reason of a failure in a few words, without a library's internals."""
    number = getattr(exc, "errno", None)
    return os.strerror(number).lower() if number else str(exc).splitlines()[0].rstrip(".")
