"""Rounding modes, one row each, with formulas and descriptions.

A row has a name, formulas for real numbers, shifts and divisions, the formulas as NumPy text, a description, and the
program steps that may use it. Missing formulas are None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qdebug.errors import UsageError

__all__ = ["ROUNDINGS", "Rounding", "roundings_of", "unknown_rounding"]

Out = np.ndarray | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """A rounding mode.

    Args:
        words: Its description.
        steps: Program steps that may use it (see `qdebug.replay.steps`).
        cuts: Whether it truncates rather than rounds to nearest.
        real: Rounds real numbers, into a given array if possible; None if it applies only to integers.
        real_text: The same formula as NumPy text for the real numbers `v`.
        nudge: Computes the value to add before a shift, which rounds down, to get this rounding. It takes the integers
            and the number of bits, 0 to 62, and returns None for 0. None if the rounding does not apply to shifts.
        ahead: Computes a value to add before the nudge, from the same arguments; None for 0.
        shift_text: NumPy text that divides the integers `v` by 2**bits and rounds, with `half` as half the divisor.
        rises: Computes a mask of the divisions that round up, from the integers, the quotient, the remainder and the
            distance to the divisor. None if the rounding does not apply to divisions.
    """

    words: str
    steps: frozenset[str]
    cuts: bool = False
    real: Callable[[np.ndarray, Out], np.ndarray] | None = None
    real_text: str = ""
    nudge: Callable[[np.ndarray, np.ndarray], Out] | None = None
    ahead: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    shift_text: str = ""
    rises: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray] | None = None


def _round_up(values: np.ndarray, out: Out = None) -> np.ndarray:
    del out
    low = np.floor(values)
    # low is subtracted exactly for values >= 0; for values < 0 the result may round, but never across 0.5 from below.
    return np.asarray(low + (values - low >= 0.5))


def _round_away(values: np.ndarray, out: Out = None) -> np.ndarray:
    del out
    return np.asarray(np.copysign(_round_up(np.abs(values)), values))


def _round_plus(values: np.ndarray, out: Out = None) -> np.ndarray:
    """Round by adding one half and rounding down, in the precision of the values."""
    shifted = np.add(values, values.dtype.type(0.5), out=out)
    return np.asarray(np.floor(shifted, out=shifted if isinstance(shifted, np.ndarray) else None))


def _half(shift: np.ndarray) -> np.ndarray:
    return np.asarray((np.int64(1) << shift) >> 1)


def _below_half(shift: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(_half(shift) - 1, 0))


def _is_shifted(shift: np.ndarray) -> np.ndarray:
    """Return 1 where a tie is possible and must be nudged, which excludes shifts by 0 bits."""
    return np.asarray(shift > 0, np.int64)


_NEAREST = frozenset({"round", "shr", "avg"})
_EVERY = _NEAREST | {"mulhi"}

ROUNDINGS: Mapping[str, Rounding] = MappingProxyType(
    {
        "even": Rounding(
            words="ties to even",
            steps=_NEAREST,
            real=lambda values, out: np.asarray(np.rint(values, out=out)),
            real_text="np.rint(v)",
            nudge=lambda wide, shift: np.asarray(_below_half(shift) + ((wide >> shift) & _is_shifted(shift))),
            shift_text="(v + np.maximum(half - 1, 0) + ((v >> bits) & (bits > 0))) >> bits",
            rises=lambda _, quotient, rest, gap: (rest > gap) | ((rest == gap) & ((quotient & 1) == 1)),
        ),
        "away": Rounding(
            words="ties away from zero",
            steps=_EVERY,
            real=_round_away,
            real_text="np.copysign(np.floor(np.abs(v)) + (np.abs(v) - np.floor(np.abs(v)) >= 0.5), v)",
            nudge=lambda wide, shift: np.asarray(_half(shift) + ((wide >> 63) & -_is_shifted(shift))),
            shift_text="np.sign(v) * ((np.abs(v) + half) >> bits)",
            rises=lambda wide, _, rest, gap: (rest > gap) | ((rest == gap) & (wide >= 0)),
        ),
        "up": Rounding(
            words="ties up",
            steps=_EVERY | {"pre"},
            real=_round_up,
            real_text="np.floor(v) + (v - np.floor(v) >= 0.5)",
            nudge=lambda _, shift: _half(shift),
            shift_text="(v + half) >> bits",
            rises=lambda _, __, rest, gap: rest >= gap,
        ),
        "down": Rounding(
            words="ties down",
            steps=_NEAREST,
            real=lambda values, _: np.asarray(-_round_up(-values)),
            real_text="np.ceil(v) - (np.ceil(v) - v >= 0.5)",
            nudge=lambda _, shift: _below_half(shift),
            shift_text="(v + np.maximum(half - 1, 0)) >> bits",
            rises=lambda _, __, rest, gap: rest > gap,
        ),
        "floor": Rounding(
            words="rounded down",
            steps=_EVERY | {"pre"},
            cuts=True,
            real=lambda values, out: np.asarray(np.floor(values, out=out)),
            real_text="np.floor(v)",
            nudge=lambda *_: None,
            shift_text="v >> bits",
            rises=lambda wide, *_: np.zeros(wide.shape, bool),
        ),
        "trunc": Rounding(
            words="cut off",
            steps=_EVERY,
            cuts=True,
            real=lambda values, out: np.asarray(np.trunc(values, out=out)),
            real_text="np.trunc(v)",
            nudge=lambda wide, shift: np.asarray((wide >> 63) & ((np.int64(1) << shift) - 1)),
            shift_text="np.sign(v) * (np.abs(v) >> bits)",
            rises=lambda wide, _, rest, __: (rest != 0) & (wide < 0),
        ),
        "plus": Rounding(
            words="one half added, then truncated",
            steps=frozenset({"round"}),
            real=_round_plus,
            real_text="np.floor(v + v.dtype.type(0.5))",
        ),
        # double_round of TOSA's apply_scale_32: two roundings in one shift.
        "tosa": Rounding(
            words="rounded twice in one shift",
            steps=frozenset({"shr"}),
            ahead=lambda wide, shift: np.where(shift > 31, np.where(wide >= 0, 1 << 30, -(1 << 30)), 0),
            nudge=lambda _, shift: _half(shift),
            shift_text="(v + (bits > 31) * (np.sign(v) << 30) + half) >> bits",
        ),
    }
)
"""Rounding modes by name.

Of two equally near integers, even chooses the even one, away the one farther from 0, up the larger, down the smaller.
floor and trunc are directed roundings. plus is floor(v + 1/2) as computed, including its rounding error. tosa adds
2**30 away from 0 beyond 31 bits, then rounds up.
"""


def roundings_of(step: str, *first: str) -> tuple[str, ...]:
    """Return the possible roundings of a program step.

    Args:
        step: The step.
        first: Roundings to list first; the others follow in the order of the table.
    """
    return (*first, *(name for name, row in ROUNDINGS.items() if step in row.steps and name not in first))


def unknown_rounding(name: str, formula: str) -> UsageError:
    """Return the error for a rounding that does not exist, or that lacks a formula.

    Args:
        name: The requested name.
        formula: The required field of `Rounding`.
    """
    names = ", ".join(rounding_name for rounding_name, row in ROUNDINGS.items() if getattr(row, formula) is not None)
    return UsageError(f"Unknown rounding {name!r}; known roundings are {names}.", hint="Choose one of these names.")
