"""A run without a recorded graph, which takes its order, inputs and outputs from the run it is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from qdebug.compare.align.expand import has_unknown_inputs
from qdebug.compare.align.pairs import Alignment, Pair
from qdebug.model import Graph, Recording, RunInfo, TensorInfo
from qdebug.model.view import View

__all__ = ["OnGraphOf", "borrow_order", "is_bare"]


def is_bare(recording: Recording) -> bool:
    """Return whether a recording has no graph: it states no inputs for any of its nodes."""
    graph = recording.graph
    return bool(graph.nodes) and all(map(has_unknown_inputs, graph.nodes))


def borrow_order(reference: Recording, backend: Recording, alignment: Alignment) -> tuple[Recording, Alignment]:
    """Return a run without a graph in the order of the run it is compared with, and any other run unchanged.

    Args:
        reference: The reference run.
        backend: The backend run.
        alignment: Their pairs.
    """
    if not is_bare(backend) or is_bare(reference):
        return backend, alignment
    known_graph = reference.graph
    positions = {name: position for position, name in enumerate((*known_graph.inputs, *_computed_tensors(known_graph)))}
    pairs = tuple(sorted(alignment.pairs, key=lambda pair: positions.get(pair.reference, len(positions))))
    return _Ordered(backend, reference, alignment), replace(alignment, pairs=pairs)


class _Ordered(View):
    """A recording without a graph, with its tensors in the order of another run."""

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
                tensors=_with_quants_of_partners(graph, known_graph, partners),
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


def _with_quants_of_partners(graph: Graph, known_graph: Graph, partners: Mapping[str, str]) -> list[TensorInfo]:
    """Return a graph's tensors. Integers without a scale get that of their partners of the same dtype."""
    infos = dict(graph.tensors)
    for name, partner in partners.items():
        info, known = infos[partner], known_graph.tensors[name]
        if info.quant is None and known.quant is not None and known.dtype == info.dtype:
            infos[partner] = replace(info, quant=known.quant)
    return list(infos.values())


class OnGraphOf(View):
    """A run presented as if it had computed the graph, and read the constants, of the run it is compared with.

    Names and values of paired tensors are the run's own. All other tensors have the other run's names.

    Args:
        recording: The run without a graph.
        other: The run it is compared with.
        pairs: Their pairs. Pairs with a view, which changes a tensor before the comparison, are not used.
    """

    def __init__(self, recording: Recording, other: Recording, pairs: Iterable[Pair]) -> None:
        unchanged = [pair for pair in pairs if pair.reference_view is None and pair.backend_view is None]
        self._other, self._other_names = other, {pair.backend: pair.reference for pair in unchanged}
        own_names = {name: own for own, name in self._other_names.items()}
        graph, own_tensors = other.graph, recording.graph.tensors
        new_names = {name: own_names.get(name, f"{name} of the reference") for name in own_tensors} | own_names
        self._borrowed_names = {new_names.get(name, name): name for name in graph.tensors if name not in own_names}

        def renamed(names: Sequence[str]) -> tuple[str, ...]:
            return tuple(new_names.get(name, name) for name in names)

        nodes = [
            replace(node, inputs=renamed(node.inputs), outputs=renamed(node.outputs), origin=()) for node in graph.nodes
        ]
        tensors = {}
        for name, info in graph.tensors.items():
            own = own_tensors.get(own_names.get(name, ""))
            if own is None:
                tensors[name] = replace(info, name=new_names.get(name, name))
            else:
                tensors[name] = replace(own, role=info.role, quant=own.quant or info.quant)
        super().__init__(
            recording,
            graph=Graph(
                nodes,
                tensors=tensors.values(),
                inputs=renamed(graph.inputs),
                outputs=renamed(graph.outputs),
                opset=graph.opset,
            ),
        )

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether a tensor has values for a sample and step."""
        if self._is_borrowed(tensor):
            return self._other.has(self._borrowed_names[tensor], sample, step)
        return tensor in self._other_names and self._recording.has(tensor, sample, step)

    def places(self, tensor: str | None = None) -> Sequence[tuple[int, int]]:
        """Return the samples and steps with a record of the tensor (by default of any tensor), in order."""
        if tensor is not None and self._is_borrowed(tensor):
            return self._other.places(self._borrowed_names[tensor])
        return super().places(tensor) if tensor is None or tensor in self._other_names else ()

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the elements, read-only.

        Raises:
            RecordingError: No values are recorded under this name, sample and step.
        """
        if self._is_borrowed(tensor):
            return self._other.load(self._borrowed_names[tensor], sample, step)
        return self._recording.load(tensor, sample, step)

    def _is_borrowed(self, tensor: str) -> bool:
        """Return whether a tensor is a constant that only the other run has."""
        return tensor in self._borrowed_names and self.graph.is_constant(tensor)


def _computed_tensors(graph: Graph) -> list[str]:
    """Return the tensors that nodes compute, in order."""
    return [name for node in graph.nodes for name in node.outputs if name]
