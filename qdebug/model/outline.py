"""What a recording knows of values without reading them: to find small ones in a file costs far more than to read."""

from __future__ import annotations

from typing import NamedTuple

from qdebug.model.recording import Recording

__all__ = ["Outline", "outline_of", "shape_of"]


class Outline(NamedTuple):
    """Values at one sample and step. Those of one recording with equal outlines are equal bit for bit.

    Args:
        dtype: Logical dtype of the elements.
        shape: Their shape.
        digest: Hash of all elements.
    """

    dtype: str
    shape: tuple[int, ...]
    digest: bytes


def outline_of(recording: Recording, tensor: str, sample: int = 0, step: int = 0) -> Outline | None:
    """Return the outline of values that a recording kept in full; None if it has none, or does not know it.

    A recording tells it by a method `outline`; not all kinds can.
    """
    ask = getattr(recording, "outline", None)
    known: Outline | None = None if ask is None else ask(tensor, sample, step)
    return known


def shape_of(recording: Recording, tensor: str, sample: int = 0, step: int = 0) -> tuple[int, ...]:
    """Return the shape of values; they are read only where the recording does not know it.

    Raises:
        RecordingError: No values are kept under this name, sample and step.
    """
    known = outline_of(recording, tensor, sample, step)
    return recording.load(tensor, sample, step).shape if known is None else known.shape
