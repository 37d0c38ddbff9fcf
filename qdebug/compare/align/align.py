"""Finds the reference tensor for each backend tensor: from names and the structure of both graphs.

The backend's graph is walked once from its inputs. A tensor answers to the reference tensor of its name, or to the one
it is said to stand for, if the nodes around the two bear that out; else to the output of the reference node that does
the same on the partners of its node's inputs; else to that of the one node with its node's weights; and where a harness
said little of its graph, to the one that holds its values. Nothing is ever paired by a name's ending or by position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from qdebug.compare.align.by_values import ValueMatcher
from qdebug.compare.align.channels_last import with_channels_second
from qdebug.compare.align.clamps import (
    CodeClamps,
    bounds_of,
    clamped_inside,
    codes_clamp,
    is_after_codes,
    is_codes_without_scale,
)
from qdebug.compare.align.expand import goes_into_weights, says_nothing
from qdebug.compare.align.found import PairMap
from qdebug.compare.align.indexed_recording import IndexedRecording, tensor_order
from qdebug.compare.align.layouts import with_layouts
from qdebug.compare.align.leftover import Search, leftovers
from qdebug.compare.align.names import Claims, Evidence, NameJudge, Namesakes
from qdebug.compare.align.node_match import Answer, NodeMatcher
from qdebug.compare.align.pairs import Alignment, Match, Transform
from qdebug.compare.align.scopes import found_by_scopes
from qdebug.errors import AlignmentError
from qdebug.model import Node, Recording, operators
from qdebug.model.operators import operands, same_family

__all__ = ["align", "align_runs"]

_STAGES = 90
"""Into how many parts the walk is divided for who wants to know how far it is."""


def align(reference: Recording, backend: Recording) -> Alignment:
    """Pair the tensors of two recordings.

    Returns:
        Pairs in the backend's topological order, and every recorded tensor that has no partner, with its reason.

    Raises:
        AlignmentError: Not one tensor beyond the network's inputs has a partner.
    """
    return align_runs(IndexedRecording.of(reference), IndexedRecording.of(backend), told=lambda _: None)


def align_runs(reference: IndexedRecording, backend: IndexedRecording, *, told: Callable[[str], object]) -> Alignment:
    """Pair the tensors of two recordings whose value classes are known, see `align`.

    Args:
        reference: The reference run.
        backend: The backend run.
        told: Called with what is being done, a hundred times at the most; what it raises gives the search up.
    """
    ref, be = reference.expanded(), backend.expanded()
    aligner = _Aligner(ref, be)
    aligner.walk(told)
    told("comparing layouts")
    order = [name for name in aligner.order if name in aligner.found]
    laid_out = with_layouts(aligner.found, order, ref, be)
    pairs = tuple(
        pair
        for pair in with_channels_second([laid_out[name] for name in order], ref, be)
        if pair.backend in be.recorded
        and pair.reference in ref.recorded
        and is_codes_without_scale(ref, pair.reference) == is_codes_without_scale(be, pair.backend)
    )
    if not any(pair.backend not in be.graph.inputs for pair in pairs):
        raise AlignmentError(
            f"No tensor of {_title(be.recording)} answers to a tensor of {_title(ref.recording)}.",
            hint="Check that both record the same network: qdebug info FILE --tensors.",
        )
    told("looking at what has no partner")
    alignment = Alignment(pairs=pairs, unmatched=leftovers(ref, be, pairs, aligner.search()))
    for run in (ref, be):
        run.forget_numbers()
    return alignment


def _title(recording: Recording) -> str:
    info = recording.info
    return f"{info.model or 'the recording'} ({info.backend})"


class _Aligner:
    """State of one alignment."""

    def __init__(self, ref: IndexedRecording, be: IndexedRecording) -> None:
        self.ref, self.be = ref, be
        self.found = PairMap(ref, be)
        self.order = tensor_order(be.graph)
        self.notes: dict[str, str] = {}
        self._undecided: set[str] = set()
        self._clamped_later: dict[str, str] = {}
        self._names = Namesakes(ref, be)
        self._matcher = NodeMatcher(ref, be)
        self._values = ValueMatcher(ref, be)
        self._judge = NameJudge(ref, be, self.found)
        self._clamps = CodeClamps(ref, be)
        self._claims = Claims(ref, be, self.found, self._judge, self._clamps, names=self._names)

    def walk(self, told: Callable[[str], object]) -> None:
        """Find the partner of each tensor, in topological order; tell now and then how many are done."""
        order = [name for name in self.order if not self.be.folds(name)]
        for tensor in order:
            if self.be.graph.producer(tensor) is None:
                self._by_name(tensor, Evidence.WEAK)
        self._by_lone_input()
        often = max(len(order) // _STAGES, 1)
        for number, tensor in enumerate(order):
            if not number % often:
                told(f"pairing tensors {100 * number // len(order)}%")
            node = self.be.graph.producer(tensor)
            if node is not None and tensor not in self.found:
                self._place(tensor, node)
        if self._values.looks:
            for tensor, reference, reason in found_by_scopes(self.found, self.ref, self.be):
                self.found.add(tensor, reference, Match.ORIGIN, reason)
        for tensor in order:
            self._hold_to_codes(tensor)

    def _hold_to_codes(self, tensor: str) -> None:
        """Compare a tensor that only becomes codes, with a partner that has been codes, within the range of its own."""
        pair = self.found.get(tensor)
        if pair is None or pair.backend_view is not None or tensor in self.be.graph.outputs:
            return
        if is_after_codes(self.be, tensor) or not is_after_codes(self.ref, pair.reference):
            return
        low, high = self._clamps.span_of_readers(tensor) or (None, None)
        if low is not None:
            reason = f"{pair.reason}; held to the range of the codes that follow"
            view = Transform(clamp_low=low, clamp_high=high)
            self.found.add(tensor, pair.reference, pair.match, reason, view)

    def _place(self, tensor: str, node: Node) -> None:
        """Find the partner of a node's output."""
        if self.be.root(tensor) != tensor:
            self._by_class(tensor, node)
            return
        said = self.be.graph.tensors[tensor].stands_for is not None
        if self._by_name(tensor, Evidence.WEAK if said else Evidence.STRONG):
            return
        answer = self._by_structure(tensor, node)
        outweighed = answer is None or answer.tensor is None or not self._claims.outweighs_name(tensor, answer.tensor)
        if outweighed and (self._by_name(tensor, Evidence.WEAK) or self._by_absorption(tensor, node)):
            return
        if answer is None or answer.tensor is None:
            answer = self._by_weight(tensor, node, answer)
        answer = self._values.at_its_stage(tensor, answer)
        if answer.tensor is None:
            answer = self._by_values(tensor, answer)
        if answer.tensor is None:
            self.notes[tensor] = answer.reason
            if answer.undecided:
                self._undecided.add(tensor)
        else:
            after = is_after_codes(self.be, tensor)
            form = self._clamps.after_codes(tensor, answer.tensor) if after else answer.tensor
            clamped = self._clamps.clamp_after(tensor, answer.tensor)
            if clamped is not None:
                self._clamped_later[tensor] = clamped
            self.found.add(tensor, form, answer.match, answer.reason)

    def search(self) -> Search:
        """Give what the search ended with."""
        return Search(found=self.found, notes=self.notes, undecided=self._undecided)

    # -- names ---------------------------------------------------------------------------------------------------

    def _by_name(self, tensor: str, needed: Evidence) -> bool:
        """Pair a tensor by its name, or by the name it is said to stand for, if the graphs bear that out."""
        reference = self._names.of(tensor)
        if reference is None:
            return False
        earlier = self._values.before_clamp(tensor, reference)
        if earlier is not None:
            reason = f"named after {reference!r}, and its values are nearer to those that enter that"
            self.found.add(tensor, earlier, Match.FUSED, reason)
            return True
        before = self._clamps.before_clamp(tensor, reference)
        if (before is None or self._judge.judge(tensor, before) < needed) and (
            self._judge.judge(tensor, reference) < needed
        ):
            return False
        self._add_named(tensor, reference, before)
        clamped = self._clamps.clamp_after(tensor, self.found[tensor].reference)
        if clamped is not None:
            self._clamped_later.setdefault(tensor, clamped)
        return True

    def _add_named(self, tensor: str, reference: str, before: str | None) -> None:
        said = self.be.graph.tensors[tensor].stands_for
        if before is not None:
            self._add_before_clamp(tensor, reference, before)
        elif reference == tensor and said is None:
            self._add_same_name(tensor)
        elif said is None:
            other = self._names.is_form(tensor)
            self._add_form(tensor, reference, "another form of it" if other else "the node that makes it has this name")
        elif said != reference:
            self._add_form(tensor, reference, f"both are forms of {said!r}")
        else:
            self._add_form(tensor, reference, f"the model says that it is another form of {said!r}", Match.ORIGIN)

    def _add_same_name(self, tensor: str) -> None:
        """Pair two tensors of one name; a runtime that folds what follows into a node may keep the earlier name."""
        node = self.be.graph.producer(tensor)
        if node is not None and self._clamps.is_clamped_later(tensor, tensor, node):
            reason = f"the reference leaves {node.op} to its codes: compared with what they stand for"
            self.found.add(tensor, self._clamps.after_codes(tensor, tensor), Match.QUANTIZATION, reason)
            return
        reference, folded = (tensor, []) if node is None else self._matcher.through_folded(tensor, tensor)
        if folded:
            extra = " + ".join(n.op for n in folded)
            self.found.add(tensor, reference, Match.FUSED, f"the node that makes {tensor!r} also does {extra}")
        else:
            self._add_form(tensor, tensor, "another form of it")

    def _add_before_clamp(self, tensor: str, reference: str, before: str) -> None:
        clamp = self.ref.graph.producer(reference)
        if clamp is None:
            return
        op, name = clamp.op, clamp.name
        self._clamped_later[tensor] = reference
        if before in self.ref.recorded:
            reason = f"the backend leaves {op} to the codes that follow: compared with what enters {name!r}"
            self.found.add(tensor, before, Match.FUSED, reason)
            return
        bounds = bounds_of(self.ref, clamp)
        view = Transform(clamp_low=bounds[0], clamp_high=bounds[1]) if bounds else None
        reason = f"{'same name' if tensor == reference else 'the same tensor'}; {op} applied to the backend's values"
        self.found.add(tensor, reference, Match.EXACT, f"{reason} first", view)

    # -- structure -------------------------------------------------------------------------------------------------

    def _by_lone_input(self) -> None:
        """Pair the one input without a partner on either side, if shape and dtype agree."""
        ours = [name for name in self.be.graph.inputs if name not in self.found]
        theirs = [name for name in self.ref.graph.inputs if name not in self.found.taken]
        if len(ours) != 1 or len(theirs) != 1:
            return
        reason = "the only input of its shape and dtype on either side"
        if not self._matcher.same_kind(theirs[0], ours[0]):
            reason = "the only input of its extents on either side, in another order"
        if self._matcher.same_kind(theirs[0], ours[0]) or self._matcher.same_extents(theirs[0], ours[0]):
            self.found.add(ours[0], theirs[0], Match.SIGNATURE, reason)

    def _by_structure(self, tensor: str, node: Node) -> Answer | None:
        """Look for the reference node that does the same on the partners of a node's inputs."""
        if operators.of(node.op).transposes and self._is_turned_copy(node):
            reason = f"{node.inputs[0]!r} with its dimensions turned"
            return Answer(tensor=self.found[node.inputs[0]].reference, reason=reason)
        sources = [self.found.get(name) for name in self.be.data_inputs(node)]
        if not sources or any(pair is None for pair in sources):
            return None
        names = [pair.reference for pair in sources if pair is not None]
        answer = self._matcher.find(node, tensor, names, lambda name: self._claims.is_claimed(name, tensor))
        if answer.tensor is None and not answer.undecided and len(names) == 1:
            behind = self._matcher.find_behind_turns(
                node, tensor, names[0], lambda name: self._claims.is_claimed(name, tensor)
            )
            answer = behind or answer
        return answer if answer.tensor is None else self._unless_made_later(tensor, answer, answer.tensor)

    def _unless_made_later(self, tensor: str, answer: Answer, reference: str) -> Answer:
        """Give an answer, or none where what follows has the better claim to the reference tensor."""
        if not self._claims.made_with_what_follows(tensor, reference):
            return answer
        return Answer(tensor=None, reason=f"the reference computes it together with what follows, to {reference!r}")

    def _is_turned_copy(self, node: Node) -> bool:
        """Tell whether the backend put a Transpose in, for which the reference has none."""
        pair = self.found.get(node.inputs[0]) if node.inputs else None
        if pair is None:
            return False
        named = self._names.of(node.outputs[0])
        if named is not None and self.ref.root(named) == self.ref.root(pair.reference):
            return True
        readers = self.ref.consumers(pair.reference)
        return not any(
            operators.plain(n).transposes and not self._claims.is_claimed(n.outputs[0], node.outputs[0])
            for n in readers
        )

    def _by_absorption(self, tensor: str, node: Node) -> bool:
        """Pair what a node makes of a tensor with that tensor's partner, if the reference computes both in one."""
        inputs = self.be.data_inputs(node)
        pair = self.found.get(inputs[0]) if len(inputs) == 1 else None
        if pair is None or pair.backend in self.be.graph.inputs:
            return False
        clamps, inside = operators.of(node.op).clamps, False
        if pair.match is Match.EXACT and not clamps:
            return False
        if any(same_family(n, node) for n in self.ref.consumers(pair.reference)):
            return False
        if clamps:
            bounds = bounds_of(self.be, node)
            inside = clamped_inside(self.ref, pair.reference, self.be, inputs[0], bounds)
        if clamps and not inside:
            form = self._clamps.after_codes(tensor, pair.reference)
            coded = [m for m in self.ref.members(pair.reference) if codes_clamp(self.ref, m, bounds)]
            if bounds is None or not coded:
                return False
            if is_after_codes(self.ref, pair.reference):
                view = Transform(clamp_low=bounds[0], clamp_high=bounds[1])
                reason = f"{pair.reason}; {node.op} applied to the backend's values first, as the reference's codes do"
                self.found.add(pair.backend, pair.reference, pair.match, reason, view)
            reason = f"the reference leaves {node.op} to its codes: compared with what they stand for"
            self.found.add(tensor, form, Match.QUANTIZATION, reason)
            return True
        alone = len(self.be.consumers(inputs[0])) == 1  # what others read as well is not folded away
        if alone and (inside or self._takes_in(tensor, pair.reference, node)):
            self.found.drop(pair.backend)
            self.notes[pair.backend] = f"the reference computes it together with {node.op} {node.name!r}"
            reason = f"the reference does {node.op} {node.name!r} along with what comes before"
            self.found.add(tensor, pair.reference, Match.FUSED, reason)
            return True
        return False

    def _by_values(self, tensor: str, answer: Answer) -> Answer:
        """Look for a tensor of the same values; where there is none, not one of several nodes that fit is the one."""
        found = self._values.find(tensor, lambda name: self._claims.is_claimed(name, tensor))
        return found or replace(answer, undecided=answer.undecided and not self._values.looks)

    def _takes_in(self, tensor: str, reference: str, reader: Node) -> bool:
        """Tell whether the constants of the node that makes a reference tensor can do what a backend tensor's does."""
        node = self.ref.graph.producer(reference)
        if node is None or not goes_into_weights(reader, node):
            return False
        if operators.of(reader.op).neutral == 1 and self._claims.scaled_later(tensor, reference):
            return False
        return any(name and self.ref.folds(name) for name in operands(node))

    def _by_weight(self, tensor: str, node: Node, answer: Answer | None) -> Answer:
        """Look for the one reference node that has a node's weights, where its inputs lead to none."""
        found = self._matcher.with_weights_of(node, tensor, self.found.taken)
        if found is not None and found.tensor is not None:
            return self._unless_made_later(tensor, found, found.tensor)
        if says_nothing(node):
            reason = "its name is all that is known of it, and nothing in the reference has that"
        elif answer is None:
            reason = f"an input of {node.op} {node.name!r} has no partner either"
        else:
            reason = answer.reason
        namesake = self._names.of(tensor)
        if namesake is not None:
            reason += f", and the reference makes its {namesake!r} of other tensors by another operator"
        return Answer(tensor=None, reason=reason, undecided=answer is not None and answer.undecided)

    # -- forms of one tensor ---------------------------------------------------------------------------------------

    def _by_class(self, tensor: str, node: Node) -> None:
        """Give a tensor the partner of the tensor it is another form of."""
        source = self.be.handed_on(node) or node.inputs[0]
        pair = self.found.get(source)
        row = operators.plain(node)
        if (row.neutral is not None or row.slices) and self._by_name(tensor, Evidence.WEAK):
            return  # what changes nothing here may change something in the reference
        if pair is not None and self._is_turned_output(tensor, pair.reference) and self._by_name(tensor, Evidence.WEAK):
            return
        if pair is None:
            if not self._by_name(tensor, Evidence.WEAK):
                self.notes[tensor] = f"it is another form of {source!r}, which has no partner"
            return
        reference = self._clamped_later.get(source, pair.reference)
        self._clamped_later[tensor] = reference
        said = "codes of" if row.quantizes else "real values of the codes" if row.dequantizes else "same values as"
        self._add_form(tensor, reference, f"{said} {source!r}")

    def _is_turned_output(self, tensor: str, reference: str) -> bool:
        """Tell whether an output of both networks is a reference tensor turned: the backend turned it further up."""
        if tensor not in self.be.graph.outputs or tensor not in self.ref.graph.outputs:
            return False
        turn = self.ref.graph.producer(self.ref.root(tensor))
        return (
            turn is not None
            and operators.of(turn.op).transposes
            and self.ref.root(turn.inputs[0]) == self.ref.root(reference)
        )

    def _add_form(self, tensor: str, reference: str, reason: str, match: Match = Match.QUANTIZATION) -> None:
        """Pair a tensor with the form of a reference tensor that is most like it."""
        after = is_after_codes(self.be, tensor)
        form = self._clamps.after_codes(tensor, reference) if after else reference
        if not after and tensor in self.ref.members(reference) and not is_after_codes(self.ref, tensor):
            form = tensor
        if form == tensor:
            self.found.add(tensor, form, Match.EXACT, "same name")
        else:
            self.found.add(tensor, form, Match.QUANTIZATION if after else match, reason)
