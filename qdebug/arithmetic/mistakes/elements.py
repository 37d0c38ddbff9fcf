"""Mistakes of kernels in single elements and norms: negative bases, bounds, added epsilons. See `power_mistakes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake, always
from qdebug.model import Node
from qdebug.replay.registry import run_node

__all__ = ["power_mistakes"]

_EPSILONS = (1e-3, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12)
"""Numbers that frameworks add to a norm before they divide by it."""


def power_mistakes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield wrong powers of negative numbers, remainders, bounds in another order, and norms with an epsilon.

    Args:
        node: The node's real form.
        values: Its inputs.
    """
    yield from _powers_of_negative_numbers(node, values)
    yield from _remainders_of_magnitudes(node, values)
    yield from _crossed_bounds(node, values)
    yield from _norms_with_epsilon(node, values)
    yield from _unbiased_variance(node, values)


def _powers_of_negative_numbers(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield powers computed as exp(y * log(x)), or by the magnitude of x."""
    if node.op != "Pow" or len(node.inputs) != 2 or values[node.inputs[0]].dtype.kind != "f":
        return
    base, exponent = (values[name] for name in node.inputs)
    if not np.any(base < 0):
        return
    with np.errstate(all="ignore"):
        powers = np.float_power(np.abs(base), exponent)
        is_negative = np.broadcast_to(base < 0, powers.shape)
    for likely, becomes in (
        ("negative numbers give NaN, as in exp(y * log(x))", np.nan),
        ("negative numbers give 0", 0.0),
        ("the power of the magnitude is taken, without the sign of the base", powers),
        ("the power of the magnitude is taken, and gets the sign of the base", -powers),
    ):
        result = np.where(is_negative, becomes, powers).astype(base.dtype)
        yield Mistake(likely=likely, node=node, values={}, after=always(result))


def _remainders_of_magnitudes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield remainders of a division by the magnitude of the divisor, or of magnitudes."""
    if node.op != "Mod" or len(node.inputs) != 2 or values[node.inputs[0]].dtype.kind not in "fi":
        return
    data, divisor = (values[name].astype(np.float64) for name in node.inputs)
    dtype = values[node.inputs[0]].dtype
    if not np.any(divisor < 0):
        return
    with np.errstate(all="ignore"):
        for likely, result in (
            ("remainders are never negative", np.mod(data, np.abs(divisor))),
            ("remainders are those of the magnitudes", np.fmod(np.abs(data), np.abs(divisor))),
        ):
            finite = np.nan_to_num(result) if dtype.kind == "i" else result
            yield Mistake(likely=likely, node=node, values={}, after=always(finite.astype(dtype)))


def _crossed_bounds(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield a Clip whose lower bound is above its upper one, applied in another order."""
    names = [name for name in node.inputs if name]
    if node.op != "Clip" or len(names) != len(("x", "low", "high")):
        return
    data, low, high = (values[name] for name in names)
    if np.all(low <= high):
        return
    for likely, result in (
        (
            "the lower bound is applied after the upper bound, which is below it",
            np.maximum(np.minimum(data, high), low),
        ),
        ("the bounds are swapped, as the lower one is above the upper one", np.clip(data, high, low)),
    ):
        yield Mistake(likely=likely, node=node, values={}, after=always(result.astype(data.dtype)))


def _norms_with_epsilon(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield norms with an epsilon that the operator has not, under the root, added to the norm, or as its minimum."""
    data = values.get(node.inputs[0]) if node.inputs else None
    if node.op not in ("ReduceL2", "LpNormalization") or data is None or data.dtype.kind != "f":
        return
    if node.op == "LpNormalization":
        axis, order = node.attrs.get("axis", -1), node.attrs.get("p", 2)
        if not isinstance(axis, int) or order not in (1, 2):
            return
        total = np.abs(data.astype(np.float64) ** int(order)).sum(axis, keepdims=True)
    else:
        reduced = replace(node, op="ReduceSumSquare")
        total = run_node(reduced, {**values, node.inputs[0]: data.astype(np.float64)}, {"": 18})[node.outputs[0]]
    is_rooted = node.attrs.get("p", 2) == 2
    norm = np.sqrt(total) if is_rooted else total
    for epsilon in _EPSILONS:
        norms = {
            f"{epsilon:g} is added to the norm": norm + epsilon,
            f"the norm is at least {epsilon:g}": np.maximum(norm, epsilon),
        }
        if is_rooted:
            norms[f"{epsilon:g} is added to the sum of squares, under the root"] = np.sqrt(total + epsilon)
        for likely, other in norms.items():
            result = data / other if node.op == "LpNormalization" else other
            yield Mistake(likely=likely, node=node, values={}, after=always(result.astype(data.dtype)))


def _unbiased_variance(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield a MeanVarianceNormalization whose variance is divided by one less than the number of elements."""
    if node.op != "MeanVarianceNormalization" or not node.inputs:
        return
    data, axes = values[node.inputs[0]], node.attrs.get("axes", (0, 2, 3))
    if not isinstance(axes, tuple) or data.ndim <= max(int(str(axis)) for axis in axes):
        return
    count = int(np.prod([data.shape[int(str(axis))] for axis in axes]))
    factor = np.sqrt((count - 1) / count) if count else 1.0

    def scaled(result: np.ndarray) -> np.ndarray:
        return np.asarray(result * result.dtype.type(factor))

    likely = f"the variance is divided by {count - 1}, not by the {count} elements"
    yield Mistake(likely=likely, node=node, values={}, after=scaled)
