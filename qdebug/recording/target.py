"""Files around a recording that is being written: the writer's lock, overwriting, and syncing to the disk.

`qdebug/guide/file.md` describes the order in which files are synced, and why.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qdebug.errors import NotARecordingError, OutputExistsError, QdebugError, RecordingError
from qdebug.recording.format.specification import FORMAT_NAME, HDF5_MAGIC
from qdebug.recording.journal import MAGIC, FrameKind, read_frames
from qdebug.recording.remote_url import check_local
from qdebug.regular_file import NotRegularFileError, near_file, open_descriptor

__all__ = [
    "HOW_TO_RECORD",
    "WriterLock",
    "add_file_name",
    "cannot_write_error",
    "check_recorder_file",
    "check_target",
    "describe_cause",
    "exists_error",
    "has_unfinished_run",
    "is_complete_part",
    "is_recorder_file",
    "journal_of",
    "lock_holder",
    "mode_of",
    "open_regular",
    "part_of",
    "recover_command",
    "recover_hint",
    "remove_if_same",
    "rename_durably",
    "rename_new",
    "replacing_file",
    "sync_file",
    "sync_finished",
    "sync_folder",
    "target_of",
]


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Provide an empty file that replaces `path` when the `with` block ends, and is removed on an error.

    If `path` is a link, its target is replaced. Permissions are kept, and a new file gets the default ones. A power cut
    leaves either the old file or the complete new one.

    Args:
        path: The file to write. It need not exist, but its folder must.

    Raises:
        OSError: It cannot be written; the error names `path`.
    """
    target = path.resolve()
    temporary_file = target.with_name(f".{target.name[:40]}.{os.urandom(6).hex()}.part")
    with add_file_name(path, temporary_file):
        os.close(os.open(temporary_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode_of(target) or 0o666))
        try:
            yield temporary_file
            rename_durably(temporary_file, target)
        except BaseException:
            with contextlib.suppress(OSError):  # the earlier error is the relevant one
                temporary_file.unlink(missing_ok=True)
            raise


@contextmanager
def add_file_name(path: Path | str, scratch: Path | None = None) -> Iterator[None]:
    """Add a file name to an OSError raised inside the block, since a full disk raises one without a name.

    Args:
        path: The name that the user knows.
        scratch: The file that is actually written, whose name means nothing to the user.
    """
    try:
        yield
    except OSError as exc:
        if exc.errno is not None and exc.filename in (None, str(scratch)):
            exc.filename, exc.filename2 = str(path), None
        raise


def mode_of(target: Path) -> int | None:
    """Return the permissions of a file to be replaced; None if it does not exist."""
    try:
        return target.stat().st_mode & 0o777
    except OSError:
        return None


def sync_file(fd: int) -> None:
    """Sync a file. Once this returns, its content survives a power cut.

    Raises:
        OSError: It could not be written. A successful second call proves nothing, since the system may have dropped the
            data.
    """
    if hasattr(fcntl, "F_FULLFSYNC"):  # on macOS, fsync leaves data in the drive's cache
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError as exc:
            if exc.errno not in _NO_SYNC:
                raise
        else:
            return
    os.fsync(fd)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that created, renamed and removed files in it survive a power cut as such.

    Raises:
        OSError: They could not be written.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as exc:
        if exc.errno not in _NO_SYNC:  # file systems with these errors write directory entries by themselves
            raise
    finally:
        os.close(fd)


def sync_finished(scratch: Path, target: Path) -> None:
    """Sync a finished file, with the permissions of the file that it will replace, if any.

    Raises:
        OSError: It could not be written.
    """
    fd = os.open(scratch, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        mode = mode_of(target)
        # Skip the call if possible, since it fails on file systems without permissions.
        if mode not in (
            None,
            os.fstat(fd).st_mode & 0o777,
        ):
            os.fchmod(fd, mode)
        sync_file(fd)
    finally:
        os.close(fd)


def rename_durably(scratch: Path, target: Path, *, force: bool = True) -> None:
    """Rename a finished file durably. A power cut leaves either the old file or the complete new one.

    Once this returns, the sources of the new file may be removed.

    Args:
        scratch: The finished file.
        target: Its new name.
        force: Replace an existing file.

    Raises:
        FileExistsError: The name exists, and `force` is not set.
        OSError: It could not be written or renamed.
    """
    sync_finished(scratch, target)
    if force:
        scratch.replace(target)
    else:
        rename_new(scratch, target)
    sync_folder(target.parent)


def rename_new(scratch: Path, target: Path) -> None:
    """Rename a file to an unused name. A file created there at the last moment is not replaced.

    Raises:
        FileExistsError: The name exists.
        OSError: It could not be renamed.
    """
    try:
        if _rename_exclusively(scratch, target):
            return
        os.link(scratch, target)
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
    else:
        scratch.unlink()
        return
    if os.path.lexists(target):  # neither an exclusive rename nor a link is supported: check first
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    scratch.replace(target)


_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)
"""Errors of file systems without hard links, or of kernels without an exclusive rename."""
_AT_FDCWD, _RENAME_NOREPLACE, _RENAME_EXCL = -100, 1, 4
"""Constants of Linux (fcntl.h, fs.h) and of macOS (stdio.h)."""


def _rename_exclusively(scratch: Path, target: Path) -> bool:
    """Rename with the system call that never replaces a file. Return False if the system does not have it."""
    library = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(scratch), os.fsencode(target)
    if hasattr(library, "renameat2"):
        status = library.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_NOREPLACE)
    elif hasattr(library, "renamex_np"):
        status = library.renamex_np(*paths, _RENAME_EXCL)
    else:
        return False
    number = ctypes.get_errno()
    if status and number in _NO_LINKS:
        return False
    if status:
        raise OSError(number, os.strerror(number), str(target))
    return True


_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.ENOTTY)
"""Errors of file systems that do not support syncing."""


def check_recorder_file(path: Path) -> None:
    """Refuse a file that has a recorder's working name but was not made by a recorder.

    Raises:
        RecordingError: Another program made it, or it has a second hard link.
    """
    if os.path.lexists(path) and not is_recorder_file(path):
        raise _foreign_file_error(path)


def is_recorder_file(path: Path) -> bool:
    """Return whether a recorder made a file, judging by its content.

    It may be blank, but must not have a second hard link.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False  # a symbolic link, or a file without read permission
    try:
        return _is_recorder_content(path, fd)
    except OSError:
        return False
    finally:
        os.close(fd)


def _foreign_file_error(path: Path) -> RecordingError:
    return RecordingError(
        f"{str(path)!r} exists, but no recorder wrote it; it was left unchanged.",
        hint="Move it away, or name another file to record to.",
    )


_HEAD_BYTES, _BLOCK_BYTES = 4096, 1 << 20
_MIN_HEADER = 48
"""Bytes of an HDF5 file that does not yet have a root group."""
_MAX_LOCK_BYTES = 32
"""Maximum bytes of a lock file, which holds a process id."""


def _is_recorder_content(path: Path, fd: int) -> bool:
    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        return False
    start = os.pread(fd, _HEAD_BYTES, 0)
    if not start.strip(b"\0"):
        return _is_blank(fd)
    if path.suffix == ".journal":
        return start.startswith(MAGIC) or MAGIC.startswith(start)
    if path.suffix == ".lock":
        return len(start) < _MAX_LOCK_BYTES and start.strip(b"\0\n").isdigit()
    if len(start) <= _MIN_HEADER:
        return HDF5_MAGIC.startswith(start[: len(HDF5_MAGIC)])  # the process died right after it created the file
    return start.startswith(HDF5_MAGIC) and FORMAT_NAME.encode() in start


def _is_blank(fd: int) -> bool:
    """Return whether a file is empty or all zeros, as a power cut can leave a new file."""
    offset = 0
    while data := os.pread(fd, _BLOCK_BYTES, offset):
        if data.strip(b"\0"):
            return False
        offset += len(data)
    return True


def remove_if_same(path: Path, status_when_made: os.stat_result) -> None:
    """Remove a file unless its name now belongs to a different file.

    Args:
        path: Its name.
        status_when_made: Its status when it was made.
    """
    with contextlib.suppress(OSError):
        if os.path.samestat(path.lstat(), status_when_made):
            path.unlink()


HOW_TO_RECORD = "Record a run first: qdebug record MODEL --backend NAME --inputs FILE.npz -o OUT.h5."
"""Hint for a path without a recording."""


def open_regular(path: Path, *, flags: int = 0) -> int:
    """Open a file for reading. Return its descriptor.

    Args:
        path: The file.
        flags: Further flags of `os.open`.

    Raises:
        NotARecordingError: It is missing, cannot be read, or is not a regular file.
    """
    try:
        return open_descriptor(path, flags=flags)
    except FileNotFoundError:
        raise NotARecordingError(
            f"There is no file {str(path)!r}.{near_file(path)}", hint="Check the path, or record a run first."
        ) from None
    except OSError as exc:
        raise NotARecordingError(
            f"{str(path)!r} cannot be opened: {describe_cause(exc)}.", hint=HOW_TO_RECORD
        ) from None


_LOCK_ATTEMPTS, _RETRY_SECONDS = 3, 0.005
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def lock_holder(target: Path) -> str:
    """Return the process that writes a recording, as text; "" if none does."""
    try:
        fd = os.open(target.parent / (target.name + ".lock"), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
    except OSError:
        return ""  # no locks on this file system
    finally:
        os.close(fd)
    return ""


class WriterLock:
    """Hold an exclusive lock on a small file next to the target, which contains the holder's process id.

    The lock is a flock, which belongs to the open file. So it also excludes a second writer in the same process, and
    the kernel drops it however the process dies. A left-over file without a holder is taken over.

    Args:
        target: The file to be written.

    Raises:
        RecordingError: Another writer holds the lock, its name belongs to a different file, or the folder cannot be
            written.
    """

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(target.name + ".lock")
        self._fd = -1
        attempts_left = _LOCK_ATTEMPTS
        while self._fd < 0:
            attempts_left -= 1
            try:
                self._fd = self._open_and_lock(target)
            except RecordingError:
                if attempts_left <= 0:
                    raise
                time.sleep(_RETRY_SECONDS)  # a reader that only checks the lock releases it immediately
            except OSError as exc:
                raise cannot_write_error(target, exc) from None
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)
        except OSError as exc:
            self.release()
            raise cannot_write_error(target, exc) from None

    def _open_and_lock(self, target: Path) -> int:
        """Open and lock the file; -1 if it was removed meanwhile and the caller must try again."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # opening a pipe must not block
        fd = os.open(self.path, flags, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            if holder == str(os.getpid()):
                raise RecordingError(
                    f"{str(target)!r} is being written by process {holder}, which is this process.",
                    hint="Close its recorder: rec.close() keeps the recording, rec.discard() drops it.",
                ) from None
            raise RecordingError(
                f"{str(target)!r} is being written by process {holder or 'unknown'}.",
                hint="Wait for that process to finish, or record to another file.",
            ) from None
        except OSError as exc:
            # Some network file systems do not support locks. Continue without one, as HDF5 does.
            if exc.errno not in _NO_LOCKS:
                os.close(fd)
                raise
        if not self._is_current(fd):
            return self._close_stale_file(fd)
        if not _is_recorder_content(self.path, fd):
            os.close(fd)
            raise _foreign_file_error(self.path)
        return fd

    def _is_current(self, fd: int) -> bool:
        """Return whether the open file is still the one at the path, which the last holder may have removed."""
        try:
            return os.path.samestat(os.fstat(fd), self.path.lstat())
        except FileNotFoundError:
            return False

    @staticmethod
    def _close_stale_file(fd: int) -> int:
        os.close(fd)
        return -1

    def release(self) -> None:
        """Remove the file and drop the lock. A second call does nothing."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):  # the host program may have closed all its descriptors
                remove_if_same(self.path, os.fstat(self._fd))
            self.abandon()

    def abandon(self) -> None:
        """Close the file without removing it: for a forked child, whose parent keeps the lock."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):  # the host program may have closed all its descriptors
                os.close(fd)


def part_of(path: Path) -> Path:
    """Return the path of a recording's unfinished file, NAME.part."""
    return path.parent / (path.name + ".part")  # with_name would fail for "." and "..", which have no name


def journal_of(path: Path) -> Path:
    """Return the path of a recording's journal, NAME.journal."""
    return path.parent / (path.name + ".journal")


def target_of(path: Path) -> Path:
    """Return the recording that NAME.part or NAME.journal belongs to. Any other path is returned unchanged."""
    for ending in (".part", ".journal"):
        if path.name.endswith(ending) and path.name != ending:
            return path.with_name(path.name.removesuffix(ending))
    return path


def has_unfinished_run(path: Path) -> bool:
    """Return whether an unfinished run left values at a path."""
    if not part_of(path).exists():
        return False
    try:
        fd = open_regular(journal_of(path))
    except NotARecordingError:
        return is_complete_part(part_of(path))
    try:
        return any(frame.kind == FrameKind.EVENT for frame in read_frames(fd)) or is_complete_part(part_of(path))
    except (OSError, ValueError):
        return is_complete_part(part_of(path))
    finally:
        os.close(fd)


_SUPERBLOCK = struct.Struct("<8s3xB16xQ")
"""Fields of an HDF5 superblock: magic, whether the file is open for writing, and the end of the file."""


def is_complete_part(part_path: Path) -> bool:
    """Return whether an unfinished file is completely written and needs only renaming."""
    try:
        fd = os.open(part_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        start, size = os.pread(fd, _HEAD_BYTES, 0), os.fstat(fd).st_size
    except OSError:
        return False
    finally:
        os.close(fd)
    if len(start) < _SUPERBLOCK.size or FORMAT_NAME.encode() not in start:
        return False
    magic, is_open_for_writing, end = _SUPERBLOCK.unpack_from(start)
    return bool(magic == HDF5_MAGIC and not is_open_for_writing and end == size)


def recover_hint(path: Path) -> str:
    """Return a hint about how to recover the values of an unfinished run."""
    return f"Rebuild it: {recover_command(path)}."


def recover_command(path: Path) -> str:
    """Return the command that rebuilds the recording of an unfinished run."""
    return f"qdebug file recover {str(path)!r}"


def check_target(path: Path, *, force: bool) -> None:
    """Refuse an output path that cannot be written, or that must not be overwritten.

    Raises:
        OutputExistsError: The file exists and `force` is not set.
        RecordingError: It is a folder or a device, its folder is missing, or an unfinished run left values there.
        UsageError: It is a URL.
    """
    check_local(path, "An output", writes=True)
    if path.is_dir():
        raise RecordingError(f"{str(path)!r} is a folder.", hint="Name a file in it, such as run.h5.")
    if path.exists() and not path.is_file():
        raise RecordingError(f"{str(path)!r} is not a regular file.", hint="Name a regular file.")
    if target_of(path) != path and has_unfinished_run(target_of(path)):
        raise RecordingError(
            f"{str(path)!r} is all that is left of an unfinished run.",
            hint=f"Give another name, or rebuild that recording first: {recover_command(path)}.",
        )
    if path.exists() and not force:
        raise exists_error(path, "Give another name, or overwrite it: --force (in Python: force=True).")
    if not path.parent.is_dir():
        raise RecordingError(
            f"The folder {str(path.parent)!r} does not exist.", hint=f"Create it: mkdir -p {str(path.parent)!r}."
        )


def exists_error(path: Path, hint: str) -> QdebugError:
    """Return the error for a file that must not be overwritten."""
    return OutputExistsError(f"{str(path)!r} already exists.", hint=hint)


def cannot_write_error(path: Path, exc: Exception) -> RecordingError:
    """Return the error for a path that cannot be written to."""
    is_disk_full = getattr(exc, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    hint = (
        "Free some space, or write to another disk."
        if is_disk_full
        else "Name a file in a folder that you may write to."
    )
    return RecordingError(f"{str(path)!r} cannot be written: {describe_cause(exc)}.", hint=hint)


def describe_cause(exc: Exception) -> str:
    """Return the reason for a failure in a few words, without a library's internals."""
    if isinstance(exc, NotRegularFileError):
        return str(exc.strerror)
    number = getattr(exc, "errno", None)
    return os.strerror(number).lower() if number else str(exc).splitlines()[0].rstrip(".")
