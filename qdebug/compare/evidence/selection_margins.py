"""The input differences that change an index, a boolean or a rounded number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.band import minus
from qdebug.compare.attribute.input_errors import partner_values
from qdebug.compare.attribute.integer_tensors import picked_values
from qdebug.compare.evidence.measured_tensor import MeasuredTensor
from qdebug.compare.evidence.runs import Runs
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node, operators
from qdebug.numerics.accumulate import has_same_elements

__all__ = ["selection_margins"]


def selection_margins(measured: MeasuredTensor) -> Sequence[float]:
    """Return the input difference that decides each differing element, or () if it is unknown.

    For an index or a comparison, this difference is how much the distance between the two candidate values changes from
    one side to the other. For a conversion to integers, it is the difference of the converted number.
    """
    node, tensor = measured.node, measured.entry.tensor
    if node is None:
        return ()
    try:
        return [margin for place in measured._places for margin in _margins(measured._runs, tensor, node, place)]
    except (KernelError, NotRecordedError):
        return ()


def _margins(runs: Runs, tensor: str, node: Node, place: tuple[int, int]) -> Iterator[float]:
    """Yield the input difference that decides each differing element, or nothing if the operator does not select.

    Raises:
        KernelError: An input is stored in an unsupported dimension order.
        RecordingError: An input was not recorded.
    """
    row, replays = operators.of(node.op), runs.graphs.replays
    backend_values = real_values(runs.backend, tensor, place)
    reference_values = partner_values(replays, tensor, place)
    if backend_values.shape != reference_values.shape or np.array_equal(backend_values, reference_values):
        return

    def read_both_sides(slot: int) -> tuple[np.ndarray, np.ndarray]:
        name = node.inputs[slot]
        backend_input = real_values(runs.backend, name, place)
        return (partner_values(replays, name, place) if name in runs.pairs else backend_input), backend_input

    is_different, gaps = backend_values != reference_values, None
    if row.counts is operators.Count.COMPARISON:
        gaps = [minus(*operands) for operands in zip(read_both_sides(0), read_both_sides(1), strict=True)]
    elif row.casts and read_both_sides(0)[1].dtype.kind == "f":
        gaps = list(read_both_sides(0))
    elif row.picks_index and not (row.indices_beside and tensor == node.outputs[0]):
        candidate_values = [picked_values(node, side, reference_values, backend_values) for side in read_both_sides(0)]
        gaps = [minus(*values) for values in candidate_values if values is not None]
    if gaps is None or len(gaps) < 2 or gaps[0].shape != gaps[1].shape:
        return
    distances = np.abs(minus(gaps[0], gaps[1]))
    if has_same_elements(distances.shape, is_different.shape):
        distances = distances.reshape(is_different.shape)[is_different]
        yield from distances[np.isfinite(distances)].tolist()
