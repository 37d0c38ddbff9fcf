"""Known mistakes: each is made only where it would show, and is found where it was made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import qdebug
from qdebug.arithmetic.evidence import _in_recorded_order, residual_of
from qdebug.arithmetic.patterns.residual import PATTERNS, residual
from qdebug.arithmetic.patterns.wrong_evidence import CodesOfTensor
from qdebug.arithmetic.patterns.wrong_places import Layout
from qdebug.arithmetic.search import search
from qdebug.arithmetic.suspects import flip_sign_bit, suspects
from qdebug.arithmetic.units import Units
from qdebug.compare.explaining.explain import explain_recording
from qdebug.replay.evaluate import compute
from qdebug.replay.variant import Variant, parse_variant


def unit_of(recording):
    return Units(recording).find(recording.graph.nodes[0], "y").unit((0, 0))


def names(unit):
    return {suspect.name for suspect in suspects(unit)}


def test_suspects_are_many_and_of_known_patterns(quantized):
    found = list(suspects(unit_of(quantized.conv("", per_channel=True))))
    assert len({suspect.name for suspect in found}) == len(found) > 8
    assert {suspect.pattern for suspect in found} <= set(PATTERNS)


def test_no_suspect_changes_what_is_not_there(quantized):
    unit = unit_of(quantized.conv(""))
    assert "one scale 1" not in names(unit)
    assert "no zero point 1" not in names(unit)
    assert "no clamp" not in names(unit)
    constants, feeds = quantized.conv_parts(zero=0)
    constants["x_zero"] = np.zeros((), np.int8)
    constants["b"] = np.zeros_like(constants["b"])
    bare = unit_of(quantized.recording_of(quantized.node, constants, feeds[:1], ""))
    assert not {"no bias", "zero padding", "no zero point 0", "no output zero point"} & names(bare)


def test_an_average_whose_padding_counts_is_not_excused_where_it_pads_with_the_code_0():
    codes = np.random.default_rng(3).integers(0, 256, (1, 4, 9, 9)).astype(np.uint8)
    scale, zero = np.float32(0.05), np.uint8(119)
    attrs = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "count_include_pad": 1}
    padded = np.pad(codes, ((0, 0), (0, 0), (1, 1), (1, 1)))
    wrong = np.rint(np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3)).mean((-2, -1))).astype(np.uint8)
    with qdebug.Recorder(None, backend="npu") as rec:
        rec.put("x", codes, scale=scale, zero_point=zero)
        rec.put("y", wrong, node="pool", op="AveragePool", inputs=("x",), attrs=attrs, scale=scale, zero_point=zero)
    (node,) = qdebug.explain(rec.recording).nodes
    assert (node.status, node.residual.pattern) == ("unexplained", "borders")
    assert "code 0 instead of the zero point (reproduces every element)" in node.residual.likely


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no bias", "the bias is dropped"),
        ("moved bias", "shifted by one channel"),
        ("no zero point 0", "the first operand's zero point is dropped"),
        ("zero point 0 added", "the first operand's zero point is added, not subtracted"),
        ("no output zero point", "the output's zero point is not added"),
        ("output zero point +1", "the output's zero point is"),
        ("first operand zero point -1", "the first operand's zero point is"),
        ("offsets", "have the opposite sign, like offsets"),
        ("zero padding", "code 0 instead of the zero point"),
        ("edge padding", "repeats the outermost values"),
        ("padding end", "the padding is [0, 0, 2, 2], not [1, 1, 1, 1]"),
        ("moved scale 1", "the scales are shifted by one channel"),
        ("wrapped codes", "wrap around instead of saturating"),
        ("sign read 0", "the first operand's int8 codes are read as uint8"),
        ("sign moved 0", "off by half their range: uint8 read as int8"),
        ("turned kernel", "rows and columns of the filters are swapped"),
        ("mirrored kernel", "the filters are mirrored"),
    ],
)
def test_a_mistake_is_found_by_what_it_gives(quantized, name, words):
    plain = quantized.conv("", per_channel=True)
    units = Units(plain)
    node = plain.graph.nodes[0]
    sample = iter([0, 1])

    def fault(_, codes):
        unit = units.find(node, "y").unit((next(sample), 0))
        suspect = next(s for s in suspects(unit) if s.name == name)
        return suspect.codes(Variant())

    wrong = quantized.conv("", per_channel=True, fault=fault)
    finding = search(Units(wrong).find(node, "y"))
    assert finding.matching == ()
    found = residual_of(finding, Variant())
    assert words in found.likely
    assert found.likely.endswith("(reproduces every element)")


def test_one_more_wrong_element_clears_the_suspects(quantized):
    def fault(sample, codes):
        codes[:, 3:5, 2:4] += 30
        return codes

    wrong = quantized.conv("", fault=fault)
    found = residual_of(search(Units(wrong).find(wrong.graph.nodes[0], "y")), Variant())
    assert "reproduces every element" not in found.likely


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("op", ["AveragePool", "GlobalAveragePool"])
def test_the_sum_of_a_large_window_that_wraps_around_in_16_bits(op, dtype):
    rng = np.random.default_rng(6)
    ends, signed = np.iinfo(dtype), np.dtype(dtype).kind == "i"
    middle = np.linspace(*((95, 120) if signed else (175, 235)), 16).reshape(1, -1, 1, 1)
    codes = (middle + rng.integers(-5, 6, (1, 16, 20, 20))).astype(dtype)
    codes[:, 12:] = rng.integers(0, 40, (1, 4, 20, 20))
    zero = 0 if op == "GlobalAveragePool" else 3  # its kernels sum centred codes
    sums = codes.astype(np.int64).sum((2, 3), keepdims=True)
    sums = sums.astype(np.int16 if signed or op == "GlobalAveragePool" else np.uint16).astype(np.int64)
    means = np.sign(sums) * ((np.abs(sums) + 200) // 400)
    attrs = {} if op == "GlobalAveragePool" else {"kernel_shape": (20, 20)}
    with qdebug.Recorder(None, backend="npu") as rec:
        rec.put("x", codes, scale=0.05, zero_point=zero)
        wrong = np.clip(means, ends.min, ends.max).astype(dtype)
        rec.put("y", wrong, node="pool", op=op, inputs=("x",), attrs=attrs, scale=0.05, zero_point=zero)
    (node,) = qdebug.explain(rec.recording).nodes
    assert node.status == "unexplained"
    assert "the sum over a window wraps around in 16 bits (reproduces every element)" in node.residual.likely


def test_codes_that_lose_their_sign_instead_of_saturating():
    values = np.random.default_rng(4).normal(size=(4, 60)).astype(np.float32)
    with qdebug.Recorder(None, backend="npu") as rec:
        rec.constant("s", np.float32(0.02))
        rec.constant("z", np.uint8(20))
        rec.put("x", values)
        wrong = np.minimum(np.abs(np.rint(values / np.float32(0.02)) + 20), 255).astype(np.uint8)
        rec.put("y", wrong, node="q", op="QuantizeLinear", inputs=("x", "s", "z"), scale=0.02, zero_point=20)
    (node,) = qdebug.explain(rec.recording).nodes
    assert (node.status, node.residual.pattern) == ("unexplained", "wrapped")
    assert "negative codes lose their sign instead of becoming 0 (reproduces every element)" in node.residual.likely


@pytest.mark.parametrize("turn", [lambda codes: codes.view(np.uint8), flip_sign_bit], ids=["other type", "other half"])
def test_an_output_of_the_other_signedness_is_known(quantized, turn):
    wrong = quantized.conv("", fault=lambda _, codes: turn(codes))
    found = residual_of(search(Units(wrong).find(wrong.graph.nodes[0], "y")), Variant())
    assert found.pattern == "signedness"
    assert "contradicts its quantization" in found.likely


def test_a_mistake_is_found_though_another_variant_comes_closer(quantized):
    """Codes that are one too high are mostly those of a rounding up; nothing but the zero point gives all of them."""
    wrong = quantized.conv("", fault=lambda _, codes: np.where(codes < 127, codes + 1, codes).astype(codes.dtype))
    unit = unit_of(wrong)
    finding = search(Units(wrong).find(wrong.graph.nodes[0], "y"))
    zero = int(unit.out.zero_point)
    for near in (parse_variant("steps=mul,floor,zp,sat"), Variant()):
        found = residual_of(finding, near)
        assert (found.pattern, found.max_lsb, found.against) == ("constant", 1, str(Variant()))
        assert found.likely == f"the output's zero point is {zero + 1}, not {zero} (reproduces every element)"
        assert found.detail == "every element is off by 1 code"
    explained = explain_recording(wrong).nodes[0]
    assert (explained.status, explained.variants) == ("unexplained", (str(Variant()),))
    assert explained.match < 0.5


def test_scales_that_count_steps_per_unit_are_known(quantized):
    unit = unit_of(quantized.conv(""))
    assert not {"reciprocal 0", "reciprocal 1", "reciprocal output"} & names(unit)
    second, out = unit.operands[1], unit.out
    for name, turned in (
        ("reciprocal 1", replace(unit, operands=(unit.operands[0], replace(second, scale=1 / second.scale)))),
        ("reciprocal output", replace(unit, out=replace(out, scale=1 / out.scale))),
    ):
        suspect = next(found for found in suspects(turned) if found.name == name)
        np.testing.assert_array_equal(compute(suspect.unit, Variant()), compute(unit, Variant()))


def test_turning_the_sign_keeps_the_order_of_the_values():
    codes = np.array([-128, -1, 0, 127], np.int8)
    assert flip_sign_bit(codes).view(np.uint8).tolist() == [0, 127, 128, 255]
    assert np.array_equal(flip_sign_bit(flip_sign_bit(codes)), codes)


@pytest.mark.parametrize(
    ("accumulate", "words"),
    [
        ("wrap16", "the sums wrap around in 16 bits"),
        ("sat16", "the sums saturate at 16 bits when they are complete"),
        ("sat16:hwc", "the sums saturate at 16 bits after each product, taps before channels"),
        ("sat16:chw", "the sums saturate at 16 bits after each product, channels before taps"),
    ],
)
def test_sums_of_16_bits_are_known(quantized, accumulate, words):
    constants, feeds = quantized.conv_parts()
    constants["w"] = np.random.default_rng(1).integers(-90, 91, constants["w"].shape).astype(np.int8)
    constants["y_scale"] = constants["y_scale"] * np.float32(16)  # no code saturates where a sum does
    wrong = quantized.recording_of(quantized.node, constants, feeds[:2], Variant(accumulate=accumulate))
    finding = search(Units(wrong).find(wrong.graph.nodes[0], "y"))
    assert finding.matching == ()
    found = residual_of(finding, Variant())
    assert (found.pattern, found.likely) == ("growing", f"{words} (reproduces every element)")


def test_a_mistake_that_would_overflow_is_tried_without_a_warning(quantized, recwarn):
    wrong = quantized.conv("", scales=(1e25, 1e-3, 2e23), fault=lambda _, codes: np.roll(codes, 3))
    found = residual_of(search(Units(wrong).find(wrong.graph.nodes[0], "y")), Variant())
    assert found.wrong > 0
    assert [str(warning.message) for warning in recwarn] == []


def test_a_moved_bias_is_that_of_the_channel_before(quantized):
    unit = unit_of(quantized.conv(""))
    moved = next(each.unit.bias for each in suspects(unit) if each.name == "moved bias")
    assert moved.tolist() == [unit.bias[-1], *unit.bias[:-1]]


def test_of_very_many_elements_the_first_samples_are_looked_at(quantized, monkeypatch):
    wrong = quantized.conv("", fault=lambda _, codes: np.roll(codes, 3))
    finding = search(Units(wrong).find(wrong.graph.nodes[0], "y"))
    one = unit_of(wrong).operands[0].codes.size * 2
    assert residual_of(finding, Variant()).total == 2 * one
    monkeypatch.setattr("qdebug.arithmetic.evidence.PATTERN_MAX_ELEMENTS", one - 1)
    assert residual_of(finding, Variant()).total == one
    monkeypatch.setattr("qdebug.arithmetic.evidence.PATTERN_MAX_ELEMENTS", one)
    assert residual_of(finding, Variant()).total == 2 * one


@pytest.mark.parametrize("last", [False, True])
def test_wrong_elements_are_named_in_the_order_of_the_recording(quantized, last):
    """The batch within a sample counts as more samples; channels come first while patterns are looked for."""
    unit = replace(unit_of(quantized.conv("")), channels_last=last)
    rows = np.zeros((6, 7), np.int8)
    found = residual(CodesOfTensor(expected=rows, recorded=rows + (np.arange(42).reshape(6, 7) == 24), layout=Layout()))
    assert found.elements == ((3, 3),)
    assert _in_recorded_order(found, unit, (2, 7)).elements == ((1, 1, 3),)
    assert _in_recorded_order(found, unit, (7,)) is found
    deep = replace(found, elements=((5, 1, 2, 3),))
    assert _in_recorded_order(deep, unit, (3, 4, 5, 6)).elements == (((1, 2, 2, 3, 1) if last else (1, 2, 1, 2, 3)),)


def dense(seed=4):
    """Parts of an int8 dense layer with a scale for each output, and sums that a wrong kernel makes codes of."""
    rng = np.random.default_rng(seed)
    weight, bias = rng.integers(-127, 128, (32, 64), dtype=np.int8), rng.integers(-3000, 3000, 32, dtype=np.int32)
    scales = rng.uniform(0.001, 0.006, 32).astype(np.float32)
    x = np.clip(rng.normal(-10, 45, (20, 64)), -128, 127).astype(np.int8)
    return x, weight, bias, scales, (x.astype(np.int64) + 10) @ weight.astype(np.int64).T + bias


def rounded_twice(sums, factors, zero):
    """Requantize by the high half of a doubled product, then by a shift that rounds half away from zero."""
    fraction, exponent = np.frexp(factors.astype(np.float64))
    high = np.round(fraction * (1 << 31)).astype(np.int64) * sums
    high = np.where(high >= 0, (high + (1 << 30)) >> 31, -((-high + (1 << 30)) >> 31))
    right = -exponent
    rest = high & ((1 << right) - 1)
    codes = (high >> right) + (rest > (((1 << right) - 1) >> 1) + (high < 0)) + zero
    return np.clip(codes, -128, 127).astype(np.int8)


def test_a_mistake_is_named_in_an_arithmetic_that_no_sibling_has():
    x, weight, bias, scales, sums = dense()
    factors = np.float64(0.04) * scales[0].astype(np.float64) / 0.035
    with qdebug.Recorder(None, backend="board") as rec:
        rec.constant("w", weight, scale=scales, zero_point=np.zeros(32, int), axis=0)
        rec.constant("b", bias, scale=np.float32(0.04) * scales, zero_point=np.zeros(32, int), axis=0)
        rec.put("x", x, scale=0.04, zero_point=-10)
        codes = rounded_twice(sums, np.full(32, factors), -128)
        attrs = {"fused_activation_function": "NONE"}
        inputs = ("x", "w", "b")
        rec.put("y", codes, node="fc", op="FULLY_CONNECTED", inputs=inputs, attrs=attrs, scale=0.035, zero_point=-128)
    (node,) = qdebug.explain(rec.recording).nodes
    assert node.status == "unexplained"
    assert node.residual.likely == "the first channel's scale is used for all channels (reproduces every element)"


def test_codes_of_a_bias_in_other_units_are_no_known_arithmetic():
    x, weight, bias, _, sums = dense()
    scale = np.float32(0.002)
    codes = np.clip(np.rint(sums * (np.float64(0.04) * scale / 0.1)) + 3, -128, 127).astype(np.int8)
    for own, status in ((np.float32(0.04) * scale, "explained"), (np.float32(2.0**-18), "unexplained")):
        with qdebug.Recorder(None, backend="fused") as rec:
            for name, value in {"sx": 0.04, "sw": scale, "sy": 0.1}.items():
                rec.constant(name, np.float32(value))
            for name, value in {"zx": -10, "zw": 0, "zy": 3}.items():
                rec.constant(name, np.int8(value))
            rec.constant("w", weight.T.copy(), scale=scale, zero_point=0)
            rec.constant("b", bias, scale=own, zero_point=0)
            rec.put("x", x, scale=0.04, zero_point=-10)
            inputs = ("x", "sx", "zx", "w", "sw", "zw", "b", "sy", "zy")
            rec.put("y", codes, node="fc", op="QGemm", domain="com.microsoft", inputs=inputs, scale=0.1, zero_point=3)
        (node,) = qdebug.explain(rec.recording).nodes
        assert node.status == status
    assert "bias are added to the sums without rescaling" in node.residual.likely


@pytest.mark.parametrize(("scale", "zero", "said"), [(0.03, 40, "scale and zero point"), (0.05, 40, "zero point")])
def test_a_result_in_the_scale_or_zero_point_of_the_operand_is_named(scale, zero, said):
    codes = np.random.default_rng(5).integers(0, 256, (6, 60)).astype(np.uint8)
    with qdebug.Recorder(None, backend="board") as rec:
        rec.put("x", codes, scale=0.05, zero_point=130)
        wrong = np.where(codes < 130, np.rint(0.1 * codes.astype(int) + 0.9 * 130), codes).astype(np.uint8)
        attrs = {"alpha": 0.1}
        rec.put("y", wrong, node="act", op="LeakyRelu", inputs=("x",), attrs=attrs, scale=scale, zero_point=zero)
    (node,) = qdebug.explain(rec.recording).nodes
    assert node.residual.likely.startswith(f"the result has the {said} of the operand, not of the output")


def test_the_bounds_of_a_clip_may_be_cut_to_codes_of_its_input():
    codes = np.random.default_rng(4).integers(0, 256, (1, 8, 12, 12)).astype(np.uint8)
    read, made = {"scale": 0.05, "zero_point": np.uint8(119)}, {"scale": 0.03, "zero_point": np.uint8(100)}
    bounds = {"low": np.float32(-2), "high": np.float32(4)}
    cut = np.clip(codes, 79, 198)  # 4 / float32(0.05) is a little below 80
    wrong = np.clip(np.rint((cut.astype(float) - 119) * 0.05 / 0.03 + 100), 33, 233).astype(np.uint8)
    with qdebug.Recorder(None, backend="npu") as rec:
        rec.put("x", codes, **read)
        for name, bound in bounds.items():
            rec.constant(name, bound)
        rec.put("y", wrong, node="clip", op="Clip", inputs=("x", "low", "high"), **made)
    (node,) = qdebug.explain(rec.recording).nodes
    assert node.status == "unexplained"
    assert "truncated to codes of the input: codes from 33 to 232, not from 33 to 233" in node.residual.likely
    assert "(reproduces every element)" in node.residual.likely


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_a_bound_at_real_0_is_a_whole_code_already(scale, quantized):
    unit = replace(unit_of(quantized.conv("")), kind="requantize", bias=None)
    first = replace(unit.operands[0], scale=np.float32(scale), zero_point=np.int8(-3))
    out = replace(unit.out, scale=np.float32(scale), zero_point=np.int8(-3), clamp=(-3, 127))
    found = [name for name in names(replace(unit, operands=(first,), out=out)) if name.startswith("whole bounds")]
    assert all(name.startswith("whole bounds -3 ") for name in found)
