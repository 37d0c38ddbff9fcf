"""Cut a large unit to what its wrong elements need."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qdebug.replay.registry import Call
from qdebug.replay.unit import Operand, Unit
from qdebug.replay.windows import window_of

__all__ = ["LARGE", "Cut", "cut"]

LARGE = 1 << 20
"""Bytes of inputs from which a node is cut."""

_ELEMENTS = 64
"""Wrong elements that a cut keeps."""
_BOX = 16
"""Most output positions along an axis that a cut of a convolution keeps."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cut:
    """A part of a unit.

    Args:
        unit: The unit, cut.
        recorded: What was recorded of its output, in the node's own layout.
        kept: What was kept, in a clause; "" if everything.
    """

    unit: Unit
    recorded: np.ndarray
    kept: str


def cut(unit: Unit, recorded: np.ndarray, expected: np.ndarray) -> Cut | None:
    """Cut a unit to what its wrong elements need.

    Args:
        unit: The unit.
        recorded: What was recorded, in the node's own layout.
        expected: What it is held against.

    Returns:
        The part; None if nothing is wrong, or no way is known to cut a unit of this kind.
    """
    wrong = np.argwhere(recorded != expected)
    if not wrong.size:
        return None
    error = np.abs(recorded.astype(np.int64) - expected.astype(np.int64))[tuple(wrong.T)]
    wrong = wrong[np.argsort(-error, kind="stable")]
    if unit.kind == "conv" and not unit.transposed:
        return _conv(unit, recorded, wrong)
    if unit.kind == "linear":
        return _linear(unit, recorded, wrong)
    if unit.kind in ("add", "sub", "mul", "div", "lookup", "requantize", "quantize", "dequantize"):
        return _elements(unit, recorded, wrong)
    return None


def _conv(unit: Unit, recorded: np.ndarray, wrong: np.ndarray) -> Cut | None:
    """Keep a box of output positions around the worst element, and the filters of the wrong elements in it."""
    if unit.channels_last:
        recorded = np.moveaxis(recorded, -1, 1)
        wrong = wrong[:, [0, -1, *range(1, wrong.shape[1] - 1)]]
    x, weight = unit.operands
    window = window_of(
        Call(inputs=(), attrs=unit.attrs, opset=unit.opset, op=unit.op), x.codes.shape[2:], weight.codes.shape[2:]
    )
    worst = wrong[0]
    near = wrong[(wrong[:, 0] == worst[0]) & (np.abs(wrong[:, 2:] - worst[2:]) < _BOX // 2).all(axis=1)][:_ELEMENTS]
    groups = unit.attrs.get("group", 1)
    filters = np.unique(near[:, 1]) if groups == 1 else np.arange(weight.codes.shape[0])
    image: list[slice] = []
    begin, end = [], []
    for axis, (kernel, stride, dilation, before) in enumerate(
        zip(weight.codes.shape[2:], window.strides, window.dilations, window.begin, strict=True)
    ):
        low, high = int(near[:, 2 + axis].min()), int(near[:, 2 + axis].max())
        first, last = low * stride - before, high * stride - before + (kernel - 1) * dilation + 1
        extent = x.codes.shape[2 + axis]
        image.append(slice(max(first, 0), min(last, extent)))
        begin.append(max(-first, 0))
        end.append(max(last - extent, 0))
    boxes = tuple(slice(int(near[:, 2 + a].min()), int(near[:, 2 + a].max()) + 1) for a in range(len(image)))
    attrs = {**unit.attrs, "pads": (*begin, *end), "auto_pad": "NOTSET"}
    part = replace(
        unit,
        operands=(
            replace(x, codes=x.codes[(slice(worst[0], worst[0] + 1), slice(None), *image)]),
            _rows(weight, filters),
        ),
        bias=None if unit.bias is None else unit.bias.reshape(-1)[filters] if unit.bias.size > 1 else unit.bias,
        attrs=attrs,
        channels_last=False,
    )
    kept = recorded[worst[0] : worst[0] + 1][(slice(None), filters, *boxes)]
    place = ", ".join(f"{box.start} to {box.stop - 1}" for box in boxes)
    return Cut(
        unit=part, recorded=kept, kept=f"image {worst[0]}, filters {_listed(filters)}, positions {place} of the output"
    )


def _rows(operand: Operand, rows: np.ndarray) -> Operand:
    def of(values: np.ndarray) -> np.ndarray:
        return values[rows] if values.size > 1 else values

    return Operand(codes=operand.codes[rows], scale=of(operand.scale), zero_point=of(operand.zero_point))


def _linear(unit: Unit, recorded: np.ndarray, wrong: np.ndarray) -> Cut | None:
    """Keep the rows and columns of the wrong elements of a product of two matrices."""
    a, b = unit.operands
    if a.codes.ndim != 2 or b.codes.ndim != 2 or unit.out.scale.size > 1 or a.scale.size > 1:
        return None
    rows, columns = (np.unique(wrong[:_ELEMENTS, axis]) for axis in (0, 1))

    def of(values: np.ndarray) -> np.ndarray:
        return values[..., columns] if values.size > 1 else values

    right = Operand(codes=b.codes[:, columns], scale=of(b.scale), zero_point=of(b.zero_point))
    bias = unit.bias
    if bias is not None and bias.ndim and bias.shape[-1] > 1:
        bias = bias[..., columns]
    part = replace(unit, operands=(replace(a, codes=a.codes[rows]), right), bias=bias)
    return Cut(
        unit=part,
        recorded=recorded[np.ix_(rows, columns)],
        kept=f"rows {_listed(rows)}, columns {_listed(columns)} of the output",
    )


def _elements(unit: Unit, recorded: np.ndarray, wrong: np.ndarray) -> Cut | None:
    """Keep the wrong elements alone, in a row."""
    if unit.channels_last or any(operand.scale.size > 1 or operand.zero_point.size > 1 for operand in unit.operands):
        return None
    if unit.out.scale.size > 1 or unit.out.zero_point.size > 1:
        return None
    places = tuple(wrong[:_ELEMENTS].T)
    operands = tuple(
        replace(operand, codes=np.broadcast_to(operand.codes, recorded.shape)[places]) for operand in unit.operands
    )
    return Cut(
        unit=replace(unit, operands=operands, channels_last=False),
        recorded=recorded[places],
        kept=f"{len(places[0])} wrong elements, the worst first",
    )


def _listed(values: np.ndarray) -> str:
    shown = ", ".join(str(int(value)) for value in values[:8])
    return shown if values.size <= 8 else f"{shown} and {values.size - 8} more"
