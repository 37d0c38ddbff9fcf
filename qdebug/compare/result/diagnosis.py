"""What a comparison ends with: what is wrong, where, why, what to try, and what was ruled out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from qdebug.compare.result.finding import FindingKind
from qdebug.model.json_object import JsonObject

__all__ = ["Diagnosis", "FaultClass", "OutputGain", "Remedy", "RuledOut", "class_of"]


class FaultClass(StrEnum):
    """What kind of work a fault asks for."""

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
        edit: What `qdebug repair` calls it: a kind of edit and a node, or several such.
        what: What it does, in words.
        gains: By how much it raises the SQNR of each output, in the samples that were replayed; by an infinite amount
            where the output becomes the reference's.
        samples: How many these were.
        cost: What it costs, in words.
        command: What makes it.
        nodes: How many nodes it changes; None for every kernel.
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
        return {each.output: each.db for each in self.gains}


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(JsonObject):
    """One thing that is wrong.

    Args:
        fault: What kind of fault it is.
        kind: The kind of what was found of it; None where no node is beyond its limit.
        node: The backend node.
        op: Its operator.
        tensor: Its output; the input itself where an input of the network is meant.
        model_node: What the source model calls the node; None if that is not known.
        nodes: All backend nodes that have the same fault, this one first.
        share: Power of what these nodes' own errors make of an output over that of its error, all samples together, by
            output; None where it is not known.
        before_db: SQNR of the worst of its inputs; None if none was compared.
        after_db: SQNR of its output; None if it has none.
        why: One sentence.
        evidence: Names of the constants, attributes or tensors that it is about.
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
    """A class of faults that was looked for and is not there.

    Args:
        fault: The class.
        sentence: What was looked at, a clause.
    """

    json_keys = "class=fault sentence"

    fault: FaultClass
    sentence: str
