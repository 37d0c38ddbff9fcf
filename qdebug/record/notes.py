"""What was said of a run and its tensors as notes in the journal, and back: a graph can be rebuilt from them alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from qdebug.model import QuantParams, Role
from qdebug.record.graph_builder import GraphBuilder, Noted
from qdebug.record.node_facts import NodeFacts
from qdebug.store.attributes import decode_attrs, encode_attrs

__all__ = ["apply_put", "put_note"]


def put_note(name: str, shape: tuple[int, ...], facts: NodeFacts, said: Mapping[str, Any]) -> dict[str, Any]:
    """Give what was said with a tensor's values as a JSON object.

    Args:
        name: The tensor.
        shape: Shape of the values.
        facts: The node that makes it.
        said: Fields of `TensorInfo`, None for what was not said.
    """
    note: dict[str, Any] = {"put": name, "shape": [int(extent) for extent in shape]}
    note |= {key: value for key, value in said.items() if isinstance(value, str)}
    if said.get("quant") is not None:
        note["quant"] = _quant_text(said["quant"])
    if facts:
        note["node"] = {
            "name": facts.name,
            "op": facts.op,
            "domain": facts.domain,
            "inputs": facts.inputs,
            "origin": facts.origin,
            "attrs": encode_attrs(facts.attrs, facts.name or name).decode("ascii"),
        }
    return note


def apply_put(builder: GraphBuilder, note: Mapping[str, Any]) -> Noted:
    """Tell a builder what a note of `put_note` says.

    Raises:
        RecordingError, GraphError: It contradicts earlier ones.
        ValueError: It is something else.
    """
    try:
        said = {key: str(note[key]) for key in ("layout", "stands_for", "dtype") if key in note}
        facts = _node(str(note["put"]), note["node"]) if "node" in note else NodeFacts()
        quant = _quant(note["quant"]) if "quant" in note else None
        role = Role(note["role"]) if "role" in note else None
        shape = tuple(int(extent) for extent in note["shape"])
        return builder.note(str(note["put"]), shape, facts, quant=quant, role=role, **said)
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"a note cannot be decoded: {exc!r}") from None


def _node(tensor: str, plain: Mapping[str, Any]) -> NodeFacts:
    return NodeFacts(
        name=None if plain["name"] is None else str(plain["name"]),
        op=str(plain["op"]),
        domain=str(plain["domain"]),
        inputs=tuple(str(name) for name in plain["inputs"]),
        origin=tuple(str(name) for name in plain["origin"]),
        attrs=decode_attrs(str(plain["attrs"]).encode()),
        outputs=(tensor,),
    )


def _quant_text(quant: QuantParams) -> str:
    plain = {entry.name: getattr(quant, entry.name) for entry in fields(quant)}
    return encode_attrs({name: value for name, value in plain.items() if value is not None}, "").decode("ascii")


def _quant(text: Any) -> QuantParams:
    known = {entry.name for entry in fields(QuantParams)}
    plain: dict[str, Any] = {name: value for name, value in decode_attrs(str(text).encode()).items() if name in known}
    return QuantParams(**plain)
