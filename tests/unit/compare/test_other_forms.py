"""Graphs that do one thing in other forms: where each is a form of the other, nothing is lost and nobody is accused."""

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.compare.align.context import Context
from qdebug.compare.align.expand import goes_into_weights
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.layouts import layout_with_added_dimensions, layouts_of
from qdebug.compare.align.pairs import Transform, UnmatchedKind
from qdebug.compare.align.structure import find_by_weights
from qdebug.compare.result.finding import FindingRole
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.replay.run import run_graph

RNG = np.random.default_rng(8)
X = RNG.normal(size=(1, 4, 6, 6)).astype(np.float32)
W = (RNG.normal(size=(5, 4, 3, 3)) * 0.3).astype(np.float32)
STATS = {
    "g": RNG.uniform(0.5, 2, 5).astype(np.float32),
    "b": RNG.normal(size=5).astype(np.float32),
    "m": RNG.normal(size=5).astype(np.float32),
    "v": RNG.uniform(0.5, 2, 5).astype(np.float32),
}


def node(op, inputs, output, *, domain="", **attrs):
    split = tuple("" if name == "-" else name for name in inputs.split())
    return Node(name=f"n_{output}", op=op, domain=domain, inputs=split, outputs=(output,), attrs=attrs)


def run(nodes, constants, x, *, quants=None, opset=17):
    """Record a graph as the interpreter computes it."""
    known = quants or {}
    made = {name for n in nodes for name in n.outputs}
    infos = [TensorInfo(name=name, role=Role.CONSTANT, quant=known.get(name)) for name in constants]
    infos += [TensorInfo(name=name, quant=known[name]) for name in made if name in known]
    graph = Graph(nodes, tensors=infos, inputs=["x"], outputs=nodes[-1].outputs, opset={"": opset, "com.microsoft": 1})
    arrays = {"x": x, **constants}
    run_graph(graph, {"x": x}, constants, on_tensor=lambda name, array: arrays.setdefault(name, np.array(array)))
    return MemoryRecording.single(graph, {name: np.asarray(array) for name, array in arrays.items()})


def check(one, other):
    """Compare two recordings in both directions."""
    for result in (diff(one, other), diff(other, one)):
        assert result.exit_code == 0, result.verdict.sentence
        assert [entry for entry in result.coverage.unmatched if entry.kind is UnmatchedKind.LOST] == []


def test_a_product_is_not_the_product_and_sum_of_the_reference_though_it_has_its_weights():
    x = RNG.normal(size=(1, 32)).astype(np.float32)
    constants = {"w": RNG.normal(size=(32, 1)).astype(np.float32), "b": np.float32([3.0])}
    apart = run([node("MatMul", "x w", "p"), node("Add", "p b", "y")], constants, x)
    check(run([node("Gemm", "x w b", "y")], constants, x), apart)


def test_a_product_without_bias_takes_no_sum_in_though_what_it_reads_has_no_partner():
    x = RNG.normal(size=(7, 5)).astype(np.float32)
    weights = {"w": RNG.normal(size=(5, 6)).astype(np.float32), "o": RNG.normal(size=6).astype(np.float32)}
    scale = STATS["g"] / np.sqrt(STATS["v"] + np.float32(1e-5))
    parts = {"s": scale, "d": STATS["b"] - STATS["m"] * scale, **weights}
    apart = [node("Mul", "x s", "a"), node("Add", "a d", "c"), node("MatMul", "c w", "p"), node("Add", "o p", "q")]
    apart += [node("Gelu", "q", "h"), node("Relu", "h", "y")]
    merged = [node("BatchNormalization", "x g b m v", "norm"), node("MatMul", "norm w", "p")]
    merged += [node("BiasGelu", "p o", "h", domain="com.microsoft"), node("Relu", "h", "y")]
    one, other = run(apart, parts, x, opset=20), run(merged, {**STATS, **weights}, x, opset=20)
    check(one, other)
    context = Context(ref=IndexedRecording.of(one), be=IndexedRecording.of(other))  # as if nothing were known
    assert find_by_weights(context, other.graph.producer("p"), "p").reference == "p"


@pytest.mark.parametrize(
    ("reader", "op", "goes"),
    [
        ("Add", "Conv", True),
        ("Add", "Gemm", True),
        ("Add", "MatMul", False),
        ("BatchNormalization", "QLinearMatMul", False),
        ("Mul", "MatMul", True),
        ("Relu", "Conv", False),
        ("Add", "DynamicQuantizeMatMul", False),
        ("Mul", "DynamicQuantizeMatMul", True),
        ("Add", "MatMulNBits", False),
    ],
)
def test_only_what_has_a_bias_can_take_a_sum_in(reader, op, goes):
    assert goes_into_weights(node(reader, "p c", "y"), node(op, "x w", "p")) is goes


@pytest.mark.parametrize(("bias", "goes"), [("", False), ("o", True)])
def test_a_product_of_codes_takes_a_sum_in_only_with_a_bias(bias, goes):
    inputs = ("x", "w", "scale", "zero", bias)
    product = Node(name="n", op="DynamicQuantizeMatMul", domain="com.microsoft", inputs=inputs, outputs=("p",))
    assert goes_into_weights(node("Add", "p c", "y"), product) is goes


def test_what_comes_after_a_relu_goes_into_no_weights():
    scale = STATS["g"] / np.sqrt(STATS["v"] + np.float32(1e-5))
    depthwise = {"w": W, "d": scale.reshape(5, 1, 1, 1), "o": STATS["b"] - STATS["m"] * scale}
    plain = run(
        [
            node("Conv", "x w", "c"),
            node("Relu", "c", "r"),
            node("BatchNormalization", "r g b m v", "n", epsilon=1e-5),
            node("Sigmoid", "n", "y"),
        ],
        {"w": W, **STATS},
        X,
    )
    optimized = run(
        [
            node("FusedConv", "x w", "rectified", domain="com.microsoft", activation="Relu"),
            node("Conv", "rectified d o", "n", group=5),
            node("Sigmoid", "n", "y"),
        ],
        depthwise,
        X,
    )
    check(plain, optimized)


def coded(*, moved):
    """Run Conv, Squeeze, Relu, Transpose on codes; an optimizer moves the codes to where the Relu was."""
    quant = QuantParams(dtype="uint8", scale=np.float32(0.02), zero_point=0)
    constants = {"w": W[:, :, :1, :1], "axes": np.array([0]), "s": np.float32(0.02), "z": np.uint8(0)}
    start = [node("Conv", "x w", "c"), node("Squeeze", "c axes", "q")]
    if moved:
        end = [node("QuantizeLinear", "q s z", "q_codes"), node("Transpose", "q_codes", "t_codes", perm=(0, 2, 1))]
    else:
        end = [node("Relu", "q", "r"), node("Transpose", "r", "t", perm=(0, 2, 1))]
        end.append(node("QuantizeLinear", "t s z", "t_codes"))
    nodes = [*start, *end, node("DequantizeLinear", "t_codes s z", "real"), node("Sigmoid", "real", "y")]
    return run(nodes, constants, X, quants={"t_codes": quant, "q_codes": quant})


def test_codes_may_do_the_work_of_a_relu_whose_input_keeps_its_name():
    check(coded(moved=False), coded(moved=True))


def normalized(*, narrow):
    """Run a normalization node by node on float32, or as one node in float16 that is kept as float32."""

    def held(array):
        return array.astype(np.float16).astype(np.float32) if narrow else array

    rng = np.random.default_rng(2)
    x = rng.normal(size=(8, 32)).astype(np.float32)
    w, w2 = (held((rng.normal(size=(32, 32)) * 0.2).astype(np.float32)) for _ in range(2))
    g = held(rng.uniform(1.0, 1.9, 32).astype(np.float32))
    h = x @ w
    eps = np.float32(1e-5)
    root = np.sqrt((h**2).mean(-1, keepdims=True) + eps)
    arrays = {"x": x, "w": w, "w2": w2, "g": g, "h": h, "n": held(h / root * g)}
    arrays["y"] = arrays["n"] @ w2
    first, last = node("MatMul", "x w", "h"), node("MatMul", "n w2", "y")
    middle = [node("SimplifiedLayerNormalization", "h g", "n", axis=-1, epsilon=1e-5)]
    if not narrow:
        arrays |= {"two": np.float32(2), "eps": eps}
        middle = [
            node("Pow", "h two", "p"),
            node("ReduceMean", "p", "mean", axes=(-1,), keepdims=1),
            node("Add", "mean eps", "shifted"),
            node("Sqrt", "shifted", "root"),
            node("Div", "h root", "d"),
            node("Mul", "d g", "n"),
        ]
        arrays |= {"p": h**2, "mean": (h**2).mean(-1, keepdims=True), "shifted": root**2, "root": root, "d": h / root}
    nodes = [first, *middle, last]
    made = {name for n in nodes for name in n.outputs}
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in arrays if name not in made | {"x"}]
    graph = Graph(nodes, tensors=infos, inputs=["x"], outputs=["y"], opset={"": 17})
    return MemoryRecording.single(graph, {name: np.asarray(array, np.float32) for name, array in arrays.items()})


def test_an_exponent_of_two_is_not_rounded_to_half_precision():
    result = diff(normalized(narrow=False), normalized(narrow=True))
    assert result.exit_code == 0, result.verdict.sentence


@pytest.mark.parametrize(("axes", "theirs"), [((1,), (2,)), ((2,), (1,)), ((0, 3), (0, 3)), ((-1,), (2,))])
def test_a_turn_is_followed_through_new_dimensions(axes, theirs):
    def unsqueezed(array, where, output):
        nodes = [node("Unsqueeze", "x axes", output)]
        infos = [TensorInfo(name="axes", role=Role.CONSTANT)]
        graph = Graph(nodes, tensors=infos, inputs=["x"], outputs=[output], opset={"": 17})
        value = np.expand_dims(array, where)
        arrays = {"x": array, "axes": np.array(where, np.int64), output: value}
        return IndexedRecording.of(MemoryRecording.single(graph, arrays)), value

    model = RNG.normal(size=(2, 3)).astype(np.float32)
    ref, expected = unsqueezed(model, theirs, "r")
    be, found = unsqueezed(model.T, axes, "b")
    view = layout_with_added_dimensions(Transform(transpose=(1, 0)), be.graph.nodes[0], ref.graph.nodes[0], (ref, be))
    assert view is not None
    turned = found.transpose(view.transpose)
    assert turned.shape == expected.shape
    assert np.array_equal(turned, expected)
    assert layout_with_added_dimensions(Transform(channel_block=8), be.graph.nodes[0], None, (ref, be)) is None


def test_new_dimensions_keep_the_layout_of_a_graph_of_channels_last():
    nodes = [
        node("NhwcMaxPool", "x", "pooled", domain="com.microsoft", kernel_shape=(1, 1)),
        node("Unsqueeze", "pooled axes", "y"),
    ]
    infos = [TensorInfo(name="axes", role=Role.CONSTANT)]
    graph = Graph(nodes, tensors=infos, inputs=["x"], outputs=["y"], opset={"": 17})
    arrays = {"x": X, "axes": np.array([0]), "pooled": X, "y": X[None]}
    layouts = layouts_of(IndexedRecording.of(MemoryRecording.single(graph, arrays)))
    assert layouts["pooled"] == Transform(transpose=(0, 3, 1, 2))
    assert layouts["y"] == Transform(transpose=(0, 1, 4, 2, 3))


def cancelling(*, integers):
    """Run a product that cancels out, with its weights as they are or rounded to codes of the scale they need."""
    rng = np.random.default_rng(4)
    row = rng.normal(size=(1, 48)).astype(np.float32)
    x = np.linspace(1, 2, 6, dtype=np.float32)[:, None] * row
    weight = rng.normal(size=(48, 16)).astype(np.float32)
    weight -= row.T * (row @ weight) / (row @ row.T) * np.float32(0.9999)
    if not integers:
        return run([node("MatMul", "x w", "p"), node("Sigmoid", "p", "y")], {"w": weight}, x)
    scale = np.float32(np.abs(weight).max() / 127)
    constants = {"w_q": np.rint(weight / scale).astype(np.int8), "s": scale, "z": np.int8(0)}
    nodes = [node("DequantizeLinear", "w_q s z", "w"), node("MatMul", "x w", "p"), node("Sigmoid", "p", "y")]
    return run(nodes, constants, x, quants={"w_q": QuantParams(dtype="int8", scale=scale, zero_point=0)})


def test_a_result_that_rounded_weights_leave_nothing_of_is_named():
    result = diff(cancelling(integers=False), cancelling(integers=True))
    assert (result.status, result.origin) == ("within", None), "the output has enough left"
    found = next(found for node in result.nodes if node.node == "n_p" for found in node.findings)
    assert (found.kind, found.role, found.node) == ("scale", "cost", "n_p")
    assert found.sentence.startswith("rounding weights to codes leaves an SQNR of")
    assert diff(cancelling(integers=True), cancelling(integers=True)).exit_code == 0


def test_what_was_computed_twice_and_is_computed_once_keeps_its_readers():
    def net(*, twice):
        nodes = [node("Neg", "x", "one"), node("Exp", "one", "e")]
        if twice:
            nodes.append(node("Neg", "x", "other"))
        nodes.append(node("Mul", "e other" if twice else "e one", "p"))
        nodes += [node("Sigmoid", "p", "gate"), node("Mul", "p gate", "y")] if twice else []
        nodes += [] if twice else [node("QuickGelu", "p", "y", domain="com.microsoft", alpha=1.0)]
        return nodes

    apart = run(net(twice=True), {}, X)
    values = {name: apart.load(name) for name in ("x", "one", "e", "p", "y")}
    once = MemoryRecording.single(Graph(net(twice=False), inputs=["x"], outputs=["y"], opset={"": 17}), values)
    result = diff(apart, once)
    assert result.exit_code == 0, result.verdict.sentence
    assert {"p", "y"} <= {n.tensor for n in result.nodes}


def extents(*, turned):
    """Reshape to an extent read off a tensor, at once or out of its extents in another order."""
    constants = {"at": np.array(1 if turned else 2), "order": np.array([0, 2, 1, 3])}
    constants |= {"rest": np.array([-1]), "first": np.array([0])}
    nodes = [node("Abs", "x", "a"), node("Shape", "a", "s")]
    nodes += [node("Gather", "s order", "mixed", axis=0)] if turned else []
    nodes += [node("Gather", "mixed at" if turned else "s at", "extent", axis=0)]
    nodes += [node("Unsqueeze", "extent first", "many"), node("Concat", "many rest", "shape", axis=0)]
    return run([*nodes, node("Reshape", "a shape", "y")], constants, X)


def test_extents_picked_in_another_order_answer_to_nothing_of_another_shape():
    check(extents(turned=False), extents(turned=True))


def test_a_turn_answers_to_no_other_turn_that_has_a_partner_of_its_own():
    def net(*, both):
        turns = [node("Transpose", "a", "read", perm=(0, 2, 1)), node("Shape", "read", "s")] if both else []
        shape = [] if both else [node("Shape", "a", "s")]
        last = [node("Transpose", "a", "steps", perm=(2, 0, 1)), node("Sigmoid", "steps", "y")]
        return run([node("Abs", "x", "a"), *turns, *shape, *last], {}, X[0])

    check(net(both=True), net(both=False))


def test_a_product_is_not_what_an_output_of_codes_stands_for():
    x = RNG.normal(size=(1, 32)).astype(np.float32)
    constants = {"w": RNG.normal(size=(32, 1)).astype(np.float32), "b": np.float32([3.0])}
    codes = {"s": np.float32(0.1), "z": np.uint8(128)}
    quant = QuantParams(dtype="uint8", scale=codes["s"], zero_point=128)
    whole = [
        node("Gemm", "x w b", "real"),
        node("QuantizeLinear", "real s z", "q"),
        node("DequantizeLinear", "q s z", "y"),
    ]
    apart = [node("MatMul", "x w", "p"), node("Add", "p b", "y")]
    check(run(whole, {**constants, **codes}, x, quants={"q": quant}), run(apart, constants, x))


def picked(*, coded):
    """Pick the smallest of some values; in codes of a scale that suits them all, nothing is left of it."""
    x = np.array([[3.0, -2.0, 1e-6, 2e-6]], np.float32)
    constants = {"from": np.array([2]), "to": np.array([4]), "axes": np.array([1]), "s": np.float32(0.02)}
    constants["z"] = np.uint8(100)
    quant = QuantParams(dtype="uint8", scale=np.float32(0.02), zero_point=100)
    nodes = [node("Identity", "x", "i"), node("Slice", "i from to axes", "y")]
    if coded:
        nodes = [node("QuantizeLinear", "x s z", "i"), node("Slice", "i from to axes", "c")]
        nodes.append(node("DequantizeLinear", "c s z", "y"))
    return run(nodes, constants, x, quants={"i": quant, "c": quant})


def test_what_was_lost_before_is_not_lost_to_the_codes_of_a_part():
    result = diff(picked(coded=False), picked(coded=True))
    assert result.origin == "n_i", "it alone ruins the output"
    assert not [f.sentence for n in result.nodes[2:] for f in n.findings if f.role is FindingRole.COST]


def listed(*, read):
    """Split a product into a list, which cannot be recorded, and read one of its parts, or have it as an output."""
    nodes = [node("Abs", "x", "a"), node("SplitToSequence", "a", "parts", axis=1), node("Exp", "a", "e")]
    nodes.append(node("SequenceAt", "parts at", "y") if read else node("SequenceLength", "parts", "lost"))
    outputs = ["y"] if read else ["e"]
    graph = Graph(nodes, tensors=[TensorInfo(name="at", role=Role.CONSTANT)], inputs=["x"], outputs=outputs)
    arrays = {"x": X, "at": np.array(1), "a": np.abs(X), "e": np.exp(np.abs(X))}
    arrays |= {"y": np.abs(X[:, 1:2])} if read else {}
    info = RunInfo(backend="memory", skipped={"parts": "its values are seq(tensor(float))"})
    return MemoryRecording.single(graph, arrays, info=info)


def test_nothing_is_lost_by_a_list_if_what_is_made_of_it_is_compared():
    kept = {entry.tensor: entry for entry in diff(listed(read=True), listed(read=True)).coverage.unmatched}
    assert kept["parts"].kind is UnmatchedKind.BENIGN
    assert kept["parts"].reason.endswith("the tensors computed from it are compared")
    left = {entry.tensor: entry for entry in diff(listed(read=False), listed(read=False)).coverage.unmatched}
    assert left["parts"].kind is UnmatchedKind.LOST


def test_a_turn_that_is_cast_after_it_is_the_turn_of_the_reference():
    def net(*, cast):
        steps = [node("Abs", "x", "a"), node("Transpose", "a", "c" if cast else "t", perm=(0, 2, 1, 3))]
        return run([*steps, *([node("Cast", "c", "t", to=1)] if cast else [])], {}, X)

    result = diff(net(cast=False), net(cast=True))
    assert result.exit_code == 0, result.verdict.sentence
    assert {n.tensor: n.reference_tensor for n in result.nodes}["t"] == "t"


def test_a_hard_swish_may_be_run_as_its_definition_or_inside_a_convolution():
    apart = [
        node("Conv", "x w", "c"),
        node("HardSigmoid", "c", "gate", alpha=1 / 6, beta=0.5),
        node("Mul", "c gate", "h"),
        node("Sigmoid", "h", "y"),
    ]
    whole = [node("Conv", "x w", "c"), node("HardSwish", "c", "h"), node("Sigmoid", "h", "y")]
    fused = [
        node("FusedConv", "x w", "other", domain="com.microsoft", activation="HardSwish"),
        node("Sigmoid", "other", "y"),
    ]
    recordings = [run(nodes, {"w": W}, X) for nodes in (apart, whole, fused)]
    for one in recordings:
        for other in recordings:
            check(one, other)
    assert "other" in {n.tensor for n in diff(recordings[0], recordings[2]).nodes}


def test_codes_may_do_the_work_of_a_relu_behind_a_copy_of_a_sum():
    bias = STATS["b"].reshape(5, 1, 1)
    apart = [node("Conv", "x w", "c"), node("Add", "c b", "s"), node("Identity", "s", "i"), node("Relu", "i", "r")]
    plain = run([*apart, node("Sigmoid", "r", "y")], {"w": W, "b": bias}, X)
    codes = {"s": np.float32(0.03), "z": np.uint8(0)}
    quant = QuantParams(dtype="uint8", scale=codes["s"], zero_point=0)
    merged = [node("Conv", "x w b2", "r"), node("QuantizeLinear", "r s z", "q"), node("DequantizeLinear", "q s z", "d")]
    coded = run([*merged, node("Sigmoid", "d", "y")], {"w": W, "b2": STATS["b"], **codes}, X, quants={"q": quant})
    result = diff(plain, coded)
    assert result.exit_code == 0, result.verdict.sentence


def test_a_product_is_not_the_sum_that_the_reference_reshapes():
    x = RNG.normal(size=(2, 3, 32)).astype(np.float32)
    constants = {"w": RNG.normal(size=(32, 4)).astype(np.float32), "b": np.float32([3.0, 1.0, -2.0, 5.0])}
    shapes = {"flat": np.array([6, 32]), "back": np.array([2, 3, 4])}
    whole = [node("Reshape", "x flat", "f"), node("Gemm", "f w b", "g"), node("Reshape", "g back", "m")]
    apart = [node("MatMul", "x w", "p"), node("Add", "p b", "m")]
    end = [node("Sigmoid", "m", "y")]
    result = diff(run([*whole, *end], {**constants, **shapes}, x), run([*apart, *end], constants, x))
    assert result.exit_code == 0, result.verdict.sentence


def test_what_is_filled_in_among_codes_is_a_code_on_either_side():
    x = RNG.uniform(-1, 1, (1, 2, 4, 4)).astype(np.float32)
    quant = QuantParams(dtype="uint8", scale=np.float32(2 / 255), zero_point=127)
    pads = {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
    plain = run([node("Relu", "x", "r"), node("Pad", "r pads", "p"), node("Abs", "p", "y")], pads, x)
    codes = {"s": quant.scale[0], "z": np.uint8(127), **pads}
    steps = [node("Relu", "x", "r"), node("QuantizeLinear", "r s z", "r_q"), node("Pad", "r_q pads z", "p_q")]
    steps += [node("DequantizeLinear", "p_q s z", "p"), node("Abs", "p", "y")]
    check(plain, run(steps, codes, x, quants={"r_q": quant, "p_q": quant}))


def test_what_is_computed_once_for_several_is_lost_to_none_of_them():
    x = RNG.normal(size=(3, 5)).astype(np.float32)
    twice = {"i": np.array([1, 0]), "j": np.array([1, 0])}  # the same values under two names
    apart = [node("Gather", "x i", "a"), node("Exp", "a", "b"), node("Gather", "x j", "c"), node("Exp", "c", "d")]
    apart += [node("Sigmoid", "b", "e"), node("Tanh", "d", "f"), node("Concat", "e f", "y", axis=0)]
    once = [node("Gather", "x i", "a"), node("Exp", "a", "b"), node("Sigmoid", "b", "e"), node("Tanh", "b", "f")]
    once.append(node("Concat", "e f", "y", axis=0))
    check(run(apart, twice, x), run(once, {"i": twice["i"]}, x))


def test_a_turn_that_is_pushed_through_other_operators_is_lost_on_neither_side():
    x = RNG.normal(size=(1, 4, 6)).astype(np.float32)
    back = {"perm": (0, 2, 1)}
    early = [node("Relu", "x", "r"), node("Transpose", "r", "t", **back), node("Sub", "t m", "s")]
    early += [node("Mul", "s s", "q"), node("Exp", "q", "e"), node("Relu", "t", "k"), node("Add", "e k", "y")]
    late = [node("Relu", "x", "r"), node("Sub", "r n", "s2"), node("Mul", "s2 s2", "q2")]
    late += [node("Transpose", "q2", "u", **back), node("Exp", "u", "e"), node("Transpose", "r", "t", **back)]
    late += [node("Relu", "t", "k"), node("Add", "e k", "y")]
    means = RNG.normal(size=(1, 6, 4)).astype(np.float32)
    one = run(early, {"m": means}, x)
    other = run(late, {"n": np.ascontiguousarray(means.swapaxes(1, 2))}, x)
    check(one, other)


@pytest.mark.parametrize("later", ["residual", "constant"])
def test_a_bias_is_not_taken_for_a_sum_that_follows_it(later):
    """Both are an Add behind the Conv: only one of them adds what has become its bias."""
    w = (RNG.normal(size=(4, 4, 1, 1)) * 0.3).astype(np.float32)
    bias = RNG.normal(size=(1, 4, 1, 1)).astype(np.float32)
    other = "x" if later == "residual" else "o"
    constants = {"w": w, "b": bias} | ({} if later == "residual" else {"o": RNG.normal(size=(1, 4, 6, 6)) * 9})
    constants = {name: array.astype(np.float32) for name, array in constants.items()}
    apart = [node("Conv", "x w", "c"), node("Add", "c b", "s"), node("Add", f"{other} s", "r"), node("Tanh", "r", "y")]
    whole = [node("Conv", "x w b", "s"), node("Add", f"{other} s", "r"), node("Tanh", "r", "y")]
    check(run(whole, {**constants, "b": bias.reshape(4)}, X), run(apart, constants, X))


def scale_of(name, values):
    """Return scale and zero point of a tensor as constants, and as its quantization."""
    scale = np.float32(np.abs(values).max() / 127)
    return {f"{name}_s": scale, f"{name}_z": np.int8(0)}, QuantParams(dtype="int8", scale=scale, zero_point=0)


def test_a_factor_behind_codes_and_other_extents_is_not_taken_into_the_product_before():
    x = RNG.normal(size=(6, 16)).astype(np.float32)
    w, b, k = RNG.normal(size=(16, 8)).astype(np.float32), RNG.normal(size=8).astype(np.float32), np.float32(0.25)
    constants = {"w": w, "b": b, "k": k, "e": np.array([2, 3, 8])}
    apart = [node("MatMul", "x w", "p"), node("Add", "b p", "s"), node("Mul", "s k", "m"), node("Reshape", "m e", "y")]
    one = run(apart, constants, x)
    scales, quant = scale_of("g", one.load("s"))
    merged = [node("Gemm", "x w b", "g"), node("QuantizeLinear", "g g_s g_z", "q"), node("Reshape", "q e", "r")]
    merged += [node("DequantizeLinear", "r g_s g_z", "d"), node("Mul", "d k", "y")]
    other = run(merged, {**constants, **scales}, x, quants={"q": quant, "r": quant})
    result = diff(one, other)
    assert result.exit_code == 0, result.verdict.sentence
    assert {entry.tensor: entry.reference_tensor for entry in result.nodes}["g"] == "s"


def test_extents_given_in_two_steps_are_those_given_in_one():
    x = RNG.normal(size=(1, 8, 6)).astype(np.float32)
    steps = {"a": np.array([4, 2, 6]), "b": np.array([1, 2, 2, 2, 6]), "c": np.array([1, 8, 6]), "d": np.array([8, 6])}
    turned = {"perm": (0, 2, 1, 3, 4)}
    apart = [node("Tanh", "x", "h"), node("Reshape", "h a", "p"), node("Reshape", "p b", "q")]
    apart += [node("Transpose", "q", "t", **turned), node("Reshape", "t d", "r"), node("Reshape", "r c", "y")]
    merged = [node("Tanh", "x", "h1"), node("Reshape", "h1 b", "q1"), node("Transpose", "q1", "t1", **turned)]
    merged += [node("Reshape", "t1 c", "y")]
    one, other = run(apart, steps, x), run(merged, {name: steps[name] for name in "bc"}, x)
    check(one, other)
    partners = {entry.tensor: entry.reference_tensor for entry in diff(one, other).nodes}
    assert (partners["q1"], partners["t1"]) == ("q", "t")


def test_a_product_that_turns_what_it_reads_gives_its_result_in_order():
    x = RNG.normal(size=(1, 2, 6, 6)).astype(np.float32)
    k = np.float32(0.25)
    apart = [node("Tanh", "x", "h"), node("Sigmoid", "x", "g"), node("Transpose", "g", "t", perm=(0, 1, 3, 2))]
    apart += [node("MatMul", "h t", "p"), node("Mul", "p k", "s"), node("Softmax", "s", "y", axis=-1)]
    fused = node("FusedMatMul", "h g", "s", domain="com.microsoft", transB=1, alpha=0.25)
    merged = [*apart[:2], fused, apart[-1]]
    result = diff(run(apart, {"k": k}, x), run(merged, {}, x))
    assert result.exit_code == 0, result.verdict.sentence
    assert "another order" not in {entry.tensor: entry.match_reason for entry in result.nodes}["s"]


@pytest.mark.parametrize(
    ("reader", "op", "goes"),
    [("Add", "QLinearMul", False), ("Mul", "Mul", True), ("Mul", "Add", False), ("Sub", "QLinearAdd", True)],
)
def test_a_factor_takes_in_factors_and_a_term_terms(reader, op, goes):
    assert goes_into_weights(node(reader, "p c", "y"), node(op, "x w", "p")) is goes
