"""Both sides of a pair, of which any part is read without reading the rest: a stretch, or what is around an element."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from math import prod

import numpy as np

from qdebug.compare.measure.channel_axis import axis_of_scales
from qdebug.compare.measure.pair_values import PairReader
from qdebug.errors import UsageError
from qdebug.model import QuantParams
from qdebug.numerics.blocks import Clamp, RealBlocks, settled
from qdebug.numerics.spilled import SpillFile

__all__ = ["OpenPair", "PairedStretch", "PairedWindow", "open_pair"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedStretch:
    """Consecutive elements of both sides, in C order, 1-D; never to be written to, and not to be kept.

    Args:
        reference: Real values of the reference; as they are stored where it is not quantized.
        backend: Real values of the backend, likewise.
        reference_codes: Stored codes of the reference, if it is quantized.
        backend_codes: Stored codes of the backend, if it is quantized.
    """

    reference: np.ndarray
    backend: np.ndarray
    reference_codes: np.ndarray | None
    backend_codes: np.ndarray | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedWindow:
    """Some elements of both sides of one tensor for one sample and step, in the reference's order of dimensions.

    Args:
        reference: Real values of the reference, as many dimensions as the tensor has.
        backend: Real values of the backend; the same shape.
        reference_codes: Stored codes of the reference, if it is quantized.
        backend_codes: Stored codes of the backend, if it is quantized.
        reference_quant: The reference's quantization, of the whole tensor.
        backend_quant: The backend's quantization, of the whole tensor.
        axis: Dimension that counts the channels.
        start: Index in the whole tensor of the first element.
        whole: Extents of the whole tensor.
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
    """Both sides of one tensor for one sample and step; what is read of them is read as it is asked for.

    To be used on one thread at a time.

    Args:
        theirs: Stored elements of the reference; may be mapped, and of any strides.
        ours: Stored elements of the backend, as many.
        quants: How both stand for real numbers.
        clamps: Bounds that the real values are held to.
        axis: Dimension that counts the channels; None for the one with a scale each, else the second.

    Raises:
        UsageError: The sides have different numbers of elements, or cannot be compared.
    """

    def __init__(
        self,
        theirs: np.ndarray,
        ours: np.ndarray,
        quants: tuple[QuantParams | None, QuantParams | None] = (None, None),
        clamps: tuple[Clamp, Clamp] = ((None, None), (None, None)),
        axis: int | None = None,
    ) -> None:
        if theirs.size != ours.size:
            raise UsageError(f"The reference has shape {theirs.shape} and the backend {ours.shape}.")
        self._given = theirs, ours, quants, clamps, axis
        self._sides = settled(RealBlocks(theirs, quants[0], clamps[0]), RealBlocks(ours, quants[1], clamps[1]))
        self.shape = ours.shape
        self.reference_quant, self.backend_quant = quants
        scaled, second = axis_of_scales(quants[1], len(self.shape)), int(len(self.shape) > 1)
        self.axis = axis if axis is not None else second if scaled is None else scaled

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Memory that all real values and codes of both sides would take."""
        empty = self.read(0, 0)
        parts = (empty.reference, empty.backend, empty.reference_codes, empty.backend_codes)
        return self.size * sum(part.itemsize for part in parts if part is not None)

    @property
    def held(self) -> int:
        """Memory behind it: of what is no view of a file, because it had to be decoded or put into another order."""
        return sum(owner.nbytes for owner in self._owners() if isinstance(owner, np.ndarray))

    @property
    def made(self) -> int:
        """Size of what is behind it that was made, in memory or in a temporary file, and would be made anew."""
        held = sum(len(owner) for owner in self._owners() if isinstance(owner, SpillFile))
        return held + self.held

    def _owners(self) -> list[object]:
        return list({id(owner): owner for owner in map(_owner, self._given[:2])}.values())

    def again(self) -> OpenPair:
        """Give another one of the same elements, for another thread."""
        return OpenPair(*self._given)

    def read(self, start: int, stop: int) -> PairedStretch:
        """Give the elements start to stop in C order."""
        with np.errstate(all="ignore"):  # as where pairs are compared: a code may stand for more than a number can hold
            (theirs, their_codes), (ours, our_codes) = (_stretch(side, start, stop) for side in self._sides)
        return PairedStretch(reference=theirs, backend=ours, reference_codes=their_codes, backend_codes=our_codes)

    def window(self, around: tuple[int, ...] | None, extents: tuple[int, int]) -> PairedWindow:
        """Copy the elements around one of them, along the last two dimensions.

        Args:
            around: Index of the element in the middle, where the tensor does not end before; None, or one that the
                tensor does not have, for its first element.
            extents: Most elements along the second last and the last dimension.
        """
        start, shape = _place(self.shape, around, extents)
        parts = [self.read(*span) for span in _rows(self.shape, start, shape)]

        def joined(name: str) -> np.ndarray | None:
            rows = [getattr(part, name) for part in parts]
            return None if rows[0] is None else np.concatenate(rows).reshape(shape)

        names = ("reference", "backend", "reference_codes", "backend_codes")
        theirs, ours, their_codes, our_codes = map(joined, names)
        if theirs is None or ours is None:  # never; for the types
            raise UsageError("There are no values.")
        return PairedWindow(
            reference=theirs,
            backend=ours,
            reference_codes=their_codes,
            backend_codes=our_codes,
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
        sample: Which sample.
        step: Which step.

    Raises:
        RecordingError: There are no values for this sample and step.
        UsageError: The two sides cannot be compared element by element.
    """
    theirs, ours = reader.stored(sample, step, copied=False)
    return OpenPair(theirs, ours, reader.quants, reader.clamps, reader.channel_axis(ours.shape))


def _owner(array: np.ndarray) -> object:
    """Give what the elements of an array lie in: the largest array of them, or what is mapped."""
    found, owner = array, array.base
    while isinstance(owner, np.ndarray | memoryview):
        if isinstance(owner, np.ndarray):
            found = owner
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner if isinstance(owner, mmap.mmap) else found


def _stretch(blocks: RealBlocks, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Give real values, and codes; None if there are none."""
    stored = blocks.stored(start, stop)
    if not (blocks.quantized or blocks.clamped):
        return stored, None
    single = np.empty(stored.size, np.float32)
    if blocks.single:
        real = blocks.read_single(start, stop, single)
    else:
        real = blocks.read_double(start, stop, np.empty(stored.size), single)
    return real, stored if blocks.quantized else None


def _place(
    whole: tuple[int, ...], around: tuple[int, ...] | None, extents: tuple[int, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Give the first index and the shape of the window; 1 along all but the last two dimensions."""
    inside = around is not None and len(around) == len(whole) and all(map(_within, around, whole))
    middle = around if inside and around is not None else (0,) * len(whole)
    most = ((1,) * len(whole) + extents)[-len(whole) :] if whole else ()
    shape = tuple(map(min, whole, most))
    start = tuple(
        min(max(at - size // 2, 0), extent - size) for at, size, extent in zip(middle, shape, whole, strict=True)
    )
    return start, shape


def _within(at: int, extent: int) -> bool:
    return 0 <= at < extent


def _rows(whole: tuple[int, ...], start: tuple[int, ...], shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Give the flat stretches, in C order, that the rows of a window lie in; one where it has whole rows."""
    if not prod(shape):
        return [(0, 0)]
    first = int(np.ravel_multi_index(start, whole)) if whole else 0
    if len(whole) < 2 or shape[-1] == whole[-1]:
        return [(first, first + prod(shape))]
    return [(first + row * whole[-1], first + row * whole[-1] + shape[-1]) for row in range(shape[-2])]
