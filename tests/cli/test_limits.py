"""Limits on the command line: from options, from a file, from the project, and suggested."""

import json

import pytest

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
