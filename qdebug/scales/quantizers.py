"""Chosen scales as settings of quantizers.

Sources: `TensorQuantOverrides` of onnxruntime.quantization (docs of `quantize_static`); AIMET, encodings of version
0.6.1; ai-edge-quantizer, `load_calibration_results` in calibration_utils.py. NNCF takes no scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qdebug.model import QuantParams
from qdebug.numerics.encodings import aimet_encodings

__all__ = ["quantizer_settings"]


def quantizer_settings(
    activations: Mapping[str, QuantParams], weights: Mapping[str, QuantParams]
) -> dict[str, dict[str, Any]]:
    """Return scales as settings of quantizers. Scales of blocks, which these formats cannot express, are left out.

    Args:
        activations: The parameters of each activation, by its name in the reference.
        weights: The parameters of each weight, by its name in the reference.
    """
    plain_weights = {name: quant for name, quant in weights.items() if not quant.block_size}
    overrides = {name: _overrides(quant) for name, quant in {**activations, **plain_weights}.items()}
    return {
        "onnxruntime": {"TensorQuantOverrides": overrides},
        "aimet": {
            "version": "0.6.1",
            "activation_encodings": {name: aimet_encodings(quant) for name, quant in activations.items()},
            "param_encodings": {name: aimet_encodings(quant) for name, quant in plain_weights.items()},
        },
        "ai-edge-quantizer": {
            "model_qsvs": {name: _real_range(quant) for name, quant in activations.items()},
            "metadata": {},
        },
    }


def _overrides(quant: QuantParams) -> list[dict[str, Any]]:
    """Return the overrides of a tensor: one, or one per channel with the axis."""
    quant_type = f"{'QUInt' if quant.dtype.startswith('u') else 'QInt'}{quant.dtype.rpartition('int')[2]}"
    axis = {} if quant.axis is None else {"axis": quant.axis}
    return [
        {"quant_type": quant_type, "scale": float(scale), "zero_point": int(zero_point), **axis}
        for scale, zero_point in zip(quant.scale.ravel(), quant.zero_point.ravel(), strict=True)
    ]


def _real_range(quant: QuantParams) -> dict[str, list[float]]:
    """Return the real values of the lowest and the highest code."""
    scale, zero_point = float(quant.scale.ravel()[0]), int(quant.zero_point.ravel()[0])
    low, high = (scale * (code - zero_point) for code in (quant.qmin or 0, quant.qmax or 0))
    return {"min": [low], "max": [high]}
