"""What becomes of the order of a tensor's dimensions where some are taken out, or are turned at another place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from qdebug.compare.align.pairs import View
from qdebug.compare.align.value_classes import Run
from qdebug.model import Node, operators
from qdebug.model.outline import shape_of
from qdebug.model.thresholds.alignment import FUSED_CHAIN_MAX_NODES

__all__ = [
    "CHANNELS_SECOND",
    "Sides",
    "composed",
    "drops_dimensions",
    "inverse",
    "keeps_last",
    "kept_last",
    "turn_of",
    "turned_by",
    "turned_later_by",
    "with_dimensions",
    "without_dimensions",
]

CHANNELS_SECOND = (0, 3, 1, 2)
"""How four dimensions are turned whose channels come last."""
_TURNS_INSIDE = ("transA", "transB", "layout")
"""Attributes by which an operator that knows its dimensions by place reads them in another order."""


def drops_dimensions(node: Node) -> bool:
    """Tell whether a node gives fewer dimensions than it reads: a Squeeze, or a reduction that keeps none."""
    row = operators.of(node.op)
    return row.drops or (row.reduces and node.attrs.get("keepdims", 1) == 0)


def without_dimensions(before: View, node: Node, run: Run) -> View | None:
    """Give the layout of what a node makes by taking dimensions of its input out."""
    if before.transpose is None or before.channel_block is not None:
        return None
    rank = len(before.transpose)
    gone = {axis % rank for axis in _axes(node, run)}
    left = [axis for axis in before.transpose if axis not in gone]
    turned = tuple(sorted(left).index(axis) for axis in left)
    return View(transpose=turned) if gone and turned != tuple(range(len(left))) else None


def with_dimensions(before: View, node: Node, partner: Node | None, runs: tuple[Run, Run]) -> View | None:
    """Give the layout of what a node makes by putting dimensions of extent 1 into its input.

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
    return View(transpose=turned) if turned != tuple(range(rank)) else None


def _axes(node: Node, run: Run) -> tuple[int, ...]:
    """Give the dimensions that a node takes out or puts in, in the order that it sees them in; none if not known."""
    said = node.attrs.get("axes", node.attrs.get("axis"))
    if isinstance(said, int):
        return (said,)
    if isinstance(said, tuple):
        return tuple(int(axis) for axis in said if isinstance(axis, int))
    row = operators.of(node.op)
    if row.picks_index and row.reduces:
        return (row.default_axis,)
    if len(node.inputs) > 1 and node.inputs[1]:
        known = run.graph.is_constant(node.inputs[1]) and run.recording.has(node.inputs[1])
        return tuple(int(axis) for axis in run.recording.load(node.inputs[1]).reshape(-1)) if known else ()
    if row.drops and node.inputs[0] in run.recorded and run.recording.has(node.inputs[0]):
        return tuple(axis for axis, extent in enumerate(shape_of(run.recording, node.inputs[0])) if extent == 1)
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What is known while the layouts of one run's tensors are looked for.

    Args:
        other: The other run.
        run: The run.
        partners: The other run's tensors by those of this run.
        layouts: Those of this run's tensors, as far as they have been found.
        frames: Those of the other run's tensors; None where nobody looked.
    """

    other: Run
    run: Run
    partners: Mapping[str, str]
    layouts: Mapping[str, View]
    frames: Mapping[str, View] | None = None


def turned_later_by(tensor: str, node: Node, sides: Sides) -> View | None:
    """Give the layout of a tensor where the other run turns what its partner is made of, or what comes of that.

    Optimizers move a Transpose past the nodes that follow or come before: in between, all is in another order.

    Args:
        tensor: The tensor.
        node: What makes it.
        sides: What is known.

    Returns:
        The layout, perhaps one that changes nothing; None if the other run turns nothing there.
    """
    other, run, partners = sides.other, sides.run, sides.partners
    if tensor not in partners or operators.plain(node).turns:
        return None
    coded = _sums_of_codes(node, sides)
    maker = coded or node
    made, after = _unturned(partners[tensor], sides, lambda name: _alike(other, name, maker), folded=True)
    theirs = None if made is None else other.graph.producer(made)
    if theirs is None:
        return None
    ordered = operators.plain(maker).ordered
    if ordered and (after is not None or coded is not None):
        return View(transpose=composed(kept_last(maker, len(after or ())), after))
    sources = {other.classes.root(partners[name]): name for name in run.classes.data_inputs(maker) if name in partners}
    for name in other.classes.data_inputs(theirs):
        source, before = _unturned(name, sides, sources.__contains__)
        if source is None or (before is None and after is None):
            continue
        if ordered:
            return View(transpose=kept_last(maker, len(before or ())))
        known = sides.layouts.get(sources[source], View())
        order = composed(known.transpose, before)
        if order is not None and drops_dimensions(node):
            left = without_dimensions(View(transpose=order), node, run)
            order = None if left is None else left.transpose
        return View(transpose=composed(order, after), channel_block=known.channel_block)
    return None


def turned_by(tensor: str, source: str, sides: Sides) -> View | None:
    """Give the layout after a Transpose, from how the other run's tensors that answer to both its ends are turned.

    Args:
        tensor: What the Transpose gives.
        source: What it reads.
        sides: What is known.

    Returns:
        The layout, perhaps one that changes nothing; None if the other run does not turn one into the other.
    """
    partners, root = sides.partners, sides.other.classes.root
    turn = turn_of(sides.run.graph.producer(tensor))
    if turn is None or source not in partners or tensor not in partners:
        return None
    ends = [root(partners[name]) for name in (source, tensor)]
    found, order = _unturned(ends[1], sides, ends[0].__eq__)
    if found is None:
        found, back = _unturned(ends[0], sides, ends[1].__eq__)
        order = None if back is None else inverse(back)
    if found is None:
        return None
    known = sides.layouts.get(source)
    view = View(transpose=composed(composed(inverse(turn), None if known is None else known.transpose), order))
    return View() if order is not None and _read_by_place(tensor, sides) else view


def _read_by_place(tensor: str, sides: Sides) -> bool:
    """Tell whether a node reads a tensor by the places of its dimensions, just as the other run's does its partner.

    The order is then the model's, or that of a Transpose that turns wrongly: nothing turns it back.
    """
    run, other, partners = sides.run, sides.other, sides.partners
    for reader in run.graph.consumers(tensor):
        answers = partners.get(reader.outputs[0]) if operators.plain(reader).reads_by_place else None
        theirs = None if answers is None else other.graph.producer(other.classes.root(answers))
        if theirs is None or operators.plain(theirs).name != operators.plain(reader).name:
            continue
        if any(theirs.attrs.get(name, 0) != reader.attrs.get(name, 0) for name in _TURNS_INSIDE):
            continue
        ours, fed = run.classes.data_inputs(reader), other.classes.data_inputs(theirs)
        roots = [other.classes.root(partners[name]) if name in partners else None for name in ours]
        if roots == [other.classes.root(name) for name in fed]:
            return True
    return False


def turn_of(node: Node | None) -> tuple[int, ...] | None:
    """Give for each dimension after a Transpose which of its input's it is; None if that is not known, or no turn."""
    if node is None or not operators.plain(node).transposes:
        return None
    perm = CHANNELS_SECOND if operators.turns_channels(node) else node.attrs.get("perm")
    return tuple(axis for axis in perm if isinstance(axis, int)) if isinstance(perm, tuple) else None


def inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    """Give the turn that undoes a turn."""
    return tuple(perm.index(axis) for axis in range(len(perm)))


def keeps_last(node: Node) -> bool:
    """Tell whether a runtime lets a node read or write channels last."""
    return bool(node.attrs.get("channels_last")) or operators.of(node.op).channels_last


def kept_last(node: Node, rank: int) -> tuple[int, ...] | None:
    """Give the order that brings what a node gives into the order of its operator; None unless it has channels last."""
    return (0, rank - 1, *range(1, rank - 1)) if rank > 2 and keeps_last(node) else None


def _sums_of_codes(node: Node, sides: Sides) -> Node | None:
    """Give the node whose sums of codes another makes real numbers of, through nodes that no tensor answers to."""
    run = sides.run
    for _ in range(FUSED_CHAIN_MAX_NODES):
        fed = run.classes.data_inputs(node)
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


def _alike(run: Run, tensor: str, node: Node) -> bool:
    maker = run.graph.producer(tensor)
    return maker is not None and operators.same_family(maker, node)


def _unturned(
    tensor: str, sides: Sides, ends: Callable[[str], bool], *, folded: bool = False
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
    at = run.classes.root(tensor)
    while not ends(at):
        node = run.graph.producer(at)
        data = () if node is None else run.classes.data_inputs(node)
        if folded and node is not None and operators.of(node.op).folded_before and len(data) == 1:
            at = run.classes.root(data[0])
            continue
        turn = turn_of(node)
        if node is None or turn is None:
            return None, None
        before, after = ((sides.frames or {}).get(name, View()).transpose for name in (node.inputs[0], at))
        turned = composed(composed(None if before is None else inverse(before), turn), after)
        order = composed(turned, order)
        at = run.classes.root(node.inputs[0])
    return at, order


def composed(first: tuple[int, ...] | None, then: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Give the order of dimensions that two turns make one after the other; None for one that changes nothing."""
    if first is None or then is None or len(first) != len(then):
        return first if then is None else then
    both = tuple(first[axis] for axis in then)
    return None if both == tuple(range(len(both))) else both
