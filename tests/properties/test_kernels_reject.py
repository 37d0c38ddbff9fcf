"""Whatever a recording says of a node, its kernel answers or refuses; a mistake in a kernel is no refusal."""

from __future__ import annotations

from zlib import crc32

import ml_dtypes
import numpy as np
import pytest
from sweeps import drawn

from qdebug.arithmetic.presets import known_presets
from qdebug.errors import KernelError
from qdebug.model import Graph, Node, QuantParams, TensorInfo, operators
from qdebug.replay import Arithmetic, known_kernels, registry, run_graph, run_node

CALLS = drawn(60).max_examples
CODED_CALLS = drawn(24).max_examples
DTYPES = [np.float32, np.float32, np.float64, np.int8, np.uint8, np.int32, np.int64, np.bool_, np.float16]
RARE_DTYPES = [np.uint64, np.complex64, ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float8_e4m3fn]
CODES = [np.int8, np.uint8, np.int8, np.uint8, np.int16, np.int32, ml_dtypes.int4, np.float32]
VALUES = [0, 1, -1, 2, 7, -7, 1.5, float("nan"), True, "x", "", "SAME_UPPER", "linear", "mean", "reflect", "edge"]
VALUES += [(), (1,), (1, 1), [2, 2], (3, 3, 3), (0, 0, 0, 0), (-1, -2), np.zeros((2, 2), np.float32), np.ones(3, int)]
OPSETS = [7, 11, 13, 18, 23]
KERNELS = [pytest.param(*key, id=".".join(filter(None, key))) for key in known_kernels()]
UNITS = [pytest.param(*key.values, id=key.id) for key in KERNELS if operators.of(key.values[1]).unit]

# Random numbers are divided by 0, leave the range of a dtype and lose their imaginary part.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


class Draws:
    """Random nodes of one operator, the same each time."""

    def __init__(self, domain: str, op: str) -> None:
        self.domain, self.op = domain, op
        self.rng = np.random.default_rng(crc32(f"{domain}.{op}".encode()))
        self.asked: dict[str, object] = {}

    def one_of(self, choices: list) -> object:
        return choices[self.rng.integers(len(choices))]

    def array(self, dtypes: list) -> np.ndarray:
        shape = tuple(self.rng.choice([0, 1, 1, 2, 2, 3, 4], self.rng.integers(6)).tolist())
        return (self.rng.normal(size=shape) * 4).astype(self.one_of(dtypes))

    def arrays(self, dtypes: list) -> list[np.ndarray | None]:
        """Draw up to eight inputs: some are left out, some are of one shape."""
        first = self.array(dtypes)
        others = [first if self.rng.random() < 0.3 else self.array(dtypes) for _ in range(self.rng.integers(9))]
        return [None if self.rng.random() < 0.07 else array for array in (first, *others)][self.rng.integers(2) :]

    def attrs(self) -> dict[str, object]:
        """Draw attributes of those that were asked for so far."""
        names = [name for name in self.asked if self.rng.random() < 0.5]
        usual = {name: self.asked[name] for name in names if self.asked[name] is not None}
        return {
            name: usual.get(name, self.one_of(VALUES)) if self.rng.random() < 0.4 else self.one_of(VALUES)
            for name in names
        }

    def node(self, arrays: list[np.ndarray | None], outputs: int) -> tuple[Node, dict[str, np.ndarray]]:
        values = {f"x{slot}": array for slot, array in enumerate(arrays) if array is not None}
        names = tuple("" if array is None else f"x{slot}" for slot, array in enumerate(arrays))
        made = tuple(f"y{slot}" for slot in range(outputs))
        return Node(name="n", op=self.op, domain=self.domain, inputs=names, outputs=made, attrs=self.attrs()), values

    def quant(self, array: np.ndarray) -> QuantParams | None:
        if self.rng.random() < 0.1 or array.dtype == np.float32:
            return None
        axis = int(self.rng.integers(array.ndim + 1)) if self.rng.random() < 0.3 else None
        scales = 1 if axis is None else array.shape[axis] if axis < array.ndim else 3
        scale = self.rng.choice([0.5, 0.25, 0.1, 0.01, 0.0, np.inf], scales).astype(np.float32)
        return QuantParams(dtype=array.dtype.name, scale=scale, zero_point=self.rng.integers(0, 5, scales), axis=axis)


@pytest.mark.parametrize(("domain", "op"), KERNELS)
def test_a_kernel_answers_or_refuses(domain, op):
    draws = Draws(domain, op)
    for turn in range(CALLS):
        node, values = draws.node(
            draws.arrays(DTYPES if turn % 3 else [*DTYPES, *RARE_DTYPES]), int(draws.rng.integers(1, 4))
        )
        moved = (lambda _name, shape, _chosen: np.ones(shape)) if domain == registry.REAL else None
        try:
            made = run_node(node, values, {"": draws.one_of(OPSETS)}, defaults=draws.asked, moved=moved)
        except KernelError:
            continue
        assert tuple(made) == node.outputs


@pytest.mark.parametrize(("domain", "op"), UNITS)
def test_a_node_between_codes_answers_or_refuses(domain, op):
    draws = Draws(domain, op)
    draws.asked = dict.fromkeys(
        ("activation", "axes", "axis", "channels_last", "group", "kernel_shape", "mode", "transA")
    )
    presets = [Arithmetic(variants=preset.variants) for preset in known_presets().values()]
    for _ in range(CODED_CALLS):
        arrays = draws.arrays(CODES)
        node, values = draws.node(arrays, 1)
        known = next(iter(values.values()), np.zeros((), np.int8))
        tensors = [
            TensorInfo(name=name, dtype=array.dtype.name, quant=draws.quant(array)) for name, array in values.items()
        ]
        tensors.append(TensorInfo(name="y0", dtype=known.dtype.name, quant=draws.quant(known)))
        graph = Graph([node], inputs=list(values), outputs=["y0"], tensors=tensors, opset={"": draws.one_of(OPSETS)})
        try:
            made = run_graph(graph, values, {}, arithmetic=draws.one_of(presets))
        except KernelError:
            continue
        assert list(made) == ["y0"]


@pytest.mark.parametrize("kind", [AttributeError, TypeError, IndexError, KeyError, NameError])
@pytest.mark.parametrize("table", ["_KERNELS", "_COSTS"])
def test_a_mistake_in_a_kernel_or_its_extent_is_let_out(monkeypatch, table, kind):
    mistake = kind("a mistake")

    def mistaken(call):
        raise mistake

    known_kernels()
    monkeypatch.setitem(getattr(registry, table), ("", "Relu"), mistaken)
    with pytest.raises(kind) as caught:
        run_node(Node(name="n", op="Relu", inputs=("x",), outputs=("y",)), {"x": np.zeros(2, np.float32)})
    assert caught.value is mistake
