"""Looks for an input by which two forms of a part of a network differ, and replays it by the interpreter.

What the parts read is tried at the ends of every range in them, on a ramp over these, at random, and as it was computed
from the network's inputs. The largest difference in exact arithmetic is then replayed: what does not come out again is
no finding.
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
"""Elements that are tried for one part, about."""
_MOST, _LEAST = 24, 3
"""Arrays that are tried at most, and at least, besides what was computed from the network's inputs."""
_TIMES = (4.0, 16.0)
"""By what these are enlarged."""
_USUAL = 6.0
"""Where values lie of which nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LintPart:
    """A part of a model that makes one tensor of others.

    Args:
        model: The model.
        nodes: The nodes, in topological order.
        output: The tensor.
        leaves: What it reads, in the order of the other part's.
    """

    model: LintModel
    nodes: Sequence[Node]
    output: str
    leaves: Sequence[str]

    def stored(self, values: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return what the leaves hold if they have such real values."""
        held = {}
        for name, array in zip(self.leaves, values, strict=True):
            quant = self.model.quant(name)
            held[name] = array if quant is None or array.dtype.kind in "iub" else quantize(array, quant)
        return held

    def exact(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the output in exact arithmetic: as it is, and nudged down and up before each rounding."""
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
        """Return what values the output can have."""
        known = dict(zip(self.leaves, leaves, strict=True))
        return self.model.span(self.output, self.model.spans(self.nodes, known))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WitnessTensor(JsonObject):
    """One of the tensors that the parts read; `values` is None of a large one, `value` where it has no such place."""

    tensor: str
    shape: tuple[int, ...]
    values: np.ndarray | None
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Witness(JsonObject):
    """An input by which two parts differ.

    Args:
        leaves: Names of what the parts read, as the changed model has them.
        values: Their real values.
        index: The element of the output that differs most.
        before: Its value without the rewrite, as the interpreter replays it.
        after: The same with it.
        largest: The largest difference that was found, in real units.
        reached: Whether values that were computed from inputs of the network show a difference, too.
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
        """What the parts read: all values of small arrays, and the value at the same place."""
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
    """Find an input by which two parts differ beyond rounding.

    Args:
        before: The part without the rewrite.
        after: The same with it; its leaves stand for the same values.
        spans: What values each leaf can have.
        seen: Real values of each leaf that were computed from the network's inputs; None where there are none.
        check: Called now and then.

    Returns:
        None if none was found, or the interpreter does not reproduce the difference.

    Raises:
        KernelError: A node cannot be computed, or the results have other shapes.
    """
    if any(array is None for array in seen):
        raise KernelError("What a part reads was not computed, so its extents are not known.")
    arrays = [np.asarray(array) for array in seen]
    best: tuple[float, list[np.ndarray], tuple[int, ...]] | None = None
    reached = False
    for number, made in enumerate(_tried(before, after, spans, arrays)):
        check()
        values = _snapped(before, after, made)
        apart = differing(before.exact(values), after.exact(values))
        if apart is None:
            raise KernelError("The two forms give results of different shapes.")
        most = float(apart.max()) if apart.size else 0.0
        reached = reached or (number == 0 and most > 0)
        if most > 0 and (best is None or most > best[0]):
            best = most, values, tuple(map(int, np.unravel_index(int(apart.argmax()), apart.shape)))
    if best is None:
        return None
    most, values, index = best
    try:
        ours, theirs = before.replayed(values), after.replayed(values)
    except (QdebugError, ValueError) as error:
        raise KernelError(f"The interpreter does not replay it: {error}") from error
    one, other = float(ours.reshape(ours.shape)[index]), float(theirs.reshape(ours.shape)[index])
    finite = math.isfinite(one), math.isfinite(other)
    if finite[0] == finite[1] if math.isinf(most) else not abs(one - other) > most / 2:
        return None
    return Witness(
        leaves=tuple(after.leaves), values=tuple(values), index=index, before=one, after=other,
        largest=most if math.isinf(most) else max(most, abs(one - other)), reached=reached,
    )  # fmt: skip


def _snapped(before: LintPart, after: LintPart, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return real values of leaves rounded to the codes that either form has there, so that both read the same."""
    found = []
    for array, ours, theirs in zip(values, before.leaves, after.leaves, strict=True):
        quant = before.model.grid(ours) or after.model.grid(theirs)
        real = quant is not None and array.dtype.kind == "f"
        found.append(dequantize(quantize(array, quant), quant, double=True) if quant is not None and real else array)
    return found


def _tried(
    before: LintPart, after: LintPart, spans: Sequence[Span], seen: Sequence[np.ndarray]
) -> Iterator[list[np.ndarray]]:
    """Yield real values of the leaves that may show a difference."""
    yield list(seen)
    rng = np.random.default_rng(_SEED)
    ends = sorted({*bounds_of(before.model, before.nodes), *bounds_of(after.model, after.nodes)})
    size = max(sum(array.size for array in seen), 1)
    count = min(max(_ELEMENTS // (size * max(len(before.nodes) + len(after.nodes), 1)), _LEAST), _MOST)
    for number in range(count):
        yield [_made(array, span, ends, rng, number) for array, span in zip(seen, spans, strict=True)]
    for times in _TIMES:
        yield [
            array if array.dtype.kind in "iub" else np.clip(times * array, *span)
            for array, span in zip(seen, spans, strict=True)
        ]


def _made(like: np.ndarray, span: Span, ends: Sequence[float], rng: np.random.Generator, number: int) -> np.ndarray:
    """Return values for one leaf: about the ends of ranges, on a ramp over them, or at random between."""
    if like.dtype.kind in "iub" or not like.size:
        return like  # indices, extents
    inner = [end for end in ends if span[0] <= end <= span[1]]
    low = max(span[0], min([*inner, -_USUAL]) if not math.isfinite(span[0]) else span[0])
    high = min(span[1], max([*inner, _USUAL]) if not math.isfinite(span[1]) else span[1])
    room = (high - low) / 4
    low, high = max(span[0], low - room), min(span[1], high + room)
    if number % 3 == 0:
        # each end from both sides, then evenly
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
"""How many arrays a ramp is spread over."""


def wide_step(part: LintPart) -> float:
    """Return the largest step of the codes that a part rounds to; 0 if it rounds to none."""
    found = 0.0
    for node in part.nodes:
        quant = part.model.stated(node, -1) or part.model.quant(node.outputs[0])
        if quant is not None and coded(quant):
            found = max(found, float(np.max(quant.scale)))
    return found
