"""What goes wrong in use: each mistake fails with a sentence about it, and the end of the run counts it."""

import json
import sys
from types import SimpleNamespace

import jsonschema
import pytest

from qdebug.present.reports.schema import load_schema
from qdebug.pytest_plugin.comparing import _worst_sqnr

pytest_plugins = ["pytester"]

WITHOUT = [
    word
    for name in ("asyncio", "textual-snapshot", "syrupy", "hypothesispytest", "xdist")
    for word in ("-p", f"no:{name}")
]
"""Plugins that keep state of the process, which a second run in it would spoil."""

PUT = """
import numpy as np
import pytest
import qdebug

def put(rec, offset=0.0, size=4):
    rec.put("x", np.ones((1, 4), np.float32))
    rec.put("fc1", np.arange(size, dtype=np.float32) + np.float32(1 + offset), node="fc1", op="Mystery", inputs=("x",))
    rec.outputs("fc1")

"""


@pytest.fixture
def project(pytester, monkeypatch):
    """Make a project with a reference recording, and run pytest in it."""
    pytester.makeconftest("")
    # Two versions of a test within a second, equally long, would share their compiled form.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    known = {}
    exec(PUT, known)  # noqa: S102  the text above
    with known["qdebug"].Recorder(pytester.path / "ref.h5", backend="ref") as rec:
        known["put"](rec)

    def project(tests, *arguments):
        pytester.makepyfile(test_net=PUT + tests)
        return pytester.runpytest_inprocess(*WITHOUT, *arguments)

    project.path = pytester.path
    return project


@pytest.mark.parametrize(
    ("arguments", "body", "said"),
    [
        (
            "reference='ref.h5', max_lsb='two'",
            "put(qdebug_recorder)",
            "The limit max_lsb must be a number, but is 'two'*",
        ),
        (
            "reference='ref.h5', min_sqnr=float('nan')",
            "put(qdebug_recorder, 9)",
            "The limit min_sqnr must be a number, but is nan*",
        ),
        ("reference='ref.h5', max_lsb=-1", "put(qdebug_recorder)", "The limit max_lsb must be at least 0, but is -1*"),
        ("reference=3", "put(qdebug_recorder)", "The marker qdebug has reference=3, which is not a path.*"),
        (
            "reference='ref.h5', limits=3",
            "put(qdebug_recorder)",
            "The marker qdebug has limits=3, which is not a path.*",
        ),
        ("reference='ref.h5', limits='no.toml'", "put(qdebug_recorder)", "There is no limits file *no.toml*"),
        ("reference='missing.h5'", "put(qdebug_recorder)", "There is no file *missing.h5*"),
        ("reference='test_net.py'", "put(qdebug_recorder)", "*test_net.py' is not a qdebug recording.*"),
        ("reference='ref.h5'", "put(qdebug_recorder, size=5)", "None of the 1 shared tensors can be compared*"),
        ("reference='ref.h5'", "put(qdebug_recorder); qdebug_recorder.discard()", "There is no file *"),
    ],
)
def test_a_mistake_is_said_in_a_sentence_without_a_way_through_our_code(arguments, body, said, project):
    done = project(f"@pytest.mark.qdebug({arguments})\ndef test_x(qdebug_recorder):\n    {body}\n")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([said])
    done.stdout.no_fnmatch_line("*Error*")
    done.stdout.no_fnmatch_line("*qdebug/*.py*")


def test_a_comparison_that_cannot_be_made_is_counted(project):
    tests = """
@pytest.mark.qdebug(reference="missing.h5")
def test_missing(qdebug_recorder):
    put(qdebug_recorder)

def test_no_golden(qdebug_recorder, qdebug_regression):
    put(qdebug_recorder)
    qdebug_regression.check(qdebug_recorder)

@pytest.mark.qdebug(reference="ref.h5")
def test_good(qdebug_recorder):
    put(qdebug_recorder)
"""
    done = project(tests, "--qdebug-report=report.json")
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(["3 comparisons: 1 identical, 2 not compared", "*::test_missing: not compared"])
    report = json.loads((project.path / "report.json").read_text())
    jsonschema.validate(report, load_schema("pytest"))
    found = {entry["test"].partition("::")[2]: entry for entry in report["comparisons"]}
    assert found["test_missing"]["failed"]
    assert "missing.h5" in found["test_missing"]["sentence"]
    assert "--qdebug-regen" in found["test_no_golden"]["sentence"]
    assert found["test_good"]["exit_code"] == 0


def test_the_report_of_every_outcome_fits_its_schema(project):
    tests = """
@pytest.mark.parametrize("offset", [0.0, 1e-6, 9.0, float("nan")])
@pytest.mark.qdebug(reference="ref.h5")
def test_x(qdebug_recorder, offset):
    put(qdebug_recorder, offset)

def test_golden(qdebug_recorder, qdebug_regression):
    put(qdebug_recorder)
    qdebug_regression.check(qdebug_recorder)
"""
    project(tests, "--qdebug-regen", "--qdebug-report=report.json")
    report = json.loads((project.path / "report.json").read_text())
    jsonschema.validate(report, load_schema("pytest"))
    outcomes = {entry["outcome"] for entry in report["comparisons"]}
    assert outcomes == {"identical", "within", "diverged", "nonfinite", "golden recording written"}
    report["comparisons"][0]["outcome"] = "splendid"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, load_schema("pytest"))


def test_methods_of_one_name_in_several_classes_have_golden_recordings_of_their_own(project):
    tests = """
class TestOne:
    def test_same(self, qdebug_recorder, qdebug_regression):
        put(qdebug_recorder)
        qdebug_regression.check(qdebug_recorder)

class TestTwo:
    class TestInner:
        def test_same(self, qdebug_recorder, qdebug_regression):
            put(qdebug_recorder, 5.0)
            qdebug_regression.check(qdebug_recorder)

def test_same(qdebug_recorder, qdebug_regression):
    put(qdebug_recorder, 9.0)
    qdebug_regression.check(qdebug_recorder)
"""
    project(tests, "--qdebug-regen").assert_outcomes(passed=3)
    written = sorted(path.name for path in (project.path / "test_net").iterdir())
    assert written == ["TestOne.test_same.h5", "TestTwo.TestInner.test_same.h5", "test_same.h5"]
    project(tests).assert_outcomes(passed=3)


REGRESSION = """
def test_x(qdebug_recorder, qdebug_regression):
    put(qdebug_recorder, {offset})
    qdebug_regression.check({given})
"""


def test_a_failed_check_shows_the_line_of_the_test_and_none_of_ours(project):
    project(REGRESSION.format(offset=0.0, given="qdebug_recorder"), "--qdebug-regen").assert_outcomes(passed=1)
    done = project(REGRESSION.format(offset=9.0, given="qdebug_recorder"))
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([">*qdebug_regression.check(qdebug_recorder)", "E *DIVERGED: *'fc1'*"])
    done.stdout.no_fnmatch_line("*ledger = *")


@pytest.mark.parametrize("regen", [[], ["--qdebug-regen"]])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("np.zeros(3)", "*A ndarray is not a recording.*assert_close*"),
        ("None", "*A NoneType is not a recording.*"),
        ("qdebug_recorder, max_lbs=1", "*Unknown limit 'max_lbs'*"),
        ("qdebug_recorder, max_lsb='1'", "*The limit max_lsb must be a number, but is '1'*"),
    ],
)
def test_a_check_of_nothing_fails_whether_written_or_compared(given, said, regen, project):
    done = project(REGRESSION.format(offset=0.0, given=given), *regen)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([f"E{said}"])
    assert not (project.path / "test_net").exists()


def test_a_recording_that_is_not_there_cannot_become_golden(project):
    done = project(REGRESSION.format(offset=0.0, given="'none.h5'"), "--qdebug-regen")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["E*NotARecordingError: There is no file 'none.h5'.*"])
    assert not list((project.path / "test_net").glob("*"))


def test_a_golden_recording_of_another_network_says_how_to_write_it_anew(project):
    project(REGRESSION.format(offset=0.0, given="qdebug_recorder"), "--qdebug-regen").assert_outcomes(passed=1)
    other = 'def test_x(qdebug_recorder, qdebug_regression):\n    qdebug_recorder.put("other", np.eye(7))\n'
    done = project(other + "    qdebug_regression.check(qdebug_recorder)\n")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["E*AlignmentError: *write the golden recording again: pytest --qdebug-regen."])


def test_a_file_that_will_not_be_there_is_not_named(project):
    done = project("def test_x(qdebug_recorder):\n    raise ValueError\n")
    done.assert_outcomes(failed=1)
    done.stdout.no_fnmatch_line("recording: *")
    assert not list(project.path.glob("qdebug-recordings/*.h5"))


def test_a_folder_that_cannot_be_made_is_told(project):
    (project.path / "taken").touch()
    done = project("def test_x(qdebug_recorder):\n    put(qdebug_recorder)\n", "--qdebug-dir=taken")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(
        ["E*UsageError: The folder *taken' for recordings of tests cannot be used: *--qdebug-dir*"]
    )


def test_a_golden_folder_that_cannot_be_made_is_told(project):
    (project.path / "test_net").touch()
    done = project(REGRESSION.format(offset=0.0, given="qdebug_recorder"), "--qdebug-regen")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["E*RecordingError: The folder *test_net' of golden recordings cannot be created: *"])


@pytest.mark.parametrize("where", [".", "taken/report.json"])
def test_a_report_that_cannot_be_written_ends_no_summary_and_is_no_success(where, project):
    (project.path / "taken").touch()
    tests = "@pytest.mark.qdebug(reference='ref.h5')\ndef test_x(qdebug_recorder):\n    put(qdebug_recorder)\n"
    done = project(tests, f"--qdebug-report={where}")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stdout.fnmatch_lines(["1 comparison: 1 identical", "the report * cannot be written: *", "*1 passed*"])


def test_a_worst_sqnr_that_is_nan_is_not_hidden_behind_numbers():
    nodes = [SimpleNamespace(metrics=SimpleNamespace(sqnr_db=value)) for value in (30.0, float("nan"), 10.0, None)]
    assert str(_worst_sqnr(SimpleNamespace(nodes=nodes))) == "nan"
    assert _worst_sqnr(SimpleNamespace(nodes=[nodes[0], nodes[2], nodes[3], SimpleNamespace(metrics=None)])) == 10.0
    assert _worst_sqnr(SimpleNamespace(nodes=[])) is None
