"""What a comparison is going to look at, and how one entry of it is found by a name."""

import numpy as np
import pytest

from qdebug.compare.align.align import align
from qdebug.compare.align.pairs import Match
from qdebug.compare.attribute.plan import NamedEntries, plan, recorded_places
from qdebug.errors import UsageError
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, TensorInfo

X = np.float32([[-1, 2, -3, 4]])


def run(prefix="", *, quant=None, samples=(0,), op="Relu"):
    """Record x -> Neg -> Relu, with other names for one side."""
    nodes = [
        Node(name=f"{prefix}neg", op="Neg", inputs=("x",), outputs=(f"{prefix}h",)),
        Node(name=f"{prefix}act", op=op, inputs=(f"{prefix}h",), outputs=(f"{prefix}y",)),
    ]
    infos = [TensorInfo(name=f"{prefix}y", quant=quant, shape=(1, 4)), TensorInfo(name="x", dtype="float32")]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=(f"{prefix}y",))
    values = {"x": X, f"{prefix}h": -X, f"{prefix}y": np.maximum(-X, 0)}
    return MemoryRecording(graph, {(name, at, 0): array for name, array in values.items() for at in samples})


def planned(ref, be, **rest):
    return plan(ref, be, align(ref, be), **rest)


def test_the_entries_come_in_the_order_of_the_backend_with_what_its_graph_says():
    quant = QuantParams(dtype="uint8", scale=0.5, zero_point=0)
    x, h, y = planned(run(), run("b_", quant=quant))
    assert [(each.index, each.node, each.op, each.reference_tensor) for each in (x, h, y)] == [
        (0, "x", "Input", "x"),
        (1, "b_neg", "Neg", "h"),
        (2, "b_act", "Relu", "y"),
    ]
    assert (y.shape, y.quant, y.relu_floor, y.whole) == ((1, 4), quant, True, False)
    assert (h.relu_floor, x.match, x.match_reason != "") == (False, Match.EXACT, True)
    assert not planned(run(), run("b_"))[-1].relu_floor  # without codes there is no lowest one


def test_operators_are_shown_in_the_words_that_they_were_recorded_in():
    be = run("b_")
    said = planned(run(), be, declared_graph=run("b_", op="RELU").graph)
    assert [each.op for each in said] == ["Input", "Neg", "RELU"]


def test_an_entry_is_found_by_its_tensor_its_node_or_the_reference_s_tensor():
    entries = NamedEntries(planned(run(), run("b_")))
    assert [entries.find(name).tensor for name in ("b_h", "b_neg", "h")] == ["b_h"] * 3
    with pytest.raises(UsageError, match=r"No compared node or tensor is called 'b_nag'\. Near names: 'b_neg'"):
        entries.find("b_nag")
    with pytest.raises(UsageError, match=r"is called 'zzzzzz'\.$"):
        entries.find("zzzzzz")


def test_a_tensor_s_own_name_goes_before_that_of_a_node():
    nodes = [
        Node(name="b", op="Neg", inputs=("x",), outputs=("a",)),
        Node(name="a", op="Tanh", inputs=("a",), outputs=("b",)),
    ]
    graph = Graph(nodes, inputs=("x",), outputs=("b",))
    both = MemoryRecording.single(graph, {"x": X, "a": -X, "b": np.tanh(-X)})
    entries = NamedEntries(planned(both, both))
    assert [entries.find(name).tensor for name in ("a", "b")] == ["a", "b"]


def test_only_what_both_sides_recorded_is_looked_at():
    ref, be = run(samples=(0, 1, 2)), run("b_", samples=(0, 2, 3))
    assert list(recorded_places(ref, be, planned(ref, be)[1])) == [(0, 0), (2, 0)]


class CountedList(list):
    """A list that counts how many elements were taken out of it."""

    taken = 0

    def __iter__(self):
        for entry in super().__iter__():
            CountedList.taken += 1
            yield entry


def test_looking_up_every_name_goes_through_the_entries_once():
    entries = CountedList(planned(run(), run("b_")))
    named = NamedEntries(entries)
    for name in ("b_h", "b_neg", "h", "b_y", "b_act", "y") * 10:
        assert named.find(name) is named.exact(name)
    assert CountedList.taken == len(entries)
