"""The roundings that the words of a variant name, and how a word that does not exist is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NoReturn

from qdebug.errors import UsageError

__all__ = ["ROUNDINGS", "Rounding", "refuse", "refuse_unless"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """How a step rounds.

    Args:
        words: In plain words.
        real: Numpy text that rounds the real numbers `v`; empty if it is none for real numbers.
        shift: Numpy text that divides the integers `v` by 2**bits and rounds, with `half` of that; empty if it is none
            for a plain shift.
    """

    words: str
    real: str = ""
    shift: str = ""


ROUNDINGS: Mapping[str, Rounding] = MappingProxyType(
    {
        "even": Rounding(
            words="ties to even",
            real="np.rint(v)",
            shift="(v + np.maximum(half - 1, 0) + ((v >> bits) & (bits > 0))) >> bits",
        ),
        "away": Rounding(
            words="ties away from zero",
            real="np.copysign(np.floor(np.abs(v)) + (np.abs(v) - np.floor(np.abs(v)) >= 0.5), v)",
            shift="np.sign(v) * ((np.abs(v) + half) >> bits)",
        ),
        "up": Rounding(words="ties up", real="np.floor(v) + (v - np.floor(v) >= 0.5)", shift="(v + half) >> bits"),
        "down": Rounding(
            words="ties down",
            real="np.ceil(v) - (np.ceil(v) - v >= 0.5)",
            shift="(v + np.maximum(half - 1, 0)) >> bits",
        ),
        "floor": Rounding(words="rounded down", real="np.floor(v)", shift="v >> bits"),
        "trunc": Rounding(words="cut off", real="np.trunc(v)", shift="np.sign(v) * (np.abs(v) >> bits)"),
        "plus": Rounding(words="one half added and cut off", real="np.floor(v + v.dtype.type(0.5))"),
        "tosa": Rounding(words="rounded twice in one shift"),
    }
)
"""Roundings by name; `STEPS` says which step has which.

The first six are those of `qdebug.numerics.fixedpoint`. plus is floor(v + 1/2) as computed; tosa adds the nudge of
apply_scale_32's double rounding.
"""


def refuse(what: str, value: str, allowed: Iterable[str]) -> NoReturn:
    """Say that a variant has no such word.

    Raises:
        UsageError: Always.
    """
    raise UsageError(
        f"The arithmetic has no {what} {value!r}; known are {', '.join(allowed)}.",
        hint="Correct it, or write a file that fits with qdebug explain --write-arithmetic FILE.",
    )


def refuse_unless(what: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a word that is not among those of its kind.

    Raises:
        UsageError: It is not.
    """
    if value not in allowed:
        refuse(what, value, allowed)
