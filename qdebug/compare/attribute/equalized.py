"""Decides whether a tensor is the reference's times a factor per channel, and later layers undo these factors.

Equalization moves a factor of each channel from the weights of one layer into those of the next, so that both suit one
scale (Nagel et al., Data-free quantization through weight equalization and bias correction, ICCV 2019). SmoothQuant and
AWQ do the same between a normalization and a product. Weights and results then differ, and nothing is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from qdebug.compare.align.layouts import in_one_order
from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.band import level_db, minus, norm
from qdebug.compare.attribute.graph_walk import between
from qdebug.compare.attribute.input_errors import partner_values, replay_with
from qdebug.compare.attribute.readers import ComparedReaders
from qdebug.compare.attribute.reference_replay import ReferenceReplay
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model.thresholds.verdict import EQUAL_INPUTS_MIN_SQNR, EQUALIZED_MIN_RANGE, EQUALIZED_MIN_VALUES

__all__ = ["EqualizedChannels"]


class EqualizedChannels:
    """Fits a factor to each channel, and follows the factors to the tensors in which they are undone.

    A tensor is called right if it equals the reference's up to rounding.

    Args:
        replays: Both runs and their pairs.
        readers: Looks up the tensors that depend on a tensor.
    """

    def __init__(self, replays: ReferenceReplay, readers: ComparedReaders) -> None:
        self._replays, self._readers = replays, readers
        self._factors: dict[str, np.ndarray | None] = {}

    def undone_factors(self, tensor: str, places: Sequence[tuple[int, int]]) -> np.ndarray | None:
        """Return the factor of each channel of a tensor if all tensors computed from it are right in the end, or None.

        Args:
            tensor: The backend tensor.
            places: Samples and steps.
        """
        graph = self._replays.be.recording.graph
        waiting, visited = [tensor], {tensor}
        while waiting:
            name = waiting.pop()
            readers = self._readers.of(name)
            if name in graph.outputs or not readers or self.factors(name, places) is None:
                return None
            scaled = {reader for reader in readers if not self._is_right(reader, places)}
            if not all(self._undoes_factors(reader, name, places) for reader in readers if reader not in scaled):
                return None
            waiting += scaled - visited
            visited |= scaled
        return self.factors(tensor, places)

    def undoes_factors_of(self, tensor: str, inputs: Sequence[str], places: Sequence[tuple[int, int]]) -> bool:
        """Return whether a tensor is right although an input that it is computed from is scaled per channel."""
        return self._is_right(tensor, places) and any(self.undone_factors(name, places) is not None for name in inputs)

    def _undoes_factors(self, tensor: str, input_name: str, places: Sequence[tuple[int, int]]) -> bool:
        """Return whether a reader is right with its input scaled per channel, but would be wrong without the factors.

        True if the nodes in between cannot be replayed.
        """
        recording = self._replays.be.recording
        nodes, _ = between(recording.graph, tensor, self._replays.pairs)
        try:
            for place in places:
                right = real_values(recording, tensor, place)
                reference_input = {input_name: partner_values(self._replays, input_name, place)}
                result, result_without_factors = (
                    replay_with(self._replays, nodes, tensor, replacements, place)
                    for replacements in ({}, reference_input)
                )
                if not _is_near(result, right) or _is_near(result_without_factors, right):
                    return False
        except (KernelError, NotRecordedError, UsageError):
            return True
        return True

    def factors(self, tensor: str, places: Sequence[tuple[int, int]]) -> np.ndarray | None:
        """Return the factor of each channel by which a tensor differs from the reference's, or None if there is none.

        The factors are positive, not all equal, and the same in all samples. The reference times the factors equals the
        tensor up to rounding.
        """
        if tensor not in self._factors:
            try:
                self._factors[tensor] = self._fit_factors([self._load_both_sides(tensor, place) for place in places])
            except (KernelError, NotRecordedError, UsageError):
                self._factors[tensor] = None
        return self._factors[tensor]

    def _load_both_sides(self, tensor: str, place: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the backend's and the reference's values in float64, in the dimension order of the comparison."""
        pair = self._replays.pairs[tensor]
        reference, backend = in_one_order(
            real_values(self._replays.ref.recording, pair.reference, place),
            pair.reference_view,
            real_values(self._replays.be.recording, tensor, place),
            pair.backend_view,
        )
        if backend.shape != reference.shape or backend.dtype.kind != "f" or reference.dtype.kind != "f":
            raise KernelError(f"{tensor!r} cannot be compared element by element.")
        return backend.astype(np.float64), reference.astype(np.float64)

    def _is_right(self, tensor: str, places: Sequence[tuple[int, int]]) -> bool:
        try:
            return all(_is_near(*self._load_both_sides(tensor, place)) for place in places)
        except (KernelError, NotRecordedError, UsageError):
            return False

    def _fit_factors(self, pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray | None:
        shape = pairs[0][0].shape if pairs else ()
        if any(backend.shape != shape for backend, _ in pairs):
            return None
        for axis, size in enumerate(shape):
            if size < 2 or len(pairs) * math.prod(shape) < EQUALIZED_MIN_VALUES * size:
                continue
            other_axes = tuple(at for at in range(len(shape)) if at != axis)
            with np.errstate(all="ignore"):
                # Least squares for each channel: factor = sum(backend * reference) / sum(reference^2).
                products = sum(np.sum(backend * reference, axis=other_axes) for backend, reference in pairs)
                squares = sum(np.sum(reference * reference, axis=other_axes) for _, reference in pairs)
                factors = np.where(squares > 0, products / squares, 1.0)
            if not (np.isfinite(factors).all() and (factors > 0).all()):
                continue
            factors_along_axis = factors.reshape([-1 if at == axis else 1 for at in range(len(shape))])
            if factors.max() / factors.min() - 1 > EQUALIZED_MIN_RANGE and all(
                _is_near(backend, reference * factors_along_axis) for backend, reference in pairs
            ):
                return np.asarray(factors)
        return None


def _is_near(values: np.ndarray, right: np.ndarray) -> bool:
    """Return whether values equal the right ones up to rounding."""
    return level_db(norm(right), norm(minus(values, right))) >= EQUAL_INPUTS_MIN_SQNR
