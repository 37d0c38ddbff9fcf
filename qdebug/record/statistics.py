"""What is kept of a tensor that is not kept in full: statistics, and elements chosen the same in every run."""

from __future__ import annotations

import math

import numpy as np

from qdebug.model import QuantParams
from qdebug.model.dtypes import logical_name
from qdebug.model.kept import Kept
from qdebug.numerics.summary import take_statistics
from qdebug.store.payload import payload_hash, to_bytes

__all__ = ["choose_positions", "keep_partly"]

_SHARE_OF_LARGEST = 8
_SEED = 20


def keep_partly(array: np.ndarray, quant: QuantParams | None, *, elements: int = 0, truncated: bool = False) -> Kept:
    """Give statistics of a tensor, and some of its elements.

    Args:
        array: Its elements.
        quant: How they stand for real numbers; None if they are the numbers.
        elements: How many elements to keep, besides the largest ones; 0 for none.
        truncated: Whether less is kept than was asked for.
    """
    dtype = logical_name(array.dtype)
    flat = array.reshape(-1)
    positions = choose_positions(flat, quant, elements) if elements else None
    return Kept(
        dtype=dtype,
        shape=array.shape,
        digest=payload_hash(to_bytes(array, dtype)),
        statistics=take_statistics(array, quant),
        positions=positions,
        values=None if positions is None else flat[positions],
        truncated=truncated,
    )


def choose_positions(flat: np.ndarray, quant: QuantParams | None, elements: int) -> np.ndarray:
    """Choose elements: one at a fixed random place in each of `elements` equal stretches, and the largest ones.

    The places depend on the number of elements alone, so that two runs keep the same ones, whatever they call the
    tensor. An eighth as many again are those of the largest magnitude.

    Args:
        flat: All elements, 1-D.
        quant: How they stand for real numbers.
        elements: How many.

    Returns:
        Positions, ascending, int64.
    """
    if elements >= flat.size:
        return np.arange(flat.size, dtype=np.int64)
    within = np.random.default_rng(_SEED).random(elements)
    spread = ((np.arange(elements) + within) * (flat.size / elements)).astype(np.int64)
    spread = np.minimum(spread, flat.size - 1)
    largest = max(1, elements // _SHARE_OF_LARGEST)
    size = _magnitudes(flat, quant)
    top = np.argpartition(size, flat.size - largest)[flat.size - largest :]
    return np.unique(np.concatenate([spread, top]))


def _magnitudes(flat: np.ndarray, quant: QuantParams | None) -> np.ndarray:
    """Give magnitudes to sort by: NaN first of all; of codes their distance from the code of 0."""
    middle = 0
    if quant is not None and quant.zero_point.size == 1:
        middle = int(quant.zero_point.reshape(-1)[0])
    with np.errstate(all="ignore"):
        wide = flat if flat.dtype.kind == "c" else flat.astype(np.float64)
        size: np.ndarray = np.abs(wide - middle)
    size[np.isnan(size)] = math.inf
    return size
