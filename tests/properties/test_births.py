"""A NaN or infinity that a node makes of finite inputs is born there, by a rule of arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.compare.result.limits import Limits
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.session import DiffSession

FUNCTIONS = {
    "Div": np.divide,
    "Mul": np.multiply,
    "Add": np.add,
    "Sub": np.subtract,
    "Pow": np.power,
    "Exp": np.exp,
    "Log": np.log,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
    "Acos": np.arccos,
    "Atanh": np.arctanh,
}
UNARY = {"Exp", "Log", "Sqrt", "Reciprocal", "Acos", "Atanh"}
NUMBERS = st.sampled_from([0, 1, -1, 0.5, -0.5, 2, -3, 90, -90, 1e-30, 1e20, -1e20, 3e38, -3e38])
ROWS = st.lists(NUMBERS, min_size=6, max_size=6).map(lambda row: np.array([row], np.float32))


def recorded(op, inputs):
    names = ("a",) if op in UNARY else ("a", "b")
    with np.errstate(all="ignore"):
        made = FUNCTIONS[op](*inputs[: len(names)]).astype(np.float32)
    tensors = [TensorInfo(name=name, role=Role.INPUT, dtype="float32") for name in names]
    tensors.append(TensorInfo(name="y", role=Role.OUTPUT, dtype="float32"))
    node = Node(name="n", op=op, inputs=names, outputs=("y",))
    graph = Graph([node], tensors=tensors, inputs=names, outputs=("y",), opset={"": 17})
    return MemoryRecording.single(graph, {**dict(zip(names, inputs, strict=False)), "y": made}), made


@pytest.mark.parametrize("op", FUNCTIONS)
@drawn(25)
@given(a=ROWS, b=ROWS)
def test_what_finite_inputs_make_is_born_in_the_first_element_by_a_rule_and_selected_by_an_input(op, a, b):
    healthy = np.full((1, 6), 0.5, np.float32)
    reference, _ = recorded(op, (healthy, healthy))
    backend, made = recorded(op, (a, b))
    result = DiffSession(reference, backend, limits=Limits(allow_different_inputs=True)).result()
    entry = next(node for node in result.nodes if node.tensor == "y")
    wrong = np.argwhere(~np.isfinite(made))
    if not wrong.size:
        assert entry.born is None
        assert result.verdict.nonfinite is None
        return
    assert entry.born is not None
    assert entry.born.index == tuple(wrong[0])
    assert entry.born.elements == len(wrong)
    assert entry.born.rule not in ("arithmetic", "unknown", "undefined", "taken", "constant")
    assert entry.born.selected
    for each, operand in zip((a, b), entry.born.operands, strict=False):
        assert operand.value == each[entry.born.index]
    assert result.verdict.origin in [each.tensor for each in entry.born.selected]
    assert result.verdict.nonfinite.path == ("n",)
