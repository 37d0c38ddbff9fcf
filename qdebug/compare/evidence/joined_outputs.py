"""The error of each part that a Concat joins into a network output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.evidence.measured_tensor import MeasuredTensor
from qdebug.compare.measure.joined_parts import JoinedPart, joined_parts

__all__ = ["PartError", "errors_of_parts"]


@dataclass(slots=True)
class PartError:
    """The error of one part, over samples and steps.

    Args:
        part: The part.
        signal: Sum of the squares of the reference's values.
        noise: Sum of the squared errors.
        largest: Largest magnitude in the reference.
        zero: Whether all values of the backend are 0.
    """

    part: JoinedPart
    signal: float = 0.0
    noise: float = 0.0
    largest: float = 0.0
    zero: bool = True

    @property
    def sqnr_db(self) -> float:
        """The SQNR of the part, infinite without a signal or without an error."""
        return 10 * math.log10(self.signal / self.noise) if self.signal and self.noise else math.inf


def errors_of_parts(measured: MeasuredTensor) -> Sequence[PartError]:
    """Return the error of each part that was joined into a network output, or () for other tensors."""
    runs, entry = measured._runs, measured.entry
    is_permuted = entry.pair.reference_view is not None or entry.pair.backend_view is not None
    if is_permuted or entry.tensor not in measured.graph.outputs:
        return ()
    errors = [PartError(part) for part in joined_parts(runs.backend, entry.tensor)]
    if len(errors) < 2:
        return ()
    for place in measured._places:
        reference = real_values(runs.reference, entry.reference_tensor, place).astype(np.float64)
        backend = real_values(runs.backend, entry.tensor, place).astype(np.float64).reshape(reference.shape)
        for part_error in errors:
            right, backend_part = part_error.part.of(reference), part_error.part.of(backend)
            part_error.signal += float(np.square(right).sum())
            part_error.noise += float(np.square(backend_part - right).sum())
            part_error.largest = max(part_error.largest, float(np.abs(right).max(initial=0.0)))
            part_error.zero = part_error.zero and not backend_part.any()
    return errors
