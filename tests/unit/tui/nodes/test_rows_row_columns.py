"""Numbers of all rows, as columns that are made when they are looked at."""

import numpy as np
import pytest

import qdebug
from qdebug.session import DiffSession
from qdebug.tui.nodes.rows import METRIC_CHOICES, number_of
from qdebug.tui.reading.plan_rows import describe

NAMES = (*METRIC_CHOICES, "propagated", "gain", "saturated")


def expected(table, name):
    return [np.nan if result is None else number_of(result, name) for result in table.results]


@pytest.fixture
def session(make_pair):
    return DiffSession(*make_pair())


@pytest.fixture
def make_pair():
    """Return a function that records a small net twice, in memory."""

    def record(off):
        recorder = qdebug.Recorder(None, backend="test")
        with recorder:
            for number in range(30):
                values, quant = np.arange(6.0) + off * number, {}
                if number % 3 == 0:
                    values, quant = np.clip(values * 9, 0, 127).astype(np.int8), {"scale": 1 / 9, "zero_point": 0}
                inputs = (f"t{number - 1}",) if number else ("x",)
                recorder.put(f"t{number}", values, node=f"n{number}", op="Relu", inputs=inputs, **quant)
            recorder.outputs("t29")
        return recorder.recording

    return lambda: (record(0.0), record(0.25))


def test_columns_are_empty_before_there_is_a_result(session):
    table = describe(session).table
    for name in NAMES:
        assert np.isnan(table.metrics[name]).all()
    assert tuple(table.metrics) == NAMES
    with pytest.raises(KeyError):
        table.metrics["colour"]


def test_columns_follow_the_results_whenever_they_are_looked_at(session):
    table = describe(session).table
    for count, result in enumerate(session.results()):
        table.apply(table.batch([result]))
        for name in NAMES[: count % 4]:  # some are made now, some later
            np.testing.assert_array_equal(table.metrics[name], expected(table, name))
    for name in NAMES:
        np.testing.assert_array_equal(table.metrics[name], expected(table, name))


def test_results_put_into_columns_before_one_was_looked_at_are_in_it_all_the_same(session):
    table = describe(session).table
    results = list(session.results())
    early, late = (table.batch(some) for some in (results[:20], results[20:]))
    table.apply(early)
    assert np.isnan(table.metrics["gain"][20:]).all()
    table.apply(late)
    np.testing.assert_array_equal(table.metrics["gain"], expected(table, "gain"))


@pytest.mark.parametrize("looked_at", [0, 7, 29])
def test_one_sample_follows_results_that_a_session_holds(session, looked_at):
    table, other = describe(session).table, describe(session).table
    early = []
    for result in session.results():
        early.append(table.batch([result]))
        if len(early) > 1:  # the screen is one batch behind
            table.apply(early.pop(0))
        if result.index == looked_at:
            assert np.isfinite(table.values("max_abs", 0)).sum() == looked_at
    table.apply(early.pop())
    other.apply(other.batch(session.compared))
    np.testing.assert_array_equal(table.values("max_abs", 0), other.values("max_abs", 0))
    assert table.states(0).tolist() == other.states(0).tolist()
