"""A graph too large to be kept as objects: columns, from which a node or a tensor is made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from types import MappingProxyType
from typing import Any, Protocol, overload

import numpy as np

from qdebug.model.bulk import garbage_left_alone, narrowed
from qdebug.model.graph import Graph, Known, Node
from qdebug.model.tensor import Role, TensorInfo
from qdebug.model.texts import Names, Recent

__all__ = ["GraphRows", "LargeGraph", "Runs"]


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Rows of tensors that belong to each node.

    Args:
        rows: The rows of all nodes, one node after the other; -1 where an optional tensor is left out.
        starts: Where the rows of each node begin, and where those of the last one end.
    """

    rows: np.ndarray
    starts: np.ndarray

    @property
    def owners(self) -> np.ndarray:
        """The node of each of the rows."""
        return np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))


class GraphRows(Protocol):
    """Nodes and tensors by their rows, from wherever they are kept."""

    @property
    def names(self) -> Names:
        """Names of the tensors."""

    @property
    def roles(self) -> Sequence[Role]:
        """What each tensor is to the graph."""

    @property
    def node_names(self) -> Sequence[str]:
        """Names of the nodes, no two the same."""

    @property
    def node_ops(self) -> Sequence[str]:
        """Operators of the nodes."""

    @property
    def inputs(self) -> Runs:
        """Tensors that each node reads."""

    @property
    def outputs(self) -> Runs:
        """Tensors that each node makes."""

    def node(self, row: int) -> Node:
        """Make a node."""

    def tensor(self, row: int) -> TensorInfo:
        """Make what is known of a tensor."""

    def all(self, known: Known) -> tuple[Sequence[Node], Sequence[TensorInfo]]:
        """Make all nodes and tensors, which share their names.

        Args:
            known: Names and nodes to be used for equal ones; those that are not there are added.
        """


class LargeGraph(Graph):
    """A `Graph` as columns. Its nodes are values: one that is asked for twice is equal, and perhaps another object.

    Args:
        rows: Nodes in topological order, and all tensors that they name.
        inputs: Names of the graph's inputs, in order.
        outputs: Names of the graph's outputs, in order.
        name: The model's name.
        opset: Version of each operator set, by domain.

    Attributes:
        rows: As given.

    Raises:
        ValueError: The nodes are in another order, or make no graph: then only `Graph` can tell.
    """

    __slots__ = (
        "_constant",
        "_held",
        "_kept",
        "_lock",
        "_made_by",
        "_read_by",
        "_read_starts",
        "_row",
        "_whole",
        "rows",
    )

    def __init__(
        self,
        rows: GraphRows,
        *,
        inputs: Sequence[str] = (),
        outputs: Sequence[str] = (),
        name: str = "",
        opset: Mapping[str, int] | None = None,
    ) -> None:
        self.rows, self._row = rows, rows.names.rows
        self.name = name
        self.opset = MappingProxyType(dict(opset or {}))
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._index()
        count = len(rows.node_names)
        nodes = _Nodes(Recent(rows.node, count), count)
        producers: Recent[str, Node | None] = Recent(self._producer, len(rows.names))
        self._kept = _Parts(nodes=nodes, tensors=_Tensors(rows), producer=producers.__getitem__)
        self._whole: Graph | None = None
        self._constant = bytes([role is Role.CONSTANT for role in rows.roles])
        self._held, self._lock = 0, RLock()
        self._show(self._kept)

    def _index(self) -> None:
        """Derive which node makes each tensor, and which ones read it.

        Raises:
            ValueError: The nodes are in another order, or make no graph.
        """
        count = len(self.rows.names)
        nameless = self.rows.names.rows[""]
        made, read = self.rows.outputs, self.rows.inputs
        made_by = np.full(count, -1, np.int32)
        there = (made.rows >= 0) & (made.rows != nameless)
        made_by[made.rows[there]] = made.owners[there]
        if np.count_nonzero(made_by >= 0) < np.count_nonzero(there):
            raise ValueError("a tensor is made twice")
        there = (read.rows >= 0) & (read.rows != nameless)
        tensors, readers = read.rows[there], read.owners[there]
        if (made_by[tensors] >= readers).any():
            raise ValueError("a node reads what is made later")
        order = np.argsort(tensors, kind="stable")
        self._made_by = made_by.data
        self._read_by = readers[order].data
        self._read_starts = narrowed(np.searchsorted(tensors[order], np.arange(count + 1))).data

    def _producer(self, tensor: str) -> Node | None:
        position = self._position(tensor)
        return None if position is None else self._kept.nodes[position]

    def _position(self, tensor: str) -> int | None:
        row = self._row[tensor]
        position = self._made_by[row] if row >= 0 else -1
        return None if position < 0 else position

    def _show(self, parts: _Parts) -> None:
        self.nodes, self.tensors, self.producer = parts.nodes, parts.tensors, parts.producer

    def _made_whole(self, known: Known) -> Graph:
        nodes, tensors = self.rows.all(known)
        parts: dict[str, Any] = {part: getattr(self, part) for part in ("inputs", "outputs", "name", "opset")}
        return Graph.checked(nodes, tensors, **parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._made_whole(Known()).__reduce__()

    def position(self, tensor: str) -> int | None:
        """Give the topological position of the node that produces a tensor, or None."""
        return self._position(tensor)

    def consumers(self, tensor: str) -> tuple[Node, ...]:
        """Give the nodes that read a tensor, in topological order."""
        whole = self._whole
        if whole is not None:
            return whole.consumers(tensor)
        row = self._row[tensor]
        if row < 0:
            return ()
        readers = dict.fromkeys(self._read_by[self._read_starts[row] : self._read_starts[row + 1]])
        return tuple([self._kept.nodes[reader] for reader in readers])

    def is_constant(self, tensor: str) -> bool:
        """Tell whether a tensor is a constant of the graph."""
        row = self._row[tensor]
        return row >= 0 and bool(self._constant[row])

    def makers(self, tensors: np.ndarray) -> np.ndarray:
        """Give the topological position of the node that makes each of some tensors, -1 where there is none.

        Args:
            tensors: Their rows.
        """
        found: np.ndarray = np.asarray(self._made_by)[tensors]
        return found

    @contextmanager
    def at_hand(self, known: Known | None = None) -> Iterator[None]:
        """Hold all nodes and tensors as objects inside the block, for who goes through all of them many times.

        Args:
            known: What another graph is made of, to be used for what is equal; what is not there is added.
        """
        with self._lock:
            self._held += 1
            if self._whole is None:
                with garbage_left_alone():
                    known = Known() if known is None else known
                    self.rows.names.hold(known.names)
                    self._whole = whole = self._made_whole(known)
                self._show(_Parts(nodes=whole.nodes, tensors=whole.tensors, producer=whole.producer))
        try:
            yield
        finally:
            with self._lock:
                self._held -= 1
                if not self._held:
                    self.rows.names.let_go()
                    self._show(self._kept)
                    self._whole = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Parts:
    """What a graph shows."""

    nodes: Sequence[Node]
    tensors: Mapping[str, TensorInfo]
    producer: Callable[[str], Node | None]


class _Nodes(Sequence[Node]):
    """Nodes that are made when they are looked at."""

    def __init__(self, made: Recent[int, Node], count: int) -> None:
        self._made = made
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Node: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Node, ...]: ...
    def __getitem__(self, at: int | slice) -> Node | tuple[Node, ...]:
        if isinstance(at, slice):
            return tuple([self._made[row] for row in range(*at.indices(self._count))])
        row = at + self._count if at < 0 else at
        if not 0 <= row < self._count:
            raise IndexError(f"there are {self._count} nodes, none has number {at}")
        return self._made[row]

    def __iter__(self) -> Iterator[Node]:
        return map(self._made.__getitem__, range(self._count))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Nodes | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # nobody needs it


class _Tensors(Mapping[str, TensorInfo]):
    """What is known of tensors, made when it is looked at."""

    def __init__(self, rows: GraphRows) -> None:
        self._rows = rows
        self._made: Recent[str, TensorInfo | None] = Recent(self._make, len(rows.names))

    def _make(self, name: str) -> TensorInfo | None:
        row = self._rows.names.rows[name]
        return None if row < 0 else self._rows.tensor(row)

    def __getitem__(self, name: str) -> TensorInfo:
        found = self._made[name]
        if found is None:
            raise KeyError(name)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """Give what is known of a tensor; the default if it is none."""
        found = self._made[name]
        return default if found is None else found

    def __contains__(self, name: object) -> bool:
        return name in self._rows.names

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows.names)

    def __len__(self) -> int:
        return len(self._rows.names)
