"""The parts of an HDF5 file as bytes: headers, attributes, groups and chunk indexes.

The oldest forms are used, because every reader supports them: object headers of version 1, groups that are B-trees of
version 1 with a local heap, and chunks that are found through a B-tree of version 1. Attributes have version 3 of their
message, which HDF5 1.8 and later read and which takes half the space. Source: HDF5 File Format Specification Version
3.0 (The HDF Group); names in capitals are signatures there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from qdebug.recording.format.hdf5_types import encode_dtype, encode_text

__all__ = [
    "UNDEFINED",
    "Message",
    "array_attribute",
    "chunked_layout",
    "contiguous_layout",
    "continuation",
    "dataset_description",
    "empty_symbol_table",
    "filters_message",
    "group_bytes",
    "header",
    "key_type",
    "message",
    "node_children",
    "node_sizes_message",
    "number_attribute",
    "number_frame",
    "superblock_checksum",
    "text_attribute",
    "text_frame",
    "tree_bytes",
]

UNDEFINED = (1 << 64) - 1
"""The undefined address."""
_HEADER, _MESSAGE = struct.Struct("<BxHII4x"), struct.Struct("<HHB3x")
_ATTRIBUTE, _CONTIGUOUS = struct.Struct("<BBHHHB"), struct.Struct("<HHB3xBBQQ6x")
_HEAP = struct.Struct("<4sB3xQQQ")
_NODE_HEAD = np.dtype(
    [("signature", "S4"), ("kind", "u1"), ("level", "u1"), ("count", "<u2"), ("left", "<u8"), ("right", "<u8")]
)
_LEAF_ENTRIES = 8
"""Names per SNOD: twice the default of HDF5's leaf K."""
_LEAF = np.dtype([("signature", "S4"), ("version", "<u2"), ("count", "<u2"), ("entries", "<u8", (_LEAF_ENTRIES, 5))])
_GROUP_CHILDREN = 32
"""Children per node of a group's B-tree: twice HDF5's default."""
_DATASPACE, _DATATYPE, _FILL, _LAYOUT, _FILTERS, _ATTRIBUTE_KIND, _CONTINUATION = 1, 3, 5, 8, 11, 12, 16
_SYMBOLS, _NODE_SIZES = 17, 19
_UTF8 = 1
_FILTER_NAMES = {1: b"deflate", 2: b"shuffle", 32015: b"zstd"}
"""Names of filters by number, less than 8 bytes each."""

Message = bytes
"""A message of an object header, including the message's own header."""


def message(kind: int, body: bytes) -> Message:
    """Return a message of an object header, from its kind and its body."""
    padded_body = body + bytes(-len(body) % 8)
    return _MESSAGE.pack(kind, len(padded_body), 0) + padded_body


def header(messages: bytes, count: int) -> bytes:
    """Return an object header from its concatenated messages and their number."""
    return _HEADER.pack(1, count, 1, len(messages)) + messages


def continuation(offset: int, size: int) -> Message:
    """Return the message with the offset of further messages of the same header."""
    return message(_CONTINUATION, struct.pack("<QQ", offset, size))


def node_sizes_message(chunks: int) -> Message:
    """Return the message of a superblock with the sizes of B-tree nodes.

    Args:
        chunks: Maximum children of a chunk node, an even number. The sizes of group nodes are fixed.
    """
    return message(_NODE_SIZES, struct.pack("<BHHH", 0, chunks // 2, _GROUP_CHILDREN // 2, _LEAF_ENTRIES // 2))


def text_attribute(name: str, value: bytes) -> Message:
    """Return an attribute with a UTF-8 text."""
    value = value or b"\0"
    bytes_before, bytes_after = text_frame(name, len(value))
    return bytes_before + value + bytes_after


def number_attribute(name: str, kind: str, value: bytes) -> Message:
    """Return a scalar number attribute.

    Args:
        name: The attribute.
        kind: Type of the number in numpy's notation: "<f4".
        value: Its bytes.
    """
    bytes_before, bytes_after = number_frame(name, kind)
    return bytes_before + value + bytes_after


def array_attribute(name: str, value: np.ndarray | np.generic) -> Message:
    """Return an attribute with a number or an array of numbers."""
    array = np.asarray(value)
    dtype = array.dtype.newbyteorder("<")
    bytes_before, bytes_after = _frame(name, encode_dtype(dtype), array.shape, array.nbytes)
    return bytes_before + np.ascontiguousarray(array, dtype).tobytes() + bytes_after


@lru_cache(maxsize=4096)
def text_frame(name: str, size: int) -> tuple[bytes, bytes]:
    """Return the bytes before and after the value of a text attribute of the given size."""
    return _frame(name, encode_text(size), (), size)


@cache
def number_frame(name: str, kind: str) -> tuple[bytes, bytes]:
    """Return the bytes before and after the value of a scalar number attribute."""
    dtype = np.dtype(kind)
    return _frame(name, encode_dtype(dtype), (), dtype.itemsize)


def _frame(name: str, kind: bytes, shape: tuple[int, ...], size: int) -> tuple[bytes, bytes]:
    """Return the bytes before and after the value of an attribute of the given size."""
    title = name.encode() + b"\0"
    dataspace = struct.pack(f"<BBBB{len(shape)}Q", 2, len(shape), 0, bool(shape), *shape)
    header_bytes = _ATTRIBUTE.pack(3, 0, len(title), len(kind), len(dataspace), _UTF8) + title + kind + dataspace
    padding = -(len(header_bytes) + size) % 8
    return _MESSAGE.pack(_ATTRIBUTE_KIND, len(header_bytes) + size + padding, 0) + header_bytes, bytes(padding)


def dataset_description(kind: bytes, shape: tuple[int, ...], fill: bytes = b"", *, is_chunked: bool = False) -> bytes:
    """Return the three messages that describe the values of a dataset, including the fill value.

    Args:
        kind: Type of its elements.
        shape: Its shape.
        fill: The fill value; zero if empty.
        is_chunked: Whether it is stored in chunks, some of which may be missing.
    """
    dataspace = struct.pack(f"<BB6x{len(shape)}Q", 1, len(shape), *shape)
    return message(_DATASPACE, dataspace) + message(_DATATYPE, kind) + _fill_message(fill, is_chunked=is_chunked)


def _fill_message(fill: bytes, *, is_chunked: bool) -> Message:
    """Return the fill value message (version 2). Chunks are allocated one by one, contiguous space all at once.

    For chunks, the write time is "if set by the user". Otherwise, readers return zeros for missing chunks.
    """
    allocation_time, write_time = (3, 2) if is_chunked else (1, 1)
    return message(_FILL, struct.pack("<BBBBI", 2, allocation_time, write_time, 1, len(fill)) + fill)


def contiguous_layout(offset: int, nbytes: int) -> Message:
    """Return the layout message for contiguous values."""
    return _CONTIGUOUS.pack(_LAYOUT, _CONTIGUOUS.size - _MESSAGE.size, 0, 3, 1, offset, nbytes)


def chunked_layout(tree: int, chunk: Sequence[int], itemsize: int) -> Message:
    """Return the layout message with the offset of a dataset's chunk index."""
    rank = len(chunk) + 1
    return message(_LAYOUT, struct.pack(f"<BBBQ{rank}I", 3, 2, rank, tree, *chunk, itemsize))


def filters_message(filters: Iterable[tuple[int, tuple[int, ...]]]) -> Message:
    """Return the filters of a dataset: number and parameters of each, in the order in which they were applied.

    Each filter includes its name. Without names, HDF5 (up to at least 2.0) corrupts its memory when it copies several
    filters.
    """
    parts = []
    for number, values in filters:
        name = _FILTER_NAMES.get(number, b"unknown").ljust(8, b"\0")
        padded_values = (*values, *(0,) * (len(values) % 2))
        parts.append(
            struct.pack(f"<HHHH8s{len(padded_values)}I", number, len(name), 1, len(values), name, *padded_values)
        )
    return message(_FILTERS, struct.pack("<BB6x", 1, len(parts)) + b"".join(parts))


def group_bytes(members: Sequence[tuple[bytes, int]], offset: int) -> tuple[bytes, Message]:
    """Return the bytes of a group, and its symbol table message.

    Args:
        members: Name and header offset of each member, sorted by name.
        offset: File offset at which the group will be written, a multiple of 8.
    """
    names = [name + bytes(8 - len(name) % 8) for name, _ in members]
    lengths = np.fromiter(map(len, names), "<u8", len(names))
    values = bytes(8) + b"".join(names)
    heap_offset = offset + len(values)
    leaves = np.zeros(-(-len(names) // _LEAF_ENTRIES), _LEAF)
    entries = np.zeros((len(leaves) * _LEAF_ENTRIES, 5), "<u8")
    entries[: len(names), 0] = 8 + np.cumsum(lengths) - lengths
    entries[: len(names), 1] = np.fromiter((place for _, place in members), "<u8", len(names))
    leaves["signature"], leaves["version"], leaves["count"] = b"SNOD", 1, _LEAF_ENTRIES
    leaves["count"][-1:] -= len(entries) - len(names)
    leaves["entries"] = entries.reshape(-1, _LEAF_ENTRIES, 5)
    leaves_offset = heap_offset + _HEAP.size
    last_names = np.minimum(_LEAF_ENTRIES * np.arange(1, len(leaves) + 1), len(names)) - 1
    children = np.arange(len(leaves), dtype="<u8") * np.uint64(_LEAF.itemsize) + np.uint64(leaves_offset)
    keys = np.concatenate([np.zeros(1, "<u8"), entries[last_names, 0]]).view([("name", "<u8")])
    tree, roots = tree_bytes(0, keys, children[None], leaves_offset + leaves.nbytes, max_children=_GROUP_CHILDREN)
    data = b"".join((values, _HEAP.pack(b"HEAP", 0, len(values), 1, offset), leaves.tobytes(), tree))
    return data, message(_SYMBOLS, struct.pack("<QQ", int(roots[0]), heap_offset))


def empty_symbol_table() -> Message:
    """Return the symbol table message for a group that is not written yet."""
    return message(_SYMBOLS, struct.pack("<QQ", UNDEFINED, UNDEFINED))


def key_type(rank: int) -> np.dtype[Any]:
    """Return the dtype of chunk keys: size of a chunk, filters that it lacks, and its position in elements."""
    return np.dtype([("size", "<u4"), ("mask", "<u4"), ("at", "<u8", (rank + 1,))])


def tree_bytes(
    kind: int, keys: np.ndarray, children: np.ndarray, offset: int, *, max_children: int
) -> tuple[bytes, np.ndarray]:
    """Return the bytes of B-trees with the same number of leaves, and the offsets of their roots.

    Args:
        kind: Their type: 0 for groups, 1 for chunks.
        keys: The keys before each leaf and after the last one, [leaves + 1] or [trees, leaves + 1].
        children: Offsets of the leaves, [trees, leaves].
        offset: File offset of the trees.
        max_children: Maximum children of a node.
    """
    trees, count = children.shape
    keys = np.broadcast_to(keys, (trees, count + 1))
    levels = node_children(count, max_children)
    entry = np.dtype([("key", keys.dtype), ("child", "<u8")])
    node = np.dtype([("head", _NODE_HEAD), ("entries", entry, (max_children,)), ("end", keys.dtype)])
    nodes = np.zeros((trees, sum(map(len, levels))), node)
    starts = offset + np.arange(trees, dtype=np.uint64)[:, None] * np.uint64(nodes.shape[1] * node.itemsize)
    first_node = 0
    for level, sizes in enumerate(levels):
        offsets = starts + np.arange(first_node, first_node + len(sizes), dtype=np.uint64) * np.uint64(node.itemsize)
        level_nodes = nodes[:, first_node : first_node + len(sizes)]
        node_heads = level_nodes["head"]
        node_heads["signature"], node_heads["kind"], node_heads["level"], node_heads["count"] = (
            b"TREE",
            kind,
            level,
            sizes,
        )
        node_heads["left"], node_heads["right"] = UNDEFINED, UNDEFINED
        node_heads["left"][:, 1:], node_heads["right"][:, :-1] = offsets[:, :-1], offsets[:, 1:]
        child_numbers = np.arange(children.shape[1])
        level_nodes["entries"]["key"][:, child_numbers // max_children, child_numbers % max_children] = keys[:, :-1]
        level_nodes["entries"]["child"][:, child_numbers // max_children, child_numbers % max_children] = children
        end_numbers = np.minimum(np.arange(1, len(sizes) + 1) * max_children, children.shape[1])
        level_nodes["end"] = keys[:, end_numbers]
        # In a node that is not full, the end key directly follows the last child.
        for number in np.flatnonzero(np.asarray(sizes) < max_children).tolist():
            if sizes[number]:
                level_nodes["entries"]["key"][:, number, sizes[number]] = keys[:, end_numbers[number]]
        keys = keys[:, [*range(0, children.shape[1], max_children), children.shape[1]]]
        children, first_node = offsets, first_node + len(sizes)
    return nodes.tobytes(), children[:, 0]


def node_children(count: int, max_children: int) -> list[list[int]]:
    """Return the number of children of each node of each level of a B-tree, from the leaves up."""
    levels = []
    while True:
        nodes = max(1, -(-count // max_children))
        levels.append([max_children] * (nodes - 1) + [count - max_children * (nodes - 1)])
        if nodes == 1:
            return levels
        count = nodes


def superblock_checksum(data: bytes) -> int:
    """Return the checksum of a superblock: Bob Jenkins' lookup3 (2006) over 44 bytes, read as little-endian words."""
    words: tuple[int, ...] = struct.unpack("<11I", data)
    x = y = z = (0xDEADBEEF + len(data)) & 0xFFFFFFFF

    def rotate(word: int, bits: int) -> int:
        return (word << bits | word >> (32 - bits)) & 0xFFFFFFFF

    for start in (0, 3, 6):
        x, y, z = (state + word & 0xFFFFFFFF for state, word in zip((x, y, z), words[start : start + 3], strict=True))
        for bits in (4, 6, 8, 16, 19, 4):
            x, z = (x - z & 0xFFFFFFFF) ^ rotate(z, bits), z + y & 0xFFFFFFFF
            x, y, z = y, z, x
    x, y = x + words[9] & 0xFFFFFFFF, y + words[10] & 0xFFFFFFFF
    for bits in (14, 11, 25, 16, 4, 14, 24):
        z = (z ^ y) - rotate(y, bits) & 0xFFFFFFFF
        x, y, z = y, z, x
    return y
