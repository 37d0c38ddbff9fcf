"""Explain a recording, also in workers, and write the result as an arithmetic file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from qdebug.arithmetic import arithmetic_file
from qdebug.compare.explaining.explain import (
    Explainer,
    OnProgress,
    Shared,
    explain_recording,
    find_outputs,
    outputs_with_same_operators,
)
from qdebug.compare.explaining.explanation import ExplainedRun
from qdebug.compare.result.limits import Limits, checked_limits
from qdebug.compare.workers import check_version, in_parts, in_workers
from qdebug.model import Recording
from qdebug.recording.remote_url import absolute_path
from qdebug.replay.variant import kind_of, parse_variant
from qdebug.session import open_sample, opened_recording
from qdebug.version import __version__

__all__ = ["arithmetic_text", "explain", "explained_by"]

Q = TypeVar("Q")
A = TypeVar("A")


def explain(
    backend: str | Path | Recording,
    *,
    node: str | None = None,
    limits: Limits | None = None,
    progress: OnProgress | None = None,
    shared: Shared | None = None,
) -> ExplainedRun:
    """Explain the nodes of a recording: `qdebug.explain`, with the same arguments and errors.

    Args:
        backend: A path or an open recording.
        node: Name of one node or tensor, or None for all.
        limits: Acknowledged nodes, and the largest error in steps that needs no explanation.
        progress: Called with the number of finished outputs, their total and the name of the next node.
        shared: Workers for the same recording, see `explained_by`, or None.
    """
    limits = checked_limits(limits)
    with opened_recording(backend) as recording:
        if node is None:
            return explain_recording(recording, progress=progress, shared=shared).accepting(limits)
        tensors = find_outputs(recording, node)
        explanation = explain_recording(
            recording, tensors=outputs_with_same_operators(recording, tensors), progress=progress, shared=shared
        )
    return replace(
        explanation, nodes=tuple(answer for answer in explanation.nodes if answer.tensor in tensors)
    ).accepting(limits)


def explained_by(executor: Executor, backend: Path, *, sample: int | None = None) -> Shared:
    """Return a function that explains nodes in workers, each of which opens the recording itself.

    Args:
        executor: The workers.
        backend: The recording.
        sample: The only sample to examine, or None for all.
    """
    worker_arguments = uuid4().hex, __version__, absolute_path(backend), sample

    def answer_in_workers(work: Callable[[Explainer, Q], A], questions: Sequence[Q]) -> Iterator[A]:
        return chain.from_iterable(
            in_workers(executor, partial(_answer_in_worker, worker_arguments, work), in_parts(questions))
        )

    return answer_in_workers


class _WorkerCache(threading.local):
    """Caches the explainer of a worker, because preparing it for a large network takes seconds."""

    explanation: str = ""
    explainer: Explainer | None = None


_worker_cache = _WorkerCache()


def _answer_in_worker(
    worker_arguments: tuple[str, str, Path, int | None], work: Callable[[Explainer, Q], A], questions: Sequence[Q]
) -> list[A]:
    """Answer questions in a worker.

    Args:
        worker_arguments: Id of the explanation, version of qdebug, path of the recording, and the only sample.
        work: Answers one question.
        questions: The questions.
    """
    explanation_id, version, path, sample = worker_arguments
    check_version(version)
    explainer = _worker_cache.explainer
    if explainer is None or _worker_cache.explanation != explanation_id:
        _worker_cache.explainer = None  # free the previous explainer before building the next one
        explainer = Explainer(open_sample(path, sample))
        _worker_cache.explanation, _worker_cache.explainer = explanation_id, explainer
    return [work(explainer, question) for question in questions]


def arithmetic_text(explanation: ExplainedRun) -> str:
    """Return an explanation as the text of an arithmetic file.

    The file sets `fused` if any node other than quantize and dequantize was computed on codes, because such a run
    computes each QDQ group of the graph as one node.

    Args:
        explanation: The explanation.
    """
    variants = {key: parse_variant(text) for key, text in explanation.arithmetic.items()}
    has_fused_nodes = any(kind_of(key) not in ("quantize", "dequantize") for key in variants)
    return arithmetic_file.arithmetic_text(
        variants,
        name=explanation.run.backend,
        fused=has_fused_nodes,
        comments=explanation.exceptions,
        roundings=explanation.roundings,
    )
