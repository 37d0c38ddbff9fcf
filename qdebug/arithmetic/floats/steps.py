"""The steps of a float kernel, as an expression over intervals in which some results may be rounded.

A recipe (see `recipes`) builds the expression of an operator. `Evaluation` computes it for one placement of roundings
after another, and reuses the results that placements have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from qdebug.numerics.float_rounding import round_float
from qdebug.numerics.intervals import Interval
from qdebug.numerics.short_formats import ShortFormat

__all__ = ["AS_RECORDED", "UNROUNDED", "Evaluation", "Step", "edges_of", "source"]

UNROUNDED = "float32"
"""The word of an edge that is not rounded."""
AS_RECORDED = "recorded"
"""The word of an edge whose recorded values are read instead of computed ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of a kernel.

    Args:
        apply: Computes its result from the results of the steps that it reads.
        reads: The steps that it reads.
        edge: Name of its result for users, if the result may be rounded. Empty if it never is.
        recorded: Recorded values that a kernel may read instead of the result, or None.
        words: The possible treatments of the result, the usual one first: a rounding, `UNROUNDED` or `AS_RECORDED`.
        edges: The edges that its result depends on, including its own.
    """

    apply: Callable[..., Interval]
    reads: tuple[Step, ...] = ()
    edge: str = ""
    recorded: Interval | None = None
    words: tuple[str, ...] = ()
    edges: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        own_edges = {self.edge} if self.edge else set()
        object.__setattr__(self, "edges", frozenset().union(own_edges, *(step.edges for step in self.reads)))

    def __add__(self, other: Step) -> Step:
        return Step(Interval.plus, (self, other))

    def __sub__(self, other: Step) -> Step:
        return Step(Interval.minus, (self, other))

    def __mul__(self, other: Step) -> Step:
        return Step(Interval.times, (self, other))

    def __truediv__(self, other: Step) -> Step:
        return Step(Interval.over, (self, other))

    def through(self, function: Callable[[np.ndarray], np.ndarray], *, units: float | None = None) -> Step:
        """Return the step that applies a monotone function to the result, see `Interval.through`."""
        keywords = {} if units is None else {"units": units}
        return Step(lambda each: each.through(function, **keywords), (self,))

    def mapped(self, function: Callable[[np.ndarray], np.ndarray]) -> Step:
        """Return the step that applies an increasing function without rounding error to the result."""
        return Step(lambda each: each.mapped(function), (self,))

    def total(self, axes: tuple[int, ...]) -> Step:
        """Return the step that sums the result over axes, in any order."""
        return Step(lambda each: each.total(axes), (self,))

    def named(self, edge: str) -> Step:
        """Return this step with a named result, which a kernel may round to the node's format."""
        return Step(self.apply, self.reads, edge, None, (UNROUNDED, "even", "zero"))

    def between(self, edge: str) -> Step:
        """Return this step with a named result that the graph rounds, although a fused kernel may not.

        For the unrecorded output of another node.
        """
        return Step(self.apply, self.reads, edge, None, ("even", UNROUNDED, "zero"))

    def or_recorded(self, edge: str, values: np.ndarray) -> Step:
        """Return this step with a named result whose recorded values are usually read instead.

        For the recorded output of another node.
        """
        return Step(self.apply, self.reads, edge, Interval.exactly(values), (AS_RECORDED, UNROUNDED))


def source(values: np.ndarray | float) -> Step:
    """Return a step whose result is the given values."""
    numbers = Interval.exactly(np.asarray(values))
    return Step(lambda: numbers)


def edges_of(step: Step) -> Mapping[str, tuple[str, ...]]:
    """Return the possible words of each edge of an expression, in order from its inputs to its result."""
    words: dict[str, tuple[str, ...]] = {}
    visited: set[int] = set()

    def visit(operand: Step) -> None:
        if id(operand) in visited:
            return
        visited.add(id(operand))
        for inner in operand.reads:
            visit(inner)
        if operand.edge:
            words[operand.edge] = operand.words

    visit(step)
    return words


class Evaluation:
    """Computes an expression for several placements. Parts that they have in common are computed once.

    Args:
        step: The result of the expression.
        short: The format to which edges are rounded.
    """

    def __init__(self, step: Step, short: ShortFormat) -> None:
        self._step, self._short = step, short
        self._results: dict[tuple[int, tuple[str, ...]], Interval] = {}

    def evaluate(self, placement: Mapping[str, str]) -> Interval:
        """Return the result of the expression for a placement, given as a word for each edge."""
        return self._compute(self._step, placement)

    def sizes(self, placement: Mapping[str, str]) -> Mapping[str, int]:
        """Return the number of values of each edge, computed with a placement."""
        sizes: dict[str, int] = {}
        visited: set[int] = set()

        def visit(step: Step) -> None:
            if id(step) in visited:
                return
            visited.add(id(step))
            for operand in step.reads:
                visit(operand)
            if step.edge and step.edge not in sizes:
                with np.errstate(all="ignore"):
                    sizes[step.edge] = self._compute(step, placement).low.size

        visit(self._step)
        return sizes

    def _compute(self, step: Step, placement: Mapping[str, str]) -> Interval:
        key = id(step), tuple(placement[edge] for edge in sorted(step.edges))
        if key not in self._results:
            self._results[key] = self._compute_and_round(step, placement)
        return self._results[key]

    def _compute_and_round(self, step: Step, placement: Mapping[str, str]) -> Interval:
        word = placement[step.edge] if step.edge else UNROUNDED
        if word == AS_RECORDED and step.recorded is not None:
            return step.recorded
        result = step.apply(*(self._compute(operand, placement) for operand in step.reads))
        if word == UNROUNDED:
            return result
        return result.mapped(partial(round_float, short=self._short, rounding=word))
