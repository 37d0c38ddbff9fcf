"""Arguments that several verbs share, and how a wrong one is told."""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from qdebug.cli.main import VERBS, build_parser
from qdebug.cli.parser import Parser, decibels, limit, natural, options_from, positive, suffix_format
from qdebug.cli.record import BackendChoice, backend_choice
from qdebug.cli.sources import command
from qdebug.cli.topics import TOPICS
from qdebug.errors import UsageError


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (natural, "0", 0),
        (positive, "3", 3),
        (limit, "0", 0.0),
        (limit, "inf", float("inf")),
        (limit, "1e-6", 1e-6),
        (decibels, "-3.5", -3.5),
        (decibels, "-inf", float("-inf")),
    ],
)
def test_numbers_are_read(read, text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (natural, "-1"),
        (natural, "1.5"),
        (natural, ""),
        (positive, "0"),
        (positive, "many"),
        (limit, "-0.1"),
        (limit, "nan"),
        (limit, "5dB"),
        (decibels, "nan"),
        (decibels, "loud"),
    ],
)
def test_what_is_no_such_number_is_refused(read, text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a"):
        read(text)


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("onnxruntime", "onnxruntime", {}),
        ("onnxruntime:", "onnxruntime", {}),
        ("onnxruntime:opt=none", "onnxruntime", {"opt": "none"}),
        ("b:a=1,c=x=y,d=", "b", {"a": "1", "c": "x=y", "d": ""}),
    ],
)
def test_a_backend_is_a_name_with_options(text, name, options):
    assert backend_choice(text) == BackendChoice(name, options)


def test_a_form_is_chosen_or_follows_the_ending_of_the_file():
    assert suffix_format(None, None) == "table"
    assert suffix_format("json", Path("a.md")) == "json"
    assert suffix_format(None, Path("a.JSON")) == "json"
    assert suffix_format(None, Path("a.md")) == "markdown"
    assert suffix_format(None, Path("a")) == suffix_format(None, Path("a.txt")) == "table"
    with pytest.raises(UsageError, match=r"Unknown report format '\.csv'; known extensions are \.json"):
        suffix_format(None, Path("a.csv"))


def test_a_verb_gets_its_own_options_and_no_namespace():
    @dataclass(frozen=True, kw_only=True)
    class Options:
        a: int

    assert options_from(Options, argparse.Namespace(a=1, run=None, debug=False)) == Options(a=1)
    with pytest.raises(AttributeError):
        options_from(Options, argparse.Namespace(run=None))


def test_an_error_is_one_safe_line_with_a_hint(capsys):
    parser = Parser(prog="qdebug test")
    with pytest.raises(SystemExit) as stop:
        parser.parse_args(["\x1b[2J"])
    assert stop.value.code == 2
    message, hint = capsys.readouterr().err.splitlines()
    assert message == r"qdebug test: unrecognized arguments: \x1b[2J"
    assert hint == "  hint: qdebug test --help explains it."


def test_options_are_never_abbreviated(capsys):
    parser = Parser(prog="x")
    parser.add_argument("--sample")
    with pytest.raises(SystemExit):
        parser.parse_args(["--samp", "3"])
    assert "--samp" in capsys.readouterr().err


def test_a_command_to_type_is_quoted_and_safe():
    assert command("qdebug", "diff", Path("a b.h5"), "x;rm") == "qdebug diff 'a b.h5' 'x;rm'"
    assert "\x1b" not in command("--node", "a\x1b[2J")


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        (["--version"], []),
        (["--help"], []),
        (["nope"], []),
        (["info", "--help"], ["info"]),
    ],
)
def test_only_the_verb_that_is_asked_for_is_loaded(words, loaded):
    program = f"import sys; from qdebug.cli.main import VERBS, main\ntry: main({words})\nexcept SystemExit: pass\n"
    program += "print([verb for verb in VERBS if f'qdebug.cli.{VERBS[verb].module}' in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == str(loaded)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_fits_a_screen_and_begins_with_an_example(verb, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown, whole = run(verb, "--help").out, run("help", verb).out if verb not in TOPICS else ""
    lines = shown.splitlines()
    assert len(lines) <= 40
    assert lines[0] in ("example:", "examples:")
    assert lines[1].startswith(f"  qdebug {'record' if verb == 'accuracy' else verb} ")
    assert not any(line.endswith("\\") and not following.startswith("  ") for line, following in pairwise(lines))
    if whole and f"qdebug help {verb}" not in shown:
        assert shown == whole


def test_the_whole_help_explains_each_option(run):
    for verb in VERBS:
        parser = build_parser()._subparsers._group_actions[0].choices[verb].with_arguments()
        whole = parser.format_help()
        assert not [name for name in parser._option_string_actions if name not in whole]
