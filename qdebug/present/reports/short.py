"""The report of a comparison that fits one screen: headline, outputs, faults with reasons, remedies, coverage."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qdebug.compare.align.pairs import UnmatchedKind
from qdebug.compare.result.diagnosis import Diagnosis
from qdebug.compare.result.node_result import breaks_limit, is_beyond, is_excused
from qdebug.compare.result.result import NodeResult, RunComparison, Status
from qdebug.model import Fidelity
from qdebug.plural import plural
from qdebug.present import numbers, sentences
from qdebug.present.answer import (
    BAR,
    advice_line,
    left_in_float,
    level_change,
    node_title,
    ordered_outputs,
    remedy_line,
    ruled_out_line,
    share_bar,
    share_of,
    share_text,
)
from qdebug.present.reports.comparison import title
from qdebug.present.reports.document import Block, Document, Fact, FactList, Grid, Paragraph
from qdebug.present.rows import STYLES, RowChoice, columns, node_row, rank_rows
from qdebug.present.text import safe_text, shorten
from qdebug.running.fitted_inputs import random_inputs_note

__all__ = [
    "MOST_ROWS",
    "answer",
    "answer_blocks",
    "deciding_positions",
    "fault_table",
    "key_facts",
    "outputs_line",
    "short_document",
]

MOST_ROWS = 20
"""Maximum number of node rows in a short report that is not limited by a screen."""

_COLUMNS = ("index", "status", "node", "op", "sqnr_db", "arithmetic", "why")
_ALWAYS_SHOWN = ("index", "status", "node", "op")
_NAME_COLUMNS = ("node", "op")
_OUTPUTS_SHOWN = 3
_LOST_SHOWN = 3
_REASON_LIMIT = 500
_NAME_LIMIT = 1000
_DERIVED = "derived"
_REMEDIES_SHOWN = 3
"""Maximum number of remedies shown."""
_MIN_REMAINING_SHARE = 0.05
"""Minimum unexplained share of an output's error that gets a row."""
_MIN_SHARE_DIFFERENCE = 0.2
"""Minimum difference between the sum of shares and the combined share that gets a row.

The two differ if errors amplify or cancel each other.
"""


def short_document(
    result: RunComparison,
    *,
    choice: RowChoice | None = None,
    max_rows: int | None = MOST_ROWS,
    max_reasons: int = 3,
    remarks: int = 3,
    terse: bool = False,
) -> Document:
    """Return the report on a comparison that fits one screen.

    Args:
        result: The comparison.
        choice: The rows that the user asked for, or None for the diagnosis.
        max_rows: Maximum number of faults or rows, unless rows were requested.
        max_reasons: Maximum number of faults that are shown with a reason.
        remarks: Maximum number of remarks that are shown. The others are counted.
        terse: Whether ruled-out faults and coverage take one line each.
    """
    if choice is not None:
        return [title(result), _rows_grid(result, sorted(rank_rows(result.nodes, choice))), key_facts(result)]
    if result.diagnosis:
        return [
            title(result),
            *answer_blocks(result, max_faults=max_rows, max_reasons=max_reasons, remarks=remarks, terse=terse),
        ]
    positions = deciding_positions(result)
    hidden_rows = len(positions) - len(positions[:max_rows])
    blocks: list[Block] = [title(result), _rows_grid(result, sorted(positions[:max_rows]))]
    if hidden_rows:
        blocks.append(Paragraph(f"{numbers.grouped(hidden_rows)} more like these: --only-failing", "dim"))
    return [*blocks, key_facts(result)]


def answer_blocks(
    result: RunComparison,
    *,
    max_faults: int | None,
    max_reasons: int | None,
    remarks: int = 3,
    rest: str = "--verbose",
    terse: bool = False,
) -> list[Block]:
    """Return the blocks below the headline: outputs, faults with shares and reasons, remedies, ruled-out faults.

    Args:
        result: The comparison, with a diagnosis.
        max_faults: Maximum number of faults.
        max_reasons: Maximum number of faults that are shown with a reason.
        remarks: Maximum number of remarks that are shown. The others are counted.
        rest: Where the reader finds the items that are only counted here.
        terse: Whether ruled-out faults and coverage take one line each.
    """
    faults = result.diagnosis[:max_faults]
    hidden_faults = len(result.diagnosis) - len(faults)
    same_fault = sum(len(fault.nodes) - 1 for fault in faults)
    hidden = hidden_faults if result.status is Status.ACCUMULATED else 0
    hint = f"{plural(hidden_faults, 'more fault')}: --only-failing" if hidden_faults and not hidden else ""
    if same_fault and not hidden_faults:
        hint = f"{plural(same_fault, 'more node')} with the same faults: --only-failing"
    hint_blocks: list[Block] = [Paragraph(hint, "dim")] if hint else []
    table = fault_table(result, faults, max_reasons=len(faults) if max_reasons is None else max_reasons)
    hidden_remarks = len(result.verdict.remarks) if not remarks else 0
    facts = [*_remark_facts(result, rest, remarks), *_coverage_facts(result, rest, terse=terse)]
    notes = _notes_on_runs(result, rest, hidden_remarks, hidden)
    return [
        FactList(_output_facts(result, terse=terse)),
        table,
        *hint_blocks,
        answer(result, terse=terse),
        FactList([*facts, *notes]),
    ]


def fault_table(result: RunComparison, faults: Sequence[Diagnosis], *, max_reasons: int) -> Grid:
    """Return the faults as a table: share of the output's error, node, SQNR before and after it, and the reason.

    Args:
        result: The comparison.
        faults: The faults to show.
        max_reasons: Maximum number of faults that are shown with a reason.
    """
    index_of = {node.tensor: node.index for node in result.nodes}
    shares = [share_of(fault) for fault in faults]
    rows = []
    for row, (fault, share) in enumerate(zip(faults, shares, strict=True)):
        count_text = f" +{len(fault.nodes) - 1}" if len(fault.nodes) > 1 else ""
        name = f"{node_title(fault, limit=_NAME_LIMIT)}{count_text}"
        number = str(index_of.get(fault.tensor, ""))
        figures = [
            share_text(share),
            share_bar(share),
            number,
            name,
            safe_text(fault.op, limit=_NAME_LIMIT),
            level_change(fault),
        ]
        rows.append([*figures, safe_text(fault.why, limit=_REASON_LIMIT) if row < max_reasons else ""])
    output = next((name for fault in faults for name, share in fault.share.items() if share is not None), None)
    remaining_share = None if output is None else _remaining_share(result)
    if remaining_share is not None and faults == result.diagnosis[: len(faults)]:
        rows.append([share_text(remaining_share[0]), "", "", "", "", "", remaining_share[1]])
    if output is None:
        titles, rows = ["#", "node", "op", "SQNR dB in -> out", "why"], [row[2:] for row in rows]
        return Grid(titles=titles, rows=rows, right=frozenset({0}), names=frozenset({1, 2}), below={4: ""})
    share_title = f"of {shorten(safe_text(output), BAR - 3)}"
    titles = ["share", share_title, "#", "node", "op", "SQNR dB in -> out", "why"]
    return Grid(titles=titles, rows=rows, right=frozenset({0, 2}), names=frozenset({3, 4}), below={6: ""})


def _remaining_share(result: RunComparison) -> tuple[float, str] | None:
    """Return the share of the error that the named nodes do not explain, or else their combined share, with a label."""
    in_float = left_in_float(result)
    if in_float is not None:
        return in_float[0], in_float[2]
    together = result.verdict.together
    if together is None or together.left is None:
        return None
    if not together.left >= _MIN_REMAINING_SHARE:
        sum_of_shares = sum(share for fault in result.diagnosis for share in fault.share.values() if share is not None)
        is_apart = abs(sum_of_shares - (1 - together.left)) >= _MIN_SHARE_DIFFERENCE
        return (1 - together.left, f"the first {len(together.nodes)} together") if is_apart else None
    later_count = len(result.verdict.contributors) - len(together.nodes)
    named_nodes = {node for fault in result.diagnosis for node in fault.nodes}
    if named_nodes.issuperset(entry.node for entry in result.verdict.contributors if entry.share):
        return None  # errors that amplify each other cause the rest, not other nodes
    if later_count:
        return together.left, f"from nodes after the first {len(together.nodes)}"
    return together.left, "not attributed"


def answer(result: RunComparison, *, terse: bool = False) -> FactList:
    """Return the remedies and the ruled-out faults.

    Args:
        result: The comparison.
        terse: Whether to show only the first ruled-out fault and the first output.
    """
    has_several = len(result.diagnosis) > 1
    remedies = [(fault, remedy) for fault in result.diagnosis for remedy in fault.remedies][:_REMEDIES_SHOWN]
    facts = [
        Fact(
            "" if at else "TRY",
            (f"{node_title(fault)}: " if has_several and remedy.nodes == 1 else "")
            + remedy_line(remedy, result, max_outputs=1 if terse else _OUTPUTS_SHOWN),
        )
        for at, (fault, remedy) in enumerate(remedies)
    ]
    advice = advice_line(result)
    facts += [Fact("TRY", advice)] if advice else []
    ruled_out = ruled_out_line(result, max_entries=1 if terse else None)
    return FactList([*facts, *([Fact("OK", ruled_out)] if ruled_out else [])])


def _remark_facts(result: RunComparison, rest: str, limit: int = 3) -> list[Fact]:
    rounding = sentences.rounding_sentence(result.nodes)
    remarks = [*result.verdict.remarks, *([] if rounding is None else [rounding])]
    texts = [safe_text(remark, limit=_REASON_LIMIT) for remark in remarks]
    facts = [Fact("" if at else "also", text) for at, text in enumerate(texts[:limit])]
    hidden_count = len(texts) - len(facts)
    return (
        [*facts, Fact("", f"{plural(hidden_count, 'more remark')}: {rest}", "dim")]
        if facts and hidden_count > 0
        else facts
    )


def deciding_positions(result: RunComparison) -> list[int]:
    """Return the positions of the nodes that decide the verdict: the first divergence, then worst first.

    These are the nodes that fail or could not be compared. If there are none and only an output exceeds its limit, they
    are the nodes that contribute most to its error.

    Args:
        result: The comparison.
    """
    failing = rank_rows(result.nodes, RowChoice(only_failing=True))
    if failing:
        return failing
    contributor_tensors = [entry.tensor for entry in result.verdict.contributors[:_OUTPUTS_SHOWN]]
    return [
        at for at, node in enumerate(result.nodes) if node.tensor in contributor_tensors or node.node == result.origin
    ]


def key_facts(result: RunComparison, *, rest: str = "--verbose") -> FactList:
    """Return the outputs, one line on coverage, and notes on the two runs.

    Args:
        result: The comparison.
        rest: Where the reader finds the items that are only counted here.
    """
    return FactList(
        [
            *_output_facts(result),
            *_remark_facts(result, rest),
            *_coverage_facts(result, rest),
            *_notes_on_runs(result, rest),
        ]
    )


def _rows_grid(result: RunComparison, positions: Sequence[int]) -> Grid:
    all_columns = columns()
    first = next((node.index for node in result.nodes if is_beyond(node)), None)
    rows: list[list[str]] = []
    styles = []
    for at in positions:
        node = result.nodes[at]
        cells = node_row(node).cells
        mark = ">" if node.index == first else ""
        texts = [cells[key].text for key in _COLUMNS]
        # The verdict already states the reason of the first divergence.
        is_in_verdict = node.index == first and result.first_divergence is not None
        reason = "" if is_in_verdict else safe_text(node.reason or "", limit=_REASON_LIMIT)
        rows.append([f"{mark}{texts[0]}", *texts[1:], reason])
        styles.append(STYLES[node.status] if breaks_limit(node) and not is_excused(node) else "")
    shown_columns = [
        at for at, key in enumerate(_COLUMNS) if key in _ALWAYS_SHOWN or any(row[at] != numbers.MISSING for row in rows)
    ]
    return Grid(
        titles=[*(all_columns[_COLUMNS[at]].title for at in shown_columns), "reason"],
        rows=[[*(row[at] for at in shown_columns), row[-1]] for row in rows],
        right=frozenset(column for column, at in enumerate(shown_columns) if all_columns[_COLUMNS[at]].numeric),
        names=frozenset(column for column, at in enumerate(shown_columns) if _COLUMNS[at] in _NAME_COLUMNS),
        below={len(shown_columns): ""},
        styles=styles,
    )


def _output_facts(result: RunComparison, *, terse: bool = False) -> list[Fact]:
    """Return the error of each network output and, for scores, whether the winner is the same.

    Args:
        result: The comparison.
        terse: Whether all outputs share one line.
    """
    by_tensor = {node.tensor: node for node in result.nodes}
    winners = {output.tensor: sentences.winners_clause(output) for output in result.outputs}
    shown_outputs = ordered_outputs(result)[:_OUTPUTS_SHOWN]
    hidden_count = len(result.network_outputs) - len(shown_outputs)
    rest_text = f"{numbers.grouped(hidden_count)} more outputs: --verbose"
    if terse:
        clauses = [
            f"{safe_text(tensor, limit=80)} {_error_text(by_tensor[tensor], brief=True)}" for tensor in shown_outputs
        ]
        clauses += [
            f"{winners[tensor]} (if scores)"
            for tensor in shown_outputs
            if tensor in winners and len(shown_outputs) == 1
        ]
        return [Fact("outputs", ", ".join(clauses) + (f"; {rest_text}" if hidden_count else ""))]
    facts: list[Fact] = []
    for tensor in shown_outputs:
        scores = f", {winners[tensor]} (if scores)" if tensor in winners else ""
        text = f"{safe_text(tensor, limit=80)}: {_error_text(by_tensor[tensor])}{scores}"
        facts.append(Fact("" if facts else "outputs", text))
    return [*facts, Fact("", rest_text, "dim")] if hidden_count else facts


def outputs_line(result: RunComparison) -> str:
    """Return the error of each network output in one line, with the winners of scores and the worst sample."""
    facts = _output_facts(result, terse=True)
    text = "" if not result.network_outputs else facts[0].text
    if len(result.network_outputs) == 1:  # its name is in the headline
        text = text.removeprefix(f"{safe_text(result.network_outputs[0], limit=80)} ")
    worst = result.verdict.worst_sample
    return f"{text}; worst: sample {worst}" if text and worst is not None and result.coverage.samples > 1 else text


def _error_text(node: NodeResult, *, brief: bool = False) -> str:
    stats = node.metrics
    if stats is None or node.status is Status.IDENTICAL:
        return str(node.status)
    if stats.sqnr_db is not None and math.isnan(stats.sqnr_db):
        return "not finite" if brief else f"{stats.nonfinite} of {stats.count} elements are not finite"
    level = f"{numbers.metric('sqnr_db', stats.sqnr_db)} dB" if stats.sqnr_db is not None else ""
    if level and brief:
        return level
    parts = [f"SQNR {'about ' if stats.estimated else ''}{level}"] if level else []
    if stats.estimated:
        return parts[0] if parts else "differs"
    if stats.max_lsb is not None:
        parts.append(f"max {numbers.number(stats.max_lsb)} LSB")
    else:
        parts.append(f"max abs {numbers.number(stats.max_abs)}")
    return ", ".join(parts)


def _coverage_facts(result: RunComparison, rest: str, *, terse: bool = False) -> list[Fact]:
    """Return one line on how much was compared, then the first lost tensors."""
    lost_tensors = [entry for entry in result.coverage.unmatched if entry.kind is UnmatchedKind.LOST]
    counts_text = sentences.status_counts([node.status for node in result.nodes])
    counts_clause = f" ({counts_text})" if counts_text and not terse else ""
    clauses = [f"{numbers.grouped(len(result.nodes))} tensors compared{counts_clause}"]
    clauses += sentences.judged_clauses(result)
    benign_total = sentences.benign_count(result.coverage.unmatched)
    clauses += [f"{numbers.grouped(benign_total)} unmatched for a known reason"] if benign_total else []
    clauses.append(f"{numbers.grouped(len(lost_tensors))} LOST" if lost_tensors else "none lost")
    samples = {sample.sample for node in result.nodes for sample in node.samples}
    if samples == {0}:
        clauses.append("1 sample")
    elif len(samples) > 1:
        clauses.append(f"{numbers.grouped(len(samples))} samples")
    elif samples - {0}:
        clauses.append(f"sample {min(samples)} only")
    facts = [Fact("coverage", ", ".join(clauses), "bold yellow" if lost_tensors else "")]
    facts += [
        Fact(
            "", f"LOST {entry.side} {safe_text(entry.tensor, limit=80)}: {safe_text(entry.full_reason)}", "bold yellow"
        )
        for entry in lost_tensors[:_LOST_SHOWN]
    ]
    hidden_count = len(lost_tensors) - _LOST_SHOWN
    return (
        [*facts, Fact("", f"{numbers.grouped(hidden_count)} more lost: {rest}", "dim")] if hidden_count > 0 else facts
    )


def _notes_on_runs(result: RunComparison, rest: str, hidden_remarks: int = 0, hidden_nodes: int = 0) -> list[Fact]:
    """Return notes on the two runs and the limits, and the number of items left out.

    Args:
        result: The comparison.
        rest: Where the reader finds the items that are only counted here.
        hidden_remarks: Number of remarks left out.
        hidden_nodes: Number of diagnosed nodes left out.
    """
    facts: list[Fact] = []
    sides = {"reference": result.reference, "backend": result.backend}
    clauses: dict[str, list[str]] = {}
    for side, info in sides.items():
        if info.fidelity is not Fidelity.BIT_EQUAL:
            clauses.setdefault(f"fidelity {sentences.fidelity_sentence(info)}", []).append(side)
        if not info.complete:
            clauses.setdefault("INCOMPLETE, the run did not finish", []).append(side)
        if info.borrowed_order:
            clauses.setdefault(
                "it has no graph; order, inputs, outputs and operators come from the reference", []
            ).append(side)
    is_doubtful = any(info.fidelity is Fidelity.DIFFERS or not info.complete for info in sides.values())
    for clause, affected_sides in clauses.items():
        facts.append(
            Fact(
                "" if facts else "runs",
                f"{' and '.join(affected_sides)}: {clause}",
                "bold yellow" if is_doubtful else "",
            )
        )
    random = next(filter(None, map(random_inputs_note, sides.values())), None)
    if random is not None:
        facts.append(Fact("inputs", random, "bold yellow"))
    if result.limits.get("source") != _DERIVED or "file" in result.limits:
        facts.append(Fact("limits", sentences.limits_sentence(result.limits)))
    accepted, remarks = sentences.acknowledged_sentences(result.nodes), sentences.found_sentences(result.nodes)
    count_texts = [plural(hidden_nodes, "more node")] if hidden_nodes else []
    count_texts += [f"{len(accepted)} acknowledged"] if accepted else []
    count_texts += [plural(len(remarks) + hidden_remarks, "remark")] if remarks or hidden_remarks else []
    return [*facts, Fact("notes", f"{', '.join(count_texts)}: {rest}", "dim")] if count_texts else facts
