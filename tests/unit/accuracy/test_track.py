"""A history only grows, says which run made what worse, and leaves files alone that are none."""

import sqlite3
from concurrent.futures import ProcessPoolExecutor

import jsonschema
import numpy as np
import pytest

from qdebug.accuracy.track import Tracked, TrackedValue, check_track, history, track
from qdebug.errors import QdebugError, RecordingError, UsageError
from qdebug.present.reports.schema import load_schema


def entry(values, *, commit="", verb="diff", network="net", good=True):
    return Tracked(
        verb=verb,
        network=network,
        backend="npu",
        cpu="cpu",
        good=good,
        values=values,
        commit=commit,
        created="2026-01-01",
    )


def node(name, sqnr, *, good=True):
    return TrackedValue(name=name, measure="sqnr_db", value=sqnr, status="within" if good else "diverged", good=good)


def top1(wrong):
    right = np.arange(400) >= wrong
    return TrackedValue(name="", measure="top-1", value=right.mean(), status="good", good=True, right=right)


def test_the_run_that_made_a_node_worse_is_named(tmp_path):
    path = tmp_path / "runs.db"
    for at in range(10):
        values = [node("conv1", 40.0), node("conv2", 30.0 if at < 6 else 24.0)]
        track(path, [entry(values, commit=f"c{at}")])
    found = history(path)
    (worse,) = found.worse
    assert (worse.name, worse.best, worse.last_good, found.exit_code) == ("conv2", 30.0, 5, 1)
    plain = found.to_dict()
    jsonschema.validate(plain, load_schema("history"))
    said = [(each["last_good_commit"], each["first_bad_commit"]) for each in plain["movements"] if each["worse"]]
    assert said == [("c5", "c6")]


def test_small_steps_add_up(tmp_path):
    path = tmp_path / "runs.db"
    for at in range(5):
        track(path, [entry([node("conv", 40.0 - 0.4 * at)], commit=f"c{at}")])
    (worse,) = history(path).worse
    assert worse.commits[worse.last_good] == "c2"
    assert "from 40.0 dB to 38.4 dB" in worse.why


def test_a_node_that_was_good_and_is_not_is_worse_whatever_its_error(tmp_path):
    path = tmp_path / "runs.db"
    track(path, [entry([node("a", 40.0), node("b", 9.0, good=False)])])
    track(path, [entry([node("a", 40.0, good=False), node("b", 3.0, good=False)])])
    assert [(each.name, each.why) for each in history(path).worse] == [("a", "was within, is diverged")]


def test_noise_at_the_level_of_float_rounding_is_nothing(tmp_path):
    path = tmp_path / "runs.db"
    for sqnr in (np.inf, 138.0, 126.0):
        track(path, [entry([node("a", sqnr)])])
    assert not history(path).worse


def test_an_accuracy_is_held_against_the_best_run_row_by_row(tmp_path):
    path = tmp_path / "runs.db"
    for wrong in (0, 2, 2):
        track(path, [entry([top1(wrong)], verb="accuracy")])
    assert not history(path).worse  # 2 of 400 may be chance
    track(path, [entry([top1(40)], verb="accuracy")])
    assert "fell from 100.0 % to 90.0 %" in history(path).worse[0].why
    assert not history(path, within=0.5).worse


def test_runs_of_another_network_are_another_series(tmp_path):
    path = tmp_path / "runs.db"
    track(path, [entry([node("a", 40.0)]), entry([node("a", 10.0)], network="other")])
    assert (history(path).series, history(path).exit_code) == (2, 0)


def test_nothing_is_changed_or_removed(tmp_path):
    path = tmp_path / "runs.db"
    track(path, [entry([node("a", 40.0)])])
    with sqlite3.connect(path) as database:
        for statement in ("DELETE FROM runs", "UPDATE results SET value = 1", "DELETE FROM results"):
            with pytest.raises(sqlite3.IntegrityError, match="never changed"):
                database.execute(statement)


def add(path, number):
    track(path, [entry([node("a", float(number))], commit=str(number))])


def test_processes_may_write_at_once(tmp_path):
    path = tmp_path / "runs.db"
    with ProcessPoolExecutor(4) as pool:
        list(pool.map(add, [path] * 20, range(20)))
    assert sorted(history(path).movements[0].values) == list(map(float, range(20)))


@pytest.mark.parametrize(
    "held", [b"not a database, and long enough", b"\x89HDF" + b"0" * 100, b"SQLite format 3\0rest"]
)
def test_what_is_no_history_is_left_as_it_is(tmp_path, held):
    path = tmp_path / "runs.db"
    path.write_bytes(held)
    for use in (check_track, history, lambda path: track(path, [entry([node("a", 1.0)])])):
        with pytest.raises(QdebugError) as error:
            use(path)
        assert error.value.hint
    assert path.read_bytes() == held


def test_a_database_of_another_program_is_left_as_it_is(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(UsageError, match="of another program"):
        track(path, [entry([])])
    assert path.read_bytes() == before


def test_a_damaged_page_is_told_in_a_sentence(tmp_path):
    path = tmp_path / "runs.db"
    for _ in range(30):
        track(path, [entry([node(f"conv{at}", 40.0) for at in range(20)])])
    held = bytearray(path.read_bytes())
    held[len(held) // 2 :] = b"\xff" * (len(held) - len(held) // 2)
    path.write_bytes(held)
    with pytest.raises(RecordingError, match="cannot be read"):
        history(path)


def test_there_is_no_history_of_nothing(tmp_path):
    with pytest.raises(UsageError, match="There is no history"):
        history(tmp_path / "none.db")
    (tmp_path / "empty.db").touch()
    with pytest.raises(UsageError, match="is empty"):
        history(tmp_path / "empty.db")
    with pytest.raises(UsageError, match="not a regular file"):
        check_track(tmp_path)
    with pytest.raises(RecordingError, match="does not exist"):
        check_track(tmp_path / "none" / "runs.db")


def test_a_metric_without_rows_may_fall_by_a_part_of_its_value(tmp_path):
    path = tmp_path / "runs.db"
    for value in (30.0, 29.9):
        bleu = TrackedValue(name="", measure="bleu", value=value, status="good", good=True)
        track(path, [entry([bleu], verb="accuracy")])
    assert history(path).exit_code == 0
    track(path, [entry([TrackedValue(name="", measure="bleu", value=29.0, status="good", good=True)], verb="accuracy")])
    assert history(path).exit_code == 1


@pytest.mark.parametrize("column", ["value = 'text'", "bits = 'text'", "bits = x'00'"])
def test_a_row_of_another_kind_is_called_damaged(tmp_path, column):
    path = tmp_path / "runs.db"
    for _ in range(2):
        track(path, [entry([top1(3)], verb="accuracy")])
    with sqlite3.connect(path) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute(f"UPDATE results SET {column}")  # noqa: S608  of this file's own
    with pytest.raises(RecordingError, match="damaged"):
        history(path)


def test_backends_of_one_comparison_are_series_of_their_own(tmp_path):
    import qdebug
    from qdebug.accuracy.track import tracked_diffs
    from qdebug.model import Graph, MemoryRecording, Node, RunInfo

    def run(off):
        graph = Graph([Node(name="n", op="Relu", inputs=("x",), outputs=("y",))], inputs=("x",), outputs=("y",))
        x = np.linspace(0, 1, 50, dtype=np.float32)
        return MemoryRecording(graph, {("x", 0, 0): x, ("y", 0, 0): x + off}, RunInfo(backend="b", model="net"))

    results = {f"{off}.h5": qdebug.diff(run(np.float32(0)), run(np.float32(off))) for off in (0.001, 0.1)}
    path = tmp_path / "runs.db"
    track(path, tracked_diffs(results))
    assert (history(path).series, history(path).exit_code) == (2, 0)


def top_score(value):
    return TrackedValue(name="", measure="top score", value=value, status="good", good=True)


@pytest.mark.parametrize("last", [0.54, 0.4])
def test_a_drift_of_the_winners_scores_is_named_in_either_direction(tmp_path, last):
    path = tmp_path / "runs.db"
    for at, value in enumerate((0.47, 0.48, last)):
        assert history(path).exit_code == 0 if at else True
        track(path, [entry([top1(3), top_score(value)], verb="accuracy", commit=f"c{at}")])
    (worse,) = history(path).worse
    assert (worse.measure, worse.best, worse.last_good) == ("top score", 0.47, 1)
    assert worse.why == f"the winners' mean score drifted from 0.47 to {last}"
