"""Quantizers of AMD Quark: block floating point bit for bit, and QuantizeLinear to the integers that it adds."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from qdebug.errors import KernelError
from qdebug.model import Node
from qdebug.replay.registry import run_node

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("make_quark_golden", HERE / "make_quark_golden.py")
maker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(maker)
GOLDEN = json.loads(maker.FILE.read_text(encoding="utf-8"))
MICRO = {maker.name_of(attrs): attrs for attrs in maker.micro_cases()}
CASES = {maker.name_of(attrs): attrs for attrs in maker.cases()}


def computed(op, inputs, attrs, domain="com.amd.quark"):
    names = tuple(f"i{at}" for at in range(len(inputs)))
    node = Node(name="n", op=op, domain=domain, inputs=names, outputs=("o",), attrs=attrs)
    return run_node(node, dict(zip(names, inputs, strict=True)))["o"]


@pytest.mark.parametrize("name", CASES)
def test_blocks_are_rounded_as_quark_rounds_them(name):
    x = maker.data()
    right = np.array(GOLDEN[name], np.uint32).view(np.float32).reshape(x.shape)
    for op, domain in (("BFPQuantizeDequantize", "com.amd.quark"), ("BFPFixNeuron", "com.vai.quantize")):
        np.testing.assert_array_equal(computed(op, [x], CASES[name], domain), right)


@pytest.mark.parametrize("name", MICRO)
def test_elements_of_mx_blocks_are_rounded_as_quark_rounds_them(name):
    x = maker.data()
    right = np.array(GOLDEN[name], np.uint32).view(np.float32).reshape(x.shape)
    for op, domain in (("MXQuantizeDequantize", "com.amd.quark"), ("MXFixNeuron", "com.vai.quantize")):
        np.testing.assert_array_equal(computed(op, [x], MICRO[name], domain), right)


def test_an_unknown_format_of_elements_is_refused():
    with pytest.raises(KernelError, match="fp3"):
        computed("MXQuantizeDequantize", [np.ones(3, np.float32)], {"element_dtype": "fp3", "axis": 0})


def test_blocks_along_another_axis_are_filled_up_with_zeros():
    x = maker.data().reshape(2, 3, 32)[..., :5]
    attrs = {"axis": 1, "block_size": 8, "bit_width": 16}
    padded = np.pad(np.swapaxes(x, 1, 2), ((0, 0), (0, 0), (0, 5)))
    right = np.swapaxes(computed("BFPQuantizeDequantize", [padded], attrs | {"axis": -1})[..., :3], 1, 2)
    np.testing.assert_array_equal(computed("BFPQuantizeDequantize", [x], attrs), right)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32])
def test_codes_of_more_types_are_rounded_to_even_and_saturate(dtype):
    x = np.array([-1e12, -2.5, -0.5, 0.5, 1.5, 2.5, 1e12], np.float32)
    info = np.iinfo(dtype)
    zero = np.array(3, dtype)
    right = np.clip(np.rint(x.astype(np.float64)) + 3, info.min, info.max).astype(dtype)
    made = computed("ExtendedQuantizeLinear", [x, np.float32(1), zero], {})
    np.testing.assert_array_equal(made[1:-1], right[1:-1])
    assert (int(made[0]), int(made[-1])) == (info.min, info.max)
    back = computed("VitisDequantizeLinear", [right, np.float32(0.5), zero], {}, "com.vai.quantize")
    np.testing.assert_array_equal(back, (right.astype(np.float64) - 3).astype(np.float32) * np.float32(0.5))


def test_codes_of_float_formats_are_refused():
    zero = np.zeros((), np.float16)
    with pytest.raises(KernelError, match="float16 are not supported"):
        computed("ExtendedQuantizeLinear", [np.ones(3, np.float32), np.float32(1), zero], {})
