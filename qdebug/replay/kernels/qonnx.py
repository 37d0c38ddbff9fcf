"""QONNX quantizers, from the domains of the qonnx package and of FINN.

Source: the package qonnx 1.0.0 (qonnx/custom_op/general). All return dequantized real numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from qdebug.replay.blockwise import elementwise
from qdebug.replay.precision import narrow, widen
from qdebug.replay.registry import Call, kernel

__all__: list[str] = []

_DOMAINS = ("qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")
_ROUNDINGS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType(
    {
        "ROUND": np.round,
        "HALF_EVEN": np.round,
        "CEIL": np.ceil,
        "FLOOR": np.floor,
        "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
        "DOWN": np.fix,
        "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + x.dtype.type(0.5)),
        "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - x.dtype.type(0.5)),
    }
)
_LAYOUTS = MappingProxyType({2: "NC", 3: "NWC", 4: "NCHW"})
"""Data layout of a MultiThreshold that does not state one, by number of dimensions."""


def _rounding(call: Call, default: str) -> Callable[[np.ndarray], np.ndarray]:
    name = call.text("rounding_mode", default).upper()
    if name not in _ROUNDINGS:
        raise ValueError(f"rounding_mode {name!r} is not supported")
    return _ROUNDINGS[name]


def _limits(call: Call, bits: np.ndarray, *, is_narrow: bool) -> tuple[np.float32, np.float32]:
    """Return the lowest and the highest code for the given number of bits."""
    width = float(bits.reshape(()))
    if call.integer("signed", 1):
        half = 2.0 ** (width - 1)
        return np.float32(-half + is_narrow), np.float32(half - 1)
    return np.float32(0), np.float32(2.0**width - 1 - is_narrow)


def _quant(call: Call) -> np.ndarray:
    """Compute (round(clip(x / scale + zero)) - zero) * scale."""
    rounding, bits = _rounding(call, "ROUND"), call.array(3)
    low, high = _limits(call, bits, is_narrow=bool(call.integer("narrow", 1)))
    bipolar = float(bits.reshape(())) == 1 and bool(call.integer("signed", 1))

    def rounded(part: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
        codes = np.asarray(widen(part) / scale + zero)
        codes = np.where(codes >= 0, np.float32(1), np.float32(-1)) if bipolar else rounding(np.clip(codes, low, high))
        return np.asarray((codes - zero) * scale, np.float32)

    return elementwise(rounded, call.array(0), call.array(1), call.array(2))


def _bipolar(call: Call) -> np.ndarray:
    """Return scale where x is at least 0, and -scale elsewhere."""
    return elementwise(
        lambda part, scale: narrow(np.where(part >= 0, widen(scale), -widen(scale)), part.dtype),
        call.array(0),
        call.array(1),
    )


def _trunc(call: Call) -> np.ndarray:
    """Drop the low bits of codes. With six inputs, rescale and clip the codes; otherwise their scale is unchanged."""
    rounding, newer = _rounding(call, "FLOOR"), call.optional(5) is not None
    x, scale, zero = (widen(call.array(position)) for position in range(3))
    codes = np.round(x / scale + zero)
    if not newer:
        factor = np.float32(2.0) ** (widen(call.array(3)) - widen(call.array(4)))
        return narrow((rounding(np.asarray(codes / factor)) - zero) * scale, call.array(0).dtype)
    out = widen(call.array(4))
    factor = 2 ** np.round(np.log2(out / scale))
    low, high = _limits(call, call.array(5), is_narrow=bool(call.integer("narrow")))
    truncated = rounding(np.clip(codes / factor, low, high))
    return narrow((truncated - zero / factor) * out, call.array(0).dtype)


def _multi_threshold(call: Call) -> np.ndarray:
    """Count the channel's thresholds that each element reaches, then scale and shift."""
    x, thresholds = call.array(0), call.array(1)
    layout = call.text("data_layout") or _LAYOUTS.get(x.ndim, "")
    axis = layout.index("C") if "C" in layout else 1
    if thresholds.ndim != 2 or thresholds.shape[0] not in (1, x.shape[axis]):
        raise ValueError(f"thresholds of shape {list(thresholds.shape)} do not fit {x.shape[axis]} channels")
    channels_last = np.moveaxis(x, axis, -1)
    counts = np.zeros(channels_last.shape, np.float32)
    for threshold in np.sort(thresholds, axis=1).T:  # one at a time: all at once may be far larger than the result
        counts += channels_last >= threshold
    scaled = np.float32(call.real("out_scale", 1.0)) * np.moveaxis(counts, -1, axis)
    return narrow(scaled + np.float32(call.real("out_bias", 0.0)), x.dtype)


for _domain in _DOMAINS:
    kernel("Quant", "IntQuant", domain=_domain, kinds=("f", "f", "f", "fiu"))(_quant)
    kernel("BipolarQuant", domain=_domain, kinds=("f", "f"))(_bipolar)
    kernel("Trunc", domain=_domain, kinds=("f",) * 6)(_trunc)
    kernel("MultiThreshold", domain=_domain, ranks=(2, 2), kinds=("iuf", "iuf"))(_multi_threshold)
