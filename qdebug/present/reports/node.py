"""One compared node in full detail: as a document and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qdebug.compare.result.result import RunComparison
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
from qdebug.present.reports.document import Block, Document, Fact, FactList, Grid, Items, Paragraph, Section, Title
from qdebug.present.reports.profile import profile_blocks
from qdebug.present.rows import STYLES
from qdebug.present.text import safe_text

__all__ = ["node_document", "node_facts", "node_numbers", "with_detail", "worst_blocks"]

_MIN_WIDTH_WITH_DEFINITIONS = 110
"""Minimum number of characters per line for definitions to fit next to three columns of numbers."""


def node_document(detail: NodeDetail) -> Document:
    """Return the report on one compared tensor.

    Args:
        detail: The node to show.
    """
    result = detail.result
    samples_text = "all samples" if detail.sample is None else f"sample {detail.sample}"
    name = f"#{result.index} {safe_text(result.node, limit=200)}  {safe_text(result.op, limit=60)}  ({samples_text})"
    blocks: list[Block] = [Title(str(result.status).upper(), name, STYLES[result.status])]
    if result.reason:
        blocks.append(Paragraph(safe_text(result.reason)))
    blocks.append(FactList([*node_facts(detail), *_input_facts(detail)]))
    blocks += node_numbers(detail)
    if len(result.samples) > 1:
        blocks.append(Items.of(sample_lines(result)))
    if detail.profile is not None:
        blocks += profile_blocks(detail.profile)
    return [*blocks, *worst_blocks(detail)]


def node_facts(detail: NodeDetail) -> list[Fact]:
    """Return how the tensor was paired, and the known origin of its error."""
    result = detail.result
    facts = [Fact("pair", safe_text(sentences.pair_words(result), limit=400))]
    if result.note:
        facts.append(Fact("note", safe_text(result.note), "yellow"))
    return [*facts, *(Fact(label, text) for label, text in attribution_facts(result))]


def _input_facts(detail: NodeDetail) -> Iterable[Fact]:
    for at, (tensor, result) in enumerate(detail.inputs):
        result_text = "not compared"
        if result is not None and result.metrics is not None:
            result_text = f"{result.status}, SQNR {numbers.metric('sqnr_db', result.metrics.sqnr_db)} dB"
        yield Fact("" if at else "inputs", f"{safe_text(tensor, limit=120)}: {result_text}")


def node_numbers(detail: NodeDetail) -> list[Grid]:
    """Return the tables of both sides, of the error and of clipping. A table without any values is empty."""
    sides = [(fact.label, fact.reference, fact.backend) for fact in side_facts(detail)]
    titles, metrics = error_rows(detail.result)
    last = len(titles) - 1
    return [
        Grid(titles=("", "reference", "backend"), rows=sides),
        Grid(
            titles=titles,
            rows=metrics,
            right=frozenset(range(1, last)),
            dim=frozenset({last}),
            wide=_MIN_WIDTH_WITH_DEFINITIONS if last > 2 else 0,
            instead="qdebug diff --explain-metrics explains each metric",
        ),
        Grid(titles=("codes", "elements"), rows=rail_facts(detail.result.saturation), right=frozenset({1})),
    ]


def worst_blocks(detail: NodeDetail) -> list[Block]:
    """Return the worst elements under a heading, or nothing if there are none."""
    right = frozenset(range(1, len(WORST_TITLES)))
    table = Grid(titles=WORST_TITLES, rows=worst_rows(detail.worst), right=right)
    return [Section("worst elements"), table] if detail.worst else []


def with_detail(result: RunComparison, detail: NodeDetail) -> dict[str, Any]:
    """Return a comparison as plain values, with only one node and everything known about it.

    Args:
        result: The comparison. Verdict and coverage remain those of the whole comparison.
        detail: The node.
    """
    return result.to_dict() | {"nodes": [detail.result.to_dict() | detail.to_dict()]}
