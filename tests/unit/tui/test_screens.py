import itertools

import pytest

from qdebug.tui.screens import VIEWS, ScreenId, arrange


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 18), (100, 30)])
def test_a_usual_terminal_has_the_profile_over_the_list(width, height):
    panels = arrange(width, height, view=ScreenId.NODES, zoomed=False)
    assert panels.usable
    assert panels.nodes
    assert not panels.detail
    assert not panels.page
    assert panels.profile >= 5
    assert height - panels.profile - panels.verdict - panels.tabs - 3 >= 6, "room for the list"


def test_the_overview_has_strips_where_there_is_room():
    assert arrange(80, 24, view=ScreenId.OVERVIEW, zoomed=False).strips == 2
    assert arrange(80, 18, view=ScreenId.OVERVIEW, zoomed=False).strips == 0
    assert arrange(80, 24, view=ScreenId.NODES, zoomed=False).strips == 0


@pytest.mark.parametrize("view", [view for view in ScreenId if view not in {ScreenId.OVERVIEW, ScreenId.NODES}])
def test_any_other_screen_has_a_usual_terminal_to_itself(view):
    panels = arrange(80, 24, view=view, zoomed=False)
    assert panels.nodes + panels.page + panels.detail == 1
    assert panels.profile == 0
    assert panels.zoom_refusal


@pytest.mark.parametrize("view", [ScreenId.NODES, ScreenId.TENSOR])
def test_a_wide_terminal_shows_list_and_facts_side_by_side(view):
    panels = arrange(120, 30, view=view, zoomed=False)
    assert panels.nodes
    assert panels.detail
    assert 0 < panels.list_width < 120
    alone = arrange(120, 30, view=view, zoomed=True)
    assert alone.nodes != alone.detail
    assert alone.profile == 0
    assert not alone.zoom_refusal


def test_the_graph_has_all_the_room():
    panels = arrange(160, 40, view=ScreenId.GRAPH, zoomed=False)
    assert panels.page
    assert not panels.nodes
    assert not panels.detail
    assert panels.zoom_refusal


@pytest.mark.parametrize(("width", "height"), [(40, 10), (60, 18), (80, 24), (120, 30), (200, 60)])
def test_there_is_always_something_to_see(width, height):
    for view, zoomed in itertools.product(VIEWS, (False, True)):
        panels = arrange(width, height, view=view, zoomed=zoomed)
        assert panels.nodes or panels.page or panels.detail, (view, zoomed)
        assert panels.list_width + panels.detail_width < width, (view, zoomed)


@pytest.mark.parametrize(("width", "height"), [(59, 24), (80, 17), (40, 10)])
def test_a_small_terminal_has_one_panel(width, height):
    for view in ScreenId:
        panels = arrange(width, height, view=view, zoomed=False)
        assert panels.usable
        assert panels.nodes + panels.page + panels.detail == 1
        assert panels.profile == 0
        assert "60x18" in panels.zoom_refusal


@pytest.mark.parametrize(("width", "height"), [(39, 24), (80, 9), (1, 1)])
def test_a_tiny_terminal_is_refused(width, height):
    assert not arrange(width, height, view=ScreenId.NODES, zoomed=False).usable
