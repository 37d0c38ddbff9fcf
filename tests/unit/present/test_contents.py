"""What a recording holds, told without reading a value."""

from dataclasses import replace

import numpy as np
import pytest

from qdebug.model import Fidelity, Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.present.contents import Contents, contents_facts, tensor_rows


@pytest.fixture
def contents():
    graph = Graph(
        [
            Node(name="fc", op="Gemm", inputs=("x", "w"), outputs=("h",)),
            Node(name="act\x1b[2J", op="Relu", inputs=("h",), outputs=("y",)),
        ],
        tensors=[
            TensorInfo(name="x", shape=(None, 4), dtype="float32", role=Role.INPUT),
            TensorInfo(
                name="w", shape=(4, 2), dtype="int8", role=Role.CONSTANT, quant=QuantParams(dtype="int8", scale=0.1)
            ),
        ],
        inputs=["x"],
        outputs=["y"],
    )
    arrays = {
        ("x", 0, 0): np.zeros((1, 4), np.float32),
        ("x", 1, 0): np.zeros((1, 4), np.float32),
        ("w", 0, 0): np.zeros((4, 2), np.int8),
        ("y", 0, 0): np.zeros((1, 2), np.float32),
    }
    info = RunInfo(
        backend="npu",
        model="net",
        model_sha256="ab" * 32,
        fidelity=Fidelity.DIFFERS,
        fidelity_detail="1 of 2 outputs moved",
        complete=False,
        versions={"npu-sdk": "1.2"},
        cpu_flags=("avx2",),
        options={"threads": 4, "eps": float("inf")},
        skipped={"h": "not supported"},
    )
    return Contents(recording=MemoryRecording(graph, arrays, info), path="a b.h5", size=12_345)


def test_the_json_has_the_keys_of_the_contract(contents):
    plain = contents.to_dict()
    assert plain["format"] == "qdebug.info"
    assert plain["version"] == 1
    assert (plain["backend"], plain["complete"], plain["fidelity"]) == ("npu", False, "differs")
    assert (plain["samples"], plain["steps"]) == (2, 1)
    assert (plain["tensors"], plain["constants"], plain["nodes"], plain["bytes"]) == (3, 1, 2, 12_345)
    assert plain["environment"] == {
        "versions": {"npu-sdk": "1.2"},
        "cpu_flags": ["avx2"],
        "options": {"threads": 4, "eps": "Infinity"},
    }
    assert plain["skipped"] == {"h": "not supported"}
    assert "tensor_list" not in plain


def test_every_tensor_is_listed_on_request(contents):
    listed = {entry["name"]: entry for entry in replace(contents, listed=True).to_dict()["tensor_list"]}
    assert list(listed) == ["x", "h", "y", "w"]
    assert listed["w"]["quant"]["scale"] == [0.1]
    assert (listed["h"]["stored"], listed["y"]["stored"]) == (False, True)
    assert (listed["y"]["node"], listed["y"]["op"]) == ("act\x1b[2J", "Relu")
    assert listed["x"]["shape"] == [1, 4]
    assert listed["h"]["shape"] is None


def test_facts_say_what_is_wrong_with_a_recording(contents):
    facts = dict(contents_facts(contents))
    assert facts["file"] == "a b.h5, 12.3 kB"
    assert facts["complete"].startswith("NO")
    assert facts["fidelity"] == "differs (1 of 2 outputs moved)"
    assert facts["tensors"] == "3 with values, 1 of them constants"
    assert facts["nodes"] == "2: 1 Gemm, 1 Relu"
    assert facts["inputs"] == "x float32 ?x4"
    assert facts["not recorded"] == "h: not supported"
    assert facts["options"] == "threads=4, eps=inf"


def test_a_recording_without_graph_says_so():
    recording = MemoryRecording.single(Graph(), {"y": np.zeros(3)})
    facts = dict(contents_facts(Contents(recording=recording)))
    assert facts["nodes"] == "none: no graph was recorded"
    assert "file" not in facts


def test_rows_of_tensors_are_safe_to_print(contents):
    rows = tensor_rows(contents.recording)
    assert rows[0] == ("x", "input", "float32", "1x4", "16", "-", "yes", "-")
    assert rows[2][-1] == r"Relu act\x1b[2J"
    assert rows[3] == ("w", "constant", "int8", "4x2", "8", "0.1 / 0", "yes", "-")


def test_sums_that_a_fusion_left_in_memory_are_named_with_their_bytes():
    graph = Graph(
        [
            Node(name="product", op="MatMulInteger", inputs=("x", "w"), outputs=("sums",)),
            Node(name="cast", op="Cast", inputs=("sums",), outputs=("real",)),
            Node(name="halves", op="Identity", inputs=("real",), outputs=("half",)),
            Node(name="end", op="Neg", inputs=("half",), outputs=("y",)),
        ],
        tensors=[
            TensorInfo(name="sums", dtype="int32", shape=(2, 5)),
            TensorInfo(name="real", dtype="float32", shape=(2, 5)),
            TensorInfo(name="half", dtype="int4", shape=(5,)),
            TensorInfo(name="y", dtype="float32", shape=(5,)),
            TensorInfo(name="w", dtype="int8", shape=(3, 5), role=Role.CONSTANT),
        ],
        inputs=["x"],
        outputs=["y"],
    )
    contents = Contents(recording=MemoryRecording(graph, {}, RunInfo(backend="npu")), listed=True)
    plain = contents.to_dict()
    assert plain["edge_bytes"] == {"int32": 40, "float32": 40, "int4": 3}
    assert plain["int32_edges"] == [{"tensor": "sums", "node": "product", "readers": ["cast"], "bytes": 40}]
    assert {entry["name"]: entry["bytes"] for entry in plain["tensor_list"]}["y"] == 20
    assert dict(contents_facts(contents))["int32 edges"] == "1 tensor between nodes, 40 B: sums 40 B"


def test_what_a_quantized_graph_computes_in_float_is_named():
    def constant(name, dtype, shape):
        return TensorInfo(name=name, dtype=dtype, shape=shape, role=Role.CONSTANT)

    graph = Graph(
        [
            Node(name="quantize", op="QuantizeLinear", inputs=("x", "s"), outputs=("xq",)),
            Node(name="real", op="DequantizeLinear", inputs=("xq", "s"), outputs=("xr",)),
            Node(name="weight", op="DequantizeLinear", inputs=("w", "s"), outputs=("wr",)),
            Node(name="conv", op="Conv", inputs=("xr", "v"), outputs=("c",)),
            Node(name="act", op="Sigmoid", inputs=("c",), outputs=("a",)),
            Node(name="again", op="QuantizeLinear", inputs=("a", "s"), outputs=("aq",)),
            Node(name="end", op="DequantizeLinear", inputs=("aq", "s"), outputs=("ar",)),
            Node(name="fc", op="MatMul", inputs=("ar", "wr"), outputs=("y",)),
        ],
        tensors=[
            constant("w", "int4", (3, 3)),
            constant("wr", "float32", (3, 3)),  # dequantized when the runtime loads the model: no float weight
            constant("v", "float32", (2, 3, 1, 1)),
            constant("s", "float32", ()),
        ],
        inputs=["x"],
        outputs=["y"],
    )
    contents = Contents(recording=MemoryRecording(graph, {}, RunInfo(backend="npu")))
    plain = contents.to_dict()
    assert plain["float_nodes"] == ["conv", "act"]
    assert plain["float_weights"] == ["conv"]
    assert plain["weight_bytes"] == {"float32": 28, "int4": 5}
    facts = dict(contents_facts(contents))
    assert facts["in float"] == "2 nodes between dequantize and quantize: conv (Conv), act (Sigmoid)"
    assert facts["weights"] == "float32 28 B, int4 5 B"
