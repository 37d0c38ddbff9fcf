"""Programs of the last resort: bounded, different from each other, and none that leaves out a part of the unit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.search import other_endings, programs
from qdebug.arithmetic.units import Units
from qdebug.replay.scaling import GIVEN
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import Variant, parse_variant


def unit_of(recording):
    return Units(recording).find(recording.graph.nodes[0], "y").unit((0, 0))


def test_they_are_many_but_bounded(quantized):
    unit = unit_of(quantized.conv("", scales=quantized.generic))
    made = list(programs(unit, Variant().sums))
    assert 1000 < len(made) < 10_000
    assert len(set(made)) > 0.95 * len(made)
    assert set(made) - set(candidates(unit))
    assert {variant.sums for variant in made} == {Variant().sums}
    orders: dict[str, set[str]] = {}
    for variant in made:
        orders.setdefault(variant.multiplier.number, set()).add(variant.multiplier.expression)
    assert (len(orders["f16"]), len(orders["bf16"])) == (1, 1)
    assert len(orders["f32"]) == len(orders["f64"]) > 1


def test_equal_multipliers_are_tried_once(quantized):
    dyadic, generic = (
        len(list(programs(unit_of(quantized.conv("", scales=scales)), Variant().sums)))
        for scales in (quantized.dyadic, quantized.generic)
    )
    assert dyadic < generic


def test_a_recorded_multiplier_or_shift_alone_brings_programs_that_take_the_recorded_one(quantized):
    unit = unit_of(quantized.conv(""))
    number = np.asarray(3, np.int32)
    taken = {}
    for recorded in ({}, {"multiplier": number}, {"shift": number}, {"multiplier": number, "shift": number}):
        made = programs(replace(unit, out=replace(unit.out, **recorded)), Variant().sums)
        taken[tuple(recorded)] = any(variant.multiplier.number == GIVEN for variant in made)
    assert taken == {(): False, ("multiplier",): True, ("shift",): True, ("multiplier", "shift"): True}


def test_a_bias_that_is_added_later_is_never_left_out(quantized):
    unit = unit_of(quantized.conv(""))
    late = [variant for variant in candidates(unit) if variant.bias == "float"]
    assert late
    for variant in programs(unit, late[0].sums):
        assert "bias" in [step.op for step in variant.requantize]


def test_both_stages_of_a_sum_are_varied():
    rng = np.random.default_rng(0)
    codes = rng.integers(-128, 128, (2, 8)).astype(np.int8)
    one = Operand(codes=codes, scale=np.asarray(np.float32(0.1)), zero_point=np.zeros((), np.int8))
    out = Target(dtype=np.dtype(np.int8), scale=np.asarray(np.float32(0.2)), zero_point=np.zeros((), np.int8))
    unit = Unit(kind="add", operands=(one, one), out=out)
    staged = [variant for variant in candidates(unit) if variant.operand]
    made = list(programs(unit, staged[0].sums))
    assert len({variant.operand for variant in made}) > len({variant.operand for variant in staged})
    assert len({variant.requantize for variant in made}) > len({variant.requantize for variant in staged})
    assert len(made) < 50_000


def test_endings_replace_the_last_steps_alone():
    variant = parse_variant("m=q31 steps=mul,shr.up,zp,sat")
    assert {str(other) for other in other_endings(variant)} == {
        "m=q31:xw/y steps=mul,shr.up,sat",
        "m=q31:xw/y steps=mul,shr.up,sat16,zp,sat",
    }
    assert list(other_endings(parse_variant("steps=mul,zp,even,sat"))) == []
