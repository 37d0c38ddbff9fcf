"""A history of results in an SQLite file, and the changes in it: `track` and `history`.

All runs of a command are added in one transaction, so that several processes may write to one file. Triggers prevent
rows from being changed or deleted.
"""

from __future__ import annotations

import math
import shutil
import sqlite3
import subprocess
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from qdebug.accuracy.report import AccuracyReport, Decision, row_loss
from qdebug.compare.explaining.explanation import ExplainedRun, ExplainStatus
from qdebug.compare.result.node_result import Status
from qdebug.compare.result.result import RunComparison
from qdebug.errors import RecordingError, UsageError
from qdebug.model import RunInfo
from qdebug.model.json_object import JsonObject
from qdebug.model.thresholds.accuracy import (
    ACCURACY_MAX_LOSS,
    HISTORY_MAX_SCORE_DRIFT,
    HISTORY_MAX_SQNR_DROP,
    HISTORY_SQNR_CEILING,
)
from qdebug.recording.environment import cpu_model
from qdebug.version import __version__

__all__ = [
    "History",
    "Movement",
    "Tracked",
    "TrackedValue",
    "check_track",
    "history",
    "track",
    "tracked_accuracy",
    "tracked_diff",
    "tracked_explanation",
]

_APPLICATION_ID = 0x71646267
"""SQLite application id of the file: "qdbg" in ASCII."""
_VERSION = 1
_TIMEOUT = 60.0
"""Seconds to wait for other writing processes or for git."""
_TOP_SCORE = "top score"
"""Name of the measure with the winners' mean score."""
_SQLITE_MAGIC = b"SQLite format 3\0"

_SCHEMA = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, created TEXT NOT NULL, verb TEXT NOT NULL, network TEXT NOT NULL, backend TEXT NOT NULL,
    cpu TEXT NOT NULL, labels TEXT NOT NULL, commit_id TEXT NOT NULL, qdebug TEXT NOT NULL, good INTEGER NOT NULL
);
CREATE TABLE results (
    run INTEGER NOT NULL REFERENCES runs (id), name TEXT NOT NULL, measure TEXT NOT NULL, value REAL,
    status TEXT NOT NULL, good INTEGER NOT NULL, rows INTEGER, bits
);
CREATE INDEX results_of_run ON results (run);
"""
_TRIGGERS = "".join(
    f"CREATE TRIGGER {table}_{event.lower()} BEFORE {event} ON {table} "
    "BEGIN SELECT RAISE(ABORT, 'a history is never changed'); END;"
    for table in ("runs", "results")
    for event in ("UPDATE", "DELETE")
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrackedValue:
    """One number of a run.

    Args:
        name: The node, or its tensor if it has several, or "" for the whole network.
        measure: The measure, such as "top-1" or "sqnr_db".
        value: The number, or None if there is none.
        status: Status of the number, as one word.
        good: Whether the status is good.
        right: Whether each row is right, bool, or None if there are no rows.
    """

    name: str
    measure: str
    value: float | None
    status: str
    good: bool
    right: np.ndarray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """A run to add to a history.

    Args:
        verb: The command: "accuracy", "diff" or "explain".
        network: The model.
        backend: The backend, with its options.
        cpu: The processor.
        good: Whether all values of the run are good.
        values: The numbers.
        labels: Hash of the labels, or "".
        commit: The commit of the current folder, or "" outside a repository.
        created: UTC time in ISO 8601.
    """

    verb: str
    network: str
    backend: str
    cpu: str
    good: bool
    values: Sequence[TrackedValue]
    labels: str = ""
    commit: str = ""
    created: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement(JsonObject):
    """How one number changed over the runs of a series.

    Args:
        verb: The command.
        network: The model.
        backend: The backend, with its options.
        cpu: The processor.
        name: The node, or "" for the whole network.
        measure: The measure.
        values: The number in each run, oldest first, or None if it was not measured.
        commits: The commit of each run.
        status: The status in the last run.
        worse: Whether it got worse beyond its margin.
        best: The best good value before the last run, or None if there was none.
        last_good: Index of the last run that was good and within the margin of the best, or None if there is none.
        why: What got worse, as one clause, or "" if nothing did.
    """

    json_keys = (
        "verb network backend cpu name|null measure values commits status worse moved best last_good_commit "
        "first_bad_commit why|null"
    )

    verb: str
    network: str
    backend: str
    cpu: str
    name: str
    measure: str
    values: tuple[float | None, ...]
    commits: tuple[str, ...]
    status: str
    worse: bool
    best: float | None
    last_good: int | None
    why: str = ""

    @property
    def last_good_commit(self) -> str | None:
        """The commit of the last good run, or None if there is none."""
        return None if self.last_good is None else self.commits[self.last_good]

    @property
    def first_bad_commit(self) -> str | None:
        """The commit of the run after the last good one, or None if nothing got worse."""
        return None if not self.worse or self.last_good is None else self.commits[self.last_good + 1]

    @property
    def moved(self) -> bool:
        """Whether the last run differs from the last good one, or got worse."""
        if self.worse or self.last_good is None:
            return self.worse
        return self.values[-1] != self.values[self.last_good]


@dataclass(frozen=True, slots=True, kw_only=True)
class History(JsonObject):
    """The changes in the last run of each series.

    Args:
        runs: Number of runs.
        series: Number of series.
        movements: Each number of each series.
    """

    json_format = "history"
    json_keys = "runs series worse=worse_count movements"

    runs: int
    series: int
    movements: tuple[Movement, ...]

    @property
    def worse(self) -> tuple[Movement, ...]:
        """The numbers that got worse beyond their margin."""
        return tuple(movement for movement in self.movements if movement.worse)

    @property
    def worse_count(self) -> int:
        """Number of the numbers that got worse."""
        return len(self.worse)

    @property
    def exit_code(self) -> int:
        """Exit code: 1 if anything got worse beyond its margin, or 0."""
        return 1 if self.worse else 0


def _make_entry(
    info: RunInfo, verb: str, values: Sequence[TrackedValue], title: str, *, good: bool, labels: str = ""
) -> Tracked:
    options = ",".join(f"{name}={value}" for name, value in sorted(info.options.items()) if isinstance(value, str))
    return Tracked(
        verb=verb,
        network=info.model or title,
        backend=f"{info.backend}:{options}" if options else info.backend,
        cpu=info.versions.get("cpu") or cpu_model(),
        good=good,
        values=values,
        commit=_commit(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        labels=labels,
    )


def tracked_accuracy(report: AccuracyReport) -> list[Tracked]:
    """Return the entries of an accuracy report for a history, one for each run."""
    runs, worse_values = [], {(pair.backend, loss.name) for pair, loss in report.losses(Decision.WORSE)}
    for run in report.runs:
        values = [
            TrackedValue(
                name="",
                measure=measure.name,
                value=measure.value,
                status="worse" if (run, measure.name) in worse_values else "good",
                good=(run, measure.name) not in worse_values,
                right=measure.right,
            )
            for measure in run.measures
        ]
        is_good = all(value.good for value in values)
        if run.top_score is not None:
            values.append(TrackedValue(name="", measure=_TOP_SCORE, value=run.top_score, status="good", good=True))
        runs.append(_make_entry(run.info, "accuracy", values, Path(run.file).stem, good=is_good, labels=report.labels))
    return _with_unique_networks(runs, [Path(run.file).stem for run in report.runs])


def _with_unique_networks(runs: Sequence[Tracked], titles: Sequence[str]) -> list[Tracked]:
    """Append the file's name to the network's if runs of one command share network and backend, as separate series."""
    counts = Counter((run.network, run.backend) for run in runs)
    return [
        replace(run, network=f"{run.network} {title}") if counts[run.network, run.backend] > 1 else run
        for run, title in zip(runs, titles, strict=True)
    ]


def tracked_diffs(results: Mapping[str, RunComparison]) -> list[Tracked]:
    """Return the entries of comparisons with one reference.

    Args:
        results: The comparisons, by the files of the backends.
    """
    titles = [Path(name).stem for name in results]
    return _with_unique_networks(
        [tracked_diff(result, title) for result, title in zip(results.values(), titles, strict=True)], titles
    )


def tracked_diff(result: RunComparison, title: str) -> Tracked:
    """Return the entry of a comparison.

    Args:
        result: The comparison.
        title: Name of the network if the recording has none.
    """
    tensor_counts = Counter(node.node for node in result.nodes)
    values = [
        TrackedValue(
            name=node.node if tensor_counts[node.node] == 1 else node.tensor,
            measure="sqnr_db",
            value=None if node.metrics is None else node.metrics.sqnr_db,
            status=str(node.status),
            good=node.status in (Status.IDENTICAL, Status.WITHIN) or node.acknowledged is not None,
        )
        for node in result.nodes
    ]
    values.insert(
        0, TrackedValue(name="", measure="verdict", value=None, status=str(result.status), good=not result.exit_code)
    )
    return _make_entry(result.backend, "diff", values, title, good=not result.exit_code)


def tracked_explanation(explanation: ExplainedRun, title: str) -> Tracked:
    """Return the entry of an explanation.

    Args:
        explanation: The explanation.
        title: Name of the network if the recording has none.
    """
    tensor_counts = Counter(node.node for node in explanation.nodes)
    values = [
        TrackedValue(
            name=node.node if tensor_counts[node.node] == 1 else node.tensor,
            measure="match",
            value=node.match,
            status=str(node.status),
            good=node.status is not ExplainStatus.UNEXPLAINED or node.accepted is not None,
        )
        for node in explanation.nodes
        if node.status in (ExplainStatus.EXPLAINED, ExplainStatus.UNEXPLAINED, ExplainStatus.IN_BAND)
    ]
    return _make_entry(explanation.run, "explain", values, title, good=not explanation.exit_code)


def _commit() -> str:
    """Return the commit of the current folder, with "+" if tracked files were changed; "" outside a repository."""
    program = shutil.which("git")
    if program is None:
        return ""

    def run_git(*arguments: str) -> str:
        process = subprocess.run(  # noqa: S603  fixed arguments
            (program or "", *arguments), capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
        return process.stdout.strip() if not process.returncode else ""

    try:
        commit = run_git("rev-parse", "--short=12", "HEAD")
        return f"{commit}+" if commit and run_git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return ""


def check_track(path: Path) -> None:
    """Reject a file that is not a history, before doing any work for it.

    Raises:
        UsageError: The file is something else, or was written by a newer version.
        RecordingError: The file is damaged, or its folder does not exist.
    """
    if not path.exists():
        if not path.parent.is_dir():
            raise RecordingError(
                f"The directory {str(path.parent)!r} does not exist.", hint="Create it first, or give another path."
            )
        return
    with _open_history(path, write=False):
        pass


def track(path: Path, runs: Sequence[Tracked]) -> None:
    """Add runs to a history: all of them, or none if an error occurs. The file is created if missing.

    Args:
        path: The file.
        runs: The runs.

    Raises:
        UsageError: The file is something else.
        RecordingError: The file is damaged or cannot be written.
    """
    with _open_history(path, write=True) as database:
        for run in runs:
            cursor = database.execute(
                "INSERT INTO runs (created, verb, network, backend, cpu, labels, commit_id, qdebug, good)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [*map(_utf8_text, (run.created, run.verb, run.network, run.backend, run.cpu, run.labels, run.commit)),
                 __version__, int(run.good)],
            )  # fmt: skip
            database.executemany(
                "INSERT INTO results (run, name, measure, value, status, good, rows, bits)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (
                        cursor.lastrowid, _utf8_text(value.name), _utf8_text(value.measure),
                        value.value, value.status, int(value.good),
                        None if value.right is None else value.right.size,
                        None if value.right is None else zlib.compress(np.packbits(value.right).tobytes()),
                    )
                    for value in run.values
                ),
            )  # fmt: skip


def _utf8_text(text: str) -> str:
    """Return a text that UTF-8 can encode, since names may contain lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


@contextmanager
def _open_history(path: Path, *, write: bool) -> Iterator[sqlite3.Connection]:
    """Open a history for one transaction. Errors of SQLite and of the system become a `RecordingError`."""
    try:
        if path.exists():
            _check_magic(path)
        mode = "rwc" if write else "ro"
        uri = f"{path.resolve().as_uri()}?mode={mode}"
        with closing(sqlite3.connect(uri, uri=True, timeout=_TIMEOUT, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            _check_schema(database, path, write=write)
            yield database
            database.execute("COMMIT")
    except sqlite3.Error as error:
        raise RecordingError(
            f"The history {str(path)!r} cannot be {'written' if write else 'read'}: {error}.",
            hint="Nothing was added. Keep the file, and start a new history: --track NEW.db.",
        ) from error
    except OSError as error:
        raise RecordingError(
            f"The history {str(path)!r} cannot be opened: {error.strerror or error}.",
            hint="Check path and permissions.",
        ) from error


def _check_magic(path: Path) -> None:
    """Reject a file that SQLite did not write, before SQLite touches it."""
    if not path.is_file():
        raise UsageError(f"{str(path)!r} is not a regular file.", hint="Give the name of a file: --track runs.db.")
    with path.open("rb") as file:
        start = file.read(len(_SQLITE_MAGIC))
    if start and start != _SQLITE_MAGIC:
        raise UsageError(
            f"{str(path)!r} is not a qdebug history; it was left unchanged.", hint="Give another file: --track runs.db."
        )


def _check_schema(database: sqlite3.Connection, path: Path, *, write: bool) -> None:
    """Reject a database of another program, and create the tables in an empty one if it is written."""
    (application_id,), (version,) = (
        database.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not application_id and not tables:
        if write:
            for statement in [*_SCHEMA.split(";\n"), *_TRIGGERS.replace("END;", "END;\0").split("\0")]:
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {_VERSION}")
        elif path.stat().st_size:
            raise UsageError(f"{str(path)!r} is an empty database.", hint="Give a file that --track wrote.")
        return
    if application_id != _APPLICATION_ID:
        raise UsageError(
            f"{str(path)!r} is a database of another program; it was left unchanged.",
            hint="Give another file: --track runs.db.",
        )
    if version > _VERSION:
        raise UsageError(f"The history {str(path)!r} was written by a newer qdebug.", hint="Update qdebug.")


def history(path: Path, *, within: float | None = None) -> History:
    """Return the changes in the last run of each series.

    Args:
        path: The history.
        within: The largest allowed loss of accuracy, or None for the default.

    Raises:
        UsageError: There is no such file, or it is something else.
        RecordingError: The file is damaged.
    """
    if not path.exists():
        raise UsageError(
            f"There is no history file {str(path)!r}.", hint="Create one: qdebug accuracy ... --track runs.db."
        )
    with _open_history(path, write=False) as database:
        if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise UsageError(f"The history {str(path)!r} is empty.", hint="Add runs: qdebug accuracy ... --track FILE.")
        runs = database.execute(
            "SELECT id, verb, network, backend, cpu, labels, commit_id FROM runs ORDER BY id"
        ).fetchall()
        by_series: dict[tuple[str, ...], list[tuple[int, str]]] = {}
        for number, *key, commit in runs:
            by_series.setdefault(tuple(map(str, key)), []).append((number, commit))
        movements = [
            movement
            for key, entries in by_series.items()
            for movement in _list_movements(database, key, entries, within)
        ]  # fmt: skip
    return History(runs=len(runs), series=len(by_series), movements=tuple(movements))


def _list_movements(
    database: sqlite3.Connection, key: tuple[str, ...], runs: Sequence[tuple[int, str]], within: float | None
) -> Iterator[Movement]:
    values: dict[tuple[str, str], dict[int, TrackedValue]] = {}
    for number, _ in runs:
        rows = database.execute(
            "SELECT name, measure, value, status, good, rows, bits FROM results WHERE run = ? ORDER BY rowid", [number]
        )
        for name, measure, value, status, good, count, bits in rows:
            if not (isinstance(value, float | int | None) and all(isinstance(text, str) for text in (name, measure))):
                raise _damaged_error()
            right = None if bits is None else _unpack_bits(bits, count)
            values.setdefault((name, measure), {})[number] = TrackedValue(
                name=name, measure=measure, value=value, status=status, good=bool(good), right=right
            )
    verb, network, backend, cpu, _ = key
    for (name, measure), values_by_run in values.items():
        entries = [values_by_run.get(number) for number, _ in runs]
        last_value = entries[-1]
        if last_value is None:
            continue  # a node that was removed did not get worse
        best, last_good, reason = _judge_last(entries, within)
        yield Movement(
            verb=verb,
            network=network,
            backend=backend,
            cpu=cpu,
            name=name,
            measure=measure,
            values=tuple(None if entry is None else entry.value for entry in entries),
            commits=tuple(commit for _, commit in runs),
            status=last_value.status,
            worse=bool(reason),
            best=best,
            last_good=last_good,
            why=reason,
        )


def _unpack_bits(bits: bytes, count: int) -> np.ndarray:
    try:
        packed_bytes = zlib.decompressobj().decompress(bits, -(-count // 8))
        is_set = np.unpackbits(np.frombuffer(packed_bytes, np.uint8))[:count].astype(bool)
        if is_set.size < count:
            raise ValueError(f"{is_set.size} of {count} rows")
        return is_set
    except (zlib.error, ValueError, TypeError) as error:
        raise _damaged_error() from error


def _damaged_error() -> RecordingError:
    return RecordingError("The history has a damaged entry.", hint="Start a new history: --track NEW.db.")


def _judge_last(entries: Sequence[TrackedValue | None], within: float | None) -> tuple[float | None, int | None, str]:
    """Return the best good value, the index of the last good entry near it, and why the last entry is worse, or "".

    For the winners' mean score, the first good value takes the place of the best one.
    """
    last_value = entries[-1]
    good_entries = [(index, entry) for index, entry in enumerate(entries[:-1]) if entry is not None and entry.good]
    if last_value is None or not good_entries:
        return None, None, ""
    best_value = max(
        (entry for _, entry in good_entries), key=lambda entry: -math.inf if entry.value is None else entry.value
    )
    if last_value.measure == _TOP_SCORE:  # neither a higher nor a lower score is better
        best_value = good_entries[0][1]
    within_margin = [index for index, entry in good_entries if not _drop_text(best_value, entry, within)]
    reason = _drop_text(best_value, last_value, within)
    if not last_value.good:
        reason = f"was {best_value.status}, is {last_value.status}{f': {reason}' if reason else ''}"
    return best_value.value, within_margin[-1] if within_margin else None, reason


def _drop_text(best: TrackedValue, other: TrackedValue, within: float | None) -> str:
    """Return a clause on how far a value is below the best one, or "" if it is within the margin."""
    if best.value is None or other.value is None or best.measure == "match":
        return ""
    if best.measure == _TOP_SCORE:
        has_drifted = abs(other.value - best.value) > HISTORY_MAX_SCORE_DRIFT * abs(best.value)
        return f"the winners' mean score drifted from {best.value:.4g} to {other.value:.4g}" if has_drifted else ""
    if best.measure == "sqnr_db":
        from_sqnr, to_sqnr = (min(sqnr, HISTORY_SQNR_CEILING) for sqnr in (best.value, other.value))
        return (
            f"SQNR fell from {from_sqnr:.1f} dB to {to_sqnr:.1f} dB"
            if from_sqnr - to_sqnr > HISTORY_MAX_SQNR_DROP
            else ""
        )
    if best.right is None or other.right is None or best.right.size != other.right.size:
        margin = within if within is not None else ACCURACY_MAX_LOSS * abs(best.value)
        return f"fell from {best.value:.4g} to {other.value:.4g}" if best.value - other.value > margin else ""
    loss = row_loss(best.measure, best.right, other.right, within)
    if loss.decision is not Decision.WORSE or loss.interval is None:
        return ""
    low, high = (f"{100 * end:.1f}" for end in loss.interval)
    drop_text = f"fell from {100 * best.value:.1f} % to {100 * other.value:.1f} %"
    return f"{drop_text}: a loss of {low} % to {high} %; the margin is {100 * loss.margin:g} %"
