import itertools

import pytest

from qdebug.tui.screens import TABS, VIEWS, ScreenId, arrange


def test_there_are_at_most_nine_screens_and_a_digit_goes_to_each():
    assert [view.key for view in TABS] == [str(number) for number in range(1, len(TABS) + 1)]
    assert len(TABS) <= 9
    assert [form for tab in TABS for form in tab.forms] == [*VIEWS], "each form is of one screen"


def test_the_answer_has_the_profile_over_its_list():
    for width, height in ((80, 24), (60, 18), (100, 30)):
        panels = arrange(width, height, view=ScreenId.ANSWER)
        assert panels.is_usable
        assert panels.profile >= 5
        assert height - panels.profile - panels.verdict - panels.shows_tabs - 3 >= 6, "room for the list"
    assert arrange(80, 40, view=ScreenId.ANSWER).strips == 2
    assert arrange(80, 24, view=ScreenId.ANSWER).strips == 0


@pytest.mark.parametrize("view", [view for view in ScreenId if view is not ScreenId.ANSWER])
@pytest.mark.parametrize(("width", "height"), [(60, 18), (80, 24), (120, 40)])
def test_any_other_screen_has_a_usual_terminal_to_itself(view, width, height):
    panels = arrange(width, height, view=view)
    assert (panels.profile, panels.side, panels.verdict) == (0, 0, 1)


@pytest.mark.parametrize("width", range(40, 300, 7))
def test_the_facts_beside_a_view_never_take_half_of_it(width):
    for view in VIEWS:
        panels = arrange(width, 40, view=view)
        assert not panels.side or width - panels.side >= 100
        assert not panels.side or "wide" not in view.traits


@pytest.mark.parametrize(("width", "height"), [(59, 24), (80, 17), (40, 10)])
def test_a_small_terminal_has_one_panel(width, height):
    for view in ScreenId:
        panels = arrange(width, height, view=view)
        assert panels.is_usable
        assert (panels.profile, panels.side, panels.shows_tabs and height < 22) == (0, 0, False)


def test_only_a_tiny_terminal_is_refused():
    for width, height in itertools.product((1, 39, 40, 80), (1, 9, 10, 24)):
        assert arrange(width, height, view=ScreenId.NODES).is_usable == (width >= 40 and height >= 10)
