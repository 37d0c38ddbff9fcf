"""What a repair hands over is read by the quantizers that it is for, and does there what was meant.

Those that are not installed are skipped: pip install nncf aimet-onnx ai-edge-quantizer.
"""

from pathlib import Path

import numpy as np
import pytest

from qdebug.recording.reading.opening import open_recording
from qdebug.repair.find import RepairOptions, find_repair
from qdebug.running.record import record_run
from qdebug.session import DiffSession

onnx = pytest.importorskip("onnx")
DIGITS = Path(__file__).parents[2] / "samples" / "digits"


def inputs(count):
    with np.load(DIGITS / "digits_test.npz") as held:
        return held["x"][:count].astype(np.float32)


def handed_over(folder, paths, arrays, edits, **options):
    """Record two models, the float one first, and return the forms of some edits."""
    runs = []
    for path, array in zip(paths, arrays, strict=True):
        out = folder / f"{path.stem}.h5"
        record_run(path, inputs=array, samples=4, out=out, **options)
        runs.append(open_recording(out))
    repair = find_repair(DiffSession(*runs), RepairOptions(minutes=0, within=200, start=edits))
    assert [edit.name for edit in repair.edits] == edits
    return repair.hand_over


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    pytest.importorskip("onnxruntime")
    edits = ["float pwconv", "16-bit conv2", "range dwconv", "per-channel logits"]
    paths = DIGITS / "digits.onnx", DIGITS / "digits.qdq.per_tensor.onnx"
    arrays = [{"x": inputs(4)[:, None]}] * 2
    folder = tmp_path_factory.mktemp("onnx")
    return handed_over(folder, paths, arrays, edits, backend="onnxruntime", options={"opt": "none"})


def test_onnxruntimes_quantizer_finds_every_name(forms, tmp_path):
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    class Reader:
        left = iter([{"x": each[None]} for each in inputs(16)])

        def get_next(self):
            return next(self.left, None)

    given = forms["onnxruntime"]
    types = {
        "quant_type": lambda name: QuantType[name],
        "scale": lambda each: np.array(each, np.float32),
        "zero_point": lambda each: np.array(each, np.uint8),
    }
    overrides = {
        name: [{key: types.get(key, int)(value) for key, value in one.items()} for one in each]
        for name, each in given["TensorQuantOverrides"].items()
    }
    quantize_static(
        DIGITS / "digits.onnx",
        tmp_path / "out.onnx",
        Reader(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=False,
        nodes_to_exclude=given["nodes_to_exclude"],
        extra_options={"TensorQuantOverrides": overrides},
    )
    made = onnx.load(tmp_path / "out.onnx").graph
    held = {each.name: onnx.numpy_helper.to_array(each) for each in made.initializer}
    assert held["relu2_zero_point"].dtype == np.uint16
    assert held["relu3_scale"] == pytest.approx(given["TensorQuantOverrides"]["relu3"][0]["scale"])
    assert next(array for name, array in held.items() if name.startswith("w13") and name.endswith("_scale")).size == 10
    excluded = next(node for node in made.node if node.name == given["nodes_to_exclude"][0])
    assert excluded.input[1] in held, "its weight is in float"


def test_nncf_leaves_out_what_is_in_float(forms):
    nncf = pytest.importorskip("nncf", reason="nncf is not installed")
    scope = nncf.IgnoredScope(**forms["nncf"]["ignored_scope"])
    model = onnx.load(DIGITS / "digits.onnx")
    data = nncf.Dataset([{"x": each[None]} for each in inputs(8)])
    made = nncf.quantize(model, data, ignored_scope=scope).graph
    weights = {each.name for each in model.graph.initializer}
    whole = {node.name for node in made.node if node.op_type == "Conv" and node.input[1] in weights}
    assert whole == set(forms["nncf"]["ignored_scope"]["names"])


def test_aimet_loads_the_encodings(forms):
    pytest.importorskip("aimet_onnx", reason="aimet-onnx is not installed")
    from aimet_onnx.quantsim import QuantizationSimModel, load_encodings_to_sim

    given = forms["aimet"]
    model = QuantizationSimModel(onnx.load(DIGITS / "digits.onnx"))
    model.compute_encodings([{"x": each[None]} for each in inputs(8)])
    load_encodings_to_sim(model, given, strict=False, disable_missing_quantizers=False)
    found = model.qc_quantize_op_dict
    named = given["activation_encodings"] | given["param_encodings"]
    assert len(named) == 5
    bits = {name: (found[name].enabled, found[name].bitwidth) for name in named}
    assert bits == {name: (True, each[0]["bitwidth"]) for name, each in named.items()}
    for name in ("relu2", "relu3"):
        encoding, said = found[name].get_encodings()[0], named[name][0]
        assert (encoding.delta, encoding.offset) == (pytest.approx(said["scale"]), said["offset"])
    assert len(found["w13.weight"].get_encodings()) == 10
    floats = {name for name, each in found.items() if "float" in str(each.data_type)}
    assert floats == {"relu4", "w7.weight", "pool2"}, "AIMET has an average of what is in float in float, too"


def test_ai_edge_quantizer_takes_the_recipe(tmp_path):
    quantizer = pytest.importorskip("ai_edge_quantizer.quantizer", reason="ai-edge-quantizer is not installed")
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import recipe

    arrays = inputs(4).transpose(0, 2, 3, 1)[:, None]
    name = "serving_default_keras_tensor:0"
    codes = np.clip(np.rint(arrays * 255) - 128, -128, 127).astype(np.int8)
    parts = ("Relu", "BiasAdd", "convolution", "Squeeze1")
    conv = "CONV_2D:" + ";".join(f"sequential_1/conv2d_1_2/{part}" for part in parts)
    edits = ["float FULLY_CONNECTED:StatefulPartitionedCall_1:0", f"16-bit {conv}"]
    paths = DIGITS / "digits_float.tflite", DIGITS / "digits_int8.tflite"
    given = handed_over(tmp_path, paths, [{name: arrays}, {name: codes}], edits, backend="litert")
    made = quantizer.Quantizer(str(paths[0]))
    made.load_quantization_recipe(recipe.static_wi8_ai8() + given["ai-edge-quantizer"])
    samples = [{"keras_tensor": each[None]} for each in inputs(16).transpose(0, 2, 3, 1)]
    made.quantize(made.calibrate({"serving_default": samples})).export_model(str(tmp_path / "out.tflite"))
    run = Interpreter(str(tmp_path / "out.tflite"))
    types = {each["name"]: each["dtype"] for each in run.get_tensor_details()}
    assert types["StatefulPartitionedCall_1:0"] is np.float32
    wide = {each for each, dtype in types.items() if dtype is np.int16}
    assert wide
    assert all("conv2d_1_2" in each or "conv2d_1/" in each for each in wide), "it, what it reads, and no more"
