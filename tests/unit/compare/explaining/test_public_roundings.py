"""Public reports of 2026 about float kernels that round in another place, rebuilt: each is named, in one way.

The arithmetic of each is taken from its report, in NumPy. Networks ran into them on GPUs and NPUs, where each passes
the usual tolerances.
"""

import ml_dtypes
import numpy as np
import pytest

from qdebug.api import explain
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.numerics.float_rounding import round_float
from qdebug.numerics.short_formats import SHORT_FORMATS

BFLOAT16 = next(short for short in SHORT_FORMATS if short.name == "bfloat16")
ROWS, LENGTH = 64, 512


def rounded(values, word="even"):
    return round_float(np.asarray(values, np.float64), BFLOAT16, word).astype(np.float32)


def drawn(*shape, seed=0, size=1.0):
    return rounded(np.random.default_rng(seed).standard_normal(shape or (ROWS, LENGTH)) * size)


def run(nodes, values, constants=()):
    """Return a recording of bfloat16 values."""
    made = {output for node in nodes for output in node.outputs}
    graph = Graph(
        nodes,
        tensors=[TensorInfo(name=name, role=Role.CONSTANT) for name in constants],
        inputs=[name for name in values if name not in made and name not in constants],
        outputs=[nodes[-1].outputs[0]],
    )
    stored = {
        name: array.astype(ml_dtypes.bfloat16) if array.dtype == np.float32 else array for name, array in values.items()
    }
    return MemoryRecording.single(graph, stored)


def node(op, inputs, outputs, **attrs):
    outputs = tuple(outputs.split())
    return Node(name=outputs[0], op=op, inputs=tuple(inputs.split()), outputs=outputs, attrs=attrs)


def skip_normalization(*, residual="even", measured=None, inverse=None):
    """Return a fused residual sum and RMS normalization."""
    x, skip, scale = drawn(seed=1), drawn(seed=2), drawn(LENGTH, seed=3)
    total = x + skip
    read = total if measured is None else rounded(total, measured)
    factor = 1 / np.sqrt((read * read).mean(-1, keepdims=True) + np.float32(1e-5))
    y = rounded(total * (factor if inverse is None else rounded(factor, inverse)) * scale, residual)
    nodes = [node("SkipSimplifiedLayerNormalization", "x skip scale", "y _ __ total", epsilon=1e-5)]
    values = {"x": x, "skip": skip, "scale": scale, "y": y, "total": rounded(total, residual)}
    return run(nodes, values, ("scale",))


def all_reduce():
    """Return a sum of the parts of four processors, kept in bfloat16 from one to the next."""
    parts = {f"p{rank}": drawn(seed=rank) for rank in range(4)}
    total = parts["p0"]
    for rank in range(1, 4):
        total = rounded(total + parts[f"p{rank}"])
    return run([node("Sum", " ".join(parts), "y")], parts | {"y": total})


def power_of_two_scales():
    """Return the scales of an MX quantizer that are rounded up from 1.75 times a power of two on."""
    largest = np.abs(drawn(ROWS * LENGTH, seed=4).astype(np.float32)) + np.float32(0.01)
    mantissa, exponent = np.frexp(largest)
    scales = np.ldexp(1.0, exponent - 1 + (mantissa >= 0.875)).astype(ml_dtypes.float8_e8m0fnu)
    cast = Node(name="scales", op="Cast", inputs=("x",), outputs=("scales",), attrs={"to": 24, "round_mode": "up"})
    graph = Graph([cast], inputs=("x",), outputs=("scales",))
    return MemoryRecording.single(graph, {"x": largest, "scales": scales})


def product_in_blocks():
    """Return a product of factors in BFP16, rounded down: 8 numbers share an exponent."""
    x, weight = drawn(seed=5), drawn(LENGTH, 64, seed=6)

    def in_blocks(array):
        blocks = array.reshape(*array.shape[:-1], -1, 8).astype(np.float64)
        unit = 2.0 ** (np.floor(np.log2(np.abs(blocks).max(-1, keepdims=True))) - 6)
        return (np.floor(blocks / unit).clip(-128, 127) * unit).reshape(array.shape)

    y = rounded(in_blocks(x) @ np.ascontiguousarray(in_blocks(np.ascontiguousarray(weight.T)).T))
    return run([node("MatMul", "x w", "y")], {"x": x, "w": weight, "y": y}, ("w",))


def floor_of_sum():
    """Return an addition by a core whose register says to round down."""
    a, b = drawn(seed=7), drawn(seed=8)
    return run([node("Add", "a b", "y")], {"a": a, "b": b, "y": rounded(a + b, "down")})


def rotary():
    """Return a rotary embedding whose compiled kernel adds products that were not rounded."""
    x, turned, cos, sin = (drawn(seed=seed) for seed in range(9, 13))
    first, second = x * cos, turned * sin
    nodes = [node("Mul", "x cos", "a"), node("Mul", "turned sin", "b"), node("Add", "a b", "y")]
    values = {"x": x, "turned": turned, "cos": cos, "sin": sin, "a": rounded(first), "b": rounded(second)}
    return run(nodes, values | {"y": rounded(first + second)})


def softmax(sum_word):
    """Return a softmax whose exponentials are rounded."""
    x = drawn(seed=13, size=2.0)
    powers = rounded(np.exp(x - x.max(-1, keepdims=True)), sum_word)
    return run([node("Softmax", "x", "y", axis=-1)], {"x": x, "y": rounded(powers / powers.sum(-1, keepdims=True))})


def gate():
    """Return a SwiGLU that multiplies before the activation is rounded."""
    x, up = drawn(seed=14), drawn(seed=15)
    active = x / (1 + np.exp(-x))
    values = {"x": x, "up": up, "active": rounded(active), "y": rounded(active * up)}
    return run([node("Swish", "x", "active"), node("Mul", "active up", "y")], values)


# source of each arithmetic: the kernel, the node to look at, and what is said of it
REPORTS = {
    "ROCm/aiter#5151": (lambda: skip_normalization(residual="zero"), "total", ("results truncated",)),
    "ROCm/aiter#2586": (all_reduce, "y", ("the first 2 operands rounded", "the first 3 operands rounded")),
    "vllm#52104": (lambda: skip_normalization(measured="even"), "y", ("the sum in the mean of squares rounded",)),
    "vllm#43557": (power_of_two_scales, "scales", ("only from 1.75 times",)),
    "amd/IRON#139": (lambda: skip_normalization(inverse="even"), "y", ("the inverse root rounded",)),
    "Xilinx/mlir-aie#3442": (product_in_blocks, "y", ("every 8 terms", "share an exponent", "rounded down")),
    "Xilinx/mlir-aie#3587": (floor_of_sum, "y", ("results rounded down",)),
    "pytorch#182225": (rotary, "y", ("'a' read before its rounding", "'b' read before its rounding")),
    "Xilinx/mlir-aie#3726": (lambda: softmax("zero"), "y", ("the exponentials truncated",)),
    "radixark/Megatron-LM#68": (gate, "y", ("'active' read before its rounding",)),
}


@pytest.mark.parametrize("report", REPORTS)
def test_the_rounding_of_a_public_report_is_named(report):
    make, tensor, words = REPORTS[report]
    explanation = explain(make())
    answer = next(each for each in explanation.nodes if each.tensor == tensor)
    text = " ".join(filter(None, (answer.words, answer.reason, getattr(answer.residual, "likely", None))))
    assert all(word in text for word in words), text
