"""Checks of a recording's tables, column by column, before anything is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from qdebug.model import Role
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.store.layout import INDEX_DIMS, MAX_NDIM, NO_PAYLOAD, ROLES, UNKNOWN, physical_dtype

__all__ = ["Tables", "check_graph", "check_index", "check_rows", "check_runs", "constant_tensors"]

Tables = Mapping[str, np.ndarray]
"""Tables by name, with the row types of `qdebug.store.layout.TABLES`."""

_NODE_RUNS = {"inputs": "operands", "outputs": "operands", "origin": "origins", "attrs": "attributes"}


def check_runs(what: str, offsets: np.ndarray, lengths: np.ndarray, size: int) -> None:
    """Check that runs lie inside a pool, without overflow, and that they are no more than the pool together.

    They do not overlap as written. Overlapping ones would let a small file grow without bound in memory.

    Raises:
        ValueError: One does not, or they are more.
    """
    lengths = lengths.astype(np.uint64)
    if len(offsets) and bool(np.any((lengths > size) | (offsets > np.uint64(size) - np.minimum(lengths, size)))):
        raise ValueError(f"{what} point outside their pool")
    if float(lengths.sum(dtype=np.float64)) > size:
        raise ValueError(f"{what} are more than their pool together")


def check_rows(what: str, rows: np.ndarray, size: int, *, lowest: int = 0) -> None:
    """Check that row numbers exist in a table of `size` rows.

    Raises:
        ValueError: One does not.
    """
    if len(rows) and not (int(rows.min()) >= lowest and int(rows.max()) < size):
        raise ValueError(f"{what} point outside their table")


def check_index(tables: Tables, run: Mapping[str, Any], payloads: int) -> None:
    """Check the index, column by column.

    Args:
        tables: The tables.
        run: Facts of the run, of `decode_run`.
        payloads: Number of datasets that hold payloads.

    Raises:
        ValueError: A row points nowhere or contradicts itself, or two rows are for one place.
    """
    index, tensors = tables["index"], tables["tensors"]
    if not len(index):
        raise ValueError("it holds no tensor")
    check_rows("tensors of the index", index["tensor"], len(tensors))
    check_rows("dtypes of the index", index["dtype"], len(LOGICAL_DTYPES))
    check_rows("dimensions of the index", index["ndim"], MAX_NDIM + 1)
    check_rows("quantizations of the index", index["quant"], len(tables["quants"]), lowest=-1)
    check_rows("roles", tensors["role"], len(ROLES))
    numbers = np.sort(index["payload"][index["payload"] != NO_PAYLOAD])
    if np.count_nonzero(np.diff(numbers)) + (len(numbers) > 0) > payloads:
        raise ValueError("payloads are missing")
    _check_sizes(index)
    _check_places(index, tensors["role"] == ROLES.index(Role.CONSTANT), run)


def _check_sizes(index: np.ndarray) -> None:
    """Check that shape, dtype and size of each row agree; float64 is exact for all sizes that a file can have."""
    ndim, shape = index["ndim"], index["shape"]
    counts = np.ones(len(index))
    for dim in range(INDEX_DIMS):
        counts *= np.where(ndim > dim, shape[:, dim], 1)
    if bool(((counts * _itemsizes(index["dtype"]) != index["nbytes"]) & (ndim <= INDEX_DIMS)).any()):
        raise ValueError("sizes and shapes of the index contradict each other")


def _itemsizes(codes: np.ndarray) -> np.ndarray:
    """Give the bytes of an element for the number of each dtype, which is checked."""
    sizes = np.zeros(len(LOGICAL_DTYPES), np.uint64)
    present = np.flatnonzero(np.bincount(codes, minlength=len(sizes)))  # np.unique would load all of numpy.ma
    for code in present.tolist():  # some dtypes need a library, which most recordings can do without
        sizes[code] = physical_dtype(LOGICAL_DTYPES[code]).itemsize
    return np.asarray(sizes[codes])


def _check_places(index: np.ndarray, constant: np.ndarray, run: Mapping[str, Any]) -> None:
    """Check that no two values are for one place; `constant` tells of each tensor whether it is one."""
    tensor, sample, step = (np.ascontiguousarray(index[column]) for column in ("tensor", "sample", "step"))
    if int(sample.max()) >= run["samples"] or int(step.max()) >= run["steps"]:
        raise ValueError("the index has samples or steps beyond those of the run")
    if bool((((sample > 0) | (step > 0)) & constant[tensor]).any()):
        raise ValueError("a constant has values for a sample")
    order = np.lexsort((step, sample, tensor))
    twice = np.ones(len(index) - 1, dtype=bool)
    for column in (tensor, sample, step):
        twice &= column[order][1:] == column[order][:-1]
    if bool(twice.any()):
        raise ValueError("a tensor has two values for one sample and step")


def constant_tensors(tables: Tables) -> np.ndarray:
    """Tell of each row of the tensor table whether it is a constant."""
    constant: np.ndarray = tables["tensors"]["role"] == ROLES.index(Role.CONSTANT)
    return constant


def check_graph(tables: Tables) -> None:
    """Check every reference between the tables of the graph, column by column.

    Raises:
        ValueError: One points nowhere.
    """
    tensors, nodes, quants = tables["tensors"], tables["nodes"], tables["quants"]
    texts = len(tables["strings"])
    for table, column, lowest in (
        *(("tensors", name, -1) for name in ("stands_for", "layout")),
        ("tensors", "name", 0),
        *(("nodes", name, 0) for name in ("name", "op", "domain")),
    ):
        check_rows(f"{column} of {table}", tables[table][column], texts, lowest=lowest)
    check_rows("quantization of tensors", tensors["quant"], len(quants), lowest=-1)
    known = tensors["dtype"][tensors["dtype"] != UNKNOWN]
    check_rows("dtypes of tensors", known, len(LOGICAL_DTYPES))
    check_rows("dtypes of quantizations", quants["dtype"], len(LOGICAL_DTYPES))
    check_rows("roles", tensors["role"], len(ROLES))
    check_runs("shapes", tensors["dims"], np.where(tensors["ndim"] == UNKNOWN, 0, tensors["ndim"]), len(tables["dims"]))
    for run, pool in _NODE_RUNS.items():
        check_runs(f"{run} of nodes", nodes[f"{run}_off"], nodes[f"{run}_len"], len(tables[pool]))
    check_rows("operands", tables["operands"], len(tensors), lowest=-1)
    check_rows("origins", tables["origins"], texts)
    for name in ("scale", "multiplier", "shift"):
        check_runs(f"shapes of {name}", quants[f"{name}_dims"], quants[f"{name}_ndim"], len(tables["dims"]))
