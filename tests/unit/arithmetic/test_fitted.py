"""Widths of multipliers are solved for, and a multiplier that no width explains is reported as such."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qdebug.arithmetic.evidence import residual_of
from qdebug.arithmetic.fitted import FittedMultiplier
from qdebug.arithmetic.pooling import pool
from qdebug.arithmetic.search import search
from qdebug.arithmetic.units import Units, UnitSource
from qdebug.replay.evaluate import compute
from qdebug.replay.node_units import unit_of_call
from qdebug.replay.registry import Call
from qdebug.replay.variant import parse_variant


def found(recording):
    source = Units(recording).find(recording.graph.nodes[0], "y")
    assert isinstance(source, UnitSource)
    return search(source)


@pytest.mark.parametrize(
    "text",
    [
        "m=q6:d:xw/y steps=mul,shr.up,zp,sat",
        "m=q12:d:xw/y steps=mul,shr.away,zp,sat",
        "m=q11t:d:xw/y steps=mul,shr.floor,zp,sat",
        "m=q9:d:xw/y steps=shl,mulhi.up,shr.away,zp,sat",
        "m=q12:d:xw/y shift=0..14 steps=mul,shr.up,zp,sat",
        "m=q10:d:xw/y pre=5 steps=pre.floor,mul,shr.up,zp,sat",
        "m=q13t:d:xw/y pre=4 steps=pre.up,mul,shr.trunc,zp,sat",
    ],
)
def test_the_width_of_a_multiplier_is_solved_for(quantized, text):
    finding = found(quantized.conv(text, samples=4, scales=quantized.generic, per_channel=True))
    variant = parse_variant(text)
    fitting = [v for v in finding.matching if v.requantize == variant.requantize]
    numbers = {v.multiplier.number for v in fitting}
    assert variant.multiplier.number in numbers
    assert len(numbers) <= 3 or variant.multiplier.shifts  # with a limited shift, more bits change nothing
    assert {v.multiplier.pre for v in fitting} == {variant.multiplier.pre}
    assert {v.multiplier.shifts for v in fitting} == {variant.multiplier.shifts}


def test_two_nodes_of_unusual_width_confirm_each_other(quantized):
    text = "m=q9:d:xw/y steps=mul,shr.up,zp,sat"
    runs = [
        quantized.conv(text, samples=4, scales=quantized.generic, per_channel=True, seed=seed, channels=channels)
        for seed, channels in ((1, 8), (2, 6))
    ]
    pooled = pool(dict(enumerate(map(found, runs))))
    assert [answer.doubt for answer in pooled.values()] == [None, None]
    assert pooled[0].siblings == 2
    assert {v.multiplier.number for answer in pooled.values() for v in answer.variants} == {"q9"}


def wrong_scale(quantized, change, samples=4):
    """Record a convolution that computes with other scales of the weight than it states."""
    constants, _ = quantized.conv_parts(scales=quantized.generic, per_channel=True)
    actual = {**constants, "w_scale": change(constants["w_scale"].copy()).astype(np.float32)}

    def fault(sample, codes):
        _, feeds = quantized.conv_parts(scales=quantized.generic, per_channel=True)
        node = quantized.node
        values = {**actual, "x": feeds[sample]}
        call = Call(inputs=tuple(values[n] for n in node.inputs), attrs=node.attrs, opset=13, op=node.op, node="conv")
        return compute(unit_of_call(call), parse_variant(""))

    return quantized.conv("", samples=samples, scales=quantized.generic, per_channel=True, fault=fault)


def likely(recording):
    finding = found(recording)
    assert not finding.matching
    return residual_of(finding, finding.plain)


def test_another_multiplier_is_reported_with_its_channels_and_its_size(quantized):
    def change(scales):
        scales[[3, 11]] *= 0.995
        return scales

    residual = likely(wrong_scale(quantized, change))
    assert residual.pattern == "multiplier"
    assert "0.5 % too small" in residual.likely
    assert "channels 3 and 11" in residual.likely
    assert residual.reproduces


def test_a_wrong_element_is_not_taken_for_another_multiplier(quantized):
    for seed in range(6):
        place = tuple(np.random.default_rng(seed).integers(0, (1, 16, 12, 12)))

        def fault(sample, codes, place=place):
            codes[place] += 1 if sample == 0 else 0
            return codes

        residual = likely(quantized.conv("", samples=2, scales=quantized.generic, per_channel=True, fault=fault))
        assert residual.pattern != "multiplier"


def test_a_doubtful_program_is_confirmed_by_products_of_another_kind(quantized):
    text = "m=q12:d:xw/y steps=mul,shr.up,zp,sat"
    finding = found(quantized.conv(text, samples=3, scales=quantized.generic, per_channel=True))
    lone = replace(finding, dtypes=("uint8", "int8", "int8"), novel=3)
    alone = pool({0: lone})
    assert alone[0].doubt is not None
    together = pool({0: lone, 1: finding, 2: finding})
    assert together[0].doubt is None
    assert together[0].variants


def test_a_node_without_a_search_takes_the_width_of_its_siblings(quantized):
    text = "m=q9:d:xw/y steps=mul,shr.up,zp,sat"
    finding = found(quantized.conv(text, samples=4, scales=quantized.generic, per_channel=True))
    small = replace(finding, matching=(), novel=None, elements=24)
    pooled = pool({0: finding, 1: finding, 2: small, 3: replace(small, elements=4096)})
    assert pooled[2].variants
    assert pooled[3].variants
    other = found(quantized.conv("m=q7:d:xw/y steps=mul,shr.up,zp,sat", samples=4, per_channel=True, seed=3))
    assert not pool({0: finding, 1: finding, 2: replace(other, matching=(), novel=None)})[2].variants


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [
        (0.997, 0.997, "0.3 % too small in channel 1"),
        (0.9959, 0.9961, "0.39 % to 0.41 % too small"),
        (1.01, 1.02, "1 % to 2 % too large"),
        (0.99, 1.02, "between 1 % too small and 2 % too large"),
    ],
)
def test_the_difference_of_a_multiplier_is_a_range(least, most, words):
    text = str(FittedMultiplier(channels=(1,), channel_count=2, min_ratio=least, max_ratio=most, recorded=None))
    assert words in text


def test_a_limited_shift_is_found_in_one_node_and_holds_for_siblings_that_it_does_not_cut(quantized):
    text = "m=q12:d:xw/y shift=0..16 steps=mul,shr.up,zp,sat"
    runs = [
        quantized.conv(text, samples=4, scales=quantized.generic, per_channel=True, seed=seed, channels=channels)
        for seed, channels in ((1, 8), (2, 6), (5, 7))
    ]
    pooled = pool(dict(enumerate(map(found, runs))))
    assert {answer.doubt for answer in pooled.values()} == {None}
    assert {variant.multiplier.shifts for answer in pooled.values() for variant in answer.members} == {(0, 16)}


def test_few_elements_next_to_ties_suffice_for_a_fine_multiplier_of_two_nodes_and_this_is_said(quantized):
    finding = found(quantized.conv("m=q17:d:xw/y steps=mul,shr.up,zp,sat", samples=4, per_channel=True))
    fine = replace(finding, novel=3, matching=(parse_variant("m=q17:d:xw/y steps=mul,shr.up,zp,sat"),))
    assert pool({0: fine})[0].doubt is not None  # no sibling confirms it
    few = replace(fine, novel=1, matching=(parse_variant("m=q15:d:xw/y steps=mul,shr.up,zp,sat"),))
    assert all(answer.doubt is not None for answer in pool({0: few, 1: few}).values())
    assert [
        (answer.doubt, "only 6 elements" in (answer.reason or "")) for answer in pool({0: fine, 1: fine}).values()
    ] == [
        (None, True),
        (None, True),
    ]
    coarse = replace(fine, matching=(parse_variant("m=q9:d:xw/y steps=mul,shr.up,zp,sat"),))
    assert all(answer.doubt is not None for answer in pool({0: coarse, 1: coarse}).values())
