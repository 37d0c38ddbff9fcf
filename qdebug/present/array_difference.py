"""The difference between two arrays as lines of an assertion message: finite values, NaN, infinities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsInt

import numpy as np

from qdebug.model import QuantParams
from qdebug.numerics.affine import dequantize
from qdebug.numerics.blocks import RealBlocks, make_comparable
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
    real_backend = backend
    if quant is not None:
        _, codes = make_comparable(RealBlocks(reference), RealBlocks(backend, quant))
        real_backend = dequantize(backend, quant, double=not codes.single)
    plain_reference, plain_backend = _to_computable(reference), _to_computable(real_backend)
    finite = np.isfinite(plain_reference) & np.isfinite(plain_backend)
    equal = (plain_reference == plain_backend) | (np.isnan(plain_reference) & np.isnan(plain_backend))
    difference_count = int((finite & ~equal).sum())
    lines = [
        f"finite   {_count_text(difference_count, finite.size)} differ",
        _nonfinite_text("NaN", np.isnan(plain_reference), np.isnan(plain_backend), equal),
        _nonfinite_text("Inf", np.isinf(plain_reference), np.isinf(plain_backend), equal),
    ]
    if difference_count:
        # A NaN would hide the largest difference, so make both sides equal where one of them is not finite.
        reference_values, backend_values = plain_reference, plain_backend if quant is None else backend
        if not finite.all():
            reference_values = np.where(finite, plain_reference, plain_backend if quant is not None else 0)
            backend_values = backend if quant is not None else np.where(finite, plain_backend, 0)
        (worst,) = worst_elements(reference_values, backend_values, backend_quant=quant, k=1)
        lines += _largest_difference_lines(reference, real_backend, worst)
    elif not equal.all():
        index = np.unravel_index(int(np.argmin(equal)), equal.shape)
        lines.append(
            f"first    at {_index_text(index)}: reference {_exact_text(reference[index])}, "
            f"backend {_exact_text(real_backend[index])}"
        )
    overall_metrics = (("SQNR", stats.sqnr_db, " dB"), ("rel L2", stats.rel_l2, ""), ("mean abs", stats.mean_abs, ""))
    lines.append(
        "overall  " + ", ".join(f"{label} {numbers.number(value)}{unit}" for label, value, unit in overall_metrics)
    )
    return lines


def _to_computable(values: np.ndarray) -> np.ndarray:
    """Return values in a type that numpy computes with. Short float types become float32."""
    return values if values.dtype.kind in "biuf" else values.astype(np.float32)


def _count_text(count: int, total: int) -> str:
    share = f" ({numbers.percent(count, total)})" if count else ""
    return f"{numbers.grouped(count)} of {numbers.grouped(total)} elements{share}"


def _nonfinite_text(kind: str, in_reference: np.ndarray, in_backend: np.ndarray, equal: np.ndarray) -> str:
    """Count the NaNs or infinities on one side only, and those on both. Infinities of opposite sign differ."""
    common = in_reference & in_backend
    text = (
        f"{kind}      {numbers.grouped(int((in_reference & ~in_backend).sum()))} in the reference only, "
        f"{numbers.grouped(int((in_backend & ~in_reference).sum()))} in the backend only"
    )
    opposed_count, agreed_count = int((common & ~equal).sum()), int((common & equal).sum())
    text += f", {numbers.grouped(opposed_count)} of opposite sign" if opposed_count else ""
    return text + (f"; {numbers.grouped(agreed_count)} agree" if agreed_count else "")


def _largest_difference_lines(reference: np.ndarray, backend: np.ndarray, worst: WorstElement) -> list[str]:
    """Describe the element with the largest finite difference: both values, and their distance in each unit."""
    reference_value, backend_value = reference[worst.index], backend[worst.index]
    distance = [f"difference {numbers.number(worst.difference, digits=4)}"]
    if worst.lsb is not None:
        distance.append(f"{numbers.number(worst.lsb, digits=4)} LSB (code {worst.backend_code})")
    unit = shared_type(reference.dtype, backend.dtype)
    if unit is not None and worst.lsb is None:
        ulp = ulp_distance(np.array([reference_value]).astype(unit), np.array([backend_value]).astype(unit))
        distance.append(f"{numbers.grouped(int(ulp[0]))} ULP of {unit.name}")
    value_texts = _exact_text(reference_value), _exact_text(backend_value)
    if value_texts[0] == value_texts[1]:  # for example 1.1 as float32 and as float64, which differ
        value_texts = _exact_text(float(reference_value)), _exact_text(float(backend_value))
    return [
        f"largest  at {_index_text(worst.index)}: reference {value_texts[0]}, backend {value_texts[1]}",
        f"         {', '.join(distance)}",
    ]


def _exact_text(value: object) -> str:
    """Return a number with as many digits as needed to distinguish it from its neighbours."""
    return safe_text(value, limit=40)


def _index_text(index: Sequence[SupportsInt]) -> str:
    return f"({', '.join(str(int(at)) for at in index)})"
