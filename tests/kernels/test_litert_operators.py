"""Single operators as four sets of TensorFlow Lite's kernels compute them, each by a variant that the search tries.

What the cases leave open is stated as well: where only one variant is left, no other may reproduce every case. A node
in TensorFlow Lite's words is explained as its twin in ONNX's words is.
"""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from sweeps import sweep

from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.presets import is_known
from qdebug.backends import load_reader
from qdebug.compare.explaining.explain import explain_recording
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay import Coded, accumulate, compute, finish, parse_variant, unit_of_codes

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("make_litert_operators", HERE / "make_litert_operators.py")
maker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(maker)
GOLDEN = json.loads(maker.FILE.read_text(encoding="utf-8"))

DOUBLE, UP_UP = "m=q31:d:xw/y steps=shl,mulhi.up,shr.away,zp,sat", "m=q31:d:xw/y steps=shl,mulhi.up,shr.up,zp,sat"
SINGLE = "m=q31:d:xw/y steps=mul,shr.away,zp,sat"
EVEN, MOVED = "steps=mul,even,zp,sat", "steps=scale,div,even,zp,sat"
HARD_SWISH = "form=hswish16 steps=shr.away,zp,sat"
LEAKY = "form=leaky m=q31:xw/y operand=shl,mulhi.up,shr.away steps=zp,sat"
TABLE, FIXED16 = "form=table steps=div,even,zp,sat", "form=fixed16 steps=shr.away,zp,sat"
EXP31, EXP32 = "form=exp31 steps=zp,sat", "form=exp32 steps=div,even,zp,sat"
GRID, RAW = "form=grid10 steps=shr.away,sat", "form=raw m=q31 steps=avg.away,sat"
CORNERS, WEIGHTS = "form=corners32 steps=plus,sat", "form=weights32 steps=plus,sat"
OFFSET = "form=offset m=q31:x/(y*n) steps=shl,mulhi.up,shr.up,zp,sat"
COUNTED = "form=counted steps=shl,mulhi.up,shr.away,zp,sat"
ADD = "form=ls shift=20 m=q31:d:xw/y operand=mul,shr.up steps=shl,mulhi.up,shr.away,zp,sat"
ROOT = "form=root31 steps=shl,mulhi.up,shr.away,zp,sat"
SQUARES = "form=ls shift=7 m=q31:d:xw/y operand=shl,mulhi.up,shr.away steps=shl,mulhi.up,shr.away,zp,sat"

EXPECTED = {
    # reference, optimized, default, for microcontrollers
    "hard swish": (HARD_SWISH, HARD_SWISH, HARD_SWISH, HARD_SWISH),
    "leaky relu": (LEAKY, LEAKY, "form=leaky m=p8 operand=mul,shr.up steps=zp,sat", LEAKY),
    "relu": (DOUBLE, DOUBLE, DOUBLE, DOUBLE),
    "requantize": (DOUBLE, UP_UP, "m=p8 steps=mul,shr.up,zp,sat", DOUBLE),
    "sigmoid": (TABLE, TABLE, TABLE, "form=fixed31 steps=shr.away,zp,sat"),
    "tanh": (TABLE, TABLE, TABLE, "form=fixed31 steps=shr.away,zp,sat"),
    "sigmoid of 16 bits": ("", FIXED16, FIXED16, ""),
    "tanh of 16 bits": ("", FIXED16, FIXED16, ""),
    "softmax": (EXP31, EXP32, EXP32, EXP31),
    "bilinear": (GRID, GRID, "form=blend11 steps=shr.up,sat", GRID),
    "bilinear of unsigned codes": (CORNERS, WEIGHTS, "form=blend11 steps=shr.up,sat", ""),
    "nearest": (MOVED, MOVED, MOVED, MOVED),
    "mean": (COUNTED, COUNTED, "form=offset steps=mul,zp,even,sat", COUNTED),
    "mean of planes": (COUNTED, OFFSET, "m=f32:x/(y*n)", COUNTED),
    "add": (ADD, ADD, "form=common20 steps=shr.up,zp,sat", ADD),
    "sub": (ADD, ADD, "form=common20 steps=shr.up,zp,sat", ADD),
    "mul": (DOUBLE, DOUBLE, EVEN, DOUBLE),
    "average pool": (RAW, RAW, RAW, RAW),
    "max pool": (MOVED, MOVED, MOVED, MOVED),
    "pad": (MOVED, MOVED, MOVED, MOVED),
    "conv": (DOUBLE, UP_UP, EVEN, DOUBLE),
    "depthwise": (DOUBLE, UP_UP, EVEN, DOUBLE),
    "transposed": (DOUBLE, UP_UP, EVEN, DOUBLE),
    "fully connected": (SINGLE, UP_UP, EVEN, DOUBLE),
    "batch matmul": (DOUBLE, DOUBLE, EVEN, DOUBLE),
    "reciprocal root": (ROOT, ROOT, ROOT, ROOT),
    "squared difference": (SQUARES, SQUARES, SQUARES, SQUARES),
    "sequence": (SINGLE, UP_UP, EVEN, DOUBLE),
}
"""By family of cases: the variant of each set of kernels; empty where none is known."""

KERNELS = ("reference", "optimized", "default", "micro")
ALONE = {
    ("hard swish", "reference"): 1,
    ("leaky relu", "default"): 2,
    ("requantize", "default"): 1,
    ("requantize", "optimized"): 2,
    ("softmax", "reference"): 1,
    ("tanh of 16 bits", "optimized"): 1,
    ("bilinear", "reference"): 1,
    ("bilinear", "default"): 1,
    ("bilinear of unsigned codes", "reference"): 1,
    ("bilinear of unsigned codes", "optimized"): 1,
    ("mean", "reference"): 1,
    ("mean", "default"): 3,
    ("mean of planes", "optimized"): 2,
    ("add", "default"): 1,
}
"""How many of the variants reproduce all cases of a family: more than one where expressions of a multiplier agree."""


def quant_of(codes):
    return QuantParams(
        dtype=codes.values.dtype.name, scale=codes.scales, zero_point=np.array(codes.zeros), axis=codes.axis
    )


def coded(given):
    if given is None or isinstance(given, np.ndarray):
        return None if given is None else Coded(values=given)
    return Coded(values=given.values, quant=quant_of(given))


def unit_of(case):
    node = Node(name="n", op=case.op, inputs=("i",) * len(case.inputs), outputs=("o",), attrs=case.attrs)
    return unit_of_codes(node, [coded(given) for given in case.inputs], quant_of(case.out))


def units(family):
    for case in maker.cases():
        if case.family == family:
            yield GOLDEN[f"{case.family} {case.name}"], unit_of(case)


def laid_out(unit, codes):
    return np.moveaxis(codes, 1, -1) if unit.channels_last else codes


@pytest.mark.parametrize(("family", "texts"), EXPECTED.items(), ids=list(EXPECTED))
def test_every_set_of_kernels_is_reproduced(family, texts):
    count = 0
    for golden, unit in units(family):
        for kernels, text in zip(KERNELS, texts, strict=True):
            if not text:
                continue
            variant = parse_variant(text)
            assert variant in candidates(unit), text
            assert is_known(variant), text
            assert maker.hashed(compute(unit, variant)) == golden[kernels], (kernels, text)
            count += 1
    assert count


@pytest.mark.parametrize(("family", "kernels"), sweep(ALONE, 6))
def test_no_other_arithmetic_does(family, kernels):
    left = None
    for golden, unit in units(family):
        columns, found = {}, set()
        for variant in candidates(unit):
            sums = variant.sums
            columns[sums] = columns.get(sums) or accumulate(unit, sums)
            codes = finish(unit, columns[sums], variant).reshape(columns[sums].shape)
            if maker.hashed(laid_out(unit, codes)) == golden[kernels]:
                found.add(variant)
        left = found if left is None else left & found
    assert parse_variant(EXPECTED[family][KERNELS.index(kernels)]) in left
    assert len(left) == ALONE[family, kernels], [str(variant) for variant in left]


def test_every_case_is_looked_at():
    cases = list(maker.cases())
    assert {case.family for case in cases} == set(EXPECTED)
    assert {f"{case.family} {case.name}" for case in cases} == set(GOLDEN)


CASES = {case.family: case for case in maker.cases()}
"""The last case of each family."""


def answer(graph, arrays):
    recording = MemoryRecording(graph, {(name, 0, 0): array for name, array in arrays.items()})
    node = explain_recording(recording).nodes[-1]
    return node.status, node.variants, node.members, node.reason


def in_words_of_onnx(case, codes):
    infos, arrays, names = [], {"out": codes}, []
    for number, given in enumerate(case.inputs):
        names.append("" if given is None else f"i{number}")
        if given is None:
            continue
        plain = isinstance(given, np.ndarray)
        arrays[names[-1]] = given if plain else given.values
        constant = plain or given.constant
        role = Role.CONSTANT if constant else Role.INPUT
        infos.append(
            TensorInfo(
                name=names[-1], shape=arrays[names[-1]].shape, role=role, quant=None if plain else quant_of(given)
            )
        )
    infos.append(TensorInfo(name="out", shape=codes.shape, quant=quant_of(case.out)))
    node = Node(name="n", op=case.op, inputs=tuple(names), outputs=("out",), attrs=case.attrs)
    return Graph([node], tensors=infos, opset={"": 18}), arrays


def in_words_of_tensorflow_lite(case, codes, path):
    path.write_bytes(maker.model_of(case))
    source = load_reader(path)
    given = [each for each in (*case.given, case.out) if not isinstance(each, np.ndarray) and not each.constant]
    arrays = {name: source.constant(name) for name in source.constants}
    arrays |= {f"t{each.index}": codes if each is case.out else each.values for each in given}
    return source.graph, arrays


@pytest.mark.parametrize("family", sweep(CASES, 12))
def test_both_words_have_the_same_answer(family, tmp_path):
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    case = CASES[family]
    known = next(text for text in EXPECTED[family] if text)
    codes = compute(unit_of(case), parse_variant(known)).reshape(case.out.values.shape)
    twin = answer(*in_words_of_onnx(case, codes))
    assert twin[0] == "explained"
    assert answer(*in_words_of_tensorflow_lite(case, codes, tmp_path / "one.tflite")) == twin
