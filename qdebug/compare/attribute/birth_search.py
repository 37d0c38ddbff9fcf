"""Finds where a NaN or an infinity originates, and by which rule.

It originates in a node whose inputs do not account for it: they are finite, their non-finite values are equal on both
sides, or it would appear without them. The node is recomputed in float64 on its recorded inputs. A finite result that
exceeds the largest number of the format is an overflow. If the exact result is not finite either, the operands show
why. Recomputing the node with the reference's values for one input shows whether the error of that input alone causes
the non-finite result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np

from qdebug.arithmetic.patterns.wrong_places import may_be_chance
from qdebug.compare.attribute.backend_replay import inputs_of, real_values
from qdebug.compare.attribute.birth import Birth, BirthOperand, BirthRule, Selector
from qdebug.compare.attribute.graph_walk import between
from qdebug.compare.attribute.input_errors import partner_values, replay_with
from qdebug.compare.attribute.overflow_inside import find_overflow_inside
from qdebug.compare.attribute.reference_replay import ReferenceReplay
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Graph, Node, operators
from qdebug.model.thresholds.explanation import CAUSE_MIN_DISTINCT_VALUES
from qdebug.numerics.short_formats import SHORT_FORMATS, ShortFormat, detect_rounded_format
from qdebug.replay.precision import is_real
from qdebug.replay.real_form import real_form
from qdebug.replay.segment import run_form

__all__ = ["find_birth", "is_one_sided_nonfinite"]


def is_one_sided_nonfinite(values: np.ndarray, other_values: np.ndarray) -> np.ndarray:
    """Return which elements are NaN or infinite and differ from the other side.

    Args:
        values: The elements.
        other_values: The other side's elements, in the same shape.
    """
    same = (values == other_values) | (np.isnan(values) & np.isnan(other_values))
    return np.asarray(~np.isfinite(values) & ~same)


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
        if not _nonfinite_errors(replays, tensor, expected[tensor], place).any():
            return None
        if len(nodes) > 1:
            # Tensors between the nodes have no partner: compare them with a replay on the reference's inputs.
            reference_inputs = {name: partner_values(replays, name, place) for name in entries}
            recorded_outputs = [name for node in nodes for name in node.outputs if name and recording.has(name, *place)]
            inside = [name for name in recorded_outputs if name not in replays.pairs]
            expected |= {name: replay_with(replays, nodes, name, reference_inputs, place) for name in inside}
        for node in nodes:
            is_replayable = all(recording.has(name, *place) for name in node.inputs if name) or len(nodes) == 1
            for name in (name for name in node.outputs if name in expected and is_replayable):
                is_wrong = _nonfinite_errors(replays, name, expected[name], place)
                birth = _SuspectNode(replays, node, name, place, expected).birth(is_wrong) if is_wrong.any() else None
                if birth is not None:
                    return birth
        if len(nodes) > 1 and all(np.isfinite(real_values(recording, name, place)).all() for name in entries):
            return find_overflow_inside(recording, nodes, tensor, place)
    except (KernelError, NotRecordedError, UsageError):
        return None
    return None


def _nonfinite_errors(
    replays: ReferenceReplay, name: str, expected_values: np.ndarray, place: tuple[int, int]
) -> np.ndarray:
    """Return which elements of a backend tensor are not finite but should be; none if the shapes differ."""
    backend_values = real_values(replays.be.recording, name, place).astype(np.float64)
    return (
        is_one_sided_nonfinite(backend_values, expected_values)
        if backend_values.shape == expected_values.shape
        else np.zeros(backend_values.shape, bool)
    )


class _SuspectNode:
    """A backend node with its inputs from both sides, in float64.

    Args:
        replays: Both runs and their pairs.
        node: The node.
        tensor: Its output.
        place: Sample and step.
        expected: Expected values, by tensor name, of the output and of tensors without a partner.

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
        input_arrays = inputs_of(replays.be.recording, self._form, place)
        self._real_names = frozenset(name for name, array in input_arrays.items() if is_real(array.dtype))
        self._backend_inputs = {name: self._widen_if_real(name, array) for name, array in input_arrays.items()}
        self._reference_inputs = {
            name: partner for name in input_arrays if (partner := self._reference_input(name)) is not None
        }

    def _widen_if_real(self, name: str, array: np.ndarray) -> np.ndarray:
        return array.astype(np.float64) if name in self._real_names else array

    def _reference_input(self, name: str) -> np.ndarray | None:
        """Return the reference's values of an input, or None if they are unknown or have a different shape."""
        reference = self._replays.ref.recording
        if name in self._replays.pairs:
            partner_array = partner_values(self._replays, name, self._place)
        elif name in self._expected:
            partner_array = self._expected[name]
        elif self._graph.is_constant(name) and reference.graph.is_constant(name) and reference.has(name):
            partner_array = real_values(reference, name)
        else:
            return None
        return (
            self._widen_if_real(name, partner_array)
            if partner_array.shape == self._backend_inputs[name].shape
            else None
        )

    def birth(self, is_bad: np.ndarray) -> Birth | None:
        """Return the first non-finite element that the inputs do not account for, with its rule, or None.

        Args:
            is_bad: Which elements of the tensor are not finite and differ from the other side.
        """
        recording, place = self._replays.be.recording, self._place
        recorded_values = recording.load(self._tensor, *place)
        if self._graph.tensors[self._tensor].quant is not None:
            return None
        arriving = {name: mask for name in self._real_names if (mask := self._nonfinite_arrivals(name)).any()}
        if any(self._graph.tensors[name].quant is not None for name in arriving):
            return None  # a code's real value overflows float32; another finding reports that
        constants = [name for name in arriving if self._graph.is_constant(name)]
        varying = {name: mask for name, mask in arriving.items() if name not in constants}
        if varying:
            is_bad_regardless = self._is_nonfinite_regardless(varying, recorded_values)
            if is_bad_regardless is None:
                return None
            is_bad = is_bad & is_bad_regardless
        if not is_bad.any():
            return None
        index = tuple(int(at) for at in np.argwhere(is_bad)[0])
        birth = Birth(
            node=self._node.name,
            op=self._node.op,
            tensor=self._tensor,
            sample=place[0],
            step=place[1],
            index=index,
            value=float(recorded_values[index]),
            elements=int(np.count_nonzero(is_bad)),
            rule=BirthRule.CONSTANT if constants else BirthRule.UNKNOWN,
            operands=tuple(self._first_constant_value(name, arriving[name]) for name in constants),
        )
        return birth if constants else self._with_selecting_inputs(self._with_rule(birth, recorded_values))

    def _is_nonfinite_regardless(
        self, arriving: Mapping[str, np.ndarray], recorded_values: np.ndarray
    ) -> np.ndarray | None:
        """Return which elements would not be finite even with finite inputs, or None if unknown.

        The non-finite inputs are replaced by 0 and by 1. An element that depends on the replacement is explained by
        these inputs.

        Args:
            arriving: Which elements of each input are not finite.
            recorded_values: The output.
        """
        with_zeros, with_ones = (
            self._compute(
                self._backend_inputs
                | {name: np.where(mask, fill, self._backend_inputs[name]) for name, mask in arriving.items()}
            )
            for fill in (0.0, 1.0)
        )
        if with_zeros is None or with_ones is None or with_zeros.shape != recorded_values.shape:
            return None
        is_unchanged = (with_zeros == with_ones) | (np.isnan(with_zeros) & np.isnan(with_ones))
        return np.asarray(is_unchanged & ~(np.abs(with_zeros) <= _format_limit(recorded_values, math.inf)[0]))

    def _nonfinite_arrivals(self, name: str) -> np.ndarray:
        """Return which elements of an input are not finite and differ from the reference."""
        if name in self._reference_inputs:
            return is_one_sided_nonfinite(self._backend_inputs[name], self._reference_inputs[name])
        unknown = self._graph.is_constant(name)  # a constant without a partner cannot be called wrong
        return np.zeros(self._backend_inputs[name].shape, bool) if unknown else ~np.isfinite(self._backend_inputs[name])

    def _first_constant_value(self, name: str, is_wrong: np.ndarray) -> BirthOperand:
        return BirthOperand(tensor=name, value=float(self._backend_inputs[name][is_wrong][0]))

    def _compute(self, values: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """Compute the node in float64, or return None if that is not possible."""
        if self._row.casts:
            return values[self._form.inputs[0]]  # a cast returns its input; it rounds afterwards
        try:
            outputs = run_form(self._node, self._form, self._opset, values)[self._tensor]
        except (KernelError, UsageError):
            return None
        return outputs.astype(np.float64)

    def _with_rule(self, birth: Birth, recorded_values: np.ndarray) -> Birth:
        """Return the birth with its rule and operands filled in."""
        computed_values = self._compute(self._backend_inputs)
        birth = replace(birth, operands=self._operand_values(birth.index))
        if computed_values is None or computed_values.shape != recorded_values.shape:
            return birth
        exact = float(computed_values[birth.index])
        birth = replace(birth, exact=exact)
        if not math.isfinite(exact):
            return self._with_rule_of_nonfinite_result(birth, recorded_values)
        largest, name = _format_limit(recorded_values, exact)
        if abs(exact) > largest:
            return replace(birth, rule=BirthRule.OVERFLOW, format=name, largest=largest)
        terms = self._sum_magnitudes()
        largest, name = _format_limit(recorded_values, math.inf if terms is None else float(terms[birth.index]))
        if terms is not None and float(terms[birth.index]) > largest:
            return replace(birth, rule=BirthRule.SUM_OVERFLOW, format=name, largest=largest)
        largest, name = _format_limit(recorded_values, math.inf)
        if self._overflows_inside(recorded_values, computed_values, largest):
            operand_name = next(iter(self._real_names))
            values = self._backend_inputs[operand_name]
            value = float(values.max() if self._row.reduces else values[birth.index])
            operand = BirthOperand(tensor=operand_name, value=value)
            return replace(birth, rule=BirthRule.INSIDE_OVERFLOW, operands=(operand,), format=name, largest=largest)
        short = self._format_of_sums(recorded_values)
        if short is not None:
            return replace(birth, rule=BirthRule.SUM_OVERFLOW, format=short.name, largest=short.largest)
        thresholds = self._thresholds_of_operand(recorded_values)
        if thresholds:
            return replace(birth, rule=BirthRule.LARGE_INPUTS, operands=thresholds)
        return replace(birth, rule=BirthRule.ARITHMETIC)

    def _thresholds_of_operand(self, recorded_values: np.ndarray) -> tuple[BirthOperand, ...]:
        """Return the lower, the upper or both operands from which on a function of one operand is not finite.

        There are none if they may be so by chance.
        """
        if not self._row.elementwise or len(self._real_names) != 1:
            return ()
        name = next(iter(self._real_names))
        operand, is_bad = self._backend_inputs[name].astype(np.float64), ~np.isfinite(recorded_values)
        ranges = ((1.0,), (-1.0,), (1.0, -1.0))
        share, count = float(is_bad.mean()), int(is_bad.sum())
        if operand.shape != is_bad.shape or may_be_chance(share, count, len(ranges), total=is_bad.size):
            return ()
        for sides in ranges:
            distance = np.max([side * operand for side in sides], axis=0)
            threshold = float(distance[is_bad].min())
            if threshold > max(0.0, distance[~is_bad].max(initial=-np.inf)):
                return tuple(BirthOperand(tensor=name, value=side * threshold) for side in sides)
        return ()

    def _format_of_sums(self, recorded_values: np.ndarray) -> ShortFormat | None:
        """Return the short format in which the sums of the node would be non-finite exactly where its results are."""
        terms = self._sum_magnitudes()
        data = self._backend_inputs[self._form.inputs[0]]
        if terms is None or not terms.size or terms.shape != recorded_values.shape:
            return None
        if self._row.unit in ("reduce_mean", "global_average_pool"):
            terms = terms * (data.size / terms.size)
        is_bad = ~np.isfinite(recorded_values)
        widest = np.frexp(_format_limit(recorded_values, math.inf)[0])[1]
        narrower = (short for short in SHORT_FORMATS if np.frexp(short.largest)[1] < widest)
        fitting = (short for short in narrower if np.array_equal(terms > short.largest, is_bad))
        is_conclusive = min(np.count_nonzero(is_bad), np.count_nonzero(~is_bad)) >= CAUSE_MIN_DISTINCT_VALUES
        return next(fitting, None) if is_conclusive else None

    def _overflows_inside(self, recorded_values: np.ndarray, computed_values: np.ndarray, largest: float) -> bool:
        """Return whether a one-operand function is non-finite exactly where its operand's exponential overflows.

        The logarithm of a sum of exponentials overflows where it exceeds the logarithm of the largest number.
        """
        if not self._row.through_exp or len(self._real_names) != 1:
            return False
        values = computed_values if self._row.reduces else self._backend_inputs[next(iter(self._real_names))]
        if values.shape != recorded_values.shape:
            return False
        overflows = np.abs(values.astype(np.float64)) > math.log(largest)
        return bool(
            np.array_equal(overflows & ~np.isfinite(recorded_values), ~np.isfinite(recorded_values))
            and not overflows.all()
        )

    def _operand_values(self, index: tuple[int, ...]) -> tuple[BirthOperand, ...]:
        shape = (
            np.broadcast_shapes(*(array.shape for array in self._backend_inputs.values()))
            if self._row.elementwise
            else None
        )
        operands = []
        for name in filter(None, self._form.inputs):
            array = self._backend_inputs[name]
            if shape is not None and len(shape) == len(index):
                value = float(np.broadcast_to(array, shape)[index])
            elif name in self._real_names and array.size:
                value = float(array.flat[int(np.nan_to_num(np.abs(array), nan=np.inf, posinf=np.inf).argmax())])
            else:
                continue
            operands.append(BirthOperand(tensor=name, value=value))
        return tuple(operands)

    def _sum_magnitudes(self) -> np.ndarray | None:
        """Return the sums with each term replaced by its magnitude, or None if the operator has no sums."""
        if self._row.sums is None:
            return None
        return self._compute(
            {name: np.abs(a) if name in self._real_names else a for name, a in self._backend_inputs.items()}
        )

    def _with_rule_of_nonfinite_result(self, birth: Birth, recorded_values: np.ndarray) -> Birth:
        """Return a birth with the rule that explains why its exact result is not finite."""
        row, values = self._row, [operand.value for operand in birth.operands]
        if row.moves or row.selects or row.keeps_values or row.casts:
            sources = [name for name in self._real_names if not np.all(np.isfinite(self._backend_inputs[name]))]
            nonfinite_operands = tuple(operand for operand in birth.operands if operand.tensor in sources)
            return replace(birth, rule=BirthRule.TAKEN, operands=nonfinite_operands)
        rule = _elementwise_rule(row, values) if row.elementwise and values else None
        if rule is BirthRule.DOMAIN and row.domain is not None:
            return replace(birth, rule=rule, function=row.domain.function)
        real_inputs = [self._backend_inputs[name] for name in self._real_names]
        if rule is None and all(np.all(np.isfinite(array)) for array in real_inputs):
            if row.elementwise:  # the exact result overflows float64
                largest, name = _format_limit(recorded_values, math.inf)
                return replace(birth, rule=BirthRule.OVERFLOW, exact=None, format=name, largest=largest)
        elif rule is None and _comes_from_infinities(birth, real_inputs) and row.product:
            terms = self._sum_magnitudes()
            zeros = terms is not None and math.isnan(float(terms[birth.index]))
            rule = BirthRule.ZERO_TIMES_INFINITY if zeros else BirthRule.INFINITIES
        elif (
            rule is None
            and _comes_from_infinities(birth, real_inputs)
            and (row.sums is not None or row.hides_small_values)
        ):
            rule = BirthRule.INFINITIES
        return replace(birth, rule=rule or BirthRule.UNDEFINED)

    def _with_selecting_inputs(self, birth: Birth) -> Birth:
        """Return a birth with the inputs whose reference values make the result finite, or equal to the reference's."""
        recorded_values = self._replays.be.recording.load(self._tensor, *self._place)

        reference_value = float(self._expected[self._tensor][birth.index])

        def restores_result(values: Mapping[str, np.ndarray]) -> bool:
            computed_values = self._compute(values)
            if computed_values is None or computed_values.shape != recorded_values.shape:
                return False
            exact = float(computed_values[birth.index])
            if not math.isfinite(reference_value):
                return _is_equal(np.array(exact), np.array(reference_value))
            return math.isfinite(exact) and abs(exact) <= _format_limit(recorded_values, exact)[0]

        reference_inputs = {
            name: array for name, array in self._reference_inputs.items() if not self._graph.is_constant(name)
        }
        reference_inputs = {
            name: array for name, array in reference_inputs.items() if not _is_equal(array, self._backend_inputs[name])
        }
        rules_without_selection = (
            *(BirthRule.ARITHMETIC, BirthRule.UNKNOWN),
            *(BirthRule.INSIDE_OVERFLOW, BirthRule.LARGE_INPUTS),
        )
        if (
            birth.rule in rules_without_selection
            or not reference_inputs
            or not restores_result(self._backend_inputs | reference_inputs)
        ):
            return birth
        selecting_inputs = [
            name for name in reference_inputs if restores_result(self._backend_inputs | {name: reference_inputs[name]})
        ] or list(reference_inputs)
        return replace(birth, selected=tuple(self._make_selector(name, birth.index) for name in selecting_inputs))

    def _make_selector(self, name: str, index: tuple[int, ...]) -> Selector:
        differences = np.abs(np.subtract(self._backend_inputs[name], self._reference_inputs[name], dtype=np.float64))
        if self._row.elementwise:
            shape = np.broadcast_shapes(*(array.shape for array in self._backend_inputs.values()))
            differences = np.broadcast_to(differences, shape)[index] if len(shape) == len(index) else differences
        finite = np.asarray(differences)[np.isfinite(differences)]
        return Selector(tensor=name, difference=float(finite.max(initial=0.0)))


def _is_equal(values: np.ndarray, reference_values: np.ndarray) -> bool:
    return np.array_equal(values, reference_values, equal_nan=values.dtype.kind == "f")


def _comes_from_infinities(birth: Birth, input_arrays: Sequence[np.ndarray]) -> bool:
    """Return whether the exact result is NaN although none of the inputs is."""
    return math.isnan(birth.exact or 0.0) and not any(np.any(np.isnan(array)) for array in input_arrays)


def _elementwise_rule(row: operators.Operator, values: list[float]) -> BirthRule | None:
    """Return the rule by which the operands give a non-finite result, or None if no rule is known."""
    infinite = [math.isinf(value) for value in values]
    rule: BirthRule | None = None
    if row.divisor is not None and row.divisor < len(values):
        divisor, other_operands = values[row.divisor], [v for at, v in enumerate(values) if at != row.divisor]
        if divisor == 0:
            rule = BirthRule.ZERO_BY_ZERO if other_operands and other_operands[0] == 0 else BirthRule.BY_ZERO
        elif all(infinite) and len(values) > 1:
            rule = BirthRule.INFINITY_BY_INFINITY
    elif row.domain is not None and not row.domain.contains(values[0]):
        rule = BirthRule.DOMAIN
    elif row.is_power:
        fraction, inverse = values[0] < 0 and not values[1].is_integer(), values[0] == 0 and values[1] < 0
        rule = BirthRule.POWER if fraction or inverse else None
    elif row.adds and sum(infinite) > 1:
        rule = BirthRule.INFINITIES
    elif row.neutral == 1 and any(infinite) and 0 in values:
        rule = BirthRule.ZERO_TIMES_INFINITY
    return rule


def _format_limit(recorded_values: np.ndarray, exact: float) -> tuple[float, str]:
    """Return the largest number of the format that a result was rounded to, and the format's name.

    A runtime may store values of a short format in a longer one. The short format counts if the exact result overflows
    it and all recorded values fit it.
    """
    try:
        largest = float(ml_dtypes.finfo(recorded_values.dtype).max)  # type: ignore[no-untyped-call]  # untyped upstream
    except ValueError:
        return math.inf, recorded_values.dtype.name
    short_format = detect_rounded_format(recorded_values) if abs(exact) <= largest or math.isinf(exact) else None
    if short_format is not None and short_format.largest < abs(exact):
        return short_format.largest, short_format.name
    return largest, recorded_values.dtype.name
