from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug import data
from qdebug.arithmetic.arithmetic_file import arithmetic_text
from qdebug.backends import load_backend
from qdebug.errors import KernelError, NoKernelError, UsageError
from qdebug.model import Fidelity, Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.replay import parse_variant
from qdebug.session import open_recording

X = np.array([[-1.0, 2.0]], np.float32)
W = np.array([[1.0, -1.0], [2.0, 0.5]], np.float32)
QUANT = QuantParams(dtype="int8", scale=np.float32(0.5), zero_point=1)


def model(*, weights=True, op="MatMul"):
    graph = Graph(
        [
            Node(name="mm", op=op, inputs=("x", "w"), outputs=("a",)),
            Node(name="q", op="QuantizeLinear", inputs=("a", "s", "z"), outputs=("b",)),
        ],
        inputs=["x"],
        outputs=["b"],
        tensors=[
            TensorInfo(name="x", shape=(None, 2), dtype="float32", role=Role.INPUT),
            *(TensorInfo(name=name, role=Role.CONSTANT) for name in "wsz"),
            TensorInfo(name="b", dtype="int8", role=Role.OUTPUT, quant=QUANT),
        ],
        name="tiny",
        opset={"": 13},
    )
    arrays = {"a": X @ W, "b": np.zeros((1, 2), np.int8)}
    if weights:
        arrays |= {"w": W, "s": QUANT.scale.reshape(()), "z": np.array(1, np.int8)}
    return MemoryRecording.single(graph, arrays, RunInfo(backend="put", model="tiny.onnx", model_sha256="abc"))


class Feeds:
    def __init__(self, samples=2, steps=1):
        self.samples, self.steps = samples, steps

    def feed(self, sample, step=0):
        return {"x": X * (sample + 1) + step}


class Recorder:
    """Keeps what a run puts, and where."""

    def __init__(self):
        self.kept, self.place = {}, (0, 0)

    def at(self, sample, step=0):
        self.place = (sample, step)

    def put(self, name, array, **facts):
        self.kept[(name, *self.place)] = array.copy()


def open_model(*, options=None, **more):
    return load_backend("interpreter").open(more.pop("model", None) or model(), options=options or {}, **more)


def test_it_says_what_it_runs():
    run = open_model()
    assert [info.name for info in run.inputs] == ["x"]
    assert run.inputs[0].shape == (None, 2)
    assert run.outputs == ("b",)
    assert run.graph.tensors["b"].quant == QUANT
    assert run.facts.backend == "interpreter"
    assert (run.facts.model, run.facts.model_sha256) == ("tiny.onnx", "abc")
    assert run.facts.options == {"arithmetic": "onnx-spec"}
    assert run.facts.versions["qdebug"] == qdebug.__version__
    assert run.facts.versions["numpy"] == np.__version__


def test_every_tensor_of_every_sample_and_step_is_recorded():
    run, recorder, progress = open_model(), Recorder(), []
    feeds = Feeds(samples=2, steps=3)
    run.record(feeds, recorder, lambda *seen: progress.append(seen))
    assert set(recorder.kept) == {(name, i, j) for name in ("x", "a", "b") for i in range(2) for j in range(3)}
    for sample in range(2):
        for step in range(3):
            feed = feeds.feed(sample, step)
            np.testing.assert_array_equal(recorder.kept["x", sample, step], feed["x"])
            np.testing.assert_array_equal(recorder.kept["a", sample, step], feed["x"] @ W)
            plain = run.plain(feed)
            assert plain["b"].tobytes() == recorder.kept["b", sample, step].tobytes()
    assert [done for done, _, _ in progress] == [1, 2, 3, 4, 5, 6]
    assert {total for _, total, _ in progress} == {6}


def test_outputs_alone():
    recorder = Recorder()
    open_model(taps="outputs").record(Feeds(samples=1), recorder)
    assert {name for name, _, _ in recorder.kept} == {"x", "b"}


def test_constants_are_given_on_request():
    constants = dict(open_model().constants())
    assert set(constants) == {"w", "s", "z"}
    np.testing.assert_array_equal(constants["w"], W)
    assert list(open_model(weights=False).constants()) == []
    assert open_model(weights=False).plain({"x": X})["b"].shape == (1, 2)  # they are still used


HALF = {"x": np.array([[0.25, 0.0]], np.float32)}  # a is (0.25, -0.25): half a step


def test_an_arithmetic_by_name():
    assert open_model().plain(HALF)["b"].tolist() == [[1, 1]]
    away = open_model(options={"arithmetic": "tflite-reference"})
    assert away.plain(HALF)["b"].tolist() == [[2, 0]]
    assert away.facts.options == {"arithmetic": "tflite-reference"}


def test_an_arithmetic_out_of_a_file_is_recorded_with_what_it_says(tmp_path):
    path = tmp_path / "npu.toml"
    path.write_text(arithmetic_text({"quantize": parse_variant("steps=div,zp,even,sat")}, name="npu"))
    run = open_model(options={"arithmetic": str(path)})
    assert run.plain(HALF)["b"].tolist() == [[2, 0]]  # 1.5 and 0.5, with the zero point 1 inside
    assert run.facts.options == {"arithmetic": str(path), "variants": "quantize: steps=div,zp,even,sat"}


@pytest.mark.parametrize(
    ("options", "named"),
    [({"arithmetic": "up"}, "no arithmetic 'up'.*nown arithmetics are"), ({"threads": "4"}, "no option 'threads'")],
)
def test_wrong_options_are_named(options, named):
    with pytest.raises(UsageError, match=named):
        open_model(options=options)


def test_wrong_taps_are_named():
    with pytest.raises(UsageError, match="'some'; expected one of: faithful"):
        open_model(taps="some")


def test_a_recording_without_weights_is_refused_before_anything_runs():
    with pytest.raises(UsageError, match=r"'w', which node 'mm' .* 'tiny.onnx'") as error:
        open_model(model=model(weights=False))
    assert "--no-weights" in error.value.hint


def test_an_unknown_operator_is_refused_before_anything_runs():
    with pytest.raises(NoKernelError, match="Warp of node 'mm'"):
        open_model(model=model(op="Warp"))


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(KernelError, match=r"'mm' \(MatMul\).*float32\[1, 3\]"):
        open_model().plain({"x": np.zeros((1, 3), np.float32)})


def test_a_planted_fault_is_recorded_and_admitted():
    def zeros(arrays):
        return tuple(np.zeros_like(array) for array in arrays)

    run, recorder = open_model(faults={"mm": zeros}), Recorder()
    run.record(Feeds(samples=1), recorder)
    assert not recorder.kept["a", 0, 0].any()
    assert recorder.kept["b", 0, 0].tolist() == [[1, 1]]
    assert run.plain({"x": X})["b"].tolist() == [[1, 1]]
    assert run.facts.options["faults"] == "mm"
    with pytest.raises(UsageError, match="'nowhere', but the graph has no such node"):
        open_model(faults={"nowhere": zeros})


def test_closing_twice_is_safe():
    run = open_model()
    run.close()
    run.close()
    assert run.plain({"x": X})["b"].shape == (1, 2)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="There is no model file"):
        load_backend("interpreter").open(tmp_path / "none.onnx", options={})


DIGITS = Path(__file__).resolve().parents[3] / "samples" / "digits"


@pytest.mark.parametrize("form", ["qdq.per_tensor", "qdq.per_channel", "qoperator.per_tensor", "qoperator.per_channel"])
def test_int8_digits_agree_with_onnx_runtime(form, mlas):
    pytest.importorskip("onnx")
    ort = pytest.importorskip("onnxruntime")
    if mlas != "ort-mlas":
        pytest.skip("sums of this processor saturate in 16 bits, but for depthwise convolutions")
    path = DIGITS / f"digits.{form}.onnx"
    digits = np.load(DIGITS / "digits_test.npz")
    x = digits["x"][:64]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    run = load_backend("interpreter").open(path, options={})
    ours = run.plain({"x": x})["logits"]
    if form.startswith("qoperator"):
        np.testing.assert_array_equal(ours, theirs)  # integer arithmetic, bit for bit
    else:
        # Float arithmetic between Q and DQ: a value near a tie may take the next code, of 0.216.
        assert np.abs(ours - theirs).max() < 0.3
    assert (ours.argmax(1) == digits["y"][:64]).mean() > 0.9


def test_a_replay_of_a_replay_is_the_same():
    net = open_recording(data.INT8_NET)
    picture = {"x": np.load(data.INPUTS)["x"][3]}
    first = recorded(load_backend("interpreter").open(net, options={}), picture)
    again = recorded(load_backend("interpreter").open(first, options={}), picture)
    assert list(again.names) == list(first.names)
    assert set(net.names) == set(first.names)
    for name in net.names:
        assert again.load(name).tobytes() == first.load(name).tobytes()
        assert again.graph.tensors[name].quant == net.graph.tensors[name].quant
    assert again.info.fidelity is Fidelity.BIT_EQUAL
    assert first.graph.tensors["conv1_quantized"].quant.dtype == "uint8"


def recorded(run, feed):
    """Record one sample in memory, and check it against a plain run."""
    with qdebug.Recorder(None, backend="interpreter", graph=run.graph) as recorder:
        for name, array in run.constants():
            recorder.constant(name, array)
        feeds = Feeds(samples=1)
        feeds.feed = lambda sample, step=0: feed
        run.record(feeds, recorder)
        recorder.outputs(*run.outputs)
        recorder.check(run.plain(feed))
    return recorder.recording


@pytest.mark.parametrize(
    ("backend", "seen", "nodes"),
    [("npu", ("y",), 1), ("npu", ("y", "real"), 3), ("interpreter", ("y", "real"), 1)],
    ids=["fused", "use another arithmetic", "replayed node by node"],
)
def test_what_a_backend_computed_apart_its_twin_computes_apart(backend, seen, nodes):
    chain = [
        Node(name="dq", op="DequantizeLinear", inputs=("x", "s", "z"), outputs=("xf",)),
        Node(name="act", op="Sigmoid", inputs=("xf",), outputs=("real",)),
        Node(name="q", op="QuantizeLinear", inputs=("real", "s", "z"), outputs=("y",)),
    ]
    tensors = [TensorInfo(name=name, dtype="int8", quant=QUANT) for name in "xy"]
    tensors += [TensorInfo(name=name, role=Role.CONSTANT) for name in "sz"]
    graph = Graph(chain, inputs=["x"], outputs=["y"], tensors=tensors, opset={"": 13})
    codes = np.zeros((1, 2), np.int8)
    arrays = {"x": codes, "s": np.float32(0.5).reshape(()), "z": np.array(1, np.int8)}
    arrays |= {name: codes if name == "y" else codes.astype(np.float32) for name in seen}
    recording = MemoryRecording.single(graph, arrays, RunInfo(backend=backend))
    run = load_backend("interpreter").open(recording, options={"arithmetic": "ort-mlas"})
    assert len(run.graph.nodes) == nodes
