"""What follows from findings: the status of a node, of one sample of it, and the verdict of a comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from qdebug.compare.align.pairs import Side, Unmatched, UnmatchedKind
from qdebug.compare.attribute.graph_walk import downstream, upstream
from qdebug.compare.checks.context import NodeContext
from qdebug.compare.checks.error_checks import ERROR_CHECKS
from qdebug.compare.checks.measured import Error, Measured
from qdebug.compare.outputs import lost_part
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, apart
from qdebug.compare.result.inputs import different_inputs_clause, nan_input, nan_input_sentence
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.node_result import (
    JudgedBy,
    blamed,
    cost_of,
    is_doubt,
    is_excused,
)
from qdebug.compare.result.nonfinite import Nonfinite
from qdebug.compare.result.origin import costliest, largest_fall
from qdebug.compare.result.result import (
    Compounding,
    Contributions,
    Contributor,
    Coverage,
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


def judge(context: NodeContext, findings: Sequence[Finding]) -> tuple[Status, str | None]:
    """Return the status of a compared tensor, and the reason for it, or what else is to be said of it, if anything.

    Values that are not finite come first, then what the graphs say differently, then an error beyond its limit. Where
    the user gave limits that apply to the tensor, no derived limit decides: what it found stays on the row.

    Args:
        context: The tensor.
        findings: What the checks found, in their order.
    """
    status, reason = _decided(context, findings)
    if context.stats is None:
        said = [context.comparison.reason, *(f.sentence for f in findings if f.role is FindingRole.DIFFERENCE)]
        if status is Status.NONFINITE:
            return status, reason
        proved = any(found.role is FindingRole.BREACH for found in findings)
        return (Status.DIVERGED if proved else Status.INCOMPARABLE), "; ".join(filter(None, said)) or None
    if status is Status.IDENTICAL and not context.comparison.known_equal:
        return Status.WITHIN, None
    return status, reason


def judge_error(of: Measured) -> tuple[Status, str | None]:
    """Return the status of an error by itself, and the reason: nothing is known of the graphs."""
    findings = [found for check in ERROR_CHECKS if (found := check(of)) is not None]
    return _decided(of, findings)


def judge_sample(
    context: NodeContext, sample: int, stats: ErrorStats, whole: Status, findings: Sequence[Finding]
) -> Status:
    """Return the status of one sample: a graph that differs does so in all, and shows wherever anything is unequal.

    Args:
        context: The tensor.
        sample: The sample.
        stats: Its error.
        whole: The status of the tensor.
        findings: What was found of the tensor.
    """
    known = context.attribution is not None and context.attribution.arithmetic_unsaturated is not None
    firm = context.reproduced is not None and context.reproduced.firm
    case: Error = context.sample(sample, stats, excused=whole is Status.WITHIN and (firm or not known))
    if any(found.kind is FindingKind.DISTURBED for found in findings) and whole is Status.WITHIN:
        return Status.WITHIN if stats.mismatches else Status.IDENTICAL
    status = judge_error(case)[0]
    differs = any(found.role is FindingRole.DIFFERENCE and _counts(context, found) for found in findings)
    return Status.DIVERGED if differs and status is Status.WITHIN else status


def _decided(of: Measured, findings: Sequence[Finding]) -> tuple[Status, str | None]:
    stats = of.stats
    causes = [found.sentence for found in findings if found.role is FindingRole.CAUSE]
    differences = [found.sentence for found in findings if found.role is FindingRole.DIFFERENCE]
    for found in findings:
        if found.kind is FindingKind.NONFINITE and found.role is FindingRole.BREACH:
            return Status.NONFINITE, ": ".join([found.sentence, *[*differences, *causes][:1]])
    if stats is not None and not stats.mismatches:
        return Status.IDENTICAL, None
    disturbed = next((found for found in findings if found.kind is FindingKind.DISTURBED), None)
    if disturbed is not None and not any(found.kind in _STATED for found in findings):
        return Status.WITHIN, disturbed.sentence
    for found in findings:
        if found.role is FindingRole.DIFFERENCE and _counts(of, found):
            return Status.DIVERGED, found.sentence
    for found in findings:
        if found.role is FindingRole.BREACH and _counts(of, found):
            return Status.DIVERGED, ": ".join([found.sentence, *causes[:1]])
    excuses = [found.sentence for found in findings if found.role in (FindingRole.COST, FindingRole.EXCUSE)]
    return Status.WITHIN, excuses[0] if excuses and not (stats and of.limits.judge_whole(stats)) else None


_STATED = frozenset(
    (FindingKind.WEIGHT, FindingKind.BIAS, FindingKind.CONSTANT, FindingKind.ATTRIBUTE, FindingKind.MISSING_NODE)
)
"""What the graphs and constants state, which recording changes in no case."""


def _counts(of: Measured, found: Finding) -> bool:
    """Tell whether a finding decides under the limits in force."""
    return found.given or of.stats is None or not of.limits.judge_whole(of.stats)


def shortcomings(
    reference: RunInfo, backend: RunInfo, coverage: Coverage, of: ResultTable, *, limits: Limits
) -> tuple[str, ...]:
    """Return a clause for everything that is missing from a comparison and not accepted by the limits.

    Args:
        reference: Facts of the reference run.
        backend: Facts of the backend run.
        coverage: What was compared and what was not.
        of: How compared tensors stand.
        limits: What may be missing.
    """
    found: list[str] = []
    for side, info in (("reference", reference), ("backend", backend)):
        if not info.complete and not limits.allow_partial:
            found.append(f"the {side} recording is incomplete")
        if info.fidelity is Fidelity.DIFFERS and not limits.allow_unfaithful:
            found.append(f"recording changed the result of the {side} run")
    lost = tuple(entry for entry in coverage.unmatched if entry.kind is UnmatchedKind.LOST)
    missed = limits.not_allowed(lost)
    if missed:
        first = missed[0]
        count = f"{plural(len(missed), 'tensor')} {agreeing(len(missed), 'was')}"
        found.append(f"{count} lost to the comparison (the first: {first.side} tensor {first.tensor!r})")
    incomparable = limits.not_allowed(_unheld(of))
    if incomparable:
        first = incomparable[0]
        found.append(
            f"{plural(len(incomparable), 'tensor')} could not be compared (the first: {first.tensor!r}: {first.reason})"
        )
    unjudged = () if of.breaking.any() else limits.not_allowed(_as_lost(_without_judgement(of, failed=False)))
    if len(unjudged) > UNJUDGED_MAX_SHARE * len(of):
        first = unjudged[0]
        found.append(
            f"{len(unjudged)} of {len(of)} tensors were not judged (the first: {first.tensor!r}: {first.reason})"
        )
    failed = [node for node in of.nodes if node.failed_replay]
    replayed = sum(node.judged_by is JudgedBy.REPLAY for node in of.nodes) + len(failed)
    if len(failed) > FAILED_REPLAYS_MAX_SHARE * replayed and limits.not_allowed(_as_lost(failed)):
        found.append(
            f"the replays of {len(failed)} of {replayed} nodes failed (the first: {failed[0].node!r}: "
            f"{failed[0].attribution_note})"
        )
    partial = np.flatnonzero(of.partial)
    if partial.size and not limits.allow_partial:
        node = of[partial[0]]
        more = f" and {partial.size - 1} more" if partial.size > 1 else ""
        found.append(f"{node.note} (tensor {node.tensor!r}{more})")
    return tuple(found)


def _unheld(of: ResultTable) -> tuple[Unmatched, ...]:
    """Return what has a partner and cannot be compared with it."""
    return _as_lost([node for node in of.nodes if node.status is Status.INCOMPARABLE and not is_excused(node)])


def _without_judgement(of: ResultTable, *, failed: bool) -> list[NodeResult]:
    """Return what is within its limit only because nothing tells whether its node is right.

    Args:
        of: How compared tensors stand.
        failed: Whether those whose replay failed are among them.
    """
    within = (node for node in of.nodes if node.status is Status.WITHIN and (failed or not node.failed_replay))
    return [node for node in within if any(map(is_doubt, node.findings))]


def _as_lost(nodes: Sequence[NodeResult]) -> tuple[Unmatched, ...]:
    return tuple(
        Unmatched(side=Side.BACKEND, tensor=node.tensor, kind=UnmatchedKind.LOST, reason=node.reason or "")
        for node in nodes
    )


def _codes_apart(of: ResultTable) -> str:
    """Say where two quantized runs first give other codes for equal inputs."""
    found = [
        (node, each)
        for node in of.nodes
        for each in node.findings
        if (each.kind, each.role) == (FindingKind.ARITHMETIC, FindingRole.NOTE)
    ]
    if not found:
        return ""
    node, first = found[0]
    more = "" if len(found) == 1 else f" {len(found) - 1} more {agreeing(len(found) - 1, 'does')} so."
    return f" Codes differ first at {node.op} {node.node!r}: {first.sentence}.{more}"


def _said_unjudged(of: ResultTable) -> str:
    unjudged = _without_judgement(of, failed=True)
    if not unjudged:
        return ""
    many = len(unjudged)
    return f" {many} of them {agreeing(many, 'was')} not judged (the first: {unjudged[0].tensor!r})."


def _partly(of: ResultTable) -> str:
    """Say how many tensors were judged by a part of them."""
    some = int(np.count_nonzero(of.on("elements")))
    proved = int(np.count_nonzero(of.on("stats") & ~of.having(Status.INCOMPARABLE)))
    text = f" {some} {agreeing(some, 'was')} compared by the elements that both kept, not by all." if some else ""
    return text + (f" {proved} {agreeing(proved, 'was')} judged by hashes or statistics alone." if proved else "")


def _short(of: ResultTable) -> str:
    """Say where values begin that were rounded to a float format of few digits in this run alone."""
    first = next((node for node in of.nodes if node.precision is not None), None)
    if first is None:
        return ""
    name = first.precision
    alike = sum(node.precision == name for node in of.nodes) - 1
    more = f" and of {plural(alike, 'more tensor')}" if alike else ""
    return f" The values of {first.tensor!r}{more} are exactly representable in {name}; the reference's are not."


def _overruled(of: ResultTable) -> str:
    """Name what was found of tensors that are within the limits of the user, which alone decide."""
    deciding = (FindingRole.DIFFERENCE, FindingRole.BREACH)
    found = [
        (node, finding)
        for node in of.nodes
        if node.findings and node.status in (Status.WITHIN, Status.IDENTICAL)
        for finding in node.findings
        if finding.role in deciding
    ]
    if not found:
        return ""
    node, first = found[0]
    text = f" Found within the given limits at {node.op} {node.node!r}: {first.sentence}"
    return text + (f", and {len(found) - 1} more." if len(found) > 1 else ".")


def verdict(
    of: ResultTable,
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
    nonfinite: Nonfinite | None = None,
    remark: str = "",
    cause: Callable[[NodeResult], str | None] | None = None,
) -> Verdict:
    """Sum up compared tensors.

    Args:
        of: How compared tensors stand.
        missing: What `shortcomings` found.
        way: From the worst output to the node whose own error feeds its error, that node last; empty if there is none.
        output: The network output that carries most error, if one was compared; else the last tensor.
        outputs: Names of the network's outputs.
        compounding: Nodes that enlarge error far more than others of their kind.
        accepted: What is missing too and was accepted by the limits: it is said all the same.
        graph: The backend's graph, which may tell what the model calls a node that goes by another name.
        short: Outputs of the network that are beyond their limit while no node is beyond its own, the worst first.
        sole: The node that makes nearly all of the loss of the worst of them; None if there is none.
        costs: What `costs_that_count` found.
        floor: The limit of outputs, in dB.
        contributing: What nodes contribute to the worst of them; None if nobody looked.
        nonfinite: Where a NaN or an infinity is born, and its path; None if that is not known.
        remark: A sentence on the two runs, to be said before all others; "" for none.
        cause: Tells of a node that diverges first why its codes may be wrong; None to leave it out.
    """
    first = of[of.beyond.argmax()] if of.beyond.any() else None
    origin = way[-1] if way else None
    status = _status(of, incomplete=bool(missing), accumulated=bool(short or costs))
    if status is Status.ACCUMULATED:
        origin = costliest(of, costs, contributing, floor)
    sample = None if output is None else _worst_sample(output)
    where, why, loss, told, way_on = _sentence(of, first, origin, graph), "", "", "", ""
    given = None if first is None or graph is None else nan_input(of, first, graph)
    if first is not None and given is not None:
        where = f"{nan_input_sentence(given, first)} {where}"
        first, origin, way = given, given, (given,)
    else:
        told = _said_cause(first, cause)
        way_on = "" if nonfinite is None else _born(of, nonfinite, first, origin)
        why = (f"At {first.op} {first.node!r}, {told}." if first is not None and told else "") + way_on
    if short and graph is not None and floor is not None:
        loss = _accumulated(short, floor, sole) + _said_costs(costs, origin, judged=True)
        loss += _contributed(of, short, contributing, floor) + _fallen(of, short[0], floor, graph)
    else:
        why += _said_costs(costs, origin, judged=False)
    remarks = [remark]
    if graph is not None and (first is not None or short or of.having(Status.INCOMPARABLE).any()):
        remarks.append(_selected(of, graph, [node.tensor for node in short] or outputs))
    if output is not None and not short:
        remarks.append(_at_output(output, sample, outputs, diverged=first is not None))
    remarks += [said(of) for said in (_codes_apart, _said_unjudged, _overruled, _short, _partly)]
    remarks += [_compounded(compounding), _acknowledged(of), _missed(missing, accepted)]
    said = [remark, loss, where, why, *remarks[1:]]
    return Verdict(
        status=status,
        first_divergence=first.node if first else None,
        origin=blamed(origin) if origin else None,
        way=tuple(node.tensor for node in way),
        short=tuple(node.tensor for node in short),
        sentence=" ".join(part.strip() for part in said if part),
        cause=told,
        way_on=way_on.strip(),
        remarks=tuple(part.strip() for part in remarks if part),
        worst_sample=sample,
        compounding=tuple(compounding),
        contributors=() if contributing is None else contributing.nodes,
        together=None if contributing is None else contributing.together,
        nonfinite=nonfinite,
    )


def _said_cause(first: NodeResult | None, cause: Callable[[NodeResult], str | None] | None) -> str:
    """Say why the first divergence may be wrong, if it has no cause yet and one is found; "" otherwise."""
    said = cause(first) if first is not None and cause is not None and _has_no_cause(first) else None
    return said or ""


def _has_no_cause(node: NodeResult) -> bool:
    """Tell whether a node diverges by its arithmetic, and nothing that was found says why."""
    if node.status is not Status.DIVERGED:
        return False
    told = (FindingRole.CAUSE, FindingRole.DIFFERENCE)
    by_itself = any(
        found.kind is FindingKind.ARITHMETIC and found.role is FindingRole.BREACH for found in node.findings
    )
    return by_itself and not any(found.role in told for found in node.findings)


def _missed(missing: Sequence[str], accepted: Sequence[str]) -> str:
    """Say what is missing from a comparison, and what was accepted."""
    text = f" Incomplete: {'; '.join(missing)}." if missing else ""
    return text + (f" Accepted as it is: {'; '.join(accepted)}." if accepted else "")


def verdict_on_different_inputs(
    different: Sequence[NodeResult], missing: Sequence[str], accepted: Sequence[str]
) -> Verdict:
    """Return the verdict on runs that were given different inputs: no node is accused of what these make.

    Args:
        different: The inputs that differ, at least one.
        missing: What `shortcomings` found.
        accepted: What is missing too and was accepted by the limits.
    """
    clause = different_inputs_clause(different)
    sentence = f"{clause[0].upper()}{clause[1:]}. No node is accused: record both runs with the same inputs."
    sentence += _missed(missing, accepted)
    return Verdict(status=Status.INCOMPLETE, first_divergence=None, origin=None, sentence=sentence)


def _accumulated(short: Sequence[NodeResult], floor: float, sole: NodeResult | None) -> str:
    """Say which output is beyond its limit though no node is, and which node makes nearly all of that."""
    level, part = _level(short[0], floor), lost_part(short[0])
    text = f"The output {short[0].tensor!r} has an SQNR of {level} dB, below {floor:g} dB"
    if part is not None:
        text = f"The output {short[0].tensor!r} has an SQNR of {level} dB, but {part.sentence}"
    others = len(short) - 1
    text += f" (and {plural(others, 'more output')})" if others else ""
    if sole is None:
        return f"{text}, though no node is beyond its limit."
    return f"{sole.op} {sole.node!r} makes nearly all of the error. {text}, though no node is beyond its limit."


def _fallen(of: ResultTable, output: NodeResult, floor: float, graph: Graph) -> str:
    """Say where along the net the SQNR falls most on its way to an output."""
    fall = None if lost_part(output) is not None else largest_fall(of, graph, of.rows[output.tensor])
    if fall is None or _level(fall[0], floor) == _level(fall[1], floor):
        return ""
    node, (before, after) = fall[1], (_level(each, floor) for each in fall)
    return f" SQNR falls most at {node.op} {node.node!r}: {before} dB before it, {after} dB after it."


def _said_costs(costs: Sequence[NodeResult], origin: NodeResult | None, *, judged: bool) -> str:
    """Say where codes lose too much, first at the origin; and that no output tells whether it matters, if so."""
    node = next((each for each in costs if each is origin), next(iter(costs), None))
    first = None if node is None else cost_of(node)
    if node is None or first is None:
        return ""
    others = len(costs) - 1
    more = f", and so it is at {plural(others, 'more tensor')}" if others else ""
    text = f" At {node.op} {first.node!r}, {first.sentence}{more}."
    return text if judged else f"{text} No output that it leads to was compared."


def _contributed(of: ResultTable, short: Sequence[NodeResult], contributing: Contributions | None, floor: float) -> str:
    """Name the nodes that contribute most to an output, and say how that is known."""
    if contributing is None:
        return ""
    exact = [each for each in contributing.nodes if each.how == "exact"]
    left = len(contributing.nodes) - len(exact) + contributing.unknown
    others = len(contributing.why) - 1
    why = "".join(contributing.why[:1])
    if others > 0:
        why += f", and {plural(others, 'other reason')}"
    if not exact:
        return f" Which nodes contribute most is not known: {why}." if left else ""
    counting = [each for each in exact if each.sqnr_db < exact[0].sqnr_db + CONTRIBUTOR_MAX_DISTANCE]
    named = ", ".join(_contributor(of, each, floor) for each in counting[:CONTRIBUTORS_NAMED])
    text = f" Costliest nodes, each with the output's SQNR if it alone had an error: {named}"
    if len(counting) == 1:
        text = f" Costliest node, with the output's SQNR if it alone had an error: {named}"
    both = contributing.together if len(counting) > 1 else None
    if both is not None:
        text += f"; if these alone had errors: {_decibels(both.sqnr_db, floor)} dB"
        text += f"; without what they make: {_decibels(both.without_db, floor)} dB"
    text += f".{_worst_of(short, exact[0].output, floor)}"
    return text + (f" The contribution of {left} more is not known: {why}." if left else "")


def _worst_of(short: Sequence[NodeResult], output: str, floor: float) -> str:
    """Name the sample in which an output is worst, of several."""
    samples = next((node.samples for node in short if node.tensor == output), ())
    known = [each for each in samples if each.sqnr_db is not None and not math.isnan(each.sqnr_db)]
    if len(known) < 2:
        return ""
    worst = min(known, key=lambda each: each.sqnr_db or 0.0)
    return f" Sample {worst.sample} is the worst: {_decibels(worst.sqnr_db or 0.0, floor)} dB."


def _contributor(of: ResultTable, entry: Contributor, floor: float) -> str:
    """Name a node with what its error alone leaves of the output, and with both scales where they differ."""
    notes = [each for each in of[of.rows[entry.tensor]].findings if each.role is FindingRole.NOTE]
    scales = "".join(f" ({each.sentence})" for each in notes if each.kind is FindingKind.SCALE and each.limit)
    return f"{entry.node!r} {_decibels(entry.sqnr_db, floor)} dB{scales}"


def _selected(of: ResultTable, graph: Graph, outputs: Sequence[str]) -> str:
    """Say which node above some outputs selects something else than in the reference, by an error within the limits."""
    above = upstream(graph, outputs)
    wrong = downstream(graph, (of[row].tensor for row in np.flatnonzero(of.breaking)))
    found = [
        (node, each.sentence)
        for node in of.nodes
        for each in node.findings
        if each.kind is FindingKind.SELECTION and node.tensor in above and node.tensor not in wrong
    ]
    if not found:
        return ""
    node, said = found[0]
    more = f" So it is at {plural(len(found) - 1, 'more tensor')}." if found[1:] else ""
    return f" At {node.op} {node.node!r}, {said}. That difference is within the limits.{more}"


def _level(node: NodeResult, floor: float) -> str:
    """Write the SQNR of a node's output, told apart from a limit."""
    return "?" if node.metrics is None or node.metrics.sqnr_db is None else _decibels(node.metrics.sqnr_db, floor)


def _decibels(level: float, floor: float) -> str:
    """Write an SQNR in tenths of a dB, or as precisely as it takes to tell it from a limit."""
    rounded = round(level, 1) + 0.0  # no -0
    return f"{rounded:g}" if rounded != floor or level == floor else apart(level, floor)


def _at_output(output: NodeResult, sample: int | None, outputs: Sequence[str], *, diverged: bool) -> str:
    """Say which sample comes out worst at the worst output; or what is left of it where no node is beyond its limit."""
    if not diverged:
        return _left_with(output) if output.tensor in outputs else ""
    many = len(output.samples)
    return f" Of {many} samples, sample {sample} comes out worst at {output.tensor!r}." if many > 1 else ""


def _left_with(output: NodeResult) -> str:
    """Say what is left of the worst output where little is, though no limit that is in force is exceeded."""
    level = None if output.metrics is None else output.metrics.sqnr_db
    if level is None or not level < OUTPUT_MIN_SQNR:
        return ""
    return f" The output {output.tensor!r} is left with an SQNR of {apart(level, OUTPUT_MIN_SQNR)} dB all the same."


def _worst_sample(output: NodeResult) -> int | None:
    """Return the sample with the lowest SQNR, of equals the first; one that is not finite is lower than any number."""
    if not output.samples:
        return None

    def level(sample: SampleResult) -> float:
        if sample.sqnr_db is None:
            return math.inf
        return -math.inf if math.isnan(sample.sqnr_db) else sample.sqnr_db

    return min(output.samples, key=level).sample


def _compounded(compounding: Sequence[Compounding]) -> str:
    if not compounding:
        return ""
    first, others = compounding[0], len(compounding) - 1
    more = f"; so {agreeing(others, 'does')} {plural(others, 'more node')}" if others else ""
    usual = f"the median of {first.op} here is {first.usual:.3g}"
    return f" {first.op} {first.node!r} amplifies the error of its input {first.gain:.3g} times ({usual}){more}."


def _status(of: ResultTable, *, incomplete: bool, accumulated: bool) -> Status:
    for status in (Status.NONFINITE, Status.DIVERGED):
        if (of.having(status) & ~of.excused).any():
            return status
    if of.beyond.any():
        return Status.DIVERGED
    if accumulated:
        return Status.ACCUMULATED
    if incomplete:
        return Status.INCOMPLETE
    return Status.IDENTICAL if of.having(Status.IDENTICAL).all() else Status.WITHIN


def _acknowledged(of: ResultTable) -> str:
    """Say how many tensors count for nothing because somebody accepted them, and for which that is over."""
    excused = np.flatnonzero(of.breaking & of.excused)
    expired = np.flatnonzero(of.beyond & of.accepted)
    text = ""
    if excused.size:
        text += f" {plural(excused.size, 'tensor')} beyond the limit {agreeing(excused.size, 'is')} acknowledged"
        text += f" (the first: {of[excused[0]].tensor!r})."
    if expired.size:
        node = of[expired[0]]
        also = f", and {expired.size - 1} more" if expired.size > 1 else ""
        expires = node.acknowledged.expires if node.acknowledged else None
        text += f" The acknowledgement of {node.tensor!r} expired on {expires}{also}."
    return text


def _born(of: ResultTable, found: Nonfinite, first: NodeResult | None, origin: NodeResult | None) -> str:
    """Say where a NaN or an infinity is born, what selects it there, and how it reaches the outputs."""
    born = found.born
    told = first is not None and any(each.born is born for each in (first, origin) if each is not None)
    text = "" if told else f" At {born.op} {born.node!r}, {born.sentence}."
    if born.selected:
        each = born.selected[0]
        why = f"A difference of {each.difference:.3g} in {each.tensor!r} selects it"
        finite = origin is not None and of.rows[origin.tensor] != found.row
        text += f" {why}{'' if finite else ', and no node beyond its limit explains that'}."
    nodes = [repr(name) for name in found.path]
    if found.left_out:
        middle = len(nodes) // 2
        nodes.insert(middle, f"{found.left_out} more")
    way = f" by way of {', '.join(nodes)}" if len(nodes) > 1 else ""
    if found.output is not None:
        return f"{text} It reaches the output {found.output!r}{way}."
    ends = f"It ends after {nodes[-1]}" if len(nodes) > 1 else "It goes no further"
    stats = None if found.spoilt is None else of[of.rows[found.spoilt]].metrics
    if stats is None or stats.sqnr_db is None:
        return f"{text} {ends} and reaches no output."
    level = _decibels(stats.sqnr_db, OUTPUT_MIN_SQNR)
    return f"{text} {ends}: what reads it makes finite numbers of it. The output {found.spoilt!r} has {level} dB."


def _in_the_model(node: NodeResult, graph: Graph | None) -> str:
    """Say what the model calls a node that runs under another name; "" if it does not, or that is not known."""
    producer = None if graph is None else graph.producer(node.tensor)
    names = () if producer is None else producer.origin
    if not names or node.node in names:
        return ""
    return f" (the model's {names[0]!r}{f' and {len(names) - 1} more' if len(names) > 1 else ''})"


def _sentence(of: ResultTable, first: NodeResult | None, origin: NodeResult | None, graph: Graph | None) -> str:
    """Say how all came out, and where it goes wrong first; and of one sample that there is no other."""
    apart = of.having(Status.INCOMPARABLE)
    incomparable = int(np.count_nonzero(apart))
    count = len(of) - incomparable
    every = "The one compared tensor is" if count == 1 else f"All {count} compared tensors are"
    if first is not None:
        if origin is not None and origin.tensor == first.tensor:
            first = origin
        place = "the input" if first.op == "Input" else f"{first.op} {first.node!r}"
        place += _in_the_model(first, graph)
        text = f"The backend diverges first at {place} (tensor {first.tensor!r}): {first.reason}."
        if any(found.kind is FindingKind.REFERENCE for found in first.findings):
            text = f"The reference is wrong first at {place} (tensor {first.reference_tensor!r}): {first.reason}."
        over = int(np.count_nonzero(of.beyond & ~apart))
        if over or not incomparable:
            text += f" {over} of {count} compared tensors {agreeing(over, 'is')} beyond the limit."
        else:
            text += f" {every} within the limit."
        if origin is not None and origin.node != first.node:
            place = f"{origin.op} {origin.node!r}{_in_the_model(origin, graph)}"
            text += f" The error of the output comes from {place}."
    elif not count:
        text = "No tensor was compared."
    elif of.having(Status.IDENTICAL).all():
        text = f"{every} identical{_one_sample(of)}."
    else:
        excused = int(np.count_nonzero(of.breaking & ~apart))
        within = count - excused
        said = f"{within} of {count} compared tensors {agreeing(within, 'is')}"
        text = f"{said if excused else every} within the limit{_one_sample(of)}."
    if incomparable:
        text += f" {incomparable} could not be compared."
    return text


def _one_sample(of: ResultTable) -> str:
    """Return a clause on the number of samples if one alone was compared; "" if several were, or that is not known."""
    return ", in 1 sample" if len({sample.sample for node in of.nodes for sample in node.samples}) == 1 else ""
