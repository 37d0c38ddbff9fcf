"""A file that is written as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from qdebug.errors import UsageError

__all__ = ["new_file"]


@contextmanager
def new_file(path: Path, *, text: bool) -> Iterator[IO[Any]]:
    """Open a file that does not exist; leave nothing of it behind if not all of it could be written.

    Args:
        path: Where.
        text: Whether it takes text, as UTF-8, or bytes.

    Raises:
        UsageError: It cannot be written, or exists.
    """
    how: dict[str, Any] = {"encoding": "utf-8", "newline": ""} if text else {}
    made = False
    try:
        with path.open("x" if text else "xb", **how) as file:
            made = True
            yield file
    except BaseException as error:
        if made:
            with suppress(OSError):
                path.unlink()
        if isinstance(error, OSError):
            why = error.strerror or str(error)
            raise UsageError(f"{str(path)!r} cannot be written: {why}.", hint="Give another place.") from error
        raise
