"""Errors that reach the output through an index, a condition, a bound or a shape: is the node that made them named."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

_SPEC = importlib.util.spec_from_file_location("qdebug_tests_faults_rig", Path(__file__).with_name("rig.py"))
rig = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(rig)
node, compared = rig.node, rig.compared

RNG = np.random.default_rng(0)


def real(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def whole(*values):
    return np.array(values, np.int64)


X, W = real(4, 8), real(8, 6)
SCORES = node("MatMul", "x w", "scores")
JUMP = np.zeros((4, 6), np.float32)
JUMP[1, 2] = JUMP[3, 0] = 9
RAISED = np.full((4, 6), 4, np.float32)
LARGEST = [SCORES, node("ReduceMax", "scores", "largest", keepdims=0), node("Cast", "largest", "count", to=7)]
BEST = [SCORES, node("ArgMax", "scores", "index", axis=1, keepdims=0)]
FIRST = [SCORES, node("TopK", "scores k", "values index", axis=1)]
MASK = [SCORES, node("Greater", "scores zero", "mask")]
BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 20, 1, 21], [5, 5, 6, 6]]])
SIZES = [
    node("Conv", "image filter", "conv"),
    node("Shape", "conv", "shape"),
    node("Slice", "shape two four zero", "extents"),
    node("Mul", "extents doubled", "scores"),
    node("Slice", "shape zero two zero", "batch"),
    node("Concat", "batch scores", "sizes", axis=0),
]
CONSTANTS = {
    "w": W,
    "table": real(6, 5) * 3,
    "k": whole(2),
    "other": np.abs(real(4, 6)) * 2,
    "cube": real(6, 6, 3),
    "zero": np.float32(0),
    "a": real(4, 6) * 5,
    "b": real(4, 6),
}
EXTENTS = {"zero": whole(0), "two": whole(2), "four": whole(4), "doubled": whole(2, 2), "filter": real(3, 2, 3, 3)}
ROWS = {"w": W, "axis": whole(0), "start": whole(0), "two": whole(2), "rows": real(40, 3), "row": real(1, 3)}
ONE = {"one": whole(1), "three": whole(3)}

# each: nodes, constants, what is added to which tensor
CASES = {
    "gather": ([*BEST, node("Gather", "table index", "picked"), node("Neg", "picked", "y")], CONSTANTS, JUMP),
    "gather elements": (
        [*FIRST, node("GatherElements", "other index", "picked", axis=1), node("Relu", "picked", "y")],
        CONSTANTS,
        JUMP,
    ),
    "gather nd": ([*FIRST, node("GatherND", "cube index", "picked"), node("Neg", "picked", "y")], CONSTANTS, JUMP),
    "scatter nd": (
        [
            SCORES,
            node("ArgMax", "scores", "index", axis=1),
            node("ScatterND", "table index update", "picked"),
            node("Neg", "picked", "y"),
        ],
        CONSTANTS | {"update": real(4, 5) * 4},
        JUMP,
    ),
    "one hot": (
        [*BEST, node("OneHot", "index depth pair", "hot"), node("MatMul", "hot table", "y")],
        CONSTANTS | {"depth": whole(6), "pair": np.array([0, 1], np.float32)},
        JUMP,
    ),
    "where": ([*MASK, node("Where", "mask a b", "picked"), node("Abs", "picked", "y")], CONSTANTS, JUMP),
    "mask that is multiplied": (
        [*MASK, node("Cast", "mask", "ones", to=1), node("Mul", "ones a", "y")],
        CONSTANTS,
        JUMP,
    ),
    "places of a mask": (
        [
            *MASK,
            node("NonZero", "mask", "found"),
            node("Transpose", "found", "places"),
            node("GatherND", "a places", "picked"),
            node("Neg", "picked", "y"),
        ],
        CONSTANTS,
        JUMP,
    ),
    "end of a slice": (
        [
            *LARGEST,
            node("Unsqueeze", "count axis", "end"),
            node("Slice", "rows start end axis", "part"),
            node("ReduceSum", "part", "y", keepdims=0),
        ],
        ROWS,
        RAISED,
    ),
    "start of a slice": (
        [
            *LARGEST,
            node("Unsqueeze", "count axis", "begin"),
            node("Add", "begin two", "end"),
            node("Slice", "rows begin end axis", "part"),
            node("Neg", "part", "y"),
        ],
        ROWS,
        RAISED,
    ),
    "extents of an expand": (
        [
            *LARGEST,
            node("Reshape", "count one", "number"),
            node("Concat", "number three", "sizes", axis=0),
            node("Expand", "row sizes", "wide"),
            node("ReduceSum", "wide", "y", keepdims=0),
        ],
        ROWS | ONE,
        RAISED,
    ),
    "extents computed of a shape": (
        [*SIZES, node("Resize", ["conv", "", "", "sizes"], "large", mode="nearest"), node("Relu", "large", "y")],
        EXTENTS,
        whole(1, 0),
    ),
    "selected boxes": (
        [
            SCORES,
            node("Sigmoid", "scores", "share"),
            node("Slice", "share start one start", "first"),
            node("Unsqueeze", "first start", "row_of_scores"),
            node("NonMaxSuppression", "boxes row_of_scores most overlap least", "found"),
            node("Gather", "found two", "index", axis=1),
            node("Gather", "corners index", "picked"),
            node("Neg", "picked", "y"),
        ],
        {
            "w": W,
            "boxes": BOXES.astype(np.float32),
            "most": whole(3),
            "overlap": np.float32(0.5),
            "least": np.float32(0),
            "start": whole(0),
            "one": whole(1),
            "two": whole(2),
            "corners": real(6, 4),
        },
        np.tile(np.array([0, 4, 0, 5, 0, 0], np.float32), (4, 1)),
    ),
}


def by_node(result):
    return {each.tensor: each for each in result.nodes}


@pytest.mark.parametrize("name", CASES)
def test_the_node_that_made_the_error_is_the_origin_and_those_that_pick_by_it_introduce_nothing(name):
    nodes, constants, error = CASES[name]
    read = {tensor for each in nodes for tensor in each.input}
    feeds = {"x": X} if "x" in read else {"image": real(1, 2, 6, 6)}
    result = compared(nodes, feeds, {key: array for key, array in constants.items() if key in read}, {"scores": error})
    assert (result.verdict.origin, result.verdict.first_divergence) == ("scores", "scores"), result.verdict.sentence
    rounding = {"MatMul", "Conv", "ReduceSum", "Sigmoid"}
    for each in result.nodes:
        assert each.node == "scores" or each.status not in ("diverged", "nonfinite")
        assert each.declared is None, each.declared
        if each.node != "scores" and each.op not in rounding and each.introduced is not None:
            assert each.introduced.mismatches == 0, each.node


def indexed(offset, table_error, table):
    """Gather rows of a table, both of them wrong: the index by the scores, the table by an error of its own."""
    nodes = [
        SCORES,
        node("ArgMax", "scores", "best", axis=1, keepdims=0),
        node("Add", "best offset", "index"),
        node("Mul", "large gain", "table"),
        node("Gather", "table index", "picked"),
        node("Neg", "picked", "y"),
    ]
    constants = {"w": W, "offset": offset, "large": table}
    error = np.full(table.shape, table_error, np.float32)
    return compared(nodes, {"x": X, "gain": real(1, 5)}, constants, {"scores": JUMP, "table": error})


def test_a_wrong_index_is_followed_however_small_its_relative_error_is():
    result = indexed(whole(1500, 1600, 1700, 1800), 0.02, real(2000, 5))
    nodes = by_node(result)
    assert nodes["index"].metrics.rel_l2 < 0.1 * nodes["table"].metrics.rel_l2
    assert result.verdict.origin == "scores"


def test_wrong_data_is_followed_where_the_wrong_index_picks_nearly_the_same():
    result = indexed(whole(0, 0, 0, 0), 0.2, np.repeat(real(1, 5), 2000, 0) + 1e-3 * real(2000, 5))
    assert result.verdict.origin == "table"


def test_the_larger_error_of_a_sum_is_followed_and_not_the_larger_relative_error():
    nodes = [node("Mul", "x small", "p"), node("Mul", "x large", "q"), node("Add", "p q", "y")]
    gains = {"small": np.full((1, 8), 1e-3, np.float32), "large": np.full((1, 8), 10, np.float32)}
    errors = {"p": np.full((4, 8), 1e-3, np.float32), "q": np.full((4, 8), 0.5, np.float32)}
    result = compared(nodes, {"x": X, **gains}, {}, errors)
    assert by_node(result)["p"].metrics.rel_l2 > by_node(result)["q"].metrics.rel_l2
    assert result.verdict.origin == "q"


def test_a_shape_that_differs_is_followed_to_what_sizes_it():
    nodes = [
        *LARGEST,
        node("Unsqueeze", "count axis", "short"),
        node("Add", "short hundred", "end"),
        node("Mul", "many gain", "table"),
        node("Slice", "table start end axis", "part"),
        node("Neg", "part", "y"),
    ]
    constants = {"w": W, "axis": whole(0), "start": whole(0), "hundred": whole(100), "many": real(400, 3)}
    errors = {"scores": RAISED, "table": np.full((400, 3), 0.3, np.float32)}
    result = compared(nodes, {"x": X, "gain": real(1, 3)}, constants, errors)
    nodes = by_node(result)
    assert nodes["part"].status == "incomparable"
    assert nodes["end"].metrics.rel_l2 < nodes["table"].metrics.rel_l2
    assert result.verdict.origin == "scores"


ONES = np.ones((4, 8), np.float32)
NEARLY = np.zeros((8, 6), np.float32)
NEARLY[0] = 1
NEARLY[0, 4] = 1 + 1e-6
HAIR = np.zeros((4, 6), np.float32)
HAIR[1, 2] = 1.5e-6
NEAR = {
    "argmax": ([*BEST, node("Gather", "table index", "picked"), node("Neg", "picked", "y")], "index", "1 of 4"),
    "top k": (
        [*FIRST, node("GatherElements", "other index", "picked", axis=1), node("Neg", "picked", "y")],
        "index",
        "2 of 8",
    ),
    "cast": (
        [
            SCORES,
            node("Cast", "scores", "index", to=7),
            node("Gather", "table index", "picked"),
            node("Neg", "picked", "y"),
        ],
        "index",
        "1 of 24",
    ),
    "greater": (
        [
            SCORES,
            node("Greater", "scores one", "mask"),
            node("NonZero", "mask", "found"),
            node("Transpose", "found", "places"),
            node("GatherND", "a places", "picked"),
            node("Neg", "picked", "y"),
        ],
        "mask",
        "1 of 24",
    ),
}


@pytest.mark.parametrize("name", NEAR)
def test_where_rounding_alone_selects_another_element_no_node_is_at_fault_and_the_difference_is_said(name):
    nodes, selecting, count = NEAR[name]
    read = {tensor for each in nodes for tensor in each.input}
    constants = {"w": NEARLY, "one": np.float32(1), "k": whole(2), "table": real(6, 5), "other": real(4, 6)}
    constants |= {"a": real(4, 6)}
    error = HAIR if name != "cast" else -HAIR
    known = {key: array for key, array in constants.items() if key in read}
    result = compared(nodes, {"x": ONES}, known, {"scores": error})
    assert (result.verdict.origin, result.verdict.first_divergence) == (None, None), result.verdict.sentence
    assert result.status in ("accumulated", "incomplete")
    entry = by_node(result)[selecting]
    assert entry.introduced.mismatches == 0
    (found,) = [each for each in entry.findings if each.kind == "selection"]
    assert found.evidence == "scores"
    assert found.amount < 2e-6
    assert found.sentence.startswith(count)
    assert f"{found.sentence}. That difference is within the limits." in result.verdict.sentence


def test_an_index_that_another_score_accounts_for_is_no_fault_of_the_node_however_large_the_difference_is():
    nodes = [*BEST, node("Gather", "table index", "picked"), node("Neg", "picked", "y")]
    result = compared(nodes, {"x": X}, {"w": W, "table": real(6, 5)}, {"scores": JUMP})
    (found,) = by_node(result)["index"].findings
    assert (found.kind, found.role, found.amount) == ("selection", "note", pytest.approx(9, abs=1e-3))
    assert found.sentence not in result.verdict.sentence


def test_an_index_that_nothing_accounts_for_is_not_said_to_be_selected():
    nodes = [*BEST, node("Gather", "table index", "picked"), node("Neg", "picked", "y")]
    result = compared(nodes, {"x": X}, {"w": W, "table": real(9, 5)}, {"index": whole(1, 0, 2, 1)})
    assert result.verdict.origin == "index"
    assert not [each for node in result.nodes for each in node.findings if each.kind == "selection"]


def test_a_tie_that_rounding_decides_is_said_beside_a_fault_that_it_has_nothing_to_do_with():
    """The output with the largest error is off by the tie alone; the origin is looked for at the one that is wrong."""
    nodes = [
        *BEST,
        node("Gather", "table index", "y"),
        node("Mul", "x gain", "first"),
        node("Relu", "first", "second"),
        node("Neg", "second", "y2"),
        node("Mul", "gain gain", "aside"),
    ]
    constants = {"w": NEARLY, "table": real(6, 5)}
    feeds = {"x": ONES, "gain": np.full((1, 8), 3, np.float32)}
    net = rig.model(nodes, feeds, constants, "y", "y2")
    errors = {"scores": HAIR, "first": np.full((4, 8), 0.3, np.float32), "aside": np.full((1, 8), 90, np.float32)}
    right, wrong = (rig.recorded(net, feeds, constants, each) for each in ({}, errors))
    result = rig.diff(right, wrong)
    nodes = by_node(result)
    assert nodes["y"].metrics.rel_l2 > nodes["y2"].metrics.rel_l2
    assert nodes["aside"].introduced.rel_l2 > nodes["first"].introduced.rel_l2
    assert (result.verdict.origin, result.verdict.first_divergence) == ("first", "first"), result.verdict.sentence
    assert "At ArgMax 'index', 1 of 4 elements differs" in result.verdict.sentence
