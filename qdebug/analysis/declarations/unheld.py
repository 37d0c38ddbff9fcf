"""Finds constants that the backend's format cannot hold: what overflows to infinity or underflows to zero in it.

Such a constant may change its own node by next to nothing and still be why a later one gives infinity: the logarithm of
a signal that was kept off zero by something that is zero now.
"""

from __future__ import annotations

import numpy as np

from qdebug.analysis.alignment.ops import PRODUCTS
from qdebug.analysis.attribution.band import unit_roundoff
from qdebug.model import Node, Recording
from qdebug.model.dtypes import is_float, logical_name
from qdebug.replay.real_form import real_form

__all__ = ["unheld"]


def unheld(reference: Recording, backend: Recording, theirs: Node, ours: Node) -> str | None:
    """Say which constant of a backend node lost elements to the range of its format.

    A weight's element counts only if it is not lost in the rounding of the sum anyway.

    Args:
        reference: The reference run.
        backend: The backend run.
        theirs: The reference's node.
        ours: The backend's node that answers to it.

    Returns:
        A clause, or None if there is no such constant.
    """
    form, _ = real_form(ours, backend.graph.opset)
    for slot, (other, name) in enumerate(zip(theirs.inputs, form.inputs, strict=False)):
        if not (_held(backend, name) and _held(reference, other)):
            continue
        mine, real = backend.load(name), reference.load(other)
        floats = is_float(logical_name(mine.dtype)) and is_float(logical_name(real.dtype))
        if not floats or mine.dtype == real.dtype or mine.shape != real.shape:
            continue  # in the same format nothing is lost to it
        noise = unit_roundoff(mine.dtype) if slot == 1 and form.op in PRODUCTS else 0.0
        said = _lost(name, mine.astype(np.float64), real.astype(np.float64), noise)
        if said:
            return f"{said} in {logical_name(mine.dtype)}"
    return None


def _held(recording: Recording, name: str) -> bool:
    """Tell whether a name is that of a recorded constant that is not made of codes."""
    known = bool(name) and recording.graph.is_constant(name) and recording.has(name)
    return known and recording.graph.tensors[name].quant is None


def _lost(name: str, mine: np.ndarray, real: np.ndarray, noise: float) -> str | None:
    largest = float(np.max(np.abs(real), initial=0, where=np.isfinite(real)))
    over = np.isinf(mine) & np.isfinite(real)
    under = (mine == 0) & (np.abs(real) > noise * largest)
    for lost, does in ((over, "overflow{} to infinity"), (under, "underflow{} to zero")):
        count = int(lost.sum())
        if count and lost.size == 1:
            return f"its constant {name!r} of {real.reshape(-1)[0]:g} {does.format('s')}"
        if count:
            return f"{count} of {lost.size} elements of its constant {name!r} {does.format('s' * (count == 1))}"
    return None
