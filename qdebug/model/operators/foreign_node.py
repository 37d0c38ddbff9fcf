"""Access to a recorded node of another framework, and translation rules that several frameworks share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.model.frozen import frozen_array
from qdebug.model.graph import AttrValue, Graph, Node

__all__ = [
    "CONTRIBUTED",
    "PAD_MODES",
    "REDUCTIONS",
    "UNARY_FUNCTIONS",
    "Constants",
    "ForeignNode",
    "Rule",
    "Translated",
    "UntranslatableError",
    "binary",
    "no_constants",
    "pad_dimensions",
    "prelu_by_channel",
    "reduce_axes",
    "reduce_by_input",
    "reshape",
    "slice_axes",
    "to_flag",
    "transpose_by_input",
    "unary",
]

CONTRIBUTED = "com.microsoft"
"""Domain of the operators that ONNX Runtime adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """A node translated to ONNX.

    Args:
        node: The node.
        permutations: Permutations of constants whose dimensions have a different order in ONNX, by name.
        merged_constants: Constants whose first two dimensions are a single dimension in ONNX.
        constants: New constants by name, for values that the framework states in a different form.
    """

    node: Node
    permutations: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    merged_constants: frozenset[str] = frozenset()
    constants: Mapping[str, np.ndarray] = field(default_factory=lambda: MappingProxyType({}))


Constants = Callable[[str], np.ndarray | None]
"""Returns the values of a constant by name; None if it is not a constant, or not recorded."""


def no_constants(name: str) -> None:
    """Return None for any name. Used if the values of constants are unknown."""


class UntranslatableError(Exception):
    """A fact that determines the result was not recorded, or has no ONNX equivalent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignNode:
    """A node of another framework, with access to its recorded attributes, extents and constants.

    The methods raise `UntranslatableError` if a fact was not recorded.

    Args:
        node: The node as recorded.
        plain: The node with its ONNX operator, from `with_onnx_op`.
        graph: Its graph.
        constants: Returns the values of a constant.
    """

    node: Node
    plain: Node
    graph: Graph
    constants: Constants

    def required(self, *names: str) -> Any:
        """Return the first of the named attributes that the node states."""
        for name in names:
            if name in self.node.attrs:
                return self.node.attrs[name]
        raise UntranslatableError

    def optional(self, default: Any, *names: str) -> Any:
        """Return the first of the named attributes that the node states, or else a default."""
        return next((self.node.attrs[name] for name in names if name in self.node.attrs), default)

    def per_dimension(self, count: int, *names: str, default: Any = None) -> tuple[int, ...]:
        """Return an attribute as one number per dimension. It may also state a single number for all dimensions."""
        value = self.required(*names) if default is None else self.optional(default, *names)
        numbers = tuple(int(number) for number in value) if isinstance(value, tuple | list) else (int(value),)
        if len(numbers) not in (1, count):
            raise UntranslatableError
        return numbers * count if len(numbers) == 1 else numbers

    def extents(self, tensor: str) -> tuple[int, ...]:
        """Return the extents of a tensor."""
        info = self.graph.tensors.get(tensor)
        shape = None if info is None else info.shape
        if shape is None or None in shape:
            raise UntranslatableError
        return tuple(extent for extent in shape if extent is not None)

    def integers_if_known(self, position: int) -> tuple[int, ...] | None:
        """Return the integers of a constant input as a flat tuple; None if the values are unknown."""
        values = self.constants(self.node.inputs[position])
        return None if values is None else tuple(int(number) for number in values.reshape(-1))

    def integers(self, position: int) -> tuple[int, ...]:
        """Return the integers of a constant input as a flat tuple."""
        values = self.integers_if_known(position)
        if values is None:
            raise UntranslatableError
        return values

    def constant_values(self, name: str) -> np.ndarray:
        """Return the values of a constant."""
        array = self.constants(name)
        if array is None:
            raise UntranslatableError
        return array

    def new_name(self, title: str) -> str:
        """Return a name for a new constant input of this node."""
        return f"{title} of {self.node.name!r}"

    def as_onnx(
        self,
        op: str = "",
        attrs: Mapping[str, AttrValue] | None = None,
        *,
        domain: str = "",
        inputs: tuple[str, ...] | None = None,
        permutations: Mapping[str, tuple[int, ...]] | None = None,
        merged_constants: frozenset[str] = frozenset(),
        constants: Mapping[str, np.ndarray] | None = None,
    ) -> Translated:
        """Return the node with an ONNX operator and attributes.

        Args:
            op: The operator; by default that of `plain`.
            attrs: The attributes, besides `channels_last`, which is kept.
            domain: The operator's domain.
            inputs: The inputs; by default those of the node.
            permutations: As for `Translated`.
            merged_constants: As for `Translated`.
            constants: New constants, by the title that was passed to `new_name`.
        """
        kept_attrs = {name: self.node.attrs[name] for name in ("channels_last",) if name in self.node.attrs}
        node = replace(
            self.node,
            op=op or self.plain.op,
            domain=domain,
            attrs={**kept_attrs, **(attrs or {})},
            inputs=self.node.inputs if inputs is None else inputs,
        )
        new_constants = {self.new_name(title): frozen_array(values) for title, values in (constants or {}).items()}
        return Translated(
            node=node,
            permutations=MappingProxyType(dict(permutations or {})),
            merged_constants=merged_constants,
            constants=MappingProxyType(new_constants),
        )


Rule = Callable[[ForeignNode], Translated]
"""Translates a node to ONNX, or raises `UntranslatableError`."""


def to_flag(value: object) -> int:
    """Return 1 for a value that means true, as a boolean, a number or a word; 0 for any other value."""
    return int(str(value).lower() in ("true", "1"))


def reshape(foreign: ForeignNode) -> Translated:
    """Translate a reshape, which the output extents define completely."""
    shape = foreign.extents(foreign.node.outputs[0])
    return foreign.as_onnx("Reshape", {"shape": shape, "allowzero": 1}, inputs=foreign.node.inputs[:1])


def reduce_axes(foreign: ForeignNode, axes: tuple[int, ...] | None) -> Translated:
    """Translate a reduction. The output extents determine whether dimensions are kept, and must match the axes.

    Args:
        foreign: The node.
        axes: The axes; None if they are a second input with unknown values.
    """
    input_extents, output_extents = (
        foreign.extents(name) for name in (foreign.node.inputs[0], foreign.node.outputs[0])
    )
    keepdims = int(len(input_extents) == len(output_extents))
    if axes is None:
        return foreign.as_onnx(attrs={"keepdims": keepdims})
    reduced_axes = {axis % len(input_extents) for axis in axes} if axes else set(range(len(input_extents)))
    remaining_extents = tuple(
        1 if axis in reduced_axes else extent
        for axis, extent in enumerate(input_extents)
        if keepdims or axis not in reduced_axes
    )
    if remaining_extents != output_extents:
        raise UntranslatableError
    return foreign.as_onnx(
        attrs={"axes": tuple(sorted(reduced_axes)), "keepdims": keepdims}, inputs=foreign.node.inputs[:1]
    )


def prelu_by_channel(foreign: ForeignNode) -> Translated:
    """Translate a PRelu. A one-dimensional slope is per channel, which is (channels, 1, ...) in ONNX."""
    data, slope = foreign.node.inputs
    rank, extents = len(foreign.extents(data)), foreign.extents(slope)
    if len(extents) != 1 or extents == (1,) or rank < 3:
        return foreign.as_onnx()
    slopes = foreign.constant_values(slope)
    if foreign.graph.tensors[slope].quant is not None:
        raise UntranslatableError
    return foreign.as_onnx(
        inputs=(data, foreign.new_name("slope")), constants={"slope": slopes.reshape(-1, *(1,) * (rank - 2))}
    )


def reduce_by_input(foreign: ForeignNode) -> Translated:
    """Translate a reduction whose axes are its second input."""
    return reduce_axes(foreign, foreign.integers_if_known(1))


def transpose_by_input(foreign: ForeignNode) -> Translated:
    """Translate a transpose whose permutation is its second input. If that is empty, all dimensions are reversed."""
    rank = len(foreign.extents(foreign.node.inputs[0]))
    order = foreign.integers(1) or tuple(reversed(range(rank)))
    return foreign.as_onnx("Transpose", {"perm": order}, inputs=foreign.node.inputs[:1])


def slice_axes(
    foreign: ForeignNode,
    starts: Sequence[int],
    ends: Sequence[int],
    steps: Sequence[int],
    *,
    axes: Sequence[int] | None = None,
    unbounded: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Translated:
    """Translate a slice.

    Args:
        foreign: The node.
        starts: First index along each axis.
        ends: End index (exclusive) along each axis; an index beyond the array means its end.
        steps: Steps along each axis; negative steps go backwards.
        axes: The axes; the first dimensions if None.
        unbounded: For starts and for ends, 1 for each axis on which the index is ignored, so that the slice is not
            bounded there.
    """
    start_indices, end_indices = list(starts), list(ends)
    for position, step in enumerate(steps):
        if any(unbounded[0][position : position + 1]):
            start_indices[position] = 0 if step > 0 else _FAR
        if any(unbounded[1][position : position + 1]):
            end_indices[position] = _FAR if step > 0 else -_FAR
    sliced_axes = range(len(start_indices)) if axes is None else axes
    bounds = {"starts": tuple(start_indices), "ends": tuple(end_indices), "axes": tuple(sliced_axes)}
    if set(steps) <= {1}:
        return foreign.as_onnx("Slice", bounds, inputs=foreign.node.inputs[:1])
    bounds["steps"] = tuple(steps)
    inputs = (foreign.node.inputs[0], *map(foreign.new_name, bounds))
    return foreign.as_onnx(
        "Slice", inputs=inputs, constants={title: np.array(bound_values) for title, bound_values in bounds.items()}
    )


_FAR = int(np.iinfo(np.int64).max)
"""An index beyond the end of any array."""


PAD_MODES: Mapping[object, str] = MappingProxyType(
    {
        "constant": "constant",
        "reflect": "reflect",
        "REFLECT": "reflect",
        0: "reflect",
        "edge": "edge",
        "replicate": "edge",
        "circular": "wrap",
    }
)
"""ONNX's padding modes, by their names in all frameworks. Modes that also repeat the border are missing in ONNX."""


def pad_dimensions(foreign: ForeignNode, pads: tuple[int, ...], mode: object, *, value: str = "") -> Translated:
    """Translate a padding.

    Args:
        foreign: The node.
        pads: The widths before each dimension, followed by the widths after each dimension.
        mode: The padding mode, as the framework names it.
        value: The input with the fill value; "" without one.
    """
    if mode not in PAD_MODES or len(pads) != 2 * len(foreign.extents(foreign.node.inputs[0])):
        raise UntranslatableError
    inputs = (foreign.node.inputs[0], "", value) if value else foreign.node.inputs[:1]
    return foreign.as_onnx("Pad", {"pads": pads, "mode": PAD_MODES[mode]}, inputs=inputs)


def unary(foreign: ForeignNode) -> Translated:
    """Translate a function of one input. Attributes that its name implies are kept."""
    if len(foreign.node.inputs) != 1:
        raise UntranslatableError
    return foreign.as_onnx(
        attrs={name: foreign.plain.attrs[name] for name in ("min", "max", "alpha") if name in foreign.plain.attrs}
    )


def binary(foreign: ForeignNode) -> Translated:
    """Translate a function of two inputs."""
    if len(foreign.node.inputs) != 2:
        raise UntranslatableError
    return foreign.as_onnx()


REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd")
"""Reductions over axes, under their ONNX names."""
UNARY_FUNCTIONS = (
    "Relu",
    "Clip",
    "Sigmoid",
    "Tanh",
    "HardSwish",
    "Abs",
    "Neg",
    "Exp",
    "Log",
    "Sqrt",
    "Rsqrt",
    "Floor",
    "Ceil",
    "Sin",
    "Cos",
    "Erf",
    "Softplus",
    "Softsign",
    "Mish",
)
"""Functions of one input without attributes, or with attributes that their names imply."""
