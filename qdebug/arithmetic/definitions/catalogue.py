"""The definitions of operators, by operator. Begin at `definition_of`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.definitions.attention import define_attention, define_rotation
from qdebug.arithmetic.definitions.definition import Definition
from qdebug.arithmetic.definitions.functions import define_function, define_reduction, define_softmax
from qdebug.arithmetic.definitions.normalization import define_normalization
from qdebug.arithmetic.definitions.recurrent import define_recurrence
from qdebug.model import Node

__all__ = ["definition_of"]

_Define = Callable[[Node, Sequence[np.ndarray | None], int], Definition | None]

_DEFINITIONS: Mapping[str, _Define] = MappingProxyType(
    {
        "Attention": define_attention,
        "LogSoftmax": define_softmax,
        "MultiHeadAttention": define_attention,
        "RotaryEmbedding": define_rotation,
        "Softmax": define_softmax,
    }
)


def definition_of(
    node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int], output: str
) -> Definition | None:
    """Return the definition of a node, or None if there is none for its operator or its form.

    Args:
        node: The node.
        values: Its inputs, by name.
        opset: Version of each operator set.
        output: The output that is defined.
    """
    inputs = [values.get(name) if name else None for name in node.inputs]
    version = opset.get(node.domain, 1)
    try:
        if node.op in ("RNN", "GRU", "LSTM"):
            return define_recurrence(node, inputs, node.outputs.index(output) if output in node.outputs else 0)
        if output in node.outputs[1:]:
            return None
        if node.op.startswith("Reduce"):
            return define_reduction(node, inputs, version)
        define = _DEFINITIONS.get(node.op)
        if define is not None:
            return define(node, inputs, version)
        return define_normalization(node, inputs, version) or define_function(node, inputs, version)
    except (ValueError, IndexError, ArithmeticError, KeyError):
        return None
