"""Steps that sum products of two factors: matrix products, convolutions, rotations, attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from qdebug.arithmetic.floats.steps import Step, source
from qdebug.errors import KernelError
from qdebug.model import AttrValue, Node
from qdebug.model.thresholds.explanation import PLACEMENT_MAX_PRODUCTS
from qdebug.numerics.intervals import Interval, sum_interval
from qdebug.replay.registry import run_node

__all__ = ["attention", "product", "rotary_embedding"]


def product(run: Callable[[np.ndarray, np.ndarray], np.ndarray], a: Step, b: Step, terms: int) -> Step:
    """Return the step that sums products of two factors in any order.

    Args:
        run: Computes the sums in float64. All products of a sum count with the same sign.
        a: The first factor.
        b: The second factor.
        terms: Number of products in a sum.
    """

    def summed(first: Interval, second: Interval) -> Interval:
        factors = [((each.low + each.high) / 2, (each.high - each.low) / 2) for each in (first, second)]
        (a_middle, a_radius), (b_middle, b_radius) = factors
        result = run(a_middle, b_middle)
        if terms * result.size > PLACEMENT_MAX_PRODUCTS:
            raise KernelError("the product is too large to be recomputed for each placement")
        a_size, b_size = np.abs(a_middle), np.abs(b_middle)
        interval = sum_interval(result, np.abs(run(a_size + a_radius, b_size + b_radius)), terms)
        if not (a_radius.any() or b_radius.any()):
            return interval
        radius = np.abs(run(a_radius, b_size + b_radius)) + np.abs(run(a_size, b_radius))
        return Interval(interval.low - radius, interval.high + radius)

    return Step(summed, (a, b))


def rotary_embedding(node: Node, inputs: Sequence[Step], shapes: Sequence[tuple[int, ...]]) -> Sequence[Step]:
    """Add the products of pairs of elements with cosines and sines."""
    if len(inputs) != 4 or node.attrs.get("rotary_embedding_dim"):
        raise ValueError(f"{node.op} rotates only a part, or has other inputs")
    del shapes
    x, cosines, sines = inputs[0], inputs[2], inputs[3]
    positions = inputs[1].apply().low.astype(np.int64) if not inputs[1].reads else None
    if positions is None:
        raise ValueError(f"{node.op} computes its positions")
    form = replace(node, inputs=("x", "positions", "cosines", "sines"), outputs=("y",))

    def run(values: np.ndarray, cosines: np.ndarray, sines: np.ndarray) -> np.ndarray:
        arrays = {"x": values, "positions": positions, "cosines": cosines, "sines": sines}
        return run_node(form, arrays, {})["y"]

    with_cosines = product(lambda values, angles: run(values, angles, np.zeros_like(angles)), x, cosines, 1)
    with_sines = product(lambda values, angles: run(values, np.zeros_like(angles), angles), x, sines, 1)
    return (with_cosines.named("the products with cosines") + with_sines.named("the products with sines"),)


_SCALE_UNITS = 2.0
"""Error of the scaled scores in units in the last place: kernels scale them, the queries, or both factors."""
_EDGE_WORDS = 3**4
"""Number of treatments of the four edges of an attention."""


def attention(node: Node, inputs: Sequence[Step], shapes: Sequence[tuple[int, ...]]) -> Sequence[Step]:
    """Compute the softmax of scaled scores, and multiply it by the values.

    An online softmax rounds the exponentials that multiply the values, but not those that it sums.

    Raises:
        KernelError: There are too many products.
        ValueError: There is a mask, a cache, or an attribute that changes the scores.
    """
    supported: dict[str, AttrValue] = {"is_causal": 0, "scale": 0.0}
    if node.domain or len(inputs) != 3 or any(len(shape) != 4 for shape in shapes) or set(node.attrs) - set(supported):
        raise ValueError(f"{node.op} has other inputs or attributes")
    (*_, heads, length, extent), (*_, groups, total, _) = shapes[:2]
    if math.prod(shapes[0]) * total * _EDGE_WORDS > PLACEMENT_MAX_PRODUCTS:
        raise KernelError("the attention is too large to be recomputed for each placement")
    scale = node.attrs.get("scale", 1 / math.sqrt(extent))
    q, (k, v) = inputs[0], (each.mapped(lambda x: np.repeat(x, heads // groups, axis=1)) for each in inputs[1:])
    sums = product(lambda first, second: first @ second.swapaxes(-1, -2), q, k, extent)
    scaled = sums * source(float(np.asarray(scale)))
    scores = Step(lambda each: each.blurred(_SCALE_UNITS), (scaled,)).named("the scores")
    if node.attrs.get("is_causal", 0):
        scores = scores + source(np.where(np.arange(total) > np.arange(length)[:, None], -np.inf, 0.0))
    largest = scores.mapped(lambda x: x.max(axis=-1, keepdims=True))
    powers = (scores - largest).through(np.exp).named("the exponentials")
    factors = powers.mapped(lambda x: x).named("the exponentials that multiply the values")
    weights = (factors / powers.total((3,))).named("the attention weights")
    return (product(np.matmul, weights, v, total),)
