"""Presets: every row is an arithmetic that computes, and says how it is known."""

from dataclasses import replace

import numpy as np
import pytest

from qdebug.arithmetic.fingerprints import packaged
from qdebug.arithmetic.presets import ALIASES, DEFAULT_PRESET, PROVENANCES, ROWS, known_presets, names_of, preset
from qdebug.errors import UsageError
from qdebug.replay import Arithmetic, Operand, Target, Unit, Variant, compute, parse_variant
from qdebug.replay.variant import DEFAULTS, kind_of


@pytest.mark.parametrize("name", list(known_presets()))
def test_every_preset_says_how_it_is_known(name):
    found = preset(name)
    assert found.name == name == found.arithmetic.name
    assert found.provenance in PROVENANCES
    assert len(found.about) > 10
    assert found.states == tuple(found.arithmetic.variants)


@pytest.mark.parametrize("name", list(known_presets()))
def test_every_variant_of_the_table_is_written_as_it_is_printed(name):
    for variant in preset(name).variants.values():
        assert parse_variant(str(variant)) == variant


@pytest.mark.parametrize("name", list(known_presets()))
def test_what_is_known_otherwise_is_said_of_kinds_that_are_stated(name):
    found = preset(name)
    kinds = {key.partition(":")[0] for key in found.states}
    assert set(found.apart) <= kinds
    assert set(found.apart.values()) <= set(PROVENANCES) - {found.provenance}
    for kind in kinds:
        assert found.known(kind) == found.apart.get(kind, found.provenance)


def test_a_preset_may_be_measured_in_part():
    assert preset("onednn").known("conv") == "measured"
    assert preset("onednn").known("linear") == "memory"


def test_names_are_unique_and_aliases_stand_for_presets():
    assert len(known_presets()) == len(ROWS) + len(packaged())
    assert not set(ALIASES) & set(known_presets())
    assert preset("ruy") is preset("tflite-opt-sse4")
    assert preset("cmsis-nn") is preset("gemmlowp")


def test_what_a_preset_does_not_state_is_the_default():
    glow = preset("glow-cpu")
    assert "softmax" not in glow.states
    assert glow.variant("softmax") == DEFAULTS["softmax"]
    assert preset(DEFAULT_PRESET).states == ()
    assert not preset(DEFAULT_PRESET).fused


def test_a_variant_names_the_presets_that_state_it():
    named = names_of(Variant(), "conv")
    assert "ort-mlas" in named
    assert "xnnpack-fp32" in named
    assert "glow-interpreter" not in named
    assert DEFAULT_PRESET not in named
    assert names_of(parse_variant("steps=mul,floor,zp,sat"), "conv") == ()


def test_a_preset_may_tell_dtypes_apart():
    paired = parse_variant("acc=pairsat16:hwc")
    assert "ort-mlas-avx2-nonvnni" in names_of(paired, "conv", ("uint8", "int8", "uint8"))
    assert "ort-mlas-avx2-nonvnni" not in names_of(paired, "conv", ("int8", "int8", "int8"))
    assert "ort-mlas-avx2-nonvnni" in names_of(Variant(), "conv", ("int8", "int8", "int8"))


def test_a_softmax_in_fixed_point_is_stated_for_the_types_that_it_is_made_for():
    fixed, single = parse_variant("form=exp31 steps=zp,sat"), parse_variant("form=exp32 steps=div,even,zp,sat")
    stated = preset("gemmlowp").variants
    assert (stated["softmax:int8,int8"], stated["softmax:uint8,uint8"]) == (fixed, fixed)
    assert "softmax" not in stated  # of wider codes
    assert preset("tflite-opt-avx").variants["softmax"] == single


def test_ort_mlas_states_every_default():
    assert dict(preset("ort-mlas").arithmetic.variants) == dict(DEFAULTS)
    assert Arithmetic().variants == {}


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match=r"no arithmetic 'glow'.*glow-cpu"):
        preset("glow")


RNG = np.random.default_rng(3)


def codes(*shape, dtype=np.uint8):
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def operand(array, scale):
    return Operand(codes=array, scale=np.float32(scale), zero_point=np.asarray(7, array.dtype))


def unit(kind):
    x, scale = operand(codes(1, 4, 6, 6), 0.03), 5.0 if kind in ("conv", "linear") else 0.05
    out = Target(dtype=np.dtype(np.uint8), scale=np.float32(scale), zero_point=np.uint8(99))
    second = {
        "conv": operand(codes(2, 4, 3, 3, dtype=np.int8), 0.01),
        "linear": operand(codes(6, 5, dtype=np.int8), 0.01),
        **dict.fromkeys(
            ("add", "sub", "mul", "div", "prelu", "squared_difference", "concat", "where"),
            operand(codes(1, 4, 6, 6), 0.02),
        ),
    }.get(kind)
    if kind == "quantize":
        x = Operand(codes=np.linspace(-3, 3, 50, dtype=np.float32), scale=np.float32(1), zero_point=np.float32(0))
    if kind == "average_pool":
        out = Target(dtype=np.dtype(np.uint8), scale=x.scale, zero_point=x.zero_point)
    attrs = {"kernel_shape": (2, 2)} if kind in ("average_pool", "max_pool") else {"axis": 1}
    return Unit(
        kind=kind,
        operands=(x,) if second is None else (x, second),
        out=out,
        attrs=attrs if kind in ("average_pool", "max_pool", "concat", "softmax") else {},
        function="Sigmoid" if kind == "lookup" else "",
        condition=codes(6) > 100 if kind == "where" else None,
    )


@pytest.mark.parametrize("name", list(known_presets()))
def test_every_preset_computes_what_it_states(name):
    found = preset(name)
    for key in found.states:
        kind = kind_of(key)
        if "uint8" not in key and ":" in key and kind in ("lookup", "softmax"):
            continue  # stated for the other dtype as well
        if kind in ("max_pool", "resize", "pad", "dequantize", "requantize", "softmax", "reduce_mean"):
            continue  # stated by the defaults alone, which the tests of the kernels cover
        given = unit(kind)
        function = key.partition(":")[0].partition(".")[2]
        given = replace(given, function=function) if function else given
        result = compute(given, found.arithmetic.variants[key])
        near = compute(given, DEFAULTS[kind])
        assert result.dtype == np.uint8
        assert len(np.unique(result)) > 1
        # Whatever the arithmetic, it computes the same operator: power-of-two multipliers and pair sums are coarse.
        if "pow2" not in name and "acc=" not in str(found.arithmetic.variants[key]):
            assert np.abs(result.astype(int) - near.astype(int)).max() <= 3, key


def test_an_average_of_stored_codes_is_taken_only_where_they_mean_the_same():
    raw = preset("gemmlowp").arithmetic
    same = unit("average_pool")
    assert raw.variant(same).form == "raw"
    other = replace(same, out=Target(dtype=np.dtype(np.uint8), scale=np.float32(0.04), zero_point=np.uint8(7)))
    assert raw.variant(other) == DEFAULTS["average_pool"]


def test_a_misspelt_name_is_told_the_near_ones():
    with pytest.raises(UsageError, match=r"'Glow_CPU'\. Near names: glow-cpu"):
        preset("Glow_CPU")
    with pytest.raises(UsageError, match=r"'zzz'\. Known arithmetics are"):
        preset("zzz")


@pytest.mark.parametrize(
    ("backend", "form"),
    [("litert-2.3.0-reference", "exp31"), ("litert-2.3.0-xnnpack", "exp32"), ("onnxruntime-1.32.0-all", "ort")],
)
def test_of_a_class_a_fingerprint_states_what_its_own_runtime_is_known_to_compute(backend, form):
    """Probes do not tell these softmaxes apart; the other kinds tell whose kernels they are."""
    assert {
        known_presets()[f"{backend}-avx2"].variants[f"softmax:{dtype},{dtype}"].form for dtype in ("int8", "uint8")
    } == {form}
