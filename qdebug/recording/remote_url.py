"""URLs of object stores where a path is expected: "s3://bucket/ref.h5" is Path("s3:/bucket/ref.h5")."""

from __future__ import annotations

import re
from pathlib import Path

from qdebug.errors import UsageError

__all__ = ["absolute", "check_local", "url_of", "written"]

_URL = re.compile(r"(s3a?|gs|gcs|hf|https?|memory):/+(?=[^/])")


def url_of(path: Path) -> str | None:
    """Return the URL that a path was made from, or None for a local file."""
    text = str(path)
    scheme = _URL.match(text)
    return None if scheme is None else f"{scheme[1]}://{text[scheme.end() :]}"


def written(path: Path) -> str:
    """Return a path as its user writes it, with both slashes of a URL."""
    return url_of(path) or str(path)


def check_local(path: Path, user: str, *, writes: bool = False) -> None:
    """Refuse a URL where only local files work.

    Args:
        path: A path or a URL.
        user: What takes the file, such as an option; the subject of the sentence.
        writes: Whether it writes the file.

    Raises:
        UsageError: It is a URL.
    """
    if url_of(path) is not None:
        hint = "Write a local file, and upload it." if writes else "Download the file, and give its path."
        raise UsageError(f"{user} takes local files only, not {url_of(path)!r}.", hint=hint)


def absolute(path: Path) -> Path:
    """Return an absolute path, or the same for a URL, for a process that may have another working folder."""
    return path if url_of(path) else path.absolute()
