"""Facts of operators: a table with a row each, found by name (`of`), by the effect of a node (`plain`) or by a word.

`operators.of(node.op).moves` asks the recorded operator, `operators.plain(node).product` the operation behind a
quantized or fused operator, `operators.named(node.op)` the operator that a word of any framework means. Unknown names
have no traits. A new operator is a row of `qdebug.model.operators.table` and a kernel.
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
