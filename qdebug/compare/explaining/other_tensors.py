"""Recorded tensors that a kernel may have confused with the right one. Begin at `tensors_of_shape`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.compare.attribute.graph_walk import downstream
from qdebug.model import Node, Recording, operators
from qdebug.model.recording import shape_of
from qdebug.model.thresholds.explanation import CAUSE_MIN_DISTINCT_VALUES
from qdebug.numerics.affine import dequantize

__all__ = ["substituted_operands", "tensors_of_shape"]

Place = tuple[int, int]


def tensors_of_shape(
    recording: Recording, shape: Sequence[int], place: Place, *, excluded: Collection[str]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the recorded results of nodes that have a given shape, dequantized, from the last node to the first.

    Args:
        recording: The run.
        shape: The shape.
        place: Sample and step.
        excluded: Names to leave out.
    """
    graph = recording.graph
    names = (
        name
        for node in reversed(graph.nodes)
        for name in node.outputs
        if name and name not in excluded and recording.has(name, *place)
    )
    fitting_names = (name for name in names if shape_of(recording, name, *place) == tuple(shape))
    for name in islice(fitting_names, _MAX_TENSORS_TRIED):
        yield name, dequantize(recording.load(name, *place), graph.tensors[name].quant)


def substituted_operands(
    recording: Recording, node: Node, form: Node, operands: Mapping[str, np.ndarray], *, place: Place, tensor: str
) -> Iterator[Mistake]:
    """Yield mistakes in which a node reads another recorded tensor in place of an operand.

    Args:
        recording: The run.
        node: The node.
        form: Its real form.
        operands: The inputs of that form.
        place: Sample and step.
        tensor: The node's output, or a later output of its layer. Tensors downstream of it are not tried.
    """
    excluded_tensors = {*node.inputs, *downstream(recording.graph, [tensor])}
    for name, array in operands.items():
        if array.size < CAUSE_MIN_DISTINCT_VALUES or recording.graph.is_constant(name):
            continue
        yield from _reads_without_strides(recording, form, name, array, place)
        for candidate, values in tensors_of_shape(recording, array.shape, place, excluded=excluded_tensors):
            if values.dtype == array.dtype and not np.array_equal(values, array):
                clause = f"{candidate!r} is read instead of {name!r}"
                yield Mistake(likely=clause, node=form, values={name: values})


def _reads_without_strides(
    recording: Recording, form: Node, name: str, array: np.ndarray, place: Place
) -> Iterator[Mistake]:
    """Yield mistakes in which an operand is read as contiguous, although it is a view of an earlier tensor."""
    graph = recording.graph
    viewed = name
    for _ in range(_MAX_VIEWS):
        maker = graph.producer(viewed)
        if maker is None or operators.of(maker.op).moves is None or not maker.inputs or graph.is_constant(viewed):
            return
        viewed = maker.inputs[0]
        if not recording.has(viewed, *place):
            continue
        elements = dequantize(recording.load(viewed, *place), graph.tensors[viewed].quant).reshape(-1)
        if elements.dtype != array.dtype or elements.size < array.size:
            continue
        offsets = dict.fromkeys((0, *np.flatnonzero(elements == array.flat[0])[:1].tolist()))
        for offset in offsets:
            values = elements[offset : offset + array.size]
            if values.size == array.size and not np.array_equal(values, array.reshape(-1)):
                clause = f"the strides of {name!r} are ignored: {viewed!r} is read in memory order"
                yield Mistake(likely=clause, node=form, values={name: values.reshape(array.shape)})


_MAX_VIEWS = 4
"""Maximum number of views of views that are tried."""
_MAX_TENSORS_TRIED = 64
"""Maximum number of tensors of a shape that are tried."""
