"""Which outputs are ranked, and how ranks sum up over samples and steps."""

import numpy as np
import pytest

from qdebug.compare.align.pairs import Match, Pair
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.result.result import OutputRanking
from qdebug.compare.result.scores import rank_outputs
from qdebug.model import Graph, Node, Role, TensorInfo

GRAPH = Graph([Node(name="fc", op="Gemm", inputs=("x",), outputs=("y",))], inputs=("x",), outputs=("y",))


def planned(tensor="y", shape=None):
    pair = Pair(reference=tensor, backend=tensor, match=Match.EXACT, reason="one name")
    return PlannedNode(index=0, node="fc", op="Gemm", pair=pair, shape=shape, quant=None, relu_floor=False)


def chain(*ops):
    """A graph of one node after the other from x to y; each also reads the constant c."""
    names = ["x", *(f"t{number}" for number in range(1, len(ops))), "y"]
    nodes = [
        Node(name=f"n{number}", op=op, inputs=(names[number], "c"), outputs=(names[number + 1],))
        for number, op in enumerate(ops)
    ]
    return Graph(nodes, tensors=[TensorInfo(name="c", role=Role.CONSTANT)], inputs=("x",), outputs=("y",))


def ranking(references, backends, *, entry=None, steps=1, graph=GRAPH):
    """Rank an output whose vectors are given in the order of samples and steps."""
    places = [(place // steps, place % steps) for place in range(len(references))]
    values = dict(zip(places, zip(references, backends, strict=True), strict=True))

    def load(tensor, sample, step):
        return tuple(np.asarray(side) for side in values[sample, step])

    return rank_outputs(graph, [entry or planned()], lambda _: places, load)


def test_agreement_is_a_share_of_the_samples_and_the_worst_is_named():
    reference = np.arange(8, dtype=np.float32)
    backends = [reference, reference[::-1], np.roll(reference, 2), reference]
    assert ranking([reference] * 4, backends) == (
        OutputRanking(
            tensor="y",
            entries=8,
            samples=4,
            unranked=0,
            top1_agreement=0.5,
            top5_agreement=0.75,
            tied=0,
            worst_rank=7,
            worst_sample=1,
        ),
    )


def test_with_five_entries_everything_is_among_the_first_five():
    (found,) = ranking([np.arange(5.0)], [np.arange(5.0)[::-1]])
    assert (found.top1_agreement, found.top5_agreement) == (0.0, None)


def test_a_dead_output_agrees_with_nothing():
    (found,) = ranking([np.arange(10.0)] * 2, [np.zeros(10)] * 2)
    assert (found.top1_agreement, found.top5_agreement, found.tied, found.worst_rank) == (0.0, 0.0, 2, 9)


def test_samples_without_a_winner_are_counted_apart():
    (found,) = ranking([np.zeros(3), np.array([1.0, np.nan, 2.0]), np.arange(3.0)], [np.arange(3.0)] * 3)
    assert (found.samples, found.unranked, found.top1_agreement) == (1, 2, 1.0)
    (found,) = ranking([np.zeros(3)], [np.arange(3.0)])
    assert (found.samples, found.unranked, found.top1_agreement, found.worst_rank) == (0, 1, None, None)
    assert (found.worst_sample, found.top5_agreement) == (None, None)


def test_each_step_is_a_vector_of_its_sample():
    up, down = np.arange(3.0), np.arange(3.0)[::-1]
    (found,) = ranking([up, up, up, up], [up, up, up, down], steps=2)
    assert (found.samples, found.top1_agreement, found.worst_sample) == (4, 0.75, 1)


def test_extents_of_one_do_not_matter():
    (found,) = ranking([np.arange(6.0).reshape(1, 6, 1, 1)], [np.arange(6).reshape(1, 1, 6)])
    assert (found.entries, found.top1_agreement) == (6, 1.0)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(6.0).reshape(2, 3),
        np.float64(3),
        np.zeros(0),
        np.ones((1, 1)),
        np.array([True, False]),
        np.array([1j, 2]),
    ],
)
def test_what_is_no_vector_of_real_numbers_is_left_out(values):
    assert ranking([values], [values]) == ()


def test_vectors_of_two_lengths_are_left_out():
    assert ranking([np.arange(3.0)], [np.arange(4.0)]) == ()


def test_a_shape_that_cannot_be_a_vector_is_left_out_before_anything_is_read():
    def load(tensor, sample, step):
        raise AssertionError("read")

    assert rank_outputs(GRAPH, [planned(shape=(1, 3, 8, 8))], lambda _: [(0, 0)], load) == ()
    assert rank_outputs(GRAPH, [planned(shape=(None, 3, None))], lambda _: [], load) == ()


def test_other_tensors_are_not_ranked():
    assert ranking([np.arange(3.0)], [np.arange(3.0)], entry=planned("x")) == ()


@pytest.mark.parametrize(
    "ops",
    [
        ("MatMul", "Add", "Softmax", "Identity"),
        ("QGemm", "QLinearSoftmax", "DequantizeLinear"),
        ("MatMul", "Add"),
        ("Conv", "GlobalAveragePool", "Flatten", "Cast"),
        ("FULLY_CONNECTED",),
        ("Exp", ""),
    ],
)
def test_an_output_of_an_operator_that_gives_scores_is_ranked(ops):
    assert len(ranking([np.arange(3.0)], [np.arange(3.0)], graph=chain(*ops))) == 1


@pytest.mark.parametrize(
    "ops", [("Softmax", "Mul", "ReduceSum", "Exp"), ("Gemm", "Where"), ("Gemm", "Tanh", "Reshape")]
)
def test_an_output_of_another_operator_is_not_ranked(ops):
    assert ranking([np.arange(3.0)], [np.arange(3.0)], graph=chain(*ops)) == ()


def test_a_sum_of_two_tensors_is_no_bias():
    nodes = [Node(name="sum", op="Add", inputs=("x", "z"), outputs=("y",))]
    assert ranking([np.arange(3.0)], [np.arange(3.0)], graph=Graph(nodes, inputs=("x", "z"), outputs=("y",))) == ()


def test_a_tensor_that_no_node_produces_is_ranked():
    assert len(ranking([np.arange(3.0)], [np.arange(3.0)], graph=Graph(outputs=("y",)))) == 1


def logits_graph(name, op="MatMul"):
    node = Node(name="head", op=op, inputs=("x",), outputs=(name,))
    return Graph([node], inputs=("x",), outputs=(name,))


def logits_ranking(name, shape, *, op="MatMul", named=False, change=0.0):
    reference = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    backend = reference.copy()
    backend.reshape(-1, shape[-1])[-1, 0] += change
    entry = planned(name, shape)
    places, pair = [(0, 0)], (reference, backend)
    return rank_outputs(
        logits_graph(name, op),
        [entry],
        lambda _: places,
        lambda *_: pair,
        named=lambda tensor: named and tensor == name,
    )


def test_logits_have_a_vector_for_each_token():
    (ranking,) = logits_ranking("lm.Logits", (2, 3, 256), change=9.0)
    assert (ranking.samples, ranking.entries, ranking.top1_agreement) == (6, 256, pytest.approx(5 / 6))
    assert ranking.top5_overlap == pytest.approx(1 - 1 / 5 / 6)
    assert ranking.worst_kl == pytest.approx(6 * ranking.kl)
    assert ranking.kl > 0.5
    assert (ranking.worst_kl_sample, ranking.logprob_rms > 1) == (0, True)
    (equal,) = logits_ranking("logits", (1, 256))
    assert (equal.kl, equal.logprob_rms, equal.top5_overlap) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("name", "shape", "op"),
    [("hidden", (2, 3, 256), "MatMul"), ("logits", (2, 3, 255), "MatMul"), ("logits", (2, 3, 256), "Conv")],
)
def test_tables_that_nobody_calls_logits_are_left_out(name, shape, op):
    assert logits_ranking(name, shape, op="Exp" if op == "Conv" else op) == ()
    (ranking,) = logits_ranking(name, shape, op=op, named=True)
    assert (ranking.samples, ranking.kl) == (6, 0.0)


def test_scores_of_a_classifier_are_no_distribution_over_tokens():
    (ranking,) = logits_ranking("logits", (1, 10))
    assert (ranking.samples, ranking.kl, ranking.top5_overlap) == (1, None, None)


def test_results_of_a_softmax_are_probabilities():
    reference, backend = np.array([0.25, 0.75, 0.0]), np.array([0.5, 0.5, 0.0])
    (ranking,) = rank_outputs(
        logits_graph("y", "Softmax"),
        [planned()],
        lambda _: [(0, 0)],
        lambda *_: (reference, backend),
        named=lambda _: True,
    )
    assert ranking.kl == pytest.approx(0.25 * np.log(0.5) + 0.75 * np.log(1.5))
