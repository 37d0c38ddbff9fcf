"""Pairs each backend tensor with its reference tensor, by names and the structure of both graphs.

`align` applies strategies in order to one context: `FIRST` to the inputs, then `EVIDENCE` to each backend tensor in
topological order, then `AFTERWARDS` to all pairs. The first strategy that finds a pair for a tensor wins, and the pair
states why. Tensors are never paired by a name suffix or by position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from qdebug.compare.align.by_data import pair_by_data, pair_by_unconfirmed_name
from qdebug.compare.align.by_hand import pair_as_stated
from qdebug.compare.align.channels_last import add_channels_second_layouts, add_layouts_by_values
from qdebug.compare.align.clamps import clamp_to_next_codes, is_codes_without_scale
from qdebug.compare.align.context import Context
from qdebug.compare.align.folded import add_folded_nodes_to_reasons
from qdebug.compare.align.fused import pair_absorbed_node
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.layouts import add_layouts_of_graphs
from qdebug.compare.align.leftover import list_unmatched
from qdebug.compare.align.names import pair_by_strong_name, pair_by_weak_name, pair_inputs_by_name, pair_other_form
from qdebug.compare.align.pairs import Alignment, Pair, PairList
from qdebug.compare.align.scopes import pair_by_scopes
from qdebug.compare.align.structure import (
    pair_by_structure,
    pair_by_structure_over_name,
    pair_by_weights,
    pair_inputs_by_values,
    pair_only_input,
)
from qdebug.errors import AlignmentError
from qdebug.model import Node, Recording, operators

__all__ = ["align", "align_runs"]

FIRST = (pair_as_stated, pair_inputs_by_name, pair_only_input, pair_inputs_by_values, pair_only_input)
"""Strategies for stated pairs and for the inputs."""
EVIDENCE = (
    pair_by_strong_name,
    pair_by_structure_over_name,
    pair_by_weak_name,
    pair_absorbed_node,
    pair_by_structure,
    pair_by_weights,
)
"""Strategies for node outputs, strongest evidence first."""
LAST_RESORT = (pair_by_data, pair_by_unconfirmed_name)
"""Strategies for tensors without other evidence. Each pair they find may lead to more."""
AFTERWARDS = (
    pair_by_scopes,
    clamp_to_next_codes,
    add_layouts_of_graphs,
    add_layouts_by_values,
    add_channels_second_layouts,
    add_folded_nodes_to_reasons,
)
"""Strategies that run after all tensors were visited, to add pairs or complete existing ones."""
_STAGES = 90
"""Number of progress reports during the walk."""


def align(reference: Recording, backend: Recording, *, given: PairList | None = None) -> Alignment:
    """Pair the tensors of two recordings.

    Args:
        reference: The reference run.
        backend: The backend run.
        given: Pairs that the user stated. They take precedence over all others.

    Returns:
        Pairs in the backend's topological order, and every recorded tensor without a partner, with the reason.

    Raises:
        AlignmentError: No tensor beyond the network's inputs has a partner.
        UsageError: A stated pair names a tensor without values.
    """
    runs = IndexedRecording.of(reference), IndexedRecording.of(backend)
    return align_runs(*runs, report_progress=lambda _: None, given=given)


def align_runs(
    reference: IndexedRecording,
    backend: IndexedRecording,
    *,
    report_progress: Callable[[str], object],
    given: PairList | None = None,
) -> Alignment:
    """Pair the tensors of two indexed recordings, as `align` does.

    Args:
        reference: The reference run.
        backend: The backend run.
        report_progress: Called with the current stage, at most a hundred times. Raise an exception in it to end the
            search.
        given: Pairs that the user stated. They take precedence over all others.
    """
    context = Context(ref=reference.expanded(), be=backend.expanded(), given=given or PairList())
    _apply(FIRST, context)
    _walk(context, report_progress)
    for strategy in LAST_RESORT:
        while _apply((strategy,), context):
            _walk(context, report_progress)
    report_progress("comparing layouts")
    _apply(AFTERWARDS, context)
    pairs = tuple(pair for pair in context.pairs if _is_comparable(context, pair))
    if not any(pair.backend not in context.be.graph.inputs for pair in pairs):
        raise AlignmentError(
            f"No tensor of {_title(backend.recording)} could be paired with a tensor of {_title(reference.recording)}.",
            hint="Check that both record the same network: qdebug info FILE --tensors.",
        )
    report_progress("classifying unmatched tensors")
    alignment = Alignment(pairs=pairs, unmatched=list_unmatched(context, pairs))
    for run in (context.ref, context.be):
        run.forget_numbers()
    return alignment


def _apply(strategies: Iterable[Callable[[Context], Iterator[Pair]]], context: Context) -> int:
    """Add the pairs that strategies find, each given all earlier pairs, and return the number of new pairs."""
    count = 0
    for strategy in strategies:
        for pair in strategy(context):
            context.add(pair)
            count += 1
    return count


def _walk(context: Context, report_progress: Callable[[str], object]) -> None:
    """Find the partner of each node's output, and report progress along the way."""
    # Tensors that were undecided or lost their pair stay unpaired: a later pass by elimination could pair them wrongly.
    excluded = context.undecided | context.withdrawn | {*context.given.alone}
    order = [name for name in context.order if not context.be.folds(name) and name not in excluded]
    interval = max(len(order) // _STAGES, 1)
    for number, tensor in enumerate(order):
        if not number % interval:
            report_progress(f"pairing tensors {100 * number // len(order)}%")
        node = context.be.graph.producer(tensor)
        if node is not None and tensor not in context.pair_map:
            pair = _find_partner(context, tensor, node)
            if pair is not None:
                context.add(pair)


def _find_partner(context: Context, tensor: str, node: Node) -> Pair | None:
    """Return the pair with the strongest evidence for a node's output, or None with a note in the context."""
    if context.be.root(tensor) != tensor:
        return pair_other_form(context, tensor, node)
    for strategy in EVIDENCE:
        pair = strategy(context, tensor, node)
        if pair is not None:
            return pair
        if tensor in context.withdrawn:
            break
    return None


def _is_comparable(context: Context, pair: Pair) -> bool:
    """Return whether both tensors of a pair were recorded, and both or neither are codes without a scale."""
    ref, be = context.ref, context.be
    if pair.backend not in be.recorded or pair.reference not in ref.recorded or _holds_permuted_extents(context, pair):
        return False
    return is_codes_without_scale(ref, pair.reference) == is_codes_without_scale(be, pair.backend)


def _holds_permuted_extents(context: Context, pair: Pair) -> bool:
    """Return whether a pair consists of two shape tensors whose dimensions are in different orders."""
    node = context.be.graph.producer(pair.backend)
    if node is None or operators.plain(node).counts is not operators.Count.EXTENTS:
        return False
    input_pair = context.pair_map.get(node.inputs[0])
    views = () if input_pair is None else (input_pair.reference_view, input_pair.backend_view)
    orders = {None if view is None else view.transpose for view in views}
    return len(orders) > 1


def _title(recording: Recording) -> str:
    info = recording.info
    return f"{info.model or 'the recording'} ({info.backend})"
