"""The metric table covers the diff JSON, and says what it promises."""

import numpy as np
import pytest

from qdebug.compare.result.result import Compounding, OutputRanking
from qdebug.numerics.agreement import Agreement
from qdebug.numerics.metric_table import METRICS, Better, MetricGroup, metric
from qdebug.numerics.profile import profile_tensor
from qdebug.numerics.stats import ErrorStats, Rails, WorstElement
from qdebug.present.reports.schema import load_schema


def names(group):
    return [spec.name for spec in METRICS if spec.group is group]


def test_every_error_metric_of_the_json_has_a_row_and_the_other_way_round(made):
    plain = made.node(metrics=made.stats(worst_index=(1, 2))).to_dict()["metrics"]
    assert set(names(MetricGroup.ERROR)) | set(names(MetricGroup.COUNTS)) == set(plain)
    assert {*plain, "estimated"} == set(ErrorStats.__dataclass_fields__)  # which `basis` says
    assert [name for name in plain if name in names(MetricGroup.ERROR)] == names(MetricGroup.ERROR)


def test_the_schema_of_the_json_has_every_metric():
    listed = load_schema("diff")["$defs"]["ErrorStats"]["properties"]
    assert set(listed) == {*names(MetricGroup.ERROR), *names(MetricGroup.COUNTS)}


def test_every_saturation_count_has_a_row():
    assert names(MetricGroup.SATURATION) == list(Rails.__dataclass_fields__)
    assert names(MetricGroup.ATTRIBUTION) == ["gain", "relative_gain", "propagated"]


def test_what_a_node_in_full_adds_has_rows():
    plain = profile_tensor(np.zeros(3), np.zeros(3)).to_dict()
    assert names(MetricGroup.DETAIL) == list(plain)
    fields = [name for name in WorstElement.__dataclass_fields__ if name not in ("index", "sample", "step")]
    assert names(MetricGroup.ELEMENT) == fields


def test_what_is_of_the_whole_comparison_has_rows():
    assert names(MetricGroup.AGREEMENT) == list(Agreement.__dataclass_fields__)
    ranking = [name for name in OutputRanking.__dataclass_fields__ if name not in ("tensor", "worst_sample")]
    assert names(MetricGroup.RANKING) == ranking
    compounding = [name for name in Compounding.__dataclass_fields__ if name not in ("node", "op", "tensor", "gain")]
    assert names(MetricGroup.COMPOUNDING) == compounding


def test_rows_are_complete_and_found_by_name():
    assert len({spec.name for spec in METRICS}) == len(METRICS)
    for spec in METRICS:
        assert metric(spec.name) is spec
        assert spec.definition
        assert not spec.definition.endswith(".")
    with pytest.raises(KeyError):
        metric("psnr")


def test_only_agreement_is_better_high():
    assert {spec.name for spec in METRICS if spec.better is Better.HIGHER} == {
        "sqnr_db",
        "cosine",
        "channel_sqnr_db",
        "zero_refs_hit",
        "top1_agreement",
        "top5_agreement",
        "top5_overlap",
    }
