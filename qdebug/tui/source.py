"""What the interface needs from a session, and the messages between its reader thread and the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from qdebug.analysis.alignment import Alignment, Match
from qdebug.analysis.limits import Limits
from qdebug.analysis.result import DiffResult, NodeResult
from qdebug.model import QuantParams, Recording, RunInfo
from qdebug.numerics.stats import WorstElement
from qdebug.tui.rows import NodeTable
from qdebug.tui.values import ValueFacts
from qdebug.view.detail import NodeDetail

__all__ = [
    "Computed",
    "DetailReady",
    "DetailRequest",
    "DiffSource",
    "Entry",
    "Event",
    "Failed",
    "Finished",
    "Opened",
    "PairValues",
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


class DiffSource(Protocol):
    """The part of a diff session that the interface uses; all of it is called on the reader thread alone."""

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

    def values(self, tensor: str, *, sample: int) -> PairValues:
        """Load both sides of a pair."""

    def worst(self, tensor: str, *, k: int, sample: int | None) -> Sequence[WorstElement]:
        """Give the elements that differ most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailRequest:
    """Ask for everything about one row.

    Args:
        id: Grows with each request; an answer to an older one is dropped.
        row: The row of the list.
        tensor: Its backend tensor.
        sample: One sample; None for all.
    """

    id: int
    row: int
    tensor: str
    sample: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Both recordings are open and aligned; no value has been read. From here on the table is the screen's."""

    reference: RunInfo
    backend: RunInfo
    table: NodeTable
    samples: int
    limits: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """There are more results.

    Args:
        take: Gives those not taken yet, in topological order; called by the screen.
    """

    take: Callable[[], Sequence[NodeResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Every pair is compared."""

    result: DiffResult


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailReady:
    """An answer, or the part of it that is known so far.

    Args:
        request: What was asked.
        detail: Comparison, tensors and worst elements.
        values: Extremes, means and histograms of both sides; None if not read yet or not readable.
        values_sample: The sample they are of.
        complete: Whether nothing more will come.
        problem: Why something is missing; "" if nothing is.
    """

    request: DetailRequest
    detail: NodeDetail
    values: ValueFacts | None
    values_sample: int
    complete: bool
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The recordings cannot be read any further."""

    error: BaseException


Event = Opened | Computed | Finished | DetailReady | Failed
"""Whatever the reader thread has to say."""
