"""Operator queries: find the row for a name, and derive facts about a node from its operator's row.

They run for every node of graphs with a hundred thousand nodes, so they only look up names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from qdebug.model.graph import Node
from qdebug.model.operators.operator import Move, Operator, Sums
from qdebug.model.operators.table import ROWS

__all__ = [
    "channels_of",
    "clamp_bounds",
    "coded_inputs",
    "fused_activation",
    "has_channels_second",
    "is_block_transpose",
    "names_where",
    "of",
    "operands",
    "output_axis",
    "plain",
    "same_family",
    "titled_input",
    "valued_inputs",
]

_PREFIX = re.compile(r"^(?:Nhwc)?(?:Fused)?(?:QLinear)?(?=[A-Z])")
_CHANNELS_SECOND_PARTS = (
    *("Conv", "Pool", "BatchNorm", "InstanceNorm", "GroupNorm", "LRN", "PRelu"),
    *("Resize", "Upsample", "DepthToSpace", "SpaceToDepth"),
)
"""Name parts of operators that have channels second for any number of dimensions."""
_FEATURES_LAST_PARTS = (
    *("MatMul", "Gemm", "FullyConnected", "InnerProduct", "Attention", "LSTM", "GRU", "RNN"),
    *("LayerNorm", "RMSNorm", "Embed"),
)
"""Name parts of operators that have features last."""


def _complete_row(row: Operator) -> Operator:
    """Return a row with its plain name and family filled in."""
    plain_name = row.plain or _PREFIX.sub("", row.name)
    family = row.family or (plain_name if plain_name == row.name else _make_row(plain_name).family)
    return replace(row, plain=plain_name, family=family)


def _make_row(op: str) -> Operator:
    return _complete_row(_LISTED.get(op) or Operator(name=op))


_LISTED = {row.name: row for row in ROWS}
_ROWS = {op: _make_row(op) for op in _LISTED}
_PLAIN = {op: _ROWS[row.plain] for op, row in _ROWS.items()}


@lru_cache(maxsize=4096)
def _make_unknown_row(op: str) -> Operator:
    return _make_row(op)


def of(op: str) -> Operator:
    """Return the row of an operator; a row without traits if the name is not in the table.

    Args:
        op: The operator's name in ONNX or ONNX Runtime.
    """
    return _ROWS.get(op) or _make_unknown_row(op)


def plain(node: Node) -> Operator:
    """Return the row for the operation that a node performs, such as Conv for QLinearConv and FusedConv.

    Args:
        node: The node. One that groups channels into blocks and also transposes counts as a Transpose.
    """
    if is_block_transpose(node):
        return _TRANSPOSE_ROW
    return _PLAIN.get(node.op) or of(_make_unknown_row(node.op).plain)


_TRANSPOSE_ROW = next(row for row in _ROWS.values() if row.transposes)


def same_family(first: Node, second: Node) -> bool:
    """Return whether two nodes are interchangeable, such as Gemm and MatMul."""
    return plain(first).family == plain(second).family


def confusable_functions(op: str) -> frozenset[str]:
    """Return the functions that a backend may have computed in place of an activation or gate; empty for others."""
    if not of(op).activation and of(op).gate is None and op not in _gate_names():
        return frozenset()
    return names_where(lambda row: row.activation and row.elementwise and row.least is None and not row.bounded) - {op}


def _gate_names() -> frozenset[str]:
    return frozenset(row.gate.op for row in _ROWS.values() if row.gate)


def names_where(has_trait: Callable[[Operator], object]) -> frozenset[str]:
    """Return the names of the operators in the table that satisfy a predicate.

    Args:
        has_trait: The predicate of a row.
    """
    return frozenset(row.name for row in _ROWS.values() if has_trait(row))


def is_block_transpose(node: Node) -> bool:
    """Return whether a node groups channels into blocks and also transposes from channels last to channels second."""
    return bool(node.attrs.get("channels_last")) and of(node.op).moves is Move.TO_BLOCKS


def operands(node: Node) -> tuple[str, ...]:
    """Return the inputs of a node whose elements enter its result. Axes, extents, pads and bounds are excluded."""
    positions = _only_data(of(node.op))
    return node.inputs if positions is None else _names_at(node, positions)


def valued_inputs(node: Node) -> tuple[str, ...]:
    """Return the inputs of a node that are rounded like data, including bounds and fill values but not extents."""
    row = of(node.op)
    positions = _only_data(row)
    return node.inputs if positions is None else _names_at(node, (*positions, *row.in_codes))


def _only_data(row: Operator) -> tuple[int, ...] | None:
    """Return the positions of an operator's data if its other inputs are not data, or None if all inputs are."""
    return row.data if row.data and (row.data == (0,) or row.selects) else None


def _names_at(node: Node, positions: Collection[int]) -> tuple[str, ...]:
    return tuple(name for slot, name in enumerate(node.inputs) if slot in positions)


def coded_inputs(op: str, count: int) -> tuple[int, ...]:
    """Return the positions of an operator's quantized inputs, each of which is followed by a scale and zero point.

    Args:
        op: The operator.
        count: The number of inputs of a node.
    """
    real_form = of(op).real
    if real_form is None:
        return ()
    positions, data = real_form.positions(count), of(real_form.op).data
    return tuple(positions[operand] for operand in data) if data else positions


def titled_input(node: Node, title: int) -> str:
    """Return the input of a node that has a given title of its plain operator; "" if the node lacks it.

    Args:
        node: The node.
        title: Index in `Operator.titles`; the position of the input for an operator without titles.
    """
    positions = of(node.op).title_positions
    position = positions[title] if title < len(positions) else title
    return node.inputs[position] if position < len(node.inputs) else ""


def output_axis(product: Node) -> int | None:
    """Return the dimension of a product's weight that counts its output channels; None unless there is exactly one.

    Args:
        product: The node; None is returned for other nodes. A negative dimension counts from the last.
    """
    sums = plain(product).sums
    if sums is Sums.FILTER:
        return 0
    if sums is Sums.SCATTER:
        return 1 if product.attrs.get("group", 1) == 1 else None
    if sums is Sums.MATRIX:
        return -2 if product.attrs.get("transB") else -1
    return None


def fused_activation(node: Node) -> str | None:
    """Return the activation that is fused into a node; None without one."""
    activation = node.attrs.get("activation")
    return activation if isinstance(activation, str) and activation else None


def clamp_bounds(node: Node, constants: Mapping[str, Any] | None = None) -> tuple[float, float] | None:
    """Return the interval that a node clamps to; None if it does not clamp, or a bound is unknown.

    Args:
        node: The node.
        constants: Values of scalar constants by name.
    """
    row = of(node.op)
    if row.least is not None:
        return row.least, float("inf")
    if not row.bounded:
        return None
    bounds = []
    for slot, (name, default) in enumerate((("min", -float("inf")), ("max", float("inf"))), start=1):
        value: Any = node.attrs.get(name, default)
        if len(node.inputs) > slot and node.inputs[slot]:
            value = (constants or {}).get(node.inputs[slot])
            if value is None:
                return None
        bound = np.ravel(value)  # some frameworks store a bound as an array of one element
        if bound.size != 1:
            return None
        bounds.append(float(bound[0]))
    return bounds[0], bounds[1]


def has_channels_second(op: str) -> bool:
    """Return whether an operator, on real numbers or on codes, is defined with channels second.

    Args:
        op: The operator of ONNX or ONNX Runtime; channels-last variants are excluded.
    """
    row = of(op)
    if not row.ordered and not row.channels_last:
        row = of(row.plain if row.real is None else row.real.op)
    return row.ordered and row.sums is not Sums.MATRIX and not row.recurrent


@lru_cache(maxsize=4096)
def channels_of(op: str) -> Literal["second", "last"] | None:
    """Return the position of an operator's channels or features; None if its name does not imply one.

    Args:
        op: The plain name in any framework, which is matched by its parts.
    """
    if any(part in op for part in _CHANNELS_SECOND_PARTS):
        return "second"
    return "last" if any(part in op for part in _FEATURES_LAST_PARTS) else None
