"""Reads limits out of parsed TOML, and says in which line and at which key something means nothing."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from qdebug.compare.result.limit_rules import BOUNDS, Acknowledgement, LimitRule
from qdebug.compare.result.limits import Limits
from qdebug.errors import LimitsError

__all__ = ["LimitsText", "without_entries"]

_TABLES = ("default", "limit", "acknowledged", "allow", "note")
_PATTERNS = ("tensor", "node", "op")
_RULE = (*_PATTERNS, *BOUNDS)
_ACKNOWLEDGED = ("node", "reason", "expires")
_NOTE = ("node", "text")
_ALLOW = ("partial", "unfaithful", "uncompared")


class LimitsText:
    """The text of a file with limits.

    Args:
        file: Its name, as the user wrote it.
        text: What it holds; used to find lines.
        prefix: What stands before the name of every table: "" or "tool.qdebug.".
    """

    def __init__(self, file: str, text: str, *, prefix: str = "") -> None:
        self._file, self._prefix = file, prefix
        self._lines = text.splitlines()

    def limits(self, tables: Mapping[str, Any], today: dt.date) -> Limits:
        """Give the limits.

        Args:
            tables: The parsed text.
            today: The day on which acknowledgements must still hold.

        Raises:
            LimitsError: A key or a value means nothing.
        """
        self._known(tables, _TABLES, "")
        default = self._table(tables, "default")
        self._known(default, BOUNDS, "default")
        rules = tuple(self._rule(entry, at) for entry, at in self._entries(tables, "limit"))
        acknowledged = [self._acknowledged(entry, at, today) for entry, at in self._entries(tables, "acknowledged")]
        self.notes(tables)
        allow = self._table(tables, "allow")
        self._known(allow, _ALLOW, "allow")
        return Limits(
            **self._bounds(default, "default"),
            rules=rules,
            acknowledged=tuple(acknowledged),
            file=self._file,
            allow_partial=self._flag(allow, "partial"),
            allow_unfaithful=self._flag(allow, "unfaithful"),
            allow_uncompared=self._uncompared(allow.get("uncompared", ())),
        )

    def notes(self, tables: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        """Give nodes and what was noted on them, in their order.

        Raises:
            LimitsError: A key or a value means nothing.
        """
        found = []
        for entry, at in self._entries(tables, "note"):
            self._known(entry, _NOTE, at)
            found.append((self._text(entry, "node", at), self._text(entry, "text", at)))
        return tuple(found)

    def _table(self, tables: Mapping[str, Any], name: str) -> dict[str, Any]:
        found = tables.get(name, {})
        if not isinstance(found, dict):
            raise self._wrong(name, "", "is no table", f"Write [{self._prefix}{name}].")
        return found

    def _entries(self, tables: Mapping[str, Any], name: str) -> Iterable[tuple[dict[str, Any], str]]:
        """Give the tables of an array and the place of each, as "limit[2]", counted from 1."""
        found = tables.get(name, [])
        if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
            raise self._wrong(name, "", "is no array of tables", f"Write [[{self._prefix}{name}]].")
        return [(entry, f"{name}[{position}]") for position, entry in enumerate(found, 1)]

    def _rule(self, entry: dict[str, Any], at: str) -> LimitRule:
        self._known(entry, _RULE, at)
        bounds = self._bounds(entry, at)
        if not bounds:
            raise self._wrong(at, "", "sets no limit", f"Give one of: {', '.join(BOUNDS)}.")
        patterns = {name: self._text(entry, name, at) for name in _PATTERNS if name in entry}
        if not patterns:
            hint = f"Give tensor, node or op, or write [{self._prefix}default]."
            raise self._wrong(at, "", "says for no tensor", hint)
        return LimitRule(**patterns, **bounds)  # type: ignore[arg-type]  # keys are checked above

    def _acknowledged(self, entry: dict[str, Any], at: str, today: dt.date) -> Acknowledgement:
        self._known(entry, _ACKNOWLEDGED, at)
        node, reason = self._text(entry, "node", at), self._text(entry, "reason", at).strip()
        if not reason:
            raise self._wrong(at, "reason", "is empty", "Say why it is all right.")
        expires = entry.get("expires")
        if expires is not None and type(expires) is not dt.date:
            raise self._wrong(at, "expires", "is no date", "Write it without quotes: expires = 2027-01-31.")
        return Acknowledgement(
            node=node,
            reason=reason,
            expires=None if expires is None else expires.isoformat(),
            expired=expires is not None and expires < today,
        )

    def _bounds(self, entry: Mapping[str, Any], at: str) -> dict[str, Any]:
        bounds: dict[str, Any] = {}
        for name in BOUNDS:
            if name not in entry:
                continue
            value = entry[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
                raise self._wrong(at, name, f"is {value!r} and must be a number", f"Write {name} = 1.")
            if name != "min_sqnr" and value < 0:
                raise self._wrong(at, name, f"is {value!r} and must be at least 0", f"Write {name} = 1.")
            if name == "max_saturation" and value > 1:
                raise self._wrong(at, name, f"is {value!r} and must be a share", "Write 0.01 for one per cent.")
            bounds[name] = float(value)
        return bounds

    def _text(self, entry: Mapping[str, Any], name: str, at: str) -> str:
        value = entry.get(name)
        if not isinstance(value, str) or not value:
            said = "is missing" if value is None else f"is {value!r} and must be a text"
            raise self._wrong(at, name, said, f'Write {name} = "...".')
        return value

    def _flag(self, allow: Mapping[str, Any], name: str) -> bool:
        value = allow.get(name, False)
        if not isinstance(value, bool):
            raise self._wrong("allow", name, f"is {value!r} and must be true or false", f"Write {name} = true.")
        return value

    def _uncompared(self, value: Any) -> int | tuple[str, ...]:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        if isinstance(value, list | tuple) and all(isinstance(entry, str) for entry in value):
            return tuple(value)
        hint = 'Write uncompared = 3, or uncompared = ["aux/*"].'
        raise self._wrong("allow", "uncompared", "must be a number or a list of name patterns", hint)

    def _known(self, entry: Mapping[str, Any], names: Iterable[str], at: str) -> None:
        names = tuple(names)
        for key in entry:
            if key not in names:
                near = get_close_matches(key, names, n=1)
                meant = f"Did you mean {near[0]}? " if near else ""
                raise self._wrong(at, key, "means nothing", f"{meant}Give one of: {', '.join(names)}.")

    def _wrong(self, at: str, key: str, what: str, hint: str) -> LimitsError:
        line = self._line(at, key)
        place = f"{self._file!r}" if line is None else f"{self._file!r}, line {line}"
        path = ".".join(part for part in (at, key) if part)
        return LimitsError(f"{place}: {self._prefix}{path} {what}.", hint=hint)

    def _line(self, at: str, key: str) -> int | None:
        """Find the line of a key, counted from 1; None where the text is laid out in another way than usual."""
        table, _, number = at.rstrip("]").partition("[")
        name = re.escape(f"{self._prefix}{table or key}")
        header = re.compile(rf"\s*\[\[?\s*{name}\s*\]\]?\s*(#.*)?$")
        headers = [line for line, text in enumerate(self._lines) if header.match(text)]
        position = int(number or 1) - 1
        if position >= len(headers):
            return (
                next((line + 1 for line, text in enumerate(self._lines) if _sets(text, key)), None) if not at else None
            )
        start = headers[position]
        if not (key and table):
            return start + 1
        for line in range(start + 1, len(self._lines)):
            if self._lines[line].lstrip().startswith("["):
                break
            if _sets(self._lines[line], key):
                return line + 1
        return start + 1


def _sets(line: str, key: str) -> bool:
    return bool(key) and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line) is not None


def without_entries(text: str, name: str, gone: Sequence[bool]) -> str:
    """Give the text of a file without some tables of an array; comments before the table that follows stay.

    Args:
        text: What the file holds, a table after the other.
        name: Full name of the array, such as "tool.qdebug.acknowledged".
        gone: For each of its tables in their order, whether it goes.
    """
    lines = text.splitlines(keepends=True)
    header = re.compile(rf"\s*\[\[\s*{re.escape(name)}\s*\]\]")
    starts = [at for at, line in enumerate(lines) if header.match(line)]
    for start, goes in reversed(list(zip(starts, gone, strict=False))):
        if not goes:
            continue
        stop = next((at for at in range(start + 1, len(lines)) if lines[at].lstrip().startswith("[")), len(lines))
        while stop > start + 1 and lines[stop - 1].lstrip().startswith("#"):
            stop -= 1  # it speaks of what comes next
        del lines[start:stop]
    return "".join(lines)
