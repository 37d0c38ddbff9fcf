"""Arrangements of dumped elements, such as channels last or blocks of channels, and how to undo them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.errors import UsageError
from qdebug.model import Graph, operators
from qdebug.model.layouts import is_channels_last
from qdebug.model.operators.dialects import translate_to_onnx

__all__ = ["Arrangement", "find_arrangement", "has_channels_second", "rank_of"]

_BLOCKS = re.compile(r"NC1HWC[02]|NCHW(?P<lanes>\d+)C|NC(?P<each>\d+)HW(?P=each)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """How a dump arranges a tensor.

    Args:
        layout: Name of the layout in the dump.
        shape: Extents in the dump, in terms of the model's shape; None for an open extent.
        axes: The dump's dimension for each of the model's; None if channels are in blocks.
        restore_order: Converts an array with these extents to the model's order.
    """

    layout: str
    shape: tuple[int | None, ...]
    axes: tuple[int, ...] | None
    restore_order: Callable[[np.ndarray], np.ndarray]


def find_arrangement(layout: str, shape: Sequence[int | None], dump_shape: Sequence[int] | None) -> Arrangement | None:
    """Return the arrangement of a tensor whose channels are in the second dimension in the model.

    Args:
        layout: Name of the layout: "NHWC", "NC1HWC2", "NCHW16c", "NC4HW4" ...
        shape: Extents in the model; None for an open extent.
        dump_shape: Extents in the dump; None if not stated.

    Returns:
        The arrangement; None if the layout is unknown, has a different number of dimensions, or its block size is
        unknown.
    """
    rank = len(shape)
    if is_channels_last(layout) and len(layout) == rank:
        order = (0, *range(2, rank), 1)
        axes = tuple(order.index(axis) for axis in range(rank))
        return Arrangement(
            layout=layout,
            shape=tuple(shape[axis] for axis in order),
            axes=axes,
            restore_order=lambda array: array.transpose(axes),
        )
    blocks = _BLOCKS.fullmatch(layout)
    if blocks is None or rank != 4 or shape[1] is None:
        return None
    channels = shape[1]
    block_size = blocks["lanes"] or blocks["each"]
    lanes = int(block_size) if block_size else None
    if dump_shape is not None:
        if len(dump_shape) != 5 or (lanes is not None and dump_shape[4] != lanes):
            return None
        lanes = dump_shape[4]
    if not lanes or (dump_shape is not None and dump_shape[1] != -(-channels // lanes)):
        return None

    # The last axis holds the channels of a block; the last block may be padded, so the result is cut to `channels`.
    def restore_order(array: np.ndarray) -> np.ndarray:
        batch, outer, height, width, block = array.shape
        return array.transpose(0, 1, 4, 2, 3).reshape(batch, outer * block, height, width)[:, :channels]

    extents = (shape[0], -(-channels // lanes), shape[2], shape[3], lanes)
    return Arrangement(layout=layout, shape=extents, axes=None, restore_order=restore_order)


def rank_of(layout: str) -> int:
    """Return the rank of a model's tensor that has this layout in a dump.

    Raises:
        UsageError: The layout is unknown.
    """
    if _BLOCKS.fullmatch(layout):
        return 4
    if is_channels_last(layout) or layout in ("NCHW", "NCDHW", "NCW"):
        return len(layout)
    raise UsageError(
        f"Unknown layout {layout!r}.",
        hint="Use NHWC, NDHWC, NWC, NLC, NTC, NCHW, NCDHW, NCW, or blocks of channels: NC1HWC2, NCHW16c, NC4HW4.",
    )


def has_channels_second(graph: Graph) -> bool:
    """Return whether a graph's nodes have channels in the second dimension, as in ONNX. False if no node has channels.

    Args:
        graph: The model.
    """
    for node in graph.nodes:
        node_in_onnx = translate_to_onnx(node, graph, _no_constant)
        onnx_node = operators.with_onnx_op(node) if node_in_onnx is None else node_in_onnx.node
        if operators.has_channels_second(onnx_node.op):
            layouts = (graph.tensors[name].layout for name in (*node.outputs[:1], *node.inputs[:1]) if name)
            return not onnx_node.attrs.get("channels_last") and not any(map(is_channels_last, layouts))
    return False


def _no_constant(name: str) -> None:
    del name
