"""Explain a recording given as a path or open, and write what was found as an arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from qdebug.arithmetic import arithmetic_file
from qdebug.compare.explaining.explain import explain_recording, siblings, wanted
from qdebug.compare.explaining.explanation import ExplainedRun
from qdebug.compare.result.limits import Limits, checked_limits
from qdebug.model import Recording
from qdebug.replay.variant import kind_of, parse_variant
from qdebug.session import open_recording

__all__ = ["arithmetic_text", "explain"]


def explain(
    backend: str | Path | Recording,
    *,
    node: str | None = None,
    limits: Limits | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> ExplainedRun:
    """Answer `qdebug.explain`, which takes the same arguments and raises the same errors, without its texts."""
    recording = backend if isinstance(backend, Recording) else open_recording(backend)
    limits = checked_limits(limits)
    if node is None:
        return explain_recording(recording, progress=progress).accepting(limits)
    asked = wanted(recording, node)
    found = explain_recording(recording, tensors=siblings(recording, asked), progress=progress)
    return replace(found, nodes=tuple(answer for answer in found.nodes if answer.tensor in asked)).accepting(limits)


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
