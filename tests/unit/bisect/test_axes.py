"""The candidates of each axis: in order, between the ends, and refused where a backend has none."""

from itertools import pairwise

import pytest
import toy_wheels

from qdebug.bisect.axes import list_candidates
from qdebug.errors import UsageError


@pytest.fixture
def toy(tmp_path, monkeypatch):
    toy_wheels.build(tmp_path)
    toy_wheels.unpack(tmp_path / "installed", "1.0")
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))


def labels(*arguments, **options):
    candidates = list_candidates(*arguments, **{"good": None, "bad": None, **options})
    return [candidate.label for candidate in candidates.row], candidates


def test_pip_lists_the_versions_between_the_ends(toy):
    row, candidates = labels("toy", "versions", good="1.2", bad="1.4", fixed="1.7")
    assert (row, candidates.anchors) == (["1.2", "1.3", "1.4", "1.5", "1.6", "1.7"], (0, 2, 5))
    assert candidates.package == "toy-rounds"


def test_versions_are_ordered_as_versions_even_backwards(toy):
    row, candidates = labels("toy", "versions", good="1.10", bad="1.2", values=["1.9rc1", "1.9"])
    assert (row, candidates.anchors) == (["1.10", "1.9", "1.9rc1", "1.2"], (0, 3))


@pytest.mark.parametrize("backend", ["onnxruntime", "torch"])
def test_each_pass_is_added_to_those_before_it(backend):
    pytest.importorskip(backend)
    row, candidates = labels(backend, "passes")
    assert (row[0], row[-1]) == ("none", "all")
    disabled = [candidate.options.get("disable", "").split("+") for candidate in candidates.row]
    for before, after in pairwise(disabled):
        assert before[0] not in after
        assert before[1:] == [name for name in after if name]


def test_unordered_values_are_compared_with_the_good_one():
    pytest.importorskip("ai_edge_litert")
    row, candidates = labels("litert", "kernels", good="reference")
    assert row[0] == "reference"
    assert not candidates.is_ordered


@pytest.mark.parametrize(
    ("over", "options", "message"),
    [
        ("versions", {"good": "1.2"}, "needs both ends"),
        ("versions", {"good": "1.2", "bad": "one", "values": ["1.3"]}, "Invalid version"),
        ("versions", {"good": "1.2", "bad": "1.4", "fixed": "1.3", "values": ["1.3"]}, "not in order"),
        ("versions", {"good": "1.2", "bad": "1.2", "values": ["1.3"]}, "not in order"),
        ("versions", {"good": "1.2", "bad": "1.2"}, "only one candidate for --over versions: '1.2'"),
        ("options", {"values": ["level=high"]}, "only one candidate for --over options"),
        ("passes", {}, "has no passes"),
        ("cpu", {}, "cannot be limited"),
        ("threads", {}, "has no threads"),
        ("options", {"values": ["level=none"]}, "not one of the options"),
    ],
)
def test_what_a_backend_does_not_have_is_refused(toy, over, options, message):
    with pytest.raises(UsageError, match=message):
        labels("toy", over, **options)


def test_a_backend_without_options_to_choose_has_no_such_axis():
    with pytest.raises(UsageError, match="has no options"):
        labels("interpreter", "options")


def test_wrong_values_are_refused_before_anything_runs():
    pytest.importorskip("onnxruntime")
    with pytest.raises(UsageError, match="'many' is not a number of threads"):
        labels("onnxruntime", "threads", values=["1", "many"])
    with pytest.raises(UsageError, match="opt"):
        labels("onnxruntime", "levels", options={"opt": "wrong"})
