"""Numbers as text with three significant digits that never claim more or less than the number.

Rounding must not turn "almost" into "exactly": a cosine of 0.9999998 is not shown as 1, a share of 99.999 % not as 100
%, and NaN and infinity are always named.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from qdebug.plural import plural

if TYPE_CHECKING:
    from qdebug.numerics.stats import ErrorStats

__all__ = [
    "MISSING",
    "cosine",
    "grouped",
    "metric",
    "number",
    "percent",
    "plain_digits",
    "shape",
    "values",
    "whole",
]

MISSING = "-"
"""Placeholder for a missing value."""

_NARROW_SPACE = "\u202f"
_EXACT_INTEGERS_BELOW = 2.0**53
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e5


def _nonfinite_name(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return None


def number(value: float | None, *, digits: int = 3) -> str:
    """Return a real number with a few significant digits, plain between 0.001 and 100 000, scientific beyond.

    Args:
        value: Any float or int, or None.
        digits: Number of significant digits, at least 1.
    """
    if value is None:
        return MISSING
    special = _nonfinite_name(value)
    if special is not None:
        return special
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")  # before the digits are counted, since 9.996 becomes 10.0
    size = abs(rounded)
    if not _PLAIN_FROM <= size < _PLAIN_BELOW:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    decimals = digits - 1 - math.floor(math.log10(size))
    return f"{rounded:.{decimals}f}" if decimals > 0 else f"{value:.0f}"


def grouped(value: int | None) -> str:
    """Return a count in full, with digits grouped in threes by narrow spaces."""
    return MISSING if value is None else f"{value:,}".replace(",", _NARROW_SPACE)


def counted(count: int, noun: str) -> str:
    """Return a count with grouped digits, and its noun."""
    return plural(count, noun, number=grouped(count))


def plain_digits(text: str) -> str:
    """Return a text with commas in place of the narrow spaces between groups of digits, which are not ASCII.

    Args:
        text: Text for a file, a pipe or another program, but not for a terminal.
    """
    return text.replace(_NARROW_SPACE, ",")


def cosine(value: float | None) -> str:
    """Return a cosine with as many digits as needed to differ from 1 or -1."""
    if value is None or _nonfinite_name(value) is not None:
        return number(value)
    gap = 1 - abs(value)
    if gap <= 0 or abs(value) < 0.99:
        return number(value)
    decimals = min(17, 1 - int(f"{gap:.1e}".partition("e")[2]))
    return f"{value:.{decimals}f}"


def whole(value: float | None) -> str:
    """Return a whole number in full. A float from 2**53 on, which stands for several integers, is marked "about".

    Args:
        value: An integer, or a float that represents one. Other values are formatted as by `number`.
    """
    if value is None or isinstance(value, int):
        return MISSING if value is None else str(int(value))
    if not float(value).is_integer():
        return number(value, digits=4)
    return str(int(value)) if abs(value) < _EXACT_INTEGERS_BELOW else f"about {number(value, digits=8)}"


def percent(part: float, whole: float) -> str:
    """Return a share as a percentage, with 0 % and 100 % only for none and all."""
    if whole == 0:
        return MISSING
    share = 100 * part / whole
    special = _nonfinite_name(share)
    if special is not None:
        return special
    if part in (0, whole):
        return f"{share:.0f} %"
    if abs(share) < 0.01:
        return "<0.01 %"
    return ">99.9 %" if share > 99.9 else f"{number(share, digits=3 if share >= 10 else 2)} %"


def metric(name: str, value: float | None) -> str:
    """Return the value of a metric in `metric_table` as it appears in a cell, without its unit.

    Args:
        name: The metric's name in the table.
        value: Its value, or None if it has none.
    """
    if value is None:
        return MISSING
    if isinstance(value, int):
        return grouped(value)
    return cosine(value) if name == "cosine" else number(value)


def mismatches(stats: ErrorStats) -> str:
    """Return the number of elements that differ. For a sketch, it is marked as a lower bound."""
    return f"≥ {grouped(stats.mismatches)}" if stats.estimated else grouped(stats.mismatches)


def shape(extents: tuple[int | None, ...] | None) -> str:
    """Return a shape as "1x3x224x224", "scalar" for rank 0, with "?" for a variable extent."""
    if extents is None:
        return MISSING
    return "x".join("?" if extent is None else str(extent) for extent in extents) or "scalar"


def values(
    numbers: list[float] | tuple[float, ...], *, max_listed: int = 4, digits: int = 4, what: str = "values"
) -> str:
    """Return several numbers as one text: a single number if all are equal, a short list, or their count and range.

    Args:
        numbers: One or more numbers. Integers are shown in full.
        max_listed: Maximum number of listed values.
        digits: Number of significant digits for floats.
        what: Plural noun for the numbers.
    """

    def number_text(value: float) -> str:
        if isinstance(value, int):
            return str(value)
        text = number(value, digits=digits)
        return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text

    if not numbers:
        return MISSING
    if all(value == numbers[0] for value in numbers):
        return number_text(numbers[0])
    if len(numbers) <= max_listed:
        return ", ".join(map(number_text, numbers))
    usable = [value for value in numbers if not math.isnan(value)]
    if not usable:
        return f"{len(numbers)} {what}, all NaN"
    return f"{len(numbers)} {what}, {number_text(min(usable))} to {number_text(max(usable))}"
