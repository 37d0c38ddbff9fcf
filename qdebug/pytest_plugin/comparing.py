"""Comparisons of a test: with which limits, and what is noted of each, also of one that cannot be made."""

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

__all__ = ["beside", "compared", "entry", "limits_of", "not_compared", "noting", "with_bounds"]


def beside(item: pytest.Item, named: Any, what: str) -> Path | None:
    """Return a path that a marker names: it starts at the folder of the test."""
    if named is not None and not isinstance(named, str | Path):
        raise UsageError(
            f"The marker qdebug has {what}={named!r}, which is no path.", hint=f"Write {what}='FILE', as text."
        )
    return None if named is None else item.path.parent / named


def compared(
    item: pytest.Item, ledger: ComparisonLedger, sides: tuple[Path, Any], limits: Limits, *, kind: str
) -> tuple[RunComparison, ComparisonError | None]:
    """Compare, note the outcome for JUnit and for the end of the run, and give the result and the failure if any.

    Args:
        item: The test.
        ledger: Where comparisons are noted.
        sides: The reference, and the backend: a path or an open recording.
        limits: What counts as too far.
        kind: "reference" or "golden".

    Raises:
        RecordingError: A recording cannot be read.
        AlignmentError: They are of different networks.
    """
    __tracebackhide__ = True
    failure = None
    with noting(item, ledger, sides, kind=kind):
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
def noting(item: pytest.Item, ledger: ComparisonLedger, files: tuple[Path, Any], *, kind: str) -> Iterator[None]:
    """Note a comparison that cannot be made: at the end of the run it must not look as if nobody had asked for it."""
    __tracebackhide__ = True
    try:
        yield
    except QdebugError as error:
        ledger.note(not_compared(item, str(error), files=files, kind=kind))
        raise


def _worst_sqnr(result: RunComparison) -> float | None:
    """Return the least SQNR; NaN, which is neither more nor less than a number, comes before all."""
    known = [node.metrics.sqnr_db for node in result.nodes if node.metrics is not None]
    values = [value for value in known if value is not None]
    return next(filter(math.isnan, values), min(values, default=None))


def entry(
    item: pytest.Item, outcome: str, *, files: tuple[Path, Any], kind: str, failed: bool = False
) -> dict[str, Any]:
    """Return what is noted of a comparison, before anything is known of its result.

    Args:
        item: The test.
        outcome: What became of it, in a few words.
        files: Reference and backend; what is no path is not noted.
        kind: "reference" or "golden".
        failed: Whether the test fails for it.
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


def not_compared(item: pytest.Item, why: str, *, files: tuple[Path, Any], kind: str) -> dict[str, Any]:
    """Return what is noted of a comparison that cannot be made, and why; the rest is as for `entry`."""
    return entry(item, "not compared", files=files, kind=kind, failed=True) | {"sentence": why}


def limits_of(item: pytest.Item, settings: Settings) -> Limits:
    """Return the limits of a test: its marker's before those of the command line, of the ini file, of the project."""
    marker = item.get_closest_marker("qdebug")
    given = {} if marker is None else marker.kwargs
    path = beside(item, given.get("limits"), "limits") or settings.limits or find_limits(settings.root)
    limits = Limits() if path is None else load_limits(path)
    return with_bounds(limits, {name: given[name] for name in ALL_BOUNDS if name in given})


def with_bounds(limits: Limits, bounds: dict[str, Any]) -> Limits:
    """Return limits with some in place of others.

    Raises:
        UsageError: There is no limit of that name, or its value means nothing.
    """
    for name in bounds:
        if name not in ALL_BOUNDS:
            raise UsageError(
                f"There is no limit {name!r}; there are {', '.join(ALL_BOUNDS)}.", hint="Give one of these."
            )
    return replace(limits, **bounds)
