"""Pairs the weights, biases and other constants of both runs, tensor by tensor."""

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
    """Pairs the constants of compared tensors and compares them.

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
        """Return the pairs of constants that a backend tensor is computed from, and its constants without a partner.

        Args:
            tensor: Backend tensor.

        Returns:
            The pairs, in the order of the operator's inputs, and the backend's other constants.
        """
        pair = self._pairs.get(tensor)
        producer = self._be.graph.producer(tensor)
        segment = None if pair is None else self._finder.of(pair)
        backend_nodes = segment.own if segment is not None else () if producer is None else (producer,)
        pairs_found = (
            [] if segment is None else [pair for node in backend_nodes for pair in self._pairs_of_node(node, segment)]
        )
        paired = {entry.backend for entry in pairs_found}
        constants = dict.fromkeys(
            name for node in backend_nodes for name in node.inputs if name and self._be.graph.is_constant(name)
        )
        unpaired = [
            name for name in constants if paired.isdisjoint({name, *self._be.members(name)}) and self._be.has(name)
        ]
        return pairs_found, unpaired  # a constant stored both as codes and as real values counts once

    def main_name(self, tensor: str) -> str | None:
        """Return the reference's name of the node that a backend tensor's node corresponds to.

        Args:
            tensor: Backend tensor.

        Returns:
            The name, or None if the reference has no such node or several.
        """
        pair, producer = self._pairs.get(tensor), self._be.graph.producer(tensor)
        segment = None if pair is None else self._finder.of(pair)
        main = None if segment is None or producer is None else main_node(producer, segment)
        return None if main is None else main.name

    def _pairs_of_node(self, node: Node, segment: Segment) -> list[Pair]:
        main = main_node(node, segment)
        if main is None:
            return []
        backend_form, reference_form = (
            real_form(form, run.graph.opset)[0] for form, run in ((node, self._be), (main, self._ref))
        )
        titles = operators.plain(reference_form).titles or ("constant",) * max(
            len(backend_form.inputs), len(reference_form.inputs)
        )
        folded = dict.fromkeys(
            form.op for form in segment.nodes_except(main) if operators.plain(form).goes_into_weights
        )
        if any(operators.plain(form).goes_into_weights for form in segment.own if form is not node):
            folded = {}  # the backend has nodes of its own for the scaling, so nothing is folded
        pairs_found = []
        for slot, title in enumerate(titles):
            backend_name, reference_name = (
                _recorded_constant(run, operators.titled_input(form, slot))
                for run, form in ((self._be, backend_form), (self._ref, reference_form))
            )
            reason = (
                f"the {title} of the backend's {node.op} {node.name!r} and of the reference's {main.op} {main.name!r}"
            )
            # The fold creates a bias that the reference does not have.
            if is_made_by_fold := bool(folded and backend_name and not reference_name and title == "bias"):
                reference_name = self._bias_made_by_folding(backend_name, segment.nodes_except(main))
                reason = f"the {title} of {node.op} {node.name!r}; {main.op} {main.name!r} has no {title}"
            if not backend_name or not reference_name:
                continue
            view = _transpose_between(self._ref.shape(reference_name), self._be.shape(backend_name))
            self._folded.pop(backend_name, None)  # the fold of another reader no longer applies
            if folded:
                if self._fold(backend_name, title, reference_form, segment.nodes_except(main), folded):
                    reason += f"; {self.folded_in(backend_name)} is folded into the reference's first"
                elif is_made_by_fold:
                    continue
                else:
                    self._unknown_folds.add(backend_name)
                    reason += (
                        f"; {' and '.join(folded)} may be folded into the backend's, and then a difference is expected"
                    )
            pair = Pair(reference=reference_name, backend=backend_name, match=Match.ORIGIN, reason=reason)
            pairs_found.append(pair if view is None else replace(pair, backend_view=view))
        return pairs_found

    def _bias_made_by_folding(self, backend: str, other_nodes: Sequence[Node]) -> str:
        """Return the constant that folding turns into a product's bias, such as the bias of a norm, or ""."""
        size = math.prod(self._be.shape(backend))
        for node in other_nodes:
            titles = operators.plain(node).titles
            name = operators.titled_input(node, titles.index("bias")) if "bias" in titles else ""
            constant = _recorded_constant(self._ref, name)
            if constant and math.prod(self._ref.shape(constant)) == size:
                return constant
        return ""

    def _fold(self, backend: str, title: str, main: Node, other_nodes: Sequence[Node], folded: Collection[str]) -> bool:
        """Compute the reference's constant with the given nodes folded in. Return whether that is possible."""
        product = fold(self._ref, main, other_nodes)
        folded_value = None if product is None else {"weight": product.weight, "bias": product.bias}.get(title)
        if product is None or folded_value is None or folded_value.size != math.prod(self._be.shape(backend)):
            return False
        folded_ops = dict.fromkeys(node.op for node in product.nodes)
        if not set(folded) <= set(folded_ops):  # the graph does not allow a fold that the backend made
            return False
        self._folded[backend] = folded_value.astype(np.float32), " and ".join(folded_ops)
        return True

    def folded_in(self, backend: str) -> str:
        """Return the operators that are folded into the reference's side of a pair, or "" if there are none.

        Args:
            backend: The backend's constant in a pair returned by `of`.
        """
        return self._folded[backend][1] if backend in self._folded else ""

    def may_have_folded(self, pair: Pair) -> bool:
        """Return whether the backend may have folded an operator into its constant in an unknown manner."""
        return pair.backend in self._unknown_folds

    def reference(self, pair: Pair) -> Recording:
        """Return a recording of the reference's constant, with folded operators applied.

        Args:
            pair: The constants, as returned by `of`.
        """
        run = self._ref.recording
        if pair.backend not in self._folded:
            return run
        values, _ = self._folded[pair.backend]
        shape = self._ref.shape(pair.reference)
        info = replace(run.graph.tensors[pair.reference], quant=None, dtype=values.dtype.name)
        reshaped = values.reshape(shape) if math.prod(shape) == values.size else values
        return MemoryRecording(Graph([], tensors=[info]), {(pair.reference, 0, 0): reshaped})

    def compare(self, pair: Pair, reader_result: NodeResult | None, *, index: int) -> NodeResult:
        """Compare a pair of constants. A wrong constant counts against the node that reads it.

        Args:
            pair: The constants.
            reader_result: The result of the tensor computed from them, or None if unknown.
            index: An index that is not used by any compared tensor.
        """
        comparison = compare_pair(self.reference(pair), self._be.recording, pair)
        differences = (
            []
            if reader_result is None
            else [finding for finding in reader_result.findings if finding.role is FindingRole.DIFFERENCE]
        )
        fault = next((finding.sentence for finding in differences if finding.evidence == pair.backend), None)
        status, reason = Status.WITHIN, fault
        if comparison.stats is None:
            status, reason = Status.INCOMPARABLE, comparison.reason
        elif fault is not None:
            status = Status.DIVERGED
        elif not comparison.stats.mismatches and not comparison.stats.nonfinite:
            status = Status.IDENTICAL
        verdict_text = "" if reader_result is None else f": {reader_result.node!r} is {reader_result.status}"
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
            note=None
            if status is Status.IDENTICAL
            else f"a constant is judged with the node that reads it{verdict_text}",
            metrics=comparison.stats,
            saturation=comparison.rails,
            quant=self._be.graph.tensors[pair.backend].quant,
        )


def _recorded_constant(run: IndexedRecording, name: str) -> str:
    """Return the recorded constant behind an input, preferring codes over real values, or "" if there is none."""
    if not name or not run.folds(name):
        return ""
    recorded = [member for member in run.members(name) if run.has(member)]
    coded = [member for member in recorded if run.graph.tensors[member].quant is not None]
    return next(iter(coded or recorded), "")


def _transpose_between(reference: Sequence[int], backend: Sequence[int]) -> Transform | None:
    """Return the transpose to the reference's shape if only the dimension order differs, or None."""
    if reference == backend or len(reference) != len(backend) or sorted(reference) != sorted(backend):
        return None
    first, last = 0, len(backend) - 1
    usual_orders = [(last, last - 1, *range(last - 1)), (first, last, *range(1, last)), (last, first, *range(1, last))]
    orders = [*usual_orders, *permutations(range(len(backend)))] if len(backend) > 1 else []
    order = next(
        (candidate for candidate in orders if tuple(backend[axis] for axis in candidate) == tuple(reference)),
        None,
    )
    return None if order is None else Transform(transpose=order)
