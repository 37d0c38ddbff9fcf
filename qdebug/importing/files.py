"""The files of a dump: opened one at a time, only inside the folder, and checked against the size that they state."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from qdebug.errors import UsageError
from qdebug.recording.target import describe_cause
from qdebug.regular_file import open_descriptor
from qdebug.running.feeds import UNREADABLE, check_expansion

__all__ = ["MAX_FILES", "Files", "damaged", "read_elements", "read_header"]

MAX_FILES = 100_000
"""Maximum number of files listed in a folder."""


def read_header(
    file: BinaryIO, size: int, path: Path, member: str | None
) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Read the header of an array in NumPy's format, and check it against the bytes that follow.

    Raises:
        UsageError: The file is not such an array, holds Python objects, or states a wrong size.
    """
    try:
        version = np.lib.format.read_magic(file)
        read_array_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_array_header is None:
            raise ValueError(f"version {version} of the npy format is for structured arrays only")
        shape, is_fortran, dtype = read_array_header(file)
    except UNREADABLE as error:
        raise damaged(path, member, str(error).splitlines()[0].rstrip(".") if str(error) else "no header") from None
    if dtype.hasobject:
        raise UsageError(
            f"{_name_file(path, member)} contains Python objects, which qdebug never loads.",
            hint="Save plain arrays: numpy.save(path, numpy.asarray(values)).",
        )
    stated_bytes = math.prod(shape) * dtype.itemsize
    if stated_bytes != size - file.tell():
        raise damaged(
            path, member, f"its header states {stated_bytes} bytes of elements, but {size - file.tell()} follow"
        )
    return dtype, tuple(int(extent) for extent in shape), bool(is_fortran)


def read_elements(
    file: BinaryIO, dtype: np.dtype[Any], shape: Sequence[int], path: Path, member: str | None, *, order: Any = "C"
) -> np.ndarray:
    """Read elements after checking that their bytes exist."""
    try:
        content = file.read(math.prod(shape) * dtype.itemsize)
        return np.frombuffer(content, dtype).reshape(shape, order=order)
    except UNREADABLE as error:
        raise damaged(path, member, str(error) or type(error).__name__) from None


class Files:
    """The files of a dump, opened for reading one at a time. One archive stays open.

    Args:
        folder: The folder that contains them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._root = os.path.realpath(folder)
        self._archive: tuple[Path, zipfile.ZipFile, BinaryIO] | None = None

    def is_inside(self, path: Path) -> bool:
        """Return whether a path stays inside the folder after links are resolved."""
        return os.path.commonpath([self._root, os.path.realpath(path)]) == self._root

    def files_below(self, path: Path) -> list[Path]:
        """Return the files below a folder. Links to folders are not followed.

        Raises:
            UsageError: There are too many files.
        """
        paths: list[Path] = []
        for folder, _, names in os.walk(path):
            paths += [Path(folder, name) for name in names]
            if len(paths) > MAX_FILES:
                raise UsageError(
                    f"The folder {str(path)!r} contains more than {MAX_FILES} files.", hint="Import only some of them."
                )
        return paths

    def members(self, path: Path, suffix: str = ".npy") -> list[str]:
        """Return the members of an archive that have a suffix, with the suffix removed; by default, its arrays.

        Raises:
            UsageError: The archive is damaged, or its arrays are far larger than the file can hold.
        """
        archive = self._open_archive(path)
        entries = [entry for entry in archive.infolist() if entry.filename.endswith(suffix)]
        check_expansion(path, entries)
        return [entry.filename.removesuffix(suffix) for entry in entries]

    def sizes(self, path: Path) -> dict[str, int]:
        """Return the sizes of an archive's members in bytes.

        Raises:
            UsageError: The archive is damaged.
        """
        return {entry.filename: entry.file_size for entry in self._open_archive(path).infolist()}

    @contextmanager
    def open_member(
        self, path: Path, member: str | None = None, suffix: str = ".npy"
    ) -> Iterator[tuple[BinaryIO, int]]:
        """Open a file, or a member of an archive by its name without a suffix, and yield it with its size.

        Raises:
            UsageError: The file or member is missing, cannot be read, or is not a regular file.
        """
        if member is not None:
            archive = self._open_archive(path)
            try:
                entry = archive.getinfo(member + suffix)
                with archive.open(entry) as member_file:
                    yield _CountingStream(member_file), entry.file_size  # type: ignore[misc]  # has read() and tell()
            except UNREADABLE as error:
                raise damaged(path, member, str(error) or type(error).__name__) from None
            return
        with self._open_file(path) as file:
            yield file, os.fstat(file.fileno()).st_size

    def _open_file(self, path: Path) -> BinaryIO:
        if not self.is_inside(path):
            raise UsageError(
                f"{str(path)!r} points outside the folder {str(self.folder)!r}.", hint="Copy the file into that folder."
            )
        try:
            return os.fdopen(open_descriptor(os.path.realpath(path), flags=os.O_NOFOLLOW), "rb")
        except OSError as error:
            raise UsageError(
                f"{str(path)!r} cannot be read: {describe_cause(error)}.", hint="Check the path."
            ) from None

    def close(self) -> None:
        """Close the open archive, if any."""
        if self._archive is not None:
            _, archive, file = self._archive
            archive.close()
            file.close()
            self._archive = None

    def _open_archive(self, path: Path) -> zipfile.ZipFile:
        if self._archive is not None and self._archive[0] == path:
            return self._archive[1]
        self.close()
        file = self._open_file(path)
        try:
            self._archive = path, zipfile.ZipFile(file), file
        except UNREADABLE as error:
            file.close()
            raise damaged(path, None, str(error) or type(error).__name__) from None
        return self._archive[1]


class _CountingStream:
    """A forward-only stream that tracks its position."""

    def __init__(self, file: Any) -> None:
        self._file, self._position = file, 0

    def read(self, size: int) -> bytes:
        content: bytes = self._file.read(size)
        self._position += len(content)
        return content

    def tell(self) -> int:
        return self._position


def _name_file(path: Path, member: str | None) -> str:
    return f"The file {str(path)!r}" if member is None else f"Array {member!r} of {str(path)!r}"


def damaged(path: Path, member: str | None, reason: str, *, kind: str = "numpy array file") -> UsageError:
    """Return the error for a file or archive member that is damaged, or not of the kind that its name suggests."""
    hint = "Write it again, or leave it out of the folder."
    if kind.startswith("numpy"):
        hint = "Write it again with numpy.save or numpy.savez, or leave it out of the folder."
    return UsageError(f"{_name_file(path, member)} is not a {kind}, or is damaged: {reason[:200]}.", hint=hint)
