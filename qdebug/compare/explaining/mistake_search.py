"""Searches for a mistake whose replay reproduces the wrong output of a node. Begin at `MistakeSearch`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice

import numpy as np

from qdebug.arithmetic.definitions.catalogue import definition_of
from qdebug.arithmetic.mistakes.attributes import other_attributes, other_integers, other_operators
from qdebug.arithmetic.mistakes.constants import constant_dials
from qdebug.arithmetic.mistakes.edits import EditedResult, edited_definitions
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
from qdebug.arithmetic.mistakes.mistake import Mistake, applicable, listed
from qdebug.arithmetic.mistakes.readings import readings, rewritings
from qdebug.arithmetic.mistakes.scales import (
    activations_of_scaled_inputs,
    codes_passed_on,
    divisions_of_codes,
    saturating_pairs,
    saturating_results,
    scales_along_other_axes,
    unsigned_shifts,
)
from qdebug.arithmetic.mistakes.state_edits import edited_states
from qdebug.arithmetic.relations import functions_as_mistakes
from qdebug.compare.explaining.claims import LIKELY, MAX_REPORTED_MISTAKES
from qdebug.compare.explaining.mistaken import output_with_mistake
from qdebug.compare.explaining.node_samples import NodeSamples, Place, Sample, is_blank
from qdebug.compare.explaining.other_tensors import substituted_operands
from qdebug.model import AttrValue, QuantParams, operators
from qdebug.model.dtypes import is_integer
from qdebug.model.thresholds.explanation import CAUSE_MIN_DISTINCT_VALUES
from qdebug.replay.extents import recorded_limits
from qdebug.replay.registry import run_node

__all__ = ["REPLAYS_PER_FIT", "MistakeSearch"]


class MistakeSearch(NodeSamples):
    """Searches for mistakes of a node that reproduce its wrong output if the node is replayed with them."""

    def find_mistake(self) -> str | None:
        """Return a clause with the known mistake of the operator that reproduces every element, or None."""
        return self._clause_of_fitting(mistakes(self._form, self._sample(self._places[0]).result.operands, self._opset))

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
        if self._max_replays >= REPLAYS_PER_FIT:
            sample = self._sample(place)
            definition = definition_of(self._form, sample.result.operands, self._opset, self._form_output)
            yield from edited_definitions(self._form, definition, sample.exact)
            yield from edited_states(self._form, definition, sample.exact, sample.result.operands)

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
        target = self._codes_of_layer
        if target is not None:
            yield from saturating_results(self._form, self._sample(place).exact, target)
            yield from unsigned_shifts(self._form, self._sample(place).exact, target)
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
        if np.unique(wrong_values).size < CAUSE_MIN_DISTINCT_VALUES or self._max_replays < REPLAYS_PER_FIT:
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
            own = dials(self._form, operands, defaults, self._opset, self._quants_of_operands())
            definition = definition_of(self._form, operands, self._opset, self._form_output)
            return [*own, *constant_dials(self._form, definition, self._sample(place).exact)]

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

    def find_miscounted_parts(self) -> str | None:
        """Return a clause with wrong weights of parts of an operand in sums, if they reproduce every element.

        For an average pool, return a clause with wrong divisors of its windows.
        """
        row = operators.of(self._form.op)
        if self._is_conclusive and operators.plain(self._form).unit == "average_pool":
            windows = {self._clause_of_windows(place) for place in self._places}
            clause = windows.pop()
            return f"{LIKELY}{clause} ({self.claim})" if clause is not None and not windows else None
        if not self._is_conclusive or self._max_replays < REPLAYS_PER_FIT or not (row.sums or row.reduces):
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

    def _clause_of_fitting(self, candidates: Iterable[Mistake]) -> str | None:
        fitting_mistakes = self._fitting_mistakes(candidates, whole=True) if self._is_conclusive else []
        cause = listed(fitting_mistakes, MAX_REPORTED_MISTAKES)
        return None if cause is None else f"{LIKELY}{cause} ({self.claim})"

    def _fitting_mistakes(self, candidates: Iterable[Mistake], *, whole: bool) -> list[Mistake]:
        """Return the mistakes that reproduce every sample: all elements if `whole`, else the wrong ones."""
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
            untried = is_blank(self._sample(place))
            clauses = [each for each in clauses if is_fitting.get(each, untried)]
        return [mistake for mistake in fitting_mistakes if mistake.likely in clauses]

    def _is_reproduced_by(self, mistake: Mistake, place: Place, *, whole: bool) -> bool:
        if mistake.is_rounding and not self._roundings:
            return False
        sample = self._sample(place)
        computed_values = self._output_with(mistake, place)
        if computed_values is not None and mistake.determined:
            computed_values = self._completed(mistake, sample, computed_values)
        if computed_values is None:
            return False
        if self._matches(sample, computed_values, whole=whole):
            return True
        rival = mistake.with_other_unread() if whole else None
        other_values = None if rival is None else self._output_with(rival, place)
        if other_values is None or other_values.shape != computed_values.shape:
            return False
        is_known = (computed_values == other_values) | (np.isnan(computed_values) & np.isnan(other_values))
        return self._matches_where_known(sample, computed_values, is_known)

    def _output_with(self, mistake: Mistake, place: Place) -> np.ndarray | None:
        """Return the output with a mistake, after the later nodes. The node is not replayed if it need not be."""
        sample = self._sample(place)
        right_result = sample.exact if mistake.node is self._form else None
        with recorded_limits(self._recording, place), np.errstate(all="ignore"):
            result = output_with_mistake(mistake, sample.result.operands, self._opset, right_result, self._form_output)
            return None if result is None else self._apply_later_nodes_or_none(result, place)

    def _completed(self, mistake: Mistake, sample: Sample, computed_values: np.ndarray) -> np.ndarray | None:
        """Return a result with the recorded elements where a mistake does not determine it.

        None if later nodes mix elements, or too few of the determined elements are wrong.
        """
        rows = [operators.of(node.op) for node in self._later]
        if not all(row.elementwise or row.quantizes or row.dequantizes for row in rows):
            return None
        is_known = np.zeros(sample.wrong.shape, bool)
        is_known[mistake.determined] = True
        if computed_values.shape != is_known.shape:
            return None
        if np.unique(sample.result.recorded[sample.wrong & is_known]).size < CAUSE_MIN_DISTINCT_VALUES:
            return None
        return np.where(is_known, computed_values, sample.result.recorded)

    def _compute_output(self, place: Place, mistake: Mistake) -> np.ndarray | None:
        with recorded_limits(self._recording, place), np.errstate(all="ignore"):
            result = output_with_mistake(
                mistake, self._sample(place).result.operands, self._opset, None, self._form_output
            )
            return None if result is None else self._apply_later_nodes_or_none(result, place)


def _round_numbers(value: float | None, *, is_whole: bool) -> list[float]:
    """Return roundings of a number, coarsest first; for an integer, only one."""
    if value is None or not math.isfinite(value):
        return []
    if is_whole:
        return [float(round(value))]
    return list(dict.fromkeys([*(float(f"{value:.{digits}g}") for digits in (1, 2, 3, 4)), value]))


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


REPLAYS_PER_FIT = 100
"""Number of replays that fitting a number, or a wrong step, takes. Nodes too large for them are not fitted."""
_MAX_ELEMENTS_FOR_BLOCKS = 1 << 20
"""Maximum number of elements of a result for which the weights of an operand's blocks are solved for."""
