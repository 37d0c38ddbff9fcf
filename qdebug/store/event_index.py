"""The index of a recording as it is kept while the file is open: what finds and reads values, at half its size."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np

from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.model.outline import Outline
from qdebug.store.layout import INDEX_DIMS

__all__ = ["EventIndex"]

_KEPT = ("tensor", "sample", "step", "payload", "quant", "flags", "dtype", "ndim", "nbytes", "hash")


class EventIndex:
    """Events by row, and their rows by place.

    Args:
        index: The table /index, checked. Its statistics are not kept.
        tensors: Number of rows of /tensors.

    Attributes:
        rows: The table without statistics, and with as many extents as a tensor has at most.
        flags: Its column of flags, for one row at a time.
    """

    def __init__(self, index: np.ndarray, tensors: int) -> None:
        dims = min(int(index["ndim"].max(initial=0)), INDEX_DIMS)
        kept: list[Any] = [(name, index.dtype[name].newbyteorder("=")) for name in _KEPT]
        self.rows = np.empty(len(index), dtype=np.dtype([*kept, ("shape", "=u8", (dims,))]))
        for name in _KEPT:
            self.rows[name] = index[name]
        self.rows["shape"] = index["shape"][:, :dims]
        order = np.lexsort((index["step"], index["sample"], index["tensor"]))
        starts = np.searchsorted(index["tensor"][order], np.arange(tensors + 1)).astype(np.uint32)
        # of a memoryview, one number comes several times as fast as of an array
        self._order, self._starts = order.astype(np.uint32).data, starts.data
        self._samples, self._steps, self.flags = (self.rows[name].data for name in ("sample", "step", "flags"))

    def __len__(self) -> int:
        return len(self.rows)

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
        return row

    def _place(self, row: int) -> tuple[int, int]:
        return self._samples[row], self._steps[row]

    def outline(self, row: int) -> Outline | None:
        """Give dtype, shape and hash of an event's values; None if the row has no room for the shape."""
        event = self.rows[row]
        ndim = int(event["ndim"])
        if ndim > INDEX_DIMS:
            return None
        shape = tuple(event["shape"][:ndim].tolist())
        return Outline(LOGICAL_DTYPES[event["dtype"]], shape, event["hash"].tobytes())
