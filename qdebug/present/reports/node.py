"""One compared node in full: for a terminal, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from qdebug.compare.result.result import RunComparison, json_safe
from qdebug.model import TensorInfo
from qdebug.numerics.stats import WorstElement
from qdebug.present import numbers, sentences
from qdebug.present.detail import (
    WORST_TITLES,
    NodeDetail,
    attribution_facts,
    error_rows,
    rail_facts,
    sample_lines,
    side_facts,
    worst_rows,
)
from qdebug.present.reports.markdown import markdown_table, markdown_text
from qdebug.present.reports.profile import profile_dict, profile_markdown, profile_parts
from qdebug.present.reports.table import fact_table, plain_grid
from qdebug.present.rows import STYLES
from qdebug.present.text import safe_text

__all__ = ["node_markdown", "node_report", "with_detail"]

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
    facts = [("pair", Text(safe_text(sentences.pair_words(result), limit=400)))]
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


def node_markdown(detail: NodeDetail) -> str:
    """Return one compared node in full as Markdown.

    Args:
        detail: What to show.
    """
    result = detail.result
    lines = [f"## {markdown_text(result.node)}: {result.status}", ""]
    if result.reason:
        lines += [markdown_text(result.reason), ""]
    if result.note:
        lines += [f"Note: {markdown_text(result.note)}", ""]
    lines += [
        f"{markdown_text(result.op)}, node {result.index}. Pair: {markdown_text(sentences.pair_words(result))}",
        "",
    ]
    lines += [f"- **{label}**: {markdown_text(text, limit=500)}" for label, text in attribution_facts(result)]
    lines.append("")
    lines += markdown_table(
        ("", "reference", "backend"),
        [(f.label, markdown_text(f.reference), markdown_text(f.backend)) for f in side_facts(detail)],
    )
    titles, rows = error_rows(result)
    if rows:
        lines += ["", *markdown_table(titles, [tuple(map(markdown_text, row)) for row in rows])]
    rails = rail_facts(result.saturation)
    if rails:
        lines += ["", *markdown_table(("saturation", "codes"), [(label, markdown_text(text)) for label, text in rails])]
    if len(result.samples) > 1:
        lines += ["", *(f"- {markdown_text(line)}" for line in sample_lines(result))]
    if detail.profile is not None:
        lines += profile_markdown(detail.profile)
    if detail.worst:
        lines += ["", "### Worst elements", ""]
        lines += markdown_table(WORST_TITLES, [tuple(map(markdown_text, row)) for row in worst_rows(detail.worst)])
    return "\n".join(lines) + "\n"


def with_detail(result: RunComparison, detail: NodeDetail) -> dict[str, Any]:
    """Return a comparison as plain values, with one node only and all that is known of it.

    Args:
        result: The comparison; verdict and coverage stay those of the whole.
        detail: The node.
    """
    plain = result.to_dict()
    inputs = [
        {"tensor": tensor, "status": None if node is None else str(node.status)} for tensor, node in detail.inputs
    ]
    node = {
        **detail.result.to_dict(),
        "reference_info": _info(detail.reference),
        "backend_info": _info(detail.backend),
        "inputs": inputs,
        "worst_elements": [_element(element) for element in detail.worst],
        "detail": None if detail.profile is None else profile_dict(detail.profile),
    }
    plain["nodes"] = [json_safe(node)]
    return plain


def _info(info: TensorInfo | None) -> dict[str, Any] | None:
    if info is None:
        return None
    return {
        "name": info.name,
        "dtype": info.dtype,
        "shape": None if info.shape is None else list(info.shape),
        "layout": info.layout,
        "quant": None if info.quant is None else info.quant.to_dict(),
    }


def _element(element: WorstElement) -> dict[str, Any]:
    return {
        "index": list(element.index),
        "sample": element.sample,
        "step": element.step,
        "reference": element.reference,
        "backend": element.backend,
        "difference": element.difference,
        "lsb": element.lsb,
        "reference_code": element.reference_code,
        "backend_code": element.backend_code,
    }
