"""The values of a pair of tensors, and its complete error in detail, for one pair on request."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from qdebug.compare.align.layouts import in_one_order, permute_quant
from qdebug.compare.align.pairs import Pair, Transform, clamp_of
from qdebug.compare.measure.channel_axis import axis_of_scales, channel_axis
from qdebug.compare.measure.compare import compared_places
from qdebug.errors import UsageError
from qdebug.model import QuantParams, Recording
from qdebug.model.recording import quant_of
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.affine import dequantize, is_wide_code
from qdebug.numerics.blocks import Clamp, RealBlocks, make_comparable
from qdebug.numerics.large_arrays import SpillFile
from qdebug.numerics.profile import Profiler, TensorProfile
from qdebug.numerics.stats import ErrorStats, WorstElement
from qdebug.numerics.worst import worst_elements

__all__ = ["OpenPair", "PairReader", "PairedStretch", "PairedValues", "PairedWindow", "open_alone", "open_pair"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedValues:
    """Both sides of a pair for one sample and step.

    Args:
        reference: Real values of the reference.
        backend: Real values of the backend, in the reference's dimension order.
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
    """Reads both sides of a pair, in the reference's dimension order.

    Args:
        reference: The reference run.
        backend: The backend run.
        pair: The tensors, and the changes to their values before comparison.
    """

    def __init__(self, reference: Recording, backend: Recording, pair: Pair) -> None:
        self._reference, self._backend, self._pair = reference, backend, pair
        self._quants = (
            permute_quant(reference.graph.tensors[pair.reference].quant, pair.reference_view),
            permute_quant(backend.graph.tensors[pair.backend].quant, pair.backend_view),
        )
        self._clamps = clamp_of(pair.reference_view), clamp_of(pair.backend_view)
        self._constant = reference.graph.is_constant(pair.reference) and backend.graph.is_constant(pair.backend)

    def stored(self, sample: int, step: int, *, copied: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Load the stored elements of both sides.

        Args:
            sample: The sample.
            step: The step.
            copied: Copy a side whose dimensions are permuted. If false, return a view if possible.

        Raises:
            RecordingError: There are no values for this sample and step.
        """
        pair = self._pair
        reference_values = self._reference.load(pair.reference, sample, step)
        backend_values = self._backend.load(pair.backend, sample, step)
        return in_one_order(reference_values, pair.reference_view, backend_values, pair.backend_view, copied=copied)

    @property
    def clamps(self) -> tuple[Clamp, Clamp]:
        """Bounds that the real values of both sides are clamped to."""
        return self._clamps

    @property
    def quants(self) -> tuple[QuantParams | None, QuantParams | None]:
        """How the stored elements of both sides map to real numbers."""
        return self._quants

    def channel_axis(self, shape: tuple[int, ...]) -> int | None:
        """Return the channel dimension, see `qdebug.compare.measure.channel_axis`.

        Args:
            shape: Shape of the values.
        """
        return channel_axis(self._reference, self._backend, self._pair, shape, quant=self._quants[1])

    def places(self) -> list[tuple[int, int]]:
        """Return the samples and steps that both sides recorded, or a single one for a constant."""
        return compared_places(self._reference, self._backend, self._pair)

    def blocks(self, sample: int, step: int) -> tuple[RealBlocks, RealBlocks]:
        """Return both sides as real values to be read block by block.

        Raises:
            RecordingError: There are no values for this sample and step.
            UsageError: The elements are not real numbers, or quantization does not fit a shape.
        """
        return self.blocks_of(*self.stored(sample, step))

    def blocks_of(self, reference_values: np.ndarray, backend_values: np.ndarray) -> tuple[RealBlocks, RealBlocks]:
        """Return stored elements of both sides as real values to be read block by block.

        Raises:
            UsageError: The elements are not real numbers, or quantization does not fit a shape.
        """
        return make_comparable(
            RealBlocks(reference_values, self._quants[0], self._clamps[0]),
            RealBlocks(backend_values, self._quants[1], self._clamps[1]),
        )

    def values(self, sample: int, step: int) -> PairedValues:
        """Load both sides as real values.

        Raises:
            RecordingError: There are no values for this sample and step.
        """
        reference_values, backend_values = self.stored(sample, step)
        double = self._need_float64(reference_values, backend_values)
        reference = _apply_view(
            dequantize(reference_values, self._quants[0], double=double[0]), self._pair.reference_view
        )
        return PairedValues(
            reference=reference.reshape(backend_values.shape) if reference.size == backend_values.size else reference,
            backend=_apply_view(dequantize(backend_values, self._quants[1], double=double[1]), self._pair.backend_view),
            reference_codes=None if self._quants[0] is None else reference_values,
            backend_codes=None if self._quants[1] is None else backend_values,
            reference_quant=self._quants[0],
            backend_quant=self._quants[1],
        )

    def _need_float64(self, reference_values: np.ndarray, backend_values: np.ndarray) -> tuple[bool, bool]:
        """Return for each side whether its codes need float64 because float32 cannot distinguish them."""
        coded = zip((reference_values, backend_values), self._quants, strict=True)
        if not any(quant is not None and is_wide_code(side.dtype) for side, quant in coded):
            return False, False
        first, second = self.blocks_of(reference_values, backend_values)
        return not first.single, not second.single

    def worst(self, k: int, sample: int, step: int) -> tuple[WorstElement, ...]:
        """Return the elements with the largest differences in one sample and step, worst first."""
        reference_values, backend_values = self.stored(sample, step)
        return worst_elements(
            reference_values,
            backend_values,
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
        """Compare in full detail, with one array of each side in memory at a time.

        Args:
            sample: The sample to examine, with all its steps. None for all samples.
            stats: The metrics of these samples, if known. None to compute them in a first pass.
            axis: Channel axis in the reference's dimension order. None to use `channel_axis`.
            bins: Number of bins in the histograms of values.
            k: Number of worst elements.
            cancelled: Called after every block of 32768 elements. If it returns true, the rest is skipped.

        Returns:
            The profile, or None if it was cancelled.

        Raises:
            UsageError: The two tensors cannot be compared, both sides share no sample, or there is no such axis.
        """
        places = self.places()
        if sample is not None and not self._constant:
            places = [place for place in places if place[0] == sample]
        if not places:
            missing_part = "no sample" if sample is None else f"no values of sample {sample}"
            raise UsageError(f"The two recordings share {missing_part} of tensor {self._pair.backend!r}.")
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

    def accumulator(self) -> ErrorAccumulator:
        """Return an empty accumulator for the errors of arrays returned by `stored`."""
        return ErrorAccumulator(
            reference_quant=self._quants[0],
            backend_quant=self._quants[1],
            reference_clamp=self._clamps[0],
            backend_clamp=self._clamps[1],
        )

    def _stats(self, places: Sequence[tuple[int, int]], cancelled: Callable[[], bool] | None) -> ErrorStats | None:
        accumulator = self.accumulator()
        for sample, step in places:
            accumulator.update(*self.stored(sample, step), sample=sample)
            if cancelled is not None and cancelled():
                return None
        return accumulator.stats()


def _apply_view(values: np.ndarray, view: Transform | None) -> np.ndarray:
    if view is None or (view.clamp_low is None and view.clamp_high is None):
        return values
    return np.asarray(np.clip(values, view.clamp_low, view.clamp_high))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedStretch:
    """Consecutive elements of both sides in C order, 1-D. Do not modify or keep them.

    Args:
        reference: Real values of the reference, or its stored values if it is not quantized.
        backend: Real values of the backend, or its stored values if it is not quantized.
        reference_codes: Stored codes of the reference, if it is quantized.
        backend_codes: Stored codes of the backend, if it is quantized.
    """

    reference: np.ndarray
    backend: np.ndarray
    reference_codes: np.ndarray | None
    backend_codes: np.ndarray | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedWindow:
    """Some elements of both sides of a pair for one sample and step, in the reference's dimension order.

    Args:
        reference: Real values of the reference, with as many dimensions as the tensor.
        backend: Real values of the backend, in the same shape.
        reference_codes: Stored codes of the reference, if it is quantized.
        backend_codes: Stored codes of the backend, if it is quantized.
        reference_quant: The reference's quantization for the whole tensor.
        backend_quant: The backend's quantization for the whole tensor.
        axis: The channel dimension.
        start: Index of the first element in the whole tensor.
        whole: Shape of the whole tensor.
    """

    reference: np.ndarray
    backend: np.ndarray
    reference_codes: np.ndarray | None
    backend_codes: np.ndarray | None
    reference_quant: QuantParams | None
    backend_quant: QuantParams | None
    axis: int
    start: tuple[int, ...]
    whole: tuple[int, ...]


class OpenPair:
    """Both sides of a pair for one sample and step, read on demand.

    Use on one thread at a time.

    Args:
        reference_values: Stored elements of the reference, possibly memory-mapped, with any strides.
        backend_values: Stored elements of the backend, in the same number.
        quants: The quantization of both sides.
        clamps: Bounds that the real values are clamped to.
        axis: The channel dimension. None for the dimension of the scales, or the second if there is none.

    Raises:
        UsageError: The sides have different numbers of elements, or cannot be compared.
    """

    def __init__(
        self,
        reference_values: np.ndarray,
        backend_values: np.ndarray,
        quants: tuple[QuantParams | None, QuantParams | None] = (None, None),
        clamps: tuple[Clamp, Clamp] = ((None, None), (None, None)),
        axis: int | None = None,
    ) -> None:
        if reference_values.size != backend_values.size:
            raise UsageError(
                f"The reference has shape {reference_values.shape}, but the backend has {backend_values.shape}."
            )
        self._arguments = reference_values, backend_values, quants, clamps, axis
        self._sides = make_comparable(
            RealBlocks(reference_values, quants[0], clamps[0]), RealBlocks(backend_values, quants[1], clamps[1])
        )
        self.shape = backend_values.shape
        self.reference_quant, self.backend_quant = quants
        scale_axis, default_axis = axis_of_scales(quants[1], len(self.shape)), int(len(self.shape) > 1)
        self.axis = axis if axis is not None else default_axis if scale_axis is None else scale_axis

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that all real values and codes of both sides would take."""
        empty = self.read(0, 0)
        parts = (empty.reference, empty.backend, empty.reference_codes, empty.backend_codes)
        return self.size * sum(part.itemsize for part in parts if part is not None)

    @property
    def held(self) -> int:
        """Bytes of elements in memory: those that were decoded or reordered, and so are not a view of a file."""
        return sum(owner.nbytes for owner in self._owners() if isinstance(owner, np.ndarray))

    @property
    def made(self) -> int:
        """Bytes of elements in memory or in a temporary file, which would have to be computed again if dropped."""
        spilled_size = sum(len(owner) for owner in self._owners() if isinstance(owner, SpillFile))
        return spilled_size + self.held

    def _owners(self) -> list[object]:
        return list({id(owner): owner for owner in map(_find_owner, self._arguments[:2])}.values())

    def again(self) -> OpenPair:
        """Return an independent reader of the same elements, for another thread."""
        return OpenPair(*self._arguments)

    def read(self, start: int, stop: int) -> PairedStretch:
        """Return the elements from start to stop in C order."""
        with np.errstate(all="ignore"):  # the real value of a code may overflow
            (reference_values, reference_codes), (backend_values, backend_codes) = (
                _read_stretch(side, start, stop) for side in self._sides
            )
        return PairedStretch(
            reference=reference_values,
            backend=backend_values,
            reference_codes=reference_codes,
            backend_codes=backend_codes,
        )

    def window(self, around: tuple[int, ...] | None, extents: tuple[int, int]) -> PairedWindow:
        """Copy the elements around a given one along the last two dimensions, or all of a tensor with at most two.

        Args:
            around: Index of the element in the middle, as far as the tensor extends. None, or an index out of range,
                for its first element.
            extents: Maximum number of elements along the last two dimensions.
        """
        start, shape = _window_bounds(self.shape, around, extents)
        parts = [self.read(*span) for span in _flat_ranges_of_rows(self.shape, start, shape)]

        def joined(name: str) -> np.ndarray | None:
            rows = [getattr(part, name) for part in parts]
            return None if rows[0] is None else np.concatenate(rows).reshape(shape)

        names = ("reference", "backend", "reference_codes", "backend_codes")
        reference_values, backend_values, reference_codes, backend_codes = map(joined, names)
        if reference_values is None or backend_values is None:  # unreachable; for the type checker
            raise UsageError("There are no values.")
        return PairedWindow(
            reference=reference_values,
            backend=backend_values,
            reference_codes=reference_codes,
            backend_codes=backend_codes,
            reference_quant=self.reference_quant,
            backend_quant=self.backend_quant,
            axis=self.axis,
            start=start,
            whole=self.shape,
        )


def open_pair(reader: PairReader, *, sample: int, step: int) -> OpenPair:
    """Open both sides of a pair for one sample and step.

    Args:
        reader: Reads the pair.
        sample: The sample.
        step: The step.

    Raises:
        RecordingError: There are no values for this sample and step.
        UsageError: The two sides cannot be compared element by element.
    """
    reference_values, backend_values = reader.stored(sample, step, copied=False)
    return OpenPair(
        reference_values, backend_values, reader.quants, reader.clamps, reader.channel_axis(backend_values.shape)
    )


def open_alone(recording: Recording, tensor: str, *, sample: int, step: int) -> OpenPair:
    """Open a tensor that only one side has, compared with zeros: its values are the backend's and the differences.

    Args:
        recording: The side that has it.
        tensor: The tensor.
        sample: The sample.
        step: The step.

    Raises:
        RecordingError: There are no values for this sample and step.
        UsageError: The elements are not real numbers, or quantization does not fit the shape.
    """
    backend_values, quant = recording.load(tensor, sample, step), quant_of(recording, tensor, sample, step)
    zero = np.zeros((), np.float32 if quant is not None else backend_values.dtype)
    return OpenPair(np.broadcast_to(zero, backend_values.shape), backend_values, (None, quant))


def _find_owner(array: np.ndarray) -> object:
    """Return the object that owns the elements of an array: the base array or memory map."""
    owning_array, owner = array, array.base
    while isinstance(owner, np.ndarray | memoryview):
        if isinstance(owner, np.ndarray):
            owning_array = owner
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner if isinstance(owner, mmap.mmap) else owning_array


def _read_stretch(blocks: RealBlocks, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return real values and codes, or None in place of codes if there are none."""
    stored_values = blocks.stored(start, stop)
    if not (blocks.quantized or blocks.clamped):
        return stored_values, None
    single = np.empty(stored_values.size, np.float32)
    if blocks.single:
        real_values = blocks.read_single(start, stop, single)
    else:
        real_values = blocks.read_double(start, stop, np.empty(stored_values.size), single)
    return real_values, stored_values if blocks.quantized else None


def _window_bounds(
    tensor_shape: tuple[int, ...], around: tuple[int, ...] | None, extents: tuple[int, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the first index and the shape of the window, with extent 1 in all but the last two dimensions if large."""
    if prod(tensor_shape) <= prod(extents):
        return (0,) * len(tensor_shape), tensor_shape
    is_inside = around is not None and len(around) == len(tensor_shape) and all(map(_is_within, around, tensor_shape))
    middle = around if is_inside and around is not None else (0,) * len(tensor_shape)
    max_shape = ((1,) * len(tensor_shape) + extents)[-len(tensor_shape) :] if tensor_shape else ()
    shape = tuple(map(min, tensor_shape, max_shape))
    start = tuple(
        min(max(at - size // 2, 0), extent - size) for at, size, extent in zip(middle, shape, tensor_shape, strict=True)
    )
    return start, shape


def _is_within(at: int, extent: int) -> bool:
    return 0 <= at < extent


def _flat_ranges_of_rows(
    tensor_shape: tuple[int, ...], start: tuple[int, ...], shape: tuple[int, ...]
) -> list[tuple[int, int]]:
    """Return the flat ranges, in C order, that the rows of a window occupy, or one range if it has whole rows."""
    if not prod(shape):
        return [(0, 0)]
    first = int(np.ravel_multi_index(start, tensor_shape)) if tensor_shape else 0
    if len(tensor_shape) < 2 or shape[-1] == tensor_shape[-1]:  # whole rows of one plane, or all of the tensor
        return [(first, first + prod(shape))]
    return [(first + row * tensor_shape[-1], first + row * tensor_shape[-1] + shape[-1]) for row in range(shape[-2])]
