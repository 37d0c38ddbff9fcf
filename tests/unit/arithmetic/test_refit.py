"""Sums and products of two codes whose one operand acts by another scale or zero point."""

from dataclasses import replace

import numpy as np
import pytest

from qdebug.arithmetic.evidence import residual_of
from qdebug.arithmetic.refit import refit
from qdebug.arithmetic.search import search
from qdebug.arithmetic.units import Units
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay.evaluate import compute
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import parse_variant

RNG = np.random.default_rng(12)
RIGHT = {kind: parse_variant("form=fold-fma steps=even,sat") for kind in ("add", "sub")}
RIGHT["mul"] = parse_variant("steps=mul,zp,even,sat")


def unit_of(kind, seed=0):
    rng = np.random.default_rng(seed)
    sides = [
        Operand(
            codes=rng.integers(-128, 128, (4, 600)).astype(np.int8),
            scale=np.asarray(scale, np.float32),
            zero_point=np.asarray(zero, np.int8),
        )
        for scale, zero in ((0.0371, 11), (0.0213, -24))
    ]
    scale = 0.061 if kind != "mul" else 0.07
    out = Target(dtype=np.dtype(np.int8), scale=np.asarray(scale, np.float32), zero_point=np.asarray(-5, np.int8))
    return Unit(kind=kind, operands=tuple(sides), out=out)


def given(unit, position=0, **changes):
    sides = list(unit.operands)
    sides[position] = replace(sides[position], **changes)
    return compute(replace(unit, operands=tuple(sides)), RIGHT[unit.kind])


@pytest.mark.parametrize("kind", ["add", "sub", "mul"])
@pytest.mark.parametrize(("position", "value"), [(0, 5), (0, 19), (1, -12), (1, 0), (1, 24)])
def test_a_wrong_zero_point_of_an_operand_is_named(kind, position, value):
    units = [unit_of(kind, seed) for seed in (0, 1)]
    codes = [given(unit, position, zero_point=np.asarray(value, np.int8)) for unit in units]
    found = refit(units, codes, RIGHT[kind])
    name, said = ("first", 11) if position == 0 else ("second", -24)
    assert found.likely == f"the {name} operand's zero point is {value}, not {said}"
    assert (found.pattern, found.equal, found.total) == ("constant", 4800, 4800)


@pytest.mark.parametrize("kind", ["add", "sub"])
@pytest.mark.parametrize("factor", [0.5, 0.97, 1.013, 2])
@pytest.mark.parametrize("position", [0, 1])
def test_a_wrong_scale_of_an_operand_is_named(kind, factor, position):
    unit = unit_of(kind)
    scale = np.asarray(unit.operands[position].scale * factor, np.float32)
    found = refit([unit], [given(unit, position, scale=scale)], RIGHT[kind])
    assert found.likely.startswith(f"the {('first', 'second')[position]} operand's scale acts as ")
    assert found.pattern == "factor"
    assert found.equal >= 0.99 * found.total
    assert abs(float(found.likely.split()[6].rstrip(",")) / float(scale) - 1) < 1e-3


@pytest.mark.parametrize("kind", ["add", "sub", "mul"])
def test_nothing_is_said_of_what_no_parameter_of_one_operand_makes(kind):
    unit = unit_of(kind)
    right = given(unit)
    assert refit([unit], [right], RIGHT[kind]) is None
    cut = right.copy()
    cut[:, 550:] = 0
    assert refit([unit], [cut], RIGHT[kind]) is None
    assert refit([unit], [RNG.integers(-128, 128, right.shape).astype(np.int8)], RIGHT[kind]) is None
    both = given(replace(unit, operands=(unit.operands[0], replace(unit.operands[1], scale=np.float32(0.03)))), 0,
                 scale=np.float32(0.05))  # fmt: skip
    assert refit([unit], [both], RIGHT[kind]) is None
    flat = np.full_like(right, 127)
    assert refit([unit], [flat], RIGHT[kind]) is None


def test_other_operators_and_scales_of_channels_are_left_out():
    unit = unit_of("add")
    right = given(unit)
    assert refit([replace(unit, kind="div")], [right], RIGHT["add"]) is None
    channels = replace(unit.operands[0], scale=np.full((4, 1), 0.0371, np.float32))
    assert refit([replace(unit, operands=(channels, unit.operands[1]))], [right], RIGHT["add"]) is None


def test_operands_that_cannot_be_told_apart_are_both_named():
    unit = unit_of("add")
    alike = tuple(replace(side, scale=np.asarray(0.03125, np.float32)) for side in unit.operands)
    unit = replace(unit, operands=alike, out=replace(unit.out, scale=np.asarray(0.0625, np.float32)))
    found = refit([unit], [given(unit, 1, zero_point=np.asarray(-20, np.int8))], RIGHT["add"])
    assert found.likely == (
        "the first operand's zero point is 15, not 11, or the second operand's zero point is -20, not -24"
    )


def test_the_cause_of_a_recorded_sum_is_named():
    unit = unit_of("add")
    codes = given(unit, 1, zero_point=np.asarray(-12, np.int8))
    quants = {"a": unit.operands[0], "b": unit.operands[1], "y": unit.out}
    tensors = [
        TensorInfo(
            name=name,
            role=Role.ACTIVATION,
            quant=QuantParams(dtype="int8", scale=float(each.scale), zero_point=int(each.zero_point)),
        )
        for name, each in quants.items()
    ]
    node = Node(name="sum", op="Add", inputs=("a", "b"), outputs=("y",))
    graph = Graph([node], tensors=tensors, inputs=["a", "b"], outputs=["y"])
    values = {"a": unit.operands[0].codes, "b": unit.operands[1].codes, "y": codes}
    recording = MemoryRecording.single(graph, values)
    found = residual_of(search(Units(recording).find(node, "y")), RIGHT["add"])
    assert found.likely == "the second operand's zero point is -12, not -24 (reproduces every element)"
    assert found.pattern == "constant"
