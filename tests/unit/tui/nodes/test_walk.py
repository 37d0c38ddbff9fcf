"""A net that branches: x -> a -> b -> join, x -> c -> join, join -> out; each row with errors as told."""

from dataclasses import replace

import pytest

from qdebug.compare.align.pairs import Match
from qdebug.compare.result.result import NodeResult, Status
from qdebug.model import Graph, Node, Role, TensorInfo
from qdebug.numerics.stats import ErrorStats
from qdebug.tui.nodes.rows import NodeTable, PlannedRow
from qdebug.tui.nodes.walk import inputs_of, outputs_of, own_share, walk_to_origin, worst_input

NAMES = ("a", "b", "c", "join", "out")
READS = {"a": ("x", "w"), "b": ("a",), "c": ("x",), "join": ("c", "b"), "out": ("join",)}


def stats(error):
    known = dict.fromkeys(ErrorStats.__dataclass_fields__)
    return ErrorStats(**{**known, "count": 4, "mismatches": 4, "nonfinite": 0, "rel_l2": error, "rmse": error})


def result(name, whole, own=None, came=None, status=Status.DIVERGED):
    return NodeResult(
        index=NAMES.index(name),
        node=name,
        op="Op",
        tensor=name,
        reference_tensor=name,
        match=Match.EXACT,
        match_reason="",
        status=status,
        metrics=stats(whole),
        introduced=None if own is None else stats(own),
        propagated=None if came is None else stats(came),
    )


@pytest.fixture
def graph():
    """Return the graph."""
    nodes = [Node(name=name, op="Op", inputs=READS[name], outputs=(name,)) for name in NAMES]
    return Graph(nodes, inputs=("x",), outputs=("out",), tensors=[TensorInfo(name="w", role=Role.CONSTANT)])


@pytest.fixture
def table():
    """Return the table; b introduces most, c a little, join and out nothing."""
    made = NodeTable([PlannedRow(node=name, op="Op", tensor=name, reference_tensor=name) for name in NAMES])
    for each in (
        result("a", 0.01, own=0.01, came=0.0, status=Status.WITHIN),
        result("b", 0.5, own=0.5, came=0.01),
        result("c", 0.1, own=0.1, came=0.0),
        result("join", 0.4, own=0.001, came=0.4),
        result("out", 0.4, own=0.0, came=0.4),
    ):
        made.put(each)
    return made


def test_inputs_come_worst_first_and_constants_last(graph, table):
    edges = inputs_of(graph, table, table.rows[3].tensor)
    assert [edge.tensor for edge in edges] == ["b", "c"]
    assert [edge.tensor for edge in inputs_of(graph, table, table.rows[0].tensor)] == ["x", "w"]
    assert inputs_of(graph, table, table.rows[0].tensor)[1].constant
    assert inputs_of(graph, table, table.rows[0].tensor)[0].row is None


def test_outputs_are_those_who_read(graph, table):
    assert [edge.node for edge in outputs_of(graph, table, table.rows[1].tensor)] == ["join"]
    assert outputs_of(graph, table, table.rows[4].tensor) == []


def test_the_worst_input_carries_most_error(graph, table):
    assert worst_input(graph, table, 3).tensor == "b"
    assert worst_input(graph, table, 0) is None, "the network's input was not compared"


def test_the_walk_ends_where_the_error_is_added(graph, table):
    walk = walk_to_origin(graph, table, 4)
    assert [NAMES[row] for row in walk.rows] == ["out", "join", "b"]
    assert "adds at least as much" in walk.end_reason


def test_a_node_that_cannot_be_replayed_may_be_the_origin(graph, table):
    table.put(replace(result("join", 0.4), introduced=None))
    walk = walk_to_origin(graph, table, 4)
    assert NAMES[walk.rows[-1]] == "join"
    assert "not known" in walk.end_reason


def test_where_no_node_adds_enough_the_one_that_adds_most_is_the_end(graph, table):
    table.put(result("b", 0.5, own=0.1, came=0.5))
    table.put(result("c", 0.1, own=0.1, came=0.0, status=Status.WITHIN))
    walk = walk_to_origin(graph, table, 4)
    assert NAMES[walk.rows[-1]] == "b"
    assert "introduces most" in walk.end_reason


def test_without_any_failing_node_the_walk_says_so(graph, table):
    for name in NAMES:
        table.put(replace(table.results[NAMES.index(name)], status=Status.WITHIN))
    walk = walk_to_origin(graph, table, 4)
    assert walk.end_reason == "no node on the way is beyond its limit, this one introduces most"
    assert NAMES[walk.rows[-1]] == "b"
    assert not walk.is_failing
    for name in NAMES:
        table.put(replace(table.results[NAMES.index(name)], introduced=None))
    assert "known to introduce" in walk_to_origin(graph, table, 4).end_reason


def test_a_row_that_is_not_compared_ends_the_walk(graph):
    empty = NodeTable([PlannedRow(node=name, op="Op", tensor=name, reference_tensor=name) for name in NAMES])
    assert walk_to_origin(graph, empty, 4).rows == (4,)


def test_the_own_share_is_by_squares():
    assert own_share(result("b", 0.5, own=0.3, came=0.4)) == pytest.approx(0.36)
    assert own_share(result("b", 0.5)) is None
    assert own_share(result("b", 0.0, own=0.0, came=0.0)) is None
    assert own_share(result("b", 0.0, own=float("nan"), came=0.0)) is None


def test_a_node_that_computes_something_else_ends_the_walk_though_its_replay_adds_nothing(graph, table):
    row = NAMES.index("join")
    table.put(replace(result("join", 0.4, own=0.0, came=0.4), declared="its bias is missing"))
    walk = walk_to_origin(graph, table, NAMES.index("out"))
    assert walk.rows[-1] == row
    assert walk.is_failing
    assert walk.end_reason.startswith("it does not compute what the reference computes")


@pytest.mark.parametrize("status", [Status.DIVERGED, Status.WITHIN])
def test_from_a_copy_the_way_leads_to_the_node_that_the_model_has_if_that_is_as_wrong(graph, table, status):
    nodes = [replace(node, origin=("b",)) if node.name == "c" else node for node in graph.nodes]
    nodes = [replace(node, inputs=READS["b"]) if node.name == "c" else node for node in nodes]
    copied = Graph(nodes, inputs=("x",), outputs=("out",), tensors=[TensorInfo(name="w", role=Role.CONSTANT)])
    table.put(result("b", 0.5, own=0.5, came=0.01, status=status))
    table.put(result("c", 0.6, own=0.6, came=0.01))
    walk = walk_to_origin(copied, table, NAMES.index("out"))
    assert NAMES[walk.rows[-1]] == ("b" if status is Status.DIVERGED else "c")
    assert len(walk.rows) == 3


def test_only_inputs_that_a_failing_node_leads_to_come_into_question(graph, table):
    table.put(result("b", 0.5, own=0.5, came=0.01, status=Status.WITHIN))
    walk = walk_to_origin(graph, table, NAMES.index("out"))
    assert [NAMES[row] for row in walk.rows] == ["out", "join", "c"]
    assert walk.is_failing


def test_the_walk_goes_the_way_of_the_verdict_where_the_errors_of_inputs_lead_elsewhere(graph, table):
    assert NAMES[walk_to_origin(graph, table, NAMES.index("out")).rows[-1]] == "b"
    walk = walk_to_origin(graph, table, NAMES.index("out"), ("out", "join", "c"))
    assert [NAMES[row] for row in walk.rows] == ["out", "join", "c"]
    assert walk.end_reason == "the verdict names it"
    assert walk_to_origin(graph, table, NAMES.index("b"), ("out", "join", "c")).rows == (NAMES.index("b"),)


def test_where_the_verdict_looked_for_no_way_the_walk_ends_at_its_origin(graph, table):
    for name in ("b", "join", "out"):
        table.put(replace(result(name, 0.4), introduced=None))
    assert NAMES[walk_to_origin(graph, table, NAMES.index("out")).rows[-1]] == "out"
    assert NAMES[walk_to_origin(graph, table, NAMES.index("out"), ("b",)).rows[-1]] == "b"
    table.put(result("c", 0.4, own=0.4, came=0.0))
    assert NAMES[walk_to_origin(graph, table, NAMES.index("c"), ("b",)).rows[-1]] == "c", "b does not lead there"


def test_all_that_is_not_finite_comes_from_where_it_is_born(graph, table):
    for name in ("b", "join", "out"):
        table.put(result(name, float("nan"), own=float("nan"), came=0.0, status=Status.NONFINITE))
    walk = walk_to_origin(graph, table, NAMES.index("out"), ("b",))
    assert NAMES[walk.rows[-1]] == "b"


def test_the_walk_passes_what_is_not_compared(graph, table):
    between = [replace(node, inputs=("c", "hidden")) if node.name == "join" else node for node in graph.nodes]
    hidden = Node(name="hidden", op="Op", inputs=("b",), outputs=("hidden",))
    longer = Graph(
        [*between[:3], hidden, *between[3:]], inputs=("x",), outputs=("out",), tensors=graph.tensors.values()
    )
    walk = walk_to_origin(longer, table, NAMES.index("out"))
    assert [NAMES[row] for row in walk.rows] == ["out", "join", "b"]
