import pickle
from dataclasses import replace

import numpy as np
import pytest

from qdebug.replay import Arithmetic, Operand, Target, Unit, Variant, compute, parse_variant
from qdebug.replay.arithmetic import DEFAULTS, kind_of
from qdebug.replay.unit import KINDS


def unit_of(kind, dtype=np.uint8):
    codes = np.arange(12).reshape(3, 4).astype(dtype)
    operand = Operand(codes=codes, scale=np.asarray(0.5, np.float32), zero_point=np.asarray(3, dtype))
    out = Target(dtype=np.dtype(dtype), scale=np.asarray(1 / 128, np.float32), zero_point=np.asarray(0, dtype))
    return Unit(kind=kind, operands=(operand,), out=out)


def test_every_kind_has_a_default():
    assert set(DEFAULTS) == set(KINDS)
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
    with pytest.raises(ValueError, match="'convolution' names no kind"):
        Arithmetic(variants={"convolution": Variant()})


def test_the_softmax_of_wide_codes_needs_no_table():
    unit = unit_of("softmax", np.int16)
    codes = compute(unit, Arithmetic().variant(unit))
    real = np.exp(0.5 * np.arange(12).reshape(3, 4))
    np.testing.assert_array_equal(codes, np.rint(128 * real / real.sum(axis=1, keepdims=True)))
