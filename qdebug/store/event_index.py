"""The index of a recording as it is kept while the file is open: what finds and reads values, at half its size."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    """

    def __init__(self, index: np.ndarray, tensors: int) -> None:
        dims = min(int(index["ndim"].max(initial=0)), INDEX_DIMS)
        fields: list[Any] = [*((name, index.dtype[name]) for name in _KEPT), ("shape", "<u8", (dims,))]
        self.rows = np.empty(len(index), dtype=np.dtype(fields))
        for name in _KEPT:
            self.rows[name] = index[name]
        self.rows["shape"] = index["shape"][:, :dims]
        order = np.lexsort((index["step"], index["sample"], index["tensor"]))
        self._order = order.astype(np.uint32)
        self._starts = np.searchsorted(index["tensor"][order], np.arange(tensors + 1)).astype(np.uint32)

    def __len__(self) -> int:
        return len(self.rows)

    def find(self, tensor: int, sample: int, step: int) -> int | None:
        """Give the row of the event of a tensor at a sample and step; None if there is none.

        Args:
            tensor: Row of /tensors.
            sample: The sample.
            step: The step.
        """
        rows = self._order[self._starts[tensor] : self._starts[tensor + 1]]
        for column, wanted in (("sample", sample), ("step", step)):
            if not len(rows) or wanted < 0:
                return None
            if len(rows) == 1:
                row = rows[0]
                rows = rows if self.rows[column][row] == wanted else rows[:0]
            else:
                values = self.rows[column][rows]
                rows = rows[np.searchsorted(values, wanted) : np.searchsorted(values, wanted, side="right")]
        return int(rows[0]) if len(rows) else None
