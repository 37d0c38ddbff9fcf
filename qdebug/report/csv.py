"""The comparison as CSV: a header and a line for each tensor, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from io import StringIO
from typing import Any

import numpy as np

from qdebug.compare.measure.pair_values import PairedValues
from qdebug.compare.result.flat_rows import COLUMNS
from qdebug.compare.result.result import DiffResult
from qdebug.numerics.double_block import real_differences
from qdebug.view.text import safe_text

__all__ = ["diff_csv", "element_csv", "guarded"]

_FORMULA = tuple("=+-@\t\r\n|%\uff1d\uff0b\uff0d\uff20")
"""Characters with which a spreadsheet may begin to compute, the full-width forms included."""

_TEXT_LIMIT = 2000


def diff_csv(results: Mapping[str, DiffResult]) -> str:
    """Give comparisons as CSV with the columns of `DiffResult.to_rows`; a NaN or infinity is written by name.

    Args:
        results: One comparison for each backend, by the name shown for it; of several, a first column has that name.
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    several = len(results) > 1
    writer.writerow([*(["backend"] if several else []), *COLUMNS])
    for backend, result in results.items():
        first = [guarded(backend)] if several else []
        writer.writerows([*first, *(_cell(row[name]) for name in COLUMNS)] for row in result.to_rows())
    return text.getvalue()


def element_csv(values: PairedValues) -> str:
    """Give both sides of one tensor as CSV, an element a line: index, real values, difference, codes where there are.

    Args:
        values: The two sides, of one sample and step.
    """
    reference, backend = (_whole(side) for side in (values.reference, values.backend))
    columns = {
        "reference": reference,
        "backend": backend,
        "difference": _differences(reference, backend),
    }
    for name, codes in (("reference_code", values.reference_codes), ("backend_code", values.backend_codes)):
        if codes is not None:
            columns[name] = codes.reshape(backend.shape)
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["index", *columns])
    flat = [column.ravel().tolist() for column in columns.values()]
    for index, *row in zip(np.ndindex(backend.shape), *flat, strict=True):
        writer.writerow([",".join(map(str, index)), *map(_cell, row)])
    return text.getvalue()


def _whole(side: np.ndarray) -> np.ndarray:
    """Give booleans as the integers 0 and 1, and all else as it is."""
    return side.astype(np.uint8) if side.dtype == np.bool_ else side


def _differences(reference: np.ndarray, backend: np.ndarray) -> np.ndarray:
    """Give backend minus reference; of integers as Python integers, which hold all of them."""
    if reference.dtype.kind in "iu" and backend.dtype.kind in "iu":
        return np.asarray(backend.astype(object) - reference.astype(object).reshape(backend.shape))
    return real_differences(reference, backend)


def guarded(value: object) -> str:
    """Give text that a spreadsheet shows and does not compute: what could begin a formula gets a quote before it.

    Args:
        value: Anything, such as a name from a recording.
    """
    text = safe_text(value, limit=_TEXT_LIMIT)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return (
            repr(value)
            if math.isfinite(value)
            else "NaN"
            if math.isnan(value)
            else f"{'-' if value < 0 else ''}Infinity"
        )
    return str(value) if isinstance(value, int) else guarded(value)
