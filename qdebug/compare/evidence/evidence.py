"""The evidence on one compared tensor: everything that is loaded, replayed or searched before checks judge it.

It is collected in this order and does not depend on any check:

1. facts of the graphs: the nodes that lead to the tensor in either graph
2. the error, and whether the node's inputs differ
3. the parts of the error, by a replay of the node
4. the arithmetic that reproduces the recorded bits, the replay to rely on, and the limits that are exceeded
5. possible explanations of the error: a difference between the graphs, a mistake, a number format

The checks then derive findings from it (`qdebug.compare.checks`), and the policy a status (`qdebug.compare.policy`).
Each property is computed once, when it is first read, because most of the evidence is needed for wrong nodes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from qdebug.compare.attribute.integer_tensors import find_tensor_without_scale
from qdebug.compare.evidence import (
    bias_correction,
    dead_zones,
    equalization,
    joined_outputs,
    mistakes,
    nonfinite_sources,
    number_formats,
    output_rounding,
    same_bytes,
    selection_margins,
)
from qdebug.compare.evidence.measured_tensor import MeasuredTensor
from qdebug.model import Node
from qdebug.model.recording import ChangedRow
from qdebug.replay.real_form import real_form

__all__ = ["Evidence"]


class Evidence(MeasuredTensor):
    """The evidence on one compared tensor: its error and possible explanations."""

    has_compensating_bias = cached_property(bias_correction.has_compensating_bias)
    channel_factors = cached_property(equalization.channel_factors)
    undoes_factors = cached_property(equalization.undoes_factors)

    mistake = cached_property(mistakes.mistake)
    mistake_inside_layer = cached_property(mistakes.mistake_inside_layer)
    mistake_in_reference = cached_property(mistakes.mistake_in_reference)
    changes_by_casts = cached_property(mistakes.changes_by_casts)
    cast_mistakes = cached_property(mistakes.cast_mistakes)

    rounding = cached_property(output_rounding.backend_rounding)
    reference_rounding = cached_property(output_rounding.reference_rounding)
    cut_quotients = cached_property(output_rounding.cut_quotients)
    short_format = cached_property(number_formats.short_format)
    overflow = cached_property(number_formats.overflow)
    selection_margins = cached_property(selection_margins.selection_margins)
    dead_zone = cached_property(dead_zones.find_dead_zone)
    dead_channels = cached_property(dead_zones.find_dead_channels)

    birth = cached_property(nonfinite_sources.birth)
    divisor_zeros = cached_property(nonfinite_sources.divisor_zeros)
    places_of_one_capture = cached_property(same_bytes.places_of_one_capture)
    tensors_of_same_bytes = cached_property(same_bytes.tensors_of_same_bytes)
    errors_of_parts = cached_property(joined_outputs.errors_of_parts)

    @property
    def form(self) -> Node | None:
        """The float node that the node implements, or None for a network input."""
        return None if self.node is None else real_form(self.node, self.graph.opset)[0]

    @property
    def unscaled(self) -> str | None:
        """The tensor of the pair that holds codes without a known scale while the other holds reals, or None."""
        return find_tensor_without_scale(self._runs.reference.graph, self.graph, self.entry.pair)

    @cached_property
    def changed_rows(self) -> Sequence[ChangedRow]:
        """The rows of the backend's cache that a later step changed."""
        return self._runs.backend.changed_rows(self.entry.tensor)

    @cached_property
    def nan_count(self) -> int:
        """Number of elements that are NaN in the backend."""
        return sum(int(np.count_nonzero(np.isnan(array))) for array in self._arrays() if array.dtype.kind == "f")

    @cached_property
    def is_without_effect(self) -> bool:
        """Whether finite wrong values, such as rows that are dropped later, change no other tensor."""
        stats = self.stats
        is_wrong = stats is not None and not stats.nonfinite and bool(stats.mismatches)
        return is_wrong and self._has_no_effect(nonfinite=False)

    @cached_property
    def node_at_fault(self) -> Node | None:
        """The first of several nodes whose output does not follow from its inputs in the worst sample, or None."""
        check = None if self.stats is None else self._tensor_check
        return None if check is None else check.find_inconsistent_node(self._worst_sample)
