"""The table of strings: names of tensors are asked for when a file is opened, all others with its graph."""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern

import numpy as np

from qdebug.store.check_tables import Tables, check_runs

__all__ = ["TextTable"]


class TextTable:
    """The strings of a recording, decoded when they are asked for.

    Args:
        tables: The tables of a recording or of a journal.

    Raises:
        ValueError: A row lies outside the text.
    """

    def __init__(self, tables: Tables) -> None:
        data = np.ascontiguousarray(tables["names"]).data
        starts, lengths = (np.ascontiguousarray(tables["strings"][field]) for field in ("offset", "length"))
        check_runs("strings", starts, lengths, len(data))
        self._starts, self._stops = starts, starts + lengths
        self._data, self._ascii = bytes(data), ""
        if self._data.isascii():  # of all at once: one text is cut out of it in a third of the time
            self._ascii = self._data.decode("ascii")

    def at(self, rows: np.ndarray) -> list[str]:
        """Return the strings of some rows; recordings of one net share those that are the same in both.

        Raises:
            ValueError: One is no UTF-8.
        """
        spans = zip(self._starts[rows].tolist(), self._stops[rows].tolist(), strict=True)
        if self._ascii:
            return [intern(self._ascii[start:stop]) for start, stop in spans]
        return [intern(self._data[start:stop].decode("utf-8", "surrogatepass")) for start, stop in spans]

    def shared(self, rows: np.ndarray | None = None, known: Sequence[str] = ()) -> list[str]:
        """Return all strings.

        Args:
            rows: Rows that were asked for before.
            known: What they hold.

        Raises:
            ValueError: One is no UTF-8.
        """
        texts = [""] * len(self._starts)
        left = np.ones(len(texts), dtype=bool)
        if rows is not None:
            left[rows] = False
            for row, text in zip(rows.tolist(), known, strict=True):
                texts[row] = text
        others = np.flatnonzero(left)
        for row, text in zip(others.tolist(), self.at(others), strict=True):
            texts[row] = text
        return texts
