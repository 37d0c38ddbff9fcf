"""Convolutions stored in blocks of channels, channels last or as sums of codes, whose results the reference turns."""

from dataclasses import replace

import numpy as np
import pytest

from qdebug.compare.align.align import align
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.layouts import in_one_order
from qdebug.compare.align.pairs import Transform
from qdebug.compare.align.weights import in_plain_order, without_padding
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.session import DiffSession

RNG = np.random.default_rng(8)
LAST = (0, 2, 3, 1)
SECOND = (0, 3, 1, 2)
X = RNG.normal(size=(1, 8, 8, 8)).astype(np.float32)
W1, W2 = (RNG.normal(size=(8, 8, 1, 1)).astype(np.float32) for _ in range(2))
SCALE = RNG.uniform(0.5, 2, 8).astype(np.float32)
NCHWC = "com.microsoft.nchwc"


def node(op, inputs, output, *, domain="", **attrs):
    outputs = (output,) if isinstance(output, str) else output
    return Node(
        name=f"n_{outputs[0]}", op=op, inputs=tuple(inputs.split()), outputs=outputs, attrs=attrs, domain=domain
    )


def recording(nodes, arrays, *, constants=(), layouts=None, quants=None):
    tensors = [
        TensorInfo(
            name=name,
            role=Role.CONSTANT if name in constants else Role.INPUT if name == "x" else Role.ACTIVATION,
            layout=(layouts or {}).get(name),
            quant=(quants or {}).get(name),
            dtype=str(arrays[name].dtype),
        )
        for name in arrays
    ]
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=nodes[-1].outputs, opset={"": 17})
    return MemoryRecording.single(graph, arrays)


def conv(x, w):
    return np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]).astype(np.float32)


def blocked(array, block=4):
    count, channels, height, width = array.shape
    parts = array.reshape(count, channels // block, block, height, width)
    return parts.transpose(0, 1, 3, 4, 2).reshape(array.shape)


def blocked_weight(weight, block=4):
    outputs, inputs, height, width = weight.shape
    parts = weight.reshape(outputs // block, block, inputs // block, block, height, width)
    return parts.transpose(0, 2, 4, 5, 3, 1).reshape(weight.shape)


A, B = conv(X, W1), conv(X, W2)


def turning():
    """Two convolutions, each turned to channels last and scaled there; the second reads what is turned and back."""
    a, b = A.transpose(LAST), B.transpose(LAST)
    nodes = [
        node("Transpose", "x", "x_last", perm=LAST),
        node("Transpose", "x_last", "x_back", perm=SECOND),
        node("Conv", "x_back w1", "c1"),
        node("Conv", "x_back w2", "c2"),
        node("Transpose", "c1", "t1", perm=LAST),
        node("Transpose", "c2", "t2", perm=LAST),
        node("Mul", "t1 scale", "a"),
        node("Mul", "t2 scale", "b"),
        node("Sub", "a b", "d"),
        node("Transpose", "d", "y", perm=SECOND),
    ]
    d = (a - b) * SCALE
    arrays = {"x": X, "x_last": X.transpose(LAST), "x_back": X, "w1": W1, "w2": W2, "scale": SCALE, "c1": A, "c2": B}
    arrays |= {"t1": a, "t2": b, "a": a * SCALE, "b": b * SCALE, "d": d, "y": d.transpose(SECOND)}
    return recording(nodes, arrays, constants=("w1", "w2", "scale"))


def in_blocks(*, fault=None):
    """The same net by convolutions in blocks of channels, turned nowhere: all extents are equal."""
    scale = SCALE.reshape(8, 1, 1)
    a, b = A * scale, B * scale
    if fault == "rolled":
        a = np.roll(a, 1, axis=1)
    weight = W1 * (1 + (np.arange(8) == 3)).astype(np.float32).reshape(8, 1, 1, 1) if fault == "weight" else W1
    made = conv(X, weight)
    a = made * scale if fault == "weight" else a
    nodes = [
        node("ReorderInput", "x", "xb", domain=NCHWC),
        node("Conv", "xb w1b", "c1b", domain=NCHWC),
        node("Conv", "xb w2b", "c2b", domain=NCHWC),
        node("ReorderOutput", "c1b", "c1o", domain=NCHWC),
        node("ReorderOutput", "c2b", "c2o", domain=NCHWC),
        node("Mul", "c1o scale2", "a2"),
        node("Mul", "c2o scale2", "b2"),
        node("Sub", "a2 b2", "y"),
    ]
    arrays = {"x": X, "xb": blocked(X), "w1b": blocked_weight(weight), "w2b": blocked_weight(W2), "scale2": scale}
    arrays |= {"c1b": blocked(made), "c2b": blocked(B), "c1o": made, "c2o": B, "a2": a, "b2": b, "y": a - b}
    layouts = dict.fromkeys(("xb", "c1b", "c2b"), "NCHW4c")
    return recording(nodes, arrays, constants=("w1b", "w2b", "scale2"), layouts=layouts)


@pytest.mark.parametrize("way", ["there", "back"])
def test_blocks_of_channels_are_undone_and_then_turned_as_the_reference_turns_them(way):
    sides = (turning(), in_blocks()) if way == "there" else (in_blocks(), turning())
    result = DiffSession(*sides).result()
    assert result.status in (Status.IDENTICAL, Status.WITHIN), result.verdict.sentence
    assert not [entry for entry in result.coverage.unmatched if entry.kind == "lost"]
    assert all(entry.status in (Status.IDENTICAL, Status.WITHIN) for entry in result.nodes)
    assert {pair.backend for pair in align(*sides).pairs} >= ({"c1b", "c2b", "a2"} if way == "there" else {"c1", "a"})


@pytest.mark.parametrize(("fault", "first"), [("rolled", "n_a2"), ("weight", "n_c1b")])
def test_a_fault_among_turned_blocks_is_found_where_it_is(fault, first):
    result = DiffSession(turning(), in_blocks(fault=fault)).result()
    assert result.status is Status.DIVERGED
    assert result.verdict.first_divergence == first


def test_weights_in_blocks_are_put_in_plain_order_and_padding_left_out():
    run = IndexedRecording.of(in_blocks())
    reader = run.graph.producer("c1b")
    np.testing.assert_array_equal(in_plain_order(run, reader, blocked_weight(W1)), W1)
    assert in_plain_order(run, run.graph.producer("a2"), W1) is W1
    padded = np.zeros((8, 8, 1, 1), np.float32)
    padded[:5, :3] = W1[:5, :3]
    np.testing.assert_array_equal(without_padding(padded, (5, 3, 1, 1)), W1[:5, :3])
    assert without_padding(W1, (5, 3, 1, 1)) is W1


def test_blocks_are_handed_on_by_nodes_that_declare_none():
    squared = A * (1 / (1 + np.exp(-A)))
    reference = recording(
        [
            node("Conv", "x w1", "c"),
            node("Sigmoid", "c", "s"),
            node("Mul", "c s", "m"),
            node("Transpose", "m", "y", perm=LAST),
        ],
        {"x": X, "w1": W1, "c": A, "s": squared / A, "m": squared, "y": squared.transpose(LAST)},
        constants=("w1",),
    )
    backend = recording(
        [
            node("Conv", "x w1b", "cb", domain=NCHWC),
            node("QuickGelu", "cb", "mb", domain="com.microsoft", alpha=1.0),
            node("ReorderOutput", "mb", "mo", domain=NCHWC),
            node("Transpose", "mo", "y", perm=LAST),
        ],
        {"x": X, "w1b": W1.reshape(2, 4, 8, 1, 1).transpose(0, 2, 3, 4, 1).reshape(W1.shape), "cb": blocked(A)}
        | {"mb": blocked(squared), "mo": squared, "y": squared.transpose(LAST)},
        constants=("w1b",),
        layouts={"cb": "NCHW4c"},
    )
    result = DiffSession(reference, backend).result()
    assert result.status in (Status.IDENTICAL, Status.WITHIN), result.verdict.sentence
    assert {"cb", "mb", "mo", "y"} <= {entry.tensor for entry in result.nodes}


def test_blocks_may_be_turned_on_either_side():
    last = X.transpose(LAST)
    view = Transform(channel_block=4, transpose=LAST)
    for sides in ((last, None, blocked(X), view), (blocked(X), view, last, None), (blocked(X), view, blocked(X), view)):
        np.testing.assert_array_equal(*in_one_order(*sides))


CODES = QuantParams(dtype="uint8", scale=np.float32(0.2), zero_point=128)


def test_codes_that_a_node_keeps_channels_last_are_those_that_the_reference_turns_so():
    codes = np.clip(np.rint(A / np.float32(0.2)) + 128, 0, 255).astype(np.uint8)
    real = ((codes.astype(np.float32) - 128) * np.float32(0.2)).astype(np.float32)
    scaled = real * SCALE.reshape(8, 1, 1)
    reference = recording(
        [
            node("Conv", "x w1", "c"),
            node("Transpose", "c", "t", perm=LAST),
            node("Mul", "t scale", "m"),
            node("Transpose", "m", "y", perm=SECOND),
        ],
        {"x": X, "w1": W1, "scale": SCALE, "c": A, "t": A.transpose(LAST), "m": A.transpose(LAST) * SCALE}
        | {"y": A * SCALE.reshape(8, 1, 1)},
        constants=("w1", "scale"),
    )
    backend = recording(
        [
            node("QLinearConv", "x w1", "q", channels_last=1),
            node("Transpose", "q", "q2", perm=SECOND),
            node("DequantizeLinear", "q2", "dq"),
            node("Mul", "dq scale2", "y"),
        ],
        {"x": X, "w1": W1, "scale2": SCALE.reshape(8, 1, 1), "q": codes.transpose(LAST), "q2": codes, "dq": real}
        | {"y": scaled},
        constants=("w1", "scale2"),
        quants={"q": CODES, "q2": CODES},
    )
    result = DiffSession(reference, backend).result()
    compared = {entry.tensor: entry for entry in result.nodes}
    assert {"q", "q2", "dq", "y"} <= set(compared)
    assert all(entry.metrics is not None and entry.metrics.max_abs < 0.25 for entry in compared.values())


def test_what_sums_of_codes_are_scaled_to_is_turned_as_the_reference_turns_it():
    bias = RNG.normal(size=8).astype(np.float32)
    step = np.float32(np.abs(W1).max() / 127)
    weight = np.rint(W1 / step).astype(np.int8)
    low, high = min(X.min(), 0), max(X.max(), 0)
    unit = np.float32((high - low) / 255)
    zero = np.uint8(np.rint(-low / unit))
    codes = np.clip(np.rint(X / unit) + zero, 0, 255).astype(np.uint8)
    sums = conv(codes.astype(np.float64) - zero, weight.astype(np.float64)).astype(np.int32)
    product = np.float32(unit * step)
    real = sums.astype(np.float32) * product
    made = real + bias.reshape(8, 1, 1)
    plain = A.transpose(LAST) + bias
    reference = recording(
        [
            node("Conv", "x w1", "c"),
            node("Transpose", "c", "t", perm=LAST),
            node("Add", "t bias", "s"),
            node("Relu", "s", "r"),
            node("Transpose", "r", "y", perm=SECOND),
        ],
        {"x": X, "w1": W1, "bias": bias, "c": A, "t": A.transpose(LAST), "s": plain, "r": np.maximum(plain, 0)}
        | {"y": np.maximum(plain, 0).transpose(SECOND)},
        constants=("w1", "bias"),
    )
    backend = recording(
        [
            node("DynamicQuantizeLinear", "x", ("xq", "xs", "xz")),
            node("ConvInteger", "xq w1q xz", "sums"),
            node("Cast", "sums", "cast", to=1),
            node("Mul", "xs ws", "product"),
            node("Mul", "cast product", "scaled"),
            node("Add", "scaled bias2", "s"),
            node("Relu", "s", "y"),
        ],
        {"x": X, "xq": codes, "xs": unit, "xz": zero, "w1q": weight, "sums": sums, "cast": sums.astype(np.float32)}
        | {"ws": step, "product": product, "scaled": real, "bias2": bias.reshape(8, 1, 1), "s": made}
        | {"y": np.maximum(made, 0)},
        constants=("w1q", "ws", "bias2"),
    )
    compared = {entry.tensor: entry for entry in DiffSession(reference, backend).result().nodes}
    assert {"s", "y"} <= set(compared)
    assert all(entry.metrics is not None and entry.metrics.max_abs < 0.5 for entry in compared.values())


def beside_each_other(*, last, weight=W2):
    """Two convolutions of one tensor, which one side keeps channels last and turns before each of them."""
    positive = np.maximum(X, 0)
    made = conv(positive, W1), conv(positive, weight)
    start = [node("Relu", "x", "r")] if last else [node("Transpose", "x", "xt", perm=SECOND), node("Relu", "xt", "r")]
    turns = [node("Transpose", "r", "ra", perm=SECOND), node("Transpose", "r", "rb", perm=SECOND)]
    inputs, end = (("ra", "rb"), "") if last else (("r", "r"), "_made")
    nodes = [
        *start,
        *(turns if last else ()),
        replace(node("Conv", f"{inputs[0]} w1", f"c1{end}"), name="first"),
        replace(node("Conv", f"{inputs[1]} w2", f"c2{end}"), name="second"),
        node("Sub", f"c1{end} c2{end}", "y"),
    ]
    arrays = {"x": X.transpose(LAST), "w1": W1, "w2": weight, f"c1{end}": made[0], f"c2{end}": made[1]}
    arrays |= {"r": positive.transpose(LAST), "ra": positive, "rb": positive} if last else {"xt": X, "r": positive}
    return recording(nodes, arrays | {"y": made[0] - made[1]}, constants=("w1", "w2"))


@pytest.mark.parametrize("fault", [False, True])
def test_convolutions_that_read_what_is_turned_for_each_are_found_whatever_their_weights(fault):
    backend = beside_each_other(last=False, weight=W2.transpose(1, 0, 2, 3) if fault else W2)
    result = DiffSession(beside_each_other(last=True), backend).result()
    assert {"c1_made", "c2_made"} <= {entry.tensor for entry in result.nodes}
    assert result.verdict.first_divergence == ("second" if fault else None), result.verdict.sentence
    assert result.verdict.origin == ("second" if fault else None)


def test_a_weight_that_a_product_was_folded_into_is_not_called_another_one():
    """A bias is wrong; the weight is not the reference's, for it holds the factor of the Mul behind."""
    shape, bias, wrong = (1, 8, 1, 1), np.ones(8, np.float32), np.full(8, 3, np.float32)
    factor = SCALE.reshape(shape)
    plain = A + bias.reshape(shape)
    reference = recording(
        [node("Conv", "x w1 bias", "c"), node("Mul", "c factor", "m"), node("Relu", "m", "y")],
        {"x": X, "w1": W1, "bias": bias, "factor": factor, "c": plain, "m": plain * factor}
        | {"y": np.maximum(plain * factor, 0)},
        constants=("w1", "bias", "factor"),
    )
    made = (A + wrong.reshape(shape)) * factor
    backend = recording(
        [node("Conv", "x folded added", "m"), node("Relu", "m", "y")],
        {"x": X, "folded": W1 * SCALE.reshape(8, 1, 1, 1), "added": wrong * SCALE, "m": made, "y": np.maximum(made, 0)},
        constants=("folded", "added"),
    )
    result = DiffSession(reference, backend).result()
    assert result.verdict.first_divergence == "n_m"
    assert not any("weight" in str(entry.reason) for entry in result.nodes)


def test_a_transpose_that_nothing_answers_to_turns_back_what_was_turned():
    """The backend turns after an operator what the reference turns before it; behind a Slice both turn it again."""
    last, swap = X.transpose(LAST), (0, 2, 1, 3)
    ends = {"start": np.array([0]), "end": np.array([2**63 - 1]), "axes": np.array([1])}
    sides = []
    for late in (False, True):
        order = ("e", "t") if late else ("t", "e")
        ops = {"e": ("Exp", {}), "t": ("Transpose", {"perm": LAST})}
        nodes = [node("Relu", "x", "r")]
        nodes += [node(ops[n][0], source, n, **ops[n][1]) for n, source in zip(order, ("r", order[0]), strict=True)]
        nodes += [node("Slice", f"{order[1]} start end axes", "s"), node("Transpose", "s", "u", perm=swap)]
        nodes.append(node("Sqrt", "u", "y"))
        positive = np.maximum(X, 0)
        whole = np.exp(np.maximum(last, 0))
        arrays = {"x": X, "r": positive, "e": np.exp(positive) if late else whole}
        arrays |= {"t": whole if late else np.maximum(last, 0), "s": whole, "u": whole.transpose(swap)}
        sides.append(recording(nodes, arrays | ends | {"y": np.sqrt(arrays["u"])}, constants=tuple(ends)))
    result = DiffSession(*sides).result()
    assert result.status is Status.IDENTICAL, result.verdict.sentence
    assert {"e", "s", "u"} <= {entry.tensor for entry in result.nodes}
