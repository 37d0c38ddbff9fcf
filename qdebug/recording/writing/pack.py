"""Rewrite a finished recording with compressed payloads: smaller, and still readable by ordinary HDF5 programs."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from h5py import h5z

from qdebug.errors import QdebugError, RecordingError, UsageError
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.recording.format.payload import ZSTD, chunk_shape, chunks_of, compress, zstd_module
from qdebug.recording.format.specification import INDEX_DIMS, PARTIAL_FLAGS
from qdebug.recording.reading.bad_file import BAD_FILE_ERRORS, damaged_file_error
from qdebug.recording.reading.container import Container
from qdebug.recording.reading.payloads import ExpectedPayload, read_payload
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.remote_url import check_local
from qdebug.recording.target import (
    WriterLock,
    cannot_write_error,
    check_recorder_file,
    check_target,
    mode_of,
    rename_durably,
    sync_file,
)
from qdebug.recording.writing.datasets import Chunks, PlacedPayload
from qdebug.recording.writing.hdf5_file import PayloadFile

__all__ = ["CODECS", "PackResult", "pack"]

CODECS = {"gzip": h5z.FILTER_DEFLATE, "zstd": ZSTD}
"""Codecs by name. Every HDF5 program reads gzip; zstd needs a package here and a plugin elsewhere."""

_MIN_BYTES = 1024
"""Payloads up to this size stay uncompressed: a chunk index costs more than compression gains."""
_MOST_RATIO = 1000
"""Maximum compression ratio. With zstd, zeros may exceed the ratio that a reader accepts."""
_MOST_LEVEL = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class PackResult:
    """The result of packing.

    Args:
        path: The packed file.
        before: Its size in bytes before.
        after: Its size now.
    """

    path: Path
    before: int
    after: int


def pack(
    path: Path,
    out: Path | None = None,
    *,
    codec: str = "gzip",
    level: int = 1,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> PackResult:
    """Rewrite a recording with compressed payloads, and verify every value of the result by its hash.

    Args:
        path: A finished recording.
        out: The file to write; None packs in place.
        codec: One of `CODECS`.
        level: Compression level, 1 to 9.
        force: Replace `out` if it exists.
        progress: Called with the number of packed payloads and their total.

    Raises:
        UsageError: The codec or the level does not exist.
        MissingExtraError: The codec's package is not installed.
        OutputExistsError: `out` exists and `force` is not set.
        RecordingError: The recording is damaged, or the file cannot be written. In that case nothing is changed.
    """
    if codec not in CODECS:
        raise UsageError(f"Unknown codec {codec!r}; known codecs are {', '.join(CODECS)}.", hint="Use gzip.")
    if not 1 <= level <= _MOST_LEVEL:
        raise UsageError(
            f"Invalid level {level}; levels are 1 to {_MOST_LEVEL}.",
            hint="Give 9 for the smallest file: qdebug file pack FILE --level 9.",
        )
    if codec == "zstd":
        zstd_module()
    check_local(path, "pack")
    target = Path(os.path.realpath(out or path))
    check_target(target, force=force or out is None)
    FileRecording(path).close()  # validates the index, which is trusted from here on
    bytes_before = path.stat().st_size
    lock = WriterLock(target)
    scratch = target.with_name(target.name + ".packing")
    try:
        check_recorder_file(scratch)
        scratch.unlink(missing_ok=True)
        try:
            _rewrite(path, scratch, CODECS[codec], level, progress, mode=mode_of(target))
            _compare_files(path, scratch)
            rename_durably(scratch, target)
        except BaseException:
            with contextlib.suppress(OSError):  # the earlier error is the relevant one
                scratch.unlink(missing_ok=True)
            raise
    except OSError as exc:
        raise exc if isinstance(exc, QdebugError) else cannot_write_error(target, exc) from None
    finally:
        lock.release()
    return PackResult(path=out or path, before=bytes_before, after=target.stat().st_size)


def _rewrite(
    path: Path,
    scratch: Path,
    codec: int,
    level: int,
    progress: Callable[[int, int], None] | None,
    *,
    mode: int | None,
) -> None:
    container = Container(path)
    file = PayloadFile(scratch, mode=None if mode is None else mode | stat.S_IRUSR | stat.S_IWUSR)
    try:
        sync_file(file.fd)  # otherwise a power cut could leave a file that later runs refuse to replace
        payloads, placed_payloads = _list_payloads(container), []
        compressions: dict[int, _Compression | None] = {}
        for done_count, (expected, family) in enumerate(payloads, start=1):
            array = _read_payload_of(container, expected)
            if family not in compressions:
                compressions[family] = _choose_compression(array, codec, level)
            placed_payloads.append(_add_payload(file, expected, array, compressions[family], level))
            if progress is not None:
                progress(done_count, len(payloads))
        file.finish(placed_payloads, {**container.tables, **container.optional}, is_complete=container.complete)
        file.close()
    except BaseException:
        file.abandon()
        raise
    finally:
        container.close()


def _read_payload_of(container: Container, expected: ExpectedPayload) -> np.ndarray:
    """Read a payload.

    Raises:
        RecordingError: It is damaged.
    """
    try:
        return read_payload(container.payloads, expected)
    except BAD_FILE_ERRORS as exc:
        raise damaged_file_error(container.path, exc, prefix=f"payload {expected.number}: ") from None


def _list_payloads(container: Container) -> list[tuple[ExpectedPayload, int]]:
    """List all payloads with the number of their family, including recorded elements and positions.

    A family is compressed the same way. Payloads with the same tensor, dtype and shape are a family, since they are
    chunks of one dataset. If a payload belongs to several tensors, their families are one.
    """
    index = container.tables["index"]
    by_number: dict[int, ExpectedPayload] = {}
    families: dict[Any, Any] = {}

    def find_root(member: Any) -> Any:
        while families.setdefault(member, member) != member:
            member = families[member]
        return member

    complete_rows = index[(index["flags"] & PARTIAL_FLAGS) == 0]
    for row, tensor in zip(complete_rows, complete_rows["tensor"].tolist(), strict=True):
        expected = ExpectedPayload.of_event(row)
        by_number[expected.number] = expected
        families[find_root((tensor, expected.dtype, expected.ndim, expected.shape))] = find_root(expected.number)
    for row in container.optional.get("samples", ()):
        for name, dtype in (("values", LOGICAL_DTYPES[index["dtype"][row["event"]]]), ("positions", "int64")):
            expected = ExpectedPayload.of_elements(int(row[name]), dtype, int(row["count"]))
            by_number.setdefault(expected.number, expected)
    return [(expected, find_root(expected.number)) for expected in sorted(by_number.values())]


class _Compression(NamedTuple):
    """The compression of a family of payloads.

    Args:
        chunk: Shape of a chunk.
        use_shuffle: Whether bytes are first sorted by their position within the element.
        codecs: The possible codecs of a chunk, with the requested one first.
    """

    chunk: tuple[int, ...]
    use_shuffle: bool
    codecs: tuple[int, ...]

    def filters(self, itemsize: int, level: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Return the filters of the dataset: number and parameters. Each chunk uses only one of the codecs, or none."""
        shuffle_filter = ((h5z.FILTER_SHUFFLE, (itemsize,)),) if self.use_shuffle else ()
        return (*shuffle_filter, *((codec, (level,)) for codec in self.codecs))

    def mask(self, codec: int | None) -> int:
        """Return a bit mask of the filters that a chunk with the given codec lacks; all filters without a codec."""
        if codec is None:
            return (1 << self.use_shuffle + len(self.codecs)) - 1
        return sum(
            1 << position
            for position, filter_codec in enumerate(self.codecs, start=self.use_shuffle)
            if filter_codec != codec
        )


def _choose_compression(array: np.ndarray, codec: int, level: int) -> _Compression | None:
    """Choose the compression of a family by its first payload; None if compression does not make that smaller."""
    if array.nbytes <= _MIN_BYTES or not array.ndim or array.ndim > INDEX_DIMS:
        return None
    chunk = chunk_shape(array.shape, array.itemsize)
    compression = _Compression(
        chunk, _is_shuffle_better(array, chunk, codec, level), tuple(dict.fromkeys((codec, h5z.FILTER_DEFLATE)))
    )
    return (
        compression
        if sum(len(data) for data, _ in _compress_chunks(array, compression, level)) < array.nbytes
        else None
    )


def _compress_chunks(array: np.ndarray, compression: _Compression, level: int) -> list[tuple[memoryview, int]]:
    """Return the chunks of an array, and the mask of each. A chunk that would grow is stored uncompressed."""
    chunks: list[tuple[memoryview, int]] = []
    for codec in compression.codecs:
        chunks = []
        for _, chunk in _split_into_chunks(array, compression.chunk):
            data = memoryview(compress(chunk, codec=codec, use_shuffle=compression.use_shuffle, level=level))
            is_smaller = len(data) < chunk.nbytes
            raw_bytes = chunk.reshape(-1).view(np.uint8).data
            chunks.append((data, compression.mask(codec)) if is_smaller else (raw_bytes, compression.mask(None)))
        if array.nbytes <= _MOST_RATIO * sum(len(data) for data, _ in chunks):
            break
    return chunks


def _add_payload(
    file: PayloadFile, expected: ExpectedPayload, array: np.ndarray, compression: _Compression | None, level: int
) -> PlacedPayload:
    """Write a payload to a file, compressed like its family."""
    number, dtype = expected.number, expected.dtype
    if compression is None:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        return PlacedPayload(number, dtype, array.shape, file.write(data) if array.nbytes else None)
    stored = [(file.write(data), len(data), mask) for data, mask in _compress_chunks(array, compression, level)]
    return PlacedPayload(
        number, dtype, array.shape, None, Chunks(compression.chunk, compression.filters(array.itemsize, level), stored)
    )


def _is_shuffle_better(array: np.ndarray, chunk: tuple[int, ...], codec: int, level: int) -> bool:
    """Return whether shuffling improves compression, judging by the first chunk.

    It does not for real numbers on a coarse grid.
    """
    if array.itemsize == 1:
        return False
    _, first_chunk = next(_split_into_chunks(array, chunk))
    sizes = [
        len(compress(first_chunk, codec=codec, use_shuffle=use_shuffle, level=level)) for use_shuffle in (True, False)
    ]
    return sizes[0] <= sizes[1]


def _split_into_chunks(array: np.ndarray, chunk: tuple[int, ...]) -> Any:
    """Yield the position of each chunk of an array, and its elements, padded with zeros at the edges."""
    for position in chunks_of(array.shape, chunk):
        chunk_values = array[tuple(slice(start, start + size) for start, size in zip(position, chunk, strict=True))]
        if chunk_values.shape != chunk:
            padded_chunk = np.zeros(chunk, array.dtype)
            padded_chunk[tuple(slice(0, size) for size in chunk_values.shape)] = chunk_values
            chunk_values = padded_chunk
        yield position, np.ascontiguousarray(chunk_values)


def _compare_files(path: Path, scratch: Path) -> None:
    """Verify every value of the new file, and that both files have the same content."""
    with FileRecording(path) as old_recording, FileRecording(scratch) as new_recording:
        for event in range(new_recording.event_count):
            try:
                new_recording.check_payload(event)
            except RecordingError:
                old_recording.check_payload(event)  # raises if the old file is the damaged one
                raise
        if old_recording.content_hash != new_recording.content_hash:
            raise RecordingError(f"{str(path)!r} could not be packed: the result differs from the recording.")
