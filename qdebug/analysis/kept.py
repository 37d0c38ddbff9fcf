"""Results as they are kept between two comparisons of the same recordings: into columns and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from qdebug.analysis.alignment import Pair
from qdebug.analysis.columns import Columns, from_columns, to_columns
from qdebug.analysis.limits import Limits
from qdebug.analysis.plan import PlannedNode
from qdebug.analysis.result import NUMERICS_VERSION, NodeResult, OutputRanking

__all__ = ["kept_columns", "kept_results", "result_facts"]

_FROM_PLAN = ("index", "node", "op", "tensor", "reference_tensor", "match", "match_reason")
_OMIT = frozenset({"quant", "gain", "acknowledged"})
"""Known from the graph, from the results of a node's inputs, and from the limits of the day."""

_ASKED_LATER = frozenset({"acknowledged", "file", "allow_partial", "allow_unfaithful", "allow_uncompared"})
"""Limits that judge no tensor: what may be missing or beyond is asked when a comparison is summed up."""


def result_facts(pairs: Sequence[Pair], limits: Limits) -> list[str]:
    """Give what results depend on besides the two recordings: the numerics, the pairs and the limits in force."""
    judging = [entry.name for entry in fields(limits) if entry.name not in _ASKED_LATER]
    judged = [f"{name}={getattr(limits, name)!r}" for name in judging]
    views = [repr((pair.reference, pair.backend, pair.reference_view, pair.backend_view)) for pair in pairs]
    return [f"numerics {NUMERICS_VERSION}", *judged, *views]


def kept_columns(nodes: Sequence[NodeResult], outputs: Sequence[OutputRanking]) -> Columns:
    """Give results as columns.

    Raises:
        ValueError: A value would not come back the same.
    """
    columns = {f"nodes/{name}": column for name, column in to_columns(nodes, NodeResult, omit=_OMIT).items()}
    for name, column in to_columns(outputs, OutputRanking).items():
        columns[f"outputs/{name}"] = column
    return columns | {"outputs": np.array([len(outputs)], np.int64)}


def kept_results(
    columns: Mapping[str, np.ndarray], planned: Sequence[PlannedNode]
) -> tuple[list[NodeResult], tuple[OutputRanking, ...]]:
    """Give the results back.

    Args:
        columns: Columns from whatever source.
        planned: What is compared; each result must be of its entry.

    Raises:
        ValueError: The columns are not those of a result for each planned entry.
    """
    left = dict(columns)
    many = left.pop("outputs", np.empty(0, np.int64))
    if many.dtype != np.int64 or many.size != 1 or not 0 <= int(many[0]) <= len(planned):
        raise ValueError("there is no number of outputs")
    parts: dict[str, Columns] = {"nodes": {}, "outputs": {}}
    for name, column in left.items():
        part, _, rest = name.partition("/")
        if part not in parts:
            raise ValueError(f"there is a column {name!r} that nobody asked for")
        parts[part][rest] = column
    nodes = from_columns(parts["nodes"], NodeResult, len(planned), omit=_OMIT)
    outputs = from_columns(parts["outputs"], OutputRanking, int(many[0]), omit=frozenset())
    for node, entry in zip(nodes, planned, strict=True):
        if any(getattr(node, name) != getattr(entry, name) for name in _FROM_PLAN):
            raise ValueError(f"the result of {node.tensor!r} is not that of {entry.tensor!r}")
    return [_of_plan(node, entry) for node, entry in zip(nodes, planned, strict=True)], tuple(outputs)


def _of_plan(node: NodeResult, entry: PlannedNode) -> NodeResult:
    """Give a result its entry's quantization, and the very texts of it in place of equal ones."""
    return replace(node, quant=entry.quant, **{name: getattr(entry, name) for name in _FROM_PLAN})
