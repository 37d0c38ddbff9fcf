"""The verdict: one status, the first divergence in topological order, and everything that is missing."""

import math
from dataclasses import fields, replace

from qdebug.compare.align.pairs import Match, Side, Unmatched, UnmatchedKind
from qdebug.compare.policy import shortcomings, verdict
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.result import (
    Contributions,
    Contributor,
    Coverage,
    NodeResult,
    SampleResult,
    Status,
    Together,
)
from qdebug.compare.result.result_table import ResultTable
from qdebug.model import Fidelity, Graph, Node, QuantParams, RunInfo
from qdebug.numerics.stats import ErrorStats


def nodes(*statuses):
    return [
        NodeResult(
            index=i,
            node=f"n{i}",
            op="Conv",
            tensor=f"t{i}",
            reference_tensor=f"t{i}",
            match=Match.EXACT,
            match_reason="same name",
            status=status,
            reason="it is far off" if status is not Status.IDENTICAL else None,
        )
        for i, status in enumerate(statuses)
    ]


def test_status_is_the_worst_that_was_seen():
    assert verdict(ResultTable(nodes(Status.IDENTICAL)), ()).status is Status.IDENTICAL
    assert verdict(ResultTable(nodes(Status.IDENTICAL, Status.WITHIN)), ()).status is Status.WITHIN
    assert verdict(ResultTable(nodes(Status.DIVERGED, Status.WITHIN)), ()).status is Status.DIVERGED
    assert verdict(ResultTable(nodes(Status.DIVERGED, Status.NONFINITE)), ()).status is Status.NONFINITE


def test_something_missing_turns_good_news_into_incomplete_but_hides_no_bad_news():
    assert verdict(ResultTable(nodes(Status.IDENTICAL)), ("half of it",)).status is Status.INCOMPLETE
    assert verdict(ResultTable(nodes(Status.DIVERGED)), ("half of it",)).status is Status.DIVERGED


def test_first_divergence_is_the_first_in_order_and_is_named_in_the_sentence():
    summed = verdict(ResultTable(nodes(Status.WITHIN, Status.DIVERGED, Status.NONFINITE)), ())
    assert summed.first_divergence == "n1"
    assert summed.sentence == (
        "The backend diverges first at Conv 'n1' (tensor 't1'): it is far off. 2 of 3 compared tensors are beyond "
        "the limit."
    )


def test_incomparable_tensors_are_counted_apart():
    assert verdict(ResultTable(nodes(Status.WITHIN, Status.INCOMPARABLE)), ()).sentence == (
        "The one compared tensor is within the limit. 1 could not be compared."
    )


def test_where_only_a_shape_is_wrong_nothing_is_counted_as_beyond():
    said = Finding(kind=FindingKind.OPERATOR, role=FindingRole.DIFFERENCE, node="n1", sentence="another shape")
    wrong = replace(nodes(Status.WITHIN, Status.INCOMPARABLE)[1], findings=(said,), declared=said.sentence)
    summed = verdict(ResultTable((*nodes(Status.WITHIN), wrong)), ())
    assert summed.status is Status.DIVERGED
    assert summed.sentence == (
        "The backend diverges first at Conv 'n1' (tensor 't1'): it is far off. The one compared tensor is within the "
        "limit. 1 could not be compared."
    )


def coverage(*kinds):
    entries = (Unmatched(side=Side.BACKEND, tensor=f"u{i}", kind=k, reason="") for i, k in enumerate(kinds))
    return Coverage(compared=1, unmatched=tuple(entries))


def test_each_shortcoming_can_be_accepted_on_its_own():
    good = RunInfo(backend="a")
    partial = RunInfo(backend="b", complete=False, fidelity=Fidelity.DIFFERS)
    found = shortcomings(
        good, partial, coverage(UnmatchedKind.LOST, UnmatchedKind.BENIGN), ResultTable(()), limits=Limits()
    )
    assert found == (
        "the backend recording is incomplete",
        "recording changed the result of the backend run",
        "1 tensor was lost to the comparison (the first: backend tensor 'u0')",
    )
    allowed = Limits(allow_partial=True)
    assert len(shortcomings(good, partial, coverage(UnmatchedKind.LOST), ResultTable(()), limits=allowed)) == 2
    every = Limits(allow_partial=True, allow_unfaithful=True, allow_uncompared=1)
    assert shortcomings(good, partial, coverage(UnmatchedKind.LOST), ResultTable(()), limits=every) == ()


def test_unknown_fidelity_is_no_shortcoming():
    info = RunInfo(backend="a", fidelity=Fidelity.UNKNOWN)
    assert shortcomings(info, info, coverage(UnmatchedKind.BENIGN), ResultTable(()), limits=Limits()) == ()


def test_samples_that_one_side_lacks_are_a_shortcoming():
    info = RunInfo(backend="a")
    partial = [replace(node, note="compared 1 of 2 samples") for node in nodes(Status.WITHIN, Status.WITHIN)]
    found = shortcomings(info, info, coverage(), ResultTable(partial), limits=Limits())
    assert found == ("compared 1 of 2 samples (tensor 't0' and 1 more)",)
    assert shortcomings(info, info, coverage(), ResultTable(partial), limits=Limits(allow_partial=True)) == ()


def test_a_tensor_that_could_not_be_compared_is_a_shortcoming_unless_accepted():
    info = RunInfo(backend="a")
    found = shortcomings(
        info, info, coverage(), ResultTable(nodes(Status.WITHIN, Status.INCOMPARABLE)), limits=Limits()
    )
    assert found == ("1 tensor could not be compared (the first: 't1': it is far off)",)
    accepted = Limits(allow_uncompared=("t*",))
    assert shortcomings(info, info, coverage(), ResultTable(nodes(Status.INCOMPARABLE)), limits=accepted) == ()


def test_the_worst_sample_at_the_worst_output_is_named():
    def sample(number, sqnr):
        return SampleResult(sample=number, max_abs=0.5, sqnr_db=sqnr, status=Status.DIVERGED)

    many = nodes(Status.WITHIN, Status.DIVERGED)
    output = replace(many[1], samples=(sample(0, 20.0), sample(3, 4.0), sample(5, 4.0), sample(7, None)))
    summed = verdict(ResultTable([many[0], output]), (), output=output)
    assert summed.worst_sample == 3
    assert summed.sentence.endswith(" The worst of 4 samples at 't1' is sample 3.")
    spoilt = replace(output, samples=(sample(0, 20.0), sample(1, math.nan)))
    assert verdict(ResultTable([many[0], spoilt]), (), output=spoilt).worst_sample == 1
    alone = replace(output, samples=(sample(2, 20.0),))
    summed = verdict(ResultTable([many[0], alone]), (), output=alone)
    assert (summed.worst_sample, "sample" in summed.sentence) == (2, False)
    assert verdict(ResultTable(many), ()).worst_sample is None


def test_the_worst_sample_is_that_of_the_output_whose_contributions_are_shown():
    def samples(*levels):
        return tuple(
            SampleResult(sample=number, max_abs=0.5, sqnr_db=level, status=Status.WITHIN)
            for number, level in enumerate(levels)
        )

    shown, worst = nodes(Status.WITHIN, Status.WITHIN)
    shown, worst = replace(shown, samples=samples(9.0, 3.0, 8.0)), replace(worst, samples=samples(1.0, 5.0, -2.0))
    contributor = Contributor(
        node=shown.node, tensor=shown.tensor, output=shown.tensor, sqnr_db=4.0, how="exact", share=0.9
    )
    contributing = Contributions(nodes=(contributor,))
    both = {"output": worst, "short": (worst, shown)}
    assert verdict(ResultTable([shown, worst]), (), **both).worst_sample == 2
    assert verdict(ResultTable([shown, worst]), (), contributing=contributing, **both).worst_sample == 1


def test_no_figure_is_given_for_an_output_without_the_errors_of_nodes_that_nothing_replayed_without():
    """The difference of two errors is no such figure: errors amplify and hide each other."""
    rows = nodes(Status.WITHIN, Status.WITHIN)
    made = tuple(
        Contributor(node=row.node, tensor=row.tensor, output="t1", sqnr_db=level, how="exact")
        for row, level in zip(rows, (9.0, 10.0), strict=True)
    )
    together = Together(nodes=("n0", "n1"), sqnr_db=6.5, without_db=26.2, left=0.04)
    output = with_sqnr(rows[1], 5.0)
    summed = verdict(
        ResultTable([rows[0], output]),
        (),
        graph=Graph([Node(name="n1", op="Conv", inputs=("t0",), outputs=("t1",))], outputs=("t1",)),
        short=(output,),
        floor=20.0,
        contributing=Contributions(nodes=made, together=together),
    )
    assert "'n0' 9 dB, 'n1' 10 dB; if only these nodes had errors: 6.5 dB." in summed.sentence
    assert "26.2" not in summed.sentence


def test_where_nothing_was_compared_nothing_is_praised():
    sentence = verdict(ResultTable(nodes(Status.INCOMPARABLE, Status.INCOMPARABLE)), ()).sentence
    assert sentence == "No tensor was compared. 2 could not be compared."
    assert verdict(ResultTable(()), ()).sentence == "No tensor was compared."


def with_sqnr(node, level):
    known = dict.fromkeys(field.name for field in fields(ErrorStats))
    return replace(node, metrics=ErrorStats(**(known | {"count": 4, "sqnr_db": level})))


def test_an_output_with_much_error_is_said_where_all_is_within_the_limits():
    def sentence(level, *, statuses=(Status.WITHIN, Status.WITHIN), missing=(), outputs=("t1",)):
        many = nodes(*statuses)
        many[1] = with_sqnr(many[1], level)
        return verdict(ResultTable(many), missing, output=many[1], outputs=outputs).sentence

    assert sentence(7.23) == (
        "All 2 compared tensors are within the limit. The output 't1' still has an SQNR of only 7.23 dB."
    )
    for level in (20.0, math.inf, None, math.nan):
        assert "SQNR" not in sentence(level)
    assert "SQNR" not in sentence(7.2, outputs=("other",)), "the last tensor of a recording without outputs"
    assert "SQNR" not in sentence(7.2, statuses=(Status.DIVERGED, Status.WITHIN)), "what is wrong is said instead"
    part = sentence(-3.0, statuses=(Status.INCOMPARABLE, Status.WITHIN), missing=("half of it",))
    assert "still has an SQNR of only -3 dB. Incomplete" in part, "what was not compared may be the reason"


def test_a_node_that_alone_ruins_an_output_is_the_origin_before_one_whose_codes_cost_little_there():
    rows = nodes(Status.WITHIN, Status.WITHIN, Status.WITHIN)
    said = Finding(kind=FindingKind.SCALE, role=FindingRole.COST, node="n1", sentence="the scale is too large")
    rows = [replace(row, quant=QuantParams(dtype="int8", scale=0.5)) for row in rows]
    rows[1] = replace(rows[1], findings=(said,))
    graph = Graph(
        [Node(name=f"n{i}", op="Conv", inputs=(f"t{i - 1}",), outputs=(f"t{i}",)) for i in (1, 2)], outputs=("t2",)
    )

    def origin(*levels):
        made = [
            Contributor(node=f"n{i}", tensor=f"t{i}", output="t2", sqnr_db=level, how="exact")
            for i, level in enumerate(levels)
        ]
        known = Contributions(nodes=tuple(sorted(made, key=lambda each: each.sqnr_db)))
        of = ResultTable(tuple(rows))
        return verdict(of, (), graph=graph, short=rows[2:], costs=rows[1:2], floor=20.0, contributing=known).origin

    assert origin(7.0, 25.0) == "n0"
    assert origin(22.0, 25.0) == "n1"
    assert origin(7.0, 3.0) == "n1"
