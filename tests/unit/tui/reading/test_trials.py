"""Scales that are tried on a worker: told in parts, given up for what is newer, going on after a job."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from qdebug.model import QuantParams
from qdebug.numerics.range_histogram import RangeCounter
from qdebug.scales.trial import Replay, TrialBench
from qdebug.tui.elements.summing import Cancelled
from qdebug.tui.reading.messages import (
    BudgetWish,
    EditWish,
    ExportRequest,
    Finished,
    Opening,
    ScaleWish,
    TrialReady,
    TrialRequest,
)
from qdebug.tui.reading.trials import Trials

QUANT = QuantParams(dtype="int8", scale=0.1, zero_point=0)
OTHER = QuantParams(dtype="int8", scale=0.2, zero_point=0)


class Bench:
    """A bench whose replay goes on until it is let go."""

    tensor, node, now = "q", "n", QUANT

    def __init__(self):
        counter = RangeCounter()
        counter.add(np.linspace(-1, 1, 99, dtype=np.float32))
        self.values = SimpleNamespace(
            name="values", histogram=counter.histogram(), errors=lambda quants: [str(each.scale[0]) for each in quants]
        )
        self.begun, self.let_go, self.replays = threading.Event(), threading.Event(), 0

    def replay(self, _, progress):
        self.replays += 1
        for done in range(2000):
            progress(done, 2000, "sample 0")
            self.begun.set()
            if self.let_go.wait(0.005):
                return Replay(samples=3)
        raise AssertionError("nobody let it go, or gave it up")


@pytest.fixture
def bench(monkeypatch):
    made = Bench()
    monkeypatch.setattr(TrialBench, "of_tensor", lambda *_, **__: made)
    return made


@pytest.fixture
def workers(make_workers, make_session):
    """Return the workers of a session that is compared."""
    session = make_session()
    workers = make_workers(Opening(compare=lambda: session)).compare()
    workers.until(Finished)
    return workers


def tried(workers, enough):
    """Take answers to the last request until one has enough; give all of them."""
    taken = []
    while not (taken and enough(taken[-1])):
        event = workers.events.get(timeout=20)
        if isinstance(event, TrialReady):
            taken.append(event)
    return taken


def trial_of(quant=QUANT, *, replay=False):
    return TrialRequest(row=9, tensor="t", wish=ScaleWish(quant=quant, wants_replay=replay))


def test_the_histogram_comes_first_then_the_choices_then_what_is_exact(workers, bench):
    workers.try_out(trial_of())
    parts = tried(workers, lambda ready: ready.error)
    assert [(bool(part.facts.choices), part.facts.current_error, part.error) for part in parts] == [
        (False, None, None),
        (True, "0.1", None),
        (True, "0.1", "0.1"),
    ]
    workers.try_out(trial_of(OTHER))
    assert [part.error for part in tried(workers, lambda ready: ready.error)] == [None, "0.2"], "nothing is done twice"


@pytest.mark.parametrize("newer", [None, trial_of(OTHER)])
def test_a_replay_is_given_up_for_what_is_newer(workers, bench, newer):
    workers.try_out(trial_of(replay=True))
    assert tried(workers, lambda ready: ready.replay_progress[1])[-1].replay_progress == (0, 2000)
    assert bench.begun.wait(20)
    if newer is None:
        workers.cancel("trial")
    else:
        workers.try_out(newer)
        assert tried(workers, lambda ready: ready.error == "0.2")[-1].replay is None
    workers.try_out(trial_of())
    assert tried(workers, lambda ready: ready.request.wish.quant is QUANT and ready.error)[-1].error == "0.1"
    assert bench.replays == 1


def test_a_replay_that_gives_way_to_a_job_goes_on_after_it(workers, bench, tmp_path):
    workers.try_out(trial_of(replay=True))
    assert bench.begun.wait(20)
    done = threading.Event()
    workers.do(ExportRequest(backend=0, path=tmp_path / "a", write=lambda *_: str(done.set())))
    assert done.wait(20)
    bench.let_go.set()
    assert tried(workers, lambda ready: ready.replay)[-1].replay.samples == 3
    assert bench.replays == 1


def test_the_end_of_the_program_ends_a_replay(workers, bench):
    workers.try_out(trial_of(replay=True))
    assert bench.begun.wait(20)
    assert workers.stop()


def test_a_file_that_was_written_over_is_not_tried_on(make_workers, make_session, bench):
    session, changes = make_session(), [""]
    workers = make_workers(Opening(compare=lambda: session, describe_change=lambda: changes[0])).compare()
    workers.until(Finished)
    changes[0] = "'npu.h5' was written over"
    workers.try_out(trial_of())
    assert "written over" in tried(workers, lambda ready: ready.problem)[-1].problem


class Session(SimpleNamespace):
    """A comparison; one is never equal to another."""

    __hash__ = object.__hash__


def side(places=tuple((at, 0) for at in range(5)), **graph):
    """Return a recording that has all tensors at the same places."""
    return SimpleNamespace(
        graph=SimpleNamespace(is_constant=lambda _: False, **graph),
        info=None,
        places=lambda _=None: places,
        has=lambda _, sample, step: (sample, step) in places,
    )


@pytest.fixture
def outputs():
    """Return a session of three outputs and five samples, and which budgets it was asked for."""
    asked, looked = [], []

    def budget(*, places, only, progress, kept):
        progress(1, 2)
        asked.append((*only, len(places)))
        looked.append(places)
        return SimpleNamespace(outputs=[SimpleNamespace(output=name, samples=len(places)) for name in only])

    errors = {"good": 30.0, "bad": 10.0, "broken": float("nan")}
    backend = side(outputs=tuple(errors))
    samples = [SimpleNamespace(sample=at, sqnr_db=level) for at, level in enumerate((30.0, 8.0, None, 9.0, 20.0))]
    compared = [
        SimpleNamespace(tensor=name, metrics=SimpleNamespace(sqnr_db=error), samples=samples)
        for name, error in errors.items()
    ]
    entries = [SimpleNamespace(tensor=name, reference_tensor=name) for name in errors]
    return Session(
        backend=backend, reference=side(), compared=compared, budget=budget, entries=lambda: entries, looked=looked
    ), asked


BUDGET = TrialRequest(row=9, tensor="t", wish=BudgetWish())


def test_the_budget_is_of_few_samples_first_and_of_the_worst_output_first(outputs):
    session, asked = outputs
    parts = []
    trials = Trials(parts.append)
    trials.answer(session, BUDGET, lambda: False)
    names = ["broken", "bad", "good"]
    assert asked == [(name, many) for many in (2, 5) for name in names]
    assert [each.output for each in parts[-1].budget.outputs] == names
    seen = [[each.samples for each in part.budget.outputs] for part in parts if not part.replay_progress[1]]
    assert seen == [[], [2], [2, 2], [2, 2, 2], [5, 2, 2], [5, 5, 2], [5, 5, 5]]
    assert session.looked[1] == [(2, 0), (1, 0)], "one whose error is not known, and the worst"
    assert "output bad, the worst 2 of 5 samples first" in {part.activity for part in parts}
    assert "output bad, all 5 samples" in {part.activity for part in parts}
    assert any(part.replay_progress == (1, 2) for part in parts)
    assert not parts[-1].activity
    trials.answer(session, BUDGET, lambda: False)
    assert len(asked) == 6, "nothing is made twice"


def test_a_budget_that_was_given_up_goes_on_with_what_is_missing(outputs):
    session, asked = outputs
    parts = []
    trials = Trials(parts.append)
    with pytest.raises(Cancelled):
        trials.answer(session, BUDGET, lambda: len(asked) == 4)
    assert asked[-1] == ("broken", 5)
    trials.answer(session, BUDGET, lambda: False)
    assert asked[4:] == [("bad", 5), ("good", 5)]


class Edits:
    """A bench of two edits of one node."""

    def __init__(self, *_):
        pass

    def unit_of(self, _):
        return SimpleNamespace(node=SimpleNamespace(name="conv"))

    def edits_of(self, _):
        return tuple(map(self.named_one, ("float", "rounding")))

    def named_one(self, name):
        return SimpleNamespace(name=name)

    def edits_named(self, names):
        return tuple(map(self.named_one, names))

    def fidelity_db(self):
        return 60.0

    def effects(self, edits, places):
        yield from (SimpleNamespace(samples=at + 1, edits=edits) for at in range(len(places)))

    def gains(self, _, offered, *__):
        yield from ((each.name, 1.0) for each in offered)


@pytest.mark.parametrize("marked", [(), ("float",)])
def test_edits_are_being_replayed_until_all_gains_are_known(outputs, monkeypatch, marked):
    session, _ = outputs
    monkeypatch.setattr("qdebug.tui.reading.trials.EditBench", Edits)
    parts = []
    wish = EditWish(edits=marked)
    Trials(parts.append).answer(session, TrialRequest(row=9, tensor="t", wish=wish), lambda: False)
    *before, last = [part for part in parts if part.edits is not None]
    assert all(part.activity for part in before)
    assert not last.activity
    assert {*last.edits.gains} == {"float", "rounding"}


async def test_the_verdict_does_not_wait_for_a_budget(make_app, make_session, settle):
    session = make_session(pause_at=5)
    app = make_app(session, screen="budget")
    async with app.run_test(size=(120, 40)) as pilot:
        main = await settle(pilot, until=lambda main: main.navigator and main.navigator.table.compared == 5)
        await pilot.pause()
        assert main.loader.trial is None
        session.resume.set()
        main = await settle(pilot, until=lambda main: main.scene is not None and main.scene.trial is not None)
        assert main.is_finished


@pytest.mark.parametrize(
    ("error", "said"),
    [(MemoryError(), "MemoryError"), (KeyError("conv1"), "KeyError: 'conv1'"), (ValueError("no values"), "no values")],
)
def test_an_error_is_a_problem_whatever_it_says_of_itself(outputs, error, said):
    session, _ = outputs
    parts = []

    def broken(**_):
        raise error

    session.budget = broken
    Trials(parts.append).answer(session, BUDGET, lambda: False)
    assert parts[-1].problem == said


def test_few_samples_are_those_that_both_sides_recorded_of_the_output(outputs):
    session, _ = outputs
    session.reference = side([(2, 0), (3, 0), (4, 0), (5, 0)])
    parts = []
    Trials(parts.append).answer(session, BUDGET, lambda: False)
    assert session.looked[0] == [(2, 0), (3, 0)]
    assert session.looked[-1] == [(2, 0), (3, 0), (4, 0)]
    assert "output bad, the worst 2 of 3 samples first" in {part.activity for part in parts}


def test_steps_are_not_counted_as_samples(outputs):
    session, _ = outputs
    session.reference = session.backend = side([(0, 0), (0, 1), (0, 2)], outputs=("bad",))
    parts = []
    Trials(parts.append).answer(session, BUDGET, lambda: False)
    assert "the worst 2 of 3 steps first" in {part.activity for part in parts}
