"""The choices that an operator's definition leaves open and that backends make differently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from qdebug.model.frozen import frozen_mapping
from qdebug.replay.unit import KINDS, Unit
from qdebug.replay.variant import Variant, parse_variant

__all__ = ["DEFAULTS", "Arithmetic", "keys_of", "kind_of"]

_INSIDE = parse_variant("steps=mul,zp,even,sat")
_WIDE_SOFTMAX = parse_variant("form=exp32 steps=div,even,zp,sat")
_RESCALED = parse_variant("steps=scale,div,even,zp,sat")
_QUOTIENT = parse_variant("steps=div,even,zp,sat")

DEFAULTS: Mapping[str, Variant] = MappingProxyType(
    dict.fromkeys(KINDS, Variant())
    | {
        "add": parse_variant("form=fold-fma steps=even,sat"),
        "sub": parse_variant("form=fold-fma steps=even,sat"),
        "mul": _INSIDE,
        "div": parse_variant("form=deq steps=div,even,zp,sat"),
        "average_pool": parse_variant("form=taps steps=div,zp,even,sat"),
        "lookup": parse_variant("form=table steps=div,even,zp,sat"),
        "lookup.Sigmoid": parse_variant("form=mlas steps=div,even,zp,sat"),
        **dict.fromkeys(("global_average_pool", "reduce_mean"), parse_variant("m=f32:x/(y*n)")),
        "softmax": parse_variant("form=ort steps=even,zp,sat"),
        "concat": _RESCALED,
        "where": _RESCALED,
        "quantize": _QUOTIENT,
        "dequantize": parse_variant("steps=scale"),
        "requantize": _RESCALED,
        "max_pool": _RESCALED,
        "resize": parse_variant("form=blend32 steps=trunc,sat"),
        "resize.linear-channels-last": parse_variant("form=blend10 steps=shr.trunc,sat"),
        "pad": _RESCALED,
    }
)
"""What ONNX Runtime's x86 kernels compute, by kind of unit, or by kind and branch (see `Unit.branch`)."""


_PLANAR = frozenset({"grid10", "blend10", "blend11", "blend32", "rows32", "lerp", "lerp-fma"})
"""Forms of a bilinear resize, which no other is computed by."""


def keys_of(kind: str, branch: str, dtypes: Sequence[str]) -> tuple[str, ...]:
    """Give the keys of `Arithmetic.variants` that name some units, those that say more first.

    Args:
        kind: Their kind.
        branch: Their branch of it; empty if the kind has none.
        dtypes: Logical dtypes of operands and output.
    """
    names = (f"{kind}.{branch}", kind) if branch else (kind,)
    return tuple(key for name in names for key in (f"{name}:{','.join(dtypes)}", name))


def kind_of(key: str) -> str:
    """Give the kind of unit that a key of `Arithmetic.variants` names."""
    return key.partition(":")[0].partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """How quantized kernels compute where the operator's definition allows more than one way.

    Float kernels take no notice of it.

    Args:
        variants: Variants by kind of unit ("conv"), or by kind and branch ("lookup.HardSwish", see `Unit.branch`),
            either of them with the dtypes of operands and output ("conv:uint8,int8,uint8"). What says more goes first,
            a branch before dtypes. What is not named takes `DEFAULTS`.
        name: What it is called.

    Raises:
        ValueError: A key names no kind.
    """

    variants: Mapping[str, Variant] = field(default_factory=lambda: MappingProxyType({}))
    name: str = "onnxruntime"

    def __post_init__(self) -> None:
        for key in self.variants:
            if kind_of(key) not in KINDS:
                raise ValueError(f"{key!r} names no kind of unit; expected one of {KINDS}")
        object.__setattr__(self, "variants", frozen_mapping(self.variants))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (dict(self.variants), self.name)

    @property
    def interpolates(self) -> bool:
        """Whether it says how codes are interpolated."""
        return any(kind_of(key) == "resize" and variant.form in _PLANAR for key, variant in self.variants.items())

    def variant(self, unit: Unit) -> Variant:
        """Give the variant that computes a unit.

        What works on codes as they are stored knows no scales: where input and output differ in theirs, the default is
        taken in its place.
        """
        keys = keys_of(unit.kind, unit.branch, unit.dtypes)
        for key in keys:
            if key in self.variants and _fits(self.variants[key], unit):
                return self.variants[key]
        # The table that the default softmax looks exponentials up in is one of 8-bit codes.
        wide = unit.kind == "softmax" and unit.operands[0].codes.dtype.itemsize > 1
        if wide:
            return _WIDE_SOFTMAX
        # What is no interpolation between codes of one scale moves codes, and brings them to another.
        default = next(DEFAULTS[key] for key in keys if key in DEFAULTS)
        return default if _fits(default, unit) else _RESCALED


def _fits(variant: Variant, unit: Unit) -> bool:
    """Tell whether a variant of the unit's kind can compute this one."""
    if variant.form in _PLANAR:
        return unit.branch in ("linear", "linear-channels-last") and unit.keeps_scale
    if variant.form == "exp31":
        return bool(np.all(unit.out.scale == 2.0 ** (-8 * unit.out.dtype.itemsize)))
    return variant.form != "raw" or unit.keeps_scale


def _rebuilt(variants: Mapping[str, Variant], name: str) -> Arithmetic:
    return Arithmetic(variants=variants, name=name)
