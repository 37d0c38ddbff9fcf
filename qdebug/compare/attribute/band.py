"""Bounds on how far a float node may differ from its replay because of the order and rounding of its sums.

A sum of K products computed in any order in a format of unit roundoff u differs from the exact one by about sqrt(K) * u
times the sum of the products' magnitudes, with a factor that holds with high probability (Higham and Mary, "A new
approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019). Both sides round, and an elementwise
function adds a few units of roundoff.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np

from qdebug.errors import KernelError
from qdebug.model import Node, operators
from qdebug.model.operators import Sums
from qdebug.model.thresholds.rounding import (
    CANCELLING_SUM_ROUNDOFFS,
    ELEMENTWISE_ROUNDOFFS,
    FLOAT32_UNIT_ROUNDOFF,
    FUNCTION_ROUNDOFFS,
    NARROW_SUM_RESULT_FACTOR,
    NARROW_SUM_TERMS_FACTOR,
    ROUNDING_MAX_SIGNAL_SHARE,
    ROUNDING_SUM_FACTOR,
    SEGMENT_ROUNDOFFS,
    SIGMOID_OFFSET_ROUNDOFFS,
)
from qdebug.numerics.blocks import stretches
from qdebug.numerics.short_formats import detect_rounded_format
from qdebug.replay.registry import run_node

__all__ = [
    "allowed_error",
    "beyond_own_sums",
    "beyond_own_terms",
    "difference",
    "finite_norm",
    "is_free_scale",
    "minus",
    "narrow_sums_error",
    "norm",
    "replay_noise",
    "segment_share",
    "sum_terms",
    "unit_roundoff",
    "unit_roundoff_of_values",
]

_FACTORS = frozenset({"alpha", "beta"})


def unit_roundoff(dtype: np.dtype) -> float:
    """Return half the distance from 1 to the next number of a float format, or that of float32 for any other dtype."""
    try:
        return float(ml_dtypes.finfo(dtype).eps) / 2  # type: ignore[no-untyped-call]  # untyped upstream
    except ValueError:
        return FLOAT32_UNIT_ROUNDOFF


def segment_share(unit: float) -> float:
    """Return the allowed relative error norm of a replay of several nodes, whose error has no bound of its own.

    Args:
        unit: Unit roundoff of the format that the nodes compute in.
    """
    return SEGMENT_ROUNDOFFS * unit


def unit_roundoff_of_values(values: np.ndarray, *, narrowest: float | None = None) -> float:
    """Return the unit roundoff of the shortest float format that values were rounded to, whatever they are stored in.

    Runtimes that compute in float32 store the weights of a 16-bit network in float32, see `detect_rounded_format`.

    Args:
        values: Elements of any dtype.
        narrowest: Unit roundoff of a format that the values are known to have been rounded to, if they fit it.
    """
    short_format = detect_rounded_format(values, known_unit=narrowest)
    return unit_roundoff(values.dtype) if short_format is None else short_format.unit


def allowed_error(
    node: Node, values: Mapping[str, np.ndarray], output: np.ndarray, opset: Mapping[str, int], unit: float
) -> float:
    """Return the largest allowed norm of the difference between a float node's output and its replay.

    Args:
        node: The node's real-valued form.
        values: Its inputs.
        output: The replayed output.
        opset: Version of each operator set.
        unit: Unit roundoff of the coarser of the formats involved.
    """
    size = finite_norm(output)
    row = operators.of(node.op)
    if row.rounds_like_one:
        return min(
            FUNCTION_ROUNDOFFS * unit, ROUNDING_MAX_SIGNAL_SHARE
        ) * size + SIGMOID_OFFSET_ROUNDOFFS * unit * math.sqrt(output.size)
    sums = None if row.sums is None else _sum_magnitudes(node, values, opset)
    if sums is None:
        own_rounding = min(FUNCTION_ROUNDOFFS * unit, ROUNDING_MAX_SIGNAL_SHARE) * size
        if row.unit == "softmax" and unit > FLOAT32_UNIT_ROUNDOFF:
            own_rounding = min(own_rounding, _rounding_of_softmax(values[node.inputs[0]], output, unit))
        return own_rounding + (_near_tie_error(node, values, opset, unit) if row.fake_quantizes else 0.0)
    magnitudes = finite_norm(sums)
    terms = sum_terms(node, _shapes(values), output.shape)

    def bound(unit: float) -> float:
        return min(
            (ROUNDING_SUM_FACTOR * math.sqrt(terms) + ROUNDING_SUM_FACTOR) * unit * magnitudes,
            max(ROUNDING_MAX_SIGNAL_SHARE * size, CANCELLING_SUM_ROUNDOFFS * unit * magnitudes),
        )

    if unit <= FLOAT32_UNIT_ROUNDOFF:
        return bound(unit)
    # In a 16-bit format, the bound would be as large as the result. Real kernels accumulate in float32, or with about
    # the error that is estimated here.
    estimate = _narrow_sums_estimate(magnitudes, terms, size, unit)
    return min(bound(unit), math.hypot(bound(FLOAT32_UNIT_ROUNDOFF), estimate))


def _rounding_of_softmax(data: np.ndarray, output: np.ndarray, unit: float) -> float:
    """Return the error norm of a softmax whose steps round to a narrow format, but whose sums are kept in float32.

    The rounding of an exponent changes its exponential by as much, relative to the exponential. An exponent that was
    recorded in the format may have been computed in float32, so its own rounding counts too.
    """
    if data.shape != output.shape:
        return math.inf
    with np.errstate(invalid="ignore"):
        return unit * finite_norm(output * (ELEMENTWISE_ROUNDOFFS + np.abs(data.astype(np.float32))))


def beyond_own_terms(
    node: Node,
    values: Mapping[str, np.ndarray],
    output: np.ndarray,
    recorded: np.ndarray,
    unit: float,
    *,
    carried: float = 0.0,
    normal: float | None = None,
) -> int:
    """Count the elements of an elementwise operator whose error exceeds the rounding error of their own terms.

    The norm of a whole tensor hides a wrong row of small values among large ones. If a result depends on one element of
    each input, its rounding error is proportional to them: for a sum, to the magnitudes of its terms; for other
    operators, to the result. A runtime that fuses several nodes did not use the recorded tensor between them, so the
    error of the inputs is allowed too, capped at the size of rounding.

    Args:
        node: The node's real-valued form.
        values: Its inputs.
        output: The replayed output.
        recorded: The recorded output.
        unit: Unit roundoff of the coarser of the formats involved.
        carried: The largest error of its inputs. Capped here at the size of rounding.
        normal: The smallest normal number of the format that the inputs were rounded to. None for that of the storage
            format.

    Returns:
        The count, or 0 for operators without such a bound.
    """
    row = operators.of(node.op)
    if not row.rounds_by_element or "activation" in node.attrs or recorded.shape != output.shape:
        return 0
    terms: list[np.ndarray] = []
    if row.adds:
        terms = [np.broadcast_to(values[name], output.shape) for name in filter(None, node.inputs)]
        if any(not term.flags.c_contiguous for term in terms):  # contiguous, because stretches() reads them flat
            terms = [np.ascontiguousarray(term) for term in terms]
    count, tiny = 0, _smallest_normal(recorded.dtype) if normal is None else normal
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(np.max(np.abs(output), where=np.isfinite(output), initial=0.0))
        tiny += min(carried, ELEMENTWISE_ROUNDOFFS * unit * largest)
        for recorded_part, replayed_part, *parts in stretches(recorded, output, *terms):
            if _is_surely_within(
                recorded_part, replayed_part, parts or [replayed_part], ELEMENTWISE_ROUNDOFFS * unit, tiny
            ):
                continue
            replayed_values = replayed_part.astype(np.float64)
            reach = sum((np.abs(part.astype(np.float64)) for part in parts), 0.0) if terms else np.abs(replayed_values)
            errors = np.nan_to_num(np.abs(recorded_part.astype(np.float64) - replayed_values), nan=0.0, posinf=0.0)
            count += int(np.count_nonzero(errors > ELEMENTWISE_ROUNDOFFS * unit * reach + tiny))
    return count


def beyond_own_sums(
    node: Node,
    values: Mapping[str, np.ndarray],
    output: np.ndarray,
    recorded: np.ndarray,
    *,
    opset: Mapping[str, int],
    unit: float,
    normal: float | None = None,
) -> int:
    """Count the elements of a product or a cumulative sum whose error exceeds the rounding error of their own sum.

    The norm of a whole tensor hides one wrong row among many. The bound of a sum holds for each element. For a product,
    the usual magnitudes of the tensor are added to the magnitudes of its terms, because neighbours share rounding in
    the transforms of a fast convolution (Winograd's is bounded by norm only: Barabasz et al., "Error analysis and
    improving the accuracy of Winograd convolution for deep neural networks", ACM TOMS 46, 2020).

    Args:
        node: The node's real-valued form.
        values: Its inputs.
        output: The replayed output.
        recorded: The recorded output.
        opset: Version of each operator set.
        unit: Unit roundoff of the coarser of the formats involved.
        normal: The smallest normal number of the format that the inputs were rounded to. None for that of the storage
            format.

    Returns:
        The count, or 0 for operators without such a bound.
    """
    row = operators.of(node.op)
    is_product = row.sums in (Sums.FILTER, Sums.MATRIX) or row.accumulates
    if "activation" in node.attrs:
        is_product = is_product and operators.of(str(node.attrs["activation"])).contracts
    if not is_product or recorded.shape != output.shape or not output.size:
        return 0
    error_ratio = ROUNDING_SUM_FACTOR * (math.sqrt(sum_terms(node, _shapes(values), output.shape)) + 1) * unit
    tiny = _smallest_normal(recorded.dtype) if normal is None else normal

    def count_beyond(terms: np.ndarray) -> int:
        shared = 0.0 if row.accumulates else _root_mean_square(terms)
        return _count_beyond(recorded, output, terms, error_ratio, tiny + error_ratio * shared)

    # A sum never exceeds its terms' magnitudes. If every error is within this smaller bound, skip computing the terms.
    if not count_beyond(output):
        return 0
    terms = _sum_magnitudes(node, values, opset)
    return 0 if terms is None or terms.shape != output.shape else count_beyond(terms)


_FLOAT32_CHECK_SHARE = 0.99
"""Share of a bound up to which a first check in float32 is conclusive."""


def _is_surely_within(
    recorded: np.ndarray, replayed: np.ndarray, terms: Sequence[np.ndarray], share: float, floor: float
) -> bool:
    """Return whether float32 alone shows that no error exceeds a share of its terms' magnitudes plus a floor."""
    if any(array.dtype != np.float32 for array in (recorded, replayed, *terms)):
        return False
    bound = np.abs(terms[0])
    for array in terms[1:]:
        bound += np.abs(array)
    bound *= np.float32(_FLOAT32_CHECK_SHARE * share)
    bound += np.float32(_FLOAT32_CHECK_SHARE * floor)
    errors = np.subtract(recorded, replayed)
    return not np.any(np.greater(np.abs(errors, out=errors), bound)) and bool(np.isfinite(np.max(errors, initial=0)))


def _count_beyond(recorded: np.ndarray, output: np.ndarray, terms: np.ndarray, error_ratio: float, floor: float) -> int:
    """Count the elements whose error exceeds a multiple of the magnitude of their own terms, plus a floor."""
    count = 0
    with np.errstate(invalid="ignore", over="ignore"):
        for recorded_part, replayed_part, own_terms in stretches(recorded, output, terms):
            if _is_surely_within(recorded_part, replayed_part, [own_terms], error_ratio, floor):
                continue
            errors = np.nan_to_num(
                np.abs(recorded_part.astype(np.float64) - replayed_part.astype(np.float64)), nan=0.0, posinf=0.0
            )
            reach = np.nan_to_num(np.abs(own_terms.astype(np.float64)), nan=np.inf)
            count += int(np.count_nonzero(errors > error_ratio * reach + floor))
    return count


def replay_noise(
    node: Node,
    values: Mapping[str, np.ndarray],
    output: np.ndarray,
    opset: Mapping[str, int],
    *,
    allowed: float | None = None,
) -> float:
    """Return the possible error of each element of a float32 replay whose terms may cancel, or 0 if none may.

    Args:
        node: The node's real-valued form.
        values: Its inputs.
        output: The replayed output.
        opset: Version of each operator set.
        allowed: The result of `allowed_error` for float32. Computed if None.
    """
    row = operators.of(node.op)
    if (row.rounds_by_element and not row.adds) or not output.size:
        return 0.0
    bound = allowed_error(node, values, output, opset, FLOAT32_UNIT_ROUNDOFF) if allowed is None else allowed
    return bound / math.sqrt(output.size)


def _root_mean_square(values: np.ndarray) -> float:
    return finite_norm(values) / math.sqrt(values.size)


def _smallest_normal(dtype: np.dtype) -> float:
    """Return the smallest normal number of a float format. Many processors flush smaller numbers to 0."""
    try:
        return float(ml_dtypes.finfo(dtype).smallest_normal)  # type: ignore[no-untyped-call]  # untyped upstream
    except ValueError:
        return float(np.finfo(np.float32).smallest_normal)


def narrow_sums_error(
    node: Node, values: Mapping[str, np.ndarray], output: np.ndarray, opset: Mapping[str, int], unit: float
) -> float | None:
    """Estimate the error norm of sums accumulated in a narrow format, or return None if the node has no sums.

    Each addition rounds the partial sum. With mixed signs, partial sums grow with the root of their number and the
    error is about unit * sum of magnitudes; with equal signs, it grows with the root of the number of terms.

    Args:
        node: The node's real-valued form.
        values: Its inputs.
        output: The replayed output.
        opset: Version of each operator set.
        unit: Unit roundoff of the accumulator's format.
    """
    sums = None if operators.of(node.op).sums is None else _sum_magnitudes(node, values, opset)
    if sums is None:
        return None
    terms = sum_terms(node, _shapes(values), output.shape)
    return _narrow_sums_estimate(finite_norm(sums), terms, finite_norm(output), unit)


def _narrow_sums_estimate(magnitudes: float, terms: float, size: float, unit: float) -> float:
    return unit * (NARROW_SUM_TERMS_FACTOR * magnitudes + NARROW_SUM_RESULT_FACTOR * math.sqrt(terms) * size)


def is_free_scale(form: Node, tensor: str, values: Mapping[str, np.ndarray], recorded: np.ndarray) -> bool:
    """Return whether a tensor is the scale of all-zero data, for which any finite scale is right.

    ONNX's formula gives 0, ONNX Runtime writes 1, and others 1/255.

    Args:
        form: The node.
        tensor: One of its outputs.
        values: Its inputs.
        recorded: The recorded output.
    """
    if not operators.of(form.op).gives_scale or form.outputs[1:2] != (tensor,):
        return False
    return not np.any(values[form.inputs[0]]) and bool(np.all(np.isfinite(recorded) & (recorded >= 0)))


def minus(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the difference of two arrays in float64. Non-finite values stay non-finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.subtract(first, second, dtype=np.float64))


def difference(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the difference of two arrays in float64, with 0 where both are NaN or the same infinity."""
    differences = minus(first, second)
    if np.isfinite(differences).all():
        return differences
    return np.where((first == second) | (np.isnan(first) & np.isnan(second)), 0.0, differences)


def level_db(signal: float, error: float) -> float:
    """Return the ratio of a signal's norm to its error's norm in dB; infinity for an error of 0."""
    if not error:
        return math.inf
    return 20 * math.log10(signal / error) if signal else -math.inf


def norm(values: np.ndarray) -> float:
    """Return the Euclidean norm, or NaN if any value is not finite."""
    total = 0.0
    for (values_part,) in stretches(np.asarray(values)):
        flat = np.asarray(values_part, np.float64)
        total += float(np.dot(flat, flat))
    return math.sqrt(total) if math.isfinite(total) else math.nan


def finite_norm(values: np.ndarray) -> float:
    """Return the Euclidean norm of the finite values. Non-finite values are judged separately."""
    total = 0.0
    for (values_part,) in stretches(np.asarray(values)):
        flat = np.asarray(values_part, np.float64)
        power = float(np.dot(flat, flat))
        if not math.isfinite(power):
            finite = flat[np.isfinite(flat)]
            power = float(np.dot(finite, finite))
        total += power
    return math.sqrt(total)


def _sum_magnitudes(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> np.ndarray | None:
    """Return the sums with each term replaced by its magnitude."""
    attrs = {name: value for name, value in node.attrs.items() if not name.startswith("activation")}
    attrs |= {name: abs(value) for name, value in attrs.items() if name in _FACTORS and isinstance(value, int | float)}
    bare = Node(name=node.name, op=node.op, domain=node.domain, inputs=node.inputs, outputs=node.outputs, attrs=attrs)
    try:
        return run_node(bare, {name: np.abs(array) for name, array in values.items()}, opset)[node.outputs[0]]
    except KernelError:
        return None


def _near_tie_error(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int], unit: float) -> float:
    """Return the norm of the error that near-ties may cause in a node that rounds to multiples of a scale."""
    data, *ends = (values[name] for name in node.inputs)
    reach = np.abs(data) + np.max([np.max(np.abs(end), initial=0.0) for end in ends])
    nudge = (FUNCTION_ROUNDOFFS * unit * reach).astype(data.dtype)
    output_above, output_below = (
        run_node(node, {**values, node.inputs[0]: nudged}, opset)[node.outputs[0]]
        for nudged in (data + nudge, data - nudge)
    )
    return finite_norm(minus(output_above, output_below))


def _shapes(values: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in values.items()}


def sum_terms(node: Node, shapes: Mapping[str, tuple[int, ...]], output: tuple[int, ...]) -> float:
    """Return the number of terms of each sum, at least 1 even if the shapes do not fit the operator.

    Args:
        node: The node's real-valued form.
        shapes: Shapes of its inputs by name.
        output: The shape of its output.
    """
    input_shapes, sums = [shapes[name] for name in node.inputs if name], operators.of(node.op).sums
    data, weight = (*input_shapes[:2], *((),) * 2)[:2]
    if operators.of(node.op).accumulates:
        return float(max(data, default=1))
    if sums in (Sums.FILTER, Sums.SCATTER):
        return float(math.prod(weight[1:])) + 1
    if sums is Sums.MATRIX:
        summed = -2 if np.any(node.attrs.get("transA")) and len(data) > 1 else -1
        return float(data[summed] + 1) if data else 1
    if sums is Sums.AXES:
        return max(math.prod(data) / max(math.prod(output), 1), 1)
    if sums is Sums.WINDOW:
        taps = np.asarray(node.attrs.get("kernel_shape", 1))
        return max(float(np.prod(taps)), 1) if taps.dtype.kind in "iu" else 1
    return max(len(input_shapes), 1)
