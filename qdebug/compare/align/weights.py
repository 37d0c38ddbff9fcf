"""How near the weights of two nodes are to each other, whatever format and layout each is kept in."""

from __future__ import annotations

import math

import numpy as np

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import block_of
from qdebug.errors import KernelError
from qdebug.model import Node, operators
from qdebug.model.operators import Sums
from qdebug.model.thresholds.alignment import SCALAR_MAX_REL_DIFFERENCE
from qdebug.replay.blockwise_weight import blockwise_weight
from qdebug.replay.real_form import real_form

__all__ = ["array_distance", "in_plain_order", "same_scalar", "weight_distance", "weight_of", "without_padding"]


def weight_of(run: IndexedRecording, node: Node) -> np.ndarray | None:
    """Return the largest recorded constant that a node reads, as real values; None if that is a scalar, or none."""
    if operators.of(node.op).packs_weight:
        return _of_blocks(run, node)
    largest = _largest(run, node)
    return None if largest is None or largest.size <= 1 else largest


def same_scalar(ref: IndexedRecording, theirs: Node, be: IndexedRecording, ours: Node) -> bool:
    """Tell whether the only constant of each of two nodes is the same number, but for rounding it to a code."""
    forms = ((be, ours), (ref, theirs))  # their scales and zero points are scalars, too
    one, other = (_largest(run, real_form(node, run.recording.graph.opset)[0]) for run, node in forms)
    if one is None or other is None or one.size != 1 or other.size != 1:
        return False
    return bool(np.isclose(one.item(), other.item(), rtol=SCALAR_MAX_REL_DIFFERENCE, atol=0))


def _largest(run: IndexedRecording, node: Node) -> np.ndarray | None:
    sizes: list[tuple[int, str]] = []
    for tensor in node.inputs:
        if tensor and run.folds(tensor):
            held = next((m for m in reversed(run.members(tensor)) if run.has(m)), None)
            if held is not None:
                sizes.append((run.size(held), held))
    return in_plain_order(run, node, run.values(max(sizes)[1])) if sizes else None


def in_plain_order(run: IndexedRecording, node: Node, weight: np.ndarray) -> np.ndarray:
    """Bring a Conv's weight that is kept in blocks of channels into outputs, inputs, rows, columns.

    ONNX Runtime keeps O/block, I/block, H, W, block of I, block of O where the Conv reads blocks, and O/block, I, H, W,
    block of O where it reads plain channels or each of its own (MLAS, reorder.cpp, MlasReorderFilterOIHWBiBo and
    MlasReorderFilterOIHWBo).

    Args:
        run: The run that has the node.
        node: The node; the weight of one that does not write blocks is given back as it is.
        weight: Its weight, with padding channels if it has some.
    """
    blocks = [block_of(run.graph.tensors[name].layout) for name in (node.inputs[0], node.outputs[0]) if name]
    block = blocks[-1] if len(blocks) > 1 and operators.plain(node).sums is Sums.FILTER else None
    if block is None or weight.ndim != 4 or weight.shape[0] % block:
        return weight
    outputs, inputs, *kernel = weight.shape
    inner = block if blocks[0] == block and inputs % block == 0 else 1
    parts = weight.reshape(outputs // block, inputs // inner, *kernel, inner, block)
    return parts.transpose(0, 5, 1, 4, 2, 3).reshape(weight.shape)


def _of_blocks(run: IndexedRecording, node: Node) -> np.ndarray | None:
    names = [name for name in node.inputs[1:4] if name]
    if not all(run.folds(name) and run.has(name) for name in names):
        return None
    try:
        codes, scales = blockwise_weight(node, {name: run.recording.load(name) for name in names})
    except KernelError:
        return None
    return np.asarray(codes * scales, np.float64)


def weight_distance(ref: IndexedRecording, theirs: Node, be: IndexedRecording, ours: Node) -> float | None:
    """Return norm(backend - reference) / norm(reference) of two nodes' weights.

    A transposed matrix is turned, and so is a product's weight. What is added in another order of dimensions is not:
    then the data have that order too, which is to be found first.

    Returns:
        None where either node has none; infinity where they have other numbers of elements.
    """
    backend, reference = weight_of(be, ours), weight_of(ref, theirs)
    if backend is None or reference is None:
        return None
    return array_distance(reference, backend, product=operators.plain(ours).product)


def array_distance(reference: np.ndarray, backend: np.ndarray, *, product: bool) -> float:
    """Return the distance of two weights as `weight_distance` does.

    Args:
        reference: The reference's.
        backend: The backend's, with or without padding channels.
        product: Whether they are weights of a product, which may be in the order of another framework.
    """
    backend = without_padding(backend, reference.shape)
    norm = float(np.linalg.norm(reference))
    if reference.size != backend.size or not norm:
        return math.inf
    if reference.shape != backend.shape and reference.T.shape == backend.shape:
        reference = reference.T
    orders = _orders(backend.shape, reference.shape) if product else []
    errors = (np.linalg.norm(backend.transpose(order) - reference) for order in orders)
    plain = np.linalg.norm(backend - reference.reshape(backend.shape))
    return float(min((plain, *errors))) / norm


def _orders(shape: tuple[int, ...], wanted: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the orders of dimensions that turn a weight of another framework into outputs, inputs, rows, columns."""
    if len(shape) != len(wanted) or len(shape) < 3:
        return []
    middle = tuple(range(1, len(shape) - 1))
    last = len(shape) - 1
    orders = [
        (0, last, *middle),
        (last, 0, *middle),
        (last, last - 1, *range(last - 1)),
        (last - 1, last, *range(last - 1)),
    ]
    return [order for order in orders if tuple(shape[axis] for axis in order) == wanted]


def without_padding(weight: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Leave out channels of nothing but zeros that fill up a block; the weight itself if that does not give a shape."""
    if weight.ndim != 4 or weight.shape == shape or weight.shape[2:] != shape[2:] or weight.shape < shape:
        return weight
    kept = weight[: shape[0], : shape[1]]
    filled = np.count_nonzero(weight) - np.count_nonzero(kept)
    return kept if kept.shape == shape and not filled else weight
