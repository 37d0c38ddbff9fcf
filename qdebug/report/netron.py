"""The comparison as an attachment for Netron: open the model there, then this file, and click on a node.

Netron shows `metadata` and `metrics` of a JSON file with the signature "netron:attachment" beside the nodes and values
of their names (lutzroeder/netron, source/view.js). It compares names up to their first line break, and of two entries
with one name for one thing it keeps the last: both are accounted for here.
"""

from __future__ import annotations

import json
from typing import Any

from qdebug.compare.result.node_result import breaks_limit, is_excused
from qdebug.compare.result.result import DiffResult, NodeResult, json_safe
from qdebug.model import Graph
from qdebug.view import numbers, sentences
from qdebug.view.detail import finding_facts
from qdebug.view.rows import metric_title, on_rails, quant_text
from qdebug.view.text import safe_text

__all__ = ["netron_attachment"]

_METRICS = ("sqnr_db", "max_lsb", "rel_l2", "max_abs", "cosine", "mismatches", "nonfinite")


def netron_attachment(result: DiffResult, graph: Graph | None = None) -> str:
    """Give a comparison as JSON text for Netron.

    Args:
        result: What to show.
        graph: The reference's graph, to show the comparison on the reference's model; None for the backend's.
    """
    metadata: list[dict[str, Any]] = []
    metrics: list[dict[str, Any]] = []
    _add(metadata, "model", "", {"qdebug": str(result.status), "qdebug verdict": sentences.verdict_sentence(result)})
    seen: set[tuple[str, str]] = set()
    for entry in result.nodes:
        for kind, name in _targets(entry, graph):
            if (kind, name) in seen:  # a node with several outputs: the first one speaks for it
                continue
            seen.add((kind, name))
            _add(metadata, kind, name, _facts(entry))
            _add(metrics, kind, name, _figures(entry))
    plain = json_safe({"signature": "netron:attachment", "metadata": metadata, "metrics": metrics})
    return json.dumps(plain, indent=1, allow_nan=False) + "\n"


def _targets(entry: NodeResult, graph: Graph | None) -> list[tuple[str, str]]:
    """Give what the entry is about in the model: a node, if one produces it, and a value."""
    node, value = entry.node, entry.tensor
    if graph is not None:
        producer = graph.producer(entry.reference_tensor)
        node, value = (producer.name if producer else ""), entry.reference_tensor
    elif entry.op == "Input":
        node = ""
    named = [("node", node), ("value", value)]
    return [(kind, name.split("\n", maxsplit=1)[0]) for kind, name in named if name.split("\n", maxsplit=1)[0]]


def _add(rows: list[dict[str, Any]], kind: str, target: str, known: dict[str, Any]) -> None:
    rows += [{"kind": kind, "target": target, "name": name, "value": value} for name, value in known.items()]


def _facts(entry: NodeResult) -> dict[str, Any]:
    excused = breaks_limit(entry) and is_excused(entry) and entry.acknowledged is not None
    known = {
        "qdebug": f"{entry.status}{', acknowledged' if excused else ''}",
        "qdebug why": safe_text(entry.reason) if entry.reason else None,
        "qdebug found": "; ".join(text for _, text in finding_facts(entry)) or None,
        "qdebug acknowledged": safe_text(entry.acknowledged.reason) if excused and entry.acknowledged else None,
        "qdebug pair": safe_text(entry.reference_tensor, limit=200),
        "qdebug arithmetic": safe_text(entry.explained) if entry.explained else None,
        "qdebug scale / zero point": None if entry.quant is None else quant_text(entry.quant),
    }
    return {name: value for name, value in known.items() if value is not None}


def _figures(entry: NodeResult) -> dict[str, Any]:
    known: dict[str, Any] = {}
    if entry.metrics is not None:
        known = {metric_title(name): getattr(entry.metrics, name) for name in _METRICS}
    if entry.introduced is not None:
        known["introduced LSB"] = entry.introduced.max_lsb
        known["introduced rel L2"] = entry.introduced.rel_l2
    known["gain"] = entry.gain
    if entry.saturation is not None:
        known["saturated"] = numbers.percent(on_rails(entry.saturation), entry.saturation.total)
    return {name: value for name, value in known.items() if value is not None}
