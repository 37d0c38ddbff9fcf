"""Debug tensors of TensorRT-LLM: `tllm_debug/PP_N/TP_N/iteration_N/TENSOR.npy`.

The names are those of `cpp/tensorrt_llm/batch_manager/utils/debugUtils.cpp`, and of `dump_debug_buffers` in
`tensorrt_llm/runtime/generation.py`, which writes no folders for iterations, but also writes each tensor as text.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from qdebug.errors import UsageError
from qdebug.importing.dump import Dump
from qdebug.importing.files import Files
from qdebug.importing.formats.arrays import read_arrays
from qdebug.model import Graph

__all__ = ["is_tensorrt_llm", "read_tensorrt_llm"]

_RANK = re.compile(r"(PP|TP|CP)_\d+")
_ITERATION = re.compile(r"iteration_\d+")


def is_tensorrt_llm(source: Path) -> bool:
    """Return whether a source is a folder of TensorRT-LLM's debug tensors."""
    if not source.is_dir():
        return False
    names = [path.name for path in source.iterdir()]
    return bool(names) and (
        all(_RANK.fullmatch(name) for name in names) or all(_ITERATION.fullmatch(name) for name in names)
    )


def read_tensorrt_llm(files: Files, source: Path, graph: Graph | None) -> Dump:
    """List the tensors of one rank, with each iteration as a step.

    Args:
        files: The files of the dump.
        source: The folder "tllm_debug", or a folder inside it.
        graph: Not used.

    Raises:
        UsageError: A file is damaged, or the folder contains tensors of several ranks.
    """
    folder = source
    while ranks := sorted(path for path in folder.iterdir() if _RANK.fullmatch(path.name) and path.is_dir()):
        if len(ranks) > 1:
            raise UsageError(
                f"{str(folder)!r} contains tensors of several ranks.",
                hint=f"Import each rank separately: qdebug import {ranks[-1]} -o OUT.h5.",
            )
        folder = ranks[0]
    dump = read_arrays(files, folder, graph)
    ignored = {
        name: "the same values as text" if name.endswith(".txt") else reason for name, reason in dump.ignored.items()
    }
    return replace(dump, ignored=ignored, facts={"backend": "tensorrt-llm"})
