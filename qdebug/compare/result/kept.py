"""Results as they are kept between two comparisons of the same recordings: into columns and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

import numpy as np

from qdebug.compare.align.pairs import Pair
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.result.columns import Columns, from_columns, to_columns
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.result import NodeResult, OutputRanking

__all__ = ["kept_columns", "kept_results", "result_facts"]

_ASKED_LATER = frozenset({"acknowledged", "file", "allow_partial", "allow_unfaithful", "allow_uncompared"})
"""Limits that judge no tensor: what may be missing or beyond is asked when a comparison is summed up."""

_FROM_PLAN = ("index", "node", "op", "tensor", "reference_tensor", "match", "match_reason", "quant")
_OMIT = frozenset({*_FROM_PLAN, "acknowledged"})
"""Known from what is compared, and from the limits of the day."""


def result_facts(pairs: Sequence[Pair], limits: Limits) -> Iterator[str]:
    """Yield what results depend on besides recordings and code: the pairs and the limits in force."""
    judging = [entry.name for entry in fields(limits) if entry.name not in _ASKED_LATER]
    judged = [f"{name}={getattr(limits, name)!r}" for name in judging]
    yield from judged
    yield from (repr((pair.reference, pair.backend, pair.reference_view, pair.backend_view)) for pair in pairs)


def kept_columns(nodes: Sequence[NodeResult], outputs: Sequence[OutputRanking]) -> Columns:
    """Return results as columns.

    Raises:
        ValueError: A value would not come back the same.
    """
    parts = {"nodes": to_columns(nodes, NodeResult, omit=_OMIT), "outputs": to_columns(outputs, OutputRanking)}
    named = {f"{part}/{name}": column for part, columns in parts.items() for name, column in columns.items()}
    return named | {"outputs": np.array([len(outputs)], np.int64)}


def kept_results(
    columns: Mapping[str, np.ndarray], planned: Sequence[PlannedNode]
) -> tuple[list[NodeResult], tuple[OutputRanking, ...]]:
    """Return the results that were kept, without acknowledgements.

    Args:
        columns: Columns from whatever source.
        planned: What is compared, and what was when they were kept.

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
    outputs = from_columns(parts["outputs"], OutputRanking, int(many[0]))
    given = {name: [getattr(entry, name) for entry in planned] for name in _FROM_PLAN}
    nodes = from_columns(parts["nodes"], NodeResult, len(planned), omit=_OMIT, given=given)
    return nodes, tuple(outputs)
