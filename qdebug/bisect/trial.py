"""Run the model as one candidate in a child process, and classify the result. The entry point is `Trials`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from signal import Signals

import numpy as np

from qdebug.bisect.axes import Candidate, Candidates, installed_version, runtime_modules
from qdebug.bisect.changed_node import find_changed_node
from qdebug.bisect.environments import EnvironmentCache, UnavailableError, check_disk, run_command
from qdebug.errors import OutputExistsError, QdebugError, RecordingError
from qdebug.model import Fidelity, Recording
from qdebug.recording.environment import cpu_flags, machine, package_versions
from qdebug.recording.reading.opening import opened_recording
from qdebug.recording.target import WriterLock, journal_of, lock_holder, part_of
from qdebug.running.model_runs import ModelRun, companion_files, content_hashes
from qdebug.running.output_metric import Metric, evaluate_metric
from qdebug.running.runs_folder import file_hash, mark_used, note_sources

__all__ = ["ModelCommand", "Trial", "Trials"]

VARIES = "varies from run to run"
_FAILED = "failed"
_MAX_STEM = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCommand:
    """A model, its backend, and the arguments of `qdebug record` that all candidates share.

    Args:
        run: The model and its backend.
        inputs: The .npz file of inputs.
        words: Further arguments of `qdebug record`.
    """

    run: ModelRun
    inputs: Path
    words: tuple[str, ...] = ()

    def backend_text(self, candidate: Candidate) -> str:
        """Return the backend of a candidate in the format of `--backend`."""
        return replace(self.run, options={**self.run.options, **candidate.options}).title


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The outcome of trying a candidate.

    Args:
        key: Class of the candidate: equal for equal results. None if the candidate could not be tried.
        path: The recording that was compared, or None.
        reason: Why the candidate could not be tried or recorded, or "".
        fidelity: Whether the candidate's runs gave the same outputs, or None.
        value: The user's metric, or None.
    """

    key: Hashable | None
    path: Path | None = None
    reason: str = ""
    fidelity: Fidelity | None = None
    value: float | None = None


class Trials:
    """Tries candidates, each at most once, and stores their outcomes.

    Args:
        command: The model.
        candidates: All candidates.
        environments: Where their runtimes are installed.
        metric: "output", "arithmetic" or a user's metric of the outputs.
        folder: Folder of recordings, which later commands reuse.
        on_trial: Called with the number of finished recordings and a label, a few times a second.
    """

    def __init__(
        self,
        command: ModelCommand,
        candidates: Candidates,
        environments: EnvironmentCache,
        *,
        metric: str | Metric,
        folder: Path,
        on_trial: Callable[[int, str], None],
    ) -> None:
        self._command, self._candidates, self._environments = command, candidates, environments
        self._metric, self._folder, self._on_trial = metric, folder, on_trial
        self._trials: dict[int, Trial] = {}
        self._hashes = [*content_hashes(command.run.model), ("inputs", file_hash(command.inputs))]
        self._recordings: dict[tuple[int, str], Path] = {}
        self.made = 0
        self.reused = 0

    def trial(self, position: int) -> Trial | None:
        """Return the outcome of a candidate; None if it was not tried."""
        return self._trials.get(position)

    def note(self, label: str) -> None:
        """Report progress. The callback may raise to end the search."""
        self._on_trial(self.made + self.reused, label)

    def classify(self, position: int) -> Hashable | None:
        """Return the class of a candidate's result, after running the candidate if that was not done yet."""
        if position not in self._trials:
            self._trials[position] = self._run_trial(position)
        return self._trials[position].key

    def _run_trial(self, position: int) -> Trial:
        try:
            path = self.record(position, taps="faithful" if self._metric == "arithmetic" else "outputs")
        except UnavailableError as error:
            return Trial(key=None, reason=error.message)
        except RecordingFailedError as error:
            return Trial(key=(_FAILED, error.status), reason=error.message)
        with opened_recording(path) as recording:
            fidelity = recording.info.fidelity
            if self._metric == "arithmetic":
                return Trial(key=self._arithmetic_key(position, recording), path=path, fidelity=fidelity)
            if isinstance(self._metric, Metric):
                value = self._metric_value(recording, self._metric)
                return Trial(key=("value", repr(value)), path=path, fidelity=fidelity, value=value)
            key = VARIES if fidelity is Fidelity.NONDETERMINISTIC else outputs_digest(recording)
            return Trial(key=key, path=path, fidelity=fidelity)

    def _arithmetic_key(self, position: int, recording: Recording) -> Hashable:
        """Return the first tensor that differs from the good candidate's, and a hash of its values."""
        good = self._candidates.anchors[0]
        if recording.info.fidelity is Fidelity.NONDETERMINISTIC:
            return VARIES
        if position == good:
            return "good"
        good_trial = self._trials[good]
        if good_trial.path is None:
            return "recorded"
        with opened_recording(good_trial.path) as good_recording:
            change = find_changed_node(good_recording, recording)
        return "good" if change is None else (change.tensor, _hash_tensors(recording, [change.tensor]))

    def _metric_value(self, recording: Recording, metric: Metric) -> float:
        good_path = self._recordings[self._candidates.anchors[0], "outputs"]
        with opened_recording(good_path) as reference:
            return evaluate_metric(metric, _load_outputs(recording), _load_outputs(reference), None)

    def record(self, position: int, *, taps: str) -> Path:
        """Return a recording of a candidate, which is made if there is none.

        Args:
            position: Position of the candidate.
            taps: Which tensors to tap.

        Raises:
            UnavailableError: The version cannot be installed or imported, or does not finish in time.
            RecordingFailedError: The child failed or crashed.
            QdebugError: The disk is full.
        """
        if (position, taps) not in self._recordings:
            self._recordings[position, taps] = self._record(self._candidates.row[position], taps)
        return self._recordings[position, taps]

    def _record(self, candidate: Candidate, taps: str) -> Path:
        path = self._folder / self._file_name(candidate, taps)
        if _is_complete(path):
            mark_used(path)
            self.reused += 1
            return path
        if holder := lock_holder(path):
            raise RecordingError(
                f"Process {holder} is writing {str(path)!r}.",
                hint="Wait until it ends, then repeat the command, which reuses its recordings.",
            )
        package = self._candidates.package if candidate.version else ""
        self.note(candidate.label)
        modules = runtime_modules(self._command.run.backend)
        with self._environments.open(package, candidate.version, modules) as environment:
            command = self._command
            words = [
                "-m",
                "qdebug",
                "record",
                str(command.run.model.absolute()),
                "--inputs",
                str(command.inputs.absolute()),
            ]
            words += ["--backend", command.backend_text(candidate), "--taps", taps, *command.words]
            words += ["-o", str(path.absolute()), "--force"]
            try:
                self._make_folder()
                result = run_command(
                    environment.command(*words, variables=candidate.variables),
                    on_wait=lambda: self.note(candidate.label),
                    timeout=self._environments.timeout,
                )
            except BaseException:
                _remove_parts(path)
                raise
        self.made += 1
        if result.status not in (0, 3) or not _is_complete(path):
            _remove_parts(path)
            check_disk(result.errors, self._folder)
            raise RecordingFailedError(result.status, result.errors)
        self._check_version(path, candidate)
        note_sources(path, [command.inputs, command.run.model, *companion_files(command.run.model)])
        return path

    def _check_version(self, path: Path, candidate: Candidate) -> None:
        """Check that the child ran the requested version.

        Raises:
            UnavailableError: It ran another version.
        """
        with opened_recording(path) as recording:
            versions = {re.sub(r"[-_.]+", "-", name).lower(): text for name, text in recording.info.versions.items()}
        ran = versions.get(re.sub(r"[-_.]+", "-", self._candidates.package).lower())
        if candidate.version and ran is not None and ran.partition("+")[0] != candidate.version.partition("+")[0]:
            path.unlink()
            raise UnavailableError(f"version {ran} ran instead")

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            check_disk(error.strerror or "", self._folder)
            raise RecordingError(
                f"The folder {str(self._folder)!r} for recordings cannot be created: {error.strerror or error}.",
                hint="Run the command in a folder that you may write to.",
            ) from error

    def _file_name(self, candidate: Candidate, taps: str) -> str:
        """Return the file name of a recording, with a hash of everything that the run depends on."""
        package = self._candidates.package
        version = candidate.version or installed_version(package)
        modules = [name.partition(".")[0].replace("_", "-") for name in runtime_modules(self._command.run.backend)]
        other_versions = {name: text for name, text in package_versions(*modules).items() if name != package}
        facts = {
            "files": self._hashes,
            "backend": self._command.backend_text(candidate),
            "variables": candidate.variables,
            "words": self._command.words,
            "taps": taps,
            "package": [package, version],
            "versions": other_versions,
            "machine": {**machine(), "flags": list(cpu_flags())},
        }
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", self._command.run.model.stem)[-_MAX_STEM:].strip("._-") or "model"
        label = re.sub(r"[^A-Za-z0-9_.=-]+", "_", candidate.label)[:_MAX_STEM]
        return f"{stem}-{self._command.run.backend}-{label}-{digest[:10]}.h5"


class RecordingFailedError(QdebugError):
    """The child process that records failed or crashed.

    Args:
        status: Exit status of the process, negative for a signal.
        errors: Standard error of the process.
    """

    def __init__(self, status: int, errors: str) -> None:
        self.status = status
        super().__init__(_failure_text(status, errors))


def _failure_text(status: int, errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    error_line = next((line for line in lines if line.startswith("qdebug: ")), lines[-1] if lines else "")
    if status < 0:
        with suppress(ValueError):
            return f"it crashes with {Signals(-status).name}"
        return f"it crashes with signal {-status}"
    return f"it fails: {error_line.removeprefix('qdebug: ')[:300]}" if error_line else f"it fails with status {status}"


def _is_complete(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        with opened_recording(path) as recording:
            return recording.info.complete
    except (QdebugError, OutputExistsError):
        return False


def _remove_parts(path: Path) -> None:
    """Remove the files that an ended child left, or a later command would take them for an interrupted run."""
    with suppress(RecordingError):  # another process is recording this trial
        lock = WriterLock(path)
        for leftover in (path, part_of(path), journal_of(path)):
            leftover.unlink(missing_ok=True)
        lock.release()


def _hash_tensors(recording: Recording, names: list[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        for sample, step in recording.places(name):
            if recording.has(name, sample, step):
                array = recording.load(name, sample, step)
                digest.update(f"{name} {array.dtype} {array.shape} {sample} {step}\n".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def outputs_digest(recording: Recording) -> str:
    """Return a hash of the outputs: names, types, shapes and bits of all samples and steps."""
    return _hash_tensors(recording, sorted(recording.graph.outputs))


def _load_outputs(recording: Recording) -> list[dict[str, np.ndarray]]:
    return [
        {name: recording.load(name, *place) for name in recording.graph.outputs if recording.has(name, *place)}
        for place in recording.places()
    ]
