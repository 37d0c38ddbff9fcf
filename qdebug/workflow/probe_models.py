"""Small nets that tell arithmetics apart: sums next to ties, scales that are powers of two and others that are not.

Random data hardly tells two roundings apart. Here each sum is chosen: of all integers that a kernel can reach, those
whose requantized value lies nearest to half way between two codes. Element-wise operators get every pair of codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from qdebug.workflow.probe_groups import changes_of_scale, grouped, means, resizes
from qdebug.workflow.probe_net import (
    DOMAIN,
    SEED,
    NetBuilder,
    ProbeModel,
    chosen_sums,
    encoded,
    tap_weights,
)

__all__ = ["PROBED", "probe_models"]

_PLACES = 1024
"""Chosen sums of a node."""

# Scales of input, weight and output and the output's zero point, counted from the middle code. A requantizer that is
# exact for powers of two shows its ties there; the others were picked because they part the most known variants.
_PRODUCTS: tuple[tuple[float, float, float, int], ...] = (
    (2.0**-4, 2.0**-6, 2.0**3, 3),
    (2.0**-4, 2.0**-6, 2.0**3, -4),
    (0.0214582, 0.0018968, 0.335999, -3),
    (0.0150638, 0.0017538, 0.185498, 5),
    (0.1542773, 0.0055264, 7.444438, 5),
    (0.10238, 0.0059336, 4.367452, -5),
)
# Scales of both inputs and of the output, and the three zero points. Simple ratios give ties that are none exactly.
_SUMS: tuple[tuple[float, float, float, int, int, int], ...] = (
    (2.0**-4, 2.0**-5, 2.0**-3, 3, -5, 7),
    (2.0**-4, 2.0**-4, 2.0**-3, 2, 4, -6),
    (0.009029, 0.0135435, 0.018058, -5, -9, 1),
    (0.0839565, 0.2518695, 0.167913, 11, -3, 3),
    (0.1368864, 0.0874309, 0.137418, -9, -3, -3),
    (0.0052223, 0.0101674, 0.01302, -3, 7, -5),
)
_PAIR_PRODUCTS: tuple[tuple[float, float, float, int, int, int], ...] = (
    (2.0**-4, 2.0**-5, 2.0**-2, 3, -5, 7),
    (2.0**-4, 2.0**-4, 2.0**-1, 2, 4, -6),
    (0.0280951, 0.0152914, 0.04345, 5, -3, 11),
    (0.1532959, 0.0383557, 0.571644, -1, 7, 11),
    (0.0414461, 0.0175299, 0.07328, 11, -9, 11),
)
# Scales of input and output and their zero points.
_MEANS: tuple[tuple[float, float, int, int], ...] = (
    (0.03, 0.03, 3, 3),
    (2.0**-5, 2.0**-6, 5, 7),
    (0.02315, 0.014153, -3, 5),
    (0.0105084, 0.0070056, -3, 3),
)

# Scale and zero point of a function's input.
_FUNCTIONS: tuple[tuple[float, int], ...] = (
    (2.0**-4, -5),
    (0.0223923, -3),
    (0.010896, 1),
    (0.1834232, 3),
    (0.0115691, 3),
    (0.0650531, 5),
)


def _middle(dtype: np.dtype) -> int:
    return 128 if dtype == np.uint8 else 0


def _types(*names: str) -> tuple[np.dtype, ...]:
    return tuple(np.dtype(name) for name in names)


_PRODUCT_TYPES = (_types("uint8", "int8"), _types("int8", "int8"), _types("uint8", "uint8"))


def _scales(x: float, w: float, y: float) -> float:
    return float(np.float32(x) * np.float32(w) / np.float32(y))


def _convolutions() -> Iterator[ProbeModel]:
    for x_type, w_type in _PRODUCT_TYPES:
        made = NetBuilder("conv", f"conv {x_type} x {w_type}")
        weight = (tap_weights().T + (0 if w_type == np.int8 else 131)).astype(w_type)[:, :, None, None]
        w_zero = 0 if w_type == np.int8 else 131
        x_zero = _middle(x_type)
        for x_scale, w_scale, y_scale, zero in _PRODUCTS:
            sums = chosen_sums(_scales(x_scale, w_scale, y_scale), _PLACES)
            codes = (encoded(sums) + x_zero).astype(x_type).T.reshape(1, -1, 32, _PLACES // 32)
            made.node(
                "QLinearConv",
                (
                    *(made.fed(codes), *made.pair(x_scale, x_zero, x_type)),
                    *(made.stored(weight), *made.pair(w_scale, w_zero, w_type)),
                    *made.pair(y_scale, _middle(x_type) + zero, x_type),
                ),
                x_type,
            )
        _dense(made, x_type, w_type)
        yield made.model()


def _dense(made: NetBuilder, x_type: np.dtype, w_type: np.dtype) -> None:
    """Add convolutions of codes of the whole range, per tensor and per channel: pairs of them exceed 16 bits."""
    rng = np.random.default_rng(SEED)
    x, weight = _every(rng, x_type, (1, 8, 20, 20)), _every(rng, w_type, (16, 8, 3, 3))
    bias = rng.integers(-20000, 20000, 16).astype(np.int32)
    for per_channel in (False, True):
        scales = np.linspace(0.002, 0.006, 16) if per_channel else np.asarray(0.00371)
        made.node(
            "QLinearConv",
            (
                *(made.fed(x), *made.pair(0.0213742, _middle(x_type) - 5, x_type)),
                *(made.stored(weight), *made.pair(scales, _middle(w_type), w_type)),
                *made.pair(0.1234321, _middle(x_type) + 7, x_type),
                made.stored(bias),
            ),
            x_type,
            pads=(1, 1, 1, 1),
        )


def _every(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def _matrices() -> Iterator[ProbeModel]:
    rng = np.random.default_rng(SEED)
    for x_type, w_type in _PRODUCT_TYPES:
        made = NetBuilder("linear", f"linear {x_type} x {w_type}")
        w_zero, x_zero = 0 if w_type == np.int8 else 131, _middle(x_type)
        weight = (tap_weights() + w_zero).astype(w_type)
        operands = [
            (scales, (encoded(chosen_sums(_scales(*scales[:3]), _PLACES)) + x_zero).astype(x_type), weight, w_zero)
            for scales in _PRODUCTS
        ]
        full = (0.0213742, 0.00371, 0.1234321, 7)
        operands.append((full, _every(rng, x_type, (64, 72)), _every(rng, w_type, (72, 16)), _middle(w_type)))
        for (x_scale, w_scale, y_scale, zero), codes, weights, its_zero in operands:
            made.node(
                "QLinearMatMul",
                (
                    *(made.fed(codes), *made.pair(x_scale, x_zero, x_type)),
                    *(made.stored(weights), *made.pair(w_scale, its_zero, w_type)),
                    *made.pair(y_scale, x_zero + zero, x_type),
                ),
                x_type,
            )
        yield made.model()


def _all_codes(dtype: np.dtype) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.arange(info.min, info.max + 1).astype(dtype)


def _pairs(kind: str, op: str) -> Iterator[ProbeModel]:
    for dtype in _types("uint8", "int8"):
        made = NetBuilder(kind, f"{kind} {dtype}")
        every, middle = _all_codes(dtype), _middle(dtype)
        a, b = (np.ascontiguousarray(array) for array in np.broadcast_arrays(every[:, None], every[None, :]))
        left, right = made.fed(a), made.fed(b)
        for a_scale, b_scale, scale, a_zero, b_zero, zero in _SUMS if kind == "add" else _PAIR_PRODUCTS:
            made.node(
                op,
                (
                    *(left, *made.pair(a_scale, middle + a_zero, dtype)),
                    *(right, *made.pair(b_scale, middle + b_zero, dtype)),
                    *made.pair(scale, middle + zero, dtype),
                ),
                dtype,
                domain=DOMAIN,
            )
        yield made.model()


def _pools() -> Iterator[ProbeModel]:
    rng = np.random.default_rng(SEED)
    for dtype in _types("uint8", "int8"):
        made = NetBuilder("average_pool", f"average_pool {dtype}")
        middle = _middle(dtype)
        x = made.fed(_every(rng, dtype, (1, 8, 24, 24)))
        for window in ((2, 2), (3, 3), (2, 3)):
            for in_scale, out_scale, in_zero, zero in _MEANS:
                made.node(
                    "QLinearAveragePool",
                    (x, *made.pair(in_scale, middle + in_zero, dtype), *made.pair(out_scale, middle + zero, dtype)),
                    dtype,
                    domain=DOMAIN,
                    kernel_shape=window,
                )
        yield made.model()


def _global_pools() -> Iterator[ProbeModel]:
    rng = np.random.default_rng(SEED)
    for dtype in _types("uint8", "int8"):
        made = NetBuilder("global_average_pool", f"global_average_pool {dtype}")
        middle = _middle(dtype)
        for side in (4, 7):
            x = made.fed(_every(rng, dtype, (8, 64, side, side)))
            for in_scale, out_scale, in_zero, zero in ((2.0**-5, 2.0**-8, 5, 7), (0.012543, 0.001327, 3, 7)):
                made.node(
                    "QLinearGlobalAveragePool",
                    (x, *made.pair(in_scale, middle + in_zero, dtype), *made.pair(out_scale, middle + zero, dtype)),
                    dtype,
                    domain=DOMAIN,
                )
        yield made.model()


def _functions() -> Iterator[ProbeModel]:
    """Compute functions of every code: those that have a form on codes, and one that has none."""
    for dtype in _types("uint8", "int8"):
        every, middle, low = _all_codes(dtype).reshape(1, 256), _middle(dtype), int(np.iinfo(dtype).min)
        for function in ("Sigmoid", "LeakyRelu", "HardSwish"):
            made = NetBuilder("lookup", f"lookup {function} {dtype}")
            for in_scale, in_zero in _FUNCTIONS:
                if function == "HardSwish":
                    grouped(made, function, [(every, in_scale, middle + in_zero)], (in_scale * 0.4, middle + 3))
                    continue
                x, scales = made.fed(every), made.pair(in_scale, middle + in_zero, dtype)
                if function == "Sigmoid":
                    made.node("QLinearSigmoid", (x, *scales, *made.pair(1 / 256, low, dtype)), dtype, domain=DOMAIN)
                else:
                    out = made.pair(in_scale * 0.4, middle + 3, dtype)
                    made.node("QLinearLeakyRelu", (x, *scales, *out), dtype, domain=DOMAIN, alpha=0.1)
            yield made.model()


def _quantizers() -> Iterator[ProbeModel]:
    """Quantize real values at ties and next to them."""
    for dtype in _types("uint8", "int8"):
        made = NetBuilder("quantize", f"quantize float32 -> {dtype}")
        for scale, zero in ((2.0**-4, 3), (2.0**-4, -4), (0.0213742, 5), (0.1234567, -1)):
            ties = (np.arange(-150, 150) + 0.5).astype(np.float32) * np.float32(scale)
            near = [np.nextafter(ties, np.float32(side)) for side in (-np.inf, np.inf)]
            x = made.fed(np.concatenate([ties, *near]).astype(np.float32))
            made.node("QuantizeLinear", (x, *made.pair(scale, _middle(dtype) + zero, dtype)), dtype)
        yield made.model()


def _joins() -> Iterator[ProbeModel]:
    for dtype in _types("uint8", "int8"):
        made = NetBuilder("concat", f"concat {dtype}")
        middle = _middle(dtype)
        x, y = made.fed(_all_codes(dtype).reshape(1, 256)), made.fed(_all_codes(dtype)[::-1].reshape(1, 256).copy())
        for a_scale, b_scale, out_scale, a_zero, b_zero, zero in _SUMS:
            made.node(
                "QLinearConcat",
                (
                    *made.pair(out_scale, middle + zero, dtype),
                    *(x, *made.pair(a_scale, middle + a_zero, dtype)),
                    *(y, *made.pair(b_scale, middle + b_zero, dtype)),
                ),
                dtype,
                domain=DOMAIN,
                axis=1,
            )
        yield made.model()


def _softmaxes() -> Iterator[ProbeModel]:
    rng = np.random.default_rng(SEED)
    for dtype in _types("uint8", "int8"):
        made = NetBuilder("softmax", f"softmax {dtype}")
        x = made.fed(_every(rng, dtype, (64, 10)))
        for scale, zero, out_scale in ((0.0478, 3, 1 / 256), (0.0213742, -7, 1 / 256), (0.0478, 5, 0.00413)):
            low = int(np.iinfo(dtype).min)
            pairs = (*made.pair(scale, _middle(dtype) + zero, dtype), *made.pair(out_scale, low, dtype))
            made.node("QLinearSoftmax", (x, *pairs), dtype, domain=DOMAIN, axis=-1, opset=13)
        yield made.model()


def _differences() -> Iterator[ProbeModel]:
    """Subtract in QDQ form: there is no operator on codes for it, so that only a backend that fuses is told apart."""
    for dtype in _types("uint8", "int8"):
        made = NetBuilder("sub", f"sub {dtype}")
        every, middle = _all_codes(dtype), _middle(dtype)
        a, b = (np.ascontiguousarray(array) for array in np.broadcast_arrays(every[:, None], every[None, :]))
        for a_scale, b_scale, scale, a_zero, b_zero, zero in _SUMS:
            sides = (a, a_scale, middle + a_zero), (b, b_scale, middle + b_zero)
            grouped(made, "Sub", sides, (scale, middle + zero))
        yield made.model()


PROBED: Mapping[str, Callable[[], Iterator[ProbeModel]]] = {
    "conv": _convolutions,
    "linear": _matrices,
    "add": lambda: _pairs("add", "QLinearAdd"),
    "sub": _differences,
    "mul": lambda: _pairs("mul", "QLinearMul"),
    "average_pool": _pools,
    "global_average_pool": _global_pools,
    "lookup": _functions,
    "softmax": _softmaxes,
    "concat": _joins,
    "quantize": _quantizers,
    "requantize": changes_of_scale,
    "reduce_mean": means,
    "resize": resizes,
}
"""What is probed: makers of nets by the kind of their nodes."""


def probe_models(kinds: Sequence[str] = ()) -> Iterator[ProbeModel]:
    """Give the nets, kind after kind.

    Args:
        kinds: Keys of `PROBED`; all if empty.
    """
    for kind in kinds or PROBED:
        yield from PROBED[kind]()
