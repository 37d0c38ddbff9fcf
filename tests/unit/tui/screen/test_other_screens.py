"""The help: every key, and no word cut off however narrow the terminal is."""

import pytest

from qdebug.tui.keys import KEYS
from qdebug.tui.screen.other_screens import HelpScreen, help_lines


@pytest.mark.parametrize("width", [40, 58, 78, 129, 130, 200])
def test_no_word_of_the_help_is_cut(width):
    lines = ["".join(piece for piece, _ in line) for line in help_lines(width)]
    assert max(map(len, lines)) <= width
    if width < 130:
        said = " ".join(" ".join(lines).split())
        assert all(row.help in said for row in KEYS)


async def test_the_help_begins_with_what_the_screen_under_it_can_do(make_app, make_session, settle):
    app = make_app(make_session(), screen="values")
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("?")
        await pilot.pause(0.1)
        assert isinstance(app.screen, HelpScreen)
        lines = [app.screen._text.render_line(y).text.strip() for y in range(4)]
        assert lines[2:] == [
            "Here   on the screen values",
            "arrows, n worst, ^ clipped, c channel, v codes",
        ]
