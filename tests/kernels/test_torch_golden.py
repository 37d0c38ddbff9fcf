"""PyTorch's quantized engines, each reproduced to the last code by the variants that are known of it."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from qdebug.arithmetic.candidates import candidates
from qdebug.replay import Operand, Target, Unit, compute, parse_variant

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("make_torch_golden", HERE / "make_torch_golden.py")
maker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(maker)
GOLDEN = json.loads((HERE / "torch_golden.json").read_text(encoding="utf-8"))

SUMS = dict.fromkeys(maker.ENGINES, "form=deq-fma steps=inv,even,zp,sat") | {
    "qnnpack": "form=common21 steps=shr.away,zp,sat"
}
# QNNPACK rounds a real bias to the scale of the sums; the others add it to real numbers.
CONVOLUTIONS = dict.fromkeys(maker.ENGINES, "bias=float steps=scale,bias,inv,even,zp,sat") | {
    "qnnpack": "steps=mul,even,zp,sat"
}


def operand(codes, scale, zero):
    return Operand(codes=codes, scale=np.asarray(scale), zero_point=np.asarray(zero))


def target(scale, clamp=None):
    return Target(dtype=np.dtype(np.uint8), scale=np.asarray(scale), zero_point=np.asarray(99), clamp=clamp)


def pair_units(kind, clamp=None):
    for number, a, b, (sa, sb, sc) in maker.pairs():
        yield number, Unit(kind=kind, operands=(operand(a, sa, 121), operand(b, sb, 7)), out=target(sc, clamp))


def matching(units, name, engine):
    """List the candidates that reproduce all units."""
    units = list(units)
    return {
        str(variant)
        for variant in candidates(units[0][1])
        if all(maker.hashed(compute(unit, variant)) == GOLDEN[f"{name} {number} {engine}"] for number, unit in units)
    }


@pytest.mark.parametrize("engine", maker.ENGINES)
@pytest.mark.parametrize(("name", "clamp"), [("add", None), ("add_relu", (99, 255))])
def test_sums_have_one_explanation(engine, name, clamp):
    found = matching(pair_units("add", clamp), name, engine)
    assert SUMS[engine] in found
    assert len(found) <= 2  # with Relu fewer sums are left to tell by


@pytest.mark.parametrize("engine", maker.ENGINES)
def test_products(engine):
    found = matching(pair_units("mul"), "mul", engine)
    assert str(parse_variant("steps=mul,even,zp,sat")) in found
    assert str(parse_variant("steps=mul,zp,even,sat")) not in found
    assert str(parse_variant("m=q31:d:xw/y steps=shl,mulhi.up,shr.away,zp,sat")) not in found


@pytest.mark.parametrize("engine", maker.ENGINES)
def test_convolutions_with_a_real_bias(engine):
    for number, x, w, bias, (sx, sw, sy) in maker.convolutions():
        operands = operand(x, sx, 11), operand(w, sw, 0)
        unit = Unit(kind="conv", operands=operands, out=target(sy), bias=bias, attrs={"pads": (1, 1, 1, 1)})
        codes = compute(unit, parse_variant(CONVOLUTIONS[engine]))
        assert maker.hashed(codes) == GOLDEN[f"conv {number} {engine}"]
