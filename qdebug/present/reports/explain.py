"""An explanation as a document: first counts, then arithmetics, then unexplained nodes."""

from __future__ import annotations

from collections.abc import Sequence

from qdebug.compare.explaining.explanation import ExplainedRun, ExplainStatus, NodeExplanation
from qdebug.present import explained, sentences
from qdebug.present.reports.document import Document, FactList, Grid, Item, Items, Title

__all__ = ["explain_document", "explained_node_document"]

_STYLE = {0: "bold green", 1: "bold red", 3: "bold yellow"}
_NODES_LISTED = 40


def explain_document(explanation: ExplainedRun, *, everything: bool = False) -> Document:
    """Return the report on an explanation.

    Args:
        explanation: The explanation to show.
        everything: List every node, not only unexplained ones.
    """
    word, style = explained.verdict_word(explanation), _STYLE[explanation.exit_code]
    run_facts = [
        ("backend", sentences.run_facts(explanation.run)),
        ("fidelity", sentences.fidelity_sentence(explanation.run)),
        *(("preset", sentence) for sentence in explained.preset_sentences(explanation)),
    ]
    nodes = [explained.node_row(node) for node in explanation.nodes] if everything else []
    return [
        Title(word, explained.headline(explanation), style),
        FactList.of(run_facts),
        Grid(
            titles=explained.GROUP_TITLES,
            rows=explained.group_rows(explanation),
            right=frozenset({0, 1, 2, 3}),
            below={5: "", 6: "as "},
        ),
        Grid(titles=explained.NODE_TITLES, rows=nodes, right=frozenset({4}), names=frozenset({1})),
        Items(_unexplained_items(explanation.of(ExplainStatus.UNEXPLAINED))),
        Items.of(explained.rest_sentences(explanation), style="dim"),
    ]


def _unexplained_items(nodes: Sequence[NodeExplanation]) -> list[Item]:
    """List the unexplained nodes."""
    items = []
    for node in nodes[:_NODES_LISTED]:
        first, *further_lines = explained.unexplained_lines(node)
        items.append(Item(first, "unexplained", "dim" if node.accepted else "bold red", further_lines))
    if len(nodes) > _NODES_LISTED:
        items.append(Item(f"{len(nodes) - _NODES_LISTED} more unexplained; --all lists every node", style="dim"))
    return items


def explained_node_document(node: NodeExplanation) -> Document:
    """Return the report on one explained node."""
    return [FactList.of(explained.node_facts(node))]
