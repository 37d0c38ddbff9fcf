"""Turns findings into statuses: of a tensor, of one of its samples, and of the whole comparison with its verdict.

The checks (`compare/checks`) report what they find; this module decides what it means. It also composes the verdict's
sentences from clauses: each `_..._clause` function returns one, or "" if there is nothing to report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from qdebug.compare.align.pairs import Side, Unmatched, UnmatchedKind
from qdebug.compare.attribute.graph_walk import downstream, upstream
from qdebug.compare.checks.table import ERROR_CHECKS
from qdebug.compare.evidence.evidence import Evidence
from qdebug.compare.evidence.measured import Error, Measured
from qdebug.compare.growth import growth_sentence
from qdebug.compare.outputs import lost_part
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, apart
from qdebug.compare.result.inputs import different_inputs_clause, nan_input, nan_input_sentence
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.node_result import (
    JudgedBy,
    cost_of,
    is_doubt,
    is_excused,
    node_to_blame,
)
from qdebug.compare.result.nonfinite import Nonfinite
from qdebug.compare.result.origin import find_costliest_tensor, find_largest_fall
from qdebug.compare.result.result import (
    Compounding,
    Contributions,
    Contributor,
    Coverage,
    Growth,
    NodeResult,
    SampleResult,
    Status,
    Verdict,
)
from qdebug.compare.result.result_table import ResultTable
from qdebug.model import Fidelity, Graph, RunInfo
from qdebug.model.thresholds.verdict import (
    CONTRIBUTOR_MAX_DISTANCE,
    CONTRIBUTORS_NAMED,
    FAILED_REPLAYS_MAX_SHARE,
    OUTPUT_MIN_SQNR,
    UNJUDGED_MAX_SHARE,
)
from qdebug.numerics.stats import ErrorStats
from qdebug.plural import agreeing, plural

__all__ = [
    "judge",
    "judge_error",
    "judge_sample",
    "shortcomings",
    "verdict",
    "verdict_on_different_inputs",
]


def judge(evidence: Evidence, findings: Sequence[Finding]) -> tuple[Status, str | None]:
    """Return the status of a compared tensor, with a reason or a remark if there is one.

    Non-finite values take precedence, then graph differences, then an error beyond its limit. User limits for a tensor
    replace the derived limits, but its findings stay in its row.

    Args:
        evidence: The tensor.
        findings: The findings of all checks, in the order of the checks.
    """
    status, reason = _status_and_reason(evidence, findings)
    if evidence.stats is None:
        clauses = [evidence.comparison.reason, *(f.sentence for f in findings if f.role is FindingRole.DIFFERENCE)]
        if status is Status.NONFINITE:
            return status, reason
        is_proved = any(finding.role is FindingRole.BREACH for finding in findings)
        return (Status.DIVERGED if is_proved else Status.INCOMPARABLE), "; ".join(filter(None, clauses)) or None
    if status is Status.IDENTICAL and not evidence.comparison.known_equal:
        return Status.WITHIN, None
    return status, reason


def judge_error(measured: Measured) -> tuple[Status, str | None]:
    """Return the status of an error by itself, without a graph, and the reason."""
    findings = [finding for check in ERROR_CHECKS if (finding := check(measured)) is not None]
    return _status_and_reason(measured, findings)


def judge_sample(
    evidence: Evidence, sample: int, stats: ErrorStats, tensor_status: Status, findings: Sequence[Finding]
) -> Status:
    """Return the status of one sample.

    A graph difference exists in every sample, and shows in each sample with an unequal element.

    Args:
        evidence: The tensor.
        sample: The sample.
        stats: Its error.
        tensor_status: The status of the tensor.
        findings: The findings of the tensor.
    """
    is_replayed = evidence.attribution is not None and evidence.attribution.arithmetic_unsaturated is not None
    is_reproduced = evidence.reproduced is not None and evidence.reproduced.firm
    error: Error = evidence.sample(
        sample,
        stats,
        excused=tensor_status is Status.WITHIN and (is_reproduced or not is_replayed or _is_harmless(findings)),
    )
    if any(finding.kind is FindingKind.DISTURBED for finding in findings) and tensor_status is Status.WITHIN:
        return Status.WITHIN if stats.mismatches else Status.IDENTICAL
    status = judge_error(error)[0]
    differs = any(finding.role is FindingRole.DIFFERENCE and _is_decisive(evidence, finding) for finding in findings)
    return Status.DIVERGED if differs and status is Status.WITHIN else status


def _is_harmless(findings: Sequence[Finding]) -> bool:
    """Return whether an arithmetic error was found that changes no other tensor."""
    return any(finding.role is FindingRole.NOTE and finding.kind is FindingKind.ARITHMETIC for finding in findings)


def _status_and_reason(measured: Measured, findings: Sequence[Finding]) -> tuple[Status, str | None]:
    # The first rule that applies decides: a NaN or an infinity, equality, a disturbed tensor, a difference between the
    # graphs, a breach. Equality comes before differences, because weights may differ without an effect.
    stats = measured.stats
    causes = [finding.sentence for finding in findings if finding.role is FindingRole.CAUSE]
    differences = [finding.sentence for finding in findings if finding.role is FindingRole.DIFFERENCE]
    for finding in findings:
        if finding.kind is FindingKind.NONFINITE and finding.role is FindingRole.BREACH:
            return Status.NONFINITE, ": ".join([finding.sentence, *[*differences, *causes][:1]])
    if stats is not None and not stats.mismatches:
        return Status.IDENTICAL, None
    disturbed = next((finding for finding in findings if finding.kind is FindingKind.DISTURBED), None)
    if disturbed is not None and not any(finding.kind in _STATED for finding in findings):
        return Status.WITHIN, disturbed.sentence
    for finding in findings:
        if finding.role is FindingRole.DIFFERENCE and _is_decisive(measured, finding):
            return Status.DIVERGED, finding.sentence
    for finding in findings:
        if finding.role is FindingRole.BREACH and _is_decisive(measured, finding):
            return Status.DIVERGED, ": ".join([finding.sentence, *causes[:1]])
    excuses = [finding.sentence for finding in findings if finding.role in (FindingRole.COST, FindingRole.EXCUSE)]
    is_decided = stats is not None and not stats.estimated and measured.limits.judge_whole(stats)
    return Status.WITHIN, excuses[0] if excuses and not is_decided else None


_STATED = frozenset(
    (FindingKind.WEIGHT, FindingKind.BIAS, FindingKind.CONSTANT, FindingKind.ATTRIBUTE, FindingKind.MISSING_NODE)
)
"""Kinds of differences between graphs or constants that recording cannot have caused."""


def _is_decisive(measured: Measured, finding: Finding) -> bool:
    """Return whether a finding is decisive under the limits in force."""
    return finding.given or measured.stats is None or not measured.limits.judge_whole(measured.stats)


def shortcomings(
    reference: RunInfo, backend: RunInfo, coverage: Coverage, table: ResultTable, *, limits: Limits
) -> tuple[str, ...]:
    """Return a clause for each part of a comparison that is missing and not accepted by the limits.

    Args:
        reference: Facts of the reference run.
        backend: Facts of the backend run.
        coverage: What was compared and what was not.
        table: The compared tensors.
        limits: What may be missing.
    """
    clauses: list[str] = []
    for side, info in (("reference", reference), ("backend", backend)):
        if not info.complete and not limits.allow_partial:
            clauses.append(f"the {side} recording is incomplete")
        if info.fidelity is Fidelity.DIFFERS and not limits.allow_unfaithful:
            clauses.append(f"recording changed the result of the {side} run")
    lost_tensors = tuple(entry for entry in coverage.unmatched if entry.kind is UnmatchedKind.LOST)
    missed_tensors = limits.not_allowed(lost_tensors)
    if missed_tensors:
        first = missed_tensors[0]
        count = f"{plural(len(missed_tensors), 'tensor')} {agreeing(len(missed_tensors), 'was')}"
        clauses.append(f"{count} lost to the comparison (the first: {first.side} tensor {first.tensor!r})")
    incomparable = limits.not_allowed(_incomparable_tensors(table))
    if incomparable:
        first = incomparable[0]
        clauses.append(
            f"{plural(len(incomparable), 'tensor')} could not be compared (the first: {first.tensor!r}: {first.reason})"
        )
    unjudged = (
        () if table.breaking.any() else limits.not_allowed(_as_unmatched(_unjudged_nodes(table, include_failed=False)))
    )
    if len(unjudged) > UNJUDGED_MAX_SHARE * len(table):
        first = unjudged[0]
        clauses.append(
            f"{len(unjudged)} of {len(table)} tensors were not judged (the first: {first.tensor!r}: {first.reason})"
        )
    failed_nodes = [node for node in table.nodes if node.failed_replay]
    replayed_count = sum(node.judged_by is JudgedBy.REPLAY for node in table.nodes) + len(failed_nodes)
    if len(failed_nodes) > FAILED_REPLAYS_MAX_SHARE * replayed_count and limits.not_allowed(
        _as_unmatched(failed_nodes)
    ):
        clauses.append(
            f"the replays of {len(failed_nodes)} of {replayed_count} nodes failed "
            f"(the first: {failed_nodes[0].node!r}: {failed_nodes[0].attribution_note})"
        )
    partial_rows = np.flatnonzero(table.partial)
    if partial_rows.size and not limits.allow_partial:
        node = table[partial_rows[0]]
        rest_text = f" and {partial_rows.size - 1} more" if partial_rows.size > 1 else ""
        clauses.append(f"{node.note} (tensor {node.tensor!r}{rest_text})")
    return tuple(clauses)


def _incomparable_tensors(table: ResultTable) -> tuple[Unmatched, ...]:
    """Return the tensors that have a partner but cannot be compared with it."""
    return _as_unmatched([node for node in table.nodes if node.status is Status.INCOMPARABLE and not is_excused(node)])


def _unjudged_nodes(table: ResultTable, *, include_failed: bool) -> list[NodeResult]:
    """Return the nodes that pass only because nothing shows whether they are right.

    Args:
        table: The compared tensors.
        include_failed: Whether to include nodes whose replay failed.
    """
    within_limits = (
        node for node in table.nodes if node.status is Status.WITHIN and (include_failed or not node.failed_replay)
    )
    return [node for node in within_limits if any(map(is_doubt, node.findings))]


def _as_unmatched(nodes: Sequence[NodeResult]) -> tuple[Unmatched, ...]:
    return tuple(
        Unmatched(side=Side.BACKEND, tensor=node.tensor, kind=UnmatchedKind.LOST, reason=node.reason or "")
        for node in nodes
    )


def _differing_codes_clause(table: ResultTable) -> str:
    """Name the first node at which two quantized runs give different codes for equal inputs."""
    differing = [
        (node, finding)
        for node in table.nodes
        for finding in node.findings
        if (finding.kind, finding.role) == (FindingKind.ARITHMETIC, FindingRole.NOTE)
    ]
    if not differing:
        return ""
    node, first = differing[0]
    other_count = len(differing) - 1
    others_text = f" {plural(other_count, 'more node')} {agreeing(other_count, 'differ')}." if other_count else ""
    return f" Codes differ first at {node.op} {node.node!r}: {first.sentence}.{others_text}"


def _unjudged_clause(table: ResultTable) -> str:
    unjudged = _unjudged_nodes(table, include_failed=True)
    if not unjudged:
        return ""
    count, first = len(unjudged), unjudged[0]
    why = f"; {first.attribution_note}" if first.attribution_note else ""
    return f" {plural(count, 'tensor')} {agreeing(count, 'was')} not judged (the first: {first.tensor!r}{why})."


def _partial_clause(table: ResultTable) -> str:
    """Count the tensors that were judged only by some of their elements, by sketches, hashes or statistics."""
    is_comparable = ~table.has_status(Status.INCOMPARABLE)
    texts_by_basis = (
        ("elements", "compared by the elements kept in both runs only"),
        ("sketch", "compared by sketches, which estimate the error"),
        ("stats", "judged by hashes or statistics only"),
    )
    clauses = []
    for basis, text in texts_by_basis:
        count = int(np.count_nonzero(table.has_basis(basis) & (is_comparable | (basis == "elements"))))
        if count:
            clauses.append(f" {plural(count, 'tensor')} {agreeing(count, 'was')} {text}.")
    return "".join(clauses)


def _short_format_clause(table: ResultTable) -> str:
    """Name the first tensor whose values fit a 16-bit or 8-bit float format in the backend only."""
    first = next((node for node in table.nodes if node.precision is not None), None)
    if first is None:
        return ""
    name = first.precision
    other_count = sum(node.precision == name for node in table.nodes) - 1
    more = f" and of {plural(other_count, 'more tensor')}" if other_count else ""
    return f" The values of {first.tensor!r}{more} are exactly representable in {name}; the reference's are not."


def _overruled_clause(table: ResultTable) -> str:
    """Name the findings in tensors that pass the user's limits."""
    deciding = (FindingRole.DIFFERENCE, FindingRole.BREACH)
    overruled = [
        (node, finding)
        for node in table.nodes
        if node.findings and node.status in (Status.WITHIN, Status.IDENTICAL)
        for finding in node.findings
        if finding.role in deciding
    ]
    if not overruled:
        return ""
    node, first = overruled[0]
    text = f" Found within the given limits at {node.op} {node.node!r}: {first.sentence}"
    return text + (f", and {len(overruled) - 1} more." if len(overruled) > 1 else ".")


def verdict(
    table: ResultTable,
    missing: Sequence[str],
    *,
    way: Sequence[NodeResult] = (),
    output: NodeResult | None = None,
    outputs: Sequence[str] = (),
    compounding: Sequence[Compounding] = (),
    accepted: Sequence[str] = (),
    graph: Graph | None = None,
    short: Sequence[NodeResult] = (),
    sole: NodeResult | None = None,
    costs: Sequence[NodeResult] = (),
    floor: float | None = None,
    contributing: Contributions | None = None,
    growth: Growth | None = None,
    nonfinite: Nonfinite | None = None,
    remark: str = "",
    cause: Callable[[NodeResult], str | None] | None = None,
) -> Verdict:
    """Summarize a comparison.

    Args:
        table: The compared tensors.
        missing: The result of `shortcomings`.
        way: The path from the worst output back to the node whose own error feeds it, with that node last. May be
            empty.
        output: The network output with the largest error, or the last tensor if no output was compared.
        outputs: Names of the network's outputs.
        compounding: Nodes that amplify errors far more than other nodes of their operator.
        accepted: What is missing but accepted by the limits. It is still listed.
        graph: The backend's graph, which may contain the model's name of a node that runs under a different name.
        short: Network outputs below their limit although no node exceeds its own, worst first.
        sole: The node that causes nearly all of the worst output's error, or None.
        costs: The result of `costs_that_count`.
        floor: Lower limit of the outputs' SQNR, in dB.
        contributing: Contributions of nodes to the worst output, or None if they were not measured.
        growth: How rounding errors add up at the worst output, or None if unknown.
        nonfinite: Where a NaN or an infinity first appears, with its path, or None if unknown.
        remark: An introductory sentence on the two runs, or "".
        cause: Searches for the reason why the codes of the first diverging node may be wrong, or None to skip the
            search.
    """
    first = table[table.beyond.argmax()] if table.beyond.any() else None
    origin = way[-1] if way else None
    status = _overall_status(table, incomplete=bool(missing), accumulated=bool(short or costs))
    if status is Status.ACCUMULATED:
        origin = find_costliest_tensor(table, costs, contributing, floor)
    shared = contributing.nodes[0].output if short and contributing is not None and contributing.nodes else None
    judged_output = output if shared is None or shared not in table.rows else table[table.rows[shared]]
    sample = None if judged_output is None else _worst_sample(judged_output)
    outcome, why, loss, cause_text, way_on = _outcome_sentence(table, first, origin, graph), "", "", "", ""
    nan_source = None if first is None or graph is None else nan_input(table, first, graph)
    if first is not None and nan_source is not None:
        outcome = f"{nan_input_sentence(nan_source, first)} {outcome}"
        first, origin, way = nan_source, nan_source, (nan_source,)
    else:
        cause_text = _cause_of_first(first, cause)
        way_on = "" if nonfinite is None else _nonfinite_clause(table, nonfinite, first, origin)
        why = (f"At {first.op} {first.node!r}, {cause_text}." if first is not None and cause_text else "") + way_on
    if short and graph is not None and floor is not None:
        loss = _accumulated_clause(short, floor, sole, growth) + _costs_clause(costs, origin, is_judged=True)
        loss += _contributions_clause(table, short, contributing, floor) + _largest_fall_clause(
            table, short[0], floor, graph
        )
    else:
        why += _costs_clause(costs, origin, is_judged=False)
    remarks = [remark] if growth is None else [remark, growth_sentence(growth)]
    if graph is not None and (first is not None or short or table.has_status(Status.INCOMPARABLE).any()):
        remarks.append(_selection_clause(table, graph, [node.tensor for node in short] or outputs))
    if output is not None and not short:
        remarks.append(_output_clause(output, sample, outputs, diverged=first is not None))
    if not costs:
        remarks.append(_known_arithmetic_clause(table))
    clauses = (_differing_codes_clause, _unjudged_clause, _overruled_clause, _short_format_clause, _partial_clause)
    remarks += [clause(table) for clause in clauses]
    remarks += [_compounding_clause(compounding), _acknowledged_clause(table), _missing_clause(missing, accepted)]
    sentences = [remark, loss, outcome, why, *remarks[1:]]
    return Verdict(
        status=status,
        first_divergence=first.node if first else None,
        origin=node_to_blame(origin) if origin else None,
        way=tuple(node.tensor for node in way),
        short=tuple(node.tensor for node in short),
        sentence=" ".join(part.strip() for part in sentences if part),
        cause=cause_text,
        way_on=way_on.strip(),
        remarks=tuple(part.strip() for part in remarks if part),
        worst_sample=sample,
        compounding=tuple(compounding),
        contributors=() if contributing is None else contributing.nodes,
        together=None if contributing is None else contributing.together,
        growth=growth,
        nonfinite=nonfinite,
    )


def _cause_of_first(first: NodeResult | None, cause: Callable[[NodeResult], str | None] | None) -> str:
    """Return the cause of the first divergence if no finding explains it, or "" if none is found."""
    text = cause(first) if first is not None and cause is not None and _has_no_cause(first) else None
    return text or ""


def _has_no_cause(node: NodeResult) -> bool:
    """Return whether a node diverges because of its arithmetic and no finding explains it."""
    if node.status is not Status.DIVERGED:
        return False
    explaining = (FindingRole.CAUSE, FindingRole.DIFFERENCE)
    is_arithmetic = any(
        finding.kind is FindingKind.ARITHMETIC and finding.role is FindingRole.BREACH for finding in node.findings
    )
    return is_arithmetic and not any(finding.role in explaining for finding in node.findings)


def _known_arithmetic_clause(table: ResultTable) -> str:
    """Name the first node whose known arithmetic is off by more than rounding, although within the limits."""
    costs = [(node, cost) for node in table.nodes if (cost := cost_of(node)) is not None]
    coarse = [(node, cost) for node, cost in costs if cost.kind is FindingKind.ARITHMETIC]
    if not coarse:
        return ""
    node, cost = coarse[0]
    others_text = f" The same applies to {plural(len(coarse) - 1, 'more tensor')}." if coarse[1:] else ""
    return f" At {node.op} {cost.node!r}, {cost.sentence}.{others_text}"


def _missing_clause(missing: Sequence[str], accepted: Sequence[str]) -> str:
    """List what a comparison lacks, and which missing parts were accepted."""
    text = f" Incomplete: {'; '.join(missing)}." if missing else ""
    return text + (f" Accepted by the limits: {'; '.join(accepted)}." if accepted else "")


def verdict_on_different_inputs(
    different: Sequence[NodeResult], missing: Sequence[str], accepted: Sequence[str]
) -> Verdict:
    """Return the verdict on runs with different inputs. No node is blamed for the resulting errors.

    Args:
        different: The inputs that differ, at least one.
        missing: The result of `shortcomings`.
        accepted: What is missing but accepted by the limits.
    """
    clause = different_inputs_clause(different)
    sentence = f"{clause[0].upper()}{clause[1:]}. No node is blamed. Record both runs with the same inputs."
    sentence += _missing_clause(missing, accepted)
    return Verdict(status=Status.INCOMPLETE, first_divergence=None, origin=None, sentence=sentence)


def _accumulated_clause(
    short_outputs: Sequence[NodeResult], floor: float, sole: NodeResult | None, growth: Growth | None
) -> str:
    """Name the output that is below its limit although no node is, and the node that causes nearly all of its error."""
    level, lost = _sqnr_text(short_outputs[0], floor), lost_part(short_outputs[0])
    text = f"The output {short_outputs[0].tensor!r} has an SQNR of {level} dB, below {floor:g} dB"
    if growth is not None and growth.output == short_outputs[0].tensor and growth.sqnr_db >= floor:
        text = f"The output {short_outputs[0].tensor!r} has an SQNR of only {level} dB"
    if lost is not None:
        text = f"The output {short_outputs[0].tensor!r} has an SQNR of {level} dB, but {lost.sentence}"
    other_count = len(short_outputs) - 1
    text += f" (and {plural(other_count, 'more output')})" if other_count else ""
    if sole is None:
        return f"{text}, although no node is beyond its limit."
    return f"{sole.op} {sole.node!r} causes nearly all of the error. {text}, although no node is beyond its limit."


def _largest_fall_clause(table: ResultTable, output: NodeResult, floor: float, graph: Graph) -> str:
    """Name the node at which the SQNR falls most on the path to an output."""
    fall = None if lost_part(output) is not None else find_largest_fall(table, graph, table.rows[output.tensor])
    if fall is None or _sqnr_text(fall[0], floor) == _sqnr_text(fall[1], floor):
        return ""
    node, (level_before, level_after) = fall[1], (_sqnr_text(end, floor) for end in fall)
    return f" SQNR falls most at {node.op} {node.node!r}: {level_before} dB before it, {level_after} dB after it."


def _costs_clause(costs: Sequence[NodeResult], origin: NodeResult | None, *, is_judged: bool) -> str:
    """Name the tensor whose codes lose too much, the origin first, and note if no compared output depends on it."""
    node = next((cost for cost in costs if cost is origin), next(iter(costs), None))
    first = None if node is None else cost_of(node)
    if node is None or first is None:
        return ""
    other_count = len(costs) - 1
    others_text = f"; the same applies to {plural(other_count, 'more tensor')}" if other_count else ""
    text = f" At {node.op} {first.node!r}, {first.sentence}{others_text}."
    return text if is_judged else f"{text} No output that depends on it was compared."


def _contributions_clause(
    table: ResultTable, short_outputs: Sequence[NodeResult], contributing: Contributions | None, floor: float
) -> str:
    """Name the nodes that contribute most to an output's error, and how that was measured."""
    if contributing is None:
        return ""
    exact = [entry for entry in contributing.nodes if entry.how == "exact"]
    unknown = len(contributing.nodes) - len(exact) + contributing.unknown
    other_count = len(contributing.why) - 1
    why = "".join(contributing.why[:1])
    if other_count > 0:
        why += f", and {plural(other_count, 'other reason')}"
    if not exact:
        return f" The nodes that contribute most are not known: {why}." if unknown else ""
    counting = [entry for entry in exact if entry.sqnr_db < exact[0].sqnr_db + CONTRIBUTOR_MAX_DISTANCE]
    contributors_text = ", ".join(_contributor_text(table, entry, floor) for entry in counting[:CONTRIBUTORS_NAMED])
    text = f" Costliest nodes, each with the output's SQNR if only that node had an error: {contributors_text}"
    if len(counting) == 1:
        text = f" Costliest node, with the output's SQNR if only that node had an error: {contributors_text}"
    together = contributing.together if len(counting) > 1 else None
    if together is not None:
        # Not `without_db`, which subtracts two errors: it reads as the output with these nodes left in float.
        text += f"; if only these nodes had errors: {_db_text(together.sqnr_db, floor)} dB"
    text += f".{_worst_sample_clause(short_outputs, exact[0].output, floor)}"
    return text + (f" The contribution of {plural(unknown, 'more node')} is not known: {why}." if unknown else "")


def _worst_sample_clause(short_outputs: Sequence[NodeResult], output: str, floor: float) -> str:
    """Name the sample with the lowest SQNR of an output, if there are several."""
    samples = next((node.samples for node in short_outputs if node.tensor == output), ())
    measured_samples = [sample for sample in samples if sample.sqnr_db is not None and not math.isnan(sample.sqnr_db)]
    if len(measured_samples) < 2:
        return ""
    worst = min(measured_samples, key=lambda sample: sample.sqnr_db or 0.0)
    return f" Sample {worst.sample} is the worst: {_db_text(worst.sqnr_db or 0.0, floor)} dB."


def _contributor_text(table: ResultTable, entry: Contributor, floor: float) -> str:
    """Return a node with the output's SQNR for its error alone, and both scales if they differ."""
    notes = [note for note in table[table.rows[entry.tensor]].findings if note.role is FindingRole.NOTE]
    scales = "".join(f" ({note.sentence})" for note in notes if note.kind is FindingKind.SCALE and note.limit)
    return f"{entry.node!r} {_db_text(entry.sqnr_db, floor)} dB{scales}"


def _selection_clause(table: ResultTable, graph: Graph, outputs: Sequence[str]) -> str:
    """Name a node upstream of the given outputs that selects other elements because of an error within limits."""
    upstream_tensors = upstream(graph, outputs)
    breaking_tensors = downstream(graph, (table[row].tensor for row in np.flatnonzero(table.breaking)))
    selections = [
        (node, finding.sentence)
        for node in table.nodes
        for finding in node.findings
        if finding.kind is FindingKind.SELECTION
        and node.tensor in upstream_tensors
        and node.tensor not in breaking_tensors
    ]
    if not selections:
        return ""
    node, sentence = selections[0]
    others_text = f" The same happens at {plural(len(selections) - 1, 'more tensor')}." if selections[1:] else ""
    return f" At {node.op} {node.node!r}, {sentence}. That difference is within the limits.{others_text}"


def _sqnr_text(node: NodeResult, floor: float) -> str:
    """Return the SQNR of a node's output, with enough digits to distinguish it from a limit."""
    return "?" if node.metrics is None or node.metrics.sqnr_db is None else _db_text(node.metrics.sqnr_db, floor)


def _db_text(level: float, floor: float) -> str:
    """Return an SQNR with one decimal, or with as many as it takes to distinguish it from a limit."""
    rounded = round(level, 1) + 0.0  # + 0.0 turns -0.0 into 0.0
    return f"{rounded:g}" if rounded != floor or level == floor else apart(level, floor)


def _output_clause(output: NodeResult, sample: int | None, outputs: Sequence[str], *, diverged: bool) -> str:
    """Name the worst sample of the worst output. If nothing diverged, state its SQNR if that is low."""
    if not diverged:
        return _remaining_sqnr_clause(output) if output.tensor in outputs else ""
    count = len(output.samples)
    return f" The worst of {count} samples at {output.tensor!r} is sample {sample}." if count > 1 else ""


def _remaining_sqnr_clause(output: NodeResult) -> str:
    """State the SQNR of the worst output if it is low although no limit is exceeded."""
    level = None if output.metrics is None else output.metrics.sqnr_db
    if level is None or not level < OUTPUT_MIN_SQNR:
        return ""
    return f" The output {output.tensor!r} still has an SQNR of only {apart(level, OUTPUT_MIN_SQNR)} dB."


def _worst_sample(output: NodeResult) -> int | None:
    """Return the first sample with the lowest SQNR. A NaN counts as lowest."""
    if not output.samples:
        return None

    def level(sample: SampleResult) -> float:
        if sample.sqnr_db is None:
            return math.inf
        return -math.inf if math.isnan(sample.sqnr_db) else sample.sqnr_db

    return min(output.samples, key=level).sample


def _compounding_clause(compounding: Sequence[Compounding]) -> str:
    if not compounding:
        return ""
    first, other_count = compounding[0], len(compounding) - 1
    others_text = f"; so {agreeing(other_count, 'does')} {plural(other_count, 'more node')}" if other_count else ""
    usual = f"the median of {first.op} in this network is {first.usual:.3g}"
    return f" {first.op} {first.node!r} amplifies the error of its input {first.gain:.3g} times ({usual}){others_text}."


def _overall_status(table: ResultTable, *, incomplete: bool, accumulated: bool) -> Status:
    for status in (Status.NONFINITE, Status.DIVERGED):
        if (table.has_status(status) & ~table.excused).any():
            return status
    if table.beyond.any():
        return Status.DIVERGED
    if accumulated:
        return Status.ACCUMULATED
    if incomplete:
        return Status.INCOMPLETE
    return Status.IDENTICAL if table.has_status(Status.IDENTICAL).all() else Status.WITHIN


def _acknowledged_clause(table: ResultTable) -> str:
    """Count the failing tensors that are acknowledged, and name expired acknowledgements."""
    excused = np.flatnonzero(table.breaking & table.excused)
    expired = np.flatnonzero(table.beyond & table.accepted)
    text = ""
    if excused.size:
        text += f" {plural(excused.size, 'tensor')} beyond the limit {agreeing(excused.size, 'is')} acknowledged"
        text += f" (the first: {table[excused[0]].tensor!r})."
    if expired.size:
        node = table[expired[0]]
        also = f", and {expired.size - 1} more" if expired.size > 1 else ""
        expires = node.acknowledged.expires if node.acknowledged else None
        text += f" The acknowledgement of {node.tensor!r} expired on {expires}{also}."
    return text


def _nonfinite_clause(
    table: ResultTable, nonfinite: Nonfinite, first: NodeResult | None, origin: NodeResult | None
) -> str:
    """State where a NaN or an infinity first appears, what selects it there, and how it reaches the outputs."""
    born = nonfinite.born
    is_named = first is not None and any(
        selection.born is born for selection in (first, origin) if selection is not None
    )
    text = "" if is_named else f" At {born.op} {born.node!r}, {born.sentence}."
    if born.selected:
        selection = born.selected[0]
        why = f"A difference of {selection.difference:.3g} in {selection.tensor!r} causes it"
        finite = origin is not None and table.rows[origin.tensor] != nonfinite.row
        text += f" {why}{'' if finite else ', and no node beyond its limit explains that difference'}."
    nodes = [repr(name) for name in nonfinite.path]
    if nonfinite.left_out:
        middle = len(nodes) // 2
        nodes.insert(middle, f"{nonfinite.left_out} more")
    path_text = f" through {', '.join(nodes)}" if len(nodes) > 1 else ""
    if nonfinite.output is not None:
        return f"{text} It reaches the output {nonfinite.output!r}{path_text}."
    ends = f"It ends after {nodes[-1]}" if len(nodes) > 1 else "It goes no further"
    stats = None if nonfinite.spoilt is None else table[table.rows[nonfinite.spoilt]].metrics
    if stats is None or stats.sqnr_db is None:
        return f"{text} {ends} and reaches no output."
    level = _db_text(stats.sqnr_db, OUTPUT_MIN_SQNR)
    text += f" {ends}; the nodes after it turn it into finite numbers."
    return f"{text} The output {nonfinite.spoilt!r} has an SQNR of {level} dB."


def _model_name_text(node: NodeResult, graph: Graph | None) -> str:
    """Return the model's name of a node that runs under a different name, or "" if it is the same or unknown."""
    producer = None if graph is None else graph.producer(node.tensor)
    names = () if producer is None else producer.origin
    if not names or node.node in names:
        return ""
    return f" (the model's {names[0]!r}{f' and {len(names) - 1} more' if len(names) > 1 else ''})"


def _outcome_sentence(
    table: ResultTable, first: NodeResult | None, origin: NodeResult | None, graph: Graph | None
) -> str:
    """Return the sentence with the number of compared tensors and the first divergence."""
    incomparable_rows = table.has_status(Status.INCOMPARABLE)
    incomparable = int(np.count_nonzero(incomparable_rows))
    count = len(table) - incomparable
    subject = "The one compared tensor is" if count == 1 else f"All {count} compared tensors are"
    if first is not None:
        if origin is not None and origin.tensor == first.tensor:
            first = origin
        place = "the input" if first.op == "Input" else f"{first.op} {first.node!r}"
        place += _model_name_text(first, graph)
        text = f"The backend diverges first at {place} (tensor {first.tensor!r}): {first.reason}."
        if any(finding.kind is FindingKind.REFERENCE for finding in first.findings):
            text = f"The reference is wrong first at {place} (tensor {first.reference_tensor!r}): {first.reason}."
        failing = int(np.count_nonzero(table.beyond & ~incomparable_rows))
        if failing or not incomparable:
            text += f" {failing} of {count} compared tensors {agreeing(failing, 'is')} beyond the limit."
        else:
            text += f" {subject} within the limit."
        if origin is not None and origin.node != first.node:
            place = f"{origin.op} {origin.node!r}{_model_name_text(origin, graph)}"
            text += f" The error of the output comes from {place}."
    elif not count:
        text = "No tensor was compared."
    elif table.has_status(Status.IDENTICAL).all():
        text = f"{subject} identical{_sample_count_clause(table)}."
    else:
        excused = int(np.count_nonzero(table.breaking & ~incomparable_rows))
        within_count = count - excused
        passed_text = f"{within_count} of {count} compared tensors {agreeing(within_count, 'is')}"
        text = f"{passed_text if excused else subject} within the limit{_sample_count_clause(table)}."
    if incomparable:
        text += f" {incomparable} could not be compared."
    return text


def _sample_count_clause(table: ResultTable) -> str:
    """Return a clause if only one sample was compared, or "" for several or an unknown number."""
    return ", in 1 sample" if len({sample.sample for node in table.nodes for sample in node.samples}) == 1 else ""
