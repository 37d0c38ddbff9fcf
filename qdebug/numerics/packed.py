"""The error of many small tensors of one size at once, as the rows of a matrix, in the float32 of `single_block`.

Most of what one small tensor costs is calling numpy; here a call serves all rows. Each row gives the same numbers, to
the last bit, as the tensor alone: sums are of the same products in the same order, and whatever is not a sum is found
in float32 and decided in float64 among the same few elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.numerics.affine import BLOCK
from qdebug.numerics.block_error import QUOTIENT_HIGH, QUOTIENT_LOW, QUOTIENT_SLACK, VALUE_SLACK, add_steps, is_safe
from qdebug.numerics.blocks import RealBlocks, Scratch, scratch
from qdebug.numerics.rails import RailsCounter
from qdebug.numerics.row_sums import ROW
from qdebug.numerics.steps import Steps
from qdebug.numerics.tally import Block, Tally, Worst

__all__ = ["MOST_PACKED", "PackedPair", "SmallTensors", "packed_tallies"]

MOST_PACKED = 2048
"""Elements of a tensor up to which packing pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPair:
    """Two small tensors to be compared, both of which float32 holds exactly (`RealBlocks.single`).

    Args:
        reference: The reference's tensor.
        backend: The backend's.
        steps: Size of an LSB.
        sample: Index of the sample that they are of.
        rails: Counter that is shown the backend's codes and the reference's values; what it counted of a pair that
            float32 is not enough for is of no use.
    """

    reference: RealBlocks
    backend: RealBlocks
    steps: Steps
    sample: int = 0
    rails: RailsCounter | None = None


def packed_tallies(pairs: Sequence[PackedPair]) -> list[Tally | None]:
    """Compare pairs of small tensors.

    Args:
        pairs: Tensors of one size, from 1 to `MOST_PACKED` elements.

    Returns:
        What `ErrorAccumulator` has after each pair alone; None for a pair that float32 is not enough for.
    """
    size = pairs[0].backend.size if pairs else 1
    most = BLOCK // size
    found: list[Tally | None] = []
    with np.errstate(all="ignore"):
        for start in range(0, len(pairs), most):
            found += _Rows(pairs[start : start + most], scratch()).tallies()
    return found


class _Rows:
    """Some pairs as rows of two matrices.

    Args:
        pairs: As many as fit a block.
        buffers: Scratch; its float32 buffers and masks are used.
    """

    def __init__(self, pairs: Sequence[PackedPair], buffers: Scratch) -> None:
        self._pairs = pairs
        self._buffers = buffers
        size = pairs[0].backend.size
        shape = len(pairs), size
        self._a, self._b = (single[: shape[0] * size].reshape(shape) for single in buffers.singles[:2])
        for row, pair in enumerate(pairs):
            for side, out in ((pair.reference, self._a[row]), (pair.backend, self._b[row])):
                np.copyto(out, side.read_single(0, size, out))  # which may be the tensor itself, or `out` already
            if pair.rails is not None:
                pair.rails.add(pair.backend.stored(0, size), self._a[row], 0)
        self._error = self._scratch(2)
        np.subtract(self._b, self._a, out=self._error)
        np.absolute(self._error, out=self._error)

    def _scratch(self, position: int) -> np.ndarray:
        return self._buffers.singles[position][: self._a.size].reshape(self._a.shape)

    def _mask(self, position: int) -> np.ndarray:
        return self._buffers.masks[position][: self._a.size].reshape(self._a.shape)

    def tallies(self) -> list[Tally | None]:
        """Return what each row adds up to."""
        a, b, error = self._a, self._b, self._error
        largest = np.maximum.reduce(error, axis=1).tolist()
        extremes = [f.reduce(side, axis=1).tolist() for side in (a, b) for f in (np.minimum, np.maximum)]
        fit = [_fits(*row) for row in zip(largest, *extremes, strict=True)]
        nonzero = np.not_equal(a, 0.0, out=self._mask(1))
        zeros = (a.shape[1] - np.count_nonzero(nonzero, axis=1)).tolist()
        unequal = np.count_nonzero(np.not_equal(a, b, out=self._mask(0)), axis=1).tolist()
        quotients = self._largest_quotients(nonzero, fit, zeros)
        differences, places = self._largest_differences(fit)
        totals, products = self._sums(), None
        found: list[Tally | None] = []
        for row, pair in enumerate(self._pairs):
            if not fit[row]:
                found.append(None)
                continue
            shape = pair.backend.shape
            a2, b2, error2, total = (sums[row] for sums in totals)
            tally = Tally(sample=pair.sample, shape=shape, count=a.shape[1], finite=a.shape[1])
            tally.mismatches, tally.zero_refs = unequal[row], zeros[row]
            tally.max_abs, tally.max_rel = differences[row], quotients[row]
            tally.worst = Worst(False, differences[row], places[row], pair.sample, shape)  # noqa: FBT003
            low, high, b_low, b_high = (side[row] for side in extremes)
            tally.reference.add(low, high)
            tally.backend.add(b_low, b_high)
            for kept, mantissa in (
                (tally.sum_abs, total),
                (tally.error_squares, error2),
                (tally.reference_squares, a2),
                (tally.backend_squares, b2),
            ):
                kept.add(mantissa)
            if error2 <= min(a2, b2):
                tally.products.add((a2 + b2 - error2) / 2.0)
            else:
                products = products or _row_sums(a, b)
                tally.products.add(products[row])
            if pair.steps.known:
                slack = VALUE_SLACK * (max(-low, high) + max(-b_low, b_high))
                self._add_steps(tally, row, largest[row], slack)
            found.append(tally)
        return found

    def _add_steps(self, tally: Tally, row: int, largest: float, slack: float) -> None:
        steps = self._pairs[row].steps
        block = Block(reference=self._a[row], backend=self._b[row], start=0, steps=steps)
        if largest == 0.0:
            if not np.isnan(steps.of(0, block.reference.size)).all():
                tally.offer_lsb(0.0)
            return
        if steps.uniform is not None:
            signed = _row_sums((self._b[row] - self._a[row])[np.newaxis], self._buffers.ones)[0]
            mantissa, exponent = math.frexp(steps.uniform)
            tally.add_bias(signed / mantissa, -exponent, tally.mismatches)
        add_steps(tally, block, self._error[row], largest, slack)

    def _sums(self) -> list[list[float]]:
        a, b, error = self._a, self._b, self._error
        pairs = ((a, a), (b, b), (error, error), (error, self._buffers.ones))
        return [_row_sums(first, second) for first, second in pairs]

    def _largest_differences(self, fit: Sequence[bool]) -> tuple[list[float], list[int]]:
        """Return the largest difference of each row in float64, and its first place; of a row that fits."""
        error = self._error
        mask = np.equal(error, np.maximum.reduce(error, axis=1)[:, np.newaxis], out=self._mask(0))
        mask[:, 0] |= ~np.array(fit)  # a row of NaN has no largest
        rows, places = mask.nonzero()
        a, b = self._a[rows, places].astype(np.float64), self._b[rows, places]
        exact = np.absolute(b - a)
        starts = np.searchsorted(rows, np.arange(error.shape[0]))
        most = np.maximum.reduceat(exact, starts)
        first = np.flatnonzero((exact == most[rows]) | np.isnan(exact))
        first = first[np.searchsorted(rows[first], np.arange(error.shape[0]))]
        return most.tolist(), places[first].tolist()

    def _largest_quotients(self, nonzero: np.ndarray, fit: Sequence[bool], zeros: Sequence[int]) -> list[float | None]:
        """Return the largest error relative to its reference of each row, None where every reference is 0."""
        a, error, quotient = self._a, self._error, self._scratch(3)
        np.absolute(a, out=quotient)
        np.divide(error, quotient, out=quotient)
        np.multiply(quotient, nonzero, out=quotient)  # x/0 and 0/0, times 0, are NaN, which fmax leaves out
        largest = np.fmax.reduce(quotient, axis=1)
        ordered = (largest > QUOTIENT_LOW) & (largest < QUOTIENT_HIGH)
        least = (largest.astype(np.float64) * (1.0 - QUOTIENT_SLACK)).astype(np.float32)
        mask = np.greater_equal(quotient, least[:, np.newaxis], out=self._mask(0))
        if not ordered.all():  # quotients that leave float32 are not ordered by it
            mask[~ordered] = nonzero[~ordered]
        rows, places = mask.nonzero()
        ours = self._a[rows, places].astype(np.float64)
        exact = np.absolute(self._b[rows, places] - ours) / np.absolute(ours)
        found: list[float | None] = [None] * a.shape[0]
        held, starts = np.unique(rows, return_index=True)
        if held.size:
            for row, value in zip(held.tolist(), np.maximum.reduceat(exact, starts).tolist(), strict=True):
                if fit[row] and zeros[row] < a.shape[1]:
                    found[row] = value
        return found


def _fits(largest: float, a_low: float, a_high: float, b_low: float, b_high: float) -> bool:
    """Tell whether float32 is enough for a row; not for one with a NaN."""
    return is_safe(largest) and is_safe(max(-a_low, a_high)) and is_safe(max(-b_low, b_high))


def _row_sums(first: np.ndarray, second: np.ndarray) -> list[float]:
    """Sum the products of each row as `row_sums.row_dots` does.

    Args:
        first: Rows, C-contiguous.
        second: As many, or 256 elements that are paired with every 256 of each row.
    """
    count, size = first.shape
    whole, rest = size // ROW, size % ROW
    totals = np.zeros(count)
    repeated = second.ndim == 1
    if whole:
        lines = first[:, : whole * ROW].reshape(count, whole, ROW)
        others = second if repeated else second[:, : whole * ROW].reshape(count, whole, ROW)
        totals = np.add.reduce(np.vecdot(lines, others), axis=1, dtype=np.float64)
    if rest:
        totals = totals + np.vecdot(first[:, size - rest :], second[:rest] if repeated else second[:, size - rest :])
    sums: list[float] = totals.tolist()
    return sums


class SmallTensors:
    """Small tensors of one shape, all of which float32 holds exactly, in the order they came.

    Args:
        shape: Shape of each.
        steps: Size of an LSB, the same in all.
    """

    def __init__(self, shape: tuple[int, ...], steps: Steps) -> None:
        self.shape = shape
        self.steps = steps
        self.sides: list[tuple[RealBlocks, RealBlocks]] = []
        self.places: list[tuple[int, int]] = []

    def add(self, sides: tuple[RealBlocks, RealBlocks], sample: int, step: int) -> None:
        """Add those of the reference and the backend of a sample and step; their arrays are not copied."""
        self.sides.append(sides)
        self.places.append((sample, step))

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Tell whether one more of a shape fits a block with the others."""
        return shape == self.shape and (len(self.sides) + 1) * self.sides[0][1].size <= BLOCK

    def read(self, buffers: Scratch) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of both sides, one tensor after another, as float32.

        Args:
            buffers: Scratch; its first two float32 buffers are used.
        """
        size = self.sides[0][1].size
        if len(self.sides) == 1:
            first, second = self.sides[0]
            return first.read_single(0, size, buffers.singles[0]), second.read_single(0, size, buffers.singles[1])
        for number, pair in enumerate(self.sides):
            for side, buffer in zip(pair, buffers.singles, strict=False):
                out = buffer[number * size : (number + 1) * size]
                np.copyto(out, side.read_single(0, size, out))  # which may be the tensor itself, or `out` already
        count = len(self.sides) * size
        return buffers.singles[0][:count], buffers.singles[1][:count]
