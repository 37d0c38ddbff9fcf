"""One comparison between the thread that fills it and the screen."""

import threading

from qdebug.tui.reading.comparing import ComparisonInProgress
from qdebug.tui.reading.messages import Computed, Opened, Opening


def compared(make_session):
    """Return a comparison whose first three results nobody took, and what it posted."""

    class Unguarded(make_session):
        def guard(self):  # there is one thread alone
            pass

    posted = []
    opening = Opening(compare=lambda: Unguarded(8))
    comparison = ComparisonInProgress(0, opening, lock=threading.Condition(), post=posted.append)
    fill(comparison)
    return comparison, posted


def fill(comparison):
    comparison.open(lambda _: {})
    for _ in range(3):
        comparison.hand_over(comparison.next_result())


def taken(event):
    return [result.index for batch in event.take() for result in batch.results]


def test_results_are_announced_once_until_they_are_taken(make_session):
    comparison, posted = compared(make_session)
    assert [type(event) for event in posted] == [Opened, Computed]
    assert taken(posted[1]) == [0, 1, 2]
    assert taken(posted[1]) == []
    comparison.hand_over(comparison.next_result())
    assert taken(posted[2]) == [3]


def test_results_of_a_table_that_was_made_anew_are_not_given_for_the_old_one(make_session):
    comparison, posted = compared(make_session)
    late = posted.pop()
    comparison.restart()
    fill(comparison)
    assert taken(late) == [], "they would be lost to the new table"
    assert taken(posted[-1]) == [0, 1, 2]
