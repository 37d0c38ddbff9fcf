"""Where the error at the output comes from."""

from dataclasses import replace

from qdebug.compare.align.pairs import Match
from qdebug.compare.policy import verdict
from qdebug.compare.result.node_result import is_beyond
from qdebug.compare.result.origin import find_largest_fall, path_to_origin
from qdebug.compare.result.result import NodeResult, Status
from qdebug.compare.result.result_table import ResultTable
from qdebug.model import Graph, Node
from qdebug.numerics.stats import ErrorStats


def chain(count):
    """Return a graph of nodes n0 -> n1 -> ... that write t0, t1, ..."""
    nodes = [
        Node(name=f"n{i}", op="Conv", inputs=(f"t{i - 1}" if i else "x",), outputs=(f"t{i}",)) for i in range(count)
    ]
    return Graph(nodes, inputs=["x"], outputs=[f"t{count - 1}"])


def result(index, status, **changes):
    node = NodeResult(
        index=index,
        node=f"n{index}",
        op="Conv",
        tensor=f"t{index}",
        reference_tensor=f"t{index}",
        match=Match.EXACT,
        match_reason="same name",
        status=status,
    )
    return replace(node, **changes)


def stats_of(error):
    known = dict.fromkeys(ErrorStats.__dataclass_fields__)
    return ErrorStats(**{**known, "count": 4, "mismatches": 4, "nonfinite": 0, "rel_l2": error, "rmse": error})


def test_a_shape_that_the_graph_declares_otherwise_is_beyond_the_limit():
    assert is_beyond(result(0, Status.INCOMPARABLE, declared="its strides are other"))
    assert not is_beyond(result(0, Status.INCOMPARABLE))
    assert not is_beyond(result(0, Status.WITHIN, declared="one constant underflows"))


def test_the_node_that_declares_another_shape_is_the_origin_of_shapes_and_errors_after_it():
    nodes = [
        result(0, Status.WITHIN),
        result(1, Status.INCOMPARABLE, declared="its strides is (1, 2); the reference's is (1, 1)", reason="shapes"),
        result(2, Status.INCOMPARABLE, reason="shapes"),
        result(3, Status.DIVERGED, reason="it is far off"),
    ]
    origin = path_to_origin(ResultTable(nodes), chain(4))[-1]
    assert origin is not None
    assert origin.node == "n1"
    summed = verdict(ResultTable(nodes), (), way=(origin,))
    assert (summed.status, summed.first_divergence, summed.origin) == (Status.DIVERGED, "n1", "n1")
    assert "1 of 2 compared tensors is beyond the limit. 2 could not be compared." in summed.sentence


def test_without_anything_beyond_a_limit_there_is_no_origin():
    assert path_to_origin(ResultTable([result(0, Status.WITHIN), result(1, Status.INCOMPARABLE)]), chain(2)) == ()


def test_a_harmless_finding_above_is_named_as_the_cause_of_an_infinity():
    nodes = [
        result(0, Status.WITHIN, declared="its constant is gone"),
        result(1, Status.IDENTICAL),
        result(2, Status.NONFINITE, reason="one element is infinite"),
    ]
    origin = path_to_origin(ResultTable(nodes), chain(3))[-1]
    assert origin is not None
    assert origin.reason == "one element is infinite, after 'n0': its constant is gone"
    assert origin.reason in verdict(ResultTable(nodes), (), way=(origin,)).sentence
    aside = Graph(
        [Node(name="n0", op="Conv", inputs=("x",), outputs=("t0",)), *chain(3).nodes[2:]],
        inputs=["x", "t1"],
        outputs=["t2"],
    )
    assert path_to_origin(ResultTable(nodes), aside)[-1] is nodes[2]


def test_an_infinity_is_named_before_a_larger_error_and_though_it_leaves_no_trace():
    nodes = [result(0, Status.DIVERGED), result(1, Status.NONFINITE, reason="born"), result(2, Status.WITHIN)]
    origin = path_to_origin(ResultTable(nodes), chain(3))[-1]
    assert origin is nodes[1]


def copied(origin, op="Conv"):
    """Return two nodes on x, of which the second may be made of the first; the output hangs on the second."""
    nodes = [
        Node(name="n0", op=op, inputs=("x",), outputs=("t0",)),
        Node(name="n1", op="Conv", inputs=("x",), outputs=("t1",), origin=origin),
        Node(name="n2", op="Conv", inputs=("t1",), outputs=("t2",)),
    ]
    return Graph(nodes, inputs=["x"], outputs=["t2"])


def wrong(index, status=Status.DIVERGED):
    part = stats_of(0.5)
    return result(index, status, metrics=part, introduced=part, propagated=stats_of(0.0), reason="far off")


def test_a_copy_that_is_wrong_is_named_as_the_node_that_the_model_has():
    carried = result(2, Status.WITHIN, metrics=stats_of(0.5), introduced=stats_of(0.0), propagated=stats_of(0.5))
    both = ResultTable([wrong(0), wrong(1), carried])
    assert path_to_origin(both, copied(("n0",)))[-1].node == "n0"
    assert path_to_origin(both, copied(()))[-1].node == "n1"
    assert path_to_origin(both, copied(("n0",), op="Neg"))[-1].node == "n1"
    healthy = ResultTable([wrong(0, Status.WITHIN), wrong(1), carried])
    assert path_to_origin(healthy, copied(("n0",)))[-1].node == "n1"


def test_the_verdict_says_what_the_model_calls_a_node():
    results = ResultTable([wrong(1)])
    said = [
        verdict(results, (), way=results.nodes, graph=copied(made)).sentence
        for made in (("conv",), ("conv", "bn", "relu"), ("n1", "relu"), ())
    ]
    assert "Conv 'n1' (the model's 'conv') (tensor 't1')" in said[0]
    assert "Conv 'n1' (the model's 'conv' and 2 more) (tensor 't1')" in said[1]
    assert "the model's" not in said[2] + said[3]


def test_the_first_codes_of_a_net_are_no_fall_but_what_they_lose_too_much_is():
    def falls(*levels):
        nodes = [
            result(at, Status.WITHIN, metrics=replace(stats_of(10 ** (-level / 20)), sqnr_db=level))
            for at, level in enumerate(levels)
        ]
        found = find_largest_fall(ResultTable(nodes), chain(len(levels)), len(levels) - 1)
        return None if found is None else found[1].node

    assert falls(140.0, 40.0, 35.0, 24.0, 22.0) == "n3"
    assert falls(140.0, 40.0) is None
    assert falls(140.0, 6.0, 5.0) == "n1"
