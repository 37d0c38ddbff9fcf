"""Graph, names, attributes, constants and quantization of a LiteRT file, as the file states them."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from qdebug.backends import load_backend, load_reader
from qdebug.errors import QdebugError, UsageError

pytest.importorskip("ai_edge_litert", reason="needs the extra litert")

DIGITS = Path(__file__).resolve().parents[3] / "samples" / "digits" / "digits_int8.tflite"
NONE = -1


def read(net, tmp_path):
    return load_reader(net.save(tmp_path / "net.tflite"))


def dense(net, weight, **quant):
    """Make a net of one FULLY_CONNECTED."""
    x = net.input("x", (1, weight.shape[-1]))
    w = weight if isinstance(weight, int) else net.constant("w", weight, **quant)
    y = net.tensor("y", (1, weight.shape[0]))
    net.node("FULLY_CONNECTED", [x, w, NONE], [y], "FullyConnectedOptions", fusedActivationFunction=1)
    net.output(y)
    return w


def test_operators_have_the_names_and_words_of_the_schema(net, tmp_path):
    x = net.input("x", (1, 4, 4, 1), shapeSignature=[-1, 4, 4, 1])
    w = net.constant("w", np.ones((1, 2, 2, 1), np.float32))
    b = net.constant("b", np.zeros(1, np.float32))
    y = net.tensor("y", (1, 4, 4, 1))
    z = net.tensor("z", (1, 6, 6, 1))
    pads = net.constant("pads", np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))
    conv = {"strideW": 1, "strideH": 2, "dilationWFactor": 3, "dilationHFactor": 1, "fusedActivationFunction": 3}
    net.node("DEPTHWISE_CONV_2D", [x, w, b], [y], "DepthwiseConv2DOptions", padding=1, depthMultiplier=1, **conv)
    net.node("MIRROR_PAD", [y, pads], [z], "MirrorPadOptions", mode=1)
    net.output(z)
    graph = read(net, tmp_path).graph
    first, second = graph.nodes
    assert (first.name, first.op, first.inputs, first.outputs) == (
        "DEPTHWISE_CONV_2D:y",
        "DEPTHWISE_CONV_2D",
        ("x", "w", "b"),
        ("y",),
    )
    assert dict(first.attrs) == {
        "padding": "VALID",
        "stride_w": 1,
        "stride_h": 2,
        "dilation_w_factor": 3,
        "dilation_h_factor": 1,
        "depth_multiplier": 1,
        "fused_activation_function": "RELU6",
    }
    assert second.attrs["mode"] == "SYMMETRIC"
    assert graph.tensors["x"].shape == (None, 4, 4, 1)
    assert (graph.inputs, graph.outputs) == (("x",), ("z",))


def test_an_input_that_is_left_out_has_no_name(net, tmp_path):
    dense(net, np.ones((2, 4), np.float32))
    assert read(net, tmp_path).graph.nodes[0].inputs == ("x", "w", "")


def test_names_that_repeat_or_are_empty_get_their_index(net, tmp_path):
    x = net.input("x", (1, 4))
    taken = net.tensor("x:3", (1, 4))
    empty = net.tensor("", (1, 4))
    again = net.tensor("x", (1, 4))
    net.node("ABS", [x], [taken])
    net.node("ABS", [taken], [empty])
    net.node("ABS", [empty], [again])
    net.output(again)
    model = read(net, tmp_path)
    assert tuple(model.names) == ("x", "x:3", "tensor:2", "x:3'")
    assert model.graph.outputs == ("x:3'",)
    assert [node.name for node in model.graph.nodes] == ["ABS:x:3", "ABS:tensor:2", "ABS:x:3'"]


def test_a_custom_operator_keeps_its_own_name_apart_from_known_ones(net, tmp_path):
    x, y = net.input("x", (1, 4)), net.tensor("y", (1, 4))
    net.node("CUSTOM", [x], [y], custom="Relu")
    net.output(y)
    node = read(net, tmp_path).graph.nodes[0]
    assert (node.op, node.domain) == ("Relu", "tflite.custom")


def test_scales_for_each_channel(net, tmp_path):
    weight = np.arange(8, dtype=np.int8).reshape(2, 4)
    dense(net, weight, scale=[0.5, 0.25], axis=0)
    model = read(net, tmp_path)
    quant = model.graph.tensors["w"].quant
    assert (quant.scale.tolist(), quant.zero_point.tolist(), quant.axis) == ([0.5, 0.25], [0, 0], 0)
    assert np.array_equal(model.constant("w"), weight)


def test_one_scale_and_zero_point(net, tmp_path):
    x = net.input("x", (1, 4), "UINT8", scale=0.1, zero=7)
    net.output(x)
    quant = read(net, tmp_path).graph.tensors["x"].quant
    assert (quant.zero_point.tolist(), quant.axis, quant.dtype) == ([7], None, "uint8")
    assert quant.scale.dtype == np.float32


def test_scales_of_blocks_and_codes_of_four_bits(net, tmp_path):
    codes = np.arange(-8, 8).reshape(2, 8)
    packed = (codes.reshape(-1, 2) & 15).astype(np.uint8) @ np.array([1, 16], np.uint8)
    scales = np.array([[0.5, 0.25], [1.0, 2.0]], np.float16)
    x, y = net.input("x", (1, 8)), net.tensor("y", (1, 2))
    w = net.tensor("w", (2, 8), "INT4", data=packed)
    s = net.constant("s", scales)
    net.graph.tensors[w].quantization = params = net.schema.QuantizationParametersT()
    params.detailsType = net.schema.QuantizationDetails.BlockwiseQuantization
    params.details = net.schema.BlockwiseQuantizationT(scales=s, zeroPoints=NONE, blockSize=4)
    net.node("FULLY_CONNECTED", [x, w, NONE], [y], "FullyConnectedOptions")
    net.output(y)
    model = read(net, tmp_path)
    assert model.constant("w").dtype == ml_dtypes.int4
    assert np.array_equal(model.constant("w").astype(np.int8), codes)
    quant = model.graph.tensors["w"].quant
    assert (quant.scale.tolist(), quant.axis, quant.block_size) == (scales.tolist(), 1, 4)
    assert quant.zero_point.tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("kernels", ["xnnpack", "builtin"])  # the reference kernels of 2.3.0 give zeros here
def test_what_is_read_of_blocks_is_what_litert_computes_with(net, tmp_path, kernels):
    rng = np.random.default_rng(0)
    codes, scales = rng.integers(-8, 8, (8, 64)), (rng.random((8, 2)) * 0.1 + 0.01).astype(np.float16)
    x, y = net.input("x", (1, 64)), net.tensor("y", (1, 8))
    w = net.tensor(
        "w", (8, 64), "INT4", data=(codes.reshape(-1, 2) & 15).astype(np.uint8) @ np.array([1, 16], np.uint8)
    )
    net.graph.tensors[w].quantization = params = net.schema.QuantizationParametersT()
    params.detailsType = net.schema.QuantizationDetails.BlockwiseQuantization
    scale = net.constant("s", scales)
    params.details = net.schema.BlockwiseQuantizationT(scales=scale, zeroPoints=NONE, blockSize=32)
    net.node("FULLY_CONNECTED", [x, w, NONE], [y], "FullyConnectedOptions", version=13)
    net.output(y)
    model, feed = read(net, tmp_path), rng.standard_normal((1, 64)).astype(np.float32)
    run = load_backend("litert").open(tmp_path / "net.tflite", options={"kernels": kernels})
    real = model.constant("w").astype(np.float32) * np.repeat(model.graph.tensors["w"].quant.scale, 32, axis=1)
    right = feed @ real.T
    assert np.abs(run.plain({"x": feed})["y"] - right).max() < 0.02 * np.abs(right).max()  # x is quantized to 8 bits


def test_quantization_is_what_litert_says_itself():
    from ai_edge_litert.interpreter import Interpreter

    model = load_reader(DIGITS)
    details = {each["index"]: each for each in Interpreter(str(DIGITS)).get_tensor_details()}
    for name, index in model.indices.items():
        said, quant = details[index]["quantization_parameters"], model.graph.tensors[name].quant
        assert details[index]["name"] == name
        assert (quant is None) == (len(said["scales"]) == 0)
        if quant is not None:
            assert np.array_equal(quant.scale, said["scales"])
            assert np.array_equal(quant.zero_point, said["zero_points"])
            assert quant.axis in (None, said["quantized_dimension"])


def test_a_damaged_model_is_refused_or_read_and_nothing_else(tmp_path):
    whole, rng = DIGITS.read_bytes(), np.random.default_rng(0)
    path = tmp_path / "net.tflite"
    refused = 0
    for _ in range(150):
        content = bytearray(whole)
        content[rng.integers(len(whole))] = content[rng.integers(2000)] = rng.integers(256)
        path.write_bytes(content)
        try:
            model = load_reader(path)
            for name in model.constants:
                model.constant(name)
        except QdebugError:
            refused += 1
    assert 0 < refused < 150


@pytest.mark.parametrize(
    ("kind", "data", "codes"),
    [
        ("INT2", [0b11100100], [0, 1, -2, -1]),
        ("UINT4", [0x21, 0x0F], [1, 2, 15]),
        ("BFLOAT16", [0x80, 0x3F], [1.0]),
    ],
)
def test_packed_and_short_constants(net, tmp_path, kind, data, codes):
    x, y = net.input("x", (1,)), net.tensor("y", (1,))
    c = net.tensor("c", (len(codes),), kind, data=np.array(data, np.uint8))
    net.node("CUSTOM", [x, c], [y], custom="Any")
    net.output(y)
    assert read(net, tmp_path).constant("c").astype(np.float32).tolist() == codes


def test_a_constant_without_its_bytes_is_named(net, tmp_path):
    dense(net, np.ones((2, 4), np.float32))
    net.model.buffers[-1].data = np.zeros(4, np.uint8)
    model = read(net, tmp_path)
    assert model.constants == ()
    assert model.unreadable == {"w": "its bytes do not fit its shape"}
    with pytest.raises(UsageError, match="do not fit"):
        model.constant("w")
    with pytest.raises(UsageError, match="no constant 'x'"):
        model.constant("x")


def sparse(net, order, levels, *, block_map=(), values=(1, 2, 3, 4, 5)):
    """Make a net with a sparse constant (4, 4); a level is the extent of a dense one, or segments and indices."""
    x, y = net.input("x", (1,)), net.tensor("y", (1,))
    c = net.tensor("c", (4, 4), data=np.array(values, np.float32))
    net.graph.tensors[c].sparsity = params = net.schema.SparsityParametersT()
    params.traversalOrder, params.blockMap, params.dimMetadata = list(order), list(block_map), []
    for level in levels:
        made = net.schema.DimensionMetadataT()
        made.format = int(not isinstance(level, int))
        if made.format:
            made.arraySegments, made.arrayIndices = net.schema.Int32VectorT(), net.schema.Uint8VectorT()
            made.arraySegmentsType = net.schema.SparseIndexVector.Int32Vector
            made.arrayIndicesType = net.schema.SparseIndexVector.Uint8Vector
            made.arraySegments.values, made.arrayIndices.values = (
                np.array(level[0], np.int32),
                np.array(level[1], np.uint8),
            )
        else:
            made.denseSize = level
        params.dimMetadata.append(made)
    net.node("CUSTOM", [x, c], [y], custom="Any")
    net.output(y)


ROWS = ([0, 1, 1, 3, 5], [2, 0, 3, 1, 2])


@pytest.mark.parametrize(
    ("order", "levels", "block_map", "right"),
    [
        ((0, 1), (4, ROWS), (), [[0, 0, 1, 0], [0, 0, 0, 0], [2, 0, 0, 3], [0, 4, 5, 0]]),
        ((1, 0), (4, ROWS), (), [[0, 0, 2, 0], [0, 0, 0, 4], [1, 0, 0, 5], [0, 0, 3, 0]]),
        (
            (0, 1, 2, 3),
            (2, ([0, 1, 2], [1, 0]), 2, 2),
            (0, 1),
            [[0, 0, 1, 2], [0, 0, 3, 4], [5, 6, 0, 0], [7, 8, 0, 0]],
        ),
    ],
)
def test_sparse_constants_are_read_in_full(net, tmp_path, order, levels, block_map, right):
    sparse(net, order, levels, block_map=block_map, values=range(1, int(np.max(right)) + 1))
    model = read(net, tmp_path)
    assert model.unreadable == {}
    assert model.constant("c").tolist() == right


@pytest.mark.parametrize(
    "levels", [(4, ([0, 1, 1, 3, 9], [2, 0, 3, 1, 2])), (4, ([0, 1, 1, 3, 5], [2, 0, 9, 1, 2])), (4,), (4, 2**31 - 1)]
)
def test_a_sparse_constant_that_does_not_fit_is_named(net, tmp_path, levels):
    sparse(net, (0, 1), levels)
    assert read(net, tmp_path).unreadable == {"c": "its bytes do not fit its shape"}


def test_a_model_is_stateful_by_variables_and_resources(net, tmp_path):
    x, y = net.input("x", (1, 4)), net.tensor("y", (1, 4))
    net.node("ABS", [x], [y])
    net.output(y)
    assert not read(net, tmp_path).stateful
    net.tensor("state", (1, 4), isVariable=True)
    assert read(net, tmp_path).stateful


def test_subgraphs_are_counted_under_names_of_their_own(net, tmp_path):
    x, y = net.input("x", (1, 4)), net.tensor("y", (1, 4))
    net.node("WHILE", [x], [y], "WhileOptions", condSubgraphIndex=2, bodySubgraphIndex=1)
    net.output(y)
    for number, name in enumerate((b"body", b"", b"body", b"other")):
        net.subgraph()
        net.graph.name = name
        for tensor in range(number + 1):
            net.tensor(f"t{tensor}", (1,))
        if number == 1:
            net.node("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=3)
    assert read(net, tmp_path).inner_subgraphs == {
        "body": (1, "WHILE 'WHILE:y'"),
        "subgraph:2": (2, "WHILE 'WHILE:y'"),
        "body:3": (3, "subgraph ''"),
        "other": (4, ""),
    }


def test_more_outputs_are_added_to_a_copy(net, tmp_path):
    x, y, z = net.input("x", (1, 4)), net.tensor("y", (1, 4)), net.tensor("z", (1, 4))
    net.node("ABS", [x], [y])
    net.node("ABS", [y], [z])
    net.output(z)
    model = read(net, tmp_path)
    (tmp_path / "more.tflite").write_bytes(model.with_outputs(["y"]))
    assert load_reader(tmp_path / "more.tflite").graph.outputs == ("z", "y")
    assert model.graph.outputs == ("z",)
    assert load_reader(tmp_path / "net.tflite").graph.outputs == ("z",)
