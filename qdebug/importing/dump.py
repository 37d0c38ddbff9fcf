"""What a dump of another tool holds: its tensors, with values read on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.importing.files import Files
from qdebug.model import Graph
from qdebug.recording.writing.write import Place

__all__ = ["Dump", "DumpFormat", "DumpedTensor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedTensor:
    """Values of one tensor at one sample and step.

    Args:
        name: The tensor's name in the dump.
        location: The file, and the array inside it, for messages.
        dtype: Dtype of the elements; untyped bytes if the file format has no name for it.
        shape: Extents of the tensor.
        load: Reads the values.
        place: Sample and step.
        facts: Facts from the dump, as arguments of `Recorder.put`.
        is_constant: Whether the tensor is a constant.
        is_flat: Whether the dump does not state the shape, so that only the number of elements is known.
        is_raw: Whether the dump does not state the type either, so that only the number of bytes is known.
    """

    name: str
    location: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    load: Callable[[], np.ndarray]
    place: Place = (0, 0)
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
        remarks: Further sentences about how the dump was interpreted.
    """

    tensors: Sequence[DumpedTensor]
    ignored: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    graph: Graph | None = None
    remarks: Sequence[str] = ()


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
