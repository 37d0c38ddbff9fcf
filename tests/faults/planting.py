"""Plant a fault of a kind into a net, and hold what a diff says of it against what was expected beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import bench
import numpy as np
import onnx
import openvino_harness
import rewrites
import surgery
from executed import Executed
from kernel_faults import KERNEL_FAULTS
from planted import BUGS, find_unit, plant

from qdebug.api import diff
from qdebug.arithmetic.units import UnitSource
from qdebug.compare.result.finding import Finding, FindingKind
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.node_result import NodeResult, breaks_limit, node_to_blame
from qdebug.compare.result.result import RunComparison
from qdebug.model import Graph, Recording
from qdebug.replay.variant import Variant

CONSTANTS = frozenset({"weight", "bias", "constant"})
QUANT = frozenset({"scale", "zero_point"})
WEIGHT, BIAS = frozenset({"weight"}), frozenset({"bias"})
ATTRIBUTE, ARITHMETIC = frozenset({"attribute"}), frozenset({"arithmetic"})
GONE = frozenset({"missing_node", "operator"})
"""A node is gone: to say that it is missing is best; that this operator does not do what both do is right as well."""
READS = frozenset({"operand", "operator"})
"""It reads something else: the operand is the best name; that the operators do not do the same is right as well."""
SCALE_OF_CONSTANT = CONSTANTS | {"scale"}
"""Codes are the reference's and their scale is not: so the weight, bias or table they stand for is not either."""
INDEX = frozenset({"constant", "attribute"})
"""What an older operator set has as an attribute is a constant input in a newer one."""

GRAPH_KINDS: Mapping[str, frozenset[str]] = {
    "wrong_channel": WEIGHT,
    "weight_transposed": WEIGHT,
    "weight_of_another_layer": WEIGHT,
    "weight_bit_flipped": WEIGHT,
    "weight_too_coarse": WEIGHT,
    "input_channels_swapped": WEIGHT,
    "gates_swapped": WEIGHT,
    "table_rolled": WEIGHT | {"constant"},
    "bias_dropped": BIAS | {"constant"},
    "bias_rolled": BIAS,
    "bias_not_scaled": BIAS,
    "statistics_rolled": CONSTANTS,  # an optimizer folds them into a weight and a bias
    "gain_dropped": CONSTANTS,
    "constant_changed": CONSTANTS | {"scale"},  # a factor of all codes of a weight is their scale
    "index_off_by_one": INDEX,
    "bound_changed": INDEX,
    "epsilon_changed": ATTRIBUTE,
    "axis_changed": ATTRIBUTE,
    "slope_changed": ATTRIBUTE,
    "perm_changed": ATTRIBUTE,
    "resize_changed": ATTRIBUTE,
    "pool_counts_padding": ATTRIBUTE,
    "reset_moved": ATTRIBUTE,
    "direction_reversed": ATTRIBUTE,
    "dilation_lost": ATTRIBUTE,
    "smallest_picked": ATTRIBUTE,
    "product_scaled": ATTRIBUTE,
    "pad_mode_changed": ATTRIBUTE,
    "pads_shifted": ATTRIBUTE,
    "stride_doubled": ATTRIBUTE,
    "activation_swapped": frozenset({"operator", "attribute"}),  # an attribute where it is fused
    "pool_swapped": frozenset({"operator"}),
    "activation_removed": GONE,
    "activation_bypassed": GONE | READS,
    "skip_dropped": GONE | READS,
    "norm_dropped": GONE | READS,
    "operands_swapped": READS,
    "parts_swapped": READS,
    "wrong_part_read": READS,
    "zero_point_dropped": frozenset({"zero_point"}),
    "weight_zero_point_lost": CONSTANTS | {"zero_point"},
    "scale_doubled": SCALE_OF_CONSTANT,
    "written_scale_doubled": frozenset({"scale"}),
    "scales_rolled": SCALE_OF_CONSTANT,
    "axis_swapped": SCALE_OF_CONSTANT | ATTRIBUTE,
    "range_too_narrow": frozenset({"saturation", "scale"}),
    "range_too_wide": frozenset({"scale", "dead_zone"}),
    "stale_row": ARITHMETIC,
    "empty_row": ARITHMETIC,
    "output_clamped": ARITHMETIC | {"saturation"},
    "padded_with_zero": ARITHMETIC,
}
"""Kinds of finding that name a fault of a graph rightly."""
ATTRIBUTES: Mapping[str, frozenset[str]] = {
    "epsilon_changed": frozenset({"epsilon"}),
    "axis_changed": frozenset({"axis"}),
    "slope_changed": frozenset({"alpha", "activation_params"}),
    "perm_changed": frozenset({"perm"}),
    "resize_changed": frozenset({"mode", "coordinate_transformation_mode"}),
    "pool_counts_padding": frozenset({"count_include_pad"}),
    "reset_moved": frozenset({"linear_before_reset"}),
    "direction_reversed": frozenset({"direction"}),
    "dilation_lost": frozenset({"dilations", "pads"}),
    "smallest_picked": frozenset({"largest"}),
    "product_scaled": frozenset({"alpha"}),
    "pad_mode_changed": frozenset({"mode"}),
    "pads_shifted": frozenset({"pads"}),
    "stride_doubled": frozenset({"strides"}),
    "activation_swapped": frozenset({"activation", "activation_params"}),
    "index_off_by_one": frozenset({"starts", "ends", "indices"}),
    "bound_changed": frozenset({"max", "activation_params"}),
    "axis_swapped": frozenset({"axis"}),
}
"""Attributes that a finding of kind `attribute` may name."""
HIDDEN = ("stale_row", "empty_row", "output_clamped", "padded_with_zero")
"""Kinds of `surgery.py` that are nodes put behind a faulty one, taken out of ONNX Runtime's recorded graph again."""
RANGES = ("range_too_narrow", "range_too_wide")
"""Calibrations that are wrong only where they leave an output with less than the limit of 20 dB."""
OPENVINO = "openvino"
EXTENTS = ("Shape", "ShapeOf")
UNSAID = frozenset({"arithmetic", "operator", "constant"})
"""OpenVINO has other attributes than ONNX, or none; a finding may then name what the graph shows in their place."""
BUG_KINDS = {"clamp of the last range": ARITHMETIC | {"saturation"}, "activation's range": ARITHMETIC | {"saturation"}}


class BrokenDownError(Exception):
    """A comparison that raised, and so answers nothing."""


def compared(reference: Recording, backend: Recording) -> RunComparison:
    """Compare two runs.

    Raises:
        BrokenDownError: The comparison raised.
    """
    try:
        return diff(reference, backend, limits=Limits(allow_unfaithful=True))  # OpenVINO fuses less with more taps
    except Exception as error:
        raise BrokenDownError(f"{type(error).__name__}: {error}") from error


class Runs(bench.Bench):
    """Records in OpenVINO too, where the optimization level is called so."""

    def _compare(self, recording: Recording) -> RunComparison:
        return compared(self.reference, recording)

    def _record(self, model: onnx.ModelProto, title: str, level: str) -> Recording:
        if level != OPENVINO:
            return super()._record(model, title, level)
        source = self._folder / f"{title}.onnx"
        onnx.save(model, source)
        return openvino_harness.record(source, self._feeds)

    def _holders(self, recording: Recording, net: surgery.Net, nodes: frozenset[str]) -> frozenset[str]:
        if recording.info.backend != OPENVINO:
            return super()._holders(recording, net, nodes)
        return doing(recording.graph, net, nodes)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A planted fault: what was expected beforehand, and what the diff says."""

    net: str
    form: str
    level: str
    kind: str
    seed: int
    way: str
    what: str
    nodes: tuple[str, ...]
    kinds: tuple[str, ...]
    names: tuple[str, ...]
    status: str
    origin: str | None
    found: str | None
    name: str | None
    said: str
    sentence: str
    origin_right: bool
    cause_right: bool

    def to_dict(self) -> dict[str, object]:
        """Return the case as plain values."""
        return asdict(self)


class Bench:
    """A net with its forms, into which faults are planted.

    Args:
        name: The net.
        forms: Model files by form; "float" among them.
        feeds: Inputs; the first two samples are recorded.
        folder: Where recordings go.
    """

    SAMPLES = 2

    def __init__(self, name: str, forms: Mapping[str, Path], feeds: Mapping[str, np.ndarray], folder: Path) -> None:
        self.name = name
        self._forms, self._folder = forms, folder
        self._feeds = {key: array[: self.SAMPLES] for key, array in feeds.items()}
        surgeons = {**surgery.SURGEONS, **rewrites.SURGEONS}
        self._graph = Runs(folder, forms["float"], forms, feeds, self.SAMPLES, surgeons)
        self.reference = self._graph.reference
        self._executed: dict[tuple[str, str], Executed] = {}

    def recording(self, form: str, level: str) -> Recording:
        """Return the healthy recording of a form."""
        if form == OPENVINO:
            return openvino_harness.record(self._forms[form], self._feeds)
        return self.executed(form, level).recording

    def executed(self, form: str, level: str) -> Executed:
        """Return the healthy run of a form."""
        key = form, level
        if key not in self._executed:
            out = self._folder / f"{form}.{level}.h5"
            self._executed[key] = Executed(self._forms[form], level, self._feeds, out)
        return self._executed[key]

    def healthy(self, form: str, level: str) -> RunComparison:
        """Compare a form without a fault."""
        return compared(self.reference, self.recording(form, level))

    def plant(self, form: str, kind: str, seed: int) -> Case | None:
        """Plant a fault and judge what the diff says of it; None if no node of the form can have it.

        Every second kind and seed runs at the highest optimization level.
        """
        if form == OPENVINO and (kind not in GRAPH_KINDS or kind in HIDDEN):
            return None
        level = OPENVINO if form == OPENVINO else ("extended", "all")[(seed + KINDS.index(kind)) % 2]
        if kind in HIDDEN:  # at the highest level something may come between the faulty node and what spoils it
            level = "extended"
        felt = 1e-4 if form in ("float", OPENVINO) else 1e-2
        planted = self._in_graph if kind in GRAPH_KINDS else self._in_kernel
        try:
            return planted(form, kind, seed, level, felt)
        except BrokenDownError as error:
            return self._broken((form, level, kind, seed), str(error))

    def _broken(self, where: tuple[str, str, str, int], said: str) -> Case:
        form, level, kind, seed = where
        return Case(
            net=self.name,
            form=form,
            level=level,
            kind=kind,
            seed=seed,
            way="graph" if kind in GRAPH_KINDS else "kernel",
            what="",
            nodes=(),
            kinds=(),
            names=(),
            status="broke down",
            origin=None,
            found=None,
            name=None,
            said=said,
            sentence="",
            origin_right=False,
            cause_right=False,
        )

    def _in_graph(self, form: str, kind: str, seed: int, level: str, felt: float) -> Case | None:
        try:
            outcome = self._graph.seed(form, kind, seed, felt=felt, level=level, ruins=kind in RANGES)
        except LookupError:
            return None
        faulty, healthy = outcome.recording, self.recording(form, level)
        kinds = GRAPH_KINDS[kind]
        if form == OPENVINO and kinds & ATTRIBUTE:
            kinds |= UNSAID
        hidden = outcome.fault.disguise is not None
        other = changed(healthy, faulty)
        expected = outcome.expected
        if not hidden and kinds <= CONSTANTS | QUANT and len(other) <= 2:  # who reads the wrong constant has the fault
            readers = {node.name for name in other for node in faulty.graph.consumers(name)}
            expected |= {name for name in readers if not makes_constant(faulty.graph, name)}
        near = around(faulty, expected)
        if kind == "bias_dropped":  # a constant that is gone has no name: the node's result stands for it
            other |= near
        names = {
            **dict.fromkeys(CONSTANTS, other | near if kinds & QUANT and kind != "constant_changed" else other),
            **dict.fromkeys(QUANT, other if kind == "constant_changed" else other | near),
            "attribute": ATTRIBUTES.get(kind, frozenset()),
        }
        said = kinds - (ATTRIBUTE if form == OPENVINO else frozenset())
        return self._judged(
            outcome.result,
            where=(form, level, kind, seed, "kernel" if hidden else "graph", outcome.fault.what),
            nodes=expected,
            kinds=kinds,
            names={each: names[each] for each in said if each in names},
        )

    def _in_kernel(self, form: str, kind: str, seed: int, level: str, felt: float) -> Case | None:
        run = self.executed(form, level)
        healthy = run.outputs(run.recording)
        for node, wrong in self._wrong(run, kind, seed):
            try:
                recording = run.below(node.outputs[0], wrong)
            except Exception:  # noqa: BLE001, S112  the runtime's own errors: nothing below takes such values
                continue
            if bench.differ(healthy, run.outputs(recording), felt):
                kinds = KERNEL_FAULTS[kind].kinds if kind in KERNEL_FAULTS else BUG_KINDS.get(kind, ARITHMETIC)
                return self._judged(
                    compared(self.reference, recording),
                    where=(form, level, kind, seed, "kernel", f"{node.op} {node.outputs[0]}"),
                    nodes=frozenset({node.name}),
                    kinds=kinds,
                    names={},
                )
        return None

    def _wrong(self, run: Executed, kind: str, seed: int) -> Iterator[tuple[object, dict[int, np.ndarray]]]:
        """Yield nodes with the values that a broken kernel gives, in an order that the seed chooses."""
        rng = np.random.default_rng([seed, sum(kind.encode())])
        nodes = run.nodes
        for index in rng.permutation(len(nodes)):
            node = nodes[index]
            wrong = self._bug(run, node, kind) if kind in BUG_NAMES else self._fault(run, node, kind, seed)
            if wrong is not None:
                yield node, wrong

    def _fault(self, run: Executed, node: object, kind: str, seed: int) -> dict[int, np.ndarray] | None:
        wrong = {}
        for sample in range(self.SAMPLES):
            site = run.site(node.outputs[0], sample, seed)
            with np.errstate(all="ignore"):
                found = None if site is None else KERNEL_FAULTS[kind].plant(site)
            if found is None or found.shape != site.right.shape or found.dtype != site.right.dtype:
                return None
            wrong[sample] = np.ascontiguousarray(found)
        return wrong

    def _bug(self, run: Executed, node: object, kind: str) -> dict[int, np.ndarray] | None:
        source = find_unit(run.recording, node, node.outputs[0])
        if not isinstance(source, UnitSource) or source.unit(source.places[0]).kind != "conv":
            return None
        if source.codes(source.places[0]).ndim != 4:  # these bugs are written for pictures
            return None
        altered = plant(source, BUG_NAMES[kind], Variant())
        return None if altered is None else {sample: codes for (sample, _), codes in altered._codes.items()}

    @staticmethod
    def _named(result: RunComparison) -> tuple[str | None, NodeResult | None, Finding | None]:
        """Return the origin, the row that judges it and its first finding.

        A node that rounds to fewer digits is within its limit, and named all the same: without an origin it counts.
        """
        if result.origin is None:
            short = ((row, each) for row in result.nodes for each in row.findings if each.kind is FindingKind.PRECISION)
            row, first = next(short, (None, None))
            return None if row is None else row.node, row, first
        rows = [row for row in result.nodes if result.origin in (node_to_blame(row), row.node)]
        rows.sort(key=lambda row: node_to_blame(row) != result.origin or not breaks_limit(row))  # stable
        row = rows[0] if rows else None
        return result.origin, row, row.findings[0] if row is not None and row.findings else None

    def _judged(
        self, result: RunComparison, *, where: tuple, nodes: frozenset, kinds: frozenset, names: Mapping
    ) -> Case:
        form, level, kind, seed, way, what = where
        verdict = result.verdict
        origin, row, first = self._named(result)
        right = origin in nodes
        allowed = names.get(str(first.kind)) if first is not None else None
        name = None if first is None else first.evidence or row.tensor
        cause = right and first is not None and str(first.kind) in kinds
        return Case(
            net=self.name,
            form=form,
            level=level,
            kind=kind,
            seed=seed,
            way=way,
            what=what,
            nodes=tuple(sorted(nodes)),
            kinds=tuple(sorted(kinds)),
            names=tuple(sorted({name for each in names.values() for name in each})),
            status=str(verdict.status),
            origin=origin,
            found=None if first is None else str(first.kind),
            name=name,
            said="" if first is None else first.sentence,
            sentence=verdict.sentence,
            origin_right=right,
            cause_right=cause and (allowed is None or name in allowed),
        )


def makes_constant(graph: Graph, name: str) -> bool:
    """Tell whether all that a node gives is a constant."""
    node = next(each for each in graph.nodes if each.name == name)
    return all(graph.is_constant(output) for output in node.outputs if output)


def changed(healthy: Recording, faulty: Recording) -> frozenset[str]:
    """Return the constants of a faulty run that the healthy one does not have so, and what is made of these alone.

    OpenVINO numbers the constants that it adds.
    """
    known = {name for name in healthy.names if healthy.graph.is_constant(name)}
    ours = {name for name in faulty.names if faulty.graph.is_constant(name)}
    held = {_value(healthy, name) for name in known}
    numbered = {name for name in ours - known if name.startswith("Constant_") and _value(faulty, name) in held}
    found = {name for name in ours - numbered if name not in known or _value(healthy, name) != _value(faulty, name)}
    extents: set[str] = set()
    for node in faulty.graph.nodes:  # what is made of a wrong constant, and of shapes at the most, is as wrong
        beside = [name for name in node.inputs if name and name not in found | extents]
        if node.op in EXTENTS or all(map(faulty.graph.is_constant, beside)):
            if node.op in EXTENTS or not found.intersection(node.inputs):
                extents.update(node.outputs)
            else:
                found.update(node.outputs)
    return frozenset(found)


def _value(recording: Recording, name: str) -> tuple[tuple[int, ...], bytes]:
    array = np.asarray(recording.load(name))
    return array.shape, array.tobytes()


def doing(graph: Graph, net: surgery.Net, nodes: frozenset[str]) -> frozenset[str]:
    """Return the nodes of another framework that lead from the inputs of some ONNX nodes to their outputs."""
    found: set[str] = set()
    for name in nodes:
        source = net.node(name)
        left = [tensor for tensor in source.output if tensor]
        while left:
            made = graph.producer(left.pop())
            if made is not None and made.name not in found:
                found.add(made.name)
                left += [tensor for tensor in made.inputs if tensor not in source.input]
    return frozenset(found)


def around(recording: Recording, nodes: frozenset[str]) -> frozenset[str]:
    """Return the tensors that enter and leave some nodes: those whose codes a scale or a zero point is of."""
    found = [node for node in recording.graph.nodes if node.name in nodes]
    return frozenset(name for node in found for name in (*node.inputs, *node.outputs) if name)


BUG_NAMES = {bug.name: bug for bug in BUGS}
KINDS: tuple[str, ...] = (*GRAPH_KINDS, *KERNEL_FAULTS, *BUG_NAMES)
"""All kinds of faults."""
