"""Weights and activations that torchao quantizes: codes and scales, and which part of an error is whose."""

import logging
import warnings

import numpy as np
import pytest

import qdebug
from qdebug.backends.torch import record
from qdebug.backends.torch.ops import codes_of
from qdebug.model import Fidelity
from qdebug.model.recording import quant_of
from qdebug.running.record import record_run

torch = pytest.importorskip("torch", reason="needs the extra torch")
nn = torch.nn
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ao():
    """Import torchao, which logs and warns of accelerators that are not there."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantization = pytest.importorskip("torchao.quantization", reason="needs the extra torch")
    finally:
        logging.disable(logging.NOTSET)
    return quantization


def quantized(ao, model, config):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ao.quantize_(model, config)
    return model


def recorded(model, x):
    with record(model, None) as run:
        model(x)
    return run.recording


@pytest.fixture
def linear(seeded):
    """Return a function that makes a net of two linear layers, and an input."""
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(3))
    return lambda: seeded(lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))), x


def test_int8_weights_and_int8_activations_have_a_part_of_the_error_each(ao, linear):
    make, x = linear
    reference = recorded(make(), x)
    backend = recorded(quantized(ao, make(), ao.Int8DynamicActivationInt8WeightConfig()), x)
    assert backend.info.fidelity is Fidelity.BIT_EQUAL
    assert "0.weight is a Int8Tensor, which torch.export decomposes" in backend.info.options["way"]
    codes = backend.graph.tensors["0.weight"]
    assert (codes.dtype, codes.quant.axis, codes.quant.scale.shape) == ("int8", 0, (64,))
    result = qdebug.diff(reference, backend)
    assert result.status == "within"
    rows = {node.node: node for node in result.nodes}
    assert list(rows) == ["input", "0.quantize", "0", "1", "2.quantize", "2"]
    for name in ("0", "2"):
        weights, activations = rows[name].constants, rows[f"{name}.quantize"].arithmetic
        assert 0.003 < weights.rel_l2 < 0.005
        assert rows[name].arithmetic.rel_l2 < 1e-6
        assert activations.max_lsb == pytest.approx(0.5, abs=0.01)
        assert rows[f"{name}.quantize"].constants.max_abs == 0
    assert {node.status for node in qdebug.explain(backend).nodes if node.node.endswith("quantize")} == {"explained"}


def test_int4_weights_are_recorded_as_codes_in_blocks(ao, linear):
    make, x = linear
    reference = recorded(make(), x)
    config = ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=ao.granularity.PerGroup(32))
    backend = recorded(quantized(ao, make(), config), x)
    codes = backend.graph.tensors["0.weight"]
    assert (codes.dtype, codes.quant.axis, codes.quant.block_size) == ("int4", 1, 32)
    result = qdebug.diff(reference, backend)
    assert [str(node.status) for node in result.nodes] == ["identical", "within", "within", "within"]
    first = result.nodes[1]
    assert 0.05 < first.constants.rel_l2 < 0.09
    assert first.arithmetic.rel_l2 < 1e-6


def test_activations_chosen_in_a_way_that_is_not_seen_leave_the_node_without_replay(ao, linear):
    mx = pytest.importorskip("torchao.prototype.mx_formats", reason="needs the extra torch")
    from torchao.quantization.quantize_.common import KernelPreference

    make, x = linear
    config = mx.MXDynamicActivationMXWeightConfig(kernel_preference=KernelPreference.EMULATED)
    backend = recorded(quantized(ao, make().bfloat16(), config), x.bfloat16())
    assert backend.graph.producer("0").op == "MXTensor.aten.linear.default"
    assert "recorded dequantized, its codes are packed or swizzled" in backend.info.options["note"]
    result = qdebug.diff(recorded(make().bfloat16(), x.bfloat16()), backend)
    assert result.nodes[1].constants is None


@pytest.mark.parametrize("kind", ["float8", "mx", "nvfp4"])
def test_narrow_floats_are_codes_where_their_scales_are_in_order(kind, ao):
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(3))
    if kind == "float8":
        config = ao.Float8WeightOnlyConfig()
        weight = quantized(ao, nn.Sequential(nn.Linear(64, 8)), config)[0].weight
    elif kind == "mx":
        mx = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor", reason="needs the extra torch")
        weight = mx.MXTensor.to_mx(x.bfloat16(), torch.float8_e4m3fn, 32)
    else:
        nvfp4 = pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor", reason="needs the extra torch")
        weight = nvfp4.NVFP4Tensor.to_nvfp4(x)
    found = codes_of(weight)
    assert found.note == ""
    expected = {"float8": ("float8_e4m3fn", None), "mx": ("float8_e4m3fn", 32), "nvfp4": ("float4_e2m1fn", 16)}
    assert (found.array.dtype.name, found.quant.block_size) == expected[kind]


def test_a_transformer_in_bfloat16_and_int8_against_float32(ao, transformer):
    make, words = transformer
    reference = recorded(make(), words)
    narrow = recorded(make().bfloat16(), words)
    backend = recorded(quantized(ao, make(), ao.Int8DynamicActivationInt8WeightConfig()), words)
    for run, count in ((narrow, 39), (backend, 48)):
        assert run.info.fidelity is Fidelity.BIT_EQUAL
        result = qdebug.diff(reference, run)
        assert (result.status, len(result.nodes)) == ("within", count)
        assert all(node.arithmetic is not None for node in result.nodes[1:])
    assert {narrow.load(name).dtype.name for name in narrow.names if name != "ids"} == {"bfloat16"}


def test_an_exported_module_of_torchao_has_no_false_alarm_and_says_what_to_do(ao, linear, export, tmp_path):
    make, x = linear
    feed = {"input": x.numpy()}
    record_run(export(make(), x), backend="torch", inputs=feed, out=tmp_path / "float.h5")
    path = export(quantized(ao, make(), ao.Int8DynamicActivationInt8WeightConfig()), x, name="int8")
    record_run(path, backend="torch", inputs=feed, out=tmp_path / "int8.h5")
    ours = qdebug.open_recording(tmp_path / "int8.h5")
    assert "record the module itself" in ours.info.options["note"]
    assert ours.info.fidelity is Fidelity.BIT_EQUAL
    assert all(node.inputs and all(node.inputs) for node in ours.graph.nodes)
    assert qdebug.diff(tmp_path / "float.h5", ours).first_divergence is None


class Convolutions(nn.Module):
    """Two convolutions and a linear layer."""

    def __init__(self):
        super().__init__()
        self.first, self.act = nn.Conv2d(1, 8, 3, padding=1), nn.ReLU()
        self.second, self.other, self.last = nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(), nn.Linear(8 * 6 * 6, 10)

    def forward(self, x):
        return self.last(self.other(self.second(self.act(self.first(x)))).flatten(1))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_pt2e_program_is_said_to_be_run_in_float(dynamic, ao, seeded, export, tmp_path):
    model, x = seeded(Convolutions), torch.randn(2, 1, 14, 14, generator=torch.Generator().manual_seed(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

        quantizer = x86.X86InductorQuantizer()
        quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_dynamic=dynamic))
        prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer)
        prepared(x)
        path = export(convert_pt2e(prepared), x, name="int8")
    feed = {"x": x.numpy()}
    record_run(export(model, x), backend="torch", inputs=feed, out=tmp_path / "float.h5")
    record_run(path, backend="torch", inputs=feed, out=tmp_path / "int8.h5")
    ours = qdebug.open_recording(tmp_path / "int8.h5")
    assert "nodes run in float" in ours.info.options["note"]
    assert ours.info.fidelity is Fidelity.BIT_EQUAL
    quant = quant_of(ours, "quantize_per_tensor")
    assert (quant.dtype, quant.qmin, quant.qmax, quant.scale.shape) == ("uint8", 0, 255, (1,))
    weights = [info for name, info in ours.graph.tensors.items() if "frozen_param" in name]
    assert [(info.dtype, info.quant.axis) for info in weights] == [("int8", 0)] * 3
    result = qdebug.diff(tmp_path / "float.h5", tmp_path / "int8.h5")
    assert (result.status, result.exit_code) == ("within", 0)
    assert np.all(
        [str(node.status) == "explained" for node in qdebug.explain(ours).nodes if "quantize_per_tensor" in node.op]
    )
