"""Small networks that distinguish arithmetics: sums close to ties, scales that are powers of two and others.

Random data hardly distinguishes two rounding modes. Here each sum is chosen: among all reachable integers, those whose
requantized value is nearest to halfway between two codes. Elementwise operators get every pair of codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product

import numpy as np

from qdebug.model import AttrValue, Graph, Node, QuantParams, Role, TensorInfo

__all__ = [
    "DOMAIN",
    "PROBED",
    "SEED",
    "NetBuilder",
    "ProbeModel",
    "changes_of_scale",
    "chosen_sums",
    "encoded",
    "grouped",
    "means",
    "probe_models",
    "quant_of_codes",
    "resizes",
    "tap_weights",
]

DOMAIN = "com.microsoft"
"""Operator set of the quantized operators that the standard lacks."""
SEED = 20
"""Seed of all random data."""
CHANNELS, TAP, FILTERS = 128, 63, 8
"""Products of a chosen sum; weight of all but the first, two of which fit 16 bits; filters for each sum."""
REACH = (CHANNELS - 1) * TAP * 100
"""Largest magnitude of a chosen sum."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeModel:
    """A network of several nodes of one kind, with the inputs to run it on.

    Args:
        kind: The kind of its nodes, as in `qdebug.replay.unit.KINDS`.
        title: The kind with its types, such as "conv uint8 x int8".
        graph: The network.
        constants: Its constants.
        feed: Its inputs.
    """

    kind: str
    title: str
    graph: Graph
    constants: Mapping[str, np.ndarray]
    feed: Mapping[str, np.ndarray]


@dataclass(slots=True)
class NetBuilder:
    """A network under construction: every operand is an input or a constant, every result an output."""

    kind: str
    title: str
    nodes: list[Node] = field(default_factory=list)
    infos: list[TensorInfo] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    feed: dict[str, np.ndarray] = field(default_factory=dict)

    def fed(self, array: np.ndarray, quant: QuantParams | None = None) -> str:
        """Add an input."""
        name = f"x{len(self.feed)}"
        self.feed[name] = array
        info = TensorInfo(name=name, shape=array.shape, dtype=array.dtype.name, role=Role.INPUT, quant=quant)
        self.infos.append(info)
        return name

    def stored(self, array: np.ndarray, quant: QuantParams | None = None) -> str:
        """Add a constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        info = TensorInfo(name=name, shape=array.shape, dtype=array.dtype.name, role=Role.CONSTANT, quant=quant)
        self.infos.append(info)
        return name

    def pair(self, scale: float | np.ndarray, zero: int, dtype: np.dtype) -> tuple[str, str]:
        """Add a scale and a zero point."""
        scales = np.asarray(scale, np.float32)
        return self.stored(scales), self.stored(np.full(scales.shape, zero, dtype))

    def node(
        self,
        op: str,
        inputs: tuple[str, ...],
        dtype: np.dtype,
        /,
        *,
        domain: str = "",
        quant: QuantParams | None = None,
        shape: tuple[int, ...] | None = None,
        **attrs: AttrValue,
    ) -> str:
        """Add a node and return the name of its output, which has the given dtype."""
        name = f"y{len(self.nodes)}"
        node = Node(name=f"n{len(self.nodes)}", op=op, inputs=inputs, outputs=(name,), attrs=attrs, domain=domain)
        self.nodes.append(node)
        self.infos.append(TensorInfo(name=name, shape=shape, dtype=dtype.name, quant=quant))
        return name

    def model(self) -> ProbeModel:
        """Return the network, with all results that no node reads as outputs."""
        input_names = {name for node in self.nodes for name in node.inputs}
        outputs = tuple(name for node in self.nodes for name in node.outputs if name not in input_names)
        graph = Graph(
            self.nodes,
            tensors=self.infos,
            inputs=tuple(self.feed),
            outputs=outputs,
            name=f"probe: {self.title}",
            opset={"": 14, DOMAIN: 1},  # the first with HardSwish; from 18 on axes of means are inputs
        )
        return ProbeModel(kind=self.kind, title=self.title, graph=graph, constants=self.constants, feed=self.feed)


@cache
def chosen_sums(multiplier: float, count: int, *, reach: int = REACH, most: float = 110.0) -> np.ndarray:
    """Choose integers whose product with a multiplier is close to a tie, and some at random.

    Args:
        multiplier: The real multiplier.
        count: Number of integers.
        reach: Largest magnitude.
        most: Largest magnitude of the product.
    """
    rng = np.random.default_rng(SEED)
    end = min(reach, int(most / multiplier))
    all_sums = rng.permutation(np.arange(-end, end + 1))
    product = all_sums * multiplier
    distance = np.abs(np.abs(product - np.floor(product)) - 0.5)
    near_count = min(count - count // 4, all_sums.size)
    near = all_sums[distance <= np.partition(distance, near_count - 1)[near_count - 1]][:near_count]
    chosen = np.concatenate([near, all_sums[: count - near.size]])
    chosen.flags.writeable = False
    return chosen


def encoded(sums: np.ndarray) -> np.ndarray:
    """Return operands (sums, products) whose products with `tap_weights` have the given sums."""
    first = (sums + TAP // 2) % TAP - TAP // 2
    share, extra = np.divmod((sums - first) // TAP, CHANNELS - 1)
    rest = share[:, None] + (np.arange(CHANNELS - 1) < extra[:, None])
    return np.concatenate([first[:, None], rest], axis=1)


def tap_weights() -> np.ndarray:
    """Return weights (products, filters). The second filter of each pair gives the negated sums."""
    tap = np.full(CHANNELS, TAP)
    tap[0] = 1
    return tap[:, None] * np.where(np.arange(FILTERS) % 2, -1, 1)


def quant_of_codes(codes: np.ndarray, scale: float, zero: int) -> QuantParams:
    """Return parameters with one scale and one zero point for codes of a given dtype."""
    return QuantParams(
        dtype=codes.dtype.name, scale=np.asarray(scale, np.float32), zero_point=np.asarray(zero, np.int64)
    )


_REAL = np.dtype(np.float32)
# Scales of input and output and their zero points, counted from the middle code.
_CHANGES: tuple[tuple[float, float, int, int], ...] = (
    (2.0**-5, 2.0**-4, 3, -5),
    (2.0**-4, 2.0**-3, -3, 4),
    (0.0213742, 0.0187321, 5, -7),
    (0.0123457, 0.0271828, -9, 11),
    (0.0314159, 0.0205173, 7, 3),
)
_GROUP_MEANS = (
    (2.0**-5, 2.0**-6, 5, 7),
    (2.0**-4, 2.0**-6, -7, -6),
    (0.02315, 0.004153, -3, 5),
    (0.0137, 0.0011, 3, -4),
)
# Over so many elements, with half the scale, ties are ties only to exact arithmetic.
_TIES, _ODD_COUNTS = (2.0**-3, 2.0**-2, 3, 5), (5, 7, 11)
_SIZES = ((23, 37), (7, 9), (32, 48))
_FAR = 1000.0
_PLACINGS = ("asymmetric", "align_corners", "half_pixel")

Side = tuple[np.ndarray, float, int]
"""Codes, their scale and their zero point."""


def grouped(
    net: NetBuilder,
    op: str,
    sides: Sequence[Side],
    out: tuple[float, int],
    *,
    other_inputs: Sequence[str] = (),
    **attrs: AttrValue,
) -> None:
    """Add an operator between DequantizeLinear and QuantizeLinear.

    Args:
        net: The network.
        op: The operator.
        sides: Its operands, each a separate input.
        out: Scale and zero point of its result.
        other_inputs: Further inputs that are not codes.
        **attrs: Attributes of the operator.
    """
    dtype = sides[0][0].dtype
    reals = []
    for codes, scale, zero in sides:
        fed = net.fed(codes, quant_of_codes(codes, scale, zero))
        reals.append(net.node("DequantizeLinear", (fed, *net.pair(scale, zero, dtype)), _REAL))
    real = net.node(op, (*reals, *other_inputs), _REAL, **attrs)  # type: ignore[arg-type]  # none is named quant or domain
    quant = quant_of_codes(sides[0][0], *out)
    net.node("QuantizeLinear", (real, *net.pair(*out, dtype)), dtype, quant=quant)


def _group_types() -> tuple[tuple[np.dtype, int], ...]:
    """Return the types that are probed, each with its middle code."""
    return (np.dtype(np.uint8), 128), (np.dtype(np.int8), 0)


def _random_codes(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def changes_of_scale() -> Iterator[ProbeModel]:
    """Rescale every code, with a Clip that passes all codes, and a Relu that passes half of them."""
    for dtype, middle in _group_types():
        net = NetBuilder("requantize", f"requantize {dtype.name}")
        info = np.iinfo(dtype)
        all_codes = np.arange(info.min, info.max + 1).astype(dtype).reshape(1, 256)
        for in_scale, out_scale, in_zero, out_zero in _CHANGES:
            inputs, out = [(all_codes, in_scale, middle + in_zero)], (out_scale, middle + out_zero)
            bounds = [net.stored(np.asarray(end, np.float32)) for end in (-_FAR, _FAR)]
            grouped(net, "Clip", inputs, out, other_inputs=bounds)
            grouped(net, "Relu", inputs, out)
        yield net.model()


def means() -> Iterator[ProbeModel]:
    """Average over the last axis and over planes."""
    rng = np.random.default_rng(SEED)
    for dtype, middle in _group_types():
        net = NetBuilder("reduce_mean", f"reduce_mean {dtype.name}")
        usual_shapes = (((16, 16, 41), (-1,)), ((64, 40, 9, 7), (2, 3)))
        cases = [(case, shape, axes) for case in _GROUP_MEANS for shape, axes in usual_shapes]
        cases += [(_TIES, (64, 64, count), (-1,)) for count in _ODD_COUNTS]
        for (in_scale, out_scale, in_zero, out_zero), shape, axes in cases:
            operand = _random_codes(rng, dtype, shape), in_scale, middle + in_zero
            grouped(net, "ReduceMean", [operand], (out_scale, middle + out_zero), axes=axes)
        yield net.model()


def resizes() -> Iterator[ProbeModel]:
    """Interpolate linearly between codes, at one scale, with channels first and last."""
    rng = np.random.default_rng(SEED)
    for (dtype, middle), last in product(_group_types(), (False, True)):
        net = NetBuilder("resize", f"resize{' channels last' * last} {dtype.name}")
        for placing in _PLACINGS:
            for size in _SIZES:
                shape, sized = ((1, 16, 16, 8), (1, *size, 8)) if last else ((1, 8, 16, 16), (1, 8, *size))
                codes, same = _random_codes(rng, dtype, shape), (0.05, middle + 3)
                sizes = net.stored(np.array(sized, np.int64))
                grouped(
                    net, "Resize", [(codes, *same)], same,
                    other_inputs=("", "", sizes), mode="linear", coordinate_transformation_mode=placing,
                )  # fmt: skip
        yield net.model()


_PLACES = 1024
"""Number of chosen sums per node."""

# Scales of input, weight and output and the output's zero point, counted from the middle code. A requantizer that is
# exact for powers of two shows its ties there; the others separate the most known variants.
_PRODUCTS: tuple[tuple[float, float, float, int], ...] = (
    (2.0**-4, 2.0**-6, 2.0**3, 3),
    (2.0**-4, 2.0**-6, 2.0**3, -4),
    (0.0214582, 0.0018968, 0.335999, -3),
    (0.0150638, 0.0017538, 0.185498, 5),
    (0.1542773, 0.0055264, 7.444438, 5),
    (0.10238, 0.0059336, 4.367452, -5),
)
# Scales of both inputs and of the output, and the three zero points. With simple ratios, results that should be ties
# are not exact ties.
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
        net = NetBuilder("conv", f"conv {x_type} x {w_type}")
        weight = (tap_weights().T + (0 if w_type == np.int8 else 131)).astype(w_type)[:, :, None, None]
        w_zero = 0 if w_type == np.int8 else 131
        x_zero = _middle(x_type)
        for x_scale, w_scale, y_scale, zero in _PRODUCTS:
            sums = chosen_sums(_scales(x_scale, w_scale, y_scale), _PLACES)
            codes = (encoded(sums) + x_zero).astype(x_type).T.reshape(1, -1, 32, _PLACES // 32)
            net.node(
                "QLinearConv",
                (
                    *(net.fed(codes), *net.pair(x_scale, x_zero, x_type)),
                    *(net.stored(weight), *net.pair(w_scale, w_zero, w_type)),
                    *net.pair(y_scale, _middle(x_type) + zero, x_type),
                ),
                x_type,
            )
        _dense(net, x_type, w_type)
        yield net.model()
    yield from _depthwise()


def _dense(net: NetBuilder, x_type: np.dtype, w_type: np.dtype) -> None:
    """Add convolutions over the full code range, per tensor and per channel, whose pair sums exceed 16 bits."""
    rng = np.random.default_rng(SEED)
    x, weight = _random_with_all_codes(rng, x_type, (1, 8, 20, 20)), _random_with_all_codes(rng, w_type, (16, 8, 3, 3))
    bias = rng.integers(-20000, 20000, 16).astype(np.int32)
    for per_channel in (False, True):
        scales = np.linspace(0.002, 0.006, 16) if per_channel else np.asarray(0.00371)
        net.node(
            "QLinearConv",
            (
                *(net.fed(x), *net.pair(0.0213742, _middle(x_type) - 5, x_type)),
                *(net.stored(weight), *net.pair(scales, _middle(w_type), w_type)),
                *net.pair(0.1234321, _middle(x_type) + 7, x_type),
                net.stored(bias),
            ),
            x_type,
            pads=(1, 1, 1, 1),
        )


def _depthwise() -> Iterator[ProbeModel]:
    """Convolve each channel with its own filter. Sums of few products rarely end at a tie; powers of two do."""
    rng = np.random.default_rng(SEED)
    for x_type, w_type in _PRODUCT_TYPES:
        net = NetBuilder("conv", f"conv depthwise {x_type} x {w_type}")
        x, weight = (
            _random_with_all_codes(rng, x_type, (1, 16, 24, 24)),
            _random_with_all_codes(rng, w_type, (16, 1, 3, 3)),
        )
        bias = rng.integers(-2000, 2000, 16).astype(np.int32)
        for x_scale, w_scale, y_scale, zero in _PRODUCTS:
            net.node(
                "QLinearConv",
                (
                    *(net.fed(x), *net.pair(x_scale, _middle(x_type) - 5, x_type)),
                    *(net.stored(weight), *net.pair(w_scale, _middle(w_type), w_type)),
                    *net.pair(y_scale / 16, _middle(x_type) + zero, x_type),
                    net.stored(bias),
                ),
                x_type,
                pads=(1, 1, 1, 1),
                group=16,
            )
        yield net.model()


def _random_with_all_codes(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def _matrices() -> Iterator[ProbeModel]:
    rng = np.random.default_rng(SEED)
    for x_type, w_type in _PRODUCT_TYPES:
        net = NetBuilder("linear", f"linear {x_type} x {w_type}")
        w_zero, x_zero = 0 if w_type == np.int8 else 131, _middle(x_type)
        weight = (tap_weights() + w_zero).astype(w_type)
        operands = [
            (scales, (encoded(chosen_sums(_scales(*scales[:3]), _PLACES)) + x_zero).astype(x_type), weight, w_zero)
            for scales in _PRODUCTS
        ]
        full = (0.0213742, 0.00371, 0.1234321, 7)
        operands.append(
            (
                full,
                _random_with_all_codes(rng, x_type, (64, 72)),
                _random_with_all_codes(rng, w_type, (72, 16)),
                _middle(w_type),
            )
        )
        for (x_scale, w_scale, y_scale, zero), codes, weights, its_zero in operands:
            net.node(
                "QLinearMatMul",
                (
                    *(net.fed(codes), *net.pair(x_scale, x_zero, x_type)),
                    *(net.stored(weights), *net.pair(w_scale, its_zero, w_type)),
                    *net.pair(y_scale, x_zero + zero, x_type),
                ),
                x_type,
            )
        yield net.model()


def _all_codes(dtype: np.dtype) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.arange(info.min, info.max + 1).astype(dtype)


def _pairs(kind: str, op: str) -> Iterator[ProbeModel]:
    for dtype in _types("uint8", "int8"):
        net = NetBuilder(kind, f"{kind} {dtype}")
        all_codes, middle = _all_codes(dtype), _middle(dtype)
        a, b = (np.ascontiguousarray(array) for array in np.broadcast_arrays(all_codes[:, None], all_codes[None, :]))
        left, right = net.fed(a), net.fed(b)
        for a_scale, b_scale, scale, a_zero, b_zero, zero in _SUMS if kind == "add" else _PAIR_PRODUCTS:
            net.node(
                op,
                (
                    *(left, *net.pair(a_scale, middle + a_zero, dtype)),
                    *(right, *net.pair(b_scale, middle + b_zero, dtype)),
                    *net.pair(scale, middle + zero, dtype),
                ),
                dtype,
                domain=DOMAIN,
            )
        yield net.model()


def _pools() -> Iterator[ProbeModel]:
    rng = np.random.default_rng(SEED)
    for dtype in _types("uint8", "int8"):
        net = NetBuilder("average_pool", f"average_pool {dtype}")
        middle = _middle(dtype)
        x = net.fed(_random_with_all_codes(rng, dtype, (1, 8, 24, 24)))
        for window in ((2, 2), (3, 3), (2, 3)):
            for in_scale, out_scale, in_zero, zero in _MEANS:
                net.node(
                    "QLinearAveragePool",
                    (x, *net.pair(in_scale, middle + in_zero, dtype), *net.pair(out_scale, middle + zero, dtype)),
                    dtype,
                    domain=DOMAIN,
                    kernel_shape=window,
                )
        yield net.model()


def _global_pools() -> Iterator[ProbeModel]:
    rng = np.random.default_rng(SEED)
    for dtype in _types("uint8", "int8"):
        net = NetBuilder("global_average_pool", f"global_average_pool {dtype}")
        middle = _middle(dtype)
        for side in (4, 7):
            x = net.fed(_random_with_all_codes(rng, dtype, (8, 64, side, side)))
            for in_scale, out_scale, in_zero, zero in ((2.0**-5, 2.0**-8, 5, 7), (0.012543, 0.001327, 3, 7)):
                net.node(
                    "QLinearGlobalAveragePool",
                    (x, *net.pair(in_scale, middle + in_zero, dtype), *net.pair(out_scale, middle + zero, dtype)),
                    dtype,
                    domain=DOMAIN,
                )
        yield net.model()


def _functions() -> Iterator[ProbeModel]:
    """Compute functions of every code: those with a quantized form, and one without."""
    for dtype in _types("uint8", "int8"):
        all_codes, middle, low = _all_codes(dtype).reshape(1, 256), _middle(dtype), int(np.iinfo(dtype).min)
        for function in ("Sigmoid", "LeakyRelu", "HardSwish", "Tanh"):
            net = NetBuilder("lookup", f"lookup {function} {dtype}")
            for in_scale, in_zero in _FUNCTIONS:
                if function in ("HardSwish", "Tanh"):
                    swish = function == "HardSwish"
                    operand = all_codes, in_scale if swish else in_scale / 4, middle + in_zero
                    grouped(net, function, [operand], (in_scale * 0.4, middle + 3) if swish else (1 / 128, middle))
                    continue
                x, scales = net.fed(all_codes), net.pair(in_scale, middle + in_zero, dtype)
                if function == "Sigmoid":
                    net.node("QLinearSigmoid", (x, *scales, *net.pair(1 / 256, low, dtype)), dtype, domain=DOMAIN)
                else:
                    out = net.pair(in_scale * 0.4, middle + 3, dtype)
                    net.node("QLinearLeakyRelu", (x, *scales, *out), dtype, domain=DOMAIN, alpha=0.1)
            yield net.model()


def _quantizers() -> Iterator[ProbeModel]:
    """Quantize real values at and near ties."""
    for dtype in _types("uint8", "int8"):
        net = NetBuilder("quantize", f"quantize float32 -> {dtype}")
        for scale, zero in ((2.0**-4, 3), (2.0**-4, -4), (0.0213742, 5), (0.1234567, -1)):
            ties = (np.arange(-150, 150) + 0.5).astype(np.float32) * np.float32(scale)
            near = [np.nextafter(ties, np.float32(side)) for side in (-np.inf, np.inf)]
            x = net.fed(np.concatenate([ties, *near]).astype(np.float32))
            net.node("QuantizeLinear", (x, *net.pair(scale, _middle(dtype) + zero, dtype)), dtype)
        yield net.model()


def _joins() -> Iterator[ProbeModel]:
    for dtype in _types("uint8", "int8"):
        net = NetBuilder("concat", f"concat {dtype}")
        middle = _middle(dtype)
        x, y = net.fed(_all_codes(dtype).reshape(1, 256)), net.fed(_all_codes(dtype)[::-1].reshape(1, 256).copy())
        for a_scale, b_scale, out_scale, a_zero, b_zero, zero in _SUMS:
            net.node(
                "QLinearConcat",
                (
                    *net.pair(out_scale, middle + zero, dtype),
                    *(x, *net.pair(a_scale, middle + a_zero, dtype)),
                    *(y, *net.pair(b_scale, middle + b_zero, dtype)),
                ),
                dtype,
                domain=DOMAIN,
                axis=1,
            )
        yield net.model()


def _softmaxes() -> Iterator[ProbeModel]:
    rng = np.random.default_rng(SEED)
    for dtype in _types("uint8", "int8"):
        net = NetBuilder("softmax", f"softmax {dtype}")
        x = net.fed(_random_with_all_codes(rng, dtype, (64, 10)))
        for scale, zero, out_scale in ((0.0478, 3, 1 / 256), (0.0213742, -7, 1 / 256), (0.0478, 5, 0.00413)):
            low = int(np.iinfo(dtype).min)
            pairs = (*net.pair(scale, _middle(dtype) + zero, dtype), *net.pair(out_scale, low, dtype))
            net.node("QLinearSoftmax", (x, *pairs), dtype, domain=DOMAIN, axis=-1, opset=13)
        yield net.model()


def _differences() -> Iterator[ProbeModel]:
    """Subtract in QDQ form. There is no quantized operator for it, so only a backend that fuses is distinguished."""
    for dtype in _types("uint8", "int8"):
        net = NetBuilder("sub", f"sub {dtype}")
        all_codes, middle = _all_codes(dtype), _middle(dtype)
        a, b = (np.ascontiguousarray(array) for array in np.broadcast_arrays(all_codes[:, None], all_codes[None, :]))
        for a_scale, b_scale, scale, a_zero, b_zero, zero in _SUMS:
            sides = (a, a_scale, middle + a_zero), (b, b_scale, middle + b_zero)
            grouped(net, "Sub", sides, (scale, middle + zero))
        yield net.model()


def _slopes() -> Iterator[ProbeModel]:
    """Multiply values below 0 by slopes: every pair of codes, one slope per column."""
    for dtype in _types("uint8", "int8"):
        net = NetBuilder("prelu", f"prelu {dtype}")
        all_codes, middle = _all_codes(dtype), _middle(dtype)
        x = np.ascontiguousarray(np.broadcast_to(all_codes[:, None], (256, 256)))
        for x_scale, s_scale, scale, x_zero, s_zero, zero in _PAIR_PRODUCTS:
            data, slope = net.fed(x, quant_of_codes(x, x_scale, middle + x_zero)), net.stored(all_codes)
            pairs = net.pair(x_scale, middle + x_zero, dtype), net.pair(s_scale, middle + s_zero, dtype)
            names = [
                net.node("DequantizeLinear", (codes, *pair), _REAL)
                for codes, pair in zip((data, slope), pairs, strict=True)
            ]
            real = net.node("PRelu", tuple(names), _REAL)
            out = net.pair(scale, middle + zero, dtype)
            net.node("QuantizeLinear", (real, *out), dtype, quant=quant_of_codes(x, scale, middle + zero))
        yield net.model()


PROBED: Mapping[str, Callable[[], Iterator[ProbeModel]]] = {
    "conv": _convolutions,
    "linear": _matrices,
    "add": lambda: _pairs("add", "QLinearAdd"),
    "sub": _differences,
    "mul": lambda: _pairs("mul", "QLinearMul"),
    "prelu": _slopes,
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
"""Generators of probe networks by the kind of their nodes."""


def probe_models(kinds: Sequence[str] = ()) -> Iterator[ProbeModel]:
    """Yield the networks, kind by kind.

    Args:
        kinds: Keys of `PROBED`. All if empty.
    """
    for kind in kinds or PROBED:
        yield from PROBED[kind]()
