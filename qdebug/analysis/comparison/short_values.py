"""Tells that a run's values were rounded to a float format of few digits, and those of the other run were not."""

from __future__ import annotations

from collections.abc import Iterable

from qdebug.errors import RecordingError
from qdebug.model import Recording
from qdebug.numerics.short_formats import SHORT_FORMATS, fits, held_format

__all__ = ["short_values"]


def short_values(
    sides: tuple[Recording, Recording],
    names: tuple[str, str],
    places: Iterable[tuple[int, int]],
    *,
    known: str | None = None,
) -> str | None:
    """Give the name of the format that all values of the backend's tensor fit, and not all of the reference's.

    Args:
        sides: The reference run and the backend run.
        names: The tensor in each; neither holds codes.
        places: Samples and steps that both hold of it.
        known: The format, if it is known that the backend's values were rounded to one.

    Returns:
        None if there is none, or if the values could as well be whole numbers or few multiples of one.
    """
    among = list(places)
    try:
        if known is None:
            held = {held_format(sides[1].load(names[1], *place)) for place in among}
            short = held.pop() if len(held) == 1 else None
        else:
            short = next(each for each in SHORT_FORMATS if each.name == known)
        if short is None or all(fits(sides[0].load(names[0], *place), short) for place in among):
            return None
    except RecordingError:
        return None
    return short.name
