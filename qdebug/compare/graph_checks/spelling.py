"""Normalizes attributes with several spellings: padding by name or number, axes counted from either end."""

from __future__ import annotations

from dataclasses import replace

from qdebug.errors import NotRecordedError, RecordingError
from qdebug.model import AttrValue, Node, Recording, operators
from qdebug.model.operators import Sums
from qdebug.model.recording import shape_of
from qdebug.replay.windows import same_pads

__all__ = ["normalize_attributes"]

_AXES = ("axis", "axes")


def normalize_attributes(recording: Recording, node: Node) -> Node:
    """Return the real-valued form of a node with numeric padding and non-negative axes.

    Attributes that depend on an unknown shape stay unchanged. Omitted attributes stay omitted, because they may not
    have the default value.

    Args:
        recording: The run that contains the node.
        node: The node.
    """
    attrs = dict(node.attrs)
    mode = attrs.get("auto_pad")
    if mode is not None:
        pads = _resolve_padding(recording, node, str(mode))
        if pads is not None or mode in ("NOTSET", ""):
            del attrs["auto_pad"]
        if pads is not None:
            attrs["pads"] = pads
    for name in _AXES:
        if name in attrs:
            attrs[name] = _count_from_first(attrs[name], _shape(recording, node.inputs[0]) if node.inputs else None)
    return node if attrs == dict(node.attrs) else replace(node, attrs=attrs)


def _count_from_first(value: AttrValue, shape: tuple[int, ...] | None) -> AttrValue:
    """Return axes counted from the first dimension, or unchanged if the number of dimensions is unknown."""
    numbers = _parse_integers((value,) if isinstance(value, int) else value)
    if not shape or numbers is None or not all(-len(shape) <= number < len(shape) for number in numbers):
        return value
    counted = tuple(number % len(shape) for number in numbers)
    return counted[0] if isinstance(value, int) else counted


def _resolve_padding(recording: Recording, node: Node, mode: str) -> tuple[int, ...] | None:
    """Return named padding as numbers, or None if the name is not a padding mode or shapes are unknown."""
    shape = _shape(recording, node.inputs[0]) if node.inputs else None
    if shape is None or len(shape) < 3:
        return None
    axes, extent = len(shape) - 2, shape[1:-1] if node.attrs.get("channels_last") else shape[2:]
    if mode == "VALID":
        return (0,) * (2 * axes)
    transposed = operators.of(node.op).sums is Sums.SCATTER
    kernel = _parse_integers(node.attrs.get("kernel_shape")) or _kernel_shape(recording, node)
    if mode not in ("SAME_UPPER", "SAME_LOWER") or transposed or kernel is None or len(kernel) != axes:
        return None
    strides, dilations = (_parse_integers(node.attrs.get(name)) or (1,) * axes for name in ("strides", "dilations"))
    begin, end = same_pads(mode, extent, kernel, strides, dilations)
    return (*begin, *end)


def _kernel_shape(recording: Recording, node: Node) -> tuple[int, ...] | None:
    weight = operators.titled_input(node, 1)
    shape = _shape(recording, weight) if weight else None
    return None if shape is None else shape[2:]


def _parse_integers(value: AttrValue | None) -> tuple[int, ...] | None:
    if not isinstance(value, tuple) or not all(isinstance(number, int) for number in value):
        return None
    return tuple(int(number) for number in value)


def _shape(recording: Recording, tensor: str) -> tuple[int, ...] | None:
    info = recording.graph.tensors.get(tensor)
    if info is not None and info.shape is not None and None not in info.shape:
        return tuple(extent for extent in info.shape if extent is not None)
    try:
        return shape_of(recording, tensor)
    except (NotRecordedError, RecordingError):
        return None
