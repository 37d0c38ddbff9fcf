"""What was kept of values that were not kept in full, out of the rows that tell of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from qdebug.model.kept import EXPONENT_BINS, Statistics
from qdebug.store.layout import NO_PAYLOAD, OPTIONAL_TABLES, Flag

__all__ = ["PARTLY", "check_optional", "check_positions", "statistics_of"]

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
