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

if TYPE_CHECKING:  # not imported at run time, so that the first frame is drawn sooner
    from qdebug.compare.measure.pair_values import PairedWindow
    from qdebug.model import QuantParams

__all__ = ["Slab", "differences", "plane_size", "slab_of", "zero_matches"]


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
        only_side: The only side that has the tensor: its values are in `backend`, with zeros in `reference`; "" if both
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
    only_side: str = ""
    clipped: np.ndarray | None = None

    @property
    def is_partial(self) -> bool:
        """Whether the tensor has more elements than the slab."""
        return self.backend.shape != self.shape

    def local_index(self, index: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return an element's index in the arrays of the slab; None if the slab does not contain it."""
        index_in_slab = tuple(at - first for at, first in zip(index, self.start, strict=True))
        return (
            index_in_slab
            if all(0 <= at < size for at, size in zip(index_in_slab, self.backend.shape, strict=True))
            else None
        )

    def covers_surroundings(self, index: tuple[int, ...], radius: int) -> bool:
        """Return whether the slab has all elements of the tensor within `radius` in the last two dimensions."""
        index_in_slab = self.local_index(index)
        ends = (
            zip(index_in_slab, self.start, self.backend.shape, self.shape, strict=True)
            if index_in_slab is not None
            else ()
        )
        return index_in_slab is not None and all(
            (at >= radius or not first) and (at + radius < size or first + size == extent)
            for at, first, size, extent in list(ends)[-2:]
        )

    def has_plane(self, index: tuple[int, ...]) -> bool:
        """Return whether the whole plane of the last two dimensions through an element is in the slab."""
        return self.local_index(index) is not None and self.backend.shape[-2:] == self.shape[-2:]

    def plane(self, index: tuple[int, ...]) -> np.ndarray:
        """Return the absolute differences on the plane of the last two dimensions through an element, as 2-D."""
        index_in_slab = self.local_index(index) or ()
        magnitudes: np.ndarray = np.abs(self.difference((*index_in_slab[:-2], ...))).reshape(plane_size(self.shape))
        return magnitudes

    def difference(self, index: tuple[int | EllipsisType, ...]) -> np.ndarray:
        """Return backend minus reference at an index."""
        with np.errstate(invalid="ignore"):
            return differences(self.reference[index], self.backend[index])

    def difference_in_lsb(self, index: tuple[int, ...]) -> float | None:
        """Return the difference of one element in LSB of the backend; None if it is not quantized."""
        from qdebug.numerics.lsb import lsb_between

        scale = self.scale_at(index)
        if scale is None:
            return None
        reference_value, backend_value = float(self.reference[index]), float(self.backend[index])
        if scale > 0 and all(map(math.isfinite, (scale, reference_value, backend_value))):
            return lsb_between(reference_value, backend_value, scale)
        with np.errstate(all="ignore"):
            return float(self.difference(index) / scale)

    def scale_at(self, index: tuple[int, ...]) -> float | None:
        """Return the backend's scale for one element; None if it is not quantized, or quantized by blocks."""
        position = self._scale_position(index)
        return None if self.quant is None or position is None else float(self.quant.scale.ravel()[position])

    def code_of_reference(self, index: tuple[int, ...]) -> int | None:
        """Return the code of the reference's value at the backend's scale, without clamping to the range of codes.

        None in the same cases as `scale_at`, and for NaN.
        """
        position, quant, value = self._scale_position(index), self.quant, float(self.reference[index])
        if position is None or quant is None or quant.qmin is None or quant.qmax is None or not np.isfinite(value):
            return None
        scaled_value = value / float(quant.scale.ravel()[position])
        return round(scaled_value) + int(quant.zero_point.ravel()[position]) if np.isfinite(scaled_value) else None

    def _scale_position(self, index: tuple[int, ...]) -> int | None:
        """Return the position of an element's scale among the backend's scales; None if the element has no scale."""
        quant = self.quant
        if quant is None or quant.block_size is not None:
            return None
        scale_count = quant.scale.size
        if scale_count == 1:
            return 0
        axis = quant.axis if quant.axis is not None else self.axis
        full_index = tuple(position + first for position, first in zip(index, self.start, strict=True))
        return full_index[axis] if axis < len(full_index) and full_index[axis] < scale_count else None


def slab_of(window: PairedWindow, *, only_side: str = "") -> Slab:
    """Return a slab of the elements in a window, which is the part of a tensor that a screen draws.

    Args:
        window: The elements.
        only_side: The only side that has the tensor; "" if both sides have it.
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
        only_side=only_side,
        clipped=None if only_side else _clipped_mask(window),
    )


def _clipped_mask(window: PairedWindow) -> np.ndarray | None:
    from qdebug.numerics.affine import dequantize
    from qdebug.numerics.rails import CodeRange

    quant = window.backend_quant
    if window.backend_codes is None or quant is None or quant.qmin is None:
        return None
    codes = CodeRange(quant, window.whole, double=window.backend.dtype == np.float64)
    flat_positions = np.zeros((), np.int64)
    for first, size, extent in zip(window.start, window.reference.shape, window.whole, strict=True):
        flat_positions = flat_positions[..., np.newaxis] * extent + np.arange(first, first + size)
    return codes.excludes_at(dequantize(window.reference, None), flat_positions)


def differences(reference: np.ndarray, backend: np.ndarray) -> np.ndarray:
    """Return backend minus reference in float64, for real numbers of any type; 0 for matching NaN or infinities."""
    from qdebug.numerics.block_error import real_differences

    with np.errstate(invalid="ignore", over="ignore"):
        error = real_differences(reference, backend)
    return error if np.isfinite(error).all() else zero_matches(error, reference, backend)


def zero_matches(error: np.ndarray, reference: np.ndarray, backend: np.ndarray) -> np.ndarray:
    """Return differences with 0 where both sides have NaN or the same infinity, which are matches in every metric.

    Args:
        error: Differences of both sides; NaN where the subtraction gives NaN.
        reference: The reference's real numbers, of any type.
        backend: The backend's real numbers.
    """
    from qdebug.numerics.affine import dequantize

    reference_values, backend_values = dequantize(reference, None), dequantize(backend, None)
    is_match = (reference_values == backend_values) | (np.isnan(reference_values) & np.isnan(backend_values))
    return np.where(is_match, 0.0, error)


def plane_size(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the extents of the last two dimensions; 1 for a missing dimension."""
    rows, columns = (1, 1, *shape)[-2:]
    return rows, columns
