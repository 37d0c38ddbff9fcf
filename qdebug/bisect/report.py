"""The result of a bisection: the candidates that were tried, and the neighbours with different results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from qdebug.bisect.changed_node import ChangedNode
from qdebug.compare.explaining.explanation import NodeExplanation
from qdebug.model import Fidelity
from qdebug.model.json_object import Count, JsonObject

__all__ = ["BisectReport", "BisectStatus", "Change", "TriedCandidate"]


class BisectStatus(StrEnum):
    """The answer of a bisection."""

    CHANGED = "changed"
    NO_DIFFERENCE = "no_difference"
    NONDETERMINISTIC = "nondeterministic"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedCandidate(JsonObject):
    """The outcome of one version, level, pass or option.

    Args:
        label: Name of the candidate.
        status: "recorded", "failed" (it ran and failed or crashed), "unavailable" (it cannot be installed or imported,
            or does not end in time) or "not_tried".
        result: Number of the result: candidates with equal results have equal numbers, and the good one has 0. None
            without a result.
        reason: Why the candidate has no recording, or "".
        fidelity: Whether repeated runs of the candidate agree. None without a recording.
        value: The user's metric. None without one.
        recording: The recording that was compared. None without one.
    """

    label: str
    status: str
    result: int | None = None
    reason: str = ""
    fidelity: Fidelity | None = None
    value: float | None = None
    recording: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(JsonObject):
    """Two neighbours with different results.

    Args:
        before: Label of the first one.
        after: Label of the second one.
        skipped: Candidates between them that could not be tried.
        result_before: Number of the result of the first one.
        result_after: Number of the result of the second one.
        recordings: Full recordings of both; fewer if one fails.
        failures: Why a candidate has no full recording, one sentence each.
        node: The first node that differs. None if no common tensor does, or without both recordings.
        explained_before: The arithmetic of that node in the first recording. None if it was not examined.
        explained_after: The arithmetic of that node in the second recording. None if it was not examined.
        remarks: Remarks that limit the answer.
        commands: Commands that show the two results without qdebug; empty if none are known.
        scripts: The script that these commands run, `run.py`.
    """

    before: str
    after: str
    skipped: Sequence[str]
    result_before: Count
    result_after: Count
    recordings: Sequence[str] = ()
    failures: Sequence[str] = ()
    node: ChangedNode | None = None
    explained_before: NodeExplanation | None = None
    explained_after: NodeExplanation | None = None
    remarks: Sequence[str] = ()
    commands: Sequence[str] = ()
    scripts: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectReport(JsonObject):
    """Where along a row of versions, levels, passes or options the result of a model changes.

    Args:
        status: The answer.
        model: The model file.
        inputs: The file of inputs.
        backend: The backend with its options.
        over: What varies.
        package: The distribution of the runtime, or "".
        metric: What was compared.
        good: Label of the good end.
        bad: Label of the bad end.
        fixed: Label of the end that may be right again. None without one.
        machine: Processor and system.
        made: Number of recordings that were made.
        reused: Number of recordings of earlier commands.
        every: Whether every candidate was tried.
        is_ordered: Whether neighbours were compared. If not, each candidate was compared with the good one.
        candidates: The candidates in order.
        changes: The changes in order.
    """

    json_format = "bisect"

    status: BisectStatus
    model: str
    inputs: str
    backend: str
    over: str
    package: str
    metric: str
    good: str
    bad: str
    fixed: str | None
    machine: str
    made: Count
    reused: Count
    every: bool
    is_ordered: bool
    candidates: Sequence[TriedCandidate]
    changes: Sequence[Change]

    @property
    def exit_code(self) -> int:
        """0 without a difference, 1 with one, 3 if both ends vary from run to run."""
        return {BisectStatus.CHANGED: 1, BisectStatus.NO_DIFFERENCE: 0}.get(self.status, 3)
