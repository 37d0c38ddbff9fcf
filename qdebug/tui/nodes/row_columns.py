"""The numbers of all rows by name, as columns made when they are looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from qdebug.view.rows import on_rails

if TYPE_CHECKING:  # the first rows are drawn before there are results
    from qdebug.compare.result.result import NodeResult

__all__ = ["METRIC_CHOICES", "RowColumns", "number_of", "numbers_of"]

METRIC_CHOICES = ("sqnr_db", "introduced", "rel_l2", "max_lsb", "max_abs", "cosine", "mismatches")
"""Metrics that the list and the profile can show, in the order the key walks them; "introduced" is the relative
(rel_l2) error that a node adds itself, the others are of the whole error."""

_NAMES = (*METRIC_CHOICES, "propagated", "gain", "saturated")


class RowColumns(Mapping[str, np.ndarray]):
    """Columns of float64, one number for each row, NaN where it is not known.

    Args:
        results: The result of each row, None where there is none yet.
    """

    def __init__(self, results: Sequence[NodeResult | None]) -> None:
        self._results = results
        self._made: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        column = self._made.get(name)
        if column is None:
            if name not in _NAMES:
                raise KeyError(name)
            column = self._made[name] = numbers_of(self._results, name)
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)

    @property
    def made(self) -> Sequence[str]:
        """Names of the columns that are there; asked by any thread."""
        return tuple(self._made)

    def number(self, name: str, row: int) -> float:
        """Return one number, without making its column."""
        if name in self._made:
            return float(self._made[name][row])
        result = self._results[row]
        return np.nan if result is None else number_of(result, name)

    def put(self, rows: np.ndarray, results: Sequence[NodeResult], columns: Mapping[str, np.ndarray]) -> None:
        """Fill in the numbers of some rows in the columns that are there.

        Args:
            rows: The rows.
            results: Their results.
            columns: Their numbers, of the columns that were there some time ago.
        """
        for name, made in self._made.items():
            made[rows] = columns[name] if name in columns else numbers_of(results, name)


def numbers_of(results: Sequence[NodeResult | None], name: str) -> np.ndarray:
    """Return one of the numbers of each result, NaN where it is not known."""
    return np.array([np.nan if result is None else number_of(result, name) for result in results], np.float64)


def number_of(result: NodeResult, name: str) -> float:
    """Return one of the numbers of a result, NaN if it is not known."""
    value: float | None
    if name == "saturated":
        rails = result.saturation
        value = on_rails(rails) / rails.total if rails is not None and rails.total else None
    elif name in {"introduced", "propagated"}:
        stats = result.introduced if name == "introduced" else result.propagated
        value = None if stats is None else stats.rel_l2
    elif name == "gain":
        value = result.gain
    else:
        value = None if result.metrics is None else getattr(result.metrics, name)
    return np.nan if value is None else value
