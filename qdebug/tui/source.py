"""What the interface needs from a session, and the messages between its reader thread and the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # the screen is drawn before any of this is needed
    import numpy as np

    from qdebug.analysis.alignment.pairs import Alignment, Match
    from qdebug.analysis.explaining.explanation import NodeExplanation
    from qdebug.analysis.results.limit_rules import Acknowledgement
    from qdebug.analysis.results.limits import Limits
    from qdebug.analysis.results.result import DiffResult, NodeResult
    from qdebug.model import Graph, QuantParams, Recording, RunInfo
    from qdebug.numerics.full_tier import TensorProfile
    from qdebug.tui.recorded import RecordedFacts
    from qdebug.tui.rows import Batch, NodeTable
    from qdebug.tui.slab import Slab
    from qdebug.tui.values import ValueFacts
    from qdebug.view.detail import NodeDetail

__all__ = [
    "AcceptRequest",
    "Computed",
    "DetailReady",
    "DetailRequest",
    "DiffSource",
    "Entry",
    "Event",
    "ExportRequest",
    "Failed",
    "Finished",
    "Glimpsed",
    "Job",
    "Named",
    "NoteRequest",
    "Noted",
    "Opened",
    "Opening",
    "PairValues",
    "PairWindow",
    "Request",
    "Said",
    "Withdraw",
]


class Entry(Protocol):
    """One pair of tensors before any of its values is read."""

    @property
    def index(self) -> int:
        """Position among the tensors compared."""

    @property
    def node(self) -> str:
        """Backend node."""

    @property
    def op(self) -> str:
        """Its operator."""

    @property
    def tensor(self) -> str:
        """Backend tensor."""

    @property
    def reference_tensor(self) -> str:
        """Reference tensor."""

    @property
    def match(self) -> Match:
        """Ground of the pair."""

    @property
    def match_reason(self) -> str:
        """The ground in words."""

    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """Extents."""

    @property
    def quant(self) -> QuantParams | None:
        """Quantization."""


class PairValues(Protocol):
    """Real values of both sides of a pair, in one shape."""

    @property
    def reference(self) -> np.ndarray:
        """Values of the reference."""

    @property
    def backend(self) -> np.ndarray:
        """Values of the backend."""

    @property
    def reference_codes(self) -> np.ndarray | None:
        """Stored codes of the reference, if it is quantized."""

    @property
    def backend_codes(self) -> np.ndarray | None:
        """Stored codes of the backend, if it is quantized."""

    @property
    def reference_quant(self) -> QuantParams | None:
        """Quantization of the reference."""

    @property
    def backend_quant(self) -> QuantParams | None:
        """Quantization of the backend."""


class PairWindow(PairValues, Protocol):
    """Real values of both sides of a pair around one element."""

    @property
    def start(self) -> tuple[int, ...]:
        """Index in the whole tensor of the first element."""

    @property
    def whole(self) -> tuple[int, ...]:
        """Extents of the whole tensor."""


class DiffSource(Protocol):
    """The part of a diff session that the interface uses; called on the reader thread alone, but for `window`."""

    @property
    def reference(self) -> Recording:
        """The reference run."""

    @property
    def backend(self) -> Recording:
        """The backend run."""

    @property
    def alignment(self) -> Alignment:
        """Pairs and tensors left out."""

    @property
    def limits(self) -> Limits:
        """What counts as divergence."""

    def entries(self) -> Sequence[Entry]:
        """List the pairs; reads no values."""

    def results(self) -> Iterator[NodeResult]:
        """Compare pair after pair."""

    def result(self) -> DiffResult:
        """Finish and sum up."""

    def values(self, tensor: str, *, sample: int, step: int) -> PairValues:
        """Load both sides of a pair."""

    def window(
        self, tensor: str, *, around: tuple[int, ...] | None, extents: tuple[int, int], sample: int, step: int
    ) -> PairWindow:
        """Load both sides of a pair around one element; called on a thread of its own while others are compared."""

    def profile(
        self, tensor: str, *, sample: int | None, k: int, cancelled: Callable[[], bool] | None
    ) -> TensorProfile | None:
        """Compare a pair element by element; None if that was cancelled."""

    def acknowledge(self, entries: tuple[Acknowledgement, ...]) -> None:
        """Accept these nodes from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a comparison is opened; both parts are called on the reader thread, in this order.

    Args:
        compare: Opens both recordings, where that is not done yet, and aligns them.
        names: Opens the recordings and gives the names of the backend's tensors, which takes much less time than
            their graphs; None if there is no such short cut.
        refresh: Takes in what a recorder has written since, and tells whether that is anything: then `compare` is
            called again; None for recordings that are finished.
        writing: Tells whether a recorder still adds to one of them; None if none does.
        notes: Gives what was noted on nodes earlier, by node; None if nothing is kept.
        changed: Says which of the files is no longer the one that was opened; "" if all are. None if they may change.
    """

    compare: Callable[[], DiffSource]
    names: Callable[[], Sequence[str]] | None = None
    refresh: Callable[[], bool] | None = None
    writing: Callable[[], bool] | None = None
    notes: Callable[[], Mapping[str, str]] | None = None
    changed: Callable[[], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailRequest:
    """Ask for everything about one row.

    Args:
        id: Grows with each request; an answer to an older one is dropped.
        backend: Which comparison.
        row: The row of the list.
        tensor: Its backend tensor.
        sample: One sample; None for all.
        step: The step whose elements are shown.
        elements: Whether the elements are wanted too.
        explain: Whether an arithmetic is to be looked for.
        element: The one of them that is looked at; None for the first.
    """

    id: int
    backend: int = 0
    row: int
    tensor: str
    sample: int | None
    step: int = 0
    elements: bool = False
    explain: bool = False
    element: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """Ask to write a new file.

    Args:
        backend: Which comparison.
        path: A file that does not exist.
        write: Writes it and says what was written; called on the reader thread.
    """

    backend: int
    path: Path
    write: Callable[[DiffSource, Path], str]


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
class Withdraw:
    """Nobody waits for what was asked about a row any more; it need not be found out."""


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


Job = ExportRequest | AcceptRequest | NoteRequest
"""What is done however much else is asked."""

Request = DetailRequest | Withdraw | Job
"""Whatever the screen asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The recordings are open; their graphs have not been read.

    Args:
        backend_at: Which comparison.
        table: Tensors by name alone, in the order they were recorded.
    """

    backend_at: int = 0
    table: NodeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Both recordings are open and aligned; no value has been read. From here on the table is the screen's.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """There are more results.

    Args:
        backend_at: Which comparison.
        take: Gives those not taken yet, in topological order; called by the screen.
    """

    backend_at: int = 0
    take: Callable[[], Sequence[Batch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Every pair is compared.

    Args:
        backend_at: Which comparison.
        result: All of it.
    """

    backend_at: int = 0
    result: DiffResult


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailReady:
    """An answer, or the part of it that is known so far.

    Args:
        request: What was asked.
        detail: Comparison, tensors and worst elements.
        values: Extremes, means and histograms of both sides; None if not read yet or not readable.
        values_sample: The sample they are of.
        recorded: What was recorded of both sides where not all values were; None if they were, or not read yet.
        profile: What was found element by element; None if not known yet.
        slab: The elements; None if not asked for, not read yet or not readable.
        explained: Which arithmetic reproduces the tensor; None if not asked for or not known yet.
        complete: Whether nothing more will come.
        problem: Why something is missing; "" if nothing is.
    """

    request: DetailRequest
    detail: NodeDetail
    values: ValueFacts | None
    values_sample: int
    recorded: RecordedFacts | None = None
    profile: TensorProfile | None = None
    slab: Slab | None = None
    explained: Sequence[NodeExplanation] | None = None
    complete: bool
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Glimpsed:
    """The elements around the one looked at, as they were recorded: nothing is judged yet.

    Args:
        request: What was asked; its answer is still to come.
        part: The elements; None if they cannot be read.
        sample: The sample they are of.
        problem: Why there are none; "" if there are.
    """

    request: DetailRequest
    part: Slab | None
    sample: int
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A note on a node is kept, or taken out.

    Args:
        node: The backend's node.
        text: The note; "" if there is none any more.
    """

    node: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Something asked for is done, or could not be done.

    Args:
        message: What there is to say, safe to show.
    """

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The recordings cannot be read any further.

    Args:
        backend_at: Which comparison.
        error: Why.
        fatal: Whether the reader thread has ended.
    """

    backend_at: int = 0
    fatal: bool = False
    error: BaseException


Event = Named | Opened | Computed | Finished | DetailReady | Glimpsed | Noted | Said | Failed
"""Whatever the reader thread has to say."""
