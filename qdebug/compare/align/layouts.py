"""In which order a backend keeps the dimensions of its tensors, compared with the reference.

Backends turn NCHW into NHWC, or into blocks of channels, where their kernels like it. Each such tensor still answers
to its reference tensor; it is only to be brought back into the reference's order before the two are compared.
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
from qdebug.model.operators import kinds_of, turns_channels
from qdebug.model.thresholds.alignment import FUSED_CHAIN_MAX_NODES
from qdebug.numerics.accumulate import same_elements
from qdebug.numerics.large_arrays import in_c_order

__all__ = [
    "as_laid_out",
    "in_one_order",
    "in_reference_order",
    "into_stored_order",
    "layouts_of",
    "plain_shape",
    "turned_quant",
    "with_dimensions",
]

CHANNELS_SECOND = (0, 3, 1, 2)
"""How four dimensions are turned whose channels come last."""
_TURNS_INSIDE = ("transA", "transB", "layout")
"""Attributes by which an operator that knows its dimensions by place reads them in another order."""


def _drops_dimensions(node: Node) -> bool:
    """Tell whether a node gives fewer dimensions than it reads: a Squeeze, or a reduction that keeps none."""
    row = operators.of(node.op)
    return row.moves is operators.Move.SQUEEZE or (row.reduces and node.attrs.get("keepdims", 1) == 0)


def _without_dimensions(before: Transform, node: Node, run: IndexedRecording) -> Transform | None:
    """Return the layout of what a node makes by taking dimensions of its input out."""
    if before.transpose is None or before.channel_block is not None:
        return None
    rank = len(before.transpose)
    gone = {axis % rank for axis in _axes(node, run)}
    left = [axis for axis in before.transpose if axis not in gone]
    turned = tuple(sorted(left).index(axis) for axis in left)
    return Transform(transpose=turned) if gone and turned != tuple(range(len(left))) else None


def with_dimensions(
    before: Transform, node: Node, partner: Node | None, runs: tuple[IndexedRecording, IndexedRecording]
) -> Transform | None:
    """Return the layout of what a node makes by putting dimensions of extent 1 into its input.

    Args:
        before: The layout of its input.
        node: The node, an Unsqueeze.
        partner: What makes the other run's tensor that answers to its output: it says where the model puts them.
        runs: The other run and the node's.
    """
    added = _axes(node, runs[1])
    if before.transpose is None or before.channel_block is not None or not added:
        return None
    rank = len(before.transpose) + len(added)
    known = _axes(partner, runs[0]) if partner is not None and partner.op == node.op else ()
    ours = sorted(axis % rank for axis in added)
    theirs = sorted(axis % rank for axis in known) if len(known) == len(added) else ours
    kept = [axis for axis in range(rank) if axis not in ours]
    new, old = iter(ours), iter(before.transpose)
    turned = tuple(next(new) if axis in theirs else kept[next(old)] for axis in range(rank))
    return Transform(transpose=turned) if turned != tuple(range(rank)) else None


def _axes(node: Node, run: IndexedRecording) -> tuple[int, ...]:
    """Return the dimensions that a node takes out or puts in, in the order that it sees them in; none if not known."""
    said = node.attrs.get("axes", node.attrs.get("axis"))
    if isinstance(said, int):
        return (said,)
    if isinstance(said, tuple):
        return tuple(int(axis) for axis in said if isinstance(axis, int))
    row = operators.of(node.op)
    if row.picks_index and row.reduces:
        return (row.default_axis,)
    if len(node.inputs) > 1 and node.inputs[1]:
        known = run.graph.is_constant(node.inputs[1]) and run.has(node.inputs[1])
        return tuple(int(axis) for axis in run.recording.load(node.inputs[1]).reshape(-1)) if known else ()
    if row.moves is operators.Move.SQUEEZE and node.inputs[0] in run.recorded and run.has(node.inputs[0]):
        return tuple(axis for axis, extent in enumerate(run.shape(node.inputs[0])) if extent == 1)
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """What is known while the layouts of one run's tensors are looked for.

    Args:
        other: The other run.
        run: The run.
        partners: The other run's tensors by those of this run.
        layouts: Those of this run's tensors, as far as they have been found.
        frames: Those of the other run's tensors; None where nobody looked.
    """

    other: IndexedRecording
    run: IndexedRecording
    partners: Mapping[str, str]
    layouts: Mapping[str, Transform]
    frames: Mapping[str, Transform] | None = None


def _moved_turn(tensor: str, node: Node, sides: _Sides) -> Transform | None:
    """Return the layout of a tensor where the other run turns what its partner is made of, or what comes of that.

    Optimizers move a Transpose past the nodes that follow or come before: in between, all is in another order.

    Args:
        tensor: The tensor.
        node: What makes it.
        sides: What is known.

    Returns:
        The layout, perhaps one that changes nothing; None if the other run turns nothing there.
    """
    other, run, partners = sides.other, sides.run, sides.partners
    if operators.plain(node).transposes and node.inputs:
        return _turned_by(tensor, node.inputs[0], sides)
    if tensor not in partners or operators.plain(node).turns:
        return None
    coded = _sums_of_codes(node, sides)
    maker = coded or node

    def is_partner(name: str) -> bool:
        theirs = other.graph.producer(name)
        return theirs is not None and operators.same_family(theirs, maker)

    made, after = _unturned(partners[tensor], sides, is_partner, folded=True)
    theirs = None if made is None else other.graph.producer(made)
    if theirs is None:
        return None
    ordered = operators.plain(maker).ordered
    if ordered and (after is not None or coded is not None):
        return Transform(transpose=_composed(_kept_last(maker, len(after or ())), after))
    sources = {other.root(partners[name]): name for name in run.data_inputs(maker) if name in partners}
    for name in other.data_inputs(theirs):
        source, before = _unturned(name, sides, sources.__contains__)
        if source is None or (before is None and after is None):
            continue
        if ordered:
            return Transform(transpose=_kept_last(maker, len(before or ())))
        known = sides.layouts.get(sources[source], Transform())
        order = _composed(known.transpose, before)
        if order is not None and _drops_dimensions(node):
            left = _without_dimensions(Transform(transpose=order), node, run)
            order = None if left is None else left.transpose
        return Transform(transpose=_composed(order, after), channel_block=known.channel_block)
    return None


def _turned_by(tensor: str, source: str, sides: _Sides) -> Transform | None:
    """Return the layout after a Transpose, from how the other run's tensors that answer to both its ends are turned.

    Args:
        tensor: What the Transpose gives.
        source: What it reads.
        sides: What is known.

    Returns:
        The layout, perhaps one that changes nothing; None if the other run does not turn one into the other.
    """
    partners, root = sides.partners, sides.other.root
    turn = _turn_of(sides.run.graph.producer(tensor))
    if turn is None or source not in partners or tensor not in partners:
        return None
    ends = [root(partners[name]) for name in (source, tensor)]
    found, order = _unturned(ends[1], sides, ends[0].__eq__)
    if found is None:
        found, back = _unturned(ends[0], sides, ends[1].__eq__)
        order = None if back is None else _inverse(back)
    if found is None:
        return None
    known = sides.layouts.get(source)
    view = Transform(transpose=_composed(_composed(_inverse(turn), None if known is None else known.transpose), order))
    return Transform() if order is not None and _read_by_place(tensor, sides) else view


def _read_by_place(tensor: str, sides: _Sides) -> bool:
    """Tell whether a node reads a tensor by the places of its dimensions, just as the other run's does its partner.

    The order is then the model's, or that of a Transpose that turns wrongly: nothing turns it back.
    """
    run, other, partners = sides.run, sides.other, sides.partners
    for reader in run.graph.consumers(tensor):
        answers = partners.get(reader.outputs[0]) if operators.plain(reader).reads_by_place else None
        theirs = None if answers is None else other.graph.producer(other.root(answers))
        if theirs is None or operators.plain(theirs).name != operators.plain(reader).name:
            continue
        if any(theirs.attrs.get(name, 0) != reader.attrs.get(name, 0) for name in _TURNS_INSIDE):
            continue
        ours, fed = run.data_inputs(reader), other.data_inputs(theirs)
        roots = [other.root(partners[name]) if name in partners else None for name in ours]
        if roots == [other.root(name) for name in fed]:
            return True
    return False


def _turn_of(node: Node | None) -> tuple[int, ...] | None:
    """Return for each dimension after a Transpose which of its input's it is; None if that is not known, or no turn."""
    if node is None or not operators.plain(node).transposes:
        return None
    perm = CHANNELS_SECOND if operators.turns_channels(node) else node.attrs.get("perm")
    return tuple(axis for axis in perm if isinstance(axis, int)) if isinstance(perm, tuple) else None


def _inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    """Return the turn that undoes a turn."""
    return tuple(perm.index(axis) for axis in range(len(perm)))


def _keeps_last(node: Node) -> bool:
    """Tell whether a runtime lets a node read or write channels last."""
    return bool(node.attrs.get("channels_last")) or operators.of(node.op).channels_last


def _kept_last(node: Node, rank: int) -> tuple[int, ...] | None:
    """Return the order that brings what a node gives into that of its operator; None unless it has channels last."""
    return (0, rank - 1, *range(1, rank - 1)) if rank > 2 and _keeps_last(node) else None


def _sums_of_codes(node: Node, sides: _Sides) -> Node | None:
    """Return the node whose sums of codes another makes real numbers of, through nodes that no tensor answers to."""
    run = sides.run
    for _ in range(FUSED_CHAIN_MAX_NODES):
        fed = run.data_inputs(node)
        makers = [run.graph.producer(name) for name in fed if name not in sides.partners]
        if len(makers) != len(fed):
            return None
        rows = [(operators.of(maker.op), maker) for maker in makers if maker is not None]
        known = [maker for row, maker in rows if row.sums_codes or row.casts]
        known += [maker for row, maker in rows if row.goes_into_weights]
        if not known or operators.of(known[0].op).sums_codes:
            return known[0] if known else None
        node = known[0]
    return None


def _unturned(
    tensor: str, sides: _Sides, ends: Callable[[str], bool], *, folded: bool = False
) -> tuple[str | None, tuple[int, ...] | None]:
    """Follow a tensor of the other run back through Transposes to one where they end.

    Args:
        tensor: The tensor.
        sides: What is known.
        ends: Tells of a root whether it is that one.
        folded: Also go back through what this run may have folded into the node before the Transpose.

    Returns:
        The root of the tensor where that is, and for each dimension of the tensor which of that one's it is (None if
        in order), both in the order that the model has; no tensor if something else than a Transpose comes first.
    """
    run = sides.other
    order: tuple[int, ...] | None = None
    at = run.root(tensor)
    while not ends(at):
        node = run.graph.producer(at)
        data = () if node is None else run.data_inputs(node)
        if folded and node is not None and operators.of(node.op).folded_before and len(data) == 1:
            at = run.root(data[0])
            continue
        turn = _turn_of(node)
        if node is None or turn is None:
            return None, None
        before, after = ((sides.frames or {}).get(name, Transform()).transpose for name in (node.inputs[0], at))
        turned = _composed(_composed(None if before is None else _inverse(before), turn), after)
        order = _composed(turned, order)
        at = run.root(node.inputs[0])
    return at, order


def _composed(first: tuple[int, ...] | None, then: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return the order of dimensions that two turns make one after the other; None for one that changes nothing."""
    if first is None or then is None or len(first) != len(then):
        return first if then is None else then
    both = tuple(first[axis] for axis in then)
    return None if both == tuple(range(len(both))) else both


_NO_SIZE = np.dtype("V0")
"""Of arrays that are only shapes."""


def in_reference_order(
    array: np.ndarray, view: Transform | None, shape: tuple[int, ...], *, copied: bool = True
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
    """Return the extents that a tensor has before it is turned to a shape."""
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


def plain_shape(shape: tuple[int, ...], view: Transform | None) -> tuple[int, ...]:
    """Return the extents of a tensor of a shape when its dimensions are turned as a view tells."""
    if view is None or view.transpose is None or len(view.transpose) != len(shape):
        return shape
    return tuple(shape[axis] for axis in view.transpose)


def into_stored_order(array: np.ndarray, view: Transform | None) -> np.ndarray:
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
    reference_view: Transform | None,
    backend: np.ndarray,
    backend_view: Transform | None,
    *,
    copied: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Bring both tensors of a pair into the order of dimensions that the model has.

    What is kept in blocks of channels is brought there last: the other side tells padding channels from real ones.
    Both are copied where they are turned, unless only views are wanted.
    """
    theirs, ours = reference_view or Transform(), backend_view or Transform()
    blocks = theirs.channel_block, ours.channel_block
    if blocks[0] is not None and (blocks[0], theirs.transpose) == (blocks[1], ours.transpose):
        # alike in memory, whether the block is declared or not
        return reference, backend.reshape(reference.shape) if reference.size == backend.size else backend
    # extents in blocks tell nothing of which neighbouring dimensions the model has as one
    if blocks[1] is not None:
        shape = plain_shape(reference.shape, reference_view) if blocks[0] is None else backend.shape
        reference = in_reference_order(reference, reference_view, shape, copied=copied)
        return reference, in_reference_order(backend, backend_view, reference.shape, copied=copied)
    shape = plain_shape(reference.shape, reference_view if blocks[0] is None else None)
    shape = shape if blocks[0] is None else plain_shape(backend.shape, backend_view)
    backend = in_reference_order(backend, backend_view, shape, copied=copied)
    return in_reference_order(reference, reference_view, backend.shape, copied=copied), backend


def turned_quant(quant: QuantParams | None, view: Transform | None) -> QuantParams | None:
    """Return a backend tensor's quantization for elements in the reference's order: its channel axis moves along."""
    if quant is None or quant.axis is None or view is None or view.transpose is None:
        return quant
    return replace(quant, axis=view.transpose.index(quant.axis % len(view.transpose)))


def _unblocked(array: np.ndarray, block: int, shape: tuple[int, ...]) -> np.ndarray:
    """Turn N, C/block, H, W, block (declared so or as N, C, H, W) into N, C, H, W without the padding channels."""
    parts = array
    if array.ndim == 4 and array.shape[1] % block == 0:
        count, channels, height, width = array.shape
        parts = array.reshape(count, channels // block, height, width, block)
    if parts.ndim != 5 or parts.shape[4] != block or len(shape) != 4 or shape[1] > parts.shape[1] * block:
        return array
    count, blocks, height, width, _ = parts.shape
    plain = in_c_order(parts.transpose(0, 1, 4, 2, 3))
    return plain.reshape(count, blocks * block, height, width)[:, : shape[1]]


def as_laid_out(context: Context) -> Iterator[Pair]:
    """Add to pairs how their tensors are brought into one order of dimensions, as far as the graphs tell."""
    ref, be, pairs = context.ref, context.be, context.pairs
    if not (_may_turn(ref) or _may_turn(be)):
        return
    partners: dict[str, str] = {}
    for pair in context.found.values():
        partners.setdefault(pair.reference, pair.backend)
    theirs = _layouts(partners, be, ref)
    ours = _layouts({pair.backend: pair.reference for pair in pairs}, ref, be, frames=theirs)
    for pair in pairs:
        turned = ours.get(pair.backend), theirs.get(pair.reference)
        if turned != (None, None):
            yield _with_layout(pair, *_fitting(pair, turned, ref, be))


def _fitting(
    pair: Pair, turned: tuple[Transform | None, Transform | None], ref: IndexedRecording, be: IndexedRecording
) -> tuple[Transform | None, Transform | None]:
    """Leave out a layout that makes the recorded shapes differ where they are equal without it."""
    sides = (ref, pair.reference), (be, pair.backend)
    if not all(name in run.recorded and run.has(name) for run, name in sides):
        return turned
    theirs, ours = (np.empty(run.shape(name), _NO_SIZE) for run, name in sides)
    for mine, other in (turned, (turned[0], None), (None, turned[1])):
        one, two = in_one_order(theirs, other, ours, mine)
        if one.shape == two.shape:
            return mine, other
    return (None, None) if theirs.shape == ours.shape else turned


def layouts_of(run: IndexedRecording) -> dict[str, Transform]:
    """Find the tensors of a run that are kept in another order than in the model, as its graph alone tells."""
    return _layouts({}, run, run)


def _layouts(
    partners: Mapping[str, str],
    other: IndexedRecording,
    run: IndexedRecording,
    *,
    frames: Mapping[str, Transform] | None = None,
) -> dict[str, Transform]:
    """Find the tensors of one run that are kept in another order than in the model.

    Args:
        partners: The other run's tensors by those of this run.
        other: The other run.
        run: The run.
        frames: Those of the other run: then each Transpose is looked for that it does earlier or later than this one;
            the run's own graph tells the rest.
    """
    layouts: dict[str, Transform] = {}
    if not any(_may_turn(each) for each in (other, run)):
        return layouts
    graph = run.recording.graph
    sides = _Sides(other=other, run=run, partners=partners, layouts=layouts, frames=frames)
    for tensor in tensor_order(graph):
        node = graph.producer(tensor)
        if node is None:
            continue
        layout = None if frames is None else _moved_turn(tensor, node, sides)
        if layout is None:
            layout = _layout_of(tensor, node, sides)
        block = block_of(graph.tensors[tensor].layout)
        if block is not None:
            layout = replace(layout or Transform(), channel_block=block)
        if layout is not None and layout != Transform() and _fits(layout, tensor, sides):
            layouts[tensor] = layout
    return layouts


def _may_turn(run: IndexedRecording) -> bool:
    """Tell whether anything in a run could keep a tensor in another order; most of what follows one does too."""
    graph = run.recording.graph
    layouts = {info.layout for info in graph.tensors.values()}
    return any(
        operators.of(node.op).turns or operators.of(node.op).channels_last or "channels_last" in node.attrs
        for node in kinds_of(graph.nodes)
    ) or any(block_of(layout) is not None for layout in layouts)


def _with_layout(pair: Pair, ours: Transform | None, theirs: Transform | None) -> Pair:
    """Combine what both graphs tell: two tensors turned alike are compared as they are."""
    if ours == theirs and (ours is None or ours.channel_block is None):
        return pair
    for side, layout in ((Side.REFERENCE, theirs), (Side.BACKEND, ours)):
        if layout is not None:
            known = pair.view_of(side) or Transform()
            view = replace(known, transpose=layout.transpose, channel_block=layout.channel_block)
            pair = pair.with_view(side, view, _said(layout))
    return pair


def _said(layout: Transform) -> str:
    if layout.channel_block is not None:
        turned = "" if layout.transpose is None else f", then read as {layout.transpose}"
        return f"kept in blocks of {layout.channel_block} channels{turned}"
    return f"dimensions kept in another order, read as {layout.transpose}"


def _layout_of(tensor: str, node: Node, sides: _Sides) -> Transform | None:
    """Return the order of a tensor's dimensions as the run's own graph tells it; blocks of channels aside."""
    run, other, partners, layouts = sides.run, sides.other, sides.partners, sides.layouts
    source = node.inputs[0] if node.inputs else ""
    row = operators.of(node.op)
    if row.moves is operators.Move.FROM_BLOCKS:
        last = CHANNELS_SECOND if node.attrs.get("channels_last") else None
        return Transform(transpose=_composed(last, layouts.get(source, Transform()).transpose))
    if turns_channels(node):
        return _turned(layouts.get(source), node)
    if row.moves is not operators.Move.TO_BLOCKS and _keeps_last(node):
        order = _kept_last(node, _rank(tensor, run))
        if order is not None:
            return Transform(transpose=order)
    if row.transposes:  # that only turns what it reads, instead of standing for a Transpose of the other run
        ends = [other.root(partners[name]) for name in (source, tensor) if name in partners]
        if run.changes_layout(node) or (len(ends) == 2 and ends[0] == ends[1]):
            return _turned(layouts.get(source), node)
    readers = run.graph.consumers(tensor)
    if row.transposes and readers and all(_wants_channels_last(reader, tensor) for reader in readers):
        rank = len(perm) if isinstance(perm := node.attrs.get("perm"), tuple) else 0
        return Transform(transpose=(0, rank - 1, *range(1, rank - 1))) if rank > 2 else None
    if row.moves is operators.Move.UNSQUEEZE and source in layouts and not run.changes_layout(node):
        partner = other.graph.producer(partners[tensor]) if tensor in partners else None
        return with_dimensions(layouts[source], node, partner, (other, run))
    if operators.plain(node).own_dimensions and not run.changes_layout(node):
        return _turned_next(tensor, sides)
    if row.transposes and source in layouts and tensor not in partners:
        return _turned(layouts[source], node)  # what nothing answers to was most likely put in, to turn this back
    before = next((layouts[name] for name in node.inputs if name in layouts), None)
    return _without_dimensions(before, node, run) if before is not None and _drops_dimensions(node) else before


def _turned_next(tensor: str, sides: _Sides) -> Transform | None:
    """Return the layout of a tensor that a Transpose brings into its partner's order, as the extents alone show."""
    partner = sides.partners.get(tensor, "")
    if not all(name in run.recorded and run.has(name) for run, name in ((sides.run, tensor), (sides.other, partner))):
        return None
    shape, theirs = sides.run.shape(tensor), sides.other.shape(partner)
    theirs = plain_shape(theirs, (sides.frames or {}).get(partner))
    for reader in sides.run.graph.consumers(tensor) if shape != theirs else ():
        view = Transform(transpose=_turn_of(reader))
        answer = sides.partners.get(reader.outputs[0], "")
        if plain_shape(shape, view) == theirs and sides.other.root(answer) == sides.other.root(partner):
            return view
    return None


def _rank(tensor: str, run: IndexedRecording) -> int:
    """Return how many dimensions a tensor has, however much of it was kept; 4 where nothing tells."""
    if run.has(tensor):
        return len(run.shape(tensor))
    kept, declared = run.recording.kept(tensor), run.graph.tensors[tensor].shape
    return len(kept.shape) if kept is not None else len(declared) if declared is not None else 4


def _wants_channels_last(reader: Node, tensor: str) -> bool:
    return (
        _keeps_last(reader)
        and operators.of(reader.op).moves is not operators.Move.FROM_BLOCKS
        and reader.inputs[0] == tensor
    )


def _turned(before: Transform | None, node: Node) -> Transform | None:
    """Return the layout after a Transpose: where each of the model's dimensions has gone."""
    turn = _turn_of(node)
    if turn is None or (before is not None and before.transpose is None):
        return None
    order = _composed(_inverse(turn), None if before is None else before.transpose)
    return None if order is None else Transform(transpose=order)


def _fits(layout: Transform, tensor: str, sides: _Sides) -> bool:
    """Tell whether a layout can be that of a tensor: of as many dimensions, and not of other extents than its partner.

    The partner's own order is known only where the other run was looked at before.
    """
    run, other, frames = sides.run, sides.other, sides.frames
    if layout.transpose is None or tensor not in run.recorded or not run.has(tensor):
        return True
    shape, partner = run.shape(tensor), sides.partners.get(tensor, "")
    if len(shape) != len(layout.transpose):
        return False
    if frames is None or layout.channel_block is not None or partner not in other.recorded or not other.has(partner):
        return True
    theirs = plain_shape(other.shape(partner), frames.get(partner))
    return shape != theirs or plain_shape(shape, layout) == theirs
