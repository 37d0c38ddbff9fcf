"""Graphs of one network that turn its tensors at other places are compared in one order of dimensions."""

import numpy as np
import pytest

from qdebug.compare.align.align import align
from qdebug.compare.align.layouts import in_one_order
from qdebug.compare.align.pairs import Transform
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.session import DiffSession

RNG = np.random.default_rng(5)
X = RNG.normal(size=(1, 4, 4, 4)).astype(np.float32)
G = RNG.uniform(0.5, 2, size=(4, 1, 1)).astype(np.float32)
TURN = (0, 2, 1, 3)


def node(op, inputs, output, *, domain="", **attrs):
    return Node(name=f"n_{output}", op=op, inputs=tuple(inputs.split()), outputs=(output,), attrs=attrs, domain=domain)


def recording(nodes, arrays, *, layouts=None):
    made = {name for n in nodes for name in n.outputs}
    roles = {name: Role.ACTIVATION if name in made else Role.CONSTANT for name in arrays} | {"x": Role.INPUT}
    tensors = [TensorInfo(name=name, role=roles[name], layout=(layouts or {}).get(name)) for name in arrays]
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=nodes[-1].outputs, opset={"": 17})
    return MemoryRecording.single(graph, arrays)


def early():
    nodes = [
        node("Relu", "x", "r"),
        node("Transpose", "r", "t", perm=TURN),
        node("Mul", "t g", "scaled"),
        node("Mul", "scaled scaled", "squared"),
        node("ReduceSum", "squared axes", "summed", keepdims=0),
        node("Sqrt", "summed", "y"),
    ]
    positive = np.maximum(X, 0)
    scaled = positive.transpose(TURN) * G
    summed = np.square(scaled).sum(3)
    values = {"r": positive, "t": positive.transpose(TURN), "scaled": scaled, "squared": scaled**2, "summed": summed}
    axes = np.array([3], np.int64)
    return recording(nodes, {"x": X, "g": G, "axes": axes, **values, "y": np.sqrt(summed)})


def late(axis=3):
    """The same net with its Transpose moved past all that follows; with another axis it sums what it should not."""
    positive = np.maximum(X, 0)
    scale = G.reshape(1, 1, 4, 1)
    scaled = positive * scale
    summed = np.square(scaled).sum(axis)
    nodes = [
        node("Relu", "x", "r"),
        node("Mul", "r g2", "scaled"),
        node("Mul", "scaled scaled", "squared"),
        node("ReduceSum", "squared axes", "summed", keepdims=0),
        node("Sqrt", "summed", "rooted"),
        node("Transpose", "rooted", "y", perm=(0, 2, 1)),
    ]
    values = {"r": positive, "scaled": scaled, "squared": scaled**2, "summed": summed, "rooted": np.sqrt(summed)}
    axes = np.array([axis], np.int64)
    arrays = {"x": X, "g2": scale, "axes": axes, **values, "y": np.sqrt(summed).transpose(0, 2, 1)}
    return recording(nodes, arrays)


@pytest.mark.parametrize("way", ["there", "back"])
def test_a_transpose_moved_past_arithmetic_and_a_sum_is_followed(way):
    """All extents are equal, so that no shape tells that a tensor lies the other way."""
    sides = (early(), late()) if way == "there" else (late(), early())
    result = DiffSession(*sides).result()
    assert result.status in (Status.IDENTICAL, Status.WITHIN), result.verdict.sentence
    assert not [entry for entry in result.coverage.unmatched if entry.kind == "lost"]
    assert {"scaled", "squared", "summed", "y"} <= {entry.tensor for entry in result.nodes}
    assert all(entry.metrics.sqnr_db is None or entry.metrics.sqnr_db > 100 for entry in result.nodes)


def test_a_sum_over_another_dimension_is_still_seen():
    result = DiffSession(early(), late(axis=1)).result()
    assert result.status is Status.DIVERGED
    assert result.verdict.first_divergence == "n_summed"


@pytest.mark.parametrize("opset13", [False, True])
@pytest.mark.parametrize("way", ["there", "back"])
def test_a_squeeze_of_a_turned_tensor_hands_the_order_on(way, opset13):
    x = RNG.normal(size=(1, 4, 1, 4)).astype(np.float32)
    positive, flat = np.maximum(x, 0), np.maximum(x, 0)[:, :, 0]
    plain = recording(
        [
            node("Relu", "x", "r"),
            node("Squeeze", "r", "s", axes=(2,)),
            node("Transpose", "s", "t", perm=(0, 2, 1)),
            node("Exp", "t", "y"),
        ],
        {"x": x, "r": positive, "s": flat, "t": flat.transpose(0, 2, 1), "y": np.exp(flat.transpose(0, 2, 1))},
    )
    last = positive.transpose(0, 2, 3, 1)
    squeeze = node("Squeeze", "r axes", "s2") if opset13 else node("Squeeze", "r", "s2", axes=(1,))
    turn = node("Transpose", "x", "xt", perm=(0, 2, 3, 1))
    turned = recording(
        [turn, node("Relu", "xt", "r"), squeeze, node("Exp", "s2", "y")],
        {"x": x, "xt": x.transpose(0, 2, 3, 1), "r": last, "s2": last[:, 0], "y": np.exp(last[:, 0])}
        | ({"axes": np.array([1], np.int64)} if opset13 else {}),
    )
    result = DiffSession(*((plain, turned) if way == "there" else (turned, plain))).result()
    assert result.status is Status.IDENTICAL, result.verdict.sentence
    assert result.exit_code == 0


@pytest.mark.parametrize("way", ["there", "back"])
def test_a_reorder_that_reads_channels_last_is_a_transpose_as_well(way):
    x = RNG.normal(size=(1, 3, 4, 5)).astype(np.float32)  # N, H, W, C
    positive, second = np.maximum(x, 0), np.maximum(x, 0).transpose(0, 3, 1, 2)
    blocked = np.zeros((1, 16, 3, 4), np.float32)
    blocked[:, :5] = second
    stored = blocked.reshape(1, 1, 16, 3, 4).transpose(0, 1, 3, 4, 2).reshape(blocked.shape)
    last = [node("Sigmoid", "t", "y")], {"y": 1 / (1 + np.exp(-second))}
    plain = recording(
        [node("Relu", "x", "r"), node("Transpose", "r", "t", perm=(0, 3, 1, 2)), *last[0]],
        {"x": x, "r": positive, "t": second, **last[1]},
    )
    reordered = recording(
        [
            node("Relu", "x", "r"),
            node("ReorderInput", "r", "b", domain="com.microsoft.nchwc", channels_last=1),
            node("ReorderOutput", "b", "t2", domain="com.microsoft.nchwc", channels_last=0),
            node("Sigmoid", "t2", "y"),
        ],
        {"x": x, "r": positive, "b": stored, "t2": second, **last[1]},
        layouts={"b": "NCHW16c"},
    )
    sides = (plain, reordered) if way == "there" else (reordered, plain)
    result = DiffSession(*sides).result()
    assert (result.status, result.exit_code) == (Status.IDENTICAL, 0), result.verdict.sentence
    if way == "there":
        pair = next(pair for pair in align(*sides).pairs if pair.backend == "b")
        assert (pair.reference, pair.backend_view) == ("t", Transform(channel_block=16))


def test_blocks_of_channels_are_compared_whether_both_declare_them_or_one_shows_them():
    stored = RNG.normal(size=(1, 16, 3, 4)).astype(np.float32)
    view = Transform(channel_block=16)
    theirs, ours = in_one_order(stored, view, stored.reshape(1, 1, 3, 4, 16), view)
    np.testing.assert_array_equal(theirs, ours)
    theirs, ours = in_one_order(stored, view, stored[:, :8], view)
    assert theirs.shape != ours.shape


def test_neighbouring_dimensions_may_be_one_on_the_other_side():
    matrix = RNG.normal(size=(6, 4)).astype(np.float32)
    np.testing.assert_array_equal(in_one_order(matrix.reshape(2, 3, 4), None, matrix, None)[1], matrix.reshape(2, 3, 4))
    np.testing.assert_array_equal(in_one_order(matrix, None, matrix.reshape(2, 3, 4), None)[1], matrix)
    assert in_one_order(matrix.reshape(2, 3, 4), None, matrix.reshape(4, 6), None)[1].shape == (4, 6)
    assert in_one_order(matrix.reshape(2, 3, 4), None, matrix.reshape(3, 8), None)[1].shape == (3, 8)


def read_by(reader, perm):
    """A Transpose, and what reads it by the places of its dimensions; all extents are equal."""
    turned = X.transpose(perm)
    held = {"w": G.reshape(4, 1) @ np.ones((1, 4), np.float32)} if reader == "MatMul" else {"w": np.array([1, 64])}
    read = turned @ held["w"] if reader == "MatMul" else turned.reshape(1, 64)
    nodes = [node("Transpose", "x", "t", perm=perm), node(reader, "t w", "m"), node("Neg", "m", "y")]
    return recording(nodes, {"x": X, **held, "t": turned, "m": read, "y": -read})


@pytest.mark.parametrize("reader", ["MatMul", "Reshape"])
def test_a_transpose_that_turns_wrongly_is_found_though_no_extent_tells(reader):
    found = DiffSession(read_by(reader, TURN), read_by(reader, (0, 2, 3, 1))).result()
    assert (found.verdict.first_divergence, found.verdict.origin) == ("n_t", "n_t")
    assert "its perm is (0, 2, 3, 1); the reference's is (0, 2, 1, 3)" in found.verdict.sentence
    assert DiffSession(read_by(reader, TURN), read_by(reader, TURN)).result().status is Status.IDENTICAL


def test_a_constant_that_several_nodes_read_names_none_of_them():
    """Positions are rotated by one table everywhere: a node that reads it may be any of those that do."""
    table = RNG.uniform(0.5, 2, size=(1, 1, 8, 16)).astype(np.float32)
    x = RNG.normal(size=(1, 8, 2, 16)).astype(np.float32)
    turned = x.transpose(TURN)
    low, high = turned * table, -turned * table
    then = {"t": turned, "low": low, "neg": -turned, "high": high, "once": low + high, "again": (low + high) * table}
    arrays = {"x": x, "k": table, **then, "y": np.tanh(then["again"])}
    turning = node("Transpose", "x", "t", perm=TURN)
    rest = [
        node("Neg", "t", "neg"),
        node("Mul", "neg k", "high"),
        node("Add", "low high", "once"),
        node("Mul", "once k", "again"),
        node("Tanh", "again", "y"),
    ]
    late = [node("Mul", "x k2", "early"), node("Transpose", "early", "low", perm=TURN)]
    more = {"k2": table.transpose(TURN), "early": x * table.transpose(TURN)}
    backend = recording([turning, *late, *rest], {**arrays, **more})
    reference = recording([turning, *rest[:2], node("Mul", "t k", "low"), *rest[2:]], arrays)
    session = DiffSession(reference, backend)
    partners = {pair.backend: pair.reference for pair in session.alignment.pairs}
    assert partners["low"] == "low"
    assert partners.get("early", "low") == "low"
    assert session.result().exit_code == 0, session.result().verdict.sentence


def joined(*, turned, swapped=False):
    """Record Concat(Relu(x), Neg(x)) along the channels, which lie last if it is turned."""
    order = (0, 2, 3, 1) if turned else (0, 1, 2, 3)
    x = X.transpose(order)
    parts = {"r": np.maximum(x, 0), "n": -x}
    first, second = ("n", "r") if swapped else ("r", "n")
    axis = 3 if turned else 1
    made = np.concatenate([parts[first], parts[second]], axis)
    nodes = [node("Transpose", "x", "t", perm=order)] if turned else []
    start = "t" if turned else "x"
    nodes += [
        node("Relu", start, "r"),
        node("Neg", start, "n"),
        node("Concat", f"{first} {second}", "j", axis=axis),
        node("Tanh", "j", "y"),
    ]
    arrays = {"x": X, **({"t": x} if turned else {}), **parts, "j": made, "y": np.tanh(made)}
    return recording(nodes, arrays)


def test_an_axis_of_a_turned_tensor_is_no_other_axis():
    assert DiffSession(joined(turned=False), joined(turned=True)).result().exit_code == 0
    result = DiffSession(joined(turned=False), joined(turned=True, swapped=True)).result()
    assert result.verdict.origin == "n_j", result.verdict.sentence
    assert all(found.evidence != "axis" for row in result.nodes for found in row.findings), result.verdict.sentence


def test_extents_in_another_order_are_not_called_wrong():
    """Whether a tensor was turned or its extents are wrong does not show in the extents."""

    def run(*shape):
        x = np.arange(24, dtype=np.float32)[None] / 24
        nodes = [node("Reshape", "x k", "r"), node("Tanh", "r", "y")]
        arrays = {"x": x, "k": np.array(shape), "r": x.reshape(shape), "y": np.tanh(x.reshape(shape))}
        return recording(nodes, arrays)

    rows = {row.tensor: row for row in DiffSession(run(1, 2, 3, 4), run(1, 3, 4, 2)).results()}
    assert (rows["r"].status, rows["r"].declared) == (Status.INCOMPARABLE, None)


def test_an_order_that_a_partner_contradicts_is_not_handed_on():
    """Below a Transpose that was moved past a Reshape, extents may be equal again in any order."""
    x = RNG.normal(size=(1, 2, 16)).astype(np.float32)
    r = np.maximum(x, 0)
    s = r.reshape(1, 2, 4, 4)
    e = np.concatenate([s, s], axis=1)
    last = [node("Concat", "s s", "e", axis=1), node("Exp", "e", "y")], {"s": s, "e": e, "y": np.exp(e)}
    shapes = {"second": np.array([1, 2, 4, 4]), "last": np.array([1, 4, 4, 2])}
    plain = recording(
        [node("Relu", "x", "r"), node("Reshape", "r second", "s"), *last[0]],
        {"x": x, "r": r, "second": shapes["second"], **last[1]},
    )
    turned = recording(
        [
            node("Transpose", "x", "xt", perm=(0, 2, 1)),
            node("Relu", "xt", "rt"),
            node("Reshape", "rt last", "st"),
            node("Transpose", "st", "s", perm=(0, 3, 1, 2)),
            *last[0],
        ],
        {"x": x, "xt": x.transpose(0, 2, 1), "rt": r.transpose(0, 2, 1), "st": s.transpose(0, 2, 3, 1)}
        | {"last": shapes["last"], **last[1]},
    )
    result = DiffSession(plain, turned).result()
    assert result.exit_code == 0, result.verdict.sentence
    assert all(pair.backend_view is None for pair in align(plain, turned).pairs if pair.backend in "sey")
