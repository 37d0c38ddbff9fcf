"""The arithmetic of a unit as plain numpy statements, for a file that runs without this package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from textwrap import indent

import numpy as np

from qdebug.replay.given import whole_of
from qdebug.replay.registry import Call
from qdebug.replay.scaling import Fixed, float_multiplier, real_multiplier, scales_of, sum_scale
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Step, Variant
from qdebug.replay.windows import window_of
from qdebug.report.repro_arrays import ArrayPool, plain_dtype

__all__ = ["HELPERS", "reference_code"]

_ROUNDED = {
    "even": "np.rint(v)",
    "floor": "np.floor(v)",
    "trunc": "np.trunc(v)",
    "plus": "np.floor(v + v.dtype.type(0.5))",
    "away": "np.copysign(np.floor(np.abs(v)) + (np.abs(v) - np.floor(np.abs(v)) >= 0.5), v)",
    "up": "np.floor(v) + (v - np.floor(v) >= 0.5)",
    "down": "np.ceil(v) - (np.ceil(v) - v >= 0.5)",
}

_QUOTIENT = "input scale * weight scale / output scale"

HELPERS = '''
def shifted(v, bits, rounding):
    """Divide integers by 2**bits and round to the nearest; of two, as the rounding says."""
    half = (np.int64(1) << bits) >> 1
    return {
        "up": lambda: (v + half) >> bits,
        "down": lambda: (v + np.maximum(half - 1, 0)) >> bits,
        "away": lambda: np.sign(v) * ((np.abs(v) + half) >> bits),
        "even": lambda: (v + np.maximum(half - 1, 0) + ((v >> bits) & (bits > 0))) >> bits,
        "floor": lambda: v >> bits,
        "trunc": lambda: np.sign(v) * (np.abs(v) >> bits),
    }[rounding]()

'''
"""Functions that statements of integer programs call."""

_REFERENCE = '''
def reference():
    """Give the codes that the node should give."""
'''

_CONV = '''
def sums():
    """Give the exact sums of products, per output channel and position, in int64."""
    x = np.pad(X.astype(np.float64) - X_ZERO, ((0, 0), (0, 0), *PADS))
    w = W.astype(np.float64) - W_ZERO
    axes = tuple(range(2, x.ndim))
    reach = tuple((k - 1) * d + 1 for k, d in zip(w.shape[2:], DILATIONS))
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, axis=axes)
    windows = windows[(slice(None), slice(None), *(slice(None, None, s) for s in STRIDES))]
    windows = windows[(..., *(slice(None, None, d) for d in DILATIONS))]
    taps = (1, *range(x.ndim, 2 * x.ndim - 2))
    parts = []
    for g in range(GROUPS):
        own = windows[:, g * w.shape[1] : (g + 1) * w.shape[1]]
        filters = w[g * w.shape[0] // GROUPS : (g + 1) * w.shape[0] // GROUPS]
        parts.append(np.moveaxis(np.tensordot(own, filters, (taps, tuple(range(1, w.ndim)))), -1, 1))
    return np.concatenate(parts, axis=1).astype(np.int64) + BIAS
'''

_LINEAR = '''
def sums():
    """Give the exact sums of products in int64."""
    return np.matmul(X.astype(np.float64) - X_ZERO, W.astype(np.float64) - W_ZERO).astype(np.int64) + BIAS
'''

_PRODUCT = '''
def sums():
    """Give the products of the codes without their zero points."""
    return (X.astype(np.int64) - X_ZERO) * (W.astype(np.int64) - W_ZERO)
'''


def reference_code(unit: Unit, variant: Variant, pool: ArrayPool) -> str | None:
    """Give statements that define `reference()`, which gives the unit's output in its node's own layout.

    Args:
        unit: The unit.
        variant: How it is computed.
        pool: Where the arrays go.

    Returns:
        The text; None if no plain form is known of this unit and variant.
    """
    sums = _sums(unit, variant, pool)
    if sums is None:
        return None
    steps = list(_steps(unit, variant, pool))
    if any(line is None for line in steps):
        return None
    lines = [line for line in steps if line is not None]
    turned = "np.moveaxis(v, 1, -1)" if unit.channels_last else "v"
    body = "\n".join([*lines, f"return {turned}"])
    helpers = HELPERS if any("shifted(" in line for line in lines) else ""
    return f"{sums}\n{helpers}\n{_REFERENCE}{indent(body, '    ')}\n"


def _sums(unit: Unit, variant: Variant, pool: ArrayPool) -> str | None:
    if variant.form != "sum" or variant.accumulate not in ("wrap32", "exact") or len(unit.operands) != 2:
        return None
    if unit.kind not in ("conv", "linear", "mul") or unit.transposed or unit.condition is not None:
        return None
    if unit.bias is not None and (
        unit.bias.dtype.kind not in "iu" or unit.bias_scale is not None or variant.bias != "int32"
    ):
        return None
    x, w = unit.operands
    lines = [f"X = {pool.text(x.codes)}", f"X_ZERO = {pool.text(x.zero_point)}"]
    lines += [f"W = {pool.text(w.codes)}", f"W_ZERO = {pool.text(w.zero_point)}"]
    lines = [line if "_ZERO" not in line else f"{line}.astype(np.int64)" for line in lines]
    if unit.kind == "mul":
        return "\n".join(lines) + "\n\n" + _PRODUCT
    bias = unit.bias
    if bias is not None and unit.kind == "conv":
        bias = bias.reshape(-1, *(1,) * (x.codes.ndim - 2))
    lines.append("BIAS = 0" if bias is None else f"BIAS = {pool.text(bias)}.astype(np.int64)")
    if unit.kind == "linear":
        return "\n".join(lines) + "\n\n" + _LINEAR
    call = Call(inputs=(), attrs=unit.attrs, opset=unit.opset, op=unit.op)
    window = window_of(call, x.codes.shape[2:], w.codes.shape[2:])
    lines += [
        f"PADS = {tuple(zip(window.begin, window.end, strict=True))}",
        f"STRIDES, DILATIONS, GROUPS = {window.strides}, {window.dilations}, {unit.attrs.get('group', 1)}",
    ]
    return "\n".join(lines) + "\n\n" + _CONV


def _steps(unit: Unit, variant: Variant, pool: ArrayPool) -> Iterator[str | None]:
    """Give one statement for each step; None where none is known."""
    yield "v = sums()" + ("" if variant.accumulate == "exact" else ".astype(np.int32).astype(np.int64)  # as 32 bits")
    number = variant.multiplier.number
    if variant.multiplier.real:
        yield f"v = v.astype(np.{'float64' if number == 'f64' else 'float32'})"
        for step in variant.requantize:
            yield _real_step(unit, variant, step, pool)
        return
    whole = whole_of(unit, scales_of(unit), variant.multiplier)
    ops = [step.op for step in variant.requantize]
    for step in variant.requantize:
        yield _integer_step(unit, step, whole, ops, pool)


def _real_step(unit: Unit, variant: Variant, step: Step, pool: ArrayPool) -> str | None:
    scales = scales_of(unit)
    number, expression = variant.multiplier.number, variant.multiplier.expression
    dtype = np.float64 if number == "f64" else np.float32
    single = scales.y.astype(np.float32)
    factors: Mapping[str, tuple[str, Callable[[], np.ndarray], str]] = {
        "mul": ("*", lambda: float_multiplier(real_multiplier(scales, expression), number), _QUOTIENT),
        "scale": ("*", lambda: sum_scale(scales), "input scale * weight scale"),
        "div": ("/", lambda: single, "output scale"),
        "inv": ("*", lambda: np.asarray(1 / single), "1 / output scale"),
        "zp": ("+", lambda: unit.out.zero_point, "zero point"),
    }
    if step.op in factors:
        sign, values, words = factors[step.op]
        return f"v = v {sign} {pool.text(np.asarray(values()).astype(dtype))}  # {words}"
    if step.op == "round":
        return f"v = {_ROUNDED[step.rounding]}"
    return _ending(unit, step)


def _integer_step(unit: Unit, step: Step, whole: Fixed, ops: list[str], pool: ArrayPool) -> str | None:
    left = np.maximum(whole.exponent, 0) if "shl" in ops else np.zeros_like(whole.exponent)
    rest = left - whole.exponent + (0 if "mulhi" in ops else whole.bits)
    if step.op == "mul":
        return f"v = v * {pool.text(whole.multiplier)}"
    if step.op == "shl":
        return f"v = np.clip(v << {pool.text(left)}, -(2**31), 2**31 - 1)"
    if step.op == "mulhi":
        return f'v = shifted(v * {pool.text(whole.multiplier)}, {whole.bits}, "{step.rounding}")'
    if step.op == "pre":
        return f'v = shifted(v, {pool.text(whole.pre)}, "{step.rounding}")'
    if step.op == "shr":
        fits = step.rounding != "tosa" and int(rest.min(initial=0)) >= 0 and int(rest.max(initial=0)) <= 62
        return f'v = shifted(v, {pool.text(rest)}, "{step.rounding}")' if fits else None
    if step.op == "zp":
        return f"v = v + {pool.text(unit.out.zero_point.astype(np.int64))}"
    return _ending(unit, step)


def _ending(unit: Unit, step: Step) -> str | None:
    dtype = plain_dtype(unit.out.dtype).name
    low, high = unit.out.limits
    if step.op == "sat":
        least, most = unit.out.clamp or (low, high)
        return f"v = np.clip(v, {max(low, least)}, {min(high, most)}).astype(np.{dtype})"
    if step.op == "sat16":
        return "v = np.clip(v, -(2**15), 2**15 - 1)"
    if step.op == "wrap32":
        return "v = v.astype(np.int32).astype(np.int64)"
    return f"v = v.astype(np.int64).astype(np.{dtype})" if step.op == "wrap" else None
