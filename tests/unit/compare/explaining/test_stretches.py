"""A large element-wise node is judged in stretches, with the same answer and little memory."""

import tracemalloc

import numpy as np
import pytest

from qdebug.compare.explaining import stretches
from qdebug.compare.explaining.float_band import judge_float
from qdebug.model import Graph, MemoryRecording, Node

RNG = np.random.default_rng(0)


def added(a, b, *, wrong_row=None):
    node = Node(name="add", op="Add", inputs=("a", "b"), outputs=("y",))
    y = a + b
    if wrong_row is not None:
        y[0, wrong_row] = 0
    y[..., ::7] = np.nextafter(y[..., ::7], np.float32(9))
    recording = MemoryRecording.single(Graph([node], inputs=["a", "b"], outputs=["y"]), {"a": a, "b": b, "y": y})
    return recording, node


def draw(*shape):
    return RNG.standard_normal(shape, np.float32)


@pytest.mark.parametrize("other", [(1, 50, 70), (50, 1), (70,), (), (1, 1, 70)])
def test_stretches_have_the_answer_of_the_whole(other, monkeypatch):
    recording, node = added(draw(1, 50, 70), draw(*other))
    whole = judge_float(recording, node, "y", [(0, 0)])
    monkeypatch.setattr(stretches, "_STRETCH", 300)
    assert len(stretches.in_stretches(recording, node, "y", [(0, 0)]).places()) == 13
    divided = judge_float(recording, node, "y", [(0, 0)])
    assert (divided.match, divided.elements, divided.within) == (whole.match, whole.elements, True)
    assert divided.band.ratio == pytest.approx(whole.band.ratio)


def test_a_wrong_row_is_described_by_its_position_in_the_whole(monkeypatch):
    recording, node = added(draw(1, 50, 70), draw(70), wrong_row=31)
    whole = judge_float(recording, node, "y", [(0, 0)])
    monkeypatch.setattr(stretches, "_STRETCH", 300)
    assert judge_float(recording, node, "y", [(0, 0)]).reason == whole.reason


def test_no_whole_copies_are_held():
    recording, node = added(draw(8, 1 << 20), draw(8, 1 << 20))
    tracemalloc.start()
    try:
        judge_float(recording, node, "y", [(0, 0)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * 8 * (1 << 20) * 4
