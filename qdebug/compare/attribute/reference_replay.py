"""Replays the reference's nodes on the backend's inputs, and estimates the effect of rounding alone.

The constants of either side may be rounded to codes or to a narrow float format. The distance between two such
computations is estimated by repeating the replay with every constant perturbed at random by a few times its rounding
error, and every sum by the effect of its order, see `qdebug.replay.segment`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType

import numpy as np

from qdebug.compare.align.clamps import code_span
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.layouts import in_reference_order, into_stored_order, layouts_of, permuted_shape
from qdebug.compare.align.pairs import Pair
from qdebug.compare.align.undeclared_quantization import computes_with_codes
from qdebug.compare.attribute.backend_replay import (
    describe_missing_kernel,
    load_input,
    quant_shared_with_data,
    real_values,
)
from qdebug.compare.attribute.band import allowed_error, finite_norm, unit_roundoff_of_values
from qdebug.compare.attribute.code_spans import reference_codes
from qdebug.compare.attribute.declared_format import declared_unit
from qdebug.compare.attribute.grid_rounding import half_step_of_8_bits, is_weight, min_values_for_grid
from qdebug.compare.attribute.integer_tensors import find_tensor_without_scale
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.attribute.rounding import ConstantRounding, float32_slack, scales_by_constants, shared_constants
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
from qdebug.numerics.accumulate import has_same_elements
from qdebug.numerics.affine import fake_quantize
from qdebug.numerics.blocks import stretches
from qdebug.replay.extents import recorded_limits
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import has_kernel
from qdebug.replay.segment import disturb_values, draw_offsets, estimate_spread, run_form, run_real, run_segment

__all__ = ["ReferenceReplay", "exceeds", "select_steps"]

_SEED = 20250411


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noise:
    """A random perturbation of a replay.

    Args:
        rng: Source of the perturbation.
        constants: Unit roundoff of the format of the backend's constants.
        results: Unit roundoff of the format of the backend's results.
        shared: Constants that the reference and the backend share.
        on_codes: Whether each weight and each result is rounded to 8-bit codes of an undeclared scale.
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
        fed: Inputs of the segment by reference tensor, in the model's dimension order.
        names: The same reference tensors by their roots.
        constants: Constants read so far, as stored.
        last: The tensor that the segment ends in.
        place: Sample and step.
        noise: The perturbation, or None.
        saturate: Whether to clip to the range of the reference's codes.
        coded: Whether to round each tensor that is quantized in the reference to its codes.
        rounded: Applied to both factors of each product, or None.
        after: Returns the result to use instead of each real result. Takes the tensor and its values.
        depth: Number of nested replays of nodes that compute a constant.
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
        count_steps: Returns how many steps are stacked along the first axis at a place. None if each place is one step.

    Attributes:
        ref: The reference run.
        be: The backend run.
        pairs: All pairs by backend tensor.
        reference: Formats that the reference's constants were rounded to.
        backend: Formats that the backend's constants were rounded to.
        unequal: Samples in which a backend tensor, compared in a single step, is known to differ from its partner.
    """

    def __init__(
        self,
        ref: IndexedRecording,
        be: IndexedRecording,
        pairs: Sequence[Pair],
        *,
        count_steps: Callable[[tuple[int, int]], int] | None = None,
    ) -> None:
        self.ref, self.be, self._count_steps = ref, be, count_steps
        self.pairs = {pair.backend: pair for pair in pairs}
        views = {pair.reference: pair.reference_view for pair in pairs if pair.reference_view}
        # Layouts of tensors that the reference stores in a different dimension order than the model.
        self._layouts = {
            **layouts_of(ref),
            **views,
        }
        self.reference, self.backend = ConstantRounding(ref), ConstantRounding(be)
        self.unequal = set[tuple[str, int]]()

    @cached_property
    def min_grid_values(self) -> int:
        """How many distinct values determine a grid if the backend stores real values instead of codes, or 0."""
        backend = self.be.recording
        return 0 if computes_with_codes(backend) else min_values_for_grid(backend)

    @cached_property
    def _partners(self) -> Mapping[str, str]:
        """The first backend tensor compared with each reference class, by its root."""
        partners: dict[str, str] = {}
        for pair in self.pairs.values():
            partners.setdefault(self.ref.root(pair.reference), pair.backend)
        return partners

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
            pair: The pair that the segment ends in.
            segment: The segment.
            place: Sample and step.
            noise: The perturbation, or None.
            saturate: Clip intermediate tensors to the ranges of the reference's own codes.
            coded: Round each tensor that is quantized in the reference to its codes.
            instead: Real values that replace some constants.
            rounded: Applied to both factors of each product, or None.
            after: Returns the result to use instead of each real result. Takes the tensor and its values.

        Returns:
            Real values in the dimension order of the comparison.

        Raises:
            KernelError: A node cannot be replayed.
            RecordingError: A constant or an input was not recorded.
        """
        root, layouts = self.ref.root, self._layouts
        names = {root(name): name for name in segment.feeds}
        last = names.get(root(pair.reference), pair.reference)
        replay_pass = _Pass(
            fed={name: self._load_segment_input(name, tensor, place) for name, tensor in segment.feeds.items()},
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
        final = self._run_nodes(segment.nodes, last, replay_pass)
        view = pair.reference_view if last == pair.reference else layouts.get(last)
        if final is None and view == layouts.get(last):
            return replay_pass.fed[last]
        result = into_stored_order(replay_pass.fed[last], layouts.get(last)) if final is None else final
        return in_reference_order(result, view, result.shape)

    def expected(self, entry: PlannedNode, segment: Segment, place: tuple[int, int]) -> np.ndarray:
        """Return the reference's result on the backend's recorded inputs, in the reference's own arithmetic.

        A node's own error is measured against this. For equal inputs, it is the reference's recorded result. For other
        inputs, it is a replay in which each tensor that is quantized in the reference is rounded to its codes.

        Args:
            entry: The compared tensor that the segment ends in.
            segment: The segment.
            place: Sample and step.

        Returns:
            Real values in the dimension order of the comparison.

        Raises:
            KernelError: A node cannot be replayed.
            RecordingError: A constant or an input was not recorded.
        """
        pair = entry.pair
        is_equal, replayed = self.reads_equal(segment, place), None
        if not is_equal.all():
            codes = reference_codes(self.ref.recording.graph, self.be.recording.graph, entry)
            replayed = fake_quantize(self.values(pair, segment, place, coded=True), codes)
            if not is_equal.any():
                return replayed
        recorded_values = real_values(self.ref.recording, pair.reference, place)
        expected = in_reference_order(recorded_values, pair.reference_view, recorded_values.shape)
        return expected if replayed is None else select_steps(is_equal, expected, replayed)

    def reads_equal(self, segment: Segment, place: tuple[int, int]) -> np.ndarray:
        """Return whether all inputs of a segment have equal real values on both sides.

        Returns:
            A boolean for each step that is stacked at the place, of shape (steps,).
        """
        reference, count = self.ref.recording, 1 if self._count_steps is None else self._count_steps(place)
        is_equal = np.ones(count, bool)
        if segment.has_extra_inputs or not all(reference.has(name, *place) for name in segment.feeds):
            return ~is_equal
        if any((tensor, place[0]) in self.unequal for tensor in segment.feeds.values()):
            return ~is_equal
        for name, tensor in segment.feeds.items():
            try:
                backend = self._load_segment_input(name, tensor, place)
            except (KernelError, NotRecordedError):
                return np.zeros(count, bool)
            reference_values = real_values(reference, name, place)
            reference_values = in_reference_order(reference_values, self._layouts.get(name), reference_values.shape)
            if reference_values.shape != backend.shape:
                return np.zeros(count, bool)
            is_same = reference_values == backend
            if reference_values.dtype.kind == "f":
                is_same |= np.isnan(reference_values) & np.isnan(backend)
            is_equal &= np.all(np.reshape(is_same, (count, -1)), axis=1)
            if not is_equal.any():
                break
        return is_equal

    def with_rounded_weight(self, pair: Pair, segment: Segment, place: tuple[int, int]) -> np.ndarray | None:
        """Replay the reference's nodes with the backend's weight, if it is a rounded version of the reference's weight.

        This gives the exact effect of weight rounding on sums, whose errors add up if there are many small weights and
        the data have one sign.

        Returns:
            The result, or None unless each side has one product and their weights provably differ only by rounding.
        """
        if segment.products is None:
            return None
        product, backend_product = segment.products
        reference_form, _ = real_form(product, self.ref.recording.graph.opset)
        backend_form, _ = real_form(backend_product, self.be.recording.graph.opset)
        if self.weight_error(reference_form, backend_form, segment.nodes_except(product)) is None:
            return None
        weight = real_values(self.be.recording, backend_form.inputs[1])
        if bool(backend_form.attrs.get("transB")) != bool(reference_form.attrs.get("transB")):
            weight = np.swapaxes(weight, -1, -2)
        return self.values(pair, segment, place, instead={reference_form.inputs[1]: weight})

    def weight_error(self, reference_node: Node, backend_node: Node, other_nodes: Sequence[Node]) -> np.ndarray | None:
        """Return the error of each element of the backend's weight, if every element lies within half a step.

        It is 0 if the reference was rounded in the same way. The less error rounding explains, the smaller an
        unexplained error can be detected.

        Args:
            reference_node: The reference's product.
            backend_node: The backend node's real-valued form.
            other_nodes: The other reference nodes of the segment.

        Returns:
            An array in the shape of the backend's weight, or None if unknown.
        """
        sides = (self.ref, reference_node), (self.be, backend_node)
        if scales_by_constants(self.ref, other_nodes):
            return None
        for run, node in sides:
            name = node.inputs[1] if len(node.inputs) > 1 else ""
            if not name or not run.folds(name) or not run.recording.has(name):
                return None
        reference_weight, backend_values = (real_values(run.recording, node.inputs[1]) for run, node in sides)
        if (
            bool(backend_node.attrs.get("transB")) != bool(reference_node.attrs.get("transB"))
            and reference_weight.ndim > 1
        ):
            reference_weight = np.swapaxes(reference_weight, -1, -2)
        if backend_values.shape != reference_weight.shape:
            return None
        error = np.abs(backend_values.astype(np.float64) - reference_weight) + FLOAT32_STORED_REL_ERROR * np.abs(
            reference_weight
        )
        half = self.backend.half_steps(backend_node.inputs[1])
        if np.any(error > (1 + LSB_SLACK) * half + 2 * float32_slack(reference_weight)):
            return None
        return np.asarray(np.minimum(error, half), half.dtype)

    def rounding_noise(
        self, pair: Pair, segment: Segment, place: tuple[int, int], *, on_codes: bool = False
    ) -> np.ndarray:
        """Estimate the error of each element caused by rounding sums, and constants on either side.

        Includes the clipping of intermediate tensors to the ranges of the reference's codes, which the backend may
        lack.

        Args:
            pair: The pair that the segment ends in.
            segment: The segment.
            place: Sample and step.
            on_codes: Whether each weight and each result is rounded to 8-bit codes of an undeclared scale.

        Returns:
            Root mean squares over a few replays, in the dimension order of the comparison.

        Raises:
            KernelError: A node cannot be replayed.
            RecordingError: A constant or an input was not recorded.
        """
        plain = self.values(pair, segment, place)
        names = {name for node in segment.own for name in node.inputs if name and self.be.folds(name)}
        noise = _Noise(
            rng=np.random.default_rng(_SEED),
            constants=max(self.backend.coarsest_unit_roundoff(names), declared_unit(self.be.recording)),
            results=max(
                unit_roundoff_of_values(self.be.recording.load(pair.backend, *place)), declared_unit(self.be.recording)
            ),
            shared=shared_constants((self.ref, self.be), segment),
            on_codes=on_codes,
        )
        deviation = estimate_spread(plain, lambda: self.values(pair, segment, place, noise=noise))
        if all(code_span(self.ref, name) is None for node in segment.nodes for name in node.outputs if name):
            return deviation
        unsaturated = self.values(pair, segment, place, saturate=False)
        with np.errstate(invalid="ignore", over="ignore"):
            clipping_error = np.nan_to_num(np.subtract(unsaturated, plain, dtype=np.float64), nan=0, posinf=0, neginf=0)
        return np.asarray(np.hypot(deviation, clipping_error))

    def _load_segment_input(self, name: str, tensor: str, place: tuple[int, int]) -> np.ndarray:
        """Return the backend's values of a segment's input, in the model's dimension order."""
        entry = self.pairs[tensor]
        unscaled = find_tensor_without_scale(self.ref.recording.graph, self.be.recording.graph, entry)
        if unscaled is not None:
            raise NoScaleError(f"No scale was recorded for its input {unscaled!r}.")
        shape = permuted_shape(self.ref.recording.load(entry.reference, *place).shape, entry.reference_view)
        shared = in_reference_order(real_values(self.be.recording, tensor, place), entry.backend_view, shape)
        if shared.shape != shape and has_same_elements(shared.shape, shape):
            shared = shared.reshape(shape)  # the nodes' axes refer to this shape, dimensions of size 1 included
        if entry.reference_view == self._layouts.get(name):
            return shared
        shared = into_stored_order(shared, entry.reference_view)
        return in_reference_order(shared, self._layouts.get(name), shared.shape)

    def _run_nodes(self, nodes: tuple[Node, ...], output: str, replay_pass: _Pass) -> np.ndarray | None:
        opset = self.ref.recording.graph.opset
        with recorded_limits(self.ref.recording, replay_pass.place):
            return run_segment(
                nodes, output, opset, partial(self._read_input, replay_pass), partial(self._run_node, replay_pass)
            )

    def _read_input(self, replay_pass: _Pass, form: Node, name: str) -> np.ndarray:
        """Return an input that no earlier node of the segment computes, as the reference stores it."""
        recording, classes = self.ref.recording, self.ref
        source = name if name in replay_pass.fed else replay_pass.names.get(classes.root(name), "")
        takes_codes, has_no_quant = operators.of(form.op).takes_codes, recording.graph.tensors[name].quant is None
        if (takes_codes and (not source or classes.folds(name))) or (
            has_no_quant and quant_shared_with_data(recording, form, name)
        ):
            return load_input(recording, (0, 0), form, name)
        if source:
            values = (
                replay_pass.fed[source] if source == name else self._reshape_as_recorded(name, replay_pass.fed[source])
            )
            return into_stored_order(values, self._layouts.get(name))
        if name not in replay_pass.constants and classes.depends_on_shapes(name):
            replay_pass.constants[name] = self._load_shape_tensor(name, replay_pass)
        if name not in replay_pass.constants:
            is_valued = name in operators.valued_inputs(form)
            replay_pass.constants[name] = self._load_constant(
                name, replay_pass if is_valued else replace(replay_pass, noise=None)
            )
        return replay_pass.constants[name]

    def _load_shape_tensor(self, name: str, replay_pass: _Pass) -> np.ndarray:
        """Return a tensor computed only from shapes, as recorded by the backend if it was compared."""
        partner = self._partners.get(self.ref.root(name))
        if partner is None or not self.be.recording.has(partner, *replay_pass.place):
            return real_values(self.ref.recording, name, replay_pass.place)
        return self._load_segment_input(name, partner, replay_pass.place)

    def _reshape_as_recorded(self, name: str, array: np.ndarray) -> np.ndarray:
        """Reshape values to the recorded shape of a tensor. A runtime may drop and restore a batch axis."""
        if not self.ref.recording.has(name):
            return array
        shape = permuted_shape(shape_of(self.ref.recording, name), self._layouts.get(name))
        return in_reference_order(array, None, shape)

    def _run_node(
        self, replay_pass: _Pass, node: Node, form: Node, opset: Mapping[str, int], inputs: Mapping[str, np.ndarray]
    ) -> Mapping[str, np.ndarray]:
        """Compute a reference node on tensors in the dimension order of the reference."""
        row, noise, source = operators.of(node.op), replay_pass.noise, next(iter(node.inputs), "")
        if row.casts and self.ref.passed_on_input(node) == source and not self.ref.folds(source):
            return {node.outputs[0]: inputs[source]}  # a cast to another float format keeps the real numbers
        if row.takes_codes:
            if noise is None:
                return run_real(node, form, opset, inputs)
            half = {name: 0.0 if name in noise.shared else 0.5 for name in node.inputs[1:]}
            return run_real(
                node,
                form,
                opset,
                inputs,
                disturbed=lambda name, size, _: draw_offsets(noise.rng, size, half.get(name, 0.0)),
            )
        if not has_kernel(form.op, form.domain):
            raise NoKernelError(describe_missing_kernel(node))
        results = dict(run_form(node, form, opset, _round_factors(form, inputs, replay_pass.rounded)))
        for name, array in results.items():
            if array.dtype.kind != "f":
                continue
            if noise is not None and not operators.of(form.op).rounds_nothing:
                allowed_norm = allowed_error(form, inputs, array, opset, FLOAT32_UNIT_ROUNDOFF)
                results[name] = _add_random_errors(array, allowed_norm, noise)
                if noise.on_codes:
                    results[name] = disturb_values(noise.rng, results[name], half_step_of_8_bits(array))
            if replay_pass.after is not None:
                results[name] = replay_pass.after(name, results[name])
            span = code_span(self.ref, name)
            if replay_pass.coded:
                results[name] = fake_quantize(results[name], self.ref.recording.graph.tensors[name].quant)
            elif span is not None:  # the codes replace a Relu or Clip
                results[name] = _clip_to_codes(
                    results[name], span, saturate=replay_pass.saturate or name == replay_pass.last
                )
        return results

    def _load_constant(self, name: str, replay_pass: _Pass) -> np.ndarray:
        noise = replay_pass.noise
        real_values_of_constant = real_values(self.ref.recording, name)
        if noise is not None and noise.on_codes and is_weight(real_values_of_constant):
            return disturb_values(noise.rng, real_values_of_constant, half_step_of_8_bits(real_values_of_constant))
        if noise is None or real_values_of_constant.dtype.kind != "f" or name in noise.shared:
            return real_values_of_constant
        computed = self._replay_constant(name, replay_pass, noise) if noise.constants > FLOAT32_UNIT_ROUNDOFF else None
        if computed is not None:
            return computed
        steps = self.reference.half_steps(name)
        if noise.constants > FLOAT32_UNIT_ROUNDOFF:
            # a power of two, for example, is exact in any format
            inexact = ~_is_exact_in(real_values_of_constant, noise.constants)
            steps = np.maximum(steps, np.abs(real_values_of_constant) * noise.constants * inexact)
        return disturb_values(noise.rng, real_values_of_constant, steps)

    def _replay_constant(self, name: str, replay_pass: _Pass, noise: _Noise) -> np.ndarray | None:
        """Replay the reference nodes that compute a constant, or return None if there are none or one has no kernel.

        A backend with a narrow format rounds the inputs of the constant and each intermediate result. The cosine of a
        large angle is then off by far more than its own last digit.
        """
        node = self.ref.graph.producer(name)
        if node is None or operators.plain(node).changes_format or replay_pass.depth >= COMPUTED_CONSTANT_MAX_NODES:
            return None
        rounded = replace(noise, results=max(noise.results, noise.constants))
        try:
            return self._run_nodes((node,), name, replace(replay_pass, noise=rounded, depth=replay_pass.depth + 1))
        except (KernelError, NotRecordedError):
            return None


def _round_factors(
    form: Node, inputs: Mapping[str, np.ndarray], rounded: Callable[[np.ndarray], np.ndarray] | None
) -> Mapping[str, np.ndarray]:
    """Round both factors of a product."""
    if rounded is None or not operators.of(form.op).product:
        return inputs
    return {**inputs, **{name: rounded(inputs[name]) for name in form.inputs[:2]}}


def _is_exact_in(values: np.ndarray, unit: float) -> np.ndarray:
    """Return which values a float format with a given unit roundoff represents exactly."""
    digits = np.frexp(np.asarray(values, np.float64))[0] / unit
    return np.asarray(digits == np.rint(digits))


def _clip_to_codes(values: np.ndarray, span: tuple[float, float], *, saturate: bool) -> np.ndarray:
    """Clamp real values to the range of codes, or only to a minimum of zero if saturation is off."""
    low, high = span
    if saturate:
        return np.asarray(np.clip(values, low, high))
    return np.asarray(np.maximum(values, 0)) if low == 0 else values


def _add_random_errors(values: np.ndarray, error_norm: float, noise: _Noise) -> np.ndarray:
    """Add random errors of a given norm to a node's results, and rounding errors of their format."""
    if noise.results > FLOAT32_UNIT_ROUNDOFF:
        error_norm += noise.results * finite_norm(values)
    deviation, disturbed = error_norm / np.sqrt(max(values.size, 1)), np.empty(values.shape, values.dtype)
    for out, chunk in stretches(disturbed, values):
        np.add(chunk, (noise.rng.standard_normal(chunk.size) * deviation).astype(chunk.dtype), out=out)
    return disturbed


def select_steps(is_chosen: np.ndarray, values: np.ndarray, other_values: np.ndarray) -> np.ndarray:
    """Return the values of the chosen steps, and the other values of the remaining ones.

    Args:
        is_chosen: A boolean for each step, of shape (steps,).
        values: Values of all steps, stacked along the first axis.
        other_values: The same of another source.
    """
    rows = np.repeat(is_chosen, len(values) // len(is_chosen))
    return np.where(rows.reshape(-1, *[1] * (values.ndim - 1)), values, other_values.reshape(values.shape))


def exceeds(difference: np.ndarray, rounding_noise: np.ndarray) -> bool:
    """Return whether a difference exceeds rounding, either overall or in one slice along any dimension.

    Args:
        difference: The difference of each element.
        rounding_noise: The estimated rounding error, in the same shape.
    """
    if finite_norm(difference) > finite_norm(rounding_noise):
        return True
    squares = np.nan_to_num(np.asarray(difference, np.float64)) ** 2, rounding_noise**2
    for axis, extent in enumerate(difference.shape):
        if extent > 1 and difference.size // extent >= SLICE_MIN_ELEMENTS:
            other_axes = tuple(dimension for dimension in range(difference.ndim) if dimension != axis)
            squares_of_slice, allowed_squares_of_slice = (part.sum(other_axes) for part in squares)
            if np.any(
                squares_of_slice
                > SLICE_MAX_SQUARE_RATIO * np.maximum(allowed_squares_of_slice, allowed_squares_of_slice.mean())
            ):
                return True
    return False
