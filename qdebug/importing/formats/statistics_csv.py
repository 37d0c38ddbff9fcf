"""Tables of error statistics: a row for each tensor, without the tensor's values.

TensorFlow Lite's QuantizationDebugger writes one with `layer_statistics_dump`
(`tensorflow/lite/tools/optimize/debugging/python/debugger.py`), LiteRT's accuracy debugger with `--csv`
(`litert/tools/accuracy_debugger/accuracy_debugger_util.cc`). Each statistic becomes a tensor of one element,
"TENSOR:STATISTIC", so that two such tables can be compared.
"""

from __future__ import annotations

import csv
import io
from functools import partial
from pathlib import Path

import numpy as np

from qdebug.importing.dump import Dump, DumpedTensor
from qdebug.importing.files import Files, damaged
from qdebug.model import Graph
from qdebug.regular_file import open_binary, read_regular

__all__ = ["is_statistics_table", "read_statistics_table"]

_KIND = "table of a quantization or accuracy debugger"
_MAX_BYTES = 256 << 20
_NAME_COLUMNS = {"tensor_name": "op_name", "Tensor Name": "Op Code"}
"""Column of the tensor's name for each tool, with another column by which its table is recognized."""
_TEXT_COLUMNS = frozenset({"op_name", "tensor_idx", "tensor_name", "Index", "Op Code", "Tensor Name", "Status"})
_FLAGS = {"Y": 1.0, "N": 0.0}


def _parse_columns(line: str) -> list[str]:
    return next(csv.reader([line]), [])


def _find_name_column(columns: list[str]) -> str | None:
    return next((name for name, partner in _NAME_COLUMNS.items() if name in columns and partner in columns), None)


def is_statistics_table(path: Path) -> bool:
    """Return whether the first line of a file has the columns of such a table."""
    if path.suffix.lower() != ".csv" or not path.is_file():
        return False
    with open_binary(path) as file:
        line = file.readline(1 << 16).decode("utf-8", "replace")
    return _find_name_column(_parse_columns(line)) is not None


def read_statistics_table(files: Files, source: Path, graph: Graph | None) -> Dump:
    """List the statistics of all rows as tensors of one element.

    Args:
        files: The files of the dump.
        source: The table.
        graph: Not used.

    Raises:
        UsageError: The table is damaged.
    """
    del files, graph
    try:
        text = read_regular(source, _MAX_BYTES).decode("utf-8")
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        name_column = _find_name_column(list(rows.fieldnames or ()))
        if name_column is None:
            raise ValueError("its first line names no tensors")
        entries = list(rows)
    except (OSError, ValueError, csv.Error) as error:
        raise damaged(source, None, str(error), kind=_KIND) from None
    tensors: dict[str, DumpedTensor] = {}
    ignored: dict[str, str] = {}
    for number, row in enumerate(entries, start=2):
        name = row.get(name_column)
        if not name or None in row or None in row.values():
            status = row.get("Status") or "it has no tensor, or too few or too many columns"
            ignored[f"line {number}"] = status
            continue
        for column, text in row.items():
            value = _FLAGS.get(text) if column == "NaN" else _parse_number(text)
            if column in _TEXT_COLUMNS or f"{name}:{column}" in tensors:
                continue
            if value is None:
                ignored[f"line {number}, {column}"] = "not a number"
                continue
            tensors[f"{name}:{column}"] = DumpedTensor(
                name=f"{name}:{column}",
                location=f"{source.name}:{number} {column}",
                dtype=np.dtype(np.float64),
                shape=(),
                load=partial(np.asarray, value, np.float64),
            )
    remark = f"statistics of {len(entries)} rows, without the values of the tensors"
    return Dump(tensors=list(tensors.values()), ignored=ignored, remarks=[remark])


def _parse_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
