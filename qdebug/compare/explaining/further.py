"""What else may account for a wrong real result, where no known mistake of its operator gives all of it.

Three things are looked for, the first that is found is said: a simple relation of the result to the right one, an
operand that is read otherwise than it is, and a known mistake in a part of the result while the rest is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile

import numpy as np

from qdebug.arithmetic.mistakes import Mistake, mistakes
from qdebug.arithmetic.readings import readings
from qdebug.arithmetic.relations import Result, relation_of
from qdebug.compare.attribute.band import difference, finite_norm, sum_terms
from qdebug.compare.explaining.float_band import wrong_place
from qdebug.compare.explaining.mistaken import TELLING, made_by, read_inputs, rounding_of
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Node, Recording
from qdebug.model.thresholds.explanation import FURTHER_CAUSE_MAX_SUMS, OUTLIER_ERROR_RATIO
from qdebug.replay.extents import recorded_room
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import run_node

__all__ = ["further_cause"]

Place = tuple[int, int]


def further_cause(recording: Recording, node: Node, tensor: str, places: Sequence[Place]) -> str | None:
    """Say what accounts for all of a node's recorded output, where no known mistake gives all of it; None if nothing.

    A mistake is said to be likely, a relation to the right result is a fact.

    Args:
        recording: The run.
        node: A node whose replay does not give its output.
        tensor: The output, of real numbers or of whole sums.
        places: Samples and steps to look at.
    """
    form = real_form(node, recording.graph.opset)[0]
    if recording.graph.tensors[tensor].quant is not None or tensor not in form.outputs[:1] or not places:
        return None
    try:
        case = _Case(recording, node, tensor, places)
        return case.relation() or case.reading() or case.part()  # the cheapest first
    except (KernelError, NotRecordedError, UsageError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sample:
    """A node in one sample: what it reads, what it should give, and what was recorded.

    Args:
        result: The result, beside what it should be.
        wrong: Which elements are off by more than rounding.
    """

    result: Result
    wrong: np.ndarray

    @property
    def slack(self) -> float:
        """How far a single element may be off."""
        return OUTLIER_ERROR_RATIO * self.result.allowed / math.sqrt(max(self.wrong.size, 1))


class _Case:
    """A node with a wrong output.

    Args:
        recording: The run.
        node: The node.
        tensor: Its output.
        places: Samples and steps.

    Raises:
        KernelError: It cannot be replayed.
        NotRecordedError: Something was not recorded of it.
    """

    def __init__(self, recording: Recording, node: Node, tensor: str, places: Sequence[Place]) -> None:
        self._recording, self._node, self._tensor, self._places = recording, node, tensor, places
        self._form, self._opset = real_form(node, recording.graph.opset)
        self._samples: dict[Place, _Sample] = {}
        first = self._sample(places[0]).result
        terms = sum_terms(self._form, {name: each.shape for name, each in first.operands.items()}, first.right.shape)
        sums = max(terms * first.right.size, sum(each.size for each in first.operands.values()))
        self._most = int(FURTHER_CAUSE_MAX_SUMS / sums)
        self._telling = np.unique(first.recorded).size >= (_FEW_REALS if first.allowed else TELLING)

    def _sample(self, place: Place) -> _Sample:
        if place not in self._samples:
            values, recorded = (
                read_inputs(self._recording, self._form, place),
                self._recording.load(self._tensor, *place),
            )
            with recorded_room(self._recording, place), np.errstate(all="ignore"):
                right = run_node(self._form, values, self._opset)[self._form.outputs[0]]
            if right.shape != recorded.shape:
                raise KernelError(f"The replay gives shape {right.shape} and the recording has {recorded.shape}.")
            allowed = rounding_of(self._form, values, right, recorded, self._opset)
            result = Result(right=right, recorded=recorded, allowed=allowed, operands=values)
            sample = _Sample(result=result, wrong=np.zeros(right.shape, bool))
            off = np.abs(difference(recorded, right))
            self._samples[place] = _Sample(result=result, wrong=~(off <= sample.slack))
        return self._samples[place]

    def relation(self) -> str | None:
        """Say how the elements of the result follow from the right ones in all samples."""
        found: str | None = None
        for place in self._places:
            result = self._sample(place).result
            if not (np.isfinite(result.right).all() and np.isfinite(result.recorded).all()):
                return None
            said = relation_of(result)
            if said is None or found not in (None, said):
                return None
            found = said
        return found

    def reading(self) -> str | None:
        """Say how an operand is read otherwise, if that gives every element of every sample."""
        first = self._sample(self._places[0]).result
        found = self._that_give(readings(self._form, first.operands), whole=True) if self._telling else []
        if not 0 < len(found) <= _MOST_SAID:
            return None
        return f"likely: {', or '.join(found)}: that reproduces every element"

    def part(self) -> str | None:
        """Say which mistake gives the wrong elements, all others being right."""
        first = self._sample(self._places[0])
        if np.unique(first.result.recorded[first.wrong]).size < TELLING or first.wrong.all():
            return None
        own = mistakes(self._form, first.result.operands, self._opset)
        found = self._that_give(chain(own, readings(self._form, first.result.operands)), whole=False)
        if not 0 < len(found) <= _MOST_SAID:
            return None
        where = wrong_place(self._recording, self._node, self._tensor, self._places)
        count = np.count_nonzero(first.wrong)
        place = where or f"{count} of {first.wrong.size} elements"
        return f"likely: {', or '.join(found)}: that reproduces all wrong elements, {place}"

    def _that_give(self, tried: Iterator[Mistake], *, whole: bool) -> list[str]:
        """Return the mistakes, in words, that give all elements, or all wrong ones, of every sample."""
        few = (each for _, each in takewhile(lambda pair: pair[0] < self._most, enumerate(tried)))
        found = [each.likely for each in few if self._gives(each, self._places[0], whole=whole)]
        for place in self._places[1:] if found else ():
            values = self._sample(place).result.operands
            again = chain(mistakes(self._form, values, self._opset), readings(self._form, values))
            fitting = {each.likely for each in again if each.likely in found and self._gives(each, place, whole=whole)}
            found = [each for each in found if each in fitting]
        return list(dict.fromkeys(found))

    def _gives(self, mistake: Mistake, place: Place, *, whole: bool) -> bool:
        if mistake.told:
            return False
        sample = self._sample(place)
        with recorded_room(self._recording, place):
            made = made_by(mistake, sample.result.operands, self._opset, sample.result.right)
        if made is None or made.shape != sample.wrong.shape:
            return False
        off = np.abs(difference(sample.result.recorded, made))
        if whole:
            return finite_norm(off) <= sample.result.allowed and bool(np.isfinite(off).all())
        return bool((off[sample.wrong] <= sample.slack).all())


_FEW_REALS = 3
"""Different real numbers that no reading of an operand gives by chance, as each has many digits."""
_MOST_SAID = 3
"""Mistakes that give the same, and are said together."""
