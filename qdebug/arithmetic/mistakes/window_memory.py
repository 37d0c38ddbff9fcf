"""Windows that read the memory around an image: behind its rows and planes, or rows that are a wrong distance apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.model import Node, operators
from qdebug.model.operators import Sums
from qdebug.model.thresholds.patterns import KERNEL_BLOCKS

__all__ = ["memory_mistakes"]


def memory_mistakes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistakes of a convolution or pool over images that reads elements from wrong places in memory.

    Args:
        node: The node's real form, with the channels first and explicit pads.
        values: Its inputs.
    """
    windows = _windows_of(node, values)
    if windows is None:
        return
    is_ignored = operators.plain(node).unit == "average_pool" and not node.attrs.get("count_include_pad")
    if not is_ignored:
        yield from _padding_from_memory(windows)
    if not (is_ignored and any(windows.pads)):
        yield from _wrong_pitches(windows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Windows:
    """The windows of a node over images.

    Args:
        node: The node.
        data: Its images, (samples, channels, rows, columns).
        pads: Begin of rows and columns, then end of rows and columns.
        strides: Distance of windows.
        dilations: Distance of the elements of a window.
        kernel: Extent of a window.
        empty: The number that the padding holds.
    """

    node: Node
    data: np.ndarray
    pads: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    kernel: tuple[int, ...]
    empty: float

    @property
    def widths(self) -> list[tuple[int, int]]:
        """The padding of each axis."""
        return [(0, 0), (0, 0), (self.pads[0], self.pads[2]), (self.pads[1], self.pads[3])]

    def unpadded_node(self, **attrs: tuple[int, ...]) -> Node:
        """Return the node without pads, and with other attributes."""
        rest = {name: value for name, value in self.node.attrs.items() if name not in ("pads", "auto_pad")}
        return replace(self.node, attrs={**rest, **attrs})


def _windows_of(node: Node, values: Mapping[str, np.ndarray]) -> _Windows | None:
    row, data = operators.plain(node), values.get(node.inputs[0]) if node.inputs else None
    if not row.windowed or row.sums is Sums.SCATTER or data is None or data.ndim != len(_CHANNELS_FIRST):
        return None
    if data.dtype.kind not in "fiu" or node.attrs.get("channels_last") or node.attrs.get("ceil_mode"):
        return None
    weight = values.get(operators.titled_input(node, 1))
    kernel = _integers(node, "kernel_shape", () if weight is None else weight.shape[2:])
    pads, ones = _integers(node, "pads", (0, 0, 0, 0)), (1, 1)
    if len(kernel) != len(ones) or len(pads) != 2 * len(ones) or min(pads) < 0:
        return None
    lowest = -np.inf if data.dtype.kind == "f" else np.iinfo(data.dtype).min
    return _Windows(
        node=node,
        data=data,
        pads=pads,
        strides=_integers(node, "strides", ones),
        dilations=_integers(node, "dilations", ones),
        kernel=kernel,
        empty=float(lowest) if row.selects else 0.0,
    )


def _integers(node: Node, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    listed = node.attrs.get(name)
    return tuple(int(str(each)) for each in listed) if isinstance(listed, tuple) and listed else default


_CHANNELS_FIRST = (0, 1, 2, 3)
_MEMORY_ORDERS = MappingProxyType({"channels-first": _CHANNELS_FIRST, "channels-last": (0, 2, 3, 1)})


def _padding_from_memory(windows: _Windows) -> Iterator[Mistake]:
    """Yield padding that is read from the memory around rows, planes or both, at the end alone or at both ends."""
    name = windows.node.inputs[0]
    before, after = windows.pads[:2], windows.pads[2:]
    seen: list[np.ndarray] = []
    for (memory, order), reach, ends in product(_MEMORY_ORDERS.items(), _REACHES, ("", " at the end")):
        axes = _REACHES[reach]
        sides = [(axis, side) for axis in axes for side in ("begin", "end")[1 if ends else 0 :]]
        if not any((before if side == "begin" else after)[axis - 2] for axis, side in sides):
            continue
        read, is_unknown = _read_around(windows, order, sides)
        if any(np.array_equal(read, other) for other in seen):
            continue
        seen.append(read)
        yield Mistake(
            likely=f"the padding {reach}{ends} is read from the {memory} memory around it instead of being empty",
            node=windows.unpadded_node(),
            values={name: read},
            unread={name: is_unknown},
            about="padding",
        )


_REACHES = MappingProxyType({"within each row": (3,), "above and below each plane": (2,), "of rows and planes": (2, 3)})
"""Axes whose padding is read from memory, by name."""


def _read_around(
    windows: _Windows, order: Sequence[int], sides: Sequence[tuple[int, str]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return images padded by the memory around them on some sides, and a mask of the unknown elements."""
    data, widths = windows.data, windows.widths
    stored = np.ascontiguousarray(data.transpose(order))
    strides = [stored.strides[order.index(axis)] // stored.itemsize for axis in range(data.ndim)]
    shape = [extent + sum(width) for extent, width in zip(data.shape, widths, strict=True)]
    offsets, is_empty, is_outside = np.zeros(shape, np.int64), np.zeros(shape, bool), np.zeros(shape, bool)
    for axis, (extent, (begin, _)) in enumerate(zip(data.shape, widths, strict=True)):
        places = np.arange(shape[axis]) - begin
        line = [-1 if at == axis else 1 for at in range(data.ndim)]
        offsets += places.reshape(line) * strides[axis]
        for side, is_beyond in (("begin", places < 0), ("end", places >= extent)):
            target = is_outside if (axis, side) in sides else is_empty
            target |= is_beyond.reshape(line)
    is_behind = (offsets < 0) | (offsets >= data.size)
    read = stored.reshape(-1)[np.clip(offsets, 0, data.size - 1)]
    read = np.where(is_behind, 0, read)
    return np.where(is_empty, windows.empty, read).astype(data.dtype), is_behind & ~is_empty


def _wrong_pitches(windows: _Windows) -> Iterator[Mistake]:
    """Yield windows whose rows are read a wrong distance apart in memory."""
    height, width = windows.kernel
    name = windows.node.inputs[0]
    padded = np.pad(windows.data, windows.widths, constant_values=windows.empty)
    own = padded.shape[3]
    rows = (padded.shape[2] - (height - 1) * windows.dilations[0] - 1) // windows.strides[0] + 1
    if height < len(("first", "second")) or rows < 1 or width > own:
        return
    others = {
        windows.data.shape[3],
        windows.data.shape[3] + windows.pads[1],
        own - 1,
        own + 1,
        own - width,
        own + width,
    }
    others |= {own - width + 1, own + width - 1, *(-(-own // block) * block for block in KERNEL_BLOCKS[:-2])}
    for pitch in sorted(others - {own}):
        if pitch < 1 or pitch > _MAX_PITCH_FACTOR * own:
            continue
        read, is_unknown = _rows_apart(windows, padded, pitch, rows)
        padding_text = " of the padded input" if any(windows.pads) else ""
        yield Mistake(
            likely=f"the rows of each window are read {pitch} elements apart, not {own} as the rows{padding_text} are",
            node=windows.unpadded_node(strides=(height, windows.strides[1]), dilations=(1, windows.dilations[1])),
            values={name: read},
            unread={name: is_unknown},
            about="pitch",
        )


_MAX_PITCH_FACTOR = 2


def _rows_apart(windows: _Windows, padded: np.ndarray, pitch: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images that hold the rows of all windows one below the other, and a mask of what is unknown.

    Args:
        windows: The windows.
        padded: The padded images.
        pitch: Distance of the rows of a window in memory.
        rows: Number of rows of windows.
    """
    samples, channels, height, width = padded.shape
    begins = np.arange(rows)[:, None] * windows.strides[0] * width
    begins = (begins + np.arange(windows.kernel[0]) * windows.dilations[0] * pitch).reshape(-1, 1)
    offsets = begins + np.arange(width)
    planes = padded.reshape(samples, channels, -1)
    is_behind = offsets >= height * width
    read = planes[:, :, np.where(is_behind, 0, offsets)]
    is_unknown = np.broadcast_to(is_behind, read.shape)
    return np.where(is_unknown, padded.dtype.type(0), read), is_unknown
