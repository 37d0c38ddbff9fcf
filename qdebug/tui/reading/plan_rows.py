"""The rows of the node list, created from the graphs and the alignment before any value is read."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from qdebug.tui.nodes.rows import NodeTable, PlannedRow
from qdebug.tui.reading.messages import Opened

if TYPE_CHECKING:
    from qdebug.compare.align.pairs import Unmatched
    from qdebug.compare.attribute.plan import PlannedNode
    from qdebug.compare.result.result import NodeResult
    from qdebug.model import Graph, TensorInfo
    from qdebug.session import DiffSession

__all__ = ["constant_rows", "describe_comparison", "named_rows", "plan_rows"]


def describe_comparison(source: DiffSession, backend_at: int = 0, *, is_writing: bool = False) -> Opened:
    """Return the facts of an open comparison without reading values.

    Args:
        source: The comparison.
        backend_at: Its index among the comparisons.
        is_writing: Whether a recorder is still adding to a recording.
    """
    return Opened(
        is_writing=is_writing,
        backend_at=backend_at,
        reference=source.reference.info,
        backend=source.backend.info,
        reference_graph=source.reference.graph,
        backend_graph=source.backend.graph,
        table=NodeTable(plan_rows(source), is_growing=is_writing),
        samples=min(source.reference.samples, source.backend.samples),
        steps=min(source.reference.steps, source.backend.steps),
        limits=source.limits.to_dict(),
    )


def named_rows(names: Sequence[str]) -> NodeTable:
    """Return a table with only names, to show while the graphs are being read.

    Args:
        names: Tensors of the backend.
    """
    rows = [PlannedRow(node=name, op="", tensor=name, reference_tensor="") for name in names]
    return NodeTable(rows, names=names)


def plan_rows(source: DiffSession) -> list[PlannedRow]:
    """Return the rows of all tensors, compared or not, in the backend's order.

    Tensors without a position in that order come last: tensors computed only from constants, then tensors that only
    the reference has.

    Args:
        source: An open session; values are not read.
    """
    from qdebug.compare.align.pairs import Side  # already imported by the alignment

    reference, backend = source.reference.graph, source.backend.graph
    rows_with_position = [(_position(backend, entry.tensor), _paired_row(entry, backend)) for entry in source.entries()]
    for unmatched in source.alignment.unmatched:
        is_backend, name = unmatched.side is Side.BACKEND, unmatched.tensor
        graph = backend if is_backend else reference
        if graph.is_constant(name):
            continue
        is_constant = is_backend and unmatched.of_constants
        position = _position(backend, name) if is_backend and not is_constant else len(backend.nodes) + (not is_backend)
        rows_with_position.append(
            (position, _unmatched_row(unmatched, graph, is_backend=is_backend, is_constant=is_constant))
        )
    rows_with_position.sort(key=itemgetter(0))
    return [row for _, row in rows_with_position]


def _paired_row(entry: PlannedNode, backend: Graph) -> PlannedRow:
    """Return the row of a pair."""
    producer = backend.producer(entry.tensor)
    return PlannedRow(
        node=entry.node,
        op=entry.op,
        tensor=entry.tensor,
        reference_tensor=entry.reference_tensor,
        match=entry.match.value,
        shape=entry.shape,
        dtype=_dtype(backend.tensors.get(entry.tensor)),
        quant=entry.quant,
        placement="" if producer is None else producer.placement,
    )


def _unmatched_row(unmatched: Unmatched, graph: Graph, *, is_backend: bool, is_constant: bool) -> PlannedRow:
    """Return the row of a tensor without a counterpart."""
    info, producer = graph.tensors.get(unmatched.tensor), graph.producer(unmatched.tensor)
    return PlannedRow(
        node=unmatched.tensor if producer is None else producer.name,
        op="Input" if producer is None else producer.op,
        tensor=unmatched.tensor if is_backend else "",
        reference_tensor="" if is_backend else unmatched.tensor,
        shape=None if info is None else info.shape,
        dtype=_dtype(info),
        quant=None if info is None else info.quant,
        constant=is_constant,
        placement="" if producer is None or not is_backend else producer.placement,
        missing=f"{unmatched.kind}, {unmatched.side} only: {unmatched.reason}",
    )


def constant_rows(
    graph: Graph,
    paired_results: Sequence[tuple[NodeResult, str]],
    unpaired_names: Sequence[str],
    *,
    side: str = "backend",
) -> list[PlannedRow]:
    """Return the rows of a side's constants, constants with a counterpart first.

    Args:
        graph: The graph of that side.
        paired_results: The results of constants with a counterpart, each with the operators folded into the reference's
            constant.
        unpaired_names: The names of the other constants.
        side: "backend", or "reference" if only the reference has the node.
    """
    paired_rows = [
        (result.tensor, result.reference_tensor, result.match.value, None, folded) for result, folded in paired_results
    ]
    tensor_names = [(name, "") if side == "backend" else ("", name) for name in unpaired_names]
    unpaired_rows = [(*names, "", f"only the {side} has this constant", "") for names in tensor_names]
    rows = []
    for tensor, reference, match, missing, folded in (*paired_rows, *unpaired_rows):
        info = graph.tensors.get(tensor or reference)
        row = PlannedRow(
            node=tensor or reference,
            op="constant",
            tensor=tensor,
            reference_tensor=reference,
            match=match,
            shape=None if info is None else info.shape,
            dtype=_dtype(info),
            quant=None if info is None else info.quant,
            missing=missing,
            folded=folded,
        )
        rows.append(row)
    return rows


def _position(graph: Graph, tensor: str) -> int:
    position = graph.position(tensor)
    return -1 if position is None else position


def _dtype(info: TensorInfo | None) -> str | None:
    if info is None:
        return None
    return info.quant.dtype if info.quant is not None and info.dtype is None else info.dtype
