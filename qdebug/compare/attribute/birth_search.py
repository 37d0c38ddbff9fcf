"""Finds where a NaN or an infinity originates, and by which rule.

It originates in a node whose inputs do not account for it: they are finite, their non-finite values are equal on both
sides, or it would appear without them. The node is recomputed in float64 on its recorded inputs. A finite result beyond
the largest number of the format is an overflow. If the exact result is not finite either, the operands show why.
Recomputing the node with the reference's values for one input shows whether the error of that input alone selects the
non-finite result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np

from qdebug.compare.attribute.backend_replay import inputs_of, real_values
from qdebug.compare.attribute.birth import Birth, BirthOperand, BirthRule, Selector
from qdebug.compare.attribute.graph_walk import between
from qdebug.compare.attribute.input_errors import partner_values, replayed_with
from qdebug.compare.attribute.reference_replay import ReferenceReplay
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Graph, Node, operators
from qdebug.numerics.short_formats import held_format
from qdebug.replay.precision import is_real
from qdebug.replay.real_form import real_form
from qdebug.replay.segment import run_form

__all__ = ["find_birth", "one_sided"]


def one_sided(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return which elements are NaN or infinite and differ from the other side.

    Args:
        ours: The elements.
        theirs: The other side's elements, in the same shape.
    """
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    return np.asarray(~np.isfinite(ours) & ~same)


def find_birth(replays: ReferenceReplay, tensor: str, place: tuple[int, int]) -> Birth | None:
    """Find where the non-finite values of a compared backend tensor originate: in its own or an earlier unpaired node.

    Args:
        replays: Both runs and their pairs.
        tensor: The backend tensor.
        place: Sample and step.

    Returns:
        The origin, or None if the inputs account for all non-finite values or it is unknown whether they do.
    """
    recording = replays.be.recording
    nodes, entries = between(recording.graph, tensor, replays.pairs)
    try:
        expected = {tensor: partner_values(replays, tensor, place)}
        if not _wrong(replays, tensor, expected[tensor], place).any():
            return None
        if len(nodes) > 1:  # what has no partner is held against a replay of what the reference has above it
            theirs = {name: partner_values(replays, name, place) for name in entries}
            made = [name for node in nodes for name in node.outputs if name and recording.has(name, *place)]
            inside = [name for name in made if name not in replays.pairs]
            expected |= {name: replayed_with(replays, nodes, name, theirs, place) for name in inside}
        for node in nodes:
            for name in (name for name in node.outputs if name in expected):
                wrong = _wrong(replays, name, expected[name], place)
                found = _Node(replays, node, name, place, expected).birth(wrong) if wrong.any() else None
                if found is not None:
                    return found
    except (KernelError, NotRecordedError, UsageError):
        return None
    return None


def _wrong(replays: ReferenceReplay, name: str, theirs: np.ndarray, place: tuple[int, int]) -> np.ndarray:
    """Return which elements of a backend tensor are not finite but should be; none if the shapes differ."""
    ours = real_values(replays.be.recording, name, place).astype(np.float64)
    return one_sided(ours, theirs) if ours.shape == theirs.shape else np.zeros(ours.shape, bool)


class _Node:
    """A backend node with its inputs from both sides, in float64.

    Args:
        replays: Both runs and their pairs.
        node: The node.
        tensor: Its output.
        place: Sample and step.
        expected: Expected values by tensor name: the output, and tensors without a partner.

    Raises:
        KernelError: An input is stored in an unsupported dimension order.
        RecordingError: An input was not recorded.
    """

    def __init__(
        self,
        replays: ReferenceReplay,
        node: Node,
        tensor: str,
        place: tuple[int, int],
        expected: Mapping[str, np.ndarray],
    ) -> None:
        self._replays, self._node, self._tensor, self._place = replays, node, tensor, place
        self._expected = expected
        self._graph: Graph = replays.be.recording.graph
        self._form, self._opset = real_form(node, self._graph.opset)
        self._row = operators.of(self._form.op)
        read = inputs_of(replays.be.recording, self._form, place)
        self._real = frozenset(name for name, array in read.items() if is_real(array.dtype))
        self._ours = {name: self._wide(name, array) for name, array in read.items()}
        self._theirs = {name: other for name in read if (other := self._partner(name)) is not None}

    def _wide(self, name: str, array: np.ndarray) -> np.ndarray:
        return array.astype(np.float64) if name in self._real else array

    def _partner(self, name: str) -> np.ndarray | None:
        """Return the reference's values of an input, or None if they are unknown or have a different shape."""
        reference = self._replays.ref.recording
        if name in self._replays.pairs:
            other = partner_values(self._replays, name, self._place)
        elif name in self._expected:
            other = self._expected[name]
        elif self._graph.is_constant(name) and reference.graph.is_constant(name) and reference.has(name):
            other = real_values(reference, name)
        else:
            return None
        return self._wide(name, other) if other.shape == self._ours[name].shape else None

    def birth(self, bad: np.ndarray) -> Birth | None:
        """Return the first birth among non-finite elements, or None if the inputs account for all of them.

        Args:
            bad: Which elements of the tensor are not finite and differ from the other side.
        """
        recording, place = self._replays.be.recording, self._place
        stored = recording.load(self._tensor, *place)
        if self._graph.tensors[self._tensor].quant is not None:
            return None
        arriving = {name: mask for name in self._real if (mask := self._arriving(name)).any()}
        if any(self._graph.tensors[name].quant is not None for name in arriving):
            return None  # a code's real value overflows float32; another finding reports that
        constants = [name for name in arriving if self._graph.is_constant(name)]
        varying = {name: mask for name, mask in arriving.items() if name not in constants}
        if varying:
            without = self._without(varying, stored)
            if without is None:
                return None
            bad = bad & without
        if not bad.any():
            return None
        index = tuple(int(at) for at in np.argwhere(bad)[0])
        found = Birth(
            node=self._node.name,
            op=self._node.op,
            tensor=self._tensor,
            sample=place[0],
            step=place[1],
            index=index,
            value=float(stored[index]),
            elements=int(np.count_nonzero(bad)),
            rule=BirthRule.CONSTANT if constants else BirthRule.UNKNOWN,
            operands=tuple(self._constant(name, arriving[name]) for name in constants),
        )
        return found if constants else self._selected(self._explained(found, stored))

    def _without(self, arriving: Mapping[str, np.ndarray], stored: np.ndarray) -> np.ndarray | None:
        """Return which elements are not finite regardless of non-finite inputs, or None if unknown.

        If an element changes when an infinity is replaced by another value, the infinity accounts for it.

        Args:
            arriving: Which elements of each input are not finite.
            stored: The output.
        """
        first, second = (
            self._computed(
                self._ours | {name: np.where(mask, fill, self._ours[name]) for name, mask in arriving.items()}
            )
            for fill in (0.0, 1.0)
        )
        if first is None or second is None or first.shape != stored.shape:
            return None
        alike = (first == second) | (np.isnan(first) & np.isnan(second))
        return np.asarray(alike & ~(np.abs(first) <= _format(stored, math.inf)[0]))

    def _arriving(self, name: str) -> np.ndarray:
        """Return which elements of an input are not finite and differ from the reference."""
        if name in self._theirs:
            return one_sided(self._ours[name], self._theirs[name])
        unknown = self._graph.is_constant(name)  # an unpaired constant cannot be accused
        return np.zeros(self._ours[name].shape, bool) if unknown else ~np.isfinite(self._ours[name])

    def _constant(self, name: str, wrong: np.ndarray) -> BirthOperand:
        return BirthOperand(tensor=name, value=float(self._ours[name][wrong][0]))

    def _computed(self, values: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """Compute the node in float64, or return None if that is not possible."""
        if self._row.casts:
            return values[self._form.inputs[0]]  # a cast rounds only afterwards
        try:
            made = run_form(self._node, self._form, self._opset, values)[self._tensor]
        except (KernelError, UsageError):
            return None
        return made.astype(np.float64)

    def _explained(self, found: Birth, stored: np.ndarray) -> Birth:
        """Return the birth of an element with its rule and operands."""
        made = self._computed(self._ours)
        found = replace(found, operands=self._operands(found.index))
        if made is None or made.shape != stored.shape:
            return found
        exact = float(made[found.index])
        found = replace(found, exact=exact)
        if not math.isfinite(exact):
            return self._no_number(found, stored)
        largest, name = _format(stored, exact)
        if abs(exact) > largest:
            return replace(found, rule=BirthRule.OVERFLOW, format=name, largest=largest)
        terms = self._magnitudes()
        largest, name = _format(stored, math.inf if terms is None else float(terms[found.index]))
        if terms is not None and float(terms[found.index]) > largest:
            return replace(found, rule=BirthRule.SUM_OVERFLOW, format=name, largest=largest)
        largest, name = _format(stored, math.inf)
        if self._overflows_inside(stored, largest):
            read = next(iter(self._real))
            own = BirthOperand(tensor=read, value=float(self._ours[read][found.index]))
            return replace(found, rule=BirthRule.INSIDE_OVERFLOW, operands=(own,), format=name, largest=largest)
        return replace(found, rule=BirthRule.ARITHMETIC)

    def _overflows_inside(self, stored: np.ndarray, largest: float) -> bool:
        """Return whether a one-operand function is non-finite exactly where its operand's exponential overflows."""
        if not self._row.through_exp or len(self._real) != 1:
            return False
        values = self._ours[next(iter(self._real))]
        if values.shape != stored.shape:
            return False
        beyond = np.abs(values.astype(np.float64)) > math.log(largest)
        return bool(np.array_equal(beyond & ~np.isfinite(stored), ~np.isfinite(stored)) and not beyond.all())

    def _operands(self, index: tuple[int, ...]) -> tuple[BirthOperand, ...]:
        shape = np.broadcast_shapes(*(array.shape for array in self._ours.values())) if self._row.elementwise else None
        found = []
        for name in filter(None, self._form.inputs):
            array = self._ours[name]
            if shape is not None and len(shape) == len(index):
                value = float(np.broadcast_to(array, shape)[index])
            elif name in self._real and array.size:
                value = float(array.flat[int(np.nan_to_num(np.abs(array), nan=np.inf, posinf=np.inf).argmax())])
            else:
                continue
            found.append(BirthOperand(tensor=name, value=value))
        return tuple(found)

    def _magnitudes(self) -> np.ndarray | None:
        """Return the sums with each term replaced by its magnitude, or None if the operator has no sums."""
        if self._row.sums is None:
            return None
        return self._computed({name: np.abs(a) if name in self._real else a for name, a in self._ours.items()})

    def _no_number(self, found: Birth, stored: np.ndarray) -> Birth:
        """Return a birth with the rule that explains why its exact result is not finite."""
        row, values = self._row, [operand.value for operand in found.operands]
        if row.moves or row.selects or row.keeps_values or row.casts:
            sources = [name for name in self._real if not np.all(np.isfinite(self._ours[name]))]
            taken = tuple(each for each in found.operands if each.tensor in sources)
            return replace(found, rule=BirthRule.TAKEN, operands=taken)
        rule = _elementwise_rule(row, values) if row.elementwise and values else None
        if rule is BirthRule.DOMAIN and row.domain is not None:
            return replace(found, rule=rule, function=row.domain.function)
        read = [self._ours[name] for name in self._real]
        if rule is None and all(np.all(np.isfinite(array)) for array in read):
            if row.elementwise:  # the exact result overflows float64
                largest, name = _format(stored, math.inf)
                return replace(found, rule=BirthRule.OVERFLOW, exact=None, format=name, largest=largest)
        elif rule is None and _from_infinities(found, read) and row.product:
            terms = self._magnitudes()
            zeros = terms is not None and math.isnan(float(terms[found.index]))
            rule = BirthRule.ZERO_TIMES_INFINITY if zeros else BirthRule.INFINITIES
        elif rule is None and _from_infinities(found, read) and (row.sums is not None or row.hides_low):
            rule = BirthRule.INFINITIES
        return replace(found, rule=rule or BirthRule.UNDEFINED)

    def _selected(self, found: Birth) -> Birth:
        """Return a birth with the inputs whose reference values make the result finite, or equal to the reference's."""
        stored = self._replays.be.recording.load(self._tensor, *self._place)

        right = float(self._expected[self._tensor][found.index])

        def finite(values: Mapping[str, np.ndarray]) -> bool:
            made = self._computed(values)
            if made is None or made.shape != stored.shape:
                return False
            exact = float(made[found.index])
            if not math.isfinite(right):
                return _alike(np.array(exact), np.array(right))
            return math.isfinite(exact) and abs(exact) <= _format(stored, exact)[0]

        other = {name: array for name, array in self._theirs.items() if not self._graph.is_constant(name)}
        other = {name: array for name, array in other.items() if not _alike(array, self._ours[name])}
        none = (BirthRule.ARITHMETIC, BirthRule.UNKNOWN, BirthRule.INSIDE_OVERFLOW)
        if found.rule in none or not other or not finite(self._ours | other):
            return found
        alone = [name for name in other if finite(self._ours | {name: other[name]})] or list(other)
        return replace(found, selected=tuple(self._selector(name, found.index) for name in alone))

    def _selector(self, name: str, index: tuple[int, ...]) -> Selector:
        apart = np.abs(np.subtract(self._ours[name], self._theirs[name], dtype=np.float64))
        if self._row.elementwise:
            shape = np.broadcast_shapes(*(array.shape for array in self._ours.values()))
            apart = np.broadcast_to(apart, shape)[index] if len(shape) == len(index) else apart
        finite = np.asarray(apart)[np.isfinite(apart)]
        return Selector(tensor=name, difference=float(finite.max(initial=0.0)))


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _from_infinities(found: Birth, read: Sequence[np.ndarray]) -> bool:
    """Return whether the exact result is NaN although none of the inputs is."""
    return math.isnan(found.exact or 0.0) and not any(np.any(np.isnan(array)) for array in read)


def _elementwise_rule(row: operators.Operator, values: list[float]) -> BirthRule | None:
    """Return the rule by which the operands give a non-finite result, or None if no rule is known."""
    infinite = [math.isinf(value) for value in values]
    found: BirthRule | None = None
    if row.divisor is not None and row.divisor < len(values):
        divisor, others = values[row.divisor], [v for at, v in enumerate(values) if at != row.divisor]
        if divisor == 0:
            found = BirthRule.ZERO_BY_ZERO if others and others[0] == 0 else BirthRule.BY_ZERO
        elif all(infinite) and len(values) > 1:
            found = BirthRule.INFINITY_BY_INFINITY
    elif row.domain is not None and not row.domain.holds(values[0]):
        found = BirthRule.DOMAIN
    elif row.is_power:
        fraction, inverse = values[0] < 0 and not values[1].is_integer(), values[0] == 0 and values[1] < 0
        found = BirthRule.POWER if fraction or inverse else None
    elif row.adds and sum(infinite) > 1:
        found = BirthRule.INFINITIES
    elif row.neutral == 1 and any(infinite) and 0 in values:
        found = BirthRule.ZERO_TIMES_INFINITY
    return found


def _format(stored: np.ndarray, exact: float) -> tuple[float, str]:
    """Return the largest number of the format that a result was rounded to, and the format's name.

    A runtime may store values of a short format in a longer one. The short format counts if the exact result overflows
    it and all recorded values fit it.
    """
    try:
        largest = float(ml_dtypes.finfo(stored.dtype).max)  # type: ignore[no-untyped-call]  # untyped upstream
    except ValueError:
        return math.inf, stored.dtype.name
    short = held_format(stored) if abs(exact) <= largest or math.isinf(exact) else None
    if short is not None and short.largest < abs(exact):
        return short.largest, short.name
    return largest, stored.dtype.name
