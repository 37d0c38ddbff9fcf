"""Which of several reference nodes a backend node answers to: attributes, weights, places and names, in this order."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.compare.align.context import Context, make_pair
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Match
from qdebug.compare.align.structure import (
    _choose_candidate,
    _find_after_unit_dimensions,
    _find_better_rival,
    _has_word,
    _keep_longest_name_match,
    _keep_nearest_weight,
    _keep_same_attributes,
    _keep_same_indices,
    _names_of,
    _reference_source,
    find_by_weights,
    pair_only_input,
)
from qdebug.compare.align.weights import weight_distance
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.model.thresholds.alignment import WEIGHT_IDENTIFIES_NODE_MIN_ELEMENTS, WEIGHT_MAX_REL_DISTANCE

RNG = np.random.default_rng(4)


def node(op, inputs, output, name=None, **attrs):
    return Node(name=name or f"n_{output}", op=op, inputs=tuple(inputs.split()), outputs=(output,), attrs=attrs)


def run_of(nodes, values=None, *, inputs=("x",)):
    """Index a run of some nodes; tensors whose names begin with k are constants."""
    names = dict.fromkeys([*inputs, *(name for each in nodes for name in (*each.inputs, *each.outputs) if name)])
    infos = [TensorInfo(name=name, role=Role.CONSTANT if name[0] == "k" else Role.ACTIVATION) for name in names]
    graph = Graph(nodes, tensors=infos, inputs=inputs, outputs=nodes[-1].outputs if nodes else (), opset={"": 17})
    return IndexedRecording.of(MemoryRecording.single(graph, values or {}))


def context_of(theirs, ours, *, ref=None, be=None, inputs=(("x",), ("x",))):
    return Context(ref=run_of(theirs, ref, inputs=inputs[0]), be=run_of(ours, be, inputs=inputs[1]))


@pytest.mark.parametrize(
    ("name", "part", "holds"),
    [
        ("Conv.5", "Conv.5", True),
        ("Conv.54", "Conv.5", False),
        ("aConv.5", "Conv.5", False),
        ("fused/Conv.5/quant", "Conv.5", True),
        ("Conv.54_Conv.5", "Conv.5", True),  # the second time
        ("Conv.5Conv.5", "Conv.5", False),
        ("xx", "x", False),
        ("x_x", "x", True),
        ("conv", "", False),
        ("", "conv", False),
        ("_conv", "conv", True),
        ("conv_", "conv", True),
        ("1conv", "conv", False),
    ],
)
def test_a_name_is_part_of_another_if_no_letter_or_digit_stands_beside_it(name, part, holds):
    assert _has_word(name, part) == holds


@pytest.mark.parametrize(
    ("ours", "agreeing"),
    [
        ({"strides": (2, 2)}, ["b", "c"]),
        ({"strides": (1, 1)}, ["a", "c"]),
        ({}, ["a", "b", "c"]),
        ({"alpha": 3}, ["a", "b", "c"]),  # says nothing of shapes
        ({"strides": (1, 1), "axis": 1}, ["a"]),
    ],
)
def test_attributes_that_both_have_agree(ours, agreeing):
    theirs = [
        node("Conv", "x k", "a", strides=(1, 1), alpha=1),
        node("Conv", "x k", "b", strides=(2, 2), alpha=2),
        node("Conv", "x k", "c", axis=0),
    ]
    context = context_of(theirs, [])
    found = _keep_same_attributes(context, node("Conv", "x k", "y", **ours), theirs)
    assert [each.outputs[0] for each in found] == agreeing


WEIGHT = RNG.normal(size=(4, 4, 3, 3))
OTHER = RNG.normal(size=(4, 4, 3, 3))
OTHER -= WEIGHT * np.sum(OTHER * WEIGHT) / np.sum(WEIGHT * WEIGHT)
OTHER *= np.linalg.norm(WEIGHT) / np.linalg.norm(OTHER)


@pytest.mark.parametrize(
    ("theirs", "nearest"),
    [
        ({"k0": WEIGHT, "k1": OTHER}, ["a0"]),
        ({"k0": WEIGHT * 1.1, "k1": WEIGHT * 1.3}, ["a0"]),  # more than twice as far
        ({"k0": WEIGHT * 1.1, "k1": WEIGHT * 1.2}, []),
        ({"k0": WEIGHT, "k1": WEIGHT}, []),
        ({"k0": OTHER, "k1": OTHER * 3}, []),  # none is near
        ({"k0": WEIGHT / 0.51, "k1": OTHER * 9}, ["a0"]),  # half of it is missing at most
        ({"k0": WEIGHT / 0.49, "k1": OTHER * 9}, []),
        ({"k0": WEIGHT[:2], "k1": WEIGHT}, ["a1"]),
        ({"k1": WEIGHT}, ["a1"]),
        ({}, []),
    ],
)
def test_the_nearest_weight_is_near_and_plainly_nearer_than_the_next(theirs, nearest):
    nodes = [node("Conv", "x k0", "a0"), node("Conv", "x k1", "a1")]
    ours = node("Conv", "x k0", "y")
    context = context_of(nodes, [ours], ref=theirs, be={"k0": WEIGHT})
    assert [each.outputs[0] for each in _keep_nearest_weight(context, ours, nodes)] == nearest


def test_places_that_are_picked_are_the_same_where_both_are_known():
    nodes = [node("Gather", "x k0", "a0"), node("Gather", "x k1", "a1"), node("Gather", "x k2", "a2")]
    ours = node("Gather", "x k0", "y")
    theirs = {"k0": np.array([1, 2]), "k1": np.array([3, 4])}
    context = context_of(nodes, [ours], ref=theirs, be={"k0": np.array([3, 4])})
    assert [each.outputs[0] for each in _keep_same_indices(context, ours, nodes)] == ["a1", "a2"]
    silent = context_of(nodes, [ours], ref=theirs)
    assert [each.outputs[0] for each in _keep_same_indices(silent, ours, nodes)] == ["a2"]
    assert _keep_same_indices(context, node("Relu", "x", "y"), nodes) == []
    for more, agreeing in ((0, ["a2"]), (1, ["a0", "a2"])):  # larger ones are not read
        held = np.arange(WEIGHT_IDENTIFIES_NODE_MIN_ELEMENTS + more)
        many = context_of(nodes, [ours], ref={"k0": held + 1, "k1": held[:1]}, be={"k0": held[:-1]})
        assert [each.outputs[0] for each in _keep_same_indices(many, ours, nodes)] == agreeing


def nearest_by_definition(context, ours, candidates):
    """Measure all weights whole, and keep the one that is near and less than half as far as others."""
    distances = [(weight_distance(context.ref, each, context.be, ours), each.name) for each in candidates]
    ranked = sorted(entry for entry in distances if entry[0] is not None and np.isfinite(entry[0]))
    if not ranked or ranked[0][0] > WEIGHT_MAX_REL_DISTANCE:
        return []
    if len(ranked) > 1 and ranked[1][0] <= 2 * ranked[0][0]:
        return []
    return [ranked[0][1]]


def near_weights_case(rng, op):
    """Return candidates' weights, and a backend's made of one of them: noisy, turned, padded or not finite."""
    shape = (6, 5, 3, 4) if op == "Conv" else (24, 15)
    held = [rng.normal(size=shape) * rng.choice([0.5, 1, 1, 4]) for _ in range(6)]
    first = rng.integers(6)
    held[rng.integers(6)] = held[first] + rng.choice([0, 0, 0.01, 0.5]) * rng.normal(size=shape)
    held[rng.integers(6)][0, 0] = rng.choice([0, 0, 0, np.nan, np.inf])
    held[rng.integers(6)] *= rng.choice([0, 1])
    held[rng.integers(6)] = rng.normal(size=shape[::-1])
    weight = held[first] + rng.choice([0, 0, 1e-9, 0.01, 0.2, 0.5, 2]) * rng.normal(size=held[first].shape)
    if op == "Conv":
        weight = weight.transpose([(0, 1, 2, 3), (0, 2, 3, 1), (2, 3, 1, 0), (3, 2, 1, 0)][rng.integers(4)])
        if rng.random() < 0.3:
            weight = np.pad(weight, [(0, 2), (0, 3), (0, 0), (0, 0)])
    elif rng.random() < 0.5:
        weight = weight.T
    return held, weight


@pytest.mark.parametrize("op", ["Conv", "MatMul", "Add"])
def test_sketches_of_weights_lead_to_the_decisions_that_whole_weights_lead_to(op):
    rng, chosen = np.random.default_rng(8), 0
    for _ in range(200):
        with np.errstate(all="ignore"):
            held, weight = near_weights_case(rng, op)
        theirs = [node(op, f"x k{at}", f"a{at}") for at in range(len(held))]
        ours = node(op, "x k0", "y")
        ref = {f"k{at}": values for at, values in enumerate(held)}
        context = context_of(theirs, [ours], ref=ref, be={"k0": weight})
        with np.errstate(all="ignore"):
            wanted = nearest_by_definition(context, ours, theirs)
            assert [each.name for each in _keep_nearest_weight(context, ours, theirs)] == wanted
        chosen += len(wanted)
    assert 30 < chosen < 170


class CountedRecording(MemoryRecording):
    """Counts how many constants were read."""

    loaded = 0

    def load(self, tensor, sample=0, step=0):
        self.loaded += tensor.startswith("k")
        return super().load(tensor, sample, step)


def test_each_weight_is_read_a_few_times_however_many_candidates_there_are():
    count = 40
    held = {f"k{at}": RNG.normal(size=(8, 8)) for at in range(count)}
    runs = []
    for prefix in "ab":
        nodes = [node("MatMul", f"{prefix}{at} k{at}", f"{prefix}_y{at}") for at in range(count)]
        plain = run_of(nodes, held)
        recording = CountedRecording.single(plain.recording.graph, held)
        runs.append((IndexedRecording.of(recording), nodes, recording))
        recording.loaded = 0
    context = Context(ref=runs[0][0], be=runs[1][0])
    for at, each in enumerate(runs[1][1]):
        assert find_by_weights(context, each, f"b_y{at}").reference == f"a_y{at}"
    assert max(recording.loaded for _, _, recording in runs) <= 4 * count


def test_a_name_is_made_of_the_longest_of_a_candidates_names():
    theirs = [
        node("Conv", "x k", "c1", name="conv"),
        node("Conv", "x k", "c2", name="conv_1"),
        node("Relu", "c2", "r2"),
        node("Add", "r2 k", "s2"),
    ]
    ours = [node("Conv", "x k", "y", name="fused/conv_1"), node("Conv", "x k", "q_r2"), node("Conv", "x k", "s2_q")]
    context = context_of(theirs, ours)
    for each, expected in zip(ours, ("c2", "c2", None), strict=True):
        found = _keep_longest_name_match(context, each, theirs[:2])
        assert [other.outputs[0] for other in found] == ([] if expected is None else [expected])
    assert list(_names_of(context.ref, ours[0], theirs[1])) == ["conv_1", "c2", "r2"]  # up to an activation
    scaled = run_of([node("Conv", "x k", "a"), node("Mul", "a k", "b"), node("Add", "b k", "c"), node("Exp", "c", "d")])
    assert list(_names_of(scaled, ours[0], scaled.graph.nodes[0])) == ["n_a", "a", "b", "c"]
    read_twice = run_of([node("Conv", "x k", "a"), node("Mul", "a k", "b"), node("Exp", "a", "d")])
    assert list(_names_of(read_twice, ours[0], read_twice.graph.nodes[0])) == ["n_a", "a"]


def test_the_first_difference_that_is_plain_chooses():
    nodes = [node("Conv", "x k0", "a0", strides=(1, 1)), node("Conv", "x k1", "a1", strides=(2, 2))]
    plain = node("Conv", "x k0", "y")
    strided = node("Conv", "x k0", "y", strides=(2, 2))
    context = context_of(nodes, [plain], ref={"k0": WEIGHT, "k1": OTHER}, be={"k0": WEIGHT})
    assert _choose_candidate(context, strided, nodes).outputs == ("a1",)  # attributes go before weights
    assert _choose_candidate(context, plain, nodes).outputs == ("a0",)
    assert _choose_candidate(context, plain, nodes[:1]).outputs == ("a0",)
    assert _choose_candidate(context, plain, []) is None
    bare = context_of(nodes, [plain])
    assert _choose_candidate(bare, plain, nodes) is None
    assert _choose_candidate(bare, node("Conv", "x k0", "q_a1"), nodes).outputs == ("a1",)


@pytest.mark.parametrize(
    ("size", "known"), [(WEIGHT_IDENTIFIES_NODE_MIN_ELEMENTS - 1, False), (WEIGHT_IDENTIFIES_NODE_MIN_ELEMENTS, True)]
)
def test_a_weight_tells_its_node_if_it_is_large_enough_and_nobody_has_that_yet(size, known):
    weight, other = RNG.normal(size=size), RNG.normal(size=size) * 20
    theirs = [node("Gemm", "x k0", "a0"), node("Gemm", "x k1", "a1"), node("Add", "x k0", "a2")]
    ours = node("Gemm", "x k0", "y")
    context = context_of(theirs, [ours], ref={"k0": other, "k1": weight}, be={"k0": weight})
    pair = find_by_weights(context, ours, "y")
    assert (pair is not None) == known
    if known:
        assert (pair.reference, pair.match) == ("a1", Match.SIGNATURE)
        context.add(make_pair("z", "a1", Match.EXACT, "taken"))
        assert find_by_weights(context, ours, "y") is None


@pytest.mark.parametrize(
    ("theirs", "ours", "pair"),
    [
        ((1, 2, 3, 4), (1, 2, 3, 4), "the only unpaired input of each run, with equal shape and dtype"),
        ((1, 2, 3, 4), (1, 3, 4, 2), "the only unpaired input of each run, with the same dimensions in another order"),
        ((1, 2, 3), (1, 3, 2), "the only unpaired input of each run, with the same dimensions in another order"),
        ((2, 3), (3, 2), None),
        ((1, 2, 3, 4), (2, 1, 3, 4), None),  # the batch comes first
        ((1, 2, 3, 4), (1, 2, 3, 5), None),
    ],
)
def test_the_one_input_of_either_side_is_paired_by_its_extents(theirs, ours, pair):
    facts = {"ref": {"x": np.ones(theirs)}, "be": {"image": np.ones(ours)}, "inputs": (("x",), ("image",))}
    context = context_of([node("Relu", "x", "y")], [node("Relu", "image", "y")], **facts)
    assert [each.reason for each in pair_only_input(context)] == ([] if pair is None else [pair])


def test_two_inputs_without_partner_are_not_guessed():
    for inputs in ((("x", "z"), ("image",)), (("x",), ("image", "z"))):
        values = [{name: np.ones((1, 2, 3)) for name in names} for names in inputs]
        context = context_of([], [], ref=values[0], be=values[1], inputs=inputs)
        assert list(pair_only_input(context)) == []
        side = inputs.index(max(inputs, key=len))
        context.add(make_pair("z" if side else "q", "q" if side else "z", Match.EXACT, "known"))
        assert len(list(pair_only_input(context))) == 1


def test_dimensions_of_one_element_that_a_backend_takes_away_do_not_hide_what_a_tensor_stands_for():
    ours = [node("Relu", "x", "a"), node("Squeeze", "a", "b"), node("Reshape", "b k", "c"), node("Exp", "c", "y")]
    shapes = {"a": (1, 4, 1, 3), "b": (4, 3), "c": (4, 3, 1)}
    held = {name: np.ones(shape) for name, shape in shapes.items()}
    context = context_of([node("Relu", "x", "r")], ours, be=held)
    assert _reference_source(context, "c") is None
    context.add(make_pair("a", "r", Match.EXACT, "same"))
    assert [_reference_source(context, name) for name in "abc"] == ["r", "r", "r"]
    assert _reference_source(context, "y") is None
    other = context_of([node("Relu", "x", "r")], ours, be=held | {"c": np.ones((3, 4))})
    other.add(make_pair("a", "r", Match.EXACT, "same"))
    assert _reference_source(other, "c") is None
    unknown = context_of([node("Relu", "x", "r")], ours, be={"a": held["a"]})
    unknown.add(make_pair("a", "r", Match.EXACT, "same"))
    assert _reference_source(unknown, "b") is None


def test_a_node_of_the_right_extents_beside_one_of_others_is_the_better_one():
    ours = [node("Conv", "x k0", "a"), node("Conv", "x k1", "b")]
    theirs = [node("Conv", "x k0", "r")]
    for wanted, rival in (((1, 4), None), ((1, 8), "b"), ((1, 9), None)):
        held = {"a": np.ones((1, 4)), "b": np.ones((1, 8))}
        context = context_of(theirs, ours, ref={"r": np.ones(wanted)}, be=held)
        found = _find_better_rival(context, ours[0], 0, theirs[0])
        assert (None if found is None else found.outputs[0]) == rival
    for missing in ("a", "b"):
        held = {name: np.ones((1, 4 if name == "a" else 8)) for name in "ab" if name != missing}
        context = context_of(theirs, ours, ref={"r": np.ones((1, 8))}, be=held)
        assert _find_better_rival(context, ours[0], 0, theirs[0]) is None


@pytest.mark.parametrize(
    ("extents", "found"), [((1, 4, 1, 3), True), ((4, 3, 1), True), ((3, 4), False), ((12,), False)]
)
def test_a_node_is_found_behind_dimensions_of_one_element_and_no_others(extents, found):
    theirs = [node("Reshape", "x k", "a"), node("Exp", "a", "t"), node("Tanh", "t", "y")]
    ours = [node("Exp", "x", "u"), node("Tanh", "u", "y")]
    context = context_of(theirs, ours, ref={"x": np.ones((4, 3)), "a": np.ones(extents)}, be={"x": np.ones((4, 3))})
    context.add(make_pair("x", "x", Match.EXACT, "input"))
    pair = _find_after_unit_dimensions(context, "u", ours[0], "x")
    assert (None if pair is None else pair.reference) == ("t" if found else None)
    context.add(make_pair("z", "a", Match.EXACT, "another's"))
    assert _find_after_unit_dimensions(context, "u", ours[0], "x") is None
    unknown = context_of(theirs, ours, ref={"x": np.ones((4, 3))})
    assert _find_after_unit_dimensions(unknown, "u", ours[0], "x") is None
