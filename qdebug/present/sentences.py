"""Sentences on a comparison and its runs: limits, fidelity, coverage, run facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from qdebug.compare.align.pairs import Unmatched, UnmatchedKind
from qdebug.compare.result.finding import FindingKind, FindingRole
from qdebug.compare.result.node_result import breaks_limit
from qdebug.compare.result.result import Compounding, NodeResult, OutputRanking, RunComparison, Status
from qdebug.compare.timing import Timing
from qdebug.model import Fidelity, RunInfo
from qdebug.model.thresholds.verdict import DERIVED_LSB
from qdebug.plural import plural
from qdebug.present import numbers
from qdebug.present.text import QUOTED, safe_text

__all__ = [
    "WAYS",
    "acknowledged_sentences",
    "arithmetic_sentence",
    "benign_count",
    "benign_reasons",
    "compounding_sentences",
    "coverage_sentence",
    "fidelity_sentence",
    "found_sentences",
    "judged_clauses",
    "limits_sentence",
    "processor_sentence",
    "ranking_clause",
    "ranking_sentence",
    "ranking_sentences",
    "rounding_sentence",
    "run_facts",
    "samples_sentence",
    "status_counts",
    "timing_sentence",
    "verdict_sentence",
    "winners_clause",
]

WAYS = "--min-sqnr, --max-lsb, --atol or --rtol"
"""How to set limits on the command line."""

_LIMIT_TEXTS = {
    "min_sqnr": "SQNR at least {} dB",
    "max_lsb": "at most {} LSB",
}

_OPTIONS_SHOWN = 3
"""Number of options of a run that a comparison repeats. `qdebug info` shows all of them."""

_RANKINGS_SHOWN = 10
_COMPOUNDING_SHOWN = 5

_ARITHMETICS_SHOWN = 3

_CONSTANT = "constant"
"""Why a tensor that is not the result of a node has no partner."""

_REPRODUCED = ", more if a known arithmetic reproduces it"


_FIDELITY_TEXTS = {
    Fidelity.BIT_EQUAL: "bit_equal: recording did not change the result",
    Fidelity.DIFFERS: "DIFFERS: recording changed the result",
    Fidelity.NONDETERMINISTIC: "NONDETERMINISTIC: results of the backend change from run to run, recorded or not",
    Fidelity.UNKNOWN: "unknown: whether recording changed the result was not checked",
}


_VERDICT_LIMIT = 10_000
"""Maximum number of characters of a verdict, which consists of several sentences with names."""


def verdict_sentence(result: RunComparison) -> str:
    """Return the verdict's own sentence, safe to print."""
    return safe_text(result.verdict.sentence, limit=_VERDICT_LIMIT)


def limits_sentence(limits: Mapping[str, Any], *, ways: str = WAYS) -> str:
    """Return which limits decided the verdict and where they came from.

    Args:
        limits: As in the diff JSON: a "source" and the limits by name.
        ways: How the reader can set other limits.
    """
    parts = [text.format(f"{limits[name]:g}") for name, text in _LIMIT_TEXTS.items() if limits.get(name) is not None]
    atol, rtol = limits.get("atol"), limits.get("rtol")
    if atol is not None or rtol is not None:
        relative = "" if rtol is None else f" + {rtol:g} * abs(reference)"
        parts.append(f"absolute difference at most {atol or 0:g}{relative}")
    if limits.get("max_saturation") is not None:
        parts.append(f"at most {numbers.percent(limits['max_saturation'], 1)} of values clipped")
    if limits.get("source") != "derived" and limits.get("min_output_sqnr") is not None:
        parts.append(f"SQNR of each output at least {limits['min_output_sqnr']:g} dB")
    limits_text = " and ".join(parts) or "none"
    source = safe_text(limits.get("source", "default"), limit=40)
    if source == "derived" and "file" in limits:
        return f"derived from each node's own arithmetic{', and ' + limits_text if parts else ''}{_file_clause(limits)}"
    if source == "derived":
        steps = limits.get("introduced_lsb", DERIVED_LSB)
        return (
            f"derived: {steps:g} LSB for each quantized node, clipping apart"
            f"{_REPRODUCED if limits.get('reproduced_is_within') else ''}; the rounding error of its sums for each "
            f"float node; {limits.get('min_output_sqnr', 0):g} dB for each output; {ways} set your own (qdebug help "
            "limits)"
        )
    if source == "default":
        return f"default: {limits_text}; {ways} set your own"
    return f"{source}: {limits_text}{_file_clause(limits)}"


def _file_clause(limits: Mapping[str, Any]) -> str:
    """Return a clause about the rules that a limits file adds, or "" if there is no file."""
    if "file" not in limits:
        return ""
    rules, acknowledged = len(limits.get("rules", ())), limits.get("acknowledged", ())
    expired = sum(bool(entry.get("expired")) for entry in acknowledged)
    clauses = [f"{plural(rules, 'rule')} for single tensors"] if rules else []
    logits = len(limits.get("logits", ()))
    clauses += [f"{plural(logits, 'rule')} for logits"] if logits else []
    if acknowledged:
        clauses.append(
            f"{plural(len(acknowledged), 'node')} acknowledged" + (f" ({expired} expired)" if expired else "")
        )
    return f"; {', '.join(clauses) or 'nothing more'} in {safe_text(limits['file'], limit=200)}"


def fidelity_sentence(info: RunInfo) -> str:
    """Return whether recording this run changed its result, as a sentence."""
    text = _FIDELITY_TEXTS[info.fidelity]
    if not info.fidelity_detail:
        return text
    detail = safe_text(info.fidelity_detail, limit=300)
    return f"bit_equal: {detail}" if info.fidelity is Fidelity.BIT_EQUAL else f"{text} ({detail})"


def run_facts(info: RunInfo) -> str:
    """Return the facts of a run in one line: model, backend, options, taps, and whether it finished."""
    options_of_run = [f"{key}={value}" for key, value in info.options.items()]
    options = ", ".join([*options_of_run[:_OPTIONS_SHOWN], *(["..."] if len(options_of_run) > _OPTIONS_SHOWN else [])])
    parts = [
        safe_text(info.model, limit=120),
        "on " + safe_text(info.backend, limit=60) + (f" ({safe_text(options, limit=120)})" if options else ""),
        f"taps {safe_text(info.taps, limit=40)}",
    ]
    if not info.complete:
        parts.append("INCOMPLETE")
    return ", ".join(part for part in parts if part)


def processor_sentence(reference: RunInfo, backend: RunInfo) -> str | None:
    """Return which instruction sets only one of two runs had; None if they are the same or not recorded."""
    first, second = reference.cpu_flags, backend.cpu_flags
    if not first or not second or set(first) == set(second):
        return None
    sides = (("reference", first, second), ("backend", second, first))
    clauses = []
    for side, flags, other_flags in sides:
        only = [flag for flag in flags if flag not in other_flags]
        if only:
            clauses.append(f"only the {side}'s has {safe_text(', '.join(only), limit=200)}")
    return "; ".join(clauses)


def samples_sentence(nodes: Sequence[NodeResult]) -> str:
    """Return which samples the comparison covers, or "" if unknown."""
    samples = sorted({sample.sample for node in nodes for sample in node.samples})
    if len(samples) > 1:
        return f"{numbers.grouped(len(samples))}, judged together"
    return f"sample {samples[0]} alone" if samples else ""


def ranking_sentences(outputs: Sequence[OutputRanking]) -> list[str]:
    """Return, for each output that may hold scores, whether its winner is the same, up to a maximum number."""
    lines = [ranking_sentence(output) for output in outputs[:_RANKINGS_SHOWN]]
    hidden_count = len(outputs) - len(lines)
    return [*lines, f"{numbers.grouped(hidden_count)} more outputs; the JSON has them all"] if hidden_count else lines


def ranking_sentence(output: OutputRanking) -> str:
    """Return whether both sides have the same winner in one output, assuming that it holds scores."""
    return f"{safe_text(output.tensor, limit=120)}, if these are scores: {ranking_clause(output)}"


def ranking_clause(output: OutputRanking) -> str:
    """Return whether the winner of an output's scores is the same, without the output's name."""
    if output.top1_agreement is None or output.worst_rank is None:
        return "not ranked, because the reference has no winner (a NaN, or all entries equal)"
    parts = [f"top-1 agreement {_count_of(output.top1_agreement, output.samples)}"]
    if output.top5_agreement is not None:
        parts[0] += f", top-5 {_count_of(output.top5_agreement, output.samples)}"
    if output.worst_rank:
        others_text = (
            "1 other entry scores" if output.worst_rank == 1 else f"{numbers.grouped(output.worst_rank)} others score"
        )
        parts.append(f"worst in sample {output.worst_sample}: {others_text} at least as high as the reference's winner")
    if output.tied:
        parts.append(f"ties in {numbers.grouped(output.tied)}")
    if output.unranked:
        parts.append(f"{numbers.grouped(output.unranked)} more have no winner in the reference")
    parts += [clause] if (clause := divergence_clause(output)) else []
    return "; ".join(parts)


def divergence_clause(output: OutputRanking) -> str:
    """Return how much the distributions of an output differ, or "" if it is not assumed to hold logits."""
    if output.kl is None:
        return ""
    text = f"KL {numbers.metric('kl', output.kl)} nats (worst {numbers.metric('worst_kl', output.worst_kl)} in sample "
    text += f"{output.worst_kl_sample}), log-probability RMS {numbers.metric('logprob_rms', output.logprob_rms)} nats"
    if output.top5_overlap is not None:
        text += f", top-5 overlap {numbers.percent(output.top5_overlap, 1)}"
    return text


def winners_clause(output: OutputRanking) -> str:
    """Return for how many score vectors the winner is the same and, for logits, how much the distributions differ."""
    text = "no winner in the reference"
    if output.top1_agreement is not None:
        text = f"top-1 agrees in {_count_of(output.top1_agreement, output.samples)}"
    if output.kl is not None:
        text += f", KL {numbers.metric('kl', output.kl)} nats"
    return text


def _count_of(share: float, samples: int) -> str:
    return f"{numbers.grouped(round(share * samples))} of {numbers.grouped(samples)}"


def acknowledged_sentences(nodes: Sequence[NodeResult]) -> list[str]:
    """Return a sentence for each acknowledged node beyond its limit, with the reason and the expiry date."""
    lines = []
    for node in nodes:
        entry = node.acknowledged
        if entry is None or not (breaks_limit(node) or node.status is Status.INCOMPARABLE):
            continue
        until = "" if entry.expires is None else f" ({'expired on' if entry.expired else 'until'} {entry.expires})"
        reason = safe_text(entry.reason, limit=300)
        lines.append(f"acknowledged{until} #{node.index} {safe_text(node.node, limit=120)}: {reason}")
    return lines


_KINDS_NAMED_ELSEWHERE = (FindingKind.PRECISION, FindingKind.ROUNDING)
"""Kinds of findings whose notes are part of the verdict or of `rounding_sentence`."""


def found_sentences(nodes: Sequence[NodeResult], *, max_sentences: int = 8) -> list[str]:
    """Return the findings on nodes within their limits: those overruled by the user's limits, and notes.

    Notes on short float formats and on rounding are left out, because other sentences contain them.

    Args:
        nodes: The results.
        max_sentences: Maximum number of sentences, besides one that counts the others.
    """
    lines: list[str] = []
    dead_nodes: list[NodeResult] = []
    hidden_count = 0
    for node in nodes:
        if node.status not in (Status.WITHIN, Status.IDENTICAL):
            continue
        for finding in node.findings:
            is_note = finding.role not in (FindingRole.DIFFERENCE, FindingRole.BREACH)
            if finding.role is FindingRole.OUTPUT or (is_note and finding.kind in _KINDS_NAMED_ELSEWHERE):
                continue
            if finding.role is FindingRole.NOTE and finding.kind is FindingKind.DEAD_ZONE:
                dead_nodes.append(node)
                continue
            if len(lines) == max_sentences:
                hidden_count += 1
                continue
            prefix = "note" if is_note else "is within the given limits, but has a finding"
            name = f"#{node.index} {safe_text(node.node, limit=120)}"
            text = safe_text(finding.sentence, limit=300)
            lines.append(f"{prefix}: {name}: {text}" if is_note else f"{name} {prefix}: {text}")
    if dead_nodes:
        first = safe_text(dead_nodes[0].node, limit=120)
        count_text = (
            f"{numbers.grouped(len(dead_nodes))} {'node has' if len(dead_nodes) == 1 else 'nodes have'} channels"
        )
        place_text = f"the first #{dead_nodes[0].index} {first}; --node shows which"
        lines.append(f"note: {count_text} that round to zero entirely, {place_text}")
    return [*lines, f"{numbers.grouped(hidden_count)} more findings; -f json has them all"] if hidden_count else lines


def rounding_sentence(nodes: Sequence[NodeResult]) -> str | None:
    """Return where rounding first differs from the reference's, and at how many more nodes, or None if nowhere."""
    findings = [
        (node, finding)
        for node in nodes
        for finding in node.findings
        if finding.kind is FindingKind.ROUNDING and finding.role is FindingRole.NOTE
    ]
    if not findings:
        return None
    node, finding = findings[0]
    place_text = f"#{node.index} {safe_text(node.node, limit=120)}"
    more_text = "" if len(findings) == 1 else f"; {numbers.counted(len(findings) - 1, 'more node')} of this kind"
    return f"rounding differs first at {place_text}: {safe_text(finding.sentence, limit=300)}{more_text}"


def status_counts(statuses: Sequence[Status]) -> str:
    """Count results by status, in words: "40 within, 3 diverged"."""
    counts = Counter(statuses)
    order = (
        Status.IDENTICAL,
        Status.WITHIN,
        Status.ACCUMULATED,
        Status.DIVERGED,
        Status.NONFINITE,
        Status.INCOMPARABLE,
        Status.INCOMPLETE,
    )
    return ", ".join(f"{numbers.grouped(counts[status])} {status}" for status in order if counts[status])


def arithmetic_sentence(nodes: Sequence[NodeResult]) -> str | None:
    """Return which arithmetic reproduces the quantized nodes that differ, or None if none was searched for.

    The most common arithmetics come first, then the number of nodes that no known arithmetic reproduces.
    """
    examined_nodes = [node for node in nodes if node.reproduced is not None]
    if not examined_nodes:
        return None
    counts_by_arithmetic = Counter(node.explained for node in examined_nodes if node.explained is not None)
    unexplained_count = sum(not node.reproduced for node in examined_nodes)
    total = numbers.grouped(len(examined_nodes))
    common_arithmetics = counts_by_arithmetic.most_common(_ARITHMETICS_SHOWN)
    parts = [
        f"{numbers.grouped(node_count)} {'node' if node_count == 1 else 'nodes'}: {safe_text(arithmetic)}"
        for arithmetic, node_count in common_arithmetics
    ]
    other_count = sum(counts_by_arithmetic.values()) - sum(node_count for _, node_count in common_arithmetics)
    if other_count:
        ways = len(counts_by_arithmetic) - _ARITHMETICS_SHOWN
        parts.append(f"{numbers.grouped(other_count)} in {ways} other {'way' if ways == 1 else 'ways'}")
    if unexplained_count:
        parts.append(f"{numbers.grouped(unexplained_count)} unexplained")
    reproduced_count = numbers.grouped(len(examined_nodes) - unexplained_count)
    summary = f"{reproduced_count} of {total} differing quantized nodes reproduced bit for bit"
    return f"{summary}: {'; '.join(parts)}"


def compounding_sentences(compounding: Sequence[Compounding]) -> list[str]:
    """Return a sentence for each node that amplifies errors unusually, up to a maximum number."""
    lines = [
        f"{safe_text(entry.op, limit=60)} {safe_text(entry.node, limit=120)} amplifies the error of its input "
        f"{numbers.number(entry.gain)} times; the median of {numbers.grouped(entry.nodes)} "
        f"{safe_text(entry.op, limit=60)} nodes is "
        f"{numbers.number(entry.usual)}"
        for entry in compounding[:_COMPOUNDING_SHOWN]
    ]
    hidden_count = len(compounding) - len(lines)
    return [*lines, f"{numbers.grouped(hidden_count)} more nodes; the JSON has them all"] if hidden_count else lines


def timing_sentence(timing: Timing) -> str:
    """Return how long the parts of a comparison took, as a sentence."""
    plural = "tensor" if timing.tensors == 1 else "tensors"
    return (
        f"{numbers.number(timing.comparing)} s to read and compare {numbers.grouped(timing.tensors)} {plural}, "
        f"{numbers.number(timing.replaying)} s to replay nodes"
    )


def benign_reasons(unmatched: Sequence[Unmatched]) -> list[tuple[int, str, str]]:
    """Group the tensors that were left out on purpose by reason: (count, side, reason), largest group first.

    Reasons that differ only in quoted names form one group, which shows the first name.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for entry in unmatched:
        if entry.kind is UnmatchedKind.BENIGN:
            groups.setdefault((str(entry.side), QUOTED.sub("''", entry.reason)), []).append(entry.reason)
    rows = []
    for (side, _), reasons in sorted(groups.items(), key=lambda group: -len(group[1])):
        other_count = len(set(reasons)) - 1
        others_text = f"; {numbers.grouped(other_count)} more of this kind" if other_count else ""
        rows.append((len(reasons), side, safe_text(reasons[0], limit=300) + others_text))
    return rows


def pair_words(result: NodeResult) -> str:
    """Return how a pair was matched, its confidence if that is below 1, and the reason."""
    confidence_text = "" if result.confidence == 1 else f", confidence {result.confidence:.2f}"
    return f"{result.match}{confidence_text}: {result.match_reason}"


def benign_count(unmatched: Sequence[Unmatched]) -> int:
    """Count the tensors that are expected to have no partner, except constants."""
    return sum(1 for entry in unmatched if entry.kind is UnmatchedKind.BENIGN and not entry.constant)


def coverage_sentence(result: RunComparison) -> str:
    """Return how many tensors were compared and how many were not, as a sentence."""
    unmatched = result.coverage.unmatched
    lost_count = sum(1 for u in unmatched if u.kind is UnmatchedKind.LOST)
    compared_count = numbers.grouped(result.coverage.compared)
    plural = "tensor" if result.coverage.compared == 1 else "tensors"
    judged_text = "".join(f", {clause}" for clause in judged_clauses(result))
    samples = result.coverage.samples
    if samples:
        judged_text = f" in {numbers.grouped(samples)} {'sample' if samples == 1 else 'samples'}{judged_text}"
    if not unmatched:
        return f"{compared_count} {plural} compared{judged_text}, none left out"
    constants = sum(1 for u in unmatched if u.kind is not UnmatchedKind.LOST and u.constant)
    benign_total = benign_count(unmatched)
    parts = [f"{numbers.grouped(benign_total)} unmatched for a known reason"] if benign_total else []
    if constants:
        parts.append(f"{numbers.grouped(constants)} {'constant' if constants == 1 else 'constants'} skipped")
    parts.append(f"{numbers.grouped(lost_count)} LOST" if lost_count else "none lost")
    return f"{compared_count} {plural} compared{judged_text}, " + ", ".join(parts)


def judged_clauses(result: RunComparison) -> list[str]:
    """Return how many tensors were judged in each way, one clause per way; empty if all tensors are identical.

    A replay counts as failed only if the node has a kernel and recorded inputs.
    """
    counts = result.coverage.judged
    if result.status is Status.IDENTICAL:
        return []
    clauses = [f"{numbers.grouped(counts.by_replay)} judged by replay"]
    if counts.by_whole_error:
        clauses.append(f"{numbers.grouped(counts.by_whole_error)} by their whole error")
    if counts.not_judged:
        clauses.append(f"{numbers.grouped(counts.not_judged)} not judged")
    if counts.failed_replays:
        failed_count = counts.failed_replays
        clauses.append(f"{numbers.grouped(failed_count)} {'replay' if failed_count == 1 else 'replays'} FAILED")
    return clauses
