import numpy as np
import pytest

from qdebug import data
from qdebug.compare.result.result import Status
from qdebug.errors import OutputExistsError
from qdebug.model import Fidelity
from qdebug.running import demo as demo_module
from qdebug.running.demo import BUG, PLANTED, run_demo
from qdebug.session import open_recording


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "made" / "here"
    progress = []
    return run_demo(folder, on_progress=lambda *seen: progress.append(seen)), progress, folder


def test_exactly_the_planted_node_is_the_first_divergence(ran):
    run, _, _ = ran
    assert run.planted == PLANTED
    assert run.result.status is Status.DIVERGED
    assert run.result.first_divergence == PLANTED
    assert PLANTED in run.result.verdict.sentence


def test_what_comes_before_the_bug_is_healthy(ran):
    nodes = ran[0].result.nodes
    planted = next(node.index for node in nodes if node.node == PLANTED)
    before = [node for node in nodes if node.index < planted]
    assert len(before) >= 5
    assert all(node.metrics.sqnr_db > 30 for node in before)
    assert [node.node for node in nodes if node.status is Status.DIVERGED] == [PLANTED]
    after = [node for node in nodes if node.index > planted]
    assert all(node.metrics.sqnr_db < 20 for node in after)
    assert all(node.judged.amount <= 0.5001 for node in after if node.quant)


def test_without_the_bug_nothing_diverges(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_module, "_zero_tail_channels", lambda arrays: arrays)
    run = run_demo(tmp_path)
    assert run.result.status is Status.WITHIN
    assert min(node.metrics.sqnr_db for node in run.result.nodes) > 20
    assert run.backend_right >= 9


def test_no_tensor_is_lost(ran):
    coverage = ran[0].result.coverage
    assert coverage.compared >= 12
    assert [entry for entry in coverage.unmatched if entry.kind == "lost"] == []


def test_the_bug_costs_answers(ran):
    run = ran[0]
    assert run.digits == 10
    assert run.reference_right == 9
    assert run.backend_right < run.reference_right
    assert "8" in BUG


def test_both_runs_are_recorded_whole(ran):
    run, progress, folder = ran
    assert {path.name for path in folder.iterdir()} == {"float.h5", "int8.h5", "int8.h5.qdebug-cache"}
    reference, backend = open_recording(run.reference), open_recording(run.backend)
    for recording in (reference, backend):
        assert recording.info.complete
        assert recording.info.fidelity is Fidelity.BIT_EQUAL
        assert recording.samples == 10
        for node in recording.graph.nodes:
            assert all(recording.has(tensor, 9) for tensor in node.outputs)
    assert backend.info.options["arithmetic"] == "glow-interpreter"
    assert backend.info.options["faults"] == PLANTED
    assert [done for done, _, _ in progress] == [*range(1, 11)] * 4  # both nets: recorded, then run plainly


def test_the_bug_is_the_tail_of_the_channels(ran):
    backend = open_recording(ran[0].backend)
    codes = np.concatenate([backend.load("pwconv_quantized", sample) for sample in range(10)])
    assert codes.shape[1] == 24
    assert not codes[:, 16:].any()
    assert codes[:, :16].any(axis=(0, 2, 3)).sum() > 12


def test_nothing_is_left_behind_by_a_failure(tmp_path, monkeypatch):
    def fail(arrays):
        raise RuntimeError("the kernel crashed")

    monkeypatch.setattr(demo_module, "_zero_tail_channels", fail)
    with pytest.raises(RuntimeError, match="crashed"):
        run_demo(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"float.h5"}


def test_recordings_are_not_overwritten_unasked(tmp_path):
    (tmp_path / "int8.h5").write_bytes(b"mine")
    with pytest.raises(OutputExistsError, match=r"int8\.h5") as error:
        run_demo(tmp_path)
    assert "--force" in error.value.hint
    assert {path.name for path in tmp_path.iterdir()} == {"int8.h5"}
    assert run_demo(tmp_path, force=True).result.first_divergence == PLANTED


def test_the_package_data_is_small_and_right():
    assert sum(path.stat().st_size for path in (data.FLOAT_NET, data.INT8_NET, data.INPUTS, data.LABELS)) < 150_000
    x, y = np.load(data.INPUTS)["x"], np.load(data.LABELS)["y"]
    assert (x.shape, x.dtype, y.tolist()) == ((10, 1, 1, 8, 8), np.float32, list(range(10)))
    assert x.min() >= 0
    assert x.max() <= 1
    for path in (data.FLOAT_NET, data.INT8_NET):
        recording = open_recording(path)
        assert recording.info.fidelity is Fidelity.BIT_EQUAL
        assert recording.graph.outputs == ("logits",)
