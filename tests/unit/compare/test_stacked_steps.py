"""Steps of a stateful net are replayed together, with the results of replaying each of them alone."""

import json

import numpy as np
import pytest

import qdebug
from qdebug.compare.contributions import contributions
from qdebug.compare.evidence import runs
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.result.result_table import ResultTable
from qdebug.compare.stacked_steps import stack_steps
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.numerics.affine import dequantize, quantize
from qdebug.session import DiffSession

STEPS = 9
QUANTS = {
    "h": QuantParams(dtype="int8", scale=0.8, zero_point=3),
    "r": QuantParams(dtype="int8", scale=0.5, zero_point=-128),
    "y": QuantParams(dtype="int8", scale=0.4, zero_point=0),
}


def net(*, coded=False, mixing=False, missing=(), axis=None):
    """Record a net that adds its last result to its input; with codes, and a maximum over its first axis, if asked."""
    rng = np.random.default_rng(0)
    weights = {"a": rng.standard_normal((6, 5)).astype(np.float32), "b": rng.standard_normal((5, 6)).astype(np.float32)}
    nodes = [
        Node(name="sum", op="Add", inputs=("x", "state"), outputs=("z",)),
        Node(name="first", op="MatMul", inputs=("z", "a"), outputs=("h",)),
        Node(name="active", op="Softmax" if mixing else "Relu", inputs=("h",), outputs=("r",), attrs={"axis": 0}),
        Node(name="second", op="MatMul", inputs=("r", "b"), outputs=("y",)),
    ]
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in weights]
    infos += [TensorInfo(name=name, dtype="int8", quant=quant) for name, quant in QUANTS.items() if coded]
    arrays = {(name, 0, 0): array for name, array in weights.items()}
    for sample in range(2):
        state = np.zeros((2, 6), np.float32)
        for step in range(STEPS):
            real = {"x": rng.standard_normal((2, 6)).astype(np.float32), "state": state}
            stored = dict(real)

            def add(name, values, real=real, stored=stored):
                stored[name] = quantize(values, QUANTS[name]) if coded and name in QUANTS else values
                real[name] = dequantize(stored[name], QUANTS[name]) if coded and name in QUANTS else values

            add("z", real["x"] + state)
            add("h", real["z"] @ weights["a"])
            exponents = np.exp(real["h"])
            add("r", exponents / exponents.sum(axis=0) if mixing else np.maximum(real["h"], 0))
            add("y", real["r"] @ weights["b"])
            state = np.tanh(real["y"])
            arrays |= {(name, sample, step): array for name, array in stored.items() if (name, step) not in missing}
    graph = Graph(nodes, tensors=infos, inputs=("x", "state"), outputs=("y",), opset={"": 17})
    return MemoryRecording(graph, arrays)


def stacked(reference, backend):
    session = DiffSession(reference, backend)
    pairs = session.alignment.pairs
    return stack_steps(GraphCheck(reference, backend, pairs), pairs), {each.tensor: each for each in session.entries()}


def flat(value, path=""):
    """Return the numbers and words of a JSON document by path."""
    if isinstance(value, dict):
        return {key: found for name, each in value.items() for key, found in flat(each, f"{path}/{name}").items()}
    if isinstance(value, (list, tuple)):
        return {key: found for at, each in enumerate(value) for key, found in flat(each, f"{path}/{at}").items()}
    return {path: value}


@pytest.mark.parametrize("mixing", [False, True])
def test_a_comparison_finds_what_it_finds_step_by_step(monkeypatch, mixing):
    reference, backend = net(mixing=mixing), net(coded=True, mixing=mixing)
    together = flat(json.loads(qdebug.diff(reference, backend).to_json()))
    monkeypatch.setattr(runs, "stack_steps", lambda *_: None)
    alone = flat(json.loads(qdebug.diff(reference, backend).to_json()))
    assert together.keys() == alone.keys()
    numbers = {path for path, value in alone.items() if isinstance(value, float)}
    assert {path: together[path] for path in numbers} == pytest.approx(
        {path: alone[path] for path in numbers}, rel=1e-4, abs=1e-6, nan_ok=True
    )
    others = alone.keys() - numbers
    assert {path: together[path] for path in others} == {path: alone[path] for path in others}


@pytest.mark.parametrize("mixing", [False, True])
def test_contributions_are_those_of_single_steps(mixing):
    reference, backend = net(mixing=mixing), net(coded=True, mixing=mixing)
    session = DiffSession(reference, backend)
    table, plan, pairs = ResultTable(tuple(session.results())), session.entries(), session.alignment.pairs
    graphs = GraphCheck(reference, backend, pairs)
    output = next(entry for entry in plan if entry.tensor == "y")
    alone, together = (
        contributions(graphs, plan, table, output, stacked=stacked) for stacked in (None, stack_steps(graphs, pairs))
    )
    assert [each.how for each in alone.nodes] == ["exact"] * 3
    assert {each.node: each.sqnr_db for each in together.nodes} == pytest.approx(
        {each.node: each.sqnr_db for each in alone.nodes}, abs=1e-3
    )
    assert together.together.left == pytest.approx(alone.together.left, rel=1e-4)


def test_only_nodes_that_keep_steps_apart_are_replayed_together():
    entries = ["h", "r", "y"]
    for mixing, expected in ((False, [True, True, True]), (True, [True, False, True])):
        both, of = stacked(net(mixing=mixing), net(coded=True, mixing=mixing))
        assert [both.attribution(of[name]) is not None for name in entries] == expected


def test_a_tensor_without_all_its_steps_is_replayed_step_by_step():
    both, of = stacked(net(), net(coded=True, missing={("r", 4)}))
    assert [both.attribution(of[name]) is not None for name in "hry"] == [True, False, False]
    assert both.replays(of["y"], [(0, 0)]) is None


def test_the_worst_element_is_given_by_its_index_in_a_step():
    both, of = stacked(net(), net(coded=True))
    worst = both.attribution(of["y"]).introduced.worst_index
    assert len(worst) == 2
    assert worst[0] < 2


def test_nets_of_a_single_step_are_not_stacked():
    graph = Graph([Node(name="n", op="Relu", inputs=("x",), outputs=("y",))], inputs=("x",), outputs=("y",))
    x = np.linspace(-1, 1, 8, dtype=np.float32)[None]
    run = MemoryRecording.single(graph, {"x": x, "y": np.maximum(x, 0)})
    assert stacked(run, run)[0] is None
