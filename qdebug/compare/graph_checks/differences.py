"""Checks what the two graphs say, before what they compute: other weights, another bias, stride or activation.

A replay with the backend's own constants looks clean even if these are wrong. So the reference's nodes that a backend
node stands for are replayed too, on the backend's recorded inputs and with the reference's constants. The two replays
may differ by what rounding each constant to its nearest code makes of them, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from qdebug.compare.align.clamps import bounds_of, codes_clamp
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.layouts import layouts_of
from qdebug.compare.align.pairs import Pair, clamp_of
from qdebug.compare.attribute.backend_replay import compute
from qdebug.compare.attribute.dynamic import DynamicReplay
from qdebug.compare.attribute.reference_replay import ReferenceReplay
from qdebug.compare.attribute.rounding import constant_spread, known_errors, real_values, scales_by_constants
from qdebug.compare.attribute.segments import Segment, SegmentFinder, main_node
from qdebug.compare.graph_checks.constants import ConstantCheck, unrepresentable_constant
from qdebug.compare.result.finding import Finding, FindingKind, Role
from qdebug.model import Node, Recording, operators
from qdebug.model.thresholds.rounding import ROUNDING_SUM_FACTOR
from qdebug.replay.real_form import real_form

__all__ = ["GraphDifferences"]

_SHAPING = (
    "kernel_shape",
    "strides",
    "pads",
    "dilations",
    "group",
    "axis",
    "axes",
    "perm",
    "transA",
    "transB",
    "alpha",
)


class GraphDifferences:
    """Compares what two graphs declare, node by node.

    Args:
        reference: The reference run.
        backend: The backend run.
        pairs: All pairs of the alignment.
        runs: What is known of both graphs; derived from the recordings if None.

    Attributes:
        be: The backend run.
        replays: Replays the reference's nodes on what the backend recorded.
        segments: Finds what leads to a compared tensor in either graph.
        constants: Holds the constants of both sides against each other.
        dynamic: Replays what the backend computes with codes of a scale chosen at run time.
    """

    def __init__(
        self,
        reference: Recording,
        backend: Recording,
        pairs: Sequence[Pair],
        *,
        runs: tuple[IndexedRecording, IndexedRecording] | None = None,
    ) -> None:
        known = runs or (IndexedRecording.of(reference), IndexedRecording.of(backend))
        self._ref, self.be = known[0].read_through(reference), known[1].read_through(backend)
        self._reference, self._backend = reference, backend
        self._pairs = {pair.backend: pair for pair in pairs}
        views = {pair.reference: pair.reference_view for pair in pairs if pair.reference_view}
        layouts = {**layouts_of(self._ref), **views}
        self.replays = ReferenceReplay(self._ref, self.be, pairs=self._pairs, layouts=layouts)
        self.dynamic = DynamicReplay(self.be, self.replays.backend)
        self.segments = SegmentFinder(self._ref, self.be, self._pairs)
        self.constants = ConstantCheck(self._ref, self.be, self.replays)

    def same(self, pair: Pair, node: Node, segment: Segment) -> bool:
        """Tell whether a backend node is declared exactly as its one reference node, operands included."""
        if segment.wide:
            return False
        if not segment.nodes:
            return self.be.handed_on(node) is not None or self._clamped_before(node, pair)
        theirs = segment.nodes[0]
        if len(segment.nodes) != 1 or pair.reference not in theirs.outputs:
            return False
        ours_form, _ = real_form(node, self._backend.graph.opset)
        theirs_form, _ = real_form(theirs, self._reference.graph.opset)
        return (
            ours_form.op == theirs_form.op
            and _attrs_key(ours_form) == _attrs_key(theirs_form)
            and node.outputs.index(pair.backend) == theirs.outputs.index(pair.reference)
            and len(ours_form.inputs) == len(theirs_form.inputs)
            and all(map(self._same_operand, ours_form.inputs, theirs_form.inputs))
        )

    def _clamped_before(self, node: Node, pair: Pair) -> bool:
        """Tell whether a backend's Relu or Clip does what the reference's codes, or its node before, have done."""
        bounds = bounds_of(self.be, node)
        before = self._pairs.get(node.inputs[0]) if node.inputs else None
        if bounds is None or before is None:
            return False
        members = self._ref.members(pair.reference)
        return clamp_of(before.backend_view) == bounds or any(codes_clamp(self._ref, m, bounds) for m in members)

    def _same_operand(self, ours: str, theirs: str) -> bool:
        """Tell whether two operands are partners, or constants with equal real values."""
        if not ours or not theirs:
            return ours == theirs
        if self.be.folds(ours) and self._ref.folds(theirs):
            held = self._backend.has(ours) and self._reference.has(theirs)
            return not held or np.array_equal(real_values(self._backend, ours), real_values(self._reference, theirs))
        partner = self._pairs.get(ours)
        return partner is not None and self._ref.root(partner.reference) == self._ref.root(theirs)

    def checkable(self, node: Node, segment: Segment) -> bool:
        """Tell whether a replay of the reference's nodes can be held against the backend's node.

        Not where a node takes codes for numbers.
        """
        return segment.wide or not operators.of(node.op).takes_codes

    def coded(self, segment: Segment) -> bool:
        """Tell whether the backend's nodes compute with codes, or with constants that are rounded to them."""
        tensors = self._backend.graph.tensors
        names = {name for node in segment.own for name in (*node.inputs, *node.outputs) if name}
        return any(operators.of(node.op).takes_codes for node in segment.own) or any(
            tensors[form].quant is not None for name in names for form in self.be.members(name)
        )

    def multiplies_codes(self, node: Node) -> bool:
        """Tell whether a backend node multiplies with a constant of integer codes."""
        form, _ = real_form(node, self._backend.graph.opset)
        if not operators.of(form.op).product:
            return False
        weights = [name for name in form.inputs[1:2] if name and self.be.folds(name)]
        return any(self.replays.backend.levels(name) is not None for name in weights)

    def with_rounded_weight(self, pair: Pair, segment: Segment, *, sample: int, step: int) -> np.ndarray | None:
        """Replay the reference's nodes with the backend's weight, each element of which is the reference's rounded.

        What rounding it makes of sums is then known and no matter of chance: of many weights left near nothing and data
        of one sign the errors add up.

        Returns:
            None unless there is one product on either side, whose weight is provably the reference's but for rounding.
        """
        found = [[n for n in nodes if operators.plain(n).product] for nodes in (segment.own, segment.nodes)]
        if [len(products) for products in found] != [1, 1] or not operators.same_family(found[0][0], found[1][0]):
            return None
        ours, _ = real_form(found[0][0], self._backend.graph.opset)
        theirs, _ = real_form(found[1][0], self._reference.graph.opset)
        others = [node for node in segment.nodes if node is not found[1][0]]
        if not known_errors((self._ref, self.be), (theirs, ours), others, self.replays.backend.half_steps):
            return None
        weight = real_values(self._backend, ours.inputs[1])
        if bool(ours.attrs.get("transB")) != bool(theirs.attrs.get("transB")):
            weight = np.swapaxes(weight, -1, -2)
        return self.replays.values(pair, segment, sample=sample, step=step, instead={theirs.inputs[1]: weight})

    def rounding(self, node: Node, segment: Segment, *, sample: int, step: int) -> np.ndarray | float | None:
        """Bound what rounding the node's constants to their codes can change, in the backend's order of dimensions.

        Half a step of each weight, or its error where that is known, times the magnitude of what it meets, and half a
        step of the bias: their sum, or a few times the root of the sum of squares where that is less, since errors of
        rounding hardly ever have one sign.
        None where constants are rounded and no such bound is known.

        Raises:
            KernelError: The node cannot be replayed.
            RecordingError: An input was not recorded.
        """
        form, opset = real_form(node, self._backend.graph.opset)
        constants = [name for name in form.inputs if name and self.be.folds(name)]
        row = operators.of(form.op)
        if not row.product and not any(np.any(self.replays.backend.half_steps(name)) for name in constants):
            return 0.0
        if row.moves:
            return self._moved_rounding(node, constants, sample=sample, step=step)
        scales = row.neutral == 1 and row.commutes
        if not (row.product or row.neutral == 0 or scales):
            return None
        main, half_steps = main_node(node, segment), self.replays.backend.half_steps
        known: Mapping[str, np.ndarray] = {}
        if main is not None and row.product:
            theirs, _ = real_form(main, self._reference.graph.opset)
            others = [each for each in segment.nodes if each is not main]
            known = known_errors((self._ref, self.be), (theirs, form), others, half_steps)
        values: dict[str, np.ndarray] = {}
        rounded = False
        for slot, name in enumerate(form.inputs):
            if not name:
                continue
            if self.be.folds(name):
                steps = known[name] if name in known else half_steps(name)
                rounded = rounded or bool(np.any(steps))
                values[name] = steps
            elif slot > 1 or row.adds:  # what a constant is added to does not scale its rounding
                values[name] = np.zeros_like(real_values(self._backend, name, sample, step))
            else:
                values[name] = np.abs(real_values(self._backend, name, sample, step))
        if not rounded:
            return 0.0
        if row.adds:
            return np.asarray(sum(values[name] for name in form.inputs if name))
        worst = compute(node, form, opset, values)[form.outputs[0]]
        if not row.product:
            return worst
        squares = compute(node, form, opset, {name: array**2 for name, array in values.items()})[form.outputs[0]]
        return np.asarray(np.minimum(worst, ROUNDING_SUM_FACTOR * np.sqrt(squares)))

    def _moved_rounding(self, node: Node, constants: Sequence[str], *, sample: int, step: int) -> np.ndarray:
        """Give what rounding constants can change of what a node only moves: half a step wherever one of them goes."""
        form, opset = real_form(node, self._backend.graph.opset)
        values: dict[str, np.ndarray] = {}
        for name in filter(None, form.inputs):
            values[name] = real_values(self._backend, name, sample, step)
            if values[name].dtype.kind == "f":  # indices and extents stay
                rounded = self.replays.backend.half_steps(name) if name in constants else np.zeros((), np.float32)
                values[name] = np.broadcast_to(rounded, values[name].shape)
        return compute(node, form, opset, values)[form.outputs[0]]

    def spread(self, node: Node, tensor: str, *, sample: int, step: int) -> np.ndarray:
        """Estimate what rounding a node's constants makes of one of its outputs, where `rounding` knows no bound.

        Raises:
            KernelError: The node cannot be replayed.
            RecordingError: An input was not recorded.
        """
        form, opset = real_form(node, self._backend.graph.opset)
        values = {name: real_values(self._backend, name, sample, step) for name in form.inputs if name}
        constants = [name for name, array in values.items() if self.be.folds(name) and array.dtype.kind == "f"]
        steps = {name: self.replays.backend.half_steps(name) for name in constants}
        return constant_spread(lambda given: compute(node, form, opset, given)[tensor], values, steps)

    def unrepresentable_constant(self, node: Node, segment: Segment) -> Finding | None:
        """Find a constant of a node that its format cannot hold; None if there is none."""
        main = main_node(node, segment)
        return None if main is None else unrepresentable_constant(self._reference, self._backend, main, node)

    def difference(self, node: Node, segment: Segment) -> Finding:
        """Return what the graphs declare differently, where the results are known to differ."""
        form, _ = real_form(node, self._backend.graph.opset)
        main = main_node(node, segment)
        if segment.wide:
            return self._difference_wide(node, segment)
        if main is None:
            known = " + ".join(n.op for n in segment.nodes)
            said = f"{node.op} stands where the reference has {known or 'no node'}"
            return _difference(FindingKind.OPERATOR, node, said)
        theirs, _ = real_form(main, self._reference.graph.opset)
        attrs = _differing_attrs(form, theirs)
        if attrs:
            name = attrs[0]
            said = f"its {name} is {form.attrs.get(name)}, the reference's is {theirs.attrs.get(name)}"
            return _difference(FindingKind.ATTRIBUTE, node, said, evidence=name)
        others = [each for each in segment.nodes if each is not main]
        scaled = scales_by_constants(self._ref, others)  # into the weights: then they are other ones by right
        found = self.unrepresentable_constant(node, segment) or (
            None if scaled else self.constants.different(form, theirs, segment)
        )
        if found is None and segment.elsewhere:
            found = self._different_operands(form, theirs)
        if found is not None:
            return found
        if others and not scaled and self._lacks(node, (form, theirs), others):
            missing = " + ".join(each.op for each in others)
            said = f"the reference's {missing} is missing here: its {node.op} is the same"
            return _difference(FindingKind.MISSING_NODE, node, said, evidence=others[0].name)
        known = " + ".join([main.op, *(each.op for each in others)])
        return _difference(FindingKind.OPERATOR, node, f"it does not do what {known} does")

    def _lacks(self, node: Node, forms: tuple[Node, Node], others: Sequence[Node]) -> bool:
        """Tell whether the nodes beside the one that a backend node answers to are all that it lacks.

        They are activations, the backend fuses none, and all constants are recorded and the same on both sides.
        """
        if not all(operators.of(each.op).activation for each in others) or operators.fused_activation(node):
            return False
        kinds = []
        for form, run in zip(forms, (self.be, self._ref), strict=True):
            constant = {name: run.folds(name) for name in form.inputs if name}
            if not all(run.recording.has(name) for name, folds in constant.items() if folds):
                return False
            kinds.append((form.op, tuple(constant.values())))
        return kinds[0] == kinds[1]

    def _difference_wide(self, node: Node, segment: Segment) -> Finding:
        known, own = (" + ".join(n.op for n in nodes) for nodes in (segment.nodes, segment.own))
        read = ", ".join(repr(tensor) for tensor in segment.feeds.values())
        said = f"{own} on {read} does not do what {known or 'no node'} of the reference does"
        weight = self.constants.different_weight(segment)
        if weight is None:
            return _difference(FindingKind.OPERATOR, node, said)
        return replace(weight, sentence=f"{said}; {weight.sentence}")

    def _different_operands(self, ours: Node, theirs: Node) -> Finding | None:
        root = self._ref.root
        mine = [self._pairs[name].reference for name in self.be.data_inputs(ours) if name in self._pairs]
        missing = [n for n in self._ref.data_inputs(theirs) if root(n) not in set(map(root, mine))]
        if not missing or not mine:
            return None
        read = " and ".join(map(repr, dict.fromkeys(mine)))
        said = f"it reads {read}, and not {missing[0]!r} as the reference does"
        return _difference(FindingKind.OPERAND, ours, said, evidence=missing[0])


def _difference(kind: FindingKind, node: Node, sentence: str, *, evidence: str | None = None) -> Finding:
    return Finding(kind=kind, role=Role.DIFFERENCE, node=node.name, sentence=sentence, evidence=evidence)


def _differing_attrs(one: Node, other: Node) -> Sequence[str]:
    ours, theirs = (dict(_attrs_key(node)) for node in (one, other))
    common = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    shaping = [name for name in common if name in _SHAPING]
    return shaping or common


def _attrs_key(node: Node) -> tuple[tuple[str, str], ...]:
    """Give the attributes that say what a node computes, in a form that compares."""
    left_out = ("channels_last", "activation", "activation_params")
    return tuple(sorted((name, repr(value)) for name, value in node.attrs.items() if name not in left_out))
