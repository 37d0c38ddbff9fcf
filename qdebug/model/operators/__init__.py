"""What is known of operators: a table with a row each, asked by name (`of`), by what a node does (`plain`) or words.

`operators.of(node.op).moves` asks the operator as it was recorded, `operators.plain(node).product` what it does however
it computes it, `operators.named(node.op)` the operator that a word of any framework means. A name that is not in the
table has no traits. A new operator is a row of `qdebug.model.operators.table` and a kernel.
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
from qdebug.model.operators.words import in_words_of_onnx, is_foreign, is_unknown, kinds_of, named

__all__ = [
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
