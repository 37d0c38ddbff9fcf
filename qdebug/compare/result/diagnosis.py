"""The diagnosis of a comparison: faults with place, reason and remedies, and what was ruled out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from qdebug.compare.result.finding import FindingKind
from qdebug.model.json_object import JsonObject

__all__ = ["Diagnosis", "FaultClass", "OutputGain", "Remedy", "RuledOut", "class_of"]


class FaultClass(StrEnum):
    """The kind of work that a fault asks for."""

    KERNEL = "kernel"
    """The backend computes what no known arithmetic gives, or hands on a wrong buffer."""
    MODEL = "model"
    """The two runs do not run the same network: weights, bias, attributes, operators, graph."""
    QUANTIZATION = "quantization"
    """Ranges, scales or weights in codes that keep too little, where every kernel is right by them."""
    NUMERIC = "numeric"
    """Overflow, NaN, cancellation, too few digits."""
    REFERENCE = "reference"
    """The reference is wrong, not the backend."""
    UNKNOWN = "unknown"
    """Beyond a limit, and nothing tells why: the node cannot be replayed, or a limit of the user judges it."""
    RECORDING = "recording"
    """The two recordings cannot be held against each other, as where the inputs differ."""


_CLASSES = {
    FindingKind.ARITHMETIC: FaultClass.KERNEL,
    FindingKind.ERROR: FaultClass.UNKNOWN,
    FindingKind.STALE: FaultClass.KERNEL,
    FindingKind.OPERAND: FaultClass.KERNEL,
    FindingKind.WEIGHT: FaultClass.MODEL,
    FindingKind.BIAS: FaultClass.MODEL,
    FindingKind.CONSTANT: FaultClass.MODEL,
    FindingKind.ATTRIBUTE: FaultClass.MODEL,
    FindingKind.OPERATOR: FaultClass.MODEL,
    FindingKind.MISSING_NODE: FaultClass.MODEL,
    FindingKind.PLACEMENT: FaultClass.MODEL,
    FindingKind.SCALE: FaultClass.QUANTIZATION,
    FindingKind.ZERO_POINT: FaultClass.QUANTIZATION,
    FindingKind.SATURATION: FaultClass.QUANTIZATION,
    FindingKind.DEAD_ZONE: FaultClass.QUANTIZATION,
    FindingKind.PRECISION: FaultClass.NUMERIC,
    FindingKind.NONFINITE: FaultClass.NUMERIC,
    FindingKind.SELECTION: FaultClass.NUMERIC,
    FindingKind.REFERENCE: FaultClass.REFERENCE,
    FindingKind.INPUT: FaultClass.RECORDING,
}


def class_of(kind: FindingKind) -> FaultClass:
    """Return the class of a fault that a finding of some kind shows."""
    return _CLASSES[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputGain:
    """By how many dB a change raises the SQNR of an output."""

    output: str
    db: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy(JsonObject):
    """A change that was tried.

    Args:
        edit: Its name in `qdebug repair`: a kind of edit and a node, or several of them.
        what: A description.
        gains: Gain in SQNR of each output, over the replayed samples; infinite if the output becomes the reference's.
        samples: Number of these samples.
        cost: Its cost, in words.
        command: The command that makes it.
        nodes: Number of nodes that it changes; None for every kernel.
    """

    json_keys = "edit what gain_db samples cost command nodes|null"

    edit: str
    what: str
    gains: tuple[OutputGain, ...]
    samples: int
    cost: str
    command: str
    nodes: int | None = 1

    @property
    def gain_db(self) -> Mapping[str, float]:
        """The gains by output."""
        return {gain.output: gain.db for gain in self.gains}


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(JsonObject):
    """One fault.

    Args:
        fault: Its class.
        kind: The kind of its finding; None if no node is beyond its limit.
        node: The backend node.
        op: Its operator.
        tensor: Its output; the input itself if an input of the network is meant.
        model_node: The source model's name of the node; None if unknown.
        nodes: All backend nodes with the same fault, this one first.
        share: Share of these nodes' own errors in the error power of an output, over all samples, by output; None if
            unknown.
        before_db: SQNR of the worst of its inputs; None if none was compared.
        after_db: SQNR of its output; None if it has none.
        why: One sentence.
        evidence: Names of the constants, attributes or tensors at fault.
        remedies: Changes that were tried, the cheapest first.
    """

    json_keys = "class=fault kind node op tensor model_node nodes share before_db after_db why evidence try=remedies"

    fault: FaultClass
    kind: FindingKind | None
    node: str
    op: str
    tensor: str
    model_node: str | None
    why: str
    nodes: tuple[str, ...] = ()
    share: Mapping[str, float | None] = field(default_factory=dict)
    before_db: float | None = None
    after_db: float | None = None
    evidence: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledOut(JsonObject):
    """A class of faults that was searched and not found.

    Args:
        fault: The class.
        sentence: What was checked, a clause.
    """

    json_keys = "class=fault sentence"

    fault: FaultClass
    sentence: str
