"""Replays, on real numbers, nodes whose inputs are quantized by the range that their data happen to have.

DynamicQuantizeLinear and the operators that do its work inside themselves choose a scale at run time. Their sums stand
for those of an ordinary product of real data and the weights that the codes stand for. In such a replay data keep their
real values, with a scale of 1 and a zero point of 0, and every other operator does what it always does. What rounding
the data to codes adds is seen by moving them at random within a few times what it moves them.

Holds each node of a part that quantizes its data at run time against its own recorded inputs, element by element.
Rounding data to codes makes errors that a wrong row can hide in. But the codes are there, or follow from the data: the
sums that they give are whole numbers, of which there is one right value each, and what scales them rounds once. So each
node whose inputs were recorded is computed as it is, codes and all, and its own elements are compared with that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.layouts import in_reference_order
from qdebug.compare.align.pairs import Pair
from qdebug.compare.attribute.backend_replay import compute
from qdebug.compare.attribute.band import beyond_own_terms
from qdebug.compare.attribute.rounding import Rounding, real_values
from qdebug.compare.attribute.segments import Segment
from qdebug.errors import KernelError, RecordingError
from qdebug.model import Node, operators
from qdebug.model.thresholds.attribution import (
    DISTURBANCE_HALF_STEPS,
    DISTURBED_REPLAYS,
    DISTURBED_REPLAYS_OF_SMALL,
    DISTURBED_SMALL_MAX_ELEMENTS,
    DYNAMIC_TIE_REL_DISTANCE,
)
from qdebug.model.thresholds.rounding import ELEMENTWISE_ROUNDOFFS, FLOAT32_UNIT_ROUNDOFF
from qdebug.replay.blockwise_weight import blockwise_weight, rounds_data
from qdebug.replay.kernels.quantize import dynamic_quantize
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import has_kernel, run_node

__all__ = ["DynamicNoise", "DynamicReplay", "DynamicSteps", "WrongStep", "quantizes_data", "run_dynamic"]

_CODES = 255
"""Steps that the range of the data is divided into (ONNX, DynamicQuantizeLinear)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicNoise:
    """What a replay is disturbed by.

    Args:
        rng: Where the disturbances come from.
        data: Move data within the codes that they would be rounded to.
        weights: Half a step by name of a weight, in codes; those without one stay.
    """

    rng: np.random.Generator
    data: bool = True
    weights: Mapping[str, np.ndarray | float] = field(default_factory=lambda: MappingProxyType({}))


def quantizes_data(node: Node) -> bool:
    """Tell whether a node chooses a scale by the data it reads."""
    return operators.of(node.op).chooses_scale or rounds_data(node)


def run_dynamic(
    node: Node, opset: Mapping[str, int], values: Mapping[str, np.ndarray], noise: DynamicNoise | None = None
) -> dict[str, np.ndarray]:
    """Compute the outputs of a node on real numbers.

    Args:
        node: A node whose operator takes codes.
        opset: Version of each operator set.
        values: Its inputs: real data, or codes with their scale and zero point; constants as they are stored.
        noise: What to disturb it by; None for nothing.

    Raises:
        KernelError: The inputs do not fit it.
    """
    call = _Call(node, opset, values, noise)
    made = _KERNELS[node.op](call)
    return {name: array for name, array in zip(node.outputs, made, strict=False) if name}


class _Call:
    """A node with its inputs."""

    def __init__(
        self, node: Node, opset: Mapping[str, int], values: Mapping[str, np.ndarray], noise: DynamicNoise | None
    ) -> None:
        self.node, self._opset, self._values, self._noise = node, opset, values, noise

    def optional(self, slot: int) -> np.ndarray | None:
        name = self.node.inputs[slot] if slot < len(self.node.inputs) else ""
        return self._values[name] if name else None

    def array(self, slot: int) -> np.ndarray:
        found = self.optional(slot)
        if found is None:
            raise KernelError(f"Node {self.node.name!r} ({self.node.op}) has no input {slot}.")
        return found

    def data(self, slot: int, zero: int | None = None) -> np.ndarray:
        """Give data as they are, moved within codes if the node quantizes them and rounding is looked at."""
        x = self.array(slot).astype(np.float32)
        if zero is not None:
            point = self.optional(zero)
            return x if point is None else np.asarray(x - _by_rows(point).astype(np.float32))
        noise = self._noise
        if noise is None or not noise.data:
            return x
        step = (np.max(x, initial=0) - np.min(x, initial=0)) / np.float32(_CODES)
        return np.asarray(
            x
            + noise.rng.uniform(-DISTURBANCE_HALF_STEPS, DISTURBANCE_HALF_STEPS, x.shape).astype(np.float32) * step / 2
        )

    def data_in_blocks(self, slot: int, block: int) -> np.ndarray:
        """Give data as they are, moved within codes that each block along the last axis has a scale of its own for."""
        x = self.array(slot).astype(np.float32)
        noise = self._noise
        if noise is None or not noise.data:
            return x
        starts = np.arange(0, x.shape[-1], block)
        reach = np.repeat(np.maximum.reduceat(np.abs(x), starts, axis=-1), block, axis=-1)[..., : x.shape[-1]]
        return np.asarray(
            x
            + noise.rng.uniform(-DISTURBANCE_HALF_STEPS, DISTURBANCE_HALF_STEPS, x.shape).astype(np.float32)
            * reach
            / _CODES
        )

    def blockwise(self, slot: int) -> np.ndarray:
        """Give a weight of packed codes as real values, moved within a code if its rounding is looked at."""
        codes, scales = blockwise_weight(self.node, self._values)
        half = 0.0 if self._noise is None else self._noise.weights.get(self.node.inputs[slot], 0.0)
        if self._noise is not None and np.any(half):
            codes = codes + (
                self._noise.rng.uniform(-DISTURBANCE_HALF_STEPS, DISTURBANCE_HALF_STEPS, codes.shape) * half
            ).astype(np.float32)
        return np.asarray(codes * scales)

    def weight(self, slot: int, zero: np.ndarray | None, *, moved: bool = False) -> np.ndarray:
        """Give the codes of a weight less their zero point, moved within a code if its rounding is looked at.

        Args:
            slot: Its place among the inputs.
            zero: The zero point, in a shape that broadcasts.
            moved: Move it within a code where the rounding of data is looked at, too.
        """
        codes = self.array(slot).astype(np.float32)
        codes = codes if zero is None else codes - zero.astype(np.float32)
        noise = self._noise
        if noise is None:
            return np.asarray(codes)
        half = noise.weights.get(self.node.inputs[slot], 0.5 if moved and noise.data else 0.0)
        if not np.any(half):
            return np.asarray(codes)
        return np.asarray(
            codes
            + (noise.rng.uniform(-DISTURBANCE_HALF_STEPS, DISTURBANCE_HALF_STEPS, codes.shape) * half).astype(
                np.float32
            )
        )

    def standard(
        self, op: str, inputs: Mapping[str, np.ndarray | None], outputs: tuple[str, ...]
    ) -> tuple[np.ndarray, ...]:
        """Run a standard operator under this node's attributes."""
        names = tuple(name if array is not None else "" for name, array in inputs.items())
        node = replace(self.node, op=op, domain="", inputs=names, outputs=outputs)
        opset = {**self._opset, "": max(self._opset.get("", 13), 13)}
        given = {name: array for name, array in inputs.items() if array is not None}
        made = run_node(node, given, opset)
        return tuple(made[name] for name in outputs if name)


def _by_rows(point: np.ndarray) -> np.ndarray:
    """Shape one zero point, or one for each row, to broadcast over data."""
    if point.size == 1:
        return point.reshape(())
    return point.reshape(-1, 1) if point.ndim == 1 else point


def _by_columns(point: np.ndarray | None) -> np.ndarray | None:
    """Shape one zero point, or one for each column, to broadcast over a matrix."""
    return point.reshape(()) if point is not None and point.size == 1 else point


def _by_filters(point: np.ndarray | None, rank: int) -> np.ndarray | None:
    """Shape one zero point, or one for each filter, to broadcast over filters."""
    if point is None or point.size == 1:
        return None if point is None else point.reshape(())
    return point.reshape(-1, *(1,) * (rank - 1))


def _by_gates(values: np.ndarray) -> np.ndarray:
    """Shape one value, or one for each direction or gate, to broadcast over (directions, inputs, gates)."""
    if values.size == 1:
        return values.reshape(())
    return values.reshape(values.shape[0], 1, -1)


def _quantize(call: _Call) -> tuple[np.ndarray, ...]:
    return call.data(0), np.ones((), np.float32), np.zeros((), np.uint8)


def _convolve(call: _Call) -> tuple[np.ndarray, ...]:
    filters = call.weight(1, _by_filters(call.optional(3), call.array(1).ndim))
    return call.standard("Conv", {"x": call.data(0, 2), "w": filters}, ("y",))


def _multiply(call: _Call) -> tuple[np.ndarray, ...]:
    return (np.matmul(call.data(0, 2), call.weight(1, _by_columns(call.optional(3)))),)


def _multiply_and_scale(call: _Call) -> tuple[np.ndarray, ...]:
    product = np.matmul(call.data(0, 4), call.weight(1, _by_columns(call.optional(5))))
    scale = call.array(2).astype(np.float32) * call.array(3).astype(np.float32)
    return (_biased(product * scale, call.optional(6)),)


def _quantize_and_multiply(call: _Call) -> tuple[np.ndarray, ...]:
    product = np.matmul(call.data(0), call.weight(1, _by_columns(call.optional(3))))
    return (_biased(product * call.array(2).astype(np.float32), call.optional(4)),)


def _multiply_blocks(call: _Call) -> tuple[np.ndarray, ...]:
    block = call.node.attrs.get("block_size") if rounds_data(call.node) else None
    data = call.data_in_blocks(0, block) if isinstance(block, int) else call.array(0).astype(np.float32)
    return (_biased(np.matmul(data, call.blockwise(1)), call.optional(5)),)


def _biased(product: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    return np.asarray(product if bias is None else product + bias)


def _remember(call: _Call) -> tuple[np.ndarray, ...]:
    """Run an LSTM whose weights are stored with inputs first, unlike the standard operator's.

    Its state is rounded to codes at every step; that is as large an error as moving what it meets within a code.
    """
    parts: dict[str, np.ndarray | None] = {"X": call.data(0)}
    for name, slot, scale, zero in (("W", 1, 8, 9), ("R", 2, 10, 11)):
        point = call.optional(zero)
        codes = call.weight(slot, None if point is None else _by_gates(point), moved=name == "R")
        parts[name] = np.swapaxes(codes * _by_gates(call.array(scale).astype(np.float32)), 1, 2)
    parts.update(zip(("B", "lengths", "h", "c", "P"), map(call.optional, range(3, 8)), strict=True))
    outputs = tuple(f"y{slot}" if name else "" for slot, name in enumerate(call.node.outputs))
    made = iter(call.standard("LSTM", parts, outputs))
    return tuple(next(made) if name else np.zeros(0) for name in outputs)


_KERNELS: Mapping[str, Callable[[_Call], tuple[np.ndarray, ...]]] = MappingProxyType(
    {
        "DynamicQuantizeLinear": _quantize,
        "ConvInteger": _convolve,
        "MatMulInteger": _multiply,
        "MatMulIntegerToFloat": _multiply_and_scale,
        "DynamicQuantizeMatMul": _quantize_and_multiply,
        "DynamicQuantizeLSTM": _remember,
        "MatMulNBits": _multiply_blocks,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongStep:
    """A node some of whose elements its recorded inputs do not account for.

    Args:
        node: The node.
        wrong: How many elements.
        count: Of how many.
    """

    node: Node
    wrong: int
    count: int

    @property
    def few(self) -> bool:
        """Whether most elements are right, so that the arithmetic is known; another one would change most of them."""
        return 2 * self.wrong <= self.count

    def said(self, last: Node) -> str:
        """Say it in a clause about a node, which is that one or the last one of the part."""
        what = "sums" if operators.of(self.node.op).sums_codes else "elements"
        who = "it" if self.node is last else f"{self.node.op} {self.node.name!r}"
        return f"{who} gives {self.wrong} of {self.count} {what} that are not those of its inputs"


class DynamicSteps:
    """Finds the first wrong node of a part.

    Args:
        be: The backend run.
    """

    def __init__(self, be: IndexedRecording) -> None:
        self._be = be

    def wrong(self, segment: Segment, place: tuple[int, int]) -> WrongStep | None:
        """Give the first of a segment's own nodes that its recorded inputs do not account for; None if all are right.

        A node whose inputs or outputs were not recorded, or that has no kernel, is passed over.

        Args:
            segment: The segment.
            place: Sample and step.
        """
        for node in segment.own:
            try:
                found = self._of_node(node, place)
            except (KernelError, RecordingError):
                continue
            if found is not None and found.wrong:
                return found
        return None

    def _of_node(self, node: Node, place: tuple[int, int]) -> WrongStep | None:
        recording = self._be.recording
        outputs = [name for name in node.outputs if name and recording.has(name, *place)]
        if not outputs or recording.graph.is_constant(outputs[0]) or not (node.inputs and node.inputs[0]):
            return None
        row = operators.of(node.op)
        if not row.takes_codes:
            return self._of_plain(node, outputs[0], place)
        known = row.sums_codes or row.scales_sums or row.gives_scale  # to the last unit, of their codes
        if not known or not has_kernel(node.op, node.domain):
            return None
        values = {name: recording.load(name, *place) for name in node.inputs if name}
        recorded = recording.load(outputs[0], *place)
        if row.gives_scale:
            return self._of_codes(node, values, place)
        if row.sums_codes and recorded.dtype.kind != "i":
            return None  # shown as real values
        if not row.chooses_scale and values[node.inputs[0]].dtype.kind not in "iu":
            return None
        made = run_node(node, values, recording.graph.opset)[outputs[0]]
        if made.shape != recorded.shape:
            return None
        with np.errstate(invalid="ignore"):  # what is not finite is judged before
            off = np.nan_to_num(np.abs(np.subtract(made, recorded, dtype=np.float64)), nan=0.0)
        allowed = 0.0 if row.sums_codes else _allowed(node, values, made)
        return WrongStep(node=node, wrong=int(np.count_nonzero(off > allowed)), count=made.size)

    def _of_codes(self, node: Node, values: Mapping[str, np.ndarray], place: tuple[int, int]) -> WrongStep | None:
        """Hold codes against the data under the scale that was recorded with them; a tie may go either way."""
        recording = self._be.recording
        names = node.outputs[:3]
        if len(names) < 3 or not all(recording.has(name, *place) for name in names):
            return None
        codes, scale, zero = (recording.load(name, *place) for name in names)
        data = values[node.inputs[0]]
        if codes.dtype.kind not in "iu" or not scale.size == zero.size == 1 or not float(scale.reshape(())):
            return None
        steps = data.astype(np.float64) / float(scale.reshape(())) + int(zero.reshape(()))
        off = np.nan_to_num(np.abs(np.clip(steps, 0, 255) - codes), nan=0.0)
        return WrongStep(
            node=node, wrong=int(np.count_nonzero(off > 0.5 + DYNAMIC_TIE_REL_DISTANCE * 256)), count=codes.size
        )

    def _of_plain(self, node: Node, output: str, place: tuple[int, int]) -> WrongStep | None:
        recording = self._be.recording
        form, opset = real_form(node, recording.graph.opset)
        if form is not node or recording.graph.tensors[output].quant is not None:
            return None
        values = {name: real_values(recording, name, *place) for name in form.inputs if name}
        recorded = recording.load(output, *place)
        if recorded.dtype.kind != "f":
            return None
        made = compute(node, form, opset, values)[output]
        wrong = beyond_own_terms(form, values, made, recorded, FLOAT32_UNIT_ROUNDOFF)
        return WrongStep(node=node, wrong=wrong, count=recorded.size)


def _allowed(node: Node, values: Mapping[str, np.ndarray], made: np.ndarray) -> np.ndarray:
    """Bound what scaling exact sums and adding a bias rounds, and what codes beside a tie change."""
    row = operators.of(node.op)
    name = node.inputs[row.bias] if row.bias is not None and row.bias < len(node.inputs) else ""
    bias = values[name].astype(np.float64) if name else np.zeros(())
    allowed = ELEMENTWISE_ROUNDOFFS * FLOAT32_UNIT_ROUNDOFF * (np.abs(made - bias) + np.abs(bias))
    return allowed + _by_ties(node, values) if row.chooses_scale else allowed


def _by_ties(node: Node, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Give what each element of a product may change where data lie so near a tie that they are rounded either way."""
    data, weight, scales = (values[name] for name in node.inputs[:3])
    _, scale, _ = dynamic_quantize(data)
    steps = data.astype(np.float64) / (float(scale) or 1.0)
    either = np.abs(np.abs(steps - np.floor(steps)) - 0.5) <= DYNAMIC_TIE_REL_DISTANCE * np.maximum(np.abs(steps), 1)
    name = node.inputs[3] if len(node.inputs) > 3 else ""
    zero = values[name].astype(np.float64) if name else np.zeros(())
    centred = np.abs(weight.astype(np.float64) - (zero.reshape(()) if zero.size == 1 else zero))
    return np.asarray(np.matmul(either.astype(np.float64), centred) * float(scale) * np.abs(scales.reshape(-1)))


_SEED = 20250412


class DynamicReplay:
    """Replays segments.

    Args:
        be: The backend run.
        rounding: What its constants were rounded to.

    Attributes:
        steps: Holds each node against its own recorded inputs.
    """

    def __init__(self, be: IndexedRecording, rounding: Rounding) -> None:
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
                if not name or not self._be.folds(name) or not self._be.recording.has(name):
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
