"""Columns: the numbers that a variant's program turns into codes, and the operations that it is compiled to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qdebug.errors import KernelError
from qdebug.replay.blockwise import cut
from qdebug.replay.scaling import Fixed, Scales

__all__ = ["BLOCK", "Columns", "HeavyPart", "Operation", "Start", "load", "nested"]

BLOCK = 1 << 15
"""Elements that are worked on at a time, so that what is between two steps stays in a core's cache."""


_COORDINATES = "coordinates"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HeavyPart:
    """The heavy part of a computation: variants that share it share its columns.

    Args:
        columns: What the columns hold: see `qdebug.replay.variant.FORMS`.
        accumulate: How products are summed, with order and distance of pairs.
        bias: Where the bias enters; "float" for any that enters later.
    """

    columns: str = "sum"
    accumulate: str = "wrap32"
    bias: str = "int32"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """The numbers that programs start from.

    Args:
        sums: The heavy part that made them.
        values: One array of numbers per operand of the form: integers in a dtype that holds them exactly, or real
            numbers. In the output's shape with channels first, or flat if `places` is given.
        shape: Shape of the whole output, channels first.
        count: Elements that each average is over, broadcasting to `shape`; None where nothing is averaged.
        places: Flat positions in `shape` of the elements; None if all are there.
        member: Which operand each element comes from, broadcasting to `shape`; None but where tensors are joined.
        bound: Largest magnitude that integers may have; 0 if it is not known.
        memo: What was worked out for the programs of one unit; shared with selections.
        spreads: Parameters as they broadcast to these values.
    """

    sums: HeavyPart
    values: tuple[np.ndarray, ...]
    shape: tuple[int, ...]
    count: np.ndarray | None = None
    places: np.ndarray | None = None
    member: np.ndarray | None = None
    bound: float = 0.0
    memo: dict[object, Any] = field(default_factory=dict, repr=False)
    spreads: dict[object, tuple[np.ndarray, ...]] = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.values[0].size)

    def take(self, places: np.ndarray) -> Columns:
        """Select elements.

        Args:
            places: Flat positions in C order of the whole output, channels first.

        Raises:
            ValueError: The columns are a selection already.
        """
        if self.places is not None:
            raise ValueError("a selection is taken of whole columns")
        places = np.asarray(places, dtype=np.int64).reshape(-1)
        values = tuple(array.reshape(-1)[places] for array in self.values)
        return replace(self, values=values, places=places, spreads={})

    def spread(self, parameter: np.ndarray) -> np.ndarray:
        """Return a parameter that broadcasts to the whole output so that it broadcasts to the values.

        Raises:
            KernelError: It does not broadcast to the output.
        """
        if parameter.size == 1:
            return parameter.reshape(())
        try:
            whole = np.broadcast_to(parameter, self.shape)
        except ValueError:
            said = f"Its parameters have shape {list(parameter.shape)}, its result {list(self.shape)}."
            raise KernelError(said) from None
        if self.places is None:
            return parameter.reshape((1,) * (len(self.shape) - parameter.ndim) + parameter.shape)
        if _COORDINATES not in self.spreads:
            self.spreads[_COORDINATES] = np.unravel_index(self.places, self.shape)
        return np.asarray(whole[self.spreads[_COORDINATES]])

    def blocks(self, limit: int = BLOCK) -> Iterator[tuple[slice, ...]]:
        """Cut the values into blocks of about `limit` elements at most, as indices into arrays that broadcast."""
        yield from cut(self.values[0].shape, limit)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """One operation on blocks of numbers.

    Args:
        apply: Takes the numbers (a tuple of arrays), the array to put the result in or None for a new one, and the
            parameters; gives the result, which is in another array where the dtype changes.
        parameters: Arrays that broadcast to the whole output.
        text: The same as a numpy expression of the numbers `v`, with `{}` for each parameter, for a program that stands
            alone; None if there is none.
    """

    apply: Callable[..., np.ndarray]
    parameters: tuple[np.ndarray, ...] = ()
    text: str | None = None


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
        one: The real value of one of the numbers, where that is not the scale of the sums.
    """

    operation: Operation
    dtype: type[np.generic]
    scales: Scales
    whole: Fixed | None = None
    tag: object = None
    zero: np.ndarray | None = None
    one: np.ndarray | None = None


def load(dtype: type[np.generic], place: int = 0) -> Operation:
    """Return the operation that takes numbers as they are, in a dtype, without ever changing them."""

    def apply(numbers: tuple[np.ndarray, ...], out: np.ndarray | None) -> np.ndarray:
        del out
        return numbers[place].astype(dtype)

    return Operation(apply=apply, text=f"v.astype(np.{np.dtype(dtype).name})")


def nested(operations: Sequence[Operation]) -> Callable[[tuple[np.ndarray, ...], Sequence[np.ndarray]], np.ndarray]:
    """Return one function that applies operations in order; it takes their parameters one after the other."""

    def run(numbers: tuple[np.ndarray, ...], parameters: Sequence[np.ndarray]) -> np.ndarray:
        used = 0
        value = numbers
        for operation in operations:
            count = len(operation.parameters)
            value = (operation.apply(value, None, *parameters[used : used + count]),)
            used += count
        return value[0]

    return run
