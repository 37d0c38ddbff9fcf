"""The names around a recording that is being written: one writer for a path, and what may be written over."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qdebug.errors import NotARecordingError, OutputExistsError, QdebugError, RecordingError
from qdebug.recording.journal import FrameKind, read_frames

__all__ = [
    "HOW_TO_RECORD",
    "WriterLock",
    "cannot_write",
    "cause",
    "check_target",
    "exists",
    "journal_of",
    "lock_holder",
    "open_regular",
    "part_of",
    "recover_command",
    "recover_hint",
    "unfinished",
    "whole_file",
]


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Provide an empty file that takes the place of `path` when the block is left, and goes if it is left by an error.

    A link stays: what it points to is replaced. Permissions stay too; those of a new file are the usual ones.

    Args:
        path: The file to write, which need not exist; its folder does.

    Raises:
        OSError: It cannot be written.
    """
    target = path.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}.", suffix=".part")
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        partial.chmod(_mode(target))
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _mode(target: Path) -> int:
    """Return the permissions of a file, or those that a new one gets here."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)  # it can be read only by setting it
    os.umask(mask)
    return 0o666 & ~mask


HOW_TO_RECORD = "Record a run first: qdebug record MODEL --backend NAME --inputs FILE.npz -o OUT.h5."
"""Hint where there is no recording."""


def open_regular(path: Path, *, flags: int = 0) -> int:
    """Open a file for reading; return its descriptor.

    Args:
        path: The file.
        flags: Further flags of `os.open`.

    Raises:
        NotARecordingError: It is missing, cannot be read, or is no regular file.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    except FileNotFoundError:
        raise NotARecordingError(
            f"There is no file {str(path)!r}.", hint="Check the path, or record a run first."
        ) from None
    except (OSError, ValueError) as exc:
        raise NotARecordingError(f"{str(path)!r} cannot be opened: {cause(exc)}.", hint=HOW_TO_RECORD) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotARecordingError(f"{str(path)!r} is no regular file.", hint=HOW_TO_RECORD)
    return fd


_TRIES, _PAUSE = 3, 0.005
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def lock_holder(target: Path) -> str:
    """Return the process that writes a recording, as text; "" if nobody does."""
    try:
        fd = os.open(target.with_name(target.name + ".lock"), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
    except OSError:
        return ""  # no locks here: nobody can tell
    finally:
        os.close(fd)
    return ""


class WriterLock:
    """Hold an exclusive lock on a small file beside the target, which carries the holder's process id.

    The lock is flock's: it belongs to the open file, so it also keeps out a second writer of the
    same process, and the kernel drops it when the process dies however it dies. A left-over file
    without a holder is simply taken over.

    Args:
        target: The file that will be written.

    Raises:
        RecordingError: Somebody writes this target already, or the folder cannot be written.
    """

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(target.name + ".lock")
        self._fd = -1
        tries = _TRIES
        while self._fd < 0:
            tries -= 1
            try:
                self._fd = self._try(target)
            except RecordingError:
                if tries <= 0:
                    raise
                time.sleep(_PAUSE)  # a reader that only looks whether somebody holds it lets go at once
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)
        except OSError:
            self.release()
            raise

    def _try(self, target: Path) -> int:
        """Open and lock the file; -1 if it was removed under our hands and another try is needed."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            if holder == str(os.getpid()):
                raise RecordingError(
                    f"{str(target)!r} is being written by process {holder}, which is this one.",
                    hint="Close the recorder that is open on it: rec.close() to keep it, rec.discard() to drop it.",
                ) from None
            raise RecordingError(
                f"{str(target)!r} is being written by process {holder or 'unknown'}.",
                hint="Wait for that process to finish, or record to another file.",
            ) from None
        except OSError as exc:
            # Some network file systems have no locks; HDF5 goes on there too.
            if exc.errno not in _UNSUPPORTED:
                os.close(fd)
                raise
        return fd if self._is_current(fd) else self._drop(fd)

    def _is_current(self, fd: int) -> bool:
        """Tell whether the open file still is the one at the path: its last holder may have removed it."""
        try:
            return os.path.samestat(os.fstat(fd), self.path.stat())
        except FileNotFoundError:
            return False

    @staticmethod
    def _drop(fd: int) -> int:
        os.close(fd)
        return -1

    def release(self) -> None:
        """Remove the file and drop the lock. Again does nothing."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self.path.unlink()
            self.abandon()

    def abandon(self) -> None:
        """Close the file only: what a forked child does, whose parent keeps the lock."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):  # the host program may have closed all that was open
                os.close(fd)


def part_of(path: Path) -> Path:
    """Return the name of a recording's file while it is written."""
    return path.with_name(path.name + ".part")


def journal_of(path: Path) -> Path:
    """Return the name of a recording's journal."""
    return path.with_name(path.name + ".journal")


def unfinished(path: Path) -> bool:
    """Tell whether a run that recorded to a path has left values there without finishing."""
    try:
        fd = open_regular(journal_of(path))
    except NotARecordingError:
        return False
    try:
        return any(frame.kind == FrameKind.EVENT for frame in read_frames(fd)) and part_of(path).exists()
    except (OSError, ValueError):
        return False
    finally:
        os.close(fd)


def recover_hint(path: Path) -> str:
    """Say how to come to the values of a run that did not finish."""
    return f"Rebuild it: {recover_command(path)}."


def recover_command(path: Path) -> str:
    """Return the command that rebuilds the recording of such a run."""
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
    """Return the reason of a failure in a few words, without a library's internals."""
    number = getattr(exc, "errno", None)
    return os.strerror(number).lower() if number else str(exc).splitlines()[0].rstrip(".")
