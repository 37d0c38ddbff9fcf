"""Imports: names, types and shapes held against a graph; what does not fit is recorded as dumped, and said."""

import json
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qdebug
from qdebug.errors import OutputExistsError, QdebugError, RecordingError, UsageError
from qdebug.importing.import_dump import import_dump
from qdebug.model import Graph, Node, QuantParams, Role, TensorInfo
from qdebug.present.reports.exports import write_npz
from qdebug.running.random_net import random_recording
from qdebug.running.save import save_recording

SCALE = 0.25


@pytest.fixture
def model(tmp_path):
    """A recording of x -> conv -> y -> relu -> z, int8, with odd names."""
    path = tmp_path / "model.h5"
    with qdebug.Recorder(path, backend="ref", model="net") as rec:
        rec.constant("w", np.ones((2, 2), np.int8), scale=[0.5, 0.125], zero_point=0, axis=0)
        rec.put("x:0", np.zeros((1, 2), np.float32))
        rec.put("net/y", np.zeros((1, 2, 3, 1), np.int8), node="fc", op="Custom", inputs=("x:0", "w"), scale=SCALE)
        rec.put("z", np.zeros((1, 2), np.float16), node="out", op="Custom", inputs=("net/y",))
        rec.outputs("z")
    return path


def imported(tmp_path, model, *, form=None, **arrays):
    """Import arrays by name; give the summary and the recording."""
    np.savez(tmp_path / "dump.npz", **arrays)
    summary = import_dump(tmp_path / "dump.npz", tmp_path / "out.h5", graph=model, force=True, form=form)
    return summary, qdebug.open_recording(tmp_path / "out.h5")


def test_without_a_graph_tensors_stand_alone(tmp_path):
    summary, recording = imported(tmp_path, None, a=np.float32([1, 2]), b=np.int8([3]))
    assert (summary.tensors, summary.form, summary.absent) == (2, "arrays", [])
    assert recording.load("b").tolist() == [3]
    assert (str(recording.info.fidelity), recording.info.taps) == ("unknown", "import")
    assert recording.info.versions["cpu"] == "unknown"
    assert not recording.info.cpu_flags


def test_a_graph_gives_nodes_weights_and_scales_and_what_is_absent_is_listed(tmp_path, model):
    summary, recording = imported(tmp_path, model, x_0=np.zeros((1, 2), np.float32), fc=Y, extra=Y)
    assert [(m.name, m.tensor, m.how) for m in summary.matched] == [("x_0", "x:0", "cleaned"), ("fc", "net/y", "node")]
    assert summary.unmatched == {"extra": "the model has no tensor with this name"}
    assert summary.absent == ["z"]
    assert recording.info.skipped["z"] == "the dump has no values for it"
    assert summary.constants == 1
    assert np.array_equal(recording.load("w"), np.ones((2, 2)))
    info = recording.graph.tensors["net/y"]
    assert (info.quant.scale[0], recording.graph.producer("net/y").op) == (SCALE, "Custom")
    assert "are not in the graph" in recording.info.options["note"]


Y = np.arange(6, dtype=np.int8).reshape(1, 2, 3, 1)


@pytest.mark.parametrize(
    ("array", "dtype", "quantized", "note"),
    [
        (Y, "int8", True, None),
        (Y[0, :, :, 0], "int8", True, "axes of size 1 as in the model"),
        ((Y * SCALE).astype(np.float32), "int8", True, "all lie on the grid of the codes; recorded as int8 codes"),
        ((Y * SCALE + 0.01).astype(np.float32), "float32", False, "float32 values off their grid"),
        ((Y * 60.0).astype(np.float32), "float32", False, "off their grid"),
        (np.full(Y.shape, np.nan, np.float32), "float32", False, "off their grid"),
        (Y.astype(np.uint8), "uint8", False, "but uint8 in the dump; its scale does not apply"),
        (
            Y.transpose(0, 3, 2, 1),
            "int8",
            True,
            "but [1, 1, 3, 2] in the dump (the axes may be transposed); recorded as dumped",
        ),
        (Y.reshape(-1), "int8", True, "but [6] in the dump (the same number of elements); recorded as dumped"),
        (np.zeros((1, 5), np.int8), "int8", True, "but [1, 5] in the dump (a different size); recorded as dumped"),
    ],
)
def test_values_that_do_not_fit_the_graph_are_said(tmp_path, model, array, dtype, quantized, note):
    summary, recording = imported(tmp_path, model, **{"net/y": array})
    info = recording.graph.tensors["net/y"]
    assert (info.dtype, info.quant is not None) == (dtype, quantized)
    assert (note is None and not summary.notes) or note in summary.notes["net/y"]
    stored = recording.load("net/y")
    real = stored * np.float32(SCALE) if quantized and array.dtype == np.float32 else stored
    assert np.array_equal(real.reshape(-1), array.reshape(-1), equal_nan=True)


def test_a_narrower_float_stays_what_was_dumped(tmp_path, model):
    summary, recording = imported(tmp_path, model, z=np.zeros((1, 2), np.float32))
    assert recording.graph.tensors["z"].dtype == "float32"
    assert summary.notes["z"] == "the type is float16 in the model, but float32 in the dump"


def test_types_that_numpy_cannot_name_come_from_the_graph(tmp_path):
    import ml_dtypes

    values = np.array([1, -2.5], ml_dtypes.bfloat16)
    with qdebug.Recorder(tmp_path / "m.h5", backend="ref") as rec:
        rec.put("a", values)
        rec.put("b", values)
        rec.put("c", values)
        rec.put("i", np.array([-8, 7], ml_dtypes.int4), scale=1.0)
    given = {"a": values.view("V2"), "b": values.astype(np.float32), "c": np.float32([1, 2.501]), "i": np.int8([1, 2])}
    summary, recording = imported(tmp_path, tmp_path / "m.h5", **given)
    kinds = {name: recording.graph.tensors[name].dtype for name in "abci"}
    assert kinds == {"a": "bfloat16", "b": "bfloat16", "c": "float32", "i": "int4"}
    assert recording.load("a").tobytes() == recording.load("b").tobytes() == values.tobytes()
    assert summary.notes["c"] == "the type is bfloat16 in the model, but float32 in the dump"
    with pytest.raises(UsageError, match="has 2-byte elements of type"):
        imported(tmp_path, None, a=values.view("V2"))


def test_a_weight_of_the_dump_replaces_the_models(tmp_path, model):
    real = np.float32([[0.5, 1], [0.25, 0.125]])
    _, recording = imported(tmp_path, model, w=real, z=np.zeros((1, 2), np.float16))
    assert recording.load("w").tolist() == [[1, 2], [2, 1]]
    summary, recording = imported(tmp_path, model, w=np.ones((2, 4), np.int8), z=np.zeros((1, 2), np.float16))
    assert "without the scales of its channels" in summary.notes["w"]
    assert recording.graph.tensors["w"].quant is None


def test_codes_are_taken_from_real_values_only_if_all_samples_bear_it_out(tmp_path, model):
    for sample, off in enumerate((0, 0.01)):
        np.savez(tmp_path / f"s{sample}.npz", **{"net/y": (Y * SCALE + off).astype(np.float32)})
    (tmp_path / "d").mkdir()
    for sample in (0, 1):
        (tmp_path / f"s{sample}.npz").rename(tmp_path / "d" / f"s{sample}.npz")
    import_dump(tmp_path / "d", tmp_path / "out.h5", graph=model)
    recording = qdebug.open_recording(tmp_path / "out.h5")
    assert (recording.samples, recording.graph.tensors["net/y"].dtype) == (2, "float32")


def test_a_description_says_what_the_graph_does_not(tmp_path, model):
    (tmp_path / "y.raw").write_bytes(Y.astype("<i2").tobytes())
    (tmp_path / "x.raw").write_bytes(bytes(8))
    tensors = [
        {"file": "y.raw", "tensor": "net/y", "dtype": "int16", "scale": 0.5, "zero_point": 1, "layout": "NHWC"},
        {"file": "x.raw", "tensor": "x:0", "dtype": "float32"},
    ]
    (tmp_path / "d.json").write_text(json.dumps({"format": "qdebug.dump", "version": 1, "tensors": tensors}))
    summary = import_dump(tmp_path / "d.json", tmp_path / "out.h5", graph=model)
    recording = qdebug.open_recording(tmp_path / "out.h5")
    info = recording.graph.tensors["net/y"]
    assert (info.dtype, info.quant.scale[0], info.quant.zero_point[0], info.layout) == ("int16", 0.5, 1, "NHWC")
    assert recording.load("net/y").shape == (1, 2, 3, 1)
    assert "its quantization comes from the description, not from the model" in summary.notes["net/y"]
    assert "x:0" not in summary.notes
    assert recording.load("x:0").shape == (1, 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scale": [1, 2]}, "2 scales need an axis"),
        ({"scale": "much"}, "scale must be numeric"),
        ({"zero_point": 3}, "without a scale"),
        ({"node": "a", "inputs": "a", "op": "Relu"}, "computed from its own output"),
        ({"node": 3}, "expected a string"),
        ({"attrs": [1]}, "attrs of type list"),
        ({"attrs": {"a": {"b": 1}}}, "is a dict"),
        ({"dtype": "int4"}, "cannot represent its int8 values"),
    ],
)
def test_facts_that_make_no_sense_leave_nothing_behind(tmp_path, change, said):
    np.save(tmp_path / "a.npy", np.int8([100]))
    entry = {"file": "a.npy", "tensor": "a", **change}
    (tmp_path / "d.json").write_text(json.dumps({"format": "qdebug.dump", "version": 1, "tensors": [entry]}))
    with pytest.raises(QdebugError) as caught:
        import_dump(tmp_path / "d.json", tmp_path / "out.h5")
    assert said in caught.value.message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "d.json"]


@pytest.mark.parametrize(
    ("entry", "run", "said"),
    [
        ({"scale": math.nan}, {}, "NaN, which is not a JSON number"),
        ({}, {"outputs": ["b"]}, "the output 'b' is not a tensor of the dump"),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(tmp_path, entry, run, said):
    np.save(tmp_path / "a.npy", np.int8([100]))
    plain = {"format": "qdebug.dump", "version": 1, "tensors": [{"file": "a.npy", **entry}], **run}
    (tmp_path / "d.json").write_text(json.dumps(plain))
    with pytest.raises(UsageError) as caught:
        import_dump(tmp_path / "d.json", tmp_path / "out.h5")
    assert said in caught.value.message


def test_a_sample_without_some_tensor_is_said(tmp_path):
    for number, names in enumerate([("a", "b"), ("a",), ("a", "b")]):
        (tmp_path / f"dump/sample{number}").mkdir(parents=True)
        for name in names:
            np.save(tmp_path / f"dump/sample{number}/{name}.npy", np.float32([number]))
    summary = import_dump(tmp_path / "dump", tmp_path / "out.h5")
    assert summary.notes == {"b": "it has values for 2 of 3 samples and steps; none for sample 1, step 0"}


def test_what_a_recording_says_is_never_made_is_not_missing_in_a_dump_of_the_same_net(tmp_path):
    nodes = [Node(name=f"n{i}", op="Relu", inputs=(a,), outputs=(b,)) for i, (a, b) in enumerate(["xt", "ty"])]
    with qdebug.Recorder(tmp_path / "ref.h5", backend="ref", graph=Graph(nodes, inputs=("x",), outputs=("y",))) as rec:
        rec.skip("t", "n1 computes it", because="fused")
        rec.put("x", np.float32([1]))
        rec.put("y", np.float32([1]))
    _, recording = imported(tmp_path, tmp_path / "ref.h5", x=np.float32([1]), y=np.float32([1]))
    result = qdebug.diff(tmp_path / "ref.h5", recording)
    assert (str(result.status), result.exit_code) == ("identical", 0), result.verdict.sentence


def test_nothing_in_common_with_the_graph_is_an_error(tmp_path, model):
    with pytest.raises(UsageError, match="None of the 1 names") as caught:
        imported(tmp_path, model, conv=Y)
    assert "'conv'" in caught.value.message
    assert not (tmp_path / "out.h5").exists()


def test_files_are_not_overwritten_unasked_and_never_the_source(tmp_path, model):
    imported(tmp_path, model, z=Y)
    with pytest.raises(OutputExistsError):
        import_dump(tmp_path / "dump.npz", tmp_path / "out.h5", graph=model)
    for source, graph in ((tmp_path / "dump.npz", model), (model, tmp_path / "dump.npz")):
        with pytest.raises(UsageError, match="would overwrite its source"):
            import_dump(source, tmp_path / "dump.npz", graph=graph, force=True)


def test_an_interrupt_leaves_nothing_behind(tmp_path, model):
    np.savez(tmp_path / "dump.npz", z=Y, w=np.ones((2, 2), np.int8))

    def stop(done, total, label):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_dump(tmp_path / "dump.npz", tmp_path / "out.h5", graph=model, on_progress=stop)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dump.npz", "model.h5"]


def test_samples_of_several_types_are_an_error(tmp_path):
    (tmp_path / "d").mkdir()
    np.savez(tmp_path / "d" / "s0.npz", a=np.int8([1]))
    np.savez(tmp_path / "d" / "s1.npz", a=np.float32([1]))
    with pytest.raises(UsageError, match="but as int8 and float32"):
        import_dump(tmp_path / "d", tmp_path / "out.h5")


@pytest.mark.parametrize("other", [0, 1])
def test_a_constant_in_every_sample_is_one_constant(tmp_path, model, other):
    (tmp_path / "d").mkdir()
    for sample in (0, 1):
        w = np.ones((2, 2), np.int8) + np.int8(other * sample)
        np.savez(tmp_path / "d" / f"s{sample}.npz", w=w, z=np.zeros((1, 2), np.float16))
    if other:
        with pytest.raises(UsageError, match=r"'s0\.npz:w' and 's1\.npz:w' both contain the constant 'w'"):
            import_dump(tmp_path / "d", tmp_path / "out.h5", graph=model)
        return
    import_dump(tmp_path / "d", tmp_path / "out.h5", graph=model)
    recording = qdebug.open_recording(tmp_path / "out.h5")
    assert (recording.samples, recording.load("w").tolist()) == (2, [[1, 1], [1, 1]])


# -- raw files and stated layouts ----------------------------------------------------------------------------------


IMAGE = (np.arange(2 * 20 * 3 * 4) % 101).astype(np.float32).reshape(2, 20, 3, 4)


@pytest.fixture
def conv(tmp_path):
    """A recording of x -> Conv -> y, of channels second, whose x is the image."""
    path = tmp_path / "conv.h5"
    with qdebug.Recorder(path, backend="ref") as rec:
        rec.constant("w", np.ones((20, 20, 1, 1), np.float32))
        rec.put("/in/x", IMAGE)
        rec.put("y", IMAGE.astype(np.int8), node="c", op="Conv", inputs=("/in/x", "w"), scale=1.0, zero_point=0)
        rec.outputs("y")
    return path


def blocked(values, lanes):
    """Lay channels out in blocks, the last one padded, as accelerators do."""
    batch, channels, height, width = values.shape
    outer = -(-channels // lanes)
    wide = np.zeros((batch, outer * lanes, height, width), values.dtype)
    wide[:, :channels] = values
    return wide.reshape(batch, outer, lanes, height, width).transpose(0, 1, 3, 4, 2).copy()


def test_raw_files_have_the_type_and_the_shape_of_the_model(tmp_path, conv):
    (tmp_path / "raw").mkdir()
    IMAGE.tofile(tmp_path / "raw/_in_x.raw")
    IMAGE.tofile(tmp_path / "raw/y.bin")  # float32 of a tensor of codes
    IMAGE.tofile(tmp_path / "raw/other.bin")
    summary = import_dump(tmp_path / "raw", tmp_path / "out.h5", graph=conv)
    recording = qdebug.open_recording(tmp_path / "out.h5")
    assert np.array_equal(recording.load("/in/x"), IMAGE)
    assert (recording.load("y").dtype, recording.load("y").shape) == (np.int8, IMAGE.shape)  # all on the codes' grid
    assert summary.ignored == {"other.bin": "a raw file of unknown type: the model has no tensor with this name"}
    with pytest.raises(UsageError, match="contains no readable tensor"):
        import_dump(tmp_path / "raw", tmp_path / "bare.h5")
    IMAGE[:1].tofile(tmp_path / "raw/_in_x.raw")
    with pytest.raises(UsageError, match="has 960 bytes; the model's tensor '/in/x' is float32 of shape"):
        import_dump(tmp_path / "raw", tmp_path / "short.h5", graph=conv)
    assert not (tmp_path / "short.h5").exists()


@pytest.mark.parametrize(
    ("layout", "stored", "shape"),
    [
        ("NHWC", np.moveaxis(IMAGE, 1, -1), False),
        ("NHWC", np.moveaxis(IMAGE, 1, -1), True),
        ("NC1HWC2", blocked(IMAGE, 16), True),
        ("NC1HWC0", blocked(IMAGE, 8), True),
        ("NCHW16c", blocked(IMAGE, 16), False),
        ("NC4HW4", blocked(IMAGE, 4), False),
    ],
)
def test_a_stated_layout_is_undone(tmp_path, conv, layout, stored, shape):
    np.ascontiguousarray(stored).tofile(tmp_path / "x.raw")
    entry = {"file": "x.raw", "tensor": "/in/x", "dtype": "float32", "layout": layout}
    entry |= {"shape": list(stored.shape), "scale": [1.0] * 20, "axis": stored.ndim - 1} if shape else {}
    entry = {key: value for key, value in entry.items() if stored.ndim == 4 or key not in ("scale", "axis")}
    said = {"format": "qdebug.dump", "version": 1, "tensors": [entry]}
    (tmp_path / "d.json").write_text(json.dumps(said))
    summary = import_dump(tmp_path / "d.json", tmp_path / "out.h5", graph=conv)
    recording = qdebug.open_recording(tmp_path / "out.h5")
    info = recording.graph.tensors["/in/x"]
    assert np.array_equal(recording.load("/in/x"), IMAGE)
    assert info.layout is None
    assert info.quant is None or info.quant.axis == 1
    assert summary.notes["/in/x"] == f"{layout}, transposed to the model's order"


def test_a_layout_holds_for_all_tensors_of_so_many_dimensions(tmp_path, conv):
    turned = np.ascontiguousarray(np.moveaxis(IMAGE, 1, -1))
    np.savez(tmp_path / "d.npz", **{"/in/x": turned, "y": IMAGE.astype(np.int8).transpose(0, 2, 3, 1)})
    import_dump(tmp_path / "d.npz", tmp_path / "out.h5", graph=conv, layout="NHWC")
    recording = qdebug.open_recording(tmp_path / "out.h5")
    assert np.array_equal(recording.load("/in/x"), IMAGE)
    assert np.array_equal(recording.load("y"), IMAGE.astype(np.int8))
    with pytest.raises(UsageError, match="Unknown layout 'CHWN'"):
        import_dump(tmp_path / "d.npz", tmp_path / "other.h5", graph=conv, layout="CHWN")


def test_shapes_that_an_onnx_file_does_not_state_are_inferred(tmp_path):
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "to"], ["r"]), helper.make_node("Relu", ["r"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", 1, (2, 6))],
        [helper.make_tensor_value_info("y", 1, None)],
        [onnx.numpy_helper.from_array(np.int64([3, 4]), "to")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "net.onnx")
    (tmp_path / "raw").mkdir()
    for name in ("r", "y"):
        np.arange(12, dtype=np.float32).tofile(tmp_path / f"raw/{name}.raw")
    import_dump(tmp_path / "raw", tmp_path / "out.h5", graph=tmp_path / "net.onnx")
    assert qdebug.open_recording(tmp_path / "out.h5").load("r").shape == (3, 4)


def test_operators_of_a_dump_are_translated(tmp_path):
    for name in ("x", "w", "y"):
        np.save(tmp_path / f"{name}.npy", np.eye(3, dtype=np.float32))
    made = {"file": "y.npy", "node": "n", "op": "MUL_MAT", "inputs": ["x", "w"]}
    tensors = [{"file": "x.npy"}, {"file": "w.npy", "constant": True}, made]
    said = {"format": "qdebug.dump", "version": 1, "op_map": {"MUL_MAT": "MatMul"}, "tensors": tensors}
    (tmp_path / "d.json").write_text(json.dumps(said))
    import_dump(tmp_path / "d.json", tmp_path / "out.h5")
    assert [node.op for node in qdebug.open_recording(tmp_path / "out.h5").graph.nodes] == ["MatMul"]
    (tmp_path / "d.json").write_text(json.dumps({**said, "op_map": {"MUL_MAT": 3}}))
    with pytest.raises(UsageError, match="op_map must map each operator name"):
        import_dump(tmp_path / "d.json", tmp_path / "other.h5")


def test_what_was_not_dumped_is_lost_only_if_it_is_an_output(tmp_path, model):
    arrays = {"x:0": np.zeros((1, 2), np.float32), "z": np.zeros((1, 2), np.float16)}
    imported(tmp_path, model, **arrays)
    unmatched = qdebug.diff(model, tmp_path / "out.h5").coverage.unmatched
    assert {(entry.tensor, str(entry.kind)) for entry in unmatched if entry.tensor != "w"} == {("net/y", "benign")}
    imported(tmp_path, model, **{"x:0": arrays["x:0"], "net/y": np.zeros((1, 2, 3, 1), np.int8)})
    unmatched = qdebug.diff(model, tmp_path / "out.h5").coverage.unmatched
    assert {(entry.tensor, str(entry.kind)) for entry in unmatched if entry.tensor != "w"} == {("z", "lost")}


# -- the LiteRT accuracy debugger ---------------------------------------------------------------------------------


@pytest.fixture
def litert_dump(tmp_path):
    """What the debugger writes of x -> A -> y -> B -> z, by the names of its files, and the model's recording."""
    quant = QuantParams(dtype="int8", scale=np.float32([SCALE]))
    graph = Graph(
        [
            Node(name="A", op="CONV_2D", inputs=("in:0", "w"), outputs=("mid/y",)),
            Node(name="B", op="RELU", inputs=("mid/y",), outputs=("z",)),
        ],
        tensors=[
            TensorInfo(name="in:0", shape=(None, 2), dtype="float32", role=Role.INPUT),
            TensorInfo(name="mid/y", shape=(2,), dtype="int8", quant=quant),
            TensorInfo(name="z", shape=(2,), dtype="int8", role=Role.OUTPUT, quant=quant),
        ],
        inputs=("in:0",),
        outputs=("z",),
    )
    with qdebug.Recorder(tmp_path / "m.h5", backend="litert", graph=graph) as rec:
        rec.put("z", np.zeros(2, np.int8))
    folder = tmp_path / "npu"
    folder.mkdir()
    for name, values in {
        "op_0000_tfl.conv_2d_in_0_in_0": np.float32([[1, 2]]),
        "op_0000_tfl.conv_2d_out_0_mid_y": np.int8([3, 4]),
        "op_0001_tfl.relu_in_0_mid_y": np.int8([3, 4]),
        "op_0001_tfl.relu_out_0_z": np.int8([5, 6]),
        "op_0007_tfl.relu_out_0_z": np.int8([5, 6]),
    }.items():
        (folder / f"{name}.raw").write_bytes(values.tobytes())
    return folder, tmp_path / "m.h5"


def test_the_litert_debuggers_folder_is_read_by_the_model(tmp_path, litert_dump):
    folder, model = litert_dump
    summary = import_dump(folder, tmp_path / "out.h5", graph=model, form="litert-debugger")
    recording = qdebug.open_recording(tmp_path / "out.h5")
    assert set(recording.names) == {"in:0", "mid/y", "z"}
    assert recording.load("in:0").shape == recording.graph.tensors["in:0"].shape == (1, 2)
    assert recording.graph.tensors["z"].quant.scale[0] == SCALE
    assert summary.ignored == {"op_0007_tfl.relu_out_0_z.raw": "not an operand of the model's operators"}
    assert not summary.said


def test_operators_that_ran_by_themselves_read_tensors_of_their_own(tmp_path, litert_dump):
    folder, model = litert_dump
    (folder / "op_0001_tfl.relu_in_0_mid_y.raw").write_bytes(np.int8([3, 9]).tobytes())
    summary = import_dump(folder, tmp_path / "out.h5", graph=model, form="litert-debugger")
    recording = qdebug.open_recording(tmp_path / "out.h5")
    assert recording.graph.producer("z").inputs == ("mid/y into B",)
    assert recording.load("mid/y into B").tolist() == [3, 9]
    assert recording.load("mid/y").tolist() == [3, 4]
    assert summary.said == ["1 operand is not equal to the previous operator's output; operators ran by themselves"]


def test_the_litert_debuggers_folder_needs_a_model_and_files_of_its_sizes(tmp_path, litert_dump):
    folder, model = litert_dump
    with pytest.raises(UsageError, match="it has no shapes or types"):
        import_dump(folder, tmp_path / "out.h5", form="litert-debugger")
    (folder / "op_0001_tfl.relu_out_0_z.raw").write_bytes(bytes(3))
    with pytest.raises(UsageError, match="has 3 bytes, but the model's 'z' needs 2"):
        import_dump(folder, tmp_path / "out.h5", graph=model, form="litert-debugger")


# -- there and back -----------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1), quantized=st.booleans(), names=st.sampled_from(["", "/", ":é ", "a.b/"]))
def test_what_is_exported_and_imported_again_is_identical(tmp_path, seed, quantized, names):
    recording = random_recording(np.random.default_rng(seed), quantized=quantized)
    with qdebug.Recorder(None, backend="ref") as rec:
        for name in recording.names:
            quant = recording.graph.tensors[name].quant
            facts = {} if quant is None else {"scale": quant.scale, "zero_point": quant.zero_point, "axis": quant.axis}
            node = recording.graph.producer(name)
            if recording.graph.is_constant(name):
                rec.constant(names + name, recording.load(name), **facts)
            elif node is None:
                rec.put(names + name, recording.load(name), **facts)
            else:
                reads = [names + each if each else "" for each in node.inputs]
                rec.put(
                    names + name,
                    recording.load(name),
                    node=node.name,
                    op=node.op,
                    inputs=reads,
                    attrs=node.attrs,
                    **facts,
                )
    ref = rec.recording
    save_recording(ref, tmp_path / "ref.h5", force=True)
    write_npz(ref, tmp_path / "dump.npz")
    summary = import_dump(tmp_path / "dump.npz", tmp_path / "back.h5", graph=tmp_path / "ref.h5", force=True)
    assert not summary.notes
    assert not summary.unmatched
    assert qdebug.diff(tmp_path / "ref.h5", tmp_path / "back.h5").status == "identical"
    back = qdebug.open_recording(tmp_path / "back.h5")
    assert {n: back.load(n).tobytes() for n in back.names} == {n: ref.load(n).tobytes() for n in ref.names}


def test_a_broken_disk_is_said(tmp_path, model, monkeypatch):
    monkeypatch.setattr("qdebug.recording.recorder.Recorder.failure", property(lambda self: "The disk is full."))
    with pytest.raises(RecordingError, match="disk is full"):
        imported(tmp_path, model, z=Y)
