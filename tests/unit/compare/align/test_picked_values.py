"""Nodes that pick elements are told apart by which they pick, and those that pick all of them are none."""

import numpy as np
import pytest

from qdebug.compare.align.align import align
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.session import DiffSession

RNG = np.random.default_rng(4)
X = RNG.normal(size=(1, 6, 4)).astype(np.float32)
ENDLESS = np.array([2**63 - 1])


def node(op, inputs, output, **attrs):
    return Node(name=f"n_{output}", op=op, inputs=tuple(inputs.split()), outputs=(output,), attrs=attrs)


def recording(nodes, arrays, constants=()):
    tensors = [
        TensorInfo(
            name=name, role=Role.CONSTANT if name in constants else Role.INPUT if name == "x" else Role.ACTIVATION
        )
        for name in arrays
    ]
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=nodes[-1].outputs, opset={"": 17})
    return MemoryRecording.single(graph, arrays)


PICKS = {"zero": np.array([0]), "three": np.array([3]), "end": ENDLESS, "rows": np.array([1]), "cols": np.array([2])}


def halves(*, whole=True, names=("low", "high"), low_end="three"):
    """Squares of two halves; all of the tensor is sliced off once before, and once behind."""
    first = X[:, : 3 if low_end == "three" else 2]
    arrays = {"x": X, "r": np.maximum(X, 0), **PICKS, "two": np.array([2])}
    arrays |= {names[0]: np.maximum(first, 0), names[1]: np.maximum(X[:, 3:], 0)}
    source = "r"
    nodes = [node("Relu", "x", "r")]
    if whole:
        arrays["all"] = np.maximum(X, 0)
        nodes.append(node("Slice", "r zero end cols", "all"))
        source = "all"
    nodes += [
        node("Slice", f"{source} zero {low_end} rows", names[0]),
        node("Slice", f"{source} three end rows", names[1]),
        node("Exp", names[0], "e1"),
        node("Sqrt", names[1], "y"),
    ]
    arrays |= {"e1": np.exp(arrays[names[0]]), "y": np.sqrt(arrays[names[1]])}
    return recording(nodes, arrays, constants=(*PICKS, "two"))


@pytest.mark.parametrize("way", ["there", "back"])
def test_a_slice_of_all_there_is_is_no_other_tensor(way):
    sides = (halves(), halves(whole=False, names=("a", "b")))
    result = DiffSession(*(sides if way == "there" else sides[::-1])).result()
    assert result.status is Status.IDENTICAL, result.verdict.sentence
    assert not [entry for entry in result.coverage.unmatched if entry.kind == "lost"]
    assert {"all", "low"} & set(IndexedRecording.of(sides[0]).members("r")) == {"all"}


def test_slices_of_one_tensor_are_told_apart_by_what_they_take():
    pairs = {pair.backend: pair.reference for pair in align(halves(), halves(names=("a", "b"))).pairs}
    assert (pairs["a"], pairs["b"]) == ("low", "high")


def test_a_slice_that_takes_less_is_found():
    result = DiffSession(halves(), halves(low_end="two")).result()
    assert result.status is Status.DIVERGED
    assert result.verdict.first_divergence == "n_low"


@pytest.mark.parametrize("changed", ["starts", "steps", "computed", "ends"])
def test_a_slice_that_may_leave_something_out_is_a_tensor_of_its_own(changed):
    values = {"starts": np.array([0]), "ends": ENDLESS, "axes": np.array([1]), "steps": np.array([1])}
    values |= {"starts": np.array([1])} if changed == "starts" else {"ends": np.array([6])} if changed == "ends" else {}
    values |= {"steps": np.array([-1])} if changed == "steps" else {}
    nodes = [node("Relu", "x", "r"), node("Slice", "r starts ends axes steps", "y")]
    constants = set(values) - ({"ends"} if changed == "computed" else set())
    run = IndexedRecording.of(recording(nodes, {"x": X, "r": X, **values, "y": X}, constants))
    assert run.members("r") == ("r",)


def test_a_product_is_not_folded_into_what_it_only_scales_with():
    """Anchors that hang on shapes alone are joined and multiplied with data: joining them is not the product."""
    values = {"x": X, "r": np.maximum(X, 0), "extents": np.array([1, 6, 4]), "one": np.ones(1, np.float32)}
    values |= {"axis": np.array([1]), "y": np.maximum(X, 0) * np.array([1, 6, 4, 1], np.float32)}
    grid = np.array([[1], [6], [4], [1]], np.float32)

    def side(names):
        cast, joined, column, turned = names
        nodes = [
            node("Relu", "x", "r"),
            node("Shape", "r", "extents"),
            node("Cast", "extents", cast, to=1),
            node("Concat", f"{cast} one", joined, axis=0),
            node("Unsqueeze", f"{joined} axis", column),
            node("Add", f"{column} one", f"{column}+"),
            node("Transpose", f"{column}+", turned, perm=(1, 0)),
            node("Mul", f"r {turned}", "y"),
        ]
        arrays = {**values, cast: grid[:3, 0], joined: grid[:, 0], column: grid, f"{column}+": grid + 1}
        arrays |= {turned: (grid + 1).T, "y": values["r"] * (grid + 1).T}
        return recording(nodes, arrays, constants=("one", "axis"))

    pairs = {
        pair.backend: pair.reference for pair in align(side(("a", "b", "c", "d")), side(("e", "f", "g", "h"))).pairs
    }
    assert {pairs[name] for name in ("f", "g", "g+", "h")} == {"b", "c", "c+", "d"}
