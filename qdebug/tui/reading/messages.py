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
        hear: Takes who is told in a few words what `compare` is doing, and may raise an error to give it up; None where
            nobody tells.
        names: Opens the recordings and gives the names of the backend's tensors, which takes much less time than
            their graphs; None if there is no such short cut.
        refresh: Takes in what a recorder has written since, and tells whether that is anything: then `compare` is
            called again; None for recordings that are finished.
        news: Says what became of the files when something was taken in, "" for nothing; None where nobody looks.
        writing: Tells whether a recorder still adds to one of them; None if none does.
        notes: Gives what was noted on nodes earlier, by node; None if nothing is kept.
        remark: Says what is worth knowing once it is open, "" for nothing; None where nobody looks.
        changed: Says which of the files is no longer the one that was opened; "" if all are. None if they may change.
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
    """Ask for something about one row.

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
    """Ask for everything about one row.

    Args:
        elements: Whether what the elements come to is wanted too.
        explain: Whether an arithmetic is to be looked for.
    """

    elements: bool = False
    explain: bool = False


@dataclass(frozen=True, slots=True)
class LookedAt:
    """The element and plane of a tensor that a view shows.

    Args:
        element: Its index; None if that is not known.
        plane: Whether a map of the plane through it is looked at.
    """

    element: tuple[int, ...] | None = None
    plane: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRequest(TensorRequest):
    """Ask for the elements around one of them.

    Args:
        element: The one that is looked at; None for the first.
        plane: Whether a map of the plane through it is wanted too.
    """

    element: tuple[int, ...] | None = None
    plane: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleWish:
    """Ask for the effect of a scale and a zero point on the tensor.

    Args:
        quant: What is tried; None to ask for what is known of the tensor alone.
        replay: Whether the network is to be replayed with it.
    """

    quant: QuantParams | None = None
    replay: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EditWish:
    """Ask for the edits of the tensor's node, and their effect on the outputs.

    Args:
        edits: Names of the edits that are marked, of any node.
        sample: The sample that is replayed; None for one after the other.
    """

    edits: tuple[str, ...] = ()
    sample: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWish:
    """Ask for the composition of the outputs' errors, whatever the tensor."""


TrialWish = ScaleWish | EditWish | BudgetWish
"""What a page wants to be told that takes a replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRequest:
    """Ask for something that takes a replay.

    Args:
        backend: Which comparison.
        row: The row of the list.
        tensor: Its backend tensor.
        wish: What is to be found out.
    """

    backend: int = 0
    row: int
    tensor: str
    wish: TrialWish


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """Ask to write a new file.

    Args:
        backend: Which comparison.
        path: A file that does not exist.
        write: Writes it and says what was written; called on a worker thread.
    """

    backend: int
    path: Path
    write: Callable[[DiffSession, Path], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptRequest:
    """Ask to accept the error of a node from now on.

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
    """Ask to keep a note on a node.

    Args:
        backend: Which comparison.
        node: The backend's node.
        text: What to remember; "" to take the note out.
        path: The limits file to write it into.
    """

    backend: int
    node: str
    text: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantsRequest:
    """Ask for the constants that a tensor is computed of.

    Args:
        backend: Which comparison.
        tensor: The backend's tensor; the reference's, if that alone has it.
        side: The side that alone has it; "" if both have.
    """

    backend: int
    tensor: str
    side: str = ""


Job = ExportRequest | AcceptRequest | NoteRequest | ConstantsRequest
"""What is done however much else is asked."""


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
        stage: What is being done, in a few words.
    """

    backend_at: int = 0
    stage: str


@dataclass(kw_only=True)
class Opened(Event):
    """Both recordings are open and aligned; no value has been read. From here on results come into the table.

    Args:
        backend_at: Which comparison.
        reference, backend: Facts of the two runs.
        reference_graph, backend_graph: What ran.
        table: The rows, nothing computed yet.
        samples, steps: How many the recordings share.
        limits: What counts as divergence.
        writing: Whether a recorder still adds to one of them.
        notes: What was noted on nodes earlier, by node.
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

    Told anew once `announced` of its table is taken back.

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
    """An answer, or the part of it that is known so far.

    Args:
        request: What was asked.
        values: Extremes, means and histograms of both sides; None if not read yet or not readable.
        values_sample: The sample they are of.
        recorded: What was recorded of both sides where not all values were, or of the one side that has the tensor;
            None if all were, or not read yet.
        profile: What was found element by element; None if not known yet.
        whole: What all elements come to, or those read so far; None if not asked for, not begun or not readable.
        explained: Which arithmetic reproduces the tensor; None if not asked for or not known yet.
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
        request: What was asked.
        part: The elements; None if they cannot be read.
        sample: The sample they are of.
        plane: What the plane that they are of comes to, if they are not all of it; None if not asked for.
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
        request: What was asked.
        facts: What is known of the tensor; None if nothing yet.
        error: What the parameters that are tried lose, exactly; None if not asked for or not known yet.
        replay: What becomes of the outputs; None if not asked for or not known yet.
        edits: What is known of edits; None if nothing yet.
        budget: What the errors of the outputs are made of; None if nothing is known yet.
        doing: What is being replayed; "" for nothing.
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
        request: What was asked.
        table: A row for each, with the results of those that both sides have.
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
    """Something asked for is done, or could not be done.

    Args:
        message: What there is to say, safe to show; a `Provisional` if it holds only until more is known.
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
