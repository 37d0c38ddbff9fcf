"""Every key on every screen, as the bytes that a plain terminal sends for it: it changes the screen, or says why not.

The recordings are of every kind there is: with what is missing, not finite, kept in part, alone, or still growing.
"""

import time
from pathlib import Path

import numpy as np
import pytest

from qdebug.cli.main import main
from qdebug.recording.recorder import Recorder
from qdebug.running.demo import run_demo
from qdebug.tui.app import TuiChoices, _make_opening
from qdebug.tui.application import QdebugApp
from qdebug.tui.screen.bindings import shared_key_rows, view_key_rows
from qdebug.tui.screen.main_screen import MainScreen
from qdebug.tui.screen.start_place import StartPlace
from qdebug.tui.screens import VIEWS, ScreenId
from qdebug.tui.views.table import view_class

SLOW = pytest.mark.slow
RNG = np.random.default_rng(11)
SHAPE = (1, 4, 5, 6)


def keys_of(view, *left_out):
    """Return the keys of a screen, its own first."""
    rows = (*view_key_rows(view_class(view)), *shared_key_rows())
    return list(dict.fromkeys(key for row in rows if row.action.partition("(")[0] not in left_out for key in row.keys))


MANY = pytest.mark.parametrize("every", [3, pytest.param(1, marks=SLOW)])
"""Of how many keys one is pressed."""


def all_compared(main):
    return all(each.result is not None or each.failure is not None for each in main.backend_states)


@pytest.fixture
def dead_keys(byte_terminal):
    """Return a function that presses every key on each of some screens, and gives those that change nothing.

    Nothing is said before a key is pressed, so that whoever says the same as another is heard.
    """

    async def press_all(make, views, until=all_compared, keys=keys_of, every=1):
        terminal, dead = byte_terminal(), []

        async def act(pilot):
            app = pilot.app
            main = app.screen_stack[0]
            end = time.monotonic() + 60
            while time.monotonic() < end:
                await pilot.pause(0.01)
                if app.failure is not None or until(main):
                    break
            assert app.failure is None, app.failure
            for view, key in ((each, key) for each in views for key in keys(each)[::every]):
                if main.view is not view:
                    main.action_screen(str(view))
                    await pilot.pause(0.1)  # the footer follows the screen
                if main.view is not view:  # which has nothing to show here
                    break
                main.say("")
                before = await terminal.still()
                await terminal.press(key)
                if terminal.image == before:
                    dead.append((key, view))
                while app.screen is not main or main.is_asking:
                    await terminal.press("escape")
            assert app.failure is None, app.failure

        await terminal.run(make, act)
        return dead

    return press_all


def test_every_key_of_the_table_is_one_that_a_plain_terminal_sends(byte_terminal):
    for key in (key for view in VIEWS for key in keys_of(view)):
        assert key in byte_terminal.keys or (len(key) == 1 and key.isalnum()), key


@pytest.mark.parametrize("views", [(ScreenId.NODES,), pytest.param(VIEWS, marks=SLOW)], ids=["nodes", "all"])
async def test_no_key_is_dead_on_any_screen(dead_keys, make_app, make_session, views):
    assert not await dead_keys(lambda: make_app(make_session(), make_session(failing=(9,))), views)


@MANY
@pytest.mark.parametrize("views", [(ScreenId.ANSWER,), pytest.param(VIEWS, marks=SLOW)], ids=["answer", "all"])
async def test_no_key_is_dead_where_there_is_no_node(dead_keys, make_app, make_session, views, every):
    session = make_session(0)
    session._alignment = type(session._alignment)(pairs=(), unmatched=())
    made = make_app(session, screen="answer")
    assert not await dead_keys(lambda: made, views, lambda main: main.is_finished, every=every)


async def test_a_dead_key_is_found(dead_keys, make_app, make_session, monkeypatch):
    monkeypatch.setattr(MainScreen, "action_mark", lambda _: None)
    found = await dead_keys(lambda: make_app(make_session()), (ScreenId.GRAPH,), keys=lambda _: ["m", "j"])
    assert found == [("m", ScreenId.GRAPH)]


def record(path, *, noise=0.0, nodes=5, keep=None, quantized=False, nan=False, left_out=(), samples=2, close=True):
    """Record a chain of nodes."""
    rec = Recorder(path, backend="npu" if quantized else "float", **({} if keep is None else {"keep": keep}))
    for sample in range(samples):
        values = np.random.default_rng(sample).standard_normal(SHAPE).astype(np.float32)
        for number in range(nodes):
            values = np.maximum(values, 0) if number % 2 else np.abs(values) - np.float32(0.4)
            stored = values + RNG.standard_normal(SHAPE).astype(np.float32) * np.float32(noise * (number == 2))
            if nan and number == 3:
                stored[0, 1, 2, 3] = np.nan
            facts = {"node": f"block{number // 2}/n{number}", "op": "Relu" if number % 2 else "Abs"}
            facts["inputs"] = (f"t{number - 1}",) if number else ()
            if quantized:
                stored = np.clip(np.rint(np.nan_to_num(stored) / 0.05), -128, 127).astype(np.int8)
                facts |= {"scale": 0.05, "zero_point": 0}
            if number not in left_out:
                rec.put(f"t{number}", stored, **facts)
        if sample + 1 < samples:
            rec.next_sample()
    if close:
        rec.close()
    return path


def interpreted(folder):
    """Run the built-in int8 net with the interpreter, in its own arithmetic and in another one."""
    int8 = run_demo(folder).backend
    feed = folder / "x.npz"
    np.savez(feed, x=RNG.standard_normal((1, 1, 8, 8)).astype(np.float32))
    found = []
    for name, options in (("ort", ""), ("other", ":arithmetic=gemmlowp")):
        found.append(folder / f"{name}.h5")
        given = ["record", str(int8), "--backend", f"interpreter{options}", "--inputs", str(feed), "-o", str(found[-1])]
        assert main(given) == 0
    return found


KINDS = {
    "quantized": lambda at: (record(at / "r.h5"), record(at / "b.h5", quantized=True)),
    "statistics": lambda at: (record(at / "r.h5", keep="stats"), record(at / "b.h5", keep="stats", noise=1)),
    "statistics-of-codes": lambda at: (
        record(at / "r.h5", keep="stats"),
        record(at / "b.h5", keep="stats", quantized=True),
    ),
    "some-elements": lambda at: (record(at / "r.h5"), record(at / "b.h5", keep="elements:9", noise=1)),
    "not-finite": lambda at: (record(at / "r.h5"), record(at / "b.h5", noise=1, nan=True)),
    "no-partners": lambda at: (record(at / "r.h5", left_out=(1,)), record(at / "b.h5", noise=1, left_out=(3, 4))),
    "one-node": lambda at: (record(at / "r.h5", nodes=1, samples=1), record(at / "b.h5", nodes=1, samples=1)),
    "several": lambda at: (record(at / "r.h5"), record(at / "b.h5", noise=1), record(at / "c.h5", quantized=True)),
    "growing": lambda at: (record(at / "r.h5"), record(at / "b.h5", noise=1, samples=1, close=False)),
    "interpreted": interpreted,
}
"""Recordings that are hard to show, by kind."""


@pytest.fixture(params=[kind if kind == "several" else pytest.param(kind, marks=SLOW) for kind in KINDS])
def make(request, tmp_path, monkeypatch):
    """Return a function that makes an application on recordings of a kind."""
    monkeypatch.chdir(tmp_path)
    reference, *backends = map(Path, KINDS[request.param](tmp_path))
    choices = TuiChoices(follow=request.param == "growing")
    openings = [_make_opening(reference, backend, choices, tmp_path / "limits.toml") for backend in backends]
    titles = [(reference.name, backend.name) for backend in backends]
    return lambda: QdebugApp(openings, titles=titles, start_place=StartPlace(screen="answer"))


@MANY
@pytest.mark.parametrize("views", [(ScreenId.ANSWER,), pytest.param(VIEWS[1:], marks=SLOW)], ids=["answer", "others"])
async def test_no_key_is_dead_on_recordings_of_any_kind(dead_keys, make, views, every):
    left_out = () if ScreenId.ANSWER in views else ("screen", "turn", "help_keys")
    found = await dead_keys(make, views, keys=lambda view: keys_of(view, *left_out), every=every)
    assert not found, "keys that heed no recording are pressed on the overview alone"


def shown(app):
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def test_numbers_of_a_file_that_was_written_over_are_not_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = record(tmp_path / "r.h5"), record(tmp_path / "b.h5", noise=1)
    opening = _make_opening(*paths, TuiChoices(), tmp_path / "limits.toml")
    app = QdebugApp([opening], start_place=StartPlace(screen="values", node="t1"))

    async def until(pilot, words):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            await pilot.pause(0.01)
            if words in shown(app):
                return
        raise AssertionError(shown(app))

    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, "FAIL")
        other = record(tmp_path / "other.h5", noise=5, nodes=7).read_bytes()
        paths[1].write_bytes(other)
        await pilot.press("2", "j", "5")
        await until(pilot, "was changed on disk")
        paths[0].unlink()  # what is gone is still open
        await pilot.press("q")
    assert app.failure is None
