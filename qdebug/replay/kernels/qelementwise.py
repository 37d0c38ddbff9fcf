"""Quantized operators of ONNX Runtime (domain com.microsoft) that need no products over channels: by their unit."""

from __future__ import annotations

import numpy as np

from qdebug.replay.evaluate import compute
from qdebug.replay.registry import Call, kernel
from qdebug.replay.unit_calls import unit_of_call

__all__: list[str] = []

_OPERATORS = (
    "QLinearAdd",
    "QLinearMul",
    "QLinearAveragePool",
    "QLinearGlobalAveragePool",
    "QLinearReduceMean",
    "QLinearSigmoid",
    "QLinearLeakyRelu",
    "QLinearConcat",
    "QLinearWhere",
    "QLinearSoftmax",
)


@kernel(*_OPERATORS, domain="com.microsoft")
def _by_unit(call: Call) -> np.ndarray:
    """Compute the operator's unit by the variant that the arithmetic has for it."""
    unit = unit_of_call(call)
    if unit is None:
        raise ValueError("the operands make no quantized unit")
    return compute(unit, call.arithmetic.variant(unit))
