"""Recordings of small quantized nets, computed by a variant of choice."""

from types import SimpleNamespace

import numpy as np
import pytest

from qdebug.compare.align.pairs import Pair
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay.evaluate import compute
from qdebug.replay.node_units import unit_of_call
from qdebug.replay.registry import Call
from qdebug.replay.variant import Variant, parse_variant

DYADIC = (2.0**-4, 2.0**-6, 2.0**-3)
GENERIC = (0.0312, 0.0057, 0.0421)


def conv_parts(*, scales=DYADIC, channels=8, filters=16, size=12, per_channel=False, seed=0, zero=-3):
    """Give what a QLinearConv reads, by tensor name, its activations left out."""
    rng = np.random.default_rng(seed)
    x_scale, w_scale, y_scale = (np.float32(scale) for scale in scales)
    many = np.linspace(0.5, 2, filters).astype(np.float32) * w_scale if per_channel else w_scale
    return {
        "x_scale": np.asarray(x_scale),
        "x_zero": np.asarray(5, np.int8),
        "w": rng.integers(-9, 10, (filters, channels, 3, 3)).astype(np.int8),
        "w_scale": np.asarray(many),
        "w_zero": np.zeros(many.shape, np.int8),
        "y_scale": np.asarray(y_scale),
        "y_zero": np.asarray(zero, np.int8),
        "b": rng.integers(-900, 900, filters).astype(np.int32),
    }, rng.integers(-128, 128, (4, 1, channels, size, size)).astype(np.int8)


def call_of(node, values):
    return Call(
        inputs=tuple(values[name] for name in node.inputs), attrs=node.attrs, opset=13, op=node.op, node=node.name
    )


def recording_of(node, constants, feeds, variant, *, fault=None, extra=()):
    """Record one node on several samples, computed by a variant; a fault changes what is recorded.

    Args:
        node: Reads x and constants, gives y.
        constants: Arrays by name.
        feeds: One x for each sample.
        variant: The variant, or its text.
        fault: Called with the sample and the codes.
        extra: Further nodes, which are not recorded.
    """
    variant = parse_variant(variant) if isinstance(variant, str) else variant
    arrays = {(name, 0, 0): array for name, array in constants.items()}
    for sample, x in enumerate(feeds):
        unit = unit_of_call(call_of(node, {**constants, "x": x}))
        codes = compute(unit, variant)
        arrays["x", sample, 0] = x
        arrays["y", sample, 0] = codes if fault is None else fault(sample, codes.copy())
    quant = QuantParams(dtype="int8", scale=constants["y_scale"], zero_point=constants["y_zero"])
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    tensors += [TensorInfo(name="y", dtype="int8", quant=quant, role=Role.OUTPUT)]
    graph = Graph([node, *extra], tensors=tensors, inputs=["x"], outputs=["y"], opset={"": 13})
    return MemoryRecording(graph, arrays)


CONV = Node(
    name="conv",
    op="QLinearConv",
    inputs=("x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero", "b"),
    outputs=("y",),
    attrs={"pads": (1, 1, 1, 1), "kernel_shape": (3, 3)},
)


def conv(variant: str | Variant = "", *, samples=2, fault=None, **parts):
    """Record a convolution on several samples."""
    constants, feeds = conv_parts(**parts)
    return recording_of(CONV, constants, feeds[:samples], variant, fault=fault)


@pytest.fixture
def quantized():
    return SimpleNamespace(
        conv=conv, recording_of=recording_of, conv_parts=conv_parts, node=CONV, generic=GENERIC, dyadic=DYADIC
    )


def planned_of(node):
    """Give what a result is of."""
    return PlannedNode(
        index=node.index,
        node=node.node,
        op=node.op,
        pair=Pair(reference=node.reference_tensor, backend=node.tensor, match=node.match, reason=node.match_reason),
        shape=None,
        quant=node.quant,
        relu_floor=False,
    )


@pytest.fixture
def planned():
    return planned_of
