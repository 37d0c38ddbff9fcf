"""One compared node in full, as a terminal shows it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from qdebug.report.profile import profile_parts
from qdebug.report.table import fact_table, plain_grid
from qdebug.view import numbers
from qdebug.view.detail import (
    WORST_TITLES,
    NodeDetail,
    attribution_facts,
    error_rows,
    rail_facts,
    sample_lines,
    side_facts,
    worst_rows,
)
from qdebug.view.rows import STYLES
from qdebug.view.text import safe_text

__all__ = ["node_report"]

_DEFINITIONS_FROM = 110
"""Characters of a line from which definitions stand beside three columns of numbers."""


def node_report(detail: NodeDetail, *, width: int) -> RenderableType:
    """Make the full report of one compared tensor.

    Args:
        detail: What to show.
        width: Characters a line may take; definitions of metrics are left out where they would not fit.
    """
    result = detail.result
    parts: list[RenderableType] = [_headline(detail)]
    if result.reason:
        parts.append(Text(safe_text(result.reason)))
    facts = [("pair", Text(f"{result.match}: {safe_text(result.match_reason)}"))]
    if result.note:
        facts.append(("note", Text(safe_text(result.note), style="yellow")))
    facts += [(label, Text(text)) for label, text in (*attribution_facts(result), *_input_lines(detail))]
    parts += [fact_table(facts), Text(""), plain_grid(("", "reference", "backend"), _side_rows(detail))]
    titles, metrics = error_rows(result)
    if metrics:
        last = len(titles) - 1
        if width < _DEFINITIONS_FROM and last > 2:
            titles, metrics = titles[:-1], [row[:-1] for row in metrics]
        parts += [Text(""), plain_grid(titles, metrics, right=set(range(1, last)), dim={last})]
        if len(titles) == last:
            parts.append(Text("qdebug diff --explain-metrics says what each of them means", style="dim"))
    rails = rail_facts(result.saturation)
    if rails:
        parts += [Text(""), plain_grid(("saturation", ""), rails, right={1})]
    if len(result.samples) > 1:
        parts += [Text(""), *(Text(line) for line in sample_lines(result))]
    if detail.profile is not None:
        parts += profile_parts(detail.profile)
    if detail.worst:
        parts += [Text(""), Text("worst elements", style="bold")]
        parts.append(plain_grid(WORST_TITLES, worst_rows(detail.worst), right=set(range(1, len(WORST_TITLES)))))
    return Group(*parts)


def _headline(detail: NodeDetail) -> Text:
    result = detail.result
    where = "all samples" if detail.sample is None else f"sample {detail.sample}"
    return Text.assemble(
        (str(result.status).upper(), STYLES[result.status]),
        f"  #{result.index} ",
        (safe_text(result.node, limit=200), "bold"),
        f"  {safe_text(result.op, limit=60)}  ({where})",
    )


def _input_lines(detail: NodeDetail) -> Iterable[tuple[str, str]]:
    for position, (tensor, result) in enumerate(detail.inputs):
        name = safe_text(tensor, limit=120)
        if result is None or result.metrics is None:
            said = "not compared"
        else:
            said = f"{result.status}, SQNR {numbers.metric('sqnr_db', result.metrics.sqnr_db)} dB"
        yield ("inputs" if position == 0 else "", f"{name}: {said}")


def _side_rows(detail: NodeDetail) -> list[tuple[str, str, str]]:
    return [(fact.label, fact.reference, fact.backend) for fact in side_facts(detail)]
