"""A budget as a document: how much of an output's error each node's own error causes, and how far that adds up."""

from __future__ import annotations

import math
from collections.abc import Iterator

from qdebug.compare.budget import ErrorBudget, OutputBudget
from qdebug.compare.own_error import PARTS
from qdebug.present import numbers
from qdebug.present.reports.document import Block, Document, Grid, Items, Paragraph, Section, Title
from qdebug.present.text import safe_text

__all__ = ["budget_document"]

_NAME = 40
_UNLIKE = 0.25
"""Smallest deviation from 1 of a sum of shares, or of the parts of one share, that is reported."""
_REASONS = 5


def budget_document(budget: ErrorBudget, *, everything: bool = False, rest: str = "--all lists them") -> Document:
    """Return the report on a budget.

    Args:
        budget: The budget.
        everything: List all nodes whose own error is unknown.
        rest: Where to find the nodes that are not listed.
    """
    if not budget.outputs:
        return [Title("NO ANSWER", "no output of the network was compared", "bold yellow")]
    blocks: list[Block] = [Paragraph(safe_text(budget.remark), "bold yellow")] if budget.remark else []
    for output in budget.outputs:
        blocks += _output_blocks(output, rest="" if everything else rest, only=len(budget.outputs) == 1)
    return blocks


def _output_blocks(output: OutputBudget, *, rest: str, only: bool) -> Iterator[Block]:
    name = safe_text(output.output)
    if not only:
        yield Section(f"Output {name!r}")
    places = f"over {output.samples} samples" if output.samples != 1 else "in 1 sample"
    if output.steps != output.samples:
        places += f", {output.steps} steps in total"
    if math.isnan(output.sqnr_db):
        yield Title(
            "NOT FINITE", f"output {name!r} has NaN or infinite values {places}, so it has no budget", "bold red"
        )
        return
    if not output.nodes and not output.below and not output.unknown:
        yield Title("NO ERROR", f"output {name!r} equals the reference {places}", "bold green")
        return
    top = output.nodes[0] if output.nodes else None
    sentence = f"output {name!r} has an SQNR of {numbers.number(output.sqnr_db)} dB {places}"
    if top is not None:
        share = f"{_percent(top.share)} of that error"
        sentence += f"; {top.op} {safe_text(top.node)!r} alone causes {share}"
    yield Title("BUDGET", sentence, "bold")
    parts = [part for part in PARTS if any(node.parts.get(part) for node in output.nodes)]
    together = ["together"] if any(node.together is not None for node in output.nodes) else []
    figures = 2 + len(together)
    yield Grid(
        titles=("share", *together, "alone dB", "node", "op", *parts),
        rows=[
            (
                _percent(node.share),
                *(numbers.MISSING if node.together is None else _percent(node.together) for _ in together),
                numbers.number(node.sqnr_db),
                safe_text(node.node, limit=_NAME),
                safe_text(node.op, limit=_NAME),
                *(_percent(node.parts[part]) if part in node.parts else numbers.MISSING for part in parts),
            )
            for node in output.nodes
        ],
        right=frozenset({*range(figures), *range(figures + 2, figures + 2 + len(parts))}),
        names=frozenset({figures}),
    )
    yield Items.of(_notes(output, rest))


def _notes(output: OutputBudget, rest: str) -> Iterator[str]:
    added = _percent(output.shares)
    if output.unknown:
        yield f"the known shares add up to {added} of the error"
    elif output.shares > 1 + _UNLIKE:
        yield f"the shares add up to {added} of the error, so some errors cancel each other at the output"
    elif output.shares < 1 - _UNLIKE:
        yield f"the shares add up to {added} of the error, so some errors amplify each other at the output"
    else:
        yield f"the shares add up to {added} of the error, so the errors are nearly independent"
    if any(node.parts and abs(sum(node.parts.values()) - node.share) > _UNLIKE * node.share for node in output.nodes):
        yield "each part of a share was replayed alone; parts that cancel each other do not add up to the share"
    if output.below:
        is_one = output.below == 1
        not_summed, make = (
            ("is not included in the sum", "makes") if is_one else ("each are not included in the sum", "each make")
        )
        together = not_summed if output.below_share is None else f"{make} {_percent(output.below_share)}"
        some = "they" if output.pruned == output.below else f"{output.pruned} of them"
        pruned = f"; {some} were replayed only together" if output.pruned > 1 else ""
        nodes_text = f"{'' if not output.nodes else 'other '}node{'' if is_one else 's'}"
        yield f"{output.below} {nodes_text} with less than {_percent(output.least)} {together}{pruned}"
    if output.left is None:
        yield "all errors together cannot be replayed, so the unexplained part is not known"
    elif output.left >= output.least:
        yield f"all known errors together leave {_percent(output.left)} of the error unexplained"
    if output.unknown:
        yield f"the own error of {len(output.unknown)} nodes is not known; they are not in the table:"
        listed = list(output.unknown.items())
        for node, reason in listed[:_REASONS] if rest else listed:
            yield f"{safe_text(node)!r}: {safe_text(reason)}"
        if rest and len(listed) > _REASONS:
            yield f"and {len(listed) - _REASONS} more: {rest}"


def _percent(share: float) -> str:
    return numbers.percent(share, 1.0) if share <= 1 else f"{100 * share:.0f} %"
