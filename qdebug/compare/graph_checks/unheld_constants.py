"""Finds constants that a run's compute format cannot represent, if their converted values explain the recording."""

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

__all__ = ["find_constant_outside_format"]

_EPSILONS = ("epsilon", "eps")
"""Attributes that keep a division or a root away from zero."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ConstantOutsideFormat:
    """A constant with its values after conversion to a format that cannot represent all of them.

    Args:
        node: The backend node that reads it.
        name: The name of the constant or attribute.
        values: The converted values.
        count: Number of elements that overflow or become zero.
        real: The first of these elements.
        stored: Its converted value.
    """

    node: Node
    name: str
    values: np.ndarray
    count: int
    real: float
    stored: float

    def sentence(self, short_format: ShortFormat) -> str:
        """Return a sentence about these elements and their converted values."""
        is_overflow = abs(self.real) > short_format.largest
        end = f"beyond {short_format.largest:.6g}, the largest {short_format.name} value"
        if not is_overflow:
            end = f"below {short_format.subnormal:.3g}, the smallest {short_format.name} value"
        kind = "attribute" if self.name in self.node.attrs else "constant"
        constant_text = f"{kind} {self.name!r} of {self.node.op} {self.node.name!r}"
        if self.values.size > 1:
            are, first = ("is", "") if self.count == 1 else ("are", "the first is ")
            count_text = f"{self.count} of {self.values.size} elements of {constant_text} {are} {end}"
            return f"{count_text}: {first}{self.real:.6g}, which becomes {self.stored:.6g}"
        return f"{constant_text} is {self.real:.6g}, {end}, and becomes {self.stored:.6g}"


def find_constant_outside_format(facts: TensorFacts, place: tuple[int, int]) -> Finding | None:
    """Find a constant that the run's declared format cannot represent, if its rounded value explains the recording.

    Args:
        facts: A compared tensor whose nodes do not reproduce the backend's recorded values.
        place: Sample and step.

    Returns:
        A difference, or None if there is no such constant or no evidence that it matters.
    """
    short_format = declared_format(facts.backend)
    if short_format is None or facts.entry.quant is not None or facts.entry.whole:
        return None
    try:
        recorded_values = real_values(facts.backend, facts.entry.tensor, place)
        plain_error = _error_with_replacements(facts, place, {}, recorded_values, short_format)
        for candidate in _list_candidates(facts, short_format):
            error = _error_with_replacements(
                facts, place, {(candidate.node.name, candidate.name): candidate.values}, recorded_values, short_format
            )
            error_limit = SUBSTITUTE_REPLAY_MAX_ERROR_RATIO * plain_error if math.isfinite(plain_error) else math.inf
            if error <= min(error_limit, segment_share(short_format.unit) * finite_norm(recorded_values)):
                return Finding(
                    kind=FindingKind.PRECISION,
                    role=FindingRole.DIFFERENCE,
                    node=candidate.node.name,
                    sentence=candidate.sentence(short_format),
                    amount=float(candidate.count),
                    limit=0.0,
                    unit="elements",
                    evidence=candidate.name,
                )
    except (KernelError, NotRecordedError):
        return None
    return None


def _list_candidates(facts: TensorFacts, short_format: ShortFormat) -> Iterator[_ConstantOutsideFormat]:
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
            numbers_in_float64 = array.astype(np.float64)
            size = np.abs(numbers_in_float64)
            overflows = (size >= short_format.beyond) if name in arrays else np.zeros(size.shape, bool)
            is_vanishing = (size > 0) & (size <= short_format.vanishing)
            is_lost = overflows | is_vanishing
            if not is_lost.any():
                continue
            first = tuple(coordinates[0] for coordinates in np.nonzero(is_lost)) if is_lost.ndim else ()
            for end in (short_format.largest, math.inf) if overflows.any() else (0.0,):
                replacement = np.where(
                    overflows, np.copysign(end, numbers_in_float64), np.where(is_vanishing, 0.0, numbers_in_float64)
                )
                yield _ConstantOutsideFormat(
                    node=node,
                    name=name,
                    values=replacement.astype(array.dtype),
                    count=int(is_lost.sum()),
                    real=float(numbers_in_float64[first]),
                    stored=float(replacement[first]),
                )


def _error_with_replacements(
    facts: TensorFacts,
    place: tuple[int, int],
    replacements: Mapping[tuple[str, str], np.ndarray],
    recorded_values: np.ndarray,
    short_format: ShortFormat,
) -> float:
    """Return the error norm of the backend's nodes, replayed on its inputs; infinite or NaN if it is not finite.

    Args:
        facts: The tensor.
        place: Sample and step.
        replacements: Replacements for recorded constants and attributes, by node and name.
        recorded_values: The backend's values.
        short_format: The format that the results are rounded to.
    """
    computed: dict[str, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for node in facts.segment.own:
            form, opset = real_form(node, facts.backend.graph.opset)
            numbers = {
                name: float(array) for (at, name), array in replacements.items() if at == node.name and not array.ndim
            }
            form = replace(form, attrs={**form.attrs, **{n: v for n, v in numbers.items() if n in form.attrs}})
            values: dict[str, np.ndarray] = {}
            for name in filter(None, form.inputs):
                substitute = replacements.get((node.name, name), computed.get(name))
                values[name] = real_values(facts.backend, name, place) if substitute is None else substitute
            for name, array in run_node(form, values, opset).items():
                computed[name] = short_format.rounded(array.astype(np.float32)) if array.dtype.kind == "f" else array
    result = computed[facts.entry.tensor]
    shown_values = in_reference_order(recorded_values, None, result.shape)
    return norm(difference(shown_values, result)) if shown_values.shape == result.shape else math.inf
