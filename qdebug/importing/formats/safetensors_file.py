"""Files of safetensors: a JSON header, then the elements of all tensors.

See the section "Format" of the README of huggingface/safetensors: the length of the header in 8 bytes, then JSON with
the dtype, the shape and the byte range of each tensor.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.errors import UsageError
from qdebug.importing.dump import DumpedTensor
from qdebug.importing.files import Files, damaged, read_elements
from qdebug.model.dtypes import logical_dtype
from qdebug.recording.writing.write import Place

__all__ = ["tensors_of_safetensors"]

_KIND = "safetensors file"
_MAX_HEADER_BYTES = 100 << 20
_DTYPES: Mapping[str, str] = MappingProxyType(
    {
        "F64": "float64",
        "F32": "float32",
        "F16": "float16",
        "BF16": "bfloat16",
        "F8_E4M3": "float8_e4m3fn",
        "F8_E5M2": "float8_e5m2",
        "F8_E8M0": "float8_e8m0fnu",
        "I64": "int64",
        "I32": "int32",
        "I16": "int16",
        "I8": "int8",
        "U64": "uint64",
        "U32": "uint32",
        "U16": "uint16",
        "U8": "uint8",
        "BOOL": "bool",
    }
)
"""Dtypes, by their names in the format."""


def tensors_of_safetensors(
    files: Files, path: Path, place: Place, prefix: str, ignored: dict[str, str]
) -> Iterator[DumpedTensor]:
    """Yield the tensors of a safetensors file, in the order of their bytes in the file.

    Args:
        files: The files of the dump.
        path: The file.
        place: Sample and step of its tensors.
        prefix: Text before the name of each tensor.
        ignored: Receives the tensors that are not read, with the reason.

    Raises:
        UsageError: The file is damaged.
    """
    with files.open_member(path) as (file, size):
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(size - 8, _MAX_HEADER_BYTES):
            raise damaged(path, None, f"its header length is {length} bytes", kind=_KIND)
        header = _parse_header(path, file.read(length))
    start, end = 8 + length, 0
    spans = sorted((_byte_range(path, name, entry, size - start), name) for name, entry in header.items())
    for (first, last), name in spans:
        if first < end:
            raise damaged(path, None, f"tensor {name[:60]!r} overlaps another one", kind=_KIND)
        end = last
        entry = header[name]
        dtype_name = _DTYPES.get(str(entry.get("dtype")))
        if dtype_name is None or not name:
            reason = "the tensor has no name" if not name else f"unknown dtype: {entry.get('dtype')!r}"
            ignored[f"{path.name}:{name}"] = reason
            continue
        dtype, shape = logical_dtype(dtype_name), tuple(entry["shape"])
        if math.prod(shape) * dtype.itemsize != last - first:
            reason = f"tensor {name[:60]!r} has {last - first} bytes, not {math.prod(shape) * dtype.itemsize}"
            raise damaged(path, None, reason, kind=_KIND)
        yield _describe_tensor(files, path, place, prefix + name, (start + first, dtype, shape))


def _parse_header(path: Path, text: bytes) -> dict[str, dict[str, Any]]:
    """Return the header, without the entry `__metadata__`."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(path, None, str(error)[:100], kind=_KIND) from None
    if not isinstance(header, dict):
        raise damaged(path, None, "its header is not a table", kind=_KIND)
    header.pop("__metadata__", None)
    return header


def _byte_range(path: Path, name: str, entry: Any, size: int) -> tuple[int, int]:
    """Return the start and end of a tensor's bytes, counted from the end of the header, after checking its entry."""
    match entry:
        case {"data_offsets": [int(first), int(last)], "shape": [*shape]} if all(
            type(number) is int and 0 <= number < 1 << 62 for number in (first, last, *shape)
        ):
            pass
        case _:
            raise damaged(path, None, f"the header of {name[:60]!r} has no offsets or no shape", kind=_KIND)
    if not first <= last <= size:
        raise damaged(path, None, f"tensor {name[:60]!r} ends after the file", kind=_KIND)
    return first, last


def _describe_tensor(
    files: Files, path: Path, place: Place, name: str, header_entry: tuple[int, np.dtype[Any], tuple[int, ...]]
) -> DumpedTensor:
    offset, dtype, shape = header_entry

    def load() -> np.ndarray:
        with files.open_member(path) as (file, size):
            if size < offset + math.prod(shape) * dtype.itemsize:
                raise UsageError(f"The file {str(path)!r} changed while it was being read.", hint="Import again.")
            file.seek(offset)
            return read_elements(file, dtype, shape, path, None)

    return DumpedTensor(name=name, location=f"{path.name}:{name}", dtype=dtype, shape=shape, load=load, place=place)
