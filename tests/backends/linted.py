"""Plant rewrites that change numerics into small ONNX graphs, and print what `qdebug lint` finds.

python tests/backends/linted.py [NAME ...] [--untouched MODEL ...]

Each plant has a form before and a form after the rewrite; a twin of it is a rewrite that is right. "ORT" says whether
ONNX Runtime without optimization gives other outputs for the witness, run through both forms: it knows nothing of lint.

--untouched lints models by themselves and against what ONNX Runtime's own optimizer makes of them at `extended`: each
finding there is false, or has to be shown.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from qdebug.lint.chip_rules import find_rules
from qdebug.lint.rewrites import LintReport, first_input, lint, open_model

RNG = np.random.default_rng(3)
WEIGHT = (RNG.standard_normal((4, 2, 3, 3)) * 0.3).astype(np.float32)
BIAS = RNG.standard_normal(4).astype(np.float32)


class Net:
    """Builds a small ONNX graph, one operator after the other.

    Args:
        shape: Of the input x.
    """

    def __init__(self, *shape: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.shape = shape

    def constant(self, array: np.ndarray) -> str:
        """Add a constant and return its name."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def op(self, kind: str, *inputs: str | np.ndarray, name: str = "", domain: str = "", **attrs: object) -> str:
        """Add a node and return its output, which is called like the node."""
        name = name or f"{kind.lower()}{len(self.nodes)}"
        read = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        self.nodes.append(helper.make_node(kind, read, [name], name=name, domain=domain, **attrs))
        return name

    def q(self, x: str, scale: float, zero: int = 0, *, name: str = "") -> str:
        """Quantize to int8."""
        return self.op("QuantizeLinear", x, np.float32(scale), np.int8(zero), name=name)

    def dq(self, x: str | np.ndarray, scale: float, zero: int = 0, *, name: str = "") -> str:
        """Dequantize from int8, or from int32 if the constant is."""
        dtype = np.int8 if isinstance(x, str) else x.dtype.type
        return self.op("DequantizeLinear", x, np.float32(scale), dtype(zero), name=name)

    def qdq(self, x: str, scale: float, zero: int = 0, *, name: str = "") -> str:
        """Round to codes."""
        return self.dq(self.q(x, scale, zero, name=f"{name}_q" if name else ""), scale, zero, name=name)

    def clip(self, x: str, low: float, high: float) -> str:
        """Clamp."""
        return self.op("Clip", x, np.float32(low), np.float32(high), name=f"clip_{low}_{high}")

    def save(self, output: str, path: Path) -> Path:
        """Write the graph."""
        values = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", self.shape), (output, None))
        ]
        graph = helper.make_graph(
            self.nodes, "net", values[:1], values[1:],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )  # fmt: skip
        sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=9), path)
        return path


Form = Callable[[Path], Path]
Plant = tuple[str, Form, Form | None, dict[str, str]]
"""The kind that is to be found, the form before, the form after, and options of lint."""


def chain(*ranges: tuple[float, float]) -> Form:
    """Return rescales that each clamp to a range."""

    def form(path: Path) -> Path:
        net, x = Net(1, 64), "x"
        for low, high in ranges:
            x = net.qdq(net.clip(x, low, high), high / 100, name=f"within_{low}_{high}")
        return net.save(x, path)

    return form


def rescaled(*scales: float) -> Form:
    """Return values that are rounded to codes of one scale after the other."""

    def form(path: Path) -> Path:
        net, x = Net(1, 64), "x"
        for scale in scales:
            x = net.qdq(x, scale)
        return net.save(x, path)

    return form


def removed(*, second: bool) -> Form:
    """Return a quantized Sigmoid, with a rescale before it or without."""

    def form(path: Path) -> Path:
        net = Net(1, 64)
        x = net.q("x", 0.05)
        if second:
            x = net.q(net.dq(x, 0.05), 0.03)
        scales = np.float32(0.03), np.int8(0), np.float32(1 / 256), np.int8(-128)
        return net.save(net.dq(net.op("QLinearSigmoid", x, *scales, domain="com.microsoft"), 1 / 256, -128), path)

    return form


def clamped(op: str | None, zero: int) -> Form:
    """Return a convolution, a clamp or none, and codes that may end where it clamps."""

    def form(path: Path) -> Path:
        net = Net(1, 2, 6, 6)
        x = net.op("Conv", "x", WEIGHT, BIAS, name="conv")
        x = x if op is None else net.op("Relu", x) if op == "Relu" else net.clip(x, 0, 6)
        return net.save(net.qdq(x, 6 / 255, zero), path)

    return form


def activated(op: str | None) -> Form:
    """Return a convolution with an activation or without."""

    def form(path: Path) -> Path:
        net = Net(1, 2, 6, 6)
        x = net.op("Conv", "x", WEIGHT, BIAS, name="conv")
        return net.save(net.op("Neg", x if op is None else net.op(op, x)), path)

    return form


def pooled(where: str, *, second: float = 0.05) -> Form:
    """Return a moved operator between two scales: in real numbers, or on codes."""

    def form(path: Path) -> Path:
        net = Net(1, 2, 6, 6)

        def moved(x: str) -> str:
            if where.startswith("pool"):
                return net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], name="pool")
            if where.startswith("reshape"):
                return net.op("Reshape", x, np.array([1, 72], np.int64), name="reshape")
            return net.op(
                "Concat", x, net.q("x", 0.08) if where.endswith("codes") else net.qdq("x", 0.08), axis=1, name="cat"
            )

        if where.endswith("codes"):
            return net.save(net.dq(moved(net.q("x", 0.05)), second), path)
        return net.save(net.qdq(moved(net.qdq("x", 0.05)), second), path)

    return form


def summed(common: float | None) -> Form:
    """Return a sum of codes, one of which is brought to the other's scale first, or none."""

    def form(path: Path) -> Path:
        net = Net(1, 64)
        one, other = net.qdq("x", 0.05, name="left"), net.qdq(net.op("Neg", "x", name="neg"), 0.02, name="right")
        other = other if common is None else net.qdq(other, common, name="right_again")
        return net.save(net.qdq(net.op("Add", one, other, name="add"), 0.01, name="sum"), path)

    return form


def added(scale: float | None) -> Form:
    """Return a sum of two branches: of real numbers, or on codes with a scale for the second one."""

    def form(path: Path) -> Path:
        net = Net(1, 64)
        one, other = net.q("x", 0.05, name="left"), net.q(net.op("Neg", "x"), 0.02, name="right")
        if scale is None:
            return net.save(net.qdq(net.op("Add", net.dq(one, 0.05), net.dq(other, 0.02)), 0.04), path)
        facts = [each for size in (0.05, scale, 0.04) for each in (np.float32(size), np.int8(0))]
        out = net.op("QLinearAdd", one, *facts[:2], other, *facts[2:], domain="com.microsoft", name="add")
        return net.save(net.dq(out, 0.04), path)

    return form


def residual(second: float | None) -> Form:
    """Return a residual block whose branches read one quantized tensor, or one each."""

    def form(path: Path) -> Path:
        net = Net(1, 4, 6, 6)
        x = net.qdq("x", 0.05, name="first")
        weight = np.tile(WEIGHT, (1, 2, 1, 1))
        inner = net.op("Conv", x, weight, BIAS, pads=[1, 1, 1, 1], name="conv")
        return net.save(
            net.op("Add", inner, x if second is None else net.qdq("x", second, name="again"), name="add"), path
        )

    return form


def biased(scale: float, shift: int = 0) -> Form:
    """Return a quantized convolution whose bias is rounded at a scale, and shifted."""

    def form(path: Path) -> Path:
        net = Net(1, 2, 6, 6)
        weight = net.dq(np.clip(np.rint(WEIGHT / 0.01), -127, 127).astype(np.int8), 0.01, name="weight")
        codes = np.rint(BIAS / scale).astype(np.int32) << shift
        bias = net.dq(codes, scale, name="bias")
        return net.save(net.qdq(net.op("Conv", net.qdq("x", 0.05), weight, bias, name="conv"), 0.1), path)

    return form


def normalized(epsilon: float | None) -> Form:
    """Return a convolution and a BatchNormalization, or both as one with an epsilon."""
    scale, offset, mean, variance = (
        np.array(v, np.float32) for v in ([1, 2, 0.5, 1], [0, 1, 2, 3], [0.1] * 4, [0.01] * 4)
    )

    def form(path: Path) -> Path:
        net = Net(1, 2, 6, 6)
        if epsilon is None:
            x = net.op("Conv", "x", WEIGHT, BIAS, name="conv")
            return net.save(
                net.op("BatchNormalization", x, scale, offset, mean, variance, epsilon=1e-3, name="norm"), path
            )
        factor = scale / np.sqrt(variance + np.float32(epsilon))
        weight, bias = WEIGHT * factor[:, None, None, None], (BIAS - mean) * factor + offset
        return net.save(net.op("Conv", "x", weight, bias.astype(np.float32), name="conv"), path)

    return form


def asymmetric(zero: int) -> Form:
    """Return a quantized convolution whose weight has a zero point."""

    def form(path: Path) -> Path:
        net = Net(1, 2, 6, 6)
        codes = np.clip(np.rint(WEIGHT / 0.01) + zero, -128, 127).astype(np.int8)
        return net.save(net.op("Conv", net.qdq("x", 0.05), net.dq(codes, 0.01, zero, name="weight"), name="conv"), path)

    return form


PLANTS: dict[str, Plant] = {
    "merged rescales": ("rescale_merged", chain((1, 3), (0, 4), (2, 4)), chain((2, 4)), {}),
    "merged rescales, all limits kept": ("", chain((1, 4), (0, 4), (2, 4)), chain((2, 4)), {}),
    "rescale folded into dequantize": ("rescale_in_dequantize", rescaled(0.05, 0.01), rescaled(0.05), {}),
    "dequantize-quantize removed": ("dequantize_quantize_removed", removed(second=True), removed(second=False), {}),
    "dequantize-quantize of one scale removed": ("", rescaled(0.05, 0.05), rescaled(0.05), {}),
    "relu folded into range": ("clamp_folded", clamped("Relu", -100), clamped(None, -100), {}),
    "relu folded, range ends at 0": ("", clamped("Relu", -128), clamped(None, -128), {}),
    "clip folded into range": ("clamp_folded", clamped("Clip", -100), clamped(None, -100), {}),
    "clip folded, range ends there": ("", clamped("Clip", -128), clamped(None, -128), {}),
    "activation dropped": ("activation_dropped", activated("LeakyRelu"), activated(None), {}),
    "moved across max pool": ("moved", pooled("pool", second=0.02), pooled("pool codes", second=0.02), {}),
    "moved across max pool, one scale": ("", pooled("pool"), pooled("pool codes"), {}),
    "moved across reshape": ("moved", pooled("reshape", second=0.02), pooled("reshape codes", second=0.02), {}),
    "moved across concat": ("moved", pooled("concat"), pooled("concat codes"), {}),
    "moved across add": ("moved", added(None), added(0.05), {}),
    "moved across add, own scales": ("", added(None), added(0.02), {}),
    "sum at the left scale": ("rescale_added", summed(None), summed(0.05), {}),
    "sum at a scale that loses nothing": ("", summed(None), summed(0.02), {}),
    "quantized twice": ("duplicated", residual(None), residual(0.08), {}),
    "bias at another scale": ("bias", biased(0.0005), biased(0.2), {}),
    "bias shifted": ("bias", biased(0.0005), biased(0.0005, 1), {}),
    "batch normalization folded": ("batch_norm", normalized(None), normalized(0.0), {}),
    "batch normalization folded right": ("", normalized(None), normalized(1e-3), {}),
    "one model: max pool": ("moved", pooled("pool codes", second=0.02), None, {}),
    "one model: concat": ("moved", pooled("concat codes"), None, {}),
    "one model: bias": ("bias", biased(0.2), None, {}),
    "one model: weight for LiteRT": ("asymmetric", asymmetric(7), None, {"chip": find_rules("litert")}),
    "one model: weight, LiteRT not asked": ("", asymmetric(7), None, {}),
    "one model: activation for TensorRT": ("asymmetric", clamped("Relu", -128), None, {"chip": find_rules("tensorrt")}),
}  # fmt: skip


def linted(plant: Plant, folder: Path, **options: object) -> tuple[LintReport, Path, Path | None]:
    """Lint a plant; also return its models."""
    _, before, after, given = plant
    one = before(folder / "before.onnx")
    other = None if after is None else after(folder / "after.onnx")
    models = [None if path is None else open_model(path) for path in (one, other)]
    return lint(models[0], models[1], **given, **options), one, other


def ort_differs(report: LintReport, before: Path, after: Path | None) -> str:
    """Say whether ONNX Runtime gives other outputs for the first witness."""
    import onnxruntime

    shown = report.findings[0].witness
    if after is None or (shown.leaves != ("x",) and not shown.reached):
        return "-"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    x = shown.values[0].astype(np.float32) if shown.leaves == ("x",) else first_input(open_model(before), None)["x"]
    made = [onnxruntime.InferenceSession(str(path), options).run(None, {"x": x})[0] for path in (before, after)]
    return "yes" if np.abs(made[0] - made[1].reshape(made[0].shape)).max() > 0 else "NO"


def rows(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each plant."""
    for name, plant in PLANTS.items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            report, before, after = linted(plant, Path(scratch))
            if not report.findings:
                yield name, plant[0] or "nothing", "nothing", "", "", "", "", ""
                continue
            first = report.findings[0]
            spans = [f"[{low:.4g}, {high:.4g}]" for low, high in (first.span_before, first.span_after)]
            shown = first.witness
            yield (
                name, plant[0] or "nothing", ", ".join(dict.fromkeys(each.kind for each in report.findings)), *spans,
                f"{shown.before:.4g} -> {shown.after:.4g}", f"{shown.largest:.4g}", ort_differs(report, before, after),
            )  # fmt: skip


def optimized(path: Path, out: Path) -> Path:
    """Return what ONNX Runtime's own optimizer makes of a model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(out)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return out


def untouched(paths: Sequence[Path]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each net, by itself and against what ONNX Runtime makes of it."""
    for path in paths:
        with tempfile.TemporaryDirectory() as scratch:
            pairs = [(path, None)]
            if path.suffix == ".onnx":
                pairs.append((path, optimized(path, Path(scratch) / "extended.onnx")))
            for one, other in pairs:
                begun = time.monotonic()
                report = lint(open_model(one), None if other is None else open_model(other))
                found = ", ".join(f"{each.kind} at {each.tensor}" for each in report.findings) or "0"
                yield (
                    path.name, "by itself" if other is None else "extended", found, str(report.parts),
                    str(len(report.undecided)), f"{time.monotonic() - begun:.1f}",
                )  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these plants")
    parser.add_argument("--untouched", nargs="+", type=Path, metavar="MODEL", help="models that nobody rewrote")
    arguments = parser.parse_args(words)
    if arguments.untouched:
        heads = ("net", "form", "findings", "parts", "undecided", "seconds")
        found = untouched(arguments.untouched)
    else:
        heads = ("plant", "planted", "found", "range before", "after", "witness", "largest", "ORT")
        found = rows(arguments.names)
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    for row in found:
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
