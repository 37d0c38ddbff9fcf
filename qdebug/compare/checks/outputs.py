"""Checks the parts that a Concat joins into a network output, because a large part hides the loss of a small one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.plan import recorded_places
from qdebug.compare.checks.context import NodeContext
from qdebug.compare.measure.joined_parts import JoinedPart, joined_parts
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, apart
from qdebug.model import Recording

__all__ = ["joined_part"]


@dataclass(slots=True)
class _Sums:
    """Sums over samples and steps for one part."""

    signal: float = 0.0
    noise: float = 0.0
    largest: float = 0.0
    zero: bool = True

    @property
    def sqnr_db(self) -> float:
        """The SQNR of the part, infinite without a signal or without an error."""
        return 10 * math.log10(self.signal / self.noise) if self.signal and self.noise else math.inf


def joined_part(context: NodeContext) -> Finding | None:
    """Find the part of an output that is farthest below the output limit, judging each part separately."""
    entry, backend = context.entry, context.runs.backend
    floor, stats = context.limits.output_sqnr_in_force, context.stats
    if floor is None or stats is None or stats.nonfinite or not stats.mismatches or entry.whole:
        return None
    turned = entry.pair.reference_view is not None or entry.pair.backend_view is not None
    if turned or entry.tensor not in backend.graph.outputs:
        return None
    parts = joined_parts(backend, entry.tensor)
    if len(parts) < 2:
        return None
    sums = _add_up(context, parts)
    worst = min(range(len(parts)), key=lambda at: sums[at].sqnr_db)
    level = sums[worst].sqnr_db
    if not level < floor:
        return None
    return Finding(
        kind=FindingKind.DEAD_ZONE if sums[worst].zero else FindingKind.ERROR,
        role=FindingRole.OUTPUT,
        node=context.name,
        sentence=_said(backend, parts[worst], sums[worst], floor),
        amount=level,
        limit=floor,
        unit="dB",
        evidence=parts[worst].tensor,
    )


def _add_up(context: NodeContext, parts: Sequence[JoinedPart]) -> list[_Sums]:
    entry, runs, sums = context.entry, context.runs, [_Sums() for _ in parts]
    for place in recorded_places(runs.reference, runs.backend, entry):
        reference = real_values(runs.reference, entry.reference_tensor, place).astype(np.float64)
        backend = real_values(runs.backend, entry.tensor, place).astype(np.float64).reshape(reference.shape)
        for part, part_sums in zip(parts, sums, strict=True):
            right, backend_part = part.of(reference), part.of(backend)
            part_sums.signal += float(np.square(right).sum())
            part_sums.noise += float(np.square(backend_part - right).sum())
            part_sums.largest = max(part_sums.largest, float(np.abs(right).max(initial=0.0)))
            part_sums.zero = part_sums.zero and not backend_part.any()
    return sums


def _said(backend: Recording, part: JoinedPart, sums: _Sums, floor: float) -> str:
    text = f"its part {part.tensor!r} ({part.words()})"
    if not sums.zero:
        return f"{text} has an SQNR of {apart(sums.sqnr_db, floor)} dB, below {floor:g} dB"
    for name in part.way:
        quant = backend.graph.tensors[name].quant
        if quant is not None and not quant.per_channel and float(quant.scale[0]) > sums.largest:
            step = f"one LSB of {name!r} is {float(quant.scale[0]):.3g}"
            return f"{text} is all zero; {step}, and its values reach only {sums.largest:.3g} in the reference"
    return f"{text} is all zero; its values reach {sums.largest:.3g} in the reference"
