"""Real nets, recorded as they really run (fetches them out of wheels: slow)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.model import Fidelity
from qdebug.running.record import record_run

pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.slow

MODELS = Path(__file__).resolve().parents[1] / "models.py"
LEVELS = ("none", "basic", "extended", "all")


def record(path: Path, out: Path, feed: dict[str, np.ndarray], level: str, **rest):
    count = len(next(iter(feed.values())))
    summary = record_run(
        path, backend="onnxruntime", options={"opt": level}, inputs=feed, samples=count, out=out, **rest
    )
    return summary, qdebug.open_recording(out)


def activations(recording) -> list[str]:
    graph = recording.graph
    return [name for node in graph.nodes for name in node.outputs if name and not graph.is_constant(name)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("form", ["float", "qdq", "qoperator"])
def test_the_text_direction_net_is_recorded_bit_equal(tmp_path, nets, form, level):
    path = nets.net("cls") if form == "float" else nets.quantized("cls", form)
    summary, recording = record(path, tmp_path / "cls.h5", {"x": nets.crops(2)}, level)
    assert summary.fidelity is Fidelity.BIT_EQUAL
    assert dict(summary.skipped) == {}
    assert all(recording.has(name, sample) for name in activations(recording) for sample in range(2))


def test_names_lost_at_the_highest_level_are_made_up_for(tmp_path, nets):
    source = qdebug.backends.load_reader(nets.quantized("cls", "qdq")).graph
    _, recording = record(nets.quantized("cls", "qdq"), tmp_path / "cls.h5", {"x": nets.crops(1)}, "all")
    tensors = recording.graph.tensors
    for name in activations(recording):
        assert tensors[name].stands_for in source.tensors or name in source.tensors, name
    folded = {n.origin for n in recording.graph.nodes if n.op == "QLinearConv"}
    assert len(folded) == 53
    assert all(len(origin) == 5 for origin in folded)


def test_all_integer_convolutions_have_scales_that_fit_their_bias(tmp_path, nets):
    _, recording = record(nets.quantized("cls", "qdq"), tmp_path / "cls.h5", {"x": nets.crops(1)}, "extended")
    tensors = recording.graph.tensors
    convolutions = [node for node in recording.graph.nodes if node.op == "QLinearConv"]
    assert len(convolutions) == 53
    for node in convolutions:
        x, w, bias = (tensors[node.inputs[at]].quant for at in (0, 3, 8))
        np.testing.assert_array_equal(bias.scale, (x.scale * w.scale).astype(np.float32))
        assert not bias.zero_point.any()
        assert tensors[node.outputs[0]].quant.dtype == "uint8"


@pytest.mark.parametrize("level", LEVELS)
def test_the_pitch_net_with_unnamed_nodes_and_scalar_inputs_is_recorded_bit_equal(tmp_path, nets, level):
    feed = {"audio": nets.sound(2), "fmin": np.full(2, 46.875, np.float32), "fmax": np.full(2, 2093.75, np.float32)}
    summary, recording = record(nets.net("swift-f0"), tmp_path / "f0.h5", feed, level)
    assert summary.fidelity is Fidelity.BIT_EQUAL
    assert len({node.name for node in recording.graph.nodes}) == len(recording.graph.nodes)
    assert all(recording.has(name, sample) for name in activations(recording) for sample in range(2))


# Its peak memory is a process's own, so it is measured in one that does nothing else. Linux counts what the parent had
# when it forked to `ru_maxrss`, and not to VmHWM.
_RECORD_REC = """
import importlib.util, json, pathlib, resource, sys
spec = importlib.util.spec_from_file_location("nets", sys.argv[1])
nets = importlib.util.module_from_spec(spec)
spec.loader.exec_module(nets)
from qdebug.running.record import record_run
done = record_run(nets.net("rec"), backend="onnxruntime", options={"opt": sys.argv[2]},
                  inputs={"x": nets.crops(8, width=912)}, samples=8, out=sys.argv[3])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
status = pathlib.Path("/proc/self/status")
if status.exists():
    peak = 1024 * int(status.read_text().partition("VmHWM:")[2].split()[0])
print(json.dumps({"bytes": done.bytes, "fidelity": done.fidelity, "peak": peak}))
"""


@pytest.mark.parametrize("level", ["none", "all"])
def test_gigabytes_of_tensors_are_recorded_in_little_memory(tmp_path, nets, level):
    nets.net("rec")
    command = [sys.executable, "-c", _RECORD_REC, str(MODELS), level, str(tmp_path / "rec.h5")]
    done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    (tmp_path / "rec.h5").unlink()
    assert done["bytes"] > 4.5e9
    assert done["fidelity"] == Fidelity.BIT_EQUAL
    assert done["peak"] < 600e6


def converted_without(path: Path, op: str, at: int, out: Path) -> tuple[str, str]:
    """Write a net as a converter that renames everything may, without one of its activations.

    Returns:
        The input's new name, and the name of what the reference's node reads.
    """
    import onnx

    model = onnx.load(path)
    lost = [node for node in model.graph.node if node.op_type == op][at]
    before, after = lost.input[0], lost.output[0]
    model.graph.node.remove(lost)
    names: dict[str, str] = {}
    for node in model.graph.node:
        node.name = ""
        for each in (node.input, node.output):
            for place, name in enumerate(each):
                known = before if name == after else name
                each[place] = names.setdefault(known, f"t{len(names)}") if known else ""
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        value.name = names.get(value.name, value.name)
    del model.graph.value_info[:]
    onnx.save(model, out)
    return model.graph.input[0].name, before


@pytest.mark.parametrize("level", ["none", "all"])
@pytest.mark.parametrize(("op", "at"), [("Relu", 6), ("Clip", 3)])
def test_an_activation_that_a_converter_dropped_is_the_missing_node_where_runs_part(tmp_path, nets, op, at, level):
    path, crops = nets.net("cls"), nets.crops(2)
    fed, lost = converted_without(path, op, at, tmp_path / "made.onnx")
    record(path, tmp_path / "ref.h5", {"x": crops}, "none")
    record(tmp_path / "made.onnx", tmp_path / "be.h5", {fed: crops}, level)
    result = qdebug.diff(tmp_path / "ref.h5", tmp_path / "be.h5")
    found = {node.node: f for node in result.nodes for f in node.findings if f.kind == "missing_node"}
    assert result.first_divergence in found
    assert "the reference's" in found[result.first_divergence].sentence
    assert op in found[result.first_divergence].sentence
    assert result.origin == result.first_divergence
    assert not [entry for entry in result.coverage.unmatched if entry.kind == "lost"]
    assert level == "all" or lost in {node.reference_tensor for node in result.nodes}  # blocks hide it in a fused node
