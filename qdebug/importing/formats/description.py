"""Raw files and NumPy files that are described by a JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.errors import UsageError
from qdebug.importing.dump import Dump, DumpedTensor
from qdebug.importing.files import Files, read_elements
from qdebug.importing.formats.arrays import describe_array
from qdebug.model import Graph
from qdebug.model.dtypes import logical_dtype
from qdebug.recording.target import describe_cause
from qdebug.regular_file import read_regular

__all__ = ["describe_raw_file", "read_description"]

_MAX_DESCRIPTION_BYTES = 64 << 20
_MAX_INTEGER = 1 << 32

_PUT_FACTS = (
    *("node", "op", "inputs", "attrs", "domain", "origin", "placement", "scale", "zero_point", "axis", "block_size"),
    *("qmin", "qmax", "multiplier", "shift", "layout", "stands_for"),
)
_TENSOR_KEYS = (
    "file",
    "array",
    "tensor",
    "dtype",
    "shape",
    "sample",
    "step",
    "order",
    "offset",
    "byte_order",
    "constant",
)
_RUN_KEYS = ("format", "version", "backend", "model", "outputs", "op_map", "defaults", "tensors")


def read_description(files: Files, source: Path, graph: Graph | None) -> Dump:
    """List the tensors that a JSON file describes."""
    description = _parse_description(source)
    defaults = description.get("defaults", {})
    entries = description.get("tensors")
    outputs = description.get("outputs", [])
    run_facts: dict[str, Any] = {name: description[name] for name in ("backend", "model") if name in description}
    if (
        not isinstance(defaults, dict)
        or not isinstance(entries, list)
        or not all(isinstance(value, dict) for value in entries)
        or not isinstance(outputs, list)
        or not all(isinstance(value, str) and value for value in (*outputs, *run_facts.values()))
    ):
        raise _description_error(
            source,
            "backend and model must be strings, outputs and tensors must be lists, and each tensor must be an object",
        )
    op_map = description.get("op_map", {})
    if not isinstance(op_map, dict) or not all(isinstance(value, str) and value for value in op_map.values()):
        raise _description_error(source, "op_map must map each operator name of the dump to another name")
    tensors = [
        (
            _read_integer(source, number, entry, "order", number),
            _describe_tensor(files, source, number, entry, graph=graph is not None),
        )
        for number, entry in enumerate({**defaults, **value} for value in entries)
    ]
    tensors.sort(key=lambda pair: pair[0])
    known_names = {tensor.name for _, tensor in tensors} | (set() if graph is None else graph.tensors.keys())
    unknown_output = next((name for name in outputs if name not in known_names), None)
    if unknown_output is not None:
        raise _description_error(source, f"the output {unknown_output!r} is not a tensor of the dump")
    facts = {**run_facts, "outputs": tuple(outputs), **({"op_map": op_map} if op_map else {})}
    return Dump(tensors=[tensor for _, tensor in tensors], facts=facts)


def _parse_description(source: Path) -> dict[str, Any]:
    """Return the parsed content of a description.

    Raises:
        UsageError: The description is invalid, or has unknown keys.
    """
    try:
        description = json.loads(read_regular(source, _MAX_DESCRIPTION_BYTES), parse_constant=_reject_constant)
        # Reject lone surrogates, which can be in neither a file name nor a recording nor a report.
        json.dumps(description, ensure_ascii=False).encode()
    except OSError as error:
        raise UsageError(f"{str(source)!r} cannot be read: {describe_cause(error)}.", hint="Check the path.") from None
    except UnicodeEncodeError as error:
        nearby_text = (
            error.object[max(error.start - 20, 0) : error.end + 20].encode("ascii", "backslashreplace").decode()
        )
        raise _description_error(source, f"it has text that is not valid Unicode, near '{nearby_text}'") from None
    except (ValueError, RecursionError) as error:
        raise _description_error(source, f"it is not JSON ({str(error)[:100]})") from None
    if (
        not isinstance(description, dict)
        or description.get("format") != "qdebug.dump"
        or description.get("version") != 1
    ):
        raise _description_error(source, 'it does not say "format": "qdebug.dump", "version": 1')
    _check_keys(source, "", description, _RUN_KEYS)
    return description


def _reject_constant(word: str) -> float:
    raise ValueError(f"it contains {word}, which is not a JSON number")


def _describe_tensor(files: Files, source: Path, number: int, entry: dict[str, Any], *, graph: bool) -> DumpedTensor:
    title = f"tensors[{number}]"
    _check_keys(source, title, entry, (*_TENSOR_KEYS, *_PUT_FACTS))
    name = entry.get("file")
    if not isinstance(name, str) or not name or "\0" in name:
        raise _description_error(source, f"{title} has no file name")
    tensor = entry.get("tensor", Path(name).stem)
    if not isinstance(tensor, str) or not tensor:
        raise _description_error(source, f"{title} has no tensor name")
    constant = entry.get("constant", False)
    if not isinstance(constant, bool):
        raise _description_error(source, f"constant of {title} is {constant!r}, not true or false")
    place = _read_integer(source, number, entry, "sample", 0), _read_integer(source, number, entry, "step", 0)
    facts = {key: entry[key] for key in _PUT_FACTS if entry.get(key) is not None}
    path = files.folder / name
    if path.suffix.lower() in (".npy", ".npz"):
        member = str(entry.get("array", tensor)) if path.suffix.lower() == ".npz" else None
        dumped_tensor = describe_array(files, path, member, name=tensor, location=name, place=place)
        facts |= {"dtype": entry["dtype"]} if "dtype" in entry else {}
        _check_shape(source, title, entry, dumped_tensor)
    else:
        dumped_tensor = describe_raw_file(files, source, title, path, entry, graph=graph)
    return replace(dumped_tensor, name=tensor, location=name, place=place, facts=facts, is_constant=constant)


def _check_shape(source: Path, title: str, entry: Mapping[str, Any], tensor: DumpedTensor) -> None:
    if entry.get("shape") is not None and entry["shape"] != list(tensor.shape):
        raise _description_error(source, f"{title} has shape {entry['shape']}, but the file has {list(tensor.shape)}")


def describe_raw_file(
    files: Files, source: Path, title: str, path: Path, entry: Mapping[str, Any], *, graph: bool
) -> DumpedTensor:
    """Describe a file of elements without a header."""
    shape, offset = entry.get("shape"), entry.get("offset", 0)
    try:
        dtype = logical_dtype(str(entry.get("dtype")))
    except ValueError:
        raise _description_error(
            source, f"{title} has dtype {entry.get('dtype')!r}; use a dtype name of numpy or ml_dtypes"
        ) from None
    order = entry.get("byte_order", "little")
    if order not in ("little", "big"):
        raise _description_error(source, f"byte_order of {title} is {order!r}, neither 'little' nor 'big'")
    if dtype.isbuiltin == 1:
        dtype = dtype.newbyteorder("<" if order == "little" else ">")
    if type(offset) is not int or offset < 0:
        raise _description_error(source, f"offset of {title} is {offset!r}, not a number of bytes")
    is_flat = shape is None
    if is_flat and not graph:
        raise _description_error(source, f"{title} has no shape, and no --graph states it")
    if not is_flat and not (isinstance(shape, list) and all(type(extent) is int and extent >= 0 for extent in shape)):
        raise _description_error(source, f"shape of {title} is {shape!r}, not a list of extents")
    with files.open_member(path) as (_, size):
        available_bytes = size - offset
    extents = (max(available_bytes, 0) // dtype.itemsize,) if shape is None else tuple(shape)
    needed_bytes = math.prod(extents) * dtype.itemsize
    if available_bytes != needed_bytes and not (
        entry.get("offset") is not None and available_bytes > needed_bytes and not is_flat
    ):
        raise UsageError(
            f"The file {str(path)!r} has {size} bytes, but {title} needs {needed_bytes}: {dtype.name} of "
            f"shape {list(extents)}"
            f"{f' after {offset} bytes' if offset else ''}.",
            hint="Correct dtype or shape in the description; with an offset the file may be longer.",
        )

    def load() -> np.ndarray:
        with files.open_member(path) as (file, size):
            if size < offset + needed_bytes:
                raise UsageError(f"The file {str(path)!r} changed while it was being read.", hint="Import again.")
            file.seek(offset)
            return read_elements(file, dtype, extents, path, None)

    return DumpedTensor(name="", location="", dtype=dtype, shape=extents, load=load, is_flat=is_flat)


def _read_integer(source: Path, number: int, entry: Mapping[str, Any], key: str, default: int) -> int:
    value = entry.get(key, default)
    if type(value) is not int or not 0 <= value < _MAX_INTEGER:
        raise _description_error(source, f"{key} of tensors[{number}] is {value!r}, not an integer from 0")
    return value


def _check_keys(source: Path, title: str, table: Mapping[str, Any], known_keys: Sequence[str]) -> None:
    unknown_keys = [key for key in table if key not in known_keys]
    if unknown_keys:
        raise _description_error(
            source,
            f"{title + ' has' if title else 'it has'} an unknown key {unknown_keys[0]!r}; known keys are "
            f"{', '.join(known_keys)}",
        )


def _description_error(source: Path, reason: str) -> UsageError:
    return UsageError(
        f"The description {str(source)!r} cannot be parsed: {reason}.",
        hint="See `qdebug help import` for the format of a description.",
    )
