"""The questions that users of int8 compilers ask first, with one command each.

An interpreter against the CPU; a chain of rescales that an optimizer merged wrongly; calibration with 2000 bins and
with entropy; scales that are powers of two; a bias with one scale for all channels; and how many of the first
convolutions must stay in float. The nets are the digits net beside this file and two small graphs made here.

Run it from a clone with qdebug installed, with its extra `onnx`: python samples/first_questions.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DIGITS = Path(__file__).resolve().parent / "digits"


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
    (
        "Does the interpreter compute what the CPU computes?",
        """diff {digits}/digits.qoperator.per_channel.onnx {digits}/digits.qoperator.per_channel.onnx
        --ref-backend interpreter --backend onnxruntime --inputs x.npz --samples 4 -q""",
    ),
    ("Was a chain of rescales merged correctly?", "lint chain.onnx merged.onnx --fix fixed.onnx"),
    (
        "Which ranges did calibration see, in 2000 bins?",
        """scales profile {digits}/digits.onnx --backend onnxruntime:opt=none --inputs x.npz --samples 50
        --bins 2000 -o calib.h5""",
    ),
    ("Which scales does entropy choose, and is none of them NaN?", "scales choose calib.h5 --calibrator entropy"),
    ("What do scales that are powers of two cost?", "scales choose calib.h5 --scheme power_of_two --calibrator minmax"),
    ("Does one bias scale serve all channels?", "lint bias.onnx"),
    (
        "How many of the first convolutions must stay in float?",
        """repair {digits}/digits.onnx {digits}/digits.qoperator.per_tensor.onnx --inputs x.npz --samples 4
        --sweep first:3 --within 41""",
    ),
)


def main() -> None:
    """Make the files, ask each question, and print the first lines of each answer."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_chains(folder)
        write_bias(folder)
        np.savez(folder / "x.npz", x=np.load(DIGITS / "digits_test.npz")["x"].reshape(-1, 1, 1, 8, 8)[:50])
        for question, command in QUESTIONS:
            print(f"\n{question}\n$ qdebug {' '.join(command.format(digits='digits').split())}")
            program = [sys.executable, "-m", "qdebug", *command.format(digits=DIGITS).split()]
            done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
            lines = (done.stdout or done.stderr).splitlines()
            print("\n".join(f"  {line}" for line in lines[:14]))
            print(f"  exit code {done.returncode}")


if __name__ == "__main__":
    main()
