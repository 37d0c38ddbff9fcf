"""One line of the node list as it is known before any value is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from qdebug.compare.result.finding import Status

if TYPE_CHECKING:
    from qdebug.model import QuantParams

__all__ = ["STATE_OF", "PlannedRow", "State", "column", "display_names"]


class State(IntEnum):
    """How far one row is; the numbers are stored in the state column."""

    PENDING = 0
    IDENTICAL = 1
    WITHIN = 2
    DIVERGED = 3
    NONFINITE = 4
    INCOMPARABLE = 5

    @property
    def word(self) -> str:
        """The state in a word."""
        return _WORDS[self]

    @property
    def failing(self) -> bool:
        """Whether the row is beyond its limit."""
        return self in {State.DIVERGED, State.NONFINITE}


_WORDS = {
    State.PENDING: "pending",
    State.IDENTICAL: "identical",
    State.WITHIN: "within",
    State.DIVERGED: "diverged",
    State.NONFINITE: "nonfinite",
    State.INCOMPARABLE: "not compared",
}

STATE_OF: Mapping[Status, State] = MappingProxyType(
    {
        Status.IDENTICAL: State.IDENTICAL,
        Status.WITHIN: State.WITHIN,
        Status.ACCUMULATED: State.WITHIN,
        Status.DIVERGED: State.DIVERGED,
        Status.NONFINITE: State.NONFINITE,
        Status.INCOMPARABLE: State.INCOMPARABLE,
        Status.INCOMPLETE: State.INCOMPARABLE,
    }
)
"""The state of a row whose comparison came out so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRow:
    """One line of the node list as it is known before any value is read.

    Args:
        node: Node that produces the tensor.
        op: Its operator.
        tensor: The backend's tensor, or the reference's if the backend has none.
        reference_tensor: The reference's tensor; "" if it has none.
        match: Ground of the pair and its reason; "" if there is no pair.
        shape: Extents of the tensor.
        dtype: Logical dtype of its elements.
        quant: Quantization of the tensor.
        missing: Why it is not compared; None if it is.
        constant: Whether it is computed of constants alone, and so at no place of the run.
        placement: Where the backend's node ran; "" if nobody said.
    """

    node: str
    op: str
    tensor: str
    reference_tensor: str
    match: str = ""
    shape: tuple[int | None, ...] | None = None
    dtype: str | None = None
    quant: QuantParams | None = None
    missing: str | None = None
    constant: bool = False
    placement: str = ""

    @property
    def ordered(self) -> bool:
        """Whether it has a place in the backend's order."""
        return bool(self.tensor) and not self.constant


def column(rows: Sequence[PlannedRow], name: str) -> list[Any]:
    """Return one field of every line."""
    return [getattr(row, name) for row in rows]


def display_names(rows: Sequence[PlannedRow]) -> list[str]:
    """Return the name of each line: its node, and its tensor too where one node produces several."""
    counts = Counter(row.node for row in rows if row.tensor)
    return [_display_name(row.node, row.tensor or row.reference_tensor, counts[row.node] > 1) for row in rows]


def _display_name(node: str, tensor: str, several: bool) -> str:  # noqa: FBT001
    if not node or node == tensor:
        return tensor
    return f"{node} > {tensor}" if several else node
