"""Tensors in files of `torch.save`, read without torch and without running anything from the file.

Such a file is a zip archive of a pickle and of storages. A pickle names functions that its reader has to call. For the
names of tensors, storages and plain containers, this reader calls functions of its own. For every other name, it makes
an inert `_Foreign`, which only stores the values that the file gives it. See
https://docs.python.org/3/library/pickle.html#restricting-globals.
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
"""Maximum number of values in nested containers. A shared value counts each time it occurs."""
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
"""Dtypes, by their names in torch and by the names of torch's storage classes."""


class _Foreign:
    """An inert object that only stores values, in place of one of an unknown class. Each such class has a subclass."""

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
    """The elements in a member of the archive, which tensors view."""

    key: str
    dtype: str | None
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tensor:
    """A strided view of a storage. Offset and strides are in elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str | None
    facts: Mapping[str, Any] = field(default_factory=dict)


def _rebuild_tensor(storage: object, offset: object, size: object, stride: object, *rest: object) -> _Tensor:
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
    """Make a quantized tensor from the arguments of `torch._utils._rebuild_qtensor`, with its scale if per-tensor."""
    tensor = _rebuild_tensor(storage, offset, size, stride)
    match quantizer:
        case (_, float(scale), int(zero_point)):
            return replace(tensor, facts={"scale": scale, "zero_point": zero_point})
    return tensor


def _return_first(value: object, *_: object) -> object:
    return value


def _to_tuple(values: Sequence[object] = ()) -> tuple[object, ...]:
    return tuple(values) if isinstance(values, (tuple, list)) else ()


@dataclass(frozen=True, slots=True)
class _Dtype:
    """A dtype of torch, or the class of its storages."""

    name: str


_FUNCTIONS: Mapping[str, Callable[..., object]] = MappingProxyType(
    {
        "torch._utils._rebuild_tensor": _rebuild_tensor,
        "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
        "torch._utils._rebuild_tensor_v3": _rebuild_tensor,
        "torch._utils._rebuild_qtensor": _rebuild_quantized,
        "torch._utils._rebuild_parameter": _return_first,
        "torch._utils._rebuild_parameter_with_state": _return_first,
        "torch._tensor._rebuild_from_type_v2": lambda _make, _type, arguments, _state: _rebuild_tensor(*arguments),
        "torch.Size": _to_tuple,
        "collections.OrderedDict": OrderedDict,
        "collections.defaultdict": lambda *_: {},
        "builtins.set": _to_tuple,
    }
)
"""Function that this reader calls for each name in a file."""


class _Reader(pickle.Unpickler):
    """Unpickler that calls only functions of this module, and replaces all other names by inert stand-ins."""

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
    """Yield the tensors of a file of `torch.save`. Their names are the keys that lead to them, joined by dots.

    Args:
        files: The files of the dump.
        path: The file.
        place: Sample and step of its tensors.
        prefix: Text before the name of each tensor.
        ignored: Receives the values that are not read, with the reason.

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
    is_big = f"{roots[0]}byteorder" in sizes and _read_member(files, path, f"{roots[0]}byteorder") == b"big"
    content = _unpickle(path, _read_member(files, path, f"{roots[0]}data.pkl"))
    for name, value in _leaves(path, content, prefix, path.stem):
        if not isinstance(value, _Tensor):
            if not isinstance(value, (str, bytes, int, float, bool, type(None))):
                ignored[f"{path.name}:{name}"] = "not a tensor"
            continue
        dtype_name = _DTYPES.get(value.dtype or "", value.dtype)
        member = f"{roots[0]}data/{value.storage.key}"
        if dtype_name is None:
            ignored[f"{path.name}:{name}"] = "its dtype is unknown"
            continue
        dtype = logical_dtype(dtype_name)
        _check_view(path, name, value, sizes.get(member, -1) // dtype.itemsize)
        yield _describe_tensor(files, path, place, name, (member, value, dtype.newbyteorder(">") if is_big else dtype))


def _read_member(files: Files, path: Path, name: str) -> bytes:
    with files.open_member(path, name, "") as (file, size):
        return file.read(size)


def _unpickle(path: Path, content: bytes) -> object:
    try:
        return _Reader(BytesIO(content)).load()
    except (*UNREADABLE, pickle.UnpicklingError, AttributeError, IndexError, ImportError, TypeError) as error:
        raise damaged(path, None, str(error) or type(error).__name__, kind=_KIND) from None


def _leaves(path: Path, content: object, prefix: str, stem: str) -> Iterator[tuple[str, object]]:
    """Yield the values in nested containers, each with the keys that lead to it, joined by dots."""
    visited = 0
    pending: list[tuple[str, object, int]] = [("", content, 0)]
    while pending:
        name, value, depth = pending.pop()
        visited += 1
        if visited > _MAX_VISITED or depth > _MAX_DEPTH:
            raise damaged(path, None, "its containers are nested too deeply, or contain too many values", kind=_KIND)
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
    """Reject a view that reaches beyond its storage, or is far larger than its storage.

    Raises:
        UsageError: The view is rejected.
    """
    count = math.prod(tensor.shape)
    last = tensor.offset + sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.strides, strict=False))
    if len(tensor.shape) != len(tensor.strides) or (count and not 0 <= last < available):
        raise damaged(path, None, f"tensor {name[:60]!r} reaches beyond its storage", kind=_KIND)
    if count > max(_MAX_REPEATS * available, _MAX_REPEATED_ELEMENTS):
        raise damaged(path, None, f"tensor {name[:60]!r} repeats its storage {count // available} times", kind=_KIND)


_MAX_REPEATS = 16
"""Maximum ratio of the size of a large view to that of its storage."""
_MAX_REPEATED_ELEMENTS = 1 << 24
"""Number of elements up to which a view may repeat its storage at any ratio, such as a row expanded over a batch."""


def _describe_tensor(
    files: Files, path: Path, place: Place, name: str, stored_tensor: tuple[str, _Tensor, np.dtype[Any]]
) -> DumpedTensor:
    member, tensor, dtype = stored_tensor

    def load() -> np.ndarray:
        elements = np.frombuffer(_read_member(files, path, member), dtype)
        try:
            view = np.lib.stride_tricks.as_strided(
                elements[tensor.offset :], tensor.shape, [step * dtype.itemsize for step in tensor.strides]
            )
        except UNREADABLE as error:
            raise damaged(path, member, str(error), kind=_KIND) from None
        if tensor.offset + 1 > elements.size and view.size:
            raise UsageError(f"The file {str(path)!r} changed while it was being read.", hint="Import again.")
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
