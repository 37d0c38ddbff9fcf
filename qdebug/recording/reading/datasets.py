"""Find payloads through the datasets of format 2, one per tensor, as other programs do.

This is needed for files that another program, such as h5repack, has rewritten, since their table of payloads is
outdated. It also verifies that other programs see the same values as this package.
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
from qdebug.recording.reading.payloads import Expected, Location, Payloads, check_extent, check_room, find_chunk

__all__ = ["DatasetPayloads"]


_Chunks = Mapping[tuple[int, ...], tuple[int, int, int]]
"""Offset, size and missing filters of each chunk, by its coordinates."""


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
        self.fd, self.size, self.room = payloads.fd, payloads.size, payloads.room
        self._index, self._samples = index, samples
        self._names, self._constant, self._steps = names, constant, steps
        self._groups: dict[tuple[bytes, ...], Any] = {}
        self._last: tuple[tuple[bytes, ...], tuple[Extent, _Chunks]] | None = None
        self._users: Mapping[int, tuple[int, str]] | None = None

    def __len__(self) -> int:
        return self._count

    def locate(self, expected: Expected) -> Location:
        """Find a payload; errors as in `Payloads.locate`."""
        if self._users is None:
            self._users = self._find_users()
        if expected.number not in self._users:
            raise ValueError("it is missing")
        return self.locate_event(*self._users[expected.number], expected)

    def _find_users(self) -> dict[int, tuple[int, str]]:
        """Return for each payload an event that uses it, and its role in the event."""
        users: dict[int, tuple[int, str]] = {}
        for number, row in enumerate(self._samples if self._samples is not None else ()):
            for what in ("values", "positions"):
                users[int(row[what])] = number, what
        users.update((number, (event, "")) for event, number in enumerate(self._index["payload"].tolist()))
        users.pop(NO_PAYLOAD, None)
        return users

    def locate_event(self, row: int, what: str, expected: Expected) -> Location:
        """Find the values of an event, or its recorded elements.

        Args:
            row: Row of the table of events, or of the table of recorded elements.
            what: "", or "values" or "positions" of recorded elements.
            expected: Expected facts, from the index.

        Raises:
            ValueError: They are missing, contradict the index, or are something that a recording never contains.
        """
        event = self._index[self._samples["event"][row] if what and self._samples is not None else row]
        tensor, place = int(event["tensor"]), (int(event["sample"]), int(event["step"]))
        link, key = link_of(self._names[tensor]), place_key(*place, steps=self._steps)
        lead: tuple[int, ...] = ()
        path: tuple[bytes, ...]
        if what:
            path = ELEMENTS.encode(), link, key + b"." + what.encode()
        elif self._constant[tensor]:
            path = CONSTANTS.encode(), link
        else:
            path = TENSORS.encode(), link
            lead = place if self._steps > 1 else place[:1]
        if not what and is_group(self._group(path[:-1]), link):
            path, lead = (*path, key), ()
        extent, chunks = self._open(path)
        return self._location(extent, chunks, lead, expected)

    def _group(self, path: tuple[bytes, ...]) -> Any:
        if path not in self._groups:
            parent = self._group(path[:-1]) if len(path) > 1 else self._file
            self._groups[path] = open_group(parent, path[-1])
        return self._groups[path]

    def _open(self, path: tuple[bytes, ...]) -> tuple[Extent, _Chunks]:
        """Open a dataset, or return the last one if it is the same."""
        last = self._last
        if last is None or last[0] != path:
            dataset, extent = open_dataset(self._group(path[:-1]), path[-1], file_size=self.size, sparse=True)
            last = self._last = path, (extent, {} if extent.chunk is None else chunk_table(dataset))
        return last[1]

    def agrees(self, payloads: Payloads, row: int, what: str, expected: Expected) -> bool:
        """Return whether the dataset of an event shows the same payload as the file's table.

        Args:
            payloads: The payloads according to the table.
            row: As for `locate_event`.
            what: As for `locate_event`.
            expected: Expected facts, from the index.

        Raises:
            ValueError: It is missing, or is something that a recording never contains.
        """
        shown, placed = self.locate_event(row, what, expected), payloads.locate(expected)
        if shown.shape != placed.shape:
            return False
        if shown.find is None:
            return shown.offset == placed.offset and placed.find is None
        chunk, find = shown.chunk or (), shown.find
        if placed.find is None:  # a large payload is seen as several chunks
            strides = [math.prod(shown.shape[axis + 1 :]) * shown.itemsize for axis in range(len(shown.shape))]
            starts = ((place, sum(map(mul, place, strides))) for place in chunks_of(shown.shape, chunk))
            return not shown.filters and all(find(place)[0] == (placed.offset or 0) + start for place, start in starts)
        if (shown.chunk, shown.filters, math.prod(shown.outer)) != (placed.chunk, placed.filters, 1):
            return False
        return all(find(place) == placed.find(place) for place in chunks_of(shown.shape, chunk))

    def _location(self, extent: Extent, chunks: _Chunks, lead: tuple[int, ...], expected: Expected) -> Location:
        """Return the location of the values at leading coordinates of a dataset."""
        axes, shape, itemsize = extent.shape[: len(lead)], extent.shape[len(lead) :], extent.itemsize
        check_extent(extent, shape, expected)
        if any(at >= size for at, size in zip(lead, axes, strict=True)):
            raise ValueError(f"its shape {extent.shape} differs from the index")
        nbytes = expected.nbytes
        check_room(nbytes, self.room)
        if nbytes == 0:
            return Location(shape, itemsize)
        if extent.chunk is None:
            before = int(np.ravel_multi_index(lead, axes)) if lead else 0
            return Location(shape, itemsize, (extent.offset or 0) + before * nbytes)
        nbytes_of_chunk = math.prod(extent.chunk) * itemsize
        if extent.filters and nbytes_of_chunk > MAX_CHUNK_BYTES:
            raise ValueError(f"it has chunks of {nbytes_of_chunk} bytes")
        outer, chunk = extent.chunk[: len(lead)], extent.chunk[len(lead) :]
        inside = tuple(at % size for at, size in zip(lead, outer, strict=True))
        start = tuple(at - within for at, within in zip(lead, inside, strict=True))
        find = partial(_find, chunks, start)
        stored = [find(at) for at in chunks_of(shape, chunk)]
        if any(offset + size > self.size for offset, size, _ in stored):
            raise ValueError("its chunks lie outside the file")
        if not extent.filters and any(size != nbytes_of_chunk for _, size, _ in stored):
            raise ValueError("a chunk is damaged")
        if not extent.filters and chunk == shape and math.prod(outer) == 1:
            return Location(shape, itemsize, stored[0][0])
        if nbytes > MAX_RATIO * sum(size for _, size, _ in stored):
            raise ValueError(f"it declares {nbytes} bytes, but stores {sum(size for _, size, _ in stored)} bytes")
        return Location(shape, itemsize, None, chunk, extent.filters, find, outer, inside)


def _find(
    chunks: Mapping[tuple[int, ...], tuple[int, int, int]], start: tuple[int, ...], place: tuple[int, ...]
) -> tuple[int, int, int]:
    return find_chunk(chunks, (*start, *place))
