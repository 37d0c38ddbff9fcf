"""Elements of one tensor on both sides, in memory: all of a small tensor, else a part around the selected element.

Slabs are created on a thread that may read files. The arrays are never views of a file, so that drawing does not read
files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # the screen is drawn before any of this is needed
    from qdebug.compare.measure.pair_values import PairedWindow
    from qdebug.model import QuantParams

__all__ = ["Slab", "differences", "matched", "plane_size", "slab_of"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slab:
    """Both sides of a tensor or of a part of it.

    Args:
        reference: Real values.
        backend: Real values; the same shape.
        reference_codes: Stored codes, if quantized.
        backend_codes: Stored codes, if quantized.
        quant: The backend's quantization, with its axis in the shape of `backend`.
        reference_quant: The reference's quantization.
        axis: The channel axis.
        largest: Largest finite difference of all known elements; 0 without one.
        start: Index in the tensor of the first element.
        shape: Extents of the tensor.
        alone: The only side that has the tensor: its values are in `backend`, with zeros in `reference`; "" if both
            sides have it.
        clipped: Mask of the reference values that the backend's codes cannot represent; None if the backend's codes
            have no lowest and highest value, or without a reference.
    """

    reference: np.ndarray
    backend: np.ndarray
    reference_codes: np.ndarray | None
    backend_codes: np.ndarray | None
    quant: QuantParams | None
    reference_quant: QuantParams | None
    axis: int
    largest: float
    start: tuple[int, ...]
    shape: tuple[int, ...]
    alone: str = ""
    clipped: np.ndarray | None = None

    @property
    def partial(self) -> bool:
        """Whether the tensor has more elements than the slab."""
        return self.backend.shape != self.shape

    def local(self, index: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the index in the arrays of an element of the tensor; None if it is not in the slab."""
        here = tuple(at - first for at, first in zip(index, self.start, strict=True))
        return here if all(0 <= at < size for at, size in zip(here, self.backend.shape, strict=True)) else None

    def around(self, index: tuple[int, ...], far: int) -> bool:
        """Return whether all elements within `far` in the last two dimensions are here, or outside the tensor."""
        here = self.local(index)
        ends = zip(here, self.start, self.backend.shape, self.shape, strict=True) if here is not None else ()
        return here is not None and all(
            (at >= far or not first) and (at + far < size or first + size == extent)
            for at, first, size, extent in list(ends)[-2:]
        )

    def has_plane(self, index: tuple[int, ...]) -> bool:
        """Return whether the whole plane of the last two dimensions through an element is in the slab."""
        return self.local(index) is not None and self.backend.shape[-2:] == self.shape[-2:]

    def plane(self, index: tuple[int, ...]) -> np.ndarray:
        """Return the absolute differences on the plane of the last two dimensions through an element, as 2-D."""
        here = self.local(index) or ()
        magnitudes: np.ndarray = np.abs(self.difference((*here[:-2], ...))).reshape(plane_size(self.shape))
        return magnitudes

    def difference(self, index: tuple[int | EllipsisType, ...]) -> np.ndarray:
        """Return backend minus reference at an index."""
        with np.errstate(invalid="ignore"):
            return differences(self.reference[index], self.backend[index])

    def steps(self, index: tuple[int, ...]) -> float | None:
        """Return the difference of one element in steps of the backend's scale; None if it is not quantized."""
        from qdebug.numerics.lsb import lsb_between

        scale = self.scale_at(index)
        if scale is None:
            return None
        theirs, ours = float(self.reference[index]), float(self.backend[index])
        if scale > 0 and all(map(math.isfinite, (scale, theirs, ours))):
            return lsb_between(theirs, ours, scale)
        with np.errstate(all="ignore"):
            return float(self.difference(index) / scale)

    def scale_at(self, index: tuple[int, ...]) -> float | None:
        """Return the backend's scale for one element; None if it is not quantized, or quantized by blocks."""
        at = self._place_of_scale(index)
        return None if self.quant is None or at is None else float(self.quant.scale.ravel()[at])

    def code_of_reference(self, index: tuple[int, ...]) -> int | None:
        """Return the code of the reference's value at the backend's scale, without clamping to the range of codes.

        None in the same cases as `scale_at`, and for NaN.
        """
        at, quant, value = self._place_of_scale(index), self.quant, float(self.reference[index])
        if at is None or quant is None or quant.qmin is None or quant.qmax is None or not np.isfinite(value):
            return None
        steps = value / float(quant.scale.ravel()[at])
        return round(steps) + int(quant.zero_point.ravel()[at]) if np.isfinite(steps) else None

    def _place_of_scale(self, index: tuple[int, ...]) -> int | None:
        """Return the position of an element's scale among the backend's scales; None if the element has no scale."""
        quant = self.quant
        if quant is None or quant.block_size is not None:
            return None
        many = quant.scale.size
        if many == 1:
            return 0
        at = quant.axis if quant.axis is not None else self.axis
        place = tuple(position + first for position, first in zip(index, self.start, strict=True))
        return place[at] if at < len(place) and place[at] < many else None


def slab_of(window: PairedWindow, *, alone: str = "") -> Slab:
    """Return the slab of a window, which is the part of a tensor that screens draw.

    Args:
        window: The elements.
        alone: The only side that has the tensor; "" if both sides have it.
    """
    error = differences(window.reference, window.backend)
    largest = float(np.max(np.abs(error), initial=0.0, where=np.isfinite(error)))
    return Slab(
        reference=window.reference,
        backend=window.backend,
        reference_codes=window.reference_codes,
        backend_codes=window.backend_codes,
        quant=window.backend_quant,
        reference_quant=window.reference_quant,
        axis=window.axis,
        largest=largest,
        start=window.start,
        shape=window.whole,
        alone=alone,
        clipped=None if alone else _clipped(window),
    )


def _clipped(window: PairedWindow) -> np.ndarray | None:
    from qdebug.numerics.affine import dequantize
    from qdebug.numerics.rails import CodeRange

    quant = window.backend_quant
    if window.backend_codes is None or quant is None or quant.qmin is None:
        return None
    codes = CodeRange(quant, window.whole, double=window.backend.dtype == np.float64)
    places = np.zeros((), np.int64)
    for first, size, extent in zip(window.start, window.reference.shape, window.whole, strict=True):
        places = places[..., np.newaxis] * extent + np.arange(first, first + size)
    return codes.excludes_at(dequantize(window.reference, None), places)


def differences(theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
    """Return backend minus reference in float64, for real numbers of any type; 0 for matching NaN or infinities."""
    from qdebug.numerics.block_error import real_differences

    with np.errstate(invalid="ignore", over="ignore"):
        error = real_differences(theirs, ours)
    return error if np.isfinite(error).all() else matched(error, theirs, ours)


def matched(error: np.ndarray, theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
    """Return differences with 0 where both sides have NaN or the same infinity, which are matches in every metric.

    Args:
        error: Differences of both sides; NaN where the subtraction gives NaN.
        theirs: The reference's real numbers, of any type.
        ours: The backend's real numbers.
    """
    from qdebug.numerics.affine import dequantize

    first, second = dequantize(theirs, None), dequantize(ours, None)
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    return np.where(same, 0.0, error)


def plane_size(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the extents of the last two dimensions; 1 for a missing dimension."""
    rows, columns = (1, 1, *shape)[-2:]
    return rows, columns
