"""Clipping: reference values beyond the range of the codes, and codes at the ends of the range."""

from __future__ import annotations

import numpy as np

from qdebug.errors import UsageError
from qdebug.model.quant import QuantParams
from qdebug.numerics.affine import BLOCK, ScaleMap, subtract_zero_point, wide_parts
from qdebug.numerics.blocks import Clamp, RealBlocks, make_comparable, scratch
from qdebug.numerics.stats import Rails

__all__ = ["CodeRange", "RailsCounter", "count_rails", "merge_rails"]


class CodeRange:
    """Finds real values beyond the range of a tensor's codes.

    Args:
        quant: Quantization of the codes.
        shape: Shape of the tensor.
        double: Whether real values of codes are float64 instead of float32.

    Raises:
        UsageError: The codes are floats, which have no lowest and highest value, or the parameters do not match the
            shape.
    """

    def __init__(self, quant: QuantParams, shape: tuple[int, ...], *, double: bool) -> None:
        if quant.qmin is None or quant.qmax is None:
            raise UsageError(f"Codes of dtype {quant.dtype} have no qmin and qmax.")
        self.scales = ScaleMap(quant, shape)
        scale, zero_point = quant.real_scale.reshape(-1), quant.zero_point.reshape(-1)
        ends = np.array([quant.qmin, quant.qmax], np.uint64 if quant.qmax >= 2**63 else np.int64)[:, np.newaxis]
        with np.errstate(all="ignore"):  # use the same arithmetic as `dequantize`
            if double:
                high, low = np.empty((2, 2, scale.size))
                wide_parts(ends, zero_point, scale, (high, low))
                real: np.ndarray = high + low
            else:
                real = (subtract_zero_point(ends, zero_point) * scale).astype(np.float32)
        self._lowest, self._highest = real.reshape(2, *quant.scale.shape)

    def below(self, values: np.ndarray, start: int) -> np.ndarray:
        """Return a mask of the values below the range; False for NaN.

        Args:
            values: Real values, 1-D, beginning at flat element `start`.
            start: Flat index of the first value.
        """
        return np.asarray(values < self.scales.expand(self._lowest, start, start + values.size))

    def above(self, values: np.ndarray, start: int) -> np.ndarray:
        """Return a mask of the values above the range. Arguments as for `below`."""
        return np.asarray(values > self.scales.expand(self._highest, start, start + values.size))

    def excludes(self, values: np.ndarray, start: int) -> np.ndarray:
        """Return a mask of the values outside the range. Arguments as for `below`."""
        return np.asarray(self.below(values, start) | self.above(values, start))

    def excludes_at(self, values: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return a mask of the values outside the range.

        Args:
            values: Real values, of any shape.
            positions: Their flat indices, in C order; the same shape.
        """
        lowest, highest = (self.scales.at(ends, positions) for ends in (self._lowest, self._highest))
        return np.asarray((values < lowest) | (values > highest))


class RailsCounter:
    """Counts clipped values and codes at the ends of the range, block by block; `rails()` returns the sums.

    Args:
        quant: Quantization of the codes.
        relu_floor: Whether a Relu is fused into the tensor, so that codes at qmin with a real value of 0 are its zeros.

    Raises:
        UsageError: The codes are floats, which have no lowest and highest value.
    """

    def __init__(self, quant: QuantParams, *, relu_floor: bool = False) -> None:
        if quant.qmin is None or quant.qmax is None:
            raise UsageError(f"Codes of dtype {quant.dtype} have no known qmin and qmax.")
        self._quant = quant
        self._qmin, self._qmax = quant.qmin, quant.qmax
        self._relu_floor = relu_floor
        self._at_qmin = self._at_qmax = self._below = self._above = self._floor = self._total = 0
        self._range: CodeRange | None = None
        self._zero_at_qmin = quant.zero_point == quant.qmin
        self._kind: tuple[tuple[int, ...], bool] | None = None

    def start(self, shape: tuple[int, ...], *, double: bool) -> None:
        """Begin a tensor.

        Args:
            shape: Its shape.
            double: Whether real values of codes are float64 instead of float32.

        Raises:
            UsageError: The parameters do not match the shape.
        """
        if self._kind != (shape, double):
            self._range = CodeRange(self._quant, shape, double=double)
            self._kind = shape, double

    def add(self, codes: np.ndarray, reference: np.ndarray | None, start: int) -> None:
        """Count a range of codes.

        Args:
            codes: Stored codes, 1-D, beginning at flat element `start`.
            reference: Real values of the reference at the same elements; None if unknown.
            start: Flat index of the first code.

        Raises:
            UsageError: `start()` was not called, or codes are at an end and no reference is given to decide whether
                values were clipped.
        """
        if self._range is None:
            raise UsageError("The shape of the tensor is unknown.", hint="Call start() before add().")
        if codes.dtype.kind == "V":  # int4 and similar types: compare in int8
            codes = codes.astype(np.int8)
        low = codes <= self._qmin
        at_qmin, at_qmax = int(np.count_nonzero(low)), int(np.count_nonzero(codes >= self._qmax))
        self._total += codes.size
        self._at_qmin += at_qmin
        self._at_qmax += at_qmax
        if self._relu_floor and at_qmin and self._zero_at_qmin.any():
            zeros = self._range.scales.expand(self._zero_at_qmin, start, start + codes.size)
            self._floor += int(np.count_nonzero(low & zeros))
        if reference is not None:
            self._below += int(np.count_nonzero(self._range.below(reference, start)))
            self._above += int(np.count_nonzero(self._range.above(reference, start)))
        elif at_qmin or at_qmax:
            raise UsageError(
                f"{at_qmin + at_qmax} codes are at qmin or qmax, but whether values were clipped is unknown.",
                hint="Pass the reference values.",
            )

    def rails(self) -> Rails:
        """Return the counts so far."""
        return Rails(
            at_qmin=self._at_qmin,
            at_qmax=self._at_qmax,
            clipped_low=self._below,
            clipped_high=self._above,
            floor=self._floor,
            total=self._total,
        )


def count_rails(
    codes: np.ndarray,
    quant: QuantParams,
    reference_values: np.ndarray | None = None,
    *,
    reference_quant: QuantParams | None = None,
    reference_clamp: Clamp = (None, None),
    relu_floor: bool = False,
) -> Rails:
    """Count codes at the ends of their range and reference values beyond it.

    Args:
        codes: Stored codes of any shape.
        quant: Their quantization; its qmin and qmax are the ends of the range.
        reference_values: Stored elements of the reference, same shape. Without them, clipping is known only if no code
            is at an end, and is then 0.
        reference_quant: Quantization of the reference's elements; None for real numbers.
        reference_clamp: Bounds to which the reference's real values are clamped first.
        relu_floor: Whether a Relu is fused into the tensor.

    Returns:
        The counts. Use `merge_rails` to add the counts of several tensors.

    Raises:
        UsageError: Codes are at an end and no reference is given, the shapes differ, or the codes are floats.
    """
    codes = np.asarray(codes)
    counter = RailsCounter(quant, relu_floor=relu_floor)
    backend = RealBlocks(codes, quant)
    reference = None if reference_values is None else RealBlocks(reference_values, reference_quant, reference_clamp)
    if reference is not None:
        if reference.shape != codes.shape:
            raise UsageError(f"The codes have shape {codes.shape}, but the reference has {reference.shape}.")
        reference, backend = make_comparable(reference, backend)
    counter.start(codes.shape, double=not backend.single)
    buffers = scratch()
    with np.errstate(all="ignore"):
        for start in range(0, codes.size, BLOCK):
            stop = min(start + BLOCK, codes.size)
            values = None
            if reference is not None:
                values = reference.read_double(start, stop, buffers.doubles[0], buffers.singles[0])
            counter.add(backend.stored(start, stop), values, start)
    return counter.rails()


def merge_rails(first: Rails, second: Rails) -> Rails:
    """Add the counts of two tensors or samples."""
    return Rails(
        at_qmin=first.at_qmin + second.at_qmin,
        at_qmax=first.at_qmax + second.at_qmax,
        clipped_low=first.clipped_low + second.clipped_low,
        clipped_high=first.clipped_high + second.clipped_high,
        floor=first.floor + second.floor,
        total=first.total + second.total,
    )
