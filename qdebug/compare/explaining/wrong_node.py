"""Searches for the cause of a node's wrong output. Begin at `WrongNode`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain, islice

import numpy as np

from qdebug.arithmetic.definitions.catalogue import definition_of
from qdebug.arithmetic.definitions.edits import EditedResult, edited_definitions
from qdebug.arithmetic.formulas import fixed_point_relation_of, formula_of
from qdebug.arithmetic.mistakes.attributes import other_attributes, other_integers, other_operators
from qdebug.arithmetic.mistakes.fits import (
    Dial,
    Partition,
    dials,
    miscounted_blocks,
    miscounted_windows,
    partitions,
    solve,
)
from qdebug.arithmetic.mistakes.known import mistakes
from qdebug.arithmetic.mistakes.mistake import Mistake, applicable
from qdebug.arithmetic.mistakes.normalization import cancelled_variance
from qdebug.arithmetic.mistakes.readings import readings, rewritings
from qdebug.arithmetic.mistakes.scales import (
    activations_of_scaled_inputs,
    codes_passed_on,
    divisions_of_codes,
    saturating_pairs,
    saturating_results,
    scales_along_other_axes,
)
from qdebug.arithmetic.patterns.wrong_places import unbroadcast_operand
from qdebug.arithmetic.relations import (
    Result,
    coarse_relation_of,
    functions_as_mistakes,
    relation_by_index,
    relation_of,
    results_beyond_thresholds,
    weight_of_operand,
)
from qdebug.compare.attribute.band import allowed_error, difference, finite_norm, norm, sum_terms
from qdebug.compare.attribute.graph_walk import downstream
from qdebug.compare.explaining.claims import EVERY, LIKELY, MAX_REPORTED_MISTAKES, ONE_OFF
from qdebug.compare.explaining.code_lines import CodedSample, CodeLines
from qdebug.compare.explaining.float_band import locate_outliers
from qdebug.compare.explaining.fused import WithFused, makes_codes
from qdebug.compare.explaining.mistaken import form_of_output, is_conclusive, output_with_mistake, rounding_norm
from qdebug.compare.explaining.other_tensors import substituted_operands, tensors_of_shape
from qdebug.errors import KernelError, UsageError
from qdebug.model import AttrValue, Node, QuantParams, Recording, operators
from qdebug.model.dtypes import is_integer
from qdebug.model.thresholds.explanation import (
    CAUSE_MIN_DISTINCT_REALS,
    CAUSE_MIN_DISTINCT_VALUES,
    FURTHER_CAUSE_MAX_SUMS,
    FURTHER_CAUSE_MIN_EQUAL_CODES,
    OUTLIER_ERROR_RATIO,
)
from qdebug.model.thresholds.rounding import FLOAT32_UNIT_ROUNDOFF, LSB_SLACK, ROUNDING_SUM_FACTOR
from qdebug.numerics.affine import dequantize, fake_quantize
from qdebug.numerics.short_formats import format_of
from qdebug.replay.extents import recorded_limits
from qdebug.replay.registry import run_node

__all__ = ["WrongNode"]

Place = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sample:
    """The results of a node in one sample.

    Args:
        result: The recorded tensor and its right values, dequantized.
        exact: The right output of the node, before any later node and before rounding to codes.
        allowed: Error norm that rounding explains, or 0 if there is no rounding.
        slack: Largest error of a single element that counts as rounding.
        wrong: Mask of the elements with a larger error.
        step: Largest effect of one code on a real result if a later node rounds to codes, else 0.
        checked_first: Flat indices of a few elements, some of them wrong. Candidates are compared on these first.
    """

    result: Result
    exact: np.ndarray
    allowed: float
    slack: float
    wrong: np.ndarray
    step: float
    checked_first: np.ndarray


class WrongNode:
    """Searches for the cause of a wrong output of a node.

    The node may lie inside a fused layer. Then only the output of the layer was recorded, and candidates are judged by
    that output.

    Args:
        recording: The run. A `WithFused` if there are later nodes.
        node: The node.
        tensor: The recorded tensor: the node's output, or the output of the last later node.
        places: Samples and steps.
        later: The nodes of the layer that depend on this node, in order. Empty if the node's own output was recorded.
        roundings: Whether a rounding to a shorter float format counts as a mistake.

    Raises:
        KernelError: The node cannot be replayed.
        NotRecordedError: One of its tensors was not recorded.
    """

    def __init__(
        self,
        recording: Recording,
        node: Node,
        tensor: str,
        places: Sequence[Place],
        later: Sequence[Node] = (),
        *,
        roundings: bool = True,
    ) -> None:
        self._recording, self._node, self._tensor, self._places = recording, node, tensor, places
        self._later, self._output = later, node.outputs[0] if later else tensor
        self._roundings = roundings
        self._form, self._opset, _ = form_of_output(recording, node, self._output, places[0])
        self._form_output = self._output if self._output in self._form.outputs else self._form.outputs[0]
        self._quant = recording.graph.tensors[tensor].quant
        self._samples: dict[Place, _Sample] = {}
        self._one_off = False
        """Whether a candidate was accepted although a few of its codes are off by one."""
        beside = [name for name in node.inputs if name and name not in self._form.inputs]
        self._constants = {name: recording.load(name) for name in beside if recording.graph.is_constant(name)}
        self._places = self._telling_first(places)
        first = self._sample(self._places[0])
        right_result, operands = first.result.right, first.result.operands
        terms = sum_terms(self._form, {name: each.shape for name, each in operands.items()}, right_result.shape)
        sums = max(terms * right_result.size, sum(each.size for each in operands.values()))
        self._max_replays = int(FURTHER_CAUSE_MAX_SUMS / sums)
        min_distinct_values = CAUSE_MIN_DISTINCT_REALS if first.result.allowed else CAUSE_MIN_DISTINCT_VALUES
        self._is_conclusive = is_conclusive(first.result.recorded, min_distinct_values) and (
            not self.has_codes or np.count_nonzero(first.wrong) >= CAUSE_MIN_DISTINCT_VALUES
        )

    def _telling_first(self, places: Sequence[Place]) -> list[Place]:
        """Return the places, first one where many elements are wrong. A blank sample tells mistakes apart in none."""
        telling = next((place for place in places if self._is_telling(self._sample(place))), places[0])
        return [telling, *(place for place in places if place != telling)]

    @staticmethod
    def _is_telling(sample: _Sample) -> bool:
        wrong_values = sample.result.recorded[sample.wrong]
        return wrong_values.size >= CAUSE_MIN_DISTINCT_VALUES and is_conclusive(sample.result.recorded)

    @property
    def is_far_off(self) -> bool:
        """Whether the error in the first sample is large enough to distinguish mistakes inside a layer."""
        result = self._sample(self._places[0]).result
        error = norm(difference(result.recorded, result.right))
        smallest = 0.0 if self._is_exact else _FAR_OFF_MIN_ERROR * finite_norm(result.recorded)
        return error > max(smallest, result.allowed)

    @property
    def _is_exact(self) -> bool:
        """Whether the whole layer only moves and casts numbers, so that each element has one right value."""
        nodes = [self._node, *self._later]
        if isinstance(self._recording, WithFused):
            chains = map(self._recording.chain, filter(None, self._node.inputs))
            nodes += [node for chain in chains if chain is not None for node in chain.nodes]
        return all(operators.of(node.op).casts or operators.of(node.op).rounds_nothing for node in nodes)

    @property
    def has_codes(self) -> bool:
        """Whether the recorded tensor holds codes."""
        return self._quant is not None

    def cause_of_codes(self) -> str | None:
        """Return the cause of wrong codes, as a clause."""
        cause = self.find_mistake() or self._code_lines().find_line()
        if cause is None and (count := self.find_miscounted_operand()) is not None:
            cause = f"{count} ({self.claim})"
        cause = cause or self.find_threshold()
        if cause is None and self._is_unwritten:
            return self._cause_of_one_value() or self.find_unbroadcast_operand() or self.find_function()
        return (
            cause
            or self.find_alteration()
            or self.find_function()
            or self.find_differing_number()
            or self.find_miscounted_parts()
            or self.find_other_tensor()
            or self.find_unbroadcast_operand()
            or self.find_mistake_in_part()
            or self.find_copied_part()
            or self._code_lines().find_offsets()
        )

    def cause_of_numbers(self) -> str | None:
        """Return the cause of wrong real numbers or integers, as a clause."""
        first = self._sample(self._places[0])
        if norm(difference(first.result.recorded, first.result.right)) <= first.allowed:
            # The wrong elements are too few or too small for a norm to tell one mistake from another.
            return self.find_mistake_in_part() or self.find_copied_part()
        cause = (
            self.find_relation(relation_of)
            or self.find_miscounted_operand()
            or self.find_threshold()
            or self.find_relation(fixed_point_relation_of)
        )
        if cause is not None:
            return cause
        if self._is_unwritten:
            cause = self._cause_of_one_value() or self.find_unbroadcast_operand()
            return cause or self.find_relation(coarse_relation_of)
        return (
            self.find_mistake()  # several of them, as a single one would have been named before
            or self.find_alteration()
            or self.find_differing_number()
            or self.find_miscounted_parts()
            or self.find_relation(partial(formula_of, self._form))
            or self.find_cancelled_variance()
            or self.find_other_tensor()
            or self.find_relation(coarse_relation_of)
            or self.find_mistake_in_part()
            or self.find_unbroadcast_operand()
            or self.find_copied_part()
            or self.find_relation(relation_by_index)
        )

    def find_cancelled_variance(self) -> str | None:
        """Return a clause saying that the node loses its variance to cancellation, if that explains all rows."""
        formats = {
            cancelled_variance(self._form, sample.result.operands, sample.result.recorded)
            for sample in map(self._sample, self._places)
        } - {None}
        if len(formats) != 1:
            return None
        computation = f"the variance is computed as E[x^2] - E[x]^2 in {formats.pop()}"
        return f"{LIKELY}{computation}, which cancels in rows whose mean is large"

    def _cause_of_one_value(self) -> str | None:
        """Return a clause on another operator, attribute or misread integer that reproduces the output, or None."""
        other_node = self._clause_of_fitting(self._other_nodes(self._places[0]))
        return other_node or self._clause_of_fitting(self._integer_readings(self._places[0]))

    @property
    def _is_unwritten(self) -> bool:
        """Whether all wrong elements hold the same number. Their positions then reveal more about the cause."""
        first = self._sample(self._places[0])
        wrong_values = first.result.recorded[first.wrong]
        return wrong_values.size >= CAUSE_MIN_DISTINCT_VALUES and bool((wrong_values == wrong_values[0]).all())

    def _sample(self, place: Place) -> _Sample:
        if place not in self._samples:
            _, _, values = form_of_output(self._recording, self._node, self._output, place)
            stored = self._recording.load(self._tensor, *place)
            recorded_values = dequantize(stored, self._quant)
            with recorded_limits(self._recording, place), np.errstate(all="ignore"):
                exact = run_node(self._form, values, self._opset)[self._form_output]
                right_result = self._apply_later_nodes(exact, place)
            if right_result.shape != recorded_values.shape:
                raise KernelError(
                    f"The replay has shape {right_result.shape}, but the recorded tensor has {recorded_values.shape}."
                )
            allowed = 0.0
            if not self.has_codes:
                allowed = self._rounding_of_layer(stored, place)
                if not self._later:
                    allowed = max(allowed, rounding_norm(self._form, values, exact, stored, self._opset))
            slack = OUTLIER_ERROR_RATIO * allowed / math.sqrt(max(right_result.size, 1))
            if self._quant is not None:
                slack = float(np.max(self._quant.scale)) * (1 + LSB_SLACK)
            right_result = fake_quantize(right_result, self._quant)
            errors = np.abs(difference(recorded_values, right_result))
            rounding = FLOAT32_UNIT_ROUNDOFF * finite_norm(right_result) if right_result.dtype.kind == "f" else 0.0
            result = Result(
                right=right_result,
                recorded=recorded_values,
                allowed=max(allowed, rounding),
                operands=values,
                numbers={name: each for name, each in self._constants.items() if each.size == 1},
            )
            is_wrong = ~(errors <= slack)
            self._samples[place] = _Sample(
                result=result,
                exact=exact,
                allowed=allowed,
                slack=slack,
                wrong=is_wrong,
                step=0.0 if self.has_codes else self._effect_of_a_code(exact, place),
                checked_first=_indices_to_check_first(is_wrong),
            )
        return self._samples[place]

    def _apply_later_nodes(self, result: np.ndarray, place: Place) -> np.ndarray:
        """Apply the later nodes of the layer to an output of the node, and return real numbers."""
        if not self._later or not isinstance(self._recording, WithFused):
            return result
        computed_tensors = {self._output: result}
        for node in self._later:
            names = dict.fromkeys(filter(None, node.inputs))
            values = {
                name: computed_tensors[name] if name in computed_tensors else self._recording.load(name, *place)
                for name in names
            }
            computed_tensors.update(self._recording.run(node, values))
        last = computed_tensors[self._tensor]
        return dequantize(last, self._quant) if last.dtype.kind in "iu" else last

    def _effect_of_a_code(self, exact: np.ndarray, place: Place) -> float:
        """Return how much one code at most changes a layer's real result if the layer rounds the node's to codes."""
        quants = [self._recording.graph.tensors[node.outputs[0]].quant for node in self._later if makes_codes(node)]
        if len(quants) != 1 or quants[0] is None or exact.dtype.kind != "f":
            return 0.0
        moved = self._apply_later_nodes(exact + np.float32(np.max(quants[0].scale)), place)
        return float(np.max(np.abs(difference(moved, self._apply_later_nodes(exact, place))), initial=0.0))

    def _rounding_of_layer(self, stored: np.ndarray, place: Place) -> float:
        """Return a bound for the norm of the whole layer's rounding error, in the short format of its result if any."""
        if not isinstance(self._recording, WithFused) or self._is_exact:
            return 0.0
        short_format = format_of(stored)
        unit = FLOAT32_UNIT_ROUNDOFF if short_format is None else short_format.unit
        last = [self._node, *self._later][-1]
        inside = (
            self._recording.rounding_norm(last, *place)
            if short_format is None
            else ROUNDING_SUM_FACTOR * self._recording.change_by_rounding(last, *place, short_format)
        )
        form, opset, values = form_of_output(self._recording, last, self._tensor, place)
        result = run_node(form, values, opset)[form.outputs[0]]
        return max(inside, allowed_error(form, values, result, opset, unit))

    def cause_in_part(self) -> str | None:
        """Return a clause with the mistake of this inner node in a part of the layer's output, or None."""
        return self.find_mistake_in_part() or self.find_unbroadcast_operand()

    def cause_inside(self) -> str | None:
        """Return a clause with the mistake of this inner node that reproduces the layer's output, or None."""
        return (
            self.find_mistake()
            or self.find_alteration()
            or self.find_function()
            or self.find_differing_number()
            or self.find_miscounted_parts()
        )

    def find_relation(self, find: Callable[[Result], str | None]) -> str | None:
        """Return a clause on how the recorded elements follow from the right ones, if it is the same in all samples.

        Args:
            find: Returns the relation in one sample, or None.
        """
        samples = [self._sample(place) for place in self._places]
        return self._common_relation(find, self._stacked_if_blank(samples))

    @staticmethod
    def _common_relation(find: Callable[[Result], str | None], results: Iterable[Result]) -> str | None:
        common_relation: str | None = None
        for result in results:
            if not (np.isfinite(result.right).all() and np.isfinite(result.recorded).all()):
                return None
            sample_relation = find(result)
            if sample_relation is None or common_relation not in (None, sample_relation):
                return None
            common_relation = sample_relation
        return common_relation

    @staticmethod
    def _stacked_if_blank(samples: Sequence[_Sample]) -> list[Result]:
        """Return the results of samples. Those of blank samples, which show no relation, are joined with the first."""
        blank = [sample.result for sample in samples[1:] if _is_blank(sample)]
        others = [sample.result for sample in samples[1:] if not _is_blank(sample)]
        first = samples[0].result
        return [reduce(Result.joined, blank, first), *(reduce(Result.joined, blank, other) for other in others)]

    def find_threshold(self) -> str | None:
        """Return a clause if all results beyond a threshold become one number and that reproduces every element."""
        samples = [self._sample(place) for place in self._places]
        right, recorded = (
            np.concatenate([array.reshape(-1) for array in arrays]).astype(np.float64)
            for arrays in ([sample.exact for sample in samples], [sample.result.recorded for sample in samples])
        )
        if not self._is_conclusive or not (np.isfinite(right).all() and np.isfinite(recorded).all()):
            return None
        cuts = np.cumsum([sample.exact.size for sample in samples])[:-1]
        wrong = np.concatenate([sample.wrong.reshape(-1) for sample in samples])
        for clause, result in results_beyond_thresholds(right, recorded, wrong) if wrong.any() else ():
            parts = zip(np.split(result, cuts), samples, strict=True)
            if all(self._matches(sample, part.reshape(sample.exact.shape), whole=True) for part, sample in parts):
                return f"{clause} ({self.claim})"
        return None

    def find_miscounted_operand(self) -> str | None:
        """Return a clause if a different weight of one operand, such as 0 or 2, reproduces every element, or None."""
        first = self._sample(self._places[0]).result
        clauses = (
            list(filter(None, (self._clause_of_operand_count(name) for name in first.operands)))
            if self._is_conclusive
            else []
        )
        return clauses[0] if len(clauses) == 1 else None

    def _clause_of_operand_count(self, name: str) -> str | None:
        common_share: str | None = None
        for place in self._places:
            result = self._sample(place).result
            operand = result.operands[name]
            if operand.dtype.kind != "f":
                return None
            zeroed = Mistake(likely="", node=self._form, values={name: np.zeros_like(operand)})
            result_without_operand = self._compute_output(place, zeroed)
            if result_without_operand is None or result_without_operand.shape != result.right.shape:
                return None
            if np.array_equal(result_without_operand, result.right) and result.fits(result.right):
                continue  # the operand has no effect in this sample
            sample_share = (
                weight_of_operand(result, result_without_operand)
                if self._quant is None
                else self._share_in_codes(place, result_without_operand)
            )
            if sample_share is None or common_share not in (None, sample_share):
                return None
            common_share = sample_share
        return None if common_share is None else f"{name!r} counts {common_share} times"

    def _share_in_codes(self, place: Place, result_without_operand: np.ndarray) -> str | None:
        """Return the weight of an operand in codes that are linear in it, to two digits, or None if it is 0 or 1."""
        sample = self._sample(place)
        operand_effect, is_above_minimum = (
            sample.exact - result_without_operand,
            sample.result.recorded != sample.result.recorded.min(),
        )
        power = float(np.vdot(operand_effect[is_above_minimum], operand_effect[is_above_minimum]))
        if not power:
            return None
        share = (
            float(
                np.vdot(
                    operand_effect[is_above_minimum],
                    (sample.result.recorded - result_without_operand)[is_above_minimum],
                )
            )
            / power
        )
        share_text = f"{share:.2g}"
        rescaled_codes = fake_quantize(
            (result_without_operand + float(share_text) * operand_effect).astype(np.float32), self._quant
        )
        return share_text if share_text not in ("0", "1") and self._are_equal(sample, rescaled_codes) else None

    def _are_equal(self, sample: _Sample, computed_codes: np.ndarray, *, whole: bool = True) -> bool:
        """Return whether codes equal the recorded ones, except for errors of one LSB in a few of them."""
        errors = np.abs(difference(sample.result.recorded, computed_codes))
        errors = errors if whole else errors[sample.wrong]
        equal_count = np.count_nonzero(errors <= sample.slack * LSB_SLACK)
        accepted = bool((errors <= sample.slack).all()) and equal_count >= FURTHER_CAUSE_MIN_EQUAL_CODES * errors.size
        self._one_off |= accepted and bool(errors.any())
        return accepted

    def find_mistake(self) -> str | None:
        """Return a clause with the known mistake of the operator that reproduces every element, or None."""
        return self._clause_of_fitting(mistakes(self._form, self._sample(self._places[0]).result.operands, self._opset))

    def _code_lines(self) -> CodeLines:
        """Return the fit of the recorded codes to the exact results of all samples."""
        samples = [
            CodedSample(exact=sample.exact, codes=self._recording.load(self._tensor, *place), wrong=sample.wrong)
            for place in self._places
            for sample in (self._sample(place),)
        ]
        return CodeLines(self._recording, self._form, self._tensor, samples if self._is_conclusive else [])

    def find_function(self) -> str | None:
        """Return a clause with the function of the right result, or of an operand, that the codes are, or None."""
        return self._clause_of_fitting(self._functions(self._places[0]))

    def _functions(self, place: Place) -> Iterator[Mistake]:
        sample = self._sample(place)
        return functions_as_mistakes(self._form, sample.exact, sample.result.recorded, sample.result.operands)

    def find_alteration(self) -> str | None:
        """Return a clause with a mistake of any operator that reproduces every element, or None.

        Tried in order are a result that is written wrongly, another node in place of this one, and a misread operand.
        The first kind that fits is returned, because many misread operands have the same effect as another operator.
        """
        return next(filter(None, map(self._clause_of_fitting, self._alterations(self._places[0]))), None)

    def _alterations(self, place: Place) -> tuple[Iterator[Mistake], ...]:
        """Return the mistakes that any operator can have: in writing, in the node or one of its steps, in reading."""
        sample = self._sample(place)
        written, read = rewritings(self._form, sample.exact), readings(self._form, sample.result.operands)
        edited = self._wrong_steps(place)
        return applicable(written), applicable(self._other_nodes(place)), edited, applicable(read)

    def _wrong_steps(self, place: Place) -> Iterator[Mistake]:
        """Yield edits of the steps by which the operator is defined."""
        if self._max_replays >= _REPLAYS_PER_FIT:
            sample = self._sample(place)
            definition = definition_of(self._form, sample.result.operands, self._opset, self._form_output)
            yield from edited_definitions(self._form, definition, sample.exact)

    def _integer_readings(self, place: Place) -> Iterator[Mistake]:
        """Yield mistakes in reading integer operands, such as positions."""
        for mistake in readings(self._form, self._sample(place).result.operands):
            if mistake.values and all(array.dtype.kind in "iu" for array in mistake.values.values()):
                yield mistake

    def _other_nodes(self, place: Place) -> Iterator[Mistake]:
        """Yield mistakes in which the node has another attribute value, integer parameter or operator."""
        operands = self._sample(place).result.operands
        if self._quant is not None and self._later:
            yield from codes_passed_on(self._form, operands, self._quant)
            yield from saturating_results(self._form, self._sample(place).exact, self._quant)
        if self._quant is not None:
            yield from activations_of_scaled_inputs(self._form, operands, self._quant)
        quants = self._quants_of_operands()
        for quant in islice(quants.values(), 1):
            yield from divisions_of_codes(self._form, operands, quant)
        yield from saturating_pairs(self._form, operands, quants)
        yield from scales_along_other_axes(self._form, self._sample(place).exact, self._constants)
        yield from other_attributes(self._form, operands, self._opset)
        yield from other_integers(self._form, operands)
        yield from other_operators(self._form)

    def find_differing_number(self) -> str | None:
        """Return a clause with a number that the node uses another value of, if that reproduces every element."""
        mistake = self._find_number(whole=True)
        return None if mistake is None else f"{LIKELY}{mistake} ({self.claim})"

    def _find_number(self, *, whole: bool) -> str | None:
        """Return a number that differs, in words, if it reproduces all elements if `whole`, else the wrong ones."""
        sample = self._sample(self._places[0])
        first, wrong_values = sample.result, sample.result.recorded[sample.wrong]
        if np.unique(wrong_values).size < CAUSE_MIN_DISTINCT_VALUES or self._max_replays < _REPLAYS_PER_FIT:
            return None
        fitted = np.ones_like(sample.wrong) if whole else sample.wrong

        def compute(mistake: Mistake) -> np.ndarray | None:
            result = self._compute_output(self._places[0], mistake)
            return None if result is None or result.shape != fitted.shape else result[fitted]

        dials_by_place = [self._dials(place) for place in self._places]
        for same_dials in zip(*dials_by_place, strict=True):
            solved = solve(same_dials[0], first.recorded[fitted], compute)
            for value in _round_numbers(solved, is_whole=same_dials[0].is_whole):
                if value == same_dials[0].start:
                    break
                if all(
                    self._is_reproduced_by(dial.mistake(value), place, whole=whole)
                    for dial, place in zip(same_dials, self._places, strict=True)
                ):
                    likely: str = same_dials[0].mistake(value).likely
                    return likely
        return None

    def _dials(self, place: Place) -> list[Dial]:
        defaults: dict[str, AttrValue | None] = {}
        operands = self._sample(place).result.operands
        with recorded_limits(self._recording, place), np.errstate(all="ignore"):
            run_node(self._form, operands, self._opset, defaults=defaults)
            return list(dials(self._form, operands, defaults, self._opset, self._quants_of_operands()))

    def _quants_of_operands(self) -> Mapping[str, QuantParams]:
        """Return the scale and zero point of each operand that is read as codes of a single scale."""
        graph = self._recording.graph
        quants = {}
        for name in filter(None, self._form.inputs):
            maker = graph.producer(name)
            codes = maker.inputs[0] if maker is not None and operators.of(maker.op).dequantizes else name
            quants[name] = graph.tensors[codes].quant if codes in graph.tensors else None
        return {
            name: quant
            for name, quant in quants.items()
            if quant is not None and is_integer(quant.dtype) and quant.scale.size == quant.zero_point.size == 1
        }

    def _compute_output(self, place: Place, mistake: Mistake) -> np.ndarray | None:
        with recorded_limits(self._recording, place), np.errstate(all="ignore"):
            result = output_with_mistake(
                mistake, self._sample(place).result.operands, self._opset, None, self._form_output
            )
            return None if result is None else self._apply_later_nodes_or_none(result, place)

    def _apply_later_nodes_or_none(self, result: np.ndarray, place: Place) -> np.ndarray | None:
        """Apply the later nodes to an output of the node, or return None if they cannot process it."""
        try:
            return self._apply_later_nodes(result, place)
        except (KernelError, UsageError):
            return None

    def find_miscounted_parts(self) -> str | None:
        """Return a clause with wrong weights of parts of an operand in sums, if they reproduce every element.

        For an average pool, return a clause with wrong divisors of its windows.
        """
        row = operators.of(self._form.op)
        if self._is_conclusive and operators.plain(self._form).unit == "average_pool":
            windows = {self._clause_of_windows(place) for place in self._places}
            clause = windows.pop()
            return f"{LIKELY}{clause} ({self.claim})" if clause is not None and not windows else None
        if not self._is_conclusive or self._max_replays < _REPLAYS_PER_FIT or not (row.sums or row.reduces):
            return None
        clause = self._clause_of_parts(whole=True)
        return None if clause is None else f"{LIKELY}{clause} ({self.claim})"

    def _clause_of_parts(self, *, whole: bool) -> str | None:
        """Return a clause with wrong weights of blocks of an operand that reproduce all elements or the wrong ones."""
        operands = self._sample(self._places[0]).result.operands
        for name, array in operands.items():
            for partition in partitions(self._form, name, array) if array.dtype.kind == "f" else ():
                common: str | None = None
                for place in self._places:
                    clause = self._clause_of_blocks(place, partition, whole=whole)
                    if clause is None or common not in (None, clause):
                        break
                    common = clause
                else:
                    return common
        return None

    def _clause_of_blocks(self, place: Place, partition: Partition, *, whole: bool) -> str | None:
        sample = self._sample(place)
        result = sample.result
        if result.recorded.size > _MAX_ELEMENTS_FOR_BLOCKS:
            return None
        decisive = np.ones(result.recorded.shape, bool) if whole else sample.wrong.copy()
        if self.has_codes:  # the lowest and highest codes may be clipped
            decisive &= (result.recorded > result.recorded.min()) & (result.recorded < result.recorded.max())
        compute = partial(self._compute_output, place)
        miscounts = miscounted_blocks(
            self._form, partition, result.operands, result.recorded, compute, decisive=decisive
        )
        return next(
            (mistake.likely for mistake in miscounts if self._is_reproduced_by(mistake, place, whole=whole)), None
        )

    def _clause_of_windows(self, place: Place) -> str | None:
        result = self._sample(place).result
        compute = partial(self._compute_output, place)
        windows = miscounted_windows(self._form, result.operands, self._opset, result.recorded, compute)
        return next((mistake.likely for mistake in windows if self._is_reproduced_by(mistake, place, whole=True)), None)

    def find_other_tensor(self) -> str | None:
        """Return a clause with the recorded tensor that is read in place of an operand, or None."""
        return self._clause_of_fitting(self._substituted_operands(self._places[0]))

    def _substituted_operands(self, place: Place) -> Iterator[Mistake]:
        operands = self._sample(place).result.operands
        return substituted_operands(self._recording, self._node, self._form, operands, place=place, tensor=self._tensor)

    def find_unbroadcast_operand(self) -> str | None:
        """Return a clause if only the elements that need no broadcast of an operand are right, or None."""
        clauses = set()
        for sample in map(self._sample, self._places):
            shapes = {name: array.shape for name, array in sample.result.operands.items()}
            is_comparable = sample.exact.shape == sample.wrong.shape
            clauses.add(unbroadcast_operand(self._form, shapes, sample.wrong) if is_comparable else None)
        clause = clauses.pop()
        return None if clauses or clause is None else f"{LIKELY}{clause} (the others hold all wrong elements)"

    def find_copied_part(self) -> str | None:
        """Return a clause with the recorded tensor that the wrong elements equal at the same indices, or None.

        All other elements must be right.
        """
        samples = [self._sample(place) for place in self._places]
        wrong_values = np.concatenate([sample.result.recorded[sample.wrong] for sample in samples])
        if np.unique(wrong_values).size < CAUSE_MIN_DISTINCT_VALUES or all(sample.wrong.all() for sample in samples):
            return None
        excluded_tensors = {self._tensor, *downstream(self._recording.graph, [self._tensor])}
        common_names: list[str] | None = None
        for place, sample in zip(self._places, samples, strict=True):
            tensors = tensors_of_shape(self._recording, sample.wrong.shape, place, excluded=excluded_tensors)
            names = [name for name, values in tensors if _equals_where_wrong(sample, values)]
            common_names = names if common_names is None else [name for name in common_names if name in names]
        if not common_names:
            return None
        last = [self._node, *self._later][-1]
        place_clause = locate_outliers(self._recording, last, self._tensor, self._places)
        where = f"{place_clause}: " if place_clause else ""
        return f"{where}the wrong elements are equal to {common_names[0]!r} at the same positions"

    def _clause_of_fitting(self, candidates: Iterable[Mistake]) -> str | None:
        fitting_mistakes = self._fitting_mistakes(candidates, whole=True) if self._is_conclusive else []
        return (
            f"{LIKELY}{', or '.join(fitting_mistakes)} ({self.claim})"
            if 0 < len(fitting_mistakes) <= MAX_REPORTED_MISTAKES
            else None
        )

    @property
    def max_replays(self) -> int:
        """Maximum number of replays of the node in one search."""
        return self._max_replays

    @property
    def claim(self) -> str:
        """How exactly the accepted candidates reproduce the output, as a clause."""
        return ONE_OFF if self._one_off else EVERY

    def find_mistake_in_part(self) -> str | None:
        """Return a clause with a cause that reproduces the wrong elements, if all other elements are right, or None.

        The clause begins with where the wrong elements are.
        """
        first = self._sample(self._places[0])
        samples = [self._sample(place) for place in self._places]
        wrong_values = np.concatenate([sample.result.recorded[sample.wrong] for sample in samples])
        if np.unique(wrong_values).size < CAUSE_MIN_DISTINCT_VALUES or first.wrong.all():
            return None
        kinds = (mistakes(self._form, first.result.operands, self._opset), *self._alterations(self._places[0]))
        fitting_by_kind = (self._fitting_mistakes(kind, whole=False) for kind in kinds)
        fitting_mistakes = next((fitting for fitting in fitting_by_kind if fitting), [])
        if not fitting_mistakes and self._max_replays >= _REPLAYS_PER_FIT and operators.of(self._form.op).sums:
            fitting_mistakes = list(filter(None, [self._clause_of_parts(whole=False)]))
        if len(fitting_mistakes) > MAX_REPORTED_MISTAKES:
            return None
        cause = ", or ".join(fitting_mistakes) or self._find_relation_in_part() or self._find_number(whole=False)
        if cause is None:
            return None
        last = [self._node, *self._later][-1]
        place_clause = locate_outliers(self._recording, last, self._tensor, self._places)
        # Scattered codes may equal those of some mistake by chance, and scattered numbers those of a relation.
        if place_clause is None and (self.has_codes or not fitting_mistakes):
            return None
        place = place_clause or f"{np.count_nonzero(first.wrong)} of {first.wrong.size} elements"
        return f"{LIKELY}{place}: {cause} (reproduces all wrong elements)"

    def _find_relation_in_part(self) -> str | None:
        """Return a relation of the wrong elements of real numbers to the right ones, in words, or None."""
        samples = [sample for sample in map(self._sample, self._places) if sample.wrong.any()]
        if self._later or self.has_codes:
            return None
        return self._common_relation(relation_of, [sample.result.part(sample.wrong) for sample in samples])

    def _fitting_mistakes(self, candidates: Iterable[Mistake], *, whole: bool) -> list[str]:
        """Return the mistakes, in words, that reproduce every sample: all elements if `whole`, else the wrong ones."""
        fitting_mistakes: list[Mistake] = []
        for mistake in islice(candidates, self._max_replays):
            if self._is_reproduced_by(mistake, self._places[0], whole=whole) and not any(
                _is_same(mistake, equal_mistake, self._sample(self._places[0]).exact)
                for equal_mistake in fitting_mistakes
            ):
                fitting_mistakes.append(mistake)
        clauses = [mistake.likely for mistake in fitting_mistakes]
        for place in self._places[1:] if clauses else ():
            values = self._sample(place).result.operands
            sample_candidates = chain(
                mistakes(self._form, values, self._opset),
                *self._alterations(place),
                self._functions(place),
                self._substituted_operands(place),
            )
            is_fitting: dict[str, bool] = {}
            for each in sample_candidates:
                if each.likely in clauses and not is_fitting.get(each.likely):
                    is_fitting[each.likely] = self._is_reproduced_by(each, place, whole=whole)
            # A mistake that has no effect on a blank sample may not be tried on it.
            untried = _is_blank(self._sample(place))
            clauses = [each for each in clauses if is_fitting.get(each, untried)]
        return list(dict.fromkeys(clauses))

    def _is_reproduced_by(self, mistake: Mistake, place: Place, *, whole: bool) -> bool:
        if mistake.determined or (mistake.is_rounding and not self._roundings):
            return False
        sample = self._sample(place)
        right_result = sample.exact if mistake.node is self._form else None
        with recorded_limits(self._recording, place), np.errstate(all="ignore"):
            result = output_with_mistake(mistake, sample.result.operands, self._opset, right_result, self._form_output)
            computed_values = None if result is None else self._apply_later_nodes_or_none(result, place)
        return computed_values is not None and self._matches(sample, computed_values, whole=whole)

    def is_reproduced(self, computed_values: np.ndarray, place: Place) -> bool:
        """Return whether computed real numbers reproduce all recorded elements of a sample."""
        return self._matches(self._sample(place), computed_values, whole=True)

    def _matches(self, sample: _Sample, computed_values: np.ndarray, *, whole: bool) -> bool:
        if computed_values.shape != sample.wrong.shape:
            return False
        if whole and not self._match_in_few_elements(sample, computed_values):
            return False
        if self.has_codes:
            return self._are_equal(sample, fake_quantize(computed_values, self._quant), whole=whole)
        errors = np.abs(difference(sample.result.recorded, computed_values))
        if sample.step:
            return self._are_off_by_codes(sample, errors if whole else errors[sample.wrong])
        if not whole:
            return bool((errors[sample.wrong] <= sample.slack).all())
        return finite_norm(errors) <= sample.allowed and bool(np.isfinite(errors).all())

    def _are_off_by_codes(self, sample: _Sample, errors: np.ndarray) -> bool:
        """Return whether errors are rounding, except for a few that one code before the later nodes accounts for."""
        equal_count = int(np.count_nonzero(errors <= sample.slack))
        is_close = bool((errors <= sample.slack + sample.step * (1 + LSB_SLACK)).all())
        accepted = is_close and equal_count >= FURTHER_CAUSE_MIN_EQUAL_CODES * errors.size
        self._one_off |= accepted and equal_count < errors.size
        return accepted

    def _match_in_few_elements(self, sample: _Sample, computed_values: np.ndarray) -> bool:
        """Return whether the few elements that are checked first match. If not, the full comparison can be skipped."""
        computed_subset, recorded_subset = (
            array.reshape(-1)[sample.checked_first] for array in (computed_values, sample.result.recorded)
        )
        if self._quant is not None:
            if self._quant.scale.size > 1:  # the channel of a flat index, and so its scale, is not known here
                return True
            return bool(
                (np.abs(difference(recorded_subset, fake_quantize(computed_subset, self._quant))) <= sample.slack).all()
            )
        errors = difference(recorded_subset, computed_subset)
        if sample.step:
            return bool((np.abs(errors) <= sample.slack + sample.step * (1 + LSB_SLACK)).all())
        return norm(errors) <= sample.allowed


def _is_blank(sample: _Sample) -> bool:
    """Return whether a sample is right and has too few different values to tell mistakes apart."""
    return not sample.wrong.any() and not is_conclusive(sample.result.recorded)


def _round_numbers(value: float | None, *, is_whole: bool) -> list[float]:
    """Return roundings of a number, coarsest first; for an integer, only one."""
    if value is None or not math.isfinite(value):
        return []
    if is_whole:
        return [float(round(value))]
    return list(dict.fromkeys([*(float(f"{value:.{digits}g}") for digits in (1, 2, 3, 4)), value]))


def _equals_where_wrong(sample: _Sample, values: np.ndarray) -> bool:
    errors = np.abs(difference(sample.result.recorded[sample.wrong], values[sample.wrong]))
    return bool((errors <= sample.slack).all())


def _is_same(mistake: Mistake, candidate: Mistake, right: np.ndarray) -> bool:
    """Return whether two mistakes compute the same result from the same values, although their wording differs."""
    if isinstance(mistake.after, EditedResult) and isinstance(candidate.after, EditedResult):
        return mistake.after.equals(candidate.after, right)
    return (
        mistake.node == candidate.node
        and mistake.after is candidate.after
        and mistake.opset == candidate.opset
        and mistake.values.keys() == candidate.values.keys()
        and all(np.array_equal(array, candidate.values[name]) for name, array in mistake.values.items())
    )


def _indices_to_check_first(is_wrong: np.ndarray) -> np.ndarray:
    """Return flat indices of some wrong elements and of evenly spread elements, sorted."""
    spread = np.arange(0, is_wrong.size, max(is_wrong.size // _FEW_ELEMENTS, 1))
    return np.union1d(spread, np.flatnonzero(is_wrong)[:_FEW_ELEMENTS])


_FAR_OFF_MIN_ERROR = 0.01
"""Relative error norm of a layer's output above which a mistake inside it is searched for."""
_FEW_ELEMENTS = 1 << 12
"""Number of wrong elements, and of evenly spread elements, that are compared first."""
_REPLAYS_PER_FIT = 100
"""Number of replays that fitting a number, or a wrong step, takes. Nodes too large for them are not fitted."""
_MAX_ELEMENTS_FOR_BLOCKS = 1 << 20
"""Maximum number of elements of a result for which the weights of an operand's blocks are solved for."""
