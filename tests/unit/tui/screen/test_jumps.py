"""Keys pressed before their answer is known: they wait in sight, go where they ask for, and others take them back."""

import threading
from dataclasses import replace
from functools import partial

import pytest

from qdebug.model import Graph
from qdebug.tui.reading.messages import Computed, Opening, StatusMessage
from qdebug.tui.screen.jumps import FIRST_DIVERGENCE, go_to_failing, go_to_output

pytestmark = pytest.mark.asyncio

FIRST = "first divergence: still comparing; will go there"


@pytest.fixture
def held(make_app, make_session, settle):
    """Return a function that starts an application whose comparison stands still at a node, and runs a test on it."""

    async def run(act, *, at=5, **options):
        session = make_session(pause_at=at)
        app = make_app(session, **options)
        async with app.run_test(size=(80, 24)) as pilot:
            try:
                main = await settle(
                    pilot, until=lambda main: main.current.opened and main.navigator.table.compared == at
                )
                await act(pilot, main, session)
            finally:
                session.resume.set()

    return run


@pytest.mark.parametrize(
    ("key", "words", "row", "said"),
    [
        ("!", FIRST, 9, "at the first divergence"),
        ("]", "next failing node: still comparing", 9, ""),
        ("n", "next failing node: still comparing", 9, ""),
        ("W", "origin: still comparing", 17, "origin"),
    ],
)
async def test_what_is_not_known_yet_is_waited_for(held, settle, key, words, row, said):
    async def act(pilot, main, session):
        await pilot.press(key)
        assert words in main.message
        assert main.navigator.cursor == 0
        session.resume.set()
        await settle(pilot)
        assert main.navigator.cursor == row
        assert said in main.message
        assert "waited" not in main.message
        assert "still comparing" not in main.message

    await held(act)


async def test_the_first_divergence_is_gone_to_before_all_is_compared(held, settle):
    async def act(pilot, main, session):
        await pilot.press("!")
        session.pause_at = 12
        await settle(pilot, until=lambda main: main.navigator.table.compared == 12 and main.navigator.cursor == 9)
        assert main.message == "at the first divergence so far"

    await held(act)


async def test_results_that_came_before_the_screen_looked_are_gone_to(held, settle):
    async def act(pilot, main, session):
        await pilot.press("!")
        main.navigator.table.is_announced = True  # no other event tells of what comes until these are drawn
        main.post_message(Computed())
        session.pause_at = 12
        await settle(pilot, until=lambda main: main.navigator.table.compared == 12 and main.navigator.cursor == 9)
        assert main.message == "at the first divergence so far"

    await held(act)


async def test_the_origin_of_a_chosen_node_is_known_once_that_is_compared(held, settle):
    async def act(pilot, main, session):
        await pilot.press("j", "j", "j", "j", "j", "j", "W")
        assert "origin: still comparing" in main.message
        session.pause_at = 8
        await settle(pilot, until=lambda main: main.navigator.table.compared == 8 and "so far" in main.message)
        assert not main.is_finished

    await held(act)


async def test_what_is_waited_for_in_vain_is_said(make_app, make_session, settle):
    session = make_session(failing=(), pause_at=5)
    async with make_app(session).run_test(size=(80, 24)) as pilot:
        main = await settle(pilot, until=lambda main: main.current.opened)
        await pilot.press("!")
        assert FIRST in main.message
        session.resume.set()
        await settle(pilot)
        assert main.message == "no node is beyond its limit"


@pytest.mark.parametrize("key", ["j", "escape", "backspace", "m", "enter", "5"])
async def test_another_key_takes_the_wish_back(held, settle, key):
    async def act(pilot, main, session):
        await pilot.press("!", key)
        here = main.navigator.cursor
        assert FIRST not in main.message
        if key in {"escape", "backspace"}:
            assert main.message == "no longer waiting"
        session.resume.set()
        await settle(pilot)
        assert main.navigator.cursor == here != 9

    await held(act)


async def test_reading_the_help_takes_no_wish_back(held, settle):
    async def act(pilot, main, session):
        await pilot.press("!", "?", "escape", "Z")
        session.resume.set()
        await settle(pilot)
        assert main.navigator.cursor == 9

    await held(act)


async def test_news_does_not_hide_what_is_waited_for(held):
    async def act(pilot, main, session):
        await pilot.press("!")
        main.post_message(StatusMessage(message="computing again"))
        await pilot.pause()
        assert main.message.startswith("computing again; first divergence: still comparing")

    await held(act)


async def test_a_click_takes_the_wish_back(held, settle):
    async def act(pilot, main, session):
        await pilot.press("!")
        await pilot.click("#nodes", offset=(5, 3))
        session.resume.set()
        await settle(pilot)
        assert main.navigator.cursor == 2

    await held(act)


async def test_before_the_recordings_are_open_the_first_divergence_is_waited_for(make_app, make_session, settle):
    opened, session = threading.Event(), make_session()

    def slow():
        opened.wait(20)
        return session

    app = make_app(session)
    app._reader._comparisons[0].opening = Opening(compare=slow)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("!")
        assert app.screen.message.startswith(FIRST)
        opened.set()
        main = await settle(pilot)
        assert main.navigator.cursor == 9
        assert main.message.startswith("at the first divergence")


async def test_the_worst_output_is_gone_to_and_then_the_next(make_scene):
    scene = make_scene(failing=(), incomparable=())
    assert go_to_output(scene) == "no output of the network was compared"
    graph, rows = scene.opened.backend_graph, scene.table.rows
    ends = Graph(graph.nodes, tensors=graph.tensors.values(), outputs=[rows[at].tensor for at in (3, 20, 11)])
    scene = replace(scene, opened=replace(scene.opened, backend_graph=ends))
    errors = {at: scene.table.results[at].metrics.sqnr_db for at in (3, 20, 11)}
    worst_first = sorted(errors, key=errors.get)
    assert go_to_output(scene).startswith(
        f"output 1 of 3, the worst first, {rows[worst_first[0]].tensor}, SQNR {errors[worst_first[0]]:.3g}"
    )
    visited = [scene.row, *(go_to_output(scene) and scene.row for _ in range(3))]
    assert visited == [*worst_first, worst_first[0]]


async def test_the_origin_waits_for_the_verdict_that_knows_what_costs_most(make_app, make_session, settle):
    session = make_session(failing=(), incomparable=())
    judged, result = threading.Event(), session.result

    def late(**options):
        judged.wait(30)
        return result(**options)

    session.result = late
    app = make_app(session)
    async with app.run_test(size=(80, 24)) as pilot:
        try:
            main = await settle(pilot, until=lambda main: main.navigator and not main.navigator.table.pending)
            await pilot.press("j", "j", "W")
            await pilot.pause()
            assert "origin: still comparing" in main.message
            judged.set()
            await settle(pilot)
            assert "still comparing" not in main.message
        finally:
            judged.set()


async def test_where_no_node_fails_the_keys_walk_the_diagnosis(make_scene):
    scene = make_scene(failing=(), row=5)
    scene.table.diagnosis = {12: None, 3: None}
    for go, row in ((FIRST_DIVERGENCE.go, 12), (partial(go_to_failing, direction=-1), 3)):
        assert go(scene).startswith("no node is beyond its limit; ")
        assert scene.row == row
    assert "node 2 of 2 of the diagnosis" in go_to_failing(scene, 1)
    assert "no node of the diagnosis follows this one" in go_to_failing(scene, 1)
    assert scene.row == 12
    scene.navigator.choose_sample(0)
    assert go_to_failing(scene, -1) == "no node is beyond its limit", "the diagnosis is of all samples"
