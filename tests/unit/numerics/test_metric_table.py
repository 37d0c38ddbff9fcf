"""The metric table covers the diff JSON, and says what it promises."""

import pytest

from qdebug.analysis import result
from qdebug.numerics.channels import ChannelErrors
from qdebug.numerics.metric_table import METRICS, Better, MetricGroup, metric
from qdebug.numerics.stats import ErrorStats, Rails


def names(group):
    return [spec.name for spec in METRICS if spec.group is group]


def test_every_error_metric_of_the_json_has_a_row_and_the_other_way_round():
    numbers = dict.fromkeys(ErrorStats.__dataclass_fields__)
    plain = result._metrics_dict(ErrorStats(**{**numbers, "worst_index": (1, 2)}))
    assert set(names(MetricGroup.ERROR)) == set(plain)
    assert [name for name in plain if name in names(MetricGroup.ERROR)] == names(MetricGroup.ERROR)


def test_every_saturation_count_has_a_row():
    assert names(MetricGroup.SATURATION) == list(Rails.__dataclass_fields__)
    assert names(MetricGroup.ATTRIBUTION) == ["gain"]


def test_what_a_node_in_full_adds_has_rows():
    per_channel = [f"channel_{field}" for field in ChannelErrors.__dataclass_fields__]
    assert [name for name in names(MetricGroup.DETAIL) if name in per_channel] == per_channel[1:4]
    assert {"max_ulp", "errors_by_exponent"} < set(names(MetricGroup.DETAIL))


def test_rows_are_complete_and_found_by_name():
    assert len({spec.name for spec in METRICS}) == len(METRICS)
    for spec in METRICS:
        assert metric(spec.name) is spec
        assert spec.definition
        assert not spec.definition.endswith(".")
    with pytest.raises(KeyError):
        metric("psnr")


def test_only_agreement_is_better_high():
    assert {spec.name for spec in METRICS if spec.better is Better.HIGHER} == {"sqnr_db", "cosine", "channel_sqnr_db"}
