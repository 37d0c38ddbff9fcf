"""Operator traits: a table of operators, looked up by name (`of`), by a node's effect (`plain`) or by a word (`named`).

`operators.of(node.op).moves` looks at the recorded operator, and `operators.plain(node).product` at the operation
behind a quantized or fused operator. `operators.named(node.op)` finds the operator for a name in any framework. Unknown
names do not have traits. A new operator is a row of `qdebug.model.operators.table` and a kernel.
"""

from qdebug.model.operators.operator import Count, Domain, Gate, Move, Operator, PackedWeight, RealForm, Sums
from qdebug.model.operators.queries import (
    alike_functions,
    channels_of,
    clamp_bounds,
    coded_inputs,
    fused_activation,
    has_channels_second,
    names_where,
    of,
    operands,
    output_axis,
    plain,
    same_family,
    titled_input,
    turns_channels,
    valued_inputs,
)
from qdebug.model.operators.words import UNKNOWN_OP, in_words_of_onnx, is_foreign, is_unknown, kinds_of, named

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
    "alike_functions",
    "channels_of",
    "clamp_bounds",
    "coded_inputs",
    "fused_activation",
    "has_channels_second",
    "in_words_of_onnx",
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
    "turns_channels",
    "valued_inputs",
]
