"""The comparison as GitHub-flavoured Markdown, never larger than a job summary may be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from qdebug.compare.align.pairs import UnmatchedKind
from qdebug.compare.result.node_result import is_beyond
from qdebug.compare.result.result import NodeResult, RunComparison
from qdebug.present import sentences
from qdebug.present.reports.table import ORDER
from qdebug.present.rows import NodeRow, badness, columns, node_row
from qdebug.present.text import safe_text

__all__ = ["MARKDOWN_LIMIT", "code", "diff_markdown", "markdown_table", "markdown_text"]

MARKDOWN_LIMIT = 900 * 1024
"""Bytes. GitHub drops a job summary above 1024 KiB as a whole, so this stays well below."""

_KEYS = (*(key for key in ORDER if key not in {"cosine", "match", "why"}), "reason")
_SPECIAL = str.maketrans(
    {character: "\\" + character for character in "\\`*_{}[]<>()+!|~$&"}
    | {"@": "@<!-- -->", "#": "#<!-- -->"}  # a backslash stops no mention and no issue reference
)
_LOST_SHOWN = 500


def markdown_text(value: object, *, limit: int = 300) -> str:
    """Return text that Markdown shows literally: no markup, no mention, no table break.

    Args:
        value: Anything, such as a name from a recording.
        limit: Most characters before escaping.
    """
    text = safe_text(value, limit=limit).translate(_SPECIAL)
    return text.replace("://", ":<!-- -->//").replace("www.", "www<!-- -->.")


def code(value: object, *, limit: int = 200) -> str:
    """Return a name as a code span for a table cell, where nothing in it is markup, link or mention.

    Args:
        value: A name from a recording.
        limit: Most characters of it.
    """
    text = safe_text(value, limit=limit)
    if not text.strip():
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if text.startswith(("`", " ")) or text.endswith(("`", " ")) else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; the cells must be escaped already."""
    head = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    return [*head, *("| " + " | ".join(row) + " |" for row in rows)]


def diff_markdown(result: RunComparison, *, limit: int = MARKDOWN_LIMIT) -> str:
    """Return a comparison as Markdown.

    If it grows beyond the limit, the best nodes are left out first, and how many is said.

    Args:
        result: What to show.
        limit: Most bytes in UTF-8.
    """
    head = _lines(_head(result))
    tail = _lines(_fitted(_coverage(result), limit // 3))
    budget = limit - len(head.encode()) - len(tail.encode()) - 400  # room for the table's head and the notes
    first = next((node.index for node in result.nodes if is_beyond(node)), None)
    rows = [_row(node, first=node.index == first) for node in result.nodes]
    kept = _fitting(result.nodes, [len(row.encode()) + 1 for row in rows], budget)
    known = columns()
    lines = markdown_table([known[key].title for key in _KEYS], ())
    lines += [rows[position] for position in kept]
    if len(kept) < len(rows):
        cut = f"{len(rows) - len(kept)} of {len(rows)} nodes are cut"
        lines += ["", f"**{cut}, the best ones first, to stay under {limit} bytes.**"]
    return head + _lines(lines) + tail


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _head(result: RunComparison) -> list[str]:
    lines = [f"## qdebug: {result.status}", "", markdown_text(result.verdict.sentence, limit=1000), ""]
    for label, info in (("reference", result.reference), ("backend", result.backend)):
        lines.append(f"- **{label}**: {markdown_text(sentences.run_facts(info))}")
        lines.append(f"  - fidelity {markdown_text(sentences.fidelity_sentence(info), limit=500)}")
    lines.append(f"- **limits**: {markdown_text(sentences.limits_sentence(result.limits), limit=1000)}")
    samples = sentences.samples_sentence(result.nodes)
    if samples:
        lines.append(f"- **samples**: {markdown_text(samples)}")
    counts = sentences.status_counts([node.status for node in result.nodes])
    lines.append(f"- **nodes**: {markdown_text(counts or 'none')}")
    arithmetic = sentences.arithmetic_sentence(result.nodes)
    if arithmetic is not None:
        lines.append(f"- **arithmetic**: {markdown_text(arithmetic, limit=1000)}")
    lines += [
        f"- **compounding** {markdown_text(said, limit=500)}"
        for said in sentences.compounding_sentences(result.verdict.compounding)
    ]
    lines += [f"- **output** {markdown_text(said, limit=500)}" for said in sentences.ranking_sentences(result.outputs)]
    return [*lines, ""]


def _row(node: NodeResult, *, first: bool) -> str:
    """Return the line of a node; the first divergence is set in bold."""
    row: NodeRow = node_row(node)
    cells = {key: row.cells[key].text for key in _KEYS}
    shown = [code(text) if key in {"node", "op"} else markdown_text(text) for key, text in cells.items()]
    if first:
        shown = [f"**{text}**" if key == "status" else text for key, text in zip(_KEYS, shown, strict=True)]
    return "| " + " | ".join(shown) + " |"


def _fitted(lines: Sequence[str], budget: int) -> list[str]:
    """Cut lines that would leave no room for the nodes, and say how many."""
    used = 0
    for position, line in enumerate(lines):
        used += len(line.encode()) + 1
        if used > budget:
            return [*lines[:position], "", f"**{len(lines) - position} lines are cut; the JSON has them all.**"]
    return list(lines)


def _fitting(nodes: Sequence[NodeResult], sizes: Sequence[int], budget: int) -> list[int]:
    """Choose positions, the worst first, whose rows fit the budget; in topological order."""
    if sum(sizes) <= budget:
        return list(range(len(nodes)))
    kept, used = [], 0
    for position in sorted(range(len(nodes)), key=lambda position: badness(nodes[position])):
        if used + sizes[position] > budget:
            break
        kept.append(position)
        used += sizes[position]
    return sorted(kept)


def _coverage(result: RunComparison) -> list[str]:
    unmatched = result.coverage.unmatched
    said = sentences.acknowledged_sentences(result.nodes)
    lines = ["", "### Acknowledged", "", *(f"- {markdown_text(text, limit=500)}" for text in said)] if said else []
    found = sentences.found_sentences(result.nodes)
    if found:
        lines += ["", "### Found within the limits", "", *(f"- {markdown_text(text, limit=500)}" for text in found)]
    lines += ["", "### Coverage", "", markdown_text(sentences.coverage_sentence(result)), ""]
    lines += [
        f"- {many} {side}: {markdown_text(reason)}"
        for many, side, reason in sentences.benign_reasons(unmatched)[:_LOST_SHOWN]
    ]
    lost = [entry for entry in unmatched if entry.kind is UnmatchedKind.LOST]
    lines += [
        f"- **lost** {entry.side} {markdown_text(entry.tensor)}: {markdown_text(entry.said)}"
        for entry in lost[:_LOST_SHOWN]
    ]
    if len(lost) > _LOST_SHOWN:
        lines.append(f"- **{len(lost) - _LOST_SHOWN} more lost tensors are cut; the JSON has them all**")
    return lines
