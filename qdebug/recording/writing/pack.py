"""Rewrite a finished recording with compressed payloads: smaller, and still read by plain HDF5 programs."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from h5py import h5z

from qdebug.errors import QdebugError, RecordingError, UsageError
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.recording.format.payload import ZSTD, chunk_shape, chunks_of, compress, zstd_module
from qdebug.recording.format.specification import PARTLY
from qdebug.recording.reading.bad_file import BAD_FILE, damaged
from qdebug.recording.reading.container import Container, Expected, read_payload
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.target import WriterLock, cannot_write, check_ours, check_target, mode_of, take_name, to_disk
from qdebug.recording.writing.hdf5_file import Chunks, PayloadFile, Placed

__all__ = ["CODECS", "Packed", "pack"]

CODECS = {"gzip": h5z.FILTER_DEFLATE, "zstd": ZSTD}
"""Codecs by name: gzip is read by every HDF5 program, zstd needs a package here and a plugin elsewhere."""

_SMALL = 1024
"""Payloads up to this size are left as they are: a chunk index costs more than compression gains."""
_MOST_RATIO = 1000
"""Zeros shrink further than that with zstd, further than a reader believes."""
_MOST_LEVEL = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """What packing came to.

    Args:
        path: The packed file.
        before: Its size in bytes as it was.
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
) -> Packed:
    """Rewrite a recording with compressed payloads, and check every value of the result against its hash.

    Args:
        path: A finished recording.
        out: The file to make; None packs in place.
        codec: One of `CODECS`.
        level: How hard to try, 1 to 9.
        force: Replace `out` if it exists.
        progress: Called with the number of payloads done and their total.

    Raises:
        UsageError: There is no such codec or level.
        MissingExtraError: The codec's package is not installed.
        OutputExistsError: `out` exists and `force` is not set.
        RecordingError: The recording is damaged, or the file cannot be written; then everything is as it was.
    """
    if codec not in CODECS:
        raise UsageError(f"There is no codec {codec!r}; known are {', '.join(CODECS)}.", hint="Use gzip.")
    if not 1 <= level <= _MOST_LEVEL:
        raise UsageError(
            f"There is no level {level}; the levels are 1 to {_MOST_LEVEL}.",
            hint="Give 9 for the smallest file: qdebug file pack FILE --level 9.",
        )
    if codec == "zstd":
        zstd_module()
    target = Path(os.path.realpath(out or path))
    check_target(target, force=force or out is None)
    FileRecording(path).close()  # checks the index, which is believed from here on
    before = path.stat().st_size
    lock = WriterLock(target)
    scratch = target.with_name(target.name + ".packing")
    try:
        check_ours(scratch)
        scratch.unlink(missing_ok=True)
        try:
            _rewrite(path, scratch, CODECS[codec], level, progress, mode=mode_of(target))
            _check(path, scratch)
            take_name(scratch, target)
        except BaseException:
            with contextlib.suppress(OSError):  # what went wrong before is what counts
                scratch.unlink(missing_ok=True)
            raise
    except OSError as exc:
        raise exc if isinstance(exc, QdebugError) else cannot_write(target, exc) from None
    finally:
        lock.release()
    return Packed(path=out or path, before=before, after=target.stat().st_size)


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
        to_disk(file.fd)  # else a power cut could leave what no later run dares to replace
        payloads, placed = list(_payloads(container).values()), []
        for done, expected in enumerate(payloads, start=1):
            placed.append(_add(file, expected, _read(container, expected), codec, level))
            if progress is not None:
                progress(done, len(payloads))
        file.finish(placed, {**container.tables, **container.optional}, complete=container.complete)
        file.close()
    except BaseException:
        file.abandon()
        raise
    finally:
        container.close()


def _read(container: Container, expected: Expected) -> np.ndarray:
    """Read a payload.

    Raises:
        RecordingError: It is damaged.
    """
    try:
        return read_payload(container, expected)
    except BAD_FILE as exc:
        raise damaged(container.path, exc, at=f"payload {expected.number}: ") from None


def _payloads(container: Container) -> dict[int, Expected]:
    """List all payloads, with those of kept elements and their positions."""
    index = container.tables["index"]
    found = [Expected.of_event(row) for row in index[(index["flags"] & PARTLY) == 0]]
    for row in container.optional.get("samples", ()):
        for name, dtype in (("values", LOGICAL_DTYPES[index["dtype"][row["event"]]]), ("positions", "int64")):
            found.append(Expected.of_elements(int(row[name]), dtype, int(row["count"])))
    return {expected.number: expected for expected in sorted(found)}


def _add(file: PayloadFile, expected: Expected, array: np.ndarray, wanted: int, level: int) -> Placed:
    """Write a payload into a file, compressed if that makes it smaller."""
    number, dtype = expected.number, expected.dtype
    if array.nbytes > _SMALL and array.ndim:
        chunk = chunk_shape(array.shape, array.itemsize)
        for codec in dict.fromkeys((wanted, h5z.FILTER_DEFLATE)):
            shuffle = _shuffles(array, chunk, codec, level)
            places, parts = zip(*_cut(array, chunk), strict=True)
            made = [compress(part, codec=codec, shuffle=shuffle, level=level) for part in parts]
            size = sum(map(len, made))
            if array.nbytes <= _MOST_RATIO * size:
                break
        if size < array.nbytes:
            filters = ((h5z.FILTER_SHUFFLE, (array.itemsize,)),) if shuffle else ()
            stored = [(file.write(memoryview(data)), len(data)) for data in made]
            chunks = Chunks(chunk, (*filters, (codec, (level,))), places, stored)
            return Placed(number, dtype, array.shape, None, chunks)
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return Placed(number, dtype, array.shape, file.write(data) if array.nbytes else None)


def _shuffles(array: np.ndarray, chunk: tuple[int, ...], codec: int, level: int) -> bool:
    """Find out on the first chunk whether shuffling helps; it does not for real values on a coarse grid."""
    if array.itemsize == 1:
        return False
    _, first = next(_cut(array, chunk))
    sizes = [len(compress(first, codec=codec, shuffle=shuffle, level=level)) for shuffle in (True, False)]
    return sizes[0] <= sizes[1]


def _cut(array: np.ndarray, chunk: tuple[int, ...]) -> Any:
    """List the chunks of an array, each with its offset and filled up with zeros at the edges."""
    for place in chunks_of(array.shape, chunk):
        part = array[tuple(slice(start, start + size) for start, size in zip(place, chunk, strict=True))]
        if part.shape != chunk:
            whole = np.zeros(chunk, array.dtype)
            whole[tuple(slice(0, size) for size in part.shape)] = part
            part = whole
        yield place, np.ascontiguousarray(part)


def _check(path: Path, scratch: Path) -> None:
    """Read every value of the new file, and compare what both files are."""
    with FileRecording(path) as old, FileRecording(scratch) as new:
        for event in range(new.event_count):
            try:
                new.check_payload(event)
            except RecordingError:
                old.check_payload(event)  # then it is the old one that is damaged
                raise
        if old.content_hash != new.content_hash:
            raise RecordingError(f"{str(path)!r} could not be packed: the result is another recording.")
