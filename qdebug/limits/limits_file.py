"""Limits in a TOML file: one format for the command line, the pytest plugin and the terminal interface.

    [default]                   # for every tensor that no rule fits; without it limits are derived
    min_sqnr = 30

    [[limit]]                   # a rule; the last one that fits a tensor holds, and alone
    tensor = "head/*"           # a pattern for the backend's tensor (*, ?, [seq])
    node = "*"                  # a pattern for its node
    op = "Softmax"              # a pattern for the operator; all that are given must fit
    max_lsb = 2                 # min_sqnr, max_lsb, atol, rtol, max_saturation (a share: 0.01)

    [[acknowledged]]            # this node may be beyond its limit; of several for one node the last holds
    node = "conv3"              # the exact name of the backend's node
    reason = "rounds half up"
    expires = 2027-01-31        # the last day on which it holds; without it, it holds for ever

    [[note]]                    # something to remember of a node; it changes no verdict
    node = "conv3"
    text = "ask the vendor"

    [allow]                     # what may be missing, as on the command line
    partial = false
    unfaithful = false
    uncompared = ["aux/*"]      # name patterns, or a number

In a pyproject.toml the same tables stand under `tool.qdebug`: `[tool.qdebug.default]`, `[[tool.qdebug.limit]]`.
There `limits = "FILE"` names a file that holds them instead.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from qdebug.compare.result.limits import ALL_BOUNDS, BOUNDS, DECIBELS, Acknowledgement, LimitRule, Limits
from qdebug.errors import LimitsError
from qdebug.limits.place import find_limits, prefix_of, read_text, tables_of
from qdebug.recording.target import replacing_file

__all__ = [
    "LimitsText",
    "acknowledge",
    "find_limits",
    "load_limits",
    "load_notes",
    "quoted",
    "withdraw",
    "without_entries",
    "write_note",
]

_TABLES = ("default", "limit", "acknowledged", "allow", "note")
_PATTERNS = ("tensor", "node", "op")
_RULE = (*_PATTERNS, *BOUNDS)
_ACKNOWLEDGED = ("node", "reason", "expires")
_NOTE = ("node", "text")
_ALLOW = ("partial", "unfaithful", "different_inputs", "uncompared")


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
        """Return the limits.

        Args:
            tables: The parsed text.
            today: The day on which acknowledgements must still hold.

        Raises:
            LimitsError: A key or a value means nothing.
        """
        self._known(tables, _TABLES, "")
        default = self._table(tables, "default")
        self._known(default, ALL_BOUNDS, "default")
        rules = tuple(self._rule(entry, at) for entry, at in self._entries(tables, "limit"))
        acknowledged = [self._acknowledged(entry, at, today) for entry, at in self._entries(tables, "acknowledged")]
        self.notes(tables)
        allow = self._table(tables, "allow")
        self._known(allow, _ALLOW, "allow")
        return Limits(
            **self._bounds(default, "default", ALL_BOUNDS),
            rules=rules,
            acknowledged=tuple(acknowledged),
            file=self._file,
            allow_partial=self._flag(allow, "partial"),
            allow_unfaithful=self._flag(allow, "unfaithful"),
            allow_different_inputs=self._flag(allow, "different_inputs"),
            allow_uncompared=self._uncompared(allow.get("uncompared", ())),
        )

    def notes(self, tables: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        """Return nodes and what was noted on them, in their order.

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
        """Return the tables of an array and the place of each, as "limit[2]", counted from 1."""
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

    def _bounds(self, entry: Mapping[str, Any], at: str, names: Sequence[str] = BOUNDS) -> dict[str, Any]:
        bounds: dict[str, Any] = {}
        for name in names:
            if name not in entry:
                continue
            value = entry[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
                raise self._wrong(at, name, f"is {value!r} and must be a number", f"Write {name} = 1.")
            if name not in DECIBELS and value < 0:
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
    """Return the text of a file without some tables of an array; comments before the table that follows stay.

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


_HEAD = "# Limits for qdebug: qdebug help tolerance says what can stand here.\n"


def load_limits(path: str | Path, *, today: dt.date | None = None) -> Limits:
    r"""Read the limits of a file.

    Args:
        path: A limits file, or a pyproject.toml whose table `tool.qdebug` holds limits or names their file.
        today: The day on which acknowledgements must still hold; the real one if None.

    Raises:
        LimitsError: It cannot be read, is no TOML, or has an entry that means nothing: the message names key and line.

    Example:
        >>> _ = pathlib.Path("limits.toml").write_text("[default]\nmin_sqnr = 3")
        >>> qdebug.diff("float.h5", "int8.h5", limits=qdebug.load_limits("limits.toml")).status
        <Status.WITHIN: 'within'>
    """
    path = Path(path)
    text = read_text(path)
    tables, named = tables_of(path, text)
    if named is not None:
        return load_limits(named, today=today)
    return LimitsText(str(path), text, prefix=prefix_of(path)).limits(tables, today or dt.date.today())


def acknowledge(
    path: str | Path,
    node: str,
    *,
    reason: str,
    expires: dt.date | None = None,
    today: dt.date | None = None,
) -> Limits:
    """Write into a limits file that a node may be beyond its limit, and give the limits that the file now holds.

    The entry is added at the end; the rest of the file, comments included, stays as it is. A file that does not exist
    is made. `DiffSession.acknowledge(limits.acknowledged)` makes an open comparison follow.

    Args:
        path: A limits file, or a pyproject.toml.
        node: Exact name of a backend node; of a graph input, the tensor's.
        reason: Why that is all right; somebody will read it when it expires.
        expires: The last day on which it holds; None for ever.
        today: As for `load_limits`.

    Raises:
        LimitsError: No reason is given, the day is over, or the file cannot be read or written.
    """
    path = Path(path)
    day = today or dt.date.today()
    entry = Acknowledgement(node=node, reason=reason.strip(), expires=None if expires is None else expires.isoformat())
    if not entry.reason:
        raise LimitsError(f"No reason is given to accept {node!r}.", hint="Give one: who reads it later needs it.")
    if expires is not None and expires < day:
        raise LimitsError(
            f"To accept {node!r} until {expires} has no effect: that day is over.", hint="Give a later day."
        )
    text = read_text(path) if path.exists() else _HEAD
    _, named = tables_of(path, text)
    if named is not None:
        return acknowledge(named, node, reason=reason, expires=expires, today=today)
    changed = _with_block(text, _block(entry, prefix_of(path)))
    # Read before it is written: a file in which the entry cannot stand at the end must not be spoilt.
    limits = LimitsText(str(path), changed, prefix=prefix_of(path)).limits(tables_of(path, changed)[0], day)
    _write(path, changed)
    return limits


def withdraw(path: str | Path, node: str, *, today: dt.date | None = None) -> Limits:
    """Take out of a limits file that a node may be beyond its limit, and give the limits that the file now holds.

    Every entry for the node goes; the rest of the file, comments included, stays as it is.

    Args:
        path: A limits file, or a pyproject.toml.
        node: Exact name of a backend node; of a graph input, the tensor's.
        today: As for `load_limits`.

    Raises:
        LimitsError: No entry names the node, the file is laid out in another way than one table after the other, or it
            cannot be read or written.
    """
    path = Path(path)
    text = read_text(path)
    tables, named = tables_of(path, text)
    if named is not None:
        return withdraw(named, node, today=today)
    before = LimitsText(str(path), text, prefix=prefix_of(path)).limits(tables, today or dt.date.today())
    kept = tuple(entry for entry in before.acknowledged if entry.node != node)
    if kept == before.acknowledged:
        raise LimitsError(f"{str(path)!r} acknowledges no node {node!r}.", hint="Give the exact name of a node there.")
    changed = without_entries(
        text, f"{prefix_of(path)}acknowledged", [entry.node == node for entry in before.acknowledged]
    )
    # Read before it is written, as for a new entry: whatever else the file says must still be said.
    try:
        limits = LimitsText(str(path), changed, prefix=prefix_of(path)).limits(
            tables_of(path, changed)[0], today or dt.date.today()
        )
    except LimitsError:
        limits = None
    if limits != replace(before, acknowledged=kept):
        raise LimitsError(
            f"The entry for {node!r} in {str(path)!r} cannot be told from what is around it.",
            hint="Take it out by hand.",
        )
    _write(path, changed)
    return limits


def load_notes(path: str | Path) -> dict[str, str]:
    """Read what was noted on nodes, by node; nothing if there is no such file.

    Args:
        path: A limits file, or a pyproject.toml.

    Raises:
        LimitsError: It cannot be read, or a note means nothing.
    """
    path = Path(path)
    if not path.exists():
        return {}
    text = read_text(path)
    tables, named = tables_of(path, text)
    if named is not None:
        return load_notes(named)
    return dict(LimitsText(str(path), text, prefix=prefix_of(path)).notes(tables))


def write_note(path: str | Path, node: str, text: str) -> None:
    """Write a note on a node into a limits file, in the place of the one before; the rest stays as it is.

    Args:
        path: A limits file, or a pyproject.toml; one that does not exist is made.
        node: Exact name of a backend node; of a graph input, the tensor's.
        text: What to remember; "" to take the note out.

    Raises:
        LimitsError: There is no note to take out, the file is laid out in another way than one table after the other,
            or it cannot be read or written.
    """
    path = Path(path)
    old = read_text(path) if path.exists() else _HEAD
    tables, named = tables_of(path, old)
    if named is not None:
        write_note(named, node, text)
        return
    before = LimitsText(str(path), old, prefix=prefix_of(path)).notes(tables)
    if not text.strip() and all(other != node for other, _ in before):
        raise LimitsError(f"{str(path)!r} has no note on {node!r}.", hint="Write one with the key a of qdebug tui.")
    wanted = [pair for pair in before if pair[0] != node]
    changed = without_entries(old, f"{prefix_of(path)}note", [other == node for other, _ in before])
    if text.strip():
        wanted.append((node, text.strip()))
        head = f"[[{prefix_of(path)}note]]"
        changed = _with_block(changed, f"{head}\nnode = {quoted(node)}\ntext = {quoted(text.strip())}\n")
    # Read before it is written: whatever else the file says must still be said.
    now = LimitsText(str(path), changed, prefix=prefix_of(path)).notes(tables_of(path, changed)[0])
    if list(now) != wanted or _but_notes(path, changed) != _but_notes(path, old):
        hint = "Take it out by hand."
        raise LimitsError(f"The note on {node!r} in {str(path)!r} cannot be told from what is around it.", hint=hint)
    _write(path, changed)


def _but_notes(path: Path, text: str) -> dict[str, Any]:
    return {name: table for name, table in tables_of(path, text)[0].items() if name != "note"}


def _with_block(text: str, block: str) -> str:
    """Put a table at the end of a file, after an empty line."""
    gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    return text + gap + block


def _block(entry: Acknowledgement, prefix: str) -> str:
    lines = [f"[[{prefix}acknowledged]]", f"node = {quoted(entry.node)}", f"reason = {quoted(entry.reason)}"]
    if entry.expires is not None:
        lines.append(f"expires = {entry.expires}")
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Write a TOML basic string; what could hide or reorder text is escaped.

    Raises:
        LimitsError: It has a lone surrogate, which TOML cannot hold.
    """
    if not text.isprintable() and any("\ud800" <= character <= "\udfff" for character in text):
        raise LimitsError(
            f"The name {text!r} cannot be written as TOML.", hint="Rename the tensor when it is recorded."
        )
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _write(path: Path, text: str) -> None:
    """Replace a file as a whole, through a link if it is one.

    Raises:
        LimitsError: It cannot be written.
    """
    try:
        with replacing_file(path) as partial:
            partial.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise LimitsError(f"{str(path)!r} cannot be written: {error.strerror}.") from error
