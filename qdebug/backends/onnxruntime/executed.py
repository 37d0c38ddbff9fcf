"""Describe the graph that ONNX Runtime really runs in terms of the model it was made from.

Find, for tensors of an optimized graph, the tensors of the source model that they hold, where names got lost. Fusions
keep tensor names; the layout optimizer that runs last calls tensors after nodes, or "reorder". The graph of one level
lower still has the names, and differs by inserted layout changes alone: both are walked together.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from qdebug.compare.align.expand import expanded
from qdebug.model import Graph, Node, QuantParams, Role, TensorInfo, operators
from qdebug.model.operators import Sums
from qdebug.model.operators.known_scales import states_scale
from qdebug.model.quant import is_same_scale
from qdebug.model.thresholds.alignment import DEQUANTIZED_THROUGH_MAX_NODES, FUSED_CHAIN_MAX_NODES

__all__ = ["LAYOUT_CHANGES", "channel_block", "describe", "source_tensors"]

LAYOUT_CHANGES = frozenset({"ReorderInput", "ReorderOutput", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that the layout optimizer inserts."""

_FLOAT_COPY = "InsertedPrecisionFreeCast_"
"""What the name begins with of a float32 tensor that ONNX Runtime computes in place of one of float16
(insert_cast_transformer.cc): its processor kernels know no float16."""

_WINDOW = ("kernel_shape", "strides", "dilations")
"""Attributes that the layout optimizer takes over as they are.

An axis is none: it turns with the tensor. Nor are the groups of a depthwise Conv: as many as channels are padded to.
"""

_ADDED = re.compile(r"(_nchwc)?(_token_\d+)?$")
_ADDED_BIAS = "/MatMulAddFusion"
"""What a Gemm is called after the product that a bias was added to (matmul_add_fusion.cc)."""


def source_tensors(source: Graph, executed: Graph, named: Graph | None = None) -> dict[str, str]:
    """Map tensors of the executed graph to the source tensors they hold, perhaps in another layout.

    Args:
        source: The graph of the model as it was given.
        executed: The graph after optimization.
        named: The graph after the same optimizations but for those that lose names; None if there are none.
    """
    found = _through_reshapes(executed, source, _by_name(executed, source))
    found = {**_moved_codes(executed, source, found), **found}
    if named is None:
        return found
    kept = _through_reshapes(named, source, _by_name(named, source))
    kept = {**_moved_codes(named, source, kept), **kept}
    # One graph may fuse an activation that the other leaves alone: both are walked with each in a node of its own.
    twins = _twins(expanded(executed), expanded(named), found, named.tensors)
    known = {name: kept[twin] for name, twin in twins.items() if twin in kept and name in executed.tensors}
    return {**known, **found}


def _by_name(graph: Graph, source: Graph) -> dict[str, str]:
    """Map tensors to those of the source that they are named after."""
    found: dict[str, str] = {}
    for name, info in graph.tensors.items():
        plain = name.removeprefix(_FLOAT_COPY)
        theirs = source.tensors.get(plain)
        if _same(info, source.tensors.get(name)):
            found[name] = name
        elif plain != name and theirs is not None and info.quant is None and theirs.quant is None:
            found[name] = plain
    return found


def _through_reshapes(graph: Graph, source: Graph, found: dict[str, str]) -> dict[str, str]:
    """Add tensors that are reshaped to or from a known one where the source has no Reshape.

    ONNX Runtime puts them around a Gemm that stands for a product of more dimensions (matmul_add_fusion.cc).
    """
    both = dict(found)
    own = {node.name for node in source.nodes if node.op in LAYOUT_CHANGES}
    for node in graph.nodes:
        if node.op != "Reshape" or node.name in own or node.outputs[0] in graph.outputs:
            continue
        before, after = node.inputs[0], node.outputs[0]
        if after in both and before not in both and _computed(both[after], source):
            both[before] = both[after]
        elif before in both and after not in both and after not in source.tensors:
            readers = source.consumers(both[before])
            if _read_by_products(after, graph) and not any(reader.op in LAYOUT_CHANGES for reader in readers):
                both[after] = both[before]
    return both


def _moved_codes(graph: Graph, source: Graph, found: Mapping[str, str]) -> dict[str, str]:
    """Map codes that were moved from int8 to uint8 to the source's.

    ONNX Runtime names them anew (qdq_s8_to_u8.cc), but not the nodes that make them. That they have the source's scale,
    and a zero point that is moved as they are, bears the name out.
    """
    makers = {node.name: node for node in source.nodes}
    moved: dict[str, str] = {}
    for node in graph.nodes:
        tensor = node.outputs[0]
        theirs = makers.get(_ADDED.sub("", node.name).removesuffix(_ADDED_BIAS))
        if theirs is None or tensor in found or len(node.outputs) != 1 or not theirs.outputs:
            continue
        codes = _codes_of(theirs.outputs[0], source)
        if codes is not None and _is_moved(graph.tensors[tensor].quant, source.tensors[codes].quant):
            moved[tensor] = codes
    return moved


def _codes_of(tensor: str, source: Graph) -> str | None:
    """Return the codes that a tensor of the source turns into, behind what is fused into the node that makes it."""
    for _ in range(FUSED_CHAIN_MAX_NODES):
        if source.tensors[tensor].quant is not None:
            return tensor
        readers = source.consumers(tensor)
        row = None if len(readers) != 1 else operators.plain(readers[0])
        if row is None or not (row.activation or row.quantizes or (row.adds and row.commutes)):
            return None
        tensor = readers[0].outputs[0]
    return None


def _is_moved(ours: QuantParams | None, theirs: QuantParams | None) -> bool:
    """Tell whether codes of uint8 are codes of int8 and 128."""
    if ours is None or theirs is None or (ours.dtype, theirs.dtype) != ("uint8", "int8"):
        return False
    return is_same_scale(ours.scale, theirs.scale) and np.array_equal(ours.zero_point, theirs.zero_point + 128)


def _read_by_products(tensor: str, graph: Graph) -> bool:
    """Tell whether nothing but products of two dimensions reads a tensor, as itself or in codes.

    ONNX Runtime reshapes it for them, or for what prepares codes for them.
    """
    waiting, found = [tensor], False
    while waiting:
        for reader in graph.consumers(waiting.pop()):
            row = operators.plain(reader)
            if operators.of(reader.op).keeps_values:
                waiting.append(reader.outputs[0])
            elif not (row.sums is Sums.MATRIX or row.gives_scale):
                return False
            else:
                found = True
    return found


def _computed(tensor: str, source: Graph) -> bool:
    """Tell whether a tensor of the source, seen through its codes, is made by a node that does not just arrange it."""
    node = source.producer(tensor)
    while node is not None and (operators.of(node.op).keeps_values or operators.of(node.op).casts):
        node = source.producer(node.inputs[0])
    return node is not None and node.op not in LAYOUT_CHANGES


def _same(ours: TensorInfo, theirs: TensorInfo | None) -> bool:
    """Tell whether two tensors of one name are the same: a lost name may be given anew, to codes for instance."""
    if theirs is None or (ours.quant is None) != (theirs.quant is None):
        return False
    return None in (ours.dtype, theirs.dtype) or ours.dtype == theirs.dtype


def _twins(executed: Graph, named: Graph, by_name: Iterable[str], made: Collection[str]) -> dict[str, str]:
    """Walk the executed graph and give each tensor the tensor of the other graph that is computed alike.

    Args:
        executed: The executed graph, each node doing one thing.
        named: The other one, likewise.
        by_name: Tensors that are known by their names.
        made: Tensors of the other one that are really made: not those within a fused node.
    """
    twins = {name: name for name in by_name if name in named.tensors}
    readers: dict[tuple[str, tuple[str, ...]], list[Node]] = {}
    for node in named.nodes:
        readers.setdefault(_reading(node, _data(node, named)), []).append(node)
    called = {node.name: node for node in named.nodes}
    taken: set[str] = set()
    for node in executed.nodes:
        data = _data(node, executed)
        if any(name not in twins for name in data):
            continue
        alike = readers.get(_reading(node, [twins[name] for name in data]), [])
        alike = [other for other in alike if _shaped_alike(node, other)]
        free = [n for n in alike if n.name not in taken and len(n.outputs) == len(node.outputs)]
        twin = _choose(node, {other: _called(other, named, made) for other in free})
        if twin is not None and not _is_another(node, twin, called):
            taken.add(twin.name)
            for ours, theirs in zip(node.outputs, twin.outputs, strict=True):
                twins.setdefault(ours, theirs)
        elif node.op in LAYOUT_CHANGES and not alike and data:
            twins.setdefault(node.outputs[0], twins[data[0]])
    return twins


def _reading(node: Node, data: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return what a node does on what: a fused sum has the other operand second, whichever it was in the model."""
    return _operator(node), tuple(sorted(data) if operators.plain(node).commutes else data)


def _operator(node: Node) -> str:
    if node.op == "Upsample":  # what the layout optimizer makes of a Resize
        return "Resize"
    return node.op.removeprefix("Fused").removeprefix("Nhwc")


def _shaped_alike(one: Node, other: Node) -> bool:
    """Tell whether two nodes agree in what both state of their windows: pools of one input differ in nothing else."""
    return all(one.attrs[name] == other.attrs[name] for name in _WINDOW if name in one.attrs and name in other.attrs)


def _data(node: Node, graph: Graph) -> tuple[str, ...]:
    return tuple(name for name in node.inputs if name and not graph.is_constant(name))


def _called(node: Node, graph: Graph, made: Collection[str]) -> set[str]:
    """Return the names that a node may be called after: its own, its outputs', and those of the whole fused node."""
    names, output = {node.name, *node.outputs}, node.outputs[0]
    while output not in made:
        output = graph.consumers(output)[0].outputs[0]
        names.add(output)
    return names


def _is_another(node: Node, twin: Node, called: Mapping[str, Node]) -> bool:
    """Tell whether a node has the name of another one than its twin, which does the same.

    Copies of one DequantizeLinear are alike, and what reads one of them may be taken for what reads another.
    """
    other = called.get(_ADDED.sub("", node.name), twin)
    return other is not twin and _operator(other) == _operator(node)


def _choose(node: Node, candidates: Mapping[Node, Collection[str]]) -> Node | None:
    """Return the one candidate, by the names it goes by, or the one that a node is called after."""
    if len(candidates) <= 1:
        return next(iter(candidates), None)
    stem = _ADDED.sub("", node.name)
    called_so = [other for other, names in candidates.items() if stem in names]
    return called_so[0] if len(called_so) == 1 else None


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
    folded_nodes = _FoldedNodes(source, executed, holds)
    return Graph(
        _before_copies([replace(node, origin=folded_nodes.of(node)) for node in executed.nodes]),
        tensors=tensors,
        inputs=executed.inputs,
        outputs=executed.outputs,
        name=source.name or executed.name,
        opset=executed.opset,
    )


def _quant(info: TensorInfo, source: Graph, executed: Graph, holds: Mapping[str, str]) -> QuantParams | None:
    """Return the scale that the source writes a tensor's codes with; the executed graph may tell only that of reading.

    The optimizer drops the quantizing nodes around one that moves codes, and with them the scale they were written by.
    Of two quantizations after each other it makes one, which then has neither's scale.
    """
    writer = executed.producer(info.name)
    if writer is not None and states_scale(writer):
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
    """Return the block of channels of the NCHWc operators: 16 with AVX-512 and on ARM, else 8 (MLAS, platform.cpp)."""
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


class _FoldedNodes:
    """Finds the source nodes that were folded into a node of the executed graph."""

    def __init__(self, source: Graph, executed: Graph, holds: Mapping[str, str]) -> None:
        self._source = source
        self._executed = executed
        self._holds = holds
        self._by_name = {node.name: node for node in source.nodes}

    def of(self, node: Node) -> tuple[str, ...]:
        """Return the source nodes on the paths from a node's inputs to its outputs, in topological order."""
        if self._unchanged(node.name, node):
            return ()
        starts = {name for tensor in node.inputs for name in self._starts(tensor)}
        ends = {self._holds[output] for output in node.outputs if output in self._holds} - starts
        names = [self._source.nodes[position].name for position in sorted(self._between(starts, ends))]
        if not names:
            return self._copied(node)
        return () if len(names) == 1 and self._unchanged(names[0], node) else tuple(names)

    def _copied(self, node: Node) -> tuple[str, ...]:
        """Return the source nodes that do the very same as a node whose result the source has under no name.

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
        """Return the source node that makes real values of codes, where the optimizer does so behind what moves them.

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
        """Yield the nearest source tensors held at or above a tensor of the executed graph."""
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
        """Return positions of the source nodes that lie between two sets of tensors."""
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
