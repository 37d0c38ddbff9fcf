"""Tables of a recording as objects."""

import numpy as np
import pytest

from qdebug.store import decode


@pytest.mark.parametrize("at_once", [1, 3, 7, 100])
@pytest.mark.parametrize("rows", [0, 1, 6, 7])
def test_a_table_comes_in_pieces_and_whole(monkeypatch, at_once, rows):
    monkeypatch.setattr(decode, "_ROWS_AT_ONCE", at_once)
    table = np.zeros(rows, dtype=[("name", "<u4"), ("start", "<i8")])
    table["name"], table["start"] = np.arange(rows), -np.arange(rows)
    assert list(decode.rows_of(table)) == table.tolist()
