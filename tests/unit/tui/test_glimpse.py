"""Elements of a tensor that is not compared yet: seen at once, said to be unjudged, and read further where one goes."""

import numpy as np

from qdebug.tui.desk import DetailDesk
from qdebug.tui.events import Glimpsed
from qdebug.tui.glimpse import EXTENTS, ROOM, part_of
from qdebug.tui.requests import DetailRequest, Withdraw
from qdebug.tui.slab import make_slab


def part(start, whole=(1, 4, 5000, 5000)):
    values = np.zeros((1, 1, *EXTENTS), np.float32)
    return make_slab(values, values, place=(start, whole))


def test_elements_are_asked_for_where_the_user_goes(make_navigator):
    asked = []
    desk, navigator = DetailDesk(asked.append), make_navigator(filled=0)

    def go(*element):
        desk.want(navigator, elements=True, element=element or None)
        return [request.element for request in asked]

    assert go() == [None]
    desk.take(Glimpsed(request=asked[-1], part=part((0, 0, 0, 0)), sample=0))
    assert go(0, 0, 0, 0) == [None]
    assert go(0, 0, EXTENTS[0] - ROOM - 1, 3) == [None], "all that is on the screen with it is there"
    edge = (0, 0, EXTENTS[0] - ROOM, 3)
    assert go(*edge) == [None, edge]
    assert go(*edge) == [None, edge], "it is on its way"
    assert go(0, 1, 0, 0) == [None, edge, (0, 1, 0, 0)]
    desk.take(Glimpsed(request=asked[1], part=part((0, 0, 100, 0)), sample=0))
    assert desk.glimpse(navigator).part.start == (0, 0, 0, 0), "an answer to an older request is dropped"
    navigator.go(3)
    assert desk.glimpse(navigator) is None


def test_nothing_is_asked_again_once_all_is_there_or_nothing_wanted(make_navigator, make_scene):
    asked = []
    desk, navigator = DetailDesk(asked.append), make_navigator()
    navigator.go(9)
    desk.want(navigator, elements=True)
    desk.take(Glimpsed(request=asked[0], part=part((0, 0, 0, 0)), sample=0))
    ready = make_scene(row=9).ready
    object.__setattr__(ready, "request", asked[0])
    desk.take(ready)
    desk.want(navigator, elements=True, element=(0, 3, 4000, 0))
    assert len(asked) == 1
    desk.forget()
    assert desk.glimpse(navigator) is None
    desk.want(navigator, elements=True)
    desk.want_nothing()
    assert [type(request) for request in asked] == [DetailRequest, DetailRequest, Withdraw]


def test_elements_that_take_much_memory_are_let_go_once_another_node_is_looked_at(
    make_navigator, make_scene, monkeypatch
):
    asked = []
    desk, navigator = DetailDesk(asked.append), make_navigator()

    def look(row, *, elements):
        navigator.go(row)
        desk.want(navigator, elements=elements)
        ready = make_scene(row=row, elements=elements).ready
        object.__setattr__(ready, "request", asked[-1])
        desk.take(ready)

    look(9, elements=True)
    look(10, elements=False)
    navigator.go(9)
    assert desk.ready(navigator).slab is not None, "little is kept"
    monkeypatch.setattr("qdebug.tui.desk._HELD", 0)
    look(12, elements=False)
    navigator.go(9)
    assert desk.ready(navigator).slab is None


async def test_what_is_not_compared_yet_can_be_seen_and_is_said_to_be_unjudged(make_app, make_session, settle):
    session = make_session(pause_at=12)
    app = make_app(session, node="block5/qlinearadd_21", screen="values")
    async with app.run_test(size=(120, 40)) as pilot:
        main = await settle(pilot, until=lambda main: main.scene is not None and main.scene.glimpse is not None)
        shown = "\n".join("".join(text for text, _ in line) for line in main._draw_page(118, 30))
        assert "NOT COMPARED YET" in shown
        assert "reference -1.5" in shown
        await pilot.press("@", *"0,2,1,1", "enter")
        await pilot.pause()
        assert main.elements.index == (0, 2, 1, 1)
        assert "@0,2,1,1  reference" in "\n".join(
            "".join(text for text, _ in line) for line in main._draw_page(118, 30)
        )
        session.resume.set()
        main = await settle(pilot)
        shown = "\n".join("".join(text for text, _ in line) for line in main._draw_page(118, 30))
        assert "NOT COMPARED" not in shown
        assert main.elements.index == (0, 2, 1, 1), "the cursor stays where the user put it"


def test_elements_beyond_the_part_are_on_their_way(make_scene):
    from dataclasses import replace

    from qdebug.tui.pages.elements import ElementCursor
    from qdebug.tui.pages.values_page import ValuesPage

    scene = make_scene(row=20, filled=12)
    values = np.full((1, 1, 2, 3), 7.0, np.float32)
    request = DetailRequest(id=1, row=20, tensor="t", sample=None, elements=True)
    seen = Glimpsed(request=request, part=make_slab(values, values, place=((0, 0, 0, 0), (1, 4, 6, 6))), sample=0)
    cursor = ElementCursor()
    page, scene = ValuesPage(cursor), replace(scene, glimpse=seen)
    shown = ["".join(text for text, _ in line) for line in page.draw(scene, 200, 30)]
    row = next(line for line in shown if scene.glyphs.cursor in line)
    assert (row.count("7"), row.count("..")) == (6, 9)
    assert cursor.jump(scene, "0,3,5,5") == "element 0,3,5,5"
    assert "@0,3,5,5  is being read" in "".join(text for line in page.draw(scene, 200, 30) for text, _ in line)
    assert cursor.on(scene) is None, "what draws the whole tensor waits"
    assert "cannot be shown" in "".join(
        text
        for line in page.draw(replace(scene, glimpse=replace(seen, part=None, problem="gone")), 200, 30)
        for text, _ in line
    )


def test_a_window_keeps_its_place(make_session):
    session = make_session()
    window = session.window("block0/qlinearconv_0_out", around=None, extents=EXTENTS)
    assert part_of(window).whole == (1, 4, 6, 6)
