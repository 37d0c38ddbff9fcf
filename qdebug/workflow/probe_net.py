"""A small net in the making, and integers chosen so that requantizing them tells arithmetics apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from qdebug.model import AttrValue, Graph, Node, QuantParams, Role, TensorInfo

__all__ = ["DOMAIN", "SEED", "NetBuilder", "ProbeModel", "chosen_sums", "encoded", "quant_of_codes", "tap_weights"]

DOMAIN = "com.microsoft"
"""Operator set of the quantized operators that the standard does not have."""
SEED = 20
"""Seed of all data that is drawn at random."""
CHANNELS, TAP, FILTERS = 128, 63, 8
"""Products of a chosen sum; weight of all but the first, two of which fit 16 bits; filters that see each sum."""
REACH = (CHANNELS - 1) * TAP * 100
"""Largest magnitude of a chosen sum."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeModel:
    """A net of several nodes of one kind and the inputs to run it on.

    Args:
        kind: What its nodes compute, as in `qdebug.replay.unit.KINDS`.
        title: The kind with its types, such as "conv uint8 x int8".
        graph: The net.
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
    """A net in the making: every operand is an input or a constant, every result an output."""

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

    def stored(self, array: np.ndarray) -> str:
        """Add a constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        self.infos.append(TensorInfo(name=name, shape=array.shape, dtype=array.dtype.name, role=Role.CONSTANT))
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
        *,
        domain: str = "",
        quant: QuantParams | None = None,
        **attrs: AttrValue,
    ) -> str:
        """Add a node and give the name of its output, which has a dtype."""
        name = f"y{len(self.nodes)}"
        node = Node(name=f"n{len(self.nodes)}", op=op, inputs=inputs, outputs=(name,), attrs=attrs, domain=domain)
        self.nodes.append(node)
        self.infos.append(TensorInfo(name=name, dtype=dtype.name, quant=quant))
        return name

    def model(self) -> ProbeModel:
        """Give the net; results that no node reads are its outputs."""
        read = {name for node in self.nodes for name in node.inputs}
        outputs = tuple(name for node in self.nodes for name in node.outputs if name not in read)
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
    """Choose integers whose product with a multiplier lies next to a tie, and some at random.

    Args:
        multiplier: The real multiplier.
        count: How many.
        reach: Largest magnitude.
        most: Largest magnitude of the product.
    """
    rng = np.random.default_rng(SEED)
    end = min(reach, int(most / multiplier))
    every = rng.permutation(np.arange(-end, end + 1))
    product = every * multiplier
    distance = np.abs(np.abs(product - np.floor(product)) - 0.5)
    wanted = min(count - count // 4, every.size)
    near = every[distance <= np.partition(distance, wanted - 1)[wanted - 1]][:wanted]
    found = np.concatenate([near, every[: count - near.size]])
    found.flags.writeable = False
    return found


def encoded(sums: np.ndarray) -> np.ndarray:
    """Give operands (sums, products) whose products with `tap_weights` sum to what is asked."""
    first = (sums + TAP // 2) % TAP - TAP // 2
    share, extra = np.divmod((sums - first) // TAP, CHANNELS - 1)
    rest = share[:, None] + (np.arange(CHANNELS - 1) < extra[:, None])
    return np.concatenate([first[:, None], rest], axis=1)


def tap_weights() -> np.ndarray:
    """Give weights (products, filters): the second filter of each two gives the negative sums."""
    one = np.full(CHANNELS, TAP)
    one[0] = 1
    return one[:, None] * np.where(np.arange(FILTERS) % 2, -1, 1)


def quant_of_codes(codes: np.ndarray, scale: float, zero: int) -> QuantParams:
    """Give parameters of one scale and one zero point for codes of some dtype."""
    return QuantParams(
        dtype=codes.dtype.name, scale=np.asarray(scale, np.float32), zero_point=np.asarray(zero, np.int64)
    )
