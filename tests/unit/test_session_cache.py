"""Results that are kept between two comparisons: equal to the last byte, and never used where anything changed."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest

import qdebug
from qdebug import version
from qdebug.api import diff
from qdebug.compare.node_comparer import NodeComparer
from qdebug.compare.result.limits import Limits
from qdebug.errors import PayloadMismatchError
from qdebug.recording.format.specification import TENSORS
from qdebug.session import DiffSession, open_recording


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")


def record(path, *, quantized, samples=3, wrong=0.0):
    """A quantized or float net x -> Gemm -> Relu, with a NaN on purpose."""
    rng = np.random.default_rng(5)
    w, inputs = rng.normal(size=(6, 12)).astype(np.float32), rng.normal(size=(samples, 1, 6)).astype(np.float32)
    scale = {"scale": 0.05, "zero_point": -128} if quantized else {}

    def stored(values):
        return np.clip(np.rint(values / 0.05) - 128, -128, 127).astype(np.int8) if quantized else values

    with qdebug.Recorder(path, backend="test") as rec:
        rec.constant("w", w)
        for sample, x in enumerate(inputs):
            if sample:
                rec.next_sample()
            y = x @ w + np.float32(wrong)
            rec.put("x", x)
            rec.put("y", y, node="fc", op="Gemm", inputs=("x", "w"))
            z = np.maximum(y, 0)
            rec.put("z", stored(z), node="relu", op="Relu", inputs=("y",), **scale)
            rec.put("n", np.full(2, np.nan, np.float32), node="nan", op="Custom", inputs=("z",))
            rec.put("scores", y, node="last", op="Identity", inputs=("y",))
        rec.outputs("scores", "n")
    return path


@pytest.fixture
def pair(tmp_path):
    reference = record(tmp_path / "ref.h5", quantized=False)
    return reference, record(tmp_path / "int8.h5", quantized=True, wrong=0.25)


@pytest.fixture
def examined(monkeypatch):
    """Tensors that were really compared."""
    seen = []
    real = NodeComparer.examine

    def examine(self, entries):
        for result in real(self, entries):
            seen.append(result.tensor)
            yield result

    monkeypatch.setattr(NodeComparer, "examine", examine)
    return seen


def sidecars(pair):
    """The files of what is kept: the results, and what was made of them."""
    return sorted(pair[1].with_name("int8.h5.qdebug-cache").iterdir())


def test_the_second_comparison_computes_nothing_and_says_the_same(pair, examined):
    fresh = DiffSession(*map(open_recording, pair)).result()
    first = diff(*pair)
    del examined[:]
    again = diff(*pair)
    assert examined == []
    assert json.dumps(fresh.to_dict()) == json.dumps(first.to_dict()) == json.dumps(again.to_dict())
    assert (again.verdict, again.shortcomings, again.exit_code) == (first.verdict, first.shortcomings, first.exit_code)
    plain = again.to_dict()
    assert [output["tensor"] for output in plain["outputs"]] == ["scores"]
    assert any(node["quant"] for node in plain["nodes"])


def test_results_that_are_taken_one_by_one_come_from_the_cache_too(pair, examined):
    diff(*pair)
    del examined[:]
    session = DiffSession(*map(open_recording, pair), cache=True)
    assert [node.tensor for node in session.results()] == ["x", "y", "z", "n", "scores"]
    assert examined == []
    assert session.worst("y", k=1)[0].difference == pytest.approx(0.25)


def test_what_was_not_compared_to_the_end_is_not_kept(pair):
    session = DiffSession(*map(open_recording, pair), cache=True)
    next(session.results())
    assert not pair[1].with_name("int8.h5.qdebug-cache").exists()
    session.result()
    assert sidecars(pair)


def test_a_session_keeps_nothing_unless_asked(pair):
    DiffSession(*map(open_recording, pair)).result()
    assert sorted(path.name for path in pair[0].parent.iterdir()) == ["int8.h5", "ref.h5"]


def test_recordings_in_memory_are_not_cached(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rec = qdebug.Recorder(None, backend="test")
    rec.put("y", np.arange(3.0))
    rec.close()
    assert diff(rec.recording, rec.recording).status == "identical"
    assert list(tmp_path.iterdir()) == []


def test_other_limits_are_judged_anew(pair, examined):
    assert diff(*pair).limits["source"] == "derived"
    del examined[:]
    loose = diff(*pair, limits=Limits(atol=1000.0))
    assert examined
    assert {node.status for node in loose.nodes if node.tensor == "y"} == {"within"}
    del examined[:]
    assert diff(*pair, limits=Limits(atol=1000.0, allow_partial=True)).to_dict()["nodes"] == loose.to_dict()["nodes"]
    assert examined == []  # what may be missing changes the exit code alone


def test_results_of_another_version_are_computed_anew_and_that_is_known(pair, examined, monkeypatch):
    session = DiffSession(*map(open_recording, pair), cache=True)
    told = json.dumps(session.result().to_dict())
    assert not session.outdated
    monkeypatch.setattr(version, "__version__", "0.0.0")
    del examined[:]
    again = DiffSession(*map(open_recording, pair), cache=True)
    assert json.dumps(again.result().to_dict()) == told
    assert examined
    assert again.outdated
    other = DiffSession(*map(open_recording, pair), cache=True, limits=Limits(atol=1000.0))
    other.result()
    assert not other.outdated  # another question, not another version


def test_a_damaged_cache_is_computed_anew_and_replaced(pair, examined):
    told = diff(*pair).to_json()
    contents = {path: path.read_bytes() for path in sidecars(pair)}
    for path, content in contents.items():
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 255]))
    del examined[:]
    assert diff(*pair).to_json() == told
    assert examined
    assert {path: path.read_bytes() for path in sidecars(pair)} == contents


def test_values_that_were_edited_in_place_are_not_taken_for_what_was_recorded(pair):
    diff(*pair)
    before = pair[1].stat()
    with h5py.File(pair[1], "r+") as file:
        group = file[TENSORS]
        name = next(n for n in group if group[n].dtype == np.int8)
        group[name][...] = 0
    os.utime(pair[1], ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(PayloadMismatchError):
        diff(*pair)


def test_a_recording_that_was_replaced_is_compared_anew(pair):
    before = diff(*pair)
    pair[1].unlink()
    record(pair[1], quantized=True, wrong=3.0)
    assert diff(*pair).to_json() != before.to_json()


def test_workers_are_only_asked_for_what_is_not_kept(pair):
    with ThreadPoolExecutor(2) as executor:
        first = diff(*pair, executor=executor)
    assert sidecars(pair)
    refusing = ThreadPoolExecutor(1)
    refusing.shutdown()  # takes no more work
    assert diff(*pair, executor=refusing).to_json() == first.to_json()
