"""The steps of each float operator, as kernels compute it. `RECIPES` has one recipe per operator.

A recipe takes the node and its inputs as steps, and returns its outputs as steps. Its named edges are the intermediate
results that some kernel is known to round to the format of its output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce
from operator import add, mul, sub, truediv
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.floats.products import attention, product, rotary_embedding
from qdebug.arithmetic.floats.steps import Step, source
from qdebug.model import Node
from qdebug.numerics.intervals import Interval
from qdebug.replay.kernels.activation import erf
from qdebug.replay.registry import run_node

__all__ = ["RECIPES", "Along", "Recipe"]

Inputs = Sequence[Step]
Shapes = Sequence[tuple[int, ...]]
Steps = Callable[[Node, Inputs, Shapes], Sequence[Step]]
"""Returns the outputs of a node, possibly without the last ones. Called with the node, its inputs and their shapes."""


_BEFORE_BIAS = "the sum before the bias"


class Along(Enum):
    """The axes along which an element of a result depends on several elements of the input."""

    NOTHING = "nothing"
    """None: it depends on the element at its own position."""
    LAST = "last"
    """The last axis."""
    AXIS = "axis"
    """The attribute `axis`, for some operators with all axes after it. The default is the last axis."""
    OTHERS = "others"
    """Other axes, or several."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How kernels compute an operator.

    Args:
        steps: Builds the outputs of a node.
        along: The axes along which its elements depend on each other.
    """

    steps: Steps
    along: Along = Along.NOTHING

    def is_by_rows(self, node: Node, rank: int) -> bool:
        """Return whether each row along the last axis is computed independently.

        Args:
            node: The node.
            rank: Rank of its data.
        """
        axis = int(_float_attribute(node, "axis", -1))
        return self.along in (Along.NOTHING, Along.LAST) or (self.along is Along.AXIS and axis in (-1, rank - 1))


def _pairwise_recipe(combine: Callable[[Step, Step], Step]) -> Steps:
    def recipe(_node: Node, inputs: Inputs, _shapes: Shapes) -> Sequence[Step]:
        return (combine(*inputs),)

    return recipe


def _monotone_recipe(function: Callable[[np.ndarray], np.ndarray], *, units: float | None = None) -> Steps:
    """Return the recipe of a monotone function."""

    def recipe(_node: Node, inputs: Inputs, _shapes: Shapes) -> Sequence[Step]:
        return (inputs[0].through(function, units=units),)

    return recipe


def _exact_recipe(function: Callable[[np.ndarray], np.ndarray]) -> Steps:
    """Return the recipe of an increasing function without rounding error."""

    def recipe(_node: Node, inputs: Inputs, _shapes: Shapes) -> Sequence[Step]:
        return (inputs[0].mapped(function),)

    return recipe


def _sum(_node: Node, inputs: Inputs, _shapes: Shapes) -> Sequence[Step]:
    """Add operands from first to last."""
    total = inputs[0]
    for at, operand in enumerate(inputs[1:], 1):
        total = total + operand
        if at < len(inputs) - 1:
            total = total.named(f"the sum of the first {at + 1} operands")
    return (total,)


def _selection_recipe(combine: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Steps:
    """Return the recipe of a maximum or minimum."""

    def recipe(_node: Node, inputs: Inputs, _shapes: Shapes) -> Sequence[Step]:
        def both(a: Interval, b: Interval) -> Interval:
            return Interval(combine(a.low, b.low), combine(a.high, b.high))

        return (reduce(lambda a, b: Step(both, (a, b)), inputs),)

    return recipe


def _negative(_node: Node, inputs: Inputs, _shapes: Shapes) -> Sequence[Step]:
    return (Step(Interval.negative, (inputs[0],)),)


def _sigmoid_of(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-x)))


def _gated_recipe(usual: float) -> Steps:
    """Return the recipe of x * sigmoid(alpha * x), where `usual` is the default of alpha."""

    def steps(node: Node, inputs: Inputs, _shapes: Shapes) -> Sequence[Step]:
        x = inputs[0]
        scaled = x * source(_float_attribute(node, "alpha", usual))
        return (x * scaled.through(_sigmoid_of).named("the sigmoid"),)

    return steps


def _product(node: Node, a: Step, b: Step, terms: int) -> Step:
    """Return the step that sums products in any order, without a bias.

    Args:
        node: The operator.
        a: Its first input.
        b: Its second input.
        terms: Number of products in a sum.
    """
    form = replace(node, inputs=("a", "b"), outputs=("sum",))
    return product(lambda first, second: run_node(form, {"a": first, "b": second}, {})["sum"], a, b, terms)


def _matmul(node: Node, inputs: Inputs, shapes: Shapes) -> Sequence[Step]:
    return (_product(node, inputs[0], inputs[1], shapes[0][-1]),)


def _gemm(node: Node, inputs: Inputs, shapes: Shapes) -> Sequence[Step]:
    """Multiply matrices and add a bias. Factors other than 1 are not supported, as kernels differ in their order."""
    if _float_attribute(node, "alpha", 1.0) != 1 or _float_attribute(node, "beta", 1.0) != 1:
        raise ValueError(f"{node.op} has factors")
    sums = _product(node, inputs[0], inputs[1], shapes[0][0 if node.attrs.get("transA") else -1])
    return (sums if len(inputs) == 2 else sums.named(_BEFORE_BIAS) + inputs[2],)


def _conv(node: Node, inputs: Inputs, shapes: Shapes) -> Sequence[Step]:
    sums = _product(node, inputs[0], inputs[1], math.prod(shapes[1][1:]))
    if len(inputs) == 2:
        return (sums,)
    spatial = (-1, *(1,) * (len(shapes[1]) - 2))
    by_filter = spatial if node.attrs.get("channels_last") is None else (-1,)
    return (sums.named(_BEFORE_BIAS) + inputs[2].mapped(lambda values: values.reshape(by_filter)),)


def _gelu(node: Node, inputs: Inputs, _shapes: Shapes) -> Sequence[Step]:
    """Multiply x by the cumulative normal distribution, computed with erf or approximated with tanh."""
    x = inputs[0]
    if str(node.attrs.get("approximate", "none")) == "tanh":
        cube = x * x * x
        inner = (x + cube * source(0.044715)) * source(math.sqrt(2 / math.pi))
        share = inner.named("the argument of tanh").through(np.tanh).named("the tanh")
    else:
        share = (x * source(math.sqrt(0.5))).named("the argument of erf").through(erf, units=32).named("the erf")
    return (x * source(0.5) * (share + source(1.0)),)


def _axes_from(node: Node, shape: tuple[int, ...], default: int = -1) -> tuple[int, ...]:
    axis = int(_float_attribute(node, "axis", default))
    return tuple(range(axis % len(shape), len(shape)))


def _float_attribute(node: Node, name: str, default: float) -> float:
    value = node.attrs.get(name, default)
    return float(value) if isinstance(value, (int, float, np.integer, np.floating)) else default


def _inverse_root(mean_square: Step, epsilon: float) -> Step:
    shifted = mean_square.named("the mean of squares") + source(epsilon)
    return shifted.through(lambda values: 1 / np.sqrt(np.maximum(values, 0))).named("the inverse root")


def _mean(step: Step, axes: tuple[int, ...], shape: tuple[int, ...]) -> Step:
    return step.total(axes) * source(1.0 / max(math.prod(shape[axis] for axis in axes), 1))


def _divide_by_root_mean_square(
    x: Step,
    scale: Step,
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    epsilon: float,
    *,
    statistics_source: Step | None = None,
) -> Step:
    """Divide by a root mean square, and scale.

    Args:
        x: The numbers to divide.
        scale: The scale.
        axes: Axes of the mean.
        shape: Shape of the numbers.
        epsilon: Added to the mean square.
        statistics_source: The numbers whose root mean square is used. None for `x`.
    """
    statistics_source = x if statistics_source is None else statistics_source
    inverse = _inverse_root(_mean((statistics_source * statistics_source).named("the squares"), axes, shape), epsilon)
    return (x * inverse).named("the normalized values") * scale


def _rms_normalization(node: Node, inputs: Inputs, shapes: Shapes) -> Sequence[Step]:
    axes = _axes_from(node, shapes[0])
    return (
        _divide_by_root_mean_square(inputs[0], inputs[1], axes, shapes[0], _float_attribute(node, "epsilon", 1e-5)),
    )


def _subtract_scaled(first: Interval, second: Interval) -> Interval:
    """Subtract, allowing for kernels that scale both operands before they subtract."""
    return first.minus(second).rearranged(first, second)


def _standardize(x: Step, inputs: Inputs, axes: tuple[int, ...], shape: tuple[int, ...], epsilon: float) -> Step:
    """Subtract the mean, divide by the standard deviation, scale and shift.

    Args:
        x: The numbers.
        inputs: The scale, and the shift if there is one.
        axes: Axes of the statistics.
        shape: Shape of the numbers.
        epsilon: Added to the variance.
    """
    centred = Step(_subtract_scaled, (x, _mean(x, axes, shape).named("the mean"))).named("the centered values")
    inverse = _inverse_root(_mean(centred * centred, axes, shape), epsilon)
    scaled = (centred * inverse).named("the normalized values") * inputs[0]
    return scaled if len(inputs) == 1 else scaled.named("the scaled values") + inputs[1]


def _layer_normalization(node: Node, inputs: Inputs, shapes: Shapes) -> Sequence[Step]:
    axes = _axes_from(node, shapes[0])
    return (_standardize(inputs[0], inputs[1:3], axes, shapes[0], _float_attribute(node, "epsilon", 1e-5)),)


def _skip_rms_normalization(node: Node, inputs: Inputs, shapes: Shapes) -> Sequence[Step]:
    """Add the skip connection, then normalize. The sum is an output too."""
    axes, total = (len(shapes[0]) - 1,), (inputs[0] + inputs[1])
    squared_sum, normalized_sum = (
        total.named("the sum in the mean of squares"),
        total.named("the sum that is normalized"),
    )
    epsilon = _float_attribute(node, "epsilon", 1e-12)
    normalized = _divide_by_root_mean_square(
        normalized_sum, inputs[2], axes, shapes[0], epsilon, statistics_source=squared_sum
    )
    return normalized, normalized, normalized, total


def _skip_layer_normalization(node: Node, inputs: Inputs, shapes: Shapes) -> Sequence[Step]:
    """Add the skip connection, then standardize. The sum is an output too."""
    axes, total = (len(shapes[0]) - 1,), (inputs[0] + inputs[1])
    normalized = _standardize(
        total.named("the sum"), inputs[2:4], axes, shapes[0], _float_attribute(node, "epsilon", 1e-12)
    )
    return normalized, normalized, normalized, total


def _softmax(node: Node, inputs: Inputs, shapes: Shapes) -> Sequence[Step]:
    """Divide the exponentials of the distances from the maximum by their sum."""
    axis = (int(_float_attribute(node, "axis", -1)) % len(shapes[0]),)
    x = inputs[0]
    maximum = x.mapped(lambda values: values.max(axis=axis, keepdims=True))
    powers = (x - maximum).named("the distances from the maximum").through(np.exp).named("the exponentials")
    return (powers / powers.total(axis).named("the sum of exponentials"),)


def _reduction(node: Node, inputs: Inputs, shapes: Shapes) -> Sequence[Step]:
    axes = tuple(int(axis) % len(shapes[0]) for axis in np.asarray(node.attrs.get("axes", ())).reshape(-1))
    axes = axes or tuple(range(len(shapes[0])))
    total = _mean(inputs[0], axes, shapes[0]) if node.op == "ReduceMean" else inputs[0].total(axes)
    if node.attrs.get("keepdims", 1):
        return (total,)
    return (total.mapped(lambda values: np.squeeze(values, axis=axes)),)


def _square(node: Node, inputs: Inputs, shapes: Shapes) -> Sequence[Step]:
    """Square. Other powers are not supported: they are not monotone, or kernels compute them differently."""
    del shapes
    exponent = inputs[1].apply() if not inputs[1].reads else None
    if exponent is None or exponent.low.size != 1 or float(exponent.low.reshape(())) != 2:
        raise ValueError(f"{node.op} is supported only for squares")
    return (inputs[0] * inputs[0],)


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "Add": Recipe(_pairwise_recipe(add)),
        "Sub": Recipe(_pairwise_recipe(sub)),
        "Mul": Recipe(_pairwise_recipe(mul)),
        "Div": Recipe(_pairwise_recipe(truediv)),
        "Sum": Recipe(_sum),
        "Max": Recipe(_selection_recipe(np.maximum)),
        "Min": Recipe(_selection_recipe(np.minimum)),
        "Neg": Recipe(_negative),
        "Cast": Recipe(_exact_recipe(lambda values: values)),
        "Relu": Recipe(_exact_recipe(lambda values: np.maximum(values, 0))),
        "Exp": Recipe(_monotone_recipe(np.exp)),
        "Log": Recipe(_monotone_recipe(np.log)),
        "Sqrt": Recipe(_monotone_recipe(np.sqrt, units=1)),
        "Reciprocal": Recipe(_monotone_recipe(np.reciprocal, units=2)),
        "Tanh": Recipe(_monotone_recipe(np.tanh)),
        "Sigmoid": Recipe(_monotone_recipe(_sigmoid_of)),
        "Erf": Recipe(_monotone_recipe(erf, units=32)),
        "Swish": Recipe(_gated_recipe(1.0)),
        "QuickGelu": Recipe(_gated_recipe(1.702)),
        "Gelu": Recipe(_gelu),
        "Pow": Recipe(_square),
        "Conv": Recipe(_conv, Along.OTHERS),
        "MatMul": Recipe(_matmul, Along.OTHERS),
        "Gemm": Recipe(_gemm, Along.OTHERS),
        "Attention": Recipe(attention, Along.OTHERS),
        "RotaryEmbedding": Recipe(rotary_embedding, Along.OTHERS),
        "ReduceMean": Recipe(_reduction, Along.OTHERS),
        "ReduceSum": Recipe(_reduction, Along.OTHERS),
        "Softmax": Recipe(_softmax, Along.AXIS),
        "LayerNormalization": Recipe(_layer_normalization, Along.AXIS),
        "RMSNormalization": Recipe(_rms_normalization, Along.AXIS),
        "SimplifiedLayerNormalization": Recipe(_rms_normalization, Along.AXIS),
        "SkipLayerNormalization": Recipe(_skip_layer_normalization, Along.LAST),
        "SkipSimplifiedLayerNormalization": Recipe(_skip_rms_normalization, Along.LAST),
    }
)
"""Recipes by operator."""
