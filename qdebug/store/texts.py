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
        self._data = tables["names"].tobytes()
        self._starts = tables["strings"]["offset"]
        lengths = tables["strings"]["length"]
        check_runs("strings", self._starts, lengths, len(self._data))
        self._stops = self._starts + lengths
        self._ascii = self._data.isascii()

    def at(self, rows: np.ndarray) -> list[str]:
        """Give the strings of some rows.

        Args:
            rows: Numbers of rows, checked.

        Raises:
            ValueError: One is no UTF-8.
        """
        spans = zip(self._starts[rows].tolist(), self._stops[rows].tolist(), strict=True)
        if self._ascii:
            text = self._data.decode("ascii")
            return [text[start:stop] for start, stop in spans]
        return [self._data[start:stop].decode("utf-8", "surrogatepass") for start, stop in spans]

    def shared(self, rows: np.ndarray | None = None, known: Sequence[str] = ()) -> list[str]:
        """Give all strings; recordings of one net share those that are the same in both.

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
                texts[row] = intern(text)
        others = np.flatnonzero(left)
        for row, text in zip(others.tolist(), self.at(others), strict=True):
            texts[row] = intern(text)
        return texts
