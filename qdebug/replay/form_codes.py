"""Forms for functions of a single code: the first value of a program depends on that code alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from qdebug.model import Node, operators
from qdebug.replay.columns import Columns, Operation, Start, compose_operations, convert_to
from qdebug.replay.precision import fused_multiply_add, integer_limits
from qdebug.replay.registry import Call, find_kernel, has_kernel
from qdebug.replay.scaling import Scales, scales_of
from qdebug.replay.steps import compile_steps, plan_program
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant

__all__ = ["apply_function", "apply_slope", "hyperbolic_tangent", "logistic", "look_up_real", "requantize_by_sign"]

_ONE = np.ones((), np.float32)
_NUMERATOR = (
    4.37031012579801e-11,
    1.15627324459942e-07,
    6.08574864600143e-05,
    8.51377133304701e-03,
    2.48287947061529e-01,
)
_DENOMINATOR = (
    6.10247389755681e-13, 5.76102136993427e-09, 6.29106785017040e-06,
    1.70198817374094e-03, 1.16817656904453e-01, 9.93151921023180e-01,
)  # fmt: skip
_LOGISTIC_END = np.float32(18)
_TANH_NUMERATOR = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
_TANH_DENOMINATOR = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
_TANH_END = np.float32(9)


def apply_function(unit: Unit, real: np.ndarray) -> np.ndarray:
    """Apply a lookup's function to real values, in their own precision.

    Raises:
        NoKernelError: The function is unknown.
    """
    domain = unit.domain if has_kernel(unit.function, unit.domain) else ""
    kernel = find_kernel(Node(name=unit.op, op=unit.function, domain=domain))
    result = kernel(Call(inputs=(real,), attrs=unit.attrs, opset=unit.opset, op=unit.function))
    return np.asarray(result[0] if isinstance(result, tuple) else result)


def logistic(real: np.ndarray) -> np.ndarray:
    """Compute the sigmoid as ONNX Runtime does: a quotient of polynomials with fused multiply-adds.

    The coefficients are Eigen's (onnxruntime/core/mlas/lib/logistic.cpp).
    """
    quotient = _polynomial_quotient(real, _LOGISTIC_END, _NUMERATOR, _DENOMINATOR)
    return np.asarray(np.clip(quotient + np.float32(0.5), np.float32(0), _ONE))


def hyperbolic_tangent(real: np.ndarray) -> np.ndarray:
    """Compute tanh as ONNX Runtime does, like `logistic` (onnxruntime/core/mlas/lib/tanh.cpp)."""
    return _polynomial_quotient(real, _TANH_END, _TANH_NUMERATOR, _TANH_DENOMINATOR)


def _polynomial_quotient(
    real: np.ndarray, end: np.float32, numerator: tuple[float, ...], denominator: tuple[float, ...]
) -> np.ndarray:
    value = np.fmin(np.fmax(real.astype(np.float32), -end), end)
    square = value * value
    numerator_value, denominator_value = (
        _evaluate_polynomial(square, coefficients) for coefficients in (numerator, denominator)
    )
    return np.asarray(numerator_value * value / denominator_value)


def _evaluate_polynomial(square: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    total = np.full_like(square, coefficients[0])
    for coefficient in coefficients[1:]:
        total = fused_multiply_add(total, square, np.asarray(np.float32(coefficient)))
    return total


def look_up_real(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Apply a function to the real value of each code.

    The form `stepped` computes the real values as Glow does: it starts at the lowest code and repeatedly adds the scale
    in float32 (lib/Graph/Nodes and createMapping in lib/Quantization/Base/Base.cpp).
    """
    del columns
    if unit.kind != "lookup":
        raise ValueError("a table needs one operand and one function")
    approximated = variant.form == "mlas" and "mlas" in operators.of(unit.function).forms
    double = variant.multiplier.number == "f64" and variant.form == "table"
    dtype = np.float64 if double else np.float32
    operand = unit.operands[0]
    if variant.form == "stepped" and (operand.scale.size != 1 or operand.codes.dtype.itemsize > 2):
        raise ValueError("repeated addition of the scale needs a single scale and codes of at most 16 bits")
    scale, zero = operand.scale.astype(dtype), operand.zero_point.astype(dtype)
    lowest, highest = integer_limits(operand.codes.dtype)

    def apply(numbers: Any, out: Any, factor: np.ndarray, offset: np.ndarray) -> np.ndarray:
        del out
        if variant.form == "stepped":
            first = (np.float32(lowest) - np.float32(offset.reshape(-1)[0])) * np.float32(factor.reshape(-1)[0])
            steps = np.full(highest - lowest + 1, factor.reshape(-1)[0], np.float32)
            steps[0] = first
            real = np.add.accumulate(steps)[numbers[0].astype(np.int64) - lowest]
        elif variant.form == "table-fma":
            real = fused_multiply_add(
                numbers[0].astype(np.float32), factor, np.asarray(-offset * factor, dtype=np.float32)
            )
        else:
            real = (numbers[0].astype(dtype) - offset) * factor
        value = logistic(real) if approximated else apply_function(unit, np.asarray(real, dtype=dtype))
        return np.asarray(value, dtype=dtype)

    operation = Operation(apply=apply, parameters=(scale, zero))
    return Start(operation=operation, dtype=dtype, scales=scales_of(unit))


def requantize_by_sign(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Requantize each centered code by the program `operand`, with one multiplier per sign."""
    if "leaky" not in operators.of(unit.function).forms:
        raise ValueError("only LeakyRelu takes two multipliers")
    alpha = np.asarray(np.float32(Call(inputs=(), attrs=unit.attrs).real("alpha", 0.01)))
    return _run_by_sign(unit, columns, variant, alpha)


def apply_slope(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Requantize centered codes by the program `operand`; negative codes are first multiplied by their centered slope.

    Source: TensorFlow Lite (kernels/internal/reference/prelu.h).
    """
    if unit.kind != "prelu":
        raise ValueError("only PRelu has slopes in codes")
    return _run_by_sign(unit, columns, variant, unit.operands[1].scale)


def _run_by_sign(unit: Unit, columns: Columns, variant: Variant, slope: np.ndarray) -> Start:
    """Run the operand program with one multiplier per sign. The one for negative codes includes the slope's scale."""
    dtype = variant.multiplier.dtype
    runs, parameters = [], [operand.zero_point.astype(np.int64) for operand in unit.operands]
    for tag, factor in (("above", _ONE), ("below", slope)):
        scales = Scales(x=unit.operands[0].scale, w=factor, y=unit.out.scale, n=_ONE)
        start = Start(operation=convert_to(dtype), dtype=dtype, scales=scales)
        program = plan_program(variant.operand, variant.multiplier, whole=dtype is np.int64, operand=tag)
        steps = compile_steps(unit, start, program, columns.memo)
        runs.append((compose_operations(steps), sum(len(step.parameters) for step in steps)))
        parameters += [parameter for step in steps for parameter in step.parameters]

    def apply(numbers: Any, out: Any, *arguments: np.ndarray) -> np.ndarray:
        del out
        centred = [codes.astype(np.int64) - zero for codes, zero in zip(numbers, arguments, strict=False)]
        (above, count), (below, _) = runs
        other_parameters = arguments[len(numbers) :]
        high, low = above((centred[0].astype(dtype),), other_parameters[:count]), math.prod(centred).astype(dtype)
        return np.where(centred[0] >= 0, high, below((low,), other_parameters[count:]))

    return Start(operation=Operation(apply=apply, parameters=tuple(parameters)), dtype=dtype, scales=scales_of(unit))
