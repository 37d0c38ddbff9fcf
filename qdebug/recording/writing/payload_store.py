"""Payloads of a recording that is being written. Equal payloads are stored once; hashes are computed while writing.

When `store` returns, the operating system has received the bytes. Until the file is finished, only the journal lists
their offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import xxhash

from qdebug.model.dtypes import logical_dtype
from qdebug.recording.format.payload import StoredArray, from_physical, payload_hash, read_bytes, to_bytes
from qdebug.recording.format.specification import Flag, physical_dtype
from qdebug.recording.writing.datasets import PlacedPayload
from qdebug.recording.writing.hdf5_file import PayloadFile

__all__ = ["PayloadStore"]

_NO_FLAGS = Flag(0)
_HEAD_BYTES = 1 << 12
"""Number of leading bytes whose hash shows that a payload cannot equal any stored one."""


class PayloadStore:
    """The payloads of one file.

    Args:
        path: The HDF5 file to make.
        mode: Its permissions; None for the default ones.

    Raises:
        OSError: It cannot be created.
    """

    def __init__(self, path: Path, *, mode: int | None = None) -> None:
        self.file = PayloadFile(path, mode=mode)
        self._stored_payloads: dict[tuple[bytes, str, tuple[int, ...]], tuple[int, int | None]] = {}
        """Number and offset by digest, dtype and shape, in plain tuples, which the garbage collector need not visit."""
        self._heads: set[tuple[bytes, str, tuple[int, ...]]] = set()

    def store(self, array: np.ndarray, logical: str) -> tuple[StoredArray, Flag]:
        """Write an array's values, unless equal values are already stored.

        Args:
            array: The values.
            logical: Their logical dtype.

        Returns:
            Their location, and `Flag.DEDUP` if they were already stored.

        Raises:
            OSError: The disk is full or failed.
        """
        data, shape = to_bytes(array, logical), array.shape
        is_small = len(data) <= _HEAD_BYTES
        head_key = (payload_hash(data if is_small else data[:_HEAD_BYTES]), logical, shape)
        if is_small or head_key in self._heads:
            key = head_key if is_small else (payload_hash(data), logical, shape)
            if (stored := self._stored_payloads.get(key)) is not None:
                return StoredArray(*stored, key[0], logical, shape), Flag.DEDUP
            offset = self.file.write(data) if len(data) else None
        else:  # no equal payload can exist, so it is hashed while it is written
            hasher = xxhash.xxh3_128()
            offset = self.file.write(data, hasher)
            key = hasher.digest(), logical, shape
            self._heads.add(head_key)
        number = len(self._stored_payloads)
        self._stored_payloads[key] = number, offset
        return StoredArray(number, offset, key[0], logical, shape), _NO_FLAGS

    def finish(self, tables: Mapping[str, np.ndarray], *, is_complete: bool) -> None:
        """Write the metadata. Arguments and errors as for `PayloadFile.finish`."""
        payloads = (
            PlacedPayload(number, dtype, shape, offset)
            for (_, dtype, shape), (number, offset) in self._stored_payloads.items()
        )
        self.file.finish(payloads, tables, is_complete=is_complete)

    def read_back(self, stored: StoredArray) -> np.ndarray:
        """Return the values of a stored array.

        Raises:
            OSError, ValueError: They cannot be read.
        """
        values = np.empty(stored.shape, dtype=physical_dtype(stored.dtype))
        if stored.offset is not None:
            read_bytes(self.file.fd, stored.offset, values.reshape(-1).view(np.uint8))
        return from_physical(values, stored.dtype).view(logical_dtype(stored.dtype))
