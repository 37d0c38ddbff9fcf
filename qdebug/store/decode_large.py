"""The graph of a large recording: columns made of its tables, nodes and tensors made of their rows when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from qdebug.model import AttrValue, Graph, Node, QuantParams, Role, TensorInfo
from qdebug.model.bulk import MANY, Picked, as_column, compact, narrowed
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.model.frozen import frozen_mapping, same_to_the_letter
from qdebug.model.graph import Known
from qdebug.model.large_graph import LargeGraph, Runs
from qdebug.model.texts import Names, Recent, repeats
from qdebug.store.attributes import decode_attrs
from qdebug.store.check_tables import Tables
from qdebug.store.decode import checked_quants, decode_graph, decode_quant, rows_of
from qdebug.store.layout import ROLES, UNKNOWN
from qdebug.store.texts import TextTable

__all__ = ["decode_as_columns"]


def decode_as_columns(tables: Tables, texts: TextTable, names: Names, run: Mapping[str, Any]) -> Graph:
    """Make the graph of a large recording out of checked tables.

    Args:
        tables: The tables; none of them is kept.
        texts: All texts.
        names: Names of the tensors.
        run: Facts of the run.

    Raises:
        ValueError: A quantization, shape, attribute or text makes no sense.
        GraphError: The nodes form no graph.
    """
    texts.check()
    rows = _TableRows(tables, texts, names)
    facts = run["graph"]
    try:
        if repeats(rows.node_names):
            raise ValueError("two nodes have one name")
        return LargeGraph(
            rows,
            inputs=[names[row] for row in facts["inputs"]],
            outputs=[names[row] for row in facts["outputs"]],
            name=facts["name"],
            opset=facts["opset"],
        )
    except ValueError:  # it is not as qdebug writes it
        return decode_graph(tables, texts.shared(), run)


class _TableRows:
    """Nodes and tensors of a recording by their rows. Implements `qdebug.model.large_graph.GraphRows`."""

    def __init__(self, tables: Tables, texts: TextTable, names: Names) -> None:
        tensors, nodes = tables["tensors"], tables["nodes"]
        self.names, self._texts = names, texts
        self.roles: Sequence[Role] = Picked(ROLES, tensors["role"])
        self._quants = _quants(tables)
        self._known = tuple(narrowed(tensors[name]).data for name in ("dtype", "layout", "quant", "stands_for"))
        self._shapes, self._shape = _shapes(tables)
        self.node_names = texts.some(nodes["name"])
        self.node_ops, self._domains = (_few(texts, nodes[name]) for name in ("op", "domain"))
        pools = {"inputs": "operands", "outputs": "operands", "origin": "origins"}
        runs = (_runs(nodes, name, tables[pool]) for name, pool in pools.items())
        self._inputs, self._outputs, self._origins = ((narrowed(rows).data, compact(starts)) for rows, starts in runs)
        self._attrs, self._attr = _attributes(tables)

    @property
    def inputs(self) -> Runs:
        """Tensors that each node reads."""
        return Runs(*map(as_column, self._inputs))

    @property
    def outputs(self) -> Runs:
        """Tensors that each node makes."""
        return Runs(*map(as_column, self._outputs))

    def node(self, row: int) -> Node:
        """Make a node."""
        text = self.names.text
        (read, read_starts), (made, made_starts), (origins, origin_starts) = self._inputs, self._outputs, self._origins
        return Node.sharing_attrs(
            self._attrs[self._attr[row]],
            name=self.node_names.text(row),
            op=self.node_ops[row],
            domain=self._domains[row],
            inputs=tuple([text(at) if at >= 0 else "" for at in read[read_starts[row] : read_starts[row + 1]]]),
            outputs=tuple([text(at) if at >= 0 else "" for at in made[made_starts[row] : made_starts[row + 1]]]),
            origin=tuple([self._texts[at] for at in origins[origin_starts[row] : origin_starts[row + 1]]]),
        )

    def tensor(self, row: int) -> TensorInfo:
        """Make what is known of a tensor."""
        dtype, layout, quant, stands_for = (column[row] for column in self._known)
        return TensorInfo.decoded(
            self.names.text(row),
            self._shapes[self._shape[row]],
            None if dtype == UNKNOWN else LOGICAL_DTYPES[dtype],
            self.roles[row],
            None if layout < 0 else self._texts[layout],
            None if quant < 0 else self._quants[quant],
            None if stands_for < 0 else self._texts[stands_for],
        )

    def all(self, known: Known) -> tuple[Sequence[Node], Sequence[TensorInfo]]:
        """Make all nodes and tensors, which share their names.

        Args:
            known: Names and nodes to be used for equal ones; those that are not there are added.
        """
        return list(self._all_nodes(known)), list(self._all_tensors())

    def _all_nodes(self, known: Known) -> Iterator[Node]:
        """Make all nodes, column by column: in two thirds of the time that one after the other takes."""
        names = [*self.names, ""]  # the last is that of row -1
        (read, read_starts), (made, made_starts), (origins, origin_starts) = self._inputs, self._outputs, self._origins
        sources = self._texts.at(np.asarray(origins)) if len(origins) else []
        operands = *([names[row] for row in rows] for rows in (read, made)), sources
        own = zip(self.node_names, self.node_ops, self._domains, self._attr, strict=True)
        runs = zip(*map(pairwise, (read_starts, made_starts, origin_starts)), strict=True)
        alike: dict[tuple[int, int], bool] = {}
        for (name, op, domain, number), places in zip(own, runs, strict=True):
            fed, given, source = (tuple(names[slice(*ends)]) for names, ends in zip(operands, places, strict=True))
            attrs, other = self._attrs[number], known.nodes.get(name)
            if other is not None and (op, fed, given, domain, source) == other.facts:
                pair = id(other.attrs), number
                if pair not in alike:
                    alike[pair] = same_to_the_letter(other.attrs, attrs)
                if alike[pair]:
                    yield other
                    continue
            node = Node.sharing_attrs(
                attrs,
                name=known.names.setdefault(name, name),
                op=op,
                domain=domain,
                inputs=fed,
                outputs=given,
                origin=source,
            )
            known.nodes.setdefault(name, node)
            yield node

    def _all_tensors(self) -> Iterator[TensorInfo]:
        """Make what is known of all tensors, column by column."""
        dtype, layout, quant, stands_for = self._known
        dtypes = (None if code == UNKNOWN else LOGICAL_DTYPES[code] for code in dtype)
        shapes = map(self._shapes.__getitem__, self._shape)
        layouts, quants, sources = (
            _optional(*given) for given in ((self._texts, layout), (self._quants, quant), (self._texts, stands_for))
        )
        return map(TensorInfo.decoded, self.names, shapes, dtypes, self.roles, layouts, quants, sources)


def _optional(values: Sequence[Any], rows: Iterable[int]) -> Iterator[Any]:
    return (None if row < 0 else values[row] for row in rows)


def _few(texts: Sequence[str], rows: np.ndarray) -> Picked[str]:
    """Give texts of which most are the same."""
    there = np.flatnonzero(np.bincount(rows, minlength=1))
    return Picked([texts[row] for row in there.tolist()], np.searchsorted(there, rows))


def _runs(nodes: np.ndarray, name: str, pool: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Put the runs of all nodes in a pool one after the other; give them, and where each begins and the last ends."""
    lengths = nodes[f"{name}_len"].astype(np.int64)
    starts = np.append(0, np.cumsum(lengths))
    places = np.repeat(nodes[f"{name}_off"].astype(np.int64) - starts[:-1], lengths) + np.arange(starts[-1])
    return pool[places], starts


def _shapes(tables: Tables) -> tuple[Sequence[tuple[int | None, ...] | None], memoryview]:
    """Give all different shapes, and which of them each tensor has."""
    dims = [None if extent < 0 else extent for extent in tables["dims"].tolist()]
    numbers: dict[tuple[int | None, ...] | None, int] = {}
    found = np.empty(len(tables["tensors"]), np.int64)
    known = zip(tables["tensors"]["dims"].tolist(), tables["tensors"]["ndim"].tolist(), strict=True)
    for row, (start, ndim) in enumerate(known):
        shape = None if ndim == UNKNOWN else tuple(dims[start : start + ndim])
        found[row] = numbers.setdefault(shape, len(numbers))
    return list(numbers), narrowed(found).data


def _attributes(tables: Tables) -> tuple[Sequence[Mapping[str, AttrValue]], memoryview]:
    """Give all different sets of attributes, and which of them each node has."""
    text, nodes = tables["attributes"].tobytes(), tables["nodes"]
    numbers: dict[bytes, int] = {}
    found = np.empty(len(nodes), np.int64)
    for row, (start, length) in enumerate(zip(nodes["attrs_off"].tolist(), nodes["attrs_len"].tolist(), strict=True)):
        found[row] = numbers.setdefault(text[start : start + length], len(numbers))
    return [frozen_mapping(decode_attrs(raw)) for raw in numbers], narrowed(found).data


def _quants(tables: Tables) -> Sequence[QuantParams]:
    """Give the quantizations by their rows; very many are made when they are asked for."""
    if len(tables["quants"]) <= MANY:
        return list(checked_quants(tables))
    for _ in checked_quants(tables):
        pass
    return _Quants(tables)


class _Quants(Sequence[QuantParams]):
    """Quantizations, made of their rows when they are asked for."""

    def __init__(self, tables: Tables) -> None:
        pools = ("quants", "scales32", "scales64", "integers")
        self._tables = {name: tables[name].copy() for name in pools} | {"dims": narrowed(tables["dims"])}
        self._made: Recent[int, QuantParams] = Recent(self._make, len(self))

    def _make(self, row: int) -> QuantParams:
        return decode_quant(next(rows_of(self._tables["quants"][row : row + 1])), self._tables)

    def __len__(self) -> int:
        return len(self._tables["quants"])

    def __getitem__(self, row: Any) -> Any:
        return self._made[row]
