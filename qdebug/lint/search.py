"""Search for an input on which two forms of a part differ, and replay it with the interpreter.

The inputs tried are the ends of every range in the part, a ramp over these ranges, random values, and values computed
from the network's inputs. The input with the largest difference in exact arithmetic is then replayed. If the replay
does not show a difference too, there is no finding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.errors import KernelError, QdebugError
from qdebug.lint.replay import LintModel, Span, clamp_bounds, difference_beyond_rounding, is_coded
from qdebug.model import Node
from qdebug.model.json_object import JsonObject
from qdebug.model.thresholds.rewrites import REWRITE_FLOAT_MAX_REL
from qdebug.numerics.affine import dequantize, quantize

__all__ = ["LintPart", "Witness", "find_witness"]

_SEED = 20261126
_MAX_ELEMENTS = 1 << 19
"""Approximate number of elements tried for one part."""
_MAX_CANDIDATES, _MIN_CANDIDATES = 24, 3
"""Maximum and minimum number of arrays tried, besides those computed from the network's inputs."""
_FACTORS = (4.0, 16.0)
"""Factors by which the values computed from the network's inputs are multiplied, as further candidates."""
_USUAL_EXTENT = 6.0
"""Largest magnitude that is assumed for values with an unknown interval."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LintPart:
    """A part of a model that computes one tensor from others.

    Args:
        model: The model.
        nodes: The nodes, in topological order.
        output: The tensor.
        leaves: The inputs of the part, in the same order as in the other form.
    """

    model: LintModel
    nodes: Sequence[Node]
    output: str
    leaves: Sequence[str]

    def to_stored(self, values: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Convert real values of the leaves to the elements that the model stores: codes or real values."""
        elements = {}
        for name, array in zip(self.leaves, values, strict=True):
            quant = self.model.quant(name)
            elements[name] = array if quant is None or array.dtype.kind in "iub" else quantize(array, quant)
        return elements

    def exact_results(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the output in exact arithmetic: unchanged, and nudged down and up before each rounding."""
        feed = self.to_stored(values)
        nudges = (0.0, -REWRITE_FLOAT_MAX_REL, REWRITE_FLOAT_MAX_REL)
        return [self.model.compute_exact(self.nodes, feed, self.output, nudge) for nudge in nudges]

    def replay(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return the output as the interpreter replays it."""
        feed = self.to_stored(values)
        for name, array in feed.items():
            feed[name] = array.astype(np.float32) if array.dtype == np.float64 else array
        return self.model.replay(self.nodes, feed, self.output)

    def span(self, leaves: Sequence[Span]) -> Span:
        """Return the interval of the output."""
        leaf_spans = dict(zip(self.leaves, leaves, strict=True))
        return self.model.span(self.output, self.model.spans(self.nodes, leaf_spans))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WitnessTensor(JsonObject):
    """An input of the parts. `values` is None for a large one, `value` if it has no element at that index."""

    tensor: str
    shape: tuple[int, ...]
    values: np.ndarray | None
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Witness(JsonObject):
    """An input on which two parts differ.

    Args:
        leaves: Names of the inputs, in the changed model.
        values: Real values of the inputs.
        index: Index of the output element with the largest difference.
        before: Value of this element without the rewrite, replayed with the interpreter.
        after: Value of this element with the rewrite.
        largest: The largest difference, in real units.
        reached: Whether values computed from network inputs reveal a difference as well.
    """

    json_keys = "tensors index before after"

    leaves: tuple[str, ...]
    values: tuple[np.ndarray, ...]
    index: tuple[int, ...]
    before: float
    after: float
    largest: float
    reached: bool

    @property
    def tensors(self) -> tuple[WitnessTensor, ...]:
        """The inputs: all values of small arrays, and the value at the index of the output element."""
        entries = []
        for name, array in zip(self.leaves, self.values, strict=True):
            has_element = len(self.index) == array.ndim and all(map(int.__lt__, self.index, array.shape))
            entries.append(
                WitnessTensor(
                    tensor=name,
                    shape=array.shape,
                    values=array if array.size <= _MAX_LISTED_VALUES else None,
                    value=float(array[self.index]) if has_element else None,
                )
            )
        return tuple(entries)


_MAX_LISTED_VALUES = 64


def find_witness(
    before: LintPart,
    after: LintPart,
    spans: Sequence[Span],
    computed_values: Sequence[np.ndarray | None],
    check: Callable[[], object] = lambda: None,
) -> Witness | None:
    """Find an input on which two parts differ beyond rounding.

    Args:
        before: The part without the rewrite.
        after: The part with it. Its leaves represent the same values.
        spans: Interval of each leaf.
        computed_values: Real values of each leaf computed from the network's inputs, or None if there are none.
        check: Called before each candidate; it may raise to cancel the search.

    Returns:
        The input, or None if none was found or the interpreter does not reproduce the difference.

    Raises:
        KernelError: A node cannot be computed, or the results have different shapes.
    """
    if any(array is None for array in computed_values):
        raise KernelError("The inputs of a part were not computed, so their shapes are not known.")
    arrays = [np.asarray(array) for array in computed_values]
    best: tuple[float, list[np.ndarray], tuple[int, ...]] | None = None
    is_reached = False
    for number, candidate in enumerate(_candidate_inputs(before, after, spans, arrays)):
        check()
        values = _round_leaves(before, after, candidate)
        difference = difference_beyond_rounding(before.exact_results(values), after.exact_results(values))
        if difference is None:
            raise KernelError("The two forms have results of different shapes.")
        largest_difference = float(difference.max()) if difference.size else 0.0
        is_reached = is_reached or (number == 0 and largest_difference > 0)
        if largest_difference > 0 and (best is None or largest_difference > best[0]):
            best = (
                largest_difference,
                values,
                tuple(map(int, np.unravel_index(int(difference.argmax()), difference.shape))),
            )
    if best is None:
        return None
    largest_difference, values, index = best
    try:
        result_before, result_after = before.replay(values), after.replay(values)
    except (QdebugError, ValueError) as error:
        raise KernelError(f"The interpreter cannot replay it: {error}") from error
    value_before, value_after = (
        float(result_before.reshape(result_before.shape)[index]),
        float(result_after.reshape(result_before.shape)[index]),
    )
    is_finite = math.isfinite(value_before), math.isfinite(value_after)
    if (
        is_finite[0] == is_finite[1]
        if math.isinf(largest_difference)
        else not abs(value_before - value_after) > largest_difference / 2
    ):
        return None
    if not math.isinf(largest_difference):
        largest_difference = max(largest_difference, abs(value_before - value_after))
    return Witness(
        leaves=tuple(after.leaves),
        values=tuple(values),
        index=index,
        before=value_before,
        after=value_after,
        largest=largest_difference,
        reached=is_reached,
    )


def _round_leaves(before: LintPart, after: LintPart, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return real values of leaves rounded to the codes of both forms, so that both read the same values."""
    rounded_values = []
    for array, leaf_before, leaf_after in zip(values, before.leaves, after.leaves, strict=True):
        quant = before.model.grid(leaf_before) or after.model.grid(leaf_after)
        is_real = quant is not None and array.dtype.kind == "f"
        rounded_values.append(
            dequantize(quantize(array, quant), quant, double=True) if quant is not None and is_real else array
        )
    return rounded_values


def _candidate_inputs(
    before: LintPart, after: LintPart, spans: Sequence[Span], computed_values: Sequence[np.ndarray]
) -> Iterator[list[np.ndarray]]:
    """Yield real values of the leaves that may reveal a difference."""
    yield list(computed_values)
    rng = np.random.default_rng(_SEED)
    ends = sorted({*clamp_bounds(before.model, before.nodes), *clamp_bounds(after.model, after.nodes)})
    size = max(sum(array.size for array in computed_values), 1)
    count = min(
        max(_MAX_ELEMENTS // (size * max(len(before.nodes) + len(after.nodes), 1)), _MIN_CANDIDATES), _MAX_CANDIDATES
    )
    for number in range(count):
        yield [_leaf_values(array, span, ends, rng, number) for array, span in zip(computed_values, spans, strict=True)]
    for factor in _FACTORS:
        yield [
            array if array.dtype.kind in "iub" else np.clip(factor * array, *span)
            for array, span in zip(computed_values, spans, strict=True)
        ]


def _leaf_values(
    computed_values: np.ndarray, span: Span, ends: Sequence[float], rng: np.random.Generator, number: int
) -> np.ndarray:
    """Return candidate values for one leaf: near range ends and on a ramp, random, or constant, by `number`."""
    if computed_values.dtype.kind in "iub" or not computed_values.size:
        return computed_values  # integers are indices or extents, so other values could be invalid
    inner_ends = [end for end in ends if span[0] <= end <= span[1]]
    low = max(span[0], min([*inner_ends, -_USUAL_EXTENT]) if not math.isfinite(span[0]) else span[0])
    high = min(span[1], max([*inner_ends, _USUAL_EXTENT]) if not math.isfinite(span[1]) else span[1])
    margin = (high - low) / 4
    low, high = max(span[0], low - margin), min(span[1], high + margin)
    if number % 3 == 0:
        # First values on both sides of each end, then evenly spaced values.
        values_near_ends = [end + offset * margin for end in inner_ends for offset in (0.0, -1e-3, 1e-3, -0.1, 0.1)]
        spread = np.concatenate(
            [
                values_near_ends,
                np.linspace(low, high, max(computed_values.size - len(values_near_ends), 2) * _RAMP_CANDIDATES),
            ]
        )
        start = (number // 3) * computed_values.size
        flat_values = np.take(spread, np.arange(start, start + computed_values.size), mode="wrap")
    elif number % 3 == 1:
        flat_values = rng.uniform(low, high, computed_values.size)
    else:
        flat_values = np.full(
            computed_values.size, inner_ends[number // 3 % len(inner_ends)] if inner_ends else rng.uniform(low, high)
        )
    return np.asarray(np.clip(flat_values, *span).reshape(computed_values.shape))


_RAMP_CANDIDATES = 4
"""Number of arrays that a ramp is spread over."""


def largest_step(part: LintPart) -> float:
    """Return the largest step of the codes that a part rounds to, or 0 if it does not round."""
    largest_scale = 0.0
    for node in part.nodes:
        quant = part.model.declared_quant(node, -1) or part.model.quant(node.outputs[0])
        if quant is not None and is_coded(quant):
            largest_scale = max(largest_scale, float(np.max(quant.scale)))
    return largest_scale
