"""Distances between the values of two tensors, in any order of dimensions.

Values count as evidence only if a harness described its graph in its own terms, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations

import numpy as np

from qdebug.compare.align.clamps import bounds_of, lies_within
from qdebug.compare.align.context import Context
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.model import operators
from qdebug.model.thresholds.alignment import (
    CLEARER_CANDIDATE_MAX_ERROR_RATIO,
    FUSED_AFTER_PRODUCT_MAX_NODES,
    VALUE_MATCH_MAX_REL_ERROR,
    VALUE_MATCH_OTHER_PARTNER_RATIO,
    VALUE_MATCH_SURE_REL_ERROR,
)

__all__ = ["distance", "find_clamp_input", "find_matching_stage", "tensors_after_folded_nodes"]


def find_matching_stage(context: Context, tensor: str, reference: str) -> str | None:
    """Return the reference tensor, or the later one after folded nodes, that a backend tensor corresponds to.

    None if a later backend tensor corresponds to the reference tensor.

    One side may fuse what the other computes in two nodes: a fused bias or activation is not always recorded. If the
    values do not decide, the reference tensor itself is returned.
    """
    ref, be = context.ref, context.be
    if not (ref.has(reference) and be.has(tensor)):
        return reference
    later_names = list(tensors_after_folded_nodes(ref, reference)), list(tensors_after_folded_nodes(be, tensor))
    if later_names == ([], []):
        return reference
    reference_values, values = ref.values(reference), be.values(tensor)
    error = distance(reference_values, values) if reference_values.size == values.size else 0.0
    if not error > VALUE_MATCH_SURE_REL_ERROR:
        return reference
    max_error = min(VALUE_MATCH_OTHER_PARTNER_RATIO * error, VALUE_MATCH_MAX_REL_ERROR)
    for name in later_names[0]:
        if distance(ref.values(name), values) < max_error:
            return name
    has_later_match = any(distance(reference_values, be.values(name)) < max_error for name in later_names[1])
    return None if has_later_match else reference


def find_clamp_input(context: Context, tensor: str, reference: str) -> str | None:
    """Return the input of a reference tensor's Relu or Clip if a backend tensor's values fit it better, or None.

    The backend's undeclared codes may replace the clamp.

    Args:
        context: The state of the alignment.
        tensor: The backend tensor, known only by its name.
        reference: The reference tensor of that name.
    """
    ref, be = context.ref, context.be
    node, clamp = be.recording.graph.producer(tensor), ref.graph.producer(reference)
    if node is None or clamp is None or not operators.of(clamp.op).clamps or not any(clamp.inputs):
        return None
    if tensor in be.graph.outputs or not context.undeclared_codes or not be.has(tensor):
        return None
    source = clamp.inputs[0]
    if not (ref.has(source) and ref.has(reference)):
        return None
    bounds = bounds_of(ref, clamp)
    # Values within the bounds do not show whether the clamp was applied.
    if bounds is None or lies_within(be, tensor, bounds):
        return None
    values = be.values(tensor)
    error_before_clamp, error_after_clamp = (_smallest_error(ref.values(name), values) for name in (source, reference))
    return source if error_before_clamp < CLEARER_CANDIDATE_MAX_ERROR_RATIO * error_after_clamp else None


def tensors_after_folded_nodes(run: IndexedRecording, tensor: str) -> Iterator[str]:
    """Yield the outputs of the biases, scales and activations after a tensor, as long as each has one reader."""
    size = run.size(tensor)
    for _ in range(FUSED_AFTER_PRODUCT_MAX_NODES):
        readers = [node for node in run.consumers(tensor) if not run.depends_on_shapes(node.outputs[0])]
        if len(readers) != 1 or not operators.plain(readers[0]).fuses_into_predecessor:
            return
        tensor = readers[0].outputs[0]
        if run.has(tensor) and run.size(tensor) == size:
            yield tensor


def distance(reference: np.ndarray, backend: np.ndarray) -> float:
    """Return norm(backend - reference) / norm(reference) in the dimension order that minimizes it."""
    norm = float(np.linalg.norm(reference))
    return _smallest_error(reference, backend) / norm if norm else math.inf


def _smallest_error(reference: np.ndarray, backend: np.ndarray) -> float:
    permuted_arrays = _permuted_arrays(backend, reference.shape)
    return min((float(np.linalg.norm(permuted - reference)) for permuted in permuted_arrays), default=math.inf)


def _permuted_arrays(array: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield an array in each dimension order that gives the target shape."""
    plain = tuple(extent for extent in shape if extent != 1)
    squeezed = array.reshape([extent for extent in array.shape if extent != 1])
    if squeezed.ndim > 4 or squeezed.ndim != len(plain):
        return
    for order in permutations(range(squeezed.ndim)):
        permuted = squeezed.transpose(order)
        if permuted.shape == plain:
            yield permuted.reshape(shape)
