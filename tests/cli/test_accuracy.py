"""qdebug accuracy: the report, its history, its exit codes, and what it refuses."""

import json
import sqlite3

import numpy as np
import pytest

import qdebug
from qdebug.cli.main import main

LABELS = np.arange(60) % 10


def record(path, wrong, **facts):
    rows = np.eye(10, dtype=np.float32)[LABELS]
    rows[:wrong] = np.roll(rows[:wrong], 1, axis=1)
    with qdebug.Recorder(path, backend="npu", model="net", **facts) as recorder:
        for sample, row in enumerate(rows):
            recorder.at(sample)
            recorder.put("x\x1b[31m", np.zeros(4, np.float32))
            recorder.put("y", row, node="n", op="Softmax", inputs=("x\x1b[31m",))
            recorder.outputs("y")
    return str(path)


@pytest.fixture
def labels(tmp_path):
    np.save(tmp_path / "labels.npy", LABELS)
    return str(tmp_path / "labels.npy")


def test_the_verdict_the_table_and_the_next_command(capsys, tmp_path, labels):
    runs = [record(tmp_path / f"{wrong}.h5", wrong) for wrong in (0, 30)]
    assert main(["accuracy", *runs, "--labels", labels]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("WORSE")
    assert "50.00 % of top-1; the margin is 0.50 %" in out
    assert f"next: qdebug diff {runs[0]} {runs[1]}" in err
    assert main(["accuracy", *runs[:1], *runs[:1], "--labels", labels, "-f", "markdown"]) == 0
    assert "not decided, 765 samples needed" in capsys.readouterr().out
    assert main(["accuracy", *runs, "--labels", labels, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["format"] == "qdebug.accuracy"


def test_a_history_names_the_first_bad_run(capsys, tmp_path, labels):
    database = str(tmp_path / "runs.db")
    for wrong in (0, 0, 30):
        main(["accuracy", record(tmp_path / "run.h5", wrong), "--labels", labels, "--track", database])
        assert f"next: qdebug accuracy --history {database}" in capsys.readouterr().err
        (tmp_path / "run.h5").unlink()
    assert main(["accuracy", "--history", database]) == 1
    out = capsys.readouterr().out
    assert "top-1 of net on npu: fell from 100.0 % to 50.0 %" in out
    assert "last good: run 2 of 3" in out
    assert "██▁" in out
    assert main(["accuracy", "--history", database, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["worse"] == 2


def test_two_runs_of_one_title_are_two_series(capsys, tmp_path, labels):
    database, runs = str(tmp_path / "runs.db"), [record(tmp_path / f"{wrong}.h5", wrong) for wrong in (0, 30)]
    main(["accuracy", *runs, "--labels", labels, "--track", database])
    capsys.readouterr()
    assert main(["accuracy", "--history", database]) == 0
    assert "2 runs in 2 series" in capsys.readouterr().out


def test_a_metric_that_fails_is_told(capsys, tmp_path, labels):
    path = tmp_path / "own.py"
    path.write_text("def text(outputs, reference, labels):\n    return 'much'\n")
    run = record(tmp_path / "run.h5", 0)
    assert main(["accuracy", run, "--labels", labels, "--metric", f"{path}:text"]) == 2
    assert "failed: ValueError: could not convert string to float: 'much'" in capsys.readouterr().err


def test_diff_and_explain_are_tracked(capsys, tmp_path, recordings):
    database = tmp_path / "runs.db"
    for backend, code in ((recordings.within, 0), (recordings.diverged, 1)):
        assert main(["diff", str(recordings.reference), str(backend), "--track", str(database)]) == code
    main(["explain", str(recordings.within), "--track", str(database)])
    capsys.readouterr()
    assert main(["accuracy", "--history", str(database)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "node 'conv2' of net on numpy: was within, is diverged: SQNR fell from" in said
    with sqlite3.connect(database) as opened:
        assert [row[0] for row in opened.execute("SELECT verb FROM runs")] == ["diff", "diff", "explain"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "No recording was given"),
        (["run.h5"], "Top-k accuracy needs labels"),
        (["run.h5", "--labels", "none.npy"], "contains no labels"),
        (["run.h5", "--labels", "labels.npy", "--scores", "z"], "has no output 'z'; it has: y"),
        (["run.h5", "--labels", "labels.npy", "--track", "labels.npy"], "is not a qdebug history"),
        (["run.h5", "--labels", "labels.npy", "--metric", "bleu"], "Unknown metric 'bleu'"),
        (["run.h5", "--labels", "labels.npy", "--all"], "--all needs --history"),
        (["run.h5", "--history", "runs.db"], "does not measure recordings"),
        (["--history", "none.db"], "There is no history"),
        (["labels.npy", "--labels", "labels.npy"], "is a single numpy array, not a recording"),
    ],
)
def test_what_it_cannot_do_is_said_in_a_sentence(capsys, tmp_path, labels, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    record("run.h5", 0)
    assert main(["accuracy", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "hint:" in err
