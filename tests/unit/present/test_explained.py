"""An explanation in words and cells."""

import pytest

from qdebug.arithmetic.patterns.residual import Residual
from qdebug.compare.explaining.explanation import (
    Band,
    ExplainedRun,
    ExplainStatus,
    NodeExplanation,
    PresetMatch,
    RunnerUp,
)
from qdebug.compare.result.limits import Limits
from qdebug.model import Fidelity, RunInfo
from qdebug.present.explained import (
    group_rows,
    headline,
    known_as,
    node_facts,
    node_row,
    preset_sentences,
    rest_sentences,
    share,
    unexplained_lines,
    verdict_word,
)
from qdebug.present.reports.explain import explain_document
from qdebug.present.reports.markdown import markdown


def node(name="conv1", status=ExplainStatus.EXPLAINED, **changed):
    known = {
        "op": "QLinearConv",
        "tensor": f"{name}_q",
        "kind": "conv",
        "dtypes": "uint8 x int8 -> uint8",
        "elements": 1000,
        "variants": ("m=f32:xw/y", "steps=mul,zp,even,sat"),
        "words": "float32 multiplier, ties to even",
        "alone": 5,
        "siblings": 3,
        "presets": (PresetMatch(name="ort-mlas", provenance="measured", detail="1.31"),),
        "match": 1.0,
        "witnesses": 7,
        "witness_elements": 1200,
        "runner_up": RunnerUp(variant="m=q31", match=0.993),
        "tried": 113,
    }
    return NodeExplanation(node=name, status=status, **{**known, **changed})


def left(**changed):
    residual = Residual(
        wrong=12,
        total=1000,
        max_lsb=3,
        pattern="tail",
        detail="only in the last row",
        likely="a tail",
        elements=((0, 1),),
    )
    known = {"match": 0.988, "residual": residual, "presets": (), "variants": ("m=f32:xw/y",)}
    return node("conv9", ExplainStatus.UNEXPLAINED, **{**known, **changed})


def explanation(*nodes):
    return ExplainedRun(run=RunInfo(backend="npu"), nodes=nodes)


@pytest.mark.parametrize(
    ("match", "text"),
    [(1.0, "100 %"), (0.0, "0 %"), (0.5, "50 %"), (0.99988, "99.988 %"), (0.9999, "99.990 %")],
)
def test_a_share_is_never_rounded_to_all(match, text):
    assert share(match) == text


def test_the_headline_counts_every_status():
    shape = node("shape", ExplainStatus.NO_KERNEL, kind=None, reason="no kernel is known for NonZero")
    band = node("relu", ExplainStatus.IN_BAND, kind=None)
    said = headline(explanation(node(), node("b"), left(), band, shape))
    assert said.startswith("2 of 3 nodes reproduced bit for bit; 1 unexplained; 1 float node besides, within")
    assert said.endswith("1 not examined")


def test_the_headline_of_a_float_net_speaks_of_no_codes():
    band = node("relu", ExplainStatus.IN_BAND, kind=None)
    assert headline(explanation(band, band)) == "2 float nodes within the rounding error of their sums"
    assert headline(explanation()) == "no node computes anything"


def test_groups_join_nodes_of_one_class():
    rows = group_rows(explanation(node(), node("b"), left(), node("c", variants=("m=q31",), words="q31")))
    assert [row[0] for row in rows] == ["2 of 4", "1 of 4"]
    assert rows[0][1:4] == ("2", "14", "99.30 %")
    assert rows[0][5:] == ("float32 multiplier, ties to even", "ort-mlas (measured)")


def test_one_preset_is_named_for_a_whole_recording():
    two = (PresetMatch(name="glow-cpu", provenance="source"), PresetMatch(name="gemmlowp", provenance="measured"))
    other = (PresetMatch(name="ort-mlas", provenance="measured"),)
    moved = node("move", variants=(), presets=())
    nodes = [node(f"c{at}", presets=two) for at in range(5)]
    every = explanation(*nodes, moved)
    assert (every.presets, preset_sentences(every)) == (
        (("gemmlowp", 0), ("glow-cpu", 0)),
        ["gemmlowp (so do 1 more)"],
    )
    some = explanation(*nodes, moved, node("odd", presets=other), left())
    assert preset_sentences(some) == ["gemmlowp, but for 2 nodes (so do 1 more)"]
    assert some.summary["preset"] == {"name": "gemmlowp", "but_for": 2}
    none = explanation(nodes[0], node("odd", presets=other))
    assert (preset_sentences(none), none.summary["preset"]) == ([], None)


def test_measured_backends_are_named_first():
    known = [
        PresetMatch(name=name, provenance=how)
        for name, how in zip("abcde", ("memory", "source", "measured", "source", "memory"), strict=True)
    ]
    assert known_as(known) == "c (measured), b (source), d (source) and 2 more"
    assert known_as([]) == ""


def test_what_is_left_is_said_in_lines():
    name, wrong, likely, best = unexplained_lines(left())
    assert name == "conv9 (QLinearConv)"
    assert wrong == "12 of 1\u202f000 codes wrong, by at most 3 LSB; tail: only in the last row"
    assert likely == "likely: a tail"
    assert best == "compared with float32 multiplier, ties to even: 98.8 % right"
    assert unexplained_lines(left(accepted="ticket"))[1] == "accepted: ticket"


def test_a_row_of_what_is_left():
    assert node_row(left())[-1] == "12 of 1\u202f000 wrong, at most 3 LSB, tail: only in the last row"


def test_the_facts_of_a_node():
    facts = dict(node_facts(node()))
    assert facts["known as"] == "ort-mlas (measured: 1.31)"
    both = "5 variants reproduce this node"
    said = "7 different sums or codes that the runner-up gets wrong, in 1\u202f200 elements"
    assert facts["of these"] == f"{both}; 2 different functions fit all 3 nodes of its kind"
    assert facts["witnesses"] == said
    wrong = dict(node_facts(left()))
    assert wrong["likely"] == "a tail"
    assert "of these" not in wrong
    band = dict(node_facts(node(status=ExplainStatus.IN_BAND, kind=None, band=Band(precision="fp32", ratio=0.25))))
    assert band["float"] == "its error is 25.0 % of the rounding bound of fp32"
    band = dict(node_facts(node(status=ExplainStatus.UNEXPLAINED, kind=None, band=Band(precision="fp32", ratio=350.0))))
    assert band["float"] == "its error is 350 times the rounding bound of fp32"


def test_equal_reasons_are_said_once():
    lost = [node(name, ExplainStatus.NO_INPUT, reason=f"its input {name!r} was not recorded") for name in "abb"]
    assert rest_sentences(explanation(*lost)) == [
        "3 no_input (such as a): its input 'a' was not recorded; 1 more of this kind"
    ]
    assert rest_sentences(explanation(lost[1])) == ["1 no_input (b): its input 'b' was not recorded"]


def test_floats_that_overflowed_are_counted_together():
    beyond = [node(name, ExplainStatus.IN_BAND, reason=f"{name} results are beyond 65504") for name in "34"]
    assert rest_sentences(explanation(*beyond, node("c", ExplainStatus.IN_BAND))) == [
        "2 in_band (such as 3): 3 results are beyond 65504; 1 more of this kind"
    ]


def test_nothing_looked_at_is_no_answer():
    lost = node("a", ExplainStatus.NO_INPUT, reason="its input 'x' was not recorded")
    assert verdict_word(explanation(lost)) == "NO ANSWER"
    assert explanation(lost).exit_code == 3
    assert explanation(lost, node()).exit_code == 0, "a float node"
    assert verdict_word(explanation(lost, node())) == "EXPLAINED"
    moved = node("flat", kind="moved", variants=())
    assert verdict_word(explanation(lost, moved)) == "NO ANSWER"
    assert verdict_word(explanation(moved)) == "EXPLAINED"
    assert verdict_word(explanation(lost, node(), left())) == "UNEXPLAINED"


def test_names_from_a_recording_do_nothing():
    evil = left(op="Conv\x1b[31m")
    assert "\x1b" not in "".join(node_row(evil))
    assert "<script>" not in markdown(explain_document(explanation(node("<script>"), left(reason="<script>")))).replace(
        "\\<", ""
    )


def test_a_class_of_its_own_is_said_to_be():
    (row,) = group_rows(explanation(node(reason="its siblings are computed in another way")))
    assert row[5] == "float32 multiplier, ties to even; its siblings are computed in another way"


def test_nodes_on_codes_that_were_not_looked_at_are_counted_and_make_it_incomplete():
    known = [node(f"n{number}", on_codes=True) for number in range(9)]
    lost = node("a", ExplainStatus.NO_INPUT, reason="its input 'x' was not recorded", on_codes=True)
    assert headline(explanation(*known, lost)).startswith("9 of 10 nodes reproduced bit for bit; 1 not examined")
    assert explanation(*known, lost).exit_code == 0, "a tenth"
    found = explanation(*known[1:], lost)
    assert (found.exit_code, verdict_word(found)) == (3, "INCOMPLETE")
    said = "1 of 9 quantized nodes were not examined (the first: 'a_q': its input 'x' was not recorded)"
    assert found.shortcomings == (said,)
    assert found.summary["not_looked_at"] == 1
    for allowed in (1, ("a*",)):
        assert found.accepting(Limits(allow_uncompared=allowed)).exit_code == 0


def test_what_makes_a_recording_unreliable_can_be_allowed():
    run = RunInfo(backend="npu", complete=False, fidelity=Fidelity.DIFFERS)
    found = ExplainedRun(run=run, nodes=(node(),))
    assert found.shortcomings == ("the recording is incomplete", "recording changed the result")
    assert found.accepting(Limits(allow_partial=True)).shortcomings == ("recording changed the result",)
    assert found.accepting(Limits(allow_partial=True, allow_unfaithful=True)).exit_code == 0


def test_an_operator_of_which_no_node_was_looked_at_makes_it_incomplete_however_many_others_there_are():
    known = [node(f"n{number}", on_codes=True) for number in range(30)]
    lost = node("a", ExplainStatus.NO_KERNEL, op="Odd", reason="no kernel is known for Odd", on_codes=True)
    assert explanation(*known, lost).shortcomings == (
        "no Odd was examined (the first: 'a_q': no kernel is known for Odd)",
    )
    one_of_two = explanation(*known, lost, node("b", op="Odd", on_codes=True))
    assert one_of_two.exit_code == 0
    assert explanation(*known, lost).accepting(Limits(allow_uncompared=("a*",))).exit_code == 0
