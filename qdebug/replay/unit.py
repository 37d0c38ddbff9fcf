"""A quantized operator as codes in, codes out: the one form that every way of computing it starts from.

A `Unit` is made of a node with quantized operands (`unit_calls`), or of a plain operator whose operands are codes
(`unit_codes`). It says what is computed, never how: that is a `Variant`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

import numpy as np

from qdebug.errors import KernelError
from qdebug.model import AttrValue
from qdebug.model.dtypes import code_limits, logical_dtype, logical_name
from qdebug.model.frozen import frozen_mapping, rebuild
from qdebug.model.quant import QuantParams, is_same_scale
from qdebug.replay.blockwise import elementwise

__all__ = ["KINDS", "PAIRS", "Operand", "Target", "Unit", "target_of"]

PAIRS: tuple[str, ...] = ("add", "sub", "mul", "div", "prelu", "squared_difference")
"""Kinds that combine two operands element by element."""
KINDS: tuple[str, ...] = (
    "conv", "linear", *PAIRS, "average_pool", "global_average_pool", "reduce_mean", "max_pool", "lookup", "softmax",
    "concat", "where", "resize", "pad", "requantize", "quantize", "dequantize",
)  # fmt: skip
"""What a unit computes. `lookup` is any function of one code; `requantize` also stands for Relu and Clip."""


_PLANE = 2
"""Axes that are interpolated along at once."""
_PLACINGS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


def _centred(codes: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    wide = codes.astype(np.int32)
    if np.any(zero_point):
        wide -= zero_point.astype(np.int32)
    return wide


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operand:
    """A quantized tensor that a unit reads.

    Args:
        codes: Stored integers of at most 16 bits; real values for `quantize`.
        scale: One value, or an array that broadcasts to `codes`; as stored, mostly float32.
        zero_point: The same for the code of real 0, in a dtype that holds it.
    """

    codes: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray

    @property
    def centred(self) -> np.ndarray:
        """The codes minus the zero point, in int32."""
        return elementwise(_centred, self.codes, self.zero_point)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Target:
    """The quantization of what a unit gives.

    Args:
        dtype: Dtype of the codes; a float dtype for `dequantize`.
        scale: One value, or an array that broadcasts to the output.
        zero_point: The same for the code of real 0.
        low: Lowest code in use; the dtype's if left out.
        high: Highest code in use; the dtype's if left out.
        clamp: Bounds of a fused activation, in codes; None where there is none.
        multiplier: Integer multiplier that the backend recorded, one or one per channel; None where it recorded none.
        shift: The shift that goes with it.
    """

    dtype: np.dtype
    scale: np.ndarray
    zero_point: np.ndarray
    low: int | None = None
    high: int | None = None
    clamp: tuple[int, int] | None = None
    multiplier: np.ndarray | None = None
    shift: np.ndarray | None = None

    def __post_init__(self) -> None:
        low, high = code_limits(logical_name(self.dtype))
        object.__setattr__(self, "low", low if self.low is None else int(self.low))
        object.__setattr__(self, "high", high if self.high is None else int(self.high))

    @property
    def limits(self) -> tuple[int, int]:
        """Lowest and highest code that can come out of a saturating step.

        Raises:
            ValueError: The output is real and has none.
        """
        if self.low is None or self.high is None:
            raise ValueError(f"{self.dtype} has no codes")
        return self.low, self.high


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unit:
    """One quantized operator with its operands. Arrays are shared with whoever made it, and never written to.

    Args:
        kind: One of `KINDS`.
        operands: What it reads: input and weight of a conv (M, C / groups, *kernel) or linear (..., K, N); both sides
            of an element-wise operator; the tensors that are joined or chosen from. Spatial axes follow the channels.
        out: Quantization of what it gives.
        bias: Integers at the scale of the sums, or real numbers; one per filter, or broadcasting to the output of a
            linear. None without.
        bias_scale: Scale of an integer bias where it is not that of the sums; None where it is.
        attrs: Attributes as ONNX has them: strides, pads, dilations, group, kernel_shape, axis, ...
        function: The operator, as ONNX names it, whose kernel a lookup or a move of elements runs: Sigmoid, Resize, ...
        condition: The choice of `where`.
        settings: Inputs that are no data: widths of a pad, scales and sizes of a resize, in the operator's order.
        channels_last: Whether the node's own layout has its channels last; operands are turned to channels first,
            and the output is turned back.
        transposed: Whether a conv is the transposed one, with a weight (C, M / groups, *kernel).
        opset: Version of the operator set that the attributes are read by.
        op: The node's operator, for messages.
        domain: The set of operators that it and its function are of.
    """

    kind: str
    operands: tuple[Operand, ...]
    out: Target
    bias: np.ndarray | None = None
    bias_scale: np.ndarray | None = None
    attrs: Mapping[str, AttrValue] = field(default_factory=lambda: MappingProxyType({}))
    function: str = ""
    condition: np.ndarray | None = None
    settings: tuple[np.ndarray | None, ...] = ()
    channels_last: bool = False
    transposed: bool = False
    opset: int = 1000
    op: str = ""
    domain: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}; expected one of {KINDS}")
        object.__setattr__(self, "attrs", frozen_mapping(self.attrs))

    def __reduce__(self) -> tuple[object, ...]:
        plain = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return rebuild, (Unit, plain | {"attrs": dict(self.attrs)})

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Logical dtypes of the operands, then of the output: what evidence may be pooled over, beside the kind."""
        return (*(logical_name(operand.codes.dtype) for operand in self.operands), logical_name(self.out.dtype))

    @property
    def branch(self) -> str:
        """Return what of its kind it is, where backends have a kernel for each; empty of any other kind.

        Of a lookup that is its function, of a resize how it interpolates and whether channels lie last, of an average
        whether codes mean the same before and after it, of a conv whether it is a depthwise or a transposed one.
        """
        if self.kind == "lookup":
            return self.function
        if self.kind == "resize":
            return _interpolation(self)
        if self.kind == "average_pool":
            return "same-scale" if self.keeps_scale else ""
        if self.kind == "conv" and not self.transposed:
            return "depthwise" if self.groups == self.operands[0].codes.shape[1] != 1 else ""
        return "transposed" if self.kind == "conv" else ""

    @property
    def groups(self) -> int:
        """Number of groups of a conv.

        Raises:
            KernelError: The attribute is no number.
        """
        value = self.attrs.get("group", 1)
        if not isinstance(value, (int, float, np.integer)):
            raise KernelError(f"Attribute 'group' of {self.op} is {value!r}; expected an integer.")
        return int(value)

    @property
    def keeps_scale(self) -> bool:
        """Whether a code means the same in the first operand as in the output."""
        source, out = self.operands[0], self.out
        return is_same_scale(source.scale, out.scale) and np.array_equal(source.zero_point, out.zero_point)

    @property
    def per_channel(self) -> bool:
        """Whether any operand has more than one scale."""
        return any(operand.scale.size > 1 for operand in self.operands)


def _interpolation(unit: Unit) -> str:
    """Name how a resize interpolates: linear between four neighbours in a plane, or otherwise."""
    mode = str(unit.attrs.get("mode", "nearest"))
    if mode != "linear":
        return mode
    axes = _resized(unit)
    placing = unit.attrs.get("coordinate_transformation_mode", "half_pixel")
    if unit.attrs.get("antialias") or len(axes) > _PLANE or placing not in _PLACINGS:
        return "linear-general"
    rank = unit.operands[0].codes.ndim
    return "linear-channels-last" if any(axis < rank - _PLANE for axis in axes) else "linear"


def _resized(unit: Unit) -> list[int]:
    """List the axes that a resize changes."""
    shape = unit.operands[0].codes.shape
    axes = np.asarray(unit.attrs.get("axes", range(len(shape))), np.int64).reshape(-1) % max(len(shape), 1)
    for given in unit.settings:  # the region of a resize has twice as many values as sizes and scales
        if given is not None and given.size == axes.size:
            before = np.asarray(shape)[axes] if given.dtype.kind in "iu" else np.ones(axes.size)
            return [int(axis) for axis in axes[given.reshape(-1) != before]]
    return []


def target_of(quant: QuantParams, *, clamp: tuple[int, int] | None = None) -> Target:
    """Return the target that quantization parameters of one value each describe."""
    return Target(
        dtype=logical_dtype(quant.dtype),
        scale=quant.scale.reshape(()),
        zero_point=quant.zero_point.reshape(()),
        low=quant.qmin,
        high=quant.qmax,
        clamp=clamp,
        multiplier=quant.multiplier,
        shift=quant.shift,
    )
