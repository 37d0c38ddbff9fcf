"""Parse untrusted TOML. Text that would take far more memory when parsed than as text is rejected."""

from __future__ import annotations

import re
import tomllib
from typing import Any

__all__ = ["line_of", "parse_toml"]

_MAX_KEY_PARTS = 32
"""Maximum number of parts of a dotted key.

Python's parser keeps every prefix of a key: 20,000 parts in 40 KB take 1.6 GB.
"""
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*+"|\'[^\'\n]*+\'')
_DEEP_KEY = re.compile(rf'(?<![\w"-])(?:(?:[\w-]++|"")[ \t]*+\.[ \t]*+){{{_MAX_KEY_PARTS}}}')


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    Args:
        text: The content of a file.

    Raises:
        ValueError: The text is not valid TOML, or a key has too many dotted parts.
        RecursionError: The text is nested too deeply.
    """
    deep_key = _DEEP_KEY.search(_STRING.sub('""', text))
    if deep_key is not None:
        raise ValueError(f"a key that begins with {deep_key[0][:40]!r} has more than {_MAX_KEY_PARTS} parts")
    return tomllib.loads(text)


def line_of(text: str, position: str, key: str, *, prefix: str = "") -> int | None:
    """Return the line number of a key, counted from 1; None if the layout of the text is too unusual to find it.

    Args:
        text: The content of a file.
        position: The table, such as "default", or "limit[2]" for the second one of an array. "" for the top level.
        key: The key, or "" for the table's header.
        prefix: Prefix of the names of tables, such as "tool.qdebug.".
    """
    lines = text.splitlines()
    table, _, number = position.rstrip("]").partition("[")
    header = re.compile(rf"\s*\[\[?\s*{re.escape(prefix + (table or key))}\s*\]\]?\s*(#.*)?$")
    header_lines = [line for line, text_of_line in enumerate(lines) if header.match(text_of_line)]
    index = int(number or 1) - 1
    if index >= len(header_lines):
        line_numbers = (line + 1 for line, text_of_line in enumerate(lines) if _sets_key(text_of_line, key))
        return next(line_numbers, None) if not position else None
    start = header_lines[index]
    if not (key and table):
        return start + 1
    for line in range(start + 1, len(lines)):
        if lines[line].lstrip().startswith("["):
            break
        if _sets_key(lines[line], key):
            return line + 1
    return start + 1


def _sets_key(line: str, key: str) -> bool:
    return bool(key) and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line) is not None
