"""The index of a recording as it is kept while the file is open: what finds and reads values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

import numpy as np

from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.model.outline import Outline
from qdebug.store.layout import INDEX_DIMS

__all__ = ["EventIndex"]

_NUMBERS = ("sample", "step", "payload", "quant", "flags", "dtype", "ndim", "nbytes")
_DIGEST = 16


class EventIndex:
    """Events by row, and their rows by place.

    Args:
        index: The table /index, checked. Its statistics are not kept.
        tensors: Number of rows of /tensors.

    Attributes:
        columns: The numbers of all rows by the name of their field; `shape` is not one.
        tensors: The row of /tensors of each event.
    """

    def __init__(self, index: np.ndarray, tensors: int) -> None:
        dims = min(int(index["ndim"].max(initial=0)), INDEX_DIMS)
        self.columns: Mapping[str, np.ndarray] = {name: index[name].copy() for name in _NUMBERS}
        order = np.lexsort((index["step"], index["sample"], index["tensor"]))
        starts = np.searchsorted(index["tensor"][order], np.arange(tensors + 1))
        self._order, self._starts = order.data, starts.data  # one number comes several times as fast as of an array
        self._shape = tuple(index["shape"][:, dim].copy().data for dim in range(dims))
        self.tensors: np.ndarray = index["tensor"].copy()
        self._hashes = index["hash"].tobytes()
        self._samples, self._steps, self._ndim, self._dtype, self._flags, self._payload, self._nbytes = (
            self.columns[name].data for name in ("sample", "step", "ndim", "dtype", "flags", "payload", "nbytes")
        )

    def __len__(self) -> int:
        return len(self._order)

    def find(self, tensor: int, sample: int, step: int) -> int | None:
        """Give the row of the event of a tensor at a sample and step; None if there is none.

        Args:
            tensor: Row of /tensors.
            sample: The sample.
            step: The step.
        """
        begin, end = self._starts[tensor], self._starts[tensor + 1]
        if end - begin > 1:
            begin = bisect_left(self._order, (sample, step), begin, end, key=self._place)
        if begin == end or self._place(row := self._order[begin]) != (sample, step):
            return None
        return int(row)

    def _place(self, row: int) -> tuple[int, int]:
        return self._samples[row], self._steps[row]

    def flags(self, row: int) -> int:
        """Give the flags of an event."""
        return int(self._flags[row])

    def payload(self, row: int) -> int:
        """Give the number of the dataset that holds an event's values."""
        return int(self._payload[row])

    def nbytes(self, row: int) -> int:
        """Give the size of an event's values."""
        return int(self._nbytes[row])

    def ndim(self, row: int) -> int:
        """Give the number of dimensions of an event's values."""
        return int(self._ndim[row])

    def dtype(self, row: int) -> str:
        """Give the logical dtype of an event's values."""
        return LOGICAL_DTYPES[self._dtype[row]]

    def shape(self, row: int) -> tuple[int, ...]:
        """Give the first extents of an event's values, as many as a row has room for."""
        return tuple([extents[row] for extents in self._shape[: self._ndim[row]]])

    def digest(self, row: int) -> bytes:
        """Give the hash of an event's values."""
        return self._hashes[row * _DIGEST : (row + 1) * _DIGEST]

    def outline(self, row: int) -> Outline | None:
        """Give dtype, shape and hash of an event's values; None if the row has no room for the shape."""
        return None if self._ndim[row] > INDEX_DIMS else Outline(self.dtype(row), self.shape(row), self.digest(row))
