"""A streaming net with a state per block, in int8, and its recording at many steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from qdebug.running.record import record_run

CHANNELS, BLOCKS, CLASSES, KEPT = 32, 4, 12, 2
"""Channels, blocks, classes, and frames that a block keeps from one step to the next."""


def _float_net(path: Path) -> None:
    """Write the net in float: each block joins its kept frames to the new one, convolves, and adds what it read."""
    rng = np.random.default_rng(0)
    nodes, constants = [], []

    def constant(name: str, array: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(array, name))
        return name

    def weights(name: str, *shape: int, scale: float) -> str:
        return constant(name, (rng.standard_normal(shape) * scale).astype(np.float32))

    def node(op: str, inputs: list[str], output: str, **attrs: object) -> str:
        nodes.append(helper.make_node(op, inputs, [output], name=output, **attrs))
        return output

    value = "x"
    for b in range(BLOCKS):
        joined = node("Concat", [f"s{b}", value], f"joined{b}", axis=2)
        ends = [constant(f"{name}{b}", np.array([at], np.int64)) for name, at in (("from", 1), ("to", 3), ("axis", 2))]
        node("Slice", [joined, *ends], f"s{b}_out")
        along = [joined, weights(f"wd{b}", CHANNELS, 1, 3, scale=0.5), weights(f"bd{b}", CHANNELS, scale=0.1)]
        found = node("Conv", along, f"deep{b}", group=CHANNELS)
        for name in ("first", "second"):
            across = [
                weights(f"w{name}{b}", CHANNELS, CHANNELS, 1, scale=0.2),
                weights(f"b{name}{b}", CHANNELS, scale=0.1),
            ]
            found = node("Conv", [found, *across], f"{name}{b}")
            found = node("Relu", [found], f"relu{b}") if name == "first" else found
        value = node("Add", [found, value], f"sum{b}")
    flat = node("Flatten", [value], "flat")
    scores = node(
        "Gemm", [flat, weights("wg", CHANNELS, CLASSES, scale=0.3), weights("bg", CLASSES, scale=0.1)], "scores"
    )
    node("Softmax", [scores], "y")
    kept = {f"s{b}": [1, CHANNELS, KEPT] for b in range(BLOCKS)}
    inputs = {"x": [1, CHANNELS, 1]} | kept
    outputs = {"y": [1, CLASSES]} | {f"{name}_out": shape for name, shape in kept.items()}
    infos = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in side.items()]
        for side in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "stream", *infos, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def recorded(folder: Path, steps: int) -> Path:
    """Quantize the net, record it on ONNX Runtime step by step, and return the recording."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    plain, coded, out = folder / "stream.onnx", folder / "stream.int8.onnx", folder / "stream.h5"
    _float_net(plain)
    rng = np.random.default_rng(1)

    class Drawn(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = 50

        def get_next(self) -> dict[str, np.ndarray] | None:
            self.left -= 1
            shapes = {"x": (1, CHANNELS, 1)} | {f"s{b}": (1, CHANNELS, KEPT) for b in range(BLOCKS)}
            drawn = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
            return drawn if self.left >= 0 else None

    how = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "per_channel": True}
    quantize_static(plain, coded, Drawn(), quant_format=QuantFormat.QDQ, **how)
    feeds = {"x": rng.standard_normal((1, steps, 1, CHANNELS, 1)).astype(np.float32)}
    states = [f"s{b}_out=s{b}" for b in range(BLOCKS)]
    record_run(coded, backend="onnxruntime", inputs=feeds, samples=1, steps=steps, states=states, out=out)
    return out
