"""Results of the rows: those that a session holds are not kept a second time, and say the same."""

import numpy as np
import pytest

import qdebug
from qdebug.analysis.limit_rules import Acknowledgement
from qdebug.session import DiffSession
from qdebug.tui.plan_rows import describe
from qdebug.tui.row_results import Holding, KnownResults, RowResults


def recorded(off):
    rec = qdebug.Recorder(None, backend="test")
    with rec:
        for sample in range(2):
            if sample:
                rec.next_sample()
            before = "x"
            rec.put("x", np.arange(6.0) + sample)
            for number in range(40):
                made = f"t{number}"
                rec.put(made, np.arange(6.0) + sample + off * number, node=f"n{number}", op="Relu", inputs=(before,))
                before = made
        rec.outputs(before)
    return rec.recording


@pytest.fixture
def session():
    return DiffSession(recorded(0.0), recorded(0.25))


def tables(session):
    """Give a table that leaves the results with the session, and one that keeps them."""
    lean, full = describe(session).table, describe(session).table
    for result in session.results():
        lean.apply(lean.batch([result], held=session.held))
        full.put(result)
    return lean, full


def test_a_session_holds_its_results(session):
    assert isinstance(session, Holding)
    assert session.found("t3") is None
    results = list(session.results())
    assert session.found("t3") == next(each for each in results if each.tensor == "t3")
    assert session.found("nothing") is None


def test_rows_say_the_same_whoever_holds_their_results(session):
    lean, full = tables(session)
    assert lean.compared == full.compared == 41
    assert list(lean.results) == list(full.results)
    assert lean.results[-1].tensor == "t39"
    assert lean.results[2:4] == full.results[2:4]
    for sample in (0, 1):
        assert lean.states(sample).tolist() == full.states(sample).tolist()
        assert lean.values("max_abs", sample).tolist() == full.values("max_abs", sample).tolist()
    for text in ("", "gemmlowp"):
        fitting = lean.matching("explained", text.__eq__)
        assert fitting.tolist() == full.matching("explained", text.__eq__).tolist()


def test_rows_without_a_result_have_none_and_fit_nothing():
    rows = RowResults(3)
    assert list(rows) == [None] * 3
    assert rows.explained() == [None] * 3
    assert list(rows.samples()) == []


def test_rows_show_what_was_accepted_last(session):
    lean, _ = tables(session)
    session.acknowledge((Acknowledgement(node="n5", reason="known"),))
    row = lean.row_of("t5")
    assert lean.results[row].acknowledged is None
    lean.apply(lean.batch([session.found("t5")], held=session.held))
    assert lean.results[row].acknowledged.reason == "known"
    assert lean.compared == 41


def test_results_by_tensor_are_asked_for_or_kept(session):
    results = list(session.results())
    for known in (KnownResults(session.found), KnownResults()):
        assert not known
        for result in results:
            known.add(result)
        assert len(known) == 41
        assert "t7" in known
        assert known["t7"] == results[8]
        assert known.get("nothing") is None
