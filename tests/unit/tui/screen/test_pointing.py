"""Whatever looks clickable is: tabs, the footer, rows, headings, boxes, elements; and the wheel moves everywhere."""

import pytest
from textual.events import MouseScrollDown, MouseScrollUp

from qdebug.tui.screens import ScreenId

pytestmark = pytest.mark.asyncio


def screen_lines(app):
    width, height = app.size
    return [strip.text[:width] for strip in app.screen._compositor.render_strips()[:height]]


def spot(app, text, line=None):
    """Return where a text begins on the screen."""
    lines = screen_lines(app)
    at = line if line is not None else next(at for at, each in enumerate(lines) if text in each)
    return lines[at].index(text), at


async def wheel(pilot, name, kind):
    widget = pilot.app.screen.query_one(name)
    widget.post_message(
        kind(widget=widget, x=1, y=1, delta_x=0, delta_y=1, button=0, shift=False, meta=False, ctrl=False)
    )
    await pilot.pause()


@pytest.fixture
def start(make_app, make_session, settle):
    """Return a function that runs a scene on the screen where it starts, with the pilot and the main screen."""

    async def run(screen, act, *, size=(80, 24), row=9, sessions=1):
        app = make_app(*(make_session() for _ in range(sessions)), screen=screen)
        async with app.run_test(size=size) as pilot:
            main = await settle(pilot)
            main.navigator.go(row)
            main.say("")

            def there(main):
                ready = main.detail_ready
                return not main.shows_detail or (ready is not None and ready.is_complete)

            await settle(pilot, until=there)
            await pilot.pause(0.1)
            await act(pilot, main)
        assert app.failure is None

    return run


async def test_a_tab_is_its_key(start):
    async def act(pilot, main):
        for name, view in (("4 tensor", ScreenId.TENSOR), ("8 mend", ScreenId.MEND), ("2 nodes", ScreenId.NODES)):
            await pilot.click(offset=spot(pilot.app, name, line=1))
            assert main.view is view
        await pilot.click(offset=(0, 1))
        assert main.view is ScreenId.NODES

    await start("answer", act)


async def test_a_key_of_the_footer_is_pressed(start):
    async def act(pilot, main):
        await pilot.click(offset=spot(pilot.app, "failing", line=23))
        await pilot.pause()
        assert main.navigator.cursor == 10
        await pilot.click(offset=spot(pilot.app, "tensor", line=23))
        await pilot.pause(0.1)
        assert main.view is ScreenId.TENSOR
        await pilot.click(offset=spot(pilot.app, "find", line=23))
        await pilot.pause()
        assert main.is_asking
        await pilot.click(offset=spot(pilot.app, "3 graph", line=1))
        assert not main.is_asking
        assert main.view is ScreenId.GRAPH
        await pilot.click(offset=(20, 2))
        assert pilot.app.screen is not main, "the whole verdict"

    await start("nodes", act)


async def test_a_heading_sorts_and_sorts_the_other_way(start):
    async def act(pilot, main):
        await pilot.click(offset=spot(pilot.app, "SQNR dB"))
        assert (main.navigator.sort, main.navigator.reversed) == ("metric", False)
        await pilot.click(offset=spot(pilot.app, "SQNR dB"))
        assert (main.navigator.sort, main.navigator.reversed) == ("metric", True)

    await start("nodes", act)


async def test_a_culprit_is_chosen_and_opened(start):
    async def act(pilot, main):
        at = spot(pilot.app, "#17 ")
        await pilot.click(offset=at)
        assert main.navigator.cursor == 17
        await pilot.click(offset=spot(pilot.app, "#17 "))
        assert main.view is ScreenId.WHY

    await start("answer", act)


async def test_a_box_is_chosen_and_opened(start):
    async def act(pilot, main):
        await pilot.click(offset=spot(pilot.app, "relu_10"))
        assert main.navigator.cursor == 9
        await pilot.click(offset=spot(pilot.app, "relu_10"))
        assert main.navigator.cursor == 10
        assert main.view is ScreenId.TENSOR

    await start("graph", act)


async def test_elements_channels_and_places_of_the_map_are_chosen(start):
    async def act(pilot, main):
        await pilot.click(offset=spot(pilot.app, "5 val", line=1))
        await pilot.pause(0.3)
        line = next(at for at, line in enumerate(screen_lines(pilot.app)) if line.strip().startswith("2 "))
        for column in (0, 1):
            main.elements.go_to_index((0, 1, 0, 0))
            await pilot.click(offset=(9 + main.page._cell_width * column, line))
            assert main.elements.index == (0, 1, 2, column)
        main.action_screen("map")
        await pilot.pause(0.3)
        await pilot.click(offset=(2, 4))
        assert main.elements.index[-2:] == (0, 0)
        await pilot.click(offset=spot(pilot.app, "6 chan", line=1))
        await pilot.pause(0.3)
        rows = [at for at, line in enumerate(screen_lines(pilot.app)) if "%" in line and "▸" not in line]
        channel = main.elements.index[1]
        await pilot.click(offset=(10, rows[-1]))
        assert main.elements.index[1] != channel
        await pilot.click(offset=(10, rows[-1]))
        assert main.view is ScreenId.MAP

    await start("tensor", act)


async def test_a_worst_element_leads_to_its_values(start):
    async def act(pilot, main):
        await pilot.press("G")
        await pilot.click(offset=spot(pilot.app, "0,2,2,1"))
        assert main.view is ScreenId.VALUES
        await pilot.pause(0.2)
        assert main.elements.index == (0, 2, 2, 1)

    await start("tensor", act)


async def test_a_sample_and_a_row_of_backends_are_chosen(start):
    async def act(pilot, main):
        lines = screen_lines(pilot.app)
        await pilot.click(offset=(8, next(at for at, line in enumerate(lines) if line.strip().startswith("2 "))))
        assert main.navigator.sample == 2
        main.action_screen("backends")
        await pilot.pause()
        await pilot.click(offset=spot(pilot.app, "relu_10"))
        assert main.navigator.cursor == 10

    await start("samples", act, sessions=2)


@pytest.mark.parametrize("screen", ["answer", "graph", "values", "channels", "map", "samples"])
async def test_the_wheel_moves_in_every_page(start, screen):
    async def act(pilot, main):
        before = screen_lines(pilot.app)
        await wheel(pilot, f"#{screen}", MouseScrollDown)
        await wheel(pilot, f"#{screen}", MouseScrollUp if main.message else MouseScrollDown)
        assert screen_lines(pilot.app) != before

    await start(screen, act)


async def test_the_wheel_moves_along_the_profile(start):
    async def act(pilot, main):
        await wheel(pilot, "#profile", MouseScrollDown)
        assert main.navigator.cursor == 10
        await wheel(pilot, "#profile", MouseScrollUp)
        assert main.navigator.cursor == 9

    await start("answer", act)
