"""A name and shape that both sides have count for more than values that are merely near, and `conv:0` is `conv`."""

import numpy as np
import pytest

import qdebug
from qdebug.compare.align.names import spell_tensor_name
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(3)
X = RNG.normal(size=(1, 4, 8, 8)).astype(np.float32)
CONSTANTS = {f"w{i}": (RNG.normal(size=(4, 4, 3, 3)) / 5).astype(np.float32) for i in range(3)}
CONSTANTS["one"] = np.full((4, 1, 1), 1.5, np.float32)
CONSTANTS |= {f"b{i}": (RNG.normal(size=(4, 1, 1)) / 5).astype(np.float32) for i in range(2)}
FUSED = {"r0": ("x",), "s0": ("r0", "x"), "r1": ("s0",), "s1": ("r1", "s0"), "y": ("s1",)}
TFLITE = {"r0": "conv2d", "s0": "add", "r1": "conv2d", "s1": "add", "y": "conv2d"}
UNKNOWN = {"r0": "npu_block", "s0": "npu_sum", "r1": "npu_block", "s1": "npu_sum", "y": "npu_block"}


def node(op, inputs, output, **attrs):
    return Node(name=f"n_{output}", op=op, inputs=tuple(inputs.split()), outputs=(output,), attrs=attrs)


def recorded(*nodes):
    values = {"x": X, **CONSTANTS}
    for each in nodes:
        values.update(run_node(each, values, {"": 18}))
    tensors = [TensorInfo(name="x", role=Role.INPUT), *(TensorInfo(name=n, role=Role.CONSTANT) for n in CONSTANTS)]
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=nodes[-1].outputs, opset={"": 18})
    return MemoryRecording.single(graph, values)


@pytest.fixture(scope="module")
def full():
    """Two residual blocks of Conv, bias, Relu and a sum, and a Conv."""
    pads = {"pads": (1, 1, 1, 1)}
    return recorded(
        node("Conv", "x w0", "c0", **pads),
        node("Add", "c0 b0", "a0"),
        node("Relu", "a0", "r0"),
        node("Add", "r0 x", "s0"),
        node("Conv", "s0 w1", "c1", **pads),
        node("Add", "c1 b1", "a1"),
        node("Relu", "a1", "r1"),
        node("Add", "r1 s0", "s1"),
        node("Conv", "s1 w2", "y", **pads),
    )


def harness(full, words, *, end="", given=None):
    """Hand over what a runtime with fused operators gives, in words of its own, or by bare names."""
    given = given or {}
    with qdebug.Recorder(None, backend="harness") as rec:
        rec.put(f"x{end}", X)
        for name, inputs in FUSED.items():
            values = given.get(name, full.load(name)).astype(np.float32)
            said = {"op": words[name], "inputs": [f"{each}{end}" for each in inputs]} if words else {}
            rec.put(f"{name}{end}", values, **said)
        rec.outputs(f"y{end}")
    return rec.recording


def partners(result):
    return {row.tensor: row.reference_tensor for row in result.nodes}


@pytest.mark.parametrize("words", [TFLITE, UNKNOWN, None], ids=["tflite", "unknown", "bare"])
@pytest.mark.parametrize("end", ["", ":0"])
def test_wrong_values_do_not_lead_away_from_the_name(full, words, end):
    """Whatever is wrong with a tensor, it is blamed under its own name, and not held against another."""
    wrong = {
        "saturated": np.minimum(full.load("r0"), 0.2),
        "scaled": full.load("r0") * 6,
        "not clamped": full.load("a0"),
    }
    for values in wrong.values():
        result = qdebug.diff(full, harness(full, words, end=end, given={"r0": values}))
        assert partners(result) == {f"{name}{end}": name for name in ("x", *FUSED)}
        assert result.first_divergence == f"r0{end}"
        assert [row.tensor for row in result.nodes if row.status == "diverged"] == [f"r0{end}"]


def test_a_mark_of_the_first_output_is_no_part_of_a_name(full):
    result = qdebug.diff(full, harness(full, None, end=":0"))
    assert {row.match for row in result.nodes} == {"exact"}
    assert {row.match_reason for row in result.nodes} == {"same name except for ':0'"}
    back = qdebug.diff(harness(full, TFLITE, end=":0"), full)
    assert {row.reference_tensor for row in back.nodes} >= {"x:0", "r0:0", "r1:0", "y:0"}


def test_a_second_output_is_not_the_first():
    assert spell_tensor_name("split:1") == ("split:1", "split:1:0")
    assert spell_tensor_name("split:0") == ("split:0", "split")
    assert spell_tensor_name("split") == ("split", "split:0")


@pytest.mark.parametrize("low", [0, -0.01])
def test_what_a_relu_may_have_given_is_not_taken_for_what_enters_it(low):
    """Codes that nobody explains may do the work of a Relu, but values far too large are no sign of that."""
    full = recorded(node("Sub", "x b0", "shifted"), node("Sub", "shifted one", "a"), node("Relu", "a", "r"))
    with qdebug.Recorder(None, backend="harness") as rec:
        rec.put("x", X)
        rec.put("shifted", full.load("shifted"))
        rec.put("a", full.load("a"))
        rec.put("r", full.load("r") * 6 + np.float32(low))
        rec.put("r_codes", np.clip(full.load("r") * 50, 0, 255).astype(np.uint8))
    result = qdebug.diff(full, rec.recording)
    assert partners(result)["r"] == "r"
    assert result.first_divergence == "r"


def test_values_that_are_plainly_anothers_prove_a_name_wrong(full):
    """A harness that numbers its tensors in another order has the names, and other values under them."""
    with qdebug.Recorder(None, backend="harness") as rec:
        rec.put("x", X)
        rec.put("c1", full.load("s0"), op="npu_block", inputs=["unrecorded"])
        rec.put("tail", full.load("y"), op="conv2d", inputs=["c1"])
        rec.outputs("tail")
    row = next(each for each in qdebug.diff(full, rec.recording).nodes if each.tensor == "c1")
    assert (row.reference_tensor, row.match) == ("s0", "data")
    assert row.match_reason == "its values fit 's0', and do not fit the tensor of the same name"


def test_names_that_shift_with_their_nodes_are_not_followed(full):
    """The backend has nodes for the bias and the Relu: its product is the reference's, whatever it is called."""
    with qdebug.Recorder(None, backend="harness") as rec:
        rec.put("x", X)
        rec.put("a0", full.load("c0") * np.float32(0.5), op="conv2d", inputs=["x"])
        rec.put("r0", full.load("a0"), op="add", inputs=["a0"])
        rec.put("t", full.load("r0"), op="relu", inputs=["r0"])
        rec.outputs("t")
    assert partners(qdebug.diff(full, rec.recording)) == {"x": "x", "a0": "c0", "r0": "a0", "t": "r0"}


@pytest.mark.parametrize("side", ["reference", "backend"])
def test_an_output_that_only_reshapes_a_compared_one_is_not_lost(side):
    both = [node("Relu", "x", "r"), node("Reshape", "r w0", "flat")]
    values = {"x": X, "w0": np.array([1, -1]), "r": np.maximum(X, 0), "flat": np.maximum(X, 0).reshape(1, -1)}
    known = [TensorInfo(name="x", role=Role.INPUT), TensorInfo(name="w0", role=Role.CONSTANT)]

    def run(nodes, **changed):
        graph = Graph(nodes, tensors=known, inputs=("x",), outputs=nodes[-1].outputs, opset={"": 18})
        return MemoryRecording.single(graph, {n: v for n, v in {**values, **changed}.items() if n in graph.tensors})

    def compared(longer):
        pair = (longer, run(both[:1])) if side == "reference" else (run(both[:1]), longer)
        return qdebug.diff(*pair)

    result = compared(run(both))
    entry = next(each for each in result.coverage.unmatched if each.tensor == "flat")
    assert (entry.kind, entry.reason) == ("benign", "a reshape of 'r', which is compared")
    assert result.exit_code == 0
    wrong = compared(run(both, flat=values["flat"][:, ::-1].copy()))
    assert [each.tensor for each in wrong.coverage.unmatched if each.kind == "lost"] == ["flat"]


def test_tensors_of_which_nothing_is_known_are_not_the_same_computation():
    with qdebug.Recorder(None, backend="harness") as rec:
        rec.put("x", X)
        rec.put("r", np.maximum(X, 0))
        rec.put("extra", X * 3)
    result = qdebug.diff(rec.recording, recorded(node("Relu", "x", "r")))
    assert [each.tensor for each in result.coverage.unmatched if each.kind == "lost"] == ["extra"]
