"""Distinguishes a bias that a quantizer corrected on purpose from a wrong bias.

Quantizers change the bias of a layer by the mean error that its rounded weights cause (Nagel et al., "Data-Free
Quantization Through Weight Equalization and Bias Correction", 2019). A wrong bias makes mean errors larger.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.evidence.measured_tensor import MeasuredTensor
from qdebug.compare.result.finding import FindingKind
from qdebug.errors import NotRecordedError
from qdebug.model import Node, Recording, operators
from qdebug.replay.registry import keeps_channels_last

__all__ = ["has_compensating_bias"]


def has_compensating_bias(measured: MeasuredTensor) -> bool:
    """Return whether the bias differs from the reference's and this reduces the mean error of most changed channels."""
    runs, entry, places = measured._runs, measured.entry, measured._places
    node, main, finding = measured.node, measured._main_node, measured.difference[0]
    bias = None if finding is None or finding.kind is not FindingKind.BIAS else finding.evidence
    reference_bias = "" if main is None else operators.titled_input(main, _BIAS_SLOT)
    if node is None or main is None or not bias or not runs.reference.graph.is_constant(reference_bias):
        return False
    try:
        own_bias, other_bias = real_values(runs.backend, bias), real_values(runs.reference, reference_bias)
        own = _channel_means(runs.backend, node, entry.tensor, places, own_bias.size), own_bias
        other = _channel_means(runs.reference, main, entry.reference_tensor, places, own_bias.size), other_bias
    except NotRecordedError:
        return False
    sizes = {array.size for array in (*own, *other)}
    if len(sizes) > 1 or 0 in sizes or not places:
        return False
    errors, changes = (np.subtract(np.ravel(mine), np.ravel(theirs)) for mine, theirs in zip(own, other, strict=True))
    is_changed = np.abs(changes) > np.abs(changes).max() / _NOTABLE_CHANGE_RATIO
    is_smaller = np.abs(errors) < np.abs(errors - changes)
    return bool(np.count_nonzero(is_smaller & is_changed) > np.count_nonzero(~is_smaller & is_changed))


def _channel_means(
    recording: Recording, node: Node, tensor: str, places: Sequence[tuple[int, int]], count: int
) -> np.ndarray:
    """Return the mean of each channel of a product's result, or an empty array if no axis has `count` channels."""
    is_last = operators.plain(node).sums is operators.Sums.MATRIX or keeps_channels_last(node)
    means = []
    for place in places:
        values = real_values(recording, tensor, place).astype(np.float64)
        axes = [axis for axis in ((-1, 1) if is_last else (1, -1)) if values.ndim > 1 and values.shape[axis] == count]
        if not axes:
            return np.zeros(0)
        means.append(np.moveaxis(values, axes[0], 0).reshape(count, -1).mean(axis=1))
    return np.asarray(np.mean(means, axis=0))


_BIAS_SLOT = 2
"""Index of the bias in the titles of a product's inputs."""
_NOTABLE_CHANGE_RATIO = 100
"""A channel counts if its bias changes by more than the largest change divided by this ratio."""
