"""The recorder's contract: only put() is required, facts add up, nothing half-written stays."""

import ml_dtypes
import numpy as np
import pytest

import qdebug
from qdebug.errors import GraphError, OutputExistsError, RecordingError, UsageError
from qdebug.model import Fidelity, Graph, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.recording.format.facts import decode_info
from qdebug.recording.reading.read import FileRecording


def test_only_put_is_needed(record):
    recording = record(lambda rec: rec.put("y", np.arange(3, dtype=np.float32)))
    assert isinstance(recording, qdebug.Recording)
    assert recording.load("y").tolist() == [0, 1, 2]
    assert recording.names == ("y",)
    assert (recording.samples, recording.steps) == (1, 1)
    (node,) = recording.graph.nodes
    assert (node.name, node.op, node.inputs, node.outputs) == ("y", "Unknown", (), ("y",))
    info = recording.info
    assert (info.backend, info.taps, info.complete, info.fidelity) == ("test", "put", True, Fidelity.UNKNOWN)
    assert info.created.endswith("+00:00")
    assert {"python", "qdebug", "numpy", "h5py", "platform", "cpu"} <= info.versions.keys()


def test_every_fact_of_the_contract_comes_back(record):
    def body(rec):
        rec.constant("conv1.weight", np.ones((2, 1, 3, 3), np.int8), scale=[0.5, 0.25], zero_point=0, axis=0)
        rec.put("x", np.zeros((1, 1, 4, 4), np.float32))
        rec.put(
            "conv1_out",
            np.zeros((1, 2, 4, 4), np.int8),
            node="conv1",
            op="Conv",
            inputs=("x", "conv1.weight"),
            attrs={"pads": [1, 1, 1, 1], "auto_pad": b"NOTSET", "alpha": np.float32(0.5)},
            domain="my",
            origin=("conv", "relu"),
            placement="npu: tiled",
            scale=np.float32(0.02),
            zero_point=-3,
            qmin=-127,
            qmax=127,
            multiplier=1 << 30,
            shift=4,
            layout="NCHW",
            stands_for="conv1",
        )
        rec.outputs("conv1_out")

    graph = record(body, model="net.onnx", model_sha256="ab").graph
    assert graph.nodes == (
        Node(
            name="conv1",
            op="Conv",
            inputs=("x", "conv1.weight"),
            outputs=("conv1_out",),
            attrs={"pads": (1, 1, 1, 1), "auto_pad": "NOTSET", "alpha": 0.5},
            domain="my",
            origin=("conv", "relu"),
            placement="npu: tiled",
        ),
    )
    assert (graph.inputs, graph.outputs, graph.name) == (("x",), ("conv1_out",), "net.onnx")
    assert graph.tensors["conv1_out"] == TensorInfo(
        name="conv1_out",
        shape=(1, 2, 4, 4),
        dtype="int8",
        role=Role.OUTPUT,
        layout="NCHW",
        stands_for="conv1",
        quant=QuantParams(
            dtype="int8", scale=np.float32(0.02), zero_point=-3, qmin=-127, qmax=127, multiplier=1 << 30, shift=4
        ),
    )
    assert graph.tensors["conv1.weight"].quant == QuantParams(dtype="int8", scale=[0.5, 0.25], axis=0)
    assert graph.tensors["conv1.weight"].role is Role.CONSTANT
    assert graph.tensors["x"].role is Role.INPUT


def test_samples_and_steps(record):
    def body(rec):
        rec.constant("w", [1.5])
        for sample in range(3):
            for step in range(2):
                rec.put("h", np.array([sample, step]))
                rec.next_step()
            rec.next_sample()

    recording = record(body)
    assert (recording.samples, recording.steps) == (3, 2)
    assert recording.load("h", 2, 1).tolist() == [2, 1]
    assert recording.load("w", 2, 1).tolist() == [1.5]


def test_any_order_of_samples(record):
    def body(rec):
        for sample, step in [(1, 1), (0, 0), (1, 0), (0, 1)]:
            rec.at(sample, step)
            rec.put("h", np.array(10 * sample + step))

    recording = record(body)
    assert [int(recording.load("h", sample, step)) for sample in (0, 1) for step in (0, 1)] == [0, 1, 10, 11]


def test_a_buffer_may_be_overwritten_after_put(record):
    def body(rec):
        buffer = np.zeros(4, dtype=np.float32)
        for number in range(3):
            buffer[:] = number
            rec.put(f"t{number}", buffer)
            rec.put(f"v{number}", memoryview(buffer))
        buffer[:] = -1

    recording = record(body)
    for number in range(3):
        assert set(recording.load(f"t{number}").tolist()) == {number}
        assert set(recording.load(f"v{number}").tolist()) == {number}


def test_facts_may_be_said_once_or_repeated(record):
    def body(rec):
        rec.put("a", np.zeros(2, np.int8), scale=0.5, node="n", op="Relu", inputs=["x"], attrs={"k": 1})
        rec.next_sample()
        rec.put("a", np.ones(2, np.int8))
        rec.next_sample()
        rec.put("a", np.ones(2, np.int8), scale=0.5, node="n", op="Relu", inputs=("x",), attrs={"k": 1})

    recording = record(body)
    assert recording.graph.tensors["a"].quant == QuantParams(dtype="int8", scale=0.5)
    assert [node.name for node in recording.graph.nodes] == ["n"]


FIRST = {"node": "n", "op": "Relu", "inputs": ("x",), "attrs": {"k": 1}, "scale": 0.5, "layout": "NCHW"}


@pytest.mark.parametrize(
    "change",
    [
        {"op": "Clip"},
        {"attrs": {"k": 2}},
        {"inputs": ("y",)},
        {"node": "m"},
        {"layout": "NHWC"},
        {"dtype": "int32"},
    ],
    ids=str,
)
def test_contradictions_are_refused_by_name_and_leave_no_trace(record, change):
    def body(rec):
        rec.put("a", np.zeros(2, np.int8), **FIRST)
        rec.next_sample()
        with pytest.raises(RecordingError, match=r"'[an]'"):
            rec.put("a", np.full(2, 7, np.int8), **{**FIRST, **change})
        rec.put("a", np.ones(2, np.int8), **FIRST)

    recording = record(body)
    assert recording.load("a", 1).tolist() == [1, 1]
    assert recording.graph.nodes == (Node(name="n", op="Relu", inputs=("x",), outputs=("a",), attrs={"k": 1}),)


def test_a_tensor_is_put_once_for_each_sample_and_step(record):
    def body(rec):
        rec.constant("w", np.zeros(1))
        rec.put("a", np.zeros(1))
        with pytest.raises(RecordingError, match=r"'a' was put twice for sample 0, step 0"):
            rec.put("a", np.ones(1))
        with pytest.raises(RecordingError, match="'w' was recorded twice"):
            rec.constant("w", np.zeros(1))
        with pytest.raises(RecordingError, match="'a' was recorded twice"):
            rec.constant("a", np.zeros(1))
        with pytest.raises(RecordingError, match="'w' is a constant"):
            rec.put("w", np.zeros(1))
        rec.next_step()
        rec.put("a", np.ones(1))

    assert record(body).load("a").tolist() == [0]


def test_what_cannot_be_recorded_leaves_no_trace(record):
    def body(rec):
        rec.put("x", np.zeros(1))
        for bad, keys in [
            (np.array(["text"]), {}),
            (np.array([object()]), {}),
            (np.zeros(2, dtype=np.longdouble) if np.dtype(np.longdouble).itemsize > 8 else None, {}),
            (np.zeros((1,) * 33), {}),
            (np.zeros(3), {"attrs": {"odd": object()}}),
            (np.zeros(3), {"attrs": {"odd": [1, "a"]}}),
            (np.zeros(3, np.int8), {"zero_point": 1}),
            (np.zeros(3, np.int8), {"scale": [0.1, 0.2], "axis": 0}),
            (np.zeros(3, np.int8), {"scale": [0.1, 0.2, 0.3]}),
            (np.zeros(3, np.int8), {"scale": 0.1, "axis": 1}),
            (np.zeros(3, np.int8), {"scale": 0.1, "qmax": 300}),
            (np.zeros(3, np.int8), {"scale": 0.1, "zero_point": 0.5}),
        ]:
            with pytest.raises(RecordingError, match="'bad"):
                rec.put("bad", bad, node="bad node", op="Op", **keys)
        rec.put("y", np.zeros(1), op="Relu", inputs="x")

    recording = record(body)
    assert recording.names == ("x", "y")
    assert [node.op for node in recording.graph.nodes] == ["Relu"]
    assert "bad" not in recording.graph.tensors


def test_nothing_recorded_is_an_error_and_leaves_nothing(tmp_path, path):
    with pytest.raises(RecordingError, match="no tensor was put"), qdebug.Recorder(path, backend="t") as rec:
        rec.constant("w", np.zeros(3))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RecordingError, match="no tensor was put"):
        qdebug.Recorder(None, backend="t").close()


def fail(path, error, meanwhile):
    """Record into a file until an error ends it."""
    with qdebug.Recorder(path, backend="t") as rec:
        meanwhile(rec)
        raise error


def test_an_exception_keeps_what_was_recorded(path):
    with pytest.raises(ZeroDivisionError):
        fail(path, ZeroDivisionError, lambda rec: rec.put("a", np.ones(2)))
    with FileRecording(path) as recording:
        assert recording.info.complete is False
        assert recording.load("a").tolist() == [1, 1]


def test_an_exception_before_anything_leaves_nothing(tmp_path, path):
    with pytest.raises(KeyboardInterrupt):
        fail(path, KeyboardInterrupt, lambda rec: rec.constant("w", np.ones(2)))
    assert list(tmp_path.iterdir()) == []


def test_the_first_error_is_the_one_raised(tmp_path, path):
    def meanwhile(rec):
        rec.put("a", np.ones(2))
        path.write_text("somebody else's")

    with pytest.raises(ZeroDivisionError) as caught:
        fail(path, ZeroDivisionError, meanwhile)
    assert "exists" in "".join(caught.value.__notes__)
    assert path.read_text() == "somebody else's"


def test_discard_leaves_nothing(tmp_path, path):
    with qdebug.Recorder(path, backend="t") as rec:
        rec.put("a", np.ones(2))
        rec.discard()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda rec: rec.put("b", [1]),
        lambda rec: rec.constant("b", [1]),
        lambda rec: rec.next_sample(),
        lambda rec: rec.next_step(),
        lambda rec: rec.at(0),
        lambda rec: rec.skip("b", "why"),
        lambda rec: rec.outputs("a"),
        lambda rec: rec.check({"a": [1]}),
    ],
)
def test_after_close_every_method_raises(call):
    with qdebug.Recorder(None, backend="t") as rec:
        rec.put("a", [1.0])
    with pytest.raises(RecordingError, match="closed"):
        call(rec)
    rec.discard()
    rec.close()
    assert rec.recording.names == ("a",)


def test_the_recording_of_a_path_is_in_its_file(path):
    with qdebug.Recorder(path, backend="t") as rec:
        rec.put("a", [1.0])
        with pytest.raises(UsageError, match="recording to"):
            _ = rec.recording
    with pytest.raises(UsageError, match="still open"):
        _ = qdebug.Recorder(None, backend="t").recording


def test_an_existing_file_is_safe_without_force(path):
    path.write_text("precious")
    with pytest.raises(OutputExistsError, match="exists"):
        qdebug.Recorder(path, backend="t")
    assert path.read_text() == "precious"
    with qdebug.Recorder(path, backend="t", force=True) as rec:
        rec.put("a", [1.0])
        assert path.read_text() == "precious"
    assert FileRecording(path).names == ("a",)


# -- fidelity


def test_check_compares_bit_for_bit(record):
    nan = np.array([0x7FC00001, 0x80000000], np.uint32).view(np.float32)

    def body(rec):
        for _ in range(2):
            rec.put("y", nan)
            rec.check({"y": nan.copy()})
            assert rec.fidelity is Fidelity.BIT_EQUAL
            rec.next_sample()
        rec.put("y", nan)

    info = record(body).info
    assert info.fidelity is Fidelity.BIT_EQUAL
    assert "2 of 3 recorded runs" in info.fidelity_detail


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        (np.array([[1, 2.5], [3, 4]], np.float32), "1 of 4 elements, by up to 0.5 at [0, 1]"),
        (np.array([[1, 2], [np.nan, 4]], np.float32), "by up to inf at [1, 0]"),
        (np.array([[1, 2]], np.float32), "float32[2, 2], but is float32[1, 2]"),
        (np.array([[1, 2], [3, 4]], np.float64), "float32[2, 2], but is float64[2, 2]"),
    ],
    ids=["value", "nan", "shape", "dtype"],
)
def test_check_says_how_far_and_where(record, plain, said):
    def body(rec):
        rec.put("y", np.array([[1, 2], [3, 4]], np.float32))
        rec.next_sample()
        rec.put("y", np.array([[1, 2], [3, 4]], np.float32))
        rec.check({"y": plain})
        rec.at(0)
        rec.check({"y": np.array([[1, 2], [3, 4]], np.float32)})
        assert rec.fidelity is Fidelity.DIFFERS

    info = record(body).info
    assert info.fidelity is Fidelity.DIFFERS
    assert said in info.fidelity_detail
    assert "'y' of sample 1" in info.fidelity_detail
    assert "in 1 of the 2 runs" in info.fidelity_detail


def test_check_reads_the_same_bit_patterns_as_put(record):
    bits = np.array([0x3F80, 0x7FC1], np.uint16)

    def body(rec):
        rec.put("y", bits, dtype="bfloat16")
        rec.check({"y": bits})
        rec.check({"y": bits.view(ml_dtypes.bfloat16)})

    recording = record(body)
    assert recording.info.fidelity is Fidelity.BIT_EQUAL
    assert recording.load("y").dtype == ml_dtypes.bfloat16


def test_check_asks_for_what_was_recorded(record):
    def body(rec):
        rec.put("y", [1.0])
        with pytest.raises(UsageError, match="needs a dict of outputs"):
            rec.check({})
        with pytest.raises(RecordingError, match="'z' was not recorded for sample 0"):
            rec.check({"z": [1.0]})
        rec.next_sample()
        with pytest.raises(RecordingError, match="'y' was not recorded for sample 1"):
            rec.check({"y": [1.0]})

    assert record(body).info.fidelity is Fidelity.UNKNOWN


# -- the graph


def test_several_puts_may_name_one_node(record):
    def body(rec):
        rec.put("x", [1.0])
        rec.put("b", [1.0], node="split", op="Split", inputs=("x",))
        rec.put("a", [1.0], node="split")

    (node,) = record(body).graph.nodes
    assert (node.op, node.inputs, node.outputs) == ("Split", ("x",), ("b", "a"))


def test_a_given_graph_is_kept_and_added_to(record):
    given = Graph(
        [Node(name="n", op="Relu", inputs=("x",), outputs=("y",), attrs={"k": 1})],
        tensors=[TensorInfo(name="y", shape=(None, 2))],
        inputs=("x",),
        outputs=("y",),
        name="net",
        opset={"": 20},
    )

    def body(rec):
        with pytest.raises(RecordingError, match="the graph has 'Relu'"):
            rec.put("y", np.zeros((1, 2), np.int8), op="Clip")
        with pytest.raises(RecordingError, match="but no node of the graph computes it"):
            rec.put("x", np.zeros((1, 2)), op="Clip")
        rec.put("x", np.zeros((1, 2)))
        rec.put("y", np.zeros((1, 2), np.int8), scale=0.5, node="n", op="Relu")
        rec.put("extra", np.zeros(3), op="Sum", inputs=("y",))

    graph = record(body, graph=given).graph
    assert graph.nodes[0] == given.nodes[0]
    assert (graph.nodes[1].name, graph.nodes[1].op, graph.nodes[1].inputs) == ("extra", "Sum", ("y",))
    assert (graph.inputs, graph.outputs, graph.name, dict(graph.opset)) == (("x",), ("y",), "net", {"": 20})
    assert graph.tensors["y"].shape == (None, 2)
    assert graph.tensors["y"].quant == QuantParams(dtype="int8", scale=0.5)
    assert graph.tensors["x"].shape == (1, 2)


def test_a_loop_is_refused_when_it_is_put(record):
    def body(rec):
        with pytest.raises(GraphError, match="reads 'h'"):
            rec.put("h", [1.0], op="Cell", inputs=("x", "h"))
        rec.put("b", [1.0], op="Op", inputs=("a",))
        with pytest.raises(GraphError, match="reads 'b'"):
            rec.put("a", [1.0], op="Op", inputs=("b",))
        rec.put("a", [1.0])

    assert [node.name for node in record(body).graph.nodes] == ["b"]


def test_skipped_tensors_and_missing_outputs_are_listed(record):
    def body(rec):
        rec.put("a", [1.0])
        rec.skip("big", "too large")
        rec.outputs("a", "gone")

    recording = record(body)
    assert recording.info.skipped["big"] == "too large"
    assert "never put" in recording.info.skipped["gone"]
    assert recording.graph.outputs == ("a", "gone")


@pytest.mark.parametrize("cause", ["fused", "folded", "view", "unsupported", None])
def test_why_a_tensor_is_skipped_is_kept_in_a_word(tmp_path, cause):
    with qdebug.Recorder(tmp_path / "a.h5", backend="npu") as rec:
        rec.put("x", np.float32([1]))
        rec.skip("t", "the compiler fused it away", because=cause)
    info = qdebug.open_recording(tmp_path / "a.h5").info
    assert info.skipped == {"t": "the compiler fused it away"}
    assert info.skip_causes == ({} if cause is None else {"t": cause})
    assert set(info.never_made()) == ({"t"} if cause in ("fused", "folded", "view") else set())


def test_a_word_that_is_no_cause_is_refused(record):
    def steps(rec):
        with pytest.raises(UsageError, match="because='gone'; expected one of 'fused', 'folded', 'view'"):
            rec.skip("t", "why", because="gone")
        rec.put("x", np.float32([1]))

    assert record(steps).info.skipped == {}


def test_a_reason_decides_nothing_of_a_new_recording_and_the_cause_of_an_old_one():
    facts = {**RunInfo(backend="x", skipped={"t": "it is never made: conv computes it"}).to_dict()}
    old = decode_info(
        {"info": {name: value for name, value in facts.items() if name != "skip_causes"}}, is_complete=True
    )
    assert (old.skipped, old.skip_causes) == ({"t": "conv computes it"}, {"t": "fused"})
    new = decode_info({"info": facts}, is_complete=True)
    assert (new.skipped, new.skip_causes) == ({"t": "it is never made: conv computes it"}, {})


def test_the_last_word_holds_of_what_is_skipped_and_put(record):
    def body(rec):
        rec.skip("late", "too large")
        rec.put("late", [1.0])
        rec.put("given_up", [1.0])
        rec.skip("given_up", "too slow")

    recording = record(body)
    assert recording.info.skipped == {"given_up": "too slow"}
    assert recording.load("late").tolist() == recording.load("given_up").tolist() == [1.0]


def test_what_is_put_by_name_alone_is_looked_at_again_where_it_differs(tmp_path):
    """A tensor that comes as before is neither checked nor noted; one of another shape, dtype or kind is."""
    with qdebug.Recorder(tmp_path / "run.h5", backend="test") as rec:
        for count in (2, 2, 3, 2):
            rec.put("x", np.zeros(count, np.float32))
            rec.put("y", [1.0] * count)
            rec.next_sample()
        with pytest.raises(RecordingError, match=r"dtype 'float32', and now with 'int8'"):
            rec.put("x", np.zeros(2, np.int8))
        with pytest.raises(RecordingError, match="does not support"):
            rec.put("x", np.array(["a", "b"]))
        rec.put("x", np.zeros(2, ">f4"))
        rec.put("y", np.full(2, 2.0), scale=0.5)
    with FileRecording(tmp_path / "run.h5") as made:
        assert made.graph.tensors["x"].shape == (None,)
        assert made.graph.tensors["y"].quant is not None
        assert made.load("x", 2).shape == (3,)
        assert made.load("y", 3).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("put", [True, False])
def test_a_run_that_breaks_leaves_an_unfinished_recording_or_nothing(tmp_path, put):
    rec = qdebug.Recorder(tmp_path / "run.h5", backend="b")

    def run():
        with rec:
            if put:
                rec.put("x", np.ones(2))
            raise KeyError("x")

    with pytest.raises(KeyError):
        run()
    assert rec.holds_anything == put
    assert [entry.name for entry in tmp_path.iterdir()] == (["run.h5"] if put else [])
    if put:
        with FileRecording(tmp_path / "run.h5") as recording:
            assert not recording.info.complete


def test_a_recorder_ends_once(tmp_path):
    """Whatever comes after its end does nothing: neither closing again, nor discarding what is finished."""
    rec = qdebug.Recorder(tmp_path / "run.h5", backend="b")
    rec.put("x", np.ones(2))
    rec.close()
    for end in (rec.close, rec.discard, rec.close):
        end()
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.h5"]
    other = qdebug.Recorder(tmp_path / "other.h5", backend="b")
    assert not other.holds_anything
    other.put("x", np.ones(2))
    assert other.holds_anything
    other.discard()
    for end in (other.discard, other.close):
        end()
    assert not other.holds_anything
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.h5"]
