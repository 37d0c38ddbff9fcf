"""Arrays larger than memory should hold: their pages are given back once read, and new ones are made in a file.

An array that is a read-only view of a mapped file counts as memory as far as it was read; `passed_pages` and
`touched_pages` give that back. A large array that is unpacked or brought into another order is made in a nameless
temporary file (`Making`), whose room on the disk goes back to the system when the array is gone, however the process
ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from math import prod
from typing import Any

import numpy as np

__all__ = [
    "SPILL_FROM",
    "Making",
    "PassedPages",
    "SpillFile",
    "TouchedPages",
    "in_c_order",
    "mapping_of",
    "passed_pages",
    "touched_pages",
]

STRETCH = 32 << 20
"""Bytes after which pages are given back: some milliseconds of reading, against some microseconds for the call."""


class PassedPages:
    """The pages of one array that have been read; what is read again comes from the file again.

    Without this all that was read of a file counts as this process's memory, up to the size of the file.

    Args:
        mapped: The mapped file.
        offset: Where the array begins in it, in bytes.
        itemsize: Bytes of an element.
    """

    __slots__ = ("_first", "_itemsize", "_mapped", "_next", "_offset", "_released")

    def __init__(self, mapped: mmap.mmap, offset: int, itemsize: int) -> None:
        self._mapped, self._offset, self._itemsize = mapped, offset, itemsize
        self._first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE  # the page before may hold another array's end
        self._begin(self._first)

    def _begin(self, place: int) -> None:
        self._released = place
        self._next = (place + STRETCH - self._offset) // self._itemsize

    def read_up_to(self, element: int) -> None:
        """Release what lies before an element, once there is enough of it."""
        if element < self._next:
            if element == 0:
                self._begin(self._first)
            return
        end = (self._offset + element * self._itemsize) // mmap.PAGESIZE * mmap.PAGESIZE
        self._mapped.madvise(mmap.MADV_DONTNEED, self._released, end - self._released)
        self._begin(end)


class TouchedPages:
    """The pages of an array that is read in another order than it lies in, over and over.

    Args:
        mapped: The mapped file.
        offset: Where the array begins in it, in bytes.
        nbytes: Its size.
        step: Bytes from one element that is read to the next.
    """

    __slots__ = ("_mapped", "_span", "_step", "_touched")

    def __init__(self, mapped: mmap.mmap, offset: int, nbytes: int, step: int) -> None:
        first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (offset + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        self._mapped, self._span = mapped, (first, max(end - first, 0))
        self._step, self._touched = min(step, mmap.PAGESIZE), 0

    def read(self, elements: int) -> None:
        """Release all, once enough of it was read; before so many elements more are."""
        self._touched += elements * self._step
        if self._touched >= STRETCH:
            self._mapped.madvise(mmap.MADV_DONTNEED, *self._span)
            self._touched = elements * self._step


def passed_pages(array: np.ndarray) -> PassedPages | None:
    """Return the pages of an array; None if it is small, lies in memory, or the system cannot give pages back.

    Args:
        array: Elements in one piece, in order.
    """
    mapped = _mapped(array)
    return None if mapped is None else PassedPages(mapped, _offset(mapped, array), array.itemsize)


def touched_pages(array: np.ndarray) -> TouchedPages | None:
    """Return the pages of an array that is read in C order; None where `passed_pages` gives none.

    Args:
        array: Elements that lie in another order, without gaps.
    """
    mapped = _mapped(array)
    if mapped is None or any(stride < 0 for stride in array.strides):
        return None
    step = next((stride for stride, size in zip(array.strides[::-1], array.shape[::-1], strict=True) if size > 1), 1)
    return TouchedPages(mapped, _offset(mapped, array), array.nbytes, step)


def _mapped(array: np.ndarray) -> mmap.mmap | None:
    """Return the file that a large array lies in, if its pages can be given back."""
    if array.nbytes <= STRETCH or not hasattr(mmap, "MADV_DONTNEED"):
        return None
    owner = mapping_of(array)
    if owner is None or not memoryview(owner).readonly:
        return None  # what somebody wrote into a private mapping is nowhere else
    return owner


def mapping_of(array: np.ndarray) -> mmap.mmap | None:
    """Return the mapped file that an array is a view of; None if it lies in memory."""
    owner: object = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner if isinstance(owner, mmap.mmap) else None


def _offset(mapped: mmap.mmap, array: np.ndarray) -> int:
    return int(array.ctypes.data - np.frombuffer(mapped, np.uint8, count=1).ctypes.data)


SPILL_FROM = 64 << 20
"""Bytes of an array from which on it is made in a file: smaller ones are made faster in memory, and soon dropped."""
_PIECE = 16 << 20
"""Bytes of a turned array that are written at once."""
_AT_ONCE = 1 << 20
"""Bytes of it that are read at once."""
_CRUMB = 1 << 10
"""Bytes next to each other below which to write them one by one takes longer than to read them so."""
_ZEROS = 1 << 20
_MOST = 1 << 30
"""Bytes that are read in one call, which may not read all it is asked for."""
_NONE = -1

Place = tuple[slice, ...]


class SpillFile(mmap.mmap):
    """The mapping of a nameless file that an array was made in."""


class Making:
    """An array that is filled part by part: in memory, or in a file if it is large and there is room on the disk.

    It is written rather than mapped while it is filled: to touch scattered places of a mapping takes in whole stretches
    of the file around them.

    Args:
        shape: Its extents.
        dtype: Type of its elements.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._shape, self._dtype = shape, dtype
        self._nbytes = prod(shape) * dtype.itemsize
        self._fd = _room(self._nbytes) if self._nbytes >= SPILL_FROM else _NONE
        self._array = np.empty(shape if self._fd == _NONE else 0, dtype)

    def put(self, place: Place, part: np.ndarray) -> None:
        """Fill a part of the array.

        Args:
            place: A slice along each dimension, with a start and a stop inside it.
            part: Its elements.

        Raises:
            OSError: The file cannot be written.
        """
        if self._fd == _NONE:
            self._array[place] = part
            return
        data = np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
        size = _run(self._shape, place) * self._dtype.itemsize
        for number, start in enumerate(_starts(self._shape, place)):
            _write(self._fd, data[number * size : (number + 1) * size], start * self._dtype.itemsize)

    def put_flat(self, start: int, part: np.ndarray) -> None:
        """Fill consecutive elements.

        Args:
            start: The first of them, in C order.
            part: The elements, 1-D.

        Raises:
            OSError: The file cannot be written.
        """
        if self._fd == _NONE:
            self._array.reshape(-1)[start : start + part.size] = part
        else:
            data = np.ascontiguousarray(part).view(np.uint8).data
            _write(self._fd, data, start * self._dtype.itemsize)

    def done(self) -> np.ndarray:
        """Return the array. It is not to be filled any further; one that lies in a file is read-only.

        Raises:
            MemoryError: It can neither be mapped nor read back.
            OSError: It cannot be read back.
        """
        if self._fd == _NONE:
            return self._array
        try:
            held = SpillFile(self._fd, self._nbytes, access=mmap.ACCESS_READ)
        except OSError:  # a mapping needs address space and a descriptor
            return self._read_back()
        return np.frombuffer(held, self._dtype).reshape(self._shape)

    def _read_back(self) -> np.ndarray:
        array = np.empty(self._shape, self._dtype)
        left, start = array.reshape(-1).view(np.uint8).data, 0
        while left:
            count = os.preadv(self._fd, [left[:_MOST]], start)
            left, start = left[count:], start + count
        return array

    def __del__(self) -> None:
        if getattr(self, "_fd", _NONE) != _NONE:
            os.close(self._fd)


def in_c_order(array: np.ndarray) -> np.ndarray:
    """Return an array whose elements lie in C order: the array itself if its do, else a copy.

    Args:
        array: Elements of any shape and strides.
    """
    if array.flags.c_contiguous or array.nbytes < SPILL_FROM:
        return np.ascontiguousarray(array)
    making, pages = Making(array.shape, array.dtype), touched_pages(array)
    as_read = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    for place in _pieces(array, as_read):
        part = array[place]
        copied = np.empty(part.shape, array.dtype)
        for span in _cut(part.shape, as_read, _AT_ONCE // array.itemsize):
            copied[span] = part[span]
            if pages is not None:
                pages.read(copied[span].size)
        making.put(place, copied)
    return making.done()


def _pieces(array: np.ndarray, as_read: Sequence[int]) -> Iterator[Place]:
    """Cut an array along the dimension that is outermost in memory, so that it is read about once from end to end.

    Along the first dimension where that would leave nothing but crumbs to be written.

    Args:
        array: The array.
        as_read: Its dimensions, those that are outermost in memory first.
    """
    most = max(1, _PIECE // array.itemsize)
    first = next(_cut(array.shape, as_read, most))
    crumbs = _run(array.shape, first) * array.itemsize < _CRUMB
    return _cut(array.shape, range(array.ndim) if crumbs else as_read, most)


def _cut(shape: tuple[int, ...], along: Sequence[int], most: int) -> Iterator[Place]:
    """Cut a shape into parts that are small enough, along the first of some dimensions as far as that is enough.

    Args:
        shape: Extents.
        along: Dimensions.
        most: Elements of a part.
    """
    steps, left = list(shape), prod(shape)
    for axis in along:
        left //= max(shape[axis], 1)  # elements that a part has at the least
        parts = -(-shape[axis] // max(1, most // max(left, 1)))
        steps[axis] = max(1, -(-shape[axis] // max(parts, 1)))  # a small last one would touch as many pages as a large
        if left <= most:
            break
    cuts = (range(0, extent, step) for extent, step in zip(shape, steps, strict=True))
    for starts in product(*cuts):
        ends = (min(start + step, extent) for start, step, extent in zip(starts, steps, shape, strict=True))
        yield tuple(map(slice, starts, ends))


def _run(shape: tuple[int, ...], place: Place) -> int:
    """Return how many elements of a part lie next to each other in an array in C order."""
    run = 1
    for extent, span in zip(reversed(shape), reversed(place), strict=True):
        run *= span.stop - span.start
        if span.stop - span.start < extent:
            break
    return run


def _starts(shape: tuple[int, ...], place: Place) -> Iterator[int]:
    """List where the runs of a part begin in an array in C order, in the order of the part's elements."""
    inner = 0  # dimensions that a run goes through
    for extent, span in zip(reversed(shape), reversed(place), strict=True):
        inner += 1
        if span.stop - span.start < extent:
            break
    outer = len(shape) - inner
    steps = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    first = sum(span.start * step for span, step in zip(place, steps, strict=True))
    counts = [range(0, (span.stop - span.start) * step, step) for span, step in zip(place[:outer], steps, strict=False)]
    return (first + sum(offsets) for offsets in product(*counts))


def _room(nbytes: int) -> int:
    """Make a file of a size, all of which is on the disk; `_NONE` if that has less than twice as much left."""
    for folder in _folders():
        with suppress(OSError):
            free = os.statvfs(folder)
            if free.f_bavail * free.f_frsize < 2 * nbytes:
                continue
            with tempfile.TemporaryFile(prefix="qdebug-", dir=folder) as file:
                _reserve(file.fileno(), nbytes)
                return os.dup(file.fileno())
    return _NONE


def _folders() -> tuple[str, ...]:
    """Return where large temporary files go: on many systems /tmp is memory, and /var/tmp is meant for them."""
    usual = tempfile.gettempdir()
    return ("/var/tmp", usual) if usual == "/tmp" else (usual,)  # noqa: S108  files without a name


def _reserve(fd: int, nbytes: int) -> None:
    """Take the room on the disk now, while the array can still be made in memory.

    Raises:
        OSError: There is none.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, nbytes)
        return
    zeros = memoryview(bytes(_ZEROS))
    for start in range(0, nbytes, _ZEROS):
        _write(fd, zeros[: nbytes - start], start)


def _write(fd: int, data: memoryview, offset: int) -> None:
    while data:
        count = os.pwrite(fd, data, offset)
        data, offset = data[count:], offset + count
