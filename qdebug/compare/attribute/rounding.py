"""Bounds on the rounding of a run's constants.

Rounding to codes, or to a float format, changes a constant by at most half a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import islice

import numpy as np

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.band import unit_roundoff_of_values
from qdebug.compare.attribute.segments import Segment
from qdebug.errors import KernelError, UsageError
from qdebug.model import Node, QuantParams, operators
from qdebug.model.dtypes import is_float, logical_name
from qdebug.model.thresholds.attribution import (
    COARSE_SCALE_RATIO,
    COMPUTED_CONSTANT_MAX_NODES,
    CONSTANT_EVIDENCE_MIN_ELEMENTS,
    FLOAT16_FLOOR,
    FORMAT_VOTE_CONSTANTS,
    FREE_SCALE_MAX_CODES,
)
from qdebug.model.thresholds.rounding import FLOAT32_STORED_REL_ERROR, FLOAT32_UNIT_ROUNDOFF
from qdebug.numerics.short_formats import ShortFormat, detect_rounded_format, format_of
from qdebug.replay.real_form import real_form
from qdebug.replay.segment import run_form

__all__ = [
    "ConstantRounding",
    "float32_slack",
    "scales_by_constants",
    "shared_constants",
]


class ConstantRounding:
    """The formats that the constants of a run were rounded to.

    Args:
        run: The run.
    """

    def __init__(self, run: IndexedRecording) -> None:
        self._run = run

    def unit_roundoff(self, name: str) -> float:
        """Return the unit roundoff of the narrowest format that a constant, or a copy of it, was rounded to.

        A constant with too few elements to show its format is assumed to be rounded like the network's large constants,
        if its elements fit that format.
        """
        recording = self._run.recording
        arrays = [recording.load(form) for form in self._run.members(name) if recording.has(form)]
        floats = [array for array in arrays if is_float(logical_name(array.dtype))]
        own_unit = max((unit_roundoff_of_values(array) for array in floats), default=FLOAT32_UNIT_ROUNDOFF)
        if own_unit <= FLOAT32_UNIT_ROUNDOFF < self._usual_unit_roundoff and any(
            unit_roundoff_of_values(array, narrowest=self._usual_unit_roundoff) > FLOAT32_UNIT_ROUNDOFF
            for array in floats
        ):
            return self._usual_unit_roundoff
        return own_unit

    @cached_property
    def _usual_unit_roundoff(self) -> float:
        """Unit roundoff of the format of most large float constants.

        Constants that the graph computes do not count because they were not rounded to the format. Whole numbers do not
        count because they fit any format.
        """
        recording, graph = self._run.recording, self._run.recording.graph
        names = [name for name in recording.names if graph.is_constant(name) and recording.has(name)]
        float_constants = [name for name in names if graph.tensors[name].quant is None and graph.producer(name) is None]
        arrays = [recording.load(name) for name in float_constants]
        arrays = [
            array
            for array in arrays
            if array.size >= CONSTANT_EVIDENCE_MIN_ELEMENTS and is_float(logical_name(array.dtype))
        ]
        fractional_arrays = (array for array in sorted(arrays, key=lambda array: -array.size) if not _is_whole(array))
        units = sorted(unit_roundoff_of_values(array) for array in islice(fractional_arrays, FORMAT_VOTE_CONSTANTS))
        return units[(len(units) - 1) // 2] if units else FLOAT32_UNIT_ROUNDOFF

    def format(self, name: str) -> ShortFormat | None:
        """Return the short format that a constant's digits show, or else the network's usual format if it fits."""
        values = self._run.recording.load(name)
        narrow_format = format_of(values)
        return (
            detect_rounded_format(values, known_unit=self._usual_unit_roundoff)
            if narrow_format is None and self._usual_unit_roundoff > FLOAT32_UNIT_ROUNDOFF
            else narrow_format
        )

    def half_steps(self, name: str, *, any_scale: bool = False) -> np.ndarray:
        """Return half the rounding step of each element of a constant: of its codes, or of a format below float32.

        A scale that leaves most codes unused is not the result of rounding. The step that the constant's own range
        needs is then used instead, per channel if the scales are per channel.

        Args:
            name: The constant.
            any_scale: Whether to use the constant's own step, however many codes it leaves unused.

        Raises:
            RecordingError: It was not recorded.
        """
        recording = self._run.recording
        values = real_values(recording, name)
        for form in self._run.members(name):
            quant = recording.graph.tensors[form].quant
            if quant is not None:
                steps = _broadcast_scale(quant, values.shape)
                needed = None if any_scale else _needed_step(quant, values)
                steps = steps if needed is None else np.where(steps > COARSE_SCALE_RATIO * needed, needed, steps)
                return np.broadcast_to(steps, values.shape) / np.float32(2)
        unit = self.unit_roundoff(name)
        if unit > FLOAT32_UNIT_ROUNDOFF:
            return np.asarray(np.abs(values) * np.float32(unit) + np.float32(FLOAT16_FLOOR))
        return np.zeros(values.shape, np.float32)

    def levels(self, name: str) -> tuple[int, int] | None:
        """Return how many codes a constant uses and how many exist, or None if it has no integer codes."""
        recording = self._run.recording
        for form in self._run.members(name):
            quant = recording.graph.tensors[form].quant
            if quant is not None and quant.qmin is not None and quant.qmax is not None and recording.has(form):
                return np.unique(recording.load(form)).size, quant.qmax - quant.qmin + 1
        return None

    def coarsest_unit_roundoff(self, names: set[str]) -> float:
        """Return the largest unit roundoff among the given constants and the bulk of the network's constants.

        The network's constants count because, in a network with a narrow format, a constant that does not fit the
        format was computed from several rounded constants. A node without constants may have one folded into an
        attribute, such as the factor of a fused product.
        """
        return max((self._usual_unit_roundoff, *map(self.unit_roundoff, names)))


def _is_whole(values: np.ndarray) -> bool:
    """Return whether all elements are whole numbers. A few elements usually suffice to see that they are not."""
    return all(np.array_equal(part, np.rint(part)) for part in (values.reshape(-1)[:64], values))


def _needed_step(quant: QuantParams, values: np.ndarray) -> np.ndarray | None:
    """Return the step that a constant's range needs, in a broadcastable shape.

    None if the scale is prescribed, as that of a bias is, or the constant has too few elements.
    """
    if (
        quant.qmin is None
        or quant.qmax is None
        or quant.qmax - quant.qmin > FREE_SCALE_MAX_CODES
        or values.size < CONSTANT_EVIDENCE_MIN_ELEMENTS
    ):
        return None
    scale = np.asarray(quant.scale)
    if scale.size > 1 and (quant.axis is None or quant.block_size is not None):
        return None
    axis = None if scale.size == 1 or quant.axis is None else quant.axis % values.ndim
    other_axes = None if axis is None else tuple(dimension for dimension in range(values.ndim) if dimension != axis)
    reach = np.max(np.abs(values), axis=other_axes, keepdims=True, initial=0)
    return np.asarray(2 * reach / np.float32(quant.qmax - quant.qmin), np.float32)


def _broadcast_scale(quant: QuantParams, shape: tuple[int, ...]) -> np.ndarray:
    """Return the scale in a shape that broadcasts over its tensor, the scale of a block once per element."""
    scale, rank = np.asarray(quant.scale, np.float32), len(shape)
    if quant.axis is None or scale.size == 1:
        return scale.reshape((1,) * rank) if scale.size == 1 else scale
    axis = quant.axis % rank
    if scale.ndim == 1:
        scale = scale.reshape([scale.size if at == axis else 1 for at in range(rank)])
    return (
        scale
        if quant.block_size is None
        else np.repeat(scale, quant.block_size, axis)[_slices_to_end_of_axis(axis, shape)]
    )


def _slices_to_end_of_axis(axis: int, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Return slices that drop the part of the last block beyond the end of an axis."""
    return tuple(slice(size if at == axis else None) for at, size in enumerate(shape))


def float32_slack(real: np.ndarray) -> np.ndarray:
    """Return the float32 slack of each element of a constant, an error too small to reveal its origin.

    It covers the rounding of the element and of the largest element. A channel that training left at 1e-35 next to
    others near 1 has all-zero codes and an arbitrary scale, such as 1 or the scale that its bias needs.
    """
    size = np.abs(real)
    largest = np.max(size, where=np.isfinite(size), initial=0)
    return np.asarray(FLOAT32_STORED_REL_ERROR * size + FLOAT32_UNIT_ROUNDOFF * largest)


def scales_by_constants(run: IndexedRecording, nodes: Sequence[Node]) -> bool:
    """Return whether constants of nodes may be folded into the weight of a neighbouring product."""
    scaling = [node for node in nodes if not operators.plain(node).preserves_error_size]
    return any(run.folds(name) for node in scaling for name in node.inputs if name)


def shared_constants(sides: tuple[IndexedRecording, IndexedRecording], segment: Segment) -> frozenset[str]:
    """Return the constants of a segment's reference nodes that its backend nodes use bit for bit, possibly transposed.

    Such a constant was rounded once for both sides.
    """
    reference_constants, backend_constants = (
        _load_float_constants(run, nodes) for run, nodes in zip(sides, (segment.nodes, segment.own), strict=True)
    )
    return frozenset(
        name
        for name, array in reference_constants.items()
        if any(_is_same_constant(array, candidate) for candidate in backend_constants.values())
    )


def _load_float_constants(run: IndexedRecording, nodes: Sequence[Node]) -> dict[str, np.ndarray]:
    names = {name for node in nodes for name in node.inputs if name and run.folds(name)}
    arrays = {name: _constant_values(run, name) for name in names}
    return {name: array for name, array in arrays.items() if array is not None and array.dtype.kind == "f"}


def _constant_values(run: IndexedRecording, name: str, depth: int = 0) -> np.ndarray | None:
    """Return the values of a constant, computed from others if it was not recorded, or None if that is not possible."""
    if run.recording.has(name):
        return real_values(run.recording, name)
    node = run.graph.producer(name)
    if node is None or depth >= COMPUTED_CONSTANT_MAX_NODES:
        return None
    form, opset = real_form(node, run.graph.opset)
    values = {input_name: _constant_values(run, input_name, depth + 1) for input_name in form.inputs if input_name}
    known_values = {input_name: array for input_name, array in values.items() if array is not None}
    if len(known_values) != len(values):
        return None
    try:
        return run_form(node, form, opset, known_values)[name]
    except (KernelError, UsageError):
        return None


def _is_same_constant(first: np.ndarray, second: np.ndarray) -> bool:
    is_transposed = first.ndim == 2 and np.array_equal(first.T, second)
    return is_transposed or np.array_equal(first, second)
