"""One comparison between the thread that fills it and the screen."""

from qdebug.tui.reading.comparing import ComparisonInProgress
from qdebug.tui.reading.messages import Computed, Opened, Opening


def compared(make_session):
    """Return a comparison whose first three results nobody took, and what it posted."""

    class Unguarded(make_session):
        def guard(self, **_):  # there is one thread alone
            pass

    posted = []
    opening = Opening(compare=lambda: Unguarded(8))
    comparison = ComparisonInProgress(0, opening, post=posted.append)
    fill(comparison)
    return comparison, posted


def fill(comparison):
    comparison.open(lambda _: {})
    for _ in range(3):
        comparison.hand_over(comparison.next_result())


def test_results_are_announced_once_until_they_are_looked_at(make_session):
    comparison, posted = compared(make_session)
    assert [type(event) for event in posted] == [Opened, Computed]
    table = posted[0].table
    assert table.compared == 3
    table.is_announced = False
    comparison.hand_over(comparison.next_result())
    assert [type(event) for event in posted[2:]] == [Computed]
    assert table.compared == 4


def test_a_table_that_was_made_anew_gets_its_own_results(make_session):
    comparison, posted = compared(make_session)
    late = posted[0].table
    comparison.restart()
    fill(comparison)
    made = comparison.table
    assert made is not late
    assert made is posted[2].table
    assert (late.compared, made.compared) == (3, 3)
    comparison.hand_over(comparison.next_result())
    assert (late.compared, made.compared) == (3, 4)
