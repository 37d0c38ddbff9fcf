"""Chosen scales as quantizers take them."""

import json

import numpy as np
import pytest

from qdebug.numerics.scheme import QuantScheme
from qdebug.scales.quantizers import quantizer_settings

ACTIVATIONS = {"x": QuantScheme(signed=False).parameters(-1.0, 3.0), "y": QuantScheme().parameters(-2.0, 2.5)}
WEIGHT = QuantScheme(kind="symmetric", narrow=True).stacked([(-1.0, 1.0), (-0.5, 0.25)], 0)


def test_onnxruntime_quantizes_with_the_scales_that_it_is_given(tmp_path):
    onnx = pytest.importorskip("onnx")
    quantization = pytest.importorskip("onnxruntime.quantization")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weight = np.array([[[[1.0]], [[-0.7]]], [[[0.2]], [[-0.5]]]], np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="conv")],
        "net",
        [helper.make_tensor_value_info("x", kind, [1, 2, 3, 3])],
        [helper.make_tensor_value_info("y", kind, [1, 2, 3, 3])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "net.onnx")

    class Reader(quantization.CalibrationDataReader):
        rest = iter([{"x": np.ones((1, 2, 3, 3), np.float32)}])

        def get_next(self):
            return next(self.rest, None)

    settings = json.loads(json.dumps(quantizer_settings(ACTIVATIONS, {"w": WEIGHT})))
    overrides = settings["onnxruntime"]["TensorQuantOverrides"]
    for entries in overrides.values():
        for entry in entries:
            code = quantization.QuantType[entry["quant_type"]]
            zero_point = np.array(entry["zero_point"], onnx.helper.tensor_dtype_to_np_dtype(code.tensor_type))
            entry |= {"quant_type": code, "scale": np.array(entry["scale"], np.float32), "zero_point": zero_point}
    quantization.quantize_static(
        tmp_path / "net.onnx", tmp_path / "q.onnx", Reader(), extra_options={"TensorQuantOverrides": overrides}
    )
    stored = {each.name: onnx.numpy_helper.to_array(each) for each in onnx.load(tmp_path / "q.onnx").graph.initializer}
    for name, quant in {**ACTIVATIONS, "w": WEIGHT}.items():
        np.testing.assert_array_equal(stored[f"{name}_scale"].ravel(), quant.scale.ravel())
        assert stored[f"{name}_zero_point"].dtype == quant.dtype
        np.testing.assert_array_equal(stored[f"{name}_zero_point"].ravel(), quant.zero_point.ravel())


def test_aimet_and_litert_get_the_reals_at_the_ends_of_the_codes():
    settings = quantizer_settings(ACTIVATIONS, {"w": WEIGHT})
    [encoding] = settings["aimet"]["activation_encodings"]["x"]
    scale, zero_point = float(ACTIVATIONS["x"].scale[0]), int(ACTIVATIONS["x"].zero_point[0])
    assert (encoding["min"], encoding["max"]) == (-zero_point * scale, (255 - zero_point) * scale)
    assert settings["ai-edge-quantizer"]["model_qsvs"]["x"] == {"min": [encoding["min"]], "max": [encoding["max"]]}
    assert [each["scale"] for each in settings["aimet"]["param_encodings"]["w"]] == WEIGHT.scale.tolist()


def test_scales_of_blocks_are_left_out_since_no_format_has_them():
    blocks = QuantScheme(kind="symmetric").stacked([(-1.0, 1.0)] * 4, 1, (2, (2, 2)))
    settings = quantizer_settings({}, {"w": blocks})
    assert settings["onnxruntime"]["TensorQuantOverrides"] == {}
    assert settings["aimet"]["param_encodings"] == {}
