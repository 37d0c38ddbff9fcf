"""Lint: rewrites of an optimizer that change the numbers, found without running the net.

Two small graphs are made here. In the first, an optimizer merged a chain of three rescales and kept the limits of the
last one only. In the second, a convolution has a weight scale for each channel, and one bias scale for all of them.

Run it from a clone with the extra `onnx` installed: python samples/12_lint.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """A small ONNX graph, made one node after the other."""

    def __init__(self, *shape: int) -> None:
        self.shape, self.nodes, self.constants = shape, [], []

    def constant(self, values: np.ndarray | np.generic) -> str:
        """Add a constant and return its name."""
        self.constants.append(numpy_helper.from_array(np.asarray(values), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def add(self, op: str, name: str, *inputs: str | np.ndarray | np.generic, **attrs: object) -> str:
        """Add a node and return its output, which has its name."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self.nodes.append(helper.make_node(op, names, [name], name=name, **attrs))
        return name

    def codes(self, tensor: str, scale: float, low: float, high: float) -> str:
        """Clamp a tensor and round it to int8 codes and back."""
        name, step = f"{tensor}_{low}_{high}", np.float32(scale)
        clamped = self.add("Clip", f"{name}_clip", tensor, np.float32(low), np.float32(high))
        quantized = self.add("QuantizeLinear", f"{name}_codes", clamped, step, np.int8(0))
        return self.add("DequantizeLinear", f"within_{low}_{high}", quantized, step, np.int8(0))

    def save(self, output: str, path: Path) -> None:
        """Write the graph."""
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in
                (("x", self.shape), (output, None))]  # fmt: skip
        graph = helper.make_graph(self.nodes, "net", ends[:1], ends[1:], self.constants)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def write_chains(folder: Path) -> None:
    """Write three rescales, and the last of them alone: an optimizer must keep the limits of all three."""
    for name, limits in (("chain.onnx", ((1, 3), (0, 4), (2, 4))), ("merged.onnx", ((2, 4),))):
        net, tensor = Net(1, 64), "x"
        for low, high in limits:
            tensor = net.codes(tensor, 0.04, low, high)
        net.save(tensor, folder / name)


def write_bias(folder: Path) -> None:
    """Write a convolution with a weight scale per channel, and one bias scale for all channels."""
    rng, net = np.random.default_rng(0), Net(1, 2, 6, 6)
    scales = np.array([0.01, 0.02, 0.005, 0.04], np.float32)
    weight = rng.integers(-127, 128, (4, 2, 3, 3)).astype(np.int8)
    read = net.codes("x", 0.05, -6, 6)
    filters = net.add("DequantizeLinear", "weight", weight, scales, np.zeros(4, np.int8), axis=0)
    codes = np.array([400, -900, 70, 30], np.int32)
    bias = net.add("DequantizeLinear", "bias", codes, np.float32(0.0005), np.int32(0))
    net.save(net.codes(net.add("Conv", "conv", read, filters, bias), 0.1, -12, 12), folder / "bias.onnx")


QUESTIONS = (
    ("Was a chain of rescales merged correctly?", "lint chain.onnx merged.onnx --fix fixed.onnx"),
    ("Does one bias scale serve all channels?", "lint bias.onnx"),
)


def main() -> None:
    """Make the files, ask each question, and print the first lines of each answer."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_chains(folder)
        write_bias(folder)
        for question, command in QUESTIONS:
            print(f"\n{question}\n$ qdebug {command}")
            program = [sys.executable, "-m", "qdebug", *command.split()]
            done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
            lines = (done.stdout or done.stderr).splitlines()
            print("\n".join(f"  {line}" for line in lines[:14]))
            print(f"  exit code {done.returncode}")


if __name__ == "__main__":
    main()
