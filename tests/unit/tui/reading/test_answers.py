import pytest

from qdebug.errors import UsageError
from qdebug.tui.elements.summing import Cancelled
from qdebug.tui.reading.answers import AnswerCache, answer
from qdebug.tui.reading.glimpse import OpenPairs
from qdebug.tui.reading.messages import DetailRequest


@pytest.fixture
def ask(make_table, monkeypatch):
    """Return a function that asks for a row and gives all parts of the answer."""
    from qdebug.workflow import explain as module

    def run(row=9, *, found=None, outdated=lambda: False, cache=None, chosen=None, **wanted):
        import fake_session

        session = fake_session.FakeSession()
        session.guard = lambda **_: None
        for side in (session.reference, session.backend):
            side._guard = lambda: None
        results = {result.tensor: result for result in session.results()}
        tensor = list(results)[row]
        if found is not None:
            monkeypatch.setattr(module, "explain", found)
        request = DetailRequest(id=1, row=row, tensor=tensor, sample=chosen, **wanted)
        kept = AnswerCache() if cache is None else cache
        return list(answer(session, request, results, cache=kept, pairs=OpenPairs(), outdated=outdated))

    return run


def test_facts_come_first_and_worst_elements_complete_them(ask):
    parts = ask()
    assert [part.complete for part in parts] == [False, True]
    assert parts[0].values is not None
    assert parts[0].slab is None, "elements are read for those who look at them"
    assert len(parts[1].detail.worst) == 8


def test_elements_come_when_they_are_asked_for_and_are_kept(ask):
    cache = AnswerCache()
    first = ask(elements=True, cache=cache)[-1]
    again = ask(elements=True, cache=cache)
    assert len(again) == 1
    assert again[0].slab is first.slab
    assert cache.nbytes > first.slab.nbytes


def test_the_cache_forgets_the_oldest_beyond_its_cap(ask):
    cache = AnswerCache(most_bytes=16_000)
    for row in (9, 10, 12):
        assert ask(row, elements=True, cache=cache)[-1].slab is not None
        assert cache.nbytes <= 16_000
    assert 0 < len(cache._kept) < 3


def test_of_a_tensor_that_takes_too_much_only_what_it_comes_to_is_kept(ask):
    cache, small = AnswerCache(most_bytes=3000), AnswerCache()
    assert cache.most_of_one < ask(9, elements=True, cache=small)[-1].slab.nbytes
    last = ask(9, elements=True, cache=cache)[-1]
    assert last.slab is None
    assert last.whole.missing == 0
    assert (last.whole.channels.rmse == ask(9, elements=True, cache=small)[-1].whole.channels.rmse).all()
    assert ask(9, elements=True, cache=cache)[-1].whole is last.whole


def test_the_sample_that_is_shown_is_not_read_again_when_it_is_chosen(ask):
    cache = AnswerCache()
    first = ask(elements=True, cache=cache)[-1]
    chosen = ask(elements=True, cache=cache, chosen=first.values_sample)
    assert [part.slab for part in chosen] == [first.slab]


def test_a_newer_question_ends_the_answer(ask):
    assert not ask(outdated=lambda: True)
    assert not ask(elements=True, outdated=lambda: True)


def test_an_explanation_comes_last(ask):
    class Found:
        nodes = ("found",)

    parts = ask(explain=True, found=lambda *_, **__: Found())
    assert [part.explained for part in parts] == [None, None, ("found",)]


@pytest.mark.parametrize(
    ("error", "said"),
    [(UsageError("no such node"), "no such node"), (ZeroDivisionError("x"), "arithmetic broke: ZeroDivisionError: x")],
)
def test_a_search_that_fails_says_so_and_ends_nothing(ask, error, said):
    def fail(*_, **__):
        raise error

    last = ask(explain=True, found=fail)[-1]
    assert last.complete
    assert said in last.problem
    assert "cannot be shown" not in last.problem


def test_a_search_that_nobody_waits_for_is_stopped(ask):
    def search(*_, node, progress):
        progress(0, 2, node)
        raise AssertionError("it went on")

    calls = iter([False, False, True])
    assert not any(part.complete for part in ask(explain=True, found=search, outdated=lambda: next(calls, True)))


def test_a_huge_tensor_is_shown_while_it_is_read_and_read_on_where_it_was_left(ask, monkeypatch):
    monkeypatch.setattr("qdebug.tui.reading.answers._OFTEN", -1)
    monkeypatch.setattr("qdebug.numerics.channels.BLOCK", 36)
    cache = AnswerCache()
    calls = iter([False, False])
    begun = ask(elements=True, cache=cache, outdated=lambda: next(calls, True))
    assert [part.whole.missing for part in begun] == [108, 72]
    assert not any(part.complete for part in begun)
    assert not any(part.slab for part in begun)
    parts = ask(elements=True, cache=cache)
    assert [part.whole.missing for part in parts] == [36, 0, 0, 0]
    assert [part.values is None for part in parts] == [True, True, False, False]
    assert parts[-1].complete


@pytest.mark.parametrize("stopped_at", ["qdebug.tui.reading.answers.value_facts", "fake_session.FakeSession.profile"])
def test_what_is_known_is_told_before_the_rest_is_read(ask, monkeypatch, stopped_at):
    def stop(*_, **__):
        raise Cancelled

    monkeypatch.setattr(stopped_at, stop)
    cache = AnswerCache()
    ask(elements=True, cache=cache)
    parts = ask(elements=True, cache=cache)
    assert [part.complete for part in parts] == [False]
    assert parts[0].slab is not None
    assert parts[0].whole.missing == 0


def test_what_was_decoded_is_let_go_when_nobody_waits_for_it_any_more(ask, monkeypatch):
    monkeypatch.setattr("qdebug.tui.reading.answers._OFTEN", -1)
    monkeypatch.setattr("qdebug.numerics.channels.BLOCK", 36)
    for held, left in ((0, []), (10**6, [108, 72, 36])):
        monkeypatch.setattr("fake_session.Pair.held", held)
        cache, calls = AnswerCache(most_bytes=10**6), iter([False] * 3)
        ask(elements=True, cache=cache, outdated=lambda calls=calls: next(calls, True))
        parts = ask(elements=True, cache=cache)
        assert [part.whole.missing for part in parts if part.whole.missing] == left


def test_too_little_memory_is_said(ask, monkeypatch):
    def fail(*_):
        raise MemoryError("no room for 4 GiB")

    monkeypatch.setattr("qdebug.tui.reading.answers.value_facts", fail)
    assert "no room for 4 GiB" in ask()[-1].problem
