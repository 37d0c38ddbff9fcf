"""The tutorial: each command runs, ends as it says, and prints what the page shows."""

import re
from difflib import SequenceMatcher

import pytest
import tutorial

ALIKE = 0.9
"""Least similarity of texts without their numbers: rows of nearly equal shares may change places."""


@pytest.fixture(scope="module")
def page():
    return tutorial.PAGE.read_text(encoding="utf-8")


def alike(shown, printed):
    first_shown, first_printed = (tutorial.masked(text.partition(";")[0]).strip() for text in (shown, printed))
    ratio = SequenceMatcher(None, tutorial.masked(shown).split(), tutorial.masked(printed).split()).ratio()
    return first_shown == first_printed and ratio >= ALIKE


def test_each_command_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    steps = tutorial.steps(page)
    assert sum(bool(shown) for _, shown in steps) >= 8
    for commands, shown in steps:
        printed = tutorial.run(commands)
        assert not shown or alike(shown, printed), commands
    assert {path.name for path in (tmp_path / "night").iterdir()} >= {"mended.onnx", "better.onnx", "test_pwconv.py"}


def test_it_ends_well_three_times(page):
    nights = re.split(r"^## ", page, flags=re.MULTILINE)[1:4]
    verdicts = [re.findall(r"^(PASS|FAIL)  ", night, re.MULTILINE) for night in nights]
    assert verdicts == [["FAIL", "PASS"]] * 3
    assert len(re.findall(r"!\[.+\]\(pictures/tutorial-[a-z]+\.svg\)", page)) == 4


def test_the_check_can_fail():
    assert alike("FAIL  diverged: kernel at a; 3.20 dB", "FAIL  diverged: kernel at a; 3.25 dB")
    assert not alike("FAIL  diverged: kernel at a; 3.20 dB", "PASS  within: all tensors; 40 dB")
