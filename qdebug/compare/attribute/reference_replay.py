"""Replays the reference's nodes on the backend's inputs, and estimates what rounding alone would make of that.

The reference's constants may be rounded themselves: to codes, or to a narrow float format. So may the backend's be. How
far the results of two such computations lie apart is seen by doing it again with every constant moved at random, within
a few times what rounding moves it, and every sum by what its order may change, see `qdebug.replay.segment`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType

import numpy as np

from qdebug.compare.align.clamps import code_span
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.layouts import in_reference_order, into_stored_order, layouts_of, plain_shape
from qdebug.compare.align.pairs import Pair
from qdebug.compare.align.undeclared_quantization import computes_with_codes
from qdebug.compare.attribute.backend_replay import codes_shared, read, real_values, without_kernel
from qdebug.compare.attribute.band import allowed_error, finite_norm, held_unit
from qdebug.compare.attribute.code_spans import reference_codes
from qdebug.compare.attribute.declared_format import declared_unit
from qdebug.compare.attribute.grid_rounding import half_code, is_weight, telling_values
from qdebug.compare.attribute.integer_tensors import lacks_scale
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.attribute.rounding import ConstantRounding, hair, scales_by_constants, shared_constants
from qdebug.compare.attribute.segments import Segment
from qdebug.errors import KernelError, NoKernelError, NoScaleError, NotRecordedError
from qdebug.model import Node, operators
from qdebug.model.recording import shape_of
from qdebug.model.thresholds.attribution import (
    COMPUTED_CONSTANT_MAX_NODES,
    SLICE_MAX_SQUARE_RATIO,
    SLICE_MIN_ELEMENTS,
)
from qdebug.model.thresholds.rounding import FLOAT32_STORED_REL_ERROR, FLOAT32_UNIT_ROUNDOFF, LSB_SLACK
from qdebug.numerics.accumulate import same_elements
from qdebug.numerics.affine import on_grid
from qdebug.numerics.blocks import stretches
from qdebug.replay.extents import recorded_room
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import has_kernel
from qdebug.replay.segment import moved, offsets, run_form, run_real, run_segment, spread

__all__ = ["ReferenceReplay", "exceeds"]

_SEED = 20250411


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noise:
    """What a replay is disturbed by.

    Args:
        rng: Where the disturbances come from.
        constants: Unit roundoff of the format that the backend's constants are rounded to.
        results: Unit roundoff of the format of its results.
        shared: Constants of the reference that the backend has, too.
        on_codes: Whether each weight and each result is rounded to 8-bit codes of which nobody stated the scale.
    """

    rng: np.random.Generator
    constants: float
    results: float
    shared: frozenset[str]
    on_codes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """One replay of a segment.

    Args:
        fed: What enters, by reference tensor, in the model's order of dimensions.
        names: Those tensors by the roots of their classes.
        constants: Constants that were read, as they are kept.
        last: The tensor that the segment leads to.
        place: Sample and step.
        noise: What the replay is disturbed by; None for nothing.
        saturate: Whether what the reference's codes cut off is cut off.
        coded: Whether each tensor that the reference has in codes is rounded to them.
        rounded: What is done to both factors of a product first.
        after: What is done to each real result, given its tensor.
        depth: Nodes in a row that make a constant.
    """

    fed: Mapping[str, np.ndarray]
    names: Mapping[str, str]
    constants: dict[str, np.ndarray]
    last: str
    place: tuple[int, int]
    noise: _Noise | None = None
    saturate: bool = True
    coded: bool = False
    rounded: Callable[[np.ndarray], np.ndarray] | None = None
    after: Callable[[str, np.ndarray], np.ndarray] | None = None
    depth: int = 0


class ReferenceReplay:
    """Replays segments.

    Args:
        ref: The reference run.
        be: The backend run.
        pairs: All pairs of the alignment.

    Attributes:
        ref: The reference run.
        be: The backend run.
        pairs: All pairs by backend tensor.
        reference: What the reference's constants were rounded to.
        backend: What the backend's were.
        unequal: Samples in which a backend tensor, compared in one step, is known to differ from its partner.
    """

    def __init__(self, ref: IndexedRecording, be: IndexedRecording, pairs: Sequence[Pair]) -> None:
        self.ref, self.be = ref, be
        self.pairs = {pair.backend: pair for pair in pairs}
        views = {pair.reference: pair.reference_view for pair in pairs if pair.reference_view}
        self._layouts = {**layouts_of(ref), **views}  # of what the reference keeps in another order than the model's
        self.reference, self.backend = ConstantRounding(ref), ConstantRounding(be)
        self.unequal = set[tuple[str, int]]()

    @cached_property
    def telling(self) -> int:
        """How many different values tell a tensor's grid, where the backend shows real values for codes; or 0."""
        backend = self.be.recording
        return 0 if computes_with_codes(backend) else telling_values(backend)

    @cached_property
    def _partners(self) -> Mapping[str, str]:
        """The first backend tensor of each class of compared reference tensors, by its root."""
        found: dict[str, str] = {}
        for pair in self.pairs.values():
            found.setdefault(self.ref.root(pair.reference), pair.backend)
        return found

    def values(
        self,
        pair: Pair,
        segment: Segment,
        place: tuple[int, int],
        *,
        noise: _Noise | None = None,
        saturate: bool = True,
        coded: bool = False,
        instead: Mapping[str, np.ndarray] = MappingProxyType({}),
        rounded: Callable[[np.ndarray], np.ndarray] | None = None,
        after: Callable[[str, np.ndarray], np.ndarray] | None = None,
    ) -> np.ndarray:
        """Replay a segment on the backend's recorded inputs with the reference's constants.

        Args:
            pair: The pair that it leads to.
            segment: The segment.
            place: Sample and step.
            noise: What the replay is disturbed by; None for nothing.
            saturate: Cut off what the reference's own codes in between cut off.
            coded: Round each tensor that the reference has in codes to these.
            instead: Real values to take in the place of some constants.
            rounded: What is done to both factors of a product first.
            after: What is done to each real result, given its tensor.

        Returns:
            Real values in the order of dimensions that the pair is compared in.

        Raises:
            KernelError: A node cannot be replayed.
            RecordingError: A constant or an input was not recorded.
        """
        root, layouts = self.ref.root, self._layouts
        names = {root(name): name for name in segment.feeds}
        last = names.get(root(pair.reference), pair.reference)
        one = _Pass(
            fed={name: self._fed(name, tensor, place) for name, tensor in segment.feeds.items()},
            names=names,
            constants=dict(instead),
            last=last,
            place=place,
            noise=noise,
            saturate=saturate,
            coded=coded,
            rounded=rounded,
            after=after,
        )
        made = self._made(segment.nodes, last, one)
        view = pair.reference_view if last == pair.reference else layouts.get(last)
        if made is None and view == layouts.get(last):
            return one.fed[last]
        result = into_stored_order(one.fed[last], layouts.get(last)) if made is None else made
        return in_reference_order(result, view, result.shape)

    def expected(self, entry: PlannedNode, segment: Segment, place: tuple[int, int]) -> np.ndarray:
        """Return what the reference gives on the backend's recorded inputs, in the reference's own arithmetic.

        A node's own error is measured against this. Of equal inputs it is what the reference recorded. Of others it is
        a replay in which each tensor that the reference has in codes is rounded to them.

        Args:
            entry: The compared tensor that the segment leads to.
            segment: The segment.
            place: Sample and step.

        Returns:
            Real values in the order of dimensions that the pair is compared in.

        Raises:
            KernelError: A node cannot be replayed.
            RecordingError: A constant or an input was not recorded.
        """
        pair = entry.pair
        if not self.reads_equal(segment, place):
            codes = reference_codes(self.ref.recording.graph, self.be.recording.graph, entry)
            return on_grid(self.values(pair, segment, place, coded=True), codes)
        theirs = real_values(self.ref.recording, pair.reference, place)
        return in_reference_order(theirs, pair.reference_view, theirs.shape)

    def reads_equal(self, segment: Segment, place: tuple[int, int]) -> bool:
        """Tell whether all data that enters a segment was recorded with the same real values on both sides."""
        reference = self.ref.recording
        if segment.elsewhere or not all(reference.has(name, *place) for name in segment.feeds):
            return False
        if any((tensor, place[0]) in self.unequal for tensor in segment.feeds.values()):
            return False
        for name, tensor in segment.feeds.items():
            try:
                ours = self._fed(name, tensor, place)
            except (KernelError, NotRecordedError):
                return False
            theirs = real_values(reference, name, place)
            theirs = in_reference_order(theirs, self._layouts.get(name), theirs.shape)
            if theirs.shape != ours.shape or not np.array_equal(theirs, ours, equal_nan=theirs.dtype.kind == "f"):
                return False
        return True

    def with_rounded_weight(self, pair: Pair, segment: Segment, place: tuple[int, int]) -> np.ndarray | None:
        """Replay the reference's nodes with the backend's weight, each element of which is the reference's rounded.

        What rounding it makes of sums is then known and no matter of chance: of many weights left near nothing and data
        of one sign the errors add up.

        Returns:
            None unless there is one product on either side, whose weight is provably the reference's but for rounding.
        """
        if segment.products is None:
            return None
        product, own = segment.products
        theirs, _ = real_form(product, self.ref.recording.graph.opset)
        ours, _ = real_form(own, self.be.recording.graph.opset)
        if self.weight_error(theirs, ours, segment.beside(product)) is None:
            return None
        weight = real_values(self.be.recording, ours.inputs[1])
        if bool(ours.attrs.get("transB")) != bool(theirs.attrs.get("transB")):
            weight = np.swapaxes(weight, -1, -2)
        return self.values(pair, segment, place, instead={theirs.inputs[1]: weight})

    def weight_error(self, theirs: Node, ours: Node, others: Sequence[Node]) -> np.ndarray | None:
        """Return the error of each element of the backend's weight, if all of it lies within half a step.

        It is none at all if the reference was rounded alike. A bound made of what is known leaves less room for what
        was not rounding.

        Args:
            theirs: The reference's product.
            ours: The backend node's form on real numbers.
            others: What else of the reference leads to the compared tensor.

        Returns:
            Of the shape of the backend's weight; None where it is not known.
        """
        sides = (self.ref, theirs), (self.be, ours)
        if scales_by_constants(self.ref, others):
            return None
        for run, node in sides:
            name = node.inputs[1] if len(node.inputs) > 1 else ""
            if not name or not run.folds(name) or not run.recording.has(name):
                return None
        real, mine = (real_values(run.recording, node.inputs[1]) for run, node in sides)
        if bool(ours.attrs.get("transB")) != bool(theirs.attrs.get("transB")) and real.ndim > 1:
            real = np.swapaxes(real, -1, -2)
        if mine.shape != real.shape:
            return None
        error = np.abs(mine.astype(np.float64) - real) + FLOAT32_STORED_REL_ERROR * np.abs(real)
        half = self.backend.half_steps(ours.inputs[1])
        if np.any(error > (1 + LSB_SLACK) * half + 2 * hair(real)):
            return None
        return np.asarray(np.minimum(error, half), half.dtype)

    def rounding_noise(
        self, pair: Pair, segment: Segment, place: tuple[int, int], *, on_codes: bool = False
    ) -> np.ndarray:
        """Estimate the error of each element that rounding makes, of constants on either side and of sums.

        To that comes what the reference's own codes in between cut off, if the backend has no such codes.

        Args:
            pair: The pair that the segment leads to.
            segment: The segment.
            place: Sample and step.
            on_codes: Whether each weight and each result is rounded to 8-bit codes of which nobody stated the scale.

        Returns:
            Root mean squares over a few replays, in the order of dimensions that the pair is compared in.

        Raises:
            KernelError: A node cannot be replayed.
            RecordingError: A constant or an input was not recorded.
        """
        plain = self.values(pair, segment, place)
        names = {name for node in segment.own for name in node.inputs if name and self.be.folds(name)}
        noise = _Noise(
            rng=np.random.default_rng(_SEED),
            constants=max(self.backend.narrowest(names), declared_unit(self.be.recording)),
            results=max(held_unit(self.be.recording.load(pair.backend, *place)), declared_unit(self.be.recording)),
            shared=shared_constants((self.ref, self.be), segment),
            on_codes=on_codes,
        )
        found = spread(plain, lambda: self.values(pair, segment, place, noise=noise))
        if all(code_span(self.ref, name) is None for node in segment.nodes for name in node.outputs if name):
            return found
        whole = self.values(pair, segment, place, saturate=False)
        with np.errstate(invalid="ignore", over="ignore"):
            cut_off = np.nan_to_num(np.subtract(whole, plain, dtype=np.float64), nan=0, posinf=0, neginf=0)
        return np.asarray(np.hypot(found, cut_off))

    def _fed(self, name: str, tensor: str, place: tuple[int, int]) -> np.ndarray:
        """Return the backend's values of what enters a segment, in the model's order of dimensions."""
        entry = self.pairs[tensor]
        bare = lacks_scale(self.ref.recording.graph, self.be.recording.graph, entry)
        if bare is not None:
            raise NoScaleError(f"No scale was recorded for {bare!r}, which it computes with.")
        shape = plain_shape(self.ref.recording.load(entry.reference, *place).shape, entry.reference_view)
        shared = in_reference_order(real_values(self.be.recording, tensor, place), entry.backend_view, shape)
        if shared.shape != shape and same_elements(shared.shape, shape):
            shared = shared.reshape(shape)  # axes are counted in it, those of one element too
        if entry.reference_view == self._layouts.get(name):
            return shared
        shared = into_stored_order(shared, entry.reference_view)
        return in_reference_order(shared, self._layouts.get(name), shared.shape)

    def _made(self, nodes: tuple[Node, ...], output: str, one: _Pass) -> np.ndarray | None:
        opset = self.ref.recording.graph.opset
        with recorded_room(self.ref.recording, one.place):
            return run_segment(nodes, output, opset, partial(self._read, one), partial(self._run, one))

    def _read(self, one: _Pass, form: Node, name: str) -> np.ndarray:
        """Return what a node reads that no node before it makes, as the reference keeps it."""
        recording, classes = self.ref.recording, self.ref
        source = name if name in one.fed else one.names.get(classes.root(name), "")
        takes_codes, unsaid = operators.of(form.op).takes_codes, recording.graph.tensors[name].quant is None
        if (takes_codes and (not source or classes.folds(name))) or (unsaid and codes_shared(recording, form, name)):
            return read(recording, (0, 0), form, name)
        if source:
            values = one.fed[source] if source == name else self._in_form(name, one.fed[source])
            return into_stored_order(values, self._layouts.get(name))
        if name not in one.constants and classes.of_shape(name):
            one.constants[name] = self._extents(name, one)
        if name not in one.constants:
            valued = name in operators.valued_inputs(form)
            one.constants[name] = self._constant(name, one if valued else replace(one, noise=None))
        return one.constants[name]

    def _extents(self, name: str, one: _Pass) -> np.ndarray:
        """Return what was computed of shapes alone: as the backend recorded it, if it was compared."""
        partner = self._partners.get(self.ref.root(name))
        if partner is None or not self.be.recording.has(partner, *one.place):
            return real_values(self.ref.recording, name, one.place)
        return self._fed(name, partner, one.place)

    def _in_form(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return values in the shape of another form of their tensor: a runtime takes a batch away and puts it back."""
        if not self.ref.recording.has(name):
            return array
        shape = plain_shape(shape_of(self.ref.recording, name), self._layouts.get(name))
        return in_reference_order(array, None, shape)

    def _run(
        self, one: _Pass, node: Node, form: Node, opset: Mapping[str, int], inputs: Mapping[str, np.ndarray]
    ) -> Mapping[str, np.ndarray]:
        """Compute a reference node, on tensors in the order that the reference keeps them in."""
        row, noise, source = operators.of(node.op), one.noise, next(iter(node.inputs), "")
        if row.casts and self.ref.handed_on(node) == source and not self.ref.folds(source):
            return {node.outputs[0]: inputs[source]}  # to another float format: the same real numbers
        if row.takes_codes:
            if noise is None:
                return run_real(node, form, opset, inputs)
            half = {name: 0.0 if name in noise.shared else 0.5 for name in node.inputs[1:]}
            return run_real(
                node, form, opset, inputs, disturbed=lambda name, size, _: offsets(noise.rng, size, half.get(name, 0.0))
            )
        if not has_kernel(form.op, form.domain):
            raise NoKernelError(without_kernel(node))
        made = dict(run_form(node, form, opset, _factors_rounded(form, inputs, one.rounded)))
        for name, array in made.items():
            if array.dtype.kind != "f":
                continue
            if noise is not None and not operators.of(form.op).rounds_nothing:
                allowed = allowed_error(form, inputs, array, opset, FLOAT32_UNIT_ROUNDOFF)
                made[name] = _disturbed(array, allowed, noise)
                if noise.on_codes:
                    made[name] = moved(noise.rng, made[name], half_code(array))
            if one.after is not None:
                made[name] = one.after(name, made[name])
            span = code_span(self.ref, name)
            if one.coded:
                made[name] = on_grid(made[name], self.ref.recording.graph.tensors[name].quant)
            elif span is not None:  # the codes do what a Relu or Clip does
                made[name] = _held(made[name], span, saturate=one.saturate or name == one.last)
        return made

    def _constant(self, name: str, one: _Pass) -> np.ndarray:
        noise = one.noise
        real = real_values(self.ref.recording, name)
        if noise is not None and noise.on_codes and is_weight(real):
            return moved(noise.rng, real, half_code(real))
        if noise is None or real.dtype.kind != "f" or name in noise.shared:
            return real
        computed = self._computed(name, one, noise) if noise.constants > FLOAT32_UNIT_ROUNDOFF else None
        if computed is not None:
            return computed
        steps = self.reference.half_steps(name)
        if noise.constants > FLOAT32_UNIT_ROUNDOFF:
            inexact = ~_held_in(real, noise.constants)  # an exponent of 2 is no less 2 in any format
            steps = np.maximum(steps, np.abs(real) * noise.constants * inexact)
        return moved(noise.rng, real, steps)

    def _computed(self, name: str, one: _Pass, noise: _Noise) -> np.ndarray | None:
        """Replay the reference nodes that make a constant of others; None if there are none or one has no kernel.

        A backend of a narrow format rounds what the constant is made of, and each result on the way: the cosine of a
        large angle is then off by far more than its own last digit.
        """
        node = self.ref.graph.producer(name)
        if node is None or operators.plain(node).changes_format or one.depth >= COMPUTED_CONSTANT_MAX_NODES:
            return None
        rounded = replace(noise, results=max(noise.results, noise.constants))
        try:
            return self._made((node,), name, replace(one, noise=rounded, depth=one.depth + 1))
        except (KernelError, NotRecordedError):
            return None


def _factors_rounded(
    form: Node, inputs: Mapping[str, np.ndarray], rounded: Callable[[np.ndarray], np.ndarray] | None
) -> Mapping[str, np.ndarray]:
    """Round what a product multiplies."""
    if rounded is None or not operators.of(form.op).product:
        return inputs
    return {**inputs, **{name: rounded(inputs[name]) for name in form.inputs[:2]}}


def _held_in(values: np.ndarray, unit: float) -> np.ndarray:
    """Tell of each value whether a float format of a unit roundoff holds its digits."""
    digits = np.frexp(np.asarray(values, np.float64))[0] / unit
    return np.asarray(digits == np.rint(digits))


def _held(values: np.ndarray, span: tuple[float, float], *, saturate: bool) -> np.ndarray:
    """Hold real values to the span of codes; where they are not to saturate, to a least value of zero alone."""
    low, high = span
    if saturate:
        return np.asarray(np.clip(values, low, high))
    return np.asarray(np.maximum(values, 0)) if low == 0 else values


def _disturbed(values: np.ndarray, allowed: float, noise: _Noise) -> np.ndarray:
    """Add random errors of a given norm to a node's results, and those of the format that they are rounded to."""
    if noise.results > FLOAT32_UNIT_ROUNDOFF:
        allowed += noise.results * finite_norm(values)
    each, disturbed = allowed / np.sqrt(max(values.size, 1)), np.empty(values.shape, values.dtype)
    for out, part in stretches(disturbed, values):
        np.add(part, (noise.rng.standard_normal(part.size) * each).astype(part.dtype), out=out)
    return disturbed


def exceeds(difference: np.ndarray, rounding_noise: np.ndarray) -> bool:
    """Tell whether a difference is more than rounding makes, on the whole or in one slice along any dimension.

    Args:
        difference: The difference of each element.
        rounding_noise: Its estimate, of the same shape.
    """
    if finite_norm(difference) > finite_norm(rounding_noise):
        return True
    squares = np.nan_to_num(np.asarray(difference, np.float64)) ** 2, rounding_noise**2
    for axis, extent in enumerate(difference.shape):
        if extent > 1 and difference.size // extent >= SLICE_MIN_ELEMENTS:
            others = tuple(other for other in range(difference.ndim) if other != axis)
            found, expected = (part.sum(others) for part in squares)
            if np.any(found > SLICE_MAX_SQUARE_RATIO * np.maximum(expected, expected.mean())):
                return True
    return False
