"""Explain a recording given as a path or open, and write what was found as an arithmetic."""

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
from qdebug.compare.explaining.explain import Explainer, OnProgress, Shared, explain_recording, siblings, wanted
from qdebug.compare.explaining.explanation import ExplainedRun
from qdebug.compare.result.limits import Limits, checked_limits
from qdebug.compare.workers import check_version, in_parts, in_workers
from qdebug.model import Recording
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
    """Answer `qdebug.explain`, which takes the same arguments and raises the same errors, without its texts.

    Args:
        backend: A path or an open recording.
        node: Name of one node or tensor; all if None.
        limits: Acknowledged nodes, and the largest error in steps that need not be explained.
        progress: Called with the number of outputs looked at, their total and the name of the next node.
        shared: Workers that look at the same recording, see `explained_by`; None without.
    """
    limits = checked_limits(limits)
    with opened_recording(backend) as recording:
        if node is None:
            return explain_recording(recording, progress=progress, shared=shared).accepting(limits)
        asked = wanted(recording, node)
        found = explain_recording(recording, tensors=siblings(recording, asked), progress=progress, shared=shared)
    return replace(found, nodes=tuple(answer for answer in found.nodes if answer.tensor in asked)).accepting(limits)


def explained_by(executor: Executor, backend: Path, *, sample: int | None = None) -> Shared:
    """Return what has the nodes of a recording looked at in workers, each of which opens the file itself.

    Args:
        executor: The workers.
        backend: The file.
        sample: The only sample to look at; None for all.
    """
    given = uuid4().hex, __version__, backend.absolute(), sample

    def shared(work: Callable[[Explainer, Q], A], questions: Sequence[Q]) -> Iterator[A]:
        return chain.from_iterable(in_workers(executor, partial(_ask, given, work), in_parts(questions)))

    return shared


class _Worker(threading.local):
    """What a worker keeps from part to part of one explanation: to look through a large net takes seconds."""

    explanation: str = ""
    explainer: Explainer | None = None


_worker = _Worker()


def _ask(
    given: tuple[str, str, Path, int | None], work: Callable[[Explainer, Q], A], questions: Sequence[Q]
) -> list[A]:
    """Answer some questions in a worker.

    Args:
        given: The explanation, to tell it from others; the version of qdebug, the file and the only sample.
        work: Answers one question.
        questions: The questions.
    """
    explanation, version, path, sample = given
    check_version(version)
    explainer = _worker.explainer
    if explainer is None or _worker.explanation != explanation:
        _worker.explainer = None  # let go of the one before first
        explainer = Explainer(open_sample(path, sample))
        _worker.explanation, _worker.explainer = explanation, explainer
    return [work(explainer, question) for question in questions]


def arithmetic_text(explanation: ExplainedRun) -> str:
    """Return what was found as the text of an arithmetic file.

    A run in which anything but quantizing and dequantizing was computed on codes computes groups of a QDQ graph as one.

    Args:
        explanation: The explanation.
    """
    variants = {key: parse_variant(text) for key, text in explanation.arithmetic.items()}
    fused = any(kind_of(key) not in ("quantize", "dequantize") for key in variants)
    return arithmetic_file.arithmetic_text(
        variants, name=explanation.run.backend, fused=fused, comments=explanation.exceptions
    )
