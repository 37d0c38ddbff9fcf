"""Shapes of quantization parameters that go along an axis of a tensor, or along blocks of it."""

from __future__ import annotations

import numpy as np

__all__ = ["spread"]


def spread(values: np.ndarray, shape: tuple[int, ...], axis: int, block: int = 0) -> np.ndarray:
    """Shape scales or zero points so that they broadcast to a tensor.

    Args:
        values: One value, one per element along `axis`, or one per block.
        shape: The tensor's shape.
        axis: Axis the values go along.
        block: Elements along `axis` that share a value; 0 unless block-wise.
    """
    if values.ndim == 0:
        return values
    if block:
        return np.repeat(values, block, axis=axis)[tuple(slice(0, n) for n in shape)]
    if values.size == 1:
        return values.reshape(())
    line = [1] * len(shape)
    line[axis] = values.size
    return values.reshape(line)
