"""The rows of the node list as the graphs and the alignment make them known, before any value is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from qdebug.tui.events import Opened
from qdebug.tui.planned import MadeRows, PlannedRow, PlannedRows
from qdebug.tui.rows import NodeTable
from qdebug.tui.source import DiffSource, Entry

if TYPE_CHECKING:
    from qdebug.model import Graph, TensorInfo

__all__ = ["describe", "named_rows", "planned_rows"]


def describe(source: DiffSource, backend_at: int = 0, *, writing: bool = False) -> Opened:
    """Tell what is known of an open comparison; reads no values.

    Args:
        source: The comparison.
        backend_at: Its number.
        writing: Whether a recorder still adds to a recording.
    """
    return Opened(
        writing=writing,
        backend_at=backend_at,
        reference=source.reference.info,
        backend=source.backend.info,
        reference_graph=source.reference.graph,
        backend_graph=source.backend.graph,
        table=NodeTable(planned_rows(source), growing=writing),
        samples=min(source.reference.samples, source.backend.samples),
        steps=min(source.reference.steps, source.backend.steps),
        limits=source.limits.to_dict(),
    )


def named_rows(names: Sequence[str]) -> NodeTable:
    """Make a table of names alone, to look at while the graphs are being read.

    Args:
        names: Tensors of the backend.
    """
    rows = MadeRows(names, lambda name: PlannedRow(node=name, op="", tensor=name, reference_tensor=""))
    return NodeTable(rows, names=names)


def planned_rows(source: DiffSource) -> PlannedRows:
    """List what is compared and what is not, in the backend's order; what only the reference has comes last.

    Args:
        source: An open session; no values are read.
    """
    from qdebug.analysis.alignment.pairs import Side  # loaded by then: there is an alignment

    reference, backend = source.reference.graph, source.backend.graph
    lines: list[Entry | PlannedRow] = list(source.entries())
    places = [_position(backend, entry.tensor) for entry in lines]
    for left_out in source.alignment.unmatched:
        ours = left_out.side is Side.BACKEND
        graph = backend if ours else reference
        if graph.is_constant(left_out.tensor):
            continue
        known = graph.tensors.get(left_out.tensor)
        producer = graph.producer(left_out.tensor)
        row = PlannedRow(
            node=left_out.tensor if producer is None else producer.name,
            op="Input" if producer is None else producer.op,
            tensor=left_out.tensor if ours else "",
            reference_tensor="" if ours else left_out.tensor,
            shape=None if known is None else known.shape,
            dtype=_dtype(known),
            quant=None if known is None else known.quant,
            missing=f"{left_out.kind}, {left_out.side} only: {left_out.reason}",
        )
        lines.append(row)
        places.append(_position(backend, left_out.tensor) if ours else len(backend.nodes))
    order = np.argsort(np.array(places, np.int64), kind="stable")
    if (np.diff(order) < 0).any():
        lines = [lines[at] for at in order.tolist()]
    return PlannedRows(lines, lambda tensor: _dtype(backend.tensors.get(tensor)))


def _position(graph: Graph, tensor: str) -> int:
    position = graph.position(tensor)
    return -1 if position is None else position


def _dtype(info: TensorInfo | None) -> str | None:
    if info is None:
        return None
    return info.quant.dtype if info.quant is not None and info.dtype is None else info.dtype
