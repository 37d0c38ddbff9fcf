"""Decides whether wrong values of a run have an effect. A masked infinity or a row that is dropped has none."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.band import level_db, minus, norm
from qdebug.compare.attribute.birth_search import is_one_sided_nonfinite
from qdebug.compare.attribute.graph_walk import between
from qdebug.compare.attribute.input_errors import partner_values, replay_with
from qdebug.compare.attribute.readers import ComparedReaders
from qdebug.compare.attribute.reference_replay import ReferenceReplay
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model.thresholds.verdict import EQUAL_INPUTS_MIN_SQNR, EQUAL_INPUTS_MIN_SQNR_OF_16_BITS
from qdebug.numerics.short_formats import format_of

__all__ = ["ErrorEffect"]

_PROBES = 2
"""Number of random replacements that are tried for a tensor."""


class ErrorEffect:
    """Follows wrong values of one run to the first right tensors that depend on them.

    Each such tensor is replayed twice: with the backend's values, and with the reference's values in place of the wrong
    ones.

    Args:
        replays: Both runs and their pairs.
        readers: Looks up the tensors that depend on a tensor.
    """

    def __init__(self, replays: ReferenceReplay, readers: ComparedReaders) -> None:
        self._replays, self._readers = replays, readers

    def has_no_effect(self, tensor: str, place: tuple[int, int], *, nonfinite: bool) -> bool:
        """Return whether the wrong values of a compared tensor change no other tensor.

        Non-finite values have no effect if their readers change by no more than rounding; finite ones, if their readers
        do not change at all. Return False for a network output, and if a reader was not recorded or cannot be replayed.

        Args:
            tensor: The backend tensor.
            place: Sample and step.
            nonfinite: Whether to follow the values that are not finite on one side, or those that are far off.
        """
        graph = self._replays.be.recording.graph
        waiting, visited = [tensor], {tensor}
        try:
            if not nonfinite:
                wrong = self._wrong_elements(tensor, place, nonfinite=False)
                # A tensor that is wrong everywhere is reported even if its readers ignore it, and a tensor without
                # wrong elements has no effect to look for.
                if wrong.all() or not wrong.any():
                    return False
            while waiting:
                name = waiting.pop()
                readers = self._readers.of(name)
                if not (nonfinite or graph.consumers(name)):  # a tensor that no node reads may be an undeclared output
                    return False
                if name in graph.outputs or (not readers and graph.consumers(name)):
                    return False
                wrong_readers = {
                    reader for reader in readers if self._wrong_elements(reader, place, nonfinite=nonfinite).any()
                }
                if any(
                    self._changes_reader(name, reader, place, nonfinite=nonfinite)
                    for reader in readers
                    if reader not in wrong_readers
                ):
                    return False
                waiting += wrong_readers - visited
                visited |= wrong_readers
        except (KernelError, NotRecordedError, UsageError):
            return False
        return True

    def _wrong_elements(self, tensor: str, place: tuple[int, int], *, nonfinite: bool) -> np.ndarray:
        """Return which elements are not finite on one side only, or are far off."""
        backend = real_values(self._replays.be.recording, tensor, place)
        reference = partner_values(self._replays, tensor, place)
        if backend.shape != reference.shape:
            raise KernelError(f"{tensor!r} has a different shape in the reference.")
        if backend.dtype.kind != "f" or reference.dtype.kind != "f":
            return np.zeros(backend.shape, bool)
        if nonfinite:
            return np.asarray(is_one_sided_nonfinite(backend, reference) | is_one_sided_nonfinite(reference, backend))
        if not np.isfinite(reference).all():
            raise KernelError(f"{tensor!r} is not finite in the reference.")
        off, signal = np.abs(minus(backend, reference)), norm(reference) / math.sqrt(max(reference.size, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            level = 20 * np.log10(signal / off)
        is_short = any(format_of(array) is not None for array in (backend, reference))
        min_sqnr = EQUAL_INPUTS_MIN_SQNR_OF_16_BITS if is_short else EQUAL_INPUTS_MIN_SQNR
        return np.asarray((off != 0) & ~(level >= min_sqnr))

    def _changes_reader(self, tensor: str, reader: str, place: tuple[int, int], *, nonfinite: bool) -> bool:
        """Return whether the wrong elements of a tensor change the result of a compared reader."""
        recording = self._replays.be.recording
        nodes, _ = between(recording.graph, reader, self._replays.pairs)
        backend, reference = real_values(recording, tensor, place), partner_values(self._replays, tensor, place)
        wrong = self._wrong_elements(tensor, place, nonfinite=nonfinite)
        with_backend = replay_with(self._replays, nodes, reader, {}, place)
        replacements = [reference] if nonfinite else [reference, *_random_values(reference)]
        return any(
            _has_different_elements(
                with_backend,
                replay_with(self._replays, nodes, reader, {tensor: np.where(wrong, values, backend)}, place),
                allow_rounding=nonfinite,
            )
            for values in replacements
        )


def _random_values(reference: np.ndarray) -> Iterator[np.ndarray]:
    """Yield random values for a tensor. A reader that drops elements drops them whatever their values are.

    Testing only the right values would not suffice: a selection, such as that of the largest element, may be the same
    for wrong and right values by chance.
    """
    rng, scale = np.random.default_rng(0), norm(reference)
    for _ in range(_PROBES):
        yield (rng.standard_normal(reference.shape) * scale).astype(reference.dtype)


def _has_different_elements(with_backend: np.ndarray, with_replacements: np.ndarray, *, allow_rounding: bool) -> bool:
    """Return whether two results differ, by more than rounding if rounding is allowed."""
    off = minus(with_backend, with_replacements)[
        ~((with_backend == with_replacements) | (np.isnan(with_backend) & np.isnan(with_replacements)))
    ]
    if not (off.size and allow_rounding):
        return bool(off.size)
    level = level_db(norm(with_replacements), norm(off))
    return not level >= EQUAL_INPUTS_MIN_SQNR  # level is NaN if the reader passes the non-finite value on
