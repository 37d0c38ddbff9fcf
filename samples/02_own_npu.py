"""Your own NPU: record it from its driver, compare it with a float run, and find out which arithmetic it uses.

The "NPU" computes three fully connected layers on 8-bit codes. It requantizes with a 15-bit integer multiplier and one
rounding shift, as small chips do: legitimate, and not what any reference computes. Its second layer has a bug: 16-bit
accumulators wrap around. The driver has a callback for intermediate values, as debug builds often do, and the callback
feeds a recorder. A plain run without the callback shows that recording changed nothing.

Run it from a clone with qdebug installed: python samples/02_own_npu.py
Recorders without a path keep everything in memory, so nothing is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import qdebug

LAYERS = {"fc1": (64, 512), "fc2": (512, 32), "fc3": (32, 10)}
SCALES = {"x": np.float32(1 / 127), "fc1": np.float32(0.0231), "fc2": np.float32(0.0413), "fc3": np.float32(0.0577)}
ROWS = 64
Tap = Callable[[str, str, np.ndarray], None]


class Npu:
    """Stand in for a driver: runs the net and calls `tap` with the name, the input's name and the codes of a layer."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.weights = {name: rng.integers(-100, 101, size).astype(np.int8) for name, size in LAYERS.items()}
        self.scales = {name: np.float32(0.9 / (60 * math.sqrt(size[0]))) for name, size in LAYERS.items()}
        self.inputs = rng.integers(-128, 128, (ROWS, 64)).astype(np.int8)

    def run(self, tap: Tap) -> np.ndarray:
        """Compute the net; return its last codes."""
        codes, before = self.inputs, "x"
        for name, weight in self.weights.items():
            sums = codes.astype(np.int32) @ weight.astype(np.int32)
            if name == "fc2":
                sums = sums.astype(np.int16)  # the bug: 16 bits are too few
            factor = float(SCALES[before]) * float(self.scales[name]) / float(SCALES[name])
            codes = requantize(sums, factor)
            tap(name, before, codes)
            before = name
        return codes


def requantize(sums: np.ndarray, factor: float) -> np.ndarray:
    """Multiply by an integer of 15 bits and shift right, ties up."""
    fraction, exponent = math.frexp(factor)
    shift = 15 - exponent
    scaled = (sums.astype(np.int64) * round(fraction * 2**15) + (1 << (shift - 1))) >> shift
    return np.clip(scaled, -128, 127).astype(np.int8)


def record_npu(npu: Npu) -> qdebug.Recording:
    """Record the NPU through its callback."""
    plain = npu.run(lambda *_: None)
    with qdebug.Recorder(None, backend="npu") as rec:
        for name, weight in npu.weights.items():
            rec.constant(f"{name}.weight", weight, scale=npu.scales[name])
        rec.put("x", npu.inputs, scale=SCALES["x"])
        npu.run(
            lambda name, before, codes: rec.put(
                name, codes, node=name, op="MatMul", inputs=(before, f"{name}.weight"), scale=SCALES[name]
            )
        )
        rec.outputs("fc3")
        rec.check({"fc3": plain})
    return rec.recording


def record_float(npu: Npu) -> qdebug.Recording:
    """Record the same net in real numbers."""
    with qdebug.Recorder(None, backend="float") as rec:
        values, before = npu.inputs * SCALES["x"], "x"
        rec.put("x", values)
        for name, weight in npu.weights.items():
            real = weight * npu.scales[name]
            rec.constant(f"{name}.weight", real)
            values = values @ real
            rec.put(name, values, node=name, op="MatMul", inputs=(before, f"{name}.weight"))
            before = name
        rec.outputs(before)
    return rec.recording


def main() -> None:
    """Record both runs, compare them, and explain the NPU."""
    npu = Npu()
    recording = record_npu(npu)
    result = qdebug.diff(record_float(npu), recording)
    print(result.verdict.sentence)
    print("recording changed nothing:", result.fidelity["backend"])
    for node in qdebug.explain(recording).nodes:
        print(f"{node.node}: {node.status}, {node.match:.1%} of {node.elements} codes")
        if node.residual is None:
            print(f"  {node.words}; {len(node.variants)} of {node.tried} arithmetics tried give all of them")
        else:
            print(f"  {node.residual.wrong} wrong, by at most {node.residual.max_lsb} LSB: {node.residual.detail}")
            print(f"  likely: {node.residual.likely}")


if __name__ == "__main__":
    main()
