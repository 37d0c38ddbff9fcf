"""What becomes of the order of a tensor's dimensions where some are taken out, or are turned at another place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qdebug.analysis.alignment.ops import ACTIVATIONS, GO_INTO_WEIGHTS, plain_op, same_family
from qdebug.analysis.alignment.pairs import View
from qdebug.analysis.alignment.value_classes import Run
from qdebug.model import Node
from qdebug.model.outline import shape_of

__all__ = ["drops_dimensions", "turned_later_by", "with_dimensions", "without_dimensions"]


def drops_dimensions(node: Node) -> bool:
    """Tell whether a node gives fewer dimensions than it reads: a Squeeze, or a reduction that keeps none."""
    reduces = node.op.startswith(("Reduce", "ArgM")) and node.attrs.get("keepdims", 1) == 0
    return node.op == "Squeeze" or reduces


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
    if node.op.startswith("ArgM"):
        return (0,)
    if len(node.inputs) > 1 and node.inputs[1]:
        known = run.graph.is_constant(node.inputs[1]) and run.recording.has(node.inputs[1])
        return tuple(int(axis) for axis in run.recording.load(node.inputs[1]).reshape(-1)) if known else ()
    if node.op == "Squeeze" and node.inputs[0] in run.recorded and run.recording.has(node.inputs[0]):
        return tuple(axis for axis, extent in enumerate(shape_of(run.recording, node.inputs[0])) if extent == 1)
    return ()


def turned_later_by(
    tensor: str, node: Node, partners: Mapping[str, str], layouts: Mapping[str, View], runs: tuple[Run, Run]
) -> View | None:
    """Give the layout of a tensor where the other run turns what its partner is made of, or what comes of that.

    Optimizers move a Transpose past the nodes that follow or come before: in between, all is in another order.

    Args:
        tensor: The tensor.
        node: What makes it.
        partners: The other run's tensors by those of this run.
        layouts: What is known of the tensors before.
        runs: The other run and this one.

    Returns:
        The layout, perhaps one that changes nothing; None if the other run turns nothing there.
    """
    other, run = runs
    if tensor not in partners or node.op == "Transpose" or node.attrs.get("channels_last"):
        return None
    made, after = _unturned(partners[tensor], other, lambda name: _alike(other, name, node), folded=True)
    theirs = None if made is None else other.graph.producer(made)
    if theirs is None:
        return None
    sources = {other.classes.root(partners[name]): name for name in run.classes.data_inputs(node) if name in partners}
    for name in other.classes.data_inputs(theirs):
        source, before = _unturned(name, other, sources.__contains__)
        if source is None or (before is None and after is None):
            continue
        known = layouts.get(sources[source])
        if known is not None and (known.transpose is None or known.channel_block is not None):
            continue
        order = _composed(None if known is None else known.transpose, before)
        if order is not None and drops_dimensions(node):
            left = without_dimensions(View(transpose=order), node, run)
            order = None if left is None else left.transpose
        order = _composed(order, after)
        return View() if order is None else View(transpose=order)
    return None


def _alike(run: Run, tensor: str, node: Node) -> bool:
    maker = run.graph.producer(tensor)
    return maker is not None and same_family(plain_op(maker), plain_op(node))


def _unturned(
    tensor: str, run: Run, ends: Callable[[str], bool], *, folded: bool = False
) -> tuple[str | None, tuple[int, ...] | None]:
    """Follow a tensor back through Transposes to one where they end.

    Args:
        tensor: The tensor.
        run: Its run.
        ends: Tells of a root whether it is that one.
        folded: Also go back through what the other run may have folded into the node before the Transpose.

    Returns:
        The root of the tensor where that is, and for each dimension of the tensor which of that one's it is (None if
        in order); no tensor if something else than a Transpose comes first.
    """
    order: tuple[int, ...] | None = None
    at = run.classes.root(tensor)
    while not ends(at):
        turn = run.graph.producer(at)
        data = () if turn is None else run.classes.data_inputs(turn)
        if folded and turn is not None and turn.op in GO_INTO_WEIGHTS | ACTIVATIONS and len(data) == 1:
            at = run.classes.root(data[0])
            continue
        perm = None if turn is None or turn.op != "Transpose" else turn.attrs.get("perm")
        if turn is None or not isinstance(perm, tuple):
            return None, None
        order = _composed(tuple(int(axis) for axis in perm), order)
        at = run.classes.root(turn.inputs[0])
    return at, order


def _composed(first: tuple[int, ...] | None, then: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Give the order of dimensions that two turns make one after the other; None for one that changes nothing."""
    if first is None or then is None or len(first) != len(then):
        return first if then is None else then
    both = tuple(first[axis] for axis in then)
    return None if both == tuple(range(len(both))) else both
