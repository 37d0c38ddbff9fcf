"""Databases that ONNX Runtime's node dumps write, one row for each tensor and run.

ONNX Runtime writes them with `ORT_DEBUG_NODE_IO_DUMP_DATA_DESTINATION=sqlite`, if it is built with
`onnxruntime_DEBUG_NODE_INPUTS_OUTPUTS_ENABLE_DUMP_TO_SQLDB`. The tables are those of
`onnxruntime/core/framework/debug_node_inputs_outputs_utils.cc`: `Tensors` has the run (`Step`), the name, a TensorProto
and the node that computed it; `Nodes` has the order and the execution provider of each node.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

import numpy as np

from qdebug.importing.dump import Dump, DumpedTensor
from qdebug.importing.files import Files, damaged
from qdebug.importing.formats.tensor_proto import TensorMessage, decode_tensor_proto
from qdebug.model import Graph
from qdebug.model.dtypes import logical_dtype
from qdebug.regular_file import open_binary

__all__ = ["is_onnxruntime_database", "read_onnxruntime_database"]

_KIND = "database of ONNX Runtime's node dumps"
_START = b"SQLite format 3\0"
_COLUMNS = {"Tensors": {"Step", "Name", "Value"}, "Nodes": {"ExecutionCounter", "Name", "OpType", "ExecutionProvider"}}


def is_onnxruntime_database(path: Path) -> bool:
    """Return whether a file is a database of SQLite."""
    if not path.is_file():
        return False
    with open_binary(path) as file:
        return file.read(len(_START)) == _START


def read_onnxruntime_database(files: Files, source: Path, graph: Graph | None) -> Dump:
    """List the tensors in the order of the nodes that computed them. Each run is a sample.

    Args:
        files: The files of the dump.
        source: The database.
        graph: Not used.

    Raises:
        UsageError: The database is damaged, or has other tables.
    """
    del files, graph
    ignored: dict[str, str] = {}
    log = source.with_name(f"{source.name}-wal")
    if log.is_file() and log.stat().st_size:
        ignored[log.name] = "rows that were not written into the database; open and close it with sqlite3"
    with _open_database(source) as connection:
        _check_tables(connection, source)
        nodes = connection.execute("select Name, ExecutionCounter, ExecutionProvider from Nodes").fetchall()
        order = {str(name): int(counter or 0) for name, counter, _ in nodes}
        rows = connection.execute("select rowid, Step, Name, TracedProducer from Tensors").fetchall()
        rows.sort(key=lambda row: (int(row[1]), order.get(str(row[3] or "").rpartition(":")[0], -1), row[0]))
        first_step = int(rows[0][1]) if rows else 0
        tensors = []
        for row, step, name, _ in rows:
            message = _read_message(connection, source, row)
            location = f"{source.name}:{name} of run {step}"
            if message.dtype is None or message.is_external:
                ignored[location] = "its dtype is unknown"
                continue
            tensors.append(
                DumpedTensor(
                    name=str(name),
                    location=location,
                    dtype=logical_dtype(message.dtype),
                    shape=message.shape,
                    load=partial(_read_array, source, row),
                    place=(int(step) - first_step, 0),
                )
            )
    providers = Counter(str(provider or "unknown") for *_, provider in nodes)
    remarks = [f"nodes ran on {', '.join(f'{name} ({count})' for name, count in providers.items())}"] if nodes else []
    return Dump(tensors=tensors, ignored=ignored, facts={"backend": "onnxruntime"}, remarks=remarks)


@contextmanager
def _open_database(source: Path) -> Iterator[sqlite3.Connection]:
    """Open a database read-only, with functions in its schema disabled. Errors of SQLite become a `UsageError`."""
    uri = f"file:{quote(os.path.realpath(source))}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(uri, uri=True)
        try:
            for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON"):
                connection.execute(f"pragma {pragma}")
            yield connection
        finally:
            connection.close()
    except (sqlite3.Error, OverflowError, TypeError, ValueError) as error:
        raise damaged(source, None, str(error), kind=_KIND) from None


def _check_tables(connection: sqlite3.Connection, source: Path) -> None:
    """Reject a database without the tables of a node dump. A view is not accepted, since it runs a query of the file.

    Raises:
        UsageError: A table or a column is missing.
    """
    for table, columns in _COLUMNS.items():
        kinds = connection.execute("select type from sqlite_master where name = ?", (table,)).fetchall()
        names = {row[1] for row in connection.execute(f"pragma table_info({table})")}
        if kinds != [("table",)] or not columns <= names:
            raise damaged(source, None, f"it has no table {table} with the expected columns", kind=_KIND)


def _read_message(connection: sqlite3.Connection, source: Path, row: int) -> TensorMessage:
    (content,) = connection.execute("select Value from Tensors where rowid = ?", (row,)).fetchone()
    if not isinstance(content, bytes):
        raise damaged(source, None, "a tensor has no value", kind=_KIND)
    return decode_tensor_proto(content)


def _read_array(source: Path, row: int) -> np.ndarray:
    with _open_database(source) as connection:
        return _read_message(connection, source, row).array()
