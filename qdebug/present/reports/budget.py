"""An error budget as a document: the share of an output's error that each node causes, and whether shares add up."""

from __future__ import annotations

import math
from collections.abc import Iterator

from qdebug.compare.budget import ErrorBudget, OutputBudget
from qdebug.compare.own_error import PARTS
from qdebug.present import numbers
from qdebug.present.reports.document import Block, Document, Grid, Items, Paragraph, Section, Title
from qdebug.present.text import safe_text

__all__ = ["budget_document"]

_NAME_LIMIT = 40
_MIN_DEVIATION = 0.25
"""Minimum deviation of the sum of shares from 1, or of the parts of a share from the share, that is reported."""
_REASONS_SHOWN = 5


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
        blocks += _output_blocks(output, rest="" if everything else rest, is_only_output=len(budget.outputs) == 1)
    return blocks


def _output_blocks(output: OutputBudget, *, rest: str, is_only_output: bool) -> Iterator[Block]:
    name = safe_text(output.output)
    if not is_only_output:
        yield Section(f"Output {name!r}")
    samples_text = f"over {output.samples} samples" if output.samples != 1 else "in 1 sample"
    if output.steps != output.samples:
        samples_text += f", {output.steps} steps in total"
    if math.isnan(output.sqnr_db):
        yield Title(
            "NOT FINITE", f"output {name!r} has NaN or infinite values {samples_text}, so it has no budget", "bold red"
        )
        return
    if not output.nodes and not output.below and not output.unknown:
        yield Title("NO ERROR", f"output {name!r} equals the reference {samples_text}", "bold green")
        return
    top = output.nodes[0] if output.nodes else None
    sentence = f"output {name!r} has an SQNR of {numbers.number(output.sqnr_db)} dB {samples_text}"
    if top is not None:
        share = f"{_percent_text(top.share)} of that error"
        sentence += f"; {top.op} {safe_text(top.node)!r} alone causes {share}"
    yield Title("BUDGET", sentence, "bold")
    parts = [part for part in PARTS if any(node.parts.get(part) for node in output.nodes)]
    together = ["together"] if any(node.together is not None for node in output.nodes) else []
    figure_count = 2 + len(together)
    yield Grid(
        titles=("share", *together, "alone dB", "node", "op", *parts),
        rows=[
            (
                _percent_text(node.share),
                *(numbers.MISSING if node.together is None else _percent_text(node.together) for _ in together),
                numbers.number(node.sqnr_db),
                safe_text(node.node, limit=_NAME_LIMIT),
                safe_text(node.op, limit=_NAME_LIMIT),
                *(_percent_text(node.parts[part]) if part in node.parts else numbers.MISSING for part in parts),
            )
            for node in output.nodes
        ],
        right=frozenset({*range(figure_count), *range(figure_count + 2, figure_count + 2 + len(parts))}),
        names=frozenset({figure_count}),
    )
    yield Items.of(_output_notes(output, rest))


def _output_notes(output: OutputBudget, rest: str) -> Iterator[str]:
    added = _percent_text(output.shares)
    if output.unknown:
        yield f"the known shares add up to {added} of the error"
    elif output.shares > 1 + _MIN_DEVIATION:
        yield f"the shares add up to {added} of the error, so some errors cancel each other at the output"
    elif output.shares < 1 - _MIN_DEVIATION:
        yield f"the shares add up to {added} of the error, so some errors amplify each other at the output"
    else:
        yield f"the shares add up to {added} of the error, so the errors are nearly independent"
    if any(
        node.parts and abs(sum(node.parts.values()) - node.share) > _MIN_DEVIATION * node.share for node in output.nodes
    ):
        yield "each part of a share was replayed alone; parts that cancel each other do not add up to the share"
    if output.below:
        is_one = output.below == 1
        not_summed, make = (
            ("is not included in the sum", "makes") if is_one else ("each are not included in the sum", "each make")
        )
        together = not_summed if output.below_share is None else f"{make} {_percent_text(output.below_share)}"
        some = "they" if output.pruned == output.below else f"{output.pruned} of them"
        pruned = f"; {some} were replayed only together" if output.pruned > 1 else ""
        nodes_text = f"{'' if not output.nodes else 'other '}node{'' if is_one else 's'}"
        yield f"{output.below} {nodes_text} with less than {_percent_text(output.least)} {together}{pruned}"
    if output.left is None:
        yield "all errors together cannot be replayed, so the unexplained part is not known"
    elif output.left >= output.least:
        yield f"all known errors together leave {_percent_text(output.left)} of the error unexplained"
    if output.unknown:
        yield f"the own error of {len(output.unknown)} nodes is not known; they are not in the table:"
        listed = list(output.unknown.items())
        for node, reason in listed[:_REASONS_SHOWN] if rest else listed:
            yield f"{safe_text(node)!r}: {safe_text(reason)}"
        if rest and len(listed) > _REASONS_SHOWN:
            yield f"and {len(listed) - _REASONS_SHOWN} more: {rest}"


def _percent_text(share: float) -> str:
    return numbers.percent(share, 1.0) if share <= 1 else f"{100 * share:.0f} %"
