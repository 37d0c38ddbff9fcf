"""Replays of sets of edits: made here, or by the workers that share the comparison."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from uuid import uuid4

import numpy as np

from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.measure.recordings import as_compared
from qdebug.compare.workers import check_version, in_workers
from qdebug.repair.edited_replay import Change, EditedReplay
from qdebug.repair.edits import EditCatalog
from qdebug.replay import Arithmetic
from qdebug.session import DiffSession, open_sample
from qdebug.version import __version__

__all__ = ["ReplayTask", "Replays", "replays_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTask:
    """Some samples to be replayed with some edits, all at once.

    Args:
        edits: Their names.
        places: Samples and steps.
        everything: Compute what no edit reaches, too.
    """

    edits: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    everything: bool = False


RealOutputs = Mapping[str, np.ndarray]
"""The real values of the network's outputs by name."""
Replays = Callable[[Sequence[ReplayTask]], Iterator[RealOutputs]]
"""Makes replays, and gives the outputs of task after task, sample after sample."""


def replays_of(
    session: DiffSession,
    catalog: EditCatalog,
    arithmetic: Arithmetic,
    told: Callable[[int, int], object] | None = None,
) -> Replays:
    """Return what makes replays: this process, or the workers that the session was given.

    Args:
        session: The two runs.
        catalog: The edits.
        arithmetic: How nodes on codes are computed.
        told: Called as a replay in this process gets on, see `EditedReplay`.
    """
    replay = EditedReplay(session.backend, arithmetic, told)
    if session.workers is None:
        return lambda tasks: chain.from_iterable(_replayed(catalog, replay, task) for task in _grouped(replay, tasks))
    executor, *paths, sample = session.workers
    given = pickle.dumps((paths, sample, session.alignment.pairs, session.entries(), catalog.nodes.places, arithmetic))
    apart = partial(_replayed_apart, uuid4().hex, __version__, given)
    return lambda tasks: chain.from_iterable(in_workers(executor, apart, list(_grouped(replay, tasks))))


def _grouped(replay: EditedReplay, tasks: Sequence[ReplayTask]) -> Iterator[ReplayTask]:
    """Split tasks into those whose samples go through the net together."""
    for task in tasks:
        for places in replay.grouped(task.places):
            yield replace(task, places=tuple(places))


def _replayed(catalog: EditCatalog, replay: EditedReplay, task: ReplayTask) -> Sequence[RealOutputs]:
    edits = list(map(catalog.named, task.edits))
    return replay.outputs(catalog.change(edits) if edits else Change(), task.places, everything=task.everything)


class _Worker(threading.local):
    """What a worker keeps from replay to replay of one search."""

    search: str = ""
    known: tuple[EditCatalog, EditedReplay] | None = None


_worker = _Worker()


def _replayed_apart(search: str, version: str, given: bytes, task: ReplayTask) -> Sequence[RealOutputs]:
    """Make replays in a worker.

    Args:
        search: Tells it from others.
        version: Version of the qdebug that asks for it.
        given: The two paths, the only sample to look at, all pairs, what is compared, the samples that edits are fitted
            to, and the arithmetic.
        task: What is to be replayed.
    """
    check_version(version)
    if _worker.known is None or _worker.search != search:
        _worker.known = None  # let go of the one before first
        made = pickle.loads(given)  # noqa: S301  above, by this program
        paths, sample, pairs, entries, places, arithmetic = made
        reference, backend = (as_compared(open_sample(path, sample)) for path in paths)
        catalog = EditCatalog(GraphCheck(reference, backend, pairs), entries, places)
        _worker.search, _worker.known = search, (catalog, EditedReplay(backend, arithmetic))
    return _replayed(*_worker.known, task)
