"""ONNX files become graphs: nodes, attributes, shapes, constants wherever they are kept."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from qdebug.backends import load_reader
from qdebug.errors import GraphError, UsageError
from qdebug.model import Role

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  after the check that it is there

DIGITS = Path(__file__).resolve().parents[3] / "samples" / "digits"


def save(folder: Path, nodes, *, inputs=("x",), outputs=("y",), initializers=(), opset=17, **rest) -> Path:
    def value(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4])

    graph = helper.make_graph(nodes, "net", [value(n) for n in inputs], [value(n) for n in outputs], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    path = folder / "net.onnx"
    onnx.save(model, str(path), **rest)
    return path


def weight(name: str, array: np.ndarray):
    return numpy_helper.from_array(array, name)


def test_the_digits_net_is_read_whole():
    path = DIGITS / "digits.onnx"
    model = load_reader(path)
    graph = model.graph
    assert model.name == "digits.onnx"
    assert model.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (graph.inputs, graph.outputs, len(graph.nodes)) == (("x",), ("logits",), 14)
    assert graph.tensors["x"].shape == (None, 1, 8, 8)
    assert graph.tensors["x"].dtype == "float32"
    assert graph.tensors["logits"].role is Role.OUTPUT
    conv = next(node for node in graph.nodes if node.name == "dwconv")
    assert conv.attrs["group"] == 16
    assert conv.attrs["pads"] == (1, 1, 1, 1)
    assert all(graph.is_constant(name) for name in model.constants)
    assert {name for name in graph.tensors if graph.is_constant(name)} == set(model.constants)


def test_constants_are_the_files_own_elements():
    model = load_reader(DIGITS / "digits.onnx")
    proto = onnx.load(str(DIGITS / "digits.onnx"))
    for tensor in proto.graph.initializer:
        expected = numpy_helper.to_array(tensor)
        found = model.constant(tensor.name)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(UsageError, match="no constant 'nope'"):
        model.constant("nope")


def test_constant_nodes_become_constants(tmp_path):
    nodes = [
        helper.make_node("Constant", [], ["a"], value=weight("", np.arange(4, dtype=np.float32))),
        helper.make_node("Constant", [], ["b"], value_float=2.5),
        helper.make_node("Constant", [], ["c"], value_ints=[0, 1]),
        helper.make_node("Constant", [], ["said"], value_string="text"),
        helper.make_node("Add", ["x", "a"], ["h"], name="add"),
        helper.make_node("Mul", ["h", "b"], ["y"], name="mul"),
    ]
    model = load_reader(save(tmp_path, nodes))
    assert [node.name for node in model.graph.nodes] == ["add", "mul"]
    assert list(model.constants) == ["a", "b", "c"]
    np.testing.assert_array_equal(model.constant("a"), np.arange(4, dtype=np.float32))
    assert model.constant("b") == np.float32(2.5)
    assert model.constant("b").dtype == np.float32
    np.testing.assert_array_equal(model.constant("c"), np.array([0, 1]))
    assert model.graph.is_constant("a")
    with pytest.raises(UsageError, match="'said'"):
        model.constant("said")


def test_what_exporters_write_for_an_unknown_dimension_is_no_name(tmp_path):
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["?", 3, "None", "p2o.Width"])
    kept = helper.make_tensor_value_info("kept", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Relu", ["image"], ["kept"])]
    model = helper.make_model(helper.make_graph(nodes, "free", [image], [kept]))
    path = tmp_path / "free.onnx"
    path.write_bytes(model.SerializeToString())
    assert load_reader(path).extent_names == {"image": ("", "", "", "p2o.Width")}


def test_an_initializer_that_is_also_an_input_is_no_input(tmp_path):
    nodes = [helper.make_node("Add", ["x", "w"], ["y"], name="add")]
    path = save(tmp_path, nodes, inputs=("x", "w"), initializers=[weight("w", np.ones(4, np.float32))])
    graph = load_reader(path).graph
    assert graph.inputs == ("x",)
    assert graph.is_constant("w")


def test_unnamed_nodes_get_unique_names_that_stay(tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"], name="same"),
        helper.make_node("Relu", ["b"], ["c"], name="same"),
        helper.make_node("Relu", ["c"], ["d"], name="Relu:a"),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    path = save(tmp_path, nodes)
    names = [node.name for node in load_reader(path).graph.nodes]
    assert len(set(names)) == 5
    assert names[1] == "same"
    assert names[3] == "Relu:a"
    assert names[4] == "Relu:y"
    assert names == [node.name for node in load_reader(path).graph.nodes]


def test_what_a_subgraph_reads_is_read_by_its_node(tmp_path):
    def branch(name: str, op: str):
        out = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)
        body = [helper.make_node(op, ["outer"], ["inner"]), helper.make_node("Relu", ["inner"], [f"{name}_out"])]
        return helper.make_graph(body, name, [], [out])

    nodes = [
        helper.make_node("Neg", ["x"], ["outer"], name="neg"),
        helper.make_node("ReduceMax", ["x"], ["m"], name="max", keepdims=0),
        helper.make_node("Cast", ["m"], ["cond"], name="cast", to=TensorProto.BOOL),
        helper.make_node(
            "If", ["cond"], ["y"], name="if", then_branch=branch("t", "Abs"), else_branch=branch("e", "Neg")
        ),
    ]
    graph = load_reader(save(tmp_path, nodes)).graph
    assert graph.nodes[-1].inputs == ("cond", "outer")
    assert graph.nodes[-1].attrs == {}


def test_external_data_stays_outside_until_it_is_asked_for(tmp_path):
    table = np.arange(40, dtype=np.float32).reshape(10, 4)
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], name="fc", transB=1)]
    path = save(
        tmp_path,
        nodes,
        initializers=[weight("w", table)],
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    model = load_reader(path)
    array = model.constant("w")
    np.testing.assert_array_equal(array, table)
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base, np.memmap)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "w.bin").unlink(), "is missing"),
        (lambda folder: (folder / "w.bin").write_bytes(b"1234"), "is truncated"),
    ],
)
def test_damaged_external_data_is_named(tmp_path, damage, message):
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], name="fc", transB=1)]
    path = save(
        tmp_path,
        nodes,
        initializers=[weight("w", np.ones((10, 4), np.float32))],
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    damage(tmp_path)
    model = load_reader(path)
    with pytest.raises(UsageError, match=message) as caught:
        model.constant("w")
    assert "'w'" in str(caught.value)


def test_external_data_outside_the_folder_is_refused(tmp_path):
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    folder = tmp_path / "model"
    folder.mkdir()
    tensor = weight("w", np.ones(4, np.float32))
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret.bin")
    path = folder / "net.onnx"
    save(folder, [helper.make_node("Add", ["x", "v"], ["y"])], initializers=[weight("v", np.ones(4, np.float32))])
    proto = onnx.load(str(path))
    proto.graph.initializer.append(tensor)
    proto.graph.node[0].input[1] = "w"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(UsageError, match="outside the model's folder"):
        load_reader(path).constant("w")


@pytest.mark.parametrize("content", [b"", b"no model at all", b"\x89HDF\r\n\x1a\n" + bytes(64), bytes(1000)])
def test_a_file_that_is_no_model_is_refused(tmp_path, content):
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not an ONNX model") as caught:
        load_reader(path)
    assert caught.value.hint


def test_a_missing_file_and_an_unknown_kind_are_refused(tmp_path):
    with pytest.raises(UsageError, match="There is no model file"):
        load_reader(tmp_path / "net.onnx")
    other = tmp_path / "net.xyz"
    other.write_bytes(b"")
    with pytest.raises(UsageError, match=r"\.onnx"):
        load_reader(other)


def test_a_tensor_that_two_nodes_produce_is_refused(tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="a"), helper.make_node("Neg", ["x"], ["y"], name="b")]
    with pytest.raises(GraphError, match="produced twice"):
        load_reader(save(tmp_path, nodes))
