"""One node in full, for people and for programs."""

import io
import json

from rich.console import Console

from qdebug.compare.result.result import Status
from qdebug.model import QuantParams, TensorInfo
from qdebug.present.detail import NodeDetail
from qdebug.present.reports.node import node_document, with_detail
from qdebug.present.reports.terminal import terminal


def shown(renderable, width=100):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(renderable)
    return console.file.getvalue()


def detail(made, **changed):
    known = {
        "result": made.node(4, Status.DIVERGED, note="step 3 alone"),
        "reference": TensorInfo(name="conv4_out", shape=(1, 8), dtype="float32"),
        "backend": TensorInfo(
            name="conv4_q", shape=(1, 8), dtype="int8", quant=QuantParams(dtype="int8", scale=0.05, zero_point=-3)
        ),
        "inputs": [("conv3_q", made.node(3)), ("mask\x1b[0m", None)],
        "worst": [made.worst()],
    }
    return NodeDetail(**{**known, **changed})


def test_the_report_says_everything_about_the_node(made):
    text = shown(terminal(node_document(detail(made)), width=100))
    assert text.startswith("DIVERGED  #4 conv4  QLinearConv  (all samples)\nSQNR 8 dB is below 20 dB\n")
    for expected in (
        "pair    quantization: codes of the same tensor",
        "note    step 3 alone",
        "inputs  conv3_q: within, SQNR 30.0 dB",
        r"mask\x1b[0m: not compared",
        "scale / zero point  -",
        "0.05 / -3",
        "10 log10(sum reference^2",
        "of these, zeros of a Relu",
        "sample 1: diverged",
        "worst elements",
    ):
        assert expected in text
    row = next(line for line in text.splitlines() if line.startswith("0,3,1"))
    assert row.split() == ["0,3,1", "1", "1.2500", "0.75000", "-0.5000", "-10.0", "-", "12"]


def test_the_parts_of_the_error_stand_side_by_side_where_there_is_room(made):
    result = made.node(4, introduced=made.stats(sqnr_db=41.5), propagated=made.stats(sqnr_db=31.0), relative_gain=2.0)
    wide = shown(terminal(node_document(detail(made, result=result)), width=160), width=160)
    assert "whole  introduced  propagated  definition" in wide
    assert "gain    2.00" in wide
    row = next(line for line in wide.splitlines() if line.startswith("SQNR dB"))
    assert row.split()[2:8] == ["30.0", "dB", "41.5", "dB", "31.0", "dB"]
    narrow = shown(terminal(node_document(detail(made, result=result)), width=80), width=80)
    assert "41.5 dB" in narrow
    assert "10 log10" not in narrow
    assert "--explain-metrics" in narrow
    assert max(map(len, narrow.splitlines())) <= 80


def test_an_incomparable_node_says_why_and_shows_no_empty_parts(made):
    result = made.node(4, Status.INCOMPARABLE, reason="shape 1x2 against 1x3", saturation=None, samples=())
    text = shown(terminal(node_document(detail(made, result=result, worst=(), inputs=())), width=100))
    assert "shape 1x2 against 1x3" in text
    for part in ("worst elements", "clipped", "definition", "sample "):
        assert part not in text


def test_one_sample_is_named(made):
    assert "(sample 3)" in shown(terminal(node_document(detail(made, sample=3)), width=100))


def test_it_fits_80_columns(made):
    assert max(map(len, shown(terminal(node_document(detail(made)), width=80), width=80).splitlines())) <= 80


def test_the_json_is_the_comparison_with_one_node_in_full(made):
    result = made.result([made.node(i, Status.DIVERGED if i == 4 else Status.WITHIN) for i in range(6)])
    worst = made.worst(difference=float("nan"), lsb=float("inf"))
    plain = with_detail(result, detail(made, worst=[worst]))
    assert plain["format"] == "qdebug.diff"
    assert plain["coverage"]["compared"] == 6
    (node,) = plain["nodes"]
    assert node["node"] == "conv4"
    assert node["worst_elements"][0]["difference"] == "NaN"
    assert node["worst_elements"][0]["lsb"] == "Infinity"
    assert node["inputs"] == [
        {"tensor": "conv3_q", "status": "within"},
        {"tensor": "mask\x1b[0m", "status": None},
    ]
    assert node["backend_info"]["quant"]["zero_point"] == [-3]
    assert "\x1b" not in json.dumps(plain, allow_nan=False)
