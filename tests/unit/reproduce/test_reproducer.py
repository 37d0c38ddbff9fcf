"""Cutting a node out of a run: which arithmetic it is held against, and what of it is kept."""

import numpy as np
import pytest

from qdebug.arithmetic.presets import preset
from qdebug.errors import UsageError
from qdebug.model import Graph, MemoryRecording, Node, Role, RunInfo, TensorInfo
from qdebug.replay import run_graph
from qdebug.replay.evaluate import compute
from qdebug.reproduce.reproducer import make_reproducer

RNG = np.random.default_rng(5)
SCALES = {"s": np.float32(0.02), "ws": np.float32(0.01), "z": np.uint8(128), "wz": np.int8(3), "ys": np.float32(0.11)}
PARAMETERS = ("x", "s", "z", "w", "ws", "wz", "ys", "z")


def conv(name, x, y, weight="w", **attrs):
    inputs = (x, "s", "z", weight, "ws", "wz", "ys", "z", "b")
    return Node(name=name, op="QLinearConv", inputs=inputs, outputs=(y,), attrs=attrs)


def recorded(nodes, x, faults=None, arithmetic="gemmlowp", **constants):
    arrays = {name: np.asarray(value) for name, value in SCALES.items()} | constants
    graph = Graph(
        nodes,
        inputs=["x"],
        outputs=[nodes[-1].outputs[0]],
        tensors=[TensorInfo(name=name, role=Role.CONSTANT) for name in arrays],
        opset={"": 13, "com.microsoft": 1},
    )
    samples = {(name, 0, 0): array for name, array in arrays.items()}
    for sample, feed in enumerate(x):
        samples["x", sample, 0] = feed
        run_graph(
            graph,
            {"x": feed},
            arrays,
            arithmetic=preset(arithmetic).arithmetic,
            faults=faults,
            on_tensor=lambda name, array, sample=sample: samples.__setitem__((name, sample, 0), array),
        )
    return MemoryRecording(graph, samples, RunInfo(backend="npu"))


def images(count=1, channels=4, size=12):
    return [RNG.integers(0, 256, (1, channels, size, size)).astype(np.uint8) for _ in range(count)]


def weights(filters=4, channels=4):
    return {
        "w": RNG.integers(-128, 128, (filters, channels, 3, 3)).astype(np.int8),
        "b": RNG.integers(-3000, 3000, filters).astype(np.int32),
    }


def break_at(*places):
    def fault(outputs):
        codes = outputs[0].copy()
        for place in places:
            codes[place] ^= 7
        return (codes,)

    return fault


def test_a_right_node_is_held_against_what_reproduces_it():
    run = recorded([conv("c", "x", "y", pads=(1, 1, 1, 1))], images(), **weights())
    found = make_reproducer(run, "c")
    assert found.wrong == 0
    assert found.elements == found.recorded.size == 4 * 12 * 12
    assert np.array_equal(found.recorded, found.expected)
    assert found.whole
    assert found.constant == (False, *(True,) * 8)
    assert [array.dtype.name for array in found.inputs[:4]] == ["uint8", "float32", "uint8", "int8"]
    assert make_reproducer(run, "y").node == found.node


def test_a_broken_node_is_held_against_what_reproduces_its_siblings():
    nodes = [conv("c0", "x", "a"), conv("c1", "a", "b0"), conv("c2", "b0", "y")]
    run = recorded(nodes, images(size=40), {"c1": break_at((0, 1, 3, 5), (0, 2, 0, 0))}, **weights())
    found = make_reproducer(run, "c1")
    assert found.evidence == "which reproduces 2 other nodes of its kind in the run"
    assert found.wrong == 2
    assert 1 <= found.max_lsb <= 7
    assert found.variant == make_reproducer(run, "c2").variant
    assert np.array_equal(found.expected, compute(found.unit, preset("gemmlowp").variant("conv")))


def test_a_broken_node_without_siblings_is_held_against_those_of_another_branch():
    depthwise = conv("c1", "a", "y", weight="w1", group=4)
    shallow = RNG.integers(-128, 128, (4, 1, 3, 3)).astype(np.int8)
    wrong = break_at(*((0, channel, row, 0) for channel in range(4) for row in range(20)))
    run = recorded([conv("c0", "x", "a"), depthwise], images(size=40), {"c1": wrong}, w1=shallow, **weights())
    found = make_reproducer(run, "c1")
    assert (found.evidence, found.wrong) == ("which reproduces 1 other node of its kind in the run", 80)
    assert np.array_equal(found.expected, compute(found.unit, preset("gemmlowp").variant("conv")))


def test_a_broken_node_that_is_alone_is_held_against_its_counterpart_in_the_reference_run():
    inputs, constants = images(size=40), weights()
    wrong = break_at(*((0, channel, row, 0) for channel in range(4) for row in range(20)))
    right_run = recorded([conv("c0", "x", "y")], inputs, **constants)
    run = recorded([conv("c0", "x", "y")], inputs, {"c0": wrong}, **constants)
    found = make_reproducer(run, "c0", counterpart=(right_run, "y"))
    assert (found.evidence, found.wrong) == ("which reproduces this node in the reference run", 80)
    assert np.array_equal(found.expected.reshape(-1), right_run.load("y").reshape(-1))
    assert make_reproducer(run, "c0").evidence == "which is the closest known one, and a guess"


def test_the_sample_with_most_errors_is_taken_unless_one_is_named():
    wrong = iter([(), ((0, 0, 0, 0), (0, 0, 1, 1)), ((0, 0, 0, 0),)])

    def fault(outputs):
        return break_at(*next(wrong))(outputs)

    run = recorded([conv("c", "x", "y")], images(3), {"c": fault}, **weights())
    assert make_reproducer(run, "c").place == (1, 0)
    assert make_reproducer(run, "c", sample=2).place == (2, 0)
    assert make_reproducer(run, "c", sample=0).wrong == 0
    with pytest.raises(UsageError, match="Sample 7 of node 'c'"):
        make_reproducer(run, "c", sample=7)


def test_what_cannot_be_computed_is_refused():
    run = recorded([conv("c", "x", "y")], images(), **weights())
    with pytest.raises(UsageError, match="no node 'd'"):
        make_reproducer(run, "d")
    kept = {(name, 0, 0): run.load(name) for name in run.names if name != "w"}
    with pytest.raises(UsageError, match="'w' was not recorded"):
        make_reproducer(MemoryRecording(run.graph, kept), "c")
    cast = Graph([Node(name="k", op="Cast", inputs=("x",), outputs=("k",), attrs={"to": 1})], inputs=["x"])
    plain = MemoryRecording.single(cast, {"x": np.zeros(2, np.uint8), "k": np.zeros(2, np.float32)})
    with pytest.raises(UsageError, match="Node 'k'"):
        make_reproducer(plain, "k")


@pytest.fixture
def small(monkeypatch):
    """Cut everything that has more than a few bytes."""
    monkeypatch.setattr("qdebug.reproduce.reproducer.LARGE_BYTES", 64)


PLACES = ((0, 1, 3, 5), (0, 3, 4, 5), (0, 1, 0, 0))


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"pads": (1, 1, 1, 1)},
        {"pads": (2, 0, 1, 2), "strides": (2, 1)},
        {"pads": (2, 2, 2, 2), "dilations": (2, 2)},
        {"auto_pad": "SAME_UPPER", "strides": (2, 2)},
    ],
)
@pytest.mark.parametrize("first", range(3))
def test_a_large_convolution_is_cut_to_what_the_wrong_elements_read(small, attrs, first):
    places = (*PLACES[first:], *PLACES[:first])
    run = recorded([conv("c", "x", "y", **attrs)], images(size=30), {"c": break_at(*places)}, **weights())
    found = make_reproducer(run, "c")
    assert not found.whole
    assert "filters 1, 3" in found.kept
    assert found.recorded.shape == found.expected.shape
    assert found.recorded.size < found.elements / 4
    assert np.count_nonzero(found.recorded != found.expected) == found.wrong == 3
    assert make_reproducer(run, "c", whole=True).whole


def test_far_errors_are_left_out_of_a_cut(small):
    run = recorded([conv("c", "x", "y")], images(size=64), {"c": break_at((0, 0, 1, 1), (0, 2, 60, 60))}, **weights())
    found = make_reproducer(run, "c")
    assert found.wrong == 2
    assert np.count_nonzero(found.recorded != found.expected) == 1
    assert found.recorded.size == 1


def test_a_convolution_in_groups_keeps_its_filters(small):
    run = recorded(
        [conv("c", "x", "y", group=4)], images(size=30), {"c": break_at((0, 1, 3, 5))}, **weights(channels=1)
    )
    found = make_reproducer(run, "c")
    assert found.recorded.shape == (1, 4, 1, 1)
    assert np.count_nonzero(found.recorded != found.expected) == 1


def test_channels_last_are_turned_before_they_are_cut(small):
    node = Node(
        name="c",
        op="QLinearConv",
        domain="com.microsoft",
        inputs=(*PARAMETERS, "b"),
        outputs=("y",),
        attrs={"channels_last": 1, "pads": (1, 1, 1, 1)},
    )
    feed = [np.moveaxis(images(size=30)[0], 1, -1).copy()]
    found = make_reproducer(recorded([node], feed, {"c": break_at((0, 3, 5, 1), (0, 4, 5, 3))}, **weights()), "c")
    assert found.recorded.shape[1] == 2
    assert np.count_nonzero(found.recorded != found.expected) == 2


def test_a_large_product_is_cut_to_rows_and_columns(small):
    node = Node(name="m", op="QLinearMatMul", inputs=PARAMETERS, outputs=("y",))
    feed = [RNG.integers(0, 256, (20, 30)).astype(np.uint8)]
    run = recorded([node], feed, {"m": break_at((3, 4), (7, 9))}, w=RNG.integers(-9, 9, (30, 25)).astype(np.int8))
    found = make_reproducer(run, "m")
    assert found.recorded.shape == (2, 2)
    assert np.count_nonzero(found.recorded != found.expected) == found.wrong == 2


def test_a_large_sum_is_cut_to_the_wrong_elements(small):
    node = Node(
        name="a",
        op="QLinearAdd",
        domain="com.microsoft",
        inputs=("x", "s", "z", "w", "ws", "z", "ys", "z"),
        outputs=("y",),
    )
    run = recorded([node], images(), {"a": break_at((0, 1, 2, 3), (0, 0, 0, 0))}, w=images()[0])
    found = make_reproducer(run, "a")
    assert found.recorded.shape == (2,)
    assert np.count_nonzero(found.recorded != found.expected) == found.wrong == 2


def test_nothing_is_cut_where_nothing_is_wrong(small):
    assert make_reproducer(recorded([conv("c", "x", "y")], images(), **weights()), "c").whole
