"""The values of a pair of tensors, and the whole of its error in detail, for one pair on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.compare.align.layouts import in_one_order, turned_quant
from qdebug.compare.align.pairs import Pair, View, clamp_of
from qdebug.compare.measure.channel_axis import channel_axis
from qdebug.compare.measure.compare import compared_places
from qdebug.errors import UsageError
from qdebug.model import QuantParams, Recording
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.affine import dequantize
from qdebug.numerics.blocks import Clamp, RealBlocks, settled
from qdebug.numerics.full_tier import Profiler, TensorProfile
from qdebug.numerics.stats import ErrorStats, WorstElement
from qdebug.numerics.wide_codes import is_wide_code
from qdebug.numerics.worst import worst_elements

__all__ = ["PairReader", "PairedValues"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedValues:
    """Both sides of one tensor for one sample and step.

    Args:
        reference: Real values of the reference.
        backend: Real values of the backend, in the reference's order of dimensions.
        reference_codes: Stored codes of the reference, if it is quantized.
        backend_codes: Stored codes of the backend, if it is quantized.
        reference_quant: The reference's quantization.
        backend_quant: The backend's quantization.
    """

    reference: np.ndarray
    backend: np.ndarray
    reference_codes: np.ndarray | None
    backend_codes: np.ndarray | None
    reference_quant: QuantParams | None
    backend_quant: QuantParams | None


class PairReader:
    """Reads both sides of one pair, in the reference's order of dimensions.

    Args:
        reference: The reference run.
        backend: The backend run.
        pair: Which tensors, and what is done to their values first.
    """

    def __init__(self, reference: Recording, backend: Recording, pair: Pair) -> None:
        self._reference, self._backend, self._pair = reference, backend, pair
        self._quants = (
            turned_quant(reference.graph.tensors[pair.reference].quant, pair.reference_view),
            turned_quant(backend.graph.tensors[pair.backend].quant, pair.backend_view),
        )
        self._clamps = clamp_of(pair.reference_view), clamp_of(pair.backend_view)
        self._constant = reference.graph.is_constant(pair.reference) and backend.graph.is_constant(pair.backend)

    def stored(self, sample: int, step: int, *, copied: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Load the stored elements of both sides.

        Args:
            sample: Which sample.
            step: Which step.
            copied: Copy a side whose dimensions are turned; else it is a view of what was loaded, where there is one.

        Raises:
            RecordingError: There are no values for this sample and step.
        """
        pair = self._pair
        theirs = self._reference.load(pair.reference, sample, step)
        ours = self._backend.load(pair.backend, sample, step)
        return in_one_order(theirs, pair.reference_view, ours, pair.backend_view, copied=copied)

    @property
    def clamps(self) -> tuple[Clamp, Clamp]:
        """Bounds that the real values of both sides are held to."""
        return self._clamps

    @property
    def quants(self) -> tuple[QuantParams | None, QuantParams | None]:
        """How the stored elements of both sides stand for real numbers."""
        return self._quants

    def channel_axis(self, shape: tuple[int, ...]) -> int | None:
        """Tell which dimension counts channels, see `qdebug.compare.measure.channel_axis`.

        Args:
            shape: Extents of the values.
        """
        graphs = self._reference.graph, self._backend.graph
        return channel_axis(*graphs, self._pair, shape, quant=self._quants[1])

    def places(self) -> list[tuple[int, int]]:
        """Give the samples and steps that both sides hold; those of a constant once."""
        return compared_places(self._reference, self._backend, self._pair)

    def blocks(self, sample: int, step: int) -> tuple[RealBlocks, RealBlocks]:
        """Give both sides as real values that are read block by block.

        Raises:
            RecordingError: There are no values for this sample and step.
            UsageError: The elements are no real numbers, or quantization does not fit a shape.
        """
        return self.blocks_of(*self.stored(sample, step))

    def blocks_of(self, theirs: np.ndarray, ours: np.ndarray) -> tuple[RealBlocks, RealBlocks]:
        """Give stored elements of both sides as real values that are read block by block.

        Raises:
            UsageError: The elements are no real numbers, or quantization does not fit a shape.
        """
        return settled(
            RealBlocks(theirs, self._quants[0], self._clamps[0]), RealBlocks(ours, self._quants[1], self._clamps[1])
        )

    def values(self, sample: int, step: int) -> PairedValues:
        """Load both sides as real values.

        Raises:
            RecordingError: There are no values for this sample and step.
        """
        theirs, ours = self.stored(sample, step)
        double = self._double(theirs, ours)
        reference = _viewed(dequantize(theirs, self._quants[0], double=double[0]), self._pair.reference_view)
        return PairedValues(
            reference=reference.reshape(ours.shape) if reference.size == ours.size else reference,
            backend=_viewed(dequantize(ours, self._quants[1], double=double[1]), self._pair.backend_view),
            reference_codes=None if self._quants[0] is None else theirs,
            backend_codes=None if self._quants[1] is None else ours,
            reference_quant=self._quants[0],
            backend_quant=self._quants[1],
        )

    def _double(self, theirs: np.ndarray, ours: np.ndarray) -> tuple[bool, bool]:
        """Tell of each side whether its codes are shown as float64, as float32 does not tell them apart."""
        coded = zip((theirs, ours), self._quants, strict=True)
        if not any(quant is not None and is_wide_code(side.dtype) for side, quant in coded):
            return False, False
        first, second = self.blocks_of(theirs, ours)
        return not first.single, not second.single

    def worst(self, k: int, sample: int, step: int) -> tuple[WorstElement, ...]:
        """Give the elements of one sample and step that differ most, the worst first."""
        theirs, ours = self.stored(sample, step)
        return worst_elements(
            theirs,
            ours,
            reference_quant=self._quants[0],
            backend_quant=self._quants[1],
            clamps=self._clamps,
            k=k,
            sample=sample,
        )

    def profile(
        self,
        *,
        sample: int | None = None,
        stats: ErrorStats | None = None,
        axis: int | None = None,
        bins: int = 64,
        k: int = 20,
        cancelled: Callable[[], bool] | None = None,
    ) -> TensorProfile | None:
        """Compare in full detail, one array of each side in memory at a time.

        Args:
            sample: The one sample to look at, with all its steps; None for all.
            stats: The metrics of what is looked at, where they are known; None to compute them in a first pass.
            axis: Channel axis in the reference's order of dimensions; None to take `channel_axis`.
            bins: Bins of the histograms of values.
            k: How many of the worst elements.
            cancelled: Asked after every block of 32768 elements; once it says yes, the rest is left.

        Returns:
            What was found; None if it was cancelled.

        Raises:
            UsageError: The two tensors cannot be compared, both sides share no sample, or there is no such axis.
        """
        places = self.places()
        if sample is not None and not self._constant:
            places = [place for place in places if place[0] == sample]
        if not places:
            which = "no sample" if sample is None else f"no values of sample {sample}"
            raise UsageError(f"Of tensor {self._pair.backend!r} both sides hold {which}.")
        if stats is None:
            stats = self._stats(places, cancelled)
        if stats is None:
            return None
        if axis is None:
            axis = self.channel_axis(self.stored(*places[0], copied=False)[1].shape)
        profiler = Profiler(
            stats,
            reference_quant=self._quants[0],
            backend_quant=self._quants[1],
            clamps=self._clamps,
            axis=axis,
            bins=bins,
            k=k,
        )
        for at, step in places:
            if not profiler.add(*self.stored(at, step), sample=at, step=step, cancelled=cancelled):
                return None
        return profiler.profile()

    def _stats(self, places: Sequence[tuple[int, int]], cancelled: Callable[[], bool] | None) -> ErrorStats | None:
        accumulator = ErrorAccumulator(
            reference_quant=self._quants[0],
            backend_quant=self._quants[1],
            reference_clamp=self._clamps[0],
            backend_clamp=self._clamps[1],
        )
        for sample, step in places:
            accumulator.update(*self.stored(sample, step), sample=sample)
            if cancelled is not None and cancelled():
                return None
        return accumulator.stats()


def _viewed(values: np.ndarray, view: View | None) -> np.ndarray:
    if view is None or (view.clamp_low is None and view.clamp_high is None):
        return values
    return np.asarray(np.clip(values, view.clamp_low, view.clamp_high))
