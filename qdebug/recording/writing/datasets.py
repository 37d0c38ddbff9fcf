"""The datasets of a recording for other programs: one per tensor, with attributes that explain it.

Datasets only refer to payloads, which stay where they were appended. Their shapes and attributes come from the tables,
so that finished, recovered and packed recordings get equal datasets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from qdebug.model import Role
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.recording.format.hdf5_types import encode_logical
from qdebug.recording.format.payload import chunks_of
from qdebug.recording.format.specification import (
    CONSTANTS,
    ELEMENTS,
    MAX_ATTRIBUTE,
    MAX_NDIM,
    MAX_PIECE,
    NO_PAYLOAD,
    NOWHERE,
    QUANT,
    ROLES,
    TENSORS,
    Flag,
    physical_dtype,
    place_key,
)
from qdebug.recording.writing.attributes import Attributes
from qdebug.recording.writing.hdf5_objects import (
    UNDEFINED,
    Message,
    array_attribute,
    chunked_layout,
    contiguous_layout,
    dataset_description,
    filters_message,
    group_bytes,
    header,
    key_type,
    node_children,
    tree_bytes,
)

__all__ = ["Chunks", "Datasets", "PlacedPayload"]

_TENSORS, _CONSTANTS = (TENSORS.encode(),), (CONSTANTS.encode(),)
_MAX_ELEMENTS = 1 << 60
"""Maximum elements of a dataset: HDF5 counts their bytes in 64 bits."""
_NAN = {
    "bfloat16": b"\xc0\x7f",
    **{name: np.dtype(name).type(np.nan).tobytes() for name in ("float16", "float32", "float64")},
}
_NAN |= {f"complex{2 * bits}": 2 * _NAN[f"float{bits}"] for bits in (32, 64)}
"""Fill values by dtype; 0 for others."""


class Chunks(NamedTuple):
    """The compressed chunks of a payload.

    Args:
        shape: Shape of a chunk.
        filters: Number and parameters of each filter, in the order in which they were applied.
        stored: File offset, size and missing filters (one bit each) of each chunk, in C order.
    """

    shape: tuple[int, ...]
    filters: tuple[tuple[int, tuple[int, ...]], ...]
    stored: Sequence[tuple[int, int, int]]


class PlacedPayload(NamedTuple):
    """A payload in the file.

    Args:
        number: Its number.
        dtype: Its logical dtype.
        shape: Its shape.
        offset: Offset of its bytes; None if it has no bytes or is chunked.
        chunks: How it is stored in chunks, if it is.
    """

    number: int
    dtype: str
    shape: tuple[int, ...]
    offset: int | None
    chunks: Chunks | None = None


GroupPath = tuple[bytes, ...]
"""Names of the groups that lead to an object, starting at the root."""


class _Dataset(NamedTuple):
    """A dataset to be written.

    Args:
        group: Its group.
        link: Its name in the group.
        messages: Messages of its header, except those about its chunks.
        message_count: Their number.
        pieces: Its chunks; None for a contiguous dataset.
    """

    group: GroupPath
    link: bytes
    messages: bytes
    message_count: int
    pieces: _DatasetChunks | None = None


class _DatasetChunks(NamedTuple):
    """Chunks of a dataset.

    Args:
        chunk: Their shape.
        itemsize: Bytes of an element.
        starts: Coordinates of the first element of each chunk, [chunks, dimensions].
        stored: File offset of each chunk.
        sizes: Size of each chunk in bytes.
        masks: Filters that each chunk lacks.
        filters: The filters.
    """

    chunk: tuple[int, ...]
    itemsize: int
    starts: np.ndarray
    stored: np.ndarray
    sizes: np.ndarray | int
    masks: np.ndarray | int = 0
    filters: tuple[tuple[int, tuple[int, ...]], ...] = ()


class _RegularForm(NamedTuple):
    """Common parts of the datasets of complete tensors with the same dtype and shape.

    Args:
        constant: Whether the tensors are constants.
        dtype: Their logical dtype.
        description: Messages that describe their values.
        nbytes: Bytes of a payload.
        pieces: Their chunks without offsets; None for contiguous datasets.
    """

    constant: bool
    dtype: str
    description: bytes
    nbytes: int
    pieces: _DatasetChunks | None = None


class Datasets:
    """The datasets of one recording, under construction.

    Args:
        add: Appends bytes at a multiple of 8, and returns their offset.
        payloads: All payloads.
        tables: All tables.
        pool_offsets: File offset of the values of each table.

    Attributes:
        chunks_in_node: Maximum number of children of a node of the chunk indexes.
        spare_bytes: Bytes that readers may read beyond the last payload, because the last piece of a large payload is
            padded.
    """

    def __init__(
        self,
        add: Callable[[bytes], int],
        payloads: Iterable[PlacedPayload],
        tables: Mapping[str, np.ndarray],
        pool_offsets: Mapping[str, int],
    ) -> None:
        self._add = add
        self._payloads = {payload.number: payload for payload in payloads}
        self._index, self._tables = tables["index"], tables
        self._attributes = Attributes(tables)
        self._pool_offsets = pool_offsets
        self._datasets: list[_Dataset] = []
        self._groups: dict[GroupPath, tuple[bytes, int]] = {}
        """Attributes of groups that stand for a tensor, and their count."""
        self._descriptions: dict[Any, bytes] = {}
        self._regular_forms: dict[tuple[int, bool], _RegularForm | None] = {}
        self._is_constant = tables["tensors"]["role"] == ROLES.index(Role.CONSTANT)
        samples = self._index[~self._is_constant[self._index["tensor"]]]
        self._axes = tuple(int(samples[name].max(initial=0)) + 1 for name in ("sample", "step"))
        self._leading_shape = self._axes if self._axes[1] > 1 else self._axes[:1]
        self._place_count = min(math.prod(self._leading_shape), _MAX_ELEMENTS)
        self.spare_bytes = self.chunks_in_node = 0

    def write(self) -> dict[str, int]:
        """Write all datasets and their groups. Return the header offset of each group in the root."""
        self._list_tensors()
        self._list_elements()
        self._list_quantizations()
        self.chunks_in_node = self._choose_node_size()
        members: dict[GroupPath, list[tuple[bytes, int]]] = {_TENSORS: [], _CONSTANTS: []}
        for dataset, header_offset in zip(self._datasets, self._write_headers(), strict=True):
            members.setdefault(dataset.group, []).append((dataset.link, header_offset))
        for path in [path for path in members if len(path) > 1]:
            header_offset = self._write_group(members.pop(path), self._groups[path])
            members.setdefault(path[:-1], []).append((path[-1], header_offset))
        return {path[0].decode(): self._write_group(group_members, (b"", 0)) for path, group_members in members.items()}

    def _write_group(self, members: Sequence[tuple[bytes, int]], attributes: tuple[bytes, int]) -> int:
        data, symbols = group_bytes(sorted(members), self._file_end())
        self._add(data)
        return self._add(header(symbols + attributes[0], attributes[1] + 1))

    def _file_end(self) -> int:
        return self._add(b"")

    # -- tensors and constants

    def _list_tensors(self) -> None:
        """Add the datasets of all tensors with values to the list."""
        index = self._index
        order = np.lexsort((index["step"], index["sample"], index["tensor"]))
        if not len(order):
            return
        tensors = index["tensor"][order]
        starts = np.flatnonzero(np.diff(tensors, prepend=-1))
        bounds = [*starts.tolist(), len(order)]
        payloads = index["payload"][order]
        has_values = payloads != NO_PAYLOAD
        is_complete = np.logical_and.reduceat(has_values, starts).tolist()
        has_own_quants = np.logical_or.reduceat(index["quant"][order] >= 0, starts).tolist()
        missing_number = len(self._tables["payloads"])
        offsets = np.append(self._tables["payloads"], np.uint64(NOWHERE))[np.minimum(payloads, missing_number)]
        kinds, forms = self._number_forms(missing_number + 1)
        kinds = kinds[np.minimum(payloads, missing_number)]
        is_regular_mask = np.logical_and.reduceat(offsets != NOWHERE, starts)
        is_regular_mask &= np.minimum.reduceat(kinds, starts) == np.maximum.reduceat(kinds, starts)
        constant = self._is_constant[tensors[starts]]
        is_regular_mask &= np.diff(bounds) == np.where(constant, 1, self._place_count)
        columns = [
            column.tolist() for column in (tensors[starts], constant, is_regular_mask, kinds[starts], offsets[starts])
        ]
        for number, (row, is_constant, is_regular, kind, offset) in enumerate(zip(*columns, strict=True)):
            events = slice(bounds[number], bounds[number + 1])
            if is_regular and not has_own_quants[number]:
                key = kind, is_constant
                if key not in self._regular_forms:
                    self._regular_forms[key] = self._regular_form(*forms[kind], constant=is_constant)
                if (form := self._regular_forms[key]) is not None:
                    self._list_regular(row, form, offset if form.pieces is None else offsets[events])
                    continue
            tensor_events, full_events = order[events], order[events][has_values[events]]
            kept_text = "full" if is_complete[number] else self._kept_text(tensor_events)
            places = np.stack([index["sample"][full_events], index["step"][full_events]], axis=1)
            values = [self._payloads[number] for number in index["payload"][full_events].tolist()]
            self._list_tensor(row, values, places, kept_text, tensor_events if has_own_quants[number] else None)

    def _number_forms(self, count: int) -> tuple[np.ndarray, list[tuple[str, tuple[int, ...]]]]:
        """Number the distinct combinations of dtype and shape.

        Return the number of each payload's combination, [count], and the combinations.
        """
        forms: dict[tuple[str, tuple[int, ...]], int] = {}
        numbers = np.zeros(count, np.int64)
        numbers[list(self._payloads)] = [
            forms.setdefault((dtype, shape), len(forms)) for _, dtype, shape, _, _ in self._payloads.values()
        ]
        return numbers, list(forms)

    def _regular_form(self, dtype: str, shape: tuple[int, ...], *, constant: bool) -> _RegularForm | None:
        """Return what the datasets of complete tensors have in common; None if they need `_list_tensor`."""
        leading_shape = () if constant else self._leading_shape
        itemsize = physical_dtype(dtype).itemsize
        nbytes, is_single = math.prod(shape) * itemsize, constant or self._place_count == 1
        if len(shape) + len(leading_shape) > MAX_NDIM or (nbytes > MAX_PIECE and not is_single):
            return None
        description = self._description(dtype, (*leading_shape, *shape), is_chunked=not is_single)
        if is_single:
            return _RegularForm(constant, dtype, description, nbytes)
        starts = np.zeros((self._place_count, len(leading_shape) + len(shape)), np.uint64)
        starts[:, : len(leading_shape)] = np.indices(leading_shape).reshape(len(leading_shape), -1).T
        chunks = _DatasetChunks((*(1,) * len(leading_shape), *shape), itemsize, starts, starts[:, 0], nbytes)
        return _RegularForm(constant, dtype, description, nbytes, chunks)

    def _list_regular(self, row: int, form: _RegularForm, offsets: Any) -> None:
        """Add the dataset of a complete, uncompressed tensor with a single dtype and shape to the list.

        `_list_tensor` would add the same dataset in three times the time, and a recording has thousands of them.

        Args:
            row: Row of /graph/tensors.
            form: Its common parts.
            offsets: Offset of its payload; an array for all samples and steps if the dataset is chunked.
        """
        constant, dtype, description, nbytes, chunks = form
        group, link = _CONSTANTS if constant else _TENSORS, self._attributes.link_name(row)
        attributes, count = self._attributes.tensor_attributes(row, dtype, "full")
        if chunks is None:
            dataset = _Dataset(
                group,
                link,
                description + contiguous_layout(offsets, nbytes) + attributes,
                count + _DESCRIBING_MESSAGES + 1,
            )
        else:
            dataset = _Dataset(
                group, link, description + attributes, count + _DESCRIBING_MESSAGES, chunks._replace(stored=offsets)
            )
        self._datasets.append(dataset)

    def _kept_text(self, events: np.ndarray) -> str:
        """Return how much was recorded of a tensor that was not recorded in full."""
        kinds = {
            "elements" if flag & Flag.SAMPLED else "statistics" if flag & Flag.STATS_ONLY else "full"
            for flag in self._index["flags"][events].tolist()
        }
        return kinds.pop() if len(kinds) == 1 else "mixed"

    def _list_tensor(
        self,
        row: int,
        payloads: Sequence[PlacedPayload],
        places: np.ndarray,
        kept_text: str,
        quant_rows: np.ndarray | None,
    ) -> None:
        """Add the dataset of a tensor, or the group of its datasets, to the list.

        Args:
            row: Row of /graph/tensors.
            payloads: Payloads of the fully recorded values.
            places: Sample and step of each payload.
            kept_text: How much was recorded.
            quant_rows: Rows of /graph/index of its events, if some have their own quantization.
        """
        constant = bool(self._is_constant[row])
        group, leading_shape = (_CONSTANTS, ()) if constant else (_TENSORS, self._leading_shape)
        link = self._attributes.link_name(row)
        dtype, shape = (payloads[0].dtype, payloads[0].shape) if payloads else self._stated_form(row)
        attributes = self._attributes.tensor_attributes(row, dtype, kept_text)
        if not constant and len(payloads) < self._place_count:
            attributes = _add_messages(attributes, self._place_attributes(places))
        if quant_rows is not None:
            attributes = _add_messages(
                attributes, self._attributes.quant_attributes_by_place(row, self._index[quant_rows], leading_shape)
            )
        if not payloads:  # without samples, an empty dataset records the tensor's shape
            description = self._description(dtype, (0, *leading_shape[1:], *shape)[:MAX_NDIM])
            messages = description + contiguous_layout(UNDEFINED, 0) + attributes[0]
            self._datasets.append(_Dataset(group, link, messages, attributes[1] + _DESCRIBING_MESSAGES + 1))
            return
        is_uniform = len(payloads) == 1 or all(
            payload.dtype == dtype and payload.shape == shape for payload in payloads
        )
        if (
            is_uniform
            and len(shape) + len(leading_shape) <= MAX_NDIM
            and math.prod((*leading_shape, *shape)) < _MAX_ELEMENTS
        ):
            self._datasets.append(
                self._make_dataset(
                    group, link, payloads, leading_shape=leading_shape, places=places, attributes=attributes
                )
            )
            return
        path = (*group, link)
        self._groups[path] = attributes
        for payload, (sample, step) in zip(payloads, places.tolist(), strict=True):
            key = place_key(sample, step, steps=self._axes[1])
            self._datasets.append(self._make_dataset(path, key, [payload]))

    def _stated_form(self, row: int) -> tuple[str, tuple[int, ...]]:
        """Return the stated dtype and shape of a tensor without fully recorded values."""
        event = self._index[(self._index["tensor"] == row).argmax()]
        return LOGICAL_DTYPES[event["dtype"]], tuple(event["shape"][: event["ndim"]].tolist())

    def _make_dataset(
        self,
        group: GroupPath,
        link: bytes,
        payloads: Sequence[PlacedPayload],
        *,
        leading_shape: tuple[int, ...] = (),
        places: np.ndarray | None = None,
        attributes: tuple[bytes, int] = (b"", 0),
    ) -> _Dataset:
        """Return the dataset of payloads with the same dtype and shape.

        Args:
            group: Its group.
            link: Its name in the group.
            payloads: The payloads.
            leading_shape: Its leading axes: number of samples, and of steps if there are several.
            places: Sample and step of each payload; None without leading axes.
            attributes: Messages of its attributes, and their count.
        """
        first_payload = payloads[0]
        shape, dtype = (*leading_shape, *first_payload.shape), first_payload.dtype
        nbytes = math.prod(first_payload.shape) * physical_dtype(dtype).itemsize
        if nbytes == 0 or (math.prod(leading_shape) == 1 and first_payload.chunks is None):
            layout = contiguous_layout((first_payload.offset or 0) if nbytes else UNDEFINED, nbytes)
            return _Dataset(
                group,
                link,
                self._description(dtype, shape) + layout + attributes[0],
                attributes[1] + _DESCRIBING_MESSAGES + 1,
            )
        chunks = self._chunks_of(payloads, places[:, : len(leading_shape)] if places is not None else None)
        has_missing = math.prod(leading_shape) > len(payloads)
        description = self._description(dtype, shape, is_chunked=True, has_missing=has_missing)
        return _Dataset(group, link, description + attributes[0], attributes[1] + _DESCRIBING_MESSAGES, chunks)

    def _description(
        self, dtype: str, shape: tuple[int, ...], *, is_chunked: bool = False, has_missing: bool = False
    ) -> bytes:
        key = dtype, shape, is_chunked, has_missing
        if (description := self._descriptions.get(key)) is None:
            fill_value = _NAN.get(dtype, b"") if has_missing else b""
            description = self._descriptions[key] = dataset_description(
                encode_logical(dtype), shape, fill_value, is_chunked=is_chunked
            )
        return description

    def _chunks_of(self, payloads: Sequence[PlacedPayload], places: np.ndarray | None) -> _DatasetChunks:
        """Return the chunks of payloads with the same shape.

        Args:
            payloads: The payloads.
            places: Leading coordinates of each payload, [payloads, axes]; None for a dataset without leading axes.
        """
        shape, itemsize = payloads[0].shape, physical_dtype(payloads[0].dtype).itemsize
        leading_places = np.zeros((len(payloads), 0), np.uint64) if places is None else places
        leading_ones, nbytes = (1,) * leading_places.shape[1], math.prod(shape) * itemsize
        if payloads[0].chunks is None and nbytes <= MAX_PIECE:
            starts = np.zeros((len(payloads), leading_places.shape[1] + len(shape)), np.uint64)
            starts[:, : leading_places.shape[1]] = leading_places
            stored = np.fromiter((payload.offset or 0 for payload in payloads), np.uint64, len(payloads))
            return _DatasetChunks((*leading_ones, *shape), itemsize, starts, stored, nbytes)
        if payloads[0].chunks is None:
            # A large contiguous payload is described as consecutive chunks, so nothing is copied and HDF5 reads it like
            # any chunked dataset. The last chunk may extend beyond the payload (`spare_bytes`).
            chunk = piece_shape(shape, itemsize)
            chunk_starts = np.array(list(chunks_of(shape, chunk)), np.uint64).reshape(-1, len(shape))
            size = math.prod(chunk) * itemsize
            strides = [math.prod(shape[axis + 1 :]) * itemsize for axis in range(len(shape))]
            chunk_offsets = chunk_starts @ np.array(strides, np.uint64)
            stored = (np.array([payload.offset for payload in payloads], np.uint64)[:, None] + chunk_offsets).ravel()
            self.spare_bytes = max(self.spare_bytes, int(chunk_offsets[-1]) + size - nbytes)
            sizes, masks = np.full(len(stored), size, np.uint64), np.zeros(len(stored), np.uint64)
            filters: tuple[tuple[int, tuple[int, ...]], ...] = ()
        else:
            chunk, filters = payloads[0].chunks.shape, payloads[0].chunks.filters
            chunk_starts = np.array(list(chunks_of(shape, chunk)), np.uint64).reshape(-1, len(shape))
            rows = np.array(
                [stored for payload in payloads if payload.chunks for stored in payload.chunks.stored], np.uint64
            )
            stored, sizes, masks = rows.reshape(-1, 3).T
        starts = np.concatenate(
            [np.repeat(leading_places, len(chunk_starts), axis=0), np.tile(chunk_starts, (len(payloads), 1))], axis=1
        )
        return _DatasetChunks(
            (*leading_ones, *chunk), itemsize, starts.astype(np.uint64), stored, sizes, masks, filters
        )

    def _place_attributes(self, places: np.ndarray) -> list[Message]:
        """Return the attributes of a tensor without values at some places: their number, and the recorded places."""
        missing_count = min(self._place_count - len(places), 2**64 - 1)
        places_recorded = places if len(self._leading_shape) > 1 else places[:, 0]
        fits_attribute = 0 < places_recorded.nbytes <= MAX_ATTRIBUTE
        return [array_attribute("missing", np.uint64(missing_count))] + [
            array_attribute("recorded", places_recorded)
        ] * fits_attribute

    # -- elements, scales

    def _list_elements(self) -> None:
        """Add the datasets of recorded elements and of their positions to the list."""
        for row in self._tables.get("samples", ()):
            event = self._index[row["event"]]
            tensor = int(event["tensor"])
            group = ELEMENTS.encode(), self._attributes.link_name(tensor)
            self._groups.setdefault(group, self._attributes.identifying_attributes(tensor))
            key = place_key(int(event["sample"]), int(event["step"]), steps=self._axes[1])
            for part_name in ("values", "positions"):
                payload = self._payloads[int(row[part_name])]
                self._datasets.append(self._make_dataset(group, key + b"." + part_name.encode(), [payload]))

    def _list_quantizations(self) -> None:
        for link, pool, start, array in self._attributes.large_arrays:
            if pool:
                offset = self._pool_offsets[pool] + start * array.itemsize
            else:
                offset = self._add(np.ascontiguousarray(array).tobytes())
            description = dataset_description(self._attributes.number_type(array), array.shape)
            messages = description + contiguous_layout(offset, array.nbytes)
            self._datasets.append(_Dataset((QUANT.encode(),), link, messages, _DESCRIBING_MESSAGES + 1))

    # -- headers

    def _choose_node_size(self) -> int:
        """Return the maximum number of children per chunk node that minimizes the size of the file."""
        counts: dict[tuple[int, int], int] = {}
        for dataset in self._datasets:
            if dataset.pieces is not None:
                key = dataset.pieces.starts.shape
                counts[key] = counts.get(key, 0) + 1
        candidates = {*_NODE_CHILDREN, *(min(count + count % 2, _NODE_CHILDREN[-1]) for count, _ in counts)}
        candidates |= {min(max(2, -(-count // parts)) + 1 & ~1, 64) for count, _ in counts for parts in range(1, 9)}

        def size(max_children: int) -> int:
            return sum(
                dataset_count
                * sum(map(len, node_children(count, max_children)))
                * (24 + max_children * (24 + 8 * rank) + 16 + 8 * rank)
                for (count, rank), dataset_count in counts.items()
            )

        return min(sorted(candidates, reverse=True), key=size)

    def _write_headers(self) -> list[int]:
        """Write the header and chunk index of each dataset. Return the offset of each header."""
        roots = self._write_trees()
        offsets: list[int] = []
        for first in range(0, len(self._datasets), _HEADERS_PER_BATCH):
            headers = []
            for number, dataset in enumerate(self._datasets[first : first + _HEADERS_PER_BATCH], start=first):
                _, _, messages, count, chunks = dataset
                if chunks is not None:
                    messages += chunked_layout(roots[number], chunks.chunk, chunks.itemsize)
                    messages += filters_message(chunks.filters) if chunks.filters else b""
                    count += 2 if chunks.filters else 1
                headers.append(header(messages, count))
            offset = self._add(b"".join(headers))
            for header_bytes in headers:
                offsets.append(offset)
                offset += len(header_bytes)
        return offsets

    def _write_trees(self) -> dict[int, int]:
        """Write the chunk indexes, grouped by the coordinates of their chunks. Return each root's offset by dataset."""
        numbers_by_starts: dict[tuple[int, bool, bytes], list[int]] = {}
        for number, dataset in enumerate(self._datasets):
            if (chunks := dataset.pieces) is not None:
                key = chunks.starts.shape[1], isinstance(chunks.sizes, int), chunks.starts.tobytes()
                numbers_by_starts.setdefault(key, []).append(number)
        root_of: dict[int, int] = {}
        for (rank, _, _), numbers in numbers_by_starts.items():
            all_chunks = [chunks for number in numbers if (chunks := self._datasets[number].pieces) is not None]
            count = len(all_chunks[0].starts)
            keys = np.zeros((len(all_chunks), count + 1), key_type(rank))
            keys["at"][:, :-1, :rank] = all_chunks[0].starts
            keys["size"][:, :-1] = np.array([chunks.sizes for chunks in all_chunks]).reshape(len(all_chunks), -1)
            keys["mask"][:, :-1] = np.array([chunks.masks for chunks in all_chunks]).reshape(len(all_chunks), -1)
            keys["at"][:, -1] = [(*chunks.chunk, chunks.itemsize) for chunks in all_chunks]
            keys["at"][:, -1, :rank] += all_chunks[0].starts[-1]
            # The trees of a group have the same structure, so they are built together in array operations.
            children = np.stack([chunks.stored for chunks in all_chunks])
            data, roots = tree_bytes(1, keys, children, self._file_end(), max_children=self.chunks_in_node)
            self._add(data)
            root_of.update(zip(numbers, roots.tolist(), strict=True))
        return root_of


_DESCRIBING_MESSAGES = 3
"""Number of messages in `dataset_description`."""
_HEADERS_PER_BATCH = 1000
_NODE_CHILDREN = (2, 4, 8, 16, 32, 64)
"""Candidate numbers of children per chunk node, besides the numbers that fit the recording exactly."""


def _add_messages(attributes: tuple[bytes, int], messages: Sequence[Message]) -> tuple[bytes, int]:
    return attributes[0] + b"".join(messages), attributes[1] + len(messages)


def piece_shape(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the shape of the contiguous chunks that a large payload is split into.

    HDF5 reads complete chunks. If an extent lacks a suitable divisor, the last chunk extends slightly beyond the
    payload.

    Args:
        shape: Shape of the payload.
        itemsize: Bytes of an element.
    """
    chunk, inner_bytes = [1] * len(shape), math.prod(shape) * itemsize
    for axis, extent in enumerate(shape):
        inner_bytes //= extent
        if inner_bytes <= MAX_PIECE:
            chunk[axis:] = [_divide_evenly(extent, MAX_PIECE // inner_bytes), *shape[axis + 1 :]]
            break
    return tuple(chunk)


def _divide_evenly(extent: int, max_size: int) -> int:
    """Return a size up to `max_size` for the parts of an extent. It divides the extent if that needs few more parts."""
    parts = -(-extent // max_size)
    even_count = next((number for number in range(parts, min(8 * parts, extent) + 1) if extent % number == 0), None)
    return extent // even_count if even_count else -(-extent // parts)
