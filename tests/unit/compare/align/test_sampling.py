"""Distances over sampled elements, and how much of the way to another tensor one may have gone."""

import numpy as np
import pytest

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.sampling import Candidate, Sampler, shifts_between
from qdebug.model import Graph, MemoryRecording, Node, TensorInfo

RNG = np.random.default_rng(11)


def run(arrays, samples=1):
    nodes = [Node(name=name, op="", outputs=(name,)) for name in arrays]
    graph = Graph(nodes, tensors=[TensorInfo(name=name) for name in arrays])
    held = {(name, s, 0): values + s for name, values in arrays.items() for s in range(samples)}
    return IndexedRecording.of(MemoryRecording(graph, held))


def test_the_table_has_the_distance_in_the_nearest_order():
    x, y = RNG.normal(size=(1, 4, 6, 6)), RNG.normal(size=(1, 4, 6, 6))
    ref = run({"x": x, "y": y, "flat": np.zeros((1, 4, 6, 6)), "small": np.ones(3)})
    be = run({"a": y.transpose(0, 3, 2, 1) * 1.1, "b": x.reshape(-1)})
    table = Sampler(ref, be).distance_table(["x", "y", "flat"], ["a", "b"])
    assert table[0, 1] == pytest.approx(0.1)
    assert table[1, 0] == 0
    assert (table[0, 0] > 1, table[1, 1] > 1) == (True, True)
    assert not np.isfinite(table[:, 2]).any()  # constant values tell nothing


def test_not_finite_values_tell_nothing():
    x = RNG.normal(size=(4, 16))
    be = run({"a": np.where(x > 1, np.nan, x)})
    assert not np.isfinite(Sampler(run({"x": x}), be).distance_table(["x"], ["a"])).any()


def test_all_samples_that_both_have_are_asked():
    x = RNG.normal(size=(4, 16))
    ref, be = run({"x": x}, samples=3), run({"a": np.where(np.arange(16) < 8, x, -x)}, samples=6)
    sampler = Sampler(ref, be)
    assert len(sampler.of_backend("a")) == 3 * 64
    assert sampler.runs == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize(("share", "sure"), [(0.0, True), (0.5, False), (1.0, False), (-0.5, True)])
def test_the_way_to_a_rival_is_the_part_of_the_difference_that_was_gone(share, sure):
    first, second = RNG.normal(size=(2, 4000))
    shifts = shifts_between(np.array([first, second]), first + share * (second - first))
    assert shifts[0, 1] == pytest.approx(max(share, 0), abs=1e-6)
    assert shifts[1, 0] == pytest.approx(1 - share, abs=1e-6)
    assert (1 - 2 * shifts[0, 1] > 0.8) == sure


def test_noise_that_is_larger_than_the_difference_leaves_few_values_open_and_many_not():
    for count, told in ((16, False), (40_000, True)):
        first = RNG.normal(size=count)
        second = first + 0.1 * RNG.normal(size=count)
        shifts = shifts_between(np.array([first, second]), first + 0.3 * RNG.normal(size=count))
        assert (shifts[0, 1] < 0.5) == told


def test_tensors_that_are_equal_are_told_apart_by_nothing():
    first = RNG.normal(size=10)
    assert shifts_between(np.array([first, first]), first)[0, 1] == 1


def test_the_confidence_is_the_least_of_what_distance_number_and_rivals_allow():
    assert Candidate(names=("a",), distance=0.1, values=1000, shifts=(0.0,)).confidence([]) == pytest.approx(0.99)
    assert Candidate(names=("a",), distance=0.1, values=8, shifts=(0.0,)).confidence([]) == 0.75
    assert Candidate(names=("a",), distance=0.1, values=1000, shifts=(0.0, 0.3)).confidence([1]) == pytest.approx(0.4)
