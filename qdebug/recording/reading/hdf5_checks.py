"""Open a recording's HDF5 file with the library, safely even if the file is hostile.

HDF5 follows external storage, external links and virtual datasets to other files without asking, and its own
documentation excludes hostile files. So every path component must be a hard link, a dataset must be stored in the file
itself, its types must have a fixed size, and its declared size must be plausible for the file. All of this is checked
before an object is opened or read. Refusals are ValueErrors.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from h5py import h5a, h5d, h5f, h5fd, h5g, h5p, h5t, h5z

from qdebug.recording.format.payload import ZSTD

__all__ = [
    "MAX_CHUNK_BYTES",
    "MAX_RATIO",
    "Extent",
    "chunk_table",
    "is_group",
    "open_dataset",
    "open_group",
    "open_hdf5",
    "read_integer_attribute",
    "read_text_attribute",
    "refused_filters",
]

MAX_CHUNK_BYTES = 64 << 20
"""Maximum size of a chunk of a compressed payload after decompression."""
MAX_RATIO = 1100
"""Maximum ratio of declared to stored bytes: deflate cannot exceed 1032."""

_ALLOWED_FILTERS = {h5z.FILTER_SHUFFLE, h5z.FILTER_DEFLATE, h5z.FILTER_FLETCHER32, ZSTD}
_SCALAR_CLASSES = {h5t.INTEGER, h5t.FLOAT}
_MAX_MEMBERS = 256
_MAX_DEPTH = 4


class Extent(NamedTuple):
    """The checked extent and storage of a dataset.

    Args:
        shape: Its shape.
        dtype: Type of its elements in numpy.
        itemsize: Bytes of an element in the file.
        offset: File offset of contiguous data; None if the data is chunked or empty.
        chunk: Shape of a chunk; None if it is contiguous.
        filters: Numbers of the filters of a chunk, in the order in which they were applied.
        kind: The type (h5py TypeID).
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    itemsize: int
    offset: int | None
    chunk: tuple[int, ...] | None = None
    filters: tuple[int, ...] = ()
    kind: Any = None

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.itemsize


def open_hdf5(path: Path, fd: int | Any) -> Any:
    """Open a file with h5py's access properties, because a process can open a file twice only with equal properties.

    If the file cannot be locked, it is opened without a lock, since a finished file is never written to.

    Args:
        path: The file.
        fd: Its descriptor, or an object that reads it like a file.
    """
    if not isinstance(fd, int):
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_fileobj_driver(h5fd.fileobj_driver, fd)
        return h5f.open(repr(fd).encode(), h5f.ACC_RDONLY, fapl=access)
    descriptor_path = f"/proc/self/fd/{fd}"  # this name refers to the opened file, even if its path was replaced
    name = os.fsencode(descriptor_path if os.path.exists(descriptor_path) else path)  # noqa: PTH110  creating a Path takes as long as the check
    try:
        file = h5f.open(name, h5f.ACC_RDONLY, fapl=_file_access(locking=True))
    except OSError:
        if not path.exists() or not os.path.samestat(os.fstat(fd), path.stat()):
            raise ValueError("it was replaced while it was being opened") from None
        file = h5f.open(name, h5f.ACC_RDONLY, fapl=_file_access(locking=False))
    if not os.path.samestat(os.fstat(fd), os.fstat(int(file.get_vfd_handle()))):
        file.close()
        raise ValueError("it was replaced while it was being opened")
    return file


@cache
def _file_access(*, locking: bool) -> Any:
    """Return the access properties for opening files (h5py PropFAID), with or without a lock."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fapl_sec2()
    if not locking:
        access.set_file_locking(False, True)  # noqa: FBT003  h5py takes them by position
    return access


_TYPES: dict[bytes, np.dtype[Any]] = {}
"""Checked numpy types by their encoded form. Most files share them."""
_MOST_TYPES = 256


def open_group(parent: Any, name: bytes) -> Any:
    """Open a group through a hard link (h5py GroupID).

    Raises:
        ValueError: The group does not exist, or is not reached through a hard link.
    """
    _check_link(parent, name)
    try:
        return h5g.open(parent, name)
    except (OSError, RuntimeError, KeyError, ValueError):
        raise _dataset_error(name, "cannot be opened as a group") from None


def is_group(parent: Any, name: bytes) -> bool:
    """Return whether a hard link leads to a group.

    Raises:
        ValueError: The link does not exist, or is not a hard link.
    """
    _check_link(parent, name)
    return bool(h5g.get_objinfo(parent, name).type == h5g.GROUP)


def open_dataset(parent: Any, name: bytes, *, file_size: int, is_sparse: bool = False) -> tuple[Any, Extent]:
    """Open a dataset through a hard link, and check it completely.

    Args:
        parent: The group that must hold it.
        name: Its name, one path component.
        file_size: Size of the file in bytes.
        is_sparse: Whether chunks may be missing. If so, the declared size is not compared with the stored size.

    Returns:
        The open dataset (h5py DatasetID) and its extent.

    Raises:
        ValueError: It is missing, or is not stored as in a recording.
    """
    _check_link(parent, name)
    try:
        dataset = h5d.open(parent, name)
    except (OSError, RuntimeError, KeyError, TypeError, NotImplementedError):
        raise _dataset_error(name, "cannot be opened as a dataset") from None
    try:
        return dataset, _check_dataset(dataset, name, file_size=file_size, is_sparse=is_sparse)
    except (OSError, RuntimeError):
        raise _dataset_error(name, "cannot be opened as a dataset") from None


def chunk_table(dataset: Any) -> dict[tuple[int, ...], tuple[int, int, int]]:
    """Return each chunk's offset in the file, its size, and the filters that it lacks."""
    chunks: dict[tuple[int, ...], tuple[int, int, int]] = {}

    def add(info: Any) -> None:
        chunks[tuple(info.chunk_offset)] = int(info.byte_offset), int(info.size), int(info.filter_mask)

    if hasattr(dataset, "chunk_iter"):
        dataset.chunk_iter(add)
    else:  # built with an HDF5 before 1.12.3: each look-up scans all chunks
        for number in range(dataset.get_num_chunks()):
            add(dataset.get_chunk_info(number))
    return chunks


def _check_link(parent: Any, name: bytes) -> None:
    try:
        kind = parent.links.get_info(name).type
    except (OSError, RuntimeError, KeyError, ValueError):
        raise ValueError(f"it lacks {_format_path(name)}") from None
    if kind != h5py.h5l.TYPE_HARD:
        raise _dataset_error(name, "is a soft or external link")


def _check_dataset(dataset: Any, name: bytes, *, file_size: int, is_sparse: bool) -> Extent:
    """Check the storage, filters, type and size of an open dataset before reading any of it.

    Raises:
        ValueError: It is not stored as in a recording.
    """
    offset = dataset.get_offset()  # only contiguous data in this file has an offset
    chunk, filters = (None, ()) if offset is not None else _check_storage(dataset, name)
    kind = dataset.get_type()
    extent = Extent(
        shape=tuple(map(int, dataset.shape)),
        dtype=_check_type(kind, name),
        itemsize=int(kind.get_size()),
        offset=None if offset is None else int(offset),
        chunk=chunk,
        filters=filters,
        kind=kind,
    )
    stored_bytes = int(dataset.get_storage_size())
    if chunk is None:
        is_missing = extent.nbytes > 0 and (extent.offset is None or stored_bytes != extent.nbytes)
        if is_missing or (extent.offset or 0) + extent.nbytes > file_size:
            raise _dataset_error(name, f"declares {extent.nbytes} bytes, more than the file has")
    elif is_sparse:
        return extent
    elif math.prod(chunk) * extent.itemsize > MAX_CHUNK_BYTES or extent.nbytes > MAX_RATIO * min(
        stored_bytes, file_size
    ):
        raise _dataset_error(name, f"declares {extent.nbytes} bytes, but stores {stored_bytes} bytes")
    return extent


def _check_storage(dataset: Any, name: bytes) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """Check where and how the values of a dataset are stored. Return the shape of a chunk, and its filters.

    Raises:
        ValueError: They are in a different file, or stored in a form that a recording never uses.
    """
    plist = dataset.get_create_plist()
    layout = plist.get_layout()
    if layout not in (h5d.CONTIGUOUS, h5d.CHUNKED):
        raise _dataset_error(name, "is virtual or compact")
    if plist.get_external_count():
        raise _dataset_error(name, "stores its data in another file")
    filters = tuple(int(plist.get_filter(number)[0]) for number in range(plist.get_nfilters()))
    if refused_numbers := refused_filters(filters):
        raise _dataset_error(name, f"needs the HDF5 filters {refused_numbers}")
    return (tuple(map(int, plist.get_chunk())) if layout == h5d.CHUNKED else None), filters


def refused_filters(filters: Sequence[int]) -> list[int]:
    """Return the filters that a recording never uses; all filters if one is repeated."""
    return sorted(set(filters) - _ALLOWED_FILTERS) or (sorted(filters) if len(set(filters)) < len(filters) else [])


def _check_type(kind: Any, name: bytes) -> np.dtype[Any]:
    """Return a type as a numpy dtype. Each type is checked only once.

    Raises:
        ValueError: It contains a type other than integers, floats, enums, arrays and compounds.
    """
    encoded_type = kind.encode()
    dtype = _TYPES.get(encoded_type)
    if dtype is None:
        _check_members(kind, name)
        try:
            dtype = kind.dtype
        except (TypeError, NotImplementedError):  # numpy has no such type
            raise _dataset_error(name, "has elements of an unexpected type") from None
        if len(_TYPES) < _MOST_TYPES:
            _TYPES[encoded_type] = dtype
    return dtype


def _check_members(kind: Any, name: bytes, depth: int = 0) -> None:
    """Check that a type consists only of integers, floats, enums, arrays and compounds.

    Raises:
        ValueError: It contains another type.
    """
    group = kind.get_class()
    if group in _SCALAR_CLASSES:
        return
    if group == h5t.ENUM and kind.get_super().get_class() == h5t.INTEGER:
        return
    if depth < _MAX_DEPTH and group == h5t.COMPOUND and kind.get_nmembers() <= _MAX_MEMBERS:
        for member in range(kind.get_nmembers()):
            _check_members(kind.get_member_type(member), name, depth + 1)
        return
    if depth < _MAX_DEPTH and group == h5t.ARRAY:
        _check_members(kind.get_super(), name, depth + 1)
        return
    raise _dataset_error(name, "has elements of variable length or of an unexpected type")


def read_text_attribute(holder: Any, name: bytes) -> str | None:
    """Read a scalar attribute of fixed-length text; None if it is missing or something else."""
    if not h5a.exists(holder, name):
        return None
    attribute = h5a.open(holder, name)
    kind = attribute.get_type()
    size = kind.get_size()
    if kind.get_class() != h5t.STRING or kind.is_variable_str() or attribute.shape != () or size > 256:
        return None
    buffer = np.zeros(size, np.uint8)
    attribute.read(buffer, mtype=kind)
    return buffer.tobytes().rstrip(b"\0").decode("utf-8", "replace")


def read_integer_attribute(holder: Any, name: bytes) -> int:
    """Read a scalar attribute that is an integer.

    Raises:
        ValueError: The attribute is missing or is not an integer.
    """
    try:
        attribute = h5a.open(holder, name)
    except KeyError:
        raise ValueError(f"it lacks the attribute {name.decode()}") from None
    if attribute.get_type().get_class() != h5t.INTEGER or attribute.shape != ():
        raise ValueError(f"its attribute {name.decode()} is not an integer")
    value = np.zeros((), dtype=np.int64)
    attribute.read(value, mtype=h5t.NATIVE_INT64)
    return int(value)


def _dataset_error(name: bytes, fault: str) -> ValueError:
    return ValueError(f"{_format_path(name)} {fault}, which is not allowed in a recording")


def _format_path(name: bytes) -> str:
    return "/" + name.decode("ascii", "replace")
