"""Results of the rows: those that a session holds are not kept a second time, and say the same."""

from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.compare.result.limit_rules import Acknowledgement
from qdebug.session import DiffSession, diff, open_recording
from qdebug.tui.nodes.row_results import Holding, KnownResults, RowResults
from qdebug.tui.reading.events import Computed, Finished, Opened, Said
from qdebug.tui.reading.plan_rows import describe
from qdebug.tui.reading.reader import Reader
from qdebug.tui.reading.source import Opening


def recorded(off, path=None):
    rec = qdebug.Recorder(path, backend="test")
    with rec:
        for sample in range(2):
            if sample:
                rec.next_sample()
            before = "x"
            rec.put("x", np.arange(6.0) + sample)
            for number in range(40):
                made = f"t{number}"
                values, quant = np.arange(6.0) + sample + off * number, {}
                if number % 3 == 0:  # some at the ends of their range
                    values, quant = np.clip(values * 9, 0, 127).astype(np.int8), {"scale": 1 / 9, "zero_point": 0}
                rec.put(made, values, node=f"n{number}", op="Relu", inputs=(before,), **quant)
                before = made
        rec.outputs(before)
    return None if path else rec.recording


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


def test_all_that_is_held_can_be_shown_at_once(session):
    _, full = tables(session)
    session.acknowledge((Acknowledgement(node="n5", reason="known"),))
    full.put(session.found("t5"))
    table = describe(session).table
    assert table.values("max_abs", 1).size
    table.apply(table.batch_of(session.held))
    assert table.compared == full.compared
    assert table.state.tolist() == full.state.tolist()
    assert table.acknowledged.tolist() == full.acknowledged.tolist()
    assert table.saturated.tobytes() == full.saturated.tobytes()
    assert {name: column.tobytes() for name, column in table.metrics.items()} == {
        name: column.tobytes() for name, column in full.metrics.items()
    }
    assert table.values("max_abs", 1).tolist() == full.values("max_abs", 1).tolist()
    assert list(table.results) == list(session.held)
    assert np.nanmax(table.saturated) > 0


def test_results_that_were_kept_come_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    paths = [tmp_path / "ref.h5", tmp_path / "int8.h5"]
    for path, off in zip(paths, (0.0, 0.25), strict=True):
        recorded(off, path)
    told = diff(*paths)
    opening = Opening(compare=lambda: DiffSession(*map(open_recording, paths), cache=True))
    events = []
    reader = Reader([opening], lambda event: events.append(event) or (isinstance(event, Finished) and reader.stop()))
    reader.run()
    opened = next(event for event in events if isinstance(event, Opened))
    (computed,) = [event for event in events if isinstance(event, Computed)]
    for batch in computed.take():
        opened.table.apply(batch)
    assert opened.table.compared == 41
    assert [result.to_dict() for result in opened.table.results] == [node.to_dict() for node in told.nodes]
    assert events[-1].result.to_json() == told.to_json()
    assert not any(isinstance(event, Said) for event in events)
    monkeypatch.setattr(qdebug, "__version__", "0.0.0")
    reader = Reader([opening], lambda event: events.append(event) or (isinstance(event, Finished) and reader.stop()))
    reader.run()
    assert [event.message for event in events if isinstance(event, Said)] == [
        "kept results are of another version of qdebug: computing again"
    ]


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
