"""The attributes of a recording's datasets, built from the tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from qdebug.model.dtypes import LOGICAL_DTYPES, code_limits
from qdebug.recording.format.hdf5_types import encode_dtype
from qdebug.recording.format.link_names import link_of_bytes
from qdebug.recording.format.specification import MAX_ATTRIBUTE, QUANT, ROLES, TABLES, QuantField
from qdebug.recording.writing.hdf5_objects import (
    Message,
    array_attribute,
    number_attribute,
    number_frame,
    text_attribute,
    text_frame,
)

__all__ = ["Attributes", "LargeArray"]

_ROW = number_frame("row", "<u4")
_MAX_PLACES = 1 << 20
"""Maximum number of samples and steps for which scales are listed individually."""


class LargeArray(NamedTuple):
    """An array too large for an attribute.

    Args:
        link: Name of its dataset.
        pool: The table that holds its elements; "" without one.
        start: Its first element in the table.
        array: The array.
    """

    link: bytes
    pool: str
    start: int
    array: np.ndarray


class Attributes:
    """Builds the attributes of the tensors of one recording.

    Args:
        tables: Its tables.

    Attributes:
        large_arrays: Arrays too large for an attribute. An attribute with the path of their dataset replaces them.
    """

    def __init__(self, tables: Mapping[str, np.ndarray]) -> None:
        self._tables = tables
        texts, strings = tables["names"].tobytes(), tables["strings"]
        text_ends = strings["offset"] + strings["length"]
        self._texts = [
            texts[start:end] for start, end in zip(strings["offset"].tolist(), text_ends.tolist(), strict=True)
        ]
        self._values = [(text or b"\0") if len(text) <= MAX_ATTRIBUTE else b"" for text in self._texts] + [b""]
        """The texts as attribute values, empty if too long. The last entry is empty, because row -1 means no text."""
        tensors, producer_rows = tables["tensors"], _producer_rows(tables)
        producer_columns = [
            np.append(tables["nodes"][name].astype(np.int64), -1)[producer_rows] for name in ("name", "op")
        ]
        columns = [tensors[name] for name in ("name", "stands_for", "layout", "quant", "role")]
        # Columns of numbers rather than rows, since the garbage collector would visit thousands of tuples repeatedly.
        self._names, *self._other_columns = [column.tolist() for column in (*columns, *producer_columns)]
        self._frames: dict[tuple[Any, ...], tuple[bytes, bytes, bytes, bytes, int]] = {}
        self._codes: dict[tuple[int, ...], list[Message]] = {}
        self._quants: dict[int, tuple[bytes, int]] = {}
        self._quant_rows = tables["quants"].tolist()
        self._dims = tables["dims"].tolist()
        self._pools = {name: tables[name].tobytes() for name in _POOLS}
        self.large_arrays: list[LargeArray] = []

    def link_name(self, row: int) -> bytes:
        """Return the link name of a tensor."""
        return link_of_bytes(self._texts[self._names[row]])

    def identifying_attributes(self, row: int) -> tuple[bytes, int]:
        """Return the attributes that identify a tensor, and their count."""
        text = self._values[self._names[row]]
        return _join_messages([_row_attribute(row), *([text_attribute("name", text)] if text else [])])

    def tensor_attributes(self, row: int, dtype: str, kept_text: str) -> tuple[bytes, int]:
        """Return the attributes of a tensor, concatenated, and their count.

        Args:
            row: Row of /graph/tensors.
            dtype: Logical dtype of its elements.
            kept_text: How much of it was recorded.
        """
        values = self._values
        stands_for, layout, quant, role, node, op = [column[row] for column in self._other_columns]
        texts = values[self._names[row]], values[node], values[stands_for]
        key = len(texts[0]), len(texts[1]), len(texts[2]), role, dtype, kept_text, op, layout
        if (frame := self._frames.get(key)) is None:
            frame = self._frames[key] = self._make_frame(key)
        part_0, part_1, part_2, part_3, count = frame
        own_attributes = b"".join((_row_attribute(row), part_0, texts[0], part_1, texts[1], part_2, texts[2], part_3))
        if quant < 0:
            return own_attributes, count
        quant_attributes, number = self._quant_attributes(quant)
        return own_attributes + quant_attributes, count + number

    def _make_frame(self, key: tuple[Any, ...]) -> tuple[bytes, bytes, bytes, bytes, int]:
        """Return the bytes before, between and after the texts of a tensor, and its number of attributes.

        Tensors that differ only in texts of equal length share these bytes.

        Args:
            key: Bytes of its name, of its node's name and of `stands_for`, 0 for none; number of its role; its dtype;
                how much was recorded; rows of its operator's name and of its layout, -1 for none.
        """
        name, node, stands_for, role, dtype, kept_text, op, layout = key
        sizes = {"name": name, "node": node, "stands_for": stands_for}
        bytes_before, bytes_after = zip(
            *(text_frame(*item) if item[1] else (b"", b"") for item in sizes.items()), strict=True
        )
        texts = {"role": ROLES[role].encode(), "dtype": dtype.encode(), "kept": kept_text.encode()}
        texts |= {"op": self._values[op], "layout": self._values[layout]}
        fixed_attributes = [text_attribute(title, text) for title, text in texts.items() if text]
        count = 1 + sum(map(bool, sizes.values())) + len(fixed_attributes)
        return (
            bytes_before[0],
            bytes_after[0] + bytes_before[1],
            bytes_after[1] + bytes_before[2],
            bytes_after[2] + b"".join(fixed_attributes),
            count,
        )

    # -- quantizations

    def _quant_attributes(self, row: int) -> tuple[bytes, int]:
        """Return the attributes of a quantization, and their count."""
        if (cached := self._quants.get(row)) is not None:
            return cached
        fields = dict(zip(TABLES["quants"].names or (), self._quant_rows[row], strict=True))
        key = tuple(fields[name] for name in ("dtype", "has", "axis", "block_size", "qmin", "qmax"))
        if (codes := self._codes.get(key)) is None:
            codes = self._codes[key] = _code_attributes(fields)
        names = [name for name, bit in _ARRAYS.items() if not bit or fields["has"] & bit]
        attributes = self._quants[row] = _join_messages(
            [*codes, *(self._array_attribute(name, row, fields) for name in names)]
        )
        return attributes

    def _locate_array(self, fields: Mapping[str, int], name: str) -> tuple[str, int, tuple[int, ...]]:
        """Return the location of an array of a quantization: its table, its first element there, and its shape."""
        shape_of = "scale" if name == "zero_point" else name
        dims, ndim = fields[f"{shape_of}_dims"], fields[f"{shape_of}_ndim"]
        scales = "scales64" if fields["has"] & _SCALE64 else "scales32"
        return scales if name == "scale" else "integers", fields[f"{name}_off"], tuple(self._dims[dims : dims + ndim])

    def _array_attribute(self, name: str, row: int, fields: Mapping[str, int]) -> Message:
        """Return the attribute of an array, or of the path of its dataset if the array is too large.

        Zero points that are all equal are stored as a single number.
        """
        pool, start, shape = self._locate_array(fields, name)
        kind, size = _POOLS[pool]
        count = math.prod(shape)
        data = self._pools[pool][start * size : (start + count) * size]
        if count == 1 or (name == "zero_point" and data == count * data[:size]):
            return number_attribute(name, kind, data[:size])
        array = np.frombuffer(data, kind).reshape(shape)
        if array.nbytes <= MAX_ATTRIBUTE and count:
            return array_attribute(name, array)
        link = b"%d.%s" % (row, name.encode())
        self.large_arrays.append(LargeArray(link, pool, start, array))
        return text_attribute(f"{name}_at", f"/{QUANT}/".encode() + link)

    @staticmethod
    def number_type(array: np.ndarray) -> bytes:
        """Return the encoded type of an array of numbers."""
        return encode_dtype(array.dtype.newbyteorder("<"))

    def quant_attributes_by_place(self, row: int, events: np.ndarray, leading_shape: Sequence[int]) -> list[Message]:
        """Return the attributes of a tensor whose quantization differs between samples or steps.

        Args:
            row: Row of /graph/tensors.
            events: Its rows of /graph/index.
            leading_shape: Number of samples, and of steps if there are several.
        """
        messages = [array_attribute("quant_varies", np.uint8(1))]
        rows = np.where(events["quant"] >= 0, events["quant"], self._tables["tensors"]["quant"][row])
        names = TABLES["quants"].names or ()
        quants = {number: dict(zip(names, self._quant_rows[number], strict=True)) for number in set(rows.tolist())}
        has_one_scale = all(math.prod(self._locate_array(fields, "scale")[2]) == 1 for fields in quants.values())
        if not has_one_scale or (rows < 0).any() or math.prod(leading_shape) > _MAX_PLACES:
            return messages
        positions = (events["sample"], events["step"])[: len(leading_shape)]
        for name, dtype, missing_value in (("scale", np.float64, np.nan), ("zero_point", np.int64, 0)):
            values = {}
            for number, fields in quants.items():
                pool, start, _ = self._locate_array(fields, name)
                values[number] = self._tables[pool][start]
            array = np.full(leading_shape, missing_value, dtype)
            array[positions] = [values[number] for number in rows.tolist()]
            title = f"{name}_by_sample"
            if array.nbytes <= MAX_ATTRIBUTE:
                messages.append(array_attribute(title, array))
                continue
            link = b"tensor %d.%s" % (row, title.encode())
            self.large_arrays.append(LargeArray(link, "", 0, array))
            messages.append(text_attribute(f"{title}_at", f"/{QUANT}/".encode() + link))
        return messages


_ARRAYS = {"scale": 0, "zero_point": 0, "multiplier": int(QuantField.MULTIPLIER), "shift": int(QuantField.SHIFT)}
"""Arrays of a quantization, with the bit that an optional array sets in `has`; 0 for arrays that always exist."""
_SCALE64 = int(QuantField.SCALE64)
_POOLS = {"scales32": ("<f4", 4), "scales64": ("<f8", 8), "integers": ("<i8", 8)}
"""Type and bytes of the elements of each table that holds arrays."""


def _producer_rows(tables: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the row of the node that produces each tensor, -1 for none."""
    nodes, rows = tables["nodes"], np.full(len(tables["tensors"]), -1)
    counts = nodes["outputs_len"].astype(np.int64)
    numbers = np.repeat(np.arange(len(nodes)), counts)
    position_in_node = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
    operands = tables["operands"][nodes["outputs_off"].astype(np.int64)[numbers] + position_in_node]
    rows[operands[operands >= 0]] = numbers[operands >= 0]
    return rows


def _row_attribute(row: int) -> Message:
    return _ROW[0] + row.to_bytes(4, "little") + _ROW[1]


def _join_messages(messages: Sequence[Message]) -> tuple[bytes, int]:
    return b"".join(messages), len(messages)


def _code_attributes(fields: Mapping[str, int]) -> list[Message]:
    """Return the attributes of a quantization other than arrays: axis, block size, and range and dtype of its codes."""
    field_bits, dtype = QuantField(fields["has"]), LOGICAL_DTYPES[fields["dtype"]]
    messages = [array_attribute("axis", np.int32(fields["axis"]))] if field_bits & QuantField.AXIS else []
    messages += (
        [array_attribute("block_size", np.int64(fields["block_size"]))] if field_bits & QuantField.BLOCK_SIZE else []
    )
    limits = code_limits(dtype)
    for name, bit, limit in (("qmin", QuantField.QMIN, limits[0]), ("qmax", QuantField.QMAX, limits[1])):
        value = fields[name] if field_bits & bit else limit
        if value is not None:
            code = np.uint64(value % 2**64) if dtype == "uint64" else np.int64(value)
            messages.append(array_attribute(name, code))
    return [*messages, text_attribute("quant_dtype", dtype.encode())]
