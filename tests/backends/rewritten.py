"""Print what explains single operators on codes in a runtime that rewrites graphs: through its adapter, and by hand.

python tests/backends/rewritten.py [--backend NAME[:key=value,...]] [--operators WORD ...]

Each operator is a net of its own: codes, DequantizeLinear, the operator, QuantizeLinear, codes. The adapter records it
in the runtime's own operators. The harness puts the same codes in ONNX's words, as a user would who knows no adapter.

  adapter, harness   what explain says of the node that gives the codes, and the arithmetic or the likely cause
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import helper, numpy_helper

import qdebug
from qdebug.cli.record import BackendChoice, backend_choice
from qdebug.compare.explaining.explanation import NodeExplanation
from qdebug.model import Recording
from qdebug.running.record import record_run

SHAPE = (1, 8, 12, 12)
SCALES = {"a": (0.05, 119), "b": (0.031, 134)}


@dataclass(frozen=True, kw_only=True)
class Single:
    """An operator between codes.

    Args:
        op: Its name in ONNX.
        scale: Scale of its result.
        zero: Zero point of it.
        weight: Shape of a weight of codes, if it has one.
        axis: Axis of the weight's scales; one scale if None.
        bias: Extent of a bias, if it has one.
        operands: How many tensors it reads.
        shapes: Their shapes.
        more: Further inputs, as they are; an empty array is one left out.
        attrs: Its attributes.
        then: An activation behind it.
    """

    op: str
    scale: float = 0.05
    zero: int = 131
    weight: tuple[int, ...] = ()
    axis: int | None = None
    bias: int = 0
    operands: int = 1
    shapes: tuple[tuple[int, ...], ...] = (SHAPE, SHAPE)
    more: tuple[np.ndarray, ...] = ()
    attrs: Mapping[str, object] = field(default_factory=dict)
    then: str = ""


_SAME = {"pads": [1] * 4}
_WEIGHT = (8, 8, 3, 3)
OPERATORS: Mapping[str, Single] = {
    "conv": Single(op="Conv", weight=_WEIGHT, bias=8, attrs=_SAME, scale=0.09),
    "conv, relu": Single(op="Conv", weight=_WEIGHT, bias=8, attrs=_SAME, then="Relu", scale=0.06, zero=0),
    "conv per channel": Single(op="Conv", weight=_WEIGHT, axis=0, bias=8, attrs=_SAME, scale=0.09),
    "depthwise conv": Single(op="Conv", weight=(8, 1, 3, 3), bias=8, attrs={**_SAME, "group": 8}, scale=0.04),
    "transposed conv": Single(op="ConvTranspose", weight=_WEIGHT, attrs={"strides": [2, 2]}, scale=0.07),
    "matmul": Single(op="MatMul", weight=(12, 20), scale=0.04),
    "matmul of two": Single(op="MatMul", operands=2, scale=0.2),
    "gemm": Single(op="Gemm", weight=(24, 16), bias=16, shapes=((20, 24),), scale=0.06),
    "add": Single(op="Add", operands=2, scale=0.08),
    "add, relu": Single(op="Add", operands=2, then="Relu", scale=0.04, zero=0),
    "sub": Single(op="Sub", operands=2, scale=0.08),
    "mul": Single(op="Mul", operands=2, scale=0.2),
    "div": Single(op="Div", operands=2, scale=0.5),
    "average pool": Single(op="AveragePool", attrs={"kernel_shape": [2, 2]}, scale=0.04),
    "global average pool": Single(op="GlobalAveragePool", scale=0.011),
    "max pool": Single(op="MaxPool", attrs={"kernel_shape": [2, 2]}, scale=SCALES["a"][0], zero=SCALES["a"][1]),
    "relu": Single(op="Relu", scale=0.027, zero=0),
    "clip": Single(op="Clip", more=(np.float32(-2), np.float32(4)), scale=0.03, zero=100),
    "leaky relu": Single(op="LeakyRelu", attrs={"alpha": 0.1}, scale=0.033, zero=19),
    "sigmoid": Single(op="Sigmoid", scale=1 / 256, zero=0),
    "hard swish": Single(op="HardSwish", scale=0.03, zero=12),
    "softmax": Single(op="Softmax", attrs={"axis": 1}, scale=1 / 256, zero=0),
    "concat": Single(op="Concat", operands=2, attrs={"axis": 1}, scale=0.06),
    "resize": Single(
        op="Resize",
        more=(np.zeros(0, np.float32), np.float32([1, 1, 2, 2])),
        attrs={"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
        scale=0.045,
    ),
}


def net(single: Single) -> tuple[onnx.ModelProto, Mapping[str, np.ndarray], Mapping[str, np.ndarray]]:
    """Return the net of an operator, its constants and what to feed it."""
    rng = np.random.default_rng(5)
    held: dict[str, np.ndarray] = {}
    nodes, inputs = [], []

    def coded(name: str, scale: float | np.ndarray, zero: object, **attrs: object) -> str:
        held[f"{name}.scale"], held[f"{name}.zero"] = np.float32(scale), np.asarray(zero)
        inner = [name, f"{name}.scale", f"{name}.zero"]
        nodes.append(helper.make_node("DequantizeLinear", inner, [f"{name}.real"], **attrs))
        return f"{name}.real"

    fed = {
        name: rng.integers(0, 256, shape).astype(np.uint8)
        for name, shape in zip("ab"[: single.operands], single.shapes, strict=False)
    }
    inputs += [coded(name, SCALES[name][0], np.uint8(SCALES[name][1])) for name in fed]
    if single.weight:
        held["w"] = rng.integers(-127, 128, single.weight).astype(np.int8)
        along = {} if single.axis is None else {"axis": single.axis}
        count = 1 if single.axis is None else single.weight[single.axis]
        scale = np.float32(0.004) if count == 1 else np.float32(rng.uniform(0.002, 0.006, count))
        inputs.append(coded("w", scale, np.zeros(np.shape(scale), np.int8), **along))
    if single.bias:
        scale = np.float32(SCALES["a"][0]) * held["w.scale"]
        held["c"] = rng.integers(-3000, 3000, single.bias).astype(np.int32)
        inputs.append(coded("c", scale, np.zeros(np.shape(scale), np.int32), **({"axis": 0} if scale.ndim else {})))
    for place, array in enumerate(single.more):
        held[f"more{place}"] = np.asarray(array)
        inputs.append(f"more{place}" if np.asarray(array).size else "")
    nodes.append(helper.make_node(single.op, inputs, ["real"], name="node", **single.attrs))
    if single.then:
        nodes.append(helper.make_node(single.then, ["real"], ["then"], name="then"))
    held["y.scale"], held["y.zero"] = np.float32(single.scale), np.uint8(single.zero)
    last = "then" if single.then else "real"
    nodes.append(helper.make_node("QuantizeLinear", [last, "y.scale", "y.zero"], ["y"], name="quantize"))
    kind = onnx.TensorProto.UINT8
    ends = [helper.make_tensor_value_info(name, kind, array.shape) for name, array in fed.items()]
    graph = helper.make_graph(
        nodes, "single", ends, [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(array, name) for name, array in held.items() if array.size],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, held, fed


def by_hand(single: Single, held: Mapping[str, np.ndarray], fed: Mapping[str, np.ndarray], y: np.ndarray) -> Recording:
    """Record what the adapter saw at both ends in ONNX's words."""
    with qdebug.Recorder(None, backend="openvino") as rec:
        inputs: list[str] = []
        for name, array in fed.items():
            rec.put(name, array, scale=held[f"{name}.scale"], zero_point=held[f"{name}.zero"])
            inputs.append(name)
        for name, axis in (("w", single.axis), ("c", 0 if single.axis is not None else None)):
            if name in held:
                scale, zero = held[f"{name}.scale"], held[f"{name}.zero"]
                rec.constant(name, held[name], scale=scale, zero_point=zero, axis=axis)
                inputs.append(name)
        for place, array in enumerate(single.more):
            if np.asarray(array).size:
                rec.constant(f"more{place}", np.asarray(array))
            inputs.append(f"more{place}" if np.asarray(array).size else "")
        attrs = {**single.attrs, **({"activation": single.then} if single.then else {})}
        scale, zero = held["y.scale"], held["y.zero"]
        rec.put("y", y, node="node", op=single.op, inputs=inputs, attrs=attrs, scale=scale, zero_point=zero)
        rec.outputs("y")
    return rec.recording


def explained(single: Single, backend: BackendChoice) -> tuple[NodeExplanation, NodeExplanation]:
    """Return what explain says of the codes that an operator gives: through the adapter, and through the harness."""
    model, held, fed = net(single)
    with TemporaryDirectory() as folder:
        path, out = Path(folder) / "single.onnx", Path(folder) / "out.h5"
        onnx.save(model, path)
        record_run(path, backend=backend.name, options=backend.options, inputs=dict(fed), out=out)
        recording = qdebug.open_recording(out)
        found = next(node for node in qdebug.explain(recording).nodes if node.tensor == "y")
        (other,) = qdebug.explain(by_hand(single, held, fed, recording.load("y"))).nodes
    return found, other


def said(node: NodeExplanation) -> str:
    """Say in a cell what was found."""
    left = node.residual
    cause = (node.variants or ("",))[0] if node.status == "explained" else (left and left.likely) or node.reason or ""
    return f"{node.status}: {cause}".replace("|", "/")


def rows(backend: BackendChoice, chosen: Sequence[str]) -> Iterator[tuple[str, NodeExplanation, NodeExplanation]]:
    """Yield what each operator comes to."""
    for title in chosen:
        yield title, *explained(OPERATORS[title], backend)


def main(words: Sequence[str] | None = None) -> None:
    """Print the table as Markdown, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", type=backend_choice, default="openvino:precision=f32")
    parser.add_argument("--operators", nargs="+", default=list(OPERATORS), choices=list(OPERATORS), metavar="WORD")
    arguments = parser.parse_args(words)
    print("| operator | adapter | harness |\n|---|---|---|")
    counts: Counter[str] = Counter()
    for title, adapter, harness in rows(arguments.backend, arguments.operators):
        print(f"| {title} | {said(adapter)} | {said(harness)} |", flush=True)
        counts.update(adapter=adapter.status == "explained", harness=harness.status == "explained")
        for side, node in (("adapter, likely", adapter), ("harness, likely", harness)):
            counts[side] += node.status != "explained" and bool(node.residual and node.residual.likely)
    total = len(arguments.operators)
    print("\n" + "; ".join(f"{side}: {count} of {total}" for side, count in counts.items()))


if __name__ == "__main__":
    main()
