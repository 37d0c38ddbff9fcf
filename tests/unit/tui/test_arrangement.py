import pytest

from qdebug.tui.arrangement import Level, arrange


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 18), (100, 30)])
def test_a_usual_terminal_has_the_profile_over_the_list(width, height):
    panels = arrange(width, height, level=Level.LIST, zoomed=False)
    assert panels.usable
    assert panels.nodes
    assert not panels.detail
    assert panels.profile >= 5
    assert height - panels.profile - panels.verdict - 3 >= 6, "room for the list"


def test_the_detail_has_a_usual_terminal_to_itself():
    panels = arrange(80, 24, level=Level.DETAIL, zoomed=False)
    assert panels.detail
    assert not panels.nodes
    assert panels.profile == 0
    assert panels.zoom_refusal


@pytest.mark.parametrize("level", list(Level))
def test_a_wide_terminal_shows_list_and_detail_side_by_side(level):
    panels = arrange(120, 30, level=level, zoomed=False)
    assert panels.nodes
    assert panels.detail
    assert panels.profile
    assert 0 < panels.list_width < 120
    alone = arrange(120, 30, level=level, zoomed=True)
    assert alone.nodes != alone.detail
    assert alone.profile == 0


@pytest.mark.parametrize(("width", "height"), [(59, 24), (80, 17), (40, 10)])
def test_a_small_terminal_has_one_panel(width, height):
    for level in Level:
        panels = arrange(width, height, level=level, zoomed=False)
        assert panels.usable
        assert panels.nodes != panels.detail
        assert panels.profile == 0
        assert "60x18" in panels.zoom_refusal


@pytest.mark.parametrize(("width", "height"), [(39, 24), (80, 9), (1, 1)])
def test_a_tiny_terminal_is_refused(width, height):
    assert not arrange(width, height, level=Level.LIST, zoomed=False).usable
