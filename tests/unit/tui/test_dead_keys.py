"""Every key on every screen, pressed by name: it changes what is on the screen, or says why not."""

import pytest

from qdebug.tui.arrangement import VIEWS, View
from qdebug.tui.keys import KEYS

pytestmark = pytest.mark.asyncio

LEFT_OUT = {"leave", "suspend"}


def image(app):
    return tuple(strip for strip in app.screen._compositor.render_strips()), app.screen


async def dead_keys(app, settle, view_of):
    """Press every key; give those that change nothing.

    Args:
        view_of: Gives the screen on which the n-th key is pressed.
    """
    dead = []
    async with app.run_test(size=(80, 24)) as pilot:
        main = await settle(pilot)
        keys = [key for row in KEYS if row.action.split("(")[0] not in LEFT_OUT for key in row.keys]
        for number, key in enumerate(keys):
            if main.view is not view_of(number):
                main.show_view(View(view_of(number)))
            main.say("before")
            await pilot.pause()
            before = image(app)
            await pilot.press(key)
            await pilot.pause()
            if image(app) == before:
                dead.append((key, main.view))
            if app.screen is not main or main.asking:
                await pilot.press("escape")
                await pilot.pause()
    return dead


async def test_no_key_is_dead(make_app, make_session, settle):
    app = make_app(make_session(), make_session(failing=(9,)))
    assert not await dead_keys(app, settle, lambda number: VIEWS[number % len(VIEWS)])


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
async def test_no_key_is_dead_on_any_screen(make_app, make_session, settle, view):
    app = make_app(make_session(), make_session(failing=(9,)))
    assert not await dead_keys(app, settle, lambda _: view)
