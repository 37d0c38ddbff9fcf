"""What a caller says of the node that makes a tensor, and how it adds up over several calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qdebug.errors import RecordingError
from qdebug.model import AttrValue, QuantParams
from qdebug.model.frozen import same_value
from qdebug.store.attributes import encode_attrs

__all__ = ["NO_FACTS", "NodeFacts", "check_texts", "in_short", "merged_facts", "node_facts"]

_FACTS = ("op", "domain", "inputs", "attrs", "origin")


@dataclass(slots=True, kw_only=True)
class NodeFacts:
    """What was said of the node that makes a tensor; empty for what was not.

    Args:
        name: Its name; None if it is known by its tensor only.
        op: Its operator.
        domain: The operator's set.
        inputs: Tensors it reads.
        attrs: The operator's attributes.
        origin: Nodes of the source model folded into it.
        outputs: Tensors that were put as its outputs, in order.
    """

    name: str | None = None
    op: str = ""
    domain: str = ""
    inputs: tuple[str, ...] = ()
    attrs: dict[str, AttrValue] = field(default_factory=dict)
    origin: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.name is not None or bool(self.op or self.domain or self.inputs or self.attrs or self.origin)


_NO_ATTRS: dict[str, AttrValue] = {}
NO_FACTS = NodeFacts()
"""Nothing was said."""


def node_facts(
    tensor: str,
    *,
    node: str | None,
    op: str | None,
    inputs: Sequence[str] | str,
    attrs: Mapping[str, Any] | None,
    domain: str,
    origin: Sequence[str] | str,
) -> NodeFacts:
    """Bring what a caller says of a node into its lasting form.

    Raises:
        RecordingError: An attribute is of no kind that a node can hold.
    """
    reads, sources = _names(tensor, "inputs", inputs), _names(tensor, "origin", origin)
    if attrs is not None and not isinstance(attrs, Mapping):
        raise RecordingError(
            f"Tensor {tensor!r} is put with attrs that are a {type(attrs).__name__}; expected values by name.",
            hint="Give a dict, such as attrs={'pads': [1, 1, 1, 1]}.",
        )
    if node is None and not (op or reads or attrs or domain or sources):
        return NO_FACTS
    for title, text in (("node", node), ("op", op), ("domain", domain)):
        if type(text) is not str:
            check_texts(tensor, title, (text,))
    plain = _NO_ATTRS
    if attrs:
        plain = {str(key): _plain(value, f"{key!r} of {tensor!r}") for key, value in attrs.items()}
        encode_attrs(plain, node or tensor)  # what a file could not take is refused here, not after the run
    return NodeFacts(
        name=node,
        op=op or "",
        domain=domain or "",
        inputs=reads,
        attrs=plain,
        origin=sources,
        outputs=(tensor,),
    )


def check_texts(tensor: str, title: str, given: Iterable[Any]) -> None:
    """Refuse facts that should be text and are not: better now than when the file is finished.

    Raises:
        RecordingError: One is neither text nor None.
    """
    for value in given:
        if value is not None and not isinstance(value, str):
            raise RecordingError(
                f"Tensor {tensor!r} is put with {title} {in_short(value)}; expected text.",
                hint="Give names as the framework spells them.",
            )


def merged_facts(known: NodeFacts, said: NodeFacts, title: str) -> NodeFacts:
    """Give a node's facts with those newly said; the very same object if there is nothing new.

    Raises:
        RecordingError: Two of them contradict each other.
    """
    new = {}
    for fact in _FACTS:
        before, value = getattr(known, fact), getattr(said, fact)
        if value and before and not _same(before, value):
            raise RecordingError(
                f"Node {title!r} was first put with {fact} {in_short(before)} and now with {in_short(value)}.",
                hint="Give each node a name of its own.",
            )
        if value and not before:
            new[fact] = value
    return replace(known, **new) if new else known


def _names(tensor: str, title: str, given: Sequence[str] | str) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,) if given else ()
    if type(given) is tuple and not given:
        return given
    try:
        names = () if given is None else tuple(given)
    except TypeError:
        raise RecordingError(
            f"Tensor {tensor!r} is put with {title} {in_short(given)}; expected names.",
            hint="Give a list of names, such as inputs=['x', 'w'].",
        ) from None
    check_texts(tensor, title, names)
    return names


def _plain(value: Any, title: str) -> AttrValue:
    """Give an attribute as a value that a node may hold."""
    if isinstance(value, np.generic):
        return _plain(value.item(), title)
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, list | tuple):
        return tuple(_plain(item, title) for item in value)  # type: ignore[return-value]  # of one kind, as frameworks have it
    if isinstance(value, int | float | str | bool | np.ndarray):
        return value
    raise RecordingError(
        f"Attribute {title} is a {type(value).__name__}; expected a number, a text, a list or an array.",
        hint="Leave it out, or put it as text.",
    )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_value(one[key], other[key]) for key in one)
    return bool(one == other)


def in_short(value: Any) -> str:
    """Give a value for a message, not longer than a line."""
    if isinstance(value, QuantParams):
        return (
            f"{value.dtype} scale {value.scale.ravel()[:3].tolist()} zero point {value.zero_point.ravel()[:3].tolist()}"
        )
    return repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "..."
