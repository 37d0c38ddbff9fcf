"""A comparison for Model Explorer: both graphs, an overlay for each metric, and the correspondence of nodes.

Model Explorer (google-ai-edge/model-explorer) reads graphs and overlays as JSON. The format here follows from how its
web application uses them:

- It finds a node of an overlay by the key `tensor_name` of its outputs, else by the node's id. The outputs here have no
  such key, so that one overlay fits both graphs.
- Its URL can request two panes in which a node and the node with the same id are selected together. A mapping between
  different ids must be loaded by hand. So a reference node has the id of its partner, and `sync.json` maps all nodes
  that a fused node replaces.
- It does not read a file with a NaN or an infinity, and misreads a file with a node whose id is "results".
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from qdebug.compare.align.pairs import Side
from qdebug.compare.result.node_result import is_excused
from qdebug.compare.result.result import NodeResult, RunComparison, Status
from qdebug.model import Graph
from qdebug.present import numbers, sentences
from qdebug.present.detail import finding_facts, quant_summary
from qdebug.present.rows import columns, metric_title, row_cell
from qdebug.present.text import safe_text

__all__ = ["BACKEND", "OPENER", "REFERENCE", "SYNC", "model_explorer_files"]

REFERENCE, BACKEND, SYNC, OPENER = "reference.json", "backend.json", "sync.json", "open.py"
"""Names of the files besides the overlays."""

_RESERVED = "results"
_INPUT = "input: "
_REFERENCE_SUFFIX = " (reference)"
_SQNR_OF_EQUAL = 400.0
"""SQNR in dB that stands for infinity, which JSON lacks. No two different float64 values have such an SQNR."""

_GREEN, _LIGHT, _YELLOW, _ORANGE, _RED, _PURPLE, _GREY = (
    *("#66bb6a", "#c5e1a5", "#fff176", "#ffb74d", "#e57373"),
    *("#ce93d8", "#cfd8dc"),
)
_STATUS_COLORS: Mapping[str, str] = {
    Status.IDENTICAL: _GREEN,
    Status.WITHIN: _LIGHT,
    Status.DIVERGED: _RED,
    Status.NONFINITE: _PURPLE,
    Status.INCOMPARABLE: _GREY,
}
_DIGITS = 6
"""Significant digits of a number in an overlay."""
_LAST_BOUND = 1e30
"""The last bound of an overlay's colours, since values above the last bound would have no colour."""
_COLORS_BY_BADNESS = (_GREEN, _LIGHT, _YELLOW, _ORANGE, _RED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Overlay:
    """A number or a word for each node, and its colours.

    Args:
        name: Its displayed name.
        value: Returns the number or word, or None if there is none.
        bounds: For numbers, the upper bound of each of the five colours, from green to red. The last colour has none.
        is_more_better: Whether larger numbers are better, so that the colours go from red to green.
        colors: Colours of words.
    """

    name: str
    value: Callable[[NodeResult], float | str | None]
    bounds: tuple[float, ...] = ()
    is_more_better: bool = False
    colors: Mapping[str, str] | None = None


def _metric_getter(name: str) -> Callable[[NodeResult], float | None]:
    return lambda node: None if node.metrics is None else getattr(node.metrics, name)


def _clipped_percent(node: NodeResult) -> float | None:
    rails = node.saturation
    return None if rails is None or not rails.total else 100 * rails.clipped / rails.total


def _relative_own_error(node: NodeResult) -> float | None:
    return None if node.judged is None else node.judged.amount / (node.judged.limit or 1.0)


_OVERLAYS = (
    _Overlay(name="own error over its limit", value=_relative_own_error, bounds=(0.1, 0.5, 1.0, 4.0)),
    _Overlay(
        name=f"{metric_title('sqnr_db')} ({_SQNR_OF_EQUAL:.0f}: equal)",
        value=_metric_getter("sqnr_db"),
        bounds=(10, 20, 30, 50),
        is_more_better=True,
    ),
    _Overlay(name=metric_title("max_lsb"), value=_metric_getter("max_lsb"), bounds=(0.5, 1.5, 4, 16)),
    _Overlay(name=metric_title("rel_l2"), value=_metric_getter("rel_l2"), bounds=(0.001, 0.01, 0.05, 0.2)),
    _Overlay(name=metric_title("max_abs"), value=_metric_getter("max_abs")),
    _Overlay(name="gain", value=lambda node: node.relative_gain, bounds=(1.0, 1.5, 3.0, 10.0)),
    _Overlay(name="clipped %", value=_clipped_percent, bounds=(0.1, 1, 5, 20)),
    _Overlay(name="explained by", value=lambda node: node.explained),
    _Overlay(name="ran on", value=lambda node: node.placement),
    _Overlay(name="paired by", value=lambda node: str(node.match)),
    _Overlay(name="status", value=lambda node: str(node.status), colors=_STATUS_COLORS),
)
"""The overlays. The last one is shown when the files are opened."""


def model_explorer_files(result: RunComparison, reference: Graph, backend: Graph) -> dict[str, str]:
    """Return the files of a comparison by name: graphs, overlays, the mapping of nodes, and an opening script.

    Args:
        result: The comparison.
        reference: The reference's graph.
        backend: The backend's graph.
    """
    ids = _Ids(result, reference, backend)
    rows = {node.tensor: node for node in result.nodes}
    partners = {node.reference_tensor: node for node in reversed(result.nodes)}
    files = {
        REFERENCE: _graph_text("reference", reference, ids.reference, partners, result),
        BACKEND: _graph_text("backend", backend, ids.backend, rows, result),
        SYNC: _json_text(_node_mapping(result, reference, ids)),
    }
    overlays: list[str] = []
    for overlay in _OVERLAYS:
        overlay_data = _overlay_json(overlay, result.nodes, backend, ids)
        if overlay_data["results"]:
            name = f"overlay-{len(overlays) + 1:02d}-{''.join(c if c.isalnum() else '_' for c in overlay.name)}.json"
            files[name] = _json_text(overlay_data)
            overlays.append(name)
    exact_contributors = (contributor.node for contributor in result.verdict.contributors if contributor.how == "exact")
    selected_node = result.origin or result.first_divergence or next(exact_contributors, None)
    files[OPENER] = _opening_script(overlays, ids.backend.get(selected_node or "", ""))
    return files


def _json_text(value: Any) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


class _Ids:
    """Ids of the nodes of both graphs: equal for partners, different for all other nodes."""

    def __init__(self, result: RunComparison, reference: Graph, backend: Graph) -> None:
        self.backend = {node.name: _safe_id(node.name) for node in backend.nodes}
        self.backend |= {_INPUT + name: _INPUT + name for name in backend.inputs}
        used_ids = set(self.backend.values())
        self.reference: dict[str, str] = {}
        paired_ids: set[str] = set()
        for entry in result.nodes:
            backend_key, reference_key = (
                _producer_key(backend, entry.tensor),
                _producer_key(reference, entry.reference_tensor),
            )
            key = self.backend.get(backend_key or "")
            if (
                key is not None
                and reference_key is not None
                and reference_key not in self.reference
                and key not in paired_ids
            ):
                self.reference[reference_key] = key
                paired_ids.add(key)
        for name in (
            *(node.name for node in reference.nodes),
            *(_INPUT + input_name for input_name in reference.inputs),
        ):
            if name not in self.reference:
                unique_id = _safe_id(name)
                while unique_id in used_ids:
                    unique_id += _REFERENCE_SUFFIX
                used_ids.add(unique_id)
                self.reference[name] = unique_id


def _safe_id(name: str) -> str:
    """Return a node's name as an id, changed if Model Explorer would misinterpret it."""
    return f"{name}_" if name == _RESERVED else name


def _producer_key(graph: Graph, tensor: str) -> str | None:
    """Return the key in `_Ids` of the node or input that a tensor comes from, or None for a constant."""
    node = graph.producer(tensor)
    if node is not None:
        return node.name
    return _INPUT + tensor if tensor in graph.inputs else None


def _graph_text(
    label: str, graph: Graph, ids: Mapping[str, str], rows: Mapping[str, NodeResult], result: RunComparison
) -> str:
    """Return one graph as Model Explorer's own JSON.

    Args:
        label: Which of the two graphs it is.
        graph: The graph.
        ids: Ids of its nodes.
        rows: Results by tensors of this graph.
        result: The comparison.
    """
    nodes = [
        {
            "id": ids[_INPUT + name],
            "label": "Input",
            "namespace": "",
            "attrs": _result_attrs([name], rows),
            "incomingEdges": [],
            "outputsMetadata": [_output_metadata(graph, 0, name)],
        }
        for name in graph.inputs
    ]
    for node in graph.nodes:
        edges = []
        for at, tensor in enumerate(node.inputs):
            source = _producer_key(graph, tensor) if tensor else None
            if source is not None:
                producer = graph.producer(tensor)
                output_index = 0 if producer is None else producer.outputs.index(tensor)
                edges.append(
                    {"sourceNodeId": ids[source], "sourceNodeOutputId": str(output_index), "targetNodeInputId": str(at)}
                )
        outputs = [(at, name) for at, name in enumerate(node.outputs) if name]
        nodes.append(
            {
                "id": ids[node.name],
                "label": safe_text(node.op, limit=60),
                "namespace": _scope(node.name),
                "attrs": [_attr("node", node.name), *_result_attrs([name for _, name in outputs], rows)],
                "incomingEdges": edges,
                "outputsMetadata": [_output_metadata(graph, at, name) for at, name in outputs],
            }
        )
    facts = {"verdict": sentences.verdict_sentence(result), "status": str(result.status)}
    graph_data = {
        "id": label,
        "nodes": nodes,
        "groupNodeAttributes": {"": facts},
        "tasksData": _error_path(result, graph, ids, label),
    }
    return _json_text({"label": label, "graphs": [graph_data]})


def _scope(name: str) -> str:
    """Return the enclosing layers that a node's name states: "a/b" for "a/b/conv"."""
    return "/".join(safe_text(part, limit=60) for part in name.strip("/").split("/")[:-1] if part)


def _attr(key: str, value: object) -> dict[str, str]:
    return {"key": key, "value": safe_text(value, limit=400)}


def _result_attrs(tensors: Iterable[str], rows: Mapping[str, NodeResult]) -> list[dict[str, str]]:
    """Return the attributes of a node: the results of its compared tensors."""
    all_columns = columns()
    attributes: list[dict[str, str]] = []
    for tensor in tensors:
        entry = rows.get(tensor)
        if entry is None:
            continue
        status = f"{entry.status}, acknowledged" if is_excused(entry) else str(entry.status)
        attributes.append(_attr("status", status))
        attributes += [_attr("reason", entry.reason)] if entry.reason else []
        attributes.append(_attr("partner", f"{entry.reference_tensor} <-> {entry.tensor} ({entry.match})"))
        for key in ("sqnr_db", "arithmetic", "clipping", "constants", "introduced", "gain", "max_lsb", "rel_l2"):
            text = row_cell(entry, key).text
            attributes += [_attr(all_columns[key].title, text)] if text != numbers.MISSING else []
        attributes += [_attr("explained by", entry.explained)] if entry.explained else []
        attributes += [_attr("ran on", entry.placement)] if entry.placement else []
        attributes += [_attr(kind, text) for kind, text in finding_facts(entry)]
    return [
        {"key": f"qdebug {attribute['key']}", "value": numbers.plain_digits(attribute["value"])}
        for attribute in attributes
    ]


def _output_metadata(graph: Graph, output_index: int, tensor: str) -> dict[str, Any]:
    info = graph.tensors[tensor]
    attrs = [_attr("tensor", tensor), _attr("tensor_shape", f"{info.dtype or '?'} {numbers.shape(info.shape)}")]
    if info.quant is not None:
        attrs.append(_attr("scale / zero point", quant_summary(info.quant)))
    return {"id": str(output_index), "attrs": attrs}


def _error_path(result: RunComparison, graph: Graph, ids: Mapping[str, str], label: str) -> dict[str, Any]:
    """Return the path of the error from its origin to the worst output, as edges to draw over the graph."""
    reference_names = {node.tensor: node.reference_tensor for node in result.nodes} if label == "reference" else {}
    producer_keys = [
        _producer_key(graph, reference_names.get(tensor, tensor)) for tensor in reversed(result.verdict.way)
    ]
    nodes = [ids[producer_key] for producer_key in producer_keys if producer_key is not None and producer_key in ids]
    edges = [{"sourceNodeId": a, "targetNodeId": b} for a, b in pairwise(nodes)]
    if not edges:
        return {}
    overlay = {"name": "from the origin to the worst output", "edgeColor": "#d32f2f", "edgeWidth": 4, "edges": edges}
    data = [{"type": "edge_overlays", "name": "path of the error", "overlays": [overlay]}]
    return {"edgeOverlaysDataListLeftPane": data, "edgeOverlaysDataListRightPane": data}


def _overlay_json(overlay: _Overlay, nodes: Sequence[NodeResult], backend: Graph, ids: _Ids) -> dict[str, Any]:
    results: dict[str, dict[str, Any]] = {}
    for entry in nodes:
        producer_key, value = _producer_key(backend, entry.tensor), overlay.value(entry)
        if producer_key is None or value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        limit = _SQNR_OF_EQUAL if overlay.is_more_better else _LAST_BOUND
        shown_value = safe_text(value) if isinstance(value, str) else float(f"{min(float(value), limit):.{_DIGITS}g}")
        color = None if overlay.colors is None else overlay.colors.get(str(shown_value), _GREY)
        results.setdefault(ids.backend[producer_key], {"value": shown_value} | ({"bgColor": color} if color else {}))
    colors = tuple(reversed(_COLORS_BY_BADNESS)) if overlay.is_more_better else _COLORS_BY_BADNESS
    bounds = (*overlay.bounds, _LAST_BOUND)
    thresholds = [{"value": value, "bgColor": color} for value, color in zip(bounds, colors, strict=False)]
    has_texts = any(isinstance(result["value"], str) for result in results.values())
    return {
        "name": overlay.name,
        "results": results,
        **({"thresholds": thresholds} if overlay.bounds and not has_texts else {}),
        **({"showExpandedSummaryOnGroupNode": True} if has_texts else {"hideAggregatedStats": ["sum"]}),
    }


def _node_mapping(result: RunComparison, reference: Graph, ids: _Ids) -> dict[str, Any]:
    """Map each backend node to its reference nodes. A fused node has all nodes that it replaces."""
    reference_ids_of: dict[str, list[str]] = {}
    for entry in result.nodes:
        reference_key = _producer_key(reference, entry.reference_tensor)
        if reference_key is not None:
            reference_ids_of.setdefault(entry.tensor, []).append(ids.reference[reference_key])
    for unmatched in result.coverage.unmatched:
        if unmatched.side is Side.REFERENCE and unmatched.inside in reference_ids_of:
            reference_key = _producer_key(reference, unmatched.tensor)
            if reference_key is not None and ids.reference[reference_key] not in reference_ids_of[unmatched.inside]:
                reference_ids_of[unmatched.inside].append(ids.reference[reference_key])
    by_node: dict[str, list[str]] = {}
    names = {entry.tensor: entry.node for entry in result.nodes}
    for tensor, reference_ids in reference_ids_of.items():
        key = ids.backend.get(names[tensor]) or ids.backend.get(_INPUT + tensor)
        if key is not None:
            by_node.setdefault(key, [])
            by_node[key] += [reference_id for reference_id in reference_ids if reference_id not in by_node[key]]
    entries = [
        {"leftNodeIds": reference_ids, "rightNodeIds": [backend_id]} for backend_id, reference_ids in by_node.items()
    ]
    return {
        "type": "sync_navigation",
        "mappingEntries": entries,
        "disableMappingFallback": True,
        "showDiffHighlights": True,
    }


def _opening_script(overlays: Sequence[str], selected: str) -> str:
    """Return a script that opens the files in Model Explorer, with both graphs side by side and a node selected."""
    return f'''"""Open a comparison of qdebug in Model Explorer: pip install ai-edge-model-explorer.

The reference is on the left, the backend on the right, and a click on a node selects its partner. For fused nodes,
which have several partners, click on "Sync", choose "Upload mapping from computer" and give sync.json.
"""

import json
import sys
from pathlib import Path
from urllib.parse import quote

import model_explorer

FOLDER = Path(__file__).resolve().parent
OVERLAYS = {list(overlays)!r}
SELECTED = {selected!r}


def pane(name, selected):
    return {{
        "deepestExpandedGroupNodeIds": ["___all___"],
        "selectedNodeId": SELECTED,
        "selectedGraphId": name,
        "selectedCollectionLabel": name,
        "widthFraction": 0.5,
        "selected": selected,
    }}


def address():
    data = {{
        "models": [{{"url": str(FOLDER / name)}} for name in ({REFERENCE!r}, {BACKEND!r})],
        "nodeData": [str(FOLDER / name) for name in OVERLAYS],
        "nodeDataTargets": [""] * len(OVERLAYS),
        "uiState": {{"paneStates": [pane("reference", False), pane("backend", True)]}},
        "sync": {{"mode": "match_node_id"}},
    }}
    return quote(json.dumps(data))


if __name__ == "__main__":
    config = model_explorer.config()
    for name in ({REFERENCE!r}, {BACKEND!r}):
        config.add_model_from_path(str(FOLDER / name))
    config.to_url_param_value = address
    model_explorer.visualize_from_config(config, no_open_in_browser="--no-browser" in sys.argv)
'''
