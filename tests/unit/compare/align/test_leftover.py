"""What is said of a tensor without partner, and whether anything is lost by it."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.compare.align.align import align
from qdebug.compare.align.leftover import as_unchecked
from qdebug.compare.align.pairs import Side, Unmatched, UnmatchedKind
from qdebug.model import Graph, MemoryRecording, Node, Role, RunInfo, TensorInfo
from qdebug.model.recording import SkipCause

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def node(op, inputs, outputs, **attrs):
    made = tuple(outputs.split())
    return Node(name=f"n_{made[0]}", op=op, inputs=tuple(inputs.split()), outputs=made, attrs=attrs)


def run_of(*nodes, outputs=("y",), skip=(), skipped=None, causes=None, values=None):
    """Record values of all tensors but some; tensors whose names begin with k are constants."""
    names = dict.fromkeys(["x", *(name for each in nodes for name in (*each.inputs, *each.outputs) if name)])
    infos = [
        TensorInfo(name=name, role=Role.CONSTANT if name[0] == "k" else Role.INPUT if name == "x" else Role.ACTIVATION)
        for name in names
    ]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=outputs, opset={"": 17})
    held = {name: (values or {}).get(name, X + at) for at, name in enumerate(names) if name not in skip}
    held |= {name: np.float32([2, 3, 4, 5]) for name in held if name[0] == "k" and name not in (values or {})}
    return MemoryRecording.single(graph, held, RunInfo(backend="test", skipped=skipped or {}, skip_causes=causes or {}))


def said(theirs, ours, tensor, side=Side.REFERENCE):
    """Return whether a leftover tensor is lost, and why it has no partner; None if it has one."""
    found = [each for each in align(theirs, ours).unmatched if (each.tensor, each.side) == (tensor, side)]
    return (found[0].kind is UnmatchedKind.LOST, found[0].reason) if found else None


PLAIN = [node("Exp", "x", "a"), node("Tanh", "a", "y")]


@pytest.mark.parametrize(
    ("more", "tensor", "lost", "reason"),
    [
        ([node("Mul", "x k", "z")], "k", False, "constant"),
        ([node("Neg", "k", "z")], "z", False, "computed from constants only"),
        ([node("Identity", "a", "z"), node("Sin", "z", "w")], "z", False, "equivalent to 'a', which is compared"),
        ([node("Exp", "x", "z"), node("Sin", "z", "w")], "z", False, "the same computation as 'a', which is compared"),
        ([node("Sin", "x", "z")], "z", False, "no node reads it"),
        ([node("Sin", "x", "z"), node("Cos", "z", "w")], "z", False, "no graph output depends on it"),
    ],
)
def test_what_is_beside_the_network_is_no_loss(more, tensor, lost, reason):
    assert said(run_of(*PLAIN, *more), run_of(*PLAIN), tensor) == (lost, reason)
    if not reason.startswith(("equivalent to", "the same computation")):
        assert said(run_of(*PLAIN), run_of(*PLAIN, *more), tensor, Side.BACKEND) == (lost, reason)


def test_the_extents_of_tensors_are_no_values_of_the_network():
    counted = [node("Shape", "x", "s"), node("Gather", "s k", "g"), node("Exp", "x", "a"), node("Reshape", "a g", "y")]
    plain = [node("Exp", "x", "a"), node("Reshape", "a k", "y")]
    for name in "sg":
        assert said(run_of(*counted), run_of(*plain), name) == (False, "shape computation")


@pytest.mark.parametrize("same", [True, False])
def test_elements_in_other_dimensions_are_compared_if_they_are_the_same(same):
    theirs = [node("Exp", "x", "a"), node("Reshape", "a k", "r"), node("Tanh", "r", "y")]
    flat = X.reshape(-1) + (0 if same else 1)
    ours = [node("Exp", "x", "a"), node("Tanh", "a", "y")]
    values = {"a": X, "r": flat, "k": np.array([12])}
    found = said(run_of(*theirs, values=values, outputs=("y", "r")), run_of(*ours, values={"a": X}), "r")
    assert found is not None
    if same:
        assert found == (False, "a reshape of 'a', which is compared")
    else:
        assert "in other dimensions" not in found[1]


def test_a_tensor_that_the_other_recording_lacks_values_of_is_lost():
    assert said(run_of(*PLAIN), run_of(*PLAIN, skip=("a",)), "a") == (
        True,
        "the backend recording has no values for it",
    )
    found = said(run_of(*PLAIN, skip=("a",)), run_of(*PLAIN), "a", Side.BACKEND)
    assert found == (True, "the reference recording has no values for it")


@pytest.mark.parametrize(
    ("cause", "outputs", "lost", "reason"),
    [
        ("fused", ("y",), False, "computed inside a fused node: a list"),
        ("folded", ("y",), False, "folded into a constant: a list"),
        ("view", ("y", "a"), False, "another shape of a recorded tensor: a list"),
        ("unsupported", ("y",), False, "not recorded: a list; the tensors computed from it are compared"),
        (None, ("y",), False, "not recorded: a list; the tensors computed from it are compared"),
        (None, ("y", "a"), True, "not recorded: a list"),
        ("unsupported", ("y", "a"), True, "not recorded: a list"),
    ],
)
def test_what_was_never_recorded_is_lost_unless_all_that_is_made_of_it_is_compared(cause, outputs, lost, reason):
    causes = {} if cause is None else {"a": SkipCause(cause)}
    partly = run_of(*PLAIN, skip=("a",), skipped={"a": "a list"}, causes=causes, outputs=outputs)
    found = [each for each in align(run_of(*PLAIN, outputs=outputs), partly).unmatched if each.side is Side.BACKEND]
    assert [(each.tensor, each.kind is UnmatchedKind.LOST, each.reason) for each in found] == [("a", lost, reason)]


def test_what_is_made_of_a_tensor_must_be_compared_for_it_to_be_no_loss():
    more = [*PLAIN, node("Sin", "a", "z"), node("Cos", "z", "w")]
    ours = run_of(*more, skip=("a",), skipped={"a": "a list"}, outputs=("y", "w"))
    theirs = run_of(*PLAIN)
    found = {each.tensor: each for each in align(theirs, ours).unmatched if each.side is Side.BACKEND}
    assert found["a"].kind is UnmatchedKind.LOST


def test_that_nothing_checked_a_part_is_said_once():
    entry = Unmatched(side=Side.BACKEND, tensor="t", kind=UnmatchedKind.BENIGN, reason="inside a part")
    once = as_unchecked(entry, "no kernel is known for A")
    assert (
        once.reason
        == "inside a part; whether both runs compute the same result there was not checked, because no kernel is known "
        "for A"
    )
    assert as_unchecked(once, "no kernel is known for B") == once


@pytest.mark.parametrize(("cause", "lost"), [("fused", False), (None, True)])
def test_what_a_recording_of_names_alone_says_it_never_made_is_no_loss(cause, lost):
    causes = {} if cause is None else {"a": SkipCause(cause)}
    info = RunInfo(backend="test", skipped={"a": "a list"}, skip_causes=causes)
    nodes = [Node(name=name, op="Unknown", outputs=(name,)) for name in ("x", "y")]
    named = MemoryRecording.single(Graph(nodes, outputs=("y",)), {"x": X, "y": X}, info)
    assert said(run_of(*PLAIN), named, "a")[0] is lost
