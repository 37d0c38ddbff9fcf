"""Columns: the inputs of a variant's program, and the operations that programs are compiled to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qdebug.errors import KernelError
from qdebug.replay.blockwise import split_shape
from qdebug.replay.scaling import Fixed, Scales

__all__ = ["BLOCK", "Columns", "HeavyPart", "Operation", "Start", "compose_operations", "convert_to"]

BLOCK = 1 << 15
"""Elements per block, so that intermediate results stay in a core's cache."""


_COORDINATES = "coordinates"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HeavyPart:
    """The expensive part of a computation, which makes the columns. Variants with equal heavy parts share columns.

    Args:
        columns: Contents of the columns, see `qdebug.replay.variant.FORMS`.
        accumulate: How products are summed, with the order and the distance of pairs.
        bias: Where the bias is added; "float" if it is added at any point after the sums.
    """

    columns: str = "sum"
    accumulate: str = "wrap32"
    bias: str = "int32"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """The numbers that a program starts from.

    Args:
        sums: The heavy part that computed them.
        values: One array for each operand of the form: integers in a dtype that holds them exactly, or real numbers. In
            the output's shape with channels first, or flat if `positions` is given.
        shape: Shape of the whole output, channels first.
        count: Number of averaged elements, broadcasting to `shape`; None without averages.
        positions: Flat positions of the elements in `shape`; None if all are present.
        member: Operand index of each element, broadcasting to `shape`; None unless tensors are joined.
        bound: Largest possible magnitude of integers; 0 if unknown.
        memo: Cache for the programs of a unit; shared with selections.
        spreads: Cache of parameters broadcast to these values.
    """

    sums: HeavyPart
    values: tuple[np.ndarray, ...]
    shape: tuple[int, ...]
    count: np.ndarray | None = None
    positions: np.ndarray | None = None
    member: np.ndarray | None = None
    bound: float = 0.0
    memo: dict[object, Any] = field(default_factory=dict, repr=False)
    spreads: dict[object, tuple[np.ndarray, ...]] = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.values[0].size)

    def take(self, positions: np.ndarray) -> Columns:
        """Select elements.

        Args:
            positions: Flat positions in C order of the whole output, channels first.

        Raises:
            ValueError: The columns are already a selection.
        """
        if self.positions is not None:
            raise ValueError("columns can be selected only once")
        positions = np.asarray(positions, dtype=np.int64).reshape(-1)
        values = tuple(array.reshape(-1)[positions] for array in self.values)
        return replace(self, values=values, positions=positions, spreads={})

    def spread(self, parameter: np.ndarray) -> np.ndarray:
        """Reshape a parameter of the whole output to broadcast to the values.

        Raises:
            KernelError: The parameter does not broadcast to the output.
        """
        if parameter.size == 1:
            return parameter.reshape(())
        try:
            full = np.broadcast_to(parameter, self.shape)
        except ValueError:
            message = f"Its parameters have shape {list(parameter.shape)}, but its result has {list(self.shape)}."
            raise KernelError(message) from None
        if self.positions is None:
            return parameter.reshape((1,) * (len(self.shape) - parameter.ndim) + parameter.shape)
        if _COORDINATES not in self.spreads:
            self.spreads[_COORDINATES] = np.unravel_index(self.positions, self.shape)
        return np.asarray(full[self.spreads[_COORDINATES]])

    def blocks(self, limit: int = BLOCK) -> Iterator[tuple[slice, ...]]:
        """Yield blocks of at most `limit` elements, as indices into arrays that broadcast to the values."""
        yield from split_shape(self.values[0].shape, limit)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """One operation on blocks of numbers.

    Args:
        apply: Takes the numbers (a tuple of arrays), an output array or None, and the parameters; returns the result,
            in a new array if the dtype changes.
        parameters: Arrays that broadcast to the whole output.
        text: The operation as a numpy expression of the numbers `v`, with `{}` for each parameter, for an exported
            program; None if it cannot be written as one.
    """

    apply: Callable[..., np.ndarray]
    parameters: tuple[np.ndarray, ...] = ()
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Start:
    """The start of a program.

    Args:
        operation: Computes the first value from the columns.
        dtype: The type that the program computes in: np.float32, np.float64 or np.int64.
        scales: The scales of the program's multiplier.
        whole: The integers of the multiplier, if they are not computed from `scales`.
        tag: Identity of the scales; equal for starts with equal scales.
        zero: The value that the step `zp` adds; None for the output's zero point.
        one: The real value that a number of 1 stands for; None for the scale of the sums.
    """

    operation: Operation
    dtype: type[np.generic]
    scales: Scales
    whole: Fixed | None = None
    tag: object = None
    zero: np.ndarray | None = None
    one: np.ndarray | None = None


def convert_to(dtype: type[np.generic], position: int = 0) -> Operation:
    """Return an operation that copies one of the arrays of numbers to a dtype, so that the original stays unchanged."""

    def apply(numbers: tuple[np.ndarray, ...], out: np.ndarray | None) -> np.ndarray:
        del out
        return numbers[position].astype(dtype)

    return Operation(apply=apply, text=f"v.astype(np.{dtype.__name__})")


def compose_operations(
    operations: Sequence[Operation],
) -> Callable[[tuple[np.ndarray, ...], Sequence[np.ndarray]], np.ndarray]:
    """Compose operations into one function that takes all their parameters in sequence."""

    def run(numbers: tuple[np.ndarray, ...], parameters: Sequence[np.ndarray]) -> np.ndarray:
        used = 0
        value = numbers
        for operation in operations:
            count = len(operation.parameters)
            value = (operation.apply(value, None, *parameters[used : used + count]),)
            used += count
        return value[0]

    return run
