"""Traits of operators, in a table with one row per operator.

There are three ways to look up a row. `operators.of(node.op)` is the row of the recorded operator, such as QLinearConv.
`operators.plain(node)` is the row of the mathematical operation that the node performs, such as Conv.
`operators.named(node.op)` is the row for a name in any framework. Unknown names do not have traits.

A new operator needs a row in `qdebug.model.operators.table` and a kernel.
"""

from qdebug.model.operators.operator import Count, Domain, Gate, Move, Operator, PackedWeight, RealForm, Sums
from qdebug.model.operators.queries import (
    channels_of,
    clamp_bounds,
    coded_inputs,
    confusable_functions,
    fused_activation,
    has_channels_second,
    is_block_transpose,
    names_where,
    of,
    operands,
    output_axis,
    plain,
    same_family,
    titled_input,
    valued_inputs,
)
from qdebug.model.operators.words import UNKNOWN_OP, is_foreign, is_unknown, kinds_of, named, with_onnx_op

__all__ = [
    "UNKNOWN_OP",
    "Count",
    "Domain",
    "Gate",
    "Move",
    "Operator",
    "PackedWeight",
    "RealForm",
    "Sums",
    "channels_of",
    "clamp_bounds",
    "coded_inputs",
    "confusable_functions",
    "fused_activation",
    "has_channels_second",
    "is_block_transpose",
    "is_foreign",
    "is_unknown",
    "kinds_of",
    "named",
    "names_where",
    "of",
    "operands",
    "output_axis",
    "plain",
    "same_family",
    "titled_input",
    "valued_inputs",
    "with_onnx_op",
]
