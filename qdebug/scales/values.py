"""The values of a tensor for which scales are chosen: read sample by sample, or known as a histogram or statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from qdebug.compare.align.align import align
from qdebug.compare.align.pairs import Pair, clamp_of
from qdebug.errors import UsageError
from qdebug.model import QuantParams, Recording
from qdebug.model.dtypes import logical_name
from qdebug.model.kept import Statistics
from qdebug.model.recording import quant_of
from qdebug.numerics.affine import dequantize
from qdebug.numerics.quant_error import QuantError, QuantErrorCounter, estimate_error
from qdebug.numerics.range_histogram import BINS, RangeCounter, RangeHistogram
from qdebug.recording.profile_recorder import unprofiled_reason
from qdebug.replay.run import one_thread

__all__ = ["TensorValues", "align_tensors"]


def align_tensors(reference: Recording, backend: Recording) -> tuple[Pair, ...]:
    """Return the pairs of tensors of two runs.

    Args:
        reference: The reference run, from `as_compared`.
        backend: The backend run, from `as_compared`.

    Raises:
        AlignmentError: The recordings are of different networks.
    """
    with one_thread(), np.errstate(all="ignore"):
        return tuple(align(reference, backend).pairs)


class TensorValues:
    """The values of one tensor.

    Args:
        name: The tensor's name in its recording.
        recording: The recording with the values, or None if there is only a histogram.
        histogram: Histogram of the values, or None to compute it on first use.
        clamp: Bounds to which the values are clipped first: those of an activation that was folded into the codes.
        bins: Maximum number of bins of a computed histogram.
    """

    def __init__(
        self,
        name: str,
        recording: Recording | None = None,
        *,
        histogram: RangeHistogram | None = None,
        clamp: tuple[float | None, float | None] = (None, None),
        bins: int = BINS,
    ) -> None:
        self.name = name
        self.recording = recording
        self._given_histogram, self._clamp, self._bins = histogram, clamp, bins

    @classmethod
    def of_pair(cls, pair: Pair, reference: Recording, *, bins: int = BINS) -> TensorValues:
        """Return the reference's values that the backend tensor of a pair represents.

        Args:
            pair: The pair.
            reference: The reference run.
            bins: Number of bins of a computed histogram.
        """
        return cls(pair.reference, reference, clamp=clamp_of(pair.reference_view), bins=bins)

    def missing_reason(self) -> str | None:
        """Return why the values are unknown, or None if they are known."""
        if self.recording is None:
            return None
        has_values = False
        for place in self.recording.places(self.name):
            quant, reason = quant_of(self.recording, self.name, *place), None
            if self.recording.has(self.name, *place):
                if not has_values:
                    reason = unprofiled_reason(logical_name(self.recording.load(self.name, *place).dtype), quant)
                has_values = True
            elif (kept := self.recording.kept(self.name, *place)) is not None:
                reason = unprofiled_reason(kept.dtype, quant) or self._missing_range_reason(kept.statistics, quant)
                has_values = True
            if reason is not None:
                return reason
        return None if has_values else "it has no values"

    def _missing_range_reason(self, statistics: Statistics, quant: QuantParams | None) -> str | None:
        """Return why statistics do not give a range of real values, or None if they do."""
        if self._clamp != (None, None):
            return "its code range clips it, and only statistics were kept"
        if statistics.inf:
            return "it has infinite values, and only statistics were kept"
        if quant is not None and quant.scale.size > 1:
            return "it has several scales, and only statistics were kept"
        return None

    def parts(self) -> Iterator[tuple[np.ndarray | Statistics, QuantParams | None]]:
        """Yield the stored elements of each sample, or their statistics, and their quantization."""
        if self.recording is None:
            return
        for place in self.recording.places(self.name):
            quant = quant_of(self.recording, self.name, *place)
            if self.recording.has(self.name, *place):
                values = self.recording.load(self.name, *place)
                if self._clamp != (None, None):
                    values, quant = np.clip(dequantize(values, quant), *self._clamp), None
                yield values, quant
            elif (kept := self.recording.kept(self.name, *place)) is not None:
                yield kept.statistics, quant

    @cached_property
    def histogram(self) -> RangeHistogram:
        """The histogram of the values, a coarse one if only statistics were recorded."""
        if self._given_histogram is not None:
            return self._given_histogram
        counter = RangeCounter(self._bins)
        for values, quant in self.parts():
            counter.add(values, quant)
        return counter.histogram()

    def errors(self, quants: Sequence[QuantParams | None]) -> list[QuantError | None]:
        """Return the loss of quantizing the values with each of the given codes: exact, or estimated from a histogram.

        Args:
            quants: Scales and zero points. None and degenerate ones give None. If only statistics were recorded, all
                give None.
        """
        if self.recording is None:
            return [None if quant is None else _estimate_error(self.histogram, quant) for quant in quants]
        counters = [None if quant is None else _make_counter(quant) for quant in quants]
        for values, value_quant in self.parts():
            if isinstance(values, Statistics):
                return [None] * len(quants)
            for counter in counters:
                if counter is not None:
                    counter.add(values, value_quant)
        return [None if counter is None else counter.error() for counter in counters]


def _make_counter(quant: QuantParams) -> QuantErrorCounter | None:
    try:
        return QuantErrorCounter(quant)
    except UsageError:  # the scale is degenerate, which is flagged elsewhere
        return None


def _estimate_error(histogram: RangeHistogram, quant: QuantParams) -> QuantError | None:
    try:
        return estimate_error(histogram, quant)
    except UsageError:
        return None
