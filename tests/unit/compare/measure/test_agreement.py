"""Which tensors several backends get wrong in the same way."""

import numpy as np

from qdebug.compare.align.align import align
from qdebug.compare.measure.agreement import agreements
from qdebug.model import Graph, MemoryRecording, Node
from qdebug.numerics.agreement import Agreement

F32 = np.float32


def recorded(a, b, *, samples=1):
    graph = Graph(
        [
            Node(name="one", op="Relu", inputs=("x",), outputs=("a",)),
            Node(name="two", op="Neg", inputs=("a",), outputs=("b",)),
        ],
        inputs=["x"],
        outputs=["b"],
    )
    named = {"x": F32([0, 0]), "a": F32(a), "b": F32(b)}
    return MemoryRecording(graph, {(name, s, 0): array for s in range(samples) for name, array in named.items()})


def test_every_shared_tensor_is_counted_over_the_samples_that_all_hold():
    reference = recorded([0, 0], [0, 0], samples=3)
    backends = [recorded([1, 1], [2, 3], samples=2), recorded([1, 2], [0, 3], samples=3)]
    found = agreements(reference, [(side, align(reference, side)) for side in backends])
    assert list(found) == ["x", "a", "b"]
    assert found["x"] == Agreement(elements=4)
    assert found["a"] == Agreement(elements=4, differ=4, same=2)
    assert found["b"] == Agreement(elements=4, differ=2, same=2)


def test_a_tensor_of_one_backend_or_of_another_shape_is_left_out():
    reference = recorded([0, 0], [0, 0])
    backends = [recorded([1, 1], [1, 1]), recorded([1, 1], [1, 1, 1])]
    aligned = [(side, align(reference, side)) for side in backends]
    assert "b" not in agreements(reference, aligned)
    assert agreements(reference, aligned[:1]) == {}
