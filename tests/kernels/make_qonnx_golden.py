"""Make qonnx_golden.json: quantizers of QONNX as the package computes them.

Data are drawn anew, the same each time; the file holds what was computed.
Provenance of the committed file: qonnx 1.0.0, numpy 2.4.6. Run it from a clone where they are installed:
python tests/kernels/make_qonnx_golden.py
"""

import json
from pathlib import Path

import numpy as np

FILE = Path(__file__).resolve().parent / "qonnx_golden.json"
ROUNDINGS = ("ROUND", "CEIL", "FLOOR", "UP", "DOWN", "HALF_UP", "HALF_DOWN", "half_even")


def real(value):
    return np.array(value, np.float32)


def cases():
    """Yield a name, an operator, its inputs and its attributes."""
    rng = np.random.default_rng(17)
    x = rng.normal(size=(2, 3, 4, 5)).astype(np.float32) * 3
    ties = (np.arange(-60, 60) / 8).astype(np.float32).reshape(2, 3, 4, 5)
    by_channel = rng.random((1, 3, 1, 1)).astype(np.float32) + real(0.1)
    for rounding in ROUNDINGS:
        for signed in (0, 1):
            for narrow in (0, 1):
                attrs = {"signed": signed, "narrow": narrow, "rounding_mode": rounding}
                yield f"quant {rounding} {signed} {narrow}", "Quant", [ties, real(0.25), real(0), real(4)], attrs
    plain = {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"}
    yield "quant by channel", "Quant", [x, by_channel, real(1), real(6)], plain
    yield "quant of one bit", "Quant", [x, real(0.5), real(0), real(1)], plain
    yield "quant of half a bit more", "Quant", [x, real(0.5), real(0), real(2.5)], plain
    yield "bipolar", "BipolarQuant", [np.where(x < 1, x, 0).astype(np.float32), by_channel], {}
    for rounding in ("FLOOR", "ROUND", "CEIL"):
        codes = rng.integers(-128, 128, x.shape).astype(np.float32)
        attrs = {"rounding_mode": rounding}
        yield f"trunc {rounding}", "Trunc", [codes * real(0.25), real(0.25), real(0), real(8), real(5)], attrs
        for signed in (0, 1):
            newer = [codes * real(0.25), real(0.25), real(2), real(8), real(1.0), real(5)]
            yield f"trunc to {rounding} {signed}", "Trunc", newer, attrs | {"signed": signed, "narrow": signed}
    for layout, shape, count in (("", (2, 3, 4, 5), 3), ("NHWC", (2, 4, 5, 3), 3), ("", (2, 7, 3), 3), ("", (4, 3), 1)):
        data = rng.normal(size=shape).astype(np.float32)
        steps = np.sort(rng.normal(size=(count, 7)), axis=1).astype(np.float32)
        attrs = {"out_dtype": "UINT3", "out_scale": 2.0, "out_bias": -1.0, "data_layout": layout}
        yield f"thresholds {layout} {len(shape)} {count}", "MultiThreshold", [data, steps], attrs


def main():
    """Compute every case and write what it gives."""
    from onnx import helper
    from qonnx.custom_op.registry import getCustomOp

    golden = {}
    for name, op, inputs, attrs in cases():
        names = [f"i{at}" for at in range(len(inputs))]
        node = helper.make_node(op, names, ["o"], domain="qonnx.custom_op.general", **attrs)
        version = 1 if op == "Trunc" and len(inputs) < 6 else 2 if op == "Trunc" else 1
        context = dict(zip(names, inputs, strict=True))
        getCustomOp(node, onnx_opset_version=version).execute_node(context, None)
        golden[name] = [float(value) for value in np.asarray(context["o"], np.float32).reshape(-1)]
    FILE.write_text(json.dumps(golden) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
