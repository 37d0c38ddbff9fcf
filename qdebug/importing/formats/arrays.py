"""Folders and files of tensors: NumPy arrays, safetensors, torch files, and raw files whose type a model states."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.errors import UsageError
from qdebug.importing.dump import Dump, DumpedTensor
from qdebug.importing.files import MAX_FILES, Files, damaged, read_elements, read_header
from qdebug.importing.formats.safetensors_file import tensors_of_safetensors
from qdebug.importing.formats.tensor_proto import tensors_of_tensor_proto
from qdebug.importing.formats.torch_file import tensors_of_torch_file
from qdebug.model import Graph
from qdebug.recording.writing.write import Place

__all__ = ["FILE_READERS", "TENSOR_NAMES", "describe_array", "read_arrays"]

TENSOR_NAMES = "tensor_names"
"""Name of the array in an .npz file that states the tensor of each array, as rows of two strings."""

_NUMBERED = re.compile(r"(.*?)(\d{1,9})")
_NUMBER = re.compile(r"(\d+)")


def read_arrays(files: Files, source: Path, graph: Graph | None) -> Dump:
    """List the arrays of a folder, an archive or a file. Raw files are listed only with a model that states types."""
    tensors: list[DumpedTensor] = []
    ignored: dict[str, str] = {}
    if not source.is_dir():
        tensors += FILE_READERS[source.suffix.lower()](files, source, (0, 0), "", ignored)
        return Dump(tensors=tensors, ignored=ignored)
    remarks: list[str] = []
    for place, path in _samples_and_steps(source, remarks):
        paths = sorted(
            files.files_below(path) if path.is_dir() else [path], key=lambda file_path: _natural_key(str(file_path))
        )
        for file_path in paths:
            is_raw = file_path.suffix.lower() in _RAW_SUFFIXES and graph is not None
            if file_path.suffix.lower() not in FILE_READERS and not is_raw:
                ignored[os.path.relpath(file_path, source)] = _REASONS_NOT_READ.get(
                    file_path.suffix.lower(), f"not one of {', '.join(FILE_READERS)}"
                )
            elif not files.is_inside(file_path):
                ignored[os.path.relpath(file_path, source)] = "it points outside the folder"
            else:
                prefix = "" if file_path == path else str(file_path.relative_to(path).parent)
                prefix = f"{prefix}/" if prefix not in ("", ".") else ""
                tensors += (
                    [_describe_untyped_file(files, file_path, place, prefix)]
                    if is_raw
                    else FILE_READERS[file_path.suffix.lower()](files, file_path, place, prefix, ignored)
                )
    return Dump(tensors=tensors, ignored=ignored, remarks=remarks)


_RAW_SUFFIXES = (".raw", ".bin")
"""Suffixes of files that contain elements without a header."""

_REASONS_NOT_READ = dict.fromkeys(_RAW_SUFFIXES, "a raw file, and no --graph states its type and shape")


def _describe_untyped_file(files: Files, path: Path, place: Place, prefix: str) -> DumpedTensor:
    """Describe a raw file, of which only the size is known."""
    with files.open_member(path) as (_, size):
        extents = (size,)

    def load() -> np.ndarray:
        with files.open_member(path) as (file, current_size):
            if current_size != size:
                raise UsageError(f"The file {str(path)!r} changed while it was being read.", hint="Import again.")
            return read_elements(file, np.dtype(np.uint8), extents, path, None)

    return DumpedTensor(
        name=prefix + path.stem,
        location=os.path.relpath(path, files.folder),
        dtype=np.dtype(np.uint8),
        shape=extents,
        load=load,
        place=place,
        is_flat=True,
        is_raw=True,
    )


def _samples_and_steps(source: Path, remarks: list[str]) -> Iterator[tuple[Place, Path]]:
    """Yield each sample and step with its numbered folder or archive; only the source if its entries have no numbers.

    A sentence about the numbers is added to `remarks`.
    """
    entries_by_number = _numbered_entries(source)
    if entries_by_number is None:
        yield (0, 0), source
        return
    first_number = min(entries_by_number)
    are_steps = _is_step(entries_by_number[first_number])
    kind = "step" if are_steps else "sample"
    remarks.append(
        f"{len(entries_by_number)} {kind}s by the numbers of {entries_by_number[first_number].name!r} to "
        f"{entries_by_number[max(entries_by_number)].name!r}"
    )
    for number, path in sorted(entries_by_number.items()):
        inner_entries = None if are_steps or not path.is_dir() else _numbered_entries(path)
        if inner_entries is None or not _is_step(next(iter(inner_entries.values()))):
            yield ((0, number - first_number) if are_steps else (number - first_number, 0)), path
        else:
            yield from (
                ((number - first_number, inner_number - min(inner_entries)), inner_path)
                for inner_number, inner_path in sorted(inner_entries.items())
            )


def _is_step(path: Path) -> bool:
    """Return whether a numbered entry is a step or an iteration by its name, and not a sample."""
    return path.stem.lower().rstrip("_-.0123456789").endswith(("step", "iteration"))


def _numbered_entries(folder: Path) -> dict[int, Path] | None:
    """Return folders or archives by the last number in their names; None unless they differ only in this number."""
    with os.scandir(folder) as entries_of_folder:
        entries = [Path(entry.path) for _, entry in zip(range(MAX_FILES), entries_of_folder, strict=False)]
    are_folders = all(entry.is_dir() and not entry.is_symlink() for entry in entries)
    if not entries or not (are_folders or (len(entries) > 1 and _are_archives(entries))):
        return None
    parts = [_NUMBERED.fullmatch(entry.name if are_folders else entry.stem) for entry in entries]
    numbers = {int(part[2]): entry for part, entry in zip(parts, entries, strict=True) if part is not None}
    name_stems = {part[1] if part is not None else None for part in parts}
    return numbers if len(numbers) == len(entries) and len(name_stems) == 1 else None


def _are_archives(paths: Sequence[Path]) -> bool:
    """Return whether all files have the same suffix, and it is one of files with several tensors."""
    return len({path.suffix.lower() for path in paths}) == 1 and paths[0].suffix.lower() in _CONTAINER_SUFFIXES


def _natural_key(name: str) -> list[Any]:
    """Return a sort key that orders numbers in names by value."""
    return [int(part) if part.isdecimal() and len(part) < 19 else part for part in _NUMBER.split(name)]


def _list_numpy_arrays(
    files: Files, path: Path, place: Place, prefix: str, ignored: dict[str, str]
) -> Iterator[DumpedTensor]:
    """Yield the arrays of an .npy or .npz file. Arrays without a name are added to `ignored`."""
    location = os.path.relpath(path, files.folder)
    if path.suffix.lower() == ".npy":
        yield describe_array(files, path, None, name=prefix + path.stem, location=location, place=place)
        return
    members = files.members(path)
    names = _read_tensor_names(files, path) if TENSOR_NAMES in members else {}
    for member in members:
        name = names.get(member, member)
        if member == TENSOR_NAMES and names:
            continue
        if name:
            yield describe_array(files, path, member, name=prefix + name, location=f"{location}:{member}", place=place)
        else:
            ignored[f"{location}:{member}.npy"] = "the array has no name"


def _read_tensor_names(files: Files, path: Path) -> dict[str, str]:
    """Return the tensor of each array if an archive states it, as archives from `qdebug export npz` do."""
    with files.open_member(path, TENSOR_NAMES) as (file, size):
        dtype, shape, _ = read_header(file, size, path, TENSOR_NAMES)
        if dtype.kind != "U" or len(shape) != 2 or shape[1] != 2:
            return {}
        rows = np.frombuffer(file.read(math.prod(shape) * dtype.itemsize), dtype).reshape(shape)
    return {str(member): str(name) for member, name in rows}


def describe_array(
    files: Files, path: Path, member: str | None, *, name: str, location: str, place: Place
) -> DumpedTensor:
    """Describe the array of an .npy file, or of a member of an .npz file."""
    with files.open_member(path, member) as (file, size):
        header = read_header(file, size, path, member)

    def load() -> np.ndarray:
        with files.open_member(path, member) as (file, size):
            if read_header(file, size, path, member) != header:
                raise damaged(path, member, "it changed while it was being read")
            dtype, shape, is_fortran = header
            return read_elements(file, dtype, shape, path, member, order="F" if is_fortran else "C")

    return DumpedTensor(name=name, location=location, dtype=header[0], shape=header[1], load=load, place=place)


FILE_READERS: Mapping[str, Callable[[Files, Path, Place, str, dict[str, str]], Iterator[DumpedTensor]]] = (
    MappingProxyType(
        {
            ".npy": _list_numpy_arrays,
            ".npz": _list_numpy_arrays,
            ".safetensors": tensors_of_safetensors,
            ".pt": tensors_of_torch_file,
            ".pth": tensors_of_torch_file,
            ".tensorproto": tensors_of_tensor_proto,
            ".pb": tensors_of_tensor_proto,
        }
    )
)
"""Function that lists the tensors of a file, by the suffix of the file."""
_CONTAINER_SUFFIXES = frozenset(FILE_READERS) - {".npy", ".tensorproto", ".pb"}
"""Suffixes of files that can hold several tensors. If their names are numbered, each is a sample or a step."""
