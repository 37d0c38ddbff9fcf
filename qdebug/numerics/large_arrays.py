"""Arrays larger than memory: pages are released after reading, and new arrays are written to a file.

The parts of a mapped file that were read count as memory. `passed_pages` and `touched_pages` release them. A large
array that is unpacked or reordered is written to an unnamed temporary file (`ArrayBuilder`), whose disk space is freed
with the array, however the process ends.
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
    "ArrayBuilder",
    "PassedPages",
    "SpillFile",
    "TouchedPages",
    "in_c_order",
    "mapping_of",
    "passed_pages",
    "touched_pages",
]

STRETCH = 32 << 20
"""Bytes read before pages are released: a few milliseconds of reading, against microseconds for the release."""


class PassedPages:
    """Releases the pages of an array that is read in order. The system reads released pages from the file when needed.

    Without it, everything read from a file counts as this process's memory, up to the size of the file.

    Args:
        mapped: The mapped file.
        offset: Offset of the array in the file, in bytes.
        itemsize: Bytes of an element.
    """

    __slots__ = ("_first", "_itemsize", "_mapped", "_next", "_offset", "_released")

    def __init__(self, mapped: mmap.mmap, offset: int, itemsize: int) -> None:
        self._mapped, self._offset, self._itemsize = mapped, offset, itemsize
        # the first partial page may hold the end of another array
        self._first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        self._begin(self._first)

    def _begin(self, offset: int) -> None:
        self._released = offset
        self._next = (offset + STRETCH - self._offset) // self._itemsize

    def read_up_to(self, element: int) -> None:
        """Release the pages before an element, if there are enough of them."""
        if element < self._next:
            if element == 0:
                self._begin(self._first)
            return
        end = (self._offset + element * self._itemsize) // mmap.PAGESIZE * mmap.PAGESIZE
        self._mapped.madvise(mmap.MADV_DONTNEED, self._released, end - self._released)
        self._begin(end)


class TouchedPages:
    """Releases the pages of an array that is read repeatedly, in a different order than it is stored.

    Args:
        mapped: The mapped file.
        offset: Offset of the array in the file, in bytes.
        nbytes: Its size.
        step: Bytes from one read element to the next.
    """

    __slots__ = ("_mapped", "_span", "_step", "_touched")

    def __init__(self, mapped: mmap.mmap, offset: int, nbytes: int, step: int) -> None:
        first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (offset + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        self._mapped, self._span = mapped, (first, max(end - first, 0))
        self._step, self._touched = min(step, mmap.PAGESIZE), 0

    def count_read(self, elements: int) -> None:
        """Count elements that are about to be read. Release all pages once enough were read."""
        self._touched += elements * self._step
        if self._touched >= STRETCH:
            self._mapped.madvise(mmap.MADV_DONTNEED, *self._span)
            self._touched = elements * self._step


def passed_pages(array: np.ndarray) -> PassedPages | None:
    """Return what releases the pages of an array that is read in order; None if nothing can be released.

    That is the case if the array is small or in memory, or if the system cannot release pages.

    Args:
        array: Contiguous elements, in order.
    """
    mapped = _releasable_mapping(array)
    return None if mapped is None else PassedPages(mapped, _offset_in_mapping(mapped, array), array.itemsize)


def touched_pages(array: np.ndarray) -> TouchedPages | None:
    """Return what releases the pages of an array that is read in C order; None if `passed_pages` returns None.

    Args:
        array: Elements in a different order, without gaps.
    """
    mapped = _releasable_mapping(array)
    if mapped is None or any(stride < 0 for stride in array.strides):
        return None
    step = next((stride for stride, size in zip(array.strides[::-1], array.shape[::-1], strict=True) if size > 1), 1)
    return TouchedPages(mapped, _offset_in_mapping(mapped, array), array.nbytes, step)


def _releasable_mapping(array: np.ndarray) -> mmap.mmap | None:
    """Return the mapped file of a large array, if its pages can be released."""
    if array.nbytes <= STRETCH or not hasattr(mmap, "MADV_DONTNEED"):
        return None
    owner = mapping_of(array)
    if owner is None or not memoryview(owner).readonly:
        return None  # data written to a private mapping exists nowhere else
    return owner


def mapping_of(array: np.ndarray) -> mmap.mmap | None:
    """Return the mapped file that an array is a view of; None if the array is in memory."""
    owner: object = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner if isinstance(owner, mmap.mmap) else None


def _offset_in_mapping(mapped: mmap.mmap, array: np.ndarray) -> int:
    return int(array.ctypes.data - np.frombuffer(mapped, np.uint8, count=1).ctypes.data)


SPILL_FROM = 64 << 20
"""Size in bytes from which an array is written to a file. Smaller arrays are faster in memory, and soon dropped."""
_PIECE = 16 << 20
"""Bytes of a reordered array written at a time."""
_AT_ONCE = 1 << 20
"""Bytes of a reordered array read at a time."""
_MIN_RUN = 1 << 10
"""Contiguous bytes below which scattered writes are slower than scattered reads."""
_ZEROS = 1 << 20
_MAX_READ = 1 << 30
"""Maximum bytes read in one call, which may return fewer than requested."""
_NO_FILE = -1

Slices = tuple[slice, ...]


class SpillFile(mmap.mmap):
    """The mapping of an unnamed file that holds an array."""


class ArrayBuilder:
    """An array that is filled part by part, in memory or, if it is large and the disk has space, in a file.

    While it is filled, the file is written rather than mapped, because touching scattered positions of a mapping loads
    large surrounding parts of the file.

    Args:
        shape: Its extents.
        dtype: Type of its elements.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._shape, self._dtype = shape, dtype
        self._nbytes = prod(shape) * dtype.itemsize
        self._fd = _create_file(self._nbytes) if self._nbytes >= SPILL_FROM else _NO_FILE
        self._array = np.empty(shape if self._fd == _NO_FILE else 0, dtype)

    def put(self, slices: Slices, part: np.ndarray) -> None:
        """Fill a part of the array.

        Args:
            slices: A slice for each dimension, with a start and a stop inside the dimension.
            part: Its elements.

        Raises:
            OSError: The file cannot be written.
        """
        if self._fd == _NO_FILE:
            self._array[slices] = part
            return
        data = np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
        size = _run_length(self._shape, slices) * self._dtype.itemsize
        for number, start in enumerate(_run_starts(self._shape, slices)):
            _write(self._fd, data[number * size : (number + 1) * size], start * self._dtype.itemsize)

    def put_flat(self, start: int, part: np.ndarray) -> None:
        """Fill consecutive elements.

        Args:
            start: Index of the first element, in C order.
            part: The elements, 1-D.

        Raises:
            OSError: The file cannot be written.
        """
        if self._fd == _NO_FILE:
            self._array.reshape(-1)[start : start + part.size] = part
        else:
            data = np.ascontiguousarray(part).view(np.uint8).data
            _write(self._fd, data, start * self._dtype.itemsize)

    def finish(self) -> np.ndarray:
        """Return the array, which must not be filled further. An array in a file is read-only.

        Raises:
            MemoryError: The file can be neither mapped nor read back.
            OSError: The file cannot be read back.
        """
        if self._fd == _NO_FILE:
            return self._array
        try:
            mapping = SpillFile(self._fd, self._nbytes, access=mmap.ACCESS_READ)
        except OSError:  # a mapping needs address space and a descriptor
            return self._read_back()
        return np.frombuffer(mapping, self._dtype).reshape(self._shape)

    def _read_back(self) -> np.ndarray:
        array = np.empty(self._shape, self._dtype)
        unread_bytes, start = array.reshape(-1).view(np.uint8).data, 0
        while unread_bytes:
            count = os.preadv(self._fd, [unread_bytes[:_MAX_READ]], start)
            unread_bytes, start = unread_bytes[count:], start + count
        return array

    def __del__(self) -> None:
        if getattr(self, "_fd", _NO_FILE) != _NO_FILE:
            os.close(self._fd)


def in_c_order(array: np.ndarray) -> np.ndarray:
    """Return an array in C order: the array itself if it already is, else a copy.

    Args:
        array: Elements of any shape and strides.
    """
    if array.flags.c_contiguous or array.nbytes < SPILL_FROM:
        return np.ascontiguousarray(array)
    builder, pages = ArrayBuilder(array.shape, array.dtype), touched_pages(array)
    memory_order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    for part_slices in _split_into_pieces(array, memory_order):
        part = array[part_slices]
        copied = np.empty(part.shape, array.dtype)
        for span in _split_shape(part.shape, memory_order, _AT_ONCE // array.itemsize):
            copied[span] = part[span]
            if pages is not None:
                pages.count_read(copied[span].size)
        builder.put(part_slices, copied)
    return builder.finish()


def _split_into_pieces(array: np.ndarray, memory_order: Sequence[int]) -> Iterator[Slices]:
    """Split an array along its outermost dimension in memory, so that it is read roughly once from end to end.

    If the pieces would then be written in very short runs, split along the first dimension instead.

    Args:
        array: The array.
        memory_order: Its dimensions, the outermost in memory first.
    """
    max_elements = max(1, _PIECE // array.itemsize)
    first = next(_split_shape(array.shape, memory_order, max_elements))
    has_short_runs = _run_length(array.shape, first) * array.itemsize < _MIN_RUN
    return _split_shape(array.shape, range(array.ndim) if has_short_runs else memory_order, max_elements)


def _split_shape(shape: tuple[int, ...], axes: Sequence[int], limit: int) -> Iterator[Slices]:
    """Split a shape into parts that are small enough, along as few of the given dimensions as needed.

    Args:
        shape: Extents.
        axes: Dimensions, in order of preference.
        limit: Maximum elements of a part.
    """
    steps, part_size = list(shape), prod(shape)
    for axis in axes:
        part_size //= max(shape[axis], 1)  # minimum elements of a part if no further axis is split
        parts = -(-shape[axis] // max(1, limit // max(part_size, 1)))
        # Make the parts equally large, since a small last part would touch as many pages as a large one.
        steps[axis] = max(1, -(-shape[axis] // max(parts, 1)))
        if part_size <= limit:
            break
    starts_by_axis = (range(0, extent, step) for extent, step in zip(shape, steps, strict=True))
    for starts in product(*starts_by_axis):
        ends = (min(start + step, extent) for start, step, extent in zip(starts, steps, shape, strict=True))
        yield tuple(map(slice, starts, ends))


def _run_length(shape: tuple[int, ...], slices: Slices) -> int:
    """Return the number of contiguous elements of a part within an array in C order."""
    run = 1
    for extent, span in zip(reversed(shape), reversed(slices), strict=True):
        run *= span.stop - span.start
        if span.stop - span.start < extent:
            break
    return run


def _run_starts(shape: tuple[int, ...], slices: Slices) -> Iterator[int]:
    """Yield the start of each run of a part within an array in C order, in the order of the part's elements."""
    inner = 0  # number of inner dimensions that a run spans
    for extent, span in zip(reversed(shape), reversed(slices), strict=True):
        inner += 1
        if span.stop - span.start < extent:
            break
    outer = len(shape) - inner
    steps = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    first = sum(span.start * step for span, step in zip(slices, steps, strict=True))
    counts = [
        range(0, (span.stop - span.start) * step, step) for span, step in zip(slices[:outer], steps, strict=False)
    ]
    return (first + sum(offsets) for offsets in product(*counts))


def _create_file(nbytes: int) -> int:
    """Create a file with allocated disk space; `_NO_FILE` if the disk has less than twice the space free."""
    for folder in _temporary_folders():
        with suppress(OSError):
            free = os.statvfs(folder)
            if free.f_bavail * free.f_frsize < 2 * nbytes:
                continue
            with tempfile.TemporaryFile(prefix="qdebug-", dir=folder) as file:
                _reserve(file.fileno(), nbytes)
                return os.dup(file.fileno())
    return _NO_FILE


def _temporary_folders() -> tuple[str, ...]:
    """Return folders for large temporary files. On many systems /tmp is in memory, and /var/tmp is not."""
    usual = tempfile.gettempdir()
    return ("/var/tmp", usual) if usual == "/tmp" else (usual,)  # noqa: S108  files without a name


def _reserve(fd: int, nbytes: int) -> None:
    """Allocate the disk space now, while the array can still be created in memory instead.

    Raises:
        OSError: There is not enough space.
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
