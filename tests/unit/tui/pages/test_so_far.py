"""What the screens of elements show of a tensor that is being read: labelled, and nothing of what is not known yet."""

from dataclasses import replace

import numpy as np
import pytest

from qdebug.tui.events import Glimpsed
from qdebug.tui.pages.channels_page import ChannelsPage
from qdebug.tui.pages.elements import ElementCursor
from qdebug.tui.pages.map_page import MapPage
from qdebug.tui.pages.values_page import ValuesPage
from qdebug.tui.requests import DetailRequest
from qdebug.tui.slab import Filling, make_slab


@pytest.fixture
def reading(make_scene, monkeypatch):
    """Give a scene whose tensor, of which channel 2 is the worst so far, is read up to channel 3 of 6."""
    monkeypatch.setattr("qdebug.numerics.channels.BLOCK", 12)
    backend = np.ones((1, 6, 3, 4), np.float32)
    backend[0, 2], backend[0, 5] = 3, 50
    filling = Filling(np.zeros_like(backend), backend)
    for _ in range(3):
        filling.more(seconds=-1)
    scene = make_scene(row=9)
    return replace(scene, ready=replace(scene.ready, slab=filling.slab(), complete=False), glimpse=None)


def drawn(page, scene, width=79):
    return "\n".join("".join(text for text, _ in line) for line in page.draw(scene, width, 20))


def test_channels_so_far(reading):
    page = ChannelsPage(ElementCursor())
    shown = drawn(page, reading)
    assert "SO FAR: 50% of the tensor is read" in shown
    assert "3 of 6 channels along dimension 1" in shown
    rows = [line.split() for line in shown.split("\n")[3:6]]
    assert next(word for word in rows[0] if word.isdigit()) == "2", "the worst of those that are known"
    assert "50" not in rows[0]


def test_the_cursor_may_be_on_a_channel_that_is_not_read(reading):
    cursor = ElementCursor()
    page = ChannelsPage(cursor)
    drawn(page, reading)
    cursor.jump(reading, "0,5,0,0")
    assert "3 of 6 channels" in drawn(page, reading)
    page.move(reading, 1)
    assert cursor.index[1] in (0, 1, 2)


def test_a_map_so_far(reading):
    cursor = ElementCursor()
    page = MapPage(cursor)
    drawn(page, reading)
    cursor.jump(reading, "0,0,0,0")
    shown = drawn(page, reading)
    assert "SO FAR: 50%" in shown
    assert "diff 1" in shown
    page.toggle()
    assert "blank: not read yet" in drawn(page, reading)
    assert (page._pooled < 0).sum() == 3 * 12
    page.toggle()
    cursor.jump(reading, "0,4,1,1")
    shown = drawn(page, reading)
    assert "is being read" in shown
    assert (page._pooled < 0).all()


def test_the_elements_around_an_unread_one_are_a_window(reading):
    values = np.full((1, 1, 2, 3), 7.0, np.float32)
    request = DetailRequest(id=1, row=9, tensor="t", sample=None, elements=True)
    part = make_slab(values, values + 1, place=((0, 4, 1, 1), (1, 6, 3, 4)))
    scene = replace(reading, glimpse=Glimpsed(request=request, part=part, sample=0))
    cursor = ElementCursor()
    page = MapPage(cursor)
    drawn(page, scene)
    cursor.jump(scene, "0,4,1,1")
    shown = drawn(page, scene)
    assert "the elements around this one; the whole tensor is being read" in shown
    assert "rows 1..2 of 3" in shown
    assert "columns 1..3 of 4" in shown
    assert "be   8" in shown
    cursor.jump(scene, "0,4,0,0")
    assert "@0,4,0,0  is being read" in drawn(page, scene)
    cursor.jump(scene, "0,1,0,0")
    assert "SO FAR" in drawn(page, scene), "this plane is there as a whole"
    assert "SO FAR" in drawn(ValuesPage(cursor), scene)


def test_an_uncompared_tensor_has_a_map_of_what_is_around(make_scene):
    scene = make_scene(row=20, filled=12)
    values = np.full((1, 1, 2, 3), 7.0, np.float32)
    request = DetailRequest(id=1, row=20, tensor="t", sample=None, elements=True)
    seen = Glimpsed(request=request, part=make_slab(values, values, place=((0, 0, 0, 0), (1, 4, 6, 6))), sample=0)
    shown = drawn(MapPage(ElementCursor()), replace(scene, glimpse=seen), 80)
    assert "NOT COMPARED YET: elements as they were recorded, nothing is judged" in shown


def test_too_many_channels_to_list_are_said(make_scene):
    scene = make_scene(row=9)
    values = np.zeros((1 << 18) + 1, np.float32)
    scene = replace(scene, ready=replace(scene.ready, slab=make_slab(values, values)))
    assert "145 channels, too many to list" in drawn(ChannelsPage(ElementCursor()), scene)
