"""The values that codes are to hold: read sample by sample, or known as a histogram or as statistics alone."""

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
from qdebug.numerics.quant_error import QuantError, QuantErrorCounter, estimated_error
from qdebug.numerics.range_histogram import BINS, RangeCounter, RangeHistogram
from qdebug.recording.profile_recorder import unprofiled_reason
from qdebug.replay.run import one_thread

__all__ = ["TensorValues", "paired"]


def paired(reference: Recording, backend: Recording) -> tuple[Pair, ...]:
    """Return which tensor of the backend stands for which of the reference.

    Args:
        reference: The reference run, as it is compared.
        backend: The backend run, likewise.

    Raises:
        AlignmentError: The two record different networks.
    """
    with one_thread(), np.errstate(all="ignore"):
        return tuple(align(reference, backend).pairs)


class TensorValues:
    """The values of one tensor.

    Args:
        name: The tensor, as it is called where the values are.
        recording: Where they are; None if there is only a histogram.
        histogram: The histogram, if it is known; else it is counted when it is first asked for.
        clamp: Bounds that are applied to the values first: those of an activation that the codes have folded in.
        bins: Bins of a histogram that is counted.
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
        self._given, self._clamp, self._bins = histogram, clamp, bins

    @classmethod
    def of_pair(cls, pair: Pair, reference: Recording, *, bins: int = BINS) -> TensorValues:
        """Return the reference's values that the backend's tensor of a pair stands for.

        Args:
            pair: The pair.
            reference: The reference run.
            bins: Bins of a histogram that is counted.
        """
        return cls(pair.reference, reference, clamp=clamp_of(pair.reference_view), bins=bins)

    def why_none(self) -> str | None:
        """Say why nothing is known of the values; None if something is."""
        if self.recording is None:
            return None
        looked = False
        for place in self.recording.places(self.name):
            quant, why = quant_of(self.recording, self.name, *place), None
            if self.recording.has(self.name, *place):
                if not looked:
                    why = unprofiled_reason(logical_name(self.recording.load(self.name, *place).dtype), quant)
                looked = True
            elif (kept := self.recording.kept(self.name, *place)) is not None:
                why = unprofiled_reason(kept.dtype, quant) or self._why_no_range(kept.statistics, quant)
                looked = True
            if why is not None:
                return why
        return None if looked else "it has no values"

    def _why_no_range(self, statistics: Statistics, quant: QuantParams | None) -> str | None:
        """Say why statistics tell no range of real values; None if they do."""
        if self._clamp != (None, None):
            return "its codes hold it to bounds, and only statistics were kept"
        if statistics.inf:
            return "it has infinite values, and only statistics were kept"
        if quant is not None and quant.scale.size > 1:
            return "it has several scales, and only statistics were kept"
        return None

    def parts(self) -> Iterator[tuple[np.ndarray | Statistics, QuantParams | None]]:
        """Yield the stored elements of each sample, or their statistics, and how they stand for real numbers."""
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
        """The histogram of the values; a coarse one where only statistics were kept."""
        if self._given is not None:
            return self._given
        counter = RangeCounter(self._bins)
        for values, quant in self.parts():
            counter.add(values, quant)
        return counter.histogram()

    def errors(self, quants: Sequence[QuantParams | None]) -> list[QuantError | None]:
        """Return what holding the values to each of several codes loses: exactly, or estimated from a histogram alone.

        Args:
            quants: Scales and zero points; None, and those that hold nothing, give None. So do all where only
                statistics were kept.
        """
        if self.recording is None:
            return [None if quant is None else _estimated(self.histogram, quant) for quant in quants]
        counters = [None if quant is None else _counter(quant) for quant in quants]
        for values, own in self.parts():
            if isinstance(values, Statistics):
                return [None] * len(quants)
            for counter in counters:
                if counter is not None:
                    counter.add(values, own)
        return [None if counter is None else counter.error() for counter in counters]


def _counter(quant: QuantParams) -> QuantErrorCounter | None:
    try:
        return QuantErrorCounter(quant)
    except UsageError:  # a scale that holds no values, which a flag says
        return None


def _estimated(histogram: RangeHistogram, quant: QuantParams) -> QuantError | None:
    try:
        return estimated_error(histogram, quant)
    except UsageError:
        return None
