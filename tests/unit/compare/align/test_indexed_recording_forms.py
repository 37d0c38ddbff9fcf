"""What an index tells of single tensors: the forms that one has, what leaves it as it is, and what nobody reads."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.compare.align.indexed_recording import IndexedRecording, has_same_shape, tensor_order
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo

CODES = QuantParams(dtype="int8", scale=np.float32(0.5), zero_point=2)


def node(op, inputs, outputs, **attrs):
    made = tuple(outputs.split())
    return Node(name=f"n_{made[0]}", op=op, inputs=tuple(inputs.split()), outputs=made, attrs=attrs)


def run_of(nodes, values=None, *, quants=None, dtypes=None, stands_for=None, outputs=None, shapes=None):
    """Index a run of some nodes on x; tensors whose names begin with k are constants."""
    names = dict.fromkeys(["x", *(name for each in nodes for name in (*each.inputs, *each.outputs) if name)])
    infos = [
        TensorInfo(
            name=name,
            role=Role.CONSTANT if name[0] == "k" else Role.ACTIVATION,
            quant=(quants or {}).get(name),
            dtype=(dtypes or {}).get(name),
            shape=(shapes or {}).get(name),
            stands_for=(stands_for or {}).get(name),
        )
        for name in names
    ]
    ends = nodes[-1].outputs if outputs is None else outputs
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=ends, opset={"": 17})
    return IndexedRecording.of(MemoryRecording.single(graph, values or {}))


def test_values_are_those_that_codes_stand_for():
    run = run_of([node("Relu", "x", "y")], {"x": np.int8([[2, 4], [0, 3]])}, quants={"x": CODES})
    assert run.values("x").tolist() == [[0, 1], [-1, 0.5]]
    assert run.values("x").dtype == np.float64
    assert (run.shape("x"), run.size("x"), run.has("x"), run.has("y")) == ((2, 2), 4, True, False)
    plain = run_of([node("Relu", "x", "y")], {"x": np.int8([2, 4])})
    assert plain.values("x").tolist() == [2, 4]


def test_a_run_that_is_read_through_another_has_its_index_and_the_others_values():
    run = run_of([node("Identity", "x", "y")], {"x": np.ones(2)})
    other = MemoryRecording.single(run.graph, {"x": np.full(2, 7.0)})
    through = run.read_through(other)
    assert (through.root("y"), through.values("x").tolist()) == ("x", [7, 7])
    assert run.values("x").tolist() == [1, 1]


@pytest.mark.parametrize(
    ("nodes", "outputs", "unread"),
    [
        ([node("Relu", "x", "a"), node("Exp", "x", "y")], ("y",), {"a"}),
        ([node("Relu", "x", "a"), node("Exp", "a", "b"), node("Exp", "x", "y")], ("y",), {"a", "b"}),
        ([node("Split", "x", "a b"), node("Exp", "a", "y")], ("y",), {"b"}),
        ([node("Relu", "x", "a"), node("Exp", "a", "y")], ("y",), set()),
        ([node("Relu", "x", "a"), node("Exp", "x", "y")], (), set()),  # nobody says what the outputs are
        ([node("Relu", "x", "a"), Node(name="s", op="Conv", outputs=("y",))], ("y",), set()),  # nor what is read
    ],
)
def test_what_no_output_is_made_of_is_known_where_all_is_said(nodes, outputs, unread):
    assert run_of(nodes, outputs=outputs).unused_tensors == unread


def test_a_tensor_has_been_through_codes_once_it_was_made_of_them():
    nodes = [
        node("QuantizeLinear", "x ks kz", "q"),
        node("DequantizeLinear", "q ks kz", "d"),
        node("Identity", "d", "e"),
        node("Relu", "e", "y"),
    ]
    run = run_of(nodes, quants={"q": CODES})
    assert [name for name in "xqdey" if run.is_after_codes(name)] == ["q", "d", "e"]
    assert run.forms_after_codes("x") == run.forms_after_codes("e") == ("q", "d")
    assert run.forms_after_codes("y") == ()
    held = run_of(nodes, {"e": np.ones(2), "x": np.ones(2)}, quants={"q": CODES})
    assert held.forms_after_codes("x") == ("e", "e")  # those that were recorded go first
    both = run_of(nodes, {"e": np.ones(2), "q": np.ones(2, np.int8)}, quants={"q": CODES})
    assert both.forms_after_codes("x") == ("q", "e")


@pytest.mark.parametrize(
    ("perms", "back"),
    [
        (((0, 2, 1), (0, 2, 1)), True),
        (((1, 2, 0), (2, 0, 1)), True),
        (((1, 2, 0), (1, 2, 0)), False),
        (((1, 2, 0), (1, 2, 0), (1, 2, 0)), True),
        (((0, 1, 2),), True),
        (((0, 2, 1), (1, 0)), False),
        ((None, None), False),
    ],
)
def test_turns_that_undo_each_other_hand_on_what_was_turned_first(perms, back):
    nodes = [
        node("Transpose", f"t{at}" if at else "x", f"t{at + 1}", **({} if perm is None else {"perm": perm}))
        for at, perm in enumerate(perms)
    ]
    run = run_of(nodes)
    assert (run.root(f"t{len(perms)}") == "x") == back
    kept = [node("Identity", "t1", "i"), node("Transpose", "i", "z", perm=(0, 2, 1))]
    if perms[0] == (0, 2, 1):
        assert run_of([nodes[0], *kept]).root("z") == "x"


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ("float32", "float16", True),
        ("float32", "float32", True),
        ("int8", "int8", True),
        ("float32", "int8", False),
        ("int8", "float32", False),
        (None, "float32", False),
        ("float32", None, False),
    ],
)
def test_a_cast_between_formats_of_real_numbers_keeps_them(before, after, kept):
    run = run_of([node("Cast", "x", "y", to=1)], dtypes={"x": before, "y": after})
    assert (run.root("y") == "x") == kept


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [("m", "m", True), (None, "x", True), ("y", None, True), ("m", "n", False), (None, None, False)],
)
def test_an_arrangement_of_one_tensor_of_the_model_is_that_tensor(first, second, kept):
    run = run_of([node("Reshape", "x ks", "y")], stands_for={"x": first, "y": second})
    assert run.changes_layout(run.graph.nodes[0]) == kept
    assert (run.root("y") == "x") == kept
    relu = run_of([node("Relu", "x", "y")], stands_for={"x": first, "y": second})
    assert not relu.changes_layout(relu.graph.nodes[0])


ALL = 2**31 - 1


@pytest.mark.parametrize(
    ("starts", "ends", "steps", "whole"),
    [
        ([0], [ALL], [1], True),
        ([0], [2**63 - 1], None, True),
        ([0, 0], [ALL, ALL], [1, 1], True),
        ([1], [ALL], [1], False),
        ([0], [ALL - 1], [1], False),
        ([0], [ALL], [2], False),
        ([0, 1], [ALL, ALL], [1, 1], False),
        ([0, 0], [ALL, 5], [1, 1], False),
        ([], [], None, False),
    ],
)
def test_a_slice_from_0_to_the_end_takes_all(starts, ends, steps, whole):
    read = "x k_starts k_ends k_axes k_steps" if steps is not None else "x k_starts k_ends"
    held = {"k_starts": np.array(starts, np.int64), "k_ends": np.array(ends, np.int64), "k_axes": np.zeros(1, np.int64)}
    held |= {} if steps is None else {"k_steps": np.array(steps, np.int64)}
    assert (run_of([node("Slice", read, "y")], held).root("y") == "x") == whole
    old = node(
        "Slice", "x", "y", starts=tuple(starts), ends=tuple(ends), **({} if steps is None else {"steps": tuple(steps)})
    )
    assert (run_of([old]).root("y") == "x") == whole
    del held["k_ends"]
    assert run_of([node("Slice", read, "y")], held).root("y") == "y"
    moving = node("Slice", "x k_starts e", "y")
    assert run_of([moving], held | {"e": np.array([ALL])}).root("y") == "y"


@pytest.mark.parametrize(
    ("op", "inputs", "value", "neutral"),
    [
        ("Mul", "x k", 1, True),
        ("Mul", "k x", 1, True),
        ("Mul", "x k", 0, False),
        ("Add", "x k", 0, True),
        ("Add", "k x", 0, True),
        ("Add", "x k", 1, False),
        ("Sub", "x k", 0, True),
        ("Sub", "k x", 0, False),
        ("Div", "x k", 1, True),
        ("Div", "k x", 1, False),
        ("Mul", "x k", [1, 1, 1], True),
        ("Mul", "x k", [1, 1, 1.0001], False),
        ("Mul", "k k2", 1, False),
        ("Relu", "x", 1, False),
        ("Mul", "x k", [], False),
    ],
)
def test_a_constant_that_changes_nothing_leaves_the_other_input(op, inputs, value, neutral):
    held = {"k": np.asarray(value, np.float32), "k2": np.asarray(1, np.float32)}
    assert (run_of([node(op, inputs, "y")], held).root("y") == "x") == neutral
    assert run_of([node(op, inputs, "y")]).root("y") == "y"  # one that nobody recorded may be anything


@pytest.mark.parametrize(("scale", "neutral"), [(1 / 127, True), (1.0001 / 127, False)])
def test_a_neutral_constant_of_codes_may_be_off_by_the_rounding_of_its_scale(scale, neutral):
    quant = QuantParams(dtype="int8", scale=np.float32(scale))
    run = run_of([node("Mul", "x k", "y")], {"k": np.int8([127])}, quants={"k": quant})
    assert (run.root("y") == "x") == neutral


def test_tensors_are_in_order_inputs_first_and_without_constants():
    nodes = [node("Conv", "x k", "a b"), node("Add", "a z", "y")]
    assert tensor_order(run_of(nodes).graph) == ("x", "z", "a", "b", "y")


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"values": (2, 3)}, {"values": (2, 3)}, True),
        ({"values": (2, 3)}, {"values": (3, 2)}, False),
        ({"shape": (2, 3), "dtype": "int8"}, {"shape": (2, 3), "dtype": "int8"}, True),
        ({"shape": (2, 3), "dtype": "int8"}, {"shape": (2, 3), "dtype": "uint8"}, False),
        ({"shape": (2, 3), "dtype": "int8"}, {"shape": (2, 4), "dtype": "int8"}, False),
        ({}, {}, False),
        ({"values": (2, 3), "shape": (9,)}, {"shape": (9,)}, True),  # what was recorded of one alone tells nothing
    ],
)
def test_tensors_are_of_one_kind_by_what_was_recorded_or_declared_of_both(first, second, same):
    runs = []
    for facts in (first, second):
        values = {"x": np.zeros(facts["values"])} if "values" in facts else {}
        shapes, dtypes = {"x": facts.get("shape")}, {"x": facts.get("dtype")}
        runs.append(run_of([node("Relu", "x", "y")], values, shapes=shapes, dtypes=dtypes))
    assert has_same_shape(runs[0], "x", runs[1], "x") == same
    assert has_same_shape(runs[1], "x", runs[0], "x") == same


def test_the_same_work_on_the_same_tensors_is_alike_in_any_order():
    nodes = [
        node("Relu", "x", "a"),
        node("Relu", "x", "b"),
        node("Exp", "x", "c"),
        node("Identity", "a", "a2"),
        node("Concat", "a c", "y"),
    ]
    run = run_of(nodes)
    assert run.hold_same_numbers(["a"], ["b"])
    assert run.hold_same_numbers(["a2", "c"], ["b", "c"])
    assert not run.hold_same_numbers(["a", "c"], ["c", "a"])
    assert run.hold_same_numbers(["a", "c"], ["c", "b"], in_order=False)
    assert not run.hold_same_numbers(["a"], ["a", "a"])
    assert not run.hold_same_numbers(["a", "a"], ["a", "c"], in_order=False)
    number = run.number("a")
    run.forget_numbers()
    assert run.number("b") == number
    run.forget_numbers()
    run.forget_numbers()
    assert run.number("nowhere") == -1


@pytest.mark.parametrize(
    "turn",
    [
        Node(name="t", op="Transpose", inputs=("",), outputs=("y",), attrs={"perm": (1, 0)}),
        Node(name="t", op="Transpose", outputs=("y",), attrs={"perm": (1, 0)}),
        Node(name="t", op="Transpose", inputs=("x",), outputs=("", "y"), attrs={"perm": (1, 0)}),
    ],
)
def test_a_turn_of_nothing_or_of_which_nothing_is_kept_is_no_form(turn):
    run = run_of([turn, node("Transpose", "y", "z", perm=(1, 0))])
    assert (run.root("y"), run.root("z")) == ("y", "z")
    assert run.members("x") == ("x",)
