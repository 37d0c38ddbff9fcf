"""What the screens of elements show of a tensor that is being read: labelled, and nothing of what is not known yet."""

from dataclasses import replace

import numpy as np
import pytest

from qdebug.compare.measure.pair_values import OpenPair
from qdebug.tui.elements.slab import slab_of
from qdebug.tui.elements.summing import StatisticsReader
from qdebug.tui.reading.messages import Glimpsed, WindowRequest
from qdebug.tui.views.channels import ChannelsView
from qdebug.tui.views.elements import ElementCursor
from qdebug.tui.views.heat_map import MapView
from qdebug.tui.views.values import ValuesView


@pytest.fixture
def backend():
    """Return a tensor of six channels of ones, of which channel 2 is the worst of the first half, and 5 of all."""
    backend = np.ones((1, 6, 3, 4), np.float32)
    backend[0, 2], backend[0, 5] = 3, 50
    return backend


@pytest.fixture
def pair(backend):
    """Return the pair of that tensor and one of zeros."""
    return OpenPair(np.zeros_like(backend), backend)


@pytest.fixture
def reading(make_scene, pair, monkeypatch):
    """Return a scene whose tensor is read up to channel 3 of 6."""
    monkeypatch.setattr("qdebug.numerics.channels.BLOCK", 12)
    summing = StatisticsReader(pair)
    for _ in range(3):
        summing.read_more(seconds=-1)
    scene = make_scene(row=9)
    return replace(scene, ready=replace(scene.ready, statistics=summing.statistics(), is_complete=False), glimpse=None)


@pytest.fixture
def look(pair):
    """Return a function that puts what is around an element into a scene, and as many blocks of its plane as asked."""

    def at(scene, element, *, extents=(2, 3), blocks=None):
        sums = StatisticsReader(pair, element[:-2])
        for _ in range(99 if blocks is None else blocks):
            sums.read_more(seconds=-1)
        request = WindowRequest(row=9, tensor="t", sample=None, element=element, wants_plane=True)
        part = slab_of(pair.window(element, extents))
        return replace(scene, glimpse=Glimpsed(request=request, part=part, sample=0, plane=sums.statistics()))

    return at


def drawn(page, scene, width=79):
    return "\n".join("".join(text for text, _ in line) for line in page.draw(scene, width, 20))


def test_channels_so_far(reading):
    page = ChannelsView(ElementCursor())
    shown = drawn(page, reading)
    assert "SO FAR: 50% of the tensor has been read" in shown
    assert "3 of 6 channels along dimension 1" in shown
    rows = [line.split() for line in shown.split("\n")[3:6]]
    assert next(word for word in rows[0] if word.isdigit()) == "2", "the worst of those that are known"
    assert "50" not in rows[0]


def test_the_cursor_may_be_on_a_channel_that_is_not_read(reading):
    cursor = ElementCursor()
    page = ChannelsView(cursor)
    drawn(page, reading)
    cursor.jump(reading, "0,5,0,0")
    assert "3 of 6 channels" in drawn(page, reading)
    page.move(reading, 1)
    assert cursor.index[1] in (0, 1, 2)


def test_a_map_of_all_channels_so_far(reading, look):
    cursor = ElementCursor()
    page = MapView(cursor)
    page.next_form(reading)
    shown = drawn(page, reading)
    assert "SO FAR: 50% of the tensor has been read" in shown
    assert "blank: not read yet" in shown
    assert "is being read .." in shown, "of the element under the cursor no value is known"
    assert (reading.ready.statistics.difference_map < 0).sum() == 3 * 12
    cursor.jump(reading, "0,2,1,1")
    shown = drawn(page, look(reading, (0, 2, 1, 1)))
    assert "backend 3" in shown
    assert "channel 2, so far:" in shown


def test_a_map_of_a_plane_so_far(reading, look, monkeypatch):
    monkeypatch.setattr("qdebug.numerics.channels.BLOCK", 4)
    cursor = ElementCursor()
    page = MapView(cursor)
    assert "the plane [0,0] is being read" in drawn(page, reading)
    cursor.jump(reading, "0,5,0,0")
    begun = look(reading, (0, 5, 0, 0), blocks=1)
    shown = drawn(page, begun)
    assert "SO FAR: 33% of the plane has been read" in shown
    assert "down: rows 0..2" in shown
    assert "right: columns 0..3" in shown
    assert "0..50" in shown, "the largest one of the plane: that of the tensor is not known"
    assert begun.glimpse.plane.difference_map.tolist() == [[50] * 4, [-1] * 4, [-1] * 4]
    shown = drawn(page, look(reading, (0, 5, 0, 0)))
    assert "SO FAR" not in shown
    assert "blank" not in shown
    cursor.jump(reading, "0,4,0,0")
    assert "the plane [0,4] is being read" in drawn(page, look(reading, (0, 5, 0, 0))), "the map is of another plane"


def test_a_huge_tensor_that_is_read_is_seen_through_a_window(reading, look, pair):
    summing = StatisticsReader(pair)
    assert summing.read_more()
    scene = replace(reading, ready=replace(reading.ready, statistics=summing.statistics(), is_complete=True))
    cursor = ElementCursor()
    page = ValuesView(cursor)
    cursor.jump(look(scene, (0, 0, 0, 0)), "0,4,1,1")
    shown = drawn(page, look(scene, (0, 4, 1, 1)))
    assert "@0,4,1,1  reference 0  backend 1" in shown
    assert "the elements around this one" not in shown, "nothing is missing"
    assert cursor.slab(look(scene, (0, 4, 1, 1))).largest == 50, "that of the whole tensor"
    cursor.jump(scene, "0,4,2,3")
    shown = drawn(page, look(scene, (0, 4, 0, 0)))
    assert "@0,4,2,3  is being read .." in shown
    assert "1.0" not in shown.split("@0,4,2,3")[1], "no number of another element"
    cursor.jump(scene, "0,5,2,3")
    rows = drawn(page, look(scene, (0, 4, 2, 3))).splitlines()[4:7]
    assert all(set(row.split()[1:]) <= {".."} or ".." in row for row in rows), "the window is of another plane"


def test_while_it_is_read_the_window_says_that_more_is_to_come(reading, look):
    shown = drawn(ValuesView(ElementCursor()), look(reading, (0, 0, 0, 0)))
    assert "the elements around this one; the whole tensor is being read" in shown


def test_an_uncompared_tensor_has_a_map(make_scene, look):
    scene = look(make_scene(row=20, filled=12), (0, 0, 0, 0))
    shown = drawn(MapView(ElementCursor()), scene, 80)
    assert "NOT COMPARED YET: elements as they were recorded, nothing is judged" in shown
    assert "plane [0,0]" in shown
    page = MapView(ElementCursor())
    page.next_form(scene)
    assert "not compared yet" in drawn(page, scene, 80), "all channels are known once it is compared"


def test_elements_that_cannot_be_read_say_why(reading):
    request = WindowRequest(row=9, tensor="t", sample=None)
    seen = Glimpsed(request=request, part=None, sample=0, problem="the file is gone")
    scene = replace(reading, glimpse=seen)
    for page in (ValuesView(ElementCursor()), MapView(ElementCursor())):
        assert "the file is gone" in drawn(page, scene)


def test_too_many_channels_to_list_are_said(make_scene):
    scene = make_scene(row=9)
    values = np.zeros((1 << 18) + 1, np.float32)
    summing = StatisticsReader(OpenPair(values, values))
    summing.read_more()
    scene = replace(scene, ready=replace(scene.ready, statistics=summing.statistics()))
    assert "145 channels, too many to list" in drawn(ChannelsView(ElementCursor()), scene)
