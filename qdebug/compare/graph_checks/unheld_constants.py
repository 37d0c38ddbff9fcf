"""Finds constants that a run's compute format cannot represent, if what they become explains the recorded values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from qdebug.compare.align.layouts import in_reference_order
from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.band import difference, finite_norm, norm, segment_share
from qdebug.compare.attribute.declared_format import declared_format
from qdebug.compare.graph_checks.tensor_facts import TensorFacts
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node
from qdebug.model.thresholds.attribution import SUBSTITUTE_REPLAY_MAX_ERROR_RATIO
from qdebug.numerics.short_formats import ShortFormat
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import run_node

__all__ = ["unheld_constant"]

_EPSILONS = ("epsilon", "eps")
"""Attributes that keep a division or a root away from zero."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Unheld:
    """A constant as a format may represent it.

    Args:
        node: The backend node that reads it.
        name: The name of the constant or attribute.
        held: The values that it becomes.
        count: Number of elements that are lost.
        real: The first lost element.
        given: The value that it becomes.
    """

    node: Node
    name: str
    held: np.ndarray
    count: int
    real: float
    given: float

    def sentence(self, short: ShortFormat) -> str:
        """Return a sentence about the lost values and what they become."""
        beyond = abs(self.real) > short.largest
        end = f"beyond {short.largest:.6g}, the largest {short.name} value"
        if not beyond:
            end = f"below {short.subnormal:.3g}, the smallest {short.name} value"
        kind = "attribute" if self.name in self.node.attrs else "constant"
        what = f"{kind} {self.name!r} of {self.node.op} {self.node.name!r}"
        if self.held.size > 1:
            are, first = ("is", "") if self.count == 1 else ("are", "the first is ")
            many = f"{self.count} of {self.held.size} elements of {what} {are} {end}"
            return f"{many}: {first}{self.real:.6g}, which becomes {self.given:.6g}"
        return f"{what} is {self.real:.6g}, {end}, and becomes {self.given:.6g}"


def unheld_constant(facts: TensorFacts, place: tuple[int, int]) -> Finding | None:
    """Find a constant that the run's declared format cannot represent, if its rounded value explains the recording.

    Args:
        facts: A compared tensor whose nodes do not reproduce the backend's recorded values.
        place: Sample and step.

    Returns:
        A difference, or None if there is no such constant or no evidence that it matters.
    """
    short = declared_format(facts.backend)
    if short is None or facts.entry.quant is not None or facts.entry.whole:
        return None
    try:
        recorded = real_values(facts.backend, facts.entry.tensor, place)
        plain = _off(facts, place, {}, recorded, short)
        for found in _candidates(facts, short):
            off = _off(facts, place, {(found.node.name, found.name): found.held}, recorded, short)
            enough = SUBSTITUTE_REPLAY_MAX_ERROR_RATIO * plain if math.isfinite(plain) else math.inf
            if off <= min(enough, segment_share(short.unit) * finite_norm(recorded)):
                return Finding(
                    kind=FindingKind.PRECISION,
                    role=FindingRole.DIFFERENCE,
                    node=found.node.name,
                    sentence=found.sentence(short),
                    amount=float(found.count),
                    limit=0.0,
                    unit="elements",
                    evidence=found.name,
                )
    except (KernelError, NotRecordedError):
        return None
    return None


def _candidates(facts: TensorFacts, short: ShortFormat) -> Iterator[_Unheld]:
    """Yield the values that constants may become: clamped, infinite or zero."""
    backend = facts.backend
    for node in facts.segment.own:
        arrays = {
            name: backend.load(name)
            for name in dict.fromkeys(node.inputs)
            if name and backend.graph.is_constant(name) and backend.has(name)
        }
        stated = {name: node.attrs.get(name) for name in _EPSILONS}
        numbers = {name: np.float64(value) for name, value in stated.items() if isinstance(value, float)}
        for name, values in (*arrays.items(), *numbers.items()):
            array = np.asarray(values)
            if array.dtype.kind != "f":
                continue
            wide = array.astype(np.float64)
            size = np.abs(wide)
            overflows = (size >= short.beyond) if name in arrays else np.zeros(size.shape, bool)
            gone = (size > 0) & (size <= short.vanishing)
            lost = overflows | gone
            if not lost.any():
                continue
            first = tuple(each[0] for each in np.nonzero(lost)) if lost.ndim else ()
            for end in (short.largest, math.inf) if overflows.any() else (0.0,):
                held = np.where(overflows, np.copysign(end, wide), np.where(gone, 0.0, wide))
                yield _Unheld(
                    node=node,
                    name=name,
                    held=held.astype(array.dtype),
                    count=int(lost.sum()),
                    real=float(wide[first]),
                    given=float(held[first]),
                )


def _off(
    facts: TensorFacts,
    place: tuple[int, int],
    instead: Mapping[tuple[str, str], np.ndarray],
    recorded: np.ndarray,
    short: ShortFormat,
) -> float:
    """Return the error norm of the backend's nodes, replayed on its inputs; infinite or NaN if it is not finite.

    Args:
        facts: The tensor.
        place: Sample and step.
        instead: Replacements for recorded constants and attributes, by node and name.
        recorded: The backend's values.
        short: The format that the results are rounded to.
    """
    made: dict[str, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for node in facts.segment.own:
            form, opset = real_form(node, facts.backend.graph.opset)
            numbers = {
                name: float(array) for (at, name), array in instead.items() if at == node.name and not array.ndim
            }
            form = replace(form, attrs={**form.attrs, **{n: v for n, v in numbers.items() if n in form.attrs}})
            values: dict[str, np.ndarray] = {}
            for name in filter(None, form.inputs):
                known = instead.get((node.name, name), made.get(name))
                values[name] = real_values(facts.backend, name, place) if known is None else known
            for name, array in run_node(form, values, opset).items():
                made[name] = short.rounded(array.astype(np.float32)) if array.dtype.kind == "f" else array
    given = made[facts.entry.tensor]
    shown = in_reference_order(recorded, None, given.shape)
    return norm(difference(shown, given)) if shown.shape == given.shape else math.inf
