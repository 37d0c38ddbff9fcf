"""Limits on the command line: from options, from a file, from the project, and suggested."""

import json

import numpy as np
import pytest

from qdebug.recording.recorder import Recorder

LIMITS = """\
[[acknowledged]]
node = "conv2"
reason = "the old kernel"

[[acknowledged]]
node = "head"
reason = "follows conv2"
"""


@pytest.fixture
def limits(tmp_path):
    """Write a limits file into the folder in which `run` runs."""

    def limits(text, name="limits.toml"):
        (tmp_path / name).write_text(text)
        return name

    return limits


def test_acknowledged_nodes_do_not_fail_and_are_shown(recordings, run, limits):
    done = run("diff", recordings.reference, recordings.diverged, "--limits", limits(LIMITS))
    assert done.code == 0
    assert "1 tensor beyond the limit is acknowledged" in " ".join(done.out.split())
    assert "diverged" in done.out
    assert "2 nodes acknowledged in limits.toml" in " ".join(done.out.split())
    plain = json.loads(run("diff", recordings.reference, recordings.diverged, "--limits", "limits.toml", "--json").out)
    assert plain["verdict"]["status"] == "within"
    by_node = {node["node"]: node for node in plain["nodes"]}
    assert by_node["conv2"]["status"] == "diverged"
    assert by_node["conv2"]["acknowledged"]["reason"] == "the old kernel"
    assert plain["limits"]["file"] == "limits.toml"


def test_an_expired_acknowledgement_fails_again(recordings, run, limits):
    text = LIMITS.replace('"the old kernel"', '"the old kernel"\nexpires = 2020-01-01')
    done = run("diff", recordings.reference, recordings.diverged, "--limits", limits(text))
    assert done.code == 1
    assert "expired on 2020-01-01" in done.out.replace("\n", " ")


def test_rules_hold_for_what_they_fit(recordings, run, limits):
    lax = '[[limit]]\nnode = "conv2"\nmin_sqnr = -100\n[[limit]]\nop = "Conv"\ntensor = "head*"\nmin_sqnr = -100\n'
    assert run("diff", recordings.reference, recordings.diverged, "--limits", limits(lax)).code == 0
    strict = '[[limit]]\ntensor = "conv1_out"\nmax_lsb = 0\n'
    done = run("diff", recordings.reference, recordings.within, "--limits", limits(strict), "--json")
    assert done.code == 1
    assert json.loads(done.out)["verdict"]["first_divergence"] == "conv1"


def test_kept_results_of_other_limits_are_not_taken(recordings, run, limits):
    for bound, code in ((-100, 0), (200, 1), (-100, 0)):
        name = limits(f'[[limit]]\nop = "*"\nmin_sqnr = {bound}\n')
        assert run("diff", recordings.reference, recordings.within, "--limits", name).code == code


def test_the_project_says_limits_and_options_beat_them(recordings, run, limits):
    limits("[tool.qdebug.default]\nmin_sqnr = 200\n", "pyproject.toml")
    assert run("diff", recordings.reference, recordings.within).code == 1
    assert run("diff", recordings.reference, recordings.within, "--min-sqnr", "0").code == 0
    assert run("diff", recordings.reference, recordings.within, "--limits", limits("")).code == 0


def test_entries_that_fit_nothing_are_told(recordings, run, limits):
    name = limits('[[limit]]\ntensor = "gone"\nmax_lsb = 1\n[[acknowledged]]\nnode = "old"\nreason = "r"\n')
    done = run("diff", recordings.reference, recordings.within, "--limits", name)
    assert "rule 1 (tensor = 'gone') matches no tensor" in done.err
    assert "the acknowledged node 'old' does not exist" in done.err


def test_a_wrong_file_is_told_with_its_line(recordings, run, limits):
    done = run("diff", recordings.reference, recordings.within, "--limits", limits("[default]\nmax_lbs = 1\n"))
    assert done.code == 2
    assert "line 2: default.max_lbs means nothing" in done.err
    assert "Did you mean max_lsb?" in done.err
    assert run("diff", recordings.reference, recordings.within, "--limits", "none.toml").code == 2


def test_suggested_limits_are_kept_by_the_runs_they_came_from(recordings, run, tmp_path):
    runs = recordings.within, recordings.diverged
    done = run("diff", recordings.reference, *runs, "--suggest-limits", "new.toml")
    assert done.code == 1
    assert "wrote new.toml" in done.err
    assert run("diff", recordings.reference, *runs, "--limits", "new.toml").code == 0
    assert run("diff", recordings.reference, *runs, "--suggest-limits", "new.toml").code == 2
    assert run("diff", recordings.reference, *runs, "--suggest-limits", "new.toml", "--force").code == 1


@pytest.mark.parametrize(
    ("rule", "code", "text"),
    [
        ("max_kl = 0.01\nmin_top5_overlap = 0.5", 0, "1 rule for logits in logits.toml"),
        ("max_kl = 0.0001", 1, "nats, the limit is at most 0.0001 nats"),
        ("min_top1_agreement = 1", 3, "limit min_top1_agreement of the output 'flat' was not judged"),
        ("max_logprob_rms = -1", 2, "must be at least 0"),
        ("min_top1_agreement = 1.5", 2, "must be a fraction from 0 to 1"),
    ],
)
def test_limits_of_logits(run, tmp_path, rule, code, text):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 4, 30)).astype(np.float32)
    for name, noise in (("ref", 0.0), ("new", 0.03)):
        with Recorder(tmp_path / f"{name}.h5", backend="lm") as rec:
            rec.put("head", values + noise * rng.normal(size=values.shape).astype(np.float32))
            rec.put("flat", np.zeros((2, 4, 30), np.float32))
            rec.outputs("head", "flat")
    output = "flat" if code == 3 else "head"
    (tmp_path / "logits.toml").write_text(f'[[logits]]\ntensor = "{output}"\n{rule}\n', encoding="utf-8")
    done = run("diff", "ref.h5", "new.h5", "--limits", "logits.toml")
    assert done.code == code
    assert text in " ".join((done.out + done.err).split())


def test_a_rule_for_logits_that_matches_nothing_is_named(run, recordings, tmp_path):
    (tmp_path / "l.toml").write_text('[[logits]]\ntensor = "nowhere"\n', encoding="utf-8")
    done = run("diff", recordings.reference, recordings.within, "--limits", tmp_path / "l.toml")
    assert "[[logits]] 1 (tensor = 'nowhere') matches no output" in done.err
