"""A node is refused before it makes more than the recorded tensors account for."""

import tracemalloc

import numpy as np
import pytest

from qdebug.errors import KernelError
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, TensorInfo
from qdebug.model.recording import Outline
from qdebug.replay.extents import broadcast_shapes, product_cost, recorded_limits, size_limits
from qdebug.replay.registry import run_node
from qdebug.replay.run import run_coded, run_graph
from qdebug.replay.segment import run_segment
from qdebug.replay.variant import Arithmetic

BIG = 1 << 26
ONE = np.ones((1, 1, 8, 8), np.float32)
MICROSOFT = "com.microsoft"


def whole(*values):
    return np.array(values, np.int64)


def real(*shape):
    return np.ones(shape, np.float32)


ATTENTION = [real(1, 2, 4), real(1, 2, 4), real(1, 2, 4)]
LARGE = {
    "Tile": ("Tile", {}, [ONE, whole(1, 1, BIG, 1)], ""),
    "Expand": ("Expand", {}, [real(1), whole(BIG)], ""),
    "Pad, an input": ("Pad", {}, [ONE, whole(0, 0, 0, 0, 0, 0, 0, BIG)], ""),
    "Pad, at an edge": ("Pad", {"mode": "edge"}, [ONE, whole(0, 0, 0, 0, 0, 0, 0, BIG)], ""),
    "OneHot": ("OneHot", {}, [whole(1, 2), whole(BIG), real(2)], ""),
    "Range": ("Range", {}, [whole(0)[0], whole(BIG)[0], whole(1)[0]], ""),
    "ConstantOfShape": ("ConstantOfShape", {}, [whole(BIG, 2)], ""),
    "Gather": ("Gather", {"axis": 0}, [real(2, 30_000), np.zeros(10_000, np.int64)], ""),
    "GatherND": ("GatherND", {}, [real(2, 30_000), np.zeros((10_000, 1), np.int64)], ""),
    "TopK": ("TopK", {}, [real(4), whole(BIG)[0]], ""),
    "Split": ("Split", {"num_outputs": 1 << 30}, [real(4)], ""),
    "Resize, sizes": ("Resize", {"mode": "linear"}, [ONE, None, None, whole(1, 1, 1 << 14, 1 << 14)], ""),
    "Resize, scales": ("Resize", {}, [ONE, None, np.array([1, 1, BIG, 1], np.float32)], ""),
    "Resize, a wide filter": (
        "Resize",
        {"mode": "linear", "antialias": 1},
        [real(1, 1, 8, 64), None, np.array([1, 1, 1, 1e-9], np.float32)],
        "",
    ),
    "Add, an outer sum": ("Add", {}, [real(30_000, 1), real(1, 30_000)], ""),
    "MatMul, an outer product": ("MatMul", {}, [real(30_000, 1), real(1, 30_000)], ""),
    "Gemm": ("Gemm", {"transA": 1}, [real(1, 30_000), real(1, 30_000)], ""),
    "Einsum": ("Einsum", {"equation": "i,j->ij"}, [real(30_000), real(30_000)], ""),
    "Conv, pads": ("Conv", {"pads": (0, 0, BIG, 0)}, [ONE, real(1, 1, 3, 3)], ""),
    "Conv, dilations": ("Conv", {"pads": (0, 0, BIG, 0), "dilations": (1 << 25, 1)}, [ONE, real(1, 1, 3, 3)], ""),
    "ConvTranspose": ("ConvTranspose", {"strides": (1 << 24, 1)}, [ONE, real(1, 1, 3, 3)], ""),
    "AveragePool, taps": (
        "AveragePool",
        {"kernel_shape": (20_000, 20_000), "pads": (10_000, 10_000, 10_000, 10_000)},
        [ONE],
        "",
    ),
    "MaxPool, one long kernel": ("MaxPool", {"kernel_shape": (1 << 22, 1), "pads": (1 << 22, 0, 0, 0)}, [ONE], ""),
    "LRN": ("LRN", {"size": 1 << 40}, [ONE], ""),
    "LSTM, steps of nothing": ("LSTM", {}, [real(BIG, 1, 0), real(1, 4, 0), real(1, 4, 1)], ""),
    "Relu, rows of nothing": ("Relu", {}, [real(1 << 40, 0)], ""),
    "DequantizeLinear": (
        "DequantizeLinear",
        {"axis": 0, "block_size": 1 << 40},
        [np.ones(4, np.int8), real(1), np.zeros(1, np.int8)],
        "",
    ),
    "GroupQueryAttention": (
        "GroupQueryAttention",
        {"num_heads": 1, "kv_num_heads": 1},
        [*ATTENTION, None, None, whole(1), whole(1 << 40)],
        MICROSOFT,
    ),
    "MultiHeadAttention": (
        "MultiHeadAttention",
        {"num_heads": 1},
        [*[real(1, 40_000, 1)] * 3, None, None, None],
        MICROSOFT,
    ),
    "RotaryEmbedding": (
        "RotaryEmbedding",
        {},
        [real(1, 1, 10_000, 2), whole(0), real(1, 100_000), real(1, 100_000)],
        MICROSOFT,
    ),
    "MatMulNBits": (
        "MatMulNBits",
        {"K": 32, "N": 1 << 40, "block_size": 32},
        [real(1, 32), np.zeros((1, 1, 16), np.uint8), real(1)],
        MICROSOFT,
    ),
}


@pytest.mark.parametrize("case", LARGE)
def test_a_node_that_asks_for_far_more_than_it_reads_is_refused_before_it_makes_it(case):
    op, attrs, inputs, domain = LARGE[case]
    names = tuple("" if array is None else f"x{at}" for at, array in enumerate(inputs))
    node = Node(name="n", op=op, domain=domain, inputs=names, outputs=("y",), attrs=attrs)
    tracemalloc.start()
    try:
        with pytest.raises(KernelError, match=r"would produce|would process|reads an empty tensor"):
            run_node(node, {name: array for name, array in zip(names, inputs, strict=True) if name})
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


TILE = Node(name="n", op="Tile", inputs=("x", "repeats"), outputs=("y",))


class Outlined(MemoryRecording):
    """A recording that knows the shapes of what it holds, as files do."""

    def outline(self, tensor, sample=0, step=0):
        if not self.has(tensor, sample, step):
            return None
        array = self.load(tensor, sample, step)
        return Outline(str(array.dtype), array.shape, b"")


def tiled(size):
    graph = Graph([TILE], outputs=("y",))
    return Outlined.single(graph, {"x": real(4), "repeats": whole(8), "y": real(size)})


def test_no_more_is_made_than_was_recorded():
    values = {"x": real(4), "repeats": whole(8)}
    with recorded_limits(tiled(32), (0, 0)):
        assert run_node(TILE, values)["y"].size == 32
    with (
        recorded_limits(tiled(16), (0, 0)),
        pytest.raises(KernelError, match="would produce 32 elements, but only 16 were rec"),
    ):
        run_node(TILE, values)


def test_a_recorded_output_of_that_size_allows_it():
    graph = Graph([TILE], outputs=("y",))
    size = 1 << 25
    recording = Outlined.single(graph, {"y": np.broadcast_to(np.float32(1), size)})
    values = {"x": real(1), "repeats": whole(size)}
    with pytest.raises(KernelError, match="are allowed"):
        run_node(TILE, values)
    with recorded_limits(recording, (0, 0)):
        assert run_node(TILE, values)["y"].size == size


def test_a_chain_of_nodes_grows_no_further_than_one():
    nodes = [Node(name=f"n{at}", op="Tile", inputs=(f"t{at}", "repeats"), outputs=(f"t{at + 1}",)) for at in range(4)]
    read = {"t0": real(1 << 10), "repeats": whole(1 << 8)}
    with pytest.raises(KernelError, match="n1"):
        run_segment(nodes, "t4", {}, lambda _form, name: read[name])


def test_a_graph_that_is_run_grows_no_further_either():
    nodes = [Node(name=f"n{at}", op="Expand", inputs=(f"t{at}", "shape"), outputs=(f"t{at + 1}",)) for at in range(2)]
    graph = Graph(nodes, inputs=("t0",), outputs=("t2",))
    with pytest.raises(KernelError, match="n0"):
        run_graph(graph, {"t0": real(1)}, {"shape": whole(1 << 20, 1 << 10)})


def test_a_node_between_codes_is_held_to_the_same():
    quant = QuantParams(dtype="int8", scale=1.0, zero_point=0)
    tensors = [TensorInfo(name=name, dtype="int8", quant=quant) for name in "xy"]
    node = Node(
        name="n", op="MaxPool", inputs=("x",), outputs=("y",), attrs={"kernel_shape": (1, 1), "pads": (0, 0, BIG, 0)}
    )
    graph = Graph([node], tensors=tensors, inputs=("x",), outputs=("y",))
    with pytest.raises(KernelError, match="would produce"):
        run_coded(graph, node, {"x": np.ones((1, 1, 8, 8), np.int8)}, Arithmetic())


def test_what_was_said_outside_holds_again_after_the_block():
    with size_limits(element_limit=1 << 26):
        with size_limits(element_limit=1):
            pass
        assert run_node(TILE, {"x": real(1), "repeats": whole(1 << 25)})["y"].size == 1 << 25


@pytest.mark.parametrize(
    ("a", "b"), [((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((5, 1, 2, 3), (7, 3, 4))]
)
def test_the_extent_of_a_product(a, b):
    assert product_cost(a, b).elements == np.matmul(np.ones(a), np.ones(b)).size


@pytest.mark.parametrize(
    "shapes", [((2, 1), (1, 3)), ((4,), (2, 1)), ((), (2, 3)), ((0, 1), (1, 5)), ((2, 3), (3, 2)), ((2,), (3,))]
)
def test_shapes_broadcast_as_arrays_do(shapes):
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        expected = None
    assert broadcast_shapes(*shapes) == expected
