"""Which tensor of the backend run answers to which tensor of the reference run, and why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from qdebug.model.json_object import JsonObject

__all__ = [
    "Alignment",
    "Match",
    "Pair",
    "PairList",
    "Side",
    "Transform",
    "Unmatched",
    "UnmatchedKind",
    "block_of",
    "clamp_of",
]

_BLOCKED = re.compile(r"NCHW(\d+)c")


class Match(StrEnum):
    """On what ground two tensors were paired."""

    EXACT = "exact"
    ORIGIN = "origin"
    FUSED = "fused"
    QUANTIZATION = "quantization"
    SIGNATURE = "signature"
    DATA = "data"
    MANUAL = "manual"


class Side(StrEnum):
    """One of the two runs."""

    REFERENCE = "reference"
    BACKEND = "backend"

    @property
    def other(self) -> Side:
        """The other run."""
        return Side.REFERENCE if self is Side.BACKEND else Side.BACKEND


class UnmatchedKind(StrEnum):
    """Whether a tensor without partner is missed."""

    BENIGN = "benign"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """What is done to a tensor before it is compared: blocks of channels are undone first, then dimensions turned.

    Args:
        clamp_low: Real values below are raised to this; None for no bound.
        clamp_high: Real values above are lowered to this; None for no bound.
        transpose: For each dimension of the reference, which of the tensor's own it is; None if in order.
        channel_block: Channels that lie together in memory, where a tensor declared as N, C, H, W is kept as
            N, C/block, H, W, block; None if it is not.
    """

    clamp_low: float | None = None
    clamp_high: float | None = None
    transpose: tuple[int, ...] | None = None
    channel_block: int | None = None


def block_of(layout: str | None) -> int | None:
    """Return how many channels lie together in memory in a layout such as "NCHW16c"; None in any other."""
    blocked = _BLOCKED.fullmatch(layout or "")
    return int(blocked.group(1)) if blocked else None


def clamp_of(view: Transform | None) -> tuple[float | None, float | None]:
    """Return the bounds that a view sets to real values; None for no bound."""
    return (None, None) if view is None else (view.clamp_low, view.clamp_high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two tensors that stand for the same values.

    Args:
        reference: Tensor of the reference run.
        backend: Tensor of the backend run.
        match: The ground for the pair.
        reason: One clause a person can check.
        reference_view: What is done to the reference's values first; None for nothing.
        backend_view: What is done to the backend's values first; None for nothing.
        confidence: How sure the pair is, from 0 to 1; 1 where names or graphs lead to it and nothing contradicts them.
    """

    reference: str
    backend: str
    match: Match
    reason: str
    reference_view: Transform | None = None
    backend_view: Transform | None = None
    confidence: float = 1.0

    def of(self, side: Side) -> str:
        """Return the tensor of one side."""
        return self.backend if side is Side.BACKEND else self.reference

    def view_of(self, side: Side) -> Transform | None:
        """Return what is done to the values of one side first; None for nothing."""
        return self.backend_view if side is Side.BACKEND else self.reference_view

    def with_view(self, side: Side, view: Transform, said: str) -> Pair:
        """Return the same pair with something else done to the values of one side first, and that said."""
        if side is Side.BACKEND:
            return replace(self, backend_view=view, reason=f"{self.reason}; {said}")
        return replace(self, reference_view=view, reason=f"{self.reason}; reference {said}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmatched(JsonObject):
    """A tensor that was not compared.

    Args:
        side: The run it belongs to.
        tensor: Its name.
        kind: Benign if nothing is lost by not comparing it.
        reason: One clause that says why it has no partner.
        inside: The compared backend tensor whose result accounts for it; None if there is none.
        unchecked: Whether nothing checked that both runs do the same in the part that it lies in, as the reason says.
        constant: Whether it is a constant of the network, which no run computes.
        of_constants: Whether it is computed of constants alone.
        nearest: The other side's tensor whose values are nearest to its own, where that was looked for.
        distance: Relative distance from that.
    """

    json_keys = "side tensor kind reason nearest distance"

    side: Side
    tensor: str
    kind: UnmatchedKind
    reason: str
    inside: str | None = None
    unchecked: bool = False
    constant: bool = False
    of_constants: bool = False
    nearest: str | None = None
    distance: float | None = None

    @property
    def said(self) -> str:
        """The reason, with the nearest tensor of the other side where that was looked for."""
        if self.nearest is None:
            return self.reason
        return f"{self.reason}; nearest by its values is {self.nearest!r}, relative distance {self.distance:.2g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairList:
    """What a person says of the partners of tensors: it goes before all that is found.

    Args:
        pairs: Pairs, with `Match.MANUAL`.
        alone: Backend tensors that have no partner.
    """

    pairs: Sequence[Pair] = ()
    alone: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """All pairs, in the backend's topological order, and all tensors left over."""

    pairs: Sequence[Pair]
    unmatched: Sequence[Unmatched]

    @property
    def lost(self) -> tuple[Unmatched, ...]:
        """The tensors whose absence from the comparison matters."""
        return tuple(entry for entry in self.unmatched if entry.kind is UnmatchedKind.LOST)
