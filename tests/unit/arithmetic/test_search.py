"""The search finds the arithmetic that a recording was made with, and takes nothing less than every element."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.search import _is_same_shape, count_products, search
from qdebug.arithmetic.selection import choose_deciding_elements
from qdebug.arithmetic.units import Units, UnitSource
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay.evaluate import accumulate, finish
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import Variant, parse_variant

VARIANTS = (
    "",
    "steps=mul,zp,even,sat",
    "steps=mul,zp,away,sat",
    "m=q31:d:xw/y steps=shl,mulhi.up,shr.away,zp,sat",
    "m=q31:d:xw/y steps=shl,mulhi.up,shr.up,zp,sat",
    "m=q31:d:xw/y steps=mul,shr.up,zp,sat",
    "m=q31:d:xw/y steps=mul,shr.away,zp,sat",
    "steps=mul,floor,zp,sat",
)


def source_of(recording):
    return Units(recording).find(recording.graph.nodes[0], "y")


def found(recording):
    source = source_of(recording)
    assert isinstance(source, UnitSource)
    return search(source)


@pytest.mark.parametrize("text", VARIANTS)
def test_the_arithmetic_of_a_convolution_is_found(quantized, text):
    variant = parse_variant(text)
    assert variant in candidates(source_of(quantized.conv(text)).unit((0, 0)))
    finding = found(quantized.conv(text, samples=3))
    assert variant in finding.matching
    assert finding.match == 1.0
    assert finding.best == finding.matching[0]
    assert finding.tried > 100


def test_dyadic_scales_separate_the_roundings(quantized):
    texts = [text for text in VARIANTS if text]
    default = found(quantized.conv("", samples=3))
    assert not {parse_variant(text) for text in texts} & set(default.matching)


def test_a_single_wrong_element_is_not_explained(quantized):
    def fault(sample, codes):
        codes[0, 3, 5, 7] += 1 if sample == 1 else 0
        return codes

    finding = found(quantized.conv("", fault=fault, scales=quantized.generic))
    assert finding.matching == ()
    assert finding.match == 1 - 1 / finding.elements
    assert finding.best == Variant()


def test_the_runner_up_counts_the_witnesses(quantized):
    finding = found(quantized.conv(""))
    assert finding.runner_up not in finding.matching
    assert 0.9 < finding.runner_up_match < 1
    assert finding.witness_elements == round((1 - finding.runner_up_match) * finding.elements)
    assert 0 < finding.witnesses <= finding.witness_elements


def test_equal_sums_are_one_witness(quantized):
    """All elements of a channel hold the same sum where the input does not vary: they say one thing, many times."""
    constants, feeds = quantized.conv_parts(filters=4)
    still = quantized.recording_of(quantized.node, constants, np.full_like(feeds[:2], 5), "")
    finding = found(still)
    assert finding.elements == 2 * 4 * 12 * 12
    assert finding.witness_elements >= 12 * 12
    assert 1 <= finding.witnesses <= 4


def test_a_later_sample_rules_variants_out(quantized):
    one, four = (found(quantized.conv("", samples=samples, scales=quantized.generic)) for samples in (1, 4))
    assert set(four.matching) <= set(one.matching)
    assert Variant() in four.matching


def test_per_channel_scales_are_searched(quantized):
    text = "m=q31:d:xw/y steps=shl,mulhi.up,shr.away,zp,sat"
    finding = found(quantized.conv(text, per_channel=True))
    assert parse_variant(text) in finding.matching
    assert finding.per_channel


def test_a_program_that_nobody_is_known_to_use_is_found(quantized):
    text = "m=q31:d:xw/y steps=shl,mulhi.floor,shr.down,zp,sat"
    recording = quantized.conv(text, samples=3)
    unit = source_of(recording).unit((0, 0))
    assert parse_variant(text) not in candidates(unit)
    finding = found(recording)
    assert parse_variant(text).requantize in [variant.requantize for variant in finding.matching]
    assert finding.tried > 1000


def test_a_scale_that_is_not_a_number_is_no_crash(quantized):
    constants, feeds = quantized.conv_parts()
    constants["y_scale"] = np.asarray(np.nan, np.float32)
    finding = found(quantized.recording_of(quantized.node, constants, feeds[:1], ""))
    assert Variant() in finding.matching


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_deciding_elements_decide_for_all(quantized, per_channel, seed):
    """What passes on the deciding elements passes on all, and what fails on any fails there."""
    truth = VARIANTS[seed]
    recording = quantized.conv(truth, samples=1, per_channel=per_channel, seed=seed)
    source = source_of(recording)
    unit, recorded = source.unit((0, 0)), source.codes((0, 0)).reshape(-1)
    known = [variant for variant in candidates(unit) if variant.sums == Variant().sums]
    columns = accumulate(unit, Variant().sums)
    deciding = choose_deciding_elements(unit, columns, recorded)
    assert deciding.consistent
    assert deciding.places.size < recorded.size
    few = columns.take(deciding.places)
    for variant in known:
        passes = np.array_equal(finish(unit, few, variant), recorded[deciding.places])
        everything = np.array_equal(finish(unit, columns, variant), recorded)
        if deciding.settles(variant):
            assert passes == everything, str(variant)
        else:
            assert passes >= everything, str(variant)


def test_an_inconsistent_tensor_is_known_as_such(quantized):
    recording = quantized.conv("", samples=1)
    source = source_of(recording)
    unit, recorded = source.unit((0, 0)), source.codes((0, 0)).reshape(-1).copy()
    columns = accumulate(unit, Variant().sums)
    sums = columns.values[0].reshape(-1)
    middle = int(np.argsort(sums)[recorded.size // 2])
    recorded[middle] += 20
    assert not choose_deciding_elements(unit, columns, recorded).consistent
    equal = replace(columns, values=(np.full_like(columns.values[0], 7),))
    assert choose_deciding_elements(unit, equal, np.full_like(recorded, 3)).consistent
    assert not choose_deciding_elements(
        unit, equal, np.where(np.arange(recorded.size) % 2, recorded.dtype.type(3), 4)
    ).consistent


@pytest.mark.parametrize(
    ("made", "recorded", "fits"),
    [
        ((2, 6), (2, 6), True),
        ((2, 6), (3, 4), False),  # as many elements in as many dimensions, but others
        ((2, 6), (12,), True),
        ((2, 6), (1, 2, 6), True),
        ((2, 6), (11,), False),
    ],
)
def test_a_shape_fits_if_it_is_the_same_or_has_as_many_elements_in_other_dimensions(made, recorded, fits):
    assert _is_same_shape(made, recorded) == fits


def test_wrapping_programs_are_never_settled_by_extremes(quantized):
    recording = quantized.conv("", samples=1)
    source = source_of(recording)
    unit = source.unit((0, 0))
    deciding = choose_deciding_elements(unit, accumulate(unit, Variant().sums), source.codes((0, 0)).reshape(-1))
    assert deciding.settles(Variant())
    assert not deciding.settles(replace(Variant(), requantize=parse_variant("steps=mul,even,zp,wrap").requantize))


def test_an_empty_output_proves_nothing(quantized):
    constants, feeds = quantized.conv_parts()
    empty = feeds[:1, :0]
    made = quantized.recording_of(quantized.node, constants, empty, "")
    finding = found(made)
    assert finding.matching == ()
    assert finding.reason == "its output has no elements"


def test_not_a_number_is_reproduced_by_not_a_number():
    node = Node(name="dq", op="DequantizeLinear", inputs=("x", "s", "z"), outputs=("y",))
    constants = [TensorInfo(name=name, role=Role.CONSTANT) for name in ("s", "z")]
    graph = Graph([node], tensors=constants, inputs=["x"], outputs=["y"], opset={"": 13})
    arrays = {"x": np.arange(-8, 8, dtype=np.int8), "s": np.asarray(np.float32(np.nan)), "z": np.zeros((), np.int8)}
    recording = MemoryRecording.single(graph, arrays | {"y": np.full(16, np.nan, np.float32)})
    assert found(recording).match == 1.0


@pytest.mark.parametrize("scales", ["generic", "dyadic"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_a_bias_that_is_rounded_on_its_own_is_found(quantized, scales, per_channel):
    text = "bias=codes m=q31:d:xw/y steps=mul,shr.up,bias,zp,sat"
    finding = found(quantized.conv(text, scales=getattr(quantized, scales), per_channel=per_channel))
    assert parse_variant(text) in finding.matching
    assert Variant() not in finding.matching


def test_a_late_bias_is_what_the_steps_before_make_of_it(quantized):
    unit = source_of(quantized.conv("")).unit((0, 0))
    variant = parse_variant("bias=codes steps=mul,floor,bias,zp,sat")
    columns = accumulate(unit, variant.sums)
    multiplier = np.float32(quantized.dyadic[0] * quantized.dyadic[1] / quantized.dyadic[2])
    rounded = np.floor(columns.values[0] * multiplier) + np.floor(unit.bias * multiplier).reshape(-1, 1, 1) - 3
    np.testing.assert_array_equal(finish(unit, columns, variant), np.clip(rounded, -128, 127).reshape(-1))


@pytest.mark.parametrize(
    "text",
    [
        "m=q8 steps=mul,shr.up,zp,sat",
        pytest.param("m=q15t steps=mul,shr.away,zp,sat", marks=pytest.mark.slow),
        "m=bf16 steps=mul,even,zp,sat",
        pytest.param("m=f16 steps=mul,zp,away,sat", marks=pytest.mark.slow),
    ],
)
def test_short_multipliers_are_found_though_nobody_is_known_to_use_them(quantized, text):
    finding = found(quantized.conv(text, scales=(0.0312, 0.0257, 0.121), samples=4))
    assert parse_variant(text) in finding.matching
    assert Variant() not in finding.matching


@pytest.mark.parametrize(("more", "nearest"), [(-1, True), (0, False), (1, False)])
def test_the_simplest_variant_stands_for_a_node_unless_another_is_wrong_less_than_half_as_often(
    quantized, more, nearest
):
    """Where another variant is wrong at some elements, the simplest is at these and where the two differ."""
    shape = {"filters": 4, "size": 16, "samples": 1, "seed": 1}  # 1024 elements, so that shares are exact
    texts = ("", "steps=mul,zp,away,sat")
    simplest, other = (quantized.conv(text, **shape).load("y") for text in texts)
    apart = int(np.count_nonzero(simplest != other))
    assert apart > 2

    def fault(_, codes):
        spoiled = np.flatnonzero((simplest == other) & (np.abs(codes.astype(int)) < 100))[: apart + more]
        codes.reshape(-1)[spoiled] += 9
        return codes

    finding = found(quantized.conv(texts[1], fault=fault, **shape))
    assert finding.matching == ()
    assert finding.match == 1 - (apart + more) / finding.elements
    assert finding.best != Variant()
    assert finding.plain == (finding.best if nearest else Variant())


@pytest.mark.parametrize(
    ("kind", "x", "weight", "expected"),
    [
        ("linear", (7, 5), (5, 3), 7 * 5 * 3),
        ("conv", (1, 4, 6, 6), (4, 4, 3, 3), 4 * 36 * 4 * 9),
        ("conv", (1, 4, 6, 6), (4, 1, 3, 3), 4 * 36 * 9),
        ("conv", (1, 4, 6, 6), (0, 4, 3, 3), 0),
        ("conv", (1, 4, 6, 6), (1, 4, 3, 3), 4 * 36 * 4 * 9),
        ("add", (7, 5), (7, 5), 0),
    ],
)
def test_how_heavy_a_unit_is_is_how_many_products_it_takes(kind, x, weight, expected):
    one = np.float32(1)
    operands = (Operand(codes=np.zeros(shape, np.int8), scale=one, zero_point=np.int8(0)) for shape in (x, weight))
    out = Target(dtype=np.dtype(np.int8), scale=one, zero_point=np.int8(0))
    assert count_products(Unit(kind=kind, operands=tuple(operands), out=out)) == expected
