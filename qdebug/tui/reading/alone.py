"""What was recorded of a tensor that one side alone has: it is not compared, and can be looked at all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from qdebug.errors import QdebugError
from qdebug.tui.reading.answers import check_unchanged
from qdebug.tui.reading.events import AloneReady
from qdebug.tui.reading.recorded import recorded_side

if TYPE_CHECKING:
    from qdebug.tui.reading.requests import DetailRequest
    from qdebug.tui.reading.source import DiffSource

__all__ = ["answer_alone"]


def answer_alone(source: DiffSource, request: DetailRequest, *, changed: Callable[[], str] | None = None) -> AloneReady:
    """Sum up the values of one side; called on the reader thread.

    Args:
        source: The comparison.
        request: What was asked, with the side that has the tensor.
        changed: Says which file is no longer what was opened; "" if all are. None if they may change.
    """
    recording = source.reference if request.side == "reference" else source.backend
    asked = range(recording.samples) if request.sample is None else [request.sample]
    sample = next((at for at in asked if recording.has(request.tensor, at, request.step)), asked[0] if asked else 0)
    try:
        check_unchanged(changed)
        facts = recorded_side(recording, request.tensor, sample, request.step)
    except (QdebugError, ValueError, TypeError, MemoryError) as error:
        return AloneReady(request=request, facts=None, sample=sample, problem=str(error))
    kept = facts.statistics is not None
    problem = "" if kept else f"nothing was kept of it in sample {sample}"
    return AloneReady(request=request, facts=facts if kept else None, sample=sample, problem=problem)
