"""Explain: which arithmetic a chip uses, and the layer in which it computes something else.

The "chip" computes three fully connected layers on 8-bit codes. It requantizes with a 15-bit integer multiplier and
one rounding shift, as small chips do: legitimate, and not what any reference computes. In its second layer 16-bit
accumulators wrap around: a bug. One recording of the chip is enough to tell the two apart; no reference is needed.

Run it from a clone with qdebug installed: python samples/explain_nodes.py
"""

from __future__ import annotations

import math

import numpy as np

import qdebug

SCALES = {"x": 1 / 127, "fc1": 0.0231, "fc2": 0.0413, "fc3": 0.0577}
ROWS = 64


def requantize(sums: np.ndarray, factor: float) -> np.ndarray:
    """Multiply by an integer of 15 bits and shift right, ties up."""
    fraction, exponent = math.frexp(factor)
    shift = 15 - exponent
    scaled = (sums.astype(np.int64) * round(fraction * 2**15) + (1 << (shift - 1))) >> shift
    return np.clip(scaled, -128, 127).astype(np.int8)


def run_chip(rec: qdebug.Recorder) -> None:
    """Compute the net on random codes and record every layer."""
    rng = np.random.default_rng(0)
    codes = rng.integers(-128, 128, (ROWS, 64)).astype(np.int8)
    rec.put("x", codes, scale=np.float32(SCALES["x"]))
    before = "x"
    for name, (rows, columns) in {"fc1": (64, 512), "fc2": (512, 32), "fc3": (32, 10)}.items():
        weight = rng.integers(-100, 101, (rows, columns)).astype(np.int8)
        scale = np.float32(0.9 / (60 * math.sqrt(rows)))
        rec.constant(f"{name}.weight", weight, scale=scale)
        sums = codes.astype(np.int32) @ weight.astype(np.int32)
        if name == "fc2":
            sums = sums.astype(np.int16)  # the bug: 16 bits are too few
        factor = float(np.float32(SCALES[before])) * float(scale) / float(np.float32(SCALES[name]))
        codes = requantize(sums, factor)
        rec.put(name, codes, node=name, op="MatMul", inputs=(before, f"{name}.weight"), scale=np.float32(SCALES[name]))
        before = name
    rec.outputs(before)


def main() -> None:
    """Record the chip in memory, explain it, print what came out."""
    with qdebug.Recorder(None, backend="chip") as rec:
        run_chip(rec)
    explanation = qdebug.explain(rec.recording)
    for node in explanation.nodes:
        print(f"{node.node}: {node.status}, {node.match:.1%} of {node.elements} codes")
        if node.residual is None:
            print(f"  {node.words}; {len(node.variants)} of {node.tried} arithmetics tried give all of them")
        else:
            print(f"  {node.residual.wrong} wrong, by at most {node.residual.max_lsb} LSB: {node.residual.detail}")
            print(f"  likely: {node.residual.likely}")


if __name__ == "__main__":
    main()
