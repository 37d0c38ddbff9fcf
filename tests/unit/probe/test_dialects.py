"""Probe nets said in another way have the same codes, and installed backends are explained through them."""

import numpy as np
import pytest

from qdebug.arithmetic.fingerprints import packaged
from qdebug.arithmetic.presets import known_presets
from qdebug.backends import load_backend
from qdebug.errors import MissingExtraError
from qdebug.probe.dialects import translate_floats_to_pytorch, translate_to_pt2e, translate_to_qdq, translate_to_tflite
from qdebug.probe.models import probe_models
from qdebug.probe.rounding_models import ROUNDED_OPS, rounding_model
from qdebug.probe.run import run_probe
from qdebug.replay import run_graph

MODELS = [model for model in probe_models() if not model.title.startswith("resize")]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.title)
def test_a_net_in_qdq_form_reads_the_same_codes(model):
    """Node by node on real numbers, both give codes that are at most one apart."""
    said = translate_to_qdq(model)
    real = run_graph(said.graph, said.feed, said.constants)
    codes = run_graph(model.graph, model.feed, model.constants)
    assert len(real) == len(codes)
    made = [node for node in said.graph.nodes if node.op == "DequantizeLinear"]
    scales = {node.outputs[0]: said.constants[node.inputs[1]] for node in made}
    for ours, theirs, name in zip(real.values(), codes.values(), real, strict=True):
        steps = ours / scales[name].reshape(())
        apart = steps - np.rint(steps[:1]) - (theirs.astype(np.float64) - theirs[:1])
        assert np.abs(apart - np.median(apart)).max() < 2.1, name


def test_what_tensorflow_lite_has_no_form_for_is_left_out():
    said = {model.title: translate_to_tflite(model) for model in probe_models()}
    assert {title for title, model in said.items() if model is None} == {
        *("conv uint8 x int8", "conv depthwise uint8 x int8", "linear uint8 x int8"),
        *("global_average_pool uint8", "global_average_pool int8", "concat int8"),
        *("resize channels last uint8", "resize channels last int8"),
    }
    pools = said["average_pool int8"]
    assert len(pools.graph.nodes) == 3  # those at one scale
    for node in said["softmax int8"].graph.nodes:
        assert said["softmax int8"].graph.tensors[node.outputs[0]].quant.scale == np.float32(1 / 256)


@pytest.mark.parametrize("model", list(probe_models()), ids=lambda model: model.title)
def test_a_net_in_pytorchs_words_has_the_same_codes_weights_and_scales(model):
    said = translate_to_pt2e(model)
    if said is None:
        assert model.title.startswith("resize channels last")
        return
    makers = {node.outputs[0]: node for node in said.graph.nodes}
    assert {node.op.partition(".")[0] for node in said.graph.nodes} == {"aten", "quantized_decomposed"} - (
        {"aten"} if model.kind == "quantize" else set()
    )
    if model.kind != "resize":  # of which one way of placing has no operator
        assert len(said.graph.outputs) == len(model.graph.outputs)
    codes = {**model.feed, **model.constants}.values()
    known = {array.astype(np.int64).tobytes() for array in codes}
    known |= {array.T.astype(np.int64).tobytes() for array in codes if array.ndim == 2}
    for node in said.graph.nodes:
        name, attrs = node.inputs[0], node.attrs
        if "dequantize" in node.op and name in said.constants:
            found = said.constants[name]
        elif ".quantize" in node.op and name in said.feed and model.kind != "quantize":
            found = np.rint(said.feed[name] / np.float32(attrs["scale"])).astype(np.int64) + attrs["zero_point"]
        else:
            continue
        assert np.ascontiguousarray(found).astype(np.int64).tobytes() in known
        if "per_channel" in node.op:
            scales = said.constants[node.inputs[1]]  # one for each filter, be they equal
            assert scales.shape == found.shape[:1]
            assert any(np.array_equal(np.unique(scales), np.unique(array)) for array in model.constants.values())
        else:
            assert any(np.array_equal(np.float32(attrs["scale"]), array) for array in model.constants.values())
    for name in said.graph.outputs:
        assert "dequantize" in makers[name].op


def test_what_pytorch_has_no_operator_for_is_left_out():
    for title, count in (("resize int8", 6), ("requantize int8", 10)):
        model = next(model for model in probe_models() if model.title == title)
        said = translate_to_pt2e(model)
        assert len(said.graph.outputs) == count
        assert len(model.graph.outputs) == (9 if model.kind == "resize" else count)
    assert not [node for node in said.graph.nodes if "clamp" in node.op]  # a Clip that lets all through


@pytest.mark.parametrize(
    ("backend", "options", "title", "name"),
    [
        ("litert", {"kernels": "reference"}, "concat uint8", "form=fold steps=away,zp,sat"),
        ("openvino", {}, "quantize float32 -> int8", "form=levels steps=even,zp,sat"),
        ("openvino", {}, "conv depthwise uint8 x int8", "form=levels-fma steps=even,sat"),
        ("litert", {"kernels": "reference"}, "linear int8 x int8", "tflite-reference"),
        ("tflm", {}, "linear int8 x int8", "gemmlowp"),
        *(("litert", {"kernels": word}, "prelu int8", "gemmlowp") for word in ("xnnpack", "builtin", "reference")),
        ("tflm", {}, "prelu int8", "gemmlowp"),
    ],
)
def test_installed_backends_are_explained(backend, options, title, name):
    try:
        load_backend(backend)
    except MissingExtraError as error:
        pytest.skip(f"needs the extra {error.extra}")
    found = run_probe(backend, options=options, kinds=[title.split()[0]])
    entry = next(entry for entry in found.entries if entry.title == title)
    assert entry.status == "explained"
    assert name in {*entry.variants, *entry.presets}


def test_each_fingerprint_is_a_preset_that_is_measured():
    assert set(packaged()) <= set(known_presets())
    for name, found in packaged().items():
        assert known_presets()[name].provenance == "measured"
        assert set(known_presets()[name].variants) == set(found.kinds)
        for key, variants in found.kinds.items():
            assert known_presets()[name].variants[key] in variants


@pytest.mark.parametrize("op", ROUNDED_OPS)
def test_float_operators_keep_their_tensors_in_pytorch(op):
    model = rounding_model(op, "bfloat16")
    translated = translate_floats_to_pytorch(model)
    assert [node.outputs for node in translated.graph.nodes] == [node.outputs for node in model.graph.nodes]
    assert translated.graph.outputs == model.graph.outputs
    assert not translated.graph.opset
    for node, original in zip(translated.graph.nodes, model.graph.nodes, strict=True):
        assert sorted(node.inputs) == sorted(original.inputs)
        assert node.op.startswith("aten.")


def test_pytorch_rounds_float_operators_once():
    pytest.importorskip("torch")
    pytest.importorskip("torchao")
    result = run_probe("torch", kinds=["bfloat16"])
    entries = {entry.op: entry for entry in result.roundings}
    assert not [entry for entry in result.roundings if entry.status in ("not_run", "unexplained")]
    for op in ("Cast", "Add", "Gemm", "Conv", "ReduceMean", "Softmax", "LayerNormalization", "RMSNormalization"):
        assert (op, entries[op].placement) == (op, "result=even")
