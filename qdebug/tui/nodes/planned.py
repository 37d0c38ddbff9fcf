"""One line of the node list as it is known before any value is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from qdebug.model.bulk import MANY
from qdebug.model.texts import Recent, Texts

if TYPE_CHECKING:
    from qdebug.model import QuantParams
    from qdebug.tui.reading.source import Entry

__all__ = ["MadeRows", "PlannedRow", "PlannedRows", "column", "display_names", "fields", "tensor_at"]


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
        constant: Whether it is computed of constants alone, and so at no place of the run.
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
    constant: bool = False

    @property
    def ordered(self) -> bool:
        """Whether it has a place in the backend's order."""
        return bool(self.tensor) and not self.constant


class MadeRows(Sequence[PlannedRow]):
    """Lines that are made when they are looked at: there may be 100,000 of them, and 40 on the screen.

    Args:
        lines: What each is made of.
        make: Makes one.
    """

    def __init__(self, lines: Sequence[Any], make: Callable[[Any], PlannedRow]) -> None:
        self._lines = lines
        self._make = make
        self._made: Recent[int, PlannedRow] = Recent(lambda at: make(lines[at]))

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, at: int) -> PlannedRow: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[PlannedRow]: ...
    def __getitem__(self, at: int | slice) -> PlannedRow | Sequence[PlannedRow]:
        if isinstance(at, slice):
            return MadeRows(self._lines[at], self._make)
        return self._made[at + len(self) if at < 0 else at]


class PlannedRows(MadeRows):
    """Lines of what a session compares and of what it does not.

    Args:
        entries: Pairs of the session.
        left_out: Lines of what has no partner.
        dtype: Gives the dtype of a backend tensor.
        order: Where each line is among the pairs and, behind them, what is left out; None if they stand so.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        left_out: Sequence[PlannedRow],
        dtype: Callable[[str], str | None],
        *,
        order: np.ndarray | None = None,
    ) -> None:
        self._parts = entries, left_out
        self._order = order
        lines: Sequence[int] = range(len(entries) + len(left_out)) if order is None else order.data
        super().__init__(lines, self._row)
        self._dtype = dtype

    def _line(self, number: int) -> Entry | PlannedRow:
        entries, left_out = self._parts
        return entries[number] if number < len(entries) else left_out[number - len(entries)]

    def _row(self, number: int) -> PlannedRow:
        line = self._line(number)
        if isinstance(line, PlannedRow):
            return line
        return PlannedRow(
            node=line.node,
            op=line.op,
            tensor=line.tensor,
            reference_tensor=line.reference_tensor,
            match=line.match.value,
            shape=line.shape,
            dtype=self._dtype(line.tensor),
            quant=line.quant,
        )

    def tensor(self, at: int, name: str = "tensor") -> str:
        """Give a tensor of one line; much faster than making the line.

        Args:
            at: The line.
            name: Which of its tensors: "tensor" or "reference_tensor".
        """
        return str(getattr(self._line(self._lines[at]), name))

    def column(self, name: str) -> list[Any]:
        """Give one field of every line; much faster than line by line."""
        entries, left_out = self._parts
        found: list[Any]
        if name == "missing":
            found = [None] * len(entries)
        elif name in {"ordered", "constant"}:
            found = [name == "ordered"] * len(entries)
        elif name == "dtype":
            found = list(map(self._dtype, fields(entries, "tensor")))
        elif name == "match":
            found = [match.value for match in fields(entries, "match")]
        else:
            found = list(fields(entries, name))
        found += [getattr(line, name) for line in left_out]
        return found if self._order is None else [found[number] for number in self._order.tolist()]


def fields(entries: Sequence[Entry], name: str) -> Iterable[Any]:
    """Give one field of every pair; a session with very many keeps columns of them."""
    column = getattr(entries, "field", None)
    found: Iterable[Any] = (getattr(entry, name) for entry in entries) if column is None else column(name)
    return found


def column(rows: Sequence[PlannedRow], name: str) -> list[Any]:
    """Give one field of every line."""
    return rows.column(name) if isinstance(rows, PlannedRows) else [getattr(row, name) for row in rows]


def tensor_at(rows: Sequence[PlannedRow], name: str = "tensor") -> Callable[[int], str]:
    """Give a function that gives a tensor of one line.

    Args:
        rows: The lines.
        name: Which tensor: "tensor" or "reference_tensor".
    """
    if isinstance(rows, PlannedRows):
        return partial(rows.tensor, name=name)
    return lambda at: str(getattr(rows[at], name))


def display_names(rows: Sequence[PlannedRow]) -> Sequence[str]:
    """Name the node of each line, and its tensor too where one node produces several."""
    nodes, tensors, theirs = (column(rows, name) for name in ("node", "tensor", "reference_tensor"))
    several = _shared([node for node, tensor in zip(nodes, tensors, strict=True) if tensor])
    of_lines = zip(nodes, tensors, theirs, strict=True)
    names = (_display_name(node, tensor or their, several) for node, tensor, their in of_lines)
    return Texts.of(names) if len(nodes) > MANY else list(names)


def _shared(nodes: Sequence[str]) -> set[str]:
    """Give the names that are there more than once; counting all would take 10 MB for 100,000 of them."""
    hashes, counts = np.unique(np.fromiter(map(hash, nodes), np.int64, len(nodes)), return_counts=True)
    repeated = set(hashes[counts > 1].tolist())
    shared = Counter(node for node in nodes if hash(node) in repeated) if repeated else Counter()
    return {node for node, count in shared.items() if count > 1}


def _display_name(node: str, tensor: str, several: set[str]) -> str:
    if not node or node == tensor:
        return tensor
    return f"{node} > {tensor}" if node in several else node
