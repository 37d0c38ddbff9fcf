"""Distances between two tensors, at sampled elements or all of them, in the dimension order that minimizes them.

All distances are relative: norm(backend - reference) / norm(reference), over all samples read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, product

import numpy as np

from qdebug.compare.align.arrangements import AxisOrder, arrangements, matched_positions, sample_positions
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.model.thresholds.alignment import SAMPLED_RUNS, VALUES_READ_MAX_ELEMENTS
from qdebug.numerics.affine import dequantize

__all__ = ["Candidate", "Nearness", "Sampler", "relative_norm", "shifts_between"]

Shape = tuple[int, ...]
_Side = tuple[IndexedRecording, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearness:
    """The distance between two tensors in one dimension order.

    Args:
        distance: Relative, 0 or more.
        arrangement: The order.
        reference: The reference's elements at the backend's sampled positions.
    """

    distance: float
    arrangement: AxisOrder
    reference: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A reference tensor that may be the partner of a backend tensor, with its copies.

    Args:
        names: Tensors that hold the same values, in recording order.
        distance: Relative.
        values: Number of values that the distance is based on.
        shifts: For each candidate, how far the backend tensor may lie from this one towards that one, as a fraction of
            their distance.
    """

    names: tuple[str, ...]
    distance: float
    values: int
    shifts: tuple[float, ...]

    def confidence(self, rivals: Iterable[int]) -> float:
        """Return the confidence that this candidate is the partner rather than any of the given rivals."""
        return min(1 - self.distance**2, 1 - 2 / self.values, *(1 - 2 * self.shifts[at] for at in rivals))


class Sampler:
    """Reads elements of two runs' tensors, over the first samples that both runs have, and caches the sampled elements.

    Args:
        ref: The reference run.
        be: The backend run.
    """

    def __init__(self, ref: IndexedRecording, be: IndexedRecording) -> None:
        self.ref, self.be = ref, be
        sides = ref.recording, be.recording
        samples, steps = min(side.samples for side in sides), min(side.steps for side in sides)
        self.runs = list(islice(product(range(samples), range(steps)), SAMPLED_RUNS))
        self._read: dict[tuple[bool, str], dict[tuple[AxisOrder | None, Shape], np.ndarray | None]] = {}

    def of_backend(self, backend: str) -> np.ndarray | None:
        """Return the elements of a backend tensor at its sampled positions, float64 [elements of all samples].

        None if they are not evidence: not kept, too many, not finite, or all equal.
        """
        return self._sample_in_stored_order((self.be, backend))

    def _sample_in_stored_order(self, side: _Side) -> np.ndarray | None:
        run, tensor = side
        if not run.has(tensor):
            return None
        key, cache = (None, run.shape(tensor)), self._read.setdefault((run is self.be, tensor), {})
        if key not in cache:
            cache[key] = self._sample_at(side, [sample_positions(run.size(tensor))])[0]
        return cache[key]

    def _elements_in_orders(self, side: _Side, orders: Iterable[tuple[AxisOrder, Shape]]) -> list[np.ndarray | None]:
        """Return a tensor's elements at the sampled positions of other tensors, for each order and shape."""
        run, tensor = side
        cache, requested_orders = self._read.setdefault((run is self.be, tensor), {}), list(orders)
        missing_orders = [key for key in dict.fromkeys(requested_orders) if key not in cache]
        if missing_orders:
            at = [matched_positions(order, run.shape(tensor), shape) for order, shape in missing_orders]
            cache.update(zip(missing_orders, self._sample_at(side, at), strict=True))
        return [cache[key] for key in requested_orders]

    def _sample_at(self, side: _Side, position_lists: Sequence[np.ndarray]) -> list[np.ndarray | None]:
        run, tensor = side
        no_values: list[np.ndarray | None] = [None for _ in position_lists]
        shape = run.shape(tensor)
        if math.prod(shape) > VALUES_READ_MAX_ELEMENTS or not self._is_kept(side):
            return no_values
        parts = [list[np.ndarray]() for _ in position_lists]
        for place in self.runs:
            stored_values = run.recording.load(tensor, *place)
            if stored_values.shape != shape:
                return no_values
            for sampled_values, indices in zip(parts, position_lists, strict=True):
                sampled_values.append(_real_values(run, tensor, stored_values, indices))
        joined_values = [np.concatenate(sampled_values) for sampled_values in parts]
        is_evidence = (
            bool(position_lists)
            and all(np.isfinite(sampled_values).all() for sampled_values in joined_values)
            and np.ptp(joined_values[0]) > 0
        )
        return [*joined_values] if is_evidence else no_values

    def _is_kept(self, side: _Side) -> bool:
        return bool(self.runs) and all(side[0].recording.has(side[1], *place) for place in self.runs)

    def nearest(self, reference: str, backend: str) -> list[Nearness]:
        """Return the distances of two tensors in all orders, smallest first; empty if nothing can be concluded."""
        return self._distances_between((self.ref, reference), (self.be, backend))

    def order(self, reference: str, backend: str, *, as_stored: bool) -> tuple[AxisOrder, float] | None:
        """Return the order with the smallest distance and the confidence in it, or None if there is no such order.

        Args:
            reference: The reference tensor.
            backend: The backend tensor.
            as_stored: Whether comparing the elements as stored, whatever the shapes, is a rival of every order. If that
                fits, no order is certain.
        """
        nearest_orders, values = self.nearest(reference, backend), self.of_backend(backend)
        if not nearest_orders or values is None:
            return None
        rivals = [entry.reference for entry in nearest_orders]
        if as_stored:
            stored_elements = self._elements_in_orders((self.ref, reference), [(AxisOrder(), self.be.shape(backend))])[
                0
            ]
            rivals += [] if stored_elements is None else [stored_elements]
        fractions = shifts_between(np.array(rivals), values)[0]
        return nearest_orders[0].arrangement, min(1 - nearest_orders[0].distance ** 2, *(1 - 2 * fractions))

    def distance_within_reference(self, first: str, second: str) -> float:
        """Return the distance between two reference tensors, or infinity if unknown."""
        nearest_orders = self._distances_between((self.ref, first), (self.ref, second))
        return nearest_orders[0].distance if nearest_orders else math.inf

    def _distances_between(self, first: _Side, second: _Side) -> list[Nearness]:
        values = self._sample_in_stored_order(second)
        if values is None or not first[0].has(first[1]):
            return []
        shape = second[0].shape(second[1])
        orders = arrangements(first[0].shape(first[1]), shape)
        sampled_elements = self._elements_in_orders(first, [(order, shape) for order in orders])
        distances = [
            Nearness(distance=relative_norm(values - elements, elements), arrangement=order, reference=elements)
            for order, elements in zip(orders, sampled_elements, strict=True)
            if elements is not None
        ]
        return sorted(distances, key=lambda nearness: nearness.distance)

    def distance_table(self, references: Sequence[str], backends: Sequence[str]) -> np.ndarray:
        """Return the distance of each backend tensor from each reference tensor, float64 [backends, references].

        Each distance is for the best dimension order. It is infinity if it is unknown or no order fits.
        """
        distances = np.full((len(backends), len(references)), np.inf)
        backends_by_shape: dict[Shape, list[int]] = {}
        for row, name in enumerate(backends):
            if self.of_backend(name) is not None:
                backends_by_shape.setdefault(self.be.shape(name), []).append(row)
        stacked = {
            shape: np.array([self.of_backend(backends[row]) for row in rows])
            for shape, rows in backends_by_shape.items()
        }
        references_by_shape: dict[Shape, list[int]] = {}
        for column, name in enumerate(references):
            references_by_shape.setdefault(self.ref.shape(name), []).append(column)
        for shape, columns in references_by_shape.items():
            keys = [
                (order, backend_shape)
                for backend_shape in backends_by_shape
                for order in arrangements(shape, backend_shape)
            ]
            sampled_columns = [
                (column, self._elements_in_orders((self.ref, references[column]), keys)) for column in columns
            ]
            complete = [
                (column, values) for column, values in sampled_columns if all(piece is not None for piece in values)
            ]
            for key_number, (_, backend_shape) in enumerate(keys if complete else ()):
                cells = np.ix_(backends_by_shape[backend_shape], [column for column, _ in complete])
                matrix = np.array([values[key_number] for _, values in complete])
                distances[cells] = np.minimum(distances[cells], _distances(matrix, stacked[backend_shape]))
        return distances

    def reference_values_in_order(self, backend: str, reference: str) -> np.ndarray:
        """Return all elements of a reference tensor in the order of its backend partner: float64 [all samples]."""
        order = self.nearest(reference, backend)[0].arrangement
        all_values = [_real_values(self.ref, reference, self.ref.recording.load(reference, *at)) for at in self.runs]
        if order.backend is None:
            return np.concatenate([_flat_in_order(values, order.reference) for values in all_values])
        shape = self.be.shape(backend)
        permuted_shape = tuple(shape[axis] for axis in order.backend)
        reverse_order = tuple(order.backend.index(axis) for axis in range(len(shape)))
        return np.concatenate([_flat_in_order(values.reshape(permuted_shape), reverse_order) for values in all_values])

    def all_backend_values(self, backend: str) -> np.ndarray:
        """Return all elements of a backend tensor: float64 [all samples]."""
        return np.concatenate(
            [
                _flat_in_order(_real_values(self.be, backend, self.be.recording.load(backend, *at)), None)
                for at in self.runs
            ]
        )


def shifts_between(tensors: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return how far a tensor may lie from each candidate towards every other one, as a fraction of their distance.

    The error e against the first is projected on the difference u of both: a = <e, u> / <u, u>, which is 0 at the first
    and 1 at the second. Three times the standard deviation of a, |e - a u| / (|u| sqrt(n)), is added: noise independent
    of u reaches that far by chance. The result is at least 0.

    Args:
        tensors: Elements of the candidates, float64 [k, n].
        values: Elements of the tensor, float64 [n].

    Returns:
        float64 [k, k]; 1 between equal tensors, 0 on the diagonal.
    """
    gram, products = tensors @ tensors.T, tensors @ values
    norms = np.diag(gram)
    square = np.maximum(norms[:, None] - 2 * gram + norms, 0.0)  # squared norms of u
    # <e, u> = <v, t_j> - <v, t_i> - <t_i, t_j> + <t_i, t_i>.
    projections = products - products[:, None] - gram + norms[:, None]
    error = np.square(values - tensors).sum(axis=1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = projections / square
        deviation = np.sqrt(np.maximum(error - np.square(share) * square, 0.0) / square / len(values))
        fractions = np.maximum(share + 3 * deviation, 0.0)
    fractions[~np.isfinite(fractions)] = 1.0
    np.fill_diagonal(fractions, 0.0)
    return np.asarray(fractions)


def _distances(references: np.ndarray, backends: np.ndarray) -> np.ndarray:
    """Return the relative distances between rows: |b - r|^2 = |b|^2 - 2 b.r + |r|^2."""
    norms = np.sum(np.square(references), axis=1)
    squares = np.sum(np.square(backends), axis=1)[:, None] - 2 * backends @ references.T + norms
    return np.asarray(np.sqrt(np.maximum(squares, 0.0) / np.where(norms > 0, norms, np.nan)))


def _real_values(run: IndexedRecording, tensor: str, elements: np.ndarray, at: np.ndarray | None = None) -> np.ndarray:
    """Return the real values of a tensor as float64, either all of them or those at given flat indices in C order."""
    quant = run.graph.tensors[tensor].quant
    if at is not None and (quant is None or quant.scale.size == 1):
        elements, at = elements.reshape(-1)[at], None
    real_values = np.asarray(dequantize(elements, quant), np.float64)
    return real_values if at is None else np.asarray(real_values.reshape(-1)[at])


def _flat_in_order(array: np.ndarray, permutation: Shape | None) -> np.ndarray:
    return (array if permutation is None else array.transpose(permutation)).reshape(-1)


def relative_norm(error: np.ndarray, values: np.ndarray) -> float:
    """Return norm(error) / norm(values), or infinity if the quotient is undefined."""
    norm = float(np.linalg.norm(values))
    return float(np.linalg.norm(error)) / norm if norm else math.inf
