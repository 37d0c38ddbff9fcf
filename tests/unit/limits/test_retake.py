"""Sketches of two runs are compared, and the suspected tensors are kept in full in the next run."""

import numpy as np
import pytest

import qdebug
from qdebug.cli.main import main
from qdebug.errors import UsageError
from qdebug.limits.retake import retake_text
from qdebug.recording.keep_policy import policy_of
from qdebug.recording.recorder import Recorder
from qdebug.recording.writing.recovery import recover

LAYERS = 5


def record(path, keep, *, fault=None, amount=0.0):
    """Record a chain of layers that nothing can replay; one may be wrong."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(64, 64)) / 8 for _ in range(LAYERS)]
    values = rng.normal(size=(32, 64)).astype(np.float32)
    with Recorder(path, backend="b", keep=keep) as rec:
        rec.put("x", values)
        for number, weight in enumerate(weights):
            values = (2 * np.tanh(values @ weight)).astype(np.float32)
            if number == fault:
                values = values + np.float32(amount) * rng.normal(size=values.shape).astype(np.float32)
            before = f"t[{number - 1}]" if number else "x"
            rec.put(f"t[{number}]", values, node=f"n{number}", op="Layer", inputs=(before,))
        rec.put("ids", np.arange(100) + (amount == 0.4))
        rec.outputs(f"t[{LAYERS - 1}]")
    return path


@pytest.fixture
def reference(tmp_path):
    return record(tmp_path / "ref.h5", "sketch")


def test_a_sketch_proves_that_a_tensor_diverges(tmp_path, reference):
    backend = record(tmp_path / "b.h5", "sketch", fault=2, amount=0.4)
    result = qdebug.diff(reference, backend)
    node = result.nodes[3]
    assert (result.first_divergence, node.status) == ("n2", "diverged")
    assert (node.basis, node.metrics.estimated, node.metrics.mismatches) == ("sketch", True, 1)
    assert "estimated from sketches: SQNR" in node.note
    full = qdebug.diff(record(tmp_path / "f.h5", "full"), record(tmp_path / "g.h5", "full", fault=2, amount=0.4))
    true = full.nodes[3].metrics
    assert node.metrics.sqnr_db == pytest.approx(true.sqnr_db, abs=2.5)
    assert [each.status for each in result.nodes[:3]] == ["identical"] * 3
    assert {each.tensor: each.basis for each in result.nodes}["ids"] == "stats"  # must be equal exactly


def test_a_sketch_proves_that_a_tensor_is_within_its_limit_but_not_its_largest_error(tmp_path, reference):
    backend = record(tmp_path / "b.h5", "sketch", fault=0, amount=1e-4)
    result = qdebug.diff(reference, backend, limits=qdebug.Limits(min_sqnr=40))
    assert {node.status for node in result.nodes if node.tensor.startswith("t")} == {"within"}
    assert result.exit_code == 0
    result = qdebug.diff(reference, backend, limits=qdebug.Limits(atol=1e9))
    assert result.exit_code == 3
    assert "sketches do not show the largest error" in result.nodes[1].reason


def test_an_interval_around_the_limit_decides_nothing(tmp_path, reference):
    backend = record(tmp_path / "b.h5", "sketch", fault=4, amount=1e-3)
    level = qdebug.diff(reference, backend).nodes[5].metrics.sqnr_db
    node = qdebug.diff(reference, backend, limits=qdebug.Limits(min_sqnr=round(level))).nodes[5]
    assert node.status == "within"
    assert "not judged" in node.reason
    assert "by its sketches, its SQNR is between" in node.reason


@pytest.mark.parametrize("how", [["--node", "n2"], ["--node", "x"], ["-f", "html"], ["-f", "junit"], ["--verbose"]])
def test_reports_of_sketches(tmp_path, reference, capsys, how):
    backend = record(tmp_path / "b.h5", "sketch", fault=2, amount=0.4)
    assert main(["diff", str(reference), str(backend), *how]) == 3
    printed = capsys.readouterr()
    assert "share no sample" not in printed.err
    assert "1 of 2" not in printed.out.replace("≥ 1 of", "")


def test_suspects_are_kept_in_full_next_time(tmp_path, reference):
    backend = record(tmp_path / "b.h5", "sketch", fault=2, amount=0.01)
    result = qdebug.diff(reference, backend, limits=qdebug.Limits(min_sqnr=20))
    with qdebug.open_recording(backend) as opened:
        text = retake_text([(result, opened.graph)])
    rules = text.splitlines()
    assert rules[:2] == ["t[[]1]=full", "t[[]2]=full"]
    (tmp_path / "retake.txt").write_text(text, encoding="utf-8")
    with qdebug.open_recording(record(tmp_path / "again.h5", ["sketch", f"@{tmp_path / 'retake.txt'}"])) as again:
        assert [name for name in again.names if again.has(name)] == ["t[1]", "t[2]"]
        assert again.kept("t[0]").sketch.shape == (64,)
    with pytest.raises(UsageError, match="cannot be read"):
        policy_of("@nowhere.txt")


def test_sketches_survive_a_crash_and_the_memory_holds_the_same(tmp_path):
    values = np.random.default_rng(0).normal(size=(9, 30)).astype(np.float32)
    rec = Recorder(tmp_path / "dead.h5", backend="b", keep="sketch")
    rec.put("y", values)
    rec._sink.leave()
    memory = Recorder(None, backend="b", keep="sketch")
    memory.put("y", values)
    memory.close()
    recover(tmp_path / "dead.h5", tmp_path / "out.h5")
    with qdebug.open_recording(tmp_path / "out.h5") as opened:
        kept, other = opened.kept("y"), memory.recording.kept("y")
        np.testing.assert_array_equal(kept.sketch, other.sketch)
        assert kept.statistics.l2 == other.statistics.l2
