"""Small networks of float operators in a 16-bit format, to find where a backend rounds.

Each network has one operator, or a chain that runtimes fuse. Its inputs are random numbers in at least 64 rows, because
a rounding of one number per row is named only if there are enough rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from qdebug.model import AttrValue
from qdebug.model.dtypes import logical_dtype
from qdebug.numerics.short_formats import SHORT_FORMATS, ShortFormat
from qdebug.probe.models import SEED, NetBuilder, ProbeModel

__all__ = ["ROUNDED_FORMATS", "ROUNDED_OPS", "rounding_model"]

ROUNDED_FORMATS = ("float16", "bfloat16")
"""Formats in which float operators are probed."""
_FORMATS: Mapping[str, ShortFormat] = {short.name: short for short in SHORT_FORMATS if short.name in ROUNDED_FORMATS}

_ROWS, _COLUMNS = 96, 64
_SMALL_ROWS = 4
"""Number of rows of products whose results are subnormal."""
_BELOW_NORMAL = 0.98
"""Largest subnormal result, as a share of the smallest normal number.

A result closer to that number rounds to it, and kernels flush before or after this rounding.
"""
_TIE_COLUMNS = 8
"""Number of columns whose products are often ties."""


@dataclass(slots=True)
class _Net:
    """A network under construction, with random numbers in its format."""

    short: ShortFormat
    builder: NetBuilder
    rng: np.random.Generator
    dtype: np.dtype = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = logical_dtype(self.short.name)

    def random(self, *shape: int, offset: float = 0.0) -> np.ndarray:
        """Return normally distributed numbers, each row of a different magnitude."""
        magnitudes = np.exp2(self.rng.uniform(-2, 2, (*shape[:-1], 1)))
        return np.asarray(((self.rng.standard_normal(shape) + offset) * magnitudes).astype(self.dtype))

    def weights(self, *shape: int, mean: float = 0.0) -> str:
        """Add a constant of normally distributed numbers, and return its name."""
        spread = 0.25 if mean else 1.0
        return self.builder.add_constant((mean + spread * self.rng.standard_normal(shape)).astype(self.dtype))

    def feed(self, array: np.ndarray) -> str:
        return self.builder.add_input(array)

    def node(self, op: str, *inputs: str, output: str = "", **attrs: AttrValue) -> str:
        return self.builder.add_node(op, inputs, self.dtype, output=output, **attrs)  # type: ignore[arg-type]  # no attribute has the name of a parameter


def _pair(op: str) -> Callable[[_Net], None]:
    def add(net: _Net) -> None:
        net.node(op, net.feed(net.random(_ROWS, _COLUMNS)), net.feed(net.random(_ROWS, _COLUMNS)))

    return add


def _product(net: _Net) -> None:
    """Multiply numbers. Some products are ties, and some are subnormal."""
    first, second = net.random(_ROWS, _COLUMNS), net.random(_ROWS, _COLUMNS)
    second[:, :_TIE_COLUMNS] = 1.5
    root = np.sqrt(net.short.normal)
    for operand in (first, second):
        operand[:_SMALL_ROWS] = (net.rng.uniform(0.25, _BELOW_NORMAL, (_SMALL_ROWS, _COLUMNS)) * root).astype(net.dtype)
    net.node("Mul", net.feed(first), net.feed(second))


def _quotient(net: _Net) -> None:
    divisor = net.random(_ROWS, _COLUMNS)
    divisor[divisor == 0] = 1
    net.node("Div", net.feed(net.random(_ROWS, _COLUMNS)), net.feed(divisor))


def _root(net: _Net) -> None:
    net.node("Sqrt", net.feed(np.abs(net.random(_ROWS, _COLUMNS))))


def _function(op: str, **attrs: AttrValue) -> Callable[[_Net], None]:
    def add(net: _Net) -> None:
        net.node(op, net.feed(net.random(_ROWS, _COLUMNS)), **attrs)  # type: ignore[arg-type]  # no attribute is called output

    return add


def _gelu(net: _Net) -> None:
    """Apply Gelu where no factor vanishes: a result of 0 would look like a subnormal number that became 0."""
    net.node("Gelu", net.feed(net.rng.uniform(-3, 3, (_ROWS, _COLUMNS)).astype(net.dtype)))


def _matmul(net: _Net) -> None:
    net.node("MatMul", net.feed(net.random(_ROWS, _COLUMNS)), net.weights(_COLUMNS, _COLUMNS))


def _gemm(net: _Net) -> None:
    net.node("Gemm", net.feed(net.random(_ROWS, _COLUMNS)), net.weights(_COLUMNS, _COLUMNS), net.weights(_COLUMNS))


def _convolution(net: _Net) -> None:
    net.node("Conv", net.feed(net.random(8, 8, 12, 12)), net.weights(16, 8, 3, 3), net.weights(16))


def _mean(net: _Net) -> None:
    net.node("ReduceMean", net.feed(net.random(16, _ROWS, _COLUMNS, offset=0.5)), axes=(-1,), keepdims=1)


def _layer_normalization(net: _Net) -> None:
    _add_layer_normalization(net, net.feed(net.random(_ROWS, _COLUMNS, offset=0.5)))


def _add_layer_normalization(net: _Net, x: str) -> None:
    net.node("LayerNormalization", x, net.weights(_COLUMNS, mean=1.0), net.weights(_COLUMNS), axis=-1, epsilon=1e-5)


def _sum_and_layer_normalization(net: _Net) -> None:
    operands = [net.feed(net.random(_ROWS, _COLUMNS, offset=0.5)) for _ in range(2)]
    _add_layer_normalization(net, net.node("Add", *operands, output="sum"))


def _rms_normalization(net: _Net) -> None:
    x = net.feed(net.random(_ROWS, _COLUMNS, offset=0.5))
    net.node("RMSNormalization", x, net.weights(_COLUMNS, mean=1.0), axis=-1, epsilon=1e-5)


def _cast(net: _Net) -> None:
    """Convert float32 numbers: random ones, ties and their neighbors, subnormal results, and the end of the range."""
    short = net.short
    exact = net.random(16, _COLUMNS).astype(np.float32)
    step = np.exp2(np.floor(np.log2(np.maximum(np.abs(exact), short.normal)))) * 2 * short.unit
    ties = (exact + step / 2).astype(np.float32)
    near = [np.nextafter(ties, np.float32(end)) for end in (-np.inf, np.inf)]
    small = (net.rng.uniform(-_BELOW_NORMAL, _BELOW_NORMAL, (8, _COLUMNS)) * short.normal).astype(np.float32)
    sizes = np.minimum(net.rng.uniform(0.99, 1.01, (8, _COLUMNS)) * short.largest, np.finfo(np.float32).max)
    large = sizes * net.rng.choice([-1, 1], sizes.shape)
    random = net.rng.standard_normal((32, _COLUMNS))
    values = np.concatenate([random, ties, *near, small, large]).astype(np.float32)
    code = {"float16": 10, "bfloat16": 16}[short.name]
    net.node("Cast", net.feed(values), to=code)


_OPS: Mapping[str, tuple[Callable[[_Net], None], int]] = MappingProxyType(
    {
        "Cast": (_cast, 14),
        "Add": (_pair("Add"), 14),
        "Sub": (_pair("Sub"), 14),
        "Mul": (_product, 14),
        "Div": (_quotient, 14),
        "Sqrt": (_root, 14),
        "Sigmoid": (_function("Sigmoid"), 14),
        "Tanh": (_function("Tanh"), 14),
        "Erf": (_function("Erf"), 14),
        "Gelu": (_gelu, 20),
        "MatMul": (_matmul, 14),
        "Gemm": (_gemm, 14),
        "Conv": (_convolution, 22),
        "ReduceMean": (_mean, 14),
        "Softmax": (_function("Softmax", axis=-1), 14),
        "LayerNormalization": (_layer_normalization, 17),
        "RMSNormalization": (_rms_normalization, 23),
        "Add + LayerNormalization": (_sum_and_layer_normalization, 17),
    }
)
"""For each operator or chain: the function that adds it, and the first operator set of ONNX that has it in bfloat16."""
ROUNDED_OPS = tuple(_OPS)
"""Operators and chains whose roundings are probed. The last operator of a chain is the one that is examined."""


def rounding_model(op: str, short: str, *, seed: int = SEED) -> ProbeModel:
    """Return a network whose only output is the result of an operator in a 16-bit format.

    Args:
        op: One of `ROUNDED_OPS`.
        short: One of `ROUNDED_FORMATS`.
        seed: Seed of its inputs and constants.
    """
    add, opset = _OPS[op]
    builder = NetBuilder(short, f"{op} {short}", opset=opset)
    add(_Net(_FORMATS[short], builder, np.random.default_rng(seed)))
    return builder.build()
