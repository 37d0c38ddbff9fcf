"""One writer for a path: an exclusive lock that dies with its process and says who holds it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path

from qdebug.errors import RecordingError

__all__ = ["WriterLock", "lock_holder"]

_TRIES, _PAUSE = 3, 0.005
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def lock_holder(target: Path) -> str:
    """Give the process that writes a recording, as text; "" if nobody does."""
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
