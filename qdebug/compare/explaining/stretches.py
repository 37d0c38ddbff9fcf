"""A large element-wise node in stretches, so that memory does not grow with the tensors. Begin at `in_stretches`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from qdebug.arithmetic.units import Place
from qdebug.model import Node, Recording, operators
from qdebug.model.view import View
from qdebug.numerics.large_arrays import PassedPages, passed_pages

__all__ = ["Stretches", "in_stretches"]

_STRETCH = 1 << 20
"""Elements of a stretch. A comparison takes some ten times its 4 MB."""


class Stretches(View):
    """A recording in which each stretch of a node's tensors is a place of its own.

    Args:
        recording: The recording.
        axes: The axis, counted from the last, along which each tensor of the node is divided; 0 for a tensor that all
            stretches share.
        count: Number of stretches of a place.
        length: Extent of a stretch along the axis.
        at: The places.
    """

    def __init__(
        self, recording: Recording, *, axes: Mapping[str, int], count: int, length: int, at: Sequence[Place]
    ) -> None:
        super().__init__(recording)
        self._axes, self._count, self._length, self._at = axes, count, length, at
        self._opened: dict[str, tuple[Place, np.ndarray, PassedPages | None]] = {}

    def places(self, tensor: str | None = None) -> Sequence[Place]:
        """Return all stretches, in order."""
        del tensor
        return [(sample, step * self._count + stretch) for sample, step in self._at for stretch in range(self._count)]

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether a tensor has values for a stretch."""
        return self._recording.has(tensor, sample, step // self._count)

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the elements of a stretch, read-only.

        Raises:
            RecordingError: No values are recorded under this name, sample and step.
        """
        place, array, pages = self._opened.get(tensor, ((-1, -1), np.empty(0), None))
        if place != (sample, step // self._count):
            place = sample, step // self._count
            array = self._recording.load(tensor, *place)
            pages = passed_pages(array) if array.flags.c_contiguous else None
            self._opened[tensor] = place, array, pages
        axis = self._axes.get(tensor, 0)
        if not axis:
            return array
        first = step % self._count * self._length
        if pages is not None:
            pages.read_up_to(first * (array.size // array.shape[-axis]))
        index: tuple[Any, ...] = (Ellipsis, slice(first, first + self._length), *(slice(None),) * (axis - 1))
        return np.asarray(array[index])


def in_stretches(recording: Recording, form: Node, tensor: str, at: Sequence[Place]) -> Stretches | None:
    """Return a recording that divides the tensors of a large element-wise node into stretches.

    Args:
        recording: The recording.
        form: The real form of the node.
        tensor: Its output.
        at: Samples and steps.

    Returns:
        None if the tensors are small, or an element of the output depends on other elements.

    Raises:
        RecordingError: A value cannot be read.
    """
    names = (*filter(None, form.inputs), tensor)
    if not at or not operators.of(form.op).elementwise or "axis" in form.attrs:
        return None
    if any(name in recording.graph.tensors and recording.graph.tensors[name].quant is not None for name in names):
        return None
    if not all(recording.has(name, *place) for name in names for place in at):
        return None
    shapes = {name: {recording.load(name, *place).shape for place in at} for name in names}
    if any(len(found) > 1 for found in shapes.values()):
        return None
    shape = next(iter(shapes[tensor]))
    size = int(np.prod(shape))
    if size <= _STRETCH:
        return None
    axis = next(len(shape) - at for at, extent in enumerate(shape) if extent > 1)
    length = max(_STRETCH * shape[-axis] // size, 1)
    axes = {}
    for name, found in shapes.items():
        extents = next(iter(found))
        is_divided = len(extents) >= axis and extents[-axis] == shape[-axis]
        axes[name] = axis if is_divided else 0
    return Stretches(recording, axes=axes, count=-(-shape[-axis] // length), length=length, at=at)
