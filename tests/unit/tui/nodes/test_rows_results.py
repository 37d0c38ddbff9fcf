"""Results of the rows: they say the same whether they come one by one or all at once."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug import version
from qdebug.api import diff
from qdebug.compare.result.limits import Acknowledgement
from qdebug.session import DiffSession, open_recording
from qdebug.tui.nodes.rows import METRIC_CHOICES
from qdebug.tui.reading.messages import Computed, Finished, Opened, Opening, StatusMessage
from qdebug.tui.reading.plan_rows import describe_comparison


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


def filled(session):
    """Return a table that took the results one by one."""
    table = describe_comparison(session).table
    for result in session.results():
        table.put(result)
    return table


def test_all_results_can_be_shown_at_once(session):
    full = filled(session)
    session.acknowledge((Acknowledgement(node="n5", reason="known"),))
    full.put(session.compared[6])
    table = describe_comparison(session).table
    assert table.values("max_abs", 1).size
    table.put(*session.compared)
    assert table.compared == full.compared == 41
    assert table.state.tolist() == full.state.tolist()
    assert table.acknowledged.tolist() == full.acknowledged.tolist()
    assert table.values("clipped").tobytes() == full.values("clipped").tobytes()
    for name in METRIC_CHOICES:
        assert table.values(name).tobytes() == full.values(name).tobytes()
    for sample in (0, 1):
        assert table.states(sample).tolist() == full.states(sample).tolist()
        assert table.values("max_abs", sample).tolist() == full.values("max_abs", sample).tolist()
    assert list(table.results) == session.compared
    assert np.nanmax(table.values("at_ends")) > 0


def test_results_that_were_kept_come_at_once(make_workers, tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    paths = [tmp_path / "ref.h5", tmp_path / "int8.h5"]
    for path, off in zip(paths, (0.0, 0.25), strict=True):
        recorded(off, path)
    told = diff(*paths)
    told = replace(told, diagnosis=tuple(replace(fault, remedies=()) for fault in told.diagnosis))  # these come later
    opening = Opening(compare=lambda: DiffSession(*map(open_recording, paths), cache=True))
    workers = make_workers(opening).compare()
    events = workers.until(Finished)
    assert workers.stop()
    opened = next(event for event in events if isinstance(event, Opened))
    assert len([event for event in events if isinstance(event, Computed)]) == 1
    assert opened.table.compared == 41
    assert [result.to_dict() for result in opened.table.results] == [node.to_dict() for node in told.nodes]
    assert json.dumps(events[-1].result.to_dict()) == json.dumps(told.to_dict())
    assert not any(isinstance(event, StatusMessage) for event in events)
    monkeypatch.setattr(version, "__version__", "0.0.0")
    events = make_workers(opening).compare().until(Finished)
    assert [event.message for event in events if isinstance(event, StatusMessage)] == [
        "kept results are from a different version of qdebug; computing again"
    ]


def test_rows_without_a_result_fit_nothing(session):
    table = describe_comparison(session).table
    for text in ("", "gemmlowp"):
        assert not table.rows_matching("explained", text.__eq__).any()
    list(map(table.put, session.results()))
    assert table.rows_matching("explained", "".__eq__).any()


def test_rows_show_what_was_accepted_last(session):
    table = filled(session)
    session.acknowledge((Acknowledgement(node="n5", reason="known"),))
    row = table.row_of("t5")
    assert table.results[row].acknowledged is None
    table.put(session.compared[6])
    assert table.results[row].acknowledged.reason == "known"
    assert table.compared == 41
    session.acknowledge(())
    assert not any(result.acknowledged for result in session.compared)
