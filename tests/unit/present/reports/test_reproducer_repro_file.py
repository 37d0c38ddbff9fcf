"""The reproducer's text: a program of its own whose reference gives what the arithmetic gives."""

import ast
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.presets import known_presets
from qdebug.model import Node, RunInfo
from qdebug.present.reports.reproducer import ArrayPool, reference_code, reproducer_text
from qdebug.replay import Operand, Target, Unit
from qdebug.replay.evaluate import compute
from qdebug.replay.variant import parse_variant
from qdebug.reproduce.reproducer import Reproducer

RNG = np.random.default_rng(11)
FILE = Path("test_node.py")


def operand(codes, scale, zero):
    return Operand(codes=codes, scale=np.asarray(scale, np.float32), zero_point=np.asarray(zero, codes.dtype))


def target(scale=0.37, zero=101, dtype=np.uint8, **more):
    return Target(dtype=np.dtype(dtype), scale=np.float32(scale), zero_point=np.asarray(zero, dtype), **more)


def codes(*shape, dtype=np.uint8):
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def conv_unit(**more):
    scales = np.linspace(0.004, 0.03, 6, dtype=np.float32).reshape(6, 1, 1, 1)
    weight = Operand(codes=codes(6, 2, 3, 3, dtype=np.int8), scale=scales, zero_point=np.asarray(0, np.int8))
    fields = {
        "kind": "conv",
        "operands": (operand(codes(2, 4, 9, 8), 0.02, 119), weight),
        "out": target(),
        "bias": RNG.integers(-9000, 9000, 6).astype(np.int32),
        "attrs": {"group": 2, "pads": (1, 0, 2, 1), "strides": (2, 1), "dilations": (1, 2)},
        "opset": 13,
        "op": "QLinearConv",
    }
    return Unit(**fields | more)


def linear_unit():
    return Unit(
        kind="linear",
        operands=(operand(codes(5, 30), 0.02, 7), operand(codes(30, 4, dtype=np.int8), 0.013, -3)),
        out=target(dtype=np.int8, zero=-7),
        op="QLinearMatMul",
    )


def mul_unit():
    return Unit(
        kind="mul",
        operands=(operand(codes(3, 40), 0.02, 7), operand(codes(40), 0.013, 200)),
        out=target(0.05),
        op="QLinearMul",
    )


def made(unit, variant, recorded=None, **more):
    expected = compute(unit, variant)
    fields = {
        "node": Node(name="n", op=unit.op, inputs=("x",), outputs=("y",)),
        "run": RunInfo(backend="npu"),
        "place": (0, 0),
        "inputs": (),
        "constant": (),
        "opset": 13,
        "unit": unit,
        "variant": variant,
        "evidence": "which reproduces 2 other nodes of its kind in the run",
        "recorded": expected if recorded is None else recorded,
        "expected": expected,
        "whole": True,
        "elements": expected.size,
        "wrong": 0,
    }
    return Reproducer(**fields | more)


def ran(text):
    names = {"__name__": "test_node"}
    exec(compile(text, "test_node.py", "exec"), names)  # noqa: S102  what is tested is a program
    return names


@pytest.mark.parametrize("make", [conv_unit, linear_unit, mul_unit])
def test_the_reference_is_the_arithmetic_for_every_known_variant(make):
    unit = make()
    plain = 0
    for variant in candidates(unit):
        pool = ArrayPool()
        code = reference_code(unit, variant, pool)
        if code is None:
            continue
        plain += 1
        names = ran(f"import base64, io\nimport numpy as np\n{pool.block()}{code}")
        np.testing.assert_array_equal(names["reference"](), compute(unit, variant), err_msg=str(variant))
        assert names["reference"]().dtype == unit.out.dtype
    assert plain > 20


@pytest.mark.parametrize("name", list(known_presets()))
def test_the_text_runs_for_every_preset(name):
    unit = conv_unit(channels_last=True)
    variant = known_presets()[name].variant("conv")
    names = ran(reproducer_text(made(unit, variant), FILE))
    names["test_the_backend_gives_the_codes_of_the_reference"]()
    names["test_the_reference_gives_what_it_gave_when_this_file_was_made"]()
    np.testing.assert_array_equal(names["reference"](), compute(unit, variant))


def test_a_wrong_code_fails_and_is_counted():
    unit = linear_unit()
    variant = known_presets()["ort-mlas"].variant("linear")
    recorded = compute(unit, variant)
    recorded[3, 2] ^= 5
    names = ran(reproducer_text(made(unit, variant, recorded), FILE))
    with pytest.raises(AssertionError, match=r"the recording: 1 of 20 codes are wrong.*\(3, 2\)"):
        names["test_the_backend_gives_the_codes_of_the_reference"]()


def test_the_output_of_a_device_is_checked_in_place_of_the_recording():
    unit, variant = linear_unit(), known_presets()["ort-mlas"].variant("linear")
    recorded = compute(unit, variant)
    recorded[3, 2] ^= 5
    names = ran(reproducer_text(made(unit, variant, recorded, inputs=(unit.operands[0].codes,)), FILE))
    read = []
    names["run_backend"] = lambda inputs: read.append(inputs) or names["EXPECTED"]
    names["test_the_backend_gives_the_codes_of_the_reference"]()
    np.testing.assert_array_equal(read[0][0], unit.operands[0].codes)
    names["run_backend"] = lambda _: names["EXPECTED"][::-1]
    with pytest.raises(AssertionError, match=r"the backend: \d+ of 20 codes are wrong"):
        names["test_the_backend_gives_the_codes_of_the_reference"]()


@pytest.mark.parametrize("name", ["ort-mlas", "tflite-reference", "tflite-opt-avx", "glow-interpreter", "onednn"])
@pytest.mark.parametrize("last", [False, True])
def test_a_known_runtime_is_right_up_to_ties(name, last):
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    pytest.importorskip("onnx", reason="needs the extra onnx")
    plain = replace(linear_unit(), out=target())
    biased = replace(plain, bias=RNG.integers(-9000, 9000, 4).astype(np.int32))
    bounded = conv_unit(out=target(clamp=(101, 180)), channels_last=last)
    wide = conv_unit(out=replace(target(), zero_point=np.asarray(101)))  # as a harness may say it
    for unit in (conv_unit(), bounded, plain, biased, wide):
        variant = known_presets()[name].variant(unit.kind)
        names = ran(reproducer_text(made(unit, variant), FILE))
        names["test_a_known_runtime_is_within_one_step_of_the_reference"]()
        right = names["on_onnxruntime"]
        names["on_onnxruntime"] = lambda right=right: right() ^ 8
        with pytest.raises(AssertionError):
            names["test_a_known_runtime_is_within_one_step_of_the_reference"]()


def test_no_runtime_stands_for_scales_that_it_does_not_take():
    """ONNX Runtime takes scales of float32: 0.1 of a harness is none, and 0.125 is."""

    def text(scale):
        plain = replace(linear_unit(), out=replace(target(), scale=np.float64(scale)))
        return reproducer_text(made(plain, known_presets()["ort-mlas"].variant("linear")), FILE)

    assert "onnxruntime" not in text(0.1)
    assert "onnxruntime" in text(0.125)


def test_no_runtime_stands_for_sums_that_it_does_not_make():
    unit, variant = conv_unit(), parse_variant("acc=pairsat16:hwc")
    assert "onnxruntime" not in reproducer_text(made(unit, variant), FILE)


def test_what_has_no_plain_form_is_stored():
    variant = known_presets()["ort-mlas"].variant("softmax")
    unit = Unit(
        kind="softmax",
        operands=(operand(codes(4, 10), 0.1, 3),),
        out=target(1 / 256, 0),
        attrs={"axis": -1},
        op="QLinearSoftmax",
    )
    text = reproducer_text(made(unit, variant), FILE)
    assert "computed when this file was made" in text
    ran(text)["test_the_backend_gives_the_codes_of_the_reference"]()


def test_codes_of_four_bits_are_held_in_bytes():
    narrow = RNG.integers(-8, 8, (30, 4)).astype(ml_dtypes.int4)
    weight = Operand(codes=narrow, scale=np.float32(0.1), zero_point=np.asarray(0, ml_dtypes.int4))
    unit = Unit(kind="linear", operands=(operand(codes(5, 30), 0.02, 7), weight), out=target(), op="QLinearMatMul")
    found = made(
        unit,
        known_presets()["ort-mlas"].variant("linear"),
        run=RunInfo(backend="onnxruntime"),
        inputs=(unit.operands[0].codes, narrow),
        constant=(False, True),
    )
    text = reproducer_text(found, FILE)
    assert "onnxruntime.InferenceSession" not in text
    ran(text)["test_the_reference_gives_what_it_gave_when_this_file_was_made"]()


def test_recorded_text_cannot_leave_the_docstring():
    evil = 'a"""\nimport os\nos.abort()\n"""\\'
    unit = linear_unit()
    found = made(
        unit,
        known_presets()["ort-mlas"].variant("linear"),
        node=Node(name=evil, op=evil, inputs=(evil,), outputs=("y",)),
        run=RunInfo(backend=evil, model=evil, versions={evil: evil}, cpu_flags=(f"amx{evil}",)),
        kept=evil,
        reference=evil,
    )
    text = reproducer_text(found, Path('te"""st.py'))
    tree = ast.parse(text)
    assert isinstance(tree.body[0], ast.Expr)
    assert "import os" not in [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Import)]
    ran(text)


def test_attributes_that_came_with_a_recording_are_only_values():
    unit = conv_unit()
    found = made(
        unit,
        known_presets()["ort-mlas"].variant("conv"),
        node=Node(name="n", op="QLinearConv", inputs=("x",), outputs=("y",), attrs={"a');import os;('": "\u202e\n'"}),
        run=RunInfo(backend="onnxruntime"),
        inputs=(unit.operands[0].codes, None),
        constant=(False, True),
    )
    text = reproducer_text(found, FILE)
    tree = ast.parse(text)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import) and node.names[0].name == "os"]
    assert "\u202e" not in text


def test_nothing_is_imported_in_vain():
    text = reproducer_text(made(mul_unit(), known_presets()["ort-mlas"].variant("mul")), FILE)
    assert "importlib" not in text
    short = Unit(kind="mul", operands=(operand(codes(2), 1, 0), operand(codes(2), 1, 0)), out=target(), op="QLinearMul")
    text = reproducer_text(made(short, known_presets()["ort-mlas"].variant("mul")), FILE)
    assert "import base64" not in text
    ran(text)["test_the_backend_gives_the_codes_of_the_reference"]()


def test_the_text_is_the_same_every_time():
    unit = conv_unit()
    found = made(unit, known_presets()["glow-cpu"].variant("conv"))
    assert reproducer_text(found, FILE) == reproducer_text(found, FILE)


@pytest.mark.parametrize(
    "array",
    [
        np.array(3, np.int8),
        np.array([0.1, 1e-30], np.float32),
        np.array([], np.float32),
        np.array([[1, 2], [3, 4]], np.uint16),
        np.array([np.nan, np.inf], np.float32),
        np.arange(500, dtype=np.int64).reshape(5, 100),
        np.array([True, False]),
    ],
)
def test_arrays_are_read_back_as_they_were(array):
    pool = ArrayPool()
    text = pool.text(array)
    assert pool.text(array.copy()) == text
    names = ran(f"import base64, io\nimport numpy as np\n{pool.block()}found = {text}")
    assert names["found"].dtype == array.dtype
    np.testing.assert_array_equal(names["found"], array)
