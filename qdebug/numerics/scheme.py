"""Schemes: compute scale and zero point from a range of real values, with the code ranges and rules of various tools.

The formulas were taken from the source of the tools: Glow's `chooseQuantizationParams`
(lib/Quantization/Base/Base.cpp), TVM Relay's `_set_params` and `_power2_scale` (relay/quantize/_calibrate.py) and ONNX
Runtime's `compute_scale_zp` (python/tools/quantization/quant_utils.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

import numpy as np

from qdebug.errors import UsageError
from qdebug.model.json_object import JsonObject, SchemaPart
from qdebug.model.quant import QuantParams
from qdebug.numerics.fixedpoint import round_values

__all__ = ["BITS", "RULES", "SCHEMES", "QuantScheme", "fitted_scale"]

SCHEMES: Mapping[str, str] = MappingProxyType(
    {
        "asymmetric": "the range of the values, widened to contain 0; any zero point",
        "symmetric": "the smallest scale that reaches both ends with the zero point in the middle",
        "symmetric_uint8": "zero point qmin if no value is negative, else symmetric",
        "power_of_two": "symmetric, and the scale rounded up to a power of two",
    }
)
"""Schemes by name, with a description."""

BITS = (4, 8, 16)
"""Sizes of codes in bits."""

_EPSILON = float(np.finfo(np.float32).eps)
_TINY = float(np.finfo(np.float32).tiny)
_LARGEST = float(np.finfo(np.float32).max)
_GLOW_ZERO_SCALE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantScheme(JsonObject):
    """How scale and zero point are computed from a range.

    Args:
        kind: One of `SCHEMES`.
        bits: Size of a code, one of `BITS`.
        signed: Whether codes are signed.
        narrow: Whether the lowest code is left out, which makes the codes symmetric: -127..127, 1..255.
        rule: One of `RULES`: the tool whose arithmetic is reproduced bit for bit.

    Raises:
        UsageError: The scheme, the size or the rule does not exist, or the rule does not support the scheme.
    """

    json_keys = "kind bits narrow rule"

    kind: Annotated[str, SchemaPart(enum=[*SCHEMES])] = "asymmetric"
    bits: Annotated[int, SchemaPart(enum=[*BITS])] = 8
    signed: bool = True
    narrow: bool = False
    rule: str = "qdebug"

    def __post_init__(self) -> None:
        if self.kind not in SCHEMES:
            raise UsageError(f"Unknown scheme {self.kind!r}.", hint=f"Choose one of {', '.join(SCHEMES)}.")
        if self.bits not in BITS:
            raise UsageError(f"Codes must have {', '.join(map(str, BITS))} bits, not {self.bits}.")
        if self.rule not in RULES:
            raise UsageError(f"Unknown rule {self.rule!r}.", hint=f"Choose one of {', '.join(RULES)}.")
        kinds = RULES[self.rule].schemes
        if self.kind not in kinds:
            raise UsageError(f"The rule {self.rule!r} has no scheme {self.kind!r}.", hint=f"It has {', '.join(kinds)}.")

    @property
    def dtype(self) -> str:
        """Logical dtype of the codes."""
        return f"{'' if self.signed else 'u'}int{self.bits}"

    @property
    def qmin(self) -> int:
        """Lowest code in use."""
        narrow = self.narrow or RULES[self.rule].narrow
        return (-(1 << (self.bits - 1)) if self.signed else 0) + narrow

    @property
    def qmax(self) -> int:
        """Highest code in use."""
        return (1 << (self.bits - self.signed)) - 1

    @property
    def levels(self) -> int:
        """Number of codes."""
        return self.qmax - self.qmin + 1

    @property
    def middle(self) -> int:
        """The zero point of symmetric codes."""
        return 0 if self.signed else 1 << (self.bits - 1)

    def has_one_threshold(self, low: float) -> bool:
        """Return whether a range is cut at the same magnitude on both sides.

        Args:
            low: The smallest value. If it is not negative, there is only one side.
        """
        if self.kind == "asymmetric":
            return False
        return self.kind != "symmetric_uint8" or low < 0.0

    def parameters(self, low: float, high: float) -> QuantParams:
        """Return scale and zero point for a range of real values.

        Args:
            low: Lower end of the range, finite.
            high: Upper end of the range, finite, not below `low`.

        Returns:
            Parameters with one positive float32 scale, and a zero point within the codes.

        Raises:
            UsageError: The range is invalid.
        """
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise UsageError(f"No scale can represent a range from {low} to {high}.")
        scale, zero_point = RULES[self.rule].choose(self, min(float(low), 0.0), max(float(high), 0.0))
        return QuantParams(
            dtype=self.dtype,
            scale=np.array(scale, np.float32),
            zero_point=np.array(zero_point),
            qmin=self.qmin,
            qmax=self.qmax,
        )

    def stacked(self, ranges: Sequence[tuple[float, float]], axis: int, block: _Block | None = None) -> QuantParams:
        """Return scales and zero points for several ranges: for the channels along an axis, or for blocks.

        Args:
            ranges: Lower and upper end of each range.
            axis: The axis.
            block: Elements along the axis that share a scale, and the shape of the scale tensor; None for channels.

        Raises:
            UsageError: A range is invalid.
        """
        chosen = [self.parameters(low, high) for low, high in ranges]
        scale = np.array([parameters.scale[0] for parameters in chosen], np.float32)
        zero_point = np.array([parameters.zero_point[0] for parameters in chosen], np.int64)
        size = None
        if block is not None:
            size, shape = block
            scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
        return QuantParams(
            dtype=self.dtype,
            scale=scale,
            zero_point=zero_point,
            axis=axis,
            block_size=size,
            qmin=self.qmin,
            qmax=self.qmax,
        )


_Block = tuple[int, tuple[int, ...]]

_Choice = tuple[float, int]
"""A scale and a zero point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    choose: Callable[[QuantScheme, float, float], _Choice]
    schemes: tuple[str, ...]
    summary: str
    narrow: bool = False


def fitted_scale(scheme: QuantScheme, low: float, high: float) -> float:
    """Return the least scale with which the codes reach both ends of a range from the middle.

    Args:
        scheme: The scheme of the codes.
        low: Lower end, at most 0.
        high: Upper end, at least 0.
    """
    return max(low / (scheme.qmin - scheme.middle), high / (scheme.qmax - scheme.middle))


def _choose_by_default(scheme: QuantScheme, low: float, high: float) -> _Choice:
    """Choose asymmetric parameters like ONNX Runtime, symmetric ones like Glow (narrow int8 like ONNX Runtime)."""
    if scheme.kind == "asymmetric":
        return _choose_asymmetric(scheme, low, high)
    if scheme.kind == "symmetric_uint8" and low >= 0.0:
        scale = high / (scheme.qmax - scheme.qmin)
        return (scale, scheme.qmin) if scale >= _TINY else (1.0, scheme.qmin)
    scale = fitted_scale(scheme, low, high)
    if scale < _TINY:
        return 1.0, scheme.middle
    if scheme.kind == "power_of_two":
        scale = math.ldexp(1.0, _ceil_log2(scale))
    return scale, scheme.middle


def _ceil_log2(value: float) -> int:
    """Return the exponent of the least power of two not below a positive value; exact, unlike ceil(log2)."""
    mantissa, exponent = math.frexp(value)
    return exponent - (mantissa == 0.5)


def _choose_asymmetric(scheme: QuantScheme, low: float, high: float) -> _Choice:
    scale = (high - low) / (scheme.qmax - scheme.qmin)
    if scale < _TINY:
        return 1.0, min(max(0, scheme.qmin), scheme.qmax)
    zero_point = round(scheme.qmin - low / scale)
    return scale, min(max(zero_point, scheme.qmin), scheme.qmax)


def _choose_like_onnxruntime(scheme: QuantScheme, low: float, high: float) -> _Choice:
    if scheme.kind == "asymmetric":
        return _choose_asymmetric(scheme, low, high)
    largest = max(-low, high)
    scale = 2.0 * largest / (scheme.qmax - scheme.qmin)
    if scale < _TINY:
        return 1.0, 0
    return scale, round((scheme.qmin + scheme.qmax) / 2.0)


def _choose_like_glow(scheme: QuantScheme, low: float, high: float) -> _Choice:
    """Choose like Glow: ends and scale in float32, intermediate values in float64, zero point with ties away from 0."""
    low, high = float(np.float32(low)), float(np.float32(high))
    qmin, qmax = scheme.qmin, scheme.qmax
    if scheme.kind != "asymmetric" and (scheme.kind != "symmetric_uint8" or low < 0.0):
        from_low, from_high = low / qmin, high / qmax
        if from_low > from_high:
            high = float(np.float32(from_low * qmax))
        else:
            low = float(np.float32(from_high * qmin))
    low, high = max(low, -_LARGEST), min(high, _LARGEST)
    scale = (high - low) / (qmax - qmin) or _GLOW_ZERO_SCALE
    from_low, from_high = qmin - low / scale, qmax - high / scale
    error_low, error_high = abs(qmin) + abs(low / scale), abs(qmax) + abs(high / scale)
    first = from_low if error_low < error_high else from_high
    if abs(float(np.float32(high + low))) <= _EPSILON:
        first = 0.0
    zero_point = int(round_values(np.float64(min(max(first, qmin), qmax)).reshape(1), "away")[0])
    if scheme.kind == "power_of_two":
        scale = math.ldexp(1.0, _ceil_log2(float(np.float32(scale))))
    return scale, zero_point


def _choose_like_tvm(scheme: QuantScheme, low: float, high: float) -> _Choice:
    """Choose like TVM Relay: the largest magnitude, optionally rounded up to a power of two, over 2**(bits - 1)."""
    largest = max(-low, high)
    if scheme.kind == "power_of_two":
        largest = math.ldexp(1.0, _ceil_log2(largest)) if largest > 0.0 else 1.0
    scale = largest / (1 << (scheme.bits - scheme.signed))
    return scale if scale >= _TINY else 1.0, 0


RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        "qdebug": _Rule(
            choose=_choose_by_default, schemes=tuple(SCHEMES), summary="the smallest scale that covers the range"
        ),
        "onnxruntime": _Rule(
            choose=_choose_like_onnxruntime,
            schemes=("asymmetric", "symmetric"),
            summary="compute_scale_zp; symmetric: 2 * largest / (qmax - qmin), zero point round((qmin + qmax) / 2)",
        ),
        "glow": _Rule(
            choose=_choose_like_glow,
            schemes=tuple(SCHEMES),
            summary="chooseQuantizationParams; a scale of 0 becomes 0.1",
        ),
        "tvm": _Rule(
            choose=_choose_like_tvm,
            schemes=("symmetric", "power_of_two"),
            summary="largest / 2**(bits - 1) with codes -127..127; power_of_two rounds the range up, not the scale",
            narrow=True,
        ),
    }
)
"""Rules by the name of the tool whose arithmetic they reproduce."""
