"""Requests from the screen, events from worker threads, and how a comparison is opened."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.message import Message

if TYPE_CHECKING:
    from qdebug.compare.budget import ErrorBudget
    from qdebug.compare.explaining.explanation import NodeExplanation
    from qdebug.compare.result.result import RunComparison
    from qdebug.model import Graph, QuantParams, RunInfo
    from qdebug.numerics.profile import TensorProfile
    from qdebug.numerics.quant_error import QuantError
    from qdebug.numerics.stats import WorstElement
    from qdebug.scales.trial import Replay
    from qdebug.session import DiffSession
    from qdebug.tui.elements.slab import Slab
    from qdebug.tui.elements.summing import TensorStatistics
    from qdebug.tui.elements.values import ValueFacts
    from qdebug.tui.nodes.rows import NodeTable
    from qdebug.tui.reading.facts import EditFacts, Recorded, TrialFacts

__all__ = [
    "AcceptRequest",
    "AlignmentProgress",
    "AnswerKey",
    "BudgetWish",
    "Computed",
    "ConstantsReady",
    "ConstantsRequest",
    "DetailReady",
    "DetailRequest",
    "EditWish",
    "Event",
    "ExportRequest",
    "Failed",
    "Finished",
    "Glimpsed",
    "Job",
    "NamesLoaded",
    "NoteRequest",
    "NoteSaved",
    "Opened",
    "Opening",
    "ScaleWish",
    "ShownElement",
    "StatusMessage",
    "TensorRequest",
    "TrialReady",
    "TrialRequest",
    "TrialWish",
    "WindowRequest",
    "worst_first_key",
]

AnswerKey = tuple[int, int, int | None, int]
"""Backend, row, sample, step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The functions that open and follow a comparison. All of them are called on worker threads.

    Args:
        compare: Opens both recordings, unless they are already open, and aligns them.
        add_listener: Registers a callback that receives the stages of `compare`, and may raise an exception to stop it;
            None without stages.
        read_names: Opens the backend's recording and returns the names of its tensors, which is much faster than
            reading the graphs; called before `compare`. None if this is not possible.
        refresh: Reads data that a recorder has added, and returns whether there was any, in which case `compare` is
            called again; None for finished recordings.
        take_news: Returns a message about replaced files, "" for none; None for finished recordings.
        is_writing: Returns whether a recorder is still adding to one of them; None for finished recordings.
        load_notes: Returns the notes of earlier sessions by node; None without a file of notes.
        make_remark: Returns a hint for the status line, "" for none; None without hints.
        describe_change: Returns which file was replaced since it was opened, "" for none; None if files are allowed to
            change.
    """

    compare: Callable[[], DiffSession]
    add_listener: Callable[[Callable[[str], object]], None] | None = None
    read_names: Callable[[], Sequence[str]] | None = None
    refresh: Callable[[], bool] | None = None
    take_news: Callable[[], str] | None = None
    is_writing: Callable[[], bool] | None = None
    load_notes: Callable[[], Mapping[str, str]] | None = None
    make_remark: Callable[[], str] | None = None
    describe_change: Callable[[], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRequest:
    """A request about one row.

    Args:
        backend: The comparison.
        row: The row in the list.
        tensor: Its backend tensor, or the reference's if only the reference has it.
        sample: The sample; None for the first recorded one.
        step: The step.
        side: The only side that has the tensor, "reference" or "backend"; "" for a compared tensor.
    """

    backend: int = 0
    row: int
    tensor: str
    sample: int | None
    step: int = 0
    side: str = ""

    @property
    def key(self) -> AnswerKey:
        """The backend, row, sample and step, which identify the answer."""
        return self.backend, self.row, self.sample, self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailRequest(TensorRequest):
    """A request for the facts about one row.

    Args:
        wants_elements: Whether to include the statistics of all elements.
        wants_explanation: Whether to search for the arithmetic that reproduces the row.
    """

    wants_elements: bool = False
    wants_explanation: bool = False


@dataclass(frozen=True, slots=True)
class ShownElement:
    """The element and plane of a tensor that a view shows.

    Args:
        element: Its index; None until the shape is known.
        shows_plane: Whether the view shows a map of the plane through the element.
    """

    element: tuple[int, ...] | None = None
    shows_plane: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRequest(TensorRequest):
    """A request for the elements around a given element.

    Args:
        element: Index of the central element; None for the first element.
        wants_plane: Whether to include a map of the plane through the element.
    """

    element: tuple[int, ...] | None = None
    wants_plane: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleWish:
    """A request for the effect of a scale and zero point on the tensor.

    Args:
        quant: The parameters to try; None requests only the facts about the tensor.
        wants_replay: Whether to replay the network with them.
    """

    quant: QuantParams | None = None
    wants_replay: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EditWish:
    """A request for the edits of the tensor's node, and their effect on the outputs.

    Args:
        edits: Names of the marked edits, of all nodes.
        sample: The sample to replay; None for all samples in turn.
        output: The output whose gains are measured; "" for the worst one.
    """

    edits: tuple[str, ...] = ()
    sample: int | None = None
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWish:
    """A request for the shares of all nodes in the outputs' errors, independent of the tensor."""


TrialWish = ScaleWish | EditWish | BudgetWish
"""Requests for replay results that a view can show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRequest:
    """A request for the result of a replay.

    Args:
        backend: The comparison.
        row: The row in the list.
        tensor: Its backend tensor.
        wish: The requested result.
    """

    backend: int = 0
    row: int
    tensor: str
    wish: TrialWish


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """A request to write a new file.

    Args:
        backend: The comparison.
        path: A file that does not exist.
        write: Writes the file and returns a summary of its contents; called on a worker thread.
    """

    backend: int
    path: Path
    write: Callable[[DiffSession, Path], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptRequest:
    """A request to acknowledge the error of a node.

    Args:
        backend: The comparison.
        node: The backend's node.
        reason: The reason; "" to remove the acknowledgement.
        expires: Last day on which the acknowledgement is valid; None for no end.
        path: The limits file to write to.
    """

    backend: int
    node: str
    reason: str
    expires: str | None
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRequest:
    """A request to save a note on a node.

    Args:
        backend: The comparison.
        node: The backend's node.
        text: The note; "" to delete it.
        path: The limits file to write to.
    """

    backend: int
    node: str
    text: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantsRequest:
    """A request for the constants that the node of a tensor reads.

    Args:
        backend: The comparison.
        tensor: The backend's tensor, or the reference's if only the reference has it.
        side: The only side that has it; "" if both sides have it.
    """

    backend: int
    tensor: str
    side: str = ""


Job = ExportRequest | AcceptRequest | NoteRequest | ConstantsRequest
"""Requests that are not cancelled by other requests."""


class Event(Message):
    """A message from a worker thread to the screen."""


@dataclass(kw_only=True)
class NamesLoaded(Event):
    """The recordings are open, but their graphs have not been read.

    Args:
        backend_at: The comparison.
        table: Tensors with only their names, in the order of recording.
    """

    backend_at: int = 0
    table: NodeTable


@dataclass(kw_only=True)
class AlignmentProgress(Event):
    """The alignment of both recordings has reached another stage.

    Args:
        backend_at: The comparison.
        stage: The current stage, in a few words.
    """

    backend_at: int = 0
    stage: str


@dataclass(kw_only=True)
class Opened(Event):
    """Both recordings are open and aligned. No values have been read; from now on, results are added to the table.

    Args:
        backend_at: The comparison.
        reference, backend: Facts of the two runs.
        reference_graph, backend_graph: Their graphs.
        table: The rows, without any results yet.
        samples, steps: How many the recordings share.
        limits: The limits in force, by name.
        is_writing: Whether a recorder is still adding to one of them.
        notes: Notes of earlier sessions, by node.
    """

    backend_at: int = 0
    is_writing: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)
    reference: RunInfo
    backend: RunInfo
    reference_graph: Graph
    backend_graph: Graph
    table: NodeTable
    samples: int
    steps: int = 1
    limits: Mapping[str, Any]


@dataclass(kw_only=True)
class Computed(Event):
    """There are new results.

    The event is posted again only after the screen has reset `is_announced` of the table.

    Args:
        backend_at: The comparison.
    """

    backend_at: int = 0


@dataclass(kw_only=True)
class Finished(Event):
    """All pairs are compared.

    Args:
        backend_at: The comparison.
        result: The whole result.
    """

    backend_at: int = 0
    result: RunComparison


@dataclass(kw_only=True)
class DetailReady(Event):
    """The facts about a tensor, or the facts known so far.

    Args:
        request: The request that is answered.
        values: Extremes, means and histograms of both sides; None if not read yet or not readable.
        values_sample: The sample of the values.
        recorded: Recorded statistics of both sides, or of the only side that has the tensor, if not all values were
            kept; None if all were kept, or before the statistics are read.
        profile: Element-by-element results; None before they are computed.
        statistics: Statistics of all elements, or of the elements read so far; None if not requested, not begun or not
            readable.
        explanations: The arithmetic that reproduces the tensor; None if not requested, or before it is found.
        is_complete: Whether the answer is complete.
        problem: Why something is missing; "" if nothing is missing.
    """

    request: DetailRequest
    values: ValueFacts | None = None
    values_sample: int
    recorded: Recorded | None = None
    profile: TensorProfile | None = None
    statistics: TensorStatistics | None = None
    explanations: Sequence[NodeExplanation] | None = None
    is_complete: bool = False
    problem: str = ""

    @property
    def worst(self) -> Sequence[WorstElement]:
        """The worst elements, worst first; empty if unknown."""
        return () if self.profile is None else self.profile.worst


@dataclass(kw_only=True)
class Glimpsed(Event):
    """The elements around the selected one as they were recorded, even if the tensor is not compared.

    Args:
        request: The request that is answered.
        part: The elements; None if they cannot be read.
        sample: The sample that they belong to.
        plane: Statistics of their plane, if they do not cover it; None if not requested.
        problem: Why there are no elements; "" if there are.
    """

    request: WindowRequest
    part: Slab | None
    sample: int
    plane: TensorStatistics | None = None
    problem: str = ""


@dataclass(kw_only=True)
class TrialReady(Event):
    """The result of a replay, or of the part that is done.

    Args:
        request: The request that is answered.
        facts: Facts about the tensor; None before they are read.
        error: Exact error of the tried parameters; None if not requested, or before it is computed.
        replay: The outputs with these parameters; None if not requested, or before it is computed.
        edits: Edits and their effects; None before they are listed.
        budget: Shares of the nodes in the outputs' errors; None before any is computed.
        activity: The current replay, in a few words; "" if there is none.
        replay_progress: Completed and total work of the current replay; (0, 0) without one.
        problem: Why nothing can be tried; "" if something can be.
    """

    request: TrialRequest
    facts: TrialFacts | None = None
    error: QuantError | None = None
    replay: Replay | None = None
    edits: EditFacts | None = None
    budget: ErrorBudget | None = None
    activity: str = ""
    replay_progress: tuple[int, int] = (0, 0)
    problem: str = ""


@dataclass(kw_only=True)
class ConstantsReady(Event):
    """The constants of a tensor are compared.

    Args:
        request: The request that is answered.
        table: One row per constant, with a result if both sides have it.
    """

    request: ConstantsRequest
    table: NodeTable


@dataclass(kw_only=True)
class NoteSaved(Event):
    """A note on a node was saved or removed.

    Args:
        node: The backend's node.
        text: The note; "" if it was removed.
    """

    node: str
    text: str


@dataclass(kw_only=True)
class StatusMessage(Event):
    """A message for the status line.

    Args:
        message: The text, safe to display; a `Provisional` if later events make it expire.
    """

    message: str


@dataclass(kw_only=True)
class Failed(Event):
    """The recordings cannot be read further.

    Args:
        backend_at: The comparison.
        error: The reason.
        fatal: Whether a worker failed, so that other backends cannot be shown either.
    """

    backend_at: int = 0
    fatal: bool = False
    error: BaseException


def worst_first_key(sqnr_db: float | None) -> float:
    """Return a sort key for outputs, worst first. Outputs that are not finite come before all others."""
    return -math.inf if sqnr_db is None or math.isnan(sqnr_db) else sqnr_db
