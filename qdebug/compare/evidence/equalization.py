"""Factors per channel that explain different constants because later nodes, or the node itself, undo them."""

from __future__ import annotations

from qdebug.compare.evidence.measured_tensor import MeasuredTensor

__all__ = ["channel_factors", "undoes_factors"]


def channel_factors(measured: MeasuredTensor) -> tuple[float, float] | None:
    """Return the smallest and largest channel factor of the tensor if later nodes undo its factors, or None."""
    if not _is_compared(measured):
        return None
    factors = measured._runs.equalized.undone_factors(measured.entry.tensor, measured._places)
    return None if factors is None else (float(factors.min()), float(factors.max()))


def undoes_factors(measured: MeasuredTensor) -> bool:
    """Return whether the node undoes the channel factors of one of its inputs."""
    if not _is_compared(measured) or measured._segment is None:
        return False
    return measured._runs.equalized.undoes_factors_of(
        measured.entry.tensor, [*measured._segment.feeds.values()], measured._places
    )


def _is_compared(measured: MeasuredTensor) -> bool:
    is_finite = measured.stats is not None and not measured.stats.nonfinite
    return is_finite and measured.comparison.basis == "full" and measured._segment is not None
