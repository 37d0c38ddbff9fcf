"""Requests of the screen, events of the worker threads, and how a comparison is opened."""

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
    from qdebug.tui.elements.summing import Whole
    from qdebug.tui.elements.values import ValueFacts
    from qdebug.tui.nodes.rows import NodeTable
    from qdebug.tui.reading.facts import EditFacts, Recorded, TrialFacts

__all__ = [
    "AcceptRequest",
    "AlignmentProgress",
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
    "Key",
    "LookRequest",
    "LookedAt",
    "NamesLoaded",
    "NoteKept",
    "NoteRequest",
    "Opened",
    "Opening",
    "ScaleWish",
    "StatusMessage",
    "TensorRequest",
    "TrialReady",
    "TrialRequest",
    "TrialWish",
    "worst_first",
]

Key = tuple[int, int, int | None, int]
"""Backend, row, sample, step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a comparison is opened; both parts are called on a worker thread, in this order.

    Args:
        compare: Opens both recordings, where that is not done yet, and aligns them.
        hear: Registers a callback for the stages of `compare`, which may raise an error to end it; None if there are no
            stages.
        names: Opens the recordings and gives the names of the backend's tensors, which takes much less time than
            their graphs; None if there is no such short cut.
        refresh: Reads the data that a recorder has added, and returns whether there was any: then `compare` is called
            again; None for recordings that are finished.
        news: Returns a message about files that were replaced, "" for none; None for finished recordings.
        writing: Returns whether a recorder still adds to one of them; None if none does.
        notes: Returns the notes of earlier sessions by node; None if there is no file of notes.
        remark: Returns a hint for the status line, "" for none; None if there is none.
        changed: Returns which file was replaced since it was opened, "" for none; None if they may change.
    """

    compare: Callable[[], DiffSession]
    hear: Callable[[Callable[[str], object]], None] | None = None
    names: Callable[[], Sequence[str]] | None = None
    refresh: Callable[[], bool] | None = None
    news: Callable[[], str] | None = None
    writing: Callable[[], bool] | None = None
    notes: Callable[[], Mapping[str, str]] | None = None
    remark: Callable[[], str] | None = None
    changed: Callable[[], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRequest:
    """A request about one row.

    Args:
        backend: Which comparison.
        row: The row of the list.
        tensor: Its backend tensor; the reference's, if that alone has it.
        sample: Which sample; None for the first one that was recorded.
        step: Which step.
        side: "reference" or "backend" where that one alone has the tensor; "" of one that is compared.
    """

    backend: int = 0
    row: int
    tensor: str
    sample: int | None
    step: int = 0
    side: str = ""

    @property
    def key(self) -> Key:
        """The row, sample and step of its answer."""
        return self.backend, self.row, self.sample, self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailRequest(TensorRequest):
    """A request for the facts of one row.

    Args:
        elements: Whether to include the statistics of all elements.
        explain: Whether to search for the arithmetic that reproduces it.
    """

    elements: bool = False
    explain: bool = False


@dataclass(frozen=True, slots=True)
class LookedAt:
    """The element and plane of a tensor that a view shows.

    Args:
        element: Its index; None before the shape is known.
        plane: Whether the view shows a map of the plane through it.
    """

    element: tuple[int, ...] | None = None
    plane: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRequest(TensorRequest):
    """A request for the elements around one of them.

    Args:
        element: The index at the centre; None for the first element.
        plane: Whether to include a map of the plane through it.
    """

    element: tuple[int, ...] | None = None
    plane: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleWish:
    """The effect of a scale and a zero point on the tensor.

    Args:
        quant: The parameters to try; None for the facts of the tensor alone.
        replay: Whether to replay the network with them.
    """

    quant: QuantParams | None = None
    replay: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EditWish:
    """The edits of the tensor's node, and their effect on the outputs.

    Args:
        edits: Names of the edits that are marked, of any node.
        sample: The sample that is replayed; None for one after the other.
    """

    edits: tuple[str, ...] = ()
    sample: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWish:
    """The shares of all nodes in the outputs' errors, whatever the tensor."""


TrialWish = ScaleWish | EditWish | BudgetWish
"""Results of a replay that a view can show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRequest:
    """A request for the result of a replay.

    Args:
        backend: Which comparison.
        row: The row of the list.
        tensor: Its backend tensor.
        wish: The result.
    """

    backend: int = 0
    row: int
    tensor: str
    wish: TrialWish


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """A request to write a new file.

    Args:
        backend: Which comparison.
        path: A file that does not exist.
        write: Writes it and returns a summary of its contents; called on a worker thread.
    """

    backend: int
    path: Path
    write: Callable[[DiffSession, Path], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptRequest:
    """A request to acknowledge the error of a node.

    Args:
        backend: Which comparison.
        node: The backend's node.
        reason: Why; "" to accept it no longer.
        expires: Last day on which that holds; None for ever.
        path: The limits file to write it into.
    """

    backend: int
    node: str
    reason: str
    expires: str | None
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRequest:
    """A request to keep a note on a node.

    Args:
        backend: Which comparison.
        node: The backend's node.
        text: The note; "" to delete it.
        path: The limits file to write it into.
    """

    backend: int
    node: str
    text: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantsRequest:
    """A request for the constants that the node of a tensor reads.

    Args:
        backend: Which comparison.
        tensor: The backend's tensor; the reference's, if that alone has it.
        side: The side that alone has it; "" if both have.
    """

    backend: int
    tensor: str
    side: str = ""


Job = ExportRequest | AcceptRequest | NoteRequest | ConstantsRequest
"""Requests that no other request cancels."""


class Event(Message):
    """News of a worker thread for the screen."""


@dataclass(kw_only=True)
class NamesLoaded(Event):
    """The recordings are open; their graphs have not been read.

    Args:
        backend_at: Which comparison.
        table: Tensors by name alone, in the order they were recorded.
    """

    backend_at: int = 0
    table: NodeTable


@dataclass(kw_only=True)
class AlignmentProgress(Event):
    """The two recordings are being aligned, which takes long.

    Args:
        backend_at: Which comparison.
        stage: The step at hand, in a few words.
    """

    backend_at: int = 0
    stage: str


@dataclass(kw_only=True)
class Opened(Event):
    """Both recordings are open and aligned; no value has been read. From here on results come into the table.

    Args:
        backend_at: Which comparison.
        reference, backend: Facts of the two runs.
        reference_graph, backend_graph: Their graphs.
        table: The rows, nothing computed yet.
        samples, steps: How many the recordings share.
        limits: The limits in force, by name.
        writing: Whether a recorder still adds to one of them.
        notes: Notes of earlier sessions, by node.
    """

    backend_at: int = 0
    writing: bool = False
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
    """There are more results.

    Posted again once `announced` of its table is reset.

    Args:
        backend_at: Which comparison.
    """

    backend_at: int = 0


@dataclass(kw_only=True)
class Finished(Event):
    """Every pair is compared.

    Args:
        backend_at: Which comparison.
        result: All of it.
    """

    backend_at: int = 0
    result: RunComparison


@dataclass(kw_only=True)
class DetailReady(Event):
    """The facts of a tensor, or those read so far.

    Args:
        request: The request that it answers.
        values: Extremes, means and histograms of both sides; None if not read yet or not readable.
        values_sample: The sample they are of.
        recorded: Recorded statistics of both sides where not all values were kept, or of the one side that has the
            tensor; None if all were kept, or before they are read.
        profile: Results element by element; None before they are computed.
        whole: Statistics of all elements, or of those read so far; None if not requested, not begun or not readable.
        explained: Which arithmetic reproduces the tensor; None if not requested, or before it is found.
        complete: Whether nothing more will come.
        problem: Why something is missing; "" if nothing is.
    """

    request: DetailRequest
    values: ValueFacts | None = None
    values_sample: int
    recorded: Recorded | None = None
    profile: TensorProfile | None = None
    whole: Whole | None = None
    explained: Sequence[NodeExplanation] | None = None
    complete: bool = False
    problem: str = ""

    @property
    def worst(self) -> Sequence[WorstElement]:
        """The worst elements, the worst first; empty if they are not known."""
        return () if self.profile is None else self.profile.worst


@dataclass(kw_only=True)
class Glimpsed(Event):
    """The elements around the one looked at, as they were recorded; whether the tensor is compared or not.

    Args:
        request: The request that it answers.
        part: The elements; None if they cannot be read.
        sample: The sample they are of.
        plane: Statistics of their plane, if they are not all of it; None if not requested.
        problem: Why there are none; "" if there are.
    """

    request: LookRequest
    part: Slab | None
    sample: int
    plane: Whole | None = None
    problem: str = ""


@dataclass(kw_only=True)
class TrialReady(Event):
    """The result of a replay, or the part that is done.

    Args:
        request: The request that it answers.
        facts: Facts of the tensor; None before they are read.
        error: Exact error of the parameters that are tried; None if not requested, or before it is computed.
        replay: The outputs with these parameters; None if not requested, or before it is computed.
        edits: Edits and their effects; None before they are listed.
        budget: Shares of the nodes in the outputs' errors; None before any is computed.
        doing: The replay at hand, in a few words; "" for none.
        replayed: How much of that is done, and of how much; (0, 0) while nothing is.
        problem: Why nothing can be tried; "" if something can.
    """

    request: TrialRequest
    facts: TrialFacts | None = None
    error: QuantError | None = None
    replay: Replay | None = None
    edits: EditFacts | None = None
    budget: ErrorBudget | None = None
    doing: str = ""
    replayed: tuple[int, int] = (0, 0)
    problem: str = ""


@dataclass(kw_only=True)
class ConstantsReady(Event):
    """The constants of a tensor are compared.

    Args:
        request: The request that it answers.
        table: A row for each constant, with a result if both sides have it.
    """

    request: ConstantsRequest
    table: NodeTable


@dataclass(kw_only=True)
class NoteKept(Event):
    """A note on a node is kept, or taken out.

    Args:
        node: The backend's node.
        text: The note; "" if there is none any more.
    """

    node: str
    text: str


@dataclass(kw_only=True)
class StatusMessage(Event):
    """A message for the status line.

    Args:
        message: The text, safe to show; a `Provisional` if later news end it.
    """

    message: str


@dataclass(kw_only=True)
class Failed(Event):
    """The recordings cannot be read any further.

    Args:
        backend_at: Which comparison.
        error: Why.
        fatal: Whether a worker broke: there is no going on with other backends.
    """

    backend_at: int = 0
    fatal: bool = False
    error: BaseException


def worst_first(sqnr_db: float | None) -> float:
    """Return a sort key of outputs, the worst first; those that are not finite come before all others."""
    return -math.inf if sqnr_db is None or math.isnan(sqnr_db) else sqnr_db
