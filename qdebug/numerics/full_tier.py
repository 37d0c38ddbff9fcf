"""Everything about the error of one tensor that is worth a second pass: for one node on request, not for all."""

from __future__ import annotations

import numpy as np

from qdebug.model.quant import QuantParams
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.blocks import Clamp
from qdebug.numerics.profiler import Profiler
from qdebug.numerics.tensor_profile import TensorProfile

__all__ = ["Profiler", "TensorProfile", "profile_tensor"]


def profile_tensor(
    reference: np.ndarray,
    backend: np.ndarray,
    *,
    reference_quant: QuantParams | None = None,
    backend_quant: QuantParams | None = None,
    clamps: tuple[Clamp, Clamp] = ((None, None), (None, None)),
    axis: int | None = None,
    bins: int = 64,
    k: int = 20,
    sample: int = 0,
) -> TensorProfile:
    """Compare two tensors in full detail.

    Args:
        reference: Stored elements of the reference.
        backend: Stored elements of the backend, of the same shape but for dimensions of extent 1.
        reference_quant: How the reference's elements stand for real numbers; None if they are the numbers.
        backend_quant: The same for the backend.
        clamps: Bounds applied to the real values of the reference and of the backend first.
        axis: Channel axis in the backend's shape; None for no error by channel.
        bins: Bins of the histograms of values, which go from the smallest to the largest value of either side.
        k: How many of the worst elements.
        sample: Index of the sample, passed on.

    Raises:
        UsageError: The shapes differ, a dtype holds no real numbers, quantization does not fit a shape, the backend
            has no such axis, or `bins` is 0.
    """
    accumulator = ErrorAccumulator(
        reference_quant=reference_quant,
        backend_quant=backend_quant,
        reference_clamp=clamps[0],
        backend_clamp=clamps[1],
    )
    accumulator.update(reference, backend, sample=sample)
    profiler = Profiler(
        accumulator.stats(),
        reference_quant=reference_quant,
        backend_quant=backend_quant,
        clamps=clamps,
        axis=axis,
        bins=bins,
        k=k,
    )
    profiler.add(reference, backend, sample=sample)
    return profiler.profile()
