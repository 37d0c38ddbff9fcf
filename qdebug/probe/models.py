"""Small networks that distinguish arithmetics: sums close to ties, with scales that are powers of two and others.

Random data hardly distinguishes two rounding modes. Here, sums are chosen whose requantized value is as close as
possible to halfway between two codes. Elementwise operators get every pair of codes.
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
    "add_qdq_group",
    "changes_of_scale",
    "choose_sums",
    "encode_sums",
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
"""Number of products in a chosen sum; weight of all products except the first; number of filters for each sum.

The sum of two products fits into 16 bits.
"""
REACH = (CHANNELS - 1) * TAP * 100
"""Largest magnitude of a chosen sum."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeModel:
    """A network of several nodes of one kind, with the inputs to run it on.

    Args:
        kind: The kind of the nodes, as in `qdebug.replay.unit.KINDS`.
        title: The kind with its types, such as "conv uint8 x int8".
        graph: The network.
        constants: Values of the network's constants, by name.
        feed: Values of the network's inputs, by name.
    """

    kind: str
    title: str
    graph: Graph
    constants: Mapping[str, np.ndarray]
    feed: Mapping[str, np.ndarray]


@dataclass(slots=True)
class NetBuilder:
    """Builds a network. Every operand is an input or a constant, and results that no node reads are outputs."""

    kind: str
    title: str
    opset: int = 14  # the first with HardSwish; from 18 on, axes of means are inputs
    nodes: list[Node] = field(default_factory=list)
    infos: list[TensorInfo] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    feed: dict[str, np.ndarray] = field(default_factory=dict)

    def add_input(self, array: np.ndarray, quant: QuantParams | None = None) -> str:
        """Add an input with these values, and return its name."""
        name = f"x{len(self.feed)}"
        self.feed[name] = array
        info = TensorInfo(name=name, shape=array.shape, dtype=array.dtype.name, role=Role.INPUT, quant=quant)
        self.infos.append(info)
        return name

    def add_constant(self, array: np.ndarray, quant: QuantParams | None = None) -> str:
        """Add a constant, and return its name."""
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        info = TensorInfo(name=name, shape=array.shape, dtype=array.dtype.name, role=Role.CONSTANT, quant=quant)
        self.infos.append(info)
        return name

    def add_quantization(self, scale: float | np.ndarray, zero: int, dtype: np.dtype) -> tuple[str, str]:
        """Add a scale and a zero point as constants, and return their names."""
        scales = np.asarray(scale, np.float32)
        return self.add_constant(scales), self.add_constant(np.full(scales.shape, zero, dtype))

    def add_node(
        self,
        op: str,
        inputs: tuple[str, ...],
        dtype: np.dtype,
        /,
        *,
        domain: str = "",
        quant: QuantParams | None = None,
        shape: tuple[int, ...] | None = None,
        output: str = "",
        **attrs: AttrValue,
    ) -> str:
        """Add a node and return the name of its output, which has the given dtype."""
        name = output or f"y{len(self.nodes)}"
        node = Node(name=f"n{len(self.nodes)}", op=op, inputs=inputs, outputs=(name,), attrs=attrs, domain=domain)
        self.nodes.append(node)
        self.infos.append(TensorInfo(name=name, shape=shape, dtype=dtype.name, quant=quant))
        return name

    def build(self) -> ProbeModel:
        """Return the network, with all results that no node reads as outputs."""
        input_names = {name for node in self.nodes for name in node.inputs}
        outputs = tuple(name for node in self.nodes for name in node.outputs if name not in input_names)
        graph = Graph(
            self.nodes,
            tensors=self.infos,
            inputs=tuple(self.feed),
            outputs=outputs,
            name=f"probe: {self.title}",
            opset={"": self.opset, DOMAIN: 1},
        )
        return ProbeModel(kind=self.kind, title=self.title, graph=graph, constants=self.constants, feed=self.feed)


@cache
def choose_sums(multiplier: float, count: int, *, reach: int = REACH, most: float = 110.0) -> np.ndarray:
    """Choose integers whose product with a multiplier is close to a tie, and some at random.

    Args:
        multiplier: The real multiplier.
        count: Number of integers.
        reach: Largest magnitude of an integer.
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


def encode_sums(sums: np.ndarray) -> np.ndarray:
    """Return operands (sums, products) whose products with `tap_weights` add up to the given sums."""
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
# Means over these counts, with half the output scale, are ties only in exact arithmetic.
_TIES, _ODD_COUNTS = (2.0**-3, 2.0**-2, 3, 5), (5, 7, 11)
_SIZES = ((23, 37), (7, 9), (32, 48))
_WIDE_BOUND = 1000.0
_COORDINATE_MODES = ("asymmetric", "align_corners", "half_pixel")

Side = tuple[np.ndarray, float, int]
"""Codes, their scale and their zero point."""


def add_qdq_group(
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
        sides: Operands of the operator, each a separate input.
        out: Scale and zero point of the result.
        other_inputs: Further inputs that are not codes.
        **attrs: Attributes of the operator.
    """
    dtype = sides[0][0].dtype
    reals = []
    for codes, scale, zero in sides:
        fed = net.add_input(codes, quant_of_codes(codes, scale, zero))
        reals.append(net.add_node("DequantizeLinear", (fed, *net.add_quantization(scale, zero, dtype)), _REAL))
    real = net.add_node(op, (*reals, *other_inputs), _REAL, **attrs)  # type: ignore[arg-type]  # no attribute is named like a parameter
    quant = quant_of_codes(sides[0][0], *out)
    net.add_node("QuantizeLinear", (real, *net.add_quantization(*out, dtype)), dtype, quant=quant)


def _group_types() -> tuple[tuple[np.dtype, int], ...]:
    """Return the types that are probed, each with its middle code."""
    return (np.dtype(np.uint8), 128), (np.dtype(np.int8), 0)


def _random_codes(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def changes_of_scale() -> Iterator[ProbeModel]:
    """Yield networks that rescale every code, with a Clip that changes no code, and with a Relu."""
    for dtype, middle in _group_types():
        net = NetBuilder("requantize", f"requantize {dtype.name}")
        info = np.iinfo(dtype)
        all_codes = np.arange(info.min, info.max + 1).astype(dtype).reshape(1, 256)
        for in_scale, out_scale, in_zero, out_zero in _CHANGES:
            inputs, out = [(all_codes, in_scale, middle + in_zero)], (out_scale, middle + out_zero)
            bounds = [net.add_constant(np.asarray(end, np.float32)) for end in (-_WIDE_BOUND, _WIDE_BOUND)]
            add_qdq_group(net, "Clip", inputs, out, other_inputs=bounds)
            add_qdq_group(net, "Relu", inputs, out)
        yield net.build()


def means() -> Iterator[ProbeModel]:
    """Yield networks that average over the last axis and over planes."""
    rng = np.random.default_rng(SEED)
    for dtype, middle in _group_types():
        net = NetBuilder("reduce_mean", f"reduce_mean {dtype.name}")
        usual_shapes = (((16, 16, 41), (-1,)), ((64, 40, 9, 7), (2, 3)))
        cases = [(case, shape, axes) for case in _GROUP_MEANS for shape, axes in usual_shapes]
        cases += [(_TIES, (64, 64, count), (-1,)) for count in _ODD_COUNTS]
        for (in_scale, out_scale, in_zero, out_zero), shape, axes in cases:
            operand = _random_codes(rng, dtype, shape), in_scale, middle + in_zero
            add_qdq_group(net, "ReduceMean", [operand], (out_scale, middle + out_zero), axes=axes)
        yield net.build()


def resizes() -> Iterator[ProbeModel]:
    """Yield networks that interpolate linearly between codes of one scale, with channels first and last."""
    rng = np.random.default_rng(SEED)
    for (dtype, middle), last in product(_group_types(), (False, True)):
        net = NetBuilder("resize", f"resize{' channels last' * last} {dtype.name}")
        for coordinate_mode in _COORDINATE_MODES:
            for size in _SIZES:
                shape, resized_shape = ((1, 16, 16, 8), (1, *size, 8)) if last else ((1, 8, 16, 16), (1, 8, *size))
                codes, scale_and_zero = _random_codes(rng, dtype, shape), (0.05, middle + 3)
                sizes = net.add_constant(np.array(resized_shape, np.int64))
                add_qdq_group(
                    net, "Resize", [(codes, *scale_and_zero)], scale_and_zero,
                    other_inputs=("", "", sizes), mode="linear", coordinate_transformation_mode=coordinate_mode,
                )  # fmt: skip
        yield net.build()


_SUMS_PER_NODE = 1024
"""Number of chosen sums per node."""

# Scales of input, weight and output, and the output's zero point, counted from the middle code. With powers of two, a
# requantizer shows how it rounds exact ties; the other scales distinguish the most known variants.
_PRODUCTS: tuple[tuple[float, float, float, int], ...] = (
    (2.0**-4, 2.0**-6, 2.0**3, 3),
    (2.0**-4, 2.0**-6, 2.0**3, -4),
    (0.0214582, 0.0018968, 0.335999, -3),
    (0.0150638, 0.0017538, 0.185498, 5),
    (0.1542773, 0.0055264, 7.444438, 5),
    (0.10238, 0.0059336, 4.367452, -5),
)
# Scales of both inputs and of the output, and the three zero points. Decimal scales with simple ratios give results
# that should be ties but are not exact.
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


def _multiplier(x: float, w: float, y: float) -> float:
    return float(np.float32(x) * np.float32(w) / np.float32(y))


def _convolutions() -> Iterator[ProbeModel]:
    for x_type, w_type in _PRODUCT_TYPES:
        net = NetBuilder("conv", f"conv {x_type} x {w_type}")
        weight = (tap_weights().T + (0 if w_type == np.int8 else 131)).astype(w_type)[:, :, None, None]
        w_zero = 0 if w_type == np.int8 else 131
        x_zero = _middle(x_type)
        for x_scale, w_scale, y_scale, zero in _PRODUCTS:
            sums = choose_sums(_multiplier(x_scale, w_scale, y_scale), _SUMS_PER_NODE)
            codes = (encode_sums(sums) + x_zero).astype(x_type).T.reshape(1, -1, 32, _SUMS_PER_NODE // 32)
            net.add_node(
                "QLinearConv",
                (
                    *(net.add_input(codes), *net.add_quantization(x_scale, x_zero, x_type)),
                    *(net.add_constant(weight), *net.add_quantization(w_scale, w_zero, w_type)),
                    *net.add_quantization(y_scale, _middle(x_type) + zero, x_type),
                ),
                x_type,
            )
        _add_dense_convolutions(net, x_type, w_type)
        yield net.build()
    yield from _depthwise()


def _add_dense_convolutions(net: NetBuilder, x_type: np.dtype, w_type: np.dtype) -> None:
    """Add convolutions over the full code range, per tensor and per channel. Sums of two products exceed 16 bits."""
    rng = np.random.default_rng(SEED)
    x, weight = _random_with_all_codes(rng, x_type, (1, 8, 20, 20)), _random_with_all_codes(rng, w_type, (16, 8, 3, 3))
    bias = rng.integers(-20000, 20000, 16).astype(np.int32)
    for per_channel in (False, True):
        scales = np.linspace(0.002, 0.006, 16) if per_channel else np.asarray(0.00371)
        net.add_node(
            "QLinearConv",
            (
                *(net.add_input(x), *net.add_quantization(0.0213742, _middle(x_type) - 5, x_type)),
                *(net.add_constant(weight), *net.add_quantization(scales, _middle(w_type), w_type)),
                *net.add_quantization(0.1234321, _middle(x_type) + 7, x_type),
                net.add_constant(bias),
            ),
            x_type,
            pads=(1, 1, 1, 1),
        )


def _depthwise() -> Iterator[ProbeModel]:
    """Yield networks that convolve each channel with its own filter.

    Sums of few products are rarely ties, except with scales that are powers of two.
    """
    rng = np.random.default_rng(SEED)
    for x_type, w_type in _PRODUCT_TYPES:
        net = NetBuilder("conv", f"conv depthwise {x_type} x {w_type}")
        x, weight = (
            _random_with_all_codes(rng, x_type, (1, 16, 24, 24)),
            _random_with_all_codes(rng, w_type, (16, 1, 3, 3)),
        )
        bias = rng.integers(-2000, 2000, 16).astype(np.int32)
        for x_scale, w_scale, y_scale, zero in _PRODUCTS:
            net.add_node(
                "QLinearConv",
                (
                    *(net.add_input(x), *net.add_quantization(x_scale, _middle(x_type) - 5, x_type)),
                    *(net.add_constant(weight), *net.add_quantization(w_scale, _middle(w_type), w_type)),
                    *net.add_quantization(y_scale / 16, _middle(x_type) + zero, x_type),
                    net.add_constant(bias),
                ),
                x_type,
                pads=(1, 1, 1, 1),
                group=16,
            )
        yield net.build()


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
            (
                scales,
                (encode_sums(choose_sums(_multiplier(*scales[:3]), _SUMS_PER_NODE)) + x_zero).astype(x_type),
                weight,
                w_zero,
            )
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
        for (x_scale, w_scale, y_scale, zero), codes, weights, weight_zero in operands:
            net.add_node(
                "QLinearMatMul",
                (
                    *(net.add_input(codes), *net.add_quantization(x_scale, x_zero, x_type)),
                    *(net.add_constant(weights), *net.add_quantization(w_scale, weight_zero, w_type)),
                    *net.add_quantization(y_scale, x_zero + zero, x_type),
                ),
                x_type,
            )
        yield net.build()


def _all_codes(dtype: np.dtype) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.arange(info.min, info.max + 1).astype(dtype)


def _pairs(kind: str, op: str) -> Iterator[ProbeModel]:
    for dtype in _types("uint8", "int8"):
        net = NetBuilder(kind, f"{kind} {dtype}")
        all_codes, middle = _all_codes(dtype), _middle(dtype)
        a, b = (np.ascontiguousarray(array) for array in np.broadcast_arrays(all_codes[:, None], all_codes[None, :]))
        left, right = net.add_input(a), net.add_input(b)
        for a_scale, b_scale, scale, a_zero, b_zero, zero in _SUMS if kind == "add" else _PAIR_PRODUCTS:
            net.add_node(
                op,
                (
                    *(left, *net.add_quantization(a_scale, middle + a_zero, dtype)),
                    *(right, *net.add_quantization(b_scale, middle + b_zero, dtype)),
                    *net.add_quantization(scale, middle + zero, dtype),
                ),
                dtype,
                domain=DOMAIN,
            )
        yield net.build()


def _pools() -> Iterator[ProbeModel]:
    rng = np.random.default_rng(SEED)
    for dtype in _types("uint8", "int8"):
        net = NetBuilder("average_pool", f"average_pool {dtype}")
        middle = _middle(dtype)
        x = net.add_input(_random_with_all_codes(rng, dtype, (1, 8, 24, 24)))
        for window in ((2, 2), (3, 3), (2, 3)):
            for in_scale, out_scale, in_zero, zero in _MEANS:
                net.add_node(
                    "QLinearAveragePool",
                    (
                        x,
                        *net.add_quantization(in_scale, middle + in_zero, dtype),
                        *net.add_quantization(out_scale, middle + zero, dtype),
                    ),
                    dtype,
                    domain=DOMAIN,
                    kernel_shape=window,
                )
        yield net.build()


def _global_pools() -> Iterator[ProbeModel]:
    rng = np.random.default_rng(SEED)
    for dtype in _types("uint8", "int8"):
        net = NetBuilder("global_average_pool", f"global_average_pool {dtype}")
        middle = _middle(dtype)
        for side in (4, 7):
            x = net.add_input(_random_with_all_codes(rng, dtype, (8, 64, side, side)))
            for in_scale, out_scale, in_zero, zero in ((2.0**-5, 2.0**-8, 5, 7), (0.012543, 0.001327, 3, 7)):
                net.add_node(
                    "QLinearGlobalAveragePool",
                    (
                        x,
                        *net.add_quantization(in_scale, middle + in_zero, dtype),
                        *net.add_quantization(out_scale, middle + zero, dtype),
                    ),
                    dtype,
                    domain=DOMAIN,
                )
        yield net.build()


def _functions() -> Iterator[ProbeModel]:
    """Yield networks that compute functions of every code, with quantized operators or in QDQ form."""
    for dtype in _types("uint8", "int8"):
        all_codes, middle, low = _all_codes(dtype).reshape(1, 256), _middle(dtype), int(np.iinfo(dtype).min)
        for function in ("Sigmoid", "LeakyRelu", "HardSwish", "Tanh"):
            net = NetBuilder("lookup", f"lookup {function} {dtype}")
            for in_scale, in_zero in _FUNCTIONS:
                if function in ("HardSwish", "Tanh"):
                    swish = function == "HardSwish"
                    operand = all_codes, in_scale if swish else in_scale / 4, middle + in_zero
                    add_qdq_group(
                        net, function, [operand], (in_scale * 0.4, middle + 3) if swish else (1 / 128, middle)
                    )
                    continue
                x, scales = net.add_input(all_codes), net.add_quantization(in_scale, middle + in_zero, dtype)
                if function == "Sigmoid":
                    net.add_node(
                        "QLinearSigmoid", (x, *scales, *net.add_quantization(1 / 256, low, dtype)), dtype, domain=DOMAIN
                    )
                else:
                    out = net.add_quantization(in_scale * 0.4, middle + 3, dtype)
                    net.add_node("QLinearLeakyRelu", (x, *scales, *out), dtype, domain=DOMAIN, alpha=0.1)
            yield net.build()


def _quantizers() -> Iterator[ProbeModel]:
    """Yield networks that quantize real values at ties and next to them."""
    for dtype in _types("uint8", "int8"):
        net = NetBuilder("quantize", f"quantize float32 -> {dtype}")
        for scale, zero in ((2.0**-4, 3), (2.0**-4, -4), (0.0213742, 5), (0.1234567, -1)):
            ties = (np.arange(-150, 150) + 0.5).astype(np.float32) * np.float32(scale)
            near = [np.nextafter(ties, np.float32(side)) for side in (-np.inf, np.inf)]
            x = net.add_input(np.concatenate([ties, *near]).astype(np.float32))
            net.add_node("QuantizeLinear", (x, *net.add_quantization(scale, _middle(dtype) + zero, dtype)), dtype)
        yield net.build()


def _joins() -> Iterator[ProbeModel]:
    for dtype in _types("uint8", "int8"):
        net = NetBuilder("concat", f"concat {dtype}")
        middle = _middle(dtype)
        x, y = (
            net.add_input(_all_codes(dtype).reshape(1, 256)),
            net.add_input(_all_codes(dtype)[::-1].reshape(1, 256).copy()),
        )
        for a_scale, b_scale, out_scale, a_zero, b_zero, zero in _SUMS:
            net.add_node(
                "QLinearConcat",
                (
                    *net.add_quantization(out_scale, middle + zero, dtype),
                    *(x, *net.add_quantization(a_scale, middle + a_zero, dtype)),
                    *(y, *net.add_quantization(b_scale, middle + b_zero, dtype)),
                ),
                dtype,
                domain=DOMAIN,
                axis=1,
            )
        yield net.build()


def _softmaxes() -> Iterator[ProbeModel]:
    rng = np.random.default_rng(SEED)
    for dtype in _types("uint8", "int8"):
        net = NetBuilder("softmax", f"softmax {dtype}")
        x = net.add_input(_random_with_all_codes(rng, dtype, (64, 10)))
        for scale, zero, out_scale in ((0.0478, 3, 1 / 256), (0.0213742, -7, 1 / 256), (0.0478, 5, 0.00413)):
            low = int(np.iinfo(dtype).min)
            pairs = (
                *net.add_quantization(scale, _middle(dtype) + zero, dtype),
                *net.add_quantization(out_scale, low, dtype),
            )
            net.add_node("QLinearSoftmax", (x, *pairs), dtype, domain=DOMAIN, axis=-1, opset=13)
        yield net.build()


def _differences() -> Iterator[ProbeModel]:
    """Yield networks that subtract, in QDQ form, since there is no quantized operator.

    They only distinguish arithmetics of backends that fuse the form into one kernel.
    """
    for dtype in _types("uint8", "int8"):
        net = NetBuilder("sub", f"sub {dtype}")
        all_codes, middle = _all_codes(dtype), _middle(dtype)
        a, b = (np.ascontiguousarray(array) for array in np.broadcast_arrays(all_codes[:, None], all_codes[None, :]))
        for a_scale, b_scale, scale, a_zero, b_zero, zero in _SUMS:
            sides = (a, a_scale, middle + a_zero), (b, b_scale, middle + b_zero)
            add_qdq_group(net, "Sub", sides, (scale, middle + zero))
        yield net.build()


def _slopes() -> Iterator[ProbeModel]:
    """Yield networks that multiply values below 0 by slopes: every pair of codes, with one slope per column."""
    for dtype in _types("uint8", "int8"):
        net = NetBuilder("prelu", f"prelu {dtype}")
        all_codes, middle = _all_codes(dtype), _middle(dtype)
        x = np.ascontiguousarray(np.broadcast_to(all_codes[:, None], (256, 256)))
        for x_scale, s_scale, scale, x_zero, s_zero, zero in _PAIR_PRODUCTS:
            data, slope = net.add_input(x, quant_of_codes(x, x_scale, middle + x_zero)), net.add_constant(all_codes)
            pairs = (
                net.add_quantization(x_scale, middle + x_zero, dtype),
                net.add_quantization(s_scale, middle + s_zero, dtype),
            )
            names = [
                net.add_node("DequantizeLinear", (codes, *pair), _REAL)
                for codes, pair in zip((data, slope), pairs, strict=True)
            ]
            real = net.add_node("PRelu", tuple(names), _REAL)
            out = net.add_quantization(scale, middle + zero, dtype)
            net.add_node("QuantizeLinear", (real, *out), dtype, quant=quant_of_codes(x, scale, middle + zero))
        yield net.build()


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
