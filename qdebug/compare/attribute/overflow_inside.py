"""Finds an overflow inside a fused layer, whose inner results were not recorded, that makes its output non-finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from types import MappingProxyType

import numpy as np

from qdebug.compare.attribute.backend_replay import load_input, real_values
from qdebug.compare.attribute.birth import Birth, BirthOperand, BirthRule
from qdebug.model import Graph, Node, Recording, operators
from qdebug.model.thresholds.explanation import OVERFLOW_LIMIT_SLACK
from qdebug.numerics.short_formats import ShortFormat, format_of
from qdebug.replay.extents import recorded_limits
from qdebug.replay.precision import is_real
from qdebug.replay.segment import run_real, run_segment

__all__ = ["find_overflow_inside"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Factor:
    """A constant by which an operand of a product is multiplied inside the layer.

    Args:
        tensor: The constant.
        value: The factor.
    """

    tensor: str
    value: float


def find_overflow_inside(
    recording: Recording, nodes: Sequence[Node], tensor: str, place: tuple[int, int]
) -> Birth | None:
    """Find the node of a layer whose overflow makes exactly the non-finite elements of the layer's output.

    A kernel may also multiply first and scale afterwards. Such a product is tried without the constant factors of its
    operands.

    Args:
        recording: The run, with finite inputs of the layer.
        nodes: The nodes of the layer, in order.
        tensor: The output of the last node.
        place: Sample and step.

    Returns:
        The overflow, or None if there is none, or the output has no short format.

    Raises:
        KernelError: A node cannot be replayed.
        RecordingError: An input was not recorded.
    """
    recorded = real_values(recording, tensor, place)
    is_bad = ~np.isfinite(recorded)
    short = format_of(recorded)
    if short is None or not is_bad.any():
        return None
    layer = _Layer(recording, nodes, tensor, place)
    results = layer.results()
    for node in nodes[:-1]:
        name = node.outputs[0]
        if name not in results or not is_real(results[name].dtype):
            continue
        for factors in _choices_of_factors(recording, nodes, node):
            exact = results[name] / math.prod(factor.value for factor in factors)
            if not layer.is_explained_by(name, partial(_with_infinities, exact), short.largest, is_bad):
                continue
            # infinities of one sign may do no harm, as before a softmax
            for harmful in (np.maximum(exact, 0), np.minimum(exact, 0)):
                if layer.is_explained_by(name, partial(_with_infinities, harmful), short.largest, is_bad):
                    return _birth(node, harmful, factors, short, place)
            return _birth(node, exact, factors, short, place)
        data = results.get(node.inputs[0]) if operators.of(node.op).through_exp else None
        if data is not None and data.shape == results[name].shape:
            overflowed = partial(_with_overflowing_exponentials, results[name], data)
            if layer.is_explained_by(name, overflowed, short.largest, is_bad):
                birth = _birth(node, np.maximum(data, 0), (), short, place)
                return _birth_in_exponential(birth, node.inputs[0], data, results[name])
    return None


def _birth_in_exponential(birth: Birth, tensor: str, data: np.ndarray, result: np.ndarray) -> Birth:
    """Return the birth at the largest operand of an exponential."""
    operand = BirthOperand(tensor=tensor, value=float(data[birth.index]))
    return replace(
        birth,
        value=math.nan,
        elements=int(np.count_nonzero(data > math.log(birth.largest or math.inf))),
        rule=BirthRule.INSIDE_OVERFLOW,
        operands=(operand,),
        exact=float(result[birth.index]),
    )


def _with_infinities(exact: np.ndarray, limit: float) -> np.ndarray:
    """Return a result in which numbers beyond a limit are infinite."""
    return np.where(np.abs(exact) > limit, np.copysign(np.inf, exact), exact)


def _with_overflowing_exponentials(result: np.ndarray, data: np.ndarray, limit: float) -> np.ndarray:
    """Return a result that is NaN where the exponential of the data is beyond a limit."""
    return np.where(data > math.log(limit), np.nan, result)


class _Layer:
    """A layer that is replayed in float64.

    Args:
        recording: The run.
        nodes: The nodes, in order.
        tensor: The output of the last node.
        place: Sample and step.
    """

    def __init__(self, recording: Recording, nodes: Sequence[Node], tensor: str, place: tuple[int, int]) -> None:
        self._recording, self._nodes, self._tensor, self._place = recording, nodes, tensor, place

    def results(self, instead: Mapping[str, np.ndarray] = MappingProxyType({})) -> dict[str, np.ndarray]:
        """Return the results of all nodes.

        Args:
            instead: Results that replace computed ones, by name.

        Raises:
            KernelError: A node cannot be replayed.
            RecordingError: An input was not recorded.
        """
        results: dict[str, np.ndarray] = {}

        def read(form: Node, name: str) -> np.ndarray:
            values = load_input(self._recording, self._place, form, name)
            return values.astype(np.float64) if is_real(values.dtype) else values

        def run(
            node: Node, form: Node, opset: Mapping[str, int], values: Mapping[str, np.ndarray]
        ) -> Mapping[str, np.ndarray]:
            outputs = {**run_real(node, form, opset, values)}
            outputs |= {name: instead[name] for name in outputs if name in instead}
            results.update(outputs)
            return outputs

        with recorded_limits(self._recording, self._place), np.errstate(all="ignore"):
            run_segment(self._nodes, self._tensor, self._recording.graph.opset, read, run)
        return results

    def is_explained_by(
        self, name: str, overflowed: Callable[[float], np.ndarray], largest: float, is_bad: np.ndarray
    ) -> bool:
        """Return whether the overflow of a result makes exactly the given elements of the output non-finite.

        Args:
            name: The result.
            overflowed: Returns its values with overflow beyond a limit.
            largest: The largest number of the format.
            is_bad: The elements.
        """
        certain, possible = (
            overflowed(largest * factor) for factor in (1 + OVERFLOW_LIMIT_SLACK, 1 - OVERFLOW_LIMIT_SLACK)
        )
        if np.isfinite(possible).all():
            return False
        is_certain, is_possible = (
            ~np.isfinite(self.results({name: each})[self._tensor]) for each in (certain, possible)
        )
        if is_certain.shape != is_bad.shape or not is_certain.any():
            return False
        return not (is_certain & ~is_bad).any() and not (is_bad & ~is_possible).any()


def _choices_of_factors(recording: Recording, nodes: Sequence[Node], node: Node) -> Iterator[tuple[_Factor, ...]]:
    """Yield the factors that a kernel may apply after a product instead of before: none of them first."""
    yield ()
    if not operators.plain(node).product:
        return
    inner_nodes = {name: each for each in nodes for name in each.outputs}
    factors = list(filter(None, (_factor_before(recording, inner_nodes, name) for name in node.inputs[:2])))
    for count in range(1, len(factors) + 1):
        yield from combinations(factors, count)


def _factor_before(recording: Recording, inner_nodes: Mapping[str, Node], name: str) -> _Factor | None:
    """Return the constant by which a tensor was multiplied inside the layer, before it was at most moved, or None."""
    graph: Graph = recording.graph
    while name in inner_nodes:
        node = inner_nodes[name]
        row = operators.plain(node)
        if row.elementwise and (row.neutral == 1 or row.divisor == 1) and len(node.inputs) == len(("data", "factor")):
            constants = [each for each in node.inputs if graph.is_constant(each) and recording.has(each)]
            number = recording.load(constants[0]) if len(constants) == 1 else np.zeros(0)
            if (
                number.size != 1
                or not float(number.reshape(()))
                or (row.divisor == 1 and constants[0] != node.inputs[1])
            ):
                return None
            value = float(number.reshape(()))
            return _Factor(tensor=constants[0], value=1 / value if row.divisor == 1 else value)
        if not (row.keeps_values or row.moves is not None or row.casts):
            return None
        name = node.inputs[0]
    return None


def _birth(
    node: Node, exact: np.ndarray, factors: Sequence[_Factor], short: ShortFormat, place: tuple[int, int]
) -> Birth:
    index = np.unravel_index(int(np.nanargmax(np.abs(exact))), exact.shape)
    largest = float(exact[index])
    return Birth(
        node=node.name,
        op=node.op,
        tensor=node.outputs[0],
        sample=place[0],
        step=place[1],
        index=tuple(int(at) for at in index),
        value=math.copysign(math.inf, largest),
        elements=int(np.count_nonzero(np.abs(exact) > short.largest)),
        rule=BirthRule.UNSCALED_OVERFLOW if factors else BirthRule.OVERFLOW,
        operands=tuple(BirthOperand(tensor=factor.tensor, value=factor.value) for factor in factors),
        exact=largest,
        format=short.name,
        largest=short.largest,
    )
