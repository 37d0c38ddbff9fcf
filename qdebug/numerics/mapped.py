"""Gives memory back while a tensor that lies in a mapped file is read from end to end."""

from __future__ import annotations

import mmap

import numpy as np

__all__ = ["PassedPages", "TouchedPages", "passed_pages", "touched_pages"]

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
        """Give back what lies before an element, once there is enough of it."""
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
        """Give all back, once enough of it was read; before so many elements more are."""
        self._touched += elements * self._step
        if self._touched >= STRETCH:
            self._mapped.madvise(mmap.MADV_DONTNEED, *self._span)
            self._touched = elements * self._step


def passed_pages(array: np.ndarray) -> PassedPages | None:
    """Give the pages of an array; None if it is small, lies in memory, or the system cannot give pages back.

    Args:
        array: Elements in one piece, in order.
    """
    mapped = _mapped(array)
    return None if mapped is None else PassedPages(mapped, _offset(mapped, array), array.itemsize)


def touched_pages(array: np.ndarray) -> TouchedPages | None:
    """Give the pages of an array that is read in C order; None where `passed_pages` gives none.

    Args:
        array: Elements that lie in another order, without gaps.
    """
    mapped = _mapped(array)
    if mapped is None or any(stride < 0 for stride in array.strides):
        return None
    step = next((stride for stride, size in zip(array.strides[::-1], array.shape[::-1], strict=True) if size > 1), 1)
    return TouchedPages(mapped, _offset(mapped, array), array.nbytes, step)


def _mapped(array: np.ndarray) -> mmap.mmap | None:
    """Give the file that a large array lies in, if its pages can be given back."""
    if array.nbytes <= STRETCH or not hasattr(mmap, "MADV_DONTNEED"):
        return None
    owner: object = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if not isinstance(owner, mmap.mmap) or not memoryview(owner).readonly:
        return None  # what somebody wrote into a private mapping is nowhere else
    return owner


def _offset(mapped: mmap.mmap, array: np.ndarray) -> int:
    return int(array.ctypes.data - np.frombuffer(mapped, np.uint8, count=1).ctypes.data)
