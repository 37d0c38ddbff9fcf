"""Pairs of tensors in a TOML file: what a person says goes before all that is found.

    [[pair]]
    backend = "t17"                  # a tensor of the backend's recording
    reference = "relu_3.tmp_0"       # its partner in the reference's recording
    backend_order = [0, 3, 1, 2]     # for each dimension of the partner, which of its own it is; found if left out
    reference_order = [0, 2, 3, 1]   # the same, where the reference's is the one that is turned

    [[alone]]
    backend = "t18"                  # it has no partner, and is not missed

`map_text` writes what a comparison came to in this form: what is lost or unsure first, as comments to be completed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qdebug.compare.align.pairs import Match, Pair, PairList, Side, Transform, Unmatched, UnmatchedKind
from qdebug.compare.result.result import NodeResult, RunComparison
from qdebug.errors import UsageError
from qdebug.limits.limits_file import quoted, without_entries
from qdebug.model.thresholds.alignment import PAIR_SURE_MIN_CONFIDENCE
from qdebug.recording.target import cause, replacing_file
from qdebug.regular_file import read_regular
from qdebug.toml_text import parse_toml

__all__ = ["load_map", "map_text", "write_pair"]

_MOST_BYTES = 16 << 20
_HEAD = "# Pairs of tensors, for qdebug diff --map and qdebug tui --map.\n"
_PAIR = ("backend", "reference", "backend_order", "reference_order")


def load_map(path: str | Path) -> PairList:
    """Read a file of pairs.

    Raises:
        UsageError: It cannot be read, is no TOML, or has an entry that means nothing.
    """
    path = Path(path)
    try:
        tables = parse_toml(_read(path))
    except (ValueError, RecursionError) as error:  # of tomllib, or of a number with thousands of digits
        raise UsageError(f"The map {str(path)!r} is no TOML: {error}.", hint="Correct that line.") from error
    unknown = sorted(tables.keys() - {"pair", "alone"})
    if unknown:
        raise _wrong(path, f"a table {unknown[0]!r}", "[[pair]] or [[alone]]")
    pairs = [_pair(path, table) for table in _tables(path, tables, "pair")]
    alone = [_text(path, table, "backend") for table in _tables(path, tables, "alone", allowed=("backend",))]
    named = [*(pair.backend for pair in pairs), *alone]
    twice = sorted({name for name in named if named.count(name) > 1})
    if twice:
        raise _wrong(path, f"the backend's {twice[0]!r} twice", "each tensor once")
    return PairList(pairs=tuple(pairs), alone=tuple(alone))


def _read(path: Path) -> str:
    try:
        return read_regular(path, _MOST_BYTES).decode("utf-8")
    except FileNotFoundError as error:
        raise UsageError(
            f"There is no map {str(path)!r}.", hint="Make one: qdebug diff REF BACKEND --write-map FILE."
        ) from error
    except (OSError, ValueError) as error:
        raise UsageError(
            f"The map {str(path)!r} cannot be read: {cause(error)}.", hint="Give a TOML file: --map FILE."
        ) from error


def _tables(path: Path, tables: Mapping[str, Any], key: str, allowed: Sequence[str] = _PAIR) -> list[dict[str, Any]]:
    found = tables.get(key, [])
    if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
        raise _wrong(path, f"a {key!r} that is no list of tables", f"[[{key}]]")
    for table in found:
        unknown = sorted(table.keys() - set(allowed))
        if unknown:
            raise _wrong(path, f"{unknown[0]!r} in [[{key}]]", ", ".join(allowed))
    return found


def _pair(path: Path, table: Mapping[str, Any]) -> Pair:
    orders = [_order(path, table, side) for side in Side]
    return Pair(
        reference=_text(path, table, "reference"),
        backend=_text(path, table, "backend"),
        match=Match.MANUAL,
        reason="the map says so",
        reference_view=orders[0],
        backend_view=orders[1],
    )


def _text(path: Path, table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise _wrong(path, f"an entry whose {key!r} is {value!r}", f'{key} = "NAME"')
    return value


def _order(path: Path, table: Mapping[str, Any], side: Side) -> Transform | None:
    key = f"{side}_order"
    order = table.get(key)
    if order is None:
        return None
    if not isinstance(order, list) or sorted(map(repr, order)) != sorted(map(repr, range(len(order)))):
        raise _wrong(path, f"{key} = {order!r}", "each dimension once, as in [0, 3, 1, 2]")
    return Transform(transpose=tuple(order))


def _wrong(path: Path, found: str, expected: str) -> UsageError:
    return UsageError(
        f"The map {str(path)!r} has {found}; expected {expected}.", hint="qdebug help alignment shows how."
    )


def write_pair(path: str | Path, backend: str, reference: str) -> PairList:
    """Write a pair into a map, in the place of what it said of that backend tensor; the rest stays as it is.

    Args:
        path: A map; one that does not exist is made.
        backend: The backend tensor.
        reference: Its partner; "" if it has none.

    Returns:
        What the map says now.

    Raises:
        UsageError: The map cannot be read or written, or is laid out in another way than one table after the other.
        LimitsError: A name cannot be written as TOML.
    """
    path = Path(path)
    old = _read(path) if path.exists() else _HEAD
    before = load_map(path) if path.exists() else PairList()
    for key, named in (("pair", [pair.backend for pair in before.pairs]), ("alone", before.alone)):
        old = without_entries(old, key, [name == backend for name in named])
    block = _entry(backend, reference) if reference else ["[[alone]]", f"backend = {quoted(backend)}"]
    text = "\n".join([old.rstrip("\n"), "", *block]) + "\n"
    try:
        with replacing_file(path) as partial:
            partial.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise UsageError(f"The map {str(path)!r} cannot be written: {error.strerror}.") from error
    return load_map(path)


def map_text(result: RunComparison) -> str:
    """Return the text of a map of a comparison, to be completed by hand.

    Pairs that were made by values or by hand are entries, so that they stay. What names and graphs lead to stands there
    as comments: it is found again without.

    Raises:
        LimitsError: A name cannot be written as TOML.
    """
    sure = [node for node in result.nodes if node.match not in (Match.DATA, Match.MANUAL)]
    held = [node for node in result.nodes if node.match in (Match.DATA, Match.MANUAL)]
    lost = [entry for entry in result.coverage.unmatched if entry.kind is UnmatchedKind.LOST]
    lines = [
        "# Pairs of tensors, for qdebug diff --map and qdebug tui --map. Take away '# ' to make an entry count.",
        f"# {len(result.nodes)} pairs, {len(lost)} tensors lost.",
    ]
    for entry in lost:
        lines += ["", *_lost_lines(entry)]
    for node in held:
        unsure = "" if node.confidence >= PAIR_SURE_MIN_CONFIDENCE else "UNSURE: "
        lines += ["", f"# {unsure}{_how(node)}", *_entry(node.tensor, node.reference_tensor)]
    if sure:
        lines += ["", "# Found by names and graphs, and found again without an entry:"]
    for node in sure:
        lines += ["#", f"# {_how(node)}", *(f"# {line}" for line in _entry(node.tensor, node.reference_tensor))]
    return "\n".join(lines) + "\n"


def _how(node: NodeResult) -> str:
    return _comment(f"{node.match}, confidence {node.confidence:.2f}: {node.match_reason}")


def _comment(text: str) -> str:
    """Return text that may stand in a comment: one line, nothing hidden."""
    return quoted(text.encode("utf-8", "replace").decode("utf-8"))[1:-1]


def _entry(backend: str, reference: str) -> list[str]:
    return ["[[pair]]", f"backend = {quoted(backend)}", f"reference = {quoted(reference)}"]


def _lost_lines(entry: Unmatched) -> list[str]:
    near = "" if entry.nearest is None else f"; nearest: relative distance {entry.distance:.2g}"
    sides = (entry.tensor, entry.nearest or "?") if entry.side is Side.BACKEND else (entry.nearest or "?", entry.tensor)
    said = _comment(f"LOST, of the {entry.side}: {entry.reason}{near}")
    return [f"# {said}", *(f"# {line}" for line in _entry(*sides))]
