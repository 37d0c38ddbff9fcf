"""Finds the reference tensor for each backend tensor: from names and the quantization structure of both graphs.

First every name that both graphs use, or that a tensor is said to stand for, is paired. Then the backend's graph is
walked once from its inputs: a node whose inputs have partners answers to the reference node of the same operator that
reads those partners. Nothing is ever paired by a name's ending or by position.
"""

from __future__ import annotations

from qdebug.analysis.alignment import Alignment, Match, Pair, View
from qdebug.analysis.layouts import with_layouts
from qdebug.analysis.leftover import leftovers
from qdebug.analysis.node_match import NodeMatcher
from qdebug.analysis.ops import fused_activation, plain_op, same_family
from qdebug.analysis.value_classes import Run, tensor_order
from qdebug.errors import AlignmentError
from qdebug.model import Node, Recording

__all__ = ["align"]


def align(reference: Recording, backend: Recording) -> Alignment:
    """Pair the tensors of two recordings.

    Returns:
        Pairs in the backend's topological order, and every recorded tensor that has no partner, with its reason.

    Raises:
        AlignmentError: Not one tensor beyond the network's inputs has a partner.
    """
    ref, be = Run.of(reference), Run.of(backend)
    aligner = _Aligner(ref, be)
    pairs = aligner.pairs()
    if not any(pair.backend not in backend.graph.inputs for pair in pairs):
        raise AlignmentError(
            f"No tensor of {_title(backend)} answers to a tensor of {_title(reference)}.",
            hint="Check that both record the same network: qdebug info FILE --tensors.",
        )
    return Alignment(pairs=pairs, unmatched=leftovers(ref, be, pairs, aligner.notes))


def _title(recording: Recording) -> str:
    info = recording.info
    return f"{info.model or 'the recording'} ({info.backend})"


class _Aligner:
    """State of one alignment: `found` maps backend tensors to their reference tensor, whether recorded or not."""

    def __init__(self, ref: Run, be: Run) -> None:
        self.reference, self.backend = ref.recording, be.recording
        self.ref, self.be = ref.classes, be.classes
        self.recorded_ref, self.recorded_be = ref.recorded, be.recorded
        self._runs = ref, be
        self.found: dict[str, Pair] = {}
        self.notes: dict[str, str] = {}
        self._after_codes: dict[str, str] = {}
        self._taken: set[str] = set()
        self._sources = self._stand_ins()
        self._matcher = NodeMatcher(ref, be)

    def _stand_ins(self) -> dict[str, str]:
        """Reference tensors by the name they stand for; a recorded one is preferred."""
        sources: dict[str, str] = {}
        for info in self.reference.graph.tensors.values():
            if info.stands_for and (info.stands_for not in sources or info.name in self.recorded_ref):
                sources[info.stands_for] = info.name
        return sources

    def pairs(self) -> tuple[Pair, ...]:
        """Run both passes and give the pairs whose two sides were recorded."""
        order = [name for name in tensor_order(self.backend) if not self.be.folds(name)]
        for tensor in order:
            self._by_name(tensor)
        self._by_lone_input()
        for tensor in order:
            if tensor not in self.found:
                self._by_walk(tensor)
        laid_out = with_layouts(self.found, order, self._runs[0], self._runs[1])
        both = (laid_out[t] for t in order if t in laid_out and t in self.recorded_be)
        return tuple(pair for pair in both if pair.reference in self.recorded_ref)

    def _add(self, backend: str, reference: str, match: Match, reason: str, view: View | None = None) -> None:
        self.found[backend] = Pair(backend=backend, reference=reference, match=match, reason=reason, backend_view=view)
        self._taken.add(reference)

    # -- names ---------------------------------------------------------------------------------------------------

    def _by_name(self, tensor: str) -> None:
        """Pair a tensor by its name, or by the name it is said to stand for: a runtime may use old names anew."""
        ref_tensors = self.reference.graph.tensors
        said = self.backend.graph.tensors[tensor].stands_for
        source = said or tensor
        own = ref_tensors.get(source)
        if own is not None and own.stands_for in (None, source) and not self.ref.folds(source):
            if source == tensor:
                self._by_exact_name(tensor)
            else:
                self._add(tensor, source, self._form(tensor), f"the model says that it is another form of {source!r}")
        elif source in self._sources:
            partner = self._same_form(tensor, source)
            match = Match.EXACT if partner == tensor else Match.QUANTIZATION
            reason = (
                "same name" if partner == tensor else f"both are forms of {source!r}" if said else "another form of it"
            )
            self._add(tensor, partner, match, reason)

    def _same_form(self, tensor: str, source: str) -> str:
        """Choose among the reference's forms of a source: the one of the same name, else the first."""
        twin = self.reference.graph.tensors.get(tensor)
        return tensor if twin is not None and twin.stands_for == source else self._sources[source]

    def _form(self, tensor: str) -> Match:
        """Name the ground for a tensor that stands for another: by its codes, or as the same node in another guise."""
        node = self.backend.graph.producer(tensor)
        coded = self.backend.graph.tensors[tensor].quant is not None
        return Match.QUANTIZATION if coded or (node is not None and node.op == "DequantizeLinear") else Match.ORIGIN

    def _by_exact_name(self, tensor: str) -> None:
        clamp = self._clamp_left_to_codes(tensor)
        if clamp is None:
            self._add_by_name(tensor)
            return
        before = clamp.inputs[0]
        self._after_codes[tensor] = tensor
        if before in self.recorded_ref:
            reason = f"the backend leaves {clamp.op} to the codes that follow: compared with what enters {clamp.name!r}"
            self._add(tensor, before, Match.FUSED, reason)
            return
        bounds = self._matcher.clamp_bounds(clamp)
        view = View(clamp_low=bounds[0], clamp_high=bounds[1]) if bounds else None
        self._add(tensor, tensor, Match.EXACT, f"same name; {clamp.op} applied to the backend's values first", view)

    def _add_by_name(self, tensor: str) -> None:
        """Pair two tensors of one name; a runtime that folds what follows into a node may keep the earlier name."""
        node = self.backend.graph.producer(tensor)
        folded: list[Node] = []
        reference = tensor
        if node is not None and self.be.root(tensor) == tensor:
            reference, folded = self._matcher.through_folded(node, tensor, tensor)
        if folded:
            extra = " + ".join(n.op for n in folded)
            self._add(tensor, reference, Match.FUSED, f"the node that makes {tensor!r} also does {extra}")
        else:
            self._add(tensor, tensor, Match.EXACT, "same name")

    def _clamp_left_to_codes(self, tensor: str) -> Node | None:
        """Give the reference's Relu or Clip whose work the backend leaves to the codes that the tensor turns into."""
        theirs, ours = self.reference.graph.producer(tensor), self.backend.graph.producer(tensor)
        if theirs is None or ours is None or theirs.op not in ("Relu", "Clip"):
            return None
        if same_family(plain_op(ours), theirs.op) or fused_activation(ours):
            return None
        before = self.reference.graph.producer(theirs.inputs[0])
        if before is None or not same_family(plain_op(before), plain_op(ours)):
            return None
        if self._matcher.codes_clamp(tensor, theirs):
            return None
        readers = self.backend.graph.consumers(tensor)
        to_codes = [n for n in readers if n.op == "QuantizeLinear" and self._matcher.codes_clamp(n.outputs[0], theirs)]
        return theirs if readers and len(to_codes) == len(readers) else None

    def _by_lone_input(self) -> None:
        """Pair the one input without a partner on either side, if shape and dtype agree."""
        ours = [name for name in self.backend.graph.inputs if name not in self.found]
        theirs = [name for name in self.reference.graph.inputs if name not in self._taken]
        if len(ours) == len(theirs) == 1 and self._matcher.same_kind(theirs[0], ours[0]):
            self._add(ours[0], theirs[0], Match.SIGNATURE, "the only input of its shape and dtype on either side")

    # -- walk ----------------------------------------------------------------------------------------------------

    def _by_walk(self, tensor: str) -> None:
        node = self.backend.graph.producer(tensor)
        if node is None:
            return
        root = self.be.root(tensor)
        if root != tensor:
            self._by_class(tensor, node)
            return
        if node.op == "Transpose" and self._is_turned_copy(node, tensor):
            return
        sources = [self.found.get(name) for name in self.be.data_inputs(node)]
        if not sources or any(pair is None for pair in sources):
            self.notes[tensor] = f"an input of {node.op} {node.name!r} has no partner either"
            return
        names = [pair.reference for pair in sources if pair is not None]
        answer = self._matcher.find(node, tensor, names, self._taken)
        if answer.tensor is None:
            self.notes[tensor] = answer.reason
            return
        self._add(tensor, answer.tensor, answer.match, answer.reason)

    def _is_turned_copy(self, node: Node, tensor: str) -> bool:
        """Pair a Transpose that the backend put in, for which the reference has none, with what it turns."""
        pair = self.found.get(node.inputs[0])
        if pair is None:
            return False
        readers = self.ref.consumers(pair.reference)
        if any(n.op == "Transpose" and n.outputs[0] not in self._taken for n in readers):
            return False
        self._add(tensor, pair.reference, Match.SIGNATURE, f"{node.inputs[0]!r} with its dimensions turned")
        return True

    def _by_class(self, tensor: str, node: Node) -> None:
        """Give a tensor the partner of the tensor it is another form of."""
        source = self.be.handed_on(node) or node.inputs[0]
        pair = self.found.get(source)
        if pair is None:
            self.notes[tensor] = f"it is another form of {source!r}, which has no partner"
            return
        reference = self._after_codes.get(source, pair.reference)
        self._after_codes[tensor] = reference
        forms = {"QuantizeLinear": "codes of", "DequantizeLinear": "real values of the codes"}
        self._add(tensor, reference, Match.QUANTIZATION, f"{forms.get(node.op, 'same values as')} {source!r}")
