"""Every sample runs from a clone, says what it should, and leaves nothing behind."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
DIGITS = SAMPLES / "digits"
_EXPRESSION = re.compile(r"\$\{\{\s*([\w.]+)\s*\}\}")


@pytest.fixture
def run(tmp_path):
    """Run a sample in an empty folder with a temporary folder of its own; give what it printed."""
    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir()
    scratch.mkdir()

    def go(name):
        environment = os.environ | {"TMPDIR": str(scratch), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}
        done = subprocess.run(
            [sys.executable, SAMPLES / name],
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


def answers(printed):
    """Return the exit code and the first words of the answer to each command that a sample shows."""
    parts = printed.split("\n$ qdebug ")[1:]
    return [(part.split()[0], part.split("\n")[1].split("  ")[0], part.split()[-1]) for part in parts]


def test_first_diff_finds_the_narrow_accumulator(run):
    printed = run("01_first_diff.py")
    assert "first divergence: fc2" in printed
    states = {line.split()[0]: line.split()[1] for line in printed.splitlines() if " SQNR " in line}
    assert [name for name, status in states.items() if status == "diverged"] == ["fc2"]
    assert "fc3_relu" in states  # far off too, and innocent


def test_an_npu_is_recorded_compared_and_explained(run):
    lines = run("02_own_npu.py").splitlines()
    assert lines[0].startswith("The backend diverges first at MatMul 'fc2'")
    assert lines[1] == "recording changed nothing: bit_equal"
    layers = [line.split(",")[0] for line in lines if line.startswith("fc")]
    assert layers == ["fc1: explained", "fc2: unexplained", "fc3: explained"]
    assert lines[3].startswith("  15-bit multiplier")
    assert "  likely: the sums wrap around in 16 bits (reproduces every element)" in lines


@pytest.mark.slow
def test_the_plugin_passes_a_good_device_and_names_the_node_of_a_bad_one(run):
    good, bad = run("03_pytest_device.py").split("--- device with a bug")
    assert "pytest exits with 0" in good
    assert "3 passed" in good
    assert "pytest exits with 1" in bad
    assert "\n>  diverged   edges" in bad
    assert "--node edges" in bad


def shell(script, folder, environment):
    """Run a step as GitHub does: bash, ended by the first command that fails."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def runner(tmp_path):
    """Make a folder like a checkout, with the tools of a runner: `gh` keeps what it is asked to comment."""
    pytest.importorskip("onnxruntime")
    tools, checkout = tmp_path / "tools", tmp_path / "checkout"
    for folder in (tools, checkout / "models"):
        folder.mkdir(parents=True)
    programs = {
        "qdebug": f'exec {sys.executable} -m qdebug "$@"',
        "pip": 'echo "$@" >> pip.txt',
        "gh": 'echo "$@" >> gh.txt; for file; do :; done; cp "$file" comment.md',
    }
    for name, body in programs.items():
        (tools / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tools / name).chmod(0o755)
    shutil.copy(DIGITS / "digits.onnx", checkout / "models" / "net.onnx")
    script = (
        f"import numpy as np; np.savez('models/x.npz', x=np.load({str(DIGITS / 'digits_test.npz')!r})['x'][:8, None])"
    )
    subprocess.run([sys.executable, "-c", script], cwd=checkout, check=True)
    environment = os.environ | {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": "summary.md",
        "GITHUB_OUTPUT": "output.txt",
    }
    return checkout, environment


def run_workflow(checkout, environment):
    """Run the `run:` steps of the workflow and of the action that it uses; return the exit code of the last step."""
    yaml = pytest.importorskip("yaml")
    workflow, action = (
        yaml.safe_load((SAMPLES / "04_ci" / name).read_text()) for name in ("workflow.yml", "action.yml")
    )
    values = {"github.token": "t", "github.event.number": "7"}
    code = None
    for step in workflow["jobs"]["compare"]["steps"]:
        if "run" in step:
            done = shell(step["run"], checkout, environment)
            assert done.returncode == 0, done.stderr
        if not step.get("uses", "").endswith("qdebug-diff"):
            continue
        given = {f"inputs.{name}": spec.get("default", "") for name, spec in action["inputs"].items()}
        given |= {f"inputs.{name}": value for name, value in step["with"].items()}
        for part in action["runs"]["steps"]:
            known = values | given
            variables = {
                name: _EXPRESSION.sub(lambda match, known=known: known[match[1]], text)
                for name, text in part["env"].items()
            }
            done = shell(part["run"], checkout, environment | variables)
            code = done.returncode
            if (checkout / "output.txt").exists():
                outputs = dict(line.split("=") for line in (checkout / "output.txt").read_text().splitlines())
                values |= {f"steps.diff.outputs.{name}": value for name, value in outputs.items()}
    return code


@pytest.mark.parametrize(
    ("net", "code", "words"),
    [
        ("broken", 1, "FAIL"),
        pytest.param("digits.qdq.per_channel.onnx", 0, "PASS", marks=pytest.mark.slow),
        pytest.param("none", 2, "could not run", marks=pytest.mark.slow),
    ],
)
def test_a_pull_request_gets_the_report_as_a_comment(net, code, words, runner):
    checkout, environment = runner
    target = checkout / "models" / "net.int8.onnx"
    if net == "broken":
        import numpy as np
        import onnx
        from onnx import numpy_helper

        model = onnx.load(DIGITS / "digits.qdq.per_channel.onnx")
        weight = next(each for each in model.graph.initializer if each.name == "w7.weight_quantized")
        weight.CopyFrom(numpy_helper.from_array(np.roll(numpy_helper.to_array(weight), 1, axis=0), weight.name))
        onnx.save(model, target)
    elif net != "none":
        shutil.copy(DIGITS / net, target)
    assert run_workflow(checkout, environment) == code
    comment = (checkout / "comment.md").read_text()
    assert words in comment.splitlines()[0]
    assert comment in (checkout / "summary.md").read_text()
    assert (checkout / "gh.txt").read_text().split()[:3] == ["pr", "comment", "7"]
    assert (checkout / "pip.txt").read_text().split() == ["install", "qdebug[onnx]"]


@pytest.mark.slow  # the tutorial does the same in the gate
def test_a_repaired_model_reaches_the_goal(run):
    pytest.importorskip("onnxruntime")
    assert answers(run("05_repair.py")) == [
        ("repair", "REPAIRED", "0"),
        ("diff", "PASS", "0"),
        ("repair", "REACHED", "0"),
    ]


def test_scales_are_profiled_chosen_and_tried(run):
    pytest.importorskip("onnxruntime")
    printed = run("06_scales.py")
    assert [code for *_, code in answers(printed)] == ["0"] * 8
    assert "trial" in printed
    assert "nan" not in printed.lower()


def test_the_notebook_runs_from_top_to_bottom(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = json.loads((SAMPLES / "07_notebook.ipynb").read_text(encoding="utf-8"))
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    names = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "notebook", "exec"), names)  # noqa: S102  as a notebook does
    assert names["result"]._repr_html_().startswith("<")
    assert capsys.readouterr().out.splitlines()[-1] == "[16 17 18 19 20 21 22 23]"


def test_raw_dumps_of_an_accelerator_are_compared(run):
    pytest.importorskip("onnxruntime")
    printed = run("08_import.py")
    assert "FAIL  diverged: kernel at QLinearConv pwconv" in printed
    assert "only in the last 2" in printed


@pytest.mark.slow  # tests/cli/test_bisect.py does the same in the gate
def test_the_version_that_changed_a_rounding_is_found(run):
    printed = run("09_bisect.py")
    assert "CHANGED  1.1 -> 1.2: the first version that differs is 1.2" in printed
    assert "first node  Round round" in printed


def test_a_backend_of_another_package_is_found_run_and_compared(run):
    printed = run("10_own_backend.py")
    assert printed.count("fidelity bit_equal") == 2
    assert "PASS  within" in printed


def test_bleu_falls_by_one_wrong_token(run):
    # precisions 9/10, 7/9, 5/8 and 3/7: 0.1875 ** (1 / 4)
    assert run("11_own_metric.py").splitlines() == ["the same: BLEU 1.000", "one wrong token: BLEU 0.658"]


def test_rewrites_that_change_numbers_are_found(run):
    pytest.importorskip("onnx")
    found = [part.split("\n")[1].split()[0] for part in run("12_lint.py").split("$ qdebug ")[1:]]
    assert found == ["FIXED", "FOUND"]


def test_every_sample_has_a_test_and_a_line_in_the_list():
    samples = {path.name for path in SAMPLES.iterdir() if path.name[:2].isdigit()}
    listed = re.findall(
        r"^\| `(?:python )?samples/([\w.]+)", (SAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    tests = Path(__file__).read_text(encoding="utf-8") + (ROOT / "tests/contracts/test_pictures.py").read_text(
        encoding="utf-8"
    )
    assert samples == set(listed)
    assert [name[:2] for name in listed] == [f"{number:02}" for number in range(len(listed))]
    assert not [name for name in samples if f'"{name}"' not in tests]
