"""What the attributes of a recording's datasets say of their tensors: made from the tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from qdebug.model.dtypes import LOGICAL_DTYPES, code_limits
from qdebug.recording.format.hdf5_types import encode_dtype
from qdebug.recording.format.link_names import link_of_bytes
from qdebug.recording.format.specification import MAX_ATTRIBUTE, QUANT, ROLES, TABLES, Has
from qdebug.recording.writing.hdf5_objects import (
    Message,
    array_attribute,
    number_attribute,
    number_frame,
    text_attribute,
)

__all__ = ["Attributes", "LargeArray"]

_ROW = number_frame("row", "<u4")
_COLUMNS = ("name", "stands_for", "layout", "quant", "role")
"""Columns of /graph/tensors that attributes tell."""
_MOST_PLACES = 1 << 20
"""Most samples and steps for which the scales of single ones are listed."""


class LargeArray(NamedTuple):
    """An array that is too large for an attribute.

    Args:
        link: Name of its dataset.
        pool: The table that holds its elements; "" if none does.
        start: Its first element there.
        array: The array.
    """

    link: bytes
    pool: str
    start: int
    array: np.ndarray


class Attributes:
    """Attributes of the tensors of one recording.

    Args:
        tables: Its tables.

    Attributes:
        large: Arrays that attributes name, since they do not fit into them.
    """

    def __init__(self, tables: Mapping[str, np.ndarray]) -> None:
        self._tables = tables
        # Lists of numbers, not of rows: thousands of tuples would be visited by the garbage collector again and again.
        self._columns = {name: tables["tensors"][name].tolist() for name in _COLUMNS}
        self._texts = tables["names"].tobytes()
        strings = tables["strings"]
        self._starts = strings["offset"].tolist()
        self._stops = (strings["offset"] + strings["length"]).tolist()
        self._shared: dict[Any, tuple[bytes, int]] = {}
        self._quants: dict[int, tuple[bytes, int]] = {}
        self._node_names, self._node_ops = (tables["nodes"][name].tolist() for name in ("name", "op"))
        self._quant_rows = tables["quants"].tolist()
        self._dims = tables["dims"].tolist()
        self._pools = {name: tables[name].tobytes() for name in _POOLS}
        self.large: list[LargeArray] = []

    def _text(self, row: int) -> bytes:
        return self._texts[self._starts[row] : self._stops[row]]

    def link(self, row: int) -> bytes:
        """Return the link that stands for a tensor."""
        return link_of_bytes(self._text(self._columns["name"][row]))

    def name(self, row: int) -> tuple[bytes, int]:
        """Return the attributes that tell which tensor it is, and how many they are."""
        name, count = self._of_text("name", self._columns["name"][row])
        return name + _ROW[0] + row.to_bytes(4, "little") + _ROW[1], count + 1

    @cached_property
    def _makers(self) -> list[int]:
        """The row of the node that makes each tensor, -1 for none."""
        nodes, makers = self._tables["nodes"], np.full(len(self._tables["tensors"]), -1)
        counts = nodes["outputs_len"].astype(np.int64)
        numbers = np.repeat(np.arange(len(nodes)), counts)
        inside = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
        operands = self._tables["operands"][nodes["outputs_off"].astype(np.int64)[numbers] + inside]
        makers[operands[operands >= 0]] = numbers[operands >= 0]
        found: list[int] = makers.tolist()
        return found

    def of_tensor(self, row: int, dtype: str, kept: str) -> tuple[bytes, int]:
        """Return the attributes of a tensor, one after the other, and how many they are.

        Args:
            row: Row of /graph/tensors.
            dtype: Logical dtype of its elements.
            kept: What was kept of them.
        """
        name, stands_for, layout, quant, role = [self._columns[column][row] for column in _COLUMNS]
        own, count = b"%b%b%b" % (_ROW[0], row.to_bytes(4, "little"), _ROW[1]), 1
        text = self._text(name)
        if len(text) <= MAX_ATTRIBUTE:
            own, count = own + text_attribute("name", text), 2
        maker, op = self._makers[row], -1
        if maker >= 0:
            text, op = self._text(self._node_names[maker]), self._node_ops[maker]
            if len(text) <= MAX_ATTRIBUTE:
                own, count = own + text_attribute("node", text), count + 1
        key = role, dtype, kept, op, layout, stands_for
        if (known := self._shared.get(key)) is None:
            titles = {"role": ROLES[role], "dtype": dtype, "kept": kept}
            texts = [(text_attribute(title, text.encode()), 1) for title, text in titles.items()]
            rows = {"op": op, "layout": layout, "stands_for": stands_for}
            texts += [self._of_text(title, text) for title, text in rows.items()]
            known = self._shared[key] = b"".join([text for text, _ in texts]), sum(number for _, number in texts)
        own, count = own + known[0], count + known[1]
        if quant < 0:
            return own, count
        more, number = self._of_quant(quant)
        return own + more, count + number

    def _of_text(self, title: str, row: int) -> tuple[bytes, int]:
        """Return the attribute of a text, and 1; nothing and 0 if there is none, or it is too long."""
        if row < 0:
            return b"", 0
        text = self._text(row)
        return (text_attribute(title, text), 1) if len(text) <= MAX_ATTRIBUTE else (b"", 0)

    # -- quantizations

    def _of_quant(self, row: int) -> tuple[bytes, int]:
        """Return the attributes of a quantization, and how many they are."""
        if (known := self._quants.get(row)) is not None:
            return known
        found = dict(zip(TABLES["quants"].names or (), self._quant_rows[row], strict=True))
        key = tuple(found[name] for name in ("dtype", "has", "axis", "block_size", "qmin", "qmax"))
        if (common := self._shared.get(key)) is None:
            common = self._shared[key] = _joined(_of_codes(found))
        messages = [common[0]]
        names = [name for name, bit in _ARRAYS.items() if not bit or found["has"] & bit]
        messages += [self._array(name, row, found) for name in names]
        done = self._quants[row] = b"".join(messages), common[1] + len(messages) - 1
        return done

    def _place(self, found: Mapping[str, int], name: str) -> tuple[str, int, tuple[int, ...]]:
        """Return where an array of a quantization is: its table, its first element there, and its shape."""
        shape_of = "scale" if name == "zero_point" else name
        dims, ndim = found[f"{shape_of}_dims"], found[f"{shape_of}_ndim"]
        scales = "scales64" if found["has"] & _SCALE64 else "scales32"
        return scales if name == "scale" else "integers", found[f"{name}_off"], tuple(self._dims[dims : dims + ndim])

    def _array(self, name: str, row: int, found: Mapping[str, int]) -> Message:
        """Return the attribute of an array, or that which names its dataset; one number stands for equal ones."""
        pool, start, shape = self._place(found, name)
        kind, size = _POOLS[pool]
        count = math.prod(shape)
        data = self._pools[pool][start * size : (start + count) * size]
        if count == 1 or (name == "zero_point" and data == count * data[:size]):
            return number_attribute(name, kind, data[:size])
        array = np.frombuffer(data, kind).reshape(shape)
        if array.nbytes <= MAX_ATTRIBUTE and count:
            return array_attribute(name, array)
        link = b"%d.%s" % (row, name.encode())
        self.large.append(LargeArray(link, pool, start, array))
        return text_attribute(f"{name}_at", f"/{QUANT}/".encode() + link)

    @staticmethod
    def kind(array: np.ndarray) -> bytes:
        """Return the type of an array of numbers."""
        return encode_dtype(array.dtype.newbyteorder("<"))

    def by_place(self, row: int, events: np.ndarray, lead: Sequence[int]) -> list[Message]:
        """Return the attributes of a tensor whose quantization differs between samples or steps.

        Args:
            row: Row of /graph/tensors.
            events: Its rows of /graph/index.
            lead: Number of samples, and of steps if there are several.
        """
        messages = [array_attribute("quant_varies", np.uint8(1))]
        rows = np.where(events["quant"] >= 0, events["quant"], self._columns["quant"][row])
        names = TABLES["quants"].names or ()
        quants = {number: dict(zip(names, self._quant_rows[number], strict=True)) for number in set(rows.tolist())}
        single = all(math.prod(self._place(found, "scale")[2]) == 1 for found in quants.values())
        if not single or (rows < 0).any() or math.prod(lead) > _MOST_PLACES:
            return messages
        at = (events["sample"], events["step"])[: len(lead)]
        for name, dtype, none in (("scale", np.float64, np.nan), ("zero_point", np.int64, 0)):
            values = {}
            for number, found in quants.items():
                pool, start, _ = self._place(found, name)
                values[number] = self._tables[pool][start]
            array = np.full(lead, none, dtype)
            array[at] = [values[number] for number in rows.tolist()]
            title = f"{name}_by_sample"
            if array.nbytes <= MAX_ATTRIBUTE:
                messages.append(array_attribute(title, array))
                continue
            link = b"tensor %d.%s" % (row, title.encode())
            self.large.append(LargeArray(link, "", 0, array))
            messages.append(text_attribute(f"{title}_at", f"/{QUANT}/".encode() + link))
        return messages


_ARRAYS = {"scale": 0, "zero_point": 0, "multiplier": int(Has.MULTIPLIER), "shift": int(Has.SHIFT)}
"""Arrays of a quantization, and the bit of those that it may lack."""
_SCALE64 = int(Has.SCALE64)
_POOLS = {"scales32": ("<f4", 4), "scales64": ("<f8", 8), "integers": ("<i8", 8)}
"""Type and bytes of the elements of each table that holds arrays."""


def _joined(messages: Sequence[Message]) -> tuple[bytes, int]:
    return b"".join(messages), len(messages)


def _of_codes(found: Mapping[str, int]) -> list[Message]:
    """Return the attributes of a quantization that say what codes there are."""
    has, dtype = Has(found["has"]), LOGICAL_DTYPES[found["dtype"]]
    messages = [array_attribute("axis", np.int32(found["axis"]))] if has & Has.AXIS else []
    messages += [array_attribute("block_size", np.int64(found["block_size"]))] if has & Has.BLOCK_SIZE else []
    limits = code_limits(dtype)
    for name, bit, limit in (("qmin", Has.QMIN, limits[0]), ("qmax", Has.QMAX, limits[1])):
        value = found[name] if has & bit else limit
        if value is not None:
            code = np.uint64(value % 2**64) if dtype == "uint64" else np.int64(value)
            messages.append(array_attribute(name, code))
    return [*messages, text_attribute("quant_dtype", dtype.encode())]
