"""The fake session, and an application on it."""

import importlib.util
import sys
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest

from qdebug.errors import UsageError
from qdebug.tui.application import QdebugApp
from qdebug.tui.drawing.glyphs import UNICODE
from qdebug.tui.elements.slab import slab_of
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import NodeTable, shown_sample
from qdebug.tui.reading.answers import Answers
from qdebug.tui.reading.glimpse import WINDOW_EXTENTS, OpenPairs
from qdebug.tui.reading.messages import DetailRequest, Glimpsed, Opening, WindowRequest
from qdebug.tui.reading.plan_rows import describe_comparison, plan_rows
from qdebug.tui.screen.start_place import StartPlace
from qdebug.tui.views.view import Scene


def _load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


fake = _load("fake_session")
pseudo_terminal = _load("pseudo_terminal")
byte = _load("byte_terminal")
threads = _load("worker_threads")


@pytest.fixture
def terminal():
    """Provide a function that starts a command on a terminal of its own."""
    running = []

    def start(command):
        running.append(pseudo_terminal.Terminal(command))
        return running[-1]

    yield start
    for each in running:
        each.close()


@pytest.fixture
def make_workers():
    """Provide a function that makes the worker threads of some openings; all of them end with the test."""
    made = []

    def make(*openings):
        made.append(threads.WorkerThreads(*openings))
        return made[-1]

    yield make
    ended = [each.stop() for each in made]
    assert all(ended)


@pytest.fixture
def byte_terminal():
    """Return the class of a terminal for an application of this process."""
    return byte.ByteTerminal


@pytest.fixture
def make_pair():
    """Return a function that makes an open pair of two arrays, and of codes and quantization if they are given."""
    return lambda *arrays: fake.Pair(fake.Values(*arrays))


@pytest.fixture
def make_session():
    """Return the fake session's class."""
    return fake.FakeSession


@pytest.fixture
def make_app():
    """Provide a function that makes an application on a session; it starts on the screen with all nodes."""
    sessions = []

    def make(session, *others, node=None, sample=None, screen="nodes", wanted="", **options):
        titles = [("ref.h5", "npu.h5"), ("ref.h5", "other.h5")][: 1 + len(others)]
        begin = StartPlace(node=node, sample=sample, screen=screen, filter=wanted)
        sources = [Opening(compare=lambda each=each: each) for each in (session, *others)]
        sessions.extend((session, *others))
        return QdebugApp(sources, titles=titles, start_place=begin, **options)

    yield make
    for session in sessions:
        if isinstance(session, fake.FakeSession):  # the event loop waits for its threads
            session.resume.set()


@pytest.fixture
def settle():
    """Return a function that waits until everything is computed and the detail is complete."""

    async def wait(pilot, *, until=None):
        main = pilot.app.screen_stack[0]

        def done():
            if until is not None:
                return until(main)
            ready = None if main.navigator is None else main.detail_ready
            computed = main.is_finished
            missing = main.navigator is not None and main.navigator.table.rows[main.navigator.cursor].missing
            return computed and (not main.shows_detail or missing or (ready is not None and ready.is_complete))

        end = time.monotonic() + 60  # a busy machine takes its time
        while time.monotonic() < end:
            await pilot.pause(0.01)
            if pilot.app.failure is not None or done():
                await pilot.pause()
                return main
        raise AssertionError("the application did not settle")

    return wait


class _Unguarded(fake.FakeSession):
    """For the tests of the model, which have no reader thread."""

    def guard(self):
        pass


@pytest.fixture
def make_table():
    """Return a function that makes a table, filled as far as asked."""

    def make(nodes=24, *, filled=None, **options):
        session = _Unguarded(nodes, **options)
        table = NodeTable(plan_rows(session))
        for result in islice(session.results(), filled):
            table.put(result)
        return table

    return make


@pytest.fixture
def make_scene():
    """Return a function that makes what a page draws; everything is compared and read."""

    def make(nodes=24, *, row=9, glyphs=UNICODE, colours=True, filled=None, elements=True, arrays=None, **options):
        session = _Unguarded(nodes, **options)
        opened = describe_comparison(session)
        results = list(islice(session.results(), filled))
        for result in results:
            opened.table.put(result)
        navigator = Navigator(opened.table, samples=opened.samples)
        navigator.go(row)
        planned, ready, glimpse, found = opened.table.rows[row], None, None, opened.table.results[row]
        if planned.missing is None and found is not None:
            if arrays is not None:
                session.values = lambda *_: fake.Values(*arrays)
            where = {"row": row, "tensor": planned.tensor, "sample": shown_sample(found, None, None)}
            *_, ready = Answers(OpenPairs()).answer(
                session, DetailRequest(**where, wants_elements=elements), found, lambda: False
            )
            with suppress(UsageError):
                part = slab_of(session.pair(planned.tensor).window(None, WINDOW_EXTENTS))
                glimpse = Glimpsed(request=WindowRequest(**where), part=part, sample=where["sample"])
        return Scene(
            navigator=navigator,
            opened=opened,
            result=session.result() if filled is None else None,
            ready=ready,
            glimpse=glimpse,
            glyphs=glyphs,
            colours=colours,
        )

    return make


@pytest.fixture
def make_navigator(make_table):
    """Return a function that makes a navigator on a table."""
    return lambda nodes=24, **options: Navigator(make_table(nodes, **options), samples=options.get("samples", 3))
