"""Accept nothing in a file but what the layout is made of, and check it before it is opened or read.

HDF5 follows external storage, external links and virtual datasets to other files without asking, and
its own documentation puts hostile files out of scope. So every path component must be a hard link, a
dataset must lie in the file itself, its types must be of fixed size, and what it declares must fit
into the file. Contiguous data is read by us, never by the library. What is refused here is a ValueError;
who opens the file says which file it is.
"""

from __future__ import annotations

import math
import os
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5g, h5t, h5z

from qdebug.store.payload import ZSTD

__all__ = [
    "MAX_CHUNK_BYTES",
    "MAX_RATIO",
    "MAX_ROWS",
    "Extent",
    "check_dataset",
    "check_type",
    "open_checked",
    "open_group",
    "read_bytes",
    "read_text_attribute",
]

MAX_ROWS = 10_000_000
"""Most rows that a table may have."""
MAX_CHUNK_BYTES = 64 << 20
"""Largest chunk of a compressed payload, uncompressed."""
MAX_RATIO = 1100
"""Largest ratio of declared to stored bytes: deflate cannot exceed 1032."""

_FILTERS = {h5z.FILTER_SHUFFLE, h5z.FILTER_DEFLATE, h5z.FILTER_FLETCHER32, ZSTD}
_PLAIN = {h5t.INTEGER, h5t.FLOAT}
_MAX_MEMBERS = 256
_MAX_DEPTH = 4


class Extent:
    """Where a checked dataset lies.

    Args:
        shape: Its shape.
        itemsize: Bytes of an element.
        offset: Byte offset in the file of contiguous data; None if it is chunked or empty.
        chunk: Shape of a chunk; None if it is contiguous.
        filters: Numbers of the filters of a chunk, in the order in which they were applied.
    """

    __slots__ = ("chunk", "filters", "itemsize", "nbytes", "offset", "shape")

    def __init__(
        self,
        shape: tuple[int, ...],
        itemsize: int,
        offset: int | None,
        *,
        chunk: tuple[int, ...] | None = None,
        filters: tuple[int, ...] = (),
    ) -> None:
        self.shape = shape
        self.itemsize = itemsize
        self.offset = offset
        self.chunk = chunk
        self.filters = filters
        self.nbytes = math.prod(shape) * itemsize


def open_group(parent: Any, name: bytes) -> Any:
    """Open a group through a hard link (h5py GroupID).

    Raises:
        ValueError: There is no such group, or it is reached through another kind of link.
    """
    _check_link(parent, name)
    try:
        return h5g.open(parent, name)
    except (OSError, RuntimeError, KeyError, ValueError):
        raise _broken(name, "cannot be opened as a group") from None


def open_checked(parent: Any, name: bytes, *, file_size: int) -> tuple[Any, Extent]:
    """Open a dataset through a hard link and check all of it.

    Args:
        parent: The group that must hold it.
        name: Its name, one path component.
        file_size: Size of the file in bytes.

    Returns:
        The open dataset (h5py DatasetID) and where it lies.

    Raises:
        ValueError: It is missing or is something that a recording never contains.
    """
    _check_link(parent, name)
    try:
        dataset = h5d.open(parent, name)
        return dataset, check_dataset(dataset, name, file_size=file_size)
    except (OSError, RuntimeError, KeyError, TypeError, NotImplementedError):
        raise _broken(name, "cannot be opened as a dataset") from None


def _check_link(parent: Any, name: bytes) -> None:
    try:
        kind = parent.links.get_info(name).type
    except (OSError, RuntimeError, KeyError, ValueError):
        raise ValueError(f"it lacks {_title(name)}") from None
    if kind != h5py.h5l.TYPE_HARD:
        raise _broken(name, "is a soft or external link")


def check_dataset(dataset: Any, name: bytes, *, file_size: int) -> Extent:
    """Check storage, filters, type and size of an open dataset before anything is read of it.

    Raises:
        ValueError: It is something that a recording never contains.
    """
    plist = dataset.get_create_plist()
    layout = plist.get_layout()
    if layout not in (h5d.CONTIGUOUS, h5d.CHUNKED):
        raise _broken(name, "is virtual or compact")
    if plist.get_external_count():
        raise _broken(name, "keeps its data in another file")
    filters = tuple(int(plist.get_filter(number)[0]) for number in range(plist.get_nfilters()))
    if not set(filters) <= _FILTERS or len(set(filters)) < len(filters):
        raise _broken(name, f"needs the HDF5 filters {sorted(set(filters) - _FILTERS) or sorted(filters)}")
    kind = dataset.get_type()
    check_type(kind, name)
    shape = tuple(int(extent) for extent in dataset.shape)
    stored = int(dataset.get_storage_size())
    offset = dataset.get_offset() if layout == h5d.CONTIGUOUS else None
    chunk = tuple(int(size) for size in plist.get_chunk()) if layout == h5d.CHUNKED else None
    extent = Extent(shape, int(kind.get_size()), None if offset is None else int(offset), chunk=chunk, filters=filters)
    if chunk is None:
        missing = extent.nbytes > 0 and (extent.offset is None or stored != extent.nbytes)
        if missing or (extent.offset or 0) + extent.nbytes > file_size:
            raise _broken(name, f"declares {extent.nbytes} bytes that the file does not have")
    elif math.prod(chunk) * extent.itemsize > MAX_CHUNK_BYTES or extent.nbytes > MAX_RATIO * min(stored, file_size):
        raise _broken(name, f"declares {extent.nbytes} bytes out of {stored} stored ones")
    return extent


def check_type(kind: Any, name: bytes, depth: int = 0) -> None:
    """Check that a type is made of integers, floats, enums, arrays and compounds only.

    Raises:
        ValueError: It is not.
    """
    group = kind.get_class()
    if group in _PLAIN:
        return
    if group == h5t.ENUM and kind.get_super().get_class() == h5t.INTEGER:
        return
    if depth < _MAX_DEPTH and group == h5t.COMPOUND and kind.get_nmembers() <= _MAX_MEMBERS:
        for member in range(kind.get_nmembers()):
            check_type(kind.get_member_type(member), name, depth + 1)
        return
    if depth < _MAX_DEPTH and group == h5t.ARRAY:
        check_type(kind.get_super(), name, depth + 1)
        return
    raise _broken(name, "has elements of variable length or of a foreign type")


def read_bytes(fd: int, offset: int, out: np.ndarray) -> None:
    """Fill an array with the bytes at an offset of a file.

    Args:
        fd: Open file.
        offset: Where to begin.
        out: Contiguous uint8 array to fill.

    Raises:
        ValueError: The file ends before.
    """
    view = out.data
    while view:
        count = os.preadv(fd, [view[: 1 << 30]], offset)
        if count == 0:
            raise ValueError("it ends too early")
        view = view[count:]
        offset += count


def read_text_attribute(holder: Any, name: bytes) -> str | None:
    """Read a scalar attribute of fixed-length text; None if there is none, or it is anything else."""
    if not h5py.h5a.exists(holder, name):
        return None
    attribute = h5py.h5a.open(holder, name)
    kind = attribute.get_type()
    if kind.get_class() != h5t.STRING or kind.is_variable_str() or attribute.shape != () or kind.get_size() > 256:
        return None
    out = np.empty((), dtype=f"S{kind.get_size()}")
    attribute.read(out)
    return bytes(out[()]).decode("utf-8", "replace")


def _broken(name: bytes, what: str) -> ValueError:
    return ValueError(f"{_title(name)} {what}, which no recording has")


def _title(name: bytes) -> str:
    return "/" + name.decode("ascii", "replace")
