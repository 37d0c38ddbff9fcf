"""The wording and cells of a probe, for the terminal report and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from qdebug.arithmetic.fingerprints import FingerprintComparison
from qdebug.arithmetic.presets import known_presets
from qdebug.plural import agreeing
from qdebug.present import numbers
from qdebug.present.explained import share
from qdebug.present.text import safe_text
from qdebug.probe.run import ProbeEntry, ProbeResult

__all__ = [
    "KIND_TITLES",
    "PRESET_TITLES",
    "ROUNDING_TITLES",
    "comparison_headline",
    "comparison_rows",
    "headline",
    "kind_rows",
    "notes",
    "preset_rows",
    "rounding_rows",
]

KIND_TITLES = ("class", "match", "status", "nodes of kind", "arithmetic", "runner-up", "known as")
"""Headings of the table of kinds."""
PRESET_TITLES = ("arithmetic", "fits", "conflicts", "how it is known")
"""Headings of the table of presets."""
ROUNDING_TITLES = ("status", "operator", "format", "rounding")
"""Headings of the table of float roundings."""

_PRESETS_SHOWN = 5
_LIST_LIMIT = 140


def headline(result: ProbeResult) -> str:
    """Return one sentence that names the known arithmetic that the backend uses, if any, and counts float roundings."""
    rounded = [entry for entry in result.roundings if entry.status != "not_run"]
    named_count = sum(entry.status == "explained" for entry in rounded)
    roundings_text = f"roundings of {named_count} of {len(rounded)} float operators named" if rounded else ""
    ran = [entry for entry in result.entries if entry.status in ("explained", "mixed", "unexplained")]
    if not ran:
        return roundings_text or "no probe could be run and explained"
    return "; ".join(filter(None, (_kinds_headline(result, ran), roundings_text)))


def _kinds_headline(result: ProbeResult, ran: Sequence[ProbeEntry]) -> str:
    """Return the part of the headline on quantized nodes.

    Args:
        result: The result.
        ran: The kinds that ran on codes.
    """
    explained_count = sum(entry.status != "unexplained" for entry in ran)
    count_text = f"{explained_count} of {len(ran)} kinds of node reproduced bit for bit"
    consistent_scores = [score for score in result.scores if score.stands]
    if not consistent_scores:
        return f"{count_text}; no known arithmetic fits all probed kinds"
    best = consistent_scores[0]
    return f"{count_text}; computes like {best.name}, which fits all {len(best.fits)} kinds that it covers"


def kind_rows(result: ProbeResult) -> list[tuple[str, ...]]:
    """Return the rows of the table of kinds, as safe texts under `KIND_TITLES`."""
    return [
        (
            str(len(entry.variants)) if entry.status == "explained" else numbers.MISSING,
            numbers.MISSING if entry.match is None else share(entry.match),
            entry.status,
            safe_text(entry.title),
            safe_text(entry.words or numbers.MISSING),
            _runner_up_text(entry),
            safe_text(", ".join(entry.presets), limit=_LIST_LIMIT) or numbers.MISSING,
        )
        for entry in result.entries
    ]


def _runner_up_text(entry: ProbeEntry) -> str:
    if entry.runner_up is None or entry.runner_up_match is None:
        return numbers.MISSING
    return f"{share(entry.runner_up_match)} {safe_text(entry.runner_up)}"


def preset_rows(result: ProbeResult, *, everything: bool = False) -> list[tuple[str, ...]]:
    """Return the rows of the table of presets, as safe texts under `PRESET_TITLES`.

    Args:
        result: The result to show.
        everything: Show all presets that state the arithmetic of a probed kind. If false, show those without conflicts,
            or the nearest ones if there are none.
    """
    scores = [score for score in result.scores if score.stands or everything] or list(result.scores[:_PRESETS_SHOWN])
    return [
        (
            score.name,
            str(len(score.fits)),
            safe_text(", ".join(score.conflicts), limit=_LIST_LIMIT) or "0",
            f"{known_presets()[score.name].provenance}: {known_presets()[score.name].about}",
        )
        for score in scores
    ]


def rounding_rows(result: ProbeResult) -> list[tuple[str, ...]]:
    """Return the rows of the table of float roundings, as safe texts under `ROUNDING_TITLES`."""
    return [
        (
            entry.status.replace("_", " "),
            safe_text(entry.op),
            entry.short,
            safe_text(entry.words or entry.reason or numbers.MISSING),
        )
        for entry in result.roundings
    ]


def notes(result: ProbeResult) -> list[str]:
    """Return the reasons why kinds are not fully explained, and a definition of class if one is needed."""
    lines = [f"{safe_text(entry.title)}: {safe_text(entry.reason)}" for entry in result.entries if entry.reason]
    classes = [entry for entry in result.entries if entry.status == "explained" and len(entry.variants) > 1]
    if classes:
        lines.append(
            "A class larger than 1 contains variants that return the same codes in all probes; "
            "the simplest variant is shown, and --json lists all."
        )
    return lines


def comparison_headline(comparison: FingerprintComparison) -> str:
    """Return one sentence on how two fingerprints compare."""
    common_count = comparison.counted("differs") + comparison.counted("same")
    if not common_count:
        return "no kind of node is explained in both"
    one_sided_count = comparison.counted("first") + comparison.counted("second")
    others_text = (
        f"; {one_sided_count} more {agreeing(one_sided_count, 'is')} explained in one file only"
        if one_sided_count
        else ""
    )
    return f"{comparison.counted('differs')} of {common_count} kinds of node use different arithmetic{others_text}"


def comparison_rows(comparison: FingerprintComparison, *, everything: bool = False) -> list[tuple[str, ...]]:
    """Return a comparison's rows as escaped strings: kind, verdict, arithmetic of each file.

    Args:
        comparison: The comparison to show.
        everything: Show all kinds. If false, show only those that differ.
    """
    verdict_texts = {"first": "only in the first", "second": "only in the second"}
    return [
        (
            safe_text(kind.title),
            verdict_texts.get(kind.verdict, kind.verdict),
            *(safe_text(words or numbers.MISSING) for words in (kind.first, kind.second)),
        )
        for kind in comparison.kinds
        if everything or kind.verdict != "same"
    ]
