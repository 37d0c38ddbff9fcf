"""One line of the node list as it is known before any value is read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qdebug.model import QuantParams

__all__ = ["PlannedRow", "display_name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRow:
    """One line of the node list as it is known before any value is read.

    Args:
        node: Node that produces the tensor.
        op: Its operator.
        tensor: The backend's tensor, or the reference's if the backend has none.
        reference_tensor: The reference's tensor; "" if it has none.
        match: Ground of the pair and its reason; "" if there is no pair.
        shape: Extents of the tensor.
        dtype: Logical dtype of its elements.
        quant: Quantization of the tensor.
        missing: Why it is not compared; None if it is.
    """

    node: str
    op: str
    tensor: str
    reference_tensor: str
    match: str = ""
    shape: tuple[int | None, ...] | None = None
    dtype: str | None = None
    quant: QuantParams | None = None
    missing: str | None = None


def display_name(row: PlannedRow, shared: Counter[str]) -> str:
    """Name the node, and its tensor too where one node produces several."""
    tensor = row.tensor or row.reference_tensor
    if not row.node or row.node == tensor:
        return tensor
    return f"{row.node} > {tensor}" if shared[row.node] > 1 else row.node
