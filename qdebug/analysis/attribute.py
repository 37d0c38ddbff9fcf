"""Splits a tensor's error into what its node introduces and what reaches it through its inputs.

The node is replayed on real numbers, in reference arithmetic, on the backend's own recorded inputs and constants:
introduced = backend output - replay; propagated = replay - reference output. The two add up to the whole error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qdebug.analysis.alignment import View
from qdebug.analysis.layouts import in_reference_order
from qdebug.analysis.ops import clamp_bounds
from qdebug.analysis.plan import PlannedNode
from qdebug.errors import KernelError, RecordingError
from qdebug.model import Graph, Node, Recording
from qdebug.numerics.accumulate import ErrorAccumulator, same_elements
from qdebug.numerics.affine import dequantize
from qdebug.numerics.stats import ErrorStats
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import has_kernel, run_node

__all__ = ["Attribution", "attribute", "replay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Where a tensor's error comes from.

    Args:
        introduced: Error of the backend's output against the replay; None if the node cannot be replayed.
        propagated: Error of the replay against the reference's output; None likewise.
        reason: Why there is none.
    """

    introduced: ErrorStats | None = None
    propagated: ErrorStats | None = None
    reason: str | None = None


def attribute(reference: Recording, backend: Recording, entry: PlannedNode) -> Attribution:
    """Replay the node of a compared tensor for every sample and step, and split its error.

    A tensor that no node produces introduces nothing and has no attribution.
    """
    node = backend.graph.producer(entry.tensor)
    if node is None:
        return Attribution(reason="an input of the network")
    form, _ = real_form(node, backend.graph.opset)
    if not has_kernel(form.op, form.domain):
        return Attribution(reason=f"no kernel is known for {node.op}")
    pair = entry.pair
    view = pair.backend_view
    introduced = ErrorAccumulator(backend_quant=entry.quant, backend_clamp=_bounds(view))
    propagated = ErrorAccumulator(
        reference_quant=reference.graph.tensors[pair.reference].quant, reference_clamp=_bounds(pair.reference_view)
    )
    clamp = _folded_clamp(reference, backend, entry)
    try:
        for sample, step in _recorded(reference, backend, entry):
            replayed = replay(backend, node, entry.tensor, sample=sample, step=step)
            if clamp is not None:
                replayed = np.clip(replayed, *clamp)
            ours = backend.load(entry.tensor, sample, step)
            if not same_elements(replayed.shape, ours.shape):
                return Attribution(reason=f"the replay gives shape {replayed.shape}, the recording has {ours.shape}")
            introduced.update(replayed, ours, sample=sample)
            theirs = reference.load(pair.reference, sample, step)
            propagated.update(theirs, in_reference_order(replayed, view, theirs.shape), sample=sample)
    except (KernelError, RecordingError) as error:
        return Attribution(reason=error.message)
    return Attribution(introduced=introduced.stats(), propagated=propagated.stats())


def replay(recording: Recording, node: Node, tensor: str, *, sample: int = 0, step: int = 0) -> np.ndarray:
    """Compute one output of a recorded node in real-valued reference arithmetic on its recorded inputs.

    Raises:
        KernelError: There is no kernel, or the inputs do not fit it.
        RecordingError: An input was not recorded.
    """
    form, opset = real_form(node, recording.graph.opset)
    values = {name: _real(recording, name, sample, step) for name in form.inputs if name}
    return run_node(form, values, opset)[tensor]


def _real(recording: Recording, name: str, sample: int, step: int) -> np.ndarray:
    """Load a tensor as real values; what only hangs on constants and was not recorded is computed."""
    if recording.has(name, sample, step):
        return dequantize(recording.load(name, sample, step), recording.graph.tensors[name].quant)
    raise RecordingError(f"Its input {name!r} was not recorded.")


def _folded_clamp(reference: Recording, backend: Recording, entry: PlannedNode) -> tuple[float, float] | None:
    """Give the interval of the reference's Relu or Clip that the backend computes along with its node."""
    theirs = _producer_of_values(reference.graph, entry.reference_tensor)
    ours = backend.graph.producer(entry.tensor)
    if theirs is None or ours is None or theirs.op not in ("Relu", "Clip") or ours.op == theirs.op:
        return None
    return clamp_bounds(theirs, {n: reference.load(n) for n in theirs.inputs[1:] if n and reference.has(n)})


def _producer_of_values(graph: Graph, tensor: str) -> Node | None:
    node = graph.producer(tensor)
    while node is not None and node.op in ("QuantizeLinear", "DequantizeLinear", "Identity"):
        node = graph.producer(node.inputs[0])
    return node


def _recorded(reference: Recording, backend: Recording, entry: PlannedNode) -> Iterator[tuple[int, int]]:
    for sample in range(min(reference.samples, backend.samples)):
        for step in range(min(reference.steps, backend.steps)):
            held = reference.has(entry.reference_tensor, sample, step) and backend.has(entry.tensor, sample, step)
            if held:
                yield sample, step


def _bounds(view: View | None) -> tuple[float | None, float | None]:
    return (None, None) if view is None else (view.clamp_low, view.clamp_high)
