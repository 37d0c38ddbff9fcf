"""What was recorded of a pair of which not all values were kept: the statistics of each side, in rows to show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qdebug.errors import QdebugError
from qdebug.model.dtypes import is_whole
from qdebug.model.kept import LOWEST_EXPONENT, Statistics, kept_of
from qdebug.model.recording import quant_of
from qdebug.numerics.summary import take_statistics
from qdebug.present import numbers
from qdebug.tui.drawing.draw import bars, resample
from qdebug.tui.drawing.glyphs import GlyphSet

if TYPE_CHECKING:
    from qdebug.compare.result.result import NodeResult
    from qdebug.model import QuantParams, Recording
    from qdebug.session import DiffSession

__all__ = ["RecordedFacts", "RecordedSide", "recorded_facts", "recorded_rows", "recorded_side"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSide:
    """What is known of one side.

    Args:
        statistics: Of all its elements; None if nothing of it was kept.
        quant: How its stored elements stand for real numbers.
        elements: How many of the elements were kept.
        whole: Whether it holds integers or booleans.
    """

    statistics: Statistics | None
    quant: QuantParams | None
    elements: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFacts:
    """What is known of both sides.

    Args:
        reference: The reference's tensor, as it was recorded.
        backend: The backend's tensor, as it was recorded.
    """

    reference: RecordedSide
    backend: RecordedSide


def recorded_facts(source: DiffSession, result: NodeResult, *, sample: int, step: int) -> RecordedFacts | None:
    """Read the statistics of a pair; called on the reader thread.

    Args:
        source: The comparison.
        result: The pair.
        sample: Which sample.
        step: Which step.

    Returns:
        What was recorded; None where both sides have all their values, or cannot be read.
    """
    sides = ((source.reference, result.reference_tensor), (source.backend, result.tensor))
    try:
        if all(kept_of(side, tensor, sample, step) is None for side, tensor in sides):
            return None
        theirs, ours = (recorded_side(side, tensor, sample, step) for side, tensor in sides)
    except (QdebugError, ValueError):  # what is wrong has been said by who wanted the values
        return None
    return RecordedFacts(reference=theirs, backend=ours)


def recorded_side(recording: Recording, tensor: str, sample: int, step: int) -> RecordedSide:
    """Read the statistics of one side, or take them of its values; called on the reader thread.

    Args:
        recording: The side.
        tensor: The tensor.
        sample: Which sample.
        step: Which step.

    Raises:
        QdebugError: Its values cannot be read.
    """
    quant = quant_of(recording, tensor, sample, step)
    info = recording.graph.tensors.get(tensor)
    whole = info is not None and is_whole(info.dtype or "")
    if recording.has(tensor, sample, step):
        array = recording.load(tensor, sample, step)
        return RecordedSide(statistics=take_statistics(array, quant), quant=quant, elements=array.size, whole=whole)
    kept = kept_of(recording, tensor, sample, step)
    if kept is None:
        return RecordedSide(statistics=None, quant=quant)
    many = 0 if kept.positions is None else len(kept.positions)
    return RecordedSide(statistics=kept.statistics, quant=quant, elements=many, whole=whole)


def recorded_rows(facts: RecordedFacts, width: int, glyphs: GlyphSet) -> list[tuple[str, str, str]]:
    """Return label, reference and backend of each fact.

    Args:
        facts: What was recorded.
        width: Cells of a side.
        glyphs: Characters to draw with.
    """
    sides = (facts.reference, facts.backend)

    def both(label: str, show: Callable[[RecordedSide, Statistics], str]) -> tuple[str, str, str]:
        left, right = ("nothing kept" if side.statistics is None else show(side, side.statistics) for side in sides)
        return label, left, right

    known = [side.statistics for side in sides if side.statistics is not None]
    rows = [
        both("values kept", lambda side, known: f"{_count(side.elements)} of {_count(known.count)}"),
        both("min .. max", _extremes),
        both("mean, std", lambda _, known: f"{_real(known.mean)}, {_real(known.std)}"),
    ]
    if any(side.nan or side.inf for side in known):
        rows.append(both("NaN, inf", lambda _, known: f"{_count(known.nan)}, {_count(known.inf)}"))
    if any(side.quant is not None for side in sides):
        rows.append(both("at qmin, qmax", _rails))
    first, last = _exponents(known)
    if last >= first:
        signed = any(side.negative.any() for side in known)
        rows.append(both("histogram", lambda _, known: _histogram(known, (first, last), width, glyphs, signed=signed)))
        low, high = f"2^{first + LOWEST_EXPONENT}", f"2^{last + 1 + LOWEST_EXPONENT}"
        span = f"-{high} .. 0 .. {high}" if signed else f"0, {low} .. {high}"
        rows.append(("powers of 2", span, span))
    return rows


def _count(many: int) -> str:
    return numbers.grouped(many)


def _real(value: float) -> str:
    return numbers.MISSING if np.isnan(value) else numbers.number(value, digits=4)


def _extremes(side: RecordedSide, known: Statistics) -> str:
    """Return the real extremes; the codes' where there is a scale for each channel."""
    quant, ends = side.quant, (known.low, known.high)
    if quant is None and side.whole and not any(map(np.isnan, ends)):
        return f"{numbers.whole(ends[0])} .. {numbers.whole(ends[1])}"
    if quant is None:
        return f"{_real(ends[0])} .. {_real(ends[1])}"
    if quant.scale.size != 1:
        return f"codes {ends[0]:.0f} .. {ends[1]:.0f}"
    scale, zero = float(quant.scale.ravel()[0]), float(quant.zero_point.ravel()[0])
    low, high = (scale * (end - zero) for end in ends)
    return f"{_real(low)} .. {_real(high)}"


def _rails(side: RecordedSide, known: Statistics) -> str:
    return numbers.MISSING if side.quant is None else f"{_count(known.at_qmin)}, {_count(known.at_qmax)}"


def _exponents(sides: list[Statistics]) -> tuple[int, int]:
    """Return the first and last bin that any side has something in; the last before the first if there is none."""
    used = [np.flatnonzero(side.negative + side.positive) for side in sides]
    some = np.concatenate(used) if used else np.zeros(0, dtype=np.int64)
    return (int(some.min()), int(some.max())) if len(some) else (0, -1)


def _histogram(known: Statistics, bins: tuple[int, int], width: int, glyphs: GlyphSet, *, signed: bool) -> str:
    """Draw magnitudes by powers of 2, zero in the middle, or at the left if nothing is negative."""
    chosen = slice(bins[0], bins[1] + 1)
    negative, positive = (side[chosen].astype(np.float64) for side in (known.negative, known.positive))
    zeros = known.count - known.nan - known.inf - float(known.negative.sum()) - float(known.positive.sum())
    parts = [np.array([max(zeros, 0.0)]), positive]
    counts = np.concatenate([negative[::-1], *parts] if signed else parts)
    return bars(np.sqrt(resample(counts, max(width - 1, 1))), glyphs)  # the root keeps thin tails visible
