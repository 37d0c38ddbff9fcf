"""Compute all error metrics of two tensors in one pass over cache-sized blocks, as mergeable sums.

A block has 32768 elements. Its float32 copies stay in a core's cache, so that further passes over it are nearly free.
`block_error` contains the arithmetic of a block, and `metric_table` the definitions. Begin at `ErrorAccumulator`.
"""

from __future__ import annotations

import numpy as np

from qdebug.errors import UsageError
from qdebug.model.dtypes import is_integer
from qdebug.model.quant import QuantParams
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.block_error import add_double, add_single, read_block, real_values
from qdebug.numerics.blocks import Clamp, RealBlocks, make_comparable, scratch
from qdebug.numerics.checkpoint import checkpoint
from qdebug.numerics.lsb import LsbSizes
from qdebug.numerics.rails import RailsCounter
from qdebug.numerics.stats import ErrorStats
from qdebug.numerics.tally import Block, Tally

__all__ = ["ErrorAccumulator", "has_same_elements", "lsb_of"]


class ErrorAccumulator:
    """Accumulates the error of backend tensors against reference tensors.

    Args:
        reference_quant: Quantization of the reference's stored elements; None for real numbers.
        backend_quant: Quantization of the backend's stored elements; None for real numbers.
        reference_clamp: Bounds to which the reference's real values are clamped first.
        backend_clamp: Bounds to which the backend's real values are clamped first.
        step: Size of an LSB in real units; by default the backend's own scale.
        tolerance: (atol, rtol), to count the elements that differ by more than atol + rtol * abs(reference).
        rails: Counter that also receives the backend's codes and the reference's real values.
    """

    def __init__(
        self,
        *,
        reference_quant: QuantParams | None = None,
        backend_quant: QuantParams | None = None,
        reference_clamp: Clamp = (None, None),
        backend_clamp: Clamp = (None, None),
        step: float | None = None,
        tolerance: tuple[float, float] | None = None,
        rails: RailsCounter | None = None,
    ) -> None:
        self._reference_quant = reference_quant
        self._backend_quant = backend_quant
        self._reference_clamp = reference_clamp
        self._backend_clamp = backend_clamp
        self._step = step
        self._rails = rails
        self._tally = Tally(tolerance=tolerance)

    def update(self, reference: np.ndarray, backend: np.ndarray, *, sample: int, steps: int = 1) -> None:
        """Add two tensors of one sample.

        Args:
            reference: Stored elements of the reference; may be read-only or mapped.
            backend: Stored elements of the backend, of the same shape except for dimensions of extent 1.
            sample: Index of the sample, for `worst_sample`.
            steps: Number of steps that are joined along the first axis. `worst_index` is the index within a step.

        Raises:
            UsageError: The shapes differ, a dtype does not hold real numbers, or quantization parameters do not match a
                shape.
        """
        first, second = make_comparable(
            RealBlocks(reference, self._reference_quant, self._reference_clamp),
            RealBlocks(backend, self._backend_quant, self._backend_clamp),
        )
        if not has_same_elements(first.shape, second.shape):
            raise UsageError(f"The reference has shape {first.shape}, but the backend has {second.shape}.")
        lsb = lsb_of(first, second, self._step)
        if self._rails is not None:
            self._rails.start(second.shape, double=not second.single)
        tally = self._tally
        tally.sample, tally.shape = sample, second.shape
        if steps > 1:
            tally.shape = (second.shape[0] // steps, *second.shape[1:])
        buffers = scratch()
        single = first.single and second.single
        with np.errstate(all="ignore"):
            for start in range(0, second.size, BLOCK):
                checkpoint()  # before the scratch buffers are filled, since the callback may overwrite them
                stop = min(start + BLOCK, second.size)
                if single:
                    a = first.read_single(start, stop, buffers.singles[0])
                    b = second.read_single(start, stop, buffers.singles[1])
                    if not add_single(tally, Block(reference=a, backend=b, start=start, lsb=lsb), buffers):
                        a64, b64 = a.astype(np.float64), b.astype(np.float64)
                        add_double(tally, Block(reference=a64, backend=b64, start=start, lsb=lsb))
                else:
                    block = read_block((first, second), (start, stop), lsb, buffers)
                    add_double(tally, block)
                    a = real_values(block.reference, block.reference_rest)
                if self._rails is not None:
                    self._rails.add(second.stored(start, stop), a, start)
        tally.count += second.size

    def compare_separately(self, reference: np.ndarray, backend: np.ndarray, *, sample: int) -> ErrorAccumulator:
        """Return the error of two tensors in a separate accumulator, which can be added with `merge`.

        Args:
            reference: Stored elements of the reference.
            backend: Stored elements of the backend.
            sample: Index of the sample.

        Raises:
            UsageError: As for `update`.
        """
        accumulator = ErrorAccumulator(
            reference_quant=self._reference_quant,
            backend_quant=self._backend_quant,
            reference_clamp=self._reference_clamp,
            backend_clamp=self._backend_clamp,
            step=self._step,
        )
        accumulator.update(reference, backend, sample=sample)
        return accumulator

    def is_reference_within(self, span: Clamp) -> bool:
        """Return whether all elements so far are finite, and all reference values are within bounds."""
        low, high = span
        extremes, tally = self._tally.reference, self._tally
        return tally.is_finite and (low is None or low <= extremes.low) and (high is None or extremes.high <= high)

    def add_unchanged(self, other: ErrorAccumulator) -> None:
        """Add the finite reference values of another accumulator as elements without error, equal on both sides."""
        lsb = self._step is not None and np.isfinite(self._step) and self._step > 0
        self._tally.merge(other._tally.unchanged(lsb=bool(lsb)))

    def merge(self, other: ErrorAccumulator) -> None:
        """Add another accumulator, as if its elements had been added after this accumulator's."""
        self._tally.merge(other._tally)

    def stats(self) -> ErrorStats:
        """Return the metrics of everything added so far."""
        return self._tally.stats()


def has_same_elements(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Return whether two shapes are equal except for dimensions of extent 1."""
    return first == second or [d for d in first if d != 1] == [d for d in second if d != 1]


def lsb_of(reference: RealBlocks, backend: RealBlocks, step: float | None = None) -> LsbSizes:
    """Return the size of an LSB for each element of a pair of tensors: by default, the backend's scale.

    Args:
        reference: The reference's tensor.
        backend: The backend's tensor.
        step: A size for all elements, used instead of the scale; None uses the scale.
    """
    coded = reference.quantized or backend.quantized
    whole = step is None and _are_on_one_lattice(reference, backend)
    return LsbSizes(backend.quant, backend.shape, step, whole=whole, coded=coded)


def _are_on_one_lattice(reference: RealBlocks, backend: RealBlocks) -> bool:
    """Return whether two tensors are integer codes with equal scales, so that they differ by whole steps."""
    reference_quant, backend_quant = reference.quant, backend.quant
    if reference_quant is None or backend_quant is None or reference.clamped or backend.clamped:
        return False
    if not (is_integer(reference.dtype.name) and is_integer(backend.dtype.name)):
        return False
    return reference_quant.has_same_scale(backend_quant) and (
        not reference_quant.per_channel or reference.shape == backend.shape
    )
