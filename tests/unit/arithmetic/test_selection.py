"""The elements that decide: few, and enough."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.arithmetic import selection
from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.selection import choose_deciding_elements, is_non_decreasing, number_parameter_sets
from qdebug.model.thresholds.explanation import ALL_DECIDING_MAX_ELEMENTS, DECIDING_MAX_ELEMENTS
from qdebug.numerics.checkpoint import calling_at_checkpoints
from qdebug.replay.columns import Columns, HeavyPart
from qdebug.replay.evaluate import accumulate, compute, finish
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import parse_variant


def operand(codes, scale, zero=0):
    codes = np.asarray(codes, np.int8)
    return Operand(codes=codes, scale=np.asarray(np.float32(scale)), zero_point=np.asarray(zero, np.int8))


def target(scale, zero=-3, dtype=np.int8):
    return Target(dtype=np.dtype(dtype), scale=np.asarray(np.float32(scale)), zero_point=np.asarray(zero, dtype))


def pair(kind, shape=(40, 300), seed=0):
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for _ in range(2))
    return Unit(kind=kind, operands=(operand(a, 0.05, 4), operand(b, 0.03)), out=target(0.07), op=kind)


def function(name="HardSwish", size=20000):
    codes = np.random.default_rng(1).integers(-128, 128, size).astype(np.int8)
    return Unit(kind="lookup", operands=(operand(codes, 0.05, 4),), out=target(0.06), function=name, op=name)


@pytest.mark.parametrize("unit", [pair("add"), pair("mul"), function()], ids=["add", "mul", "lookup"])
def test_what_passes_on_the_deciding_elements_passes_on_all(unit):
    known = candidates(unit)
    truth = known[0]
    recorded = compute(unit, truth).reshape(-1)
    columns = accumulate(unit, truth.sums)
    deciding = choose_deciding_elements(unit, columns, recorded)
    assert deciding.consistent
    assert deciding.places.size < recorded.size
    few = columns.take(deciding.places)
    for variant in (v for v in known if v.sums == truth.sums):
        passes = np.array_equal(finish(unit, few, variant), recorded[deciding.places])
        everything = np.array_equal(finish(unit, columns, variant), recorded)
        if deciding.settles(variant):
            assert passes == everything, str(variant)
        else:
            assert passes >= everything, str(variant)


def test_a_function_of_a_code_is_decided_by_each_code_once():
    unit = function()
    variant = candidates(unit)[0]
    deciding = choose_deciding_elements(unit, accumulate(unit, variant.sums), compute(unit, variant).reshape(-1))
    assert deciding.every
    assert deciding.places.size == 256


def test_equal_codes_with_unequal_results_are_inconsistent_and_chosen():
    unit = function()
    variant = candidates(unit)[0]
    recorded = compute(unit, variant).reshape(-1).copy()
    odd = np.flatnonzero(unit.operands[0].codes == 17)[3]
    recorded[odd] += 1
    deciding = choose_deciding_elements(unit, accumulate(unit, variant.sums), recorded)
    assert not deciding.consistent
    assert odd in deciding.places


def test_scales_that_are_no_scales_are_not_trusted():
    unit = pair("mul")
    unit = replace(unit, out=target(np.nan))
    columns = accumulate(unit, candidates(unit)[0].sums)
    recorded = np.zeros(unit.operands[0].codes.size, np.int8)
    assert (
        not choose_deciding_elements(unit, columns, recorded).settles(candidates(unit)[0])
        or choose_deciding_elements(unit, columns, recorded).every
    )


def test_small_tensors_are_looked_at_whole():
    unit = pair("mul", shape=(2, 9))
    variant = candidates(unit)[0]
    deciding = choose_deciding_elements(unit, accumulate(unit, variant.sums), compute(unit, variant).reshape(-1))
    assert deciding.every
    assert deciding.places.size == 18


@pytest.mark.parametrize(
    ("text", "answer"),
    [("", True), ("steps=mul,even,zp,wrap", False), ("m=glow steps=pre.floor,mul,wrap32,shr.up,wrap32,zp,sat", False)],
)
def test_programs_that_wrap_may_decrease(text, answer):
    assert is_non_decreasing(parse_variant(text)) is answer


@pytest.mark.parametrize("block", [7, 1 << 20])
@pytest.mark.parametrize("channels", [False, True])
def test_blocks_choose_as_the_whole_does_and_ask_whether_to_go_on(monkeypatch, block, channels):
    unit = pair("add") if not channels else function()
    columns = accumulate(unit, candidates(unit)[0].sums)
    recorded = compute(unit, candidates(unit)[0]).reshape(-1).copy()
    recorded[5] ^= 1
    whole = choose_deciding_elements(unit, columns, recorded)
    monkeypatch.setattr(selection, "_BLOCK", block)
    asked = []
    with calling_at_checkpoints(lambda: asked.append(None)):
        found = choose_deciding_elements(unit, columns, recorded)
    np.testing.assert_array_equal(found.places, whole.places)
    assert (found.consistent, found.every, found.complete) == (whole.consistent, whole.every, whole.complete)
    assert len(asked) >= recorded.size / block


@pytest.mark.parametrize("many", [1, 6])
def test_the_extremes_of_blocks_are_those_of_the_whole(monkeypatch, many):
    rng = np.random.default_rng(3)
    numbers, codes = rng.integers(-900, 900, 3000), rng.integers(-20, 20, 3000).astype(np.int8)
    key = rng.integers(0, many, 3000) if many > 1 else np.zeros(1, np.int64)

    def pairs_at(places):
        return sorted(zip(numbers[places].tolist(), codes[places].tolist(), strict=True))

    whole = selection._extremes_of_codes(numbers, codes, key)
    monkeypatch.setattr(selection, "_BLOCK", 100)
    found = selection._extremes_of_codes(numbers, codes, key)
    assert pairs_at(found.places) == pairs_at(whole.places)
    assert found.consistent == whole.consistent


@pytest.mark.parametrize("more", [0, 1])
def test_where_nothing_tells_alike_elements_a_tensor_is_looked_at_whole_up_to_a_limit(more):
    """Each channel has a scale of its own, so that no two elements are computed alike."""
    size = int(DECIDING_MAX_ELEMENTS) + more
    unit = pair("add", shape=(1, size))
    unit = replace(unit, out=replace(unit.out, scale=np.linspace(0.05, 0.06, size, dtype=np.float32)[None]))
    columns = accumulate(unit, candidates(unit)[0].sums)
    deciding = choose_deciding_elements(unit, columns, np.zeros(size, np.int8))
    assert deciding.every == (not more)
    assert deciding.places.size == size if deciding.every else size / 2 < deciding.places.size < size


@given(
    st.lists(st.tuples(st.integers(-6, 6), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=40),
    st.sampled_from([1, 2, 3, 7, 64]),
    st.sampled_from([np.int8, np.int16]),
    st.booleans(),
)
def test_a_least_and_a_largest_number_of_each_code_and_set_of_parameters_are_chosen(rows, block, dtype, sets):
    """These two suffice, and tell whether the codes never decrease: whatever the size of the blocks that are read."""
    numbers, codes, key = (np.array(column) for column in zip(*rows, strict=True))
    key = key if sets else np.zeros(1, np.int64)
    with mock.patch.object(selection, "_BLOCK", block):
        found = selection._extremes_of_codes(numbers, codes.astype(dtype), key)
    whose = np.broadcast_to(key, codes.shape)
    chosen, every = set(), {}
    for place in range(codes.size):
        every.setdefault((whose[place], codes[place]), []).append(numbers[place])
    for place in found.places:
        chosen.add((whose[place], codes[place], numbers[place]))
    assert chosen == {(*group, end) for group, own in every.items() for end in (min(own), max(own))}
    assert found.places.size <= 2 * len(every)
    consistent = all(
        max(own) < min(other) for a, own in every.items() for b, other in every.items() if a[0] == b[0] and a[1] < b[1]
    )
    assert found.consistent == consistent
    assert found.complete
    assert not found.every


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(4, 6), st.integers(0, 1), st.integers(0, 2)), min_size=1),
    st.sampled_from([1, 2, 5, 64]),
    st.sampled_from([1, 1 << 22]),
    st.booleans(),
)
def test_one_element_of_each_combination_is_chosen_and_each_that_contradicts_it(rows, block, table, sets):
    first, second, key, codes = (np.array(column) for column in zip(*rows, strict=True))
    key = key if sets else np.zeros(1, np.int64)
    with mock.patch.multiple(selection, _BLOCK=block, _MAX_TABLE=table):
        found = selection._one_per_combination(
            [first.astype(np.int8), second.astype(np.int16)], codes.astype(np.int8), key
        )
    seen = {}
    for place, combination in enumerate(zip(np.broadcast_to(key, codes.shape), first, second, strict=True)):
        seen.setdefault(combination, []).append(place)
    odd = [place for own in seen.values() for place in own if codes[place] != codes[own[0]]]
    assert found.places.tolist() == sorted([*(own[0] for own in seen.values()), *odd])
    assert (found.consistent, found.complete, found.every) == (not odd, True, True)


def test_too_many_combinations_to_number_are_none(monkeypatch):
    numbers, codes = [np.array([3, 3]), np.array([0, 9])], np.zeros(2, np.int8)
    for most, told in ((10, True), (9, False)):
        monkeypatch.setattr(selection, "DECIDING_MAX_COMBINATIONS", most)
        assert (selection._one_per_combination(numbers, codes, np.zeros(1, np.int64)) is not None) == told
        assert selection._one_per_combination(numbers, codes, np.array([0, 1])) is None


@pytest.mark.parametrize(("size", "every"), [(ALL_DECIDING_MAX_ELEMENTS, True), (ALL_DECIDING_MAX_ELEMENTS + 1, False)])
def test_only_of_a_small_product_all_elements_decide(size, every):
    codes = np.arange(size, dtype=np.int8) % 50 - 25
    unit = Unit(kind="requantize", operands=(operand(codes, 0.1),), out=target(0.3, 0))
    columns = accumulate(unit, candidates(unit)[0].sums)
    recorded = np.rint(codes / 3).astype(np.int8)
    found = choose_deciding_elements(unit, columns, recorded)
    assert found.every == every
    assert found.consistent
    assert (found.places.size == size) == every
    for scale in (0.0, -0.1, np.inf, np.nan):  # with which programs may decrease, so that extremes tell nothing
        for other in (replace(unit, out=target(scale, 0)), replace(unit, operands=(operand(codes, scale),))):
            assert choose_deciding_elements(other, columns, recorded).every


def parameters_of(kind, shape, *, scales=((), ()), out=(), **facts):
    """Return the set of parameters of each element of a result of this shape; None if it is not told."""
    codes = np.zeros(shape, np.int8)
    operands = tuple(
        Operand(codes=codes, scale=np.ones(scale, np.float32), zero_point=np.zeros((), np.int8)) for scale in scales
    )
    goal = Target(dtype=np.dtype(np.int8), scale=np.ones(out, np.float32), zero_point=np.zeros((), np.int8))
    bias = facts.pop("bias", "int32")
    columns = Columns(sums=HeavyPart(bias=bias), values=(codes,), shape=shape, **facts)
    found = number_parameter_sets(Unit(kind=kind, operands=operands, out=goal), columns)
    return None if found is None else np.broadcast_to(found, codes.size).reshape(shape)


def test_elements_have_the_parameters_of_their_channel_member_or_count():
    conv, linear = (2, 3, 2, 2), (4, 3)
    channel, column = np.indices(conv)[1], np.indices(linear)[1]
    for bias in ("int32", "float"):
        own = parameters_of("conv", conv, scales=((), (3, 1, 1, 1)), bias=bias)
        np.testing.assert_array_equal(own, channel)
        np.testing.assert_array_equal(parameters_of("linear", linear, scales=((), (1, 3)), bias=bias), column)
    np.testing.assert_array_equal(parameters_of("conv", conv, bias="float"), channel)
    np.testing.assert_array_equal(parameters_of("linear", linear, bias="float"), column)
    for kind, shape in (("conv", conv), ("linear", linear), ("add", linear), ("requantize", linear)):
        assert not parameters_of(kind, shape).any()
    count = np.array([[4, 6, 9], [6, 9, 9]])
    assert parameters_of("average_pool", (2, 3), count=count).tolist() == [[0, 1, 2], [1, 2, 2]]
    assert parameters_of("concat", (2, 3), member=np.array([[5], [7]])).tolist() == [[0, 0, 0], [1, 1, 1]]
    assert not parameters_of("average_pool", (2, 3), count=np.array(9)).any()


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("conv", {"out": (2,)}),
        ("conv", {"scales": ((1, 2, 1, 1), ())}),
        ("add", {"scales": ((), (3, 1, 1))}),
        ("mul", {"scales": ((), (3, 1, 1))}),
        ("sub", {"scales": ((3, 1, 1), ())}),
        ("div", {"scales": ((), (3, 1, 1))}),
        ("average_pool", {"count": np.array([1, 2]), "member": np.array([1, 2])}),
    ],
)
def test_parameters_that_several_things_tell_are_not_numbered(kind, facts):
    assert parameters_of(kind, (2, 3, 2, 2), **facts) is None


def test_combinations_beyond_32_bits_are_kept_apart():
    first = np.array([-(2**15), 2**15 - 1, 5, 5], np.int16)
    found = selection._one_per_combination([first, first], np.zeros(4, np.int8), np.array([0, 1, 0, 1]))
    assert found.places.tolist() == [0, 1, 2, 3]


@given(
    st.integers(0, 2**32),
    st.integers(1, 400),
    st.sampled_from([1, 5]),
    st.sampled_from(["int32", "int64", "float32", "float64"]),
    st.sampled_from(["int8", "int16"]),
    st.sampled_from([1 << 20, 64]),
)
def test_the_ends_of_codes_are_the_same_from_a_table_as_from_sorting(seed, size, sets, numbers, codes, block):
    rng = np.random.default_rng(seed)
    values = rng.integers(-90, 90, size).astype(numbers) * rng.choice([1, 1000])
    recorded = (values // rng.choice([1, 50, 5000])).astype(codes)
    key = np.zeros(1, np.int64) if sets == 1 else rng.integers(0, sets, size)
    with mock.patch.object(selection, "_BLOCK", block):
        table = selection._extremes_of_codes(values, recorded, key)
        with mock.patch.object(selection, "_extreme_numbers_by_table", return_value=None):
            sorting = selection._extremes_of_codes(values, recorded, key)
    assert table.places.tolist() == sorting.places.tolist()
    assert (table.complete, table.consistent) == (sorting.complete, sorting.consistent)
