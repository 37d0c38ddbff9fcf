"""Find payloads through the datasets of format 2, one per tensor, as other programs do.

This is needed for files that another program, such as h5repack, has rewritten, since their table of payloads is then
invalid. It is also used to verify that other programs see the same values as this package.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from operator import mul
from typing import Any

import numpy as np

from qdebug.recording.format.link_names import link_of
from qdebug.recording.format.payload import chunks_of
from qdebug.recording.format.specification import (
    CONSTANTS,
    ELEMENTS,
    NO_PAYLOAD,
    TENSORS,
    place_key,
)
from qdebug.recording.reading.hdf5_checks import (
    MAX_CHUNK_BYTES,
    MAX_RATIO,
    Extent,
    chunk_table,
    is_group,
    open_dataset,
    open_group,
)
from qdebug.recording.reading.payloads import (
    ExpectedPayload,
    Location,
    Payloads,
    check_declared_size,
    check_extent,
    find_chunk,
)

__all__ = ["DatasetPayloads"]


_Chunks = Mapping[tuple[int, ...], tuple[int, int, int]]
"""Offset, size and missing filters of each chunk, by the coordinates of its first element."""


class DatasetPayloads:
    """The payloads of a file of format 2, found through its datasets.

    Args:
        file: The file (h5py FileID).
        payloads: Its payloads according to its own table.
        index: The table of events, checked.
        samples: The table of kept elements, if the file has one.
        names: The names of tensors by row.
        constant: For each row of /tensors, whether it is a constant, as bytes.
        steps: Number of steps of a sample.
    """

    def __init__(
        self,
        file: Any,
        payloads: Payloads,
        index: np.ndarray,
        samples: np.ndarray | None,
        *,
        names: Sequence[str],
        constant: bytes,
        steps: int,
    ) -> None:
        self._file, self._count = file, len(payloads)
        self.fd, self.size, self.disk_bytes = payloads.fd, payloads.size, payloads.disk_bytes
        self._index, self._samples = index, samples
        self._names, self._constant, self._steps = names, constant, steps
        self._groups: dict[tuple[bytes, ...], Any] = {}
        self._latest_dataset: tuple[tuple[bytes, ...], tuple[Extent, _Chunks]] | None = None
        self._event_of_payload: Mapping[int, tuple[int, str]] | None = None

    def __len__(self) -> int:
        return self._count

    def locate(self, expected: ExpectedPayload) -> Location:
        """Find a payload. Errors as for `Payloads.locate`."""
        if self._event_of_payload is None:
            self._event_of_payload = self._map_events()
        if expected.number not in self._event_of_payload:
            raise ValueError("it is missing")
        return self.locate_event(*self._event_of_payload[expected.number], expected)

    def _map_events(self) -> dict[int, tuple[int, str]]:
        """Return for each payload an event that uses it, and its role in the event."""
        event_of_payload: dict[int, tuple[int, str]] = {}
        for number, row in enumerate(self._samples if self._samples is not None else ()):
            for part_name in ("values", "positions"):
                event_of_payload[int(row[part_name])] = number, part_name
        event_of_payload.update((number, (event, "")) for event, number in enumerate(self._index["payload"].tolist()))
        event_of_payload.pop(NO_PAYLOAD, None)
        return event_of_payload

    def locate_event(self, row: int, part_name: str, expected: ExpectedPayload) -> Location:
        """Find the values of an event, or its recorded elements.

        Args:
            row: Row of the table of events, or of the table of recorded elements.
            part_name: "", or "values" or "positions" of recorded elements.
            expected: Expected facts, from the index.

        Raises:
            ValueError: They are missing, contradict the index, or are not stored as in a recording.
        """
        event = self._index[self._samples["event"][row] if part_name and self._samples is not None else row]
        tensor, place = int(event["tensor"]), (int(event["sample"]), int(event["step"]))
        link, key = link_of(self._names[tensor]), place_key(*place, steps=self._steps)
        leading_index: tuple[int, ...] = ()
        path: tuple[bytes, ...]
        if part_name:
            path = ELEMENTS.encode(), link, key + b"." + part_name.encode()
        elif self._constant[tensor]:
            path = CONSTANTS.encode(), link
        else:
            path = TENSORS.encode(), link
            leading_index = place if self._steps > 1 else place[:1]
        if not part_name and is_group(self._open_group_at(path[:-1]), link):
            path, leading_index = (*path, key), ()
        extent, chunks = self._open_dataset(path)
        return self._locate_in_dataset(extent, chunks, leading_index, expected)

    def _open_group_at(self, path: tuple[bytes, ...]) -> Any:
        if path not in self._groups:
            parent = self._open_group_at(path[:-1]) if len(path) > 1 else self._file
            self._groups[path] = open_group(parent, path[-1])
        return self._groups[path]

    def _open_dataset(self, path: tuple[bytes, ...]) -> tuple[Extent, _Chunks]:
        """Open a dataset, unless it is the one that was opened last."""
        latest_dataset = self._latest_dataset
        if latest_dataset is None or latest_dataset[0] != path:
            dataset, extent = open_dataset(
                self._open_group_at(path[:-1]), path[-1], file_size=self.size, is_sparse=True
            )
            latest_dataset = self._latest_dataset = path, (extent, {} if extent.chunk is None else chunk_table(dataset))
        return latest_dataset[1]

    def is_same_payload(self, payloads: Payloads, row: int, part_name: str, expected: ExpectedPayload) -> bool:
        """Return whether the dataset of an event refers to the same payload as the file's table.

        Args:
            payloads: The payloads according to the table.
            row: As for `locate_event`.
            part_name: As for `locate_event`.
            expected: Expected facts, from the index.

        Raises:
            ValueError: It is missing, or is not stored as in a recording.
        """
        in_dataset, in_table = self.locate_event(row, part_name, expected), payloads.locate(expected)
        if in_dataset.shape != in_table.shape:
            return False
        if in_dataset.find_chunk is None:
            return in_dataset.offset == in_table.offset and in_table.find_chunk is None
        chunk, find = in_dataset.chunk or (), in_dataset.find_chunk
        if in_table.find_chunk is None:  # datasets describe a large payload as several chunks
            strides = [
                math.prod(in_dataset.shape[axis + 1 :]) * in_dataset.itemsize for axis in range(len(in_dataset.shape))
            ]
            starts = ((position, sum(map(mul, position, strides))) for position in chunks_of(in_dataset.shape, chunk))
            return not in_dataset.filters and all(
                find(position)[0] == (in_table.offset or 0) + start for position, start in starts
            )
        if (in_dataset.chunk, in_dataset.filters, math.prod(in_dataset.leading_chunk)) != (
            in_table.chunk,
            in_table.filters,
            1,
        ):
            return False
        return all(find(position) == in_table.find_chunk(position) for position in chunks_of(in_dataset.shape, chunk))

    def _locate_in_dataset(
        self, extent: Extent, chunks: _Chunks, leading_index: tuple[int, ...], expected: ExpectedPayload
    ) -> Location:
        """Return the location of the values at the given leading coordinates of a dataset."""
        axes, shape, itemsize = extent.shape[: len(leading_index)], extent.shape[len(leading_index) :], extent.itemsize
        check_extent(extent, shape, expected)
        if any(position >= size for position, size in zip(leading_index, axes, strict=True)):
            raise ValueError(f"its shape {extent.shape} differs from the index")
        nbytes = expected.nbytes
        check_declared_size(nbytes, self.disk_bytes)
        if nbytes == 0:
            return Location(shape, itemsize)
        if extent.chunk is None:
            arrays_before = int(np.ravel_multi_index(leading_index, axes)) if leading_index else 0
            return Location(shape, itemsize, (extent.offset or 0) + arrays_before * nbytes)
        nbytes_of_chunk = math.prod(extent.chunk) * itemsize
        if extent.filters and nbytes_of_chunk > MAX_CHUNK_BYTES:
            raise ValueError(f"it has chunks of {nbytes_of_chunk} bytes")
        leading_chunk, chunk = extent.chunk[: len(leading_index)], extent.chunk[len(leading_index) :]
        index_in_chunk = tuple(position % size for position, size in zip(leading_index, leading_chunk, strict=True))
        start = tuple(
            position - offset_in_chunk for position, offset_in_chunk in zip(leading_index, index_in_chunk, strict=True)
        )
        find_stored_chunk = partial(_find_chunk_at, chunks, start)
        stored_chunks = [find_stored_chunk(position) for position in chunks_of(shape, chunk)]
        if any(file_offset + size > self.size for file_offset, size, _ in stored_chunks):
            raise ValueError("its chunks lie outside the file")
        if not extent.filters and any(size != nbytes_of_chunk for _, size, _ in stored_chunks):
            raise ValueError("a chunk is damaged")
        if not extent.filters and chunk == shape and math.prod(leading_chunk) == 1:
            return Location(shape, itemsize, stored_chunks[0][0])
        if nbytes > MAX_RATIO * sum(size for _, size, _ in stored_chunks):
            raise ValueError(
                f"it declares {nbytes} bytes, but stores {sum(size for _, size, _ in stored_chunks)} bytes"
            )
        return Location(shape, itemsize, None, chunk, extent.filters, find_stored_chunk, leading_chunk, index_in_chunk)


def _find_chunk_at(
    chunks: Mapping[tuple[int, ...], tuple[int, int, int]], leading: tuple[int, ...], position: tuple[int, ...]
) -> tuple[int, int, int]:
    return find_chunk(chunks, (*leading, *position))
