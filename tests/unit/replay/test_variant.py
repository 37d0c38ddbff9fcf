import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.arithmetic.canonical import canonical
from qdebug.cli.topics import topic_text
from qdebug.errors import UsageError
from qdebug.replay import Multiplier, Step, Variant, describe, parse_variant
from qdebug.replay.scaling import EXPRESSIONS, NUMBERS, Scales, integer_multiplier
from qdebug.replay.steps import STEPS
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import ACCUMULATES, BIASES, DEFAULTS, FORMS, Arithmetic

STEP = st.sampled_from([Step(op=op, rounding=r) for op, row in STEPS.items() for r in row.roundings or ("",)])
PAIRS = st.builds(
    lambda kind, order, distance: f"{kind}:{order}" + (f":{distance}" if distance > 1 else ""),
    st.sampled_from([name for name in ACCUMULATES if name.startswith("pair")]),
    st.sampled_from(["hwc", "chw"]),
    st.integers(1, 16),
)
VARIANTS = st.builds(
    Variant,
    form=st.sampled_from(sorted(FORMS)),
    accumulate=st.one_of(st.sampled_from(["wrap32", "exact"]), PAIRS),
    bias=st.sampled_from(list(BIASES)),
    multiplier=st.builds(
        Multiplier, number=st.sampled_from(list(NUMBERS)), expression=st.sampled_from(list(EXPRESSIONS))
    ),
    requantize=st.lists(STEP, max_size=6).map(tuple),
    operand=st.lists(STEP, max_size=4).map(tuple),
    shift=st.integers(0, 30),
)


@given(VARIANTS)
def test_the_text_of_a_variant_gives_it_back(variant):
    text = str(variant)
    assert parse_variant(text) == variant
    assert "\n" not in text
    assert hash(parse_variant(text)) == hash(variant)


@given(VARIANTS)
def test_every_variant_has_words_of_one_line(variant):
    words = describe(variant)
    assert "\n" not in words
    assert not words.startswith(",")


@given(VARIANTS)
def test_what_is_canonical_stays_so(variant):
    once = canonical(variant)
    assert canonical(once) == once


def test_the_default_is_named_by_its_multiplier():
    assert str(Variant()) == "m=f32:xw/y"
    assert parse_variant("") == Variant()
    assert describe(Variant()) == "float32 multiplier, ties to even, zero point after rounding"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("steps=mul,zp,even,sat", "float32 multiplier, zero point before rounding, ties to even"),
        (
            "m=q31:d:xw/y steps=shl,mulhi.up,shr.away,zp,sat",
            "31-bit multiplier, quotient of scales in float64, high product, ties up, then a shift, ties away from",
        ),
        ("form=common21 steps=shr.away,zp,sat", "21-bit multipliers with one shift, ties away from zero"),
        ("acc=pairsat16:hwc", "pairs of products saturated to 16 bits, taps before channels, float32 multiplier"),
    ],
)
def test_words(text, words):
    assert describe(parse_variant(text)).startswith(words)


def test_what_is_computed_in_float64_is_not_said_to_be_in_float32():
    for form in ("table", "deq"):
        words = describe(parse_variant(f"form={form} m=f64 steps=div,even,zp,sat"))
        assert "float64" in words
        assert "float32" not in words
    assert "in float64" in describe(parse_variant("m=f64 steps=div,even,zp,sat"))


@pytest.mark.parametrize(
    "text",
    [
        "m=q33",
        "m=f32:xyz",
        "steps=mul,sideways",
        "steps=shr",
        "steps=mul.even",
        "form=other",
        "acc=pairsat16",
        "acc=pairsat16:hcw",
        "acc=pairwrap16:hwc:1",
        "acc=wrap32:hwc",
        "bias=maybe",
        "shift=31",
        "shift=-1",
        "m=q8 shift=9..2",
        "shift=1..9",
        "m=q8 pre=3 pre=4 steps=pre.up,mul,shr.up,zp,sat",
        "m=q8 pre=3 steps=mul,shr.up,zp,sat",
        "colour=red",
        "m=f32 m=f32",
        "mul,even",
    ],
)
def test_texts_that_are_none_are_refused(text):
    with pytest.raises(UsageError, match="The arithmetic has an unknown"):
        parse_variant(text)


def test_variants_that_share_their_heavy_part_are_equal_there():
    variant = Variant()
    assert variant.sums == replace(variant, multiplier=Multiplier(number="f64")).sums
    assert variant.sums != replace(variant, accumulate="pairsat16:hwc").sums
    assert parse_variant("form=deq").sums == parse_variant("form=fold-fma").sums


def test_what_is_never_used_takes_its_default():
    assert canonical(parse_variant("m=f32:x*(w/y) steps=scale,div,even,zp,sat")) == parse_variant(
        "steps=scale,div,even,zp,sat"
    )
    assert canonical(parse_variant("shift=20 operand=mul,shr.up")) == Variant()
    assert canonical(parse_variant("bias=float")).bias == "none"


def test_the_guide_names_every_word():
    section = topic_text("arithmetics").partition("## The words of a variant")[2]
    words = {*FORMS, *NUMBERS, *EXPRESSIONS, *BIASES, *(set(STEPS) - {"round"}), *STEPS["round"].roundings}
    words |= {*STEPS["shr"].roundings}
    words |= {kind for kind in ACCUMULATES if not kind.startswith("pair")} | {
        "pairsat16:ORDER",
        "pairwrap16:ORDER:DISTANCE",
    }
    words = {re.sub(r"^q\d+", "qN", word) for word in words} | {"pre", "LO..HI"}
    assert not {word for word in words if f"`{word}`" not in section}


def test_a_significand_may_have_any_width_limited_shifts_and_a_shift_before_the_product():
    text = "m=q12t:d:xw/y shift=8..15 pre=4 steps=pre.floor,mul,shr.up,zp,sat"
    variant = parse_variant(text)
    assert str(variant) == text
    assert "truncated 12-bit multiplier, shifts of 8 to 15 bits, sums shifted right by 4 bits" in describe(variant)
    scales = Scales(x=np.array([0.3, 0.001, 1.9]), w=np.ones(()), y=np.ones(()), n=np.ones(()))
    integers = integer_multiplier(SimpleNamespace(), scales, parse_variant("m=q8:d:xw/y shift=3..12").multiplier)
    # 0.3 has 8 bits at a shift of 9; 0.001 would need one of 17; 1.9 has 8 bits at a shift of 7.
    assert integers.multiplier.tolist() == [154, 4, 243]
    assert (integers.bits - integers.exponent).tolist() == [9, 12, 7]
    large = integer_multiplier(SimpleNamespace(), scales, parse_variant("m=q4:d:xw/y shift=9..9").multiplier)
    assert large.multiplier.tolist() == [15, 1, 15]


def test_pairs_in_an_order_are_not_for_a_transposed_convolution():
    codes, one = np.ones((1, 2, 3, 3), np.int8), np.float32(1)
    operands = tuple(Operand(codes=codes, scale=one, zero_point=np.int8(0)) for _ in range(2))
    out = Target(dtype=np.dtype(np.int8), scale=one, zero_point=np.int8(0))
    unit = Unit(kind="conv", operands=operands, out=out)
    paired = Arithmetic(variants={"conv": parse_variant("acc=pairsat16:hwc steps=mul,away,zp,sat")})
    assert paired.variant(unit).accumulate == "pairsat16:hwc"
    assert paired.variant(replace(unit, transposed=True)) == DEFAULTS["conv"]
