"""Bisect a model over versions, levels, passes or options of a runtime: `run_bisection`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qdebug.bisect.axes import Candidate, Candidates, runtime_package
from qdebug.bisect.changed_node import ChangedNode, find_changed_node
from qdebug.bisect.environments import EnvironmentCache, UnavailableError
from qdebug.bisect.plain_runs import plain_script, plain_settings
from qdebug.bisect.report import BisectReport, BisectStatus, Change, TriedCandidate
from qdebug.bisect.search import find_changes
from qdebug.bisect.trial import VARIES, ModelCommand, RecordingFailedError, Trial, Trials, outputs_digest
from qdebug.compare.explaining.explanation import NodeExplanation
from qdebug.errors import QdebugError, UsageError
from qdebug.model import Fidelity
from qdebug.recording.environment import machine
from qdebug.recording.reading.opening import opened_recording
from qdebug.running.explain_file import explain
from qdebug.running.model_runs import RUNS
from qdebug.running.output_metric import find_metric

__all__ = ["METRICS", "run_bisection"]

METRICS = ("output", "arithmetic")
"""Metrics of a bisection, besides the user's own."""


def run_bisection(
    command: ModelCommand,
    candidates: Candidates,
    environments: EnvironmentCache,
    *,
    metric: str = "output",
    every: bool = False,
    folder: Path = RUNS,
    on_trial: Callable[[int, str], None] | None = None,
) -> BisectReport:
    """Find where the result of a model changes.

    Args:
        command: The model.
        candidates: The candidates.
        environments: Environments in which versions are installed.
        metric: One of `METRICS`, or a metric of the outputs as in `find_metric`. Candidates with equal values of the
            metric have the same class.
        every: Whether to try every candidate.
        folder: Folder of recordings, which a repeated command reuses.
        on_trial: Called with the number of finished recordings and a label.

    Raises:
        UsageError: An end cannot be run, or there is no such metric.
        QdebugError: The disk is full, or a folder cannot be written.
    """
    trials = Trials(
        command,
        candidates,
        environments,
        metric=metric if metric in METRICS else find_metric(metric),
        folder=folder,
        on_trial=on_trial or _ignore,
    )
    _check_ends(command, candidates, trials)
    if candidates.is_ordered:
        pairs = find_changes(candidates.anchors, trials.classify, every=every)
    else:
        keys = [trials.classify(position) for position in range(len(candidates.row))]
        pairs = [(0, position) for position, key in enumerate(keys) if key not in (None, keys[0])]
    return _Reporter(command, candidates, trials, metric=metric, every=every).report(pairs)


def _ignore(done: int, label: str) -> None:
    del done, label


def _check_ends(command: ModelCommand, candidates: Candidates, trials: Trials) -> None:
    for name, position in zip(("good", "bad", "fixed"), candidates.anchors, strict=False):
        key = trials.classify(position)
        trial = trials.trial(position)
        if trial is None or (key is not None and (name != "good" or trial.path is not None)):
            continue
        if not candidates.is_ordered and name != "good":
            continue
        label = candidates.row[position].label
        hint = f"Choose another end: --{name} V."
        if trial.key is not None:  # the version could be installed, but its run failed
            run = command.run
            words = ["qdebug", "record", str(run.model), "--inputs", str(command.inputs), "--backend", run.title]
            words += [*command.words, "-o", "OUT.h5"]
            hint = f"Try the installed version: {shlex.join(words)}. If it works, choose another end: --{name} V."
        raise UsageError(f"The {name} end {label!r} cannot be run: {trial.reason.rstrip('.')}.", hint=hint)


@dataclass(frozen=True, slots=True)
class _Reporter:
    """Makes a report from the trials.

    Args:
        command: The model.
        candidates: The candidates.
        trials: The trials.
        metric: What was compared.
        every: Whether every candidate was tried.
    """

    command: ModelCommand
    candidates: Candidates
    trials: Trials
    metric: str
    every: bool

    def report(self, pairs: Sequence[tuple[int, int]]) -> BisectReport:
        """Return the report on the neighbours with different results."""
        changes = [self._describe_change(*pair) for pair in pairs]
        labels = [self.candidates.row[position].label for position in self.candidates.anchors]
        status = BisectStatus.CHANGED if pairs else BisectStatus.NO_DIFFERENCE
        good = self._trial(self.candidates.anchors[0])
        if not pairs and good.key == VARIES:
            status = BisectStatus.NONDETERMINISTIC
        return BisectReport(
            status=status,
            model=str(self.command.run.model),
            inputs=str(self.command.inputs),
            backend=self.command.backend_text(Candidate(label="")),
            over=self.candidates.over,
            package=self.candidates.package,
            metric=self.metric,
            good=labels[0],
            bad=labels[1],
            fixed=labels[2] if len(labels) > 2 else None,
            machine=", ".join(machine().values()),
            made=self.trials.made,
            reused=self.trials.reused,
            every=self.every or not self.candidates.is_ordered,
            is_ordered=self.candidates.is_ordered,
            candidates=list(self._tried_candidates()),
            changes=changes,
        )

    def _trial(self, position: int) -> Trial:
        trial = self.trials.trial(position)
        return Trial(key=None) if trial is None else trial

    def _result_number(self, position: int) -> int:
        """Return the number of a candidate's result."""
        keys: dict[Hashable, int] = {self._trial(self.candidates.anchors[0]).key: 0}
        for tried_position in range(len(self.candidates.row)):
            trial = self.trials.trial(tried_position)
            if trial is not None and trial.key is not None:
                keys.setdefault(trial.key, len(keys))
        return keys[self._trial(position).key]

    def _tried_candidates(self) -> Iterator[TriedCandidate]:
        for position, candidate in enumerate(self.candidates.row):
            trial = self.trials.trial(position)
            if trial is None:
                yield TriedCandidate(label=candidate.label, status="not_tried")
                continue
            is_failed = trial.key is not None and trial.path is None
            yield TriedCandidate(
                label=candidate.label,
                status="unavailable" if trial.key is None else "failed" if is_failed else "recorded",
                result=None if trial.key is None else self._result_number(position),
                reason=trial.reason,
                fidelity=trial.fidelity,
                value=trial.value,
                recording=None if trial.path is None else str(trial.path),
            )

    def _describe_change(self, low: int, high: int) -> Change:
        """Record the neighbours in full, and find the first node that differs."""
        row = self.candidates.row
        between = range(low + 1, high) if self.candidates.is_ordered else ()
        paths: list[Path] = []
        failures, remarks = list[str](), list[str]()
        for position in (low, high):
            trial = self._trial(position)
            if trial.path is None:
                failures.append(f"{row[position].label}: {trial.reason}")
                continue
            try:
                paths.append(self.trials.record(position, taps="faithful"))
            except (RecordingFailedError, UnavailableError) as error:
                failures.append(f"{row[position].label} with all tensors recorded: {error.message}")
                continue
            remarks += self._doubts_about_recording(position, paths[-1])
        node = _find_changed_node(*paths) if len(paths) == 2 else None
        explained = [self._explain(path, node.tensor) for path in paths] if node is not None else [None, None]
        commands, scripts = self._commands_without_qdebug(low, high)
        return Change(
            before=row[low].label,
            after=row[high].label,
            skipped=[row[skipped_position].label for skipped_position in between],
            result_before=self._result_number(low),
            result_after=self._result_number(high),
            recordings=[str(path) for path in paths],
            failures=failures,
            node=node,
            explained_before=explained[0],
            explained_after=explained[1],
            remarks=remarks,
            commands=commands,
            scripts=scripts,
        )

    def _doubts_about_recording(self, position: int, path: Path) -> Iterator[str]:
        """Yield remarks if the full recording of a candidate may differ from the run that was classified."""
        label, trial = self.candidates.row[position].label, self._trial(position)
        with opened_recording(path) as recording:
            fidelity, detail = recording.info.fidelity, recording.info.fidelity_detail
            digest = outputs_digest(recording)
        if fidelity in (Fidelity.NONDETERMINISTIC, Fidelity.DIFFERS):
            yield f"{label}: {detail or fidelity}"
        elif self.metric == "output" and trial.key not in (digest, VARIES):
            yield f"{label}: another process, which recorded all tensors, returned other outputs"

    def _explain(self, path: Path, tensor: str) -> NodeExplanation | None:
        """Return the arithmetic of one node; None if it cannot be examined."""
        try:
            explained = explain(path, node=tensor, progress=lambda *_: self.trials.note(f"explaining {tensor}")).nodes
        except QdebugError:
            return None
        return next((node for node in explained if node.tensor == tensor), None)

    def _commands_without_qdebug(self, low: int, high: int) -> tuple[list[str], list[str]]:
        """Return commands that show both results without qdebug, and their script; none with further arguments."""
        run = self.command.run
        shared = plain_settings(run.backend, run.options)
        if not shared or self.command.words:
            return [], []
        commands = []
        for position in (low, high):
            candidate = self.candidates.row[position]
            settings = plain_settings(run.backend, {**run.options, **candidate.options})
            changes = {name: value for name, value in settings.items() if value != shared[name]}
            python = "python3"
            if candidate.version:
                package = self.candidates.package or runtime_package(run.backend)
                python = f"./venv-{candidate.label}/bin/python"
                commands.append(f"python3 -m venv venv-{candidate.label}")
                commands.append(f"{python} -m pip install {shlex.quote(f'{package}=={candidate.version}')} numpy")
            variables = [f"{key}={text}" for key, text in candidate.variables]
            argument = [shlex.quote(json.dumps(changes))] if changes else []
            commands.append(" ".join([*variables, python, "run.py", *argument]))
        return commands, [plain_script(run.backend, str(run.model), str(self.command.inputs), shared)]


def _find_changed_node(before: Path, after: Path) -> ChangedNode | None:
    with opened_recording(before) as first, opened_recording(after) as second:
        return find_changed_node(first, second)
