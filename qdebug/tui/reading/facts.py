"""Facts about a tensor beyond its comparison: recorded statistics, and the effects of scales and edits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qdebug.model import QuantParams
    from qdebug.model.kept import Statistics
    from qdebug.numerics.quant_error import QuantError
    from qdebug.numerics.range_histogram import RangeHistogram
    from qdebug.repair.edit_bench import EditEffect
    from qdebug.repair.edits import Edit
    from qdebug.scales.choose import ScaleChoice
    from qdebug.scales.trial import TrialBench

__all__ = ["EditFacts", "Recorded", "RecordedSide", "TrialFacts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSide:
    """Facts about one side of a tensor that was not recorded in full.

    Args:
        statistics: Statistics of all its elements; None if nothing was kept.
        quant: Quantization of its stored elements.
        elements: Number of elements that were kept.
        is_integer: Whether its elements are integers or booleans.
    """

    statistics: Statistics | None
    quant: QuantParams | None
    elements: int = 0
    is_integer: bool = False


Recorded = tuple[RecordedSide, RecordedSide]
"""The recorded facts about the reference's tensor and the backend's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFacts:
    """Facts about a tensor for which scales are tried, independent of the scale.

    Args:
        bench: Checks parameters; the screen's thread must not use anything else of it.
        values: Name of the tensor that the values belong to.
        histogram: The histogram of the values.
        current_error: Exact error of the current parameters; None without parameters, or before it is computed.
        choices: Scales that the calibrators choose, by scheme; empty before they are computed.
    """

    bench: TrialBench
    values: str
    histogram: RangeHistogram
    current_error: QuantError | None = None
    choices: Mapping[str, tuple[ScaleChoice, ...]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def current_quant(self) -> QuantParams | None:
        """The current parameters; None if the tensor is not quantized."""
        return self.bench.now


@dataclass(frozen=True, slots=True, kw_only=True)
class EditFacts:
    """Facts about the edits of a node.

    Args:
        node: The node whose edits change the tensor; "" without one.
        edits: Edits of the node, cheapest first.
        marked_edits: The marked edits of all nodes.
        effect: The outputs with the marked edits, for the samples so far; None if no edit is marked, or before it is
            computed.
        fidelity_db: SQNR in dB between a replay without edits and the recorded outputs; None if not known yet.
        unedited_effect: The outputs of a replay without edits; None if they equal the recorded ones, or are not
            computed.
        gains: Increase in dB of the output's SQNR by each edit, as far as known; by a marked edit, over the others.
    """

    node: str = ""
    edits: tuple[Edit, ...] = ()
    marked_edits: tuple[Edit, ...] = ()
    effect: EditEffect | None = None
    fidelity_db: float | None = None
    unedited_effect: EditEffect | None = None
    gains: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
