"""Parse untrusted TOML. Text whose parsed form would take far more memory than the text itself is refused."""

from __future__ import annotations

import re
import tomllib
from typing import Any

__all__ = ["parse_toml"]

_MOST_PARTS = 32
"""Maximum number of parts of a dotted key.

Python's parser keeps every prefix of a key: 20,000 parts in 40 KB take 1.6 GB.
"""
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*+"|\'[^\'\n]*+\'')
_DEEP_KEY = re.compile(rf'(?<![\w"-])(?:(?:[\w-]++|"")[ \t]*+\.[ \t]*+){{{_MOST_PARTS}}}')


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    Args:
        text: The content of a file.

    Raises:
        ValueError: It is not valid TOML, or a key has too many dotted parts.
        RecursionError: It is nested too deeply.
    """
    deep = _DEEP_KEY.search(_STRING.sub('""', text))
    if deep is not None:
        raise ValueError(f"a key that begins with {deep[0][:40]!r} has more than {_MOST_PARTS} parts")
    return tomllib.loads(text)
