"""Single operators as PyTorch's quantized engines compute them, each by a variant that the search tries."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.presets import is_known
from qdebug.model import Node, QuantParams
from qdebug.replay import Coded, accumulate, compute, finish, parse_variant, unit_of_codes

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("make_torch_operators", HERE / "make_torch_operators.py")
maker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(maker)
GOLDEN = json.loads(maker.FILE.read_text(encoding="utf-8"))

TABLE, EVEN, INSIDE = "form=table steps=div,even,zp,sat", "steps=mul,even,zp,sat", "steps=mul,zp,even,sat"
MOVED, REAL_BIAS = "steps=scale,div,even,zp,sat", "bias=float steps=scale,bias,inv,even,zp,sat"
LERP, LERP_FMA = "form=lerp steps=mul,zp,even,sat", "form=lerp-fma steps=mul,zp,even,sat"

EXPECTED = {
    "hard swish": TABLE,
    "leaky relu": TABLE,
    "elu": TABLE,
    "sigmoid": TABLE,
    "tanh": TABLE,
    "hard sigmoid": TABLE,
    "relu": MOVED,
    "average pool": EVEN,
    "padded average pool": INSIDE,
    "mean": INSIDE,
    "global average pool": EVEN,
    "bilinear": LERP,
    "bilinear, channels last": LERP_FMA,
    "nearest": MOVED,
    "concat": "steps=scale,inv,zp,even,sat",
    "softmax": "form=exp32 steps=div,even,zp,sat",
    "conv": REAL_BIAS,
    "depthwise": REAL_BIAS,
    "transposed": REAL_BIAS,
    "linear": REAL_BIAS,
}
"""By family of cases: the variant of all engines, but for the engine qnnpack where `QNNPACK` has the family."""

QNNPACK = dict.fromkeys(("conv", "depthwise", "transposed", "linear"), EVEN) | {"mean": "m=f32:x/(y*n)"}
NOT_ALONE = {("mean", "1"), ("mean", "2")}
"""Means that the engine qnnpack leaves to the others' code."""


def coded(given):
    if given is None or isinstance(given, np.ndarray):
        return None if given is None else Coded(values=given)
    quant = QuantParams(
        dtype=given.values.dtype.name, scale=given.scales, zero_point=np.array(given.zeros), axis=given.axis
    )
    return Coded(values=given.values, quant=quant)


def unit_of(case):
    node = Node(name="n", op=case.op, inputs=("i",) * len(case.inputs), outputs=("o",), attrs=case.attrs)
    return unit_of_codes(node, [coded(given) for given in case.inputs], coded(case.out).quant)


def expected(case, engine):
    alone = engine == "qnnpack" and (case.family, case.name) not in NOT_ALONE
    return QNNPACK.get(case.family, EXPECTED[case.family]) if alone else EXPECTED[case.family]


@pytest.mark.parametrize("family", EXPECTED)
def test_every_engine_is_reproduced(family):
    count = 0
    for case in maker.cases():
        if case.family != family:
            continue
        unit, golden = unit_of(case), GOLDEN[f"{case.family} {case.name}"]
        assert set(golden) == set(case.engines)
        for engine in case.engines:
            variant = parse_variant(expected(case, engine))
            assert variant in candidates(unit)
            assert is_known(variant)
            assert maker.hashed(compute(unit, variant)) == golden[engine], (case.name, engine, str(variant))
            count += 1
    assert count


@pytest.mark.parametrize(("family", "text"), [("bilinear", LERP), ("bilinear, channels last", LERP_FMA)])
def test_no_other_arithmetic_interpolates_so(family, text):
    left = None
    for case in maker.cases():
        if case.family == family:
            unit, golden = unit_of(case), GOLDEN[f"{case.family} {case.name}"]
            found, columns = set(), {}
            for variant in candidates(unit):
                columns[variant.sums] = columns.get(variant.sums) or accumulate(unit, variant.sums)
                if maker.hashed(finish(unit, columns[variant.sums], variant)) == golden["fbgemm"]:
                    found.add(variant)
            left = found if left is None else left & found
    assert left == {parse_variant(text)}


def test_every_case_is_looked_at():
    cases = list(maker.cases())
    assert {case.family for case in cases} == set(EXPECTED)
    assert {f"{case.family} {case.name}" for case in cases} == set(GOLDEN)
