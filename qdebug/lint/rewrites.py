"""Find rewrites of a network that change its numbers, and faults of a single form of it.

Both forms are run on one input and aligned. The parts between tensors that correspond are compared. Parts with the same
nodes and constants are equal. For all others, an input is searched on which the two parts differ. The kind of a finding
is the rewrite that turns one part into the other.
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
from qdebug.compare.align.expand import has_unknown_inputs, parts_of
from qdebug.compare.align.pairs import Pair
from qdebug.compare.measure.recordings import with_understood_graph
from qdebug.errors import AlignmentError, KernelError, UsageError
from qdebug.lint.chip_rules import ChipRules, RuleBreach, find_breaches, find_rules
from qdebug.lint.finding import KINDS, LintFinding, LintFix
from qdebug.lint.replay import LintModel, Span, covers, is_coded, nodes_between
from qdebug.lint.rules import find_own_faults
from qdebug.lint.search import LintPart, find_witness, largest_step
from qdebug.model import Node, QuantParams, Recording, RunInfo, operators
from qdebug.model.json_object import JsonObject
from qdebug.model.recording import MemoryRecording
from qdebug.numerics.checkpoint import checkpoint
from qdebug.recording.remote_url import format_path
from qdebug.replay.registry import run_node
from qdebug.running.fitted_inputs import GivenInputs, fit_inputs, input_ranges

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
"""Kinds that only change where values are rounded, and with which scale."""
_MAX_NODES = 60
"""Maximum number of nodes in a part. A larger part is not decided."""
_INPUT_SEED = 0
_FOLDING_ERROR = 1e-4
"""Allowed error of a weight with a folded BatchNormalization, relative to the exact weight and to its largest value."""


class UndecidedPart(TypedDict):
    """A part that could not be decided, with the tensor that it computes and the reason."""

    tensor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport(JsonObject):
    """The result of `lint`.

    Args:
        before: Title of the model, or of the form before the rewrite if there are two.
        after: Title of the form after the rewrite, or None if there is only one form.
        findings: Rewrites and faults that change numerics, in topological order.
        rules: Name of the chip or runtime whose rules were checked, or "".
        breaches: Nodes and tensors that break these rules.
        fixes: Findings that a changed copy of the model no longer has.
        unfixed: Why others could not be fixed, by tensor.
        parts: Number of parts that were compared or checked.
        undecided: Why parts could not be decided, by the tensor that they compute.
    """

    json_format = "lint"
    json_keys = (
        "model=before model_after=after findings rules|null breaches fixes unfixed parts undecided=undecided_parts"
    )

    before: str
    after: str | None
    findings: tuple[LintFinding, ...]
    parts: int
    undecided: Mapping[str, str] = field(default_factory=dict)
    rules: str = ""
    breaches: tuple[RuleBreach, ...] = ()
    fixes: tuple[LintFix, ...] = ()
    unfixed: Mapping[str, str] = field(default_factory=dict)

    @property
    def undecided_parts(self) -> list[UndecidedPart]:
        """The parts that could not be decided, as the JSON lists them."""
        return [{"tensor": name, "reason": reason} for name, reason in self.undecided.items()]

    @property
    def bad(self) -> tuple[LintFinding, ...]:
        """The findings that are not allowed."""
        return tuple(finding for finding in self.findings if not finding.allowed)

    @property
    def exit_code(self) -> int:
        """Exit code: 1 if a finding is neither allowed nor fixed or a rule is broken, 3 if nothing could be decided."""
        return 1 if len(self.bad) > len(self.fixes) or self.breaches else 3 if self.undecided and not self.parts else 0


def open_model(path: Path, recording: Recording | None = None) -> LintModel:
    """Read a model file or use a recording as a model.

    Args:
        path: The file.
        recording: The recording in it, or None for a model file.

    Raises:
        UsageError: The format of the file is unknown, or a recording has no graph.
        QdebugError: The file cannot be read.
    """
    if recording is None:
        source = load_reader(path)
        arrays = {(name, 0, 0): source.constant(name) for name in source.constants if name in source.graph.tensors}
        recording = MemoryRecording(source.graph, arrays, RunInfo(backend="", model=source.name))
        raw, copies_codes = path.suffix.lower() == ".onnx", path.suffix.lower() == ".tflite"
    else:
        raw = recording.info.backend == "onnxruntime"
        copies_codes = recording.info.backend in ("litert", "tflm")
    if all(map(has_unknown_inputs, recording.graph.nodes)):
        raise UsageError(
            f"{format_path(path)!r} has no graph.", hint="Record it with nodes and their inputs: qdebug help recording."
        )
    constants = [name for name in recording.graph.tensors if recording.graph.is_constant(name)]
    if constants and not any(map(recording.has, constants)):
        raise UsageError(f"{format_path(path)!r} has no weights.", hint="Record it again without --no-weights.")
    understood_recording = with_understood_graph(recording)
    return LintModel(
        title=format_path(path),
        graph=understood_recording.graph,
        recording=understood_recording,
        raw=raw,
        copies_codes=copies_codes,
    )


def lint(
    before: LintModel,
    after: LintModel | None = None,
    *,
    chip: ChipRules | None = None,
    allow: bool = False,
    inputs: Mapping[str, np.ndarray] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LintReport:
    """Find rewrites that change numerics.

    Args:
        before: The model, or its form before the rewrite.
        after: The form after the rewrite, or None to check a single model.
        chip: Rules of a chip or runtime to check as well. None for LiteRT's rules if the model is one of its files,
            else for no rules.
        allow: Whether different scales are allowed if they only change how values are rounded.
        inputs: Inputs of the model, or None for recorded or random values.
        progress: Called with the number of checked parts and the total.

    Raises:
        UsageError: One form is float and the other quantized.
        AlignmentError: The two are not forms of the same network.
    """
    undecided: dict[str, str] = {}
    feed = first_input(before, inputs)
    checked_form = before if after is None else after
    if chip is None and checked_form.copies_codes:
        chip = find_rules("litert")
    breaches = () if chip is None else tuple(find_breaches(checked_form, chip))
    rules = "" if chip is None else chip.name
    if after is None:
        findings, parts = find_own_faults(before, before.run(feed), chip, undecided)
        return LintReport(
            before=before.title,
            after=None,
            findings=tuple(findings),
            parts=parts,
            undecided=undecided,
            rules=rules,
            breaches=breaches,
        )
    if _is_quantized(before) != _is_quantized(after):
        float_form, quantized_form = (before, after) if _is_quantized(after) else (after, before)
        raise UsageError(
            f"{float_form.title!r} is float and {quantized_form.title!r} is quantized; "
            "quantizing a network is not a rewrite.",
            hint="Compare the two with qdebug diff, or lint forms that are both quantized.",
        )
    values_before, values_after = before.run(feed), after.run(first_input(after, feed))
    pairs = _align_forms(before, after, values_before, values_after)
    own_faults, _ = find_own_faults(after, values_after, chip, undecided)
    earlier_faults = {(fault.kind, fault.tensor) for fault in find_own_faults(before, values_before, chip, {})[0]}
    own_faults = [fault for fault in own_faults if (fault.kind, fault.tensor) not in earlier_faults]
    rewrites = _Rewrites(pairs, undecided)
    for number, (tensor, partner) in enumerate(pairs.outputs):
        if progress is not None:
            progress(number, len(pairs.outputs))
        checkpoint()
        rewrites.compare_tensor(tensor, partner)
    findings_so_far = []
    for finding in rewrites.sorted_findings():  # if a rule found the same fault, use its more specific kind
        same_faults = [fault for fault in own_faults if not {*fault.after}.isdisjoint(finding.after)]
        own_faults = [fault for fault in own_faults if fault not in same_faults]
        findings_so_far.append(
            replace(finding, kind=same_faults[0].kind, detail=same_faults[0].detail) if same_faults else finding
        )
    return LintReport(
        before=before.title,
        after=after.title,
        findings=tuple(_mark_allowed(fault) if allow else fault for fault in (*findings_so_far, *own_faults)),
        parts=rewrites.parts,
        undecided=undecided,
        rules=rules,
        breaches=breaches,
    )


class _Rewrites:
    """Compares the parts that compute corresponding tensors of two forms, in topological order.

    Two paired tensors that differ may not correspond at all: a node may keep its name and compute something else.
    Therefore, tensors downstream are also compared without this pair. If such a tensor is then equal, the pair was
    wrong. If it differs without the pair but not with it, the forms diverge at the pair.

    Args:
        pairs: The two forms.
        undecided: Collects why parts could not be decided, by the tensor that they compute.

    Attributes:
        parts: Number of compared parts.
    """

    def __init__(self, pairs: _Pairs, undecided: dict[str, str]) -> None:
        self._pairs, self._undecided = pairs, undecided
        self._partner = dict(pairs.partner)
        self._pending: dict[str, LintFinding] = {}
        self._findings: list[LintFinding] = []
        self.parts = 0

    def compare_tensor(self, tensor: str, partner: str) -> None:
        """Compare the parts that compute a tensor and its partner."""
        try:
            finding, nodes = self._compare_parts(tensor, partner)
        except KernelError as error:
            self._undecided[tensor] = error.message
            return
        self.parts += 1
        graph = self._pairs.after.graph
        pending_inside = [
            name for name in self._pending if (producer := graph.producer(name)) is not None and producer.name in nodes
        ]
        if finding is None:
            for name in pending_inside:
                del self._pending[name]
            return
        if pending_inside and self._explains_difference(pending_inside, tensor, partner):
            return
        for name in pending_inside:
            del self._pending[name]
        if tensor in graph.outputs:
            self._findings.append(finding)
        else:
            self._pending[tensor] = finding
            del self._partner[tensor]

    def _explains_difference(self, pending_inside: Sequence[str], tensor: str, partner: str) -> bool:
        """Return whether differing tensors explain a difference downstream. If so, they become findings."""
        restored_partners = {name: self._pairs.partner[name] for name in pending_inside}
        self._partner |= restored_partners
        try:
            is_explained = self._compare_parts(tensor, partner)[0] is None
        except KernelError:
            is_explained = False
        if is_explained:
            self._findings += [self._pending.pop(name) for name in pending_inside]
            return True
        for name in pending_inside:
            del self._partner[name]
        return False

    def sorted_findings(self) -> list[LintFinding]:
        """Return the findings in topological order."""
        order = {name: index for index, (name, _) in enumerate(self._pairs.outputs)}
        return sorted([*self._findings, *self._pending.values()], key=lambda finding: order[finding.tensor])

    def _compare_parts(self, tensor: str, partner: str) -> tuple[LintFinding | None, frozenset[str]]:
        """Return the difference between the parts that compute a tensor, and the nodes in them.

        Raises:
            KernelError: The parts cannot be decided.
        """
        pairs = self._pairs
        after, before = _find_parts(pairs, self._partner, tensor, partner)
        nodes = frozenset(node.name for node in after.nodes)
        if _are_equal_parts(before, after):
            return None, nodes
        spans = [pairs.before.span(name, pairs.spans) for name in before.leaves]
        leaf_values = [
            pairs.before.real(name, pairs.values_before[name]) if name in pairs.values_before else None
            for name in before.leaves
        ]
        found_witness = find_witness(before, after, spans, leaf_values, checkpoint)
        if found_witness is None:
            return None, nodes
        kind = _kind_of_rewrite(before, after)
        finding = LintFinding(
            kind=kind,
            model=pairs.after.title,
            before=tuple(node.name for node in before.nodes),
            after=tuple(node.name for node in after.nodes),
            tensor=tensor,
            span_before=before.span(spans),
            span_after=after.span(spans),
            step=max(largest_step(before), largest_step(after)),
            witness=found_witness,
            detail=_wrong_fold_text(before, after) if kind == "batch_norm" else "",
            right=before,
            actual=after,
        )
        return finding, nodes


def _mark_allowed(finding: LintFinding) -> LintFinding:
    """Mark a finding as allowed if values are only rounded differently, and not clipped more or less."""
    covers_same_range = covers(finding.span_before, finding.span_after, finding.step) and covers(
        finding.span_after, finding.span_before, finding.step
    )
    is_rounding_only = finding.witness.largest <= finding.step * (1 + 1e-6)
    return replace(finding, allowed=finding.kind in _PARAMETERS and covers_same_range and is_rounding_only)


def _is_quantized(model: LintModel) -> bool:
    return any(is_coded(info.quant) for info in model.graph.tensors.values())


def first_input(model: LintModel, other_inputs: Mapping[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """Return inputs for a run: recorded ones, those of another form, or random ones.

    Args:
        model: The model to run.
        other_inputs: Inputs of another form, or None.

    Raises:
        InputError: The shape or the type of an input is unknown.
    """
    graph, run = model.graph, model.recording
    if (
        other_inputs is None
        and graph.inputs
        and all(run.has(name) and not graph.is_constant(name) for name in graph.inputs)
    ):
        return {name: run.load(name) for name in graph.inputs}
    infos = [graph.tensors[name] for name in graph.inputs]
    given_inputs = GivenInputs(
        arrays=None if other_inputs is None else dict(other_inputs),
        samples=None,
        origin_text="",
        seed=_INPUT_SEED,
        ranges=input_ranges(graph),
    )
    return fit_inputs(given_inputs, infos, may_adapt=True)[0]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pairs:
    """Two forms of a network, and the tensors that they share.

    Args:
        before: The form before the rewrite.
        after: The form after it.
        values_before: Values of the form before.
        values_after: Values of the form after.
        partner: For each tensor of the form after, its tensor in the form before, if both hold the same kind of values.
        outputs: Tensors of the form after to compare, with their partners, in topological order.
        spans: Interval of values of each tensor of the form before.
    """

    before: LintModel
    after: LintModel
    values_before: Mapping[str, np.ndarray]
    values_after: Mapping[str, np.ndarray]
    partner: Mapping[str, str]
    outputs: Sequence[tuple[str, str]]
    spans: Mapping[str, Span]


def _align_forms(
    before: LintModel, after: LintModel, values_before: Mapping[str, np.ndarray], values_after: Mapping[str, np.ndarray]
) -> _Pairs:
    """Align two forms."""
    inputs = {name: name for name in after.graph.inputs if name in before.graph.inputs}
    if len(before.graph.inputs) == len(after.graph.inputs):
        inputs = inputs or dict(zip(after.graph.inputs, before.graph.inputs, strict=True))
    aligned_pairs: Sequence[Pair] = ()
    try:
        aligned_pairs = align(_as_recording(before, values_before), _as_recording(after, values_after)).pairs
    except AlignmentError:
        if not any(name in before.graph.outputs for name in after.graph.outputs):
            raise
    # Inputs and outputs correspond by definition. Pairs of the alignment cannot override them.
    partner = inputs | _pair_outputs(before, after)
    paired_before = set(partner.values())
    for pair in aligned_pairs:
        views = [view for view in (pair.reference_view, pair.backend_view) if view is not None]
        if pair.backend in partner or pair.reference in paired_before:
            continue
        is_transposed = any(view.transpose or view.channel_block for view in views)
        if not is_transposed and _have_same_grid(before, pair.reference, after, pair.backend):
            partner[pair.backend] = pair.reference
    computed_names = {name for node in after.graph.nodes for name in node.outputs}
    outputs = sorted(
        ((name, other) for name, other in partner.items() if name in computed_names and name not in inputs),
        key=lambda names: after.graph.position(names[0]) or 0,
    )
    spans = before.spans(before.graph.nodes, {name: before.span(name, {}) for name in before.graph.inputs})
    return _Pairs(
        before=before,
        after=after,
        values_before=values_before,
        values_after=values_after,
        partner=partner,
        outputs=outputs,
        spans=spans,
    )


def _pair_outputs(before: LintModel, after: LintModel) -> dict[str, str]:
    """Map each output of one form to its counterpart in the other, by name or else by position."""
    outputs_before, outputs_after = before.graph.outputs, after.graph.outputs
    if {*outputs_after} <= {*outputs_before}:
        return {name: name for name in outputs_after}
    return dict(zip(outputs_after, outputs_before, strict=True)) if len(outputs_before) == len(outputs_after) else {}


def _as_recording(model: LintModel, values: Mapping[str, np.ndarray]) -> MemoryRecording:
    arrays = {(name, 0, 0): array for name, array in values.items() if not model.graph.is_constant(name)}
    arrays |= {(name, 0, 0): array for name in model.graph.tensors if (array := model.constant(name)) is not None}
    return MemoryRecording(model.graph, arrays, RunInfo(backend="lint", model=model.title))


def _have_same_grid(before: LintModel, tensor_before: str, after: LintModel, tensor_after: str) -> bool:
    """Return whether two tensors have values on the same grid of codes, whether stored as codes or as real numbers."""
    grids = [_grid(model, name) for model, name in ((before, tensor_before), (after, tensor_after))]
    return grids[0] == grids[1]


def _grid(model: LintModel, name: str) -> tuple[Any, ...] | None:
    """Return a key for the grid of values that a tensor's codes represent, or None if the tensor can have any value."""
    quant = model.grid(name)
    if quant is None:
        return None
    return quant.dtype, quant.scale.tobytes(), quant.zero_point.tobytes(), quant.qmin, quant.qmax


def _find_parts(pairs: _Pairs, partners: Mapping[str, str], tensor: str, partner: str) -> tuple[LintPart, LintPart]:
    """Return the parts of both forms that compute a tensor from the nearest tensors with partners upstream.

    Args:
        pairs: The two forms.
        partners: The partner of each tensor that is taken as given.
        tensor: The tensor of the form after the rewrite.
        partner: The tensor's partner in the other form.

    Raises:
        KernelError: The parts are too large to be decided.
    """
    stops = {name for name, partner_name in partners.items() if name != tensor and partner_name != partner}
    while True:
        part_after = nodes_between(pairs.after.graph, tensor, stops, _MAX_NODES)
        if part_after is None:
            raise KernelError(f"The two forms differ in more than {_MAX_NODES} nodes here.")
        nodes, leaves = part_after
        names = sorted(leaves)
        if not all(name in partners for name in names):
            raise KernelError("It depends on an input that the other form does not have.")
        partner_leaves = {partners[name] for name in names}
        part_before = nodes_between(pairs.before.graph, partner, partner_leaves, _MAX_NODES)
        if part_before is None:
            raise KernelError(f"The two forms differ in more than {_MAX_NODES} nodes here.")
        if part_before[1] <= partner_leaves:
            after = LintPart(model=pairs.after, nodes=nodes, output=tensor, leaves=names)
            leaves_before = [partners[name] for name in names]
            return after, LintPart(model=pairs.before, nodes=part_before[0], output=partner, leaves=leaves_before)
        passable_leaves = leaves & stops  # the partner of one of these is not upstream of `partner`: go further back
        if not passable_leaves:
            raise KernelError("The tensors that it depends on have no partner in the other form.")
        stops -= passable_leaves


def _are_equal_parts(before: LintPart, after: LintPart) -> bool:
    """Return whether two parts have the same nodes with the same constants."""
    if len(before.nodes) != len(after.nodes):
        return False
    names = dict(zip(before.leaves, after.leaves, strict=True))
    for node_before, node_after in zip(before.nodes, after.nodes, strict=True):
        bare_nodes = [
            replace(node, name="", inputs=(), outputs=(), origin=(), placement="") for node in (node_before, node_after)
        ]
        if bare_nodes[0] != bare_nodes[1] or len(node_before.inputs) != len(node_after.inputs):
            return False
        for input_before, input_after in zip(node_before.inputs, node_after.inputs, strict=True):
            partner = names.get(input_before)
            if (
                partner != input_after
                if partner is not None
                else not _is_same_constant(before, input_before, after, input_after)
            ):
                return False
        for input_before, input_after in zip(node_before.outputs, node_after.outputs, strict=False):
            if before.model.quant(input_before) != after.model.quant(input_after):
                return False
            names[input_before] = input_after
    return True


def _is_same_constant(before: LintPart, name_before: str, after: LintPart, name_after: str) -> bool:
    """Return whether two names refer to equal constants. Two omitted inputs count as equal."""
    array_before, array_after = before.model.constant(name_before), after.model.constant(name_after)
    if array_before is None or array_after is None:
        return not name_before and not name_after
    is_equal = array_before.dtype == array_after.dtype and np.array_equal(array_before, array_after)
    return is_equal and before.model.quant(name_before) == after.model.quant(name_after)


def _kind_of_rewrite(before: LintPart, after: LintPart) -> str:
    """Return the kind of a rewrite, as far as the nodes of both parts reveal it."""
    traits_before, traits_after = _Traits(before), _Traits(after)
    if traits_before.count["norm"] > traits_after.count["norm"]:
        return "batch_norm"
    if traits_before.count["product"] and _has_other_bias(before, after):
        return "bias"
    if traits_after.count["quantize"] < traits_before.count["quantize"]:
        if (
            traits_before.count["quantize"] - traits_after.count["quantize"] > 1
            or traits_after.quants[-1:] == traits_before.quants[-1:]
        ):
            return "rescale_merged"
        next_traits = traits_before.order[len(traits_before.order) - traits_before.order[::-1].index("quantize") :][:1]
        return "rescale_in_dequantize" if next_traits == ["dequantize"] else "dequantize_quantize_removed"
    if traits_before.count["clamp"] > traits_after.count["clamp"] and traits_after.count["quantize"]:
        return "clamp_folded"
    if any(traits_before.count[trait] > traits_after.count[trait] for trait in ("clamp", "activation")):
        return "activation_dropped"
    if traits_after.count["quantize"] > traits_before.count["quantize"]:
        return "duplicated" if _quantizes_twice(after) else "rescale_added"
    if traits_before.order != traits_after.order and sorted(traits_before.order) == sorted(traits_after.order):
        return "moved"
    return "parameters" if traits_before.order == traits_after.order else "rewrite"


def _quantizes_twice(part: LintPart) -> bool:
    """Return whether a part quantizes a tensor that is quantized elsewhere too."""
    graph = part.model.graph
    quantized_names = [node.inputs[0] for node in part.nodes if operators.of(node.op).quantizes]
    return any(
        sum(operators.of(consumer.op).quantizes for consumer in graph.consumers(name)) > 1 for name in quantized_names
    )


class _Traits:
    """The operations of some nodes, in order.

    Args:
        part: The nodes.
    """

    def __init__(self, part: LintPart) -> None:
        self.quants: list[QuantParams | None] = []
        self.order = [trait for node in part.nodes for trait in self._traits_of(part, node)]
        self.count = Counter(self.order)

    def _traits_of(self, part: LintPart, node: Node) -> Iterator[str]:
        for member in parts_of(node):
            row = operators.of(member.op)
            if row.quantizes or row.dequantizes:
                data = part.model.constant(member.inputs[0])
                if data is not None or (row.quantizes and self._is_on_grid(part, member)):
                    continue  # not a rewrite: runtimes convert constants when they load a model
                yield "quantize" if row.quantizes else "dequantize"
                self.quants += [part.model.declared_quant(member, -1)] if row.quantizes else []
                continue
            plain_row, model = operators.plain(member), part.model
            rescale = model.quant(member.outputs[0]) if row.passes_codes and not model.raw else None
            if rescale is not None and not row.clamps and rescale != model.quant(member.inputs[0]):
                yield "quantize"
                self.quants.append(rescale)
            if row.clamps:
                yield "clamp"
            elif row.activation:
                yield "activation"
            elif plain_row.scales_channels:
                yield "norm"
            elif plain_row.product:
                yield "product"
            else:
                yield plain_row.family
            if row.real is not None and (quant := part.model.declared_quant(member, -1)) is not None:
                yield "quantize"
                self.quants.append(quant)

    @staticmethod
    def _is_on_grid(part: LintPart, node: Node) -> bool:
        """Return whether the values that a node rounds to codes are on the grid of these codes already."""
        quant, grid = part.model.declared_quant(node, -1), part.model.grid(node.inputs[0])
        return quant is not None and grid == quant


def _has_other_bias(before: LintPart, after: LintPart) -> bool:
    """Return whether products have equal weights but different biases."""
    return (
        len({_product_constants(part, bias=False) for part in (before, after)})
        == 1
        < len({_product_constants(part, bias=True) for part in (before, after)})
    )


def _wrong_fold_text(before: LintPart, after: LintPart) -> str:
    """Return a clause on whether a BatchNormalization was folded wrongly into the weight or the bias, or ""."""
    products = [[node for node in part.nodes if operators.plain(node).product] for part in (before, after)]
    norms = [node for node in before.nodes if operators.plain(node).scales_channels]
    if len(norms) != 1 or any(
        len(part_products) != 1 or len(part_products[0].inputs) < 2 for part_products in products
    ):
        return ""
    weight_before, weight_after = (
        part.model.constant(part_products[0].inputs[1])
        for part, part_products in zip((before, after), products, strict=True)
    )
    gain = _batch_norm_gain(before, norms[0])
    if (
        weight_before is None
        or weight_after is None
        or gain is None
        or weight_before.shape != weight_after.shape
        or weight_after.dtype.kind != "f"
    ):
        return ""
    fitting_axes = [axis for axis, extent in enumerate(weight_before.shape) if extent == gain.size]
    for axis in fitting_axes:
        exact = weight_before * gain.reshape(
            [-1 if other_axis == axis else 1 for other_axis in range(weight_before.ndim)]
        )
        if np.allclose(weight_after, exact, rtol=_FOLDING_ERROR, atol=_FOLDING_ERROR * np.abs(exact).max(initial=0)):
            return "the weight is scaled correctly, but the bias is not"
    return "the weight is not scaled correctly" if fitting_axes else ""


def _batch_norm_gain(part: LintPart, node: Node) -> np.ndarray | None:
    """Return the factor of each channel in a BatchNormalization with constants, or None if one is unknown."""
    parameters = {name: part.model.constant(name) for name in node.inputs[1:]}
    constants = {name: array.astype(np.float64) for name, array in parameters.items() if array is not None}
    if not constants or len(constants) < len(parameters):
        return None
    channels = next(iter(constants.values())).size
    data = np.repeat([[0.0], [1.0]], channels, axis=1)
    result = run_node(node, {node.inputs[0]: data, **constants}, part.model.graph.opset)[node.outputs[0]]
    return np.asarray(result[1] - result[0])


def _product_constants(part: LintPart, *, bias: bool) -> tuple[bytes, ...]:
    """Return the stored constants of a part's products: only the biases, or all others."""
    constants = []
    for node in part.nodes:
        row, plain_row = operators.of(node.op), operators.plain(node)
        bias_slot = row.bias if row.bias is not None else plain_row.bias
        for position, name in enumerate(node.inputs if plain_row.product else ()):
            producer = part.model.graph.producer(name)
            source = producer.inputs[0] if producer is not None and operators.of(producer.op).dequantizes else name
            array = part.model.constant(source)
            if array is not None and array.ndim and (position == bias_slot) == bias:
                constants.append(array.tobytes())
    return tuple(sorted(constants))
