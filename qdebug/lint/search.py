"""Searches for an input on which two forms of a part differ, and replays it with the interpreter.

The inputs tried are the ends of every range in the part, a ramp over these ranges, random values, and values computed
from the network's inputs. The largest difference in exact arithmetic is then replayed. If the replay does not show it
too, there is no finding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.errors import KernelError, QdebugError
from qdebug.lint.replay import LintModel, Span, bounds_of, coded, differing
from qdebug.model import Node
from qdebug.model.json_object import JsonObject
from qdebug.model.thresholds.rewrites import REWRITE_FLOAT_MAX_REL
from qdebug.numerics.affine import dequantize, quantize

__all__ = ["LintPart", "Witness", "witness"]

_SEED = 20261126
_ELEMENTS = 1 << 19
"""Approximate number of elements tried for one part."""
_MOST, _LEAST = 24, 3
"""Maximum and minimum number of arrays tried, besides those computed from the network's inputs."""
_TIMES = (4.0, 16.0)
"""Factors by which the computed values are enlarged."""
_USUAL = 6.0
"""End of the interval assumed for unknown values."""


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

    def stored(self, values: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return the stored elements of the leaves for real values."""
        elements = {}
        for name, array in zip(self.leaves, values, strict=True):
            quant = self.model.quant(name)
            elements[name] = array if quant is None or array.dtype.kind in "iub" else quantize(array, quant)
        return elements

    def exact(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the output in exact arithmetic: unchanged, and nudged down and up before each rounding."""
        feed = self.stored(values)
        nudges = (0.0, -REWRITE_FLOAT_MAX_REL, REWRITE_FLOAT_MAX_REL)
        return [self.model.exact(self.nodes, feed, self.output, nudge) for nudge in nudges]

    def replayed(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return the output as the interpreter replays it."""
        feed = self.stored(values)
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
        values: Their real values.
        index: The output element with the largest difference.
        before: Its value without the rewrite, replayed with the interpreter.
        after: Its value with the rewrite.
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
            same_place = len(self.index) == array.ndim and all(map(int.__lt__, self.index, array.shape))
            entries.append(
                WitnessTensor(
                    tensor=name,
                    shape=array.shape,
                    values=array if array.size <= _SHOWN else None,
                    value=float(array[self.index]) if same_place else None,
                )
            )
        return tuple(entries)


_SHOWN = 64


def witness(
    before: LintPart,
    after: LintPart,
    spans: Sequence[Span],
    seen: Sequence[np.ndarray | None],
    check: Callable[[], object] = lambda: None,
) -> Witness | None:
    """Find an input on which two parts differ beyond rounding.

    Args:
        before: The part without the rewrite.
        after: The part with it. Its leaves represent the same values.
        spans: Interval of each leaf.
        seen: Real values of each leaf computed from the network's inputs, or None if there are none.
        check: Called now and then.

    Returns:
        The input, or None if none was found or the interpreter does not reproduce the difference.

    Raises:
        KernelError: A node cannot be computed, or the results have different shapes.
    """
    if any(array is None for array in seen):
        raise KernelError("The inputs of a part were not computed, so their shapes are not known.")
    arrays = [np.asarray(array) for array in seen]
    best: tuple[float, list[np.ndarray], tuple[int, ...]] | None = None
    reached = False
    for number, candidate in enumerate(_candidate_inputs(before, after, spans, arrays)):
        check()
        values = _rounded_leaves(before, after, candidate)
        difference = differing(before.exact(values), after.exact(values))
        if difference is None:
            raise KernelError("The two forms have results of different shapes.")
        most = float(difference.max()) if difference.size else 0.0
        reached = reached or (number == 0 and most > 0)
        if most > 0 and (best is None or most > best[0]):
            best = most, values, tuple(map(int, np.unravel_index(int(difference.argmax()), difference.shape)))
    if best is None:
        return None
    most, values, index = best
    try:
        result_before, result_after = before.replayed(values), after.replayed(values)
    except (QdebugError, ValueError) as error:
        raise KernelError(f"The interpreter cannot replay it: {error}") from error
    value_before, value_after = (
        float(result_before.reshape(result_before.shape)[index]),
        float(result_after.reshape(result_before.shape)[index]),
    )
    finite = math.isfinite(value_before), math.isfinite(value_after)
    if finite[0] == finite[1] if math.isinf(most) else not abs(value_before - value_after) > most / 2:
        return None
    return Witness(
        leaves=tuple(after.leaves), values=tuple(values), index=index, before=value_before, after=value_after,
        largest=most if math.isinf(most) else max(most, abs(value_before - value_after)), reached=reached,
    )  # fmt: skip


def _rounded_leaves(before: LintPart, after: LintPart, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return real values of leaves rounded to the codes of both forms, so that both read the same values."""
    rounded = []
    for array, leaf_before, leaf_after in zip(values, before.leaves, after.leaves, strict=True):
        quant = before.model.grid(leaf_before) or after.model.grid(leaf_after)
        real = quant is not None and array.dtype.kind == "f"
        rounded.append(dequantize(quantize(array, quant), quant, double=True) if quant is not None and real else array)
    return rounded


def _candidate_inputs(
    before: LintPart, after: LintPart, spans: Sequence[Span], seen: Sequence[np.ndarray]
) -> Iterator[list[np.ndarray]]:
    """Yield real values of the leaves that may reveal a difference."""
    yield list(seen)
    rng = np.random.default_rng(_SEED)
    ends = sorted({*bounds_of(before.model, before.nodes), *bounds_of(after.model, after.nodes)})
    size = max(sum(array.size for array in seen), 1)
    count = min(max(_ELEMENTS // (size * max(len(before.nodes) + len(after.nodes), 1)), _LEAST), _MOST)
    for number in range(count):
        yield [_leaf_values(array, span, ends, rng, number) for array, span in zip(seen, spans, strict=True)]
    for times in _TIMES:
        yield [
            array if array.dtype.kind in "iub" else np.clip(times * array, *span)
            for array, span in zip(seen, spans, strict=True)
        ]


def _leaf_values(
    like: np.ndarray, span: Span, ends: Sequence[float], rng: np.random.Generator, number: int
) -> np.ndarray:
    """Return values for one leaf: near the ends of ranges, on a ramp over them, or at random in between."""
    if like.dtype.kind in "iub" or not like.size:
        return like  # indices, extents
    inner = [end for end in ends if span[0] <= end <= span[1]]
    low = max(span[0], min([*inner, -_USUAL]) if not math.isfinite(span[0]) else span[0])
    high = min(span[1], max([*inner, _USUAL]) if not math.isfinite(span[1]) else span[1])
    room = (high - low) / 4
    low, high = max(span[0], low - room), min(span[1], high + room)
    if number % 3 == 0:
        # Values on both sides of each end first, then evenly spaced ones.
        near = [end + off * room for end in inner for off in (0.0, -1e-3, 1e-3, -0.1, 0.1)]
        spread = np.concatenate([near, np.linspace(low, high, max(like.size - len(near), 2) * _TURNS)])
        start = (number // 3) * like.size
        picked = np.take(spread, np.arange(start, start + like.size), mode="wrap")
    elif number % 3 == 1:
        picked = rng.uniform(low, high, like.size)
    else:
        picked = np.full(like.size, inner[number // 3 % len(inner)] if inner else rng.uniform(low, high))
    return np.asarray(np.clip(picked, *span).reshape(like.shape))


_TURNS = 4
"""Number of arrays that a ramp is spread over."""


def wide_step(part: LintPart) -> float:
    """Return the largest step of the codes that a part rounds to, or 0 if it does not round."""
    largest = 0.0
    for node in part.nodes:
        quant = part.model.stated(node, -1) or part.model.quant(node.outputs[0])
        if quant is not None and coded(quant):
            largest = max(largest, float(np.max(quant.scale)))
    return largest
