"""The table of strings: names of tensors are asked for when a file is opened, all others with its graph."""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern

import numpy as np

from qdebug.model.texts import Texts
from qdebug.store.check_tables import Tables, check_runs

__all__ = ["TextTable"]


class TextTable(Texts):
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
        super().__init__(data, starts, starts + lengths)

    def check(self) -> None:
        """Make sure that each can be decoded.

        Raises:
            ValueError: One is no UTF-8.
        """
        if not self.all_ascii:
            for _ in self:
                pass

    def shared(self, rows: np.ndarray | None = None, known: Sequence[str] = ()) -> list[str]:
        """Give all strings; recordings of one net share those that are the same in both.

        Args:
            rows: Rows that were asked for before.
            known: What they hold.

        Raises:
            ValueError: One is no UTF-8.
        """
        texts = [""] * len(self)
        left = np.ones(len(texts), dtype=bool)
        if rows is not None:
            left[rows] = False
            for row, text in zip(rows.tolist(), known, strict=True):
                texts[row] = intern(text)
        others = np.flatnonzero(left)
        for row, text in zip(others.tolist(), self.at(others), strict=True):
            texts[row] = intern(text)
        return texts
