"""Results in memory: as they came, however many, in a fraction of the memory, and readable while more come in."""

import math
import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from qdebug.analysis.results.held import HeldNodes
from qdebug.analysis.results.limit_rules import Acknowledgement
from qdebug.analysis.results.result import SampleError, SampleResult, Status, json_safe
from qdebug.numerics.stats import Rails

MANY = 2500
"""More than two frames."""


def varied(made, number):
    """Give a result that differs from its neighbours in what it has and in what it lacks."""
    part = SampleError(max_abs=number / 3, rmse=None, sqnr_db=math.nan, max_lsb=None) if number % 3 else None
    samples = tuple(
        SampleResult(sample=at, max_abs=number / 7, sqnr_db=None, status=Status.WITHIN, introduced=part)
        for at in range(number % 4)
    )
    stats = made.stats(rmse=number / 3, sqnr_db=math.inf if number % 5 else -0.0, worst_index=(number, 2**40))
    return made.node(
        number,
        Status.DIVERGED if number % 50 == 7 else Status.WITHIN,
        node=f"n{number}",
        tensor=f"t{number}",
        reason=f"reason {number}" if number % 50 == 7 else None,
        metrics=stats if number % 6 else None,
        introduced=stats if number % 4 else None,
        propagated=None,
        gain=math.nan if number % 9 == 0 else None if number % 9 == 1 else float(number),
        saturation=Rails(at_qmin=number, at_qmax=0, clipped_low=0, clipped_high=0, floor=0, total=300)
        if number % 2
        else None,
        samples=samples,
        explained="gemmlowp" if number % 10 == 0 else None,
    )


@pytest.fixture(scope="module")
def many(made):
    return tuple(varied(made, number) for number in range(MANY))


@pytest.fixture
def nodes(many):
    return list(many)


@pytest.fixture
def held(planned):
    def held(nodes, **facts):
        kept = HeldNodes([planned(node) for node in nodes], **facts)
        for node in nodes:
            kept.add(node)
        return kept

    return held


def told(nodes):
    return [repr(json_safe(node.to_dict())) for node in nodes]


def test_every_result_comes_back_as_it_was(nodes, held):
    kept = held(nodes)
    assert len(kept) == MANY
    assert told(kept) == told(nodes)
    random = np.random.default_rng(3)
    for number in [0, 1023, 1024, 2047, 2048, MANY - 1, -1, *random.integers(0, MANY, 40).tolist()]:
        assert told([kept[number]]) == told([nodes[number]])
    assert told(kept[1020:1030]) == told(nodes[1020:1030])
    for outside in (MANY, -MANY - 1):
        with pytest.raises(IndexError, match="results"):
            kept[outside]


def test_results_can_be_read_while_more_come_in(nodes, planned):
    kept = HeldNodes([planned(node) for node in nodes])
    for number, node in enumerate(nodes):
        kept.add(node)
        if number % 100 == 0 or number in {1023, 1024}:
            assert len(kept) == number + 1
            assert told([kept[number], kept[number // 2]]) == told([node, nodes[number // 2]])


def test_columns_give_the_same_results_again(nodes, held, planned):
    back = HeldNodes.of_columns(dict(held(nodes).columns()), [planned(node) for node in nodes])
    assert told(back) == told(nodes)
    again = dict(back.columns())
    assert {name: column.tobytes() for name, column in held(nodes).columns().items()} == {
        name: column.tobytes() for name, column in again.items()
    }


def test_what_has_no_columns_is_held_all_the_same(nodes, held):
    odd = [replace(nodes[0], index=0, metrics=replace(nodes[1].metrics, count=2**70)), *nodes[1:]]
    kept = held(odd)
    assert told(kept) == told(odd)
    with pytest.raises(ValueError, match="has no columns"):
        kept.columns()


def test_fields_of_all(nodes, held):
    kept = held(nodes)
    assert kept.texts("explained") == [node.explained for node in nodes]
    for samples, node in zip(kept.samples(), nodes, strict=True):
        assert [one.sample for one in samples] == [one.sample for one in node.samples]
        assert [one.max_abs for one in samples] == [one.max_abs for one in node.samples]


@pytest.mark.parametrize(
    "path", ["metrics.rmse", "propagated.rel_l2", "gain", "saturation.at_qmin", "introduced.count"]
)
def test_a_number_of_all(nodes, path, held):
    expected = []
    for node in nodes:
        value = node
        for name in path.split("."):
            value = None if value is None else getattr(value, name)
        expected.append(math.nan if value is None else float(value))
    for kept in (held(nodes), held(nodes[:5])):
        assert kept.numbers(path).tobytes() == np.array(expected[: len(kept)]).tobytes()
    assert HeldNodes([]).numbers(path).size == 0


@pytest.mark.parametrize("path", ["metrics", "metrics.sqnr_db", "propagated.rmse", "gain", "explained", "saturation"])
def test_what_is_known_of_all(nodes, path, held):
    expected = []
    for node in nodes:
        value = node
        for name in path.split("."):
            value = None if value is None else getattr(value, name)
        expected.append(value is not None)
    for kept in (held(nodes), held(nodes[:5])):
        assert kept.known(path).tolist() == expected[: len(kept)]
    assert HeldNodes([]).known(path).size == 0


@pytest.mark.parametrize(("name", "text"), [("basis", "full"), ("reason", "reason 57"), ("explained", "gemmlowp")])
def test_which_of_all_have_a_text(nodes, name, text, held):
    for kept in (held(nodes), held(nodes[:5])):
        assert kept.equal(name, text).tolist() == [getattr(node, name) == text for node in nodes[: len(kept)]]
        assert not kept.equal(name, "said nowhere").any()


def test_columns_of_all_can_be_read_while_more_come_in(nodes, planned):
    kept = HeldNodes([planned(node) for node in nodes])
    for node in nodes[:1000]:
        kept.add(node)
    waiting = iter(nodes[1000:])
    found = kept._column(bool, lambda frame, size: frame.known("gain", size), lambda node: kept.add(next(waiting)) or 1)
    assert found.tolist() == [True] * 1000


def test_the_status_of_all(nodes, held):
    numbers = {status: at for at, status in enumerate(Status)}
    assert held(nodes).statuses(numbers).tolist() == [numbers[node.status] for node in nodes]
    assert HeldNodes([]).statuses(numbers).size == 0


def test_acknowledgements_are_those_of_the_day(nodes, held):
    kept = held(nodes)
    said = Acknowledgement(node="n7", reason="known")
    other = kept.under(lambda node: said if node == "n7" else None)
    assert other[7].acknowledged is said
    assert [node.node for node in other if node.acknowledged] == ["n7"]
    assert kept[7].acknowledged is None
    assert other[MANY - 1].acknowledged is None


def test_results_compare_and_travel(nodes, held):
    few = [replace(node, gain=1.0, metrics=None, introduced=None, samples=()) for node in nodes[:40]]
    kept = held(few)
    assert kept == few
    assert kept == held(few)
    assert kept != few[:-1]
    assert kept != 3
    assert pickle.loads(pickle.dumps(kept)) == few  # noqa: S301  our own


def test_a_result_takes_a_fraction_of_its_objects(nodes, planned):
    plan = [planned(node) for node in nodes]
    kept = HeldNodes(plan)
    kept.add(nodes[0])
    tracemalloc.start()
    try:
        for node in nodes[1:2048]:
            kept.add(node)
        taken = tracemalloc.get_traced_memory()[0] / 2048
    finally:
        tracemalloc.stop()
    assert taken < 700  # bytes; as objects about 2,500
