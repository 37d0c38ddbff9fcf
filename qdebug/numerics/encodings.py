"""Quantization parameters in the form of AIMET's files of encodings, version 0.6.1."""

from __future__ import annotations

from typing import Any

from qdebug.model.dtypes import bit_width
from qdebug.model.quant import QuantParams

__all__ = ["aimet_encodings"]


def aimet_encodings(quant: QuantParams) -> list[dict[str, Any]]:
    """Return one encoding per channel. AIMET's offset is the lowest code minus the zero point."""
    bits = bit_width(quant.dtype)
    lowest_code = 0 if quant.dtype.startswith("u") else -(1 << (bits - 1))
    return [
        {
            "bitwidth": bits,
            "dtype": "int",
            "is_symmetric": str(quant.axis is not None),
            "scale": float(scale),
            "offset": lowest_code - int(zero),
            "min": float(scale) * (lowest_code - int(zero)),
            "max": float(scale) * (lowest_code + (1 << bits) - 1 - int(zero)),
        }
        for scale, zero in zip(quant.scale.ravel(), quant.zero_point.ravel(), strict=True)
    ]
