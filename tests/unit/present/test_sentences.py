"""What is said about limits, fidelity, coverage and runs."""

from dataclasses import replace

import pytest

from qdebug.compare.align.pairs import Side, UnmatchedKind
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.result import Compounding, Status
from qdebug.compare.timing import Timing
from qdebug.model import Fidelity, RunInfo
from qdebug.present import sentences


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (
            {"source": "default", "min_sqnr": 20.0},
            "default: SQNR at least 20 dB; --min-sqnr, --max-lsb, --atol or --rtol set your own",
        ),
        ({"source": "given", "max_lsb": 1.5, "min_sqnr": None}, "given: at most 1.5 LSB"),
        (
            {"source": "given", "min_sqnr": 30, "atol": 1e-6, "rtol": 0.001},
            "given: SQNR at least 30 dB and absolute difference at most 1e-06 + 0.001 * abs(reference)",
        ),
        ({"source": "given", "rtol": 0.01}, "given: absolute difference at most 0 + 0.01 * abs(reference)"),
        ({"source": "given"}, "given: none"),
    ],
)
def test_limits_are_said_exactly(limits, said):
    assert sentences.limits_sentence(limits) == said


def test_derived_limits_say_how_they_judge():
    said = sentences.limits_sentence(Limits().to_dict())
    assert said.startswith("derived: 1.5 LSB for each quantized node, clipping apart")
    assert "20 dB for each output" in said
    assert "--min-sqnr" in said
    assert "qdebug help limits" in said


def test_the_samples_looked_at_are_said(made):
    assert sentences.samples_sentence([made.node(0)]) == "2, judged together"
    alone = made.node(0, samples=made.node(0).samples[1:])
    assert sentences.samples_sentence([alone, made.node(1, samples=())]) == "sample 1 alone"
    assert sentences.samples_sentence([]) == ""


@pytest.mark.parametrize(
    ("fidelity", "word"),
    [(Fidelity.BIT_EQUAL, "bit_equal"), (Fidelity.DIFFERS, "DIFFERS"), (Fidelity.UNKNOWN, "unknown")],
)
def test_fidelity_is_always_said(fidelity, word):
    info = RunInfo(backend="x", fidelity=fidelity, fidelity_detail="3 of 10 outputs\nmoved")
    assert sentences.fidelity_sentence(info).startswith(word)
    assert r"3 of 10 outputs\nmoved" in sentences.fidelity_sentence(info)
    assert sentences.fidelity_sentence(RunInfo(backend="x", fidelity=fidelity)).startswith(f"{word}: ")


def test_instruction_sets_of_one_processor_alone_are_named():
    plain = RunInfo(backend="mine", cpu_flags=("avx2", "fma"))
    amx = RunInfo(backend="mine", cpu_flags=("avx2", "fma", "amx_int8"))
    assert sentences.processor_sentence(plain, plain) is None
    assert sentences.processor_sentence(plain, amx) == "only the backend's has amx_int8"
    assert sentences.processor_sentence(plain, RunInfo(backend="mine", cpu_flags=())) is None


def test_run_facts_name_model_backend_options_and_an_unfinished_run():
    info = RunInfo(backend="ort\x1b", model="a.onnx", options={"opt": "all", "threads": 2}, complete=False)
    assert sentences.run_facts(info) == r"a.onnx, on ort\x1b (opt=all, threads=2), taps put, INCOMPLETE"
    assert sentences.run_facts(RunInfo(backend="npu")) == "on npu, taps put"
    many = RunInfo(backend="npu", options=dict.fromkeys("abcd", 1))
    assert sentences.run_facts(many) == "on npu (a=1, b=1, c=1, ...), taps put"


def test_statuses_are_counted_in_a_fixed_order():
    assert sentences.status_counts([Status.DIVERGED, Status.WITHIN, Status.WITHIN]) == "2 within, 1 diverged"
    assert sentences.status_counts([]) == ""


def test_coverage_says_what_is_lost(made):
    whole = made.result([made.node(0)])
    assert sentences.coverage_sentence(whole) == "1 tensor compared, 0 judged by replay, none left out"
    benign = made.result([made.node(0), made.node(1)], left_out=[made.unmatched()])
    assert (
        sentences.coverage_sentence(benign)
        == "2 tensors compared, 0 judged by replay, 1 unmatched for a known reason, none lost"
    )
    constant = replace(made.unmatched(), reason="constant", constant=True)
    apart = made.result([made.node(0)], left_out=[made.unmatched(), constant])
    said = "1 tensor compared, 0 judged by replay, 1 unmatched for a known reason, 1 constant skipped, none lost"
    assert sentences.coverage_sentence(apart) == said
    lost = made.result([made.node(0)], left_out=[made.unmatched(kind=UnmatchedKind.LOST)])
    assert sentences.coverage_sentence(lost) == "1 tensor compared, 0 judged by replay, 1 LOST"


def test_benign_tensors_are_grouped_by_side_and_reason(made):
    left_out = [
        made.unmatched("a"),
        made.unmatched("b"),
        made.unmatched("c", side=Side.REFERENCE, reason="fused\x07away"),
        made.unmatched("d", kind=UnmatchedKind.LOST),
        made.unmatched("e", reason="computed inside Conv 'one'"),
        made.unmatched("f", reason="computed inside Conv 'two'"),
        made.unmatched("g", reason="computed inside Conv 'two'"),
    ]
    assert sentences.benign_reasons(left_out) == [
        (3, "backend", "computed inside Conv 'one'; 1 more of this kind"),
        (2, "backend", "folded into its node"),
        (1, "reference", r"fused\x07away"),
    ]


def test_the_verdict_is_safe_to_print(made):
    assert sentences.verdict_sentence(made.result([], sentence="at 'a\x1b[31m'")) == r"at 'a\x1b[31m'"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {},
            (
                "top-1 agreement 14 of 16, top-5 16 of 16; "
                "worst in sample 4: 3 others score at least as high as the reference's winner"
            ),
        ),
        ({"top1_agreement": 1.0, "worst_rank": 0, "worst_sample": 0}, "top-1 agreement 16 of 16, top-5 16 of 16"),
        (
            {"top5_agreement": None, "worst_rank": 1, "tied": 2, "unranked": 1},
            (
                "top-1 agreement 14 of 16; worst in sample 4: 1 other entry scores "
                "at least as high as the reference's winner; "
                "ties in 2; 1 more have no winner in the reference"
            ),
        ),
        (
            {"samples": 0, "unranked": 16, "top1_agreement": None, "worst_rank": None, "worst_sample": None},
            "not ranked, because the reference has no winner (a NaN, or all entries equal)",
        ),
    ],
)
def test_the_agreement_on_the_winner_is_said_and_what_it_rests_on(made, changed, said):
    assert sentences.ranking_sentence(made.ranking(**changed)) == f"logits, if these are scores: {said}"


def test_no_more_than_ten_outputs_are_said(made):
    assert len(sentences.ranking_sentences([made.ranking()] * 10)) == 10
    assert sentences.ranking_sentences([made.ranking()] * 13)[10:] == ["3 more outputs; the JSON has them all"]
    assert sentences.ranking_sentences([]) == []


def test_the_name_of_an_output_is_safe_to_print(made):
    assert "\x1b" not in sentences.ranking_sentence(made.ranking("a\x1b[31m"))


def test_nodes_where_error_compounds_are_said_with_what_is_usual():
    one = Compounding(node="a\x1b[31m", op="Conv", tensor="t", gain=8.0, usual=1.1, nodes=24)
    assert sentences.compounding_sentences([one]) == [
        r"Conv a\x1b[31m amplifies the error of its input 8.00 times; the median of 24 Conv nodes is 1.10"
    ]
    assert sentences.compounding_sentences([one] * 7)[5:] == ["2 more nodes; the JSON has them all"]
    assert sentences.compounding_sentences([]) == []


def test_where_the_time_went():
    timing = Timing(comparing=0.25, replaying=2.0, tensors=205)
    assert sentences.timing_sentence(timing) == "0.250 s to read and compare 205 tensors, 2.00 s to replay nodes"
    assert "1 tensor," in sentences.timing_sentence(Timing(tensors=1))
