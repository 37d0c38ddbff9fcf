import threading
import time
from queue import Empty, Queue

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
    LookRequest,
    NamesLoaded,
    NoteKept,
    NoteRequest,
    Opened,
    Opening,
    StatusMessage,
    Withdraw,
)
from qdebug.tui.reading.reader import Reader


@pytest.fixture
def start():
    """Provide a function that starts a reader; all of them are stopped at the end."""
    readers = []

    def make(open_source):
        events = Queue()
        reader = Reader([Opening(compare=open_source)], events.put)
        reader.start()
        readers.append(reader)
        return reader, events

    yield make
    for reader in readers:
        reader.stop()
        reader.join(10)
        assert not reader.is_alive()


def until(events, kind):
    """Take events up to the first one of a kind; give all of them."""
    taken = []
    while True:
        taken.append(events.get(timeout=20))
        if isinstance(taken[-1], kind):
            return taken


def ask(reader, row, *, number=1, sample=None, tensor=None):
    tensor = tensor or f"block{row // 4}/{('qlinearconv', 'qlinearadd', 'relu', 'maxpool')[row % 4]}_{row}_out"
    reader.request(DetailRequest(id=number, row=row, tensor=tensor, sample=sample))


def answer(events, number):
    while True:
        event = events.get(timeout=20)
        if isinstance(event, DetailReady) and event.request.id == number and event.complete:
            return event


def test_names_come_first_then_results_in_order_then_the_verdict(start, make_session):
    _, events = start(make_session)
    taken = until(events, Finished)
    assert isinstance(taken[0], Opened)
    assert taken[0].table.comparable == 24
    assert taken[0].samples == 3
    assert any(isinstance(event, Computed) for event in taken)
    assert [result.index for result in taken[0].table.results if result] == list(range(24))
    assert taken[-1].result.first_divergence == "block2/qlinearadd_9"


def test_an_answer_has_values_of_the_sample_and_the_worst_elements(start, make_session):
    reader, events = start(make_session)
    until(events, Finished)
    ask(reader, 9, sample=2)
    partial = until(events, DetailReady)[-1]
    assert not partial.complete
    assert partial.values is not None
    full = answer(events, 1)
    assert full.values_sample == 2
    assert len(full.worst) == 8
    assert full.problem == ""


def test_one_sample_can_be_asked_for(start, make_session):
    session = make_session()
    reader, events = start(lambda: session)
    until(events, Finished)
    ask(reader, 9, sample=1)
    assert answer(events, 1).values_sample == 1
    assert session.values_read == [(9, 1)]


def test_the_newest_request_wins(start, make_session):
    session = make_session(pause_at=12)
    reader, events = start(lambda: session)
    until(events, Opened)
    for number, row in enumerate((20, 21, 22, 23), start=1):
        ask(reader, row, number=number)
    session.resume.set()
    assert answer(events, 4).request.row == 23
    assert [row for row, _ in session.values_read] == [23], "rows that were passed by are never read"


def test_a_row_that_is_not_compared_yet_is_answered_when_it_is(start, make_session):
    session = make_session(pause_at=12)
    reader, events = start(lambda: session)
    until(events, Opened)
    ask(reader, 15)
    session.resume.set()
    taken = until(events, Finished)
    assert any(isinstance(event, DetailReady) and event.request.row == 15 for event in taken)


def test_what_cannot_be_shown_is_said_and_ends_nothing(start, make_session):
    reader, events = start(make_session)
    until(events, Finished)
    ask(reader, 5)
    assert "shapes differ" in answer(events, 1).problem
    ask(reader, 6, number=2)
    assert answer(events, 2).problem == ""


@pytest.mark.parametrize("error", [RecordingError("damaged"), OSError("gone"), ZeroDivisionError("bug")])
def test_whatever_ends_the_reader_is_reported(start, error):
    def fail():
        raise error

    _, events = start(fail)
    assert until(events, Failed)[-1].error is error


def test_a_file_that_breaks_later_is_reported(start, make_session):
    _, events = start(lambda: make_session(break_at=7))
    assert "damaged" in str(until(events, Failed)[-1].error)


def test_stopping_ends_a_long_computation(make_session):
    session = make_session(5000, delay=0.001)
    opened = threading.Event()
    reader = Reader([Opening(compare=lambda: session)], lambda event: opened.set())
    reader.start()
    assert opened.wait(20)
    reader.stop()
    reader.join(10)
    assert not reader.is_alive()


def test_a_recording_that_grows_is_compared_anew(make_session):
    sessions = [make_session(6, failing=()), make_session(12, failing=())]
    grown = threading.Event()
    events = Queue()

    def refresh():
        if grown.is_set() and len(sessions) > 1:
            sessions.pop(0)
            return True
        return False

    writing = lambda: len(sessions) > 1  # noqa: E731  until the last has come
    reader = Reader([Opening(compare=lambda: sessions[0], refresh=refresh, writing=writing)], events.put)
    reader.start()
    taken = until(events, Finished)
    assert taken[0].writing
    assert taken[-1].result.coverage.compared == 6
    grown.set()
    taken = until(events, Finished)
    assert isinstance(taken[0], Opened)
    assert not taken[0].writing
    assert taken[-1].result.coverage.compared == 12
    reader.stop()
    reader.join(10)


def test_stages_of_a_long_alignment_are_told_now_and_then(make_session, monkeypatch):
    told, events, go = [], Queue(), threading.Event()
    monkeypatch.setattr("qdebug.tui.reading.reader._STAGE_SECONDS", 0.05)

    def compare():
        for number in range(300):
            told[0](f"pairing tensors {number // 3}%")
            time.sleep(0.001)
        go.wait(20)
        told[0]("comparing layouts")
        return make_session()

    reader = Reader([Opening(compare=compare, hear=told.append)], events.put)
    reader.start()
    first = events.get(timeout=20)
    assert isinstance(first, AlignmentProgress)
    assert first.stage.startswith("pairing tensors ")
    reader.stop()  # whoever quits does not wait for the rest
    go.set()
    reader.join(20)
    assert not reader.is_alive()
    left = [events.get() for _ in range(events.qsize())]
    assert {type(event) for event in left} <= {AlignmentProgress}
    assert len(left) < 20


def test_names_come_before_the_graphs(make_session):
    events = Queue()
    reader = Reader([Opening(compare=make_session, names=lambda: ["t0", "t1"])], events.put)
    reader.start()
    taken = until(events, Finished)
    assert [type(event) for event in taken[:2]] == [NamesLoaded, Opened]
    assert taken[0].table.names == ["t0", "t1"]
    reader.stop()
    reader.join(10)


def test_the_graphs_wait_until_the_names_are_painted(make_session, monkeypatch):
    monkeypatch.setattr("qdebug.tui.reading.reader._PAINT_SECONDS", 20)
    events = Queue()
    reader = Reader([Opening(compare=make_session, names=lambda: ["t0"])], events.put)
    reader.start()
    until(events, NamesLoaded)
    with pytest.raises(Empty):
        events.get(timeout=0.1)
    reader.shown()
    until(events, Opened)
    reader.stop()
    reader.join(10)
    assert not reader.is_alive()


def test_the_preferred_backend_is_compared_first(make_session):
    first, second = make_session(6, pause_at=3), make_session(6)
    events = Queue()
    reader = Reader([Opening(compare=lambda: first), Opening(compare=lambda: second)], events.put)
    reader.prefer(1)
    reader.start()
    assert until(events, Finished)[-1].backend_at == 1
    first.resume.set()
    assert until(events, Finished)[-1].backend_at == 0
    reader.stop()
    reader.join(10)


def test_one_backend_that_fails_does_not_end_the_others(make_session):
    def fail():
        raise RecordingError("damaged")

    events = Queue()
    reader = Reader([Opening(compare=fail), Opening(compare=make_session)], events.put)
    reader.start()
    failed = until(events, Failed)[-1]
    assert (failed.backend_at, failed.fatal) == (0, False)
    assert until(events, Finished)[-1].backend_at == 1
    reader.stop()
    reader.join(10)


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


def look_for_arithmetic(reader, row, number):
    tensor = f"block{row // 4}/qlinearadd_{row}_out"
    reader.request(DetailRequest(id=number, row=row, tensor=tensor, sample=None, explain=True))


def wait_for(condition):
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it did not come to that")


def test_a_search_that_nobody_waits_for_any_more_is_given_up(start, make_session, searches):
    reader, events = start(make_session)
    until(events, Finished)
    look_for_arithmetic(reader, 9, 1)
    wait_for(lambda: searches)
    reader.request(Withdraw())
    ask(reader, 12, number=2)
    assert answer(events, 2).request.row == 12
    assert searches == ["block2/qlinearadd_9"]


def test_a_search_gives_way_to_a_job_and_begins_again(start, make_session, searches, tmp_path):
    reader, events = start(make_session)
    until(events, Finished)
    look_for_arithmetic(reader, 9, 1)
    wait_for(lambda: searches)
    reader.request(ExportRequest(backend=0, path=tmp_path / "x", write=lambda _, __: "nothing"))
    assert "nothing" in until(events, StatusMessage)[-1].message
    wait_for(lambda: len(searches) == 2)
    reader.stop()
    reader.join(10)
    assert not reader.is_alive(), "the search goes on after the end"


def test_a_search_does_not_keep_the_end_waiting(start, make_session, searches):
    reader, events = start(make_session)
    until(events, Finished)
    look_for_arithmetic(reader, 9, 1)
    wait_for(lambda: searches)
    reader.stop()
    reader.join(10)
    assert not reader.is_alive()


def test_a_long_comparison_is_given_up_when_the_program_ends(make_session, start):
    begun = threading.Event()

    class Endless(make_session):
        def results(self):
            yield next(super().results())
            begun.set()
            while True:
                time.sleep(0.001)
                checkpoint()

    reader, events = start(lambda: Endless(4))
    assert begun.wait(20)
    reader.stop()
    reader.join(10)
    assert not reader.is_alive()
    while not events.empty():
        assert not isinstance(events.get(), Failed)


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


def window_of(events, number):
    while True:
        event = events.get(timeout=20)
        if isinstance(event, Glimpsed) and event.request.id == number:
            return event


def look_at(reader, row, number, **asked):
    tensor = f"block{row // 4}/{('qlinearconv', 'qlinearadd', 'relu', 'maxpool')[row % 4]}_{row}_out"
    reader.request(DetailRequest(id=number, row=row, tensor=tensor, sample=None, elements=True))
    reader.request(LookRequest(id=number, row=row, tensor=tensor, sample=None, **asked))


def test_elements_can_be_seen_while_another_tensor_is_being_compared_without_a_pause(start, endless):
    session = endless()
    reader, events = start(lambda: session)
    until(events, Computed)
    look_at(reader, 15, 1, element=(0, 1, 2, 3))
    seen = window_of(events, 1)
    assert (seen.sample, seen.problem) == (0, "")
    assert seen.part.shape == (1, 4, 6, 6)
    assert session.windows_read == [(15, 0, (0, 1, 2, 3))]
    look_at(reader, 5, 2)
    assert window_of(events, 2).part is None, "its shapes differ"
    session.resume.set()
    look_at(reader, 15, 3)
    assert answer(events, 3).whole is not None, "the whole answer comes when it is compared"


def test_what_is_compared_is_answered_between_two_blocks_of_a_long_comparison(start, endless):
    session = endless()
    session.checkpoints = True
    reader, events = start(lambda: session)
    until(events, Computed)
    ask(reader, 1)
    assert answer(events, 1).values is not None
    assert not session.resume.is_set()
    ask(reader, 15, number=2)  # its turn comes later
    ask(reader, 0, number=3)
    assert answer(events, 3).request.row == 0
    session.resume.set()
    until(events, Finished)


def test_what_there_is_to_do_is_done_between_two_blocks_of_a_long_comparison(start, endless, tmp_path):
    session = endless()
    session.checkpoints = True
    reader, events = start(lambda: session)
    until(events, Computed)
    wait_for(lambda: "block0/qlinearadd_1_out" in reader._comparisons[0].results)
    limits, node = tmp_path / "limits.toml", "block0/qlinearadd_1"
    reader.request(NoteRequest(backend=0, node=node, text="look here", path=limits))
    assert until(events, NoteKept)[-1].text == "look here"
    reader.request(AcceptRequest(backend=0, node=node, reason="known", expires=None, path=limits))
    wait_for(lambda: node in session.accepted)
    written = tmp_path / "view.svg"
    reader.request(ExportRequest(backend=0, path=written, write=lambda _, path: str(path.write_text("x"))))
    wait_for(written.exists)
    assert not session.resume.is_set(), "the comparison is still at it"
    session.resume.set()
    assert len(until(events, Finished)[-1].result.nodes) == 24


def test_what_there_is_to_do_is_not_given_up_half_way(start, endless, tmp_path):
    session = endless()
    session.checkpoints = True
    reader, events = start(lambda: session)
    until(events, Computed)
    begun, go_on = threading.Event(), threading.Event()

    def write(_, path):
        begun.set()
        assert go_on.wait(20)
        checkpoint()
        path.write_text("x")
        return "all of it"

    reader.request(ExportRequest(backend=0, path=tmp_path / "a.csv", write=write))
    assert begun.wait(20)
    ask(reader, 1)
    go_on.set()
    assert "all of it" in until(events, StatusMessage)[-1].message
    assert answer(events, 1).values is not None
    session.resume.set()


def test_the_last_note_is_written_though_the_program_ends(start, endless, tmp_path):
    session, limits = endless(), tmp_path / "limits.toml"
    reader, events = start(lambda: session)
    until(events, Computed)
    reader.request(NoteRequest(backend=0, node="n", text="look here", path=limits))
    reader.stop()
    session.resume.set()
    reader.join(10)
    assert "look here" in limits.read_text()


def test_a_fault_in_what_is_asked_is_none_of_the_comparison(start, endless):
    session = endless()
    session.checkpoints = True

    def broken(*_, **__):
        raise KeyError("a mistake")

    session.profile = broken
    reader, events = start(lambda: session)
    until(events, Computed)
    ask(reader, 1)
    failed = until(events, Failed)[-1]
    assert failed.fatal
    assert isinstance(failed.error, KeyError)


def test_a_file_that_was_written_over_is_not_glimpsed_at(endless):
    session, events = endless(), Queue()
    reader = Reader([Opening(compare=lambda: session, changed=lambda: "'npu.h5' was written over")], events.put)
    reader.start()
    until(events, Computed)
    look_at(reader, 15, 1)
    seen = window_of(events, 1)
    assert seen.part is None
    assert "written over" in seen.problem
    assert not session.windows_read
    session.resume.set()
    reader.stop()
    reader.join(10)


def test_the_end_does_not_wait_for_a_file_that_takes_a_replay(start, make_session, tmp_path):
    reader, events = start(make_session)
    until(events, Finished)
    begun, let_go = threading.Event(), threading.Event()

    def write(*_):
        begun.set()
        while not let_go.wait(0.01):
            checkpoint()
        return "all of it"

    reader.request(ExportRequest(backend=0, path=tmp_path / "a.json", write=write))
    assert begun.wait(20)
    reader.stop()
    reader.join(10)
    ended = not reader.is_alive()
    let_go.set()
    assert ended
    assert not any(isinstance(event, Failed) for event in events.queue)
