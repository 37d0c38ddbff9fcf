"""What was said of a node of another framework, and the rules that several frameworks share."""

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
    "Rule",
    "Said",
    "Translated",
    "Unsaid",
    "by_channel",
    "flag",
    "no_constants",
    "one",
    "padded",
    "reduced",
    "reduced_by_input",
    "reshape",
    "sliced",
    "turned_by_input",
    "two",
]

CONTRIBUTED = "com.microsoft"
"""Domain of the operators that ONNX Runtime adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """A node as ONNX says it.

    Args:
        node: The node.
        turns: Constants whose dimensions ONNX has in another order: the order that they are turned into.
        merged: Constants whose first two dimensions ONNX has as one.
        constants: Constants that ONNX has and the framework has not, by their new names: it states them otherwise.
    """

    node: Node
    turns: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    merged: frozenset[str] = frozenset()
    constants: Mapping[str, np.ndarray] = field(default_factory=lambda: MappingProxyType({}))


Constants = Callable[[str], np.ndarray | None]
"""Returns the values of a constant by its name; None if it is none, or not kept."""


def no_constants(name: str) -> None:
    """Know no constant."""


class Unsaid(Exception):  # noqa: N818  it is no error: the node stays as it is
    """Something that the result depends on was not recorded, or has no equal in ONNX."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What was said of a node."""

    node: Node
    plain: Node
    graph: Graph
    constants: Constants

    def stated(self, *names: str) -> Any:
        """Return the first attribute of some names that is stated."""
        for name in names:
            if name in self.node.attrs:
                return self.node.attrs[name]
        raise Unsaid

    def optional(self, default: Any, *names: str) -> Any:
        """Return the first attribute of some names that is stated, or the default that the framework defines."""
        return next((self.node.attrs[name] for name in names if name in self.node.attrs), default)

    def sizes(self, count: int, *names: str, default: Any = None) -> tuple[int, ...]:
        """Return an attribute of one number, or of one for each dimension, as one for each."""
        value = self.stated(*names) if default is None else self.optional(default, *names)
        numbers = tuple(int(each) for each in value) if isinstance(value, tuple | list) else (int(value),)
        if len(numbers) not in (1, count):
            raise Unsaid
        return numbers * count if len(numbers) == 1 else numbers

    def extents(self, tensor: str) -> tuple[int, ...]:
        """Return the extents of a tensor."""
        info = self.graph.tensors.get(tensor)
        shape = None if info is None else info.shape
        if shape is None or None in shape:
            raise Unsaid
        return tuple(extent for extent in shape if extent is not None)

    def known(self, position: int) -> tuple[int, ...] | None:
        """Return the whole numbers of a constant input, in a row; None if they are not known."""
        values = self.constants(self.node.inputs[position])
        return None if values is None else tuple(int(each) for each in values.reshape(-1))

    def numbers(self, position: int) -> tuple[int, ...]:
        """Return the whole numbers of a constant input, in a row."""
        found = self.known(position)
        if found is None:
            raise Unsaid
        return found

    def values(self, name: str) -> np.ndarray:
        """Return the values of a constant."""
        found = self.constants(name)
        if found is None:
            raise Unsaid
        return found

    def new(self, what: str) -> str:
        """Return the name of a constant that ONNX has as an input of this node, and the framework has not."""
        return f"{what} of {self.node.name!r}"

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
        """Return the node with an operator and attributes of ONNX; `constants` are called by what `new` is told."""
        kept = {name: self.node.attrs[name] for name in ("channels_last",) if name in self.node.attrs}
        node = replace(
            self.node,
            op=op or self.plain.op,
            domain=domain,
            attrs={**kept, **(attrs or {})},
            inputs=self.node.inputs if inputs is None else inputs,
        )
        made = {self.new(what): frozen_array(values) for what, values in (constants or {}).items()}
        return Translated(
            node=node,
            turns=MappingProxyType(dict(turns or {})),
            merged=merged,
            constants=MappingProxyType(made),
        )


Rule = Callable[[Said], Translated]
"""Says a node as ONNX does; raises `Unsaid` where it cannot."""


def flag(value: object) -> int:
    """Return 1 for what is true, as a truth value, a number or a word."""
    return int(str(value).lower() in ("true", "1"))


def reshape(said: Said) -> Translated:
    """The extents of the result say all that a reshape does."""
    shape = said.extents(said.node.outputs[0])
    return said.as_onnx("Reshape", {"shape": shape, "allowzero": 1}, inputs=said.node.inputs[:1])


def reduced(said: Said, axes: tuple[int, ...] | None) -> Translated:
    """Return a reduction; the extents of the result say whether dimensions are kept, and must fit the axes.

    Args:
        said: What was said.
        axes: The axes; None if a second input has them and its values are not known.
    """
    before, after = (said.extents(name) for name in (said.node.inputs[0], said.node.outputs[0]))
    keepdims = int(len(before) == len(after))
    if axes is None:
        return said.as_onnx(attrs={"keepdims": keepdims})
    gone = {axis % len(before) for axis in axes} if axes else set(range(len(before)))
    left = tuple(1 if axis in gone else n for axis, n in enumerate(before) if keepdims or axis not in gone)
    if left != after:
        raise Unsaid
    return said.as_onnx(attrs={"axes": tuple(sorted(gone)), "keepdims": keepdims}, inputs=said.node.inputs[:1])


def by_channel(said: Said) -> Translated:
    """Return a PRelu; a slope of one dimension is one for each channel, which ONNX has as (channels, 1, ...)."""
    data, slope = said.node.inputs
    rank, extents = len(said.extents(data)), said.extents(slope)
    if len(extents) != 1 or extents == (1,) or rank < 3:
        return said.as_onnx()
    slopes = said.values(slope)
    if said.graph.tensors[slope].quant is not None:
        raise Unsaid
    return said.as_onnx(inputs=(data, said.new("slope")), constants={"slope": slopes.reshape(-1, *(1,) * (rank - 2))})


def reduced_by_input(said: Said) -> Translated:
    """Return a reduction whose axes are its second input."""
    return reduced(said, said.known(1))


def turned_by_input(said: Said) -> Translated:
    """Return a transposition whose order is its second input; an empty one turns all dimensions around."""
    rank = len(said.extents(said.node.inputs[0]))
    order = said.numbers(1) or tuple(reversed(range(rank)))
    return said.as_onnx("Transpose", {"perm": order}, inputs=said.node.inputs[:1])


def sliced(
    said: Said,
    starts: Sequence[int],
    ends: Sequence[int],
    steps: Sequence[int],
    *,
    axes: Sequence[int] | None = None,
    free: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Translated:
    """Return a Slice.

    Args:
        said: What was said.
        starts: The first place along each axis.
        ends: The place after the last one; beyond the array means all that is left.
        steps: How far places lie apart; backwards where it is negative.
        axes: The axes; the first dimensions if None.
        free: For starts and ends, 1 for each axis along which the array's own end is meant and not the number.
    """
    firsts, lasts = list(starts), list(ends)
    for at, step in enumerate(steps):
        if any(free[0][at : at + 1]):
            firsts[at] = 0 if step > 0 else _FAR
        if any(free[1][at : at + 1]):
            lasts[at] = _FAR if step > 0 else -_FAR
    along = range(len(firsts)) if axes is None else axes
    given = {"starts": tuple(firsts), "ends": tuple(lasts), "axes": tuple(along)}
    if set(steps) <= {1}:
        return said.as_onnx("Slice", given, inputs=said.node.inputs[:1])
    given["steps"] = tuple(steps)
    inputs = (said.node.inputs[0], *map(said.new, given))
    return said.as_onnx("Slice", inputs=inputs, constants={what: np.array(each) for what, each in given.items()})


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
"""What is put around an array, in the words of each framework; what repeats the border too has no equal in ONNX."""


def padded(said: Said, pads: tuple[int, ...], mode: object, *, value: str = "") -> Translated:
    """Return a Pad by widths before and after all dimensions, one after the other.

    Args:
        said: What was said.
        pads: The widths.
        mode: What is put there, in the framework's word.
        value: The input that is put there, if there is one.
    """
    if mode not in BORDERS or len(pads) != 2 * len(said.extents(said.node.inputs[0])):
        raise Unsaid
    inputs = (said.node.inputs[0], "", value) if value else said.node.inputs[:1]
    return said.as_onnx("Pad", {"pads": pads, "mode": BORDERS[mode]}, inputs=inputs)


def one(said: Said) -> Translated:
    """Return a node that computes a function of one input; what the word itself says beyond that is kept."""
    if len(said.node.inputs) != 1:
        raise Unsaid
    return said.as_onnx(
        attrs={name: said.plain.attrs[name] for name in ("min", "max", "alpha") if name in said.plain.attrs}
    )


def two(said: Said) -> Translated:
    """Return a node that computes a function of two inputs."""
    if len(said.node.inputs) != 2:
        raise Unsaid
    return said.as_onnx()


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
"""Functions of one input whose attributes their names say."""
