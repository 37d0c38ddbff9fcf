"""The pictures of the guide show what the program draws today."""

import re
import subprocess
import sys
from difflib import SequenceMatcher

import pictures
import pytest
from tutorial import masked

from qdebug.tui.screens import ScreenId

ALIKE = 0.95
"""Least similarity of two pictures' words without numbers: bars and nearly equal rows vary with the processor."""
SCREENS = {*(view for view in ScreenId if view is not ScreenId.BACKENDS), "wide-dark", "wide-light"}
FIRST = "tutorial-answer"
REST = sorted({*SCREENS, *pictures.TUTORIAL} - {FIRST})


def alike(old, new):
    words = [masked(pictures.words(svg)).split() for svg in (old, new)]
    assert all(len(each) > 40 for each in words)
    return SequenceMatcher(None, *words, autojunk=False).ratio() >= ALIKE


def test_there_is_a_picture_of_every_screen_and_one_for_every_mention(root):
    drawn = {path.stem for path in pictures.PICTURES.glob("*.svg")}
    assert drawn == SCREENS | set(pictures.TUTORIAL)
    pages = [*(root / "qdebug" / "guide").glob("*.md"), root / "README.md"]
    shown = re.findall(
        r"\]\([\w/]*pictures/([\w-]+)\.svg\)", "".join(page.read_text(encoding="utf-8") for page in pages)
    )
    assert set(shown) <= drawn
    assert set(pictures.TUTORIAL) <= set(shown)


@pytest.mark.parametrize("name", [FIRST, *(pytest.param(each, marks=pytest.mark.slow) for each in REST)])
def test_a_picture_is_what_is_drawn_today(name, drawn):
    path = f"{name}.svg"
    assert alike(
        (pictures.PICTURES / path).read_text(encoding="utf-8"), (drawn(name) / path).read_text(encoding="utf-8")
    )


@pytest.fixture(scope="module")
def drawn(tmp_path_factory, root):
    """Return what draws the picture of a name, with those that belong to it, and gives the folder."""
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("pictures")

    def draw(name):
        if not (folder / f"{name}.svg").exists():
            if name in pictures.TUTORIAL:
                night = folder / "night"
                if not night.exists():
                    script = root / "samples" / "00_tutorial.py"
                    subprocess.run([sys.executable, script, night], check=True)
                pictures.draw_tutorial(night, folder, [name])
            else:
                pictures.draw_screens(folder)
        return folder

    return draw


def test_the_check_can_fail():
    text = "".join(f"<text>word{chr(97 + index % 26)}{index} stays</text>" for index in range(60))
    assert alike(text, text.replace("word", "word", 1))
    assert not alike(text, text.replace("stays", "went"))
