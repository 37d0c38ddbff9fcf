"""A node of another framework as recorded, and translation rules that several frameworks share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.model.frozen import frozen_array
from qdebug.model.graph import AttrValue, Graph, Node

__all__ = [
    "BORDERS",
    "CONTRIBUTED",
    "REDUCTIONS",
    "SIMPLE",
    "Constants",
    "ForeignNode",
    "Rule",
    "Translated",
    "UntranslatableError",
    "binary",
    "by_channel",
    "flag",
    "no_constants",
    "padded",
    "reduced",
    "reduced_by_input",
    "reshape",
    "sliced",
    "turned_by_input",
    "unary",
]

CONTRIBUTED = "com.microsoft"
"""Domain of the operators that ONNX Runtime adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """A node translated into ONNX.

    Args:
        node: The node.
        turns: Permutations of constants whose dimensions have another order in ONNX.
        merged: Constants whose first two dimensions are one in ONNX.
        constants: New constants, by name: the framework states them otherwise.
    """

    node: Node
    turns: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    merged: frozenset[str] = frozenset()
    constants: Mapping[str, np.ndarray] = field(default_factory=lambda: MappingProxyType({}))


Constants = Callable[[str], np.ndarray | None]
"""Returns the values of a constant by its name; None if it is no constant, or not recorded."""


def no_constants(name: str) -> None:
    """Return None for any name, if no constants are known."""


class UntranslatableError(Exception):
    """Something that the result depends on was not recorded, or has no equal in ONNX."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignNode:
    """A node of another framework with access to its recorded attributes, extents and constants."""

    node: Node
    plain: Node
    graph: Graph
    constants: Constants

    def stated(self, *names: str) -> Any:
        """Return the first stated attribute of some names."""
        for name in names:
            if name in self.node.attrs:
                return self.node.attrs[name]
        raise UntranslatableError

    def optional(self, default: Any, *names: str) -> Any:
        """Return the first stated attribute of some names, or the framework's default."""
        return next((self.node.attrs[name] for name in names if name in self.node.attrs), default)

    def sizes(self, count: int, *names: str, default: Any = None) -> tuple[int, ...]:
        """Return an attribute of one number, or of one for each dimension, as one for each."""
        value = self.stated(*names) if default is None else self.optional(default, *names)
        numbers = tuple(int(each) for each in value) if isinstance(value, tuple | list) else (int(value),)
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

    def known(self, position: int) -> tuple[int, ...] | None:
        """Return the integers of a constant input, flat; None if unknown."""
        values = self.constants(self.node.inputs[position])
        return None if values is None else tuple(int(each) for each in values.reshape(-1))

    def numbers(self, position: int) -> tuple[int, ...]:
        """Return the integers of a constant input, flat."""
        values = self.known(position)
        if values is None:
            raise UntranslatableError
        return values

    def values(self, name: str) -> np.ndarray:
        """Return the values of a constant."""
        array = self.constants(name)
        if array is None:
            raise UntranslatableError
        return array

    def new(self, title: str) -> str:
        """Return a name for a new constant input of this node."""
        return f"{title} of {self.node.name!r}"

    def as_onnx(
        self,
        op: str = "",
        attrs: Mapping[str, AttrValue] | None = None,
        *,
        domain: str = "",
        inputs: tuple[str, ...] | None = None,
        turns: Mapping[str, tuple[int, ...]] | None = None,
        merged: frozenset[str] = frozenset(),
        constants: Mapping[str, np.ndarray] | None = None,
    ) -> Translated:
        """Return the node with an operator and attributes of ONNX; `constants` have the keys passed to `new`."""
        kept_attrs = {name: self.node.attrs[name] for name in ("channels_last",) if name in self.node.attrs}
        node = replace(
            self.node,
            op=op or self.plain.op,
            domain=domain,
            attrs={**kept_attrs, **(attrs or {})},
            inputs=self.node.inputs if inputs is None else inputs,
        )
        new_constants = {self.new(title): frozen_array(values) for title, values in (constants or {}).items()}
        return Translated(
            node=node,
            turns=MappingProxyType(dict(turns or {})),
            merged=merged,
            constants=MappingProxyType(new_constants),
        )


Rule = Callable[[ForeignNode], Translated]
"""Translates a node into ONNX; raises `UntranslatableError` if it cannot."""


def flag(value: object) -> int:
    """Return 1 for a true value: a boolean, a number or a word."""
    return int(str(value).lower() in ("true", "1"))


def reshape(foreign: ForeignNode) -> Translated:
    """Translate a reshape; the output extents define it completely."""
    shape = foreign.extents(foreign.node.outputs[0])
    return foreign.as_onnx("Reshape", {"shape": shape, "allowzero": 1}, inputs=foreign.node.inputs[:1])


def reduced(foreign: ForeignNode, axes: tuple[int, ...] | None) -> Translated:
    """Translate a reduction; the output extents tell whether dimensions are kept, and must fit the axes.

    Args:
        foreign: The node.
        axes: The axes; None if a second input states them and its values are unknown.
    """
    input_extents, output_extents = (
        foreign.extents(name) for name in (foreign.node.inputs[0], foreign.node.outputs[0])
    )
    keepdims = int(len(input_extents) == len(output_extents))
    if axes is None:
        return foreign.as_onnx(attrs={"keepdims": keepdims})
    reduced_axes = {axis % len(input_extents) for axis in axes} if axes else set(range(len(input_extents)))
    remaining_extents = tuple(
        1 if axis in reduced_axes else n for axis, n in enumerate(input_extents) if keepdims or axis not in reduced_axes
    )
    if remaining_extents != output_extents:
        raise UntranslatableError
    return foreign.as_onnx(
        attrs={"axes": tuple(sorted(reduced_axes)), "keepdims": keepdims}, inputs=foreign.node.inputs[:1]
    )


def by_channel(foreign: ForeignNode) -> Translated:
    """Translate a PRelu; a one-dimensional slope is per channel, in ONNX (channels, 1, ...)."""
    data, slope = foreign.node.inputs
    rank, extents = len(foreign.extents(data)), foreign.extents(slope)
    if len(extents) != 1 or extents == (1,) or rank < 3:
        return foreign.as_onnx()
    slopes = foreign.values(slope)
    if foreign.graph.tensors[slope].quant is not None:
        raise UntranslatableError
    return foreign.as_onnx(
        inputs=(data, foreign.new("slope")), constants={"slope": slopes.reshape(-1, *(1,) * (rank - 2))}
    )


def reduced_by_input(foreign: ForeignNode) -> Translated:
    """Translate a reduction whose axes are its second input."""
    return reduced(foreign, foreign.known(1))


def turned_by_input(foreign: ForeignNode) -> Translated:
    """Translate a transposition whose order is its second input; an empty one reverses all dimensions."""
    rank = len(foreign.extents(foreign.node.inputs[0]))
    order = foreign.numbers(1) or tuple(reversed(range(rank)))
    return foreign.as_onnx("Transpose", {"perm": order}, inputs=foreign.node.inputs[:1])


def sliced(
    foreign: ForeignNode,
    starts: Sequence[int],
    ends: Sequence[int],
    steps: Sequence[int],
    *,
    axes: Sequence[int] | None = None,
    free: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Translated:
    """Translate a slice.

    Args:
        foreign: The node.
        starts: First index along each axis.
        ends: End index (exclusive); beyond the array for its end.
        steps: Steps; negative to go backwards.
        axes: The axes; the first dimensions if None.
        free: For starts and ends, 1 for each axis that begins or ends at the array's own end instead.
    """
    firsts, lasts = list(starts), list(ends)
    for at, step in enumerate(steps):
        if any(free[0][at : at + 1]):
            firsts[at] = 0 if step > 0 else _FAR
        if any(free[1][at : at + 1]):
            lasts[at] = _FAR if step > 0 else -_FAR
    sliced_axes = range(len(firsts)) if axes is None else axes
    bounds = {"starts": tuple(firsts), "ends": tuple(lasts), "axes": tuple(sliced_axes)}
    if set(steps) <= {1}:
        return foreign.as_onnx("Slice", bounds, inputs=foreign.node.inputs[:1])
    bounds["steps"] = tuple(steps)
    inputs = (foreign.node.inputs[0], *map(foreign.new, bounds))
    return foreign.as_onnx("Slice", inputs=inputs, constants={what: np.array(each) for what, each in bounds.items()})


_FAR = int(np.iinfo(np.int64).max)
"""A place beyond every array."""


BORDERS: Mapping[object, str] = MappingProxyType(
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
"""Padding modes by the words of each framework; modes that repeat the border too are missing in ONNX."""


def padded(foreign: ForeignNode, pads: tuple[int, ...], mode: object, *, value: str = "") -> Translated:
    """Translate a padding by widths before all dimensions, then after all dimensions.

    Args:
        foreign: The node.
        pads: The widths.
        mode: The padding mode, in the framework's word.
        value: The input with the fill value, if there is one.
    """
    if mode not in BORDERS or len(pads) != 2 * len(foreign.extents(foreign.node.inputs[0])):
        raise UntranslatableError
    inputs = (foreign.node.inputs[0], "", value) if value else foreign.node.inputs[:1]
    return foreign.as_onnx("Pad", {"pads": pads, "mode": BORDERS[mode]}, inputs=inputs)


def unary(foreign: ForeignNode) -> Translated:
    """Translate a function of one input; attributes that its name implies are kept."""
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
"""Reductions over axes, as ONNX names them."""
SIMPLE = (
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
