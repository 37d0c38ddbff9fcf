"""Explains why a node's quantized weights lose too much: one scale for different channels, outliers, clipped codes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from qdebug.compare.constant_pairs import ConstantPairs
from qdebug.compare.measure.pair_values import PairReader
from qdebug.errors import QdebugError
from qdebug.model import Graph, QuantParams, Recording, operators
from qdebug.model.thresholds.verdict import CODES_MIN_SQNR
from qdebug.plural import agreeing, plural
from qdebug.replay.real_form import real_form

__all__ = ["WeightReason", "reason_of_weights"]


class WeightReason(NamedTuple):
    """Why the constants that a tensor is computed from are wrong.

    Args:
        sentence: A clause.
        rounded: Whether rounding to codes accounts for it. If not, the constants differ from the reference's.
    """

    sentence: str
    rounded: bool


def reason_of_weights(
    pairs: ConstantPairs, reference: Recording, backend: Recording, tensor: str
) -> WeightReason | None:
    """Return what is wrong with the constants that a tensor is computed from, or None if unknown.

    Args:
        pairs: Pairs constants of both runs.
        reference: The reference run.
        backend: The backend run.
        tensor: The backend tensor.
    """
    constant_pairs, _ = pairs.of(tensor)
    for pair in constant_pairs:
        quant = backend.graph.tensors[pair.backend].quant
        try:
            values = PairReader(pairs.reference(pair), backend, pair).values(0, 0)
            codes = backend.load(pair.backend)
        except QdebugError:  # without values there is nothing to report
            continue
        may_be_folded = pairs.may_have_folded(pair)  # a folded weight differs without being wrong
        clause = None if may_be_folded else _describe_differences(pair.backend, values.reference, values.backend, quant)
        if clause is not None:
            return WeightReason(clause, rounded=False)
        axis = _channel_axis(reference.graph, pair.reference)
        if quant is not None and (clause := _describe_codes_at_range_ends(codes, quant)) is not None:
            return WeightReason(clause, rounded=True)
        if (
            quant is not None
            and (clause := _describe_channel_losses(values.reference, values.backend, quant, axis)) is not None
        ):
            return WeightReason(clause, rounded=True)
    return None


def _channel_axis(graph: Graph, name: str) -> int | None:
    """Return the output channel dimension of a reference weight, or None for other tensors."""
    for node in graph.consumers(name):
        form, _ = real_form(node, graph.opset)
        axis = operators.output_axis(form)
        if axis is not None and operators.titled_input(form, 1) == name:
            return axis
    return None


def _describe_differences(
    name: str, reference_values: np.ndarray, backend_values: np.ndarray, quant: QuantParams | None
) -> str | None:
    """Return a clause on how many elements of a constant are not explained by rounding to its codes, or None."""
    if reference_values.shape != backend_values.shape or not reference_values.size:
        return None
    differences = np.abs(backend_values.astype(np.float64) - reference_values)
    largest = np.abs(reference_values).max(initial=0.0)
    # allow one step of bfloat16, or one whole code because of ties
    step = largest * 2.0**-8 if quant is None else float(np.max(quant.scale))
    ends = ((backend_values >= backend_values.max()) & (reference_values >= backend_values)) | (
        (backend_values <= backend_values.min()) & (reference_values <= backend_values)
    )
    is_clipped = ends if quant is not None else np.zeros(backend_values.shape, bool)
    element_count = int(np.count_nonzero((differences > step) & ~is_clipped))
    if not element_count:
        return None
    count_text = f"{element_count} of {reference_values.size} elements"
    return f"{count_text} of {name!r} differ from the reference by more than rounding"


def _describe_codes_at_range_ends(codes: np.ndarray, quant: QuantParams) -> str | None:
    """Return a clause saying that codes of a wide type, such as a bias, are at the ends of their range, or None."""
    if codes.dtype.kind != "i" or codes.dtype.itemsize < 4:
        return None
    ends = np.iinfo(codes.dtype)
    code_count = int(np.count_nonzero((codes == ends.min) | (codes == ends.max)))
    if not code_count:
        return None
    step = float(quant.scale.min())
    count_text = f"{plural(code_count, 'bias code')} {agreeing(code_count, 'is')} at the limit of {codes.dtype.name}"
    return f"{count_text}; the scale {step:.3g} is too small"


def _describe_channel_losses(
    reference_values: np.ndarray, backend_values: np.ndarray, quant: QuantParams, axis: int | None
) -> str | None:
    """Return a clause on how many channels of a weight with a single scale lose too much, or None."""
    if (
        quant.per_channel
        or quant.block_size
        or axis is None
        or reference_values.ndim < 2
        or not np.isfinite(reference_values).all()
    ):
        return None
    rows, backend_rows = (
        np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1).astype(np.float64)
        for values in (reference_values, backend_values)
    )
    signal, noise = np.sum(rows**2, axis=1), np.sum((rows - backend_rows) ** 2, axis=1)
    has_noise = (signal > 0) & (noise > 0)
    if not has_noise.any():
        return None
    levels = 10 * np.log10(signal[has_noise] / noise[has_noise])
    low_count = int(np.count_nonzero(levels < CODES_MIN_SQNR))
    largest, deviation = float(np.abs(rows).max()), float(rows.std())
    level_text = (
        f"{low_count} are below {CODES_MIN_SQNR:g} dB" if low_count > 1 else f"the worst has {levels.min():.1f} dB"
    )
    clause = f"its weights have one scale for {len(rows)} channels, of which {level_text} SQNR"
    return f"{clause} (largest weight {largest:.3g}, standard deviation {deviation:.2g})"
