"""Comparisons in a test: limits and ledger entries, including comparisons that could not run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qdebug.compare.result.limits import ALL_BOUNDS, Limits
from qdebug.compare.result.result import RunComparison
from qdebug.errors import QdebugError, UsageError
from qdebug.limits.limits_file import find_limits, load_limits
from qdebug.present.text import safe_text
from qdebug.pytest_plugin.gather import ComparisonLedger
from qdebug.pytest_plugin.options import Settings
from qdebug.testing import ComparisonError, check_close

__all__ = ["compare_and_note", "entry", "limits_of", "not_compared", "noting_errors", "path_beside_test", "with_bounds"]


def path_beside_test(item: pytest.Item, path: Any, argument: str) -> Path | None:
    """Return a path given by a marker, relative to the folder of the test."""
    if path is not None and not isinstance(path, str | Path):
        raise UsageError(
            f"The marker qdebug has {argument}={path!r}, which is not a path.",
            hint=f"Write {argument}='FILE', as a string.",
        )
    return None if path is None else item.path.parent / path


def compare_and_note(
    item: pytest.Item, ledger: ComparisonLedger, sides: tuple[Path, Any], limits: Limits, *, kind: str
) -> tuple[RunComparison, ComparisonError | None]:
    """Compare, and write the result to the JUnit properties and the ledger. Return it, with the failure if it failed.

    Args:
        item: The test.
        ledger: The ledger of this run.
        sides: The reference, and the backend: a path or an open recording.
        limits: The limits.
        kind: "reference" or "golden".

    Raises:
        RecordingError: A recording cannot be read.
        AlignmentError: The recordings are of different networks.
    """
    __tracebackhide__ = True
    failure = None
    with noting_errors(item, ledger, sides, kind=kind):
        try:
            result = check_close(*sides, limits=limits)
        except ComparisonError as error:
            failure, result = error, error.result
    facts = {
        "status": str(result.status),
        "first_divergence": result.first_divergence,
        "worst_sqnr_db": _worst_sqnr(result),
        "compared": result.coverage.compared,
    }
    for name, value in facts.items():
        item.user_properties.append((f"qdebug_{name}", "" if value is None else safe_text(value, limit=300)))
    noted = entry(item, str(result.status), files=sides, kind=kind, failed=failure is not None)
    noted |= {"first_divergence": result.first_divergence, "sentence": result.verdict.sentence}
    ledger.note({**noted, "exit_code": result.exit_code, "compared": result.coverage.compared})
    return result, failure


@contextmanager
def noting_errors(item: pytest.Item, ledger: ComparisonLedger, files: tuple[Path, Any], *, kind: str) -> Iterator[None]:
    """Add a comparison to the ledger if the block raises an error, so that the summary mentions it."""
    __tracebackhide__ = True
    try:
        yield
    except QdebugError as error:
        ledger.note(not_compared(item, str(error), files=files, kind=kind))
        raise


def _worst_sqnr(result: RunComparison) -> float | None:
    """Return the lowest SQNR, or NaN if any is NaN."""
    all_sqnr = [node.metrics.sqnr_db for node in result.nodes if node.metrics is not None]
    values = [value for value in all_sqnr if value is not None]
    return next(filter(math.isnan, values), min(values, default=None))


def entry(
    item: pytest.Item, outcome: str, *, files: tuple[Path, Any], kind: str, failed: bool = False
) -> dict[str, Any]:
    """Return the ledger entry of a comparison, without its result.

    Args:
        item: The test.
        outcome: The outcome, in a few words.
        files: Reference and backend; an open recording is left out.
        kind: "reference" or "golden".
        failed: Whether the comparison fails the test.
    """
    backend = files[1] if isinstance(files[1], str | Path) else None
    return {
        "test": item.nodeid,
        "kind": kind,
        "outcome": outcome,
        "failed": failed,
        "reference": str(files[0]),
        "backend": None if backend is None else str(backend),
        "first_divergence": None,
        "sentence": None,
        "exit_code": None,
        "compared": None,
    }


def not_compared(item: pytest.Item, reason: str, *, files: tuple[Path, Any], kind: str) -> dict[str, Any]:
    """Return the ledger entry of a comparison that could not run, with the reason. Other arguments: see `entry`."""
    return entry(item, "not compared", files=files, kind=kind, failed=True) | {"sentence": reason}


def limits_of(item: pytest.Item, settings: Settings) -> Limits:
    """Return the limits of a test: from its marker, else from the command line, the ini file or the project."""
    marker = item.get_closest_marker("qdebug")
    marker_arguments = {} if marker is None else marker.kwargs
    path = (
        path_beside_test(item, marker_arguments.get("limits"), "limits")
        or settings.limits
        or find_limits(settings.root)
    )
    limits = Limits() if path is None else load_limits(path)
    return with_bounds(limits, {name: marker_arguments[name] for name in ALL_BOUNDS if name in marker_arguments})


def with_bounds(limits: Limits, bounds: dict[str, Any]) -> Limits:
    """Return limits with some bounds replaced.

    Raises:
        UsageError: A bound with that name does not exist, or its value is invalid.
    """
    for name in bounds:
        if name not in ALL_BOUNDS:
            raise UsageError(f"Unknown limit {name!r}; limits are {', '.join(ALL_BOUNDS)}.", hint="Give one of these.")
    return replace(limits, **bounds)
