"""Several backends side by side: one row for each reference tensor, one cell for each backend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qdebug.compare.result.result import NodeResult, RunComparison
from qdebug.model.json_object import JsonObject
from qdebug.numerics.agreement import Agreement
from qdebug.numerics.stats import ErrorStats
from qdebug.present import numbers
from qdebug.present.rows import Cell, badness
from qdebug.present.text import safe_text

__all__ = ["Matrix", "MatrixRow", "agreement_sentence", "matrix_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow:
    """One reference tensor.

    Args:
        tensor: Its exact name.
        node: The node of the first backend that has it, safe to print.
        results: Its result in each backend, or the worst result if a backend has several. None if it was not compared.
        cells: SQNR in each backend, in dB.
        agreement: Whether the backends have the same errors, or None if fewer than two have it.
        agreement_cell: `agreement` as text.
    """

    tensor: str
    node: str
    results: Sequence[NodeResult | None]
    cells: Sequence[Cell]
    agreement: Agreement | None
    agreement_cell: str

    @property
    def stats(self) -> list[ErrorStats | None]:
        """Its error in each backend."""
        return [None if result is None else result.metrics for result in self.results]

    @property
    def worst(self) -> tuple[int, float, float]:
        """A key that sorts the worst rows first."""
        return min(badness(result) for result in self.results if result is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix(JsonObject):
    """The rows, in the order in which the first backend computes the tensors, and the names of the backends."""

    json_keys = "value=metric backends nodes=tensors rows=values agreement"

    backends: Sequence[str]
    rows: Sequence[MatrixRow]

    @property
    def metric(self) -> str:
        """Name of the metric in the cells."""
        return "sqnr_db"

    @property
    def tensors(self) -> list[str]:
        """The reference tensor of each row."""
        return [row.tensor for row in self.rows]

    @property
    def values(self) -> list[list[float | None]]:
        """The metric in each backend, row by row, or None if it has none."""
        return [[None if stats is None else stats.sqnr_db for stats in row.stats] for row in self.rows]

    @property
    def agreement(self) -> list[Agreement | None]:
        """Whether the backends have the same errors, row by row."""
        return [row.agreement for row in self.rows]

    def worst_rows(self, max_rows: int) -> list[MatrixRow]:
        """Return the rows with a difference, worst first."""
        wrong = [row for row in self.rows if any(result and _differs(result) for result in row.results)]
        return sorted(wrong, key=lambda row: row.worst)[:max_rows]


def _differs(result: NodeResult) -> bool:
    return result.metrics is None or result.metrics.mismatches > 0


def matrix_of(results: Mapping[str, RunComparison], agreement: Mapping[str, Agreement] | None = None) -> Matrix:
    """Return the results of several backends side by side, one row for each compared reference tensor.

    Args:
        results: One comparison for each backend, by its displayed name.
        agreement: Whether the backends have the same errors, by reference tensor, or None if it was not computed.
    """
    results_by_backend: list[dict[str, NodeResult]] = []
    for result in results.values():
        by_reference: dict[str, NodeResult] = {}
        for node in result.nodes:
            earlier = by_reference.get(node.reference_tensor)
            if earlier is None or badness(node) < badness(earlier):
                by_reference[node.reference_tensor] = node
        results_by_backend.append(by_reference)
    rows = []
    for tensor in dict.fromkeys(tensor for by_reference in results_by_backend for tensor in by_reference):
        row_results = [by_reference.get(tensor) for by_reference in results_by_backend]
        first = next(node for node in row_results if node is not None)
        row_agreement = None if agreement is None else agreement.get(tensor)
        rows.append(
            MatrixRow(
                tensor=tensor,
                node=safe_text(first.node, limit=200),
                results=row_results,
                cells=[_sqnr_cell(node) for node in row_results],
                agreement=row_agreement,
                agreement_cell=_agreement_cell(row_agreement),
            )
        )
    return Matrix(backends=list(results), rows=rows)


def _sqnr_cell(node: NodeResult | None) -> Cell:
    if node is None:
        return Cell(text=numbers.MISSING, state="muted")
    value = None if node.metrics is None else node.metrics.sqnr_db
    text = str(node.status) if value is None or math.isnan(value) else numbers.number(value)
    return Cell(text=text, value=value, state=node.status)


def _agreement_cell(agreement: Agreement | None) -> str:
    if agreement is None or not agreement.differ:
        return numbers.MISSING
    return f"{numbers.percent(agreement.same, agreement.differ)} of {numbers.grouped(agreement.differ)}"


def agreement_sentence(rows: Sequence[MatrixRow]) -> str:
    """Return how often the backends agree with each other where all differ from the reference, or "" if unknown."""
    agreements = [row.agreement for row in rows if row.agreement is not None]
    differ, same = sum(entry.differ for entry in agreements), sum(entry.same for entry in agreements)
    if not agreements:
        return ""
    if not differ:
        return "There is no element in which all backends differ from the reference."
    share = numbers.percent(same, differ)
    return (
        f"In {numbers.grouped(differ)} elements all backends differ from the reference; in {share} of "
        "these elements they "
        "agree with each other."
    )
