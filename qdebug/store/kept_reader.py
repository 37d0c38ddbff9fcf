"""Read what was kept of values that were not kept in full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.model.kept import Kept
from qdebug.store.container import Container
from qdebug.store.kept_rows import PARTLY, check_positions, statistics_of
from qdebug.store.layout import INDEX_DIMS, Flag, physical_dtype
from qdebug.store.payload import from_physical
from qdebug.store.payload_reader import Expected, payload_digest, read_payload

__all__ = ["KeptReader"]


class KeptReader:
    """The events of a file of which not all values were kept.

    Args:
        index: The table /index, checked; only rows of such events are kept.
        optional: The tables that only files with such events have.
    """

    def __init__(self, index: np.ndarray, optional: Mapping[str, np.ndarray]) -> None:
        self._events = np.flatnonzero(index["flags"] & PARTLY)
        self._rows = index[self._events]
        self._optional = optional
        self._order: dict[str, np.ndarray] = {}

    def read(self, container: Container, event: int) -> Kept:
        """Give what was kept of an event.

        Args:
            container: The file, open.
            event: Row of the index.

        Raises:
            ValueError, OSError: It is not what was recorded.
            MissingExtraError: It is compressed with Zstandard, and the package is not installed.
        """
        row = self._rows[np.searchsorted(self._events, event)]
        flags, bins = Flag(int(row["flags"])), self._row("exponents", event)
        positions, values = self._sampled(container, event, row) or (None, None)
        return Kept(
            dtype=LOGICAL_DTYPES[row["dtype"]],
            shape=tuple(int(size) for size in row["shape"][: min(int(row["ndim"]), INDEX_DIMS)]),
            digest=row["hash"].tobytes(),
            statistics=statistics_of(row, None if bins is None else bins["counts"]),
            positions=positions,
            values=values,
            truncated=Flag.TRUNCATED in flags,
        )

    def _row(self, table: str, event: int) -> Any:
        """Give the row of an event in a table that only some events have a row in; None if it has none."""
        rows = self._optional.get(table)
        if rows is None:
            return None
        if table not in self._order:
            self._order[table] = np.argsort(rows["event"])
        order = self._order[table]
        at = int(np.searchsorted(rows["event"], event, sorter=order))
        return rows[order[at]] if at < len(rows) and rows["event"][order[at]] == event else None

    def _sampled(self, container: Container, event: int, row: Any) -> tuple[np.ndarray, np.ndarray] | None:
        """Read the positions and values of the elements that were kept of an event; None if none were."""
        found = self._row("samples", event)
        if found is None:
            return None
        dtype, parts = LOGICAL_DTYPES[row["dtype"]], []
        for name, logical, digest in (("positions", "int64", "check"), ("values", dtype, "hash")):
            count = int(found["count"])
            nbytes = count * physical_dtype(logical).itemsize
            where = Expected(number=int(found[name]), dtype=logical, nbytes=nbytes, ndim=1, shape=(count,))
            if payload_digest(container, where) != found[digest].tobytes():
                raise ValueError("kept elements are not those recorded")
            parts.append(from_physical(read_payload(container, where), logical))
        check_positions(parts[0], int(row["count"]))
        return parts[0], parts[1]
