"""What a recording holds: its facts, counted and listed without reading a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from qdebug.compare.result.result import json_safe
from qdebug.model import Recording, Role, TensorInfo
from qdebug.model.recording import places_of
from qdebug.present import numbers
from qdebug.present.detail import quant_summary
from qdebug.present.rows import SCALE_TITLE
from qdebug.present.text import safe_text

__all__ = ["TENSOR_TITLES", "Contents", "contents_dict", "contents_facts", "stored_shape", "tensor_rows"]

TENSOR_TITLES = ("tensor", "role", "dtype", "shape", SCALE_TITLE, "kept", "producer")
"""Headings of `tensor_rows`."""

_OPS_SHOWN = 12
_SKIPPED_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A recording and what only its file knows.

    Args:
        recording: The recording.
        path: Where it is, as the user wrote it; "" if in memory.
        size: Bytes of the file.
    """

    recording: Recording
    path: str = ""
    size: int = 0


def contents_dict(contents: Contents, *, tensors: bool = False) -> dict[str, Any]:
    """Return the contents as plain values, with the keys of the info JSON.

    Args:
        contents: What to describe.
        tensors: List every tensor too.
    """
    recording = contents.recording
    info, graph = recording.info, recording.graph
    names = recording.names
    plain: dict[str, Any] = {
        "format": "qdebug.info",
        "version": 1,
        "file": contents.path,
        "backend": info.backend,
        "model": info.model,
        "model_sha256": info.model_sha256,
        "created": info.created,
        "complete": info.complete,
        "fidelity": str(info.fidelity),
        "fidelity_detail": info.fidelity_detail,
        "taps": info.taps,
        "samples": recording.samples,
        "steps": recording.steps,
        "tensors": len(names),
        "constants": sum(graph.is_constant(name) for name in names),
        "nodes": len(graph.nodes),
        "ops": dict(Counter(node.op for node in graph.nodes).most_common()),
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "bytes": contents.size,
        "skipped": dict(info.skipped),
        "skip_causes": {name: str(cause) for name, cause in info.skip_causes.items()},
        "doubts": dict(info.doubts),
        "environment": {
            "versions": dict(info.versions),
            "cpu_flags": list(info.cpu_flags),
            "options": dict(info.options),
        },
    }
    if tensors:
        plain["tensor_list"] = [_tensor_dict(recording, known) for known in _listed(recording)]
    safe: dict[str, Any] = json_safe(plain)
    return safe


def contents_facts(contents: Contents) -> list[tuple[str, str]]:
    """Return the contents as labelled facts, safe to print."""
    recording = contents.recording
    info, graph = recording.info, recording.graph
    constants = sum(graph.is_constant(name) for name in recording.names)
    held = f"{numbers.grouped(len(recording.names))} with values, {numbers.grouped(constants)} of them constants"
    partly = sum(not _in_full(recording, name) for name in recording.names)
    held += f", {numbers.grouped(partly)} with statistics or some of their values alone" if partly else ""
    ops = Counter(node.op for node in graph.nodes).most_common()
    detail = f" ({info.fidelity_detail})" if info.fidelity_detail else ""
    facts = [
        ("file", f"{contents.path}, {numbers.byte_size(contents.size)}" if contents.path else ""),
        ("model", f"{info.model}, sha256 {info.model_sha256[:16]}" if info.model_sha256 else info.model),
        ("backend", info.backend),
        ("options", _pairs(info.options)),
        ("complete", "yes" if info.complete else "NO: the run did not finish, or the file was rescued"),
        ("fidelity", f"{info.fidelity}{detail}"),
        ("taps", info.taps),
        ("samples", f"{recording.samples}" + (f", {recording.steps} steps each" if recording.steps > 1 else "")),
        ("tensors", held),
        ("nodes", f"{numbers.grouped(len(graph.nodes))}: " + _ops(ops) if ops else "none: no graph was recorded"),
        ("inputs", ", ".join(_named_shape(graph.tensors[name]) for name in graph.inputs)),
        ("outputs", ", ".join(_named_shape(graph.tensors[name]) for name in graph.outputs)),
        ("created", info.created),
        ("versions", _pairs(info.versions)),
        ("CPU flags", ", ".join(info.cpu_flags)),
    ]
    facts += [("doubtful", f"{name}: {doubt}") for name, doubt in [*info.doubts.items()][:_SKIPPED_SHOWN]]
    facts += [("not recorded", f"{name}: {reason}") for name, reason in [*info.skipped.items()][:_SKIPPED_SHOWN]]
    if len(info.skipped) > _SKIPPED_SHOWN:
        facts.append(("", f"{len(info.skipped) - _SKIPPED_SHOWN} more not recorded; -f json lists them"))
    return [(label, safe_text(text)) for label, text in facts if text]


def _in_full(recording: Recording, tensor: str) -> bool:
    """Tell whether all values of a tensor were kept for any sample and step."""
    return any(recording.has(tensor, *place) for place in places_of(recording, tensor))


def tensor_rows(recording: Recording) -> list[tuple[str, ...]]:
    """Return one row for each tensor of the recording, in topological order, safe to print."""
    rows: list[tuple[str, ...]] = []
    held = frozenset(recording.names)
    for info in _listed(recording):
        producer = recording.graph.producer(info.name)
        kept = "no" if info.name not in held else "yes" if _in_full(recording, info.name) else "partly"
        rows.append(
            (
                safe_text(info.name, limit=200),
                str(info.role),
                safe_text(info.dtype or numbers.MISSING, limit=40),
                numbers.shape(stored_shape(recording, info)),
                quant_summary(info.quant),
                kept,
                numbers.MISSING if producer is None else safe_text(f"{producer.op} {producer.name}", limit=120),
            )
        )
    return rows


def stored_shape(recording: Recording, info: TensorInfo) -> tuple[int | None, ...] | None:
    """Return the shape that the graph declares, or that of the stored values where it leaves an extent open.

    Args:
        recording: The run.
        info: A tensor of it; no element of it is read.
    """
    if (info.shape is None or None in info.shape) and recording.has(info.name):
        return recording.load(info.name).shape
    return info.shape


def _listed(recording: Recording) -> Iterator[TensorInfo]:
    """Yield inputs, then what nodes produce in order, then constants."""
    graph = recording.graph
    order = dict.fromkeys((*graph.inputs, *(name for node in graph.nodes for name in node.outputs if name)))
    order |= dict.fromkeys(graph.tensors)
    for name in sorted(order, key=graph.is_constant):
        yield graph.tensors[name]


def _tensor_dict(recording: Recording, info: TensorInfo) -> dict[str, Any]:
    producer = recording.graph.producer(info.name)
    return {
        "name": info.name,
        "role": str(info.role),
        "dtype": info.dtype,
        "shape": None if (shape := stored_shape(recording, info)) is None else list(shape),
        "layout": info.layout,
        "quant": None if info.quant is None else info.quant.to_dict(),
        "stored": recording.has(info.name),
        "node": None if producer is None else producer.name,
        "op": None if producer is None else producer.op,
    }


def _named_shape(info: TensorInfo) -> str:
    dtype = "" if info.role is Role.CONSTANT else info.dtype or ""
    return f"{info.name} {dtype} {numbers.shape(info.shape)}".replace("  ", " ")


def _ops(ops: list[tuple[str, int]]) -> str:
    shown = ", ".join(f"{many} {op}" for op, many in ops[:_OPS_SHOWN])
    return shown + (f", {len(ops) - _OPS_SHOWN} other kinds" if len(ops) > _OPS_SHOWN else "")


def _pairs(values: Any) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())
