"""What a comparison is going to look at, known from the graphs before any value is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from qdebug.analysis.alignment.ops import clamps_at_zero
from qdebug.analysis.alignment.pairs import Alignment, Match, Pair
from qdebug.analysis.attribution.whole_numbers import holds_whole_numbers
from qdebug.errors import UsageError
from qdebug.model import QuantParams, Recording

__all__ = ["PlannedNode", "find_entry", "plan"]


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


def plan(reference: Recording, backend: Recording, alignment: Alignment) -> tuple[PlannedNode, ...]:
    """List the backend tensors that will be compared, in the backend's topological order."""
    planned = []
    for index, pair in enumerate(alignment.pairs):
        node = backend.graph.producer(pair.backend)
        info = backend.graph.tensors[pair.backend]
        planned.append(
            PlannedNode(
                index=index,
                node=pair.backend if node is None else node.name,
                op="Input" if node is None else node.op,
                pair=pair,
                shape=info.shape,
                quant=info.quant,
                relu_floor=info.quant is not None
                and (clamps_at_zero(backend.graph, pair.backend) or clamps_at_zero(reference.graph, pair.reference)),
                whole=holds_whole_numbers(reference.graph, backend.graph, pair),
            )
        )
    return tuple(planned)


def find_entry(planned: Sequence[PlannedNode], name: str) -> PlannedNode:
    """Find what is compared by the name of a backend tensor, a backend node or a reference tensor.

    Raises:
        UsageError: Nothing that is compared has this name.
    """
    for names_of in (lambda entry: (entry.tensor,), lambda entry: (entry.node, entry.reference_tensor)):
        for entry in planned:
            if name in names_of(entry):
                return entry
    near = get_close_matches(name, [known for entry in planned for known in (entry.node, entry.tensor)], n=3)
    also = f" Near names: {', '.join(repr(known) for known in near)}." if near else ""
    raise UsageError(f"Nothing that is compared is called {name!r}.{also}")
