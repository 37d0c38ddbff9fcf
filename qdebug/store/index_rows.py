"""The index of a recording that is being written: one row an event, and the tables that come of them in the end."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from qdebug.model import Graph, QuantParams, Role, RunInfo, TensorInfo
from qdebug.model.kept import EXPONENT_BINS, Kept, Statistics
from qdebug.store.layout import (
    DTYPE_CODES,
    INDEX_DIMS,
    NO_PAYLOAD,
    OPTIONAL_TABLES,
    TABLES,
    Flag,
    physical_dtype,
)
from qdebug.store.payload_store import Stored
from qdebug.store.tables import encode_tables

__all__ = [
    "PARTLY",
    "IndexRows",
    "Partly",
    "Place",
    "check_optional",
    "check_positions",
    "pack_kept_row",
    "pack_row",
    "statistics_of",
]

PARTLY = int(Flag.SAMPLED | Flag.STATS_ONLY)
"""Flags of events of which not all values were kept."""


def statistics_of(row: Any, bins: np.ndarray | None) -> Statistics:
    """Give the statistics of an event.

    Args:
        row: Its row of /index.
        bins: Its histogram; None if it has none.
    """
    flags = Flag(int(row["flags"]))
    extremes, counts, rails = (flag in flags for flag in (Flag.EXTREMES, Flag.COUNTS, Flag.RAILS))
    summary = Flag.SUMMARY in flags
    negative, positive = np.zeros((2, EXPONENT_BINS), np.uint64) if bins is None else bins
    return Statistics(
        count=int(row["count"]),
        nan=int(row["nan"]) if counts else 0,
        inf=int(row["inf"]) if counts else 0,
        zero=int(row["zero"]) if counts else 0,
        low=float(row["min"]) if extremes else math.nan,
        high=float(row["max"]) if extremes else math.nan,
        at_qmin=int(row["sat_lo"]) if rails else 0,
        at_qmax=int(row["sat_hi"]) if rails else 0,
        absmax=float(row["absmax"]) if summary else math.nan,
        mean=float(row["mean"]) if summary else math.nan,
        std=float(row["std"]) if summary else math.nan,
        l2=float(row["l2"]) if summary else math.nan,
        negative=negative,
        positive=positive,
    )


def check_positions(positions: np.ndarray, count: int) -> None:
    """Check positions of a file: ascending, and inside the tensor.

    Raises:
        ValueError: They are not.
    """
    if positions.size and not (int(positions[0]) >= 0 and int(positions[-1]) < count):
        raise ValueError("kept elements lie outside their tensor")
    if bool(np.any(np.diff(positions) <= 0)):
        raise ValueError("kept elements are in no order")


def check_optional(tables: Mapping[str, np.ndarray], index: np.ndarray) -> None:
    """Check the tables that only some files have against the index.

    Raises:
        ValueError: A row is of no event that needs it, or an event lacks its row.
    """
    for name, flag in (("samples", Flag.SAMPLED), ("exponents", Flag.HISTOGRAM)):
        events = tables.get(name, np.empty(0, OPTIONAL_TABLES[name]))["event"]
        needed = np.flatnonzero(index["flags"] & int(flag))
        if not np.array_equal(np.sort(events), needed):
            raise ValueError(f"/{name} and the index contradict each other")
    if not np.array_equal((index["flags"] & PARTLY) != 0, index["payload"] == NO_PAYLOAD):
        raise ValueError("the index does not say of which events all values were kept")


# One row of TABLES["index"]: before the hash, and behind it.
_EVENT, _VALUES, _NUMBERS = struct.Struct("<5IiH"), struct.Struct("<BBf8QQ"), struct.Struct("<6Q7d")
_UNKNOWN = math.nan
"""When an event began and how long it took: nobody measures it."""
_ZEROS = (0,) * INDEX_DIMS


class Place(NamedTuple):
    """Where an event belongs: row of its tensor, sample and step."""

    tensor: int
    sample: int
    step: int


class Partly(NamedTuple):
    """What became of an array that was not kept in full.

    Args:
        kept: What was kept of it.
        values: Its elements in the file; None if none were kept.
        positions: Their positions in the file.
    """

    kept: Kept
    values: Stored | None = None
    positions: Stored | None = None


def pack_row(seq: int, place: Place, stored: Stored, flags: Flag) -> bytes:
    """Make the row of an event whose values are kept in full."""
    values, numbers = _described(stored.dtype, stored.shape)
    return b"".join((_EVENT.pack(seq, *place, stored.payload, -1, flags), values, stored.digest, numbers))


@lru_cache(maxsize=1024)
def _described(dtype: str, shape: tuple[int, ...]) -> tuple[bytes, bytes]:
    """Return what stands before the hash in the row of values, and behind it if they are kept in full."""
    extents, count = shape[:INDEX_DIMS], math.prod(shape)
    nbytes = count * physical_dtype(dtype).itemsize
    values = _VALUES.pack(DTYPE_CODES[dtype], len(shape), _UNKNOWN, *extents, *_ZEROS[len(extents) :], nbytes)
    return values, _NUMBERS.pack(count, 0, 0, 0, 0, 0, *(math.nan,) * 6, _UNKNOWN)


def pack_kept_row(seq: int, place: Place, partly: Partly) -> bytes:
    """Make the row of an event whose values are not kept in full."""
    kept, found = partly.kept, partly.kept.statistics
    flags = Flag.COUNTS | Flag.RAILS | Flag.SUMMARY | Flag.HISTOGRAM
    flags |= Flag.STATS_ONLY if partly.values is None else Flag.SAMPLED
    for flag, holds in (
        (Flag.EXTREMES, not math.isnan(found.low)),
        (Flag.HAS_NAN, found.nan),
        (Flag.HAS_INF, found.inf),
        (Flag.TRUNCATED, kept.truncated),
    ):
        flags |= flag if holds else Flag(0)
    numbers = _NUMBERS.pack(
        *(found.count, found.nan, found.inf, found.zero, found.at_qmin, found.at_qmax),
        *(found.low, found.high, found.absmax, found.mean, found.std, found.l2, _UNKNOWN),
    )
    values, _ = _described(kept.dtype, kept.shape)
    return b"".join((_EVENT.pack(seq, *place, NO_PAYLOAD, -1, flags), values, kept.digest, numbers))


class IndexRows:
    """Rows of the index, and what else is known of events."""

    def __init__(self) -> None:
        self._rows = bytearray()
        self._tensors: dict[str, tuple[int, str]] = {}
        self._constants: set[str] = set()
        self._quants: dict[int, QuantParams] = {}
        self._samples: list[tuple[int, Stored, Stored]] = []
        self._histograms: list[tuple[int, np.ndarray]] = []
        self._samples_seen = self._steps_seen = 1

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self._rows) // TABLES["index"].itemsize

    def place(self, name: str, sample: int, step: int, *, constant: bool) -> Place:
        """Give the place of the next event; the tensor is known from the moment its first row is added."""
        known = self._tensors.get(name)
        tensor = len(self._tensors) if known is None else known[0]
        return Place(tensor, 0, 0) if constant else Place(tensor, sample, step)

    def add(
        self,
        row: bytes,
        name: str,
        place: Place,
        dtype: str,
        *,
        constant: bool,
        quant: QuantParams | None,
        partly: Partly | None = None,
    ) -> None:
        """Add the row of an event.

        Args:
            row: The row.
            name: The tensor.
            place: Where it belongs.
            dtype: Logical dtype of the tensor.
            constant: Whether the tensor is a constant.
            quant: The quantization of these values, where it is not their tensor's.
            partly: What was kept, if it was not all.
        """
        number, (tensor, sample, step) = self.count, place
        if tensor == len(self._tensors):
            self._tensors[name] = tensor, dtype
        if constant:
            self._constants.add(name)
        if sample >= self._samples_seen:
            self._samples_seen = sample + 1
        if step >= self._steps_seen:
            self._steps_seen = step + 1
        if quant is not None:
            self._quants[number] = quant
        if partly is not None:
            found = partly.kept.statistics
            self._histograms.append((number, np.stack([found.negative, found.positive])))
            if partly.values is not None and partly.positions is not None:
                self._samples.append((number, partly.values, partly.positions))
        self._rows += row

    def tables(self, graph: Graph, info: RunInfo) -> dict[str, np.ndarray]:
        """Make all tables.

        Raises:
            RecordingError: The graph cannot be stored.
        """
        recorded = [
            TensorInfo(name=name, dtype=dtype, role=Role.CONSTANT if name in self._constants else Role.ACTIVATION)
            for name, (_, dtype) in self._tensors.items()
            if name not in graph.tensors
        ]
        extent = {"samples": self._samples_seen, "steps": self._steps_seen}
        quants = list(self._quants.values())
        tables, rows, quant_rows = encode_tables(graph, info, recorded, **extent, quants=quants)
        index = np.frombuffer(self._rows, dtype=TABLES["index"])
        index["tensor"] = np.array([rows[name] for name in self._tensors], dtype=np.uint32)[index["tensor"]]
        if quants:
            index["quant"][list(self._quants)] = quant_rows
        return {**tables, "index": index, **self._optional()}

    def _optional(self) -> dict[str, np.ndarray]:
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
        return tables
