"""Freeze the values of model types, so that recorded facts cannot change."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["frozen_array", "frozen_mapping", "rebuild", "same_value"]

T = TypeVar("T")
V = TypeVar("V")


def frozen_array(values: npt.ArrayLike, dtype: npt.DTypeLike | None = None, *, ndmin: int = 0) -> np.ndarray:
    """Copy values into a read-only array of at least `ndmin` dimensions."""
    array = np.array(values, dtype=dtype, ndmin=ndmin)
    array.flags.writeable = False
    return array


_EMPTY: Mapping[str, Any] = MappingProxyType({})


def frozen_mapping(values: Mapping[str, V]) -> Mapping[str, V]:
    """Return a read-only copy of a mapping and its arrays, or the mapping itself if it is already read-only."""
    if not values:
        return _EMPTY
    if isinstance(values, MappingProxyType):
        return values
    return MappingProxyType(
        {name: frozen_array(value) if isinstance(value, np.ndarray) else value for name, value in values.items()}  # type: ignore[misc]
    )


def same_value(first: Any, second: Any) -> bool:
    """Return whether two values are equal. Arrays are compared by dtype, shape and bytes, so that NaN equals itself."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return (
            isinstance(first, np.ndarray)
            and isinstance(second, np.ndarray)
            and (first.dtype, first.shape) == (second.dtype, second.shape)
            and first.tobytes() == second.tobytes()
        )
    return type(first) is type(second) and bool(first == second)


def rebuild(kind: type[T], values_by_field: Mapping[str, Any]) -> T:
    """Create an object from its fields. Unpickling calls this, so that the fields are frozen again."""
    return kind(**values_by_field)
