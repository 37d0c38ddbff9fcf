"""In which order a backend keeps the dimensions of its tensors, compared with the reference.

Backends turn NCHW into NHWC, or into blocks of channels, where their kernels like it. Each such tensor still answers
to its reference tensor; it is only to be brought back into the reference's order before the two are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from qdebug.analysis.alignment import Pair, View
from qdebug.analysis.value_classes import Run, tensor_order
from qdebug.model import Node, QuantParams

__all__ = ["in_reference_order", "turned_quant", "with_layouts"]

_BLOCKED = re.compile(r"NCHW(\d+)c")


def in_reference_order(array: np.ndarray, view: View | None, shape: tuple[int, ...]) -> np.ndarray:
    """Bring a tensor into the order of dimensions that it shares with its partner.

    Args:
        array: Elements, stored or real.
        view: The pair's view of this side; None changes nothing.
        shape: The partner's shape, which tells padding channels from real ones.

    Returns:
        The array itself if nothing is to be done, else a copy in C order, since a turned view is read slowly. An array
        that the view does not fit is given back as it is, so that the difference of the shapes is seen and said.
    """
    if view is None:
        return array
    if view.channel_block is not None:
        return np.ascontiguousarray(_unblocked(array, view.channel_block, shape))
    if view.transpose is not None and len(view.transpose) == array.ndim:
        return np.ascontiguousarray(array.transpose(view.transpose))
    return array


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
    return array.transpose(0, 1, 4, 2, 3).reshape(count, blocks * block, height, width)[:, : shape[1]]


def with_layouts(pairs: Mapping[str, Pair], order: Iterable[str], ref: Run, be: Run) -> dict[str, Pair]:
    """Add to each pair how its two tensors are brought into one order of dimensions.

    Args:
        pairs: The pairs found, by backend tensor.
        order: Backend tensors in topological order.
        ref: The reference run.
        be: The backend run.
    """
    turned: dict[str, Pair] = {}
    for pair in pairs.values():
        turned.setdefault(pair.reference, replace(pair, reference=pair.backend, backend=pair.reference))
    ours = _layouts(pairs, order, ref, be)
    theirs = _layouts(turned, tensor_order(ref.recording), be, ref)
    return {tensor: _with_layout(pair, ours.get(tensor), theirs.get(pair.reference)) for tensor, pair in pairs.items()}


def _layouts(pairs: Mapping[str, Pair], order: Iterable[str], other: Run, run: Run) -> dict[str, View]:
    """Find the tensors of one run that are kept in another order than their partners, as its own graph tells."""
    layouts: dict[str, View] = {}
    for tensor in order:
        pair = pairs.get(tensor)
        node = run.recording.graph.producer(tensor)
        if pair is not None and node is not None:
            layout = _layout_of(tensor, node, pairs, layouts, (other, run))
            if layout is not None and _fits(layout, pair, other, run):
                layouts[tensor] = layout
    return layouts


def _with_layout(pair: Pair, ours: View | None, theirs: View | None) -> Pair:
    """Combine what both graphs tell: two tensors turned alike are compared as they are."""
    if ours == theirs:
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
        return f"kept in blocks of {layout.channel_block} channels"
    return f"dimensions kept in another order, read as {layout.transpose}"


def _layout_of(
    tensor: str, node: Node, pairs: Mapping[str, Pair], layouts: Mapping[str, View], runs: tuple[Run, Run]
) -> View | None:
    ref, be = runs
    blocked = _BLOCKED.fullmatch(be.recording.graph.tensors[tensor].layout or "")
    if blocked:
        return View(channel_block=int(blocked.group(1)))
    if node.op == "ReorderOutput":
        return _channels_last(4) if node.attrs.get("channels_last") else None
    if node.attrs.get("channels_last") or node.op.startswith("Nhwc"):
        rank = be.recording.load(tensor).ndim if tensor in be.recorded else 4
        return _channels_last(rank)
    source = node.inputs[0] if node.inputs else ""
    if node.op == "Transpose" and _same_partner(source, tensor, pairs, ref):
        return _turned(layouts.get(source), node)
    return next((layouts[name] for name in node.inputs if name in layouts), None)


def _channels_last(rank: int) -> View | None:
    return View(transpose=(0, rank - 1, *range(1, rank - 1))) if rank > 2 else None


def _same_partner(source: str, tensor: str, pairs: Mapping[str, Pair], ref: Run) -> bool:
    """Tell whether a Transpose only turns what it reads, instead of standing for a Transpose of the reference."""
    if source not in pairs:
        return False
    root = ref.classes.root
    return root(pairs[source].reference) == root(pairs[tensor].reference)


def _turned(before: View | None, node: Node) -> View | None:
    """Give the layout after a Transpose: where each of the reference's dimensions has gone."""
    perm = node.attrs.get("perm")
    if not isinstance(perm, tuple) or (before is not None and before.transpose is None):
        return None
    old = tuple(range(len(perm))) if before is None or before.transpose is None else before.transpose
    new = tuple(perm.index(axis) for axis in old)
    return None if new == tuple(range(len(perm))) else View(transpose=new)


def _fits(layout: View, pair: Pair, ref: Run, be: Run) -> bool:
    """Tell whether a layout makes the recorded shapes equal, where both are known."""
    if pair.backend not in be.recorded or pair.reference not in ref.recorded:
        return True
    theirs = ref.recording.load(pair.reference).shape if ref.recording.has(pair.reference) else None
    ours = be.recording.load(pair.backend) if be.recording.has(pair.backend) else None
    return theirs is None or ours is None or in_reference_order(ours, layout, theirs).shape == theirs
