"""Mistakes of any operator in its attributes: another value of one attribute, or another operator in its place.

Every attribute that a kernel reads is tried with nearby and common values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.errors import KernelError
from qdebug.model import AttrValue, Node, operators
from qdebug.replay.registry import has_kernel, run_node

__all__ = ["choices_of", "other_attributes", "other_integers", "other_operators", "wrong_choices"]


def other_attributes(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield mistakes in which one attribute has another value. Attributes left at their default are included.

    Some values enlarge the result, such as a smaller stride. Then the beginning of each axis is used, because a kernel
    writes no more than that.

    Args:
        node: The node's real form.
        values: Its inputs.
        opset: Version of each operator set of its graph.
    """
    if operators.of(node.op).casts:  # its attribute is the number of a type, so nearby values mean nothing
        return
    defaults: dict[str, AttrValue | None] = {}
    try:
        shape = run_node(node, values, opset, defaults=defaults)[node.outputs[0]].shape
    except KernelError:
        return
    extents = {extent for array in values.values() for extent in array.shape}
    crop = partial(_cropped, shape=shape)
    for name, value in {**defaults, **node.attrs}.items():
        for other_value in (*_other_values(value, extents), *(_other_axes(value) if name == "axes" else ())):
            other = replace(node, attrs={**node.attrs, name: other_value})
            text = f"it uses {name} = {_value_text(other_value)}, not {_value_text(value)}"
            yield Mistake(likely=text, node=other, values={}, after=crop, about=name)
    numbers = {name: value for name, value in {**defaults, **node.attrs}.items() if isinstance(value, float)}
    for first, second in combinations(numbers, 2):
        if numbers[first] != numbers[second]:
            exchanged = {first: numbers[second], second: numbers[first]}
            likely = f"{first} and {second} are exchanged"
            yield Mistake(likely=likely, node=replace(node, attrs={**node.attrs, **exchanged}), values={})


def other_integers(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which a scalar integer input has another value, such as an index or an axis.

    Args:
        node: The node's real form.
        values: Its inputs.
    """
    for name in dict.fromkeys(filter(None, node.inputs)):
        array = values[name]
        if array.size != 1 or array.dtype.kind != "i":
            continue
        own, ends = int(array.reshape(-1)[0]), np.iinfo(array.dtype)
        for other in dict.fromkeys(
            (*range(_MAX_INTEGER_TRIED + 1), own - 1, own + 1, *range(-1, -_MAX_INTEGER_TRIED - 1, -1))
        ):
            if other != own and ends.min <= other <= ends.max:
                text = f"{name!r} is taken as {other}, not {own}"
                yield Mistake(likely=text, node=node, values={name: np.full_like(array, other)}, about=name)


_MAX_INTEGER_TRIED = 16
"""Largest magnitude of an integer that is tried in place of a scalar input."""


def _other_values(value: AttrValue | None, extents: set[int]) -> Iterator[AttrValue]:
    """Yield values that a kernel might use instead of an attribute's value."""
    if isinstance(value, int):
        near = [each for each in (0, 1, value - 1, value + 1, 2 * value, value // 2) if each >= min(value, 0)]
        small = sorted(extent for extent in extents if extent <= _MAX_COUNT_TRIED)
        yield from (int(each) for each in dict.fromkeys((*near, *(small if value > 1 else ()))) if each != value)
    if not isinstance(value, tuple) or not value:
        return
    numbers = [each for each in value if isinstance(each, int)]
    if len(numbers) == len(value):
        count = len(numbers)
        lists = ((1,) * count, (0,) * count, tuple(numbers[::-1]), (numbers[0],) * count, (numbers[-1],) * count)
        yield from (each for each in dict.fromkeys(lists) if each != value)


def _other_axes(value: AttrValue | None) -> Iterator[AttrValue]:
    """Yield a list of axes without its first axis, and without its last one."""
    if isinstance(value, tuple) and len(value) > 1:
        yield from dict.fromkeys((value[1:], value[:-1]))


_MAX_COUNT_TRIED = 64
"""Largest extent that is tried as a number of groups, heads, or elements of a window."""


def _value_text(value: object) -> str:
    return f"{list(value) if isinstance(value, tuple) else value}"


def _cropped(result: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    """Cut a result to a shape, keeping the beginning of each axis. Results of another rank are returned unchanged."""
    if result.ndim != len(shape):
        return result
    return np.ascontiguousarray(result[tuple(slice(extent) for extent in shape)])


def other_operators(node: Node) -> Iterator[Mistake]:
    """Yield mistakes in which another operator of the same kind is computed: element-wise, windowed or a reduction.

    Args:
        node: The node's real form.
    """
    own = operators.of(node.op)
    count = len(node.inputs)

    def is_alike(row: operators.Operator) -> bool:
        """Return whether an operator takes the same inputs as the node and returns a result of the same shape."""
        if own.elementwise and count <= _MAX_ELEMENTWISE_INPUTS:
            return row.elementwise and row.counts is own.counts
        if own.picks_index:
            return row.picks_index
        return (own.reduces and row.reduces and not row.picks_index) or (
            own.windowed and row.windowed and not own.product and not row.product
        )

    if not (own.elementwise or own.reduces or own.windowed):
        return
    for name in sorted(operators.names_where(is_alike) - {node.op}):
        if has_kernel(name):
            likely = f"it computes {name}, not {node.op}"
            yield Mistake(likely=likely, node=replace(node, op=name, domain=""), values={}, about="operator")
    if own.counts is operators.Count.COMPARISON:
        yield Mistake(likely="its result is negated", node=node, values={}, after=np.logical_not)


_MAX_ELEMENTWISE_INPUTS = 2
"""Maximum number of inputs of an element-wise operator that others may replace."""


_FLAGS = frozenset(
    (
        "linear_before_reset", "input_forget", "transA", "transB", "count_include_pad", "ceil_mode", "exclusive",
        "reverse", "interleaved", "is_causal", "unidirectional", "largest", "select_last_index", "fmod",
    )
)  # fmt: skip
"""Attributes with the values 0 and 1."""
_CONFUSED_VALUES: Mapping[str, tuple[tuple[str, ...], ...]] = MappingProxyType(
    {
        "approximate": (("none", "tanh"),),
        "auto_pad": (("SAME_UPPER", "SAME_LOWER", "VALID"),),
        "direction": (("LEFT", "RIGHT"),),
        "keep_aspect_ratio_policy": (("stretch", "not_larger", "not_smaller"),),
        "mode": (
            ("DCR", "CRD"),
            ("nearest", "linear", "cubic"),
            ("bilinear", "nearest", "bicubic"),
            ("constant", "reflect", "edge", "wrap"),
            ("avg", "max"),
        ),
        "nearest_mode": (("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),),
        "padding_mode": (("zeros", "border", "reflection"),),
        "reduction": (("none", "add", "mul", "min", "max"),),
        "rounding_mode": (("ROUND", "CEIL", "FLOOR", "DOWN", "UP", "HALF_UP", "HALF_DOWN"),),
    }
)
"""Attribute values that are easily confused with each other."""
_CONFUSED_VALUES_OF_OPERATORS: Mapping[tuple[str, str], tuple[tuple[str, ...], ...]] = MappingProxyType(
    {
        ("RoiAlign", "coordinate_transformation_mode"): (("half_pixel", "output_half_pixel"),),
        ("Resize", "coordinate_transformation_mode"): (
            ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric"),
        ),
    }
)
"""The same by operator and attribute, for operators that support fewer values."""
_DIVISOR_FLAGS = ("count_include_pad", "ceil_mode")
"""Flags of average pools. Using 1 instead of 0 changes the divisor, which is a separate mistake in `known`."""


def choices_of(op: str, name: str, value: AttrValue | None) -> tuple[str, ...]:
    """Return the values that are easily confused with a value of an enumerated attribute, and the value itself.

    Args:
        op: The operator.
        name: The attribute.
        value: Its value.
    """
    groups = _CONFUSED_VALUES_OF_OPERATORS.get((op, name), _CONFUSED_VALUES.get(name, ()))
    return next((choices for choices in groups if value in choices), ())


def wrong_choices(
    node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int], *, excluded: tuple[str, ...] = ()
) -> Iterator[Mistake]:
    """Yield mistakes in which a flag is inverted or an enumerated attribute confused. Defaults are included.

    Args:
        node: The node's real form.
        values: Its inputs.
        opset: Version of each operator set of its graph.
        excluded: Enumerated attributes that are left out.
    """
    read_attrs: dict[str, AttrValue | None] = {}
    try:
        run_node(node, values, opset, defaults=read_attrs)
    except KernelError:
        return
    for name, value in {**read_attrs, **node.attrs}.items():
        if name in _FLAGS and value in (0, 1) and (value or name not in _DIVISOR_FLAGS):
            inverted = replace(node, attrs={**node.attrs, name: 1 - int(bool(value))})
            likely = f"{name} is ignored" if value else f"it uses {name} = 1, not 0"
            operand = _TRANSPOSING_FLAGS.get(name)
            about = "" if operand is None else node.inputs[operand]
            yield Mistake(likely=likely, node=inverted, values={}, about=about)
        for other_value in () if name in excluded else choices_of(node.op, name, value):
            if other_value != value:
                likely = f"it uses {name} = {other_value}, not {value}"
                yield Mistake(
                    likely=likely, node=replace(node, attrs={**node.attrs, name: other_value}), values={}, about=name
                )


_TRANSPOSING_FLAGS = MappingProxyType({"transA": 0, "transB": 1})
"""Position of the operand that each flag transposes. For a square operand, this equals a different memory order."""
