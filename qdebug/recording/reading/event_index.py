"""The index of a recording: finds the row of an event by tensor, sample and step, and reads events by row."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.model.kept import Kept
from qdebug.model.recording import Outline
from qdebug.recording.format.payload import from_physical
from qdebug.recording.format.specification import INDEX_DIMS, PARTIAL_FLAGS, TABLES, Flag
from qdebug.recording.reading.payloads import ExpectedPayload, Payloads, payload_digest, read_payload
from qdebug.recording.reading.tables import Tables, check_positions, statistics_of

__all__ = ["ElementsMismatchError", "EventIndex"]

_COLUMN_NAMES = ["tensor", "sample", "step", "payload", "quant", "flags", "dtype", "ndim", "shape", "nbytes", "hash"]
_ROW_DTYPE = np.dtype([(name, TABLES["index"][name]) for name in _COLUMN_NAMES])


class _EventOrder(NamedTuple):
    """Columns of the index as buffers, from which single numbers are read several times as fast as from arrays.

    Args:
        order: The rows, sorted by tensor, sample and step.
        starts: Position in `order` of the first row of each tensor, followed by the number of rows.
        samples: The sample of each row.
        steps: The step of each row.
        flags: The flags of each row.
    """

    order: memoryview
    starts: memoryview
    samples: memoryview
    steps: memoryview
    flags: memoryview


class ElementsMismatchError(Exception):
    """The kept elements of a tensor do not match their hash."""


class EventIndex:
    """The events of a recording by row, and their rows by tensor, sample and step.

    Args:
        index: The table /index, checked. Its statistics are dropped, except those of events not kept in full.
        tensors: Number of rows of /tensors.
        optional: The optional tables, checked.

    Attributes:
        rows: The table without its statistics.
    """

    def __init__(self, index: np.ndarray, tensors: int, optional: Tables | None = None) -> None:
        self.rows = index[_COLUMN_NAMES].astype(_ROW_DTYPE)
        self._tensors = tensors
        self._partial_rows = (index["flags"] & PARTIAL_FLAGS).nonzero()[0]
        self._partial_events = index[self._partial_rows]
        self.optional = {name: rows[np.argsort(rows["event"])] for name, rows in (optional or {}).items()}

    @cached_property
    def _event_order(self) -> _EventOrder:
        order = np.lexsort((self.rows["step"], self.rows["sample"], self.rows["tensor"]))
        starts = np.searchsorted(self.rows["tensor"][order], np.arange(self._tensors + 1))
        return _EventOrder(
            order.data, starts.data, *(self.rows[name].copy().data for name in ("sample", "step", "flags"))
        )

    def __len__(self) -> int:
        return len(self.rows)

    def find(self, tensor: int, sample: int, step: int) -> int | None:
        """Return the row of a tensor's event at a sample and step; None if there is none.

        Args:
            tensor: Row of /tensors.
            sample: The sample.
            step: The step.
        """
        order, starts, samples, steps, _ = self._event_order
        start, end = starts[tensor], starts[tensor + 1]
        if end - start > 1:
            start = bisect_left(order, (sample, step), start, end, key=lambda row: (samples[row], steps[row]))
        if start == end or (samples[row := order[start]], steps[row]) != (sample, step):
            return None
        return int(row)

    def places(self, tensor: int) -> tuple[tuple[int, int], ...]:
        """Return samples and steps of the events of a tensor, in order."""
        order, starts, samples, steps, _ = self._event_order
        return tuple((samples[row], steps[row]) for row in order[starts[tensor] : starts[tensor + 1]])

    def is_partial(self, row: int) -> bool:
        """Return whether not all values of an event were recorded."""
        return bool(self._event_order.flags[row] & PARTIAL_FLAGS)

    def expected(self, row: int) -> ExpectedPayload:
        """Return the expected facts of an event's payload, from the index."""
        return ExpectedPayload.of_event(self.rows[row])

    def digest(self, row: int) -> bytes:
        """Return the hash of an event's values."""
        return bytes(self.rows["hash"][row])

    def outline(self, row: int) -> Outline | None:
        """Return dtype, shape and hash of an event's values; None if the shape does not fit in the row."""
        event = self.rows[row]
        if (ndim := event["ndim"]) > INDEX_DIMS:
            return None
        return Outline(LOGICAL_DTYPES[event["dtype"]], tuple(event["shape"][:ndim].tolist()), event["hash"].tobytes())

    def kept(self, payloads: Payloads, row: int) -> Kept:
        """Read the partial record of an event.

        Raises:
            ElementsMismatchError: The elements do not match their hash.
            ValueError, OSError: They are damaged.
            MissingExtraError: They are compressed with Zstandard, and the package is not installed.
        """
        event, parts = self._partial_events[np.searchsorted(self._partial_rows, row)], {}
        dtype = LOGICAL_DTYPES[event["dtype"]]
        if (element_row := self._optional_row("samples", row)) is not None:
            for name, logical, digest in (("positions", "int64", "check"), ("values", dtype, "hash")):
                expected = ExpectedPayload.of_elements(int(element_row[name]), logical, int(element_row["count"]))
                if payload_digest(payloads, expected) != element_row[digest].tobytes():
                    raise ElementsMismatchError
                parts[name] = from_physical(read_payload(payloads, expected), logical)
            check_positions(parts["positions"], int(event["count"]))
        bins, sketch = self._optional_row("exponents", row), self._optional_row("sketches", row)
        return Kept(
            dtype=dtype,
            shape=ExpectedPayload.of_event(event).shape,
            digest=event["hash"].tobytes(),
            statistics=statistics_of(event, None if bins is None else bins["counts"]),
            positions=parts.get("positions"),
            values=parts.get("values"),
            sketch=None if sketch is None else sketch["projections"],
            truncated=bool(event["flags"] & Flag.TRUNCATED),
        )

    def elements(self) -> Iterator[tuple[int, str, ExpectedPayload]]:
        """Yield the payloads of kept elements: row of /samples, "values" or "positions", and expected facts."""
        for number, row in enumerate(self.optional.get("samples", ())):
            dtype = LOGICAL_DTYPES[self.rows["dtype"][row["event"]]]
            for part, logical in (("values", dtype), ("positions", "int64")):
                yield number, part, ExpectedPayload.of_elements(int(row[part]), logical, int(row["count"]))

    def _optional_row(self, table: str, event: int) -> Any:
        """Return an event's row in a table that has rows only for some events; None without a row."""
        if table not in self.optional:
            return None
        rows = self.optional[table]
        position = int(np.searchsorted(rows["event"], event))
        return rows[position] if position < len(rows) and rows["event"][position] == event else None
