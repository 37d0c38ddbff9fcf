"""Requests follow what is shown: each is made once, where something is missing, and newer ones take its place."""

from dataclasses import replace

import numpy as np
import pytest

from qdebug.compare.measure.pair_values import OpenPair
from qdebug.model import QuantParams
from qdebug.tui.elements.slab import slab_of
from qdebug.tui.elements.summing import StatisticsReader
from qdebug.tui.reading.glimpse import VISIBLE_RADIUS, WINDOW_EXTENTS
from qdebug.tui.reading.messages import (
    BudgetWish,
    Glimpsed,
    Opening,
    ScaleWish,
    ShownElement,
    TrialReady,
)
from qdebug.tui.screen.loader import Loader

WHOLE = np.broadcast_to(np.float32(1), (1, 4, 5000, 5000))
NEAR = WINDOW_EXTENTS[0] // 2 - VISIBLE_RADIUS - 1


@pytest.fixture
def loader(monkeypatch):
    """Return a loader whose requests are not served, but listed as `requests`."""

    class Listed(Loader):
        def watch_detail(self, request):
            self.requests.append(("detail", request))

        def watch_window(self, request):
            self.requests.append(("window", request))

        def watch_trial(self, request):
            self.requests.append(("trial", request))

    loader = Listed([Opening(compare=lambda: None)])
    loader.requests = []
    monkeypatch.setattr(Glimpsed, "stop", lambda _: None)
    return loader


@pytest.fixture
def navigator(make_navigator):
    """Return a navigator at a row that is compared."""
    navigator = make_navigator()
    navigator.go(9)
    return navigator


def show(loader, navigator, *element, plane=False, elements=True, explain=False):
    """Show the row under the cursor; return the requests for windows so far."""
    looked_at = ShownElement(element or None, plane)
    loader.request_facts(
        navigator, backend=0, wants_elements=elements, wants_explanation=explain, shown_element=looked_at
    )
    return [request for kind, request in loader.requests if kind == "window" and request is not None]


def see(loader, *, plane=None, request=None):
    request = request or loader.window
    part = slab_of(OpenPair(WHOLE, WHOLE).window(request.element, WINDOW_EXTENTS))
    loader._take_glimpse(Glimpsed(request=request, part=part, sample=0, plane=plane))


def test_elements_are_requested_where_the_user_goes(loader, navigator):
    def elements(*element):
        return [request.element for request in show(loader, navigator, *element)]

    assert elements() == [None]
    first = loader.window
    assert elements() == [None], "it is on its way"
    assert elements(0, 0, 3000, 0) == [None, (0, 0, 3000, 0)]
    see(loader, request=first)
    assert loader.glimpse(navigator, backend=0) is None, "an answer to an older request is dropped"
    see(loader)
    assert elements(0, 0, 3000 + NEAR, 3) == [None, (0, 0, 3000, 0)], "all that is on the screen with it is there"
    edge = (0, 0, 3000 + NEAR + 1, 3)
    assert elements(*edge)[2:] == [edge]
    assert elements(*edge)[2:] == [edge], "it is on its way"
    assert elements(0, 1, 0, 0)[3:] == [(0, 1, 0, 0)]
    assert loader.glimpse(navigator, backend=0) is not None, "what was read stays until then"
    navigator.go(8)
    assert loader.glimpse(navigator, backend=0) is None


def test_the_ends_of_the_tensor_need_no_more(loader, navigator):
    show(loader, navigator, 0, 3, 4990, 4990)
    see(loader)
    assert len(show(loader, navigator, 0, 3, 4999, 4999)) == 1


def test_a_plane_is_requested_where_it_is_looked_at(loader, navigator):
    pair = OpenPair(WHOLE[..., :8, :8], WHOLE[..., :8, :8])
    assert len(show(loader, navigator, 0, 1, 5, 5)) == 1
    see(loader)
    assert len(show(loader, navigator, 0, 1, 5, 5, plane=True)) == 2
    assert loader.window.wants_plane
    see(loader, plane=StatisticsReader(pair, (0, 1)).statistics())
    assert len(show(loader, navigator, 0, 1, 6, 6, plane=True)) == 2, "it is there, or more of it will come"
    assert len(show(loader, navigator, 0, 1, 6, 6)) == 2
    assert len(show(loader, navigator, 0, 2, 6, 6, plane=True)) == 3
    see(loader)
    assert len(show(loader, navigator, 0, 2, 7, 6, plane=True)) == 4, "another one was read"


def test_nothing_more_is_requested_of_a_tensor_that_came_whole(loader, navigator):
    array = np.zeros((2, 3, 4), np.float32)
    show(loader, navigator, 0, 1, 1)
    part = slab_of(OpenPair(array, array).window(None, WINDOW_EXTENTS))
    loader._take_glimpse(Glimpsed(request=loader.window, part=part, sample=0))
    show(loader, navigator, 1, 2, 3)
    assert len(show(loader, navigator, 1, 1, 1, plane=True)) == 1


def test_elements_that_nobody_looks_at_are_freed_once(loader, navigator):
    loader.cancel_requests()
    assert not loader.requests
    show(loader, navigator)
    request = loader.window
    loader.cancel_requests()
    loader.cancel_requests()
    assert [kind for kind, _ in loader.requests] == ["window", "detail", "window", "detail"]
    see(loader, request=request)
    assert loader.glimpse(navigator, backend=0) is None, "too late"
    assert len(show(loader, navigator)) == 2


def test_what_cannot_be_read_is_not_requested_again(loader, navigator):
    show(loader, navigator)
    loader._take_glimpse(Glimpsed(request=loader.window, part=None, sample=0, problem="gone"))
    assert len(show(loader, navigator, 0, 1, 2000, 2000)) == 1


def test_facts_are_requested_once_the_tensor_is_compared(loader, make_navigator):
    navigator = make_navigator(filled=12)
    navigator.go(15)
    show(loader, navigator)
    assert (loader.window is None, loader.detail is None) == (False, True)
    navigator.go(9)
    show(loader, navigator)
    assert loader.detail.row == 9


@pytest.fixture
def answered(loader, navigator, make_scene):
    """Return a function that goes to a row, shows it and answers its request, which it returns."""

    def look(row, **wanted):
        navigator.go(row)
        show(loader, navigator, **wanted)
        request = loader.detail
        if request is not None:
            scene = make_scene(row=row, elements=wanted.get("elements", True))
            loader._take_detail(replace(scene.ready, request=request))
            show(loader, navigator, **wanted)
        return request

    return look


def test_facts_that_are_complete_need_no_request(loader, navigator, answered):
    assert answered(9, elements=False) is not None
    assert loader.detail is None
    assert answered(9, elements=False) is None
    assert answered(9).wants_elements
    assert answered(9, explain=True).wants_explanation
    loader.forget()
    assert loader.detail_of(navigator, backend=0) is None
    assert answered(9) is not None


def test_an_answer_of_an_earlier_opening_is_dropped(loader, navigator, make_scene):
    show(loader, navigator)
    old = loader.detail
    loader.forget()
    show(loader, navigator)
    assert loader.detail == old
    event = replace(make_scene(row=9).ready, request=old)
    loader._take_detail(event)
    assert event._stop_propagation
    assert loader.detail_of(navigator, backend=0) is None


def test_all_samples_and_the_worst_one_have_the_same_elements(loader, navigator, answered):
    answered(9)
    navigator.choose_sample(2)
    show(loader, navigator)
    assert loader.detail_of(navigator, backend=0).is_complete
    assert loader.detail is None
    navigator.choose_sample(1)
    assert loader.detail_of(navigator, backend=0) is None


def test_statistics_of_elements_are_kept_as_long_as_there_is_room(loader, navigator, answered, monkeypatch):
    def ready(row):
        navigator.go(row)
        return loader.detail_of(navigator, backend=0)

    for row in (9, 10, 12):
        answered(row)
    assert ready(9).statistics is not None
    monkeypatch.setattr("qdebug.tui.screen.loader._MAX_BYTES", ready(9).statistics.nbytes)
    answered(13)
    for row, is_kept in ((9, False), (12, False), (13, True)):
        assert (ready(row).statistics is not None) is is_kept
        assert ready(row).values is not None


def test_the_last_trial_of_a_row_stays_until_there_is_another(loader):
    quant = QuantParams(dtype="int8", scale=0.1, zero_point=0)
    loader.request_trial(0, 9, "t", ScaleWish())
    first = TrialReady(request=loader.trial)
    loader._take_trial(first)
    loader.request_trial(0, 9, "t", ScaleWish(quant=quant))
    assert loader.latest_trial(0, 9) is first
    loader._take_trial(TrialReady(request=first.request, problem="late"))
    assert loader.latest_trial(0, 9) is first, "an answer to an older request is dropped"
    assert loader.latest_trial(0, 8) is None
    loader.request_trial(0, 8, "u", ScaleWish())
    assert loader.latest_trial(0, 8) is None
    loader.request_trial(0, 8, "u", None)
    assert loader.trial is None


def test_a_budget_is_of_all_rows(loader):
    loader.request_trial(0, 9, "t", BudgetWish())
    loader._take_trial(TrialReady(request=loader.trial))
    loader.request_trial(0, 8, "u", BudgetWish())
    assert loader.latest_trial(0, 8) is not None
    assert len(loader.requests) == 1
