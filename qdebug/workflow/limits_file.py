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
from dataclasses import replace
from pathlib import Path
from typing import Any

from qdebug.compare.result.limit_rules import Acknowledgement
from qdebug.compare.result.limits import Limits
from qdebug.errors import LimitsError
from qdebug.store.whole_file import whole_file
from qdebug.workflow.limits_place import find_limits, prefix_of, read_text, tables_of
from qdebug.workflow.limits_text import LimitsText, without_entries

__all__ = ["acknowledge", "find_limits", "load_limits", "load_notes", "quoted", "withdraw", "write_note"]

_HEAD = "# Limits for qdebug: qdebug help tolerance says what can stand here.\n"


def load_limits(path: str | Path, *, today: dt.date | None = None) -> Limits:
    """Read the limits of a file.

    Args:
        path: A limits file, or a pyproject.toml whose table `tool.qdebug` holds limits or names their file.
        today: The day on which acknowledgements must still hold; the real one if None.

    Raises:
        LimitsError: It cannot be read, is no TOML, or has an entry that means nothing: the message names key and line.
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
        with whole_file(path) as partial:
            partial.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise LimitsError(f"{str(path)!r} cannot be written: {error.strerror}.") from error
