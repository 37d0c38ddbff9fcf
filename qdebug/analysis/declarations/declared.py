"""Checks what the two graphs say, before what they compute: other weights, another bias, stride or activation.

A replay with the backend's own constants looks clean even if these are wrong. So the reference's nodes that a backend
node stands for are replayed too, on the backend's recorded inputs and with the reference's constants. The two replays
may differ by what rounding each constant to its nearest code makes of them, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from qdebug.analysis.alignment.clamps import bounds_of, codes_clamp
from qdebug.analysis.alignment.layouts import layouts_of
from qdebug.analysis.alignment.ops import BIAS_SLOTS, MOVES_VALUES, plain_op, same_family
from qdebug.analysis.alignment.pairs import Pair, clamp_of
from qdebug.analysis.alignment.value_classes import Run
from qdebug.analysis.alignment.weights import in_plain_order, without_padding
from qdebug.analysis.attribution.attribute import compute
from qdebug.analysis.attribution.constant_error import hair, known_errors, scales_by_constants
from qdebug.analysis.attribution.constant_spread import constant_spread
from qdebug.analysis.attribution.dynamic_replay import DynamicReplay
from qdebug.analysis.attribution.own_codes import rounding_inside
from qdebug.analysis.attribution.reference_replay import ReferenceReplay
from qdebug.analysis.attribution.rounding import real_values
from qdebug.analysis.attribution.segment import Segment
from qdebug.analysis.declarations.unheld import unheld
from qdebug.model import Graph, Node, Recording
from qdebug.replay.blockwise_weight import blockwise_weight
from qdebug.replay.real_form import real_form, takes_codes

__all__ = ["Declared"]

_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_ELEMENTWISE = frozenset({"Add", "Sub", "Mul"})
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
_TITLES = {
    **dict.fromkeys(_PRODUCTS, ("input", "weight", "bias")),
    "BatchNormalization": ("input", "scale", "bias", "mean", "variance"),
    **dict.fromkeys(
        ("LayerNormalization", "SkipLayerNormalization", "EmbedLayerNormalization"), ("input", "scale", "bias")
    ),
    **dict.fromkeys(
        ("RMSNormalization", "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"), ("input", "scale")
    ),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), ("input", "weight", "recurrent weight", "bias")),
}
"""What an operator's inputs are called where they are constants."""
_PLACES = {
    **{op: (0, 1, BIAS_SLOTS[op]) for op in ("DynamicQuantizeMatMul", "MatMulNBits", "MatMulIntegerToFloat")},
    "SkipLayerNormalization": (0, 2, 3),
    "EmbedLayerNormalization": (0, 5, 6),
    "SkipSimplifiedLayerNormalization": (0, 2),
}
"""Where operators have what `_TITLES` names, if there is something else in between: scales, or what is added before."""
_LIKELY = 8.0
"""Times the root of the sum of squares that many errors of rounding add up to at most; independent ones reach 3."""
_MOST_NODES = 64
"""A backend node that stands for more nodes than this is not checked; no known fusion is that large."""


class Declared:
    """Compares what two graphs declare, node by node.

    Args:
        reference: The reference run.
        backend: The backend run.
        pairs: All pairs of the alignment.
        runs: What is known of both graphs; derived from the recordings if None.

    Attributes:
        dynamic: Replays what the backend computes with codes of a scale chosen at run time.
    """

    def __init__(
        self,
        reference: Recording,
        backend: Recording,
        pairs: Iterable[Pair],
        *,
        runs: tuple[Run, Run] | None = None,
    ) -> None:
        known = runs or (Run.of(reference), Run.of(backend))
        self._ref, self._be = known[0].read_through(reference), known[1].read_through(backend)
        self._reference, self._backend = reference, backend
        self._pairs = {pair.backend: pair for pair in pairs}
        views = {pair.reference: pair.reference_view for pair in self._pairs.values() if pair.reference_view}
        layouts = {**layouts_of(self._ref), **views}
        self._replay = ReferenceReplay(self._ref, self._be, pairs=self._pairs, layouts=layouts)
        self.dynamic = DynamicReplay(self._be, self._replay.backend)
        self._partners: dict[str, str] = {}
        for pair in self._pairs.values():
            self._partners.setdefault(self._ref.classes.root(pair.reference), pair.backend)

    def segment(self, pair: Pair) -> Segment | None:
        """Find what leads to a compared tensor in either graph, back to the nearest compared tensors.

        Returns:
            None if an input of the network that was not compared leads there, or if too many nodes do.
        """
        own = self._own(pair.backend)
        if own is None:
            return None
        nodes, entries = own
        feeds = {self._pairs[tensor].reference: tensor for tensor in entries}
        ends = {self._ref.classes.root(name) for name in feeds}
        found = self._between(pair.reference, ends)
        if found is not None:
            return Segment(nodes=found, feeds=feeds, own=nodes)
        every = set(self._partners) - {self._ref.classes.root(pair.reference)}
        found = self._between(pair.reference, ends | every)
        if found is None:
            return None
        read = {self._ref.classes.root(name): name for node in found for name in self._ref.classes.data_inputs(node)}
        more = {name: self._partners[root] for root, name in read.items() if root in every and root not in ends}
        return Segment(nodes=found, feeds={**feeds, **more}, own=nodes, elsewhere=True)

    def _own(self, output: str) -> tuple[tuple[Node, ...], tuple[str, ...]] | None:
        """Give the backend's nodes between a tensor and the compared ones above it, and those."""
        graph = self._backend.graph
        found: dict[str, Node] = {}
        entries: dict[str, None] = {}
        waiting = [output]
        while waiting:
            tensor = waiting.pop()
            node = graph.producer(tensor)
            if node is None or len(found) > _MOST_NODES:
                return None
            if node.name in found:
                continue
            found[node.name] = node
            for name in self._be.classes.data_inputs(node):
                if name in self._pairs:
                    entries[name] = None
                else:
                    waiting.append(name)
        return _in_order(found.values(), graph), tuple(entries)

    def _between(self, output: str, ends: Collection[str]) -> tuple[Node, ...] | None:
        graph, classes = self._reference.graph, self._ref.classes
        found: dict[str, Node] = {}
        waiting = [output]
        while waiting:
            tensor = waiting.pop()
            if classes.root(tensor) in ends:
                continue
            node = graph.producer(tensor)
            if node is None or len(found) > _MOST_NODES:
                return None
            if node.name not in found:
                found[node.name] = node
                waiting += classes.data_inputs(node)
        return _in_order(found.values(), graph)

    def same(self, pair: Pair, node: Node, segment: Segment) -> bool:
        """Tell whether a backend node is declared exactly as its one reference node, operands included."""
        if segment.wide:
            return False
        if not segment.nodes:
            return self._be.classes.handed_on(node) is not None or self._clamped_before(node, pair)
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
        bounds = bounds_of(self._be, node)
        before = self._pairs.get(node.inputs[0]) if node.inputs else None
        if bounds is None or before is None:
            return False
        members = self._ref.classes.members(pair.reference)
        return clamp_of(before.backend_view) == bounds or any(codes_clamp(self._ref, m, bounds) for m in members)

    def _same_operand(self, ours: str, theirs: str) -> bool:
        """Tell whether two operands are partners, or constants with equal real values."""
        if not ours or not theirs:
            return ours == theirs
        if self._be.classes.folds(ours) and self._ref.classes.folds(theirs):
            held = self._backend.has(ours) and self._reference.has(theirs)
            return not held or np.array_equal(real_values(self._backend, ours), real_values(self._reference, theirs))
        partner = self._pairs.get(ours)
        return partner is not None and self._ref.classes.root(partner.reference) == self._ref.classes.root(theirs)

    def checkable(self, node: Node, segment: Segment) -> bool:
        """Tell whether a replay of the reference's nodes can be held against the backend's node.

        Not where a node takes codes for numbers.
        """
        return segment.wide or not takes_codes(node)

    def coded(self, segment: Segment) -> bool:
        """Tell whether the backend's nodes compute with codes, or with constants that are rounded to them."""
        tensors = self._backend.graph.tensors
        names = {name for node in segment.own for name in (*node.inputs, *node.outputs) if name}
        return any(takes_codes(node) for node in segment.own) or any(
            tensors[form].quant is not None for name in names for form in self._be.classes.members(name)
        )

    def multiplies_codes(self, node: Node) -> bool:
        """Tell whether a backend node multiplies with a constant of integer codes."""
        form, _ = real_form(node, self._backend.graph.opset)
        if form.op not in _PRODUCTS:
            return False
        weights = [name for name in form.inputs[1:2] if name and self._be.classes.folds(name)]
        return any(self._replay.backend.levels(name) is not None for name in weights)

    def replay(self, pair: Pair, segment: Segment, *, sample: int, step: int) -> np.ndarray:
        """Replay a segment's nodes of the reference, see `ReferenceReplay.values`."""
        return self._replay.values(pair, segment, sample=sample, step=step)

    def with_rounded_weight(self, pair: Pair, segment: Segment, *, sample: int, step: int) -> np.ndarray | None:
        """Replay as `replay` does, but with the backend's weight, of which each element is the reference's rounded.

        What rounding it makes of sums is then known and no matter of chance: of many weights left near nothing and data
        of one sign the errors add up.

        Returns:
            None unless there is one product on either side, whose weight is provably the reference's but for rounding.
        """
        found = [[n for n in nodes if plain_op(n) in _PRODUCTS] for nodes in (segment.own, segment.nodes)]
        if [len(products) for products in found] != [1, 1] or not same_family(*(plain_op(n[0]) for n in found)):
            return None
        ours, _ = real_form(found[0][0], self._backend.graph.opset)
        theirs, _ = real_form(found[1][0], self._reference.graph.opset)
        others = [node for node in segment.nodes if node is not found[1][0]]
        if not known_errors((self._ref, self._be), (theirs, ours), others, self._replay.backend.half_steps):
            return None
        weight = real_values(self._backend, ours.inputs[1])
        if bool(ours.attrs.get("transB")) != bool(theirs.attrs.get("transB")):
            weight = np.swapaxes(weight, -1, -2)
        return self._replay.values(pair, segment, sample=sample, step=step, instead={theirs.inputs[1]: weight})

    def wandering(self, pair: Pair, segment: Segment, *, sample: int, step: int) -> np.ndarray:
        """Estimate what rounding makes of a segment, see `ReferenceReplay.wandering`."""
        return self._replay.wandering(pair, segment, sample=sample, step=step)

    def rounding_inside(
        self, pair: Pair, segment: Segment, shape: tuple[int, ...], place: tuple[int, int]
    ) -> np.ndarray:
        """Give what rounding to the backend's own codes adds within a segment, see `own_codes.rounding_inside`."""
        return rounding_inside(self._be, pair, segment, shape, place)

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
        constants = [name for name in form.inputs if name and self._be.classes.folds(name)]
        if form.op not in _PRODUCTS and not any(np.any(self._replay.backend.half_steps(name)) for name in constants):
            return 0.0
        if form.op not in _PRODUCTS | _ELEMENTWISE:
            return None
        if form.op in ("Add", "Sub"):  # what a constant is added to does not scale its rounding
            form = replace(form, op="Add")
        main, half_steps = _main(node, segment), self._replay.backend.half_steps
        known: Mapping[str, np.ndarray] = {}
        if main is not None and form.op in _PRODUCTS:
            theirs, _ = real_form(main, self._reference.graph.opset)
            others = [each for each in segment.nodes if each is not main]
            known = known_errors((self._ref, self._be), (theirs, form), others, half_steps)
        values: dict[str, np.ndarray] = {}
        rounded = False
        for slot, name in enumerate(form.inputs):
            if not name:
                continue
            if self._be.classes.folds(name):
                steps = known[name] if name in known else half_steps(name)
                rounded = rounded or bool(np.any(steps))
                values[name] = steps
            elif slot > 1 or form.op == "Add":
                values[name] = np.zeros_like(real_values(self._backend, name, sample, step))
            else:
                values[name] = np.abs(real_values(self._backend, name, sample, step))
        if not rounded:
            return 0.0
        worst = compute(node, form, opset, values)[form.outputs[0]]
        if form.op not in _PRODUCTS:
            return worst
        squares = compute(node, form, opset, {name: array**2 for name, array in values.items()})[form.outputs[0]]
        return np.asarray(np.minimum(worst, _LIKELY * np.sqrt(squares)))

    def other_constants(self, node: Node, segment: Segment) -> bool:
        """Tell whether a constant of a node is provably not the reference's, by more than rounding it makes.

        Not where other nodes of the reference may have been folded into it.
        """
        main = _main(node, segment)
        if main is None or segment.wide:
            return False
        others = [each for each in segment.nodes if each is not main]
        computed = any(map(self._computed, main.inputs))  # on the other side it may be computed in another precision
        if computed or scales_by_constants(self._ref, others):
            return False
        forms = [real_form(each, run.recording.graph.opset)[0] for each, run in ((node, self._be), (main, self._ref))]
        return bool(self._constants_said(forms[0], forms[1], segment))

    def other_weight(self, segment: Segment) -> bool:
        """Tell whether the weight of the one product of a segment is provably not the reference's."""
        mains = [node for node in segment.nodes if plain_op(node) in _PRODUCTS]
        others = [node for node in segment.nodes if node not in mains]
        if any(self._computed(name) for node in mains for name in node.inputs) or scales_by_constants(
            self._ref, others
        ):
            return False
        return bool(self._weight_said(segment))

    def _computed(self, name: str) -> bool:
        """Tell whether a constant of the reference is computed of others, and not only kept in another form."""
        if not name or not self._ref.classes.folds(name):
            return False
        made = self._reference.graph.producer(self._ref.classes.root(name))
        return made is not None and made.op not in MOVES_VALUES

    def spread(self, node: Node, tensor: str, *, sample: int, step: int) -> np.ndarray:
        """Estimate what rounding a node's constants makes of one of its outputs, where `rounding` knows no bound.

        Raises:
            KernelError: The node cannot be replayed.
            RecordingError: An input was not recorded.
        """
        form, opset = real_form(node, self._backend.graph.opset)
        values = {name: real_values(self._backend, name, sample, step) for name in form.inputs if name}
        constants = [name for name, array in values.items() if self._be.classes.folds(name) and array.dtype.kind == "f"]
        steps = {name: self._replay.backend.half_steps(name) for name in constants}
        return constant_spread(lambda given: compute(node, form, opset, given)[tensor], values, steps)

    def unheld(self, node: Node, segment: Segment) -> str | None:
        """Say which constant of a node its format cannot hold; None if there is none."""
        main = _main(node, segment)
        return None if main is None else unheld(self._reference, self._backend, main, node)

    def difference(self, node: Node, segment: Segment) -> str:
        """Say in a clause what the graphs declare differently."""
        form, _ = real_form(node, self._backend.graph.opset)
        main = _main(node, segment)
        if segment.wide:
            known, own = (" + ".join(n.op for n in nodes) for nodes in (segment.nodes, segment.own))
            read = ", ".join(repr(tensor) for tensor in segment.feeds.values())
            said = self._weight_said(segment)
            return f"{own} on {read} does not do what {known or 'no node'} of the reference does{said}"
        if main is None:
            known = " + ".join(n.op for n in segment.nodes)
            return f"{node.op} stands where the reference has {known or 'no node'}"
        theirs, _ = real_form(main, self._reference.graph.opset)
        attrs = _differing_attrs(form, theirs)
        if attrs:
            name = attrs[0]
            return f"its {name} is {form.attrs.get(name)}, the reference's is {theirs.attrs.get(name)}"
        others = [each for each in segment.nodes if each is not main]
        scaled = scales_by_constants(self._ref, others)  # into the weights: then they are other ones by right
        said = self.unheld(node, segment) or ("" if scaled else self._constants_said(form, theirs, segment))
        if not said and segment.elsewhere:
            said = self._operands_said(form, theirs)
        extra = [n.op for n in segment.nodes if n is not main]
        return said or f"it does not do what {' + '.join([main.op, *extra])} does"

    def _operands_said(self, ours: Node, theirs: Node) -> str:
        root = self._ref.classes.root
        mine = [self._pairs[name].reference for name in self._be.classes.data_inputs(ours) if name in self._pairs]
        missing = [n for n in self._ref.classes.data_inputs(theirs) if root(n) not in set(map(root, mine))]
        if not missing or not mine:
            return ""
        return f"it reads {' and '.join(map(repr, dict.fromkeys(mine)))}, and not {missing[0]!r} as the reference does"

    def _constants_said(self, ours: Node, theirs: Node, segment: Segment) -> str:
        titles = _TITLES.get(plain_op(theirs), ("constant",) * max(2, len(theirs.inputs)))
        for slot, title in enumerate(titles):
            one, other = (_operand(n, slot) for n in (ours, theirs))
            if not one and not other:
                continue
            if slot > 1 and title == "constant" and not (one and other):
                continue  # what it leaves out may be what holds without it
            if one and not other and any(n.op == "Add" for n in segment.nodes):
                continue  # the reference adds it in a node of its own
            if not one or not other:
                return f"it has {'no' if not one else 'a'} {title}, the reference has {'one' if other else 'none'}"
            turned = slot == 1 and bool(ours.attrs.get("transB")) != bool(theirs.attrs.get("transB"))
            said = self._elements_said(one, other, title, turned=turned)
            if said:
                return said
        return ""

    def _elements_said(self, one: str, other: str, title: str, *, turned: bool) -> str:
        """Say how many elements of a backend constant are not the reference's by more than rounding makes."""
        constants = self._be.classes.folds(one) and self._ref.classes.folds(other)
        if not (constants and self._backend.has(one) and self._reference.has(other)):
            return ""
        (mine, half), real = self._rounded(one), real_values(self._reference, other)
        other_steps = self._replay.reference.half_steps(other)
        if turned:
            real, other_steps = np.swapaxes(real, -1, -2), np.swapaxes(other_steps, -1, -2)
        kept = without_padding(mine, real.shape)
        if kept is not mine:
            mine, half = kept, half[: kept.shape[0], : kept.shape[1]]
        if mine.shape != real.shape:
            return ""
        steps = half + other_steps
        beyond = np.abs(mine - real) > 1.001 * steps + hair(real)
        if not beyond.any():
            return ""
        wrong = f"{int(beyond.sum())} of {beyond.size} elements of its {title} {one!r} are not the reference's"
        return self._coarse(one, title, np.abs(mine - real)) or wrong

    def _rounded(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Give a constant of the backend as real values, and half a step of each."""
        nodes = (node for node in self._backend.graph.consumers(name) if node.op == "MatMulNBits")
        node = next((node for node in nodes if node.inputs[1] == name), None)
        if node is None:
            values, half = real_values(self._backend, name), self._replay.backend.half_steps(name)
            reader = next((each for each in self._backend.graph.consumers(name) if name in each.inputs[1:2]), None)
            if reader is not None:
                values, half = (in_plain_order(self._be, reader, array) for array in (values, half))
            return values, half
        parts = [part for part in node.inputs[1:4] if part and self._backend.has(part)]
        codes, scales = blockwise_weight(node, {part: self._backend.load(part) for part in parts})
        half = np.abs(scales) / 2
        if not any(node.inputs[3:4]):  # one code more is below zero: the largest of the other sign is cut off
            half = np.where(codes == np.max(-codes, initial=1) - 1, 2 * half, half)
        return codes * scales, half

    def _weight_said(self, segment: Segment) -> str:
        """Say that the weight of the one product among several backend nodes is not that of the reference's one."""
        found = [[n for n in nodes if plain_op(n) in _PRODUCTS] for nodes in (segment.own, segment.nodes)]
        if [len(products) for products in found] != [1, 1] or not same_family(*(plain_op(n[0]) for n in found)):
            return ""
        (ours,), (theirs,) = found
        if scales_by_constants(self._ref, [each for each in segment.nodes if each is not theirs]):
            return ""
        turned = bool(ours.attrs.get("transB")) != bool(theirs.attrs.get("transB"))
        said = self._elements_said(_operand(ours, 1), _operand(theirs, 1), "weight", turned=turned)
        return f"; of {ours.op} {ours.name!r}, {said}" if said else ""

    def _coarse(self, name: str, title: str, error: np.ndarray) -> str:
        """Say that a constant is off for no other reason than a scale far larger than its values need."""
        levels = self._replay.backend.levels(name)
        steps = self._replay.backend.half_steps(name, any_scale=True)
        if levels is None or np.any(error > 1.001 * steps + 1e-6):
            return ""
        return f"its {title} {name!r} is rounded far too coarsely: it uses {levels[0]} of {levels[1]} codes"


def _operand(node: Node, slot: int) -> str:
    """Give what `_TITLES` names, wherever it stands among a node's inputs; "" if the node has none."""
    places = _PLACES.get(node.op, ())
    place = places[slot] if slot < len(places) else slot
    return node.inputs[place] if place < len(node.inputs) else ""


def _main(node: Node, segment: Segment) -> Node | None:
    """Give the reference node of the same operator among those that a backend node stands for."""
    return next((n for n in segment.nodes if same_family(plain_op(n), plain_op(node))), None)


def _in_order(nodes: Iterable[Node], graph: Graph) -> tuple[Node, ...]:
    return tuple(sorted(nodes, key=lambda node: graph.position(next(name for name in node.outputs if name)) or 0))


def _differing_attrs(one: Node, other: Node) -> Sequence[str]:
    ours, theirs = (dict(_attrs_key(node)) for node in (one, other))
    common = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    shaping = [name for name in common if name in _SHAPING]
    return shaping or common


def _attrs_key(node: Node) -> tuple[tuple[str, str], ...]:
    """Give the attributes that say what a node computes, in a form that compares."""
    left_out = ("channels_last", "activation", "activation_params")
    return tuple(sorted((name, repr(value)) for name, value in node.attrs.items() if name not in left_out))
