"""Limits in a TOML file: one format for the command line, the pytest plugin and the terminal interface.

    [default]                   # for every tensor without a rule; without it limits are derived
    min_sqnr = 30

    [[limit]]                   # a rule; if several match a tensor, only the last of them applies
    tensor = "head/*"           # a pattern for the backend's tensor (*, ?, [seq])
    node = "*"                  # a pattern for its node
    op = "Softmax"              # a pattern for the operator; all given patterns must match
    max_lsb = 2                 # min_sqnr, max_lsb, atol, rtol, max_saturation (a share: 0.01)

    [[logits]]                  # this output of the network holds logits; if several match, the last one applies
    tensor = "lm_head*"         # a pattern for the backend's output
    max_kl = 0.01               # max_kl, max_logprob_rms, min_top1_agreement, min_top5_overlap; all optional

    [[acknowledged]]            # this node may exceed its limit; if several name a node, the last one applies
    node = "conv3"              # the exact name of the backend's node
    reason = "rounds half up"
    expires = 2027-01-31        # the last day on which it applies; optional

    [[note]]                    # a remark on a node, without effect on the verdict
    node = "conv3"
    text = "ask the vendor"

    [allow]                     # what may be missing, as on the command line
    partial = false
    unfaithful = false
    uncompared = ["aux/*"]      # name patterns, or a number

In a pyproject.toml, the same tables are under `tool.qdebug`: `[tool.qdebug.default]`, `[[tool.qdebug.limit]]`. A key
`limits = "FILE"` in `[tool.qdebug]` names a file that has the tables instead.
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

from qdebug.compare.result.limits import (
    ALL_BOUNDS,
    BOUNDS,
    DECIBELS,
    LOGITS_BOUNDS,
    SHARES,
    Acknowledgement,
    LimitRule,
    Limits,
    LogitsRule,
)
from qdebug.errors import LimitsError
from qdebug.limits.place import find_limits, prefix_of, read_text, tables_of
from qdebug.recording.target import replacing_file
from qdebug.toml_text import line_of

__all__ = [
    "LimitsText",
    "acknowledge",
    "find_limits",
    "load_limits",
    "load_notes",
    "toml_string",
    "withdraw",
    "without_entries",
    "write_note",
]

_TABLES = ("default", "limit", "logits", "acknowledged", "allow", "note")
_PATTERNS = ("tensor", "node", "op")
_RULE_KEYS = (*_PATTERNS, *BOUNDS)
_ACKNOWLEDGED_KEYS = ("node", "reason", "expires")
_NOTE_KEYS = ("node", "text")
_ALLOW_KEYS = ("partial", "unfaithful", "different_inputs", "uncompared")


class LimitsText:
    """Reader of the tables of a limits file, with errors that name the line.

    Args:
        file: Name of the file, as the user wrote it.
        text: Content of the file, in which errors look up the line.
        prefix: Prefix of the name of every table: "" or "tool.qdebug.".
    """

    def __init__(self, file: str, text: str, *, prefix: str = "") -> None:
        self._file, self._content, self._prefix = file, text, prefix

    def limits(self, tables: Mapping[str, Any], today: dt.date) -> Limits:
        """Return the limits.

        Args:
            tables: The tables of the parsed text.
            today: The day used to decide whether acknowledgements have expired.

        Raises:
            LimitsError: A key or a value is invalid.
        """
        self._check_keys(tables, _TABLES, "")
        default = self._read_table(tables, "default")
        self._check_keys(default, ALL_BOUNDS, "default")
        rules = tuple(self._read_rule(entry, position) for entry, position in self._read_array(tables, "limit"))
        logits = tuple(
            self._read_logits_rule(entry, position) for entry, position in self._read_array(tables, "logits")
        )
        acknowledged = [
            self._read_acknowledgement(entry, position, today)
            for entry, position in self._read_array(tables, "acknowledged")
        ]
        self.notes(tables)
        allow = self._read_table(tables, "allow")
        self._check_keys(allow, _ALLOW_KEYS, "allow")
        return Limits(
            **self._read_bounds(default, "default", ALL_BOUNDS),
            rules=rules,
            logits=logits,
            acknowledged=tuple(acknowledged),
            file=self._file,
            allow_partial=self._read_flag(allow, "partial"),
            allow_unfaithful=self._read_flag(allow, "unfaithful"),
            allow_different_inputs=self._read_flag(allow, "different_inputs"),
            allow_uncompared=self._read_allowed_uncompared(allow.get("uncompared", ())),
        )

    def notes(self, tables: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        """Return nodes and their notes, in order.

        Raises:
            LimitsError: A key or a value is invalid.
        """
        pairs = []
        for entry, position in self._read_array(tables, "note"):
            self._check_keys(entry, _NOTE_KEYS, position)
            pairs.append((self._read_string(entry, "node", position), self._read_string(entry, "text", position)))
        return tuple(pairs)

    def _read_table(self, tables: Mapping[str, Any], name: str) -> dict[str, Any]:
        table = tables.get(name, {})
        if not isinstance(table, dict):
            raise self._entry_error(name, "", "is not a table", f"Write [{self._prefix}{name}].")
        return table

    def _read_array(self, tables: Mapping[str, Any], name: str) -> Iterable[tuple[dict[str, Any], str]]:
        """Return the tables of an array, each with its position, such as "limit[2]" for the second."""
        entries = tables.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self._entry_error(name, "", "is not an array of tables", f"Write [[{self._prefix}{name}]].")
        return [(entry, f"{name}[{position}]") for position, entry in enumerate(entries, 1)]

    def _read_rule(self, entry: dict[str, Any], position: str) -> LimitRule:
        self._check_keys(entry, _RULE_KEYS, position)
        bounds = self._read_bounds(entry, position)
        if not bounds:
            raise self._entry_error(position, "", "sets no limit", f"Give one of: {', '.join(BOUNDS)}.")
        patterns = {name: self._read_string(entry, name, position) for name in _PATTERNS if name in entry}
        if not patterns:
            hint = f"Give tensor, node or op, or write [{self._prefix}default]."
            raise self._entry_error(position, "", "does not say which tensors it applies to", hint)
        return LimitRule(**patterns, **bounds)  # type: ignore[arg-type]  # keys are checked above

    def _read_logits_rule(self, entry: dict[str, Any], position: str) -> LogitsRule:
        self._check_keys(entry, ("tensor", *LOGITS_BOUNDS), position)
        return LogitsRule(
            tensor=self._read_string(entry, "tensor", position), **self._read_bounds(entry, position, LOGITS_BOUNDS)
        )

    def _read_acknowledgement(self, entry: dict[str, Any], position: str, today: dt.date) -> Acknowledgement:
        self._check_keys(entry, _ACKNOWLEDGED_KEYS, position)
        node, reason = self._read_string(entry, "node", position), self._read_string(entry, "reason", position).strip()
        if not reason:
            raise self._entry_error(position, "reason", "is empty", "Give the reason why the difference is acceptable.")
        expires = entry.get("expires")
        if expires is not None and type(expires) is not dt.date:
            raise self._entry_error(
                position, "expires", "is not a date", "Write it without quotes: expires = 2027-01-31."
            )
        return Acknowledgement(
            node=node,
            reason=reason,
            expires=None if expires is None else expires.isoformat(),
            expired=expires is not None and expires < today,
        )

    def _read_bounds(self, entry: Mapping[str, Any], position: str, names: Sequence[str] = BOUNDS) -> dict[str, Any]:
        bounds: dict[str, Any] = {}
        for name in names:
            if name not in entry:
                continue
            value = entry[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
                raise self._entry_error(position, name, f"must be a number, but is {value!r}", f"Write {name} = 1.")
            if name not in DECIBELS and value < 0:
                raise self._entry_error(position, name, f"must be at least 0, but is {value!r}", f"Write {name} = 1.")
            if name in SHARES and value > 1:
                raise self._entry_error(
                    position, name, f"must be a fraction from 0 to 1, but is {value!r}", "Write 0.01 for 1 %."
                )
            bounds[name] = float(value)
        return bounds

    def _read_string(self, entry: Mapping[str, Any], name: str, position: str) -> str:
        value = entry.get(name)
        if not isinstance(value, str) or not value:
            problem = "is missing" if value is None else f"must be a string, but is {value!r}"
            raise self._entry_error(position, name, problem, f'Write {name} = "...".')
        return value

    def _read_flag(self, allow: Mapping[str, Any], name: str) -> bool:
        value = allow.get(name, False)
        if not isinstance(value, bool):
            raise self._entry_error("allow", name, f"must be true or false, but is {value!r}", f"Write {name} = true.")
        return value

    def _read_allowed_uncompared(self, value: Any) -> int | tuple[str, ...]:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        if isinstance(value, list | tuple) and all(isinstance(entry, str) for entry in value):
            return tuple(value)
        hint = 'Write uncompared = 3, or uncompared = ["aux/*"].'
        raise self._entry_error("allow", "uncompared", "must be a number or a list of name patterns", hint)

    def _check_keys(self, entry: Mapping[str, Any], names: Iterable[str], position: str) -> None:
        names = tuple(names)
        for key in entry:
            if key not in names:
                similar_names = get_close_matches(key, names, n=1)
                suggestion = f"Did you mean {similar_names[0]}? " if similar_names else ""
                raise self._entry_error(position, key, "means nothing", f"{suggestion}Give one of: {', '.join(names)}.")

    def _entry_error(self, position: str, key: str, problem: str, hint: str) -> LimitsError:
        line = line_of(self._content, position, key, prefix=self._prefix)
        location = f"{self._file!r}" if line is None else f"{self._file!r}, line {line}"
        path = ".".join(part for part in (position, key) if part)
        return LimitsError(f"{location}: {self._prefix}{path} {problem}.", hint=hint)


def without_entries(text: str, name: str, is_removed: Sequence[bool]) -> str:
    """Return a file's text without some tables of an array. Comments before the next table are kept.

    Args:
        text: The content of the file, one table after another.
        name: Full name of the array, such as "tool.qdebug.acknowledged".
        is_removed: For each table of the array in order, whether to remove it.
    """
    lines = text.splitlines(keepends=True)
    header = re.compile(rf"\s*\[\[\s*{re.escape(name)}\s*\]\]")
    starts = [line_number for line_number, line in enumerate(lines) if header.match(line)]
    # Remove the last table first, so that the line numbers of earlier tables stay valid.
    for start, is_entry_removed in reversed(list(zip(starts, is_removed, strict=False))):
        if not is_entry_removed:
            continue
        end = next(
            (
                line_number
                for line_number in range(start + 1, len(lines))
                if lines[line_number].lstrip().startswith("[")
            ),
            len(lines),
        )
        while end > start + 1 and lines[end - 1].lstrip().startswith("#"):
            end -= 1  # comments belong to the next table
        del lines[start:end]
    return "".join(lines)


_NEW_FILE_HEADER = "# Limits for qdebug; see qdebug help tolerance for the format.\n"


def load_limits(path: str | Path, *, today: dt.date | None = None) -> Limits:
    r"""Read the limits in a file.

    Args:
        path: A limits file, or a pyproject.toml whose table `tool.qdebug` holds limits or names their file.
        today: The day used to decide whether acknowledgements have expired; None for the current date.

    Raises:
        LimitsError: The file cannot be read, is not valid TOML, or has an invalid entry; the message names key and
            line.

    Examples:
        >>> _ = pathlib.Path("limits.toml").write_text("[default]\nmin_sqnr = 3")
        >>> qdebug.diff("float.h5", "int8.h5", limits=qdebug.load_limits("limits.toml")).status
        <Status.WITHIN: 'within'>
    """
    path = Path(path)
    text = read_text(path)
    tables, limits_file = tables_of(path, text)
    if limits_file is not None:
        return load_limits(limits_file, today=today)
    return LimitsText(str(path), text, prefix=prefix_of(path)).limits(tables, today or dt.date.today())


def acknowledge(
    path: str | Path,
    node: str,
    *,
    reason: str,
    expires: dt.date | None = None,
    today: dt.date | None = None,
) -> Limits:
    """Acknowledge in a limits file that a node exceeds its limit. Return the file's new limits.

    The entry is added at the end. The rest of the file is not changed, including comments. A missing file is created.
    `DiffSession.acknowledge(limits.acknowledged)` updates an open comparison.

    Args:
        path: A limits file, or a pyproject.toml.
        node: Exact name of a backend node; for a graph input, the name of the tensor.
        reason: Why the error is acceptable, for a reader when the entry expires.
        expires: The last day on which the entry applies; None for no end.
        today: The day used to decide whether acknowledgements have expired; None for the current date.

    Raises:
        LimitsError: The reason is empty, the day is in the past, or the file cannot be read or written.
    """
    path = Path(path)
    day = today or dt.date.today()
    entry = Acknowledgement(node=node, reason=reason.strip(), expires=None if expires is None else expires.isoformat())
    if not entry.reason:
        raise LimitsError(f"Accepting {node!r} needs a reason.", hint="Give a reason for later readers.")
    if expires is not None and expires < day:
        raise LimitsError(
            f"{node!r} cannot be accepted until {expires}, because that day has passed.", hint="Give a later date."
        )
    text = read_text(path) if path.exists() else _NEW_FILE_HEADER
    _, limits_file = tables_of(path, text)
    if limits_file is not None:
        return acknowledge(limits_file, node, reason=reason, expires=expires, today=today)
    new_text = _append_block(text, _acknowledgement_block(entry, prefix_of(path)))
    # Parse the new text before writing it: in some files, a table at the end is not valid TOML.
    limits = LimitsText(str(path), new_text, prefix=prefix_of(path)).limits(tables_of(path, new_text)[0], day)
    _replace_file(path, new_text)
    return limits


def withdraw(path: str | Path, node: str, *, today: dt.date | None = None) -> Limits:
    """Remove the acknowledgements of a node from a limits file. Return the file's new limits.

    The rest of the file is not changed, including comments.

    Args:
        path: A limits file, or a pyproject.toml.
        node: Exact name of a backend node; for a graph input, the name of the tensor.
        today: The day used to decide whether acknowledgements have expired; None for the current date.

    Raises:
        LimitsError: No entry names the node, the layout of the tables in the file is unusual, or the file cannot be
            read or written.
    """
    path = Path(path)
    text = read_text(path)
    tables, limits_file = tables_of(path, text)
    if limits_file is not None:
        return withdraw(limits_file, node, today=today)
    limits_before = LimitsText(str(path), text, prefix=prefix_of(path)).limits(tables, today or dt.date.today())
    remaining_entries = tuple(entry for entry in limits_before.acknowledged if entry.node != node)
    if remaining_entries == limits_before.acknowledged:
        raise LimitsError(
            f"{str(path)!r} does not acknowledge node {node!r}.", hint="Give the exact name of an acknowledged node."
        )
    new_text = without_entries(
        text, f"{prefix_of(path)}acknowledged", [entry.node == node for entry in limits_before.acknowledged]
    )
    # Parse the new text before writing it, to check that everything else is unchanged.
    try:
        limits = LimitsText(str(path), new_text, prefix=prefix_of(path)).limits(
            tables_of(path, new_text)[0], today or dt.date.today()
        )
    except LimitsError:
        limits = None
    if limits != replace(limits_before, acknowledged=remaining_entries):
        raise LimitsError(
            f"The entry for {node!r} in {str(path)!r} cannot be separated from the text around it.",
            hint="Remove it by hand.",
        )
    _replace_file(path, new_text)
    return limits


def load_notes(path: str | Path) -> dict[str, str]:
    """Read the notes on nodes, by node; empty if the file does not exist.

    Args:
        path: A limits file, or a pyproject.toml.

    Raises:
        LimitsError: The file cannot be read, or a note is invalid.
    """
    path = Path(path)
    if not path.exists():
        return {}
    text = read_text(path)
    tables, limits_file = tables_of(path, text)
    if limits_file is not None:
        return load_notes(limits_file)
    return dict(LimitsText(str(path), text, prefix=prefix_of(path)).notes(tables))


def write_note(path: str | Path, node: str, text: str) -> None:
    """Write a note on a node to a limits file, replacing an earlier note. The rest of the file is not changed.

    Args:
        path: A limits file, or a pyproject.toml; created if missing.
        node: Exact name of a backend node; for a graph input, the name of the tensor.
        text: The note; "" to remove it.

    Raises:
        LimitsError: There is no note to remove, the layout of the tables in the file is unusual, or the file cannot be
            read or written.
    """
    path = Path(path)
    text_before = read_text(path) if path.exists() else _NEW_FILE_HEADER
    tables, limits_file = tables_of(path, text_before)
    if limits_file is not None:
        write_note(limits_file, node, text)
        return
    notes_before = LimitsText(str(path), text_before, prefix=prefix_of(path)).notes(tables)
    if not text.strip() and all(noted_node != node for noted_node, _ in notes_before):
        raise LimitsError(f"{str(path)!r} has no note on {node!r}.", hint="Write one with the key a in qdebug tui.")
    expected_notes = [pair for pair in notes_before if pair[0] != node]
    new_text = without_entries(
        text_before, f"{prefix_of(path)}note", [noted_node == node for noted_node, _ in notes_before]
    )
    if text.strip():
        expected_notes.append((node, text.strip()))
        header = f"[[{prefix_of(path)}note]]"
        new_text = _append_block(
            new_text, f"{header}\nnode = {toml_string(node)}\ntext = {toml_string(text.strip())}\n"
        )
    # Parse the new text before writing it, to check that everything else is unchanged.
    notes_after = LimitsText(str(path), new_text, prefix=prefix_of(path)).notes(tables_of(path, new_text)[0])
    if list(notes_after) != expected_notes or _without_notes(path, new_text) != _without_notes(path, text_before):
        hint = "Remove it by hand."
        raise LimitsError(
            f"The note on {node!r} in {str(path)!r} cannot be separated from the text around it.", hint=hint
        )
    _replace_file(path, new_text)


def _without_notes(path: Path, text: str) -> dict[str, Any]:
    return {name: table for name, table in tables_of(path, text)[0].items() if name != "note"}


def _append_block(text: str, block: str) -> str:
    """Add a table at the end of a file, after a blank line."""
    gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    return text + gap + block


def _acknowledgement_block(entry: Acknowledgement, prefix: str) -> str:
    lines = [f"[[{prefix}acknowledged]]", f"node = {toml_string(entry.node)}", f"reason = {toml_string(entry.reason)}"]
    if entry.expires is not None:
        lines.append(f"expires = {entry.expires}")
    return "\n".join(lines) + "\n"


def toml_string(text: str) -> str:
    """Return a TOML basic string. Characters that could hide or reorder text are escaped.

    Raises:
        LimitsError: The text contains a lone surrogate, which TOML does not allow.
    """
    if not text.isprintable() and any("\ud800" <= character <= "\udfff" for character in text):
        raise LimitsError(
            f"The name {text!r} cannot be written as TOML.", hint="Rename the tensor when it is recorded."
        )
    return '"' + "".join(map(_escape_character, text)) + '"'


def _escape_character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _replace_file(path: Path, text: str) -> None:
    """Replace a file atomically. If it is a link, replace its target.

    Raises:
        LimitsError: The file cannot be written.
    """
    try:
        with replacing_file(path) as temporary_file:
            temporary_file.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise LimitsError(f"{str(path)!r} cannot be written: {error.strerror}.") from error
