"""Dumps of other tools: their tensors, with values read on demand.

Each dump format is one row of `SOURCES` and one function that lists its tensors. Listing reads only headers. A stated
size is checked against the file before anything is allocated, links that lead outside the dump's folder are not
followed, and Python objects are never read.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.errors import UsageError
from qdebug.importing.files import MAX_FILES, Files, damaged, read_elements, read_header
from qdebug.importing.names import Rename
from qdebug.model import Graph, Node, Role, TensorInfo
from qdebug.model.dtypes import logical_dtype
from qdebug.recording.target import describe_cause
from qdebug.recording.writing.write import At
from qdebug.regular_file import read_regular

__all__ = ["SOURCES", "TENSOR_NAMES", "Dump", "DumpFormat", "DumpedTensor", "read_dump"]

TENSOR_NAMES = "tensor_names"
"""Name of an array in an .npz file that maps arrays to tensors: rows of two texts."""

_MAX_DESCRIPTION_BYTES = 64 << 20
_MAX_PLACE = 1 << 32
_NUMBERED = re.compile(r"(.*?)(\d{1,9})")
_NUMBER = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedTensor:
    """Values of one tensor at one sample and step.

    Args:
        name: The tensor's name in the dump.
        location: The file, and the array inside it.
        dtype: Dtype of the elements; untyped bytes if the file cannot name it.
        shape: Its extents.
        load: Reads the values.
        place: Sample and step.
        facts: Facts from the dump, as arguments of `Recorder.put`.
        is_constant: Whether it is a constant.
        is_flat: Whether the shape is not stated, so that only the number of elements is known.
        is_raw: Whether the type is not stated either, so that only the bytes are known.
    """

    name: str
    location: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    load: Callable[[], np.ndarray]
    place: At = (0, 0)
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    is_constant: bool = False
    is_flat: bool = False
    is_raw: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """The content of a dump.

    Args:
        tensors: The tensors in the order of the run, as far as the dump shows it.
        ignored: Files that were not read, with the reason.
        facts: Facts of the run: "backend", "model", "outputs", "op_map".
        graph: The graph of this dump, if its format provides more than the model; None for the model's graph.
        said: Further sentences about how the dump was interpreted.
    """

    tensors: Sequence[DumpedTensor]
    ignored: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    graph: Graph | None = None
    said: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpFormat:
    """A dump format.

    Args:
        read: Lists the tensors, given the files, the source and the model's graph, if any.
        summary: One line for `--help`.
        recognizes: Returns whether a source has this format. Formats that cannot be recognized must be named.
    """

    read: Callable[[Files, Path, Graph | None], Dump]
    summary: str
    recognizes: Callable[[Path], bool] = lambda path: False  # noqa: ARG005


@contextmanager
def read_dump(
    source: Path, form: str | None = None, graph: Graph | None = None, *, rename: Rename = str
) -> Iterator[tuple[str, Dump]]:
    """List the tensors of a dump; their values can be read inside the block.

    Args:
        source: A folder or a file.
        form: A name in `SOURCES`; None to recognize it.
        graph: The graph of the model, which some formats need.
        rename: Changes the names of tensors.

    Yields:
        The name of the format, and the content of the dump.

    Raises:
        UsageError: The source is missing, damaged, of unknown format, or does not contain a tensor.
    """
    if not source.exists():
        raise UsageError(f"There is no file or folder {str(source)!r}.", hint="Give the path of the dump.")
    form = form or next((name for name, row in SOURCES.items() if row.recognizes(source)), "")
    if form not in SOURCES:
        raise UsageError(
            f"{str(source)!r} is not a known kind of dump; expected a folder, an .npz or .npy file, or a .json file "
            "that describes raw files.",
            hint="See `qdebug import --help` for the supported kinds.",
        )
    with closing(Files(source if source.is_dir() else source.parent)) as files:
        dump = SOURCES[form].read(files, source, graph)
        dump = replace(dump, tensors=[replace(entry, name=rename(entry.name)) for entry in dump.tensors])
        _check_tensors(source, dump)
        yield form, dump


def _check_tensors(source: Path, dump: Dump) -> None:
    """Reject a dump without tensors, or with duplicate tensors.

    Raises:
        UsageError: There are no tensors, or a tensor occurs twice.
    """
    if not dump.tensors:
        not_read_text = (
            f"; not read: {', '.join(repr(name[-60:]) for name in [*dump.ignored][:3])}" if dump.ignored else ""
        )
        has_raw = any(name.endswith((".raw", ".bin")) for name in dump.ignored)
        raise UsageError(
            f"{str(source)!r} holds no readable tensor{not_read_text}.",
            hint="Raw files need --graph MODEL or a description (see `qdebug help import`). Dumps of the LiteRT "
            "accuracy debugger need --source-format litert-debugger."
            if has_raw
            else "Give a folder of .npy or .npz files, an .npz file, or a JSON description.",
        )
    tensor_at: dict[tuple[str, At], str] = {}
    for entry in dump.tensors:
        first_location = tensor_at.setdefault((entry.name, entry.place), entry.location)
        if first_location is not entry.location:
            raise UsageError(
                f"Both {first_location!r} and {entry.location!r} hold tensor {entry.name!r} for sample "
                f"{entry.place[0]}, step "
                f"{entry.place[1]}.",
                hint="Keep one of them, or put samples into folders that end in a number: sample0, sample1.",
            )


# -- folders and archives of NumPy arrays ----------------------------------------------------------------------------


def _read_arrays(files: Files, source: Path, graph: Graph | None) -> Dump:
    """List the arrays of a folder, an archive or a file, with raw files if a model knows their type."""
    tensors: list[DumpedTensor] = []
    ignored: dict[str, str] = {}
    if not source.is_dir():
        tensors += _arrays_of(files, source, (0, 0), "", ignored)
        return Dump(tensors=tensors, ignored=ignored)
    remarks: list[str] = []
    for place, path in _samples_and_steps(source, remarks):
        paths = sorted(
            files.files_below(path) if path.is_dir() else [path], key=lambda file_path: _natural_key(str(file_path))
        )
        for file_path in paths:
            is_raw = file_path.suffix.lower() in _RAW_SUFFIXES and graph is not None
            if file_path.suffix.lower() not in (".npy", ".npz") and not is_raw:
                ignored[os.path.relpath(file_path, source)] = _REASONS_NOT_READ.get(
                    file_path.suffix.lower(), "neither .npy nor .npz"
                )
            elif not files.is_inside(file_path):
                ignored[os.path.relpath(file_path, source)] = "it points outside the folder"
            else:
                prefix = "" if file_path == path else str(file_path.relative_to(path).parent)
                prefix = f"{prefix}/" if prefix not in ("", ".") else ""
                tensors += (
                    [_untyped_file(files, file_path, place, prefix)]
                    if is_raw
                    else _arrays_of(files, file_path, place, prefix, ignored)
                )
    return Dump(tensors=tensors, ignored=ignored, said=remarks)


_RAW_SUFFIXES = (".raw", ".bin")
"""Suffixes of files that contain elements without a header."""

_REASONS_NOT_READ = dict.fromkeys(_RAW_SUFFIXES, "a raw file, and no --graph states its type and shape")


def _untyped_file(files: Files, path: Path, place: At, prefix: str) -> DumpedTensor:
    """Describe a file of elements of which only the total size is known."""
    with files.open_member(path) as (_, size):
        extents = (size,)

    def load() -> np.ndarray:
        with files.open_member(path) as (file, current_size):
            if current_size != size:
                raise UsageError(f"The file {str(path)!r} changed while it was read.", hint="Import again.")
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


def _samples_and_steps(source: Path, remarks: list[str]) -> Iterator[tuple[At, Path]]:
    """Yield the folder or archive of each sample and step: numbered ones if there are only those, else the source."""
    entries_by_number = _numbered_entries(source)
    if entries_by_number is None:
        yield (0, 0), source
        return
    first_number = min(entries_by_number)
    are_steps = entries_by_number[first_number].stem.lower().rstrip("_-.0123456789").endswith("step")
    kind = "step" if are_steps else "sample"
    remarks.append(
        f"{len(entries_by_number)} {kind}s by the numbers of {entries_by_number[first_number].name!r} to "
        f"{entries_by_number[max(entries_by_number)].name!r}"
    )
    for number, path in sorted(entries_by_number.items()):
        inner_entries = None if are_steps or not path.is_dir() else _numbered_entries(path)
        if inner_entries is None or not next(iter(inner_entries.values())).stem.lower().rstrip(
            "_-.0123456789"
        ).endswith("step"):
            yield ((0, number - first_number) if are_steps else (number - first_number, 0)), path
        else:
            yield from (
                ((number - first_number, inner_number - min(inner_entries)), inner_path)
                for inner_number, inner_path in sorted(inner_entries.items())
            )


def _numbered_entries(folder: Path) -> dict[int, Path] | None:
    """Return folders or archives by the last number in their names; None if the names differ elsewhere."""
    with os.scandir(folder) as entries_of_folder:
        entries = [Path(entry.path) for _, entry in zip(range(MAX_FILES), entries_of_folder, strict=False)]
    are_folders = all(entry.is_dir() and not entry.is_symlink() for entry in entries)
    if not entries or not (
        are_folders or (len(entries) > 1 and all(entry_path.suffix.lower() == ".npz" for entry_path in entries))
    ):
        return None
    parts = [_NUMBERED.fullmatch(entry.name if are_folders else entry.stem) for entry in entries]
    numbers = {int(part[2]): entry for part, entry in zip(parts, entries, strict=True) if part is not None}
    name_stems = {part[1] if part is not None else None for part in parts}
    return numbers if len(numbers) == len(entries) and len(name_stems) == 1 else None


def _natural_key(name: str) -> list[Any]:
    """Return a sort key that orders numbers in names by value."""
    return [int(part) if part.isdecimal() and len(part) < 19 else part for part in _NUMBER.split(name)]


def _arrays_of(files: Files, path: Path, place: At, prefix: str, ignored: dict[str, str]) -> Iterator[DumpedTensor]:
    """Yield the arrays of an .npy or .npz file. Arrays without a name are added to `ignored`."""
    location = os.path.relpath(path, files.folder)
    if path.suffix.lower() == ".npy":
        yield _array(files, path, None, name=prefix + path.stem, location=location, place=place)
        return
    members = files.members(path)
    names = _tensor_names(files, path) if TENSOR_NAMES in members else {}
    for member in members:
        name = names.get(member, member)
        if member == TENSOR_NAMES and names:
            continue
        if name:
            yield _array(files, path, member, name=prefix + name, location=f"{location}:{member}", place=place)
        else:
            ignored[f"{location}:{member}.npy"] = "the array has no name"


def _tensor_names(files: Files, path: Path) -> dict[str, str]:
    """Return the tensor of each array if an archive states it, as archives from `qdebug export npz` do."""
    with files.open_member(path, TENSOR_NAMES) as (file, size):
        dtype, shape, _ = read_header(file, size, path, TENSOR_NAMES)
        if dtype.kind != "U" or len(shape) != 2 or shape[1] != 2:
            return {}
        rows = np.frombuffer(file.read(math.prod(shape) * dtype.itemsize), dtype).reshape(shape)
    return {str(member): str(name) for member, name in rows}


def _array(files: Files, path: Path, member: str | None, *, name: str, location: str, place: At) -> DumpedTensor:
    with files.open_member(path, member) as (file, size):
        header = read_header(file, size, path, member)

    def load() -> np.ndarray:
        with files.open_member(path, member) as (file, size):
            if read_header(file, size, path, member) != header:
                raise damaged(path, member, "it changed while it was read")
            dtype, shape, is_fortran = header
            return read_elements(file, dtype, shape, path, member, order="F" if is_fortran else "C")

    return DumpedTensor(name=name, location=location, dtype=header[0], shape=header[1], load=load, place=place)


# -- raw files and a description ------------------------------------------------------------------------------------

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


def _read_description(files: Files, source: Path, graph: Graph | None) -> Dump:
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
        raise _invalid(
            source,
            "backend and model must be strings, outputs and tensors must be lists, and each tensor must be an object",
        )
    op_map = description.get("op_map", {})
    if not isinstance(op_map, dict) or not all(isinstance(value, str) and value for value in op_map.values()):
        raise _invalid(source, "op_map must map each operator name of the dump to another name")
    tensors = [
        (
            _integer(source, number, entry, "order", number),
            _described_tensor(files, source, number, entry, graph=graph is not None),
        )
        for number, entry in enumerate({**defaults, **value} for value in entries)
    ]
    tensors.sort(key=lambda pair: pair[0])
    names_known = {tensor.name for _, tensor in tensors} | (set() if graph is None else graph.tensors.keys())
    unknown_output = next((name for name in outputs if name not in names_known), None)
    if unknown_output is not None:
        raise _invalid(source, f"the output {unknown_output!r} is not a tensor of the dump")
    facts = {**run_facts, "outputs": tuple(outputs), **({"op_map": op_map} if op_map else {})}
    return Dump(tensors=[tensor for _, tensor in tensors], facts=facts)


def _parse_description(source: Path) -> dict[str, Any]:
    """Return the parsed content of a description.

    Raises:
        UsageError: It is invalid, or has unknown keys.
    """
    try:
        description = json.loads(read_regular(source, _MAX_DESCRIPTION_BYTES), parse_constant=_reject_constant)
        json.dumps(
            description, ensure_ascii=False
        ).encode()  # a lone surrogate cannot be in a file name, recording or report
    except OSError as error:
        raise UsageError(f"{str(source)!r} cannot be read: {describe_cause(error)}.", hint="Check the path.") from None
    except UnicodeEncodeError as error:
        nearby_text = (
            error.object[max(error.start - 20, 0) : error.end + 20].encode("ascii", "backslashreplace").decode()
        )
        raise _invalid(source, f"it has text that is not valid Unicode, near '{nearby_text}'") from None
    except (ValueError, RecursionError) as error:
        raise _invalid(source, f"it is not JSON ({str(error)[:100]})") from None
    if (
        not isinstance(description, dict)
        or description.get("format") != "qdebug.dump"
        or description.get("version") != 1
    ):
        raise _invalid(source, 'it does not say "format": "qdebug.dump", "version": 1')
    _check_keys(source, "", description, _RUN_KEYS)
    return description


def _reject_constant(word: str) -> float:
    raise ValueError(f"it contains {word}, which is not a JSON number")


def _described_tensor(files: Files, source: Path, number: int, entry: dict[str, Any], *, graph: bool) -> DumpedTensor:
    title = f"tensors[{number}]"
    _check_keys(source, title, entry, (*_TENSOR_KEYS, *_PUT_FACTS))
    name = entry.get("file")
    if not isinstance(name, str) or not name or "\0" in name:
        raise _invalid(source, f"{title} names no file")
    tensor = entry.get("tensor", Path(name).stem)
    if not isinstance(tensor, str) or not tensor:
        raise _invalid(source, f"{title} names no tensor")
    constant = entry.get("constant", False)
    if not isinstance(constant, bool):
        raise _invalid(source, f"constant of {title} is {constant!r}, not true or false")
    place = _integer(source, number, entry, "sample", 0), _integer(source, number, entry, "step", 0)
    facts = {key: entry[key] for key in _PUT_FACTS if entry.get(key) is not None}
    path = files.folder / name
    if path.suffix.lower() in (".npy", ".npz"):
        member = str(entry.get("array", tensor)) if path.suffix.lower() == ".npz" else None
        tensor_found = _array(files, path, member, name=tensor, location=name, place=place)
        facts |= {"dtype": entry["dtype"]} if "dtype" in entry else {}
        _check_shape(source, title, entry, tensor_found)
    else:
        tensor_found = _raw_file(files, source, title, path, entry, graph=graph)
    return replace(tensor_found, name=tensor, location=name, place=place, facts=facts, is_constant=constant)


def _check_shape(source: Path, title: str, entry: Mapping[str, Any], tensor: DumpedTensor) -> None:
    if entry.get("shape") is not None and entry["shape"] != list(tensor.shape):
        raise _invalid(source, f"{title} has shape {entry['shape']}, but the file has {list(tensor.shape)}")


def _raw_file(
    files: Files, source: Path, title: str, path: Path, entry: Mapping[str, Any], *, graph: bool
) -> DumpedTensor:
    """Describe a file of elements without a header."""
    shape, offset = entry.get("shape"), entry.get("offset", 0)
    try:
        dtype = logical_dtype(str(entry.get("dtype")))
    except ValueError:
        raise _invalid(
            source, f"{title} has dtype {entry.get('dtype')!r}; use a dtype name of numpy or ml_dtypes"
        ) from None
    order = entry.get("byte_order", "little")
    if order not in ("little", "big"):
        raise _invalid(source, f"byte_order of {title} is {order!r}, neither 'little' nor 'big'")
    if dtype.isbuiltin == 1:
        dtype = dtype.newbyteorder("<" if order == "little" else ">")
    if type(offset) is not int or offset < 0:
        raise _invalid(source, f"offset of {title} is {offset!r}, not a number of bytes")
    is_flat = shape is None
    if is_flat and not graph:
        raise _invalid(source, f"{title} has no shape, and no --graph states it")
    if not is_flat and not (isinstance(shape, list) and all(type(extent) is int and extent >= 0 for extent in shape)):
        raise _invalid(source, f"shape of {title} is {shape!r}, not a list of extents")
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
                raise UsageError(f"The file {str(path)!r} changed while it was read.", hint="Import again.")
            file.seek(offset)
            return read_elements(file, dtype, extents, path, None)

    return DumpedTensor(name="", location="", dtype=dtype, shape=extents, load=load, is_flat=is_flat)


def _integer(source: Path, number: int, entry: Mapping[str, Any], key: str, default: int) -> int:
    value = entry.get(key, default)
    if type(value) is not int or not 0 <= value < _MAX_PLACE:
        raise _invalid(source, f"{key} of tensors[{number}] is {value!r}, not an integer from 0")
    return value


def _check_keys(source: Path, title: str, table: Mapping[str, Any], known_keys: Sequence[str]) -> None:
    unknown_keys = [key for key in table if key not in known_keys]
    if unknown_keys:
        raise _invalid(
            source,
            f"{title + ' has' if title else 'it has'} an unknown key {unknown_keys[0]!r}; known keys are "
            f"{', '.join(known_keys)}",
        )


def _invalid(source: Path, reason: str) -> UsageError:
    return UsageError(
        f"The description {str(source)!r} cannot be understood: {reason}.",
        hint="See `qdebug help import` for the format of a description.",
    )


# -- the LiteRT accuracy debugger -----------------------------------------------------------------------------------

_OP_FILE = re.compile(r"op_(\d{1,9})_.*\.raw", re.DOTALL)


def _read_litert_debugger(files: Files, source: Path, graph: Graph | None) -> Dump:
    """List the tensors that the LiteRT accuracy debugger wrote for an accelerator.

    The debugger runs each operator separately. An operator's input is a separate tensor if it differs in any bit from
    the output of the preceding operator.
    """
    if graph is None or not source.is_dir():
        raise UsageError(
            "The LiteRT accuracy debugger writes one folder per accelerator, without shapes and types.",
            hint="Give that folder and its model: qdebug import OUT/cpu --source-format litert-debugger --graph "
            "MODEL.tflite -o OUT.h5.",
        )
    outputs: dict[str, DumpedTensor] = {}
    inputs: dict[tuple[int, str], DumpedTensor] = {}
    ignored: dict[str, str] = {}
    for path in sorted(files.files_below(source)):
        operand = _operand_of_file(graph, path)
        if operand is None:
            ignored[os.path.relpath(path, source)] = "not an operand of the model's operators"
            continue
        index, direction, tensor = operand
        entry = _raw_file_of_graph(files, path, graph.tensors[tensor])
        if direction == "out":
            outputs[tensor] = entry
        else:
            inputs[index, tensor] = entry
    own_inputs: dict[tuple[int, str], str] = {}
    for (index, tensor), entry in inputs.items():
        if tensor not in outputs and graph.producer(tensor) is None:
            outputs[tensor] = entry
        elif tensor not in outputs or outputs[tensor].load().tobytes() != entry.load().tobytes():
            own_inputs[index, tensor] = f"{tensor} into {graph.nodes[index].name}"
    input_tensors = [replace(inputs[key], name=name) for key, name in own_inputs.items()]
    count = "1 operand is" if len(own_inputs) == 1 else f"{len(own_inputs)} operands are"
    remarks = (
        [f"{count} not equal to the previous operator's output; operators ran by themselves"] if own_inputs else []
    )
    return Dump(
        tensors=[*outputs.values(), *input_tensors],
        ignored=ignored,
        graph=_with_own_inputs(graph, own_inputs),
        said=remarks,
    )


def _operand_of_file(graph: Graph, path: Path) -> tuple[int, str, str] | None:
    """Return the operator's number, the direction and the tensor in a file's name; None if none matches."""
    number = _OP_FILE.fullmatch(path.name)
    index = int(number[1]) if number is not None else len(graph.nodes)
    if index >= len(graph.nodes):
        return None
    node = graph.nodes[index]
    for direction, names in (("out", node.outputs), ("in", node.inputs)):
        for name in filter(None, names):
            name_pattern = re.escape(re.sub(r"[()\[\]/: ]", "_", name))
            if re.fullmatch(rf"op_\d+_.+_{direction}_\d+_{name_pattern}\.raw", path.name, re.DOTALL):
                return index, direction, name
    return None


def _raw_file_of_graph(files: Files, path: Path, info: TensorInfo) -> DumpedTensor:
    """Describe a raw file by the model's facts about its tensor."""
    is_open = info.shape is None or None in info.shape
    entry = {"dtype": info.dtype, "shape": None if is_open else list(info.shape or ())}
    tensor = _raw_file(files, path, f"the model's {info.name!r}", path, entry, graph=True)
    return replace(tensor, name=info.name, location=os.path.relpath(path, files.folder))


def _with_own_inputs(graph: Graph, input_names: Mapping[tuple[int, str], str]) -> Graph:
    """Return the graph in which operators read separate input tensors."""
    nodes: list[Node] = [
        replace(node, inputs=tuple(input_names.get((index, name), name) for name in node.inputs))
        for index, node in enumerate(graph.nodes)
    ]
    input_infos = [
        replace(graph.tensors[tensor], name=name, role=Role.INPUT) for (_, tensor), name in input_names.items()
    ]
    return Graph(
        nodes,
        tensors=[*graph.tensors.values(), *input_infos],
        inputs=(*graph.inputs, *input_names.values()),
        outputs=graph.outputs,
        name=graph.name,
        opset=graph.opset,
    )


SOURCES: Mapping[str, DumpFormat] = MappingProxyType(
    {
        "arrays": DumpFormat(
            read=_read_arrays,
            summary="a folder of .npy and .npz files, or a single file",
            recognizes=lambda path: path.is_dir() or path.suffix.lower() in (".npy", ".npz"),
        ),
        "description": DumpFormat(
            read=_read_description,
            summary="a JSON file that describes raw or numpy files",
            recognizes=lambda path: path.suffix.lower() == ".json",
        ),
        "litert-debugger": DumpFormat(
            read=_read_litert_debugger,
            summary="a folder of the LiteRT accuracy debugger, with its .tflite model as --graph",
        ),
    }
)
"""Dump formats by their name for `--source-format`. The first one that matches a source is used."""
