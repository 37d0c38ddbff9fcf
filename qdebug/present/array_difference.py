"""The difference between two arrays, as lines for the message of a failed assertion: NaN, infinities, finite values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsInt

import numpy as np

from qdebug.model import QuantParams
from qdebug.numerics.affine import dequantize
from qdebug.numerics.blocks import RealBlocks, settled
from qdebug.numerics.lsb import shared_type, ulp_distance
from qdebug.numerics.stats import ErrorStats, WorstElement
from qdebug.numerics.worst import worst_elements
from qdebug.present import numbers
from qdebug.present.text import safe_text

__all__ = ["array_difference"]


def array_difference(
    reference: np.ndarray, backend: np.ndarray, *, stats: ErrorStats, quant: QuantParams | None = None
) -> list[str]:
    """Return the differences between two arrays of the same shape, one fact per line.

    Args:
        reference: Real values of the reference.
        backend: Real values of the backend, or codes if `quant` is given.
        stats: The error of the backend.
        quant: Quantization of the backend.
    """
    ours = backend
    if quant is not None:
        _, codes = settled(RealBlocks(reference), RealBlocks(backend, quant))
        ours = dequantize(backend, quant, double=not codes.single)
    theirs, plain = _computable(reference), _computable(ours)
    finite = np.isfinite(theirs) & np.isfinite(plain)
    equal = (theirs == plain) | (np.isnan(theirs) & np.isnan(plain))
    different = int((finite & ~equal).sum())
    lines = [
        f"finite   {_of(different, finite.size)} differ",
        _nonfinite("NaN", np.isnan(theirs), np.isnan(plain), equal),
        _nonfinite("Inf", np.isinf(theirs), np.isinf(plain), equal),
    ]
    if different:
        # A NaN has no distance and must not hide the largest one: what is not finite is taken out on both sides.
        shown, other = theirs, plain if quant is None else backend
        if not finite.all():
            shown = np.where(finite, theirs, plain if quant is not None else 0)
            other = backend if quant is not None else np.where(finite, plain, 0)
        (worst,) = worst_elements(shown, other, backend_quant=quant, k=1)
        lines += _largest(reference, ours, worst)
    elif not equal.all():
        index = np.unravel_index(int(np.argmin(equal)), equal.shape)
        lines.append(
            f"first    at {_index(index)}: reference {_exact(reference[index])}, backend {_exact(ours[index])}"
        )
    known = (("SQNR", stats.sqnr_db, " dB"), ("rel L2", stats.rel_l2, ""), ("mean abs", stats.mean_abs, ""))
    lines.append("overall  " + ", ".join(f"{label} {numbers.number(value)}{unit}" for label, value, unit in known))
    return lines


def _computable(values: np.ndarray) -> np.ndarray:
    """Return values in a type that NumPy computes with. Smaller float types become float32."""
    return values if values.dtype.kind in "biuf" else values.astype(np.float32)


def _of(many: int, total: int) -> str:
    share = f" ({numbers.percent(many, total)})" if many else ""
    return f"{numbers.grouped(many)} of {numbers.grouped(total)} elements{share}"


def _nonfinite(what: str, theirs: np.ndarray, ours: np.ndarray, equal: np.ndarray) -> str:
    """Return how many such values are on one side only and how many match. Infinities of opposite sign differ."""
    common = theirs & ours
    text = (
        f"{what}      {numbers.grouped(int((theirs & ~ours).sum()))} in the reference only, "
        f"{numbers.grouped(int((ours & ~theirs).sum()))} in the backend only"
    )
    opposed, agreed = int((common & ~equal).sum()), int((common & equal).sum())
    text += f", {numbers.grouped(opposed)} of opposite sign" if opposed else ""
    return text + (f"; {numbers.grouped(agreed)} agree" if agreed else "")


def _largest(reference: np.ndarray, ours: np.ndarray, worst: WorstElement) -> list[str]:
    """Describe the element with the largest finite difference, with both values and the distance in every measure."""
    theirs, value = reference[worst.index], ours[worst.index]
    distance = [f"difference {numbers.number(worst.difference, digits=4)}"]
    if worst.lsb is not None:
        distance.append(f"{numbers.number(worst.lsb, digits=4)} LSB (code {worst.backend_code})")
    unit = shared_type(reference.dtype, ours.dtype)
    if unit is not None and worst.lsb is None:
        ulp = ulp_distance(np.array([theirs]).astype(unit), np.array([value]).astype(unit))
        distance.append(f"{numbers.grouped(int(ulp[0]))} ULP of {unit.name}")
    shown = _exact(theirs), _exact(value)
    if shown[0] == shown[1]:  # 1.1 as float32 and as float64 are different numbers
        shown = _exact(float(theirs)), _exact(float(value))
    return [
        f"largest  at {_index(worst.index)}: reference {shown[0]}, backend {shown[1]}",
        f"         {', '.join(distance)}",
    ]


def _exact(value: object) -> str:
    """Return a number with as many digits as needed to distinguish it from its neighbours."""
    return safe_text(value, limit=40)


def _index(index: Sequence[SupportsInt]) -> str:
    return f"({', '.join(str(int(at)) for at in index)})"
