"""Nets whose data are quantized at run time: what is rounding, what is wrong, and what is too coarse."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from sweeps import sweep

from qdebug.api import diff
from qdebug.arithmetic.presets import preset
from qdebug.compare.align.pairs import UnmatchedKind
from qdebug.compare.explaining.explain import explain_recording
from qdebug.compare.graph_checks.own_nodes import _count_wrong_chosen_codes
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay.run import run_graph

RNG = np.random.default_rng(11)
X = RNG.normal(size=(6, 32)).astype(np.float32)
W = (RNG.normal(size=(32, 24)) * 0.2).astype(np.float32)
B = RNG.normal(size=24).astype(np.float32)
OPSET = {"": 17, "com.microsoft": 1}


def run(nodes, constants, feeds, *, outputs=("y",), quants=None, arithmetic=None):
    """Record a graph as the interpreter computes it, codes and all."""
    infos = [TensorInfo(name=name, role=Role.CONSTANT, quant=(quants or {}).get(name)) for name in constants]
    graph = Graph(nodes, tensors=infos, inputs=list(feeds), outputs=list(outputs), opset=OPSET)
    arrays = {name: np.asarray(array) for name, array in (*feeds.items(), *constants.items())}
    keep = lambda name, array: arrays.setdefault(name, np.array(array))  # noqa: E731
    run_graph(graph, dict(feeds), constants, arithmetic=arithmetic, on_tensor=keep)
    return MemoryRecording.single(graph, arrays)


def plain(weight=W, x=X, *, bias=B):
    nodes = [
        Node(name="product", op="MatMul", inputs=("x", "w"), outputs=("p",)),
        Node(name="sum", op="Add", inputs=("p", "b"), outputs=("y",)),
    ]
    return run(nodes, {"w": weight, "b": bias}, {"x": x})


def weight_codes(weight, levels=127):
    scale = np.float32(np.abs(weight).max() / levels)
    return np.rint(weight / scale).astype(np.int8), scale


def dynamic(weight=W, x=X, *, bias=B, levels=127, form="parts", off=1.0, arithmetic=None):
    """Quantize the data at run time, node by node or in one operator of ONNX Runtime."""
    codes, scale = weight_codes(weight, levels)
    scale *= np.float32(off)
    constants = {"w_q": codes, "w_s": np.asarray(scale), "w_z": np.asarray(0, np.int8), "b": bias}
    quants = {"w_q": QuantParams(dtype="int8", scale=scale, zero_point=0)}
    nodes = [
        Node(name="dql", op="DynamicQuantizeLinear", inputs=("x",), outputs=("x_q", "x_s", "x_z")),
        Node(name="sums", op="MatMulInteger", inputs=("x_q", "w_q", "x_z", "w_z"), outputs=("acc",)),
        Node(name="cast", op="Cast", inputs=("acc",), outputs=("real",), attrs={"to": 1}),
        Node(name="scales", op="Mul", inputs=("x_s", "w_s"), outputs=("s",)),
        Node(name="scaled", op="Mul", inputs=("real", "s"), outputs=("p",)),
        Node(name="sum", op="Add", inputs=("p", "b"), outputs=("y",)),
    ]
    if form == "fused":
        inputs = ("x", "w_q", "w_s", "w_z", "b")
        nodes = [
            Node(name="all", op="DynamicQuantizeMatMul", domain="com.microsoft", inputs=inputs, outputs=("y",)),
        ]
    if form == "half":
        inputs = ("x_q", "w_q", "x_s", "w_s", "x_z", "w_z", "b")
        fused = Node(name="h", op="MatMulIntegerToFloat", domain="com.microsoft", inputs=inputs, outputs=("y",))
        nodes = [nodes[0], fused]
    return run(nodes, constants, {"x": x}, quants=quants, arithmetic=arithmetic)


FORMS = ("parts", "half", "fused")


def lost(result):
    return [entry.tensor for entry in result.coverage.unmatched if entry.kind is UnmatchedKind.LOST]


@pytest.mark.parametrize("form", FORMS)
def test_rounding_alone_is_no_finding_in_either_direction(form):
    for pair in ((plain(), dynamic(form=form)), (dynamic(form=form), plain())):
        result = diff(*pair)
        assert result.verdict.status.value == "within"
        assert result.exit_code == 0
        assert lost(result) == []


@pytest.mark.parametrize("one", FORMS)
@pytest.mark.parametrize("other", FORMS)
def test_every_form_agrees_with_every_other(one, other):
    result = diff(dynamic(form=one), dynamic(form=other))
    assert (result.exit_code, result.origin) == (0, None)


def test_a_scale_chosen_at_run_time_is_the_one_of_the_data_that_it_was_chosen_for():
    result = diff(dynamic(), dynamic(x=X * np.float32(1 + 2**-21)))
    (scale,) = (node for node in result.nodes if node.tensor == "x_s")
    assert scale.metrics.mismatches == 1
    assert scale.introduced.mismatches == 0
    assert (result.exit_code, result.origin) == (0, None)


def test_a_wrong_scale_chosen_at_run_time_is_found():
    wrong = dynamic()
    wrong = MemoryRecording.single(wrong.graph, {n: wrong.load(n) * np.float32(1 + (n == "x_s")) for n in ("x", "x_s")})
    result = diff(dynamic(), wrong)
    assert (result.origin, result.verdict.status.value) == ("dql", "diverged")


@pytest.mark.parametrize("form", FORMS)
def test_what_rounding_the_data_makes_is_arithmetic_and_what_rounding_weights_makes_is_constants(form):
    codes, scale = weight_codes(W)
    nodes = {node.tensor: node for node in diff(plain(), dynamic(form=form)).nodes}
    end = nodes.get("p", nodes["y"])
    real = X.astype(np.float64) @ (codes * np.float64(scale)) + B
    by_weights = real - (X.astype(np.float64) @ W + B)
    assert end.constants.rmse == pytest.approx(np.sqrt(np.mean(by_weights**2)), rel=1e-3)
    assert end.propagated.rmse < 1e-3 * end.constants.rmse
    assert end.introduced.rmse > 1e-4


@pytest.mark.parametrize(("form", "node"), [("parts", "scales"), ("half", "h"), ("fused", "all")])
@pytest.mark.parametrize("off", [1.5, 0.25])
def test_a_wrong_scale_of_right_codes_is_told_from_a_wrong_weight(form, node, off):
    result = diff(plain(), dynamic(form=form, off=off))
    first = next(entry for entry in result.nodes if entry.status.value == "diverged").findings[0]
    assert (result.origin, first.kind.value, first.evidence, first.amount) == (
        node,
        "scale",
        "w_s",
        pytest.approx(off, rel=1e-4),
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_wrong_weight_is_found_in_either_direction(form):
    wrong = W.copy()
    wrong[:, 7] = W[:, 8]
    for pair in ((plain(), dynamic(wrong, form=form)), (dynamic(form=form), plain(wrong))):
        result = diff(*pair)
        assert result.verdict.status.value == "diverged"
        assert result.first_divergence in ("product", "scaled", "h", "all", "sum")


@pytest.mark.parametrize("form", FORMS)
def test_a_dropped_bias_is_found(form):
    result = diff(plain(), dynamic(bias=np.zeros_like(B), form=form))
    assert result.verdict.status.value == "diverged"


@pytest.mark.parametrize("form", FORMS)
def test_weights_that_are_rounded_far_too_coarsely_are_named(form):
    result = diff(plain(), dynamic(levels=5, form=form))
    assert "its weight 'w_q' uses only 10 of 256 codes; its scale is far too large" in result.verdict.sentence
    assert result.exit_code == 1


@pytest.mark.parametrize("form", FORMS)
def test_a_result_that_cancels_out_is_lost_in_the_rounding_of_its_weights(form):
    row = RNG.normal(size=(1, 32)).astype(np.float32)
    weight = W - row.T * (row @ W) / (row @ row.T) * np.float32(0.9999)  # nearly orthogonal to every row of data
    x = np.linspace(1, 2, 6, dtype=np.float32)[:, None] * row
    none = np.zeros_like(B)
    result = diff(plain(weight, x, bias=none), dynamic(weight, x, bias=none, form=form))
    assert "rounding weights to codes leaves an SQNR of" in result.verdict.sentence
    assert "below 10 dB" in result.verdict.sentence


def test_a_result_that_hangs_on_small_data_is_lost_in_the_rounding_of_data():
    x = X.copy()
    x[:, 0] = 4000.0
    weight = W.copy()
    weight[0] = 0
    none = np.zeros_like(B)
    result = diff(plain(weight, x, bias=none), dynamic(weight, x, bias=none))
    assert "rounding weights and data to codes leaves an SQNR of" in result.verdict.sentence


@pytest.mark.parametrize("seed", sweep(range(12), 4))
@pytest.mark.parametrize("form", FORMS)
def test_one_element_is_not_accused_by_chance(form, seed):
    rng = np.random.default_rng(seed)
    x, weight = rng.normal(size=(1, 32)).astype(np.float32), rng.normal(size=(32, 1)).astype(np.float32)
    bias = rng.normal(size=1).astype(np.float32)
    for pair in (
        (plain(weight, x, bias=bias), dynamic(weight, x, bias=bias, form=form)),
        (dynamic(weight, x, bias=bias, form=form), plain(weight, x, bias=bias)),
    ):
        assert diff(*pair).origin is None


@pytest.mark.parametrize("form", ["half", "fused"])
def test_a_removed_activation_is_found_though_its_name_is_kept(form):
    healthy = plain()
    values = {name: healthy.load(name) for name in ("x", "w", "b", "p")}
    nodes = [*healthy.graph.nodes[:1], Node(name="sum", op="Add", inputs=("p", "b"), outputs=("s",))]
    nodes.append(Node(name="relu", op="Relu", inputs=("s",), outputs=("y",)))
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in ("w", "b")]
    graph = Graph(nodes, tensors=infos, inputs=["x"], outputs=["y"], opset=OPSET)
    values |= {"s": healthy.load("y"), "y": np.maximum(healthy.load("y"), 0)}
    result = diff(MemoryRecording.single(graph, values), dynamic(form=form))
    assert result.first_divergence == dynamic(form=form).graph.nodes[-1].name
    assert result.exit_code == 1
    assert (
        "its operator does not compute what the reference's MatMul + Add + Relu computes" in result.verdict.sentence
        or form == "half"
    )


def test_a_weight_that_is_kept_turned_is_the_same_weight():
    square = (RNG.normal(size=(32, 32)) * 0.2).astype(np.float32)
    bias = RNG.normal(size=32).astype(np.float32)
    turned = Node(name="fc", op="Gemm", inputs=("x", "w", "b"), outputs=("s",), attrs={"transB": 1})
    relu = Node(name="relu", op="Relu", inputs=("s",), outputs=("y",))
    reference = run([turned, relu], {"w": square.T.copy(), "b": bias}, {"x": X})
    result = diff(reference, dynamic(square, bias=bias, form="fused"))
    assert "its operator does not compute what the reference's Gemm + Relu computes" in result.verdict.sentence


def test_sums_of_codes_answer_to_no_real_product():
    result = diff(plain(), dynamic())
    assert "acc" not in {node.tensor for node in result.nodes}
    reasons = {entry.tensor: entry.kind for entry in result.coverage.unmatched}
    assert reasons["acc"] is UnmatchedKind.BENIGN


def recurrent(*, levels=None, wrong=False):
    """Run an LSTM on real numbers, or as DynamicQuantizeLSTM would with perfect data but rounded weights."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(5, 1, 8)).astype(np.float32)
    weight, state = (rng.normal(size=(1, 24, size)).astype(np.float32) * 0.4 for size in (8, 6))
    bias = rng.normal(size=(1, 48)).astype(np.float32)
    attrs = {"hidden_size": 6}
    if levels is None:
        node = Node(name="lstm", op="LSTM", inputs=("x", "W", "R", "B"), outputs=("y", "h"), attrs=attrs)
        return run([node], {"W": weight, "R": state, "B": bias}, {"x": x}, outputs=("y", "h"))
    codes = {}
    for name, real in (("W", weight), ("R", state)):
        values, scale = weight_codes(np.swapaxes(real, 1, 2), levels)
        codes |= {f"{name}_q": values, f"{name}_s": np.asarray([scale]), f"{name}_z": np.asarray([0], np.int8)}
    node = Node(name="lstm", op="LSTM", inputs=("x", "W", "R", "B"), outputs=("y", "h"), attrs=attrs)
    real = {n: np.swapaxes(codes[f"{n}_q"] * codes[f"{n}_s"], 1, 2) for n in ("W", "R")}
    if wrong:
        real["R"] = np.roll(real["R"], 1, axis=1)
        codes["R_q"] = np.roll(codes["R_q"], 1, axis=2)
    made = run([node], {**real, "B": bias}, {"x": x + rng.normal(size=x.shape) * 0.003}, outputs=("y", "h"))
    quantized = Node(
        name="lstm",
        op="DynamicQuantizeLSTM",
        domain="com.microsoft",
        inputs=("x", "W_q", "R_q", "B", "", "", "", "", "W_s", "W_z", "R_s", "R_z"),
        outputs=("y", "h"),
        attrs=attrs,
    )
    constants = {**codes, "B": bias}
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    graph = Graph([quantized], tensors=infos, inputs=["x"], outputs=["y", "h"], opset=OPSET)
    return MemoryRecording.single(graph, {**constants, "x": x, "y": made.load("y"), "h": made.load("h")})


def test_a_recurrent_layer_of_codes_is_judged_by_its_rounding():
    assert diff(recurrent(), recurrent(levels=127)).exit_code == 0
    assert diff(recurrent(levels=127), recurrent()).exit_code == 0
    broken = diff(recurrent(), recurrent(levels=127, wrong=True))
    assert (broken.first_divergence, broken.origin) == ("lstm", "lstm")


def spoilt(recording, **changed):
    """Return a recording with other values of some tensors."""
    arrays = {name: recording.load(name) for name in recording.names}
    return MemoryRecording.single(recording.graph, arrays | changed)


@pytest.mark.parametrize("form", FORMS)
def test_a_weight_that_no_rounding_makes_needs_less_to_be_named(form):
    """A column of codes that are off by two changes little where rounding may change each code by half."""
    codes, scale = weight_codes(W, 20)
    codes[:, 5] += np.where(codes[:, 5] > 0, -2, 2).astype(np.int8)
    wrong = dynamic(codes * scale, levels=int(np.abs(codes).max()), form=form)
    assert diff(plain(), dynamic(levels=20, form=form)).status.value == "within"
    result = diff(plain(), wrong)
    assert result.status.value == "diverged"
    assert "elements of weight 'w_q' differ from the reference" in result.verdict.sentence


ROW = 4


@pytest.mark.parametrize("form", FORMS)
def test_a_wrong_row_is_found_though_its_error_is_no_larger_than_that_of_rounding_the_data(form):
    """The codes follow from the data, or were recorded, and so do the sums: each has one right value."""
    right = dynamic(form=form)
    rounding = np.abs(right.load("y") - (X @ W + B)).mean()
    changed = {name: right.load(name).copy() for name in ("acc", "real", "p", "y") if right.has(name)}
    if form == "parts":  # a number of steps: sums are whole
        steps = np.rint(rounding / right.load("s")).astype(np.int32)
        rounding = steps * right.load("s")
    for name, array in changed.items():
        array[ROW] += steps if name in ("acc", "real") else rounding
    what = "sums" if form == "parts" else "elements"
    by_name = "MatMulInteger 'sums'" if form == "parts" else "the node"  # inside what is compared, or itself
    for reference, who in ((plain(), by_name), (right, "the node")):
        result = diff(reference, spoilt(right, **changed))
        assert result.verdict.status.value == "diverged"
        assert f"24 of 144 {what} differ from a replay of {who} on its recorded inputs" in result.verdict.sentence
    assert diff(plain(), right).status.value == "within"


def test_sums_that_a_cast_spoils_are_put_down_to_the_cast():
    right = dynamic()
    changed = {name: right.load(name).copy() for name in ("real", "p", "y")}
    for name, unit in (("real", np.float32(1)), ("p", right.load("s")), ("y", right.load("s"))):
        changed[name][:, 20:] += 900 * unit
    result = diff(plain(), spoilt(right, **changed))
    assert (result.status.value, result.origin) == ("diverged", "cast"), result.verdict.sentence
    assert "24 of 144 elements differ from a replay of Cast 'cast' on its recorded inputs" in result.verdict.sentence


def after_tanh(*, wrong):
    """Return data that a node before made wrong, or not, to a product that quantizes them."""
    part = dynamic()
    nodes = [Node(name="bend", op="Tanh", inputs=("u",), outputs=("x",)), *part.graph.nodes]
    constants = {name: part.load(name) for name in ("w_q", "w_s", "w_z", "b")}
    made = run(nodes, constants, {"u": X}, quants={"w_q": part.graph.tensors["w_q"].quant})
    if not wrong:
        return made
    bent = made.load("x").copy()
    bent[ROW] *= -1
    again = dynamic(x=bent)
    return spoilt(made, **{name: again.load(name) for name in again.names if name not in constants})


def test_codes_chosen_at_run_time_for_wrong_data_are_right():
    result = diff(after_tanh(wrong=False), after_tanh(wrong=True))
    assert [entry.node for entry in result.nodes if entry.status.value == "diverged"] == ["bend"]
    assert result.origin == "bend"


def blockwise(weight=W, x=X, *, bias=B, bits=8, level=4, block=16, least=False):
    """Multiply with a weight of codes in blocks, and round the data block by block to codes if it says so."""
    rows, columns = weight.shape
    parts = weight.T.reshape(columns, rows // block, block)
    scale = np.float32(np.abs(parts).max(-1) / (2 ** (bits - 1) - 1))
    if least:  # the largest of either sign becomes the least code, and what is nearly as large on the other is cut off
        largest = np.take_along_axis(parts, np.abs(parts).argmax(-1)[..., None], -1)[..., 0]
        scale = np.float32(-largest / 2 ** (bits - 1))
    codes = np.rint(parts / scale[..., None]).astype(np.int32) + 2 ** (bits - 1)
    codes = np.minimum(codes, 2**bits - 1)
    real = ((codes - 2 ** (bits - 1)) * scale[..., None]).reshape(columns, rows).T
    data = x.reshape(len(x), -1, block)
    if level == 4:
        step = np.abs(data).max(-1, keepdims=True) / 127
        data = np.rint(data / step) * step
    packed = codes if bits == 8 else codes[..., ::2] | codes[..., 1::2] << 4
    attrs = {"K": rows, "N": columns, "bits": bits, "block_size": block, "accuracy_level": level}
    inputs = ("x", "w_q", "w_s", "", "", "b")
    node = Node(name="n", op="MatMulNBits", domain="com.microsoft", inputs=inputs, outputs=("y",), attrs=attrs)
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in ("w_q", "w_s", "b")]
    graph = Graph([node], tensors=infos, inputs=["x"], outputs=["y"], opset=OPSET)
    y = np.float32(data.reshape(x.shape) @ real + bias)
    arrays = {"x": x, "w_q": packed.astype(np.uint8), "w_s": scale.ravel(), "b": bias, "y": y}
    return MemoryRecording.single(graph, arrays)


@pytest.mark.parametrize("seed", [0, 8, 15])
@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize(("bits", "level"), [(8, 4), (8, 0), (4, 4), (4, 0)])
def test_a_weight_in_blocks_and_data_rounded_inside_are_no_finding(bits, level, least, seed):
    weight = (np.random.default_rng(seed).normal(size=W.shape) * 0.2).astype(np.float32)
    result = diff(plain(weight), blockwise(weight, bits=bits, level=level, least=least))
    assert (result.status.value, result.origin, lost(result)) == ("within", None, [])


def test_what_stands_for_no_rounding_is_found_in_a_product_with_a_weight_in_blocks():
    wrong = W.copy()
    wrong[:, 7] = W[:, 8]
    still = blockwise(level=0)
    row = still.load("y").copy()
    row[ROW] += 0.01
    for recording in (blockwise(wrong), blockwise(bias=np.zeros_like(B)), spoilt(still, y=row)):
        result = diff(plain(), recording)
        assert (result.status.value, result.origin) == ("diverged", "n")


@pytest.mark.parametrize(("level", "share"), [(0, 0.02), (4, 0.2)])
def test_a_bias_that_nothing_rounds_is_held_against_the_reference_s_whatever_the_weight_is_rounded_by(level, share):
    small = np.float32(share) * B
    assert diff(plain(bias=small), blockwise(bits=4, level=level, bias=small)).exit_code == 0
    result = diff(plain(bias=small), blockwise(bits=4, level=level, bias=np.float32(1.3) * small))
    assert (result.status.value, result.origin) == ("diverged", "n")
    assert "of 24 elements of bias 'b' differ from the reference" in result.verdict.sentence


@pytest.mark.parametrize("level", [0, 4])
def test_a_bias_in_a_narrow_format_is_the_reference_s(level):
    small = np.float32(0.02) * B
    narrow = small.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    assert diff(plain(bias=small), blockwise(bits=4, level=level, bias=narrow)).exit_code == 0


@pytest.mark.parametrize("level", [0, 4])
def test_a_weight_in_blocks_that_no_rounding_makes_is_named(level):
    """However little of it shows: the codes of one block are off by one; the margin is most of a step to each."""
    wrong = blockwise(level=level)
    codes = wrong.load("w_q").copy()
    codes[5, 1] += 1
    wide = spoilt(wrong, w_q=codes)
    scale = wrong.load("w_s").reshape(24, 2)[5, 1]
    y = wrong.load("y").copy()
    y[:, 5] += X[:, 16:].sum(1) * scale
    result = diff(plain(), spoilt(wide, y=y))
    assert (result.status.value, result.origin) == ("diverged", "n")
    assert "of 768 elements of weight 'w_q' differ from the reference" in result.verdict.sentence


def test_a_clamp_left_to_the_codes_behind_a_weight_in_blocks_is_seen():
    healthy = plain()
    relu = Node(name="relu", op="Relu", inputs=("s",), outputs=("y",))
    nodes = [healthy.graph.nodes[0], Node(name="sum", op="Add", inputs=("p", "b"), outputs=("s",)), relu]
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in ("w", "b")]
    graph = Graph(nodes, tensors=infos, inputs=["x"], outputs=["y"], opset=OPSET)
    values = {name: healthy.load(name) for name in ("x", "w", "b", "p")}
    values |= {"s": healthy.load("y"), "y": np.maximum(healthy.load("y"), 0)}
    part = blockwise()
    scale = np.float32(values["y"].max() / 255)
    quant = Node(name="q", op="QuantizeLinear", inputs=("y", "s", "z"), outputs=("y_q",))
    infos = [*(part.graph.tensors[name] for name in part.graph.tensors), TensorInfo(name="s", role=Role.CONSTANT)]
    infos += [TensorInfo(name="z", role=Role.CONSTANT)]
    infos += [TensorInfo(name="y_q", quant=QuantParams(dtype="uint8", scale=scale, zero_point=0), stands_for="y")]
    be = Graph([*part.graph.nodes, quant], tensors=infos, inputs=["x"], outputs=["y_q"], opset=OPSET)
    arrays = {name: part.load(name) for name in part.names} | {"s": np.asarray(scale), "z": np.asarray(0, np.uint8)}
    arrays["y_q"] = np.clip(np.rint(part.load("y") / scale), 0, 255).astype(np.uint8)
    result = diff(MemoryRecording.single(graph, values), MemoryRecording.single(be, arrays))
    assert {n.tensor: n.reference_tensor for n in result.nodes}["y"] == "s"
    assert result.status.value == "within"


TABLE = RNG.normal(size=(40, 32)).astype(np.float32)
PLACES = np.array([3, 39, 0, 17, 8, 21])


def looked_up(weight=W):
    nodes = [
        Node(name="look", op="Gather", inputs=("table", "at"), outputs=("x",)),
        Node(name="product", op="MatMul", inputs=("x", "w"), outputs=("p",)),
        Node(name="sum", op="Add", inputs=("p", "b"), outputs=("y",)),
    ]
    return run(nodes, {"table": TABLE, "w": weight, "b": B}, {"at": PLACES})


def looked_up_codes(weight=W):
    """Look codes up whose scale is only known multiplied with that of the weight."""
    (codes, scale), (table, step) = weight_codes(weight), weight_codes(TABLE)
    nodes = [
        Node(name="look", op="Gather", inputs=("t_q", "at"), outputs=("x_q",)),
        Node(name="sums", op="MatMulInteger", inputs=("x_q", "w_q", "z", "z"), outputs=("acc",)),
        Node(name="cast", op="Cast", inputs=("acc",), outputs=("real",), attrs={"to": 1}),
        Node(name="scaled", op="Mul", inputs=("real", "s"), outputs=("p",)),
        Node(name="sum", op="Add", inputs=("p", "b"), outputs=("y",)),
    ]
    constants = {"t_q": table, "w_q": codes, "z": np.asarray(0, np.int8), "s": np.asarray(scale * step), "b": B}
    made = run(nodes, constants, {"at": PLACES})
    infos = [
        TensorInfo(name=name, role=made.graph.tensors[name].role, dtype=str(made.load(name).dtype))
        for name in made.graph.tensors
    ]
    graph = Graph(nodes, tensors=infos, inputs=["at"], outputs=["y"], opset=OPSET)
    return MemoryRecording.single(graph, {name: made.load(name) for name in made.names})


def test_codes_whose_scale_nobody_states_are_not_taken_for_real_numbers():
    result = diff(looked_up(), looked_up_codes())
    assert (result.status.value, result.origin, lost(result)) == ("within", None, [])
    assert "x_q" not in {node.tensor for node in result.nodes}
    assert {node.tensor for node in diff(looked_up_codes(), looked_up_codes()).nodes} >= {"x_q", "acc", "y"}
    wrong = W.copy()
    wrong[:, 7] = W[:, 8]
    assert diff(looked_up(), looked_up_codes(wrong)).status.value == "diverged"


def packed(*, level):
    """Multiply with codes of 8 bits, 16 rows of a column with a scale of their own; data may be rounded at level 4."""
    blocks = W.T.reshape(24, 2, 16)
    scale = (np.abs(blocks).max(axis=2) / 127).astype(np.float32)
    codes = (np.rint(blocks / scale[..., None]) + 128).astype(np.uint8)
    attrs = {"K": 32, "N": 24, "bits": 8, "block_size": 16, "accuracy_level": level}
    inputs = ("x", "w_q", "w_s", "", "", "b")
    node = Node(name="all", op="MatMulNBits", domain="com.microsoft", inputs=inputs, outputs=("y",), attrs=attrs)
    return run([node], {"w_q": codes, "w_s": scale.reshape(-1), "b": B}, {"x": X})


@pytest.mark.parametrize("level", [0, 4])
def test_codes_packed_in_blocks_are_within_whether_data_may_be_rounded_or_not(level):
    result = diff(plain(), packed(level=level))
    assert (result.exit_code, lost(result)) == (0, [])
    (explained,) = explain_recording(packed(level=level)).nodes
    assert ("accuracy_level 4" in (explained.assumed or "")) is (level == 4)


def test_a_sum_behind_a_product_of_codes_is_looked_for_in_what_comes_next():
    def gelu(form):
        first = dynamic(bias=np.zeros(24, np.float32), form=form) if form else plain(bias=np.zeros(24, np.float32))
        nodes = list(first.graph.nodes)
        last = nodes.pop()
        product = last.inputs[0] if last.op == "Add" else "p"
        if last.op != "Add":
            nodes.append(replace(last, inputs=(*last.inputs[:4], ""), outputs=("p",)))
            nodes.append(Node(name="g", op="BiasGelu", domain="com.microsoft", inputs=(product, "b"), outputs=("y",)))
        else:
            nodes.append(replace(last, inputs=(product, "b"), outputs=("q",)))
            nodes.append(Node(name="g", op="Gelu", domain="com.microsoft", inputs=("q",), outputs=("y",)))
        constants = {name: first.load(name) for name in first.names if first.graph.is_constant(name)}
        quants = {name: first.graph.tensors[name].quant for name in constants}
        return run(nodes, {**constants, "b": B}, {"x": X}, quants=quants)

    result = diff(gelu(None), gelu("fused"))
    assert result.exit_code == 0, result.verdict.sentence
    assert {node.tensor: node.reference_tensor for node in result.nodes}["p"] == "p"


LARGE = np.where(RNG.random(W.shape) < 0.5, W, np.sign(W) * np.abs(W).max()).astype(np.float32)
"""Weights of which many have the largest code: sums of two of their products do not fit 16 bits."""


@pytest.mark.parametrize("form", FORMS)
def test_sums_of_pairs_that_saturate_are_a_known_arithmetic_and_a_wrong_row_beside_them_is_none(form):
    saturated = dynamic(LARGE, form=form, arithmetic=preset("ort-mlas-avx2-nonvnni").arithmetic)
    exact = dynamic(LARGE, form=form)
    assert np.any(saturated.load("y") != exact.load("y"))
    result = diff(plain(LARGE), saturated)
    assert result.status in ("within", "accumulated")
    assert not any(found.role in ("difference", "breach") for row in result.nodes for found in row.findings)
    row = saturated.load("y").copy()
    row[3] = exact.load("y")[2]
    wrong = MemoryRecording.single(
        saturated.graph, {name: saturated.load(name) for name in saturated.names} | {"y": row}
    )
    assert diff(plain(LARGE), wrong).status == "diverged"


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
def test_codes_of_a_scale_chosen_at_run_time_reach_to_the_ends_of_their_own_type(dtype):
    ends = np.iinfo(dtype)
    data = np.float32([-9e9, -3, -0.75, 0, 1, 2.25, 9e9])
    zero = np.array(7, dtype)
    codes = np.clip(np.rint(data.astype(np.float64) / 0.25) + 7, ends.min, ends.max).astype(dtype)
    node = Node(name="n", op="DynamicQuantizeLinear", inputs=("x",), outputs=("q", "s", "z"))
    graph = Graph([node], inputs=("x",), outputs=("q",), opset=OPSET)
    off = codes.copy()
    off[3] += 1
    for made, wrong in ((codes, 0), (off, 1)):
        values = {"x": data, "q": made, "s": np.float32(0.25), "z": zero}
        recording = MemoryRecording.single(graph, {name: np.asarray(array) for name, array in values.items()})
        assert _count_wrong_chosen_codes(recording, node, data, (0, 0)) == wrong
