"""Generate the reference pages of `qdebug help`, such as thresholds and keys, from the program's own tables."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import resources
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

from qdebug.errors import UsageError
from qdebug.model.names import matching_names, near_names

__all__ = ["REFERENCE", "reference_text"]


class _Entry(NamedTuple):
    """An entry of a reference page.

    Args:
        group: The heading above the entry, a line of Markdown.
        names: Names by which `qdebug help TOPIC NAME` finds the entry.
        text: The entry, as Markdown.
    """

    group: str
    names: tuple[str, ...]
    text: str


class _Reference(NamedTuple):
    """A generated page of the reference.

    Args:
        title: Title of the page.
        about: What the page lists, and how to find an entry.
        entries: Generates the entries.
    """

    title: str
    about: str
    entries: Callable[[], Iterable[_Entry]]


def reference_text(topic: str, name: str | None = None) -> str:
    """Return a page of the reference as Markdown.

    Args:
        topic: A key of `REFERENCE`.
        name: A part of a name, or a pattern, that selects entries; None for all.

    Raises:
        UsageError: No entry has a matching name.
    """
    reference = REFERENCE[topic]
    entries = list(reference.entries())
    if name is not None:
        known_names = list(dict.fromkeys(known_name for entry in entries for known_name in entry.names))
        exact_names = {known_name for known_name in known_names if known_name.casefold() == name.casefold()}
        chosen_names = exact_names or set(matching_names(name, known_names))
        entries = [entry for entry in entries if chosen_names.intersection(entry.names)]
        if not entries:
            raise UsageError(
                f"The reference {topic!r} has no entry {name!r}.{near_names(name, known_names)}",
                hint=f"List all entries: qdebug help {topic}.",
            )
    lines = [f"# {reference.title}", "", reference.about]
    for group, members in groupby(entries, lambda entry: entry.group):
        lines += ["", *([group, ""] if group else [])]
        lines += [entry.text.strip("\n") for entry in members]
    return "\n".join(lines) + "\n"


def _threshold_entries() -> Iterator[_Entry]:
    """Yield all thresholds, group by group."""
    from qdebug.model.thresholds import TABLE

    for row in TABLE:
        text = f"- `{row.name}` = {_format_number(row.value)} {row.unit} ({row.decides}). {row.why}"
        yield _Entry(f"## {row.group}", (row.name,), text)


def _format_number(value: float | tuple[int, ...]) -> str:
    """Return a number as text. Large and small powers of two are written as 2^N."""
    if isinstance(value, tuple):
        return ", ".join(map(_format_number, value))
    fraction, exponent = math.frexp(value)
    return f"2^{exponent - 1}" if fraction == 0.5 and not -6 < exponent < 14 else f"{value:g}"


def _metric_entries() -> Iterator[_Entry]:
    """Yield the definitions of all metrics, by their location in the JSON."""
    from qdebug.present.reports.definitions import metric_rows

    for where, rows in groupby(metric_rows(), lambda row: row.where):
        for row in rows:
            better = f", {row.better} is better" if row.better in ("lower", "higher") else ""
            unit = f"{row.unit}{better}".removeprefix(", ")
            text = f"- `{row.name}`{f' ({unit})' if unit else ''}: {row.definition}"
            yield _Entry(f"## {f'In `{where}` of the JSON' if where else 'In tables'}", (row.name,), text)


def _key_entries() -> Iterator[_Entry]:
    """Yield the keys of `qdebug tui` with their descriptions."""
    from qdebug.tui.keys import key_label
    from qdebug.tui.screen.bindings import all_key_rows, listed_key_rows

    shared_rows, view_rows = [("", row) for row in listed_key_rows()], [row for row in all_key_rows() if row[0]]
    for views, row in (*shared_rows, *view_rows):
        labels = tuple(key_label(key) for key in row.keys)
        keys = " ".join(f"`{label}`" for label in labels)
        where = f"## On {views}" if views else "## Everywhere"
        yield _Entry(where, (*labels, row.help), f"- {keys} {row.help}")


_HEADING = re.compile(r"^(?=#{2,3} )", re.MULTILINE)
_COMMENT = re.compile(r"^<!-- .* -->\n", re.MULTILINE)


def _kernel_entries() -> Iterator[_Entry]:
    """Yield the sections of the page of kernels. An arithmetic is found by its node kinds, operators and presets."""
    page = _COMMENT.sub("", resources.files("qdebug.guide").joinpath("kernels.md").read_text(encoding="utf-8"))
    kinds_of: dict[str, list[str]] = {}
    for kind, numbers in re.findall(r"^- (\w+): ([\d, ]+)$", page, re.MULTILINE):
        for number in numbers.split(", "):
            kinds_of.setdefault(number, []).append(kind)
    operators_of = _operators_of_kinds()
    group = ""
    for section in _HEADING.split(page)[1:]:
        title, _, body = section.partition("\n")
        if title.startswith("## "):
            group = title
        elif number := re.match(r"### (\d+)\.", title):
            kinds = kinds_of.get(number[1], [])
            operators = [operator for kind in kinds for operator in operators_of.get(kind, ())]
            yield _Entry(group, (*kinds, *operators, *re.findall(r"`([\w.+-]+)`", section)), section)
            continue
        if body.strip():
            yield _Entry(group, (title.lstrip("# "),), body if title == group else section)


def _operators_of_kinds() -> dict[str, list[str]]:
    """Return the operators of each kind of node."""
    from qdebug.model.operators.table import ROWS

    unit_of = {row.name: row.unit for row in ROWS if row.unit}
    names: dict[str, list[str]] = {}
    for row in ROWS:
        kind = row.unit or (unit_of.get(row.real.op) if row.real else None)
        if kind:
            names.setdefault(kind, []).append(row.name)
    return names


def _schema_entries() -> Iterator[_Entry]:
    """Yield the JSON documents, each with its keys."""
    folder = resources.files("qdebug.present.reports").joinpath("schemas")
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if not file.name.endswith(".schema.json"):
            continue
        name = file.name.removesuffix(".schema.json")
        schema = json.loads(file.read_text(encoding="utf-8"))
        lines = [f"## {name}", "", schema.get("description", ""), "", *_key_lines(schema, ""), ""]
        for kind, definition in schema.get("$defs", {}).items():
            rows = list(_key_lines(definition, ""))
            if rows:
                lines += [f"### {name}: {kind}", "", definition.get("description", ""), "", *rows, ""]
        yield _Entry("", (name,), "\n".join(lines) + "\n")


def _key_lines(schema: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Yield a line for each key of an object."""
    for key, value in schema.get("properties", {}).items():
        described = value.get("description", "")
        yield f"{indent}- `{key}` ({_describe_type(value)}){f': {described}' if described else ''}"


def _describe_type(schema: Mapping[str, Any]) -> str:
    """Return the type of a value in words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return repr(schema["const"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(_describe_type(option) for option in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_describe_type(schema.get('items', {}))}"
    kind = schema.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


REFERENCE: Mapping[str, _Reference] = MappingProxyType(
    {
        "kernels": _Reference(
            "Kernels",
            "Every arithmetic as a formula and as NumPy, and who uses it. `qdebug help kernels Conv` shows those of "
            "one kind of node, operator or preset.",
            _kernel_entries,
        ),
        "thresholds": _Reference(
            "Thresholds",
            "These numbers apply where you give no limit. The brackets state what a threshold can change: the status "
            "of a tensor, its pair, the cause that is named, the arithmetic that explains it, or a suggested limit. "
            "`qdebug help thresholds SQNR` shows those with a name.",
            _threshold_entries,
        ),
        "metrics": _Reference(
            "Metrics",
            "The definition of every number, by its place in the JSON. `qdebug help metrics sqnr` shows those with a "
            "name; `qdebug diff --explain-metrics` shows all as a table.",
            _metric_entries,
        ),
        "keys": _Reference(
            "Keys", "The keys of `qdebug tui`. `qdebug help keys filter` shows those for a word.", _key_entries
        ),
        "json": _Reference(
            "JSON documents",
            "The keys of every document, from its JSON Schema in `qdebug/present/reports/schemas`. Keys may be added; "
            "none is renamed or dropped. `qdebug help json diff` shows one document.",
            _schema_entries,
        ),
    }
)
"""References by topic."""
