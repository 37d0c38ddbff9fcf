"""Dimension orders of backend tensors relative to the reference.

Backends convert NCHW to NHWC or to blocks of channels if their kernels prefer it. Such a tensor still corresponds to
its reference tensor, but must be brought into the reference's order before the two are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from qdebug.compare.align.context import Context
from qdebug.compare.align.indexed_recording import IndexedRecording, tensor_order
from qdebug.compare.align.pairs import Pair, Side, Transform, block_of
from qdebug.errors import KernelError
from qdebug.model import Node, QuantParams, operators
from qdebug.model.operators import is_block_transpose, kinds_of
from qdebug.model.thresholds.alignment import FUSED_CHAIN_MAX_NODES
from qdebug.numerics.accumulate import has_same_elements
from qdebug.numerics.large_arrays import in_c_order

__all__ = [
    "add_layouts_of_graphs",
    "in_one_order",
    "in_reference_order",
    "into_stored_order",
    "layout_with_added_dimensions",
    "layouts_of",
    "permute_quant",
    "permuted_shape",
]

CHANNELS_SECOND = (0, 3, 1, 2)
"""Permutation of four dimensions from channels-last to channels-second."""
_PERMUTING_ATTRIBUTES = ("transA", "transB", "layout")
"""Attributes that change the order in which an operator reads its dimensions."""


def _drops_dimensions(node: Node) -> bool:
    """Return whether a node removes dimensions: a Squeeze, or a reduction that does not keep them."""
    row = operators.of(node.op)
    return row.moves is operators.Move.SQUEEZE or (row.reduces and node.attrs.get("keepdims", 1) == 0)


def _layout_without_dimensions(input_layout: Transform, node: Node, run: IndexedRecording) -> Transform | None:
    """Return the layout of the output of a node that removes dimensions."""
    if input_layout.transpose is None or input_layout.channel_block is not None:
        return None
    rank = len(input_layout.transpose)
    removed_axes = {axis % rank for axis in _find_changed_axes(node, run)}
    remaining = [axis for axis in input_layout.transpose if axis not in removed_axes]
    order = tuple(sorted(remaining).index(axis) for axis in remaining)
    return Transform(transpose=order) if removed_axes and order != tuple(range(len(remaining))) else None


def layout_with_added_dimensions(
    before: Transform, node: Node, partner: Node | None, runs: tuple[IndexedRecording, IndexedRecording]
) -> Transform | None:
    """Return the layout of the output of a node that adds dimensions of extent 1.

    Args:
        before: The layout of the input.
        node: The node, an Unsqueeze.
        partner: The node in the other run that computes the output's partner and shows where the model inserts the
            dimensions.
        runs: The other run and the run of the node.
    """
    added_axes = _find_changed_axes(node, runs[1])
    if before.transpose is None or before.channel_block is not None or not added_axes:
        return None
    rank = len(before.transpose) + len(added_axes)
    partner_axes = _find_changed_axes(partner, runs[0]) if partner is not None and partner.op == node.op else ()
    axes = sorted(axis % rank for axis in added_axes)
    model_axes = sorted(axis % rank for axis in partner_axes) if len(partner_axes) == len(added_axes) else axes
    unchanged = [axis for axis in range(rank) if axis not in axes]
    new_axes, old_axes = iter(axes), iter(before.transpose)
    new_order = tuple(next(new_axes) if axis in model_axes else unchanged[next(old_axes)] for axis in range(rank))
    return Transform(transpose=new_order) if new_order != tuple(range(rank)) else None


def _find_changed_axes(node: Node, run: IndexedRecording) -> tuple[int, ...]:
    """Return the dimensions that a node removes or inserts, in its own numbering; empty if unknown."""
    stated = node.attrs.get("axes", node.attrs.get("axis"))
    if isinstance(stated, int):
        return (stated,)
    if isinstance(stated, tuple):
        return tuple(int(axis) for axis in stated if isinstance(axis, int))
    row = operators.of(node.op)
    if row.picks_index and row.reduces:
        return (row.default_axis,)
    if len(node.inputs) > 1 and node.inputs[1]:
        is_known = run.graph.is_constant(node.inputs[1]) and run.has(node.inputs[1])
        return tuple(int(axis) for axis in run.recording.load(node.inputs[1]).reshape(-1)) if is_known else ()
    if row.moves is operators.Move.SQUEEZE and node.inputs[0] in run.recorded and run.has(node.inputs[0]):
        return tuple(axis for axis, extent in enumerate(run.shape(node.inputs[0])) if extent == 1)
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """The state of the search for the layouts of one run's tensors.

    Args:
        other: The other run.
        run: The run.
        partners: For each tensor of this run, its partner in the other run.
        layouts: Layouts of this run's tensors found so far.
        other_layouts: Layouts of the other run's tensors, or None if they were not searched.
    """

    other: IndexedRecording
    run: IndexedRecording
    partners: Mapping[str, str]
    layouts: Mapping[str, Transform]
    other_layouts: Mapping[str, Transform] | None = None


def _layout_of_moved_transpose(tensor: str, node: Node, sides: _Sides) -> Transform | None:
    """Return the layout of a tensor if the other run transposes before or after its partner's node.

    Optimizers move a Transpose past nodes in either direction. Tensors in between are in a different order.

    Args:
        tensor: The tensor.
        node: Its node.
        sides: The state of the search.

    Returns:
        The layout, possibly the identity, or None if the other run does not transpose there.
    """
    other_run, run, partners = sides.other, sides.run, sides.partners
    if operators.plain(node).transposes and node.inputs:
        return _layout_from_partners_of_transpose(tensor, node.inputs[0], sides)
    if tensor not in partners or operators.plain(node).permutes_dimensions:
        return None
    summing_node = _find_summing_node(node, sides)
    maker = summing_node or node

    def is_partner(name: str) -> bool:
        other_node = other_run.graph.producer(name)
        return other_node is not None and operators.same_family(other_node, maker)

    source_root, order_after = _follow_transposes_back(partners[tensor], sides, is_partner, folded=True)
    other_node = None if source_root is None else other_run.graph.producer(source_root)
    if other_node is None:
        return None
    has_own_order = operators.plain(maker).ordered
    if has_own_order and (order_after is not None or summing_node is not None):
        return Transform(
            transpose=_compose_permutations(_order_from_channels_last(maker, len(order_after or ())), order_after)
        )
    sources = {other_run.root(partners[name]): name for name in run.data_inputs(maker) if name in partners}
    for name in other_run.data_inputs(other_node):
        source, order_before = _follow_transposes_back(name, sides, sources.__contains__)
        if source is None or (order_before is None and order_after is None):
            continue
        if has_own_order:
            return Transform(transpose=_order_from_channels_last(maker, len(order_before or ())))
        layout = sides.layouts.get(sources[source], Transform())
        order = _compose_permutations(layout.transpose, order_before)
        if order is not None and _drops_dimensions(node):
            reduced = _layout_without_dimensions(Transform(transpose=order), node, run)
            order = None if reduced is None else reduced.transpose
        return Transform(transpose=_compose_permutations(order, order_after), channel_block=layout.channel_block)
    return None


def _layout_from_partners_of_transpose(tensor: str, source: str, sides: _Sides) -> Transform | None:
    """Infer the layout after a Transpose from the layouts of its input's and output's partners.

    Args:
        tensor: The output of the Transpose.
        source: Its input.
        sides: The state of the search.

    Returns:
        The layout, possibly the identity, or None if the other run does not transpose one partner into the other.
    """
    partners, root = sides.partners, sides.other.root
    permutation = _transpose_order(sides.run.graph.producer(tensor))
    if permutation is None or source not in partners or tensor not in partners:
        return None
    end_roots = [root(partners[name]) for name in (source, tensor)]
    end_tensor, order = _follow_transposes_back(end_roots[1], sides, end_roots[0].__eq__)
    if end_tensor is None:
        end_tensor, reverse_order = _follow_transposes_back(end_roots[0], sides, end_roots[1].__eq__)
        order = None if reverse_order is None else _invert_permutation(reverse_order)
    if end_tensor is None:
        return None
    layout = sides.layouts.get(source)
    view = Transform(
        transpose=_compose_permutations(
            _compose_permutations(_invert_permutation(permutation), None if layout is None else layout.transpose), order
        )
    )
    return Transform() if order is not None and _is_read_by_dimension(tensor, sides) else view


def _is_read_by_dimension(tensor: str, sides: _Sides) -> bool:
    """Return whether a node reads a tensor by dimension, just as the other run's node reads its partner.

    The tensor is then either in the model's order or transposed wrongly, and no later node restores the order.
    """
    run, other_run, partners = sides.run, sides.other, sides.partners
    for reader in run.graph.consumers(tensor):
        partner_output = partners.get(reader.outputs[0]) if operators.plain(reader).depends_on_dimension_order else None
        other_reader = None if partner_output is None else other_run.graph.producer(other_run.root(partner_output))
        if other_reader is None or operators.plain(other_reader).name != operators.plain(reader).name:
            continue
        if any(other_reader.attrs.get(name, 0) != reader.attrs.get(name, 0) for name in _PERMUTING_ATTRIBUTES):
            continue
        inputs, other_inputs = run.data_inputs(reader), other_run.data_inputs(other_reader)
        roots = [other_run.root(partners[name]) if name in partners else None for name in inputs]
        if roots == [other_run.root(name) for name in other_inputs]:
            return True
    return False


def _transpose_order(node: Node | None) -> tuple[int, ...] | None:
    """Return the input dimension for each output dimension of a Transpose, or None if unknown or not a Transpose."""
    if node is None or not operators.plain(node).transposes:
        return None
    perm = CHANNELS_SECOND if operators.is_block_transpose(node) else node.attrs.get("perm")
    return tuple(axis for axis in perm if isinstance(axis, int)) if isinstance(perm, tuple) else None


def _invert_permutation(perm: tuple[int, ...]) -> tuple[int, ...]:
    """Return the inverse permutation."""
    return tuple(perm.index(axis) for axis in range(len(perm)))


def _is_channels_last(node: Node) -> bool:
    """Return whether a runtime declares that a node reads or writes channels-last tensors."""
    return bool(node.attrs.get("channels_last")) or operators.of(node.op).channels_last


def _order_from_channels_last(node: Node, rank: int) -> tuple[int, ...] | None:
    """Return the permutation from a channels-last result to the operator's own order, or None for other nodes."""
    return (0, rank - 1, *range(1, rank - 1)) if rank > 2 and _is_channels_last(node) else None


def _find_summing_node(node: Node, sides: _Sides) -> Node | None:
    """Return the node whose sums of codes a node converts to real numbers, looking through unpaired nodes, or None."""
    run = sides.run
    for _ in range(FUSED_CHAIN_MAX_NODES):
        input_names = run.data_inputs(node)
        makers = [run.graph.producer(name) for name in input_names if name not in sides.partners]
        if len(makers) != len(input_names):
            return None
        rows = [(operators.of(maker.op), maker) for maker in makers if maker is not None]
        sources = [maker for row, maker in rows if row.sums_codes or row.casts]
        sources += [maker for row, maker in rows if row.goes_into_weights]
        if not sources or operators.of(sources[0].op).sums_codes:
            return sources[0] if sources else None
        node = sources[0]
    return None


def _follow_transposes_back(
    tensor: str, sides: _Sides, is_end: Callable[[str], bool], *, folded: bool = False
) -> tuple[str | None, tuple[int, ...] | None]:
    """Follow a tensor of the other run back through Transposes to a target tensor.

    Args:
        tensor: The tensor.
        sides: The state of the search.
        is_end: Returns whether a root is the target.
        folded: Also follow nodes that this run may have folded into the node before the Transpose.

    Returns:
        The root found, and the permutation from it to the tensor (None for the identity), both in the model's order.
            The root is None if a node other than a Transpose comes first.
    """
    run = sides.other
    order: tuple[int, ...] | None = None
    root = run.root(tensor)
    while not is_end(root):
        node = run.graph.producer(root)
        data = () if node is None else run.data_inputs(node)
        if folded and node is not None and operators.of(node.op).fuses_into_predecessor and len(data) == 1:
            root = run.root(data[0])
            continue
        permutation = _transpose_order(node)
        if node is None or permutation is None:
            return None, None
        order_before, order_after = (
            (sides.other_layouts or {}).get(name, Transform()).transpose for name in (node.inputs[0], root)
        )
        model_order = _compose_permutations(
            _compose_permutations(None if order_before is None else _invert_permutation(order_before), permutation),
            order_after,
        )
        order = _compose_permutations(model_order, order)
        root = run.root(node.inputs[0])
    return root, order


def _compose_permutations(first: tuple[int, ...] | None, second: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return the composition of two permutations, or None for the identity."""
    if first is None or second is None or len(first) != len(second):
        return first if second is None else second
    combined = tuple(first[axis] for axis in second)
    return None if combined == tuple(range(len(combined))) else combined


_NO_SIZE = np.dtype("V0")
"""Dtype of arrays that only carry a shape."""


def in_reference_order(
    array: np.ndarray, view: Transform | None, shape: tuple[int, ...], *, copied: bool = True
) -> np.ndarray:
    """Bring a tensor into the dimension order that it shares with its partner.

    Args:
        array: Elements, as stored or as real values.
        view: This side's view in the pair, or None to change nothing.
        shape: The partner's shape, which distinguishes padding channels from real ones.
        copied: Copy a permuted array to C order, because a permuted view is slow to read. If false, return a view.

    Returns:
        The array itself if nothing changes, possibly with neighbouring dimensions merged or split to match the partner.
            If something changes, a copy in C order, or a view if `copied` is false and the layout has no blocks. An
            array that does not fit the view is returned unchanged, so that the shape mismatch is reported.
    """
    if view is None or (view.channel_block is None and view.transpose is None):
        return _merge_or_split_dimensions(array, shape)
    if view.channel_block is not None:
        array = _remove_channel_blocks(array, view.channel_block, _shape_before_transpose(shape, view.transpose))
    if view.transpose is not None and len(view.transpose) == array.ndim:
        array = _merge_or_split_dimensions(array.transpose(view.transpose), shape)
    elif view.channel_block is None:
        return array
    return in_c_order(array) if copied else array


def _merge_or_split_dimensions(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Merge or split neighbouring dimensions if the array then has its partner's shape."""
    return (
        array.reshape(shape)
        if _has_merged_dimensions(array.shape, shape) or _has_merged_dimensions(shape, array.shape)
        else array
    )


def _shape_before_transpose(shape: tuple[int, ...], transpose: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the shape of a tensor before the transpose that gives it the given shape."""
    if transpose is None or len(transpose) != len(shape):
        return shape
    return tuple(shape[transpose.index(axis)] for axis in range(len(shape)))


def _has_merged_dimensions(shape: tuple[int, ...], merged: tuple[int, ...]) -> bool:
    """Return whether a shape equals another with neighbouring dimensions merged, ignoring extents of 1."""
    if len(merged) >= len(shape) or has_same_elements(shape, merged):
        return False
    extents = list(shape)
    for extent in merged:
        product = 1
        while extents and product * extents[0] <= extent and product != extent:
            product *= extents.pop(0)
        if product != extent:
            return False
    return all(extent == 1 for extent in extents)


def permuted_shape(shape: tuple[int, ...], view: Transform | None) -> tuple[int, ...]:
    """Return the shape of a tensor after its view's permutation."""
    if view is None or view.transpose is None or len(view.transpose) != len(shape):
        return shape
    return tuple(shape[axis] for axis in view.transpose)


def into_stored_order(array: np.ndarray, view: Transform | None) -> np.ndarray:
    """Undo `in_reference_order`: bring a tensor from the model's dimension order into the order of its view.

    Raises:
        KernelError: The view has blocks of channels, which are not supported here.
    """
    if view is None or (view.transpose is None and view.channel_block is None):
        return array
    if view.transpose is None or view.channel_block is not None:
        raise KernelError("tensors stored in blocks of channels cannot be replayed")
    return array.transpose(np.argsort(view.transpose)) if len(view.transpose) == array.ndim else array


def in_one_order(
    reference: np.ndarray,
    reference_view: Transform | None,
    backend: np.ndarray,
    backend_view: Transform | None,
    *,
    copied: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Bring both tensors of a pair into the model's dimension order.

    Blocks of channels are undone last, because the other side's shape distinguishes padding channels from real ones.
    Permuted tensors are copied unless only views are requested.
    """
    reference_transform, backend_transform = reference_view or Transform(), backend_view or Transform()
    blocks = reference_transform.channel_block, backend_transform.channel_block
    if blocks[0] is not None and (blocks[0], reference_transform.transpose) == (blocks[1], backend_transform.transpose):
        # Both sides have the same blocks, even if only one declares them in its shape, so nothing must be permuted.
        return reference, backend.reshape(reference.shape) if reference.size == backend.size else backend
    # The unblocked side goes first: a blocked shape does not show which neighbouring dimensions the model merges.
    if blocks[1] is not None:
        shape = permuted_shape(reference.shape, reference_view) if blocks[0] is None else backend.shape
        reference = in_reference_order(reference, reference_view, shape, copied=copied)
        return reference, in_reference_order(backend, backend_view, reference.shape, copied=copied)
    shape = permuted_shape(reference.shape, reference_view if blocks[0] is None else None)
    shape = shape if blocks[0] is None else permuted_shape(backend.shape, backend_view)
    backend = in_reference_order(backend, backend_view, shape, copied=copied)
    return in_reference_order(reference, reference_view, backend.shape, copied=copied), backend


def permute_quant(quant: QuantParams | None, view: Transform | None) -> QuantParams | None:
    """Return a backend tensor's quantization with its channel axis moved into the reference's order."""
    if quant is None or quant.axis is None or view is None or view.transpose is None:
        return quant
    return replace(quant, axis=view.transpose.index(quant.axis % len(view.transpose)))


def _remove_channel_blocks(array: np.ndarray, block: int, shape: tuple[int, ...]) -> np.ndarray:
    """Convert N, C/block, H, W, block, possibly declared as N, C, H, W, to N, C, H, W without padding channels."""
    parts = array
    if array.ndim == 4 and array.shape[1] % block == 0:
        count, channels, height, width = array.shape
        parts = array.reshape(count, channels // block, height, width, block)
    if parts.ndim != 5 or parts.shape[4] != block or len(shape) != 4 or shape[1] > parts.shape[1] * block:
        return array
    count, blocks, height, width, _ = parts.shape
    plain = in_c_order(parts.transpose(0, 1, 4, 2, 3))
    return plain.reshape(count, blocks * block, height, width)[:, : shape[1]]


def add_layouts_of_graphs(context: Context) -> Iterator[Pair]:
    """Add the dimension orders that the graphs determine to pairs."""
    ref, be, pairs = context.ref, context.be, context.pairs
    if not (_may_permute(ref) or _may_permute(be)):
        return
    partners: dict[str, str] = {}
    for pair in context.pair_map.values():
        partners.setdefault(pair.reference, pair.backend)
    reference_layouts = _layouts(partners, be, ref)
    backend_layouts = _layouts(
        {pair.backend: pair.reference for pair in pairs}, ref, be, other_layouts=reference_layouts
    )
    for pair in pairs:
        pair_layouts = backend_layouts.get(pair.backend), reference_layouts.get(pair.reference)
        if pair_layouts != (None, None):
            yield _add_layouts(pair, *_drop_unfitting_layout(pair, pair_layouts, ref, be))


def _drop_unfitting_layout(
    pair: Pair, layouts: tuple[Transform | None, Transform | None], ref: IndexedRecording, be: IndexedRecording
) -> tuple[Transform | None, Transform | None]:
    """Drop a layout that makes the recorded shapes differ if they are equal without it."""
    sides = (ref, pair.reference), (be, pair.backend)
    if not all(name in run.recorded and run.has(name) for run, name in sides):
        return layouts
    reference_shape_only, backend_shape_only = (np.empty(run.shape(name), _NO_SIZE) for run, name in sides)
    for backend_layout, reference_layout in (layouts, (layouts[0], None), (None, layouts[1])):
        reference_view, backend_view = in_one_order(
            reference_shape_only, reference_layout, backend_shape_only, backend_layout
        )
        if reference_view.shape == backend_view.shape:
            return backend_layout, reference_layout
    return (None, None) if reference_shape_only.shape == backend_shape_only.shape else layouts


def layouts_of(run: IndexedRecording) -> dict[str, Transform]:
    """Return the layouts of tensors that, by the run's own graph, are stored in a different order than in the model."""
    return _layouts({}, run, run)


def _layouts(
    partners: Mapping[str, str],
    other_run: IndexedRecording,
    run: IndexedRecording,
    *,
    other_layouts: Mapping[str, Transform] | None = None,
) -> dict[str, Transform]:
    """Return the layout of each tensor of a run that is stored in a different dimension order than in the model.

    Args:
        partners: For each tensor of this run, its partner in the other run.
        other_run: The other run.
        run: The run.
        other_layouts: Layouts of the other run. If given, also find each Transpose that the other run applies earlier
            or later. If None, use only this run's own graph.
    """
    layouts: dict[str, Transform] = {}
    if not any(_may_permute(side) for side in (other_run, run)):
        return layouts
    graph = run.recording.graph
    sides = _Sides(other=other_run, run=run, partners=partners, layouts=layouts, other_layouts=other_layouts)
    for tensor in tensor_order(graph):
        node = graph.producer(tensor)
        if node is None:
            continue
        layout = None if other_layouts is None else _layout_of_moved_transpose(tensor, node, sides)
        if layout is None:
            layout = _layout_of(tensor, node, sides)
        block = block_of(graph.tensors[tensor].layout)
        if block is not None:
            layout = replace(layout or Transform(), channel_block=block)
        if layout is not None and layout != Transform() and _fits(layout, tensor, sides):
            layouts[tensor] = layout
    return layouts


def _may_permute(run: IndexedRecording) -> bool:
    """Return whether a run has nodes or layouts that can permute dimensions."""
    graph = run.recording.graph
    layouts = {info.layout for info in graph.tensors.values()}
    return any(
        operators.of(node.op).permutes_dimensions
        or operators.of(node.op).channels_last
        or "channels_last" in node.attrs
        for node in kinds_of(graph.nodes)
    ) or any(block_of(layout) is not None for layout in layouts)


def _add_layouts(pair: Pair, backend_layout: Transform | None, reference_layout: Transform | None) -> Pair:
    """Return a pair with the layouts that both graphs imply. Tensors with equal layouts are compared as stored."""
    if backend_layout == reference_layout and (backend_layout is None or backend_layout.channel_block is None):
        return pair
    for side, layout in ((Side.REFERENCE, reference_layout), (Side.BACKEND, backend_layout)):
        if layout is not None:
            previous_view = pair.view_of(side) or Transform()
            view = replace(previous_view, transpose=layout.transpose, channel_block=layout.channel_block)
            pair = pair.with_view(side, view, _layout_text(layout))
    return pair


def _layout_text(layout: Transform) -> str:
    if layout.channel_block is not None:
        transpose_text = "" if layout.transpose is None else f", then transposed by {layout.transpose}"
        return f"stored in blocks of {layout.channel_block} channels{transpose_text}"
    return f"dimensions stored in another order, transposed by {layout.transpose}"


def _layout_of(tensor: str, node: Node, sides: _Sides) -> Transform | None:
    """Return the dimension order of a tensor according to the run's own graph, ignoring blocks of channels."""
    run, other_run, partners, layouts = sides.run, sides.other, sides.partners, sides.layouts
    source = node.inputs[0] if node.inputs else ""
    row = operators.of(node.op)
    if row.moves is operators.Move.FROM_BLOCKS:
        last = CHANNELS_SECOND if node.attrs.get("channels_last") else None
        return Transform(transpose=_compose_permutations(last, layouts.get(source, Transform()).transpose))
    if is_block_transpose(node):
        return _layout_after_transpose(layouts.get(source), node)
    if row.moves is not operators.Move.TO_BLOCKS and _is_channels_last(node):
        order = _order_from_channels_last(node, _rank(tensor, run))
        if order is not None:
            return Transform(transpose=order)
    if row.transposes:  # a Transpose without a counterpart in the other run
        ends = [other_run.root(partners[name]) for name in (source, tensor) if name in partners]
        if run.changes_layout(node) or (len(ends) == 2 and ends[0] == ends[1]):
            return _layout_after_transpose(layouts.get(source), node)
    readers = run.graph.consumers(tensor)
    if row.transposes and readers and all(_wants_channels_last(reader, tensor) for reader in readers):
        rank = len(perm) if isinstance(perm := node.attrs.get("perm"), tuple) else 0
        return Transform(transpose=(0, rank - 1, *range(1, rank - 1))) if rank > 2 else None
    if row.moves is operators.Move.UNSQUEEZE and source in layouts and not run.changes_layout(node):
        partner = other_run.graph.producer(partners[tensor]) if tensor in partners else None
        return layout_with_added_dimensions(layouts[source], node, partner, (other_run, run))
    if operators.plain(node).has_own_dimensions and not run.changes_layout(node):
        return _layout_before_transpose(tensor, sides)
    if row.transposes and source in layouts and tensor not in partners:
        # An unpaired Transpose was probably inserted to restore the order.
        return _layout_after_transpose(layouts[source], node)
    input_layout = next((layouts[name] for name in node.inputs if name in layouts), None)
    return (
        _layout_without_dimensions(input_layout, node, run)
        if input_layout is not None and _drops_dimensions(node)
        else input_layout
    )


def _layout_before_transpose(tensor: str, sides: _Sides) -> Transform | None:
    """Return the transpose that gives a tensor its partner's shape if a reader applies that transpose, or None."""
    partner = sides.partners.get(tensor, "")
    if not all(name in run.recorded and run.has(name) for run, name in ((sides.run, tensor), (sides.other, partner))):
        return None
    shape, partner_shape = sides.run.shape(tensor), sides.other.shape(partner)
    partner_shape = permuted_shape(partner_shape, (sides.other_layouts or {}).get(partner))
    for reader in sides.run.graph.consumers(tensor) if shape != partner_shape else ():
        view = Transform(transpose=_transpose_order(reader))
        reader_partner = sides.partners.get(reader.outputs[0], "")
        if permuted_shape(shape, view) == partner_shape and sides.other.root(reader_partner) == sides.other.root(
            partner
        ):
            return view
    return None


def _rank(tensor: str, run: IndexedRecording) -> int:
    """Return the number of dimensions of a tensor, even if only part of it was kept, or 4 if unknown."""
    if run.has(tensor):
        return len(run.shape(tensor))
    kept_form, declared = run.recording.kept(tensor), run.graph.tensors[tensor].shape
    return len(kept_form.shape) if kept_form is not None else len(declared) if declared is not None else 4


def _wants_channels_last(reader: Node, tensor: str) -> bool:
    return (
        _is_channels_last(reader)
        and operators.of(reader.op).moves is not operators.Move.FROM_BLOCKS
        and reader.inputs[0] == tensor
    )


def _layout_after_transpose(input_layout: Transform | None, node: Node) -> Transform | None:
    """Return the layout after a Transpose: the new position of each model dimension."""
    permutation = _transpose_order(node)
    if permutation is None or (input_layout is not None and input_layout.transpose is None):
        return None
    order = _compose_permutations(
        _invert_permutation(permutation), None if input_layout is None else input_layout.transpose
    )
    return None if order is None else Transform(transpose=order)


def _fits(layout: Transform, tensor: str, sides: _Sides) -> bool:
    """Return whether a layout has the number of dimensions of a tensor and gives it the shape of its partner.

    The shape is compared only if the partner's own layout is known, because the other run was searched first.
    """
    run, other_run, other_layouts = sides.run, sides.other, sides.other_layouts
    if layout.transpose is None or tensor not in run.recorded or not run.has(tensor):
        return True
    shape, partner = run.shape(tensor), sides.partners.get(tensor, "")
    if len(shape) != len(layout.transpose):
        return False
    if (
        other_layouts is None
        or layout.channel_block is not None
        or partner not in other_run.recorded
        or not other_run.has(partner)
    ):
        return True
    partner_shape = permuted_shape(other_run.shape(partner), other_layouts.get(partner))
    return shape != partner_shape or permuted_shape(shape, layout) == partner_shape
