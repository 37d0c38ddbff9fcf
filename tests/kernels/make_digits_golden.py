"""Make digits_golden.json: hashes of every integer tensor of the int8 digits net as ONNX Runtime computes it.

Provenance of the committed file: onnxruntime 1.31.1 on x86-64 with AVX-512 VNNI and AMX, graph optimization off,
samples/digits/digits.qoperator.per_channel.onnx on all 397 test digits of samples/digits/digits_test.npz.
Run it from a clone with the extra `onnx`: python tests/kernels/make_digits_golden.py
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

HERE = Path(__file__).resolve().parent
DIGITS = HERE.parents[1] / "samples" / "digits"


def main() -> None:
    """Run the net with every node output made an output, and write what came out."""
    model = onnx.load(str(DIGITS / "digits.qoperator.per_channel.onnx"))
    names = [name for node in model.graph.node for name in node.output]
    known = {output.name for output in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    arrays = session.run(names, {"x": np.load(DIGITS / "digits_test.npz")["x"]})
    golden = {
        name: {"shape": array.shape, "dtype": str(array.dtype), "sha256": hashlib.sha256(array.tobytes()).hexdigest()}
        for name, array in zip(names, arrays, strict=True)
    }
    (HERE / "digits_golden.json").write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
