"""Finds rewrites of a network that change its numbers: between two forms of it, and what one form does wrong by itself.

Both forms are run on one input and aligned. Between tensors that are the same in both, each part of one form is held
against the part of the other. Parts that say the same are done with; of all others an input is looked for by which
they differ. What was rewritten there names the finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from qdebug.backends import load_reader
from qdebug.compare.align.align import align
from qdebug.compare.align.expand import parts_of, says_nothing
from qdebug.compare.align.pairs import Pair
from qdebug.compare.measure.recordings import with_understood_graph
from qdebug.errors import AlignmentError, KernelError, UsageError
from qdebug.lint.finding import KINDS, LintFinding
from qdebug.lint.replay import LintModel, Span, between, coded, covers
from qdebug.lint.rules import own_findings
from qdebug.lint.search import LintPart, wide_step, witness
from qdebug.model import Node, QuantParams, Recording, RunInfo, operators
from qdebug.model.json_object import JsonObject
from qdebug.model.recording import MemoryRecording
from qdebug.numerics.checkpoint import checkpoint
from qdebug.replay.registry import run_node
from qdebug.running.fitted_inputs import GivenInputs, fitted_inputs, input_ranges

__all__ = ["KINDS", "LintFinding", "LintReport", "first_input", "lint", "open_model"]

_PARAMETERS = frozenset(
    {
        "rescale_merged",
        "rescale_added",
        "rescale_in_dequantize",
        "dequantize_quantize_removed",
        "clamp_folded",
        "moved",
        "parameters",
    }
)
"""Kinds that only change where and by which scale values are rounded."""
_MOST_NODES = 60
"""Nodes of a part at the most: a longer one is not decided."""
_INPUT_SEED = 0
_FOLDING_ERROR = 1e-4
"""How far a weight may be off that a BatchNormalization was folded into, of the exact one and of the largest."""


class UndecidedPart(TypedDict):
    """A part that could not be decided, by the tensor that it makes, and why."""

    tensor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport(JsonObject):
    """What was found.

    Args:
        before: Title of the model; of the form before the rewrite if there are two.
        after: Title of the form after it; None if there is one.
        findings: What changes numerics, in topological order.
        parts: Parts that were held against each other, or looked at.
        undecided: Why a part could not be decided, by the tensor that it makes.
    """

    json_format = "lint"
    json_keys = "model=before model_after=after findings parts undecided=undecided_parts"

    before: str
    after: str | None
    findings: tuple[LintFinding, ...]
    parts: int
    undecided: Mapping[str, str] = field(default_factory=dict)

    @property
    def undecided_parts(self) -> list[UndecidedPart]:
        """The parts that could not be decided, as the JSON lists them."""
        return [{"tensor": name, "reason": why} for name, why in self.undecided.items()]

    @property
    def bad(self) -> tuple[LintFinding, ...]:
        """The findings that are not allowed."""
        return tuple(finding for finding in self.findings if not finding.allowed)

    @property
    def exit_code(self) -> int:
        """1 if there is a finding that is not allowed, 3 if nothing could be decided, else 0."""
        return 1 if self.bad else 3 if self.undecided and not self.parts else 0


def open_model(path: Path, recording: Recording | None = None) -> LintModel:
    """Read a model file, or take a recording.

    Args:
        path: The file.
        recording: The recording that it is; None if it is a model file.

    Raises:
        UsageError: Nothing reads such a file, or a recording has no graph.
        QdebugError: It cannot be read.
    """
    if recording is None:
        source = load_reader(path)
        arrays = {(name, 0, 0): source.constant(name) for name in source.constants if name in source.graph.tensors}
        recording = MemoryRecording(source.graph, arrays, RunInfo(backend="", model=source.name))
        raw, copies = path.suffix.lower() == ".onnx", path.suffix.lower() == ".tflite"
    else:
        raw = recording.info.backend == "onnxruntime"
        copies = recording.info.backend in ("litert", "tflm")
    if all(map(says_nothing, recording.graph.nodes)):
        raise UsageError(
            f"{str(path)!r} has no graph.", hint="Record it with nodes and their inputs: qdebug help recording."
        )
    constants = [name for name in recording.graph.tensors if recording.graph.is_constant(name)]
    if constants and not any(map(recording.has, constants)):
        raise UsageError(f"{str(path)!r} has no weights.", hint="Record it again without --no-weights.")
    understood = with_understood_graph(recording)
    return LintModel(title=str(path), graph=understood.graph, recording=understood, raw=raw, copies=copies)


def lint(
    before: LintModel,
    after: LintModel | None = None,
    *,
    needs: str | None = None,
    allow: bool = False,
    inputs: Mapping[str, np.ndarray] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LintReport:
    """Look for rewrites that change numerics.

    Args:
        before: The model, or its form before the rewrite.
        after: Its form after it; None to look at one model by itself.
        needs: The backend whose needs are checked, one of `SYMMETRIC`; None for those of the
            file's own kind.
        allow: Whether other scales are allowed where they only change how values are rounded.
        inputs: What the model is run with; recorded or random values if left out.
        progress: Called with the number of parts that were looked at, and of all.

    Raises:
        UsageError: One form is float and the other one quantized.
        AlignmentError: The two are not forms of one network.
    """
    undecided: dict[str, str] = {}
    feed = first_input(before, inputs)
    if after is None:
        findings, parts = own_findings(before, before.run(feed), needs, undecided)
        return LintReport(before=before.title, after=None, findings=tuple(findings), parts=parts, undecided=undecided)
    if _quantized(before) != _quantized(after):
        which, other = (before, after) if _quantized(after) else (after, before)
        raise UsageError(
            f"{which.title!r} is float and {other.title!r} is quantized: rounding a network is no rewrite of it.",
            hint="Compare the two with qdebug diff, or lint forms that are both quantized.",
        )
    ours, theirs = before.run(feed), after.run(first_input(after, feed))
    pairs = _pairs(before, after, ours, theirs)
    own, _ = own_findings(after, theirs, needs, undecided)
    known = {(each.kind, each.tensor) for each in own_findings(before, ours, needs, {})[0]}
    own = [each for each in own if (each.kind, each.tensor) not in known]
    rewrites = _Rewrites(pairs, undecided)
    for number, (tensor, partner) in enumerate(pairs.outputs):
        if progress is not None:
            progress(number, len(pairs.outputs))
        checkpoint()
        rewrites.look(tensor, partner)
    found = []
    for finding in rewrites.found():  # the form after the rewrite may say by itself what is wrong there
        same = [each for each in own if not {*each.after}.isdisjoint(finding.after)]
        own = [each for each in own if each not in same]
        found.append(replace(finding, kind=same[0].kind, detail=same[0].detail) if same else finding)
    return LintReport(
        before=before.title,
        after=after.title,
        findings=tuple(_allowed(each) if allow else each for each in (*found, *own)),
        parts=rewrites.parts,
        undecided=undecided,
    )


class _Rewrites:
    """Goes through the tensors that two forms have in common, in topological order.

    A tensor that differs may be no partner at all: a node that is left may keep its name and do something else.
    So the next tensors are also made without it. If one comes out the same, the pair was none. If it differs, and does
    not with the pair, the pair is where the forms part.

    Args:
        pairs: The two forms.
        undecided: Gets why a part could not be decided, by the tensor that it makes.

    Attributes:
        parts: Parts that were held against each other.
    """

    def __init__(self, pairs: _Pairs, undecided: dict[str, str]) -> None:
        self._pairs, self._undecided = pairs, undecided
        self._partner = dict(pairs.partner)
        self._pending: dict[str, LintFinding] = {}
        self._found: list[LintFinding] = []
        self.parts = 0

    def look(self, tensor: str, partner: str) -> None:
        """Hold the parts that make a tensor against each other."""
        try:
            finding, nodes = self._compared(tensor, partner)
        except KernelError as error:
            self._undecided[tensor] = error.message
            return
        self.parts += 1
        graph = self._pairs.after.graph
        inside = [name for name in self._pending if (maker := graph.producer(name)) is not None and maker.name in nodes]
        if finding is None:
            for name in inside:
                del self._pending[name]
            return
        if inside and self._blamed(inside, tensor, partner):
            return
        for name in inside:
            del self._pending[name]
        if tensor in graph.outputs:
            self._found.append(finding)
        else:
            self._pending[tensor] = finding
            del self._partner[tensor]

    def _blamed(self, inside: Sequence[str], tensor: str, partner: str) -> bool:
        """Tell whether tensors that differ account for a difference behind them; keep them then."""
        kept = {name: self._pairs.partner[name] for name in inside}
        self._partner |= kept
        try:
            alone = self._compared(tensor, partner)[0] is None
        except KernelError:
            alone = False
        if alone:
            self._found += [self._pending.pop(name) for name in inside]
            return True
        for name in inside:
            del self._partner[name]
        return False

    def found(self) -> list[LintFinding]:
        """Return what was found, in topological order."""
        order = {name: at for at, (name, _) in enumerate(self._pairs.outputs)}
        return sorted([*self._found, *self._pending.values()], key=lambda each: order[each.tensor])

    def _compared(self, tensor: str, partner: str) -> tuple[LintFinding | None, frozenset[str]]:
        """Return what differs in the parts that make a tensor, and the nodes that make it.

        Raises:
            KernelError: That cannot be decided.
        """
        pairs = self._pairs
        after, before = _parts(pairs, self._partner, tensor, partner)
        nodes = frozenset(node.name for node in after.nodes)
        if _say_the_same(before, after):
            return None, nodes
        spans = [pairs.before.span(name, pairs.spans) for name in before.leaves]
        seen = [pairs.before.real(name, pairs.ours[name]) if name in pairs.ours else None for name in before.leaves]
        shown = witness(before, after, spans, seen, checkpoint)
        if shown is None:
            return None, nodes
        kind = _kind(before, after)
        finding = LintFinding(
            kind=kind,
            model=pairs.after.title,
            before=tuple(node.name for node in before.nodes),
            after=tuple(node.name for node in after.nodes),
            tensor=tensor,
            span_before=before.span(spans),
            span_after=after.span(spans),
            step=max(wide_step(before), wide_step(after)),
            witness=shown,
            detail=_wrongly_folded(before, after) if kind == "batch_norm" else "",
        )
        return finding, nodes


def _allowed(finding: LintFinding) -> LintFinding:
    """Return a finding as allowed if values are only rounded otherwise, and none is cut off or let through."""
    same = covers(finding.span_before, finding.span_after, finding.step) and covers(
        finding.span_after, finding.span_before, finding.step
    )
    rounding = finding.witness.largest <= finding.step * (1 + 1e-6)
    return replace(finding, allowed=finding.kind in _PARAMETERS and same and rounding)


def _quantized(model: LintModel) -> bool:
    return any(coded(info.quant) for info in model.graph.tensors.values())


def first_input(model: LintModel, given: Mapping[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """Return inputs for a run: recorded ones, those of another form, or random ones.

    Args:
        model: What is run.
        given: Inputs of another form; None for none.

    Raises:
        InputError: Nobody knows the extents or the type of an input.
    """
    graph, run = model.graph, model.recording
    if given is None and graph.inputs and all(run.has(name) and not graph.is_constant(name) for name in graph.inputs):
        return {name: run.load(name) for name in graph.inputs}
    infos = [graph.tensors[name] for name in graph.inputs]
    wanted = GivenInputs(
        arrays=None if given is None else dict(given),
        samples=None,
        said="",
        seed=_INPUT_SEED,
        ranges=input_ranges(graph),
    )
    return fitted_inputs(wanted, infos, adapt=True)[0]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pairs:
    """Two forms of a network, and which tensors of them are the same.

    Args:
        before: The form before the rewrite.
        after: The form after it.
        ours: Values of the former.
        theirs: Values of the latter.
        partner: The former's tensor for each of the latter's, where both have the same form of values.
        outputs: What is compared: tensors of the latter with their partners, in topological order.
        spans: What values the tensors of the former can have.
    """

    before: LintModel
    after: LintModel
    ours: Mapping[str, np.ndarray]
    theirs: Mapping[str, np.ndarray]
    partner: Mapping[str, str]
    outputs: Sequence[tuple[str, str]]
    spans: Mapping[str, Span]


def _pairs(
    before: LintModel, after: LintModel, ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]
) -> _Pairs:
    """Align two forms."""
    named = {name: name for name in after.graph.inputs if name in before.graph.inputs}
    if len(before.graph.inputs) == len(after.graph.inputs):
        named = named or dict(zip(after.graph.inputs, before.graph.inputs, strict=True))
    found: Sequence[Pair] = ()
    try:
        found = align(_recorded(before, ours), _recorded(after, theirs)).pairs
    except AlignmentError:
        if not any(name in before.graph.outputs for name in after.graph.outputs):
            raise
    partner = named | _outputs(before, after)
    inside = set(partner.values())
    for pair in found:
        views = [view for view in (pair.reference_view, pair.backend_view) if view is not None]
        if pair.backend in partner or pair.reference in inside:
            continue
        turned = any(view.transpose or view.channel_block for view in views)
        if not turned and _alike(before, pair.reference, after, pair.backend):
            partner[pair.backend] = pair.reference
    made = {name for node in after.graph.nodes for name in node.outputs}
    outputs = sorted(((name, other) for name, other in partner.items() if name in made and name not in named),
                     key=lambda each: after.graph.position(each[0]) or 0)  # fmt: skip
    spans = before.spans(before.graph.nodes, {name: before.span(name, {}) for name in before.graph.inputs})
    return _Pairs(before=before, after=after, ours=ours, theirs=theirs, partner=partner, outputs=outputs, spans=spans)


def _outputs(before: LintModel, after: LintModel) -> dict[str, str]:
    """Return the outputs of one form by those of the other: of one name, else in order."""
    ours, theirs = before.graph.outputs, after.graph.outputs
    if {*theirs} <= {*ours}:
        return {name: name for name in theirs}
    return dict(zip(theirs, ours, strict=True)) if len(ours) == len(theirs) else {}


def _recorded(model: LintModel, values: Mapping[str, np.ndarray]) -> MemoryRecording:
    arrays = {(name, 0, 0): array for name, array in values.items() if not model.graph.is_constant(name)}
    arrays |= {(name, 0, 0): array for name in model.graph.tensors if (array := model.constant(name)) is not None}
    return MemoryRecording(model.graph, arrays, RunInfo(backend="lint", model=model.title))


def _alike(before: LintModel, one: str, after: LintModel, other: str) -> bool:
    """Tell whether two tensors hold values of the same grid: codes of one scale, or real numbers on it."""
    grids = [_grid(model, name) for model, name in ((before, one), (after, other))]
    return grids[0] == grids[1]


def _grid(model: LintModel, name: str) -> tuple[Any, ...] | None:
    """Return what tells which real values a tensor can have by its codes; None if it holds any."""
    quant = model.grid(name)
    if quant is None:
        return None
    return quant.dtype, quant.scale.tobytes(), quant.zero_point.tobytes(), quant.qmin, quant.qmax


def _parts(pairs: _Pairs, known: Mapping[str, str], tensor: str, partner: str) -> tuple[LintPart, LintPart]:
    """Return the parts of both forms that make a tensor of tensors that are the same in both.

    Args:
        pairs: The two forms.
        known: The partner of each tensor that is taken as given.
        tensor: The tensor of the form after the rewrite.
        partner: Its partner.

    Raises:
        KernelError: There are none of a size that can be looked at.
    """
    stops = {name for name, other in known.items() if name != tensor and other != partner}
    while True:
        ours = between(pairs.after.graph, tensor, stops, _MOST_NODES)
        if ours is None:
            raise KernelError(f"The two forms differ in more than {_MOST_NODES} nodes here.")
        nodes, leaves = ours
        names = sorted(leaves)
        if not all(name in known for name in names):
            raise KernelError("It depends on an input that the other form does not have.")
        others = {known[name] for name in names}
        theirs = between(pairs.before.graph, partner, others, _MOST_NODES)
        if theirs is None:
            raise KernelError(f"The two forms differ in more than {_MOST_NODES} nodes here.")
        if theirs[1] <= others:
            after = LintPart(model=pairs.after, nodes=nodes, output=tensor, leaves=names)
            leaf = [known[name] for name in names]
            return after, LintPart(model=pairs.before, nodes=theirs[0], output=partner, leaves=leaf)
        wider = leaves & stops  # a leaf whose partner does not lead to the other tensor: go on behind it
        if not wider:
            raise KernelError("What it depends on has no partner in the other form.")
        stops -= wider


def _say_the_same(before: LintPart, after: LintPart) -> bool:
    """Tell whether two parts have the same nodes with the same constants."""
    if len(before.nodes) != len(after.nodes):
        return False
    names = dict(zip(before.leaves, after.leaves, strict=True))
    for one, other in zip(before.nodes, after.nodes, strict=True):
        bare = [replace(each, name="", inputs=(), outputs=(), origin=(), placement="") for each in (one, other)]
        if bare[0] != bare[1] or len(one.inputs) != len(other.inputs):
            return False
        for ours, theirs in zip(one.inputs, other.inputs, strict=True):
            known = names.get(ours)
            if known != theirs if known is not None else not _same_constant(before, ours, after, theirs):
                return False
        for ours, theirs in zip(one.outputs, other.outputs, strict=False):
            if before.model.quant(ours) != after.model.quant(theirs):
                return False
            names[ours] = theirs
    return True


def _same_constant(before: LintPart, one: str, after: LintPart, other: str) -> bool:
    """Tell whether two names are those of one constant; two left-out inputs are the same."""
    first, second = before.model.constant(one), after.model.constant(other)
    if first is None or second is None:
        return not one and not other
    same = first.dtype == second.dtype and np.array_equal(first, second)
    return same and before.model.quant(one) == after.model.quant(other)


def _kind(before: LintPart, after: LintPart) -> str:
    """Return what was rewritten, as far as it shows in the nodes of both parts."""
    ours, theirs = _Traits(before), _Traits(after)
    if ours.count["norm"] > theirs.count["norm"]:
        return "batch_norm"
    if ours.count["product"] and _other_bias(before, after):
        return "bias"
    if theirs.count["quantize"] < ours.count["quantize"]:
        if ours.count["quantize"] - theirs.count["quantize"] > 1 or theirs.quants[-1:] == ours.quants[-1:]:
            return "rescale_merged"
        follows = ours.order[len(ours.order) - ours.order[::-1].index("quantize") :][:1]
        return "rescale_in_dequantize" if follows == ["dequantize"] else "dequantize_quantize_removed"
    if ours.count["clamp"] > theirs.count["clamp"] and theirs.count["quantize"]:
        return "clamp_folded"
    if any(ours.count[each] > theirs.count[each] for each in ("clamp", "activation")):
        return "activation_dropped"
    if theirs.count["quantize"] > ours.count["quantize"]:
        return "duplicated" if _twice(after) else "rescale_added"
    if ours.order != theirs.order and sorted(ours.order) == sorted(theirs.order):
        return "moved"
    return "parameters" if ours.order == theirs.order else "rewrite"


def _twice(part: LintPart) -> bool:
    """Tell whether a part quantizes a tensor that is also quantized elsewhere."""
    graph = part.model.graph
    own = [node.inputs[0] for node in part.nodes if operators.of(node.op).quantizes]
    return any(sum(operators.of(each.op).quantizes for each in graph.consumers(name)) > 1 for name in own)


class _Traits:
    """What nodes do, in order.

    Args:
        part: The nodes.
    """

    def __init__(self, part: LintPart) -> None:
        self.quants: list[QuantParams | None] = []
        self.order = [each for node in part.nodes for each in self._named(part, node)]
        self.count = Counter(self.order)

    def _named(self, part: LintPart, node: Node) -> Iterator[str]:
        for each in parts_of(node):
            row = operators.of(each.op)
            if row.quantizes or row.dequantizes:
                data = part.model.constant(each.inputs[0])
                if data is not None or (row.quantizes and self._rounded_so(part, each)):
                    continue  # what is done to constants is done beforehand
                yield "quantize" if row.quantizes else "dequantize"
                self.quants += [part.model.stated(each, -1)] if row.quantizes else []
                continue
            plain, model = operators.plain(each), part.model
            rescale = model.quant(each.outputs[0]) if row.passes_codes and not model.raw else None
            if rescale is not None and not row.clamps and rescale != model.quant(each.inputs[0]):
                yield "quantize"
                self.quants.append(rescale)
            if row.clamps:
                yield "clamp"
            elif row.activation:
                yield "activation"
            elif plain.scales_channels:
                yield "norm"
            elif plain.product:
                yield "product"
            else:
                yield plain.family
            if row.real is not None and (quant := part.model.stated(each, -1)) is not None:
                yield "quantize"
                self.quants.append(quant)

    @staticmethod
    def _rounded_so(part: LintPart, node: Node) -> bool:
        """Tell whether what a node rounds to codes is on the grid of these codes already."""
        quant, found = part.model.stated(node, -1), part.model.grid(node.inputs[0])
        return quant is not None and found == quant


def _other_bias(before: LintPart, after: LintPart) -> bool:
    """Tell whether products have the same weights and another bias."""
    return (
        len({_products(part, bias=False) for part in (before, after)})
        == 1
        < len({_products(part, bias=True) for part in (before, after)})
    )


def _wrongly_folded(before: LintPart, after: LintPart) -> str:
    """Say whether the weight or the bias is what a BatchNormalization was folded into wrongly."""
    products = [[node for node in part.nodes if operators.plain(node).product] for part in (before, after)]
    norms = [node for node in before.nodes if operators.plain(node).scales_channels]
    if len(norms) != 1 or any(len(each) != 1 or len(each[0].inputs) < 2 for each in products):
        return ""
    weight, folded = (
        part.model.constant(each[0].inputs[1]) for part, each in zip((before, after), products, strict=True)
    )
    gain = _gain(before, norms[0])
    if weight is None or folded is None or gain is None or weight.shape != folded.shape or folded.dtype.kind != "f":
        return ""
    fitting = [axis for axis, extent in enumerate(weight.shape) if extent == gain.size]
    for axis in fitting:
        exact = weight * gain.reshape([-1 if at == axis else 1 for at in range(weight.ndim)])
        if np.allclose(folded, exact, rtol=_FOLDING_ERROR, atol=_FOLDING_ERROR * np.abs(exact).max(initial=0)):
            return "the weight is scaled as it should be, the bias is not"
    return "the weight is not scaled as it should be" if fitting else ""


def _gain(part: LintPart, node: Node) -> np.ndarray | None:
    """Return by what a BatchNormalization of constants scales each channel."""
    given = {name: part.model.constant(name) for name in node.inputs[1:]}
    known = {name: array.astype(np.float64) for name, array in given.items() if array is not None}
    if not known or len(known) < len(given):
        return None
    channels = next(iter(known.values())).size
    data = np.repeat([[0.0], [1.0]], channels, axis=1)
    made = run_node(node, {node.inputs[0]: data, **known}, part.model.graph.opset)[node.outputs[0]]
    return np.asarray(made[1] - made[0])


def _products(part: LintPart, *, bias: bool) -> tuple[bytes, ...]:
    """Return the constants that the products of a part read, all but the biases or these alone, as they are stored."""
    found = []
    for node in part.nodes:
        row, plain = operators.of(node.op), operators.plain(node)
        place = row.bias if row.bias is not None else plain.bias
        for at, name in enumerate(node.inputs if plain.product else ()):
            maker = part.model.graph.producer(name)
            source = maker.inputs[0] if maker is not None and operators.of(maker.op).dequantizes else name
            array = part.model.constant(source)
            if array is not None and array.ndim and (at == place) == bias:
                found.append(array.tobytes())
    return tuple(sorted(found))
