"""What a program starts from: each form turns the numbers of the columns into the first value of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qdebug.replay.columns import Columns
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant

__all__ = ["Operation", "load", "start_of"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """One operation on blocks of numbers.

    Args:
        key: Equal for operations that compute the same.
        apply: Takes the numbers (a tuple of arrays), the array to put the result in or None for a new one, and the
            parameters; gives the result, which is in another array where the dtype changes.
        parameters: Arrays that broadcast to the whole output.
    """

    key: tuple[object, ...]
    apply: Callable[..., np.ndarray]
    parameters: tuple[np.ndarray, ...] = ()


def load(dtype: type[np.generic]) -> Operation:
    """Give the operation that takes the first numbers as they are, in a dtype, without ever changing them."""

    def apply(numbers: tuple[np.ndarray, ...], out: np.ndarray | None) -> np.ndarray:
        del out
        return numbers[0].astype(dtype)

    return Operation(key=("load", dtype.__name__), apply=apply)


_NUMBER_TYPES: Mapping[str, type[np.generic]] = MappingProxyType({"f32": np.float32, "f64": np.float64})


def _sum(unit: Unit, columns: Columns, variant: Variant) -> tuple[Operation, type[np.generic]]:
    """Take the integer sums, or the real values, themselves."""
    del unit, columns
    dtype = _NUMBER_TYPES.get(variant.multiplier.number, np.int64)
    return load(dtype), dtype


_FORMS: dict[str, Callable[[Unit, Columns, Variant], tuple[Operation, type[np.generic]]]] = {"sum": _sum}


def start_of(unit: Unit, columns: Columns, variant: Variant) -> tuple[Operation, type[np.generic]]:
    """Give the operation that a program starts with, and the kind of number that it computes in.

    Raises:
        ValueError: The form is not one of the unit's kind.
    """
    form = _FORMS.get(variant.form)
    if form is None:
        raise ValueError(f"the form {variant.form!r} is not known")
    return form(unit, columns, variant)
