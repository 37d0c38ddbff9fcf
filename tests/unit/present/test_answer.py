"""The answer in words: the first word, the headline, shares, levels and remedies."""

import math
from dataclasses import replace

import pytest

from qdebug.compare.result.diagnosis import Diagnosis, FaultClass, OutputGain, Remedy, RuledOut
from qdebug.compare.result.finding import FindingKind, JudgedBy, Status
from qdebug.compare.result.limits import Acknowledgement
from qdebug.present.answer import (
    advice_line,
    gain_of,
    headline,
    left_in_float,
    level_change,
    node_title,
    remedy_line,
    share_text,
    verdict_word,
)

LEVELS = (("p", 12.0), ("h", 30.0))


def fault(**changed):
    known = {"fault": FaultClass.KERNEL, "kind": None, "node": "conv2", "op": "Conv", "tensor": "conv2_q"}
    return Diagnosis(
        **{**known, "model_node": None, "why": "off by one; the rest is detail", "nodes": ("conv2",), **changed}
    )


@pytest.mark.parametrize(
    ("status", "shortcomings", "word"),
    [
        (Status.IDENTICAL, (), "PASS"),
        (Status.WITHIN, (), "PASS"),
        (Status.ACCUMULATED, (), "FAIL"),
        (Status.DIVERGED, (), "FAIL"),
        (Status.NONFINITE, (), "FAIL"),
        (Status.WITHIN, ("a tensor was lost",), "INCOMPLETE"),
        (Status.INCOMPLETE, ("a tensor was lost",), "INCOMPLETE"),
        (Status.DIVERGED, ("a tensor was lost",), "FAIL, INCOMPLETE"),
    ],
)
def test_the_first_word_is_that_of_the_exit_code(made, status, shortcomings, word):
    result = made.result([made.node(0)], status=status, shortcomings=shortcomings)
    assert verdict_word(result) == word
    assert headline(result).startswith(f"{status}: ")
    assert result.exit_code == {"PASS": 0, "FAIL": 1}.get(word, 3)


def test_what_is_acknowledged_is_no_tensor_within_its_limit(made):
    excused = made.node(1, Status.DIVERGED, acknowledged=Acknowledgement(node="conv1", reason="known"))
    result = made.result([made.node(0), excused], status=Status.WITHIN)
    assert headline(result) == "within: 1 of 2 compared tensors is within its limit, 1 acknowledged"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (fault(fault=FaultClass.MODEL, kind=FindingKind.WEIGHT), "weight at Conv conv2: off"),
        (
            fault(fault=FaultClass.REFERENCE, kind=FindingKind.REFERENCE),
            "the reference recording is wrong at Conv conv2",
        ),
        (fault(fault=FaultClass.NUMERIC, kind=FindingKind.NONFINITE), "infinity or NaN at Conv conv2"),
        (fault(fault=FaultClass.UNKNOWN, kind=FindingKind.ERROR), "beyond its limit at Conv conv2"),
        (fault(kind=FindingKind.ARITHMETIC), "kernel at Conv conv2: off by one; output"),
        (fault(nodes=("conv2", "conv3")), "kernel at Conv conv2 and 1 more node: off by one"),
    ],
)
def test_the_headline_says_what_is_wrong_where_and_why(made, found, said):
    node = made.node(2, Status.DIVERGED, metrics=made.stats(sqnr_db=8.0))
    limits = {"min_output_sqnr": 20.0}
    result = made.result([node], diagnosis=(found,), network_outputs=(node.tensor,), limits=limits)
    assert said in headline(result)
    assert f"output {node.tensor} 8.00 dB (limit 20); 1 of 1 tensor beyond the limit" in headline(result)
    assert "2 more faults" in headline(replace(result, diagnosis=(found,) * 3))


def test_a_name_with_any_signs_does_not_end_the_headline(made):
    found = fault(why="12 elements of 'act/Relu;act/Bias. (x' differ; the rest is detail")
    result = made.result([made.node(2, Status.DIVERGED)], diagnosis=(found,))
    assert "12 elements of 'act/Relu;act/Bias. (x' differ; 1 of 1 tensor" in headline(result)
    apostrophe = fault(why="the first channel's scale is used (reproduces every element); the same at 'head'")
    assert "channel's scale is used; 1 of 1 tensor" in headline(replace(result, diagnosis=(apostrophe,)))


def test_an_output_that_is_not_finite_has_a_count_in_place_of_a_level(made):
    found = fault(
        fault=FaultClass.NUMERIC,
        kind=FindingKind.NONFINITE,
        why="in Conv 'conv2', which has no partner, element [0, 1] is NaN because 0 is divided by 'd' = 0",
    )
    node = made.node(2, Status.NONFINITE, metrics=made.stats(sqnr_db=math.nan, nonfinite=3, count=12))
    text = headline(made.result([node], diagnosis=(found,), network_outputs=(node.tensor,)))
    assert "at Conv conv2: element [0, 1] is NaN because 0 is divided by 'd' = 0" in text
    assert f"; 3 of 12 elements of output {node.tensor} not finite; " in text


def test_quantization_is_blamed_and_kernels_are_not(made):
    lossy = fault(fault=FaultClass.QUANTIZATION, share={"y": 0.9})
    right = RuledOut(fault=FaultClass.KERNEL, sentence="9 of 9 quantized nodes match")
    nodes = [made.node(0, metrics=made.stats(sqnr_db=12.34))]
    result = made.result(nodes, status=Status.ACCUMULATED, diagnosis=(lossy,), ruled_out=(right,))
    verdict = replace(result.verdict, short=(nodes[0].tensor,))
    result = replace(result, verdict=verdict, limits={"min_output_sqnr": 20.0})
    expected = (
        f"accumulated: quantization, mostly at Conv conv2; output {nodes[0].tensor} has 12.3 dB (limit 20); "
        "no kernel is wrong"
    )
    assert headline(result) == expected
    assert "no kernel" not in headline(replace(result, ruled_out=()))
    for unproved in ({"reproduced": False}, {"judged_by": JudgedBy.NONE}):
        others = (*nodes, made.node(1, **unproved))
        assert "no kernel" not in headline(replace(result, nodes=others))
    assert "mostly" not in headline(replace(result, diagnosis=(replace(lossy, share={"y": 0.2}),)))


def test_the_models_own_name_comes_first():
    assert node_title(fault(model_node="features.3")) == "features.3 (conv2)"
    assert node_title(fault(model_node="conv2")) == "conv2"
    assert node_title(fault(node="conv2_quant_17", model_node="conv2")) == "conv2"
    assert "\x1b" not in node_title(fault(model_node="a\x1b[31m"))


def test_shares_and_levels():
    assert [share_text(share) for share in (None, 0.0004, 0.126, 1.158)] == ["-", "<1 %", "13 %", "116 %"]
    assert level_change(fault(before_db=math.inf, after_db=6.06)) == "equal -> 6.06"
    assert level_change(fault(after_db=6.06)) == "6.06"


def test_a_remedy_says_what_the_outputs_become(made):
    nodes = [made.node(at, tensor=name, metrics=made.stats(sqnr_db=level)) for at, (name, level) in enumerate(LEVELS)]
    result = made.result(nodes, limits={"min_output_sqnr": 20.0})
    gains = (OutputGain(output="p", db=6.71), OutputGain(output="h", db=-0.5))
    known = {"edit": "per-channel conv2", "what": "per-channel weights", "samples": 8, "cost": "512 bytes"}
    both = Remedy(gains=gains, command="", **known)
    expected = "per-channel weights: p 12.0 -> 18.7 dB, h 30.0 -> 29.5 dB (still below 20); 512 bytes"
    assert remedy_line(both, result, max_outputs=3) == expected
    assert (
        remedy_line(both, result, max_outputs=1) == "per-channel weights: p 12.0 -> 18.7 dB (still below 20); 512 bytes"
    )
    of_other_output = replace(result, diagnosis=(fault(share={"h": 0.9}),))
    first_change = remedy_line(both, of_other_output, max_outputs=1)
    assert first_change == "per-channel weights: h 30.0 -> 29.5 dB; 512 bytes"
    whole = Remedy(gains=(OutputGain(output="p", db=math.inf),), command="", **known)
    assert remedy_line(whole, result, max_outputs=1) == "per-channel weights: p 12.0 -> identical; 512 bytes"


@pytest.mark.parametrize(
    ("changed", "advice"),
    [
        ({"fault": FaultClass.REFERENCE, "kind": FindingKind.REFERENCE}, "record the reference again"),
        ({"fault": FaultClass.RECORDING, "kind": FindingKind.INPUT}, "the same inputs"),
        (
            {"fault": FaultClass.NUMERIC, "kind": FindingKind.NONFINITE, "why": "1e5 is beyond the largest float16"},
            "conv2 in float32",
        ),
        ({"fault": FaultClass.NUMERIC, "kind": FindingKind.NONFINITE, "why": "it divides 0 by 0"}, ""),
        ({"kind": FindingKind.ARITHMETIC}, ""),
    ],
)
def test_a_fault_without_a_tried_change_has_advice_where_one_is_known(made, changed, advice):
    result = made.result([made.node(0)], status=Status.DIVERGED, diagnosis=(fault(**changed),))
    assert advice in advice_line(result)
    assert bool(advice) == bool(advice_line(result))
    remedy = Remedy(edit="x", what="y", gains=(), samples=1, cost="no cost", command="c")
    mended = replace(result, diagnosis=(fault(**changed, remedies=(remedy,)),))
    assert not advice_line(mended)


def test_a_long_clause_ends_before_the_next_cause_and_not_in_the_middle_of_a_word(made):
    modes = ("asymmetric", "align_corners", "half_pixel_symmetric")
    clauses = [f"it uses coordinate_transformation_mode = {mode}, not half_pixel" for mode in modes]
    result = made.result([made.node(2, Status.DIVERGED)], diagnosis=(fault(why=", or ".join(clauses)),))
    text = headline(result)
    assert clauses[0] in text
    assert "align" not in text


def test_the_gain_of_an_edit_is_that_of_the_output_that_the_fault_spoils():
    gains = (OutputGain(output="right", db=0.0), OutputGain(output="spoilt", db=36.9))
    remedy = Remedy(edit="float n", what="float", gains=gains, samples=2, cost="16 bytes", command="")
    fault = Diagnosis(
        fault=FaultClass.QUANTIZATION, kind=None, node="n", op="Conv", tensor="t", model_node=None,
        why="clipping", share={"spoilt": 0.58}, remedies=(remedy,),
    )  # fmt: skip
    assert gain_of(remedy, fault) == 36.9
    assert gain_of(remedy, replace(fault, share={})) == 0.0


@pytest.mark.parametrize(
    ("status", "index", "nodes", "label"),
    [
        (Status.ACCUMULATED, 0, 1, "left if the first is in float"),
        (Status.ACCUMULATED, 0, 2, "left if the first 2 are in float"),
        (Status.ACCUMULATED, 1, 1, None),
        (Status.DIVERGED, 0, 1, None),
    ],
)
def test_the_share_that_is_left_is_that_of_the_first_nodes_in_float(made, status, index, nodes, label):
    gains = (OutputGain(output="p", db=10.0),)
    remedy = Remedy(edit="float n", what="float", gains=gains, samples=2, cost="no cost", command="", nodes=nodes)
    faults = [fault(share={"p": 0.9}), fault(share={"p": 0.1})]
    faults[index] = replace(faults[index], remedies=(remedy,))
    result = replace(made.result([made.node(0)], status=status), diagnosis=tuple(faults))
    left = left_in_float(result)
    assert left == (None if label is None else (pytest.approx(0.1), nodes, label))
