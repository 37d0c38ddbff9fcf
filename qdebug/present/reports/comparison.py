"""A comparison as a document, and as Markdown that stays below the size limit of a job summary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qdebug.compare.align.pairs import Unmatched, UnmatchedKind
from qdebug.compare.result.node_result import is_beyond
from qdebug.compare.result.result import NodeResult, RunComparison
from qdebug.model import Fidelity, RunInfo
from qdebug.present import numbers, sentences
from qdebug.present.answer import headline, verdict_word
from qdebug.present.reports.document import Block, Fact, FactList, Items, Paragraph, Section, Title
from qdebug.present.reports.markdown import code, markdown_blocks, markdown_table, markdown_text
from qdebug.present.rows import STYLES, NodeRow, badness, columns, node_row
from qdebug.present.text import safe_text

__all__ = ["MARKDOWN_LIMIT", "comparison_facts", "coverage", "diff_markdown", "remarks", "title", "verdict_blocks"]

MARKDOWN_LIMIT = 900 * 1024
"""Limit in bytes. GitHub drops a job summary above 1024 KiB as a whole, so this stays well below."""

_KEYS = (
    *("index", "status", "node", "op", "sqnr_db", "arithmetic", "clipping", "constants", "introduced", "gain"),
    *("max_lsb", "rel_l2", "max_abs", "mismatches", "clipped", "quant", "reason"),
)
"""Columns of the table in Markdown."""
_MAX_LISTED = 500
"""Maximum number of lost tensors, and of reasons for benign ones, that are listed."""


def title(result: RunComparison) -> Title:
    """Return the verdict as a word and a headline."""
    return Title(verdict_word(result), headline(result), STYLES[result.status])


def verdict_blocks(result: RunComparison) -> list[Block]:
    """Return the verdict, followed by all its details in one paragraph."""
    return [title(result), Paragraph(sentences.verdict_sentence(result))]


def comparison_facts(result: RunComparison, *, ways: str = sentences.WAYS) -> FactList:
    """Return the two runs, the limits, and the findings about the run as a whole.

    Args:
        result: The comparison.
        ways: How the reader can set other limits.
    """
    facts: list[Fact] = []
    for label, info in (("reference", result.reference), ("backend", result.backend)):
        facts.append(Fact(label, sentences.run_facts(info), "" if info.complete else "yellow"))
        facts.append(Fact("", f"fidelity {sentences.fidelity_sentence(info)}", _fidelity_style(info)))
    processors = sentences.processor_sentence(result.reference, result.backend)
    if processors is not None:
        facts.append(Fact("processor", processors))
    facts.append(Fact("limits", sentences.limits_sentence(result.limits, ways=ways)))
    samples = sentences.samples_sentence(result.nodes)
    if samples:
        facts.append(Fact("samples", samples))
    facts.append(Fact("nodes", sentences.status_counts([node.status for node in result.nodes]) or "none"))
    arithmetic = sentences.arithmetic_sentence(result.nodes)
    if arithmetic is not None:
        has_unexplained = any(node.reproduced is False for node in result.nodes)
        facts.append(Fact("arithmetic", arithmetic, "yellow" if has_unexplained else ""))
    facts += _facts_under("compounding", sentences.compounding_sentences(result.verdict.compounding))
    are_winners_equal = all(output.top1_agreement == 1.0 for output in result.outputs)
    facts += _facts_under(
        "outputs", sentences.ranking_sentences(result.outputs), style="" if are_winners_equal else "yellow"
    )
    return FactList(facts)


def _facts_under(label: str, texts: Iterable[str], *, style: str = "") -> list[Fact]:
    return [Fact("" if at else label, text, style) for at, text in enumerate(texts)]


def _fidelity_style(info: RunInfo) -> str:
    return {Fidelity.DIFFERS: "bold red", Fidelity.BIT_EQUAL: "green"}.get(info.fidelity, "")


def remarks(nodes: Sequence[NodeResult]) -> Items:
    """Return remarks that do not affect the verdict: acknowledged nodes, findings within limits, and roundings."""
    rounding = sentences.rounding_sentence(nodes)
    notes = [] if rounding is None else [f"note: {rounding}"]
    return Items.of(
        [*sentences.acknowledged_sentences(nodes), *sentences.found_sentences(nodes), *notes], style="yellow"
    )


def coverage(result: RunComparison, *, everything: bool = False) -> FactList:
    """Return how many tensors were compared, and which were not.

    Args:
        result: The comparison.
        everything: Also list each tensor that was left out on purpose.
    """
    unmatched = result.coverage.unmatched
    benign = [entry for entry in unmatched if entry.kind is UnmatchedKind.BENIGN]
    lost = [entry for entry in unmatched if entry.kind is UnmatchedKind.LOST]
    facts = [Fact("coverage", sentences.coverage_sentence(result))]
    facts += [
        Fact("", f"{numbers.grouped(many)} {side}: {reason}", "dim")
        for many, side, reason in sentences.benign_reasons(unmatched)[:_MAX_LISTED]
    ]
    facts += [Fact("", f"LOST {_unmatched_text(entry)}", "bold yellow") for entry in lost[:_MAX_LISTED]]
    if len(lost) > _MAX_LISTED:
        facts.append(Fact("", f"{len(lost) - _MAX_LISTED} more lost tensors; the JSON has them all", "bold yellow"))
    return FactList([*facts, *(Fact("", f"benign {_unmatched_text(entry)}") for entry in benign if everything)])


def _unmatched_text(entry: Unmatched) -> str:
    return f"{entry.side} {safe_text(entry.tensor, limit=200)}: {safe_text(entry.full_reason)}"


def diff_markdown(result: RunComparison, *, limit: int = MARKDOWN_LIMIT) -> str:
    """Return a comparison as Markdown.

    If it exceeds the limit, the best nodes are left out first, and their number is stated.

    Args:
        result: The comparison to show.
        limit: Maximum number of bytes in UTF-8.
    """
    head = _join_lines([*markdown_blocks([*verdict_blocks(result), comparison_facts(result)]), ""])
    remark_items = remarks(result.nodes)
    heading: list[Block] = [Section("Remarks")] if remark_items.items else []
    tail_lines = markdown_blocks([*heading, remark_items, Section("Coverage"), coverage(result)])
    tail = _join_lines(_fit_lines(["", *tail_lines], limit // 3))
    budget = limit - len(head.encode()) - len(tail.encode()) - 400  # leaves space for the table's head and the notes
    first = next((node.index for node in result.nodes if is_beyond(node)), None)
    rows = [_table_line(node, first=node.index == first) for node in result.nodes]
    kept_positions = _choose_fitting_rows(result.nodes, [len(row.encode()) + 1 for row in rows], budget)
    all_columns = columns()
    lines = markdown_table([all_columns[key].title for key in _KEYS], ())
    lines += [rows[position] for position in kept_positions]
    if len(kept_positions) < len(rows):
        left_out_text = f"{len(rows) - len(kept_positions)} of {len(rows)} nodes are left out"
        lines += ["", f"**{left_out_text}, starting with the best, to stay under {limit} bytes.**"]
    return head + _join_lines(lines) + tail


def _join_lines(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _table_line(node: NodeResult, *, first: bool) -> str:
    """Return the line of a node, in bold for the first divergence."""
    row: NodeRow = node_row(node)
    cells = {key: row.cells[key].text for key in _KEYS}
    cell_texts = [code(text) if key in {"node", "op"} else markdown_text(text) for key, text in cells.items()]
    if first:
        cell_texts = [f"**{text}**" if key == "status" else text for key, text in zip(_KEYS, cell_texts, strict=True)]
    return "| " + " | ".join(cell_texts) + " |"


def _fit_lines(lines: Sequence[str], budget: int) -> list[str]:
    """Return the lines that fit the budget, followed by the number of those that do not."""
    used_bytes = 0
    for position, line in enumerate(lines):
        used_bytes += len(line.encode()) + 1
        if used_bytes > budget:
            return [*lines[:position], "", f"**{len(lines) - position} lines are left out; the JSON has them all.**"]
    return list(lines)


def _choose_fitting_rows(nodes: Sequence[NodeResult], sizes: Sequence[int], budget: int) -> list[int]:
    """Return the positions of the worst nodes whose rows fit the budget, in topological order."""
    if sum(sizes) <= budget:
        return list(range(len(nodes)))
    positions, used_bytes = [], 0
    for position in sorted(range(len(nodes)), key=lambda position: badness(nodes[position])):
        if used_bytes + sizes[position] > budget:
            break
        positions.append(position)
        used_bytes += sizes[position]
    return sorted(positions)
