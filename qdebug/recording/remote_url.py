"""URLs of object stores that are passed as paths: "s3://bucket/ref.h5" becomes Path("s3:/bucket/ref.h5")."""

from __future__ import annotations

import re
from pathlib import Path

from qdebug.errors import UsageError

__all__ = ["absolute_path", "check_local", "format_path", "url_of"]

_URL = re.compile(r"(s3a?|gs|gcs|hf|https?|memory):/+(?=[^/])")


def url_of(path: Path) -> str | None:
    """Return the URL that a path was made from, or None for a local file."""
    text = str(path)
    scheme = _URL.match(text)
    return None if scheme is None else f"{scheme[1]}://{text[scheme.end() :]}"


def format_path(path: Path) -> str:
    """Return a path as the user writes it: a URL has two slashes after its scheme, which Path merges into one."""
    return url_of(path) or str(path)


def check_local(path: Path, user: str, *, writes: bool = False) -> None:
    """Refuse a URL where only local files work.

    Args:
        path: A path or a URL.
        user: The option or command that takes the file; the subject of the message.
        writes: Whether the file is written.

    Raises:
        UsageError: It is a URL.
    """
    if url_of(path) is not None:
        hint = "Write a local file, and upload it." if writes else "Download the file, and give its path."
        raise UsageError(f"{user} takes local files only, not {url_of(path)!r}.", hint=hint)


def absolute_path(path: Path) -> Path:
    """Return an absolute path, or a URL unchanged, for a process that may have a different working folder."""
    return path if url_of(path) else path.absolute()
