"""Pictures of the terminal interface; make them anew with `pytest tests/snapshots --snapshot-update`, and look."""

import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from qdebug.tui.application import QdebugApp
from qdebug.tui.glyphs import ASCII, UNICODE

PINNED = "8.2.8"

pytestmark = pytest.mark.skipif(
    version("textual") != PINNED, reason=f"the pictures were made with textual {PINNED}; other versions draw otherwise"
)

NARROW, WIDE = (80, 24), (140, 40)


def fake_session(**options):
    path = Path(__file__).parents[1] / "unit" / "tui" / "fake_session.py"
    spec = importlib.util.spec_from_file_location("snapshot_fake_session", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.FakeSession(**options)


@pytest.fixture
def picture(snap_compare):
    """Compare the screen after some keys with the picture that was kept."""

    def compare(keys=(), *, size=NARROW, glyphs=UNICODE, **options):
        session = fake_session(**options)
        app = QdebugApp(lambda: session, titles=("ref.h5", "npu.h5"), glyphs=glyphs)

        async def settle(pilot):
            main = app.screen_stack[0]
            for _ in range(400):
                await pilot.pause(0.01)
                if main.finished:
                    break
            for key in keys:
                await pilot.press(key)
            for _ in range(400):
                await pilot.pause(0.01)
                ready = main.detail_ready
                if not main.detail_shown or (ready is not None and ready.complete):
                    break
            await pilot.pause(0.1)

        return snap_compare(app, terminal_size=size, run_before=settle)

    return compare


@pytest.mark.parametrize("size", [NARROW, WIDE, (50, 14)], ids=str)
def test_overview(picture, size):
    assert picture(["exclamation_mark"], size=size)


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=str)
def test_overview_without_colours(picture, size, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert picture(["exclamation_mark"], size=size)


def test_detail(picture):
    assert picture(["exclamation_mark", "enter"])


def test_node_list_alone(picture):
    assert picture(["exclamation_mark", "z", "s"], size=WIDE)


def test_light(picture):
    assert picture(["exclamation_mark", "t"], size=WIDE)


def test_ascii(picture):
    assert picture(["exclamation_mark"], glyphs=ASCII)


def test_help(picture):
    assert picture(["question_mark"])


def test_hostile_names(picture):
    names = ("[/foo]", "[@click=app.quit]q[/]", "\x1b]0;x\x07esc", "\u202ertl\nline", "x" * 5000, "畳み込み" * 40)
    assert picture(["j"], names=names)
