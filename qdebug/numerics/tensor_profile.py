"""What is found of one tensor in full detail."""

from __future__ import annotations

from dataclasses import dataclass

from qdebug.numerics.channels import ChannelErrors
from qdebug.numerics.exponents import ExponentHistogram
from qdebug.numerics.histogram import ValueHistogram
from qdebug.numerics.relative import RelativeErrors
from qdebug.numerics.stats import ErrorStats, WorstElement
from qdebug.numerics.ulp import UlpErrors
from qdebug.numerics.worst import WorstColumns

__all__ = ["TensorProfile"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorProfile:
    """One backend tensor against its reference in full detail, over one or more samples and steps.

    Args:
        sample: The one sample it is of; None for several.
        tensors: How many arrays of each side were compared: one for each sample and step.
        shape: The backend's shape, into which all indices go; of the first array, should they differ.
        stats: The metrics of the core tier.
        errors: abs(difference) by binary exponent, of the elements that are finite on both sides.
        relative: abs(difference)/abs(reference) by binary exponent, with zero references apart.
        reference: Values of the reference, in the same bins as the backend's; None if no value is finite.
        backend: Values of the backend.
        found: The elements that differ most, as columns.
        ulp: Distance in units in the last place; None unless both sides are float16, bfloat16, float32 or float64
            and not quantized.
        channels: The error of each channel; None if no axis was given, or if arrays differ in their number of channels.
    """

    sample: int | None
    tensors: int
    shape: tuple[int, ...]
    stats: ErrorStats
    errors: ExponentHistogram
    relative: RelativeErrors
    reference: ValueHistogram | None
    backend: ValueHistogram | None
    found: WorstColumns
    ulp: UlpErrors | None
    channels: ChannelErrors | None

    @property
    def worst(self) -> tuple[WorstElement, ...]:
        """The elements that differ most, worst first; made on demand."""
        return self.found.elements()
