"""A repaired model, written and really run by ONNX Runtime, keeps what the replay of its recording promised."""

import json

import numpy as np
import pytest
from sweeps import sweep

from qdebug.arithmetic.arithmetic_file import find_arithmetic
from qdebug.arithmetic.presets import DEFAULT_PRESET
from qdebug.cli.main import main
from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.recording.reading.opening import open_recording
from qdebug.repair.edited_replay import EditedReplay
from qdebug.repair.edits import EditCatalog
from qdebug.repair.find import RepairOptions, find_repair
from qdebug.repair.model import write_repaired_model
from qdebug.repair.search import EditCost
from qdebug.running.record import record_run
from qdebug.session import DiffSession

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def made(folder, *, pooled, dead=1.0):
    """Make a float net whose first weights have channels of unlike range, and onnxruntime's int8 form; run both.

    The first channel's weights are multiplied by `dead`.
    """
    from onnx import helper, numpy_helper
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    rng = np.random.default_rng(3)
    spread = np.exp2(np.arange(8) - 5.0).reshape(8, 1, 1, 1)
    constants = {
        "w1": rng.standard_normal((8, 3, 3, 3)) * spread,
        "b1": rng.standard_normal(8),
        "w2": rng.standard_normal((6, 8, 3, 3)) / spread.reshape(1, 8, 1, 1) / 8,
        "b2": rng.standard_normal(6),
        "w3": rng.standard_normal((6, 5)),
    }
    constants["w1"][0] *= dead
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        *([helper.make_node("MaxPool", ["r1"], ["m1"], "max1", kernel_shape=[2, 2])] if pooled else []),
        helper.make_node("Conv", ["m1" if pooled else "r1", "w2", "b2"], ["c2"], "conv2"),
        helper.make_node("GlobalAveragePool", ["c2"], ["g"], "pool"),
        helper.make_node("Flatten", ["g"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "w3"], ["y"], "last"),
    ]
    floats = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", floats, [1, 3, 12, 12])],
        [helper.make_tensor_value_info("y", floats, [1, 5])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "float.onnx")
    inputs = rng.standard_normal((8, 1, 3, 12, 12)).astype(np.float32)

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.left = iter([{"x": each} for each in inputs])

        def get_next(self):
            return next(self.left, None)

    quantize_static(
        folder / "float.onnx",
        folder / "int8.onnx",
        Reader(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    for name in ("float", "int8"):
        record_run(
            folder / f"{name}.onnx",
            backend="onnxruntime",
            options={"opt": "none"},
            inputs={"x": inputs},
            samples=len(inputs),
            out=folder / f"{name}.h5",
        )
    return folder


@pytest.fixture(scope="module")
def nets(tmp_path_factory):
    return made(tmp_path_factory.mktemp("repair"), pooled=False)


def repaired(nets, out, **options):
    session = DiffSession(open_recording(nets / "float.h5"), open_recording(nets / "int8.h5"))
    return find_repair(session, RepairOptions(**options), model=nets / "int8.onnx", out=out)


@pytest.mark.parametrize(
    ("names", "changed"),
    [
        (
            ("16-bit conv1", "per-channel conv1", "bias conv1", "per-channel conv2", "bias conv2", "range conv2"),
            {"conv1", "conv2"},
        ),
        (("range conv1",), {"conv2"}),
        (("bias conv1",), {"conv1"}),
    ],
)
def test_what_is_written_is_what_was_replayed_bit_for_bit(nets, tmp_path, names, changed):
    """Of edits that change a bias: what is added to it, and other scales of the input and of the weight."""
    session = DiffSession(open_recording(nets / "float.h5"), open_recording(nets / "int8.h5"))
    graphs = GraphCheck(session.reference, session.backend, session.alignment.pairs)
    catalog = EditCatalog(graphs, session.entries(), [(0, 0), (1, 0)])
    edits = [catalog.edit_named(name) for name in names]
    write_repaired_model(nets / "int8.onnx", catalog, edits, tmp_path / "out.onnx")
    feeds = {"x": np.stack([session.backend.load("x", sample) for sample in range(8)])}
    record_run(
        tmp_path / "out.onnx", backend="interpreter", inputs=feeds, samples=8, taps="all", out=tmp_path / "out.h5"
    )
    written, replayed = (
        open_recording(tmp_path / "out.h5"),
        EditedReplay(session.backend, find_arithmetic(DEFAULT_PRESET).arithmetic),
    )
    for sample, made in enumerate(replayed.outputs(catalog.change(edits), [(sample, 0) for sample in range(8)])):
        np.testing.assert_array_equal(made["y"], real_values(written, "y", (sample, 0)))
    change = catalog.change(edits)
    biases = {node: bias for (node, name), bias in change.constants.items() if "b" in name}
    assert set(biases) == changed <= change.nodes
    for node in written.graph.nodes:
        if node.name in biases:
            np.testing.assert_array_equal(biases[node.name], real_values(written, node.inputs[2]))


@pytest.mark.parametrize("kind", sweep(["bias", "range", "equalize", "per-channel", "16-bit", "float"], 3))
def test_each_kind_of_edit_comes_out_as_promised(nets, tmp_path, kind):
    found = repaired(nets, tmp_path / "out.onnx", within=60, cost=EditCost(kinds=[kind], max_edits=2))
    assert {edit.kind for edit in found.edits} == {kind}
    assert found.search.after > found.search.before + 0.1
    noise = sum(10 ** (-each.after / 10) for each in (found.search, found.held_out)) / 2
    assert found.proof.after == pytest.approx(-10 * np.log10(noise), abs=1.0)  # of samples whose signals are alike


def test_scales_for_each_channel_repair_weights_of_unlike_range(nets, tmp_path):
    found = repaired(nets, tmp_path / "out.onnx", within=30, cost=EditCost(kinds=["per-channel", "float"]))
    assert found.reached
    assert "per-channel" in {edit.kind for edit in found.edits}
    assert found.proof.after > found.proof.before + 3
    written = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(written)


@pytest.mark.parametrize("pooled", [False, True])
def test_a_net_whose_neighbours_are_in_float_has_no_codes_between_them(tmp_path, pooled):
    nets = made(tmp_path, pooled=pooled)
    found = repaired(nets, tmp_path / "out.onnx", within=300, cost=EditCost(kinds=["float"]))
    written = onnx.load(tmp_path / "out.onnx")
    assert found.proof.after > 60, "what a MaxPool hands on is in no codes either"
    before = sum(node.op_type == "QuantizeLinear" for node in onnx.load(nets / "int8.onnx").graph.node)
    assert sum(node.op_type == "QuantizeLinear" for node in written.graph.node) < before


def test_a_model_of_an_older_operator_set_gets_scales_for_each_channel_too(nets, tmp_path):
    """Its DequantizeLinear knows no axis; the runtime's own does."""
    older = onnx.load(nets / "int8.onnx")
    del older.opset_import[:]
    older.opset_import.extend([onnx.helper.make_opsetid("", 11), onnx.helper.make_opsetid("com.microsoft", 1)])
    onnx.save(older, tmp_path / "older.onnx")
    session = DiffSession(open_recording(nets / "float.h5"), open_recording(nets / "int8.h5"))
    options = RepairOptions(within=60, cost=EditCost(kinds=["per-channel"], max_edits=2))
    found = find_repair(session, options, model=tmp_path / "older.onnx", out=tmp_path / "out.onnx")
    assert found.proof.after > found.proof.before + 1


def test_a_channel_of_all_but_zero_weights_keeps_its_bias(tmp_path):
    nets = made(tmp_path, pooled=False, dead=1e-36)
    found = repaired(nets, tmp_path / "out.onnx", minutes=0.0, start=["per-channel conv1"])
    assert found.proof is not None
    held = {}
    for name in ("int8", "out"):
        options = {"backend": "interpreter", "inputs": {"x": np.zeros((1, 3, 12, 12), np.float32)}}
        record_run(nets / f"{name}.onnx", taps="all", out=tmp_path / f"{name}.bias.h5", **options)
        run = open_recording(tmp_path / f"{name}.bias.h5")
        held[name] = real_values(run, next(node for node in run.graph.nodes if node.name == "conv1").inputs[2])
    np.testing.assert_allclose(held["out"], held["int8"], rtol=1e-2)


def test_another_model_than_the_recorded_one_is_told(nets, tmp_path):
    session = DiffSession(open_recording(nets / "float.h5"), open_recording(nets / "int8.h5"))
    options = RepairOptions(within=60, cost=EditCost(max_edits=1))
    found = find_repair(session, options, model=nets / "float.onnx", out=tmp_path / "out.onnx")
    assert found.edits, "what was found is not lost by it"
    assert found.proof is None
    assert "has no tensor" in found.notes[0]
    assert not (tmp_path / "out.onnx").exists()


def joined(folder):
    """Write a QDQ model: three quantized branches joined, then a product of exact constants."""
    from onnx import helper, numpy_helper

    constants = {"s": np.float32(0.1), "z": np.uint8(3), "w": np.ones((2, 12, 1, 1), np.int8), "wz": np.int8(0)}
    constants |= {"b": np.arange(2, dtype=np.int32), "bs": np.float32(0.01), "bz": np.int32(0)}
    nodes = []
    for at in range(3):
        nodes += [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], [f"q{at}"], f"q{at}"),
            helper.make_node("DequantizeLinear", [f"q{at}", "s", "z"], [f"d{at}"], f"d{at}"),
        ]
    nodes += [
        helper.make_node("Concat", ["d0", "d1", "d2"], ["j"], "join", axis=1),
        helper.make_node("QuantizeLinear", ["j", "s", "z"], ["qj"], "qj"),
        helper.make_node("DequantizeLinear", ["qj", "s", "z"], ["dj"], "dj"),
        helper.make_node("DequantizeLinear", ["w", "s", "wz"], ["dw"], "dw"),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["db"], "db"),
        helper.make_node("Conv", ["dj", "dw", "db"], ["y"], "conv"),
    ]
    floats = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", floats, [1, 4, 3, 3])],
        [helper.make_tensor_value_info("y", floats, [1, 2, 3, 3])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "j.onnx")
    return folder / "j.onnx"


def test_edits_are_written_together_and_leave_alone_what_they_do_not_change(tmp_path):
    import onnxruntime

    from qdebug.backends.onnx.edit import edit
    from qdebug.backends.protocol import NodeEdit
    from qdebug.errors import BackendError
    from qdebug.model import QuantParams

    other = QuantParams(dtype="uint8", scale=np.float32(0.05), zero_point=np.uint8(3))
    wide = [NodeEdit(tensor="y", wide_sum=True), NodeEdit(tensor="y", wide_sum=True, bias=np.float32([1, 2.01]))]
    model = joined(tmp_path)
    edit(model, [NodeEdit(tensor="q0", quant=other), NodeEdit(tensor="qj", quant=other), *wide], tmp_path / "out.onnx")
    x = np.full((1, 4, 3, 3), 0.5, np.float32)
    before, after = (
        onnxruntime.InferenceSession(path).run(None, {"x": x})[0] for path in (model, tmp_path / "out.onnx")
    )
    np.testing.assert_allclose(
        after - before, np.broadcast_to(np.float32([1, 2])[:, None, None], (1, 2, 3, 3)), atol=0.01
    )
    with pytest.raises(BackendError, match="computed by Conv, whose codes cannot be changed"):
        edit(model, [NodeEdit(tensor="y", quant=other)], tmp_path / "none.onnx")


def test_a_branch_with_a_scale_of_its_own_comes_out_as_promised(tmp_path):
    """A wide and a narrow branch are joined in the codes of the wide one; a product needs the narrow one."""
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(4)
    gains = np.repeat(np.float32([2.0, 0.001]), 4)[None, :, None, None] * rng.standard_normal((3, 8, 1, 1))
    constants = {"s": np.float32(0.8), "z": np.uint8(128), "w": gains.astype(np.float32)}

    def model(name, quantized):
        nodes, read = [], {}
        for at, (op, branch) in enumerate((("Tanh", "p"), ("Relu", "q"), ("Concat", "j"))):
            inputs, others = ([read["p"], read["q"]], {"axis": 1}) if op == "Concat" else ([f"x{at}"], {})
            nodes.append(helper.make_node(op, inputs, [f"f{branch}"], branch, **others))
            read[branch] = f"d{branch}" if quantized else f"f{branch}"
            if quantized:
                nodes.append(helper.make_node("QuantizeLinear", [f"f{branch}", "s", "z"], [f"c{branch}"], f"c{branch}"))
                nodes.append(
                    helper.make_node("DequantizeLinear", [f"c{branch}", "s", "z"], [f"d{branch}"], f"d{branch}")
                )
        nodes.append(helper.make_node("Conv", [read["j"], "w"], ["y"], "product"))
        shapes = [[1, 4, 5, 5], [1, 4, 5, 5], [1, 3, 5, 5]]
        infos = [
            helper.make_tensor_value_info(each, onnx.TensorProto.FLOAT, shape)
            for each, shape in zip(("x0", "x1", "y"), shapes, strict=True)
        ]
        held = [numpy_helper.from_array(np.asarray(array), each) for each, array in constants.items()]
        graph = helper.make_graph(nodes, "net", infos[:2], infos[2:], held if quantized else held[2:])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.save(made, tmp_path / f"{name}.onnx")

    inputs = {"x0": 3 * rng.standard_normal((8, 1, 4, 5, 5)), "x1": 30 * rng.standard_normal((8, 1, 4, 5, 5))}
    for name in ("float", "int8"):
        model(name, name == "int8")
        record_run(
            tmp_path / f"{name}.onnx",
            backend="onnxruntime",
            options={"opt": "none"},
            inputs={each: array.astype(np.float32) for each, array in inputs.items()},
            samples=8,
            out=tmp_path / f"{name}.h5",
        )
    found = repaired(tmp_path, tmp_path / "out.onnx", within=30, cost=EditCost(kinds=["split"]))
    assert (found.reached, [edit.kind for edit in found.edits]) == (True, ["split"])
    assert found.search.before < 20 < 30 < found.proof.after == pytest.approx(found.search.after, abs=1.0)


def small(folder, nodes, constants, inputs, shape):
    """Write a QDQ model of a few nodes on x, in codes, with the reference's float form; record both.

    Args:
        nodes: Nodes of both forms; in the quantized one they read dequantized tensors.
        constants: Constants by name; w is kept in codes.
        inputs: Arrays by name, with samples.
        shape: That of the output y.
    """
    from onnx import helper, numpy_helper

    scale = np.float32(np.abs(constants["w"]).max() / 127)
    codes = {
        "w_codes": np.clip(np.rint(constants["w"] / scale), -127, 127).astype(np.int8),
        "w_scale": scale,
        "w_zero": np.int8(0),
        "x_scale": np.float32(np.abs(inputs["x"]).max() / 127),
        "x_zero": np.uint8(128),
        "y_scale": np.float32(2.0**-12),
        "y_zero": np.uint16(2**15),
    }
    quantized = [
        helper.make_node("QuantizeLinear", ["x", "x_scale", "x_zero"], ["xq"], "xq"),
        helper.make_node("DequantizeLinear", ["xq", "x_scale", "x_zero"], ["xr"], "xr"),
        helper.make_node("DequantizeLinear", ["w_codes", "w_scale", "w_zero"], ["wr"], "wr"),
    ]
    other = {"x": "xr", "w": "wr", "y": "y0"}
    for node in nodes:
        copied = onnx.NodeProto()
        copied.CopyFrom(node)
        for names in (copied.input, copied.output):
            names[:] = [other.get(name, name) for name in names]
        quantized.append(copied)
    quantized += [
        helper.make_node("QuantizeLinear", ["y0", "y_scale", "y_zero"], ["yq"], "yq"),
        helper.make_node("DequantizeLinear", ["yq", "y_scale", "y_zero"], ["y"], "yr"),
    ]
    held = {name: array for name, array in constants.items() if name != "w"}
    for name, body, more in (("float", nodes, constants), ("int8", quantized, {**held, **codes})):
        graph = helper.make_graph(
            body,
            "net",
            [
                helper.make_tensor_value_info(key, onnx.TensorProto.FLOAT, array.shape[1:])
                for key, array in inputs.items()
            ],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(np.asarray(array), key) for key, array in more.items()],
        )
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10),
            folder / f"{name}.onnx",
        )
        record_run(
            folder / f"{name}.onnx",
            backend="onnxruntime",
            options={"opt": "none"},
            inputs=inputs,
            samples=len(inputs["x"]),
            out=folder / f"{name}.h5",
        )
    return folder


@pytest.mark.parametrize("form", ["computed", "every element", "one column", "scalar"])
def test_a_bias_that_is_not_one_constant_a_channel_is_left_alone(tmp_path, form):
    from onnx import helper

    rng = np.random.default_rng(1)
    shapes = {"computed": (3, 8), "every element": (3, 8), "one column": (3, 1), "scalar": (1,)}
    bias = rng.standard_normal(shapes[form]).astype(np.float32)
    inputs = {"x": rng.standard_normal((4, 3, 5)).astype(np.float32)}
    constants = {"w": (rng.standard_normal((5, 8)) * np.exp2(-np.arange(8))).astype(np.float32)}
    if form == "computed":
        inputs["b"] = rng.standard_normal((4, 3, 8)).astype(np.float32)
    else:
        constants["b"] = bias
    nets = small(tmp_path, [helper.make_node("Gemm", ["x", "w", "b"], ["y"], "g")], constants, inputs, (3, 8))
    found = repaired(nets, tmp_path / "out.onnx", minutes=0.0, within=30, start=["per-channel g"])
    assert found.failed == ""
    noise = sum(10 ** (-each.after / 10) for each in (found.search, found.held_out)) / 2
    assert found.proof.after == pytest.approx(-10 * np.log10(noise), abs=1.0)
    assert found.proof.after > found.proof.before + 1


def test_a_bias_before_a_clip_is_that_of_the_product(tmp_path):
    from onnx import helper

    rng = np.random.default_rng(1)
    constants = {
        "w": rng.standard_normal((5, 1)).astype(np.float32),
        "b": np.float32([0.25]),
        "low": np.float32(-4),
        "high": np.float32(4),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["p"], "g"),
        helper.make_node("Clip", ["p", "low", "high"], ["y"], "clip"),
    ]
    inputs = {"x": rng.standard_normal((4, 3, 5)).astype(np.float32)}
    nets = small(tmp_path, nodes, constants, inputs, (3, 1))
    found = repaired(nets, tmp_path / "out.onnx", minutes=0.0, start=["bias g", "per-channel g"])
    assert found.failed == ""
    written = {node.name: node.input for node in onnx.load(tmp_path / "out.onnx").graph.node}
    assert list(written["clip"])[1:] == ["low", "high"]
    assert written["g"][2] != "b"


def test_a_model_is_written_of_a_run_that_the_runtime_rewrote(nets, tmp_path, capsys, monkeypatch):
    """Its nodes are recorded again, as they stand in the model file."""
    monkeypatch.chdir(tmp_path)
    inputs = {"x": np.stack([open_recording(nets / "float.h5").load("x", sample) for sample in range(8)])}
    record_run(nets / "int8.onnx", backend="onnxruntime", inputs=inputs, samples=8, out="optimized.h5")
    assert "c1_QuantizeLinear_Output" not in open_recording("optimized.h5").graph.tensors
    words = ["repair", str(nets / "float.h5"), "optimized.h5", "--within", "30", "--kinds", "per-channel,float"]
    assert main([*words, "--model", str(nets / "int8.onnx"), "--write-model", "out.onnx", "--json"]) in (0, 1)
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert "opt=none" in err
    assert found["proof"]["after"] > found["proof"]["before"] + 3
    onnx.checker.check_model(onnx.load("out.onnx"))
    assert any(note.startswith("per-channel weights in all 3 nodes") for note in found["notes"])
