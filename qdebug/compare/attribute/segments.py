"""Segments: the nodes of both graphs between one compared tensor and the nearest compared tensors upstream."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Pair
from qdebug.model import Graph, Node, operators
from qdebug.model.thresholds.alignment import SEGMENT_MAX_NODES

__all__ = ["Segment", "SegmentFinder", "main_node"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The nodes of both graphs between one compared tensor and the nearest compared tensors upstream.

    Args:
        nodes: The reference's nodes, in topological order. Empty if the backend only passes values on.
        feeds: Inputs of the segment, as a mapping from reference tensor to backend tensor.
        own: The backend's nodes, in topological order. The last one computes the compared tensor.
        elsewhere: Whether the reference's nodes read compared tensors that the backend's nodes do not read.
        scaling: Products of either graph that only scale each channel, as a runtime computes a normalization.
    """

    nodes: tuple[Node, ...]
    feeds: Mapping[str, str]
    own: tuple[Node, ...] = ()
    has_extra_inputs: bool = False
    scaling: tuple[Node, ...] = ()

    def nodes_except(self, node: Node) -> list[Node]:
        """Return all reference nodes except the given one."""
        return [other for other in self.nodes if other is not node]

    def without(self, left_out: Collection[Node], pair: Pair) -> tuple[Pair, Segment]:
        """Return the segment without some single-input nodes of the reference, and the pair that it then ends in.

        Args:
            left_out: The reference nodes to leave out. Each passes its first input on as its first output.
            pair: The pair that the segment ends in.
        """
        source_of = {node.outputs[0]: node.inputs[0] for node in left_out}

        def source(name: str) -> str:
            while name in source_of:
                name = source_of[name]
            return name

        remaining = [node for node in self.nodes if node not in left_out]
        nodes = tuple(replace(node, inputs=tuple(map(source, node.inputs))) for node in remaining)
        return replace(pair, reference=source(pair.reference)), replace(self, nodes=nodes)

    @property
    def products(self) -> tuple[Node, Node] | None:
        """The only product of the reference and that of the backend, or None unless they are of the same kind."""
        reference_products, backend_products = map(self._main_products, (self.nodes, self.own))
        return (
            (reference_products[0], backend_products[0])
            if len(reference_products) == len(backend_products) == 1
            and operators.same_family(*reference_products, *backend_products)
            else None
        )

    def _main_products(self, nodes: Sequence[Node]) -> list[Node]:
        products = [node for node in nodes if operators.plain(node).product]
        return [node for node in products if node not in self.scaling] if len(products) > 1 else products

    @property
    def has_several_nodes(self) -> bool:
        """Whether several backend nodes are judged together because the tensors between them have no partner."""
        return len(self.own) > 1


class SegmentFinder:
    """Finds the segments of compared tensors.

    Args:
        reference: The reference run.
        backend: The backend run.
        pairs: All pairs of the alignment, by their backend tensors.
    """

    def __init__(self, reference: IndexedRecording, backend: IndexedRecording, pairs: Mapping[str, Pair]) -> None:
        self._ref, self._be, self._pairs = reference, backend, pairs
        self._partners: dict[str, str] = {}  # key: root of a reference class; value: its first backend tensor
        for pair in pairs.values():
            self._partners.setdefault(reference.root(pair.reference), pair.backend)

    def of(self, pair: Pair) -> Segment | None:
        """Return the segment of a compared tensor, back to the nearest compared tensors in either graph.

        Returns:
            The segment, or None if another network input leads into it or it has too many nodes.
        """
        backend_part = self._backend_part(pair.backend)
        if backend_part is None:
            return None
        nodes, entries = backend_part
        feeds = {self._pairs[tensor].reference: tensor for tensor in entries}
        ends = {self._ref.root(name) for name in feeds}
        casts = self._casts_between(pair.reference, feeds) if all(map(_is_cast, nodes)) else ()
        reference_nodes = casts or self._nodes_between(pair.reference, ends.__contains__)
        if reference_nodes is not None:
            return Segment(
                nodes=reference_nodes,
                feeds=feeds,
                own=nodes,
                scaling=self._find_scaling_products(reference_nodes, nodes),
            )
        start, partners = self._ref.root(pair.reference), self._partners
        reference_nodes = self._nodes_between(
            pair.reference, lambda root: root in ends or (root in partners and root != start)
        )
        if reference_nodes is None:
            return None
        data_inputs = {self._ref.root(name): name for node in reference_nodes for name in self._ref.data_inputs(node)}
        further_feeds = {
            name: partners[root]
            for root, name in data_inputs.items()
            if root in partners and root not in {start, *ends}
        }
        scaling = self._find_scaling_products(reference_nodes, nodes)
        return Segment(
            nodes=reference_nodes, feeds={**feeds, **further_feeds}, own=nodes, has_extra_inputs=True, scaling=scaling
        )

    def _find_scaling_products(
        self, reference_nodes: Sequence[Node], backend_nodes: Sequence[Node]
    ) -> tuple[Node, ...]:
        """Return the products whose weight has one element per channel."""
        sides = (self._ref.recording.graph, reference_nodes), (self._be.recording.graph, backend_nodes)
        return tuple(node for graph, nodes in sides for node in nodes if _scales_channels(graph, node))

    def _backend_part(self, output: str) -> tuple[tuple[Node, ...], tuple[str, ...]] | None:
        """Return the backend's nodes between a tensor and the compared tensors upstream, and these compared tensors."""
        graph = self._be.recording.graph
        nodes_by_name: dict[str, Node] = {}
        entries: dict[str, None] = {}
        waiting = [output]
        while waiting:
            tensor = waiting.pop()
            node = graph.producer(tensor)
            if node is None or len(nodes_by_name) > SEGMENT_MAX_NODES:
                return None
            if node.name in nodes_by_name:
                continue
            nodes_by_name[node.name] = node
            for name in self._be.data_inputs(node):
                if name in self._pairs:
                    entries[name] = None
                else:
                    waiting.append(name)
        return _sort_topologically(nodes_by_name.values(), graph), tuple(entries)

    def _casts_between(self, output: str, feeds: Collection[str]) -> tuple[Node, ...]:
        """Return the casts that make a tensor of one of the given tensors, or () if other nodes take part.

        Alignment treats a tensor and its casts to other float formats as one tensor, but each cast rounds.
        """
        graph, casts = self._ref.recording.graph, list[Node]()
        while output not in feeds:
            producer = graph.producer(output)
            if producer is None or not _is_cast(producer) or not producer.inputs:
                return ()
            casts.insert(0, producer)
            output = producer.inputs[0]
        return tuple(casts)

    def _nodes_between(self, output: str, ends: Callable[[str], bool]) -> tuple[Node, ...] | None:
        graph = self._ref.recording.graph
        nodes_by_name: dict[str, Node] = {}
        waiting = [output]
        while waiting:
            tensor = waiting.pop()
            if ends(self._ref.root(tensor)):
                continue
            node = graph.producer(tensor)
            if node is None or len(nodes_by_name) > SEGMENT_MAX_NODES:
                return None
            if node.name not in nodes_by_name:
                nodes_by_name[node.name] = node
                waiting += self._ref.data_inputs(node)
        return _sort_topologically(nodes_by_name.values(), graph)


def main_node(node: Node, segment: Segment) -> Node | None:
    """Return the reference node in a segment that has the same operator as a backend node, or None."""
    return next((n for n in segment.nodes if operators.same_family(n, node)), None)


def _is_cast(node: Node) -> bool:
    return operators.of(node.op).casts


def _scales_channels(graph: Graph, node: Node) -> bool:
    groups = node.attrs.get("group")
    if not operators.plain(node).product or not isinstance(groups, int) or groups < 2:
        return False
    info = graph.tensors.get(operators.titled_input(node, 1))
    shape = None if info is None else info.shape
    return shape is not None and None not in shape and math.prod(extent or 0 for extent in shape) == groups


def _sort_topologically(nodes: Iterable[Node], graph: Graph) -> tuple[Node, ...]:
    return tuple(sorted(nodes, key=lambda node: graph.position(next(name for name in node.outputs if name)) or 0))
