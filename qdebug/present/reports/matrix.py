"""Several backends compared with one reference: one row for each reference tensor, one column for each backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qdebug.compare.result.result import RunComparison
from qdebug.model.json_object import JsonObject
from qdebug.numerics.agreement import Agreement
from qdebug.present import numbers
from qdebug.present.matrix import Matrix, MatrixRow, agreement_sentence, matrix_of
from qdebug.present.reports.document import Block, Document, Grid, Paragraph, Section
from qdebug.present.text import safe_text, shorten

__all__ = ["Diffs", "diffs_dict", "matrix_document"]

_ROWS_SHOWN = 12
"""Number of matrix rows that a report shows, worst first. The JSON contains all of them."""

_AGREEMENT_TITLE = "wrong alike"
_BACKEND_WIDTH = 24
_NODE_WIDTH = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Diffs(JsonObject):
    """Several backends compared with one reference, and the matrix of their SQNR."""

    json_format = "diffs"

    diffs: tuple[RunComparison, ...]
    matrix: Matrix


def diffs_dict(
    results: Mapping[str, RunComparison], agreement: Mapping[str, Agreement] | None = None
) -> dict[str, Any]:
    """Return several comparisons and the matrix of their SQNR in the form of the JSON.

    Args:
        results: One comparison for each backend, by displayed name.
        agreement: Whether the backends have the same errors, by reference tensor, or None if not requested.
    """
    return Diffs(diffs=tuple(results.values()), matrix=matrix_of(results, agreement)).to_dict()


def matrix_document(results: Mapping[str, RunComparison], agreement: Mapping[str, Agreement] | None) -> Document:
    """Return the report on several backends side by side, worst tensors first.

    Args:
        results: One comparison for each backend, by displayed name.
        agreement: Whether the backends have the same errors, by reference tensor, or None if not requested.
    """
    matrix = matrix_of(results, agreement)
    summary = [
        (
            f"{_letter(at)} {shorten(safe_text(name), 60)}",
            str(result.status),
            _short_name(result.first_divergence),
            _short_name(result.origin),
        )
        for at, (name, result) in enumerate(results.items())
    ]
    titles = ("backend", "status", "first divergence", "origin")
    blocks: list[Block] = [Section("several backends"), Grid(titles=titles, rows=summary, names=frozenset({0, 2, 3}))]
    shown = matrix.worst_rows(_ROWS_SHOWN)
    if not shown:
        return [*blocks, Paragraph("Every backend equals the reference in every tensor compared.")]
    has_agreement = any(row.agreement for row in matrix.rows)
    heads = (
        "SQNR dB of node",
        *map(_letter, range(len(matrix.backends))),
        *([_AGREEMENT_TITLE] if has_agreement else []),
    )
    rows = [
        (
            shorten(row.node, _NODE_WIDTH),
            *(cell.text for cell in row.cells),
            *([row.agreement_cell] if has_agreement else []),
        )
        for row in shown
    ]
    right = frozenset(range(1, len(heads)))
    sentence = agreement_sentence(matrix.rows)
    return [
        *blocks,
        Grid(titles=heads, rows=rows, right=right, names=frozenset({0})),
        Paragraph(_hidden_text(matrix, shown), "dim"),
        *([Paragraph(sentence)] if sentence else []),
    ]


def _hidden_text(matrix: Matrix, shown: Sequence[MatrixRow]) -> str:
    return f"the {numbers.grouped(len(shown))} worst of {numbers.grouped(len(matrix.rows))} tensors; the JSON has all"


def _letter(position: int) -> str:
    """Return the short name of a backend in the matrix: A to Z, then A1."""
    cycle, letter_index = divmod(position, 26)
    return chr(ord("A") + letter_index) + (str(cycle) if cycle else "")


def _short_name(name: str | None) -> str:
    return numbers.MISSING if name is None else shorten(safe_text(name), _BACKEND_WIDTH)
