"""Where NaN and infinities come from: the node in which they first appear, and divisors that were rounded to 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.birth import Birth
from qdebug.compare.attribute.birth_search import find_birth
from qdebug.compare.evidence.measured_tensor import MeasuredTensor
from qdebug.compare.evidence.runs import Runs
from qdebug.errors import NotRecordedError
from qdebug.model import Node, operators
from qdebug.replay.real_form import real_form

__all__ = ["DivisorZeros", "birth", "divisor_zeros"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DivisorZeros:
    """The zeros of a divisor.

    Args:
        tensor: The divisor.
        count: How many of its elements are 0.
        in_reference: How many elements of the reference's divisor are 0.
        total: Number of its elements.
    """

    tensor: str
    count: int
    in_reference: int
    total: int


def birth(measured: MeasuredTensor) -> Birth | None:
    """Return where a non-finite value first appears, or None if the node's inputs explain it or it is unknown."""
    if measured.node is None or measured.stats is None or not measured.stats.nonfinite:
        return None
    replays = measured._runs.graphs.replays
    return next(filter(None, (find_birth(replays, measured.entry.tensor, place) for place in measured._places)), None)


def divisor_zeros(measured: MeasuredTensor) -> DivisorZeros | None:
    """Count the zeros of a node's divisor, or return None if it has none or its reference partner is unknown."""
    runs, node = measured._runs, measured.node
    name, reference_name = ("", "") if node is None else _divisors(runs, node, measured._main_node)
    if not name or not reference_name:
        return None
    count, in_reference, total = 0, 0, 0
    for place in measured._places:
        try:
            values = real_values(runs.backend, name, place)
            reference_values = real_values(runs.reference, reference_name, place)
        except NotRecordedError:
            continue
        count += int(np.count_nonzero(values == 0))
        in_reference += int(np.count_nonzero(reference_values == 0))
        total += values.size
    return DivisorZeros(tensor=name, count=count, in_reference=in_reference, total=total)


def _divisors(runs: Runs, node: Node, reference_node: Node | None) -> tuple[str, str]:
    """Return a node's divisor and its reference partner, or empty names if there is none."""
    slot = operators.plain(node).divisor
    form, _ = real_form(node, runs.backend.graph.opset)
    if slot is None or slot >= len(form.inputs):
        return "", ""
    name, backend = form.inputs[slot], runs.graphs.replays.be
    pair = next((runs.pairs[member] for member in (name, *backend.members(name)) if member in runs.pairs), None)
    if pair is not None:
        return name if runs.backend.has(name) else pair.backend, pair.reference
    inputs = () if reference_node is None else real_form(reference_node, runs.reference.graph.opset)[0].inputs
    return name, inputs[slot] if slot < len(inputs) and backend.folds(name) else ""
