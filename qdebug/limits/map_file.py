"""Pairs of tensors in a TOML file (a map). Pairs written by hand take precedence over automatic ones.

    [[pair]]
    backend = "t17"                  # a tensor of the backend's recording
    reference = "relu_3.tmp_0"       # its partner in the reference's recording
    backend_order = [0, 3, 1, 2]     # permutation of the backend's dimensions into the reference's order; optional
    reference_order = [0, 2, 3, 1]   # the same for the reference's dimensions, if its tensor is to be transposed

    [[alone]]
    backend = "t18"                  # this tensor has no partner, and does not count as lost

`map_text` writes the pairs of a comparison in this format, after the lost tensors, which are comments to be completed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qdebug.compare.align.pairs import Match, Pair, PairList, Side, Transform, Unmatched, UnmatchedKind
from qdebug.compare.result.result import NodeResult, RunComparison
from qdebug.errors import UsageError
from qdebug.limits.limits_file import toml_string, without_entries
from qdebug.model.thresholds.alignment import PAIR_SURE_MIN_CONFIDENCE
from qdebug.recording.target import describe_cause, replacing_file
from qdebug.regular_file import read_regular
from qdebug.toml_text import parse_toml

__all__ = ["load_map", "map_text", "write_pair"]

_MAX_BYTES = 16 << 20
_HEADER = "# Pairs of tensors, for qdebug diff --map and qdebug tui --map.\n"
_PAIR_KEYS = ("backend", "reference", "backend_order", "reference_order")


def load_map(path: str | Path) -> PairList:
    """Read a file of pairs.

    Raises:
        UsageError: The file cannot be read, is not valid TOML, or has an invalid entry.
    """
    path = Path(path)
    try:
        tables = parse_toml(_read_file(path))
    except (ValueError, RecursionError) as error:  # raised by tomllib, also for a number with thousands of digits
        raise UsageError(f"The map {str(path)!r} is not valid TOML: {error}.", hint="Correct that line.") from error
    unknown_tables = sorted(tables.keys() - {"pair", "alone"})
    if unknown_tables:
        raise _map_error(path, f"a table {unknown_tables[0]!r}", "[[pair]] or [[alone]]")
    pairs = [_read_pair(path, table) for table in _read_tables(path, tables, "pair")]
    unpaired_names = [
        _required_text(path, table, "backend")
        for table in _read_tables(path, tables, "alone", allowed_keys=("backend",))
    ]
    backend_names = [*(pair.backend for pair in pairs), *unpaired_names]
    repeated_names = sorted({name for name in backend_names if backend_names.count(name) > 1})
    if repeated_names:
        raise _map_error(path, f"the backend's {repeated_names[0]!r} twice", "each tensor once")
    return PairList(pairs=tuple(pairs), alone=tuple(unpaired_names))


def _read_file(path: Path) -> str:
    try:
        return read_regular(path, _MAX_BYTES).decode("utf-8")
    except FileNotFoundError as error:
        raise UsageError(
            f"There is no map {str(path)!r}.", hint="Create one: qdebug diff REF BACKEND --write-map FILE."
        ) from error
    except (OSError, ValueError) as error:
        raise UsageError(
            f"The map {str(path)!r} cannot be read: {describe_cause(error)}.", hint="Give a TOML file: --map FILE."
        ) from error


def _read_tables(
    path: Path, tables: Mapping[str, Any], key: str, allowed_keys: Sequence[str] = _PAIR_KEYS
) -> list[dict[str, Any]]:
    entries = tables.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(table, dict) for table in entries):
        raise _map_error(path, f"a {key!r} that is not a list of tables", f"[[{key}]]")
    for table in entries:
        unknown_keys = sorted(table.keys() - set(allowed_keys))
        if unknown_keys:
            raise _map_error(path, f"{unknown_keys[0]!r} in [[{key}]]", ", ".join(allowed_keys))
    return entries


def _read_pair(path: Path, table: Mapping[str, Any]) -> Pair:
    orders = [_read_order(path, table, side) for side in Side]
    return Pair(
        reference=_required_text(path, table, "reference"),
        backend=_required_text(path, table, "backend"),
        match=Match.MANUAL,
        reason="the map says so",
        reference_view=orders[0],
        backend_view=orders[1],
    )


def _required_text(path: Path, table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise _map_error(path, f"an entry whose {key!r} is {value!r}", f'{key} = "NAME"')
    return value


def _read_order(path: Path, table: Mapping[str, Any], side: Side) -> Transform | None:
    key = f"{side}_order"
    order = table.get(key)
    if order is None:
        return None
    if not isinstance(order, list) or sorted(map(repr, order)) != sorted(map(repr, range(len(order)))):
        raise _map_error(path, f"{key} = {order!r}", "each dimension once, as in [0, 3, 1, 2]")
    return Transform(transpose=tuple(order))


def _map_error(path: Path, found_text: str, expected_text: str) -> UsageError:
    return UsageError(
        f"The map {str(path)!r} has {found_text}; expected {expected_text}.", hint="qdebug help alignment shows how."
    )


def write_pair(path: str | Path, backend: str, reference: str) -> PairList:
    """Write a pair to a map, replacing earlier entries for the backend tensor. The rest of the file is not changed.

    Args:
        path: A map; created if missing.
        backend: The backend tensor.
        reference: The reference tensor that is its partner; "" if it has none.

    Returns:
        The new content of the map.

    Raises:
        UsageError: The map cannot be read or written, or the layout of its tables is unusual.
        LimitsError: A name cannot be written as TOML.
    """
    path = Path(path)
    text_before = _read_file(path) if path.exists() else _HEADER
    map_before = load_map(path) if path.exists() else PairList()
    for key, names in (("pair", [pair.backend for pair in map_before.pairs]), ("alone", map_before.alone)):
        text_before = without_entries(text_before, key, [name == backend for name in names])
    block = _pair_lines(backend, reference) if reference else ["[[alone]]", f"backend = {toml_string(backend)}"]
    text = "\n".join([text_before.rstrip("\n"), "", *block]) + "\n"
    try:
        with replacing_file(path) as temporary_file:
            temporary_file.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise UsageError(f"The map {str(path)!r} cannot be written: {error.strerror}.") from error
    return load_map(path)


def map_text(result: RunComparison) -> str:
    """Return the text of a map for a comparison, to be completed by hand.

    Pairs that were found by values or given by hand are entries, so that the next comparison uses them. Pairs that
    were found by names and graphs are comments, since the next comparison finds them again.

    Raises:
        LimitsError: A name cannot be written as TOML.
    """
    found_by_graph = [node for node in result.nodes if node.match not in (Match.DATA, Match.MANUAL)]
    listed_pairs = [node for node in result.nodes if node.match in (Match.DATA, Match.MANUAL)]
    lost_tensors = [entry for entry in result.coverage.unmatched if entry.kind is UnmatchedKind.LOST]
    lines = [
        "# Pairs of tensors, for qdebug diff --map and qdebug tui --map. Remove '# ' to activate an entry.",
        f"# {len(result.nodes)} pairs, {len(lost_tensors)} tensors lost.",
    ]
    for entry in lost_tensors:
        lines += ["", *_lost_lines(entry)]
    for node in listed_pairs:
        unsure_text = "" if node.confidence >= PAIR_SURE_MIN_CONFIDENCE else "UNSURE: "
        lines += ["", f"# {unsure_text}{_match_comment(node)}", *_pair_lines(node.tensor, node.reference_tensor)]
    if found_by_graph:
        lines += ["", "# Found by names and graphs; these pairs need no entry:"]
    for node in found_by_graph:
        lines += [
            "#",
            f"# {_match_comment(node)}",
            *(f"# {line}" for line in _pair_lines(node.tensor, node.reference_tensor)),
        ]
    return "\n".join(lines) + "\n"


def _match_comment(node: NodeResult) -> str:
    return _escape_comment(f"{node.match}, confidence {node.confidence:.2f}: {node.match_reason}")


def _escape_comment(text: str) -> str:
    """Return a text escaped for a comment, so that it stays on one line."""
    return toml_string(text.encode("utf-8", "replace").decode("utf-8"))[1:-1]


def _pair_lines(backend: str, reference: str) -> list[str]:
    return ["[[pair]]", f"backend = {toml_string(backend)}", f"reference = {toml_string(reference)}"]


def _lost_lines(entry: Unmatched) -> list[str]:
    nearest_text = "" if entry.nearest is None else f"; nearest: relative distance {entry.distance:.2g}"
    sides = (entry.tensor, entry.nearest or "?") if entry.side is Side.BACKEND else (entry.nearest or "?", entry.tensor)
    comment = _escape_comment(f"LOST ({entry.side}): {entry.reason}{nearest_text}")
    return [f"# {comment}", *(f"# {line}" for line in _pair_lines(*sides))]
