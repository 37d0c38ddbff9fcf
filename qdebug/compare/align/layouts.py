"""In which order a backend keeps the dimensions of its tensors, compared with the reference.

Backends turn NCHW into NHWC, or into blocks of channels, where their kernels like it. Each such tensor still answers
to its reference tensor; it is only to be brought back into the reference's order before the two are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from qdebug.compare.align.pairs import Pair, View, block_of
from qdebug.compare.align.turning import (
    CHANNELS_SECOND,
    Sides,
    composed,
    drops_dimensions,
    inverse,
    keeps_last,
    kept_last,
    turn_of,
    turned_by,
    turned_later_by,
    with_dimensions,
    without_dimensions,
)
from qdebug.compare.align.value_classes import Run, tensor_order
from qdebug.errors import KernelError
from qdebug.model import Node, QuantParams, operators
from qdebug.model.kept import kept_of
from qdebug.model.operators import kinds_of, turns_channels
from qdebug.model.outline import shape_of
from qdebug.numerics.accumulate import same_elements
from qdebug.numerics.spilled import in_c_order

__all__ = [
    "in_one_order",
    "in_reference_order",
    "into_stored_order",
    "layouts_of",
    "plain_shape",
    "turned_quant",
    "with_layouts",
]

_NO_SIZE = np.dtype("V0")
"""Of arrays that are only shapes."""


def in_reference_order(
    array: np.ndarray, view: View | None, shape: tuple[int, ...], *, copied: bool = True
) -> np.ndarray:
    """Bring a tensor into the order of dimensions that it shares with its partner.

    Args:
        array: Elements, stored or real.
        view: The pair's view of this side; None changes nothing.
        shape: The partner's shape, which tells padding channels from real ones.
        copied: Copy what is turned into C order, since a turned view is read slowly; else it is left as a view.

    Returns:
        The array itself if nothing is to be done, or with neighbouring dimensions made one or parted as the partner has
        them; else a copy in C order, or, if that is not wanted, a view where the layout is no blocks. An array that the
        view does not fit is given back as it is, so that the difference of the shapes is seen and said.
    """
    if view is None or (view.channel_block is None and view.transpose is None):
        return _as_merged(array, shape)
    if view.channel_block is not None:
        array = _unblocked(array, view.channel_block, _unturned_shape(shape, view.transpose))
    if view.transpose is not None and len(view.transpose) == array.ndim:
        array = _as_merged(array.transpose(view.transpose), shape)
    elif view.channel_block is None:
        return array
    return in_c_order(array) if copied else array


def _as_merged(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Make neighbouring dimensions one, or part them, where a partner's shape differs by no more than that."""
    return array.reshape(shape) if _merged(array.shape, shape) or _merged(shape, array.shape) else array


def _unturned_shape(shape: tuple[int, ...], transpose: tuple[int, ...] | None) -> tuple[int, ...]:
    """Give the extents that a tensor has before it is turned to a shape."""
    if transpose is None or len(transpose) != len(shape):
        return shape
    return tuple(shape[transpose.index(axis)] for axis in range(len(shape)))


def _merged(shape: tuple[int, ...], merged: tuple[int, ...]) -> bool:
    """Tell whether a shape has neighbouring dimensions of another as one, beyond those of extent 1."""
    if len(merged) >= len(shape) or same_elements(shape, merged):
        return False
    left = list(shape)
    for extent in merged:
        product = 1
        while left and product * left[0] <= extent and product != extent:
            product *= left.pop(0)
        if product != extent:
            return False
    return all(extent == 1 for extent in left)


def plain_shape(shape: tuple[int, ...], view: View | None) -> tuple[int, ...]:
    """Give the extents of a tensor of a shape when its dimensions are turned as a view tells."""
    if view is None or view.transpose is None or len(view.transpose) != len(shape):
        return shape
    return tuple(shape[axis] for axis in view.transpose)


def into_stored_order(array: np.ndarray, view: View | None) -> np.ndarray:
    """Undo `in_reference_order`: bring a tensor in the model's order of dimensions into the one that a view undoes.

    Raises:
        KernelError: The view is of blocks of channels, which nothing computes on here.
    """
    if view is None or (view.transpose is None and view.channel_block is None):
        return array
    if view.transpose is None or view.channel_block is not None:
        raise KernelError("nothing is replayed on blocks of channels")
    return array.transpose(np.argsort(view.transpose)) if len(view.transpose) == array.ndim else array


def in_one_order(
    reference: np.ndarray,
    reference_view: View | None,
    backend: np.ndarray,
    backend_view: View | None,
    *,
    copied: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Bring both tensors of a pair into the order of dimensions that the model has.

    What is kept in blocks of channels is brought there last: the other side tells padding channels from real ones.
    Both are copied where they are turned, unless only views are wanted.
    """
    theirs, ours = reference_view or View(), backend_view or View()
    blocks = theirs.channel_block, ours.channel_block
    if blocks[0] is not None and (blocks[0], theirs.transpose) == (blocks[1], ours.transpose):
        # alike in memory, whether the block is declared or not
        return reference, backend.reshape(reference.shape) if reference.size == backend.size else backend
    if blocks[1] is not None:
        reference = in_reference_order(reference, reference_view, backend.shape, copied=copied)
        return reference, in_reference_order(backend, backend_view, reference.shape, copied=copied)
    backend = in_reference_order(backend, backend_view, reference.shape, copied=copied)
    return in_reference_order(reference, reference_view, backend.shape, copied=copied), backend


def turned_quant(quant: QuantParams | None, view: View | None) -> QuantParams | None:
    """Give a backend tensor's quantization for its elements in the reference's order: its channel axis moves along."""
    if quant is None or quant.axis is None or view is None or view.transpose is None:
        return quant
    return replace(quant, axis=view.transpose.index(quant.axis % len(view.transpose)))


def _unblocked(array: np.ndarray, block: int, shape: tuple[int, ...]) -> np.ndarray:
    """Turn N, C/block, H, W, block (declared so or as N, C, H, W) into N, C, H, W without the padding channels."""
    if array.ndim == 4 and array.shape[1] % block == 0:
        count, channels, height, width = array.shape
        array = array.reshape(count, channels // block, height, width, block)
    if array.ndim != 5 or array.shape[4] != block or len(shape) != 4 or shape[1] > array.shape[1] * block:
        return array
    count, blocks, height, width, _ = array.shape
    plain = in_c_order(array.transpose(0, 1, 4, 2, 3))
    return plain.reshape(count, blocks * block, height, width)[:, : shape[1]]


def with_layouts(pairs: Mapping[str, Pair], order: Iterable[str], ref: Run, be: Run) -> dict[str, Pair]:
    """Add to each pair how its two tensors are brought into one order of dimensions.

    Args:
        pairs: The pairs found, by backend tensor.
        order: Backend tensors in topological order.
        ref: The reference run.
        be: The backend run.
    """
    if not (_may_turn(ref) or _may_turn(be)):
        return {name: pairs[name] for name in order}
    partners: dict[str, str] = {}
    for pair in pairs.values():
        partners.setdefault(pair.reference, pair.backend)
    theirs = _layouts(partners, be, ref)
    ours = _layouts({name: pair.reference for name, pair in pairs.items()}, ref, be, frames=theirs)
    laid_out: dict[str, Pair] = {}
    for name in order:
        pair = pairs[name]
        turned = ours.get(name), theirs.get(pair.reference)
        laid_out[name] = _with_layout(pair, *_fitting(pair, turned, ref, be))
    return laid_out


def _fitting(pair: Pair, turned: tuple[View | None, View | None], ref: Run, be: Run) -> tuple[View | None, View | None]:
    """Leave out a layout that makes the recorded shapes differ where they are equal without it."""
    sides = (ref, pair.reference), (be, pair.backend)
    if turned == (None, None) or not all(name in run.recorded and run.recording.has(name) for run, name in sides):
        return turned
    theirs, ours = (np.empty(shape_of(run.recording, name), _NO_SIZE) for run, name in sides)
    for mine, other in (turned, (turned[0], None), (None, turned[1])):
        one, two = in_one_order(theirs, other, ours, mine)
        if one.shape == two.shape:
            return mine, other
    return (None, None) if theirs.shape == ours.shape else turned


def layouts_of(run: Run) -> dict[str, View]:
    """Find the tensors of a run that are kept in another order than in the model, as its graph alone tells."""
    return _layouts({}, run, run)


def _layouts(
    partners: Mapping[str, str], other: Run, run: Run, *, frames: Mapping[str, View] | None = None
) -> dict[str, View]:
    """Find the tensors of one run that are kept in another order than in the model.

    Args:
        partners: The other run's tensors by those of this run.
        other: The other run.
        run: The run.
        frames: Those of the other run: then each Transpose is looked for that it does earlier or later than this one;
            the run's own graph tells the rest.
    """
    layouts: dict[str, View] = {}
    if not any(_may_turn(each) for each in (other, run)):
        return layouts
    graph = run.recording.graph
    sides = Sides(other=other, run=run, partners=partners, layouts=layouts, frames=frames)
    for tensor in tensor_order(graph):
        node = graph.producer(tensor)
        if node is None:
            continue
        layout = None if frames is None else _moved(tensor, node, sides)
        if layout is None:
            layout = _layout_of(tensor, node, sides)
        block = block_of(graph.tensors[tensor].layout)
        if block is not None:
            layout = replace(layout or View(), channel_block=block)
        if layout is not None and layout != View() and _fits(layout, tensor, run):
            layouts[tensor] = layout
    return layouts


def _may_turn(run: Run) -> bool:
    """Tell whether anything in a run could keep a tensor in another order; most of what follows one does too."""
    graph = run.recording.graph
    layouts = {info.layout for info in graph.tensors.values()}
    return any(
        operators.of(node.op).turns or operators.of(node.op).channels_last or "channels_last" in node.attrs
        for node in kinds_of(graph.nodes)
    ) or any(block_of(layout) is not None for layout in layouts)


def _with_layout(pair: Pair, ours: View | None, theirs: View | None) -> Pair:
    """Combine what both graphs tell: two tensors turned alike are compared as they are."""
    if ours == theirs and (ours is None or ours.channel_block is None):
        return pair
    if theirs is not None:
        view = replace(pair.reference_view or View(), transpose=theirs.transpose, channel_block=theirs.channel_block)
        pair = replace(pair, reference_view=view, reason=f"{pair.reason}; reference {_said(theirs)}")
    if ours is not None:
        view = replace(pair.backend_view or View(), transpose=ours.transpose, channel_block=ours.channel_block)
        pair = replace(pair, backend_view=view, reason=f"{pair.reason}; {_said(ours)}")
    return pair


def _said(layout: View) -> str:
    if layout.channel_block is not None:
        turned = "" if layout.transpose is None else f", then read as {layout.transpose}"
        return f"kept in blocks of {layout.channel_block} channels{turned}"
    return f"dimensions kept in another order, read as {layout.transpose}"


def _moved(tensor: str, node: Node, sides: Sides) -> View | None:
    """Give the layout of a tensor as far as it hangs on where the other run turns its partner; None if it does not."""
    if operators.plain(node).transposes and node.inputs:
        return turned_by(tensor, node.inputs[0], sides)
    return turned_later_by(tensor, node, sides)


def _layout_of(tensor: str, node: Node, sides: Sides) -> View | None:
    """Give the order of a tensor's dimensions as the run's own graph tells it; blocks of channels aside."""
    run, other, partners, layouts = sides.run, sides.other, sides.partners, sides.layouts
    source = node.inputs[0] if node.inputs else ""
    row = operators.of(node.op)
    if row.from_blocks:
        last = CHANNELS_SECOND if node.attrs.get("channels_last") else None
        return View(transpose=composed(last, layouts.get(source, View()).transpose))
    if turns_channels(node):
        return _turned(layouts.get(source), node)
    if not row.to_blocks and keeps_last(node):
        order = kept_last(node, _rank(tensor, run))
        if order is not None:
            return View(transpose=order)
    if row.transposes and (run.classes.changes_layout(node) or _same_partner(source, tensor, partners, other)):
        return _turned(layouts.get(source), node)
    readers = run.graph.consumers(tensor)
    if row.transposes and readers and all(_wants_channels_last(reader, tensor) for reader in readers):
        rank = len(perm) if isinstance(perm := node.attrs.get("perm"), tuple) else 0
        return View(transpose=(0, rank - 1, *range(1, rank - 1))) if rank > 2 else None
    if row.inserts and source in layouts and not run.classes.changes_layout(node):
        partner = other.graph.producer(partners[tensor]) if tensor in partners else None
        return with_dimensions(layouts[source], node, partner, (other, run))
    if operators.plain(node).own_dimensions and not run.classes.changes_layout(node):
        return None
    if row.transposes and source in layouts and tensor not in partners:
        return _turned(layouts[source], node)  # what nothing answers to was most likely put in, to turn this back
    before = next((layouts[name] for name in node.inputs if name in layouts), None)
    return without_dimensions(before, node, run) if before is not None and drops_dimensions(node) else before


def _rank(tensor: str, run: Run) -> int:
    """Give how many dimensions a tensor has, however much of it was kept; 4 where nothing tells."""
    if run.recording.has(tensor):
        return len(shape_of(run.recording, tensor))
    kept, declared = kept_of(run.recording, tensor), run.graph.tensors[tensor].shape
    return len(kept.shape) if kept is not None else len(declared) if declared is not None else 4


def _wants_channels_last(reader: Node, tensor: str) -> bool:
    return keeps_last(reader) and not operators.of(reader.op).from_blocks and reader.inputs[0] == tensor


def _same_partner(source: str, tensor: str, partners: Mapping[str, str], other: Run) -> bool:
    """Tell whether a Transpose only turns what it reads, instead of standing for a Transpose of the other run."""
    if source not in partners or tensor not in partners:
        return False
    root = other.classes.root
    return root(partners[source]) == root(partners[tensor])


def _turned(before: View | None, node: Node) -> View | None:
    """Give the layout after a Transpose: where each of the model's dimensions has gone."""
    turn = turn_of(node)
    if turn is None or (before is not None and before.transpose is None):
        return None
    order = composed(inverse(turn), None if before is None else before.transpose)
    return None if order is None else View(transpose=order)


def _fits(layout: View, tensor: str, run: Run) -> bool:
    """Tell whether a layout can be that of a tensor, if it was recorded."""
    if layout.transpose is None or tensor not in run.recorded or not run.recording.has(tensor):
        return True
    return len(shape_of(run.recording, tensor)) == len(layout.transpose)
