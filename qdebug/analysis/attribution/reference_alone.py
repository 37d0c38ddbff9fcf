"""Replays the reference's own node: what is said of it may not be all that it does."""

from __future__ import annotations

from dataclasses import replace

from qdebug.analysis.attribution.attribute import Attribution, attribute
from qdebug.analysis.attribution.plan import PlannedNode
from qdebug.model import Recording

__all__ = ["reference_alone"]


def reference_alone(reference: Recording, entry: PlannedNode) -> Attribution:
    """Split the difference between a reference tensor and itself: its node introduces what propagation takes back.

    A node of which all that it does was said introduces rounding alone.

    Args:
        reference: The reference run.
        entry: What is compared with the tensor.
    """
    name = entry.reference_tensor
    pair = replace(entry.pair, backend=name, reference_view=None, backend_view=None)
    return attribute(reference, reference, replace(entry, pair=pair, quant=reference.graph.tensors[name].quant))
