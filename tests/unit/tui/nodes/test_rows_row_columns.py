"""Numbers of all rows, as columns that are made when they are looked at."""

import threading
from dataclasses import replace

import numpy as np
import pytest

import qdebug
from qdebug.session import DiffSession
from qdebug.tui.nodes.rows import METRIC_CHOICES, number_of
from qdebug.tui.reading.plan_rows import describe_comparison

NAMES = (*METRIC_CHOICES, "propagated", "gain", "clipped")


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
    table = describe_comparison(session).table
    for name in NAMES:
        assert np.isnan(table.values(name)).all()
    with pytest.raises(KeyError):
        table.values("colour", 0)


def test_columns_follow_the_results_whenever_they_are_looked_at(session):
    table = describe_comparison(session).table
    for count, result in enumerate(session.results()):
        table.put(result)
        for name in NAMES[: count % 4]:  # some are made now, some later
            np.testing.assert_array_equal(table.values(name), expected(table, name))
    for name in NAMES:
        np.testing.assert_array_equal(table.values(name), expected(table, name))


@pytest.mark.parametrize("looked_at", [0, 7, 29])
def test_one_sample_follows_the_results(session, looked_at):
    table, other = describe_comparison(session).table, describe_comparison(session).table
    for result in session.results():
        table.put(result)
        if result.index == looked_at:
            assert np.isfinite(table.values("max_abs", 0)).sum() == looked_at + 1
    other.put(*session.compared)
    np.testing.assert_array_equal(table.values("max_abs", 0), other.values("max_abs", 0))
    assert table.states(0).tolist() == other.states(0).tolist()


def test_a_column_that_is_made_while_results_come_in_has_them_all(session, monkeypatch):
    table = describe_comparison(session).table
    table.put(*session.results())
    late = replace(table.results[0], relative_gain=7.0)
    filling = threading.Thread(target=table.put, args=(late,))

    def slowly(result, name):
        if result.index == 10:
            filling.start()
            filling.join(0.2)
        return number_of(result, name)

    monkeypatch.setattr("qdebug.tui.nodes.rows.number_of", slowly)
    table.values("gain")
    filling.join()
    assert table.values("gain")[0] == 7.0
