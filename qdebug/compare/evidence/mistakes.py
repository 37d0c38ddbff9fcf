"""Searches for kernel mistakes that reproduce a tensor: in its node, its fused layer, or the reference's node."""

from __future__ import annotations

from qdebug.compare.align.expand import has_unknown_inputs
from qdebug.compare.evidence.measured_tensor import MeasuredTensor
from qdebug.compare.evidence.runs import Runs
from qdebug.compare.explaining.claims import EVERY
from qdebug.compare.explaining.code_cause import CodeCause, cause_of_codes
from qdebug.compare.explaining.fused import WithFused
from qdebug.compare.explaining.layer_cause import cause_inside, is_far_off
from qdebug.compare.explaining.mistaken import mistake_of
from qdebug.compare.graph_checks.casts import ChangedByCast, changed_by_cast
from qdebug.model import Node, operators

__all__ = ["cast_mistakes", "changes_by_casts", "mistake", "mistake_in_reference", "mistake_inside_layer"]


def mistake(measured: MeasuredTensor) -> str | None:
    """Return the known kernel mistake that reproduces every element, in words; None unless there is exactly one."""
    node, tensor = measured.node, measured.entry.tensor
    return None if node is None else mistake_of(measured._runs.backend, node, tensor, measured._places)


def mistake_inside_layer(measured: MeasuredTensor) -> str | None:
    """Return the mistakes inside a fused layer that reproduce its output, in words, or None."""
    layers, node = WithFused(measured._runs.backend), measured.node
    return None if node is None else cause_inside(layers, node, measured.entry.tensor, measured._places)


def changes_by_casts(measured: MeasuredTensor) -> tuple[ChangedByCast, ChangedByCast | None] | None:
    """Return the numbers that a cast to integers changes, and those that the reference's cast changes.

    None if the node is not such a cast or changes no numbers. The second item is None if the reference has no such
    cast.
    """
    node, main, runs = measured.node, measured._main_node, measured._runs
    if node is None or not operators.of(node.op).casts or measured._segment is None:
        return None
    changes = changed_by_cast(runs.backend, node)
    if changes is None or not changes.count:
        return None
    return changes, None if main is None else changed_by_cast(runs.reference, main)


def cast_mistakes(measured: MeasuredTensor) -> tuple[str | None, str | None]:
    """Return how the backend and the reference cast numbers out of range, in words, each None if unknown."""
    node, reference_node, places = measured.node, measured.reference_node, measured._places
    if node is None or reference_node is None or measured.stats is None or not measured.stats.mismatches:
        return None, None
    if not (operators.of(node.op).casts and operators.of(reference_node.op).casts):
        return None, None
    runs, entry = measured._runs, measured.entry
    return (
        mistake_of(runs.backend, node, entry.tensor, places, or_right=True),
        mistake_of(runs.reference, reference_node, entry.reference_tensor, places, or_right=True),
    )


def mistake_in_reference(measured: MeasuredTensor) -> tuple[str, CodeCause] | None:
    """Return the operator of the reference's node, and the mistake in it that reproduces a run without a graph.

    Such a run may compute a different graph, or use other weights or fewer digits. So either its values must exceed
    their limit, or its inputs must equal the reference's and the mistake must reproduce every value.
    """
    runs, entry, node, places = measured._runs, measured.entry, measured.node, measured._places
    if node is None or not has_unknown_inputs(node) or measured.stats is None or not measured.stats.mismatches:
        return None
    run, diverges = runs.on_reference_graph, measured.diverges
    reference_node = run.graph.producer(entry.tensor)
    if reference_node is None or not (diverges or _reads_equal_values(runs, reference_node)):
        return None
    known = mistake_of(run, reference_node, entry.tensor, places, roundings=diverges)
    if known is not None:
        cause = CodeCause(sentence=f"{known} ({EVERY})", explains_all=True)
    elif is_far_off(run, reference_node, entry.tensor, places):
        cause = cause_of_codes(run, entry.tensor, roundings=diverges)
    else:
        return None
    return (reference_node.op, cause) if diverges or cause.explains_all else None


def _reads_equal_values(runs: Runs, reference_node: Node) -> bool:
    """Return whether all recorded tensors that determine a node's output are equal in both runs."""
    layers, names = WithFused(runs.on_reference_graph), [name for name in reference_node.inputs if name]
    chains = {name: layers.chain(name) for name in names}
    reads = {read for name, chain in chains.items() for read in ((name,) if chain is None else chain.reads)}
    errors = [runs.error_of(name) for name in reads if not layers.graph.is_constant(name)]
    stats = [None if comparison is None else comparison.stats for comparison in errors]
    return bool(stats) and all(tensor_stats is not None and not tensor_stats.mismatches for tensor_stats in stats)
