"""A quantized operator between codes: the common input of all arithmetics.

A `Unit` is made from a node with quantized operands, or from a plain operator on codes (see `node_units`). It states
what is computed. A `Variant` states how.
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
"""Kinds of unit that combine two operands element by element."""
KINDS: tuple[str, ...] = (
    "conv", "linear", *PAIRS, "average_pool", "global_average_pool", "reduce_mean", "max_pool", "lookup", "softmax",
    "concat", "where", "resize", "pad", "requantize", "quantize", "dequantize",
)  # fmt: skip
"""Kinds of unit. `lookup` is any function of a single code; `requantize` includes Relu and Clip."""


_PLANE = 2
"""Maximum number of axes interpolated at once."""
_PLACINGS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


def _centred(codes: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    wide = codes.astype(np.int32)
    if np.any(zero_point):
        wide -= zero_point.astype(np.int32)
    return wide


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operand:
    """A quantized input of a unit.

    Args:
        codes: Stored integers of at most 16 bits; real values for `quantize`.
        scale: One value, or an array that broadcasts to `codes`; as stored, usually float32.
        zero_point: The code of real 0, shaped like `scale`, in a dtype that can hold it.
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
    """The quantization of a unit's output.

    Args:
        dtype: Dtype of the codes; a float dtype for `dequantize`.
        scale: One value, or an array that broadcasts to the output.
        zero_point: The code of real 0, shaped like `scale`.
        low: Lowest code in use; the dtype's by default.
        high: Highest code in use; the dtype's by default.
        clamp: Bounds of a fused activation, in codes; None without an activation.
        multiplier: Recorded integer multiplier, one or one per channel; None if not recorded.
        shift: The shift of the multiplier.
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
        """Lowest and highest code that a saturating step can produce."""
        if self.low is None or self.high is None:
            raise ValueError(f"{self.dtype} has no codes")
        return self.low, self.high


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unit:
    """One quantized operator with its operands. Arrays are shared with the caller and never modified.

    Args:
        kind: One of `KINDS`.
        operands: Input and weight of a conv (M, C / groups, *kernel) or linear (..., K, N); both sides of an
            element-wise operator; the tensors to join or select from. Spatial axes follow the channels.
        out: Quantization of the output.
        bias: Integers at the scale of the sums, or real numbers; one per filter, or broadcasting to the output of a
            linear. None without a bias.
        bias_scale: Scale of an integer bias; None for the scale of the sums.
        attrs: Attributes as in ONNX: strides, pads, dilations, group, kernel_shape, axis, ...
        function: ONNX operator whose kernel computes a lookup or moves elements: Sigmoid, Resize, ...
        condition: The condition of `where`.
        settings: Inputs that are not data: widths of a pad, scales and sizes of a resize, in the operator's order.
        channels_last: Whether the node's own layout is channels-last; operands are converted to channels first, and the
            output back.
        transposed: Whether a conv is transposed, with a weight (C, M / groups, *kernel).
        opset: Version of the operator set of the attributes.
        op: The node's operator, for error messages.
        domain: Domain of the operator and its function.
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
        """Logical dtypes of the operands, then of the output. Evidence is pooled by these dtypes and the kind."""
        return (*(logical_name(operand.codes.dtype) for operand in self.operands), logical_name(self.out.dtype))

    @property
    def branch(self) -> str:
        """Return the branch for kinds of unit for which backends have several kernels; empty for other kinds.

        The branch of a lookup is its function. A resize is divided by its interpolation and by whether channels are
        last, an average by whether input and output have equal quantization, and a conv by whether it is depthwise or
        transposed.
        """
        if self.kind == "lookup":
            return self.function
        if self.kind == "resize":
            return _interpolation_branch(self)
        if self.kind == "average_pool":
            return "same-scale" if self.keeps_scale else ""
        if self.kind == "conv" and not self.transposed:
            return "depthwise" if self.groups == self.operands[0].codes.shape[1] != 1 else ""
        return "transposed" if self.kind == "conv" else ""

    @property
    def groups(self) -> int:
        """Number of groups of a conv.

        Raises:
            KernelError: The attribute is not an integer.
        """
        value = self.attrs.get("group", 1)
        if not isinstance(value, (int, float, np.integer)):
            raise KernelError(f"Attribute 'group' of {self.op} is {value!r}; expected an integer.")
        return int(value)

    @property
    def keeps_scale(self) -> bool:
        """Whether the first operand and the output have equal scale and zero point."""
        source, out = self.operands[0], self.out
        return is_same_scale(source.scale, out.scale) and np.array_equal(source.zero_point, out.zero_point)

    @property
    def per_channel(self) -> bool:
        """Whether any operand has several scales."""
        return any(operand.scale.size > 1 for operand in self.operands)


def _interpolation_branch(unit: Unit) -> str:
    """Return the interpolation of a resize: linear between four neighbours in a plane, or other."""
    mode = str(unit.attrs.get("mode", "nearest"))
    if mode != "linear":
        return mode
    axes = _resized_axes(unit)
    placing = unit.attrs.get("coordinate_transformation_mode", "half_pixel")
    if unit.attrs.get("antialias") or len(axes) > _PLANE or placing not in _PLACINGS:
        return "linear-general"
    rank = unit.operands[0].codes.ndim
    return "linear-channels-last" if any(axis < rank - _PLANE for axis in axes) else "linear"


def _resized_axes(unit: Unit) -> list[int]:
    """List the axes that a resize changes."""
    shape = unit.operands[0].codes.shape
    axes = np.asarray(unit.attrs.get("axes", range(len(shape))), np.int64).reshape(-1) % max(len(shape), 1)
    for values in unit.settings:  # skips the region of a resize, which has two values per axis
        if values is not None and values.size == axes.size:
            before = np.asarray(shape)[axes] if values.dtype.kind in "iu" else np.ones(axes.size)
            return [int(axis) for axis in axes[values.reshape(-1) != before]]
    return []


def target_of(quant: QuantParams, *, clamp: tuple[int, int] | None = None) -> Target:
    """Return a target with the given per-tensor quantization parameters."""
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
