"""Explains why a node's quantized weights lose too much: one scale for unlike channels, an outlier, clipped codes."""

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
    found, _ = pairs.of(tensor)
    for pair in found:
        quant = backend.graph.tensors[pair.backend].quant
        try:
            values = PairReader(pairs.reference(pair), backend, pair).values(0, 0)
            codes = backend.load(pair.backend)
        except QdebugError:  # without values there is nothing to report
            continue
        folded = pairs.may_have_folded(pair)  # folding changes the weight legitimately
        said = None if folded else _of_others(pair.backend, values.reference, values.backend, quant)
        if said is not None:
            return WeightReason(said, rounded=False)
        axis = _channel_axis(reference.graph, pair.reference)
        if quant is not None and (said := _of_ends(codes, quant)) is not None:
            return WeightReason(said, rounded=True)
        if quant is not None and (said := _of_channels(values.reference, values.backend, quant, axis)) is not None:
            return WeightReason(said, rounded=True)
    return None


def _channel_axis(graph: Graph, name: str) -> int | None:
    """Return the output channel dimension of a reference weight, or None for other tensors."""
    for node in graph.consumers(name):
        form, _ = real_form(node, graph.opset)
        axis = operators.output_axis(form)
        if axis is not None and operators.titled_input(form, 1) == name:
            return axis
    return None


def _of_others(name: str, theirs: np.ndarray, ours: np.ndarray, quant: QuantParams | None) -> str | None:
    """Return a clause on how many elements of a constant are not explained by rounding to its codes, or None."""
    if theirs.shape != ours.shape or not theirs.size:
        return None
    apart = np.abs(ours.astype(np.float64) - theirs)
    largest = np.abs(theirs).max(initial=0.0)
    # the step of bfloat16, or a whole code to allow for ties
    step = largest * 2.0**-8 if quant is None else float(np.max(quant.scale))
    ends = ((ours >= ours.max()) & (theirs >= ours)) | ((ours <= ours.min()) & (theirs <= ours))
    clipped = ends if quant is not None else np.zeros(ours.shape, bool)
    many = int(np.count_nonzero((apart > step) & ~clipped))
    if not many:
        return None
    return f"{many} of {theirs.size} elements of {name!r} differ from the reference by more than rounding"


def _of_ends(codes: np.ndarray, quant: QuantParams) -> str | None:
    """Return a clause saying that codes of a wide type, such as a bias, are at the ends of their range, or None."""
    if codes.dtype.kind != "i" or codes.dtype.itemsize < 4:
        return None
    ends = np.iinfo(codes.dtype)
    many = int(np.count_nonzero((codes == ends.min) | (codes == ends.max)))
    if not many:
        return None
    step = float(quant.scale.min())
    said = f"{plural(many, 'bias code')} {agreeing(many, 'is')} at the limit of {codes.dtype.name}"
    return f"{said}; the scale {step:.3g} is too small"


def _of_channels(theirs: np.ndarray, ours: np.ndarray, quant: QuantParams, axis: int | None) -> str | None:
    """Return a clause on how many channels of a weight with a single scale lose too much, or None."""
    if quant.per_channel or quant.block_size or axis is None or theirs.ndim < 2 or not np.isfinite(theirs).all():
        return None
    rows, made = (
        np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1).astype(np.float64) for each in (theirs, ours)
    )
    signal, noise = np.sum(rows**2, axis=1), np.sum((rows - made) ** 2, axis=1)
    counted = (signal > 0) & (noise > 0)
    if not counted.any():
        return None
    levels = 10 * np.log10(signal[counted] / noise[counted])
    many = int(np.count_nonzero(levels < CODES_MIN_SQNR))
    largest, deviation = float(np.abs(rows).max()), float(rows.std())
    kept = f"{many} are below {CODES_MIN_SQNR:g} dB" if many > 1 else f"the worst has {levels.min():.1f} dB"
    said = f"its weights have one scale for {len(rows)} channels, of which {kept} SQNR"
    return f"{said} (largest weight {largest:.3g}, standard deviation {deviation:.2g})"
