"""Intervals that a tensor's real values are clipped to, by its code range or by a clamp fused into its node.

Also the effect of the backend's own quantization inside a region that is compared as a whole. The region is replayed
twice on the backend's recorded inputs and constants: with each tensor rounded to its codes, as the backend's graph
states, and without any rounding. The difference is rounding that the other graph lacks and that is not a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType

import numpy as np

from qdebug.compare.align.clamps import code_span
from qdebug.compare.align.expand import parts_of
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.layouts import in_reference_order
from qdebug.compare.align.pairs import Pair, clamp_of
from qdebug.compare.attribute.backend_replay import real_values, replay_own
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.attribute.segments import Segment
from qdebug.errors import KernelError
from qdebug.model import Graph, Node, QuantParams, Recording, operators
from qdebug.model.operators import clamp_bounds, fused_activation
from qdebug.model.thresholds.alignment import CLEARER_CANDIDATE_MAX_ERROR_RATIO
from qdebug.numerics.affine import dequantize, quantize
from qdebug.numerics.blocks import Clamp
from qdebug.replay.segment import run_form

__all__ = [
    "clamp_unless_recorded_unclamped",
    "clip_in_turn",
    "codes_behind",
    "folded_clamp",
    "own_values",
    "recorded_values",
    "reference_codes",
    "rounding_inside",
    "span_after",
    "span_before",
    "uniform_span",
]


def folded_clamp(reference: Recording, backend: Recording, entry: PlannedNode) -> tuple[float, float] | None:
    """Return the interval of the reference's Relu or Clip that the backend may fuse into its node."""
    reference_node = _producer_of_values(reference.graph, entry.reference_tensor)
    backend_node = backend.graph.producer(entry.tensor)
    if reference_node is None or backend_node is None or operators.of(backend_node.op).dequantizes:
        return None
    if operators.of(fused_activation(reference_node) or "").clamps:
        reference_node = parts_of(reference_node)[-1]
    if not operators.of(reference_node.op).clamps or backend_node.op == reference_node.op:
        return None
    return clamp_bounds(
        reference_node, {n: reference.load(n) for n in reference_node.inputs[1:] if n and reference.has(n)}
    )


def clamp_unless_recorded_unclamped(
    replayed: np.ndarray, recorded: np.ndarray, folded: tuple[float, float]
) -> np.ndarray:
    """Clamp a replay to the interval of a fused clamp, unless the recorded values are clearly unclamped.

    Args:
        replayed: The real-valued result of the node without the clamp.
        recorded: The backend's real values, with as many elements.
        folded: The interval.
    """
    clamped = clip_in_turn(replayed, folded)
    values = recorded.reshape(replayed.shape)
    errors = (float(np.linalg.norm(np.subtract(version, values, dtype=np.float64))) for version in (replayed, clamped))
    return replayed if next(errors) < CLEARER_CANDIDATE_MAX_ERROR_RATIO * next(errors) else clamped


def uniform_span(quant: QuantParams | None) -> Clamp:
    """Return the real values of the lowest and highest code, or no bounds for per-channel scales and float codes."""
    span = None if quant is None or quant.per_channel else quant.span
    return (None, None) if span is None else span


def clip_in_turn(values: np.ndarray, *spans: Clamp | None) -> np.ndarray:
    """Clamp real values to several intervals in turn. None, or an interval without bounds, has no effect."""
    for span in spans:
        if span is not None and span != (None, None):
            values = np.clip(values, *span)
    return values


def recorded_values(
    reference: Recording, backend: Recording, entry: PlannedNode, shape: tuple[int, ...], place: tuple[int, int]
) -> np.ndarray:
    """Return the backend's values of a tensor, clamped to the reference's range.

    Args:
        reference: The reference run.
        backend: The backend run.
        entry: The tensor.
        shape: The reference's shape, in the dimension order of the comparison.
        place: Sample and step.
    """
    stored = dequantize(backend.load(entry.tensor, *place), entry.quant)
    values = in_reference_order(stored, entry.pair.backend_view, shape)
    return clip_in_turn(values, clamp_of(entry.pair.backend_view), span_before(reference.graph, entry.reference_tensor))


def span_before(graph: Graph, tensor: str) -> Clamp:
    """Return the interval of the codes that a tensor holds or was dequantized from, unbounded without codes."""
    return uniform_span(graph.tensors[codes_behind(graph, tensor)].quant)


def span_after(recording: Recording, tensor: str) -> Clamp:
    """Return the interval to which the readers of a tensor, all Relu or Clip, clip it. Values outside have no effect.

    Args:
        recording: The run.
        tensor: One of its tensors.

    Returns:
        The interval, unbounded if the tensor has other readers or the interval is unknown.
    """
    graph, unbounded = recording.graph, (None, None)
    lows, highs, waiting, visited = list[float](), list[float](), [tensor], {tensor}
    while waiting:
        name = waiting.pop()
        readers = graph.consumers(name)
        if not readers or name in graph.outputs:
            return unbounded
        for node in readers:
            row = operators.of(node.op)
            if row.keeps_values or row.converts_codes:
                outputs = set(node.outputs) - visited - {""}
                waiting, visited = [*waiting, *outputs], visited | outputs
                continue
            bound_values = (
                {n: recording.load(n) for n in node.inputs[1:] if n and recording.has(n)} if row.clamps else {}
            )
            bounds = clamp_bounds(node, bound_values)
            if bounds is None:
                return unbounded
            lows.append(bounds[0])
            highs.append(bounds[1])
    return min(lows), max(highs)


def reference_codes(reference: Graph, backend: Graph, entry: PlannedNode) -> QuantParams | None:
    """Return the quantization that the reference applies to a tensor but the backend may not.

    This is the tensor's own quantization. If a dequantizer computes it in the reference only, it is the quantization of
    the codes that the dequantizer reads. Dequantizers on both sides add no rounding.

    Returns:
        The quantization, or None if the reference tensor has none or several.
    """
    quant = reference.tensors[entry.reference_tensor].quant
    backend_node = backend.producer(entry.tensor)
    if quant is None and not (backend_node is not None and operators.of(backend_node.op).dequantizes):
        quant = reference.tensors[codes_behind(reference, entry.reference_tensor)].quant
    return None if quant is None or quant.per_channel else quant


def codes_behind(graph: Graph, tensor: str) -> str:
    """Return the codes that a tensor was dequantized from, or the tensor itself if it was not dequantized."""
    node = graph.producer(tensor)
    is_dequantized = node is not None and operators.of(node.op).dequantizes
    return node.inputs[0] if node is not None and node.inputs and is_dequantized else tensor


def _producer_of_values(graph: Graph, tensor: str) -> Node | None:
    node = graph.producer(tensor)
    while node is not None and operators.of(node.op).keeps_values:
        node = graph.producer(node.inputs[0]) if node.inputs else None
    return node


def rounding_inside(
    be: IndexedRecording,
    pair: Pair,
    segment: Segment,
    shape: tuple[int, ...],
    place: tuple[int, int],
    *,
    recorded_names: Collection[str] = (),
) -> np.ndarray:
    """Return the effect of rounding to the backend's own codes on each element of a segment's result.

    Clipping to the code range does not count as rounding. It is applied in both replays.

    Args:
        be: The backend run.
        pair: The pair whose backend tensor the segment ends in.
        segment: The segment.
        shape: The shape of the reference tensor, in the dimension order of the comparison.
        place: Sample and step.
        recorded_names: Tensors whose recorded codes are used instead of rounding.

    Returns:
        Real values in that order.

    Raises:
        KernelError: A node cannot be replayed.
        RecordingError: A constant or an input was not recorded.
    """
    inner_values = {name: real_values(be.recording, name, place) for name in recorded_names}
    rounded, real = (
        replay_own(be.recording, pair, segment, shape, place, run=run)
        for run in (
            partial(_run_coded, be=be, to_codes=True, inner_values=inner_values),
            partial(_run_coded, be=be, to_codes=False),
        )
    )
    return np.asarray(np.subtract(rounded, real, dtype=np.float64))


def own_values(
    be: IndexedRecording,
    pair: Pair,
    segment: Segment,
    shape: tuple[int, ...],
    place: tuple[int, int],
    *,
    rounded: Callable[[np.ndarray], np.ndarray] | None = None,
) -> np.ndarray:
    """Return the result of the backend's own nodes on their recorded inputs, each quantized tensor rounded to codes.

    Args:
        be: The backend run.
        pair: The pair whose backend tensor the segment ends in.
        segment: The segment.
        shape: The shape of the reference tensor, in the dimension order of the comparison.
        place: Sample and step.
        rounded: Rounds real numbers between the nodes to a short format; None to keep them.

    Returns:
        Real values in that order.

    Raises:
        KernelError: A node cannot be replayed.
        RecordingError: A constant or an input was not recorded.
    """
    run = partial(_run_coded, be=be, to_codes=True, rounded=rounded)
    return replay_own(be.recording, pair, segment, shape, place, run=run)


def _run_coded(
    node: Node,
    form: Node,
    opset: Mapping[str, int],
    values: Mapping[str, np.ndarray],
    *,
    be: IndexedRecording,
    to_codes: bool,
    inner_values: Mapping[str, np.ndarray] = MappingProxyType({}),
    rounded: Callable[[np.ndarray], np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Compute a node, clip its result to its code range, and round it to codes or to a short format on request."""
    if operators.of(node.op).takes_codes and operators.of(node.op).packed is None:
        raise KernelError(f"{node.op} computes with codes")
    results: dict[str, np.ndarray] = {}
    for name, array in run_form(node, form, opset, values).items():
        quant, span = be.recording.graph.tensors[name].quant, code_span(be, name)
        clipped = clip_in_turn(array, span)
        if name in inner_values:
            results[name] = inner_values[name].reshape(clipped.shape)
        elif to_codes and quant is not None:
            results[name] = dequantize(quantize(clipped, quant), quant)
        else:
            results[name] = clipped if rounded is None or clipped.dtype.kind != "f" else rounded(clipped)
    return results
