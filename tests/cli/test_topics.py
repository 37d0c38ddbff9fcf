"""The guide in the terminal: each page fits 80 columns, and every option that it names exists."""

import re
from importlib import resources

import pytest

from qdebug.cli.main import build_parser
from qdebug.cli.topics import OTHER_NAMES, TOPICS, topic_text
from qdebug.model.thresholds.verdict import CODES_MIN_SQNR, DEFAULT_MIN_SQNR, DERIVED_LSB


@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_fits_a_narrow_terminal_and_begins_with_its_title(topic, run):
    done = run("help", topic)
    assert (done.code, done.err) == (0, "")
    assert all(len(line) <= 80 for line in done.out.splitlines())
    assert done.out.splitlines()[0].strip() == topic_text(topic).splitlines()[0].removeprefix("# ")
    assert "<!--" not in done.out


@pytest.mark.parametrize("topic", TOPICS)
def test_code_is_not_broken_into_lines(topic, run):
    shown = run("help", topic).out
    for block in re.findall(r"^ *```\w*\n(.*?)^ *```", topic_text(topic), re.MULTILINE | re.DOTALL):
        for line in filter(None, map(str.strip, block.splitlines())):
            assert line in shown


@pytest.mark.parametrize("topic", TOPICS)
def test_every_option_in_a_page_exists(topic):
    parsers, known = [build_parser()], {"--junitxml", "--quick", "--index-url"}  # of pytest, of our scripts, of pip
    while parsers:
        parser = parsers.pop().with_arguments()
        known |= set(parser._option_string_actions)
        parsers += [
            each for action in parser._actions if hasattr(action.choices, "items") for each in action.choices.values()
        ]
    said = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", topic_text(topic)))
    assert not {option for option in said - known if not option.startswith("--qdebug-")}


@pytest.mark.parametrize(("name", "page"), OTHER_NAMES.items())
def test_a_page_answers_to_its_other_names(name, page, run):
    assert run("help", name).out == run("help", page).out


def test_without_a_topic_all_are_listed_and_an_unknown_one_is_refused(run):
    done = run("help")
    assert done.code == 0
    assert all(about in done.out for about in TOPICS.values())
    wrong = run("help", "everything")
    assert wrong.code == 2
    assert "verdict" in wrong.err


def test_every_page_is_a_topic():
    pages = {entry.name for entry in resources.files("qdebug.guide").iterdir() if entry.name.endswith(".md")}
    assert pages == {f"{topic}.md" for topic in TOPICS}


def test_the_help_of_diff_states_the_limits_that_are_judged(run):
    said = " ".join(run("diff", "--help").out.split())
    assert f"may add at most {DERIVED_LSB:g} LSB of its own output" in said
    assert f"must reach an SQNR of {DEFAULT_MIN_SQNR:g} dB" in said
    page = topic_text("limits")
    assert f"| quantized | {DERIVED_LSB:g} steps (LSB)" in page
    assert (
        f"{DEFAULT_MIN_SQNR:g} dB SQNR ({CODES_MIN_SQNR:g} dB where no code is off by more than {DERIVED_LSB:g})"
        in page
    )


def test_a_verb_is_explained_too(run):
    done = run("help", "diff")
    assert (done.code, done.out) == (0, run("diff", "--help").out)
    page = run("help", "explain").out
    assert page.rstrip().endswith("qdebug explain --help lists the options of this verb.")
    assert "Did you mean diff?" in run("help", "dif").err
