"""Every screen at every size, in all looks, as text with its styles; updated like the pictures.

A capture has the lines of each screen, and under each line the styles of its cells: a letter and how many cells, the
letters explained at the end.
"""

import re
from importlib.metadata import version

import pytest
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from qdebug.tui.drawing.glyphs import ASCII, UNICODE
from qdebug.tui.drawing.palette import DARK, LIGHT
from qdebug.tui.screens import VIEWS, ScreenId

PINNED = "8.2.8"

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(
        version("textual") != PINNED, reason=f"captured with textual {PINNED}; other versions draw otherwise"
    ),
]

SIZES = ["60x20", "80x24", "120x40"]
LOOKS = ["dark", "light", "no-color"]
SECONDS = re.compile(r"in [0-9.e-]+ s a sample")


class Text(SingleFileSnapshotExtension):
    """A capture is a file of text."""

    _write_mode = WriteMode.TEXT
    _file_extension = "txt"


@pytest.fixture(scope="module")
def seen():
    """Keep what was captured: one test looks at what others looked at."""
    return {}


@pytest.fixture
def capture(seen, make_picture_app, settled, monkeypatch):
    """Return a function that visits every screen and gives what is on each: texts and styles of the lines."""

    async def run(size, look, glyphs=UNICODE):
        if (size, look, glyphs.name) in seen:
            return seen[size, look, glyphs.name]
        monkeypatch.delenv("NO_COLOR", raising=False)
        if look == "no-color":
            monkeypatch.setenv("NO_COLOR", "1")
        palette, found = LIGHT if look == "light" else DARK, {}
        columns, lines = map(int, size.split("x"))
        alone = [view for view in VIEWS if view is not ScreenId.BACKENDS]
        for backends, views in ((1, alone), (2, [ScreenId.BACKENDS])):
            app = make_picture_app(backends=backends, palette=palette, glyphs=glyphs)
            async with app.run_test(size=(columns, lines)) as pilot:
                await settled.until(pilot, settled.computed)
                await pilot.press("exclamation_mark")
                for view in views:
                    app.screen.action_screen(str(view))
                    await settled.until(pilot, lambda main, view=view: main.view is view and settled.shown(main))
                    found[view] = [list(strip.crop(0, columns)) for strip in app.screen._compositor.render_strips()]
        seen[size, look, glyphs.name] = {str(view): found[view] for view in VIEWS}
        return seen[size, look, glyphs.name]

    return run


def words(lines):
    """Return the texts of the lines alone."""
    return ["".join(segment.text for segment in line) for line in lines]


def written(screens):
    """Write all screens down, with their styles."""
    letters, out = {}, []
    for view, lines in screens.items():
        out.append(f"== {view}")
        for line in lines:
            runs = []
            for segment in line:
                letter = letters.setdefault(str(segment.style), chr(ord("a") + len(letters)))
                if runs and runs[-1][0] == letter:
                    runs[-1][1] += segment.cell_length
                else:
                    runs.append([letter, segment.cell_length])
            text = "".join(segment.text for segment in line).rstrip()
            out += [f"|{text}", "".join(f"{letter}{many}" for letter, many in runs)]
    out += ["== styles", *(f"{letter} {style}" for style, letter in letters.items())]
    return "\n".join(out) + "\n"


@pytest.mark.parametrize(
    ("size", "look"),
    [
        (size, look)
        if size == "80x24" or (look == "dark" and size == "120x40")
        else pytest.param(size, look, marks=pytest.mark.slow)
        for size in SIZES
        for look in LOOKS
    ],
)
async def test_every_screen(capture, snapshot, size, look):
    screens = await capture(size, look)
    assert [*screens] == [*VIEWS]
    assert written(screens) == snapshot(extension_class=Text)


async def test_every_screen_in_ascii(capture, snapshot):
    screens = await capture("80x24", "no-color", glyphs=ASCII)
    drawn = "\n".join("\n".join(words(lines)) for lines in screens.values())
    assert drawn.isascii()
    assert written(screens) == snapshot(extension_class=Text)


async def test_no_state_is_told_by_colour_alone(capture):
    dark, light, without = [await capture("80x24", look) for look in LOOKS]
    for view in VIEWS:
        assert words(dark[view]) == words(light[view])
        if view != "map":  # drawn with shades where there are no colours
            assert words(dark[view]) == words(without[view])
    assert any(character in "░▒▓█" for line in words(without["map"]) for character in line)
    styles = {str(segment.style.color) + str(segment.style.bgcolor) for line in without["nodes"] for segment in line}
    grey = [style for style in styles if "#" in style]
    assert all(_is_grey(style) for style in grey), styles


def _is_grey(style):
    return all(r == g == b for r, g, b in re.findall(r"#(..)(..)(..)", style))


async def test_every_screen_of_a_real_network(snapshot, settled, pitch_app):
    found = []
    async with pitch_app.run_test(size=(80, 24)) as pilot:
        await settled.until(pilot, lambda main: main.is_finished and main.current.result.diagnosis[0].remedies)
        for view in (view for view in VIEWS if view is not ScreenId.BACKENDS):
            pitch_app.screen.action_screen(str(view))
            await settled.until(pilot, lambda main, view=view: main.view is view and settled.shown(main))
            lines = words([list(strip.crop(0, 80)) for strip in pitch_app.screen._compositor.render_strips()])
            found += [f"== {view}", *(f"|{SECONDS.sub('', line).rstrip()}" for line in lines)]
    assert "\n".join(found) + "\n" == snapshot(extension_class=Text)
