"""Finds the reference node that a backend node answers to, given the partners of its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.compare.align.clamps import bounds_of, clamped_inside, codes_clamp
from qdebug.compare.align.expand import alike, goes_into_weights
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Match
from qdebug.compare.align.weights import same_scalar, weight_distance, weight_of
from qdebug.model import Node, operators
from qdebug.model.operators import Sums, operands
from qdebug.model.outline import shape_of
from qdebug.model.thresholds.alignment import (
    FUSED_CHAIN_MAX_NODES,
    WEIGHT_IDENTIFIES_NODE_MIN_ELEMENTS,
    WEIGHT_MAX_REL_DISTANCE,
)

__all__ = ["Answer", "NodeMatcher"]

_SHAPING_ATTRS = ("kernel_shape", "strides", "pads", "dilations", "group", "axis", "axes", "perm", "transA", "transB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The reference tensor for a node's output, or why there is none; undecided if several fit equally well."""

    tensor: str | None
    reason: str
    match: Match = Match.SIGNATURE
    undecided: bool = False


class NodeMatcher:
    """Compares nodes of two graphs by operator, inputs, constants and attributes."""

    def __init__(self, ref: IndexedRecording, be: IndexedRecording) -> None:
        self.reference, self.backend = ref.recording, be.recording
        self.ref, self.be = ref, be

    def find(
        self,
        node: Node,
        tensor: str,
        sources: Sequence[str],
        taken: Callable[[str], bool],
        turned: Sequence[str] = (),
    ) -> Answer:
        """Find the reference tensor for one output of a backend node.

        Args:
            node: The backend node.
            tensor: Which of its outputs.
            sources: Reference tensors that its data inputs stand for, in order.
            taken: Tells of a reference tensor whether it is another's partner.
            turned: What the reference makes of the one source by turning it, if the node is looked for behind that.
        """
        starts: list[Sequence[str]] = [[name] for name in turned] or [sources]
        candidates = [
            other for start in starts for other in self.ref.consumers(start[0]) if self._reads_same(node, other, start)
        ]
        slot = node.outputs.index(tensor)
        candidates = [c for c in candidates if slot < len(c.outputs) and c.outputs[slot]]
        if operators.of(node.op).reshapes:
            candidates = [self._in_shape_of(tensor, candidate) for candidate in candidates]
        if self.be.of_shape(tensor):  # extents may be picked in another order, for a tensor that is turned
            candidates = [c for c in candidates if self.same_kind(c.outputs[slot], tensor)]
        fresh = [c for c in candidates if not taken(c.outputs[slot])]
        chosen = self._choose(node, fresh or self._by_attributes(node, candidates))
        if chosen is None:
            if not candidates:
                return Answer(
                    tensor=None, reason=f"no {operators.plain(node).name} of the reference reads the same tensors"
                )
            names = ", ".join(repr(c.name) for c in candidates[:4])
            return Answer(
                tensor=None, reason=f"{len(candidates)} reference nodes fit equally well: {names}", undecided=True
            )
        weighted = any(name and self.be.folds(name) for name in operands(node))
        output, folded = self.through_folded(tensor, chosen.outputs[slot], into_weights=weighted)
        quantized = node.op != operators.plain(node).name and self.be.graph.tensors[tensor].quant is not None
        whole = " + ".join([chosen.op, *(n.op for n in folded)])
        reason = f"{node.op} reads and does what {whole} {chosen.name!r} does"
        if folded:
            return Answer(tensor=output, reason=reason, match=Match.FUSED)
        return Answer(tensor=output, reason=reason, match=Match.QUANTIZATION if quantized else Match.SIGNATURE)

    def _in_shape_of(self, tensor: str, node: Node) -> Node:
        """Follow reference nodes that do no more than give extents to the one that gives a backend tensor's.

        Backends do in one step what several in a row do.
        """
        here = node
        for _ in range(FUSED_CHAIN_MAX_NODES):
            if self.same_kind(here.outputs[0], tensor):
                return here
            readers = [r for r in self.ref.consumers(here.outputs[0]) if operators.of(r.op).reshapes]
            if len(readers) != 1:
                break
            here = readers[0]
        return node

    def find_behind_turns(self, node: Node, tensor: str, source: str, taken: Callable[[str], bool]) -> Answer | None:
        """Find a node as `find` does where the reference turns its one source first; None if it does not.

        A Conv is in the order of its operator: it is looked for behind every Transpose. What is done to each element
        may be done before one as well, but only if nothing else reads the source.
        """
        row = operators.plain(node)
        if row.sums is Sums.FILTER:
            readers = self.ref.consumers(source)
            turned = [reader.outputs[0] for reader in readers if operators.of(reader.op).transposes]
            return self.find(node, tensor, [source], taken, turned) if turned else None
        behind = self.behind_turn(source) if row.activation or row.neutral is not None else None
        return None if behind is None or taken(behind) else self.find(node, tensor, [behind], taken)

    def _reads_same(self, node: Node, other: Node, sources: Sequence[str]) -> bool:
        if not alike(node, other):
            return False
        in_order = not operators.plain(node).commutes
        return self.ref.alike(sources, self.ref.data_inputs(other), in_order=in_order)

    # -- several candidates --------------------------------------------------------------------------------------

    def _choose(self, node: Node, candidates: Sequence[Node]) -> Node | None:
        """Give the one candidate that fits best; None if there is none or no difference is plain."""
        for narrow in (self._by_attributes, self._by_constants, self._by_rules, self._by_name):
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
        ranked: list[tuple[float, Node]] = []
        for other in candidates:
            distance = weight_distance(self.ref, other, self.be, node)
            if distance is not None and np.isfinite(distance):
                ranked.append((distance, other))
        ranked.sort(key=lambda entry: entry[0])
        if not ranked or ranked[0][0] > WEIGHT_MAX_REL_DISTANCE:
            return []
        if len(ranked) > 1 and ranked[1][0] < 2 * ranked[0][0]:
            return []
        return [ranked[0][1]]

    def _by_rules(self, node: Node, candidates: Sequence[Node]) -> list[Node]:
        """Keep those that pick the same places: axes may differ where one side turns its tensors."""
        slots = operators.of(node.op).picked_by
        if not slots:
            return []
        ours = [self._places(self.be, node, slot) for slot in slots]
        return [
            other
            for other in candidates
            if all(
                one is not None and np.array_equal(one, theirs)
                for slot, one in zip(slots, ours, strict=True)
                if (theirs := self._places(self.ref, other, slot)) is not None
            )
        ]

    def _places(self, run: IndexedRecording, node: Node, slot: int) -> np.ndarray | None:
        """Give a constant that says which elements a node picks, if it was recorded."""
        name = node.inputs[slot] if len(node.inputs) > slot else ""
        held = [each for each in run.members(name) if run.recording.has(each)] if name else []
        if (
            not held
            or not run.folds(name)
            or math.prod(shape_of(run.recording, held[0])) > WEIGHT_IDENTIFIES_NODE_MIN_ELEMENTS
        ):
            return None
        return run.recording.load(held[0])

    def _by_name(self, node: Node, candidates: Sequence[Node]) -> list[Node]:
        """Keep the candidate that a backend's names are made of: its own name, or of what it makes."""
        ours = (node.name, *node.outputs)
        names = [
            [n for n in self._names_of(node, other) if any(_holds(mine, n) for mine in ours)] for other in candidates
        ]
        longest = max((len(name) for found in names for name in found), default=0)
        return [c for c, found in zip(candidates, names, strict=True) if longest in map(len, found)]

    def _names_of(self, ours: Node, theirs: Node) -> Iterator[str]:
        """Give the names of a reference node, of its outputs, and of those that its constants can take in.

        Also that of an activation behind: fusion keeps the name of the last result.
        """
        yield from (theirs.name, *theirs.outputs)
        output = theirs.outputs[0]
        for _ in range(FUSED_CHAIN_MAX_NODES):
            readers = self.ref.consumers(output)
            if len(readers) != 1 or not self._reads_only(readers[0], output):
                return
            bends = operators.plain(readers[0]).activation
            if not bends and not goes_into_weights(readers[0], ours):
                return
            output = readers[0].outputs[0]
            yield output
            if bends:
                return

    # -- nodes folded into the backend's node ----------------------------------------------------------------------

    def through_folded(self, tensor: str, output: str, *, into_weights: bool = False) -> tuple[str, list[Node]]:
        """Follow the reference from a tensor through the nodes that the backend computes along with its node.

        Args:
            tensor: The backend tensor.
            output: The reference tensor to start from.
            into_weights: Also follow nodes whose constants can have gone into the backend node's weights.
        """
        folded: list[Node] = []
        while True:
            readers = self.ref.consumers(output)
            if len(readers) != 1 or not (into_weights or operators.of(readers[0].op).clamps):
                return output, folded
            reader = readers[0]
            if not self._reads_only(reader, output):
                return output, folded
            maker = self.be.graph.producer(tensor) if into_weights else None
            turned = None if maker is None else self.behind_turn(output)
            if turned is not None and maker is not None:
                behind = self.ref.consumers(turned)
                if len(behind) != 1 or not goes_into_weights(behind[0], maker):
                    return output, folded
                folded.append(reader)
                reader, output = behind[0], turned
                if not self._reads_only(reader, output) or self._done_later(tensor, reader):
                    return self.ref.data_inputs(folded.pop())[0], folded
            inside = maker is not None and goes_into_weights(reader, maker)
            if not (inside or self._is_clamped(tensor, reader)):
                return output, folded
            if self._done_later(tensor, reader):
                return output, folded
            folded.append(reader)
            output = reader.outputs[0]

    def _reads_only(self, reader: Node, tensor: str) -> bool:
        """Tell whether a reference node reads one tensor beside constants, and a given one: shapes are none."""
        return [self.ref.root(name) for name in self.ref.data_inputs(reader)] == [self.ref.root(tensor)]

    def behind_turn(self, output: str) -> str | None:
        """Give what the one reader of a reference tensor makes of it if that turns it: a backend may do so later."""
        readers = self.ref.consumers(output)
        return readers[0].outputs[0] if len(readers) == 1 and operators.of(readers[0].op).transposes else None

    def _done_later(self, tensor: str, node: Node) -> bool:
        """Tell whether the backend does what a reference node does right after a tensor.

        Activations are left aside, and what only arranges values: behind that, constants alone tell a node from others.
        """
        waiting, moved = [tensor], False
        for _ in range(FUSED_CHAIN_MAX_NODES):
            readers = [reader for name in waiting for reader in self.be.consumers(name)]
            if any(self._does_the_same(reader, node, by_constants=moved) for reader in readers):
                return True
            moved = moved or any(operators.of(reader.op).moves for reader in readers)
            rows = [(operators.plain(reader), reader) for reader in readers]
            waiting = [reader.outputs[0] for row, reader in rows if row.activation or row.moves]
        return False

    def _does_the_same(self, ours: Node, theirs: Node, *, by_constants: bool = False) -> bool:
        """Tell whether a backend node may do what a reference node does with one tensor and constants.

        A sum of two tensors does not add a constant, and one that adds another constant does something else.
        """
        if not operators.same_family(ours, theirs) or len(self.be.data_inputs(ours)) != 1:
            return False
        sides = self.ref, theirs, self.be, ours
        distance = weight_distance(*sides)
        if distance is None:
            return not by_constants or same_scalar(*sides)
        return bool(np.less(distance, WEIGHT_MAX_REL_DISTANCE))

    def _is_clamped(self, tensor: str, activation: Node) -> bool:
        """Tell whether the range of a backend tensor's codes shows that it has been through a Relu or Clip."""
        if not operators.of(activation.op).clamps:
            return False
        bounds = bounds_of(self.ref, activation)
        if codes_clamp(self.be, tensor, bounds):
            return True
        ours, theirs = self.be, self.ref
        return clamped_inside(ours, tensor, theirs, activation.inputs[0], bounds) and not self._done_later(
            tensor, activation
        )

    def with_weights_of(self, node: Node, tensor: str, taken: Container[str]) -> Answer | None:
        """Find the one reference node of the same operator that has a backend node's weights; None if none stands out.

        Args:
            node: The backend node.
            tensor: Which of its outputs.
            taken: Reference tensors that already have a partner.
        """
        ours = weight_of(self.be, node)
        slot = node.outputs.index(tensor)
        if ours is None or ours.size < WEIGHT_IDENTIFIES_NODE_MIN_ELEMENTS:
            return None
        candidates = [
            other
            for other in self.ref.graph.nodes
            if alike(node, other) and slot < len(other.outputs) and other.outputs[slot]
        ]
        best = self._by_constants(node, [other for other in candidates if other.outputs[slot] not in taken])
        if not best or weight_distance(self.ref, best[0], self.be, node) is None:
            return None
        output, _ = self.through_folded(tensor, best[0].outputs[slot], into_weights=True)
        return Answer(tensor=output, reason=f"{node.op} has the weights of {best[0].op} {best[0].name!r}")

    def same_extents(self, reference: str, backend: str) -> bool:
        """Tell whether two tensors were recorded with the same extents beside a leading one, in another order."""
        if not (self.reference.has(reference) and self.backend.has(backend)):
            return False
        theirs, ours = shape_of(self.reference, reference), shape_of(self.backend, backend)
        return len(ours) > 2 and ours[:1] == theirs[:1] and ours != theirs and sorted(ours) == sorted(theirs)

    def same_kind(self, reference: str, backend: str) -> bool:
        """Tell whether two tensors were recorded with one shape, or are declared with one shape and dtype."""
        if self.reference.has(reference) and self.backend.has(backend):
            return shape_of(self.reference, reference) == shape_of(self.backend, backend)
        theirs, ours = self.ref.graph.tensors[reference], self.be.graph.tensors[backend]
        return theirs.shape is not None and (theirs.shape, theirs.dtype) == (ours.shape, ours.dtype)


def _holds(name: str, part: str) -> bool:
    """Tell whether a name is another with something put before or behind it; "Conv.54" is not "Conv.5" with a 4."""
    at = name.find(part) if part else -1
    while at >= 0:
        if not name[max(at - 1, 0) : at].isalnum() and not name[at + len(part) : at + len(part) + 1].isalnum():
            return True
        at = name.find(part, at + 1)
    return False
