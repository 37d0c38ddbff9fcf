"""Probes of operators that have no form on codes: in QDQ form, which only a backend that fuses computes on codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from qdebug.model import AttrValue
from qdebug.workflow.probe_net import SEED, NetBuilder, ProbeModel, quant_of_codes

__all__ = ["changes_of_scale", "grouped", "means", "resizes"]

_REAL = np.dtype(np.float32)
# Scales of input and output and their zero points, counted from the middle code.
_CHANGES: tuple[tuple[float, float, int, int], ...] = (
    (2.0**-5, 2.0**-4, 3, -5),
    (2.0**-4, 2.0**-3, -3, 4),
    (0.0213742, 0.0187321, 5, -7),
    (0.0123457, 0.0271828, -9, 11),
    (0.0314159, 0.0205173, 7, 3),
)
_MEANS = (
    (2.0**-5, 2.0**-6, 5, 7),
    (2.0**-4, 2.0**-6, -7, -6),
    (0.02315, 0.004153, -3, 5),
    (0.0137, 0.0011, 3, -4),
)
# Over so many elements, with half the scale, ties are ties only to exact arithmetic.
_TIES, _ODD_COUNTS = (2.0**-3, 2.0**-2, 3, 5), (5, 7, 11)
_SIZES = ((23, 37), (7, 9), (32, 48))
_FAR = 1000.0
_PLACINGS = ("asymmetric", "align_corners", "half_pixel")

Side = tuple[np.ndarray, float, int]
"""Codes, their scale and their zero point."""


def grouped(
    made: NetBuilder,
    op: str,
    sides: Sequence[Side],
    out: tuple[float, int],
    *,
    others: Sequence[str] = (),
    **attrs: AttrValue,
) -> None:
    """Add an operator between DequantizeLinear and QuantizeLinear.

    Args:
        made: The net.
        op: The operator.
        sides: What it reads, each as an input of its own.
        out: Scale and zero point of what it gives.
        others: Inputs that follow and are no codes.
        **attrs: Attributes of the operator.
    """
    dtype = sides[0][0].dtype
    reals = []
    for codes, scale, zero in sides:
        fed = made.fed(codes, quant_of_codes(codes, scale, zero))
        reals.append(made.node("DequantizeLinear", (fed, *made.pair(scale, zero, dtype)), _REAL))
    real = made.node(op, (*reals, *others), _REAL, **attrs)  # type: ignore[arg-type]  # none is named quant or domain
    quant = quant_of_codes(sides[0][0], *out)
    made.node("QuantizeLinear", (real, *made.pair(*out, dtype)), dtype, quant=quant)


def _types() -> tuple[tuple[np.dtype, int], ...]:
    """Give the types that are probed, each with its middle code."""
    return (np.dtype(np.uint8), 128), (np.dtype(np.int8), 0)


def _drawn(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def changes_of_scale() -> Iterator[ProbeModel]:
    """Bring every code to another scale, with a Clip that lets all through, and a Relu that lets half of them."""
    for dtype, middle in _types():
        made = NetBuilder("requantize", f"requantize {dtype.name}")
        info = np.iinfo(dtype)
        every = np.arange(info.min, info.max + 1).astype(dtype).reshape(1, 256)
        for in_scale, out_scale, in_zero, out_zero in _CHANGES:
            given, out = [(every, in_scale, middle + in_zero)], (out_scale, middle + out_zero)
            bounds = [made.stored(np.asarray(end, np.float32)) for end in (-_FAR, _FAR)]
            grouped(made, "Clip", given, out, others=bounds)
            grouped(made, "Relu", given, out)
        yield made.model()


def means() -> Iterator[ProbeModel]:
    """Average over the last axis and over planes."""
    rng = np.random.default_rng(SEED)
    for dtype, middle in _types():
        made = NetBuilder("reduce_mean", f"reduce_mean {dtype.name}")
        plain = (((16, 16, 41), (-1,)), ((64, 40, 9, 7), (2, 3)))
        cases = [(case, shape, axes) for case in _MEANS for shape, axes in plain]
        cases += [(_TIES, (64, 64, count), (-1,)) for count in _ODD_COUNTS]
        for (in_scale, out_scale, in_zero, out_zero), shape, axes in cases:
            given = _drawn(rng, dtype, shape), in_scale, middle + in_zero
            grouped(made, "ReduceMean", [given], (out_scale, middle + out_zero), axes=axes)
        yield made.model()


def resizes() -> Iterator[ProbeModel]:
    """Interpolate linearly between codes, at one scale, with channels first and last."""
    rng = np.random.default_rng(SEED)
    for (dtype, middle), last in product(_types(), (False, True)):
        made = NetBuilder("resize", f"resize{' channels last' * last} {dtype.name}")
        for placing in _PLACINGS:
            for size in _SIZES:
                shape, sized = ((1, 16, 16, 8), (1, *size, 8)) if last else ((1, 8, 16, 16), (1, 8, *size))
                codes, same = _drawn(rng, dtype, shape), (0.05, middle + 3)
                sizes = made.stored(np.array(sized, np.int64))
                grouped(
                    made, "Resize", [(codes, *same)], same,
                    others=("", "", sizes), mode="linear", coordinate_transformation_mode=placing,
                )  # fmt: skip
        yield made.model()
