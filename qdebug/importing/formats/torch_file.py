"""Tensors in files of `torch.save`, read without torch and without running anything from the file.

Such a file is a zip archive of a pickle and of storages. A pickle names functions that its reader calls. This reader
knows tensors, storages and plain containers, and gives its own functions in their place; any other name becomes an
inert `_Foreign`, which only holds what the file puts into it. See https://docs.python.org/3/library/pickle.html#restricting-globals.
"""

from __future__ import annotations

import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from qdebug.errors import UsageError
from qdebug.importing.dump import DumpedTensor
from qdebug.importing.files import Files, damaged
from qdebug.model.dtypes import logical_dtype
from qdebug.recording.writing.write import Place
from qdebug.running.feeds import UNREADABLE

__all__ = ["tensors_of_torch_file"]

_KIND = "file of torch.save"
_MAX_PICKLE_BYTES = 64 << 20
_MAX_VISITED = 1_000_000
"""Largest number of values in nested containers, counting shared ones each time."""
_MAX_DEPTH = 64

_DTYPES: Mapping[str, str] = MappingProxyType(
    {
        "float64": "float64", "double": "float64", "float32": "float32", "float": "float32", "float16": "float16",
        "half": "float16", "bfloat16": "bfloat16", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
        "float8_e4m3fnuz": "float8_e4m3fnuz", "float8_e5m2fnuz": "float8_e5m2fnuz",
        "float8_e8m0fnu": "float8_e8m0fnu", "int64": "int64", "long": "int64", "int32": "int32", "int": "int32",
        "int16": "int16", "short": "int16", "int8": "int8", "char": "int8", "uint8": "uint8", "byte": "uint8",
        "uint16": "uint16", "uint32": "uint32", "uint64": "uint64", "bool": "bool", "qint8": "int8",
        "quint8": "uint8", "qint32": "int32",
    }
)  # fmt: skip
"""Dtypes by their names in torch, and by the names of its storages."""


class _Foreign:
    """An object of a class that is not known. A subclass stands for each name, and does nothing but hold values."""

    title = ""
    parts: dict[object, object]

    def __new__(cls, *args: object, **_: object) -> Self:
        instance = object.__new__(cls)
        instance.parts = dict(enumerate(args))
        return instance

    def __setitem__(self, key: object, value: object) -> None:
        self.parts[key if isinstance(key, (str, int)) else len(self.parts)] = value

    def append(self, value: object) -> None:
        self[len(self.parts)] = value

    def extend(self, values: Sequence[object]) -> None:
        for value in values:
            self.append(value)

    def __setstate__(self, state: object) -> None:
        for key, value in state.items() if isinstance(state, dict) else ():
            self[key] = value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Storage:
    """Elements of a file."""

    key: str
    dtype: str | None
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tensor:
    """A view of a storage, in numbers of elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str | None
    facts: Mapping[str, Any] = field(default_factory=dict)


def _rebuild(storage: object, offset: object, size: object, stride: object, *rest: object) -> _Tensor:
    """Make a tensor from the arguments of `torch._utils._rebuild_tensor_v2`, or of `_v3`, which has a dtype too."""
    numbers = (offset, *(size if isinstance(size, tuple) else ("",)), *(stride if isinstance(stride, tuple) else ("",)))
    if not isinstance(storage, _Storage) or not all(
        type(number) is int and 0 <= number < 1 << 62 for number in numbers
    ):
        raise ValueError("a tensor has no storage")
    dtype = next((argument.name for argument in rest if isinstance(argument, _Dtype)), storage.dtype)
    return _Tensor(storage=storage, offset=offset, shape=size, strides=stride, dtype=dtype)  # type: ignore[arg-type]


def _rebuild_quantized(
    storage: object, offset: object, size: object, stride: object, quantizer: object, *_: object
) -> _Tensor:
    """Make a quantized tensor from the arguments of `torch._utils._rebuild_qtensor`; its scale only if it has one."""
    tensor = _rebuild(storage, offset, size, stride)
    match quantizer:
        case (_, float(scale), int(zero_point)):
            return replace(tensor, facts={"scale": scale, "zero_point": zero_point})
    return tensor


def _first(value: object, *_: object) -> object:
    return value


def _tuple(values: Sequence[object] = ()) -> tuple[object, ...]:
    return tuple(values) if isinstance(values, (tuple, list)) else ()


@dataclass(frozen=True, slots=True)
class _Dtype:
    """A dtype of torch, or the class of its storages."""

    name: str


_FUNCTIONS: Mapping[str, Callable[..., object]] = MappingProxyType(
    {
        "torch._utils._rebuild_tensor": _rebuild,
        "torch._utils._rebuild_tensor_v2": _rebuild,
        "torch._utils._rebuild_tensor_v3": _rebuild,
        "torch._utils._rebuild_qtensor": _rebuild_quantized,
        "torch._utils._rebuild_parameter": _first,
        "torch._utils._rebuild_parameter_with_state": _first,
        "torch._tensor._rebuild_from_type_v2": lambda _make, _type, arguments, _state: _rebuild(*arguments),
        "torch.Size": _tuple,
        "collections.OrderedDict": OrderedDict,
        "collections.defaultdict": lambda *_: {},
        "builtins.set": _tuple,
    }
)
"""What this reader calls, by the name in the file."""


class _Reader(pickle.Unpickler):
    """Reads a pickle whose names are either known to this module or inert."""

    def find_class(self, module: str, name: str) -> object:
        function = _FUNCTIONS.get(f"{module}.{name}")
        if function is not None:
            return function
        if module in ("torch", "torch.storage"):
            short_name = name.removesuffix("Storage").lower()
            if name == "UntypedStorage" or short_name in _DTYPES:
                return _Dtype(short_name)
        return type("_Foreign", (_Foreign,), {"title": f"{module}.{name}"[:200]})

    def persistent_load(self, pid: object) -> object:
        match pid:
            case ("storage", _Dtype(name), str(key), _, int(size)) if 0 <= size < 1 << 62:
                return _Storage(key=key, dtype=_DTYPES.get(name), size=size)
        raise ValueError("a storage is described in an unknown way")


def tensors_of_torch_file(
    files: Files, path: Path, place: Place, prefix: str, ignored: dict[str, str]
) -> Iterator[DumpedTensor]:
    """Yield the tensors of a file of `torch.save`, named by the keys that lead to them.

    Args:
        files: The files of the dump.
        path: The file.
        place: Sample and step of its tensors.
        prefix: Text before the name of each tensor.
        ignored: Receives what is not read, with the reason.

    Raises:
        UsageError: The file is damaged, or not an archive.
    """
    with files.open_member(path) as (file, _):
        if not zipfile.is_zipfile(file):
            raise damaged(path, None, "it is not a zip archive, as torch has written since version 1.6", kind=_KIND)
    roots = [name.removesuffix("data.pkl") for name in files.members(path, "") if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise damaged(path, None, "it has no data.pkl", kind=_KIND)
    sizes = files.sizes(path)
    if sizes[f"{roots[0]}data.pkl"] > _MAX_PICKLE_BYTES:
        raise damaged(path, None, "its data.pkl is larger than 64 MB", kind=_KIND)
    is_big = f"{roots[0]}byteorder" in sizes and _member(files, path, f"{roots[0]}byteorder") == b"big"
    content = _unpickled(path, _member(files, path, f"{roots[0]}data.pkl"))
    for name, value in _leaves(path, content, prefix, path.stem):
        if not isinstance(value, _Tensor):
            if not isinstance(value, (str, bytes, int, float, bool, type(None))):
                ignored[f"{path.name}:{name}"] = "not a tensor"
            continue
        dtype_name = _DTYPES.get(value.dtype or "", value.dtype)
        member = f"{roots[0]}data/{value.storage.key}"
        if dtype_name is None:
            ignored[f"{path.name}:{name}"] = "its dtype is not known"
            continue
        dtype = logical_dtype(dtype_name)
        _check_view(path, name, value, sizes.get(member, -1) // dtype.itemsize)
        yield _described(files, path, place, name, (member, value, dtype.newbyteorder(">") if is_big else dtype))


def _member(files: Files, path: Path, name: str) -> bytes:
    with files.open_member(path, name, "") as (file, size):
        return file.read(size)


def _unpickled(path: Path, content: bytes) -> object:
    try:
        return _Reader(BytesIO(content)).load()
    except (*UNREADABLE, pickle.UnpicklingError, AttributeError, IndexError, ImportError, TypeError) as error:
        raise damaged(path, None, str(error) or type(error).__name__, kind=_KIND) from None


def _leaves(path: Path, content: object, prefix: str, stem: str) -> Iterator[tuple[str, object]]:
    """Yield the values of nested containers, with the keys that lead to each joined by dots."""
    visited = 0
    pending: list[tuple[str, object, int]] = [("", content, 0)]
    while pending:
        name, value, depth = pending.pop()
        visited += 1
        if visited > _MAX_VISITED or depth > _MAX_DEPTH:
            raise damaged(path, None, "its containers are nested too deeply, or hold too many values", kind=_KIND)
        parts: list[tuple[object, object]] = []
        if isinstance(value, Mapping):
            parts = list(value.items())
        elif isinstance(value, _Foreign) and value.parts:
            parts = list(value.parts.items())
        elif isinstance(value, (list, tuple)):
            parts = list(enumerate(value))
        else:
            yield prefix + (name or stem), value
        for key, part in reversed(parts):
            text = str(key) if isinstance(key, (str, int)) else "?"
            pending.append((f"{name}.{text}" if name else text, part, depth + 1))


def _check_view(path: Path, name: str, tensor: _Tensor, available: int) -> None:
    """Reject a view that reaches beyond its storage, or that is far larger than it.

    Raises:
        UsageError: It does.
    """
    count = math.prod(tensor.shape)
    last = tensor.offset + sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.strides, strict=False))
    if len(tensor.shape) != len(tensor.strides) or (count and not 0 <= last < available):
        raise damaged(path, None, f"tensor {name[:60]!r} reaches beyond its storage", kind=_KIND)
    if count > max(_MAX_REPEATS * available, _MAX_REPEATED_ELEMENTS):
        raise damaged(path, None, f"tensor {name[:60]!r} repeats its storage {count // available} times", kind=_KIND)


_MAX_REPEATS = 16
"""How many times larger than its storage a large view may be."""
_MAX_REPEATED_ELEMENTS = 1 << 24
"""Number of elements up to which a view may repeat its storage as often as it likes, as a row expanded over a batch."""


def _described(
    files: Files, path: Path, place: Place, name: str, stored_tensor: tuple[str, _Tensor, np.dtype[Any]]
) -> DumpedTensor:
    member, tensor, dtype = stored_tensor

    def load() -> np.ndarray:
        elements = np.frombuffer(_member(files, path, member), dtype)
        try:
            view = np.lib.stride_tricks.as_strided(
                elements[tensor.offset :], tensor.shape, [step * dtype.itemsize for step in tensor.strides]
            )
        except UNREADABLE as error:
            raise damaged(path, member, str(error), kind=_KIND) from None
        if tensor.offset + 1 > elements.size and view.size:
            raise UsageError(f"The file {str(path)!r} changed while it was read.", hint="Import again.")
        return np.ascontiguousarray(view).astype(dtype.newbyteorder("="))

    return DumpedTensor(
        name=name,
        location=f"{path.name}:{name}",
        dtype=dtype.newbyteorder("="),
        shape=tensor.shape,
        load=load,
        place=place,
        facts=tensor.facts,
    )
