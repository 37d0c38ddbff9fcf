"""Finds the reference node that a backend node answers to, given the partners of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.analysis.alignment import Match
from qdebug.analysis.ops import ACTIVATIONS, GO_INTO_WEIGHTS, clamp_bounds, fused_activation, plain_op, same_family
from qdebug.analysis.value_classes import Run
from qdebug.model import Node
from qdebug.numerics.affine import dequantize

__all__ = ["Answer", "NodeMatcher"]

_COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "Sum", "Mean"})
_SHAPING_ATTRS = ("kernel_shape", "strides", "pads", "dilations", "group", "axis", "axes", "perm", "transA", "transB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The reference tensor for a node's output, or why there is none."""

    tensor: str | None
    reason: str
    match: Match = Match.SIGNATURE


class NodeMatcher:
    """Compares nodes of two graphs by operator, inputs, constants and attributes."""

    def __init__(self, ref: Run, be: Run) -> None:
        self.reference, self.backend = ref.recording, be.recording
        self.ref, self.be = ref.classes, be.classes
        self._runs = ref, be

    def find(self, node: Node, tensor: str, sources: Sequence[str], taken: set[str]) -> Answer:
        """Find the reference tensor for one output of a backend node.

        Args:
            node: The backend node.
            tensor: Which of its outputs.
            sources: Reference tensors that its data inputs stand for, in order.
            taken: Reference tensors that already have a partner.
        """
        candidates = [other for other in self.ref.consumers(sources[0]) if self._reads_same(node, other, sources)]
        slot = node.outputs.index(tensor)
        candidates = [c for c in candidates if slot < len(c.outputs) and c.outputs[slot]]
        fresh = [c for c in candidates if c.outputs[slot] not in taken]
        chosen = self._choose(node, fresh or candidates)
        if chosen is None:
            if not candidates:
                return Answer(tensor=None, reason=f"no {plain_op(node)} of the reference reads the same tensors")
            names = ", ".join(repr(c.name) for c in candidates[:4])
            return Answer(tensor=None, reason=f"{len(candidates)} reference nodes fit equally well: {names}")
        output, folded = self.through_folded(node, tensor, chosen.outputs[slot], into_weights=True)
        quantized = node.op != plain_op(node) and self.backend.graph.tensors[tensor].quant is not None
        whole = " + ".join([chosen.op, *(n.op for n in folded)])
        reason = f"{node.op} reads and does what {whole} {chosen.name!r} does"
        if folded:
            return Answer(tensor=output, reason=reason, match=Match.FUSED)
        return Answer(tensor=output, reason=reason, match=Match.QUANTIZATION if quantized else Match.SIGNATURE)

    def _reads_same(self, node: Node, other: Node, sources: Sequence[str]) -> bool:
        if not same_family(plain_op(node), plain_op(other)):
            return False
        ours = [self.ref.root(name) for name in sources]
        theirs = [self.ref.root(name) for name in self.ref.data_inputs(other)]
        return sorted(ours) == sorted(theirs) if plain_op(node) in _COMMUTATIVE else ours == theirs

    # -- several candidates --------------------------------------------------------------------------------------

    def _choose(self, node: Node, candidates: Sequence[Node]) -> Node | None:
        """Give the one candidate that fits best; None if there is none or no difference is plain."""
        for narrow in (self._by_attributes, self._by_constants, self._by_name):
            if len(candidates) <= 1:
                break
            candidates = narrow(node, candidates) or candidates
        return candidates[0] if len(candidates) == 1 else None

    def _by_attributes(self, node: Node, candidates: Sequence[Node]) -> list[Node]:
        def agrees(other: Node) -> bool:
            common = [a for a in _SHAPING_ATTRS if a in node.attrs and a in other.attrs]
            return all(node.attrs[a] == other.attrs[a] for a in common)

        return [other for other in candidates if agrees(other)]

    def _by_constants(self, node: Node, candidates: Sequence[Node]) -> list[Node]:
        """Keep the candidate whose weight is nearest, if it is near and plainly nearer than the next."""
        ours = _weight(self._runs[1], node)
        if ours is None:
            return []
        ranked: list[tuple[float, Node]] = []
        for other in candidates:
            theirs = _weight(self._runs[0], other)
            if theirs is not None and theirs.size == ours.size:
                theirs = _shaped_like(theirs, ours)
                norm = float(np.linalg.norm(theirs))
                distance = float(np.linalg.norm(ours - theirs)) / norm if norm else float("inf")
                ranked.append((distance, other))
        ranked.sort(key=lambda entry: entry[0])
        if not ranked or ranked[0][0] > 0.5:
            return []
        if len(ranked) > 1 and ranked[1][0] < 2 * ranked[0][0]:
            return []
        return [ranked[0][1]]

    def _by_name(self, node: Node, candidates: Sequence[Node]) -> list[Node]:
        """Keep the candidate whose own or output name the backend's names begin with."""
        ours = (node.name, *node.outputs)
        return [
            other
            for other in candidates
            if any(name and mine.startswith(name) for mine in ours for name in (other.name, *other.outputs))
        ]

    # -- nodes folded into the backend's node ----------------------------------------------------------------------

    def through_folded(
        self, node: Node, tensor: str, output: str, *, into_weights: bool = False
    ) -> tuple[str, list[Node]]:
        """Follow the reference from a tensor through the nodes that the backend computes along with its node.

        Args:
            node: The backend node.
            tensor: Which of its outputs.
            output: The reference tensor to start from.
            into_weights: Also follow nodes whose constants can have gone into the backend node's weights.
        """
        folded: list[Node] = []
        while True:
            readers = self.ref.consumers(output)
            if len(readers) != 1 or len(self.ref.data_inputs(readers[0])) != 1:
                return output, folded
            reader = readers[0]
            if not (self._is_clamped(node, tensor, reader) or (into_weights and reader.op in GO_INTO_WEIGHTS)):
                return output, folded
            if any(same_family(plain_op(other), plain_op(reader)) for other in self.be.consumers(tensor)):
                return output, folded
            folded.append(reader)
            output = reader.outputs[0]

    def _is_clamped(self, node: Node, tensor: str, activation: Node) -> bool:
        """Tell whether a backend node shows that it computes an activation: by its attribute or its codes."""
        if activation.op not in ACTIVATIONS:
            return False
        fused = fused_activation(node)
        if fused is not None:
            return same_family(fused, activation.op)
        return activation.op in ("Relu", "Clip") and self.codes_clamp(tensor, activation)

    # -- clamps --------------------------------------------------------------------------------------------------

    def clamp_bounds(self, node: Node) -> tuple[float, float] | None:
        """Give the interval that a Relu or Clip of the reference clamps to, if it is known."""
        constants = {name: self.reference.load(name) for name in node.inputs[1:] if name and self.reference.has(name)}
        return clamp_bounds(node, constants)

    def codes_clamp(self, tensor: str, clamp: Node) -> bool:
        """Tell whether the range of a backend tensor's codes does what a clamp of the reference does."""
        quant = self.backend.graph.tensors[tensor].quant
        bounds = self.clamp_bounds(clamp)
        if quant is None or quant.qmin is None or quant.qmax is None or bounds is None:
            return False
        low = float(np.min(quant.scale * (quant.qmin - quant.zero_point)))
        high = float(np.max(quant.scale * (quant.qmax - quant.zero_point)))
        step = float(np.max(quant.scale))
        return low >= bounds[0] - step / 2 and high <= bounds[1] + step / 2

    def same_kind(self, reference: str, backend: str) -> bool:
        """Tell whether two tensors were recorded with one shape, or are declared with one shape and dtype."""
        if self.reference.has(reference) and self.backend.has(backend):
            return self.reference.load(reference).shape == self.backend.load(backend).shape
        theirs, ours = self.reference.graph.tensors[reference], self.backend.graph.tensors[backend]
        return theirs.shape is not None and (theirs.shape, theirs.dtype) == (ours.shape, ours.dtype)


def _weight(run: Run, node: Node) -> np.ndarray | None:
    """Give the largest recorded constant a node reads, as real values."""
    recording = run.recording
    sizes: list[tuple[int, str]] = []
    for tensor in node.inputs:
        if tensor and run.classes.folds(tensor):
            held = next((m for m in reversed(run.classes.members(tensor)) if recording.has(m)), None)
            if held is not None:
                sizes.append((recording.load(held).size, held))
    if not sizes or max(sizes)[0] <= 1:
        return None
    name = max(sizes)[1]
    values = dequantize(recording.load(name), recording.graph.tensors[name].quant)
    return np.asarray(values, np.float64)


def _shaped_like(weight: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Bring a weight into the shape of another of the same size; a transposed matrix is turned."""
    if weight.shape != other.shape and weight.T.shape == other.shape:
        return weight.T
    return weight.reshape(other.shape)
