"""The list of tensors to compare, determined from the graphs before any value is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from qdebug.compare.align.expand import clamps_at_zero
from qdebug.compare.align.pairs import Alignment, Match, Pair
from qdebug.compare.attribute.integer_tensors import holds_whole_numbers
from qdebug.errors import UsageError
from qdebug.model import Graph, Node, QuantParams, Recording, operators
from qdebug.model.names import format_names, matching_names, near_names
from qdebug.model.recording import either_places

__all__ = ["NamedEntries", "PlannedNode", "plan", "recorded_places"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNode:
    """A backend tensor to be compared.

    Args:
        index: Position among the compared tensors, in the backend's topological order.
        node: Backend node that computes it, or the tensor's own name for a graph input.
        op: Its operator, or "Input" for a graph input.
        pair: The tensor and its partner.
        shape: Shape declared in the graph, or None if unknown.
        quant: The backend tensor's quantization.
        relu_floor: Whether a Relu was applied to the tensor, so that the lowest code may stand for its zeros.
        whole: Whether it holds booleans, or integers that are not codes. These are never rounded.
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
        """The evidence for the pair."""
        return self.pair.match

    @property
    def confidence(self) -> float:
        """Confidence in the pair, from 0 to 1."""
        return self.pair.confidence

    @property
    def match_reason(self) -> str:
        """Why the two tensors are paired, as a clause that the user can check."""
        return self.pair.reason


def plan(
    reference: Recording, backend: Recording, alignment: Alignment, *, declared_graph: Graph | None = None
) -> tuple[PlannedNode, ...]:
    """Return the backend tensors to compare, in the backend's topological order.

    Args:
        reference: The reference run.
        backend: The backend run.
        alignment: Its pairs.
        declared_graph: The backend's graph as recorded, whose operators are shown. None for the graph of the run.
    """
    graphs = reference.graph, backend.graph, declared_graph or backend.graph
    return tuple(_plan_pair(index, pair, *graphs) for index, pair in enumerate(alignment.pairs))


def _has_floor(reference: Graph, backend: Graph, pair: Pair) -> bool:
    """Return whether a Relu was applied to a compared tensor, so that its lowest code may stand for zeros."""
    if backend.tensors[pair.backend].quant is None:
        return False
    return clamps_at_zero(backend, pair.backend) or clamps_at_zero(reference, pair.reference)


def _plan_pair(index: int, pair: Pair, reference: Graph, backend: Graph, declared_graph: Graph) -> PlannedNode:
    node, info = declared_graph.producer(pair.backend), backend.tensors[pair.backend]
    return PlannedNode(
        index=index,
        node=pair.backend if node is None else node.name,
        op="Input" if node is None else _operator_of(node, reference.producer(pair.reference)),
        pair=pair,
        shape=info.shape,
        quant=info.quant,
        relu_floor=_has_floor(reference, backend, pair),
        whole=holds_whole_numbers(reference, backend, pair),
    )


def _operator_of(node: Node, reference_node: Node | None) -> str:
    """Return the operator of a node. If the recording does not state it, this is the reference's."""
    return node.op if node.op != operators.UNKNOWN_OP or reference_node is None else reference_node.op


class _Named(Protocol):
    """An entry of a plan or a result that can be looked up by name."""

    @property
    def index(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def tensor(self) -> str: ...
    @property
    def reference_tensor(self) -> str: ...


_Entry = TypeVar("_Entry", bound=_Named)


class NamedEntries(Generic[_Entry]):
    """Entries of a plan, or results, indexed by tensor and node names.

    Args:
        entries: The entries, in the backend's topological order.
    """

    __slots__ = ("_entries", "_others", "_tensors")

    def __init__(self, entries: Sequence[_Entry]) -> None:
        self._entries = entries
        self._tensors: dict[str, _Entry] = {}
        self._others: dict[str, _Entry] = {}  # by node and reference tensor; the first entry of a name wins
        for entry in entries:
            self._tensors.setdefault(entry.tensor, entry)
            self._others.setdefault(entry.node, entry)
            self._others.setdefault(entry.reference_tensor, entry)

    def exact(self, name: str) -> _Entry | None:
        """Return the entry with this exact name: a backend tensor, or else a backend node or reference tensor, or None.

        Args:
            name: The name.
        """
        return self._tensors.get(name) or self._others.get(name)

    def find(self, name: str) -> _Entry:
        """Return the entry of a backend tensor, a backend node or a reference tensor.

        Args:
            name: A full name, or a substring or pattern that matches only one node.

        Raises:
            UsageError: Nothing has this name, or the pattern matches several nodes.
        """
        exact_match = self.exact(name)
        if exact_match is not None:
            return exact_match
        entries = self._entries
        names = {
            known_name: entry
            for entry in reversed(entries)
            for known_name in (entry.reference_tensor, entry.tensor, entry.node)
        }
        hits = sorted((names[known_name] for known_name in matching_names(name, names)), key=lambda entry: entry.index)
        nodes = dict.fromkeys(entry.node for entry in hits)
        if len(nodes) == 1:
            return hits[0]
        if nodes:
            raise UsageError(
                f"{name!r} matches {len(nodes)} nodes: {format_names(nodes)}.",
                hint="Give one of these names, or a longer part of the name.",
            )
        all_names = (known_name for entry in entries for known_name in (entry.node, entry.tensor))
        raise UsageError(f"No compared node or tensor is called {name!r}.{near_names(name, all_names)}")


def recorded_places(reference: Recording, backend: Recording, entry: PlannedNode) -> Iterator[tuple[int, int]]:
    """Yield the samples and steps of a compared tensor that both sides recorded."""
    for place in either_places(reference, entry.reference_tensor, backend, entry.tensor):
        if reference.has(entry.reference_tensor, *place) and backend.has(entry.tensor, *place):
            yield place
