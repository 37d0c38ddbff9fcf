"""A cast to integers that changes numbers is found where the reference has no such cast, or one to a wider type."""

import numpy as np
import pytest

from qdebug.compare.result.finding import FindingKind, FindingRole
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.session import DiffSession

INTS = np.arange(-40, 40, dtype=np.int64) * 7
REALS = (np.arange(40, dtype=np.float32) - 7) / 4


def casting(x, dtype, number, *, cast=True):
    """Record indices that are cast, and doubled."""
    nodes = [Node(name="cast", op="Cast", inputs=("x",), outputs=("i",), attrs={"to": number})] if cast else []
    nodes.append(Node(name="add", op="Add", inputs=("i" if cast else "x",) * 2, outputs=("y",)))
    with np.errstate(invalid="ignore"):
        made = x.astype(dtype)
    values = {"x": x, "i": made, "y": made + made} if cast else {"x": x, "y": x + x}
    infos = [
        TensorInfo(name="x", role=Role.INPUT, dtype=x.dtype.name),
        TensorInfo(name="y", role=Role.OUTPUT, dtype=values["y"].dtype.name),
    ]
    if cast:
        infos.append(TensorInfo(name="i", dtype=made.dtype.name))
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})
    return MemoryRecording.single(graph, values)


def found(reference, backend):
    result = DiffSession(reference, backend).result()
    return result, [each for node in result.nodes for each in node.findings if each.kind is FindingKind.PRECISION]


def test_an_index_that_a_narrower_type_does_not_hold():
    result, casts = found(casting(INTS, np.int32, 6), casting(INTS, np.int8, 3))
    assert (result.exit_code, result.verdict.first_divergence) == (1, "cast")
    (finding,) = casts
    assert finding.role is FindingRole.NOTE, "that the types differ is said first"
    wrong = int(np.count_nonzero(INTS.astype(np.int8) != INTS))
    assert finding.sentence == f"its cast to int8 changes {wrong} of 80 elements, the first from -280 to -24"
    assert (finding.amount, finding.limit, finding.unit) == (wrong, 0, "elements")


@pytest.mark.parametrize(("values", "dtype", "number"), [(INTS, np.int8, 3), (REALS, np.int32, 6)])
def test_a_cast_that_the_reference_lacks(values, dtype, number):
    result, casts = found(casting(values, dtype, number, cast=False), casting(values, dtype, number))
    assert result.exit_code == 1
    assert [(each.node, each.role) for each in casts] == [("cast", FindingRole.DIFFERENCE)]
    assert "Cast 'cast': the cast to" in casts[0].sentence


@pytest.mark.parametrize("values", [INTS, REALS])
def test_the_same_cast_on_both_sides_changes_nothing(values):
    result, casts = found(casting(values, np.int32, 6), casting(values, np.int32, 6))
    assert (result.exit_code, casts) == (0, [])


def test_a_cast_that_changes_nothing_is_none():
    result, casts = found(casting(INTS, np.int64, 7), casting(INTS, np.int16, 5))
    assert (result.exit_code, casts) == (0, [])
