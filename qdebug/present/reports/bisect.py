"""The report on a bisection: the answer, each change with its node, and what was tried."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from qdebug.bisect.changed_node import ChangedNode
from qdebug.bisect.report import BisectReport, BisectStatus, Change, TriedCandidate
from qdebug.compare.explaining.explanation import ExplainStatus, NodeExplanation
from qdebug.model import Fidelity
from qdebug.present import explained, numbers
from qdebug.present.reports.document import Block, Code, Document, Fact, FactList, Grid, Items, Section, Title
from qdebug.present.text import safe_text

__all__ = ["bisect_document", "bisect_title"]

_NAME_LIMIT = 120
_MAX_NODES = 4
_TITLES = ("candidate", "result", "remark")
_NOUNS = {
    "versions": "version",
    "levels": "level",
    "passes": "pass",
    "options": "option",
    "kernels": "kernel set",
    "threads": "thread count",
    "cpu": "instruction set",
}


def bisect_document(report: BisectReport) -> Document:
    """Return the report on a bisection.

    Args:
        report: The result to show.
    """
    blocks: list[Block] = [bisect_title(report), FactList.of(_run_facts(report))]
    scripts: dict[str, Code] = {}  # a script that several changes share is shown once
    for change in report.changes:
        blocks += [Section(_change_text(change, report)), FactList(list(_change_facts(change)))]
        if change.commands:
            blocks.append(Section("without qdebug"))
            blocks.append(Code("sh", "\n".join(map(safe_text, change.commands))))
            for script in change.scripts:
                lines = ["# run.py", *(safe_text(line, limit=1000) for line in script.splitlines())]
                scripts.setdefault(script, Code("python", "\n".join(lines)))
    blocks += scripts.values()
    tried_candidates = [candidate for candidate in report.candidates if candidate.status != "not_tried"]
    not_tried = len(report.candidates) - len(tried_candidates)
    blocks.append(Section("what was tried"))
    blocks.append(Grid(titles=_TITLES, rows=[_candidate_row(candidate, report) for candidate in tried_candidates]))
    blocks.append(Items.of(_search_notes(report, not_tried), style="dim"))
    return blocks


def bisect_title(report: BisectReport) -> Title:
    """Return the answer in one line."""
    noun = _NOUNS[report.over]
    good, bad = safe_text(report.good, limit=_NAME_LIMIT), safe_text(report.bad, limit=_NAME_LIMIT)
    if report.status is BisectStatus.NONDETERMINISTIC:
        return Title("NO ANSWER", f"the results of {good} and {bad} vary from run to run", "bold yellow")
    if not report.changes:
        ends = f"{good}, {bad} and {safe_text(report.fixed)}" if report.fixed else f"{good} and {bad}"
        scope = f"every {noun} that could be tried gives" if report.every else f"{ends} give"
        return Title("NO DIFFERENCE", f"{scope} the same result", "bold green")
    if not report.is_ordered:
        count = len(report.changes)
        return Title("CHANGED", f"{count} of {len(report.candidates) - 1} change the result of {good}", "bold red")
    first = report.changes[0]
    more = f", and {len(report.changes) - 1} more" if len(report.changes) > 1 else ""
    return Title("CHANGED", f"{_change_text(first, report)}{more}", "bold red")


def _change_text(change: Change, report: BisectReport) -> str:
    before, after = safe_text(change.before, limit=_NAME_LIMIT), safe_text(change.after, limit=_NAME_LIMIT)
    if not report.is_ordered:
        return f"{after} differs from {before}"
    if report.over == "passes":
        added = "the last pass" if change.after == "all" else f"pass {after}"
        base = "no pass" if change.before == "none" else f"the passes up to {before}"
        return f"the result changes when {added} is added to {base}"
    again = ", right again" if change.result_after == 0 else ""
    return f"{before} -> {after}: the first {_NOUNS[report.over]} that differs is {after}{again}"


def _run_facts(report: BisectReport) -> Iterator[tuple[str, str]]:
    yield "model", f"{safe_text(report.model)} with {safe_text(report.inputs)}"
    package = f", package {safe_text(report.package)}" if report.over == "versions" else ""
    yield "backend", f"{safe_text(report.backend, limit=_NAME_LIMIT)}{package}"
    compared = {"output": "the outputs, bit for bit", "arithmetic": "the first node that differs bit for bit"}
    yield "compared", compared.get(report.metric, f"metric {safe_text(report.metric)}")
    yield "machine", safe_text(report.machine)
    yield "recordings", f"{report.made} made, {report.reused} reused"


def _change_facts(change: Change) -> Iterator[Fact]:
    if change.skipped:
        names = ", ".join(safe_text(name) for name in change.skipped[:8])
        yield Fact("between", f"{names}: could not be tried, so the change may be in one of them")
    for failure in change.failures:
        yield Fact("failure", safe_text(failure, limit=400))
    node = change.node
    if node is not None:
        yield from _node_facts(change, node)
        yield Fact("arithmetic", f"{safe_text(change.before)}: {_arithmetic_text(change.explained_before)}")
        yield Fact("", f"{safe_text(change.after)}: {_arithmetic_text(change.explained_after)}")
        for label, explanation in ((change.before, change.explained_before), (change.after, change.explained_after)):
            if explanation is not None and explanation.residual is not None:
                for line in explained.unexplained_lines(explanation)[1:]:
                    yield Fact("pattern", f"{safe_text(label)}: {line}")
    elif len(change.recordings) == 2:
        yield Fact("first node", "all tensors that both recordings have are equal")
    for remark in change.remarks:
        yield Fact("remark", safe_text(remark, limit=400), "yellow")
    for path in change.recordings:
        yield Fact("recording", safe_text(path))


def _node_facts(change: Change, node: ChangedNode) -> Iterator[Fact]:
    operator = node.op if node.op == node.op_before or not node.op_before else f"{node.op_before} -> {node.op}"
    label = "first node" if node.has_equal_inputs else "output of"  # otherwise a node upstream may be the cause
    yield Fact(label, f"{safe_text(operator)} {safe_text(node.node, limit=_NAME_LIMIT)}")
    yield Fact("tensor", f"{safe_text(node.tensor, limit=_NAME_LIMIT)}; {_difference_text(change)}")
    if node.has_equal_inputs:
        inputs = "its inputs are equal"
    else:
        inputs = f"{numbers.counted(len(node.nodes), 'node')} from equal tensors to it: {_names_text(node.nodes)}"
        if node.other_inputs:
            inputs += f"; not known to be equal: {_names_text(node.other_inputs)}"
    yield Fact("", f"equal before it: {numbers.counted(node.equal, 'tensor')}; {inputs}")
    kernel, kernel_before = (safe_text(text, limit=_NAME_LIMIT) for text in (node.placement, node.placement_before))
    node_text = "" if node.placed_node == node.node else f" ({safe_text(node.placed_node, limit=_NAME_LIMIT)})"
    if kernel and kernel == kernel_before:
        yield Fact("kernel", f"{kernel} in both")
    elif kernel or kernel_before:
        yield Fact("kernel", f"{safe_text(change.before)}: {kernel_before or 'unknown'}{node_text}")
        yield Fact("", f"{safe_text(change.after)}: {kernel or 'unknown'}{node_text}")


def _names_text(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NODES} more" if len(names) > _MAX_NODES else ""
    return ", ".join(safe_text(name, limit=_NAME_LIMIT // 2) for name in names[:_MAX_NODES]) + more


def _difference_text(change: Change) -> str:
    node = change.node
    if node is None:
        return ""
    unit = f"{node.max_abs:.0f} in integers" if node.is_integer else numbers.number(node.max_abs)
    count = f"{numbers.grouped(node.different)} of {numbers.grouped(node.elements)} elements differ"
    return f"{count}, by at most {unit}"


def _arithmetic_text(explanation: NodeExplanation | None) -> str:
    if explanation is None:
        return "not examined"
    if explanation.status is ExplainStatus.EXPLAINED:
        return f"explained: {safe_text(explanation.words or ', '.join(explanation.variants[:1]), limit=200)}"
    if explanation.band is not None:
        return f"floating point, {safe_text(explanation.band.precision)}, {_band_text(explanation)}"
    return f"{explanation.status.replace('_', ' ')}{_reason_text(explanation)}"


def _band_text(explanation: NodeExplanation) -> str:
    band = explanation.band
    if band is None or band.exact:
        return "equal to the replay bit for bit"
    if band.ratio is None:
        return "without a bound on its rounding error"
    if math.isinf(band.ratio):
        return "unlike the replay, although its operator does not round"
    return f"{numbers.number(band.ratio)} x the error that this precision allows"


def _reason_text(explanation: NodeExplanation) -> str:
    return f": {safe_text(explanation.reason, limit=200)}" if explanation.reason else ""


def _candidate_row(candidate: TriedCandidate, report: BisectReport) -> tuple[str, ...]:
    results_by_label = {entry.label: entry.result for entry in report.candidates}
    text = candidate.status
    if candidate.result is not None and candidate.status == "recorded":
        bad = results_by_label.get(report.bad)
        text = (
            "as good"
            if candidate.result == 0
            else "as bad"
            if candidate.result == bad and report.is_ordered
            else (f"other result {candidate.result}")
        )
    remarks = [safe_text(candidate.reason, limit=300)] if candidate.reason else []
    if candidate.value is not None:
        remarks.append(f"metric {numbers.number(candidate.value, digits=6)}")
    if candidate.fidelity is Fidelity.NONDETERMINISTIC:
        remarks.append("its own runs differ")
    if candidate.fidelity is Fidelity.DIFFERS:
        remarks.append("recording changes its outputs")
    return safe_text(candidate.label, limit=_NAME_LIMIT), text, "; ".join(remarks)


def _search_notes(report: BisectReport, not_tried: int) -> Iterator[str]:
    if not report.changes and not report.every:
        yield "Only the ends were tried; a change that was undone in between is found with --every."
    elif not_tried and not report.every:
        yield f"{not_tried} between equal results were not tried; --every tries all."
    if report.over == "passes":
        yield "Each row enables one pass more than the row before, in the order of the runtime."
