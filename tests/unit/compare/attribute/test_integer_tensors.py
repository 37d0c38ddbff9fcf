"""Integers that are no codes, and booleans, are never rounded: a wrong index is wrong, however large the others are."""

from itertools import pairwise

import numpy as np
import pytest

import qdebug
from qdebug.compare.align.pairs import Match, Pair
from qdebug.compare.attribute.integer_tensors import find_tensor_without_scale, holds_whole_numbers, picked_values
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.model.thresholds.attribution import INTEGER_ORIGIN_MAX_TENSORS
from qdebug.replay.registry import run_node
from qdebug.session import DiffSession

RNG = np.random.default_rng(7)
MANY = 4000


def graph_of(nodes, dtypes, *, quants=None, outputs=("y",), opset=18):
    """Make a graph; tensors that no node gives are inputs, those named "c..." constants."""
    made = {name for node in nodes for name in node.outputs}
    read = list(dict.fromkeys(name for node in nodes for name in node.inputs))
    roles = {name: Role.CONSTANT if name.startswith("c") else Role.INPUT for name in read if name not in made}
    roles |= dict.fromkeys(made, Role.ACTIVATION) | dict.fromkeys(outputs, Role.OUTPUT)
    tensors = [
        TensorInfo(name=name, role=role, dtype=dtypes.get(name, "float32"), quant=(quants or {}).get(name))
        for name, role in roles.items()
    ]
    inputs = [name for name, role in roles.items() if role is Role.INPUT]
    return Graph(nodes, tensors=tensors, inputs=inputs, outputs=outputs, opset={"": opset})


def node(op, *inputs, outputs=("y",), domain="", **attrs):
    return Node(name=op.lower(), op=op, inputs=inputs, outputs=outputs, attrs=attrs, domain=domain)


def compared(graph, reference, backend, limits=None):
    """Compare two runs of one graph; give the result of y."""
    runs = (MemoryRecording.single(graph, arrays) for arrays in (reference, backend))
    result = DiffSession(*runs, limits=limits).result()
    return next(entry for entry in result.nodes if entry.tensor == "y")


@pytest.fixture
def indices():
    return RNG.integers(20_000, 30_000, MANY)


def with_one_wrong(array, by=1):
    wrong = array.copy()
    wrong[17] += by
    return wrong


UNKNOWN = graph_of([node("Choose", "x", domain="my")], {"y": "int64"})
X = RNG.normal(size=MANY).astype(np.float32)


def test_one_wrong_index_of_a_node_without_kernel_diverges_where_all_that_it_reads_is_equal(indices):
    entry = compared(UNKNOWN, {"x": X, "y": indices}, {"x": X, "y": with_one_wrong(indices)})
    assert entry.metrics.sqnr_db > 100
    assert entry.status is Status.DIVERGED
    assert entry.samples[0].status is Status.DIVERGED
    assert entry.reason.startswith("1 of 4000 elements differs; booleans and unquantized integers are never rounded")
    assert "no kernel is known for Choose" in entry.reason


def test_what_a_node_without_kernel_makes_of_other_inputs_is_judged_as_any_other_tensor(indices):
    entry = compared(UNKNOWN, {"x": X, "y": indices}, {"x": X * np.float32(1.01), "y": with_one_wrong(indices)})
    assert entry.status is Status.WITHIN
    assert entry.reason == "1 of 4000 elements differs, possibly because of its inputs"


def test_where_the_inputs_were_not_recorded_nothing_is_said_against_a_flip(indices):
    entry = compared(UNKNOWN, {"y": indices}, {"y": with_one_wrong(indices)})
    assert entry.status is Status.WITHIN
    assert entry.reason == "1 of 4000 elements differs, possibly because of its inputs"


def test_of_a_bare_dump_nobody_knows_what_it_was_made_of(indices):
    graph = graph_of([node("Unknown")], {"y": "int64"})
    assert compared(graph, {"y": indices}, {"y": with_one_wrong(indices)}).status is Status.WITHIN


def test_where_what_lies_between_rounds_equal_inputs_do_not_make_a_flip_wrong():
    """A run of which the outputs alone were recorded: the network's input is equal, the scores in between are not."""
    graph = graph_of([node("MatMul", "x", "c", outputs=("s",)), node("ArgMax", "s", axis=1)], {"y": "int64"})
    x, weights = RNG.normal(size=(MANY, 8)).astype(np.float32), RNG.normal(size=(8, 50)).astype(np.float32)
    rounded = np.round(weights * 8) / 8
    runs = [{"x": x, "c": each.astype(np.float32), "y": (x @ each).argmax(1)[:, None]} for each in (weights, rounded)]
    entry = compared(graph, *runs)
    assert entry.metrics.mismatches > 0
    assert "nothing rounds" not in (entry.reason or "")


def test_graphs_are_not_said_to_differ_because_rounded_scores_rank_otherwise():
    """Of both runs the inputs and outputs alone were recorded, and the backend rounds the scores to codes."""
    x, weights = RNG.normal(size=(60, 8)).astype(np.float32), RNG.normal(size=(8, 50)).astype(np.float32)
    scores = (x @ weights).astype(np.float32)
    step = np.float32(0.2)
    held = (np.clip(np.round(scores / step), -128, 127) * step).astype(np.float32)
    graphs = [
        graph_of(
            [node("MatMul", "x", "c", outputs=("s",)), *inside, node("TopK", last, "ck", outputs=("v", "y"))],
            {"y": "int64", "ck": "int64", "q": "int8"},
            quants={"q": QuantParams(dtype="int8", scale=step)},
        )
        for inside, last in (
            ([], "s"),
            (
                [
                    node("QuantizeLinear", "s", "cs", outputs=("q",)),
                    node("DequantizeLinear", "q", "cs", outputs=("d",)),
                ],
                "d",
            ),
        )
    ]
    runs = []
    for graph, ranked in zip(graphs, (scores, held), strict=True):
        best = np.argsort(-ranked, axis=1, kind="stable")[:, :20]
        arrays = {"x": x, "c": weights, "ck": np.int64([20]), "cs": step, "y": best}
        runs.append(MemoryRecording.single(graph, arrays))
    result = DiffSession(*runs).result()
    (entry,) = (one for one in result.nodes if one.tensor == "y")
    assert entry.metrics.mismatches > 100
    assert entry.declared is None
    assert (
        entry.unchecked
        == "the values that it selects from were not compared, and rounding them may change the selection"
    )
    assert "does not compute what" not in result.verdict.sentence


def test_what_arranges_equal_inputs_rounds_nothing(indices):
    nodes = [node("Transpose", "x", outputs=("t",), perm=(0,)), node("Choose", "t", domain="my")]
    graph = graph_of(nodes, {"y": "int64"})
    entry = compared(graph, {"x": X, "y": indices}, {"x": X, "y": with_one_wrong(indices)})
    assert entry.status is Status.DIVERGED


def test_an_input_of_other_token_ids_accuses_nobody():
    ids = RNG.integers(0, 30_000, (1, 128))
    other = ids.copy()
    other[0, 5] += 1
    graph = graph_of([node("Gather", "c", "x", axis=0)], {"x": "int64"})
    table = RNG.normal(size=(30_001, 2)).astype(np.float32)
    runs = [{"x": side, "c": table, "y": table[side]} for side in (ids, other)]
    result = DiffSession(*(MemoryRecording.single(graph, run) for run in runs)).result()
    assert (result.exit_code, result.verdict.first_divergence) == (3, None)
    assert "different inputs ('x' differs in 1 element)" in result.verdict.sentence
    assert result.nodes[1].status is Status.WITHIN


def test_an_image_of_whole_numbers_that_is_another_one_accuses_nobody():
    image = RNG.integers(0, 256, (1, 3, 32, 32)).astype(np.uint8)
    other = image.copy()
    other[0, 0, 0, 0] ^= 1
    graph = graph_of([node("Cast", "x", to=1)], {"x": "uint8"})
    runs = [{"x": side, "y": side.astype(np.float32)} for side in (image, other)]
    result = DiffSession(*(MemoryRecording.single(graph, run) for run in runs)).result()
    assert (result.exit_code, result.verdict.first_divergence) == (3, None)


ARGMAX = graph_of([node("ArgMax", "x", axis=1, keepdims=0)], {"y": "int64"})


def test_an_argmax_that_flips_because_its_input_is_off_introduces_nothing():
    scores = RNG.normal(size=(64, 1000)).astype(np.float32)
    near = scores + RNG.normal(size=scores.shape).astype(np.float32) * np.float32(0.05)
    entry = compared(ARGMAX, {"x": scores, "y": scores.argmax(1)}, {"x": near, "y": near.argmax(1)})
    assert entry.metrics.mismatches > 0
    assert entry.introduced.mismatches == 0
    assert entry.status is Status.WITHIN


def test_one_index_that_its_inputs_do_not_give_diverges_however_large_the_others_are():
    scores = np.zeros((MANY, 300), np.float32)
    scores[np.arange(MANY), 250 + np.arange(MANY) % 50] = 1
    entry = compared(ARGMAX, *({"x": scores, "y": y} for y in (scores.argmax(1), with_one_wrong(scores.argmax(1)))))
    assert entry.status is Status.DIVERGED
    assert entry.reason.startswith("1 of 4000 elements differs from a replay of the node")
    assert "tie" not in entry.reason


def test_another_one_of_equal_scores_is_told_as_a_tie():
    scores = np.zeros((8, 30), np.float32)
    scores[:, [3, 11]] = 1
    last = scores.argmax(1)
    last[2:4] = 11
    entry = compared(ARGMAX, *({"x": scores, "y": y} for y in (scores.argmax(1), last)))
    assert entry.status is Status.DIVERGED
    assert entry.reason.endswith("all of these are ties, that is, the index of an equal value")


def top_of(indices, op, **attrs):
    """Return the three largest of tied scores, recorded with the given indices."""
    scores = np.float32([[1, 4, 4, 2, 4], [3, 3, 0, 5, 3]])
    with qdebug.Recorder(None, backend="b") as rec:
        rec.put("x", scores)
        outputs = {"v": np.take_along_axis(scores, indices, 1), "i": indices}
        rec.constant("k", np.int64([3]))
        inputs = ("x", "k") if op == "TopK" else ("x",)
        rec.put("v", outputs["v"], node="top", op=op, inputs=inputs, attrs=attrs)
        rec.put("i", outputs["i"], node="top", op=op, inputs=inputs, attrs=attrs)
        rec.outputs("v", "i")
    return rec.recording


FIRST, OTHER = np.int64([[1, 2, 4], [3, 0, 1]]), np.int64([[4, 1, 2], [3, 4, 1]])


def test_the_order_of_ties_is_only_judged_where_it_is_defined():
    torch = {"op": "aten.topk.default", "k": 3, "dim": 1, "largest": True, "sorted": True}
    for one, other in ((FIRST, OTHER), (OTHER, FIRST)):
        result = qdebug.diff(top_of(one, **torch), top_of(other, **torch))
        assert result.exit_code == 0
        (found,) = [each for each in result["i"].findings if each.kind == "selection"]
        assert found.sentence.endswith("they select equal values of 'x'")
    assert qdebug.diff(top_of(FIRST, "TopK", axis=1), top_of(OTHER, "TopK", axis=1)).exit_code == 1


@pytest.mark.parametrize("wrong", [[[1, 1, 2], [3, 0, 1]], [[1, 2, 3], [3, 0, 1]]])
def test_an_index_that_is_repeated_or_of_a_smaller_value_is_no_tie(wrong):
    torch = {"op": "aten.topk.default", "k": 3, "dim": 1, "largest": True, "sorted": True}
    result = qdebug.diff(top_of(FIRST, **torch), top_of(np.int64(wrong), **torch))
    assert (result.exit_code, result.verdict.first_divergence) == (1, "top")


def test_indices_kept_in_another_number_of_dimensions_are_no_tie_and_no_crash():
    """A runtime keeps the dimension that its ArgMax drops: equal elements, and one index of an equal value."""
    scores = np.zeros((8, 30), np.float32)
    scores[:, [3, 11]] = 1
    other = scores.argmax(1)
    other[2] = 11
    entry = compared(ARGMAX, {"x": scores, "y": scores.argmax(1)}, {"x": scores, "y": other[:, None]})
    assert entry.status is Status.DIVERGED
    assert entry.reason.startswith("1 of 8 elements differs from a replay of the node")
    assert "tie" not in entry.reason


def test_index_arithmetic_beyond_float32_is_held_to_the_last_digit():
    big = np.arange(MANY, dtype=np.int64) + (1 << 40)
    graph = graph_of([node("Add", "x", "c")], {"x": "int64", "c": "int64", "y": "int64"})
    runs = [{"x": big, "c": np.int64(3), "y": y} for y in (big + 3, with_one_wrong(big + 3))]
    entry = compared(graph, *runs)
    assert entry.status is Status.DIVERGED
    assert entry.introduced.mismatches == 1


def test_a_boolean_that_its_inputs_do_not_give_diverges():
    graph = graph_of([node("Greater", "x", "c")], {"y": "bool"})
    right = X > 0
    wrong = right.copy()
    wrong[5] ^= True
    entry = compared(graph, *({"x": X, "c": np.float32(0), "y": y} for y in (right, wrong)))
    assert entry.status is Status.DIVERGED
    near = X + np.float32(0.01)
    entry = compared(graph, {"x": X, "c": np.float32(0), "y": right}, {"x": near, "c": np.float32(0), "y": near > 0})
    assert (entry.metrics.mismatches > 0, entry.status) == (True, Status.WITHIN)


def test_pixels_that_a_resize_rounds_to_may_be_the_next_ones():
    image = RNG.integers(0, 256, (1, 1, 16, 16)).astype(np.uint8)
    graph = graph_of(
        [node("Resize", "x", "", "c", mode="linear", coordinate_transformation_mode="half_pixel")],
        {"x": "uint8", "y": "uint8"},
    )
    scales = np.array([1, 1, 2, 2], np.float32)
    pixels = run_node(graph.nodes[0], {"x": image, "c": scales}, {"": 18})["y"].astype(np.int64)
    next_ones = pixels.copy()
    next_ones[0, 0, ::3] += np.where(next_ones[0, 0, ::3] < 255, 1, -1)
    far = pixels.copy()
    far[0, 0, 4, 4] += np.where(far[0, 0, 4, 4] < 128, 9, -9)
    runs = [{"x": image, "c": scales, "y": y.astype(np.uint8)} for y in (pixels, next_ones, far)]
    assert compared(graph, runs[0], runs[1]).status is Status.WITHIN
    entry = compared(graph, runs[0], runs[2])
    assert entry.status is Status.DIVERGED
    assert "by up to 9; rounding explains at most 1" in entry.reason


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(max_lsb=5), Status.DIVERGED),  # says nothing of what has no steps
        (Limits(min_sqnr=30), Status.WITHIN),
        (Limits(atol=1), Status.WITHIN),
        (Limits(atol=0), Status.DIVERGED),
    ],
)
def test_limits_of_the_user_judge_the_whole_error_of_integers_too(limits, expected, indices):
    runs = ({"x": X, "y": y} for y in (indices, with_one_wrong(indices)))
    assert compared(UNKNOWN, *runs, limits=limits).status is expected


@pytest.mark.parametrize(
    ("nodes", "dtypes", "expected"),
    [
        ([node("Shape", "x")], {"y": "int64"}, True),
        ([node("Shape", "x")], {"y": "int64", "x": "int8"}, True),
        ([node("Greater", "x", "c")], {"y": "bool"}, True),
        ([node("Cast", "x")], {"y": "uint8"}, True),
        ([node("TopK", "x", "c", outputs=("v", "y"))], {"x": "int8", "v": "int8", "y": "int64"}, True),
        ([node("TopK", "x", "c", outputs=("y", "i"))], {"x": "int8", "y": "int8", "i": "int64"}, True),
        ([node("Add", "x", "c")], {"x": "int64", "c": "int64", "y": "int64"}, True),
        ([node("ArgMax", "x")], {"y": "float32"}, False),
        ([node("Conv", "x", "c")], {"y": "int8"}, False),  # codes whose scale nobody told
        ([node("Conv", "x", "c")], {"y": "int32"}, True),
        ([node("Unknown")], {"y": "int8"}, False),
        ([node("Unknown")], {"y": "int32"}, False),
        ([node("Unknown")], {"y": "int64"}, True),
        ([node("DynamicQuantizeLinear", "x", outputs=("y", "s", "z"))], {"y": "uint8", "z": "uint8"}, False),
        (
            [node("DynamicQuantizeLinear", "x", outputs=("q", "s", "z")), node("Transpose", "q")],
            {"q": "uint8", "z": "uint8", "y": "uint8"},
            False,
        ),
        (
            [node("MatMulInteger", "x", "c", outputs=("m",)), node("Add", "m", "c1")],
            {"x": "uint8", "c": "int8", "m": "int32", "c1": "int32", "y": "int32"},
            False,
        ),
    ],
)
def test_codes_and_their_sums_are_told_from_other_integers(nodes, dtypes, expected):
    graph = graph_of(nodes, dtypes)
    pair = Pair(reference="y", backend="y", match=Match.EXACT, reason="named alike")
    assert holds_whole_numbers(graph, graph, pair) is expected


def test_integers_with_a_scale_are_codes():
    graph = graph_of([node("Add", "x", "c")], {"y": "int32"}, quants={"y": QuantParams(dtype="int32", scale=0.5)})
    pair = Pair(reference="y", backend="y", match=Match.EXACT, reason="named alike")
    assert not holds_whole_numbers(graph, graph, pair)


@pytest.mark.parametrize(
    ("op", "attrs", "one", "other", "expected"),
    [
        ("ArgMax", {"axis": 1}, [[0], [2]], [[1], [0]], ([[1], [6]], [[2], [4]])),
        ("ArgMax", {"axis": 1, "keepdims": 0}, [0, 2], [1, 0], ([[1], [6]], [[2], [4]])),
        ("ArgMax", {"axis": 1}, [[0], [3]], [[1], [0]], None),
        ("ArgMax", {"axis": 1}, [[0], [-1]], [[1], [0]], None),
        ("ArgMax", {"axis": 2}, [[0], [2]], [[1], [0]], None),
        ("ArgMax", {"axis": -3}, [[0], [2]], [[1], [0]], None),
        ("ArgMax", {"axis": "1"}, [[0], [2]], [[1], [0]], None),
        ("Relu", {"axis": 1}, [[0], [2]], [[1], [0]], None),
    ],
)
def test_values_are_picked_along_an_axis_by_indices_inside_it(op, attrs, one, other, expected):
    data = np.array([[1, 2, 3], [4, 5, 6]])
    found = picked_values(node(op, "x", **attrs), data, np.array(one), np.array(other))
    assert found is None if expected is None else [side.tolist() for side in found] == list(expected)


@pytest.mark.parametrize("side", [0, 1])
def test_codes_of_either_side_lack_a_scale_beside_real_numbers(side):
    """The other side is another tensor of another name, whose dtype decides."""
    given = [node("QLinearAdd", "x", outputs=(name,)) for name in ("a", "b")]
    graphs = [
        graph_of([each], {name: "int8" if at == side else "float32"}, outputs=(name,))
        for at, (each, name) in enumerate(zip(given, ("a", "b"), strict=True))
    ]
    pair = Pair(reference="a", backend="b", match=Match.EXACT, reason="")
    assert find_tensor_without_scale(*graphs, pair) == ("a", "b")[side]


@pytest.mark.parametrize(("dtype", "whole"), [("int8", False), ("int32", False), ("int64", True)])
def test_integers_that_nobody_says_the_origin_of_may_be_codes_or_sums_of_codes_if_32_bits_hold_them(dtype, whole):
    graph = graph_of([node("Add", "x", "c")], {"x": dtype, "c": dtype, "y": dtype})
    bare = Graph(graph.nodes, tensors=graph.tensors.values(), inputs=(), outputs=("y",), opset={"": 18})
    pair = Pair(reference="x", backend="x", match=Match.EXACT, reason="")
    assert holds_whole_numbers(bare, bare, pair) == whole
    assert holds_whole_numbers(graph, graph, pair)  # an input of the network is what it is declared to be


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_integers_that_very_many_tensors_lead_to_may_be_codes(more):
    length = int(INTEGER_ORIGIN_MAX_TENSORS) + more
    names = ["x", *(f"h{at}" for at in range(1, length)), "y"]
    nodes = [Node(name=b, op="Identity", inputs=(a,), outputs=(b,)) for a, b in pairwise(names)]
    graph = graph_of(nodes, dict.fromkeys(names, "int64"))
    pair = Pair(reference="y", backend="y", match=Match.EXACT, reason="")
    assert holds_whole_numbers(graph, graph, pair) == (more < 0)
