"""Limits that known-good runs keep, with a margin, as the text of a limits file.

For each tensor the worst value over all runs counts. The margins: the SQNR may be 3 dB lower; the largest difference
may be half as large again and at least one step larger. A tensor that was identical in every run gets no limit of its
own: derived limits hold for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from qdebug.compare.result.result import NodeResult, RunComparison, Status
from qdebug.errors import LimitsError
from qdebug.limits.limits_file import quoted
from qdebug.model.thresholds.verdict import SUGGESTED_ERROR_RATIO, SUGGESTED_LSB_MARGIN, SUGGESTED_SQNR_MARGIN
from qdebug.numerics.stats import ErrorStats

__all__ = ["suggested_limits"]


_WILD = re.compile(r"([*?\[])")
_NO_TOML = re.compile("[\ud800-\udfff]")
"""Halves of characters, which names may have and TOML cannot hold."""


def suggested_limits(results: Mapping[str, RunComparison]) -> str:
    """Return the text of a limits file that all these comparisons keep.

    Args:
        results: Comparisons of known-good runs with one reference, by the name of the run.

    Raises:
        LimitsError: Nothing was compared in any of them.
    """
    seen: dict[str, list[NodeResult]] = {}
    for result in results.values():
        for node in result.nodes:
            seen.setdefault(node.tensor, []).append(node)
    if not seen:
        raise LimitsError("No tensor was compared, so no limits can be suggested.", hint="Compare runs of one network.")
    blocks: list[str] = []
    identical, unusable = 0, []
    for tensor, nodes in seen.items():
        known = [node.metrics for node in nodes if node.metrics is not None and node.status is not Status.NONFINITE]
        if len(known) < len(nodes):
            unusable.append(tensor)
        elif all(not stats.mismatches for stats in known):
            identical += 1
        else:
            blocks.append(_block(tensor, known))
    return "\n".join([_head(results, identical, unusable), *blocks])


def _head(results: Mapping[str, RunComparison], identical: int, unusable: Sequence[str]) -> str:
    samples = sum(max((len(node.samples) for node in result.nodes), default=0) for result in results.values())
    beyond = [(name, result.first_divergence) for name, result in results.items() if result.exit_code]
    lines = [
        f"# Suggested by qdebug diff --suggest-limits from {len(results)} run(s), {samples} sample(s) in all:",
        *(f"#   {_named(name)}" for name in results),
        (
            f"# Margin: SQNR {SUGGESTED_SQNR_MARGIN:g} dB below the worst seen; "
            f"the largest difference {SUGGESTED_ERROR_RATIO:g} times the"
        ),
        f"# worst seen, and at least {SUGGESTED_LSB_MARGIN:g} step more.",
        "# The runs were taken to be good: nothing here says that they are.",
        f"# {identical} tensor(s) were identical in every run and have no limit of their own.",
    ]
    lines += [
        f"# Look again: {_named(name)} breaks the limits in force"
        + (f", first at {_named(first)}." if first is not None else ", or is incomplete.")
        for name, first in beyond
    ]
    if len(results) == 1:
        lines.append("# One run says little of what the next will do: give several.")
    lines += [f"# No limit, for it was not finite or not comparable: {_named(tensor)}" for tensor in unusable]
    return "\n".join(lines) + "\n"


def _block(tensor: str, known: Sequence[ErrorStats]) -> str:
    itself = _NO_TOML.sub("?", _WILD.sub(r"[\1]", tensor))
    lines = ["[[limit]]", f"tensor = {quoted(itself)}"]
    steps = [stats.max_lsb for stats in known if stats.max_lsb is not None]
    if len(steps) == len(known) and all(map(math.isfinite, steps)):
        worst = max(steps)
        lines.append(
            f"max_lsb = {math.ceil(max(worst * SUGGESTED_ERROR_RATIO, worst + SUGGESTED_LSB_MARGIN) * 2) / 2:g}"
        )
    decibels = [stats.sqnr_db for stats in known if stats.sqnr_db is not None]
    if len(decibels) == len(known) and math.isfinite(min(decibels)):
        lines.append(f"min_sqnr = {math.floor((min(decibels) - SUGGESTED_SQNR_MARGIN) * 10) / 10:g}")
    if len(lines) == 2:  # the reference is zero everywhere: there is no ratio
        lines.append(f"atol = {max(stats.max_abs or 0.0 for stats in known) * SUGGESTED_ERROR_RATIO!r}")
    return "\n".join(lines) + "\n"


def _named(name: str) -> str:
    """Return a name for a comment."""
    return quoted(_NO_TOML.sub("?", name))
