"""Pictures of the terminal interface; make them anew with `pytest tests/snapshots --snapshot-update`, and look."""

import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from qdebug.tui.application import QdebugApp
from qdebug.tui.arrangement import VIEWS
from qdebug.tui.desk import Start
from qdebug.tui.glyphs import ASCII, UNICODE
from qdebug.tui.palette import CONTRAST, DARK, LIGHT
from qdebug.tui.source import Opening

PINNED = "8.2.8"

pytestmark = pytest.mark.skipif(
    version("textual") != PINNED, reason=f"the pictures were made with textual {PINNED}; other versions draw otherwise"
)

SMALL, USUAL, WIDE = (60, 20), (80, 24), (120, 40)
SIZES = {"60x20": SMALL, "80x24": USUAL, "120x40": WIDE}


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

    def compare(keys=(), *, size=USUAL, glyphs=UNICODE, palette=DARK, screen="nodes", backends=1, **options):
        sessions = [fake_session(**options) for _ in range(backends)]
        titles = [("ref.h5", "npu.h5"), ("ref.h5", "other.h5")][:backends]
        openings = [Opening(compare=lambda each=each: each) for each in sessions]
        app = QdebugApp(openings, titles=titles, begin=Start(screen=screen), glyphs=glyphs, palette=palette)

        async def settle(pilot):
            main = app.screen_stack[0]
            for _ in range(400):
                await pilot.pause(0.01)
                if all(each.result is not None for each in main.compared):
                    break
            for key in keys:
                await pilot.press(key)
            for _ in range(400):
                await pilot.pause(0.01)
                ready = main.detail_ready
                complete = ready is not None and ready.complete and (ready.slab is not None or not main.view.of_tensor)
                if complete or not main.detail_shown or main.view == "explain":
                    break
            await pilot.pause(0.2)

        return snap_compare(app, terminal_size=size, run_before=settle)

    return compare


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=["dark", "light"])
def test_overview(picture, size, palette):
    assert picture(["exclamation_mark"], screen="overview", size=SIZES[size], palette=palette)


@pytest.mark.parametrize("size", SIZES)
def test_overview_without_colours(picture, size, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert picture(["exclamation_mark"], screen="overview", size=SIZES[size])


@pytest.mark.parametrize("size", ["60x20", "120x40"])
def test_nodes(picture, size):
    assert picture(["exclamation_mark", "m", "s"], size=SIZES[size])


@pytest.mark.parametrize("screen", [view for view in VIEWS if view not in {"overview", "explain", "backends"}])
def test_each_screen(picture, screen):
    assert picture(["exclamation_mark"], screen=str(screen))


@pytest.mark.parametrize("screen", ["graph", "values", "map"])
def test_screens_of_a_wide_terminal(picture, screen):
    assert picture(["exclamation_mark"], screen=screen, size=WIDE)


@pytest.mark.parametrize("screen", ["values", "map"])
def test_screens_without_colours(picture, screen, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert picture(["exclamation_mark"], screen=screen)


def test_map_in_light_colours(picture):
    assert picture(["exclamation_mark", "v"], screen="map", palette=LIGHT)


def test_several_backends(picture):
    assert picture(["exclamation_mark"], screen="backends", backends=2)


def test_high_contrast(picture):
    assert picture(["exclamation_mark"], palette=CONTRAST)


def test_the_list_alone(picture):
    assert picture(["exclamation_mark", "z"], size=WIDE)


def test_one_panel_in_a_small_terminal(picture):
    assert picture(["exclamation_mark"], size=(50, 14))


def test_a_filter_that_is_being_typed(picture):
    assert picture(["f", *"sqnr<20"])


@pytest.mark.parametrize("screen", ["overview", "map"])
def test_ascii(picture, screen):
    assert picture(["exclamation_mark"], screen=screen, glyphs=ASCII)


def test_help(picture):
    assert picture(["question_mark"])


def test_hostile_names(picture):
    names = ("[/foo]", "[@click=app.quit]q[/]", "\x1b]0;x\x07esc", "\u202ertl\nline", "x" * 5000, "畳み込み" * 40)
    assert picture(["j"], names=names)
