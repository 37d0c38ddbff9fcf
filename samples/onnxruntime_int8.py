"""ONNX Runtime: a float net against its int8 form, node by node, on real handwritten digits.

The reference is digits.onnx, run without graph optimization. The backend is its int8 form, run at the optimization
level "extended", where the runtime fuses nodes and computes in integers. Both are tapped faithfully: the graph that
really runs is recorded, and a plain run proves that recording changed nothing (fidelity "bit_equal").

Run it from a clone with the extra `onnx` installed: python samples/onnxruntime_int8.py
The two recordings go to a temporary folder and are removed at the end.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import qdebug
from qdebug.running.record import record_run

DIGITS = Path(__file__).resolve().parent / "digits"
SAMPLES = 16


def main() -> None:
    """Record both runs, compare them, print what came out."""
    digits = np.load(DIGITS / "digits_test.npz")
    inputs = {"x": digits["x"][:SAMPLES, None]}  # the leading axis is samples, each of them a batch of one
    with tempfile.TemporaryDirectory() as folder:
        runs = {"digits.onnx": "none", "digits.qdq.per_tensor.onnx": "extended"}
        recordings = []
        for model, level in runs.items():
            out = Path(folder, f"{model}.h5")
            record_run(
                DIGITS / model,
                backend="onnxruntime",
                options={"opt": level},
                inputs=inputs,
                out=out,
                samples=SAMPLES,
            )
            recordings.append(out)
        result = qdebug.diff(*recordings)
        backend = qdebug.open_recording(recordings[1])
        logits = np.concatenate([backend.load("logits", sample) for sample in range(SAMPLES)])
    for node in result.nodes:
        print(f"{node.op:18} {node.tensor:32} {node.status:10} SQNR {node.metrics.sqnr_db:6.1f} dB")
    print(result.verdict.sentence)
    print("fidelity:", result.fidelity["reference"], "and", result.fidelity["backend"])
    print("digits read correctly:", int((logits.argmax(1) == digits["y"][:SAMPLES]).sum()), "of", SAMPLES)


if __name__ == "__main__":
    main()
