"""Known mistakes, one by one: what each changes of a unit, and where there is none to make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qdebug.arithmetic import suspects as suspects_module
from qdebug.arithmetic.suspects import suspects
from qdebug.model.thresholds.explanation import SEQUENTIAL_SUMS_MAX_PRODUCTS
from qdebug.replay.evaluate import compute
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import Variant, parse_variant

CODES = np.random.default_rng(0).integers(-128, 127, (1, 2, 4, 5)).astype(np.int8)
CODES[0, 0, 0, 0] = -128
FILTERS = np.random.default_rng(1).integers(-9, 9, (3, 2, 3, 3)).astype(np.int8)
SCALES = np.array([0.1, 0.3, 0.2], np.float32)


def operand(codes, scale, zero):
    codes = np.asarray(codes)
    dtype = codes.dtype if codes.dtype.kind in "iu" else np.int8
    return Operand(codes=codes, scale=np.asarray(scale, np.float32), zero_point=np.asarray(zero, dtype))


def target(scale=0.25, zero=-3, dtype=np.int8, **facts):
    dtype = np.dtype(dtype)
    zero = np.asarray(zero, dtype if dtype.kind in "iu" else np.int8)
    return Target(dtype=dtype, scale=np.asarray(scale, np.float32), zero_point=zero, **facts)


X, W = operand(CODES, 0.5, 5), operand(FILTERS, SCALES.reshape(3, 1, 1, 1), 0)
CONV = Unit(
    kind="conv",
    operands=(X, W),
    out=target(clamp=(-3, 100)),
    bias=np.array([70000, -5, 9], np.int32),
    attrs={"pads": (1, 0, 2, 1)},
)
LINEAR = Unit(
    kind="linear",
    operands=(operand(np.int8([[1, -2], [3, 4]]), 0.5, 5), operand(np.int8([[5, 6], [7, 8]]), 0.25, 0)),
    out=target(),
)
ADD = Unit(
    kind="add", operands=(operand(np.int8([[1, -2]]), 0.5, 5), operand(np.int8([[7, 8]]), 0.25, 2)), out=target()
)

OF_A_CONV = {
    "no bias": ("constant_per_channel", "the bias is dropped"),
    "real bias": (
        "constant_per_channel",
        "the integers of the bias are added as real numbers, without their scale",
    ),
    "late bias": (
        "constant_per_channel",
        "the integers of the bias are added to the scaled result, without their scale",
    ),
    "short bias": ("constant_per_channel", "the bias is clipped to 16 bits"),
    "moved bias": ("constant_per_channel", "the bias is shifted by one channel"),
    "no zero point 0": ("constant_per_channel", "the first operand's zero point is dropped"),
    "zero point 0 added": ("constant_per_channel", "the first operand's zero point is added, not subtracted"),
    "wrapped 0": ("growing", "the difference from the first operand's zero point wraps around in 8 bits"),
    "output zero point -1": ("constant", "the output's zero point is -4, not -3"),
    "output zero point +1": ("constant", "the output's zero point is -2, not -3"),
    "first operand zero point -1": ("constant", "the first operand's zero point is 4, not 5"),
    "first operand zero point +1": ("constant", "the first operand's zero point is 6, not 5"),
    "exchanged zero points": ("constant_per_channel", "the operands' zero points are swapped"),
    "no output zero point": ("constant", "the output's zero point is not added"),
    "early zero point": ("constant", "the output's zero point is added before scaling"),
    "one scale 1": ("factor_per_channel", "the first channel's scale is used for all channels"),
    "mean scale 1": ("factor_per_channel", "the largest channel's scale is used for all channels"),
    "moved scale 1": ("factor_per_channel", "the scales are shifted by one channel"),
    "scale moved back 1": ("factor_per_channel", "each channel has the scale of the next channel"),
    "turned scale 1": ("factor_per_channel", "the scales are read in reverse order"),
    "offsets": ("constant", "the zero points have the opposite sign, like offsets that are added to the codes"),
    "zero padding": ("borders", "the padding is code 0 instead of the zero point"),
    "edge padding": ("borders", "the padding repeats the outermost values"),
    "padding end": ("borders", "the padding is [0, 0, 3, 1], not [1, 0, 2, 1]"),
    "padding start": ("borders", "the padding is [3, 1, 0, 0], not [1, 0, 2, 1]"),
    "padding swapped": ("borders", "the padding is [2, 1, 1, 0], not [1, 0, 2, 1]"),
    "sign read 0": ("signedness", "the first operand's int8 codes are read as uint8"),
    "sign moved 0": ("signedness", "the first operand's codes are off by half their range: uint8 read as int8"),
    "sign read 1": ("signedness", "the second operand's int8 codes are read as uint8"),
    "sign moved 1": ("signedness", "the second operand's codes are off by half their range: uint8 read as int8"),
    "output sign": ("signedness", "the signedness of the recorded output contradicts its quantization"),
    "turned kernel": ("scattered", "rows and columns of the filters are swapped"),
    "mirrored kernel": ("scattered", "the filters are mirrored, as in a true convolution"),
    "sums wrap": ("growing", "the sums wrap around in 16 bits"),
    "complete sums saturate": ("growing", "the sums saturate at 16 bits when they are complete"),
    "sums saturate chw": ("growing", "the sums saturate at 16 bits after each product, channels before taps"),
    "sums saturate hwc": ("growing", "the sums saturate at 16 bits after each product, taps before channels"),
    "wrapped codes": ("wrapped", "codes beyond the range wrap around instead of saturating"),
    "early wrap": ("wrapped", "results wrap around in the output's type before the zero point is added"),
    "early wrap in 16 bits": ("wrapped", "results wrap around in 16 bits before the zero point is added"),
    "early clamp": ("wrapped", "results saturate before the output's zero point is added"),
    "early clamp, late wrap": (
        "wrapped",
        "results saturate before the output's zero point is added, and wrap around after",
    ),
    **{
        f"{when} {what}": ("stale", f"each {what} is written one {what} {when}")
        for what in ("row", "column", "channel")
        for when in ("late", "early")
    },
    "no clamp": ("clamp", "the activation's range is not applied"),
}
EARLY = {"early wrap", "early wrap in 16 bits", "early clamp", "early clamp, late wrap"}


SEPARATE = ("correction", "clipped", "lowest bit", "of zeros")
"""Parts of the names of mistakes in corrections for zero points and in single codes, which are tested separately."""


def made_of(unit):
    return {each.name: each for each in suspects(unit) if not any(part in each.name for part in SEPARATE)}


def separate_of(unit):
    return {each.name: each for each in suspects(unit) if any(part in each.name for part in SEPARATE)}


def test_corrections_for_the_zero_point_are_taken_from_other_channels_or_incomplete():
    tried = {name for name in separate_of(CONV) if "correction" in name}
    own = {f"{which} correction" for which in ("next", "previous", "first", "twofold", "magnitudes")}
    assert tried == own | {f"correction without rest {tile}" for tile in (4, 8, 16)}
    without_zero_point = separate_of(replace(CONV, operands=(operand(CODES, 0.5, 0), W)))
    assert not [name for name in without_zero_point if "correction" in name]
    both = separate_of(replace(CONV, operands=(X, operand(FILTERS, SCALES.reshape(3, 1, 1, 1), 4))))
    shift = 18 * 5 * 4  # terms of a sum, and both zero points
    assert (both["no product of zeros"].unit.bias == (0 if CONV.bias is None else CONV.bias) - shift).all()


def test_codes_are_clipped_or_lose_a_bit():
    tried = separate_of(CONV)
    assert tried["are clipped to -127 to 127 0"].unit.operands[0].codes.min() == -127
    assert (tried["lose their lowest bit 1"].unit.operands[1].codes == FILTERS - FILTERS % 2).all()
    assert "are clipped to -64 to 63 1" not in tried  # the filters fit


def test_every_mistake_that_a_convolution_may_have_is_tried_once():
    found = list(made_of(CONV).values())
    assert [(each.name, (each.pattern, each.likely)) for each in found] == list(OF_A_CONV.items())


@pytest.mark.parametrize(
    ("unit", "gone", "more"),
    [
        (replace(CONV, bias=None), {"no bias", "real bias", "late bias", "short bias", "moved bias"}, set()),
        (
            replace(CONV, bias=np.zeros(3, np.int32)),
            {"no bias", "real bias", "late bias", "short bias", "moved bias"},
            set(),
        ),
        (
            replace(CONV, bias=np.float32([0.5, 0, 0])),
            {"real bias", "late bias", "short bias", "moved bias", "early zero point"},
            set(),
        ),
        (replace(CONV, bias=np.int32([7, 0, 0])), {"short bias"}, set()),
        (replace(CONV, operands=(operand(np.int8(CODES // 2), 0.5, 5), W)), {"wrapped 0"}, set()),
        (
            replace(CONV, operands=(operand(CODES, 0.5, 0), W)),
            {"no zero point 0", "zero point 0 added", "wrapped 0", "zero padding", "exchanged zero points"},
            set(),
        ),
        (
            replace(CONV, operands=(X, operand(FILTERS, SCALES.reshape(3, 1, 1, 1), 4))),
            set(),
            {"no zero point 1", "zero point 1 added"},
        ),
        (
            replace(CONV, operands=(X, replace(W, scale=np.float32(0.1)))),
            {n for n in OF_A_CONV if " scale " in n or n == "scale moved back 1"},
            set(),
        ),
        (
            replace(CONV, operands=(X, replace(W, scale=np.full((3, 1, 1, 1), np.float32(0.1))))),
            {n for n in OF_A_CONV if " scale " in n or n == "scale moved back 1"},
            set(),
        ),
        (replace(CONV, operands=(X, replace(W, scale=W.scale * 40))), set(), {"reciprocal 1"}),
        (replace(CONV, operands=(X, replace(W, scale=W.scale * 10))), set(), set()),  # the first channel's is 1
        (replace(CONV, operands=(replace(X, scale=np.float32(1.5)), W)), set(), {"reciprocal 0"}),
        (replace(CONV, out=replace(CONV.out, scale=np.float32(1.5))), set(), {"reciprocal output"}),
        (replace(CONV, out=replace(CONV.out, scale=np.float32(1))), set(), set()),
        (replace(CONV, attrs={}), {n for n in OF_A_CONV if "padding" in n}, set()),
        (replace(CONV, attrs={"pads": (0, 0, 0, 0)}), {n for n in OF_A_CONV if "padding" in n}, set()),
        (replace(CONV, attrs={"pads": (1, 1, 1, 1)}), {"padding swapped"}, set()),
        (replace(CONV, attrs={"pads": (0, 0, 1, 1)}), {"padding end"}, set()),
        (replace(CONV, attrs={"pads": (1, 1, 0, 0)}), {"padding start"}, set()),
        (replace(CONV, out=target()), {"no clamp"}, set()),
        (replace(CONV, out=target(zero=127)), {"no clamp", "output zero point +1"}, set()),
        (replace(CONV, out=target(zero=-128)), {"no clamp", "output zero point -1"}, set()),
        (replace(CONV, out=target(zero=-127)), {"no clamp"}, set()),
        (replace(CONV, operands=(X, replace(W, scale=np.float32([0.1, 0.3, 0.1]).reshape(3, 1, 1, 1)))), set(), set()),
        (
            replace(CONV, out=target(zero=0)),
            {"no clamp", "no output zero point", "early zero point"} | EARLY,
            set(),
        ),
        (
            replace(CONV, out=target(zero=[1, 2, 3])),
            {"no clamp", "output zero point -1", "output zero point +1", "early zero point"} | EARLY,
            set(),
        ),
        (
            replace(CONV, operands=(operand(CODES, 0.5, np.full((1, 2, 1, 1), 5)), W)),
            {"first operand zero point -1", "first operand zero point +1", "exchanged zero points"},
            set(),
        ),
        (
            replace(CONV, operands=(X, replace(W, codes=np.full_like(FILTERS, 3)))),
            {"turned kernel", "mirrored kernel"},
            set(),
        ),
        (replace(CONV, operands=(X, replace(W, codes=FILTERS[:, :, :, :2]))), {"turned kernel"}, set()),
        (
            replace(CONV, transposed=True),
            {n for n in OF_A_CONV if "sums" in n or "padding" in n},
            set(),
        ),
    ],
)
def test_a_mistake_is_tried_where_it_would_show(unit, gone, more):
    assert set(made_of(unit)) == (set(OF_A_CONV) - gone) | more


def test_products_and_sums_of_two_have_fewer_mistakes_to_make():
    zero_points = {"no zero point 0", "zero point 0 added", "no output zero point", "offsets"} | {
        f"{side} zero point {by}" for side in ("output", "first operand") for by in ("-1", "+1")
    }
    signs = {"output sign"} | {f"sign {how} {position}" for how in ("read", "moved") for position in (0, 1)}
    product = zero_points | signs | {"sums wrap", "complete sums saturate", "sums saturate hwc", "wrapped codes"}
    product |= EARLY | {"early zero point", "exchanged zero points"}
    product |= {f"{when} {what}" for when in ("late", "early") for what in ("row", "feature")}
    assert set(made_of(LINEAR)) == product
    assert made_of(LINEAR)["no zero point 0"].pattern == "constant_per_channel"
    assert made_of(LINEAR)["sums saturate hwc"].likely == "the sums saturate at 16 bits after each product"
    scales = {f"{which} {what}" for which in ("first", "last", "swapped") for what in ("scale", "numbers")}
    scales = {name if name != "swapped scale" else "swapped scales" for name in scales}
    assert (
        set(made_of(ADD))
        == zero_points | signs | scales | {"no zero point 1", "zero point 1 added", "wrapped codes"} | EARLY
    )
    assert [float(each.scale) for each in made_of(ADD)["swapped scales"].unit.operands] == [0.25, 0.5]
    assert [float(each.scale) for each in made_of(ADD)["first scale"].unit.operands] == [0.5, 0.5]
    assert [float(each.scale) for each in made_of(ADD)["last scale"].unit.operands] == [0.25, 0.25]
    same = replace(ADD, operands=(ADD.operands[0], replace(ADD.operands[1], scale=ADD.operands[0].scale)))
    assert not scales & set(made_of(same))
    assert made_of(ADD)["no zero point 1"].pattern == "constant"
    assert made_of(ADD)["no zero point 1"].likely == "the second operand's zero point is dropped"
    unsigned = replace(LINEAR, operands=(operand(np.uint8([[0, 1]]), 0.5, 0), LINEAR.operands[1]), out=target(zero=0))
    assert "offsets" not in made_of(unsigned)
    assert "first operand zero point -1" not in made_of(unsigned)
    assert "first operand zero point +1" in made_of(unsigned)
    assert made_of(unsigned)["sign read 0"].likely == "the first operand's uint8 codes are read as int8"


def test_real_numbers_have_no_codes_to_mistake():
    quantize = Unit(kind="quantize", operands=(operand(np.float32([0.5, 1]), 1, 3),), out=target(zero=0))
    assert set(made_of(quantize)) == {"output zero point -1", "output zero point +1", "output sign", "wrapped codes"}
    dequantize = Unit(kind="dequantize", operands=(operand(np.int8([7, 8]), 0.5, 0),), out=target(dtype=np.float32))
    assert set(made_of(dequantize)) == {
        "first operand zero point -1",
        "first operand zero point +1",
        "sign read 0",
        "sign moved 0",
    }


@pytest.mark.parametrize(("most", "tried"), [(2 * 2 * 2 - 1, False), (2 * 2 * 2, True)])
def test_sums_are_taken_one_by_one_up_to_a_number_of_products(monkeypatch, most, tried):
    assert most < SEQUENTIAL_SUMS_MAX_PRODUCTS
    monkeypatch.setattr(suspects_module, "SEQUENTIAL_SUMS_MAX_PRODUCTS", most)
    assert ("sums wrap" in made_of(LINEAR)) == tried


def test_a_mistake_changes_one_thing_of_the_unit():
    made = made_of(CONV)

    def scales(name):
        return made[name].unit.operands[1].scale.reshape(-1).tolist()

    first, second, third = SCALES.tolist()
    assert made["no bias"].unit.bias is None
    assert made["short bias"].unit.bias.tolist() == [32767, -5, 9]
    assert made["moved bias"].unit.bias.tolist() == [9, 70000, -5]
    assert made["no zero point 0"].unit.operands[0].zero_point == 0
    np.testing.assert_array_equal(made["wrapped 0"].unit.operands[0].centred, (CODES.astype(int) - 5 + 128) % 256 - 128)
    assert [int(made[f"output zero point {by}"].unit.out.zero_point) for by in ("-1", "+1")] == [-4, -2]
    moved = [made[f"first operand zero point {by}"].unit for by in ("-1", "+1")]
    assert [int(unit.operands[0].zero_point) for unit in moved] == [4, 6]
    assert made["no output zero point"].unit.out.zero_point == 0
    assert (scales("one scale 1"), scales("mean scale 1")) == ([first] * 3, [second] * 3)
    assert (scales("moved scale 1"), scales("turned scale 1")) == ([third, first, second], [third, second, first])
    offsets = made["offsets"].unit
    assert [int(offsets.operands[0].zero_point), int(offsets.out.zero_point)] == [-5, 3]
    for name, mode in (("zero padding", {}), ("edge padding", {"mode": "edge"})):
        unit = made[name].unit
        np.testing.assert_array_equal(unit.operands[0].codes, np.pad(CODES, ((0, 0), (0, 0), (1, 2), (0, 1)), **mode))
        assert unit.attrs["pads"] == (0, 0, 0, 0)
    assert made["padding swapped"].unit.attrs["pads"] == (2, 1, 1, 0)
    read, moved = (made[f"sign {how} 0"].unit.operands[0] for how in ("read", "moved"))
    np.testing.assert_array_equal(read.centred, CODES.astype(int) % 256 - 5)
    assert moved.codes.dtype == np.int8
    np.testing.assert_array_equal(moved.centred, CODES.astype(int) + np.where(CODES < 0, 128, -128) - 5)
    assert made["output sign"].has_opposite_signedness
    np.testing.assert_array_equal(made["turned kernel"].unit.operands[1].codes, FILTERS.transpose(0, 1, 3, 2))
    np.testing.assert_array_equal(made["mirrored kernel"].unit.operands[1].codes, FILTERS[:, :, ::-1, ::-1])
    assert made["no clamp"].unit.out.clamp is None
    large = replace(CONV, operands=(replace(X, scale=np.float32(4)), W), out=replace(CONV.out, scale=np.float32(8)))
    assert made_of(large)["reciprocal 0"].unit.operands[0].scale == 0.25
    assert made_of(large)["reciprocal output"].unit.out.scale == 0.125
    assert made_of(large)["reciprocal output"].pattern == "factor"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no bias", "m=q31 steps=mul,shr.up,zp,sat"),
        ("wrapped codes", "m=q31 steps=mul,shr.up,zp,wrap"),
        ("sums wrap", "m=q31 acc=wrap16 steps=mul,shr.up,zp,sat"),
        ("complete sums saturate", "m=q31 acc=sat16 steps=mul,shr.up,zp,sat"),
        ("sums saturate chw", "m=q31 acc=sat16:chw steps=mul,shr.up,zp,sat"),
        ("sums saturate hwc", "m=q31 acc=sat16:hwc steps=mul,shr.up,zp,sat"),
    ],
)
def test_a_mistake_changes_the_way_of_computing_only_where_it_says_so(name, text):
    right, free = parse_variant("m=q31 steps=mul,shr.up,zp,sat"), replace(CONV, out=replace(CONV.out, clamp=None))
    suspect = made_of(free)[name]
    np.testing.assert_array_equal(suspect.codes(right), compute(suspect.unit, parse_variant(text)))


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("early wrap", lambda v, z: np.clip(v.astype(np.int8).astype(int) + z, -128, 127)),
        ("early clamp", lambda v, z: np.clip(np.clip(v, -128, 127) + z, -128, 127)),
        ("early clamp, late wrap", lambda v, z: (np.clip(v, -128, 127) + z).astype(np.int8)),
        ("early wrap in 16 bits", lambda v, z: np.clip(v.astype(np.int16).astype(int) + z, -128, 127)),
        ("wrapped codes", lambda v, z: (v + z).astype(np.int8)),
    ],
)
def test_results_are_held_to_their_type_too_early_or_by_wrapping(name, held):
    codes = np.random.default_rng(2).integers(-128, 128, (1, 2000)).astype(np.int8)
    by = 4 if name != "early wrap in 16 bits" else 1000
    unit = Unit(kind="requantize", operands=(operand(codes, by, 5),), out=target(scale=1, zero=-7))
    exact = (codes.astype(int) - 5) * by
    np.testing.assert_array_equal(made_of(unit)[name].codes(Variant()), held(exact, -7))


def test_a_zero_point_may_be_added_where_it_is_scaled():
    codes = (LINEAR.operands[0].centred @ LINEAR.operands[1].centred - 3) * 0.5 / 1
    made = made_of(replace(LINEAR, out=target(scale=0.25)))["early zero point"].codes(Variant())
    np.testing.assert_array_equal(made, np.clip(np.rint(codes), -128, 127))
