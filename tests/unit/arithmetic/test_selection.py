"""The elements that decide: few, and enough."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qdebug.arithmetic import selection
from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.selection import decisive, never_decreases
from qdebug.model.thresholds.explanation import DECIDING_MAX_ELEMENTS
from qdebug.numerics.checkpoint import asking
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
    deciding = decisive(unit, columns, recorded)
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
    deciding = decisive(unit, accumulate(unit, variant.sums), compute(unit, variant).reshape(-1))
    assert deciding.every
    assert deciding.places.size == 256


def test_equal_codes_with_unequal_results_are_inconsistent_and_chosen():
    unit = function()
    variant = candidates(unit)[0]
    recorded = compute(unit, variant).reshape(-1).copy()
    odd = np.flatnonzero(unit.operands[0].codes == 17)[3]
    recorded[odd] += 1
    deciding = decisive(unit, accumulate(unit, variant.sums), recorded)
    assert not deciding.consistent
    assert odd in deciding.places


def test_scales_that_are_no_scales_are_not_trusted():
    unit = pair("mul")
    unit = replace(unit, out=target(np.nan))
    columns = accumulate(unit, candidates(unit)[0].sums)
    recorded = np.zeros(unit.operands[0].codes.size, np.int8)
    assert not decisive(unit, columns, recorded).settles(candidates(unit)[0]) or decisive(unit, columns, recorded).every


def test_small_tensors_are_looked_at_whole():
    unit = pair("mul", shape=(2, 9))
    variant = candidates(unit)[0]
    deciding = decisive(unit, accumulate(unit, variant.sums), compute(unit, variant).reshape(-1))
    assert deciding.every
    assert deciding.places.size == 18


@pytest.mark.parametrize(
    ("text", "answer"),
    [("", True), ("steps=mul,even,zp,wrap", False), ("m=glow steps=pre.floor,mul,wrap32,shr.up,wrap32,zp,sat", False)],
)
def test_programs_that_wrap_may_decrease(text, answer):
    assert never_decreases(parse_variant(text)) is answer


@pytest.mark.parametrize("block", [7, 1 << 20])
@pytest.mark.parametrize("channels", [False, True])
def test_blocks_choose_as_the_whole_does_and_ask_whether_to_go_on(monkeypatch, block, channels):
    unit = pair("add") if not channels else function()
    columns = accumulate(unit, candidates(unit)[0].sums)
    recorded = compute(unit, candidates(unit)[0]).reshape(-1).copy()
    recorded[5] ^= 1
    whole = decisive(unit, columns, recorded)
    monkeypatch.setattr(selection, "_BLOCK", block)
    asked = []
    with asking(lambda: asked.append(None)):
        found = decisive(unit, columns, recorded)
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

    whole = selection._extremes(numbers, codes, key)
    monkeypatch.setattr(selection, "_BLOCK", 100)
    found = selection._extremes(numbers, codes, key)
    assert pairs_at(found.places) == pairs_at(whole.places)
    assert found.consistent == whole.consistent


@pytest.mark.parametrize("more", [0, 1])
def test_where_nothing_tells_alike_elements_a_tensor_is_looked_at_whole_up_to_a_limit(more):
    """Each channel has a scale of its own, so that no two elements are computed alike."""
    size = int(DECIDING_MAX_ELEMENTS) + more
    unit = pair("add", shape=(1, size))
    unit = replace(unit, out=replace(unit.out, scale=np.linspace(0.05, 0.06, size, dtype=np.float32)[None]))
    columns = accumulate(unit, candidates(unit)[0].sums)
    deciding = decisive(unit, columns, np.zeros(size, np.int8))
    assert deciding.every == (not more)
    assert deciding.places.size == size if deciding.every else size / 2 < deciding.places.size < size
