"""What a comparison is going to look at, known from the graphs before any value is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, overload

import numpy as np

from qdebug.compare.align.columns import PairColumns
from qdebug.compare.align.ops import clamps_at_zero
from qdebug.compare.align.pairs import Alignment, Match, Pair
from qdebug.compare.attribute.integer_tensors import holds_whole_numbers
from qdebug.errors import UsageError
from qdebug.model import Graph, QuantParams, Recording
from qdebug.model.large_graph import LargeGraph

__all__ = ["PlanColumns", "PlannedNode", "by_tensor", "field_of", "find_entry", "plan", "recorded_places"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNode:
    """One backend tensor that will be compared.

    Args:
        index: Position among the compared tensors, in the backend's topological order.
        node: Backend node that produces it; the tensor's own name for a graph input.
        op: Its operator; "Input" for a graph input.
        pair: The tensor and its partner.
        shape: Extents as the graph declares them; None if unknown.
        quant: The backend tensor's quantization.
        relu_floor: Whether the tensor has been through a Relu, so that codes at the lowest code can be its zeros.
        whole: Whether it holds integers that are no codes, or booleans: nothing about them is rounded.
    """

    index: int
    node: str
    op: str
    pair: Pair
    shape: tuple[int | None, ...] | None
    quant: QuantParams | None
    relu_floor: bool
    whole: bool = False

    @property
    def tensor(self) -> str:
        """The backend tensor."""
        return self.pair.backend

    @property
    def reference_tensor(self) -> str:
        """The reference tensor."""
        return self.pair.reference

    @property
    def match(self) -> Match:
        """The ground for the pair."""
        return self.pair.match

    @property
    def match_reason(self) -> str:
        """One clause a person can check."""
        return self.pair.reason


class PlanColumns(Sequence[PlannedNode]):
    """What is compared of a very large graph: entries that are made when they are looked at.

    Args:
        pairs: All pairs.
        graph: The backend's graph.
        relu_floor: Of each pair, whether its backend tensor has been through a Relu.
        whole: Of each, whether it holds integers that are no codes.
    """

    def __init__(self, pairs: PairColumns, graph: LargeGraph, relu_floor: np.ndarray, whole: np.ndarray) -> None:
        self._pairs, self._graph = pairs, graph
        self._flags = relu_floor.data, whole.data
        self._makers = graph.makers(pairs.backends).data

    def __len__(self) -> int:
        return len(self._pairs)

    @overload
    def __getitem__(self, at: int) -> PlannedNode: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[PlannedNode, ...]: ...
    def __getitem__(self, at: int | slice) -> PlannedNode | tuple[PlannedNode, ...]:
        if isinstance(at, slice):
            return tuple([self[row] for row in range(*at.indices(len(self)))])
        row = at + len(self) if at < 0 else at
        relu_floor, whole = (flags[row] for flags in self._flags)
        return _planned(row, self._pairs[row], self._graph, relu_floor=bool(relu_floor), whole=bool(whole))

    def find(self, tensor: str) -> int:
        """Give the number of the entry of a backend tensor; -1 if there is none."""
        return self._pairs.find(tensor)

    def positions(self) -> np.ndarray:
        """Give the position in the graph of the node of each entry; -1 for a graph input."""
        return np.asarray(self._makers)

    def field(self, name: str) -> Iterator[Any]:
        """Give one field of every entry, without making the entries where that is not needed."""
        rows = self._graph.rows
        if name == "tensor":
            return map(rows.names.text, self._pairs.backends.tolist())
        if name == "reference_tensor":
            return map(self._pairs.names[0].text, self._pairs.references.tolist())
        if name == "node":
            both = zip(self._makers, self._pairs.backends.tolist(), strict=True)
            return (rows.names.text(tensor) if node < 0 else rows.node_names[node] for node, tensor in both)
        if name == "op":
            return ("Input" if node < 0 else rows.node_ops[node] for node in self._makers)
        if name == "match":
            return iter(self._pairs.matches)
        return (getattr(entry, name) for entry in self)


def field_of(planned: Sequence[PlannedNode], name: str) -> Iterator[Any]:
    """Give one field of every entry."""
    return planned.field(name) if isinstance(planned, PlanColumns) else (getattr(entry, name) for entry in planned)


def by_tensor(planned: Sequence[PlannedNode]) -> Mapping[str, PlannedNode]:
    """Give entries by their backend tensors."""
    return _ByTensor(planned) if isinstance(planned, PlanColumns) else {entry.tensor: entry for entry in planned}


class _ByTensor(Mapping[str, PlannedNode]):
    """Entries by their backend tensors."""

    def __init__(self, planned: PlanColumns) -> None:
        self._planned = planned

    def __getitem__(self, tensor: str) -> PlannedNode:
        at = self._planned.find(tensor)
        if at < 0:
            raise KeyError(tensor)
        return self._planned[at]

    def __iter__(self) -> Iterator[str]:
        return self._planned.field("tensor")

    def __len__(self) -> int:
        return len(self._planned)


def plan(
    reference: Recording, backend: Recording, alignment: Alignment, kept: Sequence[Pair] | None = None
) -> Sequence[PlannedNode]:
    """List the backend tensors that will be compared, in the backend's topological order.

    Args:
        reference: The reference run.
        backend: The backend run.
        alignment: Its pairs.
        kept: The same pairs as they stay: where those are columns, what is compared is kept in columns too.
    """
    graph = backend.graph
    if isinstance(kept, PairColumns) and isinstance(graph, LargeGraph):
        floors, whole = (np.zeros(len(kept), bool) for _ in range(2))
        for index, pair in enumerate(alignment.pairs):
            floors[index] = _has_floor(reference.graph, graph, pair)
            whole[index] = holds_whole_numbers(reference.graph, graph, pair)
        return PlanColumns(kept, graph, floors, whole)
    return tuple(
        _planned(
            index,
            pair,
            graph,
            relu_floor=_has_floor(reference.graph, graph, pair),
            whole=holds_whole_numbers(reference.graph, graph, pair),
        )
        for index, pair in enumerate(alignment.pairs)
    )


def _has_floor(reference: Graph, backend: Graph, pair: Pair) -> bool:
    """Tell whether a compared tensor has been through a Relu, so that codes at its lowest code can be zeros of that."""
    if backend.tensors[pair.backend].quant is None:
        return False
    return clamps_at_zero(backend, pair.backend) or clamps_at_zero(reference, pair.reference)


def _planned(index: int, pair: Pair, graph: Graph, *, relu_floor: bool, whole: bool) -> PlannedNode:
    node, info = graph.producer(pair.backend), graph.tensors[pair.backend]
    return PlannedNode(
        index=index,
        node=pair.backend if node is None else node.name,
        op="Input" if node is None else node.op,
        pair=pair,
        shape=info.shape,
        quant=info.quant,
        relu_floor=relu_floor,
        whole=whole,
    )


def find_entry(planned: Sequence[PlannedNode], name: str) -> PlannedNode:
    """Find what is compared by the name of a backend tensor, a backend node or a reference tensor.

    Raises:
        UsageError: Nothing that is compared has this name.
    """
    for fields in (("tensor",), ("node", "reference_tensor")):
        for at, names in enumerate(zip(*(field_of(planned, field) for field in fields), strict=True)):
            if name in names:
                return planned[at]
    both = zip(field_of(planned, "node"), field_of(planned, "tensor"), strict=True)
    near = get_close_matches(name, [known for names in both for known in names], n=3)
    also = f" Near names: {', '.join(repr(known) for known in near)}." if near else ""
    raise UsageError(f"Nothing that is compared is called {name!r}.{also}")


def recorded_places(reference: Recording, backend: Recording, entry: PlannedNode) -> Iterator[tuple[int, int]]:
    """Give the samples and steps that both sides hold of a compared tensor."""
    for sample in range(min(reference.samples, backend.samples)):
        for step in range(min(reference.steps, backend.steps)):
            held = reference.has(entry.reference_tensor, sample, step) and backend.has(entry.tensor, sample, step)
            if held:
                yield sample, step
