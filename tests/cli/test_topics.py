"""Help on a topic: there is a text for each, it fits a terminal, and every command and key in it exists."""

import contextlib
import re
import shlex
import tomllib
from importlib import resources

import pytest

from qdebug.cli.main import build_parser
from qdebug.cli.topics import TOPICS, topic_text
from qdebug.model.thresholds import TABLE
from qdebug.view.rows import columns
from qdebug.workflow.limits_file import load_limits

COMMAND = re.compile(r"^ {2,4}(qdebug .+)$", re.MULTILINE)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_answers_its_question(topic, run):
    done = run("help", topic)
    assert (done.code, done.err) == (0, "")
    first, *lines = done.out.splitlines()
    assert first.lower() == TOPICS[topic].lower()
    assert all(len(line) <= 85 for line in lines)
    assert done.out.isascii()


@pytest.mark.parametrize("topic", TOPICS)
def test_every_command_in_a_text_is_understood(topic):
    found = [shlex.split(re.split(r"\s{2,}", line)[0]) for line in COMMAND.findall(topic_text(topic))]
    assert found
    for _, *words in found:
        with contextlib.suppress(SystemExit) if "--explain-metrics" in words else contextlib.nullcontext():
            build_parser().parse_args(words)


@pytest.mark.parametrize("topic", TOPICS)
def test_every_option_in_a_text_exists(topic):
    known = set()
    for parser in (
        build_parser(),
        *(a.choices[v] for a in build_parser()._actions if hasattr(a.choices, "items") for v in a.choices),
    ):
        known |= set(parser._option_string_actions)
    assert (
        not set(re.findall(r"(?<!pytest )(?<![\w-])--[a-z][a-z-]+", topic_text(topic).replace("pytest --help", "")))
        - known
    )


def test_the_columns_of_the_table_topic_are_those_of_the_table():
    titles = {column.title for column in columns().values()}
    said = re.findall(r"^  (status|[\w ]+?) {2,}\S", topic_text("table"), re.MULTILINE)
    shown = [title for title in said if not title.startswith("qdebug")]
    assert {"status", "introduced", "gain", "saturated"} <= set(shown)
    assert {title for title in shown if title in titles} >= {"status", "introduced", "gain", "saturated", "max LSB"}


def test_the_limits_file_of_the_tolerance_topic_is_one(tmp_path):
    text = topic_text("tolerance")
    start = text.index("  [default]")
    example = "\n".join(line[2:] for line in text[start : text.index("\nThe same tables")].splitlines())
    assert set(tomllib.loads(example)) == {"default", "limit", "acknowledged"}
    (tmp_path / "limits.toml").write_text(example)
    limits = load_limits(tmp_path / "limits.toml")
    assert (limits.min_sqnr, limits.rules[0].max_lsb, limits.acknowledged[0].node) == (25, 2, "softmax")


def test_the_limits_topic_lists_every_threshold():
    lines = topic_text("limits").splitlines()
    assert max(map(len, lines)) <= 80
    shown = [line.split()[0] for line in lines if re.match(r"  [A-Z][A-Z0-9_]+ = \S", line)]
    assert shown == [row.name for row in TABLE]
    assert "  DERIVED_LSB = 1.5 LSB (status)" in lines
    assert "  FLOAT32_UNIT_ROUNDOFF = 2^-24 relative error (status)" in lines


def test_the_python_of_the_backend_topic_compiles():
    lines = topic_text("backend").splitlines()
    start = lines.index("  import qdebug")
    block = [
        line
        for line in lines[
            start : lines.index("Only the name and the array are needed. Each further fact answers more questions:")
        ]
        if line
    ]
    assert compile("\n".join(line[2:] for line in block), "backend.txt", "exec")


def test_without_a_topic_all_are_listed_and_an_unknown_one_is_refused(run):
    done = run("help")
    assert done.code == 0
    assert all(question in done.out for question in TOPICS.values())
    wrong = run("help", "everything")
    assert wrong.code == 2
    assert "tolerance" in wrong.err


def test_there_is_a_text_for_every_topic_and_none_else():
    folder = resources.files("qdebug.cli").joinpath("texts")
    assert {entry.name for entry in folder.iterdir()} == {f"{topic}.txt" for topic in TOPICS}
