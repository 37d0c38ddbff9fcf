"""The elements with the largest differences."""

from __future__ import annotations

import numpy as np

from qdebug.errors import UsageError
from qdebug.model.quant import QuantParams
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.blocks import Clamp, RealBlocks, scratch
from qdebug.numerics.double_block import exact_difference, read_block, real_values
from qdebug.numerics.lsb import Steps, difference_in_steps
from qdebug.numerics.stats import WorstElement
from qdebug.numerics.tally import Block

__all__ = ["WorstPlaces", "worst_elements"]


def worst_elements(
    reference: np.ndarray,
    backend: np.ndarray,
    *,
    reference_quant: QuantParams | None = None,
    backend_quant: QuantParams | None = None,
    clamps: tuple[Clamp, Clamp] = ((None, None), (None, None)),
    k: int = 20,
    sample: int = 0,
) -> tuple[WorstElement, ...]:
    """Give the elements that differ most, worst first.

    Disagreements over a non-finite value come first, then the largest absolute differences; equals in the order of
    their index. Elements that agree are not listed.

    Args:
        reference: Stored elements of the reference.
        backend: Stored elements of the backend, of the same shape but for dimensions of extent 1.
        reference_quant: How the reference's elements stand for real numbers; None if they are the numbers.
        backend_quant: The same for the backend.
        clamps: Bounds applied to the real values of the reference and of the backend first.
        k: How many at most.
        sample: Index of the sample, passed on.

    Returns:
        At most `k` elements, with indices into the backend's shape; `difference` and `lsb` are
        signed, backend - reference.

    Raises:
        UsageError: The sizes differ, a dtype holds no real numbers, or quantization does not fit a shape.
    """
    first = RealBlocks(reference, reference_quant, clamps[0])
    second = RealBlocks(backend, backend_quant, clamps[1])
    if first.size != second.size:
        raise UsageError(f"The reference has shape {first.shape} and the backend {second.shape}.")
    keeper, buffers, no_steps = WorstPlaces(k), scratch(), Steps(None, ())
    with np.errstate(all="ignore"):
        for start in range(0, second.size if k > 0 else 0, BLOCK):
            block = read_block((first, second), (start, min(start + BLOCK, second.size)), no_steps, buffers)
            keeper.add(block, np.absolute(exact_difference(block)))
        return keeper.elements(first, second, Steps(backend_quant, second.shape), sample)


class WorstPlaces:
    """Remembers where the largest differences are, stretch by stretch in C order.

    Args:
        k: How many at most.
    """

    def __init__(self, k: int) -> None:
        self._k = k
        self._ranks = np.zeros(0)
        self._places = np.zeros(0, np.int64)

    def add(self, block: Block, magnitudes: np.ndarray) -> None:
        """Take in a stretch.

        Args:
            block: Its float64 values.
            magnitudes: Absolute differences; not written to.
        """
        full = self._ranks.size >= self._k
        floor = self._ranks[-1] if full and self._k else 0.0
        if not self._k or magnitudes.max() <= floor:  # false for NaN
            return
        ranks = _ranks(block, magnitudes)
        if not full and ranks.size > 4 * self._k:
            floor = np.nextafter(np.partition(ranks, ranks.size - self._k)[ranks.size - self._k], 0.0)
        places = np.flatnonzero(ranks > floor)
        ranks = np.concatenate((self._ranks, ranks[places]))
        places = np.concatenate((self._places, places + block.start))
        order = np.lexsort((places, -ranks))[: self._k]
        self._ranks, self._places = ranks[order], places[order]

    def elements(self, first: RealBlocks, second: RealBlocks, steps: Steps, sample: int) -> tuple[WorstElement, ...]:
        """Give the elements found, worst first, read once more from the two tensors."""
        return tuple(_element(first, second, int(place), steps, sample) for place in self._places)


def _ranks(block: Block, magnitudes: np.ndarray) -> np.ndarray:
    """Give the absolute differences, infinite over a disagreement on a non-finite value, 0 over agreement."""
    if np.isfinite(magnitudes.max()):
        return magnitudes
    a, b = block.reference, block.backend
    finite = np.isfinite(a) & np.isfinite(b)
    agree = (a == b) | (np.isnan(a) & np.isnan(b))
    # A finite difference beyond float64 stays just below a disagreement over a non-finite value.
    return np.where(finite, np.minimum(magnitudes, np.finfo(np.float64).max), np.where(agree, 0.0, np.inf))


def _element(first: RealBlocks, second: RealBlocks, place: int, steps: Steps, sample: int) -> WorstElement:
    span = (place, place + 1)
    block = read_block((first, second), span, steps, scratch())
    reference = real_values(block.reference, block.reference_rest)
    backend = real_values(block.backend, block.backend_rest)
    lsb = None
    if steps.known:
        lsb = float(difference_in_steps(reference, backend, steps.of(*span))[0])
    return WorstElement(
        index=tuple(int(i) for i in np.unravel_index(place, second.shape)),
        sample=sample,
        reference=float(reference[0]),
        backend=float(backend[0]),
        difference=float(exact_difference(block)[0]),
        lsb=lsb,
        reference_code=_code(first, place),
        backend_code=_code(second, place),
    )


def _code(blocks: RealBlocks, place: int) -> int | None:
    if not blocks.quantized:
        return None
    code = blocks.stored(place, place + 1)[0]
    return int(code) if np.isfinite(float(code)) else None
