"""Describe the graph that ONNX Runtime really runs in terms of the model it was made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from qdebug.adapters.onnx_quant import says_its_scale
from qdebug.adapters.onnx_twins import LAYOUT_CHANGES, source_tensors
from qdebug.model import Graph, Node, QuantParams, Role, TensorInfo
from qdebug.model.thresholds.alignment import DEQUANTIZED_THROUGH_MAX_NODES

__all__ = ["channel_block", "describe"]

_NCHWC = "com.microsoft.nchwc"
_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)

_MOVES_CODES = frozenset({"Flatten", "Gather", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators through which ONNX Runtime takes quantizing nodes."""


def describe(
    source: Graph,
    executed: Graph,
    *,
    named: Graph | None = None,
    dtypes: Mapping[str, str] | None = None,
    block: int = 16,
) -> Graph:
    """Add to an optimized graph what the source model says about its nodes and tensors.

    Nodes get their origin. Tensors get what they stand for, a layout where it is not the source's, and their dtype.
    Tensors that depend on no input of the graph become constants: dequantized weights, for instance.

    Args:
        source: The graph of the model as it was given.
        executed: The graph after optimization.
        named: The graph after optimizations that keep tensor names, if the executed one lost some.
        dtypes: Logical dtypes of tensors of the executed graph, where the runtime knows them.
        block: Channels in a block of blocked tensors, as the processor's kernels have it.
    """
    holds = source_tensors(source, executed, named)
    layouts = _layouts(executed, block)
    folded = _depend_on_constants(executed)
    tensors: list[TensorInfo] = []
    for name, info in executed.tensors.items():
        role = Role.CONSTANT if name in folded and info.role is Role.ACTIVATION else info.role
        dtype = (dtypes or {}).get(name, info.dtype)
        root = _stands_for(info, source, holds)
        quant = _quant(info, source, executed, holds)
        tensors.append(replace(info, stands_for=root, layout=layouts.get(name), dtype=dtype, role=role, quant=quant))
    origins = _Origins(source, executed, holds)
    return Graph(
        _before_copies([replace(node, origin=origins.of(node)) for node in executed.nodes]),
        tensors=tensors,
        inputs=executed.inputs,
        outputs=executed.outputs,
        name=source.name or executed.name,
        opset=executed.opset,
    )


def _quant(info: TensorInfo, source: Graph, executed: Graph, holds: Mapping[str, str]) -> QuantParams | None:
    """Give the scale that the source writes a tensor's codes with, where the executed graph may only tell how it reads.

    The optimizer drops the quantizing nodes around one that moves codes, and with them the scale they were written by.
    Of two quantizations after each other it makes one, which then has neither's scale.
    """
    writer = executed.producer(info.name)
    if writer is not None and says_its_scale(writer):
        return info.quant
    held = holds.get(info.name)
    written = None if held is None else source.tensors[held].quant
    ours = info.quant
    if written is None or ours is None or written.per_channel or ours.per_channel or written.dtype != ours.dtype:
        return ours
    return written


def _stands_for(info: TensorInfo, source: Graph, holds: Mapping[str, str]) -> str | None:
    held = holds.get(info.name)
    if held is not None:
        return source.tensors[held].stands_for or (held if held != info.name else None)
    # The optimizer adds DequantizeLinear nodes of its own: the executed graph's structure tells of what.
    root = info.stands_for
    return root if root is not None and root in source.tensors and root in holds else None


def channel_block(cpu_flags: Iterable[str]) -> int:
    """Give the channels in a block of the NCHWc operators: 16 with AVX-512 and on ARM, else 8 (MLAS, platform.cpp)."""
    return 16 if not {"avx512f", "asimd", "asimddp"}.isdisjoint(cpu_flags) else 8


def _layouts(executed: Graph, block: int) -> dict[str, str]:
    """Name the layout of tensors in blocks of channels, as the NCHWc operators keep them, and of channels-last ones.

    The file does not state how long a block is. Padded weights can refute what is known of the processor.
    """
    counts = [
        shape[0]
        for node in executed.nodes
        if (node.domain, node.op) == (_NCHWC, "Conv") and (shape := executed.tensors[node.inputs[1]].shape)
    ]
    fits = all(count is not None and count % block == 0 for count in counts)
    layouts: dict[str, str] = {}
    blocked: set[str] = set()
    for node in executed.nodes:
        outputs = [output for output in node.outputs if output]
        computes = node.domain == _NCHWC and node.op != "ReorderOutput"
        passes = not node.domain and node.op not in LAYOUT_CHANGES and bool(node.inputs) and node.inputs[0] in blocked
        if computes or passes:
            blocked.update(outputs)
            layouts.update((output, f"NCHW{block if fits else 8}c") for output in outputs)
        elif node.attrs.get("channels_last") or node.op.startswith("Nhwc"):
            layouts.update((output, "NHWC") for output in outputs)
    return layouts


def _depend_on_constants(executed: Graph) -> set[str]:
    known = {name for name, info in executed.tensors.items() if info.role is Role.CONSTANT}
    for node in executed.nodes:
        fed = [name for name in node.inputs if name]
        if fed and all(name in known for name in fed) and node.op not in _RANDOM:
            known.update(output for output in node.outputs if output)
    return known


def _before_copies(nodes: list[Node]) -> list[Node]:
    """Put nodes before the copies of them: one that does wrong is then met under the name that the model has for it."""
    named = {node.name: node for node in nodes}
    placed: dict[str, Node] = {}
    for node in nodes:
        original = named.get(node.origin[0]) if len(node.origin) == 1 else None
        if original is not None and (original.op, original.inputs) == (node.op, node.inputs):
            placed.setdefault(original.name, original)
        placed.setdefault(node.name, node)
    return list(placed.values())


def _says_the_same(one: Node, other: Node) -> bool:
    """Tell whether two nodes are of one operator and agree in what both state: the optimizer writes defaults out."""
    if (one.op, one.domain) != (other.op, other.domain):
        return False
    return all(np.array_equal(one.attrs[name], other.attrs[name]) for name in one.attrs.keys() & other.attrs.keys())


class _Origins:
    """Finds the source nodes that were folded into a node of the executed graph."""

    def __init__(self, source: Graph, executed: Graph, holds: Mapping[str, str]) -> None:
        self._source = source
        self._executed = executed
        self._holds = holds
        self._by_name = {node.name: node for node in source.nodes}

    def of(self, node: Node) -> tuple[str, ...]:
        """Give the source nodes on the paths from a node's inputs to its outputs, in topological order."""
        if self._unchanged(node.name, node):
            return ()
        starts = {name for tensor in node.inputs for name in self._starts(tensor)}
        ends = {self._holds[output] for output in node.outputs if output in self._holds} - starts
        names = [self._source.nodes[position].name for position in sorted(self._between(starts, ends))]
        if not names:
            return self._copied(node)
        return () if len(names) == 1 and self._unchanged(names[0], node) else tuple(names)

    def _copied(self, node: Node) -> tuple[str, ...]:
        """Give the source nodes that do the very same as a node whose result the source has under no name.

        The optimizer gives each reader of a DequantizeLinear a copy of its own (ensure_unique_dq_for_node_unit.cc), and
        may fold the node itself away; the copy reads the same, though constants that are equal may be made one.
        """
        data = next(iter(node.inputs), "")
        if data not in self._holds:
            return self._moved(node, data)
        for other in self._executed.consumers(data):
            if other.inputs == node.inputs and _says_the_same(other, node) and self._unchanged(other.name, other):
                return (other.name,)
        inputs = tuple(self._holds.get(name, name) for name in node.inputs)
        readers = self._source.consumers(self._holds[data])
        return tuple(other.name for other in readers if other.inputs == inputs and _says_the_same(other, node))

    def _moved(self, node: Node, data: str) -> tuple[str, ...]:
        """Give the source node that makes real values of codes, where the optimizer does so behind what moves them.

        It takes a DequantizeLinear through what only picks and arranges elements (qdq_propagation.cc), for which the
        source has another order of the two.
        """
        if node.op != "DequantizeLinear":
            return ()
        for _ in range(DEQUANTIZED_THROUGH_MAX_NODES):
            producer = self._executed.producer(data)
            if data in self._holds or producer is None or producer.op not in _MOVES_CODES:
                break
            data = producer.inputs[0]
        if data not in self._holds:
            return ()
        inputs = tuple(self._holds.get(name, name) for name in node.inputs[1:])
        readers = self._source.consumers(self._holds[data])
        return tuple(other.name for other in readers if other.inputs[1:] == inputs and _says_the_same(other, node))

    def _unchanged(self, name: str, node: Node) -> bool:
        source = self._by_name.get(name)
        if source is None:
            return False
        return (source.op, source.domain, source.outputs) == (node.op, node.domain, node.outputs)

    def _starts(self, tensor: str) -> Iterable[str]:
        """Give the nearest source tensors held at or above a tensor of the executed graph."""
        stack, seen = [tensor], {tensor}
        while stack:
            name = stack.pop()
            if name in self._holds:
                yield self._holds[name]
                continue
            producer = self._executed.producer(name)
            above = producer.inputs if producer is not None else ()
            stack.extend(other for other in above if other and other not in seen)
            seen.update(above)

    def _between(self, starts: set[str], ends: Iterable[str]) -> set[int]:
        """Give positions of the source nodes that lie between two sets of tensors."""
        above: set[int] = set()
        stack = list(ends)
        while stack:
            position = self._source.position(stack.pop())
            if position is None or position in above:
                continue
            above.add(position)
            stack.extend(name for name in self._source.nodes[position].inputs if name and name not in starts)
        reached = set(starts)
        kept: set[int] = set()
        for position in sorted(above):
            node = self._source.nodes[position]
            if any(name in reached for name in node.inputs if name):
                kept.add(position)
                reached.update(node.outputs)
        return kept
