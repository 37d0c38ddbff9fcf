"""A harness that leaves unsaid where a quantized net rounds to codes is not held to the rounding of floats."""

import numpy as np

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(17)
X = RNG.normal(size=(1, 4, 8, 8)).astype(np.float32)
WEIGHTS = {f"w{i}": RNG.normal(size=(4, 4, 3, 3)).astype(np.float32) / 6 for i in range(3)}


def real():
    nodes, source = [], "x"
    for place in range(3):
        attrs = {"pads": (1, 1, 1, 1)}
        nodes.append(
            Node(name=f"c{place}", op="Conv", inputs=(source, f"w{place}"), outputs=(f"a{place}",), attrs=attrs)
        )
        nodes.append(Node(name=f"r{place}", op="Relu", inputs=(f"a{place}",), outputs=(f"b{place}",)))
        source = f"b{place}"
    values = {"x": X, **WEIGHTS}
    for node in nodes:
        values.update(run_node(node, values, {"": 18}))
    tensors = [TensorInfo(name="x", role=Role.INPUT), *(TensorInfo(name=n, role=Role.CONSTANT) for n in WEIGHTS)]
    return MemoryRecording.single(Graph(nodes, tensors=tensors, inputs=("x",), outputs=("b2",), opset={"": 18}), values)


def codes(values, low=0):
    step = np.float32(np.abs(values).max() / 200)
    return np.clip(np.rint(values / step), low, 255).astype(np.uint8 if low == 0 else np.int16), step


def rounded(*, say_codes=True, wrong=None):
    """Hand over real numbers by name; what each Conv reads was rounded to 8 bits, which does the work of the Relus."""
    value = X
    with qdebug.Recorder(None, backend="harness") as rec:
        rec.put("x", X)
        for place in range(3):
            weight = WEIGHTS[f"w{place}"] * (1 if place != wrong else np.float32(1.6))
            conv = Node(name="c", op="Conv", inputs=("i", "w"), outputs=("o",), attrs={"pads": (1, 1, 1, 1)})
            made = run_node(conv, {"i": value, "w": weight}, {"": 18})["o"]
            last = place == 2
            rec.put("b2" if last else f"b{place}", np.maximum(made, 0) if last else made)
            stored, step = codes(made)
            if say_codes:
                rec.put(f"b{place}_codes", stored)
            value = stored.astype(np.float32) * step
        rec.outputs("b2")
    return rec.recording


def test_what_codes_may_have_rounded_is_judged_by_its_whole_error():
    result = qdebug.diff(real(), rounded())
    assert {node.status for node in result.nodes} <= {"identical", "within"}
    assert {node.tensor: node.reference_tensor for node in result.nodes} == {
        "x": "x",
        "b0": "a0",
        "b1": "a1",
        "b2": "b2",
    }


def test_a_fault_is_found_all_the_same():
    result = qdebug.diff(real(), rounded(wrong=1))
    assert result.first_divergence == "b1"
    assert "the recording does not say where its inputs are rounded to codes" in result.verdict.sentence


def test_a_harness_without_any_codes_is_held_to_the_rounding_of_floats():
    assert qdebug.diff(real(), rounded(say_codes=False)).status == "diverged"
