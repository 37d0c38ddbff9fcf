"""Results as they are kept between two comparisons of the same recordings: into columns and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

import numpy as np

from qdebug.compare.align.pairs import Pair
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.result.columns import Columns, from_columns, to_columns
from qdebug.compare.result.held import HeldNodes
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.result import OutputRanking

__all__ = ["kept_columns", "kept_results", "result_facts"]

_ASKED_LATER = frozenset({"acknowledged", "file", "allow_partial", "allow_unfaithful", "allow_uncompared"})
"""Limits that judge no tensor: what may be missing or beyond is asked when a comparison is summed up."""


def result_facts(pairs: Sequence[Pair], limits: Limits) -> Iterator[str]:
    """Give what results depend on besides recordings and code: the pairs and the limits in force."""
    judging = [entry.name for entry in fields(limits) if entry.name not in _ASKED_LATER]
    judged = [f"{name}={getattr(limits, name)!r}" for name in judging]
    yield from judged
    yield from (repr((pair.reference, pair.backend, pair.reference_view, pair.backend_view)) for pair in pairs)


def kept_columns(nodes: HeldNodes, outputs: Sequence[OutputRanking]) -> Mapping[str, np.ndarray]:
    """Give results as columns; those of the nodes are put together when they are asked for.

    Raises:
        ValueError: A value would not come back the same.
    """
    more = {f"outputs/{name}": column for name, column in to_columns(outputs, OutputRanking).items()}
    return _Kept(nodes.columns(), more | {"outputs": np.array([len(outputs)], np.int64)})


class _Kept(Mapping[str, np.ndarray]):
    """Columns of nodes under longer names, and others."""

    def __init__(self, nodes: Mapping[str, np.ndarray], more: Columns) -> None:
        self._nodes, self._more = nodes, more

    def __getitem__(self, name: str) -> np.ndarray:
        return self._nodes[name.removeprefix("nodes/")] if name.startswith("nodes/") else self._more[name]

    def __iter__(self) -> Iterator[str]:
        yield from (f"nodes/{name}" for name in self._nodes)
        yield from self._more

    def __len__(self) -> int:
        return len(self._nodes) + len(self._more)


def kept_results(
    columns: Mapping[str, np.ndarray], planned: Sequence[PlannedNode]
) -> tuple[HeldNodes, tuple[OutputRanking, ...]]:
    """Give the results back.

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
    outputs = from_columns(parts["outputs"], OutputRanking, int(many[0]), omit=frozenset())
    return HeldNodes.of_columns(parts["nodes"], planned), tuple(outputs)
