"""A window into both sides of a pair: the elements around one of them, read without reading the rest."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from qdebug.analysis.comparison.pair_values import PairReader
from qdebug.errors import UsageError
from qdebug.model import QuantParams
from qdebug.numerics.blocks import RealBlocks

__all__ = ["PairedWindow", "read_window"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedWindow:
    """Some elements of both sides of one tensor for one sample and step, in the reference's order of dimensions.

    Args:
        reference: Real values of the reference, as many dimensions as the tensor has.
        backend: Real values of the backend; the same shape.
        reference_codes: Stored codes of the reference, if it is quantized.
        backend_codes: Stored codes of the backend, if it is quantized.
        reference_quant: The reference's quantization, of the whole tensor.
        backend_quant: The backend's quantization, of the whole tensor.
        start: Index in the whole tensor of the first element.
        whole: Extents of the whole tensor.
    """

    reference: np.ndarray
    backend: np.ndarray
    reference_codes: np.ndarray | None
    backend_codes: np.ndarray | None
    reference_quant: QuantParams | None
    backend_quant: QuantParams | None
    start: tuple[int, ...]
    whole: tuple[int, ...]


def read_window(
    reader: PairReader, *, sample: int, step: int, around: tuple[int, ...] | None, extents: tuple[int, int]
) -> PairedWindow:
    """Read the elements around one of them, along the last two dimensions.

    Args:
        reader: Reads the pair.
        sample: Which sample.
        step: Which step.
        around: Index of the element in the middle, where the tensor does not end before; None, or one that the tensor
            does not have, for its first element.
        extents: Most elements along the second last and the last dimension.

    Raises:
        RecordingError: There are no values for this sample and step.
        UsageError: The two sides cannot be compared element by element.
    """
    stored = reader.stored(sample, step)
    whole = stored[1].shape
    if stored[0].size != stored[1].size:
        raise UsageError(f"The reference has shape {stored[0].shape} and the backend {whole}.")
    start, shape = _place(whole, around, extents)
    spans = _rows(whole, start, shape)
    with np.errstate(all="ignore"):  # as where pairs are compared: a code may stand for more than a number can hold
        sides = [_side(blocks, spans, shape) for blocks in reader.blocks_of(*stored)]
    return PairedWindow(
        reference=sides[0][0],
        backend=sides[1][0],
        reference_codes=sides[0][1],
        backend_codes=sides[1][1],
        reference_quant=reader.quants[0],
        backend_quant=reader.quants[1],
        start=start,
        whole=whole,
    )


def _place(
    whole: tuple[int, ...], around: tuple[int, ...] | None, extents: tuple[int, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Give the first index and the shape of the window; 1 along all but the last two dimensions."""
    inside = around is not None and len(around) == len(whole) and all(map(_within, around, whole))
    middle = around if inside and around is not None else (0,) * len(whole)
    most = ((1,) * len(whole) + extents)[-len(whole) :] if whole else ()
    shape = tuple(map(min, whole, most))
    start = tuple(
        min(max(at - size // 2, 0), extent - size) for at, size, extent in zip(middle, shape, whole, strict=True)
    )
    return start, shape


def _within(at: int, extent: int) -> bool:
    return 0 <= at < extent


def _rows(whole: tuple[int, ...], start: tuple[int, ...], shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Give the flat stretches, in C order, that the rows of a window lie in."""
    if not prod(shape):
        return [(0, 0)]
    if len(whole) < 2:
        first = start[0] if start else 0
        return [(first, first + prod(shape))]
    first = int(np.ravel_multi_index(start, whole))
    return [(first + row * whole[-1], first + row * whole[-1] + shape[-1]) for row in range(shape[-2])]


def _side(
    blocks: RealBlocks, spans: list[tuple[int, int]], shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Give the real values of a window, and its codes; None if there are none."""
    codes = np.concatenate([np.array(blocks.stored(*span)) for span in spans]).reshape(shape)
    if not (blocks.quantized or blocks.clamped):
        return codes, None
    most = max(stop - start for start, stop in spans)
    single, double = np.empty(most, np.float32), np.empty(most)
    if blocks.single:
        real = [np.array(blocks.read_single(*span, single)) for span in spans]
    else:
        real = [np.array(blocks.read_double(*span, double, single)) for span in spans]
    return np.concatenate(real).reshape(shape), codes if blocks.quantized else None
