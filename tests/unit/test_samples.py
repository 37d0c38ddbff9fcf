"""Every sample runs from a clone, says what it should, and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"


@pytest.fixture
def run(tmp_path):
    """Run a sample in an empty folder with a temporary folder of its own; give what it printed."""
    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir()
    scratch.mkdir()

    def go(name):
        environment = os.environ | {"TMPDIR": str(scratch), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash" if name.endswith(".sh") else sys.executable, SAMPLES / name],
            cwd=here,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert "Warning" not in done.stderr
        assert list(here.iterdir()) == []
        assert {path.name for path in scratch.iterdir()} <= {".ses"}  # ONNX Runtime leaves that when it is imported
        return done.stdout + done.stderr

    return go


def test_first_diff_finds_the_narrow_accumulator(run):
    printed = run("first_diff.py")
    assert "first divergence: fc2" in printed
    states = {line.split()[0]: line.split()[1] for line in printed.splitlines() if " SQNR " in line}
    assert [name for name, status in states.items() if status == "diverged"] == ["fc2"]
    assert "fc3_relu" in states  # far off too, and innocent


def test_bleu_falls_by_one_wrong_token(run):
    # precisions 9/10, 7/9, 5/8 and 3/7: 0.1875 ** (1 / 4)
    assert run("bleu.py").splitlines() == ["the same: BLEU 1.000", "one wrong token: BLEU 0.658"]


def test_a_small_chip_is_explained_and_its_bug_is_found(run):
    lines = run("explain_nodes.py").splitlines()
    assert [line.split(",")[0] for line in lines if not line.startswith(" ")] == [
        "fc1: explained",
        "fc2: unexplained",
        "fc3: explained",
    ]
    assert lines[1].startswith("  15-bit multiplier")
    assert "  likely: the sums wrap around in 16 bits (reproduces every element)" in lines


def test_the_first_questions_have_one_command_each(run):
    pytest.importorskip("onnxruntime")
    answers = [part.split("\n") for part in run("first_questions.py").strip().split("\n\n") if "$ qdebug " in part]
    assert [lines[1].split()[2:4] for lines in answers][1:] == [
        ["lint", "chain.onnx"],
        ["scales", "profile"],
        ["scales", "choose"],
        ["scales", "choose"],
        ["lint", "bias.onnx"],
        ["repair", "digits/digits.onnx"],
    ]
    assert [lines[2].split()[0] for lines in answers] == [
        *("PASS", "FIXED", "profile", "SCALES", "SCALES", "FOUND", "REACHED"),
    ]
    assert "nan" not in "".join("".join(lines[2:]) for lines in answers[2:5]).lower()


def test_harness_passes(run):
    assert "Ran 2 tests" in run("harness.py")


def test_assertions_hold_and_fail_as_they_should(run):
    printed = run("assertions.py")
    holds = [line.split(":")[0] for line in printed.splitlines() if line.endswith(": holds")]
    assert holds == ["a table of 256 entries", "an 8-bit net against its float form", "its arithmetic"]
    assert "2.970 LSB" in printed
    assert "\n>  diverged  fc2" in printed


@pytest.mark.slow
def test_the_plugin_passes_a_good_device_and_names_the_node_of_a_bad_one(run):
    good, bad = run("pytest_device.py").split("--- device with a bug")
    assert "pytest exits with 0" in good
    assert "1 comparison: 1 within" in good
    assert "pytest exits with 1" in bad
    assert "\n>  diverged   edges" in bad
    assert "--node edges" in bad


@pytest.mark.slow
def test_a_harness_in_shell_branches_on_exit_codes(run):
    printed = run("shell_harness.sh")
    assert "a node diverges: FAIL  diverged: kernel at QLinearConv pwconv: 1123 of 3840 codes are wrong" in printed
    assert "report.xml: 13 cases" in printed
    assert "pwconv_quant acknowledged: exit code 0" in printed


def test_onnxruntime_int8_agrees_on_the_digits(run):
    pytest.importorskip("onnxruntime")
    printed = run("onnxruntime_int8.py")
    assert "bit_equal" in printed


def test_a_backend_of_another_package_is_found_run_and_compared(run):
    printed = run("own_backend.py")
    assert printed.count("fidelity bit_equal") == 2
    assert "PASS  within" in printed


@pytest.mark.slow  # tests/cli/test_bisect.py does the same in the gate
def test_the_version_that_changed_a_rounding_is_found(run):
    printed = run("bisect_versions.py")
    assert "CHANGED  1.1 -> 1.2: the first version that differs is 1.2" in printed
    assert "first node  Round round" in printed


def test_every_sample_has_a_test_and_a_line_in_the_list():
    scripts = {path.name for ending in ("py", "sh") for path in SAMPLES.glob(f"*.{ending}")}
    listed = (SAMPLES / "README.md").read_text(encoding="utf-8")
    tests = Path(__file__).read_text(encoding="utf-8")
    assert scripts
    assert not {name for name in scripts if f"samples/{name}" not in listed or f'run("{name}")' not in tests}
