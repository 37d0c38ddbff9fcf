"""A probe's result as a terminal shows it, and as Markdown: first the name, then kind by kind, then what else fits."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from qdebug.arithmetic.fingerprints import FingerprintComparison
from qdebug.present import numbers, probed, sentences
from qdebug.present.reports.markdown import markdown_table, markdown_text
from qdebug.present.reports.table import fact_table, figure_lines, indented, plain_grid
from qdebug.present.text import safe_text
from qdebug.workflow.probe import ProbeResult

__all__ = ["comparison_markdown", "comparison_report", "probe_markdown", "probe_report"]

_STYLE = {0: "bold green", 1: "bold red", 2: "bold yellow", 3: "bold yellow"}
_WORD = {0: "EXPLAINED", 1: "UNEXPLAINED", 2: "NOT PROBED", 3: "NO ANSWER"}


def probe_report(result: ProbeResult, *, everything: bool = False) -> RenderableType:
    """Make the report of a probe.

    Args:
        result: What to show.
        everything: List all presets, not only those that fit.
    """
    code = result.exit_code
    parts: list[RenderableType] = [
        Text.assemble((_WORD[code], _STYLE[code]), "  ", probed.headline(result)),
        Text(""),
        fact_table([("backend", Text(sentences.run_facts(result.run)))]),
        Text(""),
        *_kinds(result),
    ]
    presets = probed.preset_rows(result, everything=everything)
    if presets:
        parts += [Text(""), plain_grid(probed.PRESET_TITLES, presets, right=(1,))]
    notes = probed.notes(result)
    if notes:
        parts += [Text(""), *(Text(note, style="dim") for note in notes)]
    return Group(*parts)


def _kinds(result: ProbeResult) -> list[RenderableType]:
    """Show each kind in a line and, below it, how it is computed, by whom else, and what comes closest."""
    rows = probed.kind_rows(result)
    table = [(size, match, status, kind) for kind, status, _, size, match, *_ in (probed.KIND_TITLES, *rows)]
    head, *lines = figure_lines(table, right=(0, 1))
    shown: list[RenderableType] = [Text(head, style="bold")]
    for line, (_, _, by, _, _, runner, known) in zip(lines, rows, strict=True):
        shown.append(Text(line))
        for text, style in ((by, ""), (f"as {known}", "dim"), (f"closest rival {runner}", "dim")):
            if not text.endswith(numbers.MISSING):
                shown.append(indented(text, style))
    return shown


def probe_markdown(result: ProbeResult, *, everything: bool = False) -> str:
    """Return a probe's result as Markdown.

    Args:
        result: What to show.
        everything: List all presets, not only those that fit.
    """
    lines = [f"## {markdown_text(probed.headline(result), limit=500)}", ""]
    lines += [f"Backend: {markdown_text(sentences.run_facts(result.run), limit=500)}", ""]
    for titles, rows in (
        (probed.KIND_TITLES, probed.kind_rows(result)),
        (probed.PRESET_TITLES, probed.preset_rows(result, everything=everything)),
    ):
        if rows:
            lines += [*markdown_table(titles, [tuple(map(markdown_text, row)) for row in rows]), ""]
    lines += [f"- {markdown_text(note, limit=500)}" for note in probed.notes(result)]
    return "\n".join(lines) + "\n"


def comparison_report(found: FingerprintComparison, *, everything: bool = False) -> RenderableType:
    """Make the report of two fingerprints.

    Args:
        found: What to show.
        everything: List all kinds, not only those that are not the same.
    """
    word, style = {0: ("SAME", _STYLE[0]), 1: ("DIFFERS", _STYLE[1])}.get(found.exit_code, ("NO ANSWER", _STYLE[3]))
    parts: list[RenderableType] = [
        Text.assemble((word, style), "  ", probed.comparison_headline(found)),
        Text(""),
        fact_table([(title, Text(about)) for title, about in _compared(found)]),
    ]
    for kind, verdict, *words in probed.comparison_rows(found, everything=everything):
        parts += [Text(""), Text(f"{verdict}  {kind}", style="bold")]
        pairs = dict.fromkeys(words) if verdict == "same" else words
        parts += [indented(text) for text in pairs if text != numbers.MISSING]
    return Group(*parts)


def comparison_markdown(found: FingerprintComparison, *, everything: bool = False) -> str:
    """Return two fingerprints compared as Markdown.

    Args:
        found: What to show.
        everything: List all kinds, not only those that are not the same.
    """
    lines = [f"## {markdown_text(probed.comparison_headline(found), limit=500)}", ""]
    lines += [f"- {title}: {markdown_text(about, limit=500)}" for title, about in _compared(found)]
    rows = probed.comparison_rows(found, everything=everything)
    if rows:
        lines += ["", *markdown_table(probed.COMPARISON_TITLES, [tuple(map(markdown_text, row)) for row in rows])]
    return "\n".join(lines) + "\n"


def _compared(found: FingerprintComparison) -> list[tuple[str, str]]:
    sides = (("first", found.first), ("second", found.second))
    return [(title, f"{safe_text(side.name)}: {safe_text(side.about)}") for title, side in sides]
