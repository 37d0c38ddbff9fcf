"""qdebug bisect over versions of a tiny runtime, installed from wheels built on the spot, without a network."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import toy_wheels

import qdebug
from qdebug.bisect import environments
from qdebug.cli.main import main
from qdebug.present.reports.schema import load_schema


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """A folder of wheels, and one with the installed version of the runtime."""
    folder = tmp_path_factory.mktemp("index")
    (folder / "wheels").mkdir()
    toy_wheels.build(folder / "wheels")
    toy_wheels.unpack(folder / "installed", "1.0")
    return folder


@pytest.fixture
def unpacked(monkeypatch):
    """Unpack the wheels without pip, which tests/unit/bisect/test_environments.py installs with."""
    install = environments.EnvironmentCache._install

    def unpack(self, scratch, package, version):
        if version == "1.6":  # pip says why it cannot
            install(self, scratch, package, version)
        toy_wheels.unpack(next(scratch.glob("lib/python*/site-packages")), version)

    monkeypatch.setattr(environments.EnvironmentCache, "_install", unpack)
    monkeypatch.setattr(environments, "_CHECK", "")


@pytest.fixture
def bisect(index, unpacked, tmp_path, monkeypatch, capsys):
    """Run the command in an empty folder; give its exit code, its JSON and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(index / "installed"))
    for name, value in settings(index).items():
        monkeypatch.setenv(name, value)
    write_model(tmp_path)

    def go(*words):
        shared = ["--inputs", "x.npz", "--backend", "toy", "--environments", str(index / "environments")]
        code = main(["bisect", "net.npz", *shared, *words, "--json"])
        printed = capsys.readouterr()
        report = json.loads(printed.out) if printed.out else None
        if report is not None:
            jsonschema.validate(report, load_schema("bisect"))
        return code, report, printed.err

    return go


def settings(index):
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index / "wheels"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def write_model(folder):
    np.savez(folder / "net.npz", w=np.eye(8, dtype=np.float32))
    np.savez(folder / "x.npz", x=np.array([[0.5, 1.5, 2.5, 0.7, -0.5, 3.2, 0.9, 1.0]], np.float32))


def pairs(report):
    return [(change["before"], change["after"]) for change in report["changes"]]


@pytest.mark.slow  # several environments
def test_pip_lists_the_versions_and_a_third_result_splits_them(bisect):
    code, report, _ = bisect("--good", "1.0", "--bad", "1.4")
    assert (code, pairs(report)) == (1, [("1.1", "1.2"), ("1.3", "1.4")])


def test_the_first_and_the_fixed_version_are_found_beside_versions_that_cannot_be_run(bisect):
    versions = ("--fixed", "1.7", "--versions", "1.1,1.2,1.6,1.7")
    code, report, err = bisect("--good", "1.1", "--bad", "1.2", *versions)
    assert code == 1
    assert pairs(report) == [("1.1", "1.2"), ("1.2", "1.7")]
    assert report["changes"][1]["result_after"] == 0
    assert report["changes"][1]["skipped"] == ["1.6"]
    (skipped,) = [candidate for candidate in report["candidates"] if candidate["status"] == "unavailable"]
    assert "no-such-package-of-qdebug" in skipped["reason"]
    first = report["changes"][0]
    assert (first["node"]["node"], first["node"]["tensor"], first["node"]["equal"]) == ("round", "r", 1)
    assert (first["node"]["different"], first["node"]["max_abs"]) == (3, 1.0)  # 0.5, 2.5, and -0.5
    assert first["node"]["has_equal_inputs"]
    assert [qdebug.open_recording(path).info.versions["toy-rounds"] for path in first["recordings"]] == ["1.1", "1.2"]
    assert "next: qdebug diff qdebug-runs/net-toy-1.1" in err
    versions = ("--fixed", "1.7", "--versions", "1.1,1.1.1,1.2,1.6,1.7", "--timeout", "1")
    again = bisect("--good", "1.1", "--bad", "1.2", *versions)[1]  # 1.1.1 never ends
    assert (again["made"], again["reused"]) == (0, report["made"])
    assert again["changes"] == [{**first, "skipped": ["1.1.1"]}, report["changes"][1]]
    assert again["candidates"][1]["status"] == "unavailable"
    assert "within 1 s, the limit of --timeout" in again["candidates"][1]["reason"]
    assert not list(Path("qdebug-runs").glob("*1.1.1*"))


@pytest.mark.slow  # several environments
@pytest.mark.parametrize(("version", "failure"), [("1.5", "crashes with SIGABRT"), ("1.9", "The model is too new.")])
def test_a_version_that_fails_is_the_first_that_differs(bisect, version, failure):
    code, report, _ = bisect("--good", "1.1", "--bad", version, "--versions", f"1.1,{version}")
    assert code == 1
    (change,) = report["changes"]
    assert failure in change["failures"][0]
    assert (change["node"], len(change["recordings"])) == (None, 1)


@pytest.mark.slow  # several environments
def test_ends_that_agree_are_no_difference_unless_every_version_is_tried(bisect):
    code, report, _ = bisect("--good", "1.1", "--bad", "1.7", "--versions", "1.1,1.2,1.7")
    assert (code, report["status"], report["changes"]) == (0, "no_difference", [])
    code, report, _ = bisect("--good", "1.1", "--bad", "1.7", "--versions", "1.1,1.2,1.7", "--every")
    assert (code, pairs(report)) == (1, [("1.1", "1.2"), ("1.2", "1.7")])


@pytest.mark.slow  # several environments
def test_a_version_that_varies_is_told_from_one_that_differs(bisect):
    code, report, _ = bisect("--good", "1.7", "--bad", "1.8")
    assert code == 1
    assert report["candidates"][-1]["fidelity"] == "nondeterministic"
    assert any(remark.startswith("1.8: ") for remark in report["changes"][0]["remarks"])


@pytest.mark.slow  # several environments
def test_a_metric_of_ones_own_decides_what_is_equal(bisect, tmp_path):
    (tmp_path / "score.py").write_text("def largest(outputs, good, labels):\n    return outputs['y'].max()\n")
    ends = ("--good", "1.1", "--bad", "1.2", "--versions", "1.1,1.2")
    code, report, _ = bisect(*ends, "--metric", "score.py:largest")
    assert (code, report["candidates"][0]["value"]) == (0, 3.0)
    code, report, _ = bisect(*ends, "--metric", "arithmetic")
    assert (code, report["changes"][0]["node"]["node"]) == (1, "round")


@pytest.mark.slow  # four processes
def test_the_options_of_the_installed_version_are_compared_with_those_given(bisect):
    code, report, _ = bisect("--over", "options")
    assert (code, pairs(report)) == (1, [("as given", "level=high")])
    assert report["changes"][0]["node"]["node"] == "dense"


@pytest.mark.slow  # several environments
def test_wrong_ends_are_usage_errors(bisect):
    assert bisect("--good", "1.0", "--bad", "1.6", "--versions", "1.0,1.6")[0] == 2
    code, _, err = bisect("--good", "1.0")
    assert code == 2
    assert "--good V --bad V" in err
    code, _, err = bisect("--over", "cpu")
    assert code == 2
    assert "qdebug diff A.h5 B.h5" in err


@pytest.mark.slow  # several environments
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_ends_the_child_and_keeps_what_is_finished(index, tmp_path, number, status):
    write_model(tmp_path)
    root = Path(qdebug.__file__).parents[1]
    environment = os.environ | settings(index) | {"PYTHONPATH": f"{root}{os.pathsep}{index / 'installed'}"}
    command = [sys.executable, "-m", "qdebug", "bisect", "net.npz", "--inputs", "x.npz", "--backend", "toy"]
    command += ["--good", "1.0", "--bad", "1.1", "--versions", "1.0,1.1"]
    command += ["--environments", str(tmp_path / "environments"), "--json"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("qdebug-runs/*.made.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert ("Run the same command again" in err) == (status == 130)
    assert not list(tmp_path.glob("environments/.making-*"))
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reused"] == 1
