"""Sums whose last vector of terms reads on behind a row, operands of another width, windows that read on in memory."""

from __future__ import annotations

import numpy as np
import pytest

import qdebug
from qdebug.arithmetic.mistakes.tails import tail_mistakes
from qdebug.arithmetic.mistakes.widths import width_mistakes
from qdebug.arithmetic.mistakes.window_memory import memory_mistakes
from qdebug.arithmetic.patterns.wrong_places import may_be_confined
from qdebug.model import Graph, MemoryRecording, Node, Role, RunInfo, TensorInfo
from qdebug.replay.registry import run_node

RNG = np.random.default_rng(3)


def real(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def node(op, inputs, **attrs):
    return Node(name="node", op=op, inputs=tuple(inputs.split()), outputs=("y",), attrs=attrs)


def results(mistakes, values):
    made = {}
    for mistake in mistakes:
        result = run_node(mistake.node, {**values, **mistake.values}, {"": 21})["y"]
        made[mistake.likely] = mistake.after(result)
    return made


def recorded(node, values, result):
    tensors = [
        TensorInfo(name=name, role=Role.INPUT if name == "x" else Role.CONSTANT, dtype=array.dtype.name)
        for name, array in values.items()
    ]
    graph = Graph([node], inputs=["x"], outputs=["y"], tensors=tensors, opset={"": 21})
    return MemoryRecording.single(graph, {**values, "y": result}, RunInfo(backend="chip"))


def why(node, values, wrong):
    right = run_node(node, values, {"": 21})["y"]
    return (
        qdebug.diff(recorded(node, values, right), recorded(node, values, wrong.astype(right.dtype))).diagnosis[0].why
    )


def longer(rows, count):
    memory = np.append(rows.reshape(-1), np.zeros(count, rows.dtype))
    return np.stack([memory[at * rows.shape[1] :][: rows.shape[1] + count] for at in range(len(rows))])


def test_the_tail_of_a_product_is_the_next_row():
    values = {"x": real(5, 13), "w": real(6, 13)}
    made = results(tail_mistakes(node("Gemm", "x w", transB=1), values), values)
    text = "each sum includes the 3 elements behind its 13 terms in memory (a tail that is not set to 0)"
    np.testing.assert_allclose(made[text], longer(values["x"], 3) @ longer(values["w"], 3).T, rtol=1e-4, atol=1e-5)


def test_the_tail_of_a_product_in_one_tile_with_garbage_behind_the_last_row():
    values = {"x": real(9, 13), "w": real(14, 13)}
    gemm = node("Gemm", "x w", transB=1)
    left, right = longer(values["x"], 3), longer(values["w"], 3)
    left[-1, -3:], right[-1, -3:] = 3, 5
    whole = why(gemm, values, left @ right.T)
    assert "the 3 elements behind its 13 terms" in whole
    assert "reproduces every element that does not depend on unknown memory" in whole
    tile = values["x"] @ values["w"].T
    tile[:, :8] = (left @ right.T)[:, :8]
    tile[-1] = (values["x"] @ values["w"].T)[-1]
    assert "only in the first 8" in why(gemm, values, tile)


@pytest.mark.parametrize(("op", "scale"), [("ReduceSum", 1), ("ReduceMean", 1 / 13)])
def test_the_tail_of_a_row(op, scale):
    values = {"x": real(9, 13), "a": np.array([1])}
    made = results(tail_mistakes(node(op, "x a", keepdims=0), values), values)
    (found,) = [each for text, each in made.items() if "the 3 elements" in text]
    np.testing.assert_allclose(found, longer(values["x"], 3).sum(1) * scale, rtol=1e-4, atol=1e-5)


def test_the_tail_of_a_patch():
    values = {"x": real(1, 3, 5, 4), "w": real(2, 3, 2, 2)}
    made = results(tail_mistakes(node("Conv", "x w"), values), values)
    (found,) = [each for text, each in made.items() if "the 4 elements" in text and text.endswith(")")]
    patches = np.lib.stride_tricks.sliding_window_view(values["x"][0], (2, 2), (1, 2))
    rows = patches.transpose(1, 2, 0, 3, 4).reshape(-1, 12)
    expected = (longer(rows, 4) @ longer(values["w"].reshape(2, 12), 4).T).T.reshape(1, 2, 4, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_an_operand_of_another_width():
    z = np.arange(1, 7, dtype=np.int32)
    mistakes = {each.likely: each for each in width_mistakes(node("Add", "x z"), {"x": z, "z": z})}
    second = mistakes["only every second element of 'z' is read, as if elements were 2 times as wide"]
    assert second.values["z"].tolist() == [1, 3, 5, 0, 0, 0]
    assert second.unread["z"].tolist() == [False] * 3 + [True] * 3
    assert not np.any(second.with_other_unread().values["z"][3:] == 0)
    pairs = mistakes["'z' is read as int64, not int32: 2 elements as one"].values["z"]
    assert pairs[0] == 1 + (2 << 32)
    halves = mistakes["'z' is read as int16, not int32: parts of its elements"].values["z"]
    assert halves.tolist() == [1, 0, 2, 0, 3, 0]


def test_a_condition_that_is_read_on_without_broadcast():
    values = {"x": real(20, 12), "c": RNG.random((20, 1)) < 0.5, "o": real(20, 12)}
    where = node("Where", "c x o")
    behind = np.append(values["c"].reshape(-1), np.zeros(220, bool)).reshape(20, 12)
    assert "'c' is read on in memory, not broadcast" in why(where, values, np.where(behind, values["x"], values["o"]))
    unwritten = np.where(values["c"], values["x"], values["o"])
    unwritten[12:] = values["o"][12:]
    assert "inverted" not in why(where, values, unwritten)


@pytest.mark.parametrize(
    ("reach", "behind"), [("within each row", (0, 1, 1, 0)), ("above and below each plane", (0, 1, 0, 1))]
)
def test_the_end_of_an_image_reads_on(reach, behind):
    x, w = real(1, 2, 3, 3), np.zeros((1, 2, 2, 2), np.float32)
    at_side = reach.startswith("within")
    w[0, 1, *((0, 1) if at_side else (1, 0))] = 1  # takes what is right of an element, or below it
    made = results(memory_mistakes(node("Conv", "x w", pads=(0, 0, 1, 1)), {"x": x, "w": w}), {"x": x, "w": w})
    found = made[f"the padding {reach} is read from the channels-first memory around it instead of being empty"]
    place = (0, 0, 0, 2) if at_side else (0, 0, 2, 1)
    assert found[place] == (x[behind] if at_side else 0)  # nothing is known behind the last plane


def test_rows_of_a_window_that_are_a_wrong_distance_apart():
    x, w = real(1, 1, 4, 5), np.zeros((1, 1, 2, 1), np.float32)
    w[0, 0, 1] = 1
    made = results(memory_mistakes(node("Conv", "x w"), {"x": x, "w": w}), {"x": x, "w": w})
    found = made["the rows of each window are read 4 elements apart, not 5 as the rows are"]
    assert np.array_equal(found.reshape(-1), x.reshape(-1)[4:19])


def test_a_mistake_in_a_place():
    is_wrong = np.zeros((8, 12), bool)
    is_wrong[5:, ::2] = True
    outside = np.zeros_like(is_wrong)
    outside[:5] = True
    assert may_be_confined(is_wrong, outside)
    positions = np.arange(96).reshape(8, 12) >= 70
    assert may_be_confined(positions, ~positions)
    assert not may_be_confined(RNG.random((8, 12)) < 0.5, np.ones((8, 12), bool))
