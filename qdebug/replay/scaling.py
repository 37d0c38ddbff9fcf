"""The real multiplier of a requantization in each order that backends compute it, and the integers in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import ml_dtypes
import numpy as np

from qdebug.numerics.fixedpoint import (
    glow_parameters,
    mantissa_multiplier,
    power_of_two,
    quantize_multiplier,
    shift_right,
)
from qdebug.replay.registry import Call
from qdebug.replay.unit import Unit

__all__ = ["Fixed", "Scales", "fixed", "float_multiplier", "real_multiplier", "scales_of", "spread", "sum_scale"]


def spread(values: np.ndarray, shape: tuple[int, ...], axis: int, block: int = 0) -> np.ndarray:
    """Shape scales or zero points so that they broadcast to a tensor.

    Args:
        values: One value, one per element along `axis`, or one per block.
        shape: The tensor's shape.
        axis: Axis the values go along.
        block: Elements along `axis` that share a value; 0 unless block-wise.
    """
    if values.ndim == 0:
        return values
    if block:
        return np.repeat(values, block, axis=axis)[tuple(slice(0, n) for n in shape)]
    if values.size == 1:
        return values.reshape(())
    line = [1] * len(shape)
    line[axis] = values.size
    return values.reshape(line)


_ONE = np.ones((), np.float32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scales:
    """What a multiplier is made of; each broadcasts to the output.

    Args:
        x: Scale of the first operand.
        w: Scale of the second; 1 without.
        y: Scale of the output.
        n: Elements that an average is over; 1 without.
    """

    x: np.ndarray
    w: np.ndarray
    y: np.ndarray
    n: np.ndarray

    def single(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Give all four in float32."""
        return tuple(a.astype(np.float32) for a in (self.x, self.w, self.y, self.n))  # type: ignore[return-value]

    def double(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Give all four in float64."""
        return tuple(a.astype(np.float64) for a in (self.x, self.w, self.y, self.n))  # type: ignore[return-value]


def scales_of(unit: Unit, count: np.ndarray | None = None, member: np.ndarray | None = None) -> Scales:
    """Give the scales of a unit so that they broadcast to its output, channels first.

    Args:
        unit: The unit.
        count: Elements that each average is over.
        member: Which operand each element comes from, where tensors are joined.
    """
    own = [operand.scale for operand in unit.operands]
    n = _ONE if count is None else np.asarray(count)
    if member is not None:
        x = np.stack([scale.reshape(()) for scale in own])[member]
        return Scales(x=x, w=_ONE, y=unit.out.scale, n=n)
    x = own[0] if own else _ONE
    w = own[1] if unit.kind in ("conv", "linear", "mul", "add", "sub", "div") else _ONE
    if unit.kind == "conv" and w.size > 1:
        groups = Call(inputs=(), attrs=unit.attrs).integer("group", 1) if unit.transposed else 1
        w = np.tile(w.reshape(-1), groups).reshape(-1, *(1,) * (unit.operands[0].codes.ndim - 2))
    return Scales(x=x, w=w, y=unit.out.scale, n=n)


def _double(form: Callable[..., np.ndarray]) -> Callable[[Scales], np.ndarray]:
    return lambda s: form(*s.double())


def _single(form: Callable[..., np.ndarray]) -> Callable[[Scales], np.ndarray]:
    return lambda s: np.asarray(form(*s.single()), dtype=np.float32)


def _product_single(s: Scales) -> np.ndarray:
    x, w, _, _ = s.single()
    return np.asarray(np.asarray(x * w, np.float32).astype(np.float64) / s.y.astype(np.float64) / s.n)


_FORMULAS: Mapping[str, Callable[[Scales], np.ndarray]] = MappingProxyType(
    {
        "xw/y": _single(lambda x, w, y, n: x * w / y / n),
        "x*(w/y)": _single(lambda x, w, y, n: x * (w / y) / n),
        "(x/y)*w": _single(lambda x, w, y, n: x / y * w / n),
        "xw*(1/y)": _single(lambda x, w, y, n: x * w * (1 / y) / n),
        "d:xw/y": _double(lambda x, w, y, n: x * w / y / n),
        "d:f(xw)/y": _product_single,
        "x/(y*n)": _single(lambda x, w, y, n: x * w / (y * n)),
        "x/n/y": _single(lambda x, w, y, n: x * w / n / y),
    }
)


def real_multiplier(scales: Scales, expression: str) -> np.ndarray:
    """Compute x w / (y n) in a given order.

    Returns:
        float32, or float64 for the expressions that begin with `d:`; broadcasts to the output.
    """
    return _FORMULAS[expression](scales)


def float_multiplier(real: np.ndarray, number: str) -> np.ndarray:
    """Give a real multiplier as the floating-point number that it is kept as.

    Args:
        real: What `real_multiplier` gives.
        number: One of `NUMBERS` that is a floating-point number.

    Returns:
        float64 if that is the number, else float32, which holds the narrower ones exactly.
    """
    kept = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}.get(number)
    wide = np.float64 if number == "f64" else np.float32
    return np.asarray(real.astype(wide) if kept is None else real.astype(kept).astype(wide))


def sum_scale(scales: Scales) -> np.ndarray:
    """Give the scale of integer sums, the product x w, rounded to float32."""
    x, w, _, _ = scales.single()
    return np.asarray(x * w, dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fixed:
    """An integer multiplier: real ~ multiplier * 2**-(pre + bits - exponent).

    Args:
        multiplier: The integers; each array broadcasts to the output.
        bits: Bits of the fraction.
        exponent: Power of two that goes with it.
        pre: Bits to shift right by before the product.
    """

    multiplier: np.ndarray
    bits: int
    exponent: np.ndarray
    pre: np.ndarray


def fixed(real: np.ndarray, number: str) -> Fixed:
    """Give the integers that stand for a real multiplier.

    Args:
        real: Finite numbers above 0.
        number: One of `NUMBERS` that is no floating-point number.

    Raises:
        UsageError: A multiplier is not finite, or not above 0 where that is needed.
    """
    none = np.zeros(real.shape, np.int64)
    if number == "glow":
        pre, post, multiplier = glow_parameters(real)
        return Fixed(multiplier=multiplier, bits=0, exponent=-post, pre=pre)
    if number == "pow2":
        return Fixed(multiplier=none + 1, bits=0, exponent=power_of_two(real), pre=none)
    if number == "p8":
        whole = np.rint(real.astype(np.float64) * 256).astype(np.int64)
        return Fixed(multiplier=whole, bits=8, exponent=none, pre=none)
    if number.startswith("m"):
        multiplier, exponent = mantissa_multiplier(real)
        if number == "m15":
            upper = np.minimum(shift_right(multiplier, 9, "up"), 2**15 - 1)
            return Fixed(multiplier=upper, bits=15, exponent=none, pre=-exponent)
        wide = number == "m24s7"
        return Fixed(
            multiplier=multiplier << 7 if wide else multiplier, bits=31 if wide else 24, exponent=exponent, pre=none
        )
    rounding = {"t": "trunc", "e": "even"}.get(number[-1], "away")
    bits = int(number[1:].rstrip("te"))
    multiplier, exponent = quantize_multiplier(real, bits=bits, rounding=rounding)
    return Fixed(multiplier=multiplier, bits=bits, exponent=exponent, pre=none)
