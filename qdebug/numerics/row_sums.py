"""Sums of products in rows of 256 elements, with the rows summed in float64.

In longer float32 rows, the rounding errors of a constant tensor would accumulate. With these rows, a sum is within 4
ULP.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["ROW", "row_dots"]

ROW = 256
"""Number of products that BLAS sums at a time."""


def row_dots(pairs: Sequence[tuple[np.ndarray, np.ndarray]], out: np.ndarray) -> list[float]:
    """Sum products of pairs of arrays in rows of 256 elements, with the rows summed in float64.

    Args:
        pairs: 1-D contiguous arrays with the same length and dtype. If the second array has length 256, it is paired
            with every row.
        out: Scratch of the same dtype, with one line per pair and one entry per row.
    """
    n = pairs[0][0].size
    rows, rest = divmod(n, ROW)
    totals = [0.0] * len(pairs)
    if rows:
        shape, whole = (rows, ROW), n - rest
        for index, (first, second) in enumerate(pairs):
            first_rows = (first[:whole] if rest else first).reshape(shape)
            second_rows = first_rows
            if second is not first:
                second_rows = second if second.size == ROW else (second[:whole] if rest else second).reshape(shape)
            np.vecdot(first_rows, second_rows, out=out[index, :rows])
        totals = np.add.reduce(out[: len(pairs), :rows], axis=1, dtype=np.float64).tolist()
    if rest:
        for index, (first, second) in enumerate(pairs):
            second_tail = second[:rest] if second.size == ROW else second[n - rest :]
            totals[index] += float(np.dot(first[n - rest :], second_tail))
    return totals
