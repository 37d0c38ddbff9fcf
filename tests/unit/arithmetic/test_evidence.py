"""How far from the limit between two codes elements were rounded, whatever kind of rounding it was."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from qdebug.arithmetic.evidence import (
    _batch_axis_name,
    _codes_of_sample,
    _has_channels_last,
    _join_samples,
    _sum_magnitudes,
    _truncates,
    distance_to_ties,
    layout_of,
    residual_of,
    suspects,
)
from qdebug.arithmetic.patterns.wrong_places import Layout
from qdebug.arithmetic.units import Units
from qdebug.arithmetic.zero_point_suspects import _wrapped_to_8_bits
from qdebug.model import Graph, MemoryRecording, Node
from qdebug.replay.evaluate import accumulate
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import Variant, parse_variant


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("", 0.5),
        ("m=q31 steps=mul,shr.up,zp,sat", 0.5),
        ("steps=mul,floor,zp,sat", 0.0),
        ("m=q31 steps=mul,shr.trunc,zp,sat", 0.0),
        ("m=q31 steps=shl,mulhi.up,shr.floor,zp,sat", 0.0),
        ("m=bf16 steps=mul,even,zp,sat", 0.5),
    ],
)
def test_it_is_where_codes_change(quantized, text, limit):
    recording = quantized.conv(text, scales=quantized.generic)
    unit = Units(recording).find(recording.graph.nodes[0], "y").unit((0, 0))
    variant = parse_variant(text)
    columns = accumulate(unit, variant.sums)
    x, w, y = (float(np.float32(scale)) for scale in quantized.generic)
    part = columns.values[0] * (x * w / y) % 1
    gap = np.abs(part - limit)
    np.testing.assert_allclose(distance_to_ties(unit, columns, variant), np.minimum(gap, 1 - gap), atol=3 / 4096)


@pytest.mark.parametrize(
    ("shape", "parts", "name"),
    [
        ((5,), 2, "sample"),
        ((1, 5), 2, "sample"),
        ((2, 5), 1, "batch row"),
        ((2, 5), 3, "sample or batch row"),
    ],
)
def test_what_samples_and_their_batches_are_called(shape, parts, name):
    assert _batch_axis_name(shape, parts) == name


@pytest.mark.parametrize(
    ("codes", "zero", "expected"),
    [
        (np.int8([-100, 90]), 100, np.int8([56, -10])),
        (np.uint8([0, 200]), 0, np.int8([0, -56])),
        (np.int8([-100, 90]), 20, None),
        (np.int16([-100, 90]), 100, None),
        (np.uint16([0, 200]), 0, None),
    ],
)
def test_codes_that_less_their_zero_point_are_held_in_8_bits_wrap_around(codes, zero, expected):
    zeros = np.array(zero, codes.dtype)
    wrapped = _wrapped_to_8_bits(Operand(codes=codes, scale=np.float32(1), zero_point=zeros))
    if expected is None:
        assert wrapped is None
    else:
        assert (wrapped.codes.tolist(), wrapped.codes.dtype, int(wrapped.zero_point)) == (expected.tolist(), np.int8, 0)


def test_a_bias_that_16_bits_hold_is_not_clipped_to_them():
    out = Target(dtype=np.dtype(np.int8), scale=np.float32(1), zero_point=np.int8(0))
    operands = (Operand(codes=np.ones((2, 2), np.int8), scale=np.float32(1), zero_point=np.int8(0)),) * 2

    def short(*bias):
        unit = Unit(kind="linear", operands=operands, out=out, bias=np.int32(bias))
        return [each.unit.bias.tolist() for each in suspects(unit) if each.name == "short bias"]

    assert short(-32768, 32767) == []
    assert short(-32769, 5) == [[-32768, 5]]
    assert short(70000, 5) == [[32767, 5]]
    assert short(-70000, 32768) == [[-32768, 32767]]


def test_sums_are_looked_at_of_products_alone():
    """Of other operators the columns hold codes, whose size says nothing of an overflow."""
    codes = np.array([[3, -7]], np.int8)
    one = Operand(codes=codes, scale=np.float32(1), zero_point=np.int8(0))
    column = Operand(codes=np.array([[2], [5]], np.int8), scale=np.float32(1), zero_point=np.int8(0))
    out = Target(dtype=np.dtype(np.int8), scale=np.float32(1), zero_point=np.int8(0))
    product = Unit(kind="linear", operands=(one, column), out=out)
    assert _codes_of_sample(product, np.int8([[-29]]), Variant()).sums.tolist() == [[29]]
    assert _codes_of_sample(Unit(kind="requantize", operands=(one,), out=out), codes, Variant()).sums is None


@pytest.mark.parametrize(
    ("kind", "axes", "last", "layout"),
    [
        ("linear", 1, False, Layout(channel=0, spatial=(), vectors=True)),
        ("linear", 2, False, Layout(channel=1, spatial=(0,), vectors=True)),
        ("linear", 2, True, Layout(channel=1, spatial=(0,), vectors=True)),
        ("add", 2, False, Layout(channel=1, spatial=(0,))),
        ("add", 0, False, Layout()),
        ("add", 1, False, Layout(channel=0, spatial=())),
        ("add", 3, False, Layout(channel=0, spatial=(1, 2))),
        ("add", 3, True, Layout(channel=2, spatial=(0, 1))),
        ("conv", 2, False, Layout(channel=0, spatial=(1,))),
        ("conv", 3, False, Layout(channel=0, spatial=(1, 2))),
        ("max_pool", 3, False, Layout(channel=0, spatial=(1, 2))),
    ],
)
def test_channels_come_first_but_of_a_product_and_where_it_is_said(kind, axes, last, layout):
    one = Operand(codes=np.zeros((1, 1), np.int8), scale=np.float32(1), zero_point=np.int8(0))
    out = Target(dtype=np.dtype(np.int8), scale=np.float32(1), zero_point=np.int8(0))
    assert layout_of(Unit(kind=kind, operands=(one, one), out=out), axes, last=last) == layout


def test_samples_are_put_together_with_the_batches_within_them():
    first, second = np.arange(6).reshape(2, 3), np.arange(6, 12).reshape(2, 3)
    assert _join_samples([first, second]).tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert _join_samples([first]).tolist() == first.tolist()
    assert _join_samples([first[0], second[0]]).tolist() == [[0, 1, 2], [6, 7, 8]]
    assert _join_samples([np.array(3), np.array(4)]).tolist() == [3, 4]
    assert _join_samples([first, None]) is None


@pytest.mark.parametrize("zero", [0, 100])
def test_what_a_sum_is_made_of_is_the_sum_of_its_products_magnitudes(zero):
    x, weight = np.int8([[3, -7], [100, -128]]), np.int8([[2, -1], [5, 4]])
    operands = (
        Operand(codes=x, scale=np.float32(1), zero_point=np.int8(zero)),
        Operand(codes=weight, scale=np.float32(1), zero_point=np.int8(0)),
    )
    out = Target(dtype=np.dtype(np.int8), scale=np.float32(1), zero_point=np.int8(0))
    unit = Unit(kind="linear", operands=operands, out=out, bias=np.int32([1000, -1000]))
    wide = np.abs(x.astype(int) - zero)
    np.testing.assert_array_equal(_sum_magnitudes(unit), wide @ np.abs(weight.astype(int)))
    part = _codes_of_sample(unit, np.zeros((2, 2), np.int8), Variant())
    np.testing.assert_array_equal(part.sums, np.abs((x.astype(int) - zero) @ weight + [1000, -1000]))
    assert _sum_magnitudes(Unit(kind="add", operands=operands, out=out)) is None


@pytest.mark.parametrize(
    ("text", "cuts"),
    [
        ("", False),
        ("steps=mul,floor,zp,sat", True),
        ("steps=mul,trunc,zp,sat", True),
        ("m=q31 steps=pre.floor,mul,shr.up,zp,sat", False),  # the last rounding counts
        ("m=q31 steps=shl,mulhi.up,shr.trunc,zp,sat", True),
        ("m=glow steps=mul,shr.up,avg.away,zp,sat", False),
        ("steps=scale", False),
    ],
)
def test_a_program_cuts_off_if_its_last_rounding_does(text, cuts):
    assert _truncates(parse_variant(text)) == cuts


def node_of(op, **attrs):
    """Return a finding for one node of a graph whose channels come last, as far as residuals ask for it."""
    first = Node(name="conv", op="Conv", inputs=("x",), outputs=("a",), attrs={"channels_last": 1})
    node = Node(name="n", op=op, inputs=("a", "a"), outputs=("y",), attrs=attrs)
    graph = Graph([first, node], inputs=["x"], outputs=["y"])
    return SimpleNamespace(source=SimpleNamespace(recording=MemoryRecording(graph, {}), node=node))


@pytest.mark.parametrize(
    ("kind", "last"),
    [("add", True), ("lookup", True), ("conv", False), ("linear", False), ("max_pool", False), ("average_pool", False)],
)
def test_only_a_node_without_a_layout_of_its_own_takes_that_of_the_nodes_before(kind, last):
    one = Operand(codes=np.zeros((1, 1), np.int8), scale=np.float32(1), zero_point=np.int8(0))
    out = Target(dtype=np.dtype(np.int8), scale=np.float32(1), zero_point=np.int8(0))
    assert _has_channels_last(node_of("Add"), Unit(kind=kind, operands=(one, one), out=out)) == last
    turned = node_of("Transpose")
    assert not _has_channels_last(turned, Unit(kind=kind, operands=(one, one), out=out))


@pytest.mark.parametrize(
    ("shape", "kind", "detail"),
    [
        ((6, 60), "linear", "only in the last 2 features of 60"),
        ((60,), "requantize", "only in the last 2 channels of 60"),
        ((6, 60), "requantize", "only in the last 2 channels of 60"),
        ((2, 6, 60), "requantize", "only in the last 2 channels of 60"),
        ((2, 3, 6, 60), "requantize", "only in the last 2 columns of 60"),
    ],
)
def test_a_wrong_tail_is_named_by_what_the_axes_of_a_unit_mean(shape, kind, detail):
    codes = np.random.default_rng(0).integers(-60, 60, shape).astype(np.int8)
    one = Operand(codes=codes, scale=np.float32(0.5), zero_point=np.int8(0))
    keep = Operand(codes=np.eye(60, dtype=np.int8), scale=np.float32(1), zero_point=np.int8(0))
    out = Target(dtype=np.dtype(np.int8), scale=np.float32(0.5), zero_point=np.int8(0))
    unit = Unit(kind=kind, operands=(one, keep) if kind == "linear" else (one,), out=out)
    recorded = codes.copy()
    recorded[..., -2:] = np.random.default_rng(1).integers(60, 90, (*shape[:-1], 2))
    finding = node_of("Transpose")
    finding.source.places = tuple((sample, 0) for sample in range(8))
    finding.source.unit, finding.source.codes = lambda _: unit, lambda _: recorded
    assert residual_of(finding, Variant()).detail.startswith(detail)
