"""Operators on codes that probes have no net of, as LiteRT and TFLite Micro compute them: each is explained."""

import numpy as np
import pytest

import qdebug
from qdebug.backends import load_backend, write_model
from qdebug.errors import MissingExtraError
from qdebug.model import Graph, Node, QuantParams, Role, TensorInfo
from qdebug.running.record import record_run

pytest.importorskip("ai_edge_litert", reason="needs the extra litert")

RUNTIMES = [*(("litert", {"kernels": kernels}) for kernels in ("xnnpack", "builtin", "reference")), ("tflm", {})]
SHAPE = (1, 12, 12, 16)
WINDOW = {"padding": "VALID", "stride_w": 1, "stride_h": 1, "filter_width": 3, "filter_height": 3}
SCALES = {"x0": (0.05, 3), "x1": (0.031, -7)}


def codes(name, scale, zero, shape, role=Role.ACTIVATION):
    quant = QuantParams(dtype="int8", scale=np.float32([scale]), zero_point=np.array([zero]))
    return TensorInfo(name=name, shape=shape, dtype="int8", role=role, quant=quant)


def found(folder, backend, options, node, out):
    """Run a node on random codes and explain it."""
    try:
        load_backend(backend)
    except MissingExtraError as error:
        pytest.skip(f"needs the extra {error.extra}")
    rng = np.random.default_rng(5)
    fed = {name: rng.integers(-128, 128, SHAPE).astype(np.int8) for name in node.inputs}
    infos = [codes(name, *SCALES[name], SHAPE, Role.INPUT) for name in fed]
    graph = Graph([node], tensors=[*infos, out], inputs=node.inputs, outputs=("y",), name="one")
    write_model(graph, {}, folder / "one.tflite")
    record_run(folder / "one.tflite", backend=backend, options=options, inputs=fed, out=folder / "one.h5")
    (entry,) = [each for each in qdebug.explain(folder / "one.h5").nodes if each.op == node.op]
    recording = qdebug.open_recording(folder / "one.h5")
    return entry, recording.load("y")


@pytest.mark.parametrize(("backend", "options"), RUNTIMES, ids=str)
@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL", "AVERAGE_POOL_2D", "MAX_POOL_2D"])
@pytest.mark.parametrize(
    ("activation", "low", "high"),
    [
        pytest.param("RELU", 0, 99, marks=pytest.mark.slow),
        pytest.param("RELU6", 0, 6, marks=pytest.mark.slow),
        ("RELU_N1_TO_1", -1, 1),
    ],
)
def test_a_fused_activation_moves_the_ends_of_the_range(tmp_path, backend, options, op, activation, low, high):
    pool = "POOL" in op
    attrs = {"fused_activation_function": activation, **(WINDOW if pool else {})}
    node = Node(name="n", op=op, inputs=("x0",) if pool else ("x0", "x1"), outputs=("y",), attrs=attrs)
    shape = (1, 10, 10, 16) if pool else SHAPE
    scale, zero = SCALES["x0"] if pool else (0.06, -5)
    entry, made = found(tmp_path, backend, options, node, codes("y", scale, zero, shape))
    assert (int(made.min()) - zero) * scale >= low - scale / 2
    assert (int(made.max()) - zero) * scale <= high + scale / 2
    assert entry.status == "explained"
