"""The interpreter under each preset: the probe names it, and tells it from every other one that differs."""

from itertools import combinations

import pytest

from qdebug.arithmetic.presets import known_presets
from qdebug.probe.models import PROBED
from qdebug.probe.run import run_probe

SAME = {"ort-mlas", "onnx-spec"}
"""They compute alike, one with groups as single nodes, the other node by node."""
GROUPS = {"sub", "requantize", "reduce_mean", "resize"}
"""Probed in QDQ form, where only who fuses computes on codes."""


@pytest.fixture(scope="module")
def results():
    found = {}

    def probed(name):
        if name not in found:
            found[name] = run_probe("interpreter", options={"arithmetic": name})
        return found[name]

    return probed


def conflicts(result, name):
    return {title for entry in result.entries for title in [entry.title] if name in entry.conflicts}


def stands(result):
    return {score.name for score in result.scores if score.stands}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(known_presets()))
def test_every_preset_is_explained_and_named(name, results):
    result = results(name)
    assert result.exit_code == 0, [(entry.title, entry.reason) for entry in result.entries]
    assert {entry.status for entry in result.entries} <= {"explained", "mixed", "unfused"}
    assert conflicts(result, name) == set()
    if known_presets()[name].states:
        assert name in stands(result)


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), list(combinations(known_presets(), 2)))
def test_presets_that_differ_are_told_apart(one, other, results):
    first, second = known_presets()[one], known_presets()[other]
    against = conflicts(results(one), other), conflicts(results(other), one)
    if {one, other} != SAME:
        assert any(against)
    for kind in set(first.states) & set(second.states) & set(PROBED):
        differ = first.arithmetic.variants[kind] != second.arithmetic.variants[kind]
        if differ and not (kind in GROUPS and not (first.fused and second.fused)):
            for titles in against:
                assert any(title.startswith(f"{kind} ") for title in titles), kind
