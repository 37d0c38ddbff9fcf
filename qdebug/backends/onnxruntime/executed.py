"""Describe the graph that ONNX Runtime actually runs in terms of its source model. Begin at `describe`.

Tensors of an optimized graph that lost their names are mapped to tensors of the source model. Fusions keep tensor
names; the layout optimizer, which runs last, names tensors after nodes, or "reorder". The graph of the next lower level
still has the names, and differs only by inserted layout changes. So both graphs are walked together.
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
"""Name prefix of a float32 tensor that ONNX Runtime computes in place of a float16 tensor (insert_cast_transformer.cc),
because its CPU kernels do not support float16."""

_WINDOW = ("kernel_shape", "strides", "dilations")
"""Attributes that the layout optimizer copies unchanged.

Axes are not among them, since they change with the layout. Neither are the groups of a depthwise Conv, since channels
may be padded.
"""

_ADDED = re.compile(r"(_nchwc)?(_token_\d+)?$")
_ADDED_BIAS = "/MatMulAddFusion"
"""Suffix that a Gemm gets after the name of the product whose bias it absorbs (matmul_add_fusion.cc)."""


def source_tensors(source: Graph, executed: Graph, named: Graph | None = None) -> dict[str, str]:
    """Map tensors of the executed graph to source tensors with the same values, possibly in a different layout.

    Args:
        source: The graph of the source model.
        executed: The graph after optimization.
        named: The graph after the same optimizations except those that lose names; None without one.
    """
    mapped = _through_reshapes(executed, source, _by_name(executed, source))
    mapped = {**_moved_codes(executed, source, mapped), **mapped}
    if named is None:
        return mapped
    named_mapped = _through_reshapes(named, source, _by_name(named, source))
    named_mapped = {**_moved_codes(named, source, named_mapped), **named_mapped}
    # One graph may fuse an activation that the other does not: both are walked with unfused activations.
    twins = _twins(expanded(executed), expanded(named), mapped, named.tensors)
    by_twins = {
        name: named_mapped[twin] for name, twin in twins.items() if twin in named_mapped and name in executed.tensors
    }
    return {**by_twins, **mapped}


def _by_name(graph: Graph, source: Graph) -> dict[str, str]:
    """Map tensors to the source tensors after which they are named."""
    mapped: dict[str, str] = {}
    for name, info in graph.tensors.items():
        plain = name.removeprefix(_FLOAT_COPY)
        source_info = source.tensors.get(plain)
        if _is_same_tensor(info, source.tensors.get(name)):
            mapped[name] = name
        elif plain != name and source_info is not None and info.quant is None and source_info.quant is None:
            mapped[name] = plain
    return mapped


def _through_reshapes(graph: Graph, source: Graph, mapped: dict[str, str]) -> dict[str, str]:
    """Add tensors that are reshaped to or from a mapped one if the source has no such Reshape.

    ONNX Runtime inserts a Reshape around a Gemm that replaces a product with more dimensions (matmul_add_fusion.cc).
    """
    extended = dict(mapped)
    source_reshapes = {node.name for node in source.nodes if node.op in LAYOUT_CHANGES}
    for node in graph.nodes:
        if node.op != "Reshape" or node.name in source_reshapes or node.outputs[0] in graph.outputs:
            continue
        before, after = node.inputs[0], node.outputs[0]
        if after in extended and before not in extended and _computed(extended[after], source):
            extended[before] = extended[after]
        elif before in extended and after not in extended and after not in source.tensors:
            readers = source.consumers(extended[before])
            if _is_read_by_products_only(after, graph) and not any(reader.op in LAYOUT_CHANGES for reader in readers):
                extended[after] = extended[before]
    return extended


def _moved_codes(graph: Graph, source: Graph, mapped: Mapping[str, str]) -> dict[str, str]:
    """Map codes that were converted from int8 to uint8 to the source's.

    ONNX Runtime renames them (qdq_s8_to_u8.cc), but not their producers. Equal scales, and a zero point shifted like
    the codes, confirm the name.
    """
    makers = {node.name: node for node in source.nodes}
    moved: dict[str, str] = {}
    for node in graph.nodes:
        tensor = node.outputs[0]
        maker = makers.get(_ADDED.sub("", node.name).removesuffix(_ADDED_BIAS))
        if maker is None or tensor in mapped or len(node.outputs) != 1 or not maker.outputs:
            continue
        codes = _codes_of(maker.outputs[0], source)
        if codes is not None and _is_moved(graph.tensors[tensor].quant, source.tensors[codes].quant):
            moved[tensor] = codes
    return moved


def _codes_of(tensor: str, source: Graph) -> str | None:
    """Return the codes of a source tensor, taken after the nodes that are fused into its producer."""
    for _ in range(FUSED_CHAIN_MAX_NODES):
        if source.tensors[tensor].quant is not None:
            return tensor
        readers = source.consumers(tensor)
        row = None if len(readers) != 1 else operators.plain(readers[0])
        if row is None or not (row.activation or row.quantizes or (row.adds and row.commutes)):
            return None
        tensor = readers[0].outputs[0]
    return None


def _is_moved(quant: QuantParams | None, source_quant: QuantParams | None) -> bool:
    """Return whether uint8 codes are int8 codes plus 128."""
    if quant is None or source_quant is None or (quant.dtype, source_quant.dtype) != ("uint8", "int8"):
        return False
    return is_same_scale(quant.scale, source_quant.scale) and np.array_equal(
        quant.zero_point, source_quant.zero_point + 128
    )


def _is_read_by_products_only(tensor: str, graph: Graph) -> bool:
    """Return whether only two-dimensional products read a tensor, either directly or as codes.

    ONNX Runtime reshapes the tensor for these products, or for nodes that prepare their codes.
    """
    waiting, has_product = [tensor], False
    while waiting:
        for reader in graph.consumers(waiting.pop()):
            row = operators.plain(reader)
            if operators.of(reader.op).keeps_values:
                waiting.append(reader.outputs[0])
            elif not (row.sums is Sums.MATRIX or row.gives_scale):
                return False
            else:
                has_product = True
    return has_product


def _computed(tensor: str, source: Graph) -> bool:
    """Return whether a source tensor, looking through its codes, is computed rather than only rearranged."""
    node = source.producer(tensor)
    while node is not None and (operators.of(node.op).keeps_values or operators.of(node.op).casts):
        node = source.producer(node.inputs[0])
    return node is not None and node.op not in LAYOUT_CHANGES


def _is_same_tensor(info: TensorInfo, source_info: TensorInfo | None) -> bool:
    """Return whether two tensors with the same name are the same. A lost name may be reused, for example for codes."""
    if source_info is None or (info.quant is None) != (source_info.quant is None):
        return False
    return None in (info.dtype, source_info.dtype) or info.dtype == source_info.dtype


def _twins(executed: Graph, named: Graph, by_name: Iterable[str], made: Collection[str]) -> dict[str, str]:
    """Walk the executed graph, and map each tensor to the equivalent tensor of the other graph.

    Args:
        executed: The executed graph, without fused activations.
        named: The other graph, without fused activations.
        by_name: Tensors that are known by their names.
        made: Tensors of the other graph that are actually computed, without those inside a fused node.
    """
    twins = {name: name for name in by_name if name in named.tensors}
    readers: dict[tuple[str, tuple[str, ...]], list[Node]] = {}
    for node in named.nodes:
        readers.setdefault(_match_key(node, _data(node, named)), []).append(node)
    called = {node.name: node for node in named.nodes}
    used_names: set[str] = set()
    for node in executed.nodes:
        data = _data(node, executed)
        if any(name not in twins for name in data):
            continue
        candidates = readers.get(_match_key(node, [twins[name] for name in data]), [])
        candidates = [other for other in candidates if _has_equal_windows(node, other)]
        free = [n for n in candidates if n.name not in used_names and len(n.outputs) == len(node.outputs)]
        twin = _choose(node, {other: _possible_names(other, named, made) for other in free})
        if twin is not None and not _is_named_after_other(node, twin, called):
            used_names.add(twin.name)
            for output, twin_output in zip(node.outputs, twin.outputs, strict=True):
                twins.setdefault(output, twin_output)
        elif node.op in LAYOUT_CHANGES and not candidates and data:
            twins.setdefault(node.outputs[0], twins[data[0]])
    return twins


def _match_key(node: Node, data: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return (operator, inputs) with sorted inputs for fused sums, whose operands the optimizer may swap."""
    return _operator(node), tuple(sorted(data) if operators.plain(node).commutes else data)


def _operator(node: Node) -> str:
    if node.op == "Upsample":  # the layout optimizer's form of a Resize
        return "Resize"
    return node.op.removeprefix("Fused").removeprefix("Nhwc")


def _has_equal_windows(first: Node, second: Node) -> bool:
    """Return whether two nodes agree in all stated window attributes.

    Pools with the same input differ only in these.
    """
    return all(
        first.attrs[name] == second.attrs[name] for name in _WINDOW if name in first.attrs and name in second.attrs
    )


def _data(node: Node, graph: Graph) -> tuple[str, ...]:
    return tuple(name for name in node.inputs if name and not graph.is_constant(name))


def _possible_names(node: Node, graph: Graph, made: Collection[str]) -> set[str]:
    """Return the names that a node may have: its own, those of its outputs, and those of the whole fused node."""
    names, output = {node.name, *node.outputs}, node.outputs[0]
    while output not in made:
        output = graph.consumers(output)[0].outputs[0]
        names.add(output)
    return names


def _is_named_after_other(node: Node, twin: Node, called: Mapping[str, Node]) -> bool:
    """Return whether a node is named after a different node than its twin with the same operation.

    Copies of one DequantizeLinear are equal, and the reader of one copy may be confused with the reader of another.
    """
    namesake = called.get(_ADDED.sub("", node.name), twin)
    return namesake is not twin and _operator(namesake) == _operator(node)


def _choose(node: Node, candidates: Mapping[Node, Collection[str]]) -> Node | None:
    """Return the only candidate, or else the candidate after which the node is named."""
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
"""Operators through which ONNX Runtime moves quantizing nodes."""


def describe(
    source: Graph,
    executed: Graph,
    *,
    named: Graph | None = None,
    dtypes: Mapping[str, str] | None = None,
    block: int = 16,
) -> Graph:
    """Add the source model's facts about nodes and tensors to an optimized graph.

    Nodes get their origin. Tensors get `stands_for`, a layout if it differs from the source's, and their dtype. Tensors
    that do not depend on an input of the graph become constants, for example dequantized weights.

    Args:
        source: The graph of the source model.
        executed: The graph after optimization.
        named: The graph after optimizations that keep tensor names, if the executed graph lost some.
        dtypes: Logical dtypes of tensors of the executed graph, as far as the runtime knows them.
        block: Channels per block of blocked tensors, which depends on the processor's kernels.
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
        _with_originals_first([replace(node, origin=folded_nodes.of(node)) for node in executed.nodes]),
        tensors=tensors,
        inputs=executed.inputs,
        outputs=executed.outputs,
        name=source.name or executed.name,
        opset=executed.opset,
    )


def _quant(info: TensorInfo, source: Graph, executed: Graph, holds: Mapping[str, str]) -> QuantParams | None:
    """Return the scale with which the source writes a tensor's codes.

    The executed graph may only state a reader's scale. The optimizer drops the quantizing nodes around a node that
    moves codes, and with them the scale of writing. It also merges two successive quantizations into one, which has
    neither scale.
    """
    writer = executed.producer(info.name)
    if writer is not None and states_scale(writer):
        return info.quant
    source_name = holds.get(info.name)
    written = None if source_name is None else source.tensors[source_name].quant
    own = info.quant
    if written is None or own is None or written.per_channel or own.per_channel or written.dtype != own.dtype:
        return own
    return written


def _stands_for(info: TensorInfo, source: Graph, holds: Mapping[str, str]) -> str | None:
    source_name = holds.get(info.name)
    if source_name is not None:
        return source.tensors[source_name].stands_for or (source_name if source_name != info.name else None)
    # The optimizer adds DequantizeLinear nodes; their origin follows from the executed graph's structure.
    root = info.stands_for
    return root if root is not None and root in source.tensors and root in holds else None


def channel_block(cpu_flags: Iterable[str]) -> int:
    """Return the channel block size of the NCHWc operators: 16 with AVX-512 and on ARM, else 8 (MLAS, platform.cpp)."""
    return 16 if not {"avx512f", "asimd", "asimddp"}.isdisjoint(cpu_flags) else 8


def _layouts(executed: Graph, block: int) -> dict[str, str]:
    """Return the layouts of tensors in blocks of channels, as in NCHWc operators, and of channels-last tensors.

    The file does not state the block size. Padded weights can show that it is not the processor's default.
    """
    counts = [
        shape[0]
        for node in executed.nodes
        if (node.domain, node.op) == (_NCHWC, "Conv") and (shape := executed.tensors[node.inputs[1]].shape)
    ]
    has_full_blocks = all(count is not None and count % block == 0 for count in counts)
    layouts: dict[str, str] = {}
    blocked: set[str] = set()
    for node in executed.nodes:
        outputs = [output for output in node.outputs if output]
        computes = node.domain == _NCHWC and node.op != "ReorderOutput"
        passes = not node.domain and node.op not in LAYOUT_CHANGES and bool(node.inputs) and node.inputs[0] in blocked
        if computes or passes:
            blocked.update(outputs)
            layouts.update((output, f"NCHW{block if has_full_blocks else 8}c") for output in outputs)
        elif node.attrs.get("channels_last") or node.op.startswith("Nhwc"):
            layouts.update((output, "NHWC") for output in outputs)
    return layouts


def _depend_on_constants(executed: Graph) -> set[str]:
    constants = {name for name, info in executed.tensors.items() if info.role is Role.CONSTANT}
    for node in executed.nodes:
        fed = [name for name in node.inputs if name]
        if fed and all(name in constants for name in fed) and node.op not in _RANDOM:
            constants.update(output for output in node.outputs if output)
    return constants


def _with_originals_first(nodes: list[Node]) -> list[Node]:
    """Put nodes before their copies, so that a wrong node is reported under the model's name."""
    by_name = {node.name: node for node in nodes}
    placed: dict[str, Node] = {}
    for node in nodes:
        original = by_name.get(node.origin[0]) if len(node.origin) == 1 else None
        if original is not None and (original.op, original.inputs) == (node.op, node.inputs):
            placed.setdefault(original.name, original)
        placed.setdefault(node.name, node)
    return list(placed.values())


def _has_equal_attributes(first: Node, second: Node) -> bool:
    """Return whether two nodes have the same operator and agree in all common attributes. Defaults may be omitted."""
    if (first.op, first.domain) != (second.op, second.domain):
        return False
    return all(
        np.array_equal(first.attrs[name], second.attrs[name]) for name in first.attrs.keys() & second.attrs.keys()
    )


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
        """Return the source nodes that equal a node whose result does not have a source name.

        The optimizer gives each reader of a DequantizeLinear its own copy (ensure_unique_dq_for_node_unit.cc), and may
        remove the original; the copy has equal inputs, though equal constants may be merged.
        """
        data = next(iter(node.inputs), "")
        if data not in self._holds:
            return self._moved(node, data)
        for other in self._executed.consumers(data):
            if (
                other.inputs == node.inputs
                and _has_equal_attributes(other, node)
                and self._unchanged(other.name, other)
            ):
                return (other.name,)
        inputs = tuple(self._holds.get(name, name) for name in node.inputs)
        readers = self._source.consumers(self._holds[data])
        return tuple(other.name for other in readers if other.inputs == inputs and _has_equal_attributes(other, node))

    def _moved(self, node: Node, data: str) -> tuple[str, ...]:
        """Return the source node that dequantizes codes, if the optimizer moved it past nodes that move the codes.

        The optimizer moves a DequantizeLinear through nodes that only select or arrange elements (qdq_propagation.cc),
        so the order in the source is reversed.
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
        return tuple(
            other.name for other in readers if other.inputs[1:] == inputs and _has_equal_attributes(other, node)
        )

    def _unchanged(self, name: str, node: Node) -> bool:
        source = self._by_name.get(name)
        if source is None:
            return False
        return (source.op, source.domain, source.outputs) == (node.op, node.domain, node.outputs)

    def _starts(self, tensor: str) -> Iterable[str]:
        """Yield the nearest mapped source tensors at or upstream of a tensor of the executed graph."""
        stack, visited = [tensor], {tensor}
        while stack:
            name = stack.pop()
            if name in self._holds:
                yield self._holds[name]
                continue
            producer = self._executed.producer(name)
            above = producer.inputs if producer is not None else ()
            stack.extend(other for other in above if other and other not in visited)
            visited.update(above)

    def _between(self, starts: set[str], ends: Iterable[str]) -> set[int]:
        """Return the positions of the source nodes on paths between two sets of tensors."""
        above: set[int] = set()
        stack = list(ends)
        while stack:
            position = self._source.position(stack.pop())
            if position is None or position in above:
                continue
            above.add(position)
            stack.extend(name for name in self._source.nodes[position].inputs if name and name not in starts)
        reached = set(starts)
        positions: set[int] = set()
        for position in sorted(above):
            node = self._source.nodes[position]
            if any(name in reached for name in node.inputs if name):
                positions.add(position)
                reached.update(node.outputs)
        return positions
