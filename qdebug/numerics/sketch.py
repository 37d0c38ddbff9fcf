"""Random projections of a tensor, from which the squared error between two tensors is estimated.

A sketch has 64 sums of all elements, each with its own random signs: y_j = sum_i c_ij x_i. Projections are linear, so
the difference of two sketches is the sketch of the difference d, and mean_j y_j^2 is an unbiased estimate of |d|^2 with
variance at most 2 |d|^4 / 64 (N. Alon, Y. Matias, M. Szegedy, "The space complexity of approximating the frequency
moments", STOC 1996, which needs signs of four elements to be independent).

The signs are c_ij = s_i b_kj r_mj for element m of block k: s has a sign for each element, b one for each block and
projection, r one for each position in a block and projection. Any four elements have independent signs through s; two
projections are uncorrelated through b and r. So the variance above holds, and a sketch costs one matrix product.

A sum of many such terms is normally distributed in the limit, so that 64 mean_j y_j^2 / |d|^2 follows chi-squared with
64 degrees of freedom. For independent signs its tails are no heavier (D. Achlioptas, "Database-friendly random
projections: Johnson-Lindenstrauss with binary coins", Journal of Computer and System Sciences 66, 2003).
`squared_error` takes its interval from that; tests/benchmarks/sketch_intervals.py counts how often it holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from qdebug.model.dtypes import is_float, is_integer, logical_name
from qdebug.model.kept import SKETCH_SIZE
from qdebug.model.quant import QuantParams
from qdebug.model.thresholds.verdict import SKETCH_SIGMAS
from qdebug.numerics.affine import dequantize, is_wide_code
from qdebug.numerics.blas import one_thread

__all__ = [
    "BLOCK",
    "SquaredError",
    "block_signs",
    "element_sign_bits",
    "position_signs",
    "squared_error",
    "take_sketch",
]

_SEED = 64
BLOCK = 4096
"""Elements per block."""
_BATCH = 64
"""Number of blocks per matrix product: two megabytes of float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SquaredError:
    """The squared error of two tensors, sum (reference - backend)^2, estimated from their sketches.

    Args:
        estimate: Its estimate.
        low: Lower end of the interval.
        high: Upper end of the interval.
    """

    estimate: float
    low: float
    high: float


def take_sketch(array: np.ndarray, quant: QuantParams | None) -> np.ndarray | None:
    """Return the projections of a tensor's real values, float32, or None if it has no real values.

    Elements that are NaN or infinite count as 0; the statistics count them.

    Args:
        array: Stored elements.
        quant: Their quantization; None for real numbers.
    """
    dtype = logical_name(array.dtype)
    if not (is_float(dtype) or is_integer(dtype) or dtype == "bool"):
        return None
    flat, double = array.reshape(-1), is_wide_code(array.dtype)
    real_values = (
        dequantize(array, quant, double=double).reshape(-1) if quant is not None and quant.scale.size > 1 else None
    )
    element_bits, block_bits = np.random.PCG64(_SEED), np.random.PCG64(_SEED + 1)
    sums = np.zeros(SKETCH_SIZE)
    with one_thread(), np.errstate(all="ignore"):
        for start in range(0, flat.size, BLOCK * _BATCH):
            part = slice(start, start + BLOCK * _BATCH)
            real = real_values[part] if real_values is not None else dequantize(flat[part], quant, double=double)
            blocks = _signed_blocks(np.asarray(real), element_bits)
            projections = blocks @ position_signs()
            projections *= _signs(block_bits, _BATCH * SKETCH_SIZE).reshape(_BATCH, SKETCH_SIZE)[: len(blocks)]
            sums += projections.sum(axis=0)
        return sums.astype(np.float32)


def _signed_blocks(values: np.ndarray, generator: np.random.PCG64) -> np.ndarray:
    """Return values with random signs, float64, as rows of `BLOCK` values. The last row is padded with 0."""
    count = math.ceil(values.size / BLOCK)
    blocks = np.zeros((count, BLOCK))
    flat = blocks.reshape(-1)[: values.size]
    np.multiply(values, _signs(generator, count * BLOCK)[: values.size], out=flat)
    flat[~np.isfinite(flat)] = 0.0
    return blocks


def _signs(generator: np.random.PCG64, count: int) -> np.ndarray:
    """Return random signs, int8. The count must be a multiple of 64.

    NumPy guarantees the raw stream of a bit generator, so that sketches of all versions can be compared.
    """
    bits = np.unpackbits(np.asarray(generator.random_raw(count // 64), "<u8").view(np.uint8))
    return np.asarray(1 - 2 * bits.view(np.int8))


@lru_cache(maxsize=1)
def position_signs() -> np.ndarray:
    """Return the signs of each position in a block, for each projection."""
    signs = _signs(np.random.PCG64(_SEED + 2), BLOCK * SKETCH_SIZE)
    return signs.reshape(BLOCK, SKETCH_SIZE).astype(np.float64)


def element_sign_bits(count: int) -> np.ndarray:
    """Return the signs of elements as bits, uint8: 1 for -1, the first element in the highest bit.

    Args:
        count: Number of elements, a multiple of 64.
    """
    return np.asarray(np.random.PCG64(_SEED).random_raw(count // 64), "<u8").view(np.uint8)


def block_signs(count: int) -> np.ndarray:
    """Return the signs of blocks, int8, [blocks, projections]."""
    return _signs(np.random.PCG64(_SEED + 1), count * SKETCH_SIZE).reshape(count, SKETCH_SIZE)


def squared_error(reference: np.ndarray, backend: np.ndarray) -> SquaredError | None:
    """Return the squared error of two tensors of one shape, or None if a sketch overflowed.

    The interval holds the true value except in about one of 1,000 cases, and accounts for the rounding of projections
    to float32.

    Args:
        reference: The reference's sketch.
        backend: The backend's sketch.
    """
    sides = reference.astype(np.float64), backend.astype(np.float64)
    if not all(np.isfinite(side).all() for side in sides):
        return None
    rounding = 2.0**-24 * sum(float(np.linalg.norm(side)) for side in sides)
    distance = float(np.linalg.norm(sides[1] - sides[0]))
    # quantiles of chi-squared: E. B. Wilson, M. M. Hilferty, "The distribution of chi-square", PNAS 17 (1931)
    spread = 2 / (9 * SKETCH_SIZE)
    lower, upper = ((1 - spread + sigmas * math.sqrt(spread)) ** 3 for sigmas in (-SKETCH_SIGMAS, SKETCH_SIGMAS))
    return SquaredError(
        estimate=distance**2 / SKETCH_SIZE,
        low=max(distance - rounding, 0.0) ** 2 / SKETCH_SIZE / upper,
        high=(distance + rounding) ** 2 / SKETCH_SIZE / lower,
    )
