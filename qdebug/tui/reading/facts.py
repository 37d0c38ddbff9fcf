"""Facts of a tensor beyond its comparison: recorded statistics, and the effects of scales and edits."""

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
    """Facts of one side of a tensor of which not all values were kept.

    Args:
        statistics: Of all its elements; None if nothing of it was kept.
        quant: How its stored elements stand for real numbers.
        elements: How many of the elements were kept.
        whole: Whether it holds integers or booleans.
    """

    statistics: Statistics | None
    quant: QuantParams | None
    elements: int = 0
    whole: bool = False


Recorded = tuple[RecordedSide, RecordedSide]
"""What is known of the reference's tensor and of the backend's, as they were recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFacts:
    """Facts of a tensor whose scale is tried, independent of the scale.

    Args:
        bench: Checks parameters; nothing else of it may be used on the screen's thread.
        values: The tensor that the values are of.
        histogram: The values.
        now_error: Exact error of the parameters in use; None without parameters, or before it is computed.
        choices: Scales of the calibrators, by scheme; empty before they are computed.
    """

    bench: TrialBench
    values: str
    histogram: RangeHistogram
    now_error: QuantError | None = None
    choices: Mapping[str, tuple[ScaleChoice, ...]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def now(self) -> QuantParams | None:
        """The parameters in use; None if the tensor is not quantized."""
        return self.bench.now


@dataclass(frozen=True, slots=True, kw_only=True)
class EditFacts:
    """Facts of the edits of a node.

    Args:
        node: The node whose edits change the tensor; "" if there is none.
        edits: Edits of the node, the cheapest first.
        marked: The edits that are marked, of any node.
        effect: The outputs with the marked edits, in the samples so far; None if none is marked, or not yet.
        faithful: SQNR in dB of a replay without edits against the recorded outputs; None if not known yet.
        plain: The outputs of a replay without edits; None if they are as recorded, or not computed.
        gains: By how many dB each edit that is not marked would raise the SQNR of the worst output, as far as known.
    """

    node: str = ""
    edits: tuple[Edit, ...] = ()
    marked: tuple[Edit, ...] = ()
    effect: EditEffect | None = None
    faithful: float | None = None
    plain: EditEffect | None = None
    gains: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
