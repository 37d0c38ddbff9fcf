"""Tables of a recording file: checked column by column, then decoded into objects."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from sys import intern
from typing import Any

import numpy as np

from qdebug.model import AttrValue, Graph, Node, QuantParams, Role, TensorInfo
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.model.frozen import frozen_mapping
from qdebug.model.kept import EXPONENT_BINS, Statistics
from qdebug.recording.format.facts import decode_attrs
from qdebug.recording.format.specification import (
    INDEX_DIMS,
    MAX_NDIM,
    NO_PAYLOAD,
    OPTIONAL_FACTS,
    PARTIAL_FLAGS,
    ROLES,
    STATISTICS,
    TABLES,
    UNKNOWN,
    Flag,
    QuantField,
    physical_dtype,
)

__all__ = [
    "Tables",
    "check_graph",
    "check_index",
    "check_positions",
    "constant_tensors",
    "decode_graph",
    "decode_quants",
    "decode_run",
    "decode_texts",
    "rows_of",
    "statistics_of",
]

Tables = Mapping[str, np.ndarray]
"""Tables by name, with the row types of `qdebug.recording.format.specification.TABLES`."""

_NODE_RUNS = {"inputs": "operands", "outputs": "operands", "origin": "origins", "attrs": "attributes"}
_ROW_REFERENCES = (
    *(("tensors", column, "strings", lowest) for column, lowest in (("name", 0), ("stands_for", -1), ("layout", -1))),
    *(("nodes", column, "strings", 0) for column in ("name", "op", "domain")),
    ("tensors", "quant", "quants", -1),
    ("operands", "", "tensors", -1),
    ("origins", "", "strings", 0),
)
"""Columns that index rows of other tables, and the lowest valid row number of each."""


def check_runs(title: str, offsets: np.ndarray, lengths: np.ndarray, size: int) -> None:
    """Check that runs (offset and length) lie inside a pool, and that their total length does not exceed it.

    A writer's runs do not overlap. Overlapping runs would allow a small file to expand without bound in memory.

    Raises:
        ValueError: A run is invalid, or the runs are too long together.
    """
    lengths = lengths.astype(np.uint64)
    # Lengths are capped at `size` so that the difference cannot wrap around. Longer ones fail the next check.
    if bool(np.any(offsets > np.uint64(size) - np.minimum(lengths, size))):
        raise ValueError(f"{title} point outside their pool")
    if float(lengths.sum(dtype=np.float64)) > size:
        raise ValueError(f"{title} exceed their pool")


def check_rows(title: str, rows: np.ndarray, size: int, *, lowest: int = 0) -> None:
    """Check that row numbers exist in a table of `size` rows.

    Raises:
        ValueError: A row does not exist.
    """
    if len(rows) and not (int(np.minimum.reduce(rows)) >= lowest and int(np.maximum.reduce(rows)) < size):
        raise ValueError(f"{title} point outside their table")


def check_index(tables: Tables, optional: Tables, run: Mapping[str, Any], payloads: int) -> None:
    """Check the index, column by column.

    Args:
        tables: The tables.
        optional: The optional tables that the file has.
        run: Facts of the run, from `decode_run`.
        payloads: Number of payloads in the file.

    Raises:
        ValueError: A row has a dangling reference or contradicts itself, or two rows have the same place.
    """
    index, tensors = tables["index"], tables["tensors"]
    if not len(index):
        raise ValueError("it contains no tensor")
    check_rows("tensors of the index", index["tensor"], len(tensors))
    check_rows("dtypes of the index", index["dtype"], len(LOGICAL_DTYPES))
    check_rows("dimensions of the index", index["ndim"], MAX_NDIM + 1)
    check_rows("quantizations of the index", index["quant"], len(tables["quants"]), lowest=-1)
    numbers = np.sort(index["payload"][index["payload"] != NO_PAYLOAD])
    if np.count_nonzero(np.diff(numbers)) + (len(numbers) > 0) > payloads:
        raise ValueError("payloads are missing")
    _check_sizes(index)
    _check_places(index, constant_tensors(tables), run)
    _check_optional(optional, index)


def _check_sizes(index: np.ndarray) -> None:
    """Check that the shape, dtype and size of each row agree. float64 is exact for all sizes that a file can have."""
    ndim, shape = index["ndim"], index["shape"]
    counts = np.multiply.reduce(np.where(np.arange(INDEX_DIMS) < ndim[:, None], shape, 1), axis=1, dtype=np.float64)
    if bool(((counts * _itemsizes(index["dtype"]) != index["nbytes"]) & (ndim <= INDEX_DIMS)).any()):
        raise ValueError("sizes and shapes of the index contradict each other")


def _itemsizes(codes: np.ndarray) -> np.ndarray:
    """Return the element size in bytes for each dtype code; all codes must be valid."""
    sizes = np.zeros(len(LOGICAL_DTYPES), np.uint64)
    codes_used = np.bincount(codes).nonzero()[0]  # np.unique would load all of numpy.ma
    for code in codes_used.tolist():  # not all codes: some dtypes would load a library that most recordings do not need
        sizes[code] = physical_dtype(LOGICAL_DTYPES[code]).itemsize
    return np.asarray(sizes[codes])


def _check_places(index: np.ndarray, constant: np.ndarray, run: Mapping[str, Any]) -> None:
    """Check samples and steps: they match the run, and no two rows of a tensor have the same ones.

    Args:
        index: The index.
        constant: For each row of /tensors, whether it is a constant.
        run: Facts of the run, from `decode_run`.
    """
    tensor, sample, step = (np.ascontiguousarray(index[column]) for column in ("tensor", "sample", "step"))
    if (int(np.maximum.reduce(sample)) + 1, int(np.maximum.reduce(step)) + 1) != (run["samples"], run["steps"]):
        raise ValueError("the samples or steps of the index do not match the run")
    if bool((((sample > 0) | (step > 0)) & constant[tensor]).any()):
        raise ValueError("a constant has values for a sample")
    order = np.lexsort((step, sample, tensor))
    in_order = [column[order] for column in (tensor, sample, step)]
    same_tensor, same_sample, same_step = (column[1:] == column[:-1] for column in in_order)
    if bool((same_tensor & same_sample & same_step).any()):
        raise ValueError("a tensor has two values for one sample and step")


def constant_tensors(tables: Tables) -> np.ndarray:
    """Return for each row of /tensors whether it is a constant."""
    constant: np.ndarray = tables["tensors"]["role"] == ROLES.index(Role.CONSTANT)
    return constant


def check_graph(tables: Tables) -> None:
    """Check every reference between the tables of the graph, column by column.

    Raises:
        ValueError: A reference is dangling.
    """
    tensors, nodes, quants = tables["tensors"], tables["nodes"], tables["quants"]
    for table, column, target, lowest in _ROW_REFERENCES:
        rows = tables[table][column] if column else tables[table]
        check_rows(f"{column or 'rows'} of {table}", rows, len(tables[target]), lowest=lowest)
    known_dtypes = tensors["dtype"][tensors["dtype"] != UNKNOWN]
    check_rows("dtypes of tensors", known_dtypes, len(LOGICAL_DTYPES))
    check_rows("dtypes of quantizations", quants["dtype"], len(LOGICAL_DTYPES))
    check_rows("roles", tensors["role"], len(ROLES))
    check_runs("shapes", tensors["dims"], np.where(tensors["ndim"] == UNKNOWN, 0, tensors["ndim"]), len(tables["dims"]))
    for run, pool in _NODE_RUNS.items():
        check_runs(f"{run} of nodes", nodes[f"{run}_off"], nodes[f"{run}_len"], len(tables[pool]))
    for name in ("scale", "multiplier", "shift"):
        check_runs(f"shapes of {name}", quants[f"{name}_dims"], quants[f"{name}_ndim"], len(tables["dims"]))


def check_positions(positions: np.ndarray, count: int) -> None:
    """Check that the positions of kept elements are ascending and inside their tensor.

    Raises:
        ValueError: The positions are not ascending, or are out of range.
    """
    if positions.size and not (int(positions[0]) >= 0 and int(positions[-1]) < count):
        raise ValueError("kept elements lie outside their tensor")
    if bool(np.any(np.diff(positions) <= 0)):
        raise ValueError("kept elements are not in order")


def _check_optional(tables: Mapping[str, np.ndarray], index: np.ndarray) -> None:
    """Check the optional tables against the index.

    Raises:
        ValueError: A row belongs to an event that does not need it, or an event lacks its row.
    """
    flags = index["flags"]
    if bool((((flags & PARTIAL_FLAGS) != 0) != (index["payload"] == NO_PAYLOAD)).any()):
        raise ValueError("the index does not say which events have all values")
    for name, flag in (("samples", Flag.SAMPLED), ("exponents", Flag.HISTOGRAM), ("sketches", Flag.SKETCH)):
        events_needed = (flags & int(flag)).nonzero()[0]
        if not (
            np.array_equal(np.sort(tables[name]["event"]), events_needed) if name in tables else not len(events_needed)
        ):
            raise ValueError(f"/{name} and the index contradict each other")


_STATISTICS = tuple((column, name, int(flag)) for column, (name, flag) in STATISTICS.items())


def statistics_of(row: Any, bins: np.ndarray | None) -> Statistics:
    """Return the statistics of an event.

    Args:
        row: Its row of /index.
        bins: Its histogram; None without a histogram.
    """
    fields = dict(zip(row.dtype.names, row.item(), strict=True))
    values: dict[str, Any] = {}
    for column, name, bit in _STATISTICS:
        value = fields[column]
        values[name] = value if fields["flags"] & bit else math.nan if isinstance(value, float) else 0
    negative, positive = np.zeros((2, EXPONENT_BINS), np.uint64) if bins is None else bins
    return Statistics(count=int(row["count"]), **values, negative=negative, positive=positive)


def decode_texts(tables: Tables, rows: np.ndarray | None = None) -> list[str]:
    """Return strings of a recording or journal. Recordings of the same network share equal strings.

    Args:
        tables: The tables.
        rows: Rows of /strings; None for all of them in order.

    Raises:
        ValueError: A row is out of range, or is not valid UTF-8.
    """
    data = tables["names"].tobytes()
    starts, lengths = (np.ascontiguousarray(tables["strings"][field]) for field in ("offset", "length"))
    check_runs("strings", starts, lengths, len(data))
    if rows is not None:
        starts, lengths = starts[rows], lengths[rows]
    spans = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
    if data.isascii():  # decode once and slice: three times as fast as decoding each text
        text = data.decode("ascii")
        return [intern(text[start:stop]) for start, stop in spans]
    return [intern(data[start:stop].decode("utf-8", "surrogatepass")) for start, stop in spans]


_ROWS_AT_ONCE = 1000


def decode_run(tables: Tables) -> dict[str, Any]:
    """Return the JSON object of the run.

    Raises:
        ValueError: The text is not such an object, or lacks a key.
    """
    try:
        run = json.loads(tables["run"].tobytes())
        samples, steps, graph = run["samples"], run["steps"], run["graph"]
        rows = [*graph["inputs"], *graph["outputs"]]
        numbers = all(type(number) is int for number in (samples, steps, *rows, *graph["opset"].values()))
        if not (numbers and 1 <= samples <= 2**32 and 1 <= steps <= 2**32 and isinstance(graph["name"], str)):
            raise ValueError("the facts of the run have impossible values")
    except (KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise ValueError(f"the facts of the run cannot be decoded: {exc!r}") from None
    if rows and not (min(rows) >= 0 and max(rows) < len(tables["tensors"])):
        raise ValueError("graph inputs and outputs point outside their table")
    return dict(run)


def decode_graph(tables: Tables, run: Mapping[str, Any]) -> Graph:
    """Decode checked tables into a graph.

    Raises:
        ValueError: A text, quantization, shape or attribute is invalid.
        GraphError: The nodes do not form a valid graph.
    """
    texts = decode_texts(tables)
    tensors = _decode_tensors(tables, texts)
    names = [tensor.name for tensor in tensors]
    facts = run["graph"]
    return Graph(
        _decode_nodes(tables, texts, names, _placements(run, len(tables["nodes"]))),
        tensors=tensors,
        inputs=[names[row] for row in facts["inputs"]],
        outputs=[names[row] for row in facts["outputs"]],
        name=facts["name"],
        opset=facts["opset"],
    )


def rows_of(table: np.ndarray) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table as tuples.

    They are converted in batches, since converting a large table at once would block other threads for 60 ms.
    """
    for start in range(0, len(table), _ROWS_AT_ONCE):
        yield from table[start : start + _ROWS_AT_ONCE].tolist()


def _decode_tensors(tables: Tables, texts: Sequence[str]) -> list[TensorInfo]:
    quants = decode_quants(tables)
    dims = [None if extent < 0 else extent for extent in tables["dims"].tolist()]
    result = []
    shapes: dict[tuple[int | None, ...], tuple[int | None, ...]] = {}  # most tensors share their shape with others
    for name, stands_for, layout, quant, start, ndim, dtype, role, _ in rows_of(tables["tensors"]):
        shape = None
        if ndim != UNKNOWN:
            shape = tuple(dims[start : start + ndim])
            shape = shapes.setdefault(shape, shape)
        result.append(
            TensorInfo(
                name=texts[name],
                shape=shape,
                dtype=None if dtype == UNKNOWN else LOGICAL_DTYPES[dtype],
                role=ROLES[role],
                layout=None if layout < 0 else texts[layout],
                quant=None if quant < 0 else quants[quant],
                stands_for=None if stands_for < 0 else texts[stands_for],
            )
        )
    return result


def _placements(run: Mapping[str, Any], count: int) -> dict[int, str]:
    """Return the placements of nodes by their rows; empty for older files.

    Args:
        run: The JSON object of the run.
        count: Number of nodes.

    Raises:
        ValueError: The placements are invalid.
    """
    rows_of_placement = run["graph"].get("placements", {})
    if not isinstance(rows_of_placement, dict) or not all(
        isinstance(rows, list) for rows in rows_of_placement.values()
    ):
        raise ValueError("the placements of nodes cannot be decoded")
    placement_of_row = {
        row: placement
        for placement, rows in rows_of_placement.items()
        for row in rows
        if type(row) is int and 0 <= row < count
    }
    if len(placement_of_row) != sum(map(len, rows_of_placement.values())):
        raise ValueError("placements refer to missing nodes, or to a node twice")
    return placement_of_row


def _decode_nodes(
    tables: Tables, texts: Sequence[str], names: Sequence[str], placements: Mapping[int, str]
) -> list[Node]:
    operands = [names[row] if row >= 0 else "" for row in tables["operands"].tolist()]
    origins = [texts[row] for row in tables["origins"].tolist()]
    attributes = tables["attributes"].tobytes()
    attrs_by_text: dict[bytes, Mapping[str, AttrValue]] = {}
    result = []
    for number, row in enumerate(rows_of(tables["nodes"])):
        name, op, domain, n_inputs, n_outputs, n_origin, n_attrs, inputs, outputs, origin, attrs = row
        text = attributes[attrs : attrs + n_attrs]
        if text not in attrs_by_text:
            attrs_by_text[text] = frozen_mapping(decode_attrs(text))
        node = Node(
            name=texts[name],
            op=texts[op],
            attrs=attrs_by_text[text],
            domain=texts[domain],
            inputs=tuple(operands[inputs : inputs + n_inputs]),
            outputs=tuple(operands[outputs : outputs + n_outputs]),
            origin=tuple(origins[origin : origin + n_origin]),
            placement=placements.get(number, ""),
        )
        result.append(node)
    return result


def decode_quants(tables: Tables) -> list[QuantParams]:
    """Decode the quantizations of checked tables.

    Raises:
        ValueError: A quantization is invalid.
    """
    used_count, quants = 0, []
    for row in rows_of(tables["quants"]):
        quant = _decode_quant(row, tables)
        used_count += sum(
            array.size for array in (quant.zero_point, quant.multiplier, quant.shift) if array is not None
        )
        if used_count > len(tables["integers"]):
            raise ValueError("quantizations exceed their pool")
        quants.append(quant)
    return quants


def _decode_quant(row: tuple[Any, ...], tables: Tables) -> QuantParams:
    """Decode a quantization from its row in checked tables.

    Raises:
        ValueError: The quantization is invalid.
    """
    fields = dict(zip(TABLES["quants"].names or (), row, strict=True))
    field_bits, dtype = fields["has"], LOGICAL_DTYPES[fields["dtype"]]
    if dtype == "uint64":
        fields |= {name: fields[name] % 2**64 for name in ("qmin", "qmax")}

    def array(name: str, pool: str, shape_of: str) -> np.ndarray:
        start, ndim = fields[f"{shape_of}_dims"], fields[f"{shape_of}_ndim"]
        return _read_array(tables[pool], fields[f"{name}_off"], tables["dims"][start : start + ndim])

    for name in ("multiplier", "shift"):
        if field_bits & QuantField[name.upper()]:
            fields[name] = array(name, "integers", name)
    return QuantParams(
        dtype=dtype,
        scale=array("scale", "scales64" if field_bits & QuantField.SCALE64 else "scales32", "scale"),
        zero_point=array("zero_point", "integers", "scale"),
        **{name: fields[name] for bit, name in OPTIONAL_FACTS.items() if field_bits & bit},
    )


def _read_array(pool: np.ndarray, offset: int, dims: np.ndarray) -> np.ndarray:
    """Return an array from a pool, after checking its extents, which come from an untrusted file."""
    shape = [int(extent) for extent in dims]
    count = 1
    for extent in shape:
        if extent < 0:
            raise ValueError("a quantization has a negative extent")
        count *= extent
    if offset + count > len(pool):
        raise ValueError("a quantization points outside its pool")
    return pool[offset : offset + count].reshape(shape)
