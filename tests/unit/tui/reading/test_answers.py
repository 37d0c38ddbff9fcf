import pytest

from qdebug.errors import UsageError
from qdebug.tui.elements.summing import Cancelled
from qdebug.tui.nodes.rows import shown_sample
from qdebug.tui.reading.answers import Answers
from qdebug.tui.reading.glimpse import OpenPairs
from qdebug.tui.reading.messages import DetailRequest


@pytest.fixture
def ask(make_session, monkeypatch):
    """Return a function that asks for a row and gives all parts of the answer; another question follows on it."""
    from qdebug.running import explain_file as module

    session = make_session()
    monkeypatch.setattr(session, "guard", lambda **_: None)
    for side in (session.reference, session.backend):
        side._guard = lambda: None
    results = list(session.results())
    outdated = [lambda: False]

    def ended():
        return outdated[0]()

    answers = Answers(OpenPairs())

    def run(row=9, *, found=None, stop=lambda: False, known=None, **wanted):
        result = results[row]
        if found is not None:
            monkeypatch.setattr(module, "explain", found)
        outdated[0] = stop
        request = DetailRequest(row=row, tensor=result.tensor, sample=shown_sample(result, None, None), **wanted)
        return list(answers.answer(session, request, result, ended, known=known))

    return run


def test_facts_come_first_and_worst_elements_complete_them(ask):
    parts = ask()
    assert [part.is_complete for part in parts] == [False, False, True]
    assert parts[0].values is not None
    assert parts[0].values_sample == 2, "the worst one"
    assert parts[0].statistics is None, "elements are read for those who look at them"
    assert len(parts[-1].worst) == 8


def test_what_is_known_is_not_found_out_again(ask, monkeypatch):
    first = ask(wants_elements=True)[-1]

    def fail(*_, **__):
        raise AssertionError("it is known")

    monkeypatch.setattr("qdebug.tui.reading.answers.value_facts", fail)
    monkeypatch.setattr("qdebug.tui.reading.glimpse.OpenPairs.open", fail)
    monkeypatch.setattr("fake_session.FakeSession.profile", fail)
    (again,) = ask(wants_elements=True, known=first)
    assert again.is_complete
    assert (again.statistics, again.values, again.profile) == (first.statistics, first.values, first.profile)


def test_a_newer_question_ends_the_answer(ask):
    assert not ask(stop=lambda: True)
    assert not ask(wants_elements=True, stop=lambda: True)


def test_an_explanation_comes_last(ask):
    class Found:
        nodes = ("found",)

    parts = ask(wants_explanation=True, found=lambda *_, **__: Found())
    assert [part.explanations for part in parts] == [None, None, ("found",), ("found",)]


@pytest.mark.parametrize(
    ("error", "said"),
    [(UsageError("no such node"), "no such node"), (ZeroDivisionError("x"), "arithmetic failed: ZeroDivisionError: x")],
)
def test_a_search_that_fails_says_so_and_ends_nothing(ask, error, said):
    def fail(*_, **__):
        raise error

    last = ask(wants_explanation=True, found=fail)[-1]
    assert last.is_complete
    assert said in last.problem
    assert "cannot be shown" not in last.problem


@pytest.mark.parametrize("error", [TypeError("a mistake"), ValueError("a mistake")])
def test_a_fault_of_ours_is_not_told_of_the_values(ask, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("qdebug.tui.reading.glimpse.OpenPairs.open", fail)
    with pytest.raises(type(error), match="a mistake"):
        ask()


def test_a_search_that_nobody_waits_for_is_stopped(ask):
    def search(*_, node, progress):
        progress(0, 2, node)
        raise AssertionError("it went on")

    calls = iter([False, False, True])
    assert not any(
        part.is_complete for part in ask(wants_explanation=True, found=search, stop=lambda: next(calls, True))
    )


def test_a_huge_tensor_is_shown_while_it_is_read_and_read_on_where_it_was_left(ask, monkeypatch):
    monkeypatch.setattr("qdebug.tui.reading.answers._INTERVAL_SECONDS", -1)
    monkeypatch.setattr("qdebug.numerics.channels.BLOCK", 36)
    calls = iter([False, False])
    begun = ask(wants_elements=True, stop=lambda: next(calls, True))
    assert [part.statistics.unread_count for part in begun] == [108, 72]
    assert not any(part.is_complete for part in begun)
    parts = ask(wants_elements=True, known=begun[-1])
    assert [part.statistics.unread_count for part in parts] == [36, 0, 0, 0, 0]
    assert [part.values is None for part in parts] == [True, True, False, False, False]
    assert parts[-1].is_complete


@pytest.mark.parametrize("stopped_at", ["qdebug.tui.reading.answers.value_facts", "fake_session.FakeSession.profile"])
def test_what_is_known_is_told_before_the_rest_is_read(ask, monkeypatch, stopped_at):
    def stop(*_, **__):
        raise Cancelled

    monkeypatch.setattr("qdebug.tui.reading.answers._INTERVAL_SECONDS", -1)
    monkeypatch.setattr("qdebug.numerics.channels.BLOCK", 36)
    monkeypatch.setattr(stopped_at, stop)
    parts = ask(wants_elements=True)
    assert not any(part.is_complete for part in parts)
    assert parts[-1].statistics.unread_count == 0


@pytest.mark.parametrize(("held", "left"), [(0, [36]), (10**9, [108, 72, 36])])
def test_what_was_decoded_is_let_go_when_nobody_waits_for_it_any_more(ask, monkeypatch, held, left):
    monkeypatch.setattr("qdebug.tui.reading.answers._INTERVAL_SECONDS", -1)
    monkeypatch.setattr("qdebug.numerics.channels.BLOCK", 36)
    monkeypatch.setattr("fake_session.Pair.held", held)
    calls = iter([False] * 2)
    ask(wants_elements=True, stop=lambda: next(calls, True))
    parts = ask(wants_elements=True)
    assert [part.statistics.unread_count for part in parts if part.statistics.unread_count] == left


def test_of_one_tensor_alone_the_sums_are_kept(ask, monkeypatch):
    monkeypatch.setattr("qdebug.tui.reading.answers._INTERVAL_SECONDS", -1)
    monkeypatch.setattr("qdebug.numerics.channels.BLOCK", 36)
    calls = iter([False] * 2)
    ask(wants_elements=True, stop=lambda: next(calls, True))
    ask(10, wants_elements=True)
    assert [part.statistics.unread_count for part in ask(wants_elements=True) if part.statistics.unread_count] == [
        108,
        72,
        36,
    ]


def test_too_little_memory_is_said(ask, monkeypatch):
    def fail(*_):
        raise MemoryError("no room for 4 GiB")

    monkeypatch.setattr("qdebug.tui.reading.answers.value_facts", fail)
    assert "no room for 4 GiB" in ask()[-1].problem
