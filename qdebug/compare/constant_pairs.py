"""Which constants of both runs stand for the same: weights, biases and the like of one compared tensor."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Match, Pair, Transform
from qdebug.compare.attribute.segments import Segment, SegmentFinder, main_node
from qdebug.compare.graph_checks.folded_constants import fold
from qdebug.compare.measure.compare import compare_pair
from qdebug.compare.result.finding import FindingRole
from qdebug.compare.result.result import NodeResult, Status
from qdebug.model import Graph, MemoryRecording, Node, Recording, operators
from qdebug.replay.real_form import real_form

__all__ = ["ConstantPairs"]


class ConstantPairs:
    """Pairs the constants of compared tensors, and compares them.

    Args:
        reference: The reference run.
        backend: The backend run.
        pairs: All pairs of the alignment, by their backend tensors.
    """

    def __init__(self, reference: IndexedRecording, backend: IndexedRecording, pairs: Mapping[str, Pair]) -> None:
        self._ref, self._be, self._pairs = reference, backend, pairs
        self._finder = SegmentFinder(reference, backend, pairs)
        self._folded: dict[str, tuple[np.ndarray, str]] = {}
        self._unknown_folds: set[str] = set()

    def of(self, tensor: str) -> tuple[list[Pair], list[str]]:
        """Return the pairs of constants that a backend tensor is computed of, and those without a partner.

        Args:
            tensor: Backend tensor.

        Returns:
            The pairs, in the order of the operator's inputs, and the backend's other constants.
        """
        pair = self._pairs.get(tensor)
        producer = self._be.graph.producer(tensor)
        segment = None if pair is None else self._finder.of(pair)
        own = segment.own if segment is not None else () if producer is None else (producer,)
        found = [] if segment is None else [pair for node in own for pair in self._of_node(node, segment)]
        known = {each.backend for each in found}
        read = dict.fromkeys(name for node in own for name in node.inputs if name and self._be.graph.is_constant(name))
        lone = [name for name in read if known.isdisjoint({name, *self._be.members(name)}) and self._be.has(name)]
        return found, lone  # what is held in codes and as real numbers is one constant

    def main_name(self, tensor: str) -> str | None:
        """Return what the reference calls the node that a backend tensor's own node does the work of.

        Args:
            tensor: Backend tensor.

        Returns:
            None where the reference has no such node, or several.
        """
        pair, producer = self._pairs.get(tensor), self._be.graph.producer(tensor)
        segment = None if pair is None else self._finder.of(pair)
        main = None if segment is None or producer is None else main_node(producer, segment)
        return None if main is None else main.name

    def _of_node(self, node: Node, segment: Segment) -> list[Pair]:
        main = main_node(node, segment)
        if main is None:
            return []
        ours, theirs = (real_form(each, run.graph.opset)[0] for each, run in ((node, self._be), (main, self._ref)))
        titles = operators.plain(theirs).titles or ("constant",) * max(len(ours.inputs), len(theirs.inputs))
        folded = dict.fromkeys(each.op for each in segment.beside(main) if operators.plain(each).goes_into_weights)
        if any(operators.plain(each).goes_into_weights for each in segment.own if each is not node):
            folded = {}  # the backend scales by nodes of its own
        found = []
        for slot, title in enumerate(titles):
            one, other = (
                _held(run, operators.titled_input(each, slot)) for run, each in ((self._be, ours), (self._ref, theirs))
            )
            said = (
                f"the {title} of the backend's {node.op} {node.name!r} and of the reference's {main.op} {main.name!r}"
            )
            if made := bool(folded and one and not other and title == "bias"):  # by what is folded into the product
                other = self._made_bias(one, segment.beside(main))
                said = f"the {title} of {node.op} {node.name!r}, where {main.op} {main.name!r} has none"
            if not one or not other:
                continue
            view = _turned(self._ref.shape(other), self._be.shape(one))
            self._folded.pop(one, None)  # of another node that reads it
            if folded:
                if self._fold(one, title, theirs, segment.beside(main), folded):
                    said += f"; the reference's with {self.folded_in(one)} folded in"
                elif made:
                    continue
                else:
                    self._unknown_folds.add(one)
                    said += f"; {' and '.join(folded)} may be folded into the backend's, which then differs rightly"
            pair = Pair(reference=other, backend=one, match=Match.ORIGIN, reason=said)
            found.append(pair if view is None else replace(pair, backend_view=view))
        return found

    def _made_bias(self, backend: str, others: Sequence[Node]) -> str:
        """Return the constant of nodes beside a product that becomes its bias, as a norm's does; "" if none does."""
        size = math.prod(self._be.shape(backend))
        for node in others:
            titles = operators.plain(node).titles
            name = operators.titled_input(node, titles.index("bias")) if "bias" in titles else ""
            held = _held(self._ref, name)
            if held and math.prod(self._ref.shape(held)) == size:
                return held
        return ""

    def _fold(self, backend: str, title: str, main: Node, others: Sequence[Node], folded: Collection[str]) -> bool:
        """Keep what a constant of the reference becomes with what is folded into it; tell whether that is known."""
        product = fold(self._ref, main, others)
        made = None if product is None else {"weight": product.weight, "bias": product.bias}.get(title)
        if product is None or made is None or made.size != math.prod(self._be.shape(backend)):
            return False
        words = dict.fromkeys(node.op for node in product.nodes)
        if not set(folded) <= set(words):  # something stops the fold that the backend has folded all the same
            return False
        self._folded[backend] = made.astype(np.float32), " and ".join(words)
        return True

    def folded_in(self, backend: str) -> str:
        """Return the operators that are folded into the reference's side of a pair; "" for none.

        Args:
            backend: The backend's constant, of a pair that `of` returned.
        """
        return self._folded[backend][1] if backend in self._folded else ""

    def may_have_folded(self, pair: Pair) -> bool:
        """Tell whether another operator may have been folded into the backend's constant, and nobody knows how."""
        return pair.backend in self._unknown_folds

    def reference(self, pair: Pair) -> Recording:
        """Return the recording that has the reference's constant, with what is folded into it.

        Args:
            pair: The constants, as `of` returned them.
        """
        run = self._ref.recording
        if pair.backend not in self._folded:
            return run
        made, _ = self._folded[pair.backend]
        kept = self._ref.shape(pair.reference)
        info = replace(run.graph.tensors[pair.reference], quant=None, dtype=made.dtype.name)
        shaped = made.reshape(kept) if math.prod(kept) == made.size else made
        return MemoryRecording(Graph([], tensors=[info]), {(pair.reference, 0, 0): shaped})

    def compare(self, pair: Pair, of: NodeResult | None, *, index: int) -> NodeResult:
        """Compare a pair of constants; what is wrong with one is judged with the node that reads it.

        Args:
            pair: The constants.
            of: The result of the tensor that is computed of them; None if it is not known yet.
            index: A number that no compared tensor has.
        """
        found = compare_pair(self.reference(pair), self._be.recording, pair)
        named = [] if of is None else [each for each in of.findings if each.role is FindingRole.DIFFERENCE]
        wrong = next((each.sentence for each in named if each.evidence == pair.backend), None)
        status, reason = Status.WITHIN, wrong
        if found.stats is None:
            status, reason = Status.INCOMPARABLE, found.reason
        elif wrong is not None:
            status = Status.DIVERGED
        elif not found.stats.mismatches and not found.stats.nonfinite:
            status = Status.IDENTICAL
        judged = "" if of is None else f": {of.node!r} is {of.status}"
        return NodeResult(
            index=index,
            node=pair.backend,
            op="constant",
            tensor=pair.backend,
            reference_tensor=pair.reference,
            match=pair.match,
            match_reason=pair.reason,
            status=status,
            reason=reason,
            note=None if status is Status.IDENTICAL else f"a constant is judged with the node that reads it{judged}",
            metrics=found.stats,
            saturation=found.rails,
            quant=self._be.graph.tensors[pair.backend].quant,
        )


def _held(run: IndexedRecording, name: str) -> str:
    """Return the recorded constant behind an input, its codes rather than its real values; "" if there is none."""
    if not name or not run.folds(name):
        return ""
    held = [member for member in run.members(name) if run.has(member)]
    coded = [member for member in held if run.graph.tensors[member].quant is not None]
    return next(iter(coded or held), "")


def _turned(reference: Sequence[int], backend: Sequence[int]) -> Transform | None:
    """Return how the backend's dimensions are turned into the reference's, if only their order differs."""
    if reference == backend or len(reference) != len(backend) or sorted(reference) != sorted(backend):
        return None
    first, last = 0, len(backend) - 1
    usual = [(last, last - 1, *range(last - 1)), (first, last, *range(1, last)), (last, first, *range(1, last))]
    orders = [*usual, *permutations(range(len(backend)))] if len(backend) > 1 else []
    order = next((each for each in orders if tuple(backend[axis] for axis in each) == tuple(reference)), None)
    return None if order is None else Transform(transpose=order)
