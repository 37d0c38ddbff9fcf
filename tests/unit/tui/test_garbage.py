"""What is painted while a comparison goes on is given back."""

import gc

import pytest

from qdebug.tui.garbage import garbage_collection_paused
from qdebug.tui.reading import comparing, reader
from qdebug.tui.reading.messages import Opening
from qdebug.tui.views.table import load_views


@pytest.fixture
def set_aside(monkeypatch):
    """Count how often everything there is is put out of the collector's sight."""
    reader._load_replays()  # each of these sets aside once what it loads
    load_views()
    times = []
    monkeypatch.setattr(gc, "freeze", lambda: times.append(1))
    return times


def test_garbage_is_collected_again_after_a_pause():
    with garbage_collection_paused():
        assert not gc.isenabled()
        with garbage_collection_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_no_collection_blocks_the_screen_while_a_comparison_is_opened():
    class StoppedError(Exception):
        pass

    def compare():
        raise StoppedError(gc.isenabled())

    opening = comparing.ComparisonInProgress(0, Opening(compare=compare), post=print)
    with pytest.raises(StoppedError, match="False"):
        opening.open(lambda _: {})
    assert gc.isenabled()


@pytest.mark.asyncio
@pytest.mark.parametrize("many", [10, 1000])
async def test_lines_that_were_painted_are_not_kept_for_ever(
    make_app, make_session, settle, set_aside, monkeypatch, many
):
    monkeypatch.setattr(comparing, "_MIN_ROWS_TO_FREEZE", many)
    async with make_app(make_session(80, delay=0.005)).run_test(size=(80, 24)) as pilot:
        await settle(pilot)
    assert len(set_aside) == (many < 80), "once, when a large net is opened, however long it is compared"


@pytest.mark.asyncio
async def test_many_results_are_put_out_of_sight_so_that_no_key_waits(
    make_app, make_session, settle, set_aside, monkeypatch
):
    monkeypatch.setattr(comparing, "_RESULTS_TO_FREEZE", 30)
    async with make_app(make_session(80)).run_test(size=(80, 24)) as pilot:
        await settle(pilot)
    assert len(set_aside) in {1, 2}, "after 30 results, and after 60 if they do not come all at once"
