"""What operators of different frameworks have in common: one plain name, and how they treat values."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from qdebug.model import Graph, Node

__all__ = [
    "ACTIVATIONS",
    "GO_INTO_WEIGHTS",
    "KEEPS_VALUES",
    "MOVES_VALUES",
    "PRODUCTS",
    "SUMS_OF_CODES",
    "alike",
    "clamp_bounds",
    "clamps_at_zero",
    "fused_activation",
    "goes_into_weights",
    "operands",
    "plain_op",
    "same_family",
    "says_nothing",
    "turns_channels",
]

KEEPS_VALUES = frozenset({"QuantizeLinear", "DequantizeLinear", "Identity", "Dropout", "ReorderInput", "ReorderOutput"})
"""Operators whose output stands for the same real numbers as their first input."""

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Plain names of the operators that sum up products of data and a weight."""

ACTIVATIONS = frozenset({"Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "PRelu"})
"""Element-wise operators that backends fold into the node before."""

MOVES_VALUES = frozenset(
    {"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather", "Split", "Concat", "Expand", "Tile"}
    | {"Identity", "ReorderInput", "ReorderOutput"}
)
"""Operators that pick, repeat and arrange elements of their inputs and compute nothing."""

_KEEPS_SIGN = KEEPS_VALUES | {"MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze"}
"""Operators that give no number below 0 where they read none."""

_RULED = frozenset({"Clip", "CumSum", "Pad", "Resize", "TopK", "Upsample"})
"""Operators that compute with their first input alone."""

GO_INTO_WEIGHTS = frozenset({"BatchNormalization", "Add", "Sub", "Mul", "Div"})
"""Operators that, with a constant, backends fold into the weights and bias of the node before."""

_MAKES_OUT_OF_NOTHING = frozenset({"Constant", "RandomNormal", "RandomUniform"})
"""Operators that read no tensor."""
_PREFIX = re.compile(r"^(?:Nhwc)?(?:Fused)?(?:QLinear)?(?=[A-Z])")
_PLAIN = {
    "QGemm": "Gemm",
    "ConvInteger": "Conv",
    "MatMulInteger": "MatMul",
    "MatMulIntegerToFloat": "MatMul",
    "DynamicQuantizeMatMul": "MatMul",
    "DynamicQuantizeLSTM": "LSTM",
    "TransposeMatMul": "MatMul",
    "MatMulNBits": "MatMul",
}
SUMS_OF_CODES = frozenset({"ConvInteger", "MatMulInteger"})
"""Operators that sum up products of codes, and leave it to others to make real numbers of the sums."""
_WITHOUT_BIAS = SUMS_OF_CODES | {"MatMul", "FusedMatMul", "TransposeMatMul", "QLinearMatMul"}
BIAS_SLOTS = {"DynamicQuantizeMatMul": 4, "MatMulNBits": 5, "MatMulIntegerToFloat": 6, "QGemm": 6, "QLinearConv": 8}
"""Which input is the bias of a product that reads scales too; it may leave the bias out."""
_TAKE_THEIR_LIKE = (frozenset({"Mul", "Div"}), frozenset({"Add", "Sub"}))
_FAMILIES = (
    frozenset({"Gemm", "MatMul"}),
    frozenset({"Relu", "Clip"}),
    frozenset({"LeakyRelu", "PRelu"}),
    frozenset({"GlobalAveragePool", "ReduceMean"}),
    frozenset({"Resize", "Upsample"}),
    frozenset({"LayerNormalization", "SkipLayerNormalization", "EmbedLayerNormalization"}),
    frozenset({"RMSNormalization", "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"}),
)
"""Operators of which one ends with what another does."""


def plain_op(node: Node) -> str:
    """Give the operator without the words that only say how it is computed: QLinearConv and FusedConv are Conv."""
    return "Transpose" if turns_channels(node) else _plain(node.op)


@lru_cache(maxsize=1024)
def _plain(op: str) -> str:
    return _PLAIN.get(op) or _PREFIX.sub("", op)


def turns_channels(node: Node) -> bool:
    """Tell whether a node that arranges channels in blocks also does a Transpose from channels last to second."""
    return node.op == "ReorderInput" and bool(node.attrs.get("channels_last"))


def goes_into_weights(reader: Node, node: Node) -> bool:
    """Tell whether what reads a node can have been folded into the node's constants, be it with one of its own.

    A product without bias can be scaled by its weights, but nothing can be added to it. A factor takes in factors, and
    a term terms.
    """
    if reader.op not in GO_INTO_WEIGHTS:
        return False
    alone = next((ops for ops in _TAKE_THEIR_LIKE if plain_op(node) in ops), None)
    if alone is not None:
        return reader.op in alone
    return reader.op in ("Mul", "Div") or (node.op not in _WITHOUT_BIAS and _has_bias(node))


def _has_bias(node: Node) -> bool:
    """Tell whether a node reads a bias; of a plain product it is assumed, which may be recorded with its data alone."""
    slot = BIAS_SLOTS.get(node.op)
    return slot is None or any(node.inputs[slot : slot + 1])


def says_nothing(node: Node) -> bool:
    """Tell whether nobody said what a node reads: a harness may hand over values and know nothing of the graph."""
    return not any(node.inputs) and node.op not in _MAKES_OUT_OF_NOTHING


def operands(node: Node) -> tuple[str, ...]:
    """Give the inputs of a node whose elements go into its result: not axes, extents, pads or bounds, which rule it."""
    ruled = node.op in MOVES_VALUES - {"Concat"} | _RULED or node.op.startswith("Reduce")
    return node.inputs[:1] if ruled else node.inputs


def same_family(one: str, other: str) -> bool:
    """Tell whether two plain operators can stand for each other."""
    return one == other or any(one in family and other in family for family in _FAMILIES)


def alike(one: Node, other: Node) -> bool:
    """Tell whether two nodes of either graph can do the same: never where one gives sums of codes and no real numbers.

    Such sums have no scale; what multiplies them with one answers to the other.
    """
    return same_family(plain_op(one), plain_op(other)) and (one.op in SUMS_OF_CODES) == (other.op in SUMS_OF_CODES)


def fused_activation(node: Node) -> str | None:
    """Give the activation that is computed inside a node, or None."""
    activation = node.attrs.get("activation")
    return activation if isinstance(activation, str) and activation else None


def clamp_bounds(node: Node, constants: dict[str, np.ndarray] | None = None) -> tuple[float, float] | None:
    """Give the interval a Relu or Clip clamps to; None for any other node or where a bound is not known."""
    if node.op == "Relu":
        return 0.0, float("inf")
    if node.op != "Clip":
        return None
    bounds = []
    for slot, (name, default) in enumerate((("min", -float("inf")), ("max", float("inf"))), start=1):
        value = node.attrs.get(name, default)
        if len(node.inputs) > slot and node.inputs[slot]:
            known = (constants or {}).get(node.inputs[slot])
            if known is None:
                return None
            value = float(known)
        bounds.append(float(value))  # type: ignore[arg-type]  # min and max of Clip are numbers
    return bounds[0], bounds[1]


def clamps_at_zero(graph: Graph, tensor: str) -> bool:
    """Tell whether a tensor is the output of a Relu, be it fused, seen through nodes that keep or pick values."""
    for _ in range(len(graph.nodes)):
        node = graph.producer(tensor)
        if node is None:
            return False
        if node.op == "Relu" or fused_activation(node) == "Relu":
            return True
        if node.op == "Clip" and node.attrs.get("min") == 0.0:
            return True
        if node.op not in _KEEPS_SIGN or not node.inputs:
            return False
        tensor = node.inputs[0]
    return False
