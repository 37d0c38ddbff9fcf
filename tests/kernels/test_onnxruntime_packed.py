"""Operators of ONNX Runtime that hold codes and give real numbers, against the runtime's own kernels."""

import numpy as np
import pytest

from qdebug.errors import KernelError
from qdebug.model import Node
from qdebug.replay import run_node

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(41)


def run_both(op, inputs, *, outputs=1, fed=(0,), kinds=None, **attrs):
    """Run one node in ONNX Runtime and here; inputs that are not fed are constants. `kinds` are ONNX's names."""
    from onnx import TensorProto, helper

    kinds = kinds or {}
    names = [f"i{at}" if value is not None else "" for at, value in enumerate(inputs)]
    out = [f"o{at}" for at in range(outputs)]
    held, feeds = [], []
    for at, value in enumerate(inputs):
        if value is None:
            continue
        kind = getattr(TensorProto, kinds[at]) if at in kinds else helper.np_dtype_to_tensor_dtype(value.dtype)
        if at in fed:
            feeds.append(helper.make_tensor_value_info(names[at], kind, value.shape))
        elif at in kinds:
            held.append(helper.make_tensor(names[at], kind, value.shape, value.astype(np.int8).reshape(-1)))
        else:
            held.append(onnx.numpy_helper.from_array(value, names[at]))
    graph = helper.make_graph(
        [helper.make_node(op, names, out, domain=MICROSOFT, **attrs)],
        "one",
        feeds,
        [onnx.ValueInfoProto(name=name) for name in out],
        held,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    theirs = session.run(None, {names[at]: inputs[at] for at in fed})
    values = {name: value for name, value in zip(names, inputs, strict=True) if name}
    node = Node(name="n", op=op, domain=MICROSOFT, inputs=tuple(names), outputs=tuple(out), attrs=attrs)
    ours = run_node(node, values, {"": 21, MICROSOFT: 1})
    return theirs, [ours[name] for name in out]


def packed(codes, bits):
    """Pack codes along the last axis, lowest bits first."""
    per = 8 // bits
    full = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % per)])
    parts = full.reshape(*full.shape[:-1], -1, per).astype(np.uint8) << (np.arange(per, dtype=np.uint8) * bits)
    return np.bitwise_or.reduce(parts, axis=-1).astype(np.uint8)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_table_of_packed_codes(bits, points, dtype):
    rows, width, block = 11, 72, 16
    blocks = -(-width // block)
    codes = RNG.integers(0, 2**bits, (rows, width))
    zeros = packed(RNG.integers(0, 2**bits, (rows, blocks)), bits) if points else None
    scales = RNG.normal(size=(rows, blocks)).astype(dtype)
    ids = np.array([[3, 0, -1, 10], [3, 7, 2, -11]])
    (theirs,), (ours,) = run_both(
        "GatherBlockQuantized", [packed(codes, bits), ids, scales, zeros], fed=(1,), bits=bits, block_size=block,
        gather_axis=0, quantize_axis=1,
    )  # fmt: skip
    assert ours.dtype == dtype
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
@pytest.mark.parametrize(("gather", "quantize"), [(0, 1), (1, 0), (0, 2), (2, 1), (1, 1)])
def test_a_table_of_four_bit_integers_along_any_axis(kind, points, gather, quantize):
    import ml_dtypes

    shape = (5, 40, 6)
    low, high = (-8, 8) if kind == "INT4" else (0, 16)
    narrow = ml_dtypes.int4 if kind == "INT4" else ml_dtypes.uint4
    blocks = tuple(-(-extent // 16) if axis == quantize else extent for axis, extent in enumerate(shape))
    codes, zeros = (RNG.integers(low, high, each).astype(narrow) for each in (shape, blocks))
    scales = RNG.normal(size=blocks).astype(np.float32)
    ids = np.array([1, 0, -1, 4])
    (theirs,), (ours,) = run_both(
        "GatherBlockQuantized", [codes, ids, scales, zeros if points else None], fed=(1,), block_size=16,
        gather_axis=gather, quantize_axis=quantize, kinds={0: kind, 3: kind},
    )  # fmt: skip
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", [0, 1], ids=["fp4", "nf4"])
@pytest.mark.parametrize(("rows", "columns", "block"), [(64, 24, 16), (20, 9, 32), (33, 7, 16)])
def test_a_weight_of_levels_in_blocks_that_rows_need_not_fill(kind, rows, columns, block):
    count = rows * columns
    codes = RNG.integers(0, 256, (count + 1) // 2).astype(np.uint8)
    largest = RNG.random(-(-count // block)).astype(np.float32)
    attrs = {"K": rows, "N": columns, "block_size": block, "quant_type": kind}
    identity = np.eye(rows, dtype=np.float32)
    (theirs,), (ours,) = run_both("MatMulBnb4", [identity, codes, largest], **attrs)
    np.testing.assert_array_equal(ours, theirs)  # each sum has one term: the weight itself, bit for bit
    x = RNG.normal(size=(2, 5, rows)).astype(np.float32)
    (theirs,), (ours,) = run_both("MatMulBnb4", [x, codes, largest], **attrs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_weight_of_levels_that_is_not_transposed_is_refused():
    attrs = {"K": 16, "N": 4, "block_size": 16, "quant_type": 1, "transB": 0}
    node = Node(name="n", op="MatMulBnb4", domain=MICROSOFT, inputs=("x", "w", "s"), outputs=("y",), attrs=attrs)
    values = {"x": np.ones((1, 16), np.float32), "w": np.zeros(32, np.uint8), "s": np.ones(4, np.float32)}
    with pytest.raises(KernelError, match="not store its weight transposed"):
        run_node(node, values, {MICROSOFT: 1})


BATCH, LENGTH, WIDTH, HEADS = 2, 6, 32, 4
MASKS = {
    "none": None,
    "ends": np.array([4, 6], np.int32),
    "ends and starts": np.array([5, 6, 1, 0], np.int32),
    "places": (RNG.random((BATCH, LENGTH)) < 0.7).astype(np.int32),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_attention_on_codes(signed, columns, mask):
    x = RNG.integers(0, 256, (BATCH, LENGTH, WIDTH)).astype(np.uint8)
    w = RNG.integers(-63, 64, (WIDTH, 3 * WIDTH)).astype(np.int8)
    w = w if signed else (w.astype(np.int32) + 64).astype(np.uint8)
    count = 3 * WIDTH if columns else 1
    scale = (0.002 + 0.004 * RNG.random(count)).astype(np.float32)
    zero = RNG.integers(0, 5, count if columns else 1).astype(w.dtype)
    bias = RNG.normal(size=3 * WIDTH).astype(np.float32)
    inputs = [x, w, bias, np.float32([0.02]), scale, MASKS[mask], np.uint8([117]), zero]
    for ahead in (0, 1):
        (theirs,), (ours,) = run_both("QAttention", inputs, num_heads=HEADS, unidirectional=ahead)
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


def test_attention_on_codes_keeps_what_comes_after_what_was_kept():
    x = RNG.integers(0, 256, (BATCH, LENGTH, WIDTH)).astype(np.uint8)
    w = RNG.integers(-63, 64, (WIDTH, 3 * WIDTH)).astype(np.int8)
    past = RNG.normal(size=(2, BATCH, HEADS, 3, WIDTH // HEADS)).astype(np.float32)
    bias = RNG.normal(size=3 * WIDTH).astype(np.float32)
    inputs = [x, w, bias, np.float32([0.02]), np.float32([0.003]), None, np.uint8([117]), np.int8([0]), past]
    theirs, ours = run_both("QAttention", inputs, outputs=2, num_heads=HEADS, unidirectional=1, fed=(0, 8))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("segments", [False, True])
def test_embeddings_of_codes(dtype, segments):
    info = np.iinfo(dtype)
    draw = lambda *shape: RNG.integers(info.min, info.max + 1, shape).astype(dtype)  # noqa: E731
    ids = RNG.integers(0, 20, (BATCH, LENGTH)).astype(np.int32)
    kinds = RNG.integers(0, 2, (BATCH, LENGTH)).astype(np.int32) if segments else None
    mask = (RNG.random((BATCH, LENGTH)) < 0.6).astype(np.int32)
    scales = [np.float32([each]) for each in (0.011, 0.02, 0.013, 0.008, 0.009)]
    zeros = [np.array([each], dtype) for each in (3, 9, 1, 0, 7)]
    if not segments:
        scales[2] = zeros[2] = None
    tables = [draw(20, WIDTH), draw(LENGTH, WIDTH), draw(2, WIDTH) if segments else None, draw(WIDTH), draw(WIDTH)]
    inputs = [ids, kinds, *tables, mask, *scales, *zeros]
    theirs, ours = run_both("QEmbedLayerNormalization", inputs, outputs=2, epsilon=1e-9)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(ours[1], theirs[1])
