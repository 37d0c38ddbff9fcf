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
    "ranking_clause",
    "ranking_sentence",
    "ranking_sentences",
    "run_facts",
    "samples_sentence",
    "status_counts",
    "timing_sentence",
    "verdict_sentence",
    "winners_clause",
]

WAYS = "--min-sqnr, --max-lsb, --atol or --rtol"
"""How to set limits on the command line."""

_LIMITS = {
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


_FIDELITY = {
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
    parts = [text.format(f"{limits[name]:g}") for name, text in _LIMITS.items() if limits.get(name) is not None]
    atol, rtol = limits.get("atol"), limits.get("rtol")
    if atol is not None or rtol is not None:
        relative = "" if rtol is None else f" + {rtol:g} * abs(reference)"
        parts.append(f"absolute difference at most {atol or 0:g}{relative}")
    if limits.get("max_saturation") is not None:
        parts.append(f"at most {numbers.percent(limits['max_saturation'], 1)} of values clipped")
    if limits.get("source") != "derived" and limits.get("min_output_sqnr") is not None:
        parts.append(f"SQNR of each output at least {limits['min_output_sqnr']:g} dB")
    said = " and ".join(parts) or "none"
    source = safe_text(limits.get("source", "default"), limit=40)
    if source == "derived" and "file" in limits:
        return f"derived from each node's own arithmetic{', and ' + said if parts else ''}{_from_file(limits)}"
    if source == "derived":
        steps = limits.get("introduced_lsb", DERIVED_LSB)
        return (
            f"derived: {steps:g} LSB for each quantized node, clipping apart"
            f"{_REPRODUCED if limits.get('reproduced_is_within') else ''}; the rounding error of its sums for each "
            f"float node; {limits.get('min_output_sqnr', 0):g} dB for each output; {ways} set your own (qdebug help "
            "limits)"
        )
    if source == "default":
        return f"default: {said}; {ways} set your own"
    return f"{source}: {said}{_from_file(limits)}"


def _from_file(limits: Mapping[str, Any]) -> str:
    """Return the limits that a file adds, in words, or "" if there are none."""
    if "file" not in limits:
        return ""
    rules, acknowledged = len(limits.get("rules", ())), limits.get("acknowledged", ())
    expired = sum(bool(entry.get("expired")) for entry in acknowledged)
    said = [f"{plural(rules, 'rule')} for single tensors"] if rules else []
    if acknowledged:
        said.append(f"{plural(len(acknowledged), 'node')} acknowledged" + (f" ({expired} expired)" if expired else ""))
    return f"; {' and '.join(said) or 'nothing more'} in {safe_text(limits['file'], limit=200)}"


def fidelity_sentence(info: RunInfo) -> str:
    """Return whether recording this run changed its result, as a sentence."""
    text = _FIDELITY[info.fidelity]
    if not info.fidelity_detail:
        return text
    detail = safe_text(info.fidelity_detail, limit=300)
    return f"bit_equal: {detail}" if info.fidelity is Fidelity.BIT_EQUAL else f"{text} ({detail})"


def run_facts(info: RunInfo) -> str:
    """Return the facts of a run in one line: model, backend, options, taps, and whether it finished."""
    said = [f"{key}={value}" for key, value in info.options.items()]
    options = ", ".join([*said[:_OPTIONS_SHOWN], *(["..."] if len(said) > _OPTIONS_SHOWN else [])])
    parts = [
        safe_text(info.model, limit=120),
        "on " + safe_text(info.backend, limit=60) + (f" ({safe_text(options, limit=120)})" if options else ""),
        f"taps {safe_text(info.taps, limit=40)}",
    ]
    if not info.complete:
        parts.append("INCOMPLETE")
    return ", ".join(part for part in parts if part)


def samples_sentence(nodes: Sequence[NodeResult]) -> str:
    """Return which samples the comparison covers, or "" if unknown."""
    seen = sorted({sample.sample for node in nodes for sample in node.samples})
    if len(seen) > 1:
        return f"{numbers.grouped(len(seen))}, judged together"
    return f"sample {seen[0]} alone" if seen else ""


def ranking_sentences(outputs: Sequence[OutputRanking]) -> list[str]:
    """Return, for each output that may hold scores, whether its winner is the same, up to a maximum number."""
    said = [ranking_sentence(output) for output in outputs[:_RANKINGS_SHOWN]]
    more = len(outputs) - len(said)
    return [*said, f"{numbers.grouped(more)} more outputs; the JSON has them all"] if more else said


def ranking_sentence(output: OutputRanking) -> str:
    """Return whether the reference's winner is the backend's in one output, if it holds scores."""
    return f"{safe_text(output.tensor, limit=120)}, if these are scores: {ranking_clause(output)}"


def ranking_clause(output: OutputRanking) -> str:
    """Return whether the winner of an output's scores is the same, without the output's name."""
    if output.top1_agreement is None or output.worst_rank is None:
        return "not ranked, because the reference has no winner (a NaN, or all entries equal)"
    parts = [f"top-1 agreement {_of(output.top1_agreement, output.samples)}"]
    if output.top5_agreement is not None:
        parts[0] += f", top-5 {_of(output.top5_agreement, output.samples)}"
    if output.worst_rank:
        others = (
            "1 other entry scores" if output.worst_rank == 1 else f"{numbers.grouped(output.worst_rank)} others score"
        )
        parts.append(f"worst in sample {output.worst_sample}: {others} at least as high as the reference's winner")
    if output.tied:
        parts.append(f"ties in {numbers.grouped(output.tied)}")
    if output.unranked:
        parts.append(f"{numbers.grouped(output.unranked)} more have no winner in the reference")
    return "; ".join(parts)


def winners_clause(output: OutputRanking) -> str:
    """Return for how many score vectors the winner is the same."""
    if output.top1_agreement is None:
        return "no winner in the reference"
    return f"top-1 agrees in {_of(output.top1_agreement, output.samples)}"


def _of(share: float, samples: int) -> str:
    return f"{numbers.grouped(round(share * samples))} of {numbers.grouped(samples)}"


def acknowledged_sentences(nodes: Sequence[NodeResult]) -> list[str]:
    """Return a sentence for each acknowledged node beyond its limit, with the reason and the expiry date."""
    said = []
    for node in nodes:
        entry = node.acknowledged
        if entry is None or not (breaks_limit(node) or node.status is Status.INCOMPARABLE):
            continue
        until = "" if entry.expires is None else f" ({'expired on' if entry.expired else 'until'} {entry.expires})"
        reason = safe_text(entry.reason, limit=300)
        said.append(f"acknowledged{until} #{node.index} {safe_text(node.node, limit=120)}: {reason}")
    return said


def found_sentences(nodes: Sequence[NodeResult], *, most: int = 8) -> list[str]:
    """Return the findings on nodes within their limits: those overruled by the user's limits, and notes.

    Short formats are left out, because the verdict names them.

    Args:
        nodes: The results.
        most: Maximum number of sentences, besides one that counts the others.
    """
    said: list[str] = []
    dead: list[NodeResult] = []
    more = 0
    for node in nodes:
        if node.status not in (Status.WITHIN, Status.IDENTICAL):
            continue
        for found in node.findings:
            note = found.role not in (FindingRole.DIFFERENCE, FindingRole.BREACH)
            if found.role is FindingRole.OUTPUT or (note and found.kind is FindingKind.PRECISION):
                continue  # already in the verdict
            if found.role is FindingRole.NOTE and found.kind is FindingKind.DEAD_ZONE:
                dead.append(node)
                continue
            if len(said) == most:
                more += 1
                continue
            about = "note" if note else "is within the given limits, but has a finding"
            name = f"#{node.index} {safe_text(node.node, limit=120)}"
            text = safe_text(found.sentence, limit=300)
            said.append(f"{about}: {name}: {text}" if note else f"{name} {about}: {text}")
    if dead:
        first = safe_text(dead[0].node, limit=120)
        lost = f"{numbers.grouped(len(dead))} {'node has' if len(dead) == 1 else 'nodes have'} channels"
        where = f"the first #{dead[0].index} {first}; --node shows which"
        said.append(f"note: {lost} that round to zero entirely, {where}")
    return [*said, f"{numbers.grouped(more)} more findings; -f json has them all"] if more else said


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
    looked = [node for node in nodes if node.reproduced is not None]
    if not looked:
        return None
    by = Counter(node.explained for node in looked if node.explained is not None)
    left = sum(not node.reproduced for node in looked)
    total = numbers.grouped(len(looked))
    shown = by.most_common(_ARITHMETICS_SHOWN)
    parts = [f"{numbers.grouped(many)} {'node' if many == 1 else 'nodes'}: {safe_text(said)}" for said, many in shown]
    others = sum(by.values()) - sum(many for _, many in shown)
    if others:
        ways = len(by) - _ARITHMETICS_SHOWN
        parts.append(f"{numbers.grouped(others)} in {ways} other {'way' if ways == 1 else 'ways'}")
    if left:
        parts.append(f"{numbers.grouped(left)} unexplained")
    done = f"{numbers.grouped(len(looked) - left)} of {total} differing quantized nodes reproduced bit for bit"
    return f"{done}: {'; '.join(parts)}"


def compounding_sentences(compounding: Sequence[Compounding]) -> list[str]:
    """Return a sentence for each node that compounds errors, with the amount, up to a maximum number."""
    said = [
        f"{safe_text(entry.op, limit=60)} {safe_text(entry.node, limit=120)} amplifies the error of its input "
        f"{numbers.number(entry.gain)} times; the median of {numbers.grouped(entry.nodes)} "
        f"{safe_text(entry.op, limit=60)} nodes is "
        f"{numbers.number(entry.usual)}"
        for entry in compounding[:_COMPOUNDING_SHOWN]
    ]
    more = len(compounding) - len(said)
    return [*said, f"{numbers.grouped(more)} more nodes; the JSON has them all"] if more else said


def timing_sentence(timing: Timing) -> str:
    """Return how the time of a comparison was spent, as a sentence."""
    plural = "tensor" if timing.tensors == 1 else "tensors"
    return (
        f"{numbers.number(timing.comparing)} s to read and compare {numbers.grouped(timing.tensors)} {plural}, "
        f"{numbers.number(timing.replaying)} s to replay nodes"
    )


def benign_reasons(unmatched: Sequence[Unmatched]) -> list[tuple[int, str, str]]:
    """Group the tensors that were left out on purpose: (count, side, reason), largest group first.

    Reasons that differ only in quoted names form one group, which shows the first name.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for entry in unmatched:
        if entry.kind is UnmatchedKind.BENIGN:
            groups.setdefault((str(entry.side), QUOTED.sub("''", entry.reason)), []).append(entry.reason)
    found = []
    for (side, _), reasons in sorted(groups.items(), key=lambda group: -len(group[1])):
        others = len(set(reasons)) - 1
        also = f"; {numbers.grouped(others)} more of this kind" if others else ""
        found.append((len(reasons), side, safe_text(reasons[0], limit=300) + also))
    return found


def pair_words(result: NodeResult) -> str:
    """Return how a pair was made, with its layout change, and its confidence unless that is full."""
    sure = "" if result.confidence == 1 else f", confidence {result.confidence:.2f}"
    return f"{result.match}{sure}: {result.match_reason}"


def benign_count(unmatched: Sequence[Unmatched]) -> int:
    """Count the tensors that have no partner as expected. Constants do not count as tensors of a run."""
    return sum(1 for entry in unmatched if entry.kind is UnmatchedKind.BENIGN and not entry.constant)


def coverage_sentence(result: RunComparison) -> str:
    """Return how many tensors were compared and how many were not, as a sentence."""
    unmatched = result.coverage.unmatched
    lost = sum(1 for u in unmatched if u.kind is UnmatchedKind.LOST)
    compared = numbers.grouped(result.coverage.compared)
    plural = "tensor" if result.coverage.compared == 1 else "tensors"
    judged = "".join(f", {clause}" for clause in judged_clauses(result))
    samples = result.coverage.samples
    if samples:
        judged = f" in {numbers.grouped(samples)} {'sample' if samples == 1 else 'samples'}{judged}"
    if not unmatched:
        return f"{compared} {plural} compared{judged}, none left out"
    constants = sum(1 for u in unmatched if u.kind is not UnmatchedKind.LOST and u.constant)
    benign = benign_count(unmatched)
    parts = [f"{numbers.grouped(benign)} unmatched for a known reason"] if benign else []
    if constants:
        parts.append(f"{numbers.grouped(constants)} {'constant' if constants == 1 else 'constants'} skipped")
    parts.append(f"{numbers.grouped(lost)} LOST" if lost else "none lost")
    return f"{compared} {plural} compared{judged}, " + ", ".join(parts)


def judged_clauses(result: RunComparison) -> list[str]:
    """Return how many tensors were judged by which means, one clause each, or empty if all are equal.

    Only a node with a kernel and recorded inputs counts as a failed replay.
    """
    judged = result.coverage.judged
    if result.status is Status.IDENTICAL:
        return []
    found = [f"{numbers.grouped(judged.by_replay)} judged by replay"]
    if judged.by_whole_error:
        found.append(f"{numbers.grouped(judged.by_whole_error)} by their whole error")
    if judged.not_judged:
        found.append(f"{numbers.grouped(judged.not_judged)} not judged")
    if judged.failed_replays:
        many = judged.failed_replays
        found.append(f"{numbers.grouped(many)} {'replay' if many == 1 else 'replays'} FAILED")
    return found
