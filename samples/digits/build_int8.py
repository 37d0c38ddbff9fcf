"""Make the four int8 forms of digits.onnx, and weights.npz for build_tflite.py (needs onnx, onnxruntime)."""

import logging
import os

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process


class Reader(CalibrationDataReader):
    """Feeds the calibration digits in batches of 32."""

    def __init__(self, x: np.ndarray) -> None:
        self.batches = iter({"x": b} for b in np.array_split(x, 12))

    def get_next(self) -> dict | None:
        return next(self.batches, None)


def main() -> None:
    logging.disable(logging.WARNING)
    calib = np.load("digits_test.npz")["calib"]
    quant_pre_process("digits.onnx", "pre.onnx", skip_symbolic_shape=True)
    for fmt in ("QDQ", "QOperator"):
        for per_channel in (False, True):
            form = f"{fmt.lower()}.{'per_channel' if per_channel else 'per_tensor'}"
            quantize_static(
                "pre.onnx",
                f"digits.{form}.onnx",
                Reader(calib),
                quant_format=QuantFormat[fmt],
                per_channel=per_channel,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
    os.remove("pre.onnx")
    np.savez("weights.npz", **{i.name: numpy_helper.to_array(i) for i in onnx.load("digits.onnx").graph.initializer})


if __name__ == "__main__":
    main()
