"""What the workers do with recordings: compare in order, answer in between, give way, and end early."""

import threading
import time
from queue import Empty

import pytest

from qdebug.errors import RecordingError
from qdebug.numerics.checkpoint import checkpoint
from qdebug.tui.reading.messages import (
    AcceptRequest,
    AlignmentProgress,
    Computed,
    DetailReady,
    DetailRequest,
    ExportRequest,
    Failed,
    Finished,
    Glimpsed,
    NamesLoaded,
    NoteRequest,
    NoteSaved,
    Opened,
    Opening,
    StatusMessage,
    WindowRequest,
)


@pytest.fixture
def start(make_workers):
    """Provide a function that starts to compare what a function opens."""
    return lambda open_source, **options: make_workers(Opening(compare=open_source, **options)).compare()


def detail_of(row, *, sample=None, **wanted):
    tensor = f"block{row // 4}/{('qlinearconv', 'qlinearadd', 'relu', 'maxpool')[row % 4]}_{row}_out"
    return DetailRequest(row=row, tensor=tensor, sample=sample, **wanted)


def answer(workers, row):
    while True:
        event = workers.events.get(timeout=20)
        if isinstance(event, DetailReady) and event.request.row == row and event.is_complete:
            return event


def wait_for(condition):
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it did not come to that")


def test_names_come_first_then_results_in_order_then_the_verdict(start, make_session):
    taken = start(make_session).until(Finished)
    assert isinstance(taken[0], Opened)
    assert taken[0].table.comparable == 24
    assert taken[0].samples == 3
    assert any(isinstance(event, Computed) for event in taken)
    assert [result.index for result in taken[0].table.results if result] == list(range(24))
    assert taken[-1].result.first_divergence == "block2/qlinearadd_9"


def test_an_answer_has_values_of_the_sample_and_the_worst_elements(start, make_session):
    workers = start(make_session)
    workers.until(Finished)
    workers.answer(detail_of(9, sample=2))
    partial = workers.until(DetailReady)[-1]
    assert not partial.is_complete
    assert partial.values is not None
    full = answer(workers, 9)
    assert full.values_sample == 2
    assert len(full.worst) == 8
    assert full.problem == ""


def test_one_sample_can_be_asked_for(start, make_session):
    session = make_session()
    workers = start(lambda: session)
    workers.until(Finished)
    workers.answer(detail_of(9, sample=1))
    assert answer(workers, 9).values_sample == 1
    assert session.values_read == [(9, 1)]


def test_facts_that_are_known_are_not_read_again(start, make_session):
    session = make_session()
    workers = start(lambda: session)
    workers.until(Finished)
    workers.answer(detail_of(9))
    known = answer(workers, 9)
    workers.answer(detail_of(9), known)
    assert answer(workers, 9).values is known.values
    assert session.values_read == [(9, 0)]


def test_the_newest_request_wins(start, make_session):
    session = make_session(pause_at=22)
    workers = start(lambda: session)
    workers.until(Opened)
    wait_for(lambda: "block5/qlinearadd_21_out" in workers.reader._comparisons[0].results)
    for row in (17, 18, 19, 20):
        workers.answer(detail_of(row))
    session.resume.set()
    assert answer(workers, 20).request.row == 20
    assert [row for row, _ in session.values_read] == [20], "rows that were passed by are never read"


def test_what_cannot_be_shown_is_said_and_ends_nothing(start, make_session):
    workers = start(make_session)
    workers.until(Finished)
    workers.answer(detail_of(5))
    assert "shapes differ" in answer(workers, 5).problem
    workers.answer(detail_of(6))
    assert answer(workers, 6).problem == ""


@pytest.mark.parametrize("error", [RecordingError("damaged"), OSError("gone"), ZeroDivisionError("bug")])
def test_whatever_ends_the_reader_is_reported(start, error):
    def fail():
        raise error

    assert start(fail).until(Failed)[-1].error is error


def test_a_file_that_breaks_later_is_reported(start, make_session):
    workers = start(lambda: make_session(break_at=7))
    assert "damaged" in str(workers.until(Failed)[-1].error)


def test_stopping_ends_a_long_computation(start, make_session):
    session = make_session(5000, delay=0.001)
    workers = start(lambda: session)
    workers.until(Opened)
    assert workers.stop()


def test_a_recording_that_grows_is_compared_anew(start, make_session):
    sessions = [make_session(6, failing=()), make_session(12, failing=())]
    grown = threading.Event()

    def refresh():
        if grown.is_set() and len(sessions) > 1:
            sessions.pop(0)
            return True
        return False

    writing = lambda: len(sessions) > 1  # noqa: E731  until the last has come
    workers = start(lambda: sessions[0], refresh=refresh, is_writing=writing)
    taken = workers.until(Finished)
    assert taken[0].is_writing
    assert taken[-1].result.coverage.compared == 6
    grown.set()
    taken = workers.until(Finished)
    assert isinstance(taken[0], Opened)
    assert not taken[0].is_writing
    assert taken[-1].result.coverage.compared == 12


def test_stages_of_a_long_alignment_are_told_now_and_then(start, make_session, monkeypatch):
    told, go = [], threading.Event()
    monkeypatch.setattr("qdebug.tui.reading.reader._STAGE_SECONDS", 0.05)

    def compare():
        for number in range(300):
            told[0](f"pairing tensors {number // 3}%")
            time.sleep(0.001)
        go.wait(20)
        told[0]("comparing layouts")
        return make_session()

    workers = start(compare, add_listener=told.append)
    first = workers.events.get(timeout=20)
    assert isinstance(first, AlignmentProgress)
    assert first.stage.startswith("pairing tensors ")
    workers.cancel("comparison")  # whoever quits does not wait for the rest
    go.set()
    assert workers.stop()
    left = [workers.events.get() for _ in range(workers.events.qsize())]
    assert {type(event) for event in left} <= {AlignmentProgress}
    assert len(left) < 20


def test_names_come_before_the_graphs(start, make_session):
    taken = start(make_session, read_names=lambda: ["t0", "t1"]).until(Finished)
    assert [type(event) for event in taken[:2]] == [NamesLoaded, Opened]
    assert taken[0].table.names == ["t0", "t1"]


def test_the_graphs_wait_until_the_names_are_painted(start, make_session, monkeypatch):
    monkeypatch.setattr("qdebug.tui.reading.reader._PAINT_SECONDS", 20)
    workers = start(make_session, read_names=lambda: ["t0"])
    workers.until(NamesLoaded)
    with pytest.raises(Empty):
        workers.events.get(timeout=0.1)
    workers.reader.names_shown.set()
    workers.until(Opened)


def test_the_preferred_backend_is_compared_first(make_workers, make_session):
    first, second = make_session(6, pause_at=3), make_session(6)
    workers = make_workers(Opening(compare=lambda: first), Opening(compare=lambda: second))
    workers.reader.preferred_backend = 1
    workers.compare()
    assert workers.until(Finished)[-1].backend_at == 1
    first.resume.set()
    assert workers.until(Finished)[-1].backend_at == 0


def test_one_backend_that_fails_does_not_end_the_others(make_workers, make_session):
    def fail():
        raise RecordingError("damaged")

    workers = make_workers(Opening(compare=fail), Opening(compare=make_session)).compare()
    failed = workers.until(Failed)[-1]
    assert (failed.backend_at, failed.fatal) == (0, False)
    assert workers.until(Finished)[-1].backend_at == 1


@pytest.fixture
def searches(monkeypatch):
    """Let the search for an arithmetic go on for ever; give the list of those begun."""
    begun = []

    def search(*_, node, **__):
        begun.append(node)
        while True:
            checkpoint()
            time.sleep(0.001)

    monkeypatch.setattr("qdebug.running.explain_file.explain", search)
    return begun


def test_a_search_that_nobody_waits_for_any_more_is_given_up(start, make_session, searches):
    workers = start(make_session)
    workers.until(Finished)
    workers.answer(detail_of(9, wants_explanation=True))
    wait_for(lambda: searches)
    workers.answer(detail_of(12))
    assert answer(workers, 12).request.row == 12
    assert searches == ["block2/qlinearadd_9"]


def test_a_search_gives_way_to_a_job_and_goes_on_after_it(start, make_session, searches, tmp_path):
    workers = start(make_session)
    workers.until(Finished)
    workers.answer(detail_of(9, wants_explanation=True))
    wait_for(lambda: searches)
    workers.do(ExportRequest(backend=0, path=tmp_path / "x", write=lambda _, __: "nothing"))
    assert "nothing" in workers.until(StatusMessage)[-1].message
    workers.do(ExportRequest(backend=0, path=tmp_path / "y", write=lambda _, __: "nothing more"))
    assert "nothing more" in workers.until(StatusMessage)[-1].message
    assert len(searches) == 1
    assert workers.stop(), "the search goes on after the end"


def test_a_search_does_not_keep_the_end_waiting(start, make_session, searches):
    workers = start(make_session)
    workers.until(Finished)
    workers.answer(detail_of(9, wants_explanation=True))
    wait_for(lambda: searches)
    assert workers.stop()


def test_a_long_comparison_is_given_up_when_the_program_ends(make_session, start):
    begun = threading.Event()

    class Endless(make_session):
        def results(self):
            yield next(super().results())
            begun.set()
            while True:
                time.sleep(0.001)
                checkpoint()

    workers = start(lambda: Endless(4))
    assert begun.wait(20)
    assert workers.stop()
    while not workers.events.empty():
        assert not isinstance(workers.events.get(), Failed)


@pytest.fixture
def endless(make_session):
    """Provide the class of a session whose comparison of the third tensor takes for ever."""

    class Endless(make_session):
        checkpoints = False

        def results(self):
            for count, result in enumerate(super().results()):
                if count == 2:
                    while not self.resume.is_set():
                        time.sleep(0.001)
                        if self.checkpoints:
                            checkpoint()
                yield result

    return Endless


@pytest.fixture
def paused(start, endless):
    """Return the workers and the session of a comparison that is at its third tensor, and reaches checkpoints."""
    session = endless()
    session.checkpoints = True
    workers = start(lambda: session)
    workers.until(Computed)
    wait_for(lambda: "block0/qlinearadd_1_out" in workers.reader._comparisons[0].results)
    yield workers, session
    session.resume.set()


def look_at(workers, row, **request):
    workers.look(WindowRequest(row=row, tensor=detail_of(row).tensor, sample=None, **request))
    return workers.until(Glimpsed)[-1]


def test_elements_can_be_seen_while_another_tensor_is_being_compared_without_a_pause(start, endless):
    session = endless()
    workers = start(lambda: session)
    workers.until(Computed)
    seen = look_at(workers, 15, element=(0, 1, 2, 3))
    assert (seen.sample, seen.problem) == (0, "")
    assert seen.part.shape == (1, 4, 6, 6)
    assert session.windows_read == [(15, 0, (0, 1, 2, 3))]
    assert look_at(workers, 5).part is None, "its shapes differ"
    session.resume.set()
    workers.until(Finished)
    workers.answer(detail_of(15, wants_elements=True))
    assert answer(workers, 15).statistics is not None, "the whole answer comes when it is compared"


def test_what_is_compared_is_answered_between_two_blocks_of_a_long_comparison(paused):
    workers, session = paused
    workers.answer(detail_of(1))
    assert answer(workers, 1).values is not None
    workers.answer(detail_of(15))  # its turn comes later
    workers.answer(detail_of(0))
    assert answer(workers, 0).request.row == 0
    assert not session.resume.is_set()
    session.resume.set()
    workers.until(Finished)


def test_what_there_is_to_do_is_done_between_two_blocks_of_a_long_comparison(paused, tmp_path):
    workers, session = paused
    limits, node = tmp_path / "limits.toml", "block0/qlinearadd_1"
    workers.do(NoteRequest(backend=0, node=node, text="look here", path=limits))
    assert workers.until(NoteSaved)[-1].text == "look here"
    workers.do(AcceptRequest(backend=0, node=node, reason="known", expires=None, path=limits))
    wait_for(lambda: node in session.accepted)
    written = tmp_path / "view.svg"
    workers.do(ExportRequest(backend=0, path=written, write=lambda _, path: str(path.write_text("x"))))
    wait_for(written.exists)
    assert not session.resume.is_set(), "the comparison is still at it"
    session.resume.set()
    assert len(workers.until(Finished)[-1].result.nodes) == 24


def test_what_there_is_to_do_is_not_given_up_half_way(paused, tmp_path):
    workers, _ = paused
    begun, go_on = threading.Event(), threading.Event()

    def write(_, path):
        begun.set()
        assert go_on.wait(20)
        checkpoint()
        path.write_text("x")
        return "all of it"

    workers.do(ExportRequest(backend=0, path=tmp_path / "a.csv", write=write))
    assert begun.wait(20)
    workers.answer(detail_of(1))
    go_on.set()
    assert "all of it" in workers.until(StatusMessage)[-1].message
    assert answer(workers, 1).values is not None


def test_the_last_note_and_the_last_acknowledgement_are_written_though_the_program_ends(start, endless, tmp_path):
    session, limits, notes = endless(), tmp_path / "limits.toml", tmp_path / "notes.toml"
    workers = start(lambda: session)
    workers.until(Computed)
    workers.do(AcceptRequest(backend=0, node="n", reason="known", expires=None, path=limits))
    workers.do(NoteRequest(backend=0, node="n", text="look here", path=notes))
    workers.cancel("comparison")
    session.resume.set()
    assert workers.stop()
    assert "look here" in notes.read_text()
    assert "known" in limits.read_text()


def test_a_fault_in_what_is_asked_is_none_of_the_comparison(paused):
    workers, session = paused

    def broken(*_, **__):
        raise KeyError("a mistake")

    session.profile = broken
    workers.answer(detail_of(1))
    failed = workers.until(Failed)[-1]
    assert failed.fatal
    assert isinstance(failed.error, KeyError)


def test_a_file_that_was_written_over_is_not_glimpsed_at(start, endless):
    session = endless()
    workers = start(lambda: session, describe_change=lambda: "'npu.h5' was written over")
    workers.until(Computed)
    seen = look_at(workers, 15)
    assert seen.part is None
    assert "written over" in seen.problem
    assert not session.windows_read
    session.resume.set()


def test_the_end_does_not_wait_for_a_file_that_takes_a_replay(start, make_session, tmp_path):
    workers = start(make_session)
    workers.until(Finished)
    begun, let_go = threading.Event(), threading.Event()

    def write(*_):
        begun.set()
        while not let_go.wait(0.01):
            checkpoint()
        return "all of it"

    workers.do(ExportRequest(backend=0, path=tmp_path / "a.json", write=write))
    assert begun.wait(20)
    ended = workers.stop()
    let_go.set()
    assert ended
    assert not any(isinstance(event, Failed) for event in workers.events.queue)
