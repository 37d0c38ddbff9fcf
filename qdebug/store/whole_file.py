"""A file that is replaced as a whole or stays as it was."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["whole_file"]


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give an empty file that takes the place of `path` when the block is left, and goes if it is left by an error.

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
    """Give the permissions of a file, or those that a new one gets here."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)  # it can be read only by setting it
    os.umask(mask)
    return 0o666 & ~mask
