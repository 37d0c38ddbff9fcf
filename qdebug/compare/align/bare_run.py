"""A run without a recorded graph, which takes its order, inputs and outputs from the run it is compared with."""

from __future__ import annotations

from dataclasses import replace

from qdebug.compare.align.expand import says_nothing
from qdebug.compare.align.pairs import Alignment
from qdebug.model import Graph, Recording, RunInfo
from qdebug.model.view import View

__all__ = ["in_order_of", "is_bare"]


def is_bare(recording: Recording) -> bool:
    """Return whether a recording states no inputs for any of its nodes."""
    graph = recording.graph
    return bool(graph.nodes) and all(map(says_nothing, graph.nodes))


def in_order_of(reference: Recording, backend: Recording, alignment: Alignment) -> tuple[Recording, Alignment]:
    """Put a run without a graph into the order of the run it is compared with. Return any other run unchanged.

    Args:
        reference: The reference run.
        backend: The backend run.
        alignment: Their pairs.
    """
    if not is_bare(backend) or is_bare(reference):
        return backend, alignment
    known_graph = reference.graph
    places = {name: place for place, name in enumerate((*known_graph.inputs, *_computed_tensors(known_graph)))}
    pairs = tuple(sorted(alignment.pairs, key=lambda pair: places.get(pair.reference, len(places))))
    return _Ordered(backend, reference, alignment), replace(alignment, pairs=pairs)


class _Ordered(View):
    """A recording without a graph, in the order of another run."""

    def __init__(self, recording: Recording, other: Recording, alignment: Alignment) -> None:
        graph, known_graph = recording.graph, other.graph
        partners: dict[str, str] = {}
        for pair in alignment.pairs:
            partners.setdefault(pair.reference, pair.backend)
        inputs = [partners[name] for name in known_graph.inputs if name in partners]
        outputs = graph.outputs or [partners[name] for name in known_graph.outputs if name in partners]
        order = {partners[name]: at for at, name in enumerate(_computed_tensors(known_graph)) if name in partners}
        nodes = sorted(graph.nodes, key=lambda node: min(order.get(name, len(order)) for name in node.outputs))
        super().__init__(
            recording,
            graph=Graph(
                [node for node in nodes if not set(inputs).intersection(node.outputs)],
                tensors=graph.tensors.values(),
                inputs=[*graph.inputs, *(name for name in inputs if name not in graph.inputs)],
                outputs=outputs,
                name=graph.name,
                opset=graph.opset,
            ),
        )
        self._info = replace(recording.info, borrowed_order=True)

    @property
    def info(self) -> RunInfo:
        """Facts of the run."""
        return self._info


def _computed_tensors(graph: Graph) -> list[str]:
    """Return the tensors that nodes compute, in order."""
    return [name for node in graph.nodes for name in node.outputs if name]
