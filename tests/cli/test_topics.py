"""The guide in the terminal: each page fits 80 columns, and every option that it names exists."""

import re
from importlib import resources

import pytest

from qdebug.cli.main import build_parser
from qdebug.cli.topics import GENERATED, OTHER_NAMES, TOPICS, topic_text
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
    parsers = [build_parser()]
    known = {"--junitxml", "--quick", "--pages", "--index-url", "--strict"}  # of other programs, and of our scripts
    known |= {"--csv", "--debug-tensor-dump-output-folder"}
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
    assert all(about in done.out for topic, about in TOPICS.items() if not topic.endswith("-details"))
    assert all(topic.removesuffix("-details") in done.out for topic in TOPICS)
    assert all(len(line) <= 80 for line in done.out.splitlines())
    wrong = run("help", "verdikt")
    assert wrong.code == 2
    assert "'verdict'" in wrong.err


def test_every_page_is_a_topic():
    pages = {entry.name for entry in resources.files("qdebug.guide").iterdir() if entry.name.endswith(".md")}
    assert pages == {f"{topic}.md" for topic in TOPICS if topic == "kernels" or topic not in GENERATED}


def test_the_help_of_diff_states_the_limits_that_are_judged(run):
    said = " ".join(run("help", "diff").out.split())
    assert f"may add at most {DERIVED_LSB:g} LSB of its own output" in said
    assert f"must reach an SQNR of {DEFAULT_MIN_SQNR:g} dB" in said
    page = topic_text("limits")
    assert f"| quantized | {DERIVED_LSB:g} steps (LSB)" in page
    assert (
        f"{DEFAULT_MIN_SQNR:g} dB SQNR ({CODES_MIN_SQNR:g} dB if no code is off by more than {DERIVED_LSB:g} LSB)"
        in page
    )


def test_a_verb_is_explained_too(run):
    done = run("help", "diff")
    assert done.code == 0
    assert all(option in done.out for option in ("--suggest-limits", "--allow-unfaithful", "exit codes:"))
    page = run("help", "explain").out
    assert page.rstrip().endswith("qdebug help explain options explains the options of this verb.")
    options = run("help", "explain", "options").out
    assert "--write-arithmetic" in options
    assert "usage: qdebug explain" in options
    assert "'diff'" in run("help", "dif").err


@pytest.mark.parametrize(
    ("topic", "entry", "shown", "hidden"),
    [
        ("kernels", "QLinearConv", "fbgemm", "Averages"),
        ("kernels", "glow-cpu", "glow-cpu", "Resizes"),
        ("thresholds", "output_min_sqnr", "OUTPUT_MIN_SQNR = 20 dB", "DERIVED_LSB"),
        ("metrics", "sqnr_db", "10 log10(sum reference^2", "max_ulp"),
        ("keys", "filter", "show the nodes that fit", "one down"),
        ("json", "explain", "no_kernel", "Result of accuracy"),
    ],
)
def test_an_entry_of_the_reference_is_shown_alone(topic, entry, shown, hidden, run):
    done = run("help", topic, entry)
    words = " ".join(done.out.split())
    assert done.code == 0
    assert shown in words
    assert hidden not in words


def test_an_unknown_entry_has_near_names(run):
    done = run("help", "thresholds", "OUTPUT_MIN_SQRN")
    assert done.code == 2
    assert "'OUTPUT_MIN_SQNR'" in done.err


def test_a_part_of_a_heading_selects_a_section_with_its_subsections(run):
    done = run("help", "verdict-details", "errors that accumulate")
    assert done.code == 0
    assert "Errors that accumulate" in done.out
    assert "Roundings of 16-bit floats" in done.out
    assert "The columns" not in done.out
    wrong = run("help", "faq", "Why exit code 4?")
    assert wrong.code == 2
    assert "'Why exit code 3?'" in wrong.err


def test_another_word_is_searched_for_in_the_pages(run):
    done = run("help", "columns")
    assert done.code == 0
    first = next(line for line in done.out.splitlines() if line.startswith("qdebug help"))
    assert first == "qdebug help verdict-details 'The columns'"
    assert "The columns" in run("help", "verdict-details", "The columns").out
    assert "'exit code'" in run("help", "exit", "code").out


def test_a_reference_lists_every_row_of_its_table(run):
    from qdebug.model.thresholds import TABLE
    from qdebug.tui.screen.bindings import all_key_rows

    thresholds, keys = topic_text("thresholds"), topic_text("keys")
    assert not [row.name for row in TABLE if f"- `{row.name}` = " not in thresholds]
    assert not [row.help for _, row in all_key_rows() if row.help not in keys]


def test_agents_get_a_skill_to_install(run):
    done = run("help", "agent", "--skill")
    assert done.out.startswith("---\nname: qdebug\ndescription: ")
    head, _, body = done.out.removeprefix("---\n").partition("\n---\n")
    assert len(head.splitlines()) == 2
    assert len(head) < 1024
    assert body.strip() == topic_text("agent").strip()
    assert run("help", "faq", "--skill").code == 2


RUNTIMES = ("onnxruntime", "litert", "tflm", "openvino", "pytorch", "executorch")


@pytest.mark.parametrize("topic", RUNTIMES)
def test_pages_of_runtimes_have_one_form(topic):
    headings = re.findall(r"^## (.+)$", topic_text(topic), re.MULTILINE)
    assert headings == ["Install", "Record", "Options", "What is not recorded", "Known bugs of the runtime"]
