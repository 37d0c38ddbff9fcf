"""The diagnosis of a comparison: faults with location, reason and remedies, and what was ruled out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from qdebug.compare.result.finding import FindingKind
from qdebug.model.json_object import JsonObject

__all__ = ["ALL_NODES", "Diagnosis", "FaultClass", "OutputGain", "Remedy", "RuledOut", "class_of"]


ALL_NODES = " *"
"""End of the name of an edit that stands for one kind of edit of all nodes."""


class FaultClass(StrEnum):
    """The kind of work that a fault calls for."""

    KERNEL = "kernel"
    """The backend computes something that no known arithmetic gives, or passes on a wrong buffer."""
    MODEL = "model"
    """The two runs compute different networks: weights, bias, attributes, operators, graph."""
    QUANTIZATION = "quantization"
    """Quantized ranges, scales or weights lose too much, although every kernel computes correctly with them."""
    NUMERIC = "numeric"
    """Overflow, NaN, cancellation, too few digits."""
    REFERENCE = "reference"
    """The reference is wrong, not the backend."""
    UNKNOWN = "unknown"
    """Beyond a limit for an unknown reason: the node cannot be replayed, or a user limit judges it."""
    RECORDING = "recording"
    """The two recordings cannot be compared, for example because their inputs differ."""


_CLASSES = {
    FindingKind.ARITHMETIC: FaultClass.KERNEL,
    FindingKind.ONE_SIDED: FaultClass.KERNEL,
    FindingKind.ERROR: FaultClass.UNKNOWN,
    FindingKind.CACHE: FaultClass.KERNEL,
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
    FindingKind.ROUNDING: FaultClass.NUMERIC,
    FindingKind.NONFINITE: FaultClass.NUMERIC,
    FindingKind.SELECTION: FaultClass.NUMERIC,
    FindingKind.REFERENCE: FaultClass.REFERENCE,
    FindingKind.INPUT: FaultClass.RECORDING,
}


def class_of(kind: FindingKind) -> FaultClass:
    """Return the class of the fault behind a finding of a given kind."""
    return _CLASSES[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputGain:
    """The increase in an output's SQNR caused by a change, in dB."""

    output: str
    db: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy(JsonObject):
    """A change that was tried.

    Args:
        edit: Its name in `qdebug repair`: a kind of edit and a node, or several of them.
        what: A description of the change.
        gains: SQNR gain of each output, over the replayed samples. Infinite if the output becomes equal to the
            reference.
        samples: Number of these samples.
        cost: A description of its cost.
        command: The command that makes the change.
        nodes: Number of nodes that it changes. None if it changes every kernel.
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
        kind: The kind of its finding. None if no node exceeds its limit.
        node: The backend node.
        op: Its operator.
        tensor: Its output, or the input itself if the fault is in a network input.
        model_node: The source model's name of the node, or None if unknown.
        nodes: All backend nodes with the same fault, starting with this one.
        share: Share of these nodes' own errors in the error power of each output, over all samples. None if unknown.
        before_db: SQNR of the worst of its inputs, or None if none was compared.
        after_db: SQNR of its output, or None if unknown.
        why: One sentence.
        evidence: Names of the constants, attributes or tensors at fault.
        remedies: Changes that were tried, cheapest first.
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
    """A class of faults that was searched for and not found.

    Args:
        fault: The class.
        sentence: A clause on what was checked.
    """

    json_keys = "class=fault sentence"

    fault: FaultClass
    sentence: str
