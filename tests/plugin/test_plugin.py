"""The plugin as a user meets it: a project whose tests pass and fail, run in one process and by several workers."""

import json
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from qdebug.recording.recorder import Recorder
from qdebug.running.save import save_recording
from qdebug.testing import random_recording

pytest_plugins = ["pytester"]

WITHOUT = [
    word for name in ("asyncio", "textual-snapshot", "syrupy", "hypothesispytest") for word in ("-p", f"no:{name}")
]
"""The plugins of our own tests: some keep state of the process that a second run in it would spoil."""

NET = """
import numpy as np
import pytest

def put(rec, offset=0.0):
    rec.put("x", np.ones((1, 4), np.float32))
    rec.put("fc1", np.arange(4, dtype=np.float32) + 1, node="fc1", op="Mystery", inputs=("x",))
    wrong = np.arange(4, dtype=np.float32) + np.float32(1 + offset)
    rec.put("fc2", wrong, node="fc2", op="Mystery", inputs=("fc1",))
    rec.put("fc3", np.arange(4, dtype=np.float32) + np.float32(2), node="fc3", op="Mystery", inputs=("fc2",))
    rec.outputs("fc3")

"""


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """Record the net of the projects once."""
    path = tmp_path_factory.mktemp("reference") / "ref.h5"
    known = {}
    exec(NET, known)  # noqa: S102  the text above
    with Recorder(path, backend="ref") as rec:
        known["put"](rec)
    return path


@pytest.fixture
def project(pytester, monkeypatch, reference):
    """Make a project: its tests, and a reference recording beside them. Runs pytest in it."""
    pytester.makeconftest("")
    # Two versions of a test within a second, equally long, would share their compiled form.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    shutil.copy(reference, pytester.path / "ref.h5")

    def project(tests, *arguments, ini="", workers=0):
        pytester.makeini(f"[pytest]\n{ini}\n")
        pytester.makepyfile(test_net=NET + tests)
        if workers:
            return pytester.runpytest_subprocess(*WITHOUT, "-n", str(workers), *arguments)
        return pytester.runpytest_inprocess(*WITHOUT, "-p", "no:xdist", *arguments)

    project.path = pytester.path
    return project


MARKED = """
@pytest.mark.qdebug(reference="ref.h5")
def test_good(qdebug_recorder):
    put(qdebug_recorder)

@pytest.mark.qdebug(reference="ref.h5")
def test_bad(qdebug_recorder):
    put(qdebug_recorder, offset=5.0)

@pytest.mark.qdebug(reference="ref.h5", min_sqnr=-100)
def test_lax(qdebug_recorder):
    put(qdebug_recorder, offset=5.0)
"""


def kept(project):
    return sorted(path.name for path in (project.path / "qdebug-recordings").glob("*.h5"))


def test_a_marked_test_is_compared_with_its_reference(project):
    done = project(MARKED)
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(
        [
            "DIVERGED: The backend diverges first at Mystery 'fc2'*",
            "*- qdebug -*",
            "*status *node *SQNR dB*",
            "*identical *fc1*",
            ">*diverged *fc2*",
            "*identical *fc3*",
            "open it: qdebug tui *ref.h5 *test_bad*.h5 --node fc2",
            "recording: *test_bad*.h5",
            "3 comparisons: 1 diverged, 1 identical, 1 within",
            "*test_net.py::test_bad: diverged at fc2",
        ]
    )
    assert len(kept(project)) == 1
    assert "test_bad" in kept(project)[0]
    assert (project.path / "qdebug-recordings" / ".gitignore").read_text().endswith("*\n")


def test_the_command_in_the_section_works(project):
    project(MARKED)
    reference, backend = project.path / "ref.h5", project.path / "qdebug-recordings" / kept(project)[0]
    done = subprocess.run(
        [sys.executable, "-m", "qdebug", "diff", reference, backend, "--node", "fc2"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "fc2" in done.stdout


@pytest.mark.parametrize(("keep", "count"), [("always", 3), ("failed", 1), ("never", 0)])
@pytest.mark.parametrize("where", ["option", "ini"])
def test_which_recordings_are_kept_can_be_chosen(keep, count, where, project):
    given = [f"--qdebug-keep={keep}"] if where == "option" else []
    project(MARKED, *given, ini="" if given else f"qdebug_keep = {keep}")
    assert len(kept(project)) == count


def test_several_workers_write_a_file_each_and_the_controller_gathers_them(project):
    tests = """
@pytest.mark.parametrize("offset", range(8))
@pytest.mark.qdebug(reference="ref.h5")
def test_many(qdebug_recorder, offset):
    put(qdebug_recorder, offset=float(offset % 2))
"""
    done = project(tests, "--qdebug-report=report.json", "--junitxml=junit.xml", workers=2)
    done.assert_outcomes(passed=4, failed=4)
    done.stdout.fnmatch_lines(["8 comparisons: 4 diverged, 4 identical"])
    report = json.loads((project.path / "report.json").read_text())
    assert (report["format"], report["version"]) == ("qdebug.pytest", 1)
    entries = report["comparisons"]
    assert [entry["test"] for entry in entries] == [f"test_net.py::test_many[{at}]" for at in range(8)]
    assert {entry["first_divergence"] for entry in entries} == {None, "fc2"}
    assert {entry["worker"] for entry in entries} <= {"gw0", "gw1"}
    assert len({entry["worker"] for entry in entries}) > 1
    assert len(kept(project)) == 4
    cases = ET.parse(project.path / "junit.xml").iter("testcase")  # noqa: S314  pytest wrote it
    found = {case.get("name"): {p.get("name"): p.get("value") for p in case.iter("property")} for case in cases}
    assert found["test_many[1]"]["qdebug_status"] == "diverged"
    assert found["test_many[1]"]["qdebug_first_divergence"] == "fc2"
    assert float(found["test_many[1]"]["qdebug_worst_sqnr_db"]) < 30
    assert found["test_many[0]"]["qdebug_compared"] == "4"


def test_the_next_run_replaces_the_recordings_of_a_test_and_leaves_those_of_others(project):
    project(MARKED, workers=1)
    (first,) = kept(project)
    other = project.path / "qdebug-recordings" / "other.gw0.h5"
    other.touch()
    project(MARKED)
    assert len(kept(project)) == 2
    assert other.name in kept(project)
    assert first not in kept(project)
    assert not list((project.path / "qdebug-recordings").glob("*cache*"))


def test_a_worker_that_dies_leaves_what_can_be_recovered_and_the_next_run_clears_it(project):
    tests = "import os\n\ndef test_x(qdebug_recorder):\n    put(qdebug_recorder)\n    os._exit(3) if DIE else None\n"
    done = project("DIE = True\n" + tests, workers=1)
    done.stdout.fnmatch_lines(["incomplete, because its process died: qdebug file recover *test_x*.gw0.h5"])
    (line,) = [line for line in done.outlines if line.startswith("incomplete, because")]
    command = [sys.executable, "-m", *shlex.split(line.partition(": ")[2])]
    recovered = subprocess.run(command, check=False, capture_output=True, text=True)
    assert recovered.returncode == 0, recovered.stderr
    assert len(kept(project)) == 1
    project("DIE = True\n" + tests, workers=1)
    project("DIE = False\n" + tests)
    assert [path.name for path in (project.path / "qdebug-recordings").iterdir()] == [".gitignore"]


def test_a_test_that_fails_otherwise_keeps_what_it_recorded(project):
    done = project("def test_crash(qdebug_recorder):\n    put(qdebug_recorder)\n    raise ValueError('boom')\n")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*ValueError: boom", "recording: *test_crash*.h5"])
    assert len(kept(project)) == 1


def test_a_test_that_records_nothing_leaves_nothing(project):
    project("def test_idle(qdebug_recorder):\n    pass\n").assert_outcomes(passed=1)
    assert kept(project) == []


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("@pytest.mark.qdebug(reference='ref.h5')\ndef test_x(qdebug_recorder):\n    pass\n", "*Nothing was recorded*"),
        ("@pytest.mark.qdebug(reference='ref.h5')\ndef test_x():\n    pass\n", "*records nothing*"),
        (
            "@pytest.mark.qdebug('ref.h5')\ndef test_x(qdebug_recorder):\n    put(qdebug_recorder)\n",
            "*only keyword arguments*",
        ),
        (
            "@pytest.mark.qdebug(max_lsb=1)\ndef test_x(qdebug_recorder):\n    put(qdebug_recorder)\n",
            "*does not name a reference*",
        ),
        ("@pytest.mark.qdebug(max_lbs=1)\ndef test_x(qdebug_recorder):\n    put(qdebug_recorder)\n", "*'max_lbs'*"),
        ("@pytest.mark.qdebug(reference='no.h5')\ndef test_x(qdebug_recorder):\n    put(qdebug_recorder)\n", "*no.h5*"),
    ],
)
def test_a_marker_that_checks_nothing_is_no_success(test, said, project):
    done = project(test)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([said])


@pytest.mark.parametrize("where", ["option", "ini"])
def test_reference_and_limits_can_be_said_once_for_all(where, project):
    (project.path / "limits.toml").write_text('[[limit]]\nnode = "fc2"\nmin_sqnr = -100\n')
    tests = "@pytest.mark.qdebug\ndef test_x(qdebug_recorder):\n    put(qdebug_recorder, offset=5.0)\n"
    options = {"reference": "ref.h5", "limits": "limits.toml"}
    if where == "option":
        project(tests, *(f"--qdebug-{name}={value}" for name, value in options.items())).assert_outcomes(passed=1)
    else:
        project(tests, ini="\n".join(f"qdebug_{n} = {v}" for n, v in options.items())).assert_outcomes(passed=1)
    project(tests, "--qdebug-reference=ref.h5").assert_outcomes(failed=1)


def test_the_limits_of_the_project_hold(project):
    (project.path / "pyproject.toml").write_text("[tool.qdebug.default]\nmin_sqnr = -100\n")
    project(MARKED).assert_outcomes(passed=3)


GOLDEN = """
from pathlib import Path

@pytest.mark.parametrize("name", ["plain", "../../up", "a b"])
def test_golden(qdebug_recorder, qdebug_regression, name):
    put(qdebug_recorder, offset=float(Path("offset").read_text()))
    qdebug_regression.check(qdebug_recorder)
"""


def test_golden_recordings_are_written_on_request_and_compared_from_then_on(project):
    offset = project.path / "offset"
    offset.write_text("0")
    done = project(GOLDEN)
    done.assert_outcomes(failed=3)
    done.stdout.fnmatch_lines(["*there is no golden recording *; write it: pytest --qdebug-regen"])
    done = project(GOLDEN, "--qdebug-regen")
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines(["3 comparisons: 3 golden recording written"])
    written = sorted(path.name for path in (project.path / "test_net").iterdir())
    assert len(written) == 3
    assert "test_golden[plain].h5" in written
    project(GOLDEN).assert_outcomes(passed=3)
    offset.write_text("3")
    done = project(GOLDEN)
    done.assert_outcomes(failed=3)
    done.stdout.fnmatch_lines(["*qdebug_regression.check(qdebug_recorder)", "*diverges first at Mystery 'fc2'*"])
    assert len(kept(project)) == 3
    assert not list(project.path.parent.glob("*.h5"))


def test_the_limits_of_a_marker_hold_for_golden_recordings_too(project):
    (project.path / "offset").write_text("0")
    lax = GOLDEN.replace("@pytest.mark.parametrize", "@pytest.mark.qdebug(min_sqnr=-100)\n@pytest.mark.parametrize")
    project(lax, "--qdebug-regen").assert_outcomes(passed=3)
    (project.path / "offset").write_text("3")
    project(lax).assert_outcomes(passed=3)


def test_anything_that_is_a_recording_can_be_checked_and_names_tell_checks_apart(project):
    save_recording(random_recording(np.random.default_rng(0)), project.path / "file.h5")
    tests = """
from qdebug.testing import random_recording

def test_three(qdebug_regression):
    qdebug_regression.check("file.h5", name="path")
    qdebug_regression.check(random_recording(np.random.default_rng(0), quantized=True), name="open", max_lsb=0)
    result = qdebug_regression.check(random_recording(np.random.default_rng(0)), name="third")
    assert result is None or result.status == "identical"

def test_twice(qdebug_regression):
    with pytest.raises(Exception, match="checked twice"):
        for _ in range(2):
            qdebug_regression.check("file.h5")

def test_unknown_limit(qdebug_regression):
    with pytest.raises(Exception, match="Unknown limit 'max_lbs'|None"):
        raise RuntimeError(str(qdebug_regression.check("file.h5", max_lbs=1)))
"""
    project(tests, "--qdebug-regen").assert_outcomes(passed=3)
    project(tests).assert_outcomes(passed=3)


def test_a_run_without_qdebug_says_nothing_and_leaves_nothing(project):
    done = project("def test_x():\n    assert True\n")
    done.assert_outcomes(passed=1)
    done.stdout.no_fnmatch_line("*qdebug -*")
    assert not (project.path / "qdebug-recordings").exists()


def test_loading_the_plugin_loads_nothing_heavy():
    program = (
        "import sys, pytest",
        "old = {*sys.modules}",
        "import qdebug.pytest_plugin",
        "print(*{*sys.modules} - old)",
    )
    done = subprocess.run([sys.executable, "-c", "; ".join(program)], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "qdebug" in loaded
    assert not loaded & {"numpy", "h5py", "rich", "textual", "ml_dtypes", "xxhash", "asyncio"}


def test_a_failure_about_something_else_loads_nothing_heavy(tmp_path):
    (tmp_path / "test_x.py").write_text("def test_x():\n    assert False\n")
    (tmp_path / "conftest.py").write_text(
        "import sys\n\n\ndef pytest_unconfigure():\n    print(*({'numpy', 'qdebug.testing'} & {*sys.modules}), 'end')\n"
    )
    lean = [f"-pno:{name}" for name in ("hypothesispytest", "textual-snapshot", "syrupy", "xdist", "cacheprovider")]
    command = [sys.executable, "-m", "pytest", "-q", *lean, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "1 failed" in done.stdout
    assert done.stdout.splitlines()[-1] == "end"


def test_unittest_classes_and_wrong_settings(project):
    done = project(MARKED, "--qdebug-keep=sometimes")
    assert done.ret != 0
    text = "\n".join((*done.outlines, *done.errlines))
    assert "expected failed, always, never" in text


def test_the_marker_and_the_options_explain_themselves(project):
    assert "PytestUnknownMarkWarning" not in str(project(MARKED).stdout)
    assert "@pytest.mark.qdebug(reference=None, " in str(project(MARKED, "--markers").stdout)
    shown = str(project(MARKED, "--help").stdout)
    assert "qdebug: numerics of neural networks:" in shown
    assert "--qdebug-regen" in shown
