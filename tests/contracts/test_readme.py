"""The README: its first screen works, its commands exist, and `.ci/run` runs the very same lines."""

import os
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from shown_commands import qdebug_commands, refusal, shell_lines

from qdebug.cli.main import main
from qdebug.cli.topics import GROUPS

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import peers

FIRST_SCREEN = 30
MOST_BYTES = 8192
MAIN_JOB = "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/qdebug demo"
TESTS = "python3 -m venv .venv && .venv/bin/pip install '.[dev]' && .venv/bin/python -m pytest -n auto"


@pytest.fixture(scope="module")
def readme(texts):
    return texts["README.md"]


@pytest.mark.parametrize("command", [MAIN_JOB, TESTS])
def test_the_first_screen_has_both_commands(command, readme):
    screen = "\n".join(readme.splitlines()[:FIRST_SCREEN])
    assert command in shell_lines(screen)


@pytest.mark.parametrize(("ending", "command"), [("qdebug demo", MAIN_JOB), ("-m pytest -n auto", TESTS)])
def test_ci_runs_the_same_lines(ending, command, readme, texts):
    script = texts[".ci/run"]
    assert re.search(rf"grep -m1 -- '{ending}\$' README\.md", script)
    assert next(line for line in readme.splitlines() if line.endswith(ending)) == command


def test_ci_takes_nothing_from_outside(texts, root):
    script = texts[".ci/run"]
    assert "set -euo pipefail" in script
    assert "env -i" in script
    assert ".." not in script.replace('/.."', "", 1)
    assert os.access(root / ".ci" / "run", os.X_OK)
    for tool in ("ruff check", "ruff format --check", "mypy", "lint-imports"):
        assert f".venv/bin/{tool}" in script


def test_every_command_shown_is_understood(readme):
    commands = qdebug_commands(readme)
    assert len(commands) >= 5
    assert not {shlex.join(words): why for words in commands if (why := refusal(words))}


def test_a_command_that_does_not_exist_is_refused():
    assert "invalid choice" in refusal(["dif", "a.h5", "b.h5"])


def test_every_local_link_and_file_exists(readme, root):
    targets = [t for t in re.findall(r"\]\(([^)#]+)[^)]*\)", readme) if "://" not in t]
    targets += re.findall(r"`((?:qdebug|samples|tests|\.ci)/[\w./-]*)`", readme)
    assert targets
    assert not [target for target in targets if not (root / target).exists()]


def test_it_is_short(readme):
    assert len(readme.encode()) <= MOST_BYTES


def test_every_page_of_the_guide_is_linked(readme, root):
    rows = dict(re.findall(r"^\| (\w+) \| (.+) \|$", readme.partition("## Read on")[2], re.MULTILINE))
    for group, topics in GROUPS.items():
        names = [name for name in topics if not name.endswith("-details")]
        assert re.findall(r"[\[`]([\w-]+)[\]`]", rows[group]) == names
        pages = [name for name in names if (root / "qdebug" / "guide" / f"{name}.md").exists()]
        assert re.findall(r"\]\(qdebug/guide/([\w-]+)\.md\)", rows[group]) == pages


@pytest.mark.slow
def test_the_comparison_with_other_tools_is_what_they_give(readme):
    pytest.importorskip("onnxruntime")
    lines = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", readme, re.MULTILINE)
    cells = peers.table()
    assert {"qdebug", "qdq_loss_debug"} <= set(cells)
    for tool, column in (("qdebug", 1), ("Polygraphy", 2), ("qdq_loss_debug", 3), ("Netron", 4)):
        if tool in cells:
            assert [line[column] for line in lines] == [cells[tool][row] for row in peers.ROWS]


def test_every_python_block_compiles(readme):
    found = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert found
    for block in found:
        compile(block, "README.md", "exec")


def test_the_output_of_the_demo_is_what_it_prints(readme, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    printed = capsys.readouterr().out.splitlines()
    (block,) = re.findall(r"^```text\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    shown = list(filter(None, block.splitlines()))
    assert len(shown) > 15
    assert not [line for line in shown if not any(each.startswith(line) for each in printed)]


def test_the_checks_can_fail():
    text = "```bash\n.venv/bin/qdebug diff a.h5 b.h5 && qdebug tui x y  # look\npip install .\n```\n"
    assert qdebug_commands(text) == [["diff", "a.h5", "b.h5"], ["tui", "x", "y"]]


def test_the_extra_of_all_runtimes_has_all_of_them(root, readme):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(re.findall(r"\w+", everything)) - {"qdebug"} == set(extras) - {"all", "dev", "docs"}
    assert all(f"[{name}]" in readme for name in ("onnx", "litert", "tflm", "openvino", "torch", "executorch", "all"))
