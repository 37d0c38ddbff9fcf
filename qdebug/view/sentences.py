"""What a comparison and its runs say in words: limits, fidelity, coverage, run facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from qdebug.analysis.alignment import Kind, Unmatched
from qdebug.analysis.result import DiffResult, Status
from qdebug.model import Fidelity, RunInfo
from qdebug.view import numbers
from qdebug.view.text import safe_text

__all__ = [
    "benign_reasons",
    "coverage_sentence",
    "fidelity_sentence",
    "limits_sentence",
    "run_facts",
    "status_counts",
    "verdict_sentence",
]

_LIMITS = {
    "min_sqnr": "SQNR at least {} dB",
    "max_lsb": "at most {} LSB",
    "atol": "absolute difference at most {}",
    "rtol": "relative difference at most {}",
}

_FIDELITY = {
    Fidelity.BIT_EQUAL: "bit_equal: the recorded run gave the same outputs as a plain run, bit for bit",
    Fidelity.DIFFERS: "DIFFERS: recording changed the result; what was recorded is another program",
    Fidelity.UNKNOWN: "unknown: nobody compared the recorded run with a plain run",
}


def verdict_sentence(result: DiffResult) -> str:
    """Give the verdict's own sentence, safe to print."""
    return safe_text(result.verdict.sentence)


def limits_sentence(limits: Mapping[str, Any]) -> str:
    """Say which limits decided the verdict and where they came from.

    Args:
        limits: As in the diff JSON: a "source" and the limits by name.
    """
    parts = [text.format(f"{limits[name]:g}") for name, text in _LIMITS.items() if limits.get(name) is not None]
    said = " and ".join(parts) or "none"
    source = safe_text(limits.get("source", "default"), limit=40)
    if source == "default":
        return f"default: {said}; give --min-sqnr, --max-lsb, --atol or --rtol for your own"
    return f"{source}: {said}"


def fidelity_sentence(info: RunInfo) -> str:
    """Say whether recording this run changed its result."""
    text = _FIDELITY[info.fidelity]
    return f"{text} ({safe_text(info.fidelity_detail, limit=300)})" if info.fidelity_detail else text


def run_facts(info: RunInfo) -> str:
    """Say in one line what ran: model, backend, options, taps, and whether it finished."""
    options = ", ".join(f"{key}={value}" for key, value in info.options.items())
    parts = [
        safe_text(info.model, limit=120),
        "on " + safe_text(info.backend, limit=60) + (f" ({safe_text(options, limit=120)})" if options else ""),
        f"taps {safe_text(info.taps, limit=40)}",
    ]
    if not info.complete:
        parts.append("INCOMPLETE")
    return ", ".join(part for part in parts if part)


def status_counts(statuses: Sequence[Status]) -> str:
    """Count results by status, in words: "40 within, 3 diverged"."""
    counts = Counter(statuses)
    order = (
        Status.IDENTICAL,
        Status.WITHIN,
        Status.DIVERGED,
        Status.NONFINITE,
        Status.INCOMPARABLE,
        Status.INCOMPLETE,
    )
    return ", ".join(f"{numbers.grouped(counts[status])} {status}" for status in order if counts[status])


def benign_reasons(unmatched: Sequence[Unmatched]) -> list[tuple[int, str, str]]:
    """Group what was left out on purpose: (how many, side, reason), the largest group first."""
    counts = Counter((str(u.side), u.reason) for u in unmatched if u.kind is Kind.BENIGN)
    return [(many, side, safe_text(reason, limit=300)) for (side, reason), many in counts.most_common()]


def coverage_sentence(result: DiffResult) -> str:
    """Say how many tensors were compared and how many were not."""
    unmatched = result.coverage.unmatched
    lost = sum(1 for u in unmatched if u.kind is Kind.LOST)
    compared = numbers.grouped(result.coverage.compared)
    plural = "tensor" if result.coverage.compared == 1 else "tensors"
    if not unmatched:
        return f"{compared} {plural} compared, none left out"
    benign = len(unmatched) - lost
    parts = [f"{numbers.grouped(benign)} without partner for a benign reason"] if benign else []
    parts.append(f"{numbers.grouped(lost)} LOST" if lost else "none lost")
    return f"{compared} {plural} compared, " + ", ".join(parts)
