"""One node in full: both sides, metrics with definitions, rails, samples, worst elements."""

import math
from dataclasses import replace

import numpy as np
import pytest

from qdebug.compare.result.result import SampleError, SampleResult, Status
from qdebug.model import QuantParams, TensorInfo
from qdebug.numerics.stats import WorstElement
from qdebug.present.detail import (
    WORST_TITLES,
    NodeDetail,
    attribution_facts,
    error_rows,
    metric_facts,
    quant_summary,
    rail_facts,
    sample_lines,
    side_facts,
    worst_rows,
)


def facts_of(detail):
    return {fact.label: (fact.reference, fact.backend) for fact in side_facts(detail)}


def test_both_sides_stand_beside_each_other(made):
    quant = QuantParams(dtype="int8", scale=0.05, zero_point=-3)
    detail = NodeDetail(
        result=made.node(2),
        reference=TensorInfo(name="conv2_out", shape=(1, 3, None), dtype="float32", layout="NCHW"),
        backend=TensorInfo(name="conv2_q", shape=(1, 3, 8), dtype="int8", quant=quant),
    )
    assert facts_of(detail) == {
        "tensor": ("conv2_out", "conv2_q"),
        "dtype": ("float32", "int8"),
        "shape": ("1x3x?", "1x3x8"),
        "layout": ("NCHW", "-"),
        "scale / zero point": ("-", "0.05 / -3"),
        "codes": ("-", "-128..127 for -6.25..6.50"),
        "values": ("-1.000..2.000", "-1.100..1.900"),
    }


def test_what_nobody_knows_takes_no_line(made):
    detail = NodeDetail(result=made.node(status=Status.INCOMPARABLE, tensor="a\x1bb"))
    assert facts_of(detail) == {"tensor": ("conv0_out", r"a\x1bb")}


def test_many_channels_are_summed_up_with_the_extreme_ones():
    quant = QuantParams(dtype="int8", scale=[0.2, 0.1, 0.4], zero_point=[0, 1, 2], axis=1)
    assert quant_summary(quant) == "3 along axis 1: scale 0.1000 (#1) to 0.4000 (#2) / zero point 3 values, 0 to 2"
    blocks = QuantParams(dtype="int4", scale=np.full((2, 3), 0.5), axis=1, block_size=32)
    assert quant_summary(blocks) == "6 along axis 1 in blocks of 32: scale 0.5000 in each / zero point 0"
    close = QuantParams(dtype="int8", scale=np.array([0.1, 0.1000001]), axis=0)
    assert "scale 0.100000000 (#0) to 0.100000100 (#1)" in quant_summary(close)
    assert quant_summary(None) == "-"


def test_a_scale_that_is_no_number_is_shown_as_it_is():
    assert quant_summary(QuantParams(dtype="int8", scale=math.nan)) == "NaN / 0"
    assert "NaN" in quant_summary(QuantParams(dtype="int8", scale=[math.nan, 1.0], axis=0))


def test_every_error_metric_has_its_definition(made):
    facts = {fact.title: fact for fact in metric_facts(made.stats())}
    assert facts["SQNR dB"].value == "30.0 dB"
    assert "log10" in facts["SQNR dB"].definition
    assert facts["max LSB"].value == "5.00 LSB"
    assert facts["max abs"].value == "0.500"
    assert facts["worst at"].value == "0,3,1"
    assert "codes at qmin" not in facts
    assert metric_facts(None) == []


def test_a_metric_without_value_is_no_number(made):
    facts = {
        fact.title: fact.value for fact in metric_facts(made.stats(max_lsb=None, cosine=math.nan, worst_index=None))
    }
    assert facts["max LSB"] == "-"
    assert facts["cosine"] == "NaN"
    assert facts["worst at"] == "-"


def test_the_whole_error_stands_beside_its_parts(made):
    titles, rows = error_rows(made.node(introduced=made.stats(sqnr_db=40.0), propagated=made.stats(sqnr_db=31.0)))
    assert titles == ("error", "whole", "introduced", "propagated", "definition")
    (row,) = [row for row in rows if row[0] == "SQNR dB"]
    assert row[:4] == ("SQNR dB", "30.0 dB", "40.0 dB", "31.0 dB")
    assert error_rows(made.node())[0] == ("error", "value", "definition")
    assert error_rows(made.node(status=Status.INCOMPARABLE))[1] == []


def test_gain_and_a_missing_replay_are_said(made):
    facts = attribution_facts(made.node(relative_gain=1.5, attribution_note="no kernel for 'Foo\x1b'"))
    assert facts == [
        ("introduced", r"not known: no kernel for 'Foo\x1b'"),
        (
            "gain",
            "1.50 (rel_l2(propagated) / rel_l2(largest error in); from the whole error if propagated is unknown)",
        ),
    ]
    assert attribution_facts(made.node()) == []


def test_rails_tell_clipped_values_from_codes_at_the_ends(made):
    facts = dict(rail_facts(made.node().saturation))
    assert facts["clipped"] == "1 (1.0 %)"
    assert facts["reference below range"] == "0"
    assert facts["codes at qmin"] == "30 (30.0 %)"
    assert facts["of these, zeros of a Relu"] == "28 (28.0 %)"
    assert rail_facts(None) == []


def test_samples_keep_their_numbers_and_the_worst_come_first_when_not_all_fit(made):
    assert sample_lines(made.node(status=Status.DIVERGED)) == [
        "sample 0: within, SQNR 35.0 dB, max abs 0.200",
        "sample 1: diverged, SQNR 25.0 dB, max abs 0.500",
    ]
    many = tuple(SampleResult(sample=i, max_abs=0.1, sqnr_db=50.0 - i, status=Status.WITHIN) for i in range(20))
    lines = sample_lines(made.node(samples=many), max_lines=2)
    assert [line.partition(":")[0] for line in lines[:2]] == ["sample 19", "sample 18"]
    assert lines[2] == "18 better samples not shown"
    spoilt = (*many[:3], replace(many[3], sqnr_db=math.nan), *many[4:])
    assert sample_lines(made.node(samples=spoilt), max_lines=1)[0].startswith("sample 3:")


def test_a_sample_says_what_the_node_introduces_in_it(made):
    own = SampleError(max_abs=0.25, rmse=0.1, sqnr_db=30.0, max_lsb=5.0)
    samples = [
        SampleResult(sample=n, max_abs=0.5, sqnr_db=25.0, status=Status.WITHIN, introduced=part)
        for n, part in enumerate((own, replace(own, max_lsb=None), None))
    ]
    endings = [line.partition("0.500")[2] for line in sample_lines(made.node(samples=tuple(samples)))]
    assert endings == [", introduced 5.00 LSB", ", introduced max abs 0.250", ""]


def test_worst_elements_show_codes_where_there_are_codes(made):
    rows = worst_rows([made.worst(), made.worst(index=(), lsb=None, backend=math.nan, difference=math.nan)])
    assert all(len(row) == len(WORST_TITLES) for row in rows)
    assert rows[0] == ("0,3,1", "1", "1.2500", "0.75000", "-0.5000", "-10.0", "-", "12")
    assert rows[1][0] == "()"
    assert rows[1][3:6] == ("NaN", "NaN", "-")
    (whole,) = worst_rows([made.worst(reference=2**53, backend=2**53 + 1, difference=1.0)])
    assert whole[2:5] == ("9007199254740992", "9007199254740993", "1")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"reproduced": True, "explained": "ties to even"}, "reproduced bit for bit by: ties to even"),
        ({"reproduced": False}, "no known arithmetic reproduces these codes"),
    ],
)
def test_the_arithmetic_of_a_node_is_said(made, changed, said):
    assert ("arithmetic", said) in attribution_facts(made.node(0, **changed))
    assert "arithmetic" not in dict(attribution_facts(made.node(0)))


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_extremes_of_integers_are_integers_unless_they_are_codes(dtype, made):
    stats = replace(made.node().metrics, reference_min=0.0, reference_max=5.0, backend_min=-1.0, backend_max=70000.0)
    plain = TensorInfo(name="y", dtype=dtype)
    detail = NodeDetail(result=made.node(metrics=stats), reference=plain, backend=plain)
    assert facts_of(detail)["values"] == ("0..5", "-1..70000")
    coded = TensorInfo(name="y", dtype="int8", quant=QuantParams(dtype="int8", scale=0.5))
    assert facts_of(replace(detail, backend=coded))["values"] == ("0..5", "-1.000..70000")


def test_differences_of_integers_are_exact():
    worst = WorstElement(
        index=(1,),
        sample=0,
        reference=2**60 + 1,
        backend=2**60 + 4,
        difference=3.0,
        lsb=None,
        reference_code=None,
        backend_code=None,
    )
    assert worst_rows([worst])[0][2:5] == (str(2**60 + 1), str(2**60 + 4), "3")
