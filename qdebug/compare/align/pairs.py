"""Pairs of tensors from the two runs, with reasons."""

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
    """The kind of evidence for a pair."""

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
    """Whether the comparison loses anything because a tensor is unpaired."""

    BENIGN = "benign"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """Changes made to a tensor before comparison: blocks of channels are undone first, then dimensions are permuted.

    Args:
        clamp_low: Lower bound that real values are clipped to; None for no bound.
        clamp_high: Upper bound that real values are clipped to; None for no bound.
        transpose: For each dimension of the reference, the dimension of the tensor. None for the identity.
        channel_block: Number of channels in a block if a tensor declared as N, C, H, W is stored as N, C/block, H, W,
            block. None without blocks.
    """

    clamp_low: float | None = None
    clamp_high: float | None = None
    transpose: tuple[int, ...] | None = None
    channel_block: int | None = None


def block_of(layout: str | None) -> int | None:
    """Return the number of channels in a block of a layout such as "NCHW16c", or None for other layouts."""
    blocked = _BLOCKED.fullmatch(layout or "")
    return int(blocked.group(1)) if blocked else None


def clamp_of(view: Transform | None) -> tuple[float | None, float | None]:
    """Return the bounds that a view clamps real values to. None means unbounded."""
    return (None, None) if view is None else (view.clamp_low, view.clamp_high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two tensors that represent the same values.

    Args:
        reference: Tensor of the reference run.
        backend: Tensor of the backend run.
        match: The kind of evidence.
        reason: Why they are paired, as a clause that the user can check.
        reference_view: Changes to the reference's values before they are compared; None for none.
        backend_view: Changes to the backend's values before they are compared; None for none.
        confidence: Confidence in the pair, from 0 to 1. It is 1 if names or graphs support the pair and nothing
            contradicts them.
    """

    reference: str
    backend: str
    match: Match
    reason: str
    reference_view: Transform | None = None
    backend_view: Transform | None = None
    confidence: float = 1.0

    def of(self, side: Side) -> str:
        """Return the tensor on one side."""
        return self.backend if side is Side.BACKEND else self.reference

    def view_of(self, side: Side) -> Transform | None:
        """Return the changes to the values of one side, or None if there are none."""
        return self.backend_view if side is Side.BACKEND else self.reference_view

    def with_view(self, side: Side, view: Transform, reason: str) -> Pair:
        """Return the pair with a new view of one side, and a reason for it."""
        if side is Side.BACKEND:
            return replace(self, backend_view=view, reason=f"{self.reason}; {reason}")
        return replace(self, reference_view=view, reason=f"{self.reason}; reference {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmatched(JsonObject):
    """A tensor that was not compared.

    Args:
        side: The run it belongs to.
        tensor: Its name.
        kind: Benign if nothing is lost by not comparing it.
        reason: A clause on why it has no partner.
        inside: The compared backend tensor whose result covers it, or None.
        unchecked: Whether it lies in a region where nothing checked that both runs compute the same, as the reason
            says.
        constant: Whether it is a constant of the network, which neither run computes.
        of_constants: Whether it depends only on constants.
        nearest: The other side's tensor with the nearest values, if that was searched.
        distance: Relative distance from the nearest tensor.
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
    def full_reason(self) -> str:
        """The reason, including the nearest tensor of the other side if one was searched."""
        if self.nearest is None:
            return self.reason
        return f"{self.reason}; closest by values: {self.nearest!r}, relative distance {self.distance:.2g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairList:
    """Partners stated by the user; they take precedence over all others.

    Args:
        pairs: Pairs, with `Match.MANUAL`.
        alone: Backend tensors without a partner.
    """

    pairs: Sequence[Pair] = ()
    alone: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """All pairs, in the backend's topological order, and all unpaired tensors."""

    pairs: Sequence[Pair]
    unmatched: Sequence[Unmatched]

    @property
    def lost(self) -> tuple[Unmatched, ...]:
        """The unpaired tensors whose absence is a loss to the comparison."""
        return tuple(entry for entry in self.unmatched if entry.kind is UnmatchedKind.LOST)
