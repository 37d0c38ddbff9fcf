"""The README: its first screen works, its commands exist, and `.ci/run` runs the very same lines."""

import contextlib
import io
import os
import re
import shlex

import pytest

from qdebug.cli.main import build_parser
from qdebug.pytest_plugin.options import add_options
from qdebug.replay.arithmetic_file import read_arithmetic
from qdebug.replay.presets import PRESETS
from qdebug.tui.keys import markdown_table
from qdebug.view.rows import columns
from qdebug.workflow.limits_file import load_limits

FIRST_SCREEN = 30
MAIN_JOB = "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/qdebug demo"
TESTS = "python3 -m venv .venv && .venv/bin/pip install '.[dev]' && .venv/bin/python -m pytest -n auto"


@pytest.fixture(scope="module")
def readme(texts):
    return texts["README.md"]


def blocks(text, language):
    """Give the code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def qdebug_commands(text):
    """Give the `qdebug ...` command lines of the shell blocks, without prompt, comment and path to the program."""
    found = []
    for line in "".join(blocks(text, "(?:bash|console|sh)")).replace("\\\n", " ").splitlines():
        for part in re.split(r"&&|;", line.removeprefix("$ ")):
            words = shlex.split(part, comments=True)
            if words and words[0].rpartition("/")[2] == "qdebug":
                found.append(words[1:])
    return found


@pytest.mark.parametrize("command", [MAIN_JOB, TESTS])
def test_the_first_screen_has_both_commands(command, readme):
    screen = "\n".join(readme.splitlines()[:FIRST_SCREEN])
    assert command in [line for block in blocks(screen, "bash") for line in block.splitlines()]


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


def refusal(words):
    """Say why the parser refuses a command; nothing if it takes it, or ends well as after --help."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            build_parser().parse_args(words)
    except SystemExit as stop:
        return said.getvalue() or "refused" if stop.code else ""
    return ""


def test_every_command_shown_is_understood(readme):
    commands = qdebug_commands(readme)
    assert len(commands) >= 5
    assert not {shlex.join(words): why for words in commands if (why := refusal(words))}


def test_a_command_that_does_not_exist_is_refused():
    assert "invalid choice" in refusal(["dif", "a.h5", "b.h5"])


def test_the_keys_are_those_of_the_terminal_interface(readme):
    assert markdown_table().strip() in readme


def test_the_columns_are_those_of_the_table(readme):
    table = readme.partition("### Read the table")[2].partition("###")[0]
    explained = set(re.findall(r"(?m)^\| ([\w /]+) \| ", table)) - {"column"}
    known = {column.title for column in columns().values()}
    assert len(explained) >= 8
    assert explained <= known


def test_every_python_block_compiles(readme):
    found = blocks(readme, "python")
    assert found
    for block in found:
        compile(block, "README.md", "exec")


def test_every_limits_file_shown_is_read(readme, tmp_path):
    found = blocks(readme, "toml")
    assert found
    for number, block in enumerate(found):
        path = tmp_path / f"{number}.toml"
        path.write_text(block, encoding="utf-8")
        assert load_limits(path).acknowledged


def test_the_options_of_the_pytest_plugin_are_shown_and_exist(readme):
    section = readme.partition("## In your tests")[2].partition("\n## ")[0]
    shown = set(re.findall(r"--qdebug-[a-z]+", section))
    parser = pytest.Parser(_ispytest=True)
    add_options(parser)
    known = {name for group in parser._groups for option in group.options for name in option.names()}
    assert shown == {name for name in known if name.startswith("--qdebug-")}


def test_every_local_link_and_file_exists(readme, root):
    targets = [t for t in re.findall(r"\]\(([^)#]+)[^)]*\)", readme) if "://" not in t]
    targets += re.findall(r"`((?:qdebug|samples|tests|\.ci)/[\w./-]*)`", readme)
    assert targets
    assert not [target for target in targets if not (root / target).exists()]


def test_the_checks_can_fail():
    text = "```bash\n.venv/bin/qdebug diff a.h5 b.h5 && qdebug tui x y  # look\npip install .\n```\n"
    assert qdebug_commands(text) == [["diff", "a.h5", "b.h5"], ["tui", "x", "y"]]
    assert blocks("```python\nx = 1\n```\n", "python") == ["x = 1\n"]


def test_every_known_arithmetic_is_named(readme):
    section = readme.partition("### Which arithmetic")[2].partition("###")[0]
    listed = re.split(r"\.\s", section.partition("Known by name: ")[2])[0]
    assert re.findall(r"`([\w-]+)`", listed) == list(PRESETS)


def test_the_arithmetic_file_shown_is_read(readme, tmp_path):
    (block,) = [block for block in blocks(readme, "text") if block.startswith('format = "qdebug.arithmetic"')]
    path = tmp_path / "npu.toml"
    path.write_text(block, encoding="utf-8")
    found = read_arithmetic(path)
    assert found.name == "my-npu"
    assert found.variant("mul") == PRESETS["gemmlowp"].variant("mul")
