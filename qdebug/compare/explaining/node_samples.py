"""What a node with a wrong output computed in each sample, right and recorded. Begin at `NodeSamples`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.arithmetic.patterns.wrong_places import may_be_confined
from qdebug.arithmetic.relations import Result
from qdebug.compare.attribute.band import allowed_error, difference, finite_norm, norm, sum_terms
from qdebug.compare.explaining.claims import EVERY, KNOWN, ONE_OFF
from qdebug.compare.explaining.fused import WithFused, makes_codes
from qdebug.compare.explaining.mistaken import form_of_output, is_conclusive, rounding_norm
from qdebug.errors import KernelError, UsageError
from qdebug.model import Node, QuantParams, Recording, operators
from qdebug.model.thresholds.explanation import (
    CAUSE_MIN_DISTINCT_REALS,
    CAUSE_MIN_DISTINCT_VALUES,
    FURTHER_CAUSE_MAX_SUMS,
    FURTHER_CAUSE_MIN_EQUAL_CODES,
    KNOWN_RESULTS_MIN_SHARE,
    OUTLIER_ERROR_RATIO,
)
from qdebug.model.thresholds.rounding import FLOAT32_UNIT_ROUNDOFF, LSB_SLACK, ROUNDING_SUM_FACTOR
from qdebug.numerics.affine import dequantize, fake_quantize
from qdebug.numerics.short_formats import format_of
from qdebug.replay.extents import recorded_limits
from qdebug.replay.registry import run_node

__all__ = ["NodeSamples", "Place", "Sample", "is_blank"]

Place = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
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


class NodeSamples:
    """The results of a node with a wrong output in some samples, and whether computed results reproduce them.

    The node may lie inside a fused layer. Then only the output of the layer was recorded, and computed results are
    judged by that output.

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
        self._samples: dict[Place, Sample] = {}
        self._one_off = False
        """Whether a candidate was accepted although a few of its codes are off by one."""
        self._depends_on_unknown = False
        """Whether a candidate was accepted that does not determine all elements."""
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
    def _is_telling(sample: Sample) -> bool:
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

    @property
    def _is_unwritten(self) -> bool:
        """Whether all wrong elements hold the same number. Their positions then reveal more about the cause."""
        first = self._sample(self._places[0])
        wrong_values = first.result.recorded[first.wrong]
        return wrong_values.size >= CAUSE_MIN_DISTINCT_VALUES and bool((wrong_values == wrong_values[0]).all())

    @property
    def max_replays(self) -> int:
        """Maximum number of replays of the node in one search."""
        return self._max_replays

    @property
    def claim(self) -> str:
        """How exactly the accepted candidates reproduce the output, as a clause."""
        return ONE_OFF if self._one_off else KNOWN if self._depends_on_unknown else EVERY

    def _sample(self, place: Place) -> Sample:
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
            self._samples[place] = Sample(
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

    def _apply_later_nodes_or_none(self, result: np.ndarray, place: Place) -> np.ndarray | None:
        """Apply the later nodes to an output of the node, or return None if they cannot process it."""
        try:
            return self._apply_later_nodes(result, place)
        except (KernelError, UsageError):
            return None

    @property
    def _codes_of_layer(self) -> QuantParams | None:
        """The scale and zero point of the only codes that the rest of the layer rounds to, or None."""
        if not self._later:
            return None
        inner = [self._recording.graph.tensors[node.outputs[0]].quant for node in self._later if makes_codes(node)]
        return self._quant or (inner[0] if len(inner) == 1 else None)

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
        if operators.of(form.op).rounds_nothing:
            return max(inside, unit * finite_norm(result))
        return max(inside, allowed_error(form, values, result, opset, unit))

    def is_reproduced(self, computed_values: np.ndarray, place: Place) -> bool:
        """Return whether computed real numbers reproduce all recorded elements of a sample."""
        return self._matches(self._sample(place), computed_values, whole=True)

    def _matches(self, sample: Sample, computed_values: np.ndarray, *, whole: bool) -> bool:
        if computed_values.shape != sample.wrong.shape:
            return False
        if whole and not self._match_in_few_elements(sample, computed_values):
            return False
        if self.has_codes:
            return self._are_equal(sample, fake_quantize(computed_values, self._quant), whole=whole)
        errors = np.abs(difference(sample.result.recorded, computed_values))
        if sample.step:
            is_confined = whole or _is_confined(sample, errors - sample.step * (1 + LSB_SLACK))
            return is_confined and self._are_off_by_codes(sample, errors if whole else errors[sample.wrong])
        if not whole:
            return bool((errors[sample.wrong] <= sample.slack).all()) and _is_confined(sample, errors)
        return finite_norm(errors) <= sample.allowed and bool(np.isfinite(errors).all())

    def _matches_where_known(self, sample: Sample, computed_values: np.ndarray, is_known: np.ndarray) -> bool:
        """Return whether computed results match where they are known, if enough elements are."""
        if computed_values.shape != sample.wrong.shape or is_known.mean() < KNOWN_RESULTS_MIN_SHARE:
            return False
        if not is_conclusive(sample.result.recorded[sample.wrong & is_known]):
            return False
        values = np.where(is_known, computed_values, sample.result.recorded)
        accepted = self._matches(sample, values, whole=True)
        self._depends_on_unknown |= accepted
        return accepted

    def _are_equal(self, sample: Sample, computed_codes: np.ndarray, *, whole: bool = True) -> bool:
        """Return whether codes equal the recorded ones, except for errors of one LSB in a few of them."""
        errors = np.abs(difference(sample.result.recorded, computed_codes))
        if not whole and not _is_confined(sample, errors):
            return False
        errors = errors if whole else errors[sample.wrong]
        equal_count = np.count_nonzero(errors <= sample.slack * LSB_SLACK)
        accepted = bool((errors <= sample.slack).all()) and equal_count >= FURTHER_CAUSE_MIN_EQUAL_CODES * errors.size
        self._one_off |= accepted and bool(errors.any())
        return accepted

    def _are_off_by_codes(self, sample: Sample, errors: np.ndarray) -> bool:
        """Return whether errors are rounding, except for a few that one code before the later nodes accounts for."""
        equal_count = int(np.count_nonzero(errors <= sample.slack))
        is_close = bool((errors <= sample.slack + sample.step * (1 + LSB_SLACK)).all())
        accepted = is_close and equal_count >= FURTHER_CAUSE_MIN_EQUAL_CODES * errors.size
        self._one_off |= accepted and equal_count < errors.size
        return accepted

    def _match_in_few_elements(self, sample: Sample, computed_values: np.ndarray) -> bool:
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


def _is_confined(sample: Sample, errors: np.ndarray) -> bool:
    """Return whether a mistake with these errors may be made only in the place of the wrong elements."""
    return may_be_confined(sample.wrong, ~(errors <= sample.slack))


def is_blank(sample: Sample) -> bool:
    """Return whether a sample is right and has too few different values to tell mistakes apart."""
    return not sample.wrong.any() and not is_conclusive(sample.result.recorded)


def _indices_to_check_first(is_wrong: np.ndarray) -> np.ndarray:
    """Return flat indices of some wrong elements and of evenly spread elements, sorted."""
    spread = np.arange(0, is_wrong.size, max(is_wrong.size // _FEW_ELEMENTS, 1))
    return np.union1d(spread, np.flatnonzero(is_wrong)[:_FEW_ELEMENTS])


_FAR_OFF_MIN_ERROR = 0.01
"""Relative error norm of a layer's output above which a mistake inside it is searched for."""
_FEW_ELEMENTS = 1 << 12
"""Number of wrong elements, and of evenly spread elements, that are compared first."""
