"""Distances between the weights of two nodes, in any format and layout."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import block_of
from qdebug.errors import KernelError
from qdebug.model import Node, operators
from qdebug.model.operators import Sums
from qdebug.model.thresholds.alignment import (
    SCALAR_MAX_REL_DIFFERENCE,
    WEIGHT_SKETCH_MAX_RATIO,
    WEIGHT_SKETCH_SUMS,
)
from qdebug.replay.blockwise_weight import blockwise_weight, packed_inputs
from qdebug.replay.real_form import real_form

__all__ = [
    "WeightSketches",
    "array_distance",
    "has_same_scalar",
    "in_plain_order",
    "near_weights",
    "weight_distance",
    "weight_of",
    "without_padding",
]

_SEED = 20
_SKETCH_BLOCK = 1 << 16


def weight_of(run: IndexedRecording, node: Node) -> np.ndarray | None:
    """Return the largest recorded constant that a node reads, as real values, or None if it reads only scalars.

    A product's bias is not its weight, even if the weight was not recorded.
    """
    if operators.of(node.op).packed:
        return _load_blockwise_weight(run, node)
    bias = operators.of(node.op).bias if operators.plain(node).product else None
    constants = [position for position, name in enumerate(node.inputs) if name and run.folds(name)]
    largest = None if constants == [bias] else _largest_constant(run, node)
    return None if largest is None or largest.size <= 1 else largest


def has_same_scalar(ref: IndexedRecording, reference_node: Node, be: IndexedRecording, backend_node: Node) -> bool:
    """Return whether the only constants of two nodes are the same number, up to quantization."""
    forms = ((be, backend_node), (ref, reference_node))  # in the real forms, scales and zero points do not count
    first, second = (_largest_constant(run, real_form(node, run.recording.graph.opset)[0]) for run, node in forms)
    if first is None or second is None or first.size != 1 or second.size != 1:
        return False
    return bool(np.isclose(first.item(), second.item(), rtol=SCALAR_MAX_REL_DIFFERENCE, atol=0))


def _largest_constant(run: IndexedRecording, node: Node) -> np.ndarray | None:
    sizes: list[tuple[int, str]] = []
    for tensor in node.inputs:
        if tensor and run.folds(tensor):
            recorded = next((m for m in reversed(run.members(tensor)) if run.has(m)), None)
            if recorded is not None:
                sizes.append((run.size(recorded), recorded))
    return in_plain_order(run, node, run.values(max(sizes)[1])) if sizes else None


def in_plain_order(run: IndexedRecording, node: Node, weight: np.ndarray) -> np.ndarray:
    """Bring a Conv weight stored in blocks of channels into outputs, inputs, rows, columns.

    ONNX Runtime keeps O/block, I/block, H, W, block of I, block of O if the Conv reads blocks, and O/block, I, H, W,
    block of O if it reads plain channels or is depthwise (MLAS, reorder.cpp, MlasReorderFilterOIHWBiBo and
    MlasReorderFilterOIHWBo).

    Args:
        run: The run that contains the node.
        node: The node. If it does not write blocks, its weight is returned unchanged.
        weight: Its weight, including any padding channels.
    """
    blocks = [block_of(run.graph.tensors[name].layout) for name in (node.inputs[0], node.outputs[0]) if name]
    block = blocks[-1] if len(blocks) > 1 and operators.plain(node).sums is Sums.FILTER else None
    if block is None or weight.ndim != 4 or weight.shape[0] % block:
        return weight
    outputs, inputs, *kernel = weight.shape
    inner = block if blocks[0] == block and inputs % block == 0 else 1
    parts = weight.reshape(outputs // block, inputs // inner, *kernel, inner, block)
    return parts.transpose(0, 5, 1, 4, 2, 3).reshape(weight.shape)


def _load_blockwise_weight(run: IndexedRecording, node: Node) -> np.ndarray | None:
    names = packed_inputs(node)
    if not all(run.folds(name) and run.has(name) for name in names):
        return None
    try:
        codes, scales = blockwise_weight(node, {name: run.recording.load(name) for name in names})
    except KernelError:
        return None
    return np.asarray(codes * scales, np.float64)


def weight_distance(
    ref: IndexedRecording, reference_node: Node, be: IndexedRecording, backend_node: Node
) -> float | None:
    """Return norm(backend - reference) / norm(reference) for the weights of two nodes.

    Matrices and weights of products are transposed as needed. An added constant is not transposed: its order is that of
    the data, which is not known yet.

    Returns:
        None if either node has no weight, infinity if the sizes differ.
    """
    backend, reference = weight_of(be, backend_node), weight_of(ref, reference_node)
    if backend is None or reference is None:
        return None
    return array_distance(reference, backend, product=operators.plain(backend_node).product)


def array_distance(reference: np.ndarray, backend: np.ndarray, *, product: bool) -> float:
    """Return the distance between two weights as `weight_distance` does.

    Args:
        reference: The reference weight.
        backend: The backend weight, with or without padding channels.
        product: Whether they are weights of a product, which may have another framework's dimension order.
    """
    backend = without_padding(backend, reference.shape)
    norm = float(np.linalg.norm(reference))
    if reference.size != backend.size or not norm:
        return math.inf
    permutation, orders = _compared_orders(reference.shape, backend.shape, product=product)
    flat = reference.transpose(permutation).reshape(-1)
    return min(float(np.linalg.norm(backend.transpose(order).reshape(-1) - flat)) for order in orders) / norm


def _compared_orders(
    reference: tuple[int, ...], backend: tuple[int, ...], *, product: bool
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Return the dimension orders in which a reference weight and a backend weight are compared.

    Args:
        reference: Shape of the reference weight.
        backend: Shape of the backend weight, which has the same number of elements.
        product: Whether they are weights of a product.
    """
    plain = tuple(range(len(reference)))
    permutation = plain[::-1] if reference != backend == reference[::-1] else plain
    orders = _layout_permutations(backend, tuple(reference[axis] for axis in permutation)) if product else []
    return permutation, [tuple(range(len(backend))), *orders]


def _layout_permutations(shape: tuple[int, ...], target_shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the permutations from another framework's weight layout to outputs, inputs, rows, columns."""
    if len(shape) != len(target_shape) or len(shape) < 3:
        return []
    middle = tuple(range(1, len(shape) - 1))
    last = len(shape) - 1
    orders = [
        (0, last, *middle),
        (last, 0, *middle),
        (last, last - 1, *range(last - 1)),
        (last - 1, last, *range(last - 1)),
    ]
    return [order for order in orders if tuple(shape[axis] for axis in order) == target_shape]


def without_padding(weight: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Remove zero channels that pad a block, or return the weight itself if that does not give the target shape."""
    if weight.ndim != 4 or weight.shape == shape or weight.shape[2:] != shape[2:] or weight.shape < shape:
        return weight
    trimmed = weight[: shape[0], : shape[1]]
    nonzero_padding = np.count_nonzero(weight) - np.count_nonzero(trimmed)
    return trimmed if trimmed.shape == shape and not nonzero_padding else weight


class WeightSketches:
    """Shapes, norms and sketches of the weights of a run. Each weight is read a few times, not once per comparison.

    A sketch has `WEIGHT_SKETCH_SUMS` sums of the elements of a weight, each element with a random sign in a random sum.
    The norm of the difference of two sketches estimates the norm of the difference of the two weights (Charikar, Chen,
    Farach-Colton, "Finding frequent items in data streams", 2002).

    Args:
        run: The run.

    Attributes:
        run: The run.
    """

    def __init__(self, run: IndexedRecording) -> None:
        self.run = run
        self._outlines: dict[str, tuple[tuple[int, ...], float] | None] = {}
        self._sketches: dict[tuple[str, tuple[int, ...], tuple[int, ...]], np.ndarray | None] = {}

    def outline(self, node: Node) -> tuple[tuple[int, ...], float] | None:
        """Return the shape and the norm of a node's weight, or None if it has none."""
        if node.name not in self._outlines:
            weight = weight_of(self.run, node)
            self._outlines[node.name] = None if weight is None else (weight.shape, float(np.linalg.norm(weight)))
            if weight is not None:
                self._sketches[node.name, weight.shape, tuple(range(weight.ndim))] = _compute_sketch(weight)
        return self._outlines[node.name]

    def sketch(self, node: Node, shape: tuple[int, ...], order: tuple[int, ...]) -> np.ndarray | None:
        """Return the sketch of a node's weight.

        Args:
            node: The node.
            shape: Shape of the weight, without padding channels.
            order: The order of its dimensions.

        Returns:
            The sums, float64, or None if the weight does not have this shape without padding channels.
        """
        key = node.name, shape, order
        if key not in self._sketches:
            weight = weight_of(self.run, node)
            unpadded = None if weight is None else without_padding(weight, shape)
            fits = unpadded is not None and unpadded.shape == shape
            self._sketches[key] = _compute_sketch(unpadded.transpose(order)) if unpadded is not None and fits else None
        return self._sketches[key]


def _compute_sketch(weight: np.ndarray) -> np.ndarray:
    flat, sums = weight.reshape(-1), np.zeros(2 * WEIGHT_SKETCH_SUMS)
    for block_number, start in enumerate(range(0, flat.size, _SKETCH_BLOCK)):
        block = flat[start : start + _SKETCH_BLOCK]
        bins = np.random.default_rng([_SEED, block_number]).integers(0, sums.size, block.size, dtype=np.uint16)
        sums += np.bincount(bins, weights=block, minlength=sums.size)
    with np.errstate(all="ignore"):  # infinite values have no sketch
        return np.asarray(sums[:WEIGHT_SKETCH_SUMS] - sums[WEIGHT_SKETCH_SUMS:])


def near_weights(
    ref: WeightSketches,
    candidates: Sequence[Node],
    be: WeightSketches,
    backend_node: Node,
    *,
    limit: float,
    ratio: float,
) -> list[tuple[float, Node]]:
    """Measure the weights of the reference nodes that may be nearest to a backend node's weight.

    Args:
        ref: The reference weights.
        candidates: The reference nodes.
        be: The backend weights.
        backend_node: The backend node.
        limit: The largest relative distance that counts.
        ratio: Share of a candidate's distance above which the nearest candidate cannot be distinguished from it.

    Returns:
        Distances as `weight_distance` measures them, with their nodes, in ascending order. All candidates within
            `limit` are included, and all within the nearest distance / `ratio`. Others may be missing.
    """
    distances: list[tuple[float, Node]] = []
    measured: dict[tuple[tuple[int, ...], bytes], float | None] = {}  # several nodes may read one constant
    for estimate, key, candidate in sorted(
        _estimate_distances(ref, candidates, be, backend_node), key=lambda entry: entry[0]
    ):
        nearest = min((distance for distance, _ in distances), default=math.inf)
        if estimate > WEIGHT_SKETCH_MAX_RATIO * min(limit, nearest) / ratio:
            break
        if key not in measured:
            measured[key] = weight_distance(ref.run, candidate, be.run, backend_node)
        distance = measured[key]
        if distance is not None and math.isfinite(distance):
            distances.append((distance, candidate))
    return sorted(distances, key=lambda entry: entry[0])


def _estimate_distances(
    ref: WeightSketches, candidates: Sequence[Node], be: WeightSketches, backend_node: Node
) -> Iterator[tuple[float, tuple[tuple[int, ...], bytes], Node]]:
    """Yield each candidate that has a finite estimated distance, with a key that is equal for equal weights."""
    own_outline = be.outline(backend_node)
    if own_outline is None:
        return
    nodes_by_shape: dict[tuple[int, ...], list[Node]] = {}
    for candidate in candidates:
        outline = ref.outline(candidate)
        if outline is not None and 0 < outline[1] < math.inf:
            nodes_by_shape.setdefault(outline[0], []).append(candidate)
    for shape, nodes in nodes_by_shape.items():
        own_shape = shape if be.sketch(backend_node, shape, tuple(range(len(shape)))) is not None else own_outline[0]
        if math.prod(own_shape) != math.prod(shape):
            continue
        permutation, orders = _compared_orders(shape, own_shape, product=operators.plain(backend_node).product)
        own_sketches = [sketch for order in orders if (sketch := be.sketch(backend_node, own_shape, order)) is not None]
        candidate_sketches = np.stack(
            [sketch for node in nodes if (sketch := ref.sketch(node, shape, permutation)) is not None]
        )
        norms = np.array([outline[1] for node in nodes if (outline := ref.outline(node)) is not None])
        nearest = (
            np.min([np.linalg.norm(candidate_sketches - sketch, axis=1) for sketch in own_sketches], axis=0) / norms
        )
        for at in np.flatnonzero(np.isfinite(nearest)):
            yield float(nearest[at]), (shape, candidate_sketches[at].tobytes()), nodes[at]
