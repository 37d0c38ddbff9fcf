"""The check of decisions itself: it finds no difference where there is none, and names each that there is."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import qdebug

HERE = Path(__file__).resolve().parent


def load(name):
    """Import a script of this folder under a name that no other test folder has."""
    full = f"qdebug_tests_decisions_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, HERE / f"{name}.py")
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


collect, compare = load("collect"), load("compare")
RNG = np.random.default_rng(3)
X = RNG.normal(size=(1, 2, 4, 4)).astype(np.float32)


def record(path, output, scale=None):
    with qdebug.Recorder(path, backend="made-up", cpu_flags=()) as recorder:
        recorder.put("x", X)
        recorder.put("r", np.maximum(X, 0), node="relu", op="Relu", inputs=["x"])
        recorder.put("y", output, node="neg", op="Neg", inputs=["r"], scale=scale)
        recorder.outputs("y")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Make three cases: a pair with an error, a recording explained, and files that are missing."""
    folder = tmp_path_factory.mktemp("corpus")
    right = -np.maximum(X, 0)
    wrong = right.copy()
    wrong[0, 1, 2, 3] += 1
    record(folder / "right.h5", right)
    record(folder / "wrong.h5", wrong)
    cases = [
        {"name": "pair", "kind": "diff", "files": ["right.h5", "wrong.h5"], "tier": "quick"},
        {
            "name": "allowed",
            "kind": "diff",
            "files": ["right.h5", "wrong.h5"],
            "args": ["--atol", "9"],
            "tier": "quick",
        },
        {"name": "alone", "kind": "explain", "files": ["wrong.h5"], "tier": "whole"},
        {"name": "missing", "kind": "diff", "files": ["right.h5", "nowhere.h5"], "tier": "whole"},
    ]
    (folder / "manifest.json").write_text(json.dumps({"cases": cases}))
    return folder


@pytest.fixture(scope="module")
def decide(corpus):
    """Return a function that decides all cases, in this process."""

    def decided():
        cases = collect.cases_of(corpus, quick=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", "")
            patch.setenv("XDG_CACHE_HOME", "")
            found = {case["name"]: collect.decide(case, corpus) for case in cases}
        return json.loads(json.dumps({"digest": collect.digest_of(cases), "cases": found}))

    return decided


@pytest.fixture(scope="module")
def once(decide):
    return decide()


def test_deciding_twice_finds_no_difference_and_leaves_nothing_behind(corpus, decide, once):
    before = sorted(corpus.rglob("*"))
    assert compare.report(once, decide()) == (["All 4 cases decide the same."], 0)
    assert sorted(corpus.rglob("*")) == before


def test_decisions_hold_what_was_found(once):
    pair, allowed = once["cases"]["pair"], once["cases"]["allowed"]
    assert (pair["exit"], pair["called"]) == (1, "as printed")
    assert pair["verdict"]["first_divergence"] == "neg"
    assert pair["nodes"][-1]["metrics"]["mismatches"] == 1
    assert allowed["exit"] == 0
    assert {node["node"] for node in once["cases"]["alone"]["nodes"]} == {"relu", "neg"}
    assert once["cases"]["missing"] == {"raised": "FileNotFoundError"}


def test_no_sentence_is_a_decision(once):
    assert not collect.WORDS & set(every_key(once))


def every_key(value):
    if isinstance(value, dict):
        return [*value, *(key for entry in value.values() for key in every_key(entry))]
    return [key for entry in value for key in every_key(entry)] if isinstance(value, list) else []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda case: case["nodes"][2].update(status="within"),
            "    node 'neg' (tensor 'y'), status: diverged -> within",
        ),
        (lambda case: case["nodes"][2]["metrics"].update(max_abs=1.5), "metrics.max_abs: 1.0 -> 1.5"),
        (lambda case: case["nodes"][1]["metrics"].update(max_abs=-0.0), "metrics.max_abs: 0.0 -> -0.0"),
        (lambda case: case["nodes"][2].pop("gain"), "gain: None -> nothing"),
        (lambda case: case["nodes"].pop(1), "node 'relu' (tensor 'r'), node: compared -> nothing"),
        (lambda case: case["nodes"].reverse(), "order of the nodes: one -> another"),
        (lambda case: case["unmatched"].append(["backend", "z", "lost"]), "unmatched: nothing -> backend z lost"),
        (lambda case: case.update(exit=0), "exit: 1 -> 0"),
        (lambda case: case["verdict"].update(origin=None), "verdict.origin: neg -> None"),
        (lambda case: [case.clear(), case.update(raised="KeyError")], "nodes: compared -> nothing"),
    ],
)
def test_a_change_of_one_field_is_named(once, change, said):
    other = copy.deepcopy(once)
    change(other["cases"]["pair"])
    lines, changed = compare.report(once, other)
    assert changed == 1
    assert any(said in line for line in lines), lines
    assert lines[-1] == "1 of 4 cases differ."


def test_a_key_that_only_the_newer_side_has_is_no_difference(once):
    other = copy.deepcopy(once)
    other["cases"]["pair"]["nodes"][2]["metrics"]["new_metric"] = 1
    other["cases"]["pair"]["new"] = 1
    assert compare.report(once, other)[1] == 0


def test_a_file_that_is_not_the_manifest_s_is_named(corpus):
    right = collect.hashlib.sha256((corpus / "right.h5").read_bytes()).hexdigest()
    case = {"files": ["right.h5", "wrong.h5", "nowhere.h5"], "sha256": [right, right, right]}
    assert collect.altered([case], corpus) == ["wrong.h5", "nowhere.h5"]


def test_decisions_over_another_corpus_are_not_compared(once):
    assert compare.report(once, {**once, "digest": "another"})[1] == 1
