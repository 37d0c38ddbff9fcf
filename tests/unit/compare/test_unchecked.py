"""What lies inside a part that could not be replayed after all is not said to have been checked."""

import numpy as np

from qdebug.api import diff
from qdebug.compare.align.pairs import UnmatchedKind
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.session import DiffSession

X = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)


def recorded(*, apart, shape=(2, -1), kept=True, off=0.0):
    """Record Exp(-x) turned into another shape, in one node or in several, with what the Reshape reads or without."""
    arrays = {"x": X, "shape": np.array(shape)}
    if apart:
        nodes = [
            Node(name="neg", op="Neg", inputs=("x",), outputs=("n",)),
            Node(name="exp", op="Exp", inputs=("n",), outputs=("e",)),
            Node(name="reshape", op="Reshape", inputs=("e", "shape"), outputs=("y",)),
        ]
        arrays |= {"n": -X, "e": np.exp(-X)}
    else:
        nodes = [
            Node(name="exp", op="Exp", inputs=("x",), outputs=("o",)),
            Node(name="over", op="Reciprocal", inputs=("o",), outputs=("r",)),
            Node(name="reshape", op="Reshape", inputs=("r", "shape"), outputs=("y",)),
        ]
        arrays |= {"o": np.exp(X), "r": 1 / np.exp(X)}
    arrays["y"] = np.exp(-X).reshape(2, -1) + np.float32(off)
    if not kept:
        del arrays["shape"]
    infos = [TensorInfo(name="shape", role=Role.CONSTANT)]
    graph = Graph(nodes, tensors=infos, inputs=["x"], outputs=["y"], opset={"": 17})
    return MemoryRecording.single(graph, arrays)


def reasons(result):
    return {entry.tensor: entry.reason for entry in result.coverage.unmatched if entry.kind is UnmatchedKind.BENIGN}


def test_a_part_that_is_replayed_is_said_to_be_accounted_for_and_no_more():
    said = reasons(diff(recorded(apart=True), recorded(apart=False, off=1e-6)))
    assert set(said) >= {"n", "e"}
    assert not any("nothing checked" in reason for reason in said.values())


def test_a_part_whose_replay_fails_is_said_to_be_unchecked():
    reference = recorded(apart=True, shape=(5, 5))  # a shape that the values do not fill
    result = diff(reference, recorded(apart=False, off=1e-6))
    said = reasons(result)
    assert all(
        "whether both runs compute the same result there was not checked, because" in said[name] for name in ("n", "e")
    )
    assert result.nodes[-1].unchecked is not None


def test_what_equals_the_reference_needs_no_check():
    same = diff(recorded(apart=True, shape=(5, 5)), recorded(apart=True, shape=(5, 5)))
    assert all(node.unchecked is None for node in same.nodes)


def test_results_that_were_kept_say_the_same():
    from qdebug.compare.result.kept import kept_columns, kept_results

    session = DiffSession(recorded(apart=True, shape=(5, 5)), recorded(apart=False, off=1e-6))
    nodes = list(session.results())
    back, _ = kept_results(kept_columns(nodes, ()), session.entries())
    assert [node.unchecked for node in back] == [node.unchecked for node in nodes]
    assert back[-1].unchecked
