"""CSV: every tensor, every column, and nothing that a spreadsheet computes."""

import csv
import io
import math

import numpy as np
import pytest

from qdebug.compare.measure.pair_values import PairedValues
from qdebug.compare.result.flat_rows import COLUMNS
from qdebug.compare.result.result import Status
from qdebug.present.reports.exports import diff_csv, element_csv, guard_formula


def read(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_every_tensor_is_a_line_with_unrounded_numbers(made):
    nodes = [
        made.node(0, Status.IDENTICAL, metrics=made.stats(sqnr_db=math.inf, rel_l2=1 / 3)),
        made.node(1, Status.INCOMPARABLE, quant=None, saturation=None, reason="a, b"),
        made.node(2, Status.NONFINITE, metrics=made.stats(sqnr_db=math.nan, cosine=-math.inf)),
    ]
    text = diff_csv({"a": made.result(nodes)})
    rows = read(text)
    assert tuple(rows[0]) == COLUMNS
    assert [row["status"] for row in rows] == ["identical", "incomparable", "nonfinite"]
    assert (rows[0]["sqnr_db"], float(rows[0]["rel_l2"])) == ("Infinity", 1 / 3)
    assert (rows[1]["sqnr_db"], rows[1]["scale"], rows[1]["reason"]) == ("", "", "a, b")
    assert (rows[2]["sqnr_db"], rows[2]["cosine"]) == ("NaN", "-Infinity")
    assert rows[0]["worst_index"] == "0,3,1"
    assert text.endswith("\n")


def test_of_several_backends_a_column_tells_which(made):
    rows = read(diff_csv({"=a": made.result([made.node(0)]), "b": made.result([made.node(0)])}))
    assert [row["backend"] for row in rows] == ["'=a", "b"]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "  =1", "\uff1d1", "|cmd", "%x"])
def test_what_begins_like_a_formula_is_text(text, made):
    assert guard_formula(text)[0] in "'\\"
    row = read(diff_csv({"a": made.result([made.node(0, node=text, tensor=text, reason=text)])}))[0]
    assert not {row[name] for name in ("node", "tensor", "reason")} & {text}
    assert row["node"][0] in "'\\"


def test_a_plain_name_and_a_negative_number_stay_as_they_are(made):
    assert guard_formula("conv1/a-b+c=d") == "conv1/a-b+c=d"
    row = read(diff_csv({"a": made.result([made.node(0, metrics=made.stats(sqnr_db=-3.5))])}))[0]
    assert row["sqnr_db"] == "-3.5"


def test_elements_stand_beside_each_other():
    values = PairedValues(
        reference=np.float32([[1.0, math.nan]]),
        backend=np.float32([[1.5, 2.0]]),
        reference_codes=None,
        backend_codes=np.int8([[15, 20]]),
        reference_quant=None,
        backend_quant=None,
    )
    rows = read(element_csv(values))
    assert rows == [
        {"index": "0,0", "reference": "1.0", "backend": "1.5", "difference": "0.5", "backend_code": "15"},
        {"index": "0,1", "reference": "NaN", "backend": "2.0", "difference": "NaN", "backend_code": "20"},
    ]


def test_differences_of_integers_that_float64_does_not_hold():
    sides = np.int64([2**53]), np.int64([2**53 + 1])
    values = PairedValues(
        reference=sides[0],
        backend=sides[1],
        reference_codes=None,
        backend_codes=None,
        reference_quant=None,
        backend_quant=None,
    )
    (row,) = read(element_csv(values))
    assert (row["reference"], row["backend"], row["difference"]) == ("9007199254740992", "9007199254740993", "1")


def test_booleans_are_the_integers_0_and_1_and_differences_of_wide_integers_are_exact():
    for theirs, ours, expected in (
        (np.array([True, False]), np.array([False, False]), [("1", "0", "-1"), ("0", "0", "0")]),
        (np.uint64([2**64 - 1]), np.uint64([3]), [(str(2**64 - 1), "3", str(4 - 2**64))]),
        (np.int64([-(2**63)]), np.int64([2**63 - 1]), [(str(-(2**63)), str(2**63 - 1), str(2**64 - 1))]),
    ):
        values = PairedValues(
            reference=theirs,
            backend=ours,
            reference_codes=None,
            backend_codes=None,
            reference_quant=None,
            backend_quant=None,
        )
        rows = read(element_csv(values))
        assert [(row["reference"], row["backend"], row["difference"]) for row in rows] == expected


def json_value(node, column):
    """Return what the JSON of a node has under the name of a column."""
    if column in node:
        return node[column]
    for part in ("introduced", "propagated", "constants", "arithmetic", "saturation"):
        if column.startswith(f"{part}_"):
            return (node[part] or {}).get(column.removeprefix(f"{part}_"))
    return (node["metrics"] or {}).get(column, (node["quant"] or {}).get(column))


def test_a_column_has_the_name_that_the_number_has_in_the_json(made):
    parts = {name: made.stats(sqnr_db=float(at)) for at, name in enumerate(("introduced", "propagated", "constants"))}
    result = made.result([made.node(0, **parts)])
    (row,), (node,) = read(diff_csv({"a": result})), result.to_dict()["nodes"]
    text = {"acknowledged", "worst_index", "scale", "zero_point", "scales", "findings"}  # in the JSON no single value
    for column in set(COLUMNS) - text:
        value = json_value(node, column)
        assert row[column] == ("" if value is None else str(value)), column
