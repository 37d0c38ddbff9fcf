"""Pictures of the terminal interface; make them anew with `pytest tests/snapshots -m "" --snapshot-update`, and look.

These are as the program exports them. Every screen at every size and in all looks is in test_captures.py, as text.
"""

from importlib.metadata import version

import pytest

from qdebug.tui.drawing.glyphs import ASCII
from qdebug.tui.drawing.palette import CONTRAST, LIGHT
from qdebug.tui.screens import VIEWS

PINNED = "8.2.8"

pytestmark = pytest.mark.skipif(
    version("textual") != PINNED, reason=f"the pictures were made with textual {PINNED}; other versions draw otherwise"
)

USUAL, VERY_WIDE = (80, 24), (160, 40)


@pytest.fixture
def picture(snap_compare, make_picture_app, settled):
    """Compare the screen after some keys with the picture that was kept."""

    def compare(keys=(), *, size=USUAL, **options):
        async def settle(pilot):
            await settled.until(pilot, settled.computed)
            pilot.app.screen_stack[0].line.cursor_blink = False  # a picture must not depend on when it is taken
            await pilot.press(*keys)
            await settled.until(pilot, settled.shown)

        return snap_compare(make_picture_app(**options), terminal_size=size, run_before=settle)

    return compare


@pytest.mark.parametrize("screen", [view for view in VIEWS if view != "backends"])
def test_each_screen(picture, screen):
    assert picture(["exclamation_mark"], screen=str(screen))


def test_an_edit_that_is_marked(picture):
    assert picture(["exclamation_mark", "space", "j"], screen="mend")


def test_several_backends(picture):
    assert picture(["exclamation_mark"], screen="backends", backends=2)


def test_the_answer_without_colours(picture, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert picture(["exclamation_mark"], screen="answer")


def test_all_channels_in_light_colours(picture):
    assert picture(["exclamation_mark", "v"], screen="map", palette=LIGHT)


def test_high_contrast(picture):
    assert picture(["exclamation_mark", "m", "s"], palette=CONTRAST)


def test_facts_beside_the_list_in_a_very_wide_terminal(picture):
    assert picture(["exclamation_mark"], size=VERY_WIDE)


def test_one_panel_in_a_small_terminal(picture):
    assert picture(["exclamation_mark"], size=(50, 14))


def test_a_filter_that_is_being_typed(picture):
    assert picture(["f", *"sqnr<20"])


def test_ascii(picture):
    assert picture(["exclamation_mark"], screen="answer", glyphs=ASCII)


def test_help(picture):
    assert picture(["question_mark"])


def test_hostile_names(picture):
    names = ("[/foo]", "[@click=app.quit]q[/]", "\x1b]0;x\x07esc", "\u202ertl\nline", "x" * 5000, "畳み込み" * 40)
    assert picture(["j"], names=names)
