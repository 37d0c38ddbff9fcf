import pytest

from qdebug.tui.palette import PALETTES


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
