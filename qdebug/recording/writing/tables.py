"""The tables of a recording that is being written: rows of the index per event, the other tables at the end."""

from __future__ import annotations

import itertools
import json
import math
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from qdebug.errors import RecordingError
from qdebug.model import Graph, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.recording.format.facts import encode_attrs, json_facts
from qdebug.recording.format.payload import PartialArray, StoredArray
from qdebug.recording.format.specification import (
    DTYPE_CODES,
    INDEX_DIMS,
    NO_PAYLOAD,
    OPTIONAL_FACTS,
    OPTIONAL_TABLES,
    ROLES,
    STATISTICS,
    TABLES,
    UNKNOWN,
    Flag,
    QuantField,
    physical_dtype,
)

__all__ = ["EventPlace", "IndexRows", "check_quants", "encode_tables", "pack_kept_row", "pack_row"]

# A row of TABLES["index"] is packed as event and values, then the hash, then numbers.
_EVENT, _VALUES, _NUMBERS = struct.Struct("<5IiH"), struct.Struct("<BBf8QQ"), struct.Struct("<6Q7d")
_NOT_MEASURED = math.nan
"""Start and duration of an event, which the recorder does not measure."""
_ZEROS = (0,) * INDEX_DIMS
_SCALE64, _FACT_BITS = int(QuantField.SCALE64), [(int(bit), name) for bit, name in OPTIONAL_FACTS.items()]


class EventPlace(NamedTuple):
    """The place of an event: row of its tensor, sample and step."""

    tensor: int
    sample: int
    step: int


def pack_row(sequence: int, place: EventPlace, stored: StoredArray, flags: Flag) -> bytes:
    """Return the row of an event whose values are stored in full."""
    values, numbers = _pack_description(stored.dtype, stored.shape)
    return b"".join((_EVENT.pack(sequence, *place, stored.payload, -1, flags), values, stored.digest, numbers))


@lru_cache(maxsize=1024)
def _pack_description(dtype: str, shape: tuple[int, ...]) -> tuple[bytes, bytes]:
    """Return the bytes of a row that precede the hash and describe the values, and those that follow it.

    The latter are without statistics, for values that are stored in full.
    """
    extents, count = shape[:INDEX_DIMS], math.prod(shape)
    nbytes = count * physical_dtype(dtype).itemsize
    values = _VALUES.pack(DTYPE_CODES[dtype], len(shape), _NOT_MEASURED, *extents, *_ZEROS[len(extents) :], nbytes)
    return values, _NUMBERS.pack(count, 0, 0, 0, 0, 0, *(math.nan,) * 6, _NOT_MEASURED)


def pack_kept_row(sequence: int, place: EventPlace, partial_array: PartialArray) -> bytes:
    """Return the row of an event with a partial record."""
    record, statistics = partial_array.kept, partial_array.kept.statistics
    flags = Flag.COUNTS | Flag.RAILS | Flag.SUMMARY
    flags |= Flag.HISTOGRAM if record.sketch is None else Flag.SKETCH
    flags |= Flag.STATS_ONLY if partial_array.values is None else Flag.SAMPLED
    for flag, is_set in (
        (Flag.EXTREMES, not math.isnan(statistics.low)),
        (Flag.HAS_NAN, statistics.nan),
        (Flag.HAS_INF, statistics.inf),
        (Flag.TRUNCATED, record.truncated),
    ):
        flags |= flag if is_set else Flag(0)
    numbers = _NUMBERS.pack(
        statistics.count, *(getattr(statistics, name) for name, _ in STATISTICS.values()), _NOT_MEASURED
    )
    values, _ = _pack_description(record.dtype, record.shape)
    return b"".join((_EVENT.pack(sequence, *place, NO_PAYLOAD, -1, flags), values, record.digest, numbers))


class IndexRows:
    """Rows of the index and further facts of events, collected while a recording is written."""

    def __init__(self) -> None:
        self._rows = bytearray()
        self._tensors: dict[str, tuple[int, str]] = {}
        self._constants: set[str] = set()
        self._quants: dict[int, QuantParams] = {}
        self._samples: list[tuple[int, StoredArray, StoredArray]] = []
        self._histograms: list[tuple[int, np.ndarray]] = []
        self._sketches: list[tuple[int, np.ndarray]] = []
        self._sample_count = self._step_count = 1
        self.count = 0
        """Number of rows."""

    def place(self, name: str, sample: int, step: int, *, constant: bool) -> EventPlace:
        """Return the place of a tensor's next event. A new tensor is registered only when its first row is added."""
        entry = self._tensors.get(name)
        tensor = len(self._tensors) if entry is None else entry[0]
        return EventPlace(tensor, 0, 0) if constant else EventPlace(tensor, sample, step)

    def add(
        self,
        row: bytes,
        name: str,
        place: EventPlace,
        dtype: str,
        *,
        constant: bool,
        quant: QuantParams | None,
        partial_array: PartialArray | None = None,
    ) -> None:
        """Add the row of an event.

        Args:
            row: The row.
            name: The tensor.
            place: The place of the event, from `place`.
            dtype: Logical dtype of the tensor.
            constant: Whether the tensor is a constant.
            quant: The quantization of these values, if it differs from their tensor's.
            partial_array: The partial record; None if all values were kept.
        """
        number, (tensor, sample, step) = self.count, place
        if tensor == len(self._tensors):
            self._tensors[name] = tensor, dtype
        if constant:
            self._constants.add(name)
        if sample >= self._sample_count:
            self._sample_count = sample + 1
        if step >= self._step_count:
            self._step_count = step + 1
        if quant is not None:
            self._quants[number] = quant
        if partial_array is not None:
            statistics, sketch = partial_array.kept.statistics, partial_array.kept.sketch
            if sketch is None:
                self._histograms.append((number, np.stack([statistics.negative, statistics.positive])))
            else:
                self._sketches.append((number, sketch))
            if partial_array.values is not None and partial_array.positions is not None:
                self._samples.append((number, partial_array.values, partial_array.positions))
        self._rows += row
        self.count += 1

    def tables(self, graph: Graph, info: RunInfo) -> dict[str, np.ndarray]:
        """Create all tables.

        Raises:
            RecordingError: The graph cannot be stored.
        """
        recorded_tensors = [
            TensorInfo(name=name, dtype=dtype, role=Role.CONSTANT if name in self._constants else Role.ACTIVATION)
            for name, (_, dtype) in self._tensors.items()
            if name not in graph.tensors
        ]
        counts = {"samples": self._sample_count, "steps": self._step_count}
        quants = list(self._quants.values())
        tables, rows, quant_rows = encode_tables(graph, info, recorded_tensors, **counts, quants=quants)
        index = np.frombuffer(self._rows, dtype=TABLES["index"])
        index["tensor"] = np.array([rows[name] for name in self._tensors], dtype=np.uint32)[index["tensor"]]
        if quants:
            index["quant"][list(self._quants)] = quant_rows
        return {**tables, "index": index, **self._optional_tables()}

    def _optional_tables(self) -> dict[str, np.ndarray]:
        tables = {}
        if self._samples:
            samples = np.zeros(len(self._samples), OPTIONAL_TABLES["samples"])
            for number, (event, values, positions) in enumerate(self._samples):
                digests = [np.frombuffer(stored.digest, np.uint8) for stored in (values, positions)]
                samples[number] = (event, values.payload, positions.payload, values.shape[0], *digests)
            tables["samples"] = samples
        if self._histograms:
            histograms = np.zeros(len(self._histograms), OPTIONAL_TABLES["exponents"])
            histograms["event"] = [event for event, _ in self._histograms]
            histograms["counts"] = [bins for _, bins in self._histograms]
            tables["exponents"] = histograms
        if self._sketches:
            sketches = np.zeros(len(self._sketches), OPTIONAL_TABLES["sketches"])
            sketches["event"] = [event for event, _ in self._sketches]
            sketches["projections"] = [sketch for _, sketch in self._sketches]
            tables["sketches"] = sketches
        return tables


def encode_tables(
    graph: Graph,
    info: RunInfo,
    recorded_tensors: Iterable[TensorInfo],
    *,
    samples: int,
    steps: int,
    quants: Iterable[QuantParams] = (),
) -> tuple[dict[str, np.ndarray], dict[str, int], list[int]]:
    """Create every table except the index.

    Args:
        graph: The graph that ran.
        info: Facts of the run.
        recorded_tensors: Tensors that have values; tensors that are not in the graph are added to the tensor table.
        samples: Number of samples.
        steps: Number of steps of each sample.
        quants: Quantizations of individual events.

    Returns:
        The tables by name, the row of each tensor by its name, and the row of each of `quants`.

    Raises:
        RecordingError: An attribute or option cannot be stored; the message names it.
    """
    encoder = _Encoder()
    tensors = dict(graph.tensors)
    for tensor in recorded_tensors:
        tensors.setdefault(tensor.name, tensor)
    rows = {name: row for row, name in enumerate(tensors)}
    encoder.add_tensors(tensors.values())
    encoder.add_nodes(graph.nodes, {**rows, "": -1})
    run = {
        "info": json_facts(info),
        "graph": {
            "name": str(graph.name),
            "opset": {str(domain): int(version) for domain, version in graph.opset.items()},
            "inputs": [rows[name] for name in graph.inputs],
            "outputs": [rows[name] for name in graph.outputs],
            "placements": _placements(graph),
        },
        "samples": samples,
        "steps": steps,
    }
    quant_rows = [encoder.add_quant(quant) for quant in quants]
    return encoder.tables(json.dumps(run, allow_nan=False).encode("ascii")), rows, quant_rows


def _placements(graph: Graph) -> dict[str, list[int]]:
    """Return the rows of the nodes by their placement, without nodes whose placement is unknown."""
    rows_of_placement: dict[str, list[int]] = {}
    for row, node in enumerate(graph.nodes):
        if node.placement:
            rows_of_placement.setdefault(node.placement, []).append(row)
    return rows_of_placement


def check_quants(graph: Graph) -> None:
    """Refuse a graph with invalid zero points before a run rather than after it."""
    for tensor in graph.tensors.values():
        try:
            if tensor.quant is not None:
                tensor.quant.check_zero_point()
        except ValueError as exc:
            raise RecordingError(f"The quantization of tensor {tensor.name!r} is invalid: {exc}.") from None


class _Encoder:
    """Encodes a graph and facts as rows and pools of tables."""

    def __init__(self) -> None:
        self._strings: defaultdict[str, int] = defaultdict(itertools.count().__next__)
        """Number of each text, assigned when it is first requested."""
        self._shapes: dict[tuple[int | None, ...], list[int]] = {}
        """Shapes as stored in the pool of extents."""
        self._quants: dict[QuantParams, int] = {}
        self._rows: dict[str, list[tuple[Any, ...]]] = {"tensors": [], "nodes": [], "quants": []}
        self._pools: dict[str, list[Any]] = {name: [] for name in ("dims", "operands", "origins")}
        self._numbers = {name: bytearray() for name in ("integers", "scales32", "scales64")}
        self._attributes = bytearray()

    def add_tensors(self, tensors: Iterable[TensorInfo]) -> None:
        """Append the rows of tensors."""
        strings = self._strings
        for tensor in tensors:
            name, shape, dtype = tensor.name, tensor.shape, tensor.dtype
            if dtype is not None and dtype not in DTYPE_CODES:
                raise RecordingError(
                    f"Tensor {name!r} of the graph has dtype {dtype!r}, which a recording does not support.",
                    hint="Leave its dtype out (None).",
                )
            row = (
                strings[name],
                -1 if tensor.stands_for is None else strings[tensor.stands_for],
                -1 if tensor.layout is None else strings[tensor.layout],
                -1 if tensor.quant is None else self._check_and_add_quant(tensor.quant, name),
                0 if shape is None else self._add_shape(shape, name),
                UNKNOWN if shape is None else len(shape),
                UNKNOWN if dtype is None else DTYPE_CODES[dtype],
                ROLES.index(tensor.role),
                0,
            )
            self._rows["tensors"].append(row)

    def _add_shape(self, shape: tuple[int | None, ...], tensor: str) -> int:
        """Append a shape to the pool of extents. Return its offset."""
        if (extents := self._shapes.get(shape)) is None:
            if len(shape) >= UNKNOWN or not all(map(_is_extent, shape)):
                raise RecordingError(
                    f"Tensor {tensor!r} of the graph has shape {str(shape)[:80]}; an extent must be a number or None.",
                    hint="Give None for an extent that varies.",
                )
            extents = self._shapes[shape] = [-1 if extent is None else extent for extent in shape]
        dims = self._pools["dims"]
        dims += extents  # equal runs are not shared: readers refuse tables whose runs add up to more than the pool
        return len(dims) - len(extents)

    def add_nodes(self, nodes: Iterable[Node], rows: Mapping[str, int]) -> None:
        """Append the rows of nodes.

        Args:
            nodes: The nodes.
            rows: Row of each tensor by its name; -1 for "".
        """
        strings, operands, origins = self._strings, self._pools["operands"], self._pools["origins"]
        for node in nodes:
            inputs, outputs, origin = node.inputs, node.outputs, node.origin
            attrs = encode_attrs(node.attrs, node.name) if node.attrs else b""
            name_rows = strings[node.name], strings[node.op], strings[node.domain]
            lengths = len(inputs), len(outputs), len(origin), len(attrs)
            first_operand = len(operands)
            offsets = first_operand, first_operand + len(inputs), len(origins), len(self._attributes)
            self._rows["nodes"].append((*name_rows, *lengths, *offsets))
            operands += [rows[name] for name in (*inputs, *outputs)]
            origins += [strings[text] for text in origin]
            self._attributes += attrs

    def add_quant(self, quant: QuantParams) -> int:
        """Append the row of a quantization, unless an equal one exists. Return its row number."""
        return self._check_and_add_quant(quant, "of one sample")

    def _check_and_add_quant(self, quant: QuantParams, tensor: str) -> int:
        rows = self._rows["quants"]
        row = self._quants.setdefault(quant, len(rows))
        if row == len(rows):
            rows.append(self._quant_row(quant, tensor))
        return row

    def _quant_row(self, quant: QuantParams, tensor: str) -> tuple[int, ...]:
        is_float64 = quant.scale.dtype == np.float64
        field_bits = _SCALE64 if is_float64 else 0  # a plain int, since an operation on an IntFlag takes a microsecond
        for bit, name in _FACT_BITS:
            field_bits |= bit if getattr(quant, name) is not None else 0
        limits = (_to_signed(limit, quant.dtype, tensor) for limit in (quant.qmin, quant.qmax))
        ndims, offsets = [], [self._add_numbers("integers", quant.zero_point)]
        for pool, values in (
            ("scales64" if is_float64 else "scales32", quant.scale),
            ("integers", quant.multiplier),
            ("integers", quant.shift),
        ):
            ndims.append(0 if values is None else values.ndim)
            offsets += (
                (0, 0) if values is None else (self._add_numbers(pool, values), self._add_shape(values.shape, tensor))
            )
        axis_and_block = (quant.axis or 0, quant.block_size or 0)
        return DTYPE_CODES[quant.dtype], field_bits, *ndims, *axis_and_block, *limits, *offsets

    def _add_numbers(self, pool: str, values: np.ndarray) -> int:
        """Append an array to a pool of numbers. Return its offset."""
        data, dtype = self._numbers[pool], TABLES[pool]
        start = len(data) // dtype.itemsize
        data += values.astype(dtype, copy=False).tobytes()
        return start

    def tables(self, run: bytes) -> dict[str, np.ndarray]:
        """Return the finished tables."""
        texts = [text.encode("utf-8", "surrogatepass") for text in self._strings]
        lengths = np.array([len(text) for text in texts], dtype=np.uint64)
        strings = np.zeros(len(texts), dtype=TABLES["strings"])
        strings["length"] = lengths
        strings["offset"] = np.cumsum(lengths) - lengths
        tables = {name: np.array(rows, TABLES[name]) for name, rows in (self._rows | self._pools).items()}
        blocks: dict[str, bytes | bytearray] = {
            "names": b"".join(texts),
            "attributes": self._attributes,
            "run": run,
            **self._numbers,
        }
        tables |= {name: np.frombuffer(data, TABLES[name]) for name, data in blocks.items()}
        return tables | {"strings": strings}


def _is_extent(value: Any) -> bool:
    return value is None or (isinstance(value, (int, np.integer)) and 0 <= int(value) < 2**63)


def _to_signed(limit: int | None, dtype: str, tensor: str) -> int:
    """Return a code limit as a 64-bit two's complement number."""
    low, high = (0, 2**64 - 1) if dtype == "uint64" else (-(2**63), 2**63 - 1)
    if limit is None:
        return 0
    if not low <= limit <= high:
        raise RecordingError(f"Tensor {tensor!r} has a code limit {limit} outside the range of {dtype} codes.")
    return limit - 2**64 if limit >= 2**63 else limit
