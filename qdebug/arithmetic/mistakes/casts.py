"""Known mistakes of casts: numbers out of range, other roundings, and truth values. Begin at `cast_mistakes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake, always
from qdebug.model import Node, operators
from qdebug.numerics.float_rounding import FLOAT_ROUNDINGS, round_float
from qdebug.numerics.short_formats import SHORT_FORMATS
from qdebug.replay.precision import onnx_dtype

__all__ = ["cast_mistakes"]


def cast_mistakes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistakes that a kernel could make in a cast.

    Args:
        node: The node's real form.
        values: Its inputs.
    """
    if operators.of(node.op).casts:
        yield from _overflowing_casts(node, values)
        yield from _wrong_casts(node, values)
        yield from _wrong_powers_of_two(node, values)
        yield from _truth_values(node, values)
        yield from _saturating_floats(node, values)


def _truth_values(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield casts to bool by another rule than that every number but 0 is true."""
    data, target = values.get(node.inputs[0]) if node.inputs else None, node.attrs.get("to")
    if data is None or data.dtype.kind not in "fiu" or not isinstance(target, int) or onnx_dtype(target) != np.bool_:
        return
    with np.errstate(all="ignore"):
        whole = np.nan_to_num(np.trunc(data.astype(np.float64)))
    rules = {
        "1 alone is true, not every number but 0": data == 1,
        "positive numbers alone are true, not every number but 0": data > 0,
        "numbers that round to 0 are false": np.rint(data.astype(np.float64)) != 0,
        "numbers are truncated to integers first": whole != 0,
        "the lowest bit decides, not whether the number is 0": np.mod(whole, 2) == 1,
        "the lowest 8 bits decide, not whether the number is 0": np.mod(whole, 2.0**8) != 0,
        "the result is inverted": data == 0,
    }
    for likely, result in rules.items():
        yield Mistake(likely=likely, node=node, values={}, after=always(result), about=_TRUTH)


_TRUTH = "truth values"


def _saturating_floats(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield casts to a short float format in which numbers beyond its range become its largest number."""
    data, target = values.get(node.inputs[0]) if node.inputs else None, node.attrs.get("to")
    if data is None or data.dtype.kind not in "fiu" or not isinstance(target, int):
        return
    dtype = onnx_dtype(target)
    short_format = next((each for each in SHORT_FORMATS if each.name == dtype.name), None)
    if short_format is None or not np.any(np.abs(data.astype(np.float64)) >= short_format.beyond):
        return
    clipped = np.clip(data.astype(np.float32), -short_format.largest, short_format.largest).astype(dtype)
    likely = f"numbers beyond {short_format.name} become {short_format.largest:g}, its largest number, not infinite"
    yield Mistake(likely=likely, node=node, values={}, after=always(clipped))


def _overflowing_casts(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the results that processors give for casts of numbers beyond the range of an integer type."""
    data = values.get(node.inputs[0]) if node.inputs else None
    target = node.attrs.get("to")
    if not operators.of(node.op).casts or data is None or data.dtype.kind not in "fiu" or not isinstance(target, int):
        return
    dtype = onnx_dtype(target)
    if dtype.kind not in "iu" or (data.dtype.kind != "f" and data.dtype.itemsize > np.dtype(np.int32).itemsize):
        return
    name, low, high = dtype.name, *map(float, (np.iinfo(dtype).min, np.iinfo(dtype).max))
    whole_numbers = np.nan_to_num(np.trunc(data.astype(np.float64)), nan=0.0)
    is_beyond = (whole_numbers < low) | (whole_numbers > high) | np.isnan(data)
    if not is_beyond.any():
        return
    finite = np.where(np.isinf(data), 0.0, whole_numbers)
    wrapped = np.mod(finite, 2.0 ** (8 * dtype.itemsize)).astype(np.uint64).astype(dtype)
    representable = np.where(is_beyond, 0.0, whole_numbers).astype(dtype)
    for words, becomes in (
        (f"numbers beyond {name} saturate", np.where(whole_numbers > 0, np.iinfo(dtype).max, np.iinfo(dtype).min)),
        (f"numbers beyond {name} wrap around (the low bits are kept)", wrapped),
        (f"numbers beyond {name} become the lowest {name} value", np.full(whole_numbers.shape, np.iinfo(dtype).min)),
    ):
        result = np.where(
            is_beyond, np.where(np.isnan(data), 0, becomes) if "saturate" in words else becomes, representable
        )
        yield Mistake(likely=words, node=node, values={}, after=always(result.astype(dtype)))


def _wrong_casts(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistakes of rounding otherwise, or of losing the carry, in a cast to a short float format."""
    data = values.get(node.inputs[0]) if node.inputs else None
    target = node.attrs.get("to")
    if not operators.of(node.op).casts or data is None or data.dtype.kind != "f" or not isinstance(target, int):
        return
    dtype = onnx_dtype(target)
    short_format = next((each for each in SHORT_FORMATS if each.name == dtype.name), None)
    if short_format is None or data.dtype.itemsize <= dtype.itemsize:
        return
    values_in_float32 = data.astype(np.float32)
    rounded = short_format.rounded(values_in_float32)
    has_carry = (np.frexp(rounded)[0] == np.copysign(0.5, rounded)) & (np.abs(rounded) > np.abs(values_in_float32))
    result = np.where(has_carry, rounded / 2, rounded).astype(dtype)
    likely = f"values that round up to a power of 2 in {short_format.name} become half of it"
    yield Mistake(likely=likely, node=node, values={}, after=always(result))
    different_results = [rounded]
    for name, rounding in FLOAT_ROUNDINGS.items():
        other = round_float(values_in_float32.astype(np.float64), short_format, name).astype(np.float32)
        if not any(np.array_equal(other, result, equal_nan=True) for result in different_results):
            different_results.append(other)
            likely = f"results are {rounding.words} to {short_format.name}"
            yield Mistake(likely=likely, node=node, values={}, after=always(other.astype(dtype)))


def _wrong_powers_of_two(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which scales are cast to powers of two with the rounding of a different MX quantizer.

    The last rule first rounds the mantissa to one more bit, as the `even` rule of AMD Quark does.
    """
    data = values.get(node.inputs[0]) if node.inputs else None
    if node.attrs.get("to") != _E8M0 or not operators.of(node.op).casts or data is None or data.dtype.kind != "f":
        return
    stated = str(node.attrs.get("round_mode", "up"))
    stated_words = _POWER_RULES.get(stated, stated)
    for mode, words in _POWER_RULES.items():
        if mode != stated:
            other = replace(node, attrs={**node.attrs, "round_mode": mode})
            yield Mistake(likely=f"scales become {words}, not {stated_words}", node=other, values={})
    # Kernels add a quarter of the leading bit to the magnitude and keep the exponent of the sum.
    mantissa, exponent = np.frexp(np.abs(data.astype(np.float64)))
    rounded = np.ldexp(1.0, exponent - 1 + np.frexp(mantissa + 0.125)[1])
    likely = f"scales become the next power of two only from 1.75 times a power of two on, not {stated_words}"
    yield Mistake(likely=likely, node=node, values={}, after=always(rounded.astype(onnx_dtype(_E8M0))))


_E8M0 = 24
"""Number of float8_e8m0fnu in ONNX's `TensorProto.DataType`."""
_POWER_RULES: Mapping[str, str] = MappingProxyType(
    {
        "up": "the power of two above",
        "down": "the power of two below",
        "nearest": "the nearest power of two",
    }
)
"""Power of two to which a scale is rounded, by rounding mode of ONNX's Cast."""
