"""The fake session, an application on it, and what it takes to bring it to rest."""

import importlib.util
import sys
import time
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from qdebug import data
from qdebug.arithmetic.patterns.residual import Residual
from qdebug.compare.align.pairs import Match, Pair
from qdebug.compare.explaining.explanation import ExplainStatus, NodeExplanation
from qdebug.model import Graph
from qdebug.recording.recorder import Recorder
from qdebug.repair.edit_bench import EditBench
from qdebug.scales.trial import TrialBench
from qdebug.session import DiffSession, open_recording
from qdebug.tui.application import QdebugApp
from qdebug.tui.drawing.glyphs import UNICODE
from qdebug.tui.drawing.palette import DARK
from qdebug.tui.reading.messages import Opening
from qdebug.tui.screen.start_place import StartPlace


def fake_session(**options):
    path = Path(__file__).parents[1] / "unit" / "tui" / "fake_session.py"
    spec = importlib.util.spec_from_file_location("snapshot_fake_session", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.FakeSession(**options)


def with_an_output(session):
    """Return a fake session of which the last tensor is an output, with a known error: it has a budget then."""
    graph, last = session.backend._graph, session._plan[-1].tensor
    session.backend._graph = Graph(graph.nodes, tensors=graph.tensors.values(), inputs=graph.inputs, outputs=(last,))
    for recorded in (session.reference, session.backend):
        has = recorded.has
        recorded.has = lambda tensor, *place, has=has: tensor in {last, "ref_23"} or has(tensor, *place)
    session.compared = [SimpleNamespace(tensor=last, metrics=SimpleNamespace(sqnr_db=8.0), samples=())]
    return session


@pytest.fixture(autouse=True)
def made_up_search(monkeypatch):
    """Let the search for an arithmetic find the same at once: the fake session has no values that fit together."""

    def search(_, *, node, **__):
        left = Residual(
            wrong=90,
            total=144,
            max_lsb=5,
            pattern="channels",
            detail="channels 2 to 3 of 4",
            likely="a block of filters that the kernel skips",
            elements=((0, 2, 0, 0), (0, 2, 0, 1)),
        )
        found = NodeExplanation(
            node=node,
            op="QLinearAdd",
            tensor=f"{node}_out",
            status=ExplainStatus.UNEXPLAINED,
            reason="90 of 144 elements differ from a replay of QLinearAdd",
            match=0.375,
            tried=113,
            elements=144,
            residual=left,
        )
        return SimpleNamespace(nodes=(found,))

    monkeypatch.setattr("qdebug.running.explain_file.explain", search)


@pytest.fixture(autouse=True)
def made_up_bench(monkeypatch):
    """Let scales be tried on made-up values; the fake session has none that it could be done with."""
    values = np.random.default_rng(3).laplace(size=(4, 36)).astype(np.float32)
    sides = {
        "values": (values, {}),
        "codes": (np.clip(np.rint(values / 0.03), -128, 127).astype(np.int8), {"scale": 0.03}),
    }
    recordings = {}
    for name, (array, facts) in sides.items():
        with Recorder(None, backend="made up") as rec:
            rec.put(name, array, **facts)
        recordings[name] = rec.recording
    pair = Pair(reference="values", backend="codes", match=Match.EXACT, reason="")

    def bench(*_, **__):
        return TrialBench(recordings["codes"], "codes", reference=recordings["values"], pairs=[pair])

    monkeypatch.setattr(TrialBench, "of_tensor", bench)


class MadeUpEdits:
    """A bench of edits whose figures do not depend on when they are made; the net of the fake session has no edits."""

    def __init__(self, *_):
        self._real = EditBench(
            DiffSession(*(open_recording(files(data).joinpath(f"digits.{form}.h5")) for form in ("float", "int8")))
        )

    def unit_of(self, _):
        return self._real.unit_of("conv2_quantized")

    def edits_of(self, unit):
        return self._real.edits_of(unit)

    def edits_named(self, names):
        return self._real.edits_named(names)

    def effects(self, edits, _):
        yield from (replace(effect, seconds=0.05) for effect in self._real.effects(edits, [(0, 0)]))

    def gains(self, edits, offered, *_):
        yield from self._real.gains(edits, offered, [(0, 0)])

    def fidelity_db(self):
        return self._real.fidelity_db()


@pytest.fixture(autouse=True)
def made_up_edits(monkeypatch):
    monkeypatch.setattr("qdebug.tui.reading.trials.EditBench", MadeUpEdits)


@pytest.fixture
def make_picture_app():
    """Return a function that makes an application on fake sessions."""

    def make(*, glyphs=UNICODE, palette=DARK, screen="nodes", backends=1, **options):
        sessions = [with_an_output(fake_session(**options)) for _ in range(backends)]
        titles = [("ref.h5", "npu.h5"), ("ref.h5", "other.h5")][:backends]
        openings = [Opening(compare=lambda each=each: each) for each in sessions]
        return QdebugApp(openings, titles=titles, start_place=StartPlace(screen=screen), glyphs=glyphs, palette=palette)

    return make


@pytest.fixture
def pitch_app(monkeypatch):
    """Return the application on the recordings of a real network, of which nothing is made up."""
    monkeypatch.undo()
    folder = Path(__file__).parent / "pitch_net"

    def compare():
        return DiffSession(open_recording(folder / "pitch.h5"), open_recording(folder / "pitch.int8.h5"))

    return QdebugApp([Opening(compare=compare)], titles=[("pitch.h5", "pitch.int8.h5")])


async def until(pilot, condition):
    """Wait for something to be on the screen."""
    end = time.monotonic() + 120  # a busy machine takes its time
    while time.monotonic() < end:
        await pilot.pause(0.01)
        if condition(pilot.app.screen_stack[0]):
            await pilot.pause(0.06)  # what comes in is drawn every 0.05 s
            return
    raise TimeoutError("the interface did not come to rest")


def computed(main):
    """Tell whether all is compared."""
    return all(each.result is not None for each in main.backend_states)


def shown(main):
    """Tell whether all that the screen shows of the tensor is there."""
    ready, missing = main.detail_ready, main.scene.plan_row.missing
    if main.view in {"budget", "mend"}:
        tried = main.scene.trial
        return tried is not None and (tried.budget or tried.edits) and not tried.activity
    if main.view == "what-if" and missing is None:
        tried = main.scene.trial
        return tried is not None and tried.error is not None
    if not main.shows_detail or missing is not None:
        return True
    if ready is None or not ready.is_complete:
        return False
    there = ready.statistics is not None and main.scene.glimpse is not None
    return (there or not main.view.shows_elements) and (ready.explanations or main.view != "why")


@pytest.fixture
def settled():
    """Return functions that wait until all is compared, and until all that the screen shows is there."""
    return SimpleNamespace(until=until, computed=computed, shown=shown)
