"""Presets: every row is an arithmetic that computes, and says how it is known."""

import pytest

from qdebug.errors import UsageError
from qdebug.replay import Arithmetic, Variant, parse_variant
from qdebug.replay.arithmetic import DEFAULTS
from qdebug.replay.preset_table import ROWS
from qdebug.replay.presets import ALIASES, DEFAULT_PRESET, PRESETS, PROVENANCES, names_of, preset


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_says_how_it_is_known(name):
    found = preset(name)
    assert found.name == name == found.arithmetic.name
    assert found.provenance in PROVENANCES
    assert len(found.about) > 10
    assert found.states == tuple(found.arithmetic.variants)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_variant_of_the_table_is_written_as_it_is_printed(row):
    for text in row.variants.values():
        variant = parse_variant(text)
        assert parse_variant(str(variant)) == variant


def test_names_are_unique_and_aliases_stand_for_presets():
    assert len(PRESETS) == len(ROWS)
    assert not set(ALIASES) & set(PRESETS)
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


def test_ort_mlas_states_every_default():
    assert dict(preset("ort-mlas").arithmetic.variants) == dict(DEFAULTS)
    assert Arithmetic().variants == {}


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match=r"no arithmetic 'glow'.*glow-cpu"):
        preset("glow")
