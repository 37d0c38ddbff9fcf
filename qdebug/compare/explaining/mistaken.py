"""Finds the known mistake that reproduces a node's output. Begin at `mistake_of`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from itertools import chain

import numpy as np

from qdebug.arithmetic.mistakes.known import mistakes
from qdebug.arithmetic.mistakes.mistake import MISFITS, Mistake, listed
from qdebug.compare.attribute.backend_replay import inputs_of
from qdebug.compare.attribute.band import allowed_error, difference, finite_norm, norm
from qdebug.compare.explaining.claims import MAX_REPORTED_MISTAKES
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Node, Recording, operators
from qdebug.model.thresholds.explanation import (
    CAUSE_MIN_DISTINCT_VALUES,
    CAUSE_MIN_UNCOMMON_ELEMENTS,
)
from qdebug.model.thresholds.rounding import FLOAT32_UNIT_ROUNDOFF
from qdebug.numerics.short_formats import format_of
from qdebug.replay.extents import recorded_limits
from qdebug.replay.kernels.movement import slice_of_split
from qdebug.replay.precision import is_real, widen
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import run_node

__all__ = ["form_of_output", "is_conclusive", "mistake_of", "output_with_mistake", "rounding_norm"]


def mistake_of(
    recording: Recording,
    node: Node,
    tensor: str,
    places: Sequence[tuple[int, int]],
    *,
    or_right: bool = False,
    roundings: bool = True,
) -> str | None:
    """Return the only known mistake that reproduces all of a node's output, in words, or None if none or several do.

    Args:
        recording: The run.
        node: A node whose replay does not reproduce its output.
        tensor: The output: real numbers, or integer sums without a scale.
        places: Samples and steps to examine.
        or_right: Whether to return a mistake even if the replay reproduces the output as well. This tells which result
            a backend chose where the operator leaves it undefined, as for casts out of range.
        roundings: Whether a rounding to a shorter float format counts as a mistake.
    """
    if recording.graph.tensors[tensor].quant is not None or not places:
        return None
    candidates: dict[str, tuple[Mistake, _Fit]] | None = None  # by the text of the mistake
    is_wrong, fit_of_right = False, _Fit.IN_FLOAT32
    try:
        for place in _conclusive_first(recording, node, tensor, places):
            form, opset, values = form_of_output(recording, node, tensor, place)
            recorded = recording.load(tensor, *place)
            if candidates is None and not is_conclusive(_distinguishing_values(form, values, recorded)):
                return None
            with recorded_limits(recording, place), np.errstate(all="ignore"):
                right_result = run_node(form, values, opset)[tensor if tensor in form.outputs else form.outputs[0]]
                is_wrong = is_wrong or not _is_correct_up_to_rounding(form, values, opset, right_result, recorded)
                no_mistake = Mistake(likely="", node=form, values={})
                fit_of_right = min(fit_of_right, _fit_of(no_mistake, values, recorded, opset, right_result))
                tried = chain(mistakes(form, values, opset), _mistakes_of_scales(recording, form, values))
                fitting_here: dict[str, tuple[Mistake, _Fit]] = {}
                for each in (mistake for mistake in tried if roundings or not mistake.is_rounding):
                    fits_so_far = (each, _Fit.IN_FLOAT32) if candidates is None else candidates.get(each.likely)
                    if fits_so_far is None:
                        continue
                    right_if_same = right_result if each.node is form else None
                    computed = output_with_mistake(each, values, opset, right_if_same, tensor)
                    fit = _fit_of(each, values, recorded, opset, computed)
                    if each.determined:  # the part must tell it from a right result
                        unchanged = replace(no_mistake, determined=each.determined)
                        fit_of_part = _fit_of(unchanged, values, recorded, opset, right_result)
                        fit = fit if fit > fit_of_part else _Fit.NONE
                    if fit is not _Fit.NONE:
                        fitting_here[each.likely] = each, min(fit, fits_so_far[1])
                candidates = fitting_here
            if not candidates:
                return None
    except (KernelError, NotRecordedError, UsageError):
        return None
    if not (is_wrong or or_right):  # every mistake without an effect reproduces a right output
        return None
    closest = max((fit for _, fit in (candidates or {}).values()), default=_Fit.NONE)
    if closest <= fit_of_right and not or_right:  # the right result fits as well
        return None
    fitting = [each for each, fit in (candidates or {}).values() if fit is closest]
    # Prefer mistakes that determine all elements of the result.
    fitting_mistakes = [each for each in fitting if not each.determined] or fitting
    is_unique = len(fitting_mistakes) == 1 or (
        len({each.about for each in fitting_mistakes}) == 1 and fitting_mistakes[0].about
    )
    all_fitting = ", or ".join(each.likely for each in fitting_mistakes)
    return (listed(fitting_mistakes, MAX_REPORTED_MISTAKES) or all_fitting) if is_unique else None


def _conclusive_first(
    recording: Recording, node: Node, tensor: str, places: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the places, first one with values that tell mistakes apart. A blank sample does not."""
    form, _, _ = form_of_output(recording, node, tensor, places[0])
    read = form.inputs[0] if form.inputs and operators.of(form.op).casts else tensor
    conclusive = next((at for at in places if is_conclusive(recording.load(read, *at))), places[0])
    return [conclusive, *(at for at in places if at != conclusive)]


def _is_correct_up_to_rounding(
    form: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int], right: np.ndarray, recorded: np.ndarray
) -> bool:
    """Return whether a recorded output is the right one up to rounding."""
    if right.shape != recorded.shape or is_real(right.dtype) != is_real(recorded.dtype):
        return False
    if _has_exact_result(form, right):
        return np.array_equal(widen(right), widen(recorded), equal_nan=is_real(right.dtype))
    return norm(difference(widen(recorded), widen(right))) <= rounding_norm(form, values, right, recorded, opset)


def is_conclusive(values: np.ndarray, min_distinct_values: int = CAUSE_MIN_DISTINCT_VALUES) -> bool:
    """Return whether a match with these values rules out chance.

    It does if there are many distinct values, or many elements that differ from the most common value.

    Args:
        values: The values.
        min_distinct_values: Number of distinct values that suffices.
    """
    distinct, counts = np.unique(values, return_counts=True)
    return distinct.size >= min_distinct_values or counts.sum() - counts.max(initial=0) >= CAUSE_MIN_UNCOMMON_ELEMENTS


def _distinguishing_values(form: Node, values: Mapping[str, np.ndarray], recorded: np.ndarray) -> np.ndarray:
    """Return the values that must be diverse to distinguish mistakes: the output, or for a cast its input."""
    read = values.get(form.inputs[0]) if form.inputs and operators.of(form.op).casts else None
    return recorded if read is None else read


def form_of_output(
    recording: Recording, node: Node, tensor: str, place: tuple[int, int]
) -> tuple[Node, Mapping[str, int], dict[str, np.ndarray]]:
    """Return the real form of a node for one of its outputs, with its operator set versions and inputs.

    For a Split, this is a Slice. A node that dequantizes is its own form, because a kernel may misread its codes and
    scales.

    Args:
        recording: The run.
        node: The node.
        tensor: One of its outputs.
        place: Sample and step.

    Raises:
        KernelError: The tensor is not an output of the form, or an input cannot be computed.
        NotRecordedError: An input was not recorded.
    """
    if operators.of(node.op).dequantizes:
        stored = {name: recording.load(name, *place) for name in dict.fromkeys(node.inputs) if name}
        return node, recording.graph.opset, stored
    form, opset = real_form(node, recording.graph.opset)
    values = inputs_of(recording, form, place)
    part = slice_of_split(form, tensor, values, opset)
    if part is not None:
        return part
    if tensor not in form.outputs:
        raise KernelError(f"{tensor!r} is not an output of {node.op} {node.name!r} as computed here.")
    return form, opset, values


def _reads_constants(recording: Recording, node: Node) -> bool:
    return all(recording.graph.is_constant(each) and recording.has(each) for each in node.inputs if each)


def _mistakes_of_scales(recording: Recording, form: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in dequantizing a constant input.

    Its scales are applied along a wrong axis, shifted by one channel, or replaced by the first scale, or its codes are
    unpacked wrongly.
    """
    graph = recording.graph
    for name in dict.fromkeys(filter(None, form.inputs)):
        maker = graph.producer(name)
        if maker is None or not operators.plain(maker).dequantizes or name not in values:
            continue
        if not _reads_constants(recording, maker):
            continue
        scale, axis = recording.load(maker.inputs[1]).astype(np.float32), maker.attrs.get("axis", 1)
        weight = values[name]
        if (
            scale.ndim != 1
            or scale.size < _MIN_DETERMINED_EXTENT
            or not isinstance(axis, int)
            or np.unique(scale).size == 1
        ):
            continue
        codes = weight / _shaped_along(scale, axis, weight.ndim)
        for wrong_axis in range(weight.ndim):
            if wrong_axis != axis % weight.ndim and weight.shape[wrong_axis] == scale.size:
                clause = f"the scales of {name!r} are applied along axis {wrong_axis}, not {axis}"
                yield Mistake(
                    likely=clause, node=form, values={name: codes * _shaped_along(scale, wrong_axis, weight.ndim)}
                )
        yield from _mistakes_of_lanes(form, name, np.rint(codes), _shaped_along(scale, axis, weight.ndim))
        clause = f"the first scale of {name!r} is used for all channels"
        yield Mistake(likely=clause, node=form, values={name: np.asarray(codes * scale[0])})
        clause = f"the scales of {name!r} are shifted by one channel"
        yield Mistake(
            likely=clause, node=form, values={name: codes * _shaped_along(np.roll(scale, 1), axis, weight.ndim)}
        )


def _mistakes_of_lanes(form: Node, name: str, codes: np.ndarray, scale: np.ndarray) -> Iterator[Mistake]:
    """Yield codes that are unpacked in groups, with each negative code borrowing 1 from the next code of its group."""
    for axis, extent in enumerate(codes.shape):
        for lanes in (each for each in _LANES if extent % each == 0 and np.any(codes < 0)):
            parts = np.moveaxis(codes, axis, -1).reshape(-1, extent // lanes, lanes).copy()
            parts[..., 1:] -= parts[..., :-1] < 0
            borrowed = np.moveaxis(parts.reshape(np.moveaxis(codes, axis, -1).shape), -1, axis)
            clause = f"each negative code of {name!r} borrows 1 from the next along axis {axis}, in lanes of {lanes}"
            yield Mistake(likely=clause, node=form, values={name: (borrowed * scale).astype(np.float32)})


_LANES = (2, 4, 8)
"""Number of codes unpacked at a time."""


def _shaped_along(values: np.ndarray, axis: int, axes: int) -> np.ndarray:
    return values.reshape([-1 if at == axis % axes else 1 for at in range(axes)])


_MIN_DETERMINED_EXTENT = 3
"""Smallest extent of the last two axes for a mistake that leaves one row or column undetermined."""


class _Fit(IntEnum):
    """How closely a node with a mistake reproduces a recorded output, least closely first."""

    NONE = 0
    IN_SHORT_SUMS = 1
    """Within the error of sums in the output's short format, which allows much."""
    IN_FLOAT32 = 2
    """Exactly, or within the error of sums in float32 and one rounding of the result."""


def _fit_of(
    mistake: Mistake,
    values: Mapping[str, np.ndarray],
    recorded: np.ndarray,
    opset: Mapping[str, int],
    computed_output: np.ndarray | None,
) -> _Fit:
    """Return how closely a node with a mistake reproduces the recorded output.

    Args:
        mistake: The mistake.
        values: The node's inputs.
        recorded: The recorded output.
        opset: Version of each operator set.
        computed_output: The output with the mistake, or None if it cannot be computed.
    """
    if (
        computed_output is None
        or computed_output.shape != recorded.shape
        or is_real(computed_output.dtype) != is_real(recorded.dtype)
    ):
        return _Fit.NONE
    if mistake.determined and min(computed_output.shape[-2:], default=0) < _MIN_DETERMINED_EXTENT:
        return _Fit.NONE
    covered_output, covered_recorded = widen(computed_output[mistake.determined]), recorded[mistake.determined]
    real_recorded = widen(covered_recorded)
    if _has_exact_result(mistake.node, computed_output):
        is_equal = np.array_equal(covered_output, real_recorded, equal_nan=covered_output.dtype.kind == "f")
        return _Fit.IN_FLOAT32 if is_equal else _Fit.NONE
    operands = {**values, **mistake.values}
    error = norm(difference(real_recorded, covered_output))
    if error <= rounding_norm(mistake.node, operands, computed_output, covered_recorded, opset):
        return _Fit.IN_FLOAT32
    short_format = format_of(covered_recorded, read=operands.values())
    if short_format is None:
        return _Fit.NONE
    allowed = allowed_error(mistake.node, operands, computed_output, opset, short_format.unit)
    return _Fit.IN_SHORT_SUMS if error <= allowed else _Fit.NONE


def output_with_mistake(
    mistake: Mistake,
    values: Mapping[str, np.ndarray],
    opset: Mapping[str, int],
    right: np.ndarray | None,
    tensor: str = "",
) -> np.ndarray | None:
    """Compute the output of a node with a mistake, or return None if that is impossible.

    Args:
        mistake: The mistake.
        values: The node's inputs.
        opset: Version of each operator set.
        right: The correct output if it is known and the mistake leaves the node unchanged, to save the computation.
        tensor: The output. If the node with the mistake has none of this name, its first output is computed.
    """
    right_output = None if mistake.values or mistake.opset is not None else right
    try:
        if right_output is None:
            outputs = run_node(mistake.node, {**values, **mistake.values}, mistake.opset or opset)
            right_output = outputs[tensor if tensor in outputs else mistake.node.outputs[0]]
        result = mistake.after(right_output)
        return None if result.dtype.kind == "c" else result
    except (KernelError, UsageError, *MISFITS):
        return None


def rounding_norm(
    node: Node, values: Mapping[str, np.ndarray], made: np.ndarray, recorded: np.ndarray, opset: Mapping[str, int]
) -> float:
    """Return a bound for the error norm of sums in float32 and one rounding of the result.

    It is 0 for an operator that does not round.

    Args:
        node: The node's real form.
        values: Its inputs.
        made: Its computed output.
        recorded: Its recorded output, in its own format.
        opset: Version of each operator set.
    """
    if _has_exact_result(node, made):
        return 0.0
    short_format = format_of(recorded, read=values.values())
    of_result = 0.0 if short_format is None else short_format.unit * finite_norm(widen(made))
    return allowed_error(node, values, made, opset, FLOAT32_UNIT_ROUNDOFF) + of_result


def _has_exact_result(node: Node, values: np.ndarray) -> bool:
    row = operators.of(node.op)
    return values.dtype.kind != "f" or row.casts or row.rounds_nothing
