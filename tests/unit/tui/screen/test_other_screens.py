"""The help: every key, those of the screen first, and no word cut off however narrow the terminal is."""

import pytest

from qdebug.tui.screen.bindings import shared_key_rows, view_key_rows
from qdebug.tui.screen.other_screens import HelpScreen, help_lines
from qdebug.tui.screens import VIEWS
from qdebug.tui.views.table import view_class


@pytest.mark.parametrize("width", [40, 58, 78, 129, 200])
def test_no_word_of_the_help_is_cut(width):
    for view in VIEWS:
        own, shared = view_key_rows(view_class(view)), shared_key_rows()
        drawn = help_lines(view, own, shared, width)
        lines = ["".join(piece for piece, _ in line) for line in drawn]
        assert max(map(len, lines)) <= width
        said = " ".join(" ".join(lines).split())
        assert all(row.help in said for row in (*own, *shared))


@pytest.mark.parametrize(("screen", "own"), [("values", "form: real numbers"), ("mend", "choose the edit")])
async def test_the_help_begins_with_what_the_screen_under_it_can_do(make_app, make_session, settle, screen, own):
    app = make_app(make_session(), screen=screen)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("?")
        await pilot.pause(0.1)
        assert isinstance(app.screen, HelpScreen)
        lines = [app.screen._text.render_line(y).text.strip() for y in range(12)]
        assert lines[2] == f"On the screen {screen}"
        assert own in "\n".join(lines[3:8])
        assert "On every screen" in lines
