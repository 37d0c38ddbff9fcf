"""What lies inside a part that two graphs compute differently counts as compared only with its reason said in full."""

import numpy as np
import pytest

from qdebug.compare.align.align import align
from qdebug.compare.align.pairs import UnmatchedKind
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def recording(nodes, *, constants=(), held=True):
    """Make a run of nodes given as (op, inputs, output), whose values are of no account."""
    made = [Node(name=output, op=op, inputs=tuple(inputs.split()), outputs=(output,)) for op, inputs, output in nodes]
    tensors = [TensorInfo(name="x", role=Role.INPUT)]
    tensors += [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    tensors += [TensorInfo(name=output, role=Role.ACTIVATION) for _, _, output in nodes]
    arrays = {info.name: X for info in tensors if held or info.role is not Role.CONSTANT}
    return MemoryRecording.single(Graph(made, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17}), arrays)


def inside(reference, backend):
    entries = {entry.tensor: entry for entry in align(reference, backend).unmatched}
    assert entries["a"].kind is entries["b"].kind is UnmatchedKind.BENIGN
    return entries["a"].reason, entries["b"].reason


BACKEND = [("Exp", "x", "b"), ("Sqrt", "b", "y")]


@pytest.mark.parametrize(
    ("nodes", "constants", "held", "why"),
    [
        ([("Abs", "x", "a"), ("Exp", "a", "y")], (), True, ""),
        ([("Mystery", "x", "a"), ("Exp", "a", "y")], (), True, "no kernel is known for Mystery"),
        ([("Mul", "x c", "a"), ("Exp", "a", "y")], ("c",), True, ""),
        ([("Mul", "x c", "a"), ("Exp", "a", "y")], ("c",), False, "the constant 'c' was not recorded"),
    ],
)
def test_a_part_that_nothing_can_check_says_so(nodes, constants, held, why):
    for reason in inside(recording(nodes, constants=constants, held=held), recording(BACKEND)):
        assert "the result 'y' of this part is compared" in reason
        assert ("whether both runs compute the same result there was not checked" in reason) == bool(why)
        assert reason.endswith(why)
