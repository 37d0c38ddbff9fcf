"""Saturation: codes at the ends of their range, and reference values beyond what codes can represent."""

from __future__ import annotations

import numpy as np

from qdebug.errors import UsageError
from qdebug.model.quant import QuantParams
from qdebug.numerics.affine import BLOCK, ScaleMap, centred, wide_parts
from qdebug.numerics.blocks import Clamp, RealBlocks, scratch, settled
from qdebug.numerics.stats import Rails

__all__ = ["RailsCounter", "count_rails", "merge_rails"]


class RailsCounter:
    """Counts saturation block by block; `rails()` gives the sums.

    Args:
        quant: Quantization of the codes.
        relu_floor: Whether a Relu is folded into the tensor, so that codes at qmin whose real value is 0 are its zeros.

    Raises:
        UsageError: The codes have no ends (float codes).
    """

    def __init__(self, quant: QuantParams, *, relu_floor: bool = False) -> None:
        if quant.qmin is None or quant.qmax is None:
            raise UsageError(f"Codes of dtype {quant.dtype} have no qmin and qmax to count at.")
        self._quant = quant
        self._qmin, self._qmax = quant.qmin, quant.qmax
        self._relu_floor = relu_floor
        self._at_qmin = self._at_qmax = self._below = self._above = self._floor = self._total = 0
        self._scales: ScaleMap | None = None
        self._lowest = self._highest = np.zeros(1, np.float32)
        self._zero_at_qmin = quant.zero_point == quant.qmin
        self._kind: tuple[tuple[int, ...], bool] | None = None

    def start(self, shape: tuple[int, ...], *, double: bool) -> None:
        """Begin with a tensor.

        Args:
            shape: Its shape.
            double: Whether real values of codes are float64 and not float32.

        Raises:
            UsageError: The parameters do not fit the shape.
        """
        if self._kind != (shape, double):
            self._scales = ScaleMap(self._quant, shape)
            self._lowest, self._highest = self._limits(double=double)
            self._kind = shape, double

    def _limits(self, *, double: bool) -> np.ndarray:
        """Return the real values of both ends of the range for each scale, by the arithmetic of `dequantize`."""
        scale, zero_point = self._quant.real_scale.reshape(-1), self._quant.zero_point.reshape(-1)
        ends = np.array([self._qmin, self._qmax], np.uint64 if self._qmax >= 2**63 else np.int64)[:, np.newaxis]
        with np.errstate(all="ignore"):
            if not double:
                ends = np.asarray(centred(ends, zero_point) * scale, np.float32)
                return ends.reshape(2, *self._quant.scale.shape)
            high, low = np.empty((2, 2, scale.size))
            wide_parts(ends, zero_point, scale, (high, low))
            return (high + low).reshape(2, *self._quant.scale.shape)

    def add(self, codes: np.ndarray, reference: np.ndarray | None, start: int) -> None:
        """Count a stretch of codes.

        Args:
            codes: Stored codes, 1-D, beginning at flat element `start`.
            reference: Real values of the reference at the same elements; None if unknown.
            start: Flat index of the first.

        Raises:
            UsageError: `start()` was not called, or codes sit at an end and there is no reference to tell
                whether values were clipped.
        """
        if self._scales is None:
            raise UsageError("The shape of the tensor is unknown.", hint="Call start() before add().")
        stop = start + codes.size
        if codes.dtype.kind == "V":  # int4 and its kin: comparing is done in int8
            codes = codes.astype(np.int8)
        low = codes <= self._qmin
        at_qmin, at_qmax = int(np.count_nonzero(low)), int(np.count_nonzero(codes >= self._qmax))
        self._total += codes.size
        self._at_qmin += at_qmin
        self._at_qmax += at_qmax
        if self._relu_floor and at_qmin and self._zero_at_qmin.any():
            self._floor += int(np.count_nonzero(low & self._scales.expand(self._zero_at_qmin, start, stop)))
        if reference is not None:
            self._below += int(np.count_nonzero(reference < self._scales.expand(self._lowest, start, stop)))
            self._above += int(np.count_nonzero(reference > self._scales.expand(self._highest, start, stop)))
        elif at_qmin or at_qmax:
            raise UsageError(
                f"{at_qmin + at_qmax} codes are at qmin or qmax, and whether values were clipped cannot be told.",
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
        quant: Their quantization; qmin and qmax are the ends.
        reference_values: Stored elements of the reference, same shape. If None, clipping is known only (to be 0)
            where no code is at an end.
        reference_quant: How the reference's elements stand for real numbers; None if they are the numbers.
        reference_clamp: Bounds applied to the reference's real values first.
        relu_floor: Whether a Relu is folded into the tensor.

    Returns:
        The counts; those of several tensors are added by `merge_rails`.

    Raises:
        UsageError: No reference is given although codes are at an end, the shapes differ, or the codes have no ends.
    """
    codes = np.asarray(codes)
    counter = RailsCounter(quant, relu_floor=relu_floor)
    backend = RealBlocks(codes, quant)
    reference = None if reference_values is None else RealBlocks(reference_values, reference_quant, reference_clamp)
    if reference is not None:
        if reference.shape != codes.shape:
            raise UsageError(f"The codes have shape {codes.shape} and the reference {reference.shape}.")
        reference, backend = settled(reference, backend)
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
