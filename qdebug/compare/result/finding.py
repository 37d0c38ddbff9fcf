"""Findings about nodes, and the statuses of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from qdebug.model import Node
from qdebug.model.json_object import JsonObject, SchemaPart

__all__ = [
    "Finding",
    "FindingKind",
    "FindingRole",
    "Judged",
    "JudgedBy",
    "Status",
    "apart",
    "breach",
    "graph_difference",
]


class Status(StrEnum):
    """The outcome of one tensor, or of a whole comparison."""

    IDENTICAL = "identical"
    WITHIN = "within"
    ACCUMULATED = "accumulated"
    """Only for a whole comparison: every node is within its limit, but a network output is not."""
    DIVERGED = "diverged"
    NONFINITE = "nonfinite"
    INCOMPARABLE = "incomparable"
    INCOMPLETE = "incomplete"


class JudgedBy(StrEnum):
    """The evidence by which a compared tensor was judged."""

    REPLAY = "replay"
    """By a replay of its node on the backend's recorded inputs, or by an arithmetic that reproduces it bit for bit."""
    WHOLE_ERROR = "whole_error"
    """By its total error, including that of its inputs: it has no node, its node cannot be replayed, or it is equal."""
    NONE = "none"
    """Not judged: nothing shows whether its node is right, or it could not be compared."""


class FindingKind(StrEnum):
    """The subject of a finding."""

    WEIGHT = "weight"
    BIAS = "bias"
    CONSTANT = "constant"
    ATTRIBUTE = "attribute"
    OPERATOR = "operator"
    OPERAND = "operand"
    MISSING_NODE = "missing_node"
    SCALE = "scale"
    ZERO_POINT = "zero_point"
    SATURATION = "saturation"
    DEAD_ZONE = "dead_zone"
    PRECISION = "precision"
    NONFINITE = "nonfinite"
    ROUNDING = "rounding"
    """A float node rounds at another position or in another direction than the reference's; errors have both signs."""
    SELECTION = "selection"
    PLACEMENT = "placement"
    ARITHMETIC = "arithmetic"
    ONE_SIDED = "one_sided"
    """Rounding errors of a float result have one sign, so that they add up along the network."""
    ERROR = "error"
    INPUT = "input"
    """The two runs were given different inputs."""
    REFERENCE = "reference"
    """The reference's tensor, rather than the backend's, does not match its node."""
    DISTURBED = "disturbed"
    """Recording changed how the tensor is computed."""
    STALE = "stale"
    """A tensor holds the bytes of another tensor."""
    CACHE = "cache"
    """A row of a cache differs from the step that wrote it."""


class FindingRole(StrEnum):
    """The role of a finding in the verdict, see `qdebug.compare.policy`. Findings are listed in this order."""

    DIFFERENCE = "difference"
    """The two graphs declare the node differently, and that changes the result by more than rounding does."""
    CAUSE = "cause"
    """Why an error exceeds its limit. It decides nothing on its own."""
    BREACH = "breach"
    """An error exceeds its limit."""
    COST = "cost"
    """The chosen codes or a known arithmetic lose too much, but the node computes correctly: the outputs decide."""
    EXCUSE = "excuse"
    """Why an error beyond a limit does not count. It is the reason given for a node that is within its limits."""
    OUTPUT = "output"
    """A part of a network output exceeds the limit for outputs, and so the output does, however right the rest is."""
    NOTE = "note"
    """Worth mentioning, but decides nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(JsonObject):
    """A finding about a node.

    Args:
        kind: Its subject.
        role: Its role in the verdict.
        node: The backend node.
        sentence: A clause for the user, without the node's name.
        amount: Its size, or None if there is nothing to measure, as for an attribute.
        limit: The limit of the amount, in the same unit, or None.
        unit: Unit of both. For an SQNR ("dB"), less is worse.
        given: Whether the user gave the limit.
        evidence: Name of the constant, attribute, tensor or format at fault, or None if there is no single one.
    """

    json_keys = "kind role node sentence amount limit unit evidence"

    kind: FindingKind
    role: FindingRole
    node: str
    sentence: str
    amount: float | None = None
    limit: float | None = None
    unit: str | None = None
    given: bool = False
    evidence: str | None = None


def graph_difference(kind: FindingKind, node: Node, sentence: str, *, evidence: str | None = None) -> Finding:
    """Return the finding that the two graphs differ at a backend node."""
    return Finding(kind=kind, role=FindingRole.DIFFERENCE, node=node.name, sentence=sentence, evidence=evidence)


def breach(
    node: str, kind: FindingKind, sentence: str, *, judged: tuple[float, float, str], given: bool = False
) -> Finding:
    """Return the finding that an error exceeds a limit.

    Args:
        node: The backend node.
        kind: The subject of the limit.
        sentence: One clause.
        judged: The amount, the limit and their unit.
        given: Whether the user gave the limit.
    """
    amount, limit, unit = judged
    return Finding(
        kind=kind,
        role=FindingRole.BREACH,
        node=node,
        sentence=sentence,
        amount=float(amount),
        limit=float(limit),
        unit=unit,
        given=given,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(JsonObject):
    """The amount that a derived limit applies to.

    Args:
        amount: The amount.
        limit: Its limit.
        unit: Unit of both: "LSB", "elements", "integers", or "bound" for the error divided by that of correct rounding.
    """

    amount: float
    limit: float
    unit: Annotated[str, SchemaPart(enum=["LSB", "elements", "integers", "bound"])]


def apart(amount: float, limit: float, *, digits: int = 3) -> str:
    """Write a number with as many digits as it takes to distinguish it from its limit: 19.99 for a limit of 20.

    Args:
        amount: The number.
        limit: Its limit.
        digits: Minimum number of significant digits.
    """
    text = f"{amount:.{digits}g}"
    # 17 digits distinguish any two float64 numbers
    while amount != limit and float(text) == float(f"{limit:g}") and digits < 17:
        digits += 1
        text = f"{amount:.{digits}g}"
    return text
