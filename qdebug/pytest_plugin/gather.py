"""The ledger of the comparisons in a pytest run: one JSON file each, read back by the controller.

Workers of pytest-xdist are separate processes. One file per worker and comparison works without a lock, survives if a
worker dies, and is plain data, which cannot execute anything when read.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from qdebug.pytest_plugin.options import Settings, file_name

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ComparisonLedger"]

_MAX_LINES = 20


class PytestComparison(TypedDict):
    """A comparison of a test.

    Args:
        test: The node id of the test.
        worker: The worker of pytest-xdist; empty without workers.
        kind: Whether it was compared with the reference of a marker, or with the golden recording of qdebug_regression.
        outcome: Status of the comparison, or what was done in place of one.
        failed: Whether the comparison fails its test.
        reference: Path of the reference, or of the golden recording.
        backend: Path of the test's recording; None if it was in memory or was written as golden.
        first_divergence: The first node that exceeds its limit; None if there is none.
        sentence: The verdict, or why nothing could be compared; None if a golden recording was written.
        exit_code: Exit code that `qdebug diff` would return; None if nothing was compared.
        compared: Number of compared tensors; None if nothing was compared.
    """

    test: str
    worker: str
    kind: Literal["reference", "golden"]
    outcome: Literal[
        "identical",
        "within",
        "accumulated",
        "diverged",
        "nonfinite",
        "incomplete",
        "not compared",
        "golden recording written",
    ]
    failed: bool
    reference: str
    backend: str | None
    first_divergence: str | None
    sentence: str | None
    exit_code: Literal[0, 1, 3] | None
    compared: int | None


class PytestReport(TypedDict):
    """The comparisons of a pytest run (--qdebug-report), ordered by test name."""

    format: str
    version: int
    comparisons: list[PytestComparison]


class ComparisonLedger:
    """The comparisons of a run, each in a file of its own.

    Args:
        folder: Folder of the files; None for a new temporary one, created on first use.
        worker: Name of this worker process; "" without workers.
    """

    def __init__(self, folder: str | None = None, *, worker: str = "") -> None:
        self._folder = None if folder is None else Path(folder)
        self._noted = 0
        self.worker = worker
        self.start_time = time.time()

    @property
    def folder(self) -> Path:
        """Folder of the files, created on first use."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="qdebug-pytest-"))
        return self._folder

    def note(self, entry: Mapping[str, Any]) -> None:
        """Add a comparison.

        Args:
            entry: The entry, from `comparing.entry`, as JSON values.
        """
        self._noted += 1
        name = file_name(f"{entry['test']} {self.worker} {self._noted}")
        target = self.folder / f"{name}.json"
        partial = target.with_suffix(".part")
        partial.write_text(json.dumps({**entry, "worker": self.worker}, allow_nan=False), encoding="utf-8")
        partial.replace(target)

    def entries(self) -> list[PytestComparison]:
        """Return every comparison of every worker, ordered by test name."""
        if self._folder is None:
            return []
        comparisons = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(self._folder.glob("*.json"))]
        return sorted(comparisons, key=lambda entry: (entry["test"], entry["worker"]))

    def write_report(self, path: Path) -> None:
        """Write all comparisons to one JSON file with the schema `qdebug/present/reports/schemas/pytest.schema.json`.

        Raises:
            OSError: The file cannot be written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        report: PytestReport = {"format": "qdebug.pytest", "version": 1, "comparisons": self.entries()}
        path.write_text(json.dumps(report, indent=2, allow_nan=False) + "\n", encoding="utf-8")

    def summary(self, settings: Settings) -> list[str]:
        """Return the lines of the terminal summary; empty if nothing was compared."""
        entries = self.entries()
        if not entries:
            return []
        from qdebug.plural import plural
        from qdebug.present.text import safe_text

        counts = Counter(entry["outcome"] for entry in entries)
        total = plural(len(entries), "comparison")
        lines = [f"{total}: {', '.join(f'{many} {outcome}' for outcome, many in sorted(counts.items()))}"]
        failed = [entry for entry in entries if entry["failed"]]
        for entry in failed[:_MAX_LINES]:
            node = entry["first_divergence"]
            where = f" at {safe_text(node, limit=120)}" if node else ""
            lines.append(f"  {safe_text(entry['test'], limit=300)}: {entry['outcome']}{where}")
        if len(failed) > _MAX_LINES:
            lines.append(f"  {len(failed) - _MAX_LINES} more failed")
        if failed and settings.keep != "never":
            lines.append(f"recordings of failed tests are in {safe_text(settings.folder)}")
        return lines

    def unfinished_lines(self, settings: Settings) -> list[str]:
        """Return one line for each recording that this run left unfinished, with the command that recovers it."""
        journals = sorted(settings.folder.glob("*.h5.journal"))
        recent = [journal for journal in journals if journal.stat().st_mtime >= self.start_time]
        from qdebug.present.shell import command

        lines = [
            f"incomplete, because its process died: {command('qdebug', 'file', 'recover', journal.with_suffix(''))}"
            for journal in recent[:_MAX_LINES]
        ]
        return [*lines, *([f"{len(recent) - _MAX_LINES} more are incomplete"] if len(recent) > _MAX_LINES else [])]

    def remove(self) -> None:
        """Delete the folder with its files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
