"""Replays parts of a backend's graph that quantize their data at run time, on real numbers and on its own constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from qdebug.compare.align.layouts import in_reference_order
from qdebug.compare.align.pairs import Pair
from qdebug.compare.align.value_classes import Run
from qdebug.compare.attribute.backend_replay import compute
from qdebug.compare.attribute.dynamic import DynamicNoise, quantizes_data, run_dynamic
from qdebug.compare.attribute.dynamic_steps import DynamicSteps
from qdebug.compare.attribute.rounding import Rounding, real_values
from qdebug.compare.attribute.segments import Segment
from qdebug.errors import KernelError, RecordingError
from qdebug.model import Node, operators
from qdebug.model.thresholds.attribution import (
    DISTURBED_REPLAYS,
    DISTURBED_REPLAYS_OF_SMALL,
    DISTURBED_SMALL_MAX_ELEMENTS,
)
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import has_kernel

__all__ = ["DynamicReplay"]

_SEED = 20250412


class DynamicReplay:
    """Replays segments.

    Args:
        be: The backend run.
        rounding: What its constants were rounded to.

    Attributes:
        steps: Holds each node against its own recorded inputs.
    """

    def __init__(self, be: Run, rounding: Rounding) -> None:
        self._be, self._rounding = be, rounding
        self.steps = DynamicSteps(be)

    def handles(self, pair: Pair, segment: Segment) -> bool:
        """Tell whether a segment's own nodes compute with codes of a scale chosen at run time, and can be replayed.

        The scale and the zero point themselves are computed like any other value.

        Args:
            pair: The pair that the segment leads to.
            segment: The segment.
        """
        if not any(operators.of(node.op).takes_codes for node in segment.own):
            return False
        if operators.of(segment.own[-1].op).gives_scale and pair.backend in segment.own[-1].outputs[1:]:
            return False
        for node in segment.own:
            form, _ = real_form(node, self._be.recording.graph.opset)
            if not operators.of(node.op).takes_codes and not has_kernel(form.op, form.domain):
                return False
        return True

    def rounds_data(self, segment: Segment) -> bool:
        """Tell whether data are rounded to codes inside a segment."""
        return any(quantizes_data(node) for node in segment.own)

    def values(self, pair: Pair, segment: Segment, shape: tuple[int, ...], place: tuple[int, int]) -> np.ndarray:
        """Replay a segment's own nodes.

        Args:
            pair: The pair that it leads to.
            segment: The segment.
            shape: The shape of the reference's tensor, its dimensions in the order that the pair is compared in.
            place: Sample and step.

        Returns:
            Real values in that order.

        Raises:
            KernelError: A node cannot be replayed.
            RecordingError: A constant or an input was not recorded.
        """
        return self._values(pair, segment, shape, place, None)

    def of_data(self, pair: Pair, segment: Segment, shape: tuple[int, ...], place: tuple[int, int]) -> np.ndarray:
        """Estimate the error of each element that rounding data to codes makes, see `values`."""
        return self._spread(pair, segment, shape, place, lambda rng: DynamicNoise(rng=rng))

    def of_weights(
        self, pair: Pair, segment: Segment, shape: tuple[int, ...], place: tuple[int, int], *, any_scale: bool = False
    ) -> np.ndarray:
        """Estimate the error of each element that rounding weights to codes makes, see `values`.

        Args:
            pair: The pair that the segment leads to.
            segment: The segment.
            shape: As for `values`.
            place: As for `values`.
            any_scale: Of whatever scale; otherwise of none that is far larger than the weight needs.
        """
        weights = self._half_codes(segment, any_scale=any_scale)
        return self._spread(pair, segment, shape, place, lambda rng: DynamicNoise(rng=rng, data=False, weights=weights))

    def coarse(self, segment: Segment) -> tuple[str, int, int] | None:
        """Give the weight whose scale is far larger than its values need, how many codes it uses and of how many."""
        exact, plain = (self._half_codes(segment, any_scale=flag) for flag in (True, False))
        for name in exact:
            levels = self._rounding.levels(name)
            if levels is not None and np.any(np.asarray(plain[name]) < np.asarray(exact[name])):
                return name, *levels
        return None

    def _half_codes(self, segment: Segment, *, any_scale: bool) -> Mapping[str, np.ndarray | float]:
        """Give half a step, in codes, of each weight of a segment's own nodes."""
        found: dict[str, np.ndarray | float] = {}
        for node in segment.own:
            for name in node.inputs if operators.of(node.op).takes_codes else ():
                if not name or not self._be.classes.folds(name) or not self._be.recording.has(name):
                    continue
                quant = self._be.recording.graph.tensors[name].quant
                if quant is not None:
                    whole = self._rounding.half_steps(name, any_scale=True)
                    half = self._rounding.half_steps(name, any_scale=any_scale)
                    found[name] = np.asarray(np.divide(half, 2 * whole, out=np.zeros_like(whole), where=whole > 0))
                elif self._be.recording.load(name).ndim > 1:
                    found[name] = 0.5
        return found

    def _spread(
        self,
        pair: Pair,
        segment: Segment,
        shape: tuple[int, ...],
        place: tuple[int, int],
        noise: Callable[[np.random.Generator], DynamicNoise],
    ) -> np.ndarray:
        """Give the root mean squares of what a few disturbed replays are off."""
        plain = self._values(pair, segment, shape, place, None)
        rng = np.random.default_rng(_SEED)
        runs = DISTURBED_REPLAYS if plain.size > DISTURBED_SMALL_MAX_ELEMENTS else DISTURBED_REPLAYS_OF_SMALL
        squares = np.zeros(plain.shape, np.float64)
        for _ in range(runs):
            moved = self._values(pair, segment, shape, place, noise(rng))
            with np.errstate(invalid="ignore", over="ignore"):
                difference = np.subtract(moved, plain, dtype=np.float64)
            squares += np.nan_to_num(difference, nan=0, posinf=0, neginf=0) ** 2 / runs
        return np.sqrt(squares)

    def _values(
        self,
        pair: Pair,
        segment: Segment,
        shape: tuple[int, ...],
        place: tuple[int, int],
        noise: DynamicNoise | None,
    ) -> np.ndarray:
        known: dict[str, np.ndarray] = {}
        opset = self._be.recording.graph.opset
        for node in segment.own:
            if operators.of(node.op).takes_codes:
                known |= run_dynamic(node, opset, self._fed(node, node, known, place), noise)
                continue
            form, versions = real_form(node, opset)
            known |= compute(node, form, versions, self._fed(node, form, known, place))
        if pair.backend not in known:
            raise KernelError(f"a replay does not give {pair.backend!r}")
        return in_reference_order(known[pair.backend], pair.backend_view, shape)

    def _fed(
        self, node: Node, form: Node, known: Mapping[str, np.ndarray], place: tuple[int, int]
    ) -> dict[str, np.ndarray]:
        """Give what a node reads: what the replay made, or as it was recorded."""
        recording = self._be.recording
        values: dict[str, np.ndarray] = {}
        for name in filter(None, form.inputs):
            if name in known:
                values[name] = known[name]
            elif not operators.of(node.op).takes_codes:
                values[name] = real_values(recording, name, *place)
            elif recording.has(name, *place):
                values[name] = recording.load(name, *place)
            else:
                raise RecordingError(f"Tensor {name!r} was not recorded.")
        return values
