"""The files for Model Explorer: both graphs, overlays that fit both, nodes that follow each other."""

import ast
import json
from dataclasses import replace

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.compare.result.result import Contributor
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, RunInfo, TensorInfo
from qdebug.present.reports.model_explorer import BACKEND, OPENER, REFERENCE, SYNC, model_explorer_files
from qdebug.running.demo import run_demo
from qdebug.session import open_recording


def refuse(name):
    raise AssertionError(f"{name} is no JSON that a browser reads")


def read(text):
    return json.loads(text, parse_constant=refuse)


def graph_of(files, name):
    (graph,) = read(files[name])["graphs"]
    return graph, {node["id"]: node for node in graph["nodes"]}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    made = run_demo(folder)
    graphs = [open_recording(path).graph for path in (made.reference, made.backend)]
    return made.result, model_explorer_files(made.result, *graphs)


def test_both_graphs_are_whole(demo):
    files = demo[1]
    for name, inner in ((REFERENCE, 14), (BACKEND, 11)):
        graph, nodes = graph_of(files, name)
        assert len(graph["nodes"]) == len(nodes) == inner + 1
        sources = {edge["sourceNodeId"] for node in graph["nodes"] for edge in node["incomingEdges"]}
        assert sources <= set(nodes)
        assert graph["groupNodeAttributes"][""]["status"] == "diverged"
    attrs = {each["key"]: each["value"] for each in graph_of(files, BACKEND)[1]["pwconv_quant"]["attrs"]}
    assert attrs["qdebug status"] == "diverged"
    assert "211.3 LSB" in attrs["qdebug reason"]


def test_partners_have_one_id_and_no_others_have(demo):
    files = demo[1]
    reference, backend = graph_of(files, REFERENCE)[1], graph_of(files, BACKEND)[1]
    assert reference["pwconv_quant"]["label"] == "Relu"  # what the fused node gives
    assert {"input: x", "pool1", "logits_quant"} <= reference.keys() & backend.keys()
    named = {each["value"] for each in reference["pwconv_quant"]["attrs"] if each["key"] == "node"}
    assert named == {"relu4"}


def test_a_fused_node_belongs_to_all_that_it_stands_for(demo):
    sync = read(demo[1][SYNC])
    (entry,) = [each for each in sync["mappingEntries"] if each["rightNodeIds"] == ["pwconv_quant"]]
    assert entry["leftNodeIds"] == ["pwconv_quant", "pwconv"]
    known = set(graph_of(demo[1], REFERENCE)[1])
    assert {left for each in sync["mappingEntries"] for left in each["leftNodeIds"]} <= known


def test_overlays_fit_both_graphs_and_the_status_is_shown_first(demo):
    files = demo[1]
    overlays = sorted(name for name in files if name.startswith("overlay-"))
    ids = set(graph_of(files, BACKEND)[1])
    for name in overlays:
        assert set(read(files[name])["results"]) <= ids
    last = read(files[overlays[-1]])
    assert (last["name"], last["results"]["pwconv_quant"]["value"]) == ("status", "diverged")
    (sqnr,) = [read(files[name]) for name in overlays if "SQNR" in name]
    assert sqnr["results"]["input: x"]["value"] == 400  # infinity
    assert "tensor_name" not in files[BACKEND]  # Model Explorer would look for overlays by it


def test_the_script_opens_both_panes_at_the_culprit(demo):
    tree = ast.parse(demo[1][OPENER])
    constants = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id.isupper()
    }
    assert ast.literal_eval(constants["SELECTED"]) == "pwconv_quant"
    assert sorted(ast.literal_eval(constants["OVERLAYS"])) == sorted(n for n in demo[1] if n.startswith("overlay-"))


def test_where_no_node_diverges_the_costliest_one_is_selected(tmp_path):
    made = run_demo(tmp_path)
    graphs = [open_recording(path).graph for path in (made.reference, made.backend)]
    costs = [
        Contributor(node=node, tensor=node, output="logits", sqnr_db=level, how=how)
        for node, level, how in (("gemm_quant", 3.0, "bounded"), ("conv1_quant", 9.0, "exact"))
    ]
    verdict = replace(made.result.verdict, first_divergence=None, origin=None, contributors=tuple(costs))
    files = model_explorer_files(replace(made.result, verdict=verdict), *graphs)
    assert "SELECTED = 'conv1_quant'" in files[OPENER]


def hostile(values):
    quant = QuantParams(dtype="int8", scale=1.0)
    nodes = [
        Node(name="results", op="Relu", inputs=("x",), outputs=("y",)),
        Node(name="a/\x1b[2J/b", op="Relu", inputs=("y",), outputs=("z",)),
    ]
    tensors = [TensorInfo(name=name, quant=quant, dtype="int8") for name in ("x", "y", "z")]
    graph = Graph(nodes, tensors=tensors, inputs=["x"], outputs=["z"])
    arrays = {name: np.full(4, value, np.int8) for name, value in zip("xyz", values, strict=True)}
    return MemoryRecording.single(graph, arrays, RunInfo(backend="b"))


def test_names_that_mislead_are_changed():
    reference, backend = hostile((1, 1, 1)), hostile((1, 9, 9))
    result = diff(reference, backend)
    strange = replace(result.nodes[-1], metrics=replace(result.nodes[-1].metrics, max_abs=float("nan")))
    files = model_explorer_files(replace(result, nodes=(*result.nodes[:-1], strange)), reference.graph, backend.graph)
    nodes = graph_of(files, BACKEND)[1]
    assert "results_" in nodes
    assert "results" not in nodes
    assert all("\x1b" not in text for text in files.values())
    assert nodes["a/\x1b[2J/b"]["namespace"] == r"a/\x1b[2J"
