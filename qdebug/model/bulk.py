"""Very many things at once: made without looks for garbage, and kept in as little memory as they need."""

from __future__ import annotations

import gc
import mmap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar, overload

import numpy as np

__all__ = [
    "MANY",
    "Picked",
    "as_column",
    "compact",
    "garbage_left_alone",
    "give_back_memory",
    "large_pieces_apart",
    "narrowed",
    "own_bytes",
]

T = TypeVar("T")

MANY = 20_000
"""Rows from which a table is kept as columns, out of which one row is made when it is looked at."""

_LARGE = 1 << 18
_USUAL = 1 << 24
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of options in glibc's malloc.h."""


@contextmanager
def garbage_left_alone() -> Iterator[None]:
    """Look for no cyclic garbage inside the block.

    For blocks that make hundreds of thousands of objects that stay, such as a graph: Python would look through all of
    them again and again, for a fifth of the time, and find nothing. What it was set to before holds afterwards, also
    if the block fails; blocks may be nested, and entered by several threads.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def narrowed(column: np.ndarray) -> np.ndarray:
    """Copy a column of integers into the narrowest type that holds them; one value throughout takes no room.

    It stays apart from what passes by, which would leave holes around it.
    """
    if not column.size:
        return np.empty(0, np.uint8)
    low, high = int(column.min()), int(column.max())
    signed = low < 0 <= high
    kind = np.promote_types(np.min_scalar_type(low), np.min_scalar_type(-high - 1 if signed else high))
    if low == high:
        return np.broadcast_to(kind.type(low), column.shape)
    found = own_bytes(column.size * kind.itemsize).view(kind)
    found[:] = column
    return found


def compact(column: np.ndarray) -> range | memoryview:
    """Keep a column of integers that are asked for one by one: as a range if they go up evenly, else `narrowed`.

    Of a memoryview, one number comes several times as fast as of an array.
    """
    if column.size > 1:
        first, step = int(column[0]), int(column[1]) - int(column[0])
        if step > 0 and (column[1:] > column[:-1]).all() and (column[1:] - column[:-1] == step).all():
            return range(first, first + step * column.size, step)
    return narrowed(column).data


def as_column(kept: range | memoryview) -> np.ndarray:
    """Give what `compact` keeps as an array."""
    return np.arange(kept.start, kept.stop, kept.step) if isinstance(kept, range) else np.asarray(kept)


class Picked(Sequence[T]):
    """Of a few things the one that a column names.

    Args:
        things: The things.
        column: Which of them each is.
    """

    def __init__(self, things: Sequence[T], column: np.ndarray) -> None:
        self.things = things
        self._column = narrowed(column).data

    @classmethod
    def of(cls, values: Iterable[T]) -> Picked[T]:
        """Keep values of which most are the same."""
        numbers: dict[T, int] = {}
        column = np.fromiter((numbers.setdefault(value, len(numbers)) for value in values), np.int64)
        return cls(list(numbers), column)

    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            return [self.things[number] for number in self._column[at]]
        return self.things[self._column[at]]

    def __iter__(self) -> Iterator[T]:
        return map(self.things.__getitem__, self._column)


def own_bytes(count: int) -> np.ndarray:
    """Make an array of uint8, not set, in memory of its own that goes back to the system with it.

    What the C library has handed out and got back it keeps for the next time, and all the more of it the larger that
    was: a table of 30 MB that was looked through once would stay in the process.
    """
    if count < _LARGE:
        return np.empty(count, np.uint8)
    try:
        return np.frombuffer(mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    except OSError:
        return np.empty(count, np.uint8)


def give_back_memory() -> None:
    """Give the system what the C library keeps of memory that nobody uses; do nothing where it cannot be asked to.

    glibc gives back only what lies at the end of its heap, and the objects that outlive an alignment lie there.
    """
    from ctypes import CDLL  # of no use to small recordings

    with suppress(AttributeError, OSError, TypeError):  # another C library, or none that can be named
        CDLL(None).malloc_trim(0)


@contextmanager
def large_pieces_apart() -> Iterator[None]:
    """Have large pieces of memory go back to the system as soon as they are let go inside the block.

    For programs alone, not for a library: it holds for the whole process. glibc puts a piece apart only if it is larger
    than all that came back so far, and dictionaries of very many names come back soon: all that is made later lies
    between what stays. After the block it is where large arrays would have brought it: to give and fetch pages costs
    more than to compute with them.
    """
    _set_malloc(apart=_LARGE, trimmed=_LARGE)
    try:
        yield
    finally:
        _set_malloc(apart=_USUAL, trimmed=2 * _USUAL)


def _set_malloc(*, apart: int, trimmed: int) -> None:
    """Tell the C library from which size on it puts pieces apart, and how much it may keep at the end of its heap."""
    from ctypes import CDLL

    with suppress(AttributeError, OSError, TypeError):
        mallopt = CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, apart)
        mallopt(_TRIM_THRESHOLD, trimmed)
