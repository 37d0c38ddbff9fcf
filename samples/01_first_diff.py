"""First diff: one small net, two numpy "backends", and the node where they part.

The reference computes in float. The backend computes with 8-bit codes, as a small chip would, and has a bug:
the accumulator of its second layer is 16 bits wide and wraps around. Both are recorded, then compared.

Run it from a clone with qdebug installed: python samples/01_first_diff.py
The two recordings go to a temporary folder and are removed at the end.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import qdebug

SCALES = {"x": 1 / 127, "fc1": 0.036, "fc2": 0.1, "fc3": 0.1}


def make_net() -> dict[str, np.ndarray]:
    """Draw the weights of three fully connected layers, 64 - 512 - 32 - 10."""
    rng = np.random.default_rng(0)
    sizes = {"fc1": (64, 512), "fc2": (512, 32), "fc3": (32, 10)}
    return {name: (rng.normal(size=size) / 4).astype(np.float32) for name, size in sizes.items()}


def quantize(values: np.ndarray, scale: float) -> np.ndarray:
    """Round real values to 8-bit codes."""
    return np.clip(np.rint(values / scale), -127, 127).astype(np.int8)


def record_reference(net: dict[str, np.ndarray], samples: np.ndarray, path: Path) -> None:
    """Run in float and record every layer of every sample."""
    with qdebug.Recorder(path, backend="float") as rec:
        for name, weight in net.items():
            rec.constant(f"{name}.weight", weight)
        for number, x in enumerate(samples):
            rec.at(number)
            rec.put("x", x)
            before, values = "x", x
            for name, weight in net.items():
                values = values @ weight
                rec.put(name, values, node=name, op="MatMul", inputs=(before, f"{name}.weight"))
                values = np.maximum(values, 0)
                rec.put(f"{name}_relu", values, node=f"{name}_relu", op="Relu", inputs=(name,))
                before = f"{name}_relu"
        rec.outputs(before)


def record_backend(net: dict[str, np.ndarray], samples: np.ndarray, path: Path) -> None:
    """Run in 8-bit codes and record every layer, with the scale that gives the codes their meaning."""
    weight_scales = {name: float(np.abs(weight).max()) / 127 for name, weight in net.items()}
    weight_codes = {name: quantize(weight, weight_scales[name]) for name, weight in net.items()}
    with qdebug.Recorder(path, backend="8-bit") as rec:
        for name, codes in weight_codes.items():
            rec.constant(f"{name}.weight", codes, scale=weight_scales[name])
        for number, x in enumerate(samples):
            rec.at(number)
            codes = quantize(x, SCALES["x"])
            rec.put("x", codes, scale=SCALES["x"])
            before, scale = "x", SCALES["x"]
            for name, weight in weight_codes.items():
                sums = codes.astype(np.int32) @ weight.astype(np.int32)
                if name == "fc2":
                    sums = sums.astype(np.int16)  # the bug: 16 bits are too few
                codes = quantize(sums * (scale * weight_scales[name]), SCALES[name])
                scale = SCALES[name]
                rec.put(name, codes, node=name, op="MatMul", inputs=(before, f"{name}.weight"), scale=scale)
                codes = np.maximum(codes, 0)
                rec.put(f"{name}_relu", codes, node=f"{name}_relu", op="Relu", inputs=(name,), scale=scale)
                before = f"{name}_relu"
        rec.outputs(before)


def main() -> None:
    """Record both runs on four samples, compare them, print what came out."""
    net = make_net()
    samples = np.random.default_rng(1).uniform(-1, 1, size=(4, 1, 64)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        reference, backend = Path(folder, "reference.h5"), Path(folder, "backend.h5")
        record_reference(net, samples, reference)
        record_backend(net, samples, backend)
        result = qdebug.diff(reference, backend)
    for node in result.nodes:
        added = "" if node.introduced is None else f"adds {node.introduced.max_lsb:7.1f} LSB"
        print(f"{node.tensor:8} {node.status:9} SQNR {node.metrics.sqnr_db:5.1f} dB  {added}")
    print(result.verdict.sentence)
    print("first divergence:", result.first_divergence)


if __name__ == "__main__":
    main()
