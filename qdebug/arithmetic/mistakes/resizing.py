"""Known kernel mistakes in the positions and scales of a resized image. Begin at `resizing_mistakes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.mistakes.attributes import choices_of
from qdebug.arithmetic.mistakes.mistake import Mistake, always
from qdebug.model import Node
from qdebug.replay.registry import run_node

__all__ = ["index_attributes", "resizing_mistakes"]


def resizing_mistakes(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield the mistakes that a kernel could make in the positions and scales of a node.

    Args:
        node: The node's real form.
        values: Its inputs.
        opset: Version of each operator set of its graph.
    """
    yield from _other_indices(node, values, opset)
    yield from _float32_positions(node, values)
    yield from _scales_from_sizes(node, values, opset)


_TRANSFORM, _ROUNDING = "coordinate_transformation_mode", "nearest_mode"
_DEFAULTS = MappingProxyType({_TRANSFORM: "half_pixel", _ROUNDING: "round_prefer_floor"})
_FORMULAS = MappingProxyType(
    {
        ("half_pixel", "round_prefer_ceil"): "floor((i + 0.5) / scale)",
        ("asymmetric", "floor"): "floor(i / scale)",
        ("asymmetric", "ceil"): "ceil(i / scale)",
    }
)
"""Source index of element i, for the pairs of attributes that kernels often write as one expression."""

_Rule = tuple[str, str]
"""Values of the attributes _TRANSFORM and _ROUNDING."""
_Lines = tuple[tuple[int, ...], ...]
"""The source indices along each axis."""


def index_attributes(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> tuple[str, ...]:
    """Return the attributes that are tried together because both decide which element is taken.

    Args:
        node: The node's real form.
        values: Its inputs.
        opset: Version of each operator set of its graph.
    """
    return (_TRANSFORM, _ROUNDING) if _own_rule(node, values, opset) else ()


def _own_rule(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> _Rule | None:
    """Return the rule of a resize that takes the nearest elements, or None if it is another node or resizes a part."""
    if (
        node.op != "Resize"
        or opset.get("", 0) < _FIRST_OPSET_WITH_RULES
        or node.attrs.get("mode", "nearest") != "nearest"
    ):
        return None
    transform, rounding = (str(node.attrs.get(name, default)) for name, default in _DEFAULTS.items())
    names = [name for name in node.inputs[2:] if name and values[name].size]
    is_whole = len(names) == 1 and values[names[0]].size == values[node.inputs[0]].ndim
    policy = node.attrs.get("keep_aspect_ratio_policy", "stretch")
    if not is_whole or policy != "stretch" or "axes" in node.attrs or transform == "tf_crop_and_resize":
        return None
    return transform, rounding


_FIRST_OPSET_WITH_RULES = 11


def _other_indices(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield the mistakes of taking the source elements by another rule, along all axes or along one of them.

    Rules with the same elements in this shape are one mistake. It is named by the rule that differs least.
    """
    own = _own_rule(node, values, opset)
    if own is None:
        return
    data = values[node.inputs[0]]
    transforms, roundings = (choices_of(node.op, *each) or each[1:] for each in zip(_DEFAULTS, own, strict=True))
    rules = sorted(product(transforms, roundings), key=partial(_distance, own=own))
    lines = {rule: _source_indices(node, values, opset, rule) for rule in (own, *rules)}
    moved = [axis for axis in range(data.ndim) if any(line[axis] != lines[own][axis] for line in lines.values())]
    tried: dict[_Lines, list[tuple[_Rule, int | None]]] = {}
    for axis in (None, *(moved if len(moved) > 1 else ())):
        for rule, line in lines.items():
            mixed = line if axis is None else (*lines[own][:axis], line[axis], *lines[own][axis + 1 :])
            if mixed != lines[own]:
                tried.setdefault(mixed, []).append((rule, axis))
    for indices, equals in tried.items():
        result = data
        for axis, taken in enumerate(indices):
            result = result.take(taken, axis)
        yield Mistake(likely=_rule_text(own, equals), node=node, values={}, after=always(result), about=_TRANSFORM)


def _distance(rule: _Rule, own: _Rule) -> tuple[bool, bool, bool]:
    """Return how far a rule is from a node's own, to sort by: one other attribute, the rounding, a usual pair first."""
    return rule[0] != own[0] and rule[1] != own[1], rule[0] != own[0], rule not in _FORMULAS


def _source_indices(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int], rule: _Rule) -> _Lines:
    """Return the source indices along each axis under a rule."""
    attrs = {**node.attrs, **dict(zip(_DEFAULTS, rule, strict=True))}
    name = next(name for name in node.inputs[2:] if name and values[name].size)
    line_node = replace(node, attrs=attrs, inputs=tuple(each if each == name else "" for each in node.inputs))
    line_node = replace(line_node, inputs=(node.inputs[0], *line_node.inputs[1:]))
    lines = []
    for size, target in zip(values[node.inputs[0]].shape, values[name].reshape(-1, 1), strict=True):
        line = {node.inputs[0]: np.arange(size, dtype=np.float32), name: target}
        lines.append(tuple(run_node(line_node, line, opset)[node.outputs[0]].astype(np.int64).tolist()))
    return tuple(lines)


def _rule_text(own: _Rule, equals: list[tuple[_Rule, int | None]]) -> str:
    """Return the rule used instead of the node's own in words, with another that differs from it in one attribute."""
    (rule, axis), *others = equals
    names = [name for name, used, right in zip(_DEFAULTS, rule, own, strict=True) if used != right]
    pairs = dict(zip(_DEFAULTS, zip(rule, own, strict=True), strict=True))
    uses = " and ".join(f"{name} = {pairs[name][0]}" for name in names)
    text = f"it uses {uses}, not {' and '.join(pairs[name][1] for name in names)}"
    if axis is not None:
        text = f"along axis {axis} {text}"
    formulas = [_FORMULAS[equal] for equal, at in equals if at == axis and equal in _FORMULAS]
    if formulas:
        return f"{text} (it takes the source index {formulas[0]})"
    near = (equal for equal, at in others if at == axis and not _distance(equal, own)[0])
    other = next(near, None)
    if other is None or len(names) > 1:
        return text
    changed = zip(_DEFAULTS, other, own, strict=True)
    words = " and ".join(f"{name} = {used}" for name, used, right in changed if used != right)
    return f"{text} (the same elements as with {words})"


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
