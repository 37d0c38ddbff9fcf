import numpy as np
import pytest

from qdebug.tui.drawing.palette import HEAT_STEPS, PALETTES, named_palette

# What people without one kind of cone see of linear RGB: Viénot, Brettel and Mollon (1999), full dichromacy.
DICHROMATS = {
    "protan": np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]]),
    "deutan": np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]),
}


def luminance(colour):
    """Relative luminance of WCAG 2.1."""
    channels = [value / 255 for value in colour.get_truecolor()]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(style):
    one, other = sorted((luminance(style.color), luminance(style.bgcolor)), reverse=True)
    return (one + 0.05) / (other + 0.05)


@pytest.mark.parametrize("palette", PALETTES, ids=lambda palette: palette.name)
@pytest.mark.parametrize("selected", [False, True])
def test_every_style_can_be_read(palette, selected):
    for name in palette.colours:
        assert contrast(palette.style(name, selected=selected)) >= 4.5, name


@pytest.mark.parametrize("palette", PALETTES, ids=lambda palette: palette.name)
def test_fine_and_failing_differ_in_the_blue_that_every_eye_sees(palette):
    fine, fail = (palette.style(name).color.get_truecolor() for name in ("fine", "fail"))
    assert fine.blue - fail.blue > 100
    assert fail.red - fine.red > 40


def test_an_unknown_style_is_plain():
    assert PALETTES[0].style("nothing").color == PALETTES[0].style("plain").color


@pytest.mark.parametrize("palette", PALETTES, ids=lambda palette: palette.name)
def test_the_theme_has_the_same_background(palette):
    theme = palette.theme()
    assert theme.name == palette.name
    assert theme.dark is palette.dark
    assert theme.background == palette.background


def encoded(light):
    """Return linear light as it is perceived: equal steps look alike."""
    clipped = np.clip(light, 0, 1)
    return np.where(clipped <= 0.0031308, clipped * 12.92, 1.055 * clipped ** (1 / 2.4) - 0.055)


def linear(colour):
    channels = np.array(colour.get_truecolor()) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("palette", PALETTES, ids=lambda palette: palette.name)
@pytest.mark.parametrize("kind", DICHROMATS)
def test_states_are_told_apart_without_one_kind_of_cone(palette, kind):
    names = ("fine", "fail", "plain")
    seen = {name: encoded(DICHROMATS[kind] @ linear(palette.style(name).color)) for name in names}
    for one, other in (("fine", "fail"), ("fail", "plain"), ("fine", "plain")):
        assert np.abs(seen[one] - seen[other]).max() > 0.12, (one, other)


@pytest.mark.parametrize("palette", PALETTES, ids=lambda palette: palette.name)
@pytest.mark.parametrize("kind", [None, *DICHROMATS])
def test_the_ramp_of_a_heat_map_goes_one_way_for_every_eye(palette, kind):
    steps = [palette.style(f"heat:{step}:0").color for step in range(HEAT_STEPS)]
    seen = [linear(step) if kind is None else DICHROMATS[kind] @ linear(step) for step in steps]
    light = np.array([0.2126, 0.7152, 0.0722]) @ np.array(seen).T
    moves = np.diff(light) * (1 if palette.dark else -1)
    assert (moves > 0.002).all(), light


def test_palettes_are_found_by_the_word_of_the_command_line():
    from qdebug.cli.tui import THEMES

    assert [named_palette(theme) for theme in THEMES] == list(PALETTES)
