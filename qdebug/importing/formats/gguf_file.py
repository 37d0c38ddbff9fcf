"""Tensors of GGUF files, the weights of llama.cpp, with their block formats (extra `gguf`).

llama.cpp's package `gguf` dequantizes the values of each format. The header is parsed here, since a damaged header can
make the package loop. Tensors with one scale per block and codes around 0 are recorded as codes and scales, if these
reproduce the values of the package exactly.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np

from qdebug.errors import MissingExtraError, UsageError
from qdebug.importing.dump import Dump, DumpedTensor
from qdebug.importing.files import Files, damaged, read_elements
from qdebug.model import Graph
from qdebug.model.dtypes import logical_dtype
from qdebug.regular_file import open_binary

__all__ = ["is_gguf", "read_gguf"]

_KIND = "GGUF file"
_MAGIC = b"GGUF"
_PLAIN_DTYPES: Mapping[str, str] = MappingProxyType(
    {
        "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64",
        "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    }
)  # fmt: skip
"""Formats without blocks, and their dtypes."""


_CODE_FORMATS: Mapping[str, int] = MappingProxyType({"Q8_0": 34, "Q4_0": 18, "Q5_0": 22})
"""Bytes per block of the formats in which a value is a code times the float16 scale at the start of its block.

Recordings do not allow negative scales, so the codes of a block with a negative scale change their sign. They can then
be 8 or 16, and are therefore recorded as int8.
"""
_BLOCK = 32
_MAX_CODE = 127
_VERSIONS = (2, 3)
_MAX_RANK = 8
_UINT32, _TEXT, _ARRAY = 4, 8, 9
_VALUE_BYTES: Mapping[int, int] = MappingProxyType(
    {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
)
"""Sizes of values by their types in the header."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor of a file.

    Args:
        files: The files of the dump.
        path: The file.
        name: The tensor's name.
        form: Format of the tensor, a `gguf.constants.GGMLQuantizationType`.
        shape: Extents of the tensor, in C order.
        offset: Offset of the tensor's bytes in the file.
        nbytes: Number of these bytes.
    """

    files: Files
    path: Path
    name: str
    form: Any
    shape: tuple[int, ...]
    offset: int
    nbytes: int

    def load(self) -> np.ndarray:
        """Return the elements of a plain format, or the real values of a format with blocks."""
        content = self._read_bytes()
        if self.form.name in _PLAIN_DTYPES:
            return content.view(logical_dtype(_PLAIN_DTYPES[self.form.name])).reshape(self.shape)
        from gguf.quants import dequantize

        try:
            values: np.ndarray = dequantize(content.reshape(*self.shape[:-1], -1), self.form)
            return np.ascontiguousarray(values.reshape(self.shape), np.float32)
        except (ValueError, NotImplementedError, IndexError, TypeError, OverflowError) as error:
            reason = f"its format {self.form.name} cannot be dequantized: {error}"
            raise damaged(self.path, self.name, reason, kind=_KIND) from None

    def _read_bytes(self) -> np.ndarray:
        with self.files.open_member(self.path) as (file, _):
            file.seek(self.offset)
            return read_elements(file, np.dtype(np.uint8), (self.nbytes,), self.path, None)

    def codes_and_scales(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return int8 codes and the scale of each block; None unless they reproduce the package's values exactly."""
        if self.form.name not in _CODE_FORMATS:
            return None
        blocks = self._read_bytes().reshape(-1, _CODE_FORMATS[self.form.name])
        scales = np.abs(np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32))
        scales = np.where(scales == 0, np.float32(1), scales)  # a block of scale 0 has only zeros, so any scale will do
        scales = scales.reshape(*self.shape[:-1], -1)
        values = self.load().reshape(*scales.shape, _BLOCK)
        with np.errstate(all="ignore"):
            codes = np.rint(values / scales[..., None])
            is_exact = bool((np.abs(codes) <= _MAX_CODE).all()) and np.array_equal(codes * scales[..., None], values)
        if not is_exact or not np.isfinite(scales).all():
            return None
        return codes.reshape(self.shape).astype(np.int8), scales


def is_gguf(path: Path) -> bool:
    """Return whether a file is in GGUF."""
    if not path.is_file():
        return False
    with open_binary(path) as file:
        return file.read(4) == _MAGIC


def read_gguf(files: Files, source: Path, graph: Graph | None) -> Dump:
    """List the tensors of a GGUF file.

    Args:
        files: The files of the dump.
        source: The file.
        graph: Not used.

    Raises:
        UsageError: The file is damaged.
        MissingExtraError: The package gguf is not installed.
    """
    del graph
    try:
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    except ImportError:
        raise MissingExtraError("gguf", extra="gguf", purpose="Importing a GGUF file") from None
    tensors: list[DumpedTensor] = []
    ignored: dict[str, str] = {}
    formats: Counter[str] = Counter()
    with files.open_member(source) as (file, size):
        entries = _Header(source, file, size).tensors()
    end = 0
    for name, shape, number, offset in sorted(entries, key=lambda entry: entry[3]):
        if number not in {int(member) for member in GGMLQuantizationType}:
            ignored[f"{source.name}:{name}"] = f"format {number} is not known to the package gguf"
            continue
        quant_type = GGMLQuantizationType(number)
        elements, block_bytes = GGML_QUANT_SIZES[quant_type]
        if shape and shape[-1] % elements:
            raise damaged(source, None, f"rows of {name[:60]!r} do not consist of whole blocks", kind=_KIND)
        nbytes = math.prod(shape) // elements * block_bytes
        if offset < end or nbytes > size - offset:
            problem = "overlaps another one" if offset < end else "ends after the file"
            raise damaged(source, None, f"tensor {name[:60]!r} {problem}", kind=_KIND)
        end = offset + nbytes
        formats[quant_type.name] += 1
        tensors.append(_describe_tensor(_Tensor(files, source, name, quant_type, shape, offset, nbytes)))
    remarks = [f"formats: {', '.join(f'{name} ({count})' for name, count in formats.items())}"] if formats else []
    return Dump(tensors=tensors, ignored=ignored, facts={"backend": "gguf"}, remarks=remarks)


class _Header:
    """Reader of the header of a file: facts, which are skipped, then name, extents, format and offset of each tensor.

    See https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.

    Args:
        path: The file.
        file: The open file, at its start.
        size: Size of the file in bytes.
    """

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self._path, self._file, self._size = path, file, size
        self._alignment = 32

    def tensors(self) -> list[tuple[str, tuple[int, ...], int, int]]:
        """Return name, shape, format and absolute offset of each tensor.

        Raises:
            UsageError: The header is damaged.
        """
        if self._read(4) != _MAGIC or self._read_number("<I") not in _VERSIONS:
            raise self._error("its version is not 2 or 3")
        count, facts = self._read_number("<Q"), self._read_number("<Q")
        if max(count, facts) > self._size:
            raise self._error("it claims more tensors or metadata entries than it has bytes")
        for _ in range(facts):
            self._skip_fact()
        rows = [self._read_tensor_row() for _ in range(count)]
        start = -(-self._file.tell() // self._alignment) * self._alignment
        if len({name for name, *_ in rows}) != len(rows):
            raise self._error("two tensors have the same name")
        return [(name, shape, form, start + offset) for name, shape, form, offset in rows]

    def _read_tensor_row(self) -> tuple[str, tuple[int, ...], int, int]:
        name, rank = self._read_text(), self._read_number("<I")
        if rank > _MAX_RANK:
            raise self._error(f"tensor {name[:60]!r} has {rank} dimensions")
        shape = tuple(self._read_number("<Q") for _ in range(rank))[::-1]
        return name, shape, self._read_number("<I"), self._read_number("<Q")

    def _skip_fact(self) -> None:
        key, kind = self._read_text(), self._read_number("<I")
        if key == "general.alignment" and kind == _UINT32:
            self._alignment = self._read_number("<I")
            if self._alignment < 1 or self._alignment & (self._alignment - 1):
                raise self._error(f"its alignment is {self._alignment}")
        else:
            self._skip_value(kind, depth=0)

    def _skip_value(self, kind: int, *, depth: int) -> None:
        if kind == _TEXT:
            self._read_text()
        elif kind == _ARRAY and depth < _MAX_RANK:
            inner, count = self._read_number("<I"), self._read_number("<Q")
            if inner in _VALUE_BYTES:
                self._read(count * _VALUE_BYTES[inner])
                return
            if count > self._size:
                raise self._error("a list is longer than the file")
            for _ in range(count):
                self._skip_value(inner, depth=depth + 1)
        elif kind in _VALUE_BYTES:
            self._read(_VALUE_BYTES[kind])
        else:
            raise self._error(f"a metadata entry has the unknown type {kind}")

    def _read_text(self) -> str:
        return self._read(self._read_number("<Q")).decode("utf-8", "replace")

    def _read_number(self, form: str) -> int:
        value: int = struct.unpack(form, self._read(struct.calcsize(form)))[0]
        return value

    def _read(self, count: int) -> bytes:
        if count > self._size - self._file.tell():
            raise self._error("its header ends after the file")
        return self._file.read(count)

    def _error(self, reason: str) -> UsageError:
        return damaged(self._path, None, reason, kind=_KIND)


def _describe_tensor(tensor: _Tensor) -> DumpedTensor:
    """Describe a tensor as codes and scales if its format allows it, else as elements or real values."""
    codes_and_scales = tensor.codes_and_scales()
    facts: dict[str, Any] = {}
    dtype = logical_dtype(_PLAIN_DTYPES.get(tensor.form.name, "float32"))
    if codes_and_scales is not None:
        dtype = np.dtype(np.int8)
        facts = {"scale": codes_and_scales[1], "zero_point": 0, "axis": len(tensor.shape) - 1, "block_size": _BLOCK}
    return DumpedTensor(
        name=tensor.name,
        location=f"{tensor.path.name}:{tensor.name}",
        dtype=dtype,
        shape=tensor.shape,
        load=tensor.load if codes_and_scales is None else partial(_load_codes, tensor),
        facts=facts,
    )


def _load_codes(tensor: _Tensor) -> np.ndarray:
    codes_and_scales = tensor.codes_and_scales()
    if codes_and_scales is None:
        raise UsageError(f"The file {str(tensor.path)!r} changed while it was being read.", hint="Import again.")
    return codes_and_scales[0]
