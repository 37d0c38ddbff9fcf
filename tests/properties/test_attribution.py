"""The whole error is what a node introduces plus what reaches it: exact in integers, on random graphs.

Values are small whole numbers in float32, so that every operator and every sum here is exact. What a node introduces is
put into the backend's recording on purpose, and must be found again to the last digit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.model import Graph, MemoryRecording, Node, Role, RunInfo, TensorInfo
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.stats import ErrorStats
from qdebug.session import DiffSession

Values = dict[tuple[str, int], np.ndarray]
"""Arrays by tensor and sample."""
SIDE = 3
OPS = {
    "Add": lambda x, y: x + y,
    "Sub": lambda x, y: x - y,
    "Relu": lambda x: np.maximum(x, 0),
    "Neg": lambda x: -x,
    "Abs": np.abs,
    "Transpose": lambda x: x.T,
    "MatMul": lambda x, w: x @ w,
    "Mul": lambda x, w: x * w,
}
BINARY = ("Add", "Sub")
WITH_CONSTANT = ("MatMul", "Mul")


@dataclass(frozen=True)
class Case:
    """A graph, what each run recorded of it by (tensor, sample), and what each node does to the backend's inputs."""

    graph: Graph
    reference: Values
    backend: Values
    replayed: Values


def whole(draw: st.DrawFn, most: int) -> np.ndarray:
    numbers = draw(st.lists(st.integers(-most, most), min_size=SIDE * SIDE, max_size=SIDE * SIDE))
    return np.array(numbers, np.float32).reshape(SIDE, SIDE)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a graph of up to six nodes, its values in the reference, and noise for each node of the backend."""
    samples = draw(st.integers(1, 2))
    inputs = {("x", sample): whole(draw, 3) for sample in range(samples)}
    reference, backend = dict(inputs), dict(inputs)
    replayed: Values = {}
    nodes, constants, tensors = [], {}, ["x"]
    for index in range(draw(st.integers(1, 6))):
        op, name = draw(st.sampled_from(sorted(OPS))), f"t{index}"
        reads = [draw(st.sampled_from(tensors))]
        if op in BINARY:
            reads.append(draw(st.sampled_from(tensors)))
        if op in WITH_CONSTANT:
            reads.append(f"w{index}")
            constants[f"w{index}"] = whole(draw, 2)
        attrs = {"perm": (1, 0)} if op == "Transpose" else {}
        nodes.append(Node(name=f"n{index}", op=op, inputs=tuple(reads), outputs=(name,), attrs=attrs))
        wrong = draw(st.booleans())
        for sample in range(samples):
            sides = [
                [constants[read] if read in constants else run[read, sample] for read in reads]
                for run in (reference, backend)
            ]
            reference[name, sample] = OPS[op](*sides[0])
            replayed[name, sample] = OPS[op](*sides[1])
            noise = whole(draw, 4) if wrong else np.zeros((SIDE, SIDE), np.float32)
            backend[name, sample] = replayed[name, sample] + noise
        tensors.append(name)
    infos = [TensorInfo(name="x", role=Role.INPUT), TensorInfo(name=tensors[-1], role=Role.OUTPUT)]
    infos += [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=(tensors[-1],))
    for run in (reference, backend):
        run.update({(name, 0): array for name, array in constants.items()})
    return Case(graph, reference, backend, replayed)


def recorded(graph: Graph, arrays: Values) -> MemoryRecording:
    return MemoryRecording(graph, {(name, s, 0): a for (name, s), a in arrays.items()}, RunInfo(backend="test"))


def stats_of(tensor: str, one: Values, other: Values) -> ErrorStats:
    total = ErrorAccumulator()
    for sample in sorted(sample for name, sample in other if name == tensor):
        total.update(one[tensor, sample], other[tensor, sample], sample=sample)
    return total.stats()


@drawn(150)
@given(case=cases())
def test_what_a_node_introduces_and_what_reaches_it_are_found_exactly(case: Case) -> None:
    session = DiffSession(recorded(case.graph, case.reference), recorded(case.graph, case.backend))
    nodes = {node.tensor: node for node in session.result().nodes}
    for entry in case.graph.nodes:
        (tensor,) = entry.outputs
        node = nodes[tensor]
        assert node.metrics == stats_of(tensor, case.reference, case.backend)
        if node.metrics.mismatches:
            assert node.introduced == stats_of(tensor, case.replayed, case.backend)
            assert node.propagated == stats_of(tensor, case.reference, case.replayed)
        else:  # there is no error to be split
            assert node.introduced == node.propagated == node.metrics
        for sample in node.samples:
            place = tensor, sample.sample
            errors = [
                one[place] - other[place]
                for one, other in (
                    (case.backend, case.reference),
                    (case.backend, case.replayed),
                    (case.replayed, case.reference),
                )
            ]
            assert np.array_equal(errors[0], errors[1] + errors[2])
            assert sample.introduced is not None
            assert sample.propagated is not None
            assert sample.max_abs == np.abs(errors[0]).max()
            parts = errors[1:] if node.metrics.mismatches and errors[0].any() else [errors[0], errors[0]]
            assert sample.introduced.max_abs == np.abs(parts[0]).max()
            assert sample.propagated.max_abs == np.abs(parts[1]).max()
