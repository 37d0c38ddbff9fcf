"""Holds the constants of a backend's nodes against the reference's: rounded, different, or beyond their format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import dropwhile

import numpy as np

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.weights import in_plain_order, without_padding
from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.reference_replay import ReferenceReplay
from qdebug.compare.attribute.rounding import hair, scales_by_constants
from qdebug.compare.attribute.segments import Segment, main_node
from qdebug.compare.graph_checks.folded_constants import FoldedProduct, fold
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.model import Node, Recording, operators
from qdebug.model.dtypes import is_float, logical_name
from qdebug.model.operators.known_scales import scale_of_codes
from qdebug.model.thresholds.checks import COARSE_CONSTANT_SLACK, FLOAT_FORMAT_MAX_REL_DIFFERENCE
from qdebug.model.thresholds.rounding import FLOAT32_STORED_REL_ERROR, LSB_SLACK
from qdebug.numerics.short_formats import ShortFormat
from qdebug.replay.blockwise_weight import blockwise_weight, half_steps, packed_inputs
from qdebug.replay.real_form import real_form

__all__ = ["ConstantCheck", "coarse_constant", "unrepresentable_constant"]

_BIAS = 2
"""The place of the bias among the titles of a product, see `Operator.titles`."""
_KINDS = {"weight": FindingKind.WEIGHT, "recurrent weight": FindingKind.WEIGHT, "bias": FindingKind.BIAS}
"""What a finding about a constant is about, by the constant's title; others are `FindingKind.CONSTANT`."""


class ConstantCheck:
    """Holds the constants of a backend's nodes against the reference's.

    Args:
        replays: Knows both runs, and by how much rounding changes a constant of either.
    """

    def __init__(self, replays: ReferenceReplay) -> None:
        self._ref, self._be, self._replays = replays.ref, replays.be, replays

    def are_other(self, node: Node, segment: Segment) -> bool:
        """Tell whether a constant of a node is provably not the reference's, by more than rounding it makes.

        Not where other nodes of the reference may have been folded into it.
        """
        main = main_node(node, segment)
        if main is None or segment.wide:
            return False
        computed = any(map(self._computed, main.inputs))  # on the other side it may be computed in another precision
        if computed or scales_by_constants(self._ref, segment.beside(main)):
            return False
        forms = [real_form(each, run.recording.graph.opset)[0] for each, run in ((node, self._be), (main, self._ref))]
        return self.different(forms[0], forms[1], segment) is not None

    def weight_is_other(self, segment: Segment) -> bool:
        """Tell whether the weight of the one product of a segment is provably not the reference's."""
        mains = [node for node in segment.nodes if operators.plain(node).product]
        others = [node for node in segment.nodes if node not in mains]
        if any(self._computed(name) for node in mains for name in node.inputs) or scales_by_constants(
            self._ref, others
        ):
            return False
        return self.different_weight(segment) is not None

    def other_bias(self, node: Node, segment: Segment) -> tuple[float, Finding] | None:
        """Tell by how much a product's bias of real numbers is not the reference's, if no format rounds it by as much.

        It is in no codes, so nothing about it is hidden by what rounding the weight makes of the same result.

        Returns:
            Root mean square of the difference, and the finding; None if the bias is the reference's, or in codes.
        """
        main = main_node(node, segment)
        if main is None or segment.wide or not operators.plain(main).product:
            return None
        folded = [each for each in segment.beside(main) if operators.plain(each).goes_into_weights]
        own = operators.titled_input(main, _BIAS)
        if len(folded) != (not own) or any(map(self._computed, main.inputs)) or _scales_bias(main, node):
            return None
        bias, other = operators.titled_input(node, _BIAS), own or self._added(main, folded)
        if not (bias and other and self._is_real(bias) and self._ref.recording.has(other)):
            return None
        mine, theirs = (
            np.ravel(array)
            for array in (real_values(self._be.recording, bias), real_values(self._ref.recording, other))
        )
        if mine.shape != theirs.shape or not self._ref.folds(other):
            return None
        off = np.abs(np.subtract(mine, theirs, dtype=np.float64))
        if not np.linalg.norm(off) > FLOAT_FORMAT_MAX_REL_DIFFERENCE * np.linalg.norm(theirs):
            return None
        wrong = int(np.sum(off > FLOAT_FORMAT_MAX_REL_DIFFERENCE * np.abs(theirs)))
        return float(np.sqrt(np.mean(off**2))), _of_elements(node, "bias", bias, wrong, off.size)

    def _added(self, main: Node, others: Sequence[Node]) -> str:
        """Return the constant that a node of its own adds to what a reference node gives; "" if there is none."""
        adding = [node for node in others if operators.of(node.op).adds_term and main.outputs[0] in node.inputs]
        names = [name for node in adding for name in node.inputs if self._ref.folds(name)]
        return names[0] if len(names) == 1 else ""

    def _is_real(self, name: str) -> bool:
        """Tell whether a name is that of a constant of the backend which is rounded to no codes."""
        info, recording = self._be.recording.graph.tensors.get(name), self._be.recording
        if info is None or info.quant is not None or not (self._be.folds(name) and recording.has(name)):
            return False
        return recording.load(name).dtype.kind == "f" and not np.any(self._replays.backend.half_steps(name))

    def _computed(self, name: str) -> bool:
        """Tell whether a constant of the reference is computed of others, and not only kept in another form."""
        if not name or not self._ref.folds(name):
            return False
        made = self._ref.recording.graph.producer(self._ref.root(name))
        return made is not None and not operators.of(made.op).moves

    def different(self, ours: Node, theirs: Node, segment: Segment) -> Finding | None:
        """Find a constant of which two nodes have another, or only one of them has one; None if there is none.

        Args:
            ours: The backend's node in its real form.
            theirs: The reference's.
            segment: What leads to the result of both.
        """
        titles = operators.plain(theirs).titles or ("constant",) * max(2, len(theirs.inputs))
        for slot, title in enumerate(titles):
            one, other = (operators.titled_input(n, slot) for n in (ours, theirs))
            if not one and not other:
                continue
            if slot > 1 and title == "constant" and not (one and other):
                continue  # what it leaves out may be what holds without it
            if one and not other and any(operators.of(n.op).adds_term for n in segment.nodes):
                other = self._added(theirs, segment.nodes)  # in a node of its own
                if not other:
                    continue
            if not one or not other:
                said = f"it has {'no' if not one else 'a'} {title}, the reference has {'one' if other else 'none'}"
                return _finding(ours, title, said, evidence=one or None)
            turned = slot == 1 and bool(ours.attrs.get("transB")) != bool(theirs.attrs.get("transB"))
            found = self._different_elements(ours, one, other, title, turned=turned)
            if found is not None:
                return found
        return None

    def _different_elements(self, node: Node, one: str, other: str, title: str, *, turned: bool) -> Finding | None:
        """Find whether elements of a backend constant are not the reference's by more than rounding makes."""
        constants = self._be.folds(one) and self._ref.folds(other)
        if not (constants and self._be.recording.has(one) and self._ref.recording.has(other)):
            return None
        (mine, half), real = self._rounded(one), real_values(self._ref.recording, other)
        if (mine.dtype.kind in "iu") != (real.dtype.kind in "iu"):
            return None  # codes of which nobody says what they stand for
        other_steps = self._replays.reference.half_steps(other)
        if turned:
            real, other_steps = np.swapaxes(real, -1, -2), np.swapaxes(other_steps, -1, -2)
        kept = without_padding(mine, real.shape)
        if kept is not mine:
            mine, half = kept, half[: kept.shape[0], : kept.shape[1]]
        if title in ("bias", "constant") and mine.shape != real.shape:
            mine, half, real, other_steps = _in_one_shape(mine, half, real, other_steps)
        if mine.shape != real.shape:
            return None
        steps = half + other_steps
        off = np.abs(np.subtract(mine, real, dtype=np.float64))  # they may be masks
        beyond = off > (1 + LSB_SLACK) * steps + hair(real)
        if not beyond.any():
            return None
        wrong = _of_elements(node, title, one, int(beyond.sum()), beyond.size)
        coarse = self._coarse(node, one, title, off)
        return coarse or self._other_scale(node, one, title, (mine, half), (real, other_steps)) or wrong

    def _rounded(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a constant of the backend as real values, and half a step of each."""
        nodes = (node for node in self._be.recording.graph.consumers(name) if operators.of(node.op).packs_weight)
        node = next((node for node in nodes if packed_inputs(node)[:1] == (name,)), None)
        if node is None:
            values, half = real_values(self._be.recording, name), self._replays.backend.half_steps(name)
            reader = next((each for each in self._be.recording.graph.consumers(name) if name in each.inputs[1:2]), None)
            if reader is not None:
                values, half = (in_plain_order(self._be, reader, array) for array in (values, half))
            return values, half
        parts = [part for part in packed_inputs(node) if self._be.recording.has(part)]
        codes, scales = blockwise_weight(node, {part: self._be.recording.load(part) for part in parts})
        return codes * scales, half_steps(node, codes, scales)

    def different_folded(self, ours: Node, main: Node, others: Sequence[Node], *, bias: bool = True) -> Finding | None:
        """Find a weight or a bias that is not the reference's with the nodes after it folded in.

        Args:
            ours: The backend's node in its real form.
            main: The reference's product.
            others: The reference's nodes beside it.
            bias: Whether the bias is looked at; not where another node of the backend may add it.
        """
        if not operators.plain(main).product:
            return None
        folded = fold(self._ref, main, others)
        weight = operators.titled_input(ours, 1)
        if folded is None or not self._is_constant(weight):
            return None
        (mine, half), real, gain = self._rounded(weight), folded.weight, np.abs(folded.gain)
        steps = self._replays.reference.half_steps(operators.titled_input(main, 1)) * gain
        if bool(ours.attrs.get("transB")) != bool(main.attrs.get("transB")):
            real, steps = np.swapaxes(real, -1, -2), np.swapaxes(steps, -1, -2)
        kept = without_padding(mine, real.shape)
        if kept is not mine:
            mine, half = kept, half[: kept.shape[0], : kept.shape[1]]
        if mine.shape != real.shape:
            return None
        with_them = f"with its {' and '.join(dict.fromkeys(node.op for node in folded.nodes))} folded in"
        beyond = np.abs(mine - real) > (1 + LSB_SLACK) * (half + steps) + hair(real) + _folding(np.abs(real))
        if beyond.any():
            wrong = _of_elements(ours, "weight", weight, int(beyond.sum()), beyond.size)
            coarse = self._coarse(ours, weight, "weight", np.abs(mine - real))
            scaled = self._other_scale(ours, weight, "weight", (mine, half), (real, steps))
            return coarse or scaled or replace(wrong, sentence=f"{wrong.sentence} {with_them}")
        return self._folded_bias(ours, folded, with_them) if bias else None

    def _folded_bias(self, ours: Node, folded: FoldedProduct, with_them: str) -> Finding | None:
        bias = operators.titled_input(ours, _BIAS)
        if not bias:
            none = bool((np.abs(folded.bias) > _folding(folded.bias_size)).any())
            said = f"it has no bias, the reference has one {with_them}"
            return _finding(ours, "bias", said, evidence=None) if none else None
        if not self._is_constant(bias):
            return None
        own, half = self._rounded(bias)
        own, half, count = own.ravel(), np.ravel(half), folded.bias.size
        if own.size > count and not own[count:].any():  # channels that fill up a block
            own, half = own[:count], half[:count]
        if own.shape != folded.bias.shape:
            return None
        beyond = np.abs(own - folded.bias) > (1 + LSB_SLACK) * half + hair(folded.bias) + _folding(folded.bias_size)
        if not beyond.any():
            return None
        wrong = _of_elements(ours, "bias", bias, int(beyond.sum()), beyond.size)
        return replace(wrong, sentence=f"{wrong.sentence} {with_them}")

    def _other_scale(
        self,
        node: Node,
        name: str,
        title: str,
        ours: tuple[np.ndarray, np.ndarray],
        theirs: tuple[np.ndarray, np.ndarray],
    ) -> Finding | None:
        """Find that the codes of a constant are right and one factor of all of them is not: it is their scale.

        Args:
            node: The backend node in its real form.
            name: The constant.
            title: What it is to the node.
            ours: Its real values, and half a step of each.
            theirs: Those of the reference.
        """
        graph = self._be.recording.graph
        codes = next((form for form in self._be.members(name) if graph.tensors[form].quant is not None), None)
        found = None if codes is None else scale_of_codes(graph, codes)
        factor = None if found is None else _one_factor(*ours, *theirs)
        if found is None or factor is None:
            return None
        reader, scale = found
        said = f"the scale {scale!r} of its {title} {name!r} is {1 / factor:.4g} times the reference's"
        return Finding(
            kind=FindingKind.SCALE,
            role=FindingRole.DIFFERENCE,
            node=node.name if codes in reader.inputs else reader.name,
            sentence=said,
            amount=1 / factor,
            limit=1.0,
            unit="times the reference's",
            evidence=scale,
        )

    def _is_constant(self, name: str) -> bool:
        """Tell whether a name is that of a constant of the backend that was recorded."""
        return bool(name) and self._be.folds(name) and self._be.recording.has(name)

    def different_weight(self, segment: Segment) -> Finding | None:
        """Find whether the weight of the one product among several backend nodes is not that of the reference's one."""
        if segment.products is None:
            return None
        product, own = segment.products
        theirs, ours = real_form(product, self._ref.graph.opset)[0], real_form(own, self._be.graph.opset)[0]
        theirs_scaled, ours_scaled = (
            sum(scales_by_constants(run, [node]) for node in nodes if node not in (product, own))
            for run, nodes in ((self._ref, segment.nodes), (self._be, segment.own))
        )
        if theirs_scaled and ours_scaled and theirs_scaled != ours_scaled:
            return None  # some are folded in, and nothing says which
        if theirs_scaled and not ours_scaled:
            wrong = self.different_folded(ours, theirs, segment.beside(product), bias=False)
            return None if wrong is None else replace(wrong, sentence=f"of {ours.op} {ours.name!r}, {wrong.sentence}")
        turned = bool(ours.attrs.get("transB")) != bool(theirs.attrs.get("transB"))
        one, other = (operators.titled_input(each, 1) for each in (ours, theirs))
        wrong = self._different_elements(ours, one, other, "weight", turned=turned)
        return None if wrong is None else replace(wrong, sentence=f"of {ours.op} {ours.name!r}, {wrong.sentence}")

    def different_beside(self, segment: Segment) -> Finding | None:
        """Find a table, a summand or a factor that is the one of its kind on either side among several nodes.

        Args:
            segment: What leads to a tensor in either graph.
        """
        ours, theirs = self._beside_weights(self._be, segment.own), self._beside_weights(self._ref, segment.nodes)
        if theirs.get("weight") and theirs.get("factor"):
            return None  # a factor may have gone into the weight, and a summand with it
        for kind, found in ours.items():
            other = theirs.get(kind, [])
            if kind == "weight" or len(found) != 1 or len(other) != 1:
                continue
            (node, name), (their_node, their_name) = found[0], other[0]
            if kind == "factor" and (node.op != their_node.op or ours.get("weight")):
                continue
            title = "constant" if kind == "factor" else kind
            wrong = self._different_elements(node, name, their_name, title, turned=False)
            if wrong is not None:
                return replace(wrong, sentence=f"of {node.op} {node.name!r}, {wrong.sentence}")
        return None

    def _beside_weights(self, run: IndexedRecording, nodes: Sequence[Node]) -> dict[str, list[tuple[Node, str]]]:
        """Return the constants of some nodes in their real form, by what they are to the node."""
        found: dict[str, list[tuple[Node, str]]] = {}

        def note(kind: str, node: Node, name: str) -> None:
            if name and run.folds(name) and run.recording.has(name):
                found.setdefault(kind, []).append((node, name))

        for each in nodes:
            node, _ = real_form(each, run.recording.graph.opset)
            row = operators.plain(node)
            if row.product:
                note("weight", node, operators.titled_input(node, 1))
                if not operators.of(node.op).sums_codes:  # those have zero points in that place
                    note("bias", node, operators.titled_input(node, _BIAS))
            elif row.picked_by:
                note("table", node, node.inputs[0])
            elif row.adds_term or row.neutral is not None or row.scales_channels:
                for name in node.inputs:
                    note("bias" if row.adds_term else "factor", node, name)
        return found

    def _coarse(self, node: Node, name: str, title: str, error: np.ndarray) -> Finding | None:
        """Find whether a constant is off for no other reason than a scale far larger than its values need."""
        levels = self._replays.backend.levels(name)
        steps = self._replays.backend.half_steps(name, any_scale=True)
        if levels is None or np.any(error > (1 + LSB_SLACK) * steps + COARSE_CONSTANT_SLACK):
            return None
        return coarse_constant(node, title, name, *levels)


def _in_one_shape(mine: np.ndarray, half: np.ndarray, real: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, ...]:
    """Bring two constants and their half steps to one shape, if they reach the same elements of what they join.

    Extents of 1 in front change nothing, one number stands for many, and a vector is one along any axis.
    """
    given = mine, half, real, steps
    arrays = [each.reshape(tuple(dropwhile(lambda extent: extent == 1, each.shape))) for each in given]
    shapes = [arrays[0].shape, arrays[2].shape]
    if shapes[0] == shapes[1] or 1 in (mine.size, real.size):
        return np.broadcast_arrays(*arrays)
    vectors = mine.size == real.size and all(sum(extent > 1 for extent in shape) == 1 for shape in shapes)
    return tuple(map(np.ravel, arrays)) if vectors else given


def _one_factor(mine: np.ndarray, half: np.ndarray, real: np.ndarray, steps: np.ndarray) -> float | None:
    """Return the factor that makes rounded values those of the reference, within half a step; None if there is none.

    Args:
        mine: Values of the backend.
        half: Half a step of each.
        real: Those of the reference.
        steps: Half a step of each of them.
    """
    size, known = np.abs(mine, dtype=np.float64), np.abs(real, dtype=np.float64)
    slack = (1 + LSB_SLACK) * steps + hair(real)
    firm = size > half  # what is nearer to zero may have been of either sign
    told = firm & (known > slack)
    if np.unique(size[told]).size < 2 or np.any((mine * real < 0) & told):
        return None  # of values that are all alike, nothing tells the codes from their scale
    least = np.max(np.divide(known - slack, size + half, out=np.zeros_like(size), where=size + half > 0))
    most = np.min(np.divide(known + slack, size - half, out=np.full_like(size, np.inf), where=firm))
    return float((least + most) / 2) if 0 < least <= (1 + LSB_SLACK) * most else None


def _folding(size: np.ndarray) -> np.ndarray:
    """Return the error that folding in float32 makes of numbers of some size."""
    return np.asarray(FLOAT32_STORED_REL_ERROR * size)


def coarse_constant(node: Node, title: str, name: str, used: int, count: int) -> Finding:
    """Return the finding that a constant's scale is far too large: so few codes are used.

    Args:
        node: The backend node that reads the constant.
        title: What the constant is to the node.
        name: The constant.
        used: How many codes it uses.
        count: How many there are.
    """
    return Finding(
        kind=FindingKind.SCALE,
        role=FindingRole.DIFFERENCE,
        node=node.name,
        sentence=f"its {title} {name!r} is rounded far too coarsely: it uses {used} of {count} codes",
        amount=float(used),
        limit=float(count),
        unit="codes in use",
        evidence=name,
    )


def _of_elements(node: Node, title: str, name: str, wrong: int, count: int) -> Finding:
    said = f"{wrong} of {count} elements of {title} {name!r} differ from the reference by more than rounding"
    return replace(_finding(node, title, said, evidence=name), amount=float(wrong), limit=0.0, unit="elements")


def _finding(node: Node, title: str, sentence: str, *, evidence: str | None) -> Finding:
    kind = _KINDS.get(title, FindingKind.CONSTANT)
    return Finding(kind=kind, role=FindingRole.DIFFERENCE, node=node.name, sentence=sentence, evidence=evidence)


def _scales_bias(*nodes: Node) -> bool:
    """Tell whether any of some products multiplies its bias."""
    return any(node.attrs.get("beta", 1.0) != 1.0 for node in nodes)


def unrepresentable_constant(replays: ReferenceReplay, theirs: Node, ours: Node) -> Finding | None:
    """Find a constant of a backend node that lost elements to the range of its format, whatever it is kept in.

    A weight's element counts only if it is not lost in the rounding of the sum anyway.

    Args:
        replays: Knows both runs, and the formats of their constants.
        theirs: The reference's node.
        ours: The backend's node that answers to it.

    Returns:
        A difference, or None if there is no such constant.
    """
    reference, backend = replays.ref.recording, replays.be.recording
    form, _ = real_form(ours, backend.graph.opset)
    titles = operators.plain(theirs).titles
    for slot, (other, name) in enumerate(zip(theirs.inputs, form.inputs, strict=False)):
        if not (_held(backend, name) and _held(reference, other)):
            continue
        mine, real = backend.load(name), reference.load(other)
        if not all(is_float(logical_name(each.dtype)) for each in (mine, real)) or mine.shape != real.shape:
            continue
        short = replays.backend.format(name)
        if short is None or (mine.dtype == real.dtype and np.array_equal(mine, real, equal_nan=True)):
            continue  # nothing is lost to a format that both have
        noise = short.unit if slot == 1 and operators.of(form.op).product else 0.0
        title = f"{titles[slot] if slot < len(titles) else 'constant'} {name!r}"
        lost = _lost(title, mine.astype(np.float64), real.astype(np.float64), noise, short)
        if lost is not None:
            return Finding(
                kind=FindingKind.PRECISION,
                role=FindingRole.DIFFERENCE,
                node=ours.name,
                sentence=lost[1],
                amount=float(lost[0]),
                limit=0.0,
                unit="elements",
                evidence=name,
            )
    return None


def _held(recording: Recording, name: str) -> bool:
    """Tell whether a name is that of a recorded constant that is not made of codes."""
    known = bool(name) and recording.graph.is_constant(name) and recording.has(name)
    return known and recording.graph.tensors[name].quant is None


def _lost(title: str, mine: np.ndarray, real: np.ndarray, noise: float, short: ShortFormat) -> tuple[int, str] | None:
    """Return how many elements are lost to the range of a format, and a clause; None if none is."""
    size, largest = np.abs(real), float(np.max(np.abs(real), initial=0, where=np.isfinite(real)))
    gone = (mine == 0) & (size > noise * largest) & (size < short.normal)
    flushed = gone & (size > short.subnormal / 2)
    clamped = (np.abs(mine) == short.largest) & (size >= short.beyond) & (np.sign(mine) == np.sign(real))
    name = short.name
    for lost, does in (
        (np.isinf(mine) & np.isfinite(real), f"overflow{{}} to infinity in {name}"),
        (clamped, f"{{}} clamped to {short.largest:.6g}, the largest {name}"),
        (flushed, f"{{}} subnormal in {name}, below {short.normal:.6g}, and flushed to zero"),
        (gone & ~flushed, f"underflow{{}} to zero in {name}"),
    ):
        count = int(lost.sum())
        one, many = ("is", "are") if does.startswith("{") else ("s", "")
        if count and lost.size == 1:
            return count, f"its {title} of {real.reshape(-1)[0]:g} {does.format(one)}"
        if count:
            said = does.format(one if count == 1 else many)
            first = f"{'' if count == 1 else 'the first is '}{real[lost][0]:g}"
            return count, f"{count} of {lost.size} elements of its {title} {said}: {first}"
    return None
