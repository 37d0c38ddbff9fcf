"""Variants that are the same function of a node count as one: what is called the same is, and what differs is not."""

from __future__ import annotations

import itertools
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
from sweeps import sweep

from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.functions import _number_for_node, _scaled_operand, _sum_range, same_functions, shape_of
from qdebug.arithmetic.selection import is_non_decreasing
from qdebug.arithmetic.units import Units
from qdebug.compare.explaining.explain import explain_recording
from qdebug.replay.columns import Columns
from qdebug.replay.evaluate import accumulate, finish_many
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import Variant, parse_variant


def shaped(unit, variants):
    found = {}
    for sums in dict.fromkeys(variant.sums for variant in variants):
        found[sums] = accumulate(unit, sums)
    return shape_of(unit, found)


def unit_of(recording):
    return Units(recording).find(recording.graph.nodes[0], "y").unit((0, 0))


def numbers_of(unit, *texts):
    variants = [parse_variant(text) for text in texts]
    return same_functions(variants, [shaped(unit, variants)])


def test_a_power_of_two_makes_many_names_one_function(quantized):
    unit = unit_of(quantized.conv("", zero=-3))
    one = ("", "m=f64", "m=q31:d:xw/y steps=mul,shr.even,zp,sat", "steps=scale,div,even,zp,sat")
    other = ("steps=mul,up,zp,sat", "steps=mul,zp,up,sat", "m=q31 steps=mul,shr.up,zp,sat", "steps=mul,zp,plus,sat")
    assert numbers_of(unit, *one, *other) == (0, 0, 0, 0, 1, 1, 1, 1)


def test_an_odd_zero_point_tells_ties_before_from_ties_after(quantized):
    odd, even = (unit_of(quantized.conv("", zero=zero)) for zero in (-3, -4))
    texts = ("", "steps=mul,zp,even,sat")
    assert numbers_of(odd, *texts) == (0, 1)
    assert numbers_of(even, *texts) == (0, 0)


def test_they_have_to_be_the_same_on_every_node(quantized):
    texts = ("", "steps=mul,zp,even,sat")
    variants = [parse_variant(text) for text in texts]
    shapes = [shaped(unit_of(quantized.conv("", zero=zero)), variants) for zero in (-4, -3)]
    assert same_functions(variants, shapes[:1]) == (0, 0)
    assert same_functions(variants, shapes) == (0, 1)


@pytest.mark.parametrize("per_channel", [False, True])
def test_what_is_called_the_same_agrees_on_all_sums_and_the_rest_differs_on_one(quantized, per_channel):
    recording = quantized.conv("", scales=quantized.generic, per_channel=per_channel, filters=3)
    unit = unit_of(recording)
    variants = [v for v in candidates(unit) if v.sums == Variant().sums and "wrap32" not in str(v.requantize)]
    numbers = same_functions(variants, [shaped(unit, variants)])
    assert 10 < len(set(numbers)) < len(variants) * 0.8
    sums = np.arange(-(2**16), 2**16, dtype=np.int32)  # far beyond what saturates
    flat = np.broadcast_to(sums, (1, 3, 1, sums.size))
    columns = Columns(sums=Variant().sums, values=(flat,), shape=flat.shape)
    codes = finish_many(unit, columns, variants)
    first = {}
    for number, row in zip(numbers, codes, strict=True):
        np.testing.assert_array_equal(row, first.setdefault(number, row))


def test_means_of_as_many_elements_are_compared_on_their_sums():
    one = Operand(codes=np.zeros((1, 2, 4, 4), np.int8), scale=np.float32(0.5), zero_point=np.int8(0))
    out = Target(dtype=np.dtype(np.int8), scale=np.float32(0.25), zero_point=np.int8(3))
    unit = Unit(kind="global_average_pool", operands=(one,), out=out)
    assert numbers_of(unit, "steps=mul,up,zp,sat", "steps=mul,zp,up,sat", "steps=mul,even,zp,sat") == (0, 0, 1)


def test_functions_of_two_codes_are_compared_on_all_pairs():
    rng = np.random.default_rng(0)
    codes = rng.integers(-128, 128, (2, 8)).astype(np.int8)
    one = Operand(codes=codes, scale=np.asarray(np.float32(0.25)), zero_point=np.zeros((), np.int8))
    out = Target(dtype=np.dtype(np.int8), scale=np.asarray(np.float32(0.5)), zero_point=np.asarray(3, np.int8))
    unit = Unit(kind="add", operands=(one, one), out=out)
    texts = ("form=fold steps=even,sat", "form=fold-fma steps=even,sat", "form=deq steps=div,zp,even,sat")
    assert numbers_of(unit, *texts, "form=deq steps=div,even,zp,sat", "form=fold steps=away,sat") == (0, 0, 0, 1, 2)


def test_functions_of_one_code_are_compared_on_all_codes():
    codes = np.array([[3, 4]], np.uint8)
    one = Operand(codes=codes, scale=np.asarray(np.float32(0.05)), zero_point=np.asarray(128, np.uint8))
    out = Target(dtype=np.dtype(np.uint8), scale=np.asarray(np.float32(1 / 256)), zero_point=np.zeros((), np.uint8))
    unit = Unit(kind="lookup", operands=(one,), out=out, function="Sigmoid", op="Sigmoid")
    texts = (
        "form=table steps=div,even,zp,sat",
        "form=table steps=div,zp,even,sat",
        "form=table m=f64 steps=div,trunc,zp,sat",
    )
    assert numbers_of(unit, *texts) == (0, 0, 1)


def test_a_unit_without_values_holds_none(quantized):
    unit = unit_of(quantized.conv(""))
    shape = shaped(unit, [Variant()])
    assert all(operand.codes.strides == (0,) * operand.codes.ndim for operand in shape.unit.operands)
    assert all(columns.values == () for columns in shape.columns.values())


def test_what_cannot_be_proven_stays_apart():
    codes = np.array([[0.5, 1.5]], np.float32)
    one = Operand(codes=codes, scale=np.ones((), np.float32), zero_point=np.zeros((), np.int8))
    out = Target(dtype=np.dtype(np.int8), scale=np.asarray(np.float32(0.3)), zero_point=np.zeros((), np.int8))
    unit = Unit(kind="quantize", operands=(one,), out=out)
    assert numbers_of(unit, "steps=div,even,zp,sat", "steps=div,away,zp,sat") == (0, 1)


@pytest.mark.parametrize("scales", ["dyadic", "generic"])
def test_the_class_of_an_answer_holds_each_function_once(quantized, scales):
    recording = quantized.conv("", scales=getattr(quantized, scales))
    (node,) = explain_recording(recording).nodes
    unit = unit_of(recording)
    variants = [parse_variant(text) for text in node.variants]
    assert node.variants[0] == "m=f32:xw/y"
    assert len(variants) < node.alone
    assert len(set(same_functions(variants, [shaped(unit, variants)]))) == len(variants)


def test_saturated_outputs_name_no_arithmetic(quantized):
    constants, feeds = quantized.conv_parts(scales=(1.0, 1.0, 1e-4))
    constants["b"][:] = 10**6
    (node,) = explain_recording(quantized.recording_of(quantized.node, constants, np.abs(feeds), "")).nodes
    assert node.runner_up is None
    assert str(node.status) == "explained"
    assert node.words == "any arithmetic"
    assert node.presets == ()
    assert node.witnesses == 0
    assert "the recording cannot tell them apart" in node.reason


@pytest.mark.parametrize(
    ("kind", "shapes", "transposed", "bias", "reach"),
    [
        ("mul", ((3,), (3,)), False, None, 255 * 255),
        ("linear", ((4, 5), (5, 3)), False, None, 255 * 255 * 5),
        ("linear", ((4, 5), (5, 3)), False, [-9, 4, 7], 255 * 255 * 5 + 9),
        ("conv", ((1, 2, 4, 4), (3, 2, 3, 3)), False, None, 255 * 255 * 18),
        ("conv", ((1, 3, 4, 4), (3, 2, 3, 3)), True, None, 255 * 255 * 18 * 3),
        ("linear", ((4, 50000), (50000, 3)), False, None, 255 * 255 * 50000),  # more than 32 bits hold
        ("linear", ((2, 4, 5), (2, 5, 3)), False, [0, 0, 0], 255 * 255 * 5),
        ("linear", ((4, 5), (5, 3)), False, [0.25, 0.0, 0.0], 2**31),  # real numbers may be anything
        ("requantize", ((3,),), False, None, 255),
        ("global_average_pool", ((1, 2, 4, 4),), False, None, 255 * 16),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_sums_reach_as_far_as_the_ends_of_all_codes_can_add_up(kind, shapes, transposed, bias, reach, dtype):
    zero, one = np.zeros((), dtype), np.float32(1)
    operands = tuple(Operand(codes=np.zeros(shape, dtype), scale=one, zero_point=zero) for shape in shapes)
    bias = None if bias is None else np.array(bias, np.float32 if 0.25 in bias else np.int32)
    out = Target(dtype=np.dtype(dtype), scale=one, zero_point=zero)
    unit = Unit(kind=kind, operands=operands, out=out, bias=bias, transposed=transposed)
    assert _sum_range(unit, accumulate(unit, Variant().sums)) == (max(-reach, -(2**31)), min(reach, 2**31 - 1))


@pytest.mark.parametrize(
    ("scale", "bias", "along"),
    [
        ((), None, True),
        ((1, 3), None, True),
        ((3, 1), None, False),
        ((2, 1), None, False),
        ((), (3,), True),
        ((), (1,), True),
        ((1, 3), (1, 3), True),
        ((), (4, 1), False),
        ((), (4, 3), False),
    ],
)
def test_parameters_of_a_product_go_along_its_last_axis_or_nothing_is_told(scale, bias, along):
    zero, one = np.int8(0), np.float32(1)
    codes = np.zeros((4, 3), np.int8)
    operands = (
        Operand(codes=codes, scale=one, zero_point=zero),
        Operand(codes=codes, scale=np.ones(scale, np.float32), zero_point=zero),
    )
    out = Target(dtype=np.dtype(np.int8), scale=one, zero_point=zero)
    unit = Unit(kind="linear", operands=operands, out=out, bias=None if bias is None else np.ones(bias, np.int32))
    assert (_scaled_operand(unit) is unit.operands[0]) == along
    assert (_scaled_operand(unit) is None) == (not along)


def quantized_unit(kind, shapes, *, scales, out, zero=3, clamp=None, bias=None, dtype=np.int8, **facts):
    """Return a unit of codes that are all 0, with a scale, or one for each filter, for each operand."""
    operands = tuple(
        Operand(codes=np.zeros(shape, dtype), scale=np.asarray(scale, np.float32), zero_point=np.zeros((), dtype))
        for shape, scale in zip(shapes, scales, strict=True)
    )
    goal = Target(
        dtype=np.dtype(np.int8), scale=np.asarray(out, np.float32), zero_point=np.asarray(zero, np.int8), clamp=clamp
    )
    return Unit(kind=kind, operands=operands, out=goal, bias=bias, **facts)


THREE = np.float32([0.11, 0.3, 0.07])
WITH_SUMS = {
    "requantize": quantized_unit("requantize", [(4,)], scales=[0.37], out=0.29),
    "mul": quantized_unit("mul", [(4,), (4,)], scales=[0.037, 0.11], out=0.29),
    "linear": quantized_unit("linear", [(2, 2), (2, 3)], scales=[0.037, THREE], out=0.29),
    "one column": quantized_unit("linear", [(2, 2), (2, 3)], scales=[0.037, 0.11], out=0.29, zero=-4),
    "conv": quantized_unit("conv", [(1, 1, 2, 2), (3, 1, 1, 1)], scales=[0.037, THREE.reshape(3, 1, 1, 1)], out=0.29),
    "mean": quantized_unit("global_average_pool", [(1, 2, 2, 2)], scales=[0.37], out=0.29),
}


@pytest.mark.parametrize(("name", "clamp"), sweep(itertools.product(WITH_SUMS, (None, (3, 90))), 4))
def test_two_variants_are_one_function_if_and_only_if_they_agree_on_every_sum(name, clamp):
    unit = WITH_SUMS[name]
    unit = replace(unit, out=replace(unit.out, clamp=clamp))
    sums = Variant().sums
    known = [each for each in candidates(unit) if each.sums == sums and is_non_decreasing(each)]
    own = accumulate(unit, sums)
    numbers = same_functions(known, [shape_of(unit, {sums: own})])
    least, most = _sum_range(unit, own)
    every = np.arange(least, most + 1)
    if name == "conv":
        values = np.broadcast_to(every[:, None, None, None], (every.size, 3, 1, 1))
    else:
        values = np.broadcast_to(every[:, None], (every.size, 3 if name == "linear" else 1))
    columns = Columns(sums=sums, values=(np.ascontiguousarray(values),), shape=values.shape, count=own.count)
    rows = {}
    found = [rows.setdefault(row.tobytes(), len(rows)) for row in finish_many(unit, columns, known)]
    assert 2 < len(rows) < len(known)
    assert [numbers.index(number) for number in numbers] == [found.index(number) for number in found]


@pytest.mark.parametrize("kind", ["add", "lookup"])
def test_two_variants_are_one_function_if_and_only_if_they_agree_on_all_codes(kind):
    facts = {"function": "Sigmoid", "op": "Sigmoid"} if kind == "lookup" else {}
    scales = [0.07] if kind == "lookup" else [0.25, 0.5]
    unit = quantized_unit(kind, [(256,)] * len(scales), scales=scales, out=1 / 128 if facts else 0.5, **facts)
    codes = np.arange(-128, 128, dtype=np.int8)
    grid = [codes] if facts else [axis.reshape(-1) for axis in np.meshgrid(codes, codes)]
    whole = replace(
        unit, operands=tuple(replace(one, codes=axis) for one, axis in zip(unit.operands, grid, strict=True))
    )
    for sums in dict.fromkeys(each.sums for each in candidates(unit)):
        known = [each for each in candidates(unit) if each.sums == sums]
        numbers = same_functions(known, [shape_of(unit, {sums: accumulate(unit, sums)})])
        rows = {}
        codes_of = finish_many(whole, accumulate(whole, sums), known)
        found = [rows.setdefault(row.tobytes(), len(rows)) for row in codes_of]
        if sums.columns == "codes":
            assert [numbers.index(number) for number in numbers] == [found.index(number) for number in found]
        assert all(found[at] == found[numbers.index(number)] for at, number in enumerate(numbers))


@pytest.mark.parametrize(
    ("unit", "proven"),
    [
        (quantized_unit("requantize", [(4,)], scales=[0.5], out=0.25), True),
        (quantized_unit("requantize", [(4,)], scales=[0.5], out=[0.25, 0.25]), False),
        (quantized_unit("linear", [(2, 2), (2, 3)], scales=[0.5, 0.5], out=0.25), True),
        (quantized_unit("linear", [(2, 2), (2, 2, 3)], scales=[0.5, [[[0.5]], [[0.5]]]], out=0.25), False),
        (
            quantized_unit(
                "average_pool",
                [(1, 1, 4, 4)],
                scales=[0.5],
                out=0.25,
                attrs={"kernel_shape": (2, 2), "pads": (1, 1, 1, 1)},
            ),
            False,
        ),
    ],
)
def test_where_parameters_go_along_other_axes_or_counts_differ_nothing_is_proven(unit, proven):
    """Ties after an odd zero point and before it are the same where they go up, which only the sums can show."""
    texts = ("steps=mul,up,zp,sat", "steps=mul,zp,up,sat")
    assert (len(set(numbers_of(unit, *texts))) == 1) == proven


@pytest.mark.parametrize("dtypes", [(np.int8, np.int8), (np.int8, np.uint8), (np.int16, np.int8)])
def test_only_functions_of_few_codes_are_computed_for_all_of_them(dtypes):
    operands = [quantized_unit("add", [(2,)], scales=[0.25], out=0.5, dtype=dtype).operands[0] for dtype in dtypes]
    unit = replace(quantized_unit("add", [(2,), (2,)], scales=[0.25, 0.25], out=0.5), operands=tuple(operands))
    texts = ("form=deq steps=div,zp,even,sat", "form=fold steps=even,sat")
    assert (len(set(numbers_of(unit, *texts))) == 1) == (np.int16 not in dtypes)


@pytest.mark.parametrize("codes", [2**16 * 2 - 1, 2**16 * 2, 2**16 * 4])
def test_no_more_codes_are_computed_than_is_said(monkeypatch, codes):
    """Two variants on all pairs of codes, on one node or on two."""
    monkeypatch.setattr("qdebug.arithmetic.functions.EQUAL_FUNCTIONS_MAX_CODES", codes)
    unit = quantized_unit("add", [(2,), (2,)], scales=[0.25, 0.25], out=0.5)
    known = [parse_variant(text) for text in ("form=deq steps=div,zp,even,sat", "form=fold steps=even,sat")]
    shape = shaped(unit, known)
    apart = [len(set(same_functions(known, [shape] * nodes))) == 2 for nodes in (1, 2)]
    assert apart == [codes < 2**17, codes < 2**18]


def test_a_shape_travels_without_its_zeros(quantized):
    unit = unit_of(quantized.conv("", size=64, channels=16))
    shape = shaped(unit, [Variant()])
    sent = ForkingPickler.dumps(shape)
    assert len(sent) < 20_000
    other = ForkingPickler.loads(sent)
    assert [one.codes.shape for one in other.unit.operands] == [one.codes.shape for one in unit.operands]
    assert [one.codes.dtype for one in other.unit.operands] == [np.int8, np.int8]
    texts = ("", "steps=mul,zp,even,sat", "steps=mul,away,zp,sat")
    known = [parse_variant(text) for text in texts]
    assert same_functions(known, [other]) == same_functions(known, [shape])


def test_what_is_computed_counts_for_each_way_to_start_and_ends_where_it_would_be_too_much():
    """Two programs for each of two starts, on three channels: the steps of 255 codes are looked for in four rounds."""
    bias = np.array([7, -9, 3], np.int32)
    unit = quantized_unit("linear", [(2, 2), (2, 3)], scales=[0.5, np.full(3, 0.5)], out=0.25, bias=bias)
    late = "bias=float steps=scale,bias,div"
    texts = ("steps=mul,up,zp,sat", "steps=mul,zp,up,sat", f"{late},even,zp,sat", f"{late},zp,even,sat")
    known = [parse_variant(text) for text in texts]
    shape, price = shaped(unit, known), 4 * 3 * 255
    whole, cost = _number_for_node(known, [0] * len(known), shape, 4 * price)
    assert cost == 4 * price
    assert (whole[0] == whole[1], whole[0] == whole[2]) == (True, False)
    for most, spent, first in ((4 * price - 1, 2 * price, True), (2 * price - 1, 0, False)):
        found, cost = _number_for_node(known, [0] * len(known), shape, most)
        assert (cost, found[0] == found[1]) == (spent, first)
        assert len({found[0], found[2], found[3]}) == 3
    single = replace(unit, operands=(unit.operands[0], replace(unit.operands[1], scale=np.float32(0.5))))
    assert _number_for_node(known[:2], [0, 0], shaped(single, known[:2]), 1 << 20)[1] == 2 * price // 3
    # A real bias is one of a channel.
    assert _number_for_node(known[2:], [0, 0], shaped(single, known[2:]), 1 << 20)[1] == 2 * price


def test_real_results_and_starts_that_are_not_there_prove_nothing():
    unit = quantized_unit("dequantize", [(4,)], scales=[0.37], out=1.0)
    unit = replace(unit, out=Target(dtype=np.dtype(np.float32), scale=np.float32(1), zero_point=np.int8(0)))
    assert numbers_of(unit, "steps=scale", "form=fold steps=") == (0, 1)
    summed = WITH_SUMS["requantize"]
    known = [parse_variant(text) for text in ("steps=mul,up,zp,sat", "steps=mul,zp,up,sat")]
    assert same_functions(known, [replace(shaped(summed, known), columns={})]) == (0, 1)
    assert same_functions(known, [shaped(summed, known)]) == (0, 0)


@pytest.mark.parametrize("codes", [(0, 1), (0, 2), (-1, 1)])
@pytest.mark.parametrize("clamp", [False, True])
def test_ties_at_the_first_and_at_the_last_step_tell_programs_apart(codes, clamp):
    """A half is 0 or 1, and one and a half is 2 in either way, which matters only where there are such codes."""
    unit = quantized_unit("requantize", [(4,)], scales=[0.5], out=1.0, zero=0)
    low, high = codes
    limits = {"clamp": codes} if clamp else {"low": low, "high": high}
    unit = replace(unit, out=replace(unit.out, **limits))
    texts = ("steps=mul,even,zp,sat", "steps=mul,up,zp,sat", "steps=mul,away,zp,sat", "steps=mul,down,zp,sat")
    ways = (
        np.rint,
        lambda x: np.floor(x + 0.5),
        lambda x: np.trunc(x + np.copysign(0.5, x)),
        lambda x: np.ceil(x - 0.5),
    )
    halves = np.arange(-255, 256) / 2
    rows = [np.clip(way(halves).astype(int), low, high).tolist() for way in ways]
    seen = {}
    assert numbers_of(unit, *texts) == tuple(seen.setdefault(str(row), len(seen)) for row in rows)


def test_what_could_not_be_computed_stays_apart(quantized):
    same, other = parse_variant(""), parse_variant("steps=mul,zp,even,sat")
    variants = [same, same, other]
    shape = shaped(unit_of(quantized.conv("", zero=-3)), variants)
    assert _number_for_node(variants, [0] * 3, shape, 0) == ((0, 0, 1), 0)
