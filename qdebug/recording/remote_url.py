"""URLs of object stores where a path is expected: "s3://bucket/ref.h5" is Path("s3:/bucket/ref.h5")."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["absolute", "url_of"]

_URL = re.compile(r"(s3a?|gs|gcs|hf|https?|memory):/+(?=[^/])")


def url_of(path: Path) -> str | None:
    """Return the URL that a path was made from, or None for a local file."""
    text = str(path)
    scheme = _URL.match(text)
    return None if scheme is None else f"{scheme[1]}://{text[scheme.end() :]}"


def absolute(path: Path) -> Path:
    """Return an absolute path, or the same for a URL, for a process that may have another working folder."""
    return path if url_of(path) else path.absolute()
