"""Flat rows: the same keys for every tensor, plain values that any data frame takes."""

import math

import numpy as np

from qdebug.compare.result.flat_rows import COLUMNS
from qdebug.compare.result.limits import Acknowledgement
from qdebug.compare.result.result import Status
from qdebug.model import QuantParams


def test_all_rows_have_the_same_keys_and_plain_values(made):
    channels = QuantParams(dtype="int8", scale=np.array([0.1, 0.2]), axis=0)
    nodes = [
        made.node(0, introduced=made.stats(max_lsb=0.5), gain=1.5),
        made.node(1, Status.INCOMPARABLE, quant=None, saturation=None),
        made.node(2, quant=channels, acknowledged=Acknowledgement(node="conv2", reason="known")),
    ]
    rows = made.result(nodes).to_rows()
    assert all(tuple(row) == tuple(COLUMNS) for row in rows)
    assert {type(value) for row in rows for value in row.values()} <= {str, int, float, type(None)}
    assert (rows[0]["introduced_max_lsb"], rows[0]["gain"], rows[0]["scale"], rows[0]["scales"]) == (0.5, 1.5, 0.05, 1)
    assert rows[1]["sqnr_db"] is None
    assert rows[1]["dtype"] is None
    assert (rows[2]["scale"], rows[2]["scales"], rows[2]["acknowledged"]) == (None, 2, "known")


def test_what_is_not_finite_stays_so(made):
    (row,) = made.result([made.node(0, metrics=made.stats(sqnr_db=math.nan, max_abs=math.inf))]).to_rows()
    assert math.isnan(row["sqnr_db"])
    assert row["max_abs"] == math.inf
