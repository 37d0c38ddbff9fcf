"""Windows are asked for where the user goes, once, and not where all elements are in memory."""

from dataclasses import replace

import numpy as np
import pytest

from qdebug.compare.measure.pair_values import OpenPair
from qdebug.tui.elements.slab import slab_of
from qdebug.tui.elements.summing import Summing
from qdebug.tui.reading.glimpse import EXTENTS, ROOM
from qdebug.tui.reading.messages import DetailRequest, Glimpsed, LookAway, LookedAt, LookRequest, Withdraw
from qdebug.tui.screen.desk import DetailDesk, WindowDesk

KEY = (0, 9, None, 0)
WHOLE = np.broadcast_to(np.float32(1), (1, 4, 5000, 5000))
NEAR = EXTENTS[0] // 2 - ROOM - 1


@pytest.fixture
def asked():
    """Return the list of what is asked for."""
    return []


@pytest.fixture
def desk(asked):
    """Return a desk for windows."""
    return WindowDesk(asked.append)


def seen(request, *, plane=None):
    part = slab_of(OpenPair(WHOLE, WHOLE).window(request.element, EXTENTS))
    return Glimpsed(request=request, part=part, sample=0, plane=plane)


def test_elements_are_asked_for_where_the_user_goes(desk, asked):
    def go(*element):
        desk.want(KEY, "t", LookedAt(element or None))
        return [request.element for request in asked]

    assert go() == [None]
    assert go() == [None], "it is on its way"
    assert go(0, 0, 3000, 0) == [None, (0, 0, 3000, 0)]
    desk.take(seen(asked[0]))
    assert desk.seen_of(KEY) is None, "an answer to an older request is dropped"
    desk.take(seen(asked[1]))
    assert go(0, 0, 3000 + NEAR, 3) == [None, (0, 0, 3000, 0)], "all that is on the screen with it is there"
    edge = (0, 0, 3000 + NEAR + 1, 3)
    assert go(*edge)[2:] == [edge]
    assert go(*edge)[2:] == [edge], "it is on its way"
    assert go(0, 1, 0, 0)[3:] == [(0, 1, 0, 0)]
    assert desk.seen_of(KEY).request is asked[1], "what was read stays until then"
    assert desk.seen_of((0, 8, None, 0)) is None


def test_the_ends_of_the_tensor_need_no_more(desk, asked):
    desk.want(KEY, "t", LookedAt((0, 3, 4990, 4990)))
    desk.take(seen(asked[0]))
    desk.want(KEY, "t", LookedAt((0, 3, 4999, 4999)))
    assert len(asked) == 1


def test_a_plane_is_asked_for_where_it_is_looked_at(desk, asked):
    pair = OpenPair(WHOLE[..., :8, :8], WHOLE[..., :8, :8])

    def go(element, *, plane):
        desk.want(KEY, "t", LookedAt(element, plane))
        return len(asked)

    assert go((0, 1, 5, 5), plane=False) == 1
    desk.take(seen(asked[0]))
    assert go((0, 1, 5, 5), plane=True) == 2
    assert asked[-1].plane
    desk.take(seen(asked[1], plane=Summing(pair, (0, 1)).whole()))
    assert go((0, 1, 6, 6), plane=True) == 2, "it is there, or more of it will come"
    assert go((0, 1, 6, 6), plane=False) == 2
    assert go((0, 2, 6, 6), plane=True) == 3
    desk.take(seen(asked[2]))
    assert go((0, 2, 7, 6), plane=True) == 4, "another one was read"


def test_nothing_more_is_asked_of_a_tensor_that_came_whole(desk, asked):
    array = np.zeros((2, 3, 4), np.float32)
    desk.want(KEY, "t", LookedAt((0, 1, 1)))
    desk.take(Glimpsed(request=asked[0], part=slab_of(OpenPair(array, array).window(None, EXTENTS)), sample=0))
    desk.want(KEY, "t", LookedAt((1, 2, 3)))
    desk.want(KEY, "t", LookedAt((1, 1, 1), plane=True))
    assert len(asked) == 1


def test_who_looks_away_is_told_so_once(desk, asked):
    desk.want_nothing()
    assert not asked
    desk.want(KEY, "t", LookedAt())
    desk.want_nothing()
    desk.want_nothing()
    assert [type(request) for request in asked] == [LookRequest, LookAway]
    desk.take(seen(asked[0]))
    assert desk.seen_of(KEY) is None, "too late"
    desk.want(KEY, "t", LookedAt())
    assert asked[-1].id > asked[0].id


def test_what_cannot_be_read_is_not_asked_for_again(desk, asked):
    desk.want(KEY, "t", LookedAt())
    desk.take(Glimpsed(request=asked[0], part=None, sample=0, problem="gone"))
    desk.want(KEY, "t", LookedAt((0, 1, 2000, 2000)))
    assert len(asked) == 1


def test_a_row_is_answered_and_looked_at(make_navigator, make_scene, asked):
    desk, navigator = DetailDesk(asked.append), make_navigator()
    navigator.go(9)
    desk.want(navigator, elements=True)
    looked, detail = asked
    assert (type(looked), type(detail)) == (LookRequest, DetailRequest)
    desk.take(seen(looked))
    assert desk.glimpse(navigator) is not None
    ready = make_scene(row=9).ready
    object.__setattr__(ready, "request", detail)
    desk.take(ready)
    desk.want(navigator, elements=True)
    assert len(asked) == 2, "all is there"
    desk.forget()
    assert desk.glimpse(navigator) is None
    desk.want(navigator, elements=True)
    desk.want_nothing()
    assert [type(request) for request in asked[2:]] == [LookRequest, DetailRequest, LookAway, Withdraw]


@pytest.fixture
def answered(make_navigator, make_scene, asked):
    """Return a desk, its navigator, and a function that goes to a row and answers what is asked of it."""
    desk, navigator = DetailDesk(asked.append), make_navigator()

    def look(row, **wanted):
        navigator.go(row)
        desk.want(navigator, **wanted)
        request = next(each for each in asked[::-1] if isinstance(each, DetailRequest))
        desk.take(replace(make_scene(row=row, **wanted).ready, request=request))
        return request

    return desk, navigator, look


def test_what_is_known_need_not_be_found_out_again(answered, asked):
    desk, navigator, look = answered
    assert look(9, elements=False).known is None
    known = desk.ready(navigator)
    assert look(9, elements=True).known is known
    many = len(asked)
    desk.want(navigator, elements=True, explain=True)
    assert asked[-1].known.whole is not None
    desk.want(navigator, elements=True)
    assert [type(each) for each in asked[many:]] == [DetailRequest, Withdraw]


def test_all_samples_and_the_worst_one_have_the_same_elements(answered, asked):
    desk, navigator, look = answered
    look(9, elements=True)
    many = len(asked)
    navigator.choose_sample(2)
    desk.want(navigator, elements=True)
    assert desk.ready(navigator).complete
    assert len(asked) == many
    navigator.choose_sample(1)
    assert desk.ready(navigator) is None


def test_what_elements_come_to_is_kept_as_long_as_there_is_room(answered, monkeypatch):
    desk, navigator, look = answered
    for row in (9, 10, 12):
        look(row, elements=True)
    navigator.go(9)
    assert desk.ready(navigator).whole is not None
    monkeypatch.setattr("qdebug.tui.screen.desk._MOST_BYTES", desk.ready(navigator).whole.nbytes)
    look(13, elements=True)
    for row, left in ((9, False), (12, False), (13, True)):
        navigator.go(row)
        assert (desk.ready(navigator).whole is not None) is left
        assert desk.ready(navigator).values is not None
    assert look(9, elements=True).known.values is not None
