"""A probe's result as a document: the backend's arithmetic, then each kind of node, then other matching presets."""

from __future__ import annotations

from qdebug.arithmetic.fingerprints import FingerprintComparison
from qdebug.present import numbers, probed, sentences
from qdebug.present.reports.document import Document, FactList, Grid, Item, Items, Section, Title
from qdebug.present.text import safe_text
from qdebug.probe.run import ProbeResult

__all__ = ["comparison_document", "probe_document"]

_STYLE = {0: "bold green", 1: "bold red", 2: "bold yellow", 3: "bold yellow"}
_WORD = {0: "EXPLAINED", 1: "UNEXPLAINED", 2: "NOT PROBED", 3: "NO ANSWER"}


def probe_document(result: ProbeResult, *, everything: bool = False) -> Document:
    """Return the report on a probe.

    Args:
        result: The result to show.
        everything: List all presets, not only those that fit.
    """
    return [
        Title(_WORD[result.exit_code], probed.headline(result), _STYLE[result.exit_code]),
        FactList.of([("backend", sentences.run_facts(result.run))]),
        Grid(
            titles=probed.KIND_TITLES,
            rows=probed.kind_rows(result),
            right=frozenset({0, 1}),
            below={4: "", 6: "as ", 5: "closest rival "},
        ),
        Grid(
            titles=probed.PRESET_TITLES,
            rows=probed.preset_rows(result, everything=everything),
            right=frozenset({1}),
        ),
        Items.of(probed.notes(result), style="dim"),
        *_roundings(result),
    ]


def _roundings(result: ProbeResult) -> Document:
    """Return the section on float operators, or nothing if none was probed."""
    if not result.roundings:
        return []
    return [
        Section("float roundings"),
        Grid(titles=probed.ROUNDING_TITLES, rows=probed.rounding_rows(result), below={3: ""}),
    ]


def comparison_document(comparison: FingerprintComparison, *, everything: bool = False) -> Document:
    """Return the report on two fingerprints.

    Args:
        comparison: The comparison to show.
        everything: List all kinds, not only those that differ.
    """
    word, style = {0: ("SAME", _STYLE[0]), 1: ("DIFFERS", _STYLE[1])}.get(
        comparison.exit_code, ("NO ANSWER", _STYLE[3])
    )
    sides = (("first", comparison.first), ("second", comparison.second))
    items = []
    for kind, verdict, *words in probed.comparison_rows(comparison, everything=everything):
        pairs = dict.fromkeys(words) if verdict == "same" else words
        items.append(Item(kind, verdict, "bold", [text for text in pairs if text != numbers.MISSING]))
    return [
        Title(word, probed.comparison_headline(comparison), style),
        FactList.of((title, f"{safe_text(side.name)}: {safe_text(side.about)}") for title, side in sides),
        Items(items),
    ]
