"""Replays the reference's nodes on the backend's inputs, and estimates what rounding alone would make of that.

The reference's constants may be rounded themselves: to codes, or to a narrow float format. So may the backend's be. How
far the results of two such computations lie apart is seen by doing it again with every constant moved at random, within
a few times what rounding moves it, and every sum by what its order may change: perturbation analysis by sampling
(Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic", UCLA CSD-970002, 1997).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from qdebug.compare.align.clamps import code_span
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.layouts import in_reference_order, into_stored_order, plain_shape
from qdebug.compare.align.pairs import Pair, Transform
from qdebug.compare.attribute.backend_replay import codes_shared, compute, without_kernel
from qdebug.compare.attribute.band import allowed_error, held_unit, norm, stretches
from qdebug.compare.attribute.dynamic import DynamicNoise, run_dynamic
from qdebug.compare.attribute.rounding import Rounding, real_values, shared_constants
from qdebug.compare.attribute.segments import Segment
from qdebug.errors import KernelError, RecordingError
from qdebug.model import Node, operators
from qdebug.model.outline import shape_of
from qdebug.model.thresholds.attribution import (
    COMPUTED_CONSTANT_MAX_NODES,
    DISTURBANCE_HALF_STEPS,
    DISTURBED_REPLAYS,
    DISTURBED_REPLAYS_OF_SMALL,
    DISTURBED_SMALL_MAX_ELEMENTS,
    SLICE_MAX_SQUARE_RATIO,
    SLICE_MIN_ELEMENTS,
)
from qdebug.model.thresholds.rounding import FLOAT32_UNIT_ROUNDOFF
from qdebug.numerics.affine import dequantize
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import has_kernel

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
    """

    rng: np.random.Generator
    constants: float
    results: float
    shared: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """Values of reference tensors in the model's order of dimensions, as far as they are known."""

    known: dict[str, np.ndarray] = field(default_factory=dict)
    by_root: Mapping[str, str]
    last: str
    noise: _Noise | None = None
    saturate: bool = True
    rounded: Callable[[np.ndarray], np.ndarray] | None = None
    depth: int = 0


class ReferenceReplay:
    """Replays segments.

    Args:
        ref: The reference run.
        be: The backend run.
        pairs: All pairs by backend tensor.
        layouts: Reference tensors that are kept in another order of dimensions than the model's.

    Attributes:
        reference: What the reference's constants were rounded to.
        backend: What the backend's were.
    """

    def __init__(
        self,
        ref: IndexedRecording,
        be: IndexedRecording,
        *,
        pairs: Mapping[str, Pair],
        layouts: Mapping[str, Transform],
    ) -> None:
        self._ref, self._be = ref, be
        self._pairs, self._layouts = pairs, layouts
        self.reference, self.backend = Rounding(ref), Rounding(be)

    def values(
        self,
        pair: Pair,
        segment: Segment,
        *,
        sample: int,
        step: int,
        instead: Mapping[str, np.ndarray] = MappingProxyType({}),
        rounded: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> np.ndarray:
        """Replay a segment on the backend's recorded inputs with the reference's constants.

        Args:
            pair: The pair that it leads to.
            segment: The segment.
            sample: The sample.
            step: The step.
            instead: Real values to take in the place of some constants.
            rounded: What is done to both factors of a product first.

        Returns:
            Real values in the order of dimensions that the pair is compared in.

        Raises:
            KernelError: A node cannot be replayed.
            RecordingError: A constant or an input was not recorded.
        """
        return self._values(pair, segment, (sample, step), instead=instead, rounded=rounded)

    def rounding_noise(self, pair: Pair, segment: Segment, *, sample: int, step: int) -> np.ndarray:
        """Estimate the error of each element that rounding makes, of constants on either side and of sums.

        To that comes what the reference's own codes in between cut off, if the backend has no such codes.

        Returns:
            Root mean squares over a few replays, in the order of dimensions that the pair is compared in.

        Raises:
            KernelError: A node cannot be replayed.
            RecordingError: A constant or an input was not recorded.
        """
        plain = self._values(pair, segment, (sample, step))
        constants, results = self._units(pair, segment, sample, step)
        shared = shared_constants((self._ref, self._be), segment)
        squares = np.zeros(plain.shape, np.float64)
        rng = np.random.default_rng(_SEED)
        runs = DISTURBED_REPLAYS if plain.size > DISTURBED_SMALL_MAX_ELEMENTS else DISTURBED_REPLAYS_OF_SMALL
        for _ in range(runs):
            noise = _Noise(rng=rng, constants=constants, results=results, shared=shared)
            _add_squares(squares, self._values(pair, segment, (sample, step), noise), plain, share=1 / runs)
        _add_squares(squares, self._values(pair, segment, (sample, step), saturate=False), plain)
        return np.sqrt(squares, out=squares)

    def _units(self, pair: Pair, segment: Segment, sample: int, step: int) -> tuple[float, float]:
        """Give the unit roundoff of what the backend's constants, and its results, are rounded to."""
        names = {name for node in segment.own for name in node.inputs if name and self._be.folds(name)}
        output = self._be.recording.load(pair.backend, sample, step)
        return self.backend.narrowest(names), held_unit(output)

    def _values(
        self,
        pair: Pair,
        segment: Segment,
        place: tuple[int, int],
        noise: _Noise | None = None,
        *,
        saturate: bool = True,
        instead: Mapping[str, np.ndarray] = MappingProxyType({}),
        rounded: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> np.ndarray:
        by_root = {self._ref.root(name): name for name in segment.feeds}
        last = by_root.get(self._ref.root(pair.reference), pair.reference)
        values = _Values(
            known=dict(instead), by_root=by_root, last=last, noise=noise, saturate=saturate, rounded=rounded
        )
        for name, tensor in segment.feeds.items():
            stored = real_values(self._be.recording, tensor, *place)
            entry = self._pairs[tensor]
            shape = plain_shape(self._ref.recording.load(entry.reference, *place).shape, entry.reference_view)
            shared = in_reference_order(stored, entry.backend_view, shape)
            if entry.reference_view != self._layouts.get(name):
                shared = into_stored_order(shared, entry.reference_view)
                shared = in_reference_order(shared, self._layouts.get(name), shared.shape)
            values.known[name] = shared
        for node in segment.nodes:
            self._run(node, values)
        layout, view = self._layouts.get(last), pair.reference_view
        if layout == view or last != pair.reference:
            return values.known[last]
        return in_reference_order(into_stored_order(values.known[last], layout), view, values.known[last].shape)

    def _run(self, node: Node, values: _Values) -> None:
        """Run a reference node on values in the model's order of dimensions, and add what it gives in that order.

        The node itself sees each tensor in the order that the reference keeps it in.
        """
        if operators.of(node.op).casts and self._ref.handed_on(node) == next(iter(node.inputs), ""):
            source = values.by_root.get(self._ref.root(node.inputs[0]), node.inputs[0])
            if source in values.known:  # to another float format: the same real numbers
                values.known[node.outputs[0]] = values.known[source]
                return
        if operators.of(node.op).takes_codes:
            self._run_dynamic(node, values)
            return
        recording = self._ref.recording
        form, opset = real_form(node, recording.graph.opset)
        if not has_kernel(form.op, form.domain):
            raise KernelError(without_kernel(node))
        inputs: dict[str, np.ndarray] = {}
        for name in form.inputs:
            if not name:
                continue
            coded = codes_shared(recording, form, name)
            if coded is not None and recording.graph.tensors[name].quant is None and recording.has(name):
                inputs[name] = dequantize(recording.load(name), coded)
                continue
            if name not in values.known:
                fed = values.by_root.get(self._ref.root(name))
                values.known[name] = self._in_form(name, values.known[fed]) if fed else self._constant(name, values)
            inputs[name] = into_stored_order(values.known[name], self._layouts.get(name))
        for name, exact in compute(node, form, opset, _factors_rounded(form, inputs, values.rounded)).items():
            made = exact
            if values.noise is not None and exact.dtype.kind == "f" and not operators.of(form.op).rounds_nothing:
                allowed = allowed_error(form, inputs, exact, opset, FLOAT32_UNIT_ROUNDOFF)
                made = _disturbed(exact, allowed, values.noise)
            span = code_span(self._ref, name)
            if span is not None and made.dtype.kind == "f":  # the codes do what a Relu or Clip does
                made = _held(made, span, saturate=values.saturate or name == values.last)
            values.known[name] = in_reference_order(made, self._layouts.get(name), made.shape)

    def _in_form(self, name: str, array: np.ndarray) -> np.ndarray:
        """Give values the dimensions of another form of their tensor: a runtime takes a batch away and puts it back."""
        if not self._ref.recording.has(name):
            return array
        shape = plain_shape(shape_of(self._ref.recording, name), self._layouts.get(name))
        return in_reference_order(array, None, shape)

    def _run_dynamic(self, node: Node, values: _Values) -> None:
        """Run a node that computes with codes of a scale chosen at run time: on real data, and codes of its weights."""
        recording, opset = self._ref.recording, self._ref.recording.graph.opset
        inputs: dict[str, np.ndarray] = {}
        for name in filter(None, node.inputs):
            fed = name if name in values.known else values.by_root.get(self._ref.root(name))
            if fed and not self._ref.folds(name):
                inputs[name] = values.known[fed]
            elif recording.has(name):
                inputs[name] = recording.load(name)
            else:
                raise RecordingError(f"Tensor {name!r} was not recorded.")
        noise = None
        if values.noise is not None:
            half = {name: 0.0 if name in values.noise.shared else 0.5 for name in inputs}
            noise = DynamicNoise(rng=values.noise.rng, data=False, weights=half)
        values.known.update(run_dynamic(node, opset, inputs, noise))

    def _constant(self, name: str, values: _Values) -> np.ndarray:
        noise = values.noise
        real = real_values(self._ref.recording, name)
        if noise is None or real.dtype.kind != "f" or name in noise.shared:
            return real
        computed = self._computed(name, values, noise) if noise.constants > FLOAT32_UNIT_ROUNDOFF else None
        if computed is not None:
            return computed
        steps = self.reference.half_steps(name)
        if noise.constants > FLOAT32_UNIT_ROUNDOFF:
            inexact = ~_held_in(real, noise.constants)  # an exponent of 2 is no less 2 in any format
            steps = np.maximum(steps, np.abs(real) * noise.constants * inexact)
        if not np.any(steps):
            return real
        moved = real + (noise.rng.uniform(-DISTURBANCE_HALF_STEPS, DISTURBANCE_HALF_STEPS, real.shape) * steps).astype(
            real.dtype
        )
        return np.asarray(moved)

    def _computed(self, name: str, values: _Values, noise: _Noise) -> np.ndarray | None:
        """Replay the reference nodes that make a constant of others; None if there are none or one has no kernel.

        A backend of a narrow format rounds what the constant is made of, and each result on the way: the cosine of a
        large angle is then off by far more than its own last digit.
        """
        node = self._ref.graph.producer(name)
        if node is None or operators.plain(node).changes_format or values.depth >= COMPUTED_CONSTANT_MAX_NODES:
            return None
        rounded = replace(noise, results=max(noise.results, noise.constants))
        above = replace(values, noise=rounded, depth=values.depth + 1)
        try:
            self._run(node, above)
        except (KernelError, RecordingError):
            return None
        return values.known.get(name)


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


def _add_squares(squares: np.ndarray, one: np.ndarray, other: np.ndarray, *, share: float = 1.0) -> None:
    """Add a share of the squares of finite differences."""
    for out, first, second in stretches(squares, one, other):
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.subtract(first, second, dtype=np.float64)
        found = np.nan_to_num(difference, copy=False, nan=0, posinf=0, neginf=0) ** 2 * share
        np.add(out, found, out=out)


def _disturbed(values: np.ndarray, allowed: float, noise: _Noise) -> np.ndarray:
    """Add random errors of a given norm to a node's results, and those of the format that they are rounded to."""
    if noise.results > FLOAT32_UNIT_ROUNDOFF:
        allowed += noise.results * norm(values)
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
    if norm(difference) > norm(rounding_noise):
        return True
    squares = np.nan_to_num(np.asarray(difference, np.float64)) ** 2, rounding_noise**2
    for axis, extent in enumerate(difference.shape):
        if extent > 1 and difference.size // extent >= SLICE_MIN_ELEMENTS:
            others = tuple(other for other in range(difference.ndim) if other != axis)
            found, expected = (part.sum(others) for part in squares)
            if np.any(found > SLICE_MAX_SQUARE_RATIO * np.maximum(expected, expected.mean())):
                return True
    return False
