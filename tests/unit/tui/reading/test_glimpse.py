"""Elements around the one looked at: seen at once, read further where one goes, unjudged before they are compared."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from qdebug.compare.measure.pair_values import OpenPair
from qdebug.errors import RecordingError
from qdebug.tui.elements.slab import slab_of
from qdebug.tui.reading.glimpse import Glimpser, OpenPairs
from qdebug.tui.reading.messages import Finished, Glimpsed, Opening, WindowRequest
from qdebug.tui.views.elements import ElementCursor
from qdebug.tui.views.values import ValuesView


class Source:
    """A comparison of one pair of tensors.

    Args:
        values: Both sides.
    """

    def __init__(self, values):
        self.values = values

    def pair(self, tensor, *, sample, step):
        return OpenPair(*self.values)


WORKER = SimpleNamespace(cancelled_event=threading.Event(), is_cancelled=False)


@pytest.fixture
def glimpser():
    """Provide a function that makes a reader of windows; it gives that and what it posts."""

    def make(source):
        events = []
        return Glimpser(lambda _: source, events.append, OpenPairs()), events

    return make


def request(*element, plane=False):
    return WindowRequest(row=0, tensor="t", sample=3, element=element or None, wants_plane=plane)


def test_the_elements_around_one_are_read(glimpser):
    values = np.arange(4e6).reshape(2, 2, 1000, 1000)
    glimpser, events = glimpser(Source((values, values + 1)))
    asked = request(1, 1, 500, 998)
    glimpser.read_window(asked, WORKER)
    (seen,) = events
    assert (seen.request, seen.sample, seen.problem, seen.plane) == (asked, 3, "", None)
    assert seen.part.reference[seen.part.local_index((1, 1, 500, 998))] == values[1, 1, 500, 998]
    assert seen.part.covers_surroundings((1, 1, 500, 998), 64)
    assert seen.part.backend.nbytes <= 2 << 20


def test_a_map_of_the_plane_comes_with_them_and_is_read_once(glimpser):
    values = np.zeros((3, 700, 600), np.float32)
    glimpser, events = glimpser(Source((values, values + 2)))
    glimpser.read_window(request(1, 5, 5, plane=True), WORKER)
    assert not events[-1].plane.unread_count
    assert events[-1].plane.plane_index == (1,)
    assert (events[-1].plane.difference_map == 2).all()
    sums, many = glimpser._plane[2], len(events)
    glimpser.read_window(request(1, 600, 500, plane=True), WORKER)
    assert glimpser._plane[2] is sums
    assert [event.plane.unread_count for event in events[many:]] == [0]
    glimpser.read_window(request(2, 600, 500, plane=True), WORKER)
    assert events[-1].plane.plane_index == (2,)
    assert glimpser._plane[2] is not sums


def test_what_was_cancelled_is_not_read_and_the_newest_is(make_workers, make_session):
    session = make_session()
    opened, resume, open_pair = [], threading.Event(), session.pair

    def pair(tensor, **place):
        opened.append(tensor)
        resume.wait(20)
        return open_pair(tensor, **place)

    session.pair = pair
    workers = make_workers(Opening(compare=lambda: session)).compare()
    workers.until(Finished)
    for row in range(20):
        tensor = f"block{row // 4}/{('qlinearconv', 'qlinearadd', 'relu', 'maxpool')[row % 4]}_{row}_out"
        workers.look(WindowRequest(row=row, tensor=tensor, sample=None))
    resume.set()
    assert workers.until(Glimpsed)[-1].request.row == 19
    assert len(opened) <= 2


def test_nothing_is_kept_of_what_nobody_looks_at(glimpser):
    values = np.zeros((1 << 10, 1 << 10), np.float32)
    glimpser, _ = glimpser(Source((values, values)))
    glimpser.read_window(request(0, 0, plane=True), WORKER)
    assert glimpser._pairs.nbytes == 4 << 20
    glimpser.read_window(None, WORKER)
    assert not glimpser._pairs.nbytes
    assert glimpser._plane is None


def test_what_cannot_be_read_is_said(glimpser):
    class Broken:
        def pair(self, *_, **__):
            raise RecordingError("the file is damaged")

    glimpser, events = glimpser(Broken())
    glimpser.read_window(request(), WORKER)
    assert [(seen.part, seen.problem) for seen in events] == [(None, "the file is damaged")]


async def test_what_is_not_compared_yet_can_be_seen_and_is_said_to_be_unjudged(make_app, make_session, settle):
    session = make_session(pause_at=12)
    app = make_app(session, node="block5/qlinearadd_21", screen="values")
    async with app.run_test(size=(120, 40)) as pilot:
        main = await settle(pilot, until=lambda main: main.scene is not None and main.scene.glimpse is not None)
        shown = "\n".join("".join(text for text, _ in line) for line in main.page.draw(main.scene, 118, 30))
        assert "NOT COMPARED YET" in shown
        assert "reference -1.5" in shown
        await pilot.press("@", *"0,2,1,1", "enter")
        await pilot.pause()
        assert main.elements.index == (0, 2, 1, 1)
        assert "@0,2,1,1  reference" in "\n".join(
            "".join(text for text, _ in line) for line in main.page.draw(main.scene, 118, 30)
        )
        session.resume.set()
        main = await settle(pilot)
        shown = "\n".join("".join(text for text, _ in line) for line in main.page.draw(main.scene, 118, 30))
        assert "NOT COMPARED" not in shown
        assert main.elements.index == (0, 2, 1, 1), "the cursor stays where the user put it"


def test_elements_beyond_the_part_are_on_their_way(make_scene):
    scene = make_scene(row=20, filled=12)
    values = np.full((1, 4, 6, 6), 7.0, np.float32)
    seen = Glimpsed(request=request(), part=slab_of(OpenPair(values, values).window(None, (2, 3))), sample=0)
    cursor = ElementCursor()
    page, scene = ValuesView(cursor), replace(scene, glimpse=seen)
    shown = ["".join(text for text, _ in line) for line in page.draw(scene, 200, 30)]
    row = next(line for line in shown if scene.glyphs.cursor in line)
    assert (row.count("7.0"), row.count("..")) == (6, 3), "three are here, with both sides; three are on their way"
    assert cursor.jump(scene, "0,3,5,5") == "element 0,3,5,5"
    assert "@0,3,5,5  is being read" in "".join(text for line in page.draw(scene, 200, 30) for text, _ in line)
    assert cursor.statistics(scene) is None, "what draws the whole tensor waits"
    assert "cannot be shown" in "".join(
        text
        for line in page.draw(replace(scene, glimpse=replace(seen, part=None, problem="gone")), 200, 30)
        for text, _ in line
    )


def test_a_fault_of_ours_is_handed_to_the_screen_and_not_told_of_the_values(glimpser):
    source = Source((np.zeros(3), np.zeros(3)))
    source.pair = lambda *_, **__: len(None)
    glimpser, _ = glimpser(source)
    with pytest.raises(TypeError):
        glimpser.read_window(request(), WORKER)
