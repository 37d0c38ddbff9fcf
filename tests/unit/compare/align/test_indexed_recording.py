"""Classes of tensors that hold the same numbers, held against their definition, tensor by tensor."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

import qdebug
from qdebug.compare.align import layouts
from qdebug.compare.align.align import align
from qdebug.compare.align.context import Context
from qdebug.compare.align.expand import has_unknown_inputs
from qdebug.compare.align.indexed_recording import IndexedRecording, tensor_order
from qdebug.compare.align.pairs import Match, Pair
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo

OPS = ("Conv", "Relu", "Add", "Identity", "QuantizeLinear", "DequantizeLinear", "Shape", "Constant", "Cast", "Concat")


@st.composite
def graphs(draw, ops=OPS):
    """Draw a graph whose nodes read inputs, constants and what nodes before them make, or leave an input out."""
    names = ["x", "y", "w", "c"]
    nodes = []
    for at in range(draw(st.integers(0, 8))):
        op = draw(st.sampled_from(ops))
        read = [draw(st.sampled_from(["", *names])) for _ in range(draw(st.integers(0, 3)))]
        made = [f"t{at}_{slot}" if draw(st.integers(0, 4)) else "" for slot in range(draw(st.integers(1, 2)))]
        attrs = {"perm": draw(st.permutations(range(3)).map(tuple))} if op == "Transpose" else {}
        nodes.append(Node(name=f"n{at}", op=op, inputs=tuple(read), outputs=tuple(made), attrs=attrs))
        names += [name for name in made if name]
    kinds = [draw(st.sampled_from(["float32", "float16", "int8", None])) for _ in names]
    roles = {"w": Role.CONSTANT, "c": Role.CONSTANT, "x": Role.INPUT, "y": Role.INPUT}
    infos = [
        TensorInfo(name=name, dtype=kind, role=roles.get(name, Role.ACTIVATION))
        for name, kind in zip(names, kinds, strict=True)
    ]
    return Graph(nodes, tensors=infos, inputs=["x", "y"], outputs=names[-1:])


def free_of_input(graph, tensor):
    """Tell by recursion whether a tensor depends on constants alone."""
    node = graph.producer(tensor)
    if node is None:
        return graph.is_constant(tensor)
    read = [name for name in node.inputs if name]
    return all(free_of_input(graph, name) for name in read) and (bool(read) or node.op == "Constant")


def of_shapes(graph, tensor):
    """Tell by recursion whether a tensor depends on shapes, and on constants at most besides."""
    node = graph.producer(tensor)
    if node is None or free_of_input(graph, tensor):
        return False
    read = [name for name in node.inputs if name]
    counted = [of_shapes(graph, name) for name in read]
    allowed = all(shape or free_of_input(graph, name) for shape, name in zip(counted, read, strict=True))
    return node.op == "Shape" or (any(counted) and allowed)


def first_form(classes, tensor):
    """Follow a tensor back through the nodes that hand values on."""
    node = classes.graph.producer(tensor)
    source = None if node is None or node.outputs[0] != tensor else classes.passed_on_input(node)
    return tensor if not source else first_form(classes, source)


@drawn(200)
@given(graphs())
def test_every_tensor_is_in_the_class_that_its_definition_says(graph):
    classes = IndexedRecording.of(MemoryRecording.single(graph, {}))
    order = list(graph.tensors)
    for tensor in order:
        assert classes.folds(tensor) == free_of_input(graph, tensor)
        assert classes.depends_on_shapes(tensor) == of_shapes(graph, tensor)
        root = first_form(classes, tensor)
        assert classes.root(tensor) == root
        assert classes.members(tensor) == tuple(name for name in order if first_form(classes, name) == root)
    for node in graph.nodes:
        free = tuple(name for name in node.inputs if name and not free_of_input(graph, name))
        assert classes.data_inputs(node) == (tuple(name for name in free if not of_shapes(graph, name)) or free)


@drawn(100)
@given(graphs())
def test_tensors_share_a_number_if_the_same_is_computed_of_the_same(graph):
    classes = IndexedRecording.of(MemoryRecording.single(graph, {}))

    def computation(form):
        tensor = classes.root(form)
        node = graph.producer(tensor)
        if node is None:
            return tensor
        read = node.name if has_unknown_inputs(node) else tuple(name and computation(name) for name in node.inputs)
        return (node.op, node.outputs.index(tensor), read)

    by_number, by_work = {}, {}
    for tensor in graph.tensors:
        by_number.setdefault(classes.number(tensor), []).append(tensor)
        by_work.setdefault(computation(tensor), []).append(tensor)
    told_apart = {node.attrs.get("perm") for node in graph.nodes}
    assert len(told_apart) <= 1
    assert sorted(by_number.values()) == sorted(by_work.values())


@pytest.mark.parametrize("op", ["Mul", "Multiply", "aten.mul.Tensor"])
def test_a_constant_that_is_neutral_hands_the_other_input_on(op):
    graph = Graph(
        [Node(name="n", op=op, inputs=("one", "x"), outputs=("y",))],
        tensors=[TensorInfo(name="one", role=Role.CONSTANT)],
        inputs=["x"],
    )
    recording = MemoryRecording.single(graph, {"one": np.ones(3, np.float32), "x": np.ones(3, np.float32)})
    assert IndexedRecording.of(recording).members("x") == ("x", "y")
    other = MemoryRecording.single(graph, {"one": np.full(3, 2, np.float32), "x": np.ones(3, np.float32)})
    assert IndexedRecording.of(other).members("x") == ("x",)


@pytest.mark.parametrize(("value", "members"), [(1, ("x", "y")), (2, ("x",))])
def test_a_neutral_constant_stays_one_when_it_is_given_the_extents_of_data(value, members):
    """What normalizes groups gives its scale as many dimensions as the data has, which are asked for at run time."""
    nodes = [
        Node(name="s", op="ShapeOf", inputs=("x",), outputs=("extents",)),
        Node(name="r", op="Reshape", inputs=("one", "extents"), outputs=("more",)),
        Node(name="n", op="Multiply", inputs=("x", "more"), outputs=("y",)),
    ]
    graph = Graph(nodes, tensors=[TensorInfo(name="one", role=Role.CONSTANT)], inputs=["x"])
    recording = MemoryRecording.single(graph, {"one": np.full(3, value, np.float32), "x": np.ones((3, 1), np.float32)})
    assert IndexedRecording.of(recording).members("x") == members


def test_a_neutral_constant_with_an_activation_hands_nothing_on():
    attrs = {"fused_activation_function": "RELU"}
    graph = Graph(
        [Node(name="n", op="MUL", inputs=("x", "one"), outputs=("y",), attrs=attrs)],
        tensors=[TensorInfo(name="one", role=Role.CONSTANT)],
        inputs=["x"],
    )
    recording = MemoryRecording.single(graph, {"one": np.ones(3, np.float32), "x": np.ones(3, np.float32)})
    assert IndexedRecording.of(recording).members("x") == ("x",)


@drawn(150)
@given(graphs((*OPS, "Reshape", "Squeeze", "MatMul")), graphs((*OPS, "Reshape", "Squeeze", "MatMul")))
def test_where_nothing_turns_the_search_for_turned_tensors_can_be_left_out(first, second):
    ref, be = (IndexedRecording.of(MemoryRecording.single(graph, {})) for graph in (first, second))
    partners = {name: name for name in tensor_order(second) if name in first.tensors}
    quick = layouts._layouts(partners, ref, be, other_layouts={})
    always, layouts._may_permute = layouts._may_permute, lambda _: True
    try:
        assert layouts._layouts(partners, ref, be, other_layouts={}) == quick == {}
    finally:
        layouts._may_permute = always


def test_one_turn_on_either_side_is_searched_for():
    plain = Graph([Node(name="n", op="Relu", inputs=("x",), outputs=("y",))], inputs=["x"])
    turned = Graph(
        [
            Node(name="t", op="Transpose", inputs=("x",), outputs=("u",), attrs={"perm": (0, 2, 1)}),
            Node(name="n", op="Relu", inputs=("u",), outputs=("y",)),
        ],
        inputs=["x"],
    )
    ref, be = (IndexedRecording.of(MemoryRecording.single(graph, {})) for graph in (plain, turned))
    context = Context(ref=ref, be=be)
    for name, other in (("x", "x"), ("u", "x"), ("y", "y")):
        context.add(Pair(backend=name, reference=other, match=Match.EXACT, reason=""))
    for pair in layouts.add_layouts_of_graphs(context):
        context.add(pair)
    assert context.pair_map["u"].backend_view.transpose == (0, 2, 1)
    assert context.pair_map["x"].backend_view is None


def test_constants_are_told_apart_by_their_hashes_as_by_their_values(tmp_path):
    values = {
        "a": np.float32([1, 2]),
        "b": np.float32([1, 2]),
        "c": np.float32([[1, 2]]),
        "d": np.float32([1, -2]),
        "e": np.float32([1, 2]).view(np.int32),
        "large": np.zeros(40, np.float32),
        "large2": np.zeros(40, np.float32),
        "undeclared": np.zeros(40, np.float32),
    }
    nodes = [Node(name=f"add {name}", op="Add", inputs=("x", name), outputs=(f"x+{name}",)) for name in values]
    infos = [
        TensorInfo(name=name, role=Role.CONSTANT, shape=None if name == "undeclared" else array.shape)
        for name, array in values.items()
    ]
    graph = Graph(nodes, tensors=infos, inputs=["x"])
    with qdebug.Recorder(tmp_path / "run.h5", backend="test", graph=graph) as recorder:
        recorder.put("x", np.ones(2, np.float32))
        for name, array in values.items():
            recorder.constant(name, array)

    def alike(recording):
        classes = IndexedRecording.of(recording)
        return [
            (one, other)
            for one in graph.tensors
            for other in graph.tensors
            if classes.hold_same_numbers([one], [other])
        ]

    held = MemoryRecording.single(graph, {"x": np.ones(2, np.float32), **values})
    assert alike(qdebug.open_recording(tmp_path / "run.h5")) == alike(held)
    assert ("x+a", "x+b") in alike(held)
    assert ("x+a", "x+c") not in alike(held)


def test_a_graph_whose_nodes_do_one_thing_each_is_not_classified_twice():
    plain = Graph([Node(name="n", op="Conv", inputs=("x",), outputs=("y",))], inputs=["x"])
    run = IndexedRecording.of(MemoryRecording.single(plain, {}))
    assert run.expanded() is run
    fused = Graph([replace(plain.nodes[0], attrs={"activation": "Relu"})], inputs=["x"])
    run = IndexedRecording.of(MemoryRecording.single(fused, {}))
    assert [node.op for node in run.expanded().graph.nodes] == ["Conv", "Relu"]
    assert run.graph is fused


def test_a_chain_is_aligned_in_time_that_grows_with_its_length(monkeypatch):
    def calls(length):
        nodes = [
            Node(name=f"n{at}", op="Identity", inputs=(f"t{at}",), outputs=(f"t{at + 1}",)) for at in range(length)
        ]
        graph = Graph(nodes, inputs=("t0",), outputs=(f"t{length}",))
        run = MemoryRecording.single(graph, {f"t{at}": np.ones(2, np.float32) for at in range(length + 1)})
        counted = Counter()

        def passed_on_input(self, node, plain=IndexedRecording.passed_on_input):
            counted["calls"] += 1
            return plain(self, node)

        with monkeypatch.context() as patch:
            patch.setattr(IndexedRecording, "passed_on_input", passed_on_input)
            align(run, run)
        return counted["calls"]

    assert calls(800) < 3 * calls(400)
