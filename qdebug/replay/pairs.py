"""Sums of products whose neighbours are added in 16 bits first, by saturation or by wrapping around.

Processors without an 8-bit dot product multiply an unsigned by a signed byte and add two neighbouring products into a
16-bit lane: the vpmaddubsw of x86 saturates there, the smull and smlal of ARM wrap around. Zero points are no part of
it, but taken out of the sums afterwards. What the lanes lose is computed here, to be subtracted from exact sums; most
pairs cannot lose anything and cost nothing.
"""

from __future__ import annotations

import numpy as np

__all__ = ["lost_in_pairs", "lost_in_sums", "unsigned"]

_ENDS = (-(2**15), 2**15 - 1)


def unsigned(codes: np.ndarray, zero_point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give codes of an int8 operand shifted by 128 so that they are unsigned, as x86 needs; uint8 ones as they are."""
    shift = 128 if codes.dtype == np.int8 else 0
    return codes.astype(np.int32) + shift, zero_point.astype(np.int32) + shift


def lost_in_pairs(columns: np.ndarray, weights: np.ndarray, accumulate: str) -> np.ndarray:
    """Give what sums of products lose when pairs of neighbours are held to 16 bits.

    Args:
        columns: Codes (K, P) of the one operand, in the order that pairs are formed in.
        weights: Codes (M, K) of the other.
        accumulate: `pairsat16:ORDER` or `pairwrap16:ORDER`, with the distance of partners if it is not 1.

    Returns:
        Exact sums minus held sums (M, P), int64.
    """
    kind, _, *rest = accumulate.split(":")
    distance = int(rest[0]) if rest else 1
    first, second = _partners(weights.shape[1], distance)
    x, w = _with_zero(columns, axis=0), _with_zero(weights, axis=1)
    lost = np.zeros((weights.shape[0], columns.shape[1]), dtype=np.int64)
    ends = np.stack([w * x.min(axis=1, initial=0), w * x.max(axis=1, initial=0)])
    low, high = ends.min(axis=0), ends.max(axis=0)
    low, high = low[:, first] + low[:, second], high[:, first] + high[:, second]
    reach = (low < _ENDS[0]) | (high > _ENDS[1])
    for pair in np.flatnonzero(reach.any(axis=0)):
        a, b, rows = first[pair], second[pair], np.flatnonzero(reach[:, pair])
        total = w[rows, a][:, None] * x[a][None] + w[rows, b][:, None] * x[b][None]
        held = np.clip(total, *_ENDS) if kind == "pairsat16" else total.astype(np.int16)
        lost[rows] += total - held
    return lost


def lost_in_sums(columns: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Give what sums of products lose when they saturate at 16 bits after each product.

    Args:
        columns: Centred codes (K, P) of the one operand, in the order of the products.
        weights: Centred codes (M, K) of the other.

    Returns:
        Exact sums minus held sums (M, P), int64.
    """
    held = np.zeros((weights.shape[0], columns.shape[1]), dtype=np.int64)
    exact = np.zeros_like(held)
    for row, factor in zip(columns, weights.T, strict=True):
        product = factor[:, None] * row[None]
        exact += product
        held += product
        np.clip(held, *_ENDS, out=held)
    return exact - held


def _partners(depth: int, distance: int) -> tuple[np.ndarray, np.ndarray]:
    """Give which elements form pairs; an index of `depth` stands for the zero that pads an odd end."""
    whole = -(-depth // (2 * distance)) * 2 * distance
    places = np.minimum(np.arange(whole), depth).reshape(-1, 2, distance)
    return places[:, 0].reshape(-1), places[:, 1].reshape(-1)


def _with_zero(array: np.ndarray, axis: int) -> np.ndarray:
    shape = list(array.shape)
    shape[axis] = 1
    return np.concatenate([array, np.zeros(shape, array.dtype)], axis=axis)
