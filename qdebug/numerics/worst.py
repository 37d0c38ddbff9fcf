"""The elements with the largest differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qdebug.errors import UsageError
from qdebug.model.dtypes import is_integer
from qdebug.model.quant import QuantParams
from qdebug.numerics.accumulate import has_same_elements, lsb_of
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.block_error import exact_difference, read_block, real_values
from qdebug.numerics.blocks import Clamp, RealBlocks, make_comparable, scratch
from qdebug.numerics.lsb import LsbSizes, difference_in_lsb, whole_lsb
from qdebug.numerics.stats import WorstElement
from qdebug.numerics.tally import Block

__all__ = ["WorstCollector", "WorstColumns", "worst_elements"]

_WIDTH = 256
"""Number of columns whose maxima give a lower bound for the largest elements."""
_NONES = np.full(1024, None)


def worst_elements(
    reference: np.ndarray,
    backend: np.ndarray,
    *,
    reference_quant: QuantParams | None = None,
    backend_quant: QuantParams | None = None,
    clamps: tuple[Clamp, Clamp] = ((None, None), (None, None)),
    k: int = 20,
    sample: int = 0,
) -> tuple[WorstElement, ...]:
    """Return the elements that differ most, worst first.

    Disagreements about a non-finite value come first, then the largest absolute differences. Ties are ordered by index.
    Elements that agree are not listed.

    Args:
        reference: Stored elements of the reference.
        backend: Stored elements of the backend, of the same shape except for dimensions of extent 1.
        reference_quant: Quantization of the reference's elements; None for real numbers.
        backend_quant: Quantization of the backend's elements; None for real numbers.
        clamps: Bounds to which the real values of the reference and the backend are clamped first.
        k: Maximum number of elements.
        sample: Index of the sample, stored with the elements.

    Raises:
        UsageError: The shapes differ, a dtype does not hold real numbers, or quantization does not match a shape.
    """
    first, second = make_comparable(
        RealBlocks(reference, reference_quant, clamps[0]), RealBlocks(backend, backend_quant, clamps[1])
    )
    if not has_same_elements(first.shape, second.shape):
        raise UsageError(f"The reference has shape {first.shape}, but the backend has {second.shape}.")
    collector, buffers, no_lsb = WorstCollector(k), scratch(), LsbSizes(None, ())
    with np.errstate(all="ignore"):
        collector.start((first, second), lsb_of(first, second), sample)
        for start in range(0, second.size, BLOCK):
            block = read_block((first, second), (start, min(start + BLOCK, second.size)), no_lsb, buffers)
            collector.add(block, np.absolute(exact_difference(block)))
    return collector.worst_so_far().elements()


@dataclass(frozen=True, slots=True)
class _Tensors:
    """The examined tensors: one per side, or several stacked tensors of equal shape."""

    number: int
    sides: Sequence[tuple[RealBlocks, RealBlocks]]
    lsb: LsbSizes

    def locate(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the tensor number and flat index of elements, given their index in the stack."""
        if len(self.sides) == 1:
            return np.full(flat.size, self.number), flat
        numbers, positions = np.divmod(flat, self.sides[0][1].size)
        return numbers + self.number, positions

    def codes(self, side: int, numbers: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return a side's codes as Python integers; None without quantization, and for codes that are not whole."""
        if not self.sides[0][side].quantized:
            return _empty_column(positions.size)
        return self._stored_integers(side, numbers, positions)

    def values(self, side: int, numbers: np.ndarray, positions: np.ndarray, real: np.ndarray) -> np.ndarray:
        """Return a side's values; Python integers for an integer tensor, since float64 cannot hold all of them."""
        return self._stored_integers(side, numbers, positions) if self.sides[0][side].integer else real

    def _stored_integers(self, side: int, numbers: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return a side's stored elements as Python integers; None for elements that are not whole numbers."""
        integers = np.full(positions.size, None)
        dtype = self.sides[0][side].dtype
        integer = is_integer(dtype.name) or dtype == np.bool_
        for row, (number, element) in enumerate(zip(numbers.tolist(), positions.tolist(), strict=True)):
            stored = self.sides[number - self.number][side].stored(element, element + 1)[0]
            if integer or float(stored).is_integer():
                integers[row] = int(stored)
        return integers


@dataclass(frozen=True, slots=True, eq=False)
class WorstColumns:
    """The elements with the largest differences, worst first, as columns of their properties.

    Args:
        tensors: Sample, step and shape of each examined tensor.
        columns: Number of the tensor, flat index, both real values, difference, LSB, both codes.
    """

    tensors: tuple[tuple[int, int, tuple[int, ...]], ...] = ()
    columns: tuple[np.ndarray, ...] = ()

    def elements(self) -> tuple[WorstElement, ...]:
        """Return the elements as objects."""
        return tuple(map(self._element, zip(*(column.tolist() for column in self.columns), strict=True)))

    def _element(self, row: tuple[Any, ...]) -> WorstElement:
        number, position, reference, backend, difference, lsb, reference_code, backend_code = row
        sample, step, shape = self.tensors[number]
        index = []
        for extent in reversed(shape):
            position, inner = divmod(position, extent)
            index.append(inner)
        return WorstElement(
            index=tuple(reversed(index)),
            sample=sample,
            reference=reference,
            backend=backend,
            difference=difference,
            lsb=lsb,
            reference_code=reference_code,
            backend_code=backend_code,
            step=step,
        )


class WorstCollector:
    """Collects the elements with the largest differences, tensor by tensor, range by range in C order.

    Args:
        k: Maximum number of elements.
    """

    def __init__(self, k: int) -> None:
        self._k = k
        self._floor = -1.0
        self._seen: list[tuple[int, int, tuple[int, ...]]] = []
        self._tensors: _Tensors | None = None
        self._worst: tuple[np.ndarray, ...] = ()

    def start(self, sides: tuple[RealBlocks, RealBlocks], lsb: LsbSizes, sample: int, step: int = 0) -> None:
        """Begin the tensors of a sample and step of a stateful network; `lsb` is the size of an LSB."""
        self.start_several([sides], lsb, [(sample, step)])

    def start_several(
        self, sides: Sequence[tuple[RealBlocks, RealBlocks]], lsb: LsbSizes, places: Sequence[tuple[int, int]]
    ) -> None:
        """Begin several tensors of equal shape, whose elements come as one range.

        Args:
            sides: The tensors of the reference and the backend.
            lsb: Size of an LSB, shared by all.
            places: Sample and step of each pair.
        """
        self._tensors = _Tensors(len(self._seen), sides, lsb)
        self._seen += [(*place, sides[0][1].shape) for place in places]

    def add(self, block: Block, magnitudes: np.ndarray, largest: float | None = None) -> None:
        """Add a range of the current tensors.

        Args:
            block: Its float64 values.
            magnitudes: Absolute differences; not modified.
            largest: The largest of these differences, NaN if any is NaN; None to compute it.

        Raises:
            UsageError: `start()` was not called.
        """
        if self._tensors is None:
            raise UsageError("No tensor was started.", hint="Call start() before add().")
        if largest is None:
            largest = float(magnitudes.max())
        if not self._k or largest <= max(self._floor, 0.0):  # false for NaN
            return
        ranks = magnitudes if math.isfinite(largest) else _ranks(block, magnitudes)
        positions = _largest_positions(ranks, self._k, self._floor)
        if positions.size:
            positions = positions[self._sort_worst_first(ranks[positions])]
            self._merge(_make_columns(self._tensors, block, ranks[positions], positions))

    def _sort_worst_first(self, ranks: np.ndarray) -> np.ndarray:
        """Return the positions of the largest ranks, largest first. Ties are ordered by index."""
        return np.asarray((-ranks).argsort(kind="stable")[: self._k])

    def _merge(self, fresh: tuple[np.ndarray, ...]) -> None:
        """Merge new elements into the sorted list."""
        if self._worst:
            merged = tuple(np.concatenate(columns) for columns in zip(self._worst, fresh, strict=True))
            order = self._sort_worst_first(merged[0])
            fresh = tuple(column[order] for column in merged)
        self._worst = fresh
        if fresh[0].size == self._k:
            self._floor = fresh[0].item(-1)

    def worst_so_far(self) -> WorstColumns:
        """Return the worst elements so far."""
        return WorstColumns(tuple(self._seen), self._worst[1:])


def _ranks(block: Block, magnitudes: np.ndarray) -> np.ndarray:
    """Return the absolute differences; infinite for a disagreement about a non-finite value, 0 for a match."""
    a, b = block.reference, block.backend
    finite = np.isfinite(a) & np.isfinite(b)
    agree = (a == b) | (np.isnan(a) & np.isnan(b))
    # A finite difference beyond float64 stays just below a disagreement over a non-finite value.
    return np.where(finite, np.minimum(magnitudes, np.finfo(np.float64).max), np.where(agree, 0.0, np.inf))


def _largest_positions(ranks: np.ndarray, k: int, floor: float) -> np.ndarray:
    """Return the ascending positions of the k largest ranks above a floor and above 0, and possibly of some more.

    Args:
        ranks: Not negative, no NaN. Among equal ranks, the first ones are returned.
        k: Number of ranks.
        floor: Exclusive lower bound; negative for none.
    """
    if floor > 0.0 or ranks.size <= k:
        return (ranks > max(floor, 0.0)).nonzero()[0]
    rows = ranks.size // _WIDTH
    if rows > 1 and k < _WIDTH:  # k column maxima reach the k-th largest of them: smaller elements cannot qualify
        largest = np.maximum.reduce(ranks[: rows * _WIDTH].reshape(rows, _WIDTH), axis=0)
        largest.partition(_WIDTH - k)
        positions = (ranks >= largest[_WIDTH - k]).nonzero()[0]
        if positions.size <= 4 * _WIDTH and largest[_WIDTH - k] > 0.0:
            return np.asarray(positions)
    threshold = np.partition(ranks, ranks.size - k)[ranks.size - k]
    if threshold == 0.0:
        return np.flatnonzero(ranks)
    above = np.flatnonzero(ranks > threshold)
    return np.sort(np.concatenate((above, np.flatnonzero(ranks == threshold)[: k - above.size])))


def _make_columns(tensors: _Tensors, block: Block, ranks: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the columns for the given elements of a block."""
    rests = (block.reference_rest, block.backend_rest)
    picked = Block(
        reference=block.reference[positions],
        backend=block.backend[positions],
        start=0,
        lsb=block.lsb,
        reference_rest=None if rests[0] is None else rests[0][positions],
        backend_rest=None if rests[1] is None else rests[1][positions],
    )
    reference = real_values(picked.reference, picked.reference_rest)
    backend = real_values(picked.backend, picked.backend_rest)
    numbers, flat = tensors.locate(positions + block.start)
    difference = exact_difference(picked)
    lsb = _empty_column(positions.size)
    if tensors.lsb.is_known:
        step = tensors.lsb.at(flat)
        whole = tensors.lsb.whole and bool(np.isfinite(difference).all())
        lsb = whole_lsb(difference, step) if whole else difference_in_lsb(reference, backend, step)
    side_values = (tensors.values(position, numbers, flat, real) for position, real in enumerate((reference, backend)))
    codes = (tensors.codes(position, numbers, flat) for position in range(2))
    return (ranks, numbers, flat, *side_values, difference, lsb.astype(object), *codes)


def _empty_column(size: int) -> np.ndarray:
    return _NONES[:size] if size <= _NONES.size else np.full(size, None)
