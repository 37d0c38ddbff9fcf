"""Searches for the cause of a node's wrong output. Begin at `WrongNode`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from itertools import chain

import numpy as np

from qdebug.arithmetic.formulas import fixed_point_relation_of, formula_of
from qdebug.arithmetic.input_thresholds import results_by_input
from qdebug.arithmetic.integer_digits import float_digits_of_integers
from qdebug.arithmetic.mistakes.known import mistakes
from qdebug.arithmetic.mistakes.mistake import Mistake, listed
from qdebug.arithmetic.mistakes.normalization import cancelled_variance
from qdebug.arithmetic.mistakes.repeats import written_in_other_order
from qdebug.arithmetic.patterns.misplaced_rows import RowsOfResult, misplaced_rows
from qdebug.arithmetic.patterns.wrong_places import unbroadcast_operand
from qdebug.arithmetic.relations import (
    Result,
    coarse_relation_of,
    relation_by_index,
    relation_of,
    results_beyond_thresholds,
    weight_of_operand,
)
from qdebug.compare.attribute.band import difference, norm
from qdebug.compare.attribute.graph_walk import downstream
from qdebug.compare.attribute.grid_rounding import grid_of_codes
from qdebug.compare.explaining.claims import EVERY, LIKELY, MAX_REPORTED_MISTAKES, ONE_OFF
from qdebug.compare.explaining.code_lines import CodedSample, CodeLines
from qdebug.compare.explaining.float_band import locate_outliers
from qdebug.compare.explaining.mistake_search import REPLAYS_PER_FIT, MistakeSearch
from qdebug.compare.explaining.node_samples import Place, Sample, is_blank
from qdebug.compare.explaining.other_tensors import tensors_of_shape
from qdebug.model import operators
from qdebug.model.thresholds.explanation import CAUSE_MIN_DISTINCT_VALUES
from qdebug.model.thresholds.rounding import LSB_SLACK
from qdebug.numerics.affine import fake_quantize

__all__ = ["WrongNode"]


class WrongNode(MistakeSearch):
    """Searches for the cause of a wrong output of a node, a mistake or a relation to the right one.

    The arguments are those of `NodeSamples`.
    """

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
            or self.find_misplaced_rows()
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
            self._clause_of_fitting(written_in_other_order(self._form, first.exact))
            or self.find_relation(relation_of)
            or self.find_miscounted_operand()
            or self.find_threshold()
            or self.find_relation(fixed_point_relation_of)
            or self.find_relation(float_digits_of_integers)
        )
        if cause is not None:
            return cause
        if self._is_unwritten:
            cause = self._cause_of_one_value() or self.find_unbroadcast_operand()
            return cause or self.find_coarse_relation()
        return (
            self.find_mistake()  # several of them, as a single one would have been named before
            or self.find_alteration()
            or self.find_misplaced_rows(overwritten=True)
            or self.find_differing_number()
            or self.find_miscounted_parts()
            or self.find_relation(partial(formula_of, self._form))
            or self.find_cancelled_variance()
            or self.find_other_tensor()
            or self.find_coarse_relation()
            or self.find_mistake_in_part()
            or self.find_unbroadcast_operand()
            or self.find_copied_part()
            or self.find_relation(relation_by_index)
            or self.find_misplaced_rows()
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

    def cause_in_part(self) -> str | None:
        """Return a clause with the mistake of this inner node in a part of the layer's output, or None."""
        return self.find_mistake_in_part() or self.find_unbroadcast_operand()

    def cause_inside(self) -> str | None:
        """Return a clause with the mistake of this inner node that reproduces the layer's output, or None."""
        return self.find_mistake() or self.find_alteration()

    def relation_inside(self) -> str | None:
        """Return a clause with a relation or number of this inner node that reproduces the layer's output, or None."""
        return (
            self.find_function()
            or (None if self._later else self.find_misplaced_rows())
            or self.find_differing_number()
            or self.find_miscounted_parts()
        )

    def find_misplaced_rows(self, *, overwritten: bool = False) -> str | None:
        """Return a clause on the rows that hold the results of other rows, if all others are right or unwritten.

        Args:
            overwritten: Whether some rows must be unwritten.
        """
        samples = [self._sample(place) for place in self._places]
        step = 0.0 if self._quant is None else float(np.max(self._quant.scale))
        for claim, code_slack in ((EVERY, LSB_SLACK * step), (ONE_OFF, step)) if step else ((EVERY, 0.0),):
            results = [
                RowsOfResult(
                    right=sample.result.right,
                    recorded=sample.result.recorded,
                    slack=code_slack * (1 + LSB_SLACK) or sample.slack,
                    step=step,
                )
                for sample in samples
            ]
            clause = misplaced_rows(results, overwritten=overwritten)
            if clause is not None:
                return f"{LIKELY}{clause} ({claim})"
        return None

    def find_relation(self, find: Callable[[Result], str | None]) -> str | None:
        """Return a clause on how the recorded elements follow from the right ones, if it is the same in all samples.

        Args:
            find: Returns the relation in one sample, or None.
        """
        samples = [self._sample(place) for place in self._places]
        return self._common_relation(find, self._stacked_if_blank(samples))

    def find_coarse_relation(self) -> str | None:
        """Return a relation that several mistakes may cause, or None.

        Dequantized values are left out, because any function has few different results on their grid.
        """
        recorded = (self._sample(place).result.recorded for place in self._places)
        if not self.has_codes and grid_of_codes(lambda: recorded) is not None:
            return None
        return self.find_relation(coarse_relation_of)

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
    def _stacked_if_blank(samples: Sequence[Sample]) -> list[Result]:
        """Return the results of samples. Those of blank samples, which show no relation, are joined with the first."""
        blank = [sample.result for sample in samples[1:] if is_blank(sample)]
        others = [sample.result for sample in samples[1:] if not is_blank(sample)]
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
        ends, wrong_numbers = {_wrong_end_of_axis(sample.wrong) for sample in samples}, np.unique(recorded[wrong])
        if len(ends) == 1 and None not in ends and wrong_numbers.size == 1:  # in a sorted result, also the smallest
            last = [self._node, *self._later][-1]
            is_located = locate_outliers(self._recording, last, self._tensor, self._places) is not None
            return None if is_located or self.has_codes else f"{ends.pop()} are all {wrong_numbers[0]:g}"
        if not wrong.any():
            return None
        inputs = self._single_inputs(samples)
        by_input = () if inputs is None else results_by_input(inputs, right, wrong)
        for clause, result in chain(results_beyond_thresholds(right, recorded, wrong), by_input):
            parts = zip(np.split(result, cuts), samples, strict=True)
            if all(self._matches(sample, part.reshape(sample.exact.shape), whole=True) for part, sample in parts):
                return f"{clause} ({self.claim})"
        return None

    def _single_inputs(self, samples: Sequence[Sample]) -> np.ndarray | None:
        """Return the inputs of a function of one number in all samples, flat, or None for other operators."""
        names = [name for name in self._form.inputs if name]
        if len(names) != 1 or not operators.of(self._form.op).elementwise:
            return None
        inputs = [sample.result.operands[names[0]] for sample in samples]
        return np.concatenate([array.reshape(-1) for array in inputs]).astype(np.float64)

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

    def _code_lines(self) -> CodeLines:
        """Return the fit of the recorded codes to the exact results of all samples."""
        samples = [
            CodedSample(exact=sample.exact, codes=self._recording.load(self._tensor, *place), wrong=sample.wrong)
            for place in self._places
            for sample in (self._sample(place),)
        ]
        return CodeLines(self._recording, self._form, self._tensor, samples if self._is_conclusive else [])

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
        place_clause = self._place_clause()
        where = f"{place_clause}: " if place_clause else ""
        return f"{where}the wrong elements are equal to {common_names[0]!r} at the same positions"

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
        if not fitting_mistakes and self._max_replays >= REPLAYS_PER_FIT and operators.of(self._form.op).sums:
            clause = self._clause_of_parts(whole=False)
            fitting_mistakes = [Mistake(likely=clause, node=self._form, values={})] if clause else []
        known = listed(fitting_mistakes, MAX_REPORTED_MISTAKES)
        if fitting_mistakes and known is None:
            return None
        cause = known or self._find_relation_in_part() or self._find_number(whole=False)
        if cause is None:
            return None
        place_clause = self._place_clause()
        # Scattered codes may equal those of some mistake by chance, and scattered numbers those of a relation.
        if place_clause is None and (self.has_codes or not fitting_mistakes):
            return None
        place = place_clause or f"{np.count_nonzero(first.wrong)} of {first.wrong.size} elements"
        return f"{LIKELY}{place}: {cause} (reproduces all wrong elements)"

    def _place_clause(self) -> str | None:
        """Return a clause on where the wrong elements of the first sample lie, or None if they are scattered."""
        last, is_wrong = [self._node, *self._later][-1], self._sample(self._places[0]).wrong
        mask = is_wrong if self.has_codes else None
        return locate_outliers(self._recording, last, self._tensor, self._places, is_wrong=mask)

    def _find_relation_in_part(self) -> str | None:
        """Return a relation of the wrong elements of real numbers to the right ones, in words, or None."""
        samples = [sample for sample in map(self._sample, self._places) if sample.wrong.any()]
        if self._later or self.has_codes:
            return None
        return self._common_relation(relation_of, [sample.result.part(sample.wrong) for sample in samples])


def _wrong_end_of_axis(wrong: np.ndarray) -> str | None:
    """Return a clause on the last positions along an axis if all elements there are wrong and no others, or None."""
    for axis, extent in enumerate(wrong.shape):
        profile = np.atleast_1d(wrong.any(tuple(other for other in range(wrong.ndim) if other != axis)))
        count = int(np.count_nonzero(profile))
        if 0 < count < extent and profile[-count:].all() and np.count_nonzero(wrong) * extent == count * wrong.size:
            return f"the last {count} of {extent} elements along axis {axis}"
    return None


def _equals_where_wrong(sample: Sample, values: np.ndarray) -> bool:
    errors = np.abs(difference(sample.result.recorded[sample.wrong], values[sample.wrong]))
    return bool((errors <= sample.slack).all())
