"""The channel dimension of a tensor: the one along which weights have scales and biases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from qdebug.compare.align.pairs import Pair
from qdebug.model import Graph, Node, QuantParams, Recording, operators
from qdebug.model.recording import shape_of
from qdebug.model.thresholds.attribution import CHANNEL_AXIS_MAX_NODES

_Shape = tuple[int | None, ...]

__all__ = ["axis_of_scales", "channel_axis", "follow_axis"]


def axis_of_scales(quant: QuantParams | None, rank: int) -> int | None:
    """Return the non-negative dimension of the scales, or None if there is only one scale or none."""
    if quant is None or not quant.per_channel or quant.axis is None or not -rank <= quant.axis < rank:
        return None
    return quant.axis % rank


def channel_axis(
    reference: Recording, backend: Recording, pair: Pair, shape: Sequence[int], *, quant: QuantParams | None = None
) -> int | None:
    """Return the channel dimension of a compared tensor.

    The first rule that applies decides: the dimension of the scales, if there are several; the C of the layout; for a
    weight, the dimension of the outputs; the dimension that the upstream operators imply, which is the second for a
    convolution, and the last for a matrix product, a layer normalization, or rows selected from a table. If none
    applies, it is the second dimension, or the last of three, as for features of tokens.

    Args:
        reference: The reference run.
        backend: The backend run.
        pair: The two tensors.
        shape: Shape of their values, in the dimension order of the comparison: the reference's.
        quant: Quantization of the backend tensor, with its axis in that order.

    Returns:
        The non-negative axis, or None for fewer than two dimensions.
    """
    rank = len(shape)
    scale_axis = axis_of_scales(quant, rank)
    if scale_axis is not None:
        return scale_axis
    if rank < 2:
        return None
    layout = reference.graph.tensors[pair.reference].layout
    if layout is not None and len(layout) == rank and "C" in layout:
        return layout.index("C")
    sides = [(reference, pair.reference)] if pair.reference_view is None else []
    sides += [(backend, pair.backend)] if pair.backend_view is None else []
    for recording, tensor in sides:
        weight_axis = _weight_axis(recording.graph, tensor, tuple(shape))
        weight_axis = _Search(recording).axis_of(tensor, tuple(shape)) if weight_axis is None else weight_axis
        if weight_axis is not None and 0 <= weight_axis < rank:
            return weight_axis
    return 2 if rank == 3 else 1


def _weight_axis(graph: Graph, tensor: str, shape: _Shape) -> int | None:
    """Return the output channel dimension of a weight that has several channels, or None for other tensors."""
    producer = graph.producer(tensor)
    input_names = producer.inputs[:1] if producer is not None and operators.of(producer.op).keeps_values else ()
    if not graph.is_constant(tensor) and not any(map(graph.is_constant, input_names)):
        return None
    for node in graph.consumers(tensor):
        if operators.of(node.op).keeps_values and node.inputs[0] == tensor:
            output_axis = _weight_axis(graph, node.outputs[0], shape)
        else:
            axis = operators.output_axis(node) if _second_operand(node) == tensor else None
            output_axis = axis % len(shape) if axis is not None and -len(shape) <= axis < len(shape) else None
        if output_axis is not None and shape[output_axis] != 1:
            return output_axis
    return None


def _second_operand(node: Node) -> str:
    """Return the second operand of a node, with or without scales in between, or "" if it has none."""
    coded = operators.coded_inputs(node.op, len(node.inputs))
    return node.inputs[coded[1]] if len(coded) > 1 else operators.titled_input(node, 1)


class _Search:
    """Examines the operators upstream of a tensor one by one."""

    def __init__(self, recording: Recording) -> None:
        self._recording, self._graph = recording, recording.graph
        self._remaining_nodes = CHANNEL_AXIS_MAX_NODES

    def axis_of(self, tensor: str, shape: _Shape) -> int | None:
        """Return the channel dimension of a tensor, or None if no operator implies one.

        Args:
            tensor: The tensor.
            shape: Its extents.
        """
        node = self._graph.producer(tensor)
        if node is None or not self._remaining_nodes or not shape:
            return None
        self._remaining_nodes -= 1
        own_axis = _axis_of_operator(self._graph, node, len(shape))
        if own_axis is not None:
            return own_axis
        for source, source_shape in self._sources(node, shape):
            source_axis = self.axis_of(source, source_shape)
            axis = None if source_axis is None else follow_axis(node, source_axis, source_shape, shape)
            if (
                axis is not None and 0 <= axis < len(shape) and shape[axis] != 1
            ):  # a dimension of extent 1 is not worth splitting by channel
                return axis
        return None

    def _sources(self, node: Node, shape: _Shape) -> Iterator[tuple[str, _Shape]]:
        """Yield the inputs that a node may inherit its dimensions from, with their shapes."""
        first = node.inputs[0] if node.inputs else ""
        row = operators.plain(node)
        if not first or (row.reduces and not row.picks_index):
            return
        takes_all_inputs = row.arranges or row.moves is operators.Move.GATHER
        input_names = (first,) if takes_all_inputs else operators.operands(node)
        shapes = {name: self._shape(name) for name in input_names if name and not self._graph.is_constant(name)}
        yield from (
            (name, extents)
            for name, extents in shapes.items()
            if extents is not None and (takes_all_inputs or len(extents) == len(shape))
        )
        if not takes_all_inputs:
            yield from ((name, shape) for name, extents in shapes.items() if extents is None)

    def _shape(self, tensor: str) -> _Shape | None:
        """Return the recorded or declared shape of a tensor."""
        if self._recording.has(tensor):
            return shape_of(self._recording, tensor)
        return self._graph.tensors[tensor].shape


def _axis_of_operator(graph: Graph, node: Node, rank: int) -> int | None:
    """Return the channel dimension of a node's operator, or None if it does not define one."""
    row, plain = operators.of(node.op), operators.plain(node)
    channels = operators.channels_of(plain.name)
    if channels == "second":
        return rank - 1 if node.attrs.get("channels_last") or row.channels_last else 1
    picks_rows = plain.moves is operators.Move.GATHER and _picks_rows(graph, node)
    return rank - 1 if channels == "last" or picks_rows else None


def _picks_rows(graph: Graph, node: Node) -> bool:
    """Return whether a Gather selects rows of a constant table, such as word embeddings."""
    table = node.inputs[0] if node.inputs else ""
    if not table or not graph.is_constant(table) or node.attrs.get("axis", 0):
        return False
    return len(graph.tensors[table].shape or ()) == 2


def follow_axis(node: Node, axis: int, input_shape: _Shape, output_shape: _Shape) -> int | None:
    """Return the output dimension of a node that corresponds to an input dimension, or None if unknown.

    Args:
        node: The node.
        axis: The dimension.
        input_shape: Extents of its input.
        output_shape: Extents of its output.
    """
    if not 0 <= axis < len(input_shape):
        return None
    row = operators.plain(node)
    if row.transposes:
        order = node.attrs.get("perm", tuple(reversed(range(len(input_shape)))))
        return list(order).index(axis) if isinstance(order, tuple | list) and axis in order else None
    if row.reshapes:
        return _axis_after_reshape(axis, input_shape, output_shape)
    if row.moves is operators.Move.GATHER:
        gathered_axis = node.attrs.get("axis", 0)
        gathered_axis = gathered_axis % len(input_shape) if isinstance(gathered_axis, int) else axis
        return (
            None
            if axis == gathered_axis
            else axis
            if axis < gathered_axis
            else axis + len(output_shape) - len(input_shape)
        )
    return axis


def _axis_after_reshape(axis: int, input_shape: _Shape, output_shape: _Shape) -> int | None:
    """Return the output dimension of a reshape that corresponds to an input dimension, or None if unknown.

    If the dimension is split, this is its last part.
    """
    stride = _elements(input_shape[axis + 1 :])
    for at in range(len(output_shape)):
        inner = _elements(output_shape[at + 1 :])
        if stride is None or inner is None:
            continue
        extent = output_shape[at]
        if inner <= stride and (extent is None or stride < inner * extent):
            return at
    return None


def _elements(shape: _Shape) -> int | None:
    return None if None in shape else prod(extent for extent in shape if extent is not None)
