"""Alignment on small hand-made pairs of graphs: who answers to whom, on what ground, and what is said of the rest."""

import numpy as np
import pytest

from qdebug.compare.align.align import align
from qdebug.compare.align.pairs import Match, Side, UnmatchedKind
from qdebug.errors import AlignmentError
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.model.recording import SkipCause

RNG = np.random.default_rng(7)
SHAPE = (1, 2, 3, 3)


def quant(scale=0.1, zero_point=0, dtype="uint8"):
    return QuantParams(dtype=dtype, scale=np.float32(scale), zero_point=zero_point)


def record(nodes, *, constants=None, quants=None, stands_for=None, inputs=("x",), outputs=(), skip=(), shapes=None):
    """Make a recording in which every tensor of the graph has values, but for those to skip."""
    constants = constants or {}
    quants, stands_for, shapes = quants or {}, stands_for or {}, shapes or {}
    names = dict.fromkeys([*inputs, *(t for n in nodes for t in (*n.inputs, *n.outputs))])
    tensors = [
        TensorInfo(
            name=name,
            role=Role.CONSTANT if name in constants else Role.INPUT if name in inputs else Role.ACTIVATION,
            quant=quants.get(name),
            stands_for=stands_for.get(name),
        )
        for name in names
    ]
    graph = Graph(nodes, tensors=tensors, inputs=inputs, outputs=outputs or nodes[-1].outputs)
    arrays = {
        name: constants[name]
        if name in constants
        else RNG.integers(0, 200, shapes.get(name, SHAPE)).astype(np.uint8)
        if name in quants
        else RNG.normal(size=shapes.get(name, SHAPE)).astype(np.float32)
        for name in names
        if name not in skip
    }
    return MemoryRecording.single(graph, arrays, RunInfo(backend="test"))


def node(op, inputs, output, name=None, **attrs):
    outputs = (output,) if isinstance(output, str) else tuple(output)
    return Node(name=name or f"{op}_{outputs[0]}", op=op, inputs=tuple(inputs.split()), outputs=outputs, attrs=attrs)


W1 = RNG.normal(size=(2, 2, 3, 3)).astype(np.float32)
W2 = RNG.normal(size=(2, 2, 3, 3)).astype(np.float32)
ONE = np.float32(0.1)
ZERO = np.uint8(0)


def qcodes(weight):
    scale = float(np.abs(weight).max() / 127)
    return np.rint(weight / scale).astype(np.int8), QuantParams(dtype="int8", scale=np.float32(scale))


def float_net():
    return record(
        [
            node("Conv", "x w1", "conv1"),
            node("Relu", "conv1", "relu1"),
            node("Conv", "relu1 w2", "conv2"),
            node("MaxPool", "conv2", "pool"),
        ],
        constants={"w1": W1, "w2": W2},
    )


def qoperator_net(*, relu_zero_point=0):
    """The float net as QOperator nodes, with names of their own; its Relu is gone into the codes of `a_q`."""
    (q1, p1), (q2, p2) = qcodes(W1), qcodes(W2)
    return record(
        [
            node("QuantizeLinear", "x s z", "in_q"),
            node("QLinearConv", "in_q s z q1 s z s z", "a_q"),
            node("QLinearConv", "a_q s z q2 s z s z", "b_q"),
            node("MaxPool", "b_q", "c_q"),
            node("DequantizeLinear", "c_q s z", "out"),
        ],
        constants={"s": ONE, "z": ZERO, "q1": q1, "q2": q2},
        quants={
            "in_q": quant(zero_point=128),
            "a_q": quant(zero_point=relu_zero_point),
            "b_q": quant(zero_point=128),
            "c_q": quant(zero_point=128),
            "q1": p1,
            "q2": p2,
        },
    )


def partners(alignment):
    return {pair.backend: (pair.reference, pair.match) for pair in alignment.pairs}


def leftover(alignment, side):
    return {entry.tensor: entry for entry in alignment.unmatched if entry.side is side}


def test_equal_graphs_pair_by_name_and_leave_only_constants():
    alignment = align(float_net(), float_net())
    assert partners(alignment) == {n: (n, Match.EXACT) for n in ("x", "conv1", "relu1", "conv2", "pool")}
    assert {e.tensor for e in alignment.unmatched} == {"w1", "w2"}
    assert all(e.kind is UnmatchedKind.BENIGN and e.reason == "constant" for e in alignment.unmatched)


def test_qoperator_graph_is_walked_from_its_input():
    alignment = align(float_net(), qoperator_net())
    assert partners(alignment) == {
        "x": ("x", Match.EXACT),
        "in_q": ("x", Match.QUANTIZATION),
        "a_q": ("relu1", Match.FUSED),
        "b_q": ("conv2", Match.QUANTIZATION),
        "c_q": ("pool", Match.SIGNATURE),
        "out": ("pool", Match.QUANTIZATION),
    }
    folded = leftover(alignment, Side.REFERENCE)["conv1"]
    assert folded.kind is UnmatchedKind.BENIGN
    assert folded.reason == "computed inside QLinearConv 'QLinearConv_a_q'"
    assert not alignment.lost


def test_codes_that_reach_below_zero_do_not_stand_for_a_relu():
    alignment = align(float_net(), qoperator_net(relu_zero_point=128))
    assert partners(alignment)["a_q"] == ("conv1", Match.QUANTIZATION)


def test_relu_left_to_the_codes_is_compared_before_the_clamp():
    """Quantizers drop Relu and give its name to the tensor before it; the codes that follow do its work."""
    backend = record(
        [
            node("Conv", "x w1", "relu1"),
            node("QuantizeLinear", "relu1 s z", "relu1_q"),
            node("DequantizeLinear", "relu1_q s z", "relu1_dq"),
            node("Conv", "relu1_dq w2", "conv2"),
            node("MaxPool", "conv2", "pool"),
        ],
        constants={"w1": W1, "w2": W2, "s": ONE, "z": ZERO},
        quants={"relu1_q": quant()},
    )
    found = partners(align(float_net(), backend))
    assert found["relu1"] == ("conv1", Match.FUSED)
    assert found["relu1_q"] == ("relu1", Match.QUANTIZATION)
    assert found["relu1_dq"] == ("relu1", Match.QUANTIZATION)
    assert found["conv2"] == ("conv2", Match.EXACT)


def test_relu_left_to_the_codes_without_the_tensor_before_it_clamps_the_backend():
    reference = record(
        [node("Conv", "x w1", "conv1"), node("Relu", "conv1", "relu1")], constants={"w1": W1}, skip=("conv1",)
    )
    backend = record(
        [node("Conv", "x w1", "relu1"), node("QuantizeLinear", "relu1 s z", "q")],
        constants={"w1": W1, "s": ONE, "z": ZERO},
        quants={"q": quant()},
    )
    pair = next(p for p in align(reference, backend).pairs if p.backend == "relu1")
    assert (pair.reference, pair.match) == ("relu1", Match.EXACT)
    assert (pair.backend_view.clamp_low, pair.backend_view.clamp_high) == (0.0, np.inf)


def test_fused_activation_keeps_the_name():
    backend = record(
        [
            node("FusedConv", "x w1", "relu1", activation="Relu"),
            node("FusedConv", "relu1 w2", "conv2"),
            node("MaxPool", "conv2", "pool"),
        ],
        constants={"w1": W1, "w2": W2},
    )
    alignment = align(float_net(), backend)
    assert partners(alignment)["relu1"] == ("relu1", Match.EXACT)
    assert leftover(alignment, Side.REFERENCE)["conv1"].kind is UnmatchedKind.BENIGN


def test_stands_for_pairs_codes_with_their_source():
    backend = record(
        [node("QLinearConv", "x w1", "c1"), node("Other", "c1", "pool")],
        constants={"w1": W1},
        quants={"c1": quant()},
        stands_for={"c1": "relu1"},
    )
    assert partners(align(float_net(), backend))["c1"] == ("relu1", Match.QUANTIZATION)


def test_a_quantized_reference_answers_to_a_float_backend():
    reference = record(
        [node("QLinearConv", "x w1", "c1"), node("Other", "c1", "out")],
        constants={"w1": W1},
        quants={"c1": quant()},
        stands_for={"c1": "relu1"},
    )
    assert partners(align(reference, float_net()))["relu1"] == ("c1", Match.QUANTIZATION)


def test_branches_are_told_apart_by_their_weights():
    reference = record(
        [node("Conv", "x w1", "left"), node("Conv", "x w2", "right"), node("Add", "left right", "sum")],
        constants={"w1": W1, "w2": W2},
    )
    (q1, p1), (q2, p2) = qcodes(W1), qcodes(W2)
    backend = record(
        [
            node("QLinearConv", "x q2", "one"),
            node("QLinearConv", "x q1", "two"),
            node("QLinearAdd", "two one", "sum_q"),
        ],
        constants={"q1": q1, "q2": q2},
        quants={"one": quant(), "two": quant(), "sum_q": quant(), "q1": p1, "q2": p2},
    )
    found = partners(align(reference, backend))
    assert (found["one"][0], found["two"][0], found["sum_q"][0]) == ("right", "left", "sum")


def test_equal_branches_are_left_unpaired_rather_than_guessed():
    reference = record(
        [node("Relu", "x", "left"), node("Relu", "x", "right"), node("Add", "left right", "sum")],
    )
    backend = record([node("Relu", "x", "one"), node("Relu", "x", "two"), node("Add", "one two", "sum")])
    alignment = align(reference, backend)
    assert set(partners(alignment)) == {"x", "sum"}
    ours = leftover(alignment, Side.BACKEND)
    assert ours["one"].kind is UnmatchedKind.LOST
    assert "2 reference nodes fit equally well" in ours["one"].reason


def test_a_missing_recording_of_a_partner_is_lost():
    reference = float_net()
    backend = record(
        [
            node("Conv", "x w1", "conv1"),
            node("Relu", "conv1", "relu1"),
            node("Conv", "relu1 w2", "conv2"),
            node("MaxPool", "conv2", "pool"),
        ],
        constants={"w1": W1, "w2": W2},
        skip=("relu1",),
    )
    entry = leftover(align(reference, backend), Side.REFERENCE)["relu1"]
    assert (entry.kind, entry.reason) == (UnmatchedKind.LOST, "the backend recording has no values for it")


def test_a_tensor_that_was_skipped_while_recording_is_lost():
    backend = float_net()
    backend.info = RunInfo(backend="test", skipped={"seq": "a sequence, not a tensor"})
    (entry,) = align(float_net(), backend).lost
    assert (entry.side, entry.tensor, entry.reason) == (Side.BACKEND, "seq", "not recorded: a sequence, not a tensor")


def test_what_a_runtime_never_makes_is_not_lost():
    nodes = [node("Conv", "x w1", "conv1"), node("Relu", "conv1", "relu1"), node("Conv", "relu1 w2", "conv2")]
    constants = {"w1": W1, "w2": W2}
    backend = record(nodes, constants=constants, skip=("relu1",))
    assert align(record(nodes, constants=constants), backend).lost
    backend.info = RunInfo(
        backend="test", skipped={"relu1": "conv2 computes it"}, skip_causes={"relu1": SkipCause.FUSED}
    )
    alignment = align(record(nodes, constants=constants), backend)
    assert not alignment.lost
    assert leftover(alignment, Side.BACKEND)["relu1"].reason == "computed inside a fused node: conv2 computes it"
    assert "relu1" in leftover(alignment, Side.REFERENCE)


def test_what_hangs_on_constants_alone_is_benign():
    backend = record(
        [
            node("DequantizeLinear", "q1 s z", "w1_dq"),
            node("Conv", "x w1_dq", "conv1"),
            node("Relu", "conv1", "relu1"),
        ],
        constants={"q1": qcodes(W1)[0], "s": ONE, "z": ZERO},
    )
    entry = leftover(align(float_net(), backend), Side.BACKEND)["w1_dq"]
    assert (entry.kind, entry.reason) == (UnmatchedKind.BENIGN, "computed from constants only")


def test_what_no_output_is_made_of_is_not_lost_where_all_nodes_say_what_they_read():
    live = [node("Conv", "x w1", "conv1"), node("Relu", "conv1", "y")]
    dead = [node("Exp", "conv1", "unused"), node("Neg", "unused", "end")]
    reference = record([*dead[:1], *live, *dead[1:]], constants={"w1": W1}, outputs=("y",))
    entry = leftover(align(reference, record(live, constants={"w1": W1})), Side.REFERENCE)["unused"]
    assert (entry.kind, entry.reason) == (UnmatchedKind.BENIGN, "no graph output depends on it")
    silent = record([*dead[:1], *live, node("Neg", "", "end")], constants={"w1": W1}, outputs=("y",))
    assert leftover(align(silent, record(live, constants={"w1": W1})), Side.REFERENCE)["end"].kind is UnmatchedKind.LOST


def test_of_two_nodes_of_a_kind_the_one_of_its_extents_answers_to_a_node():
    """A backend may compute a ReduceLogSumExp by a ReduceMax and more, beside the ReduceMax that the model has."""
    reference = record(
        [node("ReduceLogSumExp", "x", "sum", axes=[1]), node("ReduceMax", "x", "most", axes=[0])],
        shapes={"sum": (1, 1, 4, 4), "most": (2, 4, 4)},
    )
    backend = record(
        [
            *(node("ReduceMax", "x", "m", axes=[1]), node("Sub", "x m", "s"), node("Exp", "s", "e")),
            *(node("ReduceSum", "e", "r", axes=[1]), node("Log", "r", "l"), node("Add", "l m", "y")),
            node("ReduceMax", "x", "z", axes=[0]),
        ],
        shapes={"m": (1, 1, 4, 4), "r": (1, 1, 4, 4), "l": (1, 1, 4, 4), "y": (1, 1, 4, 4), "z": (2, 4, 4)},
        outputs=("y", "z"),
    )
    found = partners(align(reference, backend))
    assert (found["z"][0], found.get("m")) == ("most", None)


def test_what_reads_a_tensor_less_a_dimension_of_one_element_is_found_whatever_its_weight():
    """Even if it is the last node, and nothing that follows tells which one it is."""
    w, other = RNG.normal(size=(2, 5)).astype(np.float32), RNG.normal(size=(2, 5)).astype(np.float32)
    reference = record(
        [node("ReduceMean", "x", "mean", axes=[2, 3], keepdims=0), node("Gemm", "mean w", "fc")],
        constants={"w": w},
        shapes={"mean": (1, 2), "fc": (1, 5)},
    )
    backend = record(
        [
            node("ReduceMean", "x", "g", axes=[2, 3], keepdims=1),
            *(node("Reshape", "g s", "f"), node("Gemm", "f v", "y")),
        ],
        constants={"v": other, "s": np.array([1, 2])},
        shapes={"g": (1, 2, 1, 1), "f": (1, 2), "y": (1, 5)},
    )
    for pair in ((reference, backend), (backend, reference)):
        assert not align(*pair).lost


def test_a_lone_input_of_another_name_is_paired_by_shape():
    backend = record(
        [node("Conv", "image w1", "conv1"), node("Relu", "conv1", "relu1")],
        constants={"w1": W1},
        inputs=("image",),
    )
    assert partners(align(float_net(), backend))["image"] == ("x", Match.SIGNATURE)


def test_two_networks_with_only_the_input_in_common_are_refused():
    other = record([node("Gemm", "x b", "y")], constants={"b": W1})
    with pytest.raises(
        AlignmentError, match=r"No tensor of the recording .*could be paired with a tensor of the recording"
    ):
        align(float_net(), other)


def test_a_name_ending_alone_never_pairs():
    reference = record([node("Relu", "x", "a"), node("Tanh", "a", "t")])
    backend = record([node("Relu", "x", "a"), node("Sigmoid", "a", "t_quantized")])
    alignment = align(reference, backend)
    assert set(partners(alignment)) == {"x", "a"}
    assert leftover(alignment, Side.REFERENCE)["t"].kind is UnmatchedKind.LOST


def test_same_name_for_another_position_is_never_paired_by_order():
    """Two nets of one length with disjoint names share nothing but the walk from the input."""
    reference = record([node("Relu", "x", "a"), node("Sigmoid", "a", "b")])
    backend = record([node("Sigmoid", "x", "c"), node("Relu", "c", "d")])
    with pytest.raises(AlignmentError):
        align(reference, backend)


@pytest.mark.parametrize(("head", "tail"), [("", "_nchwc"), ("", ".fused"), ("Cast_", "_nchwc")])
def test_branches_alike_but_for_folded_weights_are_told_apart_by_the_name_of_what_is_folded(head, tail):
    """Blocks of channels and folded statistics leave nothing of a weight, and the runtime names tensors anew."""
    stats = {name: np.full(2, 0.5, np.float32) for name in ("g", "b", "m", "v")}
    nodes = [
        node("Conv", "x w", "c1"),
        node("Conv", "x u", "c2"),
        node("BatchNormalization", "c1 g b m v", "norm.1"),
        node("BatchNormalization", "c2 g b m v", "norm.10"),
        node("Add", "norm.1 norm.10", "y"),
    ]
    ref = record(nodes, constants={"w": W1, "u": W2, **stats})
    folded = [
        node("Conv", "x p b2", "t1", f"{head}norm.10{tail}"),
        node("Conv", "x q b1", "t2", f"{head}norm.1{tail}"),
        node("Add", "t2 t1", "y"),
    ]
    biases = {"b1": np.zeros(2, np.float32), "b2": np.ones(2, np.float32)}
    be = record(folded, constants={"p": RNG.normal(size=(9, 7)), "q": RNG.normal(size=(9, 7)), **biases})
    found = {pair.backend: pair.reference for pair in align(ref, be).pairs}
    assert (found["t1"], found["t2"]) == ("norm.10", "norm.1")


def test_an_upsample_in_blocks_of_channels_answers_to_a_resize():
    """The runtime calls it as old models did, and names its result anew."""
    scales = np.float32([1, 1, 2, 2])
    ref = record([node("Resize", "x r s", "big", mode="nearest")], constants={"r": np.float32([]), "s": scales})
    up = Node(name="up", op="Upsample", domain="com.microsoft.nchwc", inputs=("x",), outputs=("t",), attrs={})
    found = align(ref, record([up, node("Relu", "t", "y")])).pairs
    assert [(pair.backend, pair.reference) for pair in found] == [("x", "x"), ("t", "big")]


def test_branches_are_told_apart_by_the_name_of_the_activation_that_is_fused_into_one():
    ref = record(
        [node("Conv", "x w", "c1"), node("Conv", "x u", "c2"), node("Sigmoid", "c2", "s"), node("Add", "c1 s", "y")],
        constants={"w": W1, "u": W2},
    )
    fused = node("Conv", "x p", "t1", "s_nchwc", activation="Sigmoid")
    be = record(
        [fused, node("Conv", "x q", "t2", "c1_nchwc"), node("Add", "t2 t1", "y")],
        constants={"p": RNG.normal(size=(9, 7)), "q": RNG.normal(size=(9, 7))},
    )
    found = {pair.backend: pair.reference for pair in align(ref, be).pairs}
    assert (found["t1"], found["t2"]) == ("s", "c1")
    assert not [entry for entry in align(ref, be).unmatched if entry.kind is UnmatchedKind.LOST]


@pytest.mark.parametrize("alpha", [1.0, 1.702])
def test_what_follows_a_fused_quick_gelu_without_a_name_is_found(alpha):
    before, after = ("x w", "h"), ("g u", "y")
    scaled = [] if alpha == 1 else [node("Mul", "h a", "ha")]
    gate = node("Sigmoid", "ha" if scaled else "h", "s")
    ref = record(
        [node("Conv", *before), *scaled, gate, node("Mul", "h s", "g"), node("Conv", *after)],
        constants={"w": W1, "u": W2, "a": np.float32(alpha)},
    )
    fused = node("QuickGelu", "t1", "t2", alpha=alpha)
    be = record(
        [node("Conv", "x w", "t1"), fused, node("Conv", "t2 u", "y")], constants={"w": W1, "u": W2}, outputs=("y",)
    )
    found = align(ref, be)
    assert {pair.backend: pair.reference for pair in found.pairs} == {"x": "x", "t1": "h", "t2": "g", "y": "y"}
    assert not [entry for entry in found.unmatched if entry.kind is UnmatchedKind.LOST]


def test_a_factor_behind_what_only_picks_values_is_not_taken_for_part_of_it():
    """Where to begin and to end are constants, too; no factor goes into them."""
    bounds = {"from": np.array([0]), "to": np.array([2])}
    factor = RNG.normal(size=(2, 2, 3, 3)).astype(np.float32)
    ref = record(
        [
            node("Sigmoid", "x", "h"),
            node("Slice", "h from to", "s"),
            node("Transpose", "s", "t", perm=(0, 1, 3, 2)),
            node("Mul", "t c", "m"),
            node("Sqrt", "m", "r"),
            node("Transpose", "r", "y", perm=(0, 1, 3, 2)),
        ],
        constants={**bounds, "c": factor},
    )
    be = record(
        [
            node("Sigmoid", "x", "h"),
            node("Slice", "h from to", "part"),
            node("Mul", "part d", "n1"),
            node("Sqrt", "n1", "y"),
        ],
        constants={**bounds, "d": np.swapaxes(factor, 2, 3)},
        stands_for={"part": "s"},
    )
    found = align(ref, be)
    expected = {"x": "x", "h": "h", "part": "s", "n1": "m", "y": "y"}
    assert {pair.backend: pair.reference for pair in found.pairs} == expected
    assert not [entry for entry in found.unmatched if entry.kind is UnmatchedKind.LOST]


def test_of_several_compared_forms_the_first_is_named():
    """Whatever the order of a set is, which differs from run to run."""
    forms = range(12)
    ops = ("QuantizeLinear", "DequantizeLinear")
    chain = [node("Relu", "x", "f0")]
    for at in forms:
        chain += [node("Relu", f"f{at}", f"r{at}"), node(ops[0], f"r{at} s z", f"q{at}")]
        chain += [node(ops[1], f"q{at} s z", f"d{at}"), node("Relu", f"d{at}", f"f{at + 1}")]
    quants = {f"q{at}": quant() for at in forms}
    constants = {"s": ONE, "z": ZERO}
    reference = record(chain, constants=constants, quants=quants)
    backend = record(chain, constants=constants, quants=quants, skip=[f"q{at}" for at in forms])
    said = leftover(align(reference, backend), Side.REFERENCE)
    assert [said[f"q{at}"].reason for at in forms] == [f"equivalent to 'r{at}', which is compared" for at in forms]


def test_what_the_backend_does_behind_an_arrangement_is_not_folded_into_the_node_before():
    """A product that computes with channels last hands its codes on turned; what normalizes them comes after that."""
    (codes, params), stats = qcodes(W1), {n: np.linspace(0.5, 2, 2, dtype=np.float32) for n in ("g", "b", "m", "v")}
    norm = node("BatchNormalization", "relu g b m v", "norm")
    ref = record(
        [node("Conv", "x w", "c"), node("Relu", "c", "relu"), norm, node("Sigmoid", "norm", "y")],
        constants={"w": W1, **stats},
    )
    be = record(
        [
            node("QuantizeLinear", "x s z", "x_q"),
            node("Transpose", "x_q", "turned", perm=(0, 2, 3, 1)),
            node("QLinearConv", "turned s z q s z s z", "c_q", channels_last=1),
            node("Transpose", "c_q", "back", perm=(0, 3, 1, 2)),
            node("DequantizeLinear", "back s z", "real"),
            node("BatchNormalization", "real g b m v", "norm"),
            node("Sigmoid", "norm", "y"),
        ],
        constants={"q": codes, "s": ONE, "z": ZERO, **stats},
        quants={"x_q": quant(), "turned": quant(), "c_q": quant(), "back": quant(), "q": params},
        shapes={"turned": (1, 3, 3, 2), "c_q": (1, 3, 3, 2)},
    )
    found = {pair.backend: pair.reference for pair in align(ref, be).pairs}
    assert (found["c_q"], found["real"], found["norm"]) == ("relu", "relu", "norm")


def test_what_normalizes_behind_a_bias_of_its_own_is_not_folded_into_the_convolution():
    stats = {n: np.linspace(0.5, 2, 2, dtype=np.float32) for n in ("g", "b", "m", "v")}
    norm = node("BatchNormalization", "c g b m v", "norm")
    bias = np.array([0.5, -1], np.float32)
    bounds = {"low": np.float32(0), "high": np.float32(6)}
    ref = record(
        [node("Conv", "x w1 k", "c"), norm, node("Clip", "norm low high", "y")],
        constants={"w1": W1, "k": bias, **stats, **bounds},
    )
    be = record(
        [
            node("Conv", "x w1", "product"),
            node("Add", "product k", "c"),
            norm,
            node("Max", "norm low", "above"),
            node("Min", "above high", "y"),
        ],
        constants={"w1": W1, "k": bias.reshape(1, 2, 1, 1), **stats, **bounds},
    )
    found = {pair.backend: pair.reference for pair in align(ref, be).pairs}
    assert found == {"x": "x", "c": "c", "norm": "norm", "y": "y"}


@pytest.mark.parametrize("word", ["Shape", "ShapeOf"])
def test_the_extents_of_a_tensor_that_the_backend_turned_are_not_compared(word):
    nodes = [node("Relu", "x", "h"), node("Shape", "h", "s"), node("Sigmoid", "h", "y")]
    ref = record(nodes, outputs=("y", "s"), shapes={"s": (4,)})
    be = record(
        [
            node("Relu", "x", "h"),
            node("Transpose", "h", "t", perm=(0, 2, 3, 1)),
            node(word, "t", "u"),
            node("Sigmoid", "h", "y"),
        ],
        outputs=("y", "u"),
        shapes={"t": (1, 3, 3, 2), "u": (4,)},
    )
    assert "u" not in partners(align(ref, be))


def test_an_output_that_the_backend_turned_further_up_is_that_output():
    """A Cast at the end keeps the values of what it reads, and there the dimensions are the output's already."""
    ref = record(
        [node("Relu", "x", "h"), node("Cast", "h", "half", to=10), node("Transpose", "half", "y", perm=(0, 1, 3, 2))]
    )
    be = record([node("Transpose", "x", "t", perm=(0, 1, 3, 2)), node("Relu", "t", "g"), node("Cast", "g", "y", to=10)])
    found = align(with_formats(ref), with_formats(be))
    assert {pair.backend: pair.reference for pair in found.pairs}["y"] == "y"
    assert not [entry for entry in found.unmatched if entry.kind is UnmatchedKind.LOST]


def with_formats(recording):
    """State the format of every tensor: 16 bits behind a Cast, 32 before."""
    graph = recording.graph
    half = {name for n in graph.nodes if n.op == "Cast" for name in n.outputs} | {"y"}
    tensors = [
        TensorInfo(name=name, role=info.role, dtype="float16" if name in half else "float32")
        for name, info in graph.tensors.items()
    ]
    made = Graph(graph.nodes, tensors=tensors, inputs=graph.inputs, outputs=graph.outputs)
    return MemoryRecording.single(made, {name: recording.load(name) for name in recording.names})


@pytest.mark.parametrize("bias", [True, False])
def test_what_normalizes_behind_a_transpose_is_found_where_the_backend_moved_that_to_the_end(bias):
    """Nets with channels last are kept so node by node, and an optimizer leaves one Transpose of many."""
    constants = {name: np.linspace(0.5, 2 + at, 2, dtype=np.float32) for at, name in enumerate("abc")}
    first = [node("Add", "t a", "s")] if bias else []
    ref = record(
        [
            node("Conv", "x w", "h"),
            node("Transpose", "h", "t", perm=(0, 2, 3, 1)),
            *first,
            node("Sub", "s b" if bias else "t b", "d"),
            node("Mul", "d c", "m"),
            node("Relu", "m", "y"),
        ],
        constants={"w": W1, **constants},
        shapes=dict.fromkeys("tsdmy", (1, 3, 3, 2)),
    )
    planes = {f"{name}1": array.reshape(1, 2, 1, 1) for name, array in constants.items()}
    be = record(
        [
            node("Conv", "x w a0" if bias else "x w", "h1"),
            node("Sub", "h1 b1", "d1"),
            node("Mul", "d1 c1", "m1"),
            node("Relu", "m1", "y1"),
            node("Transpose", "y1", "y", perm=(0, 2, 3, 1)),
        ],
        constants={"w": W1, "a0": constants["a"], **planes},
        shapes={"y": (1, 3, 3, 2)},
    )
    pairs = {pair.backend: pair for pair in align(ref, be).pairs}
    expected = {"h1": "s" if bias else "h", "d1": "d", "m1": "m", "y1": "y", "y": "y"}
    assert {name: pairs[name].reference for name in expected} == expected
    turned = {name for name, pair in pairs.items() if pair.backend_view is not None}
    assert turned == {"d1", "m1", "y1"} | ({"h1"} if bias else set())
    assert not [entry for entry in align(ref, be).unmatched if entry.kind is UnmatchedKind.LOST]


@pytest.mark.parametrize("extents", [[(3, 6)], [(18,), (3, 6)], [(18,), (2, 9), (3, 6)]], ids=["one", "two", "three"])
def test_one_reshape_answers_to_the_last_of_several_in_a_row(extents):
    """What lies between has other extents; the sigmoid that follows has a partner only if the reshape has."""
    made = {f"r{at}": shape for at, shape in enumerate(extents, 1)}
    steps = [node("Reshape", f"r{at - 1} s{at}", f"r{at}") for at in range(1, len(extents) + 1)]
    ref = record(
        [node("Relu", "x", "r0"), *steps, node("Sigmoid", f"r{len(extents)}", "y")],
        constants={f"s{at}": np.int64(shape) for at, shape in enumerate(extents, 1)},
        shapes={**made, "y": (3, 6)},
    )
    be = record(
        [node("Relu", "x", "relu"), node("Reshape", "relu s", "flat"), node("Sigmoid", "flat", "out")],
        constants={"s": np.int64([3, 6])},
        shapes={"flat": (3, 6), "out": (3, 6)},
    )
    found = {backend: reference for backend, (reference, _) in partners(align(ref, be)).items()}
    assert found == {"x": "x", "relu": "r0", "flat": f"r{len(extents)}", "out": "y"}
