import pickle
from dataclasses import replace

import numpy as np
import pytest

from qdebug.arithmetic.presets import preset
from qdebug.replay import Arithmetic, Operand, Target, Unit, Variant, compute, parse_variant
from qdebug.replay.interpolate import resize_like_onnxruntime
from qdebug.replay.registry import Call
from qdebug.replay.unit import KINDS
from qdebug.replay.variant import DEFAULTS, kind_of


def unit_of(kind, dtype=np.uint8):
    codes = np.arange(12).reshape(3, 4).astype(dtype)
    operand = Operand(codes=codes, scale=np.asarray(0.5, np.float32), zero_point=np.asarray(3, dtype))
    out = Target(dtype=np.dtype(dtype), scale=np.asarray(1 / 128, np.float32), zero_point=np.asarray(0, dtype))
    return Unit(kind=kind, operands=(operand,), out=out)


def test_every_kind_has_a_default():
    assert {key for key in DEFAULTS if "." not in key} == set(KINDS)
    assert {kind_of(key) for key in DEFAULTS} == set(KINDS)
    assert Arithmetic().variant(unit_of("conv")) == Variant()


def test_types_go_before_kinds_and_kinds_before_defaults():
    plain, typed = parse_variant("m=q31 steps=mul,shr.up,zp,sat"), parse_variant("m=f64")
    chosen = Arithmetic(variants={"requantize": plain, "requantize:uint8,uint8": typed})
    assert chosen.variant(unit_of("requantize")) == typed
    assert chosen.variant(unit_of("requantize", np.int8)) == plain
    assert chosen.variant(unit_of("concat")) == DEFAULTS["concat"]
    assert pickle.loads(pickle.dumps(chosen)) == chosen  # noqa: S301  # our own bytes


def test_a_function_goes_before_its_kind():
    plain, own = parse_variant("form=table steps=div,even,zp,sat"), parse_variant("form=hswish16 steps=shr.away,zp,sat")
    typed = parse_variant("form=table steps=div,away,zp,sat")
    chosen = Arithmetic(variants={"lookup": plain, "lookup.HardSwish": own, "lookup:int8,int8": typed})
    assert chosen.variant(replace(unit_of("lookup"), function="HardSwish")) == own
    assert chosen.variant(replace(unit_of("lookup", np.int8), function="HardSwish")) == own
    assert chosen.variant(replace(unit_of("lookup"), function="Tanh")) == plain
    assert chosen.variant(replace(unit_of("lookup", np.int8), function="Tanh")) == typed
    assert kind_of("lookup.HardSwish:int8,int8") == kind_of("lookup:int8,int8") == kind_of("lookup") == "lookup"


def test_a_resize_is_told_apart_by_what_it_interpolates_and_along_which_axes():
    x = np.zeros((1, 4, 4, 3), np.uint8)
    unit = replace(unit_of("resize"), operands=(replace(unit_of("resize").operands[0], codes=x),))
    unit = replace(unit, attrs={"mode": "linear"})
    first, last = np.array([1, 4, 8, 6]), np.array([1, 8, 8, 3])
    region = np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32)
    assert replace(unit, settings=(region, None, first)).branch == "linear"
    assert replace(unit, settings=(None, None, last)).branch == "linear-channels-last"
    assert replace(unit, settings=(None, np.array([1, 2, 2, 1], np.float32))).branch == "linear-channels-last"
    assert replace(unit, settings=(np.array([1, 1, 2, 2], np.float32),)).branch == "linear"
    every = np.array([1, 8, 8, 6])
    assert replace(unit, settings=(None, None, every)).branch == "linear-general"
    for more in ({"antialias": 1}, {"coordinate_transformation_mode": "half_pixel_symmetric"}):
        assert replace(unit, settings=(None, None, first), attrs={"mode": "linear", **more}).branch == "linear-general"
    axes = {"mode": "linear", "axes": (1, 2)}
    assert replace(unit, settings=(None, None, np.array([8, 8])), attrs=axes).branch == "linear-channels-last"
    assert replace(unit, settings=(None, None, first), attrs={}).branch == "nearest"


def test_a_convolution_is_depthwise_if_every_channel_has_a_filter_of_its_own():
    unit = unit_of("conv")
    assert replace(unit, attrs={"group": 4}).branch == "depthwise"
    assert replace(unit, attrs={"group": 2}).branch == unit.branch == ""
    assert replace(unit, transposed=True).branch == "transposed"


def test_onnx_runtimes_resize_takes_short_weights_where_channels_lie_last():
    unit = unit_of("resize")
    x = replace(unit.operands[0], codes=np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3))
    out = replace(unit.out, scale=x.scale, zero_point=x.zero_point)
    unit = replace(unit, operands=(x,), out=out, attrs={"mode": "linear"}, function="Resize")
    for sizes, form in (((1, 7, 9, 3), "blend10"), ((1, 4, 9, 7), "blend32")):
        made = replace(unit, settings=(None, None, np.array(sizes)))
        for arithmetic in (Arithmetic(), preset("ort-mlas").arithmetic):
            assert arithmetic.variant(made).form == form
            plain = run_node_codes(made)
            np.testing.assert_array_equal(compute(made, arithmetic.variant(made)), plain)


def run_node_codes(unit):
    """Run the kernel of Resize on codes, which is held against ONNX Runtime."""
    call = Call(inputs=(unit.operands[0].codes, *unit.settings), attrs=unit.attrs, opset=13, op="Resize")
    return resize_like_onnxruntime(call, unit.operands[0].codes)


def test_a_bilinear_resize_of_stored_codes_is_taken_only_where_it_is_one():
    chosen = Arithmetic(variants={"resize": parse_variant("form=grid10 steps=shr.away,sat")})
    unit = unit_of("resize")
    same = replace(unit, out=replace(unit.out, scale=unit.operands[0].scale, zero_point=unit.operands[0].zero_point))
    assert chosen.variant(replace(same, attrs={"mode": "linear"})).form == "grid10"
    moved = parse_variant("steps=scale,div,even,zp,sat")
    assert chosen.variant(replace(same, attrs={"mode": "nearest"})) == moved
    assert chosen.variant(replace(unit, attrs={"mode": "linear"})) == moved
    assert Arithmetic().variant(replace(same, attrs={"mode": "linear"})) == DEFAULTS["resize"]
    assert Arithmetic().variant(unit) == moved
    assert chosen.interpolates
    assert not Arithmetic().interpolates


def test_kinds_that_are_none_are_refused():
    with pytest.raises(ValueError, match="'convolution' is not a kind of unit"):
        Arithmetic(variants={"convolution": Variant()})


def test_the_softmax_of_wide_codes_needs_no_table():
    unit = unit_of("softmax", np.int16)
    codes = compute(unit, Arithmetic().variant(unit))
    real = np.exp(0.5 * np.arange(12).reshape(3, 4))
    np.testing.assert_array_equal(codes, np.rint(128 * real / real.sum(axis=1, keepdims=True)))
