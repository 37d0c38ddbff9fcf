"""qdebug export repro: a pytest file that fails as long as the node is wrong."""

import os
import subprocess
import sys

import numpy as np
import pytest

from qdebug.cli.main import main
from qdebug.recording.recorder import Recorder
from qdebug.running.demo import PLANTED, run_demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return run_demo(tmp_path_factory.mktemp("demo"))


def export(demo, target, *more):
    return main(["export", "repro", str(demo.reference), str(demo.backend), "-o", str(target), *more])


def pytest_run(path):
    """Run the file alone in a pytest without plugins, as it is to run anywhere."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path.name],
        cwd=path.parent,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_planted_bug_becomes_a_failing_test(demo, tmp_path, capsys):
    target = tmp_path / "test_tail.py"
    assert export(demo, target, "--node", PLANTED) == 0
    said = capsys.readouterr().err
    assert "next: pytest" in said
    text = target.read_text()
    assert f"Node '{PLANTED}' (QLinearConv)" in text
    assert "Against 'relu4'" in text or "of the reference run" in text
    run = pytest_run(target)
    assert run.returncode == 1, run.stdout
    assert "the recording:" in run.stdout
    assert "1 failed, 2 passed" in run.stdout  # the reference, and a runtime that is right up to ties


def test_a_right_node_becomes_a_test_that_passes(demo, tmp_path, capsys):
    target = tmp_path / "test_conv1.py"
    assert export(demo, target, "--node", "conv1_quant", "--sample", "3", "--whole") == 0
    assert "the test passes" in capsys.readouterr().err
    assert "3 passed" in pytest_run(target).stdout


@pytest.mark.parametrize("planted", [False, True])
def test_a_float_node_becomes_a_test_too(tmp_path, capsys, planted):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4, 32)).astype(np.float32), rng.normal(size=(32, 8)).astype(np.float32)
    for name in ("ref", "dev"):
        y = x[:, ::-1] @ w[::-1] if name == "dev" else x @ w
        y[:, -1] += planted and name == "dev"
        with Recorder(tmp_path / f"{name}.h5", backend=name) as rec:
            rec.put("x", x)
            rec.constant("w", w)
            rec.put("y", y, node="fc", op="MatMul", inputs=("x", "w"))
            rec.outputs("y")
    target = tmp_path / "test_fc.py"
    files = [str(tmp_path / "ref.h5"), str(tmp_path / "dev.h5")]
    assert main(["export", "repro", *files, "--node", "fc", "-o", str(target)]) == 0
    assert ("the test passes" in capsys.readouterr().err) is not planted
    assert "The tolerance is a norm of" in target.read_text()
    run = pytest_run(target)
    assert run.returncode == int(planted), run.stdout
    assert ("times what is allowed" in run.stdout.replace("\n", " ")) is planted


def test_a_file_is_not_overwritten_unasked(demo, tmp_path, capsys):
    target = tmp_path / "test_it.py"
    target.write_text("mine")
    assert export(demo, target, "--node", PLANTED) == 2
    assert target.read_text() == "mine"
    assert export(demo, target, "--node", PLANTED, "--force") == 0
    assert target.read_text() != "mine"
    assert (
        main(["export", "repro", str(demo.reference), str(demo.backend), "--node", "n", "-o", str(demo.backend)]) == 2
    )
    assert "is also an input of this command" in capsys.readouterr().err


def test_an_unknown_node_or_form_is_said(demo, tmp_path, capsys):
    assert export(demo, tmp_path / "t.py", "--node", "nobody") == 2
    assert "No node of the backend is called 'nobody'" in capsys.readouterr().err
    assert main(["export"]) == 2
    assert "repro" in capsys.readouterr().err


def test_help_teaches(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["export", "repro", "--help"])
    out = capsys.readouterr().out
    assert "bug report and as a test of the fix" in out
    assert "qdebug export repro ref.h5 int8.h5 --node conv1 -o test_conv1.py" in out


def test_a_folder_for_model_explorer(demo, tmp_path, capsys):
    words = ["export", "model-explorer", str(demo.reference), str(demo.backend), "-o", str(tmp_path / "me")]
    assert main(words) == 0
    assert f"open them: python {tmp_path / 'me' / 'open.py'}" in capsys.readouterr().err
    written = {path.name for path in (tmp_path / "me").iterdir()}
    assert {
        "reference.json",
        "backend.json",
        "sync.json",
        "open.py",
        "overlay-01-own_error_over_its_limit.json",
    } <= written
    assert main(words) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0
    (tmp_path / "file").touch()
    assert main([*words[:-1], str(tmp_path / "file")]) == 2
