"""Finds constants that the backend's format cannot hold: what overflows to infinity or underflows to zero in it.

Such a constant may change its own node by next to nothing and still be why a later one gives infinity: the logarithm of
a signal that was kept off zero by something that is zero now.
"""

from __future__ import annotations

import numpy as np

from qdebug.analysis.attribution.band import unit_roundoff
from qdebug.analysis.results.finding import Finding, FindingKind, Role
from qdebug.model import Node, Recording, operators
from qdebug.model.dtypes import is_float, logical_name
from qdebug.replay.real_form import real_form

__all__ = ["unheld"]


def unheld(reference: Recording, backend: Recording, theirs: Node, ours: Node) -> Finding | None:
    """Find a constant of a backend node that lost elements to the range of its format.

    A weight's element counts only if it is not lost in the rounding of the sum anyway.

    Args:
        reference: The reference run.
        backend: The backend run.
        theirs: The reference's node.
        ours: The backend's node that answers to it.

    Returns:
        A difference, or None if there is no such constant.
    """
    form, _ = real_form(ours, backend.graph.opset)
    for slot, (other, name) in enumerate(zip(theirs.inputs, form.inputs, strict=False)):
        if not (_held(backend, name) and _held(reference, other)):
            continue
        mine, real = backend.load(name), reference.load(other)
        floats = is_float(logical_name(mine.dtype)) and is_float(logical_name(real.dtype))
        if not floats or mine.dtype == real.dtype or mine.shape != real.shape:
            continue  # in the same format nothing is lost to it
        noise = unit_roundoff(mine.dtype) if slot == 1 and operators.of(form.op).product else 0.0
        lost = _lost(name, mine.astype(np.float64), real.astype(np.float64), noise)
        if lost is not None:
            return Finding(
                kind=FindingKind.PRECISION,
                role=Role.DIFFERENCE,
                node=ours.name,
                sentence=f"{lost[1]} in {logical_name(mine.dtype)}",
                amount=float(lost[0]),
                limit=0.0,
                unit="elements",
                evidence=name,
            )
    return None


def _held(recording: Recording, name: str) -> bool:
    """Tell whether a name is that of a recorded constant that is not made of codes."""
    known = bool(name) and recording.graph.is_constant(name) and recording.has(name)
    return known and recording.graph.tensors[name].quant is None


def _lost(name: str, mine: np.ndarray, real: np.ndarray, noise: float) -> tuple[int, str] | None:
    """Return how many elements are lost, and a clause; None if none is."""
    largest = float(np.max(np.abs(real), initial=0, where=np.isfinite(real)))
    over = np.isinf(mine) & np.isfinite(real)
    under = (mine == 0) & (np.abs(real) > noise * largest)
    for lost, does in ((over, "overflow{} to infinity"), (under, "underflow{} to zero")):
        count = int(lost.sum())
        if count and lost.size == 1:
            return count, f"its constant {name!r} of {real.reshape(-1)[0]:g} {does.format('s')}"
        if count:
            return count, f"{count} of {lost.size} elements of its constant {name!r} {does.format('s' * (count == 1))}"
    return None
