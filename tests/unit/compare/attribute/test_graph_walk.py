"""What depends on some tensors, what they depend on, and what lies in between."""

from qdebug.compare.attribute.graph_walk import between, downstream, part_of, upstream
from qdebug.model import Graph, Node

NET = Graph(
    [
        Node(name="neg", op="Neg", inputs=("a",), outputs=("h",)),
        Node(name="add", op="Add", inputs=("h", "b"), outputs=("s",)),
        Node(name="out", op="Neg", inputs=("s",), outputs=("y",)),
        Node(name="aside", op="Clip", inputs=("b", "", "a"), outputs=("z",)),
    ],
    inputs=["a", "b"],
    outputs=["y", "z"],
)


def test_inputs_are_looked_for_beyond_tensors_without_a_partner():
    made, entries = between(NET, "y", {"a", "b", "y"})
    assert [node.name for node in made] == ["neg", "add", "out"]
    assert set(entries) == {"a", "b"}
    assert between(NET, "y", {"s"})[1] == ("s",)
    assert between(NET, "a", {"a"}) == ((), ())


def test_both_ways_hold_the_tensors_themselves_and_no_input_that_is_left_out():
    assert upstream(NET, ["y"]) == {"y", "s", "h", "a", "b"}
    assert upstream(NET, ["z"]) == {"z", "a", "b"}
    assert downstream(NET, ["h"]) == {"h", "s", "y"}
    assert downstream(NET, []) == set()


def test_what_is_not_compared_is_judged_with_the_first_compared_tensor_below_it():
    assert part_of(NET, "neg", {"s", "y", "z"}) == "s"
    assert part_of(NET, "h", {"y", "z"}) == "y"
    assert part_of(NET, "out", {"y"}) == "y"
    assert part_of(NET, "out", {"s", "z"}) is None
    assert part_of(NET, "a", {"s", "y", "z"}) is None, "an input is in no part"
    assert part_of(NET, "unheard of", {"y"}) is None
