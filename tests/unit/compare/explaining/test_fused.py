"""Layers that a runtime fused: what lies inside is replayed, and the end is held against what was recorded."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.compare.explaining.explain import explain_recording
from qdebug.compare.explaining.explanation import ExplainStatus
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo

IN, OUT, INNER = (np.float32(0.05), 119), (np.float32(0.03), 97), (np.float32(0.02), 140)
RNG = np.random.default_rng(3)
CODES = RNG.integers(0, 256, (4, 96)).astype(np.uint8)


def quant(scale, zero):
    return QuantParams(dtype="uint8", scale=scale, zero_point=zero)


def real(codes, scale, zero):
    return (codes.astype(np.float32) - np.float32(zero)) * scale


def levels(values, scale, zero):
    """Count steps of the range from its low end, as OpenVINO does; not cut to codes."""
    low, high = np.float32(-zero) * scale, np.float32(255 - zero) * scale
    return np.rint(values * (np.float32(255) / (high - low)) + -low * np.float32(255) / (high - low))


def recorded(y, *, inner=False, last="QuantizeLinear", dtype="uint8"):
    """Record the ends of a layer: twice the input plus one, as codes or as it is, with codes inside if asked."""
    nodes = [Node(name="mul", op="Mul", inputs=("x", "two"), outputs=("m",))]
    if inner:
        nodes += [
            Node(name="q", op="QuantizeLinear", inputs=("m", "si", "zi"), outputs=("c",)),
            Node(name="dq", op="DequantizeLinear", inputs=("c", "si", "zi"), outputs=("r",)),
        ]
    nodes.append(Node(name="add", op="Add", inputs=("r" if inner else "m", "one"), outputs=("a",)))
    nodes.append(Node(name="end", op=last, inputs=("a", "s", "z") if dtype == "uint8" else ("a",), outputs=("y",)))
    constants = {"two": np.float32(2), "one": np.float32(1), "si": INNER[0], "zi": np.uint8(INNER[1])}
    constants |= {"s": OUT[0], "z": np.uint8(OUT[1])}
    read = {name for node in nodes for name in node.inputs}
    arrays = {name: np.asarray(value) for name, value in constants.items() if name in read}
    tensors = [TensorInfo(name=name, role=Role.CONSTANT, dtype=array.dtype.name) for name, array in arrays.items()]
    tensors += [TensorInfo(name="x", dtype="uint8", quant=quant(*IN), role=Role.INPUT)]
    tensors += [TensorInfo(name="y", dtype=dtype, quant=quant(*OUT) if dtype == "uint8" else None, role=Role.OUTPUT)]
    tensors += [TensorInfo(name="c", dtype="uint8", quant=quant(*INNER))] if inner else []
    graph = Graph(nodes, tensors=tensors, inputs=["x"], outputs=["y"], opset={"": 13})
    return MemoryRecording.single(graph, {"x": CODES, "y": y, **arrays})


def explained(recording):
    run = explain_recording(recording)
    return run, {node.tensor: node for node in run.nodes}


def sums():
    return real(CODES, *IN) * np.float32(2) + np.float32(1)


def codes(values):
    return np.clip(values, 0, 255).astype(np.uint8)


def test_the_end_of_a_layer_is_explained_with_what_lies_inside():
    run, found = explained(recorded(codes(levels(sums(), *OUT))))
    assert found["y"].status is ExplainStatus.EXPLAINED
    assert "inside fused layers" in found["y"].assumed
    assert found["a"].status is found["m"].status is ExplainStatus.NO_INPUT
    assert "'y'" in found["a"].reason
    assert run.not_looked_at == ()
    assert run.exit_code == 0


def test_codes_that_wrap_around_at_the_end_of_a_layer_are_named():
    values = np.rint(sums() / OUT[0]).astype(np.int64) + OUT[1]
    assert values.min() < 0
    _, found = explained(recorded((values & 255).astype(np.uint8)))
    assert found["y"].status is ExplainStatus.UNEXPLAINED
    assert "wrap" in found["y"].residual.likely


def test_a_quantizer_that_is_left_out_inside_a_layer_is_said():
    run, found = explained(recorded(codes(levels(sums(), *OUT)), inner=True))
    assert found["y"].status is ExplainStatus.EXPLAINED
    assert "without rounding to codes" in found["y"].assumed
    assert run.exit_code == 0


def test_a_quantizer_that_is_computed_inside_a_layer_is_replayed():
    inside = np.clip(np.rint(real(CODES, *IN) * np.float32(2) / INNER[0]) + INNER[1], 0, 255)
    made = levels(real(inside, *INNER) + np.float32(1), *OUT)
    assert np.any(codes(made) != codes(levels(sums(), *OUT)))
    _, found = explained(recorded(codes(made), inner=True))
    assert found["y"].status is ExplainStatus.EXPLAINED
    assert "without rounding to codes" not in found["y"].assumed


@pytest.mark.parametrize(("off", "status"), [(1e-7, ExplainStatus.IN_BAND), (1e-3, ExplainStatus.UNEXPLAINED)])
def test_a_real_end_may_be_off_by_the_rounding_of_the_whole_layer(off, status):
    y = np.maximum(sums(), 0) * np.float32(1 + off)
    _, found = explained(recorded(y, last="Relu", dtype="float32"))
    assert found["y"].status is status


def test_a_wrong_layer_is_unexplained():
    _, found = explained(recorded(codes(levels(sums() * np.float32(1.1), *OUT))))
    assert found["y"].status is ExplainStatus.UNEXPLAINED
    assert found["y"].residual.max_lsb > 1


@pytest.mark.parametrize(("share", "status"), [(0.005, ExplainStatus.IN_BAND), (0.05, ExplainStatus.UNEXPLAINED)])
def test_a_few_codes_behind_real_sums_may_be_one_step_off(share, status):
    weight = RNG.standard_normal((96, 64)).astype(np.float32) / 8
    x = RNG.integers(0, 256, (16, 96)).astype(np.uint8)
    made = codes(levels((real(x, *IN).astype(np.float64) @ weight).astype(np.float32), *OUT))
    off = RNG.random(made.shape) < share
    y = np.where(off & (made > 0) & (made < 255), made + 1, made).astype(np.uint8)
    nodes = [
        Node(name="product", op="MatMul", inputs=("d", "w"), outputs=("m",)),
        Node(name="end", op="QuantizeLinear", inputs=("m", "s", "z"), outputs=("y",)),
    ]
    nodes.insert(0, Node(name="moved", op="Mul", inputs=("x", "one"), outputs=("d",)))
    arrays = {"w": weight, "one": np.float32(1), "s": OUT[0], "z": np.asarray(OUT[1], np.uint8)}
    tensors = [TensorInfo(name=name, role=Role.CONSTANT, dtype=np.asarray(a).dtype.name) for name, a in arrays.items()]
    tensors += [TensorInfo(name="x", dtype="uint8", quant=quant(*IN), role=Role.INPUT)]
    tensors += [TensorInfo(name="y", dtype="uint8", quant=quant(*OUT), role=Role.OUTPUT)]
    graph = Graph(nodes, tensors=tensors, inputs=["x"], outputs=["y"], opset={"": 13})
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    _, found = explained(MemoryRecording.single(graph, {"x": x, "y": y, **arrays}))
    assert found["y"].status is status


def layer(*, bias=1.0, weight=1.0, activation=True):
    """Return a run of one layer, a convolution and Relu, that gave its end alone; with mistakes, if asked for."""
    r = np.random.default_rng(7)
    held = {name: r.normal(size=shape).astype(np.float32) for name, shape in (("w", (8, 3)), ("b", (8,)))}
    x = r.normal(size=(1, 3, 12)).astype(np.float32)
    sums = np.einsum("nct,oc->not", x, held["w"] * np.float32(weight)) + held["b"][:, None] * np.float32(bias)
    y = np.maximum(sums, 0) if activation else sums
    held["w"] = held["w"][:, :, None]
    nodes = [
        Node(name="conv", op="Conv", inputs=("x", "w", "b"), outputs=("inside",)),
        Node(name="relu", op="Relu", inputs=("inside",), outputs=("y",)),
    ]
    infos = [TensorInfo(name=name, dtype="float32", shape=array.shape) for name, array in (("inside", y), ("y", y))]
    infos += [TensorInfo(name=name, dtype="float32", shape=held[name].shape, role=Role.CONSTANT) for name in held]
    infos.append(TensorInfo(name="x", dtype="float32", shape=x.shape, role=Role.INPUT))
    arrays = {(name, 0, 0): array for name, array in {**held, "x": x, "y": y.astype(np.float32)}.items()}
    return MemoryRecording(Graph(nodes, tensors=infos, inputs=["x"], outputs=["y"]), arrays)


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ({"bias": 0}, "the bias is dropped in 'conv' (Conv), inside the layer"),
        ({"bias": 2}, "the bias is added twice in 'conv' (Conv), inside the layer"),
        ({"activation": False}, "Relu 'relu' is left out, inside the layer"),
    ],
)
def test_a_mistake_inside_a_real_layer_is_named_with_its_node(mistake, said):
    _, relu = explain_recording(layer(**mistake)).nodes
    assert relu.status == "unexplained"
    assert f"{said} (reproduces every element)" in relu.reason


def test_a_right_layer_and_one_of_unknown_mistakes_are_not_accused_of_one():
    assert explain_recording(layer()).nodes[1].status == "in_band"
    _, relu = explain_recording(layer(weight=1.3)).nodes
    assert (relu.status, "likely" in relu.reason) == ("no_input", False)


def test_a_scale_of_weights_that_is_read_for_all_channels_is_named_inside_a_layer():
    r = np.random.default_rng(9)
    arrays = {
        "w": r.integers(-127, 128, (8, 3)).astype(np.int8),
        "s": r.uniform(0.002, 0.006, 8).astype(np.float32),
        "z": np.zeros(8, np.int8),
        "x": r.normal(size=(3, 40)).astype(np.float32),
    }
    arrays["y"] = np.maximum((arrays["w"] * arrays["s"][0]).astype(np.float32) @ arrays["x"], 0)
    nodes = [
        Node(name="weight", op="DequantizeLinear", inputs=("w", "s", "z"), outputs=("d",), attrs={"axis": 0}),
        Node(name="product", op="MatMul", inputs=("d", "x"), outputs=("p",)),
        Node(name="relu", op="Relu", inputs=("p",), outputs=("y",)),
    ]
    tensors = [TensorInfo(name=name, role=Role.CONSTANT, dtype=str(arrays[name].dtype)) for name in ("w", "s", "z")]
    graph = Graph(nodes, tensors=tensors, inputs=["x"], outputs=["y"], opset={"": 21})
    (told,) = [each for each in explain_recording(MemoryRecording.single(graph, arrays)).nodes if each.node == "relu"]
    assert "the first element of 's' along axis 0 is read for all positions in 'weight'" in told.reason
