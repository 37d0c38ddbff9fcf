"""Replays of edit sets, in this process or in the workers that share the comparison."""

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
    """Samples that are replayed together, with the same edits.

    Args:
        edits: Names of the edits.
        places: Samples and steps.
        everything: Whether to also compute nodes that no edit reaches.
        next_edits: Names of edits that later tasks may add to these, so that their replays can continue this one.
    """

    edits: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    everything: bool = False
    next_edits: tuple[str, ...] = ()


RealOutputs = Mapping[str, np.ndarray]
"""The real values of the network's outputs by name."""
Replays = Callable[[Sequence[ReplayTask]], Iterator[RealOutputs]]
"""Runs replays and yields their outputs by task and sample."""


def replays_of(
    session: DiffSession,
    catalog: EditCatalog,
    arithmetic: Arithmetic,
    on_progress: Callable[[int, int], object] | None = None,
) -> Replays:
    """Return a function that runs replays in this process, or in the session's workers.

    Args:
        session: The two runs.
        catalog: The edits.
        arithmetic: The arithmetic of nodes on codes.
        on_progress: Progress callback of a replay in this process, see `EditedReplay`.
    """
    replay = EditedReplay(session.backend, arithmetic, on_progress)
    if session.workers is None:
        return lambda tasks: chain.from_iterable(
            _replay_task(catalog, replay, task) for task in _group_tasks(replay, tasks)
        )
    executor, *paths, sample = session.workers
    pickled_search = pickle.dumps(
        (paths, sample, session.alignment.pairs, session.entries(), catalog.nodes.places, arithmetic)
    )
    in_worker = partial(_replay_in_worker, uuid4().hex, __version__, pickled_search)
    return lambda tasks: chain.from_iterable(in_workers(executor, in_worker, list(_group_tasks(replay, tasks))))


def _group_tasks(replay: EditedReplay, tasks: Sequence[ReplayTask]) -> Iterator[ReplayTask]:
    """Split tasks into groups of samples that are replayed together."""
    for task in tasks:
        for places in replay.group_places(task.places):
            yield replace(task, places=tuple(places))


def _replay_task(catalog: EditCatalog, replay: EditedReplay, task: ReplayTask) -> Sequence[RealOutputs]:
    edits = list(map(catalog.edit_named, task.edits))
    replay.expect(catalog.edit_named(name).change for name in task.next_edits)
    return replay.outputs(catalog.change(edits) if edits else Change(), task.places, everything=task.everything)


class _Worker(threading.local):
    """Caches the state of a search in a worker between replays."""

    search_id: str = ""
    catalog_and_replay: tuple[EditCatalog, EditedReplay] | None = None


_worker = _Worker()


def _replay_in_worker(search: str, version: str, pickled_search: bytes, task: ReplayTask) -> Sequence[RealOutputs]:
    """Run replays in a worker.

    Args:
        search: Unique id of the search.
        version: Version of qdebug in the process that runs the search.
        pickled_search: The pickled paths, only sample, pairs, compared tensors, fitting samples, and arithmetic.
        task: The task.
    """
    check_version(version)
    if _worker.catalog_and_replay is None or _worker.search_id != search:
        _worker.catalog_and_replay = None  # free the state of the previous search first
        arguments = pickle.loads(pickled_search)  # noqa: S301  pickled by `replays_of`
        paths, sample, pairs, entries, places, arithmetic = arguments
        reference, backend = (as_compared(open_sample(path, sample)) for path in paths)
        catalog = EditCatalog(GraphCheck(reference, backend, pairs), entries, places)
        _worker.search_id, _worker.catalog_and_replay = search, (catalog, EditedReplay(backend, arithmetic))
    return _replay_task(*_worker.catalog_and_replay, task)
