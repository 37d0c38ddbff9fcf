"""Suggest limits that known-good runs meet with a margin, as the text of a limits file.

The limits of a tensor are its worst values over all runs, with a margin: 3 dB for the SQNR; 50 %, and at least 1 LSB,
for the largest difference. A tensor that was identical in every run gets no limit, so derived limits apply to it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from qdebug.compare.result.result import NodeResult, RunComparison, Status
from qdebug.errors import LimitsError
from qdebug.limits.limits_file import toml_string
from qdebug.model.thresholds.verdict import SUGGESTED_ERROR_RATIO, SUGGESTED_LSB_MARGIN, SUGGESTED_SQNR_MARGIN
from qdebug.numerics.stats import ErrorStats

__all__ = ["suggest_limits"]


_WILDCARD = re.compile(r"([*?\[])")
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Lone surrogates, which names may contain but TOML may not."""


def suggest_limits(results: Mapping[str, RunComparison]) -> str:
    """Return the text of a limits file that all comparisons meet.

    Args:
        results: Comparisons of known-good runs with one reference, by the name of the run.

    Raises:
        LimitsError: No tensor was compared in any run.
    """
    nodes_by_tensor: dict[str, list[NodeResult]] = {}
    for result in results.values():
        for node in result.nodes:
            nodes_by_tensor.setdefault(node.tensor, []).append(node)
    if not nodes_by_tensor:
        raise LimitsError(
            "No tensor was compared, so no limits can be suggested.", hint="Compare runs of the same network."
        )
    blocks: list[str] = []
    identical_count, unusable_tensors = 0, []
    for tensor, nodes in nodes_by_tensor.items():
        metrics = [node.metrics for node in nodes if node.metrics is not None and node.status is not Status.NONFINITE]
        if len(metrics) < len(nodes):
            unusable_tensors.append(tensor)
        elif all(not stats.mismatches for stats in metrics):
            identical_count += 1
        else:
            blocks.append(_limit_block(tensor, metrics))
    return "\n".join([_header(results, identical_count, unusable_tensors), *blocks])


def _header(results: Mapping[str, RunComparison], identical_count: int, unusable_tensors: Sequence[str]) -> str:
    samples = sum(max((len(node.samples) for node in result.nodes), default=0) for result in results.values())
    failed_runs = [(name, result.first_divergence) for name, result in results.items() if result.exit_code]
    lines = [
        f"# Suggested by qdebug diff --suggest-limits from {len(results)} run(s), {samples} sample(s) in all:",
        *(f"#   {_quote_name(name)}" for name in results),
        (
            f"# Margin: SQNR {SUGGESTED_SQNR_MARGIN:g} dB below the worst run; "
            f"the largest difference {SUGGESTED_ERROR_RATIO:g} times the"
        ),
        f"# worst run, and at least {SUGGESTED_LSB_MARGIN:g} LSB more.",
        "# The runs were assumed to be good; this was not checked.",
        f"# {identical_count} tensor(s) were identical in every run and have no limit of their own.",
    ]
    lines += [
        f"# Check {_quote_name(name)}: it exceeds the limits in force"
        + (f", first at {_quote_name(first_divergence)}." if first_divergence is not None else ", or is incomplete.")
        for name, first_divergence in failed_runs
    ]
    if len(results) == 1:
        lines.append("# One run says little about the next run; give several runs.")
    lines += [
        f"# No limit, because it was not finite or not comparable: {_quote_name(tensor)}" for tensor in unusable_tensors
    ]
    return "\n".join(lines) + "\n"


def _limit_block(tensor: str, metrics: Sequence[ErrorStats]) -> str:
    pattern = _SURROGATE.sub("?", _WILDCARD.sub(r"[\1]", tensor))
    lines = ["[[limit]]", f"tensor = {toml_string(pattern)}"]
    steps = [stats.max_lsb for stats in metrics if stats.max_lsb is not None]
    if len(steps) == len(metrics) and all(map(math.isfinite, steps)):
        worst_lsb = max(steps)
        lines.append(
            f"max_lsb = {math.ceil(max(worst_lsb * SUGGESTED_ERROR_RATIO, worst_lsb + SUGGESTED_LSB_MARGIN) * 2) / 2:g}"
        )
    decibels = [stats.sqnr_db for stats in metrics if stats.sqnr_db is not None]
    if len(decibels) == len(metrics) and math.isfinite(min(decibels)):
        lines.append(f"min_sqnr = {math.floor((min(decibels) - SUGGESTED_SQNR_MARGIN) * 10) / 10:g}")
    if len(lines) == 2:  # an all-zero reference has no SQNR
        lines.append(f"atol = {max(stats.max_abs or 0.0 for stats in metrics) * SUGGESTED_ERROR_RATIO!r}")
    return "\n".join(lines) + "\n"


def _quote_name(name: str) -> str:
    """Return a name quoted for a comment."""
    return toml_string(_SURROGATE.sub("?", name))
