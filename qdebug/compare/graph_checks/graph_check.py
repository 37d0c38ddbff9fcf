"""Holds what a backend's nodes are declared to do against what the reference's nodes make of the same inputs.

A replay with the backend's own constants looks clean even if these are wrong. So the reference's nodes that a backend
node stands for are replayed too, on the backend's recorded inputs and with the reference's constants. The two replays
may differ by what rounding each constant to its nearest code makes of them, and by nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from enum import Enum
from functools import cache, cached_property, partial

import numpy as np

from qdebug.arithmetic.reproduce import ReproductionCheck
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.layouts import in_reference_order
from qdebug.compare.align.pairs import Pair, clamp_of
from qdebug.compare.align.undeclared_quantization import computes_with_codes, has_loose, is_loose
from qdebug.compare.attribute.attribute import Attribution, attribute
from qdebug.compare.attribute.backend_replay import (
    inputs_of,
    is_undefined,
    real_values,
    replay,
    without_kernel,
)
from qdebug.compare.attribute.band import finite_norm, held_unit, minus, unit_roundoff
from qdebug.compare.attribute.code_spans import (
    folded_clamp,
    held,
    held_as_recorded,
    recorded_values,
    rounding_inside,
    span_before,
)
from qdebug.compare.attribute.grid_rounding import telling_values
from qdebug.compare.attribute.integer_tensors import holds_few_bits, rounds_nothing
from qdebug.compare.attribute.masked import softmax_axes, which_count
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
from qdebug.compare.attribute.reference_replay import ReferenceReplay, exceeds
from qdebug.compare.attribute.segments import Segment, SegmentFinder, main_node
from qdebug.compare.graph_checks.constants import unrepresentable_constant
from qdebug.compare.graph_checks.differences import GraphDifferences
from qdebug.compare.graph_checks.dynamic_check import DynamicCheck, lost_to_rounding
from qdebug.compare.measure.compare import Comparison
from qdebug.compare.result.finding import Finding, FindingKind
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node, Recording, operators
from qdebug.model.recording import shape_of
from qdebug.model.thresholds.attribution import DISTURBANCE_HALF_STEPS
from qdebug.model.thresholds.checks import FOLDING_MAX_ERROR_RATIO, LIKELY_ROUNDING_BOUND_SHARE, MOVED_CODES_MAX_LSB
from qdebug.model.thresholds.rounding import (
    FLOAT32_UNIT_ROUNDOFF,
    LSB_SLACK,
    ROUNDING_SUM_FACTOR,
    SEGMENT_ROUNDOFFS,
    SHORT_FORMAT_MIN_ELEMENTS,
)
from qdebug.model.thresholds.verdict import DEFAULT_MIN_SQNR, DERIVED_LSB
from qdebug.numerics.accumulate import same_elements
from qdebug.numerics.affine import dequantize
from qdebug.numerics.grid import grid_step
from qdebug.numerics.short_formats import SHORT_FORMATS
from qdebug.numerics.stats import ErrorStats
from qdebug.replay.real_form import not_in_codes, real_form
from qdebug.replay.segment import moved, run_form, spread

__all__ = ["Digits", "GraphCheck", "rounded_first"]

_SEED = 20250415
_UNSAID = "nobody said where its inputs are rounded to codes"


class Digits(Enum):
    """In what real values are rounded."""

    SINGLE = "float32 or finer"
    SHORT = "a float format of 16 bits or fewer, or one that too few values tell"


class GraphCheck:
    """Knows both graphs, and finds what leads to each compared tensor.

    Args:
        reference: The reference run.
        backend: The backend run.
        pairs: All pairs of the alignment.
        runs: What is known of both graphs; derived from the recordings if None.
        reproducer: Looks for the arithmetic of the backend's nodes; one of its own if None.

    Attributes:
        replays: Replays the reference's nodes on what the backend recorded.
        differences: Compares what the two graphs declare.
    """

    def __init__(
        self,
        reference: Recording,
        backend: Recording,
        pairs: Sequence[Pair],
        *,
        runs: tuple[IndexedRecording, IndexedRecording] | None = None,
        reproducer: ReproductionCheck | None = None,
    ) -> None:
        self.reproducer = reproducer or ReproductionCheck(backend)
        known = runs or (IndexedRecording.of(reference), IndexedRecording.of(backend))
        ref, be = known[0].read_through(reference), known[1].read_through(backend)
        self.replays = ReferenceReplay(ref, be, pairs)
        self.differences = GraphDifferences(self.replays)
        self._segments = SegmentFinder(ref, be, self.replays.pairs)

    def of(self, entry: PlannedNode) -> TensorCheck | None:
        """Return what holds a compared tensor against the reference's nodes; None if what leads to it is not known."""
        node = self.replays.be.recording.graph.producer(entry.tensor)
        segment = None if node is None else self._segments.of(entry.pair)
        return None if node is None or segment is None else TensorCheck(self, entry, node, segment)

    @cached_property
    def _codes_stated(self) -> bool:
        return computes_with_codes(self.replays.be.recording)

    @cached_property
    def telling(self) -> int:
        """How many different values tell a tensor's grid, where the backend shows real values for codes; or 0."""
        return 0 if self._codes_stated else telling_values(self.replays.be.recording)

    @cached_property
    def undeclared_codes(self) -> bool:
        """Whether nodes may read codes that nobody says they do."""
        backend = self.replays.be.recording
        return has_loose(backend.graph) and self._codes_stated


class TensorCheck:
    """Tells whether the graphs declare another computation for one compared tensor.

    Args:
        graphs: What is known of both graphs.
        entry: The compared tensor.
        node: The backend's node that makes it.
        segment: What leads to it in either graph.
    """

    def __init__(self, graphs: GraphCheck, entry: PlannedNode, node: Node, segment: Segment) -> None:
        self._entry, self.node, self.segment = entry, node, segment
        self._replays, self._differences = graphs.replays, graphs.differences
        self._dynamic = DynamicCheck(graphs.replays, graphs.differences, graphs.reproducer, entry, segment)
        self._reference, self._backend = graphs.replays.ref.recording, graphs.replays.be.recording
        self._graphs, self._be = graphs, graphs.replays.be
        self._theirs = partial(graphs.replays.values, entry.pair, segment)
        self._rounding_noise = partial(graphs.replays.rounding_noise, entry.pair, segment)

    @cached_property
    def _places(self) -> Sequence[tuple[int, int]]:
        """The samples and steps that both sides hold."""
        return tuple(recorded_places(self._reference, self._backend, self._entry))

    def unrepresentable_constant(self) -> Finding | None:
        """Find a constant of the node that its format cannot hold; None if there is none."""
        main = None if self.segment.wide else main_node(self.node, self.segment)
        return None if main is None else unrepresentable_constant(self._replays, main, self.node)

    def attribution(self) -> Attribution:
        """Split a tensor's error; a node without kernel is replayed by the reference's nodes that it stands for."""
        if self._dynamic.applies:
            found = self._dynamic.attribution()
            if found.introduced is not None:
                return found
        if self.segment.wide:
            return attribute(self._reference, self._backend, self._entry)
        found = self._split()
        if found.introduced is not None:
            return found
        other = self._split(instead=True)  # who records may not know all that a node reads
        return found if other.introduced is None else other

    def by_reference(self, *, rounding: bool) -> Attribution:
        """Split a tensor's error by a replay of the reference's nodes, whatever the backend's are said to do.

        Args:
            rounding: Whether to estimate what rounding accounts for, which takes several replays.
        """
        return self._split(instead=True, rounding=rounding)

    def _split(self, *, instead: bool = False, rounding: bool = True) -> Attribution:
        found = attribute(
            self._reference,
            self._backend,
            self._entry,
            substitute_replay=self._theirs,
            rounding_noise=self._rounding_noise if rounding else None,
            instead=instead,
            exact=all(map(rounds_nothing, self.segment.nodes)),
            as_reference=None if instead or self.alike else self._theirs,
            alike=self.alike and not instead,
            reads_equal=partial(self._replays.reads_equal, self.segment),
            telling=self._graphs.telling,
        )
        if self._entry.quant is not None or found.arithmetic_unsaturated is None:
            return found
        if not (is_loose(self.node) and self._graphs.undeclared_codes):
            return found
        return found.unjudged(_UNSAID)

    @cached_property
    def alike(self) -> bool:
        """Whether both graphs say the same of the node, constants included."""
        return self._differences.same(self._entry.pair, self.node, self.segment)

    @cached_property
    def reads_more(self) -> bool:
        """Whether a node of the backend reads codes, be they packed in a constant, or runs nodes that read others.

        How precisely it computes, or of what, is not known then.
        """
        graph = self._backend.graph
        if any(operators.of(node.op).holds_nodes for node in self.segment.own):
            return True
        read = {name for node in self.segment.own for name in node.inputs if name}
        return any(graph.tensors[name].quant is not None or holds_few_bits(graph, name) for name in read)

    def digits(self, stats: ErrorStats) -> Digits | None:
        """Tell in what the values and constants of both runs are rounded; None if to codes, or that is not known.

        Args:
            stats: The error of the tensor, in whose worst sample it is looked at.
        """
        worst = stats.worst_sample or 0
        place = next((place for place in self._places if place[0] == worst), None)
        if place is None:
            return None
        sides = (self._reference, self._entry.reference_tensor), (self._backend, self._entry.tensor)
        values = [run.load(name, *place) for run, name in sides]
        if any(grid_step(each) is not None for each in values):
            return None
        if stats.count < SHORT_FORMAT_MIN_ELEMENTS:
            return Digits.SHORT
        constants = {name for node in self.segment.own for name in node.inputs if name and self._be.folds(name)}
        coarsest = max(*map(held_unit, values), self._replays.backend.narrowest(constants))
        return Digits.SINGLE if coarsest <= FLOAT32_UNIT_ROUNDOFF else Digits.SHORT

    def shape(self) -> Finding | None:
        """Find what the graphs declare differently, if that gives a node another shape than its inputs account for."""
        if not self.segment.nodes or not self._places:
            return None
        try:
            theirs = self._theirs(self._places[0])
        except (KernelError, NotRecordedError):
            return None
        stored = self._backend.load(self._entry.tensor, *self._places[0])
        ours = in_reference_order(stored, self._entry.pair.backend_view, theirs.shape)
        if operators.of(self.node.op).reshapes and sorted(theirs.shape) == sorted(ours.shape):
            return None  # in another order its extents are right: a runtime that turns tensors writes them so
        return None if one_shape(theirs.shape, ours.shape) else self._declared

    @property
    def _declared(self) -> Finding:
        """What the graphs declare differently, where the results are known to differ."""
        return self._differences.difference(self._entry, self.node, self.segment)

    def difference(self, attribution: Attribution, comparison: Comparison) -> tuple[Finding | None, str | None]:
        """Find what the graphs declare differently, if it changes this tensor by more than rounding does.

        Looked at for the first sample and the worst one.

        Returns:
            The difference, None if none was found; and why that could not be told, None if it could.
        """
        worst = comparison.stats.worst_sample if comparison.stats else None
        at_worst = [place for place in self._places if place[0] == worst]
        places = tuple(dict.fromkeys((*self._places[:1], *at_worst[:1])))
        if (self._dynamic.applies or self.segment.wide) and (wrong := self._dynamic.wrong(places)):
            return wrong, None
        if self.alike or self._differences.same(self._entry.pair, self.node, self.segment, places):
            return None, None
        why = self._why_not(attribution)
        found = None
        if why is None:
            try:
                found = self._found(attribution, places)
            except (KernelError, NotRecordedError) as error:  # what cannot be replayed is judged without this check
                why = error.message[0].lower() + error.message[1:].rstrip(".")
                found = self._stated(attribution)
        formats = () if found is None else self.rounded_factors()
        if found is not None and formats:
            found = replace(found, sentence=f"{found.sentence}; {rounded_first(formats)}")
        return found, why

    def _stated(self, attribution: Attribution) -> Finding | None:
        """Find a constant or an operator that is another one, or missing, where a node without kernel is off.

        That it has an effect shows in what the reference's nodes make of the same inputs. An attribute that is left out
        proves nothing here: whoever records may not know it.
        """
        own, allowed = attribution.arithmetic_unsaturated, attribution.allowed
        if own is None or own.nonfinite or own.rmse is None:
            return None
        if self.segment.wide or operators.is_unknown(self.node) or operators.is_foreign(self.node):
            return None
        if allowed is None or not own.rmse * math.sqrt(own.count) > allowed:
            return None
        found = self._differences.stated(self._entry, self.node, self.segment)
        if found is None or found.kind not in _STATED:
            return None
        if found.kind is FindingKind.OPERATOR:  # one node may do what several do
            return found if len(self.segment.nodes) == 1 else None
        return found if found.evidence is not None else None

    def missing_before(self) -> Finding | None:
        """Find an activation of the reference that is missing before a node that cannot be replayed, as an If.

        Its own operator is the same, and what it reads is not what the activation gives.

        Returns:
            None if nothing is missing, or that is not known.
        """
        main = None if self.segment.wide else main_node(self.node, self.segment)
        if main is None:
            return None
        names = self._be.data_inputs(self.node), self._replays.ref.data_inputs(main)
        if len(names[0]) != len(names[1]):
            return None
        for ours, theirs in zip(*names, strict=True):
            pair = self._replays.pairs.get(ours)
            nodes = () if pair is None else self._activations(pair.reference, theirs)
            if pair is not None and nodes and self._changes(pair, nodes):
                return self._differences.missing_before(self.node, ours, nodes)
        return None

    def _activations(self, start: str, end: str) -> tuple[Node, ...]:
        """Return the activations by which the reference makes one tensor of another; none if it does otherwise."""
        ref, found = self._replays.ref, list[Node]()
        while ref.root(end) != ref.root(start):
            node = ref.graph.producer(ref.root(end))
            if node is None or not operators.plain(node).activation or len(ref.data_inputs(node)) != 1:
                return ()
            found.append(node)
            end = ref.data_inputs(node)[0]
        return tuple(reversed(found))

    def _changes(self, pair: Pair, nodes: tuple[Node, ...]) -> bool:
        """Tell whether nodes of the reference change what a backend tensor has been recorded with."""
        segment = Segment(nodes=nodes, feeds={pair.reference: pair.backend})
        wanted = replace(pair, reference=nodes[-1].outputs[0])
        try:
            for place in self._places:
                theirs = self._replays.values(wanted, segment, place)
                ours = real_values(self._backend, pair.backend, place)
                ours = in_reference_order(ours, pair.backend_view, theirs.shape)
                unit = SEGMENT_ROUNDOFFS * unit_roundoff(ours.dtype)
                if ours.shape == theirs.shape and finite_norm(minus(theirs, ours)) > unit * finite_norm(ours):
                    return True
        except (KernelError, NotRecordedError):
            return False
        return False

    @property
    def limited_sums(self) -> str | None:
        """How nodes on codes chosen at run time add products in fewer than 32 bits; None if exactly, or not known."""
        return self._dynamic.limited_sums if self._dynamic.applies else None

    def unaccounted(self, sample: int) -> Node | None:
        """Return the first of several nodes that its recorded inputs do not account for.

        Args:
            sample: The sample that is looked at.

        Returns:
            None if one node makes the tensor, or all are accounted for.
        """
        place = next((place for place in self._places if place[0] == sample), None)
        return None if place is None or not self.segment.wide else self._dynamic.unaccounted(place)

    def rounded_factors(self) -> tuple[str, ...]:
        """Return the short formats to which a product may have rounded its factors, by replaying the reference.

        Returns:
            Names of formats; none where rounding does not account for what is recorded, or there is no one product.
        """
        products = sum(operators.plain(node).product for node in self.segment.nodes)
        if products != 1 or not self._places or self._entry.quant is not None:
            return ()
        stored = self._backend.load(self._entry.tensor, *self._places[0])

        def fits(rounded: Callable[[np.ndarray], np.ndarray] | None) -> bool:
            theirs = self._theirs(self._places[0], rounded=rounded)
            ours = in_reference_order(stored, self._entry.pair.backend_view, theirs.shape)
            if not one_shape(ours.shape, theirs.shape):
                return False
            off = minus(theirs, ours.reshape(theirs.shape))
            if np.any(~np.isfinite(theirs) & np.isfinite(ours.reshape(theirs.shape))):
                return False  # a format whose range does not hold the factors
            error = finite_norm(off)
            return error <= SEGMENT_ROUNDOFFS * FLOAT32_UNIT_ROUNDOFF * finite_norm(theirs)

        try:
            if stored.dtype.kind != "f" or fits(None):
                return ()
            return tuple(short.name for short in reversed(SHORT_FORMATS) if fits(short.rounded))
        except (KernelError, NotRecordedError):
            return ()

    def _why_not(self, attribution: Attribution) -> str | None:
        """Say why a tensor cannot be checked; None if it can, as far as is known beforehand."""
        entry, node, segment = self._entry, self.node, self.segment
        if not segment.wide and attribution.arithmetic_unsaturated is None:
            return attribution.reason or f"no bound of rounding is known for {node.op}"
        if not segment.wide and operators.of(node.op).takes_codes and not self._dynamic.applies:
            return f"{node.op} computes with codes"
        if not self._places:
            return "not all of its values were kept"
        if segment.wide and (unknown := next(filter(is_undefined, segment.own), None)):
            return without_kernel(unknown)
        real = (not_in_codes(each, self._backend.graph) for each in segment.own)
        if said := next(filter(None, real), None):
            return said
        if entry.whole and not all(map(rounds_nothing, (*segment.own[:-1], *segment.nodes[:-1]))):
            return "what it is chosen from was not compared, and rounding that may decide otherwise"
        return None

    def _found(self, attribution: Attribution, places: Sequence[tuple[int, int]]) -> Finding | None:
        """Return the first difference that is found at some samples and steps."""
        if not self.segment.wide and (said := self._other_bias(attribution, places)):
            return said
        if self._dynamic.applies:
            return next(filter(None, (self._dynamic.difference(place) for place in places)), None)
        if self.segment.wide:
            return next(filter(None, (self._differs_wide(place) for place in places)), None)
        if any(self._differs(attribution, place) for place in places):
            return self._declared
        if not self._differences.coded(self.segment):
            return None
        return next(filter(None, (self._lost(place) for place in places)), None)

    def _other_bias(self, attribution: Attribution, places: Sequence[tuple[int, int]]) -> Finding | None:
        """Find whether a bias in no codes is not the reference's, with more effect than rounding what is summed up."""
        if self._entry.quant is not None:
            return None
        found = self._differences.constants.other_bias(self.node, self.segment)
        if found is None:
            return None
        for place in places:
            elements = math.prod(shape_of(self._backend, self._entry.tensor, *place))
            allowed = attribution.samples.get(place[0], attribution).allowed or 0.0
            if found[0] * math.sqrt(elements) > FOLDING_MAX_ERROR_RATIO * allowed:
                return found[1]
        return None

    def _lost(self, place: tuple[int, int]) -> Finding | None:
        """Find whether too little is left of a product once its weights are rounded to codes."""
        if not self._differences.multiplies_codes(self.node):
            return None
        theirs, ours = self._replayed(place)
        if ours.shape != theirs.shape:
            return None
        return lost_to_rounding(self._entry, theirs, minus(theirs, ours), "weights")

    def _replayed(self, place: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return what the reference's nodes and the backend's node make of the backend's inputs, in one order."""
        entry, theirs = self._entry, self._theirs(place)
        ours = replay(self._backend, self.node, entry.tensor, place)
        recorded = self._backend.load(entry.tensor, *place)
        if not same_elements(ours.shape, recorded.shape):  # not all was said of what it does
            raise KernelError(f"The replay gives shape {ours.shape} and the recording has {recorded.shape}.")
        span = span_before(self._reference.graph, entry.reference_tensor)
        folded = folded_clamp(self._reference, self._backend, entry)
        ours = ours.reshape(recorded.shape)
        if folded is not None:
            ours = held_as_recorded(ours, dequantize(recorded, entry.quant), folded)
        ours = held(ours, clamp_of(entry.pair.backend_view), span)
        theirs = held(theirs, span)  # what only comes from the backend may lie beyond the reference's codes
        return theirs, in_reference_order(ours, entry.pair.backend_view, theirs.shape)

    def _differs(self, attribution: Attribution, place: tuple[int, int]) -> bool:
        entry, node, segment = self._entry, self.node, self.segment
        theirs, ours = self._replayed(place)
        if not one_shape(ours.shape, theirs.shape):
            return True
        ours = ours.reshape(theirs.shape)
        allowed = self._rounding(place)
        spread = None
        if allowed is None:
            spread = self._spread(place)
            spread, allowed = self._as_theirs(spread, theirs), 0.0
        elif isinstance(allowed, np.ndarray):
            allowed = self._as_theirs(allowed, theirs)
        off = self._off(theirs, ours)
        least = FOLDING_MAX_ERROR_RATIO * (attribution.samples.get(place[0], attribution).allowed or 0.0)

        def excess(share: float, off: np.ndarray = off) -> np.ndarray | None:
            """Return what lies beyond a share of the bound; None if that is nothing to speak of."""
            with np.errstate(invalid="ignore"):  # an endless bound accounts for an endless difference
                found = np.nan_to_num(np.maximum(off - share * (1 + LSB_SLACK) * allowed, 0), nan=0.0, posinf=np.inf)
            if entry.quant is not None and entry.quant.qmin is not None:
                lsb = MOVED_CODES_MAX_LSB if all(map(rounds_nothing, segment.own)) else DERIVED_LSB
                told = np.max(found, initial=0) > lsb * float(np.max(entry.quant.scale))
            else:
                told = finite_norm(found) > least
            return found if told else None

        @cache
        def rounding_noise() -> np.ndarray:
            known = self._rounding_noise(place)
            return known if spread is None else np.hypot(known, spread)

        found = excess(1.0)
        if found is not None and exceeds(found, rounding_noise()):
            known = self._beside_weight(ours, place)
            found = found if known is None else excess(1.0, known)
            return found is not None and exceeds(found, rounding_noise())
        found = excess(LIKELY_ROUNDING_BOUND_SHARE)
        if found is None or not self._differences.constants.are_other(node, segment):
            return False
        known = self._beside_weight(ours, place)
        found = found if known is None else excess(LIKELY_ROUNDING_BOUND_SHARE, known)
        return found is not None and exceeds(found, rounding_noise() / DISTURBANCE_HALF_STEPS)

    def _beside_weight(self, ours: np.ndarray, place: tuple[int, int]) -> np.ndarray | None:
        """Return by how much a replay is off beside what its weight's rounding makes; None where that is not known."""
        theirs = self._replays.with_rounded_weight(self._entry.pair, self.segment, place)
        if theirs is None:
            return None
        theirs = held(theirs, span_before(self._reference.graph, self._entry.reference_tensor))
        return self._off(theirs.reshape(ours.shape), ours)

    def _off(self, theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
        """Return by how much two replays are apart, as far as the codes of the backend's tensor can tell.

        What a mask hides from a Softmax counts for nothing: a format of fewer digits holds a nearer mask.
        """
        off = np.nan_to_num(np.abs(minus(theirs, ours)), nan=0.0, posinf=np.inf)  # what is not finite is judged before
        hidden = _beyond_one_end(theirs, ours, span_before(self._backend.graph, self._entry.tensor))
        if self._entry.pair.reference_view is None and theirs.size:
            axes = softmax_axes(self._reference.graph, self._entry.reference_tensor, theirs.ndim)
            hidden |= False if axes is None else ~which_count(theirs, ours, axes)
        return np.asarray(np.where(hidden, 0.0, off))

    def _rounding(self, place: tuple[int, int]) -> np.ndarray | float | None:
        """Bound what rounding the node's constants to their codes can change, in the backend's order of dimensions.

        Half a step of each weight, or its error where that is known, times the magnitude of what it meets, and half a
        step of the bias: their sum, or a few times the root of the sum of squares where that is less, since errors of
        rounding hardly ever have one sign.
        None where constants are rounded and no such bound is known.

        Raises:
            KernelError: The node cannot be replayed.
            RecordingError: An input was not recorded.
        """
        node, segment = self.node, self.segment
        form, opset = real_form(node, self._backend.graph.opset)
        constants = [name for name in form.inputs if name and self._be.folds(name)]
        row = operators.of(form.op)
        if not row.product and not any(np.any(self._replays.backend.half_steps(name)) for name in constants):
            return 0.0
        if row.moves:
            return self._moved_rounding(constants, place)
        scales = row.neutral == 1 and row.commutes
        if not (row.product or row.neutral == 0 or scales):
            return None
        main, half_steps = main_node(node, segment), self._replays.backend.half_steps
        known: np.ndarray | None = None
        if main is not None and row.product:
            theirs, _ = real_form(main, self._reference.graph.opset)
            known = self._replays.weight_error(theirs, form, segment.beside(main))
        values: dict[str, np.ndarray] = {}
        rounded = False
        for slot, name in enumerate(form.inputs):
            if not name:
                continue
            if self._be.folds(name):
                steps = half_steps(name) if known is None or slot != 1 else known
                rounded = rounded or bool(np.any(steps))
                values[name] = steps
            elif slot > 1 or row.adds:  # what a constant is added to does not scale its rounding
                values[name] = np.zeros_like(real_values(self._backend, name, place))
            else:
                values[name] = np.abs(real_values(self._backend, name, place))
        if not rounded:
            return 0.0
        if row.adds:
            return np.asarray(sum(values[name] for name in form.inputs if name))
        worst = run_form(node, form, opset, values)[form.outputs[0]]
        if not row.product:
            return worst
        squares = run_form(node, form, opset, {name: array**2 for name, array in values.items()})[form.outputs[0]]
        return np.asarray(np.minimum(worst, ROUNDING_SUM_FACTOR * np.sqrt(squares)))

    def _moved_rounding(self, constants: Sequence[str], place: tuple[int, int]) -> np.ndarray:
        """Return the change by rounded constants in what a node only moves: half a step wherever one of them goes."""
        form, opset = real_form(self.node, self._backend.graph.opset)
        values: dict[str, np.ndarray] = {}
        for name in filter(None, form.inputs):
            values[name] = real_values(self._backend, name, place)
            if values[name].dtype.kind == "f":  # indices and extents stay
                rounded = self._replays.backend.half_steps(name) if name in constants else np.zeros((), np.float32)
                values[name] = np.broadcast_to(rounded, values[name].shape)
        return run_form(self.node, form, opset, values)[form.outputs[0]]

    def _spread(self, place: tuple[int, int]) -> np.ndarray:
        """Estimate what rounding a node's constants makes of one of its outputs, where `_rounding` knows no bound.

        Raises:
            KernelError: The node cannot be replayed.
            RecordingError: An input was not recorded.
        """
        entry, node = self._entry, self.node
        form, opset = real_form(node, self._backend.graph.opset)
        values = inputs_of(self._backend, form, place)
        half = {
            name: self._replays.backend.half_steps(name)
            for name, array in values.items()
            if self._be.folds(name) and array.dtype.kind == "f" and name in operators.valued_inputs(form)
        }
        rng = np.random.default_rng(_SEED)

        def replayed() -> np.ndarray:
            disturbed = {name: moved(rng, array, half.get(name, 0.0)) for name, array in values.items()}
            return run_form(node, form, opset, disturbed)[entry.tensor]

        return spread(run_form(node, form, opset, values)[entry.tensor], replayed)

    def _as_theirs(self, array: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """Bring what is known of each element of the backend's tensor into the order and shape of the reference's."""
        return in_reference_order(array, self._entry.pair.backend_view, theirs.shape).reshape(theirs.shape)

    def _differs_wide(self, place: tuple[int, int]) -> Finding | None:
        """Hold what several backend nodes gave against what the reference's make of the same inputs."""
        entry, theirs = self._entry, self._theirs(place)
        ours = recorded_values(self._reference, self._backend, entry, theirs.shape, place)
        if not one_shape(ours.shape, theirs.shape):
            return self._declared
        theirs = held(theirs, span_before(self._backend.graph, entry.tensor))  # saturation is said apart
        difference = minus(theirs, ours.reshape(theirs.shape))
        share, coded = 10 ** (-DEFAULT_MIN_SQNR / 20), self._differences.coded(self.segment)
        if not coded and not self._graphs.undeclared_codes:
            share = min(SEGMENT_ROUNDOFFS * unit_roundoff(self._backend.load(entry.tensor, *place).dtype), share)
        if not finite_norm(difference) > share * finite_norm(theirs):
            return None
        if not exceeds(difference, self._rounding_noise(place)):
            return None
        inside = self._rounding_inside(theirs.shape, place) if coded else None
        if inside is not None and not finite_norm(difference + inside) > share * finite_norm(theirs):
            return lost_to_rounding(entry, theirs, inside, "data")
        known = self._dynamic.short_sums if coded and self._dynamic.unaccounted(place) is None else ()
        inside = self._rounding_inside(theirs.shape, place, known) if known else None
        return (
            self._declared if inside is None or finite_norm(difference + inside) > share * finite_norm(theirs) else None
        )

    def _rounding_inside(
        self, shape: tuple[int, ...], place: tuple[int, int], known: Collection[str] = ()
    ) -> np.ndarray | None:
        """Return what rounding to the backend's codes within a part makes of its result; None where it is not known.

        Args:
            shape: Of the reference's tensor.
            place: Sample and step.
            known: Tensors whose codes are taken as recorded: their arithmetic is another matter than the graphs.
        """
        try:
            return rounding_inside(self._be, self._entry.pair, self.segment, shape, place, known=known).reshape(shape)
        except (KernelError, NotRecordedError):
            return None


_STATED = (
    FindingKind.WEIGHT,
    FindingKind.BIAS,
    FindingKind.CONSTANT,
    FindingKind.SCALE,
    FindingKind.OPERATOR,
    FindingKind.MISSING_NODE,
)
"""What shows of a node that cannot be replayed."""


def rounded_first(formats: Sequence[str]) -> str:
    """Say in a clause that rounding factors accounts for what a product is off by."""
    return f"rounding its operands to {' or '.join(formats)} first explains it"


def _beyond_one_end(one: np.ndarray, other: np.ndarray, span: tuple[float | None, float | None]) -> np.ndarray:
    """Tell where both lie beyond the same end of a span of codes, which then hold nothing that tells them apart."""
    low, high = (np.nan if end is None else end for end in span)
    return np.asarray(((one <= low) & (other <= low)) | ((one >= high) & (other >= high)))


def one_shape(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Tell whether two shapes are alike but for dimensions of extent 1 that one of them has more than the other.

    Where neither has more, such a dimension in another place is that of a reduction along another axis.
    """
    return same_elements(one, other) and (len(one) != len(other) or one == other)
