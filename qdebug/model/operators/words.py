"""Map names of operators in other frameworks to ONNX operators.

Attributes are not translated. Attributes that a name implies are added.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from qdebug.model.graph import AttrValue, Node
from qdebug.model.operators.operator import Operator
from qdebug.model.operators.queries import of
from qdebug.model.operators.table import ROWS

__all__ = ["UNKNOWN_OP", "is_foreign", "is_unknown", "kinds_of", "named", "with_onnx_op"]

UNKNOWN_OP = "Unknown"
"""Operator of nodes for which a recording does not state an operator."""
_LISTED = frozenset(row.name for row in ROWS)
_WORDS = {word: row.name for row in ROWS for word in row.words.split()}
_NO_ATTRS: Mapping[str, AttrValue] = MappingProxyType({})
_WORDS_WITH_ATTRS: Mapping[str, tuple[str, Mapping[str, AttrValue]]] = MappingProxyType(
    {
        "relu6": ("Clip", {"min": 0.0, "max": 6.0}),
        "silu": ("QuickGelu", {"alpha": 1.0}),  # x * Sigmoid(x)
        "swish": ("QuickGelu", {"alpha": 1.0}),
    }
)
_EXACT_NAMES: Mapping[str, str] = MappingProxyType(dict.fromkeys(("Select", "SELECT", "SELECT_V2"), "Where"))
"""Names that are matched exactly, because other operators' names differ from them only in case or underscores."""
_FUSED_ATTRIBUTES = ("fused_activation_function", "fused_activation")
_RELU = "relu"
_FUSED_OPERATORS = {_RELU: ("Relu", ()), "relu6": ("Clip", (0.0, 6.0)), "relun1to1": ("Clip", (-1.0, 1.0))}
_FRAMEWORKS = ("aten.", "quantized_decomposed.", "torchao.", "tfl.")
_OVERLOAD = re.compile(r"[._](?:default|new|tensor|scalar|int|intlist|dim|self|input|vec|other|copy)$")


def kinds_of(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield one node for each distinct combination of operator and attributes object.

    For queries that depend only on these two, since most nodes of a large graph share them with many others.
    """
    attrs_of_kind: dict[tuple[str, int], Mapping[str, AttrValue]] = {}
    for node in nodes:
        kind = node.op, id(node.attrs)
        if kind not in attrs_of_kind:
            attrs_of_kind[kind] = node.attrs  # the reference prevents another object from reusing the id
            yield node


def named(op: str) -> Operator:
    """Return the row of an operator by its name in ONNX or another framework; a row without traits for other names."""
    return of(_operator_of_word(op)[0])


def is_foreign(node: Node) -> bool:
    """Return whether a node names an ONNX operator, or states a fused activation, in the form of another framework."""
    return _operator_of_word(node.op)[0] != node.op or any(name in node.attrs for name in _FUSED_ATTRIBUTES)


def is_unknown(node: Node) -> bool:
    """Return whether a node's operator, in any domain and framework, is missing from the table."""
    return _operator_of_word(node.op)[0] not in _LISTED


def with_onnx_op(node: Node) -> Node:
    """Return a node with the ONNX names of its operator and fused activation; the same node if it has ONNX names."""
    op, attrs = _operator_of_word(node.op)
    fused_word = next((str(node.attrs[name]) for name in _FUSED_ATTRIBUTES if name in node.attrs), "")
    activation = _FUSED_OPERATORS.get(_normalize_name(fused_word))
    if op == node.op and not activation:
        return node
    all_attrs: dict[str, AttrValue] = {**attrs, **node.attrs}
    if activation is not None:
        all_attrs |= {"activation": activation[0], "activation_params": activation[1]}
    return replace(node, op=op, attrs=all_attrs)


@lru_cache(maxsize=4096)
def _operator_of_word(op: str) -> tuple[str, Mapping[str, AttrValue]]:
    """Return the ONNX operator for a name in another framework, with the attributes that the name implies."""
    if op in _LISTED:
        return op, _NO_ATTRS
    if op in _EXACT_NAMES:
        return _EXACT_NAMES[op], _NO_ATTRS
    word = _normalize_name(op)
    if word in _WORDS_WITH_ATTRS:
        return _WORDS_WITH_ATTRS[word]
    if word not in _WORDS and word.endswith(_RELU):  # PyTorch names fused activations: quantized::conv2d_relu
        unfused_operator = _WORDS.get(word.removesuffix(_RELU), "")
        if unfused_operator and of(unfused_operator).takes_clamp:
            return unfused_operator, {
                "activation": _FUSED_OPERATORS[_RELU][0],
                "activation_params": _FUSED_OPERATORS[_RELU][1],
            }
    return _WORDS.get(word, op), _NO_ATTRS


def _normalize_name(op: str) -> str:
    """Return the letters and digits of an operator's name in lower case, without framework prefix and overload."""
    name = op.rpartition("::")[2].lower()
    for framework in _FRAMEWORKS:
        name = name.removeprefix(framework)
    word = _strip_to_alphanumerics(name)
    while word not in _WORDS and (shorter_name := _OVERLOAD.sub("", name)) != name:
        name, word = shorter_name, _strip_to_alphanumerics(shorter_name)
    return word


def _strip_to_alphanumerics(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name)
