"""A comparison on one screen: the verdict, the nodes that fail with their reasons, the outputs, what was left out."""

from __future__ import annotations

from collections.abc import Sequence

from qdebug.compare.align.pairs import UnmatchedKind
from qdebug.compare.result.node_result import breaks_limit, is_beyond, is_excused
from qdebug.compare.result.result import NodeResult, RunComparison, Status
from qdebug.model import Fidelity
from qdebug.present import numbers, sentences
from qdebug.present.reports.comparison import title
from qdebug.present.reports.document import Block, Document, Fact, FactList, Grid, Paragraph
from qdebug.present.rows import STYLES, RowChoice, columns, node_row, ranked
from qdebug.present.text import safe_text
from qdebug.running.fitted_inputs import random_inputs_said

__all__ = ["MOST_ROWS", "deciding", "key_facts", "short_document"]

MOST_ROWS = 20
"""Rows of nodes in a short report that no screen limits."""

_COLUMNS = ("index", "status", "node", "op", "sqnr_db", "arithmetic", "why")
_ALWAYS = ("index", "status", "node", "op")
_NAMES = ("node", "op")
_OUTPUTS = 3
_LOST = 3
_REASON = 300
_DERIVED = "derived"


def short_document(result: RunComparison, *, choice: RowChoice | None = None, most: int | None = MOST_ROWS) -> Document:
    """Return the report of a comparison that fits a screen.

    Args:
        result: The comparison.
        choice: Rows that were asked for; those that fail if None, or those that contribute most to an output that alone
            is beyond its limit.
        most: Most rows, where none were asked for.
    """
    if choice is None:
        positions = deciding(result)
        left = len(positions) - len(positions[:most])
        positions = positions[:most]
    else:
        positions, left = ranked(result.nodes, choice), 0
    blocks: list[Block] = [title(result), _rows(result, sorted(positions))]
    if left:
        blocks.append(Paragraph(f"{numbers.grouped(left)} more like these: --only-failing", "dim"))
    return [*blocks, key_facts(result)]


def deciding(result: RunComparison) -> list[int]:
    """Return the positions of the nodes that the verdict is about: the first divergence, then the worst first.

    These are the nodes that fail or could not be compared. Where there are none, and an output alone is beyond its
    limit, they are those that contribute most to that.

    Args:
        result: The comparison.
    """
    failing = ranked(result.nodes, RowChoice(only_failing=True))
    if failing:
        return failing
    named = [entry.tensor for entry in result.verdict.contributors[:_OUTPUTS]]
    return [at for at, node in enumerate(result.nodes) if node.tensor in named or node.node == result.origin]


def key_facts(result: RunComparison, *, rest: str = "--verbose") -> FactList:
    """Return the outputs, the coverage in a line, and what is unusual about the two runs.

    Args:
        result: The comparison.
        rest: Where the reader finds what is only counted here.
    """
    return FactList([*_outputs(result), *_coverage(result, rest), *_runs(result, rest)])


def _rows(result: RunComparison, positions: Sequence[int]) -> Grid:
    known = columns()
    first = next((node.index for node in result.nodes if is_beyond(node)), None)
    rows: list[list[str]] = []
    styles = []
    for at in positions:
        node = result.nodes[at]
        cells = node_row(node).cells
        mark = ">" if node.index == first else ""
        texts = [cells[key].text for key in _COLUMNS]
        told = node.index == first and result.first_divergence is not None  # by the verdict
        reason = "" if told else safe_text(node.reason or "", limit=_REASON)
        rows.append([f"{mark}{texts[0]}", *texts[1:], reason])
        styles.append(STYLES[node.status] if breaks_limit(node) and not is_excused(node) else "")
    kept = [at for at, key in enumerate(_COLUMNS) if key in _ALWAYS or any(row[at] != numbers.MISSING for row in rows)]
    return Grid(
        titles=[*(known[_COLUMNS[at]].title for at in kept), "reason"],
        rows=[[*(row[at] for at in kept), row[-1]] for row in rows],
        right=frozenset(place for place, at in enumerate(kept) if known[_COLUMNS[at]].numeric),
        names=frozenset(place for place, at in enumerate(kept) if _COLUMNS[at] in _NAMES),
        below={len(kept): ""},
        styles=styles,
    )


def _outputs(result: RunComparison) -> list[Fact]:
    """Return how far each network output is off, and whether its winner is the same if it holds scores."""
    by_tensor = {node.tensor: node for node in result.nodes}
    ranked = {output.tensor: sentences.ranking_clause(output) for output in result.outputs}
    facts: list[Fact] = []
    for tensor in result.network_outputs[:_OUTPUTS]:
        node = by_tensor[tensor]
        scores = f"; if these are scores: {ranked[tensor]}" if tensor in ranked else ""
        facts.append(Fact("" if facts else "outputs", f"{safe_text(tensor, limit=80)}: {_how_far(node)}{scores}"))
    more = len(result.network_outputs) - len(facts)
    return [*facts, Fact("", f"{numbers.grouped(more)} more outputs: --verbose", "dim")] if more else facts


def _how_far(node: NodeResult) -> str:
    stats = node.metrics
    if stats is None or node.status is Status.IDENTICAL:
        return str(node.status)
    parts = [f"SQNR {numbers.metric('sqnr_db', stats.sqnr_db)} dB"] if stats.sqnr_db is not None else []
    if stats.max_lsb is not None:
        parts.append(f"max {numbers.number(stats.max_lsb)} LSB")
    else:
        parts.append(f"max abs {numbers.number(stats.max_abs)}")
    return ", ".join(parts)


def _coverage(result: RunComparison, rest: str) -> list[Fact]:
    """Return in one line how much was compared, then the first of what was lost."""
    lost = [entry for entry in result.coverage.unmatched if entry.kind is UnmatchedKind.LOST]
    counts = sentences.status_counts([node.status for node in result.nodes])
    said = [f"{numbers.grouped(len(result.nodes))} tensors compared{f' ({counts})' if counts else ''}"]
    said += sentences.judged_clauses(result)
    benign = sentences.benign_count(result.coverage.unmatched)
    said += [f"{numbers.grouped(benign)} unmatched for a known reason"] if benign else []
    said.append(f"{numbers.grouped(len(lost))} LOST" if lost else "none lost")
    samples = {sample.sample for node in result.nodes for sample in node.samples}
    if samples == {0}:
        said.append("1 sample")
    elif len(samples) > 1:
        said.append(f"{numbers.grouped(len(samples))} samples")
    elif samples - {0}:
        said.append(f"sample {min(samples)} alone")
    facts = [Fact("coverage", ", ".join(said), "bold yellow" if lost else "")]
    facts += [
        Fact("", f"LOST {entry.side} {safe_text(entry.tensor, limit=80)}: {safe_text(entry.said)}", "bold yellow")
        for entry in lost[:_LOST]
    ]
    more = len(lost) - _LOST
    return [*facts, Fact("", f"{numbers.grouped(more)} more lost: {rest}", "dim")] if more > 0 else facts


def _runs(result: RunComparison, rest: str) -> list[Fact]:
    """Return what is unusual about the two runs, the limits and the remarks."""
    facts: list[Fact] = []
    sides = {"reference": result.reference, "backend": result.backend}
    clauses: dict[str, list[str]] = {}
    for side, info in sides.items():
        if info.fidelity is not Fidelity.BIT_EQUAL:
            clauses.setdefault(f"fidelity {sentences.fidelity_sentence(info)}", []).append(side)
        if not info.complete:
            clauses.setdefault("INCOMPLETE, the run did not finish", []).append(side)
        if info.borrowed_order:
            clauses.setdefault("it states no graph: order, inputs and outputs are the reference's", []).append(side)
    bad = any(info.fidelity is Fidelity.DIFFERS or not info.complete for info in sides.values())
    for clause, named in clauses.items():
        facts.append(Fact("" if facts else "runs", f"{' and '.join(named)}: {clause}", "bold yellow" if bad else ""))
    random = next(filter(None, map(random_inputs_said, sides.values())), None)
    if random is not None:
        facts.append(Fact("inputs", random, "bold yellow"))
    if result.limits.get("source") != _DERIVED or "file" in result.limits:
        facts.append(Fact("limits", sentences.limits_sentence(result.limits)))
    accepted, found = sentences.acknowledged_sentences(result.nodes), sentences.found_sentences(result.nodes)
    said = [f"{len(accepted)} acknowledged"] if accepted else []
    said += [f"{len(found)} {'remark' if len(found) == 1 else 'remarks'}"] if found else []
    return [*facts, Fact("notes", f"{', '.join(said)}: {rest}", "dim")] if said else facts
