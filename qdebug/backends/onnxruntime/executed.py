"""Describe the graph that ONNX Runtime actually runs in terms of its source model. Begin at `describe`.

Tensors of an optimized graph that lost their names are mapped to tensors of the source model. Fusions keep tensor
names; the layout optimizer, which runs last, names tensors after nodes, or "reorder". The graph of the next lower
optimization level still has the names, and only lacks the inserted layout changes. So both graphs are walked together.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from qdebug.compare.align.expand import expand_fused_nodes
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

_WINDOW_ATTRIBUTES = ("kernel_shape", "strides", "dilations")
"""Attributes that the layout optimizer copies unchanged.

Axes are not among them, since they depend on the layout. Neither is the group count of a depthwise Conv, since its
channels may be padded.
"""

_ADDED_SUFFIX = re.compile(r"(_nchwc)?(_token_\d+)?$")
"""Suffixes that optimizers append to the names of nodes that they replace."""

_FUSED_BIAS_SUFFIX = "/MatMulAddFusion"
"""Suffix of a Gemm that replaces a MatMul and the Add of its bias, after the MatMul's name (matmul_add_fusion.cc)."""


def source_tensors(source: Graph, executed_graph: Graph, named_graph: Graph | None = None) -> dict[str, str]:
    """Map tensors of the executed graph to source tensors with the same values, possibly in a different layout.

    Args:
        source: The graph of the source model.
        executed_graph: The graph after optimization.
        named_graph: The graph after the same optimizations except those that lose names; None without one.
    """
    source_of = _map_through_reshapes(executed_graph, source, _map_by_name(executed_graph, source))
    source_of = {**_map_converted_codes(executed_graph, source, source_of), **source_of}
    if named_graph is None:
        return source_of
    source_of_named = _map_through_reshapes(named_graph, source, _map_by_name(named_graph, source))
    source_of_named = {**_map_converted_codes(named_graph, source, source_of_named), **source_of_named}
    # One graph may fuse an activation that the other keeps as a node, so fused nodes of both are expanded first.
    named_of_executed = _match_graphs(
        expand_fused_nodes(executed_graph), expand_fused_nodes(named_graph), source_of, named_graph.tensors
    )
    source_by_match = {
        name: source_of_named[named_tensor]
        for name, named_tensor in named_of_executed.items()
        if named_tensor in source_of_named and name in executed_graph.tensors
    }
    return {**source_by_match, **source_of}


def _map_by_name(graph: Graph, source: Graph) -> dict[str, str]:
    """Map tensors to the source tensors after which they are named."""
    source_of: dict[str, str] = {}
    for name, info in graph.tensors.items():
        base_name = name.removeprefix(_FLOAT_COPY)
        source_info = source.tensors.get(base_name)
        if _is_same_tensor(info, source.tensors.get(name)):
            source_of[name] = name
        elif base_name != name and source_info is not None and info.quant is None and source_info.quant is None:
            source_of[name] = base_name
    return source_of


def _map_through_reshapes(graph: Graph, source: Graph, source_of: dict[str, str]) -> dict[str, str]:
    """Add tensors that are reshaped to or from a mapped one if the source has no such Reshape.

    ONNX Runtime inserts a Reshape around a Gemm that replaces a product with more dimensions (matmul_add_fusion.cc).
    """
    extended_map = dict(source_of)
    source_reshapes = {node.name for node in source.nodes if node.op in LAYOUT_CHANGES}
    for node in graph.nodes:
        if node.op != "Reshape" or node.name in source_reshapes or node.outputs[0] in graph.outputs:
            continue
        reshaped_input, reshaped_output = node.inputs[0], node.outputs[0]
        if (
            reshaped_output in extended_map
            and reshaped_input not in extended_map
            and _is_computed(extended_map[reshaped_output], source)
        ):
            extended_map[reshaped_input] = extended_map[reshaped_output]
        elif (
            reshaped_input in extended_map
            and reshaped_output not in extended_map
            and reshaped_output not in source.tensors
        ):
            readers = source.consumers(extended_map[reshaped_input])
            if _is_read_by_products_only(reshaped_output, graph) and not any(
                reader.op in LAYOUT_CHANGES for reader in readers
            ):
                extended_map[reshaped_output] = extended_map[reshaped_input]
    return extended_map


def _map_converted_codes(graph: Graph, source: Graph, source_of: Mapping[str, str]) -> dict[str, str]:
    """Map uint8 codes to the int8 codes of the source from which ONNX Runtime converted them.

    The conversion (qdq_s8_to_u8.cc) renames the codes, but not the node that computes them, so that node's name leads
    to the source. An equal scale, and a zero point that is 128 larger, confirm the match.
    """
    source_nodes = {node.name: node for node in source.nodes}
    source_codes: dict[str, str] = {}
    for node in graph.nodes:
        tensor = node.outputs[0]
        source_node = source_nodes.get(_ADDED_SUFFIX.sub("", node.name).removesuffix(_FUSED_BIAS_SUFFIX))
        if source_node is None or tensor in source_of or len(node.outputs) != 1 or not source_node.outputs:
            continue
        codes = _codes_of(source_node.outputs[0], source)
        if codes is not None and _is_int8_shifted_to_uint8(graph.tensors[tensor].quant, source.tensors[codes].quant):
            source_codes[tensor] = codes
    return source_codes


def _codes_of(tensor: str, source: Graph) -> str | None:
    """Return the codes that a tensor's producer and the nodes fused into it compute; None if there are none."""
    for _ in range(FUSED_CHAIN_MAX_NODES):
        if source.tensors[tensor].quant is not None:
            return tensor
        readers = source.consumers(tensor)
        row = None if len(readers) != 1 else operators.plain(readers[0])
        if row is None or not (row.activation or row.quantizes or (row.adds and row.commutes)):
            return None
        tensor = readers[0].outputs[0]
    return None


def _is_int8_shifted_to_uint8(quant: QuantParams | None, source_quant: QuantParams | None) -> bool:
    """Return whether uint8 codes are int8 codes plus 128."""
    if quant is None or source_quant is None or (quant.dtype, source_quant.dtype) != ("uint8", "int8"):
        return False
    return is_same_scale(quant.scale, source_quant.scale) and np.array_equal(
        quant.zero_point, source_quant.zero_point + 128
    )


def _is_read_by_products_only(tensor: str, graph: Graph) -> bool:
    """Return whether only two-dimensional products read a tensor, either directly or as codes.

    ONNX Runtime inserts a Reshape for these products, or for nodes that compute their codes.
    """
    tensors_to_visit, has_product = [tensor], False
    while tensors_to_visit:
        for reader in graph.consumers(tensors_to_visit.pop()):
            row = operators.plain(reader)
            if operators.of(reader.op).keeps_values:
                tensors_to_visit.append(reader.outputs[0])
            elif not (row.sums is Sums.MATRIX or row.gives_scale):
                return False
            else:
                has_product = True
    return has_product


def _is_computed(tensor: str, source: Graph) -> bool:
    """Return whether a source tensor is computed rather than only rearranged. Quantization and casts are ignored."""
    node = source.producer(tensor)
    while node is not None and (operators.of(node.op).keeps_values or operators.of(node.op).casts):
        node = source.producer(node.inputs[0])
    return node is not None and node.op not in LAYOUT_CHANGES


def _is_same_tensor(info: TensorInfo, source_info: TensorInfo | None) -> bool:
    """Return whether two tensors with the same name are the same. A lost name may be reused, for example for codes."""
    if source_info is None or (info.quant is None) != (source_info.quant is None):
        return False
    return None in (info.dtype, source_info.dtype) or info.dtype == source_info.dtype


def _match_graphs(
    executed_graph: Graph, named_graph: Graph, named_tensors: Iterable[str], computed_tensors: Collection[str]
) -> dict[str, str]:
    """Walk the executed graph, and map each tensor to the equivalent tensor of the other graph.

    Args:
        executed_graph: The executed graph, without fused activations.
        named_graph: The other graph, without fused activations.
        named_tensors: Tensors of the executed graph that are the same as tensors of that name in the other graph.
        computed_tensors: Tensors of the other graph that exist at run time, which excludes those inside a fused node.
    """
    # Two nodes match if their operators and attributes are equal and their inputs are matched. In topological order,
    # each match provides the inputs for later ones. A node is matched only once, so that equal branches do not share
    # one partner.
    named_of_executed = {name: name for name in named_tensors if name in named_graph.tensors}
    readers: dict[tuple[str, tuple[str, ...]], list[Node]] = {}
    for node in named_graph.nodes:
        readers.setdefault(_match_key(node, _data_inputs(node, named_graph)), []).append(node)
    named_nodes = {node.name: node for node in named_graph.nodes}
    used_names: set[str] = set()
    for node in executed_graph.nodes:
        data = _data_inputs(node, executed_graph)
        if any(name not in named_of_executed for name in data):
            continue
        candidates = readers.get(_match_key(node, [named_of_executed[name] for name in data]), [])
        candidates = [candidate for candidate in candidates if _has_equal_windows(node, candidate)]
        free_candidates = [n for n in candidates if n.name not in used_names and len(n.outputs) == len(node.outputs)]
        match = _choose_candidate(
            node,
            {candidate: _possible_names(candidate, named_graph, computed_tensors) for candidate in free_candidates},
        )
        if match is not None and not _is_named_after_other(node, match, named_nodes):
            used_names.add(match.name)
            for output, matched_output in zip(node.outputs, match.outputs, strict=True):
                named_of_executed.setdefault(output, matched_output)
        elif node.op in LAYOUT_CHANGES and not candidates and data:
            named_of_executed.setdefault(node.outputs[0], named_of_executed[data[0]])
    return named_of_executed


def _match_key(node: Node, data: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return (operator, inputs) with sorted inputs for fused sums, whose operands the optimizer may swap."""
    return _base_operator(node), tuple(sorted(data) if operators.plain(node).commutes else data)


def _base_operator(node: Node) -> str:
    if node.op == "Upsample":  # the layout optimizer's form of a Resize
        return "Resize"
    return node.op.removeprefix("Fused").removeprefix("Nhwc")


def _has_equal_windows(first: Node, second: Node) -> bool:
    """Return whether two nodes agree in all stated window attributes.

    Two pools of the same input may differ only in these.
    """
    return all(
        first.attrs[name] == second.attrs[name]
        for name in _WINDOW_ATTRIBUTES
        if name in first.attrs and name in second.attrs
    )


def _data_inputs(node: Node, graph: Graph) -> tuple[str, ...]:
    return tuple(name for name in node.inputs if name and not graph.is_constant(name))


def _possible_names(node: Node, graph: Graph, computed_tensors: Collection[str]) -> set[str]:
    """Return the names that an optimizer may derive from a node: its own, its outputs', and those of its fused node."""
    names, output = {node.name, *node.outputs}, node.outputs[0]
    while output not in computed_tensors:
        output = graph.consumers(output)[0].outputs[0]
        names.add(output)
    return names


def _is_named_after_other(node: Node, match: Node, named_nodes: Mapping[str, Node]) -> bool:
    """Return whether a node is named after another node with the same operator, and not after its match.

    Copies of a DequantizeLinear are equal, so the reader of one copy may be matched with the reader of another.
    """
    namesake = named_nodes.get(_ADDED_SUFFIX.sub("", node.name), match)
    return namesake is not match and _base_operator(namesake) == _base_operator(node)


def _choose_candidate(node: Node, candidates: Mapping[Node, Collection[str]]) -> Node | None:
    """Return the only candidate; of several, the one after which the node is named; else None."""
    if len(candidates) <= 1:
        return next(iter(candidates), None)
    stem = _ADDED_SUFFIX.sub("", node.name)
    candidates_of_that_name = [candidate for candidate, names in candidates.items() if stem in names]
    return candidates_of_that_name[0] if len(candidates_of_that_name) == 1 else None


_NCHWC = "com.microsoft.nchwc"
_RANDOM_OPS = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)

_CODE_MOVING_OPS = frozenset({"Flatten", "Gather", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators past which ONNX Runtime moves QuantizeLinear and DequantizeLinear nodes."""


def describe(
    source: Graph,
    executed_graph: Graph,
    *,
    named_graph: Graph | None = None,
    dtypes: Mapping[str, str] | None = None,
    block: int = 16,
) -> Graph:
    """Add the source model's facts about nodes and tensors to an optimized graph.

    Nodes get their origin. Tensors get `stands_for`, a layout if it differs from the source's, and their dtype. Tensors
    that do not depend on an input of the graph become constants, for example dequantized weights.

    Args:
        source: The graph of the source model.
        executed_graph: The graph after optimization.
        named_graph: The graph after optimizations that keep tensor names, if the executed graph lost some.
        dtypes: Logical dtypes of tensors of the executed graph, as far as the runtime knows them.
        block: Channels per block of blocked tensors, which depends on the processor's kernels.
    """
    source_of = source_tensors(source, executed_graph, named_graph)
    layouts = _layouts(executed_graph, block)
    constant_names = _constant_tensors(executed_graph)
    tensors: list[TensorInfo] = []
    for name, info in executed_graph.tensors.items():
        role = Role.CONSTANT if name in constant_names and info.role is Role.ACTIVATION else info.role
        dtype = (dtypes or {}).get(name, info.dtype)
        root = _find_root(info, source, source_of)
        quant = _written_quant(info, source, executed_graph, source_of)
        tensors.append(replace(info, stands_for=root, layout=layouts.get(name), dtype=dtype, role=role, quant=quant))
    folded_nodes = _FoldedNodes(source, executed_graph, source_of)
    return Graph(
        _with_originals_first(
            [replace(node, origin=folded_nodes.folded_nodes_of(node)) for node in executed_graph.nodes]
        ),
        tensors=tensors,
        inputs=executed_graph.inputs,
        outputs=executed_graph.outputs,
        name=source.name or executed_graph.name,
        opset=executed_graph.opset,
    )


def _written_quant(
    info: TensorInfo, source: Graph, executed_graph: Graph, source_of: Mapping[str, str]
) -> QuantParams | None:
    """Return the quantization with which the source model writes a tensor's codes.

    The executed graph may state only the scale of a reader: the optimizer drops the quantizing nodes around a node that
    moves codes, and their scale with them. It also merges two successive quantizations into one, whose scale is neither
    of the two.
    """
    writer = executed_graph.producer(info.name)
    if writer is not None and states_scale(writer):
        return info.quant
    source_name = source_of.get(info.name)
    source_quant = None if source_name is None else source.tensors[source_name].quant
    own_quant = info.quant
    if (
        source_quant is None
        or own_quant is None
        or source_quant.per_channel
        or own_quant.per_channel
        or source_quant.dtype != own_quant.dtype
    ):
        return own_quant
    return source_quant


def _find_root(info: TensorInfo, source: Graph, source_of: Mapping[str, str]) -> str | None:
    source_name = source_of.get(info.name)
    if source_name is not None:
        return source.tensors[source_name].stands_for or (source_name if source_name != info.name else None)
    # The executed graph itself shows what the result of a DequantizeLinear that the optimizer added stands for.
    root = info.stands_for
    return root if root is not None and root in source.tensors and root in source_of else None


def channel_block(cpu_flags: Iterable[str]) -> int:
    """Return the channel block size of the NCHWc operators: 16 with AVX-512 and on ARM, else 8 (MLAS, platform.cpp)."""
    return 16 if not {"avx512f", "asimd", "asimddp"}.isdisjoint(cpu_flags) else 8


def _layouts(executed_graph: Graph, block: int) -> dict[str, str]:
    """Return the layouts of tensors that NCHWc operators store in blocks of channels, and of channels-last tensors.

    The file does not state the block size. It is the default if the channel counts of all weights, which are
    padded to whole blocks, are multiples of it; else it is 8.
    """
    counts = [
        shape[0]
        for node in executed_graph.nodes
        if (node.domain, node.op) == (_NCHWC, "Conv") and (shape := executed_graph.tensors[node.inputs[1]].shape)
    ]
    has_full_blocks = all(count is not None and count % block == 0 for count in counts)
    layouts: dict[str, str] = {}
    blocked_tensors: set[str] = set()
    for node in executed_graph.nodes:
        outputs = [output for output in node.outputs if output]
        is_blocked_op = node.domain == _NCHWC and node.op != "ReorderOutput"
        passes_blocks = (
            not node.domain
            and node.op not in LAYOUT_CHANGES
            and bool(node.inputs)
            and node.inputs[0] in blocked_tensors
        )
        if is_blocked_op or passes_blocks:
            blocked_tensors.update(outputs)
            layouts.update((output, f"NCHW{block if has_full_blocks else 8}c") for output in outputs)
        elif node.attrs.get("channels_last") or node.op.startswith("Nhwc"):
            layouts.update((output, "NHWC") for output in outputs)
    return layouts


def _constant_tensors(executed_graph: Graph) -> set[str]:
    constants = {name for name, info in executed_graph.tensors.items() if info.role is Role.CONSTANT}
    for node in executed_graph.nodes:
        inputs = [name for name in node.inputs if name]
        if inputs and all(name in constants for name in inputs) and node.op not in _RANDOM_OPS:
            constants.update(output for output in node.outputs if output)
    return constants


def _with_originals_first(nodes: list[Node]) -> list[Node]:
    """Sort nodes before their copies, so that an error is reported at the node that has the model's name."""
    by_name = {node.name: node for node in nodes}
    ordered_nodes: dict[str, Node] = {}
    for node in nodes:
        original = by_name.get(node.origin[0]) if len(node.origin) == 1 else None
        if original is not None and (original.op, original.inputs) == (node.op, node.inputs):
            ordered_nodes.setdefault(original.name, original)
        ordered_nodes.setdefault(node.name, node)
    return list(ordered_nodes.values())


def _has_equal_attributes(first: Node, second: Node) -> bool:
    """Return whether two nodes have the same operator and agree in all common attributes. Defaults may be omitted."""
    if (first.op, first.domain) != (second.op, second.domain):
        return False
    return all(
        np.array_equal(first.attrs[name], second.attrs[name]) for name in first.attrs.keys() & second.attrs.keys()
    )


class _FoldedNodes:
    """Finds the source nodes that were folded into a node of the executed graph."""

    def __init__(self, source: Graph, executed_graph: Graph, source_of: Mapping[str, str]) -> None:
        self._source = source
        self._executed_graph = executed_graph
        self._source_of = source_of
        self._by_name = {node.name: node for node in source.nodes}

    def folded_nodes_of(self, node: Node) -> tuple[str, ...]:
        """Return the source nodes on the paths from a node's inputs to its outputs, in topological order."""
        if self._is_unchanged(node.name, node):
            return ()
        start_tensors = {name for tensor in node.inputs for name in self._nearest_sources(tensor)}
        end_tensors = {self._source_of[output] for output in node.outputs if output in self._source_of} - start_tensors
        names = [
            self._source.nodes[position].name
            for position in sorted(self._positions_between(start_tensors, end_tensors))
        ]
        if not names:
            return self._copied_nodes(node)
        return () if len(names) == 1 and self._is_unchanged(names[0], node) else tuple(names)

    def _copied_nodes(self, node: Node) -> tuple[str, ...]:
        """Return the source nodes of which a node with an unmapped result is a copy.

        The optimizer gives each reader of a DequantizeLinear its own copy (ensure_unique_dq_for_node_unit.cc), and may
        remove the original. The copy has the same inputs, except that equal constants may have been merged.
        """
        data = next(iter(node.inputs), "")
        if data not in self._source_of:
            return self._moved_dequantizer(node, data)
        for candidate in self._executed_graph.consumers(data):
            if (
                candidate.inputs == node.inputs
                and _has_equal_attributes(candidate, node)
                and self._is_unchanged(candidate.name, candidate)
            ):
                return (candidate.name,)
        inputs = tuple(self._source_of.get(name, name) for name in node.inputs)
        readers = self._source.consumers(self._source_of[data])
        return tuple(
            candidate.name
            for candidate in readers
            if candidate.inputs == inputs and _has_equal_attributes(candidate, node)
        )

    def _moved_dequantizer(self, node: Node, data: str) -> tuple[str, ...]:
        """Return the source's DequantizeLinear, if the optimizer moved it downstream past nodes that move codes.

        The optimizer does so for nodes that only select or arrange elements (qdq_propagation.cc). In the source, these
        nodes come after the DequantizeLinear.
        """
        if node.op != "DequantizeLinear":
            return ()
        for _ in range(DEQUANTIZED_THROUGH_MAX_NODES):
            producer = self._executed_graph.producer(data)
            if data in self._source_of or producer is None or producer.op not in _CODE_MOVING_OPS:
                break
            data = producer.inputs[0]
        if data not in self._source_of:
            return ()
        inputs = tuple(self._source_of.get(name, name) for name in node.inputs[1:])
        readers = self._source.consumers(self._source_of[data])
        return tuple(
            candidate.name
            for candidate in readers
            if candidate.inputs[1:] == inputs and _has_equal_attributes(candidate, node)
        )

    def _is_unchanged(self, name: str, node: Node) -> bool:
        source = self._by_name.get(name)
        if source is None:
            return False
        return (source.op, source.domain, source.outputs) == (node.op, node.domain, node.outputs)

    def _nearest_sources(self, tensor: str) -> Iterable[str]:
        """Yield the nearest mapped source tensors at or upstream of a tensor of the executed graph."""
        stack, visited_tensors = [tensor], {tensor}
        while stack:
            name = stack.pop()
            if name in self._source_of:
                yield self._source_of[name]
                continue
            producer = self._executed_graph.producer(name)
            inputs = producer.inputs if producer is not None else ()
            stack.extend(input_name for input_name in inputs if input_name and input_name not in visited_tensors)
            visited_tensors.update(inputs)

    def _positions_between(self, start_tensors: set[str], end_tensors: Iterable[str]) -> set[int]:
        """Return the positions of the source nodes on paths between two sets of tensors."""
        positions_upstream: set[int] = set()
        stack = list(end_tensors)
        while stack:
            position = self._source.position(stack.pop())
            if position is None or position in positions_upstream:
                continue
            positions_upstream.add(position)
            stack.extend(name for name in self._source.nodes[position].inputs if name and name not in start_tensors)
        tensors_reached = set(start_tensors)
        positions: set[int] = set()
        for position in sorted(positions_upstream):
            node = self._source.nodes[position]
            if any(name in tensors_reached for name in node.inputs if name):
                positions.add(position)
                tensors_reached.update(node.outputs)
        return positions
