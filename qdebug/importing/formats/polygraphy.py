"""Results and inputs that Polygraphy saved as JSON, which contains arrays in NumPy's format.

See https://github.com/NVIDIA/TensorRT/tree/main/tools/Polygraphy, `polygraphy.json`: an array is {"array": base64 of
numpy.save, "polygraphy_class": "ndarray"}; results are lists of a runner's name and its iterations.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.errors import UsageError
from qdebug.importing.dump import Dump, DumpedTensor
from qdebug.importing.files import Files, damaged, read_elements, read_header
from qdebug.model import Graph
from qdebug.regular_file import read_regular
from qdebug.running.feeds import UNREADABLE

__all__ = ["is_polygraphy", "read_polygraphy"]

_KIND = "JSON file of Polygraphy"
_CLASS = "polygraphy_class"
_MAX_BYTES = 4 << 30
_START_BYTES = 4096
"""Number of bytes at the start of a file that are searched for the names of Polygraphy's classes."""


def is_polygraphy(path: Path) -> bool:
    """Return whether a file is a JSON file of Polygraphy."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(_START_BYTES)
    return b'"polygraphy_class"' in start or (b'"lst"' in start and b'"array"' in start) or _begins_with_inputs(start)


def _begins_with_inputs(start: bytes) -> bool:
    """Return whether the JSON is a list that begins with an array in NumPy's format (base64 of its magic bytes)."""
    return start.lstrip().startswith(b"[") and b'"array": "k05VTVBZ' in start


def read_polygraphy(files: Files, source: Path, graph: Graph | None) -> Dump:
    """List the tensors of the first runner, with each iteration as a sample, or the tensors in a list of inputs.

    Args:
        files: The files of the dump.
        source: The JSON file.
        graph: Not used.

    Raises:
        UsageError: The file is damaged.
    """
    del files, graph
    try:
        content = json.loads(read_regular(source, _MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(source, None, str(error)[:100], kind=_KIND) from None
    remarks: list[str] = []
    backend = ""
    if isinstance(content, dict):
        runners = content.get("lst")
        if not isinstance(runners, list) or not all(isinstance(entry, list) and len(entry) == 2 for entry in runners):
            raise damaged(source, None, "it has no list of runners", kind=_KIND)
        if not runners:
            raise UsageError(f"{str(source)!r} contains no results.", hint="Save the results of a run.")
        backend, samples = (
            str(runners[0][0]),
            [entry.get("outputs") for entry in runners[0][1] if isinstance(entry, dict)],
        )
        if len(runners) > 1:
            remarks.append(f"runner {backend!r} is read; {len(runners) - 1} more in the file are not")
    else:
        samples = content
    if not isinstance(samples, list) or not all(isinstance(entry, dict) for entry in samples):
        raise damaged(source, None, "it contains neither results nor inputs", kind=_KIND)
    tensors = [tensor for number, sample in enumerate(samples) for tensor in _list_tensors(source, number, sample)]
    return Dump(tensors=tensors, facts={"backend": backend} if backend else {}, remarks=remarks)


def _list_tensors(source: Path, sample: int, values: Mapping[str, Any]) -> Iterator[DumpedTensor]:
    for name, value in values.items():
        array = value.get("values") if isinstance(value, dict) and value.get(_CLASS) == "LazyArray" else value
        if name == _CLASS or not isinstance(array, dict) or not isinstance(array.get("array"), str):
            continue
        content = _decode_array(source, name, array["array"])
        yield DumpedTensor(
            name=name,
            location=f"{source.name}:{name} of iteration {sample}",
            dtype=content.dtype,
            shape=content.shape,
            load=partial(np.asarray, content),
            place=(sample, 0),
        )


def _decode_array(source: Path, name: str, text: str) -> np.ndarray:
    try:
        content = base64.b64decode(text, validate=True)
    except UNREADABLE as error:
        raise damaged(source, name, str(error), kind=_KIND) from None
    file = io.BytesIO(content)
    dtype, shape, is_fortran = read_header(file, len(content), source, name)
    return read_elements(file, dtype, shape, source, name, order="F" if is_fortran else "C")
