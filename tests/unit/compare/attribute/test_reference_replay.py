"""What rounding makes of the reference's nodes is allowed for, and nothing beyond it."""

import math
from dataclasses import replace
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

from qdebug.compare.align.align import align
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.attribute.band import norm, unit_roundoff_of_values
from qdebug.compare.attribute.reference_replay import ReferenceReplay, _add_random_errors, _Noise, exceeds
from qdebug.compare.attribute.segments import SegmentFinder
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.model.thresholds.attribution import COMPUTED_CONSTANT_MAX_NODES
from qdebug.session import DiffSession

RNG = np.random.default_rng(11)
K, N = 40, 24
X = RNG.normal(size=(32, K)).astype(np.float32)
W = (RNG.normal(size=(K, N)) * 0.1).astype(np.float32)
STEP = np.float32(np.abs(W).max() / 127)
CODES = np.round(W / STEP).astype(np.int8)


def recording(weight, output, *, quant=None, relu=False):
    nodes = [Node(name="fc", op="MatMul", inputs=("x", "w"), outputs=("h",), attrs={})]
    nodes.append(Node(name="act", op="Relu" if relu else "Sigmoid", inputs=("h",), outputs=("y",), attrs={}))
    roles = {"x": Role.INPUT, "w": Role.CONSTANT, "h": Role.ACTIVATION, "y": Role.ACTIVATION}
    quants = {"w": quant}
    tensors = [TensorInfo(name=name, role=role, quant=quants.get(name)) for name, role in roles.items()]
    last = np.maximum(output, 0) if relu else 1 / (1 + np.exp(-output))
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
    return MemoryRecording.single(graph, {"x": X, "w": weight, "h": output, "y": last.astype(np.float32)})


def quantized():
    return recording(CODES, X @ (CODES * STEP), quant=QuantParams(dtype="int8", scale=STEP))


def test_a_float_backend_is_within_of_a_quantized_reference():
    result = DiffSession(quantized(), recording(W, X @ W)).result()
    assert result.status is Status.WITHIN, result.verdict.sentence


@pytest.mark.parametrize("column", [0, 11, N - 1])
def test_a_wrong_weight_of_a_float_backend_is_found_with_a_quantized_reference(column):
    wrong = W.copy()
    wrong[:, column] = RNG.permutation(wrong[:, column])
    result = DiffSession(quantized(), recording(wrong, X @ wrong)).result()
    assert result.status is Status.DIVERGED
    assert (result.verdict.first_divergence, result.verdict.origin) == ("fc", "fc")
    assert "elements of weight 'w' differ from the reference" in result.verdict.sentence


def test_weights_rounded_to_half_precision_and_kept_as_float32_are_within():
    half = W.astype(np.float16).astype(np.float32)
    result = DiffSession(recording(W, X @ W), recording(half, X @ half)).result()
    assert result.status is Status.WITHIN, result.verdict.sentence


def test_weights_that_half_precision_would_make_zero_may_be_kept_at_its_least(monkeypatch):
    """Converters put what is below 1e-7 at 1e-7, so that nothing is divided by zero: two steps of the least numbers."""
    x = np.abs(X)
    monkeypatch.setitem(globals(), "X", x)
    dead = np.where(np.arange(N) == 3, np.float32(1e-13), W / 500)
    half = np.where(np.abs(dead) < 1e-7, np.float16(1e-7), dead.astype(np.float16)).astype(np.float32)
    result = DiffSession(recording(dead, x @ dead), recording(half, x @ half)).result()
    assert result.status is Status.WITHIN, result.verdict.sentence


def test_weights_that_are_off_by_more_than_half_precision_are_found():
    off = (W * (1 + 2.0**-7)).astype(np.float16).astype(np.float32)
    result = DiffSession(recording(W, X @ W), recording(off, X @ off)).result()
    assert result.verdict.first_divergence == "fc"


@pytest.mark.parametrize(("narrow", "unit"), [(np.float16, 2.0**-11), (ml_dtypes.bfloat16, 2.0**-8)])
def test_the_format_that_values_were_rounded_to_is_seen_in_their_digits(narrow, unit):
    assert unit_roundoff_of_values(W.astype(narrow).astype(np.float32)) == unit
    assert unit_roundoff_of_values(W.astype(narrow)) == unit
    assert unit_roundoff_of_values(W) == 2.0**-24


@pytest.mark.parametrize("narrow", [np.float16, ml_dtypes.bfloat16])
def test_few_weights_of_like_size_tell_their_format(narrow):
    values = np.random.default_rng(7).uniform(0.4, 1.9, 24).astype(narrow)
    assert unit_roundoff_of_values(values.astype(np.float32)) == float(ml_dtypes.finfo(narrow).eps) / 2


@pytest.mark.parametrize(
    "values",
    [
        np.arange(256, dtype=np.float32),
        (CODES * np.float32(2.0**-7)).astype(np.float32),
        np.zeros(64, np.float32),
        np.ones(64, np.float32),
        np.eye(8, dtype=np.float32),
        RNG.integers(0, 256, (3, 8, 8)).astype(np.float32) / 256,
        np.array([0.5, 0.25], np.float32),
        np.full(64, np.nan, np.float32),
    ],
    ids=["counts", "codes", "zeros", "ones", "identity", "pixels", "few", "nan"],
)
def test_whole_numbers_and_codes_are_of_no_narrow_format(values):
    assert unit_roundoff_of_values(values) == 2.0**-24


def test_a_slice_is_judged_by_itself_where_it_is_large():
    rounding_noise = np.full((8, 64), 0.1)
    difference = np.zeros((8, 64))
    assert not exceeds(difference, rounding_noise)
    difference[3] = 0.25  # less than all the rest together may have
    assert np.linalg.norm(difference) < np.linalg.norm(rounding_noise)
    assert exceeds(difference, rounding_noise)
    difference[3] = 0.15
    assert not exceeds(difference, rounding_noise)
    assert not exceeds(np.full((8, 64), 0.09), rounding_noise)
    assert exceeds(np.full((8, 64), 0.11), rounding_noise)


def test_what_the_codes_of_the_reference_cut_off_is_no_finding():
    """Its range is too narrow: that is its own error, and not the backend's."""
    weight = CODES * STEP
    span = QuantParams(dtype="int8", scale=np.float32(0.005))
    held = np.clip(np.round((X @ weight) / 0.005), -128, 127).astype(np.int8)
    whole = recording(CODES, X @ weight, quant=QuantParams(dtype="int8", scale=STEP))
    tensors = [*(i for n, i in whole.graph.tensors.items() if n != "h")]
    tensors.append(TensorInfo(name="h", role=Role.ACTIVATION, quant=span))
    graph = Graph(whole.graph.nodes, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
    last = (1 / (1 + np.exp(-held * np.float32(0.005)))).astype(np.float32)
    narrow = MemoryRecording.single(graph, {"x": X, "w": CODES, "h": held, "y": last})
    result = DiffSession(narrow, recording(W, X @ W)).result()
    assert [node.node for node in result.nodes if node.declared] == []


def test_the_casts_of_a_half_precision_reference_round_nothing_that_the_backend_has_to():
    casts = [
        Node(name=f"cast_{end}", op="Cast", inputs=(start,), outputs=(end,), attrs={"to": to})
        for start, end, to in (("s", "s16", 10), ("s16", "y", 1))
    ]
    soft = Node(name="soft", op="Softmax", inputs=("x",), outputs=("s",), attrs={"axis": -1})
    infos = [("x", Role.INPUT, "float32"), ("s", Role.ACTIVATION, "float32"), ("s16", Role.ACTIVATION, "float16")]
    infos.append(("y", Role.ACTIVATION, "float32"))
    tensors = [TensorInfo(name=name, role=role, dtype=dtype) for name, role, dtype in infos]
    graph = Graph([soft, *casts], tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
    exact = (np.exp(X) / np.exp(X).sum(-1, keepdims=True)).astype(np.float32)
    half = exact.astype(np.float16)
    reference = MemoryRecording.single(graph, {"x": X, "s": exact, "s16": half, "y": half.astype(np.float32)})
    plain = Node(name="soft", op="Softmax", inputs=("x",), outputs=("y",), attrs={"axis": -1})
    single = Graph([plain], tensors=[tensors[0], tensors[3]], inputs=("x",), outputs=("y",), opset={"": 17})
    result = DiffSession(reference, MemoryRecording.single(single, {"x": X, "y": exact})).result()
    assert result.status is Status.WITHIN, result.verdict.sentence


@pytest.mark.parametrize("times", [1, 2, 16, 60])
def test_weights_rounded_far_too_coarsely_are_a_finding_of_their_own(times):
    step = np.float32(STEP * times)
    codes = np.round(W / step).astype(np.int8)
    backend = recording(codes, X @ (codes * step), quant=QuantParams(dtype="int8", scale=step))
    result = DiffSession(recording(W, X @ W), backend).result()
    if times <= 2:
        assert result.status is Status.WITHIN, result.verdict.sentence
        return
    assert (result.status, result.verdict.first_divergence) == (Status.DIVERGED, "fc")
    used = np.unique(codes).size
    assert f"its weight 'w' uses only {used} of 256 codes; its scale is far too large" in result.verdict.sentence


def test_a_wrong_weight_is_not_called_coarse_where_the_reference_has_the_same_codes():
    """A table of the backend makes the largest of its few codes 3 % too large."""
    codes = RNG.integers(-7, 8, W.shape).astype(np.int8)
    runs = []
    for largest in (1.0, 62 / 60):
        weight = (codes * STEP * np.where(codes == 7, largest, 1)).astype(np.float32)
        nodes = [
            Node(name="dq", op="DequantizeLinear", inputs=("c", "s"), outputs=("w",)),
            Node(name="fc", op="MatMul", inputs=("x", "w"), outputs=("y",)),
        ]
        quant = QuantParams(dtype="int8", scale=STEP)
        tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in ("s", "w")]
        tensors.append(TensorInfo(name="c", role=Role.CONSTANT, quant=quant))
        graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
        arrays = {"x": X, "c": codes, "s": np.float32(STEP), "w": weight, "y": X @ weight}
        runs.append(MemoryRecording.single(graph, arrays))
    fault = DiffSession(*runs).result().diagnosis[0]
    wrong = int(np.count_nonzero(codes == 7))
    assert f"{wrong} of {codes.size} elements of weight 'w' differ from the reference" in fault.why


def with_table(weight, factor, *, turned=False):
    """Make a net that multiplies with a table of cosines, which it computes of a constant, and with a weight."""
    places = np.outer(np.arange(K), np.arange(N)).astype(np.float32)
    angles = (places * factor).astype(np.float32)
    table = np.cos(angles[:, ::-1] if turned else angles).astype(np.float32)
    held = {"x": X, "i": places, "f": factor, "a": angles, "t": table, "w": weight}
    held |= {"h": X @ table, "y": X @ table @ weight}
    nodes = [
        Node(name="angle", op="Mul", inputs=("i", "f"), outputs=("a",), attrs={}),
        Node(name="table", op="Cos", inputs=("a",), outputs=("t",), attrs={}),
        Node(name="turn", op="MatMul", inputs=("x", "t"), outputs=("h",), attrs={}),
        Node(name="fc", op="MatMul", inputs=("h", "w"), outputs=("y",), attrs={}),
    ]
    tensors = [TensorInfo(name=n, role=Role.CONSTANT if n in "ifatw" else Role.ACTIVATION) for n in held]
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
    return MemoryRecording.single(graph, held)


FACTOR = np.float32(2 * np.pi / 61)
SQUARE = RNG.normal(size=(N, N)).astype(np.float32)


def halved(values):
    return np.float32(np.asarray(values).astype(np.float16))


def test_a_table_that_the_model_computes_of_a_constant_in_half_precision_is_within():
    """Angles are large: a factor off by its last digit moves their cosines by a hundred times that."""
    result = DiffSession(with_table(SQUARE, FACTOR), with_table(halved(SQUARE), halved(FACTOR))).result()
    assert result.status is Status.WITHIN, result.verdict.sentence


def test_a_wrong_table_that_the_model_computes_is_found_in_half_precision():
    wrong = with_table(halved(SQUARE), halved(FACTOR), turned=True)
    result = DiffSession(with_table(SQUARE, FACTOR), wrong).result()
    assert (result.status, result.verdict.origin) == (Status.DIVERGED, "turn")


def noise_of(ref, be, tensor, *, beside=()):
    """Return the plain replay and the rounding noise of a backend tensor, as if some others were not compared."""
    pairs = [pair for pair in align(ref, be).pairs if pair.backend not in beside]
    sides = IndexedRecording.of(ref), IndexedRecording.of(be)
    replays = ReferenceReplay(*sides, pairs)
    pair = replays.pairs[tensor]
    segment = SegmentFinder(*sides, replays.pairs).of(pair)
    return replays.values(pair, segment, (0, 0)), replays.rounding_noise(pair, segment, (0, 0))


def test_what_a_network_is_fed_says_nothing_of_how_its_constants_were_rounded(monkeypatch):
    monkeypatch.setitem(globals(), "X", X.astype(np.float16).astype(np.float32))
    other = W * np.float32(1.000001)
    plain, noise = noise_of(recording(W, X @ W), recording(other, X @ other), "h")
    assert norm(noise) < 3e-5 * norm(plain)
    half = W.astype(np.float16).astype(np.float32)
    plain, noise = noise_of(recording(W, X @ W), recording(half, X @ half), "h")
    assert 1e-4 < norm(noise) / norm(plain) < 1e-2


@pytest.mark.parametrize("low", [0, -128])
def test_what_codes_in_between_cut_off_is_noise_and_what_they_do_of_a_relu_is_not(low):
    """Codes of no number below zero do what a Relu does; those of fewer numbers than there are cut off."""
    quant = QuantParams(dtype="uint8" if low == 0 else "int8", scale=np.float32(0.004))
    h = X @ W
    ends = np.float32(0.004) * np.float32([low, low + 255])
    codes = np.clip(np.rint(h / np.float32(0.004)), low, low + 255).astype(quant.dtype)
    whole = recording(W, h)
    tensors = [*(i for n, i in whole.graph.tensors.items() if n != "h"), TensorInfo(name="h", quant=quant)]
    graph = Graph(whole.graph.nodes, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
    y = (1 / (1 + np.exp(-codes * np.float32(0.004)))).astype(np.float32)
    ref = MemoryRecording.single(graph, {"x": X, "w": W, "h": codes, "y": y})
    real = np.maximum(h, 0) if low == 0 else h
    be = MemoryRecording.single(whole.graph, {"x": X, "w": W, "h": real, "y": 1 / (1 + np.exp(-real))})
    plain, noise = noise_of(ref, be, "y", beside=("h",))
    assert plain == pytest.approx(1 / (1 + np.exp(-np.clip(h, *ends))), abs=1e-5)
    cut = np.abs(1 / (1 + np.exp(-real)) - 1 / (1 + np.exp(-np.clip(h, *ends))))
    assert cut.max() > 0.1
    assert noise == pytest.approx(cut, abs=1e-4)


def test_a_constant_that_nodes_in_a_row_make_is_computed_in_the_backend_s_format():
    """Each Reciprocal rounds what it gives to half precision; of very many the last ones alone are looked at."""

    def noise(length):
        table = (np.abs(W) * 4 + np.float32(0.25)).astype(np.float16).astype(np.float32)
        names = ["c0", *(f"c{at}" for at in range(1, length)), "w"]
        nodes = [Node(name=b, op="Reciprocal", inputs=(a,), outputs=(b,)) for a, b in pairwise(names)]
        nodes.append(Node(name="fc", op="MatMul", inputs=("x", "w"), outputs=("y",)))
        tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in names]
        graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
        held = {name: 1 / table if at % 2 else table for at, name in enumerate(names)}
        ref = MemoryRecording.single(graph, {"x": X, **held, "y": X @ held["w"]})
        half = (held["w"] * np.float32(1.001)).astype(np.float16).astype(np.float32)
        bare = Graph(nodes[-1:], tensors=tensors[-1:], inputs=("x",), outputs=("y",), opset={"": 17})
        return norm(noise_of(ref, MemoryRecording.single(bare, {"x": X, "w": half, "y": X @ half}), "y")[1])

    few, most = noise(2), noise(COMPUTED_CONSTANT_MAX_NODES)
    assert most == pytest.approx(few * math.sqrt(COMPUTED_CONSTANT_MAX_NODES / 2), rel=0.3)
    assert noise(4 * COMPUTED_CONSTANT_MAX_NODES) == pytest.approx(most, rel=0.3)


def small(nodes, arrays, *, constants=(), infos=()):
    """Record a small net of nodes that are given as (op, inputs, output)."""
    made = [Node(name=f"n_{out}", op=op, inputs=tuple(read.split()), outputs=(out,)) for op, read, out in nodes]
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    graph = Graph(made, tensors=[*tensors, *infos], inputs=("x",), outputs=(made[-1].outputs[0],), opset={"": 17})
    return MemoryRecording.single(graph, {name: np.asarray(array) for name, array in arrays.items()})


@pytest.mark.parametrize("both", [False, True])
def test_what_is_computed_of_shapes_is_the_backend_s_if_it_was_compared_and_else_the_reference_s(both):
    nodes = [("Shape", "x", "s"), ("ConstantOfShape", "s", "e"), ("Add", "x e", "h"), ("Tanh", "h", "y")]
    e = np.full((32, K), 2, np.float32)
    ref = small(nodes, {"x": X, "s": np.int64(X.shape), "e": e, "h": X + e, "y": np.tanh(X + e)})
    x, own = X * np.float32(0.5), e * np.float32(3)
    ours = nodes if both else [("Add", "x e", "y")]
    be = small(
        ours,
        {"x": x, "s": np.int64(X.shape), "e": own, "h": x + own, "y": np.tanh(x + own)},
        constants=() if both else ("e",),
    )
    plain, _ = noise_of(ref, be, "y", beside=("h",))
    assert plain == pytest.approx(np.tanh(x + (own if both else e)))


def test_a_tensor_that_the_reference_keeps_in_another_shape_is_fed_in_that_shape():
    """A runtime makes one dimension of two before a node; the backend does not."""
    infos = [TensorInfo(name="x", shape=(4, 8, K)), TensorInfo(name="flat", shape=(32, K), stands_for="x")]
    arrays = {"x": X.reshape(4, 8, K), "to": np.int64([32, K]), "flat": X, "y": np.tanh(X)}
    ref = small([("Reshape", "x to", "flat"), ("Tanh", "flat", "y")], arrays, constants=("to",), infos=infos)
    be = small([("Tanh", "x", "y")], {"x": 2 * arrays["x"], "y": np.tanh(2 * arrays["x"])})
    plain, noise = noise_of(ref, be, "y")
    assert plain == pytest.approx(np.tanh(2 * X))
    assert (plain.shape, noise.shape) == (X.shape, X.shape)


def test_a_weight_of_nothing_has_no_error():
    ref, be = (recording(weight, X @ weight) for weight in (W * 0, W * 0))
    replays = ReferenceReplay(IndexedRecording.of(ref), IndexedRecording.of(be), align(ref, be).pairs)
    theirs, ours = ref.graph.nodes[0], be.graph.nodes[0]
    assert replays.weight_error(theirs, ours, []).tolist() == (W * 0).tolist()


@pytest.mark.parametrize("turned", [False, True])
def test_a_weight_of_one_dimension_is_never_turned(turned):
    weight = W[:, 0].copy()
    ref, be = recording(weight, X @ weight), recording(weight, X @ weight)
    replays = ReferenceReplay(IndexedRecording.of(ref), IndexedRecording.of(be), align(ref, be).pairs)
    theirs, ours = ref.graph.nodes[0], be.graph.nodes[0]
    ours = Node(name="fc", op="MatMul", inputs=ours.inputs, outputs=ours.outputs, attrs={"transB": int(turned)})
    assert replays.weight_error(theirs, ours, []).shape == weight.shape


@pytest.mark.parametrize(("size", "draws"), [(1, 4000), (100, 100), (0, 1)])
def test_disturbances_have_the_norm_that_is_allowed(size, draws):
    values = np.full(size, 3.0)
    noise = _Noise(rng=np.random.default_rng(1), constants=2.0**-24, results=2.0**-24, shared=frozenset())
    norms = [norm(_add_random_errors(values, 0.25, noise) - values) for _ in range(draws)]
    assert np.sqrt(np.mean(np.square(norms))) == pytest.approx(0.25 if size else 0.0, rel=0.05)
    half = replace(noise, results=2.0**-11)
    norms = [norm(_add_random_errors(values, 0.0, half) - values) for _ in range(draws)]
    assert np.sqrt(np.mean(np.square(norms))) == pytest.approx(2.0**-11 * norm(values), rel=0.05)


@pytest.mark.parametrize("shared", [True, False])
def test_codes_of_a_weight_that_both_sides_share_bring_no_rounding(shared):
    quant = QuantParams(dtype="int8", scale=STEP)
    constants = {"w": CODES, "s": STEP, "z": np.array(0, np.int8)}
    infos = [TensorInfo(name=name, role=Role.CONSTANT, quant=quant if name == "w" else None) for name in constants]
    node = Node(name="fc", op="DynamicQuantizeMatMul", domain="com.microsoft", inputs=("x", *"wsz"), outputs=("y",))
    graph = Graph([node], tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17, "com.microsoft": 1})
    ref = MemoryRecording.single(graph, {"x": X, **constants, "y": X @ (CODES * STEP)})
    other = small([("MatMul", "x w", "y")], {"x": X, "w": W, "y": X @ W}, constants=("w",))
    plain, noise = noise_of(ref, ref if shared else other, "y")
    assert (norm(noise) < 1e-6 * norm(plain)) == shared


def test_the_error_of_a_rounded_weight_is_that_of_each_element_and_of_keeping_it():
    ref, be = recording(W, X @ W), quantized()
    replays = ReferenceReplay(IndexedRecording.of(ref), IndexedRecording.of(be), align(ref, be).pairs)
    error = replays.weight_error(ref.graph.nodes[0], be.graph.nodes[0], [])
    off = np.abs(CODES * STEP.astype(np.float64) - W)
    assert np.all((error >= off * (1 - 1e-6)) & (error <= STEP / 2))
    assert error == pytest.approx(off, abs=1e-6 * np.abs(W).max())
    off_by_a_code = recording(CODES + np.int8(1), X @ W, quant=QuantParams(dtype="int8", scale=STEP))
    replays = ReferenceReplay(IndexedRecording.of(ref), IndexedRecording.of(off_by_a_code), align(ref, be).pairs)
    assert replays.weight_error(ref.graph.nodes[0], off_by_a_code.graph.nodes[0], []) is None
