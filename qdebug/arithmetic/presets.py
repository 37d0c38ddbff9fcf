"""Presets: the arithmetics of known backends by name, with their provenance.

A row of `ROWS` states the known variants of a backend. Kinds of unit that it does not state are computed as in ONNX
Runtime's x86 kernels. `Preset.states` lists the stated kinds. A package may compute differently on different
processors, as the names show. Fingerprints measured by `qdebug probe` are presets too. `qdebug.replay` defines the
words of a variant, with formulas and sources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from types import MappingProxyType

from qdebug.arithmetic.fingerprints import Fingerprint, fingerprint_name, packaged
from qdebug.arithmetic.floats.search import Placement
from qdebug.errors import UsageError
from qdebug.model import RunInfo
from qdebug.replay.scaling import GIVEN
from qdebug.replay.variant import DEFAULTS, Arithmetic, Variant, kind_of, parse_variant, variant_keys

__all__ = [
    "ALIASES",
    "DEFAULT_PRESET",
    "PROVENANCES",
    "ROWS",
    "KnownRuntime",
    "Preset",
    "is_known",
    "known_presets",
    "names_of",
    "other_sums",
    "preset",
]

_EVEN_AFTER, _EVEN_IN = "steps=mul,even,zp,sat", "steps=mul,zp,even,sat"
_AWAY_AFTER, _AWAY_IN = "steps=mul,away,zp,sat", "steps=mul,zp,away,sat"
_DOUBLE, _DOUBLE_UP = "m=q31:d:xw/y steps=shl,mulhi.up,shr.away,zp,sat", "m=q31:d:xw/y steps=shl,mulhi.up,shr.up,zp,sat"
_SINGLE_UP, _SINGLE_AWAY = "m=q31:d:xw/y steps=mul,shr.up,zp,sat", "m=q31:d:xw/y steps=mul,shr.away,zp,sat"
_RNDNU, _MANTISSA = "m=m24 steps=mul,shr.up,zp,sat", "m=m24s7 steps=mulhi.up,shr.away,zp,sat"
_RNDNU16 = "m=m15 steps=pre.up,sat16,mulhi.up,zp,sat"
_GLOW = "m=glow steps=pre.floor,mul,wrap32,shr.up,wrap32,zp,sat"
_POWER, _UNFUSED = "m=pow2 steps=shr.up,zp,sat", "steps=scale,div,even,zp,sat"
_ADD_DOUBLE = "form=ls shift=20 m=q31:d:xw/y operand=shl,mulhi.up,shr.away steps=shl,mulhi.up,shr.away,zp,sat"
_ADD_MIXED = "form=ls shift=20 m=q31:d:xw/y operand=mul,shr.up steps=shl,mulhi.up,shr.away,zp,sat"
_ADD_GLOW = "form=each m=glow operand=pre.floor,mul,wrap32,shr.up steps=zp,sat"
_ADD_TVM = "form=each m=q31:d:xw/y operand=mul,shr.away steps=zp,sat"
_RAW_MEAN, _STEPPED = "form=raw m=q31 steps=avg.away,sat", "form=stepped steps=div,zp,even,sat"
_QUANTIZE_IN, _QUANTIZE_AWAY = "steps=div,zp,even,sat", "steps=div,away,zp,sat"
_TABLE_AWAY = "form=table steps=div,away,zp,sat"
_TABLE, _HARD_SWISH = "form=table steps=div,even,zp,sat", "form=hswish16 steps=shr.away,zp,sat"
_EXP31, _EXP32 = "form=exp31 steps=zp,sat", "form=exp32 steps=div,even,zp,sat"
_GRID, _COUNTED = "form=grid10 steps=shr.away,sat", "form=counted steps=shl,mulhi.up,shr.away,zp,sat"
_LEVELS = "steps=lev,even,low,sat"
_HALF, _HALF_CUT = "lev16,even,low,sat", "lev16-fma,half,trunc,low,sat"
_GLOBAL_MEAN = "m=f32:x/(y*n)"
_COMMON = "form=common20 steps=shr.up,zp,sat"
_SATURATED = ("conv:uint8,int8,uint8", "conv:uint8,int8,int8", "linear:uint8,int8,uint8", "linear:uint8,int8,int8")


PROVENANCES: Mapping[str, str] = MappingProxyType(
    {
        "measured": "every element of probes and networks was reproduced on this version and processor",
        "source": "read in the backend's source, not run",
        "memory": "from general knowledge of the backend, neither run nor read",
        "file": "a file written by a search or by hand",
    }
)
"""The provenances of an arithmetic, with their meaning."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Preset:
    """A named arithmetic.

    Args:
        name: Its name.
        provenance: How it is known: a key of `PROVENANCES`.
        about: The measurement or the source.
        variants: Variants by kind of unit, or by kind and dtypes, as in `Arithmetic`.
        fused: Whether the backend computes groups of a QDQ graph as one node on codes.
        aliases: Other names for it.
        apart: Provenance of the kinds whose provenance differs from that of the preset.
        backend: The backend that was probed, or "" if the preset is not a fingerprint.
        also: Second variants by kind, which the backend uses for nodes that neither types nor branch distinguish.
        roundings: Placements of roundings in float nodes, by keys as in `qdebug.arithmetic.floats.rounded`.
    """

    name: str
    provenance: str
    about: str
    variants: Mapping[str, Variant]
    fused: bool = True
    aliases: tuple[str, ...] = ()
    apart: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    backend: str = ""
    also: Mapping[str, Variant] = field(default_factory=lambda: MappingProxyType({}))
    roundings: Mapping[str, Placement] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def arithmetic(self) -> Arithmetic:
        """The variants of the preset as an arithmetic."""
        return Arithmetic(variants=self.variants, name=self.name)

    def known(self, kind: str) -> str:
        """Return the provenance of a kind's arithmetic: a key of `PROVENANCES`."""
        return self.apart.get(kind, self.provenance)

    @property
    def states(self) -> tuple[str, ...]:
        """Keys of the stated variants: kinds of unit, or kinds with dtypes. All other kinds use the default."""
        return tuple(self.variants)

    def variant(self, kind: str) -> Variant:
        """Return the variant of a kind of unit, regardless of dtypes."""
        return self.variants.get(kind, DEFAULTS[kind])


def _parse(texts: Mapping[str, str]) -> dict[str, Variant]:
    return {key: parse_variant(text) for key, text in texts.items()}


def _with_products(text: str, **variants_by_kind: str) -> dict[str, Variant]:
    """Return the given variant for convolutions and matrix products, together with variants for other kinds."""
    return _parse({"conv": text, "linear": text, **variants_by_kind})


def _with_pair_sums(text: str) -> dict[str, Variant]:
    """Return a variant for products, with pair sums that saturate at 16 bits for unsigned codes and signed weights."""
    return _with_products(text) | dict.fromkeys(_SATURATED, parse_variant(f"acc=pairsat16:hwc {text}"))


def _tflite_functions(leaky: str, softmax: str, table: str) -> dict[str, str]:
    """Return the texts for TensorFlow Lite's functions of codes: tables, except for those in fixed point."""
    fixed = {"lookup.HardSwish": _HARD_SWISH} | ({"softmax": softmax} if softmax == _EXP31 else {})
    typed = {f"{key}:{dtype},{dtype}": text for key, text in fixed.items() for dtype in ("int8", "uint8")}
    untyped = {} if softmax == _EXP31 else {"softmax": softmax}
    return {"lookup": table, "lookup.LeakyRelu": leaky} | untyped | typed


_LEAKY = "form=leaky m=q31 operand=shl,mulhi.up,shr.away steps=zp,sat"
_SQUARES = "form=ls shift=7 m=q31:d:xw/y operand=shl,mulhi.up,shr.away steps=shl,mulhi.up,shr.away,zp,sat"
_ROOT = "form=root31 steps=shl,mulhi.up,shr.away,zp,sat"
_REFERENCE = _parse(
    {
        "mul": _DOUBLE,
        "add": _ADD_DOUBLE,
        "sub": _ADD_DOUBLE,
        "prelu": "form=slopes m=q31:d:xw/y operand=shl,mulhi.up,shr.away steps=zp,sat",
        "average_pool": _RAW_MEAN,
        "squared_difference": _SQUARES,
        "reduce_mean": _COUNTED,
        "requantize": _DOUBLE,
        "resize": _GRID,
        "quantize": _QUANTIZE_AWAY,
        "lookup.Rsqrt": _ROOT,
    }
    | _tflite_functions(_LEAKY, softmax=_EXP31, table=_TABLE_AWAY)
    | {"conv:uint8,uint8,uint8": _DOUBLE.replace("d:xw/y", "d:f(xw)/y")}
    | {"resize:uint8,uint8": "form=corners32 steps=plus,sat"}
)
"""Variants of TensorFlow Lite's reference kernels, except for products."""


_REAL_BIAS = "bias=float steps=scale,bias,inv,even,zp,sat"
_TORCH = {
    "resize": "form=lerp steps=mul,zp,even,sat",
    "resize.linear-channels-last": "form=lerp-fma steps=mul,zp,even,sat",
    "concat": "steps=scale,inv,zp,even,sat",
    "global_average_pool": _GLOBAL_MEAN,
    "lookup": _TABLE,
    "softmax": _EXP32,
}
"""Variants of the kinds that PyTorch computes the same way with every engine."""


ROWS = (
    Preset(
        name="onnx-spec",
        provenance="source",
        about="the operators' definitions, node by node; where they leave a choice, as ONNX Runtime on x86",
        variants={},
        fused=False,
    ),
    Preset(
        name="ort-mlas",
        provenance="measured",
        about="ONNX Runtime 1.31.1 on x86 with AVX512-VNNI; mlas/lib/quantize.cpp, qladd.cpp",
        variants=DEFAULTS,
        apart=dict.fromkeys(
            ("sub", "div", "prelu", "squared_difference", "reduce_mean", "where", "requantize"), "memory"
        ),
    ),
    Preset(
        name="ort-mlas-avx2-nonvnni",
        provenance="measured",
        about="ONNX Runtime 1.31.1 on an emulated Haswell: uint8 x int8 saturates sums of pairs to 16 bits",
        variants=_with_pair_sums(_EVEN_AFTER),
    ),
    Preset(
        name="ort-arm",
        provenance="source",
        about="onnxruntime mlas/lib/qladd.cpp, the NEON code",
        variants=_with_products(_EVEN_AFTER, add="form=common21 steps=shr.away,zp,sat"),
    ),
    Preset(
        name="float-unfused",
        provenance="source",
        about="dequantize, compute in float32, quantize: a QDQ graph without fusion",
        variants=_with_products(_UNFUSED),
        fused=False,
    ),
    Preset(
        name="xnnpack-fp32",
        provenance="measured",
        about="ai-edge-litert 2.3.0 with its default kernels; xnnpack/requantization.h",
        variants=_with_products(
            _EVEN_AFTER,
            mul=_EVEN_AFTER,
            add=_COMMON,
            sub=_COMMON,
            average_pool=_RAW_MEAN,
            global_average_pool=_GLOBAL_MEAN,
            reduce_mean="form=offset steps=mul,zp,even,sat",
            requantize="m=p8 steps=mul,shr.up,zp,sat",
            resize="form=blend11 steps=shr.up,sat",
            quantize=_QUANTIZE_IN,
            squared_difference=_SQUARES,
            **{"lookup.Rsqrt": _ROOT},
            **_tflite_functions("form=leaky m=p8 operand=mul,shr.up steps=zp,sat", softmax=_EXP32, table=_TABLE),
        ),
        aliases=("tflite-default",),
        apart={"quantize": "source"},
    ),
    Preset(
        name="xnnpack-rndnu",
        provenance="source",
        about="xnnpack/requantization.h: 24 bits of the multiplier, one shift, ties up",
        variants=_with_products(_RNDNU, average_pool=_RNDNU),
    ),
    Preset(
        name="xnnpack-rndnu16",
        provenance="source",
        about="xnnpack/requantization.h and gemm-config.c: 15 bits of the multiplier, for NEON kernels of uint8",
        variants=_with_products(_RNDNU16),
    ),
    Preset(
        name="qnnpack",
        provenance="source",
        about="qnnpack/requantization.h: a float's 24 bits as fixed point, two roundings",
        variants=_with_products(_MANTISSA, average_pool=_RNDNU, add="form=common21 steps=shr.away,zp,sat"),
    ),
    Preset(
        name="torch-qnnpack-x86",
        provenance="measured",
        about="torch 2.13.0, engine qnnpack on x86",
        variants=_with_products(
            _EVEN_AFTER,
            mul=_EVEN_AFTER,
            add="form=common21 steps=shr.away,zp,sat",
            quantize=_QUANTIZE_IN,
            reduce_mean=_GLOBAL_MEAN,
            **_TORCH,
        ),
    ),
    Preset(
        name="fbgemm",
        provenance="measured",
        about="torch 2.13.0, engine fbgemm on x86 with VNNI; fbgemm RefImplementations.cc",
        variants=_with_products(
            _EVEN_AFTER,
            mul=_EVEN_AFTER,
            add="form=deq-fma steps=inv,even,zp,sat",
            quantize=_QUANTIZE_IN,
            reduce_mean=_EVEN_IN,
            **_TORCH,
        ),
        also=_with_products(_REAL_BIAS),
    ),
    Preset(
        name="fbgemm-nonvnni",
        provenance="measured",
        about="torch 2.13.0, engine fbgemm on an emulated Haswell",
        variants=_with_pair_sums(_EVEN_AFTER) | _parse({"add": "form=deq-fma steps=inv,even,zp,sat"}),
        apart={"conv": "memory"},
    ),
    Preset(
        name="onednn",
        provenance="measured",
        about="torch 2.13.0, engines onednn and x86, with VNNI: the zero point is added before rounding",
        variants=_with_products(
            _EVEN_IN,
            mul=_EVEN_AFTER,
            add="form=deq-fma steps=inv,even,zp,sat",
            quantize=_QUANTIZE_IN,
            reduce_mean=_EVEN_IN,
            **_TORCH,
        ),
        aliases=("torch-x86",),
        apart={"linear": "memory"},
        also=_with_products(_REAL_BIAS),
    ),
    Preset(
        name="onednn-nonvnni",
        provenance="measured",
        about="torch 2.13.0, engine onednn on an emulated Haswell (linear), inductor on AVX2; convolutions follow",
        variants=_with_pair_sums(_EVEN_IN),
        apart={"conv": "memory"},
        also=_parse(
            {
                "conv": "acc=pairsat16:tap bias=float steps=scale,bias,inv,zp,even,sat",
                "linear": "acc=pairsat16:hwc bias=float steps=scale,bias,inv,zp,even,sat",
            }
        ),
    ),
    Preset(
        name="openvino-cpu",
        provenance="measured",
        about="openvino 2026.4.1 on x86 with AMX, operators between Q and DQ; average pools on AVX2",
        variants=_with_products(
            _EVEN_IN,
            average_pool="form=levels-raw steps=even,zp,sat",
            quantize="form=levels steps=even,zp,sat",
            add=f"form=onto-second {_LEVELS}",
            concat=_LEVELS,
            lookup=f"form=table {_LEVELS}",
            **{"conv.depthwise": "bias=float steps=scale,bias,lev-fma,even,low,sat"},
            **dict.fromkeys(("sub", "mul", "div", "prelu"), f"form=deq {_LEVELS}"),
        ),
        apart={"linear": "memory"},
        also=_parse({"conv": "form=levels-fma acc=pairsat16:tap steps=even,sat"}),
    ),
    Preset(
        name="openvino-cpu-f16",
        provenance="measured",
        about="openvino 2026.4.1 on x86 with AMX in float16, operators between Q and DQ",
        variants=_with_products(
            f"bias=float steps=scale,bias,{_HALF}",
            **dict.fromkeys(("concat", "requantize"), f"steps=scale,{_HALF}"),
            add=f"form=deq steps={_HALF}",
            lookup=f"form=table steps={_HALF_CUT}",
            **dict.fromkeys(("sub", "mul", "div"), f"form=deq steps={_HALF_CUT}"),
        ),
        also=_parse({"conv": f"steps=scale,{_HALF}"}),
    ),
    Preset(
        name="gemmlowp",
        provenance="measured",
        about="LiteRT 2.3.0, reference kernels but for FULLY_CONNECTED; tflite-micro; gemmlowp fixedpoint.h; CMSIS-NN",
        variants=_with_products(_DOUBLE)
        | _REFERENCE
        | _parse(
            dict.fromkeys(("lookup.Sigmoid:int8,int8", "lookup.Tanh:int8,int8"), "form=fixed31 steps=shr.away,zp,sat")
        ),
        aliases=("cmsis-nn", "tflite-micro"),
    ),
    Preset(
        name="tflite-reference",
        provenance="measured",
        about="LiteRT 2.3.0, reference kernels: convolutions round twice, FULLY_CONNECTED once, half away",
        variants=_with_products(_DOUBLE, linear=_SINGLE_AWAY) | _REFERENCE,
    ),
    Preset(
        name="tflite-opt-avx",
        provenance="measured",
        about="LiteRT 2.3.0, optimized kernels on AVX2 and AVX-512: both roundings half up",
        variants=_with_products(_DOUBLE_UP)
        | _REFERENCE
        | _parse(
            {"add": _ADD_MIXED, "sub": _ADD_MIXED, "requantize": _DOUBLE_UP, "quantize": "steps=inv,even,zp,sat"}
            | _tflite_functions(_LEAKY, softmax=_EXP32, table=_TABLE_AWAY)
            | dict.fromkeys(
                ("lookup.Sigmoid:int16,int16", "lookup.Tanh:int16,int16"), "form=fixed16 steps=shr.away,zp,sat"
            )
            | {"conv:uint8,uint8,uint8": _DOUBLE_UP.replace("d:xw/y", "d:f(xw)/y")}
            | {"resize:uint8,uint8": "form=weights32 steps=plus,sat"}
        ),
        also=_parse({"reduce_mean": "form=offset m=q31:x/(y*n) steps=shl,mulhi.up,shr.up,zp,sat"}),
    ),
    Preset(
        name="tflite-opt-sse4",
        provenance="measured",
        about="LiteRT 2.3.0, optimized CONV_2D on an emulated Nehalem; ruy/apply_multiplier.cc",
        variants=_with_products(_SINGLE_UP),
        aliases=("ruy", "tflite-single-rounding", "cmsis-nn-single", "tosa-single"),
        apart={"linear": "source"},
    ),
    Preset(
        name="tvm-qnn-tonearest",
        provenance="source",
        about="TVM Relay qnn.requantize, TONEAREST, in 64 bits",
        variants=_with_products(_SINGLE_AWAY, add=_ADD_TVM),
    ),
    Preset(
        name="tvm-relay-pow2",
        provenance="source",
        about="TVM relay/quantize/realize.cc: scales are powers of two, and so is the multiplier",
        variants=_with_products(_POWER),
    ),
    Preset(
        name="glow-interpreter",
        provenance="source",
        about="glow Interpreter/InterpreterNodes.cpp: float32, ties away from zero",
        variants=_with_products(
            _AWAY_IN,
            linear=_AWAY_AFTER,
            mul=_AWAY_AFTER,
            add="form=fixed15 steps=mul,zp,away,sat",
            sub="form=ratio steps=zp,away,sat",
            average_pool=_AWAY_IN,
            lookup=_STEPPED,
            quantize=_QUANTIZE_IN,
        ),
    ),
    Preset(
        name="glow-cpu",
        provenance="source",
        about="glow libjit_defs.h: shift, an 8-bit multiplier, shift",
        variants=_with_products(
            _GLOW,
            mul=_GLOW,
            add=_ADD_GLOW,
            sub=_ADD_GLOW,
            average_pool=_GLOW,
            lookup=_STEPPED,
            quantize=_QUANTIZE_IN,
        ),
    ),
    Preset(
        name="mxnet",
        provenance="source",
        about="mxnet operator/quantization: dequantize, add one half, truncate; no zero point",
        variants=_with_products(_AWAY_AFTER),
    ),
)
"""The presets that are not fingerprints."""


DEFAULT_PRESET = "onnx-spec"
"""Name of the preset for a backend with unknown arithmetic."""


def _preset_of_fingerprint(fingerprint: Fingerprint) -> Preset:
    """Return a fingerprint as a preset, with one variant from each class.

    The variant is the one that fits the kind for most types. Ties go to the variant of the measured row that agrees
    best with the fingerprint, then to any variant of a measured row, then to the first.
    """
    measured_rows = [row for row in ROWS if row.provenance == "measured"]
    measured_variants = {variant for row in measured_rows for variant in row.variants.values()}
    type_counts = Counter(
        (kind_of(key), variant) for key, variants in fingerprint.kinds.items() for variant in variants
    )
    nearest_row = max(
        measured_rows,
        key=lambda row: sum(
            1 if row_variant in fit else -1 for row_variant, fit in _pair_with_row(row, fingerprint) if row_variant
        ),
    )
    nearest = dict(
        zip(
            fingerprint.kinds,
            (row_variant for row_variant, _ in _pair_with_row(nearest_row, fingerprint)),
            strict=True,
        )
    )
    variants_by_key = {
        key: max(
            variants,
            key=lambda variant: (
                type_counts[kind_of(key), variant],
                variant == nearest[key],
                variant in measured_variants,
            ),
        )
        for key, variants in fingerprint.kinds.items()
    }
    return Preset(
        name=fingerprint.name,
        provenance="measured",
        about=f"{fingerprint.about}, by probes",
        variants=variants_by_key,
        backend=fingerprint.backend,
    )


def _pair_with_row(row: Preset, fingerprint: Fingerprint) -> Iterator[tuple[Variant | None, tuple[Variant, ...]]]:
    """Yield, for each kind of a fingerprint, the variant that a row states, or None, and the measured variants."""
    for key, variants in fingerprint.kinds.items():
        keys = dict.fromkeys((key, key.partition(":")[0], kind_of(key)))
        yield next((row.variants[key] for key in keys if key in row.variants), None), variants


@cache
def known_presets() -> Mapping[str, Preset]:
    """Return all presets by name: `ROWS`, and one for each packaged fingerprint.

    Fingerprints are read on the first call, not on import, so that a comparison starts sooner.
    """
    return MappingProxyType({row.name: row for row in (*ROWS, *map(_preset_of_fingerprint, packaged().values()))})


ALIASES: Mapping[str, str] = MappingProxyType({alias: one.name for one in ROWS for alias in one.aliases})
"""Names of presets by alias."""


def preset(name: str) -> Preset:
    """Return a preset by its name or an alias.

    Raises:
        UsageError: There is no preset of this name.
    """
    name = ALIASES.get(name, name)
    if name not in known_presets():
        near_names = get_close_matches(name.lower().replace("_", "-"), known_presets(), n=3)
        suggestion = f" Near names: {', '.join(near_names)}." if near_names else ""
        raise UsageError(
            f"There is no arithmetic {name!r}.{suggestion} Known arithmetics are {', '.join(known_presets())}.",
            hint="Choose one, or give the path of a file that qdebug explain --write-arithmetic wrote.",
        )
    return known_presets()[name]


def other_sums() -> Mapping[str, Arithmetic]:
    """Return a preset's arithmetic for each known way to accumulate products in fewer than 32 bits, by description."""
    by_sums: dict[str, Arithmetic] = {}
    for row in ROWS:
        for variant in row.variants.values():
            if variant.limited_sums is not None:
                by_sums.setdefault(variant.limited_sums, row.arithmetic)
    return by_sums


@dataclass(frozen=True, slots=True)
class KnownRuntime:
    """What fingerprints know about the runtime of a run: for its exact version, kernels and processor, or its backend.

    Args:
        run: Facts of the run.
    """

    run: RunInfo

    @property
    def own(self) -> str:
        """Name of the fingerprint for its exact version, kernels and processor, whether that exists or not."""
        return fingerprint_name(self.run.to_dict())

    @property
    def arithmetic(self) -> Arithmetic:
        """The arithmetic from the fingerprints of its backend. Its own fingerprint takes precedence."""
        presets = known_presets()
        variant_tables = [
            presets[name].variants for name in self.ordered(presets) if presets[name].backend == self.run.backend
        ]
        merged = {key: variant for variants in reversed(variant_tables) for key, variant in variants.items()}
        return Arithmetic(variants=merged) if merged and self.run.backend else Arithmetic()

    def ordered(self, names: Iterable[str]) -> list[str]:
        """Sort names of presets: its own fingerprint first, then those of its backend, then all others."""
        own_name, backend = self.own, self.run.backend
        return sorted(
            names, key=lambda name: (name != own_name, not backend or known_presets()[name].backend != backend)
        )

    def variants(self, kind: str, dtypes: tuple[str, ...] = (), branch: str = "") -> frozenset[Variant]:
        """Return the variant of a kind of unit from its own fingerprint, or else those of all of its backend's.

        Args:
            kind: The kind of unit.
            dtypes: Dtypes of operands and output.
            branch: The branch of the kind.
        """
        stating = self._variants_by_preset(kind, dtypes, branch)
        own_variant = stating.get(self.own)
        return frozenset(stating.values() if own_variant is None else (own_variant,))

    def variant(self, kind: str, dtypes: tuple[str, ...] = (), branch: str = "") -> Variant | None:
        """Return the variant of a kind of unit from its own fingerprint, or None if that states none.

        Fingerprints of other versions or processors prove nothing about this one.

        Args:
            kind: The kind of unit.
            dtypes: Dtypes of operands and output.
            branch: The branch of the kind.
        """
        return self._variants_by_preset(kind, dtypes, branch).get(self.own)

    def _variants_by_preset(self, kind: str, dtypes: tuple[str, ...], branch: str) -> dict[str, Variant]:
        keys = variant_keys(kind, branch, dtypes)
        return {
            name: next(known_preset.variants[key] for key in keys if key in known_preset.variants)
            for name, known_preset in known_presets().items()
            if known_preset.backend
            and known_preset.backend == self.run.backend
            and not known_preset.variants.keys().isdisjoint(keys)
        }


@cache
def _all_preset_variants() -> frozenset[Variant]:
    return frozenset(
        variant
        for known_preset in known_presets().values()
        for variants in (known_preset.variants, known_preset.also)
        for variant in variants.values()
    )


def is_known(variant: Variant) -> bool:
    """Return whether a variant belongs to any preset, or uses a recorded multiplier."""
    return variant.multiplier.number == GIVEN or variant in _all_preset_variants()


def names_of(variant: Variant, kind: str, dtypes: tuple[str, ...] = (), branch: str = "") -> tuple[str, ...]:
    """Return the names of the presets that state a variant for a kind of unit."""
    keys = variant_keys(kind, branch, dtypes)

    def states(known_preset: Preset) -> bool:
        stated_variant = next((known_preset.variants[key] for key in keys if key in known_preset.variants), None)
        return variant in (stated_variant, known_preset.also.get(kind))

    return tuple(name for name, known_preset in known_presets().items() if states(known_preset))
