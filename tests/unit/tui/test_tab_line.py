"""The line of tabs: every screen by key and name, or by its key alone where there is no room."""

import pytest
from rich.cells import cell_len

from qdebug.tui.drawing.glyphs import UNICODE
from qdebug.tui.drawing.look import Look
from qdebug.tui.screens import TABS, ScreenId
from qdebug.tui.widgets.tab_line import TabLine


@pytest.mark.parametrize("view", TABS)
@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_a_tab_has_its_whole_name_or_its_key_alone(width, view):
    tabs = TabLine(Look(UNICODE))
    tabs.set_reactive(TabLine.active, view)
    texts = dict(tabs.texts(width))
    assert [*texts] == [*TABS]
    assert all(text in {each.key, f"{each.key} {each}"} for each, text in texts.items())
    assert texts[view] == f"{view.key} {view}", "the one that is shown"
    named = [text != each.key for each, text in texts.items() if each is not view]
    assert named == sorted(named, reverse=True), "the last ones lose their names first"
    assert sum(cell_len(text) + 1 for text in texts.values()) <= width
    assert width < 80 or all(named)


def test_a_screen_with_nothing_to_show_is_not_listed():
    tabs = TabLine(Look(UNICODE))
    tabs.set_reactive(TabLine.hidden, frozenset({ScreenId.SAMPLES}))
    assert ScreenId.SAMPLES not in dict(tabs.texts(80))
