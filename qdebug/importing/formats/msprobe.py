"""Dumps of Ascend's msprobe: a `dump.json` with the calls of a run, and a file for each tensor.

See https://gitee.com/ascend/mstt, `debug/accuracy_tools/msprobe`: the key of a call is TYPE.NAME.NUMBER.forward, or
Module.PATH.CLASS.forward.NUMBER. If the task is "tensor", each value names its file (`data_name`) in `dump_data_dir`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from qdebug.importing.dump import Dump, DumpedTensor
from qdebug.importing.files import Files, damaged
from qdebug.importing.formats.arrays import describe_array
from qdebug.importing.formats.calls import Calls
from qdebug.importing.formats.torch_file import tensors_of_torch_file
from qdebug.model import Graph
from qdebug.regular_file import read_regular

__all__ = ["is_msprobe", "read_msprobe"]

_KIND = "dump.json of msprobe"
_FILE = "dump.json"
_MAX_BYTES = 256 << 20
_GROUPS = ("input_args", "input", "input_kwargs", "parameters", "output")
"""Groups of a call's values, inputs before outputs."""
_ROLES: Mapping[str, str] = MappingProxyType({"output": "outputs", "parameters": "parameters"})
"""Role of a group of values in its call. All other groups are inputs."""
_TENSOR_TYPES = ("torch.Tensor", "mindspore.Tensor")


def _description_path(source: Path) -> Path:
    return source / _FILE if source.is_dir() else source


def is_msprobe(source: Path) -> bool:
    """Return whether a source is a dump.json of msprobe, or a folder with one."""
    path = _description_path(source)
    if path.name != _FILE or not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(4096)
    return b'"dump_data_dir"' in start or (b'"task"' in start and b'"level"' in start)


def read_msprobe(files: Files, source: Path, graph: Graph | None) -> Dump:
    """List the outputs of all calls in order, and the inputs and parameters that no earlier call computed.

    Args:
        files: The files of the dump.
        source: The folder, or its `dump.json`.
        graph: Not used.

    Raises:
        UsageError: The description is damaged, or a file is missing.
    """
    del graph
    path = _description_path(source)
    try:
        content = json.loads(read_regular(path, _MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, None, str(error)[:100], kind=_KIND) from None
    calls = content.get("data") if isinstance(content, dict) else None
    if not isinstance(calls, dict):
        raise damaged(path, None, "it has no calls", kind=_KIND)
    folder = _find_folder(path, str(content.get("dump_data_dir") or ""))
    calls_of_dump, ignored = Calls(), dict[str, str]()
    for call, values in calls.items():
        if not isinstance(values, dict) or ".backward" in call:
            ignored[call] = "a backward call" if ".backward" in call else "no values"
        else:
            tensors = _tensors_of_call(files, folder, ignored, call, values)
            calls_of_dump.add(call, _operator_of_call(call), **tensors)
    backend = f"msprobe {content.get('level', '')}".strip()
    return Dump(tensors=calls_of_dump.tensors, ignored=ignored, facts={"backend": backend})


def _tensors_of_call(
    files: Files, folder: Path, ignored: dict[str, str], call: str, values: Mapping[str, Any]
) -> dict[str, list[DumpedTensor]]:
    """Return the tensors of a call by their role in it."""
    groups: dict[str, list[DumpedTensor]] = {"inputs": [], "outputs": [], "parameters": []}
    for group in _GROUPS:
        for entry in _iterate_tensors(values.get(group)):
            tensor = _describe_tensor(files, folder, ignored, f"{call}.{group}", entry)
            if tensor is not None:
                groups[_ROLES.get(group, "inputs")].append(tensor)
    return groups


def _describe_tensor(
    files: Files, folder: Path, ignored: dict[str, str], title: str, entry: Mapping[str, Any]
) -> DumpedTensor | None:
    """Describe the tensor of an entry, named after its file; None if the entry has only statistics."""
    name = entry.get("data_name")
    if not isinstance(name, str) or not name:
        ignored[title] = "statistics only; dump with task = tensor"
        return None
    path = folder / name
    if path.suffix == ".npy":
        return describe_array(files, path, None, name=path.stem, location=path.name, place=(0, 0))
    tensor = next(tensors_of_torch_file(files, path, (0, 0), "", ignored), None)
    return None if tensor is None else replace(tensor, name=path.stem, location=path.name)


def _find_folder(path: Path, stated: str) -> Path:
    """Return the folder of the tensors. It is searched next to the description, since the dump may have been moved."""
    sibling = path.parent / (Path(stated.replace("\\", "/")).name or "dump_tensor_data")
    return sibling if sibling.is_dir() else path.parent


def _iterate_tensors(values: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the tensors among the values of a group, which may be nested."""
    pending = [values]
    while pending:
        value = pending.pop()
        if isinstance(value, dict) and value.get("type") in _TENSOR_TYPES:
            yield value
        elif isinstance(value, dict):
            pending += [*value.values()][::-1]
        elif isinstance(value, list):
            pending += value[::-1]


def _operator_of_call(call: str) -> str:
    """Return the operator of a call: Functional.conv2d.0.forward is conv2d, Module.layer1.0.Linear.forward.0 Linear."""
    parts = [part for part in re.sub(r"\.(forward|backward).*", "", call).split(".") if not part.isdigit()]
    return parts[-1] if parts else call
