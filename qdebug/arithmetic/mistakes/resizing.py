"""Known kernel mistakes in the positions and scales of a resized image. Begin at `resizing_mistakes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.model import Node
from qdebug.replay.registry import run_node

__all__ = ["resizing_mistakes"]


def resizing_mistakes(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield the mistakes that a kernel could make in the positions and scales of a node.

    Args:
        node: The node's real form.
        values: Its inputs.
        opset: Version of each operator set of its graph.
    """
    yield from _float32_positions(node, values)
    yield from _scales_from_sizes(node, values, opset)


def _scales_from_sizes(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield the mistake of resizing by the ratio of the integer sizes instead of by the given scales."""
    name = node.inputs[2] if node.op == "Resize" and len(node.inputs) > 2 else ""
    if not name or values[name].size != values[node.inputs[0]].ndim or node.attrs.get("axes"):
        return
    shape = values[node.inputs[0]].shape
    sizes = run_node(node, values, opset)[node.outputs[0]].shape
    ratios = (np.array(sizes) / np.array(shape)).astype(np.float32)
    likely = f"the ratio of the sizes is used as scale, not {name!r}"
    yield Mistake(likely=likely, node=node, values={name: ratios})


_NEAREST: Mapping[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType(
    {
        "round_prefer_floor": lambda at: np.ceil(at - np.float32(0.5)),
        "round_prefer_ceil": lambda at: np.floor(at + np.float32(0.5)),
        "floor": np.floor,
        "ceil": np.ceil,
    }
)


def _float32_positions(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistake of computing positions in float32, which may miss a tie between two nearest elements."""
    data, attrs = values.get(node.inputs[0]) if node.inputs else None, node.attrs
    choose = _NEAREST.get(str(attrs.get("nearest_mode", "round_prefer_floor")))
    transform = str(attrs.get("coordinate_transformation_mode", "half_pixel"))
    if node.op != "Resize" or data is None or attrs.get("mode", "nearest") != "nearest" or choose is None:
        return
    shift = {"half_pixel": np.float32(0.5), "asymmetric": np.float32(0)}.get(transform)
    scales = values.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if shift is None or "axes" in attrs or (scales is not None and scales.size not in (0, data.ndim)):
        return
    for likely, multiplies in (("divided by", False), ("multiplied by the reciprocal of", True)):
        yield Mistake(
            likely=f"its coordinates are {likely} the scale in float32, which misses a tie",
            node=node,
            values={},
            after=partial(
                _resize_to_nearest, data=data, scales=scales, shift=shift, choose=choose, multiplies=multiplies
            ),
            about="coordinates",
        )


def _resize_to_nearest(
    result: np.ndarray,
    *,
    data: np.ndarray,
    scales: np.ndarray | None,
    shift: np.float32,
    choose: Callable[[np.ndarray], np.ndarray],
    multiplies: bool,
) -> np.ndarray:
    """Return data resized to a result's shape, with the position of each element computed in float32."""
    out = data
    for axis, (size, count) in enumerate(zip(data.shape, result.shape, strict=True)):
        scale = np.float32(scales[axis] if scales is not None and scales.size else count / size)
        if size == count or not size:
            continue
        position = np.arange(count, dtype=np.float32) + shift
        at = (position * (np.float32(1) / scale) if multiplies else position / scale) - shift
        out = out.take(np.clip(choose(at), 0, size - 1).astype(np.int64), axis)
    return out
