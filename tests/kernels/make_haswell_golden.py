"""Make haswell_golden.json: hashes of what ONNX Runtime computes on a processor without an 8-bit dot product.

Provenance of the committed file: onnxruntime 1.31.1 under qemu-user 7.2 with -cpu Haswell (AVX2, no VNNI). Run it
there, or on such a processor, from a clone with the extra `onnx`:
qemu-x86_64-static -cpu Haswell python tests/kernels/make_haswell_golden.py
"""

import hashlib
import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
SHAPES = {"plain": (3, 8, 3, 1), "groups": (6, 8, 5, 2), "depthwise": (8, 8, 3, 8), "deep": (33, 9, 3, 1)}
"""Channels, filters, kernel and groups of each convolution."""


def cases():
    """Yield operator, inputs and attributes of each case; numpy's generator is the same everywhere."""
    rng = np.random.default_rng(3)
    for dtype in (np.uint8, np.int8):
        info = np.iinfo(dtype)
        zero, out_zero = np.array(info.min + 120, dtype), np.array(info.max // 2, dtype)
        scales = [np.array(scale, np.float32) for scale in (0.02, 0.01, 2.0)]
        for name, (channels, filters, kernel, groups) in SHAPES.items():
            x = rng.integers(info.min, info.max + 1, (1, channels, 9, 9)).astype(dtype)
            w = rng.integers(-128, 128, (filters, channels // groups, kernel, kernel)).astype(np.int8)
            bias = rng.integers(-999, 1000, filters).astype(np.int32)
            inputs = [x, scales[0], zero, w, scales[1], np.zeros((), np.int8), scales[2], out_zero, bias]
            yield f"{name} {info.dtype}", "QLinearConv", inputs, {"group": groups, "pads": (1, 1, 1, 1)}
        for depth in (64, 33):
            a = rng.integers(info.min, info.max + 1, (5, depth)).astype(dtype)
            b = rng.integers(-128, 128, (depth, 17)).astype(np.int8)
            inputs = [a, scales[0], zero, b, scales[1], np.zeros((), np.int8), scales[2], out_zero]
            yield f"product of {depth} {info.dtype}", "QLinearMatMul", inputs, {}


def hashed(codes):
    """Return the hash of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(codes).tobytes()).hexdigest()


def run(op, inputs, attrs):
    """Run one node in ONNX Runtime as it comes, all inputs but the first constant."""
    import onnx
    import onnxruntime as ort
    from onnx import helper

    names = [f"i{k}" for k in range(len(inputs))]
    x = inputs[0]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["o"], **attrs)],
        "one",
        [helper.make_tensor_value_info("i0", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [onnx.ValueInfoProto(name="o")],
        [onnx.numpy_helper.from_array(value, name) for name, value in zip(names[1:], inputs[1:], strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"i0": x})[0]


def main():
    """Run every case and write the hashes."""
    golden = {name: hashed(run(op, inputs, attrs)) for name, op, inputs, attrs in cases()}
    (HERE / "haswell_golden.json").write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
