"""Replays, on real numbers, nodes whose inputs are quantized by the range that their data happen to have.

DynamicQuantizeLinear and the operators that do its work inside themselves choose a scale at run time. Their sums stand
for those of an ordinary product of real data and the weights that the codes stand for. In such a replay data keep their
real values, with a scale of 1 and a zero point of 0, and every other operator does what it always does. What rounding
the data to codes adds is seen by moving them at random within a few times what it moves them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from qdebug.errors import KernelError
from qdebug.model import Node, operators
from qdebug.model.thresholds.attribution import DISTURBANCE_HALF_STEPS
from qdebug.replay.blockwise_weight import blockwise_weight, rounds_data
from qdebug.replay.registry import run_node

__all__ = ["DynamicNoise", "quantizes_data", "run_dynamic"]

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
