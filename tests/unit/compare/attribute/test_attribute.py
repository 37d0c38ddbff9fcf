"""What a node introduces and what reaches it add up to the whole error."""

import numpy as np
import pytest

from qdebug.compare.align.align import align
from qdebug.compare.attribute.attribute import OtherReplays, attribute
from qdebug.compare.attribute.plan import plan
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.model.thresholds.rounding import SEGMENT_ROUNDOFFS

RNG = np.random.default_rng(11)
X = RNG.normal(size=(1, 2, 6, 6)).astype(np.float32)
W = RNG.normal(size=(3, 2, 3, 3)).astype(np.float32)
SX, SW, SY = np.float32(0.03), np.float32(0.02), np.float32(0.05)


def conv(x, w):
    out = np.zeros((1, 3, 4, 4), np.float64)
    for i in range(3):
        for j in range(3):
            out += np.einsum("nchw,oc->nohw", x[:, :, i : i + 4, j : j + 4].astype(np.float64), w[:, :, i, j])
    return out.astype(np.float32)


def codes(values, scale, zero_point, dtype):
    info = np.iinfo(dtype)
    return np.clip(np.rint(values / scale) + zero_point, info.min, info.max).astype(dtype)


def make(nodes, arrays, *, constants=(), quants=None):
    tensors = [
        TensorInfo(
            name=name,
            role=Role.CONSTANT if name in constants else Role.INPUT if name == "x" else Role.ACTIVATION,
            quant=(quants or {}).get(name),
        )
        for name in arrays
    ]
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=nodes[-1].outputs, opset={"": 13})
    return MemoryRecording.single(graph, arrays)


def reference():
    y = conv(X, W)
    return make(
        [
            Node(name="conv", op="Conv", inputs=("x", "w"), outputs=("y",)),
            Node(name="relu", op="Relu", inputs=("y",), outputs=("z",)),
        ],
        {"x": X, "w": W, "y": y, "z": np.maximum(y, 0)},
        constants=("w",),
    )


def backend(*, spoil=0):
    """The same net as one QLinearConv whose codes do the Relu's work; `spoil` codes are added to one element."""
    x_q, w_q = codes(X, SX, 3, np.int8), codes(W, SW, 0, np.int8)
    real = np.maximum(conv(SX * (x_q.astype(np.float32) - 3), SW * w_q.astype(np.float32)), 0)
    z_q = codes(real, SY, 0, np.uint8)
    z_q[0, 1, 2, 3] += spoil
    nodes = [
        Node(name="q", op="QuantizeLinear", inputs=("x", "sx", "zx"), outputs=("x_q",)),
        Node(name="c", op="QLinearConv", inputs=("x_q", "sx", "zx", "w_q", "sw", "zw", "sy", "zy"), outputs=("z_q",)),
    ]
    constants = {"sx": SX, "zx": np.int8(3), "w_q": w_q, "sw": SW, "zw": np.int8(0), "sy": SY, "zy": np.uint8(0)}
    quants = {
        "x_q": QuantParams(dtype="int8", scale=SX, zero_point=3),
        "w_q": QuantParams(dtype="int8", scale=SW),
        "z_q": QuantParams(dtype="uint8", scale=SY),
    }
    arrays = {"x": X, "x_q": x_q, "z_q": z_q, **{name: np.asarray(value) for name, value in constants.items()}}
    return make(nodes, arrays, constants=constants, quants=quants)


def attributed(be, tensor):
    ref = reference()
    entry = next(e for e in plan(ref, be, align(ref, be)) if e.tensor == tensor)
    return attribute(ref, be, entry)


def test_a_clean_quantized_node_introduces_at_most_half_a_step():
    found = attributed(backend(), "z_q")
    assert found.reason is None
    assert found.introduced.max_lsb <= 0.5 + 1e-4
    assert found.propagated.max_abs > 0


def test_a_wrong_element_is_introduced_and_not_propagated():
    clean, spoiled = attributed(backend(), "z_q"), attributed(backend(spoil=9), "z_q")
    assert spoiled.introduced.worst_index == (0, 1, 2, 3)
    assert 8.5 <= spoiled.introduced.max_lsb <= 9.5
    assert spoiled.propagated == clean.propagated


def test_quantizing_the_input_introduces_its_rounding():
    found = attributed(backend(), "x_q")
    assert 0 < found.introduced.max_lsb <= 0.5 + 1e-4
    assert found.propagated.mismatches == 0


def test_an_input_of_the_network_has_no_attribution():
    assert attributed(backend(), "x").introduced is None


@pytest.mark.parametrize(("missing", "said"), [("w_q", "'w_q' was not recorded"), ("x_q", "'x_q' was not recorded")])
def test_an_input_that_was_not_recorded_is_said(missing, said):
    full = backend()
    arrays = {(n, 0, 0): full.load(n) for n in full.names if n != missing}
    partial = MemoryRecording(full.graph, arrays)
    assert said in attributed(partial, "z_q").reason


def test_an_unknown_operator_is_said():
    be = make(
        [
            Node(name="m", op="Mystery", inputs=("x",), outputs=("y",)),
            Node(name="r", op="Relu", inputs=("y",), outputs=("z",)),
        ],
        {"x": X, "y": conv(X, W), "z": conv(X, W)},
    )
    assert attributed(be, "y").reason == "no kernel is known for Mystery"


def in_samples(*runs):
    """Make samples of one run of several."""
    return MemoryRecording(
        runs[0].graph, {(name, at, 0): run.load(name) for at, run in enumerate(runs) for name in run.names}
    )


def split(ref, be, tensor):
    return attribute(ref, be, next(entry for entry in plan(ref, be, align(ref, be)) if entry.tensor == tensor))


def test_a_wrong_element_is_introduced_in_the_sample_that_has_it():
    found = split(in_samples(reference(), reference()), in_samples(backend(), backend(spoil=9)), "z_q")
    assert list(found.samples) == [0, 1]
    assert found.samples[0].introduced == attributed(backend(), "z_q").introduced
    assert found.samples[1].introduced.max_lsb == found.introduced.max_lsb >= 8.5
    assert (found.introduced.worst_sample, found.samples[1].introduced.worst_sample) == (1, 1)


def test_what_rounding_accounts_for_and_what_it_does_not_is_summed_over_samples():
    """One element of the convolution is off in the first sample, and three in the second."""

    def spoiled(count):
        full = reference()
        y = full.load("y").copy()
        y.reshape(-1)[:count] += 1
        return MemoryRecording.single(full.graph, {name: full.load(name) for name in full.names} | {"y": y})

    found = split(in_samples(reference(), reference()), in_samples(spoiled(1), spoiled(3)), "y")
    parts = found.samples.values()
    assert [part.unexplained_elements for part in parts] == [1, 3]
    assert found.unexplained_elements == 4
    assert all(part.allowed > 0 for part in parts)
    assert found.allowed == pytest.approx(np.linalg.norm([part.allowed for part in parts]))


def test_ties_are_counted_over_all_samples():
    x = np.zeros((4, 9), np.float32)
    x[:, [2, 5]] = 1

    def picked(*indices):
        node = Node(name="a", op="ArgMax", inputs=("x",), outputs=("y",), attrs={"axis": 1, "keepdims": 0})
        tensors = [TensorInfo(name="x", role=Role.INPUT), TensorInfo(name="y", dtype="int64")]
        graph = Graph([node], tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 13})
        return MemoryRecording.single(graph, {"x": x, "y": np.int64(indices)})

    first = picked(2, 2, 2, 2)
    found = split(in_samples(first, first), in_samples(picked(2, 5, 2, 2), picked(5, 2, 5, 5)), "y")
    assert [part.tied for part in found.samples.values()] == [1, 3]
    assert found.tied == 4


def test_a_relu_that_is_left_to_later_codes_holds_the_replays_too():
    """What is below zero is no error of either replay: the reference's tensor before its Relu was not recorded."""
    relu = reference()
    arrays = {"x": X, "w": W, "z": np.maximum(conv(X, W), 0)}
    ref = MemoryRecording.single(relu.graph, arrays)
    w = W * np.float32(1.01)
    y, quant = conv(X, w), QuantParams(dtype="uint8", scale=SY)
    be = make(
        [
            Node(name="conv", op="Conv", inputs=("x", "w"), outputs=("z",)),
            Node(name="q", op="QuantizeLinear", inputs=("z", "sy", "zy"), outputs=("z_q",)),
        ],
        {"x": X, "w": w, "z": y, "z_q": codes(y, SY, 0, np.uint8), "sy": SY[...], "zy": np.array(0, np.uint8)},
        constants=("w", "sy", "zy"),
        quants={"z_q": quant},
    )
    entry = next(e for e in plan(ref, be, align(ref, be)) if e.tensor == "z")
    assert (entry.pair.backend_view.clamp_low, entry.pair.backend_view.clamp_high) == (0.0, np.inf)
    found = attribute(ref, be, entry, OtherReplays(as_reference=lambda place: conv(X, W)))
    assert y.min() < -1
    assert found.unexplained_elements == 0
    assert found.arithmetic.max_abs < 1e-5
    assert found.propagated.max_abs < 1e-5
    assert found.constants.max_abs == pytest.approx(0.01 * y.max() / 1.01, rel=1e-3)


def test_beyond_the_codes_of_the_reference_a_float_backend_is_no_error():
    """Where the reference saturates, nobody knows what it would have given: neither side is looked at there."""
    ref, be = backend(), reference()
    ours = 3 * np.maximum(conv(X, W), 0)
    be = MemoryRecording.single(be.graph, {**{name: be.load(name) for name in ("x", "w", "y")}, "z": ours})
    entry = next(e for e in plan(ref, be, align(ref, be)) if e.tensor == "z")
    beyond = ours > SY * 255
    assert beyond.any()
    found = attribute(
        ref, be, entry, OtherReplays(substitute=lambda place: ours + np.float32(5) * beyond, overrides_kernel=True)
    )
    assert found.arithmetic_unsaturated.max_abs == 0
    found = attribute(
        ref, be, entry, OtherReplays(substitute=lambda place: ours + np.float32(5) * (ours == 0), overrides_kernel=True)
    )
    assert found.arithmetic_unsaturated.max_abs == 5


def test_what_a_substitute_replay_may_be_off_grows_with_its_format_and_its_size():
    """What rounding is estimated to make comes to it, and counts for nothing where there are codes."""
    ref, be = reference(), reference()
    entry = next(e for e in plan(ref, be, align(ref, be)) if e.tensor == "y")
    y = conv(X, W)
    found = attribute(ref, be, entry, OtherReplays(substitute=lambda place: y, overrides_kernel=True))
    own = SEGMENT_ROUNDOFFS * 2.0**-24 * np.linalg.norm(y)
    assert found.allowed == pytest.approx(own)
    noise = np.full(y.shape, 0.5)
    others = OtherReplays(substitute=lambda place: y, rounding_noise=lambda place: noise, overrides_kernel=True)
    found = attribute(ref, be, entry, others)
    assert found.allowed == pytest.approx(np.hypot(own, np.linalg.norm(noise)))
    assert (found.constants, found.clipping, found.arithmetic_unsaturated) == (None, None, found.arithmetic)


@pytest.mark.parametrize(("carried", "unexplained"), [(0.0, 1), (2.0, 0)])
def test_an_element_may_be_off_by_what_comes_in_and_by_no_more(carried, unexplained):
    """One large element gives room for rounding that came in with the inputs; if none did, a small one has none."""
    a = np.linspace(1, 2, 64, dtype=np.float32)
    a[0] = 1e6
    ref = make([Node(name="n", op="Neg", inputs=("x",), outputs=("y",))], {"x": a, "y": -a})
    ours = a + np.float32(carried) * (np.arange(64) == 0)
    y = -ours - np.float32(0.05) * (np.arange(64) == 9)
    be = make([Node(name="n", op="Neg", inputs=("x",), outputs=("y",))], {"x": ours, "y": y})
    assert split(ref, be, "y").unexplained_elements == unexplained
