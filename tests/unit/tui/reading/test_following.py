"""A followed recording whose file somebody removes, cuts off or writes anew: it is told, and what is new is shown."""

import os
from pathlib import Path

import numpy as np
import pytest

from qdebug.recording.recorder import Recorder
from qdebug.recording.target import journal_of
from qdebug.tui.app import TuiChoices, _make_opening
from qdebug.tui.application import QdebugApp
from qdebug.tui.reading.following import Following
from qdebug.tui.screen.start_place import StartPlace

pytestmark = pytest.mark.asyncio


def recorder(path, *, wrong=None, nodes=6):
    """Begin a recording of a chain, one of whose nodes is wrong."""
    rec = Recorder(path, backend="npu", force=True)
    values = np.linspace(-1, 1, 100, dtype=np.float32)
    for number in range(nodes):
        values = np.tanh(values)
        stored = -values if number == wrong else values
        rec.put(f"t{number}", stored, node=f"n{number}", op="Tanh", inputs=(f"t{number - 1}",) if number else ())
    return rec


@pytest.fixture
def reference(tmp_path):
    recorder(tmp_path / "r.h5").close()
    return tmp_path / "r.h5"


@pytest.fixture
def followed(tmp_path, reference, monkeypatch):
    """Return a function that follows the recordings, and runs a test with one that waits for words on the screen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("qdebug.tui.reading.reader._FOLLOW_SECONDS", 0.02)

    async def run(act):
        opening = _make_opening(reference, tmp_path / "b.h5", TuiChoices(follow=True), tmp_path / "limits.toml")
        app = QdebugApp([opening], start_place=StartPlace(screen="answer"))

        async def check_shown(*words):
            for _ in range(1000):
                await pilot.pause(0.01)
                shown = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
                if all(word in shown for word in words):
                    return
            raise AssertionError(shown)

        async with app.run_test(size=(120, 30)) as pilot:
            await act(check_shown, tmp_path / "b.h5")
            await pilot.press("q")
        assert app.failure is None

    return run


async def test_another_run_on_the_same_path_is_shown(followed, tmp_path):
    first = recorder(tmp_path / "b.h5", wrong=2, nodes=4)

    async def act(check_shown, path):
        await check_shown("4 of 4 compared", "first divergence at n2")
        first.discard()
        await check_shown("b.h5 was removed; showing what was read before", "FAIL", "n2")
        second = recorder(path, wrong=4)
        await check_shown("b.h5 was rewritten, and is opened again", "6 of 6 compared", "first divergence at n4")
        second.close()
        await check_shown("FAIL")
        recorder(path).close()
        await check_shown("PASS", "all 6 compared")

    await followed(act)


async def test_a_file_that_is_removed_before_the_first_look_is_told(followed, tmp_path, monkeypatch):
    """What the comparison was opened with counts: the first look may find a state that nobody has seen change."""
    first = recorder(tmp_path / "b.h5", wrong=2, nodes=4)
    looks = []
    refresh = Following.refresh
    monkeypatch.setattr(Following, "refresh", lambda self: bool(looks) and refresh(self))

    async def act(check_shown, path):
        await check_shown("4 of 4 compared", "unfinished", "first divergence at n2")
        first.discard()
        looks.append("from now on")
        await check_shown("b.h5 was removed; showing what was read before", "FAIL, INCOMPLETE", "n2")

    await followed(act)


async def test_a_finished_file_that_is_cut_off_and_copied_anew_is_shown(followed, tmp_path):
    recorder(tmp_path / "b.h5", wrong=2).close()
    recorder(tmp_path / "c.h5", wrong=4).close()

    async def act(check_shown, path):
        await check_shown("FAIL", "n2")
        whole = (path.parent / "c.h5").read_bytes()
        path.write_bytes(whole[:3000])
        await check_shown("b.h5 was rewritten; showing what was read before")
        path.write_bytes(whole)
        await check_shown("b.h5 was rewritten, and is opened again", "FAIL", "n4")

    await followed(act)


async def test_a_journal_that_is_cut_off_is_told(followed, tmp_path):
    rec = recorder(tmp_path / "b.h5", wrong=2)

    async def act(check_shown, path):
        await check_shown("6 of 6 compared")
        os.truncate(journal_of(path), 0)
        await check_shown("b.h5 was truncated")

    await followed(act)
    rec.discard()


async def test_a_mistake_at_the_beginning_still_ends_it(reference, tmp_path):
    opening = _make_opening(reference, Path("none.h5"), TuiChoices(follow=True), tmp_path / "limits.toml")
    app = QdebugApp([opening])
    async with app.run_test() as pilot:
        for _ in range(500):
            await pilot.pause(0.01)
            if app.failure is not None:
                break
    assert "none.h5" in str(app.failure)
