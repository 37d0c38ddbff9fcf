"""The numbers of all rows by name, as columns made when they are looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from qdebug.tui.nodes.row_results import RowResults
from qdebug.view.rows import on_rails

if TYPE_CHECKING:  # the first rows are drawn before there are results
    from qdebug.compare.result.held import HeldNodes
    from qdebug.compare.result.result import NodeResult

__all__ = ["METRIC_CHOICES", "RowColumns", "number_of", "numbers_of"]

METRIC_CHOICES = ("sqnr_db", "introduced", "rel_l2", "max_lsb", "max_abs", "cosine", "mismatches")
"""Metrics that the list and the profile can show, in the order the key walks them; "introduced" is the relative
(rel_l2) error that a node adds itself, the others are of the whole error."""

_NAMES = (*METRIC_CHOICES, "propagated", "gain", "saturated")
_PATHS = {"introduced": "introduced.rel_l2", "propagated": "propagated.rel_l2", "gain": "gain"}

_STAY = 5
"""Columns that stay made where a session can make them again: what one screen draws."""


class RowColumns(Mapping[str, np.ndarray]):
    """Columns of float64, one number for each row, NaN where it is not known.

    Args:
        results: The results of the rows.
    """

    def __init__(self, results: RowResults) -> None:
        self._results = results
        self._made: dict[str, np.ndarray] = {}
        self._nothing = np.broadcast_to(np.float64(np.nan), (len(results),))

    def __getitem__(self, name: str) -> np.ndarray:
        column = self._made.pop(name, None)
        if column is None:
            if name not in _NAMES:
                raise KeyError(name)
            if not self._results.any:
                return self._nothing
            column = self._filled(name)
        self._made[name] = column  # as the one looked at last
        if self._results.held is not None and len(self._made) > _STAY:
            del self._made[next(iter(self._made))]
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
        """Give one number, without making its column."""
        if name in self._made:
            return float(self._made[name][row])
        result = self._results[row]
        return np.nan if result is None else number_of(result, name)

    def put(self, rows: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
        """Fill in the numbers of some rows; a column that is made and not among them is made anew when it is needed."""
        for name in self.made:
            if name in columns:
                self._made[name][rows] = columns[name]
            else:
                del self._made[name]

    def _filled(self, name: str) -> np.ndarray:
        column = np.full(len(self._results), np.nan)
        rows, indices = self._results.known()
        held = self._results.held
        if held is None:
            column[rows] = [number_of(result, name) for result in self._results if result is not None]
        else:
            column[rows] = numbers_of(held, name)[indices]
        return column


def number_of(result: NodeResult, name: str) -> float:
    """Give one of the numbers of a result, NaN if it is not known."""
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


def numbers_of(held: HeldNodes, name: str) -> np.ndarray:
    """Give one of the numbers of all results that a session holds, without making one of them."""
    if name != "saturated":
        return held.numbers(_PATHS.get(name, f"metrics.{name}"))
    rails = {part: held.numbers(f"saturation.{part}") for part in ("at_qmin", "at_qmax", "floor", "total")}
    most = min(map(len, rails.values()))  # more may be added meanwhile
    low, high, floor, total = (rails[part][:most] for part in ("at_qmin", "at_qmax", "floor", "total"))
    with np.errstate(divide="ignore", invalid="ignore"):
        share: np.ndarray = (low - floor + high) / total
    share[total == 0] = np.nan
    return share
