"""Check whether recording changed the result, by comparing the outputs with a plain run bit for bit.

If two plain runs have different outputs, the backend itself is nondeterministic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from xxhash import xxh3_128_digest

from qdebug.model import Fidelity
from qdebug.model.thresholds.rounding import UNSTEADY_MAX_RATIO

__all__ = ["FidelityCheck"]


class _Difference(NamedTuple):
    """How far an output is from the same output of a plain run; ordered by size."""

    size: float
    sentence: str


class FidelityCheck:
    """Collects comparisons of recorded outputs with plain outputs."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._places: set[tuple[int, int]] = set()
        self._differing_places: set[tuple[int, int]] = set()
        self._worst = _Difference(-1.0, "")
        self._plain_digests: dict[tuple[str, int, int], bytes] = {}
        # Outputs of the first plain run, only at the first sample and step where it differs from the recorded run.
        self._first_plain_outputs: dict[tuple[str, int, int], np.ndarray] = {}
        self._plain_distances: dict[tuple[str, int, int], float] = {}
        self._remarks: list[str] = []

    def remark(self, sentence: str) -> None:
        """Add a clause about a further comparison, such as a different way to run the model."""
        self._remarks.append(sentence)

    def compare(
        self, name: str, recorded: np.ndarray, other: np.ndarray, place: tuple[int, int], *, is_plain: bool = True
    ) -> None:
        """Compare one output bit for bit, including NaN payloads and signs of zero.

        Args:
            name: The output.
            recorded: The recorded values.
            other: The values of the other run.
            place: Sample and step.
            is_plain: Whether the other run had no recorder; two such runs on the same inputs should agree.
        """
        is_same = recorded.dtype == other.dtype and recorded.shape == other.shape and _bits_equal(recorded, other)
        if is_plain and self._differs_from_earlier_plain_run((name, *place), _digest(other)):
            first_plain = (
                recorded
                if self._plain_digests[name, *place] == _digest(recorded)
                else self._first_plain_outputs.get((name, *place))
            )
            self._note_plain_distance(
                (name, *place), 0.0 if first_plain is None else _measure_difference(name, first_plain, other).size
            )
        elif is_plain and not is_same and self._differing_places <= {place}:
            self._first_plain_outputs[name, *place] = other.copy()
        self._add_difference(
            name,
            place,
            None if is_same else _measure_difference(f"output {name!r} of sample {place[0]}", recorded, other),
        )

    def compare_hash(
        self, name: str, recorded: bytes, other: bytes, place: tuple[int, int], *, is_plain: bool = True
    ) -> None:
        """Compare one output that was not kept in full, using the hash of all its values.

        Args:
            name: The output.
            recorded: Hash of the recorded values, with dtype and shape.
            other: Hash of the other run's values.
            place: Sample and step.
            is_plain: Whether the other run had no recorder.
        """
        if is_plain and self._differs_from_earlier_plain_run((name, *place), other):
            self._note_plain_distance((name, *place), 0.0)
        sentence = f"output {name!r} of sample {place[0]} differs from a plain run; its values were not kept"
        self._add_difference(name, place, None if recorded == other else _Difference(0.0, sentence))

    def _differs_from_earlier_plain_run(self, key: tuple[str, int, int], digest: bytes) -> bool:
        """Return whether an earlier plain run had a different output at the same sample and step."""
        return self._plain_digests.setdefault(key, digest) != digest

    def _note_plain_distance(self, key: tuple[str, int, int], size: float) -> None:
        """Note the distance between two plain runs; 0 if their values are unavailable, which excuses no difference."""
        self._plain_distances[key] = max(size, self._plain_distances.get(key, 0.0))

    @property
    def _is_nondeterministic(self) -> bool:
        """Whether plain runs differ from each other about as much as the recorded run differs from them."""
        spread = max(self._plain_distances.values(), default=0.0)
        return bool(self._plain_distances) and self._worst.size <= UNSTEADY_MAX_RATIO * spread

    @property
    def differing(self) -> list[tuple[int, int]]:
        """Samples and steps with an output that differs from a plain run, in order."""
        return sorted(self._differing_places)

    def _add_difference(self, name: str, place: tuple[int, int], difference: _Difference | None) -> None:
        self._names.add(name)
        self._places.add(place)
        if difference is not None:
            self._differing_places.add(place)
            self._worst = max(self._worst, difference, key=lambda known: known.size)

    @property
    def fidelity(self) -> Fidelity:
        """The result of all comparisons."""
        if not self._places:
            return Fidelity.UNKNOWN
        if self._is_nondeterministic:
            return Fidelity.NONDETERMINISTIC
        return Fidelity.DIFFERS if self._differing_places else Fidelity.BIT_EQUAL

    @property
    def worst(self) -> str:
        """A clause about the output that differs most; "" if none differs."""
        return self._worst.sentence

    def detail(self, recorded_count: int, outputs: Iterable[str] = ()) -> str:
        """Return a clause about the compared outputs and the size of the change.

        Args:
            recorded_count: Number of recorded samples and steps.
            outputs: Outputs of the network; outputs that were never compared are named.
        """
        return "; ".join((self._comparison_text(recorded_count, outputs), *self._remarks))

    def _comparison_text(self, recorded_count: int, outputs: Iterable[str]) -> str:
        if not self._places:
            return "no plain run was available for comparison"
        count = f"{len(self._places)} of {recorded_count} recorded runs"
        names_left_out = [repr(name) for name in outputs if name not in self._names]
        uncompared_text = (
            f"; not compared: {', '.join(names_left_out[:3])}{' ...' if len(names_left_out) > 3 else ''}"
            if names_left_out
            else ""
        )
        if self._is_nondeterministic:
            name, sample, _ = next(iter(self._plain_distances))
            return f"two plain runs on the same inputs differ in output {name!r} of sample {sample}{uncompared_text}"
        if not self._differing_places:
            return f"outputs equal those of a plain run bit for bit, checked for {count}{uncompared_text}"
        difference_text = f"outputs differ in {len(self._differing_places)} of the {len(self._places)} runs checked"
        unsteady_text = "; plain runs differ from each other as well, but far less" if self._plain_distances else ""
        return f"{self._worst.sentence}; {difference_text}{unsteady_text}{uncompared_text}"


def _digest(array: np.ndarray) -> bytes:
    """Return a digest of an output's dtype, shape and bits."""
    return xxh3_128_digest(f"{array.dtype}{array.shape}".encode() + _bytes_of(array).tobytes())


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _bits_equal(first: np.ndarray, second: np.ndarray) -> bool:
    return bool(np.array_equal(_bytes_of(first), _bytes_of(second)))


def _measure_difference(title: str, recorded: np.ndarray, plain: np.ndarray) -> _Difference:
    """Return the distance between two outputs, and where it is largest."""
    if recorded.shape != plain.shape or recorded.dtype != plain.dtype:
        kinds = [f"{array.dtype}{list(array.shape)}" for array in (recorded, plain)]
        return _Difference(np.inf, f"{title} was recorded as {kinds[0]}, but is {kinds[1]} in a plain run")
    size = recorded.dtype.itemsize
    is_unequal = np.any(_bytes_of(recorded).reshape(-1, size) != _bytes_of(plain).reshape(-1, size), axis=1)
    count = f"{int(np.count_nonzero(is_unequal))} of {is_unequal.size} elements"
    distance = np.where(is_unequal, _distance(recorded.reshape(-1), plain.reshape(-1)), 0.0)
    worst_position = int(np.argmax(distance))
    if distance[worst_position] == 0:
        return _Difference(
            0.0, f"{title} differs from a plain run in the bits of {count}, although the values are equal"
        )
    index = tuple(int(position) for position in np.unravel_index(worst_position, recorded.shape))
    return _Difference(
        float(distance[worst_position]),
        f"{title} differs from a plain run in {count}, by up to {distance[worst_position]:.6g} at {list(index)}",
    )


def _distance(recorded: np.ndarray, plain: np.ndarray) -> np.ndarray:
    """Return distances of elements whose bits differ: 0 between NaNs or zeros, infinite between a number and NaN."""
    kind: Any = np.complex128 if recorded.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        recorded_values, plain_values = recorded.astype(kind), plain.astype(kind)
        distance: np.ndarray = np.abs(recorded_values - plain_values)
    if recorded.dtype.kind in "iu":
        distance[distance < 1.0] = 1.0  # different 64-bit integers may be equal as float64
        return distance
    is_equal = (recorded_values == plain_values) | (np.isnan(recorded_values) & np.isnan(plain_values))
    return np.where(is_equal, 0.0, np.where(np.isnan(distance), np.inf, distance))
