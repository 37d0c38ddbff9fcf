"""How much of a node's error each of its inputs brings."""

import math

import numpy as np
import pytest

from qdebug.compare.align.align import align_runs
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.attribute.input_errors import errors_by_input, partner_values
from qdebug.compare.attribute.reference_replay import ReferenceReplay
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo

PLACE = (0, 0)


def recorded(nodes, arrays, inputs, output="y"):
    made = [
        Node(name=out, op=op, inputs=tuple(read.split()), outputs=(out,), attrs=dict(*attrs))
        for op, read, out, *attrs in nodes
    ]
    names = dict.fromkeys([*inputs, *(name for node in made for name in (*node.inputs, *node.outputs))])
    tensors = [
        TensorInfo(
            name=name,
            role=Role.INPUT if name in inputs else Role.ACTIVATION,
            dtype=str(arrays[name].dtype) if name in arrays else None,
            shape=arrays[name].shape if name in arrays else None,
        )
        for name in names
    ]
    graph = Graph(made, tensors=tensors, inputs=tuple(inputs), outputs=(output,), opset={"": 17})
    return MemoryRecording.single(graph, arrays)


def replays(reference, backend):
    runs = IndexedRecording.of(reference), IndexedRecording.of(backend)
    return ReferenceReplay(*runs, align_runs(*runs, report_progress=lambda _: None).pairs)


def row(*values, dtype=np.float32):
    return np.array(values, dtype)


GATHER = [("Gather", "table index", "y")]
TABLE = row(1, 5, 2, 9)


def gathered(table, index):
    return recorded(GATHER, {"table": table, "index": index, "y": table[index]}, ("table", "index"))


def test_an_index_brings_what_it_picks_otherwise_and_the_data_what_is_picked_of_them():
    reference = gathered(TABLE, row(0, 2, dtype=np.int64))
    backend = gathered(TABLE + row(0.5, 0, 0, 0), row(0, 3, dtype=np.int64))
    found = errors_by_input(replays(reference, backend), "y", ("table", "index"), PLACE)
    assert found == pytest.approx({"table": 0.5, "index": 7.0})


def test_a_shape_that_one_input_alone_makes_counts_as_infinitely_wrong():
    reference, backend = gathered(TABLE, row(0, 2, dtype=np.int64)), gathered(TABLE + 1, row(0, dtype=np.int64))
    found = errors_by_input(replays(reference, backend), "y", ("table", "index"), PLACE)
    assert found["index"] == math.inf
    assert found["table"] == pytest.approx(math.sqrt(2))


def test_equal_infinities_differ_by_nothing_and_others_infinitely():
    add = [("Add", "a b", "y")]
    theirs, ours = row(np.inf, 1), row(np.inf, 2)
    reference = recorded(add, {"a": theirs, "b": row(1, 1), "y": theirs + 1}, ("a", "b"))
    backend = recorded(add, {"a": ours, "b": row(1, np.inf), "y": row(np.inf, np.inf)}, ("a", "b"))
    found = errors_by_input(replays(reference, backend), "y", ("a", "b"), PLACE)
    assert found == {"a": 1.0, "b": math.inf}


def test_a_node_without_a_kernel_tells_nothing():
    strange = [("Strange", "a b", "y")]
    values = {"a": row(1), "b": row(2), "y": row(3)}
    other = recorded(strange, values | {"a": row(4)}, ("a", "b"))
    assert errors_by_input(replays(recorded(strange, values, ("a", "b")), other), "y", ("a", "b"), PLACE) is None


def test_a_partner_comes_in_its_own_shape_where_the_shapes_differ():
    reference, backend = gathered(TABLE, row(0, 2, dtype=np.int64)), gathered(TABLE, row(0, dtype=np.int64))
    assert partner_values(replays(reference, backend), "index", PLACE).tolist() == [0, 2]


def test_what_is_no_number_on_one_side_alone_counts_as_infinitely_wrong():
    add = [("Add", "a b", "y")]
    reference = recorded(add, {"a": row(1, np.nan), "b": row(1, 1), "y": row(2, np.nan)}, ("a", "b"))
    backend = recorded(add, {"a": row(1, np.nan), "b": row(np.nan, 1), "y": row(np.nan, np.nan)}, ("a", "b"))
    assert errors_by_input(replays(reference, backend), "y", ("a", "b"), PLACE) == {"a": 0.0, "b": math.inf}
