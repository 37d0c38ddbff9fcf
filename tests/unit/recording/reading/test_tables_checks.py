"""What tables may say: each check by its definition, for numbers of any size."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.model import Graph, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.recording.format.specification import (
    DTYPE_CODES,
    INDEX_DIMS,
    MAX_NDIM,
    NO_PAYLOAD,
    OPTIONAL_TABLES,
    ROLES,
    TABLES,
    Flag,
)
from qdebug.recording.reading.tables import (
    check_graph,
    check_index,
    check_positions,
    check_rows,
    check_runs,
    constant_tensors,
    decode_run,
)
from qdebug.recording.writing.tables import encode_tables

HUGE = 2**64 - 1
NUMBERS = st.integers(0, 9) | st.integers(HUGE - 9, HUGE)


def passes(check, *given, **facts):
    """Tell whether a check lets something pass; what it refuses, it refuses with a ValueError."""
    try:
        check(*given, **facts)
    except ValueError:
        return False
    return True


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=4), st.integers(0, 12))
def test_runs_lie_inside_their_pool_and_are_no_more_than_it(runs, size):
    offsets, lengths = (np.array([run[at] for run in runs], np.uint64) for at in (0, 1))
    inside = all(start + length <= size for start, length in runs)
    assert passes(check_runs, "x", offsets, lengths, size) == (inside and sum(length for _, length in runs) <= size)


@given(st.lists(st.integers(-3, 9), max_size=4), st.integers(0, 9), st.integers(-1, 0))
def test_rows_are_those_of_their_table(rows, size, lowest):
    fine = all(lowest <= row < size for row in rows)
    assert passes(check_rows, "x", np.array(rows, np.int32), size, lowest=lowest) == fine


@given(st.lists(st.integers(-2, 9), max_size=4), st.integers(0, 9))
def test_positions_go_up_inside_their_tensor(positions, count):
    fine = positions == sorted(set(positions)) and all(0 <= at < count for at in positions)
    assert passes(check_positions, np.array(positions, np.int64), count) == fine


QUANT = QuantParams(dtype="int8", scale=[0.5, 0.25], axis=0, multiplier=[3, 4], shift=[1, 2])
GRAPH = Graph(
    [
        Node(
            name="a",
            op="Relu",
            inputs=("x", "", "w"),
            outputs=("", "m"),
            attrs={"k": 1},
            origin=("m1", "m2"),
            domain="d",
        ),
        Node(name="b", op="Exp", inputs=("m",), outputs=("y",)),
    ],
    tensors=[
        TensorInfo(name="w", role=Role.CONSTANT, dtype="int8", shape=(2,), quant=QUANT, layout="NCHW"),
        TensorInfo(name="m", dtype="float32", shape=(2, 3), stands_for="x"),
    ],
    inputs=["x"],
    outputs=["y"],
)


def tables_of():
    tables = encode_tables(GRAPH, RunInfo(backend="test"), (), samples=2, steps=3)[0]
    return {name: table.copy() for name, table in tables.items()}


def spoiled(table, column, value, row=0):
    tables = tables_of()
    where = tables[table][column] if column else tables[table]
    where[row] = value(tables) if callable(value) else value
    return tables


@pytest.mark.parametrize(
    ("table", "column", "pool", "lowest"),
    [
        ("tensors", "name", "strings", 0),
        ("tensors", "stands_for", "strings", -1),
        ("tensors", "layout", "strings", -1),
        ("nodes", "name", "strings", 0),
        ("nodes", "op", "strings", 0),
        ("nodes", "domain", "strings", 0),
        ("tensors", "quant", "quants", -1),
        ("operands", "", "tensors", -1),
        ("origins", "", "strings", 0),
    ],
)
def test_each_column_that_counts_rows_has_numbers_of_rows(table, column, pool, lowest):
    check_graph(tables_of())
    size = len(tables_of()[pool])
    for value, fine in ((lowest, True), (size - 1, True), (size, False), (lowest - 1, False)):
        tables = spoiled(table, column, value)
        assert passes(check_graph, tables) == fine, value
        if not fine:
            with pytest.raises(ValueError, match=f"{column or 'rows'} of {table} point outside their table"):
                check_graph(tables)


@pytest.mark.parametrize(
    ("table", "column", "value", "fine"),
    [
        ("tensors", "dtype", len(DTYPE_CODES), False),
        ("tensors", "dtype", len(DTYPE_CODES) - 1, True),
        ("tensors", "dtype", 255, True),  # unknown
        ("quants", "dtype", len(DTYPE_CODES), False),
        ("tensors", "role", len(ROLES), False),
        ("tensors", "role", len(ROLES) - 1, True),
        ("nodes", "inputs_off", 1000, False),
        ("nodes", "outputs_len", 200, False),
        ("nodes", "origin_off", 1, False),
        ("nodes", "attrs_off", 1, False),
        ("quants", "scale_dims", 1000, False),
        ("quants", "multiplier_dims", 1000, False),
        ("quants", "shift_dims", 1000, False),
    ],
)
def test_numbers_beyond_what_there_is_are_refused(table, column, value, fine):
    assert passes(check_graph, spoiled(table, column, value)) == fine


def test_a_declared_shape_lies_in_its_pool_and_an_unknown_one_nowhere():
    row = next(at for at, ndim in enumerate(tables_of()["tensors"]["ndim"]) if ndim not in (0, 255))
    assert not passes(check_graph, spoiled("tensors", "dims", 1000, row))
    unknown = spoiled("tensors", "ndim", 255, row)
    unknown["tensors"]["dims"][row] = 0
    assert passes(check_graph, unknown)


def test_constants_are_told_by_their_role():
    tables = tables_of()
    names = [info.name for info in GRAPH.tensors.values()]
    assert [name for name, constant in zip(names, constant_tensors(tables), strict=True) if constant] == ["w"]


def event(tensor, sample=0, step=0, *, dtype="float32", shape=(2, 3), flags=0, payload=0, **facts):
    """Return a row of the index as a dict."""
    nbytes = int(np.prod(shape)) * {"float32": 4, "int8": 1, "float64": 8}[dtype]
    row = {"tensor": tensor, "sample": sample, "step": step, "dtype": DTYPE_CODES[dtype], "ndim": len(shape)}
    row |= {"shape": (*shape, *[0] * 8)[:8], "nbytes": nbytes, "flags": int(flags), "payload": payload, "quant": -1}
    return row | facts


def indexed(*events, samples=None, steps=None, payloads=9, **optional):
    """Check an index of some events; tell whether it passes."""
    tables = tables_of()
    tables["index"] = np.zeros(len(events), TABLES["index"])
    for at, row in enumerate(events):
        for column, value in row.items():
            tables["index"][column][at] = value
    run = dict(decode_run(tables))
    run["samples"] = samples or max((row["sample"] for row in events), default=0) + 1
    run["steps"] = steps or max((row["step"] for row in events), default=0) + 1
    held = {name: np.zeros(len(rows), OPTIONAL_TABLES[name]) for name, rows in optional.items()}
    for name, rows in optional.items():
        held[name]["event"] = rows
    return passes(check_index, tables, held, run, payloads)


NAMES = list(GRAPH.tensors)
X, W, M = NAMES.index("x"), NAMES.index("w"), NAMES.index("m")
KEPT = Flag.SAMPLED
STATS = Flag.STATS_ONLY


@pytest.mark.parametrize(
    ("events", "facts", "fine"),
    [
        ([], {}, False),  # nothing was recorded
        ([event(X)], {}, True),
        ([event(len(NAMES) - 1)], {}, True),
        ([event(len(NAMES))], {}, False),
        ([event(X, dtype="int8")], {}, True),
        ([event(X) | {"dtype": len(DTYPE_CODES)}], {}, False),
        ([event(X) | {"ndim": MAX_NDIM}], {}, True),  # beyond what the row has room for the dataset tells
        ([event(X) | {"ndim": MAX_NDIM + 1}], {}, False),
        ([event(X, quant=0)], {}, True),
        ([event(X, quant=1)], {}, False),
        ([event(X, quant=-2)], {}, False),
        ([event(X) | {"nbytes": 23}], {}, False),
        ([event(X) | {"nbytes": 25}], {}, False),
        ([event(X, shape=(1,) * INDEX_DIMS)], {}, True),
        ([event(X, shape=(1,) * INDEX_DIMS) | {"nbytes": 8}], {}, False),
        ([event(X, shape=())], {}, True),
        ([event(X, shape=(0, 3))], {}, True),
        # places
        ([event(X), event(X, 1)], {}, True),
        ([event(X), event(X, 0, 1)], {}, True),
        ([event(X, 1), event(X)], {}, True),
        ([event(X), event(X)], {}, False),
        ([event(X, 1, 2), event(M, 1, 2), event(X, 1, 2)], {}, False),
        ([event(X), event(M)], {}, True),
        ([event(X, 1)], {"samples": 1}, False),
        ([event(X, 1)], {"samples": 3}, False),
        ([event(X, 0, 1)], {"steps": 1}, False),
        ([event(X, 0, 1)], {"steps": 3}, False),
        ([event(W)], {}, True),
        ([event(W, 1)], {}, False),  # a constant is that of all samples
        ([event(W, 0, 1)], {}, False),
        # payloads
        ([event(X, payload=0), event(M, payload=1)], {"payloads": 2}, True),
        ([event(X, payload=0), event(M, payload=1)], {"payloads": 1}, False),
        ([event(X, payload=0), event(M, payload=0)], {"payloads": 1}, True),
        ([event(X, payload=0)], {"payloads": 0}, False),
        ([event(X, payload=NO_PAYLOAD, flags=STATS)], {"payloads": 0}, True),
        ([event(X, payload=NO_PAYLOAD)], {}, False),  # all of it was kept, and nowhere
        ([event(X, payload=0, flags=STATS)], {}, False),
        # tables that only some files have
        ([event(X, payload=NO_PAYLOAD, flags=KEPT)], {"samples": None}, False),
        ([event(X, flags=Flag.HISTOGRAM)], {"exponents": [0]}, True),
        ([event(X, flags=Flag.HISTOGRAM)], {"exponents": [1]}, False),
        ([event(X, flags=Flag.HISTOGRAM)], {}, False),
        ([event(X)], {"exponents": [0]}, False),
        ([event(X, flags=Flag.HISTOGRAM), event(M, flags=Flag.HISTOGRAM)], {"exponents": [1, 0]}, True),
        ([event(X, flags=Flag.HISTOGRAM), event(M, flags=Flag.HISTOGRAM)], {"exponents": [1, 1]}, False),
    ],
)
def test_an_index_passes_if_its_rows_agree_with_each_other_and_with_the_run(events, facts, fine):
    assert indexed(*events, **facts) == fine


def test_elements_that_were_kept_have_a_row_of_their_own():
    kept = event(X, payload=NO_PAYLOAD, flags=KEPT)
    tables = tables_of()
    tables["index"] = np.zeros(1, TABLES["index"])
    for column, value in kept.items():
        tables["index"][column][0] = value
    run = dict(decode_run(tables)) | {"samples": 1, "steps": 1}
    for rows, fine in (([0], True), ([1], False), ([], False), ([0, 0], False)):
        samples = np.zeros(len(rows), OPTIONAL_TABLES["samples"])
        samples["event"] = rows
        assert passes(check_index, tables, {"samples": samples}, run, 2) == fine


def test_the_facts_of_a_run_are_json():
    tables = tables_of()
    facts = json.loads(tables["run"].tobytes())
    assert decode_run(tables) == facts
    assert (facts["samples"], facts["steps"]) == (2, 3)
