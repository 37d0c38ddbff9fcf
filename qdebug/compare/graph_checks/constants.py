"""Holds the constants of a backend's nodes against the reference's: rounded, different, or beyond their format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import dropwhile
from typing import NamedTuple

import numpy as np

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.weights import in_plain_order, without_padding
from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.reference_replay import ReferenceReplay
from qdebug.compare.attribute.rounding import hair, scales_by_constants
from qdebug.compare.graph_checks.folded_constants import FoldedProduct, fold
from qdebug.compare.graph_checks.tensor_facts import TensorFacts
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, graph_difference
from qdebug.model import Node, Recording, operators
from qdebug.model.dtypes import is_float, logical_name
from qdebug.model.operators.known_scales import scale_of_codes
from qdebug.model.thresholds.checks import COARSE_CONSTANT_SLACK, FLOAT_FORMAT_MAX_REL_DIFFERENCE
from qdebug.model.thresholds.rounding import FLOAT32_STORED_REL_ERROR, LSB_SLACK
from qdebug.numerics.short_formats import ShortFormat
from qdebug.replay.blockwise_weight import blockwise_weight, half_steps, packed_inputs
from qdebug.replay.real_form import real_form

__all__ = [
    "coarse_constant",
    "constants_are_other",
    "different_beside",
    "different_constant",
    "different_folded",
    "different_weight",
    "other_bias",
    "unrepresentable_constant",
    "weight_is_other",
]

_BIAS = 2
"""The place of the bias among the titles of a product, see `Operator.titles`."""
_KINDS = {"weight": FindingKind.WEIGHT, "recurrent weight": FindingKind.WEIGHT, "bias": FindingKind.BIAS}
"""What a finding about a constant is about, by the constant's title; others are `FindingKind.CONSTANT`."""


class _Operand(NamedTuple):
    """A constant, and what it is to a backend node on real numbers."""

    node: Node
    title: str
    name: str


class _Rounded(NamedTuple):
    """Real values of a constant, and half a step of each."""

    values: np.ndarray
    half: np.ndarray

    def turned(self) -> _Rounded:
        """Return both with rows and columns swapped."""
        return _Rounded(*(np.swapaxes(each, -1, -2) for each in self))

    def unpadded(self, shape: tuple[int, ...]) -> _Rounded:
        """Return those of a weight without the channels that fill up a block."""
        kept = without_padding(self.values, shape)
        return self if kept is self.values else _Rounded(kept, self.half[: kept.shape[0], : kept.shape[1]])


def constants_are_other(facts: TensorFacts) -> bool:
    """Tell whether a constant of a node is provably not the reference's, by more than rounding it makes.

    Not where other nodes of the reference may have been folded into it, nor where one is computed of others: on the
    other side it may be computed in another precision.
    """
    main = facts.main
    if main is None or _are_computed(facts.ref, [main]) or scales_by_constants(facts.ref, facts.segment.beside(main)):
        return False
    return different_constant(facts, facts.our_form(facts.node), facts.their_form(main)) is not None


def weight_is_other(facts: TensorFacts) -> bool:
    """Tell whether the weight of the one product of a segment is provably not the reference's."""
    mains = [node for node in facts.segment.nodes if operators.plain(node).product]
    others = [node for node in facts.segment.nodes if node not in mains]
    if _are_computed(facts.ref, mains) or scales_by_constants(facts.ref, others):
        return False
    return different_weight(facts) is not None


def other_bias(facts: TensorFacts) -> tuple[float, Finding] | None:
    """Tell by how much a product's bias of real numbers is not the reference's, if no format rounds it by as much.

    It is in no codes, so nothing about it is hidden by what rounding the weight makes of the same result.

    Returns:
        Root mean square of the difference, and the finding; None if the bias is the reference's, or in codes.
    """
    main, node, ref = facts.main, facts.node, facts.ref
    if main is None or not operators.plain(main).product:
        return None
    folded = [each for each in facts.segment.beside(main) if operators.plain(each).goes_into_weights]
    own = operators.titled_input(main, _BIAS)
    scaled = any(each.attrs.get("beta", 1.0) != 1.0 for each in (main, node))
    if len(folded) != (not own) or scaled or _are_computed(ref, [main]):
        return None
    bias, other = operators.titled_input(node, _BIAS), own or _added(ref, main, folded)
    if not (bias and other and _is_real(facts, bias) and ref.recording.has(other)):
        return None
    mine, theirs = np.ravel(real_values(facts.backend, bias)), np.ravel(real_values(facts.reference, other))
    if mine.shape != theirs.shape or not ref.folds(other):
        return None
    off = np.abs(np.subtract(mine, theirs, dtype=np.float64))
    if not np.linalg.norm(off) > FLOAT_FORMAT_MAX_REL_DIFFERENCE * np.linalg.norm(theirs):
        return None
    wrong = off > FLOAT_FORMAT_MAX_REL_DIFFERENCE * np.abs(theirs)
    return float(np.sqrt(np.mean(off**2))), _of_elements(_Operand(node, "bias", bias), wrong)


def _added(ref: IndexedRecording, main: Node, others: Sequence[Node]) -> str:
    """Return the constant that a node of its own adds to what a reference node gives; "" if there is none."""
    adding = [node for node in others if operators.of(node.op).adds_term and main.outputs[0] in node.inputs]
    names = [name for node in adding for name in node.inputs if ref.folds(name)]
    return names[0] if len(names) == 1 else ""


def _is_real(facts: TensorFacts, name: str) -> bool:
    """Tell whether a name is that of a constant of the backend which is rounded to no codes."""
    info = facts.backend.graph.tensors.get(name)
    if info is None or info.quant is not None or not _is_constant(facts.be, name):
        return False
    return facts.backend.load(name).dtype.kind == "f" and not np.any(facts.replays.backend.half_steps(name))


def _is_constant(run: IndexedRecording, name: str) -> bool:
    """Tell whether a name is that of a constant that was recorded."""
    return bool(name) and run.folds(name) and run.recording.has(name)


def _are_computed(ref: IndexedRecording, nodes: Sequence[Node]) -> bool:
    """Tell whether a constant of some reference nodes is computed of others, and not only kept in another form."""
    names = (name for node in nodes for name in node.inputs if name and ref.folds(name))
    makers = (ref.recording.graph.producer(ref.root(name)) for name in names)
    return any(maker is not None and not operators.of(maker.op).moves for maker in makers)


def different_constant(facts: TensorFacts, ours: Node, theirs: Node) -> Finding | None:
    """Find a constant of which two nodes have another, or only one of them has one; None if there is none.

    Args:
        facts: The tensor that both lead to.
        ours: The backend's node on real numbers.
        theirs: The reference's.
    """
    titles = operators.plain(theirs).titles or ("constant",) * max(2, len(theirs.inputs))
    for slot, title in enumerate(titles):
        one, other = (operators.titled_input(n, slot) for n in (ours, theirs))
        if not one and not other:
            continue
        if slot > 1 and title == "constant" and not (one and other):
            continue  # what it leaves out may be what holds without it
        if one and not other and any(operators.of(n.op).adds_term for n in facts.segment.nodes):
            other = _added(facts.ref, theirs, facts.segment.nodes)  # in a node of its own
            if not other:
                continue
        if not one or not other:
            said = f"it has {'no' if not one else 'a'} {title}, the reference has {'one' if other else 'none'}"
            return _finding(ours, title, said, evidence=one or None)
        turned = slot == 1 and _is_turned(ours, theirs)
        found = _different_elements(facts, _Operand(ours, title, one), other, turned=turned)
        if found is not None:
            return found
    return None


def _is_turned(ours: Node, theirs: Node) -> bool:
    """Tell whether two products keep their weights in different orders of rows and columns."""
    return bool(ours.attrs.get("transB")) != bool(theirs.attrs.get("transB"))


def _different_elements(facts: TensorFacts, of: _Operand, other: str, *, turned: bool = False) -> Finding | None:
    """Find whether elements of a backend constant are not the reference's by more than rounding makes."""
    if not (_is_constant(facts.be, of.name) and _is_constant(facts.ref, other)):
        return None
    ours, real = _rounded(facts, of.name), real_values(facts.reference, other)
    if (ours.values.dtype.kind in "iu") != (real.dtype.kind in "iu"):
        return None  # codes of which nobody says what they stand for
    theirs = _Rounded(real, facts.replays.reference.half_steps(other))
    theirs = theirs.turned() if turned else theirs
    ours = ours.unpadded(theirs.values.shape)
    if of.title in ("bias", "constant") and ours.values.shape != theirs.values.shape:
        ours, theirs = _in_one_shape(ours, theirs)
    return _wrong_elements(facts, of, ours, theirs)


def _wrong_elements(
    facts: TensorFacts,
    of: _Operand,
    ours: _Rounded,
    theirs: _Rounded,
    *,
    slack: np.ndarray | float = 0.0,
    said: str = "",
) -> Finding | None:
    """Find which elements of a constant are not the reference's, or whether its scale alone is to blame.

    Args:
        facts: The tensor that the constant leads to.
        of: The constant.
        ours: Its real values.
        theirs: Those of the reference.
        slack: What else each element may be off by.
        said: What is said after the elements.
    """
    if ours.values.shape != theirs.values.shape:
        return None
    off = np.abs(np.subtract(ours.values, theirs.values, dtype=np.float64))  # they may be masks
    beyond = off > (1 + LSB_SLACK) * (ours.half + theirs.half) + hair(theirs.values) + slack
    if not beyond.any():
        return None
    levels = facts.replays.backend.levels(of.name)
    whole = facts.replays.backend.half_steps(of.name, any_scale=True)
    if levels is not None and not np.any(off > (1 + LSB_SLACK) * whole + COARSE_CONSTANT_SLACK):
        return coarse_constant(of.node, of.title, of.name, *levels)
    return _other_scale(facts, of, ours, theirs) or _of_elements(of, beyond, said)


def _rounded(facts: TensorFacts, name: str) -> _Rounded:
    """Return a constant of the backend as real values, and half a step of each."""
    readers = facts.backend.graph.consumers(name)
    packed = (node for node in readers if operators.of(node.op).packed)
    node = next((node for node in packed if packed_inputs(node)[:1] == (name,)), None)
    if node is None:
        found = _Rounded(real_values(facts.backend, name), facts.replays.backend.half_steps(name))
        reader = next((each for each in readers if name in each.inputs[1:2]), None)
        return found if reader is None else _Rounded(*(in_plain_order(facts.be, reader, each) for each in found))
    parts = [part for part in packed_inputs(node) if facts.backend.has(part)]
    codes, scales = blockwise_weight(node, {part: facts.backend.load(part) for part in parts})
    return _Rounded(codes * scales, half_steps(node, codes, scales))


def different_folded(
    facts: TensorFacts, ours: Node, main: Node, others: Sequence[Node], *, bias: bool = True
) -> Finding | None:
    """Find a weight or a bias that is not the reference's with the nodes after it folded in.

    Args:
        facts: The tensor that both nodes lead to.
        ours: The backend's node on real numbers.
        main: The reference's product.
        others: The reference's nodes beside it.
        bias: Whether the bias is looked at; not where another node of the backend may add it.
    """
    if not operators.plain(main).product:
        return None
    folded = fold(facts.ref, main, others)
    weight = operators.titled_input(ours, 1)
    if folded is None or not _is_constant(facts.be, weight):
        return None
    steps = facts.replays.reference.half_steps(operators.titled_input(main, 1)) * np.abs(folded.gain)
    theirs = _Rounded(folded.weight, steps)
    theirs = theirs.turned() if _is_turned(ours, main) else theirs
    own = _rounded(facts, weight).unpadded(theirs.values.shape)
    if own.values.shape != theirs.values.shape:
        return None
    said = f" with its {' and '.join(dict.fromkeys(node.op for node in folded.nodes))} folded in"
    slack = _folding(np.abs(theirs.values))
    found = _wrong_elements(facts, _Operand(ours, "weight", weight), own, theirs, slack=slack, said=said)
    return found or (_folded_bias(facts, ours, folded, said) if bias else None)


def _folded_bias(facts: TensorFacts, ours: Node, folded: FoldedProduct, said: str) -> Finding | None:
    bias = operators.titled_input(ours, _BIAS)
    if not bias:
        none = bool((np.abs(folded.bias) > _folding(folded.bias_size)).any())
        return _finding(ours, "bias", f"it has no bias, the reference has one{said}", evidence=None) if none else None
    if not _is_constant(facts.be, bias):
        return None
    own, half = map(np.ravel, _rounded(facts, bias))
    count = folded.bias.size
    if own.size > count and not own[count:].any():  # channels that fill up a block
        own, half = own[:count], half[:count]
    if own.shape != folded.bias.shape:
        return None
    beyond = np.abs(own - folded.bias) > (1 + LSB_SLACK) * half + hair(folded.bias) + _folding(folded.bias_size)
    return _of_elements(_Operand(ours, "bias", bias), beyond, said) if beyond.any() else None


def _other_scale(facts: TensorFacts, of: _Operand, ours: _Rounded, theirs: _Rounded) -> Finding | None:
    """Find that the codes of a constant are right and one factor of all of them is not: it is their scale."""
    graph = facts.backend.graph
    codes = next((form for form in facts.be.members(of.name) if graph.tensors[form].quant is not None), None)
    found = None if codes is None else scale_of_codes(graph, codes)
    factor = None if found is None else _one_factor(ours, theirs)
    if found is None or factor is None:
        return None
    reader, scale = found
    said = f"the scale {scale!r} of its {of.title} {of.name!r} is {1 / factor:.4g} times the reference's"
    return Finding(
        kind=FindingKind.SCALE,
        role=FindingRole.DIFFERENCE,
        node=of.node.name if codes in reader.inputs else reader.name,
        sentence=said,
        amount=1 / factor,
        limit=1.0,
        unit="times the reference's",
        evidence=scale,
    )


def different_weight(facts: TensorFacts) -> Finding | None:
    """Find whether the weight of the one product among several backend nodes is not that of the reference's one."""
    segment = facts.segment
    if segment.products is None:
        return None
    product, own = segment.products
    theirs, ours = facts.their_form(product), facts.our_form(own)
    theirs_scaled, ours_scaled = (
        sum(scales_by_constants(run, [node]) for node in nodes if node not in (product, own))
        for run, nodes in ((facts.ref, segment.nodes), (facts.be, segment.own))
    )
    if theirs_scaled and ours_scaled and theirs_scaled != ours_scaled:
        return None  # some are folded in, and nothing says which
    if theirs_scaled and not ours_scaled:
        wrong = different_folded(facts, ours, theirs, segment.beside(product), bias=False)
    else:
        one, other = (operators.titled_input(each, 1) for each in (ours, theirs))
        wrong = _different_elements(facts, _Operand(ours, "weight", one), other, turned=_is_turned(ours, theirs))
    return None if wrong is None else replace(wrong, sentence=f"of {ours.op} {ours.name!r}, {wrong.sentence}")


def different_beside(facts: TensorFacts) -> Finding | None:
    """Find a table, a summand or a factor that is the one of its kind on either side among several nodes."""
    ours, theirs = _beside_weights(facts.be, facts.segment.own), _beside_weights(facts.ref, facts.segment.nodes)
    if theirs.get("weight") and len(theirs.get("factor", ())) != len(ours.get("factor", ())):
        return None  # a factor may have gone into the weight, and a summand with it
    for kind, found in ours.items():
        other = theirs.get(kind, [])
        if kind == "weight" or len(found) != 1 or len(other) != 1:
            continue
        (node, name), (their_node, their_name) = found[0], other[0]
        if kind == "factor" and (node.op != their_node.op or ours.get("weight")):
            continue
        of = _Operand(node, "constant" if kind == "factor" else kind, name)
        wrong = _different_elements(facts, of, their_name)
        if wrong is not None:
            return replace(wrong, sentence=f"of {node.op} {node.name!r}, {wrong.sentence}")
    return None


def _beside_weights(run: IndexedRecording, nodes: Sequence[Node]) -> dict[str, list[tuple[Node, str]]]:
    """Return the constants of some nodes in their real form, by what they are to the node."""
    found: dict[str, list[tuple[Node, str]]] = {}

    def note(kind: str, node: Node, name: str) -> None:
        if _is_constant(run, name):
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


def _in_one_shape(ours: _Rounded, theirs: _Rounded) -> tuple[_Rounded, _Rounded]:
    """Bring two constants to one shape, if they reach the same elements of what they join.

    Extents of 1 in front change nothing, one number stands for many, and a vector is one along any axis.
    """
    arrays = [each.reshape(tuple(dropwhile(lambda extent: extent == 1, each.shape))) for each in (*ours, *theirs)]
    shapes = [arrays[0].shape, arrays[2].shape]
    sizes = ours.values.size, theirs.values.size
    if shapes[0] == shapes[1] or 1 in sizes:
        arrays = list(np.broadcast_arrays(*arrays))
    elif sizes[0] == sizes[1] and all(sum(extent > 1 for extent in shape) == 1 for shape in shapes):
        arrays = list(map(np.ravel, arrays))
    else:
        return ours, theirs
    return _Rounded(*arrays[:2]), _Rounded(*arrays[2:])


def _one_factor(ours: _Rounded, theirs: _Rounded) -> float | None:
    """Return the factor that makes rounded values those of the reference, within half a step; None if there is none."""
    size, known = (np.abs(each.values, dtype=np.float64) for each in (ours, theirs))
    half, slack = ours.half, (1 + LSB_SLACK) * theirs.half + hair(theirs.values)
    firm = size > half  # what is nearer to zero may have been of either sign
    told = firm & (known > slack)
    if np.unique(size[told]).size < 2 or np.any((ours.values * theirs.values < 0) & told):
        return None  # of values that are all alike, nothing tells the codes from their scale
    least = np.max(np.divide(known - slack, size + half, out=np.zeros_like(size), where=size + half > 0))
    most = np.min(np.divide(known + slack, size - half, out=np.full_like(size, np.inf), where=firm))
    return float((least + most) / 2) if 0 < least <= (1 + LSB_SLACK) * most else None


def _folding(size: np.ndarray) -> np.ndarray:
    """Return the error that folding in float32 makes of numbers of some size."""
    return np.asarray(FLOAT32_STORED_REL_ERROR * size)


def coarse_constant(node: Node, title: str, name: str, used: int, count: int) -> Finding:
    """Return the finding that the scale of a node's constant is far too large: of `count` codes it uses `used`."""
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


def _of_elements(of: _Operand, wrong: np.ndarray, said: str = "") -> Finding:
    """Return the finding that some elements of a constant, those of a mask, are not the reference's."""
    count = f"{int(wrong.sum())} of {wrong.size} elements of {of.title} {of.name!r}"
    found = _finding(
        of.node, of.title, f"{count} differ from the reference by more than rounding{said}", evidence=of.name
    )
    return replace(found, amount=float(wrong.sum()), limit=0.0, unit="elements")


def _finding(node: Node, title: str, sentence: str, *, evidence: str | None) -> Finding:
    return graph_difference(_KINDS.get(title, FindingKind.CONSTANT), node, sentence, evidence=evidence)


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
