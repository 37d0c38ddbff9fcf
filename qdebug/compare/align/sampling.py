"""How near two tensors are, at a few places or as a whole, in the order of dimensions that brings them nearest.

All distances are relative: norm(backend - reference) / norm(reference), over all samples that are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, product

import numpy as np

from qdebug.compare.align.arrangements import AxisOrder, arrangements, matched_places, places
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.model.thresholds.alignment import SAMPLED_RUNS, VALUES_READ_MAX_ELEMENTS
from qdebug.numerics.affine import dequantize

__all__ = ["Candidate", "Nearness", "Sampler", "relative", "ways_between"]

Shape = tuple[int, ...]
_Side = tuple[IndexedRecording, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearness:
    """How near two tensors are in one order.

    Args:
        distance: Relative, 0 or more.
        arrangement: The order.
        reference: The reference's elements at the places of the backend's samples.
    """

    distance: float
    arrangement: AxisOrder
    reference: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A reference tensor that may be a backend tensor's partner, with its copies.

    Args:
        names: The tensors that hold the same values, in the order that they were recorded in.
        distance: Relative.
        values: How many values tell it.
        ways: For each candidate, how much of the way to it from this one the backend tensor may have gone.
    """

    names: tuple[str, ...]
    distance: float
    values: int
    ways: tuple[float, ...]

    def confidence(self, rivals: Iterable[int]) -> float:
        """Return how sure it is that this is the partner, and none of some other candidates, by their places."""
        return min(1 - self.distance**2, 1 - 2 / self.values, *(1 - 2 * self.ways[at] for at in rivals))


class Sampler:
    """Reads elements of two runs' tensors, of the first samples that both runs have; keeps those at sampled places.

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
        """Return the elements of a backend tensor at its sampled places, float64 [elements of all samples].

        None where they tell nothing: they were not kept, are too many, are no finite numbers, or all one.
        """
        return self._plain((self.be, backend))

    def _plain(self, side: _Side) -> np.ndarray | None:
        run, tensor = side
        if not run.has(tensor):
            return None
        key, held = (None, run.shape(tensor)), self._read.setdefault((run is self.be, tensor), {})
        if key not in held:
            held[key] = self._sampled(side, [places(run.size(tensor))])[0]
        return held[key]

    def _matched(self, side: _Side, orders: Iterable[tuple[AxisOrder, Shape]]) -> list[np.ndarray | None]:
        """Return a tensor's elements at the places of other tensors' samples, for orders and the extents of those."""
        run, tensor = side
        held, wanted = self._read.setdefault((run is self.be, tensor), {}), list(orders)
        missing = [key for key in dict.fromkeys(wanted) if key not in held]
        if missing:
            at = [matched_places(order, run.shape(tensor), shape) for order, shape in missing]
            held.update(zip(missing, self._sampled(side, at), strict=True))
        return [held[key] for key in wanted]

    def _sampled(self, side: _Side, wanted: Sequence[np.ndarray]) -> list[np.ndarray | None]:
        run, tensor = side
        nothing: list[np.ndarray | None] = [None for _ in wanted]
        shape = run.shape(tensor)
        if math.prod(shape) > VALUES_READ_MAX_ELEMENTS or not self._is_kept(side):
            return nothing
        parts = [list[np.ndarray]() for _ in wanted]
        for at in self.runs:
            stored = run.recording.load(tensor, *at)
            if stored.shape != shape:
                return nothing
            for part, some in zip(parts, wanted, strict=True):
                part.append(_real(run, tensor, stored, some))
        joined = [np.concatenate(part) for part in parts]
        tells = bool(wanted) and all(np.isfinite(part).all() for part in joined) and np.ptp(joined[0]) > 0
        return [*joined] if tells else nothing

    def _is_kept(self, side: _Side) -> bool:
        return bool(self.runs) and all(side[0].recording.has(side[1], *at) for at in self.runs)

    def nearest(self, reference: str, backend: str) -> list[Nearness]:
        """Return all orders in which two tensors may be alike, the nearest first; none if nothing can be told."""
        return self._between((self.ref, reference), (self.be, backend))

    def order(self, reference: str, backend: str, *, as_stored: bool) -> tuple[AxisOrder, float] | None:
        """Return the order in which two tensors are nearest, and how sure it is that it is no other; None if none is.

        Args:
            reference: The reference tensor.
            backend: The backend tensor.
            as_stored: Also ask whether they are alike element by element as they are stored, whatever their extents:
                then it is no order of dimensions.
        """
        near, mine = self.nearest(reference, backend), self.of_backend(backend)
        if not near or mine is None:
            return None
        rivals = [each.reference for each in near]
        if as_stored:
            flat = self._matched((self.ref, reference), [(AxisOrder(), self.be.shape(backend))])[0]
            rivals += [] if flat is None else [flat]
        ways = ways_between(np.array(rivals), mine)[0]
        return near[0].arrangement, min(1 - near[0].distance ** 2, *(1 - 2 * ways))

    def apart(self, one: str, other: str) -> float:
        """Return how far two tensors of the reference are from each other; infinity if nothing can be told."""
        near = self._between((self.ref, one), (self.ref, other))
        return near[0].distance if near else math.inf

    def _between(self, one: _Side, other: _Side) -> list[Nearness]:
        mine = self._plain(other)
        if mine is None or not one[0].has(one[1]):
            return []
        shape = other[0].shape(other[1])
        orders = arrangements(one[0].shape(one[1]), shape)
        theirs = self._matched(one, [(order, shape) for order in orders])
        found = [
            Nearness(distance=relative(mine - known, known), arrangement=order, reference=known)
            for order, known in zip(orders, theirs, strict=True)
            if known is not None
        ]
        return sorted(found, key=lambda each: each.distance)

    def table(self, references: Sequence[str], backends: Sequence[str]) -> np.ndarray:
        """Return the distances of tensors from each other, each in its nearest order: float64 [backends, references].

        Infinity where nothing can be told, or no order fits.
        """
        distances = np.full((len(backends), len(references)), np.inf)
        ours: dict[Shape, list[int]] = {}
        for row, name in enumerate(backends):
            if self.of_backend(name) is not None:
                ours.setdefault(self.be.shape(name), []).append(row)
        stacked = {shape: np.array([self.of_backend(backends[row]) for row in rows]) for shape, rows in ours.items()}
        theirs: dict[Shape, list[int]] = {}
        for column, name in enumerate(references):
            theirs.setdefault(self.ref.shape(name), []).append(column)
        for shape, columns in theirs.items():
            keys = [(order, other) for other in ours for order in arrangements(shape, other)]
            read = [(column, self._matched((self.ref, references[column]), keys)) for column in columns]
            told = [(column, values) for column, values in read if all(each is not None for each in values)]
            for place, (_, other) in enumerate(keys if told else ()):
                part = np.ix_(ours[other], [column for column, _ in told])
                known = np.array([values[place] for _, values in told])
                distances[part] = np.minimum(distances[part], _distances(known, stacked[other]))
        return distances

    def in_order_of(self, backend: str, reference: str) -> np.ndarray:
        """Return all elements of a reference tensor in the order of a backend tensor: float64 [all samples]."""
        order = self.nearest(reference, backend)[0].arrangement
        read = [_real(self.ref, reference, self.ref.recording.load(reference, *at)) for at in self.runs]
        if order.backend is None:
            return np.concatenate([_turned(values, order.reference) for values in read])
        shape = self.be.shape(backend)
        turned = tuple(shape[axis] for axis in order.backend)
        back = tuple(order.backend.index(axis) for axis in range(len(shape)))
        return np.concatenate([_turned(values.reshape(turned), back) for values in read])

    def all_of(self, backend: str) -> np.ndarray:
        """Return all elements of a backend tensor: float64 [all samples]."""
        return np.concatenate(
            [_turned(_real(self.be, backend, self.be.recording.load(backend, *at)), None) for at in self.runs]
        )


def ways_between(tensors: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return how much of the way from each of some tensors to each other one a further one may have gone.

    The error e against the first is projected on the difference u of both: a = <e, u> / <u, u>, which is 0 at the first
    and 1 at the second. To a is added three times its standard deviation, |e - a u| / (|u| sqrt(n)): noise that knows
    nothing of u goes that far by chance. Least is 0.

    Args:
        tensors: Their elements, float64 [k, n].
        values: The elements of the further one, float64 [n].

    Returns:
        float64 [k, k]; 1 between tensors that are equal, 0 on the diagonal.
    """
    gram, own = tensors @ tensors.T, tensors @ values
    norms = np.diag(gram)
    square = np.maximum(norms[:, None] - 2 * gram + norms, 0.0)  # of u
    along = own - own[:, None] - gram + norms[:, None]  # <e, u> = <v, t_j> - <v, t_i> - <t_i, t_j> + <t_i, t_i>
    error = np.square(values - tensors).sum(axis=1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = along / square
        rest = np.sqrt(np.maximum(error - np.square(share) * square, 0.0) / square / len(values))
        found = np.maximum(share + 3 * rest, 0.0)
    found[~np.isfinite(found)] = 1.0
    np.fill_diagonal(found, 0.0)
    return np.asarray(found)


def _distances(references: np.ndarray, backends: np.ndarray) -> np.ndarray:
    """Return the relative distances of rows: |b - r|^2 = |b|^2 - 2 b.r + |r|^2."""
    norms = np.sum(np.square(references), axis=1)
    squares = np.sum(np.square(backends), axis=1)[:, None] - 2 * backends @ references.T + norms
    return np.asarray(np.sqrt(np.maximum(squares, 0.0) / np.where(norms > 0, norms, np.nan)))


def _real(run: IndexedRecording, tensor: str, stored: np.ndarray, at: np.ndarray | None = None) -> np.ndarray:
    """Return the real values of a tensor as float64, all of them or those at some places in C order."""
    quant = run.graph.tensors[tensor].quant
    if at is not None and (quant is None or quant.scale.size == 1):
        stored, at = stored.reshape(-1)[at], None
    real = np.asarray(dequantize(stored, quant), np.float64)
    return real if at is None else np.asarray(real.reshape(-1)[at])


def _turned(array: np.ndarray, turn: Shape | None) -> np.ndarray:
    return (array if turn is None else array.transpose(turn)).reshape(-1)


def relative(error: np.ndarray, of: np.ndarray) -> float:
    """Return norm(error) / norm(of); infinity where nothing is to be had of it."""
    norm = float(np.linalg.norm(of))
    return float(np.linalg.norm(error)) / norm if norm else math.inf
