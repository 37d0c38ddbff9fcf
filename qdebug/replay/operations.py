"""Operations: what programs are compiled to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.replay.scaling import Fixed, Scales
from qdebug.replay.variant import Multiplier

__all__ = ["Operation", "Start", "load", "nested", "number_type"]


def number_type(multiplier: Multiplier) -> type[np.generic]:
    """Give the kind of number that a program computes in: float32, float64, or int64 with an integer multiplier."""
    if not multiplier.real:
        return np.int64
    return np.float64 if multiplier.number == "f64" else np.float32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """One operation on blocks of numbers.

    Args:
        apply: Takes the numbers (a tuple of arrays), the array to put the result in or None for a new one, and the
            parameters; gives the result, which is in another array where the dtype changes.
        parameters: Arrays that broadcast to the whole output.
    """

    apply: Callable[..., np.ndarray]
    parameters: tuple[np.ndarray, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Start:
    """How a program starts.

    Args:
        operation: Makes the first value of what the columns hold.
        dtype: The kind of number that the program computes in: np.float32, np.float64 or np.int64.
        scales: What the multiplier of the program is made of.
        whole: The integers that stand for it, where they are no function of `scales`.
        tag: What the scales are of; equal for starts with equal scales.
        zero: What the step `zp` adds, where that is not the output's zero point.
    """

    operation: Operation
    dtype: type[np.generic]
    scales: Scales
    whole: Fixed | None = None
    tag: object = None
    zero: np.ndarray | None = None


def load(dtype: type[np.generic], place: int = 0) -> Operation:
    """Give the operation that takes numbers as they are, in a dtype, without ever changing them."""

    def apply(numbers: tuple[np.ndarray, ...], out: np.ndarray | None) -> np.ndarray:
        del out
        return numbers[place].astype(dtype)

    return Operation(apply=apply)


def nested(operations: Sequence[Operation]) -> Callable[[tuple[np.ndarray, ...], Sequence[np.ndarray]], np.ndarray]:
    """Give one function that applies operations in order; it takes their parameters one after the other."""

    def run(numbers: tuple[np.ndarray, ...], parameters: Sequence[np.ndarray]) -> np.ndarray:
        used = 0
        value = numbers
        for operation in operations:
            count = len(operation.parameters)
            value = (operation.apply(value, None, *parameters[used : used + count]),)
            used += count
        return value[0]

    return run
