"""The answer in words: the first word, the headline, shares, levels and remedies."""

import math
from dataclasses import replace

import pytest

from qdebug.compare.result.diagnosis import Diagnosis, FaultClass, OutputGain, Remedy, RuledOut
from qdebug.compare.result.finding import FindingKind, Status
from qdebug.compare.result.limits import Acknowledgement
from qdebug.present.answer import headline, level_change, node_title, remedy_line, share_text, verdict_word


def fault(**changed):
    known = {"fault": FaultClass.KERNEL, "kind": None, "node": "conv2", "op": "Conv", "tensor": "conv2_q"}
    return Diagnosis(**{**known, "model_node": None, "why": "", "nodes": ("conv2",), **changed})


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
        (fault(fault=FaultClass.MODEL, kind=FindingKind.WEIGHT), "Conv conv2 has another weight"),
        (fault(fault=FaultClass.MODEL, kind=FindingKind.OPERATOR), "the two graphs differ at Conv conv2"),
        (fault(fault=FaultClass.NUMERIC, kind=FindingKind.NONFINITE), "NaN or infinity is born at Conv conv2"),
        (fault(fault=FaultClass.UNKNOWN, kind=FindingKind.ERROR), "Conv conv2 is beyond its limit"),
        (fault(kind=FindingKind.ARITHMETIC), "Conv conv2 is off by more than rounding of its sums"),
        (fault(kind=FindingKind.ARITHMETIC, nodes=("conv2", "conv3")), "rounding of its sums and 1 more node"),
    ],
)
def test_the_headline_says_what_is_wrong_and_where(made, found, said):
    result = made.result([made.node(2, Status.DIVERGED)], diagnosis=(found,))
    assert said in headline(result)
    assert "2 more faults" in headline(replace(result, diagnosis=(found,) * 3))


def test_no_known_arithmetic_is_said_only_where_one_was_looked_for(made):
    found = fault(kind=FindingKind.ARITHMETIC)
    looked = made.node(2, Status.DIVERGED, tensor="conv2_q", reproduced=False)
    result = made.result([looked], diagnosis=(found,))
    assert "no known arithmetic gives what Conv conv2 computes" in headline(result)


def test_quantization_is_blamed_and_kernels_are_not(made):
    lossy = fault(fault=FaultClass.QUANTIZATION)
    right = RuledOut(fault=FaultClass.KERNEL, sentence="9 of 9 quantized nodes match")
    nodes = [made.node(0, metrics=made.stats(sqnr_db=12.34))]
    result = made.result(nodes, status=Status.ACCUMULATED, diagnosis=(lossy,), ruled_out=(right,))
    verdict = replace(result.verdict, short=(nodes[0].tensor,))
    result = replace(result, verdict=verdict, limits={"min_output_sqnr": 20.0})
    expected = f"accumulated: quantization leaves output {nodes[0].tensor} 12.3 dB (limit 20); no kernel is wrong"
    assert headline(result) == expected
    assert "no kernel" not in headline(replace(result, ruled_out=()))


def test_the_models_own_name_comes_first():
    assert node_title(fault(model_node="features.3")) == "features.3 (conv2)"
    assert node_title(fault(model_node="conv2")) == "conv2"
    assert node_title(fault(node="conv2_quant_17", model_node="conv2")) == "conv2"
    assert "\x1b" not in node_title(fault(model_node="a\x1b[31m"))


def test_shares_and_levels():
    assert [share_text(share) for share in (None, 0.0004, 0.126, 1.158)] == ["-", "<1 %", "13 %", "116 %"]
    assert level_change(fault(before_db=math.inf, after_db=6.06)) == "equal -> 6.06"
    assert level_change(fault(after_db=6.06)) == "6.06"


def test_a_remedy_names_outputs_where_there_are_several():
    gains = (OutputGain(output="p", db=6.71), OutputGain(output="h", db=-0.5))
    known = {
        "edit": "per-channel conv2",
        "what": "per-channel weights",
        "samples": 8,
        "cost": "512 bytes",
        "command": "",
    }
    assert remedy_line(Remedy(gains=gains, **known)) == "per-channel weights: p +6.7 dB, h -0.5 dB; 512 bytes"
    assert remedy_line(Remedy(gains=gains[:1], **known)) == "per-channel weights: +6.7 dB; 512 bytes"
