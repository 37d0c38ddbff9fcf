"""The contents of a recording: facts, counts and lists, without reading any values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from qdebug.byte_size import byte_size
from qdebug.model import Node, QuantParams, Recording, Role, TensorInfo
from qdebug.model.dtypes import bit_width
from qdebug.model.float_sections import find_float_nodes, find_float_weights
from qdebug.model.json_object import JsonObject
from qdebug.plural import plural
from qdebug.present import numbers
from qdebug.present.detail import quant_summary
from qdebug.present.rows import SCALE_TITLE
from qdebug.present.text import safe_text

__all__ = ["TENSOR_TITLES", "Contents", "contents_facts", "stored_shape", "tensor_rows"]

TENSOR_TITLES = ("tensor", "role", "dtype", "shape", "bytes", SCALE_TITLE, "kept", "producer")
"""Titles of `tensor_rows`."""

_OPS_SHOWN = 12
_SKIPPED_SHOWN = 8


class Edge(TypedDict):
    """A tensor that one node passes to others, and its size in bytes."""

    tensor: str
    node: str
    readers: list[str]
    bytes: int


class Environment(TypedDict):
    """The environment of a run, apart from its model."""

    versions: Mapping[str, str]
    cpu_flags: tuple[str, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTensor(JsonObject):
    """A tensor of a recording.

    Args:
        name: Its name.
        role: Its role in the network.
        dtype: Logical dtype, or None if unknown.
        shape: Declared shape, or that of the stored values; None for an extent that varies.
        bytes: Size of one sample in bytes, or None if dtype or shape are unknown.
        layout: Names of its dimensions, if known.
        quant: Its quantization, or None.
        stored: Whether its values are stored.
        node: The node that computes it, or None for inputs and constants.
        op: Operator of that node.
    """

    name: str
    role: Role
    dtype: str | None
    shape: tuple[int | None, ...] | None
    bytes: int | None
    layout: str | None
    quant: QuantParams | None
    stored: bool
    node: str | None
    op: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents(JsonObject):
    """A recording, with facts about its file.

    Args:
        recording: The recording.
        path: Its path, as given by the user, or "" in memory.
        size: Size of the file in bytes.
        listed: Whether the JSON lists every tensor.
    """

    json_format = "info"
    json_keys = (
        "file=path backend=recording.info.backend model=recording.info.model "
        "model_sha256=recording.info.model_sha256 created=recording.info.created complete=recording.info.complete "
        "fidelity=recording.info.fidelity fidelity_detail=recording.info.fidelity_detail taps=recording.info.taps "
        "samples=recording.samples steps=recording.steps tensors constants nodes ops inputs=recording.graph.inputs "
        "outputs=recording.graph.outputs bytes=size skipped=recording.info.skipped "
        "skip_causes=recording.info.skip_causes doubts=recording.info.doubts disturbed=recording.info.disturbed "
        "environment weight_bytes edge_bytes int32_edges float_nodes float_weights tensor_list?"
    )

    recording: Recording
    path: str = ""
    size: int = 0
    listed: bool = False

    @property
    def tensors(self) -> int:
        """Number of tensors of which values were kept, at least in part."""
        return len(self.recording.names)

    @property
    def constants(self) -> int:
        """Number of constants among `tensors`."""
        return sum(map(self.recording.graph.is_constant, self.recording.names))

    @property
    def nodes(self) -> int:
        """Number of nodes in the graph."""
        return len(self.recording.graph.nodes)

    @property
    def ops(self) -> dict[str, int]:
        """Number of nodes for each operator, most frequent first."""
        return dict(Counter(node.op for node in self.recording.graph.nodes).most_common())

    @property
    def weight_bytes(self) -> dict[str, int]:
        """Bytes of the stored constants by dtype, largest first. Constants of unknown size are left out."""
        sizes = Counter[str]()
        for name, info in self.recording.graph.tensors.items():
            is_stored = self.recording.graph.is_constant(name) and self.recording.graph.producer(name) is None
            size = _sample_bytes(self.recording, info) if is_stored else None
            if size is not None and info.dtype:
                sizes[info.dtype] += size
        return dict(sizes.most_common())

    @property
    def edge_bytes(self) -> dict[str, int]:
        """Bytes per sample of the tensors that one node passes to another, by dtype, largest first."""
        sizes = Counter[str]()
        for info, size in self._edges():
            sizes[info.dtype or ""] += size
        return dict(sizes.most_common())

    @property
    def int32_edges(self) -> list[Edge]:
        """The int32 tensors that one node passes to another, largest first: mostly sums that were not requantized."""
        graph = self.recording.graph
        edges = [
            Edge(
                tensor=info.name,
                node="" if (producer := graph.producer(info.name)) is None else producer.name,
                readers=[node.name for node in graph.consumers(info.name)],
                bytes=size,
            )
            for info, size in self._edges()
            if info.dtype == "int32"
        ]
        return sorted(edges, key=lambda edge: -edge["bytes"])

    def _edges(self) -> Iterator[tuple[TensorInfo, int]]:
        """Yield the tensors that one node passes to another, with their size. Tensors of unknown size are left out."""
        graph = self.recording.graph
        for name, info in graph.tensors.items():
            if graph.is_constant(name) or graph.producer(name) is None or not graph.consumers(name):
                continue
            size = _sample_bytes(self.recording, info)
            if size is not None:
                yield info, size

    @property
    def float_nodes(self) -> list[str]:
        """Names of the nodes that compute in float between dequantization and quantization."""
        return [node.name for node in find_float_nodes(self.recording.graph)]

    @property
    def float_weights(self) -> list[str]:
        """Names of the nodes that multiply quantized data by float weights."""
        return [node.name for node in find_float_weights(self.recording.graph)]

    @property
    def environment(self) -> Environment:
        """Versions, processor and options of the run."""
        info = self.recording.info
        return {"versions": info.versions, "cpu_flags": info.cpu_flags, "options": info.options}

    @property
    def tensor_list(self) -> list[ListedTensor] | None:
        """Every tensor, or None if they are not listed."""
        return (
            [_listed_tensor(self.recording, info) for info in _tensors_in_order(self.recording)]
            if self.listed
            else None
        )


def _listed_tensor(recording: Recording, info: TensorInfo) -> ListedTensor:
    producer = recording.graph.producer(info.name)
    return ListedTensor(
        name=info.name,
        role=info.role,
        dtype=info.dtype,
        shape=stored_shape(recording, info),
        bytes=_sample_bytes(recording, info),
        layout=info.layout,
        quant=info.quant,
        stored=recording.has(info.name),
        node=None if producer is None else producer.name,
        op=None if producer is None else producer.op,
    )


def contents_facts(contents: Contents) -> list[tuple[str, str]]:
    """Return the contents as labelled facts, safe to print."""
    recording = contents.recording
    info, graph = recording.info, recording.graph
    constants = sum(graph.is_constant(name) for name in recording.names)
    counts_text = f"{numbers.grouped(len(recording.names))} with values, {numbers.grouped(constants)} of them constants"
    partial_count = sum(not _is_stored_in_full(recording, name) for name in recording.names)
    counts_text += f", {numbers.grouped(partial_count)} with statistics or some values only" if partial_count else ""
    ops = Counter(node.op for node in graph.nodes).most_common()
    detail = f" ({info.fidelity_detail})" if info.fidelity_detail else ""
    facts = [
        ("file", f"{contents.path}, {byte_size(contents.size)}" if contents.path else ""),
        ("model", f"{info.model}, sha256 {info.model_sha256[:16]}" if info.model_sha256 else info.model),
        ("backend", info.backend),
        ("options", _pairs_text(info.options)),
        ("complete", "yes" if info.complete else "NO: the run did not finish, or the file was recovered"),
        ("fidelity", f"{info.fidelity}{detail}"),
        ("taps", info.taps),
        ("samples", f"{recording.samples}" + (f", {recording.steps} steps each" if recording.steps > 1 else "")),
        ("tensors", counts_text),
        ("nodes", f"{numbers.grouped(len(graph.nodes))}: " + _ops_text(ops) if ops else "none: no graph was recorded"),
        ("weights", _sizes_text(contents.weight_bytes)),
        ("edges", _sizes_text(contents.edge_bytes)),
        ("int32 edges", _edges_text(contents.int32_edges)),
        ("in float", _float_text(find_float_nodes(graph), "between dequantize and quantize")),
        ("float weights", _float_text(find_float_weights(graph), "with quantized data")),
        ("inputs", ", ".join(_named_shape(graph.tensors[name]) for name in graph.inputs)),
        ("outputs", ", ".join(_named_shape(graph.tensors[name]) for name in graph.outputs)),
        ("created", info.created),
        ("versions", _pairs_text(info.versions)),
        ("CPU flags", ", ".join(info.cpu_flags)),
    ]
    facts += [("doubtful", f"{name}: {doubt}") for name, doubt in [*info.doubts.items()][:_SKIPPED_SHOWN]]
    if info.disturbed:
        count, first = plural(len(info.disturbed), "tensor"), next(iter(info.disturbed.items()))
        facts.append(("disturbed", f"{count} changed by recording (the first: {first[0]}: {first[1]})"))
    facts += [("not recorded", f"{name}: {reason}") for name, reason in [*info.skipped.items()][:_SKIPPED_SHOWN]]
    if len(info.skipped) > _SKIPPED_SHOWN:
        facts.append(("", f"{len(info.skipped) - _SKIPPED_SHOWN} more not recorded; -f json lists them"))
    return [(label, safe_text(text)) for label, text in facts if text]


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{dtype} {byte_size(size)}" for dtype, size in sizes.items())


def _edges_text(edges: Sequence[Edge]) -> str:
    """Return the count and the total size of edges, and the largest ones, or "" if there are none."""
    shown = ", ".join(f"{edge['tensor']} {byte_size(edge['bytes'])}" for edge in edges[:_SKIPPED_SHOWN])
    rest = f", {len(edges) - _SKIPPED_SHOWN} more; -f json lists them" if len(edges) > _SKIPPED_SHOWN else ""
    total = byte_size(sum(edge["bytes"] for edge in edges))
    return f"{plural(len(edges), 'tensor')} between nodes, {total}: {shown}{rest}" if edges else ""


def _sample_bytes(recording: Recording, info: TensorInfo) -> int | None:
    """Return the size of one sample of a tensor in bytes, or None if its dtype or shape is unknown."""
    shape = stored_shape(recording, info)
    if shape is None or not info.dtype or any(extent is None for extent in shape):
        return None
    return -(-math.prod(extent or 0 for extent in shape) * bit_width(info.dtype) // 8)


def _float_text(nodes: Sequence[Node], where_text: str) -> str:
    """Return the count of nodes and the names of the first ones, or "" if there are none."""
    shown = ", ".join(f"{node.name} ({node.op})" for node in nodes[:_SKIPPED_SHOWN])
    rest = f", {len(nodes) - _SKIPPED_SHOWN} more; -f json lists them" if len(nodes) > _SKIPPED_SHOWN else ""
    return f"{plural(len(nodes), 'node')} {where_text}: {shown}{rest}" if nodes else ""


def _is_stored_in_full(recording: Recording, tensor: str) -> bool:
    """Return whether at least one sample and step has all values of a tensor."""
    return any(recording.has(tensor, *place) for place in recording.places(tensor))


def tensor_rows(recording: Recording) -> list[tuple[str, ...]]:
    """Return one row for each tensor of the recording, in topological order, safe to print."""
    rows: list[tuple[str, ...]] = []
    stored_names = frozenset(recording.names)
    for info in _tensors_in_order(recording):
        producer = recording.graph.producer(info.name)
        kept_text = (
            "no" if info.name not in stored_names else "yes" if _is_stored_in_full(recording, info.name) else "partly"
        )
        rows.append(
            (
                safe_text(info.name, limit=200),
                str(info.role),
                safe_text(info.dtype or numbers.MISSING, limit=40),
                numbers.shape(stored_shape(recording, info)),
                numbers.grouped(_sample_bytes(recording, info)),
                quant_summary(info.quant),
                kept_text,
                numbers.MISSING if producer is None else safe_text(f"{producer.op} {producer.name}", limit=120),
            )
        )
    return rows


def stored_shape(recording: Recording, info: TensorInfo) -> tuple[int | None, ...] | None:
    """Return the declared shape, or that of the stored values if the declared shape is incomplete.

    Args:
        recording: The run.
        info: One of its tensors. Its elements are not read.
    """
    if (info.shape is None or None in info.shape) and recording.has(info.name):
        return recording.load(info.name).shape
    return info.shape


def _tensors_in_order(recording: Recording) -> Iterator[TensorInfo]:
    """Yield the tensors of a recording: inputs, then outputs of nodes in order, then constants."""
    graph = recording.graph
    order = dict.fromkeys((*graph.inputs, *(name for node in graph.nodes for name in node.outputs if name)))
    order |= dict.fromkeys(graph.tensors)
    for name in sorted(order, key=graph.is_constant):
        yield graph.tensors[name]


def _named_shape(info: TensorInfo) -> str:
    dtype = "" if info.role is Role.CONSTANT else info.dtype or ""
    return f"{info.name} {dtype} {numbers.shape(info.shape)}".replace("  ", " ")


def _ops_text(ops: list[tuple[str, int]]) -> str:
    shown = ", ".join(f"{count} {op}" for op, count in ops[:_OPS_SHOWN])
    return shown + (f", {len(ops) - _OPS_SHOWN} other kinds" if len(ops) > _OPS_SHOWN else "")


def _pairs_text(values: Any) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())
