"""Turns at a comparison: the more urgent pass at a checkpoint, and one thread at a time computes."""

import sys
import threading
import time

import pytest

from qdebug.numerics.checkpoint import checkpoint
from qdebug.tui.elements.summing import Cancelled
from qdebug.tui.reading.turns import Turns, Urgency, short_switches


class FakeWorker:
    """A worker that is not cancelled yet."""

    is_cancelled = False


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.fixture
def line():
    """Provide a function that starts a thread which computes until it is let go, and the order of what happens."""
    turns, order, threads = Turns(), [], []

    def start(urgency, *, worker=None, steps=1, must_run=False):
        worker, gate = worker or FakeWorker(), threading.Event()

        def run():
            try:
                with turns.turn(urgency, worker, must_run=must_run):
                    order.append(f"{urgency.name} begins")
                    for _ in range(steps):
                        while not gate.wait(0.001):
                            checkpoint()
                    order.append(f"{urgency.name} ends")
            except Cancelled:
                order.append(f"{urgency.name} is cancelled")

        threads.append((threading.Thread(target=run, daemon=True), worker, gate))
        threads[-1][0].start()
        return worker, gate

    yield start, order
    for _, worker, gate in threads:
        worker.is_cancelled = True
        gate.set()
    for thread, *_ in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_the_more_urgent_passes_at_a_checkpoint_and_the_other_goes_on_after_it(line):
    start, order = line
    _, comparison = start(Urgency.COMPARISON)
    until(lambda: order == ["COMPARISON begins"])
    _, trial = start(Urgency.TRIAL)
    until(lambda: order[-1] == "TRIAL begins")
    _, job = start(Urgency.JOB)
    until(lambda: order[-1] == "JOB begins")
    comparison.set()
    trial.set()
    time.sleep(0.02)
    assert order[-1] == "JOB begins", "nobody computes beside it"
    job.set()
    until(lambda: len(order) == 6)
    assert order[3:] == ["JOB ends", "TRIAL ends", "COMPARISON ends"]


def test_the_less_urgent_waits(line):
    start, order = line
    _, answer = start(Urgency.ANSWER)
    until(lambda: order)
    _, trial = start(Urgency.TRIAL)
    trial.set()
    time.sleep(0.02)
    assert order == ["ANSWER begins"]
    answer.set()
    until(lambda: order[1:] == ["ANSWER ends", "TRIAL begins", "TRIAL ends"])


def test_who_was_cancelled_while_waiting_leaves_the_line_at_once(line):
    start, order = line
    start(Urgency.ANSWER)
    until(lambda: order)
    worker, _ = start(Urgency.TRIAL)
    worker.is_cancelled = True
    until(lambda: len(order) > 1)
    assert order == ["ANSWER begins", "TRIAL is cancelled"]


def test_a_job_waits_for_its_turn_though_it_was_cancelled(line):
    start, order = line
    _, answer = start(Urgency.JOB)
    until(lambda: order)
    worker, gate = start(Urgency.JOB, must_run=True)
    worker.is_cancelled = True
    gate.set()
    time.sleep(0.12)
    assert len(order) == 1
    answer.set()
    until(lambda: order[1:] == ["JOB ends", "JOB begins", "JOB ends"])


def test_who_is_cancelled_ends_before_the_next_one_begins(line):
    start, order = line
    worker, _ = start(Urgency.TRIAL)
    until(lambda: order)
    start(Urgency.ANSWER)
    until(lambda: order[-1] == "ANSWER begins")
    worker.is_cancelled = True
    time.sleep(0.12)
    assert order[-1] == "ANSWER begins", "it has been in the middle of a computation, and leaves it with the turn"


def test_switches_are_short_inside_and_as_before_afterwards():
    before = sys.getswitchinterval()
    with pytest.raises(ValueError), short_switches():  # noqa: PT011, PT012  whatever ends the block
        assert sys.getswitchinterval() < 0.001
        raise ValueError
    assert sys.getswitchinterval() == before


def test_switches_that_are_shorter_stay_so():
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-5)
        with short_switches():
            assert sys.getswitchinterval() == pytest.approx(1e-5)
    finally:
        sys.setswitchinterval(before)


async def test_the_program_gives_the_interpreter_to_the_screen_soon(byte_terminal, make_app, make_session):
    async def look(_):
        return sys.getswitchinterval()

    before = sys.getswitchinterval()
    assert await byte_terminal().run(lambda: make_app(make_session()), look) < 0.001
    assert sys.getswitchinterval() == before
