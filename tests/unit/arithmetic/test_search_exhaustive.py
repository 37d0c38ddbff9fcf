"""The search says what computing every known variant on every element says."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from sweeps import sweep

from qdebug.arithmetic import search as module
from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.search import (
    _vary_roundings,
    _with_swapped_zero_point,
    all_codes,
    choose_elements,
    known_variants,
    other_endings,
    programs,
    reproduces,
    same_values,
    search,
    search_known,
)
from qdebug.errors import KernelError
from qdebug.model.thresholds.explanation import UNKNOWN_PROGRAM_TRIAL_ELEMENTS, VARIANT_MIN_ELEMENTS
from qdebug.replay.evaluate import accumulate, compute
from qdebug.replay.steps import parse_steps
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import Variant, parse_variant

NOVEL = parse_variant("m=q8 steps=mul,shr.up,zp,sat")
"""A program that nobody is known to use."""


def operand(codes, scale, zero=0):
    codes = np.asarray(codes, np.int8)
    return Operand(codes=codes, scale=np.asarray(np.float32(scale)), zero_point=np.asarray(zero, np.int8))


def rescaling(codes, *, scale=0.5, out=0.8, zero=-3):
    goal = Target(dtype=np.dtype(np.int8), scale=np.asarray(np.float32(out)), zero_point=np.asarray(zero, np.int8))
    return Unit(kind="requantize", operands=(operand(codes, scale, 2),), out=goal)


def product(rows, *, bias=(90, -70, 11), seed=0):
    rng = np.random.default_rng(seed)
    x, weight = rng.integers(-128, 128, (rows, 5)), rng.integers(-9, 10, (5, 3))
    goal = Target(dtype=np.dtype(np.int8), scale=np.asarray(np.float32(0.25)), zero_point=np.asarray(-3, np.int8))
    return Unit(
        kind="linear", operands=(operand(x, 0.25, 3), operand(weight, 0.125)), out=goal, bias=np.array(bias, np.int32)
    )


@dataclass
class Recorded:
    """Units of several samples with the codes that were recorded for each."""

    units: list[Unit]
    arrays: list[np.ndarray]

    @property
    def places(self):
        return tuple((sample, 0) for sample in range(len(self.units)))

    @property
    def batches(self):
        return tuple((place,) for place in self.places)

    def unit(self, place):
        return self.units[place[0]]

    def codes(self, place):
        return self.arrays[place[0]]


def recorded(units, variant, *wrong):
    """Record units by a variant; some elements, given by sample and place, are off by nine."""
    arrays = [compute(unit, variant).copy() for unit in units]
    for sample, place in wrong:
        flat = arrays[sample].reshape(-1)
        flat[place] += 9 if flat[place] < 0 else -9
    return Recorded(list(units), arrays)


def shares_of(source):
    """Return the share of all elements that each known variant gets right, in the order of the catalogue."""
    right, total = {}, sum(array.size for array in source.arrays)
    for variant in known_variants(source.units[0]):
        codes = [compute(unit, variant) for unit in source.units]
        right[variant] = sum(
            int(np.count_nonzero(ours == theirs)) for ours, theirs in zip(codes, source.arrays, strict=True)
        )
    return {variant: count / total for variant, count in right.items()}


CODES = np.random.default_rng(3).permutation(np.arange(-60, 60))


TEXTS = ("", "steps=mul,zp,away,sat", "m=q31 steps=mul,shr.up,zp,sat", "m=q16:d:xw/y steps=mul,shr.floor,zp,sat")
WRONG = ((), (5,), (5, 11), tuple(range(20)))


@pytest.mark.parametrize(
    ("make", "text", "wrong"), sweep(itertools.product(("requantize", "linear", "channels"), TEXTS, WRONG), 10)
)
def test_what_fits_and_what_comes_closest_is_what_every_element_says(make, text, wrong):
    """On less elements than are needed to try unknown programs; all of them decide."""
    unit = rescaling(CODES[: VARIANT_MIN_ELEMENTS - 1]) if make == "requantize" else product(21)
    if make == "channels":
        weight = replace(unit.operands[1], scale=np.float32([[0.125, 0.25, 0.0625]]))
        unit = replace(unit, operands=(unit.operands[0], weight))
    source = recorded([unit], parse_variant(text), *((0, place) for place in wrong))
    shares, finding = shares_of(source), search(source)
    fitting = [variant for variant, share in shares.items() if share == 1]
    others = [variant for variant in shares if variant not in fitting]
    ranked = sorted(others, key=lambda variant: -shares[variant])
    assert set(finding.matching) == set(fitting)
    assert (finding.elements, finding.tried, finding.novel, finding.reason) == (
        source.arrays[0].size,
        len(shares),
        None,
        None,
    )
    if wrong:
        best, second = ranked[:2]
        simplest = next(iter(shares))
        nearer = 1 - shares[best] < (1 - shares[simplest]) / 2
        assert (finding.best, finding.match, finding.plain) == (best, shares[best], best if nearer else simplest)
        assert (finding.runner_up, finding.runner_up_match) == (second, shares[second])
        assert (finding.witnesses, finding.witness_elements, finding.shape) == (0, 0, None)
        return
    assert parse_variant(text) in fitting
    assert (finding.best, finding.match, finding.plain) == (finding.matching[0], 1.0, None)
    assert (finding.runner_up, finding.runner_up_match) == (ranked[0], shares[ranked[0]])
    missed = compute(unit, ranked[0]) != source.arrays[0]
    numbers = accumulate(unit, ranked[0].sums).values[0]
    assert finding.witness_elements == np.count_nonzero(missed)
    channel = np.indices(missed.shape)[-1] if make == "channels" else np.zeros(missed.shape)
    assert finding.witnesses == len(set(zip(channel[missed], numbers[missed], strict=True)))
    bare = finding.without_novel()
    assert (bare.matching, bare.best, bare.match) == ((), ranked[0], shares[ranked[0]])
    assert (bare.plain, bare.runner_up, bare.runner_up_match) == (ranked[0], None, 0.0)
    assert (bare.witnesses, bare.witness_elements, bare.shape) == (0, 0, None)
    assert bare.elements == finding.elements


def test_all_samples_count_whatever_their_sizes():
    units = [rescaling(np.arange(4)), rescaling(CODES[:90]), rescaling(CODES[:0]), rescaling(CODES[90:])]
    for wrong in ((0, 3), (1, 77), (3, 9)):
        source = recorded(units, Variant(), wrong)
        finding = search(source, unknown=False)
        assert finding.elements == 124
        assert finding.matching == ()
        assert finding.match == pytest.approx(123 / 124)
        assert not reproduces(source, Variant())
    right = recorded(units, Variant())
    assert reproduces(right, Variant())
    shares = shares_of(right)
    assert set(search(right).matching) == {variant for variant, share in shares.items() if share == 1}
    first = shares_of(recorded(units[:1], Variant()))
    assert sum(share == 1 for share in shares.values()) < sum(share == 1 for share in first.values())


COARSE = parse_variant("m=pow2 steps=shr.up,zp,sat")
LAST = parse_variant("m=q8 steps=mul,shr.trunc,zp,sat")


@pytest.mark.parametrize("first", [(), (Variant(),), (COARSE, Variant()), (COARSE,), (LAST,)])
@pytest.mark.parametrize("arithmetic", [Variant(), COARSE, LAST])
def test_the_first_variant_that_fits_is_found_and_none_behind_it_is_tried(first, arithmetic):
    source = recorded([rescaling(CODES)], arithmetic)
    order = tuple(dict.fromkeys((*first, *known_variants(source.units[0]))))
    fitting = next((variant for variant in order if reproduces(source, variant)), None)
    finding = search_known(source, first)
    assert finding.matching == (() if fitting is None else (fitting,))
    assert (finding.best, finding.runner_up) == (None, None)
    assert finding.tried == (len(order) if fitting is None else order.index(fitting) + 1)


def test_a_variant_that_fits_a_few_elements_alone_is_passed_over(monkeypatch):
    monkeypatch.setattr(module, "_TRIAL_ELEMENTS", 1)
    source = recorded([rescaling(CODES)], COARSE)
    expected = next(v for v, share in shares_of(source).items() if share == 1)
    assert search_known(source, ()).matching == (expected,)


def test_another_way_to_sum_is_tried_in_a_small_node_or_if_the_first_explains_nothing(monkeypatch):
    unit = product(21)
    exact, paired = Variant(), parse_variant("acc=pairsat16:hwc steps=mul,even,zp,sat")
    groups = {variant.sums for variant in known_variants(unit)}
    one = [variant for variant in known_variants(unit) if variant.sums == exact.sums]
    large = 21 * 5 * 3
    for most, tried in ((large, len(known_variants(unit))), (large - 1, len(one))):
        monkeypatch.setattr(module, "OTHER_SUMS_MAX_PRODUCTS", most)
        assert search(recorded([unit], exact)).tried == tried
    assert len(groups) > 3
    weights = replace(unit, operands=(operand(np.full((21, 5), 127), 0.25), operand(np.full((5, 3), 127), 0.125)))
    weights = replace(weights, out=replace(weights.out, scale=np.float32(80)))
    assert paired in search(recorded([weights], paired)).matching


@pytest.mark.parametrize(("elements", "tried"), [(VARIANT_MIN_ELEMENTS - 1, False), (VARIANT_MIN_ELEMENTS, True)])
def test_programs_that_nobody_uses_are_tried_on_enough_elements(elements, tried):
    unit = rescaling(np.arange(elements) * 2 - 70, scale=0.031, out=0.017)
    source = recorded([unit], NOVEL)
    assert NOVEL not in known_variants(unit)
    assert max(shares_of(source).values()) < 1
    finding = search(source)
    assert finding.unknown
    assert (NOVEL in finding.matching) == bool(finding.matching) == tried
    assert (finding.novel is not None) == tried
    assert (finding.tried > len(known_variants(unit))) == tried


def test_a_program_that_nobody_uses_is_found_by_the_sample_that_shows_it():
    """On the first sample known variants fit as well; what tells them apart comes later."""
    units = [rescaling(codes, scale=0.031, out=0.017) for codes in (np.zeros(70), CODES, CODES)]
    source = recorded(units, NOVEL)
    assert max(shares_of(source).values()) < 1
    finding = search(source)
    assert NOVEL in finding.matching
    wrong = np.count_nonzero(compute(units[1], known_variants(units[0])[0]) != source.arrays[1])
    assert 0 < finding.novel <= wrong
    known, sums = known_variants(units[0]), NOVEL.sums
    fresh = set(programs(units[0], sums)) - set(known)
    endless = sum(len(list(other_endings(variant))) for variant in finding.matching if variant in fresh)
    assert (
        finding.tried
        == len(known)
        + len(list(programs(units[0], sums)))
        - len([variant for variant in programs(units[0], sums) if variant in known])
        + endless
    )
    known = search(source, unknown=False)
    assert (known.matching, known.novel, known.unknown) == ((), None, False)
    assert known.match in shares_of(source).values(), "the best of those that come closest on the first sample"


def test_no_program_is_tried_where_equal_numbers_give_unequal_codes():
    codes = np.repeat(CODES, 2)
    source = recorded([rescaling(codes)], Variant(), (0, 20))
    finding = search(source)
    assert finding.tried == len(known_variants(source.units[0]))
    assert finding.matching == ()


@pytest.mark.parametrize(("channels_last", "attrs", "hint"), [
    (False, {}, "; no attributes were recorded, such as pads and strides"),
    (True, {}, "; no attributes were recorded, such as pads and strides"),
    (False, {"pads": (0, 0, 0, 0)}, ""),
])  # fmt: skip
def test_a_recording_of_another_shape_is_told_with_what_may_be_missing(channels_last, attrs, hint):
    image, filters = np.ones((1, 2, 5, 6)), np.ones((3, 2, 3, 3))
    goal = Target(dtype=np.dtype(np.int8), scale=np.float32(9), zero_point=np.int8(0))
    unit = Unit(
        kind="conv",
        operands=(operand(image, 1), operand(filters, 1)),
        out=goal,
        attrs=attrs,
        channels_last=channels_last,
        op="Conv",
    )
    shape = (1, 5, 6, 3) if channels_last else (1, 3, 5, 6)
    finding = search(Recorded([unit], [np.zeros(shape, np.int8)]))
    assert finding.matching == ()
    assert finding.reason == f"the replay has shape (1, 3, 3, 4), but the recorded tensor has {shape}{hint}"
    flat = replace(product(4), attrs={})
    assert search(Recorded([flat], [np.zeros((5, 3), np.int8)])).reason == (
        "the replay has shape (4, 3), but the recorded tensor has (5, 3)"
    )


def test_an_operator_that_cannot_be_computed_is_told_by_the_first_error(monkeypatch):
    said = iter(["first", *["other"] * 1000])

    def refused(*_):
        raise KernelError(next(said))

    monkeypatch.setattr(module, "accumulate", refused)
    source = recorded([rescaling(CODES)], Variant())
    for finding in (search(source), search_known(source, [Variant()])):
        assert (finding.matching, finding.tried) == ((), 0)
    said = iter(["first", *["other"] * 1000])
    assert search(source).reason == "first"
    assert not reproduces(source, Variant())


@pytest.mark.parametrize(
    ("size", "wrong"), [(256, 9), (257, 9), (300, 150), (1000, 400), (1000, 3), (100_000, 50_000), (700, 0), (700, 200)]
)
def test_a_few_elements_are_chosen_of_which_at_most_half_are_wrong(size, wrong):
    places = np.arange(size) * 3 + 1
    bad = np.zeros(size, bool)
    bad[np.random.default_rng(0).permutation(size)[:wrong]] = True
    chosen = choose_elements(places, bad)
    most = int(UNKNOWN_PROGRAM_TRIAL_ELEMENTS)
    if size <= most:
        np.testing.assert_array_equal(chosen, places)
        return
    assert most <= chosen.size < 2 * most
    assert np.unique(chosen).size == chosen.size
    taken = np.isin(places, chosen)
    assert set(chosen) <= set(places)
    assert np.count_nonzero(taken & bad) >= min(wrong, most // 2)
    right = np.flatnonzero(taken & ~bad)
    if size > 2 * most:
        assert right.size
        assert np.diff(np.flatnonzero(~bad).searchsorted(right), append=0).max() <= 2 * size / most


def test_batches_of_variants_give_what_each_gives_alone(monkeypatch):
    """One of them does not fit the unit, and is left out wherever it stands; not more are made at once than is said."""
    made = []
    real = module.finish_many
    monkeypatch.setattr(module, "finish_many", lambda *given: made.append(len(given[2])) or real(*given))
    unit = rescaling(CODES)
    fitting = [variant for variant in candidates(unit) if variant.sums == Variant().sums][:7]
    unfit = parse_variant("m=q31 steps=mul,shr.up,zp,sat")
    flawed = replace(unit, out=replace(unit.out, scale=np.float32(np.nan)))
    for at_once in (1, 2, 3, 1 << 24):
        monkeypatch.setattr(module, "_MAX_CODES_AT_ONCE", at_once * CODES.size)
        found = list(all_codes(unit, accumulate(unit, Variant().sums), fitting))
        assert [variant for variant, _ in found] == fitting
        assert max(made) == min(at_once, len(fitting))
        made.clear()
        for variant, codes in found:
            np.testing.assert_array_equal(codes, compute(unit, variant))
        asked = [Variant(), unfit, parse_variant("m=f64"), unfit]
        kept = [variant for variant, _ in all_codes(flawed, accumulate(flawed, Variant().sums), asked)]
        made.clear()
        assert kept == [Variant(), parse_variant("m=f64")]


@pytest.mark.parametrize(
    ("steps", "swapped"),
    [
        ("mul,even,zp,sat", "mul,zp,even,sat"),
        ("mul,zp,even,sat", "mul,even,zp,sat"),
        ("even,zp,sat", "zp,even,sat"),
        ("mul,shr.up,zp,sat", "mul,shr.up,zp,sat"),
        ("even,zp", "zp,even"),
        ("zp,sat", "zp,sat"),
        ("even,sat,zp", "even,sat,zp"),
    ],
)
def test_a_rounding_and_the_zero_point_beside_it_change_places(steps, swapped):
    assert _with_swapped_zero_point(parse_steps(steps)) == parse_steps(swapped)


def test_each_rounding_is_replaced_by_each_other():
    made = list(_vary_roundings(parse_steps("shl,mulhi.up,shr.away,zp,sat")))
    assert len(set(made)) == len(made) == 6 * len(module._HIGH_PRODUCT_ROUNDINGS)
    assert {tuple(step.op for step in each) for each in made} == {("shl", "mulhi", "shr", "zp", "sat")}
    assert parse_steps("shl,mulhi.up,shr.away,zp,sat") in made
    assert list(_vary_roundings(parse_steps("zp,sat"))) == [parse_steps("zp,sat")]
    assert len(list(_vary_roundings(parse_steps("mul,even,zp,sat")))) == 6


def test_equal_values_are_equal_and_not_a_number_is_only_itself():
    nan = np.nan
    assert same_values(np.float32([nan, nan, 1, 2]), np.float32([nan, 1, nan, 2])).tolist() == [
        True,
        False,
        False,
        True,
    ]
    assert same_values(np.int8([1, 2]), np.int8([1, 3])).tolist() == [True, False]


@pytest.mark.parametrize(("low", "high"), [(-128, 127), (-100, 60), (0, 255)])
def test_elements_away_from_both_ends_of_the_codes_are_preferred_as_evidence(low, high):
    """Those within the middle nine tenths of the range; where there are none, those at its ends."""
    codes = np.arange(-120, 120).repeat(2)[::2]
    goal = Target(
        dtype=np.dtype(np.int16), scale=np.float32(0.017), zero_point=np.asarray(5, np.int16), low=low, high=high
    )
    unit = Unit(kind="requantize", operands=(operand(codes, 0.031),), out=goal)
    source = recorded([unit], NOVEL)
    own = module._Search(source)
    own.run(unknown=False)
    _, _, _, places, missed = own._find_hardest_sample(Variant().sums)
    best = max(own._match_rates, key=own._match_rates.__getitem__)
    made = compute(unit, best)
    inside = np.abs(made.astype(float) - (low + high) / 2) < 0.45 * (high - low)
    deciding = own._deciding_elements[Variant().sums].places
    np.testing.assert_array_equal(np.sort(places), np.sort(deciding[inside[deciding]]))
    assert missed == np.count_nonzero((made != source.arrays[0])[places])


def test_saturated_elements_are_evidence_where_there_are_no_others():
    """All codes are at one end but for those of the first half, which should be at the other."""
    goal = Target(dtype=np.dtype(np.int8), scale=np.float32(1e-4), zero_point=np.int8(0))
    unit = Unit(kind="requantize", operands=(operand(np.arange(1, 101), 0.7, 51),), out=goal)
    codes = np.where(np.arange(100) < 49, -128, 127)
    codes[49], codes[50:52] = -128, (-100, 127)
    own = module._Search(Recorded([unit], [codes.astype(np.int8)]))
    own.run(unknown=False)
    _, _, _, places, missed = own._find_hardest_sample(Variant().sums)
    assert (places.size, missed) == (1, 1)
