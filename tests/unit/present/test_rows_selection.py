"""Rows that are shown of a long net, and honest gaps between them."""

from hypothesis import given
from hypothesis import strategies as st

from qdebug.compare.result.result import Status
from qdebug.present.rows import Gap, select_rows


def test_a_short_net_is_shown_whole(made):
    assert select_rows([made.node(i) for i in range(48)]) == list(range(48))


def test_everything_is_shown_on_request(made):
    assert select_rows([made.node(i) for i in range(200)], everything=True) == list(range(200))


def test_a_long_net_shows_the_first_divergence_its_neighbours_the_worst_and_both_ends(made):
    def sqnr(index):
        return 10.0 if index == 60 else 5.0 if index == 120 else 40.0

    nodes = [
        made.node(i, Status.DIVERGED if sqnr(i) < 20 else Status.WITHIN, metrics=made.stats(sqnr_db=sqnr(i)))
        for i in range(200)
    ]
    shown = select_rows(nodes, worst=2)
    assert shown == [0, 1, Gap(54), *range(56, 65), Gap(55), 120, Gap(77), 198, 199]


def test_a_gap_never_hides_next_to_nothing(made):
    nodes = [made.node(i, metrics=made.stats(sqnr_db=1.0 if i in {4, 10} else 50.0)) for i in range(60)]
    shown = select_rows(nodes, worst=2)
    assert shown == [0, 1, 2, 3, 4, Gap(5), 10, Gap(47), 58, 59]


@given(st.lists(st.sampled_from([*Status][:5]), max_size=120), st.integers(0, 30))
def test_shown_and_hidden_rows_add_up_in_order(made, statuses, worst):
    nodes = [made.node(i, status) for i, status in enumerate(statuses)]
    shown = select_rows(nodes, worst=worst)
    position = 0
    for entry in shown:
        if isinstance(entry, Gap):
            position += entry.hidden
        else:
            assert entry == position
            position += 1
    assert position == len(nodes)
    first = next((i for i, s in enumerate(statuses) if s in {Status.DIVERGED, Status.NONFINITE}), None)
    assert first is None or first in shown
