"""Holds what a backend's nodes are declared to do against what the reference's nodes make of the same inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from qdebug.compare.align.layouts import in_reference_order
from qdebug.compare.align.pairs import clamp_of
from qdebug.compare.align.undeclared_quantization import computes_with_codes, has_loose, is_loose
from qdebug.compare.attribute.attribute import Attribution, attribute
from qdebug.compare.attribute.backend_replay import replay
from qdebug.compare.attribute.band import norm, unit_roundoff
from qdebug.compare.attribute.code_spans import folded_clamp, rounding_inside, span_before
from qdebug.compare.attribute.integer_tensors import rounds_nothing
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
from qdebug.compare.attribute.reference_replay import exceeds
from qdebug.compare.attribute.segments import Segment
from qdebug.compare.graph_checks.differences import GraphDifferences
from qdebug.compare.graph_checks.dynamic_check import DynamicCheck, lost_to_rounding
from qdebug.compare.measure.compare import Comparison
from qdebug.compare.result.finding import Finding
from qdebug.errors import KernelError, RecordingError
from qdebug.model import Node, Recording, operators
from qdebug.model.outline import shape_of
from qdebug.model.thresholds.attribution import DISTURBANCE_HALF_STEPS
from qdebug.model.thresholds.checks import FOLDING_MAX_ERROR_RATIO, LIKELY_ROUNDING_BOUND_SHARE, MOVED_CODES_MAX_LSB
from qdebug.model.thresholds.rounding import FLOAT32_UNIT_ROUNDOFF, LSB_SLACK, SEGMENT_ROUNDOFFS
from qdebug.model.thresholds.verdict import DEFAULT_MIN_SQNR, DERIVED_LSB
from qdebug.numerics.accumulate import same_elements
from qdebug.numerics.affine import dequantize
from qdebug.numerics.short_formats import SHORT_FORMATS

__all__ = ["GraphCheck", "rounded_first"]

_UNSAID = "nobody said where its inputs are rounded to codes"


class GraphCheck:
    """Tells of each compared tensor whether the graphs declare another computation for it.

    Args:
        reference: The reference run.
        backend: The backend run.
        differences: What the two graphs say differently.

    Attributes:
        segments: Finds what leads to a compared tensor in either graph.
    """

    def __init__(self, reference: Recording, backend: Recording, differences: GraphDifferences) -> None:
        self._reference, self._backend = reference, backend
        self._differences = differences
        self.segments = self._differences.segments
        self._dynamic = DynamicCheck(reference, backend, self._differences)

    def unrepresentable_constant(self, node: Node, segment: Segment) -> Finding | None:
        """Find a constant of a node that its format cannot hold; None if there is none."""
        return None if segment.wide else self._differences.unrepresentable_constant(node, segment)

    def attribution(self, entry: PlannedNode, segment: Segment | None) -> Attribution:
        """Split a tensor's error; a node without kernel is replayed by the reference's nodes that it stands for."""
        if segment is not None and self._differences.dynamic.handles(entry.pair, segment):
            found = self._dynamic.attribution(entry, segment)
            if found.introduced is not None:
                return found
        if segment is None or segment.wide:
            return attribute(self._reference, self._backend, entry)
        found = self._split(entry, segment)
        if found.introduced is not None:
            return found
        other = self._split(entry, segment, instead=True)  # who records may not know all that a node reads
        return found if other.introduced is None else other

    def by_reference(self, entry: PlannedNode, segment: Segment, *, rounding: bool) -> Attribution:
        """Split a tensor's error by a replay of the reference's nodes, whatever the backend's are said to do.

        Args:
            entry: The compared tensor.
            segment: The nodes of both sides.
            rounding: Whether to estimate what rounding accounts for, which takes several replays.
        """
        return self._split(entry, segment, instead=True, rounding=rounding)

    def _split(
        self, entry: PlannedNode, segment: Segment, *, instead: bool = False, rounding: bool = True
    ) -> Attribution:
        def by_reference_nodes(sample: int, step: int) -> np.ndarray:
            return self._differences.replays.values(entry.pair, segment, sample=sample, step=step)

        def rounding_noise(sample: int, step: int) -> np.ndarray:
            return self._differences.replays.rounding_noise(entry.pair, segment, sample=sample, step=step)

        found = attribute(
            self._reference,
            self._backend,
            entry,
            substitute_replay=by_reference_nodes,
            rounding_noise=rounding_noise if rounding else None,
            instead=instead,
            exact=all(map(rounds_nothing, segment.nodes)),
        )
        node = self._backend.graph.producer(entry.tensor)
        if (
            entry.quant is not None
            or found.introduced_unsaturated is None
            or node is None
            or not (is_loose(node) and self._coded)
        ):
            return found
        samples = {
            number: replace(part, introduced_unsaturated=None, allowed=None) for number, part in found.samples.items()
        }
        return replace(found, introduced_unsaturated=None, allowed=None, samples=samples, reason=_UNSAID)

    @cached_property
    def _coded(self) -> bool:
        """Tell whether nodes may read codes that nobody says they do."""
        return has_loose(self._backend.graph) and computes_with_codes(self._backend)

    def shape(self, entry: PlannedNode, node: Node | None, segment: Segment | None) -> Finding | None:
        """Find what the graphs declare differently, if that gives a node another shape than its inputs account for."""
        places = recorded_places(self._reference, self._backend, entry)
        place = next(places, None)
        if node is None or segment is None or not segment.nodes or place is None:
            return None
        try:
            theirs = self._differences.replays.values(entry.pair, segment, sample=place[0], step=place[1])
        except (KernelError, RecordingError):
            return None
        ours = in_reference_order(self._backend.load(entry.tensor, *place), entry.pair.backend_view, theirs.shape)
        return None if _one_shape(theirs.shape, ours.shape) else self._differences.difference(node, segment)

    def difference(
        self, entry: PlannedNode, node: Node, segment: Segment, attribution: Attribution, comparison: Comparison
    ) -> tuple[Finding | None, str | None]:
        """Find what the graphs declare differently, if it changes this tensor by more than rounding does.

        Looked at for the first sample and the worst one.

        Returns:
            The difference, None if none was found; and why that could not be told, None if it could.
        """
        worst = comparison.stats.worst_sample if comparison.stats else None
        places = list(recorded_places(self._reference, self._backend, entry))[:1]
        places += [p for p in recorded_places(self._reference, self._backend, entry) if p[0] == worst][:1]
        places = list(dict.fromkeys(places))
        if self._differences.dynamic.handles(entry.pair, segment) and (
            wrong := self._dynamic.wrong(node, segment, places)
        ):
            return wrong, None
        if not segment.wide and self._differences.same(entry.pair, node, segment):
            return None, None
        why = self._why_not(entry, node, segment, attribution)
        found = None
        if why is None:
            try:
                found = self._found(entry, node, segment, attribution, places)
            except (KernelError, RecordingError) as error:  # what cannot be replayed is judged without this check
                why = error.message[0].lower() + error.message[1:].rstrip(".")
        formats = () if found is None else self.rounded_factors(entry, segment)
        if found is not None and formats:
            found = replace(found, sentence=f"{found.sentence}; {rounded_first(formats)}")
        return found, why

    def rounded_factors(self, entry: PlannedNode, segment: Segment | None) -> tuple[str, ...]:
        """Give the short formats to which a product may have rounded its factors, by a replay of the reference's nodes.

        Returns:
            Names of formats; none where rounding does not account for what is recorded, or there is no one product.
        """
        products = [] if segment is None else [node for node in segment.nodes if operators.plain(node).product]
        place = next(recorded_places(self._reference, self._backend, entry), None)
        if segment is None or len(products) != 1 or place is None or entry.quant is not None:
            return ()
        stored = self._backend.load(entry.tensor, *place)

        def fits(rounded: Callable[[np.ndarray], np.ndarray] | None) -> bool:
            theirs = self._differences.replays.values(
                entry.pair, segment, sample=place[0], step=place[1], rounded=rounded
            )
            ours = in_reference_order(stored, entry.pair.backend_view, theirs.shape)
            if not _one_shape(ours.shape, theirs.shape):
                return False
            difference = np.subtract(theirs, ours.reshape(theirs.shape), dtype=np.float64)
            return norm(difference) <= SEGMENT_ROUNDOFFS * FLOAT32_UNIT_ROUNDOFF * norm(theirs)

        try:
            if stored.dtype.kind != "f" or fits(None):
                return ()
            return tuple(short.name for short in reversed(SHORT_FORMATS) if fits(short.rounded))
        except (KernelError, RecordingError):
            return ()

    def _why_not(self, entry: PlannedNode, node: Node, segment: Segment, attribution: Attribution) -> str | None:
        """Say why a tensor cannot be checked; None if it can, as far as is known beforehand."""
        if not segment.wide and attribution.introduced_unsaturated is None:
            return attribution.reason or f"no bound of rounding is known for {node.op}"
        if not self._differences.checkable(node, segment) and not self._differences.dynamic.handles(
            entry.pair, segment
        ):
            return f"{node.op} computes with codes"
        if next(recorded_places(self._reference, self._backend, entry), None) is None:
            return "not all of its values were kept"
        if entry.whole and not all(map(rounds_nothing, (*segment.own[:-1], *segment.nodes[:-1]))):
            return "what it is chosen from was not compared, and rounding that may decide otherwise"
        return None

    def _found(
        self,
        entry: PlannedNode,
        node: Node,
        segment: Segment,
        attribution: Attribution,
        places: Sequence[tuple[int, int]],
    ) -> Finding | None:
        """Return the first difference that is found at some samples and steps."""
        if not segment.wide and (said := self._other_bias(entry, node, segment, attribution, places)):
            return said
        if self._differences.dynamic.handles(entry.pair, segment):
            return next(filter(None, (self._dynamic.difference(entry, node, segment, p) for p in places)), None)
        if segment.wide:
            return next(filter(None, (self._differs_wide(entry, node, segment, place) for place in places)), None)
        if any(self._differs(entry, node, segment, attribution, place) for place in places):
            return self._differences.difference(node, segment)
        if not self._differences.coded(segment):
            return None
        return next(filter(None, (self._lost(entry, node, segment, place) for place in places)), None)

    def _other_bias(
        self,
        entry: PlannedNode,
        node: Node,
        segment: Segment,
        attribution: Attribution,
        places: Sequence[tuple[int, int]],
    ) -> Finding | None:
        """Find whether a bias in no codes is not the reference's, with more effect than rounding what is summed up."""
        found = None if entry.quant is not None else self._differences.constants.other_bias(node, segment)
        if found is None:
            return None
        for place in places:
            elements = math.prod(shape_of(self._backend, entry.tensor, *place))
            allowed = attribution.samples.get(place[0], attribution).allowed or 0.0
            if found[0] * math.sqrt(elements) > FOLDING_MAX_ERROR_RATIO * allowed:
                return found[1]
        return None

    def _lost(self, entry: PlannedNode, node: Node, segment: Segment, place: tuple[int, int]) -> Finding | None:
        """Find whether too little is left of a product once its weights are rounded to codes."""
        if not self._differences.multiplies_codes(node):
            return None
        theirs, ours = self._replayed(entry, node, segment, place)
        if ours.shape != theirs.shape:
            return None
        with np.errstate(invalid="ignore", over="ignore"):
            return lost_to_rounding(entry, norm(theirs), norm(np.subtract(theirs, ours, dtype=np.float64)), "weights")

    def _replayed(
        self, entry: PlannedNode, node: Node, segment: Segment, place: tuple[int, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Give what the reference's nodes and the backend's node make of the backend's inputs, in one order."""
        sample, step = place
        theirs = self._differences.replays.values(entry.pair, segment, sample=sample, step=step)
        ours = replay(self._backend, node, entry.tensor, sample=sample, step=step)
        stored = self._backend.load(entry.tensor, sample, step).shape
        if not same_elements(ours.shape, stored):  # not all was said of what it does
            raise KernelError(f"The replay gives shape {ours.shape} and the recording has {stored}.")
        ours = ours.reshape(stored)
        span = span_before(self._reference.graph, entry.reference_tensor)
        for clamp in (folded_clamp(self._reference, self._backend, entry), clamp_of(entry.pair.backend_view), span):
            if clamp is not None and clamp != (None, None):
                ours = np.clip(ours, *clamp)
        if span != (None, None):  # what only comes from the backend may lie beyond the reference's codes
            theirs = np.clip(theirs, *span)
        return theirs, in_reference_order(ours, entry.pair.backend_view, theirs.shape)

    def _differs(
        self, entry: PlannedNode, node: Node, segment: Segment, attribution: Attribution, place: tuple[int, int]
    ) -> bool:
        sample, step = place
        theirs, ours = self._replayed(entry, node, segment, place)
        if not _one_shape(ours.shape, theirs.shape):
            return True
        ours = ours.reshape(theirs.shape)
        allowed = self._differences.rounding(node, segment, sample=sample, step=step)
        spread = None
        if allowed is None:
            spread = self._differences.spread(node, entry.tensor, sample=sample, step=step)
            spread, allowed = self._as_theirs(entry, spread, theirs), 0.0
        elif isinstance(allowed, np.ndarray):
            allowed = self._as_theirs(entry, allowed, theirs)
        off = self._off(entry, theirs, ours)
        least = FOLDING_MAX_ERROR_RATIO * (attribution.samples.get(sample, attribution).allowed or 0.0)

        def excess(share: float, off: np.ndarray = off) -> np.ndarray | None:
            """Give what lies beyond a share of the bound; None if that is nothing to speak of."""
            with np.errstate(invalid="ignore"):  # an endless bound accounts for an endless difference
                found = np.nan_to_num(np.maximum(off - share * (1 + LSB_SLACK) * allowed, 0), nan=0.0, posinf=np.inf)
            if entry.quant is not None and entry.quant.qmin is not None:
                lsb = MOVED_CODES_MAX_LSB if all(map(rounds_nothing, segment.own)) else DERIVED_LSB
                told = np.max(found, initial=0) > lsb * float(np.max(entry.quant.scale))
            else:
                told = norm(found) > least
            return found if told else None

        def rounding_noise() -> np.ndarray:
            known = self._differences.replays.rounding_noise(entry.pair, segment, sample=sample, step=step)
            return known if spread is None else np.hypot(known, spread)

        found = excess(1.0)
        if found is not None and exceeds(found, rounding_noise()):
            known = self._beside_weight(entry, segment, ours, place)
            found = found if known is None else excess(1.0, known)
            return found is not None and exceeds(found, rounding_noise())
        found = excess(LIKELY_ROUNDING_BOUND_SHARE)
        if found is None or not self._differences.constants.are_other(node, segment):
            return False
        known = self._beside_weight(entry, segment, ours, place)
        found = found if known is None else excess(LIKELY_ROUNDING_BOUND_SHARE, known)
        return found is not None and exceeds(found, rounding_noise() / DISTURBANCE_HALF_STEPS)

    def _beside_weight(
        self, entry: PlannedNode, segment: Segment, ours: np.ndarray, place: tuple[int, int]
    ) -> np.ndarray | None:
        """Give by how much a replay is off beside what its weight's rounding makes; None where that is not known."""
        theirs = self._differences.with_rounded_weight(entry.pair, segment, sample=place[0], step=place[1])
        if theirs is None:
            return None
        span = span_before(self._reference.graph, entry.reference_tensor)
        theirs = theirs if span == (None, None) else np.clip(theirs, *span)
        return self._off(entry, theirs.reshape(ours.shape), ours)

    def _off(self, entry: PlannedNode, theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
        """Give by how much two replays are apart, as far as the codes of the backend's tensor can tell."""
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is judged before
            off = np.nan_to_num(np.abs(np.subtract(theirs, ours, dtype=np.float64)), nan=0.0, posinf=np.inf)
        hidden = _beyond_one_end(theirs, ours, span_before(self._backend.graph, entry.tensor))
        return np.asarray(np.where(hidden, 0.0, off))

    def _as_theirs(self, entry: PlannedNode, array: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """Bring what is known of each element of the backend's tensor into the order and shape of the reference's."""
        return in_reference_order(array, entry.pair.backend_view, theirs.shape).reshape(theirs.shape)

    def _differs_wide(self, entry: PlannedNode, node: Node, segment: Segment, place: tuple[int, int]) -> Finding | None:
        """Hold what several backend nodes gave against what the reference's make of the same inputs."""
        theirs = self._differences.replays.values(entry.pair, segment, sample=place[0], step=place[1])
        stored = self._backend.load(entry.tensor, *place)
        ours = dequantize(stored, self._backend.graph.tensors[entry.tensor].quant)
        ours = in_reference_order(ours, entry.pair.backend_view, theirs.shape)
        for bounds in (clamp_of(entry.pair.backend_view), span_before(self._reference.graph, entry.reference_tensor)):
            if bounds != (None, None):
                ours = np.clip(ours, *bounds)
        if not _one_shape(ours.shape, theirs.shape):
            return self._differences.difference(node, segment)
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.subtract(theirs, ours.reshape(theirs.shape), dtype=np.float64)
        share, coded = 10 ** (-DEFAULT_MIN_SQNR / 20), self._differences.coded(segment)
        if not coded and not self._coded:
            share = min(SEGMENT_ROUNDOFFS * unit_roundoff(stored.dtype), share)
        if not norm(difference) > share * norm(theirs):
            return None
        if not exceeds(
            difference, self._differences.replays.rounding_noise(entry.pair, segment, sample=place[0], step=place[1])
        ):
            return None
        inside = self._rounding_inside(entry, segment, theirs.shape, place) if coded else None
        if inside is None or norm(difference + inside) > share * norm(theirs):
            return self._differences.difference(node, segment)
        return lost_to_rounding(entry, norm(theirs), norm(inside), "data")

    def _rounding_inside(
        self, entry: PlannedNode, segment: Segment, shape: tuple[int, ...], place: tuple[int, int]
    ) -> np.ndarray | None:
        """Give what rounding to the backend's codes within a part makes of its result; None where it is not known."""
        try:
            return rounding_inside(self._differences.be, entry.pair, segment, shape, place).reshape(shape)
        except (KernelError, RecordingError):
            return None


def rounded_first(formats: Sequence[str]) -> str:
    """Say in a clause that rounding factors accounts for what a product is off by."""
    return f"rounding what it multiplies to {' or '.join(formats)} first accounts for it"


def _beyond_one_end(one: np.ndarray, other: np.ndarray, span: tuple[float | None, float | None]) -> np.ndarray:
    """Tell where both lie beyond the same end of a span of codes, which then hold nothing that tells them apart."""
    low, high = (np.nan if end is None else end for end in span)
    return np.asarray(((one <= low) & (other <= low)) | ((one >= high) & (other >= high)))


def _one_shape(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Tell whether two shapes are alike but for dimensions of extent 1 that one of them has more than the other.

    Where neither has more, such a dimension in another place is that of a reduction along another axis.
    """
    return same_elements(one, other) and (len(one) != len(other) or one == other)
