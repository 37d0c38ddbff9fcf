"""ONNX Runtime is recorded as it really runs: outputs bit-equal to a plain run, nothing left behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import qdebug
from qdebug.backends import load_backend
from qdebug.backends.onnxruntime import session as onnx_tapping
from qdebug.errors import BackendError, InputError, UsageError
from qdebug.model import Fidelity
from qdebug.running.record import record_run

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402  after the check that it is there

SAMPLES = Path(__file__).resolve().parents[3] / "samples" / "digits"
LEVELS = ("none", "basic", "extended", "all")
NETS = ("digits", "digits.qdq.per_tensor", "digits.qdq.per_channel", "digits.qoperator.per_tensor")
NETS = (*NETS, "digits.qoperator.per_channel")


def record(model: Path, out: Path, x: np.ndarray, *, level: str = "all", name: str = "x", **rest):
    """Record samples of a batch of one each, and open what came of it."""
    summary = record_run(
        model,
        backend="onnxruntime",
        options={"opt": level, "threads": "1"},
        inputs={name: x},
        samples=len(x),
        out=out,
        **rest,
    )
    return summary, qdebug.open_recording(out)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("net", NETS)
def test_faithful_taps_record_all_that_runs_and_change_nothing(tmp_path, digits, net, level):
    path = SAMPLES / f"{net}.onnx"
    summary, recording = record(path, tmp_path / "run.h5", digits[:3], level=level)
    assert summary.fidelity is Fidelity.BIT_EQUAL
    assert "3 of 3" in summary.fidelity_detail
    assert dict(summary.skipped) == {}
    graph = recording.graph
    for node in graph.nodes:
        for output in node.outputs:
            assert recording.has(output), output
            if not graph.is_constant(output):
                assert all(recording.has(output, sample) for sample in range(3)), output
    for sample in range(3):
        np.testing.assert_array_equal(recording.load("x", sample), digits[sample : sample + 1])
    session = pytest.importorskip("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
    plain = session.run(["logits"], {"x": digits[2:3]})[0]
    if level == "all":
        np.testing.assert_array_equal(recording.load("logits", 2), plain)


def test_the_graph_that_runs_is_the_optimized_one(tmp_path, digits):
    net = SAMPLES / "digits.qdq.per_tensor.onnx"
    _, none = record(net, tmp_path / "none.h5", digits[:1], level="none")
    _, extended = record(net, tmp_path / "extended.h5", digits[:1], level="extended")
    assert not any(node.op == "QLinearConv" for node in none.graph.nodes)
    fused = [node for node in extended.graph.nodes if node.op == "QLinearConv"]
    assert len(fused) == 4
    first = next(node for node in fused if "conv1" in node.origin)
    assert {"x_DequantizeLinear", "conv1", "relu1_QuantizeLinear"} <= set(first.origin)
    out = extended.graph.tensors[first.outputs[0]]
    assert out.stands_for == "relu1"
    assert out.quant is not None
    assert extended.load(out.name).dtype == np.uint8


def test_tapping_the_source_graph_changes_what_runs_and_the_recording_says_so(tmp_path, digits):
    net = SAMPLES / "digits.qdq.per_tensor.onnx"
    summary, recording = record(net, tmp_path / "all.h5", digits[:64], taps="all")
    assert summary.fidelity is Fidelity.DIFFERS
    assert "'logits'" in summary.fidelity_detail
    assert recording.info.fidelity is Fidelity.DIFFERS
    assert {node.name for node in recording.graph.nodes} >= {"conv1", "fc1"}
    summary, _ = record(net, tmp_path / "faithful.h5", digits[:64])
    assert summary.fidelity is Fidelity.BIT_EQUAL


def test_taps_outputs_records_inputs_and_outputs_alone(tmp_path, digits):
    summary, recording = record(SAMPLES / "digits.onnx", tmp_path / "run.h5", digits[:2], taps="outputs", weights=False)
    assert set(recording.names) == {"x", "logits"}
    assert summary.fidelity is Fidelity.BIT_EQUAL


def test_without_weights_no_constant_is_kept(tmp_path, digits):
    _, recording = record(SAMPLES / "digits.qdq.per_tensor.onnx", tmp_path / "run.h5", digits[:1], weights=False)
    assert not any(recording.graph.is_constant(name) for name in recording.names)
    assert recording.has("logits")


def test_constants_are_those_of_the_model(tmp_path, digits):
    net = SAMPLES / "digits.onnx"
    _, recording = record(net, tmp_path / "run.h5", digits[:1], level="none")
    source = qdebug.backends.load_reader(net)
    for name in source.constants:
        np.testing.assert_array_equal(recording.load(name), source.constant(name))


def test_the_facts_of_the_run_are_kept(tmp_path, digits):
    import onnxruntime

    _, recording = record(SAMPLES / "digits.onnx", tmp_path / "run.h5", digits[:1], level="basic")
    info = recording.info
    assert (info.backend, info.model, info.taps) == ("onnxruntime", "digits.onnx", "faithful")
    assert info.versions["onnxruntime"] == onnxruntime.__version__
    assert info.options["opt"] == "basic"
    assert info.options["threads"] == 1
    assert len(info.model_sha256) == 64
    assert info.complete


@pytest.mark.parametrize("taps", ["faithful", "all"])
def test_each_node_says_which_provider_ran_it(tmp_path, digits, taps):
    path = SAMPLES / "digits.qdq.per_channel.onnx"
    _, recording = record(path, tmp_path / "run.h5", digits[:1], taps=taps)
    assert {node.placement for node in recording.graph.nodes} == {"CPUExecutionProvider"}
    assert recording.info.options["asked_for"] == "CPUExecutionProvider"


def test_a_provider_that_takes_no_node_is_said_of_each(tmp_path, digits):
    if "AzureExecutionProvider" not in pytest.importorskip("onnxruntime").get_available_providers():
        pytest.skip("this ONNX Runtime has no provider that takes no nodes")
    made = {}
    for provider in ("CPUExecutionProvider", "AzureExecutionProvider"):
        made[provider] = tmp_path / f"{provider}.h5"
        options = {"provider": provider, "opt": "extended"}
        record_run(
            SAMPLES / "digits.onnx",
            backend="onnxruntime",
            options=options,
            inputs={"x": digits[:1]},
            samples=1,
            out=made[provider],
        )
    result = qdebug.diff(*made.values())
    said = {each.sentence for node in result.nodes for each in node.findings if each.kind == "placement"}
    assert said == {"it ran on CPUExecutionProvider, although AzureExecutionProvider was requested"}
    assert result.status == "identical"


def test_chunks_give_what_one_run_gives(tmp_path, digits, monkeypatch):
    net = SAMPLES / "digits.qdq.per_tensor.onnx"
    _, whole = record(net, tmp_path / "whole.h5", digits[:2])
    runs: list[int] = []
    original = onnx_tapping.TappedGraph.run
    monkeypatch.setattr(
        onnx_tapping.TappedGraph, "run", lambda self, taps: (runs.append(len(taps)), original(self, taps))[1]
    )
    monkeypatch.setattr(onnx_tapping, "chunks", lambda names, _: [[name] for name in names])
    summary, single = record(net, tmp_path / "single.h5", digits[:2])
    assert len(runs) > 10
    assert set(runs) == {1}
    assert summary.fidelity is Fidelity.BIT_EQUAL
    assert set(single.names) == set(whole.names)
    for name in whole.names:
        for sample in range(1 if whole.graph.is_constant(name) else 2):
            one, other = whole.load(name, sample), single.load(name, sample)
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()


def test_outputs_that_change_between_runs_count_against_fidelity(tmp_path, digits, monkeypatch):
    original = onnx_tapping.TapRun.tensors
    runs: list[int] = []

    def drifting(self, feed):
        runs.append(1)
        for name, array in original(self, feed):
            yield name, array + np.float32(len(runs) == 5) if name == "logits" else array

    monkeypatch.setattr(onnx_tapping, "chunks", lambda names, _: [[name] for name in names])
    monkeypatch.setattr(onnx_tapping.TapRun, "tensors", drifting)
    summary, recording = record(SAMPLES / "digits.onnx", tmp_path / "run.h5", digits[:1], level="none")
    assert len(runs) > 5
    assert summary.fidelity is Fidelity.DIFFERS
    assert "'logits'" in summary.fidelity_detail
    assert recording.info.complete


def test_values_that_are_no_tensors_are_skipped_with_a_reason(tmp_path, save_model):
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["pair"], name="pair"),
        helper.make_node("ConcatFromSequence", ["pair"], ["y"], name="join", axis=0),
    ]
    summary, recording = record(save_model(nodes), tmp_path / "run.h5", np.ones((2, 4), np.float32), level="none")
    assert set(summary.skipped) == {"pair"}
    assert "seq(tensor(float))" in summary.skipped["pair"]
    assert recording.info.skipped == dict(summary.skipped)
    assert summary.fidelity is Fidelity.BIT_EQUAL
    np.testing.assert_array_equal(recording.load("y"), np.ones((2, 4), np.float32))


def test_several_outputs_of_one_node_and_scalars_are_recorded(tmp_path, save_model):
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["values", "places"], name="top"),
        helper.make_node("ReduceSum", ["values"], ["y"], name="sum", keepdims=0),
    ]
    path = save_model(nodes, outputs=("y", "places"), constants={"k": np.array([2])})
    _, recording = record(path, tmp_path / "run.h5", np.float32([[1, 4, 3, 2]]), level="none")
    assert recording.load("y").shape == ()
    assert recording.load("y") == 7
    np.testing.assert_array_equal(recording.load("places"), [[1, 2]])
    assert recording.load("places").dtype == np.int64


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (TensorProto.FLOAT16, np.dtype(np.float16)),
        (TensorProto.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
        (TensorProto.FLOAT8E4M3FN, np.dtype(ml_dtypes.float8_e4m3fn)),
        (TensorProto.FLOAT8E5M2, np.dtype(ml_dtypes.float8_e5m2)),
        (TensorProto.BOOL, np.dtype(bool)),
        (TensorProto.UINT16, np.dtype(np.uint16)),
        (TensorProto.INT4, np.dtype(ml_dtypes.int4)),
        (TensorProto.UINT4, np.dtype(ml_dtypes.uint4)),
    ],
)
def test_values_of_every_element_type_come_out_as_themselves(tmp_path, save_model, number, dtype):
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], name="to", to=number),
        helper.make_node("Cast", ["c"], ["y"], name="back", to=TensorProto.FLOAT),
    ]
    model = onnx.load(str(save_model(nodes)))
    model.opset_import[0].version, model.ir_version = 21, 10
    path = tmp_path / "casts.onnx"
    onnx.save(model, str(path))
    x = np.float32([[0, 1, 2, 5]])
    _, recording = record(path, tmp_path / "run.h5", x, level="none")
    assert recording.load("c").dtype == dtype
    np.testing.assert_array_equal(recording.load("c").astype(np.float32), x.astype(dtype).astype(np.float32))


def test_constants_inside_nested_branches_are_written_once(tmp_path, save_model):
    pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    def branch(name: str, nodes: list, output: str):
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)])

    def constant(value: float, output: str):
        tensor = helper.make_tensor(output, TensorProto.FLOAT, [1], [value])
        return helper.make_node("Constant", [], [output], value=tensor)

    def choice(inner: str, nodes: list):
        other = branch(f"{inner}_else", [helper.make_node("Identity", ["x"], [f"{inner}_e"])], f"{inner}_e")
        return helper.make_node(
            "If", ["yes"], [inner], then_branch=branch(f"{inner}_then", nodes, f"{inner}_t"), else_branch=other
        )

    deep = [constant(2.0, "c2"), helper.make_node("Mul", ["x", "c2"], ["deep_t"])]
    shallow = [constant(3.0, "c1"), choice("deep", deep), helper.make_node("Add", ["deep", "c1"], ["y_t"])]
    model = save_model([choice("y", shallow)], constants={"yes": np.array(True)})
    x = np.arange(4, dtype=np.float32).reshape(1, 4)
    for level in ("none", "extended", "all"):
        _, recording = record(model, tmp_path / f"{level}.h5", x, level=level)
        assert np.array_equal(recording.load("y"), 2 * x + 3)


def test_casts_that_are_called_alike_inside_and_outside_are_told_apart(tmp_path, save_model):
    half = np.float16([0.5, 1.5, 2.5, 3.5])

    def branch(name: str, op: str):
        nodes = [helper.make_node(op, ["h", "w"], [f"{name}_y"])]
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT16, None)]
        )

    nodes = [
        helper.make_node("Mul", ["x", "w"], ["h"]),
        helper.make_node("Pow", ["h", "w"], ["p"]),
        helper.make_node("If", ["yes"], ["b"], then_branch=branch("then", "Pow"), else_branch=branch("else", "Mul")),
        helper.make_node("Add", ["p", "b"], ["y"]),
    ]
    model = save_model(nodes, constants={"yes": np.array(True), "w": half}, kind=TensorProto.FLOAT16)
    for level in ("none", "all"):
        _, recording = record(model, tmp_path / f"{level}.h5", np.full((1, 4), 2, np.float16), level=level)
        expected = 2 * (2 * half.astype(np.float32)) ** half.astype(np.float32)
        assert np.allclose(recording.load("y")[0].astype(np.float32), expected, rtol=4e-3)


def test_weights_in_external_files_are_found_wherever_the_run_starts(tmp_path, save_model, monkeypatch):
    table = np.arange(4000, dtype=np.float32).reshape(1000, 4)
    path = save_model(
        [helper.make_node("Gemm", ["x", "w"], ["y"], name="fc", transB=1)],
        constants={"w": table},
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for taps in ("faithful", "all", "outputs"):
        summary, recording = record(path, tmp_path / f"{taps}.h5", np.ones((2, 4), np.float32), taps=taps, level="none")
        assert summary.fidelity is Fidelity.BIT_EQUAL
        np.testing.assert_array_equal(recording.load("y"), table.sum(1)[None])
    assert list(elsewhere.iterdir()) == []


def test_nothing_is_left_behind_and_nothing_is_said(tmp_path, digits, monkeypatch, capfd):
    scratch, here = tmp_path / "scratch", tmp_path / "here"
    scratch.mkdir()
    here.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.chdir(here)
    for level in ("none", "all"):
        record(SAMPLES / "digits.qdq.per_tensor.onnx", Path("run.h5"), digits[:1], level=level, force=True)
    with pytest.raises(BackendError):
        record(_unknown_operator(tmp_path), Path("bad.h5"), np.ones((1, 4), np.float32))
    assert list(scratch.iterdir()) == []
    assert [entry.name for entry in here.iterdir()] == ["run.h5"]
    assert capfd.readouterr() == ("", "")


def _unknown_operator(folder: Path) -> Path:
    """Save a model that onnx reads and ONNX Runtime cannot run."""
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Frobnicate", ["x"], ["y"], name="f")], "net", value[:1], value[1:])
    path = folder / "unknown.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path


def test_a_model_that_onnxruntime_refuses_is_one_sentence(tmp_path):
    with pytest.raises(BackendError, match="Frobnicate") as caught:
        load_backend("onnxruntime").open(_unknown_operator(tmp_path), options={})
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_a_run_that_fails_leaves_no_recording(tmp_path, save_model):
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"], name="r")]
    path = save_model(nodes, constants={"shape": np.array([3])})
    with pytest.raises(BackendError, match="ONNX Runtime"):
        record(path, tmp_path / "run.h5", np.ones((1, 4), np.float32))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["net.onnx"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"opt": "most"}, "none, basic, extended, all"),
        ({"level": "all"}, "has no option 'level'"),
        ({"threads": "many"}, "expected an integer"),
        ({"provider": "NoSuchProvider"}, "CPUExecutionProvider"),
    ],
)
def test_bad_options_name_what_there_is(options, message):
    with pytest.raises(UsageError, match=message) as caught:
        load_backend("onnxruntime").open(SAMPLES / "digits.onnx", options=options)
    assert caught.value.hint


def test_bad_taps_and_recordings_are_refused(tmp_path, digits):
    backend = load_backend("onnxruntime")
    with pytest.raises(UsageError, match="faithful, all, outputs"):
        backend.open(SAMPLES / "digits.onnx", options={}, taps="some")
    _, recording = record(SAMPLES / "digits.onnx", tmp_path / "run.h5", digits[:1])
    with pytest.raises(UsageError, match="model files, not recordings"):
        backend.open(recording, options={})


def test_inputs_that_hold_no_numbers_are_refused(tmp_path, save_model):
    path = save_model([helper.make_node("Identity", ["x"], ["y"], name="i")], kind=TensorProto.STRING)
    with pytest.raises(InputError, match="does not take numbers"):
        record_run(path, backend="onnxruntime", inputs={"x": np.array([["a"]])}, out=tmp_path / "run.h5")


def test_progress_ends_at_its_total(tmp_path, digits):
    calls: list[tuple[int, int]] = []
    record(
        SAMPLES / "digits.onnx",
        tmp_path / "run.h5",
        digits[:2],
        on_progress=lambda done, total, label: calls.append((done, total)),
    )
    assert calls
    assert all(0 <= done <= total for done, total in calls)
    assert calls[-1][0] == calls[-1][1]


@pytest.mark.parametrize("taps", ["faithful", "all", "outputs"])
def test_branches_and_loops_are_listed_with_what_runs_them(tmp_path, save_model, taps):
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("r", "a")]
    branches = [
        helper.make_graph([helper.make_node(op, ["x"], [info.name])], op, [], [info])
        for op, info in zip(("Relu", "Abs"), value, strict=True)
    ]
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0, name="sum"),
        helper.make_node("Greater", ["s", "zero"], ["c"], name="greater"),
        helper.make_node("If", ["c"], ["y"], name="choose", then_branch=branches[0], else_branch=branches[1]),
    ]
    path = save_model(nodes, constants={"zero": np.float32(0)}, shape=(1, 4))
    record(path, tmp_path / "run.h5", np.ones((1, 4), np.float32), taps=taps)
    note = qdebug.open_recording(tmp_path / "run.h5").info.options["note"]
    assert note.startswith("tensors inside these graphs are not recorded: ")
    assert {"then_branch of If 'choose' (1 nodes)", "else_branch of If 'choose' (1 nodes)"} == set(
        note.partition(": ")[2].split(", ")
    )


def test_an_operator_of_somebody_elses_library_is_named(save_model):
    path = save_model([helper.make_node("Swirl", ["x"], ["y"], domain="my.ops")])
    with pytest.raises(BackendError, match="Swirl"):
        load_backend("onnxruntime").open(path, options={})
