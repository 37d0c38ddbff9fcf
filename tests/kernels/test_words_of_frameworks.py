"""A node on codes in OpenVINO's or PyTorch's words is explained as its twin in ONNX's words is: one table for all."""

from dataclasses import dataclass, field

import numpy as np
import pytest

import qdebug
from qdebug.arithmetic.candidates import candidates
from qdebug.model import QuantParams
from qdebug.replay import Coded, compute, run_node, unit_of_codes

X, Y = (0.05, 3), (0.08, -5)
ENDS = np.float32([-6.15, 6.6])
"""The real numbers of the lowest and highest code of Z."""
Z = (0.05, -5)


@dataclass
class Node:
    """A node: inputs are the names of `TENSORS`, plain arrays, or None where one is left out."""

    op: str
    attrs: dict = field(default_factory=dict)
    inputs: tuple = ("x",)


def drawn(seed, shape):
    return np.random.default_rng(seed).integers(-120, 120, shape).astype(np.int8)


def whole(*numbers):
    return np.array(numbers, np.int64)


TENSORS = {
    "x": (drawn(0, (2, 6, 8, 8)), *X, None),
    "other": (drawn(1, (2, 6, 8, 8)), 0.031, -7, None),
    "rows": (drawn(2, (4, 16)), *X, None),
    "stack": (drawn(3, (3, 4, 16)), *X, None),
    "weight": (drawn(4, (5, 6, 3, 3)), np.linspace(0.001, 0.003, 5), 0, 0),
    "grouped": (drawn(5, (6, 1, 3, 3)), 0.004, 0, None),
    "by groups": (drawn(5, (6, 1, 1, 3, 3)), 0.004, 0, None),
    "spread": (drawn(6, (6, 4, 2, 2)), 0.002, 0, None),
    "matrix": (drawn(7, (7, 16)), 0.004, 0, None),
    "turned": (drawn(7, (7, 16)).T, 0.004, 0, None),
    "batches": (drawn(8, (3, 5, 16)), 0.004, 0, None),
    "bias": (np.arange(-3, 4).astype(np.int32) * 500, 0.05 * 0.004, 0, None),
    "real": (np.random.default_rng(10).normal(0, 3, (2, 6, 8, 8)).astype(np.float32), None, None, None),
    "same": (drawn(9, (2, 6, 8, 8)), *Y, None),
}
CONSTANTS = ("weight", "grouped", "by groups", "spread", "matrix", "turned", "batches", "bias")
"""Tensors: codes, scale, zero point, axis."""

PADS = {"pads_begin": (1, 1), "pads_end": (1, 1), "auto_pad": "explicit"}
NONE = {"pads_begin": (0, 0), "pads_end": (0, 0), "auto_pad": "explicit"}
STRIDES = {"strides": (1, 1), "dilations": (1, 1)}
WINDOW = {"kernel": (3, 3), "strides": (2, 2), "rounding_type": "floor"}
RESIZED = {"mode": "linear", "shape_calculation_mode": "sizes", "coordinate_transformation_mode": "half_pixel", **NONE}
LARGER = np.array([12, 16])
WIDTHS = (0, 0, 1, 0, 0, 0, 2, 1)


def openvino():
    """Yield family, node, twin in ONNX's words, and scale and zero point of the result."""
    yield from _openvino_sums()
    yield from _openvino_functions()
    yield from _openvino_moves()


def _openvino_sums():
    yield (
        "Convolution",
        Node("Convolution", STRIDES | PADS, ("x", "weight")),
        Node("Conv", {"pads": (1,) * 4}, ("x", "weight")),
        Y,
    )
    group = Node("GroupConvolution", STRIDES | PADS, ("x", "by groups"))
    yield "GroupConvolution", group, Node("Conv", {"pads": (1,) * 4, "group": 6}, ("x", "grouped")), Y
    back = Node("ConvolutionBackpropData", STRIDES | NONE | {"strides": (2, 2)}, ("x", "spread"))
    yield "ConvolutionBackpropData", back, Node("ConvTranspose", {"strides": (2, 2)}, ("x", "spread")), Y
    turned = {"transpose_a": False, "transpose_b": True}
    yield "MatMul", Node("MatMul", turned, ("rows", "matrix")), Node("MatMul", {}, ("rows", "turned")), Y
    biased = Node("Gemm", {"transB": 1}, ("rows", "matrix", "bias"))
    yield "MatMul with bias", Node("MatMul", turned, ("rows", "matrix", "bias")), biased, Y
    many = Node("FusedMatMul", {"transA": 0, "transB": 1}, ("stack", "batches"))
    yield "MatMul of stacks", Node("MatMul", turned, ("stack", "batches")), many, Y
    for ours, theirs in (("Add", "Add"), ("Subtract", "Sub"), ("Multiply", "Mul"), ("Divide", "Div")):
        yield ours, Node(ours, {"auto_broadcast": "numpy"}, ("x", "other")), Node(theirs, {}, ("x", "other")), Y
    average = Node("AvgPool", WINDOW | PADS | {"exclude-pad": True})
    window = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1,) * 4}
    yield "AvgPool", average, Node("AveragePool", window), Y
    included = Node("AvgPool", WINDOW | PADS | {"exclude-pad": False})
    yield "AvgPool with its padding", included, Node("AveragePool", window | {"count_include_pad": 1}), Y
    pool = Node("MaxPool", WINDOW | PADS | {"dilations": (1, 1), "axis": 0})
    yield "MaxPool", pool, Node("MaxPool", window), Y
    dilated = WINDOW | NONE | {"kernel": (2, 2), "dilations": (2, 2)}
    twin = {"kernel_shape": (2, 2), "strides": (2, 2), "dilations": (2, 2)}
    yield "MaxPool with holes", Node("MaxPool", dilated), Node("MaxPool", twin), X
    mean = Node("ReduceMean", {"keep_dims": True}, ("x", whole(2, 3)))
    yield "ReduceMean", mean, Node("ReduceMean", {"axes": (2, 3), "keepdims": 1}), Y
    yield "SoftMax", Node("SoftMax", {"axis": -1}, ("rows",)), Node("Softmax", {"axis": -1}, ("rows",)), (1 / 256, -128)


def _openvino_functions():
    for ours, theirs, attrs in (
        ("Sigmoid", "Sigmoid", {}),
        ("Tanh", "Tanh", {}),
        ("HSwish", "HardSwish", {}),
        ("HSigmoid", "HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
        ("SoftPlus", "Softplus", {}),
        ("Mish", "Mish", {}),
        ("SoftSign", "Softsign", {}),
        ("ReLU", "Relu", {}),
        ("Negative", "Neg", {}),
        ("Ceiling", "Ceil", {}),
    ):
        yield ours, Node(ours), Node(theirs, attrs), (1 / 128, 0)
    yield "Clamp", Node("Clamp", {"min": -1.1, "max": 2.5}), Node("Clip", {"min": -1.1, "max": 2.5}), Y
    yield "Gelu", Node("Gelu", {"approximation_mode": "TANH"}), Node("Gelu", {"approximate": "tanh"}), Y
    swish = Node("Swish", {}, ("x", np.float32(0.5)))
    yield "Swish", swish, Node("Swish", {"alpha": 0.5}), Y
    hard = Node("HardSigmoid", {}, ("x", np.float32(0.3), np.float32(0.25)))
    yield "HardSigmoid", hard, Node("HardSigmoid", {"alpha": 0.3, "beta": 0.25}), (1 / 128, 0)


def _openvino_moves():
    resize = {"mode": "linear", "axes": (2, 3)}
    newer = Node("Interpolate", RESIZED, ("x", LARGER, whole(2, 3)))
    yield "Interpolate", newer, Node("Resize", resize, ("x", None, None, LARGER)), X
    nearest = RESIZED | {"mode": "nearest", "nearest_mode": "floor", "shape_calculation_mode": "scales"}
    older = Node("Interpolate", nearest, ("x", LARGER, np.float32([1.5, 2]), whole(2, 3)))
    twin = Node("Resize", resize | {"mode": "nearest", "nearest_mode": "floor"}, ("x", None, np.float32([1.5, 2])))
    yield "Interpolate to the nearest", older, twin, X
    yield "Concat", Node("Concat", {"axis": 1}, ("x", "other")), Node("Concat", {"axis": 1}, ("x", "other")), Y
    masks = {"begin_mask": (1, 0, 0, 1), "end_mask": (1, 0, 0, 1)}
    strided = Node("StridedSlice", masks, ("x", whole(0, 1, 7, 0), whole(0, 5, 1, 0), whole(1, 1, -2, 1)))
    cut = Node("Slice", {}, ("x", whole(1, 7), whole(5, 1), whole(1, 2), whole(1, -2)))
    yield "StridedSlice", strided, cut, X
    order = Node("Transpose", {}, ("x", whole(0, 2, 3, 1)))
    yield "Transpose", order, Node("Transpose", {"perm": (0, 2, 3, 1)}), X
    split = Node("VariadicSplit", {}, ("x", whole(1).reshape(()), whole(2, 4)))
    yield "VariadicSplit", split, Node("Split", {"axis": 1, "split": (2, 4)}), X
    equal = Node("Split", {"num_splits": 2}, ("x", whole(1).reshape(())))
    yield "Split", equal, Node("Split", {"axis": 1, "split": (3, 3)}), X
    gather = Node("Gather", {"batch_dims": 0}, ("x", whole(4, 0, 2), whole(1).reshape(())))
    yield "Gather", gather, Node("Gather", {"axis": 1}, ("x", whole(4, 0, 2))), X
    pad = Node("Pad", {"pad_mode": "constant"}, ("x", whole(*WIDTHS[:4]), whole(*WIDTHS[4:])))
    yield "Pad", pad, Node("Pad", {}, ("x", whole(*WIDTHS))), X
    blocks = Node("SpaceToDepth", {"block_size": 2, "mode": "blocks_first"})
    yield "SpaceToDepth", blocks, Node("SpaceToDepth", {"blocksize": 2}), X
    wider = Node("Broadcast", {"mode": "numpy"}, ("rows", whole(3, 4, 16)))
    yield "Broadcast", wider, Node("Expand", {}, ("rows", whole(3, 4, 16))), X
    chosen = np.random.default_rng(9).random((2, 6, 8, 8)) < 0.5
    yield "Select", Node("Select", {}, (chosen, "x", "same")), Node("Where", {}, (chosen, "x", "same")), Y
    yield (
        "Reshape",
        Node("Reshape", {"special_zero": True}, ("x", whole(0, -1))),
        Node("Reshape", {}, ("x", whole(2, 384))),
        X,
    )
    fake = Node("FakeQuantize", {"levels": 256}, ("real", *ENDS, *ENDS))
    yield "FakeQuantize", fake, Node("QuantizeLinear", {}, ("real",)), Z
    other = Node("FakeQuantize", {"levels": 256}, ("real", *ENDS, *np.float32([-2.56, 2.54])))
    yield (
        "FakeQuantize to another range",
        other,
        Node("QuantizeLinear", {}, ("real", np.float32(0.05), np.int8(-5))),
        (0.02, 0),
    )


def pytorch():
    """Yield family, node, twin in ONNX's words, and scale and zero point of the result."""
    spatial = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    general = spatial | {"transposed": False, "output_padding": (0, 0)}
    conv = Node("Conv", {"pads": (1,) * 4}, ("x", "weight"))
    yield "convolution", Node("aten.convolution.default", general, ("x", "weight")), conv, Y
    yield "conv2d", Node("aten::conv2d", spatial, ("x", "weight")), conv, Y
    depthwise = Node("aten.conv2d.default", spatial | {"groups": 6}, ("x", "grouped"))
    yield "depthwise", depthwise, Node("Conv", {"pads": (1,) * 4, "group": 6}, ("x", "grouped")), Y
    back = general | {"transposed": True, "stride": (2, 2), "padding": (0, 0)}
    spread = Node("ConvTranspose", {"strides": (2, 2)}, ("x", "spread"))
    yield "transposed", Node("aten.convolution.default", back, ("x", "spread")), spread, Y
    named = Node("aten.conv_transpose2d.input", {"stride": (2, 2)}, ("x", "spread"))
    yield "conv_transpose2d", named, spread, Y
    linear = Node("Gemm", {"transB": 1}, ("rows", "matrix", "bias"))
    yield "linear", Node("aten.linear.default", {}, ("rows", "matrix", "bias")), linear, Y
    product = Node("Gemm", {"alpha": 1.0, "beta": 1.0}, ("rows", "turned", "bias"))
    yield "addmm", Node("aten.addmm.default", {}, ("bias", "rows", "turned")), product, Y
    relu = {"activation": "Relu", "activation_params": ()}
    for word in ("quantized::conv2d_relu", "quantized::conv2d_relu.new"):
        yield word, Node(word, spatial, ("x", "weight")), Node("FusedConv", {"pads": (1,) * 4} | relu, conv.inputs), Y
    fused = Node("FusedGemm", {"transB": 1} | relu, linear.inputs)
    yield "linear_relu", Node("quantized::linear_relu", {}, linear.inputs), fused, Y
    for word, theirs in (("add_relu", "Add"), ("mul_relu", "Mul")):
        yield word, Node(f"quantized::{word}", {}, ("x", "other")), Node(theirs, relu, ("x", "other")), Y
    for ours, theirs in (("add.Tensor", "Add"), ("sub.Tensor", "Sub"), ("mul.Tensor", "Mul"), ("div.Tensor", "Div")):
        yield ours, Node(f"aten.{ours}", {}, ("x", "other")), Node(theirs, {}, ("x", "other")), Y
    window = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1,) * 4}
    given = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1)}
    average = Node("AveragePool", window | {"count_include_pad": 1})
    yield "avg_pool2d", Node("aten.avg_pool2d.default", given), average, Y
    yield "max_pool2d", Node("aten.max_pool2d.default", given), Node("MaxPool", window), X
    whole_plane = Node("aten.adaptive_avg_pool2d.default", {"output_size": (1, 1)})
    yield "adaptive_avg_pool2d", whole_plane, Node("GlobalAveragePool"), Y
    mean = Node("aten.mean.dim", {"dim": (2, 3), "keepdim": True})
    yield "mean", mean, Node("ReduceMean", {"axes": (2, 3), "keepdims": 1}), Y
    softmax = Node("aten._softmax.default", {"dim": -1, "half_to_float": False}, ("rows",))
    yield "softmax", softmax, Node("Softmax", {"axis": -1}, ("rows",)), (1 / 256, -128)
    for ours, attrs, theirs, more in (
        ("sigmoid", {}, "Sigmoid", {}),
        ("tanh", {}, "Tanh", {}),
        ("hardswish", {}, "HardSwish", {}),
        ("hardsigmoid", {}, "HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
        ("leaky_relu", {"negative_slope": 0.1}, "LeakyRelu", {"alpha": 0.1}),
        ("elu", {"alpha": 0.5}, "Elu", {"alpha": 0.5}),
        ("gelu", {"approximate": "none"}, "Gelu", {"approximate": "none"}),
        ("softplus", {}, "Softplus", {}),
        ("relu", {}, "Relu", {}),
        ("hardtanh", {"min_val": -1.1, "max_val": 0.3}, "Clip", {"min": -1.1, "max": 0.3}),
        ("clamp", {"min": -0.7}, "Clip", {"min": -0.7}),
        ("neg", {}, "Neg", {}),
    ):
        yield ours, Node(f"aten.{ours}.default", attrs), Node(theirs, more), (1 / 128, 0)
    yield "cat", Node("aten.cat.default", {"dim": 1}, ("x", "other")), Node("Concat", {"axis": 1}, ("x", "other")), Y
    resize = {"mode": "linear", "axes": (2, 3)}
    larger = Node("Resize", resize, ("x", None, None, LARGER))
    yield "bilinear", Node("aten.upsample_bilinear2d.vec", {"align_corners": False}), larger, X
    factors = {"align_corners": False, "scale_factors": (1.5, 2.0)}
    twice = Node("Resize", resize, ("x", None, np.float32([1.5, 2])))
    yield "bilinear by factors", Node("aten.upsample_bilinear2d.vec", factors), twice, X
    nearest = resize | {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    twin = Node("Resize", nearest, ("x", None, None, LARGER))
    yield "nearest", Node("aten.upsample_nearest2d.default", {}), twin, X
    part = Node("aten.slice_copy.Tensor", {"dim": 2, "start": 1, "end": 9, "step": 3})
    yield "slice", part, Node("Slice", {}, ("x", whole(1), whole(9), whole(2), whole(3))), X
    yield "permute", Node("aten.permute.default", {"dims": (0, 2, 3, 1)}), Node("Transpose", {"perm": (0, 2, 3, 1)}), X
    yield "view", Node("aten.view.default", {"size": (2, -1)}), Node("Reshape", {}, ("x", whole(2, 384))), X
    yield "expand", Node("aten.expand.default", {}, ("rows",)), Node("Expand", {}, ("rows", whole(3, 4, 16))), X
    around = Node("aten.constant_pad_nd.default", {"pad": (0, 1, 1, 2), "value": 0.0})
    yield "pad", around, Node("Pad", {}, ("x", whole(*WIDTHS))), X
    real, attrs = ("real",), {"scale": Z[0], "zero_point": Z[1], "quant_min": -128, "quant_max": 127, "dtype": "int8"}
    for word in ("quantized_decomposed.quantize_per_tensor.default", "torchao.quantize_affine.default"):
        yield word, Node(word, attrs, real), Node("QuantizeLinear", {}, real), Z


def quant_of(scale, zero_point, axis, dtype):
    scales = np.atleast_1d(np.asarray(scale, np.float32))
    return QuantParams(dtype=dtype, scale=scales, zero_point=np.full(scales.shape, zero_point), axis=axis)


def computed(twin, scale):
    """Return what the simplest arithmetic gives, or what is moved."""
    inputs = []
    for each in twin.inputs:
        if isinstance(each, str):
            codes, *quant = TENSORS[each]
            inputs.append(Coded(values=codes, quant=None if quant[0] is None else quant_of(*quant, codes.dtype.name)))
        else:
            inputs.append(None if each is None else Coded(values=each))
    names = tuple("" if each is None else f"i{at}" for at, each in enumerate(twin.inputs))
    names = ("i0", "i1", "i2") if twin.op == "QuantizeLinear" else names
    node = qdebug.Node(name="n", op=twin.op, inputs=names, outputs=("y",), attrs=twin.attrs)
    if twin.op == "QuantizeLinear":  # says its own scale
        by, zero_point = twin.inputs[1:] or (np.float32(scale[0]), np.int8(scale[1]))
        return run_node(node, {"i0": inputs[0].values, "i1": by, "i2": zero_point})["y"]
    unit = unit_of_codes(node, inputs, quant_of(*scale, None, "int8"))
    return compute(unit, candidates(unit)[0])


def recorded(node, outputs, scale, *, context=()):
    """Record a node as a harness does that knows nothing but its own words."""
    with qdebug.Recorder(None, backend="npu") as rec:
        names = []
        for at, each in enumerate(node.inputs):
            name = each if isinstance(each, str) else "" if each is None else f"given {at}"
            names.append(name)
            if isinstance(each, str):
                codes, own, zero_point, axis = TENSORS[each]
                own = None if own is None else np.float32(own)
                keep = rec.constant if each in CONSTANTS else rec.put
                keep(each, codes, scale=own, zero_point=zero_point, axis=axis)
            elif each is not None:
                rec.constant(name, each)
        for at, codes in enumerate(outputs):
            rec.put(
                f"y{at}", codes, node="n", op=node.op, inputs=tuple(names), attrs=node.attrs,
                scale=np.float32(scale[0]), zero_point=scale[1],
            )  # fmt: skip
        for name, op in context:
            rec.put(name, np.zeros(3, np.float32), node=name, op=op, inputs=("x", "x"))
    return rec.recording


def answers(recording):
    nodes = [node for node in qdebug.explain(recording).nodes if node.node == "n"]
    return [(node.status, node.variants, node.members, node.reason, node.witnesses) for node in nodes]


CASES = [*(("openvino", *case) for case in openvino()), *(("pytorch", *case) for case in pytorch())]


@pytest.mark.parametrize(
    ("words", "node", "twin", "scale"),
    [(words, *case) for words, _, *case in CASES],
    ids=[f"{words} {family}" for words, family, *_ in CASES],
)
def test_the_answer_is_that_of_onnx(words, node, twin, scale):
    parts = twin.attrs.get("split")
    outputs = np.split(TENSORS["x"][0], parts[:1], 1) if parts else [computed(twin, scale)]
    others = answers(recorded(twin, outputs, scale))
    assert {status for status, *_ in others} == {"explained"}
    beside = (("beside", "Multiply"),) if words == "openvino" else ()  # what the graph is made of tells whose words
    assert answers(recorded(node, outputs, scale, context=beside)) == others


@pytest.mark.parametrize("op", ["MVN", "LRN", "LSTMSequence", "L2_NORMALIZATION", "quantized::batch_norm2d_relu"])
def test_what_has_no_formula_on_codes_is_said_and_counted(op):
    found = qdebug.explain(recorded(Node(op), [TENSORS["x"][0]], Y))
    (node,) = (each for each in found.nodes if each.node == "n")
    assert (node.status, node.reason) == ("no_kernel", f"no quantized arithmetic is known for the operator {op}")
    assert (found.summary["not_looked_at"], found.exit_code) == (1, 3)
