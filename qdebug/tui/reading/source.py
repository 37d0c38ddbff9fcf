"""What the interface needs from a session, and how one is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # the screen is drawn before any of this is needed
    import numpy as np

    from qdebug.compare.align.pairs import Alignment, Match
    from qdebug.compare.result.limits import Acknowledgement, Limits
    from qdebug.compare.result.result import NodeResult, RunComparison
    from qdebug.model import QuantParams, Recording
    from qdebug.numerics.profile import TensorProfile

__all__ = [
    "DiffSource",
    "Entry",
    "Opening",
    "PairValues",
    "PairWindow",
    "ReadablePair",
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
        """Values of the reference; as they are stored where it is not quantized."""

    @property
    def backend(self) -> np.ndarray:
        """Values of the backend, likewise."""

    @property
    def reference_codes(self) -> np.ndarray | None:
        """Stored codes of the reference, if it is quantized."""

    @property
    def backend_codes(self) -> np.ndarray | None:
        """Stored codes of the backend, if it is quantized."""


class PairWindow(PairValues, Protocol):
    """Real values of both sides of a pair around one element, in memory."""

    @property
    def reference_quant(self) -> QuantParams | None:
        """Quantization of the reference."""

    @property
    def backend_quant(self) -> QuantParams | None:
        """Quantization of the backend."""

    @property
    def axis(self) -> int:
        """Dimension that counts the channels; 0 for fewer than two."""

    @property
    def start(self) -> tuple[int, ...]:
        """Index in the whole tensor of the first element."""

    @property
    def whole(self) -> tuple[int, ...]:
        """Extents of the whole tensor."""


class ReadablePair(Protocol):
    """Both sides of a pair; what is read of them is read as it is asked for. To be used on one thread at a time."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""

    @property
    def size(self) -> int:
        """Number of elements."""

    @property
    def nbytes(self) -> int:
        """Memory that all real values and codes of both sides would take."""

    @property
    def held(self) -> int:
        """Memory behind it, of what is no view of a file."""

    @property
    def made(self) -> int:
        """Size of what is behind it that is no view of a recording, in memory or in a temporary file."""

    @property
    def reference_quant(self) -> QuantParams | None:
        """Quantization of the reference."""

    @property
    def backend_quant(self) -> QuantParams | None:
        """Quantization of the backend."""

    @property
    def axis(self) -> int:
        """Dimension that counts the channels; 0 for fewer than two."""

    def again(self) -> ReadablePair:
        """Give another one of the same elements, for another thread."""

    def read(self, start: int, stop: int) -> PairValues:
        """Give the elements start to stop in C order, 1-D; not to be kept."""

    def window(self, around: tuple[int, ...] | None, extents: tuple[int, int]) -> PairWindow:
        """Copy the elements around one of them, along the last two dimensions."""


class DiffSource(Protocol):
    """The part of a diff session that the interface uses; called on the reader thread alone, but for `pair`."""

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

    @property
    def compared(self) -> Sequence[NodeResult]:
        """Results so far, in the order of the pairs."""

    @property
    def outdated(self) -> bool:
        """Whether results that were kept are of another version of qdebug."""

    def entries(self) -> Sequence[Entry]:
        """List the pairs; reads no values."""

    def results(self) -> Iterator[NodeResult]:
        """Compare pair after pair."""

    def result(self) -> RunComparison:
        """Finish and sum up."""

    def pair(self, tensor: str, *, sample: int, step: int) -> ReadablePair:
        """Open both sides of a pair; called on a thread of its own too, while others are compared."""

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

    compare: Callable[[], DiffSource]
    hear: Callable[[Callable[[str], object]], None] | None = None
    names: Callable[[], Sequence[str]] | None = None
    refresh: Callable[[], bool] | None = None
    news: Callable[[], str] | None = None
    writing: Callable[[], bool] | None = None
    notes: Callable[[], Mapping[str, str]] | None = None
    remark: Callable[[], str] | None = None
    changed: Callable[[], str] | None = None
