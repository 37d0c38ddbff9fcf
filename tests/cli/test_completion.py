"""Completion: the scripts know every verb, option and choice, and bash does what they say."""

import shutil
import subprocess

import pytest

from qdebug.backends import BACKENDS
from qdebug.cli.completion import list_completables, script
from qdebug.cli.main import build_parser

SHELLS = ("bash", "zsh", "fish")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_verb_option_and_choice_is_in_the_script(shell, run):
    done = run("completion", shell)
    assert done.code == 0
    for level in list_completables(build_parser()):
        words = [*level.actions, *level.arguments, *(value for values in level.choices.values() for value in values)]
        options = [option.lstrip("-") for option in level.options]
        assert not [word for word in (*words, *options) if word not in done.out], level.words


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_can_read_its_script(shell, tmp_path):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "script"
    path.write_text(script(shell, build_parser()))
    done = subprocess.run([program, "-n", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["di"], {"diff"}),
        (["diff", "--min"], {"--min-sqnr", "--min-output-sqnr"}),
        (["diff", "-f", ""], {"table", "json", "markdown", "html", "junit", "csv"}),
        (["info", "--format", "m"], {"markdown"}),
        (["diff", "a.h5", ""], set()),
        (["export", "n"], {"netron", "npz"}),
        (["export", "csv", "--no"], {"--node"}),
        (["help", "tu"], {"tutorial", "tui"}),
        (["help", "te"], {"terminal", "terminal-details", "tests", "tests-details"}),
        (["completion", ""], set(SHELLS)),
        (["record", "diff", "--taps", "a"], {"all"}),
        (["record", "net.onnx", "--backend", ""], set(BACKENDS)),
        (["probe", "--backend", "on"], {"onnxruntime"}),
        (["probe", "--kind", "soft"], {"softmax"}),
        (["file", "j"], {"join"}),
        (["file", "join", "--by", ""], {"tensors", "samples", "shards"}),
        (["export", "repro", "--who"], {"--whole"}),
        (["explain", "x.h5", "--wri"], {"--write-arithmetic"}),
        (["nonsense", "--x"], set()),
    ],
)
def test_bash_completes(words, expected, tmp_path):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    (tmp_path / "script").write_text(script("bash", build_parser()))
    press = 'COMP_WORDS=(qdebug "$@"); COMP_CWORD=$#; _qdebug; printf "%s\\n" "${COMPREPLY[@]}"'
    program = f"source {tmp_path}/script; {press}"
    done = subprocess.run([bash, "-c", program, "bash", *words], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == expected


def test_a_shell_that_is_not_known_is_refused(run):
    assert run("completion", "tcsh").code == 2


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("qdebug fi", {"file"}),
        ("qdebug file re", {"recover"}),
        ("qdebug diff -f ", {"table", "json", "markdown", "html", "junit", "csv"}),
        ("qdebug record net.onnx --backend ", set(BACKENDS)),
        ("qdebug help t", {"tolerance", "tutorial"}),
        ("qdebug explain --wri", {"--write-arithmetic"}),
    ],
)
def test_fish_completes(line, expected, tmp_path):
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("fish is not installed")
    (tmp_path / "script").write_text(script("fish", build_parser()))
    program = f"source {tmp_path}/script; complete -C '{line}'"
    done = subprocess.run([fish, "--no-config", "-c", program], capture_output=True, text=True, check=True)
    assert {found.partition("\t")[0] for found in done.stdout.splitlines()} == expected
