"""Where a harness has names of its own and says little of its graph, values lead to partners; elsewhere they do not."""

import re

import numpy as np
import pytest

import qdebug
from qdebug.compare.align.align import align
from qdebug.errors import AlignmentError
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(21)
X = RNG.normal(size=(1, 4, 8, 8)).astype(np.float32)
WEIGHTS = {f"w{i}": RNG.normal(size=(4, 4, 3, 3)).astype(np.float32) / 6 for i in range(4)}
WEIGHTS |= {f"b{i}": RNG.normal(size=4).astype(np.float32) for i in range(4)}
PADS = {"pads": (1, 1, 1, 1)}


def net(weights=WEIGHTS):
    """Record two branches of a Conv with bias and a Relu each, their sum, and two more Convs."""
    nodes = [
        Node(name="/c0/Conv", op="Conv", inputs=("x", "w0", "b0"), outputs=("/c0/out",), attrs=PADS),
        Node(name="/r0/Relu", op="Relu", inputs=("/c0/out",), outputs=("/r0/out",)),
        Node(name="/c1/Conv", op="Conv", inputs=("x", "w1", "b1"), outputs=("/c1/out",), attrs=PADS),
        Node(name="/r1/Relu", op="Relu", inputs=("/c1/out",), outputs=("/r1/out",)),
        Node(name="/Add", op="Add", inputs=("/r0/out", "/r1/out"), outputs=("/sum",)),
        Node(name="/c2/Conv", op="Conv", inputs=("/sum", "w2", "b2"), outputs=("/c2/out",), attrs=PADS),
        Node(name="/s/Sigmoid", op="Sigmoid", inputs=("/c2/out",), outputs=("/s/out",)),
        Node(name="/c3/Conv", op="Conv", inputs=("/s/out", "w3", "b3"), outputs=("y",), attrs=PADS),
    ]
    values = {"x": X, **weights}
    for node in nodes:
        values.update(run_node(node, values, {"": 18}))
    tensors = [TensorInfo(name="x", role=Role.INPUT), *(TensorInfo(name=n, role=Role.CONSTANT) for n in weights)]
    return MemoryRecording.single(Graph(nodes, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 18}), values)


def hooked(full):
    """Hand over what modules give, under the modules' names."""
    with qdebug.Recorder(None, backend="harness") as rec:
        rec.put("x", X)
        for name in ("/c0/out", "/r0/out", "/c1/out", "/r1/out", "/c2/out", "/s/out", "y"):
            off = RNG.normal(size=full.load(name).shape) * 1e-6
            rec.put(f"module{name.replace('/', '.')}", (full.load(name) + off).astype(np.float32))
        rec.put("module.block", rec_last(rec, full))
    return rec.recording


def rec_last(rec, full):
    """Return what a block hands on: a copy of what its last module gave."""
    values = full.load("/s/out") + np.float32(1e-6)
    rec.put("module.last", values)
    return values.copy()


def test_names_of_modules_are_led_to_their_tensors_by_values():
    full = net()
    for pair in ((full, hooked(full)), (hooked(full), full)):
        result = qdebug.diff(*pair)
        matched = {node.match for node in result.nodes if node.tensor != "x"}
        assert matched == {"data"}
        assert {node.status for node in result.nodes} <= {"identical", "within"}
        assert result.coverage.compared >= 7


def test_branches_that_no_weight_tells_apart_are_told_apart_by_values():
    full = net()
    words = {"Conv": "conv2d", "Relu": "relu", "Add": "add", "Sigmoid": "sigmoid"}
    with qdebug.Recorder(None, backend="harness") as rec:
        rec.put("image", X)
        names = {"x": "image"}
        for place, node in enumerate(full.graph.nodes):
            names[node.outputs[0]] = f"{words[node.op]}_{place}"
            read = [names[name] for name in node.inputs if name in names]
            rec.put(names[node.outputs[0]], full.load(node.outputs[0]), op=words[node.op], inputs=read)
        rec.outputs(names["y"])
    result = qdebug.diff(full, rec.recording)
    assert (result.coverage.compared, result.exit_code) == (9, 0)


def test_a_product_is_compared_at_the_stage_that_its_values_are_at():
    """A convolution before its bias is none with it, whatever a recording leaves out; one with a Relu inside is."""
    full = net()
    bare = {name: value * (not name.startswith("b")) for name, value in WEIGHTS.items()}
    without_bias = net({**bare, "w1": WEIGHTS["w1"]}).load("/c0/out")
    with qdebug.Recorder(None, backend="harness") as rec:
        rec.put("image", X)
        rec.put("product", without_bias, op="Convolution", inputs=("image",))
        rec.put("biased", full.load("/c0/out"), op="Add", inputs=("product",))
        rec.put("activated", full.load("/r0/out"), op="Relu", inputs=("biased",))
        rec.put("both", full.load("/r1/out"), op="Convolution", inputs=("image",))
        rec.put("joined", full.load("/sum"), op="Add", inputs=("activated", "both"))
    result = qdebug.diff(full, rec.recording)
    found = {node.tensor: node.reference_tensor for node in result.nodes}
    assert found == {
        "image": "x",
        "biased": "/c0/out",
        "activated": "/r0/out",
        "both": "/r1/out",
        "joined": "/sum",
    }
    assert {node.status for node in result.nodes} <= {"identical", "within"}


def test_values_of_a_tensor_that_has_a_partner_lead_to_no_other_that_is_merely_near():
    """Layers that normalize give much the same again: what was said of one twice is nothing of the next."""
    first = RNG.normal(size=(1, 4, 8, 8)).astype(np.float32)
    second = first + np.float32(0.1) * RNG.normal(size=first.shape).astype(np.float32)
    with qdebug.Recorder(None, backend="model") as rec:
        rec.put("x", X)
        rec.put("first", first, op="Abs", inputs=("x",), node="norm")
        rec.put("middle", second.sum(axis=1), op="Exp", inputs=("first",), node="sums")
        rec.put("second", second, op="Selu", inputs=("first", "middle"), node="blend")
        rec.outputs("second")
    with qdebug.Recorder(None, backend="harness") as other:
        other.put("x", X)
        other.put("first", first + np.float32(1e-6), op="Abs", inputs=("x",), node="norm")
        other.put("again", first + np.float32(2e-6), op="multiply", inputs=("first",), node="again")
        other.put("result", second, op="softmax", inputs=("again",), node="result")
        other.outputs("result")
    found = {node.tensor: node.reference_tensor for node in qdebug.diff(rec.recording, other.recording).nodes}
    assert found == {"x": "x", "first": "first", "result": "second"}


def test_a_fault_does_not_lead_to_another_tensor():
    full = net()
    wrong = net({**WEIGHTS, "w2": np.roll(WEIGHTS["w2"], 1, axis=0)})
    result = qdebug.diff(full, hooked(wrong))
    found = {node.tensor: node.reference_tensor for node in result.nodes}
    assert {
        name: found.get(f"module{name.replace('/', '.')}") for name in ("/c0/out", "/r0/out", "/c1/out", "/r1/out")
    } == {name: name for name in ("/c0/out", "/r0/out", "/c1/out", "/r1/out")}
    assert found.get("module./c2/out") in (None, "/c2/out")
    assert result.exit_code != 0


def test_values_are_no_ground_where_graphs_are_known():
    """A net that says all of itself, in ONNX's words, is matched by what its nodes do alone."""
    full = net()
    other = Graph(
        [
            Node(name="n", op="Abs", inputs=("z",), outputs=("q",)),
            Node(name="m", op="Exp", inputs=("q",), outputs=("r",)),
        ],
        inputs=("z",),
        outputs=("r",),
        opset={"": 18},
    )
    values = {"z": X, "q": full.load("/r0/out"), "r": full.load("y")}
    with pytest.raises(AlignmentError):
        qdebug.diff(full, MemoryRecording.single(other, values))


def test_what_a_block_hands_on_is_not_lost(tmp_path):
    """A hook on a block sees what the hook on its last module saw."""
    full = net()
    with qdebug.Recorder(tmp_path / "hooks.h5", backend="harness") as rec:
        for name in ("x", "/c0/out", "/r0/out"):
            rec.put(name, full.load(name))
        rec.put("block", full.load("/r0/out"))
    result = qdebug.diff(full, tmp_path / "hooks.h5")
    reasons = {entry.tensor: entry.reason for entry in result.coverage.unmatched if entry.kind == "benign"}
    assert reasons["block"] == "the same values as '/r0/out', which is compared"


def bare(arrays):
    with qdebug.Recorder(None, backend="harness") as rec:
        for name, values in arrays.items():
            rec.put(name, values.astype(np.float32))
    return rec.recording


def pairs_of(ref, be):
    return {pair.backend: pair for pair in align(ref, be).pairs}


def test_a_tensor_stored_in_any_order_is_found_and_brought_back():
    full = net()
    orders = {"/c0/out": (2, 0, 3, 1), "/sum": (0, 3, 2, 1), "/c2/out": (0, 2, 3, 1)}
    given = {f"t{i}": full.load(name).transpose(order) for i, (name, order) in enumerate(orders.items())}
    given["t3"] = full.load("/s/out").transpose(0, 2, 3, 1).reshape(-1)
    result = qdebug.diff(full, bare(given))
    assert {node.tensor: node.reference_tensor for node in result.nodes} == {
        **{f"t{i}": name for i, name in enumerate(orders)},
        "t3": "/s/out",
    }
    assert {node.metrics.mismatches for node in result.nodes} == {0}
    assert all("relative distance" in node.match_reason and node.confidence > 0.9 for node in result.nodes)


def test_one_of_two_near_tensors_is_refused_unless_noise_is_smaller_than_their_difference():
    near = X + 0.01 * RNG.normal(size=X.shape)
    ref = bare({"one": X, "two": near, "third": RNG.normal(size=X.shape)})
    found = pairs_of(ref, bare({"a": X + 1e-5 * RNG.normal(size=X.shape)}))
    assert (found["a"].reference, found["a"].confidence > 0.9) == ("one", True)
    lost = align(ref, bare({"a": (X + near) / 2, "b": ref.load("third")})).lost
    reasons = {entry.tensor: entry.reason for entry in lost}
    assert re.match(r"its values fit several tensors about equally: ('one', 'two'|'two', 'one')", reasons["a"])


def test_a_lost_tensor_is_said_with_its_nearest_and_how_near_that_is():
    ref = bare({"one": X, "two": RNG.normal(size=(7, 9))})
    lost = {entry.tensor: entry for entry in align(ref, bare({"a": X, "b": RNG.normal(size=(9, 7))})).lost}
    assert (lost["b"].nearest, lost["two"].nearest) == ("two", "b")
    assert lost["b"].distance > 1
    assert f"closest by values: 'two', relative distance {lost['b'].distance:.2g}" in lost["b"].full_reason


def test_copies_are_one_candidate_and_are_named():
    ref = bare({"one": X, "again": X.reshape(4, 64), "other": RNG.normal(size=X.shape)})
    found = pairs_of(ref, bare({"a": X, "b": ref.load("other")}))
    assert found["a"].reference == "one"
    assert found["a"].reason.endswith("copies: 'again'")


def test_what_values_leave_open_the_order_along_the_graph_decides():
    """A bias that is far smaller than the error: a sum is made of the product on both sides."""
    noise = [0.3 * RNG.normal(size=X.shape) for _ in range(2)]
    nodes = [
        Node(name="p", op="Mystery", inputs=("x",), outputs=("product",)),
        Node(name="s", op="Puzzle", inputs=("product",), outputs=("sum",)),
    ]
    made = RNG.normal(size=X.shape)
    values = {"x": X, "product": made, "sum": made + 1e-4 * RNG.normal(size=X.shape)}
    graph = Graph(nodes, tensors=[TensorInfo(name="x", role=Role.INPUT)], inputs=("x",), outputs=("sum",))
    ref = MemoryRecording.single(graph, {name: array.astype(np.float32) for name, array in values.items()})
    found = pairs_of(ref, bare({"x": X, "a": made + noise[0], "b": values["sum"] + noise[1]}))
    assert {name: pair.reference for name, pair in found.items()} == {"x": "x", "a": "product", "b": "sum"}
    assert found["a"].confidence < 0.5
    assert "by graph order" in found["a"].reason


def test_inputs_of_one_shape_are_told_apart_by_what_they_were_fed_with():
    one, other = RNG.normal(size=(2, 3, 5)).astype(np.float32)

    def run(first, second):
        nodes = [Node(name="add", op="Sub", inputs=(first, second), outputs=("y",))]
        roles = [TensorInfo(name=name, role=Role.INPUT) for name in (first, second)]
        graph = Graph(nodes, tensors=roles, inputs=sorted((first, second)), outputs=("y",), opset={"": 18})
        return MemoryRecording.single(graph, {first: one, second: other, "y": one - other})

    found = pairs_of(run("a", "b"), run("z", "c"))
    assert {name: pair.reference for name, pair in found.items()} == {"z": "a", "c": "b", "y": "y"}
